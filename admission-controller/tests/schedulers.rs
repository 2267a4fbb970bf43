//! Who places a job's pods: named by the webhooks where nobody chose, and told where it is another.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use cluster_sim::GroupResource;
use serde_json::{Value, json};
use support::{World, pytorch};

fn a_pod(name: &str, labels: Value, scheduler: &str) -> Value {
    json!({
        "metadata": { "name": name, "namespace": "team", "labels": labels },
        "spec": { "schedulerName": scheduler, "containers": [{ "name": "c", "image": "x" }] },
    })
}

/// What the event says by which somebody is told that it was started.
fn started(world: &World, name: &str) -> String {
    let events = world.cluster.store("reader").list(&GroupResource::new("", "events"), Some("team"));
    let about = |event: &Value| event["involvedObject"]["name"] == name && event["reason"] == "Started";
    let event = events.iter().map(|event| event.value()).find(|event| about(event)).unwrap();
    event["message"].as_str().unwrap().to_owned()
}

fn job(name: &str, scheduler: &str) -> Value {
    let mut job = pytorch(name, "a", 1);
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["schedulerName"] = json!(scheduler);
    job
}

/// As those of a TrainJob are, to which no scheduler can be named on the job.
#[tokio::test(start_paused = true)]
async fn pods_with_the_label_are_named_the_scheduler() {
    let world = World::with_webhooks(8).await;
    let labelled = json!({ "trireme.dev/scheduled-by": "trireme" });
    for (name, labels, scheduler, named) in [
        ("labelled", labelled.clone(), "", "trireme"),
        ("defaulted", labelled.clone(), "default-scheduler", "trireme"),
        ("chosen", labelled, "volcano", "volcano"),
        ("other", json!({ "app": "x" }), "default-scheduler", "default-scheduler"),
    ] {
        let pod = world.create("", "pods", a_pod(name, labels, scheduler)).await;
        assert_eq!(pod.value()["spec"]["schedulerName"], named, "{name}");
        assert_eq!(pod.value()["spec"]["schedulingGates"], Value::Null, "{name} is no job");
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_under_another_scheduler_is_told_so() {
    let world = World::with_webhooks(8).await;
    for (name, scheduler) in [("ours", "default-scheduler"), ("theirs", "volcano")] {
        world.create("kubeflow.org", "pytorchjobs", job(name, scheduler)).await;
    }
    let queue = json!({ "kueue.x-k8s.io/queue-name": "a" });
    world.create("", "pods", a_pod("lone", queue, "volcano")).await;
    world.settle().await;
    let words = "its pods are placed by another scheduler: volcano";
    for (name, is_told) in [("ours", false), ("theirs", true), ("lone", true)] {
        let note = started(&world, name);
        assert!(note.contains("with quota of ClusterQueue a"), "{name}: {note}");
        assert_eq!(note.contains(words), is_told, "{name}: {note}");
    }
    let state: Value = serde_json::from_str(&world.page("/debug/state").await).unwrap();
    for (name, is_told) in [("pytorchjob-ours-", false), ("pytorchjob-theirs-", true), ("pod-lone-", true)] {
        let mut workloads = state["workloads"].as_array().unwrap().iter();
        let said = workloads.find(|one| one["name"].as_str().unwrap().starts_with(name)).unwrap();
        assert_eq!(said["state"], "Admitted", "{name}");
        assert_eq!(said["message"].as_str().unwrap_or_default().contains(words), is_told, "{said}");
    }
}
