//! Plain pods, groups of pods, and what is managed through its pods, in a simulated cluster.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod owners;
#[path = "../support/mod.rs"]
mod support;

use admission_controller::webhook::webhook_configurations_for;
use admission_controller::{Config, Configuration};
use cluster_sim::GroupResource;
use serde_json::{Value, json};
use support::World;

const GATE: &str = "kueue.x-k8s.io/admission";
const MANAGED: &str = "kueue.x-k8s.io/managed";

/// Queue `a` with so many GPUs, webhooks, and a replica.
async fn world(gpus: i64) -> World {
    let world = World::with_webhooks(gpus).await;
    let any = json!({ "withinClusterQueue": "LowerPriority" });
    let preempts = |queue: &mut Value| queue["spec"]["preemption"] = any.clone();
    world.update("kueue.x-k8s.io", "clusterqueues", "a", false, preempts).await;
    world.settle().await;
    world
}

fn pod(name: &str, gpus: i64, labels: Value, annotations: Value) -> Value {
    let mut labels = labels;
    labels["kueue.x-k8s.io/queue-name"] = json!("a");
    json!({
        "metadata": { "name": name, "namespace": "team", "labels": labels, "annotations": annotations },
        "spec": { "containers": [{
            "name": "c", "image": "x",
            "resources": { "requests": { "nvidia.com/gpu": gpus }, "limits": { "nvidia.com/gpu": gpus } },
        }] },
    })
}

fn member(name: &str, gpus: i64, total: &str) -> Value {
    let annotations = json!({ "kueue.x-k8s.io/pod-group-total-count": total });
    pod(name, gpus, json!({ "kueue.x-k8s.io/pod-group-name": "ring" }), annotations)
}

impl Pods for World {
    fn world(&self) -> &World {
        self
    }
}

trait Pods {
    fn world(&self) -> &World;

    fn pod(&self, name: &str) -> Option<Value> {
        self.world().get("", "pods", name)
    }

    fn is_gated(&self, name: &str) -> bool {
        self.world().is_behind(GATE, name)
    }

    fn is_held(&self, name: &str) -> bool {
        self.pod(name).unwrap()["metadata"]["finalizers"]
            .as_array()
            .is_some_and(|all| all.contains(&json!(MANAGED)))
    }

    async fn phase(&self, name: &str, phase: &str) {
        self.world().update("", "pods", name, true, |pod| pod["status"]["phase"] = json!(phase)).await;
    }

    async fn delete(&self, group: &str, resource: &str, name: &str) {
        let id = GroupResource::new(group, resource);
        self.world().cluster.store("user").delete(&id, "team", name, Default::default()).await.unwrap();
    }
}

fn condition(workload: &Value, kind: &str) -> Option<(String, String)> {
    let conditions = workload["status"]["conditions"].as_array()?;
    let one = conditions.iter().find(|one| one["type"] == kind)?;
    Some((one["status"].as_str()?.to_owned(), one["reason"].as_str()?.to_owned()))
}

fn said(status: &str, reason: &str) -> Option<(String, String)> {
    Some((status.to_owned(), reason.to_owned()))
}

#[tokio::test(start_paused = true)]
async fn a_pod_waits_behind_its_gate_and_is_let_go_at_its_end() {
    let world = world(0).await;
    world.create("", "pods", pod("solo", 1, json!({}), json!({}))).await;
    world.settle().await;
    let created = world.pod("solo").unwrap();
    assert_eq!(created["metadata"]["labels"][MANAGED], "true");
    assert_eq!(created["spec"]["schedulerName"], "trireme");
    assert_eq!(created["metadata"]["annotations"]["kueue.x-k8s.io/role-hash"].as_str().unwrap().len(), 8);
    assert!(world.is_gated("solo") && world.is_held("solo"));
    let workload = world.workload("solo").unwrap();
    assert!(workload["metadata"]["name"].as_str().unwrap().starts_with("pod-solo-"));
    assert_eq!(workload["spec"]["podSets"][0]["name"], "main");
    assert_eq!(workload["spec"]["queueName"], "a");

    world
        .update("kueue.x-k8s.io", "clusterqueues", "a", false, |queue| {
            queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = json!(1);
        })
        .await;
    world.settle().await;
    assert!(world.is("solo", "Admitted") && !world.is_gated("solo"));
    let started = world.pod("solo").unwrap();
    assert_eq!(started["spec"]["nodeSelector"], json!({ "gpu": "a100" }));
    let labels = &started["metadata"]["labels"];
    assert_eq!(labels["kueue.x-k8s.io/podset"], "main");
    assert_eq!(labels["kueue.x-k8s.io/cluster-queue-name"], "a");
    assert_eq!(labels["kueue.x-k8s.io/local-queue-name"], "a");

    world.phase("solo", "Succeeded").await;
    world.settle().await;
    assert_eq!(condition(&world.workload("solo").unwrap(), "Finished"), said("True", "Succeeded"));
    assert!(!world.is_held("solo"));
    let told = world.told_of("Pod", "solo");
    for reason in ["CreatedWorkload", "Started", "FinishedWorkload"] {
        assert!(told.contains(&reason.into()), "{reason} in {told:?}");
    }
    let quiet = world.attempts("layer1");
    world.settle().await;
    assert_eq!(world.attempts("layer1"), quiet);
}

#[tokio::test(start_paused = true)]
async fn a_group_is_admitted_when_it_is_complete_and_keeps_to_its_size() {
    let world = world(4).await;
    world.create("", "pods", member("r0", 1, "3")).await;
    world.create("", "pods", member("r1", 1, "3")).await;
    world.settle().await;
    assert!(world.workload_named("ring").is_none() && world.is_gated("r0"));
    world.create("", "pods", member("driver", 2, "3")).await;
    world.settle().await;
    let workload = world.workload_named("ring").unwrap();
    let sets = workload["spec"]["podSets"].as_array().unwrap();
    let mut counts: Vec<i64> = sets.iter().map(|set| set["count"].as_i64().unwrap()).collect();
    counts.sort_unstable();
    assert_eq!(counts, [1, 2]);
    let role = world.pod("driver").unwrap()["metadata"]["annotations"]["kueue.x-k8s.io/role-hash"].clone();
    assert!(sets.iter().any(|set| set["name"] == role && set["count"] == 1));
    assert_eq!(workload["metadata"]["annotations"]["kueue.x-k8s.io/is-group-workload"], "true");
    assert_eq!(workload["metadata"]["ownerReferences"].as_array().unwrap().len(), 3);
    for name in ["r0", "r1", "driver"] {
        assert!(!world.is_gated(name), "{name}");
    }
    let podset = world.pod("driver").unwrap()["metadata"]["labels"]["kueue.x-k8s.io/podset"].clone();
    assert_eq!(podset, role);

    world.create("", "pods", member("r2", 1, "3")).await;
    world.settle().await;
    assert!(world.pod("r2").is_none(), "one too many goes");
    assert_eq!(world.told_of("Pod", "r2"), ["ExcessPodDeleted"]);

    world.phase("r0", "Failed").await;
    world.settle().await;
    let workload = world.workload_named("ring").unwrap();
    assert_eq!(condition(&workload, "WaitingForReplacementPods"), said("True", "PodsFailed"));
    assert!(world.is_held("r0"), "it holds its place until another takes it");
    world.create("", "pods", member("r3", 1, "3")).await;
    world.settle().await;
    let workload = world.workload_named("ring").unwrap();
    assert_eq!(condition(&workload, "WaitingForReplacementPods"), said("False", "PodsReady"));
    assert!(!world.is_gated("r3") && !world.is_held("r0"));
    assert!(world.told_of("Workload", "ring").contains(&"OwnerReferencesAdded".to_owned()));

    for name in ["r1", "r3"] {
        world.phase(name, "Succeeded").await;
    }
    world.settle().await;
    let workload = world.workload_named("ring").unwrap();
    assert_eq!(workload["status"]["reclaimablePods"][0]["count"], 2);
    assert!(condition(&workload, "Finished").is_none());
    world.phase("driver", "Succeeded").await;
    world.settle().await;
    let workload = world.workload_named("ring").unwrap();
    assert_eq!(condition(&workload, "Finished"), said("True", "Succeeded"));
    assert!(!world.is_held("r1") && !world.is_held("driver"));
    let quiet = world.attempts("layer1");
    world.settle().await;
    assert_eq!(world.attempts("layer1"), quiet);
}

#[tokio::test(start_paused = true)]
async fn an_evicted_group_is_deleted_and_its_quota_comes_back() {
    let world = world(2).await;
    for name in ["r0", "r1"] {
        world.create("", "pods", member(name, 1, "2")).await;
    }
    world.settle().await;
    for name in ["r0", "r1"] {
        world.update("", "pods", name, true, |pod| pod["status"]["phase"] = json!("Running")).await;
    }
    world
        .create("scheduling.k8s.io", "priorityclasses", json!({ "metadata": { "name": "high" }, "value": 9 }))
        .await;
    let mut urgent = pod("urgent", 2, json!({}), json!({}));
    urgent["spec"]["priorityClassName"] = json!("high");
    world.create("", "pods", urgent).await;
    world.settle().await;
    let gone = world.pod("r0").unwrap();
    assert!(gone["metadata"]["deletionTimestamp"].is_string(), "it is held until another takes its place");
    assert_eq!(condition(&gone, "TerminationTarget"), said("True", "WorkloadEvictedDueToPreempted"));
    for name in ["r0", "r1"] {
        if world.pod(name).is_some() {
            world.phase(name, "Failed").await;
        }
    }
    world.settle().await;
    let ring = world.workload_named("ring").unwrap();
    assert!(world.is("urgent", "Admitted") && !world.is_gated("urgent"), "{ring:?}");
    assert_eq!(condition(&ring, "WaitingForReplacementPods"), said("True", "Preempted"));
}

/// Who is one pod ends with its eviction and is not queued again; but not while it stands behind its gate.
#[tokio::test(start_paused = true)]
async fn a_pod_that_is_preempted_behind_its_gate_is_queued_again() {
    let world = world(1).await;
    let check = json!({ "metadata": { "name": "slow" }, "spec": { "controllerName": "example.com/check" } });
    world.create("kueue.x-k8s.io", "admissionchecks", check).await;
    world
        .update("kueue.x-k8s.io", "admissionchecks", "slow", true, |check| {
            check["status"]["conditions"] = json!([{ "type": "Active", "status": "True", "reason": "Test",
                "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" }]);
        })
        .await;
    world
        .update("kueue.x-k8s.io", "clusterqueues", "a", false, |queue| {
            queue["spec"]["admissionChecksStrategy"] = json!({ "admissionChecks": [{ "name": "slow" }] });
        })
        .await;
    world.create("", "pods", pod("patient", 1, json!({}), json!({}))).await;
    world.settle().await;
    assert!(world.is("patient", "QuotaReserved") && world.is_gated("patient"));
    world
        .create("scheduling.k8s.io", "priorityclasses", json!({ "metadata": { "name": "high" }, "value": 9 }))
        .await;
    let mut urgent = pod("urgent", 1, json!({}), json!({}));
    urgent["spec"]["priorityClassName"] = json!("high");
    world.create("", "pods", urgent).await;
    world.settle().await;
    assert!(world.is("urgent", "QuotaReserved") && !world.is("patient", "QuotaReserved"));
    world.delete("", "pods", "urgent").await;
    world.settle().await;
    assert!(world.is("patient", "QuotaReserved"), "{:?}", world.workload("patient"));
}

#[tokio::test(start_paused = true)]
async fn an_evicted_group_is_not_admitted_again_before_it_has_pods() {
    let world = world(3).await;
    for name in ["r0", "r1"] {
        world.create("", "pods", member(name, 1, "2")).await;
    }
    world.settle().await;
    for name in ["r0", "r1"] {
        world.update("", "pods", name, true, |pod| pod["status"]["phase"] = json!("Running")).await;
    }
    let active = |wanted: bool| {
        world.update("kueue.x-k8s.io", "workloads", "ring", false, move |workload| {
            workload["spec"]["active"] = json!(wanted);
        })
    };
    active(false).await;
    world.settle().await;
    world.phase("r0", "Failed").await;
    world.phase("r1", "Failed").await;
    world.settle().await;
    active(true).await;
    world.settle().await;
    let ring = world.workload_named("ring").unwrap();
    assert_eq!(condition(&ring, "WaitingForReplacementPods").unwrap().0, "True");
    assert_eq!(condition(&ring, "QuotaReserved"), said("False", "PendingEvaluation"));
    for name in ["r2", "r3"] {
        world.create("", "pods", member(name, 1, "2")).await;
    }
    world.settle().await;
    let ring = world.workload_named("ring").unwrap();
    assert_eq!(condition(&ring, "WaitingForReplacementPods"), said("False", "PodsReady"));
    assert_eq!(condition(&ring, "QuotaReserved"), said("True", "QuotaReserved"));
}

#[tokio::test(start_paused = true)]
async fn whose_workload_is_deleted_goes_with_it() {
    let world = world(2).await;
    for name in ["r0", "r1"] {
        world.create("", "pods", member(name, 1, "2")).await;
    }
    world.settle().await;
    assert!(!world.is_gated("r0"));
    world.delete("kueue.x-k8s.io", "workloads", "ring").await;
    world.settle().await;
    assert!(world.pod("r0").is_none() && world.pod("r1").is_none());
    assert!(world.workload_named("ring").is_none());
}

/// Whether they run or wait.
#[tokio::test(start_paused = true)]
async fn who_waits_goes_with_its_workload() {
    let world = world(0).await;
    world.create("", "pods", pod("solo", 1, json!({}), json!({}))).await;
    for name in ["r0", "r1"] {
        world.create("", "pods", member(name, 1, "2")).await;
    }
    world.settle().await;
    assert!(world.is_gated("solo") && world.is_gated("r0"));
    let solo = world.workload("solo").unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
    for name in [&*solo, "ring"] {
        world.delete("kueue.x-k8s.io", "workloads", name).await;
        world.settle().await;
    }
    for name in ["solo", "r0", "r1"] {
        assert!(world.pod(name).is_none(), "{name}: {:?}", world.told_of("Pod", name));
    }
    assert!(world.workload_named(&solo).is_none() && world.workload_named("ring").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_group_that_is_not_retried_ends_with_its_last_pod() {
    let world = world(2).await;
    for name in ["r0", "r1"] {
        let mut pod = member(name, 1, "2");
        pod["metadata"]["annotations"]["kueue.x-k8s.io/retriable-in-group"] = json!("false");
        world.create("", "pods", pod).await;
    }
    world.settle().await;
    world.phase("r0", "Failed").await;
    world.phase("r1", "Succeeded").await;
    world.settle().await;
    let workload = world.workload_named("ring").unwrap();
    assert_eq!(condition(&workload, "Finished"), said("True", "Succeeded"));
    assert!(!world.is_held("r0") && !world.is_held("r1"));
}

#[tokio::test(start_paused = true)]
async fn a_group_that_contradicts_itself_waits_and_says_why() {
    let world = world(2).await;
    world.create("", "pods", member("r0", 1, "2")).await;
    let mut other = member("r1", 1, "2");
    other["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = json!("b");
    world.create("", "pods", other).await;
    world.settle().await;
    assert!(world.workload_named("ring").is_none() && world.is_gated("r0"));
    for (wrong, field) in [
        (json!({ "kueue.x-k8s.io/pod-group-total-count": "0" }), "pod-group-total-count"),
        (json!({}), "pod-group-total-count"),
    ] {
        let mut pod = member("r2", 1, "2");
        pod["metadata"]["annotations"] = wrong;
        pod["apiVersion"] = json!("v1");
        pod["kind"] = json!("Pod");
        let id = GroupResource::new("", "pods");
        let denied = world.cluster.store("user").create(&id, pod).await.unwrap_err();
        assert!(format!("{denied:?}").contains(field), "{denied:?}");
    }
}

/// A group of two that was admitted, and whose pods get so long to be ready.
async fn awaited(times: &str) -> World {
    let world = World::new(true).await;
    let text = format!("waitForPodsReady: {times}\n");
    let file = Configuration::parse(std::path::Path::new("config.yaml"), &text).unwrap();
    world.start_with("layer1", Config { file, ..Config::default() });
    world.settle().await;
    world.queue("a", "", json!({ "nominalQuota": 2 }), json!({})).await;
    for name in ["r0", "r1"] {
        world.create("", "pods", member(name, 1, "2")).await;
    }
    world.settle().await;
    world
}

/// What a kubelet says of a pod.
async fn report(world: &World, name: &str, phase: &str, ready: &str) {
    let status = json!({ "phase": phase, "conditions": [{ "type": "Ready", "status": ready }] });
    world.update("", "pods", name, true, |pod| pod["status"] = status.clone()).await;
}

#[tokio::test(start_paused = true)]
async fn a_group_is_ready_when_each_of_its_pods_is() {
    let world = awaited("{ timeout: 10m }").await;
    let ring = || world.workload_named("ring").unwrap();
    assert_eq!(condition(&ring(), "PodsReady"), said("False", "WaitForStart"));
    for name in ["r0", "r1"] {
        report(&world, name, "Running", "True").await;
    }
    world.settle().await;
    assert_eq!(condition(&ring(), "PodsReady"), said("True", "Started"));
}

/// The failed pod is there still, and will never be ready.
#[tokio::test(start_paused = true)]
async fn a_group_is_ready_without_the_pods_that_were_replaced() {
    let world = awaited("{ timeout: 10m, recoveryTimeout: 3m }").await;
    for name in ["r0", "r1"] {
        report(&world, name, "Running", "True").await;
    }
    world.settle().await;
    report(&world, "r0", "Failed", "False").await;
    world.settle().await;
    let ring = || world.workload_named("ring").unwrap();
    assert_eq!(condition(&ring(), "PodsReady"), said("False", "WaitForRecovery"));
    world.create("", "pods", member("r2", 1, "2")).await;
    world.settle().await;
    report(&world, "r2", "Running", "True").await;
    world.settle().await;
    assert!(world.pod("r0").is_some());
    assert_eq!(condition(&ring(), "PodsReady"), said("True", "Recovered"));
    world.pass(600).await;
    assert_eq!(condition(&ring(), "Evicted"), None);
}

#[tokio::test(start_paused = true)]
async fn namespaces_that_are_not_selected_are_left_alone() {
    let world = World::new(false).await;
    let text = "managedJobsNamespaceSelector:\n  matchLabels: { quota: counted }\n";
    let file = Configuration::parse(std::path::Path::new("config.yaml"), text).unwrap();
    let (mutating, _) = webhook_configurations_for(&file, None);
    let hooks = json!(mutating)["webhooks"].as_array().cloned().unwrap();
    let hook = hooks.iter().find(|hook| hook["name"] == "mutate-job.trireme.dev").unwrap();
    assert_eq!(hook["namespaceSelector"]["matchLabels"], json!({ "quota": "counted" }));
    world.start_with("layer1", Config { file, ..Config::default() });
    world.queue("a", "", json!({ "nominalQuota": 4 }), json!({})).await;
    let mut running = support::pytorch("free", "a", 1);
    running["spec"]["runPolicy"]["suspend"] = json!(false);
    world.create("kubeflow.org", "pytorchjobs", running).await;
    world.pytorch("early", "a", 1).await;
    world.settle().await;
    assert!(!world.is_suspended("free") && world.workload("free").is_none());
    assert!(world.workload("early").is_none());
    let id = GroupResource::new("", "namespaces");
    let store = world.cluster.store("user");
    let label = |namespace: &mut Value| {
        namespace["metadata"]["labels"]["quota"] = json!("counted");
        Ok(())
    };
    store.update(&id, "", "team", cluster_sim::Part::Main, label).await.unwrap();
    world.settle().await;
    assert!(world.is("early", "Admitted"), "nothing but its namespace has changed");
    world.pytorch("counted", "a", 1).await;
    world.settle().await;
    assert!(world.is("counted", "Admitted") && !world.is_suspended("counted"));
}

/// What was taken is let go, whatever has become of its namespace.
#[tokio::test(start_paused = true)]
async fn a_pod_of_a_namespace_that_is_not_selected_any_more_goes_when_it_is_deleted() {
    let world = World::new(false).await;
    let text = "managedJobsNamespaceSelector:\n  matchLabels: { quota: counted }\n";
    let file = Configuration::parse(std::path::Path::new("config.yaml"), text).unwrap();
    world.install_webhooks(&file).await;
    world.start_with("layer1", Config { file, ..Config::default() });
    world.settle().await;
    world.queue("a", "", json!({ "nominalQuota": 1 }), json!({})).await;
    let id = GroupResource::new("", "namespaces");
    let label = async |value: Value| {
        let change = |namespace: &mut Value| {
            namespace["metadata"]["labels"]["quota"] = value.clone();
            Ok(())
        };
        world.cluster.store("user").update(&id, "", "team", cluster_sim::Part::Main, change).await.unwrap();
        world.settle().await;
    };
    label(json!("counted")).await;
    world.create("", "pods", pod("one", 1, json!({}), json!({}))).await;
    world.settle().await;
    assert!(world.is("one", "Admitted"));
    label(json!("free")).await;
    let pods = GroupResource::new("", "pods");
    world.cluster.store("user").delete(&pods, "team", "one", Default::default()).await.unwrap();
    world.settle().await;
    assert_eq!(world.pod("one"), None);
    label(json!("counted")).await;
    world.create("", "pods", pod("two", 1, json!({}), json!({}))).await;
    world.settle().await;
    assert!(world.is("two", "Admitted"), "its quota is free");
}

/// One of them may be mistaken: nobody knows which, and none is deleted for it.
#[tokio::test(start_paused = true)]
async fn of_a_group_that_contradicts_itself_no_pod_is_too_many() {
    let world = world(4).await;
    for (name, total) in [("r0", "1"), ("r1", "3"), ("r2", "3")] {
        world.create("", "pods", member(name, 1, total)).await;
    }
    world.settle().await;
    assert_eq!(world.workload_named("ring"), None);
    for name in ["r0", "r1", "r2"] {
        assert!(
            world.pod(name).is_some_and(|pod| pod["metadata"].get("deletionTimestamp").is_none()),
            "{name}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn each_pod_is_told_what_the_checks_say_for_which_it_waits() {
    let world = world(4).await;
    world.checked("a").await;
    for name in ["r0", "r1"] {
        world.create("", "pods", member(name, 1, "2")).await;
    }
    world.settle().await;
    let says = |workload: &mut Value| {
        workload["status"]["admissionChecks"][0]["message"] = json!("12 of 20 credits are left");
    };
    world.update("kueue.x-k8s.io", "workloads", "ring", true, says).await;
    world.settle().await;
    for name in ["r0", "r1"] {
        let told = world.told_of("Pod", name);
        assert!(told.contains(&"UpdatedAdmissionCheck".to_owned()), "{name}: {told:?}");
    }
}
