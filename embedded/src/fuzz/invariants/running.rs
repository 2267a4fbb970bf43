//! Between layers 1 and 2: what runs was admitted.

use model::{ResourceList, resources};
use serde_json::Value;

use super::liveness::has_ended;
use super::nodes::requests;
use super::quota::became_true;
use super::slices::{self, is_elastic};
use crate::fuzz::world::{
    JOBS, POD_SET, Shared, WORKLOADS, World, Write, amount, at, holds, is_over, items, text, uid,
};

pub(super) fn was_admitted(world: &World, workload: &Value) -> bool {
    let (namespace, name) = (text(workload, "/metadata/namespace"), text(workload, "/metadata/name"));
    world
        .believable(WORKLOADS, namespace, name)
        .any(|version| uid(version) == uid(workload) && holds(version, "Admitted"))
}

/// Whether the Workload that counts for a job was admitted, or another slice of it.
fn may_run(world: &World, workload: &Value, job: &Value) -> bool {
    was_admitted(world, workload)
        || (is_elastic(workload) && !slices::admitted_of_late(world, uid(job)).is_empty())
}

/// A managed job is unsuspended by the admission-controller only while its own Workload is admitted.
pub(super) fn released_after_admission(world: &World, write: &Write) -> Result<(), String> {
    let Some((_, suspend)) = JOBS.iter().find(|(resource, _)| *resource == write.resource) else {
        return Ok(());
    };
    let (Some(old), Some(new)) = (write.old.as_deref(), write.new.as_deref()) else { return Ok(()) };
    let suspended = |job: &Value| at(job, suspend) == Some(&Value::Bool(true));
    if !write.writer.starts_with("admission-controller") || !suspended(old) || suspended(new) {
        return Ok(());
    }
    match world.workload_of_owner(uid(new)) {
        Some(workload) if may_run(world, workload, new) => Ok(()),
        Some(workload) => {
            Err(format!("{:?} was released, its Workload {:?} was not admitted", write.key(), uid(workload)))
        }
        None => Err(format!("{:?} was released without a Workload of its own", write.key())),
    }
}

/// The quota of a job that still runs is not given back as if it had ended. That of a slice is, when another goes on.
pub(super) fn finished_after_the_end(world: &World, write: &Write) -> Result<(), String> {
    if write.resource != WORKLOADS || !became_true(write, "Finished") {
        return Ok(());
    }
    let goes_on = |job: &Value| !has_ended(job) && !is_over(job);
    let stays = |job: &&Shared| goes_on(job) && at(job, "/metadata/deletionTimestamp").is_none();
    let mut jobs = world.jobs_of(write.object());
    match jobs.find(stays).filter(|_| !slices::goes_on_in_another(world, write.object())) {
        Some(job) => Err(format!(
            "{:?} is finished, its job {:?} has not ended",
            write.key(),
            text(job, "/metadata/name")
        )),
        None => Ok(()),
    }
}

/// A pod of a managed job is bound only while its Workload is admitted, and no more pods than granted are. Those of a job that its
/// user has started by hand bear no mark of admission: they run until admission-controller sees it, as with Kueue.
pub(super) fn bound_within_grant(world: &World, write: &Write) -> Result<(), String> {
    if !is_bind(write) || write.writer.starts_with("user") {
        return Ok(());
    }
    let pod = write.object();
    let managed = |object: &Value| !text(object, "/metadata/labels/kueue.x-k8s.io~1queue-name").is_empty();
    let top = world.top_job(pod).map_or(pod, |job| job);
    if !managed(top) || world.runs_by_hand(pod) {
        return Ok(());
    }
    let Some(workload) = world.workload_of_owner(uid(top)) else {
        return Err(format!("{:?} was bound, its job has no Workload", write.key()));
    };
    if !may_run(world, workload, top) {
        return Err(format!("{:?} was bound, its Workload is not admitted", write.key()));
    }
    let set = text(pod, POD_SET);
    let fellows: Vec<&Value> = world
        .all("pods")
        .map(|other| &**other)
        .filter(|other| {
            let runs = !text(other, "/spec/nodeName").is_empty() && !is_over(other);
            runs && at(other, "/metadata/deletionTimestamp").is_none()
                && text(other, POD_SET) == set
                && world.workload_of_pod(other).is_some_and(|one| uid(one) == uid(workload))
        })
        .collect();
    // On which of its slices a pod runs is not known outside.
    let grants: Vec<&Value> = match is_elastic(workload) {
        true => {
            let slices = slices::admitted_of_late(world, uid(top));
            slices.into_iter().filter_map(|slice| grant_of(slice, set)).collect()
        }
        false => grant_of(workload, set).into_iter().collect(),
    };
    if grants.is_empty() && !is_elastic(workload) && holds(workload, "Admitted") {
        return Err(format!("{:?} was bound, its Workload has no pod set {set:?}", write.key()));
    }
    let mut verdicts = grants.into_iter().map(|grant| within(grant, set, &fellows));
    match verdicts.next() {
        Some(Err(what)) if !verdicts.any(|one| one.is_ok()) => Err(format!("{:?} {what}", write.key())),
        // None was found of an admission that was taken back meanwhile: `was_admitted` has judged that.
        _ => Ok(()),
    }
}

/// What a Workload was granted for a pod set.
fn grant_of<'a>(workload: &'a Value, set: &str) -> Option<&'a Value> {
    items(workload, "/status/admission/podSetAssignments").find(|one| one["name"] == set)
}

/// That so many pods are no more than was granted for their set.
fn within(grant: &Value, set: &str, fellows: &[&Value]) -> Result<(), String> {
    let bound = i64::try_from(fellows.len()).unwrap_or(i64::MAX);
    let granted = grant["count"].as_i64().unwrap_or(1);
    if bound > granted {
        return Err(format!("was bound as pod {bound} of {granted} granted to {set:?}"));
    }
    let asked = fellows.iter().fold(ResourceList::new(), |mut sum, pod| {
        // An overflow would be a sum above every grant.
        let _ = resources::checked_add(&mut sum, &requests(pod));
        sum
    });
    for (resource, usage) in grant["resourceUsage"].as_object().into_iter().flatten() {
        let granted = amount(resource, Some(usage)).unwrap_or(0);
        let asked = asked.get(resource.as_str()).copied().unwrap_or(0);
        if asked > granted {
            return Err(format!("was bound: {set:?} now asks {asked} {resource} of {granted} granted"));
        }
    }
    Ok(())
}

/// Whether this write gave a pod its node.
pub(super) fn is_bind(write: &Write) -> bool {
    let node = |pod: Option<&Value>| pod.is_some_and(|pod| !text(pod, "/spec/nodeName").is_empty());
    write.resource == "pods" && node(write.new.as_deref()) && !node(write.old.as_deref())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_group_of_which_one_pod_runs_is_not_finished() {
        for (phases, is_fine) in [
            (["Succeeded", "Succeeded"], true),
            (["Succeeded", "Running"], false),
            (["Running", "Failed"], false),
        ] {
            let pod = |uid: &str, phase: &str| {
                let metadata = json!({ "name": uid, "namespace": "n", "uid": uid });
                ("pods", json!({ "metadata": metadata, "status": { "phase": phase } }))
            };
            let world = World::holding([pod("a", phases[0]), pod("b", phases[1])]);
            let workload = |status: &str| {
                let metadata = json!({ "name": "w", "namespace": "n", "ownerReferences": [{ "uid": "a" }, { "uid": "b" }] });
                let conditions = json!([{ "type": "Finished", "status": status }]);
                json!({ "metadata": metadata, "status": { "conditions": conditions } })
            };
            let write = Write::by_a_replica(0, WORKLOADS, Some(workload("False")), workload("True"));
            assert_eq!(finished_after_the_end(&world, &write).is_ok(), is_fine, "{phases:?}");
        }
    }
}
