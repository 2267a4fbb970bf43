//! What webhooks go by that depends on the cluster: kept by the task that watches it, seen by every review.

use std::collections::{BTreeMap, BTreeSet};

use quota_engine::Uid;

/// The name of the LocalQueue, and of the WorkloadPriorityClass, that jobs get which name none: Kueue's.
pub const DEFAULT: &str = "default";

/// Owners above one another that are looked at: Kueue's `managedOwnersChainLimit`.
pub const MAX_ANCESTORS: usize = 10;

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
    /// Jobs that do not make theirs what they own, and the controller of each if that may: those of kinds that are switched off
    /// and, where only jobs are managed that name a queue, those that name none.
    pub passed: BTreeMap<Uid, Option<Uid>>,
    /// Objects with one Workload for all their pods that has quota, or is at its end: when they are scaled up from nothing, it is
    /// none that new pods could wait with.
    pub occupied: BTreeSet<Uid>,
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

    /// Whether this job has been seen, and is passed by on the way to what is managed instead of what it owns.
    pub fn is_passed(&self, job: &Uid) -> bool {
        self.passed.contains_key(job)
    }

    /// Whether neither this job nor what owns it is managed instead of what it owns (Kueue's `FindAncestorJobManagedByKueue`):
    /// that is managed by itself. Of one that has not been seen it is taken that it is.
    pub fn owns_nothing(&self, job: &Uid) -> bool {
        let mut at = job;
        for _ in 0..MAX_ANCESTORS {
            match self.passed.get(at) {
                Some(Some(above)) => at = above,
                Some(None) => return true,
                None => return false,
            }
        }
        false
    }
}
