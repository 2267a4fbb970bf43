//! Why a workload waits, worked out anew from the objects as they are: the slow second opinion about reasons.
//!
//! What depends on how much is used at the moment is left out: that may be as old as the last look at the workload. What
//! follows from the objects alone must be told as it is.

use std::collections::BTreeMap;

use model::reasons::workload::quota_reserved::{
    EXCEEDS_MAX_QUOTA, MISCONFIGURED, NO_MATCHING_FLAVOR, PENDING_EVALUATION, SUSPENDED,
};
use serde_json::Value;

use super::admissible::{by_group, halt};
use super::flavors::{labels_of, suits};
use super::liveness::{Activity, pending, queue_of};
use super::slices::predecessor;
use super::tree::Tree;
use crate::fuzz::world::{FLAVORS, LOCAL_QUEUES, World, at, condition, items, key, text};

/// Somebody who waits is told the kind of thing that he waits for.
pub(super) fn reasons_are_true(world: &World, _: &Activity) -> Result<(), String> {
    let idle = Tree::now(world).idle();
    for workload in pending(world) {
        let told = condition(workload, "QuotaReserved").map_or("", |told| text(told, "/reason"));
        if let Some(wrong) = contradiction(world, &idle, workload, told) {
            return Err(format!("{:?} is told {told:?}, but {wrong}", key(workload)));
        }
    }
    Ok(())
}

/// What speaks against a reason.
fn contradiction(world: &World, idle: &Tree, workload: &Value, told: &str) -> Option<String> {
    let namespace = text(workload, "/metadata/namespace");
    let local = world.get(LOCAL_QUEUES, namespace, text(workload, "/spec/queueName"));
    let Some(local) = local.filter(|local| at(local, "/metadata/deletionTimestamp").is_none()) else {
        return unless(told == MISCONFIGURED, "its LocalQueue does not exist");
    };
    if !matches!(text(local, "/spec/stopPolicy"), "" | "None") {
        return unless(told == SUSPENDED, "its LocalQueue is stopped");
    }
    let Some(queue) = queue_of(world, workload) else {
        return unless(told == MISCONFIGURED, "its ClusterQueue does not exist");
    };
    if let Some(why) = halt(world, idle, queue) {
        return unless(told == SUSPENDED, &format!("its ClusterQueue admits nothing: {why}"));
    }
    match told {
        SUSPENDED => return Some("its queues admit".to_owned()),
        MISCONFIGURED => return Some("its queues exist".to_owned()),
        // It is not its turn, it is put off, or its status says that it is not to be looked at.
        PENDING_EVALUATION => {
            let strict = text(queue, "/spec/queueingStrategy") == "StrictFIFO";
            let put_off = at(workload, "/status/requeueState/requeueAt").is_some();
            let refused = items(workload, "/status/admissionChecks").any(|one| one["state"] != "Pending");
            let kept_out = condition(workload, "Requeued").is_some_and(|one| one["status"] == "False");
            return unless(strict || put_off || refused || kept_out, "nothing keeps it from its turn");
        }
        _ => {}
    }
    let (worth, why) = worth(world, idle, queue, workload)?;
    let says_never = matches!(told, NO_MATCHING_FLAVOR | EXCEEDS_MAX_QUOTA);
    match worth.token() {
        Some(token) => unless(told == token, &why),
        None => unless(!says_never, &why),
    }
}

fn unless(holds: bool, otherwise: &str) -> Option<String> {
    (!holds).then(|| otherwise.to_owned())
}

/// What its queue is worth to a workload of one pod set, were nothing used of it, and why. None about those of which that is more
/// than adding up: several pod sets, fewer pods than asked for, slices, places.
fn worth(world: &World, idle: &Tree, queue: &Value, workload: &Value) -> Option<(Worth, String)> {
    let mut sets = items(workload, "/spec/podSets");
    let (set, others) = (sets.next()?, sets.count());
    let has_topology = |flavor: &Value| !text(flavor, "/spec/topologyName").is_empty();
    let is_simple = others == 0
        && set.get("minCount").is_none()
        && set.get("topologyRequest").is_none()
        && predecessor(world, workload).is_none()
        && !world.all(FLAVORS).any(|flavor| has_topology(flavor));
    if !is_simple {
        return None;
    }
    let Some(asked) = by_group(world, queue, workload) else {
        return Some((Worth::Unsuited, "no group of its queue covers what it asks for".to_owned()));
    };
    let of_groups = asked.iter().filter_map(|(index, asked)| {
        let group = items(queue, "/spec/resourceGroups").nth(*index)?;
        Some(of_group(world, idle, text(queue, "/metadata/name"), group, set, asked))
    });
    of_groups.max_by_key(|(worth, _)| *worth)
}

/// What one flavor, the best of several, or a queue is worth to a pod set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Worth {
    /// It would do if nobody else used any of it.
    Enough,
    TooLittle,
    Unsuited,
}

impl Worth {
    fn token(self) -> Option<&'static str> {
        match self {
            Self::Enough => None,
            Self::TooLittle => Some(EXCEEDS_MAX_QUOTA),
            Self::Unsuited => Some(NO_MATCHING_FLAVOR),
        }
    }
}

fn of_group(
    world: &World,
    idle: &Tree,
    queue: &str,
    group: &Value,
    set: &Value,
    asked: &BTreeMap<String, i64>,
) -> (Worth, String) {
    let labels = labels_of(world, group);
    let worth = |flavor: &str| {
        let suited =
            world.get(FLAVORS, "", flavor).is_some_and(|object| suits(&set["template"], object, &labels));
        let lacks = asked
            .iter()
            .any(|(resource, amount)| idle.room(queue, &(flavor.to_owned(), resource.clone())) < *amount);
        match (suited, lacks) {
            (false, _) => Worth::Unsuited,
            (true, true) => Worth::TooLittle,
            (true, false) => Worth::Enough,
        }
    };
    let flavors = items(group, "/flavors").map(|one| text(one, "/name"));
    let best = flavors.map(|flavor| (worth(flavor), flavor)).min();
    match best {
        Some((worth, flavor)) => (worth, format!("for {asked:?} {flavor} is {worth:?} at best")),
        None => (Worth::Unsuited, "its group has no flavors".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fuzz::world::{CLUSTER_QUEUES, WORKLOADS};

    const GPU: &str = "nvidia.com/gpu";

    /// What is wrong about a reason of a workload that asks for so many GPUs, of four in its queue.
    fn judged(reason: &str, gpus: i64, queue: Value, tolerates: bool) -> Result<(), String> {
        let resources = json!([{ "name": GPU, "nominalQuota": 4 }]);
        let group =
            json!({ "coveredResources": [GPU], "flavors": [{ "name": "gpu", "resources": resources }] });
        let mut spec = json!({ "resourceGroups": [group] });
        spec.as_object_mut().unwrap().extend(queue.as_object().unwrap().clone());
        let taint = json!({ "key": "k", "value": "v", "effect": "NoSchedule" });
        let container = json!({ "resources": { "requests": { GPU: gpus.to_string() } } });
        let mut pod = json!({ "containers": [container] });
        if tolerates {
            pod["tolerations"] = json!([{ "operator": "Exists" }]);
        }
        let condition = json!({ "type": "QuotaReserved", "status": "False", "reason": reason });
        let workload = json!({
            "metadata": { "name": "w", "namespace": "n", "uid": "w" },
            "spec": { "queueName": "l", "podSets": [{ "name": "main", "count": 1, "template": { "spec": pod } }] },
            "status": { "conditions": [condition] },
        });
        let local = json!({ "metadata": { "name": "l", "namespace": "n" }, "spec": { "clusterQueue": "q" } });
        let world = World::holding([
            (FLAVORS, json!({ "metadata": { "name": "gpu" }, "spec": { "nodeTaints": [taint] } })),
            (LOCAL_QUEUES, local),
            (CLUSTER_QUEUES, json!({ "metadata": { "name": "q", "uid": "q" }, "spec": spec })),
            (WORKLOADS, workload),
        ]);
        reasons_are_true(&world, &Activity::default())
    }

    #[test]
    fn the_true_reason_passes_and_no_other() {
        let tokens = [
            EXCEEDS_MAX_QUOTA,
            MISCONFIGURED,
            NO_MATCHING_FLAVOR,
            PENDING_EVALUATION,
            SUSPENDED,
            "WaitingForQuota",
        ];
        for (gpus, queue, tolerates, right) in [
            (4, json!({}), true, vec!["WaitingForQuota"]),
            (5, json!({}), true, vec![EXCEEDS_MAX_QUOTA]),
            (5, json!({}), false, vec![NO_MATCHING_FLAVOR]),
            (5, json!({ "stopPolicy": "Hold" }), true, vec![SUSPENDED]),
            (
                4,
                json!({ "queueingStrategy": "StrictFIFO" }),
                true,
                vec![PENDING_EVALUATION, "WaitingForQuota"],
            ),
        ] {
            for token in tokens {
                let judged = judged(token, gpus, queue.clone(), tolerates);
                assert_eq!(judged.is_ok(), right.contains(&token), "{gpus} {queue} {token}: {judged:?}");
            }
        }
    }
}
