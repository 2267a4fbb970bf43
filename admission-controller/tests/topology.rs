//! Pods placed by topology: from the annotation on the job to the node labels of each pod, and what follows when a node fails.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::path::Path;

use admission_controller::config::closed_with;
use admission_controller::{Config, Configuration};
use cluster_sim::faults::{Aim, Fault};
use cluster_sim::{GroupResource, Verb};
use serde_json::{Value, json};
use support::{World, pytorch};

const RACK: &str = "example.com/rack";
const HOST: &str = "kubernetes.io/hostname";

/// Two racks of two nodes with four GPUs each, a flavor with a topology, and a queue of it.
async fn world() -> World {
    world_with(false).await
}

async fn world_with(webhooks: bool) -> World {
    let world = World::new(webhooks).await;
    if webhooks {
        world.start("one");
        world.settle().await;
    }
    for (rack, node) in [("r1", "n1"), ("r1", "n2"), ("r2", "n3"), ("r2", "n4")] {
        world.create("", "nodes", node_object(rack, node)).await;
    }
    world
        .create(
            "kueue.x-k8s.io",
            "resourceflavors",
            json!({ "metadata": { "name": "racks" }, "spec": {
                "nodeLabels": { "pool": "gpu" }, "topologyName": "racks",
            }}),
        )
        .await;
    world
        .create(
            "kueue.x-k8s.io",
            "clusterqueues",
            json!({ "metadata": { "name": "placed" }, "spec": {
                "namespaceSelector": {},
                "preemption": { "withinClusterQueue": "LowerPriority" },
                "resourceGroups": [{ "coveredResources": ["nvidia.com/gpu"], "flavors": [
                    { "name": "racks", "resources": [{ "name": "nvidia.com/gpu", "nominalQuota": "16" }] },
                ]}],
            }}),
        )
        .await;
    world
        .create(
            "kueue.x-k8s.io",
            "localqueues",
            json!({ "metadata": { "name": "placed", "namespace": "team" }, "spec": { "clusterQueue": "placed" } }),
        )
        .await;
    world
}

async fn topology(world: &World) {
    let levels = json!([{ "nodeLabel": RACK }, { "nodeLabel": HOST }]);
    world
        .create(
            "kueue.x-k8s.io",
            "topologies",
            json!({ "metadata": { "name": "racks" }, "spec": { "levels": levels } }),
        )
        .await;
}

fn node_object(rack: &str, name: &str) -> Value {
    json!({
        "metadata": { "name": name, "labels": { "pool": "gpu", RACK: rack, HOST: name } },
        "status": {
            "allocatable": { "nvidia.com/gpu": "4", "cpu": "8", "pods": "20" },
            "conditions": [{ "type": "Ready", "status": "True", "reason": "", "message": "",
                "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z" }],
        },
    })
}

async fn node_fails(world: &World, name: &str) {
    let nodes = GroupResource::new("", "nodes");
    world.cluster.store("user").delete(&nodes, "", name, Default::default()).await.unwrap();
}

async fn is_ready(world: &World, name: &str, ready: bool) {
    let now = world.stamp();
    let change = |node: &mut Value| {
        node["status"]["conditions"][0]["status"] = json!(if ready { "True" } else { "False" });
        node["status"]["conditions"][0]["lastTransitionTime"] = json!(now);
        Ok(())
    };
    let (nodes, part) = (GroupResource::new("", "nodes"), cluster_sim::Part::Status);
    world.cluster.store("kubelet").update(&nodes, "", name, part, change).await.unwrap();
}

/// A job whose pods have to be in one domain of this level.
fn together(name: &str, workers: i64, level: &str) -> Value {
    let mut job = pytorch(name, "placed", workers);
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["metadata"] =
        json!({ "annotations": { "kueue.x-k8s.io/podset-required-topology": level } });
    job
}

/// The places of a job's only pod set: host and pods.
fn places(world: &World, job: &str) -> Vec<(String, i64)> {
    let workload = world.workload(job).unwrap();
    let written = &workload["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"];
    if written.is_null() {
        return Vec::new();
    }
    assert_eq!(written["levels"], json!([HOST]));
    let read =
        admission_controller::topology::read(&serde_json::from_value(written.clone()).unwrap()).unwrap();
    read.domains.iter().map(|domain| (domain.values[0].to_string(), domain.pods)).collect()
}

fn template(world: &World, job: &str) -> Value {
    world.job(job)["spec"]["pytorchReplicaSpecs"]["Worker"]["template"].clone()
}

/// The pods that the job's controller makes of its template.
async fn make_pods(world: &World, job: &str, indices: std::ops::Range<i64>) {
    let template = template(world, job);
    for index in indices {
        let mut labels = template["metadata"]["labels"].clone();
        labels["training.kubeflow.org/replica-index"] = json!(index.to_string());
        let pod = json!({
            "metadata": {
                "name": format!("{job}-{index}"), "namespace": "team",
                "labels": labels, "annotations": template["metadata"]["annotations"],
            },
            "spec": template["spec"],
        });
        world.create("", "pods", pod).await;
    }
}

/// A pod's gates and the host that it is sent to.
fn pod(world: &World, name: &str) -> (Value, Value) {
    let pod = world.get("", "pods", name).unwrap();
    let gates = pod["spec"]["schedulingGates"].clone();
    (gates, pod["spec"]["nodeSelector"][HOST].clone())
}

#[tokio::test(start_paused = true)]
async fn from_the_annotation_to_the_node_of_each_pod() {
    let world = world().await;
    world.start("one");
    world.settle().await;
    let queue = world.get("kueue.x-k8s.io", "clusterqueues", "placed").unwrap();
    assert_eq!(queue["status"]["conditions"][0]["reason"], "TopologyNotFound", "{queue}");
    world.create("kubeflow.org", "pytorchjobs", together("job", 6, RACK)).await;
    world.settle().await;
    assert!(!world.is("job", "Admitted"));

    topology(&world).await;
    world.settle().await;
    assert!(world.is("job", "Admitted"), "{:?}", world.workload("job"));
    assert_eq!(places(&world, "job"), [("n1".to_owned(), 4), ("n2".to_owned(), 2)]);
    let wish = world.workload("job").unwrap()["spec"]["podSets"][0]["topologyRequest"].clone();
    assert_eq!(wish, json!({ "required": RACK, "podIndexLabel": "training.kubeflow.org/replica-index" }));

    // Its pods are made behind a gate, and each is sent where its index belongs.
    let made = template(&world, "job");
    assert_eq!(made["spec"]["schedulingGates"], json!([{ "name": "kueue.x-k8s.io/topology" }]));
    assert_eq!(made["spec"]["nodeSelector"], json!({ "pool": "gpu" }));
    make_pods(&world, "job", 0..6).await;
    world.settle().await;
    for index in 0..6 {
        let host = if index < 4 { "n1" } else { "n2" };
        assert_eq!(pod(&world, &format!("job-{index}")), (json!([]), json!(host)), "{index}");
    }

    // What is left of the rack is too little for another of that size, and the other rack is free.
    world.create("kubeflow.org", "pytorchjobs", together("next", 6, RACK)).await;
    world.settle().await;
    assert_eq!(places(&world, "next"), [("n3".to_owned(), 4), ("n4".to_owned(), 2)]);
    world.create("kubeflow.org", "pytorchjobs", together("late", 3, HOST)).await;
    world.settle().await;
    assert!(!world.is("late", "Admitted"));
    let (_, reason, message) = world.condition("late", "QuotaReserved").unwrap();
    assert_eq!(reason, "WaitingForQuota");
    assert!(message.contains("2 of 3 pods fit at level kubernetes.io/hostname"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn pods_of_others_take_room_and_a_failed_node_is_replaced() {
    let world = world().await;
    topology(&world).await;
    let other = json!({
        "metadata": { "name": "other", "namespace": "team" },
        "spec": { "nodeName": "n1", "containers": [{
            "name": "c", "image": "x",
            "resources": { "requests": { "nvidia.com/gpu": "3" }, "limits": { "nvidia.com/gpu": "3" } },
        }]},
    });
    world.create("", "pods", other).await;
    world.start("one");
    world.create("kubeflow.org", "pytorchjobs", together("job", 4, HOST)).await;
    world.settle().await;
    assert_eq!(places(&world, "job"), [("n2".to_owned(), 4)], "another pod is on n1");
    make_pods(&world, "job", 0..4).await;
    world.settle().await;

    // The node is gone: another takes its place, and the job goes on.
    node_fails(&world, "n2").await;
    world.settle().await;
    assert_eq!(places(&world, "job"), [("n3".to_owned(), 4)]);
    assert!(world.is("job", "Admitted") && !world.is("job", "Evicted"));
    assert_eq!(world.workload("job").unwrap()["status"]["unhealthyNodes"], Value::Null);
    // Those that were sent to it and never ran there would wait for its name to come back.
    assert_eq!(ended(&world, "job-0"), Some(json!("UnschedulableOnAssignedNode")));

    // When there is no other, the workload starts anew elsewhere, once there is room.
    node_fails(&world, "n4").await;
    node_fails(&world, "n3").await;
    world.settle().await;
    let (status, reason, _) = world.condition("job", "Evicted").unwrap();
    assert_eq!((status.as_str(), reason.as_str()), ("True", "NodeFailures"));
    assert!(world.is_suspended("job"));
}

/// Where the end of its pods is not waited for, a node that is not ready may come back within half a minute.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_not_ready_for_a_moment_has_not_failed() {
    let world = world().await;
    topology(&world).await;
    let file = "featureGates: { TASReplaceNodeOnPodTermination: false }";
    let file = Configuration::parse(Path::new("config.yaml"), file).unwrap();
    world.start_with("one", Config { file, ..Config::default() });
    world.create("kubeflow.org", "pytorchjobs", together("job", 4, HOST)).await;
    world.settle().await;
    assert_eq!(places(&world, "job"), [("n1".to_owned(), 4)]);
    is_ready(&world, "n1", false).await;
    world.pass(20).await;
    is_ready(&world, "n1", true).await;
    world.settle().await;
    assert_eq!(places(&world, "job"), [("n1".to_owned(), 4)], "it came back in time");
    is_ready(&world, "n1", false).await;
    world.pass(28).await;
    assert_eq!(places(&world, "job"), [("n1".to_owned(), 4)]);
    world.pass(5).await;
    assert_eq!(places(&world, "job"), [("n2".to_owned(), 4)], "it did not");
}

/// One failed node may be waited for, where the gate says so; when a second one fails, the whole starts anew.
#[tokio::test(start_paused = true)]
async fn who_loses_a_second_node_before_the_first_is_replaced_leaves() {
    let world = world().await;
    topology(&world).await;
    let file = "featureGates: { TASFailedNodeReplacementFailFast: false }";
    let file = Configuration::parse(Path::new("config.yaml"), file).unwrap();
    world.start_with("one", Config { file, ..Config::default() });
    world.create("kubeflow.org", "pytorchjobs", together("job", 6, RACK)).await;
    world.settle().await;
    assert_eq!(places(&world, "job"), [("n1".to_owned(), 4), ("n2".to_owned(), 2)]);
    let evicted = || world.told().iter().any(|(_, reason)| reason == "EvictedDueToNodeFailures");
    node_fails(&world, "n1").await;
    world.settle().await;
    assert!(world.is("job", "Admitted") && !evicted());
    assert_eq!(world.workload("job").unwrap()["status"]["unhealthyNodes"], json!([{ "name": "n1" }]));
    node_fails(&world, "n2").await;
    world.settle().await;
    assert!(evicted(), "{:?}", world.workload("job"));
}

/// Other places are no other grant: pods that have ended were granted, too.
#[tokio::test(start_paused = true)]
async fn a_node_that_fails_after_some_pods_have_ended_changes_places_only() {
    let world = world_with(true).await;
    topology(&world).await;
    world.create("kubeflow.org", "pytorchjobs", together("job", 4, HOST)).await;
    world.settle().await;
    assert_eq!(places(&world, "job"), [("n1".to_owned(), 4)]);
    let name = world.workload_name("job");
    world
        .update("kueue.x-k8s.io", "workloads", &name, true, |workload| {
            workload["status"]["reclaimablePods"] = json!([{ "name": "worker", "count": 3 }]);
        })
        .await;
    world.settle().await;
    node_fails(&world, "n1").await;
    world.settle().await;
    assert_eq!(places(&world, "job"), [("n2".to_owned(), 4)]);
    let workload = world.workload("job").unwrap();
    let granted = &workload["status"]["admission"]["podSetAssignments"][0];
    assert_eq!((&granted["count"], &granted["resourceUsage"]["nvidia.com/gpu"]), (&json!(4), &json!("4")));
}

/// Neither the nodes of pods that have ended count, nor is anything written of them.
#[tokio::test(start_paused = true)]
async fn whose_pods_have_all_ended_needs_no_node() {
    let world = world_with(true).await;
    topology(&world).await;
    world.create("kubeflow.org", "pytorchjobs", together("job", 4, HOST)).await;
    world.settle().await;
    let name = world.workload_name("job");
    let end = |workload: &mut Value| {
        workload["status"]["reclaimablePods"] = json!([{ "name": "worker", "count": 4 }]);
    };
    world.update("kueue.x-k8s.io", "workloads", &name, true, end).await;
    world.settle().await;
    let before = world.cluster.revision();
    node_fails(&world, "n1").await;
    world.settle().await;
    assert_eq!(world.writes("one", before), Vec::<String>::new());
    assert!(world.is("job", "Admitted"));
}

/// A queue that has got a flavor without a topology no longer places whoever does not ask for it. Whoever was placed gets another node.
#[tokio::test(start_paused = true)]
async fn who_was_placed_unasked_gets_another_node_whatever_its_queue_has_got_since() {
    let world = world_with(true).await;
    topology(&world).await;
    world.create("kubeflow.org", "pytorchjobs", pytorch("job", "placed", 4)).await;
    world.settle().await;
    assert_eq!(places(&world, "job"), [("n1".to_owned(), 4)]);
    let add = |queue: &mut Value| {
        let flavors = queue["spec"]["resourceGroups"][0]["flavors"].as_array_mut().unwrap();
        let mut second = flavors[0].clone();
        second["name"] = json!("a100");
        flavors.push(second);
    };
    world.update("kueue.x-k8s.io", "clusterqueues", "placed", false, add).await;
    world.settle().await;
    node_fails(&world, "n1").await;
    world.settle().await;
    assert_eq!(places(&world, "job"), [("n2".to_owned(), 4)]);
    let before = world.cluster.revision();
    world.pass(600).await;
    assert_eq!(world.writes("one", before), Vec::<String>::new(), "it is at rest");
}

/// A job that waits may ask for other places: its Workload follows, and keeps its turn.
#[tokio::test(start_paused = true)]
async fn what_a_waiting_job_asks_of_the_topology_may_change() {
    let world = world().await;
    topology(&world).await;
    world.start("one");
    world.create("kubeflow.org", "pytorchjobs", together("job", 6, HOST)).await;
    world.settle().await;
    let before = world.workload("job").unwrap();
    assert_eq!(before["spec"]["podSets"][0]["topologyRequest"]["required"], HOST);
    assert!(!world.is("job", "Admitted"));
    let prefer = |job: &mut Value| {
        job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["metadata"]["annotations"] =
            json!({ "kueue.x-k8s.io/podset-preferred-topology": HOST });
    };
    world.update("kubeflow.org", "pytorchjobs", "job", false, prefer).await;
    world.settle().await;
    let after = world.workload("job").unwrap();
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    let wish = &after["spec"]["podSets"][0]["topologyRequest"];
    assert_eq!((&wish["required"], &wish["preferred"]), (&Value::Null, &json!(HOST)));
    assert!(world.is("job", "Admitted"));
}

/// It gets a node, and runs there.
async fn bind(world: &World, name: &str, node: &str) {
    world.bind(name, node).await;
    world.update("", "pods", name, true, |pod| pod["status"]["phase"] = json!("Running")).await;
}

async fn taint(world: &World, node: &str, taints: Value) {
    let nodes = GroupResource::new("", "nodes");
    let store = world.cluster.store("user");
    let change = |node: &mut Value| {
        node["spec"]["taints"] = taints.clone();
        Ok(())
    };
    store.update(&nodes, "", node, cluster_sim::Part::Main, change).await.unwrap();
}

/// What a pod says of its end.
fn ended(world: &World, name: &str) -> Option<Value> {
    let pod = world.get("", "pods", name).unwrap();
    let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let condition = conditions.into_iter().find(|one| one["type"] == "TerminatedByKueue")?;
    assert_eq!((&pod["status"]["phase"], &condition["status"]), (&json!("Failed"), &json!("True")));
    Some(condition["reason"].clone())
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_node_that_is_none_for_it_is_ended_and_who_runs_there_is_not() {
    let world = world().await;
    topology(&world).await;
    world.start("one");
    world.create("kubeflow.org", "pytorchjobs", together("job", 6, RACK)).await;
    world.settle().await;
    assert_eq!(places(&world, "job"), [("n1".to_owned(), 4), ("n2".to_owned(), 2)]);
    make_pods(&world, "job", 0..6).await;
    world.settle().await;
    for name in ["job-0", "job-4"] {
        let node = if name == "job-0" { "n1" } else { "n2" };
        bind(&world, name, node).await;
    }
    // A pod that runs there keeps the node from being replaced; those that are not bound will never be.
    taint(&world, "n1", json!([{ "key": "broken", "effect": "NoSchedule" }])).await;
    world.settle().await;
    assert_eq!(places(&world, "job"), [("n1".to_owned(), 4), ("n2".to_owned(), 2)]);
    for (name, reason) in [("job-0", None), ("job-1", Some("UnschedulableOnAssignedNode")), ("job-5", None)] {
        assert_eq!(ended(&world, name), reason.map(|reason| json!(reason)), "{name}");
    }
    let told = world.told();
    let told = told.iter().filter(|one| one.1 == "PodTerminatedByKueue");
    assert_eq!(told.count(), 3, "one for each pod");
    // What takes their places is not sent to its end, too.
    let template = template(&world, "job");
    let mut next = json!({ "metadata": template["metadata"], "spec": template["spec"] });
    (next["metadata"]["name"], next["metadata"]["namespace"]) = (json!("job-1b"), json!("team"));
    next["metadata"]["labels"]["training.kubeflow.org/replica-index"] = json!("1");
    world.create("", "pods", next).await;
    world.settle().await;
    assert_eq!(pod(&world, "job-1b").0, json!([{ "name": "kueue.x-k8s.io/topology" }]));
    // When the last one there has ended, another node takes its place.
    world.update("", "pods", "job-0", true, |pod| pod["status"]["phase"] = json!("Failed")).await;
    world.settle().await;
    let moved = places(&world, "job");
    assert!(moved.iter().all(|(node, _)| node != "n1"), "{moved:?}");
    let (gates, node) = pod(&world, "job-1b");
    assert!(gates == json!([]) && node != json!("n1"), "{gates} {node}");
}

/// What ends a pod that waits in vain may come too late for the version that was judged.
#[tokio::test(start_paused = true)]
async fn who_waits_in_vain_is_ended_though_the_first_try_fails() {
    let world = world().await;
    topology(&world).await;
    world.start("one");
    world.create("kubeflow.org", "pytorchjobs", together("job", 2, HOST)).await;
    world.settle().await;
    make_pods(&world, "job", 0..2).await;
    world.settle().await;
    let aim = Aim { verbs: vec![Verb::Patch], ..Aim::default() }.by("one").on(GroupResource::new("", "pods"));
    world.cluster.faults().add(aim, 1_000_000, 12, Fault::ServerError(503));
    taint(&world, "n1", json!([{ "key": "broken", "effect": "NoSchedule" }])).await;
    world.pass(120).await;
    for name in ["job-0", "job-1"] {
        assert_eq!(ended(&world, name), Some(json!("UnschedulableOnAssignedNode")), "{name}");
    }
}

/// A Topology stays while a flavor has it, and goes with the last one.
#[tokio::test(start_paused = true)]
async fn a_topology_goes_when_no_flavor_has_it() {
    let world = world().await;
    topology(&world).await;
    world.start("layer1");
    world.settle().await;
    let get = |resource: &str| world.get("kueue.x-k8s.io", resource, "racks");
    assert_eq!(
        get("topologies").unwrap()["metadata"]["finalizers"],
        json!(["kueue.x-k8s.io/resource-in-use"])
    );
    let store = world.cluster.store("user");
    let delete = |resource: &str, name: &str| {
        let id = GroupResource::new("kueue.x-k8s.io", resource);
        let (store, name) = (store.clone(), name.to_owned());
        async move { store.delete(&id, "", &name, Default::default()).await.unwrap() }
    };
    delete("topologies", "racks").await;
    world.settle().await;
    assert!(get("topologies").is_some(), "the flavor has it");
    delete("clusterqueues", "placed").await;
    delete("resourceflavors", "racks").await;
    world.settle().await;
    assert!(get("resourceflavors").is_none() && get("topologies").is_none());
}

/// A pod that asks for nothing is placed where its queue has flavors with a topology only: no gate can be added to it once
/// it is there, so it has one from the start.
#[tokio::test(start_paused = true)]
async fn a_pod_that_asks_for_no_topology_is_sent_where_it_was_placed() {
    let world = world_with(true).await;
    topology(&world).await;
    world.settle().await;
    world.create("", "pods", lone_pod("solo", "placed")).await;
    world.settle().await;
    let host = places(&world, "solo")[0].0.clone();
    assert_eq!(pod(&world, "solo"), (json!([]), json!(host)));
    let annotations = world.get("", "pods", "solo").unwrap()["metadata"]["annotations"].clone();
    assert_eq!(annotations["kueue.x-k8s.io/podset-unconstrained-topology"], "true");

    // Where flavors have none, there is nothing to wait for.
    world.queue("anywhere", "", json!({ "nominalQuota": 4 }), json!({})).await;
    world.create("", "pods", lone_pod("free", "anywhere")).await;
    world.settle().await;
    assert_eq!(pod(&world, "free"), (json!([]), Value::Null));
}

/// A group may be named by an annotation: its name may be too long for a label.
#[tokio::test(start_paused = true)]
async fn a_pod_of_a_group_that_an_annotation_names_counts_as_one_of_a_group() {
    let world = world_with(true).await;
    topology(&world).await;
    world.settle().await;
    let mut member = lone_pod("member", "placed");
    member["metadata"]["annotations"] = json!({
        "kueue.x-k8s.io/pod-group-name": "ring", "kueue.x-k8s.io/pod-group-total-count": "1",
    });
    world.create("", "pods", member).await;
    world.settle().await;
    assert_eq!(pod(&world, "member").0, json!([]));
    let counted = world.metrics().await;
    let gates = r#"kueue_pod_scheduling_gate_removal_seconds_count{cluster_queue="placed",name="kueue.x-k8s.io/topology",is_group="#;
    let of_topology: Vec<&str> = counted.lines().filter_map(|line| line.strip_prefix(gates)).collect();
    assert!(matches!(of_topology[..], [one] if one.starts_with(r#""true""#)), "{of_topology:?}");
}

/// Annotations that nobody looks at need not make sense.
#[tokio::test(start_paused = true)]
async fn with_the_gate_closed_nothing_is_asked_of_topologies() {
    let gates = closed_with("TopologyAwareScheduling").chain(["TopologyAwareScheduling"]);
    let gates: Value = gates.map(|gate| (gate, json!(false))).collect();
    let text = json!({ "featureGates": gates }).to_string();
    let file = Configuration::parse(Path::new("config.yaml"), &text).unwrap();
    let world = World::new(false).await;
    world.queue("a", "", json!({ "nominalQuota": 8 }), json!({})).await;
    world.start_with("one", Config { file: file.clone(), ..Config::default() });
    world.settle().await;
    world.install_webhooks(&file).await;
    let senseless = json!({ "kueue.x-k8s.io/podset-unconstrained-topology": "yes" });
    let mut job = pytorch("job", "a", 1);
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["metadata"] =
        json!({ "annotations": senseless });
    world.create("kubeflow.org", "pytorchjobs", job).await;
    let mut solo = lone_pod("solo", "a");
    solo["metadata"]["annotations"] = json!({ "kueue.x-k8s.io/podset-required-topology": RACK });
    world.create("", "pods", solo.clone()).await;
    let labels = json!({ "app": "x" });
    let template =
        json!({ "metadata": { "labels": labels, "annotations": senseless }, "spec": solo["spec"] });
    let named = |name: &str, spec: Value| {
        let labels = json!({ "kueue.x-k8s.io/queue-name": "a" });
        json!({ "metadata": { "name": name, "namespace": "team", "labels": labels }, "spec": spec })
    };
    let selector = json!({ "matchLabels": labels });
    let set = json!({ "replicas": 1, "serviceName": "db", "selector": selector, "template": template });
    world.create("apps", "statefulsets", named("db", set)).await;
    let groups = json!({ "replicas": 1, "leaderWorkerTemplate": { "size": 1, "workerTemplate": template } });
    world.create("leaderworkerset.x-k8s.io", "leaderworkersets", named("lws", groups)).await;
    world.settle().await;
    for name in ["job", "solo", "db", "lws"] {
        let workload = world.workload(name).unwrap_or_default();
        assert!(workload["spec"]["podSets"][0].is_object(), "{name} has no Workload");
        assert_eq!(workload["spec"]["podSets"][0].get("topologyRequest"), None, "{workload}");
    }
}

fn lone_pod(name: &str, queue: &str) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": "team", "labels": { "kueue.x-k8s.io/queue-name": queue },
        },
        "spec": { "containers": [{
            "name": "c", "image": "x",
            "resources": { "requests": { "nvidia.com/gpu": "1" }, "limits": { "nvidia.com/gpu": "1" } },
        }]},
    })
}

/// The API names eight failed nodes at the most.
#[tokio::test(start_paused = true)]
async fn who_loses_more_nodes_than_can_be_named_leaves() {
    let world = world().await;
    topology(&world).await;
    let nodes: Vec<String> = (10..20).map(|number| format!("n{number}")).collect();
    for node in &nodes {
        world.create("", "nodes", node_object("r3", node)).await;
    }
    let quota = |queue: &mut Value| {
        queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = json!("40");
    };
    world.update("kueue.x-k8s.io", "clusterqueues", "placed", false, quota).await;
    let replica = world.start("one");
    world.create("kubeflow.org", "pytorchjobs", together("job", 40, RACK)).await;
    world.settle().await;
    assert_eq!(places(&world, "job").len(), 10);
    // All at once, while nobody watches.
    replica.kill();
    for node in &nodes {
        node_fails(&world, node).await;
    }
    world.start("two");
    world.settle().await;
    let (status, reason, _) = world.condition("job", "Evicted").unwrap();
    assert_eq!((status.as_str(), reason.as_str()), ("True", "NodeFailures"));
}

/// It stays where it is, and nothing is written of that again and again.
#[tokio::test(start_paused = true)]
async fn a_single_pod_that_cannot_move_is_said_to_lose_no_node() {
    let world = world_with(true).await;
    topology(&world).await;
    let mut lone = lone_pod("lone", "placed");
    lone["metadata"]["annotations"] = json!({ "kueue.x-k8s.io/podset-required-topology": HOST });
    world.create("", "pods", lone).await;
    world.settle().await;
    let name = world.workload_name("lone");
    assert!(world.holds(&name, "Admitted"), "{:?}", world.workload_named(&name));
    world.bind("lone", "n1").await;
    node_fails(&world, "n1").await;
    world.settle().await;
    let workload = world.workload_named(&name).unwrap();
    assert_eq!(workload["status"]["unhealthyNodes"], Value::Null);
    assert!(world.holds(&name, "Admitted"));
    let quiet = world.cluster.revision();
    world.pass(120).await;
    assert_eq!(world.writes("layer1", quiet), Vec::<String>::new());
}
