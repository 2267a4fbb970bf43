//! What the statuses of queues say, worked out from the books.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::planted::Bug;
use model::{ResourceList, ResourceName};

use crate::engine::Engine;
use crate::fair::{FairShare, Sharer};
use crate::history::History;
use crate::input::{ClusterQueue, KeptOut, Quota, StopPolicy};
use crate::line::{Order, Shape};
use crate::names::{ClusterQueueName, CohortName, FlavorName, LocalQueueKey};
use crate::queue::Queue;
use crate::reason::{Inactive, PendingReason};
use crate::record::{Holding, Phase, Record};
use crate::tree::{FlavorResource, NodeId, NodeName};
use crate::uid::Uid;
use crate::workloads::WorkloadId;

/// Use of one resource of one flavor, in base units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlavorUsage {
    /// The flavor.
    pub flavor: FlavorName,
    /// The resource.
    pub resource: ResourceName,
    /// How much is used.
    pub total: i64,
    /// How much of it is beyond the queue's nominal quota. Always 0 for a LocalQueue, which has none.
    pub borrowed: i64,
}

/// What a ClusterQueue's status says.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterQueueReport {
    /// The cohort it is in.
    pub cohort: Option<CohortName>,
    /// How much it borrows, where sharing is fair.
    pub fair_share: Option<FairShare>,
    /// Why it admits nothing, if so.
    pub inactive: Option<Inactive>,
    /// Workloads that wait.
    pub pending: usize,
    /// Those of them that were looked at and need a change before they are looked at again.
    pub inadmissible: usize,
    /// Workloads with quota.
    pub reserving: usize,
    /// Workloads that are admitted.
    pub admitted: usize,
    /// Use by workloads with quota: `flavorsReservation`.
    pub reservation: Vec<FlavorUsage>,
    /// Use by admitted workloads: `flavorsUsage`.
    pub usage: Vec<FlavorUsage>,
    /// Its quotas, in the order of its spec.
    pub quotas: Vec<(FlavorName, ResourceName, Quota)>,
}

/// What a LocalQueue's status says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalQueueReport {
    /// The ClusterQueue it leads to.
    pub cluster_queue: ClusterQueueName,
    /// Whether its own `stopPolicy` stops it.
    pub stopped: bool,
    /// Whether that ClusterQueue exists.
    pub cluster_queue_exists: bool,
    /// Whether that ClusterQueue admits workloads.
    pub cluster_queue_active: bool,
    /// Workloads that wait.
    pub pending: usize,
    /// Those of them that were looked at and need a change before they are looked at again.
    pub inadmissible: usize,
    /// Workloads with quota.
    pub reserving: usize,
    /// Workloads that are admitted.
    pub admitted: usize,
    /// Use by workloads with quota, in the rows of the ClusterQueue; none where that does not exist.
    pub reservation: Vec<FlavorUsage>,
    /// Use by admitted workloads, likewise.
    pub usage: Vec<FlavorUsage>,
    /// What it has used so far, where an account is kept of that.
    pub history: Option<History>,
}

/// Where a cohort is, and what it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CohortReport {
    /// The cohort it is in.
    pub parent: Option<CohortName>,
    /// The uppermost one: itself where it is in none.
    pub root: CohortName,
    /// Its own quota and what is lent to it from below.
    pub quota: Vec<(FlavorName, ResourceName, i128)>,
}

type Sums = BTreeMap<FlavorResource, i64>;

impl Engine {
    /// ClusterQueues and LocalQueues whose reports may have changed since the last call, sorted.
    pub fn take_touched(&mut self) -> (Vec<ClusterQueueName>, Vec<LocalQueueKey>) {
        (self.queues.take_touched(), self.local_queues.take_touched())
    }

    /// All cohorts that there are or were, or that were named, where the tree has changed since the last call: each may have
    /// another parent, another root, or other quota below it, or be gone.
    pub fn take_changed_cohorts(&mut self) -> Vec<CohortName> {
        if !std::mem::take(&mut self.tree_changed) {
            return Vec::new();
        }
        self.tree.cohorts().cloned().collect()
    }

    /// The cohorts above a cohort, itself first, where they form a cycle: until one comes for the second time.
    pub fn endless_way(&self, cohort: &CohortName) -> Option<Vec<&str>> {
        self.tree.endless_way(cohort)
    }

    /// The report of a ClusterQueue; `None` when the object does not exist.
    pub fn cluster_queue_report(&self, name: &ClusterQueueName) -> Option<ClusterQueueReport> {
        let queue = self.known_queue(name)?;
        let spec = queue.spec.as_ref()?;
        let holdings: Vec<&Holding> = queue.holding.iter().filter_map(|who| self.holding(*who)).collect();
        let (reservation, usage, admitted) = sums(&holdings);
        let least = if self.planted.is(Bug::BorrowBelowNothing) { i64::MIN } else { 0 };
        let borrowed = |quota: &Quota, total: i64| match spec.cohort {
            Some(_) => (total - quota.nominal).max(least),
            None => 0,
        };
        Some(ClusterQueueReport {
            cohort: spec.cohort.clone(),
            fair_share: self.share_told(queue.node, Sharer::ClusterQueue(name.clone())),
            inactive: queue.inactive.clone(),
            pending: queue.pending(),
            inadmissible: queue.inadmissible(),
            reserving: holdings.len(),
            admitted,
            reservation: self.rows(spec, &reservation, borrowed),
            usage: self.rows(spec, &usage, borrowed),
            quotas: quotas(spec),
        })
    }

    /// The report of a LocalQueue; `None` when the object does not exist.
    pub fn local_queue_report(&self, key: &LocalQueueKey) -> Option<LocalQueueReport> {
        let record = &self.local_queues[self.local_queues.id(key)?];
        let local_queue = record.object.as_ref()?;
        let queue = self.known_queue(&local_queue.cluster_queue).filter(|queue| queue.spec.is_some());
        // Where there is no ClusterQueue there is no quota to be used, and nobody who has any.
        let members = record.members.iter().filter(|_| queue.is_some());
        let holdings: Vec<&Holding> = members.filter_map(|who| self.holding(*who)).collect();
        let stopped = local_queue.stop != StopPolicy::None;
        // Nobody waits in a queue that is stopped.
        let waits = |record: &Record| match record.phase {
            Phase::Aside(_) => record.workload.wants_quota(),
            Phase::Queued(_) | Phase::Parked(_) | Phase::Claiming(_) => true,
            Phase::Holding(_) | Phase::Finished => false,
        };
        let (mut pending, mut inadmissible) = (0, 0);
        for record in record.members.iter().filter_map(|who| self.workloads.get(*who)).filter(|_| !stopped) {
            pending += usize::from(waits(record));
            inadmissible += usize::from(waits(record) && record.phase.is_put_back());
        }
        let (reservation, usage, admitted) = sums(&holdings);
        let spec = queue.and_then(|queue| queue.spec.as_deref());
        let shown = |sums: &Sums| spec.map_or_else(Vec::new, |spec| self.rows(spec, sums, |_, _| 0));
        Some(LocalQueueReport {
            cluster_queue: local_queue.cluster_queue.clone(),
            stopped,
            cluster_queue_exists: queue.is_some(),
            cluster_queue_active: queue.is_some_and(|queue| queue.inactive.is_none()),
            pending,
            inadmissible,
            reserving: holdings.len(),
            admitted,
            reservation: shown(&reservation),
            usage: shown(&usage),
            history: self.history(key),
        })
    }

    /// One row for each flavor and resource in the order of a ClusterQueue's spec, be anything used of it or not. What is used
    /// of any other is not shown. Rules: Kueue `pkg/cache/scheduler/cache.go` (`getUsage`, `filterLocalQueueUsage`).
    fn rows(
        &self,
        spec: &ClusterQueue,
        sums: &Sums,
        borrowed: impl Fn(&Quota, i64) -> i64,
    ) -> Vec<FlavorUsage> {
        let row = |(flavor, resource, quota): (FlavorName, ResourceName, Quota)| {
            let total = self.known_pair(&flavor, &resource).and_then(|pair| sums.get(&pair)).copied();
            let total = total.unwrap_or(0);
            FlavorUsage { flavor, resource, total, borrowed: borrowed(&quota, total) }
        };
        let mut rows: Vec<FlavorUsage> = quotas(spec).into_iter().map(row).collect();
        rows.dedup();
        rows
    }

    /// The report of a cohort, be it that ClusterQueues or cohorts only name it; `None` when there is none, or it is part of a
    /// cycle.
    pub fn cohort_report(&self, name: &CohortName) -> Option<CohortReport> {
        let id = self.tree.known_node(&NodeName::Cohort(name.clone()))?;
        let exists = self.cohorts.contains_key(name) || !self.tree.children(id).is_empty();
        if !exists || self.tree.in_cycle(id) {
            return None;
        }
        let named = |id: NodeId| match self.tree.name(id) {
            NodeName::Cohort(name) => name.clone(),
            NodeName::ClusterQueue(name) => CohortName::from(name.as_str()),
        };
        let quota = self.tree.quota_of(id).map(|(pair, quota)| {
            let (flavor, resource) = self.tree.pair_name(pair).clone();
            (flavor, resource, quota)
        });
        Some(CohortReport {
            parent: self.tree.parent(id).map(named),
            root: named(self.tree.root(id)),
            quota: quota.collect(),
        })
    }

    /// Of how many kinds are those who are looked at in a ClusterQueue, and those who need a change before. Who asks for the same
    /// is of one kind. Looks at all of them.
    pub fn pending_shapes(&self, name: &ClusterQueueName) -> (usize, usize) {
        let Some(queue) = self.known_queue(name) else { return (0, 0) };
        let shape = |who: WorkloadId| self.workloads.get(who).map(|record| &record.shape);
        let looked_at = queue.active.iter().chain(&queue.claiming).filter_map(|order| shape(order.who));
        let looked_at: BTreeSet<&Shape> = looked_at.collect();
        let others = queue.parked.shapes().chain(queue.aside.iter().copied().filter_map(shape));
        (looked_at.len(), others.collect::<BTreeSet<&Shape>>().len())
    }

    /// What all who wait in a ClusterQueue ask for. Looks at all of them.
    pub fn pending_requests(&self, name: &ClusterQueueName) -> ResourceList {
        let mut asked = ResourceList::new();
        let Some(queue) = self.known_queue(name) else { return asked };
        let orders = queue.active.iter().chain(&queue.claiming).chain(queue.parked.orders());
        for who in orders.map(|order| order.who).chain(queue.aside.iter().copied()) {
            let pod_sets = self.workloads.get(who).map(|record| &*record.workload.pod_sets);
            for (resource, amount) in pod_sets.into_iter().flatten().flat_map(|set| set.total()) {
                let sum = asked.entry(resource).or_default();
                *sum = sum.saturating_add(amount);
            }
        }
        asked
    }

    pub(crate) fn holding(&self, who: WorkloadId) -> Option<&Holding> {
        match &self.workloads.get(who)?.phase {
            Phase::Holding(holding) => Some(holding),
            _ => None,
        }
    }

    fn known_pair(&self, flavor: &FlavorName, resource: &ResourceName) -> Option<FlavorResource> {
        self.tree.known_pair(flavor, resource)
    }

    /// What the pods of each pod set ask for together.
    pub fn requests_of(&self, uid: &Uid) -> Vec<(Arc<str>, ResourceList)> {
        let pod_sets = self.workloads.named(uid).map(|record| &*record.workload.pod_sets);
        pod_sets.into_iter().flatten().map(|one| (one.name.clone(), one.total())).collect()
    }

    /// Who waits in a ClusterQueue, as Kueue tells them apart (`pkg/cache/queue/cluster_queue.go`): those who are in its heap, in
    /// order, and those who need a change before they are.
    pub fn waiting_in(&self, name: &ClusterQueueName) -> (Vec<Uid>, Vec<Uid>) {
        let Some(queue) = self.known_queue(name) else { return Default::default() };
        let in_turn = queue.active.in_turn(&queue.consumptions).into_iter();
        let (like, active): (Vec<&Order>, Vec<&Order>) =
            in_turn.partition(|order| self.goes_with_its_like(queue, order));
        let aside = self.workloads.sorted(queue.aside.iter().copied()).into_iter().map(|(_, record)| record);
        let (left, aside): (Vec<&Record>, Vec<&Record>) =
            aside.partition(|record| self.stays_in_line(queue, record));
        let waits = |order: &Order| self.workloads.get(order.who);
        let active = queue.claiming.iter().chain(active).filter_map(waits).chain(left);
        let others = like.into_iter().chain(queue.parked.orders()).filter_map(waits).chain(aside);
        let uid = |record: &Record| record.workload.uid.clone();
        (active.map(uid).collect(), others.map(uid).collect())
    }

    /// Whether it is put back with one that asks for the same, and found nothing. A gate that is closed is no such thing.
    fn goes_with_its_like(&self, queue: &Queue, order: &Order) -> bool {
        let Some(shape) = self.workloads.get(order.who).map(|record| &record.shape) else { return false };
        let Some(leader) = queue.parked.hopeless(shape) else { return false };
        let found_nothing =
            matches!(queue.parked.reason(shape).map(|reason| &**reason), Some(PendingReason::NoFit(_)));
        self.settings.equivalence_hashing && found_nothing && order.is_judged_by(leader)
    }

    /// Whether it is in the heap though it cannot be admitted as things are: of a queue that does not run nobody is looked at, and
    /// a StrictFIFO queue puts nobody back for a mistake of its own, though here, unlike in Kueue, it does not stand in others' way.
    fn stays_in_line(&self, queue: &Queue, record: &Record) -> bool {
        let workload = &record.workload;
        match record.said.as_deref() {
            Some(PendingReason::ClusterQueueInactive(..)) => {
                let kept_out = matches!(workload.seldom.kept_out, Some(KeptOut::NotRequeued(_)));
                !kept_out && self.put_off_until(workload).is_none()
            }
            Some(PendingReason::Defect(_) | PendingReason::ChecksFailed) => queue.is_strict(),
            _ => false,
        }
    }

    /// The ClusterQueue that a workload's LocalQueue leads to.
    pub fn cluster_queue_of(&self, uid: &Uid) -> Option<ClusterQueueName> {
        self.leads_to(self.workloads.named(uid)?)
    }

    pub(crate) fn leads_to(&self, record: &Record) -> Option<ClusterQueueName> {
        Some(self.local_queues[record.local_queue?].object.as_ref()?.cluster_queue.clone())
    }
}

fn quotas(spec: &ClusterQueue) -> Vec<(FlavorName, ResourceName, Quota)> {
    let flavors = spec.groups.iter().flat_map(|group| &group.flavors);
    let each = flavors.flat_map(|one| {
        one.resources.iter().map(|(resource, quota)| (one.flavor.clone(), resource.clone(), *quota))
    });
    each.collect()
}

fn sums(holdings: &[&Holding]) -> (Sums, Sums, usize) {
    let (mut reservation, mut usage, mut admitted) = (Sums::new(), Sums::new(), 0);
    for holding in holdings {
        admitted += usize::from(holding.admitted);
        for (pair, amount) in holding.usage.iter() {
            let sum = reservation.entry(*pair).or_insert(0);
            *sum = sum.saturating_add(*amount);
            if holding.admitted {
                let sum = usage.entry(*pair).or_insert(0);
                *sum = sum.saturating_add(*amount);
            }
        }
    }
    (reservation, usage, admitted)
}
