//! Node, as far as placement depends on it.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use model::node::Taint;
use model::quantity::Written;
use model::resources::ResourceName;
use serde::Deserialize;

use super::meta::{far_time, view};

view! {
    /// A Node.
    pub struct Node("Node", "", "v1", "nodes", ClusterResourceScope) {
        /// What was wished.
        #[serde(deserialize_with = "model::null_as_default")]
        pub spec: NodeSpec,
        /// What the kubelet reports.
        #[serde(deserialize_with = "model::null_as_default")]
        pub status: NodeStatus,
    }
}

/// `spec` of a Node.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    /// Cordoned.
    #[serde(deserialize_with = "model::null_as_default")]
    pub unschedulable: bool,
    /// Marks that keep pods away.
    #[serde(deserialize_with = "model::null_as_default")]
    pub taints: Vec<Taint>,
}

/// `status` of a Node.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    /// What pods may use.
    #[serde(deserialize_with = "model::null_as_default")]
    pub allocatable: BTreeMap<ResourceName, Written>,
    /// How it is.
    #[serde(deserialize_with = "model::null_as_default")]
    pub conditions: Vec<NodeCondition>,
}

/// One condition of a Node.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeCondition {
    /// `Ready`, `MemoryPressure`, …
    pub r#type: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Since when.
    #[serde(deserialize_with = "far_time")]
    pub last_transition_time: Option<Time>,
}

impl Node {
    /// The condition `Ready`.
    pub fn readiness(&self) -> Option<&NodeCondition> {
        self.status.conditions.iter().find(|condition| condition.r#type == "Ready")
    }

    /// Whether it is `True`.
    pub fn is_ready(&self) -> bool {
        self.readiness().is_some_and(|condition| condition.status == "True")
    }
}
