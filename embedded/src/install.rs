//! What a cluster is given before the programs start: what the charts install on a real one.

use cluster_sim::Cluster;
use kit::context::InProcessService;
use serde_json::{Value, json};

use crate::objects;
use crate::stack::NAMESPACE;

/// Installs the custom resources, the webhooks and the programs' namespace.
pub(crate) async fn everything(cluster: &Cluster) -> anyhow::Result<()> {
    let client = cluster.client_as("installer");
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
    objects::apply(&client, &namespace).await?;
    for crd in crds::all() {
        objects::apply(&client, &as_manifest("apiextensions.k8s.io/v1", "CustomResourceDefinition", &crd)?)
            .await?;
    }
    let (mutating, validating) = admission_controller::webhook_configurations(None);
    let group = "admissionregistration.k8s.io/v1";
    objects::apply(&client, &as_manifest(group, "MutatingWebhookConfiguration", &mutating)?).await?;
    objects::apply(&client, &as_manifest(group, "ValidatingWebhookConfiguration", &validating)?).await?;
    Ok(())
}

fn as_manifest(version: &str, kind: &str, object: &impl serde::Serialize) -> serde_json::Result<Value> {
    let mut manifest = serde_json::to_value(object)?;
    manifest["apiVersion"] = json!(version);
    manifest["kind"] = json!(kind);
    Ok(manifest)
}

/// Whether a service answers its readiness probe with ok.
pub(crate) async fn answers_ready(service: InProcessService) -> bool {
    use tower::ServiceExt as _;
    let Ok(request) = http::Request::get("/readyz").body(axum::body::Body::empty()) else { return false };
    service.oneshot(request).await.is_ok_and(|response| response.status().is_success())
}
