//! Workloads that have their quota and need places: because their nodes were to be provided first, or because one of their
//! nodes has failed.
//!
//! Rules: Kueue's second pass (`pkg/cache/queue/second_pass_queue.go`, `NeedsSecondPass` of `pkg/workload`). Kueue tries
//! again after a while; here it is when room has come back or nodes have changed, and in the next cycle where others of the
//! cycle were faster and it may not look for other places at once.

use std::sync::Arc;

use crate::assign::{Ask, Assignment, NoFit, Verdict};
use crate::decision::{Decision, EvictReason, SetUnplaced};
use crate::engine::Engine;
use crate::input::{Admission, DelayedTopology, ReclaimWithinCohort, Workload};
use crate::kept::Kept;
use crate::line::Order;
use crate::places::{Places, more_than};
use crate::preempt::Target;
use crate::reason::PendingReason;
use crate::record::{HoldState, Holding, Phase};
use crate::topology::View;
use crate::tree::{Ledger, NodeId, Usage};
use crate::workloads::WorkloadId;

/// Somebody with quota, and the places that were found.
pub(crate) struct Second {
    who: WorkloadId,
    queue: NodeId,
    /// Its places as they are.
    before: Places,
    found: Result<Assignment, NoFit>,
}

impl Engine {
    /// Remembers who has quota and needs places.
    pub(crate) fn note_second_pass(&mut self, who: WorkloadId) {
        let Some(record) = self.workloads.get(who) else { return };
        let Phase::Holding(holding) = &record.phase else { return };
        let refused = record.past.places_refused.as_ref();
        let refused = refused.is_some_and(|one| one.stands(self.alarms.now_ms()));
        if holding.state == HoldState::Confirmed && !refused && needs_places(&record.workload, holding) {
            self.second_pass.insert(who, true);
        }
    }

    /// Looks for places for all who need some, in the order in which they have their turns.
    pub(crate) fn nominate_seconds(&mut self) -> Vec<Second> {
        let ready = self.second_pass.iter().filter(|(_, ready)| **ready).map(|(who, _)| *who);
        let mut ready: Vec<Order> =
            ready.filter_map(|who| Some(Order::of(who, &self.workloads.get(who)?.workload, None))).collect();
        let by_priority = self.settings.priority_sorting;
        ready.sort_by(|a, b| a.cmp_in_cycle(b, by_priority));
        ready.into_iter().filter_map(|order| self.nominate_second(order.who)).collect()
    }

    fn nominate_second(&mut self, who: WorkloadId) -> Option<Second> {
        if let Some(reason) = self.why_not_served(who) {
            // It stays ready: that may end without room coming back. Meanwhile nobody waits for what it was promised.
            if let Some(promised) = self.promised_to(who) {
                self.redeem(who);
                self.places_freed(&promised);
            }
            self.say_unplaced(who, reason);
            return None;
        }
        self.second_pass.insert(who, false);
        let Phase::Holding(holding) = &self.workloads.get(who)?.phase else { return None };
        let (queue, before) = (holding.queue, Arc::clone(&holding.places));
        let promised = holding.promised.clone();
        // What it was promised is there for itself.
        let begun = self.what_if();
        if let Some(promised) = &promised {
            self.grounds.charge(promised, Ledger::Planned, -1);
            self.grounds.charge(&before, Ledger::Planned, 1);
        }
        let found = self.place_held(who, queue);
        self.undo(begun);
        Some(Second { who, queue, before, found })
    }

    /// Why nothing is looked for, nor is it evicted for want of places: its queue does not run, or is not for it any more, or its pods
    /// would be refused.
    fn why_not_served(&self, who: WorkloadId) -> Option<PendingReason> {
        let record = self.workloads.get(who)?;
        let Phase::Holding(holding) = &record.phase else { return None };
        let queue = &self.queues[holding.queue];
        let name = || queue.name.clone();
        match (&queue.inactive, &queue.spec) {
            _ if record.workload.checks_failed => Some(PendingReason::ChecksFailed),
            (Some(inactive), _) => Some(PendingReason::ClusterQueueInactive(name(), inactive.clone())),
            (None, None) => Some(PendingReason::ClusterQueueMissing(name())),
            (None, Some(spec)) if !self.serves(spec, &record.workload.namespace) => {
                Some(PendingReason::NamespaceMismatch(name()))
            }
            (None, Some(_)) => record.workload.seldom.defect.clone().map(PendingReason::Defect),
        }
    }

    fn place_held(&mut self, who: WorkloadId, queue: NodeId) -> Result<Assignment, NoFit> {
        let held = match self.workloads.get(who).map(|record| &record.phase) {
            Some(Phase::Holding(holding)) => Arc::clone(&holding.admission),
            _ => Arc::new(Admission { cluster_queue: self.queues[queue].name.clone(), pod_sets: Vec::new() }),
        };
        self.assign_asked(who, queue, Ask { held: Some(&held), ..Ask::default() })
    }

    /// Gives places to one that has quota; tells whether anything has come of it. `kept` are charges that end with the cycle.
    pub(crate) fn process_second(&mut self, second: Second, kept: &mut Kept, now_ms: i64) -> bool {
        let Second { who, queue, before, found } = second;
        let recomputes = self.settings.topology.recompute;
        let found = match found {
            Ok(found) if recomputes && self.is_outrun(who, &found, &before) => self.place_held(who, queue),
            found => found,
        };
        let places = match found {
            Ok(Assignment { verdict: Verdict::Fit, admission, places, .. }) => {
                let more = more_than(&places, &before);
                self.redeem(who);
                if self.grounds.fit(&more, View::Now) {
                    let usage = Arc::new(self.usage_of(&admission));
                    self.reserve(who, admission, usage, places, now_ms);
                    return true;
                }
                if !recomputes {
                    // Others of the cycle were faster, and it looks for other places in the next one. It is not known yet that
                    // there are none, for which it would be evicted.
                    self.second_pass.insert(who, true);
                    self.say_unplaced(who, PendingReason::NoLongerFits);
                    return false;
                }
                Err(PendingReason::NoLongerFits)
            }
            Ok(Assignment { verdict: Verdict::Wait, places, .. }) => Ok((places, Vec::new())),
            Ok(Assignment { verdict: Verdict::Preempt(targets), places, .. }) => Ok((places, targets)),
            Err(no_fit) => {
                self.keep_places(queue, &no_fit, &before, kept);
                Err(PendingReason::NoFit(no_fit.obstacles.into()))
            }
        };
        if self.settings.topology.fail_fast && self.has_lost_a_node(who) {
            if self.workloads.get(who).is_some_and(|record| self.may_not_be_evicted(record)) {
                self.say_unplaced(who, places.err().unwrap_or(PendingReason::NoLongerFits));
                return false;
            }
            self.redeem(who);
            self.evict(who, EvictReason::NodeFailures, None);
            if let Some(record) = self.workloads.get_mut(who) {
                record.past.unplaced = Some(places.err().unwrap_or(PendingReason::NoLongerFits));
            }
            return true;
        }
        match places {
            Err(reason) => {
                self.give_up_places(who);
                self.say_unplaced(who, reason);
                false
            }
            Ok((places, targets)) => {
                if targets.iter().any(|target| self.is_leaving(target.who)) {
                    self.give_up_places(who);
                    self.say_unplaced(who, PendingReason::TargetsTaken);
                    return false;
                }
                if !self.may_be_promised(who, &places, &targets) {
                    // Others of the cycle were promised them.
                    self.give_up_places(who);
                    self.say_unplaced(who, PendingReason::NoLongerFits);
                    return false;
                }
                if targets.iter().any(|target| self.assumed(target.who).is_some()) {
                    // It is not known yet whether they are there. It looks again when it is.
                    self.give_up_places(who);
                    self.second_pass.insert(who, true);
                    self.say_unplaced(who, PendingReason::TargetsTaken);
                    return false;
                }
                for target in &targets {
                    let reason = EvictReason::Preempted(target.reason);
                    self.evict(target.who, reason, Some((who, queue)));
                }
                self.promise(who, places);
                self.say_unplaced(who, PendingReason::WaitingForPreempted { victims: targets.len() });
                !targets.is_empty()
            }
        }
    }

    /// Somebody is in its way whom it may not displace: what it will have then goes to nobody after it in this cycle. A queue
    /// that may reclaim from anybody needs no such care.
    fn keep_places(&mut self, queue: NodeId, no_fit: &NoFit, before: &Places, kept: &mut Kept) {
        let policy = self.queues[queue].spec.as_ref().map(|spec| spec.preemption.reclaim_within_cohort);
        if policy.is_none_or(|policy| policy == ReclaimWithinCohort::Any) {
            return;
        }
        let Some(places) = &no_fit.entitled_to else { return };
        let more = more_than(places, before);
        self.charge(queue, &Usage::new(), &more, Ledger::Planned, 1);
        kept.for_one_cycle(queue, Usage::new(), more);
    }

    /// Whether others of the cycle were given what was found for it.
    fn is_outrun(&mut self, who: WorkloadId, found: &Assignment, before: &Places) -> bool {
        let fits = matches!(found.verdict, Verdict::Fit);
        let promised = self.promised_to(who).is_some();
        fits && !promised && !self.grounds.fit(&more_than(&found.places, before), View::Now)
    }

    /// Whether these places are free in the plan when its own promise is not counted, and those have left.
    fn may_be_promised(&mut self, who: WorkloadId, places: &Places, targets: &[Target]) -> bool {
        let Some(Phase::Holding(holding)) = self.workloads.get(who).map(|record| &record.phase) else {
            return false;
        };
        let planned = Arc::clone(holding.promised.as_ref().unwrap_or(&holding.places));
        let begun = self.what_if();
        self.take_out(targets);
        self.grounds.charge(&planned, Ledger::Planned, -1);
        let fits = self.grounds.fit(places, View::Planned);
        self.undo(begun);
        fits
    }

    /// What it was promised is for others, whose heads were judged before in this cycle.
    fn give_up_places(&mut self, who: WorkloadId) {
        if let Some(promised) = self.promised_to(who) {
            self.redeem(who);
            self.released = true;
            self.freed.extend(self.queues_beside(&promised));
        }
    }

    fn promised_to(&self, who: WorkloadId) -> Option<Places> {
        match &self.workloads.get(who)?.phase {
            Phase::Holding(holding) => holding.promised.clone(),
            _ => None,
        }
    }

    /// Keeps places for it in the plan until others have left them.
    fn promise(&mut self, who: WorkloadId, places: Places) {
        self.redeem(who);
        let Some(record) = self.workloads.get_mut(who) else { return };
        let Phase::Holding(holding) = &mut record.phase else { return };
        holding.promised = Some(Arc::clone(&places));
        let before = Arc::clone(&holding.places);
        self.grounds.charge(&before, Ledger::Planned, -1);
        self.grounds.charge(&places, Ledger::Planned, 1);
    }

    /// The promise, if there was one, is over.
    fn redeem(&mut self, who: WorkloadId) {
        let Some(record) = self.workloads.get_mut(who) else { return };
        let Phase::Holding(holding) = &mut record.phase else { return };
        let Some(promised) = holding.promised.take() else { return };
        let places = Arc::clone(&holding.places);
        self.grounds.charge(&promised, Ledger::Planned, -1);
        self.grounds.charge(&places, Ledger::Planned, 1);
    }

    fn has_lost_a_node(&self, who: WorkloadId) -> bool {
        self.workloads.get(who).is_some_and(|record| match &record.phase {
            Phase::Holding(holding) => holding.admitted && loses_a_node(&record.workload, &holding.admission),
            _ => false,
        })
    }

    /// It was to be evicted for want of places, and that could not be written.
    pub(crate) fn say_it_stays(&mut self, who: WorkloadId) {
        let Some(record) = self.workloads.get_mut(who).filter(|record| record.past.unplaced.is_some()) else {
            return;
        };
        if let Some(reason) = record.past.unplaced.take() {
            self.say_unplaced(who, reason);
        }
    }

    pub(crate) fn say_unplaced(&mut self, who: WorkloadId, reason: PendingReason) {
        let reason = Arc::new(reason);
        let Some(record) = self.workloads.get_mut(who) else { return };
        if record.said.as_ref() != Some(&reason) {
            record.said = Some(reason.clone());
            let workload = record.workload.uid.clone();
            self.out.push(Decision::SetUnplaced(SetUnplaced { workload, reason }));
        }
    }
}

fn needs_places(workload: &Workload, holding: &Holding) -> bool {
    let delayed = holding
        .admission
        .pod_sets
        .iter()
        .any(|one| one.topology.is_none() && one.delayed == Some(DelayedTopology::Pending));
    match holding.admitted {
        true => loses_a_node(workload, &holding.admission),
        false => workload.checks_passed && delayed,
    }
}

/// Whether a node has failed on which it has pods that have not ended.
fn loses_a_node(workload: &Workload, admission: &Admission) -> bool {
    let places =
        admission.pod_sets.iter().filter(|one| one.count > 0).filter_map(|one| one.topology.as_ref());
    let mut hosts = places.flat_map(|places| &places.domains).filter_map(|domain| domain.values.last());
    !workload.seldom.unhealthy_nodes.is_empty()
        && hosts.any(|host| workload.seldom.unhealthy_nodes.contains(host))
}
