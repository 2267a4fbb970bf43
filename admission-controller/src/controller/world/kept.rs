//! Workloads as they are kept: there are many, and most of them only wait. What many have in common is kept once, and what
//! few have takes no room in the others.

use std::collections::BTreeMap;
use std::num::NonZeroI64;
use std::sync::Arc;

use crds::names::kueue;
use crds::reasons::workload as tokens;
use crds::view::workload::{Admission, PodSet, PriorityClassRef, Requested, Workload};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, OwnerReference, Time};
use model::pool::Pool;
use quota_engine::{LocalQueueKey, Uid};

use crate::controller::store::Object;
use crate::input::{self, Texts};
use crate::jobs::group_of;
use crate::pods::is_of_group;

/// What Workloads have in common.
#[derive(Default)]
pub(super) struct Shared {
    texts: Pool<str>,
    pod_sets: Pool<[PodSet]>,
    likes: Pool<Alike>,
    words: Pool<Words>,
    admissions: Pool<Admission>,
}

/// What the workloads of one queue mostly have alike.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Alike {
    namespace: Arc<str>,
    queue_name: Option<Arc<str>>,
    finalizers: Option<Vec<String>>,
    generation: Option<i64>,
    active: Option<bool>,
    priority: Option<i32>,
    class: Option<PriorityClassRef>,
    pod_sets: Arc<[PodSet]>,
    requested: Option<Requested>,
}

/// A Workload without its labels, which decide nothing; but for the one that tells of which job an orphan is.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) uid: Uid,
    version: u64,
    pub(super) name: Arc<str>,
    alike: Arc<Alike>,
    created: Option<Seconds>,
    owners: Option<Box<[Owner]>>,
    conditions: Box<[Said]>,
    admission: Option<Arc<Admission>>,
    /// Everything else, of one that has anything else.
    rest: Option<Box<Workload>>,
}

/// An owner reference.
#[derive(Debug, PartialEq)]
pub(super) struct Owner {
    pub(super) api_version: Arc<str>,
    pub(super) kind: Arc<str>,
    name: Box<str>,
    pub(super) uid: Uid,
    controller: Option<bool>,
    block_deletion: Option<bool>,
}

/// A time as the API server writes it: in whole seconds since the epoch.
#[derive(Clone, Copy, Debug)]
struct Seconds(NonZeroI64);

/// A condition.
#[derive(Debug)]
struct Said {
    words: Arc<Words>,
    since: Option<Seconds>,
    generation: Option<i64>,
}

/// What conditions of many Workloads say alike.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Words {
    kind: String,
    status: String,
    reason: String,
    message: String,
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
    pub(super) fn of(mut view: Workload, shared: &mut Shared) -> Self {
        let (uid, version) = (input::uid(&view.metadata), input::version(&view.metadata));
        let metadata = &mut view.metadata;
        // Said by `uid` and `version`.
        (metadata.uid, metadata.resource_version) = (None, None);
        let owners = metadata.owner_references.take().filter(|owners| !owners.is_empty());
        let labels = metadata.labels.take().filter(|_| owners.is_none()).unwrap_or_default();
        let job: BTreeMap<_, _> = labels.into_iter().filter(|(key, _)| key == kueue::JOB_UID).collect();
        metadata.labels = (!job.is_empty()).then_some(job);
        let alike = Alike {
            namespace: shared.texts.share_text(&metadata.namespace.take().unwrap_or_default()),
            queue_name: view.spec.queue_name.take().map(|name| shared.texts.share_text(&name)),
            finalizers: metadata.finalizers.take().filter(|finalizers| !finalizers.is_empty()),
            generation: metadata.generation.take(),
            active: view.spec.active.take(),
            priority: view.spec.priority.take(),
            class: view.spec.priority_class_ref.take(),
            pod_sets: shared.pod_sets.share(std::mem::take(&mut view.spec.pod_sets)),
            requested: view.status.resource_requests.take(),
        };
        let kept = Self {
            uid,
            version,
            name: metadata.name.take().unwrap_or_default().into(),
            alike: shared.likes.share(alike.into()),
            created: metadata.creation_timestamp.take().as_ref().and_then(Seconds::of),
            owners: owners.map(|owners| owners.into_iter().map(|one| Owner::of(one, shared)).collect()),
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
        metadata.uid = said(&self.uid.to_string());
        metadata.resource_version = (self.version > 0).then(|| self.version.to_string());
        metadata.name = said(&self.name);
        metadata.namespace = said(&self.alike.namespace);
        metadata.generation = self.alike.generation;
        metadata.creation_timestamp = self.created.map(Seconds::time);
        metadata.finalizers.clone_from(&self.alike.finalizers);
        metadata.owner_references =
            self.owners.as_ref().map(|owners| owners.iter().map(Owner::reference).collect());
        view.spec.queue_name = self.alike.queue_name.as_deref().map(str::to_owned);
        view.spec.pod_sets = Arc::clone(&self.alike.pod_sets);
        view.spec.priority = self.alike.priority;
        view.spec.priority_class_ref.clone_from(&self.alike.class);
        view.spec.active = self.alike.active;
        view.status.resource_requests = self.alike.requested;
        view.status.admission = self.admission.as_deref().cloned();
        view.status.conditions = self.conditions.iter().map(Said::condition).collect();
        view
    }

    /// Of its metadata when it was made, and for whom. A hundred thousand may be asked for at once.
    pub(super) fn origin(&self) -> ObjectMeta {
        ObjectMeta {
            creation_timestamp: self.created.map(Seconds::time),
            owner_references: self
                .owners
                .as_ref()
                .map(|owners| owners.iter().map(Owner::reference).collect()),
            ..ObjectMeta::default()
        }
    }

    pub(super) fn is_of_owner_named(&self, name: &str) -> bool {
        self.owners.iter().flatten().any(|owner| *owner.name == *name)
    }

    pub(super) fn namespace(&self) -> &Arc<str> {
        &self.alike.namespace
    }

    /// What is kept of it as texts.
    pub(super) fn texts(&self) -> Texts {
        Texts {
            uid: self.uid.clone(),
            namespace: self.alike.namespace.clone(),
            name: self.name.clone(),
            queue: self.alike.queue_name.clone(),
        }
    }

    /// The objects that it was made from.
    pub(super) fn owners(&self) -> impl Iterator<Item = &Owner> {
        self.owners.iter().flatten()
    }

    /// Its controller, if it has one.
    pub(super) fn controller(&self) -> Option<&Owner> {
        self.owners().find(|owner| owner.controller == Some(true))
    }

    /// Whether it is that of a group of pods.
    pub(super) fn is_of_group(&self) -> bool {
        self.rest.as_ref().is_some_and(|rest| is_of_group(&rest.metadata))
    }

    /// The WorkloadPriorityClass that says what it is worth.
    pub(super) fn workload_class(&self) -> Option<&str> {
        let class = self.alike.class.as_ref().filter(|class| class.group == kueue::GROUP)?;
        Some(&class.name)
    }

    /// The ClusterQueue of which it holds quota.
    pub(super) fn cluster_queue(&self) -> Option<&str> {
        self.admission.as_ref().map(|admission| admission.cluster_queue.as_str())
    }

    /// The LocalQueue that it names.
    pub(super) fn local_queue(&self) -> Option<LocalQueueKey> {
        Some(LocalQueueKey::new(&*self.alike.namespace, self.alike.queue_name.as_deref()?))
    }

    /// Whether it has to pass any check.
    pub(super) fn lists_checks(&self) -> bool {
        self.rest.as_ref().is_some_and(|rest| !rest.status.admission_checks.is_empty())
    }

    /// Whether it has to pass this check.
    pub(super) fn has_check(&self, name: &str) -> bool {
        let states = self.rest.iter().flat_map(|rest| &rest.status.admission_checks);
        states.into_iter().any(|state| state.name == name)
    }

    /// Whether something may run by it.
    pub(super) fn is_in_use(&self) -> bool {
        let is_over = |said: &Said| said.words.kind == tokens::FINISHED && said.words.status == "True";
        self.admission.is_some() && !self.conditions.iter().any(is_over)
    }

    /// Whether it has a condition of this type with this status and reason.
    pub(super) fn says(&self, kind: &str, status: &str, reason: &str) -> bool {
        let mut words = self.conditions.iter().map(|said| &*said.words);
        words.any(|said| said.kind == kind && said.status == status && said.reason == reason)
    }
}

impl Owner {
    fn of(reference: OwnerReference, shared: &mut Shared) -> Self {
        Self {
            api_version: shared.texts.share_text(&reference.api_version),
            kind: shared.texts.share_text(&reference.kind),
            name: reference.name.into(),
            uid: Uid::new(&reference.uid),
            controller: reference.controller,
            block_deletion: reference.block_owner_deletion,
        }
    }

    /// The API group of its kind.
    pub(super) fn group(&self) -> &str {
        group_of(&self.api_version)
    }

    fn reference(&self) -> OwnerReference {
        OwnerReference {
            api_version: self.api_version.to_string(),
            kind: self.kind.to_string(),
            name: self.name.to_string(),
            uid: self.uid.to_string(),
            controller: self.controller,
            block_owner_deletion: self.block_deletion,
        }
    }
}

impl Seconds {
    /// `None` for the epoch itself, when nothing was created.
    fn of(time: &Time) -> Option<Self> {
        NonZeroI64::new(time.0.as_second()).map(Self)
    }

    fn time(self) -> Time {
        Time(Timestamp::from_second(self.0.get()).unwrap_or(Timestamp::UNIX_EPOCH))
    }
}

impl Said {
    fn of(condition: Condition, shared: &mut Shared) -> Self {
        let words = Words {
            kind: condition.type_,
            status: condition.status,
            reason: condition.reason,
            message: condition.message,
        };
        Self {
            words: shared.words.share(words.into()),
            since: Seconds::of(&condition.last_transition_time),
            generation: condition.observed_generation,
        }
    }

    fn condition(&self) -> Condition {
        let Words { kind, status, reason, message } = &*self.words;
        Condition {
            type_: kind.clone(),
            status: status.clone(),
            reason: reason.clone(),
            message: message.clone(),
            last_transition_time: self.since.map_or(Time(Timestamp::UNIX_EPOCH), Seconds::time),
            observed_generation: self.generation,
        }
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
        let mut waits = plain();
        waits["status"] = json!({
            "conditions": waits["status"]["conditions"],
            "resourceRequests": [{"name": "main", "resources": {"cpu": "2"}}],
        });
        let bare = json!({"metadata": {}});
        let orphan = json!({"metadata": {"labels": {"kueue.x-k8s.io/job-uid": "j"}}});
        for (object, has_rest) in
            [(plain(), false), (waits, false), (special, true), (bare, false), (orphan, true)]
        {
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
        assert!(Arc::ptr_eq(&one.alike, &other.alike));
        assert!(Arc::ptr_eq(&one.conditions[0].words, &other.conditions[0].words));
    }

    /// There is one for every workload of the cluster.
    #[test]
    fn it_is_small() {
        assert_eq!((size_of::<Kept>(), size_of::<Said>()), (104, 32));
    }
}
