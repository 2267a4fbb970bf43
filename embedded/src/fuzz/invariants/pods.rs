//! Pods that are managed by themselves: a gate keeps them until they are admitted.

use std::collections::BTreeMap;

use serde_json::Value;

use super::liveness::{Activity, age};
use super::running::was_admitted;
use super::topology::start_together;
use crate::fuzz::world::{Shared, WORKLOADS, World, Write, at, holds, is_over, items, key, text, uid};

const MANAGED: &str = "/metadata/labels/kueue.x-k8s.io~1managed";
const GROUP: &str = "/metadata/labels/kueue.x-k8s.io~1pod-group-name";
const TOTAL: &str = "/metadata/annotations/kueue.x-k8s.io~1pod-group-total-count";

/// The condition of a group that waits for pods in place of those that are gone.
pub(super) const LACKS_PODS: &str = "WaitingForReplacementPods";

/// Kueue's gates: the first is that of admission, the second that of places.
pub(super) const GATES: [&str; 2] = ["kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology"];

pub(super) fn is_gated(pod: &Value, gate: &str) -> bool {
    items(pod, "/spec/schedulingGates").any(|one| one["name"] == gate)
}

/// The admission-controller opens a gate of a pod only while the pod's Workload is admitted.
pub(super) fn gates_open_after_admission(world: &World, write: &Write) -> Result<(), String> {
    let (Some(old), Some(new)) = (write.old.as_deref(), write.new.as_deref()) else { return Ok(()) };
    if write.resource != "pods" || !write.writer.starts_with("admission-controller") {
        return Ok(());
    }
    let Some(gate) = GATES.iter().find(|gate| is_gated(old, gate) && !is_gated(new, gate)) else {
        return Ok(());
    };
    match world.workload_of_pod(new) {
        Some(workload) if was_admitted(world, workload) => Ok(()),
        Some(workload) => {
            Err(format!("{:?}: {gate} was opened, {:?} is not admitted", write.key(), key(workload)))
        }
        None => Err(format!("{:?}: {gate} was opened, and it has no Workload", write.key())),
    }
}

fn goes_on(pod: &Value) -> bool {
    at(pod, "/metadata/deletionTimestamp").is_none() && !is_over(pod)
}

/// Pods that were submitted by themselves, and that nobody made for them.
pub(super) fn managed(world: &World) -> impl Iterator<Item = &Value> {
    world.all("pods").map(|pod| &**pod).filter(|pod| {
        text(pod, MANAGED) == "true"
            && items(pod, "/metadata/ownerReferences").next().is_none()
            && goes_on(pod)
    })
}

/// At rest each managed pod has its Workload, and so has each group that is complete.
pub(super) fn have_workloads(world: &World, _: &Activity) -> Result<(), String> {
    let mut groups: BTreeMap<(&str, &str), Vec<&Value>> = BTreeMap::new();
    for pod in managed(world).filter(|pod| age(world, pod) > 120_000) {
        match text(pod, GROUP) {
            "" if world.workload_of_owner(uid(pod)).is_none() => {
                return Err(format!("{:?} has none", key(pod)));
            }
            "" => {}
            group => groups.entry((text(pod, "/metadata/namespace"), group)).or_default().push(pod),
        }
    }
    for (group, pods) in groups {
        let total = text(pods[0], TOTAL).parse().unwrap_or(usize::MAX);
        let lacks_one = |pod: &&Value| world.workload_of_owner(uid(pod)).is_none();
        if pods.len() >= total && pods.iter().all(lacks_one) {
            return Err(format!("{group:?} is complete and has none"));
        }
    }
    Ok(())
}

/// At rest no pod of an admitted Workload waits at a gate, unless there are fewer places than pods. A pod that joins a group which
/// has finished is not let go: Kueue ends with a finished Workload before it looks at gates.
pub(super) fn admitted_pods_are_let_go(world: &World, _: &Activity) -> Result<(), String> {
    for pod in world.all("pods").filter(|pod| goes_on(pod) && age(world, pod) > 120_000) {
        let Some(gate) = GATES.iter().find(|gate| is_gated(pod, gate)) else { continue };
        let Some(workload) = world.workload_of_pod(pod) else { continue };
        let failed = items(workload, "/status/unhealthyNodes").next().is_some();
        let over = holds(workload, "Evicted") || holds(workload, "Finished");
        let left_over = items(workload, "/status/admission/podSetAssignments")
            .any(|one| *gate == GATES[1] && start_together(one) < one["count"].as_i64());
        if holds(workload, "Admitted") && !over && !failed && !left_over {
            return Err(format!("{:?} waits for {gate}, {:?} is admitted", key(pod), key(workload)));
        }
    }
    Ok(())
}

/// At rest a group waits for pods only while it has fewer than it is made of.
pub(super) fn groups_lack_what_they_wait_for(world: &World, _: &Activity) -> Result<(), String> {
    let waits = |one: &&Shared| holds(one, LACKS_PODS) && !holds(one, "Finished");
    for workload in world.all(WORKLOADS).filter(waits) {
        let (namespace, name) = key(workload);
        let counts = |pod: &&Shared| {
            let ended_well = text(pod, "/status/phase") == "Succeeded";
            text(pod, GROUP) == name
                && text(pod, "/metadata/namespace") == namespace
                && (goes_on(pod) || ended_well)
        };
        let there = world.all("pods").filter(counts).count();
        let wanted: i64 =
            items(workload, "/spec/podSets").map(|set| set["count"].as_i64().unwrap_or(1)).sum();
        if usize::try_from(wanted).is_ok_and(|wanted| there >= wanted) {
            return Err(format!("{:?} has {there} pods of {wanted} and waits for more", key(workload)));
        }
    }
    Ok(())
}
