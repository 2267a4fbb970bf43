//! Which resources are counted, and as what.

use std::collections::BTreeMap;

use model::ResourceName;
use model::quantity::Quantity;
use serde::Deserialize;

/// `resources`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Resources {
    /// Resources whose names begin so are not counted.
    pub exclude_resource_prefixes: Vec<String>,
    /// What happens to resources that a ClusterQueue has no quota for.
    pub quota_check_strategy: QuotaCheckStrategy,
    /// Resources that count as others, at most one entry for each input.
    pub transformations: Vec<Transformation>,
}

/// `resources.transformations[]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Transformation {
    /// What pods ask for.
    pub input: ResourceName,
    /// Whether that still counts.
    #[serde(default)]
    pub strategy: Strategy,
    /// A resource of the same pod: the input is multiplied by how much of it is asked for.
    pub multiply_by: Option<ResourceName>,
    /// What counts for each unit of the input. Less than nothing is an allowance.
    #[serde(default)]
    pub outputs: BTreeMap<ResourceName, Quantity>,
}

/// `resources.transformations[].strategy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum Strategy {
    /// The input counts as well; so where the strategy is empty.
    #[default]
    #[serde(alias = "")]
    Retain,
    /// Only the outputs count.
    Replace,
}

/// `resources.quotaCheckStrategy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum QuotaCheckStrategy {
    /// Who asks for them is not admitted.
    #[default]
    BlockUndeclared,
    /// They are not counted.
    IgnoreUndeclared,
}
