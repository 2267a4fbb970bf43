//! Admission fair sharing: LocalQueues take turns by what they have used.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::sync::Arc;

use model::ResourceName;
use quota_engine::input::*;
use quota_engine::*;
use support::*;

const ONE: i128 = 1_000_000_000;
const HALF_LIFE_MS: u64 = 10_000;
/// What one GPU adds in a second with a half-life of ten: 1 - 2^-0.1.
const ADDED: i128 = 66_967_008;

fn settings() -> Settings {
    let rules = AdmissionFairSharing { half_life_ms: HALF_LIFE_MS, sampling_ms: 1_000, weights: [].into() };
    Settings { admission_fair_sharing: Some(rules), ..Settings::default() }
}

/// One ClusterQueue with so many GPUs, and its LocalQueues by name and weight.
fn world(gpus_of_queue: i64, local_queues: &[(&str, i128)], mode: AdmissionMode) -> World {
    let mut queue = cluster_queue("cq", None, gpus(&[("a100", quota(gpus_of_queue, None, None))]));
    queue.admission_mode = mode;
    queue.preemption.within_cluster_queue = WithinClusterQueue::LowerPriority;
    let mut events = vec![Event::Flavor(flavor("a100")), Event::ClusterQueue(queue)];
    events.extend(local_queues.iter().map(|(name, weight)| {
        let weight = Weight::from_nanos(*weight);
        Event::LocalQueue(LocalQueue { cluster_queue: "cq".into(), weight, ..local_queue(name) })
    }));
    World::with(settings(), events)
}

fn key(name: &str) -> LocalQueueKey {
    LocalQueueKey::new("ns", name)
}

/// What its status says a LocalQueue has used, in whole GPUs.
fn used(world: &mut World, name: &str, gpus: i128) {
    let consumed = [(ResourceName::from(GPU), gpus * ONE)].into();
    world.engine.apply(Event::LocalQueueHistory(key(name), consumed));
}

fn submit(world: &mut World, uid: &str, queue: &str, queued_at_ms: i64) {
    let mut one = workload(uid, queue, 1, 0);
    one.queued_at_ms = queued_at_ms;
    world.put(one);
}

fn admitted(world: &World) -> Vec<String> {
    world.admissions.iter().map(Uid::to_string).collect()
}

/// Billionths of a GPU that count as used or about to be.
fn gpus_of(amounts: &Amounts) -> i128 {
    amounts.get(&ResourceName::from(GPU)).copied().unwrap_or(0)
}

#[test]
fn who_has_used_less_comes_first_whatever_the_age_and_the_priority() {
    for (mode, wanted) in [(AdmissionMode::UsageBasedFairSharing, "b"), (AdmissionMode::NoFairSharing, "a")] {
        let mut world = world(1, &[("a", ONE), ("b", ONE)], mode);
        used(&mut world, "a", 3);
        used(&mut world, "b", 1);
        world.put(workload("a", "a", 1, 100));
        submit(&mut world, "b", "b", 5);
        world.cycle();
        assert_eq!(admitted(&world), [wanted], "{mode:?}");
    }
}

#[test]
fn a_weight_divides_what_was_used_and_without_weight_one_comes_last() {
    let mut world = world(3, &[("a", ONE), ("b", 4 * ONE), ("c", 0)], AdmissionMode::UsageBasedFairSharing);
    used(&mut world, "a", 2);
    used(&mut world, "b", 4);
    submit(&mut world, "c", "c", 0);
    submit(&mut world, "a", "a", 1);
    submit(&mut world, "b", "b", 2);
    assert_eq!(world.engine.explain(&"c".into()).unwrap().ahead, Some(2));
    let line = world.engine.line_of(&"cq".into()).unwrap();
    assert_eq!(line.iter().map(|one| &*one.name).collect::<Vec<_>>(), ["b", "a", "c"]);
    world.settle();
    assert_eq!(admitted(&world), ["b", "a", "c"]);
}

#[test]
fn what_was_just_let_in_counts_before_it_is_seen_to_run() {
    let mut world = world(6, &[("a", ONE), ("b", ONE)], AdmissionMode::UsageBasedFairSharing);
    for index in 0..4 {
        submit(&mut world, &format!("a{index}"), "a", index);
        submit(&mut world, &format!("b{index}"), "b", 10 + index);
    }
    world.settle();
    assert_eq!(admitted(&world), ["a0", "b0", "a1", "b1", "a2", "b2"]);
}

#[test]
fn one_that_waits_is_found_though_one_like_it_of_another_queue_did_not_fit() {
    let mut world = world(1, &[("a", ONE), ("b", ONE)], AdmissionMode::UsageBasedFairSharing);
    submit(&mut world, "a0", "a", 0);
    world.settle();
    submit(&mut world, "a1", "a", 1);
    submit(&mut world, "b0", "b", 2);
    used(&mut world, "b", 1);
    world.settle();
    assert_eq!(admitted(&world), ["a0"]);
    // Meanwhile the other queue has the larger share; it is its turn all the same once it is the only one that waits.
    world.standing("a0", Standing::Finished);
    world.settle();
    assert_eq!(world.admissions.len(), 2);
    let second = world.admissions[1].clone();
    world.standing(&second.to_string(), Standing::Finished);
    world.settle();
    assert_eq!(world.admissions.len(), 3);
}

/// The room that somebody leaves goes to the newer one, of the LocalQueue that has used less; the one of the other LocalQueue, who is
/// the first to make way, took it back by age each time that somebody ended, and in Kueue does.
#[test]
fn who_is_older_takes_an_equals_place_once_whoever_ends() {
    let mut world = world(2, &[("busy", ONE), ("idle", ONE)], AdmissionMode::UsageBasedFairSharing);
    let mut queue = cluster_queue("cq", None, gpus(&[("a100", quota(2, None, None))]));
    queue.admission_mode = AdmissionMode::UsageBasedFairSharing;
    queue.preemption.within_cluster_queue = WithinClusterQueue::LowerOrNewerEqualPriority;
    world.engine.apply(Event::ClusterQueue(queue));
    used(&mut world, "busy", 100);
    let let_go = |world: &mut World| loop {
        world.settle();
        let Some(gone) = world.leaving().first().cloned() else { break };
        world.standing(&gone.to_string(), Standing::Pending);
    };
    world.put(workload("urgent-0", "busy", 1, 10));
    submit(&mut world, "older", "busy", 0);
    world.settle();
    submit(&mut world, "newer", "idle", 1);
    world.settle();
    for round in 0..3 {
        world.put(workload(&format!("urgent-{}", round + 1), "busy", 1, 10));
        world.standing(&format!("urgent-{round}"), Standing::Finished);
        let_go(&mut world);
    }
    let by = PreemptionReason::InClusterQueue.token();
    assert_eq!(world.victims(), [("older", by), ("newer", by), ("older", by)]);
    // It waits for room, and not for ever.
    world.standing("urgent-3", Standing::Finished);
    world.settle();
    assert_eq!(admitted(&world).last().unwrap(), "older");
    // Where it loses its quota for another reason, its age counts again.
    world.put(workload("urgent-4", "busy", 1, 10));
    world.standing("older", Standing::Pending);
    let_go(&mut world);
    assert_eq!(world.victims()[3..], [("newer", by)]);
}

/// Kueue puts back all that ask for the same as one that found nothing, and who has its turn first may be the younger one.
#[test]
fn who_asks_for_the_same_as_a_younger_one_of_another_queue_that_found_nothing_is_not_looked_at() {
    let mut world = world(1, &[("a", ONE), ("b", ONE)], AdmissionMode::UsageBasedFairSharing);
    submit(&mut world, "runs", "b", 0);
    world.settle();
    submit(&mut world, "older", "b", 1);
    submit(&mut world, "younger", "a", 2);
    world.cycle();
    let put_back = ["older", "younger"].map(Uid::from).to_vec();
    assert_eq!(world.engine.waiting_in(&"cq".into()), (Vec::new(), put_back));
    world.engine.take_cycle_counts();
    world.cycle();
    assert_eq!(world.engine.take_cycle_counts().attempts, Attempts::default());
    assert_eq!(world.reason("older"), world.reason("younger"));
}

#[test]
fn what_was_used_is_forgotten_by_halves_and_what_is_used_is_noticed_so() {
    let mut world = world(4, &[("a", ONE)], AdmissionMode::UsageBasedFairSharing);
    used(&mut world, "a", 8);
    let at = |world: &mut World, ms: i64| {
        assert!(world.engine.decide(ms).is_empty());
        gpus_of(&world.engine.history(&key("a")).unwrap().consumed)
    };
    assert_eq!(at(&mut world, 0), 8 * ONE);
    // Before the next sample nothing is worked out anew.
    assert_eq!(at(&mut world, 999), 8 * ONE);
    assert_eq!(world.engine.next_sample_ms(), Some(1_000));
    let near = |amount: i128, wanted: i128| assert!((amount - wanted).abs() < 100, "{amount}, not {wanted}");
    near(at(&mut world, 10_000), 4 * ONE);
    near(at(&mut world, 20_000), 2 * ONE);
    // A hundred small steps come to the same as one.
    (201..=300).for_each(|tick| {
        at(&mut world, tick * 100);
    });
    near(at(&mut world, 30_000), ONE);
    at(&mut world, 10_000_000);
    let none = world.engine.history(&key("a")).unwrap();
    assert_eq!(none.consumed.values().collect::<Vec<_>>(), [&0], "{none:?}");
    assert_eq!(world.engine.next_sample_ms(), None, "nothing changes any more");
}

/// As in Kueue each of the two is rounded down: a half of 8 and the other half of 4, half of a half-life later.
#[test]
fn what_is_left_and_what_comes_to_it_are_rounded_down() {
    let mut world = world(4, &[("a", ONE)], AdmissionMode::UsageBasedFairSharing);
    used(&mut world, "a", 8);
    let mut one = workload("one", "a", 4, 0);
    one.standing = Standing::Reserved {
        admission: Arc::new(Admission {
            cluster_queue: "cq".into(),
            pod_sets: vec![PodSetAssignment {
                name: "main".into(),
                flavors: [(GPU.into(), "a100".into())].into(),
                usage: [(GPU.into(), 4)].into(),
                count: 4,
                topology: None,
                delayed: None,
            }],
        }),
        admitted: true,
        evicted: false,
        since_ms: 0,
    };
    world.put(one);
    world.engine.decide(0);
    world.engine.decide(5_000);
    let consumed = gpus_of(&world.engine.history(&key("a")).unwrap().consumed);
    assert_eq!(consumed, 5_656_854_249 + 1_171_572_875);
}

#[test]
fn a_penalty_is_settled_when_the_admission_is_complete_and_lifted_where_it_comes_to_nothing() {
    let penalty = |world: &World| gpus_of(&world.engine.history(&key("a")).unwrap().penalty);
    let consumed = |world: &World| gpus_of(&world.engine.history(&key("a")).unwrap().consumed);
    let mut world = world(4, &[("a", ONE)], AdmissionMode::UsageBasedFairSharing);
    submit(&mut world, "a0", "a", 0);
    let [Decision::Reserve(reserve)] = &world.engine.decide(0)[..] else { panic!("it fits") };
    assert_eq!((penalty(&world), consumed(&world)), (ADDED, 0));
    world.engine.written(reserve.id, Outcome::NotWritten);
    assert_eq!((penalty(&world), consumed(&world)), (0, 0));
    let [Decision::Reserve(reserve)] = &world.engine.decide(0)[..] else { panic!("it fits") };
    assert_eq!((penalty(&world), consumed(&world)), (ADDED, 0));
    world.carry_out(Decision::Reserve(reserve.clone()));
    assert_eq!((penalty(&world), consumed(&world)), (ADDED, 0));
    world.engine.decide(0);
    assert_eq!((penalty(&world), consumed(&world)), (0, ADDED));
    // It runs for a half-life, and its penalty is half forgotten by then.
    world.engine.decide(10_000);
    let half = (ONE + ADDED) / 2;
    assert!((consumed(&world) - half).abs() < 100, "{}", consumed(&world));
    world.standing("a0", Standing::Finished);
    world.engine.decide(20_000);
    let quarter = (ONE + half) / 2;
    assert!((consumed(&world) - quarter).abs() < 100, "it ran until now: {}", consumed(&world));
    world.engine.decide(30_000);
    assert!((consumed(&world) - quarter / 2).abs() < 100, "and no more: {}", consumed(&world));
    // One that is gone before its admission is complete owes nothing.
    submit(&mut world, "a1", "a", 1);
    assert_eq!(world.engine.decide(30_000).len(), 1);
    assert_eq!(penalty(&world), ADDED);
    world.engine.apply(Event::WorkloadGone("a1".into()));
    assert_eq!(penalty(&world), 0);
}

#[test]
fn who_loses_its_quota_before_its_admission_is_complete_owes_as_long_as_it_may_get_another() {
    type Change = fn(&mut Workload);
    let penalty = |world: &World| gpus_of(&world.engine.history(&key("a")).unwrap().penalty);
    let cases: [(&str, Change, i128); 5] = [
        ("evicted", |_| (), ADDED),
        ("put on hold", |one| one.standing = Standing::OnHold, ADDED),
        ("deactivated", |one| one.active = false, 0),
        ("of another LocalQueue", |one| one.queue = Some("b".into()), 0),
        ("ended", |one| one.standing = Standing::Finished, 0),
    ];
    let cases = cases.into_iter().flat_map(|case| [(case, false), (case, true)]);
    for ((becomes, change, wanted), waits_first) in cases {
        let mut world = world(1, &[("a", ONE), ("b", ONE)], AdmissionMode::UsageBasedFairSharing);
        submit(&mut world, "a0", "a", 0);
        let [Decision::Reserve(reserve)] = &world.engine.decide(0)[..] else { panic!("it fits") };
        let admission = reserve.admission.clone();
        let mut one = world.workloads[&Uid::from("a0")].clone();
        one.standing = Standing::Reserved { admission, admitted: false, evicted: false, since_ms: 0 };
        world.put(one.clone());
        one.active = false;
        world.put(one.clone());
        assert_eq!(penalty(&world), ADDED, "it has its quota still");
        (one.active, one.standing) = (true, Standing::Pending);
        if waits_first {
            world.put(one.clone());
            assert_eq!(penalty(&world), ADDED);
        }
        change(&mut one);
        world.put(one);
        assert_eq!(penalty(&world), wanted, "{becomes}, {waits_first}");
        world.engine.audit().unwrap();
    }
}

#[test]
fn what_an_evicted_workload_owes_counts_in_the_order_and_its_next_quota_is_owed_once() {
    let penalty = |world: &World| gpus_of(&world.engine.history(&key("a")).unwrap().penalty);
    let mut world = world(1, &[("a", ONE), ("b", ONE)], AdmissionMode::UsageBasedFairSharing);
    submit(&mut world, "a0", "a", 0);
    let [Decision::Reserve(reserve)] = &world.engine.decide(0)[..] else { panic!("it fits") };
    let admission = reserve.admission.clone();
    world.standing("a0", Standing::Reserved { admission, admitted: false, evicted: false, since_ms: 0 });
    world.standing("a0", Standing::Pending);
    submit(&mut world, "b0", "b", 5);
    let line = world.engine.line_of(&"cq".into()).unwrap();
    assert_eq!(line.iter().map(|one| &*one.name).collect::<Vec<_>>(), ["b0", "a0"]);
    world.engine.apply(Event::WorkloadGone("b0".into()));
    let [Decision::Reserve(_)] = &world.engine.decide(0)[..] else { panic!("it fits") };
    assert_eq!(penalty(&world), ADDED);
    world.engine.apply(Event::WorkloadGone("a0".into()));
    assert_eq!(penalty(&world), 0);
}

/// What Kueue tells of every LocalQueue once `admissionFairSharing` is configured.
#[test]
fn an_account_is_kept_and_orders_nobody_where_turns_do_not_go_by_it() {
    let mut world = world(1, &[("a", ONE), ("b", ONE)], AdmissionMode::NoFairSharing);
    used(&mut world, "a", 8);
    submit(&mut world, "a0", "a", 0);
    submit(&mut world, "b0", "b", 5);
    let [Decision::Reserve(reserve)] = &world.engine.decide(0)[..] else { panic!("it fits") };
    assert_eq!(reserve.workload, Uid::from("a0"));
    world.carry_out(Decision::Reserve(reserve.clone()));
    let history = world.engine.history(&key("a")).unwrap();
    assert_eq!((gpus_of(&history.consumed), gpus_of(&history.penalty)), (8 * ONE, 0));
    world.engine.decide(0);
    world.engine.decide(10_000);
    let consumed = gpus_of(&world.engine.history(&key("a")).unwrap().consumed);
    assert!((consumed - (8 * ONE + ONE) / 2).abs() < 100, "it runs for a half-life: {consumed}");
    world.engine.apply(Event::ClusterQueueGone("cq".into(), "cq".into()));
    world.engine.decide(10_000);
    assert_eq!(world.engine.history(&key("a")), None);
    world.engine.audit().unwrap();
}

#[test]
fn who_has_used_more_is_preempted_first() {
    let mut world = world(2, &[("a", ONE), ("b", ONE)], AdmissionMode::UsageBasedFairSharing);
    submit(&mut world, "a", "a", 0);
    submit(&mut world, "b", "b", 1);
    world.settle();
    submit(&mut world, "b2", "b", 2);
    world.standing("b", Standing::Finished);
    world.settle();
    world.put(workload("urgent", "a", 1, 7));
    world.settle();
    assert_eq!(world.victims(), [("b2", "InClusterQueue")]);
}

#[test]
fn a_new_leader_begins_with_what_is_written() {
    let mut world = world(1, &[("a", ONE), ("b", ONE)], AdmissionMode::UsageBasedFairSharing);
    world.settle();
    used(&mut world, "a", 9);
    assert_eq!(gpus_of(&world.engine.history(&key("a")).unwrap().consumed), 0, "its own account is newer");
    world.engine.forget_what_was_said();
    assert_eq!(gpus_of(&world.engine.history(&key("a")).unwrap().consumed), 9 * ONE);
    submit(&mut world, "a", "a", 0);
    submit(&mut world, "b", "b", 1);
    world.cycle();
    assert_eq!(admitted(&world), ["b"]);
}

/// A replica that does not lead decides nothing, and hears of what changes all the same.
#[test]
fn a_new_leader_goes_by_nothing_that_was_used_where_turns_are_not_fair_any_more() {
    let mut world = world(1, &[("a", ONE), ("b", ONE)], AdmissionMode::UsageBasedFairSharing);
    used(&mut world, "a", 3);
    let queue = cluster_queue("cq", None, gpus(&[("a100", quota(1, None, None))]));
    world.engine.apply(Event::ClusterQueue(queue));
    world.engine.forget_what_was_said();
    submit(&mut world, "first", "a", 1);
    submit(&mut world, "second", "b", 2);
    world.cycle();
    assert_eq!(admitted(&world), ["first"]);
}

/// Two ClusterQueues with nothing of their own and two LocalQueues each, and one that may have it all back.
fn lenders(settings: Settings) -> World {
    let turns = AdmissionFairSharing { half_life_ms: HALF_LIFE_MS, sampling_ms: 1_000, weights: [].into() };
    let settings = Settings { admission_fair_sharing: Some(turns), ..settings };
    let mut events = vec![Event::Flavor(flavor("f"))];
    for (name, nominal) in [("owner", 4), ("b", 0), ("c", 0)] {
        let mut queue = cluster_queue(name, Some("pool"), gpus(&[("f", quota(nominal, None, None))]));
        queue.preemption.reclaim_within_cohort = ReclaimWithinCohort::Any;
        queue.admission_mode = AdmissionMode::UsageBasedFairSharing;
        events.push(Event::ClusterQueue(queue));
        events.extend(["much", "little"].map(|use_of| {
            let key = key(&format!("{name}-{use_of}"));
            Event::LocalQueue(LocalQueue { key, cluster_queue: name.into(), ..local_queue(name) })
        }));
    }
    let mut world = World::with(settings, events);
    for name in ["b", "c"] {
        used(&mut world, &format!("{name}-much"), 100);
    }
    world
}

fn victims(world: &mut World, running: &[(&str, i32)], count: i64) -> Vec<String> {
    for (queue, priority) in running {
        world.put(workload(queue, queue, 1, *priority));
        world.settle();
    }
    world.put(workload("owner", "owner-little", count, 0));
    world.settle();
    world.victims().into_iter().map(|(name, _)| name.to_owned()).collect()
}

/// Where both have the same share, what their LocalQueues have used is not compared.
#[test]
fn between_cluster_queues_with_equal_shares_priorities_decide() {
    let settings = Settings { fair_sharing: Some(FairSharing::default()), ..Settings::default() };
    assert_eq!(victims(&mut lenders(settings), &[("b-much", 5), ("c-little", 0)], 3), ["c-little"]);
}

#[test]
fn who_is_let_in_with_fewer_pods_owes_for_all() {
    let owed = |min_count: Option<i64>, quota: i64| {
        let mut world = world(quota, &[("a", ONE)], AdmissionMode::UsageBasedFairSharing);
        let mut one = workload("a", "a", 4, 0);
        pod_set(&mut one).min_count = min_count;
        world.put(one);
        let decisions = world.engine.decide(0);
        assert!(matches!(decisions[..], [Decision::Reserve(_)]), "{decisions:?}");
        gpus_of(&world.engine.history(&key("a")).unwrap().penalty)
    };
    let all = owed(None, 4);
    assert_eq!((owed(Some(2), 2), all / ADDED), (all, 4));
}

/// Among the candidates of one other queue it counts what their LocalQueues have used, whether others are candidates, too, or not.
#[test]
fn of_another_queue_who_has_used_more_leaves_first() {
    for other_guests in [0, 1] {
        let mut events = vec![Event::Flavor(flavor("f"))];
        for (name, nominal) in [("owner", 5), ("guest", 0), ("third", 0)] {
            let mut queue = cluster_queue(name, Some("pool"), gpus(&[("f", quota(nominal, None, None))]));
            queue.admission_mode = AdmissionMode::UsageBasedFairSharing;
            queue.preemption.reclaim_within_cohort = ReclaimWithinCohort::Any;
            events.push(Event::ClusterQueue(queue));
        }
        for (name, queue) in [("owner", "owner"), ("much", "guest"), ("little", "guest"), ("third", "third")]
        {
            events.push(Event::LocalQueue(LocalQueue { cluster_queue: queue.into(), ..local_queue(name) }));
        }
        let mut world = World::with(settings(), events);
        used(&mut world, "much", 9);
        let guests = [("much", 2, 10), ("little", 2, 0), ("third", other_guests, 50)];
        for (name, count, priority) in guests.into_iter().filter(|(_, count, _)| *count > 0) {
            world.put(workload(name, name, count, priority));
            world.settle();
        }
        world.put(workload("owner", "owner", 3 - other_guests, 0));
        world.settle();
        assert_eq!(world.victims(), [("much", "InCohortReclamation")], "{other_guests} others");
    }
}

/// Most LocalQueues of a cluster are not in use: time changes nothing about them, and nothing of them is written.
#[test]
fn of_what_is_not_used_no_samples_are_taken() {
    let mut world = world(2, &[("a", ONE), ("b", ONE)], AdmissionMode::UsageBasedFairSharing);
    world.engine.decide(0);
    assert_eq!(world.engine.next_sample_ms(), None);
    submit(&mut world, "a0", "a", 0);
    world.settle_at(0);
    assert_eq!(world.engine.next_sample_ms(), Some(1_000));
    world.standing("a0", Standing::Finished);
    let mut now = 0;
    while let Some(next) = world.engine.next_sample_ms() {
        assert!(next > now, "it goes on from {now} to {next}");
        now = next;
        world.settle_at(now);
    }
    assert!(now > 10 * HALF_LIFE_MS.cast_signed(), "what was used is forgotten after {now} ms");
}

/// By the earlier time nothing would be used for an hour.
#[test]
fn what_is_used_counts_on_when_the_clock_is_set_back() {
    let mut world = world(1, &[("a", ONE)], AdmissionMode::UsageBasedFairSharing);
    submit(&mut world, "a0", "a", 0);
    world.settle_at(3_600_000);
    let settled = gpus_of(&world.engine.history(&key("a")).unwrap().consumed);
    world.settle_at(1_000);
    assert_eq!(world.engine.next_sample_ms(), Some(2_000));
    world.settle_at(11_000);
    let history = world.engine.history(&key("a")).unwrap();
    assert_eq!(history.at_ms, 11_000);
    assert!(gpus_of(&history.consumed) > settled + ONE / 3, "a half-life later");
}

/// Kueue's default: its status lists no resources then, be they used or not.
#[test]
fn who_forgets_everything_at_once_has_used_nothing() {
    let rules = AdmissionFairSharing { half_life_ms: 0, sampling_ms: 1_000, weights: [].into() };
    let settings = Settings { admission_fair_sharing: Some(rules), ..Settings::default() };
    let queue = cluster_queue("cq", None, gpus(&[("a100", quota(4, None, None))]));
    let mut world = World::with(
        settings,
        [Event::Flavor(flavor("a100")), Event::ClusterQueue(queue), Event::LocalQueue(local_queue("cq"))],
    );
    used(&mut world, "cq", 8);
    submit(&mut world, "runs", "cq", 0);
    world.settle();
    assert!(world.engine.decide(5_000).is_empty());
    let history = world.engine.history(&key("cq")).unwrap();
    assert!(history.consumed.is_empty(), "{history:?}");
}

/// Who was promised room binds those who have their turn after it, and whose LocalQueue has used less has it before.
#[test]
fn in_a_strict_queue_a_promise_binds_no_local_queue_that_has_used_less() {
    let mut world = world(10, &[("busy", ONE), ("idle", ONE)], AdmissionMode::UsageBasedFairSharing);
    let mut queue = cluster_queue("cq", None, gpus(&[("a100", quota(10, None, None))]));
    queue.admission_mode = AdmissionMode::UsageBasedFairSharing;
    queue.strategy = QueueingStrategy::StrictFifo;
    queue.preemption.within_cluster_queue = WithinClusterQueue::LowerPriority;
    world.engine.apply(Event::ClusterQueue(queue));
    used(&mut world, "busy", 100);
    world.put(workload("victim", "busy", 8, 0));
    world.settle();
    world.put(workload("promised", "busy", 9, 5));
    world.settle();
    assert_eq!(world.leaving(), [Uid::from("victim")]);
    submit(&mut world, "after", "busy", 2);
    world.settle();
    assert_eq!(admitted(&world), ["victim"]);
    submit(&mut world, "before", "idle", 3);
    world.settle();
    assert_eq!(admitted(&world), ["victim", "before"]);
    world.standing("victim", Standing::Finished);
    world.settle();
    assert_eq!(admitted(&world), ["victim", "before", "promised"]);
}
