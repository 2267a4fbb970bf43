//! Promises of room that others have still to leave: they are kept when it comes back, and given up when it will not, or when
//! there is something else to be had at once.

use std::sync::Arc;

use model::planted::Bug;

use crate::assign::{Assignment, Verdict};
use crate::engine::Engine;
use crate::line::Order;
use crate::record::{Claim, Phase};
use crate::tree::Ledger;
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
        for order in self.claims.clone() {
            self.keep_promise(&order, now_ms);
        }
        self.give_up_promises();
        for order in self.claims.clone() {
            if let Some(claim) = self.claim_of(order.who) {
                self.say_waiting(order.who, claim.queue);
            }
        }
    }

    fn claim_of(&self, who: WorkloadId) -> Option<Claim> {
        match &self.workloads.get(who)?.phase {
            Phase::Claiming(claim) => Some((**claim).clone()),
            _ => None,
        }
    }

    fn keep_promise(&mut self, order: &Order, now_ms: i64) {
        let who = order.who;
        let Some(claim) = self.claim_of(who) else { return };
        if self.needs_other(who, claim.queue, &claim.admission, &claim.usage) {
            self.drop_claim(who);
        } else if self.pods_are_awaited() {
            self.waits_for_pods = true;
        } else if self.fits_beside(who, claim.queue, &claim.usage, &claim.places, Ledger::Held) {
            self.reserve(who, claim.admission, claim.usage, claim.places, now_ms);
        } else if self.queues[claim.queue].next_turn().is_some_and(|next| next < order) {
            // What else has come free is for the one before it in its queue, who has not been looked at yet.
            self.released = true;
        } else if let Some(found) = self.found_instead(who, &claim) {
            // Nobody has to leave for it any more; those who were told to leave room for others.
            self.displaces(who, &[]);
            self.displacements.forget(who);
            self.reserve(who, found.admission, Arc::new(found.usage), found.places, now_ms);
            self.reactivate_tree(claim.queue);
            self.places_freed(&claim.places);
        }
    }

    /// What it can have at once in place of what it was promised: of another flavor, or on other nodes. Who has to leave for it may
    /// take long.
    fn found_instead(&mut self, who: WorkloadId, claim: &Claim) -> Option<Assignment> {
        let spec = self.queues[claim.queue].spec.as_ref()?;
        if claim.places.is_empty() && spec.groups.iter().all(|group| group.flavors.len() < 2) {
            return None;
        }
        let begun = self.what_if();
        self.charge(claim.queue, &claim.usage, &claim.places, Ledger::Planned, -1);
        let found = self.assign_aside(who, claim.queue, |one| matches!(one.verdict, Verdict::Fit));
        let found = found.filter(|one| {
            [Ledger::Planned, Ledger::Held]
                .into_iter()
                .all(|ledger| self.fits_beside(who, claim.queue, &one.usage, &one.places, ledger))
        });
        self.undo(begun);
        found
    }

    /// More may be promised by now than comes back: somebody stays after all, or nodes have gone or filled up with other pods.
    /// Who was to have it last looks for something else.
    fn give_up_promises(&mut self) {
        for order in self.claims.clone().into_iter().rev() {
            let Some(claim) = self.claim_of(order.who) else { continue };
            let begun = self.what_if();
            self.charge(claim.queue, &claim.usage, &claim.places, Ledger::Planned, -1);
            let stands =
                self.fits_beside(order.who, claim.queue, &claim.usage, &claim.places, Ledger::Planned);
            self.undo(begun);
            if !stands {
                self.drop_claim(order.who);
            }
        }
    }
}
