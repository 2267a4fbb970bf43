//! Topology.

use serde::Deserialize;

use super::meta::view;

view! {
    /// `kueue.x-k8s.io/v1beta2` Topology.
    pub struct Topology("Topology", crate::names::kueue::GROUP, "v1beta2", "topologies", ClusterResourceScope) {
        /// `spec`.
        pub spec: TopologySpec,
    }
}

/// `spec` of a Topology.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct TopologySpec {
    /// `levels`, outermost first.
    pub levels: Vec<TopologyLevel>,
}

/// `spec.levels[]`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologyLevel {
    /// `nodeLabel`: the node label whose values tell domains of this level apart.
    pub node_label: String,
}
