//! What people do by hand in the middle of a job's way, and what must come of it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::path::Path;

use admission_controller::{Config, Configuration};
use cluster_sim::GroupResource;
use serde_json::{Value, json};
use support::{World, batch, owned_by, pytorch, workloads};

fn template(world: &World, job: &str) -> Value {
    world.get("batch", "jobs", job).unwrap()["spec"]["template"].clone()
}

/// Job `llama` runs, and this is its template as the user wrote it.
async fn admitted() -> (World, Value) {
    let world = World::new(false).await;
    world.cluster.start_controllers().await.unwrap();
    world.queue("a", "", json!({ "nominalQuota": 4 }), json!({})).await;
    world.start("layer1");
    world.create("batch", "jobs", batch("llama", "a", 1)).await;
    let written = template(&world, "llama");
    world.settle().await;
    assert_eq!(template(&world, "llama")["spec"]["nodeSelector"], json!({ "gpu": "a100" }));
    (world, written)
}

#[tokio::test(start_paused = true)]
async fn an_evicted_batch_job_is_as_its_user_wrote_it() {
    let (world, written) = admitted().await;
    world
        .update("kueue.x-k8s.io", "clusterqueues", "a", false, |queue| {
            queue["spec"]["stopPolicy"] = json!("HoldAndDrain");
        })
        .await;
    world.settle().await;
    assert_eq!(world.condition("llama", "Evicted").unwrap().1, "ClusterQueueStopped");
    assert_eq!(world.condition("llama", "QuotaReserved").unwrap().1, "Suspended");
    assert_eq!(template(&world, "llama"), written);
    assert_eq!(
        world.workload("llama").unwrap()["status"]["schedulingStats"],
        json!({ "evictions": [{ "reason": "ClusterQueueStopped", "underlyingCause": "", "count": 1 }] })
    );
    assert_eq!(
        world.condition("llama", "Requeued").map(|one| (one.0, one.1)).unwrap(),
        ("False".into(), "ClusterQueueStopped".into())
    );
    let queue = world.get("kueue.x-k8s.io", "clusterqueues", "a").unwrap();
    assert_eq!(queue["status"]["pendingWorkloads"], 1, "it waits for the queue to run again");
    world
        .update("kueue.x-k8s.io", "clusterqueues", "a", false, |queue| {
            queue["spec"]["stopPolicy"] = json!("None");
        })
        .await;
    world.settle().await;
    assert!(world.is("llama", "Admitted"));
    assert_eq!(
        world.condition("llama", "Requeued").map(|one| (one.0, one.1)).unwrap(),
        ("True".into(), "ClusterQueueRestarted".into())
    );
}

#[tokio::test(start_paused = true)]
async fn a_workload_deleted_by_hand_stops_the_job_and_is_made_anew_as_the_user_wrote_it() {
    let world = World::new(false).await;
    world.cluster.start_controllers().await.unwrap();
    world.queue("a", "", json!({ "nominalQuota": 4 }), json!({})).await;
    world.start("layer1");
    world.create("batch", "jobs", batch("llama", "a", 1)).await;
    world.settle().await;
    let before = world.workload("llama").unwrap();
    let name = before["metadata"]["name"].as_str().unwrap();
    world.cluster.store("user").delete(&workloads(), "team", name, Default::default()).await.unwrap();
    world.settle().await;
    let after = world.workload("llama").unwrap();
    assert_ne!(before["metadata"]["uid"], after["metadata"]["uid"]);
    assert_eq!(before["spec"], after["spec"], "what the flavor added is not the user's wish");
    assert!(world.is("llama", "Admitted"));
}

#[tokio::test(start_paused = true)]
async fn a_workload_that_its_job_left_behind_ends_unless_a_gate_forbids_it() {
    for open in [true, false] {
        let text = format!("featureGates:\n  FinishOrphanedWorkloads: {open}\n");
        let file = Configuration::parse(Path::new("config.yaml"), &text).unwrap();
        let world = World::new(false).await;
        world.queue("a", "", json!({ "nominalQuota": 4 }), json!({})).await;
        world.start_with("layer1", Config { file, ..Config::default() });
        world.pytorch("llama", "a", 4).await;
        world.settle().await;
        let name = world.workload_name("llama");
        // What the garbage collector makes of `--cascade=orphan`.
        let orphan = |workload: &mut Value| {
            workload["metadata"]["ownerReferences"] = json!([]);
            Ok(())
        };
        let collector = world.cluster.store("garbage-collector");
        let jobs = GroupResource::new("kubeflow.org", "pytorchjobs");
        collector.delete(&jobs, "team", "llama", Default::default()).await.unwrap();
        let part = cluster_sim::Part::Main;
        let kept = collector.update(&workloads(), "team", &name, part, orphan).await.is_ok();
        assert!(kept, "the garbage collector has not come by");
        world.settle().await;
        let workload = world.workload_named(&name).unwrap();
        let conditions = workload["status"]["conditions"].as_array().unwrap();
        let finished = conditions.iter().find(|one| one["type"] == "Finished");
        assert_eq!(finished.map(|one| one["reason"].clone()), open.then(|| json!("OwnerNotFound")));
        world.pytorch("bert", "a", 4).await;
        world.settle().await;
        assert_eq!(world.is("bert", "Admitted"), open, "the quota is free");
        let is_held = workload["metadata"]["finalizers"].as_array().is_some_and(|all| !all.is_empty());
        assert_eq!(is_held, !open);
    }
}

#[tokio::test(start_paused = true)]
async fn a_part_of_a_job_runs_only_while_that_is_admitted() {
    let world = World::running(0).await;
    let owner = world.pytorch("llama", "a", 1).await;
    let part = |name: &str| {
        let mut part = batch(name, "", 1);
        part["metadata"]["labels"] = json!({});
        part["metadata"]["ownerReferences"] = owned_by(owner.value());
        part["spec"]["suspend"] = json!(false);
        part
    };
    let suspended = |name: &str| world.get("batch", "jobs", name).unwrap()["spec"]["suspend"].clone();
    world.create("batch", "jobs", part("early")).await;
    world.settle().await;
    assert_eq!(suspended("early"), true);
    assert!(world.workload("early").is_none(), "it is no job of its own");
    assert!(world.told().contains(&("Normal".to_owned(), "Suspended".to_owned())), "{:?}", world.told());
    let more = |queue: &mut Value| {
        queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = json!(4);
    };
    world.update("kueue.x-k8s.io", "clusterqueues", "a", false, more).await;
    world.settle().await;
    assert!(world.is("llama", "Admitted"));
    assert_eq!(suspended("early"), true, "whoever made it starts it");
    world.create("batch", "jobs", part("late")).await;
    world.settle().await;
    assert_eq!(suspended("late"), false);
    // What runs is stopped with what it is part of, if nobody else does it.
    let stop = |queue: &mut Value| queue["spec"]["stopPolicy"] = json!("HoldAndDrain");
    world.update("kueue.x-k8s.io", "clusterqueues", "a", false, stop).await;
    world.settle().await;
    assert!(!world.is("llama", "Admitted"));
    assert_eq!(suspended("late"), true);
}

/// What it waits for goes to others, and it is told so; what it had it gives back.
#[tokio::test(start_paused = true)]
async fn a_job_that_becomes_part_of_another_gets_no_quota_of_its_own() {
    let world = World::running(4).await;
    world.pytorch("first", "a", 4).await;
    world.settle().await;
    let mut owner = pytorch("outer", "a", 1);
    owner["metadata"]["labels"] = json!({});
    let owner = world.create("kubeflow.org", "pytorchjobs", owner).await;
    let mut part = batch("part", "a", 4);
    part["metadata"]["ownerReferences"] = owned_by(owner.value());
    world.create("batch", "jobs", part).await;
    world.settle().await;
    assert!(world.workload("part").is_some() && !world.is("part", "QuotaReserved"));
    let join = |job: &mut Value| job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = json!("none");
    world.update("kubeflow.org", "pytorchjobs", "outer", false, join).await;
    let raise = |queue: &mut Value| {
        queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = json!(8);
    };
    world.update("kueue.x-k8s.io", "clusterqueues", "a", false, raise).await;
    world.pass(30).await;
    assert!(!world.is("part", "QuotaReserved"));
    let said = world.condition("part", "QuotaReserved").unwrap().2;
    assert!(said.contains("its job is gone, or is not managed"), "{said}");
    world.pytorch("next", "a", 4).await;
    world.settle().await;
    assert!(world.is("next", "Admitted"), "nothing is held for it");
    // As soon as it is its own again it has its turn.
    let leave = |job: &mut Value| job["metadata"]["labels"] = json!({});
    world.update("kubeflow.org", "pytorchjobs", "outer", false, leave).await;
    let raise = |queue: &mut Value| {
        queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = json!(12);
    };
    world.update("kueue.x-k8s.io", "clusterqueues", "a", false, raise).await;
    world.settle().await;
    assert!(world.is("part", "Admitted"));
}

#[tokio::test(start_paused = true)]
async fn a_waiting_job_that_changes_keeps_its_place() {
    let world = World::running(4).await;
    world.create("batch", "jobs", batch("llama", "a", 8)).await;
    world.settle().await;
    let before = world.workload("llama").unwrap();
    world
        .update("batch", "jobs", "llama", false, |job| {
            job["spec"]["parallelism"] = json!(6);
            job["spec"]["template"]["spec"]["nodeSelector"] = json!({ "disk": "fast" });
        })
        .await;
    world.settle().await;
    let after = world.workload("llama").unwrap();
    assert_eq!(
        before["metadata"]["uid"], after["metadata"]["uid"],
        "its place in the queue is its Workload's age"
    );
    assert_eq!(after["spec"]["podSets"][0]["count"], 6);
    world.update("batch", "jobs", "llama", false, |job| job["spec"]["parallelism"] = json!(2)).await;
    world.settle().await;
    assert!(world.is("llama", "Admitted"));
    assert_eq!(template(&world, "llama")["spec"]["nodeSelector"], json!({ "disk": "fast", "gpu": "a100" }));
}

#[tokio::test(start_paused = true)]
async fn a_running_job_that_changes_is_stopped_and_described_anew_as_the_user_wrote_it() {
    let world = World::new(false).await;
    world.cluster.start_controllers().await.unwrap();
    world.queue("a", "", json!({ "nominalQuota": 4 }), json!({})).await;
    world.start("layer1");
    let mut job = batch("llama", "a", 2);
    job["spec"]["completions"] = json!(4);
    world.create("batch", "jobs", job).await;
    world.settle().await;
    assert!(world.is("llama", "Admitted"));
    world.update("batch", "jobs", "llama", false, |job| job["spec"]["parallelism"] = json!(3)).await;
    world.settle().await;
    let after = world.workload("llama").unwrap();
    assert_eq!(after["spec"]["podSets"][0]["count"], 3);
    assert_eq!(after["spec"]["podSets"][0]["template"]["spec"].get("nodeSelector"), None);
    assert!(world.is("llama", "Admitted"));
}

#[tokio::test(start_paused = true)]
async fn an_admitted_job_waits_for_its_flavor_to_start() {
    let world = World::new(false).await;
    world.queue("a", "", json!({ "nominalQuota": 4 }), json!({})).await;
    let tasks = world.start("one");
    world.pytorch("llama", "a", 1).await;
    world.settle().await;
    // As if the program had been stopped between the admission and the start, and somebody deleted the flavor.
    tasks.kill();
    world
        .update("kubeflow.org", "pytorchjobs", "llama", false, |job| {
            job["spec"]["runPolicy"]["suspend"] = json!(true);
        })
        .await;
    let unprotect = |flavor: &mut Value| flavor["metadata"]["finalizers"] = json!([]);
    world.update("kueue.x-k8s.io", "resourceflavors", "a100", false, unprotect).await;
    let id = GroupResource::new("kueue.x-k8s.io", "resourceflavors");
    world.cluster.store("user").delete(&id, "", "a100", Default::default()).await.unwrap();
    world.start("two");
    world.settle().await;
    assert!(world.is_suspended("llama"), "nobody knows on which nodes it may run");
    let flavor = json!({ "metadata": { "name": "a100" }, "spec": { "nodeLabels": { "gpu": "a100" } } });
    world.create("kueue.x-k8s.io", "resourceflavors", flavor).await;
    world.settle().await;
    assert!(!world.is_suspended("llama"));
}

#[tokio::test(start_paused = true)]
async fn a_namesake_is_another_job() {
    let world = World::running(4).await;
    let jobs = GroupResource::new("kubeflow.org", "pytorchjobs");
    let mut seen = Vec::new();
    for _ in 0..3 {
        let job = world.pytorch("llama", "a", 4).await;
        world.settle().await;
        let workload = world.workload("llama").unwrap();
        assert_eq!(workload["metadata"]["ownerReferences"][0]["uid"], job.value()["metadata"]["uid"]);
        assert!(world.is("llama", "Admitted"));
        seen.push(workload["metadata"]["name"].clone());
        world.cluster.store("user").delete(&jobs, "team", "llama", Default::default()).await.unwrap();
    }
    seen.dedup();
    assert_eq!(seen.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn who_holds_a_job_back_holds_its_workload_back_until_the_last_has_gone() {
    let gates = "kueue.x-k8s.io/admission-gated-by";
    let world = World::running(4).await;
    let mut job = pytorch("llama", "a", 4);
    job["metadata"]["annotations"][gates] = json!("x.example/budget,x.example/review");
    world.create("kubeflow.org", "pytorchjobs", job).await;
    world.settle().await;
    assert_eq!(world.condition("llama", "QuotaReserved").unwrap().1, "AdmissionGated");
    let written = || world.workload("llama").unwrap()["metadata"]["annotations"][gates].clone();
    assert_eq!(written(), "x.example/budget,x.example/review");
    let set = async |value: Value| {
        let change = |job: &mut Value| job["metadata"]["annotations"][gates] = value.clone();
        world.update("kubeflow.org", "pytorchjobs", "llama", false, change).await;
        world.settle().await;
    };
    set(json!("x.example/review")).await;
    assert_eq!(written(), "x.example/review");
    assert!(!world.is("llama", "QuotaReserved"));
    set(json!("")).await;
    assert_eq!(written(), Value::Null);
    assert!(world.is("llama", "Admitted"));
    let told = world.told();
    let of = |reason: &str| -> Vec<&(String, String)> { told.iter().filter(|one| one.1 == reason).collect() };
    assert_eq!(of("AdmissionGated"), [&("Normal".to_owned(), "AdmissionGated".to_owned())], "{told:?}");
    assert_eq!(of("AdmissionGateCleared").len(), 1, "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn queues_and_flavors_in_use_are_kept_until_they_are_free() {
    let world = World::new(false).await;
    world.queue("a", "pool", json!({ "nominalQuota": 4 }), json!({})).await;
    world.queue("b", "pool", json!({ "nominalQuota": 0 }), json!({})).await;
    world.start("layer1");
    world.pytorch("llama", "a", 4).await;
    world.settle().await;
    assert!(world.is("llama", "Admitted"));
    let queues = GroupResource::new("kueue.x-k8s.io", "clusterqueues");
    let flavors = GroupResource::new("kueue.x-k8s.io", "resourceflavors");
    let admin = world.cluster.store("admin");
    admin.delete(&queues, "", "a", Default::default()).await.unwrap();
    admin.delete(&flavors, "", "a100", Default::default()).await.unwrap();
    world.pytorch("bert", "b", 4).await;
    world.settle().await;
    assert!(admin.get(&queues, "", "a").is_some(), "llama holds its quota");
    assert!(admin.get(&flavors, "", "a100").is_some(), "both queues name it");
    assert!(!world.is("bert", "Admitted"), "the cohort has no more");

    let jobs = GroupResource::new("kubeflow.org", "pytorchjobs");
    for job in ["bert", "llama"] {
        admin.delete(&jobs, "team", job, Default::default()).await.unwrap();
    }
    world.settle().await;
    assert!(admin.get(&queues, "", "a").is_none());
    assert!(admin.get(&flavors, "", "a100").is_some(), "the other queue names it");
    admin.delete(&queues, "", "b", Default::default()).await.unwrap();
    world.settle().await;
    assert!(admin.get(&queues, "", "b").is_none());
    assert!(admin.get(&flavors, "", "a100").is_none());
}

#[tokio::test(start_paused = true)]
async fn what_the_api_server_adds_to_pods_is_counted_before() {
    let world = World::new(false).await;
    world.queue("a", "", json!({ "nominalQuota": 4 }), json!({})).await;
    world
        .update("kueue.x-k8s.io", "clusterqueues", "a", false, |queue| {
            let group = &mut queue["spec"]["resourceGroups"][0];
            group["coveredResources"] = json!(["nvidia.com/gpu", "cpu"]);
            group["flavors"][0]["resources"] = json!([
                { "name": "nvidia.com/gpu", "nominalQuota": "4" }, { "name": "cpu", "nominalQuota": "4" },
            ]);
        })
        .await;
    let range = |cpu: &str| {
        json!({ "metadata": { "name": "defaults", "namespace": "team" }, "spec": { "limits": [
            { "type": "Container", "default": { "cpu": cpu }, "defaultRequest": { "cpu": cpu } },
        ]}})
    };
    world.create("", "limitranges", range("3")).await;
    world.start("layer1");
    world.pytorch("llama", "a", 2).await;
    world.settle().await;
    let (_, reason, message) = world.condition("llama", "QuotaReserved").unwrap();
    assert_eq!(reason, "ExceedsMaxQuota", "{message}");
    world.update("", "limitranges", "defaults", false, |one| one["spec"] = range("2")["spec"].clone()).await;
    world.settle().await;
    let workload = world.workload("llama").unwrap();
    let usage = &workload["status"]["admission"]["podSetAssignments"][0]["resourceUsage"];
    assert_eq!(*usage, json!({ "cpu": "4", "nvidia.com/gpu": "2" }));
}

fn selects(world: &World, job: &str) -> Value {
    world.job(job)["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["nodeSelector"].clone()
}

#[tokio::test(start_paused = true)]
async fn a_job_gets_its_queue_long_after_it_was_made() {
    let world = World::running(4).await;
    let quiet = world.attempts("layer1");
    let mut job = pytorch("llama", "", 2);
    job["metadata"]["labels"] = json!({});
    world.create("kubeflow.org", "pytorchjobs", job).await;
    world.settle().await;
    assert_eq!(world.attempts("layer1"), quiet, "it is nobody's");
    let label = |job: &mut Value| job["metadata"]["labels"] = json!({ "kueue.x-k8s.io/queue-name": "a" });
    world.update("kubeflow.org", "pytorchjobs", "llama", false, label).await;
    world.settle().await;
    assert_eq!(world.workload("llama").unwrap()["spec"]["podSets"][0]["count"], 2);
    assert!(world.is("llama", "Admitted") && !world.is_suspended("llama"));
    assert_eq!(selects(&world, "llama"), json!({ "gpu": "a100" }));
}

#[tokio::test(start_paused = true)]
async fn a_job_without_a_queue_follows_the_workload_that_is_made_for_it() {
    let world = World::running(4).await;
    let mut job = pytorch("llama", "", 2);
    job["metadata"]["labels"] = json!({});
    world.create("kubeflow.org", "pytorchjobs", job).await;
    world.settle().await;
    let job = world.job("llama");
    let owner = owned_by(&job);
    let template = &job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"];
    let workload = json!({
        "metadata": { "name": "mine", "namespace": "team", "ownerReferences": owner },
        "spec": { "queueName": "a", "podSets": [{ "name": "worker", "count": 2, "template": template }] },
    });
    world.create("kueue.x-k8s.io", "workloads", workload).await;
    world.settle().await;
    assert!(world.is("llama", "Admitted") && !world.is_suspended("llama"));
    assert_eq!(selects(&world, "llama"), json!({ "gpu": "a100" }));
}

#[tokio::test(start_paused = true)]
async fn a_job_that_lost_its_queue_is_stopped_by_a_replica_that_never_saw_it_have_one() {
    let world = World::new(false).await;
    world.queue("a", "", json!({ "nominalQuota": 4 }), json!({})).await;
    let first = world.start("layer1");
    world.pytorch("llama", "a", 2).await;
    world.settle().await;
    assert!(!world.is_suspended("llama"));
    let unlabel = |job: &mut Value| job["metadata"]["labels"] = json!({});
    world.update("kubeflow.org", "pytorchjobs", "llama", false, unlabel).await;
    world.settle().await;
    first.kill();
    world.start("layer2");
    world.settle().await;
    let drain = |queue: &mut Value| queue["spec"]["stopPolicy"] = json!("HoldAndDrain");
    world.update("kueue.x-k8s.io", "clusterqueues", "a", false, drain).await;
    world.settle().await;
    assert!(world.is_suspended("llama"));
    assert_eq!(selects(&world, "llama"), Value::Null, "as its user wrote it");
    assert_eq!(world.condition("llama", "QuotaReserved").unwrap().0, "False");
}

/// Whoever waits for the condition of a queue that was edited (`kubectl wait`) is not kept waiting, be it an edit that changes
/// nothing.
#[tokio::test(start_paused = true)]
async fn an_edit_of_a_queue_is_acknowledged() {
    let world = World::running(4).await;
    for (resource, namespace) in [("clusterqueues", ""), ("localqueues", "team")] {
        let id = GroupResource::new("kueue.x-k8s.io", resource);
        let edit = |queue: &mut Value| {
            queue["spec"]["fairSharing"] = json!({ "weight": "1" });
            Ok(())
        };
        let part = cluster_sim::Part::Main;
        world.cluster.store("user").update(&id, namespace, "a", part, edit).await.unwrap();
        world.settle().await;
        let queue = world.get("kueue.x-k8s.io", resource, "a").unwrap();
        let active = &queue["status"]["conditions"][0];
        assert_eq!(queue["metadata"]["generation"], 2, "{resource}");
        assert_eq!((&active["status"], &active["observedGeneration"]), (&json!("True"), &json!(2)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_quota_is_taken_by_hand_is_as_its_user_wrote_it() {
    let (world, written) = admitted().await;
    let hold = |queue: &mut Value| queue["spec"]["stopPolicy"] = json!("Hold");
    world.update("kueue.x-k8s.io", "clusterqueues", "a", false, hold).await;
    let name = world.workload_name("llama");
    let now = world.stamp();
    world
        .update("kueue.x-k8s.io", "workloads", &name, true, |workload| {
            let no = |kind: &str| json!({ "type": kind, "status": "False", "reason": "Test", "message": "by hand", "lastTransitionTime": now });
            workload["status"] = json!({ "conditions": [no("QuotaReserved"), no("Admitted")] });
        })
        .await;
    world.settle().await;
    assert_eq!(world.get("batch", "jobs", "llama").unwrap()["spec"]["suspend"], true);
    assert_eq!(template(&world, "llama"), written);
}

/// As Kueue's Workload controller does it, whoever gave the quota.
#[tokio::test(start_paused = true)]
async fn quota_that_somebody_else_gave_admits() {
    let world = World::running(0).await;
    world.create("batch", "jobs", batch("llama", "a", 1)).await;
    world.settle().await;
    let (name, now) = (world.workload_name("llama"), world.stamp());
    let given = |workload: &mut Value| {
        let reserved = json!({ "type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "by hand", "lastTransitionTime": now });
        workload["status"]["conditions"] = json!([reserved]);
        workload["status"]["admission"] = json!({ "clusterQueue": "a", "podSetAssignments": [{
            "name": "main", "count": 1, "flavors": { "nvidia.com/gpu": "a100" }, "resourceUsage": { "nvidia.com/gpu": "1" },
        }]});
    };
    world.update("kueue.x-k8s.io", "workloads", &name, true, given).await;
    world.settle().await;
    assert!(world.is("llama", "Admitted"));
    assert_eq!(world.get("batch", "jobs", "llama").unwrap()["spec"]["suspend"], false);
}

#[tokio::test(start_paused = true)]
async fn a_job_is_told_of_a_second_workload_that_is_deleted() {
    let world = World::running(4).await;
    world.create("batch", "jobs", batch("llama", "a", 1)).await;
    world.settle().await;
    let mut copy = world.workload("llama").unwrap();
    copy["metadata"] = json!({ "name": "copy", "namespace": "team", "ownerReferences": copy["metadata"]["ownerReferences"] });
    copy.as_object_mut().unwrap().remove("status");
    world.create("kueue.x-k8s.io", "workloads", copy).await;
    world.settle().await;
    assert_eq!(world.workload_named("copy"), None);
    assert!(world.told_of("Job", "llama").contains(&"DeletedWorkload".to_owned()), "{:?}", world.told());
}
