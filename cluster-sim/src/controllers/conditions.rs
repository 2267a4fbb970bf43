//! Conditions of a job's status.

use serde_json::{Map, Value, json};

use super::control::Millis;
use crate::node::rfc3339;

/// Whether a condition of the type is true.
pub(super) fn is_true(status: &Value, kind: &str) -> bool {
    find(status, kind).is_some_and(|one| one["status"] == "True")
}

/// The condition of the type.
pub(super) fn find<'v>(status: &'v Value, kind: &str) -> Option<&'v Value> {
    status["conditions"].as_array()?.iter().find(|one| one["type"] == kind)
}

/// Since when a condition of the type is true; null when it is not.
pub(super) fn since<'v>(status: &'v Value, kind: &str) -> &'v Value {
    let condition = find(status, kind).filter(|one| one["status"] == "True");
    condition.map_or(&Value::Null, |one| &one["lastTransitionTime"])
}

/// Sets a condition; its transition time changes with its status only. `stamp` is a second field for the time of the
/// latest change, which some kinds have.
pub(super) fn set(
    status: &mut Value,
    kind: &str,
    value: bool,
    reason: &str,
    message: &str,
    stamp: Option<&str>,
    now: Millis,
) {
    let text = if value { "True" } else { "False" };
    if find(status, kind)
        .is_some_and(|one| one["status"] == text && one["reason"] == reason && one["message"] == message)
    {
        return;
    }
    let since =
        find(status, kind).filter(|one| one["status"] == text).map(|one| one["lastTransitionTime"].clone());
    let mut condition = json!({
        "type": kind, "status": text, "reason": reason, "message": message,
        "lastTransitionTime": since.unwrap_or_else(|| rfc3339(now).into()),
    });
    if let Some(stamp) = stamp {
        condition[stamp] = rfc3339(now).into();
    }
    let conditions = object(status).entry("conditions").or_insert_with(|| json!([]));
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    if let Some(list) = conditions.as_array_mut() {
        match list.iter_mut().find(|one| one["type"] == kind) {
            Some(one) => *one = condition,
            None => list.push(condition),
        }
    }
}

/// The value as a map; anything else becomes an empty one.
pub(super) fn object(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = json!({});
    }
    value.as_object_mut().unwrap_or_else(|| unreachable!("made a map above"))
}

/// Sets a number, or removes it when it is 0 and the field is one that Kubernetes omits then.
pub(super) fn count(status: &mut Value, field: &str, number: usize, omit_zero: bool) {
    let status = object(status);
    if number == 0 && omit_zero {
        status.remove(field);
    } else {
        status.insert(field.to_owned(), number.into());
    }
}

/// The phase of a pod.
pub(super) fn phase(pod: &Value) -> &str {
    pod["status"]["phase"].as_str().unwrap_or("Pending")
}

/// Whether a pod is ready.
pub(super) fn is_ready(pod: &Value) -> bool {
    is_true(&pod["status"], "Ready")
}

/// How often the containers of a pod were restarted, all together.
pub(super) fn restarts(pod: &Value) -> u64 {
    let of = |field: &str| -> u64 {
        let statuses = pod["status"][field].as_array().into_iter().flatten();
        statuses.filter_map(|one| one["restartCount"].as_u64()).fold(0, u64::saturating_add)
    };
    of("containerStatuses").saturating_add(of("initContainerStatuses"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transition_time_moves_with_the_status_alone() {
        let mut status = Value::Null;
        set(&mut status, "Ready", true, "A", "a", None, 1_000);
        set(&mut status, "Ready", true, "B", "b", Some("lastUpdateTime"), 2_000);
        let condition = find(&status, "Ready").unwrap();
        assert_eq!(condition["lastTransitionTime"], "1970-01-01T00:00:01Z");
        assert_eq!(
            (&condition["reason"], &condition["lastUpdateTime"]),
            (&json!("B"), &json!("1970-01-01T00:00:02Z"))
        );
        set(&mut status, "Ready", false, "B", "b", None, 3_000);
        assert_eq!(find(&status, "Ready").unwrap()["lastTransitionTime"], "1970-01-01T00:00:03Z");
        assert_eq!(status["conditions"].as_array().unwrap().len(), 1);
    }
}
