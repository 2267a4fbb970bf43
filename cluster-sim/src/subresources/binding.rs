use serde_json::{Value, json};

use crate::Part;
use crate::cluster::Cluster;
use crate::error::{ApiError, FieldError};
use crate::object::{ObjectKey, at, entry, items, metadata_mut, text};
use crate::request::Target;
use crate::write::{Caller, Subject};

/// Assigns a pod to a node: sets `spec.nodeName`, overlays the Binding's labels and annotations, and says so in the
/// condition PodScheduled. The Binding's uid and resourceVersion are preconditions.
pub(super) async fn bind(
    cluster: &Cluster,
    caller: &Caller,
    target: &Target,
    body: &Value,
) -> Result<(), ApiError> {
    let resource = &target.resource;
    let given = text(body, &["metadata", "name"]);
    let name = target.name.as_deref().unwrap_or(given);
    if !given.is_empty() && given != name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        )));
    }
    let node = text(body, &["target", "name"]).to_owned();
    let kind = text(body, &["target", "kind"]);
    let mut errors = Vec::new();
    if !kind.is_empty() && kind != "Node" {
        errors.push(FieldError::not_supported(
            "target.kind",
            &kind.into(),
            &["Node".into(), "<empty>".into()],
        ));
    }
    if node.is_empty() {
        errors.push(FieldError::required("target.name", ""));
    }
    if !errors.is_empty() {
        return Err(ApiError::invalid("", "Binding", name, &errors));
    }
    let subject = Subject {
        resource: resource.clone(),
        version: target.version,
        key: ObjectKey::new(target.namespace_or_empty(), name),
        part: Part::Binding,
        whole: false,
    };
    let now = cluster.timestamp();
    let mut change = |pod: &Value| {
        check(resource, name, body, pod)?;
        let mut pod = pod.clone();
        entry(&mut pod, "spec").insert("nodeName".into(), node.as_str().into());
        for key in ["labels", "annotations"] {
            overlay(&mut pod, key, at(body, &["metadata", key]));
        }
        scheduled(&mut pod, &now);
        Ok(pod)
    };
    crate::write::update(cluster, caller, &subject, &mut change).await.map(|_| ())
}

fn check(
    resource: &crate::resources::Resource,
    name: &str,
    binding: &Value,
    pod: &Value,
) -> Result<(), ApiError> {
    let conflict =
        |why: String| Err(ApiError::conflict(&crate::GroupResource::core("pods/binding"), name, why));
    for (field, label) in [("uid", "UID"), ("resourceVersion", "ResourceVersion")] {
        let asked = text(binding, &["metadata", field]);
        let current = text(pod, &["metadata", field]);
        if !asked.is_empty() && asked != current {
            let why = format!(
                "Precondition failed: {label} in precondition: {asked}, {label} in object meta: {current}"
            );
            return Err(ApiError::conflict(&resource.id, name, why));
        }
    }
    if !at(pod, &["metadata", "deletionTimestamp"]).is_null() {
        return conflict(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    let bound = text(pod, &["spec", "nodeName"]);
    if !bound.is_empty() {
        return conflict(format!("pod {name} is already assigned to node \"{bound}\""));
    }
    if !items(pod, &["spec", "schedulingGates"]).is_empty() {
        return conflict(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    Ok(())
}

fn overlay(pod: &mut Value, key: &str, values: &Value) {
    let Some(values) = values.as_object().filter(|v| !v.is_empty()) else { return };
    let slot = metadata_mut(pod).entry(key).or_insert_with(|| json!({}));
    crate::object::object_mut(slot).extend(values.clone());
}

fn scheduled(pod: &mut Value, now: &str) {
    let condition = json!({
        "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now,
    });
    let status = entry(pod, "status");
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    let Some(list) = conditions.as_array_mut() else { return };
    match list.iter_mut().find(|c| text(c, &["type"]) == "PodScheduled") {
        Some(existing) => *existing = condition,
        None => list.push(condition),
    }
}
