//! Scheduling cycles in which places on nodes are chosen, too.

use admission_controller::config::Configuration;
use jiff::{SignedDuration, Timestamp};
use quota_engine::Outcome;
use serde_json::{Value, json};

use super::cycle::{self, Cycle};
use super::world::World;
use crate::case::{Case, Runner, Verdict};

pub(super) const TESTS: &[(&str, Runner)] = &[
    ("scheduler.TestScheduleForPreserveFlavorScanProgress", goes_on_searching),
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

/// Four cycles. One is in the way of another, which finds its place on the second flavor, whose quota changes all the time.
fn goes_on_searching(case: &Case) -> Verdict {
    let tc = case.tc();
    let queue = |cpu_of_second: u32| {
        let flavor = |name: &str, cpu: u32| json!({ "name": name, "resources": [{ "name": "cpu", "nominalQuota": cpu.to_string() }] });
        json!({ "clusterQueues": [{ "metadata": { "name": "tas-cq" }, "spec": {
            "namespaceSelector": {},
            "preemption": { "withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any" },
            "resourceGroups": [{ "coveredResources": ["cpu"], "flavors": [
                flavor("tas-flavor-1", 4), flavor("tas-flavor-2", cpu_of_second),
            ]}],
        }}] })
    };
    let workload = |name: &str, created: &str, selector: Value| {
        json!({ "metadata": { "name": name, "namespace": "default", "creationTimestamp": created }, "spec": {
            "queueName": "tas-lq", "priority": 10, "podSets": [{
                "name": "main", "count": 1,
                "topologyRequest": { "required": "kubernetes.io/hostname" },
                "template": { "spec": {
                    "nodeSelector": selector,
                    "containers": [{ "name": "c", "resources": { "requests": { "cpu": "2" } } }],
                }},
            }],
        }})
    };
    let now: Timestamp = case.shared("now").as_str().unwrap().parse().unwrap();
    let earlier = now - SignedDuration::from_mins(1);
    let fixture = json!({
        "featureGates": { "FlavorFungibilityPreserveScanProgress": tc["gateEnabled"] == true },
        "fairSharing": {},
        "resourceFlavors": case.shared("resourceFlavors"),
        "nodes": case.shared("nodes"),
        "topologies": [{ "metadata": { "name": "tas-single-level" }, "spec": {
            "levels": [{ "nodeLabel": "kubernetes.io/hostname" }],
        }}],
        "clusterQueues": queue(4)["clusterQueues"],
        "workloads": [
            workload("blocker", &earlier.to_string(), json!({ "tas-flavor": "f1" })),
            workload("pending", &now.to_string(), Value::Null),
        ],
    });
    let mut cycle = cycle(&fixture, case.shared("queues"), case.shared("now"));
    for cpu_of_second in [5, 4, 5, 4] {
        cycle.run();
        if tc["noChurn"] != true {
            cycle.world.queues(&queue(cpu_of_second));
        }
        cycle.world.pod_passes("node-f1");
    }
    let flavor = |name: &str| cycle.flavor_of(&format!("default/{name}"), "cpu");
    let wanted = tc["wantPendingFlavor"].as_str().filter(|flavor| !flavor.is_empty());
    match (flavor("blocker").as_deref(), flavor("pending").as_deref()) {
        (Some("tas-flavor-1"), found) if found == wanted => Ok(()),
        found => Err(format!("blocker and pending are on {found:?}, wanted tas-flavor-1 and {wanted:?}")),
    }
}

fn cycle(tc: &Value, queues: &Value, now: &Value) -> Cycle {
    let mut world = World::under(&configuration(tc));
    world.flavors(tc["resourceFlavors"].as_array().map_or(&[], Vec::as_slice));
    world.topologies(&tc["topologies"]);
    world.nodes(&tc["nodes"], &tc["pods"]);
    world.checks(&tc["admissionChecks"]);
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
    if !tc["fairSharing"].is_null() {
        file["fairSharing"] = tc["fairSharing"].clone();
    }
    if !tc["resourceTransformations"].is_null() {
        file["resources"] = json!({ "transformations": tc["resourceTransformations"] });
    }
    cycle::file(tc, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-01-01T00:00:00Z";

    fn workload(status: &Value) -> Value {
        let container = json!({ "name": "c", "resources": { "requests": { "cpu": "1" } } });
        let set =
            json!({ "name": "main", "count": 1, "template": { "spec": { "containers": [container] } } });
        json!({
            "metadata": { "name": "w", "namespace": "default", "creationTimestamp": NOW },
            "spec": { "queueName": "lq", "podSets": [set] },
            "status": status,
        })
    }

    /// One Workload in a queue that asks for a check, with these states of checks: the conditions and events that come of it.
    fn judged(states: &Value, conditions: &[Value], events: &[&str]) -> Verdict {
        let quota = json!({ "name": "f", "resources": [{ "name": "cpu", "nominalQuota": "4" }] });
        let queue = json!({ "metadata": { "name": "cq" }, "spec": {
            "namespaceSelector": {},
            "resourceGroups": [{ "coveredResources": ["cpu"], "flavors": [quota] }],
            "admissionChecksStrategy": { "admissionChecks": [{ "name": "check" }] },
        }});
        let check = json!({
            "metadata": { "name": "check" },
            "spec": { "controllerName": "example.com/controller" },
            "status": { "conditions": [{ "type": "Active", "status": "True" }] },
        });
        let admission = json!({ "clusterQueue": "cq", "podSetAssignments": [
            { "name": "main", "count": 1, "flavors": { "cpu": "f" }, "resourceUsage": { "cpu": "1" } },
        ]});
        let after = json!({ "admission": admission, "admissionChecks": states, "conditions": conditions });
        let key = json!({ "Namespace": "default", "Name": "w" });
        let event = |reason: &&str| json!({ "Key": key, "EventType": "Normal", "Reason": reason });
        let events: Vec<Value> = events.iter().map(event).collect();
        let tc = json!({
            "resourceFlavors": [{ "metadata": { "name": "f" } }],
            "admissionChecks": [check],
            "clusterQueues": [queue],
            "workloads": [workload(&json!({ "admissionChecks": states }))],
            "wantNewAssignments": { "default/w": admission },
            "wantWorkloads": [workload(&after)],
            "wantEvents": events,
        });
        let queue =
            json!({ "metadata": { "name": "lq", "namespace": "default" }, "spec": { "clusterQueue": "cq" } });
        let line = json!({ "tc": tc, "ctx_cfg": { "queues": [queue], "now": NOW } });
        in_cohorts(&Case { file: String::new(), name: String::new(), line })
    }

    #[test]
    fn who_lacks_the_state_of_a_check_is_told_of_quota_only() {
        let state = |state: &str| json!([{ "name": "check", "state": state, "message": "", "lastTransitionTime": NOW }]);
        let condition = |kind: &str, status: &str, reason: &str| json!({ "type": kind, "status": status, "reason": reason, "lastTransitionTime": NOW });
        let reserved = condition("QuotaReserved", "True", "QuotaReserved");
        let waits = condition("Admitted", "False", "UnsatisfiedAdmissionChecks");
        let admitted = condition("Admitted", "True", "Admitted");
        let alone = [reserved.clone()];
        assert_eq!(judged(&Value::Null, &alone, &["QuotaReserved"]), Ok(()));
        let first = [reserved.clone(), waits];
        assert_eq!(judged(&state("Pending"), &first, &["QuotaReserved"]), Ok(()));
        let both = [reserved, admitted];
        assert_eq!(judged(&state("Ready"), &both, &["QuotaReserved", "Admitted"]), Ok(()));
    }
}
