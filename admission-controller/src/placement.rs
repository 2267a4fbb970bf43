//! The admission check `trireme.dev/placement`: a workload with quota is admitted only while the scheduler holds a place for all
//! its pods. The protocol is in `docs/placement-check.md`; this is its admission side.
//!
//! The scheduler answers with states, as any check's controller. What it does not do itself is done here, so that a
//! scheduler that is away cannot keep quota from others: a workload that finds no place in time, or whose place was held for
//! long enough, gives its quota back and tries again later.

use crds::names::trireme;
use crds::view::admission_check::AdmissionCheck;
use crds::view::workload::{AdmissionCheckState, CheckState};
use jiff::{SignedDuration, Timestamp};

use crate::status::whole_second;
use crate::{checks, requeue};

/// A workload has its quota for so long without a place before others may have it: longer than any decision of the scheduler
/// takes, shorter than anybody waits for a machine.
const PLACE_WITHIN: SignedDuration = SignedDuration::from_mins(5);
/// It then waits for so long, and twice as long each time after.
const BASE: SignedDuration = SignedDuration::from_secs(60);
/// It never waits longer: Kueue's bound for pods that do not get ready.
const LONGEST: SignedDuration = SignedDuration::from_secs(3600);

/// Whether a check is one of this kind.
pub fn is_placement(check: &AdmissionCheck) -> bool {
    check.spec.controller_name == trireme::PLACEMENT_CONTROLLER
}

/// Until when the state of a workload that has quota since `reserved`, and is not admitted, may stay as it is. The check may
/// have been pending for longer. Where `others` of its checks are not ready, nodes may have to come first, and it has no end.
pub fn valid_until<'a>(
    state: &AdmissionCheckState,
    reserved: Timestamp,
    others: impl IntoIterator<Item = &'a AdmissionCheckState>,
) -> Option<Timestamp> {
    match state.state {
        CheckState::Pending => {
            let mut since = state.last_transition_time.as_ref()?.0.max(reserved);
            for other in others {
                let is_ready = other.state == CheckState::Ready;
                let changed = other.last_transition_time.as_ref().map(|time| time.0);
                since = changed.filter(|_| is_ready)?.max(since);
            }
            since.checked_add(PLACE_WITHIN).ok()
        }
        CheckState::Ready => expiry(state),
        CheckState::Retry | CheckState::Rejected => None,
    }
}

/// The first time at which a place is no longer held. One that cannot be read has passed.
fn expiry(state: &AdmissionCheckState) -> Option<Timestamp> {
    let updates = checks::updates(state);
    let written = updates.iter().filter_map(|update| update.annotations.get(trireme::PLACE_EXPIRES));
    written.map(|text| text.parse().unwrap_or(Timestamp::MIN)).min()
}

/// The state after that: the workload gives its quota back.
pub fn overdue(state: &AdmissionCheckState, now: Timestamp) -> AdmissionCheckState {
    let retries = state.retry_count.unwrap_or(0).saturating_add(1);
    let told = state.last_transition_time.as_ref().map(|time| time.0);
    let (message, wait) = match state.state {
        // With clocks that differ it would go round and round.
        CheckState::Ready if expiry(state) <= told => {
            ("its place was not held any more when that was told", requeue::backoff(BASE, LONGEST, retries))
        }
        CheckState::Ready => {
            ("its place was held until another check would have been ready", SignedDuration::ZERO)
        }
        _ => ("no place was found in time", requeue::backoff(BASE, LONGEST, retries)),
    };
    AdmissionCheckState {
        state: CheckState::Retry,
        last_transition_time: Some(whole_second(now)),
        message: message.to_owned(),
        requeue_after_seconds: Some(wait.as_secs()),
        pod_set_updates: Vec::new(),
        ..state.clone()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    #[test]
    fn the_time_to_find_a_place_begins_with_the_quota() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let since = |second| AdmissionCheckState {
            last_transition_time: Some(Time(at(second))),
            ..AdmissionCheckState::default()
        };
        // It waited for quota; the hold was lost; nobody says since when.
        assert_eq!(valid_until(&since(0), at(1000), []), Some(at(1300)));
        assert_eq!(valid_until(&since(1100), at(1000), []), Some(at(1400)));
        assert_eq!(valid_until(&AdmissionCheckState::default(), at(1000), []), None);
        // Nodes are on their way; they have come.
        let ready = AdmissionCheckState { state: CheckState::Ready, ..since(5000) };
        assert_eq!(valid_until(&since(0), at(1000), [&ready, &since(0)]), None);
        assert_eq!(valid_until(&since(0), at(1000), [&ready]), Some(at(5300)));
    }

    #[test]
    fn a_hold_that_was_over_when_it_was_told_is_tried_again_later() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let held_until = |text: &str| {
            let annotations = serde_json::json!({ trireme::PLACE_EXPIRES: text });
            let update = serde_json::json!({ "name": "main", "annotations": annotations });
            serde_json::from_value::<AdmissionCheckState>(serde_json::json!({
                "name": "placement", "state": "Ready", "message": "", "podSetUpdates": [update],
                "lastTransitionTime": "1970-01-01T00:10:00Z",
            }))
            .unwrap()
        };
        for (text, wait) in [("1970-01-01T00:12:00Z", 0), ("1970-01-01T00:09:00Z", 60), ("soon", 60)] {
            let state = held_until(text);
            assert!(valid_until(&state, at(600), []).is_some_and(|end| end <= at(720)), "{text}");
            assert_eq!(overdue(&state, at(720)).requeue_after_seconds, Some(wait), "{text}");
        }
    }
}
