//! Scheduling scenarios of KAI, as data: those within what this layer does.
//!
//! Left out are scenarios about fractions of a GPU, MIG, topologies, pod affinity, subgroups, claims, eviction, and those
//! whose outcome is decided by the quota of queues. A pod that KAI nominates for room that is still being released waits
//! here.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::collections::BTreeMap;
use std::path::Path;

use common::*;
use placement_engine::*;
use serde_json::Value;

/// As many as there are; fewer mean that the selection below has become too strict.
const IN_SCOPE: usize = 18;

fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field].as_array().map_or(&[], Vec::as_slice)
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

fn pods(scenario: &Value) -> impl Iterator<Item = &Value> {
    list(scenario, "workloads").iter().flat_map(|workload| list(workload, "pods"))
}

fn in_scope(scenario: &Value) -> bool {
    let foreign =
        ["gpu-fraction", "gpu-memory", "mig", "dra", "topology", "subgroups", "pod-affinity", "custom-conf"];
    let tagged = |tag: &str| list(scenario, "tags").iter().any(|one| one == tag);
    let queues: std::collections::BTreeSet<&str> =
        list(scenario, "workloads").iter().map(|workload| text(workload, "queue")).collect();
    let asked: f64 = pods(scenario).filter_map(|pod| pod["gpus"].as_f64()).sum();
    // KAI keeps what cannot be preempted within its queue's quota.
    let within_quota = list(scenario, "workloads").iter().all(|workload| {
        let queue = list(scenario, "queues").iter().find(|queue| queue["name"] == workload["queue"]).unwrap();
        let quota = queue["gpu"]["quota"].as_f64().unwrap();
        workload["preemptible"] == true || quota < 0.0 || asked <= quota || {
            let fixed = list(scenario, "workloads").iter().filter(|one| one["preemptible"] == false);
            fixed.flat_map(|one| list(one, "pods")).filter_map(|pod| pod["gpus"].as_f64()).sum::<f64>()
                <= quota
        }
    });
    scenario["mode"] == "action:allocate"
        && !foreign.iter().any(|tag| tagged(tag))
        && queues.len() < 2
        && list(scenario, "nodes").iter().all(|node| node["migStrategy"].is_null())
        && within_quota
}

fn world(scenario: &Value) -> Engine {
    let number = |value: &Value| value.as_f64().map_or(0, |number| number as i64);
    let nodes = list(scenario, "nodes").iter().map(|node| NodeInfo {
        name: text(node, "name").into(),
        ready: true,
        labels: serde_json::from_value(node["labels"].clone()).unwrap(),
        allocatable: amounts(&[
            ("cpu", number(&node["cpuCores"]) * 1_000),
            ("memory", number(&node["memoryBytes"])),
            (GPU, number(&node["gpus"])),
            ("pods", node["maxPods"].as_i64().unwrap_or(110)),
        ]),
        ..NodeInfo::default()
    });
    let mut engine = engine(nodes);
    for workload in list(scenario, "workloads") {
        let id = text(workload, "name");
        let minimum = workload["gang"]["podSets"][0]["min"].as_u64().unwrap_or(1);
        engine.apply(
            0,
            Event::GangApplied(GangSpec {
                priority: workload["priority"].as_i64().map(|priority| priority.try_into().unwrap()),
                created_ms: -number(&workload["ageMinutes"]),
                ..gang(id, minimum.try_into().unwrap())
            }),
        );
        for one in list(workload, "pods") {
            let state = text(one, "state");
            let info = PodInfo {
                priority: one["taskPriority"].as_i64().unwrap_or(0).try_into().unwrap(),
                node: one["node"].as_str().map(Into::into),
                deleting: state.contains("evicting"),
                requests: amounts(&[
                    ("cpu", number(&one["cpuCores"]) * 1_000),
                    ("memory", number(&one["memoryBytes"])),
                    (GPU, number(&one["gpus"])),
                ]),
                phase: match state {
                    "succeeded" => PodPhase::Succeeded,
                    "failed" => PodPhase::Failed,
                    _ => PodPhase::Active,
                },
                ..pod(text(one, "name"), id, number(&one["gpus"]))
            };
            engine.apply(0, Event::PodApplied(Box::new(info)));
        }
    }
    engine
}

/// What is wrong with the outcome, by pod.
fn differences(scenario: &Value) -> Vec<String> {
    let mut engine = world(scenario);
    let mut bound: BTreeMap<String, String> = BTreeMap::new();
    // Two rounds, as the program settles; a third would find nothing.
    for _ in 0..2 {
        bound.extend(placed(&engine.decide(0)));
    }
    let expect = &scenario["expect"];
    let mut wrong = Vec::new();
    for workload in list(scenario, "workloads") {
        for one in list(workload, "pods") {
            let name = text(one, "name");
            let wanted = match &expect["pods"][name] {
                Value::Null => &expect["workloads"][text(workload, "name")],
                wanted => wanted,
            };
            let wants_bound = match text(wanted, "state") {
                "bound" => true,
                "pending" | "nominated" => false,
                _ => continue,
            };
            let node = bound.get(name).map(String::as_str);
            // Another node with the same outcome is as good, where the scenario leaves a choice.
            let only = list(scenario, "nodes").len() == 1 || scenario["id"] == "kai/allocate/allocate:1188";
            let same_node = !only || node == wanted["node"].as_str();
            if node.is_some() != wants_bound || wants_bound && !same_node {
                wrong.push(format!("{name}: {node:?}, expected {wanted}"));
            }
        }
    }
    if bound.len() as u64 > expect["maxBinds"].as_u64().unwrap_or(u64::MAX) {
        wrong.push(format!("{} binds, at most {} expected", bound.len(), expect["maxBinds"]));
    }
    wrong
}

#[test]
fn scenarios() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/conformance/kai/scenarios.json");
    let Ok(text) = std::fs::read_to_string(&path) else {
        eprintln!("SKIPPED scenarios: {} is not there", path.display());
        return;
    };
    let all: Vec<Value> = serde_json::from_str(&text).unwrap();
    let chosen: Vec<&Value> = all.iter().filter(|scenario| in_scope(scenario)).collect();
    let wrong: Vec<String> = chosen
        .iter()
        .flat_map(|scenario| {
            let id = format!("{} ({})", scenario["id"], scenario["name"]);
            differences(scenario).into_iter().map(move |what| format!("{id}: {what}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(chosen.len() >= IN_SCOPE, "only {} scenarios were run", chosen.len());
    eprintln!("{} of {} scenarios are within scope and pass", chosen.len(), all.len());
}
