//! Jobs whose users make their Workloads themselves (`kueue.x-k8s.io/prebuilt-workload-name`).

use std::time::Duration;

use fastrand::Rng;
use serde_json::json;

use super::manifests as make;
use super::scenario::{Act, CALM_AFTER, LENGTH, Queue, Sideline, instant};

/// The longest that a job waits for its Workload.
const LATE: Duration = Duration::from_secs(60);

/// What users of such jobs do.
pub(super) const JOBS: Sideline = Sideline { salt: 0x6d61_6465, one_in: 4, one: described };

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
