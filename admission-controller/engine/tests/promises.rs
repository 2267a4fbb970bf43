//! Room that others have still to leave, and was promised: what becomes of the promise when other things happen.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use quota_engine::input::*;
use quota_engine::*;
use support::nodes::*;
use support::*;

/// Two flavors of one GPU each; `high` was promised that of `low`, which leaves the first.
fn two_flavors(strategy: QueueingStrategy) -> World {
    let mut world = world_of(Settings::default(), [queue_of(1, 1, strategy)]);
    for (uid, priority) in [("low", 0), ("other", 9), ("high", 3)] {
        world.put(workload(uid, "cq", 1, priority));
        world.settle();
    }
    assert_eq!(world.victims(), [("low", "InClusterQueue")]);
    world
}

/// `cq` with so many a100 and h100, whose workloads displace those of lower priority.
fn queue_of(a100: i64, h100: i64, strategy: QueueingStrategy) -> ClusterQueue {
    let flavors = [("a100", quota(a100, None, None)), ("h100", quota(h100, None, None))];
    let mut queue = cluster_queue("cq", None, gpus(&flavors));
    queue.preemption.within_cluster_queue = WithinClusterQueue::LowerPriority;
    ClusterQueue { strategy, ..queue }
}

fn world_of(settings: Settings, queues: impl IntoIterator<Item = ClusterQueue>) -> World {
    let mut events = vec![Event::Flavor(flavor("a100")), Event::Flavor(flavor("h100"))];
    for queue in queues {
        events.extend([Event::LocalQueue(local_queue(queue.name.as_str())), Event::ClusterQueue(queue)]);
    }
    World::with(settings, events)
}

/// Whoever leaves may take for ever about it, and a StrictFIFO queue would stand still as long.
#[test]
fn who_was_promised_room_takes_what_comes_free_of_another_flavor() {
    for strategy in [QueueingStrategy::BestEffortFifo, QueueingStrategy::StrictFifo] {
        let mut world = two_flavors(strategy);
        if strategy == QueueingStrategy::StrictFifo {
            world.put(workload("behind", "cq", 1, 1));
        }
        world.standing("other", Standing::Finished);
        world.settle();
        assert_eq!(world.flavor_of("high"), Some("h100"), "{strategy:?}");
        // What was promised before is for the next.
        world.put(workload("behind", "cq", 1, 1));
        world.settle();
        assert!(!world.is_admitted("behind"));
        world.standing("low", Standing::Finished);
        world.settle();
        assert_eq!(world.flavor_of("behind"), Some("a100"), "{strategy:?}");
    }
}

/// The queue would rather have others leave than look at its next flavor.
#[test]
fn who_was_promised_room_keeps_to_it_where_the_search_may_stop_there() {
    let mut world = two_flavors(QueueingStrategy::BestEffortFifo);
    let mut queue = queue_of(1, 1, QueueingStrategy::BestEffortFifo);
    queue.fungibility.when_can_preempt = Search::MayStop;
    world.engine.apply(Event::ClusterQueue(queue));
    world.standing("other", Standing::Finished);
    world.settle();
    assert_eq!(world.flavor_of("high"), None);
}

/// Those who leave for it are no reason to look elsewhere: it has displaced them once, and could not again.
#[test]
fn who_was_promised_room_keeps_to_it_though_it_may_not_displace_the_same_once_more() {
    let mut queue = queue_of(3, 4, QueueingStrategy::BestEffortFifo);
    queue.fungibility.when_can_preempt = Search::MayStop;
    let mut world = world_of(Settings::default(), [queue]);
    let mut top = workload("top", "cq", 1, 9);
    pod_set(&mut top).node_selector.insert("gpu-type".into(), "h100".into());
    for one in [workload("low", "cq", 3, 0), workload("mid", "cq", 4, 1), workload("high", "cq", 3, 3), top] {
        world.put(one);
        world.settle();
    }
    assert_eq!(world.victims(), [("low", "InClusterQueue"), ("mid", "InClusterQueue")]);
    world.standing("mid", Standing::Pending);
    world.settle();
    assert_eq!(world.flavor_of("top"), Some("h100"));
    assert_eq!(world.flavor_of("high"), None);
    world.standing("low", Standing::Pending);
    world.settle();
    assert_eq!(world.flavor_of("high"), Some("a100"));
}

#[test]
fn what_comes_free_of_another_flavor_is_for_the_first_of_the_queue() {
    for strategy in [QueueingStrategy::BestEffortFifo, QueueingStrategy::StrictFifo] {
        let mut world = two_flavors(strategy);
        world.put(workload("first", "cq", 1, 5));
        world.standing("other", Standing::Finished);
        world.settle();
        assert_eq!(world.flavor_of("first"), Some("h100"), "{strategy:?}");
        assert_eq!(world.flavor_of("high"), None);
        world.standing("low", Standing::Finished);
        world.settle();
        assert_eq!(world.flavor_of("high"), Some("a100"), "{strategy:?}");
    }
}

/// The head of a StrictFIFO queue needs two; one has come free, and is not for whoever was promised something else.
#[test]
fn who_was_promised_room_does_not_overtake_the_head_of_its_queue() {
    let mut world = two_flavors(QueueingStrategy::StrictFifo);
    world.put(workload("second", "cq", 1, 9));
    world.engine.apply(Event::ClusterQueue(queue_of(1, 2, QueueingStrategy::StrictFifo)));
    world.settle();
    assert!(world.is_admitted("second"));
    world.put(workload("head", "cq", 2, 5));
    world.settle();
    world.standing("other", Standing::Finished);
    world.settle();
    assert_eq!(world.flavor_of("high"), None);
    world.standing("second", Standing::Finished);
    world.settle();
    assert_eq!(world.flavor_of("head"), Some("h100"));
}

/// What comes free is its owner's, who may not take it back from one who borrows it.
#[test]
fn who_was_promised_room_borrows_nothing_that_its_owner_has_a_use_for() {
    let mut borrower = cluster_queue(
        "borrower",
        Some("pool"),
        gpus(&[("a100", quota(1, None, None)), ("h100", quota(0, None, None))]),
    );
    borrower.preemption.within_cluster_queue = WithinClusterQueue::LowerPriority;
    let owner = cluster_queue("owner", Some("pool"), gpus(&[("h100", quota(1, None, None))]));
    let mut world = world_of(Settings::default(), [borrower, owner]);
    for (uid, queue, priority) in
        [("low", "borrower", 0), ("runs", "owner", 0), ("waits", "owner", -5), ("high", "borrower", 3)]
    {
        world.put(workload(uid, queue, 1, priority));
        world.settle();
    }
    assert_eq!(world.victims(), [("low", "InClusterQueue")]);
    world.standing("runs", Standing::Finished);
    world.settle();
    assert!(world.is_admitted("waits"));
    assert_eq!(world.flavor_of("high"), None);
}

/// One h100 is kept for the head of the owner's queue, which needs two, however often room comes back elsewhere.
#[test]
fn who_was_promised_room_borrows_nothing_that_is_kept_for_a_head() {
    let two = |a100, h100| gpus(&[("a100", quota(a100, None, None)), ("h100", quota(h100, None, None))]);
    let mut borrower = cluster_queue("borrower", Some("pool"), two(1, 0));
    borrower.preemption.within_cluster_queue = WithinClusterQueue::LowerPriority;
    let mut owner = cluster_queue("owner", Some("pool"), gpus(&[("h100", quota(2, None, None))]));
    owner.preemption.within_cluster_queue = WithinClusterQueue::LowerPriority;
    owner.strategy = QueueingStrategy::StrictFifo;
    let elsewhere = cluster_queue("elsewhere", None, two(4, 0));
    let mut world = world_of(Settings::default(), [borrower, owner, elsewhere]);
    for (uid, queue, count, priority) in [
        ("low", "borrower", 1, 0),
        ("stays", "owner", 1, 9),
        ("runs", "owner", 1, 9),
        ("waits", "owner", 2, 5),
        ("high", "borrower", 1, 3),
        ("other", "elsewhere", 1, 0),
    ] {
        world.put(workload(uid, queue, count, priority));
        world.settle();
    }
    assert_eq!(world.victims(), [("low", "InClusterQueue")]);
    for (gone, comes) in [("runs", "one"), ("other", "two"), ("one", "three")] {
        world.put(workload(comes, "elsewhere", 1, 0));
        world.put(workload(&format!("{comes}-too"), "elsewhere", 1, 0));
        world.standing(gone, Standing::Finished);
        world.settle();
        assert_eq!(world.flavor_of("high"), None, "{gone}");
    }
    world.standing("stays", Standing::Finished);
    world.settle();
    assert!(world.is_admitted("waits"));
}

/// Nor where somebody who was promised room stands before that head.
#[test]
fn who_was_promised_room_overtakes_nobody_behind_another_promise() {
    let mut world = world_of(Settings::default(), [queue_of(3, 1, QueueingStrategy::StrictFifo)]);
    for (uid, count, priority) in [
        ("low-1", 1, 0),
        ("low-2", 1, 0),
        ("low-3", 1, 0),
        ("other", 1, 9),
        ("high", 1, 3),
        ("before", 2, 8),
        ("head", 1, 5),
    ] {
        world.put(workload(uid, "cq", count, priority));
        world.settle();
    }
    assert_eq!(world.leaving().len(), 3);
    world.standing("other", Standing::Finished);
    world.settle();
    assert_eq!(world.flavor_of("high"), None);
    for gone in world.leaving() {
        world.standing(&gone.to_string(), Standing::Finished);
    }
    world.settle();
    for uid in ["before", "head", "high"] {
        assert!(world.is_admitted(uid), "{uid}");
    }
}

/// Of those who were promised room one is let in; the next when its pods are ready.
#[test]
fn who_was_promised_room_waits_for_the_pods_of_others_too() {
    let settings = Settings { block_admission: true, ..Settings::default() };
    let mut world = world_of(settings, [queue_of(2, 2, QueueingStrategy::BestEffortFifo)]);
    let ready = |world: &mut World, uid: &str| {
        let one = world.workloads[&Uid::from(uid)].clone();
        world.put(Workload { pods_ready: true, ..one });
        world.settle();
    };
    for (uid, count, priority) in
        [("low-1", 1, 0), ("low-2", 1, 0), ("other", 2, 9), ("high-1", 1, 3), ("high-2", 1, 3)]
    {
        world.put(workload(uid, "cq", count, priority));
        world.settle();
        if world.is_admitted(uid) {
            ready(&mut world, uid);
        }
    }
    assert_eq!(world.leaving().len(), 2);
    world.standing("other", Standing::Finished);
    world.settle();
    assert_eq!(world.flavor_of("high-1"), Some("h100"));
    assert_eq!(world.flavor_of("high-2"), None);
    ready(&mut world, "high-1");
    assert_eq!(world.flavor_of("high-2"), Some("h100"));
}

/// What was kept for one who is gone is for those who were promised something else, too.
#[test]
fn who_was_promised_room_takes_what_another_was_promised_who_is_gone() {
    let mut world = world_of(Settings::default(), [queue_of(1, 2, QueueingStrategy::BestEffortFifo)]);
    for (uid, count, priority) in [("other", 1, 9), ("low", 1, 0), ("lower", 1, -1)] {
        world.put(workload(uid, "cq", count, priority));
        world.settle();
    }
    let on = |world: &World, wanted: &str| {
        let mut all = ["other", "low", "lower"].into_iter();
        all.find(|uid| world.flavor_of(uid) == Some(wanted)).map(str::to_owned)
    };
    assert_eq!(on(&world, "a100").as_deref(), Some("other"));
    world.put(workload("first", "cq", 2, 8));
    world.settle();
    assert_eq!(world.leaving().len(), 2);
    world.put(workload("second", "cq", 1, 10));
    world.settle();
    assert_eq!(world.leaving().len(), 3);
    world.standing("low", Standing::Finished);
    world.settle();
    assert!(!world.is_admitted("second"));
    world.workloads.remove(&Uid::from("first"));
    world.engine.apply(Event::WorkloadGone("first".into()));
    world.settle();
    assert_eq!(world.flavor_of("second"), Some("h100"));
}

/// Nodes, too, may come free beside those that others have to leave.
#[test]
fn who_was_promised_places_takes_others_that_come_free() {
    let mut world = world(&["n1", "n2"], &[("cq", 8)]);
    let mut queue = cluster_queue("cq", Some("pool"), gpus(&[("f", quota(8, None, None))]));
    queue.preemption.within_cluster_queue = WithinClusterQueue::LowerPriority;
    world.engine.apply(Event::ClusterQueue(queue));
    for (uid, priority) in [("low", 0), ("other", 9), ("high", 3)] {
        world.put(Workload { priority, ..job(uid, "cq", [pods("main", 4, 1, on_one_host())]) });
        world.settle();
    }
    assert_eq!(world.victims(), [("low", "InClusterQueue")]);
    let left = hosts_of(&world, "other");
    world.standing("other", Standing::Finished);
    world.settle();
    assert_eq!(hosts_of(&world, "high"), left);
}

/// The preemptor is gone, somebody else was promised the room of its victim, and the victim stays: its eviction is refused.
#[test]
fn a_promise_ends_when_who_was_to_leave_stays() {
    let mut world = world_of(Settings::default(), [queue_of(4, 0, QueueingStrategy::BestEffortFifo)]);
    world.put(workload("victim", "cq", 3, 0));
    world.settle();
    world.put(workload("preemptor", "cq", 4, 9));
    let decisions = world.engine.decide(1_000);
    let [Decision::Evict(evict)] = &decisions[..] else { panic!("{decisions:?}") };
    world.workloads.remove(&Uid::from("preemptor"));
    world.engine.apply(Event::WorkloadGone("preemptor".into()));
    world.put(workload("next", "cq", 3, -1));
    assert_eq!(world.engine.decide(1_000), []);
    world.take_reasons();
    assert!(matches!(world.reason("next"), PendingReason::WaitingForPreempted { .. }));
    world.engine.written(evict.id, Outcome::Refused("no".into()));
    world.put(workload("small", "cq", 1, -2));
    world.settle();
    assert!(world.is_admitted("small"));
    assert_eq!(world.reason("next").token(), "WaitingForQuota");
}

/// `leaves` is told to leave the only node.
fn node_to_be_left() -> World {
    let topology = TopologySettings { fail_fast: false, ..TopologySettings::default() };
    let settings = Settings { topology, ..Settings::default() };
    let mut world = world_with(settings, &["n2"], &[("a", 8), ("b", 8)]);
    let mut leaves = job("leaves", "b", [pods("main", 4, 1, on_one_host())]);
    leaves.standing = holds(&leaves, "b", Some(at(&[("n2", 4)])));
    let Standing::Reserved { evicted, .. } = &mut leaves.standing else { panic!() };
    *evicted = true;
    world.put(leaves);
    world
}

/// `moved` has quota, lost its node, and was promised that one.
fn promised_node() -> World {
    let mut world = node_to_be_left();
    world.put(lost(&job("moved", "a", [pods("main", 4, 1, on_one_host())])));
    world.settle();
    world
}

/// It has quota, and the node of its places has failed.
fn lost(one: &Workload) -> Workload {
    let mut one = one.clone();
    one.standing = holds(&one, "a", Some(at(&[("n1", 4)])));
    one.seldom.unhealthy_nodes = vec!["n1".into()];
    one
}

#[test]
fn places_are_no_longer_kept_for_one_whom_they_do_not_serve_any_more() {
    let mut world = promised_node();
    world.put(job("next", "b", [pods("main", 3, 1, on_one_host())]));
    world.settle();
    assert!(!world.is_admitted("next"));
    let asked = std::sync::Arc::new([(model::ResourceName::from(GPU), 1)].into());
    world.engine.apply(Event::Pod("foreign".into(), "n2".into(), asked));
    world.standing("leaves", Standing::Finished);
    world.settle();
    assert_eq!(hosts_of(&world, "moved"), ["n1"]);
    assert_eq!(hosts_of(&world, "next"), ["n2"]);
}

/// Its queue does not run any more when those have left whose place it was promised.
#[test]
fn a_promise_does_not_outlive_the_end_of_its_queue() {
    let mut world = promised_node();
    world.put(job("next", "b", [pods("main", 4, 1, on_one_host())]));
    world.settle();
    let spec = cluster_queue("a", Some("pool"), gpus(&[("f", quota(8, None, None))]));
    world.engine.apply(Event::ClusterQueue(ClusterQueue { stop: StopPolicy::Hold, ..spec }));
    world.standing("leaves", Standing::Finished);
    world.settle();
    assert!(world.is_admitted("next"));
    assert_eq!(hosts_of(&world, "moved"), ["n1"]);
}

/// Two seek places in one cycle, and there are some for one of them when others have left.
#[test]
fn places_that_others_leave_are_promised_once() {
    let mut world = node_to_be_left();
    for uid in ["one", "two"] {
        world.put(lost(&job(uid, "a", [pods("main", 4, 1, on_one_host())])));
    }
    let decisions = world.engine.decide(1_000);
    let waits = |decision: &&Decision| {
        matches!(decision, Decision::SetUnplaced(told)
            if matches!(*told.reason, PendingReason::WaitingForPreempted { .. }))
    };
    assert_eq!(decisions.iter().filter(waits).count(), 1, "{decisions:?}");
    world.standing("leaves", Standing::Finished);
    world.settle();
    assert_eq!(hosts_of(&world, "one"), ["n2"]);
    assert_eq!(hosts_of(&world, "two"), ["n1"]);
}

/// Nobody knows yet whether it is there: another replica may have written it, or nobody.
#[test]
fn who_seeks_other_places_displaces_nobody_whose_admission_is_on_its_way() {
    let mut world = world(&["n2"], &[("a", 8)]);
    let mut queue = cluster_queue("a", Some("pool"), gpus(&[("f", quota(8, None, None))]));
    queue.preemption.within_cluster_queue = WithinClusterQueue::LowerPriority;
    world.engine.apply(Event::ClusterQueue(queue));
    world.put(job("low", "a", [pods("main", 4, 1, on_one_host())]));
    let mut admission = world.engine.decide(1_000);
    assert!(matches!(admission[..], [Decision::Reserve(_)]), "{admission:?}");
    let mut seeks = Workload { priority: 5, ..job("seeks", "a", [pods("main", 4, 1, on_one_host())]) };
    (seeks.standing, seeks.checks_passed) = (holds(&seeks, "a", None), true);
    world.put(seeks);
    let evicts =
        |decision: &Decision| matches!(decision, Decision::Evict(evict) if evict.victim == "low".into());
    let meanwhile = world.engine.decide(1_000);
    assert!(!meanwhile.iter().any(evicts), "{meanwhile:?}");
    world.carry_out(admission.remove(0));
    assert!(world.engine.decide(1_000).iter().any(evicts));
}

/// What was promised is not used: the queue keeps what is its own.
#[test]
fn nobody_leaves_for_what_another_of_his_queue_was_promised() {
    let queue = |name: &str, nominal: i64| {
        let mut queue = cluster_queue(name, Some("pool"), gpus(&[("a100", quota(nominal, None, None))]));
        queue.preemption.reclaim_within_cohort = ReclaimWithinCohort::Any;
        queue
    };
    let mut world = world_of(Settings::default(), [queue("owner", 4), queue("other", 4), queue("guest", 0)]);
    for (uid, name) in [("runs", "other"), ("leaver", "guest")] {
        world.put(workload(uid, name, 4, 0));
        world.settle();
    }
    world.begins_to_leave("leaver");
    world.put(workload("next", "other", 4, 0));
    world.settle();
    world.put(workload("owned", "owner", 4, 0));
    world.settle();
    assert_eq!(world.victims(), []);
    world.standing("leaver", Standing::Finished);
    world.settle();
    assert_eq!(world.victims(), []);
    assert!(world.is_admitted("runs") && world.is_admitted("owned"));
}

/// Simulation, seed 2828: while somebody waits in another queue of the cohort who would come first.
#[test]
fn who_is_adopted_keeps_what_was_promised_to_it() {
    let in_pool = |name: &str, a100: i64| {
        let queue = queue_of(a100, 0, QueueingStrategy::BestEffortFifo);
        ClusterQueue { name: name.into(), cohort: Some("pool".into()), ..queue }
    };
    let mut world =
        world_of(Settings::default(), [in_pool("cq", 2), in_pool("second", 1), in_pool("third", 0)]);
    for (uid, queue, priority) in
        [("low", "cq", 0), ("lower", "cq", 0), ("taker", "third", 0), ("waits", "second", 9)]
    {
        world.put(workload(uid, queue, 1, priority));
        world.settle();
    }
    assert!(!world.is_admitted("waits"));
    let mut high = workload("high", "cq", 1, 3);
    high.owned = false;
    world.put(high.clone());
    world.settle();
    assert_eq!(world.victims().len(), 1);
    high.owned = true;
    world.put(high);
    world.settle();
    assert_eq!(world.victims().len(), 1, "{:?}", world.victims());
}
