//! Workloads that are not looked at for what their status says, and what a deactivation leaves of that.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::path::Path;

use admission_controller::{Config, Configuration};
use jiff::Timestamp;
use serde_json::{Value, json};
use support::{World, pytorch};

const GROUP: &str = "kueue.x-k8s.io";

/// Changes the status of a job's Workload as another controller would.
async fn say(world: &World, job: &str, change: impl Fn(&World, &mut Value) + Send + Sync) {
    let name = world.workload_name(job);
    world.update(GROUP, "workloads", &name, true, |workload| change(world, &mut workload["status"])).await;
}

fn requeued(world: &World, status: &str, reason: &str) -> Value {
    json!({
        "type": "Requeued", "status": status, "reason": reason, "message": "somebody says so",
        "lastTransitionTime": world.stamp(),
    })
}

fn said(world: &World, job: &str, kind: &str) -> (String, String) {
    let (status, reason, _) = world.condition(job, kind).unwrap_or_default();
    (status, reason)
}

fn pair(status: &str, reason: &str) -> (String, String) {
    (status.to_owned(), reason.to_owned())
}

/// A queue that is stopped evicts what runs in it.
#[tokio::test(start_paused = true)]
async fn an_eviction_closes_the_gates_and_calls_back_what_was_offered_elsewhere() {
    let world = World::new(false).await;
    world.queue("a", "", json!({ "nominalQuota": 4 }), json!({})).await;
    let file = "featureGates: { MultiKueueOrchestratedPreemption: true }";
    world.start_with(
        "layer1",
        Config { file: Configuration::parse(Path::new("config.yaml"), file).unwrap(), ..Config::default() },
    );
    world.pytorch("llama", "a", 1).await;
    world.settle().await;
    let name = world.workload_name("llama");
    let gates = json!([{ "name": "example.com/one" }]);
    let change = |workload: &mut Value| workload["spec"]["preemptionGates"] = gates.clone();
    world.update(GROUP, "workloads", &name, false, change).await;
    world.settle().await;
    let state = |world: &World| world.workload("llama").unwrap()["status"]["preemptionGates"][0].clone();
    assert_eq!(state(&world)["position"], "Closed");
    say(&world, "llama", |world, status| {
        status["nominatedClusterNames"] = json!(["far"]);
        status["preemptionGates"] = json!([{
            "name": "example.com/one", "position": "Open", "lastTransitionTime": world.stamp(),
        }]);
    })
    .await;
    world.settle().await;
    assert_eq!(state(&world)["position"], "Open");
    let before = state(&world)["lastTransitionTime"].clone();
    let stop = |queue: &mut Value| queue["spec"]["stopPolicy"] = json!("HoldAndDrain");
    world.update(GROUP, "clusterqueues", "a", false, stop).await;
    world.settle().await;
    assert_eq!(said(&world, "llama", "Evicted"), pair("True", "ClusterQueueStopped"));
    assert_eq!(state(&world)["position"], "Closed");
    assert_ne!(state(&world)["lastTransitionTime"], before);
    assert_eq!(world.workload("llama").unwrap()["status"].get("nominatedClusterNames"), None);
}

async fn resize(world: &World, gpus: i64) {
    world
        .update(GROUP, "clusterqueues", "a", false, |queue| {
            queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = json!(gpus);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn who_is_not_requeued_waits_until_that_is_taken_back() {
    let world = World::running(0).await;
    world.pytorch("llama", "a", 1).await;
    world.settle().await;
    assert_eq!(said(&world, "llama", "QuotaReserved"), pair("False", "ExceedsMaxQuota"));
    say(&world, "llama", |world, status| {
        let put_off = requeued(world, "False", "Quarantined");
        status["conditions"].as_array_mut().unwrap().push(put_off);
    })
    .await;
    resize(&world, 4).await;
    world.settle().await;
    assert_eq!(said(&world, "llama", "QuotaReserved"), pair("False", "PendingEvaluation"));
    assert!(world.condition("llama", "QuotaReserved").unwrap().2.contains("Quarantined"));
    assert_eq!(said(&world, "llama", "Requeued"), pair("False", "Quarantined"));
    let queue = world.get(GROUP, "clusterqueues", "a").unwrap();
    assert_eq!(queue["status"]["pendingWorkloads"], 1);
    let explained = world.explained("llama").await.to_string();
    assert!(explained.contains("Quarantined"), "{explained}");
    say(&world, "llama", |world, status| {
        let conditions = status["conditions"].as_array_mut().unwrap();
        conditions.retain(|one| one["type"] != "Requeued");
        conditions.push(requeued(world, "True", "Released"));
    })
    .await;
    world.settle().await;
    assert!(world.is("llama", "Admitted"));
}

#[tokio::test(start_paused = true)]
async fn what_was_inadmissible_once_is_judged_anew() {
    let world = World::running(0).await;
    world.pytorch("llama", "a", 1).await;
    world.settle().await;
    say(&world, "llama", |world, status| {
        let put_off = requeued(world, "False", "Inadmissible");
        status["conditions"].as_array_mut().unwrap().push(put_off);
    })
    .await;
    resize(&world, 4).await;
    world.settle().await;
    assert!(world.is("llama", "Admitted"));
}

#[tokio::test(start_paused = true)]
async fn who_is_deactivated_while_it_is_put_off_is_put_off_no_more() {
    let world = World::running(4).await;
    world.pytorch("llama", "a", 8).await;
    world.settle().await;
    say(&world, "llama", |world, status| {
        let conditions = status["conditions"].as_array_mut().unwrap();
        conditions.push(requeued(world, "False", "PodsReadyTimeout"));
        let mut evicted = requeued(world, "True", "PodsReadyTimeout");
        evicted["type"] = json!("Evicted");
        conditions.push(evicted);
        status["requeueState"] = json!({ "count": 3, "requeueAt": "2026-01-02T00:00:00Z" });
    })
    .await;
    let active = |wanted: bool| {
        let name = world.workload_name("llama");
        let world = &world;
        async move {
            let change = |workload: &mut Value| workload["spec"]["active"] = json!(wanted);
            world.update(GROUP, "workloads", &name, false, change).await;
        }
    };
    active(false).await;
    world.settle().await;
    assert_eq!(world.workload("llama").unwrap()["status"].get("requeueState"), None);
    assert_eq!(said(&world, "llama", "Evicted"), pair("True", "PodsReadyTimeout"));
    let quiet = world.attempts("layer1");
    world.pass(600).await;
    assert_eq!(world.attempts("layer1"), quiet, "it is not written again and again");
    active(true).await;
    resize(&world, 8).await;
    world.settle().await;
    assert!(world.is("llama", "Admitted"), "it does not wait for the time that was forgotten");
}

/// Whatever its status says of how often it was put off: the wait is the longest there is, or none that ever ends, and the count is
/// still a number.
#[tokio::test(start_paused = true)]
async fn who_was_put_off_a_million_times_is_put_off_once_more() {
    for (longest, count, after, wait) in [
        (600, 1_000_000, 1_000_001, Some(600)),
        (600, i32::MAX, i32::MAX, Some(600)),
        (0, 1_000_000, 1_000_001, None),
    ] {
        let world = World::new(false).await;
        world.queue("a", "", json!({ "nominalQuota": 4 }), json!({})).await;
        let file = format!(
            "waitForPodsReady:\n  timeout: 5m\n  requeuingStrategy: {{ backoffBaseSeconds: 60, backoffMaxSeconds: {longest} }}\n"
        );
        world.start_with(
            "layer1",
            Config {
                file: Configuration::parse(Path::new("config.yaml"), &file).unwrap(),
                ..Config::default()
            },
        );
        world.pytorch("llama", "a", 4).await;
        world.settle().await;
        say(&world, "llama", |_, status| status["requeueState"] = json!({ "count": count })).await;
        world.pass(300).await;
        assert_eq!(said(&world, "llama", "Evicted"), pair("True", "PodsReadyTimeout"));
        let workload = world.workload("llama").unwrap();
        let state = &workload["status"]["requeueState"];
        let second = |time: &Value| time.as_str().unwrap().parse::<Timestamp>().unwrap().as_second();
        let conditions = workload["status"]["conditions"].as_array().unwrap();
        let evicted = conditions.iter().find(|one| one["type"] == "Evicted").unwrap();
        let since = second(&evicted["lastTransitionTime"]);
        let until = wait.map_or(Timestamp::MAX.as_second(), |wait| since + wait);
        assert_eq!((&state["count"], second(&state["requeueAt"])), (&json!(after), until));
        world.pass(600).await;
        assert_eq!(
            world.is("llama", "Admitted"),
            wait.is_some(),
            "of at most {longest} s, for {count} times"
        );
    }
}

/// As in Kueue: its time goes on until its pods are gone, and it is not queued again.
#[tokio::test(start_paused = true)]
async fn who_has_had_its_time_while_it_leaves_is_deactivated() {
    let world = World::running(4).await;
    let mut job = pytorch("llama", "a", 4);
    job["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] = json!("60");
    world.create("kubeflow.org", "pytorchjobs", job).await;
    world.pass(20).await;
    assert!(world.is("llama", "Admitted"));
    let pods = |active: i64| {
        let world = &world;
        async move {
            let change = |job: &mut Value| {
                job["status"] = json!({ "replicaStatuses": { "Worker": { "active": active } } });
            };
            world.update("kubeflow.org", "pytorchjobs", "llama", true, change).await;
        }
    };
    let stop = |policy: &'static str| move |queue: &mut Value| queue["spec"]["stopPolicy"] = json!(policy);
    pods(4).await;
    world.update(GROUP, "clusterqueues", "a", false, stop("HoldAndDrain")).await;
    world.pass(20).await;
    assert_eq!(said(&world, "llama", "Evicted"), pair("True", "ClusterQueueStopped"));
    world.pass(40).await;
    assert_eq!(world.workload("llama").unwrap()["spec"]["active"], false);
    assert!(world.is("llama", "QuotaReserved"), "its pods still run");
    pods(0).await;
    world.update(GROUP, "clusterqueues", "a", false, stop("None")).await;
    world.settle().await;
    assert_eq!(said(&world, "llama", "QuotaReserved"), pair("False", "Deactivated"));
    assert_eq!(said(&world, "llama", "DeactivationTarget"), pair("", ""), "it may be activated again");
    let told = ("Warning".to_owned(), "MaximumExecutionTimeExceeded".to_owned());
    assert!(world.told().contains(&told), "{:?}", world.told());

    let name = world.workload_name("llama");
    world.update(GROUP, "workloads", &name, false, |one| one["spec"]["active"] = json!(true)).await;
    world.pass(50).await;
    assert!(
        world.is("llama", "Admitted"),
        "its time starts from the beginning: {:?}",
        world.workload("llama")
    );
}

fn gated(name: &str) -> Value {
    let gpu = json!({ "nvidia.com/gpu": 1 });
    json!({
        "metadata": { "name": name, "namespace": "team", "labels": { "kueue.x-k8s.io/queue-name": "a" } },
        "spec": { "containers": [{
            "name": "c", "image": "x", "resources": { "requests": gpu, "limits": gpu },
        }] },
    })
}

/// As in Kueue: of a group they all go.
#[tokio::test(start_paused = true)]
async fn pods_go_when_their_workload_was_deactivated_for_long_enough() {
    let world = World::new(true).await;
    let text = "objectRetentionPolicies: { workloads: { afterDeactivatedByKueue: 1h } }\n";
    let file = Configuration::parse(Path::new("config.yaml"), text).unwrap();
    world.start_with("layer1", Config { file, ..Config::default() });
    world.settle().await;
    world.queue("a", "", json!({ "nominalQuota": 3 }), json!({})).await;
    world.checked("a").await;
    world.settle().await;
    world.create("", "pods", gated("solo")).await;
    for name in ["r0", "r1"] {
        let mut member = gated(name);
        member["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"] = json!("ring");
        member["metadata"]["annotations"] = json!({ "kueue.x-k8s.io/pod-group-total-count": "2" });
        world.create("", "pods", member).await;
    }
    world.settle().await;
    let workloads = [world.workload_name("solo"), "ring".to_owned()];
    for name in &workloads {
        let reject = |workload: &mut Value| {
            let states = json!([{
                "name": "budget", "state": "Rejected", "message": "no", "lastTransitionTime": world.stamp(),
            }]);
            workload["status"]["admissionChecks"] = states;
        };
        world.update(GROUP, "workloads", name, true, reject).await;
    }
    world.settle().await;
    for name in &workloads {
        assert_eq!(world.workload_named(name).unwrap()["spec"]["active"], false, "{name}");
    }
    world.pass(3500).await;
    for name in ["solo", "r0", "r1"] {
        assert!(world.get("", "pods", name).is_some(), "{name}: not yet");
    }
    world.pass(200).await;
    for name in ["solo", "r0", "r1"] {
        assert!(world.get("", "pods", name).is_none(), "{name}: kept for an hour");
        assert!(world.told_of("Pod", name).contains(&"Deleted".into()), "{name}");
    }
}

/// Who names no queue any more is left alone; what is left of its time in one goes as that of others does.
#[tokio::test(start_paused = true)]
async fn of_a_job_without_a_queue_the_workload_alone_goes() {
    let world = World::new(false).await;
    let text =
        "objectRetentionPolicies: { workloads: { afterFinished: 10m, afterDeactivatedByKueue: 10m } }\n";
    let file = Configuration::parse(Path::new("config.yaml"), text).unwrap();
    world.start_with("layer1", Config { file, ..Config::default() });
    world.queue("a", "", json!({ "nominalQuota": 8 }), json!({})).await;
    let jobs = ["done", "timed"];
    for name in jobs {
        let mut job = pytorch(name, "a", 4);
        if name == "timed" {
            job["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] = json!("60");
        }
        world.create("kubeflow.org", "pytorchjobs", job).await;
    }
    world.settle().await;
    for name in jobs {
        assert!(world.is(name, "Admitted"), "{name}");
        let forget = |job: &mut Value| {
            job["metadata"]["labels"].as_object_mut().unwrap().remove("kueue.x-k8s.io/queue-name");
        };
        world.update("kubeflow.org", "pytorchjobs", name, false, forget).await;
    }
    let done = json!({ "conditions": [{ "type": "Succeeded", "status": "True" }] });
    world.update("kubeflow.org", "pytorchjobs", "done", true, |job| job["status"] = done.clone()).await;
    world.pass(120).await;
    assert!(world.is("done", "Finished"));
    let (_, reason, _) = world.condition("timed", "Evicted").unwrap();
    assert_eq!(reason, "DeactivatedDueToMaximumExecutionTimeExceeded");
    assert!(world.is_suspended("timed"));
    world.pass(400).await;
    assert!(world.workload("done").is_some(), "not yet");
    world.pass(400).await;
    assert!(world.workload("done").is_none() && world.workload("timed").is_some());
    assert!(jobs.iter().all(|name| world.get("kubeflow.org", "pytorchjobs", name).is_some()));
}
