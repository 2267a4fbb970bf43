//! GpuNode: what its writer compares, and what placement depends on.

use serde::Deserialize;

use super::meta::view;
use crate::api::trireme::v1alpha1::{GpuHealth, GpuLink, GpuNodeStatus};

view! {
    /// `trireme.dev/v1alpha1` GpuNode, as node-agent reads it: the whole status is its own, and told from the one it wants.
    pub struct GpuNode("GpuNode", crate::names::trireme::GROUP, "v1alpha1", "gpunodes", ClusterResourceScope) {
        /// What was found; absent until it is written for the first time.
        pub status: Option<GpuNodeStatus>,
    }
}

view! {
    /// `trireme.dev/v1alpha1` GpuNode, as gang-scheduler reads it.
    pub struct GpuNodeDevices("GpuNode", crate::names::trireme::GROUP, "v1alpha1", "gpunodes", ClusterResourceScope) {
        /// What was found.
        #[serde(deserialize_with = "model::null_as_default")]
        pub status: GpuNodeDevicesStatus,
    }
}

/// `status` of a GpuNode.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct GpuNodeDevicesStatus {
    /// The GPUs.
    #[serde(deserialize_with = "model::null_as_default")]
    pub devices: Vec<PlacedDevice>,
}

/// One GPU: whether it may be handed out, and how near the others are.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct PlacedDevice {
    /// Its index on the node.
    pub index: u32,
    /// Whether it may be handed out.
    pub health: GpuHealth,
    /// How it reaches the node's other GPUs.
    #[serde(default)]
    pub links: Vec<GpuLink>,
}
