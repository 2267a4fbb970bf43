//! What becomes of one head in a cycle: it gets quota, or the promise of it, or waits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::planted::Bug;

use crate::assign::{Assignment, NoFit, Verdict};
use crate::cycle::Head;
use crate::decision::{Decision, DecisionId, EvictReason, PreemptionReason};
use crate::engine::Engine;
use crate::input::{Admission, ReclaimWithinCohort, Standing, WithinClusterQueue};
use crate::kept::{Beside, Kept};
use crate::names::ClusterQueueName;
use crate::places::Places;
use crate::preempt::Target;
use crate::reason::PendingReason;
use crate::record::{Claim, HoldState, Phase, Record};
use crate::topology::View;
use crate::tree::{FlavorResource, Ledger, NodeId, Usage};
use crate::workloads::WorkloadId;

/// Whether the next cycle sees something new.
pub(crate) enum Done {
    /// It does.
    Something,
    /// A head that does not fit has flavors left to try.
    Round,
    /// It does not.
    Nothing,
    /// Others of this cycle were faster: in the next one it may do better.
    Outrun,
    /// It was put aside beside what is kept in this cycle only, and looks again in the next.
    HeldBack,
}

/// Heads that go round their flavors out of step could do so for ever. So many cycles in a row may settle nothing: then who is known to
/// be blocked stays where it is, and nobody looks again for the sake of those who go on.
pub(crate) const ROUNDS: usize = 32;

/// What was counted in cycles, by ClusterQueue: Kueue's metrics of these names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CycleCounts {
    /// `admission_attempts_total`: cycles, by whether anybody got quota, or lost it with a node.
    pub attempts: Attempts,
    /// `admission_cycle_preemption_skips`: whose head would have preempted, but others of the cycle were faster. A queue has one
    /// head in a cycle, and that of a later cycle counts no more.
    pub preemption_skips: BTreeSet<ClusterQueueName>,
    /// `preemption_target_recomputations_total`, by result.
    pub recomputations: BTreeMap<(ClusterQueueName, Recomputation), u64>,
}

/// Cycles in which somebody was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attempts {
    /// Those that led to something.
    pub succeeded: u64,
    /// Those that did not.
    pub failed: u64,
}

/// What came of a second search for victims, those of the first having gone to somebody else in the same cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Recomputation {
    /// It needs none of its own: it fits when those of others have left.
    DeferredFit,
    /// It has others.
    NewTargets,
    /// It has none, or does not fit with them.
    Skipped,
}

impl Recomputation {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::DeferredFit, Self::NewTargets, Self::Skipped];

    /// The label's value in Kueue's metric.
    pub fn token(self) -> &'static str {
        match self {
            Self::DeferredFit => "deferred_fit",
            Self::NewTargets => "new_targets",
            Self::Skipped => "skipped",
        }
    }
}

impl Engine {
    /// What was counted since the last call.
    pub fn take_cycle_counts(&mut self) -> CycleCounts {
        std::mem::take(&mut self.counts)
    }

    /// Does for a head what was found for it, as far as those before it in the cycle have left it possible. `kept` are
    /// charges that end with the cycle.
    pub(crate) fn process(
        &mut self,
        head: &Head,
        found: Result<Assignment, NoFit>,
        kept: &mut Kept,
        now_ms: i64,
    ) -> Done {
        let assignment = match found {
            Ok(assignment) => assignment,
            Err(no_fit) => return self.does_not_fit(head, no_fit, kept, Beside::Nothing),
        };
        if self.is_claiming(head.who()) {
            return self.take_instead(head, assignment, now_ms);
        }
        if let Some(done) = self.take_before_claims(head, &assignment, now_ms) {
            return done;
        }
        // Others leave for an earlier head: its own victims, or the slice to which it was to add.
        let lost = self.needs_other(head.who(), head.queue, &assignment.admission, &assignment.usage);
        let recomputes = self.settings.recompute_overlapping_targets;
        if lost && !recomputes {
            self.counts.preemption_skips.insert(self.queues[head.queue].name.clone());
            return self.outrun(head, PendingReason::TargetsTaken);
        }
        let is_sought_again = recomputes && (lost || self.overlaps(&assignment.verdict));
        // Whoever chooses anew does so beside what is kept for the heads before it, which is free again when the cycle ends.
        let (again, beside) = if is_sought_again {
            (self.search_again(head, &assignment, kept), kept.beside())
        } else if self.settings.topology.recompute && self.lost_its_places(head, &assignment) {
            (self.assign_again(head.who(), head.queue, &assignment.admission), kept.beside())
        } else {
            (Ok(assignment), Beside::Nothing)
        };
        match again {
            // Who waits for what others have driven out drives out nobody: no gate is in its way.
            Ok(Assignment { admission, usage, places, verdict: Verdict::Wait, .. }) if is_sought_again => {
                self.take_room(head, Granted { admission, usage, places }, now_ms)
            }
            Ok(assignment) => self.take(head, assignment, beside, now_ms),
            Err(no_fit) => self.does_not_fit(head, no_fit, kept, beside),
        }
    }

    fn is_parked(&self, who: WorkloadId) -> bool {
        self.workloads.get(who).is_some_and(|record| matches!(record.phase, Phase::Parked(_)))
    }

    /// Whether there is quota still, but others of the cycle were given its places: heads of different queues know nothing of
    /// one another when they choose.
    fn lost_its_places(&mut self, head: &Head, assignment: &Assignment) -> bool {
        let Assignment { usage, places, verdict, .. } = assignment;
        if places.is_empty() {
            return false;
        }
        let targets: &[Target] = match verdict {
            Verdict::Preempt(targets) => targets,
            Verdict::Fit | Verdict::Wait => &[],
        };
        let begun = self.what_if();
        self.take_out(targets);
        let quota = self.fits(head.queue, usage, Ledger::Planned);
        let places = self.places_beside(head.who(), head.queue, places);
        let lost = quota && !self.grounds.fit(&places, View::Planned);
        self.undo(begun);
        lost
    }

    /// Whether somebody whom it would preempt is leaving already, for another, or has nothing to leave any more.
    fn overlaps(&self, verdict: &Verdict) -> bool {
        match verdict {
            Verdict::Preempt(targets) => targets.iter().any(|target| self.is_lost(target.who)),
            Verdict::Fit | Verdict::Wait => false,
        }
    }

    /// Searches anew among the same flavors, those who leave for others being gone. What is kept in this cycle is not in use: by
    /// it no queue borrows, and nobody in it becomes a victim.
    fn search_again(&mut self, head: &Head, before: &Assignment, kept: &Kept) -> Result<Assignment, NoFit> {
        self.charge_kept(&kept.charges, -1);
        let found = self.assign_again(head.who(), head.queue, &before.admission);
        self.charge_kept(&kept.charges, 1);
        let result = match &found {
            Ok(Assignment { verdict: Verdict::Fit | Verdict::Wait, .. }) => Recomputation::DeferredFit,
            Ok(Assignment { verdict: Verdict::Preempt(targets), usage, places, .. })
                if self.fits_without(head, usage, places, targets) =>
            {
                Recomputation::NewTargets
            }
            _ => Recomputation::Skipped,
        };
        *self.counts.recomputations.entry((self.queues[head.queue].name.clone(), result)).or_default() += 1;
        found.map(|mut assignment| {
            if result == Recomputation::DeferredFit {
                assignment.verdict = Verdict::Wait;
            }
            assignment
        })
    }

    /// Gives quota, or promises it and sends away whom it takes; unless those before it in the cycle have taken it. Without what it was
    /// found `beside` the assignment might be a better one.
    pub(crate) fn take(&mut self, head: &Head, assignment: Assignment, beside: Beside, now_ms: i64) -> Done {
        let Assignment { admission, usage, places, verdict, .. } = assignment;
        let granted = Granted { admission, usage, places };
        if self.is_gated(head.who()) && self.preempts(head, &verdict, &granted.usage) {
            self.forget_progress(head.who());
            return self.put_aside(head, PendingReason::PreemptionGated, beside);
        }
        match verdict {
            Verdict::Preempt(targets) => self.preempt(head, granted, &targets, beside, now_ms),
            Verdict::Fit | Verdict::Wait => self.take_room(head, granted, now_ms),
        }
    }

    /// Whether a workload preempts anybody. Those who leave already are as good as told to leave for it, if it could have told them.
    fn preempts(&mut self, head: &Head, verdict: &Verdict, usage: &Usage) -> bool {
        match verdict {
            Verdict::Fit => false,
            Verdict::Preempt(_) => true,
            Verdict::Wait => {
                let free = |pair| self.tree.available(head.queue, pair, Ledger::Held);
                let lacks = |(pair, amount): (&FlavorResource, &i64)| i128::from(*amount) > free(*pair);
                let short: Vec<(FlavorResource, i64)> =
                    usage.iter().filter(|one| lacks(*one)).map(|(pair, amount)| (*pair, *amount)).collect();
                // With quota enough it waits for their places.
                (short.is_empty() && self.displaces_anybody(head.queue))
                    || short.into_iter().any(|(pair, amount)| {
                        let wide = i128::from(amount);
                        let (_, lends) = self.tree.borrow_height(head.queue, pair, Ledger::Planned, wide);
                        self.may_displace(head.queue, pair, amount, lends)
                            && self.could_displace_who_leaves(head.who(), head.queue, pair, amount)
                    })
            }
        }
    }

    /// Whether a queue's workloads displace others at all.
    fn displaces_anybody(&self, queue: NodeId) -> bool {
        let policy = self.preemption_of(queue);
        policy.within_cluster_queue != WithinClusterQueue::Never
            || policy.reclaim_within_cohort != ReclaimWithinCohort::Never
    }

    fn take_room(&mut self, head: &Head, granted: Granted, now_ms: i64) -> Done {
        let (who, queue) = (head.who(), head.queue);
        if !self.fits_beside(who, queue, &granted.usage, &granted.places, Ledger::Planned) {
            return self.outrun(head, PendingReason::NoLongerFits);
        }
        if self.fits_beside(who, queue, &granted.usage, &granted.places, Ledger::Held) {
            if self.pods_are_awaited() {
                self.waits_for_pods = true;
                self.forget_progress(head.who());
                return self.put_aside(head, PendingReason::PodsNotReady, Beside::Nothing);
            }
            self.reserve(head.who(), granted.admission, granted.usage, granted.places, now_ms);
        } else {
            // Kueue admits here too where only the plan has room, and uses more than there is until the victims have left.
            self.claim(head, granted);
        }
        Done::Something
    }

    fn preempt(
        &mut self,
        head: &Head,
        granted: Granted,
        targets: &[Target],
        beside: Beside,
        now_ms: i64,
    ) -> Done {
        let taken = targets.iter().any(|target| self.is_lost(target.who));
        if taken || !self.fits_without(head, &granted.usage, &granted.places, targets) {
            self.counts.preemption_skips.insert(self.queues[head.queue].name.clone());
            let reason = if taken { PendingReason::TargetsTaken } else { PendingReason::NoLongerFits };
            return self.outrun(head, reason);
        }
        // Who leaves another queue does so for what that queue uses: then nothing of it is taken back.
        let elsewhere = |target: &Target| target.queue != head.queue;
        let drives_out = targets.iter().any(|target| elsewhere(target) && !self.leaves_unseen(target.who));
        let unsettled = targets.iter().filter_map(|target| {
            let is_told = drives_out && elsewhere(target);
            Some((self.unsettled(target.who, is_told)?, target.who))
        });
        if let Some((_, last)) = unsettled.max() {
            // Others might do, but these are the ones that should go. It goes on when it is known whether the one that was given
            // quota last is there: the others mostly are by then.
            self.await_outcome(last, head.queue);
            return self.put_aside(head, PendingReason::TargetsTaken, beside);
        }
        let mut leaving = false;
        for target in targets {
            leaving |= !self.dismiss(target, head);
        }
        if !leaving {
            let done = self.take_room(head, granted, now_ms);
            self.displaces(head.who(), targets);
            return done;
        }
        if self.planted.is(Bug::ReleaseQuotaAtEviction) {
            self.reserve(head.who(), granted.admission, granted.usage, granted.places, now_ms);
        } else {
            self.claim(head, granted);
            self.displaces(head.who(), targets);
        }
        Done::Something
    }

    /// Its admission, where it stands until it is known what became of it: the driver was told, or is told because others leave
    /// for what it uses.
    fn unsettled(&self, who: WorkloadId, is_told: bool) -> Option<DecisionId> {
        let stands = |id: &DecisionId| {
            let is_told = is_told || !self.is_untold(who) || self.has_driven_out(who, *id);
            is_told || self.taken_back.contains(&who)
        };
        self.assumed(who).filter(stands).filter(|_| !self.planted.is(Bug::PreemptAssumed))
    }

    /// Whether the driver knows nothing yet of its admission.
    fn is_untold(&self, who: WorkloadId) -> bool {
        self.assumed(who).is_some_and(|id| id > self.told_up_to)
    }

    /// Whether nobody would ever know that it had quota.
    fn leaves_unseen(&self, who: WorkloadId) -> bool {
        let has_none = |record: &Record| !matches!(record.workload.standing, Standing::Reserved { .. });
        self.is_untold(who) && self.workloads.get(who).is_some_and(has_none)
    }

    /// Whether somebody of its tree was told to leave since it was admitted, for one of another queue: whom that may take rests on
    /// what is used.
    fn has_driven_out(&self, who: WorkloadId, admission: DecisionId) -> bool {
        let root = |who: WorkloadId| match &self.workloads.get(who)?.phase {
            Phase::Holding(holding) => Some(self.tree.root(holding.queue)),
            _ => None,
        };
        let own = root(who);
        let mut evictions = self.out.iter().filter_map(|decision| match decision {
            Decision::Evict(evict) => {
                let elsewhere = evict.preemptor.is_some() && evict.preemptor_path != evict.victim_path;
                (elsewhere && evict.id > admission).then_some(evict)
            }
            _ => None,
        });
        evictions.any(|evict| self.workloads.id(&evict.victim).and_then(root) == own)
    }

    pub(crate) fn assumed(&self, who: WorkloadId) -> Option<DecisionId> {
        match &self.workloads.get(who)?.phase {
            Phase::Holding(holding) => match &holding.state {
                HoldState::Assumed(id) => Some(*id),
                _ => None,
            },
            _ => None,
        }
    }

    /// Sends a victim away. One whose admission nobody was told of yet waits again as if there had been none, which it tells:
    /// in the cycles of one call of [`Engine::decide`] the one whose turn came first shall not run for a moment only.
    fn dismiss(&mut self, target: &Target, head: &Head) -> bool {
        let planted = self.planted.is(Bug::PreemptAssumed);
        let untold = self.assumed(target.who).filter(|id| planted || *id > self.told_up_to);
        let Some(id) = untold else {
            self.evict(target.who, EvictReason::Preempted(target.reason), Some((head.who(), head.queue)));
            return false;
        };
        self.leave_untold(id);
        if let Some(record) = self.workloads.get_mut(target.who) {
            record.past.makes_way = true;
        }
        self.replace(target.who);
        self.taken_back.insert(target.who);
        self.freed.insert(target.queue);
        let holds = self.workloads.get(target.who);
        if holds.is_some_and(|record| matches!(record.phase, Phase::Holding(_))) {
            // It had its quota before, and would only have got its places.
            self.evict(target.who, EvictReason::Preempted(target.reason), Some((head.who(), head.queue)));
            return false;
        }
        self.departs(target.queue, &target.usage);
        true
    }

    /// Notes who leaves for it.
    pub(crate) fn displaces(&mut self, who: WorkloadId, targets: &[Target]) {
        let rival = |who: WorkloadId| Some((who, self.workloads.get(who)?.workload.priority));
        let displaced: Vec<_> = targets.iter().filter_map(|target| rival(target.who)).collect();
        if let Some(target) = targets.first()
            && let Some(preemptor) = rival(who)
        {
            self.displacements.note(self.tree.root(target.queue), preemptor, &displaced);
            let of_one_queue = |target: &&Target| target.reason == PreemptionReason::InClusterQueue;
            for target in targets.iter().filter(of_one_queue) {
                if let Some(victim) = rival(target.who).filter(|(_, priority)| *priority == preemptor.1)
                    && self.shares_by_use(target.queue)
                {
                    self.displacements.note_equal(preemptor, victim);
                }
            }
        }
        if let Some(record) = self.workloads.get_mut(who)
            && record.past.displaced != displaced
        {
            record.past.displaced = displaced;
        }
    }

    /// Whether it fits in the plan when these have left too.
    fn fits_without(&mut self, head: &Head, usage: &Usage, places: &Places, targets: &[Target]) -> bool {
        let begun = self.what_if();
        self.take_out(targets);
        let fits = self.fits_beside(head.who(), head.queue, usage, places, Ledger::Planned);
        self.undo(begun);
        fits
    }

    /// Takes those out of the plan who are not leaving yet, within a what-if.
    pub(crate) fn take_out(&mut self, targets: &[Target]) {
        for target in targets {
            if !self.is_leaving(target.who) {
                self.charge(target.queue, &target.usage, &target.places, Ledger::Planned, -1);
            }
        }
    }

    pub(crate) fn is_gated(&self, who: WorkloadId) -> bool {
        self.settings.preemption_gates
            && self.workloads.get(who).is_some_and(|record| record.workload.preemption_gated)
    }

    fn claim(&mut self, head: &Head, granted: Granted) {
        let Granted { admission, usage, places } = granted;
        let usage = if self.planted.is(Bug::ForgetPromise) { Arc::default() } else { usage };
        // What is free will be another when the victims have left.
        self.forget_progress(head.who());
        self.leave_queue(head.queue, &head.order);
        self.queues[head.queue].claiming.insert(head.order.clone());
        self.charge(head.queue, &usage, &places, Ledger::Planned, 1);
        self.claims.insert(head.order.clone());
        let claim = Claim { queue: head.queue, admission, usage, places };
        self.set_phase(head.who(), Phase::Claiming(Box::new(claim)));
        self.say_waiting(head.who(), head.queue);
    }

    pub(crate) fn say_waiting(&mut self, who: WorkloadId, queue: NodeId) {
        let victims = self.leaving_in_tree(queue);
        self.say(who, PendingReason::WaitingForPreempted { victims });
    }

    fn leaving_in_tree(&self, queue: NodeId) -> usize {
        self.members_of_tree(queue).into_iter().map(|member| self.queues[member].leaving).sum()
    }

    pub(crate) fn is_leaving(&self, who: WorkloadId) -> bool {
        self.workloads.get(who).is_some_and(|record| {
            matches!(&record.phase, Phase::Holding(holding) if matches!(holding.state, HoldState::Leaving { .. }))
        })
    }

    /// Nothing serves it now. What it has a right to is kept for it against those after it in this cycle.
    fn does_not_fit(&mut self, head: &Head, no_fit: NoFit, kept: &mut Kept, beside: Beside) -> Done {
        let to_be_kept = self.to_be_kept(head, &no_fit);
        let keeps = to_be_kept.is_some();
        if let Some((usage, places)) = to_be_kept {
            self.charge(head.queue, &usage, &places, Ledger::Planned, 1);
            kept.charges.push((head.queue, usage, places));
        }
        let done = self.put_aside(head, PendingReason::NoFit(no_fit.obstacles.into()), beside);
        // Of what it has a right to with these flavors nothing may be kept for it with those that come next.
        let goes_on = self.rounds <= ROUNDS && self.tries_others_next(head.who());
        kept.passes |= keeps && (goes_on || self.is_parked(head.who()));
        done
    }

    /// Others of this cycle were faster. It stays at the head of its queue.
    fn outrun(&mut self, head: &Head, reason: PendingReason) -> Done {
        if !self.settings.preserve_scan_progress {
            self.forget_progress(head.who());
        }
        self.say(head.who(), reason);
        Done::Outrun
    }

    /// A head that does not fit steps aside, or blocks its queue, and is looked at again when something is released in the tree; or when
    /// what it found nothing `beside` is kept no more.
    pub(crate) fn put_aside(
        &mut self,
        head: &Head,
        reason: impl Into<Arc<PendingReason>>,
        beside: Beside,
    ) -> Done {
        let Some(shape) = self.workloads.get(head.who()).map(|record| record.shape.clone()) else {
            return Done::Nothing;
        };
        let flavors_left = self.flavors_left(head.who());
        let blocks = self.planted.is(Bug::BlockBehindHead);
        let queue = &mut self.queues[head.queue];
        let strict = queue.is_strict() || blocks;
        let is_known = queue.blocked.as_ref() == Some(&head.order);
        let reason = reason.into();
        let mut like = Vec::new();
        let done = if flavors_left {
            // It stays at the head, and the next cycle tries the flavors that are left. One that is known to be blocked goes round
            // them for the sake of others only.
            if is_known && self.rounds > ROUNDS { Done::Nothing } else { Done::Round }
        } else if strict {
            let before = queue.blocked.take().filter(|_| !is_known);
            if let Some(before) = before {
                // It has somebody before it now, and what it was told as the head no longer holds.
                self.unsaid.push(before.who);
                self.wake_who_passed_over(head.queue);
            }
            self.queues[head.queue].blocked = Some(head.order.clone());
            if is_known { Done::Nothing } else { Done::Something }
        } else {
            queue.active.remove(&head.order);
            if self.displacements.knows(head.who()) {
                // Its like may displace whom it may not displace again.
                queue.parked.insert(shape, head.order.clone());
            } else {
                like = queue.parked.insert_hopeless(shape, head.order.clone(), Arc::clone(&reason));
            }
            self.set_phase(head.who(), Phase::Parked(head.queue));
            Done::Something
        };
        self.note_shut_out(head.queue, beside);
        self.say(head.who(), reason);
        self.unheard.extend(like);
        match done {
            Done::Something | Done::Nothing if beside == Beside::Passing => Done::HeldBack,
            done => done,
        }
    }
}

/// What a head gets.
struct Granted {
    admission: Arc<Admission>,
    usage: Arc<Usage>,
    places: Places,
}
