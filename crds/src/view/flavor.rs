//! ResourceFlavor.

use model::node::{Taint, Toleration};
use model::selector::Labels;
use serde::Deserialize;

use super::meta::view;

view! {
    /// `kueue.x-k8s.io/v1beta2` ResourceFlavor.
    pub struct ResourceFlavor("ResourceFlavor", crate::names::kueue::GROUP, "v1beta2", "resourceflavors", ClusterResourceScope) {
        /// `spec`.
        pub spec: ResourceFlavorSpec,
    }
}

/// `spec` of a ResourceFlavor.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceFlavorSpec {
    /// `nodeLabels`.
    pub node_labels: Labels,
    /// `nodeTaints`.
    pub node_taints: Vec<Taint>,
    /// `tolerations`.
    pub tolerations: Vec<Toleration>,
    /// `topologyName`.
    pub topology_name: Option<String>,
}
