//! What goes wrong seldom and for long: storage that is full, watches that say nothing any more, lists of many pages, wall clocks
//! that are wrong, webhooks and job controllers that are away, programs that are asked to stop, pods that do not go, and a
//! namespace that does.

use std::time::Duration;

use cluster_sim::faults::WebhookFault;
use fastrand::Rng;
use serde_json::Value;

use super::manifests as make;
use super::scenario::{Act, CALM_AFTER, Chapter, Queue, instant};
use super::trouble::{ApiTrouble, Trouble, WatchTrouble};
use crate::stack::Program;

/// Told apart from what else is drawn from the seed, so that this can change without changing that.
const SALT: u64 = 0x6f75_7461;

/// The outages of a seed's episode; every other has none, so that what chance alone brings about keeps its share.
pub(super) fn draw(seed: u64, queues: &[Queue]) -> Chapter {
    let rng = &mut Rng::with_seed(seed ^ SALT);
    let mut outages = Chapter::default();
    if rng.u8(..2) == 0 {
        return outages;
    }
    for _ in 0..rng.usize(1..=3) {
        let at = instant(rng, CALM_AFTER.mul_f64(0.75));
        match rng.u8(..8) {
            0 => outages.stuck_pods(rng, at),
            1 => outages.namespace_away(rng, at, queues),
            _ => outages.trouble.push((at, trouble(rng))),
        }
    }
    outages
}

impl Chapter {
    /// Some of the pods get a finalizer of somebody who is away: what ends of them or is deleted stays.
    fn stuck_pods(&mut self, rng: &mut Rng, at: Duration) {
        let lasts = Duration::from_secs(rng.u64(30..=240));
        self.story.push((at, Act::HoldPods { one_in: rng.usize(1..=3) }));
        self.story.push((at + lasts, Act::LetPodsGo));
    }

    /// A namespace is deleted with all that is in it, and made again with its queues.
    fn namespace_away(&mut self, rng: &mut Rng, at: Duration, queues: &[Queue]) {
        let namespace = queues[rng.usize(..queues.len())].namespace;
        let back = at + Duration::from_secs(rng.u64(60..=240));
        for object in make::namespaces(&[namespace]) {
            self.story.push((at, Act::Delete(object.clone())));
            self.story.push((back, Act::Apply(object)));
        }
        let theirs = |queue: &&Queue| queue.namespace == namespace;
        let local_queues = queues.iter().filter(theirs).flat_map(|queue| queue.local_queues.iter());
        self.story.extend(local_queues.map(|queue: &Value| (back, Act::Apply(queue.clone()))));
    }
}

fn trouble(rng: &mut Rng) -> Trouble {
    let lasts = Duration::from_secs(rng.u64(20..=120));
    let controller = if rng.bool() { Program::AdmissionController } else { Program::GangScheduler };
    match rng.u8(..8) {
        // etcd answers so to every write once its quota is used up.
        0 => Trouble::Api { lasts, kind: ApiTrouble::Refused(500), permille: 1000 },
        1 => Trouble::Watches(WatchTrouble::Silent),
        2 => Trouble::Webhooks { lasts, fault: WebhookFault::Unreachable },
        3 => {
            let late = Duration::from_secs(rng.u64(1..=15));
            Trouble::Webhooks { lasts, fault: WebhookFault::Slow(late) }
        }
        4 => Trouble::JobControllersAway { lasts },
        5 => Trouble::LongLists { lasts, page: rng.usize(5..=20) },
        6 => Trouble::ClockSet { program: controller, ahead: rng.i64(-3600..=3600), lasts: lasts * 5 },
        _ => Trouble::AskedToStop { program: controller, away: Duration::from_secs(rng.u64(1..=30)) },
    }
}
