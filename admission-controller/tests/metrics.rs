//! The metrics that people know from Kueue.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use axum::body::Body;
use cluster_sim::GroupResource;
use serde_json::json;
use support::World;
use tower::ServiceExt;

async fn metrics(world: &World) -> String {
    let service = world.services.resolve("trireme-system", crds::names::trireme::ADMISSION_SERVICE).remove(0);
    let request = http::Request::get("/metrics").body(Body::empty()).unwrap();
    let response = service.oneshot(request).await.unwrap();
    let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
    String::from_utf8(body.to_vec()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn queues_and_workloads_are_counted_by_kueues_names() {
    let world = World::new(false).await;
    let any = json!({ "reclaimWithinCohort": "Any" });
    world.queue("a", "pool", json!({ "nominalQuota": 0 }), any.clone()).await;
    world.queue("b", "pool", json!({ "nominalQuota": 8 }), any).await;
    world.start("layer1");
    world.pytorch("borrower", "a", 8).await;
    world.settle().await;
    world.pytorch("owner", "b", 8).await;
    world.settle().await;
    let text = metrics(&world).await;
    for line in [
        r#"kueue_pending_workloads{cluster_queue="a",status="inadmissible",replica_role="leader"} 1"#,
        r#"kueue_pending_workloads{cluster_queue="b",status="active",replica_role="leader"} 0"#,
        r#"kueue_cluster_queue_status{cluster_queue="b",status="active",replica_role="leader"} 1"#,
        r#"kueue_admitted_active_workloads{cluster_queue="b",replica_role="leader"} 1"#,
        r#"kueue_reserving_active_workloads{cluster_queue="a",replica_role="leader"} 0"#,
        r#"trireme_leader{lease="admission-controller"} 1"#,
        "trireme_events_dropped_total 0",
        r#"trireme_watch_restarts_total{kind="ClusterQueue"} 1"#,
        "trireme_writes_in_flight 0",
        r#"kueue_admitted_workloads_total{cluster_queue="a",priority_class="",replica_role="leader"} 1"#,
        r#"kueue_quota_reserved_workloads_total{cluster_queue="b",priority_class="",replica_role="leader"} 1"#,
        r#"kueue_evicted_workloads_total{cluster_queue="a",reason="Preempted",underlying_cause="",priority_class="",replica_role="leader"} 1"#,
        r#"kueue_workload_eviction_latency_seconds_count{cluster_queue="a",reason="Preempted",replica_role="leader"} 1"#,
        r#"kueue_preempted_workloads_total{preempting_cluster_queue="b",reason="InCohortReclamation",replica_role="leader"} 1"#,
        r#"kueue_admission_wait_time_seconds_count{cluster_queue="b",priority_class="",replica_role="leader"} 1"#,
    ] {
        assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
    }

    let id = GroupResource::new("kueue.x-k8s.io", "clusterqueues");
    world.cluster.store("user").delete(&id, "", "a", Default::default()).await.unwrap();
    world.settle().await;
    let text = metrics(&world).await;
    assert!(!text.contains(r#"cluster_queue="a""#), "its series went with it:\n{text}");
}
