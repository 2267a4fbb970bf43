//! What is kept for a head that has a right to displace others, and finds nobody whom it may.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use quota_engine::input::*;
use quota_engine::*;
use support::*;

fn queue(name: &str, quota: Quota, preemption: Preemption) -> [Event; 2] {
    let mut queue = cluster_queue(name, Some("pool"), gpus(&[("f", quota)]));
    queue.preemption = preemption;
    [Event::ClusterQueue(queue), Event::LocalQueue(local_queue(name))]
}

/// The queue may use 8, and who leaves it uses as many until it has left: nothing of what others left free is its own.
#[test]
fn no_more_is_kept_than_the_queue_may_use_beside_those_who_leave_it() {
    let borrows = Preemption {
        reclaim_within_cohort: ReclaimWithinCohort::LowerPriority,
        borrow_within_cohort: BorrowWithinCohort::LowerPriority { threshold: None },
        ..Preemption::default()
    };
    let owns = Preemption { reclaim_within_cohort: ReclaimWithinCohort::Any, ..Preemption::default() };
    let queues = [
        queue("limited", quota(4, Some(4), None), borrows),
        queue("owner", quota(8, None, None), owns),
        queue("guest", quota(0, None, None), Preemption::default()),
    ];
    let mut world = World::new([Event::Flavor(flavor("f"))].into_iter().chain(queues.into_iter().flatten()));
    world.put(workload("leaves", "limited", 8, 0));
    world.settle();
    world.put(workload("owner", "owner", 8, 0));
    world.settle();
    assert_eq!(world.leaving(), [Uid::from("leaves")]);
    world.put(workload("head", "limited", 6, 0));
    let mut fits = workload("fits", "guest", 2, 0);
    fits.queued_at_ms = 1;
    world.put(fits);
    world.cycle();
    assert_eq!(world.reason("head").token(), "WaitingForQuota");
    assert!(world.is_admitted("fits"), "{:?}", world.reason("fits"));
}
