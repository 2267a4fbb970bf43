//! Clusters of up to twelve nodes in racks and blocks, as an oracle sees them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::ResourceList;
use quota_engine::topology::*;

pub const LEVELS: [&str; 3] = ["block", "rack", HOSTNAME];

/// A node as the oracle sees it: its path, and what is free.
#[derive(Clone, Debug)]
pub struct Host {
    pub path: [String; 3],
    pub gpus: i64,
    pub pods: i64,
}

#[derive(Debug)]
pub struct Cluster {
    pub hosts: Vec<Host>,
}

pub fn gpus(amount: i64) -> ResourceList {
    [("gpu".into(), amount)].into()
}

/// Pods on hosts.
pub fn on(places: &[(&str, i64)]) -> Assignment {
    let domain = |(host, pods): &(&str, i64)| DomainPods { values: vec![(*host).into()], pods: *pods };
    Assignment { levels: vec![HOSTNAME.into()], domains: places.iter().map(domain).collect() }
}

pub fn request(count: i64, gpu: i64, spread: Spread) -> PodSetRequest {
    PodSetRequest {
        count,
        per_pod: gpus(gpu),
        spread,
        layers: Vec::new(),
        group: None,
        node_selector: BTreeMap::new(),
        conflict: None,
        affinity: None,
        preferences: Vec::new(),
        tolerations: Vec::new(),
        previous: None,
    }
}

impl Cluster {
    pub fn random(rng: &mut fastrand::Rng) -> Self {
        let (blocks, racks) = (rng.usize(1..=3), rng.usize(1..=3));
        let host = |index: usize, rng: &mut fastrand::Rng| Host {
            path: [
                format!("b{}", rng.usize(0..blocks)),
                format!("r{}", rng.usize(0..racks)),
                format!("h{index}"),
            ],
            gpus: rng.i64(0..=8),
            pods: rng.i64(0..=6),
        };
        Self { hosts: (0..rng.usize(1..=12)).map(|index| host(index, rng)).collect() }
    }

    /// An index that has come to this state by a detour: nodes that came late, usage that was given back.
    pub fn index(&self, rng: &mut fastrand::Rng) -> TopologyIndex {
        let mut index = TopologyIndex::new(LEVELS.map(Arc::from).into(), BTreeMap::new(), Vec::new());
        let mut hosts: Vec<&Host> = self.hosts.iter().collect();
        rng.shuffle(&mut hosts);
        for host in hosts {
            let held = Assignment {
                levels: vec![HOSTNAME.into()],
                domains: vec![DomainPods { values: vec![host.path[2].as_str().into()], pods: 1 }],
            };
            let labels =
                LEVELS.iter().zip(&host.path).map(|(level, value)| ((*level).to_owned(), value.clone()));
            let mut node = Node {
                name: format!("node-{}", host.path[2]).into(),
                labels: labels.collect(),
                taints: Vec::new(),
                allocatable: [("gpu".into(), host.gpus + 3), ("pods".into(), host.pods + 2)].into(),
                ready: rng.bool(),
            };
            index.charge(&held, &gpus(1));
            index.upsert_node(node.clone());
            if rng.bool() {
                // A search in between makes the tree before the rest comes.
                index.place(&[request(1, 1, Spread::Unconstrained)], Rules::default(), View::Now);
            }
            index.charge_node(&node.name, &gpus(2));
            index.charge(&held, &gpus(5));
            node.ready = true;
            index.upsert_node(node);
            index.release(&held, &gpus(5));
        }
        index
    }

    pub fn fits(&self, host: &Host, gpu: i64) -> i64 {
        if gpu == 0 { host.pods } else { host.pods.min(host.gpus / gpu) }
    }

    pub fn host(&self, name: &str) -> &Host {
        self.hosts.iter().find(|host| host.path[2] == name).unwrap()
    }

    /// How many whole slices each domain of a level holds, a slice being in one domain of `slice_level`.
    pub fn slices(&self, level: usize, slice_level: usize, size: i64, gpu: i64) -> BTreeMap<&[String], i64> {
        let mut pods: BTreeMap<&[String], i64> = BTreeMap::new();
        for host in &self.hosts {
            *pods.entry(&host.path[..=slice_level]).or_default() += self.fits(host, gpu);
        }
        let mut slices = BTreeMap::new();
        for (domain, pods) in pods {
            *slices.entry(&domain[..=level]).or_default() += pods / size;
        }
        slices
    }

    /// The fewest domains that hold so many slices: every set of them is tried.
    pub fn fewest(&self, slices: &BTreeMap<&[String], i64>, wanted: i64) -> Option<u32> {
        let amounts: Vec<i64> = slices.values().copied().collect();
        let holds = |set: &u32| {
            let held = |(at, amount): (usize, &i64)| if set >> at & 1 == 1 { *amount } else { 0 };
            amounts.iter().enumerate().map(held).sum::<i64>() >= wanted
        };
        (0..1u32 << amounts.len()).filter(holds).map(u32::count_ones).min()
    }

    /// What must be true of any places: everything has one, nothing is overbooked, slices are whole.
    pub fn check(&self, given: &Assignment, request: &PodSetRequest, slice_level: usize, size: i64) {
        let gpu = request.per_pod["gpu"];
        assert_eq!(given.pods(), request.count);
        assert_eq!(given.levels, [Arc::from(HOSTNAME)]);
        let mut pods: BTreeMap<&[String], i64> = BTreeMap::new();
        let mut paths = Vec::new();
        for domain in &given.domains {
            let host = self.host(&domain.values[0]);
            assert!(domain.pods > 0 && domain.pods <= self.fits(host, gpu), "{domain:?} on {host:?}");
            *pods.entry(&host.path[..=slice_level]).or_default() += domain.pods;
            paths.push(&host.path);
        }
        assert!(pods.values().all(|pods| pods % size == 0), "a slice is cut: {pods:?}");
        assert!(paths.is_sorted() && paths.iter().collect::<BTreeSet<_>>().len() == paths.len(), "{paths:?}");
    }

    pub fn used(&self, given: &Assignment, level: usize) -> u32 {
        let path = |domain: &DomainPods| &self.host(&domain.values[0]).path[..=level];
        given.domains.iter().map(path).collect::<BTreeSet<_>>().len() as u32
    }
}
