//! What `/debug/state` says of a workload at every stop on its way.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::path::Path;

use admission_controller::{Config, Configuration};
use serde_json::{Value, json};
use support::World;

const GROUP: &str = "kueue.x-k8s.io";

fn text<'a>(said: &'a Value, field: &str) -> &'a str {
    said[field].as_str().unwrap_or_default()
}

/// One that has quota and waits for a check is not admitted, and it is told which check, and what that says.
#[tokio::test(start_paused = true)]
async fn who_waits_for_checks_is_told_which() {
    let world = World::new(false).await;
    world.queue("a", "", json!({ "nominalQuota": 4 }), json!({})).await;
    world.checked("a").await;
    world.start("layer1");
    world.pytorch("llama", "a", 4).await;
    world.settle().await;
    let said = world.explained("llama").await;
    assert_eq!(
        (text(&said, "state"), text(&said, "reason")),
        ("WaitingForChecks", "UnsatisfiedAdmissionChecks"),
        "{said}"
    );
    assert!(text(&said, "message").contains("waits for budget"), "{said}");
    let name = world.workload_name("llama");
    let answer = |state: &'static str| {
        move |workload: &mut Value| {
            let check = &mut workload["status"]["admissionChecks"][0];
            check["state"] = json!(state);
            check["message"] = json!("no money before May");
        }
    };
    world.update(GROUP, "workloads", &name, true, answer("Pending")).await;
    world.settle().await;
    let said = world.explained("llama").await;
    assert_eq!(said["checks"][0]["message"], "no money before May");
    assert!(text(&said, "message").contains("budget (no money before May)"), "{said}");
    world.update(GROUP, "workloads", &name, true, answer("Ready")).await;
    world.settle().await;
    assert_eq!(text(&world.explained("llama").await, "state"), "Admitted");
}

/// Who leaves for whom is told on both sides.
#[tokio::test(start_paused = true)]
async fn a_preemption_in_flight_names_both_sides() {
    let world = World::new(false).await;
    let any = json!({ "reclaimWithinCohort": "Any" });
    world.queue("a", "pool", json!({ "nominalQuota": 0 }), any.clone()).await;
    world.queue("b", "pool", json!({ "nominalQuota": 8 }), any).await;
    world.start("layer1");
    world.pytorch("borrower", "a", 8).await;
    world.settle().await;
    let active = json!({ "replicaStatuses": { "Worker": { "active": 8 } } });
    world.update("kubeflow.org", "pytorchjobs", "borrower", true, |job| job["status"] = active.clone()).await;
    world.pytorch("owner", "b", 8).await;
    world.settle().await;
    let (owner, borrower) = (world.explained("owner").await, world.explained("borrower").await);
    assert_eq!(text(&owner, "state"), "WaitingForPreempted");
    assert_eq!(text(&owner, "reason"), "WaitingForPreemptedWorkloads");
    assert_eq!(
        owner["leaving"],
        json!([{
            "uid": borrower["uid"], "namespace": "team", "name": borrower["name"],
        }])
    );
    assert!(text(&owner, "message").contains(&format!("team/{}", text(&borrower, "name"))), "{owner}");
    assert_eq!((text(&borrower, "state"), text(&borrower, "reason")), ("Evicted", "Preempted"));
    assert_eq!(borrower["preemptor"]["name"], owner["name"]);
    let leaves_for = format!("it leaves for team/{}", text(&owner, "name"));
    assert!(text(&borrower, "message").contains(&leaves_for), "{borrower}");
}

/// Pods that have to get ready, and what follows: until when, and when it is tried again.
#[tokio::test(start_paused = true)]
async fn who_waits_for_pods_or_was_put_off_is_told_until_when() {
    let world = World::new(false).await;
    world.queue("a", "", json!({ "nominalQuota": 4 }), json!({})).await;
    let file = "apiVersion: config.kueue.x-k8s.io/v1beta2\nwaitForPodsReady:\n  timeout: 5m\n  requeuingStrategy:\n    \
                backoffBaseSeconds: 600\n";
    let file = Configuration::parse(Path::new("config.yaml"), file).unwrap();
    world.start_with("layer1", Config { file, ..Config::default() });
    world.pytorch("slow", "a", 4).await;
    world.settle().await;
    let said = world.explained("slow").await;
    assert_eq!((text(&said, "state"), text(&said, "reason")), ("Admitted", "WaitForStart"), "{said}");
    let until: jiff::Timestamp = text(&said, "until").parse().unwrap();
    let wait = until.as_second() - world.seconds();
    assert!((265..=300).contains(&wait), "{said}");
    assert!(text(&said, "message").contains("it is evicted"), "{said}");
    world.pass(300).await;
    let said = world.explained("slow").await;
    assert_eq!(text(&said, "state"), "PutOff", "{said}");
    let until: jiff::Timestamp = text(&said, "until").parse().unwrap();
    assert!((500..=601).contains(&(until.as_second() - world.seconds())), "{said}");
    assert!(text(&said, "message").contains("1 time(s)"), "{said}");
}

/// The API server may hold times that are later than any time here: such a Workload is read as any other.
#[tokio::test(start_paused = true)]
async fn a_workload_that_is_put_off_for_ever_is_read() {
    let world = World::running(2).await;
    world.pytorch("never", "a", 4).await;
    world.settle().await;
    let name = world.workload_name("never");
    world
        .update(GROUP, "workloads", &name, true, |workload| {
            workload["status"]["requeueState"] = json!({ "count": 3, "requeueAt": "9999-12-31T23:59:59Z" });
        })
        .await;
    world.settle().await;
    let said = world.explained("never").await;
    assert_eq!(text(&said, "name"), name, "{said}");
    assert!(world.metrics().await.contains("kueue_pending_workloads{cluster_queue=\"a\""));
    let unread = "trireme_watch_undecodable_objects_total{kind=\"Workload\"} ";
    let text = world.metrics().await;
    let unread: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix(unread)).collect();
    assert!(text.contains("# TYPE trireme_watch_undecodable_objects_total"), "{text}");
    assert!(unread.iter().all(|count| *count == "0"), "{unread:?}");
}

/// One workload, asked for by its job's name: the numbers of its quota, who is before it, and what would let it in.
#[tokio::test(start_paused = true)]
async fn a_close_look_tells_numbers_and_what_would_help() {
    let world = World::new(false).await;
    world.queue("a", "pool", json!({ "nominalQuota": 8, "borrowingLimit": 4 }), json!({})).await;
    world.queue("b", "pool", json!({ "nominalQuota": 12, "lendingLimit": 6 }), json!({})).await;
    world.start("layer1");
    world.pytorch("bert", "a", 8).await;
    world.settle().await;
    world.pytorch("llama", "a", 6).await;
    world.settle().await;
    let page: Value = serde_json::from_str(&world.page("/debug/state/team/llama").await).unwrap();
    assert_eq!(
        (&page["leader"], page["workloads"].as_array().map(Vec::len)),
        (&json!(true), Some(1)),
        "{page}"
    );
    let said = &page["workloads"][0];
    assert_eq!(
        (text(said, "state"), text(said, "reason"), &said["fits"]),
        ("Waiting", "WaitingForQuota", &json!(false))
    );
    let gpu =
        said["quota"].as_array().unwrap().iter().find(|one| one["resource"] == "nvidia.com/gpu").unwrap();
    let amounts = ["asked", "nominal", "used", "available", "borrowable", "potentiallyAvailable", "withheld"];
    assert_eq!(amounts.map(|key| gpu[key].as_str().unwrap()), ["6", "8", "8", "4", "4", "12", "6"], "{gpu}");
    let bert = world.workload_name("bert");
    assert_eq!(said["unblocks"][0]["leave"][0]["name"], bert, "{said}");
    let unblocks = said["unblocks"].as_array().unwrap();
    let raised = |kind: &str| unblocks.iter().find_map(|one| one[kind][0]["by"].as_str());
    assert_eq!(
        (raised("raiseBorrowingLimit"), raised("raiseNominalQuota")),
        (Some("2"), Some("2")),
        "{said}"
    );
    assert!(unblocks.iter().any(|one| one["fewerPods"][0]["count"] == 4), "{said}");
    // By its own name it is the same, and what does not wait has no outlook.
    let own = world.page(&format!("/debug/state/team/{}", world.workload_name("llama"))).await;
    assert_eq!(serde_json::from_str::<Value>(&own).unwrap(), page);
    let runs: Value = serde_json::from_str(&world.page("/debug/state/team/bert").await).unwrap();
    assert_eq!(
        (text(&runs["workloads"][0], "state"), &runs["workloads"][0]["unblocks"]),
        ("Admitted", &Value::Null)
    );
    assert!(world.page("/debug/state/team/nobody").await.contains("no Workload in namespace team"));
}

/// Behind a head of a StrictFIFO queue its own reason counts; a queue that is misspelt is told with those that there are.
#[tokio::test(start_paused = true)]
async fn a_close_look_names_the_head_and_the_queues_that_there_are() {
    let world = World::new(false).await;
    world.queue("a", "", json!({ "nominalQuota": 4 }), json!({})).await;
    let strictly = |queue: &mut Value| queue["spec"]["queueingStrategy"] = json!("StrictFIFO");
    world.update(GROUP, "clusterqueues", "a", false, strictly).await;
    world.start("layer1");
    world.pytorch("runs", "a", 2).await;
    world.settle().await;
    world.pytorch("head", "a", 4).await;
    world.settle().await;
    world.pytorch("small", "a", 1).await;
    world.pytorch("lost", "aa", 1).await;
    world.settle().await;
    let page: Value = serde_json::from_str(&world.page("/debug/state/team/small").await).unwrap();
    let small = &page["workloads"][0];
    assert_eq!((&small["fits"], &small["unblocks"]), (&json!(true), &json!([])), "{small}");
    let next = &small["next"];
    assert_eq!(
        (text(next, "name"), text(next, "reason")),
        (&*world.workload_name("head"), "WaitingForQuota")
    );
    assert!(text(next, "message").contains("2 more nvidia.com/gpu"), "{next}");
    let page: Value = serde_json::from_str(&world.page("/debug/state/team/lost").await).unwrap();
    let lost = &page["workloads"][0];
    assert_eq!((text(lost, "reason"), &lost["localQueues"]), ("Misconfigured", &json!(["a"])), "{lost}");
}

/// A job without a Workload waits, too.
#[tokio::test(start_paused = true)]
async fn who_asks_for_a_job_without_a_workload_is_told_why_it_has_none() {
    let world = World::running(8).await;
    let mut named = support::pytorch("named", "a", 1);
    named["metadata"]["labels"]["kueue.x-k8s.io/prebuilt-workload-name"] = json!("made-elsewhere");
    let mut without = support::pytorch("without", "a", 1);
    without["metadata"]["labels"] = json!({});
    let mut wrong = support::pytorch("wrong", "a", 1);
    wrong["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["priorityClassName"] = json!("none");
    for job in [named, without, wrong] {
        world.create("kubeflow.org", "pytorchjobs", job).await;
    }
    world.settle().await;
    for (name, words, told) in [
        ("named", "Workload made-elsewhere", None),
        ("without", "names no queue", None),
        ("wrong", "", Some("ErrWorkloadCompose")),
    ] {
        let said: Value =
            serde_json::from_str(&world.page(&format!("/debug/state/team/{name}")).await).unwrap();
        let job = &said["jobs"][0];
        assert!(text(job, "message").contains(words), "{said}");
        assert_eq!(job["told"][0]["reason"].as_str(), told, "{said}");
        assert_eq!((text(job, "kind"), said["jobs"].as_array().unwrap().len()), ("PyTorchJob", 1), "{said}");
    }
}
