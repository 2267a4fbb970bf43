//! Priority classes: Kueue's for workloads, Kubernetes' for pods.

use super::meta::view;

view! {
    /// `kueue.x-k8s.io/v1beta2` WorkloadPriorityClass.
    pub struct WorkloadPriorityClass(
        "WorkloadPriorityClass", crate::names::kueue::GROUP, "v1beta2", "workloadpriorityclasses", ClusterResourceScope
    ) {
        /// `value`.
        pub value: i32,
    }
}

view! {
    /// `scheduling.k8s.io/v1` PriorityClass.
    pub struct PriorityClass("PriorityClass", "scheduling.k8s.io", "v1", "priorityclasses", ClusterResourceScope) {
        /// `value`.
        pub value: i32,
        /// `globalDefault`: the class of pods that name none.
        pub global_default: bool,
    }
}
