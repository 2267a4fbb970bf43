//! What one scheduling cycle does, and what it leaves for the next.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use model::ResourceName;
use quota_engine::input::*;
use quota_engine::*;
use support::*;

fn queue(name: &str, cohort: &str, nominal: i64, preemption: Preemption) -> Vec<Event> {
    let mut queue = cluster_queue(name, Some(cohort), gpus(&[("a100", quota(nominal, None, None))]));
    queue.preemption = preemption;
    vec![Event::ClusterQueue(queue), Event::LocalQueue(local_queue(name))]
}

fn world(settings: Settings, queues: Vec<Vec<Event>>) -> World {
    World::with(settings, std::iter::once(Event::Flavor(flavor("a100"))).chain(queues.into_iter().flatten()))
}

fn reclaims() -> Preemption {
    Preemption { reclaim_within_cohort: ReclaimWithinCohort::Any, ..Preemption::default() }
}

fn token<'a>(world: &'a World, uid: &str) -> &'a str {
    world.reason(uid).token()
}

fn waiting(world: &World, queue: &str) -> (Vec<String>, Vec<String>) {
    let names = |uids: Vec<Uid>| uids.iter().map(|uid| uid.to_string()).collect();
    let (active, inadmissible) = world.engine.waiting_in(&queue.into());
    (names(active), names(inadmissible))
}

#[test]
fn a_cycle_has_one_head_of_each_queue_and_who_is_outrun_stays_first() {
    let none = Preemption::default;
    let mut world =
        world(Settings::default(), vec![queue("a", "pool", 4, none()), queue("b", "pool", 4, none())]);
    for (uid, queue, count, priority) in [("a1", "a", 8, 1), ("a2", "a", 1, 0), ("b1", "b", 6, 0)] {
        world.put(workload(uid, queue, count, priority));
    }
    world.cycle();
    assert!(world.is_admitted("a1") && !world.is_admitted("a2"));
    assert_eq!(waiting(&world, "b"), (vec!["b1".to_owned()], vec![]));
    assert_eq!((world.reason("b1"), token(&world, "b1")), (&PendingReason::NoLongerFits, "WaitingForQuota"));
    world.cycle();
    assert_eq!(waiting(&world, "b"), (vec![], vec!["b1".to_owned()]));
}

#[test]
fn fewer_pods_are_admitted_where_their_workload_allows_it() {
    for (allowed, counts) in [(true, Some((7, 4))), (false, None)] {
        let settings = Settings { partial_admission: allowed, ..Settings::default() };
        let mut world = world(settings, vec![queue("a", "pool", 11, Preemption::default())]);
        let mut one = workload("one", "a", 10, 0);
        pod_set(&mut one).min_count = Some(5);
        let more = PodSet { name: "more".into(), count: 6, min_count: Some(2), ..one.pod_sets[0].clone() };
        add_pod_set(&mut one, more);
        world.put(one);
        world.cycle();
        let given = match &world.workloads[&Uid::from("one")].standing {
            Standing::Reserved { admission, .. } => {
                let of = |set: &PodSetAssignment| (set.count, set.usage[GPU]);
                let (first, second) = (of(&admission.pod_sets[0]), of(&admission.pod_sets[1]));
                assert_eq!((first.0, second.0), (first.1, second.1), "what is used is what the pods use");
                Some((first.0, second.0))
            }
            _ => None,
        };
        assert_eq!(given, counts, "{allowed}");
    }
}

#[test]
fn a_closed_gate_forbids_to_preempt_and_nothing_else() {
    for (gates, gated, gone) in [(true, true, false), (true, false, true), (false, true, true)] {
        let settings = Settings { preemption_gates: gates, ..Settings::default() };
        let within =
            Preemption { within_cluster_queue: WithinClusterQueue::LowerPriority, ..Preemption::default() };
        let mut world = world(settings, vec![queue("a", "pool", 4, within)]);
        world.put(workload("low", "a", 4, 0));
        world.settle();
        let mut high = workload("high", "a", 4, 1);
        high.preemption_gated = gated;
        world.put(high.clone());
        world.settle();
        assert_eq!(!world.victims().is_empty(), gone, "gates {gates}, gated {gated}");
        if !gone {
            assert_eq!(token(&world, "high"), "AdmissionGated");
            assert_eq!(waiting(&world, "a"), (vec![], vec!["high".to_owned()]));
            let mut like = high.clone();
            (like.uid, like.queued_at_ms, like.preemption_gated) = ("like".into(), 1, false);
            world.put(like);
            world.settle();
            assert_eq!(world.victims().len(), 1, "one without a gate does not stand behind it");
            world.standing("like", Standing::Finished);
            high.preemption_gated = false;
            world.put(high);
            world.settle();
            assert_eq!(token(&world, "high"), "WaitingForPreemptedWorkloads", "the gate has opened");
        }
    }
}

#[test]
fn a_closed_gate_forbids_to_be_promised_the_room_of_those_who_leave_already() {
    let settings = Settings { preemption_gates: true, ..Settings::default() };
    let within =
        Preemption { within_cluster_queue: WithinClusterQueue::LowerPriority, ..Preemption::default() };
    let mut world = world(settings, vec![queue("a", "pool", 4, within)]);
    world.put(workload("low", "a", 4, 0));
    world.settle();
    world.begins_to_leave("low");
    let mut high = workload("high", "a", 4, 1);
    high.preemption_gated = true;
    world.put(high);
    world.settle();
    assert_eq!(token(&world, "high"), "AdmissionGated");
    world.standing("low", Standing::Finished);
    world.settle();
    assert!(world.is_admitted("high"), "it takes what is free");
}

/// Nobody leaves for it: it takes what comes free, and is not told to wait for its gate.
#[test]
fn a_closed_gate_is_in_nobodys_way_who_preempts_nobody() {
    let settings = Settings { preemption_gates: true, ..Settings::default() };
    let mut world = world(settings, vec![queue("a", "pool", 4, Preemption::default())]);
    world.put(workload("low", "a", 4, 0));
    world.settle();
    world.begins_to_leave("low");
    world.put(Workload { preemption_gated: true, ..workload("high", "a", 4, 1) });
    world.settle();
    assert_eq!(token(&world, "high"), "WaitingForPreemptedWorkloads");
    world.standing("low", Standing::Finished);
    world.settle();
    assert!(world.is_admitted("high"));
}

/// Two queues are owed what a third has borrowed, and what leaves for the first is enough for both.
#[test]
fn a_closed_gate_is_in_nobodys_way_for_whom_others_drive_out_enough() {
    let queues = vec![
        queue("a", "pool", 2, reclaims()),
        queue("b", "pool", 2, reclaims()),
        queue("c", "pool", 0, Preemption::default()),
    ];
    let settings = Settings { preemption_gates: true, ..Settings::default() };
    let mut world = world(settings, queues);
    world.put(workload("borrows", "c", 4, 0));
    world.settle();
    world.put(Workload { queued_at_ms: 1, ..workload("first", "a", 2, 0) });
    world.put(Workload { queued_at_ms: 2, preemption_gated: true, ..workload("gated", "b", 2, 0) });
    world.settle();
    assert_eq!(world.victims().len(), 1);
    for uid in ["first", "gated"] {
        assert_eq!(token(&world, uid), "WaitingForPreemptedWorkloads", "{uid}");
    }
    world.standing("borrows", Standing::Finished);
    world.settle();
    assert!(world.is_admitted("first") && world.is_admitted("gated"));
}

#[test]
fn who_is_held_back_by_name_is_not_in_the_queue() {
    let mut world = world(Settings::default(), vec![queue("a", "pool", 4, Preemption::default())]);
    let mut held = workload("held", "a", 4, 1);
    held.seldom.gated_by = Some("team.example/budget".into());
    world.put(held.clone());
    world.put(workload("other", "a", 4, 0));
    world.settle();
    assert!(world.is_admitted("other"), "nobody stands behind it");
    assert_eq!(token(&world, "held"), "AdmissionGated");
    world.standing("other", Standing::Finished);
    held.seldom.gated_by = None;
    world.put(held);
    world.settle();
    assert!(world.is_admitted("held"));
}

#[test]
fn who_is_kept_out_by_its_status_lets_others_pass() {
    let cases = [(KeptOut::ReplacementPods, 0), (KeptOut::NotRequeued("Quarantined".into()), 1)];
    for (why, counted) in cases {
        let mut world = world(Settings::default(), vec![queue("a", "", 2, Preemption::default())]);
        let mut held = workload("held", "a", 1, 9);
        held.seldom.kept_out = Some(why.clone());
        world.put(held.clone());
        world.put(workload("next", "a", 2, 0));
        world.settle();
        assert!(world.is_admitted("next") && !world.is_admitted("held"), "{why:?}");
        assert_eq!(token(&world, "held"), "PendingEvaluation");
        assert_eq!(waiting(&world, "a").1.len(), counted, "{why:?}");
        world.standing("next", Standing::Finished);
        held.seldom.kept_out = None;
        world.put(held);
        world.settle();
        assert!(world.is_admitted("held"), "{why:?}");
    }
}

#[test]
fn whatever_keeps_a_queue_from_running_its_workloads_are_suspended() {
    let mut queue = cluster_queue("a", Some("pool"), gpus(&[("missing", quota(4, None, None))]));
    queue.preemption = Preemption::default();
    let mut world =
        World::with(Settings::default(), [Event::ClusterQueue(queue), Event::LocalQueue(local_queue("a"))]);
    world.put(workload("one", "a", 1, 0));
    world.settle();
    assert_eq!(token(&world, "one"), "Suspended");
}

/// Both groups are too small; what is told is of the one whose resource comes first in Kueue's order, not in that of the names.
#[test]
fn the_first_resource_that_finds_nothing_is_told_alone() {
    let group = |resource: &str| ResourceGroup {
        covered: vec![resource.into()],
        flavors: vec![FlavorQuotas {
            flavor: format!("of-{resource}").as_str().into(),
            resources: [(resource.into(), quota(1, None, None))].into(),
        }],
    };
    let queue = cluster_queue("a", Some("pool"), vec![group("cpu"), group("memory"), group("pods")]);
    let flavors = ["cpu", "memory", "pods"].map(|resource| Event::Flavor(flavor(&format!("of-{resource}"))));
    let queues = [Event::ClusterQueue(queue), Event::LocalQueue(local_queue("a"))];
    let mut world = World::with(Settings::default(), flavors.into_iter().chain(queues));
    let mut one = workload("one", "a", 1, 0);
    let requests = ["cpu", "memory", "pods"].map(|resource| (resource.into(), 2)).into();
    one.pod_sets = [PodSet { requests, ..one.pod_sets[0].clone() }].into();
    world.put(one);
    world.settle();
    let PendingReason::NoFit(misfits) = world.reason("one") else { panic!("{:?}", world.reason("one")) };
    let told = format!("{misfits:?}");
    assert_eq!((told.matches("of-").count(), told.contains("of-memory")), (1, true), "{told}");
}

/// Two lenders want back what one borrower has: `a` first, for it is older.
fn two_preemptors(settings: Settings, borrowers: &[(&str, i64)]) -> World {
    let mut world = world(
        settings,
        vec![
            queue("a", "pool", 4, reclaims()),
            queue("b", "pool", 4, reclaims()),
            queue("c", "pool", 0, Preemption::default()),
        ],
    );
    for (uid, count) in borrowers {
        world.put(workload(uid, "c", *count, 0));
    }
    world.settle();
    world.put(workload("of-a", "a", 4, 0));
    let mut second = workload("of-b", "b", 4, 0);
    second.queued_at_ms = 1;
    world.put(second);
    world.cycle();
    world
}

#[test]
fn who_fits_when_the_victims_of_another_have_left_waits_for_them_too() {
    let mut world = two_preemptors(Settings::default(), &[("all", 8)]);
    assert_eq!(world.victims(), [("all", "InCohortReclamation")]);
    assert_eq!(token(&world, "of-b"), "WaitingForPreemptedWorkloads");
    let counted = world.engine.take_cycle_counts();
    assert_eq!(counted.recomputations, [(("b".into(), Recomputation::DeferredFit), 1)].into());
    assert!(counted.preemption_skips.is_empty());
}

#[test]
fn other_victims_are_found_when_those_of_the_first_search_leave_for_another() {
    let mut world = two_preemptors(Settings::default(), &[("half", 4), ("rest", 4)]);
    assert_eq!(world.victims().len(), 2, "{:?}", world.victims());
    let counted = world.engine.take_cycle_counts();
    assert_eq!(counted.recomputations, [(("b".into(), Recomputation::NewTargets), 1)].into());
}

#[test]
fn without_a_second_search_who_shares_a_victim_is_left_for_the_next_cycle() {
    let settings = Settings { recompute_overlapping_targets: false, ..Settings::default() };
    let mut world = two_preemptors(settings, &[("all", 8)]);
    assert_eq!(
        (world.reason("of-b"), token(&world, "of-b")),
        (&PendingReason::TargetsTaken, "WaitingForQuota")
    );
    assert_eq!(waiting(&world, "b").0, ["of-b"]);
    assert_eq!(world.engine.take_cycle_counts().preemption_skips, ["b".into()].into());
    world.settle();
    assert_eq!(token(&world, "of-b"), "WaitingForPreemptedWorkloads");
}

/// Kueue's gauge says what one cycle came to, of which several are one call here.
#[test]
fn who_is_outrun_cycle_after_cycle_counts_once() {
    let settings = Settings { recompute_overlapping_targets: false, ..Settings::default() };
    let queues = vec![
        queue("a", "pool", 8, reclaims()),
        queue("b", "pool", 4, reclaims()),
        queue("c", "pool", 0, Preemption::default()),
    ];
    let mut world = world(settings, queues);
    for uid in ["one", "two", "three"] {
        world.put(workload(uid, "c", 4, 0));
    }
    world.settle();
    for (at, (uid, name)) in (0..).zip([("first", "a"), ("second", "a"), ("outrun", "b")]) {
        world.put(Workload { queued_at_ms: at, ..workload(uid, name, 4, 0) });
    }
    let decisions = world.engine.decide(1_000);
    assert_eq!(decisions.len(), 3, "{decisions:?}");
    assert_eq!(world.engine.take_cycle_counts().preemption_skips, ["b".into()].into());
}

/// A driver that writes few at a time must come to everyone, however often the reasons of the first ones change.
#[test]
fn reasons_are_taken_in_turns() {
    let quota = |nominal| queue("cq", "pool", nominal, Preemption::default());
    let mut world = world(Settings::default(), vec![quota(1)]);
    for name in ["a", "b", "c", "d"] {
        world.put(workload(name, "cq", 2, 0));
    }
    let take = |world: &mut World, at_most: usize| -> Vec<String> {
        world.engine.decide(0);
        world.engine.take_reasons(at_most).iter().map(|new| new.workload.to_string()).collect()
    };
    assert_eq!(take(&mut world, 1).len(), 1);
    let first = take(&mut world, 2);
    // All of them get another reason; whoever has not had a turn is first.
    quota(0).into_iter().for_each(|event| world.engine.apply(event));
    let then = take(&mut world, 2);
    assert!(first.iter().all(|name| !then.contains(name)), "{first:?}, then {then:?}");
    assert!(world.engine.has_reasons());
    // Who is admitted no longer waits for anything.
    quota(8).into_iter().for_each(|event| world.engine.apply(event));
    assert_eq!(world.engine.decide(0).len(), 4);
    assert_eq!(world.engine.take_reasons(usize::MAX), []);
    assert!(!world.engine.has_reasons());
}

/// Under load the admissions of very many are being written, and of most of them nobody who waits is to take the place.
#[test]
fn only_the_outcome_of_its_victims_own_admission_wakes_who_waits_for_that() {
    let within =
        Preemption { within_cluster_queue: WithinClusterQueue::LowerPriority, ..Preemption::default() };
    let queues = vec![queue("a", "pool", 4, within), queue("b", "pool", 4, within)];
    let mut world = world(Settings::default(), queues);
    world.put(workload("low", "a", 4, 0));
    world.put(workload("other", "b", 4, 0));
    let (low, others): (Vec<Decision>, Vec<Decision>) = world.engine.decide(0).into_iter().partition(
        |decision| matches!(decision, Decision::Reserve(reserve) if reserve.workload == Uid::from("low")),
    );
    world.put(workload("high", "a", 4, 9));
    assert_eq!(world.engine.decide(0), []);
    world.engine.take_cycle_counts();
    let mut attempts_after = |decisions: Vec<Decision>| {
        decisions.into_iter().for_each(|decision| world.carry_out(decision));
        let decisions = world.engine.decide(0);
        (world.engine.take_cycle_counts().attempts, decisions)
    };
    assert_eq!(attempts_after(others), (Attempts::default(), vec![]));
    let (attempts, decisions) = attempts_after(low);
    assert_eq!(attempts, Attempts { succeeded: 0, failed: 1 }, "room is made, nobody has quota yet");
    let [Decision::Evict(evict)] = &decisions[..] else { panic!("{decisions:?}") };
    assert_eq!(evict.victim, "low".into());
}

/// A queue "strict" whose blocked head keeps the one place that is free, and a queue "poor" with nothing of its own. "victim",
/// whose admission is not answered, is what one that is gone waited for in "strict".
fn kept_for_a_blocked_head(poor: QueueingStrategy) -> (World, Vec<Decision>) {
    let within =
        Preemption { within_cluster_queue: WithinClusterQueue::LowerPriority, ..Preemption::default() };
    let strict_queue = |name: &str, nominal: Quota, preemption: Preemption, strategy: QueueingStrategy| {
        let mut queue = cluster_queue(name, Some("pool"), gpus(&[("a100", nominal)]));
        (queue.strategy, queue.preemption) = (strategy, preemption);
        vec![Event::ClusterQueue(queue), Event::LocalQueue(local_queue(name))]
    };
    let queues = vec![
        strict_queue("strict", quota(6, Some(0), None), within, QueueingStrategy::StrictFifo),
        strict_queue("poor", quota(0, None, None), Preemption::default(), poor),
    ];
    let mut world = world(Settings::default(), queues);
    world.put(workload("firm", "strict", 3, 20));
    world.settle();
    world.put(workload("victim", "strict", 2, 0));
    let unanswered = world.engine.decide(0);
    world.put(workload("first", "strict", 3, 9));
    world.engine.decide(0);
    world.engine.apply(Event::WorkloadGone("first".into()));
    world.put(workload("second", "strict", 4, 10));
    world.engine.decide(0);
    (world, unanswered)
}

/// The head for which room is kept may go between the news that wakes it and the next look at it.
#[test]
fn who_stepped_aside_for_a_head_that_went_unseen_is_looked_at_again() {
    let (mut world, unanswered) = kept_for_a_blocked_head(QueueingStrategy::BestEffortFifo);
    world.put(workload("small", "poor", 1, 0));
    assert_eq!(world.engine.decide(0), [], "one is free, and kept for the head of the strict queue");
    unanswered.into_iter().for_each(|decision| world.carry_out(decision));
    world.engine.apply(Event::WorkloadGone("second".into()));
    world.settle();
    assert!(world.is_admitted("small"));
}

#[test]
fn so_is_a_head_that_stepped_aside_in_place_of_another() {
    let (mut world, _) = kept_for_a_blocked_head(QueueingStrategy::StrictFifo);
    world.put(workload("large", "poor", 5, 0));
    world.engine.decide(0);
    world.put(workload("small", "poor", 1, 9));
    assert_eq!(world.engine.decide(0), []);
    world.engine.apply(Event::WorkloadGone("second".into()));
    let decisions = world.engine.decide(0);
    let [Decision::Reserve(reserve)] = &decisions[..] else { panic!("{decisions:?}") };
    assert_eq!(reserve.workload, "small".into());
}

#[test]
fn what_an_admission_check_refused_waits_until_that_is_settled() {
    let mut world = world(Settings::default(), vec![queue("a", "pool", 4, Preemption::default())]);
    let mut one = workload("one", "a", 1, 0);
    one.checks_failed = true;
    world.put(one.clone());
    world.settle();
    assert_eq!(token(&world, "one"), "PendingEvaluation");
    assert_eq!(waiting(&world, "a"), (vec![], vec!["one".to_owned()]));
    one.checks_failed = false;
    world.put(one);
    world.settle();
    assert!(world.is_admitted("one"));
}

/// A queue on hold keeps what runs in it, and what it has borrowed is borrowed still.
#[test]
fn nobody_is_displaced_in_a_queue_that_is_not_active() {
    for fair_sharing in [None, Some(FairSharing::default())] {
        let settings = Settings { fair_sharing, ..Settings::default() };
        let queue = |name: &str, nominal: i64| {
            let mut queue = cluster_queue(name, Some("pool"), gpus(&[("f", quota(nominal, None, None))]));
            queue.preemption.reclaim_within_cohort = ReclaimWithinCohort::Any;
            queue
        };
        let mut events = vec![Event::Flavor(flavor("f"))];
        for (name, nominal) in [("owner", 4), ("guest", 0)] {
            events.extend([Event::ClusterQueue(queue(name, nominal)), Event::LocalQueue(local_queue(name))]);
        }
        let mut world = World::with(settings, events);
        world.put(workload("running", "guest", 4, 0));
        world.settle();
        let held = ClusterQueue { stop: StopPolicy::Hold, ..queue("guest", 0) };
        world.engine.apply(Event::ClusterQueue(held));
        world.put(workload("waiting", "owner", 4, 0));
        world.settle();
        assert_eq!((world.victims(), world.reason("waiting").token()), (vec![], "WaitingForQuota"));
        world.engine.apply(Event::ClusterQueue(queue("guest", 0)));
        world.settle();
        assert_eq!(world.victims().len(), 1, "{fair_sharing:?}");
    }
}

/// What a queue asks for of one resource stays within what only it may use; of that resource its cohort is above its quota all
/// the same, and has no right to get back more.
#[test]
fn a_cohort_above_its_quota_has_no_advantage_where_nothing_is_left_to_take() {
    let (first, second) = (ResourceName::from("example.com/a"), ResourceName::from("example.com/b"));
    let groups = |a: Quota, b: Quota| {
        let resources = [(first.clone(), a), (second.clone(), b)].into();
        let flavors = vec![FlavorQuotas { flavor: "f".into(), resources }];
        vec![ResourceGroup { covered: vec![first.clone(), second.clone()], flavors }]
    };
    let nothing = || quota(0, None, None);
    let cohort = |name: &str, parent: Option<&str>, groups: Vec<ResourceGroup>| {
        let (name, uid, parent) = (name.into(), name.into(), parent.map(Into::into));
        Event::Cohort(Cohort { name, uid, parent, groups, weight: Weight::default() })
    };
    for (borrowed, wanted) in [(5, 0), (0, 1)] {
        let mut events = vec![
            Event::Flavor(flavor("f")),
            cohort("root", None, groups(quota(10, None, None), nothing())),
            cohort("branch", Some("root"), groups(nothing(), quota(4, None, None))),
        ];
        for (name, parent, a) in [
            ("asks", "branch", quota(2, None, Some(0))),
            ("borrows", "branch", nothing()),
            ("above", "root", nothing()),
        ] {
            let mut queue = cluster_queue(name, Some(parent), groups(a, nothing()));
            queue.preemption.reclaim_within_cohort = ReclaimWithinCohort::Any;
            events.extend([Event::ClusterQueue(queue), Event::LocalQueue(local_queue(name))]);
        }
        let mut world = World::new(events);
        for (name, a, b) in [("borrows", borrowed, 0), ("above", 0, 4), ("asks", 1, 2)] {
            let mut one = workload(name, name, 1, 0);
            let requests = [(first.clone(), a), (second.clone(), b)];
            pod_set(&mut one).requests = requests.into_iter().filter(|(_, amount)| *amount > 0).collect();
            if !pod_set(&mut one).requests.is_empty() {
                world.put(one);
            }
            world.settle();
        }
        assert_eq!(world.victims().len(), wanted, "{borrowed} borrowed");
    }
}

/// Its cohort is above its quota of a resource of which it asks for nothing: it may get back the other one all the same.
#[test]
fn what_is_not_asked_for_takes_no_right_away() {
    let (first, second) = (ResourceName::from("example.com/a"), ResourceName::from("example.com/b"));
    let groups = |a: i64, b: i64| {
        let resources =
            [(first.clone(), quota(a, None, None)), (second.clone(), quota(b, None, None))].into();
        let flavors = vec![FlavorQuotas { flavor: "f".into(), resources }];
        vec![ResourceGroup { covered: vec![first.clone(), second.clone()], flavors }]
    };
    let cohort = |name: &str, parent: Option<&str>| {
        let (name, uid, parent) = (name.into(), name.into(), parent.map(Into::into));
        Event::Cohort(Cohort { name, uid, parent, groups: Vec::new(), weight: Weight::default() })
    };
    let mut events = vec![Event::Flavor(flavor("f")), cohort("root", None), cohort("branch", Some("root"))];
    for (name, parent, a, b) in [("asks", "branch", 0, 0), ("above", "branch", 6, 3), ("other", "root", 6, 3)]
    {
        let mut queue = cluster_queue(name, Some(parent), groups(a, b));
        queue.preemption.reclaim_within_cohort = ReclaimWithinCohort::Any;
        events.extend([Event::ClusterQueue(queue), Event::LocalQueue(local_queue(name))]);
    }
    let mut world = World::new(events);
    for (name, queue, a, b) in
        [("4", "above", 0, 4), ("6", "other", 6, 0), ("12", "other", 6, 0), ("asks", "asks", 6, 0)]
    {
        let mut one = workload(name, queue, 1, 0);
        let asked = [(first.clone(), a), (second.clone(), b)];
        let is_named = |(_, amount): &(ResourceName, i64)| *amount > 0 || name == "asks";
        pod_set(&mut one).requests = asked.into_iter().filter(is_named).collect();
        world.put(one);
        world.settle();
    }
    assert_eq!(world.victims().iter().map(|(_, why)| *why).collect::<Vec<_>>(), ["InCohortReclamation"]);
}

/// Whoever was given a flavor may be displaced for it, so that it is first tried without borrowing; who frees nothing stays.
#[test]
fn one_that_uses_nothing_of_its_flavor_any_more_is_a_candidate_still() {
    for (given_back, wanted) in [(false, 2), (true, 2)] {
        let mut events = vec![Event::Flavor(flavor("f"))];
        for (name, nominal) in [("own", 10), ("other", 4), ("idle", 6)] {
            let mut queue = cluster_queue(name, Some("pool"), gpus(&[("f", quota(nominal, None, None))]));
            queue.preemption.within_cluster_queue = WithinClusterQueue::LowerPriority;
            queue.preemption.reclaim_within_cohort = ReclaimWithinCohort::LowerPriority;
            events.extend([Event::ClusterQueue(queue), Event::LocalQueue(local_queue(name))]);
        }
        let mut world = World::new(events);
        for (name, queue, count, priority) in
            [("a1", "own", 4, 0), ("a2", "own", 4, 0), ("b1", "other", 8, 100), ("b2", "other", 1, 0)]
        {
            world.put(workload(name, queue, count, priority));
            world.settle();
        }
        if given_back {
            let mut done = world.workloads[&Uid::from("b2")].clone();
            (pod_set(&mut done).count, pod_set(&mut done).done) = (0, 1);
            world.put(done);
        }
        world.put(workload("asks", "own", 8, 10));
        world.settle();
        assert_eq!(world.victims().len(), wanted, "{given_back}: {:?}", world.victims());
    }
}

/// Of three cycles of one call the second admits a borrower, and the third wants back what it borrowed, and a bit more. Who runs in
/// that queue leaves for what the borrower uses: so it is admitted for all to see, and nobody leaves before it was.
#[test]
fn what_others_leave_for_is_not_taken_back_unseen() {
    let queue = |name: &str, nominal: i64| {
        let mut queue = cluster_queue(name, Some("pool"), gpus(&[("f", quota(nominal, None, None))]));
        queue.preemption.reclaim_within_cohort = ReclaimWithinCohort::LowerPriority;
        queue.preemption.borrow_within_cohort = BorrowWithinCohort::LowerPriority { threshold: Some(1) };
        queue
    };
    let mut events = vec![Event::Flavor(flavor("f"))];
    for (name, nominal) in [("guests", 6), ("owner", 7)] {
        events.extend([Event::ClusterQueue(queue(name, nominal)), Event::LocalQueue(local_queue(name))]);
    }
    let mut world = World::new(events);
    for (name, queue, count, priority) in
        [("runs", "guests", 1, 0), ("beside", "guests", 1, 2), ("own", "owner", 5, 2)]
    {
        world.put(workload(name, queue, count, priority));
        world.settle();
    }
    world.put(workload("first", "guests", 4, 2));
    world.put(workload("borrower", "guests", 2, 1));
    // It has its turn in the third cycle, when these two were found too large.
    world.put(workload("large", "owner", 20, 4));
    world.put(workload("larger", "owner", 30, 3));
    world.put(workload("asks", "owner", 3, 2));
    let decisions = world.engine.decide(1_000);
    let told = decisions.iter().map(|decision| match decision {
        Decision::Reserve(reserve) => reserve.workload.to_string(),
        other => panic!("{other:?}"),
    });
    assert_eq!(told.collect::<Vec<_>>(), ["first", "borrower"]);
    decisions.into_iter().for_each(|decision| world.carry_out(decision));
    world.settle();
    let why = "InCohortReclaimWhileBorrowing";
    assert_eq!(world.victims(), [("runs", why), ("borrower", why)]);
}
