//! Random stories of nodes, pods and workloads that are placed by topology, on up to twelve nodes: the books are as a count
//! from scratch has them, no node is given away twice, and nobody waits for whom trying every domain finds a place.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{ResourceList, ResourceName};
use quota_engine::input::*;
use quota_engine::topology::{HOSTNAME, Node, SliceLayer, Spread};
use quota_engine::*;
use support::*;

const STORIES: u64 = 150;
const STEPS: usize = 60;
const RACK: &str = "rack";
/// GPUs of a node.
const GPUS: i64 = 4;

struct Story {
    rng: fastrand::Rng,
    world: World,
    /// Rack by node.
    nodes: BTreeMap<String, usize>,
    /// Node and GPUs of pods that are not placed here.
    others: BTreeMap<String, (String, i64)>,
    made: usize,
}

fn gpu(amount: i64) -> ResourceList {
    [(ResourceName::from(GPU), amount)].into()
}

fn racks(name: &str) -> Flavor {
    Flavor {
        topology: Some("racks".into()),
        node_labels: [("pool".to_owned(), "a".to_owned())].into(),
        ..flavor(name)
    }
}

fn levels() -> Event {
    Event::Topology("racks".into(), vec![RACK.to_owned(), HOSTNAME.to_owned()])
}

impl Story {
    fn new(seed: u64) -> Self {
        let mut events = vec![Event::Flavor(racks("one")), Event::Flavor(racks("two")), levels()];
        // Who may not reclaim has places kept for it while it is looked at, also from queues of other trees.
        let apart = seed % 2 == 1;
        for (name, flavor) in [("a", "one"), ("b", "one"), ("c", "two")] {
            let cohort = (name != "b" || !apart).then_some("pool");
            let mut queue = cluster_queue(name, cohort, gpus(&[(flavor, quota(100, None, None))]));
            queue.preemption.within_cluster_queue = WithinClusterQueue::LowerPriority;
            queue.preemption.reclaim_within_cohort =
                if apart { ReclaimWithinCohort::Never } else { ReclaimWithinCohort::Any };
            events.extend([Event::ClusterQueue(queue), Event::LocalQueue(local_queue(name))]);
        }
        let world = World::new(events);
        let (nodes, others) = Default::default();
        Self { rng: fastrand::Rng::with_seed(seed), world, nodes, others, made: 0 }
    }

    fn step(&mut self) {
        match self.rng.u32(0..100) {
            0..18 => self.add_node(),
            18..24 => self.lose_node(),
            24..32 => self.add_other(),
            32..40 => self.end_other(),
            40..75 => self.add_workload(),
            75..90 => self.end_workload(),
            90..94 => self.forget_and_learn(),
            _ => self.fail_node(),
        }
        self.settle();
    }

    fn some<T: Clone>(&mut self, of: Vec<T>) -> Option<T> {
        (!of.is_empty()).then(|| of[self.rng.usize(0..of.len())].clone())
    }

    fn add_node(&mut self) {
        if self.nodes.len() == 12 {
            return;
        }
        self.made += 1;
        let (name, rack) = (format!("n{}", self.made), self.rng.usize(0..3));
        self.nodes.insert(name.clone(), rack);
        let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        self.world.engine.apply(Event::Node(Node {
            name: name.as_str().into(),
            labels: [label("pool", "a"), label(RACK, &format!("r{rack}")), label(HOSTNAME, &name)].into(),
            taints: Vec::new(),
            allocatable: [(ResourceName::from(GPU), GPUS), (ResourceName::from(ResourceName::PODS), 9)]
                .into(),
            ready: true,
        }));
    }

    /// One on which nobody has a place: what becomes of those who have is another story.
    fn lose_node(&mut self) {
        let used = self.used();
        let idle = self.nodes.keys().filter(|node| !used.contains_key(*node)).cloned().collect();
        if let Some(node) = self.some(idle) {
            self.nodes.remove(&node);
            self.world.engine.apply(Event::NodeGone(node.as_str().into()));
        }
    }

    fn add_other(&mut self) {
        let used = self.used();
        let roomy = self.nodes.keys().filter(|node| used.get(*node).copied().unwrap_or(0) < GPUS);
        let roomy = roomy.cloned().collect();
        if let Some(node) = self.some(roomy) {
            self.made += 1;
            let name = format!("p{}", self.made);
            self.others.insert(name.clone(), (node.clone(), 1));
            let asked = Arc::new(gpu(1));
            self.world.engine.apply(Event::Pod(name.as_str().into(), node.as_str().into(), asked));
        }
    }

    fn end_other(&mut self) {
        let all = self.others.keys().cloned().collect();
        if let Some(name) = self.some(all) {
            self.others.remove(&name);
            self.world.engine.apply(Event::PodGone(name.as_str().into()));
        }
    }

    fn add_workload(&mut self) {
        self.made += 1;
        let queue = ["a", "b", "c"][self.rng.usize(0..3)];
        let (count, priority) = (self.rng.i64(1..7), self.rng.i32(0..3));
        let mut one = workload(&format!("w{}", self.made), queue, count, priority);
        let each = self.rng.i64(1..4);
        one.queued_at_ms = i64::try_from(self.made).unwrap();
        pod_set(&mut one).requests = gpu(each);
        pod_set(&mut one).pod_requests = Arc::new(gpu(each));
        let (spread, layers) = match self.rng.u32(0..6) {
            0 => (Spread::Required(HOSTNAME.into()), vec![]),
            1 | 2 => (Spread::Required(RACK.into()), vec![]),
            3 => (Spread::Preferred(RACK.into()), vec![]),
            4 => (Spread::SlicesOnly, vec![SliceLayer { level: RACK.into(), size: count }]),
            _ => (Spread::Unconstrained, vec![]),
        };
        pod_set(&mut one).topology = Some(TopologyWish { spread, layers });
        self.world.put(one);
    }

    fn holders(&self) -> Vec<Workload> {
        let holds = |one: &&Workload| matches!(one.standing, Standing::Reserved { .. });
        self.world.workloads.values().filter(holds).cloned().collect()
    }

    fn end_workload(&mut self) {
        let holders = self.holders();
        if let Some(one) = self.some(holders) {
            self.world.standing(&one.uid.to_string(), Standing::Finished);
        }
    }

    /// The Topology, or a flavor, goes away and comes back.
    fn forget_and_learn(&mut self) {
        if self.rng.bool() {
            self.world.engine.apply(Event::TopologyGone("racks".into()));
            self.settle();
            self.world.engine.apply(levels());
        } else {
            self.world.engine.apply(Event::FlavorGone("one".into(), "one".into()));
            self.settle();
            self.world.engine.apply(Event::Flavor(racks("one")));
        }
    }

    /// A node fails under one of those who have places on it.
    fn fail_node(&mut self) {
        let holders: Vec<Workload> = self.holders();
        let Some(mut one) = self.some(holders) else { return };
        let Standing::Reserved { admission, evicted: false, .. } = &one.standing else { return };
        let Some(places) = &admission.pod_sets[0].topology else { return };
        one.seldom.unhealthy_nodes = vec![Arc::clone(&places.domains[0].values[0])];
        self.world.put(one);
    }

    /// Decides and writes until nothing is left to do; who is evicted leaves.
    fn settle(&mut self) {
        for _ in 0..100 {
            let decisions = self.world.engine.decide(1_000);
            self.world.engine.audit().unwrap();
            if decisions.is_empty() {
                return;
            }
            for decision in decisions {
                if let Decision::Reserve(reserve) = &decision
                    && self.rng.u32(0..10) == 0
                {
                    self.world.engine.written(reserve.id, Outcome::NotWritten);
                    continue;
                }
                let placed = match &decision {
                    Decision::Reserve(reserve) => Some(reserve.workload.clone()),
                    _ => None,
                };
                self.world.carry_out(decision);
                let replaced = placed.map(|uid| self.world.workloads[&uid].clone());
                if let Some(mut one) = replaced.filter(|one| !one.seldom.unhealthy_nodes.is_empty()) {
                    one.seldom.unhealthy_nodes.clear();
                    self.world.put(one);
                }
            }
            for evict in std::mem::take(&mut self.world.evictions) {
                let mut one = self.world.workloads[&evict.victim].clone();
                one.seldom.unhealthy_nodes.clear();
                one.standing = Standing::Pending;
                self.world.put(one);
            }
        }
        panic!("the engine does not come to rest");
    }

    /// GPUs by node that are given away or taken by other pods.
    fn used(&self) -> BTreeMap<String, i64> {
        let mut used: BTreeMap<String, i64> = BTreeMap::new();
        for one in self.world.workloads.values() {
            let Standing::Reserved { admission, .. } = &one.standing else { continue };
            let places = admission.pod_sets[0].topology.as_ref().unwrap();
            assert_eq!(places.pods(), one.pod_sets[0].count, "{}", one.uid);
            for domain in &places.domains {
                *used.entry(domain.values[0].to_string()).or_default() +=
                    domain.pods * one.pod_sets[0].pod_requests[GPU];
            }
        }
        for (node, gpus) in self.others.values() {
            *used.entry(node.clone()).or_default() += gpus;
        }
        used
    }

    fn check(&self) {
        let used = self.used();
        for (node, used) in &used {
            assert!(self.nodes.contains_key(node) && *used <= GPUS, "{node} has {used} of {GPUS}");
        }
        for one in self.world.workloads.values().filter(|one| one.standing == Standing::Pending) {
            let set = &one.pod_sets[0];
            let each = set.pod_requests[GPU];
            let free = |node: &String| (GPUS - used.get(node).copied().unwrap_or(0)) / each;
            let hosts = self.nodes.keys().map(free);
            let rack = |rack: usize| {
                self.nodes.iter().filter(|(_, of)| **of == rack).map(|(node, _)| free(node)).sum()
            };
            let racks: [i64; 3] = [0, 1, 2].map(rack);
            let holds = match &set.topology.as_ref().unwrap().spread {
                Spread::Required(level) if &**level == HOSTNAME => hosts.max().unwrap_or(0),
                Spread::Required(_) | Spread::SlicesOnly => racks.into_iter().max().unwrap_or(0),
                Spread::Preferred(_) | Spread::Unconstrained => hosts.sum(),
                Spread::Unsaid => 0,
            };
            let state = self.world.engine.explain(&one.uid).unwrap().state;
            let waits = !matches!(state, WorkloadState::Claiming(_));
            assert!(
                !waits || holds < set.count,
                "{} waits for {} places of {holds}: {state:?} {:?} {:?}",
                one.uid,
                set.count,
                self.world.pending.get(&one.uid),
                set.topology
            );
        }
    }
}

#[test]
fn places_are_counted_right_given_once_and_found_if_there_are_any() {
    for seed in 0..STORIES {
        let told = std::panic::catch_unwind(|| {
            let mut story = Story::new(seed);
            for _ in 0..STEPS {
                story.step();
                story.check();
            }
        });
        if told.is_err() {
            panic!("story {seed} went wrong");
        }
    }
}

/// Two flavors share their nodes, and one workload takes of both.
#[test]
fn two_flavors_of_one_workload_do_not_get_the_same_place() {
    let mut story = Story::new(0);
    story.add_node();
    let mut groups = gpus(&[("one", quota(8, None, None))]);
    let nic = ResourceName::from("example.com/nic");
    groups.push(ResourceGroup {
        covered: vec![nic.clone()],
        flavors: vec![FlavorQuotas {
            flavor: "two".into(),
            resources: [(nic.clone(), quota(8, None, None))].into(),
        }],
    });
    let mut queue = cluster_queue("both", None, groups);
    queue.preemption.within_cluster_queue = WithinClusterQueue::LowerPriority;
    story.world.engine.apply(Event::ClusterQueue(queue));
    story.world.engine.apply(Event::LocalQueue(local_queue("both")));
    let mut one = workload("w", "both", 1, 0);
    let set = |name: &str, asks: ResourceName| PodSet {
        name: name.into(),
        count: 1,
        requests: [(asks, 1)].into(),
        pod_requests: Arc::new(gpu(3)),
        topology: Some(TopologyWish { spread: Spread::Unconstrained, layers: Vec::new() }),
        ..PodSet::default()
    };
    one.pod_sets = [set("gpus", ResourceName::from(GPU)), set("nics", nic)].into();
    story.world.put(one);
    story.world.settle();
    assert!(!story.world.is_admitted("w"), "both pods would be on the one node");
    story.add_node();
    story.world.settle();
    assert!(story.world.is_admitted("w"));
}
