//! Who is admitted, and what a queue may take.

use std::collections::{BTreeMap, BTreeSet};

use quota_engine::{Decision, EvictReason};
use serde_json::{Value, json};

use super::world::{self, World};
use crate::case::{Case, Runner, Verdict};

pub(super) const TESTS: &[(&str, Runner)] =
    &[("scheduler.TestAvailable", available), ("scheduler.TestSchedule", schedule)];

fn available(case: &Case) -> Verdict {
    let tc = case.tc();
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
                    return Err(format!("{wanted}: {queue} takes more than {amount} {resource} of {flavor}"));
                }
            }
        }
    }
    Ok(())
}

fn schedule(case: &Case) -> Verdict {
    let (tc, config) = (case.tc(), case.shared("cfg"));
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
