//! Jobs: which are managed, and what is kept of them.

use std::collections::BTreeMap;

use crds::view::workload::Workload;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kit::watch::Change;
use model::selector::Labels;
use quota_engine::Uid;
use serde_json::Value;

use super::ancestors::{Ancestor, Standing};
use super::{Unit, World, controller_of};
use crate::controller::store::{BareJob, Delta, Object, Store, StoredJob};
use crate::jobs::table::ChildSays;
use crate::jobs::{self, JobKind, JobObject, group_of};
use crate::pods::prebuilt;
use crate::reconcile::Job;

impl World {
    pub(super) fn take_job(&mut self, kind: &'static JobKind, change: Change<JobObject>) {
        // A kind that is not served for a moment has an empty list, too.
        let is_served = !matches!(change, Change::Synced { as_of: None });
        let change = match change {
            Change::Applied(object) => {
                self.take_child(kind, &object);
                let before = self.ancestor(&object.uid().into());
                let job = self.kept(kind, object);
                return self.job_seen(kind, before, is_served, |store| store.take(Change::Applied(job)));
            }
            other => other.map(|object| StoredJob::bare(kind, object)),
        };
        let is_there =
            |world: &Self| world.jobs.get(&kind.id()).map(|one| (one.is_synced(), one.was_served()));
        let before = is_there(self);
        self.job_seen(kind, None, is_served, |store| store.take(change));
        // Who waits for an owner of this kind may do so in vain.
        if self.config.only_sees(kind) && is_there(self) != before {
            self.unseen_parts_dirty();
        }
    }

    /// Puts what was seen into the store, and takes note of what follows; `before` is what the job said to its parts, `is_served` whether
    /// the API server serves the kind.
    fn job_seen(
        &mut self,
        kind: &'static JobKind,
        before: Option<Ancestor>,
        is_served: bool,
        take: impl FnOnce(&mut Store<StoredJob>) -> Vec<Delta<StoredJob>>,
    ) {
        let Some(store) = self.jobs.get_mut(&kind.id()) else { return };
        for delta in take(store) {
            let uid = match delta {
                Delta::Upsert(uid) => {
                    self.kind_of_job.insert(uid.clone(), kind.id());
                    self.note_owner(&uid);
                    if self.ancestor(&uid) != before {
                        self.parts_dirty(&uid);
                    }
                    uid
                }
                Delta::Gone(job) => {
                    let uid = job.uid();
                    self.kind_of_job.remove(&uid);
                    if is_served {
                        self.note_gone(&uid);
                    }
                    self.forget_owner(&uid, &job);
                    self.parts_dirty(&uid);
                    self.forget_child(&uid);
                    self.forget_slices(&uid);
                    self.awaited.remove(&Unit::Job(uid.clone()));
                    uid
                }
            };
            self.tell_passed(&uid);
            self.dirty.insert(Unit::Job(uid));
        }
    }

    /// What a controller made of a job, and says more of its pods.
    fn take_child(&mut self, kind: &JobKind, object: &JobObject) {
        let Some(owner) = controller_of(&object.metadata) else { return };
        if !self.config.manages_jobs_of(&owner.api_version, &owner.kind) {
            return;
        }
        let parent = self.config.kind_of(&owner.api_version, &owner.kind);
        let Some(child) = parent.and_then(|kind| kind.child.as_ref()) else { return };
        if (child.group, child.kind) != kind.group_kind() {
            return;
        }
        // It is a child in its own namespace only.
        let parent = (Uid::from(owner.uid.as_str()), object.metadata.namespace.clone().unwrap_or_default());
        let name = object.metadata.name.clone().unwrap_or_default();
        let said = (name, jobs::of_child(child.says, object));
        let before =
            self.children.entry(parent.clone()).or_default().insert(object.uid().into(), said.clone());
        if before.is_none_or(|before| before != said) {
            self.describe_anew(&parent.0);
        }
    }

    fn forget_child(&mut self, uid: &Uid) {
        let parent = self.children.iter_mut().find_map(|(parent, children)| {
            children.remove(uid).is_some().then(|| (parent.clone(), children.is_empty()))
        });
        if let Some((parent, was_last)) = parent {
            if was_last {
                self.children.remove(&parent);
            }
            self.describe_anew(&parent.0);
        }
    }

    /// What is said of a job's pods by what its controller made of it.
    fn said_by_child(&self, kind: &JobKind, object: &JobObject) -> Value {
        let Some(child) = &kind.child else { return Value::Null };
        let key = (Uid::from(object.uid()), object.metadata.namespace.clone().unwrap_or_default());
        let mut children = self.children.get(&key).into_iter().flat_map(BTreeMap::values);
        let found = match child.says {
            ChildSays::All => children.next_back(),
            ChildSays::Counts(named) => children.find(|(name, _)| name == object.text(named)),
        };
        found.map(|(_, said)| said.clone()).unwrap_or_default()
    }

    fn describe_anew(&mut self, parent: &Uid) {
        let Some(StoredJob::Whole(job)) = self.stored_job(parent) else { return };
        let (kind, child) = (job.kind, self.said_by_child(job.kind, &job.object));
        let store = self.jobs.get_mut(&kind.id());
        if let Some(StoredJob::Whole(job)) = store.and_then(|store| store.get_mut(parent))
            && job.object.child != child
        {
            job.object.child = child;
            job.view = jobs::read(job.kind, &job.object);
            self.dirty.insert(Unit::Job(parent.clone()));
        }
    }

    /// Takes the answer to a write of a job.
    pub(in crate::controller) fn take_job_answer(&mut self, kind: &'static JobKind, object: JobObject) {
        if self.has_pod_owners(kind) {
            return self.take_pod_owner_answer(kind, object);
        }
        let before = self.ancestor(&object.uid().into());
        let job = self.kept(kind, object);
        self.job_seen(kind, before, true, |store| store.upsert(job).into_iter().map(Delta::Upsert).collect());
    }

    /// What is to be kept of a job.
    fn kept(&mut self, kind: &'static JobKind, mut object: JobObject) -> StoredJob {
        object.child = self.said_by_child(kind, &object);
        if let Some(name) = prebuilt(&object) {
            let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
            self.awaited.insert((namespace.into(), name.into()), Unit::Job(object.uid().into()));
        }
        // Its namespace may not have been seen yet: whether that is selected is asked when something is to be done.
        let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
        let wanted =
            self.standing(&object.metadata).is_looked_at() && self.config.manages(namespace, object.queue());
        match (wanted || self.is_managed(&object)) && kind.can_be_managed(&object) {
            true => StoredJob::whole(kind, object),
            false => StoredJob::bare(kind, object),
        }
    }

    /// Whether what names this queue in this namespace is managed.
    pub(in crate::controller) fn manages(&self, namespace: &str, queue: Option<&str>) -> bool {
        self.config.manages(namespace, queue) && self.is_selected(namespace)
    }

    /// Whether an object names no queue, where only those are managed that do: it may have named one before.
    pub(in crate::controller) fn is_unqueued(&self, object: &JobObject) -> bool {
        let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
        !self.config.manages(namespace, object.queue())
    }

    /// Whether jobs of a namespace are managed at all. Where nobody has selected any, those of the control plane and of this
    /// program are not, as with Kueue.
    pub(super) fn is_selected(&self, namespace: &str) -> bool {
        let Some(selector) = &self.config.managed_jobs_namespace_selector else {
            return !self.config.is_the_systems(namespace);
        };
        let view = self.namespaces_by_name.get(namespace).and_then(|uid| self.namespaces.get(uid));
        let no_labels = Labels::new();
        view.is_some_and(|one| selector.matches(one.metadata.labels.as_ref().unwrap_or(&no_labels)))
    }

    /// Whether a job is managed, as far as its Workloads are known.
    pub(in crate::controller) fn is_managed(&self, job: &JobObject) -> bool {
        let namespace = job.metadata.namespace.as_deref().unwrap_or_default();
        let known = || self.has_workload(&Uid::from(job.uid()), namespace);
        (self.manages(namespace, job.queue()) || known()) && self.standing(&job.metadata) == Standing::Own
    }

    pub(in crate::controller) fn stored_job(&self, uid: &Uid) -> Option<&StoredJob> {
        self.jobs.get(self.kind_of_job.get(uid)?)?.get(uid)
    }

    /// The jobs of this name, whatever their kinds.
    pub(in crate::controller) fn jobs_called(&self, namespace: &str, name: &str) -> Vec<&StoredJob> {
        let all = self.jobs.values().flat_map(Store::iter);
        all.filter(|job| job.is_named(namespace, name)).collect()
    }

    /// Whether nothing can be said yet of what became of a job that is there.
    pub(in crate::controller) fn is_unsure_of(&self, uid: &Uid) -> bool {
        let standing = |job: &StoredJob| self.standing_below(job.owner().cloned(), job.namespace());
        self.stored_job(uid).is_some_and(|job| standing(job) == Standing::Unseen)
    }

    /// Whether jobs of the kind that controls a Workload are served: one that is not known may be seen yet.
    pub(in crate::controller) fn serves_owner_of(&self, workload: &Workload) -> bool {
        let served = |owner: &OwnerReference| {
            let mut kinds =
                self.config.kinds().filter(|kind| kind.is(group_of(&owner.api_version), &owner.kind));
            kinds.any(|kind| self.jobs.get(&kind.id()).is_some_and(Store::is_served))
        };
        controller_of(&workload.metadata).is_some_and(served)
    }

    /// A job of which everything is known.
    pub(in crate::controller) fn job(&self, uid: &Uid) -> Option<&Job> {
        match self.stored_job(uid)? {
            StoredJob::Whole(job) => Some(job),
            StoredJob::Bare(_) => None,
        }
    }

    /// A job of which nothing was kept, and that is managed now: it has a Workload, or it has turned out to be nobody's part.
    pub(in crate::controller) fn job_to_read(&self, uid: &Uid) -> Option<&BareJob> {
        let StoredJob::Bare(job) = self.stored_job(uid)? else { return None };
        let is_wanted =
            || self.has_workload(uid, &job.namespace) || self.manages(&job.namespace, job.queue.as_deref());
        let standing = || self.standing_below(job.owner.as_deref().cloned(), &job.namespace);
        (job.can_be_managed && is_wanted() && standing().is_looked_at()).then_some(job)
    }
}
