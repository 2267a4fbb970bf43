//! The webhooks' rules: the peers' cases, and ours where they have none.

#![expect(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::{fs, path::Path};

use crds::{
    api::kueue::v1beta2::{ClusterQueue, Cohort, ResourceFlavor, Workload},
    validation::{self, FieldError, Gates},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The case's object, with what a schema would have demanded or filled in and Go left out as zero.
fn decode<T: DeserializeOwned>(object: &Value) -> T {
    let mut object = object.clone();
    fill_in(&mut object);
    serde_json::from_value(object).unwrap()
}

fn fill_in(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(fill_in),
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            for (key, child) in map.iter_mut() {
                let defaults = match key.as_str() {
                    "conditions" => json!({ "reason": "", "message": "" }),
                    "admissionChecks" => json!({ "name": "", "state": "Pending", "message": "" }),
                    "resourceGroups" => json!({ "coveredResources": [], "flavors": [] }),
                    "flavors" => json!({ "resources": [] }),
                    "reclaimablePods" => json!({ "count": 0 }),
                    _ => json!({}),
                };
                for item in child.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
                    for (key, value) in defaults.as_object().unwrap() {
                        item.entry(key).or_insert(value.clone());
                    }
                    if defaults.get("message").is_some() {
                        item.insert("lastTransitionTime".into(), json!("2026-01-01T00:00:00Z"));
                    }
                }
                if key != "template" {
                    fill_in(child);
                }
            }
        }
        _ => {}
    }
}

fn gates(tc: &Value) -> Gates {
    let mut gates = Gates::default();
    for (name, on) in tc["featureGates"].as_object().into_iter().flatten() {
        let gate = match name.as_str() {
            "AdmissionGatedBy" => &mut gates.admission_gated_by,
            "ConcurrentAdmission" => &mut gates.concurrent_admission,
            "ElasticJobsViaWorkloadSlices" => &mut gates.elastic_jobs,
            "PriorityBoost" => &mut gates.priority_boost,
            "RejectUpdatesToCQWithInvalidOnFlavors" => &mut gates.reject_invalid_on_flavors,
            "WorkloadValidateResourcesAreNonNegative" => &mut gates.non_negative_resources,
            "WorkloadValidationForPodSetMetadata" => &mut gates.pod_set_metadata,
            "TASValidateWorkloadSliceSize" => &mut gates.slice_size,
            "TopologyAwareScheduling" => continue,
            other => panic!("gate {other} is not known to crds::validation"),
        };
        *gate = on.as_bool().unwrap();
    }
    gates
}

/// `path: Kind` of each wanted error, in order.
fn wanted(tc: &Value) -> Vec<String> {
    let errors = match &tc["wantErr"] {
        Value::Null => Vec::new(),
        Value::Array(errors) => errors.iter().map(|e| e["$error"].as_str().unwrap().to_owned()).collect(),
        error => {
            let text = error["$error"].as_str().unwrap();
            match text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
                // Values are printed as `null`, so that the separator appears nowhere else.
                Some(list) => list.split(", ").map(str::to_owned).collect(),
                None => vec![text.to_owned()],
            }
        }
    };
    let mut short: Vec<String> =
        errors.iter().map(|text| text.splitn(3, ": ").take(2).collect::<Vec<_>>().join(": ")).collect();
    short.sort();
    short
}

fn found(errors: &[FieldError]) -> Vec<String> {
    let mut short: Vec<String> =
        errors.iter().map(|error| format!("{}: {}", error.field, error.kind.as_str())).collect();
    short.sort();
    short
}

fn run(test: &str, tc: &Value) -> Option<Vec<FieldError>> {
    let gates = gates(tc);
    Some(match test {
        "TestValidateClusterQueue" => validation::cluster_queue(
            &decode(&tc["clusterQueue"]),
            Gates { concurrent_admission: true, ..gates },
        ),
        "TestValidateClusterQueueUpdate" => {
            let queue = |key: &str| decode::<ClusterQueue>(&tc[key]);
            validation::cluster_queue_update(&queue("oldClusterQueue"), &queue("newClusterQueue"), gates)
        }
        "TestValidateCohort" => validation::cohort(&decode::<Cohort>(&tc["cohort"])),
        "TestValidateResourceFlavor" => validation::resource_flavor(&decode::<ResourceFlavor>(&tc["rf"])),
        "TestValidateWorkload" => validation::workload(&decode(&tc["workload"]), gates),
        "TestValidateWorkloadUpdate" => {
            let workload = |key: &str| decode::<Workload>(&tc[key]);
            validation::workload_update(&workload("before"), &workload("after"), gates)
        }
        _ => return None,
    })
}

#[test]
fn the_peers_cases() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/conformance/kueue");
    if !folder.is_dir() {
        eprintln!("SKIPPED the_peers_cases: {} is not there", folder.display());
        return;
    }
    let (mut count, mut failures) = (0, Vec::new());
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        if !entry.file_name().to_str().unwrap().starts_with("webhooks.") {
            continue;
        }
        for line in fs::read_to_string(entry.path()).unwrap().lines() {
            let case: Value = serde_json::from_str(line).unwrap();
            let test = case["test"].as_str().unwrap();
            let Some(errors) = run(test, &case["tc"]) else { continue };
            count += 1;
            if found(&errors) != wanted(&case["tc"]) {
                let wanted = wanted(&case["tc"]);
                failures.push(format!("{test} / {}\n  wanted {wanted:?}\n  found  {errors:?}", case["case"]));
            }
        }
    }
    assert_eq!(count, 96, "cases in the folder");
    assert!(failures.is_empty(), "{} of {count} failed:\n{}", failures.len(), failures.join("\n"));
}

fn queue(groups: usize, flavors: usize, resources: usize) -> ClusterQueue {
    let group = |group: usize| {
        let names: Vec<String> = (0..resources).map(|r| format!("r{group}-{r}")).collect();
        let quotas: Vec<Value> =
            names.iter().map(|name| json!({ "name": name, "nominalQuota": 1 })).collect();
        let flavors: Vec<Value> =
            (0..flavors).map(|f| json!({ "name": format!("f{group}-{f}"), "resources": quotas })).collect();
        json!({ "coveredResources": names, "flavors": flavors })
    };
    let groups: Vec<Value> = (0..groups).map(group).collect();
    serde_json::from_value(json!({ "spec": { "resourceGroups": groups } })).unwrap()
}

#[test]
fn totals_are_bounded() {
    for ((groups, flavors, resources), wanted) in [
        ((1, 8, 64), vec![]),
        ((1, 9, 64), vec!["spec.resourceGroups[0]: Too many"]),
        ((16, 16, 16), vec![]),
        ((4, 1, 65), vec!["spec.resourceGroups: Too many"]),
        ((5, 60, 1), vec!["spec.resourceGroups: Too many"]),
    ] {
        let errors = validation::cluster_queue(&queue(groups, flavors, resources), Gates::default());
        assert_eq!(found(&errors), wanted, "{groups} groups of {flavors} flavors and {resources} resources");
    }
}

/// Rules without a case of the peers: path and kind of what is wrong with a ClusterQueue's spec.
#[test]
fn cluster_queues() {
    let quota = |quota: Value| json!({ "resourceGroups": [{ "coveredResources": ["cpu"], "flavors": [{ "name": "f", "resources": [quota] }] }] });
    let path = "spec.resourceGroups[0].flavors[0].resources[0]";
    for (spec, wanted) in [
        (quota(json!({ "name": "memory", "nominalQuota": "1" })), format!("{path}.name: Invalid value")),
        (
            quota(json!({ "name": "cpu", "nominalQuota": "9e18" })),
            format!("{path}.nominalQuota: Invalid value"),
        ),
        (
            quota(json!({ "name": "cpu", "nominalQuota": "1x" })),
            format!("{path}.nominalQuota: Invalid value"),
        ),
        (
            quota(json!({ "name": "cpu", "nominalQuota": "1", "lendingLimit": "1" })),
            format!("{path}.lendingLimit: Invalid value"),
        ),
        (
            json!({ "preemption": { "borrowWithinCohort": { "policy": "LowerPriority" } } }),
            "spec.preemption: Invalid value".into(),
        ),
        (json!({ "fairSharing": { "weight": "-1" } }), "spec.fairSharing.weight: Invalid value".into()),
        (json!({ "fairSharing": { "weight": "1n" } }), "spec.fairSharing.weight: Invalid value".into()),
        (
            json!({ "namespaceSelector": { "matchExpressions": [{ "key": "a", "operator": "Is" }] } }),
            "spec.namespaceSelector.matchExpressions[0].operator: Invalid value".into(),
        ),
    ] {
        let queue = serde_json::from_value(json!({ "spec": spec })).unwrap();
        assert_eq!(found(&validation::cluster_queue(&queue, Gates::default())), [wanted], "{spec}");
    }
}

#[test]
fn resource_flavors() {
    let flavor: ResourceFlavor = serde_json::from_value(json!({ "spec": {
        "nodeLabels": { "a": "@" },
        "nodeTaints": [
            { "key": "a", "effect": "NoSchedule" }, { "key": "a", "effect": "NoExecute" },
            { "key": "a", "effect": "NoSchedule", "value": "x" }, { "key": "b", "effect": "Never" },
        ],
        "tolerations": [{ "operator": "Equal" }, { "key": "a", "operator": "Gt" }, { "key": "a", "tolerationSeconds": 1 }],
    }}))
    .unwrap();
    assert_eq!(
        found(&validation::resource_flavor(&flavor)),
        [
            "spec.nodeLabels: Invalid value",
            "spec.nodeTaints[2]: Duplicate value",
            "spec.nodeTaints[3].effect: Unsupported value",
            "spec.tolerations[0].operator: Invalid value",
            "spec.tolerations[1].operator: Unsupported value",
            "spec.tolerations[2].effect: Invalid value",
        ]
    );
    let flavor = serde_json::from_value(json!({ "spec": { "topologyName": "t" } })).unwrap();
    assert_eq!(found(&validation::resource_flavor(&flavor)), ["spec.nodeLabels: Required value"]);
}

#[test]
fn a_reserved_workload_stays_in_its_queue() {
    let workload = |queue: &str, reserved: &str| -> Workload {
        let condition = json!({
            "type": "QuotaReserved", "status": reserved, "reason": "r", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let status = json!({ "conditions": [condition], "admission": { "clusterQueue": "c" } });
        serde_json::from_value(json!({ "spec": { "queueName": queue }, "status": status })).unwrap()
    };
    let update = |reserved| {
        found(&validation::workload_update(
            &workload("a", reserved),
            &workload("b", reserved),
            Gates::default(),
        ))
    };
    assert_eq!(update("True"), ["spec.queueName: Invalid value"]);
    assert_eq!(update("False"), [""; 0]);
}

#[test]
fn a_grant_is_compared_by_amount() {
    let workload = |memory: &str| -> Workload {
        let assignment = json!({ "name": "main", "resourceUsage": { "memory": memory } });
        let admission = json!({ "clusterQueue": "c", "podSetAssignments": [assignment] });
        serde_json::from_value(json!({ "spec": { "podSets": [{}] }, "status": { "admission": admission } }))
            .unwrap()
    };
    let update = |to| found(&validation::workload_update(&workload("1Ki"), &workload(to), Gates::default()));
    assert_eq!(update("1024"), [""; 0]);
    assert_eq!(update("1025"), ["status.admission: Invalid value"]);
}
