//! Pods that are edited while they wait, or whose set is, and what becomes of them and their Workloads.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use serde_json::{Value, json};
use support::{World, pod_of, stateful_set};

const GROUP: &str = "kueue.x-k8s.io";
const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const CLASS: &str = "kueue.x-k8s.io/priority-class";

/// A pod of one GPU.
fn pod(name: &str) -> Value {
    let gpu = json!({ "nvidia.com/gpu": 1 });
    json!({
        "metadata": { "name": name, "namespace": "team", "labels": { QUEUE: "a" } },
        "spec": { "containers": [{
            "name": "c", "image": "x", "command": ["train"], "resources": { "requests": gpu, "limits": gpu },
        }] },
    })
}

/// One of two pods that belong together.
fn member(name: &str) -> Value {
    let mut pod = pod(name);
    pod["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"] = json!("ring");
    pod["metadata"]["annotations"] = json!({ "kueue.x-k8s.io/pod-group-total-count": "2" });
    pod
}

fn seen(world: &World, name: &str) -> Value {
    world.get("", "pods", name).unwrap()
}

fn is_gated(world: &World, name: &str) -> bool {
    world.is_behind("kueue.x-k8s.io/admission", name)
}

/// A StatefulSet of one such pod.
fn set(labels: Value) -> Value {
    let mut set = stateful_set(1, pod("")["spec"].take());
    set["metadata"]["labels"] = labels;
    set
}

async fn may_run_for(world: &World, name: &str, seconds: &str) {
    let label = |pod: &mut Value| {
        pod["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] = json!(seconds);
    };
    world.update("", "pods", name, false, label).await;
}

/// Kubernetes lets any pod tolerate more than before.
#[tokio::test(start_paused = true)]
async fn a_pod_that_waits_is_described_as_it_was_edited() {
    let world = World::with_webhooks(1).await;
    let taint = |flavor: &mut Value| {
        flavor["spec"]["nodeTaints"] = json!([{ "key": "k", "value": "v", "effect": "NoSchedule" }]);
    };
    world.update(GROUP, "resourceflavors", "a100", false, taint).await;
    world.create("", "pods", pod("solo")).await;
    world.settle().await;
    let before = world.workload("solo").unwrap();
    assert!(!world.is("solo", "QuotaReserved"));
    let tolerate = |pod: &mut Value| {
        let mut tolerations = pod["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
        tolerations.push(json!({ "key": "k", "operator": "Exists" }));
        pod["spec"]["tolerations"] = json!(tolerations);
    };
    world.update("", "pods", "solo", false, tolerate).await;
    world.settle().await;
    let after = world.workload("solo").unwrap();
    assert_eq!(before["metadata"]["uid"], after["metadata"]["uid"]);
    assert!(world.is("solo", "Admitted") && !is_gated(&world, "solo"));
    assert!(world.told_of("Pod", "solo").contains(&"UpdatedWorkload".into()));
    let quiet = world.attempts("layer1");
    world.settle().await;
    assert_eq!(world.attempts("layer1"), quiet);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_waits_may_be_given_more_time() {
    let world = World::with_webhooks(0).await;
    world.create("", "pods", pod("solo")).await;
    world.settle().await;
    let before = world.workload("solo").unwrap();
    may_run_for(&world, "solo", "600").await;
    world.settle().await;
    let after = world.workload("solo").unwrap();
    assert_eq!(before["metadata"]["uid"], after["metadata"]["uid"]);
    assert_eq!(after["spec"]["maximumExecutionTimeSeconds"], 600);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_was_edited_with_quota_is_queued_anew_and_stays() {
    let world = World::with_webhooks(1).await;
    world.checked("a").await;
    world.create("", "pods", pod("solo")).await;
    world.settle().await;
    let (before, pod) = (world.workload("solo").unwrap(), seen(&world, "solo"));
    assert!(world.is("solo", "QuotaReserved") && !world.is("solo", "Admitted"));
    may_run_for(&world, "solo", "600").await;
    world.settle().await;
    let after = world.workload("solo").unwrap();
    assert_ne!(before["metadata"]["uid"], after["metadata"]["uid"]);
    assert_eq!(after["spec"]["maximumExecutionTimeSeconds"], 600);
    assert!(world.is("solo", "QuotaReserved") && is_gated(&world, "solo"));
    assert_eq!(seen(&world, "solo")["metadata"]["uid"], pod["metadata"]["uid"]);
}

#[tokio::test(start_paused = true)]
async fn a_group_that_waits_keeps_its_workload_when_it_is_given_more_time() {
    let world = World::with_webhooks(0).await;
    for name in ["r0", "r1"] {
        world.create("", "pods", member(name)).await;
    }
    world.settle().await;
    let before = world.workload_named("ring").unwrap();
    for name in ["r0", "r1"] {
        may_run_for(&world, name, "600").await;
    }
    world.settle().await;
    let after = world.workload_named("ring").unwrap();
    assert_eq!(before["metadata"]["uid"], after["metadata"]["uid"]);
    assert_eq!(after["spec"]["maximumExecutionTimeSeconds"], 600);
    assert_eq!(before["spec"]["podSets"], after["spec"]["podSets"]);
}

#[tokio::test(start_paused = true)]
async fn pods_that_wait_follow_their_set_to_another_queue() {
    let world = World::with_webhooks(0).await;
    world.queue("b", "", json!({ "nominalQuota": 0 }), json!({})).await;
    let set = world.create("apps", "statefulsets", set(json!({ QUEUE: "a" }))).await.value().clone();
    world.create("", "pods", pod_of(&set, &set["spec"]["template"], "db-0")).await;
    world.settle().await;
    let queue = || seen(&world, "db-0")["metadata"]["labels"][QUEUE].clone();
    assert_eq!(queue(), "a");
    let moved = |set: &mut Value| set["metadata"]["labels"][QUEUE] = json!("b");
    world.update("apps", "statefulsets", "db", false, moved).await;
    world.settle().await;
    assert_eq!(queue(), "b");
    assert_eq!(world.workload("db").unwrap()["spec"]["queueName"], "b");
    let written = || seen(&world, "db-0")["metadata"]["resourceVersion"].clone();
    let before = written();
    world.pass(120).await;
    assert_eq!(written(), before, "nobody writes it again");
}

/// Of the kinds that are managed through their pods, Kueue does so for LeaderWorkerSets alone.
#[tokio::test(start_paused = true)]
async fn a_stateful_set_that_waits_is_worth_what_its_new_class_says() {
    let world = World::with_webhooks(0).await;
    for (name, value) in [("low", 1), ("high", 9)] {
        let class = json!({ "metadata": { "name": name }, "value": value });
        world.create(GROUP, "workloadpriorityclasses", class).await;
    }
    world.create("apps", "statefulsets", set(json!({ QUEUE: "a", CLASS: "low" }))).await;
    world.settle().await;
    assert_eq!(world.workload("db").unwrap()["spec"]["priority"], 1);
    let raise = |set: &mut Value| set["metadata"]["labels"][CLASS] = json!("high");
    world.update("apps", "statefulsets", "db", false, raise).await;
    world.settle().await;
    assert_eq!(world.workload("db").unwrap()["spec"]["priority"], 9);
}

#[tokio::test(start_paused = true)]
async fn who_owns_pods_is_told_of_a_class_that_is_not_there() {
    let world = World::with_webhooks(1).await;
    let replicas = json!({ "replicas": 1, "leaderWorkerTemplate": { "size": 1, "workerTemplate": { "spec": pod("")["spec"] } } });
    let mut groups = set(json!({ QUEUE: "a", CLASS: "none" }));
    groups["spec"] = replicas;
    for (group, resource, kind, object) in [
        ("apps", "statefulsets", "StatefulSet", set(json!({ QUEUE: "a", CLASS: "none" }))),
        ("leaderworkerset.x-k8s.io", "leaderworkersets", "LeaderWorkerSet", groups),
    ] {
        world.create(group, resource, object).await;
        world.settle().await;
        assert_eq!(world.told_of(kind, "db"), ["WorkloadPriorityClassNotFound"], "{kind}");
    }
}

fn with_replicas(count: i64) -> impl Fn(&mut Value) + Send + Sync {
    move |set: &mut Value| set["spec"]["replicas"] = json!(count)
}

/// Kueue's goes on with as many as before, and is out of sync when more pods come.
#[tokio::test(start_paused = true)]
async fn a_stateful_set_is_scaled_up_from_nothing_to_another_size() {
    for (gpus, rests) in [(4, "OnHold"), (0, "ExceedsMaxQuota")] {
        let world = World::with_webhooks(gpus).await;
        world.create("apps", "statefulsets", set(json!({ QUEUE: "a" }))).await;
        world.settle().await;
        let before = world.workload("db").unwrap();
        assert_eq!(before["spec"]["podSets"][0]["count"], 1);
        world.update("apps", "statefulsets", "db", false, with_replicas(0)).await;
        world.settle().await;
        assert_eq!(world.condition("db", "QuotaReserved").unwrap().1, rests);
        world.update("apps", "statefulsets", "db", false, with_replicas(3)).await;
        world.settle().await;
        let after = world.workload("db").unwrap();
        assert_eq!(before["metadata"]["uid"], after["metadata"]["uid"]);
        assert_eq!(after["spec"]["podSets"][0]["count"], 3);
        assert_eq!(world.is("db", "Admitted"), gpus > 0);
        let quiet = world.attempts("layer1");
        world.settle().await;
        assert_eq!(world.attempts("layer1"), quiet);
    }
}

/// As in Kueue, where its Workload no longer matches it.
#[tokio::test(start_paused = true)]
async fn a_pod_that_runs_something_else_than_was_admitted_is_stopped() {
    let world = World::with_webhooks(4).await;
    world.create("", "pods", pod("solo")).await;
    world.settle().await;
    assert!(world.is("solo", "Admitted") && !is_gated(&world, "solo"));
    world.bind("solo", "n1").await;
    world.settle().await;
    assert_eq!(
        seen(&world, "solo")["metadata"]["deletionTimestamp"],
        Value::Null,
        "that it has a node is no edit"
    );
    let change = |pod: &mut Value| pod["spec"]["containers"][0]["image"] = json!("y");
    world.update("", "pods", "solo", false, change).await;
    world.settle().await;
    let told = world.told_of("Pod", "solo");
    assert!(seen(&world, "solo")["metadata"]["deletionTimestamp"].is_string(), "{told:?}");
    assert!(told.contains(&"Stopped".into()), "{told:?}");
}
