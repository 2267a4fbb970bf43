use serde_json::{Map, Value};

use crate::cluster::Cluster;
use crate::error::{ApiError, FieldError};
use crate::object::{at, items, metadata_mut, name, text};
use crate::resources::{Feature, Resource};

/// Fields of metadata that only the server sets.
const SERVER_OWNED: [&str; 5] =
    ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"];

/// A generated name is cut so that its five random characters fit into 63 (`maxGeneratedNameLength`).
const MAX_GENERATED_PREFIX: usize = 58;

/// Gives an object its identity: uid and creation time.
pub(crate) fn identify(cluster: &Cluster, value: &mut Value) {
    let uid = uid(cluster);
    let now = cluster.timestamp();
    let metadata = metadata_mut(value);
    metadata.insert("uid".into(), uid.into());
    metadata.insert("creationTimestamp".into(), now.into());
}

/// A version 4 UUID from the cluster's seed.
fn uid(cluster: &Cluster) -> String {
    let (high, low) = (cluster.0.rng.u64(..), cluster.0.rng.u64(..));
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xfff,
        0x8000 | ((low >> 48) & 0x3fff),
        low & 0xffff_ffff_ffff
    )
}

/// Prepares the metadata of an object about to be created.
pub(crate) fn stamp_new(cluster: &Cluster, resource: &Resource, value: &mut Value) -> Result<(), ApiError> {
    let generated = text(value, &["metadata", "generateName"]).to_owned();
    if name(value).is_empty() {
        if generated.is_empty() {
            let error = FieldError::required("metadata.name", "name or generateName is required");
            return Err(ApiError::invalid(&resource.id.group, &resource.kind, "", &[error]));
        }
        let prefix: String = generated.chars().take(MAX_GENERATED_PREFIX).collect();
        let suffix = cluster.0.rng.suffix(5);
        metadata_mut(value).insert("name".into(), format!("{prefix}{suffix}").into());
    }
    let metadata = metadata_mut(value);
    for key in SERVER_OWNED {
        metadata.remove(key);
    }
    tidy(metadata);
    identify(cluster, value);
    if counts_generations(resource) {
        metadata_mut(value).insert("generation".into(), 1.into());
    }
    Ok(())
}

/// Removes what is never stored here, and empty collections, which a real server omits.
fn tidy(metadata: &mut Map<String, Value>) {
    metadata.remove("managedFields");
    metadata.remove("selfLink");
    for key in ["labels", "annotations"] {
        if metadata.get(key).is_some_and(|v| v.is_null() || v.as_object().is_some_and(Map::is_empty)) {
            metadata.remove(key);
        }
    }
    for key in ["finalizers", "ownerReferences"] {
        if metadata.get(key).is_some_and(|v| v.is_null() || v.as_array().is_some_and(Vec::is_empty)) {
            metadata.remove(key);
        }
    }
    if metadata.get("generateName").is_some_and(|g| g.as_str() == Some("") || g.is_null()) {
        metadata.remove("generateName");
    }
}

pub(crate) fn counts_generations(resource: &Resource) -> bool {
    resource.builtin().is_none() || resource.has(Feature::Generation)
}

/// Puts back what a writer cannot change; afterwards an unchanged object equals the stored one.
pub(crate) fn carry_over(old: &Value, new: &mut Value) {
    let metadata = metadata_mut(new);
    for key in SERVER_OWNED.into_iter().chain(["resourceVersion", "namespace", "name", "generateName"]) {
        match at(old, &["metadata", key]) {
            Value::Null => metadata.remove(key),
            kept => metadata.insert(key.to_owned(), kept.clone()),
        };
    }
    tidy(metadata);
    // Removed keys may leave explicit nulls behind in a replaced object.
    metadata.retain(|_, v| !v.is_null());
}

/// Counts a change of what the generation covers: the spec of built-in kinds, everything but metadata and (where it is a
/// subresource) status of custom ones.
pub(crate) fn bump_generation(resource: &Resource, old: &Value, new: &mut Value) {
    if !counts_generations(resource) {
        return;
    }
    let changed = if resource.builtin().is_some() {
        let counted = |v: &Value| {
            ["spec", "webhooks", "endpoints", "ports", "template"]
                .map(|key| v.get(key).cloned().unwrap_or_default())
        };
        counted(old) != counted(new)
    } else {
        let status = resource.versions[resource.storage_version()].status;
        let ignored = |key: &str| key == "metadata" || (status && key == "status");
        let rest = |v: &Value| -> Vec<(String, Value)> {
            let mut rest: Vec<_> = v
                .as_object()
                .into_iter()
                .flatten()
                .filter(|(k, _)| !ignored(k))
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect();
            rest.sort_by(|a, b| a.0.cmp(&b.0));
            rest
        };
        rest(old) != rest(new)
    };
    if changed {
        let generation = at(old, &["metadata", "generation"]).as_i64().unwrap_or(0);
        metadata_mut(new).insert("generation".into(), (generation + 1).into());
    }
}

/// Rules of metadata that compare old and new.
pub(crate) fn validate_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if !at(old, &["metadata", "deletionTimestamp"]).is_null() {
        let before = items(old, &["metadata", "finalizers"]);
        let added: Vec<String> = items(new, &["metadata", "finalizers"])
            .iter()
            .filter(|f| !before.contains(f))
            .filter_map(|f| f.as_str().map(|s| format!("\"{s}\"")))
            .collect();
        if !added.is_empty() {
            errors.push(FieldError::forbidden(
                "metadata.finalizers",
                format!(
                    "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                    added.join(", ")
                ),
            ));
        }
    }
    errors
}

/// Whether the last thing that held a deletion is gone.
pub(crate) fn deletion_is_complete(resource: &Resource, value: &Value) -> bool {
    if at(value, &["metadata", "deletionTimestamp"]).is_null()
        || !items(value, &["metadata", "finalizers"]).is_empty()
    {
        return false;
    }
    if resource.id.is("", "namespaces") {
        return items(value, &["spec", "finalizers"]).is_empty();
    }
    at(value, &["metadata", "deletionGracePeriodSeconds"]).as_i64().unwrap_or(0) == 0
}
