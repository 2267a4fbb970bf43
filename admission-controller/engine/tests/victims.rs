//! Who is displaced, and who of several.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use quota_engine::input::*;
use quota_engine::*;
use support::*;

/// A queue of the pool that may take back from anybody.
fn member(name: &str, nominal: i64) -> ClusterQueue {
    let mut queue = cluster_queue(name, Some("pool"), gpus(&[("f", quota(nominal, None, None))]));
    queue.preemption.reclaim_within_cohort = ReclaimWithinCohort::Any;
    queue
}

#[test]
fn who_was_displaced_takes_back_what_a_change_of_quota_has_made_its_own() {
    let fair = Settings { fair_sharing: Some(FairSharing::default()), ..Settings::default() };
    let right = "InCohortReclamation";
    for settings in [Settings::default(), fair] {
        let mut events = vec![Event::Flavor(flavor("f"))];
        for name in ["a", "b"] {
            events.extend([Event::ClusterQueue(member(name, 5)), Event::LocalQueue(local_queue(name))]);
        }
        let mut world = World::with(settings, events);
        world.put(workload("large", "b", 10, 0));
        world.settle();
        world.put(workload("small", "a", 5, 0));
        world.settle();
        world.standing("large", Standing::Pending);
        world.settle();
        assert!(world.is_admitted("small") && !world.is_admitted("large"));
        for (name, nominal) in [("a", 0), ("b", 10)] {
            world.engine.apply(Event::ClusterQueue(member(name, nominal)));
        }
        world.settle();
        assert_eq!(world.victims(), [("large", right), ("small", right)]);
    }
}

/// Another writer was faster than the admission of whom somebody left for. It is decided again on the object as it is now, before
/// one that borrows less can take the room, so that nobody else has to leave.
#[test]
fn room_that_others_left_is_not_lost_to_a_write_that_changes_nothing() {
    let of = |name: &str, nominal: i64| {
        cluster_queue(name, Some("pool"), gpus(&[("f", quota(nominal, None, None))]))
    };
    let (lends, mut borrows) = (of("lends", 3), of("borrows", 2));
    borrows.preemption = Preemption {
        within_cluster_queue: WithinClusterQueue::LowerPriority,
        reclaim_within_cohort: ReclaimWithinCohort::LowerPriority,
        borrow_within_cohort: BorrowWithinCohort::LowerPriority { threshold: None },
    };
    let queues = [lends, borrows].map(Event::ClusterQueue);
    let locals = ["lends", "borrows"].map(|name| Event::LocalQueue(local_queue(name)));
    let mut world = World::new([Event::Flavor(flavor("f"))].into_iter().chain(queues).chain(locals));
    world.put(workload("victim", "borrows", 4, 0));
    world.settle();
    world.put(workload("urgent", "borrows", 3, 20));
    world.settle();
    world.put(workload("owner", "lends", 3, 10));
    world.settle();
    assert_eq!(world.leaving(), [Uid::from("victim")]);
    world.standing("victim", Standing::Pending);
    let [Decision::Reserve(first)] = &world.engine.decide(1_000)[..] else { panic!("there is room") };
    assert_eq!(first.workload, "urgent".into());

    let urgent = world.workloads[&Uid::from("urgent")].clone();
    world.put(urgent);
    let [Decision::Reserve(second)] = &world.engine.decide(1_000)[..] else { panic!("there is room still") };
    assert_eq!(second.workload, "urgent".into());
    assert_eq!(second.based_on, world.workloads[&Uid::from("urgent")].version);
    // What became of the first is no news any more.
    world.engine.written(first.id, Outcome::NotWritten);
    world.carry_out(Decision::Reserve(second.clone()));
    world.settle();
    assert!(world.is_admitted("urgent"));
    assert_eq!(world.evictions.len(), 1);
}

/// A guest borrows what is the owner's, who comes for it.
fn owner_and_guest() -> World {
    let mut world = World::new([Event::Flavor(flavor("f"))]);
    for name in ["a", "b"] {
        world.engine.apply(Event::ClusterQueue(member(name, 5)));
        world.engine.apply(Event::LocalQueue(local_queue(name)));
    }
    world.put(workload("guest", "b", 10, 0));
    world.settle();
    world.put(workload("owner", "a", 5, 0));
    world
}

#[test]
fn who_took_a_place_takes_it_again_when_it_lost_it_for_another_reason_than_to_make_way() {
    let mut world = owner_and_guest();
    for _ in 0..2 {
        world.settle();
        world.standing("guest", Standing::Pending);
        world.settle();
        assert!(world.is_admitted("owner"));
        world.standing("owner", Standing::OnHold);
        world.settle();
        assert!(world.is_admitted("guest"));
        world.standing("owner", Standing::Pending);
    }
    assert_eq!(world.victims(), [("guest", "InCohortReclamation"); 2]);
}

#[test]
fn who_never_had_the_place_that_somebody_left_for_it_has_taken_none() {
    let mut world = owner_and_guest();
    for _ in 0..2 {
        world.settle();
        assert_eq!(world.leaving(), [Uid::from("guest")]);
        world.standing("owner", Standing::OnHold);
        world.standing("guest", Standing::Pending);
        world.settle();
        assert!(world.is_admitted("guest"));
        world.standing("owner", Standing::Pending);
    }
    assert_eq!(world.victims(), [("guest", "InCohortReclamation"); 2]);
}

#[test]
fn who_loses_the_admission_for_which_somebody_left_takes_the_place_again() {
    let mut world = owner_and_guest();
    world.settle();
    world.standing("guest", Standing::Pending);
    let [Decision::Reserve(lost)] = &world.engine.decide(1_000)[..] else { panic!("there is room") };
    world.standing("owner", Standing::OnHold);
    world.engine.written(lost.id, Outcome::NotWritten);
    world.settle();
    assert!(world.is_admitted("guest"));
    world.standing("owner", Standing::Pending);
    world.settle();
    assert_eq!(world.victims(), [("guest", "InCohortReclamation"); 2]);
}

/// Of three who leave for one that is not the first of its queue one cannot be told, or somebody else writes to it meanwhile: it is
/// told again. Its room, and that of the others, would go to whoever has the turn, and somebody else would have to leave besides.
#[test]
fn who_could_not_be_told_to_leave_is_told_again() {
    let mut owner = cluster_queue("owner", Some("pool"), gpus(&[("f", quota(8, None, None))]));
    owner.preemption.reclaim_within_cohort = ReclaimWithinCohort::Any;
    let borrows = cluster_queue("borrows", Some("pool"), gpus(&[("f", quota(2, None, None))]));
    for conflict in [true, false] {
        let mut world = World::new([
            Event::Flavor(flavor("f")),
            Event::ClusterQueue(owner.clone()),
            Event::ClusterQueue(borrows.clone()),
            Event::LocalQueue(local_queue("owner")),
            Event::LocalQueue(local_queue("borrows")),
        ]);
        world.put(workload("large", "borrows", 4, 5));
        for uid in ["one", "two", "three"] {
            world.put(workload(uid, "borrows", 2, 0));
        }
        world.settle();
        world.put(workload("never", "owner", 99, 9));
        world.put(workload("waits", "borrows", 2, 0));
        world.put(workload("reclaims", "owner", 6, 0));
        let decisions = world.engine.decide(1_000);
        assert_eq!(decisions.len(), 3, "{decisions:?}");
        let mut told_again = Vec::new();
        for decision in decisions {
            let Decision::Evict(evict) = decision else { panic!("{decision:?}") };
            if evict.victim != "two".into() {
                world.carry_out(Decision::Evict(evict));
                continue;
            }
            if conflict {
                let written_by_others = world.workloads[&evict.victim].clone();
                world.put(written_by_others);
            }
            world.engine.written(evict.id, Outcome::NotWritten);
            world.engine.audit().unwrap();
            told_again = world.engine.decide(1_000);
        }
        let [Decision::Evict(again)] = &*told_again else { panic!("{conflict}: {told_again:?}") };
        assert_eq!((&again.victim, again.reason.token()), (&"two".into(), "Preempted"), "{conflict}");
        assert_eq!(again.based_on, world.workloads[&again.victim].version);
        world.carry_out(told_again.remove(0));
        for uid in ["one", "two", "three"] {
            world.standing(uid, Standing::Finished);
        }
        world.settle();
        assert!(world.is_admitted("reclaims") && world.is_admitted("large") && !world.is_admitted("waits"));
    }
}
