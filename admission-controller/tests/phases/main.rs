//! Between quota and the end: pods that have to get ready, times, and what is deleted after them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod checks;
mod placement;
#[path = "../support/mod.rs"]
mod support;

use std::path::Path;
use std::time::Duration;

use admission_controller::{Config, Configuration};
use serde_json::{Value, json};
use support::{World, pytorch};

const GROUP: &str = "kueue.x-k8s.io";

fn config(text: &str) -> Config {
    let file = Configuration::parse(Path::new("config.yaml"), text).unwrap();
    Config { file, ..Config::default() }
}

fn said(world: &World, job: &str, kind: &str) -> (String, String) {
    world.condition(job, kind).map(|one| (one.0, one.1)).unwrap_or_default()
}

fn pair(status: &str, reason: &str) -> (String, String) {
    (status.to_owned(), reason.to_owned())
}

async fn activate(world: &World, job: &str) {
    let name = world.workload_name(job);
    world.update(GROUP, "workloads", &name, false, |workload| workload["spec"]["active"] = json!(true)).await;
}

async fn running(world: &World, job: &str, running: bool) {
    let status = if running { "True" } else { "False" };
    world
        .update("kubeflow.org", "pytorchjobs", job, true, |job| {
            job["status"]["conditions"] = json!([{ "type": "Running", "status": status }]);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn pods_that_do_not_get_ready_in_time_cost_the_admission() {
    let world = World::new(false).await;
    world.queue("a", "", json!({ "nominalQuota": 4 }), json!({})).await;
    world.start_with(
        "layer1",
        config("waitForPodsReady:\n  timeout: 5m\n  requeuingStrategy: { backoffBaseSeconds: 100, backoffLimitCount: 2 }\n"),
    );
    world.pytorch("llama", "a", 4).await;
    world.settle().await;
    assert_eq!(said(&world, "llama", "PodsReady"), pair("False", "WaitForStart"));
    assert!(world.is("llama", "Admitted"));
    world.pass(240).await;
    assert!(world.is("llama", "Admitted"));
    world.pass(60).await;
    assert_eq!(said(&world, "llama", "Evicted"), pair("True", "PodsReadyTimeout"));
    assert!(world.is_suspended("llama"));
    let workload = world.workload("llama").unwrap();
    assert_eq!(workload["status"]["requeueState"]["count"], 1);
    assert_eq!(
        workload["status"]["schedulingStats"]["evictions"],
        json!([{ "reason": "PodsReadyTimeout", "underlyingCause": "WaitForStart", "count": 1 }])
    );
    world.pass(100).await;
    assert!(world.is("llama", "Admitted"), "it was put off for 100 s");
    assert_eq!(said(&world, "llama", "Requeued"), pair("True", "BackoffFinished"));
    assert_eq!(world.workload("llama").unwrap()["status"]["requeueState"], json!({ "count": 1 }));
    world.pass(300).await;
    assert_eq!(world.workload("llama").unwrap()["status"]["requeueState"]["count"], 2);
    world.pass(150).await;
    assert!(!world.is("llama", "Admitted"), "twice as long the second time");
    world.pass(60).await;
    assert!(world.is("llama", "Admitted"));
    world.pass(330).await;
    assert_eq!(said(&world, "llama", "Evicted"), pair("True", "DeactivatedDueToRequeuingLimitExceeded"));
    assert_eq!(world.workload("llama").unwrap()["spec"]["active"], false);
    assert!(world.workload("llama").unwrap()["status"].get("requeueState").is_none());
}

#[tokio::test(start_paused = true)]
async fn pods_that_are_ready_and_fail_have_time_to_recover() {
    let world = World::new(false).await;
    world.queue("a", "", json!({ "nominalQuota": 4 }), json!({})).await;
    world.start_with("layer1", config("waitForPodsReady:\n  timeout: 5m\n  recoveryTimeout: 2m\n"));
    world.pytorch("llama", "a", 4).await;
    world.settle().await;
    running(&world, "llama", true).await;
    world.settle().await;
    assert_eq!(said(&world, "llama", "PodsReady"), pair("True", "Started"));
    world.pass(600).await;
    assert!(world.is("llama", "Admitted"));
    running(&world, "llama", false).await;
    world.settle().await;
    assert_eq!(said(&world, "llama", "PodsReady"), pair("False", "WaitForRecovery"));
    running(&world, "llama", true).await;
    world.settle().await;
    assert_eq!(said(&world, "llama", "PodsReady"), pair("True", "Recovered"));
    running(&world, "llama", false).await;
    world.pass(150).await;
    let workload = world.workload("llama").unwrap();
    assert_eq!(
        workload["status"]["schedulingStats"]["evictions"],
        json!([{ "reason": "PodsReadyTimeout", "underlyingCause": "WaitForRecovery", "count": 1 }])
    );
    assert_eq!(said(&world, "llama", "PodsReady"), pair("False", "WaitForStart"), "of the next admission");
    let metrics = world.metrics().await;
    for name in ["kueue_ready_wait_time_seconds", "kueue_admitted_until_ready_wait_time_seconds"] {
        assert!(metrics.contains(&format!("{name}_count{{cluster_queue=\"a\"")), "{name}: {metrics}");
    }
}

#[tokio::test(start_paused = true)]
async fn with_block_admission_one_starts_after_the_other() {
    let world = World::new(false).await;
    world.queue("a", "", json!({ "nominalQuota": 4 }), json!({})).await;
    world.start_with("layer1", config("waitForPodsReady:\n  blockAdmission: true\n"));
    world.pytorch("first", "a", 1).await;
    world.settle().await;
    world.pytorch("second", "a", 1).await;
    world.settle().await;
    assert!(world.is("first", "Admitted") && !world.is("second", "QuotaReserved"));
    assert_eq!(said(&world, "second", "QuotaReserved"), pair("False", "WaitingForPodsReady"));
    assert_eq!(said(&world, "second", "PodsReady"), pair("False", "WaitForStart"));
    running(&world, "first", true).await;
    world.settle().await;
    assert!(world.is("second", "Admitted"));
}

/// As in Kueue, where one that is not active is no longer among those that are not ready: the way out of it for an administrator.
#[tokio::test(start_paused = true)]
async fn with_block_admission_nobody_waits_for_one_that_is_deactivated() {
    let world = World::new(false).await;
    world.queue("a", "", json!({ "nominalQuota": 4 }), json!({})).await;
    world.start_with("layer1", config("waitForPodsReady:\n  blockAdmission: true\n"));
    world.pytorch("first", "a", 1).await;
    world.settle().await;
    running(&world, "first", false).await;
    let hangs = |job: &mut Value| job["status"] = json!({ "replicaStatuses": { "Worker": { "active": 1 } } });
    world.update("kubeflow.org", "pytorchjobs", "first", true, hangs).await;
    world.pytorch("second", "a", 1).await;
    world.settle().await;
    assert!(!world.is("second", "QuotaReserved"));
    let name = world.workload_name("first");
    world.update(GROUP, "workloads", &name, false, |one| one["spec"]["active"] = json!(false)).await;
    world.settle().await;
    assert!(world.is("first", "QuotaReserved"), "its pods are there yet");
    assert!(world.is("second", "Admitted"));
}

#[tokio::test(start_paused = true)]
async fn a_workload_runs_for_as_long_as_it_may_and_no_longer() {
    let world = World::new(false).await;
    world.queue("a", "", json!({ "nominalQuota": 4 }), json!({})).await;
    world.start_with(
        "layer1",
        config("objectRetentionPolicies: { workloads: { afterDeactivatedByKueue: 1h } }\n"),
    );
    let mut job = pytorch("llama", "a", 4);
    job["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] = json!("600");
    world.create("kubeflow.org", "pytorchjobs", job).await;
    world.settle().await;
    assert!(world.is("llama", "Admitted"));
    // Six minutes, then an interruption: four are left.
    running(&world, "llama", true).await;
    world.pass(330).await;
    let stop = |policy: &'static str| move |queue: &mut Value| queue["spec"]["stopPolicy"] = json!(policy);
    world.update(GROUP, "clusterqueues", "a", false, stop("HoldAndDrain")).await;
    world.settle().await;
    running(&world, "llama", false).await;
    world.pass(600).await;
    assert_eq!(world.workload("llama").unwrap()["status"]["accumulatedPastExecutionTimeSeconds"], 360);
    world.update(GROUP, "clusterqueues", "a", false, stop("None")).await;
    world.pass(210).await;
    assert!(world.is("llama", "Admitted"));
    world.pass(60).await;
    assert_eq!(
        said(&world, "llama", "Evicted"),
        pair("True", "DeactivatedDueToMaximumExecutionTimeExceeded")
    );
    let workload = world.workload("llama").unwrap();
    assert_eq!(workload["spec"]["active"], false);
    // Activated again, it has all its time once more.
    let name = world.workload_name("llama");
    let activate = |workload: &mut Value| workload["spec"]["active"] = json!(true);
    world.update(GROUP, "workloads", &name, false, activate).await;
    world.pass(590).await;
    assert!(world.is("llama", "Admitted"));
    world.pass(20).await;
    assert_eq!(world.workload("llama").unwrap()["spec"]["active"], false);
    world.pass(3500).await;
    assert!(world.get("kubeflow.org", "pytorchjobs", "llama").is_some());
    world.pass(200).await;
    assert!(world.get("kubeflow.org", "pytorchjobs", "llama").is_none(), "kept for an hour");
}

#[tokio::test(start_paused = true)]
async fn a_finished_workload_is_deleted_when_it_was_kept_for_long_enough() {
    let world = World::new(false).await;
    world.queue("a", "", json!({ "nominalQuota": 4 }), json!({})).await;
    world.start_with("layer1", config("objectRetentionPolicies: { workloads: { afterFinished: 10m } }\n"));
    world.pytorch("llama", "a", 4).await;
    world.settle().await;
    world
        .update("kubeflow.org", "pytorchjobs", "llama", true, |job| {
            job["status"]["conditions"] = json!([{ "type": "Succeeded", "status": "True" }]);
        })
        .await;
    world.settle().await;
    assert!(world.is("llama", "Finished"));
    world.pass(500).await;
    assert!(world.workload("llama").is_some());
    world.pass(120).await;
    assert!(world.workload("llama").is_none());
    assert!(world.get("kubeflow.org", "pytorchjobs", "llama").is_some(), "the job is its user's");
}

/// Pods of what has ended are not ready, and nobody waits for them.
#[tokio::test(start_paused = true)]
async fn of_pods_that_have_ended_nothing_is_said() {
    let world = World::running(8).await;
    for (job, is_ready, wanted) in
        [("seen", true, pair("True", "Started")), ("unseen", false, pair("False", "WaitForStart"))]
    {
        world.pytorch(job, "a", 4).await;
        world.settle().await;
        let tell = |running: &str, succeeded: &str| json!([{ "type": "Running", "status": running }, { "type": "Succeeded", "status": succeeded }]);
        if is_ready {
            let running = tell("True", "False");
            let runs = |job: &mut Value| job["status"]["conditions"] = running.clone();
            world.update("kubeflow.org", "pytorchjobs", job, true, runs).await;
            world.settle().await;
        }
        let ended = tell("False", "True");
        let ends = |job: &mut Value| job["status"]["conditions"] = ended.clone();
        world.update("kubeflow.org", "pytorchjobs", job, true, ends).await;
        world.settle().await;
        assert!(world.is(job, "Finished"));
        assert_eq!(said(&world, job, "PodsReady"), wanted, "{job}");
    }
}

/// Whatever the status of the condition, as with Kueue.
#[tokio::test(start_paused = true)]
async fn who_says_why_a_workload_is_deactivated_is_quoted() {
    for status in ["True", "False"] {
        let world = World::running(4).await;
        world.pytorch("llama", "a", 4).await;
        world.settle().await;
        let name = world.workload_name("llama");
        let target = json!({
            "type": "DeactivationTarget", "status": status, "reason": "OverBudget", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let say = |workload: &mut Value| {
            workload["status"]["conditions"].as_array_mut().unwrap().push(target.clone());
        };
        let end = |workload: &mut Value| workload["spec"]["active"] = json!(false);
        world.update(GROUP, "workloads", &name, false, end).await;
        world.update(GROUP, "workloads", &name, true, say).await;
        world.settle().await;
        assert_eq!(said(&world, "llama", "Evicted"), pair("True", "DeactivatedDueToOverBudget"), "{status}");
        assert_eq!(said(&world, "llama", "DeactivationTarget"), pair("", ""), "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiting_workload_that_is_deactivated_says_so() {
    let world = World::running(1).await;
    world.pytorch("llama", "a", 4).await;
    world.settle().await;
    let name = world.workload_name("llama");
    world
        .update(GROUP, "workloads", &name, false, |workload| workload["spec"]["active"] = json!(false))
        .await;
    world.settle().await;
    assert_eq!(said(&world, "llama", "Evicted"), pair("True", "Deactivated"));
    assert_eq!(said(&world, "llama", "QuotaReserved"), pair("False", "Deactivated"));
    let before = world.cluster.log_since(0).len();
    tokio::time::timeout(Duration::from_secs(3600), world.pass(1800)).await.unwrap();
    let after = world.attempts("layer1");
    world.pass(1800).await;
    assert_eq!(world.attempts("layer1"), after, "nothing is written over and over ({before})");
    activate(&world, "llama").await;
    world.settle().await;
    assert_eq!(said(&world, "llama", "QuotaReserved"), pair("False", "ExceedsMaxQuota"));
}

/// What runs is taken back, and comes again when the queue is open.
#[tokio::test(start_paused = true)]
async fn a_local_queue_that_is_drained_gives_its_quota_back() {
    let world = World::running(4).await;
    world.pytorch("llama", "a", 4).await;
    world.settle().await;
    assert!(world.is("llama", "Admitted"));
    let stop = async |policy: &str| {
        let change = |queue: &mut Value| queue["spec"]["stopPolicy"] = json!(policy);
        world.update(GROUP, "localqueues", "a", false, change).await;
        world.settle().await;
    };
    stop("HoldAndDrain").await;
    assert_eq!(said(&world, "llama", "Evicted"), pair("True", "LocalQueueStopped"));
    assert_eq!(said(&world, "llama", "QuotaReserved").0, "False");
    assert!(world.is_suspended("llama"));
    let queue = world.get(GROUP, "localqueues", "a").unwrap();
    assert_eq!(queue["status"]["conditions"][0]["reason"], "Stopped");
    let told = world.told_of("Workload", &world.workload_name("llama"));
    assert!(told.contains(&"EvictedDueToLocalQueueStopped".to_owned()), "{told:?}");
    stop("None").await;
    assert!(world.is("llama", "Admitted") && !world.is_suspended("llama"));
    assert_eq!(said(&world, "llama", "Requeued"), pair("True", "LocalQueueRestarted"));
}
