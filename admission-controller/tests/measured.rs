//! The metrics of one workload's way: how long it waited for each step, and how often it was taken back.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::path::Path;

use admission_controller::{Config, Configuration};
use serde_json::{Value, json};
use support::{World, says};

const GROUP: &str = "kueue.x-k8s.io";

async fn passes(world: &World, job: &str) {
    let name = world.workload_name(job);
    let now = world.stamp();
    let ready = json!([{ "name": "budget", "state": "Ready", "message": "", "lastTransitionTime": now }]);
    world
        .update(GROUP, "workloads", &name, true, |one| one["status"]["admissionChecks"] = ready.clone())
        .await;
    world.settle().await;
}

/// It waits 100 s for quota, 60 s for its check and 30 s for its pods, and is taken back twice for the same reason.
#[tokio::test(start_paused = true)]
async fn each_step_is_measured_and_each_return_counted() {
    let world = World::new(false).await;
    world.queue("a", "", json!({ "nominalQuota": 0 }), json!({})).await;
    world.checked("a").await;
    let text = "metrics: { enableClusterQueueResources: true, localQueueMetrics: { enable: true } }\nwaitForPodsReady: { timeout: 5m }\n";
    let file = Configuration::parse(Path::new("config.yaml"), text).unwrap();
    world.start_with("layer1", Config { file, ..Config::default() });
    world.pytorch("llama", "a", 2).await;
    world.pass(100).await;
    let gives = |quota: i64| {
        move |queue: &mut Value| {
            queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = json!(quota);
        }
    };
    world.update(GROUP, "clusterqueues", "a", false, gives(4)).await;
    world.settle().await;
    assert!(world.is("llama", "QuotaReserved"));
    world.pass(60).await;
    passes(&world, "llama").await;
    assert!(world.is("llama", "Admitted"));
    world.pass(30).await;
    world
        .update("kubeflow.org", "pytorchjobs", "llama", true, |job| {
            job["status"]["conditions"] = json!([{ "type": "Running", "status": "True" }]);
        })
        .await;
    world.settle().await;
    let queue = r#"cluster_queue="a",priority_class="",replica_role="leader"}"#;
    let local = r#"name="a",namespace="team",priority_class="",replica_role="leader"}"#;
    // `settle` takes its 30 s, too.
    for (step, seconds) in [
        ("quota_reserved_wait_time_seconds", 100),
        ("admission_checks_wait_time_seconds", 90),
        ("admission_wait_time_seconds", 190),
        ("admitted_until_ready_wait_time_seconds", 60),
        ("ready_wait_time_seconds", 250),
    ] {
        for (prefix, labels) in [("kueue_", queue), ("kueue_local_queue_", local)] {
            let sum = format!("{prefix}{step}_sum{{{labels} {seconds}.0");
            let count = format!("{prefix}{step}_count{{{labels} 1");
            says(&world.metrics().await, &[&sum, &count]);
        }
    }
    says(
        &world.metrics().await,
        &[
            r#"kueue_admission_attempts_total{result="inadmissible",replica_role="leader"} 1"#,
            r#"kueue_admission_attempts_total{result="success",replica_role="leader"} 1"#,
            r#"kueue_admission_attempt_duration_seconds_count{result="inadmissible",replica_role="leader"} 1"#,
            r#"kueue_admission_attempt_duration_seconds_count{result="success",replica_role="leader"} 1"#,
            r#"kueue_local_queue_quota_reserved_workloads_total{name="a",namespace="team",priority_class="",replica_role="leader"} 1"#,
            r#"kueue_local_queue_resource_reservation{name="a",namespace="team",flavor="a100",resource="nvidia.com/gpu",replica_role="leader"} 2.0"#,
            r#"kueue_cluster_queue_resource_reservation{cluster_queue="a",cohort="",flavor="a100",resource="nvidia.com/gpu",replica_role="leader"} 2.0"#,
        ],
    );

    for _ in 0..2 {
        for policy in ["HoldAndDrain", "None"] {
            let stop = |queue: &mut Value| queue["spec"]["stopPolicy"] = json!(policy);
            world.update(GROUP, "clusterqueues", "a", false, stop).await;
            world.settle().await;
        }
        assert!(world.is("llama", "QuotaReserved"), "it is back");
        passes(&world, "llama").await;
    }
    let why = r#"reason="ClusterQueueStopped",underlying_cause="",priority_class="",replica_role="leader"}"#;
    says(
        &world.metrics().await,
        &[
            &format!(r#"kueue_evicted_workloads_total{{cluster_queue="a",{why} 2"#),
            &format!(r#"kueue_evicted_workloads_once_total{{cluster_queue="a",{why} 1"#),
            &format!(r#"kueue_local_queue_evicted_workloads_total{{name="a",namespace="team",{why} 2"#),
            &format!("kueue_quota_reserved_workloads_total{{{queue} 3"),
        ],
    );
}
