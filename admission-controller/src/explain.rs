//! The engine's state as JSON, with what the objects say themselves: for `/debug/state`. Where the engine only knows that a
//! workload has quota, its object tells what it waits for: checks, places, pods.

mod closely;

use std::collections::{BTreeMap, BTreeSet};

use crds::reasons::workload as tokens;
use crds::view::workload::{CheckState, Workload};
use jiff::Timestamp;
use quota_engine::{Engine, Explanation, FlavorUsage, PendingReason, Uid, WorkloadState};
use serde_json::{Value, json};

use crate::ready::PodsReady;
use crate::{checks, input, words};

pub use closely::closely;

/// What is known.
pub struct Known<'a> {
    /// What was decided.
    pub engine: &'a Engine,
    /// The Workload of a uid, as it was seen last.
    pub object: &'a dyn Fn(&Uid) -> Option<Workload>,
    /// How long pods may take to be ready, if there is a limit.
    pub pods_ready: Option<&'a PodsReady>,
    /// The schedulers that place the pods of a workload, where they are other ones than jobs are given to.
    pub others: &'a dyn Fn(&Uid) -> BTreeSet<String>,
}

/// What a workload is doing, in one word, why, and until when.
struct Standing {
    state: &'static str,
    reason: Option<String>,
    message: Option<String>,
    until: Option<Timestamp>,
}

impl Standing {
    fn new(state: &'static str) -> Self {
        Self { state, reason: None, message: None, until: None }
    }

    fn because(self, reason: &str, message: String) -> Self {
        Self { reason: Some(reason.to_owned()), message: Some(message), ..self }
    }

    fn until(self, until: Option<Timestamp>) -> Self {
        Self { until, ..self }
    }
}

/// Everything.
pub fn state(known: &Known<'_>, leads: bool) -> Value {
    let queues: Vec<Value> = known
        .engine
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
    let leaving = known.engine.leaving();
    let workloads = known.engine.workloads().filter_map(|uid| workload(known, uid, &leaving));
    let workloads: Vec<Value> = workloads.collect();
    json!({ "leader": leads, "clusterQueues": queues, "workloads": workloads })
}

/// One workload: where it stands, and why. `leaving` is who leaves for whom.
fn workload(known: &Known<'_>, uid: &Uid, leaving: &BTreeMap<Uid, Vec<Uid>>) -> Option<Value> {
    let explanation = known.engine.explain(uid)?;
    let object = (known.object)(uid);
    let object = object.as_ref();
    let names = |uids: &[Uid]| -> Vec<Value> { uids.iter().map(|uid| named(known, uid)).collect() };
    let leave_for_it = leaving.get(uid).map(Vec::as_slice).unwrap_or_default();
    let Standing { state, reason, message, until } = standing(known, uid, &explanation, object, leave_for_it);
    let preemptor = match &explanation.state {
        WorkloadState::Leaving(_, preemptor) => preemptor.as_ref(),
        _ => None,
    };
    let key = explanation.local_queue.as_ref();
    let used = key.and_then(|key| known.engine.history(key)).map(|history| history.consumption);
    let listed = object.map(|object| object.status.admission_checks.as_slice()).unwrap_or_default();
    let checks = listed.iter().map(|check| {
        json!({ "name": check.name, "state": format!("{:?}", check.state), "message": check.message })
    });
    Some(json!({
        "uid": uid.to_string(),
        "namespace": &*explanation.namespace,
        "name": &*explanation.name,
        "priority": explanation.priority,
        "clusterQueue": explanation.cluster_queue.as_ref().map(|name| name.as_str()),
        "state": state,
        "preemptor": preemptor.map(|uid| named(known, uid)),
        "leaving": names(leave_for_it),
        "reason": reason,
        "message": message,
        "until": until.map(|until| until.to_string()),
        "checks": checks.collect::<Vec<_>>(),
        "ahead": explanation.ahead,
        "localQueueUsage": used.map(|used| used.approximate()),
    }))
}

fn standing(
    known: &Known<'_>,
    uid: &Uid,
    explanation: &Explanation,
    object: Option<&Workload>,
    leave_for_it: &[Uid],
) -> Standing {
    let waits = |state: &'static str| match &explanation.reason {
        Some(reason) => Standing::new(state).because(reason.token(), words::pending(reason)),
        None => Standing::new(state),
    };
    match &explanation.state {
        WorkloadState::Aside => match (&explanation.reason, object) {
            (Some(PendingReason::PutOff { until_ms }), _) => {
                put_off(waits("PutOff"), object).until(Timestamp::from_millisecond(*until_ms).ok())
            }
            (None, Some(object)) if input::is_on_hold(object) => {
                let said = object.condition(tokens::QUOTA_RESERVED).map(|one| one.message.clone());
                Standing::new("NotQueued").because(tokens::quota_reserved::ON_HOLD, said.unwrap_or_default())
            }
            _ => waits("NotQueued"),
        },
        WorkloadState::Queued => waits("Queued"),
        WorkloadState::Parked => waits("Waiting"),
        WorkloadState::Claiming(_) => {
            let mut standing = waits("WaitingForPreempted");
            let names: Vec<String> = leave_for_it.iter().map(|uid| name_of(known, uid)).collect();
            if let (Some(message), false) = (&mut standing.message, names.is_empty()) {
                message.push_str(&format!(": {}", names.join(", ")));
            }
            standing
        }
        WorkloadState::Assumed(_) => Standing::new("Admitting"),
        WorkloadState::Holding(_) => match object {
            Some(object) if object.holds(tokens::ADMITTED) => admitted(known, uid, explanation, object),
            Some(object) => reserved(explanation, object),
            None => Standing::new("QuotaReserved"),
        },
        WorkloadState::Leaving(_, preemptor) => leaving_words(known, object, preemptor.as_ref()),
        WorkloadState::Finished => Standing::new("Finished"),
    }
}

/// How often it was, where its object counts that.
fn put_off(mut standing: Standing, object: Option<&Workload>) -> Standing {
    let count = object.and_then(|object| object.status.requeue_state.as_ref()?.count).unwrap_or(0);
    if let (Some(message), true) = (&mut standing.message, count > 0) {
        message.push_str(&format!(", {count} time(s) because its pods did not get ready"));
    }
    standing
}

/// It has quota, and is not admitted yet.
fn reserved(explanation: &Explanation, object: &Workload) -> Standing {
    let listed = &object.status.admission_checks;
    if !checks::are_ready(listed) {
        let states = [
            (CheckState::Rejected, "refused by"),
            (CheckState::Retry, "to be tried again later, says"),
            (CheckState::Pending, "waits for"),
        ];
        let told = states.iter().map(|(state, words)| (checks::told(listed, *state), words));
        let told: Vec<String> = told
            .filter(|(told, _)| !told.is_empty())
            .map(|(told, words)| format!("{words} {told}"))
            .collect();
        let message = format!("it has its quota; admission checks: {}", told.join("; "));
        return Standing::new("WaitingForChecks")
            .because(tokens::admitted::UNSATISFIED_ADMISSION_CHECKS, message)
            .until(checks::retry_at(listed));
    }
    if explanation.awaits_places || checks::awaits_topology(object) {
        let why = explanation.reason.as_ref().map(words::pending);
        let message = match why {
            Some(why) => {
                format!("it has its quota and its checks, and no places for its pods on the nodes yet: {why}")
            }
            None => {
                "it has its quota and its checks; places for its pods on the nodes are looked for".to_owned()
            }
        };
        return Standing::new("WaitingForPlaces")
            .because(tokens::admitted::PENDING_DELAYED_TOPOLOGY_REQUESTS, message);
    }
    Standing::new("QuotaReserved")
}

/// It is admitted; who places its pods is told where that is not who is expected to.
fn admitted(known: &Known<'_>, uid: &Uid, explanation: &Explanation, object: &Workload) -> Standing {
    let mut standing = waits_for_pods(known, explanation, object);
    let others = words::placed_by(&(known.others)(uid));
    standing.message =
        [standing.message, others].into_iter().flatten().reduce(|one, other| format!("{one}; {other}"));
    standing
}

fn waits_for_pods(known: &Known<'_>, explanation: &Explanation, object: &Workload) -> Standing {
    let admitted = Standing::new("Admitted");
    let failed: Vec<&str> = object.status.unhealthy_nodes.iter().map(|node| node.name.as_str()).collect();
    if !failed.is_empty() {
        let next = if explanation.awaits_places { "others are looked for" } else { "it has no others" };
        return admitted.because(
            tokens::evicted::NODE_FAILURES,
            format!("nodes of it have failed: {}; {next}", failed.join(", ")),
        );
    }
    let Some(pods_ready) = known.pods_ready else { return admitted };
    let leaves = pods_ready.leave(object).and_then(|leave| Timestamp::from_millisecond(leave.at_ms).ok());
    let end = match (leaves, pods_ready.gives_up_at(object)) {
        (Some(at), _) => Some((at, "evicted")),
        (None, Some(at)) => Some((at, "deactivated, having been put off as often as may be")),
        (None, None) => None,
    };
    let said = object.condition(tokens::PODS_READY).map(|said| said.reason.as_str());
    match end {
        Some((at, what)) => {
            let reason = said.unwrap_or(tokens::pods_ready::WAIT_FOR_START);
            let message = format!("not all its pods are ready; if that stays so until {at} it is {what}");
            admitted.because(reason, message).until(Some(at))
        }
        None => admitted,
    }
}

/// It was told to leave.
fn leaving_words(known: &Known<'_>, object: Option<&Workload>, preemptor: Option<&Uid>) -> Standing {
    let leaving = Standing::new("Evicted");
    let said = object.and_then(|object| object.true_condition(tokens::EVICTED));
    let (reason, mut message) = match said {
        Some(said) => (said.reason.clone(), said.message.clone()),
        None => (tokens::EVICTED.to_owned(), "its eviction is on its way".to_owned()),
    };
    if let Some(preemptor) = preemptor {
        message.push_str(&format!("; it leaves for {}", name_of(known, preemptor)));
    }
    message.push_str("; its quota is free when its job is suspended and has no pods left");
    leaving.because(&reason, message)
}

fn name_of(known: &Known<'_>, uid: &Uid) -> String {
    match known.engine.explain(uid) {
        Some(one) => format!("{}/{}", one.namespace, one.name),
        None => uid.to_string(),
    }
}

fn named(known: &Known<'_>, uid: &Uid) -> Value {
    let one = known.engine.explain(uid);
    let (namespace, name) = one.map(|one| (one.namespace, one.name)).unzip();
    json!({ "uid": uid.to_string(), "namespace": namespace.as_deref(), "name": name.as_deref() })
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
