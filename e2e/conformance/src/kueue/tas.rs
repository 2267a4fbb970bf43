//! Scheduling cycles in which places on nodes are chosen, too.

use std::path::Path;

use admission_controller::config::Configuration;
use quota_engine::Outcome;
use serde_json::{Value, json};

use super::cycle::Cycle;
use super::world::World;
use crate::case::{Case, Runner, Verdict};

pub(super) const TESTS: &[(&str, Runner)] = &[
    ("scheduler.TestScheduleForTAS", alone),
    ("scheduler.TestScheduleForTASCohorts", in_cohorts),
    ("scheduler.TestScheduleForTASPreemption", in_cohorts),
    ("scheduler.TestScheduleForTASWhenWorkloadModifiedConcurrently", modified_concurrently),
];

/// One cycle: the events in their order, and the admissions that came of it.
fn alone(case: &Case) -> Verdict {
    let tc = case.tc();
    let mut cycle = cycle(tc, case.shared("queues"), case.shared("now"));
    cycle.run();
    cycle.judge_new_assignments(tc)?;
    cycle.judge_waiting(tc)?;
    cycle.judge_events_strictly(tc)
}

/// One cycle: the events in any order, and every Workload as it is afterwards.
fn in_cohorts(case: &Case) -> Verdict {
    let (tc, config) = (case.tc(), case.shared("cfg"));
    let mut cycle = cycle(tc, &config["queues"], &config["now"]);
    cycle.run();
    cycle.judge_new_assignments(tc)?;
    cycle.judge_waiting(tc)?;
    cycle.judge_workloads(tc)?;
    cycle.judge_events_unordered(tc)
}

/// Somebody else changes the Workload between the decision to evict it and its write.
fn modified_concurrently(case: &Case) -> Verdict {
    let tc = case.tc();
    let level = |label: &str| json!({ "nodeLabel": label });
    let levels = ["cloud.com/topology-block", "cloud.provider.com/rack", "kubernetes.io/hostname"].map(level);
    let world = json!({
        "resourceFlavors": [{ "metadata": { "name": "rf" }, "spec": {
            "nodeLabels": { "tas-node": "true" }, "topologyName": "topology",
        }}],
        "topologies": [{ "metadata": { "name": "topology" }, "spec": { "levels": levels } }],
        "clusterQueues": [{ "metadata": { "name": "cq" }, "spec": {
            "namespaceSelector": {},
            "resourceGroups": [{ "coveredResources": ["cpu"], "flavors": [
                { "name": "rf", "resources": [{ "name": "cpu", "nominalQuota": "1" }] },
            ]}],
        }}],
        "workloads": [tc["workload"]],
    });
    let queues =
        json!([{ "metadata": { "name": "lq", "namespace": "default" }, "spec": { "clusterQueue": "cq" } }]);
    let mut cycle = cycle(&world, &queues, case.shared("now"));
    cycle.modified_before_write = true;
    cycle.run();
    cycle.seen_again();
    cycle.run();
    cycle.judge_workloads(tc)?;
    cycle.judge_events_strictly(tc)
}

fn cycle(tc: &Value, queues: &Value, now: &Value) -> Cycle {
    let mut world = World::under(&configuration(tc));
    world.flavors(tc["resourceFlavors"].as_array().map_or(&[], Vec::as_slice));
    world.topologies(&tc["topologies"]);
    world.nodes(&tc["nodes"], &tc["pods"]);
    world.queues(&json!({
        "clusterQueues": tc["clusterQueues"],
        "cohorts": tc["cohorts"],
        "queues": queues,
    }));
    let mut cycle = Cycle::new(world, now.as_str().unwrap_or_default());
    // Whether an object that is not found was written nobody knows; the watch will tell.
    cycle.writes_fail =
        tc["patchStatusErr"]["$error"].as_str().map(|error| match error.ends_with("not found") {
            true => Outcome::Unsettled,
            false => Outcome::NotWritten,
        });
    cycle.workloads(&tc["workloads"]);
    cycle
}

/// The gates of a case, and what resources count as.
fn configuration(tc: &Value) -> Configuration {
    let mut file = json!({ "apiVersion": "config.kueue.x-k8s.io/v1beta2" });
    if !tc["featureGates"].is_null() {
        file["featureGates"] = tc["featureGates"].clone();
    }
    if !tc["resourceTransformations"].is_null() {
        file["resources"] = json!({ "transformations": tc["resourceTransformations"] });
    }
    Configuration::parse(Path::new("case"), &file.to_string()).unwrap_or_else(|error| panic!("{error}"))
}
