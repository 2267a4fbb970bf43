//! Jobs that name no queue, in a namespace that has one by the name `default`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::path::Path;

use admission_controller::{Config, Configuration};
use serde_json::{Value, json};
use support::World;

const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const CLASS: &str = "kueue.x-k8s.io/priority-class";

fn template() -> Value {
    let gpu = json!({ "limits": { "nvidia.com/gpu": 1 } });
    json!({ "spec": { "restartPolicy": "Never", "containers": [{ "name": "c", "image": "i", "resources": gpu }] } })
}

fn job(name: &str) -> Value {
    json!({ "metadata": { "name": name, "namespace": "team" }, "spec": { "template": template() } })
}

fn pod(name: &str) -> Value {
    json!({ "metadata": { "name": name, "namespace": "team" }, "spec": template()["spec"] })
}

async fn world(file: &str) -> World {
    let file = Configuration::parse(Path::new("config.yaml"), file).unwrap();
    let world = World::new(false).await;
    world.start_with("layer1", Config { file: file.clone(), ..Config::default() });
    world.settle().await;
    world.install_webhooks(&file).await;
    world
}

fn labels(world: &World, group: &str, resource: &str, name: &str) -> (Value, Value) {
    let labels = world.get(group, resource, name).unwrap()["metadata"]["labels"].clone();
    (labels[QUEUE].clone(), labels[CLASS].clone())
}

#[tokio::test(start_paused = true)]
async fn the_default_queue_takes_jobs_from_the_moment_it_is_there() {
    let world = world("{}").await;
    world.create("batch", "jobs", job("early")).await;
    world.queue("default", "", json!({ "nominalQuota": 1 }), json!({})).await;
    let class = json!({ "metadata": { "name": "default" }, "value": 7 });
    world.create("kueue.x-k8s.io", "workloadpriorityclasses", class).await;
    world.settle().await;
    assert_eq!(labels(&world, "batch", "jobs", "early"), (Value::Null, Value::Null), "it is left as it was");

    world.create("batch", "jobs", job("first")).await;
    world.pass(2).await;
    world.create("batch", "jobs", job("second")).await;
    world.settle().await;
    assert_eq!(labels(&world, "batch", "jobs", "first"), (json!("default"), json!("default")));
    assert!(world.is("first", "Admitted"));
    assert_eq!(world.workload("first").unwrap()["spec"]["priority"], 7);
    assert_eq!(world.get("batch", "jobs", "second").unwrap()["spec"]["suspend"], true, "there is no room");

    world.create("", "pods", pod("plain")).await;
    assert!(world.get("", "pods", "plain").unwrap()["metadata"]["labels"].is_null(), "no file names pods");
}

#[tokio::test(start_paused = true)]
async fn the_default_class_is_given_to_who_waits_in_no_queue_too() {
    let world = world("{}").await;
    let class = json!({ "metadata": { "name": "default" }, "value": 7 });
    world.create("kueue.x-k8s.io", "workloadpriorityclasses", class).await;
    world.settle().await;
    world.create("batch", "jobs", job("free")).await;
    world.settle().await;
    assert_eq!(labels(&world, "batch", "jobs", "free"), (Value::Null, json!("default")));
    assert_ne!(world.get("batch", "jobs", "free").unwrap()["spec"]["suspend"], true);
    assert!(world.workload("free").is_none(), "it is as free as before");
}

#[tokio::test(start_paused = true)]
async fn plain_pods_get_it_where_the_configuration_names_them() {
    let gate = "featureGates:\n  WorkloadPriorityClassDefaulting: false\n";
    let world = world(&format!("{gate}integrations:\n  frameworks: [pod]\n")).await;
    world.queue("default", "", json!({ "nominalQuota": 1 }), json!({})).await;
    let class = json!({ "metadata": { "name": "default" }, "value": 7 });
    world.create("kueue.x-k8s.io", "workloadpriorityclasses", class).await;
    world.settle().await;
    world.create("", "pods", pod("plain")).await;
    world.create("batch", "jobs", job("other")).await;
    world.settle().await;
    assert_eq!(labels(&world, "", "pods", "plain"), (json!("default"), Value::Null));
    assert!(world.is("plain", "Admitted"));
    assert!(world.get("batch", "jobs", "other").unwrap()["metadata"].get("labels").is_none());
}
