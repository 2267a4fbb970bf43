//! The environment a container is started with. Pure: ConfigMaps and Secrets come through a closure.
//!
//! Rules: `makeEnvironmentVariables` of Kubernetes' kubelet. What a device plugin gives comes first, so that a pod's own
//! variable of the same name wins, as it does in the real one.

use std::collections::BTreeMap;

use model::resources::ResourceList;

use super::pod::{Container, EnvSource, KeyRef, Pod};

/// A variable that cannot be resolved: the container waits with `CreateContainerConfigError`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EnvError {
    #[error("couldn't find key {key} in {kind} {namespace}/{name}")]
    NoKey { kind: &'static str, namespace: String, name: String, key: String },
    #[error("{kind} {name:?} not found")]
    NotFound { kind: &'static str, name: String },
    #[error("environment variable {name}: {path:?} is not a field that a pod may refer to")]
    NoField { name: String, path: String },
}

/// The data of a `ConfigMap` or `Secret` (the kind) of the pod's namespace by name, decoded.
pub(crate) trait Data: Fn(&'static str, &str) -> Option<BTreeMap<String, String>> {}

impl<F: Fn(&'static str, &str) -> Option<BTreeMap<String, String>>> Data for F {}

/// What the outside knows about the pod.
pub(crate) struct Surroundings<'a> {
    pub(crate) node: &'a str,
    pub(crate) host_ip: &'a str,
    pub(crate) pod_ip: &'a str,
    /// Allocatable of the node: the limit of a container that has none.
    pub(crate) allocatable: &'a ResourceList,
    pub(crate) data: &'a dyn Data,
}

/// The environment of a container; `given` is what its device plugins answered.
pub(crate) fn environment(
    pod: &Pod,
    container: &Container,
    given: BTreeMap<String, String>,
    around: &Surroundings<'_>,
) -> Result<BTreeMap<String, String>, EnvError> {
    let mut all = given;
    let hostname = if pod.spec.hostname.is_empty() { &pod.meta.name } else { &pod.spec.hostname };
    all.insert("HOSTNAME".into(), hostname.clone());
    let mut own = BTreeMap::new();
    for from in &container.env_from {
        for (kind, source) in [("ConfigMap", &from.config_map_ref), ("Secret", &from.secret_ref)] {
            let Some(source) = source else { continue };
            match (around.data)(kind, &source.name) {
                Some(data) => {
                    own.extend(data.into_iter().map(|(key, value)| (format!("{}{key}", from.prefix), value)))
                }
                None if source.optional => {}
                None => return Err(EnvError::NotFound { kind, name: source.name.clone() }),
            }
        }
    }
    for variable in &container.env {
        let value = match &variable.value_from {
            None => Some(expand(&variable.value, &own)),
            Some(source) => resolve(pod, container, &variable.name, source, around)?,
        };
        if let Some(value) = value {
            own.insert(variable.name.clone(), value);
        }
    }
    all.extend(own);
    Ok(all)
}

/// `None`: the source is optional and absent.
fn resolve(
    pod: &Pod,
    container: &Container,
    variable: &str,
    source: &EnvSource,
    around: &Surroundings<'_>,
) -> Result<Option<String>, EnvError> {
    let unknown = |path: &str| EnvError::NoField { name: variable.into(), path: path.into() };
    if let Some(field) = &source.field_ref {
        return pod_field(pod, &field.field_path, around).map(Some).ok_or_else(|| unknown(&field.field_path));
    }
    if let Some(field) = &source.resource_field_ref {
        let name = if field.container_name.is_empty() { &container.name } else { &field.container_name };
        let (_, resource) = field.resource.split_once('.').ok_or_else(|| unknown(&field.resource))?;
        let amounts = pod.by_container.get(name).ok_or_else(|| unknown(name))?;
        let amount = amounts.get(resource).or_else(|| around.allocatable.get(resource)).copied().unwrap_or(0);
        // A field of cores is given in whole cores, rounded up.
        let value =
            if resource == "cpu" { amount.div_euclid(1000) + i64::from(amount % 1000 != 0) } else { amount };
        return Ok(Some(value.to_string()));
    }
    for (kind, key) in [("ConfigMap", &source.config_map_key_ref), ("Secret", &source.secret_key_ref)] {
        if let Some(key) = key {
            return keyed(pod, kind, key, around);
        }
    }
    Err(unknown(""))
}

fn keyed(
    pod: &Pod,
    kind: &'static str,
    key: &KeyRef,
    around: &Surroundings<'_>,
) -> Result<Option<String>, EnvError> {
    match (around.data)(kind, &key.name) {
        None if key.optional => Ok(None),
        None => Err(EnvError::NotFound { kind, name: key.name.clone() }),
        Some(mut data) => match data.remove(&key.key) {
            Some(value) => Ok(Some(value)),
            None if key.optional => Ok(None),
            None => Err(EnvError::NoKey {
                kind,
                namespace: pod.meta.namespace.clone(),
                name: key.name.clone(),
                key: key.key.clone(),
            }),
        },
    }
}

/// The downward API's fields.
fn pod_field(pod: &Pod, path: &str, around: &Surroundings<'_>) -> Option<String> {
    if let Some((map, key)) = path.strip_suffix("']").and_then(|path| path.split_once("['")) {
        let map = match map {
            "metadata.labels" => &pod.meta.labels,
            "metadata.annotations" => &pod.meta.annotations,
            _ => return None,
        };
        return Some(map.get(key).cloned().unwrap_or_default());
    }
    Some(match path {
        "metadata.name" => pod.meta.name.clone(),
        "metadata.namespace" => pod.meta.namespace.clone(),
        "metadata.uid" => pod.uid.to_string(),
        "spec.nodeName" => around.node.to_owned(),
        "spec.serviceAccountName" if pod.spec.service_account_name.is_empty() => "default".to_owned(),
        "spec.serviceAccountName" => pod.spec.service_account_name.clone(),
        "status.hostIP" | "status.hostIPs" => around.host_ip.to_owned(),
        "status.podIP" | "status.podIPs" => around.pod_ip.to_owned(),
        _ => return None,
    })
}

/// `$(NAME)` by an earlier variable, `$$` by `$`; what is unknown stays as it is written.
fn expand(text: &str, known: &BTreeMap<String, String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (before, after) = (&rest[..at], &rest[at + 1..]);
        out.push_str(before);
        if let Some(escaped) = after.strip_prefix('$') {
            out.push('$');
            rest = escaped;
            continue;
        }
        let name = after.strip_prefix('(').and_then(|named| named.split_once(')'));
        match name.and_then(|(name, rest)| Some((known.get(name)?, rest))) {
            Some((value, following)) => {
                out.push_str(value);
                rest = following;
            }
            None => {
                out.push('$');
                rest = after;
            }
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn env_of(container: Value, given: &[(&str, &str)]) -> Result<BTreeMap<String, String>, EnvError> {
        let mut container = container;
        container["name"] = json!("c");
        let pod = Pod::read(&json!({
            "metadata": { "name": "p", "namespace": "ns", "uid": "u1", "labels": { "a/b": "x" } },
            "spec": { "containers": [container] },
        }))
        .unwrap();
        let data = |kind: &'static str, name: &str| {
            (name == "there").then(|| [("key".to_owned(), format!("from {kind}"))].into())
        };
        let allocatable = [("cpu".into(), 64_000), ("memory".into(), 1024)].into();
        let around = Surroundings {
            node: "n1",
            host_ip: "10.0.0.1",
            pod_ip: "10.1.0.1",
            allocatable: &allocatable,
            data: &data,
        };
        let given = given.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        environment(&pod, &pod.spec.containers[0], given, &around)
    }

    fn value_of(source: Value) -> Result<Option<String>, EnvError> {
        env_of(json!({ "env": [{ "name": "V", "valueFrom": source }] }), &[]).map(|mut env| env.remove("V"))
    }

    #[test]
    fn sources() {
        for (source, expected) in [
            (json!({ "fieldRef": { "fieldPath": "metadata.name" } }), "p"),
            (json!({ "fieldRef": { "fieldPath": "metadata.labels['a/b']" } }), "x"),
            (json!({ "fieldRef": { "fieldPath": "metadata.annotations['none']" } }), ""),
            (json!({ "fieldRef": { "fieldPath": "status.podIP" } }), "10.1.0.1"),
            (json!({ "fieldRef": { "fieldPath": "spec.serviceAccountName" } }), "default"),
            (json!({ "resourceFieldRef": { "resource": "limits.cpu" } }), "64"),
            (json!({ "configMapKeyRef": { "name": "there", "key": "key" } }), "from ConfigMap"),
            (json!({ "secretKeyRef": { "name": "there", "key": "key" } }), "from Secret"),
        ] {
            assert_eq!(value_of(source.clone()).unwrap().as_deref(), Some(expected), "{source}");
        }
        let optional = json!({ "secretKeyRef": { "name": "none", "key": "key", "optional": true } });
        assert_eq!(value_of(optional).unwrap(), None);
        for (source, said) in [
            (json!({ "secretKeyRef": { "name": "none", "key": "key" } }), "Secret \"none\" not found"),
            (
                json!({ "configMapKeyRef": { "name": "there", "key": "no" } }),
                "couldn't find key no in ConfigMap ns/there",
            ),
            (
                json!({ "fieldRef": { "fieldPath": "spec.volumes" } }),
                "environment variable V: \"spec.volumes\"",
            ),
        ] {
            assert!(value_of(source).unwrap_err().to_string().starts_with(said), "{said}");
        }
    }

    #[test]
    fn the_pod_wins_over_the_plugin_and_later_variables_see_earlier_ones() {
        let container = json!({
            "envFrom": [{ "prefix": "P_", "configMapRef": { "name": "there" } }],
            "env": [
                { "name": "A", "value": "1" },
                { "name": "B", "value": "$(A)-$(NONE)-$$(A)-$(P_key)-$" },
                { "name": "NVIDIA_VISIBLE_DEVICES", "value": "void" },
            ],
        });
        let env = env_of(container, &[("NVIDIA_VISIBLE_DEVICES", "gpu-1"), ("X", "y")]).unwrap();
        let expected = [
            ("A", "1"),
            ("B", "1-$(NONE)-$(A)-from ConfigMap-$"),
            ("HOSTNAME", "p"),
            ("NVIDIA_VISIBLE_DEVICES", "void"),
            ("P_key", "from ConfigMap"),
            ("X", "y"),
        ];
        assert_eq!(env, expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    }
}
