//! The program in a simulated cluster: one job's way, reasons, reclaim, crashes, and how many writes each takes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::path::Path;
use std::time::Duration;

use admission_controller::{Config, Configuration};
use serde_json::{Value, json};
use support::{World, owned_by, pytorch};

#[tokio::test(start_paused = true)]
async fn a_job_is_wrapped_admitted_and_started_with_three_writes() {
    let world = World::running(8).await;
    let before = world.cluster.revision();
    let job = world.pytorch("llama", "a", 4).await;
    world.settle().await;

    let workload = world.workload("llama").unwrap();
    assert_eq!(workload["spec"]["podSets"][0]["name"], "worker");
    assert_eq!(workload["spec"]["podSets"][0]["count"], 4);
    assert_eq!(workload["spec"]["queueName"], "a");
    assert_eq!(workload["metadata"]["finalizers"], json!(["kueue.x-k8s.io/resource-in-use"]));
    assert_eq!(workload["metadata"]["ownerReferences"][0]["uid"], job.value()["metadata"]["uid"]);
    assert!(workload["metadata"]["name"].as_str().unwrap().starts_with("pytorchjob-llama-"));
    let assignment = &workload["status"]["admission"]["podSetAssignments"][0];
    assert_eq!(assignment["flavors"], json!({ "nvidia.com/gpu": "a100" }));
    assert_eq!(assignment["resourceUsage"], json!({ "nvidia.com/gpu": "4" }));
    assert!(world.is("llama", "QuotaReserved") && world.is("llama", "Admitted"));

    assert!(!world.is_suspended("llama"));
    let template = world.job("llama")["spec"]["pytorchReplicaSpecs"]["Worker"]["template"].clone();
    assert_eq!(template["spec"]["nodeSelector"], json!({ "gpu": "a100" }));
    let marks = json!({
        "kueue.x-k8s.io/podset": "worker",
        "kueue.x-k8s.io/local-queue-name": "a",
        "kueue.x-k8s.io/cluster-queue-name": "a",
    });
    assert_eq!(template["metadata"]["labels"], marks);
    assert_eq!(
        template["metadata"]["annotations"]["kueue.x-k8s.io/workload"],
        world.workload_name("llama").as_str()
    );
    assert_eq!(
        world.writes("layer1", before),
        [
            "Create workloads/",
            "Patch workloads/status",
            "Patch pytorchjobs/",
            "Patch clusterqueues/status",
            "Patch localqueues/status"
        ]
    );

    let queue = world.get("kueue.x-k8s.io", "clusterqueues", "a").unwrap();
    assert_eq!(queue["status"]["admittedWorkloads"], 1);
    assert_eq!(queue["status"]["flavorsUsage"][0]["resources"][0]["total"], "4");
    assert_eq!(queue["status"]["conditions"][0]["reason"], "Ready");

    let quiet = world.attempts("layer1");
    world.settle().await;
    assert_eq!(world.attempts("layer1"), quiet, "nothing is written when nothing happens");

    let done = json!([{ "type": "Succeeded", "status": "True", "message": "well done" }]);
    world
        .update("kubeflow.org", "pytorchjobs", "llama", true, |job| {
            job["status"] = json!({ "conditions": done })
        })
        .await;
    world.settle().await;
    let (status, reason, message) = world.condition("llama", "Finished").unwrap();
    assert_eq!((status.as_str(), reason.as_str(), message.as_str()), ("True", "Succeeded", "well done"));
}

/// Jobs `first` and `second` of a queue that has room for one of them.
async fn one_runs_and_one_waits() -> World {
    let world = World::running(4).await;
    world.pytorch("first", "a", 3).await;
    world.settle().await;
    world.pytorch("second", "a", 3).await;
    world.settle().await;
    world
}

#[tokio::test(start_paused = true)]
async fn a_second_job_waits_with_a_reason_and_follows_the_first() {
    let world = one_runs_and_one_waits().await;
    let (status, reason, message) = world.condition("second", "QuotaReserved").unwrap();
    assert_eq!((status.as_str(), reason.as_str()), ("False", "WaitingForQuota"));
    assert!(message.contains("2 more nvidia.com/gpu of flavor a100 needed"), "{message}");
    assert!(world.is_suspended("second"));
    let failed = json!({ "conditions": [{ "type": "Failed", "status": "True", "message": "no" }] });
    world.update("kubeflow.org", "pytorchjobs", "first", true, |job| job["status"] = failed.clone()).await;
    world.settle().await;
    assert!(world.is("second", "Admitted") && !world.is_suspended("second"));
    assert_eq!(world.condition("first", "Finished").unwrap().1, "Failed");
}

#[tokio::test(start_paused = true)]
async fn a_check_that_its_queue_does_not_ask_for_holds_nobody_up() {
    let world = one_runs_and_one_waits().await;
    let name = world.workload_name("second");
    let left_over = json!([
        { "name": "old", "state": "Pending", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" },
    ]);
    let set = |workload: &mut Value| workload["status"]["admissionChecks"] = left_over.clone();
    world.update("kueue.x-k8s.io", "workloads", &name, true, set).await;
    let ended = json!({ "conditions": [{ "type": "Succeeded", "status": "True", "message": "" }] });
    world.update("kubeflow.org", "pytorchjobs", "first", true, |job| job["status"] = ended.clone()).await;
    world.settle().await;
    assert!(world.workload("second").unwrap()["status"]["admissionChecks"].is_null());
    assert!(world.is("second", "Admitted") && !world.is_suspended("second"));
}

#[tokio::test(start_paused = true)]
async fn a_borrower_is_reclaimed_and_comes_back() {
    let world = World::new(false).await;
    let any = json!({ "reclaimWithinCohort": "Any" });
    world.queue("a", "pool", json!({ "nominalQuota": 4, "borrowingLimit": 4 }), any.clone()).await;
    world.queue("b", "pool", json!({ "nominalQuota": 8 }), any).await;
    world.start("layer1");
    world.pytorch("borrower", "a", 8).await;
    world.settle().await;
    assert!(world.is("borrower", "Admitted"));
    let active = json!({ "replicaStatuses": { "Worker": { "active": 8 } } });
    world.update("kubeflow.org", "pytorchjobs", "borrower", true, |job| job["status"] = active.clone()).await;

    world.pytorch("owner", "b", 8).await;
    world.settle().await;
    let (status, reason, message) = world.condition("borrower", "Preempted").unwrap();
    assert_eq!((status.as_str(), reason.as_str()), ("True", "InCohortReclamation"));
    assert!(message.contains("preemptor path: /pool/b; preemptee path: /pool/a"), "{message}");
    assert!(world.is_suspended("borrower"), "the evicted job is stopped");
    let template = world.job("borrower")["spec"]["pytorchReplicaSpecs"]["Worker"]["template"].clone();
    assert_eq!(template["spec"].get("nodeSelector"), None, "and is as the user wrote it");
    assert_eq!(template.get("metadata"), None, "without marks");
    assert!(world.is("borrower", "QuotaReserved"), "its pods still run, so it holds its quota");
    assert_eq!(world.condition("owner", "QuotaReserved").unwrap().1, "WaitingForPreemptedWorkloads");

    let gone = json!({ "replicaStatuses": { "Worker": { "active": 0 } } });
    world.update("kubeflow.org", "pytorchjobs", "borrower", true, |job| job["status"] = gone.clone()).await;
    world.settle().await;
    assert!(world.is("owner", "Admitted") && !world.is_suspended("owner"));
    assert!(!world.is("borrower", "QuotaReserved") && !world.is("borrower", "Admitted"));
    assert!(world.workload("borrower").unwrap().pointer("/status/admission").is_none());
    let quiet = world.attempts("layer1");
    world.settle().await;
    assert_eq!(world.attempts("layer1"), quiet);
    assert!(world.is("owner", "Admitted"), "nobody strikes back");

    let done = json!({ "conditions": [{ "type": "Succeeded", "status": "True" }] });
    world.update("kubeflow.org", "pytorchjobs", "owner", true, |job| job["status"] = done.clone()).await;
    world.settle().await;
    assert!(world.is("borrower", "Admitted") && !world.is("borrower", "Evicted"));
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_moment_comes_out_the_same() {
    for crash_after in 1..=4 {
        let world = World::new(false).await;
        world.queue("a", "", json!({ "nominalQuota": 4 }), json!({})).await;
        let first = world.start("one");
        world.settle().await;
        let before = world.cluster.revision();
        world.pytorch("llama", "a", 4).await;
        world.pytorch("bert", "a", 4).await;
        while world.writes("one", before).len() < crash_after {
            world.cluster.clock().sleep(std::time::Duration::from_millis(1)).await;
        }
        first.kill();
        world.start("two");
        world.settle().await;
        world.settle().await;
        let admitted = ["llama", "bert"].iter().filter(|job| world.is(job, "Admitted")).count();
        assert_eq!(admitted, 1, "after {crash_after} writes");
        let running = ["llama", "bert"].iter().filter(|job| !world.is_suspended(job)).count();
        assert_eq!(running, 1, "after {crash_after} writes");
    }
}

#[tokio::test(start_paused = true)]
async fn webhooks_suspend_name_the_scheduler_and_deny_what_is_wrong() {
    let world = World::with_webhooks(0).await;
    let mut job = pytorch("llama", "a", 1);
    job["spec"].as_object_mut().unwrap().remove("runPolicy");
    world.create("kubeflow.org", "pytorchjobs", job).await;
    assert!(world.is_suspended("llama"));
    let template = world.job("llama")["spec"]["pytorchReplicaSpecs"]["Worker"]["template"].clone();
    assert_eq!(template["spec"]["schedulerName"], "trireme");
    let wrong = json!({ "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue",
        "metadata": { "name": "wrong" }, "spec": { "resourceGroups": [{
        "coveredResources": ["cpu"],
        "flavors": [{ "name": "a100", "resources": [{ "name": "cpu", "nominalQuota": "-1" }] }],
    }]}});
    let id = cluster_sim::GroupResource::new("kueue.x-k8s.io", "clusterqueues");
    let denied = world.cluster.store("user").create(&id, wrong).await.unwrap_err();
    assert!(format!("{denied:?}").contains("nominalQuota"), "{denied:?}");
}

#[tokio::test(start_paused = true)]
async fn what_slipped_past_the_webhook_is_suspended_and_what_is_not_ours_is_left_alone() {
    let world = World::running(0).await;
    let mut slipped = pytorch("slipped", "a", 1);
    slipped["spec"]["runPolicy"]["suspend"] = json!(false);
    world.create("kubeflow.org", "pytorchjobs", slipped.clone()).await;
    slipped["metadata"] = json!({ "name": "free", "namespace": "team" });
    world.create("kubeflow.org", "pytorchjobs", slipped).await;
    world.settle().await;
    assert!(world.is_suspended("slipped"));
    assert_eq!(world.condition("slipped", "QuotaReserved").unwrap().1, "ExceedsMaxQuota");
    assert!(!world.is_suspended("free") && world.workload("free").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_deleted_job_leaves_nothing_behind_and_frees_its_quota() {
    let world = World::running(4).await;
    world.pytorch("gone", "a", 4).await;
    world.settle().await;
    world.pytorch("next", "a", 4).await;
    world.settle().await;
    let id = cluster_sim::GroupResource::new("kubeflow.org", "pytorchjobs");
    world.cluster.store("user").delete(&id, "team", "gone", Default::default()).await.unwrap();
    world.settle().await;
    assert!(world.workload("gone").is_none());
    assert!(world.is("next", "Admitted") && !world.is_suspended("next"));
}

#[tokio::test(start_paused = true)]
async fn a_job_that_changed_while_it_waited_is_described_anew() {
    let world = World::running(4).await;
    world.pytorch("llama", "a", 8).await;
    world.settle().await;
    assert_eq!(world.condition("llama", "QuotaReserved").unwrap().1, "ExceedsMaxQuota");
    world
        .update("kubeflow.org", "pytorchjobs", "llama", false, |job| {
            job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = json!(2);
        })
        .await;
    world.settle().await;
    assert_eq!(world.workload("llama").unwrap()["spec"]["podSets"][0]["count"], 2);
    assert!(world.is("llama", "Admitted"));
}

#[tokio::test(start_paused = true)]
async fn pods_that_have_ended_give_their_quota_back_while_the_job_goes_on() {
    let world = World::running(4).await;
    let container = json!({ "name": "c", "image": "x", "resources": { "limits": { "nvidia.com/gpu": 1 } } });
    let first = json!({
        "metadata": { "name": "first", "namespace": "team", "labels": { "kueue.x-k8s.io/queue-name": "a" } },
        "spec": {
            "suspend": true, "parallelism": 3, "completions": 3,
            "template": { "spec": { "restartPolicy": "Never", "containers": [container] } },
        },
    });
    world.create("batch", "jobs", first).await;
    world.settle().await;
    world.pytorch("second", "a", 2).await;
    world.settle().await;
    assert!(world.is("first", "Admitted") && !world.is("second", "Admitted"));
    let asked = world.workload("second").unwrap()["status"]["resourceRequests"].clone();
    assert_eq!(asked, json!([{ "name": "worker", "resources": { "nvidia.com/gpu": "2" } }]));

    let one_done = json!({ "active": 2, "succeeded": 1 });
    world.update("batch", "jobs", "first", true, |job| job["status"] = one_done.clone()).await;
    world.settle().await;
    let status = world.workload("first").unwrap()["status"].clone();
    assert_eq!(status["reclaimablePods"], json!([{ "name": "main", "count": 1 }]));
    assert_eq!(status["admission"]["podSetAssignments"][0]["count"], 3, "what it was given stays written");
    assert!(world.is("second", "Admitted"));
    assert!(world.workload("second").unwrap()["status"].get("resourceRequests").is_none());
    let queue = world.get("kueue.x-k8s.io", "clusterqueues", "a").unwrap();
    assert_eq!(queue["status"]["flavorsUsage"][0]["resources"][0]["total"], "4");
}

/// With the gate for it, a workload says at once that it waits; without, it has its turn.
#[tokio::test(start_paused = true)]
async fn a_new_workload_says_at_once_that_it_waits_where_that_is_wanted() {
    let mut waited = Vec::new();
    for open in [true, false] {
        let world = World::new(false).await;
        world.queue("a", "", json!({ "nominalQuota": 1 }), json!({})).await;
        let text = format!("featureGates:\n  UnadmittedWorkloadsExplicitStatus: {open}\n");
        let file = Configuration::parse(Path::new("config.yaml"), &text).unwrap();
        assert!(file.notices.is_empty());
        world.start_with("layer1", Config { file, ..Config::default() });
        world.settle().await;
        world.pytorch("llama", "a", 4).await;
        let mut steps = 0;
        while world.condition("llama", "QuotaReserved").is_none() {
            world.sleep(Duration::from_millis(1)).await;
            steps += 1;
        }
        waited.push(steps);
        assert_eq!(world.condition("llama", "Admitted").unwrap().1, "NoReservation");
        world.settle().await;
        assert_eq!(world.condition("llama", "QuotaReserved").unwrap().1, "ExceedsMaxQuota");
    }
    assert!(waited[0] < waited[1], "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn pods_do_not_name_their_queues_where_the_gate_for_it_is_closed() {
    let world = World::new(false).await;
    world.queue("a", "", json!({ "nominalQuota": 4 }), json!({})).await;
    let text = "featureGates:\n  AssignQueueLabelsForPods: false\n";
    let file = Configuration::parse(Path::new("config.yaml"), text).unwrap();
    assert!(file.notices.is_empty());
    world.start_with("layer1", Config { file, ..Config::default() });
    world.pytorch("llama", "a", 4).await;
    world.settle().await;
    let template = world.job("llama")["spec"]["pytorchReplicaSpecs"]["Worker"]["template"].clone();
    assert_eq!(template["metadata"]["labels"], json!({ "kueue.x-k8s.io/podset": "worker" }));
}

/// A RayJob of one pod.
fn ray_job() -> Value {
    let container =
        json!({ "name": "ray", "image": "ray", "resources": { "limits": { "nvidia.com/gpu": 1 } } });
    let cluster = json!({ "headGroupSpec": { "template": { "spec": { "containers": [container] } } } });
    json!({
        "metadata": { "name": "ray", "namespace": "team", "labels": { "kueue.x-k8s.io/queue-name": "a" } },
        "spec": { "suspend": true, "submissionMode": "HTTPMode", "rayClusterSpec": cluster },
    })
}

/// A pod that comes when the others run is not waited for with them, however the Workload was made.
#[tokio::test(start_paused = true)]
async fn what_waits_says_whether_its_pods_come_in_steps() {
    let world = World::new(false).await;
    world.start("layer1");
    world.create("ray.io", "rayjobs", ray_job()).await;
    world.settle().await;
    let said = || world.workload("ray").unwrap()["metadata"]["annotations"]["trireme.dev/gang"].clone();
    assert_eq!(said(), Value::Null);
    for (mode, wanted) in [("K8sJobMode", json!("pod-set")), ("HTTPMode", Value::Null)] {
        let change = |job: &mut Value| job["spec"]["submissionMode"] = json!(mode);
        world.update("ray.io", "rayjobs", "ray", false, change).await;
        world.settle().await;
        assert_eq!(said(), wanted, "{mode}");
    }
    // As an earlier version or Kueue made it.
    world
        .update("ray.io", "rayjobs", "ray", false, |job| job["spec"]["submissionMode"] = json!("K8sJobMode"))
        .await;
    world.settle().await;
    let name = world.workload_name("ray");
    world
        .update("kueue.x-k8s.io", "workloads", &name, false, |one| {
            one["metadata"]["annotations"] = Value::Null
        })
        .await;
    world.settle().await;
    assert_eq!(said(), json!("pod-set"));
}

/// KubeRay says of a RayJob that it is not valid, and later that it is.
#[tokio::test(start_paused = true)]
async fn a_job_that_cannot_run_as_it_is_written_has_no_quota_until_it_can() {
    let world = World::running(1).await;
    world.create("ray.io", "rayjobs", ray_job()).await;
    world.settle().await;
    world.pytorch("next", "a", 1).await;
    world.settle().await;
    assert!(world.is("ray", "Admitted") && !world.is("next", "Admitted"));
    let says = async |status: Value| {
        world.update("ray.io", "rayjobs", "ray", true, |job| job["status"] = status.clone()).await;
        world.settle().await;
    };
    let is_suspended = || world.get("ray.io", "rayjobs", "ray").unwrap()["spec"]["suspend"] == true;

    says(json!({ "jobDeploymentStatus": "ValidationFailed", "message": "no entrypoint" })).await;
    let (status, reason, message) = world.condition("ray", "QuotaReserved").unwrap();
    assert_eq!((status.as_str(), reason.as_str()), ("False", "OnHold"));
    assert!(message.contains("status.jobDeploymentStatus is ValidationFailed: no entrypoint"), "{message}");
    assert!(!world.is("ray", "Admitted") && world.is("next", "Admitted"));
    let quiet = world.attempts("layer1");
    world.settle().await;
    assert_eq!(world.attempts("layer1"), quiet);

    says(json!({ "jobDeploymentStatus": "Initializing" })).await;
    assert!(is_suspended(), "it has no quota yet");
    says(json!({ "jobDeploymentStatus": "Suspended" })).await;
    assert_eq!(world.condition("ray", "QuotaReserved").unwrap().1, "WaitingForQuota");
    let done = json!({ "conditions": [{ "type": "Succeeded", "status": "True" }] });
    world.update("kubeflow.org", "pytorchjobs", "next", true, |job| job["status"] = done.clone()).await;
    world.settle().await;
    assert!(world.is("ray", "Admitted") && !is_suspended());
}

/// The reason stays word for word, and is said of what the workload is now.
#[tokio::test(start_paused = true)]
async fn a_waiting_workload_that_is_edited_says_for_what_it_waits_now() {
    let world = World::new(false).await;
    let group = "kueue.x-k8s.io";
    world.queue("a", "", json!({ "nominalQuota": 4 }), json!({})).await;
    let nobody = |queue: &mut Value| {
        queue["spec"]["namespaceSelector"] = json!({ "matchLabels": { "team": "nobody" } });
    };
    world.update(group, "clusterqueues", "a", false, nobody).await;
    world.start("layer1");
    world.settle().await;
    let container = json!({ "name": "c", "image": "x", "resources": { "limits": { "nvidia.com/gpu": 1 } } });
    let set = json!({ "name": "main", "count": 1, "template": { "spec": { "containers": [container] } } });
    let workload = json!({
        "metadata": { "name": "llama", "namespace": "team" }, "spec": { "queueName": "a", "podSets": [set] },
    });
    world.create(group, "workloads", workload).await;
    let mut asked = Vec::new();
    for count in [1, 2] {
        let resize = |workload: &mut Value| workload["spec"]["podSets"][0]["count"] = json!(count);
        world.update(group, "workloads", "llama", false, resize).await;
        world.settle().await;
        let workload = world.workload_named("llama").unwrap();
        let conditions = workload["status"]["conditions"].as_array().unwrap();
        assert_eq!(conditions[0]["reason"], "Misconfigured");
        let is_current = |one: &Value| one["observedGeneration"] == workload["metadata"]["generation"];
        assert!(conditions.iter().all(is_current), "{workload}");
        asked.push(workload["status"]["resourceRequests"][0]["resources"]["nvidia.com/gpu"].clone());
        let quiet = world.attempts("layer1");
        world.pass(120).await;
        assert_eq!(world.attempts("layer1"), quiet);
    }
    assert_eq!(asked, ["1", "2"]);
}

/// What owns it is of a managed kind, and waits in no queue.
#[tokio::test(start_paused = true)]
async fn a_job_of_a_job_set_without_a_queue_is_made_suspended() {
    let world = World::with_webhooks(1).await;
    let set = json!({ "metadata": { "name": "set", "namespace": "team" }, "spec": { "replicatedJobs": [] } });
    let set = world.create("jobset.x-k8s.io", "jobsets", set).await;
    world.settle().await;
    let gpu = json!({ "limits": { "nvidia.com/gpu": 1 } });
    let job = json!({
        "metadata": {
            "name": "part", "namespace": "team", "labels": { "kueue.x-k8s.io/queue-name": "a" },
            "ownerReferences": owned_by(set.value()),
        },
        "spec": { "template": { "spec": {
            "restartPolicy": "Never", "containers": [{ "name": "c", "image": "x", "resources": gpu }],
        }}},
    });
    let made = world.create("batch", "jobs", job).await;
    assert_eq!(made.value()["spec"]["suspend"], true);
    world.settle().await;
    assert!(world.is("part", "Admitted"));
    assert_eq!(world.get("batch", "jobs", "part").unwrap()["spec"]["suspend"], false);
    assert!(!world.told_of("Job", "part").contains(&"Stopped".to_owned()), "it never ran before");
}
