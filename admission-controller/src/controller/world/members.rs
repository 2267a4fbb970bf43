//! Managed pods, which of them belong together, and the objects they were made for.

use std::collections::{BTreeMap, BTreeSet};

use crds::names::kueue;
use crds::reasons::workload as tokens;
use crds::view::workload::Workload;
use kit::watch::Change;
use quota_engine::Uid;

use super::kept::{Kept, Owner};
use super::{Unit, World, controller_of};
use crate::config::Configuration;
use crate::controller::store::{Delta, Names, Store, StoredJob};
use crate::jobs::{JobKind, JobObject, KindId};
use crate::pods::{Group, Member, PodOwner, PodsKey, Shape, of_kind};

/// Kind, namespace and name.
type OwnerName = (KindId, String, String);

/// Managed pods and the objects they were made for.
#[derive(Default)]
pub(super) struct Members {
    /// `None` where no pods are managed.
    pods: Option<Store<JobObject>>,
    key_of_pod: BTreeMap<Uid, PodsKey>,
    by_key: BTreeMap<PodsKey, BTreeSet<Uid>>,
    owners: BTreeMap<KindId, (&'static PodOwner, Store<JobObject>)>,
    /// Of what kind an owner is.
    kind_of_owner: BTreeMap<Uid, KindId>,
    /// Owners by kind, namespace and name.
    owner_named: Names<OwnerName>,
    /// Pods that have not joined their group, by the object they were made for.
    to_join: BTreeMap<OwnerName, BTreeSet<Uid>>,
    /// Workloads by the uid of the object they were made from.
    workloads_of_owner: BTreeMap<Uid, BTreeSet<Uid>>,
}

impl Members {
    pub(super) fn new(config: &Configuration) -> Self {
        let owners = config.pod_owners().filter(|owner| owner.makes_workloads());
        Self {
            pods: config.watches_pods().then(Store::default),
            owners: owners.map(|owner| (owner.kind.id(), (owner, Store::default()))).collect(),
            ..Self::default()
        }
    }

    pub(super) fn is_synced(&self) -> bool {
        self.pods.as_ref().is_none_or(Store::is_synced)
            && self.owners.values().all(|(_, store)| store.is_synced())
    }

    /// Everything that is managed here.
    pub(super) fn units(&self) -> Vec<Unit> {
        let owners = self.kind_of_owner.keys().cloned().map(Unit::PodOwner);
        self.by_key.keys().cloned().map(Unit::Pods).chain(owners).collect()
    }

    /// The pods that a Workload is of.
    pub(super) fn unit_of(&self, workload: &Kept) -> Option<Unit> {
        self.pods.as_ref()?;
        if workload.is_of_group() {
            return Some(Unit::Pods(PodsKey::group(workload.namespace(), &workload.name)));
        }
        let owner = workload.controller()?;
        (&*owner.kind == "Pod" && &*owner.api_version == "v1")
            .then(|| Unit::Pods(PodsKey::One(owner.uid.clone())))
    }

    /// Takes note of a Workload; the owners it was made from, and the group of its name, may have to look at it.
    pub(super) fn workload_seen(&mut self, workload: &Kept) -> Vec<Unit> {
        let owners = made_from(workload);
        for owner in &owners {
            self.workloads_of_owner.entry(owner.clone()).or_default().insert(workload.uid.clone());
        }
        owners.into_iter().map(Unit::PodOwner).chain(self.group_named(workload)).collect()
    }

    pub(super) fn workload_gone(&mut self, workload: &Kept) -> Vec<Unit> {
        let owners = made_from(workload);
        for owner in &owners {
            if let Some(workloads) = self.workloads_of_owner.get_mut(owner) {
                workloads.remove(&workload.uid);
                if workloads.is_empty() {
                    self.workloads_of_owner.remove(owner);
                }
            }
        }
        owners.into_iter().map(Unit::PodOwner).chain(self.group_named(workload)).collect()
    }

    /// The pods whose group has the name of a Workload: it may be what they wait for, or be in their way.
    fn group_named(&self, workload: &Kept) -> Option<Unit> {
        if self.by_key.is_empty() {
            return None;
        }
        let key = PodsKey::group(workload.namespace(), &workload.name);
        self.by_key.contains_key(&key).then_some(Unit::Pods(key))
    }
}

/// The objects that a Workload was made from, of kinds that are managed through their pods.
fn made_from(workload: &Kept) -> Vec<Uid> {
    let known = workload.owners().filter(|owner| of_kind(owner.group(), &owner.kind).is_some());
    known.map(|owner| owner.uid.clone()).collect()
}

/// Whether a Workload has quota, or is at its end.
fn is_occupied(workload: &Workload) -> bool {
    workload.metadata.deletion_timestamp.is_some()
        || workload.holds(tokens::QUOTA_RESERVED)
        || workload.holds(tokens::FINISHED)
}

impl World {
    /// Tells webhooks what a Workload means to the object that it was made from, where that has one for all its pods.
    pub(super) fn tell_occupied(&self, workload: &Kept) {
        let has_one = |owner: &&Owner| {
            let kind = of_kind(owner.group(), &owner.kind);
            kind.is_some_and(|kind| matches!(kind.shape, Shape::OneGroup))
        };
        for owner in workload.owners().filter(has_one) {
            let made = self.workloads_made_from(&owner.uid, workload.namespace());
            let occupied = made.iter().any(is_occupied);
            self.surroundings.send_if_modified(|told| match occupied {
                true => told.occupied.insert(owner.uid.clone()),
                false => told.occupied.remove(&owner.uid),
            });
        }
    }

    pub(in crate::controller) fn take_pods(&mut self, change: Change<JobObject>) {
        let Some(store) = &mut self.members.pods else { return };
        for delta in store.take(change) {
            self.pod_changed(delta);
        }
    }

    /// Takes the answer to a write of a pod.
    pub(in crate::controller) fn take_pod_answer(&mut self, pod: JobObject) {
        let changed = self.members.pods.as_mut().and_then(|store| store.upsert(pod));
        if let Some(uid) = changed {
            self.pod_changed(Delta::Upsert(uid));
        }
    }

    fn pod_changed(&mut self, delta: Delta<JobObject>) {
        let members = &mut self.members;
        let (uid, key) = match delta {
            Delta::Upsert(uid) => {
                let Some(pod) = members.pods.as_ref().and_then(|store| store.get(&uid)) else { return };
                let (key, owner) = (pod.pods_key(), owner_name(pod));
                if let (PodsKey::One(_), Some(name)) = (&key, pod.prebuilt()) {
                    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
                    self.awaited.insert((namespace.into(), name.into()), Unit::Pods(key.clone()));
                }
                if let Some(owner) = owner {
                    let waiting = members.to_join.entry(owner.clone()).or_default();
                    if matches!(key, PodsKey::One(_)) {
                        waiting.insert(uid.clone())
                    } else {
                        waiting.remove(&uid)
                    };
                    if waiting.is_empty() {
                        members.to_join.remove(&owner);
                    }
                    self.dirty.extend(members.owner_named.get(&owner).cloned().map(Unit::PodOwner));
                }
                (uid, Some(key))
            }
            Delta::Gone(pod) => {
                let uid = Uid::from(pod.uid());
                self.awaited.remove(&Unit::Pods(PodsKey::One(uid.clone())));
                if let Some(owner) = owner_name(&pod)
                    && let Some(waiting) = members.to_join.get_mut(&owner)
                {
                    waiting.remove(&uid);
                    if waiting.is_empty() {
                        members.to_join.remove(&owner);
                    }
                }
                // One that was not being deleted may only have lost the label by which it is found.
                if pod.is_leaving() {
                    self.note_gone(&uid);
                }
                (uid, None)
            }
        };
        let members = &mut self.members;
        let before = match &key {
            Some(key) => members.key_of_pod.insert(uid.clone(), key.clone()),
            None => members.key_of_pod.remove(&uid),
        };
        if before != key {
            if let Some(before) = &before
                && let Some(pods) = members.by_key.get_mut(before)
            {
                pods.remove(&uid);
                if pods.is_empty() {
                    members.by_key.remove(before);
                }
            }
            if let Some(key) = &key {
                members.by_key.entry(key.clone()).or_default().insert(uid);
            }
            self.dirty.extend(before.map(Unit::Pods));
        }
        self.dirty.extend(key.map(Unit::Pods));
    }

    pub(in crate::controller) fn take_pod_owners(
        &mut self,
        owner: &'static PodOwner,
        change: Change<JobObject>,
    ) {
        let id = owner.kind.id();
        let Some((_, store)) = self.members.owners.get_mut(&id) else { return };
        let deltas = store.take(change);
        self.pod_owners_seen(id, deltas);
    }

    /// Whether objects of a kind are managed through their pods.
    pub(super) fn has_pod_owners(&self, kind: &JobKind) -> bool {
        self.members.owners.contains_key(&kind.id())
    }

    /// Takes what was read of an object that is managed through its pods.
    pub(super) fn take_pod_owner_answer(&mut self, kind: &JobKind, object: JobObject) {
        let Some((_, store)) = self.members.owners.get_mut(&kind.id()) else { return };
        let seen = store.upsert(object).map(Delta::Upsert);
        self.pod_owners_seen(kind.id(), seen.into_iter().collect());
    }

    fn pod_owners_seen(&mut self, id: KindId, deltas: Vec<Delta<JobObject>>) {
        for delta in deltas {
            let uid = match delta {
                Delta::Upsert(uid) => {
                    let store = self.members.owners.get(&id).map(|(_, store)| store);
                    if let Some(object) = store.and_then(|store| store.get(&uid)) {
                        let (name, above) = (name_of(id, object), controller_of(&object.metadata).cloned());
                        self.members.owner_named.insert(name, uid.clone());
                        self.note_part(&uid, above.as_ref());
                    }
                    self.members.kind_of_owner.insert(uid.clone(), id);
                    uid
                }
                Delta::Gone(object) => {
                    let uid = Uid::from(object.uid());
                    self.members.owner_named.remove(&name_of(id, &object), &uid);
                    self.members.kind_of_owner.remove(&uid);
                    self.forget_part(&uid, controller_of(&object.metadata));
                    self.awaited.remove(&Unit::PodOwner(uid.clone()));
                    uid
                }
            };
            self.dirty.insert(Unit::PodOwner(uid));
        }
    }

    /// Whether an object is managed through its pods.
    pub(super) fn is_pod_owner(&self, uid: &Uid) -> bool {
        self.members.kind_of_owner.contains_key(uid)
    }

    /// The pods of a key, as they are managed together.
    pub(in crate::controller) fn group(&self, key: &PodsKey) -> Option<Group<'_>> {
        let store = self.members.pods.as_ref()?;
        let pods = self.members.by_key.get(key)?.iter().filter_map(|uid| store.get(uid));
        Group::new(key.clone(), pods.filter(|pod| self.is_managed_pod(pod)))
    }

    /// Plain pods may be left alone, and those of Deployments managed. Who owns a pod does not matter where the webhook took it:
    /// Kueue's took also pods whose owner, of a managed kind, names no queue. A label alone may be copied.
    fn is_managed_pod(&self, pod: &JobObject) -> bool {
        if pod.group_name().is_none() && PodOwner::of_pod(pod).is_some() {
            // It joins its group first.
            return false;
        }
        let has_parent = !pod.annotation(kueue::POD_SUSPENDING_PARENT).is_empty();
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let was_taken = || {
            let mut finalizers = pod.metadata.finalizers.iter().flatten();
            finalizers.any(|one| one == kueue::MANAGED) || pod.has_gate(kueue::ADMISSION_GATE)
        };
        let is_own = || was_taken() || !self.config.is_part(&pod.metadata);
        // One by itself that was taken is let go at its end, whatever was selected since.
        let is_one = || pod.group_name().is_none() && was_taken();
        let is_leaving = || pod.metadata.deletion_timestamp.is_some() && is_one();
        let is_selected = || self.is_selected(namespace) || is_leaving();
        has_parent || (self.config.manages_pods() && is_selected() && is_own())
    }

    pub(in crate::controller) fn pod(&self, uid: &Uid) -> Option<&JobObject> {
        self.members.pods.as_ref()?.get(uid)
    }

    /// What is looked at when something became of a pod: the pods that it is managed with and, as long as it has not joined them, the
    /// object that says which these are.
    pub(in crate::controller) fn units_of_pod(&self, uid: &Uid) -> Vec<Unit> {
        let key = self.members.key_of_pod.get(uid);
        let owner = key.filter(|key| matches!(key, PodsKey::One(_))).and_then(|_| owner_name(self.pod(uid)?));
        let owner = owner.and_then(|name| self.members.owner_named.get(&name));
        key.cloned().map(Unit::Pods).into_iter().chain(owner.cloned().map(Unit::PodOwner)).collect()
    }

    /// The Workload of pods, and whether one of its name was made for something else.
    pub(in crate::controller) fn workload_of_pods(&self, key: &PodsKey) -> (Option<Workload>, bool) {
        match key {
            PodsKey::One(uid) => {
                let namespace = self.pod(uid).and_then(|pod| pod.metadata.namespace.as_deref());
                (self.workloads_of(uid, namespace).into_iter().next(), false)
            }
            PodsKey::Group(group) => match self.workloads.named(&group.namespace, &group.name) {
                Some(kept) if kept.is_of_group() || self.is_prebuilt(kept, key) => (Some(kept.view()), false),
                Some(_) => (None, true),
                None => (None, false),
            },
        }
    }

    /// Whether somebody made a Workload for these pods, as they say themselves, and nobody else has it.
    fn is_prebuilt(&self, kept: &Kept, key: &PodsKey) -> bool {
        let name_it = |pods: Group<'_>| pods.first().prebuilt() == Some(&*kept.name);
        kept.controller().is_none() && self.group(key).is_some_and(name_it)
    }

    /// The namespace of what a unit is about; empty where it has none, or where it is gone.
    pub(in crate::controller) fn namespace_of<'a>(&'a self, unit: &'a Unit) -> &'a str {
        let of = |object: &'a JobObject| object.metadata.namespace.as_deref();
        let namespace = match unit {
            Unit::Job(uid) => self.stored_job(uid).map(|job| match job {
                StoredJob::Whole(job) => of(&job.object).unwrap_or_default(),
                StoredJob::Bare(job) => &*job.namespace,
            }),
            Unit::Workload(uid) | Unit::Places(uid) => {
                self.workloads.kept(uid).map(|kept| &**kept.namespace())
            }
            Unit::Pods(PodsKey::Group(group)) => Some(group.namespace.as_str()),
            Unit::Pods(PodsKey::One(uid)) | Unit::Pod(uid) | Unit::Gate(uid) => self.pod(uid).and_then(of),
            Unit::PodOwner(uid) => self.pod_owner(uid).and_then(|(_, owner)| of(owner)),
            Unit::LocalQueue(key) => Some(&*key.namespace),
            Unit::ClusterQueue(_)
            | Unit::Flavor(_)
            | Unit::Topology(_)
            | Unit::Check(_)
            | Unit::Cohort(_) => None,
        };
        namespace.unwrap_or_default()
    }

    /// A Workload by its name.
    pub(in crate::controller) fn workload_named(&self, namespace: &str, name: &str) -> Option<Workload> {
        self.workloads.named(namespace, name).map(Kept::view)
    }

    /// An object that is managed through its pods.
    pub(in crate::controller) fn pod_owner(&self, uid: &Uid) -> Option<(&'static PodOwner, &JobObject)> {
        let (owner, store) = self.members.owners.get(self.members.kind_of_owner.get(uid)?)?;
        Some((owner, store.get(uid)?))
    }

    /// The Workloads that were made from an object of this namespace.
    pub(in crate::controller) fn workloads_made_from(&self, owner: &Uid, namespace: &str) -> Vec<Workload> {
        let uids = self.members.workloads_of_owner.get(owner).into_iter().flatten();
        uids.filter(|uid| self.is_in(uid, namespace)).filter_map(|uid| self.workloads.get(uid)).collect()
    }

    /// The pods that have to join a group of an object that has these Workloads, or to follow it to another queue, and the
    /// patches with which they do.
    pub(in crate::controller) fn joins(
        &self,
        owner: &PodOwner,
        object: &JobObject,
        made: &[Workload],
    ) -> Vec<(Uid, serde_json::Value)> {
        let name = name_of(owner.kind.id(), object);
        let waiting = self.members.to_join.get(&name);
        let join = |uid: &Uid| Some((uid.clone(), owner.join(object, self.pod(uid)?, made)?));
        let joined = made.iter().filter_map(|one| {
            let metadata = &one.metadata;
            let group = PodsKey::group(metadata.namespace.as_deref()?, metadata.name.as_deref()?);
            self.members.by_key.get(&group)
        });
        let follow = |uid: &Uid| {
            let pod = self.pod(uid)?;
            let body = PodOwner::follow_queue(object, pod)?;
            // Others may name its group.
            (owner_name(pod).as_ref() == Some(&name)).then(|| (uid.clone(), body))
        };
        let joins = waiting.into_iter().flatten().filter_map(join);
        joins.chain(joined.flatten().filter_map(follow)).collect()
    }
}

fn name_of(id: KindId, object: &JobObject) -> OwnerName {
    let metadata = &object.metadata;
    (id, metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
}

/// The object that a pod was made for, if its group is made from that.
fn owner_name(pod: &JobObject) -> Option<OwnerName> {
    let (owner, name) = PodOwner::of_pod(pod)?;
    Some((owner.kind.id(), pod.metadata.namespace.clone().unwrap_or_default(), name.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;

    /// A Job that names no queue owns it: Kueue queues such a pod by itself, and gives it the label.
    #[test]
    fn a_pod_that_was_taken_is_managed_whoever_owns_it() {
        for (file, is_managed) in [
            ("{}", true),
            ("integrations:\n  frameworks: [batch/job, deployment]\n", false),
            ("managedJobsNamespaceSelector:\n  matchLabels: { quota: counted }\n", false),
        ] {
            let mut world = World::new(&Configuration::parse(Path::new("f"), file).unwrap());
            let owner = json!({
                "apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": true,
            });
            let pod = json!({ "metadata": {
                "name": "p", "namespace": "team", "uid": "p", "resourceVersion": "1",
                "labels": { kueue::MANAGED: "true", kueue::QUEUE_NAME: "a" },
                "finalizers": [kueue::MANAGED], "ownerReferences": [owner],
            }});
            world.take_pods(Change::Applied(serde_json::from_value(pod).unwrap()));
            assert_eq!(world.group(&PodsKey::One("p".into())).is_some(), is_managed, "{file}");
        }
    }
}
