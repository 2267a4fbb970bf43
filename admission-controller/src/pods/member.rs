//! What a managed pod says of itself.

use crds::names::kueue;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::{PodsKey, role};
use crate::jobs::JobObject;

/// The condition of a pod that is about to be deleted by whoever manages it (`batch/v1` uses it too).
pub const TERMINATION_TARGET: &str = "TerminationTarget";

/// What of a pod's spec decides about quota and flavors, who has it, and what of it may change; the rest of a pod that runs is not
/// kept.
const KEPT_OF_SPEC: &[&str] = &[
    "affinity",
    "containers",
    "initContainers",
    "nodeName",
    "nodeSelector",
    "overhead",
    "priority",
    "priorityClassName",
    "resourceClaims",
    "resources",
    "runtimeClassName",
    "schedulerName",
    "schedulingGates",
    "tolerations",
    "topologySpreadConstraints",
];
const KEPT_OF_CONTAINER: &[&str] = &["image", "name", "ports", "resources", "restartPolicy"];

/// A pod, read.
pub trait Member {
    /// Which pods it is managed with.
    fn pods_key(&self) -> PodsKey;
    /// The group it names.
    fn group_name(&self) -> Option<&str>;
    /// The Workload that somebody else makes for it.
    fn prebuilt(&self) -> Option<&str>;
    /// An annotation's value; empty where there is none.
    fn annotation(&self, name: &str) -> &str;
    /// Whether this gate keeps it from being scheduled.
    fn has_gate(&self, name: &str) -> bool;
    /// Whether it has ended.
    fn is_terminated(&self) -> bool;
    /// Whether it has succeeded.
    fn has_succeeded(&self) -> bool;
    /// Whether it has failed.
    fn has_failed(&self) -> bool;
    /// Whether it runs or may come to: a gated one that is being deleted never does.
    fn is_runnable_or_succeeded(&self) -> bool;
    /// Whether it holds resources of a node. One that should be gone does not: its node may be lost, and its group would wait for ever.
    fn is_active(&self, now: Timestamp) -> bool;
    /// From when it should be gone, if it is being deleted: as in Kueue a whole grace period after the API server's time for that, which
    /// is the end of one.
    fn lost_at(&self) -> Option<Timestamp>;
    /// Whether its condition Ready is True.
    fn is_ready(&self) -> bool;
    /// Whether it is kept until we let it go.
    fn is_held(&self) -> bool;
    /// Whether it is being deleted.
    fn is_leaving(&self) -> bool;
    /// Whether it is marked for deletion by whoever manages it.
    fn is_termination_target(&self) -> bool;
    /// When it was last seen doing anything; `None` while it does.
    fn last_active(&self) -> Option<Timestamp>;
    /// What tells pods of its shape from others.
    fn role(&self) -> String;
}

impl Member for JobObject {
    fn pods_key(&self) -> PodsKey {
        match self.group_name() {
            Some(name) => PodsKey::group(self.metadata.namespace.as_deref().unwrap_or_default(), name),
            None => PodsKey::One(self.uid().into()),
        }
    }

    fn group_name(&self) -> Option<&str> {
        group_name(&self.metadata)
    }

    fn prebuilt(&self) -> Option<&str> {
        prebuilt(self)
    }

    fn annotation(&self, name: &str) -> &str {
        annotation(&self.metadata, name)
    }

    fn has_gate(&self, name: &str) -> bool {
        let gates = self.at("/spec/schedulingGates").and_then(Value::as_array);
        gates.into_iter().flatten().any(|gate| gate["name"] == name)
    }

    fn is_terminated(&self) -> bool {
        self.has_succeeded() || self.has_failed()
    }

    fn has_succeeded(&self) -> bool {
        self.text("/status/phase") == "Succeeded"
    }

    fn has_failed(&self) -> bool {
        self.text("/status/phase") == "Failed"
    }

    fn is_runnable_or_succeeded(&self) -> bool {
        let never_ran = self.is_leaving() && self.text("/spec/nodeName").is_empty();
        !self.has_failed() && !never_ran
    }

    fn is_active(&self, now: Timestamp) -> bool {
        self.text("/status/phase") == "Running" && self.lost_at().is_none_or(|at| now < at)
    }

    fn lost_at(&self) -> Option<Timestamp> {
        let deleted = self.metadata.deletion_timestamp.as_ref()?;
        let grace = self.metadata.deletion_grace_period_seconds?;
        deleted.0.saturating_add(SignedDuration::from_secs(grace)).ok()
    }

    fn is_ready(&self) -> bool {
        condition(self, "Ready").is_some_and(|one| one["status"] == "True")
    }

    fn is_held(&self) -> bool {
        self.metadata.finalizers.iter().flatten().any(|one| one == kueue::MANAGED)
    }

    fn is_leaving(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    fn is_termination_target(&self) -> bool {
        condition(self, TERMINATION_TARGET).is_some_and(|one| one["status"] == "True")
    }

    fn last_active(&self) -> Option<Timestamp> {
        let failed = condition(self, "ContainersReady")
            .filter(|one| one["status"] == "False" && one["reason"] == "PodFailed")
            .and_then(|one| one["lastTransitionTime"].as_str()?.parse().ok());
        let deleted = self.metadata.deletion_timestamp.as_ref().map(|time| time.0);
        [failed, deleted].into_iter().flatten().min()
    }

    fn role(&self) -> String {
        let written = self.annotation(kueue::ROLE_HASH);
        // With claims it is of a role of its own, whatever it says of itself: others of that one are counted without.
        if written.is_empty() || has_claims(&self.spec) { role::hash(&self.spec) } else { written.to_owned() }
    }
}

/// Whether pods of this spec ask for devices by claims, which no quota counts. Containers name those of the pod.
pub fn has_claims(spec: &Value) -> bool {
    spec.get("resourceClaims").and_then(Value::as_array).is_some_and(|claims| !claims.is_empty())
}

/// The Workload that somebody else makes for a job or a pod. The annotation may hold what is too long for a label.
pub fn prebuilt(object: &JobObject) -> Option<&str> {
    Some(annotation(&object.metadata, kueue::PREBUILT_WORKLOAD_NAME))
        .filter(|name| !name.is_empty())
        .or_else(|| object.label(kueue::PREBUILT_WORKLOAD_NAME))
        .filter(|name| !name.is_empty())
}

/// The group that a pod names. The annotation may hold what is too long for a label.
pub fn group_name(metadata: &ObjectMeta) -> Option<&str> {
    let label = || metadata.labels.as_ref()?.get(kueue::POD_GROUP_NAME).map(String::as_str);
    Some(annotation(metadata, kueue::POD_GROUP_NAME))
        .filter(|name| !name.is_empty())
        .or_else(label)
        .filter(|name| !name.is_empty())
}

/// Whether a Workload is marked as that of a group of pods.
pub fn is_of_group(workload: &ObjectMeta) -> bool {
    annotation(workload, kueue::IS_GROUP_WORKLOAD) == "true"
}

fn annotation<'a>(metadata: &'a ObjectMeta, name: &str) -> &'a str {
    metadata.annotations.as_ref().and_then(|all| all.get(name)).map_or("", String::as_str)
}

fn condition<'a>(pod: &'a JobObject, kind: &str) -> Option<&'a Value> {
    pod.at("/status/conditions")?.as_array()?.iter().find(|one| one["type"] == kind)
}

/// What is kept of a pod: one that has a node is not described any more, only counted and stopped.
pub fn slim(mut pod: JobObject) -> JobObject {
    if let Value::Object(status) = &mut pod.status {
        status.retain(|key, _| matches!(key.as_str(), "phase" | "conditions" | "message" | "reason"));
    }
    if pod.text("/spec/nodeName").is_empty() {
        return pod;
    }
    let Value::Object(spec) = &mut pod.spec else { return pod };
    spec.retain(|key, _| KEPT_OF_SPEC.contains(&key.as_str()));
    for list in ["containers", "initContainers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
            container.retain(|key, _| KEPT_OF_CONTAINER.contains(&key.as_str()));
        }
    }
    pod
}
