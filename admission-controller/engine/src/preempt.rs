//! Victims for one workload, Kueue's classical way (`pkg/scheduler/preemption/classical`), in the plan and undone again.
//!
//! Candidates are taken greedily until the workload fits, then given back one by one from the last as long as it still
//! fits: no victim of the result could be spared.

mod again;
mod fair;
mod ranking;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::ResourceName;
use model::planted::Bug;

use crate::decision::PreemptionReason;
use crate::engine::Engine;
use crate::history::Consumption;
use crate::input::{BorrowWithinCohort, Preemption, ReclaimWithinCohort, WithinClusterQueue, Workload};
use crate::names::{ClusterQueueName, FlavorName};
use crate::places::{Places, Wishes};
use crate::record::{HoldState, Phase, Record};
use crate::topology::{Chance, Trial, View};
use crate::tree::{FlavorResource, Ledger, NodeId, Tree, Usage};
use crate::uid::Uid;
use crate::workloads::WorkloadId;
pub(crate) use again::{Displacements, Rival};
use ranking::Ranking;

/// A workload to be preempted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) who: WorkloadId,
    pub(crate) queue: NodeId,
    pub(crate) reason: PreemptionReason,
    pub(crate) usage: Arc<Usage>,
    pub(crate) places: Places,
}

impl Target {
    /// Takes its quota out of the plan, within a what-if.
    pub(crate) fn leave(&self, tree: &mut Tree) {
        tree.charge(self.queue, &self.usage, Ledger::Planned, -1);
    }
}

/// A workload that would have to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Victim {
    /// Who.
    pub workload: Uid,
    /// By which right.
    pub reason: PreemptionReason,
    /// Whether it is leaving already.
    pub leaves: bool,
}

/// The flavors of one pod set, as they were chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chosen {
    /// How many pods.
    pub count: i64,
    /// The flavor of each resource, and whether others have to free it.
    pub flavors: BTreeMap<ResourceName, (FlavorName, bool)>,
}

impl Engine {
    /// Whom a workload that waits in `name` would displace to get these flavors, one [`Chosen`] for each of its pod sets.
    /// Who is leaving already counts as if it stayed, and is among the first to be named. Changes nothing.
    pub fn find_victims(&mut self, uid: &Uid, name: &ClusterQueueName, chosen: &[Chosen]) -> Vec<Victim> {
        self.reconfigure();
        let queue = self.queue_named(name);
        let Some(who) = self.workloads.id(uid) else { return Vec::new() };
        let Some(record) = self.workloads.get(who) else { return Vec::new() };
        let pod_sets = record.workload.pod_sets.clone();
        let (mut usage, mut short) = (Usage::new(), BTreeSet::new());
        for (pod_set, chosen) in pod_sets.iter().zip(chosen) {
            for (resource, (flavor, lacking)) in &chosen.flavors {
                let pair = self.tree.pair(flavor, resource);
                let each = match resource.as_str() {
                    ResourceName::PODS => 1,
                    _ => pod_set.requests.get(resource).copied().unwrap_or(0),
                };
                let sum = usage.get_or_insert(pair, 0);
                *sum = sum.saturating_add(each.saturating_mul(chosen.count));
                if *lacking {
                    short.insert(pair);
                }
            }
        }
        let targets = self.victims_if_nobody_left(who, queue, &usage, short);
        let victim = |target: Target| {
            let workload = self.workloads.get(target.who)?.workload.uid.clone();
            Some(Victim { workload, reason: target.reason, leaves: self.is_leaving(target.who) })
        };
        targets.into_iter().filter_map(victim).collect()
    }

    /// Whether a workload that fits when others have left could have displaced them, or as many others: then it is its room that
    /// comes free. Kueue, for which they are among the candidates as long as they hold quota, waits for no others.
    pub(crate) fn could_displace_who_leaves(
        &mut self,
        who: WorkloadId,
        queue: NodeId,
        pair: FlavorResource,
        amount: i64,
    ) -> bool {
        !self.victims_if_nobody_left(who, queue, &[(pair, amount)].into(), [pair].into()).is_empty()
    }

    /// Whom a queue's workloads may displace.
    pub(crate) fn preemption_of(&self, queue: NodeId) -> Preemption {
        self.queues[queue].spec.as_ref().map(|spec| spec.preemption).unwrap_or_default()
    }

    /// Whether displacing others is a way: within its own quota, to take back what a subtree it belongs to lent, or when
    /// who borrows may displace; where sharing is fair, whoever may reclaim may.
    pub(crate) fn may_displace(
        &self,
        queue: NodeId,
        pair: FlavorResource,
        amount: i64,
        lender_below_root: bool,
    ) -> bool {
        let policy = self.preemption_of(queue);
        i128::from(amount) <= self.tree.nominal(queue, pair)
            || lender_below_root
            || policy.borrow_within_cohort != BorrowWithinCohort::Never
            || (self.settings.fair_sharing.is_some()
                && policy.reclaim_within_cohort != ReclaimWithinCohort::Never)
    }

    /// Who would have to make way if those stayed who are leaving.
    fn victims_if_nobody_left(
        &mut self,
        who: WorkloadId,
        queue: NodeId,
        usage: &Usage,
        short: BTreeSet<FlavorResource>,
    ) -> Vec<Target> {
        let members = self.members_of_tree(queue);
        let leaving: Vec<_> =
            members.into_iter().flat_map(|member| self.leaving_in(&self.queues[member])).collect();
        let mark = self.tree.mark();
        for (node, usage) in &leaving {
            self.tree.charge(*node, usage, Ledger::Planned, 1);
        }
        let places = Wishes::new();
        let mut search = Search::new(self, who, queue, usage, short, &places);
        search.leaving_stay = true;
        let targets = search.run();
        self.tree.rollback(mark);
        targets
    }
}

/// By which right a candidate is one. The order is that in which they are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Right {
    /// The preemptor's subtree is within its quota, and the candidate's is not.
    Hierarchy,
    /// The preemptor must not borrow while it takes this one.
    ReclaimWithoutBorrowing,
    /// It may borrow.
    ReclaimWhileBorrowing,
    SameQueue,
}

/// Candidates are in the order in which they are taken: no two are of the same rank.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    rank: Rank,
    who: WorkloadId,
    queue: NodeId,
    right: Right,
    /// Up to which node, exclusive, everything above the candidate must be over its quota.
    common_ancestor: Option<NodeId>,
}

/// Who is leaving already comes first.
type Rank = (bool, Group, Reverse<Consumption>, i32, Reverse<i64>, Uid);

/// The same but for what LocalQueues have used, which cannot be compared where their ClusterQueues are not the same.
type RankAmongQueues = (bool, Group, i32, Reverse<i64>, Uid);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    Hierarchy,
    Priority,
    SameQueue,
}

impl Candidate {
    fn rank_among_queues(&self) -> RankAmongQueues {
        let (stays, group, _, priority, since, uid) = &self.rank;
        (*stays, *group, *priority, *since, uid.clone())
    }

    fn reason(&self) -> PreemptionReason {
        match self.right {
            Right::Hierarchy | Right::ReclaimWithoutBorrowing => PreemptionReason::InCohortReclamation,
            Right::ReclaimWhileBorrowing => PreemptionReason::InCohortReclaimWhileBorrowing,
            Right::SameQueue => PreemptionReason::InClusterQueue,
        }
    }
}

/// One search for victims.
pub(crate) struct Search<'a> {
    engine: &'a mut Engine,
    /// The preemptor.
    who: WorkloadId,
    priority: i32,
    queued_at_ms: i64,
    queue: NodeId,
    policy: Preemption,
    requests: &'a Usage,
    /// The places it needs.
    wishes: &'a Wishes,
    /// How much room there is for that, once it was asked.
    trial: Option<(FlavorName, Trial)>,
    /// What others have to free.
    short: BTreeSet<FlavorResource>,
    /// Shares decide whom of other queues it may displace, and not its queue's right to what is its own.
    by_shares: bool,
    /// Whom it displaced before, and who are no candidates again.
    displaced_before: BTreeSet<Rival>,
    /// Whom the very cycle that is under way gave quota, and who are no candidates in it.
    just_served: BTreeSet<WorkloadId>,
    /// Who is leaving is counted as if it stayed, and may be among the victims.
    leaving_stay: bool,
}

impl<'a> Search<'a> {
    pub(crate) fn new(
        engine: &'a mut Engine,
        who: WorkloadId,
        queue: NodeId,
        requests: &'a Usage,
        short: BTreeSet<FlavorResource>,
        wishes: &'a Wishes,
    ) -> Self {
        let policy = engine.preemption_of(queue);
        let asked = |pair: &FlavorResource| requests.get(pair).copied().map_or(0, i128::from);
        let borrows =
            |pair: &FlavorResource| engine.tree.borrows_with(queue, *pair, Ledger::Planned, asked(pair));
        // What is the queue's own is its own, however much it borrows of something else.
        let by_shares = engine.settings.fair_sharing.is_some()
            && (!engine.settings.preempt_within_nominal || short.iter().any(borrows));
        let Record { workload: Workload { priority, queued_at_ms, .. }, ref phase, .. } =
            engine.workloads[who];
        // Who has quota, and seeks places, took others' for another purpose.
        let displaced_before = match phase {
            Phase::Holding(_) => BTreeSet::new(),
            _ => engine.displacements.of(engine.tree.root(queue), (who, priority)),
        };
        Self {
            who,
            engine,
            priority,
            queued_at_ms,
            queue,
            policy,
            requests,
            wishes,
            trial: None,
            short,
            by_shares,
            displaced_before,
            just_served: BTreeSet::new(),
            leaving_stay: false,
        }
    }

    /// The victims, or none where no set of them would do.
    pub(crate) fn run(mut self) -> Vec<Target> {
        let victims = match self.engine.settings.fair_sharing {
            None => self.classically(),
            Some(strategies) => self.fairly(strategies),
        };
        if victims.is_empty() {
            for served in self.just_served {
                self.engine.await_outcome(served, self.queue);
            }
        }
        victims
    }

    fn classically(&mut self) -> Vec<Target> {
        let mut candidates = self.same_queue();
        self.elsewhere(&mut candidates);
        let attempts = self.attempts(&candidates);
        let mut ranking = Ranking::new(candidates);
        let mut attempts = attempts.into_iter().map(|may_borrow| self.attempt(&mut ranking, may_borrow));
        attempts.find(|victims| !victims.is_empty()).unwrap_or_default()
    }

    /// Whether to try with borrowing, without, or both, and which first.
    fn attempts(&self, candidates: &[Candidate]) -> Vec<bool> {
        let others = candidates.iter().any(|one| one.right != Right::SameQueue);
        let hierarchical = candidates.iter().any(|one| one.right == Right::Hierarchy);
        if !others || self.must_borrow() {
            vec![true]
        } else if self.may_not_borrow() && !hierarchical {
            vec![false, true]
        } else {
            vec![true, false]
        }
    }

    fn may_not_borrow(&self) -> bool {
        self.policy.borrow_within_cohort == BorrowWithinCohort::Never
    }

    /// Whether its queue has used up its quota, and takes nobody's place by borrowing.
    fn must_borrow(&self) -> bool {
        let tree = &self.engine.tree;
        let is_under = |pair: &FlavorResource| {
            tree.used(self.queue, *pair, Ledger::Planned) < tree.nominal(self.queue, *pair)
        };
        self.may_not_borrow() && !self.short.iter().all(is_under)
    }

    fn attempt(&mut self, ranking: &mut Ranking, may_borrow: bool) -> Vec<Target> {
        let begun = self.engine.what_if();
        let mut victims: Vec<Target> = Vec::new();
        let mut found = false;
        let everybody = self.engine.planted.is(Bug::PreemptEverybody);
        for index in 0.. {
            let Some(candidate) = ranking.get(index) else { break };
            if !self.is_valid(candidate, may_borrow) {
                continue;
            }
            victims.extend(self.take(candidate, candidate.reason()));
            if self.fits(may_borrow) {
                found = true;
                if !everybody {
                    break;
                }
            }
        }
        if !found {
            victims.clear();
        } else if !everybody {
            self.spare(&mut victims, may_borrow);
        }
        self.engine.undo(begun);
        self.trial = None;
        victims
    }

    /// Gives back whoever is not needed; the last one taken always is.
    fn spare(&mut self, victims: &mut Vec<Target>, may_borrow: bool) {
        for index in (0..victims.len().saturating_sub(1)).rev() {
            self.shift(&victims[index].clone(), 1);
            if self.fits(may_borrow) {
                victims.remove(index);
            } else {
                self.shift(&victims[index].clone(), -1);
            }
        }
    }

    /// Takes a candidate's quota and places out of the plan. `None` where it has none.
    fn take(&mut self, candidate: &Candidate, reason: PreemptionReason) -> Option<Target> {
        let target = self.target(candidate, reason)?;
        self.shift(&target, -1);
        Some(target)
    }

    fn target(&self, candidate: &Candidate, reason: PreemptionReason) -> Option<Target> {
        let Phase::Holding(holding) = &self.engine.workloads.get(candidate.who)?.phase else { return None };
        Some(Target {
            who: candidate.who,
            queue: candidate.queue,
            reason,
            usage: Arc::clone(&holding.usage),
            places: Arc::clone(holding.promised.as_ref().unwrap_or(&holding.places)),
        })
    }

    fn shift(&mut self, target: &Target, sign: i64) {
        self.engine.tree.charge(target.queue, &target.usage, Ledger::Planned, i128::from(sign));
        if !self.wishes.is_empty() {
            self.engine.grounds.charge(&target.places, Ledger::Planned, sign);
            if let Some(trial) = &mut self.trial {
                self.engine.grounds.update_trial(trial, &target.places);
            }
        }
    }

    fn fits(&mut self, may_borrow: bool) -> bool {
        self.quota_fits(may_borrow) && (self.wishes.is_empty() || self.places_fit())
    }

    fn places_fit(&mut self) -> bool {
        let rules = self.engine.settings.topology.rules;
        let grounds = &mut self.engine.grounds;
        if self.trial.is_none() {
            self.trial = grounds.trial(self.wishes, rules);
        }
        match self.trial.as_ref().map_or(Chance::Perhaps, |(_, trial)| trial.chance()) {
            Chance::Yes => true,
            Chance::No => false,
            Chance::Perhaps => grounds.place(self.wishes, rules, View::Planned).is_ok(),
        }
    }

    fn quota_fits(&self, may_borrow: bool) -> bool {
        let tree = &self.engine.tree;
        self.requests.iter().filter(|(_, amount)| **amount > 0).all(|(pair, amount)| {
            let amount = i128::from(*amount);
            (may_borrow || !tree.borrows_with(self.queue, *pair, Ledger::Planned, amount))
                && amount <= tree.available(self.queue, *pair, Ledger::Planned)
        })
    }

    /// A queue or cohort that is back within its own quota gives up no more.
    fn is_valid(&self, candidate: &Candidate, may_borrow: bool) -> bool {
        if candidate.right == Right::SameQueue {
            return true;
        }
        if may_borrow && candidate.right == Right::ReclaimWithoutBorrowing {
            return false;
        }
        if self.engine.planted.is(Bug::ReclaimFromOwners) {
            return true;
        }
        self.engine
            .tree
            .path(candidate.queue)
            .take_while(|node| Some(*node) != candidate.common_ancestor)
            .all(|node| self.is_over(node))
    }

    /// Whether the subtree uses more than its own quota, and will: what was promised is not used yet, and nobody leaves for what
    /// another of his queue was promised.
    fn is_over(&self, node: NodeId) -> bool {
        let is_over = |pair: &FlavorResource| {
            let borrows = |ledger| self.engine.tree.borrows_with(node, *pair, ledger, 0);
            borrows(Ledger::Planned) && borrows(Ledger::Held)
        };
        self.short.iter().any(is_over)
    }

    fn same_queue(&mut self) -> Vec<Candidate> {
        let policy = self.policy.within_cluster_queue;
        if policy == WithinClusterQueue::Never {
            return Vec::new();
        }
        let (priority, queued_at) = (self.priority, self.queued_at_ms);
        let equal_too = self.engine.planted.is(Bug::PreemptEqualPriority);
        let allowed = move |candidate: &Workload| match policy {
            WithinClusterQueue::Never => false,
            WithinClusterQueue::LowerPriority => {
                let older = candidate.queued_at_ms < queued_at;
                candidate.priority < priority || equal_too && candidate.priority == priority && older
            }
            WithinClusterQueue::LowerOrNewerEqualPriority => {
                candidate.priority < priority
                    || (candidate.priority == priority && candidate.queued_at_ms > queued_at)
            }
        };
        self.candidates_of(self.queue, allowed, |_| Right::SameQueue, None)
    }

    /// Candidates in other queues, from the nearest cohort up to the root.
    fn elsewhere(&mut self, found: &mut Vec<Candidate>) {
        if matches!(
            self.policy.reclaim_within_cohort,
            ReclaimWithinCohort::Never | ReclaimWithinCohort::Unset
        ) {
            return;
        }
        // What nothing is asked of is above its quota without the preemptor.
        let mut rest = self.requests.clone();
        rest.retain(|_, amount| *amount != 0);
        let mut advantage = self.fits_within(self.queue, &mut rest);
        let mut below = self.queue;
        let ancestors: Vec<NodeId> = self.engine.tree.path(self.queue).skip(1).collect();
        // Most heads that are blocked in a full cohort have used up their quota: nobody in it would do.
        let needs_advantage = self.must_borrow();
        for ancestor in ancestors {
            if advantage || !needs_advantage {
                self.in_subtree(ancestor, below, advantage, found);
            }
            advantage |= self.fits_within(ancestor, &mut rest);
            below = ancestor;
        }
    }

    /// Whether the subtree stays within its own quota with `rest` on top; `rest` shrinks to what it would take from above. One that
    /// is above its quota anyway does not, even where nothing is left to take.
    fn fits_within(&self, node: NodeId, rest: &mut Usage) -> bool {
        let tree = &self.engine.tree;
        let mut fits = true;
        for (pair, amount) in rest.iter_mut() {
            if tree.borrows_with(node, *pair, Ledger::Planned, i128::from(*amount)) {
                fits = false;
            }
            let local = i64::try_from(tree.local_free(node, *pair, Ledger::Planned)).unwrap_or(i64::MAX);
            *amount = amount.saturating_sub(local).max(0);
        }
        fits
    }

    fn in_subtree(&mut self, top: NodeId, spared: NodeId, advantage: bool, found: &mut Vec<Candidate>) {
        let mut stack = vec![top];
        while let Some(node) = stack.pop() {
            for child in self.engine.tree.children(node).to_vec() {
                let owners_too = self.engine.planted.is(Bug::ReclaimFromOwners);
                if child == spared || !(owners_too || self.is_over(child)) {
                    continue;
                }
                match self.engine.queues.get(child) {
                    None => stack.push(child),
                    Some(_) => found.extend(self.reclaimable(child, advantage, top)),
                }
            }
        }
    }

    fn reclaimable(&mut self, queue: NodeId, advantage: bool, top: NodeId) -> Vec<Candidate> {
        let (policy, priority) = (self.policy, self.priority);
        let allowed = move |candidate: &Workload| match policy.reclaim_within_cohort {
            ReclaimWithinCohort::Never | ReclaimWithinCohort::Unset => false,
            ReclaimWithinCohort::LowerPriority => candidate.priority < priority,
            ReclaimWithinCohort::Any => true,
        };
        let right = move |candidate: &Workload| {
            if advantage {
                return Right::Hierarchy;
            }
            match policy.borrow_within_cohort {
                BorrowWithinCohort::LowerPriority { threshold }
                    if candidate.priority < priority
                        && threshold.is_none_or(|threshold| candidate.priority <= threshold) =>
                {
                    Right::ReclaimWhileBorrowing
                }
                _ => Right::ReclaimWithoutBorrowing,
            }
        };
        self.candidates_of(queue, allowed, right, Some(top))
    }

    /// Whose LocalQueue has used more goes first, if it matters.
    fn consumption(&self, queue: NodeId, record: &Record) -> Consumption {
        self.engine.consumption_of(queue, record).unwrap_or_default()
    }

    /// Whether it would go in a circle to take this one's place: the preemptor did so before, or one has its place because the
    /// preemptor left, who shall not take it back by its share.
    fn goes_in_a_circle(&self, queue: NodeId, who: WorkloadId, record: &Record) -> bool {
        let engine = &*self.engine;
        let by_share = self.by_shares
            && queue != self.queue
            && !record.past.displaced.is_empty()
            && engine.workloads.has_led_to(self.who, self.priority, who);
        by_share || self.displaced_before.contains(&(who, record.workload.priority))
    }

    fn candidates_of(
        &mut self,
        queue: NodeId,
        allowed: impl Fn(&Workload) -> bool,
        right: impl Fn(&Workload) -> Right,
        common_ancestor: Option<NodeId>,
    ) -> Vec<Candidate> {
        let mut found = Vec::new();
        // What holds or stops a queue leaves alone what runs in it, and others with it.
        if self.engine.queues[queue].inactive.is_some() {
            return found;
        }
        for who in self.engine.queues[queue].holding.iter().copied() {
            let Some(record) = self.engine.workloads.get(who) else { continue };
            let Phase::Holding(holding) = &record.phase else { continue };
            // Who was given a flavor counts, though it may use nothing of it any more: who is of no use is given back.
            let uses = self.short.iter().any(|pair| holding.usage.contains_key(pair));
            let leaves = matches!(holding.state, HoldState::Leaving { .. });
            // Who leaves may do so for this very workload.
            if !uses || !allowed(&record.workload) || (!leaves && self.goes_in_a_circle(queue, who, record)) {
                continue;
            }
            if self.engine.is_succeeded(who) {
                continue;
            }
            match holding.state {
                HoldState::Leaving { .. } if !self.leaving_stay => continue,
                // What this very cycle gave is not taken into account by it.
                HoldState::Assumed(id) if id > self.engine.cycle_began_at => {
                    self.just_served.insert(who);
                    continue;
                }
                HoldState::Assumed(_) | HoldState::Confirmed | HoldState::Leaving { .. } => {}
            }
            if !leaves && self.engine.may_not_be_evicted(record) {
                continue;
            }
            let right = right(&record.workload);
            let group = match right {
                Right::Hierarchy => Group::Hierarchy,
                Right::ReclaimWithoutBorrowing | Right::ReclaimWhileBorrowing => Group::Priority,
                Right::SameQueue => Group::SameQueue,
            };
            found.push(Candidate {
                rank: (
                    !leaves,
                    group,
                    Reverse(self.consumption(queue, record)),
                    record.workload.priority,
                    Reverse(holding.since_ms),
                    record.workload.uid.clone(),
                ),
                who,
                queue,
                right,
                common_ancestor,
            });
        }
        found
    }
}
