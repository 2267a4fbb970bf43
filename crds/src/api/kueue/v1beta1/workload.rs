//! `Workload`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    api::{
        Condition, Quantity,
        kueue::{
            PodTemplate,
            v1beta2::{
                self, AdmissionCheckState, PodSetRequest, ReclaimablePod, RequeueState, SchedulingStats,
                UnhealthyNode,
            },
        },
        object::custom_resource,
    },
    names,
    schema::{
        ConditionSchema, DNS_LABEL, DNS_SUBDOMAIN, default, items_atomic, list_atomic, list_map, map_atomic,
        map_values, relax, required, rule, rule_while,
    },
};

custom_resource! {
    /// The pods of one job, as the quota layer sees them.
    #[schemars(
        transform = rule_while(
            "QuotaReserved",
            &["self"],
            v1beta2::ONE_ASSIGNMENT_A_POD_SET,
            "there must be one podSetAssignment a pod set",
        ),
        transform = rule_while(
            "QuotaReserved",
            &["oldSelf"],
            "!has(oldSelf.spec.priorityClassSource) || !has(self.spec.priorityClassSource) || oldSelf.spec.priorityClassSource == self.spec.priorityClassSource",
            "priorityClassSource cannot change while quota is reserved",
        ),
        transform = rule_while(
            "QuotaReserved",
            &["oldSelf"],
            "!has(oldSelf.spec.priorityClassSource) || !has(self.spec.priorityClassSource) || self.spec.priorityClassSource == 'kueue.x-k8s.io/workloadpriorityclass' || !has(oldSelf.spec.priorityClassName) || !has(self.spec.priorityClassName) || oldSelf.spec.priorityClassName == self.spec.priorityClassName",
            "priorityClassName cannot change while quota is reserved, unless it names a WorkloadPriorityClass",
        ),
        transform = v1beta2::queue_name_is_kept,
        transform = v1beta2::execution_time_is_kept,
    )]
    pub struct Workload(names::kueue::GROUP, "v1beta1", "workloads", NamespaceResourceScope) {
        /// What is asked.
        #[serde(default)]
        pub spec: WorkloadSpec,
        /// What was granted, and what became of it.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub status: Option<WorkloadStatus>,
    }
}

/// What a job asks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(
    transform = required(&["podSets"]),
    transform = rule(
        "has(self.priorityClassName) ? has(self.priority) : true",
        "priorityClassName needs priority, its value",
    ),
)]
pub struct WorkloadSpec {
    /// Groups of equal pods. Fixed once quota is reserved.
    #[serde(default)]
    #[schemars(length(min = 1, max = 18), transform = list_map(&["name"]))]
    pub pod_sets: Vec<PodSet>,
    /// The LocalQueue.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), regex(pattern = DNS_SUBDOMAIN))]
    pub queue_name: Option<String>,
    /// Name of the class the priority comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), regex(pattern = DNS_SUBDOMAIN))]
    pub priority_class_name: Option<String>,
    /// Priority in queueing and preemption; higher goes first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// Which kind of class it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = default(""))]
    pub priority_class_source: Option<PriorityClassSource>,
    /// Whether it may be admitted; set to false, it is evicted and stays out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = default(true))]
    pub active: Option<bool>,
    /// Seconds it may be admitted before it is deactivated.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub maximum_execution_time_seconds: Option<i32>,
}

/// Kinds of priority classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PriorityClassSource {
    /// The quota layer's.
    #[serde(rename = "kueue.x-k8s.io/workloadpriorityclass")]
    WorkloadPriorityClass,
    /// Kubernetes'.
    #[serde(rename = "scheduling.k8s.io/priorityclass")]
    PodPriorityClass,
    /// None.
    #[default]
    #[serde(rename = "")]
    None,
}

/// A group of equal pods.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(
    transform = required(&["count", "template"]),
    transform = rule(v1beta2::MIN_COUNT_UP_TO_COUNT, "minCount must not exceed count"),
)]
pub struct PodSet {
    /// Name, unique in the Workload.
    #[serde(default = "v1beta2::default_pod_set_name")]
    #[schemars(length(max = 63), regex(pattern = DNS_LABEL), transform = default("main"))]
    pub name: String,
    /// What its pods look like.
    #[serde(default)]
    pub template: PodTemplate,
    /// How many.
    #[serde(default = "v1beta2::default_pod_set_count")]
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

/// How the pods of a pod set are to lie in the topology.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodSetTopologyRequest {
    /// All in one domain of this level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required: Option<String>,
    /// In one domain of this level if possible, else of the next level up, else spread over as few as possible.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred: Option<String>,
    /// Anywhere, yet placed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unconstrained: Option<bool>,
    /// Pod label that holds a pod's rank.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_index_label: Option<String>,
    /// Pod label that holds the rank of a pod's subgroup.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sub_group_index_label: Option<String>,
    /// How many subgroups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sub_group_count: Option<i32>,
    /// Pod sets of the same group name are placed together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_set_group_name: Option<String>,
    /// Each slice in one domain of this level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_set_slice_required_topology: Option<String>,
    /// Pods in a slice.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub pod_set_slice_size: Option<i32>,
}

/// What was granted to a Workload, and what became of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(
    transform = rule(v1beta2::CLUSTER_NAME_IMMUTABLE, "clusterName cannot change once it is set"),
    transform = rule(v1beta2::CLUSTER_NAME_OR_NOMINATED, "set either clusterName or nominatedClusterNames"),
)]
pub struct WorkloadStatus {
    /// The quota it holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = map_atomic)]
    pub admission: Option<Admission>,
    /// How often it was requeued, and until when it backs off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requeue_state: Option<RequeueState>,
    /// Where it stands; see [`crate::reasons::workload`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<ConditionSchema>", transform = list_map(&["type"]), transform = items_atomic)]
    pub conditions: Vec<Condition>,
    /// Pods whose quota is no longer needed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 18), transform = list_map(&["name"]))]
    pub reclaimable_pods: Vec<ReclaimablePod>,
    /// State of each admission check it needs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 8),
        transform = list_map(&["name"]),
        transform = relax("/items/properties/name", &["minLength"]),
        transform = relax(
            "/items/properties/podSetUpdates/items/properties/tolerations",
            &["x-kubernetes-list-type"],
        ),
    )]
    pub admission_checks: Vec<AdmissionCheckState>,
    /// What it asks in total, while it waits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 18), transform = list_map(&["name"]))]
    pub resource_requests: Vec<PodSetRequest>,
    /// Seconds it was admitted before the last eviction. The misspelling is the API's.
    #[serde(rename = "accumulatedPastExexcutionTimeSeconds", skip_serializing_if = "Option::is_none")]
    pub accumulated_past_execution_time_seconds: Option<i32>,
    /// How it fared so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = relax("/properties/evictions", &["maxItems"]))]
    pub scheduling_stats: Option<SchedulingStats>,
    /// Worker clusters it was offered to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20), transform = list_atomic)]
    pub nominated_cluster_names: Vec<String>,
    /// Worker cluster that took it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_name: Option<String>,
    /// Nodes of its placement that failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = relax("/items/properties/name", &["maxLength"]))]
    pub unhealthy_nodes: Vec<UnhealthyNode>,
}

/// The quota a Workload holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = required(&["clusterQueue", "podSetAssignments"]))]
pub struct Admission {
    /// The ClusterQueue that granted it.
    #[serde(default)]
    #[schemars(length(max = 253), regex(pattern = DNS_SUBDOMAIN))]
    pub cluster_queue: String,
    /// What each pod set got.
    #[serde(default)]
    #[schemars(length(max = 18), transform = list_map(&["name"]))]
    pub pod_set_assignments: Vec<PodSetAssignment>,
}

/// What a pod set got.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = required(&["name"]))]
pub struct PodSetAssignment {
    /// Name of the pod set.
    #[serde(default = "v1beta2::default_pod_set_name")]
    #[schemars(length(max = 63), regex(pattern = DNS_LABEL), transform = default("main"))]
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
    /// Whether where they go is decided only after the admission checks: `Pending` or `Ready`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delayed_topology_request: Option<String>,
}

/// How many pods go to which domains.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = required(&["levels", "domains"]))]
pub struct TopologyAssignment {
    /// Node labels that name the domains, outermost first.
    #[serde(default)]
    #[schemars(length(min = 1, max = 16), transform = list_atomic)]
    pub levels: Vec<String>,
    /// The domains, in order of rank.
    #[serde(default)]
    pub domains: Vec<TopologyDomainAssignment>,
}

/// How many pods go to one domain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = required(&["values"]))]
pub struct TopologyDomainAssignment {
    /// Its values of the levels' labels.
    #[serde(default)]
    #[schemars(length(min = 1, max = 16), transform = list_atomic)]
    pub values: Vec<String>,
    /// How many pods.
    #[schemars(range(min = 1))]
    pub count: i32,
}
