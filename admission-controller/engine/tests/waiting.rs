//! Who waits for a turn, and who for a change, as Kueue's queues tell them apart.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use quota_engine::input::*;
use quota_engine::*;
use support::*;

fn queue(nominal: i64) -> ClusterQueue {
    cluster_queue("cq", None, gpus(&[("f", quota(nominal, None, None))]))
}

fn world(settings: Settings, queue: ClusterQueue) -> World {
    let events =
        [Event::Flavor(flavor("f")), Event::ClusterQueue(queue), Event::LocalQueue(local_queue("cq"))];
    World::with(settings, events)
}

/// A StrictFIFO queue of ten, in which the more important displace the others.
fn strict_world() -> World {
    let mut queue = ClusterQueue { strategy: QueueingStrategy::StrictFifo, ..queue(10) };
    queue.preemption.within_cluster_queue = WithinClusterQueue::LowerPriority;
    world(Settings::default(), queue)
}

fn names(uids: &[&str]) -> Vec<Uid> {
    uids.iter().map(|uid| Uid::from(*uid)).collect()
}

#[test]
fn of_a_queue_that_does_not_run_everybody_waits_for_a_turn() {
    for strategy in [QueueingStrategy::BestEffortFifo, QueueingStrategy::StrictFifo] {
        let held = ClusterQueue { strategy, stop: StopPolicy::Hold, ..queue(1) };
        let mut world = world(Settings::default(), held);
        world.put(workload("one", "cq", 1, 0));
        let mut put_off = workload("put-off", "cq", 1, 0);
        put_off.seldom.kept_out = Some(KeptOut::NotRequeued("Quarantined".into()));
        world.put(put_off);
        world.settle();
        let waiting = world.engine.waiting_in(&"cq".into());
        assert_eq!(waiting, (names(&["one"]), names(&["put-off"])), "{strategy:?}");
    }
}

/// The first finds nothing, or is held back by its gate; the second asks for the same.
#[test]
fn who_asks_for_the_same_is_put_back_with_one_that_found_nothing() {
    for (hashing, gated, put_back) in [(true, false, true), (false, false, false), (true, true, false)] {
        let settings =
            Settings { equivalence_hashing: hashing, preemption_gates: true, ..Settings::default() };
        let mut queue = queue(4);
        queue.preemption.within_cluster_queue = WithinClusterQueue::LowerPriority;
        let mut world = world(settings, queue);
        world.put(workload("runs", "cq", 4, 0));
        world.settle();
        for (queued_at_ms, uid) in (0..).zip(["first", "second"]) {
            let one = workload(uid, "cq", 4, i32::from(gated));
            world.put(Workload { queued_at_ms, preemption_gated: gated, ..one });
        }
        world.cycle();
        let wanted = match put_back {
            true => (names(&[]), names(&["second", "first"])),
            false => (names(&["second"]), names(&["first"])),
        };
        assert_eq!(world.engine.waiting_in(&"cq".into()), wanted, "{hashing}, {gated}");
    }
}

/// The promise made to one binds those behind it in a strict queue, and nobody before it.
#[test]
fn who_comes_first_in_a_strict_queue_does_not_wait_for_the_victims_of_others() {
    let mut world = strict_world();
    world.put(workload("victim", "cq", 4, 0));
    world.settle();
    world.put(workload("large", "cq", 8, 5));
    world.put(workload("behind", "cq", 1, 4));
    world.settle();
    assert_eq!(world.leaving(), names(&["victim"]));
    assert!(!world.is_admitted("behind"));
    world.put(workload("urgent", "cq", 1, 100));
    world.settle();
    assert!(world.is_admitted("urgent"), "{:?}", world.reason("urgent"));
    world.standing("victim", Standing::Pending);
    world.settle();
    assert!(world.is_admitted("large"), "it was promised: {:?}", world.reason("large"));
}

#[test]
fn what_is_free_in_a_strict_queue_is_not_kept_for_who_comes_later() {
    let mut world = strict_world();
    world.put(workload("other", "cq", 3, 1));
    world.put(workload("victim", "cq", 4, 0));
    world.settle();
    world.put(workload("large", "cq", 6, 5));
    world.settle();
    assert_eq!(world.leaving(), names(&["victim"]));
    world.put(workload("urgent", "cq", 3, 100));
    world.settle();
    assert!(world.is_admitted("urgent"), "{:?}", world.reason("urgent"));
    // Beside it there is no room for the promise, and one more leaves for that.
    assert_eq!(world.leaving(), names(&["other", "victim"]));
    for gone in ["other", "victim"] {
        world.standing(gone, Standing::Pending);
    }
    world.settle();
    assert!(world.is_admitted("large"), "{:?}", world.reason("large"));
    assert_eq!(world.victims().len(), 2);
}

/// What is promised in a strict queue is kept where who comes first cannot use it.
#[test]
fn who_comes_first_in_a_strict_queue_and_finds_nothing_takes_no_promise_away() {
    let mut world = strict_world();
    world.put(workload("stays", "cq", 4, 200));
    world.put(workload("victim", "cq", 4, 0));
    world.settle();
    world.put(workload("large", "cq", 6, 5));
    world.settle();
    assert_eq!(world.leaving(), names(&["victim"]));
    world.put(workload("urgent", "cq", 7, 100));
    world.settle();
    world.standing("victim", Standing::Pending);
    world.settle();
    assert!(world.is_admitted("large"), "{:?}", world.reason("large"));
}

/// In Kueue such a head is looked at in every cycle.
#[test]
fn a_blocked_head_is_looked_at_again_when_others_borrow_what_it_may_take_back() {
    let mut a = cluster_queue("a", Some("pool"), gpus(&[("f", quota(5, None, None))]));
    a.strategy = QueueingStrategy::StrictFifo;
    a.preemption.reclaim_within_cohort = ReclaimWithinCohort::Any;
    a.preemption.borrow_within_cohort = BorrowWithinCohort::LowerPriority { threshold: None };
    let b = cluster_queue("b", Some("pool"), gpus(&[("f", quota(5, None, None))]));
    let mut events = vec![Event::Flavor(flavor("f")), Event::ClusterQueue(a), Event::ClusterQueue(b)];
    events.extend(["a", "b"].map(|name| Event::LocalQueue(local_queue(name))));
    let mut world = World::with(Settings::default(), events);
    world.put(workload("x", "b", 4, 0));
    world.settle();
    world.put(workload("head", "a", 7, 5));
    world.settle();
    assert_eq!(world.leaving(), names(&[]), "nobody borrows");
    world.put(workload("w", "b", 2, 10));
    world.settle();
    assert!(world.is_admitted("w"));
    assert_eq!(world.leaving(), names(&["x"]));
}

/// What the like of the first wait for is told to all of them when it becomes another thing, not to the first alone.
#[test]
fn who_asks_for_the_same_is_told_the_same() {
    let mut world = world(Settings { block_admission: true, ..Settings::default() }, queue(8));
    for (queued_at_ms, uid) in (0..).zip(["1", "2", "3", "4", "5"]) {
        world.put(Workload { queued_at_ms, ..workload(uid, "cq", 4, 0) });
    }
    let ready = |world: &mut World, uid: &str| {
        let one = world.workloads[&Uid::from(uid)].clone();
        world.put(Workload { pods_ready: true, ..one });
        world.settle();
    };
    let told = |world: &World, token: &str, uids: &[&str]| {
        for uid in uids {
            assert_eq!(world.reason(uid).token(), token, "{uid}");
            let known = world.engine.explain(&(*uid).into()).unwrap().reason.unwrap();
            assert_eq!(known.token(), token, "{uid} is explained");
            assert_eq!(world.engine.last_reason(&(*uid).into()), Some(&known), "{uid} has one reason");
        }
    };
    world.settle();
    told(&world, "WaitingForPodsReady", &["2", "3", "4", "5"]);
    ready(&mut world, "1");
    assert!(world.is_admitted("2"));
    ready(&mut world, "2");
    told(&world, "WaitingForQuota", &["3", "4", "5"]);
    // The first of them is gone, and those behind it still know.
    world.standing("3", Standing::Finished);
    world.settle();
    told(&world, "WaitingForQuota", &["4", "5"]);
}

/// Who was promised room is shown first, unless somebody else has its turn before it.
#[test]
fn everybody_is_shown_where_its_turn_is() {
    for (strategy, line) in [
        (QueueingStrategy::BestEffortFifo, ["large", "first"]),
        (QueueingStrategy::StrictFifo, ["first", "large"]),
    ] {
        let mut queue = ClusterQueue { strategy, ..queue(10) };
        queue.preemption.within_cluster_queue = WithinClusterQueue::LowerPriority;
        let mut world = world(Settings::default(), queue);
        world.put(workload("victim", "cq", 4, 0));
        world.settle();
        world.put(workload("large", "cq", 8, 5));
        world.settle();
        world.put(workload("first", "cq", 11, 9));
        world.settle();
        let shown = world.engine.line_of(&"cq".into()).unwrap();
        let shown: Vec<&str> = shown.iter().map(|one| &*one.name).collect();
        assert_eq!(shown, line, "{strategy:?}");
        let ahead = world.engine.explain(&"first".into()).unwrap().ahead;
        assert_eq!(ahead, line.iter().position(|one| *one == "first"), "{strategy:?}");
    }
}
