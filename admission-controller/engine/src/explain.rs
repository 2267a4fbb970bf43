//! Where the engine sees workloads and queues, for people.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::engine::Engine;
use crate::input::Admission;
use crate::names::{ClusterQueueName, LocalQueueKey};
use crate::reason::PendingReason;
use crate::record::{HoldState, Phase, Record};
use crate::report::ClusterQueueReport;
use crate::uid::Uid;
use crate::workloads::WorkloadId;

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
                    + queue
                        .claiming
                        .iter()
                        .filter(|claim| queue.standing(claim) < queue.standing(&order))
                        .count()
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
            reason: self.reason_of(who, record).map(|reason| (**reason).clone()),
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

    /// Why it waits. What is parked behind its like waits for the same, and what was found for that one last is the newest; unless it
    /// may not displace whom its like may.
    pub(crate) fn reason_of<'a>(
        &'a self,
        who: WorkloadId,
        record: &'a Record,
    ) -> Option<&'a Arc<PendingReason>> {
        let of_its_like = match &record.phase {
            Phase::Parked(queue) if !self.displacements.knows(who) => {
                self.queues[*queue].parked.reason(&record.shape)
            }
            _ => None,
        };
        of_its_like.or(record.said.as_ref())
    }

    /// The reason that was last found for its waiting.
    pub fn last_reason(&self, uid: &Uid) -> Option<&PendingReason> {
        let who = self.workloads.id(uid)?;
        self.reason_of(who, self.workloads.get(who)?).map(|reason| &**reason)
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
