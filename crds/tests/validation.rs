//! The webhooks' rules. The peers' cases are in `e2e/conformance`.

#![expect(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use crds::{
    api::kueue::v1beta2::{ClusterQueue, Cohort, CohortSpec, ResourceFlavor, Workload},
    validation::{self, FieldError, Gates, rules},
};
use serde_json::{Value, json};

fn found(errors: &[FieldError]) -> Vec<String> {
    let mut short: Vec<String> =
        errors.iter().map(|error| format!("{}: {}", error.field, error.kind.as_str())).collect();
    short.sort();
    short
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
        ((1, 9, 64), vec!["spec.resourceGroups[0]: Invalid value"]),
        ((16, 16, 16), vec![]),
        ((4, 1, 65), vec!["spec.resourceGroups: Invalid value"]),
        ((5, 60, 1), vec!["spec.resourceGroups: Invalid value"]),
    ] {
        let errors = validation::cluster_queue(&queue(groups, flavors, resources), Gates::default());
        assert_eq!(found(&errors), wanted, "{groups} groups of {flavors} flavors and {resources} resources");
    }
    // A cohort has no members' workloads to look through.
    let cohort = Cohort {
        spec: CohortSpec { resource_groups: queue(5, 60, 1).spec.resource_groups, ..CohortSpec::default() },
        ..Cohort::default()
    };
    assert_eq!(found(&validation::cohort(&cohort)), [""; 0]);
}

fn quotas(quotas: Value) -> Value {
    json!({ "resourceGroups": [{ "coveredResources": ["cpu"], "flavors": [{ "name": "f", "resources": quotas }] }] })
}

fn gates(open: &str) -> Gates {
    let mut gates = Gates::default();
    assert!(gates.set(open, true));
    gates
}

/// Path and kind of what is wrong with a ClusterQueue's spec.
#[test]
fn cluster_queues() {
    let quota = |quota: Value| quotas(json!([quota]));
    let path = "spec.resourceGroups[0].flavors[0].resources[0]";
    let at = |field: &str| vec![format!("{path}.{field}: Invalid value")];
    let only = |field: &str, kind: &str| vec![format!("spec.{field}: {kind}")];
    for (spec, wanted) in [
        (quota(json!({ "name": "memory", "nominalQuota": "1" })), at("name")),
        // More than can be counted is as much as can be counted.
        (quota(json!({ "name": "cpu", "nominalQuota": "9e18" })), vec![]),
        (quota(json!({ "name": "cpu", "nominalQuota": "1x" })), at("nominalQuota")),
        (quota(json!({ "name": "cpu", "nominalQuota": "1", "lendingLimit": "1" })), at("lendingLimit")),
        (
            quota(json!({ "name": "cpu", "nominalQuota": "1", "borrowingLimit": "-1" })),
            [at("borrowingLimit"), at("borrowingLimit")].concat(),
        ),
        // The schema says that there are no more quotas than resources.
        (
            quotas(json!([{ "name": "cpu", "nominalQuota": "1" }, { "name": "x", "nominalQuota": "-1" }])),
            vec![],
        ),
        (
            json!({ "preemption": { "reclaimWithinCohort": "Never", "borrowWithinCohort": { "policy": "LowerPriority" } } }),
            only("preemption", "Invalid value"),
        ),
        (
            json!({ "preemption": { "reclaimWithinCohort": "Never", "borrowWithinCohort": {} } }),
            only("preemption", "Invalid value"),
        ),
        (json!({ "preemption": { "borrowWithinCohort": { "policy": "LowerPriority" } } }), vec![]),
        (json!({ "fairSharing": { "weight": "-1" } }), only("fairSharing", "Invalid value")),
        (json!({ "fairSharing": { "weight": "1n" } }), only("fairSharing", "Invalid value")),
        (json!({ "fairSharing": { "weight": "2n" } }), vec![]),
        (
            json!({ "namespaceSelector": { "matchExpressions": [{ "key": "a", "operator": "Is" }] } }),
            only("namespaceSelector.matchExpressions[0].operator", "Invalid value"),
        ),
    ] {
        let queue = serde_json::from_value(json!({ "spec": spec })).unwrap();
        assert_eq!(found(&validation::cluster_queue(&queue, Gates::default())), wanted, "{spec}");
    }
}

#[test]
fn limits_beyond_what_can_be_counted_are_compared_as_they_are_written() {
    let path = "spec.resourceGroups[0].flavors[0].resources[0]";
    let too_much = vec![format!("{path}.lendingLimit: Invalid value")];
    for (nominal, lending, wanted) in
        [("10E", "20E", too_much), ("20E", "10E", vec![]), ("10Ei", "20Ei", vec![])]
    {
        let spec = quotas(json!([{ "name": "cpu", "nominalQuota": nominal, "lendingLimit": lending }]));
        let mut queue: ClusterQueue = serde_json::from_value(json!({ "spec": spec })).unwrap();
        queue.spec.cohort_name = Some("pool".into());
        let errors = validation::cluster_queue(&queue, Gates::default());
        assert_eq!(found(&errors), wanted, "{nominal} {lending}");
    }
}

#[test]
fn a_negative_quota_lends_nothing() {
    let spec = quotas(json!([{ "name": "cpu", "nominalQuota": "-1", "lendingLimit": "0" }]));
    let mut queue: ClusterQueue = serde_json::from_value(json!({ "spec": spec })).unwrap();
    queue.spec.cohort_name = Some("pool".into());
    let path = "spec.resourceGroups[0].flavors[0].resources[0]";
    assert_eq!(
        found(&validation::cluster_queue(&queue, Gates::default())),
        [format!("{path}.lendingLimit: Invalid value"), format!("{path}.nominalQuota: Invalid value")]
    );
}

#[test]
fn concurrent_admission() {
    let queue = |migration: Value| -> ClusterQueue {
        let mut spec = quotas(json!([{ "name": "cpu", "nominalQuota": "1" }]));
        spec["concurrentAdmissionPolicy"] = json!({ "migration": migration });
        serde_json::from_value(json!({ "spec": spec })).unwrap()
    };
    let constraints = "spec.concurrentAdmissionPolicy.migration.constraints";
    for (migration, wanted) in [
        (
            json!({ "mode": "TryPreferredFlavors", "constraints": { "lastAcceptableFlavorName": "f" } }),
            vec![],
        ),
        (
            json!({ "mode": "TryPreferredFlavors", "constraints": { "lastAcceptableFlavorName": "g" } }),
            vec![format!("{constraints}.lastAcceptableFlavorName: Invalid value")],
        ),
        (
            json!({ "mode": "RetainFirstAdmission", "constraints": {} }),
            vec![format!("{constraints}: Forbidden")],
        ),
    ] {
        let queue = queue(migration);
        assert_eq!(found(&validation::cluster_queue(&queue, gates("ConcurrentAdmission"))), wanted);
        assert_eq!(
            found(&validation::cluster_queue(&queue, Gates::default())),
            [""; 0],
            "the gate is closed"
        );
        // That it does not change holds either way.
        let changed = validation::cluster_queue_update(&ClusterQueue::default(), &queue, Gates::default());
        assert_eq!(found(&changed), ["spec.concurrentAdmissionPolicy: Invalid value"]);
    }
    // A mode that is not said is the default, and saying so is a change.
    let unsaid = queue(json!({ "constraints": {} }));
    assert_eq!(found(&validation::cluster_queue(&unsaid, gates("ConcurrentAdmission"))), [""; 0]);
    let said = queue(json!({ "mode": "TryPreferredFlavors", "constraints": {} }));
    let changed = validation::cluster_queue_update(&unsaid, &said, Gates::default());
    assert_eq!(found(&changed), ["spec.concurrentAdmissionPolicy: Invalid value"]);
}

#[test]
fn flavors_of_checks_are_tolerated_in_any_order() {
    let queue = |on: [&str; 2]| -> ClusterQueue {
        let mut spec = quotas(json!([]));
        spec["admissionChecksStrategy"] = json!({ "admissionChecks": [{ "name": "c", "onFlavors": on }] });
        serde_json::from_value(json!({ "spec": spec })).unwrap()
    };
    let update = |to| {
        let old = queue(["ghost", "f"]);
        found(&validation::cluster_queue_update(&old, &queue(to), Gates::default()))
    };
    assert_eq!(update(["f", "ghost"]), [""; 0]);
    let field = "spec.admissionChecksStrategy.admissionChecks[0].onFlavors[1]";
    assert_eq!(update(["f", "ghoul"]), [format!("{field}: Unsupported value")]);
}

#[test]
fn resource_flavors() {
    let flavor: ResourceFlavor = serde_json::from_value(json!({ "spec": {
        "topologyName": "t",
        "nodeLabels": { "a": "@" },
        "nodeTaints": [
            { "key": "a", "effect": "NoSchedule" }, { "key": "a", "effect": "NoExecute" },
            { "key": "a", "effect": "NoSchedule", "value": "x" }, { "key": "b", "effect": "Never", "value": "@" },
        ],
        "tolerations": [{ "operator": "Equal" }, { "key": "@", "operator": "Gt" }, { "key": "a", "tolerationSeconds": 1 }],
    }}))
    .unwrap();
    assert_eq!(
        found(&validation::resource_flavor(&flavor)),
        [
            "spec.nodeLabels: Invalid value",
            "spec.nodeTaints[2]: Duplicate value",
            "spec.nodeTaints[3].value: Invalid value",
            "spec.tolerations[1].key: Invalid value",
        ]
    );
    assert_eq!(
        found(&rules::resource_flavor(None, &flavor)),
        [
            "spec.nodeTaints[3].effect: Unsupported value",
            "spec.tolerations[0].operator: Invalid value",
            "spec.tolerations[1].operator: Unsupported value",
            "spec.tolerations[2].effect: Invalid value",
        ]
    );
}

#[test]
fn an_empty_key_of_a_toleration_is_a_key() {
    let flavor = |toleration: Value| {
        let flavor = json!({ "spec": { "tolerations": [toleration] } });
        found(&rules::resource_flavor(None, &serde_json::from_value(flavor).unwrap()))
    };
    assert_eq!(flavor(json!({ "key": "", "operator": "Equal", "value": "x" })), [""; 0]);
    let at = |field: &str, kind: &str| vec![format!("spec.tolerations[0].{field}: {kind}")];
    assert_eq!(flavor(json!({ "operator": "Equal", "value": "x" })), at("operator", "Invalid value"));
    assert_eq!(flavor(json!({ "operator": "Exists", "value": "" })), at("operator", "Invalid value"));
    assert_eq!(flavor(json!({ "key": "a", "effect": "" })), at("effect", "Unsupported value"));
}

/// As an API server does: who can no longer be created can still be deleted.
#[test]
fn rules_judge_what_changes() {
    let wrong = json!({
        "topologyName": "t",
        "nodeTaints": [{ "key": "a", "effect": "Never" }],
        "tolerations": [{ "operator": "Equal" }],
    });
    let with = |field: &str, value: Value| {
        let mut spec = wrong.clone();
        spec[field] = value;
        spec
    };
    let flavor = |spec: &Value| -> ResourceFlavor {
        serde_json::from_value(json!({ "metadata": { "finalizers": ["f"] }, "spec": spec })).unwrap()
    };
    let old = flavor(&wrong);
    let mut without_finalizer = old.clone();
    without_finalizer.metadata.finalizers = None;
    assert_eq!(found(&rules::resource_flavor(Some(&old), &without_finalizer)), [""; 0]);
    let labels = "spec.nodeLabels: Required value".to_owned();
    for (field, value, wanted) in [
        (
            "nodeTaints",
            json!([{ "key": "b", "effect": "Never" }]),
            "spec.nodeTaints[0].effect: Unsupported value",
        ),
        (
            "tolerations",
            json!([{ "operator": "Equal", "value": "x" }]),
            "spec.tolerations[0].operator: Invalid value",
        ),
    ] {
        let new = flavor(&with(field, value));
        // The rule on labels is one of the spec as a whole, which changed with its field.
        assert_eq!(found(&rules::resource_flavor(Some(&old), &new)), [labels.clone(), wanted.to_owned()]);
    }

    let checked = |toleration: Value, message: &str| {
        let check = json!({
            "name": "c", "state": "Ready", "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z",
            "podSetUpdates": [{ "name": "main", "tolerations": [toleration] }],
        });
        workload(json!({}), json!({ "admissionChecks": [check] }), json!({}))
    };
    let old = checked(json!({ "operator": "Equal" }), "before");
    assert_eq!(
        found(&rules::workload(Some(&old), &checked(json!({ "operator": "Equal" }), "after"))),
        [""; 0]
    );
    let field = "status.admissionChecks[0].podSetUpdates[0].tolerations[0].operator";
    let wanted = [format!("{field}: Invalid value")];
    assert_eq!(found(&rules::workload(None, &old)), wanted);
    let changed = checked(json!({ "operator": "Equal", "value": "x" }), "before");
    assert_eq!(found(&rules::workload(Some(&old), &changed)), wanted);
}

fn workload(spec: Value, status: Value, annotations: Value) -> Workload {
    let metadata = json!({ "annotations": annotations });
    serde_json::from_value(json!({ "metadata": metadata, "spec": spec, "status": status })).unwrap()
}

fn reserved(reserved: &str) -> Value {
    json!({
        "type": "QuotaReserved", "status": reserved, "reason": "QuotaReserved", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    })
}

#[test]
fn conditions_are_as_kubernetes_wants_them() {
    let condition = |field: &str, value: Value| {
        let mut condition = reserved("False");
        condition[field] = value;
        let workload = workload(json!({}), json!({ "conditions": [condition] }), json!({}));
        found(&validation::workload(&workload, Gates::default()))
    };
    for (field, value, kind) in [
        ("type", json!("two words"), "Invalid value"),
        ("status", json!("Maybe"), "Unsupported value"),
        ("reason", json!(""), "Required value"),
        ("reason", json!("two words"), "Invalid value"),
        ("reason", json!("a".repeat(1025)), "Too long"),
        ("message", json!("a".repeat(32769)), "Too long"),
        ("observedGeneration", json!(-1), "Invalid value"),
        ("lastTransitionTime", json!("0001-01-01T00:00:00Z"), "Required value"),
    ] {
        assert_eq!(condition(field, value), [format!("status.conditions[0].{field}: {kind}")]);
    }
    let twice = json!({ "conditions": [reserved("False"), reserved("False")] });
    let twice = validation::workload(&workload(json!({}), twice, json!({})), Gates::default());
    assert_eq!(found(&twice), ["status.conditions[1].type: Duplicate value"]);
}

#[test]
fn slices_of_a_topology() {
    let request = |request: Value| {
        let spec = json!({ "podSets": [{ "topologyRequest": request }] });
        found(&validation::workload(&workload(spec, json!({}), json!({})), Gates::default()))
    };
    let path = "spec.podSets[0].topologyRequest";
    for (given, wanted) in [
        (json!({ "podSetSliceRequiredTopology": "rack", "podSetSliceSize": 2 }), vec![]),
        (
            json!({ "podSetSliceRequiredTopology": "rack" }),
            vec![format!("{path}.podSetSliceSize: Required value")],
        ),
        (
            json!({ "podSetSliceRequiredTopology": "rack", "podSetSliceSize": 0 }),
            vec![format!("{path}.podSetSliceSize: Invalid value")],
        ),
        (json!({ "podSetSliceSize": 0 }), vec![format!("{path}.podSetSliceSize: Forbidden")]),
        (
            json!({ "podsetSliceRequiredTopologyConstraints": [{ "topology": "a", "size": 1 }, { "topology": "b", "size": 0 }] }),
            vec![format!("{path}.podsetSliceRequiredTopologyConstraints[1].size: Invalid value")],
        ),
    ] {
        assert_eq!(request(given.clone()), wanted, "{given}");
    }
}

#[test]
fn annotations_of_a_template() {
    let annotations = |annotations: Value| {
        let template = json!({ "metadata": { "annotations": annotations } });
        let spec = json!({ "podSets": [{ "template": template }] });
        found(&validation::workload(&workload(spec, json!({}), json!({})), Gates::default()))
    };
    let path = "spec.podSets[0].template.metadata.annotations";
    assert_eq!(annotations(json!({ "Example.com/Key": "any text @" })), [""; 0]);
    assert_eq!(annotations(json!({ "a/b/c": "" })), [format!("{path}: Invalid value")]);
    assert_eq!(annotations(json!({ "a": "x".repeat(256 << 10) })), [format!("{path}: Too long")]);
}

#[test]
fn gates_by_annotation() {
    const KEY: &str = "kueue.x-k8s.io/admission-gated-by";
    let with = |list: &str| workload(json!({}), json!({}), json!({ KEY: list }));
    let kinds = |list: &str| {
        let errors = validation::workload(&with(list), Gates::default());
        errors.iter().map(|error| error.kind.as_str()).collect::<Vec<_>>()
    };
    let long = format!("example.com/{}", "a".repeat(63));
    for (list, wanted) in [
        ("", vec![]),
        ("  ", vec![]),
        ("a.b/c , d.e/f", vec![]),
        ("a.b/c,", vec!["Invalid value"]),
        ("a.b/c,a.b/c", vec!["Invalid value"]),
        (long.as_str(), vec!["Too long"]),
    ] {
        assert_eq!(kinds(list), wanted, "{list:?}");
    }
    let update = |from: &str, to: &str| {
        let errors = validation::workload_update(&with(from), &with(to), Gates::default());
        errors.iter().map(|error| error.kind.as_str()).collect::<Vec<_>>()
    };
    for (from, to, wanted) in [
        ("a.b/c,d.e/f", "d.e/f", vec![]),
        ("a.b/c", "", vec![]),
        ("a.b/c", "a.b/c,d.e/f", vec!["Forbidden"]),
        ("", "a.b/c", vec!["Forbidden"]),
        ("", " ", vec!["Forbidden"]),
    ] {
        assert_eq!(update(from, to), wanted, "{from:?} {to:?}");
    }
}

/// A Workload without quota may say what it likes of an admission: nobody acts on it.
#[test]
fn an_admission_is_looked_at_while_quota_is_reserved() {
    let with = |status: &str| {
        let assignment = json!({ "name": "ghost", "count": 2, "resourceUsage": { "cpu": "1001m" } });
        let status = json!({
            "conditions": [reserved(status)],
            "admission": { "clusterQueue": "c", "podSetAssignments": [assignment] },
        });
        found(&validation::workload(&workload(json!({}), status, json!({})), Gates::default()))
    };
    assert_eq!(with("False"), [""; 0]);
    let path = "status.admission.podSetAssignments[0]";
    assert_eq!(
        with("True"),
        [format!("{path}.name: Not found"), format!("{path}.resourceUsage[cpu]: Invalid value")]
    );
}

/// 64 bits count thousandths of a processor up to 2^63 - 1, which seven pods can share, and down to -2^63, which two can.
#[test]
fn an_amount_beyond_counting_is_the_largest_that_can_be_counted() {
    let shared = |cpu: &str, count: i32| {
        let assignment = json!({ "name": "main", "count": count, "resourceUsage": { "cpu": cpu } });
        let status =
            json!({ "conditions": [reserved("True")], "admission": { "podSetAssignments": [assignment] } });
        let spec = json!({ "podSets": [{ "name": "main", "count": count }] });
        validation::workload(&workload(spec, status, json!({})), Gates::default()).is_empty()
    };
    for (cpu, count, allowed) in [
        ("1E", 1, true),
        ("1E", 7, true),
        ("1E", 2, false),
        ("-1E", 2, true),
        ("-1E", 7, false),
        ("1x", 1, false),
    ] {
        assert_eq!(shared(cpu, count), allowed, "{cpu} for {count}");
    }
}

#[test]
fn an_empty_text_is_none() {
    let workload = |queue: Value, toleration: Value| {
        let check = json!({
            "name": "c", "state": "Ready", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
            "podSetUpdates": [{ "name": "main", "tolerations": [toleration] }],
        });
        let status = json!({ "admission": { "clusterQueue": queue }, "admissionChecks": [check] });
        workload(json!({ "podSets": [{}] }), status, json!({}))
    };
    let update = |old: &Workload, new: &Workload| {
        [(old, new), (new, old)]
            .map(|(old, new)| found(&validation::workload_update(old, new, Gates::default())))
    };
    let plain = workload(Value::Null, json!({ "operator": "Exists" }));
    let texts = json!({ "key": "", "operator": "Exists", "value": "", "effect": "" });
    assert_eq!(update(&plain, &workload(json!(""), texts)), [[""; 0]; 2]);
    let keyed = workload(Value::Null, json!({ "key": "a", "operator": "Exists" }));
    let field = "status.admissionChecks[0].podSetUpdates: Invalid value";
    assert_eq!(update(&plain, &keyed), [[field]; 2]);
    let elsewhere = workload(json!("q"), json!({ "operator": "Exists" }));
    assert_eq!(update(&plain, &elsewhere), [["status.admission: Invalid value"]; 2]);
}

#[test]
fn a_worker_cluster_was_offered_the_workload() {
    const SLICE: &str = "kueue.x-k8s.io/workload-slice-replacement-for";
    let old = workload(json!({}), json!({ "nominatedClusterNames": ["a"] }), json!({}));
    let update = |cluster: &str, annotations: Value| {
        let new = workload(json!({}), json!({ "clusterName": cluster }), annotations);
        found(&validation::workload_update(&old, &new, Gates::default()))
    };
    assert_eq!(update("a", json!({})), [""; 0]);
    assert_eq!(update("b", json!({})), ["status.clusterName: Invalid value"]);
    assert_eq!(update("b", json!({ SLICE: "team/before" })), [""; 0]);
}

#[test]
fn a_reserved_workload_stays_in_its_queue() {
    let workload = |queue: &str, status: &str| {
        let status = json!({ "conditions": [reserved(status)], "admission": { "clusterQueue": "c" } });
        workload(json!({ "queueName": queue }), status, json!({}))
    };
    let update = |status| found(&rules::workload(Some(&workload("a", status)), &workload("b", status)));
    assert_eq!(update("True"), ["spec.queueName: Invalid value"]);
    assert_eq!(update("False"), [""; 0]);
}

#[test]
fn pod_sets_are_compared_by_meaning() {
    let workload = |template: Value, count: i32| {
        let spec = json!({ "podSets": [{ "name": "main", "count": count, "template": template }] });
        workload(spec, json!({ "conditions": [reserved("True")], "admission": {} }), json!({}))
    };
    let template = |cpu: &str| json!({ "spec": { "containers": [{ "name": "c", "resources": { "requests": { "cpu": cpu } } }] } });
    let update = |to: &str, count| {
        let (old, new) = (workload(template("1"), 2), workload(template(to), count));
        found(&validation::workload_update(&old, &new, Gates::default()))
    };
    assert_eq!(update("1000m", 2), [""; 0]);
    assert_eq!(update("1", 1), [""; 0], "an elastic job may shrink");
    assert_eq!(update("2", 2), ["spec.podSets.0: Invalid value"]);
    assert_eq!(update("1", 3), ["spec.podSets.0: Invalid value"]);
}

/// Largest objects, wrong everywhere: the answer is of ordinary size, and the work linear.
#[test]
fn wrong_everywhere_is_told_in_part() {
    let quotas: Vec<Value> =
        (0..64).map(|n| json!({ "name": format!("{n}@"), "nominalQuota": "-1" })).collect();
    let flavors: Vec<Value> =
        (0..64).map(|n| json!({ "name": format!("f{n}"), "resources": quotas })).collect();
    let names: Vec<String> = (0..64).map(|n| format!("@{n}")).collect();
    let group = json!({ "coveredResources": names, "flavors": flavors });
    let checks: Vec<Value> =
        (0..64).map(|n| json!({ "name": format!("c{n}"), "onFlavors": names })).collect();
    let queue = serde_json::from_value(json!({ "spec": {
        "resourceGroups": vec![group; 16], "admissionChecksStrategy": { "admissionChecks": checks },
    }}));
    let errors = validation::cluster_queue(&queue.unwrap(), Gates::default());
    assert_eq!(errors.len(), 256);
    let words: usize = errors.iter().map(|error| error.to_string().len()).sum();
    assert!(words < 64 << 10, "{words} bytes");
}

#[test]
fn a_grant_is_compared_by_amount() {
    let workload = |memory: &str, topology: Value| -> Workload {
        let assignment = json!({ "name": "main", "resourceUsage": { "memory": memory }, "delayedTopologyRequest": topology });
        let admission = json!({ "clusterQueue": "c", "podSetAssignments": [assignment] });
        workload(json!({ "podSets": [{}] }), json!({ "admission": admission }), json!({}))
    };
    let update = |memory: &str, topology: Value, gates| {
        let old = workload("1Ki", Value::Null);
        found(&validation::workload_update(&old, &workload(memory, topology), gates))
    };
    let without_topology = Gates { topology: false, ..Gates::default() };
    for (memory, topology, gates, allowed) in [
        ("1024", Value::Null, Gates::default(), true),
        ("1025", Value::Null, Gates::default(), false),
        ("1Ki", json!("Pending"), Gates::default(), true),
        ("1Ki", json!("Pending"), without_topology, false),
    ] {
        let wanted: &[&str] = if allowed { &[] } else { &["status.admission: Invalid value"] };
        assert_eq!(update(memory, topology.clone(), gates), wanted, "{memory} {topology}");
    }
}

/// What is wrong is shown as it was written as a whole, and amounts as the API server writes them.
#[test]
fn wrong_values_are_shown_as_kueue_shows_them() {
    let value = |errors: &[FieldError]| errors.last().and_then(|error| error.value.clone());
    let gates = json!({ "kueue.x-k8s.io/admission-gated-by": "a.b/c,a.b/c" });
    let gated = validation::workload(&workload(json!({}), json!({}), gates), Gates::default());
    assert_eq!(value(&gated), Some(json!("a.b/c,a.b/c")));
    let reserved = json!({
        "conditions": [{
            "type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }],
        "admission": { "clusterQueue": "c", "podSetAssignments": [
            { "name": "main", "count": 2, "resourceUsage": { "memory": "1000m" } },
        ]},
    });
    let spec = json!({ "podSets": [{ "name": "main", "count": 2, "template": {} }] });
    let shared = validation::workload(&workload(spec, reserved, json!({})), Gates::default());
    assert_eq!(value(&shared), Some(json!("1")));
    let taint = json!({ "key": "k", "value": "v", "effect": "NoSchedule" });
    let flavor = json!({ "spec": { "nodeTaints": [taint, taint] } });
    let flavor = validation::resource_flavor(&serde_json::from_value(flavor).unwrap());
    assert_eq!(value(&flavor), Some(taint));
}
