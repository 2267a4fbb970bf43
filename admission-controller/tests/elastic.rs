//! Elastic jobs: resized while they run.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use admission_controller::{Config, Configuration};
use cluster_sim::faults::{Aim, Fault, Moment, Verdict};
use cluster_sim::{GroupResource, Verb};
use serde_json::{Value, json};
use support::{World, owned_by};

const GATE: &str = "kueue.x-k8s.io/elastic-job";
const CHAIN: &str = "kueue.x-k8s.io/workload-slice-name";
const REPLACES: &str = "kueue.x-k8s.io/workload-slice-replacement-for";
const HOST: &str = "kubernetes.io/hostname";

async fn job(world: &World, parallelism: i64) {
    job_of(world, json!({ "parallelism": parallelism })).await;
}

async fn job_of(world: &World, mut spec: Value) {
    let gpu = json!({ "limits": { "nvidia.com/gpu": 1 } });
    let container = json!({ "name": "c", "image": "i", "resources": gpu });
    spec["template"] = json!({ "spec": { "restartPolicy": "Never", "containers": [container] } });
    let object = json!({
        "metadata": {
            "name": "grows", "namespace": "team",
            "labels": { "kueue.x-k8s.io/queue-name": "a" }, "annotations": { GATE: "true" },
        },
        "spec": spec,
    });
    world.create("batch", "jobs", object).await;
    world.settle().await;
}

fn slices(world: &World) -> Vec<Value> {
    let id = GroupResource::new("kueue.x-k8s.io", "workloads");
    let mut all: Vec<Value> =
        world.cluster.store("reader").list(&id, Some("team")).iter().map(|one| one.value().clone()).collect();
    all.sort_by_key(|one| one["metadata"]["creationTimestamp"].to_string());
    all
}

/// Count, whether it is admitted, and the reason of its end, of each slice.
fn said(world: &World) -> Vec<(i64, bool, String)> {
    let of = |slice: &Value| {
        let condition = |kind: &str| {
            let all = slice["status"]["conditions"].as_array().cloned().unwrap_or_default();
            all.into_iter().find(|one| one["type"] == kind && one["status"] == "True")
        };
        let end =
            condition("Finished").map_or(String::new(), |one| one["reason"].as_str().unwrap().to_owned());
        (slice["spec"]["podSets"][0]["count"].as_i64().unwrap(), condition("Admitted").is_some(), end)
    };
    slices(world).iter().map(of).collect()
}

/// Makes a pod of the job as its controller would.
async fn pod(world: &World, name: &str) {
    let job = world.get("batch", "jobs", "grows").unwrap();
    pod_of(world, name, &job["spec"]["template"]).await;
}

async fn pod_of(world: &World, name: &str, template: &Value) {
    let metadata = json!({
        "name": name, "namespace": "team",
        "labels": template["metadata"]["labels"], "annotations": template["metadata"]["annotations"],
    });
    world.create("", "pods", json!({ "metadata": metadata, "spec": template["spec"] })).await;
}

fn is_gated(world: &World, pod: &str) -> bool {
    world.is_behind(GATE, pod)
}

async fn resize(world: &World, parallelism: i64) {
    world.pass(2).await;
    world
        .update("batch", "jobs", "grows", false, |job| job["spec"]["parallelism"] = json!(parallelism))
        .await;
    world.settle().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_grows_by_a_second_workload_and_shrinks_in_place() {
    let world = World::with_webhooks(4).await;
    job(&world, 2).await;
    assert_eq!(said(&world), [(2, true, String::new())]);
    let started = world.get("batch", "jobs", "grows").unwrap();
    assert_eq!(started["spec"]["suspend"], false);
    let template = &started["spec"]["template"];
    let first = slices(&world)[0]["metadata"]["name"].clone();
    assert_eq!(
        (&template["metadata"]["annotations"][CHAIN], &template["spec"]["schedulingGates"][0]["name"]),
        (&first, &json!(GATE))
    );
    for name in ["p0", "p1", "p2"] {
        pod(&world, name).await;
    }
    world.settle().await;
    assert_eq!(
        ["p0", "p1", "p2"].map(|name| is_gated(&world, name)),
        [false, false, true],
        "there is quota for two"
    );

    resize(&world, 4).await;
    assert_eq!(said(&world), [(2, true, "WorkloadSliceReplaced".to_owned()), (4, true, String::new())]);
    let second = slices(&world)[1].clone();
    let annotations = &second["metadata"]["annotations"];
    let replaced = format!("team/{}", first.as_str().unwrap());
    assert_eq!((&annotations[CHAIN], &annotations[REPLACES]), (&first, &json!(replaced)));
    assert!(
        second["spec"]["podSets"][0]["template"]["spec"].get("nodeSelector").is_none(),
        "as the user wrote it"
    );
    assert!(!is_gated(&world, "p2"));
    let queue = world.get("kueue.x-k8s.io", "clusterqueues", "a").unwrap();
    assert_eq!(queue["status"]["flavorsReservation"][0]["resources"][0]["total"], "4");
    assert_eq!(world.get("batch", "jobs", "grows").unwrap()["spec"]["suspend"], false, "it never stopped");

    assert!(!world.told().iter().any(|one| one.1 == "FinishedWorkload"), "the job goes on");
    let counted = world.metrics().await;
    let gates = "kueue_pod_scheduling_gate_removal_seconds_count";
    let of_ours = |line: &&str| line.starts_with(gates) && line.contains(GATE);
    assert!(counted.lines().filter(of_ours).any(|line| line.ends_with(" 3")), "{counted}");

    resize(&world, 3).await;
    assert_eq!(said(&world)[1], (3, true, String::new()), "no third one");
    let queue = world.get("kueue.x-k8s.io", "clusterqueues", "a").unwrap();
    assert_eq!(queue["status"]["flavorsReservation"][0]["resources"][0]["total"], "3");

    let done = json!({ "conditions": [{ "type": "Complete", "status": "True" }] });
    world.update("batch", "jobs", "grows", true, |job| job["status"] = done.clone()).await;
    world.settle().await;
    assert_eq!(said(&world)[1].2, "Succeeded");
    assert!(world.told().iter().any(|one| one.1 == "FinishedWorkload"), "{:?}", world.told());
}

#[tokio::test(start_paused = true)]
async fn a_job_that_has_no_room_to_grow_goes_on_as_it_is() {
    let world = World::with_webhooks(4).await;
    job(&world, 2).await;
    for name in ["p0", "p1"] {
        pod(&world, name).await;
    }
    resize(&world, 6).await;
    assert_eq!(said(&world), [(2, true, String::new()), (6, false, String::new())]);
    pod(&world, "p2").await;
    world.settle().await;
    assert_eq!(["p0", "p1", "p2"].map(|name| is_gated(&world, name)), [false, false, true]);
    assert_eq!(world.get("batch", "jobs", "grows").unwrap()["spec"]["suspend"], false);
    let waits = slices(&world)[1]["status"]["conditions"].to_string();
    assert!(waits.contains("WaitingForQuota"), "{waits}");

    resize(&world, 3).await;
    assert_eq!(said(&world), [(2, true, "WorkloadSliceReplaced".to_owned()), (3, true, String::new())]);
    assert!(!is_gated(&world, "p2"));
    let quiet = world.attempts("layer1");
    world.settle().await;
    assert_eq!(world.attempts("layer1"), quiet);
}

/// The only check of a slice is passed, and wants this of the job's pods.
async fn answer(world: &World, slice: usize, mut update: Value) {
    let (slice, now) = (slices(world)[slice].clone(), world.stamp());
    update["name"] = json!("main");
    let ready = |workload: &mut Value| {
        let state = &mut workload["status"]["admissionChecks"][0];
        (state["state"], state["lastTransitionTime"]) = (json!("Ready"), json!(now));
        state["podSetUpdates"] = json!([update]);
    };
    let name = slice["metadata"]["name"].as_str().unwrap();
    world.update("kueue.x-k8s.io", "workloads", name, true, ready).await;
    world.settle().await;
}

#[tokio::test(start_paused = true)]
async fn new_pods_get_what_the_checks_of_their_slice_want_and_those_that_select_other_nodes_wait() {
    const REQUEST: &str = "autoscaling.x-k8s.io/consume-provisioning-request";
    const CLASS: &str = "autoscaling.x-k8s.io/provisioning-class-name";
    let world = World::with_webhooks(4).await;
    world.checked("a").await;
    world.settle().await;
    job(&world, 2).await;
    let wanted = |request: &str, selector: Value| {
        let annotations = json!({ REQUEST: request, CLASS: "c", "example.com/note": request });
        json!({ "annotations": annotations, "nodeSelector": selector })
    };
    answer(&world, 0, wanted("first", json!({ "pool": "x" }))).await;
    for name in ["p0", "p1"] {
        pod(&world, name).await;
    }
    world.settle().await;
    assert_eq!(["p0", "p1"].map(|name| is_gated(&world, name)), [false, false]);

    resize(&world, 4).await;
    pod(&world, "p2").await;
    let mut template = world.get("batch", "jobs", "grows").unwrap()["spec"]["template"].clone();
    assert_eq!(template["metadata"]["annotations"][REQUEST], "first", "the job was started with it");
    pod(&world, "p3").await;
    template["spec"]["nodeSelector"]["rack"] = json!("z");
    pod_of(&world, "p1-z", &template).await;
    world.settle().await;
    let new = ["p1-z", "p2", "p3"];
    assert_eq!(new.map(|name| is_gated(&world, name)), [true; 3], "the second slice is not admitted");

    answer(&world, 1, wanted("second", json!({ "pool": "x", "rack": "y" }))).await;
    assert_eq!(said(&world)[1..], [(4, true, String::new())]);
    assert_eq!(new.map(|name| is_gated(&world, name)), [true, false, false]);
    let open = world.get("", "pods", "p3").unwrap();
    assert_eq!(open["spec"]["nodeSelector"], json!({ "gpu": "a100", "pool": "x", "rack": "y" }));
    let annotations = &open["metadata"]["annotations"];
    assert_eq!((&annotations[REQUEST], &annotations[CLASS]), (&json!("second"), &json!("c")));
    assert_eq!(annotations["example.com/note"], "first", "no other annotation changes");
    let quiet = world.attempts("layer1");
    world.settle().await;
    assert_eq!(world.attempts("layer1"), quiet);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_grew_before_it_was_started_starts_with_the_pods_that_have_quota() {
    let world = World::with_webhooks(4).await;
    world.checked("a").await;
    world.settle().await;
    job(&world, 2).await;
    resize(&world, 6).await;
    assert_eq!(said(&world), [(2, false, String::new()), (6, false, String::new())]);
    answer(&world, 0, json!({})).await;
    assert_eq!(said(&world), [(2, true, String::new()), (6, false, String::new())]);
    assert_eq!(world.get("batch", "jobs", "grows").unwrap()["spec"]["suspend"], false);
    for name in ["p0", "p1", "p2"] {
        pod(&world, name).await;
    }
    world.settle().await;
    assert_eq!(["p0", "p1", "p2"].map(|name| is_gated(&world, name)), [false, false, true]);
    let quiet = world.attempts("layer1");
    world.settle().await;
    assert_eq!(world.attempts("layer1"), quiet);

    resize(&world, 4).await;
    answer(&world, 1, json!({})).await;
    assert_eq!(said(&world), [(2, true, "WorkloadSliceReplaced".to_owned()), (4, true, String::new())]);
    assert!(!is_gated(&world, "p2"));
}

/// KubeRay makes the pod that cleans up after a cluster of the head's template, which has the gate.
#[tokio::test(start_paused = true)]
async fn what_cleans_up_after_a_deleted_job_waits_for_no_slice() {
    let world = World::with_webhooks(4).await;
    job(&world, 2).await;
    resize(&world, 5).await;
    for name in ["p0", "p1", "p2"] {
        pod(&world, name).await;
    }
    world.pass(2).await;
    let hold = |job: &mut Value| job["metadata"]["finalizers"] = json!(["example.com/hold"]);
    world.update("batch", "jobs", "grows", false, hold).await;
    let id = GroupResource::new("batch", "jobs");
    world.cluster.store("user").delete(&id, "team", "grows", Default::default()).await.unwrap();
    world.settle().await;
    let over = "OwnerNotFound".to_owned();
    assert_eq!(said(&world), [(2, true, over.clone()), (5, false, over)]);
    pod(&world, "cleanup").await;
    world.settle().await;
    let gated = ["p0", "p1", "p2", "cleanup"].map(|name| is_gated(&world, name));
    assert_eq!(gated, [false, false, true, false], "who had no quota gets none by this");
}

/// A foreign finalizer on the second of the slices; the names of all.
async fn hold_waiting(world: &World) -> Vec<String> {
    let name = |one: Value| one["metadata"]["name"].as_str().unwrap().to_owned();
    let names: Vec<String> = slices(world).into_iter().map(name).collect();
    let hold = |one: &mut Value| {
        one["metadata"]["finalizers"].as_array_mut().unwrap().push(json!("example.com/hold"));
    };
    world.update("kueue.x-k8s.io", "workloads", &names[1], false, hold).await;
    names
}

async fn delete_slice(world: &World, name: &str) {
    let id = GroupResource::new("kueue.x-k8s.io", "workloads");
    world.cluster.store("user").delete(&id, "team", name, Default::default()).await.unwrap();
}

/// Else the job would run on without a Workload that counts it.
#[tokio::test(start_paused = true)]
async fn a_job_whose_workloads_are_deleted_stops_though_somebody_holds_the_one_that_waits() {
    let world = World::with_webhooks(2).await;
    job(&world, 2).await;
    resize(&world, 4).await;
    assert_eq!(said(&world), [(2, true, String::new()), (4, false, String::new())]);
    let names = hold_waiting(&world).await;
    for name in &names {
        delete_slice(&world, name).await;
    }
    world.settle().await;
    assert_eq!(world.get("batch", "jobs", "grows").unwrap()["spec"]["suspend"], true);
}

/// The next one takes its place, or none: the job goes by the one with quota.
#[tokio::test(start_paused = true)]
async fn a_job_stops_when_it_is_evicted_though_somebody_holds_a_deleted_workload_that_waits() {
    let world = World::with_webhooks(2).await;
    job(&world, 2).await;
    resize(&world, 4).await;
    let names = hold_waiting(&world).await;
    delete_slice(&world, &names[1]).await;
    world.settle().await;
    let off = |one: &mut Value| one["spec"]["active"] = json!(false);
    world.update("kueue.x-k8s.io", "workloads", &names[0], false, off).await;
    world.settle().await;
    assert_eq!(world.get("batch", "jobs", "grows").unwrap()["spec"]["suspend"], true);
}

/// From now on no Workload can be made.
fn refuse_workloads(world: &World) {
    let aim = Aim { verbs: vec![Verb::Create], ..Aim::default() };
    let aim = aim.by("layer1").on(GroupResource::new("kueue.x-k8s.io", "workloads"));
    world.cluster.faults().add(aim, 1_000_000, 1_000, Fault::Conflict);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_grew_before_it_was_started_starts_though_the_workload_of_more_pods_is_refused() {
    let world = World::with_webhooks(4).await;
    world.checked("a").await;
    world.settle().await;
    job(&world, 2).await;
    refuse_workloads(&world);
    resize(&world, 6).await;
    assert_eq!(said(&world), [(2, false, String::new())]);
    answer(&world, 0, json!({})).await;
    assert_eq!(said(&world), [(2, true, String::new())]);
    assert_eq!(world.get("batch", "jobs", "grows").unwrap()["spec"]["suspend"], false);
    for name in ["p0", "p1", "p2"] {
        pod(&world, name).await;
    }
    world.settle().await;
    assert_eq!(["p0", "p1", "p2"].map(|name| is_gated(&world, name)), [false, false, true]);
}

/// Whoever made it says for how many pods it is, and its end cannot be written now.
#[tokio::test(start_paused = true)]
async fn a_workload_that_somebody_else_made_is_never_resized() {
    let world = World::with_webhooks(4).await;
    let gpu = json!({ "requests": { "nvidia.com/gpu": "1" }, "limits": { "nvidia.com/gpu": "1" } });
    // As the job's is stored.
    let container = json!({
        "name": "c", "image": "i", "resources": gpu, "imagePullPolicy": "Always",
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
    });
    let template = json!({ "spec": { "restartPolicy": "Never", "containers": [container] } });
    let made = json!({
        "metadata": { "name": "mine", "namespace": "team", "annotations": { GATE: "true" } },
        "spec": { "queueName": "a", "podSets": [{ "name": "main", "count": 2, "template": template }] },
    });
    world.create("kueue.x-k8s.io", "workloads", made).await;
    let queue = json!({ "kueue.x-k8s.io/queue-name": "a", "kueue.x-k8s.io/prebuilt-workload-name": "mine" });
    let job = json!({
        "metadata": { "name": "grows", "namespace": "team", "labels": queue, "annotations": { GATE: "true" } },
        "spec": { "parallelism": 2, "template": template },
    });
    world.create("batch", "jobs", job).await;
    world.settle().await;
    assert_eq!(said(&world), [(2, true, String::new())]);
    let aim = Aim::writes().by("layer1").on(GroupResource::new("kueue.x-k8s.io", "workloads")).at("status");
    world.cluster.faults().add(aim, 1_000_000, 1_000, Fault::Conflict);
    resize(&world, 1).await;
    assert_eq!(said(&world), [(2, true, String::new())]);
    world.cluster.faults().clear();
    world.pass(120).await;
    assert_eq!(said(&world)[0], (2, true, "OutOfSync".to_owned()));
}

/// The Workload of the larger job is refused again and again; the queue is held meanwhile.
#[tokio::test(start_paused = true)]
async fn quota_comes_back_though_the_workload_of_more_pods_is_refused() {
    let world = World::with_webhooks(4).await;
    world.checked("a").await;
    world.settle().await;
    job(&world, 2).await;
    let held = || slices(&world)[0]["status"]["admission"].is_object();
    assert!(held());
    refuse_workloads(&world);
    resize(&world, 4).await;
    assert_eq!(slices(&world).len(), 1);
    let hold = |queue: &mut Value| queue["spec"]["stopPolicy"] = json!("Hold");
    world.update("kueue.x-k8s.io", "clusterqueues", "a", false, hold).await;
    world.settle().await;
    assert!(!held(), "{:?}", slices(&world));
}

/// Of four pods one had ended for good, so that three had quota; of three none has. What the Workload said of four must not count for
/// three, though its counts are written first.
#[tokio::test(start_paused = true)]
async fn a_job_that_shrinks_to_the_pods_that_are_left_sets_no_quota_free() {
    let world = World::with_webhooks(4).await;
    job_of(&world, json!({ "parallelism": 4, "completions": 16 })).await;
    let status = json!({ "succeeded": 13, "active": 3 });
    world.update("batch", "jobs", "grows", true, |job| job["status"] = status.clone()).await;
    world.settle().await;
    let reserved = || {
        let queue = world.get("kueue.x-k8s.io", "clusterqueues", "a").unwrap();
        queue["status"]["flavorsReservation"][0]["resources"][0]["total"].clone()
    };
    assert_eq!(reserved(), "3");
    let gpus = json!({ "limits": { "nvidia.com/gpu": 2 } });
    let waits = json!({
        "metadata": { "name": "waits", "namespace": "team", "labels": { "kueue.x-k8s.io/queue-name": "a" } },
        "spec": { "template": { "spec": {
            "restartPolicy": "Never", "containers": [{ "name": "c", "image": "i", "resources": gpus }],
        } } },
    });
    world.create("batch", "jobs", waits).await;
    resize(&world, 3).await;
    assert_eq!(slices(&world)[0]["status"].get("reclaimablePods"), Some(&json!([])));
    let is_admitted = || world.get("batch", "jobs", "waits").unwrap()["spec"]["suspend"] == false;
    assert_eq!((reserved(), is_admitted()), (json!("3"), false));

    let status = json!({ "succeeded": 14, "active": 2 });
    world.update("batch", "jobs", "grows", true, |job| job["status"] = status.clone()).await;
    world.settle().await;
    assert_eq!((reserved(), is_admitted()), (json!("4"), true));
}

/// A Ray cluster with as many workers, which an autoscaler resizes.
fn cluster(workers: i64) -> Value {
    let gpu = json!({ "limits": { "nvidia.com/gpu": 1 } });
    let template = |resources: &Value| json!({ "spec": { "containers": [{ "name": "ray", "image": "ray", "resources": resources }] } });
    json!({
        "enableInTreeAutoscaling": true, "autoscalerOptions": { "resources": {} },
        "headGroupSpec": { "template": template(&json!({})) },
        "workerGroupSpecs": [{ "groupName": "Workers", "replicas": workers, "template": template(&gpu) }],
    })
}

/// Name, workers, whether it is admitted, and the reason of its end, of each slice.
fn of_workers(world: &World) -> Vec<(String, i64, bool, String)> {
    let said = said(world);
    let told = slices(world).into_iter().zip(said).map(|(slice, (_, admitted, end))| {
        let workers = slice["spec"]["podSets"][1]["count"].as_i64().unwrap();
        (slice["metadata"]["name"].as_str().unwrap().to_owned(), workers, admitted, end)
    });
    told.collect()
}

#[tokio::test(start_paused = true)]
async fn a_job_follows_the_cluster_that_its_autoscaler_resizes() {
    for (resource, at, named) in [
        (
            "rayjobs",
            "/spec/rayClusterSpec",
            json!({ "rayClusterName": "r-1", "jobDeploymentStatus": "Running" }),
        ),
        (
            "rayservices",
            "/spec/rayClusterConfig",
            json!({ "activeServiceStatus": { "rayClusterName": "r-1" } }),
        ),
    ] {
        let world = World::with_webhooks(4).await;
        let (_, field) = at.rsplit_once('/').unwrap();
        let metadata = json!({
            "name": "r", "namespace": "team",
            "labels": { "kueue.x-k8s.io/queue-name": "a" }, "annotations": { GATE: "true" },
        });
        let spec =
            json!({ "shutdownAfterJobFinishes": true, "submissionMode": "HTTPMode", field: cluster(1) });
        let job = world.create("ray.io", resource, json!({ "metadata": metadata, "spec": spec })).await;
        world.settle().await;
        let group = job.value().pointer(&format!("{at}/workerGroupSpecs/0/template/spec/schedulingGates"));
        assert_eq!(group, Some(&json!([{ "name": GATE }])), "{resource}");
        let first = of_workers(&world);
        assert!(matches!(&first[..], [(_, 1, true, _)]), "{resource}: {first:?}");

        // One of another name, from before an upgrade, does not count.
        for (name, workers) in [("r-0", 9), ("r-1", 1)] {
            let job = world.get("ray.io", resource, "r").unwrap();
            let metadata = json!({ "name": name, "namespace": "team", "ownerReferences": owned_by(&job) });
            world
                .create("ray.io", "rayclusters", json!({ "metadata": metadata, "spec": cluster(workers) }))
                .await;
        }
        world.update("ray.io", resource, "r", true, |job| job["status"] = named.clone()).await;
        world.settle().await;
        assert_eq!(of_workers(&world), first, "{resource}");

        for (workers, wanted) in [
            (3, vec![(1, true, "WorkloadSliceReplaced"), (3, true, "")]),
            (2, vec![(1, true, "WorkloadSliceReplaced"), (2, true, "")]),
            (4, vec![(1, true, "WorkloadSliceReplaced"), (2, true, "WorkloadSliceReplaced"), (4, true, "")]),
        ] {
            world.pass(2).await;
            let scaled =
                |cluster: &mut Value| cluster["spec"]["workerGroupSpecs"][0]["replicas"] = json!(workers);
            world.update("ray.io", "rayclusters", "r-1", false, scaled).await;
            world.settle().await;
            let told = of_workers(&world);
            let told: Vec<_> =
                told.iter().map(|(_, count, admitted, end)| (*count, *admitted, end.as_str())).collect();
            assert_eq!(told, wanted, "{resource} {workers}");
        }
    }
}

/// Two nodes of three GPUs, and a queue of four, of a flavor with a topology. `joined`: slices are placed upon one another.
async fn on_hosts(joined: bool) -> World {
    let text = format!("featureGates:\n  ElasticJobsViaWorkloadSlicesWithTAS: {joined}\n");
    let file = Configuration::parse(Path::new("config.yaml"), &text).unwrap();
    let world = World::new(false).await;
    for name in ["n1", "n2"] {
        let ready = json!({ "type": "Ready", "status": "True", "reason": "", "message": "",
            "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z" });
        let node = json!({
            "metadata": { "name": name, "labels": { HOST: name, "gpu": "a100" } },
            "status": { "allocatable": { "nvidia.com/gpu": "3", "pods": "9" }, "conditions": [ready] },
        });
        world.create("", "nodes", node).await;
    }
    let levels = json!({ "metadata": { "name": "hosts" }, "spec": { "levels": [{ "nodeLabel": HOST }] } });
    world.create("kueue.x-k8s.io", "topologies", levels).await;
    world
        .update("kueue.x-k8s.io", "resourceflavors", "a100", false, |flavor| {
            flavor["spec"]["topologyName"] = json!("hosts");
        })
        .await;
    world.queue("a", "", json!({ "nominalQuota": 4 }), json!({})).await;
    world.start_with("layer1", Config { file: file.clone(), ..Config::default() });
    world.settle().await;
    world.install_webhooks(&file).await;
    world
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_job_that_is_resized_may_be_kept_to_a_domain_unless_slices_are_placed_upon_one_another() {
    for joined in [false, true] {
        let world = on_hosts(joined).await;
        let metadata = json!({
            "name": "r", "namespace": "team",
            "labels": { "kueue.x-k8s.io/queue-name": "a" }, "annotations": { GATE: "true" },
        });
        let mut spec = cluster(2);
        spec["headGroupSpec"]["template"] = spec["workerGroupSpecs"][0]["template"].clone();
        spec["workerGroupSpecs"][0]["template"]["metadata"] =
            json!({ "annotations": { "kueue.x-k8s.io/podset-required-topology": HOST } });
        world.create("ray.io", "rayclusters", json!({ "metadata": metadata, "spec": spec })).await;
        world.settle().await;
        let slice = slices(&world).remove(0);
        assert_eq!(slice["spec"]["podSets"][1]["topologyRequest"]["required"], HOST);
        assert_eq!(said(&world), [(1, !joined, String::new())]);
        let places = slice.pointer("/status/admission/podSetAssignments/1/topologyAssignment");
        assert_eq!(places.is_none(), joined, "{slice}");
        let waits = slice["status"]["conditions"].to_string();
        assert_eq!(waits.contains("NoMatchingFlavor"), joined, "{waits}");
    }
}

#[tokio::test(start_paused = true)]
async fn new_pods_of_a_job_that_grew_are_sent_to_the_places_of_its_new_slice() {
    let world = on_hosts(false).await;
    job(&world, 2).await;
    let host = |name: &str| {
        let pod = world.get("", "pods", name).unwrap();
        let gates = pod["spec"]["schedulingGates"].as_array().map_or(0, Vec::len);
        (gates, pod["spec"]["nodeSelector"][HOST].as_str().unwrap_or_default().to_owned())
    };
    for name in ["p0", "p1"] {
        pod(&world, name).await;
    }
    world.settle().await;
    let before = [host("p0"), host("p1")];
    assert!(before.iter().all(|(gates, host)| *gates == 0 && !host.is_empty()), "{before:?}");

    resize(&world, 3).await;
    pod(&world, "p2").await;
    world.settle().await;
    assert_eq!(said(&world)[1..], [(3, true, String::new())]);
    assert_eq!([host("p0"), host("p1")], before);
    let (gates, there) = host("p2");
    assert_eq!(gates, 0);
    assert!(
        before.iter().filter(|(_, host)| *host == there).count() < 2,
        "{there} has no room left: {before:?}"
    );
}

/// Until the old slice is said to be over there are two, and the places of the old one count no more.
#[tokio::test(start_paused = true)]
async fn new_pods_are_not_ended_because_the_old_slice_had_other_places() {
    let world = on_hosts(false).await;
    job(&world, 2).await;
    let old = slices(&world)[0]["metadata"]["name"].as_str().unwrap().to_owned();
    let cluster = world.cluster.clone();
    world.cluster.faults().set_hook(move |call, moment, _| {
        // The next that is written of a Workload is the end of the old one, and takes its time.
        let workloads = GroupResource::new("kueue.x-k8s.io", "workloads");
        let is_new = call.resource == workloads && !call.name.is_empty() && *call.name != *old;
        if is_new && moment == Moment::After {
            let aim = Aim { verbs: vec![Verb::Patch], ..Aim::default() }.by("layer1").on(workloads);
            cluster.faults().add(aim, 1_000_000, 1, Fault::Latency(Duration::from_secs(20)));
        }
        Verdict::Proceed
    });
    for name in ["p0", "p1", "p2", "p3"] {
        pod(&world, name).await;
    }
    world.update("batch", "jobs", "grows", false, |job| job["spec"]["parallelism"] = json!(4)).await;
    world.pass(4).await;
    assert_eq!(said(&world), [(2, true, String::new()), (4, true, String::new())]);
    let seen = ["p0", "p1", "p2", "p3"].map(|name| {
        let pod = world.get("", "pods", name).unwrap();
        assert_ne!(pod["status"]["phase"], "Failed", "{name}: {}", pod["status"]);
        pod["spec"]["nodeSelector"][HOST].as_str().unwrap_or_default().to_owned()
    });
    assert_eq!(BTreeSet::from(seen), BTreeSet::from(["n1".to_owned(), "n2".to_owned()]));
}

/// kueue#11198: of three slices the wrong one could end, and what it held was lost. Here the second is over, and the third says that
/// it takes its place, not that of the first, whose pods run.
#[tokio::test(start_paused = true)]
async fn a_slice_that_takes_the_place_of_none_that_stands_is_made_anew() {
    let world = World::with_webhooks(4).await;
    job(&world, 2).await;
    // There is no quota for it.
    resize(&world, 5).await;
    let [first, second] = &slices(&world)[..] else { panic!("{:?}", said(&world)) };
    let name = second["metadata"]["name"].as_str().unwrap().to_owned();
    world
        .update("kueue.x-k8s.io", "workloads", &name, false, |slice| {
            slice["metadata"]["annotations"][REPLACES] = json!("team/of-long-ago");
        })
        .await;
    world.pass(300).await;
    let third = world.get("kueue.x-k8s.io", "workloads", &name).unwrap();
    assert_ne!(third["metadata"]["uid"], second["metadata"]["uid"]);
    let replaces = format!("team/{}", first["metadata"]["name"].as_str().unwrap());
    assert_eq!(third["metadata"]["annotations"][REPLACES], replaces);
    assert_eq!(said(&world), [(2, true, String::new()), (5, false, String::new())]);
    let since = world.attempts("layer1");
    world.pass(300).await;
    assert_eq!(world.attempts("layer1"), since, "it is at rest");
    world
        .update("kueue.x-k8s.io", "clusterqueues", "a", false, |queue| {
            queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = json!(5);
        })
        .await;
    world.settle().await;
    assert_eq!(said(&world), [(2, true, "WorkloadSliceReplaced".to_owned()), (5, true, String::new())]);
}
