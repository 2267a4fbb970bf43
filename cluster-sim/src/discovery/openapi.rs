//! As much OpenAPI as `kubectl` needs to send `fieldValidation` and to skip its own validation: which kinds can be
//! patched, without their fields.

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode, header};
use serde_json::{Map, Value, json};

use crate::cluster::Cluster;
use crate::error::ApiError;
use crate::http::{ResponseBody, json_response};
use crate::object::to_bytes;
use crate::resources::Resource;

fn root(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// `/openapi/v3`: the group versions and where their documents are.
pub(super) fn index(cluster: &Cluster) -> Value {
    let mut paths = Map::new();
    for resource in cluster.state().registry.all() {
        for version in resource.versions.iter().filter(|v| v.served) {
            let root = root(&resource.id.group, &version.name);
            let url = format!("/openapi/v3/{root}");
            paths.insert(root, json!({ "serverRelativeURL": url }));
        }
    }
    json!({ "paths": paths })
}

/// `/openapi/v3/apis/GROUP/VERSION`.
pub(super) fn document(cluster: &Cluster, group: &str, version: &str) -> Result<Value, ApiError> {
    let mut paths = Map::new();
    for resource in cluster.state().registry.all().filter(|r| &*r.id.group == group) {
        if resource.version(version).is_some() {
            let scope = if resource.namespaced { "namespaces/{namespace}/" } else { "" };
            let path = format!("/{}/{scope}{}/{{name}}", root(group, version), resource.id.resource);
            paths.insert(path, operations(resource, group, version));
        }
    }
    if paths.is_empty() {
        return Err(ApiError::no_such_path());
    }
    Ok(json!({
        "openapi": "3.0.0", "info": { "title": "Kubernetes", "version": "v1.36.0" }, "paths": paths,
        "components": { "schemas": {} },
    }))
}

fn operations(resource: &Resource, group: &str, version: &str) -> Value {
    let kind = json!({ "group": group, "version": version, "kind": &*resource.kind });
    let query = |name: &str| json!({ "name": name, "in": "query", "schema": { "type": "string" } });
    let parameters = json!([query("dryRun"), query("fieldManager"), query("fieldValidation")]);
    let answer = json!({ "200": { "description": "OK" } });
    let operation = |action: &str| {
        json!({
            "parameters": parameters, "responses": answer, "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": kind,
        })
    };
    json!({ "patch": operation("patch"), "put": operation("put"), "post": operation("post") })
}

/// `/openapi/v2`: an empty document, as protobuf for clients that take nothing else.
pub(super) fn old(headers: &HeaderMap) -> Response<ResponseBody> {
    let accept = headers.get(header::ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or_default();
    if !accept.contains("proto-openapi.spec.v2") {
        let document =
            json!({ "swagger": "2.0", "info": { "title": "Kubernetes", "version": "v1.36.0" }, "paths": {} });
        return json_response(StatusCode::OK, to_bytes(&document));
    }
    // openapi.v2.Document: swagger = 1, info = 2 { title = 1, version = 2 }, paths = 8.
    const DOCUMENT: &[u8] = b"\x0a\x032.0\x12\x17\x0a\x0aKubernetes\x12\x09v1.36.0.0\x42\x00";
    let mut response = json_response(StatusCode::OK, Bytes::from_static(DOCUMENT));
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        header::HeaderValue::from_static("application/com.github.proto-openapi.spec.v2.v1.0+protobuf"),
    );
    response
}
