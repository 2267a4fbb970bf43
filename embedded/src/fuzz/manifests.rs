//! The objects of an episode, as users write them.

use std::time::Duration;

use serde_json::{Map, Value, json};

/// What a job's pods ask for and how they behave.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    /// How many pods.
    pub(super) pods: i64,
    /// GPUs of each.
    pub(super) gpus: i64,
    /// Cores of each.
    pub(super) cpu: i64,
    /// How long each runs.
    pub(super) run_for: Duration,
    /// Whether its program ends with an error.
    pub(super) fails: bool,
}

pub(super) fn namespaces(names: &[&str]) -> Vec<Value> {
    names
        .iter()
        .map(|name| json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }))
        .collect()
}

pub(super) fn flavor(name: &str) -> Value {
    json!({ "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": { "name": name }, "spec": {} })
}

pub(super) fn priority(name: &str, value: i64) -> Value {
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass",
        "metadata": { "name": name }, "value": value,
    })
}

pub(super) fn cluster_queue(
    name: &str,
    cohort: Option<&str>,
    nominal: i64,
    borrowing_limit: Option<i64>,
    strategy: &str,
    preemption: &Value,
) -> Value {
    let mut gpus = json!({ "name": "nvidia.com/gpu", "nominalQuota": nominal.to_string() });
    if let Some(limit) = borrowing_limit {
        gpus["borrowingLimit"] = json!(limit.to_string());
    }
    let mut spec = json!({
        "namespaceSelector": {},
        "queueingStrategy": strategy,
        "preemption": preemption,
        "resourceGroups": [{
            "coveredResources": ["nvidia.com/gpu", "cpu"],
            "flavors": [{ "name": "gpu", "resources": [gpus, { "name": "cpu", "nominalQuota": "1000" }] }],
        }],
    });
    if let Some(cohort) = cohort {
        spec["cohortName"] = json!(cohort);
    }
    json!({ "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": { "name": name }, "spec": spec })
}

pub(super) fn local_queue(namespace: &str, name: &str, cluster_queue: &str) -> Value {
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue",
        "metadata": { "name": name, "namespace": namespace }, "spec": { "clusterQueue": cluster_queue },
    })
}

pub(super) fn queue_labels(queue: &str, priority: Option<&str>) -> Map<String, Value> {
    let mut labels = Map::new();
    labels.insert("kueue.x-k8s.io/queue-name".into(), json!(queue));
    if let Some(priority) = priority {
        labels.insert("kueue.x-k8s.io/priority-class".into(), json!(priority));
    }
    labels
}

pub(super) fn batch_job(name: &str, namespace: &str, labels: &Map<String, Value>, shape: &Shape) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": { "name": name, "namespace": namespace, "labels": labels },
        "spec": {
            "parallelism": shape.pods, "completions": shape.pods, "backoffLimit": 3, "suspend": true,
            "template": template(shape, "Never"),
        },
    })
}

pub(super) fn job_set(name: &str, namespace: &str, labels: &Map<String, Value>, shape: &Shape) -> Value {
    json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": { "name": name, "namespace": namespace, "labels": labels },
        "spec": { "suspend": true, "replicatedJobs": [{
            "name": "workers", "replicas": 1,
            "template": { "spec": {
                "parallelism": shape.pods, "completions": shape.pods, "backoffLimit": 3,
                "template": template(shape, "Never"),
            } },
        }] },
    })
}

pub(super) fn pytorch_job(name: &str, namespace: &str, labels: &Map<String, Value>, shape: &Shape) -> Value {
    let of = |replicas: i64| json!({ "replicas": replicas, "restartPolicy": "Never", "template": template(shape, "Never") });
    let mut replica_specs = json!({ "Worker": of(shape.pods) });
    // The larger ones have two pod sets.
    if shape.pods > 3 {
        replica_specs["Master"] = of(1);
    }
    json!({
        "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
        "metadata": { "name": name, "namespace": namespace, "labels": labels },
        "spec": { "pytorchReplicaSpecs": replica_specs },
    })
}

pub(super) fn pod_group(name: &str, namespace: &str, min_member: i64) -> Value {
    json!({
        "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
        "metadata": { "name": name, "namespace": namespace }, "spec": { "minMember": min_member },
    })
}

pub(super) fn pod(name: &str, namespace: &str, group: Option<&str>, shape: &Shape) -> Value {
    let mut pod = template(shape, "Never");
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"]["name"] = json!(name);
    pod["metadata"]["namespace"] = json!(namespace);
    pod["spec"]["schedulerName"] = json!("trireme");
    if let Some(group) = group {
        pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] = json!(group);
    }
    pod
}

/// A pod that another scheduler has put onto a node.
pub(super) fn bound_by_another(mut pod: Value, node: &str) -> Value {
    pod["spec"]["schedulerName"] = json!("another-scheduler");
    pod["spec"]["nodeName"] = json!(node);
    pod
}

fn template(shape: &Shape, restart: &str) -> Value {
    let mut annotations = json!({ "sim.trireme.dev/run-for": format!("{}s", shape.run_for.as_secs()) });
    if shape.fails {
        annotations["sim.trireme.dev/exit-code"] = json!("1");
    }
    let mut resources = json!({ "requests": { "cpu": shape.cpu.to_string() } });
    if shape.gpus > 0 {
        resources["limits"] = json!({ "nvidia.com/gpu": shape.gpus.to_string() });
    }
    json!({
        "metadata": { "annotations": annotations },
        "spec": {
            "restartPolicy": restart,
            "containers": [{ "name": "main", "image": "trainer", "resources": resources }],
        },
    })
}
