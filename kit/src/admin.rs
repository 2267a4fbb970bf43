//! The pages for those who run the program: `/healthz`, `/readyz`, `/metrics`, `/debug/state`.

mod exposition;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use prometheus_client::registry::Registry;
use serde_json::Value;

use crate::http::Peer;

/// What the names of metrics begin with that are not a peer's.
pub const METRICS_PREFIX: &str = "trireme";

/// What has to be true before the program is ready, by name.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<Mutex<BTreeMap<&'static str, Option<String>>>>);

impl Readiness {
    /// Nothing to wait for.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a condition that is not met yet, for this reason.
    pub fn require(&self, name: &'static str, reason: impl Into<String>) -> Requirement {
        let requirement = Requirement { of: self.clone(), name };
        requirement.unmet(reason);
        requirement
    }

    /// Whether all is met; otherwise what is not, with reasons.
    pub fn unmet(&self) -> BTreeMap<&'static str, String> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter_map(|(name, unmet)| Some((*name, unmet.clone()?))).collect()
    }

    fn set(&self, name: &'static str, unmet: Option<String>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name, unmet);
    }
}

/// One condition of a [`Readiness`].
#[derive(Clone, Debug)]
pub struct Requirement {
    of: Readiness,
    name: &'static str,
}

impl Requirement {
    /// It is met.
    pub fn met(&self) {
        self.of.set(self.name, None);
    }

    /// It is not met (any more), for this reason.
    pub fn unmet(&self, reason: impl Into<String>) {
        self.of.set(self.name, Some(reason.into()));
    }
}

/// Gives the program's state as JSON: the task that owns the state is asked.
pub type StateSource = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Value> + Send>> + Send + Sync>;

/// The pages. `/debug/state` is there only if there is a source, and [from within](from_within).
pub fn router(readiness: Readiness, registry: Arc<Registry>, state: Option<StateSource>) -> Router {
    let router = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(move || std::future::ready(ready(&readiness))))
        .route("/metrics", get(move || std::future::ready(metrics(&registry))));
    match state {
        Some(state) => router.merge(from_within(
            Router::new().route("/debug/state", get(move || async move { Json(state().await) })),
        )),
        None => router,
    }
}

/// Pages that show names and reasons of all namespaces, for those alone who may reach into the pod: they are answered where the request
/// comes from the same machine, as that of `kubectl port-forward` does.
pub fn from_within(pages: Router) -> Router {
    pages.route_layer(middleware::from_fn(only_from_within))
}

async fn only_from_within(request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<Peer>();
    if peer.is_some_and(|Peer(address)| !address.ip().to_canonical().is_loopback()) {
        let words = "this page is shown within the pod only: ask through kubectl port-forward\n";
        return (StatusCode::FORBIDDEN, words).into_response();
    }
    next.run(request).await
}

fn ready(readiness: &Readiness) -> Response {
    let unmet = readiness.unmet();
    if unmet.is_empty() {
        return "ok\n".into_response();
    }
    let lines: String = unmet.iter().map(|(name, reason)| format!("{name}: {reason}\n")).collect();
    (StatusCode::SERVICE_UNAVAILABLE, lines).into_response()
}

/// In Prometheus' text format alone: whoever asks for OpenMetrics would see other bounds of buckets (`le="10.0"`), which queries
/// written for the peers' metrics do not find.
fn metrics(registry: &Registry) -> Response {
    let mut text = String::new();
    match prometheus_client::encoding::text::encode(&mut text, registry) {
        Ok(()) => {
            let format = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
            (format, exposition::prometheus(&text)).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("metrics cannot be encoded: {error}\n"))
            .into_response(),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::Request;
    use http_body_util::BodyExt;
    use prometheus_client::metrics::counter::Counter;
    use serde_json::json;
    use tower::ServiceExt;

    use super::*;

    async fn page(router: &Router, path: &str, accept: &str) -> (u16, String, String) {
        let request = Request::get(path).header(header::ACCEPT, accept).body(Body::empty()).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let kind = response.headers()[header::CONTENT_TYPE].to_str().unwrap().to_owned();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, kind, String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn state_is_shown_to_nobody_outside_the_pod() {
        let state: StateSource = Arc::new(|| Box::pin(async { json!({"a": 1}) }));
        let router = router(Readiness::new(), Arc::default(), Some(state));
        for (peer, path, expected) in [
            ("10.0.0.7:4444", "/debug/state", 403),
            ("[::ffff:10.0.0.7]:4444", "/debug/state", 403),
            ("127.0.0.1:4444", "/debug/state", 200),
            ("[::ffff:127.0.0.1]:4444", "/debug/state", 200),
            ("[::1]:4444", "/debug/state", 200),
            ("10.0.0.7:4444", "/metrics", 200),
            ("10.0.0.7:4444", "/readyz", 200),
            ("10.0.0.7:4444", "/elsewhere", 404),
        ] {
            let mut request = Request::get(path).body(Body::empty()).unwrap();
            request.extensions_mut().insert(Peer(peer.parse().unwrap()));
            let response = router.clone().oneshot(request).await.unwrap();
            assert_eq!(response.status().as_u16(), expected, "{path} from {peer}");
        }
    }

    #[tokio::test]
    async fn readiness_names_what_is_missing() {
        let readiness = Readiness::new();
        let caches = readiness.require("caches", "listing pods");
        let router =
            router(readiness, Arc::default(), Some(Arc::new(|| Box::pin(async { json!({"a": 1}) }))));
        assert_eq!(page(&router, "/healthz", "*/*").await.0, 200);
        let (status, _, text) = page(&router, "/readyz", "*/*").await;
        assert_eq!((status, text.as_str()), (503, "caches: listing pods\n"));
        caches.met();
        assert_eq!(page(&router, "/readyz", "*/*").await.0, 200);
        assert_eq!(page(&router, "/debug/state", "*/*").await.2, r#"{"a":1}"#);
    }

    #[tokio::test]
    async fn metrics_come_in_the_text_format_whatever_is_asked_for() {
        let mut registry = Registry::default();
        let counter: Counter = Counter::default();
        counter.inc();
        registry.register("things", "Things", counter);
        let router = router(Readiness::new(), Arc::new(registry), None);
        for accept in ["text/plain", "application/openmetrics-text;version=1.0.0"] {
            let (_, kind, text) = page(&router, "/metrics", accept).await;
            assert!(kind.starts_with("text/plain; version=0.0.4"));
            assert_eq!(text, "# HELP things_total Things.\n# TYPE things_total counter\nthings_total 1\n");
        }
    }
}
