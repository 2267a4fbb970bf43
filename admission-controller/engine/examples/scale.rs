//! How long decisions take with many workloads waiting: Kueue's own performance scenario (5 cohorts of 6 queues, 15,000
//! workloads of three sizes), without an API server.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a measurement reads the clock")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::time::Instant;

use quota_engine::Event;
use quota_engine::input::*;
use support::*;

fn main() {
    let mut events = vec![Event::Flavor(flavor("a100"))];
    for cohort in 0..5 {
        for queue in 0..6 {
            let name = format!("cq-{cohort}-{queue}");
            let mut spec = cluster_queue(
                &name,
                Some(&format!("cohort-{cohort}")),
                gpus(&[("a100", quota(20, Some(100), None))]),
            );
            spec.preemption.reclaim_within_cohort = ReclaimWithinCohort::Any;
            spec.preemption.within_cluster_queue = WithinClusterQueue::LowerPriority;
            events.push(Event::ClusterQueue(spec));
            events.push(Event::LocalQueue(local_queue(&name)));
        }
    }
    let mut world = World::new(events);
    let mut number = 0;
    for queue in (0..30).map(|index| format!("cq-{}-{}", index / 6, index % 6)) {
        for (count, size, priority) in [(350, 1, 50), (100, 5, 100), (50, 20, 200)] {
            for _ in 0..count {
                number += 1;
                let mut one = workload(&format!("w{number:05}"), &queue, size, priority);
                one.queued_at_ms = number;
                world.put(one);
            }
        }
    }
    let begun = Instant::now();
    let (mut decisions, mut slowest, mut cursor) = (0u32, 0u128, 0usize);
    loop {
        let step = Instant::now();
        let decided = world.engine.decide(1_000);
        slowest = slowest.max(step.elapsed().as_micros());
        decisions += u32::try_from(decided.len()).unwrap();
        let nothing = decided.is_empty();
        for decision in decided {
            world.carry_out(decision);
        }
        for evict in std::mem::take(&mut world.evictions) {
            world.standing(evict.victim.as_str(), Standing::Pending);
        }
        if nothing || cursor < world.admissions.len() {
            let Some(uid) = world.admissions.get(cursor).cloned() else { break };
            cursor += 1;
            if matches!(world.workloads[&uid].standing, Standing::Reserved { evicted: false, .. }) {
                world.standing(uid.as_str(), Standing::Finished);
            }
        }
    }
    let total = begun.elapsed();
    let finished = world.workloads.values().filter(|one| one.standing == Standing::Finished).count();
    println!(
        "{finished} of {number} finished, {decisions} decisions in {total:?}, slowest call {slowest} us"
    );
}
