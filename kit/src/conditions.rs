//! Status conditions: one's own are merged into the list as last seen, nobody else's are lost.
//!
//! A merge patch replaces a list as a whole, so the list that is sent must hold everybody's conditions; the
//! resourceVersion in the patch ([`crate::patch`]) makes sure nobody added one meanwhile.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::{Map, Value, json};

/// The longest message the API accepts (`metav1.Condition.message`).
const MAX_MESSAGE: usize = 32_768;

/// A condition's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// It cannot be said.
    Unknown,
}

impl Status {
    /// The API's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for Status {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// A condition as this program wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The condition's type.
    pub kind: String,
    /// Its status.
    pub status: Status,
    /// A CamelCase token.
    pub reason: String,
    /// A sentence; cut at 32 KiB.
    pub message: String,
    /// `metadata.generation` of what was judged; none for kinds whose conditions lack the field.
    pub observed_generation: Option<i64>,
}

impl Wanted {
    /// A condition without an observed generation.
    pub fn new(
        kind: impl Into<String>,
        status: impl Into<Status>,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        let mut message = message.into();
        message.truncate(message.floor_char_boundary(MAX_MESSAGE));
        Self {
            kind: kind.into(),
            status: status.into(),
            reason: reason.into(),
            message,
            observed_generation: None,
        }
    }

    /// The same, judged at this generation.
    pub fn at_generation(mut self, generation: i64) -> Self {
        self.observed_generation = Some(generation);
        self
    }
}

/// The list with the wanted conditions in it, or none if it already says the same. Existing ones keep their place;
/// `lastTransitionTime` moves only when the status changes.
pub fn merge(seen: &[Condition], wanted: &[Wanted], now: Timestamp) -> Option<Vec<Condition>> {
    let now = seconds(now);
    let mut list = seen.to_vec();
    for wanted in wanted {
        match list.iter_mut().find(|condition| condition.type_ == wanted.kind) {
            Some(condition) => {
                if condition.status != wanted.status.as_str() {
                    condition.status = wanted.status.as_str().into();
                    condition.last_transition_time = Time(now);
                }
                condition.reason.clone_from(&wanted.reason);
                condition.message.clone_from(&wanted.message);
                condition.observed_generation = wanted.observed_generation.or(condition.observed_generation);
            }
            None => list.push(Condition {
                type_: wanted.kind.clone(),
                status: wanted.status.as_str().into(),
                reason: wanted.reason.clone(),
                message: wanted.message.clone(),
                observed_generation: wanted.observed_generation,
                last_transition_time: Time(now),
            }),
        }
    }
    (list != seen).then_some(list)
}

/// The same for conditions of any kind, with whatever other fields they have (a pod's, a job's, a node's).
pub fn merge_json(seen: &[Value], wanted: &[Wanted], now: Timestamp) -> Option<Vec<Value>> {
    let mut list = seen.to_vec();
    for wanted in wanted {
        let found = list
            .iter_mut()
            .filter_map(Value::as_object_mut)
            .find(|c| c.get("type") == Some(&json!(wanted.kind)));
        match found {
            Some(condition) => set(condition, wanted, now),
            None => {
                let mut condition = Map::new();
                set(&mut condition, wanted, now);
                list.push(Value::Object(condition));
            }
        }
    }
    (list != seen).then_some(list)
}

/// The list without the conditions of these types, or none if it has none of them.
pub fn remove(seen: &[Condition], kinds: &[&str]) -> Option<Vec<Condition>> {
    let list: Vec<_> =
        seen.iter().filter(|condition| !kinds.contains(&condition.type_.as_str())).cloned().collect();
    (list.len() != seen.len()).then_some(list)
}

fn set(condition: &mut Map<String, Value>, wanted: &Wanted, now: Timestamp) {
    let status = json!(wanted.status.as_str());
    if condition.get("status") != Some(&status) {
        condition.insert("lastTransitionTime".into(), json!(seconds(now).to_string()));
    }
    condition.insert("type".into(), json!(wanted.kind));
    condition.insert("status".into(), status);
    condition.insert("reason".into(), json!(wanted.reason));
    condition.insert("message".into(), json!(wanted.message));
    if let Some(generation) = wanted.observed_generation {
        condition.insert("observedGeneration".into(), json!(generation));
    }
}

/// `metav1.Time` has no fractions of a second.
fn seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn wanted(status: bool, message: &str) -> Wanted {
        Wanted::new("Admitted", status, "Because", message).at_generation(2)
    }

    #[test]
    fn others_are_kept_and_times_move_with_the_status_only() {
        let other = merge(&[], &[Wanted::new("Other", Status::Unknown, "X", "")], at(1)).unwrap();
        let first = merge(&other, &[wanted(false, "a")], at(5)).unwrap();
        assert_eq!(first.len(), 2);
        assert_eq!(first[0], other[0]);
        let second = merge(&first, &[wanted(false, "b")], at(6)).unwrap();
        assert_eq!((second[1].message.as_str(), second[1].last_transition_time.0), ("b", at(5)));
        let third = merge(&second, &[wanted(true, "b")], at(7)).unwrap();
        assert_eq!((third[1].status.as_str(), third[1].last_transition_time.0), ("True", at(7)));
        assert_eq!(merge(&third, &[wanted(true, "b")], at(8)), None, "nothing to write");
        assert_eq!(remove(&third, &["Admitted"]), Some(other));
        assert_eq!(remove(&third, &["Missing"]), None);
    }

    #[test]
    fn json_conditions_keep_fields_nobody_here_knows() {
        let seen = vec![
            json!({"type": "Ready", "status": "True", "lastProbeTime": null}),
            json!({"type": "Admitted", "status": "True", "lastTransitionTime": "old", "extra": 1}),
        ];
        let list = merge_json(&seen, &[wanted(true, "m")], at(0)).unwrap();
        assert_eq!(list[0], seen[0]);
        assert_eq!(
            list[1],
            json!({"type": "Admitted", "status": "True", "reason": "Because", "message": "m", "observedGeneration": 2,
                "lastTransitionTime": "old", "extra": 1})
        );
        let list =
            merge_json(&list, &[wanted(false, "m")], "1970-01-01T00:00:09.5Z".parse().unwrap()).unwrap();
        assert_eq!(list[1]["lastTransitionTime"], "1970-01-01T00:00:09Z");
        assert_eq!(merge_json(&list, &[wanted(false, "m")], at(99)), None);
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        let wanted = Wanted::new("A", true, "B", "ä".repeat(20_000));
        assert_eq!(wanted.message.len(), 32_768);
        assert_eq!(Wanted::new("A", true, "B", format!("x{}", "ä".repeat(20_000))).message.len(), 32_767);
    }
}
