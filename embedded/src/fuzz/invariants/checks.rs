//! Between quota and admission: the checks.

use std::collections::BTreeSet;

use serde_json::Value;

use super::liveness::Activity;
use super::quota::{became_true, held};
use crate::fuzz::provider;
use crate::fuzz::world::{
    CHECKS, CLUSTER_QUEUES, REQUESTS, Shared, WORKLOADS, World, Write, at, holds, items, key, text, uid,
};

/// The checks that a workload of a queue has to pass with the flavors that it was given.
fn asked<'a>(queue: &'a Value, workload: &Value) -> BTreeSet<&'a str> {
    let flavors: BTreeSet<String> = items(workload, "/status/admission/podSetAssignments")
        .filter_map(|assignment| assignment["flavors"].as_object())
        .flat_map(|flavors| flavors.values().filter_map(|one| one.as_str().map(str::to_owned)))
        .collect();
    // A check that names no flavors is about all of the queue's: not about one that the queue has given up since.
    let offered: BTreeSet<&str> = items(queue, "/spec/resourceGroups")
        .flat_map(|group| items(group, "/flavors"))
        .map(|flavor| text(flavor, "/name"))
        .collect();
    let applies = |rule: &&Value| {
        let named: BTreeSet<&str> = items(rule, "/onFlavors").filter_map(Value::as_str).collect();
        let about = if named.is_empty() { &offered } else { &named };
        flavors.iter().any(|flavor| about.contains(flavor.as_str()))
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

/// Whether a check asks for nodes, or did of late: admission-controller answers it itself.
fn asks_for_nodes(world: &World, check: &str) -> bool {
    world.believable(CHECKS, "", check).any(|one| text(one, "/spec/controllerName") == provider::CONTROLLER)
}

/// The requests for nodes that a Workload has made.
fn requests<'a>(world: &'a World, workload: &'a Value) -> impl Iterator<Item = &'a Shared> {
    let is_its =
        |one: &&Shared| items(one, "/metadata/ownerReferences").any(|owner| owner["uid"] == uid(workload));
    world.all(REQUESTS).filter(is_its)
}

/// Nodes that are to be asked for are there when their check says so.
pub(super) fn nodes_are_there(world: &World, write: &Write) -> Result<(), String> {
    if write.resource != WORKLOADS || !write.writer.starts_with("admission-controller") {
        return Ok(());
    }
    let was = |check: &str| write.old.as_deref().and_then(|old| state(old, check)) == Some("Ready");
    let workload = write.object();
    for one in items(workload, "/status/admissionChecks").filter(|one| one["state"] == "Ready") {
        let check = text(one, "/name");
        let asks = asks_for_nodes(world, check) && !was(check);
        if asks && !requests(world, workload).any(|request| holds(request, "Provisioned")) {
            return Err(format!("{:?}: {check} is Ready, and no nodes were given", write.key()));
        }
    }
    Ok(())
}

/// At rest nodes are asked for by those only who have quota for them.
pub(super) fn requests_are_taken_back(world: &World, _: &Activity) -> Result<(), String> {
    for request in world.all(REQUESTS) {
        let asks = |one: &&Shared| requests(world, one).any(|its| uid(its) == uid(request));
        let needed =
            |one: &Shared| holds(one, "QuotaReserved") && !holds(one, "Finished") && !holds(one, "Evicted");
        if !world.all(WORKLOADS).find(asks).is_some_and(needed) {
            return Err(format!("{:?} asks for nodes that nobody needs", key(request)));
        }
    }
    Ok(())
}

/// What the controller of a check, if that is another, has said stays while the workload keeps its quota and its queue asks for the check.
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
        if asks_for_nodes(world, check) {
            continue;
        }
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_check_is_about_the_flavors_that_it_names_or_all_that_the_queue_has() {
        let queue = |rule: Value| {
            json!({ "spec": {
                "resourceGroups": [{ "flavors": [{ "name": "new" }, { "name": "spot" }] }],
                "admissionChecksStrategy": { "admissionChecks": [rule] },
            }})
        };
        let given = |flavor: &str| json!({ "status": { "admission": { "podSetAssignments": [{ "flavors": { "cpu": flavor } }] } } });
        let every = json!({ "name": "budget" });
        let some = json!({ "name": "budget", "onFlavors": ["spot", "old"] });
        for (rule, flavor, is_asked) in [
            (&every, "new", true),
            (&every, "old", false), // Its queue has given that flavor up since.
            (&some, "new", false),
            (&some, "spot", true),
            (&some, "old", true),
        ] {
            let queue = queue(rule.clone());
            assert_eq!(asked(&queue, &given(flavor)).contains("budget"), is_asked, "{rule} {flavor}");
        }
    }
}
