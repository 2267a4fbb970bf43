//! How long it takes to place 1,000 pods on 5,000 nodes, to find victims among 700 workloads on 2,000 nodes where there is quota
//! enough, but not in one rack, and to look at the heads of 30 queues that have places on 640 nodes and wait for quota.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a measurement reads the clock")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use model::ResourceName;
use quota_engine::input::*;
use quota_engine::topology::{HOSTNAME, Node, Spread};
use quota_engine::{Decision, Event};
use support::*;

const RACK: &str = "rack";
const NODES_OF_A_RACK: usize = 40;
const ROUNDS: usize = 20;

fn nodes(count: usize) -> impl Iterator<Item = Event> {
    let label = |key: &str, value: String| (key.to_owned(), value);
    (0..count).map(move |index| {
        let name = format!("n{index:05}");
        Event::Node(Node {
            labels: [
                label("gpu-type", "a100".into()),
                label("block", format!("b{}", index / NODES_OF_A_RACK / 10)),
                label(RACK, format!("r{}", index / NODES_OF_A_RACK)),
                label(HOSTNAME, name.clone()),
            ]
            .into(),
            name: name.into(),
            taints: Vec::new(),
            allocatable: [(ResourceName::from(GPU), 8), (ResourceName::from(ResourceName::PODS), 110)].into(),
            ready: true,
        })
    })
}

fn world(count: usize) -> World {
    let flavor = Flavor { topology: Some("racks".into()), ..flavor("a100") };
    let levels = vec!["block".to_owned(), RACK.to_owned(), HOSTNAME.to_owned()];
    let mut queue = cluster_queue("q", None, gpus(&[("a100", quota(1_000_000, None, None))]));
    queue.preemption.within_cluster_queue = WithinClusterQueue::LowerPriority;
    let events = vec![
        Event::Flavor(flavor),
        Event::Topology("racks".into(), levels),
        Event::ClusterQueue(queue),
        Event::LocalQueue(local_queue("q")),
    ];
    World::new(events.into_iter().chain(nodes(count)))
}

fn placed(uid: &str, pods: i64, each: i64, priority: i32, spread: Spread) -> Workload {
    placed_by("q", uid, pods, each, priority, spread)
}

fn placed_by(queue: &str, uid: &str, pods: i64, each: i64, priority: i32, spread: Spread) -> Workload {
    let mut one = workload(uid, queue, pods, priority);
    pod_set(&mut one).requests = [(ResourceName::from(GPU), each)].into();
    pod_set(&mut one).pod_requests = Arc::new([(ResourceName::from(GPU), each)].into());
    pod_set(&mut one).topology = Some(TopologyWish { spread, layers: Vec::new() });
    one
}

fn main() {
    let mut best = Duration::MAX;
    let mut world_of_5000 = world(5_000);
    world_of_5000.settle();
    for round in 0..ROUNDS {
        let uid = format!("w{round}");
        world_of_5000.put(placed(&uid, 1_000, 1, 0, Spread::Preferred("block".into())));
        let begun = Instant::now();
        let decided = world_of_5000.engine.decide(1_000);
        best = best.min(begun.elapsed());
        assert!(matches!(decided[..], [Decision::Reserve(_)]), "{decided:?}");
        for decision in decided {
            world_of_5000.carry_out(decision);
        }
        world_of_5000.standing(&uid, Standing::Finished);
    }
    println!("1,000 pods on 5,000 nodes: {best:?}");
    println!("victims found in {:?}", victims());
    println!("30 heads without quota looked at in {:?}", heads_without_quota());
}

/// What was found is known while nothing changes, so every round has a world of its own.
fn victims() -> Duration {
    let mut best = Duration::MAX;
    for round in 0..5 {
        let mut world = world(2_000);
        for index in 0..700 {
            world.put(placed(&format!("low{index:03}"), 22, 1, 0, Spread::Preferred(RACK.into())));
            for decision in world.engine.decide(1_000) {
                world.carry_out(decision);
            }
        }
        world.put(placed("high", 40, 8, 10, Spread::Required(RACK.into())));
        let begun = Instant::now();
        let decided = world.engine.decide(1_000);
        best = best.min(begun.elapsed());
        let victims = decided.iter().filter(|decision| matches!(decision, Decision::Evict(_))).count();
        assert!(victims > 0, "{decided:?}");
        if round == 0 {
            println!("{} candidates on 2,000 nodes, {victims} victims", world.admissions.len());
        }
    }
    best
}

/// Two workloads of each queue run on all of its quota, and others wait; each round one ends, and the next begins.
fn heads_without_quota() -> Duration {
    let mut world = world(640);
    let queues: Vec<String> = (0..30).map(|index| format!("cq{index:02}")).collect();
    for queue in &queues {
        let mut spec = cluster_queue(queue, Some("pool"), gpus(&[("a100", quota(4, None, None))]));
        spec.preemption.within_cluster_queue = WithinClusterQueue::LowerPriority;
        world.engine.apply(Event::ClusterQueue(spec));
        world.engine.apply(Event::LocalQueue(local_queue(queue)));
    }
    let job = |queue: &str, number: usize| {
        placed_by(queue, &format!("{queue}-{number:02}"), 2, 1, 0, Spread::Required(RACK.into()))
    };
    for (queue, number) in queues.iter().flat_map(|queue| (0..ROUNDS + 3).map(move |number| (queue, number)))
    {
        world.put(job(queue, number));
    }
    world.settle();
    let mut best = Duration::MAX;
    for round in 0..ROUNDS {
        let before = world.admissions.len();
        world.standing(&format!("cq00-{round:02}"), Standing::Finished);
        let begun = Instant::now();
        loop {
            let decided = world.engine.decide(1_000);
            if decided.is_empty() {
                break;
            }
            decided.into_iter().for_each(|decision| world.carry_out(decision));
        }
        best = best.min(begun.elapsed());
        assert!(world.admissions.len() > before);
    }
    best
}
