//! Who waits, asked through the API server as `kubectl` and `kueuectl` ask.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use cluster_sim::GroupResource;
use http::Request;
use serde_json::{Value, json};
use support::World;

const GROUP: &str = "/apis/visibility.kueue.x-k8s.io";

async fn ask(world: &World, path: &str) -> Result<Value, (u16, String)> {
    let request = Request::get(path).body(Vec::new()).unwrap();
    match world.cluster.client_as("user").request::<Value>(request).await {
        Ok(value) => Ok(value),
        Err(kube::Error::Api(status)) => Err((status.code, status.reason)),
        Err(other) => panic!("{path}: {other}"),
    }
}

/// Name of the owner, position in the ClusterQueue, position in the LocalQueue.
fn positions(summary: &Value) -> Vec<(String, i64, i64)> {
    let row = |item: &Value| {
        (
            item["metadata"]["ownerReferences"][0]["name"].as_str().unwrap_or_default().to_owned(),
            item["positionInClusterQueue"].as_i64().unwrap(),
            item["positionInLocalQueue"].as_i64().unwrap(),
        )
    };
    summary["items"].as_array().unwrap().iter().map(row).collect()
}

/// A queue of one GPU, two LocalQueues for it, one job that runs and four that wait.
async fn busy() -> World {
    let world = World::new(false).await;
    world.serve_visibility().await;
    world.queue("a", "", json!({ "nominalQuota": 1 }), json!({})).await;
    let other =
        json!({ "metadata": { "name": "other", "namespace": "team" }, "spec": { "clusterQueue": "a" } });
    world.create("kueue.x-k8s.io", "localqueues", other).await;
    let class = json!({ "metadata": { "name": "high" }, "value": 100, "description": "" });
    world.create("kueue.x-k8s.io", "workloadpriorityclasses", class).await;
    world.start("layer1");
    world.pytorch("runs", "a", 1).await;
    world.settle().await;
    for (name, queue) in [("first", "a"), ("second", "other"), ("third", "a")] {
        world.pytorch(name, queue, 1).await;
        world.settle().await;
    }
    let mut urgent = support::pytorch("urgent", "other", 2);
    urgent["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("high");
    world.create("kubeflow.org", "pytorchjobs", urgent).await;
    world.settle().await;
    world
}

#[tokio::test(start_paused = true)]
async fn positions_are_told_in_both_queues_and_both_versions() {
    let world = busy().await;
    for version in ["v1beta1", "v1beta2"] {
        let path = format!("{GROUP}/{version}/clusterqueues/a/pendingworkloads");
        let summary = ask(&world, &path).await.unwrap();
        assert_eq!(summary["kind"], "PendingWorkloadsSummary");
        assert_eq!(summary["apiVersion"], json!(format!("visibility.kueue.x-k8s.io/{version}")));
        // One that can never be admitted keeps its place: only its priority counts.
        let wanted = [("urgent", 0, 0), ("first", 1, 0), ("second", 2, 1), ("third", 3, 1)];
        assert_eq!(
            positions(&summary),
            wanted.map(|(name, cluster, local)| (name.to_owned(), cluster, local))
        );
        let first = &summary["items"][0];
        assert_eq!((&first["priority"], &first["localQueueName"]), (&json!(100), &json!("other")));
        assert_eq!(first["metadata"]["namespace"], "team");
        assert_eq!(first["metadata"]["ownerReferences"][0]["kind"], "PyTorchJob");
        assert!(first["metadata"]["creationTimestamp"].is_string(), "{first}");

        let path = format!("{GROUP}/{version}/namespaces/team/localqueues/other/pendingworkloads");
        let summary = ask(&world, &path).await.unwrap();
        assert_eq!(positions(&summary), [("urgent".to_owned(), 0, 0), ("second".to_owned(), 2, 1)]);
    }
}

#[tokio::test(start_paused = true)]
async fn parts_are_shown_and_mistakes_are_told() {
    let world = busy().await;
    let queue = format!("{GROUP}/v1beta2/clusterqueues/a/pendingworkloads");
    for (query, wanted) in [
        ("", Ok(4)),
        ("?limit=2", Ok(2)),
        ("?offset=3", Ok(1)),
        ("?offset=4", Ok(0)),
        ("?limit=-1", Ok(0)),
        ("?limit=2000000000", Ok(4)),
        ("?offset=-1&limit=0", Ok(4)),
        ("?limit=many", Err((400, "BadRequest".to_owned()))),
    ] {
        let answer = ask(&world, &format!("{queue}{query}")).await;
        assert_eq!(answer.map(|summary| positions(&summary).len()), wanted, "{query}");
    }
    let second = ask(&world, &format!("{queue}?offset=2&limit=1")).await.unwrap();
    assert_eq!(positions(&second), [("second".to_owned(), 2, 1)]);
    let local = format!("{GROUP}/v1beta2/namespaces/team/localqueues/a/pendingworkloads?offset=1");
    assert_eq!(positions(&ask(&world, &local).await.unwrap()), [("third".to_owned(), 3, 1)]);

    let not_found = Err((404, "NotFound".to_owned()));
    for path in [
        "/v1beta2/clusterqueues/none/pendingworkloads",
        "/v1beta2/namespaces/team/localqueues/none/pendingworkloads",
        "/v1beta2/namespaces/none/localqueues/a/pendingworkloads",
        "/v1beta2/clusterqueues/a",
        "/v1beta2/clusterqueues",
        "/v1beta3/clusterqueues/a/pendingworkloads",
    ] {
        assert_eq!(ask(&world, &format!("{GROUP}{path}")).await, not_found, "{path}");
    }
    // In a LocalQueue that is stopped nobody waits; as in Kueue, it is as if it was not there.
    let (id, part) = (GroupResource::new("kueue.x-k8s.io", "localqueues"), cluster_sim::Part::Main);
    let stop = |queue: &mut Value| {
        queue["spec"]["stopPolicy"] = json!("Hold");
        Ok(())
    };
    world.cluster.store("user").update(&id, "team", "other", part, stop).await.unwrap();
    world.settle().await;
    let stopped = format!("{GROUP}/v1beta2/namespaces/team/localqueues/other/pendingworkloads");
    assert_eq!(ask(&world, &stopped).await, not_found);

    let request = Request::post(&queue).body(b"{}".to_vec()).unwrap();
    let answer = world.cluster.client_as("user").request::<Value>(request).await;
    assert!(matches!(answer, Err(kube::Error::Api(status)) if status.code == 405));
}

#[tokio::test(start_paused = true)]
async fn clients_find_the_group() {
    let world = busy().await;
    let client = world.cluster.client_as("user");
    let groups = client.list_api_groups().await.unwrap();
    let group = groups.groups.iter().find(|group| group.name == "visibility.kueue.x-k8s.io").unwrap();
    assert_eq!(
        group.versions.iter().map(|one| one.version.as_str()).collect::<Vec<_>>(),
        ["v1beta2", "v1beta1"]
    );
    for version in ["v1beta1", "v1beta2"] {
        let resources =
            client.list_api_group_resources(&format!("visibility.kueue.x-k8s.io/{version}")).await.unwrap();
        let names: Vec<_> =
            resources.resources.iter().map(|one| (one.name.as_str(), one.verbs.clone())).collect();
        let none = Vec::<String>::new;
        let get = || vec!["get".to_owned()];
        assert_eq!(
            names,
            [
                ("clusterqueues", none()),
                ("clusterqueues/pendingworkloads", get()),
                ("localqueues", none()),
                ("localqueues/pendingworkloads", get()),
            ]
        );
    }
}

/// A standby knows who waits, too: whoever asks is passed on to any replica.
#[tokio::test(start_paused = true)]
async fn every_replica_answers() {
    let world = busy().await;
    world.start("layer1-standby");
    world.settle().await;
    assert_eq!(world.services.resolve("trireme-system", "admission-controller").len(), 2);
    for _ in 0..20 {
        let summary =
            ask(&world, &format!("{GROUP}/v1beta2/clusterqueues/a/pendingworkloads")).await.unwrap();
        assert_eq!(
            positions(&summary).iter().map(|row| row.0.as_str()).collect::<Vec<_>>(),
            ["urgent", "first", "second", "third"]
        );
    }
}

/// Also of a queue that came after its jobs, and after the standby.
#[tokio::test(start_paused = true)]
async fn every_replica_knows_of_a_new_queue() {
    let world = busy().await;
    world.start("layer1-standby");
    world.settle().await;
    let local =
        json!({ "metadata": { "name": "late", "namespace": "team" }, "spec": { "clusterQueue": "late" } });
    world.create("kueue.x-k8s.io", "localqueues", local).await;
    world.pytorch("early", "late", 1).await;
    world.settle().await;
    let late =
        json!({ "metadata": { "name": "late" }, "spec": { "namespaceSelector": {}, "stopPolicy": "None" } });
    world.create("kueue.x-k8s.io", "clusterqueues", late).await;
    world.settle().await;
    for _ in 0..20 {
        let path = format!("{GROUP}/v1beta2/clusterqueues/late/pendingworkloads");
        assert_eq!(positions(&ask(&world, &path).await.unwrap()), [("early".to_owned(), 0, 0)]);
    }
}

/// However many ask at a time, they are answered or told to come again, and decisions go on.
#[tokio::test(start_paused = true)]
async fn a_crowd_is_told_to_come_again() {
    let world = busy().await;
    let path = format!("{GROUP}/v1beta2/clusterqueues/a/pendingworkloads?limit=100000");
    let answers = futures::future::join_all((0..100).map(|_| ask(&world, &path))).await;
    let again = answers.iter().filter(|answer| matches!(answer, Err((429, _)))).count();
    let answered = answers.iter().filter(|answer| answer.is_ok()).count();
    assert_eq!(
        (answered + again, answered >= 8, again > 0),
        (100, true, true),
        "{answered} answered, {again} told to come again"
    );
    let id = GroupResource::new("kubeflow.org", "pytorchjobs");
    world.cluster.store("user").delete(&id, "team", "runs", Default::default()).await.unwrap();
    world.settle().await;
    assert!(world.is("first", "Admitted"));
}
