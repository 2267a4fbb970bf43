//! What `kubectl` shows of a cluster with controllers and a node, asked as it asks, in virtual time.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail as the test does")]

use std::time::Duration;

use cluster_sim::node::NodeSpec;
use cluster_sim::{Cluster, GroupResource, Part, SimConfig};
use http::Request;
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use kit::{Clock, Rng, ServiceTable, Tasks};
use kube::client::Body;
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

async fn cluster() -> Cluster {
    let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap());
    let cluster = Cluster::new(SimConfig::new(clock, Tasks::new(), Rng::seeded(1), ServiceTable::new()));
    cluster.start_controllers().await.unwrap();
    cluster.add_node(NodeSpec::new("n1")).unwrap();
    pass(1).await;
    cluster
}

async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

async fn send(cluster: &Cluster, method: &str, path: &str) -> (u16, String) {
    let request = Request::builder().method(method).uri(path).header("accept", TABLE);
    let response = cluster.client().send(request.body(Body::empty()).unwrap()).await.unwrap();
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, String::from_utf8(bytes.to_vec()).unwrap())
}

/// The first row of a table as `column=cell`, without the age.
async fn row(cluster: &Cluster, path: &str) -> Vec<String> {
    let (code, text) = send(cluster, "GET", path).await;
    assert_eq!(code, 200, "{text}");
    let table: Value = serde_json::from_str(&text).unwrap();
    let heads =
        table["columnDefinitions"].as_array().unwrap().iter().map(|head| head["name"].as_str().unwrap());
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    let all = heads.zip(cells).filter(|(head, _)| *head != "Age");
    all.map(|(head, cell)| format!("{head}={}", cell.as_str().unwrap_or("<none>"))).collect()
}

async fn create(cluster: &Cluster, group: &str, plural: &str, object: Value) {
    cluster.store("test").create(&GroupResource::new(group, plural), object).await.unwrap();
}

fn template() -> Value {
    json!({ "spec": { "nodeName": "n1", "containers": [{ "name": "c", "image": "i" }] } })
}

#[tokio::test(start_paused = true)]
async fn a_pytorchjob_shows_its_state_and_can_be_scaled() {
    let cluster = cluster().await;
    let job = json!({
        "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": { "name": "j", "namespace": "default" },
        "spec": { "pytorchReplicaSpecs": { "Worker": { "replicas": 2, "template": template() } } },
    });
    create(&cluster, "kubeflow.org", "pytorchjobs", job).await;
    pass(2).await;
    let path = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs/j";
    assert_eq!(row(&cluster, path).await, ["Name=j", "State=Running"]);
    let (_, scale) = send(&cluster, "GET", &format!("{path}/scale")).await;
    let scale: Value = serde_json::from_str(&scale).unwrap();
    assert_eq!((&scale["spec"]["replicas"], &scale["status"]["replicas"]), (&json!(2), &json!(2)));
    let selector = scale["status"]["selector"].as_str().unwrap();
    let (_, pods) =
        send(&cluster, "GET", &format!("{PODS}?labelSelector={}", selector.replace('=', "%3D"))).await;
    let pods: Value = serde_json::from_str(&pods).unwrap();
    assert_eq!(pods["rows"].as_array().unwrap().len(), 2, "{selector}");
}

#[tokio::test(start_paused = true)]
async fn a_jobset_shows_how_far_it_is() {
    let cluster = cluster().await;
    let mut template = template();
    template["metadata"]["annotations"]["sim.trireme.dev/run-for"] = "10s".into();
    let set = json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": { "name": "j", "namespace": "default" },
        "spec": {
            "suspend": false,
            "replicatedJobs": [{ "name": "w", "template": { "spec": { "template": template } } }],
        },
    });
    create(&cluster, "jobset.x-k8s.io", "jobsets", set).await;
    pass(3).await;
    let path = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets/j";
    let running = ["Name=j", "TerminalState=<none>", "Restarts=0", "Completed=<none>", "Suspended=false"];
    assert_eq!(row(&cluster, path).await, running);
    pass(30).await;
    let done = ["Name=j", "TerminalState=Completed", "Restarts=0", "Completed=True", "Suspended=false"];
    assert_eq!(row(&cluster, path).await, done);
}

/// A pod with an init container and a sidecar.
async fn with_helpers(cluster: &Cluster) {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p", "namespace": "default" },
        "spec": {
            "nodeName": "n1",
            "initContainers": [
                { "name": "setup", "image": "i", "env": [{ "name": "STEP", "value": "1" }] },
                { "name": "sidecar", "image": "i", "restartPolicy": "Always" },
            ],
            "containers": [{ "name": "main", "image": "i" }],
        },
    });
    create(cluster, "", "pods", pod).await;
}

#[tokio::test(start_paused = true)]
async fn sidecars_count_as_containers() {
    let cluster = cluster().await;
    with_helpers(&cluster).await;
    pass(2).await;
    let shown = row(&cluster, &format!("{PODS}/p")).await;
    assert_eq!(shown[..4], ["Name=p", "Ready=2/2", "Status=Running", "Restarts=0"]);
    let crash = |pod: &mut Value| {
        let sidecar = &mut pod["status"]["initContainerStatuses"][1];
        sidecar["ready"] = false.into();
        sidecar["restartCount"] = 3.into();
        Ok(())
    };
    cluster
        .store("test")
        .update(&GroupResource::core("pods"), "default", "p", Part::Status, crash)
        .await
        .unwrap();
    let (_, text) = send(&cluster, "GET", &format!("{PODS}/p")).await;
    let table: Value = serde_json::from_str(&text).unwrap();
    let cells = &table["rows"][0]["cells"];
    assert_eq!((&cells[1], &cells[3]), (&json!("1/2"), &json!("3")));
}

#[tokio::test(start_paused = true)]
async fn init_containers_have_logs_when_they_are_named() {
    let cluster = cluster().await;
    with_helpers(&cluster).await;
    pass(2).await;
    let log =
        async |container: &str| send(&cluster, "GET", &format!("{PODS}/p/log?container={container}")).await;
    assert_eq!(log("setup").await, (200, "HOSTNAME=p\nSTEP=1\n".into()));
    assert_eq!(log("sidecar").await.0, 200);
    assert_eq!(log("other").await.0, 400);
    let (code, text) = send(&cluster, "GET", &format!("{PODS}/p/log")).await;
    assert_eq!((code, text.as_str()), (200, "HOSTNAME=p\n"), "the only container that is no init container");
}

#[tokio::test(start_paused = true)]
async fn exec_attach_and_port_forward_say_that_nothing_runs() {
    let cluster = cluster().await;
    with_helpers(&cluster).await;
    for (method, what, word) in [
        ("POST", "exec?command=sh&container=main", "exec"),
        ("GET", "exec?command=sh&container=main", "exec"),
        ("POST", "attach", "attach"),
        ("POST", "portforward?ports=80", "port-forward"),
    ] {
        let (code, text) = send(&cluster, method, &format!("{PODS}/p/{what}")).await;
        let status: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((code, &status["kind"], &status["code"]), (501, &json!("Status"), &json!(501)), "{what}");
        let message = status["message"].as_str().unwrap();
        assert!(message.contains(&format!("{word} is not supported")), "{message}");
        let (code, _) = send(&cluster, method, &format!("{PODS}/missing/{what}")).await;
        assert_eq!(code, 404, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn events_go_an_hour_after_their_last_write() {
    let cluster = cluster().await;
    let events = GroupResource::core("events");
    let store = cluster.store("test");
    for name in ["once", "again", "deleted"] {
        let event = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": { "name": name, "namespace": "default" },
            "involvedObject": { "kind": "Pod", "namespace": "default", "name": "p" }, "reason": "Said", "count": 1,
        });
        create(&cluster, "", "events", event).await;
    }
    let names = || -> Vec<String> {
        store.list(&events, None).iter().map(|event| event.key().name.to_string()).collect()
    };
    pass(1800).await;
    let count = |event: &mut Value| {
        event["count"] = 2.into();
        Ok(())
    };
    store.update(&events, "default", "again", Part::Main, count).await.unwrap();
    store.delete(&events, "default", "deleted", Default::default()).await.unwrap();
    let mut watch = store.watch(&events);
    watch.next().await;
    watch.next().await;
    pass(1799).await;
    assert_eq!(names(), ["again", "once"]);
    pass(2).await;
    assert_eq!(names(), ["again"]);
    let change = watch.try_next().unwrap();
    assert_eq!((change.kind, &*change.object.key().name), (cluster_sim::ChangeKind::Deleted, "once"));
    pass(1800).await;
    assert!(names().is_empty());
}
