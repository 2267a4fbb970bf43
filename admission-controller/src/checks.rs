//! The second phase of an admission: checks that others answer, and what follows from their states (KEP-993).

use std::collections::{BTreeMap, BTreeSet};

use crds::names::kueue;
use crds::reasons::queue::ACTIVE;
use crds::reasons::workload as tokens;
use crds::view::admission_check::AdmissionCheck;
use crds::view::cluster_queue::ClusterQueue;
use crds::view::workload::{Admission, AdmissionCheckState, CheckState, PodSetUpdate, Workload};
use jiff::{SignedDuration, Timestamp};
use quota_engine::input::CheckController;
use serde::Deserialize;

use crate::status::{Change, whole_second};

/// The checks that a workload of this ClusterQueue has to pass: those of the flavors it was given. Before it was given any,
/// those that every flavor asks for. A check that names no flavors is about all of the queue's.
pub fn of_workload<'a>(queue: &'a ClusterQueue, admission: Option<&Admission>) -> BTreeSet<&'a str> {
    let given = admission.map(|admission| {
        let sets = admission.pod_set_assignments.iter();
        sets.flat_map(|set| set.flavors.values()).map(String::as_str).collect::<BTreeSet<&str>>()
    });
    asked(queue, given.as_ref())
}

/// The checks of the flavors that it is given.
pub fn on_flavors<'a>(queue: &'a ClusterQueue, given: &BTreeSet<&str>) -> BTreeSet<&'a str> {
    asked(queue, Some(given))
}

fn asked<'a>(queue: &'a ClusterQueue, given: Option<&BTreeSet<&str>>) -> BTreeSet<&'a str> {
    let groups = queue.spec.resource_groups.iter();
    let all: BTreeSet<&str> =
        groups.flat_map(|group| &group.flavors).map(|flavor| flavor.name.as_str()).collect();
    let rules = queue.spec.admission_checks_strategy.admission_checks.iter();
    // Where a check is listed twice the last word counts.
    let rules: BTreeMap<&str, BTreeSet<&str>> = rules
        .map(|rule| match rule.on_flavors.is_empty() {
            true => (rule.name.as_str(), all.clone()),
            false => (rule.name.as_str(), rule.on_flavors.iter().map(String::as_str).collect()),
        })
        .collect();
    let concerns = |flavors: &BTreeSet<&str>| match given {
        Some(given) => !given.is_disjoint(flavors),
        None => flavors.is_superset(&all),
    };
    rules.into_iter().filter(|(_, flavors)| concerns(flavors)).map(|(name, _)| name).collect()
}

/// Who answers a check, as far as that decides anything.
pub fn controller(name: &str) -> CheckController {
    match name {
        kueue::PROVISIONING_REQUEST_CONTROLLER => CheckController::ProvisioningRequest,
        kueue::MULTI_KUEUE_CONTROLLER => CheckController::MultiKueue,
        _ => CheckController::Other,
    }
}

/// Whether its controller says that it answers this check.
pub fn is_active(check: &AdmissionCheck) -> bool {
    check.status.conditions.iter().any(|one| one.type_ == ACTIVE && one.status == "True")
}

/// The state of a check of a workload without quota: what was ready was for quota that is gone. How often it was tried stays.
pub fn lapsed(seen: &AdmissionCheckState, now: Timestamp) -> AdmissionCheckState {
    if seen.state != CheckState::Ready {
        return seen.clone();
    }
    AdmissionCheckState {
        state: CheckState::Pending,
        message: "pending again; the quota that it was for was given back".to_owned(),
        pod_set_updates: Vec::new(),
        last_transition_time: Some(whole_second(now)),
        ..seen.clone()
    }
}

/// The list of states of a workload: one for each check that is asked for, pending where it is new, and no others; in the order
/// of names.
pub fn listed(
    seen: &[AdmissionCheckState],
    asked: &BTreeSet<&str>,
    now: Timestamp,
) -> Vec<AdmissionCheckState> {
    let state = |name: &&str| {
        let known = seen.iter().find(|state| state.name == **name).cloned();
        known.unwrap_or_else(|| AdmissionCheckState {
            name: (*name).to_owned(),
            last_transition_time: Some(whole_second(now)),
            ..AdmissionCheckState::default()
        })
    };
    asked.iter().map(state).collect()
}

/// The list of states of one that waits: one for each check that every flavor of the queue asks for. States of other checks of
/// the queue stay, which Kueue forgets: they say how often it tried.
pub fn foreseen(
    seen: &[AdmissionCheckState],
    queue: &ClusterQueue,
    now: Timestamp,
) -> Vec<AdmissionCheckState> {
    let rules = queue.spec.admission_checks_strategy.admission_checks.iter();
    let is_seen = |name: &&str| seen.iter().any(|state| state.name == *name);
    let mut asked = of_workload(queue, None);
    asked.extend(rules.map(|rule| rule.name.as_str()).filter(is_seen));
    listed(seen, &asked, now)
}

/// Whether two lists say the same, in whatever order.
pub fn same(a: &[AdmissionCheckState], b: &[AdmissionCheckState]) -> bool {
    a.len() == b.len() && a.iter().all(|state| b.contains(state))
}

/// The list after an eviction: everything is to be answered anew, and a retry is counted. Who was refused in the end is told how often
/// it was tried; who passed begins anew.
pub fn reset(seen: &[AdmissionCheckState], now: Timestamp) -> Vec<AdmissionCheckState> {
    let reset = |state: &AdmissionCheckState| match state.state {
        CheckState::Pending => state.clone(),
        before => AdmissionCheckState {
            name: state.name.clone(),
            state: CheckState::Pending,
            last_transition_time: Some(whole_second(now)),
            message: format!("pending again after an eviction; it was {before:?}"),
            requeue_after_seconds: state.requeue_after_seconds,
            retry_count: match before {
                CheckState::Retry => Some(state.retry_count.unwrap_or(0).saturating_add(1)),
                CheckState::Rejected => state.retry_count,
                _ => None,
            },
            pod_set_updates: Vec::new(),
        },
    };
    seen.iter().map(reset).collect()
}

/// The checks that are in this state, with what they say, in the order of names.
pub fn told(checks: &[AdmissionCheckState], state: CheckState) -> String {
    let mut told: Vec<String> = checks
        .iter()
        .filter(|check| check.state == state)
        .map(|check| match check.message.as_str() {
            "" => check.name.clone(),
            message => format!("{} ({message})", check.name),
        })
        .collect();
    told.sort();
    told.join("; ")
}

/// Whether every check that the workload has is passed.
pub fn are_ready(checks: &[AdmissionCheckState]) -> bool {
    checks.iter().all(|check| check.state == CheckState::Ready)
}

/// What a check adds to the pods; what cannot be read of it is told when the job is started.
pub fn updates(check: &AdmissionCheckState) -> Vec<PodSetUpdate> {
    check.pod_set_updates.iter().filter_map(|update| PodSetUpdate::deserialize(update).ok()).collect()
}

/// The names of those that are passed.
pub fn passed(checks: &[AdmissionCheckState]) -> impl Iterator<Item = &str> {
    checks.iter().filter(|check| check.state == CheckState::Ready).map(|check| check.name.as_str())
}

/// Whether one of them wants the workload to try again later, or never.
pub fn have_failed(checks: &[AdmissionCheckState]) -> bool {
    checks.iter().any(|check| matches!(check.state, CheckState::Retry | CheckState::Rejected))
}

/// Whether one of them wants the workload to try again, and none has refused it for good.
pub fn want_a_retry(checks: &[AdmissionCheckState]) -> bool {
    let is = |state: CheckState| checks.iter().any(|check| check.state == state);
    is(CheckState::Retry) && !is(CheckState::Rejected)
}

/// Whether places of some pods are still to be chosen, which waits for the checks.
pub fn awaits_topology(view: &Workload) -> bool {
    let sets = view.status.admission.iter().flat_map(|admission| &admission.pod_set_assignments);
    sets.clone().any(|set| {
        set.topology_assignment.is_none() && set.delayed_topology_request.as_deref() == Some("Pending")
    })
}

/// What condition Admitted has to say: quota, then checks, then places.
pub fn admitted(reserved: bool, checks_ready: bool, awaits_topology: bool) -> Change {
    let not = |reason: &str, message: &str| Change::new(tokens::ADMITTED, false, reason, message);
    if !reserved {
        not(tokens::admitted::NO_RESERVATION, "the workload has no quota reserved")
    } else if !checks_ready {
        not(tokens::admitted::UNSATISFIED_ADMISSION_CHECKS, "not every admission check is ready")
    } else if awaits_topology {
        not(tokens::admitted::PENDING_DELAYED_TOPOLOGY_REQUESTS, "places for its pods are still to be chosen")
    } else {
        Change::new(tokens::ADMITTED, true, tokens::admitted::ADMITTED, "the workload is admitted")
    }
}

/// Seconds for which the workload was admitted, all in all, once it no longer is; `None` where it was not admitted.
pub fn executed(view: &Workload, now: Timestamp) -> Option<i32> {
    let admitted = view.true_condition(tokens::ADMITTED)?;
    let seconds = now.duration_since(admitted.last_transition_time.0).as_secs();
    let before = view.status.accumulated_past_execution_time_seconds.unwrap_or(0);
    let limit = if seconds < 0 { i32::MIN } else { i32::MAX };
    Some(before.saturating_add(i32::try_from(seconds).unwrap_or(limit)))
}

/// When the last of the checks that ask for a retry wants it. A check that does not say since when it does so has no say.
pub fn retry_at(checks: &[AdmissionCheckState]) -> Option<Timestamp> {
    let retries = checks.iter().filter(|check| check.state == CheckState::Retry);
    retries
        .filter_map(|check| {
            let (since, after) = (check.last_transition_time.as_ref()?, check.requeue_after_seconds?);
            since.0.checked_add(SignedDuration::from_secs(after)).ok()
        })
        .max()
}
