use serde_json::{Value, json};

use crate::Part;
use crate::cluster::Cluster;
use crate::error::{ApiError, FieldError};
use crate::object::{ObjectKey, at, object_mut, text};
use crate::patch::PatchKind;
use crate::request::Target;
use crate::resources::{Resource, ScalePaths};
use crate::selectors::LabelFilter;
use crate::write::{Caller, Subject};

fn look<'v>(value: &'v Value, path: &[String]) -> &'v Value {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    at(value, &path)
}

fn paths(resource: &Resource, version: usize) -> Result<&ScalePaths, ApiError> {
    resource.versions[version].scale.as_ref().ok_or_else(ApiError::no_such_path)
}

/// The Scale of an object.
pub(crate) fn show(resource: &Resource, version: usize, object: &Value) -> Result<Value, ApiError> {
    let paths = paths(resource, version)?;
    let metadata = at(object, &["metadata"]);
    let mut scale = json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": metadata["name"], "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"],
            "creationTimestamp": metadata["creationTimestamp"],
        },
        "spec": { "replicas": look(object, &paths.spec_replicas).as_i64().unwrap_or(0) },
        "status": { "replicas": look(object, &paths.status_replicas).as_i64().unwrap_or(0) },
    });
    if resource.namespaced {
        scale["metadata"]["namespace"] = metadata["namespace"].clone();
    }
    let selector = match &paths.selector {
        Some(path) => look(object, path).as_str().map(str::to_owned),
        None => match at(object, &["spec", "selector"]) {
            Value::Null => None,
            selector => Some(LabelFilter::from_object(selector).to_string()),
        },
    };
    if let Some(selector) = selector.filter(|s| !s.is_empty()) {
        scale["status"]["selector"] = selector.into();
    }
    Ok(scale)
}

pub(crate) async fn replace(
    cluster: &Cluster,
    caller: &Caller,
    target: &Target,
    scale: &Value,
) -> Result<Value, ApiError> {
    let scale = scale.clone();
    change(cluster, caller, target, &mut |_| Ok(scale.clone())).await
}

pub(crate) async fn patch(
    cluster: &Cluster,
    caller: &Caller,
    target: &Target,
    patch: &PatchKind,
) -> Result<Value, ApiError> {
    let patch = match patch {
        // Scale has no lists, so that a strategic merge is a merge.
        PatchKind::Strategic(p) | PatchKind::Apply(p) => PatchKind::Merge(p.clone()),
        other => other.clone(),
    };
    change(cluster, caller, target, &mut |scale| patch.apply(scale, true, "Scale")).await
}

async fn change(
    cluster: &Cluster,
    caller: &Caller,
    target: &Target,
    edit: &mut (dyn FnMut(&Value) -> Result<Value, ApiError> + Send),
) -> Result<Value, ApiError> {
    let resource = &target.resource;
    let version = target.version;
    let paths = paths(resource, version)?;
    let name = target.name.as_deref().unwrap_or_default();
    let subject = Subject {
        resource: resource.clone(),
        version,
        key: ObjectKey::new(target.namespace_or_empty(), name),
        part: Part::Main,
        whole: false,
    };
    let mut apply = |object: &Value| {
        let scale = edit(&show(resource, version, object)?)?;
        let replicas = at(&scale, &["spec", "replicas"]).clone();
        if replicas.as_i64().is_none_or(|r| r < 0) {
            let error = FieldError::invalid("spec.replicas", &replicas, "must be greater than or equal to 0");
            return Err(ApiError::invalid("autoscaling", "Scale", name, &[error]));
        }
        let mut object = object.clone();
        let revision = text(&scale, &["metadata", "resourceVersion"]);
        if !revision.is_empty() {
            crate::object::metadata_mut(&mut object).insert("resourceVersion".into(), revision.into());
        }
        let mut slot = &mut object;
        for key in &paths.spec_replicas {
            slot = object_mut(slot).entry(key.as_str()).or_insert(Value::Null);
        }
        *slot = replicas;
        Ok(object)
    };
    let done = crate::write::update(cluster, caller, &subject, &mut apply).await?;
    let shown = crate::crd::from_storage(cluster, resource, version, done.value()).await?;
    show(resource, version, &shown)
}
