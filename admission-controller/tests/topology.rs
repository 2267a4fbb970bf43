//! Pods placed by topology: from the annotation on the job to the node labels of each pod.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::path::Path;

use admission_controller::config::closed_with;
use admission_controller::{Config, Configuration};
use cluster_sim::GroupResource;
use serde_json::{Value, json};
use support::racks::*;
use support::{World, pytorch};

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
