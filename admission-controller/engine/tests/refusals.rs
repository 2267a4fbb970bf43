//! Writes that the API server refuses: not tried again at once, and not given up for good.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use quota_engine::input::*;
use quota_engine::*;
use support::nodes::*;
use support::*;

const MINUTE_MS: i64 = 60_000;

fn one_queue(stop: StopPolicy) -> ClusterQueue {
    let mut queue = cluster_queue("cq", None, gpus(&[("a100", quota(4, None, None))]));
    queue.preemption.within_cluster_queue = WithinClusterQueue::LowerPriority;
    ClusterQueue { stop, ..queue }
}

fn world() -> World {
    World::new([
        Event::Flavor(flavor("a100")),
        Event::ClusterQueue(one_queue(StopPolicy::None)),
        Event::LocalQueue(local_queue("cq")),
    ])
}

/// Every decision made now is answered in this way.
fn answer(world: &mut World, now_ms: i64, outcome: &Outcome) -> Vec<Decision> {
    let decisions = world.engine.decide(now_ms);
    for decision in &decisions {
        match decision {
            Decision::Reserve(one) => world.engine.written(one.id, outcome.clone()),
            Decision::Evict(one) => world.engine.written(one.id, outcome.clone()),
            other => panic!("{other:?}"),
        }
    }
    world.engine.audit().unwrap();
    decisions
}

fn refused() -> Outcome {
    Outcome::Refused("a policy says no".into())
}

/// A policy that was wrong for seconds does not keep a queue empty until somebody restarts the program.
#[test]
fn a_refused_admission_is_tried_again_after_a_minute() {
    let mut world = world();
    world.put(workload("one", "cq", 4, 0));
    assert_eq!(answer(&mut world, 1_000, &refused()).len(), 1);
    assert_eq!(answer(&mut world, 1_000, &refused()), []);
    world.take_reasons();
    assert_eq!(world.reason("one"), &PendingReason::AdmissionRefused("a policy says no".into()));
    assert_eq!(world.engine.next_alarm_ms(), Some(1_000 + MINUTE_MS));
    world.settle_at(MINUTE_MS);
    assert!(!world.is_admitted("one"));
    world.settle_at(1_000 + MINUTE_MS);
    assert!(world.is_admitted("one"));
    assert_eq!(world.engine.next_alarm_ms(), None);
}

#[test]
fn what_somebody_else_decides_otherwise_is_not_tried_again() {
    let mut world = world();
    world.put(workload("one", "cq", 4, 0));
    answer(&mut world, 1_000, &Outcome::Overruled("Kueue leads".into()));
    assert_eq!(world.engine.next_alarm_ms(), None);
    world.settle_at(100 * MINUTE_MS);
    assert!(!world.is_admitted("one"));
}

/// Whoever is to have its place waits, and has it in the end.
#[test]
fn a_refused_eviction_is_tried_again_after_a_minute() {
    let mut world = world();
    world.put(workload("low", "cq", 4, 0));
    world.settle();
    world.put(workload("high", "cq", 4, 5));
    assert_eq!(answer(&mut world, 2_000, &refused()).len(), 1);
    assert_eq!(answer(&mut world, 2_000, &refused()), []);
    world.settle_at(2_000 + MINUTE_MS);
    assert_eq!(world.victims(), [("low", "InClusterQueue")]);
    world.standing("low", Standing::Finished);
    world.settle_at(2_000 + MINUTE_MS);
    assert!(world.is_admitted("high"));
}

#[test]
fn a_drain_that_was_refused_is_tried_again_after_a_minute() {
    let mut world = world();
    world.put(workload("one", "cq", 4, 0));
    world.settle();
    world.engine.apply(Event::ClusterQueue(one_queue(StopPolicy::HoldAndDrain)));
    assert_eq!(answer(&mut world, 2_000, &refused()).len(), 1);
    assert_eq!(answer(&mut world, MINUTE_MS, &refused()), []);
    world.settle_at(2_000 + MINUTE_MS);
    assert_eq!(world.victims(), [("one", "ClusterQueueStopped")]);
}

#[test]
fn places_that_were_refused_are_sought_again_after_a_minute() {
    let mut world = support::nodes::world(&["n1", "n2"], &[("a", 4)]);
    let mut moved = job("moved", "a", [pods("main", 4, 1, on_one_host())]);
    moved.standing = holds(&moved, "a", Some(at(&[("n1", 4)])));
    moved.seldom.unhealthy_nodes = vec!["n1".into()];
    world.put(moved);
    let places = world.engine.decide(1_000);
    let [Decision::Reserve(reserve)] = &places[..] else { panic!("{places:?}") };
    world.engine.written(reserve.id, refused());
    world.settle_at(MINUTE_MS);
    assert_eq!(hosts_of(&world, "moved"), ["n1"]);
    world.settle_at(1_000 + MINUTE_MS);
    assert_eq!(hosts_of(&world, "moved"), ["n2"]);
}
