//! A job, described as a Workload.

use std::collections::{BTreeMap, BTreeSet};

use crds::names::{kueue, trireme};
use crds::view::workload::WorkloadSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value, json};

use crate::jobs::JobObject;
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
pub fn compose(job: &Job, priorities: &Priorities) -> Result<Value, String> {
    let sets = job.view.pod_sets.as_ref().map_err(Clone::clone)?;
    let metadata = &job.object.metadata;
    let (name, job_uid) = (metadata.name.as_deref().unwrap_or_default(), job.object.uid());
    let mut pod_sets = Vec::new();
    for set in sets {
        let template = set.template_in(&job.object).cloned().unwrap_or_default();
        let mut pod_set = json!({ "name": set.name, "count": set.count, "template": template });
        let wish = topology::request(&annotations_of(&template), &jobs::ranks(job.kind, &job.object, set))?;
        if let Some(wish) = wish {
            pod_set["topologyRequest"] = json!(wish);
        }
        if let Some(least) = set.min_count {
            pod_set["minCount"] = json!(least);
        }
        pod_sets.push(pod_set);
    }
    let spec = spec(job, pod_sets, priorities)?;
    let kind = job.kind;
    let mut labels = Map::new();
    // A uid is a valid label value; anything else is left out rather than refused by the server.
    labels.insert(kueue::JOB_UID.to_owned(), json!(job_uid));
    let mut workload = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": workload_name(kind.group, kind.kind, name, job_uid),
            "namespace": metadata.namespace,
            "labels": labels,
            "finalizers": [kueue::FINALIZER_RESOURCE_IN_USE],
            "ownerReferences": [controller(job)],
        },
        "spec": spec,
    });
    for (key, value) in metadata.annotations.iter().flatten() {
        if key.starts_with(kueue::PROVISIONING_PREFIX) {
            workload["metadata"]["annotations"][key] = json!(value);
        }
    }
    take_gates(&mut workload, metadata);
    if jobs::comes_in_stages(job.kind, &job.object) {
        workload["metadata"]["annotations"][trireme::GANG] = json!(trireme::GANG_OF_POD_SET);
    }
    Ok(workload)
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

/// Who holds the job back holds its Workload back.
pub(crate) fn take_gates(workload: &mut Value, metadata: &ObjectMeta) {
    if let Some(gates) = input::gated_by(metadata) {
        workload["metadata"]["annotations"][kueue::ADMISSION_GATED_BY] = json!(gates);
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
pub(crate) fn spec(job: &Job, pod_sets: Vec<Value>, priorities: &Priorities) -> Result<Value, String> {
    let priority = priorities.of(job)?;
    let mut spec = json!({ "podSets": pod_sets, "priority": priority.value });
    if let Some(queue) = &job.view.queue {
        spec["queueName"] = json!(queue);
    }
    if priority.class.is_some() {
        spec["priorityClassRef"] = priority.class_ref();
    }
    if let Some(seconds) = job.object.label(kueue::MAX_EXEC_TIME_SECONDS) {
        let seconds: i32 = seconds.parse().map_err(|_| {
            format!(
                "label {} is {seconds:?}, which is no whole number of seconds",
                kueue::MAX_EXEC_TIME_SECONDS
            )
        })?;
        spec["maximumExecutionTimeSeconds"] = json!(seconds);
    }
    Ok(spec)
}

/// The annotations of a pod template.
pub(crate) fn annotations_of(template: &Value) -> BTreeMap<String, String> {
    let annotations = template.pointer("/metadata/annotations");
    annotations.and_then(|annotations| serde_json::from_value(annotations.clone()).ok()).unwrap_or_default()
}
