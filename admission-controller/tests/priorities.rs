//! Classes and priorities of jobs and Workloads, and what follows when they change.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::path::Path;

use admission_controller::{Config, Configuration};
use serde_json::{Value, json};
use support::{World, batch, pytorch, workloads};

#[tokio::test(start_paused = true)]
async fn a_pod_priority_class_is_taken_over_once() {
    let world = World::new(false).await;
    world.queue("a", "", json!({ "nominalQuota": 0 }), json!({})).await;
    let class = json!({ "metadata": { "name": "urgent" }, "value": 100 });
    world.create("scheduling.k8s.io", "priorityclasses", class).await;
    world.start("layer1");
    let mut job = pytorch("llama", "a", 1);
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["priorityClassName"] = json!("urgent");
    world.create("kubeflow.org", "pytorchjobs", job).await;
    tokio::time::timeout(std::time::Duration::from_secs(600), world.settle()).await.unwrap();
    let workload = world.workload("llama").unwrap();
    assert_eq!(workload["spec"]["priority"], 100);
    assert_eq!(workload["spec"]["priorityClassRef"]["kind"], "PriorityClass");
}

#[tokio::test(start_paused = true)]
async fn a_missing_priority_class_that_is_made_later_lets_the_job_go_on() {
    let world = World::running(4).await;
    let mut job = pytorch("llama", "a", 1);
    job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("later");
    world.create("kubeflow.org", "pytorchjobs", job).await;
    world.settle().await;
    assert!(world.workload("llama").is_none() && world.is_suspended("llama"));
    let class = json!({ "metadata": { "name": "later" }, "value": 7 });
    world.create("kueue.x-k8s.io", "workloadpriorityclasses", class).await;
    world.settle().await;
    assert_eq!(world.workload("llama").unwrap()["spec"]["priority"], 7);
    assert!(world.is("llama", "Admitted") && !world.is_suspended("llama"));
}

#[tokio::test(start_paused = true)]
async fn a_job_with_another_class_or_smaller_least_count_takes_its_workload_along() {
    let world = World::new(false).await;
    world.queue("a", "", json!({ "nominalQuota": 1 }), json!({})).await;
    for (name, value) in [("low", 1), ("high", 9)] {
        let class = json!({ "metadata": { "name": name }, "value": value });
        world.create("kueue.x-k8s.io", "workloadpriorityclasses", class).await;
    }
    world.start("layer1");
    let mut job = batch("llama", "a", 8);
    job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("low");
    job["metadata"]["annotations"] = json!({ "kueue.x-k8s.io/job-min-parallelism": "4" });
    world.create("batch", "jobs", job).await;
    world.settle().await;
    let before = world.workload("llama").unwrap();
    assert_eq!(before["spec"]["podSets"][0]["minCount"], 4);
    world
        .update("batch", "jobs", "llama", false, |job| {
            job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("high");
            job["metadata"]["annotations"]["kueue.x-k8s.io/job-min-parallelism"] = json!("2");
        })
        .await;
    world.settle().await;
    let after = world.workload("llama").unwrap();
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert_eq!(after["spec"]["podSets"][0]["minCount"], 2);
    assert_eq!(
        (&after["spec"]["priority"], &after["spec"]["priorityClassRef"]["name"]),
        (&json!(9), &json!("high"))
    );
    assert!(world.told().iter().any(|one| one.1 == "UpdatedWorkload"), "{:?}", world.told());
}

#[tokio::test(start_paused = true)]
async fn a_boost_lifts_a_workload_over_its_class_where_the_gate_is_open() {
    for open in [true, false] {
        let text = format!("featureGates:\n  PriorityBoost: {open}\n");
        let file = Configuration::parse(Path::new("config.yaml"), &text).unwrap();
        let world = World::new(false).await;
        let preemption = json!({ "withinClusterQueue": "LowerPriority" });
        world.queue("a", "", json!({ "nominalQuota": 4 }), preemption).await;
        world.start_with("layer1", Config { file, ..Config::default() });
        world.pytorch("llama", "a", 4).await;
        world.settle().await;
        world.pytorch("bert", "a", 4).await;
        world.settle().await;
        assert!(!world.is("bert", "Admitted"));
        let bert = world.workload_name("bert");
        let set = |value: &mut Value| {
            value["metadata"]["annotations"]["kueue.x-k8s.io/priority-boost"] = json!("1");
            Ok(())
        };
        let part = cluster_sim::Part::Main;
        world.cluster.store("admin").update(&workloads(), "team", &bert, part, set).await.unwrap();
        world.settle().await;
        assert_eq!(world.is("bert", "Admitted"), open);
        let preempted = world.condition("llama", "Preempted");
        assert_eq!(preempted.map(|one| one.1), open.then(|| "InClusterQueue".to_owned()));
        let priority = &world.workload("bert").unwrap()["spec"]["priority"];
        assert_eq!(*priority, 0, "what its class says is left as it is");
    }
}

#[tokio::test(start_paused = true)]
async fn a_class_is_worth_what_it_says_and_a_priority_set_by_hand_stays() {
    let world = World::new(false).await;
    let preemption = json!({ "withinClusterQueue": "LowerPriority" });
    world.queue("a", "", json!({ "nominalQuota": 4 }), preemption).await;
    for (name, value) in [("low", 1), ("high", 9)] {
        let class = json!({ "metadata": { "name": name }, "value": value });
        world.create("kueue.x-k8s.io", "workloadpriorityclasses", class).await;
    }
    world.start("layer1");
    let mut job = pytorch("llama", "a", 4);
    job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("high");
    world.create("kubeflow.org", "pytorchjobs", job).await;
    world.settle().await;
    world.pytorch("bert", "a", 4).await;
    world.settle().await;
    assert!(world.is("llama", "Admitted") && !world.is("bert", "Admitted"));
    let priority = |job: &str| world.workload(job).unwrap()["spec"]["priority"].clone();

    let bert = world.workload_name("bert");
    let id = workloads();
    let set = |value: &mut Value| {
        value["spec"]["priority"] = json!(3);
        Ok(())
    };
    world.cluster.store("admin").update(&id, "team", &bert, cluster_sim::Part::Main, set).await.unwrap();
    world.settle().await;
    assert_eq!(priority("bert"), 3, "an administrator may change it");

    world
        .update("kubeflow.org", "pytorchjobs", "llama", false, |job| {
            job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("low");
        })
        .await;
    world.settle().await;
    assert_eq!(priority("llama"), 1);
    assert_eq!(world.condition("llama", "Preempted").unwrap().1, "InClusterQueue", "it is a victim now");
    assert!(world.is("bert", "Admitted"));

    world
        .update("kueue.x-k8s.io", "workloadpriorityclasses", "low", false, |class| class["value"] = json!(8))
        .await;
    world.settle().await;
    assert_eq!(priority("llama"), 8, "its class is worth more now");
    assert!(world.is("llama", "Admitted") && !world.is("bert", "Admitted"));
}

#[tokio::test(start_paused = true)]
async fn a_number_written_over_that_of_a_class_preempts_nobody() {
    let world = World::new(false).await;
    let preemption = json!({ "withinClusterQueue": "LowerPriority" });
    world.queue("a", "", json!({ "nominalQuota": 4 }), preemption).await;
    let class = json!({ "metadata": { "name": "least" }, "value": -5 });
    world.create("kueue.x-k8s.io", "workloadpriorityclasses", class).await;
    world.start("layer1");
    world.pytorch("llama", "a", 4).await;
    world.settle().await;
    let mut job = pytorch("bert", "a", 4);
    job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("least");
    world.create("kubeflow.org", "pytorchjobs", job).await;
    world.settle().await;
    let bert = world.workload_name("bert");
    let set = |value: &mut Value| {
        value["spec"]["priority"] = json!(100);
        Ok(())
    };
    world
        .cluster
        .store("admin")
        .update(&workloads(), "team", &bert, cluster_sim::Part::Main, set)
        .await
        .unwrap();
    world.settle().await;
    assert_eq!(world.workload("bert").unwrap()["spec"]["priority"], -5);
    assert!(world.is("llama", "Admitted") && world.condition("llama", "Evicted").is_none());
}

/// Its Workload is worth what it was, and keeps its place.
#[tokio::test(start_paused = true)]
async fn a_job_that_names_a_class_that_is_not_there_is_told_so() {
    let world = World::new(false).await;
    world.queue("a", "", json!({ "nominalQuota": 1 }), json!({})).await;
    let class = |name: &str, value: i64| json!({ "metadata": { "name": name }, "value": value });
    world.create("kueue.x-k8s.io", "workloadpriorityclasses", class("low", 1)).await;
    world.start("layer1");
    let mut job = batch("llama", "a", 8);
    job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("low");
    world.create("batch", "jobs", job).await;
    world.settle().await;
    let before = world.workload("llama").unwrap();
    let name_another =
        |job: &mut Value| job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("high");
    world.update("batch", "jobs", "llama", false, name_another).await;
    world.settle().await;
    let told = || world.told().iter().filter(|one| one.1 == "WorkloadPriorityClassNotFound").count();
    assert_eq!(told(), 1, "{:?}", world.told());
    // What it cannot follow yet does not cost it its turn.
    world.update("batch", "jobs", "llama", false, |job| job["spec"]["parallelism"] = json!(7)).await;
    world.settle().await;
    let after = world.workload("llama").unwrap();
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert_eq!(after["spec"]["priority"], 1);
    world.create("kueue.x-k8s.io", "workloadpriorityclasses", class("high", 9)).await;
    world.settle().await;
    let after = world.workload("llama").unwrap();
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert_eq!((&after["spec"]["priority"], &after["spec"]["podSets"][0]["count"]), (&json!(9), &json!(7)));
}

/// It keeps its place, and no quota for as long as it does not describe its job.
#[tokio::test(start_paused = true)]
async fn who_waits_for_its_class_keeps_nobody_elses_quota() {
    let world = World::running(8).await;
    for name in ["runs", "llama"] {
        world.create("batch", "jobs", batch(name, "a", 8)).await;
        world.settle().await;
    }
    assert!(world.is("runs", "Admitted") && !world.is("llama", "QuotaReserved"));
    let edit = |job: &mut Value| {
        job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("high");
        job["spec"]["parallelism"] = json!(7);
    };
    world.update("batch", "jobs", "llama", false, edit).await;
    world.settle().await;
    let before = world.workload("llama").unwrap()["metadata"]["uid"].clone();
    let done = json!({ "conditions": [{ "type": "Complete", "status": "True" }] });
    world.update("batch", "jobs", "runs", true, |job| job["status"] = done.clone()).await;
    world.settle().await;
    assert!(!world.is("llama", "QuotaReserved"));
    world.create("batch", "jobs", batch("small", "a", 1)).await;
    world.settle().await;
    assert!(world.is("small", "Admitted"));
    let quiet = world.attempts("layer1");
    world.pass(50).await;
    assert_eq!(world.attempts("layer1"), quiet, "nothing is tried again and again");
    let class = json!({ "metadata": { "name": "high" }, "value": 9 });
    world.create("kueue.x-k8s.io", "workloadpriorityclasses", class).await;
    world.pass(120).await;
    assert!(world.is("llama", "Admitted"), "{:?}", world.workload("llama"));
    assert_eq!(world.workload("llama").unwrap()["metadata"]["uid"], before);
}

/// Its Workload would not follow a class that is there either.
#[tokio::test(start_paused = true)]
async fn nobody_misses_a_class_that_would_not_count() {
    let world = World::running(4).await;
    world.create("batch", "jobs", batch("llama", "a", 1)).await;
    world.settle().await;
    assert!(world.is("llama", "QuotaReserved"));
    let name_one =
        |job: &mut Value| job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("none");
    world.update("batch", "jobs", "llama", false, name_one).await;
    world.settle().await;
    assert!(!world.told().iter().any(|one| one.1 == "WorkloadPriorityClassNotFound"), "{:?}", world.told());
}
