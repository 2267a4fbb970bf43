//! What is kept for heads that have a right to room and find none: nobody after them in a cycle gets it.

use std::sync::Arc;

use crate::assign::{NoFit, Verdict};
use crate::cycle::Head;
use crate::engine::Engine;
use crate::input::ReclaimWithinCohort;
use crate::places::Places;
use crate::process::Done;
use crate::record::Phase;
use crate::tree::{FlavorResource, Ledger, NodeId, Usage};

/// What is charged for somebody, and where.
pub(crate) type Charge = (NodeId, Usage, Places);

/// What is charged for the length of a cycle.
#[derive(Default)]
pub(crate) struct Kept {
    pub(crate) charges: Vec<Charge>,
    /// Somebody for whom something is kept has no part in the next cycle, or may have something else kept for it then. Who comes after
    /// it looks again, or would wait for a change that never comes.
    pub(crate) passes: bool,
}

/// Beside what something was looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beside {
    /// Nothing that is kept.
    Nothing,
    /// What is kept for heads that wait for something to be released: the next cycle shows nothing else, or nothing new.
    Standing,
    /// What is kept for heads of whom one may have nothing kept in the next cycle, or something else.
    Passing,
}

impl Kept {
    pub(crate) fn beside(&self) -> Beside {
        match (self.charges.is_empty(), self.passes) {
            (true, _) => Beside::Nothing,
            (false, false) => Beside::Standing,
            (false, true) => Beside::Passing,
        }
    }

    /// Keeps something for somebody who is not looked at in the next cycle.
    pub(crate) fn for_one_cycle(&mut self, queue: NodeId, usage: Usage, places: Places) {
        self.charges.push((queue, usage, places));
        self.passes = true;
    }
}

impl Engine {
    /// The head of this queue found nothing `beside` what is kept. Where that passes it is as if room had come back: it looks at its first
    /// flavor once more. Otherwise it does when whoever it is kept for is gone.
    pub(crate) fn note_shut_out(&mut self, queue: NodeId, beside: Beside) {
        if beside != Beside::Nothing {
            self.passed_over.insert(queue);
            self.queues[queue].wakes += u64::from(beside == Beside::Passing);
        }
    }

    pub(crate) fn charge_kept(&mut self, kept: &[Charge], sign: i64) {
        for (node, usage, places) in kept {
            self.charge(*node, usage, places, Ledger::Planned, sign);
        }
    }

    /// One that was put aside is looked at in the next cycle all the same.
    pub(crate) fn give_second_look(&mut self, head: &Head) {
        let Some(record) = self.workloads.get(head.who()) else { return };
        if matches!(record.phase, Phase::Parked(_)) {
            let shape = record.shape.clone();
            self.queues[head.queue].unpark(&shape, &head.order);
            self.set_phase(head.who(), Phase::Queued(head.queue));
            self.ready.insert(head.queue);
        } else {
            self.second_looks.insert(head.order.clone());
        }
    }

    /// A head with a right to preempt that finds no victims: what is free of its queue's quota shall not be lent meanwhile.
    /// A queue that may reclaim from anybody needs no such care.
    pub(crate) fn to_be_kept(&self, head: &Head, no_fit: &NoFit) -> Option<(Usage, Places)> {
        let places = no_fit.entitled_to.as_ref()?;
        let spec = self.queues[head.queue].spec.as_ref()?;
        if spec.preemption.reclaim_within_cohort == ReclaimWithinCohort::Any {
            return None;
        }
        let left = |pair: FlavorResource, amount: i64| {
            let limit = match self.tree.borrowing_limit(head.queue, pair) {
                None if no_fit.height > 0 => return amount,
                Some(limit) if no_fit.height > 0 => i128::from(limit),
                _ => 0,
            };
            let nominal = self.tree.nominal(head.queue, pair);
            // Those of the queue who leave count until they have left, and those who were promised room from when they were.
            let used = |ledger| self.tree.used(head.queue, pair, ledger);
            let free = nominal + limit - used(Ledger::Held).max(used(Ledger::Planned));
            amount.min(i64::try_from(free.max(0)).unwrap_or(i64::MAX))
        };
        let keep: Usage = no_fit
            .usage
            .iter()
            .map(|(pair, amount)| (*pair, left(*pair, *amount)))
            .filter(|(_, amount)| *amount > 0)
            .collect();
        (!keep.is_empty() || !places.is_empty()).then(|| (keep, Arc::clone(places)))
    }

    /// Nothing else progressed in the cycle, so what outran these heads is kept for somebody who waits: they look for victims
    /// instead, or let others of their queues have a look. Returns whether the next cycle sees something new.
    pub(crate) fn step_aside(&mut self, heads: Vec<Head>, kept: &[Charge], now_ms: i64) -> bool {
        let mut news = false;
        for head in heads {
            if self.preempt_instead(&head, kept, now_ms) {
                (news, self.rounds) = (true, 0);
                continue;
            }
            let Some(reason) = self.workloads.get(head.who()).and_then(|record| record.said.clone()) else {
                continue;
            };
            let done = self.put_aside(&head, reason, Beside::Standing);
            news |= matches!(done, Done::Something | Done::Round);
            if matches!(done, Done::Something) {
                self.rounds = 0;
            }
        }
        news
    }

    /// What is kept for others is as good as taken. Kueue goes on finding that such a head fits, and never looks for whom it has
    /// a right to preempt. Here it does so in its own queue; what others have in use is not to be judged by what is kept.
    fn preempt_instead(&mut self, head: &Head, kept: &[Charge], now_ms: i64) -> bool {
        if kept.is_empty() || self.is_gated(head.who()) {
            return false;
        }
        let kept = self.charge_what_is_free_of(kept);
        let found = self.assign_aside(head.who(), head.queue, |one| match &one.verdict {
            Verdict::Preempt(targets) => targets.iter().all(|target| target.queue == head.queue),
            Verdict::Fit | Verdict::Wait => false,
        });
        let done = found.map(|assignment| self.take(head, assignment, Beside::Standing, now_ms));
        self.charge_kept(&kept, -1);
        matches!(done, Some(Done::Something))
    }

    /// More may be kept than there is: the rest is in use, and nobody has to leave for it.
    fn charge_what_is_free_of(&mut self, kept: &[Charge]) -> Vec<Charge> {
        let mut charged = Vec::with_capacity(kept.len());
        for (node, usage, places) in kept {
            let free = |pair: FlavorResource, amount: i64| {
                let free = self.tree.available(*node, pair, Ledger::Planned).clamp(0, i128::from(amount));
                i64::try_from(free).unwrap_or(amount)
            };
            let usage: Usage = usage.iter().map(|(pair, amount)| (*pair, free(*pair, *amount))).collect();
            self.charge(*node, &usage, places, Ledger::Planned, 1);
            charged.push((*node, usage, Arc::clone(places)));
        }
        charged
    }
}
