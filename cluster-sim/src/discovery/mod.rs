//! What clients ask before they ask for objects: versions, groups, resources, health.

mod openapi;

use std::collections::BTreeMap;

use http::{HeaderMap, Response, StatusCode};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::error::ApiError;
use crate::http::{ResponseBody, json_response, text_response};
use crate::object::to_bytes;
use crate::resources::{Feature, Resource};

/// Whether a path names a resource, as opposed to discovery and health.
pub(crate) fn is_resource_path(path: &str) -> bool {
    let mut segments = path.split('/').filter(|s| !s.is_empty());
    match segments.next() {
        Some("api") => segments.count() >= 2,
        Some("apis") => segments.count() >= 3,
        _ => false,
    }
}

pub(crate) fn answer(
    cluster: &Cluster,
    path: &str,
    headers: &HeaderMap,
) -> Result<Response<ResponseBody>, ApiError> {
    let segments: Vec<&str> = path.split('/').filter(|s| !s.is_empty()).collect();
    let value = match segments.as_slice() {
        ["version"] => version(),
        ["healthz" | "readyz" | "livez", ..] => return Ok(text_response("ok".into())),
        ["openapi", "v2"] => return Ok(openapi::old(headers)),
        ["openapi", "v3"] => openapi::index(cluster),
        ["openapi", "v3", "api", version] => openapi::document(cluster, "", version)?,
        ["openapi", "v3", "apis", group, version] => openapi::document(cluster, group, version)?,
        ["api"] => json!({ "kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [] }),
        ["apis"] => groups(cluster),
        ["apis", group] => groups(cluster)["groups"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|g| g["name"] == *group)
            .map(|g| {
                let mut g = g.clone();
                g["kind"] = "APIGroup".into();
                g["apiVersion"] = "v1".into();
                g
            })
            .ok_or_else(ApiError::no_such_path)?,
        ["api", version] => resources(cluster, "", version)?,
        ["apis", group, version] => resources(cluster, group, version)?,
        _ => return Err(ApiError::no_such_path()),
    };
    Ok(json_response(StatusCode::OK, to_bytes(&value)))
}

fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "gitVersion": "v1.36.0+trireme", "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "", "platform": "linux/amd64",
    })
}

/// Served versions of every group but core, the preferred one (storage, else first) in front.
fn versions(cluster: &Cluster) -> BTreeMap<String, Vec<String>> {
    let state = cluster.state();
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for resource in state.registry.all().filter(|r| !r.id.group.is_empty()) {
        let versions = groups.entry(resource.id.group.to_string()).or_default();
        for version in resource.versions.iter().filter(|v| v.served) {
            if !versions.iter().any(|v| **v == *version.name) {
                versions.push(version.name.to_string());
            }
        }
    }
    drop(state);
    for (group, version) in crate::aggregation::versions(cluster) {
        groups.entry(group).or_default().push(version);
    }
    for versions in groups.values_mut() {
        versions.sort_by_key(|v| std::cmp::Reverse(rank(v)));
    }
    groups
}

/// Kubernetes' order of versions: stable before beta before alpha, then by number.
fn rank(version: &str) -> (u8, u32, u32) {
    let digits =
        |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap_or(0);
    let rest = version.strip_prefix('v').unwrap_or_default();
    let major = digits(rest);
    if let Some((_, minor)) = rest.split_once("beta") {
        return (1, major, digits(minor));
    }
    match rest.split_once("alpha") {
        Some((_, minor)) => (0, major, digits(minor)),
        None => (2, major, 0),
    }
}

fn groups(cluster: &Cluster) -> Value {
    let groups: Vec<Value> = versions(cluster)
        .into_iter()
        .map(|(group, versions)| {
            let shown: Vec<Value> = versions
                .iter()
                .map(|v| json!({ "groupVersion": format!("{group}/{v}"), "version": v }))
                .collect();
            json!({ "name": group, "versions": shown, "preferredVersion": shown.first().cloned() })
        })
        .collect();
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
}

fn resources(cluster: &Cluster, group: &str, version: &str) -> Result<Value, ApiError> {
    let state = cluster.state();
    let mut list = Vec::new();
    for resource in state.registry.all().filter(|r| &*r.id.group == group) {
        if let Some(index) = resource.version(version) {
            list.extend(entries(resource, index));
        }
    }
    if list.is_empty() {
        return Err(ApiError::no_such_path());
    }
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    Ok(
        json!({ "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": list }),
    )
}

fn entries(resource: &Resource, version: usize) -> Vec<Value> {
    let verbs: &[&str] = if resource.has(Feature::Review) {
        &["create"]
    } else {
        &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
    };
    let mut main = json!({
        "name": &*resource.id.resource, "singularName": &*resource.singular, "namespaced": resource.namespaced,
        "kind": &*resource.kind, "verbs": verbs,
    });
    if !resource.short_names.is_empty() {
        main["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        main["categories"] = json!(resource.categories);
    }
    let mut list = vec![main];
    for sub in subresources(resource, version) {
        let mut entry = json!({
            "name": format!("{}/{}", resource.id.resource, sub.name), "singularName": "",
            "namespaced": resource.namespaced, "kind": sub.kind, "verbs": sub.verbs,
        });
        if !sub.group_version.0.is_empty() {
            entry["group"] = sub.group_version.0.into();
            entry["version"] = sub.group_version.1.into();
        }
        list.push(entry);
    }
    list
}

struct Subresource {
    name: &'static str,
    kind: String,
    group_version: (&'static str, &'static str),
    verbs: &'static [&'static str],
}

fn subresources(resource: &Resource, version: usize) -> Vec<Subresource> {
    const STATUS: &[&str] = &["get", "patch", "update"];
    let mut list = Vec::new();
    let version = &resource.versions[version];
    if version.status {
        list.push(Subresource {
            name: "status",
            kind: resource.kind.to_string(),
            group_version: ("", ""),
            verbs: STATUS,
        });
    }
    if version.scale.is_some() {
        list.push(Subresource {
            name: "scale",
            kind: "Scale".into(),
            group_version: ("autoscaling", "v1"),
            verbs: STATUS,
        });
    }
    if resource.id.is("", "pods") {
        list.push(Subresource {
            name: "binding",
            kind: "Binding".into(),
            group_version: ("", ""),
            verbs: &["create"],
        });
        list.push(Subresource {
            name: "eviction",
            kind: "Eviction".into(),
            group_version: ("policy", "v1"),
            verbs: &["create"],
        });
        list.push(Subresource { name: "log", kind: "Pod".into(), group_version: ("", ""), verbs: &["get"] });
    }
    if resource.id.is("", "serviceaccounts") {
        list.push(Subresource {
            name: "token",
            kind: "TokenRequest".into(),
            group_version: ("authentication.k8s.io", "v1"),
            verbs: &["create"],
        });
    }
    if resource.id.is("", "namespaces") {
        list.push(Subresource {
            name: "finalize",
            kind: "Namespace".into(),
            group_version: ("", ""),
            verbs: &["update"],
        });
    }
    list
}
