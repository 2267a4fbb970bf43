//! Taking the place of a Kueue that runs, and giving it back.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::time::Duration;

use admission_controller::config::TakeOver;
use admission_controller::names::workload_name;
use admission_controller::{Config, Configuration, takeover};
use cluster_sim::GroupResource;
use kit::{Clients, Context, Identity};
use serde_json::{Value, json};
use support::{World, pod_of, stateful_set};

const ADMISSION: &str = "admissionregistration.k8s.io";
const LEASE: &str = "c1f6bfd2.kueue.x-k8s.io";

/// What Kueue's chart installs, as far as it sends requests; and its Lease, held.
async fn kueue(world: &World) {
    world.create("", "namespaces", json!({ "metadata": { "name": "kueue-system" } })).await;
    let service =
        |path: &str| json!({ "namespace": "kueue-system", "name": "kueue-webhook-service", "path": path });
    let webhook = |name: &str, path: &str, group: &str, resource: &str| {
        json!({
            "name": name, "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
            "clientConfig": { "service": service(path), "caBundle": "S3VldWU=" },
            "rules": [{ "apiGroups": [group], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"], "resources": [resource] }],
        })
    };
    let mutating = json!({
        "metadata": { "name": "kueue-mutating-webhook-configuration" },
        "webhooks": [
            webhook("mpytorchjob.kb.io", "/mutate-kubeflow-org-v1-pytorchjob", "kubeflow.org", "pytorchjobs"),
            webhook("mdeployment.kb.io", "/mutate-apps-v1-deployment", "apps", "deployments"),
            webhook("mstatefulset.kb.io", "/mutate-apps-v1-statefulset", "apps", "statefulsets"),
            webhook("mpod.kb.io", "/mutate--v1-pod", "", "pods"),
        ],
    });
    world.create(ADMISSION, "mutatingwebhookconfigurations", mutating).await;
    let validating = json!({
        "metadata": { "name": "kueue-validating-webhook-configuration" },
        "webhooks": [
            webhook("vworkload.kb.io", "/validate-kueue-x-k8s-io-v1beta2-workload", "kueue.x-k8s.io", "workloads"),
            webhook("vstatefulset.kb.io", "/validate-apps-v1-statefulset", "apps", "statefulsets"),
        ],
    });
    world.create(ADMISSION, "validatingwebhookconfigurations", validating).await;
    for version in ["v1beta1", "v1beta2"] {
        let service = json!({
            "metadata": { "name": format!("{version}.visibility.kueue.x-k8s.io") },
            "spec": {
                "group": "visibility.kueue.x-k8s.io", "version": version, "groupPriorityMinimum": 100, "versionPriority": 100,
                "insecureSkipTLSVerify": true, "service": { "namespace": "kueue-system", "name": "kueue-visibility-server" },
            },
        });
        world.create("apiregistration.k8s.io", "apiservices", service).await;
    }
    lease(world, "kueue").await;
}

/// Kueue renews its Lease; with nobody named it has released it.
async fn lease(world: &World, holder: &str) {
    let now = world.now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
    let spec = json!({ "holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": now, "acquireTime": now, "leaseTransitions": 1 });
    let id = GroupResource::new("coordination.k8s.io", "leases");
    let store = world.cluster.store("kueue");
    if store.get(&id, "kueue-system", LEASE).is_none() {
        let object = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": LEASE, "namespace": "kueue-system" }, "spec": spec,
        });
        store.create(&id, object).await.unwrap();
        return;
    }
    let change = |object: &mut Value| {
        object["spec"] = spec.clone();
        Ok(())
    };
    store.update(&id, "kueue-system", LEASE, cluster_sim::Part::Main, change).await.unwrap();
}

fn configuration() -> Configuration {
    Configuration { take_over: Some(TakeOver::default()), ..Configuration::default() }
}

fn start(world: &World) -> kit::Tasks {
    world.start_with("layer1", Config { file: configuration(), ..Config::default() })
}

async fn hand_back(world: &World) {
    let ctx = Context {
        clients: Clients::shared(world.cluster.client_as("hand-back")),
        identity: Identity::new("hand-back"),
        ..world.context()
    };
    takeover::hand_back(ctx, configuration()).await.unwrap();
}

/// The namespace of the Services that are called, wherever requests were Kueue's.
fn called(world: &World) -> Vec<String> {
    let mut all = Vec::new();
    for (kind, name) in [
        ("mutatingwebhookconfigurations", "kueue-mutating-webhook-configuration"),
        ("validatingwebhookconfigurations", "kueue-validating-webhook-configuration"),
    ] {
        let object = world.get(ADMISSION, kind, name).unwrap();
        let webhooks = object["webhooks"].as_array().unwrap().clone();
        all.extend(
            webhooks
                .iter()
                .map(|one| one["clientConfig"]["service"]["namespace"].as_str().unwrap().to_owned()),
        );
    }
    for version in ["v1beta1", "v1beta2"] {
        let name = format!("{version}.visibility.kueue.x-k8s.io");
        let object = world.get("apiregistration.k8s.io", "apiservices", &name).unwrap();
        all.push(object["spec"]["service"]["namespace"].as_str().unwrap().to_owned());
    }
    all
}

#[tokio::test(start_paused = true)]
async fn it_acts_when_kueue_does_no_longer_and_gives_everything_back() {
    let world = World::new(false).await;
    world.queue("a", "", json!({ "nominalQuota": 8 }), json!({})).await;
    kueue(&world).await;
    let before = world
        .cluster
        .store("reader")
        .list(&GroupResource::new(ADMISSION, "mutatingwebhookconfigurations"), None);
    let tasks = start(&world);

    // While Kueue renews its Lease this one writes nothing at all.
    for _ in 0..30 {
        lease(&world, "kueue").await;
        world.sleep(Duration::from_secs(2)).await;
    }
    assert_eq!(world.cluster.faults().writes_by("layer1"), 0);
    assert!(called(&world).iter().all(|namespace| namespace == "kueue-system"));

    // It releases the Lease, as a manager that ends does; its webhooks go unanswered until they come here.
    lease(&world, "").await;
    world.sleep(Duration::from_secs(5)).await;
    assert!(called(&world).iter().all(|namespace| namespace == "trireme-system"), "{:?}", called(&world));
    let made = world.pytorch("job", "a", 1).await;
    let scheduler = "/spec/pytorchReplicaSpecs/Worker/template/spec/schedulerName";
    assert_eq!(made.value().pointer(scheduler), Some(&json!("trireme")), "its webhook was asked here");
    world.settle().await;
    assert!(world.is("job", "Admitted"));

    // Back: Kueue waits for the Lease; the requests go to it before this program ends.
    hand_back(&world).await;
    world.sleep(Duration::from_secs(120)).await;
    assert!(called(&world).iter().all(|namespace| namespace == "kueue-system"), "the leader lets it be");
    let after = world
        .cluster
        .store("reader")
        .list(&GroupResource::new(ADMISSION, "mutatingwebhookconfigurations"), None);
    assert_eq!(after[0].value()["webhooks"], before[0].value()["webhooks"]);
    tasks.stop();
    tasks.ended().await;
    let id = GroupResource::new("coordination.k8s.io", "leases");
    let left = world.cluster.store("reader").get(&id, "kueue-system", LEASE).unwrap();
    assert_eq!(left.value()["spec"]["holderIdentity"], "", "Kueue need not wait");
}

/// A Kueue that died holding its Lease is waited out.
#[tokio::test(start_paused = true)]
async fn a_lease_that_is_not_renewed_is_waited_out() {
    let world = World::new(false).await;
    kueue(&world).await;
    start(&world);
    world.sleep(Duration::from_secs(15)).await;
    assert_eq!(world.cluster.faults().writes_by("layer1"), 0, "not before it has run out");
    world.sleep(Duration::from_secs(15)).await;
    assert!(called(&world).iter().all(|namespace| namespace == "trireme-system"));
}

/// Kinds of Kueue's that are not managed here are let through, and their owners are told.
#[tokio::test(start_paused = true)]
async fn kinds_that_are_not_managed_are_let_through_with_a_warning() {
    let world = World::new(false).await;
    kueue(&world).await;
    lease(&world, "").await;
    let file = Configuration {
        integrations: serde_json::from_value(json!({ "frameworks": ["batch/job"] })).unwrap(),
        ..configuration()
    };
    world.start_with("layer1", Config { file, ..Config::default() });
    world.sleep(Duration::from_secs(30)).await;
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": "d", "namespace": "team", "labels": { "kueue.x-k8s.io/queue-name": "a" } },
        "spec": {
            "selector": { "matchLabels": { "a": "b" } },
            "template": { "metadata": { "labels": { "a": "b" } }, "spec": { "containers": [{ "name": "c", "image": "x" }] } },
        },
    });
    let client = world.cluster.client_as("user");
    let request = http::Request::post("/apis/apps/v1/namespaces/team/deployments")
        .header("content-type", "application/json")
        .body(kube::client::Body::from(deployment.to_string().into_bytes()))
        .unwrap();
    let response = client.send(request).await.unwrap();
    assert_eq!(response.status().as_u16(), 201);
    let warning = response.headers()["warning"].to_str().unwrap();
    assert!(warning.contains("Deployment is not managed"), "{warning}");

    // Nor is an edit judged, which would be refused of one that is managed.
    kueues_set(&world).await;
    let scaled = json!({ "spec": { "replicas": 3 } });
    let request = http::Request::patch("/apis/apps/v1/namespaces/team/statefulsets/db")
        .header("content-type", "application/merge-patch+json")
        .body(kube::client::Body::from(scaled.to_string().into_bytes()))
        .unwrap();
    let response = client.send(request).await.unwrap();
    assert_eq!(response.status().as_u16(), 200, "{response:?}");
}

/// A StatefulSet from Kueue's time: its webhook left an annotation in the template, and no label.
async fn kueues_set(world: &World) -> Value {
    let gpu = json!({ "limits": { "nvidia.com/gpu": 1 }, "requests": { "nvidia.com/gpu": 1 } });
    let pod = json!({ "containers": [{ "name": "c", "image": "x", "resources": gpu }] });
    let mut set = stateful_set(1, pod);
    set["spec"]["template"]["metadata"]["annotations"] =
        json!({ "kueue.x-k8s.io/pod-suspending-parent": "statefulset" });
    world.create("apps", "statefulsets", set).await.value().clone()
}

/// Which group the pod has joined, if it may be scheduled.
fn joined(world: &World) -> Option<String> {
    let pod = world.get("", "pods", "db-0").unwrap();
    let is_gated = pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty());
    let group = pod["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-name"].as_str();
    group.filter(|_| !is_gated).map(str::to_owned)
}

#[tokio::test(start_paused = true)]
async fn new_pods_of_a_stateful_set_join_it_and_an_edit_makes_none_anew() {
    let world = World::new(false).await;
    world.queue("a", "", json!({ "nominalQuota": 1 }), json!({})).await;
    let set = kueues_set(&world).await;
    kueue(&world).await;
    lease(&world, "").await;
    start(&world);
    world.sleep(Duration::from_secs(30)).await;
    world.create("", "pods", pod_of(&set, &set["spec"]["template"], "db-0")).await;
    world.settle().await;
    assert_eq!(joined(&world), Some(world.workload_name("db")), "{:?}", world.get("", "pods", "db-0"));

    let note = |set: &mut Value| set["metadata"]["annotations"] = json!({ "note": "edited" });
    world.update("apps", "statefulsets", "db", false, note).await;
    let edited = world.get("apps", "statefulsets", "db").unwrap();
    assert_eq!(edited["spec"]["template"], set["spec"]["template"]);
}

/// An older Kueue left the uid of a StatefulSet out of its Workload's name.
#[tokio::test(start_paused = true)]
async fn a_workload_by_an_older_name_is_kept() {
    let world = World::new(false).await;
    world.queue("a", "", json!({ "nominalQuota": 1 }), json!({})).await;
    let set = kueues_set(&world).await;
    let name = workload_name("apps", "StatefulSet", "db", "");
    let uid = &set["metadata"]["uid"];
    let owner = json!({ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": uid });
    let template = json!({ "spec": set["spec"]["template"]["spec"] });
    let workload = json!({
        "metadata": {
            "name": name, "namespace": "team", "ownerReferences": [owner],
            "annotations": { "kueue.x-k8s.io/is-group-workload": "true" },
        },
        "spec": { "queueName": "a", "podSets": [{ "name": "main", "count": 1, "template": template }] },
    });
    world.create("kueue.x-k8s.io", "workloads", workload).await;
    world.start("layer1");
    world.settle().await;
    let mut pod = pod_of(&set, &set["spec"]["template"], "db-0");
    pod["metadata"]["labels"]["kueue.x-k8s.io/managed"] = json!("true");
    pod["spec"]["schedulingGates"] = json!([{ "name": "kueue.x-k8s.io/admission" }]);
    world.create("", "pods", pod).await;
    world.settle().await;
    assert_eq!(joined(&world), Some(name.clone()), "{:?}", world.get("", "pods", "db-0"));
    let all =
        world.cluster.store("reader").list(&GroupResource::new("kueue.x-k8s.io", "workloads"), Some("team"));
    let names: Vec<&Value> = all.iter().map(|one| &one.value()["metadata"]["name"]).collect();
    assert_eq!(names, [&json!(name)]);
}
