//! `GangPlacement`: where every member of a gang goes, durable before the first of them is bound.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    api::{Condition, object::custom_resource},
    names,
    schema::{ConditionSchema, list_atomic, list_map},
};

custom_resource! {
    /// Where the pods of one gang go. gang-scheduler writes it once when it has decided, before it binds the first pod, and
    /// its status once when the gang is bound or undone; whoever leads next finishes or undoes what it finds.
    pub struct GangPlacement(names::trireme::GROUP, "v1alpha1", "gangplacements", NamespaceResourceScope) {
        /// The decision. Never changed.
        #[serde(default)]
        pub spec: GangPlacementSpec,
        /// How it ended. Progress in between is read from the pods.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub status: Option<GangPlacementStatus>,
    }
}

/// The decision.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GangPlacementSpec {
    /// What makes these pods a gang: a PodGroup, a Workload, or the controller that owns them.
    pub gang: GangReference,
    /// The gang runs with at least this many pods or not at all.
    #[schemars(range(min = 1))]
    pub min_member: i32,
    /// Names of the nodes that members refer to by index.
    #[schemars(length(max = 2000), inner(length(min = 1, max = 253)), transform = list_atomic)]
    pub nodes: Vec<String>,
    /// The pods and their places.
    #[schemars(length(max = 2000), transform = list_map(&["uid"]))]
    pub members: Vec<GangMember>,
    /// Which part of the gang this object holds; absent when it holds all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk: Option<GangChunk>,
}

/// The object that makes pods a gang.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct GangReference {
    /// API group, empty for core.
    #[schemars(length(max = 253))]
    pub group: String,
    /// Kind.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// Name, in the GangPlacement's namespace.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Uid: a later object of the same name is another gang.
    #[schemars(length(min = 1, max = 128))]
    pub uid: String,
}

/// One pod and its place.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GangMember {
    /// Name of the pod.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Uid of the pod.
    #[schemars(length(min = 1, max = 128))]
    pub uid: String,
    /// Index into `spec.nodes`.
    pub node: u32,
    /// Devices by container and resource, as indices on the node (`GpuNode.status.devices[].index`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub devices: BTreeMap<String, BTreeMap<String, Vec<u32>>>,
}

/// Part `index` of `count` parts of a gang too large for one object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GangChunk {
    /// Which part, from 0.
    pub index: u32,
    /// How many parts there are.
    #[schemars(range(min = 2))]
    pub count: u32,
}

/// How a placement ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GangPlacementStatus {
    /// Where the placement stands; absent while it is only decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<GangPhase>,
    /// Why, as one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub reason: Option<String>,
    /// Why, as a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32768))]
    pub message: Option<String>,
    /// Observations in the standard form.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<ConditionSchema>", length(max = 16), transform = list_map(&["type"]))]
    pub conditions: Vec<Condition>,
}

/// Where a placement stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum GangPhase {
    /// Members are being bound.
    Binding,
    /// Every member is bound.
    Bound,
    /// Bound members are being taken back.
    Undoing,
    /// No member is bound any more.
    Undone,
}
