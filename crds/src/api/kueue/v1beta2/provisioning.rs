//! `ProvisioningRequestConfig`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    api::object::custom_resource,
    names,
    schema::{DNS_SUBDOMAIN, QUALIFIED_NAME, default, list_map, list_set, map_values},
};

custom_resource! {
    /// Settings of an admission check that asks the cluster autoscaler for nodes.
    pub struct ProvisioningRequestConfig(
        names::kueue::GROUP, "v1beta2", "provisioningrequestconfigs", ClusterResourceScope
    ) {
        /// The settings.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub spec: Option<ProvisioningRequestConfigSpec>,
    }
}

/// How nodes are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProvisioningRequestConfigSpec {
    /// The autoscaler's way of provisioning.
    #[schemars(length(min = 1, max = 253), regex(pattern = DNS_SUBDOMAIN))]
    pub provisioning_class_name: String,
    /// Its parameters.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 100), transform = map_values("maxLength", 255))]
    pub parameters: BTreeMap<String, String>,
    /// Only pod sets that ask for one of these are provisioned for; empty = all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), transform = list_set)]
    pub managed_resources: Vec<String>,
    /// What to do when provisioning fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = default(
        json!({ "backoffLimitCount": 3, "backoffBaseSeconds": 60, "backoffMaxSeconds": 1800 }),
    ))]
    pub retry_strategy: Option<ProvisioningRequestRetryStrategy>,
    /// What the provisioned nodes' details add to the pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_set_updates: Option<ProvisioningRequestPodSetUpdates>,
    /// Which pod sets are asked for as one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_set_merge_policy: Option<PodSetMergePolicy>,
}

/// What to do when provisioning fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProvisioningRequestRetryStrategy {
    /// Attempts after the first before the workload is deactivated.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = default(3))]
    pub backoff_limit_count: Option<i32>,
    /// Seconds before the first retry; doubled after each.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = default(60))]
    pub backoff_base_seconds: Option<i32>,
    /// Seconds it never waits longer than.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = default(1800))]
    pub backoff_max_seconds: Option<i32>,
}

/// What the provisioned nodes' details add to the pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProvisioningRequestPodSetUpdates {
    /// Node selectors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), transform = list_map(&["key"]))]
    pub node_selector: Vec<ProvisioningRequestPodSetUpdatesNodeSelector>,
}

/// A node selector whose value the autoscaler reports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProvisioningRequestPodSetUpdatesNodeSelector {
    /// Label of the node.
    #[schemars(length(min = 1, max = 317), regex(pattern = QUALIFIED_NAME))]
    pub key: String,
    /// Detail of the ProvisioningRequest's status that has the value.
    #[schemars(length(min = 1, max = 32768))]
    pub value_from_provisioning_class_detail: String,
}

/// Which pod sets are asked for as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PodSetMergePolicy {
    /// Those with the same template.
    IdenticalPodTemplates,
    /// Those a scheduler treats alike.
    IdenticalWorkloadSchedulingRequirements,
}
