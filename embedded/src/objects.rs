//! Objects of any kind, as manifests and as what a client reads back.

use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::Value;

/// What went wrong with a manifest.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The text is no YAML.
    #[error("{file}: not a YAML document: {source}")]
    Yaml {
        /// Where the text came from.
        file: String,
        /// What the parser says.
        #[source]
        source: Box<serde_saphyr::Error>,
    },
    /// The document is no object.
    #[error("{0}: a document without apiVersion, kind or metadata.name")]
    NoObject(String),
    /// The API server refused it.
    #[error("{what} was refused: {source}")]
    Refused {
        /// Kind, namespace and name.
        what: String,
        /// The server's answer.
        #[source]
        source: Box<kube::Error>,
    },
}

/// The documents of a YAML file.
///
/// # Errors
/// The text is no YAML.
pub fn parse(file: &str, text: &str) -> Result<Vec<Value>, ManifestError> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text)
        .map_err(|source| ManifestError::Yaml { file: file.to_owned(), source: Box::new(source) })?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

/// An endpoint for objects of a manifest's kind, in its namespace.
///
/// # Errors
/// The manifest names no kind.
pub fn api(client: &kube::Client, manifest: &Value) -> Result<Api<DynamicObject>, ManifestError> {
    let missing = || ManifestError::NoObject(describe(manifest));
    let version = manifest["apiVersion"].as_str().ok_or_else(missing)?;
    let kind = manifest["kind"].as_str().ok_or_else(missing)?;
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let namespace = manifest["metadata"]["namespace"].as_str();
    Ok(if is_cluster_scoped(kind) {
        Api::all_with(client.clone(), &resource)
    } else {
        Api::namespaced_with(client.clone(), namespace.unwrap_or("default"), &resource)
    })
}

fn is_cluster_scoped(kind: &str) -> bool {
    matches!(
        kind,
        "Namespace"
            | "Node"
            | "ClusterQueue"
            | "Cohort"
            | "ResourceFlavor"
            | "WorkloadPriorityClass"
            | "PriorityClass"
            | "Queue"
            | "APIService"
            | "CustomResourceDefinition"
            | "MutatingWebhookConfiguration"
            | "ValidatingWebhookConfiguration"
            | "GpuNode"
            | "Topology"
            | "AdmissionCheck"
            | "ProvisioningRequestConfig"
    )
}

/// Creates an object, or brings it to what the manifest says.
///
/// # Errors
/// The manifest is no object, or the server refuses it.
pub async fn apply(client: &kube::Client, manifest: &Value) -> Result<DynamicObject, ManifestError> {
    let name =
        manifest["metadata"]["name"].as_str().ok_or_else(|| ManifestError::NoObject(describe(manifest)))?;
    api(client, manifest)?
        .patch(name, &PatchParams::apply("trireme").force(), &Patch::Apply(manifest))
        .await
        .map_err(|source| ManifestError::Refused { what: describe(manifest), source: Box::new(source) })
}

/// Deletes the object that a manifest made.
///
/// # Errors
/// The manifest is no object, or the server refuses.
pub async fn delete(client: &kube::Client, manifest: &Value) -> Result<(), ManifestError> {
    let name =
        manifest["metadata"]["name"].as_str().ok_or_else(|| ManifestError::NoObject(describe(manifest)))?;
    let outcome = api(client, manifest)?.delete(name, &DeleteParams::background()).await;
    outcome
        .map(|_| ())
        .map_err(|source| ManifestError::Refused { what: describe(manifest), source: Box::new(source) })
}

/// Changes part of the object that a manifest made, by a JSON merge patch.
///
/// # Errors
/// The manifest is no object, or the server refuses.
pub async fn patch(client: &kube::Client, manifest: &Value, patch: &Value) -> Result<(), ManifestError> {
    let name =
        manifest["metadata"]["name"].as_str().ok_or_else(|| ManifestError::NoObject(describe(manifest)))?;
    let outcome = api(client, manifest)?.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
    outcome
        .map(|_| ())
        .map_err(|source| ManifestError::Refused { what: describe(manifest), source: Box::new(source) })
}

/// Changes part of an object's status by a JSON merge patch.
///
/// # Errors
/// The object has no kind, or the server refuses.
pub async fn patch_status(client: &kube::Client, object: &Value, patch: &Value) -> Result<(), ManifestError> {
    let name =
        object["metadata"]["name"].as_str().ok_or_else(|| ManifestError::NoObject(describe(object)))?;
    let outcome =
        api(client, object)?.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await;
    outcome
        .map(|_| ())
        .map_err(|source| ManifestError::Refused { what: describe(object), source: Box::new(source) })
}

/// Appends to a list in the status of an object.
///
/// # Errors
/// The object has no kind, or the server refuses.
pub async fn append(
    client: &kube::Client,
    object: &Value,
    list: &str,
    item: Value,
) -> Result<(), ManifestError> {
    let name =
        object["metadata"]["name"].as_str().ok_or_else(|| ManifestError::NoObject(describe(object)))?;
    let patch = serde_json::json!([{ "op": "add", "path": format!("{list}/-"), "value": item }]);
    // A JSON Patch of this form always parses.
    let patch: Patch<()> = Patch::Json(serde_json::from_value(patch).unwrap_or_default());
    let outcome = api(client, object)?.patch_status(name, &PatchParams::default(), &patch).await;
    outcome
        .map(|_| ())
        .map_err(|source| ManifestError::Refused { what: describe(object), source: Box::new(source) })
}

/// Kind, namespace and name, for messages.
pub fn describe(manifest: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    let metadata = &manifest["metadata"];
    match metadata["namespace"].as_str() {
        Some(namespace) => format!("{} {namespace}/{}", text(&manifest["kind"]), text(&metadata["name"])),
        None => format!("{} {}", text(&manifest["kind"]), text(&metadata["name"])),
    }
}
