//! What is deleted and made again under its old name is another object, and what is made twice is two.

use super::slices::may_stand_beside;
use crate::fuzz::world::{PROGRAMS, Shared, WORKLOADS, World, Write, at, holds, items, uid};

/// A change by a program names the uid or the resourceVersion that it was decided on: if the object has been replaced by
/// a namesake, the API server refuses it.
pub(super) fn named(_: &World, write: &Write) -> Result<(), String> {
    let ours = write.writer.split_once('/').is_some_and(|(program, _)| PROGRAMS.contains(&program));
    if !ours || write.precise || write.old.is_none() {
        return Ok(());
    }
    Err(format!(
        "{} sent {:?} {} {:?} for whatever has that name",
        write.writer,
        write.verb,
        write.resource,
        write.key()
    ))
}

/// A job has one Workload that counts: there may be another when that is finished or deleted. Of an elastic job a slice may come beside
/// the one that it replaces.
pub(super) fn one_workload_each(world: &World, write: &Write) -> Result<(), String> {
    if write.resource != WORKLOADS || write.old.is_some() {
        return Ok(());
    }
    let new = write.object();
    let mut owners = items(new, "/metadata/ownerReferences");
    let controller = owners.find(|owner| owner["controller"] == true).and_then(|owner| owner["uid"].as_str());
    let Some(job) = controller else { return Ok(()) };
    let is_twin = |one: &&Shared| {
        uid(one) != uid(new)
            && !holds(one, "Finished")
            && at(one, "/metadata/deletionTimestamp").is_none()
            && !may_stand_beside(world, new, one)
    };
    match world.workloads_of_owner(job).filter(is_twin).count() {
        0 => Ok(()),
        twins => Err(format!("{:?} is one of {} Workloads of the job {job}", write.key(), twins + 1)),
    }
}
