//! The status of ClusterQueues, LocalQueues and Cohorts.

use std::collections::BTreeMap;

use crds::reasons::queue as tokens;
use crds::view::cluster_queue::{ClusterQueue, QueueStatus};
use crds::view::cohort::Cohort;
use crds::view::local_queue::LocalQueue;
use jiff::Timestamp;
use model::quantity::Quantity;
use quota_engine::{ClusterQueueReport, FairShare, FlavorUsage, History, LocalQueueReport};
use serde_json::{Map, Value, json};

use super::{Change, is_said, merged};
use crate::words;

/// The status of a ClusterQueue; `None` where it says so already.
pub fn cluster_queue(view: &ClusterQueue, report: &ClusterQueueReport, now: Timestamp) -> Option<Value> {
    let active = match &report.inactive {
        None => Change::new(tokens::ACTIVE, true, tokens::active::READY, "it admits workloads"),
        Some(inactive) => Change::new(
            tokens::ACTIVE,
            false,
            inactive.token(),
            format!("it admits nothing: {}", words::inactive(inactive)),
        ),
    };
    let wanted = json!({
        "flavorsReservation": flavors(&report.reservation, true),
        "flavorsUsage": flavors(&report.usage, true),
        "fairSharing": fair_sharing(report.fair_share.as_ref()),
        "pendingWorkloads": report.pending,
        "reservingWorkloads": report.reserving,
        "admittedWorkloads": report.admitted,
    });
    changed(&view.status, active, wanted, view.metadata.generation, now)
}

/// The status of a Cohort; `None` where it says so already.
pub fn cohort(view: &Cohort, share: Option<&FairShare>) -> Option<Value> {
    let wanted = fair_sharing(share);
    let says = view.status.fair_sharing.as_ref().unwrap_or(&Value::Null);
    (*says != wanted).then(|| json!({ "status": { "fairSharing": becoming(says, wanted) } }))
}

/// Null where sharing is not fair: nothing is said then, and what was said is taken back.
fn fair_sharing(share: Option<&FairShare>) -> Value {
    share.map_or(Value::Null, |share| json!({ "weightedShare": share.weighted }))
}

/// The status of a LocalQueue; `None` where it says so already.
pub fn local_queue(view: &LocalQueue, report: &LocalQueueReport, now: Timestamp) -> Option<Value> {
    let queue = &report.cluster_queue;
    let not = |reason: &str, message: String| Change::new(tokens::ACTIVE, false, reason, message);
    let active = if report.stopped {
        not(tokens::active::STOPPED, "it is stopped by its stopPolicy; set that to None".to_owned())
    } else if !report.cluster_queue_exists {
        not(tokens::active::CLUSTER_QUEUE_DOES_NOT_EXIST, format!("ClusterQueue {queue} does not exist"))
    } else if !report.cluster_queue_active {
        not(tokens::active::CLUSTER_QUEUE_IS_INACTIVE, format!("ClusterQueue {queue} admits nothing"))
    } else {
        Change::new(tokens::ACTIVE, true, tokens::active::READY, "it takes workloads")
    };
    let mut wanted = json!({
        "flavorsReservation": flavors(&report.reservation, false),
        "flavorsUsage": flavors(&report.usage, false),
        "pendingWorkloads": report.pending,
        "reservingWorkloads": report.reserving,
        "admittedWorkloads": report.admitted,
    });
    // Without an account what is written stays: whoever opens one begins with it.
    if let Some(account) = &report.history {
        wanted["fairSharing"] = history(account);
    }
    changed(&view.status, active, wanted, view.metadata.generation, now)
}

/// What a LocalQueue has used. Its share of what is lent is its ClusterQueue's, so it has none of its own.
fn history(history: &History) -> Value {
    let consumed: BTreeMap<&str, Quantity> = history
        .consumed
        .iter()
        .map(|(resource, nanos)| (resource.as_str(), Quantity::from_nanos(*nanos)))
        .collect();
    let at = Timestamp::from_second(history.at_ms.div_euclid(1_000)).unwrap_or_default();
    json!({
        "weightedShare": 0,
        "admissionFairSharingStatus": { "consumedResources": consumed, "lastUpdate": at },
    })
}

/// In the order of the rows, where those of one flavor stand together. Null where there are none.
fn flavors(rows: &[FlavorUsage], with_borrowed: bool) -> Value {
    if rows.is_empty() {
        return Value::Null;
    }
    let entry = |row: &FlavorUsage| {
        let mut entry = json!({ "name": row.resource.as_str(), "total": row.resource.quantity(row.total) });
        if with_borrowed {
            entry["borrowed"] = json!(row.resource.quantity(row.borrowed));
        }
        entry
    };
    let flavor = |rows: &[FlavorUsage]| {
        let resources: Vec<Value> = rows.iter().map(entry).collect();
        json!({ "name": rows[0].flavor.as_str(), "resources": resources })
    };
    rows.chunk_by(|one, next| one.flavor == next.flavor).map(flavor).collect()
}

/// Whether the condition `Active` was written of the object as it is now. Who waits for it waits for that (`kubectl wait`).
pub fn is_current(seen: &QueueStatus, generation: Option<i64>) -> bool {
    seen.conditions.iter().any(|one| one.type_ == tokens::ACTIVE && one.observed_generation == generation)
}

/// A patch of the fields that differ.
fn changed(
    seen: &QueueStatus,
    active: Change,
    wanted: Value,
    generation: Option<i64>,
    now: Timestamp,
) -> Option<Value> {
    let mut patch = Map::new();
    if let Value::Object(wanted) = wanted {
        for (field, value) in wanted {
            let written = seen.rest.get(&field).unwrap_or(&Value::Null);
            if *written != value {
                patch.insert(field, becoming(written, value));
            }
        }
    }
    if !is_said(&seen.conditions, &active, generation) {
        patch.insert("conditions".to_owned(), json!(merged(&seen.conditions, &[active], generation, now)));
    }
    (!patch.is_empty()).then(|| json!({ "status": patch }))
}

/// The merge patch by which a field becomes what is wanted: it names what is to go.
fn becoming(written: &Value, wanted: Value) -> Value {
    match (written, wanted) {
        (Value::Object(written), Value::Object(mut wanted)) => {
            for (key, was) in written {
                let value = wanted.remove(key).map_or(Value::Null, |value| becoming(was, value));
                wanted.insert(key.clone(), value);
            }
            Value::Object(wanted)
        }
        (_, wanted) => wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> LocalQueueReport {
        let row = |flavor: &str, resource: &str, total: i64| FlavorUsage {
            flavor: flavor.into(),
            resource: resource.into(),
            total,
            borrowed: 0,
        };
        let rows = vec![row("h100", "cpu", 500), row("h100", "nvidia.com/gpu", 0), row("a100", "cpu", 0)];
        LocalQueueReport {
            cluster_queue: "cq".into(),
            stopped: false,
            cluster_queue_exists: true,
            cluster_queue_active: true,
            pending: 0,
            inadmissible: 0,
            reserving: 1,
            admitted: 1,
            reservation: rows.clone(),
            usage: rows,
            history: None,
        }
    }

    fn seen(generation: i64, status: Value) -> LocalQueue {
        serde_json::from_value(json!({ "metadata": { "generation": generation }, "status": status })).unwrap()
    }

    #[test]
    fn a_local_queue_says_why_nothing_is_admitted_through_it() {
        for (stopped, exists, is_active, status, reason) in [
            (false, true, true, "True", "Ready"),
            (true, false, false, "False", "Stopped"),
            (false, false, false, "False", "ClusterQueueDoesNotExist"),
            (false, true, false, "False", "ClusterQueueIsInactive"),
        ] {
            let report = LocalQueueReport {
                stopped,
                cluster_queue_exists: exists,
                cluster_queue_active: is_active,
                ..report()
            };
            let patch = local_queue(&seen(1, json!({})), &report, Timestamp::UNIX_EPOCH).unwrap();
            let active = &patch["status"]["conditions"][0];
            assert_eq!(active["type"], "Active");
            assert_eq!((&active["status"], &active["reason"]), (&json!(status), &json!(reason)));
        }
    }

    #[test]
    fn flavors_keep_their_order_and_those_without_use_are_there() {
        let patch = local_queue(&seen(1, json!({})), &report(), Timestamp::UNIX_EPOCH).unwrap();
        let wanted = json!([
            { "name": "h100", "resources": [
                { "name": "cpu", "total": "500m" }, { "name": "nvidia.com/gpu", "total": "0" },
            ]},
            { "name": "a100", "resources": [{ "name": "cpu", "total": "0" }] },
        ]);
        assert_eq!(patch["status"]["flavorsUsage"], wanted);
        assert_eq!(patch["status"]["flavorsReservation"], wanted);
    }

    #[test]
    fn what_is_written_of_the_past_stays_where_no_account_is_kept() {
        let used = |gpus: &str| {
            let consumed = json!({ "nvidia.com/gpu": gpus });
            let status = json!({ "consumedResources": consumed, "lastUpdate": "1970-01-01T00:00:01Z" });
            json!({ "weightedShare": 0, "admissionFairSharingStatus": status })
        };
        let seen = seen(1, json!({ "fairSharing": used("7") }));
        let kept = local_queue(&seen, &report(), Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(kept["status"].get("fairSharing"), None, "{kept}");
        let consumed = [(model::ResourceName::from("nvidia.com/gpu"), 3_000_000_000)].into();
        let history = History { consumed, at_ms: 1_000, ..History::default() };
        let report = LocalQueueReport { history: Some(history), ..report() };
        let patch = local_queue(&seen, &report, Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(patch["status"]["fairSharing"], used("3"));
    }

    /// What was written before would stay otherwise, and the status would be written again and again.
    #[test]
    fn a_written_status_says_what_was_wanted() {
        let status = json!({ "consumedResources": { "gone.com/gpu": "1n", "cpu": "2" }, "lastUpdate": "1970-01-01T00:00:00Z" });
        let rest = json!({ "fairSharing": { "weightedShare": 0, "admissionFairSharingStatus": status } });
        let consumed = [(model::ResourceName::from("cpu"), 0)].into();
        let history = History { consumed, at_ms: 1_000, ..History::default() };
        let report = LocalQueueReport { history: Some(history), ..report() };
        let mut written = rest.clone();
        let patch = local_queue(&seen(1, rest), &report, Timestamp::UNIX_EPOCH).unwrap();
        json_patch::merge(&mut written, &patch["status"]);
        assert_eq!(
            written["fairSharing"]["admissionFairSharingStatus"]["consumedResources"],
            json!({ "cpu": "0" })
        );
        assert_eq!(local_queue(&seen(1, written), &report, Timestamp::MAX), None);
    }

    #[test]
    fn without_rows_there_is_no_list() {
        let empty = LocalQueueReport { usage: Vec::new(), reservation: Vec::new(), ..report() };
        let patch =
            local_queue(&seen(1, json!({ "flavorsUsage": [] })), &empty, Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(patch["status"].get("flavorsReservation"), None);
        assert_eq!(patch["status"]["flavorsUsage"], Value::Null);
    }

    /// An edit that changes nothing of what is told is seen all the same.
    #[test]
    fn the_condition_is_of_the_object_as_it_is() {
        let first = local_queue(&seen(1, json!({})), &report(), Timestamp::UNIX_EPOCH).unwrap();
        let written = &first["status"];
        let (same, edited) = (seen(1, written.clone()), seen(2, written.clone()));
        assert!(is_current(&same.status, Some(1)) && !is_current(&edited.status, Some(2)));
        assert_eq!(local_queue(&same, &report(), Timestamp::MAX), None);
        let mut conditions = written["conditions"].clone();
        conditions[0]["observedGeneration"] = json!(2);
        let wanted = json!({ "status": { "conditions": conditions } });
        assert_eq!(
            local_queue(&edited, &report(), Timestamp::MAX),
            Some(wanted),
            "nothing else, not even the time"
        );
    }
}
