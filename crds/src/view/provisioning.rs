//! What asking an autoscaler for nodes takes: `autoscaling.x-k8s.io` ProvisioningRequest, its settings, and pod templates.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::Deserialize;
use serde_json::Value;

use super::meta::view;

view! {
    /// `kueue.x-k8s.io/v1beta2` ProvisioningRequestConfig.
    pub struct ProvisioningRequestConfig("ProvisioningRequestConfig", crate::names::kueue::GROUP, "v1beta2", "provisioningrequestconfigs", ClusterResourceScope) {
        /// `spec`.
        pub spec: ConfigSpec,
    }
}

/// `spec` of a ProvisioningRequestConfig.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConfigSpec {
    /// `provisioningClassName`.
    pub provisioning_class_name: String,
    /// `parameters`.
    pub parameters: BTreeMap<String, String>,
    /// `managedResources`; empty is all.
    pub managed_resources: Vec<String>,
    /// `retryStrategy`.
    pub retry_strategy: RetryStrategy,
    /// `podSetUpdates`.
    pub pod_set_updates: PodSetUpdates,
    /// `podSetMergePolicy`.
    pub pod_set_merge_policy: Option<String>,
}

/// `spec.retryStrategy` of a ProvisioningRequestConfig.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RetryStrategy {
    /// `backoffLimitCount`.
    pub backoff_limit_count: Option<i32>,
    /// `backoffBaseSeconds`.
    pub backoff_base_seconds: Option<i32>,
    /// `backoffMaxSeconds`.
    pub backoff_max_seconds: Option<i32>,
}

/// `spec.podSetUpdates` of a ProvisioningRequestConfig.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSetUpdates {
    /// `nodeSelector`.
    pub node_selector: Vec<SelectorFromDetail>,
}

/// `spec.podSetUpdates.nodeSelector[]` of a ProvisioningRequestConfig.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SelectorFromDetail {
    /// `key`: the node label.
    pub key: String,
    /// `valueFromProvisioningClassDetail`: the detail of the request's status with its value.
    pub value_from_provisioning_class_detail: String,
}

view! {
    /// `autoscaling.x-k8s.io/v1` ProvisioningRequest.
    pub struct ProvisioningRequest("ProvisioningRequest", "autoscaling.x-k8s.io", "v1", "provisioningrequests", NamespaceResourceScope) {
        /// `spec`.
        pub spec: RequestSpec,
        /// `status`.
        pub status: RequestStatus,
    }
}

/// `spec` of a ProvisioningRequest.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RequestSpec {
    /// `provisioningClassName`.
    pub provisioning_class_name: String,
    /// `parameters`.
    pub parameters: BTreeMap<String, String>,
    /// `podSets`.
    pub pod_sets: Vec<RequestedPods>,
}

/// `spec.podSets[]` of a ProvisioningRequest.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RequestedPods {
    /// `podTemplateRef`.
    pub pod_template_ref: TemplateRef,
}

/// `spec.podSets[].podTemplateRef` of a ProvisioningRequest.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct TemplateRef {
    /// `name`.
    pub name: String,
}

/// `status` of a ProvisioningRequest. Null is nothing: an autoscaler's definition need not drop it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RequestStatus {
    /// `conditions`.
    #[serde(deserialize_with = "model::null_as_default")]
    pub conditions: Vec<Condition>,
    /// `provisioningClassDetails`.
    #[serde(deserialize_with = "model::null_as_default")]
    pub provisioning_class_details: BTreeMap<String, String>,
}

view! {
    /// A core PodTemplate: only whose it is.
    pub struct PodTemplateMeta("PodTemplate", "", "v1", "podtemplates", NamespaceResourceScope) {}
}

view! {
    /// A Workload as it is written: what is asked of an autoscaler is what its pods will be, in full.
    pub struct WholeWorkload("Workload", crate::names::kueue::GROUP, "v1beta2", "workloads", NamespaceResourceScope) {
        /// `spec`.
        pub spec: Value,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn null_is_nothing_in_the_status_of_a_request() {
        let status = json!({ "conditions": null, "provisioningClassDetails": null });
        assert_eq!(serde_json::from_value::<RequestStatus>(status).unwrap(), RequestStatus::default());
    }
}
