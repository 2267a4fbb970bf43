//! What follows when a node fails on which pods were placed by topology.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::path::Path;

use admission_controller::{Config, Configuration};
use cluster_sim::faults::{Aim, Fault};
use cluster_sim::{GroupResource, Verb};
use serde_json::{Value, json};
use support::pytorch;
use support::racks::*;

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
    let before = world.attempts("one");
    node_fails(&world, "n1").await;
    world.settle().await;
    assert_eq!(world.attempts("one"), before);
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
    let before = world.attempts("one");
    world.pass(600).await;
    assert_eq!(world.attempts("one"), before, "it is at rest");
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
    let quiet = world.attempts("one");
    world.pass(120).await;
    assert_eq!(world.attempts("one"), quiet);
}

/// Who places pods goes by the label, which some clouds and `--hostname-override` make differ from the name.
#[tokio::test(start_paused = true)]
async fn a_node_is_known_by_its_label_whatever_it_is_called() {
    let world = world().await;
    topology(&world).await;
    for name in ["n1", "n2", "n3", "n4"] {
        node_fails(&world, name).await;
    }
    for (name, host) in [("vm-1", "h1"), ("vm-2", "h2")] {
        let mut node = node_object("r1", name);
        node["metadata"]["labels"][HOST] = json!(host);
        world.create("", "nodes", node).await;
    }
    world.start("one");
    world.create("kubeflow.org", "pytorchjobs", together("job", 4, HOST)).await;
    world.settle().await;
    assert_eq!(places(&world, "job"), [("h1".to_owned(), 4)]);
    make_pods(&world, "job", 0..4).await;
    world.settle().await;
    for pod in ["job-0", "job-1", "job-2", "job-3"] {
        bind(&world, pod, "vm-1").await;
    }
    world.settle().await;
    let before = world.attempts("one");
    world.pass(120).await;
    assert_eq!(world.attempts("one"), before, "nothing has happened");

    // Pods are bound to names.
    taint(&world, "vm-1", json!([{ "key": "broken", "effect": "NoSchedule" }])).await;
    world.settle().await;
    assert_eq!(places(&world, "job"), [("h1".to_owned(), 4)]);
    for pod in ["job-0", "job-1", "job-2", "job-3"] {
        world.update("", "pods", pod, true, |pod| pod["status"]["phase"] = json!("Failed")).await;
    }
    world.settle().await;
    assert_eq!(places(&world, "job"), [("h2".to_owned(), 4)]);

    // Under another label it is another place, and the old one is gone.
    let rename = |node: &mut Value| {
        node["metadata"]["labels"][HOST] = json!("h3");
        Ok(())
    };
    let (nodes, part) = (GroupResource::new("", "nodes"), cluster_sim::Part::Main);
    world.cluster.store("kubelet").update(&nodes, "", "vm-2", part, rename).await.unwrap();
    world.settle().await;
    assert_eq!(places(&world, "job"), [("h3".to_owned(), 4)]);
    assert!(world.is("job", "Admitted") && !world.is("job", "Evicted"));
}

/// Whatever the pod says of topologies, and whoever sent it there.
#[tokio::test(start_paused = true)]
async fn who_is_bound_to_a_node_keeps_it_from_being_replaced() {
    let world = world().await;
    topology(&world).await;
    world.start("one");
    world.create("kubeflow.org", "pytorchjobs", together("job", 4, HOST)).await;
    world.settle().await;
    let workload = world.workload_name("job");
    let wish = "kueue.x-k8s.io/podset-unconstrained-topology";
    for (node, next, annotations) in [
        ("n1", "n2", json!({ "kueue.x-k8s.io/workload": workload, wish: "true" })),
        ("n2", "n3", json!({ "kueue.x-k8s.io/workload": workload })),
    ] {
        assert_eq!(places(&world, "job"), [(node.to_owned(), 4)]);
        let name = format!("on-{node}");
        let pod = json!({
            "metadata": { "name": name, "namespace": "team", "annotations": annotations },
            "spec": { "nodeName": node, "containers": [{ "name": "c", "image": "x" }] },
        });
        world.create("", "pods", pod).await;
        world.settle().await;
        is_ready(&world, node, false).await;
        world.pass(60).await;
        assert_eq!(places(&world, "job"), [(node.to_owned(), 4)], "a pod is on it");
        let (pods, store) = (GroupResource::new("", "pods"), world.cluster.store("user"));
        store.delete(&pods, "team", &name, Default::default()).await.unwrap();
        world.settle().await;
        assert_eq!(places(&world, "job"), [(next.to_owned(), 4)]);
    }
}

/// The pods of a kubelet that is dead may never be said to have ended.
#[tokio::test(start_paused = true)]
async fn where_time_counts_the_end_of_pods_is_not_waited_for() {
    for (gate, last) in [(true, "n2"), (false, "n1")] {
        let world = world().await;
        topology(&world).await;
        let text =
            json!({ "featureGates": { "TASReplaceNodeDueToNotReadyOverFixedTime": gate } }).to_string();
        let file = Configuration::parse(Path::new("config.yaml"), &text).unwrap();
        world.start_with("one", Config { file, ..Config::default() });
        world.create("kubeflow.org", "pytorchjobs", together("job", 1, HOST)).await;
        world.settle().await;
        make_pods(&world, "job", 0..1).await;
        world.settle().await;
        bind(&world, "job-0", "n1").await;
        is_ready(&world, "n1", false).await;
        world.pass(28).await;
        assert_eq!(places(&world, "job"), [("n1".to_owned(), 1)]);
        world.pass(5).await;
        assert_eq!(places(&world, "job"), [(last.to_owned(), 1)], "{gate}");
    }
}
