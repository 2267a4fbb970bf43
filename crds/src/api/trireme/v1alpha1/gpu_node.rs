//! `GpuNode`: the GPUs of a node as node-agent sees them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    api::{Condition, object::custom_resource},
    names,
    schema::{ConditionSchema, list_atomic, list_map},
};

custom_resource! {
    /// The GPUs of the node of the same name: what they are, how they are wired, how they are. Written by node-agent.
    pub struct GpuNode(names::trireme::GROUP, "v1alpha1", "gpunodes", ClusterResourceScope) {
        /// Nothing can be asked of a node yet.
        #[serde(default)]
        pub spec: GpuNodeSpec,
        /// What was found.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub status: Option<GpuNodeStatus>,
    }
}

/// Nothing can be asked of a node yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GpuNodeSpec {}

/// What was found on a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GpuNodeStatus {
    /// Version of the NVIDIA driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 80))]
    pub driver_version: Option<String>,
    /// Highest CUDA version the driver speaks, as "major.minor".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 80))]
    pub cuda_version: Option<String>,
    /// The GPUs, in index order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), transform = list_map(&["index"]))]
    pub devices: Vec<GpuDevice>,
    /// Observations in the standard form.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<ConditionSchema>", length(max = 16), transform = list_map(&["type"]))]
    pub conditions: Vec<Condition>,
}

/// One GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GpuDevice {
    /// Index the driver gives it, in PCI order.
    pub index: u32,
    /// The driver's name for it: "GPU-" and a UUID.
    #[schemars(length(min = 1, max = 128))]
    pub uuid: String,
    /// Product name, as in GPU feature discovery's label.
    #[schemars(length(max = 128))]
    pub product: String,
    /// Memory in MiB.
    #[serde(rename = "memoryMiB")]
    pub memory_mib: u64,
    /// PCI address, as "domain:bus:device.function".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub pci_bus_id: Option<String>,
    /// NUMA node it hangs on; absent when the machine does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<u32>,
    /// Minor number of its device file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minor: Option<u32>,
    /// Whether it may be handed out.
    pub health: GpuHealth,
    /// Why not, as one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub reason: Option<String>,
    /// The XID that made it unhealthy (NVIDIA's error number).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xid: Option<u64>,
    /// How it reaches the node's other GPUs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), transform = list_atomic)]
    pub links: Vec<GpuLink>,
}

/// Whether a GPU may be handed out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum GpuHealth {
    /// It works.
    #[default]
    Healthy,
    /// It does not.
    Unhealthy,
}

/// The best path from one GPU to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct GpuLink {
    /// Index of the other GPU.
    pub to: u32,
    /// What the path is made of.
    pub kind: GpuLinkKind,
    /// How many NVLinks; 1 for every other kind.
    #[schemars(range(min = 1))]
    pub count: u32,
}

/// What connects two GPUs, best first, in the words of `nvidia-smi topo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum GpuLinkKind {
    /// NVLink, directly or through NVSwitch.
    #[serde(rename = "NVLink")]
    NvLink,
    /// One PCIe switch.
    #[serde(rename = "PIX")]
    Pix,
    /// Several PCIe switches, no host bridge.
    #[serde(rename = "PXB")]
    Pxb,
    /// A PCIe host bridge.
    #[serde(rename = "PHB")]
    Phb,
    /// Several host bridges of one NUMA node.
    #[serde(rename = "NODE")]
    Node,
    /// The link between NUMA nodes.
    #[serde(rename = "SYS")]
    Sys,
}
