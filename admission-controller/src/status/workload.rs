use std::collections::BTreeMap;

use crds::reasons::workload as tokens;
use crds::view::workload::{Evictions, ReclaimablePod, RequeueState, Workload};
use jiff::Timestamp;
use model::resources::ResourceList;
use quota_engine::input::{Admission, DelayedTopology, PodSetAssignment};
use quota_engine::{EvictReason, PendingReason};
use serde_json::{Value, json};

use super::{Change, merged};
use crate::{checks, topology, words};

fn patch(view: &Workload, changes: &[Change], now: Timestamp) -> Value {
    let conditions = merged(&view.status.conditions, changes, view.metadata.generation, now);
    json!({ "status": { "conditions": conditions } })
}

/// The admission, in one write: QuotaReserved, Admitted and `status.admission`. Where a check of the workload is not ready it
/// is the first phase only: see [`synced`].
pub fn reserved(view: &Workload, admission: &Admission, now: Timestamp) -> Value {
    let mut changes = reservation_changes(view, admission);
    let delayed =
        |one: &PodSetAssignment| one.topology.is_none() && one.delayed == Some(DelayedTopology::Pending);
    let awaits = admission.pod_sets.iter().any(delayed);
    changes.push(checks::admitted(true, checks::are_ready(&view.status.admission_checks), awaits));
    changes.extend(requeued(view));
    let mut body = with_admission(patch(view, &changes, now), view, admission);
    if !view.status.unhealthy_nodes.is_empty() {
        // Other nodes have taken their place.
        body["status"]["unhealthyNodes"] = Value::Null;
    }
    body
}

/// The first phase of an admission alone: QuotaReserved and `status.admission`.
pub fn reservation(view: &Workload, admission: &Admission, now: Timestamp) -> Value {
    with_admission(patch(view, &reservation_changes(view, admission), now), view, admission)
}

/// What an earlier eviction left behind is over with the reservation.
fn reservation_changes(view: &Workload, admission: &Admission) -> Vec<Change> {
    let mut changes = vec![Change::new(
        tokens::QUOTA_RESERVED,
        true,
        tokens::quota_reserved::QUOTA_RESERVED,
        format!("quota is reserved in ClusterQueue {}", admission.cluster_queue),
    )];
    for kind in [tokens::EVICTED, tokens::PREEMPTED, tokens::BLOCKED_ON_PREEMPTION_GATES] {
        if let Some(before) = view.true_condition(kind) {
            let message = words::truncated(format!("Previously: {}", before.message));
            changes.push(Change::new(kind, false, tokens::evicted::QUOTA_RESERVED, message));
        }
    }
    changes
}

fn with_admission(mut body: Value, view: &Workload, admission: &Admission) -> Value {
    let assignments: Vec<Value> = admission
        .pod_sets
        .iter()
        .map(|one| {
            let mut entry = json!({ "name": one.name, "count": one.count });
            if !one.flavors.is_empty() {
                let flavors =
                    one.flavors.iter().map(|(resource, flavor)| (resource.as_str(), flavor.as_str()));
                entry["flavors"] = json!(flavors.collect::<BTreeMap<_, _>>());
            }
            if !one.usage.is_empty() {
                entry["resourceUsage"] = quantities(&one.usage);
            }
            // So many domains that no object holds them are more pods than a Workload has.
            if let Some(Ok(places)) = one.topology.as_deref().map(topology::write) {
                entry["topologyAssignment"] = json!(places);
            }
            if let Some(delayed) = one.delayed {
                entry["delayedTopologyRequest"] = json!(match delayed {
                    DelayedTopology::Pending => "Pending",
                    DelayedTopology::Ready => "Ready",
                });
            }
            entry
        })
        .collect();
    let queue = admission.cluster_queue.as_str();
    body["status"]["admission"] = json!({ "clusterQueue": queue, "podSetAssignments": assignments });
    if view.status.resource_requests.is_some() {
        // What it asked for while it waited is superseded by what it was granted.
        body["status"]["resourceRequests"] = Value::Null;
    }
    body
}

fn quantities(amounts: &ResourceList) -> Value {
    amounts.iter().map(|(resource, amount)| (resource.as_str(), json!(resource.quantity(*amount)))).collect()
}

/// The states of admission checks, gone, since its ClusterQueue asks for none: with its quota it is admitted.
pub fn without_checks(view: &Workload, now: Timestamp) -> Value {
    let admitted = checks::admitted(true, true, checks::awaits_topology(view));
    let mut body = patch(view, &[admitted], now);
    body["status"]["admissionChecks"] = Value::Null;
    body
}

/// Condition Admitted as quota, checks and places have it now; `None` where the status says so already. Words of others are
/// as good as ours. The time for which it was admitted is kept when it no longer is.
pub fn synced(view: &Workload, now: Timestamp) -> Option<Value> {
    let seen = view.condition(tokens::ADMITTED);
    if seen.is_none() && view.condition(tokens::QUOTA_RESERVED).is_none() {
        return None;
    }
    let reserved = view.holds(tokens::QUOTA_RESERVED);
    let ready = checks::are_ready(&view.status.admission_checks);
    let change = checks::admitted(reserved, ready, checks::awaits_topology(view));
    let said = seen.is_some_and(|one| {
        (one.status == "True") == change.status
            && one.reason == change.reason
            && one.observed_generation == view.metadata.generation
            && !one.message.is_empty()
    });
    (!said).then(|| with_execution_time(patch(view, std::slice::from_ref(&change), now), view, &change, now))
}

fn with_execution_time(mut body: Value, view: &Workload, admitted: &Change, now: Timestamp) -> Value {
    if let (false, Some(seconds)) = (admitted.status, checks::executed(view, now)) {
        body["status"]["accumulatedPastExecutionTimeSeconds"] = json!(seconds);
    }
    body
}

/// Pods that have ended and give their quota back.
pub fn reclaimable(pods: &[ReclaimablePod]) -> Value {
    json!({ "status": { "reclaimablePods": pods } })
}

/// One condition, written.
pub fn with_condition(view: &Workload, change: &Change, now: Timestamp) -> Value {
    patch(view, std::slice::from_ref(change), now)
}

/// Without quota, and not to be queued until somebody says so: its job is there and wants no pods.
pub fn on_hold(view: &Workload, now: Timestamp) -> Value {
    let words = "its job is scaled to nothing";
    let admitted = checks::admitted(false, true, false);
    let changes = [
        Change::new(tokens::QUOTA_RESERVED, false, tokens::quota_reserved::ON_HOLD, words),
        admitted.clone(),
    ];
    let mut body = with_execution_time(patch(view, &changes, now), view, &admitted, now);
    body["status"]["admission"] = Value::Null;
    body
}

/// When it may be looked at again.
pub fn put_off(state: &RequeueState) -> Value {
    json!({ "status": { "requeueState": { "count": state.count, "requeueAt": state.requeue_at } } })
}

/// The eviction: the quota stays reserved until the pods are gone.
pub fn evicted(view: &Workload, reason: EvictReason, message: &str, now: Timestamp) -> Value {
    let mut changes = vec![Change::new(tokens::EVICTED, true, reason.token(), message)];
    if let EvictReason::Preempted(right) = reason {
        changes.push(Change::new(tokens::PREEMPTED, true, right.token(), message));
    }
    let mut body = patch(view, &changes, now);
    body["status"]["schedulingStats"] = json!({ "evictions": evictions(view, reason.token()) });
    if !view.status.unhealthy_nodes.is_empty() {
        body["status"]["unhealthyNodes"] = Value::Null;
    }
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
    let admitted = checks::admitted(false, true, false);
    let changes = [
        Change::new(
            tokens::QUOTA_RESERVED,
            false,
            tokens::quota_reserved::PENDING_EVALUATION,
            "the quota was given back after the eviction",
        ),
        admitted.clone(),
        Change::new(tokens::REQUEUED, requeued, reason, message),
    ];
    let mut body = with_execution_time(patch(view, &changes, now), view, &admitted, now);
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
    changes.push(checks::admitted(false, true, false));
    if said {
        return None;
    }
    let mut body = patch(view, &changes, now);
    let asked =
        requests.iter().map(|(name, amounts)| json!({ "name": name, "resources": quantities(amounts) }));
    body["status"]["resourceRequests"] = asked.collect();
    Some(body)
}

/// The end, well or not.
pub fn finished(view: &Workload, reason: &str, message: &str, now: Timestamp) -> Value {
    let message = if message.is_empty() { "the job has ended".to_owned() } else { message.to_owned() };
    patch(view, &[Change::new(tokens::FINISHED, true, reason, words::truncated(message))], now)
}

/// The end of a slice of an elastic job whose quota another one has now.
pub fn replaced(view: &Workload, by: &Workload, now: Timestamp) -> Value {
    let name = by.metadata.name.as_deref().unwrap_or_default();
    let message = format!("Workload {name} of the same job has its quota, and takes its place");
    finished(view, tokens::finished::WORKLOAD_SLICE_REPLACED, &message, now)
}
