//! What is told of cohorts and of ClusterQueues is a sum of what was told of the queues below them; a queue that says something
//! else changes those sums only.

use std::collections::{BTreeMap, BTreeSet};

use model::ResourceName;
use quota_engine::{ClusterQueueName, CohortName, FlavorName, FlavorUsage, LocalQueueKey};

use super::tally::Counts;

type Pair = (FlavorName, ResourceName);

/// What a ClusterQueue adds to each of the cohorts above it.
#[derive(Debug, Default, PartialEq)]
struct Share {
    cohorts: Vec<CohortName>,
    admitted: usize,
    reserved: BTreeMap<Pair, i64>,
}

/// What all ClusterQueues below a cohort come to.
#[derive(Debug, Default)]
pub(super) struct Below {
    queues: usize,
    pub(super) admitted: usize,
    /// Wide enough for any number of queues.
    pub(super) reserved: BTreeMap<Pair, i128>,
}

#[derive(Debug, Default)]
pub(super) struct Sums {
    shares: BTreeMap<ClusterQueueName, Share>,
    cohorts: BTreeMap<CohortName, Below>,
    counts: BTreeMap<ClusterQueueName, Counts>,
    of_local: BTreeMap<LocalQueueKey, (ClusterQueueName, Counts)>,
}

impl Sums {
    /// A ClusterQueue with these cohorts above it has so much. Returns the cohorts whose sums are others now.
    pub(super) fn set(
        &mut self,
        queue: &ClusterQueueName,
        cohorts: &[CohortName],
        admitted: usize,
        reservation: &[FlavorUsage],
    ) -> BTreeSet<CohortName> {
        let used = reservation.iter().filter(|row| row.total > 0);
        let share = Share {
            cohorts: cohorts.to_vec(),
            admitted,
            reserved: used.map(|row| ((row.flavor.clone(), row.resource.clone()), row.total)).collect(),
        };
        if self.shares.get(queue) == Some(&share) {
            return BTreeSet::new();
        }
        let mut changed = self.drop_share(queue);
        for cohort in cohorts {
            let below = self.cohorts.entry(cohort.clone()).or_default();
            below.queues += 1;
            below.admitted += admitted;
            for (pair, amount) in &share.reserved {
                *below.reserved.entry(pair.clone()).or_default() += i128::from(*amount);
            }
        }
        changed.extend(cohorts.iter().cloned());
        self.shares.insert(queue.clone(), share);
        changed
    }

    /// A ClusterQueue is gone. Returns the cohorts whose sums are others now.
    pub(super) fn forget(&mut self, queue: &ClusterQueueName) -> BTreeSet<CohortName> {
        self.drop_share(queue)
    }

    /// Whether this ClusterQueue is known.
    pub(super) fn knows(&self, queue: &ClusterQueueName) -> bool {
        self.shares.contains_key(queue)
    }

    fn drop_share(&mut self, queue: &ClusterQueueName) -> BTreeSet<CohortName> {
        let Some(share) = self.shares.remove(queue) else { return BTreeSet::new() };
        for cohort in &share.cohorts {
            let Some(below) = self.cohorts.get_mut(cohort) else { continue };
            below.queues -= 1;
            if below.queues == 0 {
                self.cohorts.remove(cohort);
                continue;
            }
            below.admitted -= share.admitted;
            for (pair, amount) in &share.reserved {
                let sum = below.reserved.entry(pair.clone()).or_default();
                *sum -= i128::from(*amount);
            }
            below.reserved.retain(|_, sum| *sum > 0);
        }
        share.cohorts.into_iter().collect()
    }

    /// What is below a cohort; `None` where there is no ClusterQueue.
    pub(super) fn below(&self, cohort: &CohortName) -> Option<&Below> {
        self.cohorts.get(cohort)
    }

    /// The workloads of a LocalQueue count so. Returns the ClusterQueues whose sums are others now.
    pub(super) fn count(
        &mut self,
        key: &LocalQueueKey,
        now: Option<(&ClusterQueueName, &Counts)>,
    ) -> Vec<ClusterQueueName> {
        let before = self.of_local.remove(key);
        let mut changed = Vec::new();
        if let Some((queue, counts)) = &before {
            let sum = self.counts.entry(queue.clone()).or_default();
            sum.merge(counts, false);
            if sum.is_empty() {
                self.counts.remove(queue);
            }
            changed.push(queue.clone());
        }
        if let Some((queue, counts)) = now {
            self.counts.entry(queue.clone()).or_default().merge(counts, true);
            self.of_local.insert(key.clone(), (queue.clone(), counts.clone()));
            changed.push(queue.clone());
        }
        changed.dedup();
        changed
    }

    /// What the workloads of all LocalQueues of a ClusterQueue count as.
    pub(super) fn counts(&self, queue: &ClusterQueueName) -> Counts {
        self.counts.get(queue).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_queue_adds_follows_it_from_cohort_to_cohort() {
        let used = |total: i64| {
            let (flavor, resource) = ("a100".into(), ResourceName::from("nvidia.com/gpu"));
            vec![FlavorUsage { flavor, resource, total, borrowed: 0 }]
        };
        let cohorts = |names: &[&str]| -> Vec<CohortName> { names.iter().map(|&one| one.into()).collect() };
        let (a, b) = (ClusterQueueName::from("a"), ClusterQueueName::from("b"));
        let mut sums = Sums::default();
        let told = |sums: &Sums, cohort: &str| {
            sums.below(&cohort.into()).map(|below| (below.admitted, below.reserved.values().sum::<i128>()))
        };
        sums.set(&a, &cohorts(&["team", "all"]), 1, &used(4));
        let changed = sums.set(&b, &cohorts(&["all"]), 2, &used(8));
        assert_eq!(changed, cohorts(&["all"]).into_iter().collect());
        assert_eq!((told(&sums, "team"), told(&sums, "all")), (Some((1, 4)), Some((3, 12))));
        assert!(sums.set(&b, &cohorts(&["all"]), 2, &used(8)).is_empty());
        let changed = sums.set(&a, &cohorts(&["other"]), 1, &used(4));
        assert_eq!(changed, cohorts(&["all", "other", "team"]).into_iter().collect());
        assert_eq!((told(&sums, "team"), told(&sums, "all")), (None, Some((2, 8))));
        sums.set(&b, &cohorts(&["all"]), 0, &used(0));
        assert_eq!(told(&sums, "all"), Some((0, 0)));
        sums.forget(&a);
        assert_eq!(told(&sums, "other"), None);
    }

    #[test]
    fn a_cluster_queue_counts_what_its_local_queues_count() {
        let key = |name: &str| LocalQueueKey::new("team", name);
        let counts = |finished| Counts { finished, ..Counts::default() };
        let (a, b) = (ClusterQueueName::from("a"), ClusterQueueName::from("b"));
        let mut sums = Sums::default();
        assert_eq!(sums.count(&key("x"), Some((&a, &counts(2)))), std::slice::from_ref(&a));
        sums.count(&key("y"), Some((&a, &counts(3))));
        assert_eq!(sums.counts(&a), counts(5));
        assert_eq!(sums.count(&key("x"), Some((&b, &counts(1)))), [a.clone(), b.clone()]);
        assert_eq!((sums.counts(&a), sums.counts(&b)), (counts(3), counts(1)));
        sums.count(&key("y"), None);
        assert_eq!(sums.counts(&a), counts(0));
    }
}
