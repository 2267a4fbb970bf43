//! Lists of conditions: changed as last seen, those of others word for word.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::words;

/// A condition to be set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its type.
    pub kind: &'static str,
    /// True or False.
    pub status: bool,
    /// The token.
    pub reason: String,
    /// The words.
    pub message: String,
}

impl Change {
    /// A condition that becomes (or stays) true or false for this reason. The message is cut to what a condition holds.
    pub fn new(
        kind: &'static str,
        status: bool,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self { kind, status, reason: reason.into(), message: words::truncated(message.into()) }
    }

    /// Its status as the API writes it.
    fn word(&self) -> &'static str {
        if self.status { "True" } else { "False" }
    }
}

/// Whether the list says that already, word for word, of this generation.
pub fn is_said(seen: &[Condition], change: &Change, generation: Option<i64>) -> bool {
    seen.iter().any(|one| {
        one.type_ == change.kind
            && one.status == change.word()
            && one.reason == change.reason
            && one.message == change.message
            && one.observed_generation == generation
    })
}

/// The list as last seen with these changes. Conditions of others stay as they are, word for word; the time changes with
/// the status only, to whole seconds as the API server keeps it.
pub fn merged(
    seen: &[Condition],
    changes: &[Change],
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    let mut list = seen.to_vec();
    for change in changes {
        let status = change.word();
        let before = list.iter().position(|one| one.type_ == change.kind);
        let since = before
            .map(|index| &list[index])
            .filter(|one| one.status == status)
            .map_or_else(|| whole_second(now), |one| one.last_transition_time.clone());
        let condition = Condition {
            type_: change.kind.to_owned(),
            status: status.to_owned(),
            reason: change.reason.clone(),
            message: change.message.clone(),
            last_transition_time: since,
            observed_generation: generation,
        };
        match before {
            Some(index) => list[index] = condition,
            None => list.push(condition),
        }
    }
    list
}

/// A time as the API server keeps it.
pub fn whole_second(now: Timestamp) -> Time {
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_stay_and_time_changes_with_the_status_only() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let set = |status, reason: &str| [Change::new("Admitted", status, reason, "words")];
        let foreign = merged(&[], &[Change::new("Foreign", true, "Kept", "as it is")], None, at(1));
        let first = merged(&foreign, &set(false, "NoReservation"), Some(1), at(2));
        let second = merged(&first, &set(false, "Other"), Some(2), at(3));
        let third = merged(&second, &set(true, "Admitted"), Some(2), at(4));
        assert_eq!(third[0], foreign[0]);
        let times: Vec<i64> =
            [&first, &second, &third].map(|list| list[1].last_transition_time.0.as_second()).into();
        assert_eq!(times, [2, 2, 4]);
        assert_eq!(third.len(), 2);
    }
}
