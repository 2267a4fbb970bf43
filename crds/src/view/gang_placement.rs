//! GangPlacement, as gang-scheduler reads it: who goes where, and how that ended.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

use super::meta::view;
use crate::api::trireme::v1alpha1::{self as api, GangChunk, GangPhase};

view! {
    /// `trireme.dev/v1alpha1` GangPlacement.
    pub struct GangPlacement(
        "GangPlacement", crate::names::trireme::GROUP, "v1alpha1", "gangplacements", NamespaceResourceScope
    ) {
        /// The decision.
        pub spec: GangPlacementSpec,
        /// How it ended.
        #[serde(deserialize_with = "model::null_as_default")]
        pub status: GangPlacementStatus,
    }
}

/// `spec` of a GangPlacement.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct GangPlacementSpec {
    /// Names of the nodes that members refer to by index.
    pub nodes: Vec<String>,
    /// The pods and their places.
    pub members: Vec<PlacedMember>,
    /// Which part of the gang this object holds; absent when it holds all of it.
    pub chunk: Option<GangChunk>,
}

/// One pod and its place.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct PlacedMember {
    /// Uid of the pod.
    pub uid: String,
    /// Index into `spec.nodes`.
    pub node: u32,
    /// Devices by container and resource, as indices on the node.
    #[serde(default)]
    pub devices: BTreeMap<String, BTreeMap<String, Vec<u32>>>,
}

/// `status` of a GangPlacement.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct GangPlacementStatus {
    /// Where the placement stands; absent while it is only decided.
    pub phase: Option<GangPhase>,
}

impl GangPlacement {
    /// The object as a watch will show it that was created so, under this uid.
    pub fn created(object: api::GangPlacement, uid: String) -> Self {
        let api::GangPlacementSpec { nodes, members, chunk, .. } = object.spec;
        let member =
            |one: api::GangMember| PlacedMember { uid: one.uid, node: one.node, devices: one.devices };
        Self {
            metadata: ObjectMeta { uid: Some(uid), ..object.metadata },
            spec: GangPlacementSpec { nodes, members: members.into_iter().map(member).collect(), chunk },
            status: GangPlacementStatus::default(),
        }
    }
}
