//! Whoever may displace whom, nobody does so without end while nothing comes, ends or changes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use quota_engine::input::*;
use quota_engine::*;
use support::*;

/// Without a memory of who took whose place, seven of them have no end: 3268 by priority and quota, 7946 by shares.
const STORIES: u64 = 20_000;

/// Two or three queues of one cohort, of any policies.
fn random_world(rng: &mut fastrand::Rng) -> (World, usize) {
    let fair_sharing = match rng.u32(0..4) {
        0 => Some(FairSharing::FinalThenInitialShare),
        1 => Some(FairSharing::FinalShare),
        2 => Some(FairSharing::InitialShare),
        _ => None,
    };
    let mut world =
        World::with(Settings { fair_sharing, ..Settings::default() }, [Event::Flavor(flavor("f"))]);
    let queues = rng.usize(2..=3);
    for name in &NAMES[..queues] {
        let nominal = quota(rng.i64(0..=8), None, None);
        let mut queue = cluster_queue(name, Some("pool"), gpus(&[("f", nominal)]));
        queue.preemption = Preemption {
            within_cluster_queue: *rng.choice(&WITHIN).unwrap(),
            reclaim_within_cohort: *rng.choice(&RECLAIM).unwrap(),
            borrow_within_cohort: *rng.choice(&BORROW).unwrap(),
        };
        world.engine.apply(Event::ClusterQueue(queue));
        world.engine.apply(Event::LocalQueue(local_queue(name)));
    }
    (world, queues)
}

const NAMES: [&str; 3] = ["a", "b", "c"];
const WITHIN: [WithinClusterQueue; 3] = [
    WithinClusterQueue::Never,
    WithinClusterQueue::LowerPriority,
    WithinClusterQueue::LowerOrNewerEqualPriority,
];
const RECLAIM: [ReclaimWithinCohort; 3] =
    [ReclaimWithinCohort::Never, ReclaimWithinCohort::LowerPriority, ReclaimWithinCohort::Any];
const BORROW: [BorrowWithinCohort; 3] = [
    BorrowWithinCohort::Never,
    BorrowWithinCohort::LowerPriority { threshold: None },
    BorrowWithinCohort::LowerPriority { threshold: Some(1) },
];

/// Tells who was displaced where that does not end.
fn displaced_without_end(seed: u64) -> Option<String> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let (mut world, queues) = random_world(&mut rng);
    let jobs = rng.usize(3..=10);
    for index in 0..jobs {
        let queue = NAMES[rng.usize(0..queues)];
        let mut one = workload(&format!("{queue}{index}"), queue, rng.i64(1..=10), rng.i32(0..4));
        one.queued_at_ms = i64::try_from(index).unwrap();
        world.put(one);
        if rng.bool() {
            world.settle();
        }
    }
    let enough = 4 * jobs * jobs;
    loop {
        world.settle();
        let leaving = world.leaving();
        let gone = rng.choice(&leaving).cloned()?;
        world.standing(&gone.to_string(), Standing::Pending);
        if world.evictions.len() > enough {
            return Some(format!("seed {seed}: {:?}", &world.victims()[enough - 12..]));
        }
    }
}

#[test]
fn nobody_is_displaced_without_end() {
    let endless: Vec<_> = (0..STORIES).filter_map(displaced_without_end).collect();
    assert!(endless.is_empty(), "{} of {STORIES}: {}", endless.len(), endless.join("\n"));
}
