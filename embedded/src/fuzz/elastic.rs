//! Jobs that are resized while they run (`kueue.x-k8s.io/elastic-job`).

use std::time::Duration;

use fastrand::Rng;
use serde_json::json;

use super::manifests as make;
use super::scenario::{Act, CALM_AFTER, Queue, Sideline, instant};

/// What users of such jobs do.
pub(super) const JOBS: Sideline = Sideline { salt: 0x736c_6963, one_in: 3, one: resized };

/// A job that grows and shrinks at any time: while it waits, while it runs, and before its last change is granted.
fn resized(rng: &mut Rng, index: usize, queue: &Queue) -> Vec<(Duration, Act)> {
    let begins = instant(rng, CALM_AFTER.mul_f64(0.6));
    let shape = make::Shape {
        pods: rng.i64(1..=4),
        gpus: [0, 1, 1, 2][rng.usize(..4)],
        cpu: 1,
        run_for: Duration::from_secs(rng.u64(30..=300)),
        fails: false,
    };
    let labels = make::queue_labels(&queue.name, [None, Some("low"), Some("high")][rng.usize(..3)]);
    let mut job = make::batch_job(&format!("elastic-{index}"), queue.namespace, &labels, &shape);
    job["metadata"]["annotations"] = json!({ "kueue.x-k8s.io/elastic-job": "true" });
    // There is more to do than its pods do at once: when one ends another comes.
    job["spec"]["completions"] = json!(rng.i64(8..=40));
    let mut story = vec![(begins, Act::Apply(job.clone()))];
    for _ in 0..rng.usize(1..=6) {
        let at = begins + instant(rng, Duration::from_secs(400));
        let patch = json!({ "spec": { "parallelism": rng.i64(1..=6) } });
        story.push((at, Act::Patch { object: job.clone(), patch }));
    }
    story
}
