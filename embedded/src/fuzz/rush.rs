//! Moments at which timing is everything, and which chance alone would bring about too seldom: many jobs at once while requests
//! take their time, a job that grows while nobody looks after it or is made anew, a queue that is drained under running jobs, nodes
//! that nobody may use.

use std::time::Duration;

use fastrand::Rng;
use serde_json::json;

use super::manifests as make;
use super::scenario::{Act, CALM_AFTER, Chapter, Queue, instant};
use super::trouble::{ApiTrouble, Trouble, WatchTrouble};
use crate::stack::Program;

/// Told apart from what else is drawn from the seed, so that this can change without changing that.
const SALT: u64 = 0x7275_7368;

/// The moments of a seed's episode.
pub(super) fn draw(seed: u64, queues: &[Queue], nodes: usize) -> Chapter {
    let rng = &mut Rng::with_seed(seed ^ SALT);
    let mut rush = Chapter::default();
    for index in 0..rng.usize(..=2) {
        let queue = &queues[rng.usize(..queues.len())];
        rush.crowd(rng, queue, index);
    }
    if rng.u8(..3) > 0 {
        let queue = &queues[rng.usize(..queues.len())];
        rush.growth(rng, queue);
    }
    if rng.u8(..3) == 0 {
        let queue = &queues[rng.usize(..queues.len())];
        rush.drain(rng, queue);
    }
    if rng.u8(..3) == 0 {
        let queue = &queues[rng.usize(..queues.len())];
        rush.again(rng, queue);
    }
    if rng.u8(..4) == 0 {
        let queue = &queues[rng.usize(..queues.len())];
        rush.maintenance(rng, queue, nodes);
    }
    if queues.len() > 2 && rng.bool() {
        let first = rng.usize(..queues.len());
        let queue = |step: usize| &queues[(first + step) % queues.len()];
        rush.reclaim(rng, [queue(0), queue(1), queue(2)]);
    }
    rush
}

impl Chapter {
    fn submit(&mut self, at: Duration, queue: &Queue, (name, priority): (&str, &str), shape: &make::Shape) {
        let labels = make::queue_labels(&queue.name, Some(priority));
        self.story.push((at, Act::Apply(make::batch_job(name, queue.namespace, &labels, shape))));
    }

    /// Jobs of low priority fill a queue, and while it is not known yet what became of them one or two come that are urgent.
    fn crowd(&mut self, rng: &mut Rng, queue: &Queue, index: usize) {
        let at = Duration::from_secs(10) + instant(rng, CALM_AFTER.mul_f64(0.7));
        if rng.bool() {
            let slow = Trouble::Api {
                lasts: Duration::from_secs(10),
                kind: [ApiTrouble::Slow, ApiTrouble::SlowAdmissions, ApiTrouble::SlowAdmissions]
                    [rng.usize(..3)],
                permille: 1000,
            };
            self.trouble.push((at - Duration::from_secs(1), slow));
        }
        let pods = (queue.nominal / 3 + rng.i64(0..=1)).clamp(1, 8);
        let shape = |rng: &mut Rng, pods| make::Shape {
            pods,
            gpus: 1,
            cpu: 1,
            run_for: Duration::from_secs(rng.u64(60..=300)),
            fails: false,
        };
        for job in 0..rng.usize(4..=12) {
            let shape = shape(rng, pods);
            self.submit(at + instant(rng, SOON), queue, (&format!("crowd-{index}-{job}"), "low"), &shape);
        }
        for job in 0..rng.usize(1..=2) {
            let many = rng.i64(1..=pods);
            let shape = shape(rng, many);
            let later = at + instant(rng, Duration::from_millis(3_500));
            self.submit(later, queue, (&format!("urgent-{index}-{job}"), "high"), &shape);
        }
    }

    /// A job that runs asks for more pods when admission-controller is away.
    fn growth(&mut self, rng: &mut Rng, queue: &Queue) {
        let at = instant(rng, CALM_AFTER.mul_f64(0.7));
        let workers = rng.i64(1..=3);
        let shape = small(workers, Duration::from_secs(400));
        let labels = make::queue_labels(&queue.name, Some("high"));
        let job = make::pytorch_job("growing", queue.namespace, &labels, &shape);
        let later = at + Duration::from_secs(rng.u64(30..=120));
        let more = workers + rng.i64(1..=2);
        let patch = json!({ "spec": { "pytorchReplicaSpecs": { "Worker": { "replicas": more } } } });
        self.story.push((at, Act::Apply(job.clone())));
        self.story.push((later, Act::Patch { object: job, patch }));
        let crash = Trouble::Crash {
            program: Program::AdmissionController,
            after_writes: 0,
            applied: false,
            away: Duration::from_secs(rng.u64(5..=40)),
        };
        self.trouble.push((later - Duration::from_secs(3), crash));
    }

    /// A job that runs is replaced by another of its name, while it is seen late what becomes of its Workload.
    fn again(&mut self, rng: &mut Rng, queue: &Queue) {
        let at = instant(rng, CALM_AFTER.mul_f64(0.7));
        let shape = small(rng.i64(1..=3), Duration::from_secs(600));
        let labels = make::queue_labels(&queue.name, Some("high"));
        let job = make::batch_job("again", queue.namespace, &labels, &shape);
        let later = at + Duration::from_secs(rng.u64(30..=120));
        self.story.push((at, Act::Apply(job.clone())));
        self.story.push((later, Act::Replace(job)));
        let late = WatchTrouble::LateWorkloads(Duration::from_millis(rng.u64(500..=5_000)));
        self.trouble.push((later - Duration::from_millis(1), Trouble::Watches(late)));
    }

    /// For a while every node has a taint, and jobs come all the same.
    fn maintenance(&mut self, rng: &mut Rng, queue: &Queue, nodes: usize) {
        let at = instant(rng, CALM_AFTER.mul_f64(0.7));
        let lasts = Duration::from_secs(100);
        self.trouble.extend((0..nodes).map(|node| (at, Trouble::Taint { node, lasts })));
        for (name, after) in [("patient", 40), ("patient-too", 70)] {
            let pods = rng.i64(1..=3);
            let shape = small(pods, Duration::from_secs(100));
            self.submit(at + Duration::from_secs(after), queue, (name, "high"), &shape);
        }
    }

    /// One queue borrows whatever there is, a second keeps to its own with a job that matters less, and a third takes back what is
    /// its own: one job of the first and the second's would be just enough, were that one anybody's but its owner's.
    fn reclaim(&mut self, rng: &mut Rng, [borrower, owner, claimer]: [&Queue; 3]) {
        let at = instant(rng, CALM_AFTER.mul_f64(0.6));
        let shape =
            |pods| make::Shape { pods, gpus: 1, cpu: 1, run_for: Duration::from_secs(300), fails: false };
        self.submit(at, owner, ("modest", "low"), &shape(1));
        for job in 0..12 {
            let later = at + Duration::from_secs(1) + instant(rng, SOON);
            self.submit(later, borrower, (&format!("greedy-{job}"), "mid"), &shape(4));
        }
        let later = at + Duration::from_secs(rng.u64(20..=40));
        self.submit(later, claimer, ("claim", "high"), &shape(5.min(claimer.nominal.max(1))));
    }

    /// A queue whose jobs run is drained, and opened again after a while.
    fn drain(&mut self, rng: &mut Rng, queue: &Queue) {
        let at = Duration::from_secs(60) + instant(rng, CALM_AFTER.mul_f64(0.5));
        let pods = rng.i64(1..=3);
        let shape = small(pods, Duration::from_secs(1_000));
        self.submit(at - Duration::from_secs(30), queue, ("drained", "high"), &shape);
        let stop = |policy: &str| Act::Patch {
            object: queue.cluster_queue.clone(),
            patch: json!({ "spec": { "stopPolicy": policy } }),
        };
        self.story.push((at, stop("HoldAndDrain")));
        self.submit(
            at + Duration::from_secs(60),
            queue,
            ("late", "high"),
            &small(1, Duration::from_secs(100)),
        );
        self.story.push((at + Duration::from_secs(rng.u64(320..=500)), stop("None")));
    }
}

/// Within this time of each other things happen at once.
const SOON: Duration = Duration::from_millis(200);

/// So few cores that every queue has them.
fn small(pods: i64, run_for: Duration) -> make::Shape {
    make::Shape { pods, gpus: 0, cpu: 1, run_for, fails: false }
}
