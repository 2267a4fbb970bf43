//! Bugs that Kueue had, as scenarios. The numbers are those of its issues and pull requests.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use model::ResourceName;
use quota_engine::input::*;
use quota_engine::*;
use support::*;

/// A queue in cohort `pool` that takes back from anybody what is its own, with its LocalQueue.
fn reclaiming(name: &str, nominal: i64) -> [Event; 2] {
    let mut queue = cluster_queue(name, Some("pool"), gpus(&[("a100", quota(nominal, None, None))]));
    queue.preemption.reclaim_within_cohort = ReclaimWithinCohort::Any;
    [Event::ClusterQueue(queue), Event::LocalQueue(local_queue(name))]
}

fn world<const N: usize>(queues: [[Event; 2]; N]) -> World {
    World::new([Event::Flavor(flavor("a100"))].into_iter().chain(queues.into_iter().flatten()))
}

fn leaves(world: &mut World, uid: &str) {
    world.standing(uid, Standing::Pending);
    world.settle();
}

fn finishes(world: &mut World, uid: &str) {
    world.standing(uid, Standing::Finished);
    world.settle();
}

fn evictions_of(world: &World, uid: &str) -> usize {
    world.evictions.iter().filter(|one| one.victim.to_string() == uid).count()
}

/// What a queue's workloads hold, of those that were not told to leave too.
fn held(world: &World, queue: &str) -> i64 {
    let report = world.engine.cluster_queue_report(&queue.into()).unwrap();
    report.reservation.iter().map(|one| one.total).sum()
}

/// Two heads of one cycle borrow the same room.
#[test]
fn kueue_804_heads_of_one_cycle_do_not_both_take_what_is_there_for_one() {
    let mut world = world([reclaiming("a", 4), reclaiming("b", 4), reclaiming("c", 4)]);
    world.put(workload("a1", "a", 6, 0));
    world.put(workload("a2", "a", 6, 0));
    world.settle();
    assert_eq!(held(&world, "a"), 12);
    world.put(workload("b1", "b", 4, 0));
    world.put(workload("c1", "c", 4, 0));
    world.settle();
    // One victim makes room for one and a half: both are needed.
    assert_eq!(world.victims().len(), 2, "{:?}", world.victims());
    assert!(!world.is_admitted("b1") && !world.is_admitted("c1"), "nobody has left yet");
    leaves(&mut world, "a1");
    leaves(&mut world, "a2");
    assert!(world.is_admitted("b1") && world.is_admitted("c1"));
    assert!(held(&world, "a") + held(&world, "b") + held(&world, "c") <= 12);
}

/// Jobs come and go quickly: what is counted stays what is held.
#[test]
fn kueue_1450_churn_neither_blocks_the_queue_nor_overcommits_it() {
    let mut world = world([reclaiming("a", 4), reclaiming("b", 4)]);
    for round in 0..50 {
        for queue in ["a", "b"] {
            world.put(workload(&format!("{queue}{round}"), queue, 1 + round % 5, 0));
        }
        let mut decisions = world.engine.decide(round);
        if round % 3 == 0 {
            // Deleted while its admission is being written.
            world.engine.apply(Event::WorkloadGone(format!("a{round}").as_str().into()));
            decisions.retain(
                |one| !matches!(one, Decision::Reserve(one) if one.workload.to_string() == format!("a{round}")),
            );
            world.workloads.remove(&format!("a{round}").as_str().into());
        }
        decisions.into_iter().for_each(|decision| world.carry_out(decision));
        world.settle();
        assert!(held(&world, "a") + held(&world, "b") <= 8);
        if let Some(uid) = holders(&world).into_iter().next() {
            finishes(&mut world, &uid.to_string());
        }
    }
    let mut turns = 0;
    while let Some(uid) = holders(&world).into_iter().next() {
        finishes(&mut world, &uid.to_string());
        turns += 1;
        assert!(turns < 500);
    }
    let waiting = world.workloads.values().filter(|one| one.standing == Standing::Pending);
    assert!(waiting.count() == 0, "everybody had a turn");
}

/// Who has quota, be it that they were told to leave.
fn holders(world: &World) -> Vec<Uid> {
    let holds = |one: &&Workload| matches!(one.standing, Standing::Reserved { .. });
    world.workloads.values().filter(holds).map(|one| one.uid.clone()).collect()
}

/// A restart finds finished workloads, in whatever order it sees the objects.
#[test]
fn kueue_1654_a_finished_workload_is_not_admitted_again() {
    let mut finished = workload("done", "cq", 2, 9);
    finished.standing = Standing::Finished;
    let queue = cluster_queue("cq", None, gpus(&[("a100", quota(2, None, None))]));
    let mut world = World::new([]);
    world.put(finished);
    world.put(workload("waiting", "cq", 2, 0));
    assert_eq!(world.engine.decide(0), []);
    world.engine.apply(Event::LocalQueue(local_queue("cq")));
    world.engine.apply(Event::ClusterQueue(queue));
    world.engine.apply(Event::Flavor(flavor("a100")));
    world.engine.forget_what_was_said();
    world.settle();
    assert_eq!(world.admissions, [Uid::from("waiting")]);
}

/// A queue that borrows no longer names the resource: what it uses of it is used all the same.
#[test]
fn kueue_2678_and_2873_what_is_used_counts_though_the_queue_lost_the_resource() {
    let mut world = world([reclaiming("cq1", 1), reclaiming("cq2", 2)]);
    world.put(workload("wl1", "cq1", 3, 0));
    world.settle();
    assert!(world.is_admitted("wl1"));
    let mut queue = cluster_queue("cq1", Some("pool"), Vec::new());
    queue.preemption.reclaim_within_cohort = ReclaimWithinCohort::Any;
    let mut cq2 = cluster_queue("cq2", Some("pool"), gpus(&[("a100", quota(2, None, None))]));
    cq2.preemption.reclaim_within_cohort = ReclaimWithinCohort::Never;
    world.engine.apply(Event::ClusterQueue(queue));
    world.engine.apply(Event::ClusterQueue(cq2));
    world.put(workload("wl2", "cq2", 1, 0));
    world.settle();
    assert!(!world.is_admitted("wl2"), "three of two are in use");
    finishes(&mut world, "wl1");
    assert!(world.is_admitted("wl2"));
}

/// Two queues under equal shares displace each other's workloads for ever.
#[test]
fn kueue_3779_fair_sharing_does_not_preempt_in_a_circle() {
    for strategies in [FairSharing::FinalThenInitialShare, FairSharing::FinalShare, FairSharing::InitialShare]
    {
        let queues = [reclaiming("guaranteed", 4), reclaiming("best-a", 0), reclaiming("best-b", 0)];
        let settings = Settings { fair_sharing: Some(strategies), ..Settings::default() };
        let events = [Event::Flavor(flavor("a100"))].into_iter().chain(queues.into_iter().flatten());
        let mut world = World::with(settings, events);
        for index in 0..3 {
            world.put(workload(&format!("a{index}"), "best-a", 1, 0));
            world.put(workload(&format!("b{index}"), "best-b", 1, 0));
        }
        world.put(workload("g0", "guaranteed", 1, 0));
        for _ in 0..40 {
            world.settle();
            let leaving = world.leaving();
            leaving.iter().for_each(|uid| world.standing(&uid.to_string(), Standing::Pending));
        }
        assert!(world.evictions.len() <= 6, "{strategies:?}: {:?}", world.victims());
    }
}

/// Two borrowers and a Cohort that has a pool of its own on top.
#[test]
fn kueue_5289_a_cohorts_own_pool_is_counted_once() {
    let mut world = world([reclaiming("a", 2), reclaiming("b", 2)]);
    world.engine.apply(Event::Cohort(Cohort {
        name: "pool".into(),
        uid: "pool".into(),
        parent: None,
        groups: gpus(&[("a100", quota(4, None, None))]),
        weight: Weight::default(),
    }));
    world.put(workload("a1", "a", 4, 0));
    world.settle();
    world.put(workload("b1", "b", 4, 0));
    world.settle();
    assert!(world.is_admitted("a1") && world.is_admitted("b1"), "eight in all");
    world.put(workload("b2", "b", 1, 0));
    world.settle();
    assert!(!world.is_admitted("b2"));
}

/// The quota of a queue that is gone is nobody's.
#[test]
fn kueue_5937_and_5985_what_a_deleted_queue_lent_cannot_be_borrowed() {
    let mut world = world([reclaiming("lender", 4), reclaiming("borrower", 1)]);
    world.engine.apply(Event::ClusterQueueGone("lender".into(), "lender".into()));
    world.put(workload("greedy", "borrower", 3, 0));
    world.settle();
    assert!(!world.is_admitted("greedy"));
    assert_eq!(world.reason("greedy").token(), "ExceedsMaxQuota");
    reclaiming("lender", 4).into_iter().for_each(|event| world.engine.apply(event));
    world.settle();
    assert!(world.is_admitted("greedy"));
}

/// One that can never be admitted yields for a cycle to one whose victims have to leave again and again.
#[test]
fn kueue_6947_a_head_that_does_not_fit_does_not_keep_others_from_reclaiming() {
    let mut world = world([reclaiming("a", 3), reclaiming("b", 0)]);
    world.put(workload("b1", "b", 1, 0));
    world.settle();
    world.put(workload("a4", "a", 4, 0));
    world.settle();
    world.put(workload("a3", "a", 3, 0));
    world.settle();
    assert_eq!(world.victims(), [("b1", "InCohortReclamation")]);
    leaves(&mut world, "b1");
    assert!(world.is_admitted("a3"));
    assert_eq!(evictions_of(&world, "b1"), 1, "not again");
    assert!(!world.is_admitted("b1") && !world.is_admitted("a4"));
}

/// Pod sets of no pods, or of pods that ask for nothing: admitted, and no reason to look again and again.
#[test]
fn kueue_9894_and_10478_nothing_to_ask_for_is_no_endless_loop() {
    let mut world = world([reclaiming("a", 1)]);
    let mut nothing = workload("nothing", "a", 1, 0);
    pod_set(&mut nothing).requests.clear();
    let mut nobody = workload("nobody", "a", 0, 0);
    pod_set(&mut nobody).min_count = Some(0);
    let mut both = workload("both", "a", 3, 0);
    let more = PodSet { name: "none".into(), count: 0, ..both.pod_sets[0].clone() };
    add_pod_set(&mut both, more);
    [nothing, nobody, both].into_iter().for_each(|one| world.put(one));
    world.settle();
    assert!(world.engine.decide(1_000).is_empty() && !world.engine.has_more());
    assert!(world.is_admitted("nothing") && world.is_admitted("nobody"));
    assert!(!world.is_admitted("both"), "three of one");
}

/// Sums and products of what users write beyond 64 bits.
#[test]
fn kueue_11139_numbers_beyond_64_bits_do_not_wrap() {
    let mut world = world([reclaiming("a", 4)]);
    for (uid, count, each) in [("sum", 2, i64::MAX), ("product", i64::MAX, i64::MAX), ("one", 1, i64::MAX)] {
        let mut one = workload(uid, "a", count, 0);
        pod_set(&mut one).requests = [(ResourceName::from(GPU), each)].into();
        let more = PodSet { name: "more".into(), ..one.pod_sets[0].clone() };
        add_pod_set(&mut one, more);
        world.put(one);
    }
    world.put(workload("sane", "a", 4, 0));
    world.settle();
    for uid in ["sum", "product", "one"] {
        assert_eq!(world.reason(uid).token(), "ExceedsMaxQuota", "{uid}");
    }
    assert!(world.is_admitted("sane"));
    assert_eq!(held(&world, "a"), 4);
}

/// Whoever is compared, and in whatever order things come: the same are admitted and the same are victims.
#[test]
fn kueue_11198_the_order_of_arrival_does_not_change_who_is_a_victim() {
    let mut told: Option<Vec<(String, &'static str)>> = None;
    for seed in 0..20 {
        let mut queue = cluster_queue("cq", None, gpus(&[("a100", quota(6, None, None))]));
        queue.preemption.within_cluster_queue = WithinClusterQueue::LowerPriority;
        let mut world = World::new([
            Event::Flavor(flavor("a100")),
            Event::ClusterQueue(queue),
            Event::LocalQueue(local_queue("cq")),
        ]);
        let mut small: Vec<(usize, i32)> = (0..6).map(|index| (index, i32::from(index % 2 == 0))).collect();
        fastrand::Rng::with_seed(seed).shuffle(&mut small);
        for (index, priority) in small {
            world.put(workload(&format!("w{index}"), "cq", 1, priority));
        }
        world.settle();
        world.put(workload("large", "cq", 4, 5));
        world.settle();
        let victims: Vec<_> =
            world.victims().into_iter().map(|(uid, reason)| (uid.to_owned(), reason)).collect();
        assert_eq!(victims.len(), 4);
        assert_eq!(told.get_or_insert_with(|| victims.clone()), &victims, "seed {seed}");
    }
}

/// A victim whose admission is not written yet: nothing is stuck, nothing is oversubscribed.
#[test]
fn kueue_11480_a_victim_whose_admission_is_still_being_written_holds_nobody_up_for_ever() {
    for outcome in [Outcome::NotWritten, Outcome::Unsettled, Outcome::Written(9_999)] {
        let mut queue = cluster_queue("cq", None, gpus(&[("a100", quota(2, None, None))]));
        queue.preemption.within_cluster_queue = WithinClusterQueue::LowerPriority;
        let mut world = World::new([
            Event::Flavor(flavor("a100")),
            Event::ClusterQueue(queue),
            Event::LocalQueue(local_queue("cq")),
        ]);
        world.put(workload("low", "cq", 2, 0));
        let decisions = world.engine.decide(0);
        let [Decision::Reserve(reserve)] = &decisions[..] else { panic!("{decisions:?}") };
        world.put(workload("high", "cq", 2, 9));
        let before = world.engine.decide(0);
        assert!(
            !before.iter().any(|one| matches!(one, Decision::Evict(_) | Decision::Reserve(_))),
            "{before:?}"
        );
        match outcome.clone() {
            Outcome::Written(_) => world.carry_out(decisions[0].clone()),
            Outcome::Unsettled => {
                world.engine.written(reserve.id, Outcome::Unsettled);
                // The object is seen again: it was not written.
                world.standing("low", Standing::Pending);
            }
            other => world.engine.written(reserve.id, other),
        }
        world.settle();
        if evictions_of(&world, "low") > 0 {
            leaves(&mut world, "low");
        }
        assert!(world.is_admitted("high"), "{outcome:?}");
        assert_eq!(held(&world, "cq"), 2, "{outcome:?}");
    }
}

/// Victims of another queue leave at different times: what the first gives back is not theirs again meanwhile.
#[test]
fn kueue_13662_and_13797_victims_that_leave_one_after_the_other_do_not_take_their_room_back() {
    let mut world = world([reclaiming("owner", 4), reclaiming("guest", 2)]);
    world.put(workload("a", "guest", 3, 9));
    world.put(workload("b", "guest", 3, 9));
    world.settle();
    world.put(workload("preemptor", "owner", 4, 0));
    world.settle();
    assert_eq!(world.victims().len(), 2);
    leaves(&mut world, "a");
    assert!(!world.is_admitted("a"), "its room is promised");
    leaves(&mut world, "b");
    assert!(world.is_admitted("preemptor"));
    assert_eq!((evictions_of(&world, "a"), evictions_of(&world, "b")), (1, 1));
}

/// A negative number that somebody wrote into a status or a spec takes nothing away from what others use.
#[test]
fn kueue_14367_a_negative_amount_cancels_nothing() {
    let mut world = world([reclaiming("a", 4)]);
    let mut strange = workload("strange", "a", 1, 0);
    strange.standing = Standing::Reserved {
        admission: Admission {
            cluster_queue: "a".into(),
            pod_sets: vec![PodSetAssignment {
                name: "main".into(),
                flavors: [(GPU.into(), "a100".into())].into(),
                usage: [(GPU.into(), -4)].into(),
                count: 1,
                ..Default::default()
            }],
        }
        .into(),
        admitted: true,
        evicted: false,
        since_ms: 0,
    };
    world.put(strange);
    world.put(workload("large", "a", 5, 0));
    world.put(workload("right", "a", 4, 0));
    world.settle();
    assert!(world.is_admitted("right") && !world.is_admitted("large"));
    assert_eq!(held(&world, "a"), 4);
}

/// An assignment with fewer pod sets than the workload has, or for a pod set that it has not.
#[test]
fn kueue_13223_an_assignment_that_does_not_match_its_workload_is_counted_as_it_is() {
    let mut world = world([reclaiming("a", 4)]);
    let mut torn = workload("torn", "a", 1, 0);
    let more = PodSet { name: "second".into(), count: 2, ..torn.pod_sets[0].clone() };
    add_pod_set(&mut torn, more);
    let of = |name: &str, amount| PodSetAssignment {
        name: name.into(),
        flavors: [(GPU.into(), "a100".into())].into(),
        usage: [(GPU.into(), amount)].into(),
        count: amount,
        ..Default::default()
    };
    torn.standing = Standing::Reserved {
        admission: Admission { cluster_queue: "a".into(), pod_sets: vec![of("stranger", 3)] }.into(),
        admitted: true,
        evicted: false,
        since_ms: 0,
    };
    world.put(torn);
    world.put(workload("next", "a", 2, 0));
    world.settle();
    assert_eq!(held(&world, "a"), 3);
    assert!(!world.is_admitted("next"));
    finishes(&mut world, "torn");
    assert!(world.is_admitted("next"));
}
