//! Between quota and admission: the checks.

use std::collections::BTreeSet;

use serde_json::Value;

use super::liveness::Activity;
use super::quota::{became_true, held};
use crate::fuzz::world::{CLUSTER_QUEUES, WORKLOADS, World, Write, at, holds, items, key, text};

/// The checks that a workload of a queue has to pass with the flavors that it was given.
fn asked<'a>(queue: &'a Value, workload: &Value) -> BTreeSet<&'a str> {
    let flavors: BTreeSet<String> = items(workload, "/status/admission/podSetAssignments")
        .filter_map(|assignment| assignment["flavors"].as_object())
        .flat_map(|flavors| flavors.values().filter_map(|one| one.as_str().map(str::to_owned)))
        .collect();
    let applies = |rule: &&Value| {
        let mut named = items(rule, "/onFlavors").peekable();
        named.peek().is_none() || named.any(|one| one.as_str().is_some_and(|name| flavors.contains(name)))
    };
    items(queue, "/spec/admissionChecksStrategy/admissionChecks")
        .filter(applies)
        .map(|rule| text(rule, "/name"))
        .collect()
}

fn state<'a>(workload: &'a Value, check: &str) -> Option<&'a str> {
    items(workload, "/status/admissionChecks").find(|one| one["name"] == check).map(|one| text(one, "/state"))
}

/// A workload is admitted only when every check that its queue asks for has said that it may.
pub(super) fn passed_before_admission(world: &World, write: &Write) -> Result<(), String> {
    if write.resource != WORKLOADS || !became_true(write, "Admitted") {
        return Ok(());
    }
    let workload = write.object();
    let queue = text(workload, "/status/admission/clusterQueue");
    let open = |queue: &Value| {
        let open = asked(queue, workload).into_iter().find(|check| state(workload, check) != Some("Ready"));
        open.map(str::to_owned)
    };
    let mut missing = world.believable(CLUSTER_QUEUES, "", queue).map(|queue| open(queue));
    match missing.next() {
        Some(Some(check)) if !missing.any(|one| one.is_none()) => {
            Err(format!("{:?} was admitted, {check} is {:?}", write.key(), state(workload, &check)))
        }
        _ => Ok(()),
    }
}

/// What the controller of a check has said stays while the workload keeps its quota and its queue asks for the check.
pub(super) fn answers_are_kept(world: &World, write: &Write) -> Result<(), String> {
    let (Some(old), Some(new)) = (write.old.as_deref(), write.new.as_deref()) else { return Ok(()) };
    let keeps = |workload: &Value| holds(workload, "QuotaReserved") && !holds(workload, "Evicted");
    if write.resource != WORKLOADS
        || !write.writer.starts_with("admission-controller")
        || !keeps(old)
        || !keeps(new)
        || old["status"]["admission"] != new["status"]["admission"]
    {
        return Ok(());
    }
    let queue = text(new, "/status/admission/clusterQueue");
    let is_asked = |check: &str| {
        world.believable(CLUSTER_QUEUES, "", queue).all(|queue| asked(queue, new).contains(check))
    };
    for one in items(old, "/status/admissionChecks") {
        let (check, before) = (text(one, "/name"), text(one, "/state"));
        if before != "Pending" && is_asked(check) && state(new, check) != Some(before) {
            let now = state(new, check);
            return Err(format!("{:?}: {check} had said {before:?}, now it is {now:?}", write.key()));
        }
    }
    Ok(())
}

/// At rest nobody keeps quota that a check has refused.
pub(super) fn refusals_are_heeded(world: &World, _: &Activity) -> Result<(), String> {
    for workload in world.all(WORKLOADS).filter(|one| !held(one).is_empty()) {
        let queue = text(workload, "/status/admission/clusterQueue");
        let Some(queue) = world.get(CLUSTER_QUEUES, "", queue) else { continue };
        let refused = asked(queue, workload)
            .into_iter()
            .find(|check| matches!(state(workload, check), Some("Retry" | "Rejected")));
        if let Some(check) = refused {
            return Err(format!("{:?} keeps its quota, {check} has refused it", key(workload)));
        }
        let open = asked(queue, workload).is_empty()
            && !holds(workload, "Admitted")
            && at(workload, "/metadata/deletionTimestamp").is_none();
        if open && !has_places_to_come(workload) {
            return Err(format!("{:?} has quota and no check to pass, and is not admitted", key(workload)));
        }
    }
    Ok(())
}

/// Whether places for the pods are still to be found.
fn has_places_to_come(workload: &Value) -> bool {
    items(workload, "/status/admission/podSetAssignments")
        .any(|one| text(one, "/delayedTopologyRequest") == "Pending")
}
