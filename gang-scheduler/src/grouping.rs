//! Which pods belong together: from objects of the API to the engine's events. Pure.
//!
//! A pod that names a PodGroup is a member of it. Otherwise, a pod whose owner chain leads to a Workload is a member of
//! the Workload's gang: all its pod sets, as many pods as were granted, or were given places. Otherwise it is on its own. Where
//! a PodGroup's pods have a Workload, too, the larger minimum holds, and the Workload must be admitted in any case.
//!
//! A pod that carries the marks of a released job (`kueue.x-k8s.io/podset`, `…/workload`, `…/cluster-queue-name`) waits
//! until its Workload is known: the two arrive on different watches, in either order (Volcano #6010 is that race). So may a
//! Workload of that name which an earlier admission is written in: a pod that says which version let it start
//! (`trireme.dev/workload-version`) belongs to none that is older. Kubernetes guarantees since 1.35 that versions are numbers in
//! that order (KEP-5504); etcd's always were.

mod define;
mod grant;
mod read;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crds::view;
use model::planted::{Bug, Planted};
use placement_engine::{Event, GangId, Hold, PodInfo, PodPhase, PodUid};

pub(crate) use define::disagreement;
pub use read::{device_events, node_info};

/// An object's namespace and name.
pub type Key = (Arc<str>, Arc<str>);

/// What is remembered of a pod besides what the engine knows.
#[derive(Clone, Debug)]
pub struct PodRecord {
    /// As the engine is told, without gang and hold.
    pub(crate) info: PodInfo,
    /// Its resourceVersion as last seen.
    pub resource_version: String,
    /// Its conditions as last seen.
    pub conditions: Vec<serde_json::Value>,
    /// Its containers run.
    pub running: bool,
    ours: bool,
    created_ms: i64,
    group: Option<Key>,
    owner: Option<Arc<str>>,
    workload_name: Option<Key>,
    /// The version of the Workload that let it start; zero where nobody said.
    workload_version: u64,
    marked: bool,
    /// Names of the pod set it may belong to, the most reliable one first.
    pod_sets: Vec<String>,
}

#[derive(Clone, Debug)]
struct WorkloadRecord {
    key: Key,
    version: u64,
    owners: Vec<Arc<str>>,
    created_ms: i64,
    admitted: bool,
    finished: bool,
    grants: Vec<grant::Grant>,
    /// What of it starts together.
    starts: Together,
}

/// What of a Workload starts together (annotation `trireme.dev/gang`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Together {
    /// All of it.
    All,
    /// Each pod set by itself.
    PodSet,
    /// Each pod by itself.
    Nothing,
}

/// A PodGroup as last seen.
#[derive(Clone, Debug)]
pub struct GroupRecord {
    /// The object.
    pub view: view::PodGroup,
    uid: Arc<str>,
}

/// The object that defines a gang.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GangOwner {
    /// API group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Kind.
    pub kind: String,
    /// Namespace and name.
    pub key: Key,
    /// Uid.
    pub uid: String,
    /// A PodGroup's minimum, and how many of the pods that their Workload was granted start together, where they are not the same.
    pub disagreement: Option<(u32, u32)>,
}

/// Everything grouping depends on.
#[derive(Debug, Default)]
pub struct Index {
    schedulers: BTreeSet<String>,
    planted: Planted,
    pods: BTreeMap<PodUid, PodRecord>,
    groups: BTreeMap<Key, GroupRecord>,
    workloads: BTreeMap<Arc<str>, WorkloadRecord>,
    /// Workloads by the uid of the object they stand for.
    by_owner: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    by_name: BTreeMap<Key, Arc<str>>,
    /// A Job's uid to its own owner's.
    parents: BTreeMap<Arc<str>, Arc<str>>,
    children: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    pods_of_group: BTreeMap<Key, BTreeSet<PodUid>>,
    pods_of_owner: BTreeMap<Arc<str>, BTreeSet<PodUid>>,
    pods_of_name: BTreeMap<Key, BTreeSet<PodUid>>,
    gang_of: BTreeMap<PodUid, GangId>,
    members: BTreeMap<GangId, BTreeSet<PodUid>>,
    owners: BTreeMap<GangId, GangOwner>,
    /// Values of priority classes, by name.
    priorities: BTreeMap<String, i32>,
    /// Why pods ask more than was granted, as of the last [`Index::settle`].
    holds: BTreeMap<PodUid, Hold>,
    /// What [`Index::settle`] has to look at: each change costs its own pod, not its gang.
    changed_gangs: BTreeSet<GangId>,
    changed_workloads: BTreeSet<Arc<str>>,
}

impl Index {
    /// An index that knows nothing, for pods of these schedulers.
    pub fn new(schedulers: BTreeSet<String>, planted: Planted) -> Self {
        Self { schedulers, planted, ..Self::default() }
    }

    /// A pod as last seen.
    pub fn pod(&self, uid: &PodUid) -> Option<&PodRecord> {
        self.pods.get(uid)
    }

    /// Remembers the version of a pod that a write of ours made.
    pub fn pod_written(&mut self, uid: &PodUid, resource_version: &str) {
        if let Some(record) = self.pods.get_mut(uid) {
            resource_version.clone_into(&mut record.resource_version);
        }
    }

    /// The gang of a pod.
    pub fn gang_of(&self, uid: &PodUid) -> Option<&GangId> {
        self.gang_of.get(uid)
    }

    /// The object that defines a gang.
    pub fn owner(&self, gang: &GangId) -> Option<&GangOwner> {
        self.owners.get(gang)
    }

    /// A PodGroup as last seen.
    pub fn group(&self, key: &Key) -> Option<&GroupRecord> {
        self.groups.get(key)
    }

    /// A pod is there, or changed.
    pub fn pod_applied(&mut self, pod: &view::Pod) -> Vec<Event> {
        let record = read::pod_record(pod, &self.schedulers);
        let uid = record.info.uid.clone();
        let same = self.pods.get(&uid).is_some_and(|old| {
            old.info == record.info
                && (old.ours, &old.group, &old.owner) == (record.ours, &record.group, &record.owner)
                && (old.marked, &old.workload_name) == (record.marked, &record.workload_name)
                && old.workload_version == record.workload_version
        });
        if same {
            self.pods.insert(uid, record);
            return Vec::new();
        }
        self.workload_changed_by(&uid);
        self.unlink(&uid);
        self.link(&record);
        self.pods.insert(uid.clone(), record);
        self.refresh(BTreeSet::from([uid]))
    }

    /// A pod is gone.
    pub fn pod_deleted(&mut self, uid: &PodUid) -> Vec<Event> {
        self.workload_changed_by(uid);
        self.unlink(uid);
        self.holds.remove(uid);
        if self.pods.remove(uid).is_none() {
            return Vec::new();
        }
        let mut events = vec![Event::PodDeleted(uid.clone())];
        if let Some(gang) = self.gang_of.remove(uid) {
            self.changed_gangs.insert(gang.clone());
            self.leave(uid, &gang, &mut events);
        }
        events
    }

    /// What follows from everything since the last call for whole gangs: their rules, and which of their pods ask more
    /// than was granted. To be asked before anything is decided.
    pub fn settle(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        for gang in std::mem::take(&mut self.changed_gangs) {
            if self.members.contains_key(&gang) || self.owners.contains_key(&gang) {
                self.define(&gang, &mut events);
            }
        }
        for workload in std::mem::take(&mut self.changed_workloads) {
            let pods = self.pods_counted_for(&workload);
            let mut holds = self.grant_holds(&workload, &pods);
            for uid in pods {
                let hold = holds.remove(&uid);
                if self.holds.get(&uid) != hold.as_ref() {
                    match hold {
                        Some(hold) => self.holds.insert(uid.clone(), hold),
                        None => self.holds.remove(&uid),
                    };
                    events.extend(self.told(&uid));
                }
            }
        }
        events
    }

    /// A PodGroup is there, or changed.
    pub fn group_applied(&mut self, group: view::PodGroup) -> Vec<Event> {
        let key = read::key_of(&group.metadata);
        let uid: Arc<str> = group.metadata.uid.clone().unwrap_or_default().into();
        let mut events = Vec::new();
        if let Some(old) = self.groups.insert(key.clone(), GroupRecord { view: group, uid: uid.clone() })
            && old.uid != uid
        {
            let gone = group_gang(&old.uid);
            self.owners.remove(&gone);
            events.push(Event::GangDeleted(gone));
        }
        let members = self.pods_of_group.get(&key).cloned().unwrap_or_default();
        self.owners.entry(group_gang(&uid)).or_insert_with(|| read::group_owner(&key, &uid));
        self.changed_gangs.insert(group_gang(&uid));
        events.extend(self.refresh(members));
        events
    }

    /// A PodGroup is gone.
    pub fn group_deleted(&mut self, key: &Key, uid: &str) -> Vec<Event> {
        if self.groups.get(key).is_none_or(|group| group.uid.as_ref() != uid) {
            return Vec::new();
        }
        self.groups.remove(key);
        let gang = group_gang(uid);
        self.owners.remove(&gang);
        let members = self.pods_of_group.get(key).cloned().unwrap_or_default();
        let mut events = self.refresh(members);
        events.push(Event::GangDeleted(gang));
        events
    }

    /// A priority class is there, or gone (no value).
    pub fn priority_class(&mut self, name: &str, value: Option<i32>) {
        let old = match value {
            Some(value) => self.priorities.insert(name.to_owned(), value),
            None => self.priorities.remove(name),
        };
        if old != value {
            let named = self.groups.values().filter(|group| group.view.spec.priority_class_name == name);
            self.changed_gangs.extend(named.map(|group| group_gang(&group.uid)));
        }
    }

    /// How many of a gang's pods have running containers.
    pub fn running(&self, gang: &GangId) -> usize {
        let members = self.members.get(gang).into_iter().flatten();
        members.filter(|uid| self.pods.get(*uid).is_some_and(|record| record.running)).count()
    }

    /// A Workload is there, or changed.
    pub fn workload_applied(&mut self, workload: &view::WorkloadPlacement) -> Vec<Event> {
        let uid: Arc<str> = workload.metadata.uid.clone().unwrap_or_default().into();
        let record = read::workload_record(workload);
        let mut affected = self.pods_of_workload(&uid);
        self.forget_workload(&uid);
        for owner in &record.owners {
            self.by_owner.entry(owner.clone()).or_default().insert(uid.clone());
        }
        self.by_name.insert(record.key.clone(), uid.clone());
        self.workloads.insert(uid.clone(), record);
        self.changed_workloads.insert(uid.clone());
        affected.extend(self.pods_of_workload(&uid));
        self.refresh(affected)
    }

    /// A Workload is gone.
    pub fn workload_deleted(&mut self, uid: &str) -> Vec<Event> {
        let affected = self.pods_of_workload(uid);
        self.forget_workload(uid);
        for pod in &affected {
            self.holds.remove(pod);
        }
        self.refresh(affected)
    }

    /// A batch Job is there: its owner is one step of the owner chain.
    pub fn job_applied(&mut self, job: &view::JobOwner) -> Vec<Event> {
        let uid: Arc<str> = job.metadata.uid.clone().unwrap_or_default().into();
        let Some(parent) = read::controller_of(&job.metadata) else { return Vec::new() };
        if self.parents.get(&uid) == Some(&parent) {
            return Vec::new();
        }
        self.parents.insert(uid.clone(), parent.clone());
        self.children.entry(parent).or_default().insert(uid.clone());
        let affected = self.pods_of_owner.get(&uid).cloned().unwrap_or_default();
        self.refresh(affected)
    }

    /// A batch Job is gone.
    pub fn job_deleted(&mut self, uid: &str) {
        if let Some(parent) = self.parents.remove(uid)
            && let Some(children) = self.children.get_mut(&parent)
        {
            children.remove(uid);
            if children.is_empty() {
                self.children.remove(&parent);
            }
        }
    }

    fn forget_workload(&mut self, uid: &str) {
        let Some(record) = self.workloads.remove(uid) else { return };
        self.changed_workloads.remove(uid);
        if self.by_name.get(&record.key).is_some_and(|named| named.as_ref() == uid) {
            self.by_name.remove(&record.key);
        }
        for owner in &record.owners {
            if let Some(workloads) = self.by_owner.get_mut(owner) {
                workloads.remove(uid);
                if workloads.is_empty() {
                    self.by_owner.remove(owner);
                }
            }
        }
    }

    fn link(&mut self, record: &PodRecord) {
        let uid = &record.info.uid;
        if let Some(group) = &record.group {
            self.pods_of_group.entry(group.clone()).or_default().insert(uid.clone());
        }
        if let Some(owner) = &record.owner {
            self.pods_of_owner.entry(owner.clone()).or_default().insert(uid.clone());
        }
        if let Some(name) = &record.workload_name {
            self.pods_of_name.entry(name.clone()).or_default().insert(uid.clone());
        }
    }

    fn unlink(&mut self, uid: &PodUid) {
        let Some(record) = self.pods.get(uid) else { return };
        if let Some(group) = &record.group {
            remove_from(&mut self.pods_of_group, group, uid);
        }
        if let Some(owner) = &record.owner {
            remove_from(&mut self.pods_of_owner, owner, uid);
        }
        if let Some(name) = &record.workload_name {
            remove_from(&mut self.pods_of_name, name, uid);
        }
    }

    /// What other pods of its Workload may ask depends on this one.
    fn workload_changed_by(&mut self, uid: &PodUid) {
        let workload = self.pods.get(uid).and_then(|record| self.workload_of(record));
        self.changed_workloads.extend(workload);
    }

    fn pods_of_workload(&self, uid: &str) -> BTreeSet<PodUid> {
        let Some(record) = self.workloads.get(uid) else { return BTreeSet::new() };
        let jobs = record.owners.iter().flat_map(|owner| self.children.get(owner)).flatten();
        let owned =
            record.owners.iter().chain(jobs).filter_map(|owner| self.pods_of_owner.get(owner)).flatten();
        let named = self.pods_of_name.get(&record.key).into_iter().flatten();
        let plain = record.owners.iter().map(|owner| PodUid::new(owner.clone()));
        let plain = plain.filter(|pod| self.pods.contains_key(pod));
        owned.chain(named).cloned().chain(plain).collect()
    }

    /// Those of its pods that no other Workload has: a job may have an old one and a new one.
    fn pods_counted_for(&self, uid: &str) -> BTreeSet<PodUid> {
        let mut pods = self.pods_of_workload(uid);
        pods.retain(|pod| {
            let workload = self.pods.get(pod).and_then(|record| self.workload_of(record));
            workload.is_some_and(|workload| workload.as_ref() == uid)
        });
        pods
    }

    /// The Workload a pod belongs to: by its owner, its owner's owner, itself, or the name it was released with.
    fn workload_of(&self, record: &PodRecord) -> Option<Arc<str>> {
        let chain =
            record.owner.iter().flat_map(|owner| std::iter::once(owner).chain(self.parents.get(owner)));
        let by_owner = chain
            .map(AsRef::as_ref)
            .chain([record.info.uid.as_str()])
            .find_map(|owner: &str| self.by_owner.get(owner));
        let named = || self.by_name.get(record.workload_name.as_ref()?);
        let candidates = match by_owner {
            Some(workloads) => workloads.iter().collect(),
            None => Vec::from_iter(named()),
        };
        let known = candidates.into_iter().filter_map(|uid| Some((uid, self.workloads.get(uid)?)));
        known
            .filter(|(_, workload)| workload.version >= record.workload_version)
            .max_by_key(|(uid, one)| (!one.finished, one.admitted, one.created_ms, (*uid).clone()))
            .map(|(uid, _)| uid.clone())
    }

    /// Whether what a pod belongs to has ended: its job does not need it any more.
    pub fn is_done_for(&self, pod: &PodUid) -> bool {
        let workload = self.pods.get(pod).and_then(|record| self.workload_of(record));
        workload.and_then(|uid| self.workloads.get(&uid)).is_some_and(|workload| workload.finished)
    }

    /// Works out anew where these pods belong, and tells the engine.
    fn refresh(&mut self, pods: BTreeSet<PodUid>) -> Vec<Event> {
        let mut events = Vec::new();
        let mut gangs = BTreeSet::new();
        for uid in &pods {
            let Some(record) = self.pods.get(uid) else { continue };
            let gang = record.ours.then(|| self.gang_for(record));
            let old = self.gang_of.get(uid).cloned();
            if old != gang {
                if let Some(old) = old {
                    self.gang_of.remove(uid);
                    gangs.insert(old.clone());
                    self.leave(uid, &old, &mut events);
                }
                if let Some(gang) = &gang {
                    self.gang_of.insert(uid.clone(), gang.clone());
                    self.members.entry(gang.clone()).or_default().insert(uid.clone());
                }
            }
            gangs.extend(gang);
        }
        self.changed_gangs.extend(gangs);
        for uid in &pods {
            self.workload_changed_by(uid);
            events.extend(self.told(uid));
        }
        events
    }

    /// A pod as the engine is to know it.
    fn told(&self, uid: &PodUid) -> Option<Event> {
        let record = self.pods.get(uid)?;
        let mut info = record.info.clone();
        info.gang = self.gang_of.get(uid).cloned();
        let hold = info.hold.take().or_else(|| self.admission_hold(record));
        info.hold = hold.or_else(|| self.holds.get(uid).cloned());
        Some(Event::PodApplied(Box::new(info)))
    }

    fn leave(&mut self, uid: &PodUid, gang: &GangId, events: &mut Vec<Event>) {
        if let Some(members) = self.members.get_mut(gang) {
            members.remove(uid);
            if members.is_empty() {
                self.members.remove(gang);
                let lasting = self
                    .owners
                    .get(gang)
                    .is_some_and(|owner| owner.kind == "PodGroup" && self.groups.contains_key(&owner.key));
                if !lasting {
                    self.owners.remove(gang);
                    self.changed_gangs.remove(gang);
                    events.push(Event::GangDeleted(gang.clone()));
                }
            }
        }
    }

    fn gang_for(&self, record: &PodRecord) -> GangId {
        if let Some(key) = &record.group {
            return match self.groups.get(key) {
                Some(group) => group_gang(&group.uid),
                None => GangId::new(format!("missing-podgroup/{}/{}", key.0, key.1)),
            };
        }
        match self.workload_of(record) {
            Some(workload) => match self.own_pod_set(record) {
                Some(set) => GangId::new(format!("workload/{workload}/{set}")),
                None => GangId::new(format!("workload/{workload}")),
            },
            None => GangId::new(format!("pod/{}", record.info.uid)),
        }
    }

    /// The pod set that is this pod's gang, where that is not the whole Workload.
    fn own_pod_set(&self, record: &PodRecord) -> Option<&str> {
        let workload =
            self.workloads.get(&self.workload_of(record)?).filter(|one| one.starts == Together::PodSet)?;
        let grant_of = |name: &String| workload.grants.iter().find(|grant| grant.pod_set == *name);
        record.pod_sets.iter().find_map(grant_of).map(|grant| grant.pod_set.as_str())
    }

    /// Why this pod must not run by itself, whatever its gang: what it belongs to was not admitted.
    fn admission_hold(&self, record: &PodRecord) -> Option<Hold> {
        if !record.ours || self.planted.is(Bug::BindUnadmitted) {
            return None;
        }
        match self.workload_of(record).and_then(|uid| self.workloads.get(&uid)) {
            Some(workload) if workload.admitted => None,
            Some(workload) => Some(Hold::WorkloadNotAdmitted { workload: workload.key.1.clone() }),
            None => record.marked.then_some(Hold::WorkloadMissing),
        }
    }

    /// Which pods exceed what their Workload was granted.
    fn grant_holds(&self, uid: &str, pods: &BTreeSet<PodUid>) -> BTreeMap<PodUid, Hold> {
        let admitted = self.workloads.get(uid).filter(|workload| workload.admitted);
        let Some(workload) = admitted.filter(|_| !self.planted.is(Bug::BindMoreThanGranted)) else {
            return BTreeMap::new();
        };
        let mut living: Vec<&PodRecord> = pods
            .iter()
            .filter_map(|pod| self.pods.get(pod))
            .filter(|record| record.info.phase == PodPhase::Active)
            // What goes before it had a node will never use any of the grant; and what stands behind a gate does not ask yet: of a
            // job that was resized it waits for another.
            .filter(|record| record.info.node.is_some() || !(record.info.deleting || record.info.gated))
            .collect();
        living.sort_by(|a, b| {
            let key = |info: &PodInfo| (info.node.is_none(), info.name.len());
            let (a, b) = (&a.info, &b.info);
            key(a).cmp(&key(b)).then_with(|| (&a.name, &a.uid).cmp(&(&b.name, &b.uid)))
        });
        grant::exceeding(&workload.key.1, &workload.grants, &living)
    }
}

fn group_gang(uid: &str) -> GangId {
    GangId::new(format!("podgroup/{uid}"))
}

fn remove_from<K: Ord>(index: &mut BTreeMap<K, BTreeSet<PodUid>>, key: &K, uid: &PodUid) {
    if let Some(pods) = index.get_mut(key) {
        pods.remove(uid);
        if pods.is_empty() {
            index.remove(key);
        }
    }
}
