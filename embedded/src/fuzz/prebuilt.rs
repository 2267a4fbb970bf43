//! Jobs whose users make their Workloads themselves (`kueue.x-k8s.io/prebuilt-workload-name`).

use std::time::Duration;

use fastrand::Rng;
use serde_json::json;

use super::manifests as make;
use super::scenario::{Act, CALM_AFTER, LENGTH, Queue, instant};

/// Told apart from what else is drawn from the seed, so that this can change without changing that.
const SALT: u64 = 0x6d61_6465;

/// The longest that a job waits for its Workload.
const LATE: Duration = Duration::from_secs(60);

/// What such users do, by time. A quarter of the episodes has any.
pub(super) fn draw(seed: u64, queues: &[Queue]) -> Vec<(Duration, Act)> {
    let rng = &mut Rng::with_seed(seed ^ SALT);
    let mut story = Vec::new();
    let count = if rng.u8(..4) == 0 { rng.usize(1..=4) } else { 0 };
    for index in 0..count {
        let queue = &queues[rng.usize(..queues.len())];
        story.extend(described(rng, index, queue));
    }
    story
}

/// A job, and soon after it its Workload.
fn described(rng: &mut Rng, index: usize, queue: &Queue) -> Vec<(Duration, Act)> {
    let begins = instant(rng, CALM_AFTER.mul_f64(0.7));
    let shape = make::Shape {
        pods: rng.i64(1..=4),
        gpus: [0, 1, 2][rng.usize(..3)],
        cpu: 1,
        run_for: if rng.u8(..4) == 0 { LENGTH * 2 } else { Duration::from_secs(rng.u64(10..=400)) },
        fails: false,
    };
    let name = format!("described-{index}");
    let mut job = make::batch_job(&name, queue.namespace, &make::queue_labels(&queue.name, None), &shape);
    job["metadata"]["annotations"] = json!({ "kueue.x-k8s.io/prebuilt-workload-name": name });
    let priority = [0, 100, 1000][rng.usize(..3)];
    let workload = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": { "name": name, "namespace": queue.namespace },
        "spec": {
            "queueName": queue.name, "priority": priority,
            "podSets": [{ "name": "workers", "count": shape.pods }],
        },
    });
    let later = begins + instant(rng, LATE);
    vec![(begins, Act::Apply(job.clone())), (later, Act::Describe { job, workload })]
}
