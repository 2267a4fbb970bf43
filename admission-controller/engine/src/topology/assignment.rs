//! Which pods go to which domains.

use std::sync::Arc;

/// Pods in one domain of the lowest level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainPods {
    /// The domain's values, one for each of the assignment's levels.
    pub values: Vec<Arc<str>>,
    /// How many pods go there: one or more.
    pub pods: i64,
}

/// Where the pods of one pod set go (`status.admission.podSetAssignments[].topologyAssignment`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    /// Node labels, outermost first: all levels, or the host name alone where the topology ends in it.
    pub levels: Vec<Arc<str>>,
    /// The domains, in the order of all their values from the top level down.
    pub domains: Vec<DomainPods>,
}

impl Assignment {
    /// How many pods it has places for.
    pub fn pods(&self) -> i64 {
        self.domains.iter().map(|domain| domain.pods).sum()
    }

    /// The places that are not among those of before. Domains are hosts, by whatever levels they are named.
    pub(crate) fn beyond(&self, before: &Self) -> Self {
        let mut more = self.clone();
        for domain in &mut more.domains {
            let same = before.domains.iter().filter(|known| known.values.last() == domain.values.last());
            domain.pods -= same.map(|known| known.pods).sum::<i64>();
        }
        more.domains.retain(|domain| domain.pods > 0);
        more
    }

    /// The same for fewer pods: those placed last go.
    pub(super) fn truncated(&self, pods: i64) -> Self {
        let mut left = pods;
        let mut domains = Vec::new();
        for domain in &self.domains {
            if left <= 0 {
                break;
            }
            domains.push(DomainPods { values: domain.values.clone(), pods: domain.pods.min(left) });
            left -= domain.pods;
        }
        Self { levels: self.levels.clone(), domains }
    }
}
