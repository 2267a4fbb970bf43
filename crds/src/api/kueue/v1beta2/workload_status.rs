//! `Workload`: what was granted.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Toleration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::TopologyAssignment;
use crate::{
    api::{Condition, Quantity, Time},
    names,
    schema::{
        ConditionSchema, DNS_LABEL, DNS_SUBDOMAIN, Embedded, default, items_atomic, list_atomic, list_map,
        map_atomic, map_values, rule, toleration_rules,
    },
};

/// What was granted to a Workload, and what became of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(
    transform = rule(CLUSTER_NAME_IMMUTABLE, "clusterName cannot change once it is set"),
    transform = rule(CLUSTER_NAME_OR_NOMINATED, "set either clusterName or nominatedClusterNames"),
)]
pub struct WorkloadStatus {
    /// Where it stands; see [`crate::reasons::workload`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<ConditionSchema>", length(max = 16), transform = list_map(&["type"]), transform = items_atomic)]
    pub conditions: Vec<Condition>,
    /// The quota it holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = map_atomic)]
    pub admission: Option<Admission>,
    /// How often it was requeued, and until when it backs off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requeue_state: Option<RequeueState>,
    /// Pods whose quota is no longer needed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 18), transform = list_map(&["name"]))]
    pub reclaimable_pods: Vec<ReclaimablePod>,
    /// State of each admission check it needs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), transform = list_map(&["name"]))]
    pub admission_checks: Vec<AdmissionCheckState>,
    /// What it asks in total, while it waits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 18), transform = list_map(&["name"]))]
    pub resource_requests: Vec<PodSetRequest>,
    /// Seconds it was admitted before the last eviction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accumulated_past_execution_time_seconds: Option<i32>,
    /// How it fared so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduling_stats: Option<SchedulingStats>,
    /// Worker clusters it was offered to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20), inner(length(max = 256)), transform = list_atomic)]
    pub nominated_cluster_names: Vec<String>,
    /// Worker cluster that took it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub cluster_name: Option<String>,
    /// Nodes of its placement that failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), transform = list_map(&["name"]))]
    pub unhealthy_nodes: Vec<UnhealthyNode>,
    /// Which of its preemption gates are open.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), transform = list_map(&["name"]))]
    pub preemption_gates: Vec<PreemptionGateState>,
}

/// Rule of the status.
pub(crate) const CLUSTER_NAME_IMMUTABLE: &str =
    "!has(oldSelf.clusterName) || !has(self.clusterName) || oldSelf.clusterName == self.clusterName";
/// Rule of the status.
pub(crate) const CLUSTER_NAME_OR_NOMINATED: &str = "!has(self.clusterName) || (!has(self.nominatedClusterNames) || (has(self.nominatedClusterNames) && size(self.nominatedClusterNames) == 0))";

/// The quota a Workload holds. Set and unset, never changed, but for the topology.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Admission {
    /// The ClusterQueue that granted it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), regex(pattern = DNS_SUBDOMAIN))]
    pub cluster_queue: Option<String>,
    /// What each pod set got.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 18), transform = list_map(&["name"]))]
    pub pod_set_assignments: Vec<PodSetAssignment>,
}

/// What a pod set got.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodSetAssignment {
    /// Name of the pod set.
    #[serde(default = "super::workload::default_pod_set_name")]
    #[schemars(length(max = 63), regex(pattern = DNS_LABEL), transform = default(names::kueue::DEFAULT_PODSET))]
    pub name: String,
    /// Flavor by resource.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(transform = map_values("maxLength", 253), transform = map_values("pattern", DNS_SUBDOMAIN))]
    pub flavors: BTreeMap<String, String>,
    /// Quota by resource, of all pods together.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resource_usage: BTreeMap<String, Quantity>,
    /// How many pods were admitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub count: Option<i32>,
    /// Where they go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology_assignment: Option<TopologyAssignment>,
    /// Whether where they go is decided only after the admission checks.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = 7))]
    pub delayed_topology_request: Option<DelayedTopologyRequestState>,
}

/// Whether a delayed topology request was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DelayedTopologyRequestState {
    /// Not yet.
    Pending,
    /// It was.
    Ready,
}

/// How often a Workload was requeued, and until when it backs off.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequeueState {
    /// How often, since it was last activated.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub count: Option<i32>,
    /// When it may be considered again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requeue_at: Option<Time>,
}

/// Pods whose quota is no longer needed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReclaimablePod {
    /// Name of the pod set.
    #[schemars(length(max = 63), regex(pattern = DNS_LABEL))]
    pub name: String,
    /// How many.
    #[schemars(range(min = 0))]
    pub count: i32,
}

/// State of an admission check for a Workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionCheckState {
    /// Name of the AdmissionCheck.
    #[schemars(length(min = 1, max = 316))]
    pub name: String,
    /// The verdict.
    pub state: CheckState,
    /// When the verdict last changed.
    pub last_transition_time: Time,
    /// Why, as a sentence.
    #[schemars(length(max = 32768))]
    pub message: String,
    /// With `Retry`: seconds to wait before it is asked again.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub requeue_after_seconds: Option<i32>,
    /// How often it answered `Retry`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub retry_count: Option<i32>,
    /// What it adds to the pods. Fixed while it is `Ready`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 18), transform = list_atomic)]
    pub pod_set_updates: Vec<PodSetUpdate>,
}

/// Verdict of an admission check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CheckState {
    /// None yet.
    #[default]
    Pending,
    /// Yes.
    Ready,
    /// Not now: give the quota back and ask again later.
    Retry,
    /// No: deactivate.
    Rejected,
}

/// What an admission check adds to the pods of a pod set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodSetUpdate {
    /// Name of the pod set.
    #[schemars(length(max = 63), regex(pattern = DNS_LABEL))]
    pub name: String,
    /// Labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Node selectors.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Tolerations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        with = "Vec<Embedded<Toleration>>",
        length(max = 8),
        transform = list_atomic,
        transform = toleration_rules,
    )]
    pub tolerations: Vec<Toleration>,
}

/// What a pod set asks in total.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PodSetRequest {
    /// Name of the pod set.
    #[schemars(length(max = 63), regex(pattern = DNS_LABEL))]
    pub name: String,
    /// Quota by resource, of all pods together.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resources: BTreeMap<String, Quantity>,
}

/// How a Workload fared so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SchedulingStats {
    /// Its evictions, counted by cause.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), transform = list_map(&["reason", "underlyingCause"]))]
    pub evictions: Vec<WorkloadSchedulingStatsEviction>,
}

/// Evictions of one cause.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadSchedulingStatsEviction {
    /// Reason of the `Evicted` condition.
    #[schemars(length(max = 316))]
    pub reason: String,
    /// What led to it; may be empty.
    #[schemars(length(max = 316))]
    pub underlying_cause: String,
    /// How many.
    #[schemars(range(min = 0))]
    pub count: i32,
}

/// A node that failed under a Workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnhealthyNode {
    /// Name of the node.
    #[schemars(length(max = 63))]
    pub name: String,
}

/// Whether a preemption gate is open.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreemptionGateState {
    /// Name of the gate.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Whether it is.
    pub position: GatePosition,
    /// When that last changed.
    pub last_transition_time: Time,
}

/// Position of a preemption gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum GatePosition {
    /// The Workload may not preempt.
    #[default]
    Closed,
    /// It may.
    Open,
}
