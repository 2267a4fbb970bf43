//! What the engine has decided of a Workload, written to it.

use crds::reasons::workload as tokens;
use crds::view::workload::Workload;
use kit::patch::Subresource;
use kit::writes::Priority;
use model::planted::Bug;
use quota_engine::Outcome;

use super::Controller;
use super::world::{Unit, controller_of};
use crate::reconcile::{self, Job, Step};
use crate::{input, status, words};

impl Controller {
    /// The API server refuses the next step. A decision must not wait for it for ever; but nothing is admitted that its
    /// Workload no longer describes.
    pub(super) fn decide_all_the_same(
        &mut self,
        unit: &Unit,
        job: Option<&Job>,
        workload: &Workload,
        step: &Step,
    ) {
        let words = match step {
            Step::UpdateWorkload | Step::DeleteWorkload => {
                "it no longer describes its job, and the API server refuses to change it"
            }
            Step::Stop if job.is_some_and(|job| !reconcile::is_described(job, workload)) => {
                "it does not describe its job, and the API server refuses to stop that"
            }
            Step::Finish { .. } | Step::Hold(_) | Step::RemoveFinalizer => {
                "nothing runs by it any more, and the API server refuses to write that"
            }
            _ => return self.begin_decision(unit, workload),
        };
        self.refuse_decision(unit, workload, words);
    }

    /// What comes before an admission cannot be done, for these reasons, and the admission is given up for now. Quota is given back all
    /// the same.
    pub(super) fn refuse_decision(&mut self, unit: &Unit, workload: &Workload, words: &str) {
        if self.begin_withdrawal(unit, workload) {
            return;
        }
        if let Some(reserve) = self.reserves.remove(&input::uid(&workload.metadata)) {
            self.engine.written(reserve.id, Outcome::Refused(words.to_owned()));
        }
    }

    /// Another slice of the same job has its quota: this one is over.
    pub(super) fn begin_replacement(&mut self, unit: &Unit, workload: &Workload) -> bool {
        let uid = input::uid(&workload.metadata);
        let Some(by) = self.engine.replaced_by(&uid).filter(|_| !workload.holds(tokens::FINISHED)) else {
            return false;
        };
        let Some(by) = self.world.workloads.get(by) else { return false };
        let refused = self.is_status_refused(unit, workload);
        if !refused {
            let body = status::replaced(workload, &by, self.ctx.clock.now());
            self.patch_workload(unit, workload, body, Subresource::Status, Priority::Urgent, None);
        }
        !refused
    }

    pub(super) fn begin_eviction(&mut self, unit: &Unit, workload: Option<&Workload>) -> bool {
        let Some(workload) = workload else { return false };
        let uid = input::uid(&workload.metadata);
        let Some(evict) = self.evictions.remove(&uid) else { return false };
        if evict.based_on != input::version(&workload.metadata) {
            self.engine.written(evict.id, Outcome::Unsettled);
            return false;
        }
        let preemptor = evict.preemptor.as_ref().map(|uid| {
            let view = self.world.workloads.get(uid);
            let job = view.as_ref().and_then(|view| {
                let owner = || controller_of(&view.metadata).map(|owner| owner.uid.as_str());
                reconcile::job_uid(view).or_else(owner)
            });
            (uid.to_string(), job.unwrap_or("UNKNOWN").to_owned())
        });
        let preemptor = preemptor.as_ref().map(|(uid, job)| (uid.as_str(), job.as_str()));
        let message = words::eviction(evict.reason, preemptor, (&evict.preemptor_path, &evict.victim_path));
        let now = self.ctx.clock.now();
        let mut body = self.evicted(workload, evict.reason, &message, now);
        if matches!(unit, Unit::Workload(_)) && controller_of(&workload.metadata).is_none() {
            body = status::with_release(body, workload, self.comes_back(workload), now);
        }
        self.patch_workload(unit, workload, body, Subresource::Status, Priority::Urgent, Some(evict.id));
        if let Some(op) = self.busy.get_mut(unit) {
            op.preemptor = evict.preemptor;
        }
        true
    }

    /// The admission that was decided. One that gives quota waits until nothing is left of what was asked for with earlier quota.
    fn begin_reservation(&mut self, unit: &Unit, workload: &Workload) -> bool {
        let uid = input::uid(&workload.metadata);
        let Some(reserve) = self.reserves.remove(&uid) else { return false };
        if reserve.based_on != input::version(&workload.metadata) {
            self.engine.written(reserve.id, Outcome::Unsettled);
            return false;
        }
        if !workload.holds(tokens::QUOTA_RESERVED) && self.take_back(unit, workload) {
            let is_refused = self.is_status_refused(unit, workload);
            self.reserves.insert(uid, reserve);
            if is_refused && !self.busy.contains_key(unit) {
                self.refuse_decision(
                    unit,
                    workload,
                    "what was asked for with its earlier quota is still said of it",
                );
            }
            return true;
        }
        let body = self.reserved(workload, &reserve.admission, self.ctx.clock.now());
        let id = Some(reserve.id);
        self.patch_workload(unit, workload, body, Subresource::Status, Priority::Normal, id);
        true
    }

    /// The quota is taken back of one that was not admitted yet.
    fn begin_withdrawal(&mut self, unit: &Unit, workload: &Workload) -> bool {
        let Some(withdraw) = self.withdrawals.remove(&input::uid(&workload.metadata)) else { return false };
        if withdraw.based_on != input::version(&workload.metadata) {
            self.engine.written(withdraw.id, Outcome::Unsettled);
            return false;
        }
        let body = status::withdrawn(workload, &withdraw.reason, self.ctx.clock.now());
        let id = Some(withdraw.id);
        self.patch_workload(unit, workload, body, Subresource::Status, Priority::Urgent, id);
        true
    }

    /// The admission that was decided, or the reason why there is none.
    pub(super) fn begin_decision(&mut self, unit: &Unit, workload: &Workload) {
        if let Some(body) = status::without_leftovers(workload)
            && !self.is_status_refused(unit, workload)
        {
            return self.patch_workload(unit, workload, body, Subresource::Status, Priority::Normal, None);
        }
        if self.begin_reservation(unit, workload) {
            return;
        }
        if self.begin_withdrawal(unit, workload) {
            return;
        }
        let uid = input::uid(&workload.metadata);
        let now = self.ctx.clock.now();
        let waits = !workload.holds(tokens::QUOTA_RESERVED)
            && !workload.holds(tokens::FINISHED)
            && !input::is_on_hold(workload);
        if let Some(body) = self.failed_nodes(unit, workload)
            && !self.is_status_refused(unit, workload)
        {
            return self.patch_workload(unit, workload, body, Subresource::Status, Priority::Urgent, None);
        }
        let ended = self.end_waiting_for_places(unit, workload);
        if let Some(body) = ended.or_else(|| self.gates(workload)).or_else(|| self.second_phase(workload))
            && !self.is_status_refused(unit, workload)
        {
            return self.patch_workload(unit, workload, body, Subresource::Status, Priority::Normal, None);
        }
        if self.provision(unit, workload) {
            return;
        }
        let is_due_later = self.late.is_scheduled(unit) || self.engine.has_reason_of(&uid);
        let in_turn = self.late.is_in_turn(unit);
        if is_due_later && !in_turn {
            return;
        }
        // Until the object says it: the write may be shed, or meet a conflict.
        let says_nothing = self.config.planted.is(Bug::SayNothing);
        let Some(reason) = self.engine.last_reason(&uid).filter(|_| waits && !says_nothing) else { return };
        let Some(body) = self.waiting(workload, reason, now) else { return };
        if self.is_status_refused(unit, workload) {
            return;
        }
        if !in_turn && self.says_the_like(&uid, reason) {
            // A class of priorities may have been edited, and with it every workload that waits.
            return self.engine.tell_again(&uid);
        }
        self.patch_workload(unit, workload, body, Subresource::Status, Priority::Status, None);
    }
}
