//! `Topology`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    api::object::custom_resource,
    names,
    schema::{QUALIFIED_NAME, UNIQUE_ITEMS, list_atomic, rule},
};

custom_resource! {
    /// How nodes are grouped: the node labels of each level, outermost first.
    pub struct Topology(names::kueue::GROUP, "v1beta2", "topologies", ClusterResourceScope) {
        /// The levels.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub spec: Option<TopologySpec>,
    }
}

/// The levels of a topology.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TopologySpec {
    /// Outermost first.
    #[schemars(
        length(min = 1, max = 16),
        transform = list_atomic,
        transform = rule(
            "self == oldSelf || (self[size(self) - 1].nodeLabel == 'kubernetes.io/hostname' && oldSelf[size(oldSelf) - 1].nodeLabel == 'kubernetes.io/hostname')",
            "levels can change only while the lowest one is kubernetes.io/hostname before and after",
        ),
        transform = rule(UNIQUE_ITEMS, "levels must not repeat"),
        transform = rule(HOSTNAME_LAST, "kubernetes.io/hostname can only be the lowest level"),
    )]
    pub levels: Vec<TopologyLevel>,
}

/// Nodes are hosts: nothing is below them.
pub(crate) const HOSTNAME_LAST: &str = "size(self.filter(i, i.nodeLabel == 'kubernetes.io/hostname')) == 0 || self[size(self) - 1].nodeLabel == 'kubernetes.io/hostname'";

/// One level of a topology.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopologyLevel {
    /// Nodes with the same value of this label are together.
    #[schemars(length(min = 1, max = 316), regex(pattern = QUALIFIED_NAME))]
    pub node_label: String,
}
