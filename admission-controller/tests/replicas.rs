//! The program with two replicas: one leads at a time, and the next goes on where it stood.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::time::Duration;

use cluster_sim::GroupResource;
use cluster_sim::faults::{Aim, Fault, WatchFault};
use kit::Tasks;
use serde_json::{Value, json};
use support::{World, owned_by};

/// A queue of so much quota, a replica that leads, and one that stands by, `two`.
async fn two_replicas(quota: i64) -> (World, Tasks) {
    let world = World::new(false).await;
    world.queue("a", "", json!({ "nominalQuota": quota }), json!({})).await;
    let first = world.start("one");
    world.settle().await;
    world.start("two");
    (world, first)
}

#[tokio::test(start_paused = true)]
async fn the_second_replica_is_warm_and_takes_over() {
    let (world, first) = two_replicas(4).await;
    world.pytorch("before", "a", 3).await;
    world.settle().await;
    assert!(world.is("before", "Admitted"));
    assert_eq!(world.writes("two", 0), Vec::<String>::new(), "a follower writes nothing");
    first.kill();
    world.pytorch("after", "a", 3).await;
    world.settle().await;
    world.settle().await;
    assert_eq!(world.condition("after", "QuotaReserved").unwrap().1, "WaitingForQuota");
    let done = json!({ "conditions": [{ "type": "Succeeded", "status": "True" }] });
    world.update("kubeflow.org", "pytorchjobs", "before", true, |job| job["status"] = done.clone()).await;
    world.settle().await;
    assert!(world.is("after", "Admitted") && !world.is_suspended("after"));
}

/// From now on the second replica's watch of these objects tells nothing for long.
fn blind(world: &World, group: &str, resource: &str) {
    let late = Aim::default().by("two").on(GroupResource::new(group, resource));
    world.cluster.faults().add_watch(late, 1_000_000, u64::MAX, WatchFault::Delay(Duration::from_secs(200)));
}

/// A replica that stands by, whoever led is gone, and a PyTorchJob that waits since before, or has come since.
async fn without_a_leader(waits: bool) -> World {
    let (world, first) = two_replicas(0).await;
    if waits {
        world.pytorch("whole", "a", 1).await;
    }
    world.settle().await;
    first.kill();
    if !waits {
        world.pytorch("whole", "a", 1).await;
    }
    world
}

/// A Job that is part of the PyTorchJob.
fn part(world: &World, labels: Value, suspend: bool) -> Value {
    let spec = json!({ "restartPolicy": "Never", "containers": [{ "name": "main", "image": "x" }] });
    let owners = owned_by(&world.job("whole"));
    json!({
        "metadata": { "name": "part", "namespace": "team", "labels": labels, "ownerReferences": owners },
        "spec": { "suspend": suspend, "template": { "spec": spec } },
    })
}

/// Only who leads looks at it when it comes.
#[tokio::test(start_paused = true)]
async fn what_runs_as_part_of_a_job_that_waits_is_stopped_by_the_next_leader() {
    let world = without_a_leader(true).await;
    world.create("batch", "jobs", part(&world, json!({}), false)).await;
    let suspended = || world.get("batch", "jobs", "part").unwrap()["spec"]["suspend"].clone();
    world.pass(1).await;
    assert_eq!(suspended(), false, "nobody leads yet");
    world.settle().await;
    world.settle().await;
    assert_eq!(suspended(), true);
}

/// Its owner waits in no queue any more.
#[tokio::test(start_paused = true)]
async fn what_is_nobodys_part_any_more_gets_a_workload_from_the_next_leader() {
    let world = without_a_leader(false).await;
    world.create("batch", "jobs", part(&world, json!({ "kueue.x-k8s.io/queue-name": "a" }), true)).await;
    let forget = |job: &mut Value| job["metadata"]["labels"] = json!({});
    world.update("kubeflow.org", "pytorchjobs", "whole", false, forget).await;
    world.pass(1).await;
    assert!(world.workload("part").is_none(), "nobody leads yet");
    world.settle().await;
    world.settle().await;
    assert!(world.workload("part").is_some());
}

/// Its watch does not tell yet that the former Workload of the job is gone; its list does.
#[tokio::test(start_paused = true)]
async fn the_next_leader_deletes_no_workload_as_a_copy_of_one_that_is_gone() {
    let (world, first) = two_replicas(0).await;
    world.pytorch("job", "a", 1).await;
    world.settle().await;
    blind(&world, "kueue.x-k8s.io", "workloads");
    let workloads = GroupResource::new("kueue.x-k8s.io", "workloads");
    let uid = || world.workload("job").unwrap()["metadata"]["uid"].clone();
    let (former, name) = (uid(), world.workload_name("job"));
    world.cluster.store("user").delete(&workloads, "team", &name, Default::default()).await.unwrap();
    world.settle().await;
    let made = uid();
    assert_ne!(made, former);
    first.kill();
    world.settle().await;
    world.settle().await;
    assert_eq!(uid(), made);
}

/// What its watch tells of jobs may be from before they were started; of others it may not tell at all.
#[tokio::test(start_paused = true)]
async fn the_next_leader_gives_no_quota_back_while_pods_run_that_it_has_not_seen() {
    let (world, first) = two_replicas(0).await;
    world.pytorch("evicted", "a", 1).await;
    world.pytorch("deleted", "a", 1).await;
    world.settle().await;
    blind(&world, "kubeflow.org", "pytorchjobs");
    world.pytorch("unseen", "a", 1).await;
    let give = |queue: &mut Value| {
        queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = json!(3);
    };
    world.update("kueue.x-k8s.io", "clusterqueues", "a", false, give).await;
    world.settle().await;
    let jobs = ["evicted", "deleted", "unseen"];
    let pods = async |active: i64| {
        for job in jobs {
            let status = json!({ "replicaStatuses": { "Worker": { "active": active } } });
            world
                .update("kubeflow.org", "pytorchjobs", job, true, |job| job["status"] = status.clone())
                .await;
        }
    };
    pods(1).await;
    let workloads = GroupResource::new("kueue.x-k8s.io", "workloads");
    for job in jobs {
        assert!(world.is(job, "Admitted") && !world.is_suspended(job), "{job}");
        let name = world.workload_name(job);
        if job == "evicted" {
            let end = |workload: &mut Value| workload["spec"]["active"] = json!(false);
            world.update("kueue.x-k8s.io", "workloads", &name, false, end).await;
        } else {
            world.cluster.store("user").delete(&workloads, "team", &name, Default::default()).await.unwrap();
        }
    }
    world.pass(5).await;
    let holds = |job: &str| world.workload(job).is_some() && world.is(job, "QuotaReserved");
    assert!(jobs.iter().all(|job| world.is_suspended(job) && holds(job)));
    first.kill();
    world.pass(60).await;
    assert_eq!(jobs.map(holds), [true; 3], "their pods still run");
    pods(0).await;
    world.cluster.faults().clear();
    world.pass(800).await;
    assert_eq!(jobs.map(holds), [false, true, true], "those that are not evicted are queued again");
    assert_eq!(jobs.map(|job| world.is_suspended(job)), [true, false, false]);
}

#[tokio::test(start_paused = true)]
async fn two_leaders_never_write_at_once() {
    let (world, first) = two_replicas(4).await;
    world.pytorch("llama", "a", 3).await;
    world.settle().await;
    first.freeze();
    world.settle().await;
    world.pytorch("bert", "a", 3).await;
    world.settle().await;
    assert_eq!(world.condition("bert", "QuotaReserved").unwrap().1, "WaitingForQuota");
    let before = world.attempts("one");
    world.pytorch("t5", "a", 1).await;
    first.thaw();
    world.settle().await;
    assert_eq!(world.attempts("one"), before, "the old leader stays silent");
    assert!(world.is("t5", "Admitted"));
}

/// What the API server has put off rests on quota that another leader may have given away meanwhile.
#[tokio::test(start_paused = true)]
async fn what_was_decided_in_one_term_is_not_written_in_a_later_one() {
    let world = World::new(false).await;
    world.queue("a", "", json!({ "nominalQuota": 4 }), json!({})).await;
    world.start("one");
    world.pytorch("before", "a", 3).await;
    world.settle().await;
    world.pytorch("llama", "a", 3).await;
    world.settle().await;
    let second = world.start("two");
    world.settle().await;
    let (leases, workloads) = ("coordination.k8s.io", "kueue.x-k8s.io");
    let away = |group: &str, resource: &str, times: u64, fault: Fault| {
        let aim = Aim::writes().by("one").on(GroupResource::new(group, resource));
        world.cluster.faults().add(aim, 1_000_000, times, fault);
    };
    away(workloads, "workloads", 1, Fault::TooManyRequests(30));
    away(leases, "leases", 1_000, Fault::ServerError(503));
    let flavors = "/spec/resourceGroups/0/flavors/0/resources/0/nominalQuota";
    world
        .update(workloads, "clusterqueues", "a", false, |queue| {
            *queue.pointer_mut(flavors).unwrap() = json!(7)
        })
        .await;
    world.pass(12).await;
    let container =
        json!({ "name": "c", "image": "x", "resources": { "requests": { "nvidia.com/gpu": "4" } } });
    let set = json!({ "name": "main", "count": 1, "template": { "spec": { "containers": [container] } } });
    let spec = json!({ "queueName": "a", "priority": 10, "podSets": [set] });
    let metadata = json!({ "name": "bert", "namespace": "team" });
    world.create(workloads, "workloads", json!({ "metadata": metadata, "spec": spec })).await;
    while world.workload_named("bert").unwrap()["status"]["admission"].is_null() {
        world.pass(1).await;
    }
    assert!(!world.is("llama", "QuotaReserved"));
    world.cluster.faults().clear();
    second.stop();
    world.pass(60).await;
    assert!(!world.is("llama", "QuotaReserved"), "7 are there, and 7 are held");
}

/// It would spin, and virtual time stand still, if it woke up for what it may not do.
#[tokio::test(start_paused = true)]
async fn a_replica_that_no_longer_leads_sleeps_although_something_is_due() {
    let (world, first) = two_replicas(4).await;
    world.pytorch("llama", "a", 3).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    first.freeze();
    for _ in 0..10 {
        world.settle().await;
    }
    first.thaw();
    for _ in 0..10 {
        world.settle().await;
    }
    world.pytorch("bert", "a", 1).await;
    world.settle().await;
    assert!(world.is("bert", "Admitted"), "{:?}", world.condition("bert", "QuotaReserved"));
}
