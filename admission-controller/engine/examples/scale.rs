//! How fast the engine decides, without an API server: many ClusterQueues, a long backlog, many that are blocked, and Kueue's
//! own performance scenario (5 cohorts of 6 queues, 15,000 workloads of three sizes).

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a measurement reads the clock")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::ops::AddAssign;
use std::time::{Duration, Instant};

use quota_engine::input::*;
use quota_engine::{Decision, Event, Outcome};
use support::*;

/// Each is measured so often, and the best counts: on a busy machine the others measure the neighbours.
const ROUNDS: usize = 5;

fn main() {
    let all: [(&str, fn()); 5] = [
        ("admissions", admissions),
        ("backlog", backlog),
        ("behind", behind_others),
        ("strict", beside_strict),
        ("churn", churn),
    ];
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    for (name, measure) in all {
        if wanted.is_empty() || wanted.iter().any(|one| one == name) {
            measure();
        }
    }
}

/// ClusterQueues without limits to speak of, each with its LocalQueue, ten to a cohort.
fn queues(count: usize, nominal: i64) -> Vec<Event> {
    let mut events = vec![Event::Flavor(flavor("a100"))];
    for queue in 0..count {
        let name = format!("cq-{queue}");
        let cohort = format!("cohort-{}", queue / 10);
        let spec = cluster_queue(&name, Some(&cohort), gpus(&[("a100", quota(nominal, None, None))]));
        events.extend([Event::ClusterQueue(spec), Event::LocalQueue(local_queue(&name))]);
    }
    events
}

/// What something took: by the clock, and of the processor. Where others use the machine too only the latter says much.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Spent {
    cpu: Duration,
    wall: Duration,
}

impl Spent {
    fn of<T>(work: impl FnOnce() -> T) -> (T, Self) {
        let (begun, cpu) = (Instant::now(), processor_time());
        let done = work();
        let wall = begun.elapsed();
        (done, Self { cpu: processor_time() - cpu, wall })
    }
}

impl AddAssign for Spent {
    fn add_assign(&mut self, more: Self) {
        (self.cpu, self.wall) = (self.cpu + more.cpu, self.wall + more.wall);
    }
}

/// Of this thread, as Linux counts it; 0 elsewhere.
fn processor_time() -> Duration {
    let counted = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(counted.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(0))
}

fn best(mut measure: impl FnMut() -> Spent) -> Spent {
    (0..ROUNDS).map(|_| measure()).min().unwrap()
}

/// Until the engine has nothing more to say, and how many workloads it admitted.
fn drain(world: &mut World) -> (Spent, usize) {
    let (mut spent, mut admitted, mut version) = (Spent::default(), 0, 1_000_000);
    loop {
        let (decisions, took) = Spent::of(|| world.engine.decide(1_000));
        spent += took;
        if decisions.is_empty() && !world.engine.has_more() {
            return (spent, admitted);
        }
        for decision in decisions {
            if let Decision::Reserve(reserve) = decision {
                admitted += 1;
                version += 1;
                world.engine.written(reserve.id, Outcome::Written(version));
            }
        }
    }
}

/// As the API server gives them.
fn uuid(number: usize) -> String {
    format!("00000000-0000-4000-8000-{number:012x}")
}

/// In every queue those of so many kinds take turns.
fn put_many(world: &mut World, workloads: usize, queues: usize, kinds: usize) {
    for number in 0..workloads {
        let count = 1 + number / queues % kinds;
        let mut one =
            workload(&uuid(number), &format!("cq-{}", number % queues), i64::try_from(count).unwrap(), 0);
        one.queued_at_ms = i64::try_from(number).unwrap();
        world.engine.apply(Event::Workload(Box::new(one)));
    }
}

/// Every workload fits: what one admission costs, where all of a queue ask for the same, where they are of four kinds, and where
/// each asks for something else.
fn admissions() {
    const WORKLOADS: usize = 100_000;
    const QUEUES: usize = 1_000;
    for (what, kinds) in [("alike", 1), ("of four kinds", 4), ("all different", WORKLOADS / QUEUES)] {
        let spent = best(|| {
            let mut world = World::new(queues(QUEUES, 10_000));
            world.engine.decide(1_000);
            put_many(&mut world, WORKLOADS, QUEUES, kinds);
            let (spent, admitted) = drain(&mut world);
            assert_eq!(admitted, WORKLOADS);
            spent
        });
        let Spent { cpu, wall } = spent;
        let each = cpu / u32::try_from(WORKLOADS).unwrap();
        let second = 1.0 / each.as_secs_f64() / 1e6;
        println!(
            "{WORKLOADS} admissions at {QUEUES} ClusterQueues, {what}: {cpu:.1?} of the processor ({wall:.1?}), {each:.2?} \
             each, {second:.2} million a second"
        );
    }
}

/// A long backlog in a few queues.
fn backlog() {
    const WORKLOADS: usize = 50_000;
    let spent = best(|| {
        let mut world = World::new(queues(30, 10_000));
        world.engine.decide(1_000);
        put_many(&mut world, WORKLOADS, 30, 1);
        let (spent, admitted) = drain(&mut world);
        assert_eq!(admitted, WORKLOADS);
        spent
    });
    let Spent { cpu, wall } = spent;
    println!("a backlog of {WORKLOADS}: {cpu:.1?} of the processor ({wall:.1?})");
}

/// One that fits, behind many that do not and all ask for something else.
fn behind_others() {
    const BLOCKED: i64 = 100_000;
    let spent = best(|| {
        let mut world = World::new(queues(1, 10));
        for number in 0..BLOCKED {
            let mut one = workload(&format!("b{number:06}"), "cq-0", 100 + number, 10);
            one.queued_at_ms = number;
            world.engine.apply(Event::Workload(Box::new(one)));
        }
        assert_eq!(drain(&mut world).1, 0);
        world.engine.apply(Event::Workload(Box::new(workload("fits", "cq-0", 1, 0))));
        let (spent, admitted) = drain(&mut world);
        assert_eq!(admitted, 1);
        spent
    });
    println!("one that fits behind {BLOCKED} that do not: {:.2?}", spent.wall);
}

/// A backlog in one queue, beside many StrictFIFO queues of other cohorts whose heads are blocked.
fn beside_strict() {
    const QUEUES: usize = 500;
    const WORKLOADS: usize = 5_000;
    let spent = best(|| {
        let mut world = World::new(queues(QUEUES, 10));
        for number in 0..QUEUES {
            let name = format!("cq-{number}");
            let mut spec = cluster_queue(
                &name,
                Some(&format!("cohort-{}", number / 10)),
                gpus(&[("a100", quota(10, None, None))]),
            );
            spec.strategy = QueueingStrategy::StrictFifo;
            world.engine.apply(Event::ClusterQueue(spec));
            world.put(workload(&format!("runs-{number}"), &name, 10, 0));
        }
        drain(&mut world);
        for number in 0..QUEUES {
            world.put(workload(&format!("blocked-{number}"), &format!("cq-{number}"), 10, 0));
        }
        let quota = quota(i64::from(u32::MAX), None, None);
        world.engine.apply(Event::ClusterQueue(cluster_queue("free", None, gpus(&[("a100", quota)]))));
        world.engine.apply(Event::LocalQueue(local_queue("free")));
        assert_eq!(drain(&mut world).1, 0);
        for number in 0..WORKLOADS {
            world.engine.apply(Event::Workload(Box::new(workload(&format!("w{number:06}"), "free", 1, 0))));
        }
        let (spent, admitted) = drain(&mut world);
        assert_eq!(admitted, WORKLOADS);
        spent
    });
    println!("{WORKLOADS} beside {QUEUES} blocked StrictFIFO queues: {:.1?} of the processor", spent.cpu);
}

/// Kueue's own scenario, with preemption, every write answered at once.
fn churn() {
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
    let (begun, cpu) = (Instant::now(), processor_time());
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
            world.standing(&evict.victim.to_string(), Standing::Pending);
        }
        if nothing || cursor < world.admissions.len() {
            let Some(uid) = world.admissions.get(cursor).cloned() else { break };
            cursor += 1;
            if matches!(world.workloads[&uid].standing, Standing::Reserved { evicted: false, .. }) {
                world.standing(&uid.to_string(), Standing::Finished);
            }
        }
    }
    let (wall, cpu) = (begun.elapsed(), processor_time() - cpu);
    let finished = world.workloads.values().filter(|one| one.standing == Standing::Finished).count();
    println!(
        "{finished} of {number} finished, {decisions} decisions: {cpu:.1?} of the processor ({wall:.1?}), slowest call {slowest} us"
    );
}
