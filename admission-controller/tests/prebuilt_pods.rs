//! Workloads that somebody else makes for pods, and those that only have the name of their group.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use cluster_sim::GroupResource;
use serde_json::{Value, json};
use support::World;

const GROUP: &str = "kueue.x-k8s.io";

fn pod(name: &str, annotations: Value) -> Value {
    let gpu = json!({ "nvidia.com/gpu": 1 });
    json!({
        "metadata": {
            "name": name, "namespace": "team", "annotations": annotations,
            "labels": { "kueue.x-k8s.io/queue-name": "a" },
        },
        "spec": { "containers": [{
            "name": "c", "image": "x", "resources": { "requests": gpu, "limits": gpu },
        }] },
    })
}

/// A pod by itself that names the Workload `by-hand`.
fn solo(name: &str) -> Value {
    pod(name, json!({ "kueue.x-k8s.io/prebuilt-workload-name": "by-hand" }))
}

/// One of the group `ring`, with these annotations more.
fn member(name: &str, more: &Value) -> Value {
    let mut pod = pod(name, more.clone());
    pod["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"] = json!("2");
    pod["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"] = json!("ring");
    pod
}

/// Of such a group, if its Workload is made by somebody else. Its role has a name, or that of its shape.
fn prebuilt(name: &str, role: Option<&str>) -> Value {
    let mut pod = member(name, &json!({ "kueue.x-k8s.io/prebuilt-workload-name": "ring" }));
    if let Some(role) = role {
        pod["metadata"]["annotations"]["kueue.x-k8s.io/role-hash"] = json!(role);
    }
    pod
}

/// A Workload with so many pods like this one, which is as the API server has it.
fn by_hand(name: &str, set: &str, count: i64, pod: &Value) -> Value {
    let template = json!({ "spec": pod["spec"] });
    json!({
        "metadata": { "name": name, "namespace": "team" },
        "spec": { "queueName": "a", "podSets": [{ "name": set, "count": count, "template": template }] },
    })
}

fn seen(world: &World, name: &str) -> Value {
    world.get("", "pods", name).unwrap()
}

fn is_gated(world: &World, name: &str) -> bool {
    world.is_behind("kueue.x-k8s.io/admission", name)
}

async fn phase(world: &World, name: &str, phase: &str) {
    world.update("", "pods", name, true, |pod| pod["status"]["phase"] = json!(phase)).await;
}

async fn delete(world: &World, group: &str, resource: &str, name: &str) {
    let id = GroupResource::new(group, resource);
    world.cluster.store("user").delete(&id, "team", name, Default::default()).await.unwrap();
}

/// Status and reason of the end of a Workload.
fn end(world: &World, name: &str) -> Option<(String, String)> {
    let workload = world.workload_named(name).unwrap();
    let conditions = workload["status"]["conditions"].as_array()?;
    let one = conditions.iter().find(|one| one["type"] == "Finished")?;
    Some((one["status"].as_str()?.to_owned(), one["reason"].as_str()?.to_owned()))
}

fn said(status: &str, reason: &str) -> Option<(String, String)> {
    Some((status.to_owned(), reason.to_owned()))
}

#[tokio::test(start_paused = true)]
async fn a_pod_takes_the_workload_that_was_made_for_it() {
    for is_first in [true, false] {
        let world = World::with_webhooks(8).await;
        let workload = || world.workload_named("by-hand");
        world.create("", "pods", solo("solo")).await;
        world.settle().await;
        assert!(world.workload("solo").is_none() && is_gated(&world, "solo"), "none is made");
        let described = by_hand("by-hand", "only", 1, &seen(&world, "solo"));
        if !is_first {
            delete(&world, "", "pods", "solo").await;
            world.settle().await;
        }
        world.create(GROUP, "workloads", described).await;
        world.settle().await;
        if !is_first {
            assert!(workload().unwrap()["metadata"]["ownerReferences"].is_null());
            world.create("", "pods", solo("solo")).await;
            world.settle().await;
        }
        let pod = seen(&world, "solo");
        let metadata = workload().unwrap()["metadata"].clone();
        assert_eq!(metadata["ownerReferences"][0]["uid"], pod["metadata"]["uid"]);
        assert_eq!(metadata["ownerReferences"][0]["controller"], true);
        assert_eq!(metadata["labels"]["kueue.x-k8s.io/job-uid"], pod["metadata"]["uid"]);
        assert!(world.is("solo", "Admitted") && !is_gated(&world, "solo"), "{pod}");
        assert_eq!(pod["metadata"]["labels"]["kueue.x-k8s.io/podset"], "only");
        assert_eq!(pod["spec"]["nodeSelector"], json!({ "gpu": "a100" }));

        world.create("", "pods", solo("late")).await;
        world.settle().await;
        assert!(is_gated(&world, "late"), "it is another's");
        assert!(world.told_of("Pod", "late").contains(&"ErrWorkloadCompose".into()));
        phase(&world, "solo", "Succeeded").await;
        world.settle().await;
        assert_eq!(end(&world, "by-hand"), said("True", "Succeeded"));
        let quiet = world.attempts("layer1");
        world.settle().await;
        assert_eq!(world.attempts("layer1"), quiet);
    }
}

#[tokio::test(start_paused = true)]
async fn a_prebuilt_workload_for_another_pod_is_out_of_sync_and_stays() {
    let template = "/spec/podSets/0/template/spec";
    let gpus = json!({ "nvidia.com/gpu": 2 });
    for (at, value) in [
        ("/spec/podSets/0/count".to_owned(), json!(2)),
        ("/spec/maximumExecutionTimeSeconds".to_owned(), json!(60)),
        (format!("{template}/tolerations"), json!([{ "key": "gpu", "operator": "Exists" }])),
        (format!("{template}/containers/0/image"), json!("y")),
        (format!("{template}/containers/0/resources"), json!({ "requests": gpus, "limits": gpus })),
    ] {
        let world = World::with_webhooks(8).await;
        // What pods tolerate counts until it is admitted.
        world.checked("a").await;
        world.settle().await;
        world.create("", "pods", solo("solo")).await;
        world.settle().await;
        let mut workload = by_hand("by-hand", "only", 1, &seen(&world, "solo"));
        let (parent, field) = at.rsplit_once('/').unwrap();
        workload.pointer_mut(parent).unwrap()[field] = value;
        world.create(GROUP, "workloads", workload).await;
        world.settle().await;
        assert_eq!(end(&world, "by-hand"), said("True", "OutOfSync"), "{at}");
        assert!(is_gated(&world, "solo"), "{at}");
        let quiet = world.attempts("layer1");
        world.settle().await;
        assert_eq!(world.attempts("layer1"), quiet, "{at}");
    }
}

/// As in Kueue: that it is a group's need not be said in it.
#[tokio::test(start_paused = true)]
async fn a_group_takes_the_workload_that_was_made_for_it() {
    let world = World::with_webhooks(8).await;
    for name in ["r0", "r1"] {
        world.create("", "pods", prebuilt(name, Some("worker"))).await;
    }
    world.settle().await;
    assert!(world.workload_named("ring").is_none(), "none is made");
    world.create(GROUP, "workloads", by_hand("ring", "worker", 2, &seen(&world, "r0"))).await;
    world.settle().await;
    for name in ["r0", "r1"] {
        assert!(!is_gated(&world, name), "{:?}", world.workload_named("ring"));
        assert_eq!(seen(&world, name)["metadata"]["labels"]["kueue.x-k8s.io/podset"], "worker");
        assert!(!world.told_of("Pod", name).contains(&"WorkloadNameConflict".into()));
    }
    let metadata = world.workload_named("ring").unwrap()["metadata"].clone();
    assert_eq!(metadata["ownerReferences"].as_array().unwrap().len(), 2);
    assert_eq!(metadata["annotations"]["kueue.x-k8s.io/is-group-workload"], "true");
    for name in ["r0", "r1"] {
        phase(&world, name, "Succeeded").await;
    }
    world.settle().await;
    assert_eq!(end(&world, "ring"), said("True", "Succeeded"));
    let quiet = world.attempts("layer1");
    world.settle().await;
    assert_eq!(world.attempts("layer1"), quiet);
}

/// What was planned for it before its pods came, as for a Workload of nobody's, takes no quota from those that run.
#[tokio::test(start_paused = true)]
async fn a_workload_that_became_a_groups_keeps_its_quota_while_that_runs() {
    let world = World::with_webhooks(8).await;
    let mut workload = by_hand("ring", "worker", 2, &pod("r0", json!({})));
    workload["spec"]["maximumExecutionTimeSeconds"] = json!(120);
    world.create(GROUP, "workloads", workload).await;
    world.settle().await;
    let holds = |kind: &str| {
        let workload = world.workload_named("ring").unwrap();
        let conditions = workload["status"]["conditions"].as_array().unwrap();
        conditions.iter().any(|one| one["type"] == kind && one["status"] == "True")
    };
    assert!(holds("Admitted"));
    for name in ["r0", "r1"] {
        let mut pod = prebuilt(name, Some("worker"));
        pod["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] = json!("120");
        pod["spec"]["terminationGracePeriodSeconds"] = json!(600);
        world.create("", "pods", pod).await;
    }
    world.settle().await;
    for name in ["r0", "r1"] {
        assert!(!is_gated(&world, name), "{:?}", world.workload_named("ring"));
        phase(&world, name, "Running").await;
        world.bind(name, "n1").await;
    }
    world.pass(120).await;
    assert!(holds("Evicted") && holds("QuotaReserved"), "{:?}", world.workload_named("ring"));
}

#[tokio::test(start_paused = true)]
async fn a_prebuilt_workload_without_the_roles_of_a_group_is_out_of_sync_and_stays() {
    let world = World::with_webhooks(8).await;
    for name in ["r0", "r1"] {
        world.create("", "pods", prebuilt(name, None)).await;
    }
    world.settle().await;
    world.create(GROUP, "workloads", by_hand("ring", "worker", 2, &seen(&world, "r0"))).await;
    world.settle().await;
    assert_eq!(end(&world, "ring"), said("True", "OutOfSync"));
    assert!(is_gated(&world, "r0") && is_gated(&world, "r1"));
    let quiet = world.attempts("layer1");
    world.settle().await;
    assert_eq!(world.attempts("layer1"), quiet);
}

#[tokio::test(start_paused = true)]
async fn a_group_with_more_pods_than_its_prebuilt_workload_runs_no_longer() {
    let world = World::with_webhooks(8).await;
    for name in ["r0", "r1"] {
        world.create("", "pods", prebuilt(name, Some("worker"))).await;
    }
    world.settle().await;
    world.create(GROUP, "workloads", by_hand("ring", "worker", 2, &seen(&world, "r0"))).await;
    world.settle().await;
    for name in ["r0", "r1"] {
        phase(&world, name, "Running").await;
    }
    world.create("", "pods", prebuilt("r2", Some("worker"))).await;
    world.settle().await;
    assert_eq!(end(&world, "ring"), said("True", "OutOfSync"));
    for name in ["r0", "r1"] {
        assert!(world.get("", "pods", name).is_none(), "nobody has quota for it");
    }
    assert!(is_gated(&world, "r2"));
}

#[tokio::test(start_paused = true)]
async fn a_group_whose_name_is_taken_is_told_each_time_and_goes_on_when_that_is_free() {
    let world = World::with_webhooks(8).await;
    world.create(GROUP, "workloads", by_hand("ring", "main", 1, &pod("", json!({})))).await;
    for pods in [["r0", "r1"], ["r2", "r3"]] {
        for name in pods {
            world.create("", "pods", member(name, &json!({}))).await;
        }
        world.settle().await;
        assert!(is_gated(&world, pods[0]));
        assert!(world.told_of("Pod", pods[0]).contains(&"WorkloadNameConflict".into()), "{pods:?}");
        if pods == ["r0", "r1"] {
            for name in pods {
                delete(&world, "", "pods", name).await;
            }
            world.settle().await;
            assert!(world.get("", "pods", "r0").is_none());
        }
    }
    delete(&world, GROUP, "workloads", "ring").await;
    world.settle().await;
    assert!(!is_gated(&world, "r2") && !is_gated(&world, "r3"), "{:?}", world.workload_named("ring"));
}
