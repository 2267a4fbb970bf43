//! The smallest objects of each kind, and the paths they live at.

use serde_json::{Value, json};

pub(crate) const CONFIGMAPS: &str = "/api/v1/namespaces/{ns}/configmaps";
pub(crate) const PODS: &str = "/api/v1/namespaces/{ns}/pods";
pub(crate) const NODES: &str = "/api/v1/nodes";
pub(crate) const JOBS: &str = "/apis/batch/v1/namespaces/{ns}/jobs";
pub(crate) const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

pub(crate) fn configmap(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}})
}

/// A ConfigMap with labels given as `key=value` pairs separated by commas.
pub(crate) fn labelled(name: &str, labels: &str) -> Value {
    let mut object = configmap(name);
    for pair in labels.split(',').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        object["metadata"]["labels"][key] = json!(value);
    }
    object
}

/// A pod of one container `main` that asks for nothing.
pub(crate) fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": "busybox"}]}})
}

/// A pod whose container has these resources.
pub(crate) fn pod_with(name: &str, resources: Value) -> Value {
    let mut pod = pod(name);
    pod["spec"]["containers"][0]["resources"] = resources;
    pod
}

pub(crate) fn node(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
}

/// A batch Job with one pod that never restarts.
pub(crate) fn job(name: &str) -> Value {
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}}}})
}

/// `path` followed by `/name`.
pub(crate) fn at(path: &str, name: &str) -> String {
    format!("{path}/{name}")
}
