//! Which flavors serve a workload, and why none does.

use quota_engine::{Decision, PendingReason};
use serde_json::{Value, json};

use super::world::{self, World};
use crate::case::{Case, Runner, Verdict};

pub(super) const TESTS: &[(&str, Runner)] = &[
    ("flavorassigner.TestAssignFlavors", assign),
    ("flavorassigner.TestIsNoFitDueToCapacityAndLimits", no_fit),
];

/// What Kueue's test gives as the result of a search for victims, which here cannot be replaced.
const SIMULATED: &str = "preemption is simulated";

fn assign(case: &Case) -> Verdict {
    let tc = case.tc();
    if tc["enableFairSharing"] == true {
        return Err("fair sharing".to_owned());
    }
    if !tc["simulationResult"].is_null() {
        return Err(SIMULATED.to_owned());
    }
    let mut world = World::new();
    let flavors: Vec<Value> = case
        .shared("resourceFlavors")
        .as_object()
        .into_iter()
        .flatten()
        .map(|(_, flavor)| flavor.clone())
        .collect();
    world.flavors(&flavors);
    let queues: Vec<&Value> = ["clusterQueue", "secondaryClusterQueue"]
        .iter()
        .map(|field| &tc[field])
        .filter(|one| !one.is_null())
        .collect();
    world.queues(&json!({ "clusterQueues": queues }));
    let name = |field: &str| tc[field]["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    world.usage(&json!({
        name("clusterQueue"): tc["clusterQueueUsage"],
        name("secondaryClusterQueue"): tc["secondaryClusterQueueUsage"],
    }));
    world.local_queue("incoming", &name("clusterQueue"));
    world.workloads(&json!([{
        "metadata": { "name": "wl", "namespace": "default" },
        "spec": { "queueName": "incoming", "podSets": tc["wlPods"] },
    }]));
    let decided = world.decide();
    let wanted = &tc["wantAssignment"];
    let fits = tc["wantRepMode"] == 3;
    let admission = decided.iter().find_map(|one| match one {
        Decision::Reserve(reserve) => Some(&reserve.admission),
        _ => None,
    });
    match (fits, admission) {
        (true, Some(admission)) => {
            let given = world::flavors_of(admission);
            let wanted = world::flavors_assigned(wanted);
            if given == wanted { Ok(()) } else { Err(format!("{given:?}, wanted {wanted:?}")) }
        }
        (false, None) if tc["wantRepMode"].is_null() || tc["wantRepMode"] == 0 => {
            let token = decided.iter().find_map(|one| match one {
                Decision::SetPending(set) => Some(set.reason.token()),
                _ => None,
            });
            let reason = wanted["NoFitReason"].as_str();
            if token == reason { Ok(()) } else { Err(format!("{token:?}, wanted {reason:?}")) }
        }
        _ if !fits && tc["wantRepMode"] != 0 => Err(SIMULATED.to_owned()),
        (_, admission) => Err(format!("{:?}, wanted mode {}", admission.is_some(), tc["wantRepMode"])),
    }
}

fn no_fit(case: &Case) -> Verdict {
    let tc = case.tc();
    if !tc["simulationResult"].is_null() || !tc["topologies"].is_null() || !tc["replaceWl"].is_null() {
        return Err(SIMULATED.to_owned());
    }
    let mut world = World::new();
    let flavors =
        if tc["resourceFlavors"].is_null() { case.shared("resourceFlavors") } else { &tc["resourceFlavors"] };
    let flavors: Vec<Value> =
        flavors.as_object().into_iter().flatten().map(|(_, flavor)| flavor.clone()).collect();
    world.flavors(&flavors);
    let quota = |name: &str| json!({ "name": name, "resources": [{ "name": "cpu", "nominalQuota": "2" }] });
    let plain = json!({ "metadata": { "name": "cq" }, "spec": {
        "namespaceSelector": {},
        "resourceGroups": [{ "coveredResources": ["cpu"], "flavors": [quota("flavor-a"), quota("flavor-b")] }],
    }});
    let queue = if tc["cq"].is_null() { &plain } else { &tc["cq"] };
    let mut queues = vec![queue.clone()];
    queues.extend(tc["siblingCQs"].as_array().into_iter().flatten().cloned());
    world.queues(&json!({ "clusterQueues": queues }));
    let name = queue["metadata"]["name"].as_str().unwrap();
    world.usage(&tc["siblingCQUsage"]);
    world.usage(&json!({ name: tc["cqUsage"] }));
    world.local_queue("incoming", name);
    world.workloads(&json!([{
        "metadata": { "name": "wl", "namespace": "default" },
        "spec": { "queueName": "incoming", "podSets": [tc["podSet"]] },
    }]));
    let reason = world.decide().into_iter().find_map(|one| match one {
        Decision::SetPending(set) => Some(set.reason),
        _ => None,
    });
    let wanted = tc["wantNoFitReason"].as_str().filter(|wanted| !wanted.is_empty());
    let token = reason.as_ref().map(PendingReason::token);
    if token == wanted { Ok(()) } else { Err(format!("{token:?}, wanted {wanted:?}; {reason:?}")) }
}
