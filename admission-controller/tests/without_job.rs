//! Workloads that somebody made, with no job behind them that is managed here.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::path::Path;
use std::sync::Arc;

use admission_controller::{Config, Configuration};
use cluster_sim::{Commit, GroupResource, Part};
use serde_json::{Value, json};
use support::{World, owned_by};

const GROUP: &str = "kueue.x-k8s.io";

fn workloads() -> GroupResource {
    GroupResource::new(GROUP, "workloads")
}

/// One that wants four GPUs.
fn by_hand(name: &str, priority: i64) -> Value {
    json!({
        "metadata": { "name": name, "namespace": "team" },
        "spec": { "queueName": "a", "active": true, "priority": priority, "podSets": [{ "name": "main", "count": 1, "template": {
            "spec": { "restartPolicy": "Never", "containers": [{
                "name": "main", "image": "x", "resources": { "requests": { "nvidia.com/gpu": "4" } },
            }]},
        }}]},
    })
}

fn is_admitted(world: &World, name: &str) -> bool {
    let workload = world.workload_named(name).unwrap();
    let mut conditions = workload["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|one| one["type"] == "Admitted" && one["status"] == "True")
}

/// Kinds that are known and not managed here, be it that somebody else does: their Workloads wait, run and leave all the same.
#[tokio::test(start_paused = true)]
async fn a_workload_of_a_job_that_is_managed_elsewhere_is_decided_about() {
    for external in ["", "externalFrameworks: [JobSet.v1alpha2.jobset.x-k8s.io]"] {
        let world = World::new(false).await;
        let preemption = json!({ "withinClusterQueue": "LowerPriority" });
        world.queue("a", "", json!({ "nominalQuota": 4 }), preemption).await;
        let text = format!("integrations:\n  frameworks: [batch/job]\n  {external}\n");
        let file = Configuration::parse(Path::new("config.yaml"), &text).unwrap();
        world.start_with("layer1", Config { file, ..Config::default() });
        let metadata = json!({ "metadata": { "name": "set", "namespace": "team" } });
        let set = world.create("jobset.x-k8s.io", "jobsets", metadata).await;
        let of_set = |name: &str, priority: i64| {
            let mut workload = by_hand(name, priority);
            workload["metadata"]["ownerReferences"] = owned_by(set.value());
            workload
        };
        world.create(GROUP, "workloads", of_set("low", 1)).await;
        world.settle().await;
        assert!(is_admitted(&world, "low"), "{external}");
        world.create(GROUP, "workloads", of_set("high", 2)).await;
        world.settle().await;
        let low = world.workload_named("low").unwrap();
        assert!(low["status"]["conditions"].to_string().contains("Preempted"), "{external}: {low}");
        assert!(!is_admitted(&world, "high"), "whoever stops the job gives its quota back");
        // By server-side apply, which cannot take away what another manager wrote.
        world
            .update(GROUP, "workloads", "low", true, |low| {
                let conditions = low["status"]["conditions"].as_array_mut().into_iter().flatten();
                for condition in conditions.filter(|one| one["type"] == "QuotaReserved") {
                    condition["status"] = json!("False");
                    condition["reason"] = json!("PendingEvaluation");
                }
            })
            .await;
        world.settle().await;
        assert!(is_admitted(&world, "high"));
        assert_eq!(world.workload_named("low").unwrap()["status"]["admission"], Value::Null);
    }
}

/// Nobody runs pods of it, so whoever needs its quota has it a write sooner.
#[tokio::test(start_paused = true)]
async fn a_workload_without_a_job_gives_its_quota_back_with_its_eviction() {
    let world = World::new(false).await;
    let preemption = json!({ "withinClusterQueue": "LowerPriority" });
    world.queue("a", "", json!({ "nominalQuota": 4 }), preemption).await;
    world.start("layer1");
    let status = |name: &str| {
        let workload = world.cluster.store("user").get(&workloads(), "team", name).unwrap();
        workload.value()["status"].clone()
    };
    let says = |name: &str| -> Vec<String> {
        let status = status(name);
        let conditions = status["conditions"].as_array().unwrap().iter();
        let mut said: Vec<String> = conditions
            .map(|one| format!("{}={} {}", one["type"], one["status"], one["reason"]).replace('"', ""))
            .collect();
        said.sort();
        said
    };
    world.create("kueue.x-k8s.io", "workloads", by_hand("low", 1)).await;
    world.settle().await;
    assert_eq!(says("low"), ["Admitted=True Admitted", "QuotaReserved=True QuotaReserved"]);
    let before = world.cluster.log().len();
    world.create("kueue.x-k8s.io", "workloads", by_hand("high", 2)).await;
    world.settle().await;
    assert!(says("high").contains(&"Admitted=True Admitted".to_owned()), "{:?}", says("high"));
    let log = world.cluster.log();
    let evicts = |commit: &&Arc<Commit>| {
        let after = commit.new.as_ref().map(|one| one.value()["status"].clone()).unwrap_or_default();
        &*commit.resource.resource == "workloads" && after.to_string().contains("Evicted")
    };
    let first = log[before..].iter().find(evicts).unwrap().new.as_ref().unwrap().value()["status"].clone();
    assert!(first["admission"].is_null(), "{first}");
    let said = says("low");
    for one in [
        "Evicted=True Preempted",
        "Preempted=True InClusterQueue",
        "Requeued=True Preempted",
        "Admitted=False NoReservation",
    ] {
        assert!(said.contains(&one.to_owned()), "{one} is not in {said:?}");
    }
    assert_eq!(status("low")["schedulingStats"]["evictions"][0]["count"], 1);
    assert!(world.told().iter().any(|one| one.1 == "EvictedDueToPreempted"), "{:?}", world.told());
    let text = world.metrics().await;
    for line in [
        r#"kueue_evicted_workloads_total{cluster_queue="a",reason="Preempted",underlying_cause="",priority_class="",replica_role="leader"} 1"#,
        r#"kueue_workload_eviction_latency_seconds_count{cluster_queue="a",reason="Preempted",replica_role="leader"} 1"#,
        r#"kueue_preempted_workloads_total{preempting_cluster_queue="a",reason="InClusterQueue",replica_role="leader"} 1"#,
    ] {
        assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
    }
}

/// No job says so: the Workload itself names its class.
#[tokio::test(start_paused = true)]
async fn a_workload_without_a_job_follows_its_class() {
    let world = World::new(false).await;
    world.queue("a", "", json!({ "nominalQuota": 4 }), json!({})).await;
    let class = json!({ "metadata": { "name": "high" }, "value": 9 });
    world.create(GROUP, "workloadpriorityclasses", class).await;
    world.start("layer1");
    let mut workload = by_hand("alone", 9);
    workload["spec"]["priorityClassRef"] =
        json!({ "group": GROUP, "kind": "WorkloadPriorityClass", "name": "high" });
    world.create(GROUP, "workloads", workload).await;
    world.settle().await;
    assert!(is_admitted(&world, "alone"));
    let before = world.cluster.revision();
    let raise = |class: &mut Value| class["value"] = json!(20);
    world.update(GROUP, "workloadpriorityclasses", "high", false, raise).await;
    world.settle().await;
    assert_eq!(world.workload_named("alone").unwrap()["spec"]["priority"], 20);
    assert!(is_admitted(&world, "alone"));
    assert_eq!(world.writes("layer1", before), ["Patch workloads/"]);
}

/// Workload `theirs` has quota, and an owner of a kind that somebody else manages.
async fn owned_elsewhere() -> World {
    let world = World::new(false).await;
    world.queue("a", "", json!({ "nominalQuota": 4 }), json!({})).await;
    let text = "integrations: { externalFrameworks: [TrainingRun.v1.example.com] }";
    let file = Configuration::parse(Path::new("config.yaml"), text).unwrap();
    world.start_with("layer1", Config { file, ..Config::default() });
    let run = json!({ "metadata": { "name": "run", "namespace": "team" }, "spec": {} });
    let run = world.create("example.com", "trainingruns", run).await;
    let mut workload = by_hand("theirs", 1);
    workload["metadata"]["finalizers"] = json!(["kueue.x-k8s.io/resource-in-use"]);
    workload["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "example.com/v1", "kind": "TrainingRun", "name": "run", "controller": true,
        "uid": run.value()["metadata"]["uid"],
    }]);
    world.create(GROUP, "workloads", workload).await;
    world.settle().await;
    world
}

/// As in Kueue: its pods may run until whoever manages its owner says that they do not.
#[tokio::test(start_paused = true)]
async fn a_deleted_workload_that_is_owned_elsewhere_keeps_its_quota_until_it_is_let_go() {
    let world = owned_elsewhere().await;
    assert!(is_admitted(&world, "theirs"));
    world.create(GROUP, "workloads", by_hand("next", 1)).await;
    world.cluster.store("user").delete(&workloads(), "team", "theirs", Default::default()).await.unwrap();
    world.settle().await;
    assert!(world.workload_named("theirs").is_some() && !is_admitted(&world, "next"));
    let let_go = |workload: &mut Value| {
        workload["metadata"]["finalizers"] = json!([]);
        Ok(())
    };
    let store = world.cluster.store("run-controller");
    store.update(&workloads(), "team", "theirs", Part::Main, let_go).await.unwrap();
    world.settle().await;
    assert!(world.workload_named("theirs").is_none() && is_admitted(&world, "next"));
}

/// Nothing of it runs, and nobody else lets it go.
#[tokio::test(start_paused = true)]
async fn a_deleted_workload_that_is_owned_elsewhere_is_let_go_when_it_has_ended() {
    let world = owned_elsewhere().await;
    let end = |workload: &mut Value| {
        let conditions = workload["status"]["conditions"].as_array_mut().unwrap();
        conditions.push(json!({
            "type": "Finished", "status": "True", "reason": "Succeeded", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }));
    };
    world.update(GROUP, "workloads", "theirs", true, end).await;
    world.settle().await;
    assert!(world.workload_named("theirs").is_some());
    world.cluster.store("user").delete(&workloads(), "team", "theirs", Default::default()).await.unwrap();
    world.settle().await;
    assert!(world.workload_named("theirs").is_none());
}

/// A Job of so many pods in queue `a` that a finalizer holds.
async fn held(world: &World, pods: i64, elastic: bool) -> Value {
    let limits = json!({ "limits": { "nvidia.com/gpu": 1 } });
    let job = json!({
        "metadata": {
            "name": "held", "namespace": "team", "finalizers": ["example.com/hold"],
            "labels": { "kueue.x-k8s.io/queue-name": "a" },
            "annotations": { "kueue.x-k8s.io/elastic-job": elastic.to_string() },
        },
        "spec": { "suspend": true, "parallelism": pods, "template": { "spec": {
            "restartPolicy": "Never", "containers": [{ "name": "main", "image": "x", "resources": limits }],
        } } },
    });
    let job = world.create("batch", "jobs", job).await;
    world.settle().await;
    job.value().clone()
}

async fn delete(world: &World) {
    let id = GroupResource::new("batch", "jobs");
    world.cluster.store("user").delete(&id, "team", "held", Default::default()).await.unwrap();
    world.settle().await;
    let held = world.get("batch", "jobs", "held").unwrap();
    assert!(held["metadata"]["deletionTimestamp"].is_string());
}

/// Of each Workload of that job whether it has quota, and why it has ended.
fn kept(world: &World) -> Vec<(bool, String)> {
    let all = world.cluster.store("reader").list(&workloads(), Some("team"));
    let of_held = all
        .iter()
        .map(|one| one.value())
        .filter(|one| one["metadata"]["ownerReferences"][0]["name"] == "held");
    let said = |one: &Value| {
        let all = one["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let end = all.iter().find(|one| one["type"] == "Finished");
        let reason = end.map_or("", |end| end["reason"].as_str().unwrap());
        (one["status"]["admission"].is_object() && reason.is_empty(), reason.to_owned())
    };
    of_held.map(said).collect()
}

/// Kueue gave such a job quota before 0.18, and never had it back.
#[tokio::test(start_paused = true)]
async fn a_deleted_job_that_a_finalizer_holds_takes_no_quota_and_keeps_none() {
    for elastic in [false, true] {
        let world = World::running(0).await;
        held(&world, 2, elastic).await;
        delete(&world).await;
        assert_eq!(kept(&world), [(false, "OwnerNotFound".to_owned())], "it waits for nothing");

        let world = World::running(4).await;
        held(&world, 3, elastic).await;
        world.create(GROUP, "workloads", by_hand("next", 1)).await;
        let status = |active: i64| move |job: &mut Value| job["status"] = json!({ "active": active });
        world.update("batch", "jobs", "held", true, status(3)).await;
        delete(&world).await;
        assert_eq!(kept(&world), [(true, String::new())], "its pods run");
        world.update("batch", "jobs", "held", true, status(0)).await;
        world.settle().await;
        assert_eq!(kept(&world), [(false, "OwnerNotFound".to_owned())]);
        assert!(is_admitted(&world, "next"));
    }
}

/// As in Kueue: who waits for its quota does not wait for the garbage collector.
#[tokio::test(start_paused = true)]
async fn the_workload_of_a_job_that_is_gone_ends_before_the_garbage_collector_takes_it() {
    for (elastic, ends, gate) in [
        (false, true, ""),
        (true, true, ""),
        (false, false, "featureGates: { FinishOrphanedWorkloads: false }"),
    ] {
        let world = World::new(false).await;
        world.queue("a", "", json!({ "nominalQuota": 4 }), json!({})).await;
        let file = Configuration::parse(Path::new("config.yaml"), gate).unwrap();
        world.start_with("layer1", Config { file, ..Config::default() });
        world.hold_collector().await;
        let job = held(&world, 3, elastic).await;
        let release = |job: &mut Value| job["metadata"]["finalizers"] = json!([]);
        world.update("batch", "jobs", "held", false, release).await;
        world.create(GROUP, "workloads", by_hand("next", 1)).await;
        world.settle().await;
        assert_eq!(kept(&world), [(true, String::new())]);
        let id = GroupResource::new("batch", "jobs");
        world.cluster.store("user").delete(&id, "team", "held", Default::default()).await.unwrap();
        world.settle().await;
        let reason = if ends { "OwnerNotFound" } else { "" };
        assert_eq!(kept(&world), [(!ends, reason.to_owned())], "{elastic} {gate}");
        assert_eq!(is_admitted(&world, "next"), ends, "{elastic} {gate}");
        // Another one of its name has a uid of its own, and quota of its own.
        let mut again = job.clone();
        again["metadata"] =
            json!({ "name": "held", "namespace": "team", "labels": job["metadata"]["labels"] });
        again["spec"] = json!({ "suspend": true, "parallelism": 1, "template": job["spec"]["template"] });
        world.create("batch", "jobs", again).await;
        world.settle().await;
        assert_eq!(kept(&world).len(), 2, "{elastic} {gate}");
    }
}

/// What it asked for besides is no more of use to it than what it has.
#[tokio::test(start_paused = true)]
async fn a_deleted_job_that_grew_waits_for_no_more() {
    let world = World::running(4).await;
    held(&world, 2, true).await;
    let grow = |job: &mut Value| {
        job["spec"]["parallelism"] = json!(5);
        job["spec"]["suspend"] = json!(false);
    };
    world.update("batch", "jobs", "held", false, grow).await;
    world.update("batch", "jobs", "held", true, |job| job["status"] = json!({ "active": 2 })).await;
    world.settle().await;
    assert_eq!(kept(&world).len(), 2);
    delete(&world).await;
    let mut kept = kept(&world);
    kept.sort();
    assert_eq!(kept, [(false, "OwnerNotFound".to_owned()), (true, String::new())]);
}

/// KubeRay holds a cluster until a Job has cleaned up after it.
#[tokio::test(start_paused = true)]
async fn what_is_made_of_a_deleted_job_runs() {
    let world = World::running(4).await;
    let owner = held(&world, 2, false).await;
    delete(&world).await;
    assert_eq!(kept(&world), [(false, "OwnerNotFound".to_owned())]);
    let cleanup = part_of(&owner, "cleanup");
    world.create("batch", "jobs", cleanup).await;
    world.settle().await;
    assert_eq!(world.get("batch", "jobs", "cleanup").unwrap()["spec"]["suspend"], false);
}

/// Of a Job, with its template, and no queue.
fn part_of(owner: &Value, name: &str) -> Value {
    json!({
        "metadata": { "name": name, "namespace": "team", "ownerReferences": owned_by(owner) },
        "spec": { "suspend": false, "template": owner["spec"]["template"] },
    })
}

/// A RayJob that has ended deletes its cluster, and stays.
#[tokio::test(start_paused = true)]
async fn what_is_made_of_a_deleted_part_of_a_job_runs() {
    let world = World::running(4).await;
    let owner = held(&world, 2, false).await;
    let mut part = part_of(&owner, "part");
    part["metadata"]["finalizers"] = json!(["example.com/hold"]);
    let part = world.create("batch", "jobs", part).await.value().clone();
    let end =
        |job: &mut Value| job["status"]["conditions"] = json!([{ "type": "Complete", "status": "True" }]);
    world.update("batch", "jobs", "held", true, end).await;
    world.settle().await;
    let id = GroupResource::new("batch", "jobs");
    world.cluster.store("user").delete(&id, "team", "part", Default::default()).await.unwrap();
    for (name, suspended) in [("cleanup", false), ("more", true)] {
        let owner = if suspended { &owner } else { &part };
        world.create("batch", "jobs", part_of(owner, name)).await;
        world.settle().await;
        assert_eq!(world.get("batch", "jobs", name).unwrap()["spec"]["suspend"], suspended, "{name}");
    }
}
