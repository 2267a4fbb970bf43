//! What the engine does in small, named situations.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::collections::BTreeSet;

use model::node::{Taint, TaintEffect};
use quota_engine::input::*;
use quota_engine::*;
use support::*;

fn one_queue(nominal: i64) -> World {
    World::new([
        Event::Flavor(flavor("a100")),
        Event::ClusterQueue(cluster_queue("cq", None, gpus(&[("a100", quota(nominal, None, None))]))),
        Event::LocalQueue(local_queue("cq")),
    ])
}

/// team-a: 8 nominal, borrows up to 4. lender: 8 nominal, takes back from anybody.
fn pool() -> World {
    let mut lender = cluster_queue("lender", Some("pool"), gpus(&[("a100", quota(8, None, None))]));
    lender.preemption.reclaim_within_cohort = ReclaimWithinCohort::Any;
    World::new([
        Event::Flavor(flavor("a100")),
        Event::ClusterQueue(cluster_queue(
            "team-a",
            Some("pool"),
            gpus(&[("a100", quota(8, Some(4), None))]),
        )),
        Event::ClusterQueue(lender),
        Event::LocalQueue(local_queue("team-a")),
        Event::LocalQueue(local_queue("lender")),
    ])
}

#[test]
fn admits_what_fits_and_says_what_is_missing() {
    let mut world = one_queue(8);
    world.put(workload("first", "cq", 6, 0));
    world.settle();
    assert!(world.is_admitted("first"));
    world.put(workload("second", "cq", 4, 0));
    world.settle();
    assert_eq!(world.reason("second").token(), "WaitingForQuota");
    let PendingReason::NoFit(pod_sets) = world.reason("second") else { panic!() };
    assert_eq!(
        pod_sets[0].obstacles,
        [Obstacle::Insufficient { flavor: "a100".into(), resource: GPU.into(), missing: 2 }]
    );
    world.standing("first", Standing::Finished);
    world.settle();
    assert!(world.is_admitted("second"));
}

#[test]
fn reasons_of_those_who_cannot_be_admitted() {
    let mut world = one_queue(8);
    world.put(workload("too-big", "cq", 9, 0));
    world.put(workload("no-such-queue", "elsewhere", 1, 0));
    let mut memory = workload("not-covered", "cq", 1, 0);
    pod_set(&mut memory).requests.insert("memory".into(), 1);
    world.put(memory);
    let mut elsewhere = workload("other-nodes", "cq", 1, 0);
    pod_set(&mut elsewhere).node_selector.insert("gpu-type".into(), "h100".into());
    world.put(elsewhere);
    let mut wrong = workload("wrong", "cq", 1, 0);
    wrong.seldom.defect = Some("pod set main asks for -1".into());
    world.put(wrong);
    let mut off = workload("off", "cq", 1, 0);
    off.active = false;
    world.put(off);
    let mut nowhere = workload("no-queue", "cq", 1, 0);
    nowhere.queue = None;
    world.put(nowhere);
    world.settle();
    for (uid, token) in [
        ("too-big", "ExceedsMaxQuota"),
        ("no-such-queue", "Misconfigured"),
        ("not-covered", "NoMatchingFlavor"),
        ("other-nodes", "NoMatchingFlavor"),
        ("wrong", "Misconfigured"),
        ("off", "Deactivated"),
        ("no-queue", "Misconfigured"),
    ] {
        assert_eq!(world.reason(uid).token(), token, "{uid}: {:?}", world.reason(uid));
    }
}

#[test]
fn priority_then_age_decides_who_is_first() {
    let mut world = one_queue(2);
    for (uid, priority, queued_at_ms) in [("old", 0, 1), ("young", 0, 2), ("urgent", 5, 3)] {
        let mut one = workload(uid, "cq", 1, priority);
        one.queued_at_ms = queued_at_ms;
        world.put(one);
    }
    world.settle();
    assert_eq!(world.admissions, ["urgent", "old"].map(Uid::from));
}

#[test]
fn a_strict_queue_is_blocked_by_its_head_and_a_best_effort_queue_is_not() {
    for (strategy, small_runs) in
        [(QueueingStrategy::StrictFifo, false), (QueueingStrategy::BestEffortFifo, true)]
    {
        let mut world = one_queue(4);
        let mut queue = cluster_queue("cq", None, gpus(&[("a100", quota(4, None, None))]));
        queue.strategy = strategy;
        world.engine.apply(Event::ClusterQueue(queue));
        world.put(workload("running", "cq", 2, 9));
        world.settle();
        world.put(workload("big", "cq", 4, 1));
        world.put(workload("small", "cq", 1, 0));
        world.settle();
        assert!(!world.is_admitted("big"));
        assert_eq!(world.is_admitted("small"), small_runs, "{strategy:?}");
        if !small_runs {
            assert_eq!(world.reason("small").token(), "PendingEvaluation");
        }
        world.standing("running", Standing::Finished);
        world.settle();
        assert_eq!(world.is_admitted("big"), !small_runs, "{strategy:?}");
    }
}

/// A StrictFIFO queue that cannot reclaim what was borrowed from it keeps back what is left for its head.
#[test]
fn what_is_kept_for_a_strict_head_blocks_only_those_who_ask_for_it() {
    let flavors = [("a100", quota(8, None, None)), ("h100", quota(8, None, None))];
    let mut strict = cluster_queue("strict", Some("pool"), gpus(&flavors));
    strict.strategy = QueueingStrategy::StrictFifo;
    let mut world = World::new([
        Event::Flavor(flavor("a100")),
        Event::Flavor(flavor("h100")),
        Event::ClusterQueue(strict),
        Event::ClusterQueue(cluster_queue("other", Some("pool"), gpus(&flavors))),
        Event::LocalQueue(local_queue("strict")),
        Event::LocalQueue(local_queue("other")),
    ]);
    let of = |uid, queue, count, priority, gpu_type: &str| {
        let mut workload = workload(uid, queue, count, priority);
        pod_set(&mut workload).node_selector.insert("gpu-type".into(), gpu_type.into());
        workload
    };
    world.put(of("borrower", "other", 12, 0, "a100"));
    world.settle();
    world.put(of("head", "strict", 8, 9, "a100"));
    world.settle();
    world.put(of("held back", "other", 2, 1, "a100"));
    world.put(of("unaffected", "other", 2, 0, "h100"));
    world.settle();
    assert!(!world.is_admitted("head") && !world.is_admitted("held back"));
    assert!(world.is_admitted("unaffected"));
    world.engine.apply(Event::WorkloadGone("head".into()));
    world.settle();
    assert!(world.is_admitted("held back"));
}

/// There seems to be room for it, but that is kept for the head of another queue: Kueue finds so for ever, while one that it has
/// a right to preempt runs in its own queue.
#[test]
fn who_may_not_have_what_is_kept_for_others_preempts_in_its_own_queue() {
    let flavors = [("a100", quota(8, None, None))];
    let mut strict = cluster_queue("strict", Some("pool"), gpus(&flavors));
    strict.strategy = QueueingStrategy::StrictFifo;
    let mut other = cluster_queue("other", Some("pool"), gpus(&flavors));
    other.preemption.within_cluster_queue = WithinClusterQueue::LowerPriority;
    let mut world = World::new([
        Event::Flavor(flavor("a100")),
        Event::ClusterQueue(strict),
        Event::ClusterQueue(other),
        Event::LocalQueue(local_queue("strict")),
        Event::LocalQueue(local_queue("other")),
    ]);
    world.put(workload("small", "other", 2, 0));
    world.put(workload("middling", "other", 3, 1));
    world.put(workload("large", "other", 7, 2));
    world.settle();
    world.put(workload("head", "strict", 8, 0));
    world.settle();
    assert!(world.is_admitted("large") && !world.is_admitted("head"), "4 of its 8 are lent");
    world.put(workload("equal", "other", 2, 0));
    world.settle();
    assert!(!world.is_admitted("equal"), "it has a right to nobody's place");
    world.put(workload("urgent", "other", 2, 9));
    world.settle();
    assert_eq!(world.leaving(), ["small"].map(Uid::from));
    world.standing("small", Standing::Pending);
    world.settle();
    assert!(world.is_admitted("urgent") && !world.is_admitted("small") && !world.is_admitted("head"));
    world.standing("large", Standing::Finished);
    world.settle();
    assert!(world.is_admitted("head"), "what was kept for it was given to nobody");
}

/// Told as head what it lacks, or that its queue was not there: once it waits behind others, that is what it is told.
#[test]
fn who_waits_behind_the_head_of_a_strict_queue_is_told_so() {
    let mut queue = cluster_queue("cq", None, gpus(&[("a100", quota(4, None, None))]));
    queue.strategy = QueueingStrategy::StrictFifo;
    let mut world = World::new([Event::Flavor(flavor("a100")), Event::ClusterQueue(queue)]);
    world.put(workload("first", "cq", 3, 0));
    world.settle();
    assert_eq!(world.reason("first").token(), "Misconfigured");
    world.engine.apply(Event::LocalQueue(local_queue("cq")));
    world.settle();
    world.put(workload("head", "cq", 4, 1));
    world.put(workload("behind", "cq", 1, 0));
    world.settle();
    assert!(world.is_admitted("first"));
    assert_eq!(world.reason("head").token(), "WaitingForQuota");
    assert_eq!(world.reason("behind").token(), "PendingEvaluation");
    world.put(workload("urgent", "cq", 2, 9));
    world.settle();
    assert_eq!(world.reason("urgent").token(), "WaitingForQuota");
    assert_eq!(world.reason("head").token(), "PendingEvaluation");

    world.engine.apply(Event::LocalQueueGone(LocalQueueKey::new("ns", "cq"), "lq-cq".into()));
    world.settle();
    assert_eq!(world.reason("behind").token(), "Misconfigured");
    world.engine.apply(Event::LocalQueue(local_queue("cq")));
    world.settle();
    assert_eq!(world.reason("behind").token(), "PendingEvaluation");
}

#[test]
fn room_promised_to_a_workload_that_lost_its_priority_goes_to_its_better() {
    let mut queue = cluster_queue("cq", None, gpus(&[("a100", quota(4, None, None))]));
    queue.preemption.within_cluster_queue = WithinClusterQueue::LowerPriority;
    let mut world = World::new([
        Event::Flavor(flavor("a100")),
        Event::ClusterQueue(queue),
        Event::LocalQueue(local_queue("cq")),
    ]);
    world.put(workload("victim", "cq", 4, 0));
    world.settle();
    world.put(workload("preemptor", "cq", 4, 100));
    world.settle();
    world.put(workload("preemptor", "cq", 4, -5));
    world.settle();
    world.standing("victim", Standing::Pending);
    world.settle();
    assert!(!world.is_admitted("preemptor"), "its better has to wait");
    world.standing("preemptor", Standing::Pending);
    world.settle();
    assert!(world.is_admitted("victim"));
}

/// The API tells of whole seconds. Who came last is preempted first, also among those of one second.
#[test]
fn of_two_admitted_within_a_second_the_later_is_preempted() {
    for names in [["z", "a"], ["a", "z"]] {
        let mut queue = cluster_queue("cq", None, gpus(&[("a100", quota(4, None, None))]));
        queue.preemption.within_cluster_queue = WithinClusterQueue::LowerPriority;
        let mut world = World::new([
            Event::Flavor(flavor("a100")),
            Event::ClusterQueue(queue),
            Event::LocalQueue(local_queue("cq")),
        ]);
        for (name, now_ms) in names.into_iter().zip([1_200, 1_700]) {
            world.put(workload(name, "cq", 2, 0));
            for decision in world.engine.decide(now_ms) {
                world.carry_out(decision);
            }
            let Standing::Reserved { admission, .. } = world.workloads[&Uid::from(name)].standing.clone()
            else {
                panic!("{name} is not admitted")
            };
            world.standing(
                name,
                Standing::Reserved { admission, admitted: true, evicted: false, since_ms: 1_000 },
            );
        }
        world.put(workload("urgent", "cq", 2, 9));
        world.settle();
        assert_eq!(world.victims(), [(names[1], "InClusterQueue")]);
    }
}

#[test]
fn borrows_up_to_its_limit() {
    let mut world = pool();
    for (uid, count) in [("own", 8), ("borrowed", 4), ("beyond", 1)] {
        world.put(workload(uid, "team-a", count, 0));
        world.settle();
    }
    assert!(world.is_admitted("own") && world.is_admitted("borrowed"));
    assert_eq!(world.reason("beyond").token(), "WaitingForQuota");
    let report = world.engine.cluster_queue_report(&"team-a".into()).unwrap();
    assert_eq!((report.reserving, report.admitted, report.pending), (2, 2, 1));
    assert_eq!((report.reservation[0].total, report.reservation[0].borrowed), (12, 4));
}

#[test]
fn a_lender_takes_back_and_waits_until_the_victim_has_left() {
    let mut world = pool();
    world.put(workload("own", "team-a", 8, 0));
    world.settle();
    world.put(workload("borrowed", "team-a", 4, 0));
    world.settle();
    world.put(workload("reclaim", "lender", 8, 0));
    world.settle();
    assert_eq!(world.evictions.len(), 1);
    let victim = world.evictions[0].clone();
    assert_eq!(victim.reason, EvictReason::Preempted(PreemptionReason::InCohortReclamation));
    assert_eq!(victim.preemptor_path, "/pool/lender");
    assert_eq!(victim.victim_path, "/pool/team-a");
    assert_eq!(world.reason("reclaim"), &PendingReason::WaitingForPreempted { victims: 1 });
    // While the victim leaves, nobody overtakes the promise.
    world.put(workload("late", "lender", 4, 100));
    world.settle();
    assert!(!world.is_admitted("late") && !world.is_admitted("reclaim"));
    world.standing(&victim.victim.to_string(), Standing::Pending);
    world.settle();
    assert!(world.is_admitted("reclaim"));
    assert_eq!(world.evictions.len(), 1, "the victim does not strike back");
}

#[test]
fn preempts_as_few_as_it_can_within_its_queue() {
    let mut world = one_queue(8);
    let mut queue = cluster_queue("cq", None, gpus(&[("a100", quota(8, None, None))]));
    queue.preemption.within_cluster_queue = WithinClusterQueue::LowerPriority;
    world.engine.apply(Event::ClusterQueue(queue));
    for (uid, count, priority) in [("a", 1, 1), ("b", 2, 2), ("c", 4, 3), ("peer", 1, 9)] {
        world.put(workload(uid, "cq", count, priority));
    }
    world.settle();
    world.put(workload("urgent", "cq", 5, 9));
    world.settle();
    // Taken in the order a, b, c; then b can be spared, as c and a make five.
    assert_eq!(world.victims(), [("a", "InClusterQueue"), ("c", "InClusterQueue")]);
}

#[test]
fn what_is_assumed_is_counted_and_is_no_victim() {
    let mut world = one_queue(4);
    let mut queue = cluster_queue("cq", None, gpus(&[("a100", quota(4, None, None))]));
    queue.preemption.within_cluster_queue = WithinClusterQueue::LowerPriority;
    world.engine.apply(Event::ClusterQueue(queue));
    world.put(workload("low", "cq", 4, 0));
    let decisions = world.engine.decide(0);
    assert!(matches!(decisions[..], [Decision::Reserve(_)]));
    world.put(workload("high", "cq", 4, 9));
    assert_eq!(world.engine.decide(0), [], "not written yet: no victim");
    for decision in decisions {
        world.carry_out(decision);
    }
    world.settle();
    assert_eq!(world.victims(), [("low", "InClusterQueue")], "written: a victim like any other");
}

#[test]
fn nobody_else_leaves_in_place_of_one_whose_admission_is_still_being_written() {
    let mut world = one_queue(4);
    let mut queue = cluster_queue("cq", None, gpus(&[("a100", quota(4, None, None))]));
    queue.preemption.within_cluster_queue = WithinClusterQueue::LowerPriority;
    world.engine.apply(Event::ClusterQueue(queue));
    world.put(workload("middle", "cq", 2, 5));
    world.settle();
    world.put(workload("low", "cq", 2, 0));
    let decisions = world.engine.decide(0);
    world.put(workload("high", "cq", 2, 9));
    assert_eq!(world.engine.decide(0), []);
    for decision in decisions {
        world.carry_out(decision);
    }
    world.settle();
    assert_eq!(world.victims(), [("low", "InClusterQueue")]);
}

#[test]
fn of_the_cycles_of_one_call_only_the_outcome_is_told() {
    let queue = |name: &str, nominal| {
        let mut queue = cluster_queue(name, Some("pool"), gpus(&[("a100", quota(nominal, None, None))]));
        queue.preemption.reclaim_within_cohort = ReclaimWithinCohort::Any;
        [Event::ClusterQueue(queue), Event::LocalQueue(local_queue(name))]
    };
    let events =
        [Event::Flavor(flavor("a100"))].into_iter().chain(queue("owner", 4)).chain(queue("guest", 0));
    let mut world = World::new(events);
    for number in 0..4 {
        world.put(workload(&format!("own-{number}"), "owner", 1, 0));
        world.put(workload(&format!("lent-{number}"), "guest", 1, 0));
    }
    // Two cycles give each queue two places; in the third and fourth the owner takes back what is its own.
    let decisions = world.engine.decide(0);
    let reserved: Vec<String> = decisions
        .iter()
        .filter_map(|decision| match decision {
            Decision::Reserve(reserve) => Some(reserve.workload.to_string()),
            _ => None,
        })
        .collect();
    assert_eq!(reserved, ["own-0", "own-1", "own-2", "own-3"]);
    assert!(!decisions.iter().any(|decision| matches!(decision, Decision::Evict(_))));
    world.engine.audit().unwrap();
}

#[test]
fn a_reservation_that_was_not_written_is_undone_and_one_that_was_refused_is_explained() {
    let mut world = one_queue(4);
    world.put(workload("one", "cq", 4, 0));
    for outcome in [Outcome::NotWritten, Outcome::Refused("no".into())] {
        let Decision::Reserve(reserve) = world.engine.decide(0).remove(0) else { panic!() };
        world.engine.written(reserve.id, outcome);
        world.engine.audit().unwrap();
    }
    world.settle();
    assert_eq!(world.reason("one"), &PendingReason::AdmissionRefused("no".into()));
    world.put(workload("two", "cq", 4, 0));
    world.settle();
    assert!(world.is_admitted("two"));
}

#[test]
fn an_unsettled_reservation_holds_until_the_object_is_seen_again() {
    let mut world = one_queue(4);
    world.put(workload("one", "cq", 4, 0));
    let Decision::Reserve(reserve) = world.engine.decide(0).remove(0) else { panic!() };
    world.engine.written(reserve.id, Outcome::Unsettled);
    world.put(workload("two", "cq", 4, 0));
    world.settle();
    assert!(!world.is_admitted("two"));
    // It turns out that it was never written, and was changed to ask for less.
    world.put(workload("one", "cq", 1, -1));
    world.settle();
    assert!(world.is_admitted("two"));
}

#[test]
fn an_event_older_than_what_is_known_is_ignored() {
    let mut world = one_queue(4);
    world.put(workload("one", "cq", 4, 0));
    let stale = world.workloads[&Uid::from("one")].clone();
    world.settle();
    world.engine.apply(Event::Workload(Box::new(stale)));
    world.put(workload("two", "cq", 1, 0));
    world.settle();
    assert!(!world.is_admitted("two"));
}

#[test]
fn a_restarted_engine_counts_what_others_reserved() {
    let mut first = one_queue(4);
    first.put(workload("one", "cq", 3, 0));
    first.settle();
    let mut second = one_queue(4);
    second.put(first.workloads[&Uid::from("one")].clone());
    second.put(workload("two", "cq", 2, 0));
    second.settle();
    assert!(!second.is_admitted("two"));
    assert!(second.admissions.is_empty());
}

#[test]
fn draining_and_deactivating_evict() {
    let mut world = one_queue(4);
    world.put(workload("one", "cq", 1, 0));
    world.put(workload("two", "cq", 1, 0));
    world.settle();
    let mut off = world.workloads[&Uid::from("one")].clone();
    off.active = false;
    world.put(off);
    world.settle();
    assert_eq!(world.victims(), [("one", "Deactivated")]);
    let mut queue = cluster_queue("cq", None, gpus(&[("a100", quota(4, None, None))]));
    queue.stop = StopPolicy::HoldAndDrain;
    world.engine.apply(Event::ClusterQueue(queue));
    world.settle();
    assert_eq!(world.victims(), [("one", "Deactivated"), ("two", "ClusterQueueStopped")]);
    world.standing("two", Standing::Pending);
    world.settle();
    assert_eq!(world.reason("two").token(), "Suspended");
}

#[test]
fn a_queue_that_cannot_be_honoured_admits_nothing_and_says_why() {
    let base = || cluster_queue("cq", Some("a"), gpus(&[("a100", quota(4, None, None))]));
    let cohort = |name: &str, parent: &str| Cohort {
        name: name.into(),
        uid: name.into(),
        parent: Some(parent.into()),
        groups: Vec::new(),
        weight: Weight::default(),
    };
    let mut missing = base();
    missing.groups = gpus(&[("h100", quota(4, None, None))]);
    let mut checks = base();
    checks.admission_checks = vec![CheckRule { check: "provisioning".into(), on_flavors: BTreeSet::new() }];
    let mut stopped = base();
    stopped.stop = StopPolicy::Hold;
    let mut defective = base();
    defective.defects = vec!["its policy is not supported".to_owned()];
    for (queue, cohorts, token) in [
        (defective, vec![], "Misconfigured"),
        (missing, vec![], "FlavorNotFound"),
        (checks, vec![], "AdmissionCheckNotFound"),
        (stopped, vec![], "Stopped"),
        (base(), vec![cohort("a", "b"), cohort("b", "a")], "CohortCycle"),
    ] {
        let mut world = one_queue(4);
        world.engine.apply(Event::ClusterQueue(queue));
        for cohort in cohorts {
            world.engine.apply(Event::Cohort(cohort));
        }
        world.put(workload("one", "cq", 1, 0));
        world.settle();
        assert!(!world.is_admitted("one"));
        let report = world.engine.cluster_queue_report(&"cq".into()).unwrap();
        assert_eq!(report.inactive.map(|inactive| inactive.token()), Some(token));
        // Going back heals it.
        world.engine.apply(Event::CohortGone("a".into(), "a".into()));
        world.engine.apply(Event::ClusterQueue(base()));
        world.settle();
        assert!(world.is_admitted("one"), "{token}");
    }
}

#[test]
fn the_next_flavor_is_tried_when_the_first_does_not_suit() {
    let mut spot = flavor("spot");
    spot.taints = vec![Taint { key: "spot".into(), value: "true".into(), effect: TaintEffect::NoSchedule }];
    let flavors =
        [("spot", quota(8, None, None)), ("a100", quota(2, None, None)), ("h100", quota(8, None, None))];
    let mut world = World::new([
        Event::Flavor(spot),
        Event::Flavor(flavor("a100")),
        Event::Flavor(flavor("h100")),
        Event::ClusterQueue(cluster_queue("cq", None, gpus(&flavors))),
        Event::LocalQueue(local_queue("cq")),
    ]);
    world.put(workload("one", "cq", 4, 0));
    world.settle();
    let Standing::Reserved { admission, .. } = &world.workloads[&Uid::from("one")].standing else { panic!() };
    assert_eq!(admission.pod_sets[0].flavors[GPU], "h100".into());
    assert_eq!(admission.pod_sets[0].usage[GPU], 4);
}

#[test]
fn pod_sets_of_no_pods_and_of_no_requests_come_to_rest() {
    let mut world = one_queue(1);
    world.put(workload("none", "cq", 0, 0));
    let mut idle = workload("idle", "cq", 3, 0);
    pod_set(&mut idle).requests.clear();
    world.put(idle);
    world.put(workload("huge", "cq", i64::MAX, 0));
    world.settle();
    assert!(world.is_admitted("none") && world.is_admitted("idle"));
    assert_eq!(world.reason("huge").token(), "ExceedsMaxQuota");
}

#[test]
fn a_deleted_queue_of_the_same_name_is_another_queue() {
    let mut world = one_queue(4);
    let mut successor = cluster_queue("cq", None, gpus(&[("a100", quota(4, None, None))]));
    successor.uid = "second".into();
    world.engine.apply(Event::ClusterQueue(successor));
    world.engine.apply(Event::ClusterQueueGone("cq".into(), "cq".into()));
    world.put(workload("one", "cq", 1, 0));
    world.settle();
    assert!(world.is_admitted("one"));
}

#[test]
fn who_does_not_want_quota_waits_in_no_queue_and_nobody_waits_in_a_stopped_one() {
    let mut world = one_queue(1);
    world.put(workload("large", "cq", 2, 0));
    let mut deactivated = workload("deactivated", "cq", 1, 0);
    deactivated.active = false;
    world.put(deactivated);
    let mut held = workload("held", "cq", 2, 0);
    held.standing = Standing::OnHold;
    world.put(held);
    let mut gated = workload("gated", "cq", 1, 0);
    gated.seldom.gated_by = Some("somebody".into());
    world.put(gated);
    let mut lacking = workload("lacking", "cq", 1, 0);
    lacking.seldom.kept_out = Some(KeptOut::ReplacementPods);
    world.put(lacking.clone());
    // A wrong number in it does not put it back.
    let mut wrong = Workload { uid: "wrong".into(), name: "wrong".into(), ..lacking };
    wrong.seldom.defect = Some("x".into());
    world.put(wrong);
    world.settle();
    let pending = |world: &World| {
        let key = LocalQueueKey::new("ns", "cq");
        let in_local_queue = world.engine.local_queue_report(&key).unwrap().pending;
        (in_local_queue, world.engine.cluster_queue_report(&"cq".into()).unwrap().pending)
    };
    assert_eq!(pending(&world), (1, 1));
    world.engine.apply(Event::LocalQueue(LocalQueue { stop: StopPolicy::Hold, ..local_queue("cq") }));
    world.settle();
    assert_eq!(pending(&world), (0, 0));
    world.engine.apply(Event::LocalQueue(local_queue("cq")));
    world.engine.apply(Event::ClusterQueueGone("cq".into(), "cq".into()));
    world.settle();
    let key = LocalQueueKey::new("ns", "cq");
    assert_eq!(world.engine.local_queue_report(&key).unwrap().pending, 1, "it waits for a ClusterQueue");
}

/// A LocalQueue has the rows of its ClusterQueue, which are those of its spec, be anything used of them or not.
#[test]
fn use_is_told_of_every_quota_in_the_order_of_the_spec() {
    let spec = |flavors: &[&str]| {
        let quotas: Vec<_> = flavors.iter().map(|name| (*name, quota(4, None, None))).collect();
        Event::ClusterQueue(cluster_queue("cq", None, gpus(&quotas)))
    };
    let flavors = ["h100", "a100", "l4"].map(|name| Event::Flavor(flavor(name)));
    let mut world = World::new(flavors);
    world.engine.apply(spec(&["h100", "a100"]));
    world.engine.apply(Event::LocalQueue(local_queue("cq")));
    world.put(workload("one", "cq", 3, 0));
    world.settle();
    let key = LocalQueueKey::new("ns", "cq");
    let told = |world: &World| {
        let report = world.engine.local_queue_report(&key).unwrap();
        let of_queue = world.engine.cluster_queue_report(&"cq".into()).map(|queue| queue.usage);
        assert_eq!(of_queue.unwrap_or_default(), report.usage, "nothing is borrowed");
        let rows = report.reservation.iter().map(|row| (row.flavor.as_str().to_owned(), row.total));
        rows.collect::<Vec<_>>()
    };
    let rows = |rows: &[(&str, i64)]| -> Vec<(String, i64)> {
        rows.iter().map(|(flavor, total)| ((*flavor).to_owned(), *total)).collect()
    };
    assert_eq!(told(&world), rows(&[("h100", 3), ("a100", 0)]));
    world.engine.take_touched();
    world.engine.apply(spec(&["l4", "h100"]));
    world.settle();
    assert_eq!(world.engine.take_touched().1, std::slice::from_ref(&key));
    assert_eq!(told(&world), rows(&[("l4", 0), ("h100", 3)]));
    world.engine.apply(Event::ClusterQueueGone("cq".into(), "cq".into()));
    world.settle();
    assert_eq!(told(&world), rows(&[]));
    let report = world.engine.local_queue_report(&key).unwrap();
    assert_eq!((report.reserving, report.admitted), (0, 0), "of no quota");
}
