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
