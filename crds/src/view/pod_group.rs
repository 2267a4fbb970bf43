//! Volcano's PodGroup (`scheduling.volcano.sh/v1beta1`), as far as placement depends on it.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::meta::view;

view! {
    /// A PodGroup.
    pub struct PodGroup("PodGroup", crate::names::volcano::GROUP, "v1beta1", "podgroups", NamespaceResourceScope) {
        /// What was wished.
        #[serde(deserialize_with = "model::null_as_default")]
        pub spec: PodGroupSpec,
        /// What became of it.
        #[serde(deserialize_with = "model::null_as_default")]
        pub status: PodGroupStatus,
    }
}

/// `spec` of a PodGroup.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodGroupSpec {
    /// So many pods run together, or none does.
    #[serde(deserialize_with = "model::null_as_default")]
    pub min_member: i64,
    /// So many pods of a task (pod annotation `volcano.sh/task-spec`) run, or none does.
    #[serde(deserialize_with = "model::null_as_default")]
    pub min_task_member: BTreeMap<String, i64>,
    /// The group's priority: what the order between groups looks at first.
    #[serde(deserialize_with = "model::null_as_default")]
    pub priority_class_name: String,
    /// Where its pods should, or must, be close to each other.
    pub network_topology: Option<NetworkTopology>,
    /// Gangs within the gang.
    #[serde(deserialize_with = "model::null_as_default")]
    pub sub_group_policy: Vec<IgnoredAny>,
}

/// `spec.networkTopology` of a PodGroup: whether it must hold.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct NetworkTopology {
    /// `hard` (if empty) or `soft`.
    #[serde(deserialize_with = "model::null_as_default")]
    pub mode: String,
}

/// `status` of a PodGroup.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PodGroupStatus {
    /// `Pending`, `Inqueue`, `Running`, `Unknown` or `Completed`.
    #[serde(deserialize_with = "model::null_as_default")]
    pub phase: String,
    /// Its conditions as they are.
    #[serde(deserialize_with = "model::null_as_default")]
    pub conditions: Vec<serde_json::Value>,
    /// Pods that run.
    #[serde(deserialize_with = "model::null_as_default")]
    pub running: i64,
    /// Pods that succeeded.
    #[serde(deserialize_with = "model::null_as_default")]
    pub succeeded: i64,
    /// Pods that failed.
    #[serde(deserialize_with = "model::null_as_default")]
    pub failed: i64,
}
