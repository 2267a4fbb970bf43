//! Fair sharing in cohorts: who gets what is lent, and who gives it back.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use quota_engine::input::*;
use quota_engine::*;
use support::*;

const ONE: i128 = 1_000_000_000;

fn fair(strategies: FairSharing, events: Vec<Event>) -> World {
    let settings = Settings { fair_sharing: Some(strategies), ..Settings::default() };
    World::with(settings, [Event::Flavor(flavor("a100"))].into_iter().chain(events))
}

fn pool(name: &str, parent: Option<&str>, nominal: i64, weight: i128) -> Event {
    Event::Cohort(Cohort {
        name: name.into(),
        uid: name.into(),
        parent: parent.map(Into::into),
        groups: gpus(&[("a100", quota(nominal, None, None))]),
        weight: Weight::from_nanos(weight),
    })
}

/// A queue that may take back from anybody, with its LocalQueue.
fn member(name: &str, cohort: &str, nominal: i64, weight: i128) -> [Event; 2] {
    let mut queue = cluster_queue(name, Some(cohort), gpus(&[("a100", quota(nominal, None, None))]));
    queue.weight = Weight::from_nanos(weight);
    queue.preemption.reclaim_within_cohort = ReclaimWithinCohort::Any;
    [Event::ClusterQueue(queue), Event::LocalQueue(local_queue(name))]
}

fn submit(world: &mut World, queue: &str, many: u32) {
    for index in 0..many {
        let mut one = workload(&format!("{queue}-{index:02}"), queue, 1, 0);
        one.queued_at_ms = i64::from(index);
        world.put(one);
    }
}

/// Decides until nothing is left to do, with the victims leaving and waiting again. Returns how many each queue holds.
fn come_to_rest(world: &mut World, queues: &[&str]) -> Vec<usize> {
    for _ in 0..100 {
        world.settle();
        let leaving = world.leaving();
        if leaving.is_empty() {
            let holds = |queue: &str, one: &Workload| {
                one.queue.as_deref() == Some(queue) && matches!(one.standing, Standing::Reserved { .. })
            };
            let count = |queue: &&str| world.workloads.values().filter(|one| holds(queue, one)).count();
            return queues.iter().map(count).collect();
        }
        for uid in leaving {
            world.standing(&uid.to_string(), Standing::Pending);
        }
    }
    panic!("queues take from each other for ever");
}

#[test]
fn what_is_lent_ends_up_in_proportion_to_the_weights() {
    let strategies = [FairSharing::FinalThenInitialShare, FairSharing::FinalShare, FairSharing::InitialShare];
    for strategy in strategies {
        // Without its last workload a queue has no share at all, which nobody may exceed by the stricter rule alone.
        let last = usize::from(strategy == FairSharing::FinalShare);
        let cases = [([ONE, ONE], [4, 4]), ([ONE, 3 * ONE], [2, 6]), ([0, ONE], [last, 8 - last])];
        for (weights, wanted) in cases {
            let mut events = vec![pool("pool", None, 8, ONE)];
            events.extend(member("a", "pool", 0, weights[0]));
            events.extend(member("b", "pool", 0, weights[1]));
            let mut world = fair(strategy, events);
            submit(&mut world, "a", 9);
            assert_eq!(come_to_rest(&mut world, &["a", "b"]), [8, 0]);
            submit(&mut world, "b", 9);
            assert_eq!(come_to_rest(&mut world, &["a", "b"]), wanted, "{strategy:?} {weights:?}");
            assert!(world.victims().iter().all(|(_, reason)| *reason == "InCohortFairSharing"));
        }
    }
}

#[test]
fn shares_are_fair_between_cohorts_before_they_are_within() {
    let mut events = vec![pool("root", None, 8, ONE), pool("left", Some("root"), 0, ONE)];
    events.push(pool("right", Some("root"), 0, ONE));
    for (queue, cohort) in [("a", "left"), ("b", "left"), ("c", "right")] {
        events.extend(member(queue, cohort, 0, ONE));
    }
    let mut world = fair(FairSharing::default(), events);
    for queue in ["a", "b", "c"] {
        submit(&mut world, queue, 9);
    }
    assert_eq!(come_to_rest(&mut world, &["a", "b", "c"]), [2, 2, 4]);
    // Every queue has one turn a cycle, so a is one ahead when nothing is left: it gives that back before anybody is told.
    assert!(world.victims().is_empty());
    let shares = world.engine.fair_shares(&[]);
    let weighted: Vec<i64> = shares.iter().map(|share| share.weighted).collect();
    // a, b, c; left, right, root.
    assert_eq!(weighted, [250, 250, 500, 500, 500, 0]);
}

#[test]
fn what_is_a_queues_own_is_nobodys_to_take() {
    let mut events = vec![pool("pool", None, 2, ONE)];
    events.extend(member("a", "pool", 4, 0));
    events.extend(member("b", "pool", 0, ONE));
    let mut world = fair(FairSharing::default(), events);
    submit(&mut world, "a", 6);
    assert_eq!(come_to_rest(&mut world, &["a", "b"]), [6, 0]);
    submit(&mut world, "b", 6);
    assert_eq!(come_to_rest(&mut world, &["a", "b"]), [4, 2]);
}

#[test]
fn who_stays_within_its_own_takes_it_back_whatever_the_shares() {
    for (preempt_within_nominal, right) in [(true, "InCohortReclamation"), (false, "InCohortFairSharing")] {
        let settings = Settings {
            fair_sharing: Some(FairSharing::default()),
            preempt_within_nominal,
            ..Settings::default()
        };
        let mut events = vec![Event::Flavor(flavor("a100"))];
        events.extend(member("a", "pool", 0, 1_000 * ONE));
        events.extend(member("b", "pool", 2, 0));
        let mut world = World::with(settings, events);
        submit(&mut world, "a", 2);
        assert_eq!(come_to_rest(&mut world, &["a", "b"]), [2, 0]);
        submit(&mut world, "b", 1);
        assert_eq!(come_to_rest(&mut world, &["a", "b"]), [1, 1]);
        assert_eq!(world.victims(), [("a-00", right)]);
    }
}

/// A large job takes from a queue that has more, whose small job takes from the large one: by their shares each has the right
/// to, whenever it is the other that holds.
#[test]
fn two_who_have_a_right_to_each_others_place_do_not_change_it_for_ever() {
    let mut events = vec![pool("root", None, 44, ONE)];
    events.extend(member("a", "root", 0, ONE));
    events.extend(member("b", "root", 0, 2 * ONE));
    let mut world = fair(FairSharing::default(), events);
    for (uid, gpus, priority) in [("medium", 24, 1), ("small", 12, 0)] {
        world.put(workload(uid, "a", gpus, priority));
    }
    assert_eq!(come_to_rest(&mut world, &["a", "b"]), [2, 0]);
    world.put(workload("large", "b", 40, 0));
    let held = come_to_rest(&mut world, &["a", "b"]);
    assert_eq!(held, [0, 1]);
    // With another priority it is another question.
    let mut more = world.workloads[&Uid::from("small")].clone();
    (more.priority, more.version) = (2, more.version + 1);
    world.put(more);
    assert_ne!(come_to_rest(&mut world, &["a", "b"]), held);
}

/// The large job takes the high one's place by its share, the low ones take the large one's, and the high one takes theirs by
/// its priority.
#[test]
fn three_who_have_a_right_to_one_anothers_place_do_not_change_it_for_ever() {
    let mut events = vec![pool("root", None, 26, ONE)];
    for (name, weight) in [("a", ONE), ("b", 2 * ONE)] {
        let [mut queue, local_queue] = member(name, "root", 0, weight);
        if let Event::ClusterQueue(queue) = &mut queue {
            queue.preemption.within_cluster_queue = WithinClusterQueue::LowerPriority;
        }
        events.extend([queue, local_queue]);
    }
    let mut world = fair(FairSharing::default(), events);
    world.put(workload("high", "a", 24, 1));
    assert_eq!(come_to_rest(&mut world, &["a", "b"]), [1, 0]);
    world.put(workload("large", "b", 24, 0));
    assert_eq!(come_to_rest(&mut world, &["a", "b"]), [0, 1]);
    world.put(workload("low", "a", 10, 0));
    let held = come_to_rest(&mut world, &["a", "b"]);
    assert_eq!(held, [1, 0]);
    assert!(world.is_admitted("high"), "it has the better right to what the low one got");
}

/// By its share it was displaced, and by its share it would not get its place back. What is its queue's own it gets all the same.
#[test]
fn who_was_displaced_takes_back_what_is_its_own() {
    let mut events = vec![pool("pool", None, 2, ONE)];
    events.extend(member("a", "pool", 3, 2 * ONE));
    events.extend(member("b", "pool", 5, ONE));
    let mut world = fair(FairSharing::default(), events);
    world.put(workload("beside", "b", 3, 9));
    world.put(workload("own", "b", 5, 0));
    assert_eq!(come_to_rest(&mut world, &["a", "b"]), [0, 2]);
    world.put(workload("guest", "a", 6, 0));
    assert_eq!(come_to_rest(&mut world, &["a", "b"]), [1, 1]);
    world.standing("beside", Standing::Finished);
    assert_eq!(come_to_rest(&mut world, &["a", "b"]), [0, 1]);
    assert_eq!(world.victims(), [("own", "InCohortFairSharing"), ("guest", "InCohortReclamation")]);
}

/// The first takes back what the victim has in the same cohort, whose share goes down only when that has left.
#[test]
fn who_is_displaced_in_a_cycle_counts_until_it_ends() {
    let mut events = vec![pool("root", None, 6, ONE), pool("branch", Some("root"), 0, ONE)];
    events.extend(member("owner", "branch", 6, ONE));
    events.extend(member("sibling", "branch", 0, ONE));
    events.extend(member("other", "root", 0, ONE));
    let mut world = fair(FairSharing::default(), events);
    for (uid, queue, count) in [("victim", "sibling", 6), ("stays", "other", 5)] {
        world.put(workload(uid, queue, count, 0));
        world.settle();
    }
    for (uid, queue, count, priority) in
        [("first", "owner", 6, 9), ("last", "sibling", 1, 0), ("second", "other", 1, 0)]
    {
        world.put(workload(uid, queue, count, priority));
    }
    world.cycle();
    assert_eq!(world.victims(), [("victim", "InCohortReclamation")]);
    assert!(world.is_admitted("second"));
    assert_eq!(world.reason("last"), &PendingReason::NoLongerFits);
}

/// One of its pod sets was found a flavor, the other none: with what it would use of the first its cohort has the larger share.
#[test]
fn who_finds_nothing_has_its_turn_by_what_it_was_found() {
    let mut events = vec![pool("root", None, 4, ONE), pool("branch", Some("root"), 0, ONE)];
    events.extend(member("owner", "branch", 5, ONE));
    events.extend(member("sibling", "branch", 0, ONE));
    events.extend(member("other", "root", 0, ONE));
    let mut world = fair(FairSharing::default(), events);
    world.put(workload("runs", "sibling", 5, 0));
    world.settle();
    let mut nothing = workload("nothing", "owner", 5, 0);
    let more = PodSet {
        name: "more".into(),
        count: 1,
        requests: [("memory".into(), 1)].into(),
        ..nothing.pod_sets[0].clone()
    };
    add_pod_set(&mut nothing, more);
    world.put(nothing);
    world.put(workload("last", "sibling", 2, 0));
    world.put(workload("second", "other", 3, 0));
    world.cycle();
    assert!(world.is_admitted("second"));
    assert_eq!(world.reason("nothing").token(), "NoMatchingFlavor");
    assert_eq!(world.reason("last"), &PendingReason::NoLongerFits);
}

#[test]
fn of_two_alike_the_one_of_a_cohort_comes_first() {
    let mut events = vec![pool("root", None, 1, ONE), pool("team", Some("root"), 0, ONE)];
    events.extend(member("x", "team", 0, ONE));
    events.extend(member("b", "root", 0, ONE));
    let mut world = fair(FairSharing::default(), events);
    world.put(workload("a", "b", 1, 0));
    world.put(workload("z", "x", 1, 0));
    world.cycle();
    assert!(world.is_admitted("z") && !world.is_admitted("a"), "{:?}", world.admissions);
}

/// In Kueue's snapshot they hold what they have until their reservation ends.
#[test]
fn who_was_told_to_leave_before_counts_in_the_share_of_its_queue() {
    let events = member("a", "pool", 4, ONE).into_iter().chain(member("b", "pool", 2, ONE));
    let mut world = fair(FairSharing::FinalThenInitialShare, events.collect());
    world.put(workload("old", "a", 4, 0));
    world.settle();
    world.begins_to_leave("old");
    world.put(workload("a-new", "a", 2, 10));
    world.put(workload("b-new", "b", 2, 0));
    world.settle();
    assert!(
        world.is_admitted("b-new"),
        "it borrows nothing, and the other would: {:?}",
        world.reason("b-new")
    );
    assert!(!world.is_admitted("a-new"));
    world.standing("old", Standing::Pending);
    world.settle();
    assert!(world.is_admitted("a-new"));
}
