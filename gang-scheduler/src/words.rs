//! From the engine's data to what people and other controllers read.

use crds::reasons;
use placement_engine::{GangReport, Hold, Why};
use serde_json::{Value, json};

/// The reason token of `PodScheduled=False` and of events.
///
/// `Unschedulable` is what cluster autoscalers act on, so only a lack of room on nodes is called so.
pub fn token(why: &Why) -> &'static str {
    match why {
        Why::NoFit(_) => reasons::pod::UNSCHEDULABLE,
        Why::NotEnoughMembers { .. } => reasons::pod_group::NOT_ENOUGH_TASKS,
        Why::NotEnoughOfRole { .. } => reasons::pod_group::NOT_ENOUGH_PODS_OF_TASK,
        Why::BackingOff { .. } => reasons::pod::SCHEDULER_ERROR,
        Why::Held(hold) => match hold {
            Hold::PodGroupMissing { .. } => reasons::pod::POD_GROUP_NOT_FOUND,
            Hold::WorkloadMissing => reasons::pod::WORKLOAD_NOT_FOUND,
            Hold::WorkloadNotAdmitted { .. } => reasons::pod::WORKLOAD_NOT_ADMITTED,
            Hold::ExceedsGrant { .. } => reasons::pod::EXCEEDS_GRANT,
            Hold::Unsupported(_) => reasons::pod::UNSUPPORTED_FEATURE,
            Hold::Invalid { .. } => reasons::pod::INVALID_POD,
        },
    }
}

/// The reason token of the PodGroup's `Unschedulable` condition: Volcano's where it has one.
pub fn group_token(why: &Why) -> &'static str {
    match why {
        Why::NoFit(_) => reasons::pod_group::NOT_ENOUGH_RESOURCES,
        other => token(other),
    }
}

/// A time as Kubernetes writes it.
pub fn time(now_ms: i64) -> String {
    let seconds = now_ms.div_euclid(1000);
    jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::UNIX_EPOCH).to_string()
}

/// The list with this condition put in, in place of the one of its type. `None`: it says so already.
///
/// The time of the last transition stays as long as the status does.
pub fn with_condition(
    list: &[Value],
    kind: &str,
    status: &str,
    (reason, message): (&str, &str),
    now_ms: i64,
) -> Option<Vec<Value>> {
    let position = list.iter().position(|one| one["type"] == kind);
    let old = position.map(|position| &list[position]);
    let same_status = old.is_some_and(|old| old["status"] == status);
    if same_status && old.is_some_and(|old| old["reason"] == reason && old["message"] == message) {
        return None;
    }
    let since = match old {
        Some(old) if same_status && old["lastTransitionTime"].is_string() => {
            old["lastTransitionTime"].clone()
        }
        _ => json!(time(now_ms)),
    };
    let mut new = old.cloned().unwrap_or_else(|| json!({ "type": kind }));
    new["status"] = json!(status);
    new["reason"] = json!(reason);
    new["message"] = json!(message);
    new["lastTransitionTime"] = since;
    let mut list = list.to_vec();
    match position {
        Some(position) => list[position] = new,
        None => list.push(new),
    }
    Some(list)
}

/// The phase of a Volcano PodGroup (`getPodGroupPhase` of Volcano's job controller cache, without its enqueue step: quota
/// is another layer's business, so a group is always let in).
pub fn group_phase(report: &GangReport) -> &'static str {
    let running = report.bound;
    let done = report.succeeded.saturating_add(report.failed);
    if running == 0 && report.members == 0 && done > 0 && done >= report.min_member {
        return "Completed";
    }
    if running > 0 && running.saturating_add(done) >= report.min_member {
        return "Running";
    }
    if running > 0 && report.why.is_some() {
        return "Unknown";
    }
    "Inqueue"
}

#[cfg(test)]
mod tests {
    use super::*;
    use placement_engine::Refusal;

    #[test]
    fn a_condition_is_put_in_and_others_stay() {
        let foreign = json!({ "type": "Ready", "status": "True", "extra": 1 });
        let put = |list: &[Value], message: &str, now| {
            with_condition(list, "PodScheduled", "False", ("Unschedulable", message), now)
        };
        let first = put(std::slice::from_ref(&foreign), "a", 1_500).unwrap();
        assert_eq!(first[0], foreign);
        assert_eq!(first[1]["lastTransitionTime"], "1970-01-01T00:00:01Z");
        assert_eq!(put(&first, "a", 9_000), None);
        let second = put(&first, "b", 9_000).unwrap();
        assert_eq!(second[1]["lastTransitionTime"], "1970-01-01T00:00:01Z", "the status is the same");
        assert_eq!((second.len(), &second[1]["message"]), (2, &json!("b")));
    }

    #[test]
    fn group_phases() {
        let report = |min_member, members, bound, succeeded| GangReport {
            min_member,
            members,
            bound,
            succeeded,
            ..GangReport::default()
        };
        let waits = Some(Why::BackingOff { until_ms: 0, refusal: Refusal::default() });
        for (report, phase) in [
            (report(2, 0, 0, 0), "Inqueue"),
            (report(2, 2, 0, 0), "Inqueue"),
            (report(2, 2, 2, 0), "Running"),
            (report(2, 1, 1, 1), "Running"),
            (report(2, 0, 0, 2), "Completed"),
            (GangReport { why: waits, ..report(3, 3, 1, 0) }, "Unknown"),
        ] {
            assert_eq!(group_phase(&report), phase, "{report:?}");
        }
    }
}
