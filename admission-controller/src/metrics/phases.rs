//! What is counted between quota and the end: checks, pods that get ready, evictions by cause.

use crds::reasons::workload as tokens;
use crds::view::workload::{Evictions, Workload};
use jiff::Timestamp;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::{Causes, Counters, OfCause, OfClass, OfEviction, Waits, remember, seconds_between, waits};

/// The series of one replica.
#[derive(Clone, Debug)]
pub(super) struct PhaseMetrics {
    checks: Waits,
    ready: Waits,
    admitted_until_ready: Waits,
    ready_until_evicted: Family<OfCause, Histogram, fn() -> Histogram>,
    evicted_once: Counters<OfEviction>,
}

impl PhaseMetrics {
    pub(super) fn new() -> Self {
        Self {
            checks: Family::new_with_constructor(waits),
            ready: Family::new_with_constructor(waits),
            admitted_until_ready: Family::new_with_constructor(waits),
            ready_until_evicted: Family::new_with_constructor(waits),
            evicted_once: Family::default(),
        }
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "kueue_admission_checks_wait_time_seconds",
            "From quota to admission",
            self.checks.clone(),
        );
        registry.register(
            "kueue_ready_wait_time_seconds",
            "From being queued until all pods were ready",
            self.ready.clone(),
        );
        registry.register(
            "kueue_admitted_until_ready_wait_time_seconds",
            "From admission until all pods were ready",
            self.admitted_until_ready.clone(),
        );
        registry.register(
            "kueue_pods_ready_to_evicted_time_seconds",
            "From all pods being ready until the eviction, of workloads that did not run to their end",
            self.ready_until_evicted.clone(),
        );
        registry.register(
            "kueue_evicted_workloads_once",
            "Workloads that were evicted for this reason at least once",
            self.evicted_once.clone(),
        );
    }

    /// It was admitted: how long it had quota before. Of one without checks that came to both at once nothing is counted.
    pub(super) fn admitted(&self, labels: &OfClass, before: &Workload, after: &Workload) {
        let had_quota = before.holds(tokens::QUOTA_RESERVED);
        if had_quota || !after.status.admission_checks.is_empty() {
            let took = seconds_between(after, tokens::QUOTA_RESERVED, tokens::ADMITTED);
            self.checks.get_or_create(labels).observe(took);
        }
    }

    /// All its pods became ready; `waited` is since it was queued. Counted once an admission.
    pub(super) fn ready(&self, labels: &OfClass, after: &Workload, waited: f64) {
        let said = after.condition(tokens::PODS_READY);
        if said.is_none_or(|one| one.reason != tokens::pods_ready::STARTED) {
            return;
        }
        self.ready.get_or_create(labels).observe(waited);
        let took = seconds_between(after, tokens::ADMITTED, tokens::PODS_READY);
        self.admitted_until_ready.get_or_create(labels).observe(took);
    }

    /// It was evicted, for the cause whose count went up.
    pub(super) fn evicted(
        &self,
        labels: &OfEviction,
        stats: &Evictions,
        after: &Workload,
        known: &mut Causes,
    ) {
        if stats.count == 1 {
            self.evicted_once.get_or_create(labels).inc();
        }
        if after.holds(tokens::PODS_READY) {
            let cause = OfCause {
                cluster_queue: labels.cluster_queue.clone(),
                reason: labels.reason.clone(),
                underlying_cause: labels.underlying_cause.clone(),
                replica_role: labels.replica_role,
            };
            let took = seconds_between(after, tokens::PODS_READY, tokens::EVICTED);
            self.ready_until_evicted.get_or_create(&cause).observe(took);
            remember(known, &labels.cluster_queue, cause);
        }
    }

    pub(super) fn forget_class(&self, labels: &OfClass) {
        for waits in [&self.checks, &self.ready, &self.admitted_until_ready] {
            waits.remove(labels);
        }
    }

    pub(super) fn forget_eviction(&self, labels: &OfEviction) {
        self.evicted_once.remove(labels);
    }

    pub(super) fn forget_cause(&self, labels: &OfCause) {
        self.ready_until_evicted.remove(labels);
    }
}

/// The entry of `schedulingStats` that says what it did not say before, and why it says so.
pub(super) fn newly_counted<'a>(before: Option<&Workload>, after: &'a Workload) -> Option<&'a Evictions> {
    let count = |one: &Evictions| {
        let seen = before.into_iter().flat_map(|before| &before.status.scheduling_stats.evictions);
        let mut seen = seen.filter(|seen| seen.reason == one.reason);
        seen.find(|seen| seen.underlying_cause == one.underlying_cause).map_or(0, |seen| seen.count)
    };
    after.status.scheduling_stats.evictions.iter().find(|one| one.count > count(one))
}

/// Seconds since it was queued: created, or queued again after an eviction, which is when it was no longer put off.
pub(super) fn waited(before: &Workload, now: Timestamp) -> f64 {
    let requeued = before.condition(tokens::REQUEUED).map(|one| {
        let put_off = before.status.requeue_state.as_ref().and_then(|state| state.requeue_at.as_ref());
        let until = put_off.filter(|_| one.status == "False").map(|until| until.0);
        until.unwrap_or(one.last_transition_time.0).max(one.last_transition_time.0)
    });
    let created = before.metadata.creation_timestamp.as_ref().map(|time| time.0);
    requeued.or(created).map_or(0.0, |since| now.duration_since(since).as_secs_f64().max(0.0))
}
