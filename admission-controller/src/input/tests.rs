//! Numbers and times that are odd, as they are read.

use std::path::Path;

use serde_json::{Value, json};

use super::*;
use crate::config::Configuration;

fn rules() -> Rules {
    Rules::of(&Configuration::default())
}

/// One without a time of creation is older than all others; any other has its place among them.
#[test]
fn odd_times_of_creation_are_in_order() {
    let created = |written: Value| {
        let metadata = json!({ "creationTimestamp": written });
        let view: Workload = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
        queued_at(&view, QueueOrder::default())
    };
    let times = ["2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z", "9999-12-30T22:00:00Z"];
    let order: Vec<i64> =
        std::iter::once(Value::Null).chain(times.iter().map(|time| json!(time))).map(created).collect();
    assert!(order.is_sorted_by(|one, next| one < next), "{order:?}");
}

/// No pod set does with more pods than it has, nor with fewer than none.
#[test]
fn odd_least_counts_are_from_none_to_all() {
    for (count, least, wanted) in [(3, 5, 3), (3, 2, 2), (3, 0, 0), (3, -1, 0), (0, 1, 0), (-2, 1, 0)] {
        let set = json!({ "name": "main", "count": count, "minCount": least });
        let view: Workload = serde_json::from_value(json!({ "spec": { "podSets": [set] } })).unwrap();
        let (defaults, priorities) = (PodDefaults::default(), Priorities::default());
        let read = workload((&view).into(), &view, &rules(), &defaults, &priorities);
        assert_eq!(read.pod_sets[0].min_count, Some(wanted), "{least} of {count}");
    }
}

/// A policy for concurrent admission is none while its gate is closed, as in Kueue.
#[test]
fn concurrent_admission_is_a_defect_where_it_is_asked_for() {
    let queue = |spec: Value| -> ClusterQueue {
        serde_json::from_value(json!({ "metadata": { "name": "a" }, "spec": spec })).unwrap()
    };
    let policy = json!({ "concurrentAdmissionPolicy": { "migration": { "mode": "RetainFirstAdmission" } } });
    for (gate, spec, defects) in
        [(true, policy.clone(), 1), (false, policy, 0), (true, json!({ "cohortName": "all" }), 0)]
    {
        let text = format!("featureGates: {{ ConcurrentAdmission: {gate} }}");
        let config = Configuration::parse(Path::new("config.yaml"), &text).unwrap();
        let read = cluster_queue(&queue(spec.clone()), &Rules::of(&config));
        assert_eq!(read.defects.len(), defects, "{gate} {spec}");
        assert!(
            read.defects.iter().all(|one| one.contains("concurrentAdmissionPolicy")),
            "{:?}",
            read.defects
        );
    }
}

/// Whatever it says: who asks for it is told what is wrong with that, or that there is no MultiKueue.
#[test]
fn a_check_of_multikueue_is_as_active_as_it_says() {
    for active in [false, true] {
        let status = if active { "True" } else { "False" };
        let condition = json!({
            "type": "Active", "status": status, "reason": "x", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let view: AdmissionCheck = serde_json::from_value(json!({
            "spec": { "controllerName": "kueue.x-k8s.io/multikueue" }, "status": { "conditions": [condition] },
        }))
        .unwrap();
        let read = admission_check(&view);
        assert_eq!((read.active, read.controller), (active, input::CheckController::MultiKueue));
    }
}

#[test]
fn a_local_queue_that_is_being_deleted_says_so() {
    for (deleted, terminating) in [(Value::Null, false), (json!("2026-01-01T00:00:00Z"), true)] {
        let metadata = json!({ "name": "a", "namespace": "team", "deletionTimestamp": deleted });
        let view: LocalQueue =
            serde_json::from_value(json!({ "metadata": metadata, "spec": { "clusterQueue": "cq" } }))
                .unwrap();
        assert_eq!(local_queue(&view).terminating, terminating);
    }
}

/// How much a quota is, of cores in thousandths and of devices; nothing where the text is no quota.
#[test]
fn odd_quotas_are_read_up_to_what_can_be_counted() {
    let most = Some(i64::MAX);
    for (written, cores, devices) in [
        (json!("1e3"), Some(1_000_000), Some(1_000)),
        (json!("0.5"), Some(500), Some(1)),
        (json!(0.5), Some(500), Some(1)),
        (json!("1n"), Some(1), Some(1)),
        (json!("1Ei"), most, Some(1 << 60)),
        (json!("10E"), most, most),
        (json!("9223372036854775807"), most, most),
        (json!("9223372036854775808"), most, most),
        (json!("1e400"), most, most),
        (json!("9".repeat(400)), None, None),
        (json!("-1"), None, None),
        (json!(""), None, None),
    ] {
        for (resource, wanted) in [("cpu", cores), ("nvidia.com/gpu", devices)] {
            let quota = json!({
                "name": resource, "nominalQuota": written, "borrowingLimit": written, "lendingLimit": written,
            });
            let groups = json!([{ "coveredResources": [resource], "flavors": [{ "name": "f", "resources": [quota] }] }]);
            let spec = json!({ "cohortName": "pool", "resourceGroups": groups });
            let view: ClusterQueue = serde_json::from_value(json!({ "spec": spec })).unwrap();
            let read = cluster_queue(&view, &rules());
            let quota = read.groups[0].flavors[0].resources[resource];
            let amount = wanted.unwrap_or(0);
            let limits = (quota.borrowing_limit, quota.lending_limit);
            assert_eq!(
                (quota.nominal, limits),
                (amount, (Some(amount), Some(amount))),
                "{resource}: {written}"
            );
            assert_eq!(read.defects.len(), if wanted.is_some() { 0 } else { 3 }, "{resource}: {written}");
        }
    }
}

/// Of checks that are passed the first that says otherwise than the pods, or than those before, is told; what agrees is nothing new.
#[test]
fn what_checks_say_of_labels_must_agree() {
    let ready = |update: &Value| {
        let mut update = update.clone();
        update["name"] = json!("main");
        json!({ "name": "c", "state": "Ready", "podSetUpdates": [update] })
    };
    for (checks, wanted) in [
        (vec![json!({ "labels": { "tier": "one", "new": "x" } })], None),
        (vec![json!({ "labels": { "tier": "two" } })], Some(("tier", "one", "two"))),
        (vec![json!({ "annotations": { "note": "b" } })], Some(("note", "a", "b"))),
        (
            vec![json!({ "labels": { "new": "x" } }), json!({ "labels": { "new": "y" } })],
            Some(("new", "x", "y")),
        ),
    ] {
        let template = json!({ "metadata": { "labels": { "tier": "one" }, "annotations": { "note": "a" } } });
        let states: Vec<Value> = checks.iter().map(ready).collect();
        let view = json!({
            "spec": { "podSets": [{ "name": "main", "template": template }] },
            "status": { "admissionChecks": states },
        });
        let view: Workload = serde_json::from_value(view).unwrap();
        let told = updates(&view).into_iter().find_map(|update| update.conflict);
        let wanted = wanted.map(|(label, given, wanted)| SelectorConflict {
            label: label.into(),
            given: given.into(),
            wanted: wanted.into(),
        });
        assert_eq!(told, wanted, "{checks:?}");
    }
}
