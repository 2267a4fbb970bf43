//! What ends by itself: a workload that was rejected, that ran for as long as it may, whose pods do not get ready; and what is
//! deleted when it has been over for some time.

use crds::reasons::workload as tokens;
use crds::view::workload::{CheckState, Workload};
use jiff::{SignedDuration, Timestamp};

use crate::checks;
use crate::requests::Rules;

/// `objectRetentionPolicies.workloads`; `None` is for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// From the end of a workload until it is deleted.
    pub after_finished: Option<SignedDuration>,
    /// From the deactivation of a workload by this program until its job is deleted.
    pub after_deactivated: Option<SignedDuration>,
}

/// How something ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It is said why the workload is to be deactivated.
    Target {
        /// The token.
        reason: &'static str,
        /// The words.
        message: String,
    },
    /// What was said comes true: `spec.active` becomes false.
    Deactivate,
    /// One that is not active and has no quota is said to be evicted.
    Evict,
    /// Of one that is not active, what was to come after an eviction is forgotten, and why it was to be deactivated.
    Forget,
    /// The Workload is deleted.
    DeleteWorkload,
    /// Its job is deleted.
    DeleteJob,
}

/// What ends next, and when: now at the latest where that is past.
pub fn next(view: &Workload, rules: &Rules) -> Option<(Timestamp, End)> {
    if view.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let retention = rules.retention();
    if let Some(finished) = view.true_condition(tokens::FINISHED) {
        let at = after(finished.last_transition_time.0, retention.after_finished?);
        return Some((at, End::DeleteWorkload));
    }
    if view.spec.active.unwrap_or(true) {
        return while_active(view, rules);
    }
    let Some(evicted) = view.true_condition(tokens::EVICTED) else {
        let reserved = view.holds(tokens::QUOTA_RESERVED);
        return (!reserved).then_some((Timestamp::MIN, End::Evict));
    };
    // Who was to be deactivated and left before for another reason would be deactivated again as soon as it is active.
    if view.status.requeue_state.is_some() || view.condition(tokens::DEACTIVATION_TARGET).is_some() {
        return Some((Timestamp::MIN, End::Forget));
    }
    let by_us = evicted.reason.starts_with(tokens::evicted::DEACTIVATED_DUE_TO);
    let kept = retention.after_deactivated.filter(|_| by_us)?;
    Some((after(evicted.last_transition_time.0, kept), End::DeleteJob))
}

fn while_active(view: &Workload, rules: &Rules) -> Option<(Timestamp, End)> {
    if view.holds(tokens::DEACTIVATION_TARGET) {
        return Some((Timestamp::MIN, End::Deactivate));
    }
    // One without quota loses nothing by a check: it waits until that says something else.
    if !view.holds(tokens::QUOTA_RESERVED) {
        return None;
    }
    let over = execution_over(view);
    if view.holds(tokens::EVICTED) {
        // What a check said of it is asked anew when its quota is back. Its time goes on until its pods are gone; but as in
        // Kueue, nothing ends while it is put off.
        let until = view.put_off_until();
        return over.map(|(at, end)| (until.map_or(at, |until| at.max(until.0)), end));
    }
    let states = &view.status.admission_checks;
    if states.iter().any(|check| check.state == CheckState::Rejected) {
        let message = format!("admission checks reject it: {}", checks::told(states, CheckState::Rejected));
        let reason = tokens::deactivation_target::ADMISSION_CHECK;
        return Some((Timestamp::MIN, End::Target { reason, message }));
    }
    let unready = rules.pods_ready().and_then(|pods_ready| pods_ready.gives_up_at(view)).map(|at| {
        let reason = tokens::deactivation_target::REQUEUING_LIMIT_EXCEEDED;
        (at, End::Target { reason, message: "its pods were not ready in time too often".to_owned() })
    });
    [unready, over].into_iter().flatten().min_by_key(|(at, _)| *at)
}

/// When it was admitted for as long as it may be, all in all.
fn execution_over(view: &Workload) -> Option<(Timestamp, End)> {
    let limit = view.spec.maximum_execution_time_seconds?;
    let admitted = view.true_condition(tokens::ADMITTED)?;
    let before = view.status.accumulated_past_execution_time_seconds.unwrap_or(0);
    let left = SignedDuration::from_secs(i64::from(limit) - i64::from(before));
    let reason = tokens::deactivation_target::MAXIMUM_EXECUTION_TIME_EXCEEDED;
    let message = format!("it was admitted for the {limit} s that it may be");
    Some((after(admitted.last_transition_time.0, left), End::Target { reason, message }))
}

fn after(since: Timestamp, time: SignedDuration) -> Timestamp {
    since.checked_add(time).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::Configuration;

    /// One that was admitted for a minute at 00:00:00, and is told to leave or not.
    #[test]
    fn time_that_is_over_ends_what_is_leaving_unless_that_is_put_off() {
        let rules = Rules::of(&Configuration::default());
        let condition = |kind: &str, holds: bool| {
            json!({
                "type": kind, "status": if holds { "True" } else { "False" }, "reason": "R", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            })
        };
        for (reserved, evicted, put_off, ends) in [
            (true, false, None, Some("2026-01-01T00:01:00Z")),
            (true, true, None, Some("2026-01-01T00:01:00Z")),
            (true, true, Some("2026-01-01T00:00:30Z"), Some("2026-01-01T00:01:00Z")),
            (true, true, Some("2026-01-01T00:05:00Z"), Some("2026-01-01T00:05:00Z")),
            (false, true, None, None),
        ] {
            let conditions = [
                condition(tokens::QUOTA_RESERVED, reserved),
                condition(tokens::ADMITTED, reserved),
                condition(tokens::EVICTED, evicted),
            ];
            let mut object = json!({
                "spec": { "maximumExecutionTimeSeconds": 60 }, "status": { "conditions": conditions },
            });
            if let Some(until) = put_off {
                object["status"]["requeueState"] = json!({ "requeueAt": until });
            }
            let view: Workload = serde_json::from_value(object).unwrap();
            let next = next(&view, &rules).map(|(at, end)| {
                assert!(matches!(end, End::Target { .. }), "{end:?}");
                at.to_string()
            });
            assert_eq!(next.as_deref(), ends, "{reserved} {evicted} {put_off:?}");
        }
    }
}
