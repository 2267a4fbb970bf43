//! Users who change their minds: about the queue, about how urgent their job is, about whether it should run at all; and users who
//! give their job only so much time.

use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};

use super::manifests as make;
use super::scenario::{Act, CALM_AFTER, Queue, Sideline, instant};

/// What such users do.
pub(super) const USERS: Sideline = Sideline { salt: 0x6669_636b, one_in: 3, one: change_their_minds };

/// A change comes within this time of the job, or of the one before.
const SOON: Duration = Duration::from_secs(90);

fn change_their_minds(rng: &mut Rng, index: usize, queue: &Queue) -> Vec<(Duration, Act)> {
    let mut at = instant(rng, CALM_AFTER.mul_f64(0.6));
    let shape = make::Shape {
        pods: rng.i64(1..=4),
        gpus: [0, 1, 2][rng.usize(..3)],
        cpu: 1,
        run_for: Duration::from_secs(rng.u64(30..=400)),
        fails: false,
    };
    let class = |rng: &mut Rng| ["low", "mid", "high"][rng.usize(..3)];
    let mut labels = make::queue_labels(&queue.name, Some(class(rng)));
    if rng.u8(..3) == 0 {
        labels.insert("kueue.x-k8s.io/max-exec-time-seconds".into(), json!(rng.u64(20..=200).to_string()));
    }
    let name = format!("fickle-{index}");
    let (job, suspend): (Value, fn(bool) -> Value) = match rng.bool() {
        true => (
            make::batch_job(&name, queue.namespace, &labels, &shape),
            |stops| json!({ "spec": { "suspend": stops } }),
        ),
        false => (
            make::pytorch_job(&name, queue.namespace, &labels, &shape),
            |stops| json!({ "spec": { "runPolicy": { "suspend": stops } } }),
        ),
    };
    let mut story = vec![(at, Act::Apply(job.clone()))];
    for _ in 0..rng.usize(1..=4) {
        at += instant(rng, SOON);
        let label = |label: &str, value: &str| {
            let label = format!("kueue.x-k8s.io/{label}");
            json!({ "metadata": { "labels": { label: value } } })
        };
        let patch = match rng.u8(..4) {
            0 => label("priority-class", class(rng)),
            // Its way back may be refused, when it runs elsewhere by then.
            1 => label("queue-name", ["no-such-queue", &queue.name][rng.usize(..2)]),
            2 => suspend(true),
            _ => suspend(false),
        };
        story.push((at, Act::Patch { object: job.clone(), patch }));
    }
    story
}
