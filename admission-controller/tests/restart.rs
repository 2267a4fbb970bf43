//! What a program finds that was away for a while: it takes nothing from anybody because nobody was there to tell it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::path::Path;

use admission_controller::{Config, Configuration};
use serde_json::{Value, json};
use support::{World, pytorch};

const GROUP: &str = "kueue.x-k8s.io";

fn config(text: &str) -> Config {
    let file = Configuration::parse(Path::new("config.yaml"), text).unwrap();
    Config { file, ..Config::default() }
}

/// A queue of eight GPUs.
async fn world() -> World {
    let world = World::new(false).await;
    world.queue("a", "", json!({ "nominalQuota": 8 }), json!({})).await;
    world
}

/// Starts a program that is so configured, does this when all is at rest, and lets that pass while no program runs.
async fn away(world: &World, text: &str, seconds: u64, meanwhile: impl AsyncFnOnce()) {
    let first = world.start_with("one", config(text));
    world.settle().await;
    first.stop();
    first.ended().await;
    meanwhile().await;
    world.pass(seconds).await;
    world.start_with("two", config(text));
    world.settle().await;
}

async fn status_of_job(world: &World, job: &str, status: Value) {
    let change = |job: &mut Value| job["status"] = status.clone();
    world.update("kubeflow.org", "pytorchjobs", job, true, change).await;
}

/// Its LocalQueue may be listed after it.
#[tokio::test(start_paused = true)]
async fn who_has_quota_and_waits_for_a_check_keeps_it() {
    let world = World::new(false).await;
    world.queue("z", "", json!({ "nominalQuota": 8 }), json!({})).await;
    world.checked("z").await;
    // So many that they come page by page, and that of the jobs last.
    for number in 0..600 {
        let metadata = json!({ "name": format!("queue-{number}"), "namespace": "team" });
        let queue = json!({ "metadata": metadata, "spec": { "clusterQueue": "z" } });
        world.create(GROUP, "localqueues", queue).await;
    }
    for number in 0..8 {
        world.pytorch(&format!("job-{number}"), "z", 1).await;
    }
    away(&world, "", 60, async || ()).await;
    for number in 0..8 {
        let job = format!("job-{number}");
        let workload = world.workload(&job).unwrap();
        let conditions = workload["status"]["conditions"].as_array().unwrap();
        let reserved = conditions.iter().find(|one| one["type"] == "QuotaReserved").unwrap();
        assert_eq!(reserved["status"], "True", "{job}");
        assert_eq!(workload["status"]["admissionChecks"][0]["state"], "Pending");
    }
    let written = world.writes("two", 0);
    assert!(!written.iter().any(|write| write.contains("workloads")), "{written:?}");
}

#[tokio::test(start_paused = true)]
async fn whose_pods_have_got_ready_meanwhile_stays() {
    let world = world().await;
    world.pytorch("ready", "a", 1).await;
    world.pytorch("late", "a", 1).await;
    let running = json!({ "conditions": [{ "type": "Running", "status": "True" }] });
    let get_ready = async || status_of_job(&world, "ready", running.clone()).await;
    away(&world, "waitForPodsReady: { timeout: 5m }", 600, get_ready).await;
    assert!(world.is("ready", "Admitted") && world.is("ready", "PodsReady"));
    assert!(world.condition("ready", "Evicted").is_none());
    assert_eq!(world.condition("late", "Evicted").unwrap().1, "PodsReadyTimeout");
}

#[tokio::test(start_paused = true)]
async fn who_has_ended_meanwhile_has_finished_in_time() {
    let world = world().await;
    for name in ["done", "on"] {
        let mut job = pytorch(name, "a", 1);
        job["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] = json!("300");
        world.create("kubeflow.org", "pytorchjobs", job).await;
    }
    let succeeded = json!({ "conditions": [{ "type": "Succeeded", "status": "True", "message": "done" }] });
    let end = async || status_of_job(&world, "done", succeeded.clone()).await;
    away(&world, "", 600, end).await;
    assert!(world.is("done", "Finished") && world.condition("done", "Evicted").is_none());
    assert_eq!(world.workload("done").unwrap()["spec"]["active"], true);
    assert_eq!(world.workload("on").unwrap()["spec"]["active"], false);
    let told = world.told();
    assert!(
        told.iter().filter(|(_, reason)| reason == "MaximumExecutionTimeExceeded").count() == 1,
        "{told:?}"
    );
}

/// The same of pods that are managed by themselves.
#[tokio::test(start_paused = true)]
async fn a_pod_that_has_got_ready_or_ended_meanwhile_is_not_stopped() {
    let file = "integrations: { frameworks: [pod] }\nwaitForPodsReady: { timeout: 5m }";
    let world = world().await;
    world.install_webhooks(&config(file).file).await;
    let first = world.start_with("one", config(file));
    world.settle().await;
    let labels = json!({ "kueue.x-k8s.io/queue-name": "a", "kueue.x-k8s.io/max-exec-time-seconds": "540" });
    for name in ["ready", "done", "late"] {
        let pod = json!({
            "metadata": { "name": name, "namespace": "team", "labels": labels },
            "spec": { "restartPolicy": "Never", "containers": [{ "name": "main", "image": "i" }] },
        });
        world.create("", "pods", pod).await;
    }
    world.settle().await;
    first.stop();
    first.ended().await;
    let set = async |name: &str, status: Value| {
        let change = |pod: &mut Value| pod["status"] = status.clone();
        world.update("", "pods", name, true, change).await;
    };
    set("ready", json!({ "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] })).await;
    world.pass(400).await;
    set("done", json!({ "phase": "Succeeded" })).await;
    world.start_with("two", config(file));
    world.settle().await;
    let stopped = |name: &str| {
        world.get("", "pods", name).is_none_or(|pod| !pod["metadata"]["deletionTimestamp"].is_null())
    };
    assert!(!stopped("ready") && !stopped("done") && stopped("late"));
}
