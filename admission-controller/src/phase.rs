//! How far a Workload has come, and how long that took.

use std::time::Duration;

use crds::reasons::workload as tokens;
use crds::view::workload::Workload;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

/// How far a Workload has come, by its conditions; Kueue's words for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Phase {
    /// It waits.
    Pending,
    /// It has quota.
    QuotaReserved,
    /// It may run.
    Admitted,
    /// It has ended.
    Finished,
}

impl Phase {
    /// Where this Workload is.
    pub fn of(view: &Workload) -> Self {
        let reached = [
            (tokens::FINISHED, Self::Finished),
            (tokens::ADMITTED, Self::Admitted),
            (tokens::QUOTA_RESERVED, Self::QuotaReserved),
        ];
        let furthest = reached.into_iter().find(|(kind, _)| view.holds(kind));
        furthest.map_or(Self::Pending, |(_, phase)| phase)
    }

    /// Whether a workload that was here gave its quota back when it came to `next`.
    pub fn fell_back_to(self, next: Self) -> bool {
        matches!(self, Self::QuotaReserved | Self::Admitted) && next == Self::Pending
    }
}

/// An eviction that is over: the quota came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvictionDone<'a> {
    /// Whose quota it was.
    pub cluster_queue: &'a str,
    /// Why it was evicted.
    pub reason: &'a str,
    /// From the decision until the quota was back; nothing where clocks disagree.
    pub took: Duration,
}

/// What a change of a Workload says of its eviction, if it ends one.
pub fn eviction_done<'a>(
    before: &'a Workload,
    after: &'a Workload,
    now: Timestamp,
) -> Option<EvictionDone<'a>> {
    if !Phase::of(before).fell_back_to(Phase::of(after)) {
        return None;
    }
    let evicted = after.true_condition(tokens::EVICTED)?;
    let admission = before.status.admission.as_ref().filter(|one| !one.cluster_queue.is_empty())?;
    Some(EvictionDone {
        cluster_queue: &admission.cluster_queue,
        reason: &evicted.reason,
        took: Duration::try_from(now.duration_since(evicted.last_transition_time.0)).unwrap_or_default(),
    })
}

/// For how long a workload that ended was admitted, all in all; `None` where it has not ended or was not admitted then.
pub fn execution_time(view: &Workload) -> Option<SignedDuration> {
    let since = |kind: &str| view.true_condition(kind).map(|one| one.last_transition_time.0);
    let last = since(tokens::FINISHED)?.duration_since(since(tokens::ADMITTED)?);
    let earlier = view.status.accumulated_past_execution_time_seconds.unwrap_or(0);
    Some(last + SignedDuration::from_secs(earlier.into()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_end_of_an_eviction_is_measured() {
        let view = |reserved: &str| -> Workload {
            let condition = |kind: &str, status: &str| {
                json!({
                    "type": kind, "status": status, "reason": "Preempted", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                })
            };
            let conditions =
                [condition(tokens::EVICTED, "True"), condition(tokens::QUOTA_RESERVED, reserved)];
            serde_json::from_value(json!({
                "status": { "admission": { "clusterQueue": "a" }, "conditions": conditions },
            }))
            .unwrap()
        };
        let now = "2026-01-01T00:00:07Z".parse().unwrap();
        let (before, after) = (view("True"), view("False"));
        let done = eviction_done(&before, &after, now).map(|one| one.took.as_secs());
        assert_eq!(done, Some(7));
    }
}
