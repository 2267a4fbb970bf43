//! What a cluster is given before the programs start: what the charts install on a real one.

use cluster_sim::Cluster;
use kit::context::InProcessService;
use serde_json::{Value, json};

use crate::objects;
use crate::stack::NAMESPACE;

/// Installs the custom resources, the webhooks, the visibility API and the programs' namespace.
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
    for service in admission_controller::visibility::api_services(&Default::default()) {
        objects::apply(&client, &as_manifest("apiregistration.k8s.io/v1", "APIService", &service)?).await?;
    }
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
    page(service, "/readyz").await.is_some()
}

/// A page of a program, if it answers with ok.
pub(crate) async fn page(service: InProcessService, path: &str) -> Option<String> {
    use tower::ServiceExt as _;
    let request = http::Request::get(path).body(axum::body::Body::empty()).ok()?;
    let response = service.oneshot(request).await.ok().filter(|answer| answer.status().is_success())?;
    let body = axum::body::to_bytes(axum::body::Body::new(response.into_body()), usize::MAX).await.ok()?;
    String::from_utf8(body.to_vec()).ok()
}
