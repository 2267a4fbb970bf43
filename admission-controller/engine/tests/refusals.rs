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

/// By the earlier time it would be tried again an hour later.
#[test]
fn what_was_refused_before_the_clock_was_set_back_is_tried_again() {
    let mut world = world();
    world.put(workload("one", "cq", 4, 0));
    let hour_ms = 60 * MINUTE_MS;
    assert_eq!(answer(&mut world, hour_ms, &refused()).len(), 1);
    world.settle_at(1_000);
    assert!(world.is_admitted("one"));
    assert_eq!(world.engine.next_alarm_ms(), None);
}

/// Others may leave for it in vain each time.
#[test]
fn who_is_refused_again_and_again_waits_longer_each_time() {
    let mut world = world();
    world.put(workload("one", "cq", 4, 0));
    let mut waits = Vec::new();
    let mut now_ms = 1_000;
    for _ in 0..9 {
        assert_eq!(answer(&mut world, now_ms, &refused()).len(), 1);
        let next_ms = world.engine.next_alarm_ms().unwrap();
        waits.push((next_ms - now_ms) / MINUTE_MS);
        now_ms = next_ms;
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 64, 64]);
    // Once it was written all is as before.
    world.settle_at(now_ms);
    world.standing("one", Standing::Pending);
    assert_eq!(answer(&mut world, now_ms, &refused()).len(), 1);
    assert_eq!(world.engine.next_alarm_ms(), Some(now_ms + MINUTE_MS));
}

/// What its namespace makes of its requests is another thing: a LimitRange, say.
#[test]
fn who_was_refused_is_tried_again_at_once_when_it_asks_for_something_else() {
    let mut world = world();
    world.put(workload("one", "cq", 4, 0));
    answer(&mut world, 1_000, &refused());
    world.engine.apply(Event::Requests("one".into(), workload("one", "cq", 3, 0).pod_sets, None));
    world.settle();
    assert!(world.is_admitted("one"));
}

/// The answer got lost, and the object tells.
#[test]
fn a_refusal_is_over_when_the_object_says_that_it_was_written() {
    let mut world = world();
    world.put(workload("one", "cq", 4, 0));
    answer(&mut world, 1_000, &refused());
    let now_ms = 1_000 + MINUTE_MS;
    let decisions = world.engine.decide(now_ms);
    let [Decision::Reserve(reserve)] = &decisions[..] else { panic!("{decisions:?}") };
    let admission = reserve.admission.clone();
    world.standing("one", Standing::Reserved { admission, admitted: true, evicted: false, since_ms: now_ms });
    world.standing("one", Standing::Pending);
    assert_eq!(answer(&mut world, now_ms, &refused()).len(), 1);
    assert_eq!(world.engine.next_alarm_ms(), Some(now_ms + MINUTE_MS));
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

/// It may be told to leave at once when it has changed, and whoever waits for its place looks again when the minute is over.
#[test]
fn a_refused_eviction_is_tried_again_though_its_workload_has_changed_meanwhile() {
    let mut world = world();
    world.put(workload("low", "cq", 4, 0));
    world.settle();
    world.put(workload("high", "cq", 4, 5));
    answer(&mut world, 2_000, &refused());
    let low = world.workloads[&Uid::from("low")].clone();
    world.put(Workload { pods_ready: true, ..low });
    world.settle_at(2_000 + MINUTE_MS);
    assert_eq!(world.victims(), [("low", "InClusterQueue")]);
}

/// One whose node has failed, with no other for it.
#[test]
fn an_eviction_for_want_of_nodes_that_was_refused_is_tried_again_after_a_minute() {
    let mut world = support::nodes::world(&[], &[("a", 4)]);
    let mut moved = job("moved", "a", [pods("main", 4, 1, on_one_host())]);
    moved.standing = holds(&moved, "a", Some(at(&[("n1", 4)])));
    moved.seldom.unhealthy_nodes = vec!["n1".into()];
    world.put(moved);
    let evicts = |decisions: &[Decision]| decisions.iter().any(|one| matches!(one, Decision::Evict(_)));
    let decisions = world.engine.decide(1_000);
    let [Decision::Evict(evict)] = &decisions[..] else { panic!("{decisions:?}") };
    world.engine.written(evict.id, refused());
    assert!(!evicts(&world.engine.decide(1_000)));
    assert!(!evicts(&world.engine.decide(MINUTE_MS)));
    assert!(evicts(&world.engine.decide(1_000 + MINUTE_MS)));
}

/// One that has quota, and seeks places.
#[test]
fn who_seeks_places_looks_again_when_a_refused_eviction_may_be_tried_again() {
    let mut world = support::nodes::world(&["n1"], &[("a", 8)]);
    let mut queue = cluster_queue("a", Some("pool"), gpus(&[("f", quota(8, None, None))]));
    queue.preemption.within_cluster_queue = WithinClusterQueue::LowerPriority;
    world.engine.apply(Event::ClusterQueue(queue));
    world.put(job("low", "a", [pods("main", 4, 1, on_one_host())]));
    world.settle();
    let mut seeks = Workload { priority: 5, ..job("seeks", "a", [pods("main", 4, 1, on_one_host())]) };
    (seeks.standing, seeks.checks_passed) = (holds(&seeks, "a", None), true);
    world.put(seeks);
    let evicts = |one: &Decision| matches!(one, Decision::Evict(_));
    let decisions = world.engine.decide(2_000);
    let Some(Decision::Evict(evict)) = decisions.iter().find(|one| evicts(one)) else { panic!() };
    world.engine.written(evict.id, refused());
    assert!(!world.engine.decide(2_000).iter().any(evicts));
    assert!(world.engine.decide(2_000 + MINUTE_MS).iter().any(evicts));
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

/// Its admission was on its way when this replica lost the lease. Whoever led meanwhile has given the room to another, and told the
/// first why it waits.
#[test]
fn what_was_decided_in_an_earlier_term_is_decided_anew() {
    let mut world = world();
    world.put(workload("other", "cq", 4, 0));
    world.settle();
    let admitted = world.workloads[&Uid::from("other")].standing.clone();
    world.standing("other", Standing::Finished);
    world.put(workload("one", "cq", 4, 0));
    assert_eq!(world.engine.decide(1_000).len(), 1);
    world.standing("one", Standing::Pending);
    world.standing("other", admitted);
    world.engine.take_back_untold();
    assert_eq!(world.engine.decide(1_000), []);
    world.take_reasons();
    assert_eq!(world.reason("one").token(), "WaitingForQuota");
    world.engine.audit().unwrap();
}
