//! Kinds that have no suspend field: their pods are held back instead.
//!
//! A kind is an entry of [`OWNERS`]. Its webhook marks the pod templates, so that every pod is gated when it is created. Where
//! the pods of an object belong together, the Workload is made from the object, and the pods join it.

use std::collections::BTreeMap;

use crds::names::{kueue, trireme};
use crds::validation::Gates;
use crds::view::workload::Workload;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};

use super::Member;
use crate::compose::{self, Priorities};
use crate::jobs::{JobKind, JobObject, Ranks, group_of, table};
use crate::names::workload_name;
use crate::reconcile::Job;

/// A kind that is managed through its pods. Paths are JSON pointers from the object's root.
#[derive(Debug)]
pub struct PodOwner {
    /// Its names; what it says of suspending has no meaning.
    pub kind: &'static JobKind,
    /// Where its pod templates are.
    pub templates: &'static [&'static str],
    /// Annotations that its templates get besides the one that names the framework.
    pub annotations: &'static [(&'static str, &'static str)],
    /// Whether pods carry its queue and its priority class from the start. Where they do not, a change of the queue must not
    /// make new pods of all.
    pub labels_templates: bool,
    /// The label with a pod's rank among those it belongs with.
    pub pod_index: Option<&'static str>,
    /// Which pods belong together.
    pub shape: Shape,
}

/// Which pods of an object belong together.
#[derive(Debug)]
pub enum Shape {
    /// None: each has a Workload of its own.
    EachPod,
    /// All of them.
    OneGroup,
    /// Those of each replica.
    GroupPerReplica {
        /// The label of a pod that names the object.
        name: &'static str,
        /// The label of a pod that says which replica it is of.
        index: &'static str,
        /// The annotation that the workers have, and their leader has not.
        led: &'static str,
        /// How many pods a replica has; absent is 1.
        size: &'static str,
    },
}

/// Every kind that is managed through its pods.
pub static OWNERS: &[PodOwner] = &[
    PodOwner {
        kind: &table::DEPLOYMENT,
        templates: &["/spec/template"],
        annotations: &[],
        labels_templates: true,
        pod_index: None,
        shape: Shape::EachPod,
    },
    PodOwner {
        kind: &table::STATEFUL_SET,
        templates: &["/spec/template"],
        annotations: &[],
        labels_templates: false,
        pod_index: Some("apps.kubernetes.io/pod-index"),
        shape: Shape::OneGroup,
    },
    PodOwner {
        kind: &table::LEADER_WORKER_SET,
        templates: &[LEADER, WORKER],
        annotations: &[(kueue::POD_GROUP_SERVING, "true")],
        labels_templates: true,
        pod_index: Some("leaderworkerset.sigs.k8s.io/worker-index"),
        shape: Shape::GroupPerReplica {
            name: "leaderworkerset.sigs.k8s.io/name",
            index: "leaderworkerset.sigs.k8s.io/group-index",
            led: "leaderworkerset.sigs.k8s.io/leader-name",
            size: "/spec/leaderWorkerTemplate/size",
        },
    },
];

const REPLICAS: &str = "/spec/replicas";
const LEADER: &str = "/spec/leaderWorkerTemplate/leaderTemplate";
const WORKER: &str = "/spec/leaderWorkerTemplate/workerTemplate";

/// More replicas are refused: each would have a Workload, by whose name it is looked up whenever something happens to the set. Kueue's
/// bound is a million (`leaderworkerset_controller.go`).
const MAX_REPLICAS: i64 = 10_000;

/// The entry of a kind.
pub fn of_kind(group: &str, kind: &str) -> Option<&'static PodOwner> {
    OWNERS.iter().find(|one| one.kind.group == group && one.kind.kind == kind)
}

/// A Workload that an object is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The Workload's name, and its group's.
    pub name: String,
    /// Which replica, where there is one for each.
    pub index: Option<i64>,
}

impl PodOwner {
    /// Whether Workloads are made from the object, and its pods join them.
    pub fn makes_workloads(&self) -> bool {
        !matches!(self.shape, Shape::EachPod)
    }

    /// Whether each replica has a Workload.
    pub fn is_per_replica(&self) -> bool {
        matches!(self.shape, Shape::GroupPerReplica { .. })
    }

    /// Whether its templates are not marked by another kind: a StatefulSet of a LeaderWorkerSet is a part of that. Objects of other kinds
    /// are nobody's part, and marked anew, as with Kueue.
    pub fn is_top_level(&self, object: &JobObject) -> bool {
        !matches!(self.shape, Shape::OneGroup)
            || self.marked_by(object).is_none_or(|parent| parent == self.kind.framework)
    }

    /// Whether its templates say that their pods wait for its Workloads.
    pub fn is_marked(&self, object: &JobObject) -> bool {
        self.marked_by(object) == Some(self.kind.framework)
    }

    fn marked_by<'a>(&self, object: &'a JobObject) -> Option<&'a str> {
        self.templates.iter().find_map(|template| {
            let annotations = object.at(&format!("{template}/metadata/annotations"))?;
            annotations.get(kueue::POD_SUSPENDING_PARENT)?.as_str()
        })
    }

    /// How many replicas the object is to have.
    pub fn replicas(&self, object: &JobObject) -> i64 {
        let replicas = object.at(REPLICAS).and_then(Value::as_i64).unwrap_or(1).max(0);
        if self.is_per_replica() { replicas.min(MAX_REPLICAS) } else { replicas }
    }

    /// Whether the object may have as many replicas as it says.
    ///
    /// # Errors
    /// What would be right.
    pub fn check_replicas(&self, object: &JobObject) -> Result<(), String> {
        let replicas = object.at(REPLICAS).and_then(Value::as_i64).unwrap_or(1);
        match replicas {
            0..=MAX_REPLICAS => Ok(()),
            _ => Err(format!("each replica has a Workload: it must be from 0 to {MAX_REPLICAS}")),
        }
    }

    /// The Workloads that the object is to have; these were made from it. One that is scaled to nothing keeps its only one.
    pub fn parts<'a>(
        &'a self,
        object: &'a JobObject,
        made: &[Workload],
    ) -> impl Iterator<Item = Part> + use<'a> {
        let (only, replicas) = match self.shape {
            Shape::EachPod => (None, 0),
            Shape::OneGroup => (Some(self.only_part(object, made)), 0),
            Shape::GroupPerReplica { .. } => (None, self.wanted_groups(object)),
        };
        only.into_iter().chain((0..replicas).map(|index| self.replica(object, index)))
    }

    /// While a rolling update has more replicas than wanted, those are kept.
    fn wanted_groups(&self, object: &JobObject) -> i64 {
        let replicas = self.replicas(object);
        let number = |at: &str| object.at(at).and_then(Value::as_i64).unwrap_or(0);
        let surge = object.at("/spec/rolloutStrategy/rollingUpdateConfiguration/maxSurge");
        let surges = surge.is_some_and(|surge| surge.as_i64().unwrap_or(0) > 0);
        let is_rolling = surges && number("/status/updatedReplicas") < replicas;
        if is_rolling { number("/status/replicas").clamp(replicas, MAX_REPLICAS) } else { replicas }
    }

    /// The Workload of all pods. An older Kueue left the uid out of its name: one that was made by such a name keeps it, for its
    /// pods run as its group (`statefulset_reconciler.go`, `findWorkload`).
    fn only_part(&self, object: &JobObject, made: &[Workload]) -> Part {
        let is_made = |name: &str| made.iter().any(|one| one.metadata.name.as_deref() == Some(name));
        let [name, old_name] = self.names(object);
        let is_old = !is_made(&name) && is_made(&old_name);
        Part { name: if is_old { old_name } else { name }, index: None }
    }

    /// What the Workload of all pods is called, and what an older Kueue called it.
    fn names(&self, object: &JobObject) -> [String; 2] {
        let name = object.metadata.name.as_deref().unwrap_or_default();
        [object.uid(), ""].map(|uid| workload_name(self.kind.group, self.kind.kind, name, uid))
    }

    /// The names by which the object's only Workload is its own though it does not name it as its owner.
    pub fn own_names(&self, object: &JobObject) -> Vec<String> {
        match self.shape {
            Shape::OneGroup if self.replicas(object) > 0 => self.names(object).into(),
            _ => Vec::new(),
        }
    }

    /// The merge patch that makes the object an owner of such a Workload; `None` where it is another's.
    pub fn adopt(&self, object: &JobObject, workload: &Workload) -> Option<Value> {
        let owners = || workload.metadata.owner_references.iter().flatten();
        let is_other = |owner: &OwnerReference| {
            let group = group_of(&owner.api_version);
            owner.controller == Some(true) || of_kind(group, &owner.kind).is_some()
        };
        if owners().any(is_other) || workload.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let owners: Vec<Value> = owners().map(|owner| json!(owner)).chain([self.reference(object)]).collect();
        let annotations = self.annotations(object);
        Some(json!({ "metadata": { "ownerReferences": owners, "annotations": annotations } }))
    }

    fn reference(&self, object: &JobObject) -> Value {
        json!({
            "apiVersion": self.kind.api_version(), "kind": self.kind.kind, "name": object.metadata.name,
            "uid": object.uid(),
        })
    }

    /// By which a Workload tells what it was made from.
    fn annotations(&self, object: &JobObject) -> Value {
        json!({
            kueue::JOB_OWNER_GVK: format!("{}, Kind={}", self.kind.api_version(), self.kind.kind),
            kueue::JOB_OWNER_NAME: object.metadata.name,
        })
    }

    fn replica(&self, object: &JobObject, index: i64) -> Part {
        let name = format!("{}-{index}", object.metadata.name.as_deref().unwrap_or_default());
        let name = workload_name(self.kind.group, self.kind.kind, &name, object.uid());
        Part { name, index: Some(index) }
    }

    /// The kind of object through which a pod is managed.
    pub fn suspending(pod: &JobObject) -> Option<&'static Self> {
        let framework = pod.annotation(kueue::POD_SUSPENDING_PARENT);
        OWNERS.iter().find(|one| one.kind.framework == framework)
    }

    /// The object that a pod was made for: its kind and name.
    pub fn of_pod(pod: &JobObject) -> Option<(&'static Self, &str)> {
        let owner = Self::suspending(pod)?;
        let name = match &owner.shape {
            Shape::EachPod => return None,
            Shape::OneGroup => {
                let controllers = pod.metadata.owner_references.iter().flatten();
                let mut controllers = controllers.filter(|one| one.controller == Some(true));
                let is_ours = |kind: &str, version: &str| {
                    kind == owner.kind.kind && version == owner.kind.api_version()
                };
                &controllers.find(|one| is_ours(&one.kind, &one.api_version))?.name
            }
            Shape::GroupPerReplica { name, .. } => pod.label(name)?,
        };
        Some((owner, name))
    }

    /// The merge patch with which a pod joins its group, that of one of these Workloads if they are there; `None` where it has,
    /// or where it is not known yet which. It does not join one that is being deleted, with which it would go; there will be another.
    pub fn join(&self, object: &JobObject, pod: &JobObject, made: &[Workload]) -> Option<Value> {
        if pod.is_terminated() || pod.is_leaving() || pod.group_name().is_some() {
            return None;
        }
        let (part, total, role) = match &self.shape {
            Shape::EachPod => return None,
            Shape::OneGroup => (self.only_part(object, made), self.replicas(object), kueue::DEFAULT_PODSET),
            Shape::GroupPerReplica { index, led, size, .. } => {
                let index = pod.label(index)?.parse().ok()?;
                let size = object.at(size).and_then(Value::as_i64).unwrap_or(1);
                let role = match (object.at(LEADER).is_some_and(Value::is_object), pod.annotation(led)) {
                    (false, _) => kueue::DEFAULT_PODSET,
                    (true, "") => "leader",
                    (true, _) => "worker",
                };
                (self.replica(object, index), size, role)
            }
        };
        let is_leaving = |one: &Workload| one.metadata.deletion_timestamp.is_some();
        if made.iter().any(|one| one.metadata.name.as_ref() == Some(&part.name) && is_leaving(one)) {
            return None;
        }
        let mut labels = BTreeMap::from([(kueue::MANAGED, "true")]);
        labels.extend(object.queue().map(|queue| (kueue::QUEUE_NAME, queue)));
        labels.extend(object.label(kueue::PRIORITY_CLASS).map(|class| (kueue::PRIORITY_CLASS, class)));
        let mut annotations = json!({
            kueue::POD_GROUP_NAME: part.name,
            kueue::PREBUILT_WORKLOAD_NAME: part.name,
            kueue::POD_GROUP_TOTAL_COUNT: total.max(1).to_string(),
            kueue::POD_GROUP_SERVING: "true",
            kueue::ROLE_HASH: role,
        });
        if matches!(self.shape, Shape::OneGroup) {
            annotations[kueue::POD_GROUP_FAST_ADMISSION] = json!("true");
            annotations[kueue::POD_GROUP_POD_INDEX_LABEL] = json!(self.pod_index);
        }
        Some(json!({ "metadata": { "labels": labels, "annotations": annotations } }))
    }

    /// The merge patch that gives a pod behind its gate the queue that its object names now; `None` where it has it. Who was let
    /// go keeps the queue that it was admitted from.
    pub fn follow_queue(object: &JobObject, pod: &JobObject) -> Option<Value> {
        let queue = object.queue().filter(|queue| pod.queue() != Some(*queue))?;
        let waits = pod.has_gate(kueue::ADMISSION_GATE) && !pod.is_leaving();
        waits.then(|| json!({ "metadata": { "labels": { kueue::QUEUE_NAME: queue } } }))
    }

    /// A Workload of the object, ready to be created.
    ///
    /// # Errors
    /// Why it cannot be described, in words for its owner.
    pub fn compose(
        &self,
        part: &Part,
        job: &Job,
        priorities: &Priorities,
        gates: Gates,
    ) -> Result<Value, String> {
        let object = &job.object;
        let mut annotations = self.annotations(object);
        annotations[kueue::IS_GROUP_WORKLOAD] = json!("true");
        if let Some(index) = part.index {
            annotations[kueue::COMPONENT_WORKLOAD_INDEX] = json!(index.to_string());
        } else {
            // Who makes its pods one after another would wait for ever for all of them to have a place.
            annotations[trireme::GANG] = json!(trireme::GANG_OF_POD);
        }
        let mut workload = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Workload",
            "metadata": {
                "name": part.name,
                "namespace": object.metadata.namespace,
                "labels": { kueue::JOB_UID: object.uid() },
                "annotations": annotations,
                "finalizers": [kueue::FINALIZER_RESOURCE_IN_USE],
                "ownerReferences": [self.reference(object)],
            },
            "spec": compose::spec(job, self.pod_sets(object, gates)?, priorities)?,
        });
        compose::take_annotations(&mut workload, &object.metadata, gates);
        Ok(workload)
    }

    /// The templates of a replica, and how many pods of each it has.
    pub fn counts(&self, object: &JobObject) -> Vec<(&'static str, i64)> {
        let Shape::GroupPerReplica { size, .. } = &self.shape else { return Vec::new() };
        let size = object.at(size).and_then(Value::as_i64).unwrap_or(1);
        match object.at(LEADER).is_some_and(Value::is_object) {
            true => vec![(LEADER, 1), (WORKER, size.saturating_sub(1).max(0))],
            false => vec![(WORKER, size)],
        }
    }

    fn pod_sets(&self, object: &JobObject, gates: Gates) -> Result<Vec<Value>, String> {
        let set = |name: &str, count: i64, at: &str| {
            let mut template = object.at(at).cloned().unwrap_or_default();
            let annotations = compose::annotations_of(&template);
            if let Some(metadata) = template.pointer_mut("/metadata").and_then(Value::as_object_mut) {
                metadata.values_mut().for_each(without_own_keys);
            }
            if matches!(self.shape, Shape::OneGroup) {
                template = json!({ "spec": template["spec"] });
            }
            let pod_index = self.pod_index.filter(|_| name != "leader");
            let mut set = json!({ "name": name, "count": count, "template": template });
            let ranks = Ranks { pod_index, ..Ranks::default() };
            compose::take_wish(&mut set, &annotations, &ranks, gates)?;
            Ok::<_, String>(set)
        };
        match &self.shape {
            Shape::EachPod => Ok(Vec::new()),
            Shape::OneGroup => {
                Ok(vec![set(kueue::DEFAULT_PODSET, self.replicas(object), self.templates[0])?])
            }
            Shape::GroupPerReplica { size, .. } => {
                let size = object.at(size).and_then(Value::as_i64).unwrap_or(1);
                if object.at(LEADER).is_some_and(Value::is_object) {
                    return Ok(vec![set("leader", 1, LEADER)?, set("worker", (size - 1).max(0), WORKER)?]);
                }
                Ok(vec![set(kueue::DEFAULT_PODSET, size, WORKER)?])
            }
        }
    }
}

/// What the kind's own controller marks pods with is none of the template's.
fn without_own_keys(map: &mut Value) {
    const DOMAIN: &str = "leaderworkerset.sigs.k8s.io/";
    if let Some(map) = map.as_object_mut() {
        map.retain(|key, _| !key.starts_with(DOMAIN) || key == "leaderworkerset.sigs.k8s.io/name");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(object: Value) -> JobObject {
        serde_json::from_value(object).unwrap()
    }

    fn made(names: &[&str]) -> Vec<Workload> {
        let workload = |name: &&str| serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap();
        names.iter().map(workload).collect()
    }

    #[test]
    fn a_workload_by_the_name_that_an_older_kueue_gave_it_is_the_sets() {
        let set = read(json!({ "metadata": { "name": "db", "uid": "u" }, "spec": { "replicas": 2 } }));
        let pod = read(json!({ "metadata": { "name": "db-0" } }));
        let owner = of_kind("apps", "StatefulSet").unwrap();
        let [new, old] = ["u", ""].map(|uid| workload_name("apps", "StatefulSet", "db", uid));
        let (new, old) = (new.as_str(), old.as_str());
        for (names, wanted) in [(vec![], new), (vec![old], old), (vec![old, new], new), (vec!["x"], new)] {
            let made = made(&names);
            let parts: Vec<String> = owner.parts(&set, &made).map(|part| part.name).collect();
            assert_eq!(parts, [wanted], "{names:?}");
            let joined = owner.join(&set, &pod, &made).unwrap();
            assert_eq!(joined["metadata"]["annotations"][kueue::POD_GROUP_NAME], wanted, "{names:?}");
        }
    }

    #[test]
    fn replicas_never_had_such_names() {
        let set = read(json!({ "metadata": { "name": "lws", "uid": "u" }, "spec": { "replicas": 1 } }));
        let owner = of_kind("leaderworkerset.x-k8s.io", "LeaderWorkerSet").unwrap();
        let [new, old] =
            ["u", ""].map(|uid| workload_name("leaderworkerset.x-k8s.io", "LeaderWorkerSet", "lws-0", uid));
        let parts: Vec<Part> = owner.parts(&set, &made(&[old.as_str()])).collect();
        assert_eq!(parts, [Part { name: new, index: Some(0) }]);
    }

    #[test]
    fn a_workload_that_somebody_owns_is_not_taken_over() {
        let set = read(json!({ "metadata": { "name": "db", "uid": "u" } }));
        let owner = of_kind("apps", "StatefulSet").unwrap();
        for (owners, is_taken) in [
            (json!([]), true),
            (json!([{ "apiVersion": "v1", "kind": "Pod", "name": "db-0", "uid": "p" }]), true),
            (
                json!([{ "apiVersion": "v1", "kind": "Pod", "name": "db-0", "uid": "p", "controller": true }]),
                false,
            ),
            (
                json!([{ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "before" }]),
                false,
            ),
        ] {
            let workload = json!({ "metadata": { "name": "w", "ownerReferences": owners } });
            let patch = owner.adopt(&set, &serde_json::from_value(workload).unwrap());
            assert_eq!(patch.is_some(), is_taken, "{owners}");
        }
        let idle = read(json!({ "metadata": { "name": "db", "uid": "u" }, "spec": { "replicas": 0 } }));
        assert_eq!((owner.own_names(&set).len(), owner.own_names(&idle).len()), (2, 0));
    }

    #[test]
    fn only_who_has_a_workload_for_each_replica_has_a_bound() {
        let object = read(json!({ "metadata": { "name": "x" }, "spec": { "replicas": 20_000 } }));
        for (group, kind, replicas) in
            [("apps", "StatefulSet", 20_000), ("leaderworkerset.x-k8s.io", "LeaderWorkerSet", MAX_REPLICAS)]
        {
            assert_eq!(of_kind(group, kind).unwrap().replicas(&object), replicas, "{kind}");
        }
    }
}
