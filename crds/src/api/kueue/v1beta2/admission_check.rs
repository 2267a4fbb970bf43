//! `AdmissionCheck`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    api::{Condition, object::custom_resource},
    names,
    schema::{ConditionSchema, DNS_LABEL, DNS_SUBDOMAIN, KIND_NAME, immutable, list_map},
};

custom_resource! {
    /// A condition that some controller has to confirm before a workload with quota may run.
    pub struct AdmissionCheck(names::kueue::GROUP, "v1beta2", "admissionchecks", ClusterResourceScope) {
        /// Who confirms, and how.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub spec: Option<AdmissionCheckSpec>,
        /// Whether the controller is at work.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub status: Option<AdmissionCheckStatus>,
    }
}

/// Who confirms, and how.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionCheckSpec {
    /// Name of the controller that handles the check; not the name of a pod or deployment.
    #[schemars(length(min = 1, max = 253), transform = immutable)]
    pub controller_name: String,
    /// An object with further settings for the controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameters: Option<AdmissionCheckParametersReference>,
}

/// Names an object with settings for an admission check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionCheckParametersReference {
    /// API group.
    #[schemars(length(min = 1, max = 253), regex(pattern = DNS_SUBDOMAIN))]
    pub api_group: String,
    /// Kind.
    #[schemars(length(min = 1, max = 63), regex(pattern = KIND_NAME))]
    pub kind: String,
    /// Name.
    #[schemars(length(min = 1, max = 63), regex(pattern = DNS_LABEL))]
    pub name: String,
}

/// Whether an admission check's controller is at work.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AdmissionCheckStatus {
    /// `Active` says whether the check can be used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<ConditionSchema>", length(max = 16), transform = list_map(&["type"]))]
    pub conditions: Vec<Condition>,
}
