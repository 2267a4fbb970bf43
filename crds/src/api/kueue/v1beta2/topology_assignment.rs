//! Where the pods of a pod set go in a topology, packed.
//!
//! Names of ten thousand nodes would not fit an object: domains are cut into slices in which what is common is said once.
//! [`crate::conversion::topology`] packs and unpacks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::{list_atomic, required, rule};

/// How many pods go to which domains.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(
    transform = required(&["levels", "slices"]),
    transform = rule(
        "self.slices.all(x, size(x.valuesPerLevel) == size(self.levels))",
        "valuesPerLevel must have one entry a level",
    ),
)]
pub struct TopologyAssignment {
    /// Node labels that name the domains, outermost first. Only the hostname, where the topology ends in it.
    #[serde(default)]
    #[schemars(length(min = 1, max = 16), inner(length(max = 317)), transform = list_atomic)]
    pub levels: Vec<String>,
    /// The domains, in order of rank.
    #[serde(default)]
    #[schemars(length(max = 1000), transform = list_atomic)]
    pub slices: Vec<TopologyAssignmentSlice>,
}

/// Consecutive domains that have something in common.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(
    transform = rule(
        "!has(self.podCounts.individual) || size(self.podCounts.individual) == self.domainCount",
        "podCounts.individual must have one entry a domain",
    ),
    transform = rule(
        "self.valuesPerLevel.all(x, !has(x.individual) || size(x.individual.roots) == self.domainCount)",
        "valuesPerLevel[].individual.roots must have one entry a domain",
    ),
)]
pub struct TopologyAssignmentSlice {
    /// How many domains.
    #[schemars(range(min = 1))]
    pub domain_count: i32,
    /// Their values of each level's label.
    #[schemars(length(min = 1, max = 16), transform = list_atomic)]
    pub values_per_level: Vec<TopologyAssignmentSliceLevelValues>,
    /// How many pods go to each.
    pub pod_counts: TopologyAssignmentSlicePodCounts,
}

/// Values of one level's label in one slice. One of the two.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = rule(
    "has(self.universal) != has(self.individual)",
    "set either universal or individual",
))]
pub struct TopologyAssignmentSliceLevelValues {
    /// The value they all have.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub universal: Option<String>,
    /// A value each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub individual: Option<TopologyAssignmentSliceLevelIndividualValues>,
}

/// A value each: prefix, root, suffix.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct TopologyAssignmentSliceLevelIndividualValues {
    /// What all values begin with.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub prefix: Option<String>,
    /// What all values end with.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub suffix: Option<String>,
    /// What is between, one a domain.
    #[schemars(length(min = 1, max = 100_000), inner(length(max = 63)), transform = list_atomic)]
    pub roots: Vec<String>,
}

/// Pods of the domains of one slice. One of the two.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = rule(
    "[has(self.universal),has(self.individual)].filter(x,x==true).size() == 1",
    "set either universal or individual",
))]
pub struct TopologyAssignmentSlicePodCounts {
    /// The number they all have.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub universal: Option<i32>,
    /// A number each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 100_000), inner(range(min = 1)), transform = list_atomic)]
    pub individual: Vec<i32>,
}
