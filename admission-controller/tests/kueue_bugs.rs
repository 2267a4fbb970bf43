//! Bugs that Kueue had between its engine and the API, as scenarios of the whole program. The numbers are those of its issues
//! and pull requests; those of the engine alone are in `engine/tests/kueue_bugs.rs`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::path::Path;

use admission_controller::{Config, Configuration};
use cluster_sim::GroupResource;
use cluster_sim::faults::{Aim, Fault, Moment, Verdict};
use serde_json::json;
use support::{World, pytorch};

const GROUP: &str = "kueue.x-k8s.io";

fn config(text: &str) -> Config {
    let file = Configuration::parse(Path::new("config.yaml"), text).unwrap();
    Config { file, ..Config::default() }
}

fn impatient() -> Config {
    config(
        "waitForPodsReady:\n  timeout: 60s\n  recoveryTimeout: 60s\n  requeuingStrategy:\n    backoffBaseSeconds: 30\n",
    )
}

/// Queue `a` of so many GPUs, whose workloads displace those of lower priority.
async fn queue(world: &World, gpus: i64) {
    let preemption = json!({ "withinClusterQueue": "LowerPriority" });
    world.queue("a", "", json!({ "nominalQuota": gpus }), preemption).await;
}

async fn priority_class(world: &World, name: &str, value: i64) {
    let class = json!({ "metadata": { "name": name }, "value": value });
    world.create(GROUP, "workloadpriorityclasses", class).await;
}

async fn answer(world: &World, job: &str, state: &str) {
    let name = world.workload_name(job);
    let now = world.stamp();
    world
        .update(GROUP, "workloads", &name, true, |workload| {
            let one = &mut workload["status"]["admissionChecks"][0];
            one["state"] = json!(state);
            one["lastTransitionTime"] = json!(now.clone());
            one["message"] = json!("as the test has it");
        })
        .await;
}

/// So many of a job's pods run and are ready.
async fn running(world: &World, job: &str, pods: i64) {
    world
        .update("kubeflow.org", "pytorchjobs", job, true, |job| {
            job["status"]["replicaStatuses"] = json!({ "Worker": { "active": pods } });
            let status = if pods > 0 { "True" } else { "False" };
            job["status"]["conditions"] = json!([{
                "type": "Running", "status": status, "reason": "Test", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z", "lastUpdateTime": "2026-01-01T00:00:00Z",
            }]);
        })
        .await;
}

async fn with_class(world: &World, name: &str, workers: i64, class: &str) {
    let mut job = pytorch(name, "a", workers);
    job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!(class);
    world.create("kubeflow.org", "pytorchjobs", job).await;
}

/// Nothing that it held is held any more, and its status says so in every place.
fn has_let_go(world: &World, job: &str) -> bool {
    let workload = world.workload(job).unwrap();
    workload["status"]["admission"].is_null()
        && !world.is(job, "QuotaReserved")
        && !world.is(job, "Admitted")
        && world.is_suspended(job)
}

/// A workload whose pods were ready, are no longer, and do not recover in time.
#[tokio::test(start_paused = true)]
async fn kueue_14811_who_does_not_recover_in_time_gives_its_quota_back() {
    let world = World::new(false).await;
    queue(&world, 2).await;
    world.start_with("layer1", impatient());
    world.pytorch("llama", "a", 2).await;
    world.settle().await;
    running(&world, "llama", 2).await;
    world.settle().await;
    assert!(world.is("llama", "PodsReady"));
    world.pytorch("next", "a", 2).await;
    running(&world, "llama", 0).await;
    world.pass(120).await;
    assert!(world.is("llama", "Evicted") && has_let_go(&world, "llama"), "{:?}", world.workload("llama"));
    assert!(world.is("next", "Admitted"), "the quota is there for others");
}

/// The pod of a Deployment is evicted, deleted, and replaced by another one: the first one's Workload must not come back.
#[tokio::test(start_paused = true)]
async fn kueue_10274_the_workload_of_a_pod_that_was_evicted_and_deleted_does_not_return() {
    let world = World::new(true).await;
    world.start_with("layer1", impatient());
    world.settle().await;
    queue(&world, 1).await;
    let pod = json!({
        "metadata": { "name": "web-1", "namespace": "team", "labels": { "kueue.x-k8s.io/queue-name": "a" } },
        "spec": { "containers": [{
            "name": "c", "image": "x",
            "resources": { "requests": { "nvidia.com/gpu": "1" }, "limits": { "nvidia.com/gpu": "1" } },
        }]},
    });
    world.create("", "pods", pod.clone()).await;
    world.settle().await;
    assert!(world.is("web-1", "Admitted"));
    world.pass(90).await;
    assert!(world.get("", "pods", "web-1").is_none(), "evicted, and nobody keeps it");
    let mut replacement = pod;
    replacement["metadata"]["name"] = json!("web-2");
    world.create("", "pods", replacement).await;
    world.pass(40).await;
    assert!(world.is("web-2", "Admitted"), "{:?}", world.workload("web-2"));
    let gone = world.workload("web-1").is_none_or(|_| world.is("web-1", "Finished"));
    assert!(gone, "{:?}", world.workload("web-1"));
}

/// A check says Retry, or Rejected, about a workload that is being evicted for another reason.
#[tokio::test(start_paused = true)]
async fn kueue_3543_an_answer_during_an_eviction_is_no_dead_end() {
    for said in ["Retry", "Rejected"] {
        answered_while_evicted(said).await;
    }
}

async fn answered_while_evicted(said: &str) {
    let world = World::new(false).await;
    queue(&world, 2).await;
    world.checked("a").await;
    for (name, value) in [("low", 1), ("high", 9)] {
        priority_class(&world, name, value).await;
    }
    world.start("layer1");
    with_class(&world, "llama", 2, "low").await;
    world.settle().await;
    answer(&world, "llama", "Ready").await;
    world.settle().await;
    running(&world, "llama", 2).await;
    world.settle().await;
    with_class(&world, "urgent", 2, "high").await;
    world.settle().await;
    assert!(world.is("llama", "Evicted") && world.is("llama", "QuotaReserved"), "its pods still run");
    answer(&world, "llama", said).await;
    world.settle().await;
    running(&world, "llama", 0).await;
    world.settle().await;
    assert!(has_let_go(&world, "llama"));
    answer(&world, "urgent", "Ready").await;
    world.settle().await;
    assert!(world.is("urgent", "Admitted"));
    let jobs = GroupResource::new("kubeflow.org", "pytorchjobs");
    world.cluster.store("user").delete(&jobs, "team", "urgent", Default::default()).await.unwrap();
    world.pass(120).await;
    assert!(world.is("llama", "QuotaReserved"), "{:?}", world.workload("llama"));
    assert_eq!(world.workload("llama").unwrap()["status"]["admissionChecks"][0]["state"], "Pending");
    answer(&world, "llama", "Ready").await;
    world.settle().await;
    assert!(world.is("llama", "Admitted") && !world.is("llama", "Evicted") && !world.is_suspended("llama"));
}

/// Others write the Workload's status at the same time: why it waits is told all the same.
#[tokio::test(start_paused = true)]
async fn kueue_7845_why_it_waits_is_told_though_others_write_too() {
    let world = World::new(false).await;
    queue(&world, 2).await;
    let workloads = GroupResource::new(GROUP, "workloads");
    let aim = Aim::writes().on(workloads).by("layer1");
    world.cluster.faults().add(aim, 1_000_000, 5, Fault::Conflict);
    world.start("layer1");
    world.pytorch("llama", "a", 3).await;
    world.pass(60).await;
    let (status, reason, message) = world.condition("llama", "QuotaReserved").unwrap();
    assert_eq!((status.as_str(), reason.as_str()), ("False", "ExceedsMaxQuota"));
    assert!(!message.is_empty());
    // The queue changes, and so does what is told.
    world
        .update(GROUP, "clusterqueues", "a", false, |queue| queue["spec"]["stopPolicy"] = json!("Hold"))
        .await;
    world.settle().await;
    let (_, reason, _) = world.condition("llama", "QuotaReserved").unwrap();
    assert_eq!(reason, "Suspended");
}

/// Quota comes back while the write that says that there is none is under way.
#[tokio::test(start_paused = true)]
async fn kueue_427_room_that_comes_while_it_is_being_refused_is_seen() {
    let world = World::new(false).await;
    queue(&world, 2).await;
    world.start("layer1");
    world.pytorch("first", "a", 2).await;
    world.settle().await;
    let slow = Aim::writes().on(GroupResource::new(GROUP, "workloads")).by("layer1");
    world.cluster.faults().add(slow, 1_000_000, u64::MAX, Fault::Latency(std::time::Duration::from_secs(3)));
    world.pytorch("second", "a", 2).await;
    world.pass(1).await;
    let jobs = GroupResource::new("kubeflow.org", "pytorchjobs");
    world.cluster.store("user").delete(&jobs, "team", "first", Default::default()).await.unwrap();
    world.pass(60).await;
    assert!(world.is("second", "Admitted"), "{:?}", world.workload("second"));
}

/// The program dies between two of its writes, whichever: the next one neither admits anybody twice nor forgets a job that
/// has ended (its Workload is not admitted again), and nobody's quota is lost.
#[tokio::test(start_paused = true)]
async fn kueue_1654_and_1450_a_restart_at_any_write_loses_nothing() {
    for survives in 0..12 {
        let world = World::new(false).await;
        queue(&world, 2).await;
        let first = world.start("layer1");
        let (left, tasks) = (std::sync::Mutex::new(survives), first.clone());
        world.cluster.faults().set_hook(move |call, moment, _| {
            if &*call.writer != "layer1" || moment != Moment::After {
                return Verdict::Proceed;
            }
            let mut left = left.lock().unwrap();
            *left -= 1;
            if *left < 0 {
                tasks.kill();
                return Verdict::Hang;
            }
            Verdict::Proceed
        });
        world.pytorch("done", "a", 2).await;
        world.settle().await;
        world
            .update("kubeflow.org", "pytorchjobs", "done", true, |job| {
                job["status"]["conditions"] = json!([{
                    "type": "Succeeded", "status": "True", "reason": "Test", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z", "lastUpdateTime": "2026-01-01T00:00:00Z",
                }]);
            })
            .await;
        world.pytorch("next", "a", 2).await;
        world.settle().await;
        first.kill();
        world.start("layer1-again");
        world.pass(60).await;
        let finished = world.workload("done").is_none() || world.is("done", "Finished");
        assert!(finished, "after {survives} writes: {:?}", world.workload("done"));
        assert!(world.is("next", "Admitted"), "after {survives} writes: {:?}", world.workload("next"));
        let queue = world.get(GROUP, "clusterqueues", "a").unwrap();
        assert_eq!(queue["status"]["admittedWorkloads"], 1, "after {survives} writes");
    }
}
