//! What webhooks go by that depends on the cluster: kept by the task that watches it, seen by every review.

use std::collections::BTreeSet;

/// The name of the LocalQueue, and of the WorkloadPriorityClass, that jobs get which name none: Kueue's.
pub const DEFAULT: &str = "default";

/// What there is. Empty until the first lists are complete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// Namespaces with a LocalQueue of the name.
    pub queues: BTreeSet<String>,
    /// Whether there is a WorkloadPriorityClass of the name.
    pub class: bool,
    /// Namespaces that `managedJobsNamespaceSelector` does not select. One that has not been seen yet counts as selected: a pod
    /// that is let through is never looked at again, and runs without quota.
    pub unselected: BTreeSet<String>,
}

impl Surroundings {
    /// Whether jobs of this namespace that name no queue get one.
    pub fn has_queue(&self, namespace: &str) -> bool {
        self.queues.contains(namespace) && !self.leaves_alone(namespace)
    }

    /// Whether objects of this namespace stay as they are, whichever namespaces the API server sends reviews of: after a
    /// takeover those are the ones that Kueue's webhook configurations name.
    pub fn leaves_alone(&self, namespace: &str) -> bool {
        self.unselected.contains(namespace)
    }
}
