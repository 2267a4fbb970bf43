//! Every status of a Workload that is written, as a patch.

use std::collections::BTreeMap;
use std::sync::Arc;

use crds::reasons::workload as tokens;
use crds::view::workload::{AdmissionCheckState, ReclaimablePod, Requested, Workload};
use jiff::Timestamp;
use model::resources::{self, ResourceList, ResourceName};
use quota_engine::input::{Admission, DelayedTopology};
use quota_engine::{Inactive, PendingReason};
use serde_json::{Value, json};

use super::{Change, merged};
use crate::ready::PodsReadyState;
use crate::{checks, requeue, topology, words};

pub(super) fn patch(view: &Workload, changes: &[Change], now: Timestamp) -> Value {
    let conditions = merged(&view.status.conditions, changes, view.metadata.generation, now);
    json!({ "status": { "conditions": conditions } })
}

/// The admission, in one write: QuotaReserved, Admitted and `status.admission`. `checks` are the states of the checks that it
/// has to pass: where one is not ready this is the first phase only, see [`synced`]. `waits_for_pods` tells whether its pods
/// are to be ready in time.
pub fn reserved(
    view: &Workload,
    admission: &Admission,
    checks: &[AdmissionCheckState],
    waits_for_pods: bool,
    now: Timestamp,
) -> Value {
    let mut changes = reservation_changes(view, admission);
    // What is admitted stays so, whatever is asked of its queue since; it gets another node for one that failed.
    let stays = view.holds(tokens::ADMITTED) && view.holds(tokens::QUOTA_RESERVED);
    let awaits_places = !stays && admission.awaits_places();
    changes.push(checks::admitted(true, stays || checks::are_ready(checks), awaits_places));
    changes.extend(requeued(view, now));
    // What runs already may have pods that are ready.
    changes.extend(unready(view, waits_for_pods).filter(|_| !stays));
    let mut body = with_admission(patch(view, &changes, now), view, admission);
    if !checks::same(checks, &view.status.admission_checks) {
        body["status"]["admissionChecks"] = states(checks);
    }
    if !view.status.unhealthy_nodes.is_empty() {
        // Other nodes have taken their place.
        body["status"]["unhealthyNodes"] = Value::Null;
    }
    without_backoff(&mut body, view);
    body
}

/// Null where there are none.
pub(super) fn states(checks: &[AdmissionCheckState]) -> Value {
    if checks.is_empty() { Value::Null } else { json!(checks) }
}

/// What it was put off for is over; how often that was stays.
fn without_backoff(body: &mut Value, view: &Workload) {
    if let Some(state) = view.status.requeue_state.as_ref().filter(|state| state.requeue_at.is_some()) {
        let left = if state.count.is_some() { json!({ "requeueAt": null }) } else { Value::Null };
        body["status"]["requeueState"] = left;
    }
}

/// Its pods are not ready, whatever was said of earlier ones.
pub(super) fn unready(view: &Workload, waits_for_pods: bool) -> Option<Change> {
    let said = view.condition(tokens::PODS_READY);
    let outdated = said.map_or(waits_for_pods, |one| {
        (one.status.as_str(), one.reason.as_str()) != ("False", tokens::pods_ready::WAIT_FOR_START)
    });
    outdated.then(|| pods_ready_change(PodsReadyState::WaitForStart))
}

fn pods_ready_change(state: PodsReadyState) -> Change {
    Change::new(tokens::PODS_READY, state.is_ready(), state.token(), words::pods_ready(state))
}

/// Whether its pods are ready.
pub fn pods_ready(view: &Workload, state: PodsReadyState, now: Timestamp) -> Value {
    patch(view, &[pods_ready_change(state)], now)
}

/// The states of its checks, and what they make of a workload with quota.
pub fn listed(view: &Workload, checks: &[AdmissionCheckState], now: Timestamp) -> Value {
    let mut after = view.clone();
    after.status.admission_checks = checks.to_vec();
    // What is admitted stays so until it is evicted.
    let admitted = view.holds(tokens::ADMITTED);
    let mut body = synced(&after, now).filter(|_| !admitted).unwrap_or_else(|| json!({ "status": {} }));
    body["status"]["admissionChecks"] = states(checks);
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
            let message = format!("Previously: {}", before.message);
            changes.push(Change::new(kind, false, tokens::evicted::QUOTA_RESERVED, message));
        }
    }
    changes
}

/// Who has quota already gets places only: pods that have ended since are not counted by `admission`, but were granted.
fn with_admission(mut body: Value, view: &Workload, admission: &Admission) -> Value {
    let held = view.status.admission.as_ref().filter(|held| {
        view.holds(tokens::QUOTA_RESERVED) && held.cluster_queue == admission.cluster_queue.as_str()
    });
    let before = |name: &str| {
        let mut sets = held.iter().flat_map(|held| &held.pod_set_assignments);
        sets.find(|one| one.name == name)
    };
    let assignments: Vec<Value> = admission
        .pod_sets
        .iter()
        .map(|one| {
            let before = before(&one.name);
            let count = before.and_then(|before| before.count).unwrap_or(one.count);
            let mut entry = json!({ "name": one.name, "count": count });
            if !one.flavors.is_empty() {
                let flavors =
                    one.flavors.iter().map(|(resource, flavor)| (resource.as_str(), flavor.as_str()));
                entry["flavors"] = json!(flavors.collect::<BTreeMap<_, _>>());
            }
            let granted = before.and_then(|before| resources::amounts(&before.resource_usage).ok());
            if let Some(granted) = granted.filter(|granted| !granted.is_empty()) {
                entry["resourceUsage"] = quantities(&granted);
            } else if !one.usage.is_empty() {
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

fn quantities<'a>(amounts: impl IntoIterator<Item = (&'a ResourceName, &'a i64)>) -> Value {
    amounts
        .into_iter()
        .map(|(resource, amount)| (resource.as_str(), json!(resource.quantity(*amount))))
        .collect()
}

/// Condition Admitted as quota, checks and places have it now; `None` where the status says so already. Words of others are
/// as good as ours. The time for which it was admitted is kept when it no longer is.
pub fn synced(view: &Workload, now: Timestamp) -> Option<Value> {
    synced_as(view, false, now)
}

/// The same. `explicit` tells whether it is said, too, of one of which nothing was said before.
pub fn synced_as(view: &Workload, explicit: bool, now: Timestamp) -> Option<Value> {
    let change = admission_news(view, explicit)?;
    Some(with_execution_time(patch(view, std::slice::from_ref(&change), now), view, &change, now))
}

/// Of a new workload: that it waits and is not admitted. `None` where something was said of its quota. `waits_for_pods` tells
/// whether its pods are to be ready in time.
pub fn introduced(view: &Workload, waits_for_pods: bool, now: Timestamp) -> Option<Value> {
    if view.condition(tokens::QUOTA_RESERVED).is_some() {
        return None;
    }
    let reason = tokens::quota_reserved::PENDING_EVALUATION;
    let waits = Change::new(tokens::QUOTA_RESERVED, false, reason, "it has not been looked at yet");
    let unready = unready(view, waits_for_pods);
    let changes: Vec<Change> = [waits].into_iter().chain(admission_news(view, true)).chain(unready).collect();
    Some(patch(view, &changes, now))
}

fn admission_news(view: &Workload, explicit: bool) -> Option<Change> {
    let seen = view.condition(tokens::ADMITTED);
    if !explicit && seen.is_none() && view.condition(tokens::QUOTA_RESERVED).is_none() {
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
    (!said).then_some(change)
}

pub(super) fn with_execution_time(
    mut body: Value,
    view: &Workload,
    admitted: &Change,
    now: Timestamp,
) -> Value {
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

/// Without quota, and not to be queued until [`off_hold`]: its job is there and can have no pods, in these words.
pub fn on_hold(view: &Workload, words: &str, now: Timestamp) -> Value {
    let admitted = checks::admitted(false, true, false);
    let changes = [
        Change::new(tokens::QUOTA_RESERVED, false, tokens::quota_reserved::ON_HOLD, words),
        admitted.clone(),
    ];
    let mut body = with_execution_time(patch(view, &changes, now), view, &admitted, now);
    body["status"]["admission"] = Value::Null;
    body
}

/// Queued again after [`on_hold`].
pub fn off_hold(view: &Workload, words: &str, now: Timestamp) -> Value {
    let reason = tokens::quota_reserved::PENDING_EVALUATION;
    with_condition(view, &Change::new(tokens::QUOTA_RESERVED, false, reason, words), now)
}

/// What kept it from being requeued is over.
fn requeued(view: &Workload, now: Timestamp) -> Option<Change> {
    let before = view.condition(tokens::REQUEUED).filter(|one| one.status == "False")?;
    let reason = requeue::end_of(&before.reason)?;
    let until = view.put_off_until();
    if reason == tokens::evicted::BACKOFF_FINISHED && until.is_some_and(|until| until.0 > now) {
        return None;
    }
    Some(Change::new(tokens::REQUEUED, true, reason, words::requeued(reason)))
}

/// Whether what kept it from being requeued is over, while it waits for this reason. A queue that is stopped is not over when it may
/// admit nothing for another reason, nor is a back-off.
fn is_over(end: &str, waits: &PendingReason) -> bool {
    use PendingReason::{
        ClusterQueueInactive, ClusterQueueMissing, Deactivated, LocalQueueMissing, LocalQueueStopped,
        NoQueueName, PutOff,
    };
    let is_in_no_queue = matches!(waits, NoQueueName | LocalQueueMissing(_) | LocalQueueStopped(_));
    let is_stopped = match waits {
        ClusterQueueMissing(_) => true,
        ClusterQueueInactive(_, inactive) => matches!(inactive, Inactive::Stopped | Inactive::Terminating),
        _ => is_in_no_queue,
    };
    match (end, waits) {
        (_, Deactivated | PutOff { .. }) => false,
        (tokens::evicted::LOCAL_QUEUE_RESTARTED, _) => !is_in_no_queue,
        (tokens::evicted::CLUSTER_QUEUE_RESTARTED, _) => !is_stopped,
        _ => true,
    }
}

/// Whether it waits for something else than the end of its back-off, of whose condition somebody else may have said what there is to say.
fn is_backoff_over(view: &Workload, waits: &PendingReason, now: Timestamp) -> bool {
    let until = view.put_off_until();
    let is_off = matches!(waits, PendingReason::Deactivated | PendingReason::PutOff { .. });
    !is_off && until.is_some_and(|until| until.0 <= now)
}

/// Whether the status says just that, of the object as it is now.
fn is_said(view: &Workload, change: &Change) -> bool {
    view.condition(change.kind).is_some_and(|one| {
        (one.status == "True") == change.status
            && one.reason == change.reason
            && one.message == change.message
            && one.observed_generation == view.metadata.generation
    })
}

/// Whether that is told with what its pod sets ask for: it had its turn in a cycle of its queue, which weighed that. What
/// keeps it from having one is no matter of requests, nor is it when nobody is admitted.
fn is_weighed(reason: &PendingReason) -> bool {
    match reason {
        PendingReason::NoFit(_)
        | PendingReason::NoLongerFits
        | PendingReason::TargetsTaken
        | PendingReason::PreemptionGated
        | PendingReason::WaitingForPreempted { .. }
        | PendingReason::ChecksFailed
        | PendingReason::NamespaceMismatch(_)
        | PendingReason::Defect(_)
        | PendingReason::AdmissionRefused(_) => true,
        PendingReason::Behind
        | PendingReason::Deactivated
        | PendingReason::NoQueueName
        | PendingReason::LocalQueueMissing(_)
        | PendingReason::LocalQueueStopped(_)
        | PendingReason::ClusterQueueMissing(_)
        | PendingReason::ClusterQueueInactive(..)
        | PendingReason::PutOff { .. }
        | PendingReason::KeptOut(_)
        | PendingReason::PodsNotReady
        | PendingReason::AdmissionGated(_) => false,
    }
}

/// Why it waits, and for what its pod sets ask where that was looked at; `None` where its status says so already, of the
/// workload as it is now. That its pods are not ready, where they are to be in time (`waits_for_pods`), is said along with that:
/// Kueue says it in a write of its own.
pub fn pending(
    view: &Workload,
    reason: &PendingReason,
    requests: &[(Arc<str>, ResourceList)],
    waits_for_pods: bool,
    now: Timestamp,
) -> Option<Value> {
    let (token, message) = (reason.token(), words::pending(reason));
    let put_off = matches!(reason, PendingReason::PutOff { .. });
    // That it was put off is said where it was evicted, and until when in its requeueState.
    if put_off && view.condition(tokens::QUOTA_RESERVED).is_some_and(|one| one.reason == token) {
        return None;
    }
    let requeued = requeued(view, now).filter(|change| is_over(&change.reason, reason));
    let mut changes = vec![Change::new(tokens::QUOTA_RESERVED, false, token, message.clone())];
    if *reason == PendingReason::PreemptionGated {
        let gated = tokens::blocked_on_preemption_gates::PREEMPTION_GATED;
        changes.push(Change::new(tokens::BLOCKED_ON_PREEMPTION_GATES, true, gated, message));
    }
    changes.push(checks::admitted(false, true, false));
    let requests = if is_weighed(reason) { requests } else { &[] };
    // They may change without the object: with a LimitRange, a RuntimeClass, the configuration.
    let is_asked = requests.is_empty() || view.status.resource_requests == Some(Requested::of(requests));
    let is_back = requeued.is_some() || is_backoff_over(view, reason, now);
    if is_asked && !is_back && changes.iter().all(|change| is_said(view, change)) {
        return None;
    }
    changes.extend(requeued);
    changes.extend(unready(view, waits_for_pods));
    let mut body = patch(view, &changes, now);
    if is_back {
        without_backoff(&mut body, view);
    }
    if !requests.is_empty() {
        let asked =
            requests.iter().map(|(name, amounts)| json!({ "name": name, "resources": quantities(amounts) }));
        body["status"]["resourceRequests"] = asked.collect();
    }
    Some(body)
}

/// The end, well or not.
pub fn finished(view: &Workload, reason: &str, message: &str, now: Timestamp) -> Value {
    let message = if message.is_empty() { "the job has ended" } else { message };
    patch(view, &[Change::new(tokens::FINISHED, true, reason, message)], now)
}

/// The end of a slice of an elastic job whose quota another one has now.
pub fn replaced(view: &Workload, by: &Workload, now: Timestamp) -> Value {
    let name = by.metadata.name.as_deref().unwrap_or_default();
    let message = format!("Workload {name} of the same job has its quota, and takes its place");
    finished(view, tokens::finished::WORKLOAD_SLICE_REPLACED, &message, now)
}

#[cfg(test)]
mod tests {
    use quota_engine::LocalQueueKey;
    use quota_engine::input::KeptOut;

    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    fn waiting() -> Value {
        json!({ "metadata": { "generation": 1 }, "spec": {}, "status": {} })
    }

    fn read(object: &Value) -> Workload {
        serde_json::from_value(object.clone()).unwrap()
    }

    /// Rules: Kueue's `TestReconcileRequeue`.
    #[test]
    fn what_is_over_is_told_though_the_queue_admits_nothing_for_another_reason() {
        let key = || LocalQueueKey::new("team", "a");
        let inactive = |why: Inactive| PendingReason::ClusterQueueInactive("a".into(), why);
        let lacks = || inactive(Inactive::FlavorNotFound(vec!["f".into()]));
        let stopped = || inactive(Inactive::Stopped);
        let (no_queue, held) =
            (|| PendingReason::LocalQueueMissing(key()), || PendingReason::LocalQueueStopped(key()));
        for (was, wanted, over, not_over) in [
            ("LocalQueueStopped", "LocalQueueRestarted", vec![lacks(), stopped()], vec![held(), no_queue()]),
            (
                "ClusterQueueStopped",
                "ClusterQueueRestarted",
                vec![lacks()],
                vec![stopped(), held(), no_queue()],
            ),
            (
                "PodsReadyTimeout",
                "BackoffFinished",
                vec![lacks(), stopped(), held()],
                vec![PendingReason::Deactivated],
            ),
            (
                "Deactivated",
                "Reactivated",
                vec![lacks(), stopped(), held()],
                vec![PendingReason::Deactivated],
            ),
        ] {
            let each = over.iter().map(|one| (one, true)).chain(not_over.iter().map(|one| (one, false)));
            for (reason, is_over) in each {
                let mut object = waiting();
                object["status"]["conditions"] = json!([{ "type": "Requeued", "status": "False", "reason": was,
                    "message": "", "lastTransitionTime": now() }]);
                object["status"]["requeueState"] = json!({ "count": 1, "requeueAt": "2025-12-31T00:00:00Z" });
                assert!(told(&mut object, reason, 1));
                let after = read(&object);
                let said = after.true_condition(tokens::REQUEUED).map(|one| one.reason.as_str());
                assert_eq!(said, is_over.then_some(wanted), "{was} {reason:?}");
                let left = after.status.requeue_state.unwrap().requeue_at.is_some();
                assert_eq!(left, *reason == PendingReason::Deactivated, "{was} {reason:?}");
            }
        }
    }

    /// Kueue's integration test `SchedulerWithWaitForPodsReadyNonblockingMode`: whoever gave the quota back said nothing of `Requeued`.
    #[test]
    fn a_backoff_that_is_over_is_taken_away_whatever_was_said_of_it() {
        for (until, reason, wanted) in [
            ("2025-12-31T23:59:59Z", PendingReason::Behind, true),
            ("2026-01-01T00:00:00Z", PendingReason::Behind, true),
            ("2026-01-01T00:00:01Z", PendingReason::Behind, false),
            ("2025-12-31T23:59:59Z", PendingReason::Deactivated, false),
            ("2025-12-31T23:59:59Z", PendingReason::PutOff { until_ms: 0 }, false),
        ] {
            let mut object = waiting();
            told(&mut object, &reason, 1);
            object["status"]["requeueState"] = json!({ "count": 1, "requeueAt": until });
            assert_eq!(told(&mut object, &reason, 1), wanted, "{until} {reason:?}");
            let left = read(&object).status.requeue_state.unwrap();
            assert_eq!(left.requeue_at.is_none(), wanted, "{until} {reason:?}");
            assert!(!told(&mut object, &reason, 1), "{until} {reason:?}");
        }
    }

    /// Writes it, if anything is to be written.
    fn wrote(object: &mut Value, body: Option<Value>) -> bool {
        for (field, value) in body.iter().filter_map(|body| body["status"].as_object()).flatten() {
            object["status"][field] = value.clone();
        }
        body.is_some()
    }

    fn told(object: &mut Value, reason: &PendingReason, gpus: i64) -> bool {
        // The least that there can be is not read as it is written.
        let amounts = ResourceList::from([("nvidia.com/gpu".into(), gpus), ("memory".into(), i64::MIN)]);
        let body = pending(&read(object), reason, &[("main".into(), amounts)], false, now());
        wrote(object, body)
    }

    fn generations(object: &Value) -> Vec<(String, Option<i64>)> {
        let conditions = read(object).status.conditions;
        conditions.into_iter().map(|one| (one.type_, one.observed_generation)).collect()
    }

    /// One of its nodes failed, and it gets another, while its queue asks for a check that it has not passed yet.
    #[test]
    fn what_is_admitted_stays_so_when_it_gets_another_node() {
        let pending: AdmissionCheckState =
            serde_json::from_value(json!({ "name": "budget", "state": "Pending", "message": "" })).unwrap();
        for (quota, before, wanted) in
            [("True", "True", "True"), ("True", "False", "False"), ("False", "True", "False")]
        {
            let mut object = waiting();
            let conditions = [("QuotaReserved", quota), ("Admitted", before)].map(|(kind, status)| {
                json!({
                    "type": kind, "status": status, "reason": "Admitted", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                })
            });
            object["status"]["conditions"] = json!(conditions);
            let admission = Admission { cluster_queue: "a".into(), pod_sets: Vec::new() };
            let body = reserved(&read(&object), &admission, std::slice::from_ref(&pending), false, now());
            wrote(&mut object, Some(body));
            assert_eq!(read(&object).condition("Admitted").unwrap().status, wanted);
        }
    }

    #[test]
    fn a_reason_is_told_once_of_what_the_workload_is_and_asks_for() {
        let mut object = waiting();
        let reason = PendingReason::NamespaceMismatch("cq".into());
        let twice = |object: &mut Value, gpus| [told(object, &reason, gpus), told(object, &reason, gpus)];
        assert_eq!(twice(&mut object, 1), [true, false]);
        object["metadata"]["generation"] = json!(2);
        assert_eq!(twice(&mut object, 1), [true, false], "it was edited");
        let both = ["QuotaReserved", "Admitted"].map(|kind| (kind.to_owned(), Some(2_i64)));
        assert_eq!(generations(&object), both);
        assert_eq!(twice(&mut object, 2), [true, false], "a LimitRange was");
        assert_eq!(object["status"]["resourceRequests"][0]["resources"]["nvidia.com/gpu"], "2");
        // Written otherwise, it is the same.
        object["status"]["resourceRequests"][0]["resources"]["nvidia.com/gpu"] = json!("2000m");
        assert_eq!(twice(&mut object, 2), [false, false]);
    }

    #[test]
    fn a_closed_gate_is_told_of_each_generation() {
        let mut object = waiting();
        assert!(told(&mut object, &PendingReason::PreemptionGated, 1));
        object["metadata"]["generation"] = json!(2);
        assert!(told(&mut object, &PendingReason::PreemptionGated, 1));
        assert!(!told(&mut object, &PendingReason::PreemptionGated, 1));
        assert_eq!(generations(&object).len(), 3);
        assert!(generations(&object).iter().all(|(_, seen)| *seen == Some(2)));
    }

    #[test]
    fn requests_are_told_with_reasons_of_a_cycle_only() {
        for (reason, is_told) in [
            (PendingReason::NoLongerFits, true),
            (PendingReason::TargetsTaken, true),
            (PendingReason::ChecksFailed, true),
            (PendingReason::WaitingForPreempted { victims: 1 }, true),
            (PendingReason::Defect("wrong".to_owned()), true),
            (PendingReason::Behind, false),
            (PendingReason::Deactivated, false),
            (PendingReason::LocalQueueMissing(LocalQueueKey::new("team", "lq")), false),
            (PendingReason::LocalQueueStopped(LocalQueueKey::new("team", "lq")), false),
            (PendingReason::ClusterQueueMissing("cq".into()), false),
            (PendingReason::ClusterQueueInactive("cq".into(), Inactive::Stopped), false),
            (PendingReason::AdmissionGated("someone".into()), false),
            (PendingReason::KeptOut(KeptOut::ReplacementPods), false),
            (PendingReason::PodsNotReady, false),
        ] {
            let mut object = waiting();
            assert!(told(&mut object, &reason, 1) && !told(&mut object, &reason, 1), "{reason:?}");
            assert_eq!(object["status"].get("resourceRequests").is_some(), is_told, "{reason:?}");
        }
        // What an earlier cycle weighed stays written.
        let mut object = waiting();
        told(&mut object, &PendingReason::NoLongerFits, 1);
        assert!(told(&mut object, &PendingReason::Deactivated, 2));
        assert_eq!(object["status"]["resourceRequests"][0]["resources"]["nvidia.com/gpu"], "1");
    }

    #[test]
    fn that_pods_are_not_ready_is_said_along_with_the_reason_to_wait() {
        let mut object = waiting();
        assert!(told(&mut object, &PendingReason::Behind, 1));
        let again = |object: &Value| pending(&read(object), &PendingReason::Behind, &[], true, now());
        assert_eq!(again(&object), None, "it costs no write of its own");
        object["metadata"]["generation"] = json!(2);
        let body = again(&object);
        assert!(wrote(&mut object, body));
        let pods_ready = read(&object).condition(tokens::PODS_READY).cloned().unwrap();
        assert_eq!((pods_ready.status.as_str(), pods_ready.reason.as_str()), ("False", "WaitForStart"));
        let introduced = introduced(&read(&waiting()), true, now()).unwrap();
        assert_eq!(introduced["status"]["conditions"][2]["reason"], "WaitForStart");
    }

    #[test]
    fn of_a_new_workload_nothing_is_said_unless_that_is_wanted() {
        let mut object = waiting();
        assert_eq!(synced(&read(&object), now()), None);
        let mut alone = object.clone();
        let body = synced_as(&read(&alone), true, now());
        assert!(wrote(&mut alone, body));
        assert_eq!(generations(&alone), [("Admitted".to_owned(), Some(1))]);
        assert_eq!(synced_as(&read(&alone), true, now()), None);

        let body = introduced(&read(&object), false, now());
        assert!(wrote(&mut object, body));
        let said: Vec<_> = read(&object).status.conditions.iter().map(|one| one.reason.clone()).collect();
        assert_eq!(said, ["PendingEvaluation", "NoReservation"]);
        assert_eq!(introduced(&read(&object), false, now()), None);
        assert_eq!(synced(&read(&object), now()), None);
    }
}
