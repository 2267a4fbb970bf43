//! What clients read before they ask: groups, versions, resources, OpenAPI.

use serde_json::{Map, Value, json};

use super::{GROUP, VERSIONS};

const KIND: &str = "PendingWorkloadsSummary";
/// The resources: plural, singular, whether they are in namespaces. They exist for their subresource `pendingworkloads`.
const RESOURCES: [(&str, &str, bool); 2] =
    [("clusterqueues", "clusterqueue", false), ("localqueues", "localqueue", true)];

fn versions() -> Vec<Value> {
    let shown = |version: &&str| json!({ "groupVersion": format!("{GROUP}/{version}"), "version": version });
    VERSIONS.iter().map(shown).collect()
}

/// `/apis/GROUP`.
pub(super) fn group() -> Value {
    let versions = versions();
    json!({
        "kind": "APIGroup", "apiVersion": "v1", "name": GROUP,
        "preferredVersion": versions[0], "versions": versions,
    })
}

/// `/apis`.
pub(super) fn groups() -> Value {
    let versions = versions();
    let group = json!({ "name": GROUP, "preferredVersion": versions[0], "versions": versions });
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": [group] })
}

/// `/apis/GROUP/VERSION`.
pub(super) fn resources(version: &str) -> Value {
    let mut list = Vec::new();
    for (plural, singular, namespaced) in RESOURCES {
        list.push(json!({
            "name": plural, "singularName": singular, "namespaced": namespaced, "kind": KIND, "verbs": [],
        }));
        list.push(json!({
            "name": format!("{plural}/pendingworkloads"), "singularName": "", "namespaced": namespaced,
            "kind": KIND, "verbs": ["get"],
        }));
    }
    json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{GROUP}/{version}"),
        "resources": list,
    })
}

/// `/apis` for those who take all groups, versions and resources in one document.
pub(super) fn aggregated() -> Value {
    let of_version = |version: &&str| {
        let kind = json!({ "group": GROUP, "version": version, "kind": KIND });
        let of_resource = |(plural, singular, namespaced): &(&str, &str, bool)| {
            json!({
                "resource": plural, "singularResource": singular, "responseKind": kind, "verbs": [],
                "scope": if *namespaced { "Namespaced" } else { "Cluster" },
                "subresources": [{ "subresource": "pendingworkloads", "responseKind": kind, "verbs": ["get"] }],
            })
        };
        let resources: Vec<Value> = RESOURCES.iter().map(of_resource).collect();
        json!({ "version": version, "resources": resources, "freshness": "Current" })
    };
    let versions: Vec<Value> = VERSIONS.iter().map(of_version).collect();
    json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {},
        "items": [{ "metadata": { "name": GROUP }, "versions": versions }],
    })
}

/// `/openapi/v3`.
pub(super) fn openapi_v3_index() -> Value {
    let entry = |version: &&str| {
        let root = format!("apis/{GROUP}/{version}");
        let url = format!("/openapi/v3/{root}");
        (root, json!({ "serverRelativeURL": url }))
    };
    json!({ "paths": VERSIONS.iter().map(entry).collect::<Map<_, _>>() })
}

/// `/openapi/v3/apis/GROUP/VERSION`.
pub(super) fn openapi_v3(version: &str) -> Value {
    let schemas = schemas(version, "#/components/schemas/");
    let integer = |name: &str| json!({ "name": name, "in": "query", "schema": { "type": "integer", "format": "int64" } });
    let path =
        |name: &str| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } });
    let answer = |schema: Value| json!({ "description": "OK", "content": { "application/json": { "schema": schema } } });
    json!({
        "openapi": "3.0.0", "info": info(), "components": { "schemas": schemas },
        "paths": paths(version, "#/components/schemas/", &path, &integer, &answer),
    })
}

/// `/openapi/v2`.
pub(super) fn openapi_v2() -> Value {
    let mut definitions = Map::new();
    let mut all_paths = Map::new();
    let integer = |name: &str| json!({ "name": name, "in": "query", "type": "integer", "format": "int64" });
    let path = |name: &str| json!({ "name": name, "in": "path", "required": true, "type": "string" });
    let answer = |schema: Value| json!({ "description": "OK", "schema": schema });
    for version in VERSIONS {
        definitions.extend(schemas(version, "#/definitions/"));
        all_paths.extend(paths(version, "#/definitions/", &path, &integer, &answer));
    }
    json!({ "swagger": "2.0", "info": info(), "paths": all_paths, "definitions": definitions })
}

fn info() -> Value {
    json!({ "title": "Trireme admission-controller", "version": env!("CARGO_PKG_VERSION") })
}

fn model(version: &str, kind: &str) -> String {
    format!("io.k8s.kueue.visibility.{version}.{kind}")
}

fn paths(
    version: &str,
    prefix: &str,
    path: &dyn Fn(&str) -> Value,
    query: &dyn Fn(&str) -> Value,
    answer: &dyn Fn(Value) -> Value,
) -> Map<String, Value> {
    let summary = json!({ "$ref": format!("{prefix}{}", model(version, KIND)) });
    let entry = |(plural, singular, namespaced): &(&str, &str, bool)| {
        let scope = if *namespaced { "namespaces/{namespace}/" } else { "" };
        let named: &[&str] = if *namespaced { &["namespace", "name"] } else { &["name"] };
        let mut parameters: Vec<Value> = named.iter().map(|name| path(name)).collect();
        parameters.extend([query("offset"), query("limit")]);
        let get = json!({
            "operationId": format!("read{singular}Pendingworkloads_{version}"),
            "description": "Who waits in the queue, in order.",
            "parameters": parameters,
            "responses": { "200": answer(summary.clone()) },
            "x-kubernetes-action": "get",
            "x-kubernetes-group-version-kind": { "group": GROUP, "version": version, "kind": KIND },
        });
        (format!("/apis/{GROUP}/{version}/{scope}{plural}/{{name}}/pendingworkloads"), json!({ "get": get }))
    };
    RESOURCES.iter().map(entry).collect()
}

fn schemas(version: &str, prefix: &str) -> Map<String, Value> {
    let text = json!({ "type": "string" });
    let number = |format: &str, description: &str| json!({ "type": "integer", "format": format, "description": description });
    let item = json!({
        "type": "object",
        "description": "A workload that waits.",
        "required": ["priority", "localQueueName", "positionInClusterQueue", "positionInLocalQueue"],
        "properties": {
            "metadata": { "type": "object", "description": "Name, namespace, creation and owners of the Workload." },
            "priority": number("int32", "Its priority."),
            "localQueueName": { "type": "string", "description": "The LocalQueue that it waits in." },
            "positionInClusterQueue": number("int32", "How many stand before it in the ClusterQueue."),
            "positionInLocalQueue": number("int32", "How many of its LocalQueue stand before it."),
        },
    });
    let items = json!({ "type": "array", "items": { "$ref": format!("{prefix}{}", model(version, "PendingWorkload")) } });
    let summary = json!({
        "type": "object",
        "description": "Workloads that wait in a queue, in order.",
        "required": ["items"],
        "properties": { "apiVersion": text, "kind": text, "metadata": { "type": "object" }, "items": items },
        "x-kubernetes-group-version-kind": [{ "group": GROUP, "version": version, "kind": KIND }],
    });
    [(model(version, "PendingWorkload"), item), (model(version, KIND), summary)].into_iter().collect()
}
