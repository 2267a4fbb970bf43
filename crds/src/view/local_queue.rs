//! LocalQueue, as admission-controller reads it.

use serde::Deserialize;

use super::cluster_queue::QueueStatus;
use super::meta::view;
use super::quota::FairSharing;

view! {
    /// `kueue.x-k8s.io/v1beta2` LocalQueue.
    pub struct LocalQueue("LocalQueue", crate::names::kueue::GROUP, "v1beta2", "localqueues", NamespaceResourceScope) {
        /// `spec`.
        pub spec: LocalQueueSpec,
        /// `status`.
        pub status: QueueStatus,
    }
}

/// `spec` of a LocalQueue.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalQueueSpec {
    /// `clusterQueue`.
    pub cluster_queue: String,
    /// `stopPolicy`.
    pub stop_policy: Option<String>,
    /// `fairSharing`.
    pub fair_sharing: FairSharing,
}
