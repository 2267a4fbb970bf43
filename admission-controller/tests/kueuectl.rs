//! The requests that `kueuectl` (cmd/kueuectl of Kueue 0.19) makes, one command after the other, and what it prints of the
//! answers.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use http::Request;
use serde_json::{Value, json};
use support::World;

const KUEUE: &str = "/apis/kueue.x-k8s.io/v1beta2";

async fn send(world: &World, method: &str, path: &str, body: Value) -> Result<Value, u16> {
    let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request =
        Request::builder().method(method).uri(path).header("content-type", kind).body(body).unwrap();
    match world.cluster.client_as("kueuectl").request::<Value>(request).await {
        Ok(value) => Ok(value),
        Err(kube::Error::Api(status)) => Err(status.code),
        Err(other) => panic!("{method} {path}: {other}"),
    }
}

async fn get(world: &World, path: &str) -> Value {
    send(world, "GET", path, Value::Null).await.unwrap()
}

async fn world() -> World {
    let world = World::new(true).await;
    world.serve_visibility().await;
    world.start("layer1");
    world.settle().await;
    // create clusterqueue, create localqueue: with --dry-run=server first.
    let cluster_queue = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": { "name": "a" },
        "spec": {
            "queueingStrategy": "BestEffortFIFO", "namespaceSelector": {},
            "preemption": { "reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority" },
            "resourceGroups": [{
                "coveredResources": ["nvidia.com/gpu"],
                "flavors": [{ "name": "a100", "resources": [{ "name": "nvidia.com/gpu", "nominalQuota": "1" }] }],
            }],
        },
    });
    let path = format!("{KUEUE}/clusterqueues");
    send(&world, "POST", &format!("{path}?dryRun=All"), cluster_queue.clone()).await.unwrap();
    assert_eq!(send(&world, "GET", &format!("{path}/a"), Value::Null).await, Err(404));
    send(&world, "POST", &path, cluster_queue).await.unwrap();
    let local_queue = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue",
        "metadata": { "name": "a", "namespace": "team" }, "spec": { "clusterQueue": "a" },
    });
    send(&world, "POST", &format!("{KUEUE}/namespaces/team/localqueues"), local_queue).await.unwrap();
    for name in ["runs", "waits"] {
        world.pytorch(name, "a", 1).await;
        world.settle().await;
    }
    world
}

/// `list workload`: pages of Workloads, the LocalQueue of each that has no admission, the positions in its ClusterQueue, and the
/// resources of each owner's group; `--for` by the label with the job's uid.
#[tokio::test(start_paused = true)]
async fn list_workload() {
    let world = world().await;
    let page = get(&world, &format!("{KUEUE}/namespaces/team/workloads?limit=1")).await;
    let token = page["metadata"]["continue"].as_str().unwrap();
    let next = get(&world, &format!("{KUEUE}/namespaces/team/workloads?limit=1&continue={token}")).await;
    let all: Vec<&Value> =
        page["items"].as_array().unwrap().iter().chain(next["items"].as_array().unwrap()).collect();
    assert_eq!(all.len(), 2);

    let status = |workload: &Value, kind: &str| {
        let conditions = workload["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|one| one["type"] == kind && one["status"] == "True")
    };
    let (admitted, pending): (Vec<&Value>, Vec<&Value>) =
        all.into_iter().partition(|one| status(one, "Admitted"));
    let (admitted, pending) = (admitted[0], pending[0]);
    assert_eq!(admitted["status"]["admission"]["clusterQueue"], "a");
    assert!(!status(pending, "QuotaReserved") && !status(pending, "Finished"));
    assert_eq!(pending["spec"]["queueName"], "a");

    let queue = get(&world, &format!("{KUEUE}/namespaces/team/localqueues/a")).await;
    let name = queue["spec"]["clusterQueue"].as_str().unwrap();
    let visibility = "/apis/visibility.kueue.x-k8s.io/v1beta2";
    let summary = get(&world, &format!("{visibility}/clusterqueues/{name}/pendingworkloads")).await;
    let at = summary["items"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["metadata"]["name"] == pending["metadata"]["name"]);
    assert_eq!(at.unwrap()["positionInLocalQueue"], 0);

    let owner = &pending["metadata"]["ownerReferences"][0];
    let resources = get(&world, &format!("/apis/{}", owner["apiVersion"].as_str().unwrap())).await;
    let resources = resources["resources"].as_array().unwrap();
    assert!(resources.iter().any(|one| one["kind"] == owner["kind"] && one["singularName"] == "pytorchjob"));

    let uid = world.job("waits")["metadata"]["uid"].as_str().unwrap().to_owned();
    let of_job =
        get(&world, &format!("{KUEUE}/workloads?labelSelector=kueue.x-k8s.io%2Fjob-uid%3D{uid}")).await;
    assert_eq!(of_job["items"].as_array().unwrap().len(), 1);
}

/// `list clusterqueue` and `list localqueue`: the counts in their status; `list resourceflavor`: their labels.
#[tokio::test(start_paused = true)]
async fn list_queues() {
    let world = world().await;
    let queues = get(&world, &format!("{KUEUE}/clusterqueues?limit=100")).await;
    let queue = &queues["items"][0];
    let active =
        queue["status"]["conditions"].as_array().unwrap().iter().find(|one| one["type"] == "Active").unwrap();
    assert_eq!((&queue["status"]["pendingWorkloads"], &active["status"]), (&json!(1), &json!("True")));
    assert_eq!(queue["status"]["admittedWorkloads"], 1);
    let queues = get(&world, &format!("{KUEUE}/localqueues?limit=100")).await;
    let status = &queues["items"][0]["status"];
    assert_eq!((&status["pendingWorkloads"], &status["admittedWorkloads"]), (&json!(1), &json!(1)));
    let flavors = get(&world, &format!("{KUEUE}/resourceflavors?limit=100")).await;
    assert_eq!(flavors["items"][0]["spec"]["nodeLabels"]["gpu"], "a100");
}

/// `stop workload` and `resume workload`: a merge patch of what differs.
#[tokio::test(start_paused = true)]
async fn stop_and_resume_workload() {
    let world = world().await;
    let name = world.workload_name("runs");
    let path = format!("{KUEUE}/namespaces/team/workloads/{name}");
    send(&world, "PATCH", &format!("{path}?dryRun=All"), json!({ "spec": { "active": false } }))
        .await
        .unwrap();
    world.settle().await;
    assert!(world.is("runs", "Admitted"));
    send(&world, "PATCH", &path, json!({ "spec": { "active": false } })).await.unwrap();
    world.settle().await;
    assert!(world.is_suspended("runs") && !world.is("runs", "Admitted") && world.is("waits", "Admitted"));
    send(&world, "PATCH", &path, json!({ "spec": { "active": true } })).await.unwrap();
    world.settle().await;
    assert!(world.condition("runs", "QuotaReserved").is_some_and(|(status, ..)| status == "False"));
    let summary =
        get(&world, "/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/a/pendingworkloads").await;
    assert_eq!(summary["items"][0]["metadata"]["name"], json!(name));
}

/// `stop clusterqueue` and `stop localqueue` with and without `--keep-already-running`, and `resume`.
#[tokio::test(start_paused = true)]
async fn stop_and_resume_queues() {
    for path in ["clusterqueues/a", "namespaces/team/localqueues/a"] {
        let world = world().await;
        let path = format!("{KUEUE}/{path}");
        let stop = async |policy: &str| {
            send(&world, "PATCH", &path, json!({ "spec": { "stopPolicy": policy } })).await.unwrap();
            world.settle().await;
        };
        stop("Hold").await;
        assert!(world.is("runs", "Admitted") && !world.is("waits", "Admitted"), "{path}");
        stop("HoldAndDrain").await;
        assert!(world.is_suspended("runs") && !world.is("waits", "Admitted"), "{path}");
        stop("None").await;
        assert!(world.is("runs", "Admitted") || world.is("waits", "Admitted"), "{path}");
    }
}

/// `delete workload`: its owner is deleted; one without an owner is deleted itself.
#[tokio::test(start_paused = true)]
async fn delete_workload() {
    let world = world().await;
    let owner = world.workload("runs").unwrap()["metadata"]["ownerReferences"][0].clone();
    assert_eq!((&owner["kind"], &owner["name"]), (&json!("PyTorchJob"), &json!("runs")));
    send(&world, "DELETE", "/apis/kubeflow.org/v1/namespaces/team/pytorchjobs/runs", json!({}))
        .await
        .unwrap();
    world.settle().await;
    assert!(world.workload("runs").is_none() && world.is("waits", "Admitted"));
    let alone = json!({
        "metadata": { "name": "alone", "namespace": "team" },
        "spec": { "queueName": "a", "podSets": [{ "name": "main", "count": 1, "template": { "spec": {
            "restartPolicy": "Never", "containers": [{ "name": "c", "image": "x" }] } } }] },
    });
    world.create("kueue.x-k8s.io", "workloads", alone).await;
    world.settle().await;
    send(&world, "DELETE", &format!("{KUEUE}/namespaces/team/workloads/alone"), json!({})).await.unwrap();
    world.settle().await;
    assert!(world.get("kueue.x-k8s.io", "workloads", "alone").is_none());
}
