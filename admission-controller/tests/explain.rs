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
    let world = World::new(false).await;
    world.queue("a", "", json!({ "nominalQuota": 2 }), json!({})).await;
    world.start("layer1");
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
    assert!(unread.iter().all(|count| *count == "0"), "{unread:?}");
}
