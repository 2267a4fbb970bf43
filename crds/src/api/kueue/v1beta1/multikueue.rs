//! `MultiKueueCluster`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    api::{
        kueue::v1beta2::{ClusterProfileReference, LocationType, MultiKueueClusterStatus},
        object::custom_resource,
    },
    names,
    schema::{default, relax},
};

custom_resource! {
    /// A worker cluster and how to reach it.
    pub struct MultiKueueCluster(names::kueue::GROUP, "v1beta1", "multikueueclusters", ClusterResourceScope) {
        /// How to reach it.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub spec: Option<MultiKueueClusterSpec>,
        /// Whether it is reached.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(transform = relax("/properties/conditions", &["maxItems"]))]
        pub status: Option<MultiKueueClusterStatus>,
    }
}

/// How to reach a worker cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MultiKueueClusterSpec {
    /// Through a kubeconfig.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(required)]
    pub kube_config: Option<KubeConfig>,
    /// Through a ClusterProfile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_profile_ref: Option<ClusterProfileReference>,
}

/// Where a kubeconfig is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubeConfig {
    /// Name of the Secret, or path of the file.
    pub location: String,
    /// Which of the two.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(required, transform = default("Secret"))]
    pub location_type: Option<LocationType>,
}
