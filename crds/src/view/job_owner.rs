//! `batch/v1` Job, for its place in an owner chain alone.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

use super::resource::view_of;

/// A Job's metadata: a JobSet's pods belong to Jobs, and only those to the JobSet.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct JobOwner {
    /// Standard metadata.
    pub metadata: ObjectMeta,
}

view_of!(JobOwner, "batch", "v1", "Job", "jobs", NamespaceResourceScope);
