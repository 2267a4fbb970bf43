//! Pods of Deployments, StatefulSets and LeaderWorkerSets.

use cluster_sim::GroupResource;
use cluster_sim::faults::{Aim, Fault};
use serde_json::{Value, json};

use super::support::{self, owned_by, pod_of, stateful_set};
use super::{GATE, MANAGED, Pods, condition, pod, said, world};

/// Of a pod that wants one GPU.
fn spec() -> Value {
    pod("", 1, json!({}), json!({}))["spec"].clone()
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_deployment_are_admitted_one_by_one() {
    let world = world(1).await;
    let template = json!({ "metadata": { "labels": { "app": "web" } }, "spec": spec() });
    let deployment = json!({
        "metadata": { "name": "web", "namespace": "team", "labels": { "kueue.x-k8s.io/queue-name": "a" } },
        "spec": { "replicas": 2, "selector": { "matchLabels": { "app": "web" } }, "template": template },
    });
    let deployment = world.create("apps", "deployments", deployment).await;
    let template = deployment.value()["spec"]["template"].clone();
    assert_eq!(template["metadata"]["annotations"]["kueue.x-k8s.io/pod-suspending-parent"], "deployment");
    assert_eq!(template["metadata"]["labels"]["kueue.x-k8s.io/queue-name"], "a");
    assert_eq!(template["metadata"]["labels"][MANAGED], "true");
    let set = json!({
        "metadata": { "name": "web", "namespace": "team" },
        "spec": { "replicas": 2, "selector": { "matchLabels": { "app": "web" } }, "template": template },
    });
    let set = world.create("apps", "replicasets", set).await;
    for name in ["web-1", "web-2"] {
        world.create("", "pods", pod_of(set.value(), &template, name)).await;
    }
    world.settle().await;
    assert!(!world.is_held("web-1"), "its ReplicaSet answers for it");
    assert_eq!(["web-1", "web-2"].iter().filter(|name| !world.is_gated(name)).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stateful_set_is_admitted_as_a_whole_and_rests_when_it_is_scaled_to_nothing() {
    let world = world(2).await;
    let set = world.create("apps", "statefulsets", stateful_set(2, spec())).await;
    world.settle().await;
    let workload = world.workload("db").unwrap();
    let name = workload["metadata"]["name"].as_str().unwrap().to_owned();
    assert!(name.starts_with("statefulset-db-"));
    assert_eq!(workload["spec"]["podSets"][0]["count"], 2);
    assert!(world.is("db", "Admitted"));

    let value = set.value();
    for pod in ["db-0", "db-1"] {
        world.create("", "pods", pod_of(value, &value["spec"]["template"], pod)).await;
    }
    world.settle().await;
    for pod in ["db-0", "db-1"] {
        let value = world.pod(pod).unwrap();
        assert_eq!(value["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-name"], json!(name));
        assert_eq!(value["metadata"]["labels"]["kueue.x-k8s.io/queue-name"], "a");
        assert!(!world.is_gated(pod), "{value}");
    }
    assert_eq!(
        world.workload_named(&name).unwrap()["metadata"]["ownerReferences"].as_array().unwrap().len(),
        3
    );

    let id = GroupResource::new("apps", "statefulsets");
    let store = world.cluster.store("user");
    let refused = store.update(&id, "team", "db", cluster_sim::Part::Main, |set| {
        set["spec"]["replicas"] = json!(1);
        Ok(())
    });
    assert!(format!("{:?}", refused.await.unwrap_err()).contains("spec.replicas"));
    world.update("apps", "statefulsets", "db", false, |set| set["spec"]["replicas"] = json!(0)).await;
    for pod in ["db-0", "db-1"] {
        world.delete("", "pods", pod).await;
    }
    world.settle().await;
    assert_eq!(condition(&world.workload_named(&name).unwrap(), "QuotaReserved"), said("False", "OnHold"));
    world.update("apps", "statefulsets", "db", false, |set| set["spec"]["replicas"] = json!(2)).await;
    world.settle().await;
    assert!(world.is("db", "Admitted"));
}

/// It would get quota for as many pods as it had before.
#[tokio::test(start_paused = true)]
async fn a_stateful_set_waits_until_its_workload_has_its_size() {
    let world = world(4).await;
    world.create("apps", "statefulsets", stateful_set(2, spec())).await;
    world.settle().await;
    assert!(world.is("db", "Admitted"));
    world.update("apps", "statefulsets", "db", false, |set| set["spec"]["replicas"] = json!(0)).await;
    world.settle().await;
    let aim = Aim::writes().by("layer1").on(support::workloads()).at("");
    world.cluster.faults().add(aim, 1_000_000, 1_000, Fault::Conflict);
    world.update("apps", "statefulsets", "db", false, |set| set["spec"]["replicas"] = json!(3)).await;
    world.pass(5).await;
    assert!(!world.is("db", "QuotaReserved"));
    world.cluster.faults().clear();
    world.pass(120).await;
    assert!(world.is("db", "Admitted"));
    assert_eq!(world.workload("db").unwrap()["spec"]["podSets"][0]["count"], 3);
}

#[tokio::test(start_paused = true)]
async fn each_replica_of_a_leader_worker_set_is_admitted_by_itself() {
    let world = world(3).await;
    let set = json!({
        "metadata": { "name": "lws", "namespace": "team", "labels": { "kueue.x-k8s.io/queue-name": "a" } },
        "spec": { "replicas": 2, "leaderWorkerTemplate": {
            "size": 3, "leaderTemplate": { "spec": spec() }, "workerTemplate": { "spec": spec() },
        }},
    });
    let set = world.create("leaderworkerset.x-k8s.io", "leaderworkersets", set).await;
    world.settle().await;
    let all =
        world.cluster.store("reader").list(&GroupResource::new("kueue.x-k8s.io", "workloads"), Some("team"));
    let mut all: Vec<Value> = all.iter().map(|one| one.value().clone()).collect();
    assert_eq!(all.len(), 2);
    all.sort_by_key(|one| {
        one["metadata"]["annotations"]["kueue.x-k8s.io/component-workload-index"].to_string()
    });
    for (index, workload) in all.iter().enumerate() {
        assert!(
            workload["metadata"]["name"]
                .as_str()
                .unwrap()
                .starts_with(&format!("leaderworkerset-lws-{index}-"))
        );
        let sets: Vec<(&str, i64)> = workload["spec"]["podSets"]
            .as_array()
            .unwrap()
            .iter()
            .map(|set| (set["name"].as_str().unwrap(), set["count"].as_i64().unwrap()))
            .collect();
        assert_eq!(sets, [("leader", 1), ("worker", 2)]);
    }
    let admitted = |workload: &Value| condition(workload, "Admitted") == said("True", "Admitted");
    assert_eq!(all.iter().filter(|one| admitted(one)).count(), 1);
    let runs = all.iter().position(admitted).unwrap();
    for (name, template, led) in [("leader", "leaderTemplate", false), ("worker", "workerTemplate", true)] {
        let template = &set.value()["spec"]["leaderWorkerTemplate"][template];
        let mut pod = pod_of(set.value(), template, name);
        let labels = &mut pod["metadata"]["labels"];
        labels["leaderworkerset.sigs.k8s.io/name"] = json!("lws");
        labels["leaderworkerset.sigs.k8s.io/group-index"] = json!(runs.to_string());
        if led {
            pod["metadata"]["annotations"]["leaderworkerset.sigs.k8s.io/leader-name"] = json!("leader");
        }
        world.create("", "pods", pod).await;
    }
    world.settle().await;
    for name in ["leader", "worker"] {
        assert!(!world.is_gated(name), "{:?}", world.pod(name));
        assert_eq!(world.pod(name).unwrap()["metadata"]["labels"]["kueue.x-k8s.io/podset"], name);
    }
}

#[tokio::test(start_paused = true)]
async fn a_workload_of_pods_has_their_class_and_what_an_autoscaler_is_asked_for_them() {
    let world = world(4).await;
    let class = json!({ "metadata": { "name": "urgent" }, "value": 7 });
    world.create("scheduling.k8s.io", "priorityclasses", class).await;
    world.settle().await;
    let (asks, asked) = ("provreq.kueue.x-k8s.io/valid-until", "600");
    let metadata = |name: &str| {
        let labels = json!({ "kueue.x-k8s.io/queue-name": "a" });
        json!({ "name": name, "namespace": "team", "labels": labels, "annotations": { asks: asked } })
    };
    let any = spec();
    let mut urgent = any.clone();
    urgent["priorityClassName"] = json!("urgent");
    let mut set = stateful_set(1, spec());
    (set["metadata"], set["spec"]["template"]["spec"]) = (metadata("db"), urgent.clone());
    world.create("apps", "statefulsets", set).await;
    let groups = json!({
        "metadata": metadata("lws"),
        "spec": { "replicas": 1, "leaderWorkerTemplate": {
            "size": 2, "leaderTemplate": { "spec": any }, "workerTemplate": { "spec": urgent },
        }},
    });
    world.create("leaderworkerset.x-k8s.io", "leaderworkersets", groups).await;
    world.create("", "pods", json!({ "metadata": metadata("solo"), "spec": urgent })).await;
    world.settle().await;
    let counted = world.metrics().await;
    for (kind, name) in [("StatefulSet", "db"), ("LeaderWorkerSet", "lws"), ("Pod", "solo")] {
        let made = format!(r#"kueue_workload_creation_latency_seconds_count{{job_kind="{kind}","#);
        assert!(counted.contains(&made), "{made} is not in\n{counted}");
        let workload = world.workload(name).unwrap();
        assert_eq!(workload["spec"]["priority"], 7, "{name}");
        assert_eq!(workload["spec"]["priorityClassRef"]["name"], "urgent", "{name}");
        assert_eq!(workload["metadata"]["annotations"][asks], asked, "{name}");
        assert!(world.told_of(kind, name).contains(&"CreatedWorkload".into()), "{name}");
    }
}

/// An admission plugin may give a pod another class than its template has, and templates may be edited.
#[tokio::test(start_paused = true)]
async fn a_set_that_waits_is_worth_what_it_says_and_not_what_its_pods_say() {
    let world = world(1).await;
    for (name, value) in [("urgent", 7), ("plain", 3)] {
        let class = json!({ "metadata": { "name": name }, "value": value });
        world.create("scheduling.k8s.io", "priorityclasses", class).await;
    }
    let mut set = stateful_set(2, spec());
    set["spec"]["template"]["spec"]["priorityClassName"] = json!("urgent");
    let set = world.create("apps", "statefulsets", set).await.value().clone();
    for name in ["db-0", "db-1"] {
        let mut pod = pod_of(&set, &set["spec"]["template"], name);
        pod["spec"]["priorityClassName"] = json!("plain");
        world.create("", "pods", pod).await;
    }
    world.settle().await;
    let workload = world.workload("db").unwrap();
    assert!(!world.is("db", "QuotaReserved"));
    assert_eq!(workload["spec"]["priority"], 7);
    let group = &world.pod("db-0").unwrap()["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-name"];
    assert_eq!(*group, workload["metadata"]["name"], "its pods have joined");
    let generation = &workload["metadata"]["generation"];
    world.pass(60).await;
    assert_eq!(
        world.workload("db").unwrap()["metadata"]["generation"],
        *generation,
        "nobody writes it again"
    );
}

/// Whoever is managed through its pods marks them. One whose pods have no mark names no queue, and they wait by themselves.
#[tokio::test(start_paused = true)]
async fn pods_with_a_queue_whose_set_names_none_wait_by_themselves() {
    let world = world(1).await;
    let template = json!({ "metadata": { "labels": { "app": "set" } }, "spec": { "containers": [{ "name": "c", "image": "x" }] } });
    let set = json!({
        "metadata": { "name": "set", "namespace": "team" },
        "spec": { "replicas": 2, "selector": { "matchLabels": { "app": "set" } }, "template": template },
    });
    let set = world.create("apps", "statefulsets", set).await;
    for name in ["set-0", "set-1"] {
        let mut pod = pod(name, 1, json!({}), json!({}));
        pod["metadata"]["ownerReferences"] = owned_by(set.value());
        world.create("", "pods", pod).await;
        world.settle().await;
    }
    assert!(world.is("set-0", "Admitted") && !world.is_behind(GATE, "set-0"));
    assert!(!world.is("set-1", "Admitted") && world.is_behind(GATE, "set-1"));
}
