//! The engine's state as JSON: for `/debug/state`, and what `trireme explain` shows of layer 1.

use quota_engine::{Engine, Explanation, FlavorUsage, Uid, WorkloadState};
use serde_json::{Value, json};

use crate::words;

/// Everything.
pub fn state(engine: &Engine, leads: bool) -> Value {
    let queues: Vec<Value> = engine
        .cluster_queues()
        .iter()
        .map(|queue| {
            let report = &queue.report;
            json!({
                "name": queue.name.as_str(),
                "path": queue.path,
                "inactive": report.inactive.as_ref().map(|why| json!({
                    "reason": why.token(),
                    "message": words::inactive(why),
                })),
                "pending": report.pending,
                "reserving": report.reserving,
                "admitted": report.admitted,
                "reservation": usage(&report.reservation),
            })
        })
        .collect();
    let workloads: Vec<Value> = engine.workloads().filter_map(|uid| workload(engine, uid)).collect();
    json!({ "leader": leads, "clusterQueues": queues, "workloads": workloads })
}

/// One workload: where it stands, and why.
pub fn workload(engine: &Engine, uid: &Uid) -> Option<Value> {
    let Explanation { uid, namespace, name, priority, local_queue, cluster_queue, state, reason, ahead } =
        engine.explain(uid)?;
    let used = local_queue.and_then(|key| engine.history(&key)).map(|history| history.consumption);
    let (state, preemptor) = match &state {
        WorkloadState::Aside => ("NotQueued", None),
        WorkloadState::Queued => ("Queued", None),
        WorkloadState::Parked => ("Waiting", None),
        WorkloadState::Claiming(_) => ("WaitingForPreempted", None),
        WorkloadState::Assumed(_) => ("Admitting", None),
        WorkloadState::Holding(_) => ("Admitted", None),
        WorkloadState::Leaving(_, preemptor) => ("Evicted", preemptor.as_ref()),
        WorkloadState::Finished => ("Finished", None),
    };
    Some(json!({
        "uid": uid.as_str(),
        "namespace": &*namespace,
        "name": &*name,
        "priority": priority,
        "clusterQueue": cluster_queue.as_ref().map(|name| name.as_str()),
        "state": state,
        "preemptor": preemptor.map(Uid::as_str),
        "reason": reason.as_ref().map(|reason| reason.token()),
        "message": reason.as_ref().map(words::pending),
        "ahead": ahead,
        "localQueueUsage": used.map(|used| used.approximate()),
    }))
}

fn usage(rows: &[FlavorUsage]) -> Vec<Value> {
    rows.iter()
        .map(|row| {
            json!({
                "flavor": row.flavor.as_str(),
                "resource": row.resource.as_str(),
                "total": row.resource.quantity(row.total),
                "borrowed": row.resource.quantity(row.borrowed),
            })
        })
        .collect()
}
