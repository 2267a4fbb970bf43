//! Every entry of the table of job kinds: read, described, started, stopped and ended.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;

use admission_controller::compose::{Priorities, compose};
use admission_controller::jobs::table::Added;
use admission_controller::jobs::{JobKind, JobObject, KindId, TABLE, Terms, read, restore, start, stop};
use admission_controller::reconcile::{Job, Known, Step, describes, next};
use crds::validation::Gates;
use crds::view::flavor::ResourceFlavor;
use crds::view::workload::Workload;
use serde_json::{Value, json};

/// One kind: an object of it, its pod sets with counts, and statuses.
struct Case {
    id: KindId,
    object: Value,
    pod_sets: &'static [(&'static str, i64)],
    active: Value,
    /// How it looks when it has succeeded and when it has failed; none for a kind that never ends.
    ends: Option<(Value, Value)>,
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

/// Three workers, one of every other role.
fn kubeflow(id: KindId, at: &str, roles: &[&str], pod_sets: &'static [(&'static str, i64)]) -> Case {
    let spec = |role: &str| match role {
        "Worker" => json!({ "replicas": 3, "template": template() }),
        _ => json!({ "template": template() }),
    };
    let specs: BTreeMap<&str, Value> = roles.iter().map(|role| (*role, spec(role))).collect();
    Case {
        id,
        object: json!({ "spec": { "runPolicy": { "suspend": true }, at: specs } }),
        pod_sets,
        active: json!({ "replicaStatuses": { "Worker": { "active": 3 } } }),
        ends: Some((condition("Succeeded"), condition("Failed"))),
    }
}

fn cases() -> Vec<Case> {
    vec![
        Case {
            id: ("batch/job", "v1"),
            object: json!({ "spec": {
                "suspend": true, "parallelism": 4, "completions": 3, "template": template(),
            }}),
            pod_sets: &[("main", 3)],
            active: json!({ "active": 2 }),
            ends: Some((condition("Complete"), condition("Failed"))),
        },
        Case {
            id: ("jobset.x-k8s.io/jobset", "v1alpha2"),
            object: json!({ "spec": { "suspend": true, "replicatedJobs": [
                { "name": "driver", "template": { "spec": { "template": template() } } },
                { "name": "workers", "replicas": 2, "template": { "spec": {
                    "parallelism": 4, "completions": 4, "template": template(),
                }}},
            ]}}),
            pod_sets: &[("driver", 1), ("workers", 8)],
            active: json!({ "replicatedJobsStatus": [{ "active": 0 }, { "active": 1 }] }),
            ends: Some((condition("Completed"), condition("Failed"))),
        },
        kubeflow(
            ("kubeflow.org/pytorchjob", "v1"),
            "pytorchReplicaSpecs",
            &["Master", "Worker"],
            &[("master", 1), ("worker", 3)],
        ),
        kubeflow(
            ("kubeflow.org/tfjob", "v1"),
            "tfReplicaSpecs",
            &["Evaluator", "PS", "Chief", "Worker"],
            &[("chief", 1), ("ps", 1), ("worker", 3), ("evaluator", 1)],
        ),
        kubeflow(
            ("kubeflow.org/xgboostjob", "v1"),
            "xgbReplicaSpecs",
            &["Master", "Worker"],
            &[("master", 1), ("worker", 3)],
        ),
        kubeflow(("kubeflow.org/paddlejob", "v1"), "paddleReplicaSpecs", &["Worker"], &[("worker", 3)]),
        kubeflow(("kubeflow.org/jaxjob", "v1"), "jaxReplicaSpecs", &["Worker"], &[("worker", 3)]),
        kubeflow(
            ("kubeflow.org/mpijob", "v2beta1"),
            "mpiReplicaSpecs",
            &["Worker", "Launcher"],
            &[("launcher", 1), ("worker", 3)],
        ),
        kubeflow(
            ("kubeflow.org/mpijob", "v1"),
            "mpiReplicaSpecs",
            &["Worker", "Launcher"],
            &[("launcher", 1), ("worker", 3)],
        ),
        Case {
            id: ("ray.io/rayjob", "v1"),
            object: json!({ "spec": {
                "suspend": true, "submissionMode": "K8sJobMode", "rayClusterSpec": ray_cluster(),
            }}),
            pod_sets: &[("head", 1), ("small", 3), ("hosts", 8), ("submitter", 1)],
            active: json!({ "jobDeploymentStatus": "Running" }),
            ends: Some((
                json!({ "jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED", "message": "words" }),
                json!({ "jobDeploymentStatus": "Failed", "jobStatus": "FAILED", "message": "words" }),
            )),
        },
        Case {
            id: ("ray.io/rayservice", "v1"),
            object: json!({ "spec": { "rayClusterConfig": with(ray_cluster(), "suspend", json!(true)) } }),
            pod_sets: &[("head", 1), ("small", 3), ("hosts", 8)],
            active: condition("Ready"),
            ends: None,
        },
        Case {
            id: ("ray.io/raycluster", "v1"),
            object: json!({ "spec": with(ray_cluster(), "suspend", json!(true)) }),
            pod_sets: &[("head", 1), ("small", 3), ("hosts", 8)],
            active: json!({ "state": "ready" }),
            ends: None,
        },
        Case {
            id: ("trainer.kubeflow.org/trainjob", "v1alpha1"),
            object: json!({
                "spec": {
                    "suspend": true,
                    "runtimeRef": { "name": "torch-distributed" },
                    "runtimePatches": [
                        { "manager": "team.example.com/queue" },
                        { "manager": "kueue.x-k8s.io/manager", "trainingRuntimeSpec": { "template": { "spec": {} } } },
                    ],
                },
                "child": { "replicatedJobs": [
                    { "name": "initializer", "template": { "spec": { "template": template() } } },
                    { "name": "node", "template": { "spec": {
                        "parallelism": 4, "completions": 4, "template": template(),
                    }}},
                ]},
            }),
            pod_sets: &[("initializer", 1), ("node", 4)],
            active: json!({ "jobsStatus": [{ "name": "initializer", "active": 0 }, { "name": "node", "active": 1 }] }),
            ends: Some((condition("Complete"), condition("Failed"))),
        },
        Case {
            id: ("workload.codeflare.dev/appwrapper", "v1beta2"),
            object: json!({ "spec": { "suspend": true, "components": [
                {
                    "podSets": [{ "path": "template.spec.tasks[0].template", "replicas": 2 }],
                    "template": { "apiVersion": "example.com/v1", "kind": "Flow", "spec": { "tasks": [{ "template": template() }] } },
                },
                { "template": { "apiVersion": "batch/v1", "kind": "Job", "spec": { "parallelism": 4, "template": template() } } },
                { "template": { "apiVersion": "v1", "kind": "Service", "spec": {} } },
                { "template": with(with(template(), "apiVersion", json!("v1")), "kind", json!("Pod")) },
                // Whoever submits to it is not counted by the operator, nor more than a host of each of its workers, nor any kind that
                // it does not know.
                { "template": { "apiVersion": "ray.io/v1", "kind": "RayJob", "spec": {
                    "rayClusterSpec": with(ray_cluster(), "enableInTreeAutoscaling", json!(true)),
                }}},
                { "template": { "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "spec": {} } },
                { "template": { "apiVersion": "kubeflow.org/v1", "kind": "TFJob", "spec": {
                    "tfReplicaSpecs": { "Worker": { "replicas": 2, "template": template() } },
                }}},
            ]}}),
            pod_sets: &[
                ("sample-0", 2),
                ("sample-1", 4),
                ("sample-2", 1),
                ("sample-3", 1),
                ("sample-4", 3),
                ("sample-5", 2),
            ],
            active: condition("QuotaReserved"),
            ends: Some((
                json!({ "phase": "Succeeded", "conditions": [{ "type": "ResourcesDeployed", "status": "True" }] }),
                json!({ "phase": "Failed" }),
            )),
        },
    ]
}

fn with(mut object: Value, field: &str, value: Value) -> Value {
    object[field] = value;
    object
}

fn ray_cluster() -> Value {
    json!({
        "headGroupSpec": { "template": template() },
        "workerGroupSpecs": [
            { "groupName": "Small", "replicas": 3, "numOfHosts": 0, "template": template() },
            { "groupName": "hosts", "replicas": 2, "numOfHosts": 4, "template": template() },
        ],
    })
}

fn job(kind: &'static JobKind, mut object: Value, status: Value) -> Job {
    object["metadata"] = json!({
        "name": "sample", "namespace": "team", "uid": "job-1",
        "labels": { "kueue.x-k8s.io/queue-name": "q" },
    });
    object["status"] = status;
    let child = object["child"].take();
    let mut object: JobObject = serde_json::from_value(object).unwrap();
    object.child = child;
    let view = read(kind, &object);
    Job { kind, object, view }
}

fn priorities() -> Priorities {
    Priorities { pod: [("urgent".to_owned(), 1000)].into(), ..Priorities::default() }
}

/// The Workload as admitted to one flavor.
fn admitted(job: &Job) -> Workload {
    let mut workload = compose(job, &priorities(), Gates::default()).unwrap();
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

fn terms(flavors: &BTreeMap<String, ResourceFlavor>) -> Terms<'_> {
    Terms { flavors, names_queues: true, elastic: false }
}

fn patched(job: &Job, patch: &Value) -> JobObject {
    let mut spec = json!({ "spec": job.object.spec });
    json_patch::merge(&mut spec, patch);
    JobObject { spec: spec["spec"].clone(), ..job.object.clone() }
}

#[test]
fn every_kind_has_a_case() {
    let tested: Vec<KindId> = cases().iter().map(|case| case.id).collect();
    let listed: Vec<KindId> = TABLE.iter().map(|kind| kind.id()).collect();
    assert_eq!(tested, listed);
}

/// Flavors of several resources may say different things of one label, and be tolerated for different times: the job starts.
#[test]
fn flavors_that_say_different_things_are_no_conflict() {
    let case = cases().remove(0);
    let job = job(&TABLE[0], case.object, json!({}));
    let sets = job.view.pod_sets.clone().unwrap();
    let mut workload = admitted(&job);
    let held = &mut workload.status.admission.as_mut().unwrap().pod_set_assignments[0];
    held.flavors.insert("cpu".into(), "other".to_owned());
    let mut flavors = flavors();
    let other = json!({
        "metadata": { "name": "other" },
        "spec": {
            "nodeLabels": { "gpu": "none" },
            "tolerations": [{ "key": "gpu", "operator": "Exists", "tolerationSeconds": 60 }],
        },
    });
    flavors.insert("other".to_owned(), serde_json::from_value(other).unwrap());
    let patch = start(&TABLE[0], &job.object, &sets, &workload, terms(&flavors)).unwrap().unwrap();
    let started = patched(&job, &patch);
    let spec = &started.at(&sets[0].template).unwrap()["spec"];
    assert_eq!(spec["nodeSelector"]["gpu"], "none", "the flavor whose name comes last has its way");
    assert_eq!(spec["tolerations"], json!([{ "key": "gpu", "operator": "Exists" }]));
}

#[test]
fn kinds_are_read_described_started_and_stopped() {
    for (case, kind) in cases().into_iter().zip(TABLE) {
        let job = job(kind, case.object, json!({}));
        assert!(job.view.suspended && !job.view.active && job.view.finished.is_none(), "{:?}", case.id);
        let sets = job.view.pod_sets.clone().unwrap();
        let named: Vec<(&str, i64)> = sets.iter().map(|set| (set.name.as_str(), set.count)).collect();
        assert_eq!(named, case.pod_sets, "{:?}", case.id);

        let workload = admitted(&job);
        assert_eq!(workload.spec.priority, Some(1000), "{:?}", case.id);
        assert!(describes(&workload, &job, &sets), "{:?}", case.id);

        let patch = start(kind, &job.object, &sets, &workload, terms(&flavors())).unwrap().unwrap();
        let mut started = patched(&job, &patch);
        if matches!(kind.added, Added::RuntimePatches) {
            assert_eq!(started.at(kind.suspend), Some(&json!(true)), "the patches come first");
            let patch = start(kind, &started, &sets, &workload, terms(&flavors())).unwrap().unwrap();
            started = patched(&Job { object: started, ..job.clone() }, &patch);
        }
        assert_eq!(started.at(kind.suspend), Some(&json!(false)), "{:?}", case.id);
        for (index, set) in sets.iter().enumerate() {
            let (selector, tolerations, labels) = match kind.added {
                Added::Templates => {
                    let template = started.at(&set.template).unwrap();
                    (
                        &template["spec"]["nodeSelector"],
                        &template["spec"]["tolerations"],
                        &template["metadata"]["labels"],
                    )
                }
                Added::PodSetInfos => {
                    let infos = started.spec["components"].as_array().unwrap().iter();
                    let mut infos = infos.flat_map(|one| one["podSetInfos"].as_array().into_iter().flatten());
                    let info = infos.nth(index).unwrap();
                    (&info["nodeSelector"], &info["tolerations"], &info["labels"])
                }
                Added::RuntimePatches => {
                    assert_eq!(started.spec["runtimePatches"][0]["manager"], "team.example.com/queue");
                    let patch = &started.spec["runtimePatches"][1];
                    assert_eq!(patch["manager"], "kueue.x-k8s.io/manager");
                    let job = &patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"][index];
                    assert_eq!(job["name"], json!(set.name));
                    let template = &job["template"]["spec"]["template"];
                    assert!(template["metadata"]["labels"]["trireme.dev/scheduled-by"].is_string());
                    (
                        &template["spec"]["nodeSelector"],
                        &template["spec"]["tolerations"],
                        &template["metadata"]["labels"],
                    )
                }
            };
            let own = matches!(kind.added, Added::Templates) && set.given.is_none();
            let wanted =
                if own { json!({ "disk": "fast", "gpu": "a100" }) } else { json!({ "gpu": "a100" }) };
            assert_eq!(selector, &wanted, "{:?}", case.id);
            assert_eq!(tolerations, &json!([{ "key": "gpu", "operator": "Exists" }]));
            assert_eq!(labels["kueue.x-k8s.io/podset"], json!(set.name));
            assert_eq!(labels["kueue.x-k8s.io/local-queue-name"], "q", "{:?}", case.id);
            assert_eq!(labels["kueue.x-k8s.io/cluster-queue-name"], "cq", "{:?}", case.id);
        }

        let running = Job { view: read(kind, &started), object: started, kind };
        assert!(describes(&workload, &running, &sets), "{:?}: starting changes no size", case.id);
        let patch = stop(kind, &running.object, &sets, Some(&workload)).unwrap();
        let stopped = patched(&running, &patch);
        assert_eq!(stopped.at(kind.suspend), Some(&json!(true)), "{:?}", case.id);
        let restored = restore(kind, &stopped, &sets, &workload).map_or(stopped.clone(), |patch| {
            patched(&Job { object: stopped.clone(), ..running.clone() }, &patch)
        });
        assert!(!kind.restores_at_stop || restored.spec == stopped.spec, "{:?}: at once", case.id);
        // KubeRay's own submitter is written down when it is started, and means the same.
        let mut as_written = restored.spec.clone();
        if sets.iter().any(|set| set.given.is_some() && set.name == "submitter") {
            as_written.as_object_mut().unwrap().remove("submitterPodTemplate");
        }
        assert_eq!(as_written, job.object.spec, "{:?}: as the user wrote it", case.id);
    }
}

#[test]
fn statuses_are_understood() {
    for (case, kind) in cases().into_iter().zip(TABLE) {
        assert!(job(kind, case.object.clone(), case.active).view.active, "{:?}", case.id);
        let Some((succeeded, failed)) = case.ends else { continue };
        for (status, succeeded) in [(succeeded, true), (failed, false)] {
            let says = status.to_string().contains("words");
            let finish = job(kind, case.object.clone(), status).view.finished.unwrap();
            assert_eq!(finish.succeeded, succeeded, "{:?}", case.id);
            assert!(finish.message == "words" || (!says && !finish.message.is_empty()), "{:?}", case.id);
        }
    }
}

#[test]
fn a_flavor_that_contradicts_the_pods_cannot_start_them() {
    let mut case = cases().remove(0);
    case.object["spec"]["template"]["spec"]["nodeSelector"] = json!({ "gpu": "h100" });
    let job = job(&TABLE[0], case.object, json!({}));
    let sets = job.view.pod_sets.clone().unwrap();
    let conflict = start(&TABLE[0], &job.object, &sets, &admitted(&job), terms(&flavors())).unwrap_err();
    assert!(conflict.to_string().contains("gpu=h100"), "{conflict}");
}

/// A queue is named where its name can be a label's value, and where that is wanted.
#[test]
fn admitted_pods_say_whose_they_are() {
    let kind = &TABLE[0];
    let job = job(kind, cases().remove(0).object, json!({}));
    let sets = job.view.pod_sets.clone().unwrap();
    let long = "q".repeat(64);
    for (names_queues, queue, cluster_queue, named) in [
        (true, "q", "cq", vec![("local", "q"), ("cluster", "cq")]),
        (true, long.as_str(), "cq.example.com", vec![]),
        (false, "q", "cq", vec![]),
    ] {
        let mut workload = admitted(&job);
        workload.spec.queue_name = Some(queue.to_owned());
        workload.status.admission.as_mut().unwrap().cluster_queue = cluster_queue.to_owned();
        let flavors = flavors();
        let terms = Terms { flavors: &flavors, names_queues, elastic: false };
        let patch = start(kind, &job.object, &sets, &workload, terms).unwrap().unwrap();
        let metadata = &patch["spec"]["template"]["metadata"];
        let mut labels = json!({ "kueue.x-k8s.io/podset": "main" });
        for (which, name) in named {
            labels[format!("kueue.x-k8s.io/{which}-queue-name")] = json!(name);
        }
        assert_eq!(metadata["labels"], labels);
        assert_eq!(metadata["annotations"], json!({ "kueue.x-k8s.io/workload": workload.metadata.name }));
    }
}

/// Kubernetes selects the pods of a Job by labels of its own, which Kueue leaves out of Workloads.
#[test]
fn labels_that_a_job_was_given_stay_and_are_no_edit() {
    let kind = &TABLE[0];
    let mut all = json!({
        "batch.kubernetes.io/controller-uid": "job-1", "batch.kubernetes.io/job-name": "sample",
        "controller-uid": "job-1", "job-name": "sample", "app": "llama",
    });
    let mut object = cases().remove(0).object;
    object["spec"]["template"]["metadata"] = json!({ "labels": all });
    let job = job(kind, object, json!({}));
    let composed = compose(&job, &priorities(), Gates::default()).unwrap();
    let described = &composed["spec"]["podSets"][0]["template"]["metadata"]["labels"];
    assert_eq!(described, &json!({ "batch.kubernetes.io/job-name": "sample", "app": "llama" }));

    let (sets, workload) = (job.view.pod_sets.clone().unwrap(), admitted(&job));
    let patch = start(kind, &job.object, &sets, &workload, terms(&flavors())).unwrap().unwrap();
    let started = patched(&job, &patch);
    for (key, value) in all.as_object().unwrap() {
        assert_eq!(started.spec["template"]["metadata"]["labels"][key], *value, "{key}");
    }
    let patch = restore(kind, &started, &sets, &workload).unwrap();
    let restored = patched(&Job { object: started, ..job.clone() }, &patch);
    assert_eq!(restored.spec["template"], job.object.spec["template"], "as it was before");

    let step = |labels: &Value| {
        let mut waiting = composed.clone();
        waiting["spec"]["podSets"][0]["template"]["metadata"]["labels"] = labels.clone();
        next(&job, Some(&serde_json::from_value(waiting).unwrap()), Known::default())
    };
    assert_eq!(step(&all), Step::Nothing);
    assert_eq!(step(&json!({ "app": "llama" })), Step::Nothing);
    all["app"] = json!("bert");
    assert_eq!(step(&all), Step::UpdateWorkload);
}

/// A Workload holds one variable of a name: the one that counts.
#[test]
fn of_variables_with_one_name_the_last_is_described() {
    let mut object = cases().remove(0).object;
    let variable = |name: &str, value: &str| json!({ "name": name, "value": value });
    let written = [variable("A", "1"), variable("B", "2"), variable("A", "3")];
    let counted = json!([variable("A", "3"), variable("B", "2")]);
    let spec = &mut object["spec"]["template"]["spec"];
    spec["initContainers"] = json!([{ "name": "first", "env": written }, { "name": "second" }]);
    spec["containers"][0]["env"] = json!(written);
    let composed = compose(&job(&TABLE[0], object, json!({})), &priorities(), Gates::default()).unwrap();
    let described = &composed["spec"]["podSets"][0]["template"]["spec"];
    assert_eq!(described["containers"][0]["env"], counted);
    assert_eq!(
        described["initContainers"],
        json!([{ "name": "first", "env": counted }, { "name": "second" }])
    );
}

/// As Kueue reads it; the webhook refuses what is no number above 0.
#[test]
fn a_time_that_is_none_limits_nothing() {
    for (written, seconds) in [
        ("600", json!(600)),
        ("3000000000", Value::Null),
        ("0", Value::Null),
        ("-5", Value::Null),
        ("1h", Value::Null),
    ] {
        let mut job = job(&TABLE[0], cases().remove(0).object, json!({}));
        let label = ("kueue.x-k8s.io/max-exec-time-seconds".to_owned(), written.to_owned());
        job.object.metadata.labels.as_mut().unwrap().extend([label]);
        let composed = compose(&job, &priorities(), Gates::default()).unwrap();
        assert_eq!(composed["spec"]["maximumExecutionTimeSeconds"], seconds, "{written}");
        let workload = serde_json::from_value(composed).unwrap();
        assert_eq!(next(&job, Some(&workload), Known::default()), Step::Nothing, "{written}");
    }
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
        json!({ "annotations": { "kueue.x-k8s.io/podset-unconstrained-topology": "perhaps" } });
    for (object, words) in [
        (with(&format!("{worker}/replicas"), json!(-1)), "replicas is -1"),
        (with(&format!("{worker}/replicas"), json!(1u64 << 40)), "whole number"),
        (with(&format!("{worker}/replicas"), json!("three")), "whole number"),
        (with(&format!("{worker}/template"), json!("text")), "no pod template"),
        (with("/spec/pytorchReplicaSpecs", json!({})), "describes no pods"),
        (with("/spec/pytorchReplicaSpecs", json!([1])), "describes no pods"),
        (with("/spec", json!("text")), "describes no pods"),
        (annotated, "podset-unconstrained-topology"),
        (with(&format!("{worker}/template/spec/priorityClassName"), json!("unknown")), ""),
    ] {
        let job = job(pytorch, object, json!({}));
        match compose(&job, &priorities(), Gates::default()) {
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
        compose(&job(kind, object, json!({})), &priorities(), Gates::default()).unwrap()
    };
    let after = json!([{ "name": "driver", "status": "Complete" }]);
    let job_sets = [
        ("all at once", job_set(json!([]), json!({ "startupPolicyOrder": "AnyOrder" })), Value::Null),
        ("dependsOn", job_set(after, Value::Null), json!("pod-set")),
        ("in order", job_set(Value::Null, json!({ "startupPolicyOrder": "InOrder" })), json!("pod-set")),
    ];
    for (name, workload, gang) in job_sets {
        assert_eq!(workload["metadata"]["annotations"]["trireme.dev/gang"], gang, "{name}");
    }
    let gang = |id: (&'static str, &'static str), field: &str, value: Value| {
        let case = cases().into_iter().find(|case| case.id == id).unwrap();
        let mut object = case.object;
        object["spec"][field] = value;
        let kind = TABLE.iter().find(|kind| kind.id() == case.id).unwrap();
        compose(&job(kind, object, json!({})), &priorities(), Gates::default()).unwrap()["metadata"]["annotations"]["trireme.dev/gang"].clone()
    };
    let (mpi, ray) = (("kubeflow.org/mpijob", "v2beta1"), ("ray.io/rayjob", "v1"));
    for (kind, field, value, wanted) in [
        (mpi, "launcherCreationPolicy", json!("AtStartup"), Value::Null),
        (mpi, "launcherCreationPolicy", json!("WaitForWorkersReady"), json!("pod-set")),
        (ray, "submissionMode", Value::Null, Value::Null),
        (ray, "submissionMode", json!("K8sJobMode"), json!("pod-set")),
        (ray, "submissionMode", json!("HTTPMode"), Value::Null),
    ] {
        assert_eq!(gang(kind, field, value.clone()), wanted, "{field}: {value}");
    }
}

#[test]
fn a_cluster_that_resizes_itself_is_refused() {
    let case = cases().into_iter().find(|case| case.id.0 == "ray.io/raycluster").unwrap();
    let kind = TABLE.iter().find(|kind| kind.id() == case.id).unwrap();
    let mut object = case.object;
    object["spec"]["enableInTreeAutoscaling"] = json!(true);
    let error = compose(&job(kind, object, json!({})), &priorities(), Gates::default()).unwrap_err();
    assert!(error.contains("spec.enableInTreeAutoscaling"), "{error}");
}

/// A job of three pods that accepts two.
#[test]
fn who_accepts_fewer_pods_is_started_with_as_many_as_were_granted() {
    let kind = &TABLE[0];
    let mut given = job(
        kind,
        json!({ "spec": {
            "suspend": true, "parallelism": 3, "completions": 3, "completionMode": "Indexed", "template": template(),
        }}),
        json!({}),
    );
    given.object.metadata.annotations = Some(
        [
            ("kueue.x-k8s.io/job-min-parallelism".to_owned(), "2".to_owned()),
            ("kueue.x-k8s.io/job-completions-equal-parallelism".to_owned(), "True".to_owned()),
        ]
        .into(),
    );
    given.view = read(kind, &given.object);
    let composed = compose(&given, &priorities(), Gates::default()).unwrap();
    assert_eq!(composed["spec"]["podSets"][0]["minCount"], 2);
    let sets = given.view.pod_sets.clone().unwrap();
    let mut workload = admitted(&given);
    workload.status.admission.as_mut().unwrap().pod_set_assignments[0].count = Some(2);
    let patch = start(kind, &given.object, &sets, &workload, terms(&flavors())).unwrap().unwrap();
    let started = patched(&given, &patch);
    assert_eq!((&started.spec["parallelism"], &started.spec["completions"]), (&json!(2), &json!(2)));
    let running = Job { view: read(kind, &started), object: started, ..given };
    let sets = running.view.pod_sets.clone().unwrap();
    assert!(describes(&workload, &running, &sets), "it is not stopped for it");
    let patch = restore(kind, &running.object, &sets, &workload).unwrap();
    let restored = patched(&running, &patch);
    assert_eq!((&restored.spec["parallelism"], &restored.spec["completions"]), (&json!(3), &json!(3)));
}

#[test]
fn a_ray_job_submits_by_a_pod_from_the_head_or_elsewhere() {
    let case = cases().into_iter().find(|case| case.id.0 == "ray.io/rayjob").unwrap();
    let kind = TABLE.iter().find(|kind| kind.id() == case.id).unwrap();
    let mut beside = case.object.clone();
    beside["spec"]["submissionMode"] = json!("SidecarMode");
    let workload = compose(&job(kind, beside, json!({})), &priorities(), Gates::default()).unwrap();
    let sets = workload["spec"]["podSets"].as_array().unwrap();
    assert_eq!(sets.len(), 3);
    assert_eq!(sets[0]["template"]["spec"]["containers"][1]["name"], "ray-job-submitter");
    for mode in [json!("HTTPMode"), Value::Null] {
        let mut by_hand = case.object.clone();
        by_hand["spec"]["submissionMode"] = mode;
        assert_eq!(job(kind, by_hand, json!({})).view.pod_sets.unwrap().len(), 3);
    }
    let mut elsewhere = case.object;
    elsewhere["spec"]["clusterSelector"] = json!({ "ray.io/cluster": "shared" });
    assert!(job(kind, elsewhere, json!({})).object.runs_elsewhere(kind));
}

#[test]
fn what_is_described_by_a_child_waits_for_it() {
    let case = cases().into_iter().find(|case| case.id.0.ends_with("/trainjob")).unwrap();
    let kind = TABLE.iter().find(|kind| kind.id() == case.id).unwrap();
    let mut object = case.object;
    object.as_object_mut().unwrap().remove("child");
    let job = job(kind, object, json!({}));
    assert!(job.object.awaits_child(kind));
    assert_eq!(next(&job, None, Known::default()), Step::Nothing);
}

/// Its Workload is deleted, and its JobSet is still as that one's admission made it.
#[test]
fn what_is_described_by_a_child_is_described_anew_when_that_is() {
    let case = cases().into_iter().find(|case| case.id.0.ends_with("/trainjob")).unwrap();
    let kind = TABLE.iter().find(|kind| kind.id() == case.id).unwrap();
    let mut object = case.object;
    object["spec"].as_object_mut().unwrap().remove("runtimePatches");
    let workload = compose(&job(kind, object.clone(), json!({})), &priorities(), Gates::default()).unwrap();
    let mut workload: Workload = serde_json::from_value(workload).unwrap();
    workload.metadata.finalizers = Some(vec!["kueue.x-k8s.io/resource-in-use".to_owned()]);
    workload.metadata.deletion_timestamp =
        Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
    for (named, wanted) in [
        (workload.metadata.name.clone(), Step::Nothing),
        (Some("another".to_owned()), Step::RemoveFinalizer),
        (None, Step::RemoveFinalizer),
    ] {
        let mut object = object.clone();
        object["child"]["replicatedJobs"][1]["template"]["spec"]["template"]["metadata"] =
            json!({ "annotations": { "kueue.x-k8s.io/workload": named } });
        let step = next(&job(kind, object, json!({})), Some(&workload), Known::default());
        assert_eq!(step, wanted, "{named:?}");
    }
}
