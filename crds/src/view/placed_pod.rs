//! Pod, as far as placement by topology depends on it: what it takes of its node, and the gate that keeps it from one.

use model::pod::PodResources;
use model::selector::Labels;
use serde::Deserialize;

use super::meta::view;

view! {
    /// A Pod.
    pub struct PlacedPod("Pod", "", "v1", "pods", NamespaceResourceScope) {
        /// `spec`.
        #[serde(deserialize_with = "model::null_as_default")]
        pub spec: PlacedPodSpec,
        /// `status`.
        #[serde(deserialize_with = "model::null_as_default")]
        pub status: PlacedPodStatus,
    }
}

/// `spec` of a Pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PlacedPodSpec {
    /// `nodeName`: the node it is bound to.
    #[serde(deserialize_with = "model::null_as_default")]
    pub node_name: String,
    /// `nodeSelector`.
    #[serde(deserialize_with = "model::null_as_default")]
    pub node_selector: Labels,
    /// `schedulingGates`.
    #[serde(deserialize_with = "model::null_as_default")]
    pub scheduling_gates: Vec<SchedulingGate>,
    /// What it asks for.
    #[serde(flatten)]
    pub resources: PodResources,
}

/// `spec.schedulingGates[]`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct SchedulingGate {
    /// `name`.
    pub name: String,
}

/// `status` of a Pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PlacedPodStatus {
    /// `phase`.
    #[serde(deserialize_with = "model::null_as_default")]
    pub phase: String,
}

impl PlacedPod {
    /// Whether it has ended, well or not.
    pub fn has_ended(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }
}
