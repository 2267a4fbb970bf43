//! What people are told, as events, of a Workload's status that was written.

use std::borrow::Cow;

use crds::reasons::event as reasons;
use crds::reasons::workload as tokens;
use crds::reasons::workload::{finished, quota_reserved};
use crds::view::workload::Workload;
use kit::events::Severity;
use quota_engine::PendingReason;

use crate::words;

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
    let message = |kind: &str| after.condition(kind).map_or("", |one| one.message.as_str()).to_owned();
    let normal = |reason: &'static str, note: String| News {
        about: after,
        severity: Severity::Normal,
        reason: reason.into(),
        note,
    };
    let queue = after.status.admission.as_ref().map_or("", |one| one.cluster_queue.as_str());
    let mut news = Vec::new();
    if became(tokens::QUOTA_RESERVED) {
        news.push(normal(reasons::QUOTA_RESERVED, message(tokens::QUOTA_RESERVED)));
    }
    if became(tokens::ADMITTED) {
        news.push(normal(reasons::ADMITTED, format!("admitted by ClusterQueue {queue}")));
    }
    // Who had nothing loses nothing.
    if became(tokens::EVICTED) && after.status.admission.is_some() {
        let reason = after.condition(tokens::EVICTED).map_or("", |one| one.reason.as_str());
        let reason = Cow::Owned(format!("{}{reason}", reasons::EVICTED_DUE_TO));
        news.push(News { reason, ..normal("", message(tokens::EVICTED)) });
    }
    if became(tokens::PREEMPTED) {
        news.push(normal(reasons::PREEMPTED, message(tokens::PREEMPTED)));
        let victim = |name: &Option<String>| name.clone().unwrap_or_default();
        let (namespace, name) = (victim(&after.metadata.namespace), victim(&after.metadata.name));
        let note = format!("Workload {namespace}/{name} of ClusterQueue {queue} was preempted for it");
        news.extend(
            preemptor.map(|preemptor| News { about: preemptor, ..normal(reasons::PREEMPTED_WORKLOAD, note) }),
        );
    }
    let replaced =
        after.condition(tokens::FINISHED).filter(|one| one.reason == finished::WORKLOAD_SLICE_REPLACED);
    if let (true, Some(replaced)) = (became(tokens::FINISHED), replaced) {
        news.push(normal(finished::WORKLOAD_SLICE_REPLACED, replaced.message.clone()));
    }
    if became(tokens::DEACTIVATION_TARGET) {
        let target = after.condition(tokens::DEACTIVATION_TARGET);
        let reason = match target.map_or("", |one| one.reason.as_str()) {
            tokens::deactivation_target::ADMISSION_CHECK => Some(reasons::ADMISSION_CHECK_REJECTED),
            tokens::deactivation_target::MAXIMUM_EXECUTION_TIME_EXCEEDED => {
                Some(reasons::MAXIMUM_EXECUTION_TIME_EXCEEDED)
            }
            _ => None,
        };
        let warning = |reason| News {
            severity: Severity::Warning,
            ..normal(reason, message(tokens::DEACTIVATION_TARGET))
        };
        news.extend(reason.map(warning));
    }
    let gated = |one: &Workload| {
        let waits = one.condition(tokens::QUOTA_RESERVED);
        waits.is_some_and(|one| one.status == "False" && one.reason == quota_reserved::ADMISSION_GATED)
            && !one.holds(tokens::BLOCKED_ON_PREEMPTION_GATES)
    };
    if before.is_some_and(gated) && !gated(after) {
        let note = "nobody holds it back any more".to_owned();
        news.push(normal(reasons::ADMISSION_GATE_CLEARED, note));
    }
    let waits = after.condition(tokens::QUOTA_RESERVED).filter(|one| one.status == "False");
    let waited = before.and_then(|before| before.condition(tokens::QUOTA_RESERVED));
    if let Some(waits) = waits.filter(|waits| waited.is_none_or(|waited| waited.reason != waits.reason)) {
        let reason = Cow::Owned(waits.reason.clone());
        // Somebody wanted that.
        let severity = if gated(after) { Severity::Normal } else { Severity::Warning };
        news.push(News { severity, reason, ..normal("", waits.message.clone()) });
    }
    news
}
