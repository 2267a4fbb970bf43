//! What the configuration says about kinds: those it declares, those that somebody else manages, and what is copied from jobs.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::path::Path;

use admission_controller::{Config, Configuration};
use serde_json::{Value, json};
use support::World;

const GROUP: &str = "example.com";
const RUNS: &str = "trainingruns";

const FILE: &str = "
integrations:
  frameworks: [batch/job, pod]
  externalFrameworks: [PyTorchJob.v1.kubeflow.org]
  labelKeysToCopy: [team, project]
  kinds:
    - name: TrainingRun.v1.example.com
      suspend: spec.suspend
      podSets:
        - { name: leader, template: spec.leader.template }
        - { name: workers, template: spec.workers.template, count: [spec.workers.replicas] }
      active: { count: status.active }
      finished: { text: { path: status.phase, succeeded: Done, failed: [Broken] } }
";

fn config() -> Config {
    Config { file: Configuration::parse(Path::new("config.yaml"), FILE).unwrap(), ..Config::default() }
}

fn template() -> Value {
    let gpu = json!({ "limits": { "nvidia.com/gpu": 1 } });
    json!({ "spec": { "restartPolicy": "Never", "containers": [{ "name": "c", "image": "i", "resources": gpu }] } })
}

fn run(name: &str, workers: i64) -> Value {
    json!({
        "metadata": { "name": name, "namespace": "team", "labels": {
            "kueue.x-k8s.io/queue-name": "a", "team": "vision", "other": "x",
        }},
        "spec": {
            "leader": { "template": template() },
            "workers": { "replicas": workers, "template": template() },
        },
    })
}

async fn world() -> World {
    let world = World::new(false).await;
    world.queue("a", "", json!({ "nominalQuota": 4 }), json!({})).await;
    world.start_with("layer1", config());
    world.install_webhooks(&config().file).await;
    world.settle().await;
    world
}

#[tokio::test(start_paused = true)]
async fn a_declared_kind_goes_the_way_of_every_job() {
    let world = world().await;
    world.create(GROUP, RUNS, run("first", 3)).await;
    world.settle().await;
    let job = world.get(GROUP, RUNS, "first").unwrap();
    assert_eq!(job["spec"]["suspend"], false);
    for role in ["leader", "workers"] {
        let spec = &job["spec"][role]["template"]["spec"];
        assert_eq!(
            (&spec["nodeSelector"], &spec["schedulerName"]),
            (&json!({ "gpu": "a100" }), &json!("trireme"))
        );
    }
    let workload = world.workload("first").unwrap();
    assert!(workload["metadata"]["name"].as_str().unwrap().starts_with("trainingrun-first-"));
    assert_eq!(workload["metadata"]["labels"]["team"], "vision", "{}", workload["metadata"]);
    assert!(workload["metadata"]["labels"].get("other").is_none());
    let counts: Vec<_> = workload["spec"]["podSets"].as_array().unwrap().iter().collect();
    let counts: Vec<_> =
        counts.into_iter().map(|set| (set["name"].as_str().unwrap(), set["count"].as_i64())).collect();
    assert_eq!(counts, [("leader", Some(1)), ("workers", Some(3))]);

    world.create(GROUP, RUNS, run("second", 1)).await;
    world.settle().await;
    assert_eq!(world.get(GROUP, RUNS, "second").unwrap()["spec"]["suspend"], true, "there is no room");
    assert_eq!(world.condition("second", "QuotaReserved").unwrap().1, "WaitingForQuota");
    world.update(GROUP, RUNS, "first", true, |job| job["status"] = json!({ "active": 4 })).await;
    world.settle().await;
    assert!(world.is("first", "PodsReady"), "nothing else tells that they are");
    world.update(GROUP, RUNS, "first", true, |job| job["status"] = json!({ "phase": "Broken" })).await;
    world.settle().await;
    assert_eq!(world.condition("first", "Finished").unwrap().1, "Failed");
    assert_eq!(world.get(GROUP, RUNS, "second").unwrap()["spec"]["suspend"], false);
}

#[tokio::test(start_paused = true)]
async fn what_an_externally_managed_job_makes_is_not_queued_by_itself() {
    let world = world().await;
    let owner = world.pytorch("theirs", "a", 1).await;
    let job = |name: &str, uid: &Value| {
        json!({
            "metadata": {
                "name": name, "namespace": "team", "labels": { "kueue.x-k8s.io/queue-name": "a" },
                "ownerReferences": [{
                    "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "theirs", "uid": uid, "controller": true,
                }],
            },
            "spec": { "template": template() },
        })
    };
    world.create("batch", "jobs", job("part", &owner.value()["metadata"]["uid"])).await;
    world.settle().await;
    assert!(world.workload("theirs").is_none(), "its Workload is made by somebody else");
    assert!(world.workload("part").is_none());
    assert_ne!(world.get("batch", "jobs", "part").unwrap()["spec"]["suspend"], true);

    // Without a queue it is nobody's: what it made waits by itself.
    world
        .update("kubeflow.org", "pytorchjobs", "theirs", false, |job| job["metadata"]["labels"] = json!({}))
        .await;
    world.settle().await;
    assert!(world.workload("part").is_some());
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_group_agree_on_what_is_copied() {
    let world = world().await;
    let pod = |name: &str, team: Option<&str>, group: &str| {
        let mut pod = json!({
            "metadata": {
                "name": name, "namespace": "team",
                "labels": { "kueue.x-k8s.io/queue-name": "a", "kueue.x-k8s.io/pod-group-name": group },
                "annotations": { "kueue.x-k8s.io/pod-group-total-count": "2" },
            },
            "spec": template()["spec"],
        });
        if let Some(team) = team {
            pod["metadata"]["labels"]["team"] = json!(team);
        }
        pod
    };
    for (name, team, group) in [
        ("a0", Some("vision"), "agree"),
        ("a1", None, "agree"),
        ("d0", Some("vision"), "differ"),
        ("d1", Some("speech"), "differ"),
    ] {
        world.create("", "pods", pod(name, team, group)).await;
    }
    world.settle().await;
    assert_eq!(world.workload_named("agree").unwrap()["metadata"]["labels"]["team"], "vision");
    assert!(world.workload_named("differ").is_none());
}

#[tokio::test(start_paused = true)]
async fn labels_are_copied_from_a_leader_worker_set_and_not_from_a_stateful_set() {
    let text = "integrations:\n  labelKeysToCopy: [team]\n";
    let file = Configuration::parse(Path::new("config.yaml"), text).unwrap();
    let world = World::new(true).await;
    world.start_with("layer1", Config { file, ..Config::default() });
    world.settle().await;
    world.queue("a", "", json!({ "nominalQuota": 4 }), json!({})).await;
    let metadata = |name: &str| {
        let labels = json!({ "kueue.x-k8s.io/queue-name": "a", "team": "vision" });
        json!({ "name": name, "namespace": "team", "labels": labels })
    };
    let containers = template()["spec"]["containers"].clone();
    let pods = json!({ "metadata": { "labels": { "app": "db" } }, "spec": { "containers": containers } });
    let set = json!({
        "metadata": metadata("db"),
        "spec": { "replicas": 1, "serviceName": "db", "selector": { "matchLabels": { "app": "db" } }, "template": pods },
    });
    world.create("apps", "statefulsets", set).await;
    let groups = json!({
        "metadata": metadata("lws"),
        "spec": { "replicas": 1, "leaderWorkerTemplate": { "size": 1, "workerTemplate": pods } },
    });
    world.create("leaderworkerset.x-k8s.io", "leaderworkersets", groups).await;
    world.settle().await;
    let team = |name: &str| world.workload(name).unwrap()["metadata"]["labels"]["team"].clone();
    assert_eq!((team("lws"), team("db")), (json!("vision"), Value::Null));
}
