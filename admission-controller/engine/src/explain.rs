use std::collections::BTreeMap;
use std::sync::Arc;

use crate::engine::Engine;
use crate::input::Admission;
use crate::names::{ClusterQueueName, LocalQueueKey};
use crate::reason::PendingReason;
use crate::record::{HoldState, Phase, Record};
use crate::report::ClusterQueueReport;
use crate::uid::Uid;

/// Where the engine sees one workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkloadState {
    /// It cannot wait in any queue.
    Aside,
    /// It waits to be looked at.
    Queued,
    /// It was looked at and waits for something to change.
    Parked,
    /// It was promised room that others have still to leave.
    Claiming(Admission),
    /// It was given quota, which is not confirmed yet.
    Assumed(Admission),
    /// It has quota.
    Holding(Admission),
    /// It was told to leave, for the named workload where there is one.
    Leaving(Admission, Option<Uid>),
    /// It needs nothing any more.
    Finished,
}

/// One workload, explained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Its uid.
    pub uid: Uid,
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// Its priority.
    pub priority: i32,
    /// The LocalQueue it names.
    pub local_queue: Option<LocalQueueKey>,
    /// The ClusterQueue its LocalQueue leads to.
    pub cluster_queue: Option<ClusterQueueName>,
    /// Where the engine sees it.
    pub state: WorkloadState,
    /// Why it waits, with numbers.
    pub reason: Option<PendingReason>,
    /// How many stand before it in its queue; `None` when it does not wait in one.
    pub ahead: Option<usize>,
    /// Whether it has quota, and places on nodes are still looked for: other ones, or the first.
    pub awaits_places: bool,
}

/// One ClusterQueue, explained.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterQueueState {
    /// Its name.
    pub name: ClusterQueueName,
    /// Its cohorts from the root down, and itself.
    pub path: String,
    /// Its counts and use.
    pub report: ClusterQueueReport,
}

impl Engine {
    /// Explains one workload.
    pub fn explain(&self, uid: &Uid) -> Option<Explanation> {
        let who = self.workloads.id(uid)?;
        let record = self.workloads.get(who)?;
        let state = match &record.phase {
            Phase::Aside(_) => WorkloadState::Aside,
            Phase::Queued(_) => WorkloadState::Queued,
            Phase::Parked(_) => WorkloadState::Parked,
            Phase::Claiming(claim) => WorkloadState::Claiming((*claim.admission).clone()),
            Phase::Finished => WorkloadState::Finished,
            Phase::Holding(holding) => match &holding.state {
                HoldState::Assumed(_) => WorkloadState::Assumed((*holding.admission).clone()),
                HoldState::Confirmed => WorkloadState::Holding((*holding.admission).clone()),
                HoldState::Leaving { preemptor, .. } => {
                    let preemptor = preemptor.as_ref().map(|(uid, _)| uid.clone());
                    WorkloadState::Leaving((*holding.admission).clone(), preemptor)
                }
            },
        };
        let ahead = match &record.phase {
            Phase::Queued(name) | Phase::Parked(name) => Some(*name).map(|queue| {
                let queue = &self.queues[queue];
                let order = self.order_of(who, record);
                queue.active.before(&order, &queue.consumptions)
                    + queue.parked.before(&order, &queue.consumptions)
                    + queue.claiming.range(..order).count()
            }),
            _ => None,
        };
        Some(Explanation {
            uid: uid.clone(),
            namespace: record.workload.namespace.clone(),
            name: record.workload.name.clone(),
            priority: record.workload.base_priority,
            local_queue: record.local_queue.map(|id| self.local_queues[id].key.clone()),
            cluster_queue: self.leads_to(record),
            state,
            reason: self.reason_of(record),
            ahead,
            awaits_places: self.second_pass.contains_key(&who),
        })
    }

    /// Those who were told to leave, by whom they leave for.
    pub fn leaving(&self) -> BTreeMap<Uid, Vec<Uid>> {
        let mut leaving = BTreeMap::<Uid, Vec<Uid>>::new();
        for (_, record) in self.workloads.in_order() {
            if let Phase::Holding(holding) = &record.phase
                && let HoldState::Leaving { preemptor: Some((preemptor, _)), .. } = &holding.state
            {
                leaving.entry(preemptor.clone()).or_default().push(record.workload.uid.clone());
            }
        }
        leaving
    }

    /// Why it waits. What is parked behind its like waits for the same, and that one's numbers are the newest.
    fn reason_of(&self, record: &Record) -> Option<PendingReason> {
        if let Phase::Parked(name) = &record.phase {
            let leader = self.queues[*name].parked.hopeless(&record.shape);
            if let Some(leader) = leader.and_then(|order| self.workloads.get(order.who)) {
                return leader.said.as_deref().cloned();
            }
        }
        record.said.as_deref().cloned()
    }

    /// The reason that was last decided for its waiting.
    pub fn last_reason(&self, uid: &Uid) -> Option<&PendingReason> {
        self.workloads.named(uid)?.said.as_deref()
    }

    /// Every known workload, by uid.
    pub fn workloads(&self) -> impl Iterator<Item = &Uid> {
        self.workloads.in_order().map(|(_, record)| &record.workload.uid)
    }

    /// Every ClusterQueue, by name.
    pub fn cluster_queues(&self) -> Vec<ClusterQueueState> {
        self.queues
            .in_order()
            .into_iter()
            .filter_map(|queue| {
                Some(ClusterQueueState {
                    name: queue.name.clone(),
                    path: self.tree.path_text(queue.node),
                    report: self.cluster_queue_report(&queue.name)?,
                })
            })
            .collect()
    }
}
