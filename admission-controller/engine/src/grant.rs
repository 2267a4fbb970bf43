//! Quota given and taken back: decided and assumed, then confirmed or not.

use std::sync::Arc;

use model::planted::Bug;

use crate::decision::{Decision, DecisionId, Evict, EvictReason, Outcome, Reserve, Withdraw};
use crate::engine::Engine;
use crate::input::{Admission, DelayedTopology, Standing};
use crate::places::{Places, more_than};
use crate::queue::Queue;
use crate::reason::PendingReason;
use crate::record::{Claim, HoldState, Holding, Phase, Refusal};
use crate::tree::{Ledger, NodeId, Usage};
use crate::uid::Uid;
use crate::workloads::WorkloadId;

impl Engine {
    /// Takes in what became of a decision. Outcomes of decisions that newer events have settled already are ignored.
    pub fn written(&mut self, id: DecisionId, outcome: Outcome) {
        let Some(who) = self.in_flight.remove(&id) else { return };
        if matches!(outcome, Outcome::NotWritten) && self.told_again(who, id) {
            return;
        }
        let Some(record) = self.workloads.get_mut(who) else { return };
        let Phase::Holding(holding) = &mut record.phase else { return };
        match &mut holding.state {
            HoldState::Assumed(assumed) if *assumed == id => match outcome {
                Outcome::Written(version) => self.confirm_reservation(who, version),
                Outcome::Unsettled => {}
                Outcome::NotWritten => {
                    let has_quota = matches!(record.workload.standing, Standing::Reserved { .. });
                    self.replace(who);
                    if has_quota {
                        let words = "the places that were found for it could not be written".to_owned();
                        self.say_unplaced(who, PendingReason::AdmissionRefused(words));
                    }
                }
                Outcome::Refused(_) | Outcome::Overruled(_) => {
                    let has_quota = matches!(record.workload.standing, Standing::Reserved { .. });
                    let past = &mut *record.past;
                    let refused = if has_quota { &mut past.places_refused } else { &mut past.refused };
                    *refused = refusal(outcome, refused.as_ref(), self.alarms.now_ms());
                    let words = refused.as_ref().map(|one| one.words.to_string()).unwrap_or_default();
                    self.replace(who);
                    if has_quota {
                        self.say_unplaced(who, PendingReason::AdmissionRefused(words));
                    }
                }
            },
            HoldState::Leaving { decision, withdrawn: true, .. }
                if *decision == Some(id) && matches!(outcome, Outcome::Written(_)) =>
            {
                if let Outcome::Written(version) = outcome {
                    record.workload.version = record.workload.version.max(version);
                }
                record.eviction_is_written();
                record.workload.standing = Standing::Pending;
                self.replace(who);
            }
            HoldState::Leaving { decision, .. } if *decision == Some(id) => match outcome {
                Outcome::Written(version) => {
                    *decision = None;
                    record.workload.version = record.workload.version.max(version);
                    record.eviction_is_written();
                    if let Standing::Reserved { evicted, .. } = &mut record.workload.standing {
                        *evicted = true;
                    }
                }
                Outcome::Unsettled => *decision = None,
                Outcome::NotWritten => {
                    self.say_it_stays(who);
                    self.replace(who);
                }
                Outcome::Refused(_) | Outcome::Overruled(_) => {
                    let refused = &mut record.past.eviction_refused;
                    *refused = refusal(outcome, refused.as_ref(), self.alarms.now_ms());
                    self.say_it_stays(who);
                    self.replace(who);
                }
            },
            _ => {}
        }
    }

    /// Gives quota. `planned` tells that the plan counts it already, because it was promised.
    pub(crate) fn reserve(
        &mut self,
        who: WorkloadId,
        admission: Arc<Admission>,
        usage: Arc<Usage>,
        places: Places,
        now_ms: i64,
    ) {
        let id = self.next_id(who);
        let Some(record) = self.workloads.get(who) else { return };
        let (workload, based_on) = (record.workload.uid.clone(), record.workload.version);
        let order = self.order_of(who, record);
        let (queue, before) = match &record.phase {
            Phase::Queued(queue) | Phase::Parked(queue) => {
                let queue = *queue;
                self.leave_queue(queue, &order);
                self.displaces(who, &[]);
                (queue, None)
            }
            Phase::Claiming(claim) => {
                // `hold` charges the plan again.
                let claim = claim.clone();
                self.charge(claim.queue, &claim.usage, &claim.places, Ledger::Planned, -1);
                self.claims.remove(&order);
                self.leave_queue(claim.queue, &order);
                (claim.queue, None)
            }
            // It has its quota already, and gets its places now.
            Phase::Holding(holding) => {
                let holding = holding.clone();
                self.let_go(who, &holding);
                (holding.queue, Some(holding))
            }
            Phase::Aside(_) | Phase::Finished => return,
        };
        let admitted = match &before {
            Some(before) => before.admitted || places_found(&admission),
            None => self.passes_checks(who, queue, &admission) && !admission.awaits_places(),
        };
        let holding = Holding {
            queue,
            admission: admission.clone(),
            usage: if self.planted.is(Bug::ForgetAssumedAdmission) { Arc::default() } else { usage },
            // Pods may sit in the old ones until others know.
            vacating: before.as_ref().map(|before| more_than(&before.places, &places)),
            places,
            promised: None,
            admitted,
            since_ms: before.as_ref().map_or(now_ms, |before| before.since_ms),
            state: HoldState::Assumed(id),
        };
        self.hold(who, holding);
        if before.is_none() {
            self.impose_penalty(who, &admission);
        }
        self.out.push(Decision::Reserve(Reserve { id, workload, based_on, admission }));
    }

    /// The driver does not hear of this decision any more, if it has not yet.
    pub(crate) fn leave_untold(&mut self, id: DecisionId) {
        self.out.retain(|decision| decision.id() != Some(id));
    }

    /// What was decided and the driver has not heard of is decided anew: it was worked out before others led, who may have given
    /// away what it rests on. To be called when a term begins and everything that they wrote has been seen.
    pub fn take_back_untold(&mut self) {
        let (decided, told): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.out).into_iter().partition(|decision| decision.id().is_some());
        self.out = told;
        for id in decided.iter().filter_map(Decision::id) {
            self.written(id, Outcome::NotWritten);
        }
    }

    /// Somebody wrote to the object before us, and nothing that matters here: the decision stands, and rests on it as it is now.
    /// Anyone else would otherwise be given the room in its place, and more would have to leave for it.
    pub(crate) fn rest_on_now(&mut self, who: WorkloadId, before: DecisionId) {
        self.in_flight.remove(&before);
        self.leave_untold(before);
        let id = self.next_id(who);
        let Some(record) = self.workloads.get_mut(who) else { return };
        let Phase::Holding(holding) = &mut record.phase else { return };
        holding.state = HoldState::Assumed(id);
        let (workload, based_on) = (record.workload.uid.clone(), record.workload.version);
        let admission = Arc::clone(&holding.admission);
        self.out.push(Decision::Reserve(Reserve { id, workload, based_on, admission }));
    }

    /// Who was told to leave, which did not reach it, and still has to for what was promised to another, is told again: if that
    /// were decided anew, the promise would be given up, and what others leave for it given to whoever is looked at before.
    pub(crate) fn told_again(&mut self, who: WorkloadId, before: DecisionId) -> bool {
        let Some(holding) = self.holding(who).cloned() else { return false };
        let HoldState::Leaving { decision, preemptor: Some((preemptor, right)), .. } = &holding.state else {
            return false;
        };
        let claimant = self.workloads.id(preemptor);
        let Some((claimant, claim)) = claimant.and_then(|who| Some((who, self.claim_of(who)?))) else {
            return false;
        };
        // What was taken back before it was told is decided anew, by whoever leads then.
        let is_told = before <= self.told_up_to || self.out.iter().any(|one| one.id() == Some(before));
        if *decision != Some(before) || !is_told || !self.is_needed(&holding, claimant, &claim) {
            return false;
        }
        self.in_flight.remove(&before);
        self.leave_untold(before);
        let id = self.next_id(who);
        let Some(record) = self.workloads.get_mut(who) else { return false };
        if let Phase::Holding(holding) = &mut record.phase
            && let HoldState::Leaving { decision, .. } = &mut holding.state
        {
            *decision = Some(id);
        }
        let (victim, based_on) = (record.workload.uid.clone(), record.workload.version);
        self.out.push(Decision::Evict(Evict {
            id,
            victim,
            based_on,
            reason: EvictReason::Preempted(*right),
            preemptor: Some(preemptor.clone()),
            preemptor_path: self.tree.path_text(claim.queue),
            victim_path: self.tree.path_text(holding.queue),
        }));
        true
    }

    /// Whether one that leaves has to, so that another fits where it was promised room.
    fn is_needed(&mut self, holding: &Holding, claimant: WorkloadId, claim: &Claim) -> bool {
        let begun = self.what_if();
        self.charge(holding.queue, &holding.usage, &holding.places, Ledger::Planned, 1);
        let stays = self.fits_instead(claimant, claim, (&claim.usage, &claim.places), &[Ledger::Planned]);
        self.undo(begun);
        !stays
    }

    fn confirm_reservation(&mut self, who: WorkloadId, version: u64) {
        let Some(record) = self.workloads.get_mut(who) else { return };
        let Phase::Holding(holding) = &mut record.phase else { return };
        holding.state = HoldState::Confirmed;
        let vacated = holding.vacating.take();
        if record.past.refused.is_some() || record.past.places_refused.is_some() {
            (record.past.refused, record.past.places_refused) = (None, None);
        }
        record.workload.version = record.workload.version.max(version);
        record.workload.standing = Standing::Reserved {
            admission: holding.admission.clone(),
            admitted: holding.admitted,
            evicted: false,
            since_ms: holding.since_ms,
        };
        self.begin_use(who);
        if let Some(vacated) = vacated.filter(|places| !places.is_empty()) {
            self.grounds.charge(&vacated, Ledger::Held, -1);
            self.places_freed(&vacated);
        }
        self.wake_who_awaited(who);
        self.drain(who);
    }

    /// Tells a workload to leave: it holds its quota still, but the plan goes on without it.
    pub(crate) fn evict(
        &mut self,
        who: WorkloadId,
        reason: EvictReason,
        preemptor: Option<(WorkloadId, NodeId)>,
    ) {
        let id = self.next_id(who);
        let preemptor_path = preemptor.map(|(_, queue)| self.tree.path_text(queue)).unwrap_or_default();
        let preemptor = preemptor.and_then(|(who, _)| self.workloads.get(who));
        let preemptor = preemptor.map(|record| record.workload.uid.clone());
        let Some(record) = self.workloads.get_mut(who) else { return };
        let (victim, based_on) = (record.workload.uid.clone(), record.workload.version);
        let Phase::Holding(holding) = &mut record.phase else { return };
        if preemptor.is_some() {
            record.past.makes_way = true;
        }
        let by_right = match reason {
            EvictReason::Preempted(right) => preemptor.clone().map(|preemptor| (preemptor, right)),
            _ => None,
        };
        holding.state = HoldState::Leaving { decision: Some(id), preemptor: by_right, withdrawn: false };
        let queue = holding.queue;
        self.queues[queue].leaving += 1;
        let places = holding.promised.take().unwrap_or_else(|| Arc::clone(&holding.places));
        let usage = Arc::clone(&holding.usage);
        self.charge(queue, &usage, &places, Ledger::Planned, -1);
        if preemptor.is_some() {
            self.departs(queue, &usage);
        }
        self.second_pass.remove(&who);
        self.wake_who_awaited(who);
        let victim_path = self.tree.path_text(queue);
        let evict = Evict { id, victim, based_on, reason, preemptor, preemptor_path, victim_path };
        self.out.push(Decision::Evict(evict));
    }

    /// Who was told to leave in an earlier cycle counts as in use, too, where the turns of heads are worked out by shares.
    pub(crate) fn note_who_leaves(&mut self) {
        self.departed.clear();
        if self.settings.fair_sharing.is_none() {
            return;
        }
        let leaving: Vec<_> = self.queues.iter().flat_map(|queue| self.leaving_in(queue)).collect();
        for (queue, usage) in leaving {
            self.departs(queue, &usage);
        }
    }

    /// What those use who are leaving a queue; mostly nobody is.
    pub(crate) fn leaving_in(&self, queue: &Queue) -> impl Iterator<Item = (NodeId, Arc<Usage>)> {
        let members = (queue.leaving > 0).then_some(&queue.holding).into_iter().flatten();
        let leaving = members.filter_map(|who| self.holding(*who)).filter(|holding| holding.is_leaving());
        let node = queue.node;
        leaving.map(move |holding| (node, Arc::clone(&holding.usage)))
    }

    /// Until the cycle ends this counts as in use where the turns of heads are worked out.
    pub(crate) fn departs(&mut self, queue: NodeId, usage: &Usage) {
        let sum = self.departed.entry(queue).or_default();
        for (pair, amount) in usage.iter() {
            let all = sum.get_or_insert(*pair, 0);
            *all = all.saturating_add(*amount);
        }
    }

    /// Why an admission of this workload was refused does not hold any more: it is looked at again at once.
    pub fn forgive(&mut self, uid: &Uid) {
        let Some(who) = self.workloads.id(uid) else { return };
        if let Some(record) = self.workloads.get_mut(who)
            && record.past.refused.is_some()
        {
            record.past.refused = None;
            self.replace_if_waiting(who);
        }
    }

    /// Takes the quota of a workload that was not admitted yet: nothing of it runs, so there is nothing to wait for.
    pub(crate) fn withdraw_reservation(&mut self, who: WorkloadId, reason: PendingReason) {
        let id = self.next_id(who);
        let Some(record) = self.workloads.get_mut(who) else { return };
        let (workload, based_on) = (record.workload.uid.clone(), record.workload.version);
        let Phase::Holding(holding) = &mut record.phase else { return };
        holding.state = HoldState::Leaving { decision: Some(id), preemptor: None, withdrawn: true };
        let (queue, usage) = (holding.queue, Arc::clone(&holding.usage));
        self.queues[queue].leaving += 1;
        let places = holding.promised.take().unwrap_or_else(|| Arc::clone(&holding.places));
        self.charge(queue, &usage, &places, Ledger::Planned, -1);
        self.second_pass.remove(&who);
        self.out.push(Decision::Withdraw(Withdraw { id, workload, based_on, reason }));
    }

    fn next_id(&mut self, who: WorkloadId) -> DecisionId {
        self.next_id += 1;
        let id = DecisionId(self.next_id);
        self.in_flight.insert(id, who);
        id
    }
}

/// What was refused at `now_ms`, after it was `before`, and for how long it is not tried again.
fn refusal(outcome: Outcome, before: Option<&Refusal>, now_ms: i64) -> Option<Refusal> {
    let times = before.map_or(0, |one| one.times).saturating_add(1);
    let (words, until_ms) = match outcome {
        Outcome::Refused(words) => (words, Some(now_ms.saturating_add(Refusal::wait_ms(times)))),
        Outcome::Overruled(words) => (words, None),
        Outcome::Written(_) | Outcome::Unsettled | Outcome::NotWritten => return None,
    };
    Some(Refusal { words: words.into(), times, until_ms })
}

/// Whether no pods wait for their places any more.
fn places_found(admission: &Admission) -> bool {
    admission.pod_sets.iter().all(|one| one.delayed != Some(DelayedTopology::Pending))
}
