//! What people are told, as events, of a Workload's status that was written.

use std::borrow::Cow;
use std::collections::BTreeSet;

use crds::reasons::event as reasons;
use crds::reasons::workload as tokens;
use crds::reasons::workload::{finished, quota_reserved};
use crds::view::workload::Workload;
use kit::events::Severity;
use quota_engine::PendingReason::{self, ClusterQueueMissing, LocalQueueMissing, NoQueueName};

use crate::{input, slices, words};

/// One piece of news.
#[derive(Clone, Debug, PartialEq)]
pub struct News<'a> {
    /// The Workload it is about.
    pub about: &'a Workload,
    /// How bad it is.
    pub severity: Severity,
    /// The token.
    pub reason: Cow<'static, str>,
    /// The words.
    pub note: String,
}

/// That a Workload with quota finds no places for its pods yet.
pub fn unplaced<'a>(workload: &'a Workload, reason: &PendingReason) -> News<'a> {
    News {
        about: workload,
        severity: Severity::Warning,
        reason: reasons::SECOND_PASS_FAILED.into(),
        note: words::pending(reason),
    }
}

/// What a job or pod is told that was started: by whose quota it runs, and who places it if `others` do.
pub fn started(workload: Option<&Workload>, others: &BTreeSet<String>) -> String {
    let mut note = match workload.and_then(|one| one.status.admission.as_ref()) {
        Some(admission) => {
            format!("admitted and started, with quota of ClusterQueue {}", admission.cluster_queue)
        }
        None => "admitted and started".to_owned(),
    };
    if let Some(words) = words::placed_by(others) {
        note.push_str(&format!("; {words}"));
    }
    note
}

/// What a job or pod is told that was stopped: why, where it had been admitted.
pub fn stopped(workload: Option<&Workload>) -> String {
    match workload.and_then(|one| one.true_condition(tokens::EVICTED)) {
        Some(evicted) => format!("stopped until it is admitted again: {}", evicted.message),
        None => "stopped until it is admitted".to_owned(),
    }
}

/// What a Workload's status says that it did not say before. `preemptor` is the one it was preempted for, `reason` what it was
/// last said to wait for.
pub fn written<'a>(
    before: Option<&Workload>,
    after: &'a Workload,
    preemptor: Option<&'a Workload>,
    reason: Option<&PendingReason>,
) -> Vec<News<'a>> {
    let became = |kind: &str| after.holds(kind) && !before.is_some_and(|before| before.holds(kind));
    // Who is evicted may have lost its admission with the same write.
    let admission = after.status.admission.as_ref().or_else(|| before?.status.admission.as_ref());
    let queue = admission.map_or("", |one| one.cluster_queue.as_str());
    let mut news = Vec::new();
    if became(tokens::QUOTA_RESERVED) {
        news.push(normal(after, reasons::QUOTA_RESERVED, message(after, tokens::QUOTA_RESERVED)));
    }
    if became(tokens::ADMITTED) {
        news.push(normal(after, reasons::ADMITTED, format!("admitted by ClusterQueue {queue}")));
    }
    // Who had nothing loses nothing.
    if became(tokens::EVICTED) && admission.is_some() {
        let reason = after.condition(tokens::EVICTED).map_or("", |one| one.reason.as_str());
        let reason = Cow::Owned(format!("{}{reason}", reasons::EVICTED_DUE_TO));
        news.push(News { reason, ..normal(after, "", message(after, tokens::EVICTED)) });
    }
    if became(tokens::PREEMPTED) {
        news.push(normal(after, reasons::PREEMPTED, message(after, tokens::PREEMPTED)));
        news.extend(preemptor.map(|preemptor| made_room(after, queue, preemptor)));
    }
    if became(tokens::FINISHED) && slices::was_replaced(after) {
        news.push(normal(after, finished::WORKLOAD_SLICE_REPLACED, message(after, tokens::FINISHED)));
    }
    if became(tokens::DEACTIVATION_TARGET) {
        news.extend(to_be_deactivated(after));
    }
    // Who is still held back may wait for something else besides.
    let cleared = !is_gated(after) && input::gated_by(&after.metadata).is_none();
    if before.is_some_and(is_gated) && cleared {
        let note = "nobody holds it back any more".to_owned();
        news.push(normal(after, reasons::ADMISSION_GATE_CLEARED, note));
    }
    news.extend(waits(before, after, reason));
    news
}

fn normal<'a>(about: &'a Workload, reason: &'static str, note: String) -> News<'a> {
    News { about, severity: Severity::Normal, reason: reason.into(), note }
}

/// The message of a condition.
fn message(workload: &Workload, kind: &str) -> String {
    workload.condition(kind).map_or("", |one| one.message.as_str()).to_owned()
}

/// Told of the one for which a workload of this queue was preempted.
fn made_room<'a>(victim: &Workload, queue: &str, preemptor: &'a Workload) -> News<'a> {
    let text = |name: &Option<String>| name.clone().unwrap_or_default();
    let (namespace, name) = (text(&victim.metadata.namespace), text(&victim.metadata.name));
    let note = format!("Workload {namespace}/{name} of ClusterQueue {queue} was preempted for it");
    normal(preemptor, reasons::PREEMPTED_WORKLOAD, note)
}

fn to_be_deactivated(workload: &Workload) -> Option<News<'_>> {
    let reason = match workload.condition(tokens::DEACTIVATION_TARGET)?.reason.as_str() {
        tokens::deactivation_target::ADMISSION_CHECK => reasons::ADMISSION_CHECK_REJECTED,
        tokens::deactivation_target::MAXIMUM_EXECUTION_TIME_EXCEEDED => {
            reasons::MAXIMUM_EXECUTION_TIME_EXCEEDED
        }
        _ => return None,
    };
    let told = normal(workload, reason, message(workload, tokens::DEACTIVATION_TARGET));
    Some(News { severity: Severity::Warning, ..told })
}

fn is_gated(workload: &Workload) -> bool {
    let waits = workload.condition(tokens::QUOTA_RESERVED);
    waits.is_some_and(|one| one.status == "False" && one.reason == quota_reserved::ADMISSION_GATED)
        && !workload.holds(tokens::BLOCKED_ON_PREEMPTION_GATES)
}

/// That it waits, if it does for another reason than before. Who was not looked at has a reason, too, but that is no news: Kueue
/// tells of those at whom a cycle has looked (`pkg/scheduler/scheduler.go`, `requeueAndUpdate`). Who has no queue is in no
/// cycle, and whose quota is taken back was in none: of that it is told only where somebody holds it back. One whose checks failed
/// is looked at, and one that waits for the pods of others is not told of, as there.
fn waits<'a>(
    before: Option<&Workload>,
    after: &'a Workload,
    reason: Option<&PendingReason>,
) -> Option<News<'a>> {
    let checks_failed = matches!(reason, Some(PendingReason::ChecksFailed));
    let not_looked_at = [
        quota_reserved::PENDING_EVALUATION,
        quota_reserved::WAITING_FOR_PODS_READY,
        quota_reserved::SUSPENDED,
        quota_reserved::DEACTIVATED,
        quota_reserved::ON_HOLD,
    ];
    let waits = after.condition(tokens::QUOTA_RESERVED).filter(|one| one.status == "False")?;
    let in_no_queue = reason.is_some_and(|reason| lacks_queue(reason) && reason.token() == waits.reason);
    let loses_quota = !is_gated(after) && before.is_some_and(|before| before.status.admission.is_some());
    let is_silent = not_looked_at.contains(&waits.reason.as_str()) && !checks_failed;
    if in_no_queue || loses_quota || is_silent {
        return None;
    }
    let waited = before.and_then(|before| before.condition(tokens::QUOTA_RESERVED));
    if waited.is_some_and(|waited| waited.reason == waits.reason) {
        return None;
    }
    // Somebody wanted that.
    let severity = if is_gated(after) { Severity::Normal } else { Severity::Warning };
    let reason = Cow::Owned(waits.reason.clone());
    Some(News { severity, reason, ..normal(after, "", waits.message.clone()) })
}

/// Whether there is no queue that it could wait in.
fn lacks_queue(reason: &PendingReason) -> bool {
    matches!(reason, NoQueueName | LocalQueueMissing(_) | ClusterQueueMissing(_))
}

#[cfg(test)]
mod tests {
    use crds::view::workload::Admission;
    use serde_json::json;

    use super::*;

    #[test]
    fn an_evicted_slice_that_ends_was_replaced_by_nobody() {
        let condition = |kind: &str, status: &str, reason: &str| {
            json!({
                "type": kind, "status": status, "reason": reason, "message": "m",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            })
        };
        for (evicted, told) in [("True", 0), ("False", 1)] {
            let evicted = condition("Evicted", evicted, "Preempted");
            let over = condition("Finished", "True", "WorkloadSliceReplaced");
            let slice = |conditions: serde_json::Value| -> Workload {
                serde_json::from_value(json!({ "status": { "conditions": conditions } })).unwrap()
            };
            let (before, after) = (slice(json!([evicted])), slice(json!([evicted, over])));
            assert_eq!(written(Some(&before), &after, None, None).len(), told, "{after:?}");
        }
    }

    #[test]
    fn who_was_not_looked_at_is_not_warned() {
        let waits = |reason: &str| -> Workload {
            let condition = json!({
                "type": "QuotaReserved", "status": "False", "reason": reason, "message": "m",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            });
            serde_json::from_value(json!({ "status": { "conditions": [condition] } })).unwrap()
        };
        for (reason, told) in [
            ("WaitingForQuota", true),
            ("Misconfigured", true),
            ("PendingEvaluation", false),
            ("Suspended", false),
            ("Deactivated", false),
            ("OnHold", false),
        ] {
            let after = waits(reason);
            let news = written(None, &after, None, None);
            let reasons: Vec<&str> = news.iter().map(|one| &*one.reason).collect();
            assert_eq!(reasons, if told { vec![reason] } else { Vec::new() });
            assert!(news.iter().all(|one| one.severity == Severity::Warning), "{reason}");
            let said_before = written(Some(&after), &after, None, None);
            assert!(said_before.is_empty(), "{reason}: it says so already");
        }
    }

    fn view(status: &str, reason: &str, gates: &str) -> Workload {
        let condition = json!({
            "type": "QuotaReserved", "status": status, "reason": reason, "message": "m",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        serde_json::from_value(json!({
            "metadata": { "annotations": { "kueue.x-k8s.io/admission-gated-by": gates } },
            "status": { "conditions": [condition] },
        }))
        .unwrap()
    }

    fn reasons_of(before: &Workload, after: &Workload, reason: Option<&PendingReason>) -> Vec<String> {
        let news = written(Some(before), after, None, reason);
        news.iter().map(|one| one.reason.to_string()).collect()
    }

    #[test]
    fn who_lacks_a_queue_or_loses_its_quota_is_not_warned() {
        let (waits, mut holds) = (view("False", "Pending", ""), view("True", "QuotaReserved", ""));
        holds.status.admission = Some(Admission::default());
        let after = view("False", "Misconfigured", "");
        let missing = PendingReason::ClusterQueueMissing("a".into());
        let mismatch = PendingReason::NamespaceMismatch("a".into());
        for (before, reason, told) in [
            (&waits, &PendingReason::NoQueueName, false),
            (&waits, &missing, false),
            (&waits, &mismatch, true),
            // It has come to wait for something else since.
            (&waits, &PendingReason::Deactivated, true),
            (&holds, &mismatch, false),
        ] {
            let reasons = reasons_of(before, &after, Some(reason));
            assert_eq!(reasons, if told { vec!["Misconfigured"] } else { Vec::new() }, "{reason:?}");
        }
    }

    #[test]
    fn a_gate_that_takes_the_quota_back_is_told() {
        let mut holds = view("True", "QuotaReserved", "");
        holds.status.admission = Some(Admission::default());
        let after = view("False", "AdmissionGated", "x.example/budget");
        let gated = PendingReason::AdmissionGated("x.example/budget".into());
        let news = written(Some(&holds), &after, None, Some(&gated));
        let told: Vec<_> = news.iter().map(|one| (&*one.reason, one.severity)).collect();
        assert_eq!(told, [("AdmissionGated", Severity::Normal)]);
    }

    #[test]
    fn a_gate_is_cleared_when_nobody_is_left_in_the_annotation() {
        let before = view("False", "AdmissionGated", "x.example/budget");
        for (gates, told) in [("x.example/budget", false), ("", true)] {
            let reasons = reasons_of(&before, &view("False", "Suspended", gates), None);
            assert_eq!(reasons, if told { vec!["AdmissionGateCleared"] } else { Vec::new() }, "{gates:?}");
        }
    }
}
