//! The scheduling cycle, Kueue's (`pkg/scheduler/scheduler.go`): one head of every ClusterQueue; what would serve each, all
//! judged on the same state; an order among them; and one by one what still holds of it when those before have had theirs.
//!
//! [`Engine::cycle`] is one such cycle. [`Engine::decide`] runs them back to back while anything progresses, so no head waits
//! for a timer. What becomes of one head is in `process`.

use std::collections::BTreeSet;

use crate::assign::{Assignment, NoFit};
use crate::decision::{Decision, EvictReason};
use crate::engine::Engine;
use crate::fair::{Entrant, Turns};
use crate::input::ReclaimWithinCohort;
use crate::kept::{Beside, Charge, Kept};
use crate::line::Order;
use crate::process::{Done, ROUNDS};
use crate::queue::Queue;
use crate::reason::PendingReason;
use crate::record::Phase;
use crate::tree::NodeId;
use crate::workloads::WorkloadId;

/// So many heads are looked at in one call before writes get their turn; the rest follows in the next call. At three to
/// ten microseconds each this is a tenth of a second at most.
const HEADS_PER_CALL: usize = 8192;

/// A head and where it stands.
pub(crate) struct Head {
    pub(crate) order: Order,
    pub(crate) queue: NodeId,
}

impl Head {
    pub(crate) fn who(&self) -> WorkloadId {
        self.order.who
    }
}

/// A head with what was found for it.
struct Entry {
    head: Head,
    found: Result<Assignment, NoFit>,
}

/// What one cycle came to.
#[derive(Default)]
struct Pass {
    /// How many heads were looked at.
    heads: usize,
    /// Whether anything is settled, so that the next cycle sees something new.
    progress: bool,
    /// Whether the next cycle sees something new though nothing is settled: a head has flavors left to try, say.
    goes_on: bool,
    /// Heads that others of this cycle were faster than. They keep their place.
    outrun: Vec<Head>,
    /// What was kept until the cycle ended for heads that found nothing.
    kept: Vec<Charge>,
    /// Heads that were put aside for this cycle only.
    held_back: Vec<Head>,
}

impl Engine {
    /// One scheduling cycle as Kueue runs it. `now_ms` is the time in milliseconds since the epoch.
    ///
    /// [`Engine::decide`] is what a driver calls; this is its unit, and what Kueue's own tables describe.
    pub fn cycle(&mut self, now_ms: i64) -> Vec<Decision> {
        self.tell_time(now_ms);
        self.advance_accounts();
        self.ring();
        self.reconfigure();
        self.keep_promises(now_ms);
        self.pass(now_ms);
        self.tell()
    }

    /// What follows from outcomes of writes alone. [`Engine::cycle`] and [`Engine::decide`] tell it as well.
    pub fn take_decisions(&mut self) -> Vec<Decision> {
        self.tell()
    }

    /// Decides everything that can be decided now, cycle after cycle. `now_ms` is the time in milliseconds since the epoch.
    ///
    /// Call it again at once while [`Engine::has_more`] says so; otherwise after the next event or outcome.
    pub fn decide(&mut self, now_ms: i64) -> Vec<Decision> {
        self.tell_time(now_ms);
        self.advance_accounts();
        self.ring();
        self.reconfigure();
        self.keep_promises(now_ms);
        let mut looked_at = 0;
        if !self.cut_short {
            self.rounds = 0;
        }
        self.cut_short = loop {
            let pass = self.pass(now_ms);
            looked_at += pass.heads;
            self.rounds = if pass.progress { 0 } else { self.rounds + 1 };
            pass.held_back.iter().for_each(|head| self.give_second_look(head));
            let news = pass.progress
                || pass.goes_on
                || !pass.held_back.is_empty()
                || self.step_aside(pass.outrun, &pass.kept, now_ms)
                || self.give_up_promises();
            if !news {
                // Who took back what was not told yet may have left room for whom it was promised.
                if !self.released {
                    break false;
                }
                self.keep_promises(now_ms);
            }
            if looked_at >= HEADS_PER_CALL {
                break true;
            }
        };
        if !self.cut_short {
            for who in std::mem::take(&mut self.unsaid) {
                if self.waits_behind(who) {
                    self.say(who, PendingReason::Behind);
                }
            }
        }
        self.tell()
    }

    /// What is done in its place where nobody may decide: whatever waits is put where it belongs, so that questions about it are
    /// answered in full, and what would be told of it is forgotten. Who decides later works everything out anew
    /// ([`Engine::forget_what_was_said`]).
    pub fn stand_by(&mut self, now_ms: i64) {
        self.tell_time(now_ms);
        self.reconfigure();
        self.unsaid.clear();
        // What is on its way is taken back by whoever leads; the rest is found anew.
        self.out.retain(|one| one.id().is_some_and(|id| self.in_flight.contains_key(&id)));
        self.take_touched();
    }

    /// Whether the last call of [`Engine::decide`] stopped before everything was looked at.
    pub fn has_more(&self) -> bool {
        self.cut_short
    }

    /// Whether it waits for its turn in a StrictFIFO queue, not being the head that was looked at.
    fn waits_behind(&self, who: WorkloadId) -> bool {
        let phase = self.workloads.get(who).map(|record| &record.phase);
        let Some(Phase::Queued(queue)) = phase else { return false };
        self.queues[*queue].blocked.as_ref().is_none_or(|head| head.who != who)
    }

    /// Looks at one head of every queue and does what can be done for it.
    fn pass(&mut self, now_ms: i64) -> Pass {
        let mut pass = Pass::default();
        self.cycle_number += 1;
        self.cycle_began_at = self.last_id();
        self.note_who_leaves();
        let (heads, fresh) = self.heads();
        let seconds = self.nominate_seconds();
        if fresh == 0 && seconds.is_empty() {
            return pass;
        }
        pass.heads = heads.len() + seconds.len();
        let mut entries = Vec::with_capacity(heads.len());
        for head in heads {
            match self.nominate(head) {
                Some(entry) => entries.push(entry),
                // The next of its queue has a turn.
                None => pass.progress = true,
            }
        }
        // Who has quota already comes first.
        let mut kept = Kept::default();
        for second in seconds {
            pass.progress |= self.process_second(second, &mut kept, now_ms);
        }
        let mut turns = self.turns(entries);
        while let Some(Entry { head, found }) = turns.next(&mut self.tree, &self.departed) {
            let beside = kept.beside();
            match self.process(&head, found, &mut kept, now_ms) {
                Done::Something => pass.progress = true,
                Done::Round => {
                    self.stir_again(&head);
                    pass.goes_on = true;
                }
                Done::Nothing => {}
                Done::Outrun => {
                    self.stir_again(&head);
                    self.note_shut_out(head.queue, beside);
                    pass.goes_on |= beside == Beside::Passing && self.rounds <= ROUNDS;
                    pass.outrun.push(head);
                }
                Done::HeldBack => pass.held_back.push(head),
            }
        }
        self.charge_kept(&kept.charges, -1);
        pass.kept = kept.charges;
        for queue in std::mem::take(&mut self.freed) {
            self.reactivate_tree(queue);
        }
        let succeeded = self.succeeded();
        let attempts = &mut self.counts.attempts;
        *(if succeeded { &mut attempts.succeeded } else { &mut attempts.failed }) += 1;
        pass
    }

    /// Whether in this cycle anybody got quota or places, or lost them with a node.
    fn succeeded(&self) -> bool {
        let began = self.cycle_began_at;
        let mut new = self.out.iter().rev().take_while(|one| one.id().is_none_or(|id| id > began));
        new.any(|decision| match decision {
            Decision::Reserve(_) => true,
            Decision::Evict(one) => one.reason == EvictReason::NodeFailures,
            Decision::Withdraw(_) | Decision::Replace(_) | Decision::SetUnplaced(_) => false,
        })
    }

    /// The order of the heads: who borrows less, or where sharing is fair, who has the smaller share.
    fn turns(&self, mut entries: Vec<Entry>) -> Turns<Entry> {
        let by_priority = self.settings.priority_sorting;
        if self.settings.fair_sharing.is_none() {
            return Turns::sorted(entries, |a, b| {
                let by_order = || a.head.order.cmp_in_cycle(&b.head.order, by_priority);
                a.height().cmp(&b.height()).then_with(by_order)
            });
        }
        // The trees have their turns in the order of their queues' names.
        entries.sort_by_key(|entry| &self.queues[entry.head.queue].name);
        Turns::fair(&self.tree, entries, self.settings.non_borrowing_first, |entry| Entrant {
            node: entry.head.queue,
            usage: match &entry.found {
                Ok(assignment) => assignment.usage.as_ref().clone(),
                Err(no_fit) => no_fit.usage.clone(),
            },
            order: entry.head.order.in_cycle(by_priority),
        })
    }

    /// The head of every queue that has one, and how many of them are not known to be blocked. Those that are have a part for the
    /// sake of others of their tree, from whom something may be kept for them.
    fn heads(&mut self) -> (Vec<Head>, usize) {
        let (mut heads, mut fresh) = (Vec::with_capacity(self.ready.len()), 0);
        for id in self.ready.iter().copied().collect::<Vec<_>>() {
            self.park_behind_their_like(id);
            let queue = &self.queues[id];
            match queue.claimant().or_else(|| queue.head()) {
                Some(order) => {
                    fresh += usize::from(self.is_fresh(queue, order));
                    heads.push(Head { order: order.clone(), queue: id });
                }
                None if queue.active.is_empty() => {
                    self.ready.remove(&id);
                }
                None => {}
            }
        }
        // Places are kept from everybody, whatever the tree.
        if fresh < heads.len() && !self.grounds.has_places() {
            let is_fresh = |head: &&Head| self.is_fresh(&self.queues[head.queue], &head.order);
            let stirred: BTreeSet<NodeId> =
                heads.iter().filter(is_fresh).map(|head| self.tree.root(head.queue)).collect();
            heads.retain(|head| stirred.contains(&self.tree.root(head.queue)));
        }
        self.stirred.clear();
        if !self.second_looks.is_empty() {
            heads.iter().for_each(|head| _ = self.second_looks.remove(&head.order));
        }
        (heads, fresh)
    }

    /// Whether a head is to be looked at for its own sake. One that is known to be blocked finds victims where others of its tree were
    /// given quota meanwhile: they borrow now, or more than they did. Or it was held back.
    fn is_fresh(&self, queue: &Queue, head: &Order) -> bool {
        let reclaim = queue.spec.as_ref().map(|spec| spec.preemption.reclaim_within_cohort);
        let reclaims = matches!(reclaim, Some(ReclaimWithinCohort::LowerPriority | ReclaimWithinCohort::Any));
        queue.blocked.as_ref() != Some(head)
            || self.second_looks.contains(head)
            || (reclaims && self.stirred.contains(&self.tree.root(queue.node)))
    }

    /// One that is known to be blocked goes on with its other flavors, or looks for other victims.
    fn stir_again(&mut self, head: &Head) {
        if self.queues[head.queue].blocked.as_ref() == Some(&head.order) {
            self.stirred.insert(self.tree.root(head.queue));
        }
    }

    /// `None` for one that was promised room and finds nothing else.
    fn nominate(&mut self, head: Head) -> Option<Entry> {
        if self.is_claiming(head.who()) {
            let found = Ok(self.found_instead(&head)?);
            return Some(Entry { head, found });
        }
        let found = self.assign(head.who(), head.queue);
        let found = self.found_before_claims(&head, &found).map_or(found, Ok);
        Some(Entry { head, found })
    }

    /// Heads that ask for the same as one that was looked at before them, and did not fit, need not be looked at.
    fn park_behind_their_like(&mut self, id: NodeId) {
        while !self.queues[id].parked.is_empty() {
            let Some(order) = self.queues[id].head().cloned() else { return };
            let Some(shape) = self.workloads.get(order.who).map(|record| record.shape.clone()) else {
                return;
            };
            let queue = &mut self.queues[id];
            let judged = queue.parked.hopeless(&shape).is_some_and(|leader| order.is_judged_by(leader));
            let Some(reason) = queue.parked.reason(&shape).filter(|_| judged).cloned() else { return };
            queue.active.remove(&order);
            queue.parked.insert(shape, order.clone());
            self.set_phase(order.who, Phase::Parked(id));
            self.say(order.who, reason);
        }
    }
}

impl Entry {
    /// How far up the tree it would borrow: who borrows less comes first.
    fn height(&self) -> u32 {
        match &self.found {
            Ok(assignment) => assignment.height,
            Err(no_fit) => no_fit.height,
        }
    }
}
