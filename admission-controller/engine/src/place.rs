//! Where each workload is: taken out of every queue and ledger, and put where its last seen state says.

use std::sync::Arc;

use model::planted::Bug;

use crate::engine::{Engine, local_queue_of};
use crate::input::{KeptOut, Standing, StopPolicy, Workload};
use crate::names::{ClusterQueueName, Uid};
use crate::queue::{Claim, HoldState, Holding, Order, Phase};
use crate::reason::PendingReason;
use crate::tree::Ledger;

impl Engine {
    /// Takes a workload out of every queue and ledger. `next` is what comes after, which tells whether quota comes back.
    pub(crate) fn withdraw(&mut self, uid: &Uid, next: &Standing) {
        let Some(order) = self.workloads.get(uid).map(|record| self.order_of(&record.workload)) else {
            return;
        };
        let Some(record) = self.workloads.get_mut(uid) else { return };
        let phase = std::mem::replace(&mut record.phase, Phase::Aside(None));
        if let Some(key) = local_queue_of(&record.workload) {
            if let Some(members) = self.by_local_queue.get_mut(&key) {
                members.remove(uid);
                if members.is_empty() {
                    self.by_local_queue.remove(&key);
                }
            }
            self.touched_local_queues.insert(key);
        }
        match phase {
            Phase::Aside(None) | Phase::Finished => {}
            Phase::Aside(Some(name)) => {
                self.queue(&name).aside.remove(uid);
                self.touched_queues.insert(name);
            }
            Phase::Queued(name) | Phase::Parked(name) => self.leave_queue(&name, &order),
            Phase::Claiming(claim) => self.withdraw_claim(&claim, &order),
            Phase::Holding(holding) => self.withdraw_holding(uid, holding, next),
        }
    }

    pub(crate) fn leave_queue(&mut self, name: &ClusterQueueName, order: &Order) {
        let Some(shape) = self.workloads.get(&order.uid).map(|record| record.shape.clone()) else { return };
        let queue = self.queue(name);
        let blocked = queue.blocked.as_ref() == Some(order);
        queue.remove(&shape, order);
        // Where this one fitted, or is gone, the next of its like may fit.
        for next in queue.activate_next(&shape) {
            self.set_phase(&next, Phase::Queued(name.clone()));
        }
        self.touched_queues.note(name);
        // What stood behind it in a StrictFIFO queue has a turn now.
        self.make_ready(name);
        if blocked {
            self.wake_who_passed_over(name);
        }
    }

    pub(crate) fn withdraw_claim(&mut self, claim: &Claim, order: &Order) {
        let node = self.queue(&claim.cluster_queue).node;
        self.charge(node, &claim.usage, &claim.places, Ledger::Planned, -1);
        self.claims.remove(order);
        self.leave_queue(&claim.cluster_queue, order);
        self.reactivate_tree(&claim.cluster_queue);
        self.places_freed(&claim.places);
    }

    pub(crate) fn withdraw_holding(&mut self, uid: &Uid, holding: Holding, next: &Standing) {
        let name = holding.admission.cluster_queue.clone();
        self.queue(&name).generation += 1;
        self.not_ready.remove(uid);
        self.touched_queues.note(&name);
        self.let_go(uid, &holding);
        let stays = matches!(next, Standing::Reserved { evicted: false, .. });
        match holding.state {
            HoldState::Leaving { decision, preemptor, .. } => {
                if let Some(id) = decision {
                    self.in_flight.remove(&id);
                }
                // It does not leave after all, so the promise made of its room is void.
                if let (true, Some(preemptor)) = (stays, preemptor) {
                    self.drop_claim(&preemptor);
                }
            }
            HoldState::Assumed(decision) => {
                self.in_flight.remove(&decision);
            }
            HoldState::Confirmed => {}
        }
        let same = matches!(next, Standing::Reserved { admission, .. } if *admission == holding.admission);
        if !same {
            let key = self.workloads.get(uid).and_then(|record| local_queue_of(&record.workload));
            self.lift_penalty(uid, key);
            self.released = true;
            self.reactivate_tree(&name);
            self.places_freed(&holding.places);
        }
    }

    /// Takes what it holds out of the books.
    pub(crate) fn let_go(&mut self, uid: &Uid, holding: &Holding) {
        let queue = self.queue(&holding.admission.cluster_queue);
        queue.holding.remove(uid);
        let node = queue.node;
        self.second_pass.remove(uid);
        if holding.is_admitted() {
            self.note_use(uid, holding, -1);
        }
        self.charge(node, &holding.usage, &holding.places, Ledger::Held, -1);
        if self.planted.is(Bug::ReleaseTwice) {
            self.charge(node, &holding.usage, &holding.places, Ledger::Held, -1);
            self.charge(node, &holding.usage, &holding.places, Ledger::Planned, -1);
        }
        if let Some(vacating) = &holding.vacating {
            self.grounds.charge(vacating, Ledger::Held, -1);
        }
        if !matches!(holding.state, HoldState::Leaving { .. }) {
            let planned = holding.promised.as_ref().unwrap_or(&holding.places);
            self.charge(node, &holding.usage, planned, Ledger::Planned, -1);
        }
        self.charge_slices(uid);
    }

    pub(crate) fn drop_claim(&mut self, uid: &Uid) {
        if self.workloads.get(uid).is_some_and(|record| matches!(record.phase, Phase::Claiming(_))) {
            self.replace(uid);
        }
    }

    /// Out of everything and back to where its last seen state puts it.
    pub(crate) fn replace(&mut self, uid: &Uid) {
        let Some(record) = self.workloads.get(uid) else { return };
        let (standing, key) = (record.workload.standing.clone(), local_queue_of(&record.workload));
        self.withdraw(uid, &standing);
        if let Some(key) = key {
            self.by_local_queue.entry(key).or_default().insert(uid.clone());
        }
        self.place(uid);
    }

    pub(crate) fn replace_if_waiting(&mut self, uid: &Uid) {
        let waits = self.workloads.get(uid).is_some_and(|record| {
            matches!(record.phase, Phase::Aside(_) | Phase::Queued(_) | Phase::Parked(_) | Phase::Claiming(_))
        });
        if waits {
            self.replace(uid);
        }
    }

    /// Puts a workload that is nowhere to where its last seen state puts it.
    pub(crate) fn place(&mut self, uid: &Uid) {
        let Some(record) = self.workloads.get(uid) else { return };
        if let Some(key) = local_queue_of(&record.workload) {
            self.touched_local_queues.insert(key);
        }
        self.set_alarm(uid);
        let Some(record) = self.workloads.get(uid) else { return };
        match record.workload.standing.clone() {
            Standing::Finished if self.planted.is(Bug::ReadmitFinished) => {
                if let Ok(name) = self.where_to_wait(&record.workload) {
                    self.enqueue(uid, name);
                }
            }
            Standing::Finished => self.set_phase(uid, Phase::Finished),
            Standing::OnHold => self.put_apart(uid, None),
            Standing::Reserved { admission, admitted, evicted, since_ms } => {
                let state = if evicted {
                    HoldState::Leaving { decision: None, preemptor: None, withdrawn: false }
                } else {
                    HoldState::Confirmed
                };
                let usage = Arc::new(self.usage_of(&admission));
                let places = self.places_of(uid, &admission);
                let (promised, vacating) = (None, None);
                self.hold(
                    uid,
                    Holding { admission, usage, places, promised, vacating, admitted, since_ms, state },
                );
                self.note_second_pass(uid);
                self.drain(uid);
            }
            Standing::Pending => match self.where_to_wait(&record.workload) {
                Ok(name) => self.enqueue(uid, name),
                Err(reason) => {
                    let would_wait = match &reason {
                        PendingReason::ClusterQueueInactive(name, _)
                        | PendingReason::NamespaceMismatch(name) => Some(name.clone()),
                        PendingReason::Defect(_)
                        | PendingReason::ChecksFailed
                        | PendingReason::KeptOut(KeptOut::NotRequeued(_))
                        | PendingReason::PutOff { .. } => self.cluster_queue_of(uid),
                        _ => None,
                    };
                    self.put_apart(uid, would_wait.clone());
                    self.say(uid, would_wait, reason);
                }
            },
        }
    }

    pub(crate) fn enqueue(&mut self, uid: &Uid, name: ClusterQueueName) {
        let Some(record) = self.workloads.get(uid) else { return };
        if let Some(words) = record.refused.clone() {
            self.put_apart(uid, Some(name.clone()));
            self.say(uid, Some(name), PendingReason::AdmissionRefused(words));
            return;
        }
        let order = self.order_of(&record.workload);
        self.set_phase(uid, Phase::Queued(name.clone()));
        let queue = self.queue(&name);
        queue.active.insert(order);
        if queue.is_strict() {
            self.unsaid.push(uid.clone());
        }
        self.touched_queues.note(&name);
        self.make_ready(&name);
    }

    fn put_apart(&mut self, uid: &Uid, would_wait: Option<ClusterQueueName>) {
        if let Some(name) = &would_wait {
            self.queue(name).aside.insert(uid.clone());
            self.touched_queues.note(name);
        }
        self.set_phase(uid, Phase::Aside(would_wait));
    }

    pub(crate) fn hold(&mut self, uid: &Uid, holding: Holding) {
        let name = holding.admission.cluster_queue.clone();
        let queue = self.queue(&name);
        queue.holding.insert(uid.clone());
        let node = queue.node;
        self.charge(node, &holding.usage, &holding.places, Ledger::Held, 1);
        if let Some(vacating) = &holding.vacating {
            self.grounds.charge(vacating, Ledger::Held, 1);
        }
        if !matches!(holding.state, HoldState::Leaving { .. }) {
            self.charge(node, &holding.usage, &holding.places, Ledger::Planned, 1);
        }
        self.touched_queues.note(&name);
        if let Some(record) = self.workloads.get_mut(uid) {
            if self.settings.block_admission && !record.workload.pods_ready {
                self.not_ready.insert(uid.clone());
            }
            record.said = None;
            record.phase = Phase::Holding(holding);
            if let Some(key) = local_queue_of(&record.workload) {
                self.touched_local_queues.insert(key);
            }
        }
        self.charge_slices(uid);
        self.begin_use(uid);
    }

    /// From when its admission is complete, what it holds counts as used.
    pub(crate) fn begin_use(&mut self, uid: &Uid) {
        if self.takes_turns_by_use()
            && let Some(holding) = self.holding(uid).filter(|holding| holding.is_admitted()).cloned()
        {
            self.note_use(uid, &holding, 1);
            self.settle_penalty(uid);
        }
        self.finish_replaced(uid);
    }

    /// The queue in which a workload may wait, or why in none.
    pub(crate) fn where_to_wait(&self, workload: &Workload) -> Result<ClusterQueueName, PendingReason> {
        if !workload.active {
            return Err(PendingReason::Deactivated);
        }
        let key = local_queue_of(workload).ok_or(PendingReason::NoQueueName)?;
        let Some(local_queue) = self.local_queues.get(&key) else {
            return Err(PendingReason::LocalQueueMissing(key));
        };
        if local_queue.stop != StopPolicy::None {
            return Err(PendingReason::LocalQueueStopped(key));
        }
        let name = local_queue.cluster_queue.clone();
        let Some((queue, spec)) =
            self.queues.get(&name).and_then(|queue| queue.spec.as_ref().map(|spec| (queue, spec)))
        else {
            return Err(PendingReason::ClusterQueueMissing(name));
        };
        if let Some(inactive) = &queue.inactive {
            return Err(PendingReason::ClusterQueueInactive(name, inactive.clone()));
        }
        let labels = self.namespaces.get(&workload.namespace);
        let selected = match (&spec.namespace_selector, labels) {
            (Some(selector), Some(labels)) => selector.matches(labels),
            _ => false,
        };
        let put_off = workload.not_before_ms.filter(|until_ms| *until_ms > self.alarms.now_ms());
        match &workload.defect {
            _ if workload.checks_failed => Err(PendingReason::ChecksFailed),
            _ if put_off.is_some() => Err(PendingReason::PutOff { until_ms: put_off.unwrap_or_default() }),
            _ if !selected => Err(PendingReason::NamespaceMismatch(name)),
            Some(defect) => Err(PendingReason::Defect(defect.clone())),
            None => match (&workload.gated_by, &workload.kept_out) {
                (Some(by), _) => Err(PendingReason::AdmissionGated(Arc::clone(by))),
                (None, Some(why)) => Err(PendingReason::KeptOut(why.clone())),
                (None, None) => Ok(name),
            },
        }
    }
}
