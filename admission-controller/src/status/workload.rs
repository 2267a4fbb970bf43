use crds::reasons::workload as tokens;
use crds::view::workload::{Evictions, Workload};
use jiff::Timestamp;
use model::resources::ResourceList;
use quota_engine::input::Admission;
use quota_engine::{EvictReason, PendingReason};
use serde_json::{Value, json};

use super::{Change, merged};
use crate::words;

fn patch(view: &Workload, changes: &[Change], now: Timestamp) -> Value {
    let conditions = merged(&view.status.conditions, changes, view.metadata.generation, now);
    json!({ "status": { "conditions": conditions } })
}

/// The admission, in one write: QuotaReserved, Admitted and `status.admission`.
pub fn reserved(view: &Workload, admission: &Admission, now: Timestamp) -> Value {
    let queue = &admission.cluster_queue;
    let mut changes = vec![
        Change::new(
            tokens::QUOTA_RESERVED,
            true,
            tokens::quota_reserved::QUOTA_RESERVED,
            format!("quota is reserved in ClusterQueue {queue}"),
        ),
        Change::new(tokens::ADMITTED, true, tokens::admitted::ADMITTED, "the workload is admitted"),
    ];
    for kind in [tokens::EVICTED, tokens::PREEMPTED, tokens::BLOCKED_ON_PREEMPTION_GATES] {
        if let Some(before) = view.condition(kind).filter(|one| one.status == "True") {
            let message = words::truncated(format!("Previously: {}", before.message));
            changes.push(Change::new(kind, false, tokens::evicted::QUOTA_RESERVED, message));
        }
    }
    changes.extend(requeued(view));
    let mut body = patch(view, &changes, now);
    let assignments: Vec<Value> = admission
        .pod_sets
        .iter()
        .map(|one| {
            let usage: serde_json::Map<String, Value> = one
                .usage
                .iter()
                .map(|(resource, amount)| (resource.as_str().to_owned(), json!(resource.quantity(*amount))))
                .collect();
            let flavors: serde_json::Map<String, Value> = one
                .flavors
                .iter()
                .map(|(resource, flavor)| (resource.as_str().to_owned(), json!(flavor.as_str())))
                .collect();
            json!({ "name": one.name, "flavors": flavors, "resourceUsage": usage, "count": one.count })
        })
        .collect();
    // What it asked for while it waited is superseded by what it was granted.
    body["status"]["resourceRequests"] = Value::Null;
    body["status"]["admission"] = json!({ "clusterQueue": queue.as_str(), "podSetAssignments": assignments });
    body
}

/// The eviction: the quota stays reserved until the pods are gone.
pub fn evicted(view: &Workload, reason: EvictReason, message: &str, now: Timestamp) -> Value {
    let mut changes = vec![Change::new(tokens::EVICTED, true, reason.token(), message)];
    if let EvictReason::Preempted(right) = reason {
        changes.push(Change::new(tokens::PREEMPTED, true, right.token(), message));
    }
    let mut body = patch(view, &changes, now);
    body["status"]["schedulingStats"] = json!({ "evictions": evictions(view, reason.token()) });
    body
}

/// How often it was evicted for which reason, with one more. Where it was deactivated for a cause, somebody else counts.
fn evictions(view: &Workload, reason: &str) -> Vec<Value> {
    let mut counted = view.status.scheduling_stats.evictions.clone();
    match counted.iter_mut().find(|one| one.reason == reason && one.underlying_cause.is_empty()) {
        Some(one) => one.count = one.count.saturating_add(1),
        None => {
            counted.push(Evictions { reason: reason.to_owned(), underlying_cause: String::new(), count: 1 })
        }
    }
    let entry = |one: &Evictions| json!({ "reason": one.reason, "underlyingCause": one.underlying_cause, "count": one.count });
    counted.iter().map(entry).collect()
}

/// What kept it from being requeued is over.
fn requeued(view: &Workload) -> Option<Change> {
    let before = view.condition(tokens::REQUEUED).filter(|one| one.status == "False")?;
    let (reason, message) = match before.reason.as_str() {
        tokens::evicted::CLUSTER_QUEUE_STOPPED => {
            (tokens::evicted::CLUSTER_QUEUE_RESTARTED, "the ClusterQueue runs again")
        }
        tokens::evicted::LOCAL_QUEUE_STOPPED => {
            (tokens::evicted::LOCAL_QUEUE_RESTARTED, "the LocalQueue runs again")
        }
        other if other.starts_with(tokens::evicted::DEACTIVATED) => {
            (tokens::evicted::REACTIVATED, "the workload is active again")
        }
        _ => return None,
    };
    Some(Change::new(tokens::REQUEUED, true, reason, message))
}

/// The release of an evicted workload's quota: its pods are gone.
pub fn released(view: &Workload, now: Timestamp) -> Value {
    let (reason, message) = view
        .condition(tokens::EVICTED)
        .map_or((tokens::evicted::PREEMPTED, ""), |one| (one.reason.as_str(), one.message.as_str()));
    let requeued = [tokens::evicted::PREEMPTED, tokens::evicted::NODE_FAILURES].contains(&reason);
    let changes = [
        Change::new(
            tokens::QUOTA_RESERVED,
            false,
            tokens::quota_reserved::PENDING_EVALUATION,
            "the quota was given back after the eviction",
        ),
        Change::new(
            tokens::ADMITTED,
            false,
            tokens::admitted::NO_RESERVATION,
            "the workload has no quota reserved",
        ),
        Change::new(tokens::REQUEUED, requeued, reason, message),
    ];
    let mut body = patch(view, &changes, now);
    body["status"]["admission"] = Value::Null;
    body
}

/// Why it waits, and for what its pod sets ask; `None` where its status gives that reason already.
pub fn pending(
    view: &Workload,
    reason: &PendingReason,
    requests: &[(String, ResourceList)],
    now: Timestamp,
) -> Option<Value> {
    let (token, message) = (reason.token(), words::pending(reason));
    let said = view
        .condition(tokens::QUOTA_RESERVED)
        .is_some_and(|one| one.status == "False" && one.reason == token && one.message == message);
    let stopped = [tokens::quota_reserved::SUSPENDED, tokens::quota_reserved::MISCONFIGURED].contains(&token);
    let mut changes = vec![Change::new(tokens::QUOTA_RESERVED, false, token, message.clone())];
    if *reason == PendingReason::PreemptionGated {
        let gated = tokens::blocked_on_preemption_gates::PREEMPTION_GATED;
        changes.push(Change::new(tokens::BLOCKED_ON_PREEMPTION_GATES, true, gated, message));
    }
    changes.extend(requeued(view).filter(|_| !stopped));
    changes.push(Change::new(
        tokens::ADMITTED,
        false,
        tokens::admitted::NO_RESERVATION,
        "the workload has no quota reserved",
    ));
    if said {
        return None;
    }
    let mut body = patch(view, &changes, now);
    let asked: Vec<Value> = requests
        .iter()
        .map(|(name, requests)| {
            let amounts: serde_json::Map<String, Value> = requests
                .iter()
                .map(|(resource, amount)| (resource.as_str().to_owned(), json!(resource.quantity(*amount))))
                .collect();
            json!({ "name": name, "resources": amounts })
        })
        .collect();
    body["status"]["resourceRequests"] = json!(asked);
    Some(body)
}

/// The end, well or not.
pub fn finished(view: &Workload, reason: &str, message: &str, now: Timestamp) -> Value {
    let message = if message.is_empty() { "the job has ended".to_owned() } else { message.to_owned() };
    patch(view, &[Change::new(tokens::FINISHED, true, reason, words::truncated(message))], now)
}
