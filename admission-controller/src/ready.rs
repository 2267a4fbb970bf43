//! Whether the pods of a workload are ready, and how long that may take (KEP-349, `waitForPodsReady`).

use crds::reasons::workload as tokens;
use crds::view::workload::{RequeueState, Workload};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use quota_engine::input::Leave;
use quota_engine::{EvictReason, Unready};

use crate::status::whole_second;
use crate::{input, requeue};

/// What condition `PodsReady` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodsReadyState {
    /// They have not been ready since the workload was admitted, or it is not.
    WaitForStart,
    /// They are.
    Started,
    /// They were, and some have failed.
    WaitForRecovery,
    /// They are again.
    Recovered,
}

impl PodsReadyState {
    /// The token.
    pub fn token(self) -> &'static str {
        match self {
            Self::WaitForStart => tokens::pods_ready::WAIT_FOR_START,
            Self::Started => tokens::pods_ready::STARTED,
            Self::WaitForRecovery => tokens::pods_ready::WAIT_FOR_RECOVERY,
            Self::Recovered => tokens::pods_ready::RECOVERED,
        }
    }

    /// Whether they are ready.
    pub fn is_ready(self) -> bool {
        matches!(self, Self::Started | Self::Recovered)
    }

    /// What follows for an admitted workload from what was said and what its job says now.
    fn after(said: Option<&Condition>, ready: bool) -> Self {
        let reason = said.map_or("", |one| one.reason.as_str());
        let failed_once = [tokens::pods_ready::WAIT_FOR_RECOVERY, tokens::pods_ready::RECOVERED];
        let was_ready = said.is_some_and(|one| one.status == "True");
        match (ready, was_ready) {
            (true, _) if failed_once.contains(&reason) => Self::Recovered,
            (true, _) => Self::Started,
            (false, true) => Self::WaitForRecovery,
            (false, false) if reason == tokens::pods_ready::WAIT_FOR_RECOVERY => Self::WaitForRecovery,
            (false, false) => Self::WaitForStart,
        }
    }
}

/// What is to be written of the pods of an admitted workload; `None` where it says so, and where it has ended, as they have.
pub fn news(view: &Workload, ready: bool) -> Option<PodsReadyState> {
    if !input::stands(view) {
        return None;
    }
    let said = view.condition(tokens::PODS_READY);
    let state = PodsReadyState::after(said, ready);
    let known =
        said.is_some_and(|one| one.reason == state.token() && (one.status == "True") == state.is_ready());
    (!known).then_some(state)
}

/// `waitForPodsReady`, with its defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodsReady {
    /// From admission until all pods are ready.
    pub timeout: SignedDuration,
    /// From a failure until all are ready again; `None` is as long as it takes.
    pub recovery_timeout: Option<SignedDuration>,
    /// Whether nobody is admitted meanwhile.
    pub block_admission: bool,
    /// Whether one that was evicted goes to the back of its queue.
    pub to_the_back: bool,
    /// How often a workload is evicted for it before it is deactivated; `None` is any number of times.
    pub limit: Option<i32>,
    /// How long it is put off for the first time; twice as long each time after.
    pub base: SignedDuration,
    /// It is never put off longer, but for the first time.
    pub longest: SignedDuration,
}

impl PodsReady {
    /// When the pods of this workload have had time enough, and since when they had it.
    fn deadline(&self, view: &Workload) -> Option<(Timestamp, Unready)> {
        let admitted = view.true_condition(tokens::ADMITTED)?;
        if view.holds(tokens::EVICTED) || view.holds(tokens::FINISHED) || view.holds(tokens::PODS_READY) {
            return None;
        }
        // Earlier versions of Kueue gave the condition's own name as the reason. Whoever gives another one lets time pass.
        const EARLIER: &str = tokens::PODS_READY;
        let said = view.condition(tokens::PODS_READY);
        let (since, time, unready) = match said.map(|one| (one.reason.as_str(), &one.last_transition_time)) {
            None | Some((tokens::pods_ready::WAIT_FOR_START | EARLIER, _)) => {
                (&admitted.last_transition_time, self.timeout, Unready::SinceStart)
            }
            Some((tokens::pods_ready::WAIT_FOR_RECOVERY, failed)) => {
                (failed, self.recovery_timeout?, Unready::SinceFailure)
            }
            Some(_) => return None,
        };
        Some((since.0.checked_add(time).unwrap_or(Timestamp::MAX), unready))
    }

    /// Whether it was put off as often as may be.
    fn is_exhausted(&self, view: &Workload) -> bool {
        let count = view.status.requeue_state.as_ref().and_then(|state| state.count).unwrap_or(0);
        self.limit.is_some_and(|limit| count.saturating_add(1) > limit)
    }

    /// When it is evicted if its pods do not get ready.
    pub fn leave(&self, view: &Workload) -> Option<Leave> {
        let (at, unready) = self.deadline(view).filter(|_| !self.is_exhausted(view))?;
        Some(Leave { at_ms: at.as_millisecond(), reason: EvictReason::PodsReadyTimeout(unready) })
    }

    /// When it is deactivated if its pods do not get ready.
    pub fn gives_up_at(&self, view: &Workload) -> Option<Timestamp> {
        self.deadline(view).filter(|_| self.is_exhausted(view)).map(|(at, _)| at)
    }

    /// When it may be looked at again after an eviction.
    pub fn backoff(&self, view: &Workload, now: Timestamp) -> RequeueState {
        let seen = view.status.requeue_state.as_ref();
        let times = seen.and_then(|state| state.count).unwrap_or(0).saturating_add(1);
        let wait = requeue::backoff(self.base, self.longest, times);
        let until = whole_second(now.checked_add(wait).unwrap_or(Timestamp::MAX)).0;
        requeue::put_off(seen, Some(until), true).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn what_is_said_of_pods_follows_them() {
        let condition = |kind: &str, status: &str, reason: &str| {
            json!({ "type": kind, "status": status, "reason": reason, "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z" })
        };
        let said = |status: &str, reason: &str| condition("PodsReady", status, reason);
        for (before, ready, wanted) in [
            // It was admitted when nobody waited for pods yet.
            (Value::Null, false, Some(PodsReadyState::WaitForStart)),
            (Value::Null, true, Some(PodsReadyState::Started)),
            (said("False", "WaitForStart"), false, None),
            (said("False", "WaitForStart"), true, Some(PodsReadyState::Started)),
            (said("True", "Started"), true, None),
            (said("True", "Started"), false, Some(PodsReadyState::WaitForRecovery)),
            (said("False", "WaitForRecovery"), false, None),
            (said("False", "WaitForRecovery"), true, Some(PodsReadyState::Recovered)),
        ] {
            let mut conditions = vec![condition("Admitted", "True", "Admitted")];
            conditions.extend(Some(before.clone()).filter(|one| !one.is_null()));
            let view = json!({ "metadata": {}, "spec": {}, "status": { "conditions": conditions } });
            let view: Workload = serde_json::from_value(view).unwrap();
            assert_eq!(news(&view, ready), wanted, "{before} {ready}");
        }
    }

    #[test]
    fn how_long_pods_may_take_depends_on_what_is_said_of_them() {
        let rule = PodsReady {
            timeout: SignedDuration::from_secs(300),
            recovery_timeout: Some(SignedDuration::from_secs(60)),
            block_admission: false,
            to_the_back: false,
            limit: None,
            base: SignedDuration::ZERO,
            longest: SignedDuration::ZERO,
        };
        let condition = |kind: &str, status: &str, reason: &str, since: &str| {
            json!({ "type": kind, "status": status, "reason": reason, "message": "",
                "lastTransitionTime": since })
        };
        for (reason, until) in [
            (None, Some("2026-01-01T00:05:00Z")),
            (Some("WaitForStart"), Some("2026-01-01T00:05:00Z")),
            (Some("PodsReady"), Some("2026-01-01T00:05:00Z")),
            (Some("WaitForRecovery"), Some("2026-01-01T00:03:00Z")),
            (Some("Debugging"), None),
        ] {
            let mut conditions = vec![condition("Admitted", "True", "Admitted", "2026-01-01T00:00:00Z")];
            let said = reason.map(|reason| condition("PodsReady", "False", reason, "2026-01-01T00:02:00Z"));
            conditions.extend(said);
            let view = json!({ "metadata": {}, "spec": {}, "status": { "conditions": conditions } });
            let view: Workload = serde_json::from_value(view).unwrap();
            let until = until.map(|until| until.parse::<Timestamp>().unwrap().as_millisecond());
            assert_eq!(rule.leave(&view).map(|leave| leave.at_ms), until, "{reason:?}");
        }
    }
}
