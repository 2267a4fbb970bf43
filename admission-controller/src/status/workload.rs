use crds::reasons::workload as tokens;
use crds::view::workload::Workload;
use jiff::Timestamp;
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
    for kind in [tokens::EVICTED, tokens::PREEMPTED] {
        if let Some(before) = view.condition(kind).filter(|one| one.status == "True") {
            let message = words::truncated(format!("Previously: {}", before.message));
            changes.push(Change::new(kind, false, tokens::evicted::QUOTA_RESERVED, message));
        }
    }
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
    body["status"]["admission"] = json!({ "clusterQueue": queue.as_str(), "podSetAssignments": assignments });
    body
}

/// The eviction: the quota stays reserved until the pods are gone.
pub fn evicted(view: &Workload, reason: EvictReason, message: &str, now: Timestamp) -> Value {
    let mut changes = vec![Change::new(tokens::EVICTED, true, reason.token(), message)];
    if let EvictReason::Preempted(right) = reason {
        changes.push(Change::new(tokens::PREEMPTED, true, right.token(), message));
    }
    patch(view, &changes, now)
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

/// Why it waits; `None` where its status says so already.
pub fn pending(view: &Workload, reason: &PendingReason, now: Timestamp) -> Option<Value> {
    let (token, message) = (reason.token(), words::pending(reason));
    let said = view
        .condition(tokens::QUOTA_RESERVED)
        .is_some_and(|one| one.status == "False" && one.reason == token && one.message == message);
    (!said).then(|| patch(view, &[Change::new(tokens::QUOTA_RESERVED, false, token, message)], now))
}

/// The end, well or not.
pub fn finished(view: &Workload, reason: &str, message: &str, now: Timestamp) -> Value {
    let message = if message.is_empty() { "the job has ended".to_owned() } else { message.to_owned() };
    patch(view, &[Change::new(tokens::FINISHED, true, reason, words::truncated(message))], now)
}
