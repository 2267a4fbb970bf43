//! `Queue`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    api::{Quantity, object::custom_resource},
    names,
    schema::{DNS_SUBDOMAIN, default},
};

custom_resource! {
    /// A share of the cluster for pods without a Workload.
    pub struct Queue(names::volcano::GROUP, "v1beta1", "queues", ClusterResourceScope) {
        /// The share.
        #[serde(default)]
        pub spec: QueueSpec,
        /// What of it is in use.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub status: Option<QueueStatus>,
    }
}

/// A queue's share.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueSpec {
    /// Its part of what is left over, in proportion to its siblings'.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65_535), transform = default(1))]
    pub weight: Option<i32>,
    /// What it never exceeds.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub capability: BTreeMap<String, Quantity>,
    /// Whether what it has beyond its share may be taken back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reclaimable: Option<bool>,
    /// Clusters its jobs may go to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extend_clusters: Vec<Cluster>,
    /// What is kept free for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guarantee: Option<Guarantee>,
    /// Node groups it may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// A label for people; has no effect.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub type_: Option<String>,
    /// The queue above; absent = `root`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), regex(pattern = DNS_SUBDOMAIN))]
    pub parent: Option<String>,
    /// What is its own, where shares are counted in resources.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub deserved: BTreeMap<String, Quantity>,
    /// Higher goes first and is reclaimed from last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub priority: Option<i32>,
    /// Whether who does not fit keeps the others waiting.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = default("traverse"))]
    pub dequeue_strategy: Option<DequeueStrategy>,
}

/// Whether who does not fit keeps the others waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum DequeueStrategy {
    /// It does.
    Fifo,
    /// It lets others pass.
    #[default]
    Traverse,
}

/// A cluster jobs may go to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cluster {
    /// Name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its part, in proportion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<i32>,
    /// What it has.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub capacity: BTreeMap<String, Quantity>,
}

/// What is kept free for a queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Guarantee {
    /// By resource.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resource: BTreeMap<String, Quantity>,
}

/// Node groups a queue may use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Affinity {
    /// Groups to go to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_group_affinity: Option<NodeGroupTerms>,
    /// Groups to avoid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_group_anti_affinity: Option<NodeGroupTerms>,
}

/// Node groups, as a condition and as a wish.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeGroupTerms {
    /// As a condition.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub required_during_scheduling_ignored_during_execution: Vec<String>,
    /// As a wish.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub preferred_during_scheduling_ignored_during_execution: Vec<String>,
}

/// What of a share is in use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct QueueStatus {
    /// Whether it takes jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<QueueState>,
    /// PodGroups in phase Unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub unknown: Option<i32>,
    /// PodGroups in phase Pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub pending: Option<i32>,
    /// PodGroups in phase Running.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub running: Option<i32>,
    /// PodGroups in phase Inqueue.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub inqueue: Option<i32>,
    /// PodGroups in phase Completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub completed: Option<i32>,
    /// Nodes kept free for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservation: Option<Reservation>,
    /// What its pods hold.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub allocated: BTreeMap<String, Quantity>,
}

/// Whether a queue takes jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum QueueState {
    /// It does.
    #[default]
    Open,
    /// It does not.
    Closed,
    /// No new ones.
    Closing,
    /// Nobody knows.
    Unknown,
}

/// Nodes kept free for a queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Reservation {
    /// Their names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// What they have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resource: BTreeMap<String, Quantity>,
}
