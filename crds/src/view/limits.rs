//! What the API server adds to the requests of pods when they are created.

use std::collections::BTreeMap;

use model::ResourceName;
use model::quantity::Written;
use serde::Deserialize;

use super::meta::view;

view! {
    /// `v1` LimitRange.
    pub struct LimitRange("LimitRange", "", "v1", "limitranges", NamespaceResourceScope) {
        /// `spec`.
        pub spec: LimitRangeSpec,
    }
}

view! {
    /// `node.k8s.io/v1` RuntimeClass.
    pub struct RuntimeClass("RuntimeClass", "node.k8s.io", "v1", "runtimeclasses", ClusterResourceScope) {
        /// `overhead`.
        #[serde(deserialize_with = "model::null_as_default")]
        pub overhead: Overhead,
    }
}

/// `spec` of a LimitRange.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct LimitRangeSpec {
    /// `limits`.
    #[serde(deserialize_with = "model::null_as_default")]
    pub limits: Vec<LimitRangeItem>,
}

/// `spec.limits[]` of a LimitRange.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LimitRangeItem {
    /// `type`: `Container`, `Pod` or what is not about pods.
    #[serde(rename = "type")]
    pub kind: String,
    /// `max`: no more may be asked for.
    #[serde(deserialize_with = "model::null_as_default")]
    pub max: BTreeMap<ResourceName, Written>,
    /// `min`: no less may be asked for.
    #[serde(deserialize_with = "model::null_as_default")]
    pub min: BTreeMap<ResourceName, Written>,
    /// `default`: limits where none are set.
    #[serde(deserialize_with = "model::null_as_default")]
    pub default: BTreeMap<ResourceName, Written>,
    /// `defaultRequest`: requests where none are set.
    #[serde(deserialize_with = "model::null_as_default")]
    pub default_request: BTreeMap<ResourceName, Written>,
}

/// `overhead` of a RuntimeClass.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Overhead {
    /// `podFixed`: added to what a pod asks for.
    #[serde(deserialize_with = "model::null_as_default")]
    pub pod_fixed: BTreeMap<ResourceName, Written>,
}
