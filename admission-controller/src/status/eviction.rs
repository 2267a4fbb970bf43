//! How a workload loses what it has: the eviction, the return of its quota, the way to its deactivation.

use crds::reasons::workload as tokens;
use crds::view::workload::{Evictions, RequeueState, Workload};
use jiff::Timestamp;
use quota_engine::{EvictReason, PendingReason};
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::gates::closed;
use super::workload::{patch, states, unready, with_execution_time};
use super::{Change, merged};
use crate::{checks, requeue, words};

/// When it may be looked at again.
pub fn put_off(state: &RequeueState) -> Value {
    json!({ "status": { "requeueState": { "count": state.count, "requeueAt": state.requeue_at } } })
}

/// The eviction: the quota stays reserved until the pods are gone. Every check is to be answered anew, gates are closed, and no
/// other cluster has it any more. `backoff` says when
/// it may be looked at again; where a check asks for a later time, that counts.
pub fn evicted(
    view: &Workload,
    reason: EvictReason,
    message: &str,
    backoff: Option<RequeueState>,
    now: Timestamp,
) -> Value {
    // As with Kueue, whatever its status.
    let target = view.condition(tokens::DEACTIVATION_TARGET);
    let (token, cause, message) = match (reason, target) {
        (EvictReason::Deactivated, Some(target)) => (
            format!("{}{}", tokens::evicted::DEACTIVATED_DUE_TO, target.reason),
            target.reason.as_str(),
            format!("{message} due to {}", target.message),
        ),
        (EvictReason::PodsReadyTimeout(unready), _) => {
            (reason.token().to_owned(), unready.token(), message.to_owned())
        }
        _ => (reason.token().to_owned(), "", message.to_owned()),
    };
    let mut changes = vec![Change::new(tokens::EVICTED, true, token.clone(), message.clone())];
    let preempted = match reason {
        EvictReason::Preempted(right) => {
            Some(Change::new(tokens::PREEMPTED, true, right.token(), message.clone()))
        }
        _ => None,
    };
    if view.holds(tokens::BLOCKED_ON_PREEMPTION_GATES) {
        changes.push(Change::new(tokens::BLOCKED_ON_PREEMPTION_GATES, false, token, message));
    }
    // As in Kueue, this one says nothing of the generation.
    let conditions = merged(&view.status.conditions, preempted.as_slice(), None, now);
    let mut conditions = merged(&conditions, &changes, view.metadata.generation, now);
    if reason == EvictReason::Deactivated {
        conditions.retain(|one| one.type_ != tokens::DEACTIVATION_TARGET);
    }
    let mut status = json!({
        "conditions": conditions,
        "schedulingStats": { "evictions": evictions(view, reason.token(), cause) },
    });
    let after = checks::reset(&view.status.admission_checks, now);
    if !checks::same(&after, &view.status.admission_checks) {
        status["admissionChecks"] = states(&after);
    }
    if !view.status.unhealthy_nodes.is_empty() {
        status["unhealthyNodes"] = Value::Null;
    }
    if view.status.is_offered() {
        status["clusterName"] = Value::Null;
        status["nominatedClusterNames"] = Value::Null;
    }
    if !view.status.preemption_gates.is_empty() {
        status["preemptionGates"] = closed(view, now).into();
    }
    let state = view.status.requeue_state.as_ref();
    if reason == EvictReason::Deactivated {
        if state.is_some() {
            status["requeueState"] = Value::Null;
        }
    } else {
        let seen = backoff.as_ref().or(state);
        let retry = checks::retry_at(&view.status.admission_checks).filter(|at| *at > now);
        let later = requeue::put_off(seen, retry, false);
        if let Some(state) = later.or(backoff) {
            status["requeueState"] = put_off(&state)["status"]["requeueState"].take();
        }
    }
    json!({ "status": status })
}

/// The eviction of a workload behind which no job stands. There are no pods to wait for: its quota is given back with the same
/// write, and whoever needs it has it a write sooner.
pub fn with_release(mut evicted: Value, view: &Workload, comes_back: bool, now: Timestamp) -> Value {
    let mut after = view.clone();
    if let Ok(conditions) = Vec::deserialize(&evicted["status"]["conditions"]) {
        after.status.conditions = conditions;
    }
    let release = released(&after, comes_back, now)["status"].take();
    if let (Value::Object(status), Value::Object(release)) = (&mut evicted["status"], release) {
        status.extend(release);
    }
    evicted
}

/// What is left of a grant that somebody else has withdrawn, taken away: server-side apply, by which controllers made with Kueue's library
/// do that, leaves what another manager has written. While it is there, no other can be written (`crds::validation`).
pub fn without_leftovers(view: &Workload) -> Option<Value> {
    let is_left = view.status.admission.is_some()
        && !view.holds(tokens::QUOTA_RESERVED)
        && !view.holds(tokens::FINISHED);
    is_left.then(|| json!({ "status": { "admission": null } }))
}

/// How often it was evicted for which reason and cause, with one more.
fn evictions(view: &Workload, reason: &str, cause: &str) -> Vec<Value> {
    let mut counted = view.status.scheduling_stats.evictions.clone();
    match counted.iter_mut().find(|one| one.reason == reason && one.underlying_cause == cause) {
        Some(one) => one.count = one.count.saturating_add(1),
        None => counted.push(Evictions {
            reason: reason.to_owned(),
            underlying_cause: cause.to_owned(),
            count: 1,
        }),
    }
    let entry = |one: &Evictions| json!({ "reason": one.reason, "underlyingCause": one.underlying_cause, "count": one.count });
    counted.iter().map(entry).collect()
}

/// The release of an evicted workload's quota: its pods are gone. `comes_back` tells whether others can take their places.
pub fn released(view: &Workload, comes_back: bool, now: Timestamp) -> Value {
    let (reason, message) = view
        .condition(tokens::EVICTED)
        .map_or((tokens::evicted::PREEMPTED, ""), |one| (one.reason.as_str(), one.message.as_str()));
    let requeued =
        comes_back && [tokens::evicted::PREEMPTED, tokens::evicted::NODE_FAILURES].contains(&reason);
    let admitted = checks::admitted(false, true, false);
    let mut changes = vec![
        Change::new(
            tokens::QUOTA_RESERVED,
            false,
            tokens::quota_reserved::PENDING_EVALUATION,
            "the quota was given back after the eviction",
        ),
        admitted.clone(),
        Change::new(tokens::REQUEUED, requeued, reason, message),
    ];
    changes.extend(unready(view, false));
    let mut body = patch(view, &changes, now);
    // The time of one that had all of it was forgotten: activated again, it starts from the beginning.
    if !had_its_time(view, now) {
        body = with_execution_time(body, view, &admitted, now);
    }
    body["status"]["admission"] = Value::Null;
    body
}

/// Whether one that was evicted was admitted for as long as it may be, when it was or while it left. Why it was deactivated is forgotten
/// before its pods are gone ([`forgotten`]).
fn had_its_time(view: &Workload, now: Timestamp) -> bool {
    const OVER: &str = tokens::deactivation_target::MAXIMUM_EXECUTION_TIME_EXCEEDED;
    let evicted = view.true_condition(tokens::EVICTED);
    let cause = evicted.and_then(|one| one.reason.strip_prefix(tokens::evicted::DEACTIVATED_DUE_TO));
    let is_over = || {
        let limit = view.spec.maximum_execution_time_seconds;
        limit.zip(checks::executed(view, now)).is_some_and(|(limit, had)| had >= limit)
    };
    let is_active = view.spec.active.unwrap_or(true);
    cause == Some(OVER)
        || (!is_active && is_over())
        || view.true_condition(tokens::DEACTIVATION_TARGET).is_some_and(|one| one.reason == OVER)
}

/// The return of quota that was not an admission yet, for the reason for which it waits from now on.
pub fn withdrawn(view: &Workload, reason: &PendingReason, now: Timestamp) -> Value {
    let changes = [
        Change::new(tokens::QUOTA_RESERVED, false, reason.token(), words::pending(reason)),
        checks::admitted(false, true, false),
    ];
    let mut body = patch(view, &changes, now);
    body["status"]["admission"] = Value::Null;
    body
}

/// Why it is to be deactivated, which follows as soon as that is written. Time that it had is forgotten where it had too much:
/// activated again, it starts from the beginning.
pub fn deactivation_target(view: &Workload, reason: &'static str, message: &str, now: Timestamp) -> Value {
    let change = Change::new(tokens::DEACTIVATION_TARGET, true, reason, message);
    let mut body = patch(view, &[change], now);
    let had_its_time = reason == tokens::deactivation_target::MAXIMUM_EXECUTION_TIME_EXCEEDED;
    if had_its_time && view.status.accumulated_past_execution_time_seconds.is_some() {
        body["status"]["accumulatedPastExecutionTimeSeconds"] = Value::Null;
    }
    body
}

/// Of a workload that was evicted before it was deactivated: when it was to be looked at again, and why it was to be
/// deactivated.
pub fn forgotten(view: &Workload) -> Value {
    let mut body = json!({ "status": { "requeueState": null } });
    if view.condition(tokens::DEACTIVATION_TARGET).is_some() {
        let kept = view.status.conditions.iter().filter(|one| one.type_ != tokens::DEACTIVATION_TARGET);
        body["status"]["conditions"] = kept.map(|one| json!(one)).collect();
    }
    body
}

/// The deactivation.
pub fn inactive() -> Value {
    json!({ "spec": { "active": false } })
}
