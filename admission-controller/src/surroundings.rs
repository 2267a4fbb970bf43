//! What webhooks fill in that depends on the cluster: kept by the task that watches it, seen by every review.

use std::collections::BTreeSet;

/// The name of the LocalQueue, and of the WorkloadPriorityClass, that jobs get which name none: Kueue's.
pub const DEFAULT: &str = "default";

/// The defaults that there are. Empty until the first lists are complete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// Namespaces with a LocalQueue of the name.
    pub queues: BTreeSet<String>,
    /// Whether there is a WorkloadPriorityClass of the name.
    pub class: bool,
}

impl Surroundings {
    /// Whether jobs of this namespace that name no queue get one.
    pub fn has_queue(&self, namespace: &str) -> bool {
        self.queues.contains(namespace)
    }
}
