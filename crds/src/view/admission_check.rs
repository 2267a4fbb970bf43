//! AdmissionCheck, as admission-controller reads it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::Deserialize;

use super::meta::view;

view! {
    /// `kueue.x-k8s.io/v1beta2` AdmissionCheck.
    pub struct AdmissionCheck("AdmissionCheck", crate::names::kueue::GROUP, "v1beta2", "admissionchecks", ClusterResourceScope) {
        /// `spec`.
        pub spec: AdmissionCheckSpec,
        /// `status`.
        pub status: AdmissionCheckStatus,
    }
}

/// `spec` of an AdmissionCheck.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AdmissionCheckSpec {
    /// `controllerName`: who answers it.
    pub controller_name: String,
    /// `parameters`.
    pub parameters: Option<Parameters>,
}

/// `spec.parameters`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Parameters {
    /// `apiGroup`.
    pub api_group: String,
    /// `kind`.
    pub kind: String,
    /// `name`.
    pub name: String,
}

/// `status` of an AdmissionCheck.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct AdmissionCheckStatus {
    /// `conditions`.
    pub conditions: Vec<Condition>,
}
