//! What happens at a time of its own: a workload that was put off is looked at again, one that has had its time leaves.
//! The times are data; [`Engine::decide`] is told what time it is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::planted::Bug;

use crate::decision::EvictReason;
use crate::engine::Engine;
use crate::input::{Standing, StopPolicy};
use crate::queue::Queue;
use crate::reason::{Inactive, PendingReason};
use crate::record::{HoldState, Phase, Record};
use crate::tree::NodeId;
use crate::workloads::WorkloadId;

/// At most one time for each workload, in milliseconds since the epoch.
#[derive(Debug, Default)]
pub(crate) struct Alarms {
    by_time: BTreeSet<(i64, WorkloadId)>,
    by_workload: BTreeMap<WorkloadId, i64>,
    /// The time that was told last.
    now_ms: i64,
    /// Whether that was before the one that was told before.
    went_back: bool,
}

impl Alarms {
    pub(crate) fn now_ms(&self) -> i64 {
        self.now_ms
    }

    pub(crate) fn set(&mut self, who: WorkloadId, at_ms: Option<i64>) {
        if let Some(before) = self.by_workload.remove(&who) {
            self.by_time.remove(&(before, who));
        }
        if let Some(at_ms) = at_ms {
            self.by_workload.insert(who, at_ms);
            self.by_time.insert((at_ms, who));
        }
    }

    /// Tells whether it went back.
    fn tell(&mut self, now_ms: i64) -> bool {
        let goes_back = now_ms < self.now_ms;
        self.went_back |= goes_back;
        self.now_ms = now_ms;
        goes_back
    }

    /// Whose time has come. When a clock was set back, what was refused by its earlier time would wait for longer: everybody is looked at.
    fn ring(&mut self) -> Vec<WorkloadId> {
        let all = std::mem::take(&mut self.went_back);
        let mut due = Vec::new();
        while let Some((_, who)) =
            self.by_time.first().filter(|(at_ms, _)| all || *at_ms <= self.now_ms).cloned()
        {
            self.set(who, None);
            due.push(who);
        }
        due
    }
}

impl Engine {
    /// Tells what time it is, in milliseconds since the epoch, before events are told or something is decided. It may go back: what the
    /// events say of times goes by the same clock.
    pub fn tell_time(&mut self, now_ms: i64) {
        if self.alarms.tell(now_ms) {
            self.date_back_accounts();
        }
    }

    /// When there is something to be done though nothing happens, in milliseconds since the epoch: [`Engine::decide`] is to
    /// be called then.
    pub fn next_alarm_ms(&self) -> Option<i64> {
        self.alarms.by_time.first().map(|(at_ms, _)| *at_ms)
    }

    /// Does what has become due.
    pub(crate) fn ring(&mut self) {
        for who in self.alarms.ring() {
            if self.workloads.get(who).is_some_and(|record| matches!(record.phase, Phase::Aside(_))) {
                self.replace(who);
            }
            self.try_again(who);
            self.drain(who);
        }
        if self.waits_for_pods && self.not_ready.is_empty() {
            self.waits_for_pods = false;
            self.released = true;
            for queue in self.queues.iter().map(|queue| queue.node).collect::<Vec<_>>() {
                self.reactivate(queue);
            }
        }
    }

    /// Whether nobody may be admitted now, since pods of those who were are not ready.
    pub(crate) fn pods_are_awaited(&self) -> bool {
        !self.not_ready.is_empty()
    }

    /// What the API server refused of one with quota may be another thing by now: its places, or that it leaves for others.
    fn try_again(&mut self, who: WorkloadId) {
        let Some(record) = self.workloads.get(who) else { return };
        let Phase::Holding(holding) = &record.phase else { return };
        let queue = holding.queue;
        if record.past.eviction_refused.is_some() && !self.may_not_be_evicted(record) {
            self.reactivate_tree(queue);
            // Who seeks places may displace it again, too.
            self.released = true;
        }
        self.note_second_pass(who);
        self.set_alarm(who);
    }

    /// Whether the API server has refused to evict it, and is not to be asked again yet.
    pub(crate) fn may_not_be_evicted(&self, record: &Record) -> bool {
        let refused = record.past.eviction_refused.as_ref();
        refused.is_some_and(|one| one.stands(self.alarms.now_ms()))
    }

    /// Sets the time at which a workload is looked at by itself.
    pub(crate) fn set_alarm(&mut self, who: WorkloadId) {
        let Some(record) = self.workloads.get(who) else { return };
        let (workload, now_ms) = (&record.workload, self.alarms.now_ms());
        let at_ms = match workload.standing {
            Standing::Pending => workload.seldom.not_before_ms,
            Standing::Reserved { evicted: false, .. } => workload.seldom.leave.map(|leave| leave.at_ms),
            Standing::Reserved { .. } | Standing::OnHold | Standing::Finished => None,
        };
        let times = [at_ms.filter(|at_ms| *at_ms > now_ms), record.past.next_try_ms(now_ms)];
        self.alarms.set(who, times.into_iter().flatten().min());
    }

    /// Why a workload that has quota and is not admitted yet may not keep it: its queues are stopped, or there no more, which those are
    /// that are being deleted (Kueue's `reconcileOnLocalQueueActiveState` and `reconcileOnClusterQueueActiveState`).
    fn why_withdrawn(&self, record: &Record, queue: NodeId) -> Option<PendingReason> {
        if let Some(by) = &record.workload.seldom.gated_by {
            return Some(PendingReason::AdmissionGated(Arc::clone(by)));
        }
        if let Some(local_queue) = record.local_queue.map(|id| &self.local_queues[id]) {
            let key = || local_queue.key.clone();
            match local_queue.object.as_ref().filter(|queue| !queue.terminating) {
                None => return Some(PendingReason::LocalQueueMissing(key())),
                Some(queue) if queue.stop != StopPolicy::None => {
                    return Some(PendingReason::LocalQueueStopped(key()));
                }
                Some(_) => {}
            }
        }
        let Queue { name, spec, .. } = &self.queues[queue];
        match spec.as_ref().filter(|spec| !spec.terminating) {
            None => Some(PendingReason::ClusterQueueMissing(name.clone())),
            Some(spec) if spec.stop != StopPolicy::None => {
                Some(PendingReason::ClusterQueueInactive(name.clone(), Inactive::Stopped))
            }
            Some(_) => None,
        }
    }

    /// Evicts a workload that was deactivated, whose time has come, or whose queue is drained.
    pub(crate) fn drain(&mut self, who: WorkloadId) {
        let Some(record) = self.workloads.get(who) else { return };
        let Phase::Holding(holding) = &record.phase else { return };
        if holding.state != HoldState::Confirmed || self.may_not_be_evicted(record) {
            return;
        }
        let drains =
            |stop: StopPolicy| stop == StopPolicy::HoldAndDrain && !self.planted.is(Bug::ForgetToDrain);
        let queue = self.queues[holding.queue].spec.as_ref();
        let local_queue = record.local_queue.and_then(|id| self.local_queues[id].object.as_ref());
        let due = record.workload.seldom.leave.filter(|leave| leave.at_ms <= self.alarms.now_ms());
        let active = record.workload.active || self.planted.is(Bug::KeepDeactivated);
        if active
            && !holding.admitted
            && let Some(reason) = self.why_withdrawn(record, holding.queue)
        {
            return self.withdraw_reservation(who, reason);
        }
        let reason = if !active {
            EvictReason::Deactivated
        } else if due.is_some_and(|leave| leave.reason == EvictReason::AdmissionCheck) {
            EvictReason::AdmissionCheck
        } else if local_queue.is_some_and(|queue| drains(queue.stop)) {
            EvictReason::LocalQueueStopped
        } else if queue.is_some_and(|spec| drains(spec.stop)) {
            EvictReason::ClusterQueueStopped
        } else if let Some(leave) = due {
            leave.reason
        } else {
            return;
        };
        self.evict(who, reason, None);
    }
}
