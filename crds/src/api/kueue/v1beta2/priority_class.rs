//! `WorkloadPriorityClass`.

use crate::{api::object::custom_resource, names};

custom_resource! {
    /// A priority for queueing and preemption that is not the priority of the pods.
    pub struct WorkloadPriorityClass(names::kueue::GROUP, "v1beta2", "workloadpriorityclasses", ClusterResourceScope) {
        /// The priority; higher goes first. May change, and the workloads of the class follow.
        pub value: i32,
        /// When to use it.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(length(max = 2048))]
        pub description: Option<String>,
    }
}
