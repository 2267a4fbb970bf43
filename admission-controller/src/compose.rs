//! A job, described as a Workload.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use crds::names::{kueue, trireme};
use crds::validation::Gates;
use crds::view::workload::WorkloadSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use model::selector::is_label_value;
use serde_json::{Value, json};

use crate::jobs::{JobKind, JobObject, Ranks};
use crate::names::workload_name;
use crate::reconcile::Job;
use crate::{input, jobs, topology};

const POD_CLASS_GROUP: &str = "scheduling.k8s.io";
const POD_CLASS: &str = "PriorityClass";

/// What the priority classes of the cluster say.
#[derive(Debug, Default)]
pub struct Priorities {
    /// WorkloadPriorityClasses by name.
    pub workload: BTreeMap<String, i32>,
    /// PriorityClasses by name.
    pub pod: BTreeMap<String, i32>,
    /// The PriorityClass of pods that name none.
    pub default: Option<(String, i32)>,
}

/// A priority and the class it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Priority {
    /// The number.
    pub value: i32,
    /// Group, kind and name of the class.
    pub class: Option<(&'static str, &'static str, String)>,
}

impl Priority {
    /// `spec.priorityClassRef`.
    pub fn class_ref(&self) -> Value {
        match &self.class {
            Some((group, kind, name)) => json!({ "group": group, "kind": kind, "name": name }),
            None => Value::Null,
        }
    }
}

impl Priorities {
    /// A job's priority: of its WorkloadPriorityClass, else of its PriorityClass, else the cluster's default, else 0.
    ///
    /// # Errors
    /// A class that does not exist.
    pub fn of(&self, job: &Job) -> Result<Priority, String> {
        if let Some(name) = &job.view.workload_priority_class {
            let value = *self.workload.get(name).ok_or_else(|| {
                format!(
                    "WorkloadPriorityClass {name} does not exist; create it or correct the label {}",
                    kueue::PRIORITY_CLASS
                )
            })?;
            return Ok(Priority {
                value,
                class: Some((kueue::GROUP, kueue::WORKLOAD_PRIORITY_CLASS, name.clone())),
            });
        }
        let pod_class = |name: &String, value| Priority {
            value,
            class: Some((POD_CLASS_GROUP, POD_CLASS, name.clone())),
        };
        if let Some(name) = &job.view.pod_priority_class {
            let value = *self.pod.get(name).ok_or_else(|| {
                format!("PriorityClass {name} does not exist; create it or correct priorityClassName")
            })?;
            return Ok(pod_class(name, value));
        }
        Ok(match &self.default {
            Some((name, value)) => pod_class(name, *value),
            None => Priority { value: 0, class: None },
        })
    }

    /// What a Workload is worth by the WorkloadPriorityClass that it names itself; `None` where it names none that exists.
    pub fn of_class(&self, spec: &WorkloadSpec) -> Option<Priority> {
        let class = spec.priority_class_ref.as_ref().filter(|_| is_of_workload_class(spec))?;
        let value = *self.workload.get(&class.name)?;
        let class = Some((kueue::GROUP, kueue::WORKLOAD_PRIORITY_CLASS, class.name.clone()));
        Some(Priority { value, class })
    }
}

/// Whether a Workload is worth what a WorkloadPriorityClass says.
pub fn is_of_workload_class(spec: &WorkloadSpec) -> bool {
    is_of(spec, kueue::GROUP, kueue::WORKLOAD_PRIORITY_CLASS)
}

/// Whether a Workload is worth what the PriorityClass of its pods said when it was made.
pub fn is_of_pod_class(spec: &WorkloadSpec) -> bool {
    is_of(spec, POD_CLASS_GROUP, POD_CLASS)
}

fn is_of(spec: &WorkloadSpec, group: &str, kind: &str) -> bool {
    spec.priority_class_ref.as_ref().is_some_and(|class| class.group == group && class.kind == kind)
}

/// Whether a Workload has come to be worth something else: by another WorkloadPriorityClass, or another word of the same.
/// What it is worth by the PriorityClass of its pods stays.
pub fn is_revalued(before: &WorkloadSpec, after: &WorkloadSpec) -> bool {
    let name = |spec: &WorkloadSpec| spec.priority_class_ref.as_ref().map(|class| class.name.clone());
    let value = |spec: &WorkloadSpec| spec.priority.unwrap_or(0);
    let named = name(after).filter(|name| !name.is_empty());
    let is_renamed = named.is_some() && named != name(before);
    !is_of_pod_class(before) && is_of_workload_class(after) && (is_renamed || value(before) != value(after))
}

/// The Workload of a job, ready to be created.
///
/// # Errors
/// Why the job cannot be described, in words for its owner.
pub fn compose(job: &Job, priorities: &Priorities, gates: Gates) -> Result<Value, String> {
    let sets = job.view.pod_sets.as_ref().map_err(Clone::clone)?;
    let metadata = &job.object.metadata;
    let (name, job_uid) = (metadata.name.as_deref().unwrap_or_default(), job.object.uid());
    let mut pod_sets = Vec::new();
    for set in sets {
        let mut template = set.template_in(&job.object).cloned().unwrap_or_default();
        drop_own_labels(&mut template, job.kind);
        let mut pod_set = json!({ "name": set.name, "count": set.count, "template": template });
        let ranks = jobs::ranks(job.kind, &job.object, set);
        take_wish(&mut pod_set, &annotations_of(&template), &ranks, gates)?;
        if let Some(least) = set.least(gates) {
            pod_set["minCount"] = json!(least);
        }
        pod_sets.push(pod_set);
    }
    let spec = spec(job, pod_sets, priorities)?;
    let kind = job.kind;
    let mut workload = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": workload_name(kind.group, kind.kind, name, job_uid),
            "namespace": metadata.namespace,
            "labels": job_label(job_uid),
            "finalizers": [kueue::FINALIZER_RESOURCE_IN_USE],
            "ownerReferences": [controller(job)],
        },
        "spec": spec,
    });
    take_annotations(&mut workload, metadata, gates);
    if jobs::comes_in_stages(job.kind, &job.object) {
        workload["metadata"]["annotations"][trireme::GANG] = json!(trireme::GANG_OF_POD_SET);
    }
    Ok(workload)
}

/// The labels by which a Workload tells the job it is of (Kueue's `ConstructWorkload`). Who makes objects elsewhere may give one a uid
/// that no label can have.
pub(crate) fn job_label(uid: &str) -> Value {
    match is_label_value(uid) {
        true => json!({ kueue::JOB_UID: uid }),
        false => json!({}),
    }
}

/// Gives a new Workload the labels with these keys that its job has, or its pods. Later changes of them are not followed.
///
/// # Errors
/// Pods that are managed together say different things.
pub(crate) fn copy_labels<'a>(
    workload: &mut Value,
    keys: &BTreeSet<String>,
    objects: impl IntoIterator<Item = &'a JobObject>,
) -> Result<(), String> {
    let mut copied: BTreeMap<&str, (&str, &JobObject)> = BTreeMap::new();
    for object in objects {
        for key in keys {
            let Some(value) = object.label(key) else { continue };
            let (first, said_by) = *copied.entry(key).or_insert((value, object));
            if first != value {
                let name = |object: &JobObject| object.metadata.name.clone().unwrap_or_default();
                return Err(format!(
                    "pods {} and {} of the group differ in the label {key}, which is copied to their Workload",
                    name(said_by),
                    name(object)
                ));
            }
        }
    }
    for (key, (value, _)) in copied {
        workload["metadata"]["labels"][key] = json!(value);
    }
    Ok(())
}

/// Gives a pod set what annotations of its template ask of the topology, where that is looked at (feature gate
/// `TopologyAwareScheduling`).
///
/// # Errors
/// An annotation that cannot be read, in words for its owner.
pub(crate) fn take_wish(
    pod_set: &mut Value,
    annotations: &BTreeMap<String, String>,
    ranks: &Ranks<'_>,
    gates: Gates,
) -> Result<(), String> {
    if gates.topology
        && let Some(wish) = topology::request(annotations, ranks, gates.layers)?
    {
        pod_set["topologyRequest"] = json!(wish);
    }
    Ok(())
}

/// Gives a new Workload what annotations of its job mean for it: what is asked of an autoscaler for it, and who holds it back
/// (feature gate `AdmissionGatedBy`).
pub(crate) fn take_annotations(workload: &mut Value, metadata: &ObjectMeta, gates: Gates) {
    for (key, value) in metadata.annotations.iter().flatten() {
        if key.starts_with(kueue::PROVISIONING_PREFIX) {
            workload["metadata"]["annotations"][key] = json!(value);
        }
    }
    if let Some(holders) = input::gated_by(metadata).filter(|_| gates.admission_gated_by) {
        workload["metadata"]["annotations"][kueue::ADMISSION_GATED_BY] = json!(holders);
    }
}

/// The job as the controller of its Workload.
pub fn controller(job: &Job) -> Value {
    json!({
        "apiVersion": job.kind.api_version(),
        "kind": job.kind.kind,
        "name": job.object.metadata.name,
        "uid": job.object.uid(),
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

/// `spec` of the Workload of a job with these pod sets.
///
/// # Errors
/// Why the job cannot be described, in words for its owner.
pub(crate) fn spec(job: &Job, mut pod_sets: Vec<Value>, priorities: &Priorities) -> Result<Value, String> {
    pod_sets.iter_mut().for_each(drop_hidden_variables);
    let priority = priorities.of(job)?;
    let mut spec = json!({ "podSets": pod_sets, "priority": priority.value });
    if let Some(queue) = &job.view.queue {
        spec["queueName"] = json!(queue);
    }
    if priority.class.is_some() {
        spec["priorityClassRef"] = priority.class_ref();
    }
    if let Some(seconds) = max_seconds(&job.object) {
        spec["maximumExecutionTimeSeconds"] = json!(seconds);
    }
    Ok(spec)
}

/// For how many seconds a job says that it may run. Anything but a positive number of 32 bits says nothing, as with Kueue.
pub(crate) fn max_seconds(object: &JobObject) -> Option<i32> {
    let written = object.label(kueue::MAX_EXEC_TIME_SECONDS)?;
    written.parse::<i32>().ok().filter(|seconds| *seconds > 0)
}

/// Takes off a template what the kind's own controller wrote there and Kueue does not describe.
fn drop_own_labels(template: &mut Value, kind: &JobKind) {
    let labels = template.pointer_mut("/metadata/labels").and_then(Value::as_object_mut);
    let Some(labels) = labels else { return };
    for (key, _) in kind.own_labels.iter().filter(|(_, is_described)| !is_described) {
        labels.remove(*key);
    }
}

/// Of variables of one name in a container the last one counts, and a Workload can have only one: in the place of the first, as
/// with Kueue.
pub(crate) fn drop_hidden_variables(pod_set: &mut Value) {
    for list in ["containers", "initContainers"] {
        let containers = pod_set.pointer_mut(&format!("/template/spec/{list}")).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let Some(variables) = container.get_mut("env").and_then(Value::as_array_mut) else { continue };
            let mut places: BTreeMap<String, usize> = BTreeMap::new();
            let mut kept: Vec<Value> = Vec::with_capacity(variables.len());
            for variable in variables.drain(..) {
                let name = variable["name"].as_str().unwrap_or_default().to_owned();
                match places.entry(name) {
                    Entry::Occupied(place) => kept[*place.get()] = variable,
                    Entry::Vacant(place) => {
                        place.insert(kept.len());
                        kept.push(variable);
                    }
                }
            }
            *variables = kept;
        }
    }
}

/// The annotations of a pod template.
pub(crate) fn annotations_of(template: &Value) -> BTreeMap<String, String> {
    let annotations = template.pointer("/metadata/annotations");
    annotations.and_then(|annotations| serde_json::from_value(annotations.clone()).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uid_that_is_no_label_value_is_no_label() {
        for (uid, wanted) in [
            ("0f5a-1", json!({ kueue::JOB_UID: "0f5a-1" })),
            ("a/b", json!({})),
            (&"x".repeat(64), json!({})),
        ] {
            assert_eq!(job_label(uid), wanted);
        }
    }
}
