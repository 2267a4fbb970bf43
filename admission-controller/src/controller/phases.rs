//! The second phase of an admission, what follows from the states of pods, and what ends by itself.

use crds::reasons::event as reasons;
use crds::reasons::workload as tokens;
use crds::view::workload::{AdmissionCheckState, CheckState, Workload};
use jiff::Timestamp;
use kit::events::Severity;
use kit::patch::Subresource;
use kit::writes::Priority;
use model::planted::Bug;
use quota_engine::input::Admission;
use quota_engine::{EvictReason, PendingReason};
use serde_json::Value;

use super::Controller;
use super::world::Unit;
use crate::lifetime::{self, End};
use crate::pods::PodsKey;
use crate::reconcile::{Job, Step};
use crate::{checks, input, jobs, placement, requeue, status, words};

impl Controller {
    /// The reservation, with the states of the checks that stand between it and the admission.
    pub(super) fn reserved(&self, workload: &Workload, admission: &Admission, now: Timestamp) -> Value {
        let flavors = admission.pod_sets.iter().flat_map(|set| set.flavors.values());
        let flavors = flavors.map(|flavor| flavor.as_str()).collect();
        let seen = &workload.status.admission_checks;
        let listed = match self.world.cluster_queue(&admission.cluster_queue) {
            Some(queue) => checks::listed(seen, &checks::on_flavors(queue, &flavors), now),
            None => seen.clone(),
        };
        let listed = if self.config.planted.is(Bug::AdmitBeforeChecks) { Vec::new() } else { listed };
        status::reserved(workload, admission, &listed, self.waits_for_pods(workload), now)
    }

    /// Whether the pods of a workload are to be ready in time. Who has no job has nobody who would ever say that they are.
    fn waits_for_pods(&self, workload: &Workload) -> bool {
        let has_job = workload.metadata.owner_references.as_ref().is_some_and(|owners| !owners.is_empty());
        has_job && self.world.rules.pods_ready().is_some()
    }

    /// The eviction, with the time until which the workload is put off.
    pub(super) fn evicted(
        &self,
        workload: &Workload,
        reason: EvictReason,
        message: &str,
        now: Timestamp,
    ) -> Value {
        let pods_ready = self.world.rules.pods_ready();
        let unready = matches!(reason, EvictReason::PodsReadyTimeout(_));
        let backoff = pods_ready.filter(|_| unready).map(|pods_ready| pods_ready.backoff(workload, now));
        let message = match reason {
            EvictReason::AdmissionCheck => {
                let told = checks::told(&workload.status.admission_checks, CheckState::Retry);
                format!("{message}: {told}")
            }
            _ => message.to_owned(),
        };
        status::evicted(workload, reason, &message, backoff, now)
    }

    /// Takes back what a place-holding check said, or did not say, for too long; sees to it that it is looked at then.
    pub(super) fn end_waiting_for_places(&mut self, unit: &Unit, workload: &Workload) -> Option<Value> {
        let (admitted, evicted) = (workload.holds(tokens::ADMITTED), workload.holds(tokens::EVICTED));
        if !workload.holds(tokens::QUOTA_RESERVED) || admitted || evicted || workload.holds(tokens::FINISHED)
        {
            return None;
        }
        let now = self.ctx.clock.now();
        let since = workload.condition(tokens::QUOTA_RESERVED)?.last_transition_time.0;
        let listed = &workload.status.admission_checks;
        let (mut states, mut next) = (listed.clone(), None::<Timestamp>);
        for state in &mut states {
            let check = self.world.check(&state.name.as_str().into());
            let check = check.filter(|check| placement::is_placement(check));
            let others = listed.iter().filter(|other| other.name != state.name);
            let until = check.and(placement::valid_until(state, since, others));
            match until {
                Some(until) if until <= now => *state = placement::overdue(state, now),
                Some(until) => next = Some(next.map_or(until, |earlier| earlier.min(until))),
                None => {}
            }
        }
        if let Some(next) = next {
            self.wake_at(unit, next);
        }
        (states != workload.status.admission_checks).then(|| status::listed(workload, &states, now))
    }

    /// The states of its preemption gates, where anybody looks at them.
    pub(super) fn gates(&self, workload: &Workload) -> Option<Value> {
        let looks = self.config.file.heeds_preemption_gates() && !workload.holds(tokens::FINISHED);
        looks.then(|| status::gates(workload, self.ctx.clock.now())).flatten()
    }

    /// What the states of its admission checks make of a workload. Those that nobody asks for count no more.
    pub(super) fn second_phase(&self, workload: &Workload) -> Option<Value> {
        if workload.holds(tokens::FINISHED) || workload.holds(tokens::EVICTED) {
            return self.put_off(workload);
        }
        let (seen, now) = (&workload.status.admission_checks, self.ctx.clock.now());
        if !workload.holds(tokens::QUOTA_RESERVED) {
            return self.put_off(workload).or_else(|| self.introduced(workload));
        }
        let admission = workload.status.admission.as_ref()?;
        let queue = self.world.cluster_queue(&admission.cluster_queue.as_str().into())?;
        let listed = checks::listed(seen, &checks::of_workload(queue, Some(admission)), now);
        if !checks::same(&listed, seen) {
            return Some(status::listed(workload, &listed, now));
        }
        // Who has quota and need not pass a check is admitted with it, unless somebody else gave the quota.
        let admitted = workload.holds(tokens::ADMITTED);
        (!admitted).then(|| status::synced(workload, now)).flatten()
    }

    /// That a new one waits, and why if that is known: where it is to be said at once, and not when it is the reason's turn.
    fn introduced(&self, workload: &Workload) -> Option<Value> {
        let is_explicit = self.config.file.feature_gates.unadmitted_workloads_explicit_status;
        if !is_explicit || workload.condition(tokens::QUOTA_RESERVED).is_some() {
            return None;
        }
        let (uid, now) = (input::uid(&workload.metadata), self.ctx.clock.now());
        match self.engine.last_reason(&uid) {
            Some(reason) => self.waiting(workload, reason, now),
            None => status::introduced(workload, self.waits_for_pods(workload), now),
        }
    }

    /// Why it waits, with the checks that it has to pass whatever flavors it gets. Kueue lists them before, in a write that those
    /// who are admitted at once are spared here. `None` where its status says both.
    pub(super) fn waiting(
        &self,
        workload: &Workload,
        reason: &PendingReason,
        now: Timestamp,
    ) -> Option<Value> {
        let requests = self.engine.requests_of(&input::uid(&workload.metadata));
        let said = status::pending(workload, reason, &requests, self.waits_for_pods(workload), now);
        let Some(foreseen) = self.foreseen(workload, now) else { return said };
        let mut listed = status::listed(workload, &foreseen, now);
        let Some(mut body) = said else { return Some(listed) };
        body["status"]["admissionChecks"] = listed["status"]["admissionChecks"].take();
        Some(body)
    }

    /// The states of checks that the status of one that waits lacks, with those that it has; `None` where it lacks none.
    fn foreseen(&self, workload: &Workload, now: Timestamp) -> Option<Vec<AdmissionCheckState>> {
        let queue = self.engine.cluster_queue_of(&input::uid(&workload.metadata))?;
        let seen = &workload.status.admission_checks;
        let foreseen = checks::foreseen(seen, self.world.cluster_queue(&queue)?, now);
        (!checks::same(&foreseen, seen)).then_some(foreseen)
    }

    /// Of one without quota: states of checks that its queue no longer asks for go, it is put off for as long as a check wants
    /// it, and a check that wants a retry is asked anew. As a rule the eviction has done so; one that spoke up while that was
    /// under way, be it to refuse the workload for good, would keep it waiting for ever (Kueue #3543). What refuses one that was
    /// not evicted keeps it waiting, as in Kueue.
    fn put_off(&self, workload: &Workload) -> Option<Value> {
        let (seen, now) = (&workload.status.admission_checks, self.ctx.clock.now());
        if seen.is_empty() || workload.holds(tokens::FINISHED) || workload.holds(tokens::QUOTA_RESERVED) {
            return None;
        }
        if let Some(foreseen) = self.foreseen(workload, now) {
            return Some(status::listed(workload, &foreseen, now));
        }
        let until = checks::retry_at(seen).filter(|at| *at > now);
        let state = requeue::put_off(workload.status.requeue_state.as_ref(), until, false);
        match state {
            Some(state) => Some(status::put_off(&state)),
            None => {
                let evicted = workload.holds(tokens::EVICTED);
                let anew = if evicted { checks::have_failed(seen) } else { checks::want_a_retry(seen) };
                anew.then(|| status::listed(workload, &checks::reset(seen, now), now))
            }
        }
    }

    /// Tells the owner of a job what the checks say for which it waits.
    pub(super) fn tell_checks(&mut self, unit: &Unit, job: &Job, workload: &Workload) {
        if let Some(words) = self.news_of_checks(unit, workload) {
            self.about_job(job, Severity::Normal, reasons::UPDATED_ADMISSION_CHECK, &words);
        }
    }

    /// The same of pods that have a Workload: each of them.
    pub(super) fn tell_checks_to_pods(&mut self, unit: &Unit, key: &PodsKey, workload: &Workload) {
        let Some(words) = self.news_of_checks(unit, workload) else { return };
        for pod in self.world.group(key).iter().flat_map(|group| &group.pods) {
            self.about_pod(pod, reasons::UPDATED_ADMISSION_CHECK, &words);
        }
    }

    /// What the checks say for which it waits, where that was not told yet.
    fn news_of_checks(&mut self, unit: &Unit, workload: &Workload) -> Option<String> {
        const REASON: &str = reasons::UPDATED_ADMISSION_CHECK;
        let says = |check: &&AdmissionCheckState| !check.message.is_empty();
        let states: Vec<_> = workload.status.admission_checks.iter().filter(says).cloned().collect();
        let words = checks::told(&states, CheckState::Pending);
        let waits = workload.holds(tokens::QUOTA_RESERVED) && !workload.holds(tokens::ADMITTED);
        if !waits || words.is_empty() || self.has_told(unit, REASON, &words, None) {
            return None;
        }
        self.remember_told(unit, REASON, &words, self.ctx.clock.monotonic() + super::TELL_AGAIN);
        Some(words)
    }

    /// Says of an admitted workload whether its pods are ready, if that is to be said.
    pub(super) fn tell_pods(&mut self, unit: &Unit, ready: bool, workload: &Workload) -> bool {
        let waits = self.world.rules.pods_ready().is_some();
        let Some(state) = crate::ready::news(workload, ready).filter(|_| waits) else { return false };
        if self.is_status_refused(unit, workload) {
            return false;
        }
        let body = status::pods_ready(workload, state, self.ctx.clock.now());
        self.patch_workload(unit, workload, body, Subresource::Status, Priority::Normal, None);
        true
    }

    /// Whether an admitted one is about to leave: it was decided, or its time is over.
    pub(super) fn is_about_to_leave(&self, workload: &Workload) -> bool {
        let is_decided = || self.evictions.contains_key(&input::uid(&workload.metadata));
        let is_over = || {
            let next = lifetime::next(workload, &self.world.rules);
            next.is_some_and(|(at, end)| at <= self.ctx.clock.now() && matches!(end, End::Target { .. }))
        };
        input::stands(workload) && (is_decided() || is_over())
    }

    /// Tells that the pods are ready of one that is about to leave because that was not told.
    pub(super) fn tell_ready_before_leaving(
        &mut self,
        unit: &Unit,
        ready: bool,
        workload: &Workload,
    ) -> bool {
        let evict = self.evictions.get(&input::uid(&workload.metadata));
        let is_late = evict.is_none_or(|evict| matches!(evict.reason, EvictReason::PodsReadyTimeout(_)));
        ready && is_late && self.tell_pods(unit, ready, workload)
    }

    /// Whoever has ended, or is ready, does not leave because nobody was there to tell it: that is told first.
    pub(super) fn tell_before_leaving(&mut self, unit: &Unit, job: &Job, workload: &Workload) -> bool {
        if !self.is_about_to_leave(workload) {
            return false;
        }
        let step = self.next_step(unit, job, Some(workload));
        if matches!(step, Step::Finish { .. }) && !self.is_status_refused(unit, workload) {
            self.begin_step(unit, Some(job), Some(workload), step);
            return true;
        }
        self.tell_ready_before_leaving(unit, jobs::are_ready(job.kind, &job.object), workload)
    }

    /// Begins what takes a workload from where it is: the eviction that was decided, or what ends by itself.
    pub(super) fn begin_leave(
        &mut self,
        unit: &Unit,
        job: Option<&Job>,
        workload: Option<&Workload>,
    ) -> bool {
        self.begin_eviction(unit, workload) || self.end(unit, job, workload)
    }

    /// Ends what is to end by itself, or sees to it that it is looked at when it is to.
    pub(super) fn end(&mut self, unit: &Unit, job: Option<&Job>, workload: Option<&Workload>) -> bool {
        let Some(workload) = workload else { return false };
        let Some((at, end)) = lifetime::next(workload, &self.world.rules) else { return false };
        let now = self.ctx.clock.now();
        if at > now {
            self.wake_at(unit, at);
            return false;
        }
        if self.is_aim_refused(unit, workload, end.aim()) {
            return false;
        }
        let (status, urgent) = (Subresource::Status, Priority::Urgent);
        match end {
            End::Target { reason, message } => {
                let body = status::deactivation_target(workload, reason, &message, now);
                self.patch_workload(unit, workload, body, status, urgent, None);
            }
            End::Deactivate => {
                self.patch_workload(unit, workload, status::inactive(), Subresource::Main, urgent, None);
            }
            End::Evict => {
                let message = words::eviction(EvictReason::Deactivated, None, ("", ""));
                let body = status::evicted(workload, EvictReason::Deactivated, &message, None, now);
                self.patch_workload(unit, workload, body, status, urgent, None);
            }
            End::Forget => {
                self.patch_workload(unit, workload, status::forgotten(workload), status, urgent, None);
            }
            End::DeleteWorkload => {
                self.about_workload(workload, Severity::Normal, reasons::DELETED, "kept for long enough");
                self.delete_workload(unit, workload);
            }
            // Pods go each by itself: see `is_outlived`.
            End::DeleteJob => match job {
                // Who names no queue any more is left alone.
                Some(job)
                    if job.object.metadata.deletion_timestamp.is_none()
                        && !self.world.is_unqueued(&job.object) =>
                {
                    self.about_job(job, Severity::Normal, reasons::DELETED, "deactivated for long enough");
                    self.delete_job(unit, job, workload);
                }
                _ => return false,
            },
        }
        true
    }

    /// Whether a workload was deactivated here, and kept for as long as those are.
    pub(super) fn is_outlived(&self, workload: &Workload) -> bool {
        let next = lifetime::next(workload, &self.world.rules);
        next.is_some_and(|(at, end)| end == End::DeleteJob && at <= self.ctx.clock.now())
    }

    /// Has a unit looked at at this time.
    pub(super) fn wake_at(&mut self, unit: &Unit, at: Timestamp) {
        if self.alarms.entry(unit.clone()).or_default().insert(at) {
            let when = self.instant(at.as_millisecond());
            self.due.insert((when, unit.clone()));
        }
    }

    /// This time, in milliseconds since the epoch, by the clock that only goes forward.
    pub(super) fn instant(&self, at_ms: i64) -> tokio::time::Instant {
        let wait = at_ms.saturating_sub(self.ctx.clock.unix_millis());
        let wait = u64::try_from(wait).unwrap_or(0).min(super::LONGEST_WAIT_MS);
        self.ctx.clock.monotonic() + std::time::Duration::from_millis(wait)
    }
}
