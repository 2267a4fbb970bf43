//! Where each workload is: taken out of every queue and ledger, and put where its last seen state says.

use std::sync::Arc;

use model::planted::Bug;

use crate::engine::Engine;
use crate::input::{ClusterQueue, KeptOut, Standing, StopPolicy, Workload};
use crate::line::Order;
use crate::reason::PendingReason;
use crate::record::{Claim, HoldState, Holding, Phase, Record};
use crate::tree::{Ledger, NodeId};
use crate::workloads::WorkloadId;

impl Engine {
    /// Takes a workload out of every queue and ledger. `next` is what comes after, which tells whether quota comes back.
    pub(crate) fn withdraw(&mut self, who: WorkloadId, next: &Standing) {
        let Some(order) = self.workloads.get(who).map(|record| self.order_of(who, record)) else { return };
        let Some(record) = self.workloads.get_mut(who) else { return };
        let phase = std::mem::replace(&mut record.phase, Phase::Aside(None));
        record.local_queue.into_iter().for_each(|id| self.local_queues.touch(id));
        match phase {
            Phase::Aside(None) | Phase::Finished => {}
            Phase::Aside(Some(queue)) => {
                self.queues[queue].aside.remove(&who);
                self.queues.touch(queue);
            }
            Phase::Queued(queue) | Phase::Parked(queue) => self.leave_queue(queue, &order),
            Phase::Claiming(claim) => self.withdraw_claim(&claim, &order),
            Phase::Holding(holding) => self.withdraw_holding(who, *holding, next),
        }
    }

    pub(crate) fn leave_queue(&mut self, id: NodeId, order: &Order) {
        let Some(shape) = self.workloads.get(order.who).map(|record| record.shape.clone()) else { return };
        let queue = &mut self.queues[id];
        let blocked = queue.blocked.as_ref() == Some(order);
        queue.remove(&shape, order);
        self.second_looks.remove(order);
        // Where this one fitted, or is gone, the next of its like may fit.
        for next in self.queues[id].activate_next(&shape) {
            self.set_phase(next, Phase::Queued(id));
        }
        self.queues.touch(id);
        // What stood behind it in a StrictFIFO queue has a turn now.
        self.ready.insert(id);
        if blocked {
            self.wake_who_passed_over(id);
        }
    }

    pub(crate) fn withdraw_claim(&mut self, claim: &Claim, order: &Order) {
        self.charge(claim.queue, &claim.usage, &claim.places, Ledger::Planned, -1);
        self.claims.remove(order);
        self.leave_queue(claim.queue, order);
        self.reactivate_tree(claim.queue);
        self.places_freed(&claim.places);
        self.displacements.forget(order.who);
    }

    pub(crate) fn withdraw_holding(&mut self, who: WorkloadId, holding: Holding, next: &Standing) {
        let queue = holding.queue;
        self.queues[queue].generation += 1;
        self.not_ready.remove(&who);
        self.queues.touch(queue);
        self.let_go(who, &holding);
        self.wake_who_awaited(who);
        let stays = matches!(next, Standing::Reserved { evicted: false, .. });
        let makes_way = self.workloads.get(who).is_some_and(|record| record.past.makes_way)
            && !stays
            && !matches!(next, Standing::Finished);
        match holding.state {
            HoldState::Leaving { decision, preemptor, .. } => {
                if let Some(id) = decision {
                    self.in_flight.remove(&id);
                }
                // It does not leave after all, so the promise made of its room is void.
                let preemptor = preemptor.and_then(|(uid, _)| self.workloads.id(&uid));
                if let (true, Some(preemptor)) = (stays, preemptor) {
                    self.drop_claim(preemptor);
                    self.displacements.forget(preemptor);
                }
                // Nor does a slice that was to come in its place need all of what it was promised.
                self.released |= stays;
                self.doubts_promises |= stays;
            }
            HoldState::Assumed(decision) => {
                self.in_flight.remove(&decision);
                if !matches!(next, Standing::Reserved { .. }) {
                    self.lift_penalty(who);
                }
            }
            HoldState::Confirmed => {}
        }
        let same = matches!(next, Standing::Reserved { admission, .. } if *admission == holding.admission);
        if !same {
            self.released = true;
            self.reactivate_tree(queue);
            self.places_freed(&holding.places);
            if !makes_way {
                self.displacements.forget_tree(self.tree.root(queue), who);
            }
        }
    }

    /// Takes what it holds out of the books.
    pub(crate) fn let_go(&mut self, who: WorkloadId, holding: &Holding) {
        let node = holding.queue;
        let queue = &mut self.queues[node];
        queue.holding.remove(&who);
        queue.leaving -= usize::from(holding.is_leaving());
        self.second_pass.remove(&who);
        if holding.is_admitted() {
            self.note_use(who, holding, -1);
        }
        self.uncharge(holding);
        if self.planted.is(Bug::ReleaseTwice) {
            self.charge(node, &holding.usage, &holding.places, Ledger::Held, -1);
            self.charge(node, &holding.usage, &holding.places, Ledger::Planned, -1);
        }
        self.charge_slices(who);
    }

    /// Takes quota and places out of both books.
    pub(crate) fn uncharge(&mut self, holding: &Holding) {
        self.charge(holding.queue, &holding.usage, &holding.places, Ledger::Held, -1);
        if let Some(vacating) = &holding.vacating {
            self.grounds.charge(vacating, Ledger::Held, -1);
        }
        if !holding.is_leaving() {
            let planned = holding.promised.as_ref().unwrap_or(&holding.places);
            self.charge(holding.queue, &holding.usage, planned, Ledger::Planned, -1);
        }
    }

    pub(crate) fn drop_claim(&mut self, who: WorkloadId) {
        if self.workloads.get(who).is_some_and(|record| matches!(record.phase, Phase::Claiming(_))) {
            self.replace(who);
        }
    }

    /// Out of everything and back to where its last seen state puts it.
    pub(crate) fn replace(&mut self, who: WorkloadId) {
        let Some(record) = self.workloads.get(who) else { return };
        let standing = record.workload.standing.clone();
        self.withdraw(who, &standing);
        self.place(who);
    }

    pub(crate) fn replace_if_waiting(&mut self, who: WorkloadId) {
        let waits = self.workloads.get(who).is_some_and(|record| {
            matches!(record.phase, Phase::Aside(_) | Phase::Queued(_) | Phase::Parked(_) | Phase::Claiming(_))
        });
        if waits {
            self.replace(who);
        }
    }

    /// Puts a workload that is nowhere to where its last seen state puts it.
    pub(crate) fn place(&mut self, who: WorkloadId) {
        let Some(record) = self.workloads.get(who) else { return };
        record.local_queue.into_iter().for_each(|id| self.local_queues.touch(id));
        if !record.may_be_admitted() {
            self.lift_penalty(who);
        }
        self.set_alarm(who);
        let Some(record) = self.workloads.get(who) else { return };
        match record.workload.standing.clone() {
            Standing::Finished if self.planted.is(Bug::ReadmitFinished) => {
                if let Ok(queue) = self.where_to_wait(record) {
                    self.enqueue(who, queue);
                }
            }
            Standing::Finished => self.set_phase(who, Phase::Finished),
            Standing::OnHold => self.put_apart(who, None),
            Standing::Reserved { admission, admitted, evicted, since_ms } => {
                let state = if evicted {
                    HoldState::Leaving { decision: None, preemptor: None, withdrawn: false }
                } else {
                    HoldState::Confirmed
                };
                let queue = self.queue_named(&admission.cluster_queue);
                let usage = Arc::new(self.usage_of(&admission));
                let places = self.places_of(who, &admission);
                let (promised, vacating) = (None, None);
                self.hold(
                    who,
                    Holding {
                        queue,
                        admission,
                        usage,
                        places,
                        promised,
                        vacating,
                        admitted,
                        since_ms,
                        state,
                    },
                );
                self.note_second_pass(who);
                self.drain(who);
            }
            Standing::Pending => match self.where_to_wait(record) {
                Ok(queue) => self.enqueue(who, queue),
                Err(reason) => {
                    let would_wait = match &reason {
                        _ if !record.workload.wants_quota() => None,
                        PendingReason::ClusterQueueInactive(name, _)
                        | PendingReason::NamespaceMismatch(name) => Some(name.clone()),
                        PendingReason::Defect(_)
                        | PendingReason::ChecksFailed
                        | PendingReason::KeptOut(KeptOut::NotRequeued(_))
                        | PendingReason::PutOff { .. } => self.leads_to(record),
                        _ => None,
                    };
                    let would_wait = would_wait.map(|name| self.queue_named(&name));
                    self.put_apart(who, would_wait);
                    self.say(who, reason);
                }
            },
        }
    }

    pub(crate) fn enqueue(&mut self, who: WorkloadId, id: NodeId) {
        let Some(record) = self.workloads.get(who) else { return };
        let refused = record.past.refused.as_ref().filter(|one| one.stands(self.alarms.now_ms()));
        if let Some(words) = refused.map(|one| one.words.to_string()) {
            self.put_apart(who, Some(id));
            self.say(who, PendingReason::AdmissionRefused(words));
            return;
        }
        let order = self.order_of(who, record);
        self.set_phase(who, Phase::Queued(id));
        let queue = &mut self.queues[id];
        queue.active.insert(order);
        if queue.is_strict() {
            self.unsaid.push(who);
        }
        self.queues.touch(id);
        self.ready.insert(id);
    }

    fn put_apart(&mut self, who: WorkloadId, would_wait: Option<NodeId>) {
        if let Some(queue) = would_wait {
            self.queues[queue].aside.insert(who);
            self.queues.touch(queue);
        }
        self.set_phase(who, Phase::Aside(would_wait));
    }

    pub(crate) fn hold(&mut self, who: WorkloadId, holding: Holding) {
        let node = holding.queue;
        let queue = &mut self.queues[node];
        queue.holding.insert(who);
        queue.leaving += usize::from(holding.is_leaving());
        self.charge(node, &holding.usage, &holding.places, Ledger::Held, 1);
        if let Some(vacating) = &holding.vacating {
            self.grounds.charge(vacating, Ledger::Held, 1);
        }
        if !holding.is_leaving() {
            self.charge(node, &holding.usage, &holding.places, Ledger::Planned, 1);
            self.stirred.insert(self.tree.root(node));
        }
        self.queues.touch(node);
        if let Some(record) = self.workloads.get_mut(who) {
            // Nobody waits for the pods of one that is deactivated, though it holds its quota until they are gone.
            let awaits_pods = record.workload.active && !record.workload.pods_ready;
            if self.settings.block_admission && awaits_pods {
                self.not_ready.insert(who);
            }
            record.said = None;
            if record.past.makes_way && !holding.is_leaving() {
                record.past.makes_way = false;
            }
            record.phase = Phase::Holding(Box::new(holding));
            record.local_queue.into_iter().for_each(|id| self.local_queues.touch(id));
        }
        self.charge_slices(who);
        self.begin_use(who);
    }

    /// From when its admission is complete, what it holds counts as used.
    pub(crate) fn begin_use(&mut self, who: WorkloadId) {
        if self.takes_turns_by_use()
            && let Some(holding) = self.holding(who).filter(|holding| holding.is_admitted()).cloned()
        {
            self.note_use(who, &holding, 1);
            self.settle_penalty(who);
        }
        self.finish_replaced(who);
    }

    /// The queue in which a workload may wait, or why in none.
    pub(crate) fn where_to_wait(&self, record: &Record) -> Result<NodeId, PendingReason> {
        let workload = &record.workload;
        if !workload.active {
            return Err(PendingReason::Deactivated);
        }
        let named = &self.local_queues[record.local_queue.ok_or(PendingReason::NoQueueName)?];
        let Some(local_queue) = named.object.as_ref().filter(|queue| !queue.terminating) else {
            return Err(PendingReason::LocalQueueMissing(named.key.clone()));
        };
        if local_queue.stop != StopPolicy::None {
            return Err(PendingReason::LocalQueueStopped(named.key.clone()));
        }
        let name = local_queue.cluster_queue.clone();
        let Some((queue, spec)) =
            self.known_queue(&name).and_then(|queue| queue.spec.as_ref().map(|spec| (queue, spec)))
        else {
            return Err(PendingReason::ClusterQueueMissing(name));
        };
        if let Some(inactive) = &queue.inactive {
            return Err(PendingReason::ClusterQueueInactive(name, inactive.clone()));
        }
        let put_off = self.put_off_until(workload);
        match &workload.seldom.defect {
            _ if workload.checks_failed => Err(PendingReason::ChecksFailed),
            _ if put_off.is_some() => Err(PendingReason::PutOff { until_ms: put_off.unwrap_or_default() }),
            _ if !self.serves(spec, &workload.namespace) => Err(PendingReason::NamespaceMismatch(name)),
            Some(defect) => Err(PendingReason::Defect(defect.clone())),
            None => match (&workload.seldom.gated_by, &workload.seldom.kept_out) {
                (Some(by), _) => Err(PendingReason::AdmissionGated(Arc::clone(by))),
                (None, Some(why)) => Err(PendingReason::KeptOut(why.clone())),
                (None, None) => Ok(queue.node),
            },
        }
    }

    /// Until when a workload is put off, if it is.
    pub(crate) fn put_off_until(&self, workload: &Workload) -> Option<i64> {
        workload.seldom.not_before_ms.filter(|until_ms| *until_ms > self.alarms.now_ms())
    }

    /// Whether a queue is for workloads of this namespace.
    pub(crate) fn serves(&self, queue: &ClusterQueue, namespace: &str) -> bool {
        match (&queue.namespace_selector, self.namespaces.get(namespace)) {
            (Some(selector), Some(labels)) => selector.matches(labels),
            _ => false,
        }
    }
}
