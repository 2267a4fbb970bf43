//! What stands between quota and admission, and what ends an admission by itself.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::sync::Arc;

use quota_engine::input::*;
use quota_engine::*;
use support::*;

fn check(name: &str, controller: CheckController, active: bool) -> Event {
    let (name, uid) = (name.into(), format!("check-{name}").as_str().into());
    Event::AdmissionCheck(AdmissionCheck { name, uid, controller, active })
}

fn rule(name: &str, flavors: &[&str]) -> CheckRule {
    CheckRule { check: name.into(), on_flavors: flavors.iter().map(|flavor| (*flavor).into()).collect() }
}

/// Four GPUs of a100, then four of h100.
fn queue(rules: Vec<CheckRule>) -> ClusterQueue {
    let flavors = [("a100", quota(4, None, None)), ("h100", quota(4, None, None))];
    ClusterQueue { admission_checks: rules, ..cluster_queue("cq", None, gpus(&flavors)) }
}

fn world(rules: Vec<CheckRule>) -> World {
    World::new(events(rules))
}

fn events(rules: Vec<CheckRule>) -> [Event; 4] {
    [
        Event::Flavor(flavor("a100")),
        Event::Flavor(flavor("h100")),
        Event::ClusterQueue(queue(rules)),
        Event::LocalQueue(local_queue("cq")),
    ]
}

fn report(world: &World) -> ClusterQueueReport {
    world.engine.cluster_queue_report(&"cq".into()).unwrap()
}

fn inactive(world: &mut World) -> Option<&'static str> {
    world.settle();
    report(world).inactive.map(|why| why.token())
}

#[test]
fn a_queue_is_active_while_all_its_checks_are() {
    use CheckController::{MultiKueue, Other, ProvisioningRequest};
    let all = |names: &[&str]| names.iter().map(|name| rule(name, &[])).collect::<Vec<_>>();
    for (rules, checks, wanted) in [
        (all(&["a", "b"]), vec![check("a", Other, true)], Some("AdmissionCheckNotFound")),
        (all(&["a"]), vec![check("a", Other, false)], Some("AdmissionCheckInactive")),
        (all(&["a"]), vec![check("a", Other, true)], None),
        (all(&["a"]), vec![check("a", MultiKueue, true)], Some("AdmissionCheckInactive")),
        (
            all(&["a", "b"]),
            vec![check("a", MultiKueue, false), check("b", MultiKueue, true)],
            Some("AdmissionCheckInactive"),
        ),
        (
            all(&["a", "b"]),
            vec![check("a", MultiKueue, true), check("b", MultiKueue, true)],
            Some("MultipleMultiKueueAdmissionChecks"),
        ),
        (
            vec![rule("a", &["a100"])],
            vec![check("a", MultiKueue, true)],
            Some("MultiKueueAdmissionCheckAppliedPerFlavor"),
        ),
        (
            all(&["a", "b"]),
            vec![check("a", MultiKueue, true), check("b", ProvisioningRequest, true)],
            Some("MultiKueueWithProvisioningRequest"),
        ),
    ] {
        let mut world = world(rules.clone());
        checks.into_iter().for_each(|check| world.engine.apply(check));
        assert_eq!(inactive(&mut world), wanted, "{rules:?}");
    }
    let mut world = world(all(&["a"]));
    world.engine.apply(check("a", Other, true));
    assert_eq!(inactive(&mut world), None);
    world.engine.apply(Event::AdmissionCheckGone("a".into(), "another".into()));
    assert_eq!(inactive(&mut world), None, "of another uid");
    world.engine.apply(Event::AdmissionCheckGone("a".into(), "check-a".into()));
    assert_eq!(inactive(&mut world), Some("AdmissionCheckNotFound"));
}

#[test]
fn with_quota_it_is_admitted_when_it_has_passed_the_checks_of_its_flavors() {
    for (rules, passed, admitted) in [
        (vec![rule("a", &[])], vec![], 0),
        (vec![rule("a", &[])], vec!["a"], 1),
        (vec![rule("a", &["h100"])], vec![], 1),
        (vec![rule("a", &["a100"]), rule("b", &[])], vec!["a"], 0),
        (vec![rule("a", &["a100"]), rule("a", &["h100"])], vec![], 1),
    ] {
        let mut world = world(rules.clone());
        for name in ["a", "b"] {
            world.engine.apply(check(name, CheckController::Other, true));
        }
        let mut one = workload("one", "cq", 2, 0);
        one.seldom.passed = passed.into_iter().map(Into::into).collect();
        world.put(one);
        world.settle();
        let report = report(&world);
        assert_eq!((report.reserving, report.admitted), (1, admitted), "{rules:?}");
    }
}

/// A workload with quota that is to leave then.
fn holder(world: &mut World, leave: Option<Leave>) {
    world.put(workload("one", "cq", 2, 0));
    world.settle();
    let mut one = world.workloads[&Uid::from("one")].clone();
    one.seldom.leave = leave;
    world.put(one);
}

#[test]
fn a_workload_leaves_when_its_time_has_come_and_not_before() {
    let mut world = world(Vec::new());
    let reason = EvictReason::PodsReadyTimeout(Unready::SinceStart);
    holder(&mut world, Some(Leave { at_ms: 5_000, reason }));
    world.settle_at(4_999);
    assert!(world.evictions.is_empty());
    assert_eq!(world.engine.next_alarm_ms(), Some(5_000));
    world.settle_at(5_000);
    assert_eq!(world.evictions.iter().map(|one| one.reason).collect::<Vec<_>>(), [reason]);
    assert_eq!(world.engine.next_alarm_ms(), None);
    assert_eq!(report(&world).reserving, 1, "until its pods are gone");
}

/// What is written by it then lies before all that was decided earlier.
#[test]
fn nobody_leaves_early_because_the_clock_was_set_back() {
    let mut world = world(Vec::new());
    world.settle_at(3_600_000);
    let reason = EvictReason::PodsReadyTimeout(Unready::SinceStart);
    world.engine.tell_time(0);
    holder(&mut world, Some(Leave { at_ms: 300_000, reason }));
    world.settle_at(299_999);
    assert!(world.evictions.is_empty());
    assert_eq!(world.engine.next_alarm_ms(), Some(300_000));
    world.settle_at(300_000);
    assert_eq!(world.evictions.len(), 1);
}

#[test]
fn the_answer_to_a_reservation_sets_the_time_by_which_it_has_to_be_ready() {
    let mut world = world(Vec::new());
    world.put(workload("one", "cq", 2, 0));
    world.settle();
    // The object as it was written, told again.
    let mut one = world.workloads[&Uid::from("one")].clone();
    one.seldom.leave =
        Some(Leave { at_ms: 5_000, reason: EvictReason::PodsReadyTimeout(Unready::SinceStart) });
    world.engine.apply(Event::Workload(Box::new(one)));
    assert_eq!(world.engine.next_alarm_ms(), Some(5_000));
    world.settle_at(6_000);
    assert_eq!(world.evictions.len(), 1);
}

#[test]
fn a_check_comes_before_a_drained_queue_and_a_deactivation_before_both() {
    let check = Leave { at_ms: 0, reason: EvictReason::AdmissionCheck };
    let late = Leave { at_ms: 0, reason: EvictReason::PodsReadyTimeout(Unready::SinceFailure) };
    for (leave, active, drained, wanted) in [
        (check, true, true, EvictReason::AdmissionCheck),
        (check, false, true, EvictReason::Deactivated),
        (late, true, true, EvictReason::ClusterQueueStopped),
        (late, true, false, late.reason),
    ] {
        let mut world = world(Vec::new());
        holder(&mut world, None);
        if drained {
            let stop = StopPolicy::HoldAndDrain;
            world.engine.apply(Event::ClusterQueue(ClusterQueue { stop, ..queue(Vec::new()) }));
        }
        let mut one = world.workloads[&Uid::from("one")].clone();
        (one.seldom.leave, one.active) = (Some(leave), active);
        world.put(one);
        world.settle();
        assert_eq!(world.evictions[0].reason, wanted);
    }
}

#[test]
fn one_that_was_put_off_lets_others_pass_and_comes_back_by_itself() {
    let mut world = world(Vec::new());
    let mut late = workload("late", "cq", 4, 9);
    late.seldom.not_before_ms = Some(60_000);
    world.put(late);
    world.put(workload("next", "cq", 4, 0));
    world.settle();
    assert!(world.is_admitted("next") && !world.is_admitted("late"));
    assert_eq!(*world.reason("late"), PendingReason::PutOff { until_ms: 60_000 });
    assert_eq!(report(&world).inadmissible, 1);
    assert_eq!(world.engine.next_alarm_ms(), Some(60_000));
    world.settle_at(60_000);
    assert!(world.is_admitted("late"));
}

/// What happens to its queues, why its quota is taken back, and for what it waits then. To Kueue a queue that is being deleted is missing
/// where quota is taken back, and a ClusterQueue is inactive afterwards.
#[test]
fn a_reservation_that_is_no_admission_yet_ends_with_the_queue() {
    let with = |change: fn(&mut ClusterQueue)| {
        let mut changed = queue(vec![rule("a", &[])]);
        change(&mut changed);
        Event::ClusterQueue(changed)
    };
    let local = |change: fn(&mut LocalQueue)| {
        let mut changed = local_queue("cq");
        change(&mut changed);
        Event::LocalQueue(changed)
    };
    let gone = Event::LocalQueueGone(local_queue("cq").key, local_queue("cq").uid);
    for (event, taken, waits) in [
        (with(|queue| queue.stop = StopPolicy::Hold), "Suspended", "Suspended"),
        (with(|queue| queue.stop = StopPolicy::HoldAndDrain), "Suspended", "Suspended"),
        (with(|queue| queue.terminating = true), "Misconfigured", "Suspended"),
        (local(|queue| queue.stop = StopPolicy::Hold), "Suspended", "Suspended"),
        (local(|queue| queue.terminating = true), "Misconfigured", "Misconfigured"),
        (gone, "Misconfigured", "Misconfigured"),
    ] {
        let mut world = world(vec![rule("a", &[])]);
        world.engine.apply(check("a", CheckController::Other, true));
        world.put(workload("one", "cq", 2, 0));
        world.settle();
        assert_eq!(report(&world).reserving, 1);
        world.engine.apply(event.clone());
        let decisions = world.engine.decide(1_000);
        let [Decision::Withdraw(withdraw)] = &decisions[..] else { panic!("{event:?}: {decisions:?}") };
        assert_eq!(withdraw.reason.token(), taken, "{event:?}");
        decisions.into_iter().for_each(|decision| world.carry_out(decision));
        world.settle();
        assert!(world.evictions.is_empty(), "nothing of it runs");
        assert_eq!(world.reason("one").token(), waits, "{event:?}");
        assert_eq!(report(&world).reserving, 0);
    }
}

/// Whoever gave it the quota: Kueue's `mayUpdateConditionForAdmissionGatedBy`.
#[test]
fn who_is_held_back_keeps_no_quota_unless_it_was_admitted() {
    for admitted in [false, true] {
        let mut world = world(vec![]);
        let mut held = workload("held", "cq", 1, 0);
        held.seldom.gated_by = Some("somebody".into());
        held.standing = Standing::Reserved {
            admission: Arc::new(Admission {
                cluster_queue: "cq".into(),
                pod_sets: vec![PodSetAssignment {
                    name: "main".into(),
                    flavors: [(GPU.into(), "a100".into())].into(),
                    usage: [(GPU.into(), 1)].into(),
                    count: 1,
                    topology: None,
                    delayed: None,
                }],
            }),
            admitted,
            evicted: false,
            since_ms: 0,
        };
        world.put(held);
        world.settle();
        assert_eq!(report(&world).reserving, usize::from(admitted));
        if !admitted {
            assert_eq!(world.reason("held").token(), "AdmissionGated");
        }
    }
}

#[test]
fn where_admission_waits_for_pods_one_comes_after_the_other() {
    let settings = Settings { block_admission: true, ..Settings::default() };
    let mut world = World::with(settings, events(Vec::new()));
    for name in ["one", "two", "three"] {
        world.put(workload(name, "cq", 2, 0));
    }
    world.settle();
    let admitted = |world: &World| -> Vec<String> {
        let names = ["one", "three", "two"].into_iter().filter(|name| world.is_admitted(name));
        names.map(str::to_owned).collect()
    };
    assert_eq!(admitted(&world), ["one"]);
    assert_eq!(*world.reason("two"), PendingReason::PodsNotReady);
    let ready = |world: &mut World, name: &str| {
        let mut one = world.workloads[&Uid::from(name)].clone();
        one.pods_ready = true;
        world.put(one);
        world.settle();
    };
    ready(&mut world, "one");
    assert_eq!(admitted(&world), ["one", "three"]);
    ready(&mut world, "three");
    assert_eq!(admitted(&world).len(), 3);
}

#[test]
fn a_promise_is_kept_when_the_pods_of_others_are_ready() {
    let settings = Settings { block_admission: true, ..Settings::default() };
    let mut world = World::with(settings, events(Vec::new()));
    let mut spec = queue(Vec::new());
    spec.preemption.within_cluster_queue = WithinClusterQueue::LowerPriority;
    world.engine.apply(Event::ClusterQueue(spec));
    for (name, count) in [("low", 4), ("ready", 4)] {
        let mut one = workload(name, "cq", count, 0);
        one.pods_ready = name == "ready";
        world.put(one);
        world.settle();
        if name == "low" {
            let mut one = world.workloads[&Uid::from(name)].clone();
            one.pods_ready = true;
            world.put(one);
        }
    }
    world.put(workload("high", "cq", 4, 9));
    world.settle();
    let victim = world.evictions[0].victim.clone();
    let other = if victim.to_string() == "low" { "ready" } else { "low" };
    let mut one = world.workloads[&Uid::from(other)].clone();
    one.pods_ready = false;
    world.put(one.clone());
    world.standing(&victim.to_string(), Standing::Pending);
    world.settle();
    assert!(!world.is_admitted("high"));
    one.pods_ready = true;
    world.put(one);
    world.settle();
    assert!(world.is_admitted("high"));
}
