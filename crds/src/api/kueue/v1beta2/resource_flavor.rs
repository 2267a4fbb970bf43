//! `ResourceFlavor`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Taint, Toleration};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    api::object::custom_resource,
    names,
    schema::{DNS_SUBDOMAIN, Embedded, list_atomic, map_atomic, rule, toleration_rules},
};

custom_resource! {
    /// A kind of node: what quota is counted in.
    pub struct ResourceFlavor(names::kueue::GROUP, "v1beta2", "resourceflavors", ClusterResourceScope) {
        /// Which nodes.
        #[serde(default)]
        pub spec: ResourceFlavorSpec,
    }
}

/// Which nodes are of a flavor, and what pods need to run on them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(
    transform = rule(
        "!has(self.topologyName) || self.nodeLabels.size() >= 1",
        "a flavor with a topology needs a node label",
    ),
    transform = rule(
        "!has(oldSelf.topologyName) || (has(self.topologyName) && self.topologyName == oldSelf.topologyName)",
        "topologyName cannot change once it is set",
    ),
)]
pub struct ResourceFlavorSpec {
    /// Labels the nodes have; given to admitted pods as node selector.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 8), transform = map_atomic)]
    pub node_labels: BTreeMap<String, String>,
    /// Taints the nodes have: only workloads that tolerate them get the flavor.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        with = "Vec<Embedded<Taint>>",
        length(max = 8),
        transform = list_atomic,
        transform = rule(
            "self.all(x, x.effect in ['NoSchedule', 'PreferNoSchedule', 'NoExecute'])",
            "effect must be NoSchedule, PreferNoSchedule or NoExecute",
        ),
    )]
    pub node_taints: Vec<Taint>,
    /// Tolerations given to admitted pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        with = "Vec<Embedded<Toleration>>",
        length(max = 8),
        transform = list_atomic,
        transform = toleration_rules,
    )]
    pub tolerations: Vec<Toleration>,
    /// The Topology of the nodes, for placement by topology.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), regex(pattern = DNS_SUBDOMAIN))]
    pub topology_name: Option<String>,
}
