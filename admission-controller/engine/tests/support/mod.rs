//! Builders shared by the engine's tests.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]

pub mod hosts;
pub mod nodes;

use std::collections::BTreeMap;
use std::sync::Arc;

use model::ResourceName;
use model::rare::Rare;
use model::selector::LabelSelector;
use quota_engine::input::*;
use quota_engine::*;

pub const GPU: &str = "nvidia.com/gpu";

pub fn quota(nominal: i64, borrowing_limit: Option<i64>, lending_limit: Option<i64>) -> Quota {
    Quota { nominal, borrowing_limit, lending_limit }
}

/// One resource group for GPUs with these flavors.
pub fn gpus(flavors: &[(&str, Quota)]) -> Vec<ResourceGroup> {
    let gpu = ResourceName::from(GPU);
    vec![ResourceGroup {
        covered: vec![gpu.clone()],
        flavors: flavors
            .iter()
            .map(|(name, quota)| FlavorQuotas {
                flavor: (*name).into(),
                resources: [(gpu.clone(), *quota)].into(),
            })
            .collect(),
    }]
}

pub fn flavor(name: &str) -> Flavor {
    Flavor {
        name: name.into(),
        uid: name.into(),
        node_labels: [("gpu-type".to_owned(), name.to_owned())].into(),
        taints: Vec::new(),
        tolerations: Vec::new(),
        topology: None,
    }
}

pub fn cluster_queue(name: &str, cohort: Option<&str>, groups: Vec<ResourceGroup>) -> ClusterQueue {
    ClusterQueue {
        name: name.into(),
        uid: name.into(),
        cohort: cohort.map(Into::into),
        groups,
        strategy: QueueingStrategy::BestEffortFifo,
        namespace_selector: Some(LabelSelector::default()),
        preemption: Preemption::default(),
        fungibility: Fungibility::default(),
        weight: Weight::default(),
        admission_mode: AdmissionMode::NoFairSharing,
        stop: StopPolicy::None,
        terminating: false,
        admission_checks: Vec::new(),
        provisioned: Default::default(),
        defects: Vec::new(),
    }
}

/// A LocalQueue in namespace `ns` of the ClusterQueue's name.
pub fn local_queue(name: &str) -> LocalQueue {
    LocalQueue {
        key: LocalQueueKey::new("ns", name),
        uid: format!("lq-{name}").as_str().into(),
        cluster_queue: name.into(),
        stop: StopPolicy::None,
        terminating: false,
        weight: Weight::default(),
    }
}

/// A workload of `count` pods with one GPU each.
pub fn workload(uid: &str, queue: &str, count: i64, priority: i32) -> Workload {
    Workload {
        uid: uid.into(),
        version: 1,
        namespace: "ns".into(),
        name: uid.into(),
        queue: Some(queue.into()),
        priority,
        base_priority: priority,
        queued_at_ms: 0,
        active: true,
        pod_sets: vec![PodSet {
            name: "main".into(),
            count,
            requests: [(ResourceName::from(GPU), 1)].into(),
            pod_requests: Arc::new([(ResourceName::from(GPU), 1)].into()),
            ..PodSet::default()
        }]
        .into(),
        checks_failed: false,
        checks_passed: false,
        owned: false,
        movable: true,
        pods_ready: false,
        preemption_gated: false,
        standing: Standing::Pending,
        seldom: Rare::default(),
    }
}

/// Its first pod set, to be changed.
pub fn pod_set(workload: &mut Workload) -> &mut PodSet {
    &mut Arc::make_mut(&mut workload.pod_sets)[0]
}

/// One pod set more.
pub fn add_pod_set(workload: &mut Workload, more: PodSet) {
    workload.pod_sets = workload.pod_sets.iter().cloned().chain([more]).collect();
}

/// An engine with the API server's side of the story: what each workload's status says.
pub struct World {
    pub engine: Engine,
    pub workloads: BTreeMap<Uid, Workload>,
    pub pending: BTreeMap<Uid, PendingReason>,
    pub evictions: Vec<Evict>,
    pub admissions: Vec<Uid>,
    version: u64,
}

impl World {
    pub fn new(events: impl IntoIterator<Item = Event>) -> Self {
        Self::with(Settings::default(), events)
    }

    pub fn with(settings: Settings, events: impl IntoIterator<Item = Event>) -> Self {
        let mut engine = Engine::new(settings);
        engine.apply(Event::Namespace("ns".into(), BTreeMap::new()));
        for event in events {
            engine.apply(event);
        }
        Self {
            engine,
            workloads: BTreeMap::new(),
            pending: BTreeMap::new(),
            evictions: Vec::new(),
            admissions: Vec::new(),
            version: 100,
        }
    }

    pub fn next_version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    /// Adds or replaces a workload as the API server would store it.
    pub fn put(&mut self, mut workload: Workload) {
        workload.version = self.next_version();
        self.workloads.insert(workload.uid.clone(), workload.clone());
        self.engine.apply(Event::Workload(Box::new(workload)));
    }

    /// A workload that has quota is evicted, and its pods take their time.
    pub fn begins_to_leave(&mut self, uid: &str) {
        let mut standing = self.workloads[&Uid::from(uid)].standing.clone();
        let Standing::Reserved { evicted, .. } = &mut standing else { panic!("{uid} has no quota") };
        *evicted = true;
        self.standing(uid, standing);
    }

    /// The flavor of a workload's first resource, if it has quota and does not leave.
    pub fn flavor_of(&self, uid: &str) -> Option<&str> {
        let standing = &self.workloads[&Uid::from(uid)].standing;
        let Standing::Reserved { admission, evicted: false, .. } = standing else { return None };
        admission.pod_sets[0].flavors.values().next().map(FlavorName::as_str)
    }

    pub fn standing(&mut self, uid: &str, standing: Standing) {
        let mut workload = self.workloads[&Uid::from(uid)].clone();
        workload.standing = standing;
        self.put(workload);
    }

    /// One cycle, carried out.
    pub fn cycle(&mut self) {
        for decision in self.engine.cycle(1_000) {
            self.carry_out(decision);
        }
        self.take_reasons();
        self.engine.audit().unwrap();
    }

    /// What is decided at this time, in milliseconds, carried out.
    pub fn decide(&mut self, now_ms: i64) {
        for decision in self.engine.decide(now_ms) {
            self.carry_out(decision);
        }
    }

    /// Decides and writes until nothing is left to do.
    pub fn settle(&mut self) {
        self.settle_at(1_000);
    }

    /// The same at this time, in milliseconds.
    pub fn settle_at(&mut self, now_ms: i64) {
        for _ in 0..100 {
            let decisions = self.engine.decide(now_ms);
            self.engine.audit().unwrap();
            if decisions.is_empty() && !self.engine.has_reasons() {
                return;
            }
            for decision in decisions {
                self.carry_out(decision);
            }
            self.take_reasons();
        }
        panic!("the engine does not come to rest");
    }

    /// Everyone's reason to wait is written.
    pub fn take_reasons(&mut self) {
        for new in self.engine.take_reasons(usize::MAX) {
            self.pending.insert(new.workload, (*new.reason).clone());
        }
    }

    pub fn carry_out(&mut self, decision: Decision) {
        let version = self.next_version();
        match decision {
            Decision::Reserve(reserve) => {
                let workload = self.workloads.get_mut(&reserve.workload).unwrap();
                assert_eq!(workload.version, reserve.based_on);
                workload.version = version;
                workload.standing = Standing::Reserved {
                    admission: reserve.admission,
                    admitted: true,
                    evicted: false,
                    since_ms: 1_000,
                };
                self.pending.remove(&reserve.workload);
                self.admissions.push(reserve.workload.clone());
                self.engine.written(reserve.id, Outcome::Written(version));
            }
            Decision::Evict(evict) => {
                let workload = self.workloads.get_mut(&evict.victim).unwrap();
                assert_eq!(workload.version, evict.based_on);
                workload.version = version;
                let Standing::Reserved { evicted, .. } = &mut workload.standing else {
                    panic!("not reserved")
                };
                *evicted = true;
                self.engine.written(evict.id, Outcome::Written(version));
                self.evictions.push(evict);
            }
            Decision::Replace(slice) => self.standing(&slice.to_string(), Standing::Finished),
            Decision::SetUnplaced(_) => {}
            Decision::Withdraw(withdraw) => {
                let workload = self.workloads.get_mut(&withdraw.workload).unwrap();
                assert_eq!(workload.version, withdraw.based_on);
                workload.version = version;
                workload.standing = Standing::Pending;
                self.pending.insert(withdraw.workload.clone(), withdraw.reason);
                self.engine.written(withdraw.id, Outcome::Written(version));
            }
        }
    }

    /// Who was told to leave and has not left yet.
    pub fn leaving(&self) -> Vec<Uid> {
        let leaves = |one: &&Workload| matches!(one.standing, Standing::Reserved { evicted: true, .. });
        self.workloads.values().filter(leaves).map(|one| one.uid.clone()).collect()
    }

    pub fn is_admitted(&self, uid: &str) -> bool {
        matches!(self.workloads[&Uid::from(uid)].standing, Standing::Reserved { evicted: false, .. })
    }

    pub fn reason(&self, uid: &str) -> &PendingReason {
        &self.pending[&Uid::from(uid)]
    }

    /// The victims so far, with the reason of their preemption.
    pub fn victims(&self) -> Vec<(&str, &'static str)> {
        self.evictions
            .iter()
            .map(|evict| {
                let token = match evict.reason {
                    EvictReason::Preempted(reason) => reason.token(),
                    other => other.token(),
                };
                (&*self.workloads[&evict.victim].name, token)
            })
            .collect()
    }
}
