//! `PodGroup`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    api::{Quantity, Time, object::custom_resource},
    names,
    schema::{DNS_SUBDOMAIN, Embedded, default, list_atomic, map_atomic, relax},
};

custom_resource! {
    /// Pods that start together or not at all. Status is not a subresource: whoever may write the group may write it.
    pub struct PodGroup(names::volcano::GROUP, "v1beta1", "podgroups", NamespaceResourceScope) {
        /// What together means.
        #[serde(default)]
        pub spec: PodGroupSpec,
        /// How the group is.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub status: Option<PodGroupStatus>,
    }
}

/// What starting together means.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodGroupSpec {
    /// How few pods the group runs with.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub min_member: Option<i32>,
    /// How few pods of each task.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub min_task_member: BTreeMap<String, i32>,
    /// The Queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), regex(pattern = DNS_SUBDOMAIN), transform = default("default"))]
    pub queue: Option<String>,
    /// The PriorityClass; higher goes first.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub priority_class_name: Option<String>,
    /// What the group needs to start, for admission to its queue.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub min_resources: BTreeMap<String, Quantity>,
    /// How near the pods are to lie.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_topology: Option<NetworkTopologySpec>,
    /// Gangs within the gang.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sub_group_policy: Vec<SubGroupPolicySpec>,
}

/// How near pods are to lie.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkTopologySpec {
    /// Whether that is a condition.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = default("hard"))]
    pub mode: Option<NetworkTopologyMode>,
    /// Highest tier they may span; lower is nearer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0), transform = relax("", &["format"]))]
    pub highest_tier_allowed: Option<i64>,
    /// The same by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub highest_tier_name: Option<String>,
}

/// Whether nearness is a condition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum NetworkTopologyMode {
    /// It is.
    #[default]
    Hard,
    /// It is a wish.
    Soft,
}

/// Gangs within a gang: its pods, cut into groups of one size.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubGroupPolicySpec {
    /// Name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub name: Option<String>,
    /// Pods it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Embedded<LabelSelector>>", transform = map_atomic)]
    pub label_selector: Option<LabelSelector>,
    /// Pods with equal values of these labels are one group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = list_atomic)]
    pub match_label_keys: Vec<String>,
    /// Pods in a group.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1), transform = default(1))]
    pub sub_group_size: Option<i32>,
    /// How few groups must start.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0), transform = default(0))]
    pub min_sub_groups: Option<i32>,
    /// How near the pods of a group are to lie.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_topology: Option<NetworkTopologySpec>,
}

/// How a group is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodGroupStatus {
    /// Where it stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<PodGroupPhase>,
    /// Why; see [`crate::reasons::pod_group`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<PodGroupCondition>,
    /// Pods that run.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub running: Option<i32>,
    /// Pods that succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub succeeded: Option<i32>,
    /// Pods that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub failed: Option<i32>,
}

/// Where a group stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PodGroupPhase {
    /// Not let into its queue's share yet.
    #[default]
    Pending,
    /// At least `minMember` pods run.
    Running,
    /// Some pods run, too few.
    Unknown,
    /// Let in, waiting for places.
    Inqueue,
    /// All pods ended.
    Completed,
}

/// One observation of a group. Volcano's own form, older than the standard one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PodGroupCondition {
    /// What was observed.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
    /// `True`, `False` or `Unknown`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Names the decision that observed it.
    #[serde(rename = "transitionID", skip_serializing_if = "Option::is_none")]
    pub transition_id: Option<String>,
    /// When it last changed.
    #[serde(rename = "lastTransitionTime", skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// Why, as one word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why, as a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
