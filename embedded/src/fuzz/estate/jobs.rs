//! What jobs of an estate have that others do not.

use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};

use super::{Estate, LEVELS, POOL, taint};
use crate::fuzz::manifests as make;
use crate::fuzz::scenario::Queue;

/// The label of the pods of a group.
const GROUP: &str = "kueue.x-k8s.io/pod-group-name";

/// Whether these are the pods of a group.
pub(in crate::fuzz) fn is_group(objects: &[Value]) -> bool {
    objects.iter().all(|object| object["kind"] == "Pod" && object["metadata"]["labels"].get(GROUP).is_some())
}

/// Gives a job what its seed says: the pool it insists on, the taints it tolerates, how few pods it would be content with.
pub(in crate::fuzz) fn dress(rng: &mut Rng, estate: &Estate, job: &mut Value) {
    let pool = &estate.pools[rng.usize(..estate.pools.len())].name;
    let insists = estate.traits.pools && rng.u8(..4) == 0;
    let tolerates = estate.traits.taints && rng.u8(..3) > 0;
    for template in templates(job) {
        if insists {
            template["spec"]["nodeSelector"] = json!({ POOL: pool });
        }
        if tolerates {
            template["spec"]["tolerations"] =
                json!([{ "key": taint(pool)["key"], "operator": "Exists", "effect": "NoSchedule" }]);
        }
    }
    accept_fewer(rng, job);
    if estate.traits.topology && rng.u8(..3) > 0 {
        place(rng, job);
    }
}

/// The pods of each set want to be near to one another, or have to be; some in pairs.
fn place(rng: &mut Rng, job: &mut Value) {
    let level = LEVELS[rng.usize(..LEVELS.len())];
    let (wish, value) = match rng.u8(..4) {
        0 => ("kueue.x-k8s.io/podset-unconstrained-topology", "true"),
        1 => ("kueue.x-k8s.io/podset-preferred-topology", level),
        _ => ("kueue.x-k8s.io/podset-required-topology", level),
    };
    let pairs = job["spec"]["parallelism"].as_i64().is_some_and(|pods| pods % 2 == 0) && rng.u8(..4) == 0;
    for template in templates(job) {
        template["metadata"]["annotations"][wish] = json!(value);
        if pairs {
            let annotations = &mut template["metadata"]["annotations"];
            annotations["kueue.x-k8s.io/podset-slice-required-topology"] = json!(LEVELS[2]);
            annotations["kueue.x-k8s.io/podset-slice-size"] = json!("2");
        }
    }
}

/// A Job of several pods may be content with fewer.
fn accept_fewer(rng: &mut Rng, job: &mut Value) {
    let pods = job["spec"]["parallelism"].as_i64().unwrap_or(0);
    if job["kind"] == "Job" && pods > 1 && rng.u8(..4) == 0 {
        job["metadata"]["annotations"]["kueue.x-k8s.io/job-min-parallelism"] =
            json!(rng.i64(1..pods).to_string());
    }
}

/// The pod templates of a job; the pod itself, if it is one.
fn templates(job: &mut Value) -> Vec<&mut Value> {
    match job["kind"].as_str() {
        Some("Pod") => vec![job],
        Some("Job") => job.pointer_mut("/spec/template").into_iter().collect(),
        Some("JobSet") => {
            let jobs = job.pointer_mut("/spec/replicatedJobs").and_then(Value::as_array_mut);
            jobs.into_iter().flatten().filter_map(|one| one.pointer_mut("/template/spec/template")).collect()
        }
        Some("PyTorchJob") => {
            let replicas = job.pointer_mut("/spec/pytorchReplicaSpecs").and_then(Value::as_object_mut);
            replicas
                .into_iter()
                .flat_map(serde_json::Map::values_mut)
                .filter_map(|one| one.get_mut("template"))
                .collect()
        }
        _ => Vec::new(),
    }
}

/// A pod, or a group of pods, that its user submits by itself.
pub(in crate::fuzz) fn pods(rng: &mut Rng, index: usize, queue: &Queue) -> Vec<Value> {
    let shape = make::Shape {
        pods: rng.i64(1..=4),
        gpus: rng.i64(0..=2),
        cpu: rng.i64(1..=4),
        run_for: Duration::from_secs(rng.u64(10..=400)),
        fails: rng.u8(..12) == 0,
    };
    let priority = [None, Some("low"), Some("high")][rng.usize(..3)];
    let group = format!("pods-{index}");
    let of_group = shape.pods > 1;
    (0..shape.pods)
        .map(|member| {
            let name = if of_group { format!("{group}-{member}") } else { group.clone() };
            let mut pod = make::pod(&name, queue.namespace, None, &shape);
            let mut labels = make::queue_labels(&queue.name, priority);
            if of_group {
                labels.insert(GROUP.into(), json!(group));
                pod["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"] =
                    json!(shape.pods.to_string());
            }
            pod["metadata"]["labels"] = labels.into();
            pod
        })
        .collect()
}
