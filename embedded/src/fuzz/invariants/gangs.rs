//! Layer 2: gangs.

use serde_json::Value;

use super::running::is_bind;
use super::slices;
use super::topology::start_together;
use crate::fuzz::world::{PLACEMENTS, POD_GROUPS, World, Write, at, items, text, uid};

/// Volcano's annotation of a pod that names its PodGroup.
const GROUP: &str = "/metadata/annotations/scheduling.k8s.io~1group-name";

/// How many members a pod's gang must have running, and how many it has in all; 1 for a pod of no gang.
pub(super) fn gang_size(world: &World, pod: &Value) -> i64 {
    let namespace = text(pod, "/metadata/namespace");
    let group = text(pod, GROUP);
    if !group.is_empty() {
        let declared = world.get(POD_GROUPS, namespace, group);
        return declared.and_then(|group| at(group, "/spec/minMember")?.as_i64()).unwrap_or(1);
    }
    let Some(workload) = world.workload_of_pod(pod) else { return 1 };
    // Who accepts fewer pods has as many as it was granted, who has shrunk since has fewer than that.
    let granted = |set: &Value| {
        let mut of_set =
            items(workload, "/status/admission/podSetAssignments").filter(|one| one["name"] == set["name"]);
        of_set.next().and_then(start_together)
    };
    let together = |set: &Value| {
        let count = set["count"].as_i64().unwrap_or(1);
        granted(set).map_or(count, |granted| granted.min(count))
    };
    items(workload, "/spec/podSets").map(together).sum()
}

/// What pods belong together by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gang<'a> {
    /// The PodGroup of this namespace and name.
    PodGroup(&'a str, &'a str),
    /// The Workload with this uid.
    Workload(&'a str),
}

/// The gang of a pod, if it has one.
pub(super) fn gang_of<'a>(world: &'a World, pod: &'a Value) -> Option<Gang<'a>> {
    match text(pod, GROUP) {
        "" => world.workload_of_pod(pod).map(|workload| Gang::Workload(uid(workload))),
        group => Some(Gang::PodGroup(text(pod, "/metadata/namespace"), group)),
    }
}

/// A member of a gang of two or more is bound only where a durable plan puts it. Who joins a gang that has its minimum
/// already needs none, nor does the one whose bind completes it: nothing is half done before or after that. Pods of a job that its
/// user has started by hand do not say that they belong together.
pub(super) fn planned_before_bound(world: &World, write: &Write) -> Result<(), String> {
    if !is_bind(write) || !write.writer.starts_with("gang-scheduler") {
        return Ok(());
    }
    let pod = write.object();
    if world.runs_by_hand(pod) {
        return Ok(());
    }
    // Whoever binds a pod of an elastic job may know the slice before.
    let known = slices::sizes_of_late(world, pod);
    let least = known.into_iter().fold(gang_size(world, pod), i64::min);
    if least < 2 {
        return Ok(());
    }
    let gang = gang_of(world, pod);
    let others = world.all("pods").filter(|other| {
        !text(other, "/spec/nodeName").is_empty() && uid(other) != uid(pod) && gang_of(world, other) == gang
    });
    if i64::try_from(others.count()).unwrap_or(i64::MAX) >= least - 1 {
        return Ok(());
    }
    let node = text(pod, "/spec/nodeName");
    let planned = world.all(PLACEMENTS).any(|plan| {
        items(plan, "/spec/members").any(|member| {
            let index = member["node"].as_u64().unwrap_or(u64::MAX).to_string();
            member["uid"] == uid(pod) && text(plan, &format!("/spec/nodes/{index}")) == node
        })
    });
    if planned {
        Ok(())
    } else {
        Err(format!("{:?} was bound to {node}; no GangPlacement says so", write.key()))
    }
}
