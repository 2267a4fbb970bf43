//! What the watches say, indexed as the controller needs it, and passed on to the engine.

mod ancestors;
mod awaited;
pub(super) mod ground;
mod jobs;
mod kept;
mod members;
mod provisioning;
mod quota;
pub(super) mod slices;
#[cfg(test)]
mod tests;
mod whose;
mod workloads;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crds::reasons::workload as tokens;
use crds::view::admission_check::AdmissionCheck;
use crds::view::cluster_queue::{AdmissionCheckRule, ClusterQueue};
use crds::view::cohort::Cohort;
use crds::view::flavor::ResourceFlavor;
use crds::view::limits::{LimitRange, RuntimeClass};
use crds::view::local_queue::LocalQueue;
use crds::view::namespace::Namespace;
use crds::view::placed_pod::PlacedPod;
use crds::view::priority::{PriorityClass, WorkloadPriorityClass};
use crds::view::workload::Workload;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use quota_engine::input::Leave;
use quota_engine::{
    CheckName, ClusterQueueName, CohortName, Engine, Event, EvictReason, FlavorName, LocalQueueKey, Uid,
};
use serde_json::Value;
use tokio::sync::watch;

use ground::Ground;
use kept::Kept;

use self::provisioning::Provisioning;
use self::slices::SlicePods;
use self::workloads::{Turn, Workloads};
use super::feeds::Seen;
use super::store::{Delta, Names, Object, Store, StoredJob};
use crate::compose::Priorities;
use crate::config::Configuration;
use crate::defaults::PodDefaults;
use crate::input;
pub(super) use crate::jobs::controller_of;
use crate::jobs::{JobKind, KindId};
use crate::metrics::Tally;
use crate::pods::PodsKey;
use crate::reclaimable;
use crate::requests::Rules;
use crate::surroundings::{self, Surroundings};
pub(super) use ancestors::Standing;
use awaited::Awaited;
use members::Members;

/// Namespace and name of a Workload, as it is kept with them.
type WorkloadName = (Arc<str>, Arc<str>);
/// The uid of an owner, and the namespace in which it owns.
type OwnerIn = (Uid, String);

/// What is written one after another: a job with its Workload, a Workload alone, a queue's status. There is one for every
/// Workload that waits, so it is small.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Unit {
    Job(Uid),
    Workload(Uid),
    /// Pods that are managed together, with their Workload.
    Pods(PodsKey),
    /// One of them.
    Pod(Uid),
    /// An object that is managed through its pods, as far as its Workloads are made from it.
    PodOwner(Uid),
    ClusterQueue(ClusterQueueName),
    LocalQueue(Box<LocalQueueKey>),
    Flavor(FlavorName),
    Topology(Arc<str>),
    Check(CheckName),
    Cohort(CohortName),
    /// The places of a Workload's pods: nothing is written in it, but it tells which pods' gates open.
    Places(Uid),
    /// The gate of a pod that is placed by topology.
    Gate(Uid),
}

#[derive(Default)]
pub(crate) struct World {
    pub(crate) workloads: Workloads,
    cluster_queues: Store<ClusterQueue>,
    local_queues: Store<LocalQueue>,
    checks: Store<AdmissionCheck>,
    provisioning: Provisioning,
    flavors: Store<ResourceFlavor>,
    cohorts: Store<Cohort>,
    namespaces: Store<Namespace>,
    workload_classes: Store<WorkloadPriorityClass>,
    pod_classes: Store<PriorityClass>,
    limit_ranges: Store<LimitRange>,
    runtime_classes: Store<RuntimeClass>,
    jobs: BTreeMap<KindId, Store<StoredJob>>,
    /// The kinds of them without which nothing can be decided. Who does not manage a kind need not be able to watch it.
    needed: Vec<KindId>,
    kind_of_job: BTreeMap<Uid, KindId>,
    /// Jobs by the uid of the controller whose part they may be.
    parts: BTreeMap<Uid, BTreeSet<Uid>>,
    members: Members,
    /// What controllers made of jobs that says more of their pods, by the job and the object's uid: its name, and what it says.
    children: BTreeMap<OwnerIn, BTreeMap<Uid, (String, Value)>>,
    awaited: Awaited,
    /// Workloads behind the uid of their job.
    workloads_of_job: BTreeSet<(Uid, Uid)>,
    /// Jobs and pods that are gone, though Workloads are theirs: until these go with them.
    gone: BTreeSet<Uid>,
    queues_by_name: Names<ClusterQueueName>,
    checks_by_name: Names<CheckName>,
    /// The rules of ClusterQueues that ask for checks.
    check_rules: BTreeMap<ClusterQueueName, Vec<AdmissionCheckRule>>,
    local_queues_by_key: Names<LocalQueueKey>,
    pub(super) flavors_by_name: BTreeMap<String, ResourceFlavor>,
    cohorts_by_name: Names<CohortName>,
    namespaces_by_name: Names<Arc<str>>,
    pub(super) priorities: Priorities,
    /// Units that something happened to.
    pub(super) dirty: BTreeSet<Unit>,
    /// Queues and cohorts that are gone, be it that another has their name by now.
    pub(super) gone_queues: Vec<Unit>,
    /// Workloads whose WorkloadPriorityClass is worth something else since they were looked at.
    pub(super) revalued: BTreeSet<Uid>,
    /// Cohorts that were made or changed, and nothing was said about since.
    pub(super) changed_cohorts: BTreeSet<Uid>,
    config: Configuration,
    pub(super) rules: Rules,
    defaults: PodDefaults,
    /// Whether they have changed since Workloads were read.
    defaults_are_new: bool,
    /// What webhooks look at.
    surroundings: watch::Sender<Surroundings>,
    pub(super) ground: Ground,
    /// What metrics tell of workloads.
    pub(super) tally: Tally,
    pub(super) slice_pods: SlicePods,
}

impl World {
    pub(crate) fn new(config: &Configuration) -> Self {
        let kinds = config.watched_kinds();
        Self {
            jobs: kinds.map(|kind| (kind.id(), Store::default())).collect(),
            needed: config.needed_kinds().map(JobKind::id).collect(),
            members: Members::new(config),
            config: config.clone(),
            rules: Rules::of(config),
            ..Self::default()
        }
    }

    /// The same, telling webhooks what they look at.
    pub(super) fn telling(self, surroundings: watch::Sender<Surroundings>) -> Self {
        Self { surroundings, ..self }
    }

    /// Whether every first list is complete: before that, nothing may be decided.
    pub(crate) fn is_synced(&self) -> bool {
        self.workloads.is_synced()
            && self.cluster_queues.is_synced()
            && self.local_queues.is_synced()
            && self.checks.is_synced()
            && self.provisioning.is_synced()
            && self.flavors.is_synced()
            && self.cohorts.is_synced()
            && self.namespaces.is_synced()
            && self.workload_classes.is_synced()
            && self.pod_classes.is_synced()
            && self.limit_ranges.is_synced()
            && self.runtime_classes.is_synced()
            && self.needed.iter().all(|id| self.jobs.get(id).is_some_and(Store::is_synced))
            && self.members.is_synced()
            && self.ground.is_synced()
    }

    pub(crate) fn take(&mut self, engine: &mut Engine, seen: Seen) {
        match seen {
            Seen::Workload(change) => {
                for turn in self.workloads.take(change) {
                    self.workload_changed(engine, turn);
                }
            }
            Seen::Job(kind, change) => self.take_job(kind, change),
            Seen::Pod(change) => self.take_pods(change),
            Seen::PodOwner(owner, change) => self.take_pod_owners(owner, change),
            Seen::Topology(change) => {
                let names = self.ground.take_topology(engine, change);
                self.dirty.extend(names.into_iter().map(|name| Unit::Topology(name.into())));
            }
            Seen::Node(change) => {
                for host in self.ground.take_node(engine, change) {
                    self.who_stands_on(&host);
                }
            }
            Seen::GroundPod(change) => {
                for key in self.ground.take_pod(engine, change) {
                    self.places_dirty(&key);
                }
            }
            Seen::SlicePod(change) => self.take_slice_pods(change),
            Seen::ClusterQueue(change) => {
                for delta in self.cluster_queues.take(change) {
                    self.cluster_queue_changed(engine, delta);
                }
            }
            Seen::LocalQueue(change) => {
                for delta in self.local_queues.take(change) {
                    self.local_queue_changed(engine, delta);
                }
            }
            Seen::ProvisioningRequestConfig(change) => self.take_provisioning_config(change),
            Seen::ProvisioningRequest(change) => self.take_provisioning_request(change),
            Seen::AdmissionCheck(change) => {
                for delta in self.checks.take(change) {
                    self.check_changed(engine, delta);
                }
            }
            Seen::Flavor(change) => {
                for delta in self.flavors.take(change) {
                    self.flavor_changed(engine, delta);
                }
            }
            Seen::Cohort(change) => {
                for delta in self.cohorts.take(change) {
                    self.cohort_changed(engine, delta);
                }
            }
            Seen::Namespace(change) => {
                for delta in self.namespaces.take(change) {
                    self.namespace_changed(engine, delta);
                }
            }
            Seen::WorkloadPriorityClass(change) => {
                self.workload_classes.take(change);
                let before = self.priorities.workload.clone();
                self.priorities_changed();
                self.worth_changed(&before);
            }
            Seen::PriorityClass(change) => {
                self.pod_classes.take(change);
                self.priorities_changed();
            }
            Seen::LimitRange(change) => {
                let deltas = self.limit_ranges.take(change);
                let namespaces: BTreeSet<String> = deltas
                    .iter()
                    .filter_map(|delta| self.limit_ranges.told_of(delta)?.metadata.namespace.clone())
                    .collect();
                if !namespaces.is_empty() {
                    self.defaults.set_ranges(self.limit_ranges.iter());
                    self.defaults_changed(engine, |namespace| namespaces.contains(namespace));
                }
            }
            Seen::RuntimeClass(change) => {
                if !self.runtime_classes.take(change).is_empty() {
                    self.defaults.set_classes(self.runtime_classes.iter());
                    self.defaults_changed(engine, |_| true);
                }
            }
        }
        if self.defaults_are_new && self.is_synced() {
            self.defaults_are_new = false;
            self.defaults_changed(engine, |_| true);
        }
    }

    /// Whether nodes and the pods on them are of concern.
    pub(crate) fn wants_places(&self) -> bool {
        self.ground.wanted
    }

    /// Workloads with places on a node of which there is news.
    fn who_stands_on(&mut self, host: &str) {
        let uids: Vec<Uid> = self.ground.standing_on(host).cloned().collect();
        for uid in uids {
            self.dirty.extend(self.unit_of_workload(&uid));
            self.dirty.insert(Unit::Places(uid));
        }
    }

    /// Pods of this Workload came, went or changed.
    pub(super) fn places_dirty(&mut self, key: &(String, String)) {
        for uid in self.workloads_of_places(key) {
            let unit = self.unit_of_workload(&uid).filter(|_| self.ground.is_shaky(&uid));
            self.dirty.extend(unit);
            self.dirty.insert(Unit::Places(uid));
        }
    }

    /// The uid of the Workload of this namespace and name; of an elastic job those of all its slices, by the name they have in common.
    pub(super) fn workloads_of_places(&self, key: &(String, String)) -> Vec<Uid> {
        match self.job_of_chain(key) {
            Some(job) => self.uids_of(job, Some(&key.0)).cloned().collect(),
            None => self.workloads.named(&key.0, &key.1).map(|kept| kept.uid.clone()).into_iter().collect(),
        }
    }

    /// Takes the answer to the opening of a pod's gate. Returns the namespace and name of its Workload.
    pub(super) fn take_let_go(&mut self, engine: &mut Engine, pod: PlacedPod) -> Option<(String, String)> {
        let key = self.ground.take_pod_answer(engine, pod)?;
        self.places_dirty(&key);
        Some(key)
    }

    /// A flavor has a topology, so nodes and pods are of concern from now on.
    fn want_ground(&mut self) {
        if !std::mem::replace(&mut self.ground.wanted, true) {
            for kept in self.workloads.iter() {
                self.ground.stand(&kept.view());
            }
        }
    }

    /// Every job's priority may be another.
    fn priorities_changed(&mut self) {
        self.priorities.workload = named(self.workload_classes.iter(), |one| &one.metadata)
            .map(|(name, one)| (name, one.value))
            .collect();
        let class = self.priorities.workload.contains_key(surroundings::DEFAULT);
        self.surroundings.send_if_modified(|told| std::mem::replace(&mut told.class, class) != class);
        let pod_classes = || named(self.pod_classes.iter(), |one| &one.metadata);
        self.priorities.pod = pod_classes().map(|(name, one)| (name, one.value)).collect();
        self.priorities.default = pod_classes()
            .filter(|(_, one)| one.global_default)
            .map(|(name, one)| (name, one.value))
            .min_by_key(|(name, value)| (*value, name.clone()));
        self.all_jobs_dirty();
    }

    /// Workloads of WorkloadPriorityClasses that are worth something else than before: to the engine when it is written.
    fn worth_changed(&mut self, before: &BTreeMap<String, i32>) {
        let now = &self.priorities.workload;
        let is_news =
            |kept: &&Kept| kept.workload_class().is_some_and(|class| now.get(class) != before.get(class));
        let changed: Vec<&Kept> = self.workloads.iter().filter(is_news).collect();
        for kept in changed {
            let unit = self.unit_of(kept);
            // Those with a job are worth what that says.
            if matches!(unit, Unit::Workload(_) | Unit::Pods(_)) {
                self.revalued.insert(kept.uid.clone());
            }
            self.dirty.insert(unit);
        }
    }

    /// What pods ask for in these namespaces may have changed. While lists come in it is worked out once, at the end.
    fn defaults_changed(&mut self, engine: &mut Engine, concerns: impl Fn(&str) -> bool) {
        if !self.is_synced() {
            self.defaults_are_new = true;
            return;
        }
        for kept in self.workloads.iter().filter(|kept| concerns(kept.namespace())) {
            let workload = self.read(kept, &kept.view());
            engine.apply(Event::Requests(workload.uid, workload.pod_sets, workload.seldom.defect.clone()));
        }
    }

    /// A Workload in the engine's terms. One that lost a second node before the first was replaced is not helped with one
    /// place more: it leaves.
    fn read(&self, kept: &Kept, view: &Workload) -> quota_engine::input::Workload {
        let agreed = self.agreed(kept, view);
        let view = agreed.as_ref().unwrap_or(view);
        let mut told = input::workload(kept.texts(), view, &self.rules, &self.defaults, &self.priorities);
        if has_lost_several(&told) && told.seldom.leave.is_none_or(|leave| leave.at_ms > 0) {
            told.seldom.leave = Some(Leave { at_ms: 0, reason: EvictReason::NodeFailures });
        }
        told
    }

    /// A slice with no more pods that have ended than its job tells of; `None` where it says no more anyway.
    fn agreed(&self, kept: &Kept, view: &Workload) -> Option<Workload> {
        let owner = kept.controller().filter(|_| crate::slices::is_slice(view))?;
        let reported = self.job(&owner.uid)?.view.reclaimable.as_deref()?;
        let ended = reclaimable::agreed(view, reported)?;
        let mut agreed = view.clone();
        agreed.status.reclaimable_pods = ended;
        Some(agreed)
    }

    /// Takes the answer to a write, which is as good as an event. One that says that the Workload is gone has the version from
    /// before; its quota is free at once, and the watch tells the rest.
    pub(super) fn take_workload(&mut self, engine: &mut Engine, view: Workload) {
        let gone = input::is_gone(&view.metadata).then(|| input::uid(&view.metadata));
        if let Some(turn) = self.workloads.upsert(view) {
            self.workload_changed(engine, turn);
        }
        if let Some(uid) = gone {
            engine.apply(Event::WorkloadGone(uid));
        }
    }

    /// Drops the Workloads that a whole list of this resourceVersion has not named.
    pub(super) fn drop_unnamed(&mut self, engine: &mut Engine, named: &BTreeSet<Uid>, as_of: u64) {
        for turn in self.workloads.drop_unnamed(named, as_of) {
            self.workload_changed(engine, turn);
        }
    }

    fn workload_changed(&mut self, engine: &mut Engine, turn: Turn) {
        match turn {
            Turn::Newer { before, now } => self.workload_seen(engine, before.as_deref(), &now),
            Turn::Gone(kept) => self.workload_gone(engine, &kept),
        }
    }

    fn workload_seen(&mut self, engine: &mut Engine, before: Option<&Kept>, now: &Kept) {
        let view = now.view();
        self.tally.changed(before.map(Kept::view).as_ref(), Some(&view));
        engine.apply(Event::Workload(Box::new(self.read(now, &view))));
        let owner_before = before.and_then(|before| self.forget_workload_of_job(before));
        let disowned = before.filter(|before| !before.owners().eq(now.owners()));
        if let Some(before) = disowned {
            self.dirty.extend(self.members.workload_gone(before));
        }
        let unit = self.unit_of(now);
        if let Unit::Job(job) | Unit::Pods(PodsKey::One(job)) = &unit {
            self.workloads_of_job.insert((job.clone(), now.uid.clone()));
        }
        owner_before.into_iter().for_each(|owner| self.forget_gone(&owner));
        if let Unit::Job(job) = &unit {
            if crate::slices::is_slice(&view) {
                self.slice_seen(&view, job);
            }
            if !view.holds(tokens::ADMITTED) {
                self.parts_dirty(job);
            }
        }
        self.dirty.insert(unit);
        self.dirty.extend(self.members.workload_seen(now));
        disowned.into_iter().for_each(|before| self.tell_occupied(before));
        self.tell_occupied(now);
        self.dirty.extend(self.awaited.by(&(now.namespace().clone(), now.name.clone())).cloned());
        if self.ground.wanted {
            self.ground.stand(&view);
            self.dirty.insert(Unit::Places(now.uid.clone()));
        }
    }

    fn workload_gone(&mut self, engine: &mut Engine, gone: &Kept) {
        self.tally.changed(Some(&gone.view()), None);
        engine.apply(Event::WorkloadGone(gone.uid.clone()));
        self.revalued.remove(&gone.uid);
        self.dirty.extend(self.members.unit_of(gone));
        self.dirty.extend(self.members.workload_gone(gone));
        self.tell_occupied(gone);
        self.ground.leave(&gone.uid);
        self.dirty.extend(self.awaited.by(&(gone.namespace().clone(), gone.name.clone())).cloned());
        if let Some(job) = self.forget_workload_of_job(gone) {
            self.forget_gone(&job);
            if self.stored_job(&job).is_none() {
                self.forget_slices(&job);
            }
            self.parts_dirty(&job);
            self.dirty.insert(Unit::Job(job));
        }
    }

    /// A Workload has the name that this unit's own would have.
    pub(super) fn await_name(&mut self, unit: &Unit, taken: &Workload) {
        let is_there = match unit {
            Unit::Job(uid) => self.job(uid).is_some(),
            Unit::PodOwner(uid) => self.pod_owner(uid).is_some(),
            Unit::Pods(PodsKey::One(uid)) => self.pod(uid).is_some(),
            // Pods of a group are looked at with whatever has its name.
            _ => false,
        };
        if is_there {
            let text = |text: Option<&String>| Arc::<str>::from(text.map_or("", String::as_str));
            let name = (text(taken.metadata.namespace.as_ref()), text(taken.metadata.name.as_ref()));
            self.awaited.insert(name, unit.clone());
        }
    }

    /// Returns the uid of the job.
    fn forget_workload_of_job(&mut self, workload: &Kept) -> Option<Uid> {
        let (Unit::Job(job) | Unit::Pods(PodsKey::One(job))) = self.unit_of(workload) else { return None };
        self.workloads_of_job.remove(&(job.clone(), workload.uid.clone()));
        Some(job)
    }

    /// A job or pod was deleted, and is no more.
    fn note_gone(&mut self, uid: &Uid) {
        if self.uids_of(uid, None).next().is_some() {
            self.gone.insert(uid.clone());
        }
    }

    fn forget_gone(&mut self, uid: &Uid) {
        if self.uids_of(uid, None).next().is_none() {
            self.gone.remove(uid);
        }
    }

    /// Whether the job or pod that controls a Workload was seen to go. One that is not known may only not have been seen yet.
    pub(super) fn has_lost_owner(&self, workload: &Workload) -> bool {
        controller_of(&workload.metadata)
            .is_some_and(|owner| self.gone.contains(&Uid::from(owner.uid.as_str())))
    }

    fn namespace_changed(&mut self, engine: &mut Engine, delta: Delta<Namespace>) {
        let name = |metadata: &ObjectMeta| Arc::from(metadata.name.as_deref().unwrap_or_default());
        match delta {
            Delta::Upsert(uid) => {
                let Some(view) = self.namespaces.get(&uid) else { return };
                let (name, labels) = (name(&view.metadata), view.metadata.labels.clone());
                let is_new = self.namespaces_by_name.get(&name).is_none();
                self.namespaces_by_name.insert(Arc::clone(&name), uid);
                let news = self.tell_namespace(&name) || (is_new && self.is_selected(&name));
                // Whoever begins looks at all jobs when all lists are there.
                if news && self.namespaces.is_synced() {
                    self.jobs_dirty_in(&name);
                }
                engine.apply(Event::Namespace(name, labels.unwrap_or_default()));
            }
            Delta::Gone(view) => {
                let name = name(&view.metadata);
                if self.namespaces_by_name.remove(&name, &input::uid(&view.metadata)) {
                    self.tell_namespace(&name);
                    engine.apply(Event::NamespaceGone(name));
                }
            }
        }
    }

    /// Tells webhooks whether objects of a namespace are left alone; of one that is gone nothing. Gives whether that is news.
    fn tell_namespace(&self, name: &str) -> bool {
        let is_unselected = self.namespaces_by_name.get(name).is_some() && !self.is_selected(name);
        self.surroundings.send_if_modified(|told| match is_unselected {
            true => told.unselected.insert(name.to_owned()),
            false => told.unselected.remove(name),
        })
    }

    /// Jobs and pods of a namespace are looked at, where that is selected, or is not any more.
    fn jobs_dirty_in(&mut self, namespace: &str) {
        let jobs = self.jobs.values().flat_map(Store::iter).map(|job| Unit::Job(job.uid()));
        let units = jobs.chain(self.members.units()).filter(|unit| self.namespace_of(unit) == namespace);
        let units: Vec<Unit> = units.collect();
        self.dirty.extend(units);
    }

    pub(super) fn all_jobs_dirty(&mut self) {
        let jobs = self.jobs.values().flat_map(Store::iter).map(|job| Unit::Job(job.uid()));
        self.dirty.extend(jobs.chain(self.members.units()));
    }

    /// Everything is looked at: after leadership was gained.
    pub(super) fn all_dirty(&mut self) {
        self.all_jobs_dirty();
        self.workloads_dirty(|_| true);
        self.dirty.extend(self.flavors_by_name.keys().map(|name| Unit::Flavor(name.as_str().into())));
        for key in self.ground.placed() {
            self.places_dirty(&key);
        }
        self.dirty.extend(self.ground.topology_names().map(|name| Unit::Topology(name.into())));
        self.dirty.extend(self.checks_by_name.iter().cloned().map(Unit::Check));
        self.dirty.extend(self.cohorts_by_name.iter().cloned().map(Unit::Cohort));
        self.dirty.extend(self.queues_by_name.iter().cloned().map(Unit::ClusterQueue));
    }

    /// The Workloads of which this is true are looked at.
    fn workloads_dirty(&mut self, which: impl Fn(&Kept) -> bool) {
        for kept in self.workloads.iter().filter(|kept| which(kept)) {
            let unit = self.unit_of(kept);
            self.dirty.insert(unit);
        }
    }
}

fn named<'a, V: 'a>(
    items: impl Iterator<Item = &'a V>,
    metadata: fn(&V) -> &ObjectMeta,
) -> impl Iterator<Item = (String, &'a V)> {
    items.map(move |one| (metadata(one).name.clone().unwrap_or_default(), one))
}

/// Whether several of the nodes that its pods are on have failed.
fn has_lost_several(workload: &quota_engine::input::Workload) -> bool {
    let failed = &workload.seldom.unhealthy_nodes;
    let quota_engine::input::Standing::Reserved { admission, .. } = &workload.standing else { return false };
    let places = admission.pod_sets.iter().filter_map(|one| one.topology.as_ref());
    let nodes = places.flat_map(|places| &places.domains).filter_map(|domain| domain.values.last());
    let nodes: Vec<&Arc<str>> = if failed.len() > 1 { nodes.collect() } else { Vec::new() };
    failed.iter().filter(|node| nodes.contains(node)).count() > 1
}
