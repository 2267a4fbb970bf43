use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::error::ApiError;
use crate::object::{items, object_mut, text};
use crate::resources::{Conversion, Origin, Resource};

/// A value as given in `version`, pruned, defaulted, and in the form in which it is stored. Fields that the kind does not
/// have are named in `unknown`.
pub(crate) async fn to_storage(
    cluster: &Cluster,
    resource: &Resource,
    version: usize,
    mut value: Value,
    unknown: &mut Vec<String>,
) -> Result<Value, ApiError> {
    let api_version = resource.api_version(version);
    let map = object_mut(&mut value);
    map.insert("apiVersion".into(), api_version.into());
    map.insert("kind".into(), (*resource.kind).into());
    settle(resource, version, &mut value, unknown)?;
    if !resource.converts(version) {
        return Ok(value);
    }
    if resource.id.is("events.k8s.io", "events") {
        return Ok(core_event(value));
    }
    let storage = resource.storage_version();
    let mut value = convert(cluster, resource, storage, value).await?;
    settle(resource, storage, &mut value, &mut Vec::new())?;
    Ok(value)
}

/// The stored value in a served version.
pub(crate) async fn from_storage(
    cluster: &Cluster,
    resource: &Resource,
    version: usize,
    value: &Value,
) -> Result<Value, ApiError> {
    if !resource.converts(version) {
        return Ok(value.clone());
    }
    if resource.id.is("events.k8s.io", "events") {
        return Ok(new_event(value.clone()));
    }
    let mut value = convert(cluster, resource, version, value.clone()).await?;
    settle(resource, version, &mut value, &mut Vec::new())?;
    Ok(value)
}

fn settle(
    resource: &Resource,
    version: usize,
    value: &mut Value,
    unknown: &mut Vec<String>,
) -> Result<(), ApiError> {
    if let Some(builtin) = resource.builtin() {
        return builtin.shape().settle(value, unknown);
    }
    if let Some(schema) = &resource.versions[version].schema {
        schema.prune(value, unknown);
        schema.default(value);
    }
    Ok(())
}

async fn convert(
    cluster: &Cluster,
    resource: &Resource,
    version: usize,
    mut value: Value,
) -> Result<Value, ApiError> {
    let desired = resource.api_version(version);
    let Origin::Custom(conversion) = &resource.origin else { return Ok(value) };
    match conversion {
        Conversion::None => {
            object_mut(&mut value).insert("apiVersion".into(), desired.into());
            Ok(value)
        }
        Conversion::Webhook(config) => {
            let failed = |why: String| {
                ApiError::internal(format!(
                    "conversion webhook for {}, Kind={} failed: {why}",
                    desired, resource.kind
                ))
            };
            // Only has to come back as it was; an object is in one conversion at a time.
            let uid = text(&value, &["metadata", "uid"]);
            let review = json!({
                "kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1",
                "request": { "uid": uid, "desiredAPIVersion": desired, "objects": [value] },
            });
            let answer = crate::admission::call(cluster, config, &review, 30).await.map_err(failed)?;
            let response = answer.get("response").cloned().unwrap_or_default();
            if text(&response, &["result", "status"]) != "Success" {
                return Err(failed(text(&response, &["result", "message"]).to_owned()));
            }
            match items(&response, &["convertedObjects"]) {
                [converted] => Ok(keep_metadata(&value, converted.clone())),
                other => Err(failed(format!("expected 1 converted object, got {}", other.len()))),
            }
        }
    }
}

/// Of the metadata a conversion may change labels and annotations only.
fn keep_metadata(original: &Value, mut converted: Value) -> Value {
    let mut metadata = original.get("metadata").cloned().unwrap_or_default();
    for key in ["labels", "annotations"] {
        let new = converted.get("metadata").and_then(|m| m.get(key)).cloned();
        match new {
            Some(new) => object_mut(&mut metadata).insert(key.into(), new),
            None => object_mut(&mut metadata).remove(key),
        };
    }
    object_mut(&mut converted).insert("metadata".into(), metadata);
    converted
}

/// The names of the same field in the two event APIs: core, events.k8s.io.
const EVENT_FIELDS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

fn core_event(mut value: Value) -> Value {
    let map = object_mut(&mut value);
    for (core, new) in EVENT_FIELDS {
        if let Some(field) = map.remove(new) {
            map.insert(core.into(), field);
        }
    }
    map.insert("apiVersion".into(), "v1".into());
    value
}

fn new_event(mut value: Value) -> Value {
    let map = object_mut(&mut value);
    for (core, new) in EVENT_FIELDS {
        if let Some(field) = map.remove(core) {
            map.insert(new.into(), field);
        }
    }
    map.insert("apiVersion".into(), "events.k8s.io/v1".into());
    value
}
