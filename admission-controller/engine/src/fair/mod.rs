//! Fair sharing: what is lent in a cohort is shared out by dominant resource shares.
//!
//! Rules: Kueue KEP-1714 and `pkg/cache/scheduler/fair_sharing.go`. A node's share is how much of what its siblings' cohort
//! can lend it has borrowed, of the resource of which that is most, divided by its weight. It is computed from the tree's
//! running sums and compared exactly, as fractions. The victims are found in `preempt`.

mod order;
mod share;

pub(crate) use order::{Entrant, Turns};
pub(crate) use share::Share;

use model::ResourceName;

use crate::engine::Engine;
use crate::names::{ClusterQueueName, CohortName, FlavorName};
use crate::tree::{Ledger, NodeId, NodeName, Usage};

/// Kueue's `fairSharing.preemptionStrategies`: when a workload may displace one of a queue that borrows. The names are those
/// of its rules, in the order in which they are tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FairSharing {
    /// `LessThanOrEqualToFinalShare`, and where that does not do, `LessThanInitialShare`.
    #[default]
    FinalThenInitialShare,
    /// `LessThanOrEqualToFinalShare`: the preemptor's share does not become larger than its victim's.
    FinalShare,
    /// `LessThanInitialShare`: it becomes smaller than its victim's was.
    InitialShare,
}

/// Who has a share.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sharer {
    /// A ClusterQueue.
    ClusterQueue(ClusterQueueName),
    /// A Cohort, with or without an object.
    Cohort(CohortName),
}

/// How much somebody borrows, as fair sharing sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct FairShare {
    /// Who.
    pub sharer: Sharer,
    /// `weightedShare`: in thousandths of what can be lent, divided by the weight, rounded up. `i64::MAX` is what somebody of
    /// weight 0 has who borrows.
    pub weighted: i64,
    /// The same, not rounded; infinite for weight 0.
    pub exact: f64,
    /// The resource that decides; `None` where nothing is borrowed that can be lent.
    pub resource: Option<ResourceName>,
    /// Whether anything is borrowed.
    pub borrows: bool,
}

impl Engine {
    /// Everybody's share, sorted by name, with `more` on top of what each of them uses.
    pub fn fair_shares(&self, more: &[(FlavorName, ResourceName, i64)]) -> Vec<FairShare> {
        let more: Usage = more
            .iter()
            .filter_map(|(flavor, resource, amount)| Some((self.tree.known_pair(flavor, resource)?, *amount)))
            .collect();
        let mut shares: Vec<FairShare> = self
            .tree
            .ids()
            .filter_map(|id| {
                let sharer = match self.tree.name(id) {
                    NodeName::ClusterQueue(name) => {
                        self.queues.get(id)?.spec.as_ref()?;
                        Sharer::ClusterQueue(name.clone())
                    }
                    NodeName::Cohort(name) => {
                        if self.tree.children(id).is_empty() && !self.cohorts.contains_key(name) {
                            return None;
                        }
                        Sharer::Cohort(name.clone())
                    }
                };
                Some(self.fair_share(id, sharer, &more))
            })
            .collect();
        shares.sort_by(|a, b| a.sharer.cmp(&b.sharer));
        shares
    }

    /// A Cohort's share; `None` where sharing is not fair, or there is no such object.
    pub fn cohort_share(&self, name: &CohortName) -> Option<FairShare> {
        if !self.cohorts.contains_key(name) {
            return None;
        }
        let id = self.tree.known_node(&NodeName::Cohort(name.clone()))?;
        self.share_told(id, Sharer::Cohort(name.clone()))
    }

    /// The cohorts above a ClusterQueue, whose shares change with what it uses.
    pub fn cohorts_above(&self, name: &ClusterQueueName) -> Vec<CohortName> {
        let Some(queue) = self.known_queue(name) else { return Vec::new() };
        self.tree
            .path(queue.node)
            .filter_map(|id| match self.tree.name(id) {
                NodeName::Cohort(name) => Some(name.clone()),
                NodeName::ClusterQueue(_) => None,
            })
            .collect()
    }

    /// What is told of a share: nothing where sharing is not fair.
    pub(crate) fn share_told(&self, id: NodeId, sharer: Sharer) -> Option<FairShare> {
        self.settings.fair_sharing?;
        Some(self.fair_share(id, sharer, &Usage::new()))
    }

    fn fair_share(&self, id: NodeId, sharer: Sharer, more: &Usage) -> FairShare {
        let share = self.tree.share(id, Ledger::Held, more);
        FairShare {
            sharer,
            weighted: share.weighted(),
            exact: share.exact(),
            borrows: share.borrows(),
            resource: share.into_resource(),
        }
    }
}
