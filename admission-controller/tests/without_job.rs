//! Workloads that somebody made, with no job behind them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::sync::Arc;

use cluster_sim::{Commit, GroupResource};
use serde_json::json;
use support::World;

fn workloads() -> GroupResource {
    GroupResource::new("kueue.x-k8s.io", "workloads")
}

/// Nobody runs pods of it, so whoever needs its quota has it a write sooner.
#[tokio::test(start_paused = true)]
async fn a_workload_without_a_job_gives_its_quota_back_with_its_eviction() {
    let world = World::new(false).await;
    let preemption = json!({ "withinClusterQueue": "LowerPriority" });
    world.queue("a", "", json!({ "nominalQuota": 4 }), preemption).await;
    world.start("layer1");
    let by_hand = |name: &str, priority: i64| {
        json!({
            "metadata": { "name": name, "namespace": "team" },
            "spec": { "queueName": "a", "active": true, "priority": priority, "podSets": [{ "name": "main", "count": 1, "template": {
                "spec": { "restartPolicy": "Never", "containers": [{
                    "name": "main", "image": "x", "resources": { "requests": { "nvidia.com/gpu": "4" } },
                }]},
            }}]},
        })
    };
    let status = |name: &str| {
        let workload = world.cluster.store("user").get(&workloads(), "team", name).unwrap();
        workload.value()["status"].clone()
    };
    let says = |name: &str| -> Vec<String> {
        let status = status(name);
        let conditions = status["conditions"].as_array().unwrap().iter();
        let mut said: Vec<String> = conditions
            .map(|one| format!("{}={} {}", one["type"], one["status"], one["reason"]).replace('"', ""))
            .collect();
        said.sort();
        said
    };
    world.create("kueue.x-k8s.io", "workloads", by_hand("low", 1)).await;
    world.settle().await;
    assert_eq!(says("low"), ["Admitted=True Admitted", "QuotaReserved=True QuotaReserved"]);
    let before = world.cluster.log().len();
    world.create("kueue.x-k8s.io", "workloads", by_hand("high", 2)).await;
    world.settle().await;
    assert!(says("high").contains(&"Admitted=True Admitted".to_owned()), "{:?}", says("high"));
    let log = world.cluster.log();
    let evicts = |commit: &&Arc<Commit>| {
        let after = commit.new.as_ref().map(|one| one.value()["status"].clone()).unwrap_or_default();
        &*commit.resource.resource == "workloads" && after.to_string().contains("Evicted")
    };
    let first = log[before..].iter().find(evicts).unwrap().new.as_ref().unwrap().value()["status"].clone();
    assert!(first["admission"].is_null(), "{first}");
    let said = says("low");
    for one in [
        "Evicted=True Preempted",
        "Preempted=True InClusterQueue",
        "Requeued=True Preempted",
        "Admitted=False NoReservation",
    ] {
        assert!(said.contains(&one.to_owned()), "{one} is not in {said:?}");
    }
    assert_eq!(status("low")["schedulingStats"]["evictions"][0]["count"], 1);
    assert!(world.told().iter().any(|one| one.1 == "EvictedDueToPreempted"), "{:?}", world.told());
    let text = world.metrics().await;
    for line in [
        r#"kueue_evicted_workloads_total{cluster_queue="a",reason="Preempted",underlying_cause="",priority_class="",replica_role="leader"} 1"#,
        r#"kueue_workload_eviction_latency_seconds_count{cluster_queue="a",reason="Preempted",replica_role="leader"} 1"#,
        r#"kueue_preempted_workloads_total{preempting_cluster_queue="a",reason="InClusterQueue",replica_role="leader"} 1"#,
    ] {
        assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
    }
}
