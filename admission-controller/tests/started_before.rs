//! A batch Job that ran before: Kubernetes keeps its template from being changed until `status.startTime` is reset, which before
//! 1.36 it does not do itself.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use cluster_sim::GroupResource;
use cluster_sim::faults::{Aim, Fault};
use serde_json::{Value, json};
use support::World;

/// A cluster of that kind, with a queue of this quota.
async fn world(quota: i64) -> World {
    let world = World::with(false, |sim| sim.keeps_start_time = true).await;
    world.cluster.start_controllers().await.unwrap();
    world.queue("a", "", json!({ "nominalQuota": quota }), json!({})).await;
    world
}

async fn create(world: &World, suspended: bool) {
    let job = json!({
        "metadata": { "name": "llama", "namespace": "team", "labels": { "kueue.x-k8s.io/queue-name": "a" } },
        "spec": { "suspend": suspended, "template": { "spec": { "restartPolicy": "Never", "containers": [{
            "name": "main", "image": "x", "resources": { "limits": { "nvidia.com/gpu": 1 } },
        }]}}},
    });
    world.create("batch", "jobs", job).await;
    world.settle().await;
}

fn job(world: &World) -> Value {
    world.get("batch", "jobs", "llama").unwrap()
}

fn assert_runs(world: &World) {
    let job = job(world);
    assert_eq!((&job["spec"]["suspend"], &job["status"]["active"]), (&json!(false), &json!(1)), "{job}");
    assert_eq!(job["spec"]["template"]["spec"]["nodeSelector"], json!({ "gpu": "a100" }));
}

#[tokio::test(start_paused = true)]
async fn a_job_that_ran_before_it_was_managed_starts_when_it_has_quota() {
    let world = world(0).await;
    create(&world, false).await;
    assert!(job(&world)["status"]["startTime"].is_string());
    world.start("layer1");
    world.settle().await;
    assert!(!world.is("llama", "QuotaReserved"));
    assert_eq!(job(&world)["status"]["startTime"], Value::Null, "its user may change it while it waits");
    let quota = json!({ "name": "nvidia.com/gpu", "nominalQuota": 1 });
    world
        .update("kueue.x-k8s.io", "clusterqueues", "a", false, |queue| {
            queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"] = json!([quota]);
        })
        .await;
    world.settle().await;
    assert_runs(&world);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_cannot_be_made_to_forget_that_it_ran_takes_no_quota() {
    let world = world(1).await;
    let status = Aim::writes().by("layer1").on(GroupResource::new("batch", "jobs")).at("status");
    world.cluster.faults().add(status, 1_000_000, 1_000, Fault::Conflict);
    create(&world, false).await;
    world.start("layer1");
    world.pass(10).await;
    assert!(job(&world)["status"]["startTime"].is_string());
    assert!(world.workload("llama").is_none_or(|workload| workload["status"]["admission"].is_null()));
    world.cluster.faults().clear();
    world.pass(120).await;
    assert_runs(&world);
}

#[tokio::test(start_paused = true)]
async fn a_running_job_that_is_suspended_by_hand_starts_again() {
    let world = world(1).await;
    world.start("layer1");
    create(&world, true).await;
    assert_runs(&world);
    // The Workload is not as it was when the job was started.
    world
        .update("kueue.x-k8s.io", "workloads", &world.workload_name("llama"), false, |workload| {
            workload["metadata"]["labels"]["mine"] = json!("yes");
        })
        .await;
    world.update("batch", "jobs", "llama", false, |job| job["spec"]["suspend"] = json!(true)).await;
    world.settle().await;
    assert_runs(&world);
}
