//! A queue whose flavor has a topology: racks, nodes, and jobs that are placed on them.

use cluster_sim::GroupResource;
use serde_json::{Value, json};

use super::{World, pytorch};

pub(crate) const RACK: &str = "example.com/rack";
pub(crate) const HOST: &str = "kubernetes.io/hostname";

/// Two racks of two nodes with four GPUs each, a flavor with a topology, and a queue of it.
pub(crate) async fn world() -> World {
    world_with(false).await
}

pub(crate) async fn world_with(webhooks: bool) -> World {
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

pub(crate) async fn topology(world: &World) {
    let levels = json!([{ "nodeLabel": RACK }, { "nodeLabel": HOST }]);
    world
        .create(
            "kueue.x-k8s.io",
            "topologies",
            json!({ "metadata": { "name": "racks" }, "spec": { "levels": levels } }),
        )
        .await;
}

pub(crate) fn node_object(rack: &str, name: &str) -> Value {
    json!({
        "metadata": { "name": name, "labels": { "pool": "gpu", RACK: rack, HOST: name } },
        "status": {
            "allocatable": { "nvidia.com/gpu": "4", "cpu": "8", "pods": "20" },
            "conditions": [{ "type": "Ready", "status": "True", "reason": "", "message": "",
                "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z" }],
        },
    })
}

pub(crate) async fn node_fails(world: &World, name: &str) {
    let nodes = GroupResource::new("", "nodes");
    world.cluster.store("user").delete(&nodes, "", name, Default::default()).await.unwrap();
}

pub(crate) async fn is_ready(world: &World, name: &str, ready: bool) {
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
pub(crate) fn together(name: &str, workers: i64, level: &str) -> Value {
    let mut job = pytorch(name, "placed", workers);
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["metadata"] =
        json!({ "annotations": { "kueue.x-k8s.io/podset-required-topology": level } });
    job
}

/// The places of a job's only pod set: host and pods.
pub(crate) fn places(world: &World, job: &str) -> Vec<(String, i64)> {
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

pub(crate) fn template(world: &World, job: &str) -> Value {
    world.job(job)["spec"]["pytorchReplicaSpecs"]["Worker"]["template"].clone()
}

/// The pods that the job's controller makes of its template.
pub(crate) async fn make_pods(world: &World, job: &str, indices: std::ops::Range<i64>) {
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
pub(crate) fn pod(world: &World, name: &str) -> (Value, Value) {
    let pod = world.get("", "pods", name).unwrap();
    let gates = pod["spec"]["schedulingGates"].clone();
    (gates, pod["spec"]["nodeSelector"][HOST].clone())
}

/// It gets a node, and runs there.
pub(crate) async fn bind(world: &World, name: &str, node: &str) {
    world.bind(name, node).await;
    world.update("", "pods", name, true, |pod| pod["status"]["phase"] = json!("Running")).await;
}

pub(crate) async fn taint(world: &World, node: &str, taints: Value) {
    let nodes = GroupResource::new("", "nodes");
    let store = world.cluster.store("user");
    let change = |node: &mut Value| {
        node["spec"]["taints"] = taints.clone();
        Ok(())
    };
    store.update(&nodes, "", node, cluster_sim::Part::Main, change).await.unwrap();
}

/// What a pod says of its end.
pub(crate) fn ended(world: &World, name: &str) -> Option<Value> {
    let pod = world.get("", "pods", name).unwrap();
    let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let condition = conditions.into_iter().find(|one| one["type"] == "TerminatedByKueue")?;
    assert_eq!((&pod["status"]["phase"], &condition["status"]), (&json!("Failed"), &json!("True")));
    Some(condition["reason"].clone())
}

pub(crate) fn lone_pod(name: &str, queue: &str) -> Value {
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
