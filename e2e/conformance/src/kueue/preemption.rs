//! Whom a workload displaces.

use std::collections::BTreeMap;

use quota_engine::{Decision, EvictReason};
use serde_json::{Value, json};

use super::world::{self, World};
use crate::case::{Case, Runner, Verdict};

pub(super) const TESTS: &[(&str, Runner)] =
    &[("preemption.TestPreemption", displaces), ("preemption.TestHierarchicalPreemptions", displaces)];

fn displaces(case: &Case) -> Verdict {
    let tc = case.tc();
    let mut world = World::new();
    world.flavors(case.shared("flavors").as_array().unwrap());
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
}
