//! The smallest CRDs that the JobSet and PyTorchJob controllers and their users need. Pod templates are taken as they
//! come. For the embedded cluster only: a real one has the projects' own.

use serde_json::{Value, json};

use crate::{ApiError, Cluster, GroupResource};

pub(super) async fn install(cluster: &Cluster) -> Result<(), ApiError> {
    let store = cluster.store("cluster-sim");
    let resource = GroupResource::new("apiextensions.k8s.io", "customresourcedefinitions");
    for crd in [jobset(), pytorchjob()] {
        let name = crd["metadata"]["name"].as_str().unwrap_or_default();
        if store.get(&resource, "", name).is_none() {
            store.create(&resource, crd).await?;
        }
    }
    Ok(())
}

fn anything() -> Value {
    json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// A column of `kubectl get`.
fn column(name: &str, kind: &str, path: &str) -> Value {
    json!({ "name": name, "type": kind, "jsonPath": path })
}

/// A custom kind, its version being the only one. `subresources` and `columns` are what its own project gives it.
fn crd(
    [group, version, kind, plural]: [&str; 4],
    spec: &Value,
    subresources: &Value,
    columns: &[Value],
) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{group}") },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": { "kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase() },
            "versions": [{
                "name": version,
                "served": true,
                "storage": true,
                "subresources": subresources,
                "additionalPrinterColumns": columns,
                "schema": { "openAPIV3Schema": {
                    "type": "object",
                    "properties": {
                        "apiVersion": { "type": "string" },
                        "kind": { "type": "string" },
                        "metadata": { "type": "object" },
                        "spec": spec,
                        "status": anything(),
                    },
                } },
            }],
        },
    })
}

/// `kubeflow.org/v1`, whose operator defaults `replicas` to 1 and `restartPolicy` to `OnFailure` itself.
fn pytorchjob() -> Value {
    let replica = json!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "replicas": { "type": "integer", "format": "int32", "minimum": 0 },
            "restartPolicy": { "type": "string" },
            "template": anything(),
        },
    });
    let run_policy = json!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "suspend": { "type": "boolean", "default": false },
            "backoffLimit": { "type": "integer", "format": "int32" },
            "cleanPodPolicy": { "type": "string" },
            "activeDeadlineSeconds": { "type": "integer", "format": "int64" },
            "ttlSecondsAfterFinished": { "type": "integer", "format": "int32" },
        },
    });
    let spec = json!({
        "type": "object",
        "required": ["pytorchReplicaSpecs"],
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "pytorchReplicaSpecs": { "type": "object", "additionalProperties": replica },
            "runPolicy": run_policy,
        },
    });
    let subresources = json!({
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.pytorchReplicaSpecs.Worker.replicas",
            "statusReplicasPath": ".status.replicaStatuses.Worker.active",
            "labelSelectorPath": ".status.replicaStatuses.Worker.selector",
        },
    });
    let columns = [
        column("State", "string", ".status.conditions[-1:].type"),
        column("Age", "date", ".metadata.creationTimestamp"),
    ];
    crd(["kubeflow.org", "v1", "PyTorchJob", "pytorchjobs"], &spec, &subresources, &columns)
}

fn jobset() -> Value {
    let replicated = json!({
        "type": "object",
        "required": ["name", "template"],
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "name": { "type": "string" },
            "replicas": { "type": "integer", "format": "int32", "default": 1, "minimum": 0 },
            "template": anything(),
            "dependsOn": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["name", "status"],
                    "properties": {
                        "name": { "type": "string" },
                        "status": { "type": "string", "enum": ["Ready", "Complete"] },
                    },
                },
            },
        },
    });
    let spec = json!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "suspend": { "type": "boolean" },
            "ttlSecondsAfterFinished": { "type": "integer", "format": "int32", "minimum": 0 },
            "replicatedJobs": {
                "type": "array",
                "items": replicated,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
            },
            "failurePolicy": {
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": true,
                "properties": { "maxRestarts": { "type": "integer", "format": "int32", "default": 0 } },
            },
        },
    });
    let columns = [
        column("TerminalState", "string", ".status.terminalState"),
        column("Restarts", "string", ".status.restarts"),
        column("Completed", "string", ".status.conditions[?(@.type==\"Completed\")].status"),
        column("Suspended", "string", ".spec.suspend"),
        column("Age", "date", ".metadata.creationTimestamp"),
    ];
    let names = ["jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets"];
    crd(names, &spec, &json!({ "status": {} }), &columns)
}
