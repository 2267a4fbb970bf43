//! Subresources that are neither status nor plain parts of the object.

mod binding;
mod eviction;
pub(crate) mod scale;

use bytes::Bytes;
use http::{Response, StatusCode};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::error::ApiError;
use crate::http::{ResponseBody, text_response};
use crate::object::{ObjectKey, entry, items, text, to_bytes};
use crate::request::{Query, Target};
use crate::resources::Resource;
use crate::write::Caller;

/// POST to a subresource.
pub(crate) async fn post(
    cluster: &Cluster,
    caller: &Caller,
    target: &Target,
    body: Value,
) -> Result<(StatusCode, Bytes), ApiError> {
    let id = &target.resource.id;
    match &*target.subresource {
        "binding" if id.is("", "pods") => binding::bind(cluster, caller, target, &body).await?,
        "eviction" if id.is("", "pods") => eviction::evict(cluster, caller, target, &body).await?,
        "token" if id.is("", "serviceaccounts") => return token(cluster, target, body),
        _ => return Err(ApiError::no_such_path()),
    }
    let done =
        json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201 });
    Ok((StatusCode::CREATED, to_bytes(&done)))
}

/// A token that authenticates nobody: in-process callers are known anyway, and the listener has one token of its own.
fn token(cluster: &Cluster, target: &Target, mut body: Value) -> Result<(StatusCode, Bytes), ApiError> {
    let name = target.name.as_deref().unwrap_or_default();
    cluster.object(&target.resource.id, &ObjectKey::new(target.namespace_or_empty(), name))?;
    let seconds = crate::object::at(&body, &["spec", "expirationSeconds"]).as_i64().unwrap_or(3600);
    let expires = cluster.0.clock.now() + jiff::SignedDuration::from_secs(seconds);
    let status = entry(&mut body, "status");
    status.insert("token".into(), cluster.0.rng.suffix(32).into());
    status.insert("expirationTimestamp".into(), crate::lifecycle::rfc3339(expires).into());
    Ok((StatusCode::CREATED, to_bytes(&body)))
}

/// Answers a review: everyone is authenticated and may do everything.
pub(crate) fn review(resource: &Resource, mut body: Value) -> Value {
    let user = json!({ "username": "system:admin", "groups": ["system:masters", "system:authenticated"] });
    let api_version = resource.api_version(0);
    let status = match &*resource.id.resource {
        "tokenreviews" => json!({ "authenticated": true, "user": user }),
        "selfsubjectreviews" => json!({ "userInfo": user }),
        "selfsubjectrulesreviews" => json!({
            "incomplete": false, "nonResourceRules": [{ "verbs": ["*"], "nonResourceURLs": ["*"] }],
            "resourceRules": [{ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] }],
        }),
        _ => json!({ "allowed": true }),
    };
    let map = crate::object::object_mut(&mut body);
    map.insert("apiVersion".into(), api_version.into());
    map.insert("kind".into(), (*resource.kind).into());
    map.insert("status".into(), status);
    body
}

/// Refuses `exec`, `attach` and `portforward`, whatever the method and the protocol: nothing runs in a simulated pod.
pub(crate) fn refuse_streams(cluster: &Cluster, target: &Target) -> Result<(), ApiError> {
    let what = match &*target.subresource {
        "exec" => "exec",
        "attach" => "attach",
        "portforward" => "port-forward",
        _ => return Ok(()),
    };
    if !target.resource.id.is("", "pods") {
        return Err(ApiError::no_such_path());
    }
    let name = target.name.as_deref().unwrap_or_default();
    cluster.object(&target.resource.id, &ObjectKey::new(target.namespace_or_empty(), name))?;
    let why = format!(
        "the embedded cluster runs no containers; {what} is not supported (kubectl logs shows the environment that a \
         container was started with)"
    );
    Err(ApiError::new(501, "", why))
}

/// `GET …/pods/NAME/log`, answered by the kubelet that runs the pod.
pub(crate) fn pod_log(
    cluster: &Cluster,
    target: &Target,
    query: &Query,
) -> Result<Response<ResponseBody>, ApiError> {
    if !target.resource.id.is("", "pods") {
        return Err(ApiError::no_such_path());
    }
    let name = target.name.as_deref().unwrap_or_default();
    let pod = cluster.object(&target.resource.id, &ObjectKey::new(target.namespace_or_empty(), name))?;
    let container = container(pod.value(), name, query.get("container"))?;
    let node = text(pod.value(), &["spec", "nodeName"]);
    if node.is_empty() {
        return Err(ApiError::bad_request(format!("pod {name} does not have a host assigned")));
    }
    let Some(kubelet) = cluster.pod_logs(node) else {
        return Err(ApiError::internal(format!("no kubelet answers for node {node}")));
    };
    let text = kubelet.text(target.namespace_or_empty(), name, container).map_err(ApiError::bad_request)?;
    let tail = query.number("tailLines")?.and_then(|n| usize::try_from(n).ok());
    Ok(text_response(match tail {
        Some(lines) => {
            let all: Vec<&str> = text.split_inclusive('\n').collect();
            all[all.len().saturating_sub(lines)..].concat()
        }
        None => text,
    }))
}

/// The container asked for, or the only one. Init containers are to be named.
fn container<'a>(pod: &'a Value, name: &str, asked: Option<&'a str>) -> Result<&'a str, ApiError> {
    let named = |field| -> Vec<&str> {
        items(pod, &["spec", field]).iter().map(|container| text(container, &["name"])).collect()
    };
    let (containers, init) = (named("containers"), named("initContainers"));
    match (asked, containers.as_slice()) {
        (Some(asked), all) if all.contains(&asked) || init.contains(&asked) => Ok(asked),
        (Some(asked), _) => {
            Err(ApiError::bad_request(format!("container {asked} is not valid for pod {name}")))
        }
        (None, [only]) => Ok(only),
        (None, all) => {
            let or_init = match init.as_slice() {
                [] => String::new(),
                init => format!(" or one of the init containers: [{}]", init.join(" ")),
            };
            Err(ApiError::bad_request(format!(
                "a container name must be specified for pod {name}, choose one of: [{}]{or_init}",
                all.join(" ")
            )))
        }
    }
}
