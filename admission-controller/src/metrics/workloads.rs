//! What happens to workloads: quota, admission, eviction, the end; and how long each took.

use std::time::Duration;

use crds::reasons::workload as tokens;
use crds::view::local_queue::LocalQueue;
use crds::view::workload::{Admission, Evictions, Workload};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use quota_engine::{ClusterQueueName, CohortName};

use super::table;
use super::{Metric, Owner, QueueMetrics};
use crate::{phase, requeue, slices};

/// A write of a Workload's status.
pub struct Written<'a> {
    /// As it was before.
    pub before: Option<&'a Workload>,
    /// As it is now.
    pub after: &'a Workload,
    /// The ClusterQueue it was evicted for.
    pub preemptor: Option<&'a str>,
    /// The LocalQueue it names, if there is one.
    pub local_queue: Option<&'a LocalQueue>,
    /// When.
    pub now: Timestamp,
}

impl<'a> Written<'a> {
    fn became(&self, kind: &str) -> bool {
        self.after.holds(kind) && !self.before.is_some_and(|before| before.holds(kind))
    }

    /// Who is evicted may have lost it with the same write.
    fn admission(&self) -> Option<&'a Admission> {
        self.after.status.admission.as_ref().or_else(|| self.before?.status.admission.as_ref())
    }
}

/// The same metric of a ClusterQueue and of its LocalQueue.
struct Pair(&'static Metric, &'static Metric);

/// The series that a workload counts in.
struct Places<'a> {
    metrics: &'a QueueMetrics,
    queue: &'a str,
    class: String,
    /// The LocalQueue's name and namespace, and the class there, where that is shown.
    local: Option<([&'a str; 2], String)>,
}

impl Places<'_> {
    fn add(&self, pair: &Pair) {
        self.metrics.series.add(pair.0, &[self.queue, &self.class], 1);
        if let Some(([name, namespace], class)) = &self.local {
            self.metrics.series.add(pair.1, &[name, namespace, class], 1);
        }
    }

    fn observe(&self, pair: &Pair, seconds: f64) {
        self.metrics.series.observe(pair.0, &[self.queue, &self.class], seconds);
        if let Some(([name, namespace], class)) = &self.local {
            self.metrics.series.observe(pair.1, &[name, namespace, class], seconds);
        }
    }
}

impl QueueMetrics {
    /// A written Workload status: what it says that it did not say before. `cohorts` tells those above a ClusterQueue.
    pub fn written(&self, written: &Written<'_>, cohorts: impl FnOnce(&ClusterQueueName) -> Vec<CohortName>) {
        self.ended(written);
        let Written { before, after, now, .. } = *written;
        let became = |kind: &str| written.became(kind);
        let Some(admission) = written.admission() else { return };
        let places = self.places(after, &admission.cluster_queue, written.local_queue);
        let queued = waited(before.unwrap_or(after), after, now);
        if became(tokens::QUOTA_RESERVED) {
            places.add(&Pair(&table::RESERVED, &table::LOCAL_RESERVED));
            places.observe(&Pair(&table::RESERVED_WAIT, &table::LOCAL_RESERVED_WAIT), queued);
        }
        if became(tokens::ADMITTED) {
            places.add(&Pair(&table::ADMITTED, &table::LOCAL_ADMITTED));
            places.observe(&Pair(&table::ADMITTED_WAIT, &table::LOCAL_ADMITTED_WAIT), queued);
            self.checked(&places, before.unwrap_or(after), after);
            for cohort in cohorts(&ClusterQueueName::from(places.queue)) {
                let class = self.class(Owner::Cohort, &[cohort.as_str()], class_of(after));
                self.series.add(&table::COHORT_ADMITTED, &[cohort.as_str(), &class], 1);
            }
        }
        if became(tokens::PODS_READY) {
            ready(&places, after, queued);
        }
        if became(tokens::FINISHED) && slices::was_replaced(after) {
            self.series.add(&table::REPLACED, &[places.queue], 1);
        }
        if let (true, Some(stats)) = (became(tokens::EVICTED), newly_counted(before, after)) {
            self.evicted(&places, stats, before.unwrap_or(after), after);
        }
        if let (true, Some(preemptor)) = (became(tokens::PREEMPTED), written.preemptor) {
            let reason = after.condition(tokens::PREEMPTED).map_or("", |said| said.reason.as_str());
            self.series.add(&table::PREEMPTED, &[preemptor, reason], 1);
        }
    }

    /// The part of [`QueueMetrics::written`] that counts whoever wrote it: that quota came back after an eviction, and the end.
    pub fn ended(&self, written: &Written<'_>) {
        let Written { before, after, local_queue, now, .. } = *written;
        // One that was deactivated is not measured: in Kueue, which counts its quota as free at once, it does not come back among
        // those that wait.
        let waits = before.filter(|_| after.spec.active.unwrap_or(true));
        if let Some(done) = waits.and_then(|before| phase::eviction_done(before, after, now)) {
            let labels = [done.cluster_queue, done.reason];
            self.series.observe(&table::EVICTION_TOOK, &labels, done.took.as_secs_f64());
        }
        if written.became(tokens::FINISHED) {
            let admission = written.admission();
            let queue = admission.map_or("", |admission| admission.cluster_queue.as_str());
            // As in Kueue, LocalQueues count only what a ClusterQueue let in.
            finished(&self.places(after, queue, local_queue.filter(|_| admission.is_some())), after);
        }
    }

    fn places<'a>(
        &'a self,
        view: &Workload,
        queue: &'a str,
        local_queue: Option<&'a LocalQueue>,
    ) -> Places<'a> {
        let shown = local_queue.filter(|one| self.shows_local_queue(one.metadata.labels.as_ref()));
        let local = shown.map(|one| {
            let metadata = &one.metadata;
            let names =
                [metadata.name.as_deref(), metadata.namespace.as_deref()].map(Option::unwrap_or_default);
            (names, self.class(Owner::LocalQueue, &names, class_of(view)))
        });
        let class = self.class(Owner::ClusterQueue, &[queue], class_of(view));
        Places { metrics: self, queue, class, local }
    }

    /// How long it had quota before it was admitted. Of one without checks that came to both at once nothing is counted.
    fn checked(&self, places: &Places<'_>, before: &Workload, after: &Workload) {
        if before.holds(tokens::QUOTA_RESERVED) || !after.status.admission_checks.is_empty() {
            let took = seconds_between(after, tokens::QUOTA_RESERVED, tokens::ADMITTED);
            places.observe(&Pair(&table::CHECKS_WAIT, &table::LOCAL_CHECKS_WAIT), took);
        }
    }

    /// It was evicted, for the cause whose count went up.
    fn evicted(&self, places: &Places<'_>, stats: &Evictions, before: &Workload, after: &Workload) {
        let Evictions { reason, underlying_cause: cause, .. } = stats;
        let labels = [places.queue, reason, cause, &places.class];
        self.series.add(&table::EVICTED, &labels, 1);
        if stats.count == 1 {
            self.series.add(&table::EVICTED_ONCE, &labels, 1);
        }
        if let Some(([name, namespace], class)) = &places.local {
            self.series.add(&table::LOCAL_EVICTED, &[name, namespace, reason, cause, class], 1);
        }
        // Where the quota is given back in the same write, it says already that they are not ready.
        if let (Some(ready), Some(evicted)) =
            (before.true_condition(tokens::PODS_READY), after.condition(tokens::EVICTED))
        {
            let took = evicted.last_transition_time.0.duration_since(ready.last_transition_time.0);
            let labels = [places.queue, reason, cause];
            self.series.observe(&table::READY_UNTIL_EVICTED, &labels, took.as_secs_f64());
        }
    }

    /// A Workload was made for a job of this kind, so long after the job.
    pub fn created(&self, kind: &str, took: Duration) {
        self.series.observe(&table::CREATION_TOOK, &[kind], took.as_secs_f64());
    }

    /// A gate of an admitted workload's pod was opened. Where the workload is no longer admitted nothing is counted.
    pub fn ungated(&self, gate: &str, workload: &Workload, is_group: bool, now: Timestamp) {
        let admitted = workload.true_condition(tokens::ADMITTED);
        let (Some(admitted), Some(admission)) = (admitted, &workload.status.admission) else { return };
        let took = now.duration_since(admitted.last_transition_time.0).as_secs_f64();
        let labels = [admission.cluster_queue.as_str(), gate, if is_group { "true" } else { "false" }];
        self.series.observe(&table::GATE_TOOK, &labels, took);
    }
}

/// It has ended: in no queue, where it had no quota.
fn finished(places: &Places<'_>, after: &Workload) {
    places.add(&Pair(&table::FINISHED, &table::LOCAL_FINISHED));
    if let Some(took) = phase::execution_time(after) {
        places.observe(&Pair(&table::EXECUTED, &table::LOCAL_EXECUTED), took.as_secs_f64());
    }
}

/// All its pods became ready; `queued` is since it was queued. Counted once an admission.
fn ready(places: &Places<'_>, after: &Workload, queued: f64) {
    let said = after.condition(tokens::PODS_READY);
    if said.is_none_or(|one| one.reason != tokens::pods_ready::STARTED) {
        return;
    }
    places.observe(&Pair(&table::READY_WAIT, &table::LOCAL_READY_WAIT), queued);
    let took = seconds_between(after, tokens::ADMITTED, tokens::PODS_READY);
    places.observe(&Pair(&table::ADMITTED_UNTIL_READY, &table::LOCAL_ADMITTED_UNTIL_READY), took);
}

fn class_of(view: &Workload) -> &str {
    view.spec.priority_class_ref.as_ref().map_or("", |class| class.name.as_str())
}

/// The entry of `schedulingStats` that says what it did not say before, and why it says so.
fn newly_counted<'a>(before: Option<&Workload>, after: &'a Workload) -> Option<&'a Evictions> {
    let count = |one: &Evictions| {
        let seen = before.into_iter().flat_map(|before| &before.status.scheduling_stats.evictions);
        let mut seen = seen.filter(|seen| seen.reason == one.reason);
        seen.find(|seen| seen.underlying_cause == one.underlying_cause).map_or(0, |seen| seen.count)
    };
    after.status.scheduling_stats.evictions.iter().find(|one| one.count > count(one))
}

/// Seconds since it was queued: created, or queued again after an eviction, which is when it was no longer put off.
fn waited(before: &Workload, after: &Workload, now: Timestamp) -> f64 {
    let requeued = before.condition(tokens::REQUEUED).map(|one| {
        let put_off = before.put_off_until();
        let until = put_off.filter(|_| one.status == "False").map(|until| until.0);
        let until = until.max(restarted(one, after));
        until.unwrap_or(one.last_transition_time.0).max(one.last_transition_time.0)
    });
    let created = before.metadata.creation_timestamp.as_ref().map(|time| time.0);
    requeued.or(created).map_or(0.0, |since| now.duration_since(since).as_secs_f64())
}

/// Since when its queue runs again, or it is active again, as the write says with which that ended what `before` says.
fn restarted(before: &Condition, after: &Workload) -> Option<Timestamp> {
    let end = requeue::end_of(&before.reason).filter(|_| before.status == "False")?;
    let restarted = after.true_condition(tokens::REQUEUED)?;
    (end != tokens::evicted::BACKOFF_FINISHED).then_some(restarted.last_transition_time.0)
}

/// From one condition to another; nothing where one is missing or clocks disagree.
fn seconds_between(view: &Workload, from: &str, to: &str) -> f64 {
    let since = |kind: &str| view.condition(kind).map(|one| one.last_transition_time.0);
    match (since(from), since(to)) {
        (Some(from), Some(to)) => to.duration_since(from).as_secs_f64(),
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;
    use serde_json::{Value, json};

    use super::super::Shown;
    use super::*;

    fn workload(status: Value) -> Workload {
        serde_json::from_value(json!({ "metadata": { "name": "w", "namespace": "team" }, "status": status }))
            .unwrap()
    }

    fn page(metrics: &QueueMetrics) -> String {
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        text
    }

    fn write(metrics: &QueueMetrics, before: &Workload, after: &Workload, local_queue: Option<&LocalQueue>) {
        let now = Timestamp::UNIX_EPOCH;
        let written = Written { before: Some(before), after, preemptor: None, local_queue, now };
        metrics.written(&written, |_| Vec::new());
    }

    fn condition(kind: &str, status: &str, reason: &str, since: &str) -> Value {
        json!({ "type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": since })
    }

    #[test]
    fn nobody_waits_while_its_queue_is_stopped_or_it_is_inactive() {
        let requeued = |status: &str, reason: &str, since: &str| condition("Requeued", status, reason, since);
        for (status, reason, put_off, waited_for) in [
            ("False", "ClusterQueueStopped", Value::Null, 10.0),
            ("False", "LocalQueueStopped", Value::Null, 10.0),
            ("False", "DeactivatedDueToRequeuingLimitExceeded", Value::Null, 10.0),
            ("False", "PodsReadyTimeout", Value::Null, 3600.0),
            ("False", "PodsReadyTimeout", json!({ "requeueAt": "2026-01-01T00:30:00Z" }), 1800.0),
            ("True", "Preempted", Value::Null, 3600.0),
        ] {
            let before = requeued(status, reason, "2026-01-01T00:00:00Z");
            let before = workload(json!({ "conditions": [before], "requeueState": put_off }));
            let after = requeued("True", "Restarted", "2026-01-01T00:59:50Z");
            let after = workload(json!({ "conditions": [after] }));
            let now = "2026-01-01T01:00:00Z".parse().unwrap();
            assert_eq!(waited(&before, &after, now), waited_for, "{status} {reason}");
        }
    }

    #[test]
    fn an_evicted_slice_that_ends_was_replaced_by_nobody() {
        let since = "2026-01-01T00:00:00Z";
        let over = condition("Finished", "True", "WorkloadSliceReplaced", since);
        for (evicted, replaced) in [("True", false), ("False", true)] {
            let metrics = QueueMetrics::new(true, Shown::default());
            let evicted = condition("Evicted", evicted, "Preempted", since);
            let slice = |conditions: Value| {
                let admission = json!({ "clusterQueue": "a", "podSetAssignments": [] });
                workload(json!({ "admission": admission, "conditions": conditions }))
            };
            let (before, after) = (slice(json!([evicted])), slice(json!([evicted, over])));
            write(&metrics, &before, &after, None);
            let text = page(&metrics);
            assert!(text.contains(r#"kueue_finished_workloads_total{cluster_queue="a""#), "{text}");
            assert_eq!(text.contains("kueue_replaced_workload_slices_total{"), replaced, "{text}");
        }
    }

    /// Where nobody is to stop, it gives its quota back in the same write, and has no pods that are ready then.
    #[test]
    fn how_long_pods_were_ready_is_counted_where_the_eviction_says_that_they_are_not() {
        let metrics = QueueMetrics::new(true, Shown::default());
        let (since, now) = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:07Z");
        let of = |conditions: Value, stats: Value| {
            let admission = json!({ "clusterQueue": "a", "podSetAssignments": [] });
            workload(json!({ "admission": admission, "conditions": conditions, "schedulingStats": stats }))
        };
        let before = of(json!([condition("PodsReady", "True", "Started", since)]), json!({}));
        let after = json!([
            condition("PodsReady", "False", "WaitForStart", now),
            condition("Evicted", "True", "Deactivated", now),
        ]);
        let stats = json!({ "evictions": [{ "reason": "Deactivated", "underlyingCause": "", "count": 1 }] });
        let after = of(after, stats);
        write(&metrics, &before, &after, None);
        let wanted = r#"kueue_pods_ready_to_evicted_time_seconds_sum{cluster_queue="a",reason="Deactivated",underlying_cause="",replica_role="leader"} 7.0"#;
        assert!(page(&metrics).contains(wanted), "{}", page(&metrics));
    }

    /// By a leader whose clock was ahead.
    #[test]
    fn what_was_admitted_after_its_end_ran_for_no_time() {
        let metrics = QueueMetrics::new(true, Shown::default());
        let of = |conditions: Value| {
            let admission = json!({ "clusterQueue": "a", "podSetAssignments": [] });
            workload(json!({ "admission": admission, "conditions": conditions }))
        };
        let admitted = condition("Admitted", "True", "Admitted", "2026-01-01T00:00:07Z");
        let over = condition("Finished", "True", "Succeeded", "2026-01-01T00:00:00Z");
        write(&metrics, &of(json!([admitted])), &of(json!([admitted, over])), None);
        let text = page(&metrics);
        let line = r#"kueue_execution_time_seconds_sum{cluster_queue="a",priority_class="",replica_role="leader"} 0.0"#;
        assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
    }

    #[test]
    fn who_ends_without_quota_is_counted_in_no_queue() {
        let metrics = QueueMetrics::new(true, Shown::default());
        let queue = json!({ "metadata": { "name": "a", "namespace": "team" } });
        let queue: LocalQueue = serde_json::from_value(queue).unwrap();
        let over = json!([condition("Finished", "True", "OutOfSync", "2026-01-01T00:00:00Z")]);
        let (waits, ended) = (workload(json!({})), workload(json!({ "conditions": over })));
        for (before, after) in [(&waits, &ended), (&ended, &ended)] {
            write(&metrics, before, after, Some(&queue));
        }
        let text = page(&metrics);
        let line =
            r#"kueue_finished_workloads_total{cluster_queue="",priority_class="",replica_role="leader"} 1"#;
        assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
        for absent in ["kueue_local_queue_finished_workloads_total{", "execution_time_seconds_count"] {
            assert!(!text.contains(absent), "{text}");
        }
    }
}
