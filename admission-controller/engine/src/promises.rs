//! Promises of room that others have still to leave: they are kept when it comes back, and given up when it will not, or when
//! there is something else to be had at once.

use std::sync::Arc;

use model::planted::Bug;

use crate::assign::{Assignment, NoFit, Verdict};
use crate::cycle::Head;
use crate::engine::Engine;
use crate::places::{Places, WhatIf};
use crate::process::Done;
use crate::record::{Claim, Phase};
use crate::tree::{Ledger, NodeId, Usage};
use crate::workloads::WorkloadId;

impl Engine {
    /// Gives room that came back to whom it was promised.
    pub(crate) fn keep_promises(&mut self, now_ms: i64) {
        let released = std::mem::take(&mut self.released);
        if released {
            // Who has quota already, and needs places, does not wait for the pods of others: its own are among them.
            self.second_pass.values_mut().for_each(|ready| *ready = true);
        }
        if self.pods_are_awaited() {
            self.waits_for_pods |= released;
            return;
        }
        if !released || self.planted.is(Bug::KeepNoPromise) {
            return;
        }
        self.doubts_promises = true;
        for order in self.claims.clone() {
            self.keep_promise(order.who, now_ms);
        }
    }

    pub(crate) fn claim_of(&self, who: WorkloadId) -> Option<Claim> {
        match &self.workloads.get(who)?.phase {
            Phase::Claiming(claim) => Some((**claim).clone()),
            _ => None,
        }
    }

    fn keep_promise(&mut self, who: WorkloadId, now_ms: i64) {
        let Some(claim) = self.claim_of(who) else { return };
        if self.needs_other(who, claim.queue, &claim.admission, &claim.usage) {
            self.drop_claim(who);
        } else if self.pods_are_awaited() {
            self.waits_for_pods = true;
        } else if self.fits_beside(who, claim.queue, &claim.usage, &claim.places, Ledger::Held) {
            self.reserve(who, claim.admission, claim.usage, claim.places, now_ms);
        } else {
            self.say_waiting(who, claim.queue);
        }
    }

    /// More may be promised by now than comes back: somebody stays after all, or nodes have gone or filled up with other pods.
    /// Who was to have it last looks for something else. Returns whether there is such a one. Asked when nobody has a turn, so that
    /// somebody who is told to leave once more counts as leaving.
    pub(crate) fn give_up_promises(&mut self) -> bool {
        if !std::mem::take(&mut self.doubts_promises) {
            return false;
        }
        let before = self.claims.len();
        for order in self.claims.clone().into_iter().rev() {
            let Some(claim) = self.claim_of(order.who) else { continue };
            if !self.fits_instead(order.who, &claim, (&claim.usage, &claim.places), &[Ledger::Planned]) {
                self.drop_claim(order.who);
            }
        }
        self.claims.len() < before
    }

    /// Whether it fits, in each of these books, when its own promise is not counted.
    pub(crate) fn fits_instead(
        &mut self,
        who: WorkloadId,
        claim: &Claim,
        (usage, places): (&Usage, &Places),
        ledgers: &[Ledger],
    ) -> bool {
        let begun = self.what_if();
        self.charge(claim.queue, &claim.usage, &claim.places, Ledger::Planned, -1);
        let fits = ledgers.iter().all(|ledger| self.fits_beside(who, claim.queue, usage, places, *ledger));
        self.undo(begun);
        fits
    }

    /// Whether what serves a workload of this queue may be had in more than one way.
    pub(crate) fn has_choice(&self, queue: NodeId) -> bool {
        let groups = self.queues[queue].spec.iter().flat_map(|spec| &spec.groups);
        let mut groups = groups.map(|group| &group.flavors);
        groups
            .any(|flavors| flavors.len() > 1 || flavors.iter().any(|one| self.grounds.has_index(&one.flavor)))
    }

    pub(crate) fn is_claiming(&self, who: WorkloadId) -> bool {
        self.workloads.get(who).is_some_and(|record| matches!(record.phase, Phase::Claiming(_)))
    }

    /// What one that was promised room can have at once of another flavor, or on other nodes: who has to leave for it may take long.
    pub(crate) fn found_instead(&mut self, head: &Head) -> Option<Assignment> {
        self.queues[head.queue].reconsidering.remove(&head.order);
        let claim = self.claim_of(head.who())?;
        let begun = self.what_if();
        self.charge(claim.queue, &claim.usage, &claim.places, Ledger::Planned, -1);
        let found = self.assign_free(head.who(), claim.queue, None);
        self.undo(begun);
        found
    }

    /// What is free now for the head of a StrictFIFO queue that was `found` nothing free, if nothing is promised to those after it.
    pub(crate) fn found_before_claims(
        &mut self,
        head: &Head,
        found: &Result<Assignment, NoFit>,
    ) -> Option<Assignment> {
        let goes_on = match found {
            Ok(found) => matches!(found.verdict, Verdict::Fit | Verdict::Wait),
            Err(_) => self.flavors_left(head.who()),
        };
        if goes_on || self.pods_are_awaited() {
            return None;
        }
        let begun = self.without_claims_after(head)?;
        let found = self.assign_free(head.who(), head.queue, None);
        self.undo(begun);
        found
    }

    /// Gives that to the head, where promises to those after it are in the way and nothing else is. They look for something else then.
    pub(crate) fn take_before_claims(
        &mut self,
        head: &Head,
        found: &Assignment,
        now_ms: i64,
    ) -> Option<Done> {
        let Assignment { admission, usage, places, verdict, .. } = found;
        if !matches!(verdict, Verdict::Fit) || self.pods_are_awaited() {
            return None;
        }
        let (who, queue) = (head.who(), head.queue);
        let begun = self.without_claims_after(head)?;
        let mut fits = |ledger| self.fits_beside(who, queue, usage, places, ledger);
        let is_free = fits(Ledger::Planned) && fits(Ledger::Held);
        self.undo(begun);
        if !is_free || self.fits_beside(who, queue, usage, places, Ledger::Planned) {
            return None;
        }
        for order in self.queues[queue].claims_after(&head.order) {
            if let Some(claim) = self.claim_of(order.who) {
                self.freed.extend(self.queues_beside(&claim.places));
            }
            self.drop_claim(order.who);
        }
        self.freed.insert(queue);
        self.reserve(who, Arc::clone(admission), Arc::clone(usage), Arc::clone(places), now_ms);
        Some(Done::Something)
    }

    /// Begins a what-if in which nothing is promised to those who come after the head of a StrictFIFO queue; `None` where nothing is.
    fn without_claims_after(&mut self, head: &Head) -> Option<WhatIf> {
        let after = self.queues[head.queue].claims_after(&head.order);
        let claims: Vec<Claim> = after.iter().filter_map(|order| self.claim_of(order.who)).collect();
        if claims.is_empty() {
            return None;
        }
        let begun = self.what_if();
        for claim in claims {
            self.charge(claim.queue, &claim.usage, &claim.places, Ledger::Planned, -1);
        }
        Some(begun)
    }

    /// It takes that, if those before it in the cycle have left it. Then nobody has to leave for it any more; those who were told to
    /// leave room for others.
    pub(crate) fn take_instead(&mut self, head: &Head, found: Assignment, now_ms: i64) -> Done {
        let who = head.who();
        let Some(claim) = self.claim_of(who) else { return Done::Nothing };
        let Assignment { admission, usage, places, .. } = found;
        if self.pods_are_awaited() {
            self.waits_for_pods = true;
        } else if self.fits_instead(who, &claim, (&usage, &places), &[Ledger::Planned, Ledger::Held]) {
            self.displaces(who, &[]);
            self.displacements.forget(who);
            self.reserve(who, admission, usage, places, now_ms);
            self.released = true;
            self.freed.insert(claim.queue);
            self.freed.extend(self.queues_beside(&claim.places));
        }
        // In any case the next of its queue has a turn.
        Done::Something
    }
}
