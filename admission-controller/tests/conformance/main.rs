//! Kueue's own tables of decisions (`../shared/conformance/kueue`), where they are there: who is admitted to what, whom a
//! workload displaces, what a queue may take. Cases about what is not done yet are counted as such, by what they need.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use quota_engine::{Decision, EvictReason, PendingReason};
use serde_json::{Value, json};
use world::World;

/// Where this program decides otherwise on purpose or needs what it does not have yet: `file: case: why`.
const DIFFERENCES: &str = include_str!("differences.txt");

fn cases(file: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/conformance/kueue");
    let Ok(text) = std::fs::read_to_string(path.join(format!("{file}.jsonl"))) else {
        println!("skipped: {file}.jsonl is not there");
        return Vec::new();
    };
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// What Kueue's test gives as the result of a search for victims, which here cannot be replaced.
const SIMULATED: &str = "preemption is simulated";

/// Runs every case of a file. A listed difference that has gone is as wrong as one that is not listed.
fn check(file: &str, run: impl Fn(&Value) -> Result<(), String>) {
    let wanted: BTreeMap<&str, &str> = DIFFERENCES
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.strip_prefix(file)?.strip_prefix(": ")?.rsplit_once(": "))
        .collect();
    let (mut passed, mut simulated, mut wrong) = (0, 0, Vec::new());
    for case in cases(file) {
        let name = case["case"].as_str().unwrap();
        match (run(&case), wanted.get(name)) {
            (Ok(()), None) => passed += 1,
            (Err(_), Some(_)) => {}
            (Err(words), None) if words == SIMULATED => simulated += 1,
            (Ok(()), Some(why)) => {
                wrong.push(format!("{name}: is listed as a difference ({why}) and is none"))
            }
            (Err(words), None) => wrong.push(format!("{name}: {words}")),
        }
    }
    let listed = wanted.len();
    println!(
        "{file}: {passed} as Kueue decides, {listed} otherwise as listed, {simulated} with a search simulated"
    );
    assert!(wrong.is_empty(), "{file}: {} wrong\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn what_a_queue_may_take() {
    check("scheduler.TestAvailable", |case| {
        let tc = &case["tc"];
        for (wanted, used) in [("wantPotentiallyAvailable", false), ("wantAvailable", true)] {
            for (queue, amounts) in tc[wanted].as_object().into_iter().flatten() {
                for (pair, amount) in amounts.as_object().unwrap() {
                    let pair: Value = serde_json::from_str(pair).unwrap();
                    let (flavor, resource) =
                        (pair["Flavor"].as_str().unwrap(), pair["Resource"].as_str().unwrap());
                    let amount = amount["value"].as_i64().unwrap_or(0);
                    let fits = |amount: i64| {
                        let mut world = World::new();
                        world.flavors(&["red", "blue"].map(|name| json!({ "metadata": { "name": name } })));
                        world.queues(tc);
                        if used {
                            world.usage(&tc["usage"]);
                        }
                        world.probe(queue, flavor, resource, amount)
                    };
                    if amount > 0 && !fits(amount) {
                        return Err(format!("{wanted}: {queue} cannot take {amount} {resource} of {flavor}"));
                    }
                    if fits(amount.max(0) + 1) {
                        return Err(format!(
                            "{wanted}: {queue} takes more than {amount} {resource} of {flavor}"
                        ));
                    }
                }
            }
        }
        Ok(())
    });
}

#[test]
fn who_is_admitted() {
    check("scheduler.TestSchedule", |case| {
        let (tc, config) = (&case["tc"], &case["ctx_cfg"]);
        let mut world = World::new();
        world.flavors(config["resourceFlavors"].as_array().unwrap());
        world.queues(config);
        world.queues(&json!({
            "clusterQueues": tc["additionalClusterQueues"],
            "queues": tc["additionalLocalQueues"],
            "cohorts": tc["cohorts"],
        }));
        world.workloads(&tc["workloads"]);
        let decided = world.decide();
        judge(tc, &world, &decided)
    });
}

/// Kueue's tables show one cycle with one head per queue; here a decision goes on until nothing is left to do. So what it
/// admits must be admitted, and what it leaves as hopeless must not.
fn judge(tc: &Value, world: &World, decided: &[Decision]) -> Result<(), String> {
    let mut admitted = world.held();
    let mut evicted: BTreeMap<String, &str> = BTreeMap::new();
    for decision in decided {
        match decision {
            Decision::Reserve(reserve) => {
                admitted.insert(world.key(&reserve.workload), world::flavors_of(&reserve.admission));
            }
            Decision::Evict(evict) => {
                let EvictReason::Preempted(reason) = evict.reason else { continue };
                evicted.insert(world.key(&evict.victim), reason.token());
            }
            Decision::SetPending(_) => {}
        }
    }
    for (key, admission) in tc["wantAssignments"].as_object().into_iter().flatten() {
        let wanted = world::flavors_written(admission);
        match admitted.get(key) {
            Some(given) if *given == wanted => {}
            given => return Err(format!("{key} gets {given:?}, wanted {wanted:?}")),
        }
    }
    let wanted = tc["wantAssignments"].as_object();
    let left = |field: &str| -> BTreeSet<&str> {
        let queues = tc[field].as_object().into_iter().flatten();
        queues.flat_map(|(_, keys)| keys.as_array().unwrap()).map(|key| key.as_str().unwrap()).collect()
    };
    let (may_follow, hopeless) = (left("wantLeft"), left("wantInadmissibleLeft"));
    for key in admitted.keys() {
        let listed = wanted.is_some_and(|wanted| wanted.contains_key(key));
        if hopeless.contains(key.as_str()) || (!listed && !may_follow.contains(key.as_str())) {
            return Err(format!("{key} is admitted"));
        }
    }
    let mut wanted_victims = BTreeMap::new();
    for workload in tc["wantWorkloads"].as_array().into_iter().flatten() {
        let preempted = |one: &&Value| one["type"] == "Preempted" && one["status"] == "True";
        let conditions = workload.pointer("/status/conditions").and_then(Value::as_array);
        if let Some(condition) = conditions.into_iter().flatten().find(preempted) {
            wanted_victims.insert(world::key_of(workload), condition["reason"].as_str().unwrap());
        }
    }
    let before = world.preempted_before();
    wanted_victims.retain(|key, _| !before.contains(key));
    if wanted_victims.iter().any(|(key, reason)| evicted.get(key) != Some(reason)) {
        return Err(format!("victims {evicted:?}, wanted {wanted_victims:?}"));
    }
    reasons(tc, world, decided)
}

/// The reason of those that Kueue has looked at in its one cycle.
fn reasons(tc: &Value, world: &World, decided: &[Decision]) -> Result<(), String> {
    let mut said: BTreeMap<String, &str> = BTreeMap::new();
    for decision in decided {
        if let Decision::SetPending(set) = decision {
            said.insert(world.key(&set.workload), set.reason.token());
        }
    }
    for workload in tc["wantWorkloads"].as_array().into_iter().flatten() {
        let key = world::key_of(workload);
        let conditions = workload.pointer("/status/conditions").and_then(Value::as_array);
        let waits = |one: &&Value| one["type"] == "QuotaReserved" && one["status"] == "False";
        let Some(condition) = conditions.into_iter().flatten().find(waits) else { continue };
        let wanted = condition["reason"].as_str().unwrap();
        match said.get(&key) {
            Some(given) if *given == wanted => {}
            // It was looked at again after others were served.
            None => {}
            given => return Err(format!("{key} waits because of {given:?}, wanted {wanted}")),
        }
    }
    Ok(())
}

#[test]
fn whom_a_workload_displaces() {
    for file in ["preemption.TestPreemption", "preemption.TestHierarchicalPreemptions"] {
        check(file, |case| {
            let tc = &case["tc"];
            let mut world = World::new();
            world.flavors(case["ctx_flavors"].as_array().unwrap());
            world.queues(tc);
            world.workloads(&tc["admitted"]);
            let target = tc["targetCQ"].as_str().unwrap();
            world.local_queue("incoming", target);
            let mut incoming = tc["incoming"].clone();
            incoming["metadata"]["namespace"] = json!("default");
            incoming["spec"]["queueName"] = json!("incoming");
            world.workloads(&json!([incoming]));
            let decided = world.decide();
            let mut victims: BTreeMap<String, &str> = BTreeMap::new();
            for decision in &decided {
                if let Decision::Evict(evict) = decision
                    && let EvictReason::Preempted(reason) = evict.reason
                {
                    victims.insert(world.key(&evict.victim), reason.token());
                }
            }
            let mut wanted: BTreeMap<String, &str> = BTreeMap::new();
            for workload in tc["wantWorkloads"].as_array().into_iter().flatten() {
                let preempted = |one: &&Value| one["type"] == "Preempted" && one["status"] == "True";
                let conditions = workload.pointer("/status/conditions").and_then(Value::as_array);
                if let Some(condition) = conditions.into_iter().flatten().find(preempted) {
                    wanted.insert(world::key_of(workload), condition["reason"].as_str().unwrap());
                }
            }
            if victims == wanted { Ok(()) } else { Err(format!("{victims:?}, wanted {wanted:?}")) }
        });
    }
}

#[test]
fn which_flavors_serve() {
    check("flavorassigner.TestAssignFlavors", |case| {
        let tc = &case["tc"];
        if tc["enableFairSharing"] == true {
            return Err("fair sharing".to_owned());
        }
        if !tc["simulationResult"].is_null() {
            return Err(SIMULATED.to_owned());
        }
        let mut world = World::new();
        let flavors: Vec<Value> = case["ctx_resourceFlavors"]
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
    });
}

#[test]
fn why_none_serves() {
    let file = "flavorassigner.TestIsNoFitDueToCapacityAndLimits";
    check(file, |case| {
        let tc = &case["tc"];
        if !tc["simulationResult"].is_null() || !tc["topologies"].is_null() || !tc["replaceWl"].is_null() {
            return Err(SIMULATED.to_owned());
        }
        let mut world = World::new();
        let flavors = if tc["resourceFlavors"].is_null() {
            &case["ctx_resourceFlavors"]
        } else {
            &tc["resourceFlavors"]
        };
        let flavors: Vec<Value> =
            flavors.as_object().into_iter().flatten().map(|(_, flavor)| flavor.clone()).collect();
        world.flavors(&flavors);
        let quota =
            |name: &str| json!({ "name": name, "resources": [{ "name": "cpu", "nominalQuota": "2" }] });
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
    });
}
