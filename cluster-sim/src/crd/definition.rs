use std::sync::Arc;

use serde_json::{Value, json};

use super::Schema;
use crate::cluster::Cluster;
use crate::object::{Object, ObjectKey, at, entry, items, text};
use crate::resources::{Column, Conversion, GroupResource, Origin, Registry, Resource, ScalePaths, Version};
use crate::store::{Commit, Expected, Verb};
use crate::write::Caller;

/// Keeps the registry in step with the stored CRDs. Returns the resource that is served now, if that changed.
pub(crate) fn react(registry: &mut Registry, commit: &Commit) -> Option<GroupResource> {
    let same_spec = |old: &Object, new: &Object| old.value().get("spec") == new.value().get("spec");
    match (&commit.old, &commit.new) {
        (Some(old), Some(new)) if same_spec(old, new) => None,
        (_, Some(new)) => {
            let resource = resource(new.value());
            let id = resource.id.clone();
            registry.insert(resource);
            Some(id)
        }
        (Some(old), None) => {
            registry.remove(&id(old.value()));
            None
        }
        (None, None) => None,
    }
}

pub(crate) fn id(crd: &Value) -> GroupResource {
    GroupResource::new(text(crd, &["spec", "group"]), text(crd, &["spec", "names", "plural"]))
}

fn strings(value: &Value, path: &[&str]) -> Vec<String> {
    items(value, path).iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// `.spec.replicas` as its keys.
fn path(json_path: &str) -> Vec<String> {
    json_path.split('.').filter(|s| !s.is_empty()).map(str::to_owned).collect()
}

fn resource(crd: &Value) -> Resource {
    let id = id(crd);
    let names = at(crd, &["spec", "names"]);
    let kind = text(names, &["kind"]);
    let or = |value: &str, fallback: String| if value.is_empty() { fallback } else { value.to_owned() };
    let conversion = at(crd, &["spec", "conversion"]);
    let conversion = match text(conversion, &["strategy"]) {
        "Webhook" => Conversion::Webhook(Arc::new(at(conversion, &["webhook", "clientConfig"]).clone())),
        _ => Conversion::None,
    };
    Resource {
        storage: id.clone(),
        id,
        kind: kind.into(),
        list_kind: or(text(names, &["listKind"]), format!("{kind}List")).into(),
        singular: or(text(names, &["singular"]), kind.to_lowercase()).into(),
        short_names: strings(names, &["shortNames"]),
        categories: strings(names, &["categories"]),
        namespaced: text(crd, &["spec", "scope"]) == "Namespaced",
        versions: items(crd, &["spec", "versions"]).iter().map(version).collect(),
        origin: Origin::Custom(conversion),
    }
}

fn version(version: &Value) -> Version {
    let flag = |key: &str| at(version, &[key]).as_bool().unwrap_or(false);
    let scale = at(version, &["subresources", "scale"]);
    Version {
        name: text(version, &["name"]).into(),
        served: flag("served"),
        storage: flag("storage"),
        status: at(version, &["subresources", "status"]).is_object(),
        scale: scale.is_object().then(|| ScalePaths {
            spec_replicas: path(text(scale, &["specReplicasPath"])),
            status_replicas: path(text(scale, &["statusReplicasPath"])),
            selector: scale.get("labelSelectorPath").and_then(Value::as_str).map(path),
        }),
        schema: version.pointer("/schema/openAPIV3Schema").map(|s| Arc::new(Schema::compile(s))),
        columns: items(version, &["additionalPrinterColumns"]).iter().map(column).collect(),
        selectable: items(version, &["selectableFields"])
            .iter()
            .map(|f| text(f, &["jsonPath"]).trim_start_matches('.').to_owned())
            .collect(),
    }
}

fn column(column: &Value) -> Column {
    let string = |key: &str| text(column, &[key]).to_owned();
    Column {
        name: string("name"),
        kind: string("type"),
        format: string("format"),
        description: string("description"),
        priority: at(column, &["priority"]).as_i64().unwrap_or(0),
        json_path: string("jsonPath"),
    }
}

/// Accepts the names of a CRD and establishes it, as the server's own controller does at once.
pub(crate) fn establish(cluster: &Cluster, key: &ObjectKey) {
    let resource = GroupResource::new("apiextensions.k8s.io", "customresourcedefinitions");
    let mut state = cluster.state();
    let Some(crd) = state.get(&resource, key) else { return };
    let value = crd.value();
    let stored = strings(value, &["status", "storedVersions"]);
    let storage = items(value, &["spec", "versions"])
        .iter()
        .find(|v| at(v, &["storage"]) == &Value::Bool(true))
        .map(|v| text(v, &["name"]).to_owned())
        .unwrap_or_default();
    let names = at(value, &["spec", "names"]).clone();
    let established =
        items(value, &["status", "conditions"]).iter().any(|c| text(c, &["type"]) == "Established");
    if crd.is_terminating()
        || (established && stored.contains(&storage) && at(value, &["status", "acceptedNames"]) == &names)
    {
        return;
    }
    let mut new = value.clone();
    let now = cluster.timestamp();
    let condition = |kind: &str, reason: &str, message: &str| json!({ "type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now });
    let status = entry(&mut new, "status");
    status.insert("acceptedNames".into(), names);
    let mut versions = stored;
    if !versions.contains(&storage) {
        versions.push(storage);
    }
    status.insert("storedVersions".into(), versions.into());
    if !established {
        status.insert(
            "conditions".into(),
            json!([
                condition("NamesAccepted", "NoConflicts", "no conflicts found"),
                condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
            ]),
        );
    }
    let origin = Caller::internal("crd-controller", Verb::Update).origin(cluster, "status");
    // Nobody else can have written while the state is held.
    let _ = state.put(origin, &resource, new, Expected::Revision(crd.resource_version()));
}
