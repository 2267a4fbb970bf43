use std::time::Duration;

use axum::body::Body;
use http::{Request, header};
use http_body_util::BodyExt;
use serde_json::Value;
use tower::ServiceExt;

use crate::cluster::Cluster;
use crate::object::{at, text, to_bytes};

/// POSTs a review to the service that a `clientConfig` names and returns the answer. The service is one of the
/// replicas registered in the service table.
pub(crate) async fn call(
    cluster: &Cluster,
    config: &Value,
    review: &Value,
    timeout_seconds: u64,
) -> Result<Value, String> {
    let service = at(config, &["service"]);
    let (namespace, name) = (text(service, &["namespace"]), text(service, &["name"]));
    let path = text(service, &["path"]);
    let url = format!(
        "https://{name}.{namespace}.svc:443/{}?timeout={timeout_seconds}s",
        path.trim_start_matches('/')
    );
    if name.is_empty() {
        return Err("only in-process services can be called, and clientConfig names none".into());
    }
    let mut replicas = cluster.0.services.resolve(namespace, name);
    if replicas.is_empty() {
        return Err(format!("Post \"{url}\": no endpoints available for service \"{name}\""));
    }
    let chosen = match replicas.len() {
        1 => 0,
        n => usize::try_from(cluster.0.rng.u64(0..n as u64)).unwrap_or(0),
    };
    let replica = replicas.swap_remove(chosen);
    let request = Request::post(format!("/{}?timeout={timeout_seconds}s", path.trim_start_matches('/')))
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::HOST, format!("{name}.{namespace}.svc"))
        .body(Body::from(to_bytes(review)))
        .map_err(|e| format!("Post \"{url}\": {e}"))?;
    let exchange = async {
        let faults = cluster.faults();
        faults
            .on_webhook(cluster.clock(), namespace, name)
            .await
            .map_err(|e| format!("Post \"{url}\": {e}"))?;
        let Ok(response) = replica.oneshot(request).await;
        let status = response.status();
        let body =
            response.into_body().collect().await.map_err(|e| format!("Post \"{url}\": {e}"))?.to_bytes();
        if !status.is_success() {
            return Err(format!("the server answered {status}: {}", String::from_utf8_lossy(&body)));
        }
        serde_json::from_slice(&body).map_err(|e| format!("Post \"{url}\": the answer is no JSON: {e}"))
    };
    tokio::time::timeout(Duration::from_secs(timeout_seconds), exchange)
        .await
        .unwrap_or_else(|_| Err(format!("Post \"{url}\": context deadline exceeded")))
}
