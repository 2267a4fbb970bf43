//! Promises of room that others have still to leave: they are kept when it comes back, and given up when it will not, or when
//! there is something else to be had at once.

use std::sync::Arc;

use model::planted::Bug;

use crate::engine::Engine;
use crate::kept::Charge;
use crate::line::Order;
use crate::record::{Claim, Phase};
use crate::tree::Ledger;
use crate::workloads::WorkloadId;

/// So many look for something else at a time, the first of them: each may look at every node.
const RECONSIDERED: usize = 256;

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
        self.reconsiders = true;
        for order in self.claims.clone() {
            self.keep_promise(order.who, now_ms);
        }
    }

    fn claim_of(&self, who: WorkloadId) -> Option<Claim> {
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

    /// Room came back, and nobody has a use for what is left of it, except for what is `kept`. Promises that cannot be kept any more
    /// end, and whoever was promised something else takes what is there. Returns whether the next cycle sees something new.
    pub(crate) fn reconsider_promises(&mut self, kept: &[Charge], now_ms: i64) -> bool {
        if self.pods_are_awaited() || !std::mem::take(&mut self.reconsiders) {
            return false;
        }
        if self.give_up_promises() {
            self.reconsiders = true;
            return true;
        }
        let kept = self.charge_what_is_free_of(kept);
        let mut news = false;
        for order in self.claims.iter().take(RECONSIDERED).cloned().collect::<Vec<_>>() {
            news |= self.take_instead(&order, now_ms);
        }
        self.charge_kept(&kept, -1);
        news
    }

    /// More may be promised by now than comes back: somebody stays after all, or nodes have gone or filled up with other pods.
    /// Who was to have it last looks for something else. Returns whether there is such a one.
    fn give_up_promises(&mut self) -> bool {
        let before = self.claims.len();
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
        self.claims.len() < before
    }

    /// Who has to leave for it may take long about it: it takes another flavor, or other nodes, if it can have them at once. Then
    /// nobody has to leave for it any more; those who were told to leave room for others.
    fn take_instead(&mut self, order: &Order, now_ms: i64) -> bool {
        let who = order.who;
        let Some(claim) = self.claim_of(who) else { return false };
        let Some(spec) = &self.queues[claim.queue].spec else { return false };
        let is_all = claim.places.is_empty() && spec.groups.iter().all(|group| group.flavors.len() < 2);
        // Nobody overtakes the head of a StrictFIFO queue.
        let queue = &self.queues[claim.queue];
        if is_all || queue.is_strict() && queue.head().is_some_and(|head| head < order) {
            return false;
        }
        let begun = self.what_if();
        self.charge(claim.queue, &claim.usage, &claim.places, Ledger::Planned, -1);
        let found = self.assign_free(who, claim.queue);
        self.undo(begun);
        let Some((admission, usage, places)) = found else { return false };
        self.displaces(who, &[]);
        self.displacements.forget(who);
        self.reserve(who, admission, Arc::new(usage), places, now_ms);
        self.reactivate_tree(claim.queue);
        self.places_freed(&claim.places);
        true
    }
}
