//! `Workload`: what is asked.

use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};

use super::WorkloadStatus;
use crate::{
    api::{kueue::PodTemplate, object::custom_resource},
    names,
    schema::{DNS_LABEL, DNS_SUBDOMAIN, default, list_atomic, list_map, required, rule, rule_while},
};

custom_resource! {
    /// The pods of one job, as the quota layer sees them.
    #[schemars(
        transform = rule_while("QuotaReserved", &["self"], ONE_ASSIGNMENT_A_POD_SET, "there must be one podSetAssignment a pod set"),
        transform = rule_while(
            "QuotaReserved",
            &["oldSelf"],
            "has(oldSelf.spec.priorityClassRef) == has(self.spec.priorityClassRef)",
            "priorityClassRef cannot be set or unset while quota is reserved",
        ),
        transform = rule_while(
            "QuotaReserved",
            &["oldSelf"],
            "!has(oldSelf.spec.priorityClassRef) || !has(self.spec.priorityClassRef) || oldSelf.spec.priorityClassRef.group == self.spec.priorityClassRef.group",
            "priorityClassRef.group cannot change while quota is reserved",
        ),
        transform = rule_while(
            "QuotaReserved",
            &["oldSelf"],
            "!has(oldSelf.spec.priorityClassRef) || !has(self.spec.priorityClassRef) || oldSelf.spec.priorityClassRef.kind == self.spec.priorityClassRef.kind",
            "priorityClassRef.kind cannot change while quota is reserved",
        ),
        transform = rule_while(
            "QuotaReserved",
            &["oldSelf"],
            "!has(oldSelf.spec.priorityClassRef) || !has(self.spec.priorityClassRef) || self.spec.priorityClassRef.group != 'scheduling.k8s.io' || self.spec.priorityClassRef.kind != 'PriorityClass' || oldSelf.spec.priorityClassRef.name == self.spec.priorityClassRef.name",
            "the name of a PriorityClass cannot change while quota is reserved",
        ),
        transform = queue_name_is_kept,
        transform = execution_time_is_kept,
    )]
    pub struct Workload(names::kueue::GROUP, "v1beta2", "workloads", NamespaceResourceScope) {
        /// What is asked.
        #[serde(default)]
        pub spec: WorkloadSpec,
        /// What was granted, and what became of it.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub status: Option<WorkloadStatus>,
    }
}

/// What is granted is granted to pod sets.
pub(crate) const ONE_ASSIGNMENT_A_POD_SET: &str = "!has(self.status) || !has(self.status.admission) || size(self.spec.podSets) == size(self.status.admission.podSetAssignments)";

/// Moving to another queue would carry the reservation along.
pub(crate) fn queue_name_is_kept(schema: &mut Schema) {
    let kept = "has(oldSelf.spec.queueName) == has(self.spec.queueName) && (!has(self.spec.queueName) || oldSelf.spec.queueName == self.spec.queueName)";
    rule_while(
        "QuotaReserved",
        &["oldSelf", "self"],
        kept,
        "queueName cannot change while quota is reserved",
    )(schema);
}

/// The clock is running.
pub(crate) fn execution_time_is_kept(schema: &mut Schema) {
    let kept = "(has(oldSelf.spec.maximumExecutionTimeSeconds) ? oldSelf.spec.maximumExecutionTimeSeconds : 0) == (has(self.spec.maximumExecutionTimeSeconds) ? self.spec.maximumExecutionTimeSeconds : 0)";
    rule_while(
        "Admitted",
        &["oldSelf", "self"],
        kept,
        "maximumExecutionTimeSeconds cannot change while admitted",
    )(schema);
}

/// Rule of a pod set.
pub(crate) const MIN_COUNT_UP_TO_COUNT: &str = "has(self.minCount) ? self.minCount <= self.count : true";

/// What a job asks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rule(
    "!has(self.priorityClassRef) || has(self.priority)",
    "priorityClassRef needs priority, its value",
))]
pub struct WorkloadSpec {
    /// Groups of equal pods. Fixed once quota is reserved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 18), transform = list_map(&["name"]))]
    pub pod_sets: Vec<PodSet>,
    /// The LocalQueue.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), regex(pattern = DNS_SUBDOMAIN))]
    pub queue_name: Option<String>,
    /// Where the priority comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_class_ref: Option<PriorityClassRef>,
    /// Priority in queueing and preemption; higher goes first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// Whether it may be admitted; set to false, it is evicted and stays out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = default(true))]
    pub active: Option<bool>,
    /// Seconds it may be admitted before it is deactivated.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub maximum_execution_time_seconds: Option<i32>,
    /// Gates that keep it from preempting until they are opened.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), transform = list_map(&["name"]))]
    pub preemption_gates: Vec<PreemptionGate>,
}

/// A group of equal pods.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(
    transform = required(&["template"]),
    transform = rule(MIN_COUNT_UP_TO_COUNT, "minCount must not exceed count"),
)]
pub struct PodSet {
    /// Name, unique in the Workload.
    #[serde(default = "default_pod_set_name")]
    #[schemars(length(max = 63), regex(pattern = DNS_LABEL), transform = default("main"))]
    pub name: String,
    /// What its pods look like.
    #[serde(default)]
    pub template: PodTemplate,
    /// How many.
    #[serde(default = "default_pod_set_count")]
    #[schemars(range(min = 0), transform = default(1))]
    pub count: i32,
    /// How few will do; absent = all are needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub min_count: Option<i32>,
    /// How they are to lie in the topology.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology_request: Option<PodSetTopologyRequest>,
}

impl Default for PodSet {
    fn default() -> Self {
        Self {
            name: default_pod_set_name(),
            template: PodTemplate::default(),
            count: default_pod_set_count(),
            min_count: None,
            topology_request: None,
        }
    }
}

pub(crate) fn default_pod_set_name() -> String {
    names::kueue::DEFAULT_PODSET.to_owned()
}

pub(crate) fn default_pod_set_count() -> i32 {
    1
}

/// How the pods of a pod set are to lie in the topology.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodSetTopologyRequest {
    /// All in one domain of this level.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub required: Option<String>,
    /// In one domain of this level if possible, else of the next level up, else spread over as few as possible.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub preferred: Option<String>,
    /// Anywhere, yet placed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unconstrained: Option<bool>,
    /// Pod label that holds a pod's rank.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 317))]
    pub pod_index_label: Option<String>,
    /// Pod label that holds the rank of a pod's subgroup (a replicated Job of a JobSet).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 317))]
    pub sub_group_index_label: Option<String>,
    /// How many subgroups.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub sub_group_count: Option<i32>,
    /// Pod sets of the same group name are placed together.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub pod_set_group_name: Option<String>,
    /// Each slice in one domain of this level.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub pod_set_slice_required_topology: Option<String>,
    /// Pods in a slice.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub pod_set_slice_size: Option<i32>,
    /// Slices within slices, outermost first; each size divides the one before.
    #[serde(
        rename = "podsetSliceRequiredTopologyConstraints",
        default,
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(length(max = 3), transform = list_atomic)]
    pub pod_set_slice_required_topology_constraints: Vec<PodSetSliceTopologyConstraint>,
}

/// Slices of one size in one domain of a level each.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct PodSetSliceTopologyConstraint {
    /// The level.
    #[schemars(length(min = 1, max = 63))]
    pub topology: String,
    /// Pods in a slice.
    #[schemars(range(min = 1))]
    pub size: i32,
}

/// Where a priority comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(
    transform = required(&["name"]),
    transform = rule(
        "(self.group == 'scheduling.k8s.io') ? self.kind == 'PriorityClass' : true",
        "group scheduling.k8s.io has only PriorityClass",
    ),
    transform = rule(
        "(self.group == 'kueue.x-k8s.io') ? self.kind == 'WorkloadPriorityClass' : true",
        "group kueue.x-k8s.io has only WorkloadPriorityClass",
    ),
)]
pub struct PriorityClassRef {
    /// API group of the class.
    pub group: PriorityClassGroup,
    /// Kind of the class.
    pub kind: PriorityClassKind,
    /// Name of the class.
    // v1beta1 may say of which kind a class is and not which.
    #[serde(default)]
    #[schemars(length(min = 1, max = 253), regex(pattern = DNS_SUBDOMAIN))]
    pub name: String,
}

/// API groups that have priority classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PriorityClassGroup {
    /// The quota layer's.
    #[serde(rename = "kueue.x-k8s.io")]
    Kueue,
    /// Kubernetes'.
    #[serde(rename = "scheduling.k8s.io")]
    Scheduling,
}

/// Kinds of priority classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PriorityClassKind {
    /// The quota layer's.
    WorkloadPriorityClass,
    /// Kubernetes'.
    PriorityClass,
}

/// A gate that keeps a Workload from preempting; closed until its status says otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PreemptionGate {
    /// Name, unique in the Workload.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
}
