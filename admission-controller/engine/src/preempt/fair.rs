//! Victims under fair sharing (Kueue `pkg/scheduler/preemption`, rules S2-a and S2-b of KEP-1714).
//!
//! In each cohort from the root down the child with the largest share gives up a workload, so long as the strategy allows
//! it; shares are compared where the ways up of the two queues part.

use std::collections::{BTreeMap, VecDeque};

use super::{Candidate, Right, Search, Target};
use crate::decision::PreemptionReason;
use crate::fair::{FairSharing, Share};
use crate::input::ReclaimWithinCohort;
use crate::tree::{Ledger, NodeId, Usage};

/// When the preemptor's share lets it displace somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Strategy {
    FinalShare,
    InitialShare,
}

/// The candidates by queue, each with the cohorts above them.
struct Contest {
    /// The preemptor's queue with what is above it: none of these is spared for not borrowing.
    own: Vec<NodeId>,
    candidates: BTreeMap<NodeId, VecDeque<Candidate>>,
    below: BTreeMap<NodeId, Vec<NodeId>>,
}

impl Search<'_> {
    pub(super) fn fairly(&mut self, strategies: FairSharing) -> Vec<Target> {
        let mut candidates = self.same_queue();
        self.borrowers(&mut candidates);
        candidates.sort_unstable();
        let (first, second) = match strategies {
            FairSharing::FinalThenInitialShare => (Strategy::FinalShare, Some(Strategy::InitialShare)),
            FairSharing::FinalShare => (Strategy::FinalShare, None),
            FairSharing::InitialShare => (Strategy::InitialShare, None),
        };
        let begun = self.engine.what_if();
        // Shares are compared with the preemptor in.
        self.engine.tree.charge(self.queue, self.requests, Ledger::Planned, 1);
        let (mut victims, mut refused) = (Vec::new(), Vec::new());
        let mut found = self.first_round(candidates, first, &mut victims, &mut refused);
        if !found && second.is_some() {
            found = self.second_round(refused, &mut victims);
        }
        self.engine.tree.charge(self.queue, self.requests, Ledger::Planned, -1);
        if found {
            self.spare(&mut victims, true);
        } else {
            victims.clear();
        }
        self.engine.undo(begun);
        victims
    }

    /// Candidates in all queues under the root that borrow what is short.
    fn borrowers(&mut self, found: &mut Vec<Candidate>) {
        if matches!(
            self.policy.reclaim_within_cohort,
            ReclaimWithinCohort::Never | ReclaimWithinCohort::Unset
        ) {
            return;
        }
        let mut stack = vec![self.engine.tree.root(self.queue)];
        while let Some(node) = stack.pop() {
            stack.extend_from_slice(self.engine.tree.children(node));
            if self.engine.queues.get(node).is_some() && node != self.queue && self.is_over(node) {
                found.extend(self.displaceable(node));
            }
        }
    }

    fn displaceable(&mut self, queue: NodeId) -> Vec<Candidate> {
        let (policy, priority) = (self.policy.reclaim_within_cohort, self.priority);
        let allowed = move |candidate: &crate::input::Workload| match policy {
            ReclaimWithinCohort::Never | ReclaimWithinCohort::Unset => false,
            ReclaimWithinCohort::LowerPriority => candidate.priority < priority,
            ReclaimWithinCohort::Any => true,
        };
        self.candidates_of(queue, allowed, |_| Right::ReclaimWithoutBorrowing, None)
    }

    /// Takes victims until the preemptor fits, which it tells. Whom the strategy does not allow is `refused`.
    fn first_round(
        &mut self,
        candidates: Vec<Candidate>,
        strategy: Strategy,
        victims: &mut Vec<Target>,
        refused: &mut Vec<Candidate>,
    ) -> bool {
        let mut contest = Contest::new(self, candidates);
        while let Some(queue) = contest.next(self) {
            let by_right = if queue == self.queue {
                Some(PreemptionReason::InClusterQueue)
            } else {
                (!self.by_shares).then_some(PreemptionReason::InCohortReclamation)
            };
            if let Some(reason) = by_right {
                let Some(candidate) = contest.take(queue) else { continue };
                if self.sacrifice(candidate, reason, victims) {
                    return true;
                }
                continue;
            }
            let (mine, theirs) = contest.fork(self, queue);
            let (own_share, their_share) = (self.share(mine), self.share(theirs));
            while let Some(candidate) = contest.take(queue) {
                let allowed = match strategy {
                    Strategy::FinalShare => own_share <= self.share_without(theirs, &candidate),
                    Strategy::InitialShare => own_share < their_share,
                };
                if !allowed {
                    refused.push(candidate);
                    continue;
                }
                if self.sacrifice(candidate, PreemptionReason::InCohortFairSharing, victims) {
                    return true;
                }
                // Another queue may have the largest share now.
                break;
            }
        }
        false
    }

    /// Of those refused, one more of each queue, if the preemptor's share is smaller than that queue's was.
    fn second_round(&mut self, refused: Vec<Candidate>, victims: &mut Vec<Target>) -> bool {
        let mut contest = Contest::new(self, refused);
        while let Some(queue) = contest.next(self) {
            let (mine, theirs) = contest.fork(self, queue);
            let allowed = self.share(mine) < self.share(theirs);
            let candidate = contest.take(queue);
            contest.drop(queue);
            let Some(candidate) = candidate.filter(|_| allowed) else { continue };
            if self.sacrifice(candidate, PreemptionReason::InCohortFairSharing, victims) {
                return true;
            }
        }
        false
    }

    /// Takes one victim; tells whether the preemptor fits now.
    fn sacrifice(
        &mut self,
        candidate: Candidate,
        reason: PreemptionReason,
        victims: &mut Vec<Target>,
    ) -> bool {
        victims.extend(self.take(&candidate, reason));
        self.engine.tree.charge(self.queue, self.requests, Ledger::Planned, -1);
        let fits = self.fits(true);
        self.engine.tree.charge(self.queue, self.requests, Ledger::Planned, 1);
        fits
    }

    fn share(&self, node: NodeId) -> Share {
        self.engine.tree.share(node, Ledger::Planned, &Usage::new())
    }

    fn share_without(&mut self, node: NodeId, candidate: &Candidate) -> Share {
        let mark = self.engine.tree.mark();
        if let Some(target) = self.target(candidate, PreemptionReason::InCohortFairSharing) {
            target.leave(&mut self.engine.tree);
        }
        let share = self.share(node);
        self.engine.tree.rollback(mark);
        share
    }
}

impl Contest {
    /// `candidates` are in the order in which a queue gives them up.
    fn new(search: &Search<'_>, candidates: Vec<Candidate>) -> Self {
        let tree = &search.engine.tree;
        let mut contest = Self {
            own: tree.path(search.queue).collect(),
            candidates: BTreeMap::new(),
            below: BTreeMap::new(),
        };
        for candidate in candidates {
            let queue = candidate.queue;
            if !contest.candidates.contains_key(&queue) {
                let path: Vec<NodeId> = tree.path(queue).collect();
                for pair in path.windows(2) {
                    let below = contest.below.entry(pair[1]).or_default();
                    if below.contains(&pair[0]) {
                        break;
                    }
                    below.push(pair[0]);
                }
            }
            contest.candidates.entry(queue).or_default().push_back(candidate);
        }
        contest
    }

    fn take(&mut self, queue: NodeId) -> Option<Candidate> {
        self.candidates.get_mut(&queue)?.pop_front()
    }

    fn drop(&mut self, queue: NodeId) {
        self.candidates.remove(&queue);
    }

    /// The queue whose turn it is to give somebody up: from the root down always the child with the largest share.
    fn next(&mut self, search: &Search<'_>) -> Option<NodeId> {
        let root = *self.own.last()?;
        let mut at = root;
        while !self.has_candidates(at) {
            match self.largest(search, at) {
                Some(child) => at = child,
                None if at == root => return None,
                None => {
                    // Nobody below may be taken.
                    self.below.remove(&at);
                    at = root;
                }
            }
        }
        Some(at)
    }

    fn has_candidates(&self, queue: NodeId) -> bool {
        self.candidates.get(&queue).is_some_and(|candidates| !candidates.is_empty())
    }

    /// The child with the largest share; of equals a cohort, then the queue that would give up whom first. Who borrows
    /// nothing is safe for good, since shares only shrink, unless it is the preemptor's own.
    fn largest(&mut self, search: &Search<'_>, cohort: NodeId) -> Option<NodeId> {
        let mut below = self.below.remove(&cohort)?;
        below.retain(|child| self.has_candidates(*child) || self.below.contains_key(child));
        let mut largest: Option<(Share, NodeId)> = None;
        below.retain(|child| {
            let share = search.share(*child);
            if !share.borrows() && !self.own.contains(child) {
                return false;
            }
            let better = largest.as_ref().is_none_or(|(known, other)| {
                share.cmp(known).then_with(|| self.sooner(*child, *other)).is_gt()
            });
            if better {
                largest = Some((share, *child));
            }
            true
        });
        self.below.insert(cohort, below);
        largest.map(|(_, child)| child)
    }

    /// Which of two children with equal shares comes first: greater is sooner.
    fn sooner(&self, a: NodeId, b: NodeId) -> std::cmp::Ordering {
        let first = |node: NodeId| Some(self.candidates.get(&node)?.front()?.rank_among_queues());
        match (first(a), first(b)) {
            (Some(a), Some(b)) => b.cmp(&a),
            (a, b) => a.is_none().cmp(&b.is_none()),
        }
    }

    /// Where the way up from the preemptor's queue and that from this one part: the last node of each.
    fn fork(&self, search: &Search<'_>, queue: NodeId) -> (NodeId, NodeId) {
        let tree = &search.engine.tree;
        let mut theirs = queue;
        for node in tree.path(queue) {
            if let Some(at) = self.own.iter().position(|own| *own == node) {
                return (self.own[at.saturating_sub(1)], theirs);
            }
            theirs = node;
        }
        (search.queue, theirs)
    }
}
