//! Kinds whose two versions differ in bounds only: the API server converts them by changing `apiVersion`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    api::{
        kueue::v1beta2::{
            self, AdmissionCheckParametersReference, ProvisioningRequestConfigSpec, ResourceFlavorSpec,
            TopologyLevel,
        },
        object::custom_resource,
    },
    names,
    schema::{UNIQUE_ITEMS, default, immutable, list_atomic, list_set, relax, rule},
};

custom_resource! {
    /// A condition that some controller has to confirm before a workload with quota may run.
    pub struct AdmissionCheck(names::kueue::GROUP, "v1beta1", "admissionchecks", ClusterResourceScope) {
        /// Who confirms, and how.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub spec: Option<AdmissionCheckSpec>,
        /// Whether the controller is at work.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(transform = relax("/properties/conditions", &["maxItems"]))]
        pub status: Option<v1beta2::AdmissionCheckStatus>,
    }
}

/// Who confirms, and how.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionCheckSpec {
    /// Name of the controller that handles the check; not the name of a pod or deployment.
    #[schemars(transform = immutable)]
    pub controller_name: String,
    /// Has no effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = default(15))]
    pub retry_delay_minutes: Option<i64>,
    /// An object with further settings for the controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        transform = relax("/properties/apiGroup", &["minLength"]),
        transform = relax("/properties/kind", &["minLength"]),
        transform = relax("/properties/name", &["minLength"]),
    )]
    pub parameters: Option<AdmissionCheckParametersReference>,
}

custom_resource! {
    /// The worker clusters that a MultiKueue admission check may use.
    pub struct MultiKueueConfig(names::kueue::GROUP, "v1beta1", "multikueueconfigs", ClusterResourceScope) {
        /// Which they are.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub spec: Option<MultiKueueConfigSpec>,
    }
}

/// The worker clusters to use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MultiKueueConfigSpec {
    /// Names of MultiKueueClusters.
    #[schemars(length(min = 1, max = 20), transform = list_set)]
    pub clusters: Vec<String>,
}

custom_resource! {
    /// Settings of an admission check that asks the cluster autoscaler for nodes.
    pub struct ProvisioningRequestConfig(
        names::kueue::GROUP, "v1beta1", "provisioningrequestconfigs", ClusterResourceScope
    ) {
        /// The settings.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(
            transform = relax("/properties/provisioningClassName", &["minLength"]),
            transform = relax(
                "/properties/podSetUpdates/properties/nodeSelector",
                &["x-kubernetes-list-type", "x-kubernetes-list-map-keys"],
            ),
        )]
        pub spec: Option<ProvisioningRequestConfigSpec>,
    }
}

custom_resource! {
    /// A kind of node: what quota is counted in.
    pub struct ResourceFlavor(names::kueue::GROUP, "v1beta1", "resourceflavors", ClusterResourceScope) {
        /// Which nodes.
        #[serde(default)]
        pub spec: ResourceFlavorSpec,
    }
}

custom_resource! {
    /// How nodes are grouped: the node labels of each level, outermost first.
    pub struct Topology(names::kueue::GROUP, "v1beta1", "topologies", ClusterResourceScope) {
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
        transform = immutable,
        transform = rule(UNIQUE_ITEMS, "levels must not repeat"),
        transform = rule(v1beta2::HOSTNAME_LAST, "kubernetes.io/hostname can only be the lowest level"),
    )]
    pub levels: Vec<TopologyLevel>,
}

custom_resource! {
    /// A priority for queueing and preemption that is not the priority of the pods.
    pub struct WorkloadPriorityClass(names::kueue::GROUP, "v1beta1", "workloadpriorityclasses", ClusterResourceScope) {
        /// The priority; higher goes first. May change, and the workloads of the class follow.
        pub value: i32,
        /// When to use it.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub description: Option<String>,
    }
}
