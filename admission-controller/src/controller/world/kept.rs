//! Workloads as they are kept: there are many, and most of them only wait. What many have in common is kept once, and what
//! few have takes no room in the others.

use std::collections::BTreeMap;
use std::sync::Arc;

use crds::names::kueue;
use crds::view::workload::{Admission, PodSet, PriorityClassRef, Workload};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, OwnerReference, Time};
use kit::watch::Change;
use model::pool::Pool;
use quota_engine::Uid;

use crate::controller::store::{Delta, Object, Store};
use crate::input;

/// The Workloads that exist, by uid.
pub(in crate::controller) struct Workloads {
    store: Store<Kept>,
    shared: Shared,
}

/// What Workloads have in common.
#[derive(Default)]
struct Shared {
    texts: Pool<str>,
    lists: Pool<[String]>,
    pod_sets: Pool<[PodSet]>,
    classes: Pool<PriorityClassRef>,
    admissions: Pool<Admission>,
}

/// A Workload without its labels, which decide nothing; but for the one that tells of which job an orphan is.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) uid: Uid,
    version: u64,
    pub(super) name: Arc<str>,
    pub(super) namespace: Arc<str>,
    generation: Option<i64>,
    created: Option<Time>,
    finalizers: Option<Arc<[String]>>,
    owners: Option<Box<[Owner]>>,
    queue_name: Option<Arc<str>>,
    pod_sets: Arc<[PodSet]>,
    priority: Option<i32>,
    class: Option<Arc<PriorityClassRef>>,
    active: Option<bool>,
    conditions: Box<[Said]>,
    admission: Option<Arc<Admission>>,
    /// Everything else, of one that has anything else.
    rest: Option<Box<Workload>>,
}

/// An owner reference.
#[derive(Debug)]
pub(super) struct Owner {
    api_version: Arc<str>,
    kind: Arc<str>,
    name: Box<str>,
    uid: Uid,
    controller: Option<bool>,
    block_deletion: Option<bool>,
}

/// A condition.
#[derive(Debug)]
struct Said {
    kind: Arc<str>,
    status: Arc<str>,
    reason: Arc<str>,
    message: Arc<str>,
    since: Time,
    generation: Option<i64>,
}

impl Object for Kept {
    fn uid(&self) -> Uid {
        self.uid.clone()
    }
    fn version(&self) -> u64 {
        self.version
    }
}

impl Kept {
    fn of(mut view: Workload, shared: &mut Shared) -> Self {
        let (uid, version) = (input::uid(&view.metadata), input::version(&view.metadata));
        let metadata = &mut view.metadata;
        // Said by `uid` and `version`.
        (metadata.uid, metadata.resource_version) = (None, None);
        let owners = metadata.owner_references.take().filter(|owners| !owners.is_empty());
        let labels = metadata.labels.take().filter(|_| owners.is_none()).unwrap_or_default();
        let job: BTreeMap<_, _> = labels.into_iter().filter(|(key, _)| key == kueue::JOB_UID).collect();
        metadata.labels = (!job.is_empty()).then_some(job);
        let finalizers = metadata.finalizers.take().filter(|finalizers| !finalizers.is_empty());
        let kept = Self {
            uid,
            version,
            name: metadata.name.take().unwrap_or_default().into(),
            namespace: shared.texts.share_text(&metadata.namespace.take().unwrap_or_default()),
            generation: metadata.generation.take(),
            created: metadata.creation_timestamp.take(),
            finalizers: finalizers.map(|finalizers| shared.lists.share(finalizers.into())),
            owners: owners.map(|owners| owners.into_iter().map(|one| Owner::of(one, shared)).collect()),
            queue_name: view.spec.queue_name.take().map(|name| shared.texts.share_text(&name)),
            pod_sets: shared.pod_sets.share(std::mem::take(&mut view.spec.pod_sets)),
            priority: view.spec.priority.take(),
            class: view.spec.priority_class_ref.take().map(|class| shared.classes.share(class.into())),
            active: view.spec.active.take(),
            conditions: std::mem::take(&mut view.status.conditions)
                .into_iter()
                .map(|one| Said::of(one, shared))
                .collect(),
            admission: view.status.admission.take().map(|one| shared.admissions.share(one.into())),
            rest: None,
        };
        let rest = (view != Workload::default()).then(|| Box::new(view));
        Self { rest, ..kept }
    }

    /// As it was read, but for its labels.
    pub(super) fn view(&self) -> Workload {
        let mut view = self.rest.as_deref().cloned().unwrap_or_default();
        let said = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let metadata = &mut view.metadata;
        metadata.uid = said(self.uid.as_str());
        metadata.resource_version = (self.version > 0).then(|| self.version.to_string());
        metadata.name = said(&self.name);
        metadata.namespace = said(&self.namespace);
        metadata.generation = self.generation;
        metadata.creation_timestamp.clone_from(&self.created);
        metadata.finalizers = self.finalizers.as_deref().map(<[String]>::to_vec);
        metadata.owner_references =
            self.owners.as_ref().map(|owners| owners.iter().map(Owner::reference).collect());
        view.spec.queue_name = self.queue_name.as_deref().map(str::to_owned);
        view.spec.pod_sets = Arc::clone(&self.pod_sets);
        view.spec.priority = self.priority;
        view.spec.priority_class_ref = self.class.as_deref().cloned();
        view.spec.active = self.active;
        view.status.admission = self.admission.as_deref().cloned();
        view.status.conditions = self.conditions.iter().map(Said::condition).collect();
        view
    }
}

impl Owner {
    fn of(reference: OwnerReference, shared: &mut Shared) -> Self {
        Self {
            api_version: shared.texts.share_text(&reference.api_version),
            kind: shared.texts.share_text(&reference.kind),
            name: reference.name.into(),
            uid: Uid::new(reference.uid),
            controller: reference.controller,
            block_deletion: reference.block_owner_deletion,
        }
    }

    fn reference(&self) -> OwnerReference {
        OwnerReference {
            api_version: self.api_version.to_string(),
            kind: self.kind.to_string(),
            name: self.name.to_string(),
            uid: self.uid.as_str().to_owned(),
            controller: self.controller,
            block_owner_deletion: self.block_deletion,
        }
    }
}

impl Said {
    fn of(condition: Condition, shared: &mut Shared) -> Self {
        Self {
            kind: shared.texts.share_text(&condition.type_),
            status: shared.texts.share_text(&condition.status),
            reason: shared.texts.share_text(&condition.reason),
            message: shared.texts.share_text(&condition.message),
            since: condition.last_transition_time,
            generation: condition.observed_generation,
        }
    }

    fn condition(&self) -> Condition {
        Condition {
            type_: self.kind.to_string(),
            status: self.status.to_string(),
            reason: self.reason.to_string(),
            message: self.message.to_string(),
            last_transition_time: self.since.clone(),
            observed_generation: self.generation,
        }
    }
}

impl Workloads {
    pub(super) fn new() -> Self {
        Self { store: Store::new(), shared: Shared::default() }
    }

    pub(super) fn is_synced(&self) -> bool {
        self.store.is_synced()
    }

    /// The Workload of this uid.
    pub(in crate::controller) fn get(&self, uid: &Uid) -> Option<Workload> {
        self.store.get(uid).map(Kept::view)
    }

    /// The same, as it is kept.
    pub(super) fn kept(&self, uid: &Uid) -> Option<&Kept> {
        self.store.get(uid)
    }

    /// Whether one has a condition of this type with this status and reason.
    pub(in crate::controller) fn says(&self, uid: &Uid, kind: &str, status: &str, reason: &str) -> bool {
        let conditions = self.store.get(uid).map(|kept| &*kept.conditions).unwrap_or_default();
        conditions
            .iter()
            .any(|said| &*said.kind == kind && &*said.status == status && &*said.reason == reason)
    }

    /// All of them, by uid.
    pub(in crate::controller) fn iter(&self) -> impl Iterator<Item = (&Uid, Workload)> {
        self.store.iter().map(|(uid, kept)| (uid, kept.view()))
    }

    pub(super) fn take(&mut self, change: Change<Workload>) -> Vec<Delta<Kept>> {
        let change = match change {
            Change::Restarted => Change::Restarted,
            Change::Synced => Change::Synced,
            Change::Applied(view) => Change::Applied(Kept::of(view, &mut self.shared)),
            Change::Deleted(view) => Change::Deleted(Kept::of(view, &mut self.shared)),
        };
        self.store.take(change)
    }

    /// Takes the answer to a write; see [`Store::upsert`].
    pub(super) fn upsert(&mut self, view: Workload) -> Option<Uid> {
        self.store.upsert(Kept::of(view, &mut self.shared))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(object: &Value) -> Workload {
        serde_json::from_value(object.clone()).unwrap()
    }

    fn plain() -> Value {
        json!({
            "metadata": {
                "name": "one", "namespace": "team", "uid": "u", "resourceVersion": "17", "generation": 2,
                "creationTimestamp": "2026-01-02T03:04:05Z", "finalizers": ["kueue.x-k8s.io/resource-in-use"],
                "ownerReferences": [{
                    "apiVersion": "batch/v1", "kind": "Job", "name": "one", "uid": "j", "controller": true,
                    "blockOwnerDeletion": true,
                }],
            },
            "spec": {
                "queueName": "lq", "priority": 3, "active": true,
                "priorityClassRef": {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"},
                "podSets": [{"name": "main", "count": 2, "template": {}}],
            },
            "status": {
                "admission": {"clusterQueue": "cq", "podSetAssignments": [
                    {"name": "main", "count": 2, "flavors": {"cpu": "rf"}, "resourceUsage": {"cpu": "2"}},
                ]},
                "conditions": [{
                    "type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "2 of cpu",
                    "lastTransitionTime": "2026-01-02T03:04:06Z", "observedGeneration": 2,
                }],
            },
        })
    }

    /// What many Workloads have leaves nothing over: it would take more room than all of it.
    #[test]
    fn it_reads_as_it_was_read() {
        let mut special = plain();
        special["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:07Z");
        special["metadata"]["annotations"] = json!({"a": "b"});
        special["spec"]["maximumExecutionTimeSeconds"] = json!(60);
        special["status"]["requeueState"] = json!({"count": 1});
        let bare = json!({"metadata": {}});
        let orphan = json!({"metadata": {"labels": {"kueue.x-k8s.io/job-uid": "j"}}});
        for (object, has_rest) in [(plain(), false), (special, true), (bare, false), (orphan, true)] {
            let view = read(&object);
            let kept = Kept::of(view.clone(), &mut Shared::default());
            assert_eq!(kept.view(), view, "{object}");
            assert_eq!(kept.rest.is_some(), has_rest, "{object}");
        }
    }

    #[test]
    fn what_two_have_in_common_is_kept_once() {
        let mut shared = Shared::default();
        let mut keep = || Kept::of(read(&plain()), &mut shared);
        let (one, other) = (keep(), keep());
        assert!(Arc::ptr_eq(&one.pod_sets, &other.pod_sets));
        assert!(Arc::ptr_eq(&one.namespace, &other.namespace));
        assert!(Arc::ptr_eq(&one.conditions[0].message, &other.conditions[0].message));
    }
}
