//! What people are told, as events, of a Workload's status that was written.

use std::borrow::Cow;

use crds::reasons::event as reasons;
use crds::reasons::workload as tokens;
use crds::reasons::workload::{finished, quota_reserved};
use crds::view::workload::Workload;
use kit::events::Severity;
use quota_engine::PendingReason;

use crate::{slices, words};

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

/// What a Workload's status says that it did not say before. `preemptor` is the one it was preempted for.
pub fn written<'a>(
    before: Option<&Workload>,
    after: &'a Workload,
    preemptor: Option<&'a Workload>,
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
    if before.is_some_and(is_gated) && !is_gated(after) {
        let note = "nobody holds it back any more".to_owned();
        news.push(normal(after, reasons::ADMISSION_GATE_CLEARED, note));
    }
    news.extend(waits(before, after));
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
/// tells of those at whom a cycle has looked (`pkg/scheduler/scheduler.go`, `requeueAndUpdate`).
fn waits<'a>(before: Option<&Workload>, after: &'a Workload) -> Option<News<'a>> {
    let not_looked_at = [
        quota_reserved::PENDING_EVALUATION,
        quota_reserved::SUSPENDED,
        quota_reserved::DEACTIVATED,
        quota_reserved::ON_HOLD,
    ];
    let waits = after.condition(tokens::QUOTA_RESERVED).filter(|one| one.status == "False")?;
    if not_looked_at.contains(&waits.reason.as_str()) {
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

#[cfg(test)]
mod tests {
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
            assert_eq!(written(Some(&before), &after, None).len(), told, "{after:?}");
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
            let news = written(None, &after, None);
            let reasons: Vec<&str> = news.iter().map(|one| &*one.reason).collect();
            assert_eq!(reasons, if told { vec![reason] } else { Vec::new() });
            assert!(news.iter().all(|one| one.severity == Severity::Warning), "{reason}");
            assert!(written(Some(&after), &after, None).is_empty(), "{reason}: it says so already");
        }
    }
}
