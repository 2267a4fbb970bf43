//! `LocalQueue`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    api::{
        Condition,
        kueue::v1beta2::{LocalQueueFairSharingStatus, LocalQueueFlavorUsage, LocalQueueSpec},
        object::custom_resource,
    },
    names,
    schema::{ConditionSchema, DNS_SUBDOMAIN, Embedded, list_atomic, list_map, list_set, map_atomic},
};

custom_resource! {
    /// The name under which a namespace's jobs reach a ClusterQueue.
    pub struct LocalQueue(names::kueue::GROUP, "v1beta1", "localqueues", NamespaceResourceScope) {
        /// Where it leads.
        #[serde(default)]
        pub spec: LocalQueueSpec,
        /// What went through it.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub status: Option<LocalQueueStatus>,
    }
}

/// What went through a LocalQueue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalQueueStatus {
    /// `Active` says whether workloads can be submitted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<ConditionSchema>", transform = list_map(&["type"]))]
    pub conditions: Vec<Condition>,
    /// Workloads that wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_workloads: Option<i32>,
    /// Workloads that hold a reservation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserving_workloads: Option<i32>,
    /// Workloads that are admitted and not finished.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admitted_workloads: Option<i32>,
    /// Quota of its workloads that hold a reservation, by flavor.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), transform = list_map(&["name"]))]
    pub flavors_reservation: Vec<LocalQueueFlavorUsage>,
    /// Quota of its workloads that are admitted, by flavor.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), transform = list_map(&["name"]))]
    pub flavor_usage: Vec<LocalQueueFlavorUsage>,
    /// The flavors that can be had through it. Not in v1beta2: conversion drops it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), transform = list_map(&["name"]))]
    pub flavors: Vec<LocalQueueFlavorStatus>,
    /// What it used, as admission fair sharing sees it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<LocalQueueFairSharingStatus>,
}

/// A flavor that can be had through a LocalQueue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalQueueFlavorStatus {
    /// Name of the ResourceFlavor.
    #[schemars(length(max = 253), regex(pattern = DNS_SUBDOMAIN))]
    pub name: String,
    /// Resources it has quota for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), transform = list_set)]
    pub resources: Vec<String>,
    /// Labels of its nodes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 8), transform = map_atomic)]
    pub node_labels: BTreeMap<String, String>,
    /// Taints of its nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<Embedded<Taint>>", length(max = 8), transform = list_atomic)]
    pub node_taints: Vec<Taint>,
    /// Topology of its nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology: Option<TopologyInfo>,
}

/// A Topology in short.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TopologyInfo {
    /// Name of the Topology.
    #[schemars(length(max = 253), regex(pattern = DNS_SUBDOMAIN))]
    pub name: String,
    /// Its levels, outermost first.
    #[schemars(length(min = 1, max = 16), transform = list_atomic)]
    pub levels: Vec<String>,
}
