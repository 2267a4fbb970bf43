//! Every entry of the table of job kinds: read, described, started, stopped and ended.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;

use admission_controller::compose::{Priorities, compose};
use admission_controller::jobs::{JobKind, JobObject, TABLE, read, start, stop};
use admission_controller::reconcile::{Job, describes};
use crds::view::flavor::ResourceFlavor;
use crds::view::workload::Workload;
use serde_json::{Value, json};

/// One kind: an object of it, its pod sets with counts, and statuses.
struct Case {
    framework: &'static str,
    object: Value,
    pod_sets: &'static [(&'static str, i64)],
    active: Value,
    succeeded: Value,
    failed: Value,
}

fn template() -> Value {
    json!({ "spec": {
        "nodeSelector": { "disk": "fast" },
        "priorityClassName": "urgent",
        "containers": [{ "name": "main", "resources": { "limits": { "nvidia.com/gpu": 2 } } }],
    }})
}

fn condition(kind: &str) -> Value {
    json!({ "conditions": [{ "type": kind, "status": "True", "message": "words" }] })
}

fn cases() -> Vec<Case> {
    vec![
        Case {
            framework: "batch/job",
            object: json!({ "spec": {
                "suspend": true, "parallelism": 4, "completions": 3, "template": template(),
            }}),
            pod_sets: &[("main", 3)],
            active: json!({ "active": 2 }),
            succeeded: condition("Complete"),
            failed: condition("Failed"),
        },
        Case {
            framework: "jobset.x-k8s.io/jobset",
            object: json!({ "spec": { "suspend": true, "replicatedJobs": [
                { "name": "driver", "template": { "spec": { "template": template() } } },
                { "name": "workers", "replicas": 2, "template": { "spec": {
                    "parallelism": 4, "completions": 4, "template": template(),
                }}},
            ]}}),
            pod_sets: &[("driver", 1), ("workers", 8)],
            active: json!({ "replicatedJobsStatus": [{ "active": 0 }, { "active": 1 }] }),
            succeeded: condition("Completed"),
            failed: condition("Failed"),
        },
        Case {
            framework: "kubeflow.org/pytorchjob",
            object: json!({ "spec": {
                "runPolicy": { "suspend": true },
                "pytorchReplicaSpecs": {
                    "Worker": { "replicas": 3, "template": template() },
                    "Master": { "template": template() },
                },
            }}),
            pod_sets: &[("master", 1), ("worker", 3)],
            active: json!({ "replicaStatuses": { "Worker": { "active": 3 } } }),
            succeeded: condition("Succeeded"),
            failed: condition("Failed"),
        },
    ]
}

fn job(kind: &'static JobKind, mut object: Value, status: Value) -> Job {
    object["metadata"] = json!({
        "name": "sample", "namespace": "team", "uid": "job-1",
        "labels": { "kueue.x-k8s.io/queue-name": "q" },
    });
    object["status"] = status;
    let object: JobObject = serde_json::from_value(object).unwrap();
    let view = read(kind, &object);
    Job { kind, object, view }
}

fn priorities() -> Priorities {
    Priorities { pod: [("urgent".to_owned(), 1000)].into(), ..Priorities::default() }
}

/// The Workload as admitted to one flavor.
fn admitted(job: &Job) -> Workload {
    let mut workload = compose(job, &priorities()).unwrap();
    let assignments: Vec<Value> = job
        .view
        .pod_sets
        .as_ref()
        .unwrap()
        .iter()
        .map(|set| json!({ "name": set.name, "flavors": { "nvidia.com/gpu": "a100" }, "count": set.count }))
        .collect();
    workload["status"] = json!({ "admission": { "clusterQueue": "cq", "podSetAssignments": assignments } });
    serde_json::from_value(workload).unwrap()
}

fn flavors() -> BTreeMap<String, ResourceFlavor> {
    let flavor = json!({
        "metadata": { "name": "a100" },
        "spec": {
            "nodeLabels": { "gpu": "a100" },
            "tolerations": [{ "key": "gpu", "operator": "Exists" }],
        },
    });
    [("a100".to_owned(), serde_json::from_value(flavor).unwrap())].into()
}

fn patched(job: &Job, patch: &Value) -> JobObject {
    let mut spec = json!({ "spec": job.object.spec });
    json_patch::merge(&mut spec, patch);
    JobObject { spec: spec["spec"].clone(), ..job.object.clone() }
}

#[test]
fn every_kind_has_a_case() {
    let tested: Vec<&str> = cases().iter().map(|case| case.framework).collect();
    let listed: Vec<&str> = TABLE.iter().map(|kind| kind.framework).collect();
    assert_eq!(tested, listed);
}

#[test]
fn kinds_are_read_described_started_and_stopped() {
    for (case, kind) in cases().into_iter().zip(TABLE) {
        let job = job(kind, case.object, json!({}));
        assert!(job.view.suspended && !job.view.active && job.view.finished.is_none(), "{}", case.framework);
        let sets = job.view.pod_sets.clone().unwrap();
        let named: Vec<(&str, i64)> = sets.iter().map(|set| (set.name.as_str(), set.count)).collect();
        assert_eq!(named, case.pod_sets, "{}", case.framework);

        let workload = admitted(&job);
        assert_eq!(workload.spec.priority, Some(1000), "{}", case.framework);
        assert!(describes(&workload, &job.object, &sets), "{}", case.framework);

        let patch = start(kind, &job.object, &sets, &workload, &flavors()).unwrap().unwrap();
        let started = patched(&job, &patch);
        assert_eq!(started.at(kind.suspend), Some(&json!(false)), "{}", case.framework);
        for set in &sets {
            let template = started.at(&set.template).unwrap();
            assert_eq!(template["spec"]["nodeSelector"], json!({ "disk": "fast", "gpu": "a100" }));
            assert_eq!(template["spec"]["tolerations"], json!([{ "key": "gpu", "operator": "Exists" }]));
            assert_eq!(template["metadata"]["labels"]["kueue.x-k8s.io/podset"], json!(set.name));
        }
        assert!(describes(&workload, &started, &sets), "{}: starting changes no size", case.framework);

        let running = Job { view: read(kind, &started), object: started, kind };
        let patch = stop(kind, &running.object, &sets, Some(&workload)).unwrap();
        let stopped = patched(&running, &patch);
        assert_eq!(stopped.at(kind.suspend), Some(&json!(true)), "{}", case.framework);
        if kind.restores_at_stop {
            assert_eq!(stopped.spec, job.object.spec, "{}: as the user wrote it", case.framework);
        }
    }
}

#[test]
fn statuses_are_understood() {
    for (case, kind) in cases().into_iter().zip(TABLE) {
        assert!(job(kind, case.object.clone(), case.active).view.active, "{}", case.framework);
        for (status, succeeded) in [(case.succeeded, true), (case.failed, false)] {
            let finish = job(kind, case.object.clone(), status).view.finished.unwrap();
            assert_eq!(
                (finish.succeeded, finish.message.as_str()),
                (succeeded, "words"),
                "{}",
                case.framework
            );
        }
    }
}

#[test]
fn a_flavor_that_contradicts_the_pods_cannot_start_them() {
    let mut case = cases().remove(0);
    case.object["spec"]["template"]["spec"]["nodeSelector"] = json!({ "gpu": "h100" });
    let job = job(&TABLE[0], case.object, json!({}));
    let sets = job.view.pod_sets.clone().unwrap();
    let conflict = start(&TABLE[0], &job.object, &sets, &admitted(&job), &flavors()).unwrap_err();
    assert!(conflict.to_string().contains("gpu=h100"), "{conflict}");
}

#[test]
fn what_cannot_be_described_is_refused_by_field() {
    let pytorch = &TABLE[2];
    let base = || cases().remove(2).object;
    let with = |pointer: &str, value: Value| {
        let mut object = base();
        *object.pointer_mut(pointer).unwrap() = value;
        object
    };
    let worker = "/spec/pytorchReplicaSpecs/Worker";
    let mut annotated = base();
    annotated["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["metadata"] =
        json!({ "annotations": { "kueue.x-k8s.io/podset-required-topology": "rack" } });
    for (object, words) in [
        (with(&format!("{worker}/replicas"), json!(-1)), "replicas is -1"),
        (with(&format!("{worker}/replicas"), json!(1u64 << 40)), "whole number"),
        (with(&format!("{worker}/replicas"), json!("three")), "whole number"),
        (with(&format!("{worker}/template"), json!("text")), "no pod template"),
        (with("/spec/pytorchReplicaSpecs", json!({})), "describes no pods"),
        (with("/spec/pytorchReplicaSpecs", json!([1])), "describes no pods"),
        (with("/spec", json!("text")), "describes no pods"),
        (annotated, "podset-required-topology"),
        (with(&format!("{worker}/template/spec/priorityClassName"), json!("unknown")), ""),
    ] {
        let job = job(pytorch, object, json!({}));
        match compose(&job, &priorities()) {
            Err(error) => assert!(!words.is_empty() && error.contains(words), "{error:?} lacks {words:?}"),
            // The master's class is asked first and exists.
            Ok(_) => assert!(words.is_empty(), "{words:?} was accepted"),
        }
    }
}

/// Pods that are made one set after another are no gang together.
#[test]
fn pod_sets_that_come_in_steps_are_gangs_of_their_own() {
    let kind = TABLE.iter().find(|kind| kind.kind == "JobSet").unwrap();
    let job_set = |depends: Value, startup: Value| {
        let set = |name: &str, depends: Value| json!({ "name": name, "dependsOn": depends, "template": { "spec": { "template": template() } } });
        let sets = [set("driver", json!([])), set("workers", depends)];
        let object = json!({ "spec": { "suspend": true, "startupPolicy": startup, "replicatedJobs": sets } });
        compose(&job(kind, object, json!({})), &priorities()).unwrap()
    };
    let after = json!([{ "name": "driver", "status": "Complete" }]);
    let cases = [
        ("all at once", job_set(json!([]), json!({ "startupPolicyOrder": "AnyOrder" })), Value::Null),
        ("dependsOn", job_set(after, Value::Null), json!("pod-set")),
        ("in order", job_set(Value::Null, json!({ "startupPolicyOrder": "InOrder" })), json!("pod-set")),
    ];
    for (name, workload, gang) in cases {
        assert_eq!(workload["metadata"]["annotations"]["trireme.dev/gang"], gang, "{name}");
    }
}
