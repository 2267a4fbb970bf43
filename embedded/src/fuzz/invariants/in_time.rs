//! What must have happened within a time, looked at again and again: somebody is told to go, and goes.

use std::collections::BTreeMap;

use serde_json::Value;

use super::liveness::{has_ended, managed_jobs};
use super::pods::{GATES, is_gated, managed};
use crate::fuzz::world::{CLUSTER_QUEUES, Shared, WORKLOADS, World, at, holds, key, text, uid};

/// No pause, crash or trouble of an episode keeps a program from anything for so long, in milliseconds.
const WITHIN: i64 = 300_000;

fn was_evicted_long_ago(world: &World, workload: Option<&Shared>) -> bool {
    let evicted = workload.filter(|workload| holds(workload, "Evicted"));
    evicted.and_then(|one| world.turned(one, "Evicted")).is_some_and(|since| since < world.now - WITHIN)
}

/// The job of an evicted Workload does not run on.
pub(super) fn suspended_in_time(world: &World) -> Result<(), String> {
    for (job, suspend) in managed_jobs(world).filter(|(job, _)| !has_ended(job)) {
        if at(job, suspend) == Some(&Value::Bool(true)) {
            continue;
        }
        if was_evicted_long_ago(world, world.workload_of_owner(uid(job))) {
            return Err(format!("{:?} still runs, {} s after its eviction", key(job), WITHIN / 1000));
        }
    }
    Ok(())
}

/// Pods that are managed by themselves do not run on when their Workload is evicted.
pub(super) fn leave_in_time(world: &World) -> Result<(), String> {
    let stays =
        |pod: &&Value| was_evicted_long_ago(world, world.workload_of_pod(pod)) && !is_gated(pod, GATES[0]);
    match managed(world).find(stays) {
        Some(pod) => Err(format!("{:?} is there, {} s after its eviction", key(pod), WITHIN / 1000)),
        None => Ok(()),
    }
}

/// Since when which ClusterQueues are drained.
#[derive(Debug, Default)]
pub(super) struct Drained(BTreeMap<String, i64>);

impl Drained {
    /// Nobody stays in a queue that is drained.
    pub(super) fn look(&mut self, world: &World) -> Result<(), String> {
        let drains = |queue: &&Shared| text(queue, "/spec/stopPolicy") == "HoldAndDrain";
        let drained = world.all(CLUSTER_QUEUES).filter(drains).map(|queue| text(queue, "/metadata/name"));
        let since = |name: &str| (name.to_owned(), self.0.get(name).copied().unwrap_or(world.now));
        self.0 = drained.map(since).collect();
        let stays = |workload: &&Shared| {
            let since = self.0.get(text(workload, "/status/admission/clusterQueue"));
            since.is_some_and(|since| world.now - since > WITHIN)
                && !holds(workload, "Finished")
                && !holds(workload, "Evicted")
        };
        match world.all(WORKLOADS).find(stays) {
            Some(workload) => Err(format!(
                "{:?} still holds quota, {} s after its queue was drained",
                key(workload),
                WITHIN / 1000
            )),
            None => Ok(()),
        }
    }
}

/// Since when which Workloads are deactivated.
#[derive(Debug, Default)]
pub(super) struct Deactivated(BTreeMap<String, i64>);

impl Deactivated {
    /// Nobody who is deactivated stays admitted.
    pub(super) fn look(&mut self, world: &World) -> Result<(), String> {
        let is_inactive = |one: &&Shared| at(one, "/spec/active") == Some(&Value::Bool(false));
        let since = |one: &Shared| (uid(one).to_owned(), self.0.get(uid(one)).copied().unwrap_or(world.now));
        self.0 = world.all(WORKLOADS).filter(is_inactive).map(since).collect();
        let stays = |one: &&Shared| {
            let since = self.0.get(uid(one));
            since.is_some_and(|since| world.now - since > WITHIN)
                && holds(one, "Admitted")
                && !holds(one, "Finished")
                && !holds(one, "Evicted")
        };
        match world.all(WORKLOADS).find(stays) {
            Some(workload) => Err(format!(
                "{:?} is still admitted, {} s after it was deactivated",
                key(workload),
                WITHIN / 1000
            )),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_that_runs_on_after_its_eviction_is_seen() {
        let gates = json!([{ "name": GATES[0] }]);
        for (what, now, phase, gates, is_fine) in [
            ("it runs on", WITHIN + 1, "Running", Value::Null, false),
            ("it has time", WITHIN - 1, "Running", Value::Null, true),
            ("it has ended", WITHIN + 1, "Failed", Value::Null, true),
            ("it waits behind its gate", WITHIN + 1, "Pending", gates, true),
        ] {
            let labels = json!({ "kueue.x-k8s.io/managed": "true" });
            let pod = json!({
                "metadata": { "name": "p", "namespace": "n", "uid": "p", "labels": labels },
                "spec": { "schedulingGates": gates }, "status": { "phase": phase },
            });
            let workload = json!({
                "metadata": { "name": "w", "namespace": "n", "uid": "w", "ownerReferences": [{ "uid": "p" }] },
                "status": { "conditions": [{ "type": "Evicted", "status": "True" }] },
            });
            let mut world = World::holding([("pods", pod), (WORKLOADS, workload)]);
            world.now = now;
            assert_eq!(leave_in_time(&world).is_ok(), is_fine, "{what}");
        }
    }
}
