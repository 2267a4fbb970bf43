//! Workloads that users make for their jobs themselves: they are their users', and the jobs wait for them.

use cluster_sim::Verb;
use serde_json::Value;

use crate::fuzz::world::{WORKLOADS, World, Write, at, holds, items, text, uid};

const NAMED: &str = "/metadata/annotations/kueue.x-k8s.io~1prebuilt-workload-name";
const JOBS: &str = "jobs.batch";

fn controls(job: &Value, workload: &Value) -> bool {
    let mut owners = items(workload, "/metadata/ownerReferences");
    owners.any(|owner| owner["controller"] == true && owner["uid"] == uid(job))
}

/// The admission-controller never deletes a Workload that a job names.
pub(super) fn never_deleted(world: &World, write: &Write) -> Result<(), String> {
    let deletes = write.resource == WORKLOADS
        && write.verb == Verb::Delete
        && write.writer.starts_with("admission-controller");
    if !deletes {
        return Ok(());
    }
    let (namespace, name) = write.key();
    let names_it = |job: &Value| text(job, NAMED) == name && text(job, "/metadata/namespace") == namespace;
    match world.all(JOBS).find(|job| names_it(job)) {
        Some(job) => {
            Err(format!("{:?} was deleted, which {:?} names", write.key(), text(job, "/metadata/name")))
        }
        None => Ok(()),
    }
}

/// A job that names a Workload is unsuspended only while that one is its own, and admitted.
pub(super) fn starts_with_its_own(world: &World, write: &Write) -> Result<(), String> {
    let (Some(old), Some(new)) = (write.old.as_deref(), write.new.as_deref()) else { return Ok(()) };
    let is_suspended = |job: &Value| at(job, "/spec/suspend") == Some(&Value::Bool(true));
    let starts = write.resource == JOBS
        && write.writer.starts_with("admission-controller")
        && is_suspended(old)
        && !is_suspended(new);
    let named = text(new, NAMED);
    if !starts || named.is_empty() {
        return Ok(());
    }
    let mut versions = world.believable(WORKLOADS, text(new, "/metadata/namespace"), named);
    if versions.any(|one| controls(new, one) && holds(one, "Admitted")) {
        return Ok(());
    }
    Err(format!("{:?} was released, {named:?} is not its own or not admitted", write.key()))
}

/// Whether a job waits for a Workload that its user has not made.
pub(super) fn is_awaited(world: &World, job: &Value) -> bool {
    let named = text(job, NAMED);
    !named.is_empty() && world.get(WORKLOADS, text(job, "/metadata/namespace"), named).is_none()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn job(named: &str, is_suspended: bool) -> Value {
        let annotations = json!({ "kueue.x-k8s.io/prebuilt-workload-name": named });
        json!({
            "metadata": { "name": "j", "namespace": "n", "uid": "j", "annotations": annotations },
            "spec": { "suspend": is_suspended },
        })
    }

    fn workload(owner: &str, condition: &str) -> Value {
        json!({
            "metadata": {
                "name": "w", "namespace": "n", "uid": "w",
                "ownerReferences": [{ "uid": owner, "controller": true }],
            },
            "status": { "conditions": [{ "type": condition, "status": "True" }] },
        })
    }

    #[test]
    fn a_job_starts_with_the_workload_that_it_names_and_no_other() {
        for (named, owner, condition, is_fine) in [
            ("w", "j", "Admitted", true),
            ("w", "j", "QuotaReserved", false),
            ("w", "another", "Admitted", false),
            ("other", "j", "Admitted", false),
            ("", "another", "Admitted", true), // Another rule looks at those that name none.
        ] {
            let mut world = World::default();
            world.apply(&Write::by_a_replica(0, WORKLOADS, None, workload(owner, condition)));
            let start = Write::by_a_replica(0, JOBS, Some(job(named, true)), job(named, false));
            world.apply(&start);
            let judged = starts_with_its_own(&world, &start).is_ok();
            assert_eq!(judged, is_fine, "{named:?} {owner} {condition}");
            assert_eq!(is_awaited(&world, &job(named, true)), named == "other");
        }
    }

    #[test]
    fn a_workload_that_a_job_names_is_not_deleted() {
        for (named, is_fine) in [("w", false), ("other", true)] {
            let mut world = World::default();
            world.apply(&Write::by_a_replica(0, JOBS, None, job(named, true)));
            let there = workload("j", "Admitted");
            let delete =
                Write { verb: Verb::Delete, ..Write::by_a_replica(0, WORKLOADS, Some(there.clone()), there) };
            world.apply(&delete);
            assert_eq!(never_deleted(&world, &delete).is_ok(), is_fine, "{named}");
        }
    }
}
