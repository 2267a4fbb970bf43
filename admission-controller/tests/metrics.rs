//! The metrics that people know from Kueue.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use admission_controller::config::{
    AdmissionFairSharingConfig, Config, Configuration, FairSharingConfig, LocalQueueMetrics, Metrics,
};
use admission_controller::metrics::{ALL, Kind, Metric};
use cluster_sim::GroupResource;
use cluster_sim::faults::{Aim, WatchFault};
use model::quantity::Quantity;
use serde_json::json;
use support::{World, says, without_buckets};

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
    let text = world.metrics().await;
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
    let left = async || -> Vec<String> {
        let text = world.metrics().await;
        text.lines().filter(|line| line.contains(r#"{cluster_queue="a""#)).map(str::to_owned).collect()
    };
    // Its series went with it, but for those who wait for it all the same.
    let unadmitted = left().await;
    assert!(
        matches!(&unadmitted[..], [one] if one.starts_with("kueue_unadmitted_workloads{")),
        "{unadmitted:?}"
    );
    let id = GroupResource::new("kueue.x-k8s.io", "localqueues");
    world.cluster.store("user").delete(&id, "team", "a", Default::default()).await.unwrap();
    world.settle().await;
    assert_eq!(left().await, Vec::<String>::new());
}

/// As in Kueue, whose counters begin anew with each of them.
#[tokio::test(start_paused = true)]
async fn a_queue_made_again_at_once_is_counted_from_the_beginning() {
    let world = World::new(false).await;
    let quota = || json!({ "nominalQuota": 2 });
    world.queue("a", "pool", quota(), json!({})).await;
    let pool = || json!({ "metadata": { "name": "pool" }, "spec": {} });
    world.create("kueue.x-k8s.io", "cohorts", pool()).await;
    world.start("layer1");
    world.pytorch("first", "a", 2).await;
    world.settle().await;
    let counted = async || -> Vec<String> {
        let text = world.metrics().await;
        let of_these = ["kueue_admitted_workloads_total", "kueue_cohort_subtree_admitted_workloads_total"];
        let lines = text.lines().filter(|line| of_these.iter().any(|name| line.starts_with(name)));
        lines.filter_map(|line| line.split_whitespace().last()).map(str::to_owned).collect()
    };
    assert_eq!(counted().await, ["1", "1"]);
    let job = GroupResource::new("kubeflow.org", "pytorchjobs");
    world.cluster.store("user").delete(&job, "team", "first", Default::default()).await.unwrap();
    world.settle().await;
    for (resource, namespace, name) in
        [("localqueues", "team", "a"), ("clusterqueues", "", "a"), ("cohorts", "", "pool")]
    {
        let id = GroupResource::new("kueue.x-k8s.io", resource);
        world.cluster.store("user").delete(&id, namespace, name, Default::default()).await.unwrap();
    }
    while world.get("kueue.x-k8s.io", "clusterqueues", "a").is_some() {
        world.sleep(Duration::from_millis(10)).await;
    }
    world.queue("a", "pool", quota(), json!({})).await;
    world.create("kueue.x-k8s.io", "cohorts", pool()).await;
    world.settle().await;
    assert_eq!(counted().await, Vec::<String>::new());
    world.pytorch("second", "a", 2).await;
    world.settle().await;
    assert_eq!(counted().await, ["1", "1"]);
}

/// The list that follows tells of another cohort with the same name.
#[tokio::test(start_paused = true)]
async fn a_cohort_made_again_while_its_watch_is_away_is_counted_from_the_beginning() {
    let world = World::new(false).await;
    world.queue("a", "pool", json!({ "nominalQuota": 4 }), json!({})).await;
    let pool = || json!({ "metadata": { "name": "pool" }, "spec": {} });
    world.create("kueue.x-k8s.io", "cohorts", pool()).await;
    world.start("layer1");
    world.pytorch("first", "a", 2).await;
    world.settle().await;
    let count = "kueue_cohort_subtree_admitted_workloads_total";
    let active = r#"kueue_cohort_subtree_admitted_active_workloads{cohort="pool",replica_role="leader"} 1"#;
    let text = world.metrics().await;
    assert!(text.contains(&format!("{count}{{")) && text.contains(active), "{text}");
    let id = GroupResource::new("kueue.x-k8s.io", "cohorts");
    let aim = Aim::default().on(id.clone());
    world.cluster.faults().add_watch(aim, 1_000_000, 1, WatchFault::Expire);
    world.cluster.compact();
    world.cluster.store("user").delete(&id, "", "pool", Default::default()).await.unwrap();
    world.create("kueue.x-k8s.io", "cohorts", pool()).await;
    world.settle().await;
    let text = world.metrics().await;
    assert!(!text.contains(&format!("{count}{{")) && text.contains(active), "{text}");
}

/// As in Kueue: it is as if it was not there, but for what it uses and its status.
#[tokio::test(start_paused = true)]
async fn nobody_is_counted_in_a_local_queue_that_is_stopped() {
    let world = World::running(2).await;
    world.pytorch("runs", "a", 2).await;
    world.settle().await;
    world.pytorch("waits", "a", 2).await;
    world.settle().await;
    let (id, part) = (GroupResource::new("kueue.x-k8s.io", "localqueues"), cluster_sim::Part::Main);
    for (policy, waits) in [("Hold", false), ("None", true)] {
        let stop = |queue: &mut serde_json::Value| {
            queue["spec"]["stopPolicy"] = json!(policy);
            Ok(())
        };
        world.cluster.store("user").update(&id, "team", "a", part, stop).await.unwrap();
        world.settle().await;
        let text = world.metrics().await;
        let status = if waits { "True" } else { "False" };
        says(
            &text,
            &[
                r#"kueue_local_queue_reserving_active_workloads{name="a",namespace="team",replica_role="leader"} 1"#,
                &format!(
                    r#"kueue_local_queue_status{{name="a",namespace="team",active="{status}",replica_role="leader"}} 1"#
                ),
            ],
        );
        for counted in [
            r#"kueue_local_queue_pending_workloads{name="a""#,
            r#"kueue_local_queue_finished_workloads{name="a""#,
            r#"kueue_local_queue_unadmitted_workloads{name="a""#,
            r#"kueue_unadmitted_workloads{cluster_queue="a""#,
        ] {
            assert_eq!(text.contains(counted), waits, "{policy}: {counted}\n{}", without_buckets(&text));
        }
    }
}

/// As in Kueue, whoever writes them.
#[tokio::test(start_paused = true)]
async fn ends_and_returns_of_quota_that_others_write_are_counted() {
    let world = World::running(4).await;
    for job in ["ends", "leaves", "stops"] {
        world.pytorch(job, "a", 1).await;
    }
    world.settle().await;
    let condition = |kind: &str, status: &str| {
        let (reason, since) = ("ByHand", world.stamp());
        json!({ "type": kind, "status": status, "reason": reason, "message": "m", "lastTransitionTime": since })
    };
    let over = condition("Finished", "True");
    let lost =
        [condition("Evicted", "True"), condition("QuotaReserved", "False"), condition("Admitted", "False")];
    let (ends, leaves) = (world.workload_name("ends"), world.workload_name("leaves"));
    world
        .update("kueue.x-k8s.io", "workloads", &ends, true, |workload| {
            workload["status"]["conditions"].as_array_mut().unwrap().push(over.clone());
        })
        .await;
    // One that is deactivated does not come back among those that wait, and is not measured.
    let stops = world.workload_name("stops");
    let deactivate = |workload: &mut serde_json::Value| workload["spec"]["active"] = json!(false);
    world.update("kueue.x-k8s.io", "workloads", &stops, false, deactivate).await;
    for name in [leaves, stops] {
        world
            .update("kueue.x-k8s.io", "workloads", &name, true, |workload| {
                let conditions = workload["status"]["conditions"].as_array_mut().unwrap();
                conditions.retain(|one| lost.iter().all(|other| one["type"] != other["type"]));
                conditions.extend(lost.iter().cloned());
                workload["status"].as_object_mut().unwrap().remove("admission");
            })
            .await;
    }
    world.settle().await;
    says(
        &world.metrics().await,
        &[
            r#"kueue_finished_workloads_total{cluster_queue="a",priority_class="",replica_role="leader"} 1"#,
            r#"kueue_local_queue_finished_workloads_total{name="a",namespace="team",priority_class="",replica_role="leader"} 1"#,
            r#"kueue_workload_eviction_latency_seconds_count{cluster_queue="a",reason="ByHand",replica_role="leader"} 1"#,
        ],
    );
}

/// What objects say of themselves is on their series, and follows them.
#[tokio::test(start_paused = true)]
async fn series_show_what_the_administrator_wants_to_see_of_their_objects() {
    let text = "metrics: { customLabels: [{ name: team }, { name: tier, sourceAnnotationKey: example.com/tier, \
                sourceKind: LocalQueue, trackedValues: [gold, ''] }] }\nfeatureGates: { CustomMetricLabels: true }";
    let file = Configuration::parse(std::path::Path::new("config.yaml"), text).unwrap();
    let world = World::new(false).await;
    world.queue("a", "", json!({ "nominalQuota": 8 }), json!({})).await;
    world.start_with("layer1", Config { file, ..Config::default() });
    world.pytorch("llama", "a", 8).await;
    world.settle().await;
    let shown = async |line: &str| {
        let text = world.metrics().await;
        assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
    };
    shown(r#"kueue_admitted_active_workloads{cluster_queue="a",replica_role="leader",custom_team=""} 1"#)
        .await;
    let labelled =
        |queue: &mut serde_json::Value| queue["metadata"]["labels"] = json!({ "team": "research" });
    world.update("kueue.x-k8s.io", "clusterqueues", "a", false, labelled).await;
    for (tier, told) in [("gold", "gold"), ("bronze", "kueue.x-k8s.io/_UNTRACKED_VALUE_")] {
        let id = GroupResource::new("kueue.x-k8s.io", "localqueues");
        let annotate = |queue: &mut serde_json::Value| {
            queue["metadata"]["annotations"] = json!({ "example.com/tier": tier });
            Ok(())
        };
        let store = world.cluster.store("user");
        store.update(&id, "team", "a", cluster_sim::Part::Main, annotate).await.unwrap();
        world.settle().await;
        let line = format!(
            r#"kueue_local_queue_admitted_active_workloads{{name="a",namespace="team",replica_role="leader",custom_tier="{told}"}} 1"#
        );
        shown(&line).await;
    }
    shown(r#"kueue_admitted_workloads_total{cluster_queue="a",priority_class="",replica_role="leader",custom_team="research"} 1"#)
        .await;
}

/// Who borrows how much is in the status of ClusterQueues and Cohorts and in metrics, and goes with the Cohort.
#[tokio::test(start_paused = true)]
async fn shares_are_told_where_sharing_is_fair() {
    let world = World::new(false).await;
    let cohort = json!({ "metadata": { "name": "team" }, "spec": { "parentName": "pool" } });
    world.create("kueue.x-k8s.io", "cohorts", cohort).await;
    world.queue("a", "team", json!({ "nominalQuota": 0 }), json!({})).await;
    world.queue("b", "pool", json!({ "nominalQuota": 8 }), json!({})).await;
    let file = Configuration {
        fair_sharing: Some(FairSharingConfig::default()),
        metrics: Metrics { enable_cluster_queue_resources: true, ..Metrics::default() },
        ..Configuration::default()
    };
    world.start_with("layer1", Config { file, ..Config::default() });
    world.pytorch("borrower", "a", 2).await;
    world.settle().await;
    let share = |resource: &str, name: &str| {
        let object = world.get("kueue.x-k8s.io", resource, name).unwrap();
        object["status"]["fairSharing"]["weightedShare"].as_i64()
    };
    let borrowed = share("clusterqueues", "a").unwrap();
    assert!(borrowed > 0, "{borrowed}");
    assert_eq!(share("clusterqueues", "b"), Some(0));
    assert_eq!(share("cohorts", "team"), Some(borrowed));
    let text = world.metrics().await;
    for line in [
        format!(
            r#"kueue_cluster_queue_weighted_share{{cluster_queue="a",cohort="team",replica_role="leader"}} {borrowed}.0"#
        ),
        format!(r#"kueue_cohort_weighted_share{{cohort="team",replica_role="leader"}} {borrowed}.0"#),
    ] {
        assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
    }
    for (resource, name) in [("cohorts", "team"), ("clusterqueues", "a")] {
        let worth = |object: &mut serde_json::Value| object["spec"]["fairSharing"] = json!({ "weight": "0" });
        world.update("kueue.x-k8s.io", resource, name, false, worth).await;
    }
    world.settle().await;
    says(
        &world.metrics().await,
        &[
            r#"kueue_cohort_weighted_share{cohort="team",replica_role="leader"} inf"#,
            r#"kueue_cluster_queue_weighted_share{cluster_queue="a",cohort="team",replica_role="leader"} NaN"#,
        ],
    );
    let id = GroupResource::new("kueue.x-k8s.io", "cohorts");
    world.cluster.store("user").delete(&id, "", "team", Default::default()).await.unwrap();
    world.settle().await;
    let text = world.metrics().await;
    assert!(!text.contains(r#"kueue_cohort_weighted_share{cohort="team""#), "{text}");
}

/// As in Kueue, those of ClusterQueues come with their quotas, those of cohorts always.
#[tokio::test(start_paused = true)]
async fn shares_of_cluster_queues_are_no_metric_where_their_quotas_are_none() {
    let world = World::new(false).await;
    world.create("kueue.x-k8s.io", "cohorts", json!({ "metadata": { "name": "pool" }, "spec": {} })).await;
    world.queue("a", "pool", json!({ "nominalQuota": 8 }), json!({})).await;
    let file = Configuration { fair_sharing: Some(FairSharingConfig::default()), ..Configuration::default() };
    world.start_with("layer1", Config { file, ..Config::default() });
    world.settle().await;
    let text = world.metrics().await;
    says(&text, &[r#"kueue_cohort_weighted_share{cohort="pool",replica_role="leader"} 0.0"#]);
    assert!(!text.contains("kueue_cluster_queue_weighted_share{"), "{}", without_buckets(&text));
}

/// What a LocalQueue has used is in its status and in a metric, decays though nothing happens, and goes with the LocalQueue.
#[tokio::test(start_paused = true)]
async fn what_local_queues_have_used_is_told_where_they_take_turns() {
    let world = World::new(false).await;
    world.queue("a", "pool", json!({ "nominalQuota": 8 }), json!({})).await;
    let turns = json!({ "admissionMode": "UsageBasedAdmissionFairSharing" });
    world
        .update("kueue.x-k8s.io", "clusterqueues", "a", false, |queue| {
            queue["spec"]["admissionScope"] = turns.clone();
        })
        .await;
    let turns: AdmissionFairSharingConfig = serde_json::from_value(json!({
        "usageHalfLifeTime": "1m", "usageSamplingInterval": "10s", "resourceWeights": { "cpu": 0, "memory": 0 },
    }))
    .unwrap();
    let file = Configuration { admission_fair_sharing: Some(turns), ..Configuration::default() };
    world.start_with("layer1", Config { file, ..Config::default() });
    world.pytorch("one", "a", 4).await;
    let mut before = 0.0;
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_secs(20)).await;
        let queue = world.get("kueue.x-k8s.io", "localqueues", "a").unwrap();
        let consumed = &queue["status"]["fairSharing"]["admissionFairSharingStatus"]["consumedResources"];
        let gpus: Quantity = serde_json::from_value(consumed["nvidia.com/gpu"].clone()).unwrap();
        let gpus = gpus.nanos() as f64 / 1e9;
        assert!(gpus > before, "{gpus} after {before}: {queue}");
        before = gpus;
        let name =
            r#"kueue_local_queue_admission_fair_sharing_usage{name="a",namespace="team",cluster_queue="a""#;
        let text = world.metrics().await;
        let told: f64 = text
            .lines()
            .find(|line| line.starts_with(name))
            .and_then(|line| line.rsplit(' ').next())
            .unwrap_or_else(|| panic!("{name} is not in\n{text}"))
            .parse()
            .unwrap();
        assert!((told - gpus).abs() < 0.01, "{told} told, {gpus} written");
    }
    let id = GroupResource::new("kueue.x-k8s.io", "localqueues");
    world.cluster.store("user").delete(&id, "team", "a", Default::default()).await.unwrap();
    world.settle().await;
    let text = world.metrics().await;
    assert!(!text.contains("kueue_local_queue_admission_fair_sharing_usage{"), "{text}");
}

/// What Kueue's dashboards draw of quotas; a pair that is no longer there loses its series, and a queue that goes takes all of its.
#[tokio::test(start_paused = true)]
async fn quotas_and_their_use_are_told_where_that_is_wanted() {
    let world = World::new(false).await;
    let file = Configuration {
        metrics: Metrics { enable_cluster_queue_resources: true, ..Default::default() },
        ..Configuration::default()
    };
    world.start_with("layer1", Config { file, ..Config::default() });
    world.queue("a", "pool", json!({ "nominalQuota": 4, "lendingLimit": 1 }), json!({})).await;
    world
        .update("kueue.x-k8s.io", "clusterqueues", "a", false, |queue| {
            queue["spec"]["resourceGroups"][0]["coveredResources"] = json!(["nvidia.com/gpu", "cpu"]);
            let resources = &mut queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"];
            resources.as_array_mut().unwrap().push(json!({ "name": "cpu", "nominalQuota": "2500m" }));
        })
        .await;
    world.pytorch("job", "a", 3).await;
    world.settle().await;
    let line = |name: &str, resource: &str, value: &str| {
        format!(
            r#"kueue_cluster_queue_{name}{{cluster_queue="a",cohort="pool",flavor="a100",resource="{resource}",replica_role="leader"}} {value}"#
        )
    };
    let text = world.metrics().await;
    for line in [
        line("nominal_quota", "nvidia.com/gpu", "4.0"),
        line("nominal_quota", "cpu", "2.5"),
        line("borrowing_limit", "nvidia.com/gpu", "inf"),
        line("lending_limit", "nvidia.com/gpu", "1.0"),
        line("resource_usage", "nvidia.com/gpu", "3.0"),
        line("resource_reservation", "nvidia.com/gpu", "3.0"),
        line("resource_usage", "cpu", "0.0"),
    ] {
        assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
    }
    world
        .update("kueue.x-k8s.io", "clusterqueues", "a", false, |queue| {
            queue["spec"]["resourceGroups"][0]["coveredResources"] = json!(["nvidia.com/gpu"]);
            queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"].as_array_mut().unwrap().truncate(1);
        })
        .await;
    world.settle().await;
    assert!(!world.metrics().await.contains(r#"resource="cpu""#));
    let jobs = GroupResource::new("kubeflow.org", "pytorchjobs");
    world.cluster.store("user").delete(&jobs, "team", "job", Default::default()).await.unwrap();
    let queues = GroupResource::new("kueue.x-k8s.io", "clusterqueues");
    world.cluster.store("user").delete(&queues, "", "a", Default::default()).await.unwrap();
    world.settle().await;
    assert!(!world.metrics().await.contains(r#"{cluster_queue="a""#));
}

/// What is told of LocalQueues that the configuration selects, and of the cohorts above.
#[tokio::test(start_paused = true)]
async fn local_queues_and_cohorts_are_told_of() {
    let world = World::new(false).await;
    let cohort = json!({ "metadata": { "name": "team" }, "spec": { "parentName": "all" } });
    world.create("kueue.x-k8s.io", "cohorts", cohort).await;
    world.queue("a", "team", json!({ "nominalQuota": 2 }), json!({})).await;
    world.queue("b", "all", json!({ "nominalQuota": 0 }), json!({})).await;
    let label = |queue: &mut serde_json::Value| queue["metadata"]["labels"] = json!({ "watched": "yes" });
    let id = GroupResource::new("kueue.x-k8s.io", "localqueues");
    let store = world.cluster.store("user");
    let main = cluster_sim::Part::Main;
    store
        .update(&id, "team", "a", main, |queue| {
            label(queue);
            Ok(())
        })
        .await
        .unwrap();
    let selector = serde_json::from_value(json!({ "matchLabels": { "watched": "yes" } })).unwrap();
    let file = Configuration {
        metrics: Metrics {
            enable_cluster_queue_resources: true,
            local_queue_metrics: Some(LocalQueueMetrics {
                enable: true,
                local_queue_selector: Some(selector),
            }),
            ..Metrics::default()
        },
        ..Configuration::default()
    };
    world.start_with("layer1", Config { file, ..Config::default() });
    world.pytorch("fits", "a", 2).await;
    world.settle().await;
    world.pytorch("waits", "a", 3).await;
    world.pytorch("elsewhere", "b", 4).await;
    world.settle().await;
    let text = world.metrics().await;
    says(
        &text,
        &[
            r#"kueue_local_queue_pending_workloads{name="a",namespace="team",status="inadmissible",replica_role="leader"} 1"#,
            r#"kueue_local_queue_pending_workloads{name="a",namespace="team",status="active",replica_role="leader"} 0"#,
            r#"kueue_local_queue_status{name="a",namespace="team",active="True",replica_role="leader"} 1"#,
            r#"kueue_local_queue_status{name="a",namespace="team",active="False",replica_role="leader"} 0"#,
            r#"kueue_local_queue_admitted_active_workloads{name="a",namespace="team",replica_role="leader"} 1"#,
            r#"kueue_local_queue_admitted_workloads_total{name="a",namespace="team",priority_class="",replica_role="leader"} 1"#,
            r#"kueue_local_queue_quota_reserved_wait_time_seconds_count{name="a",namespace="team",priority_class="",replica_role="leader"} 1"#,
            r#"kueue_local_queue_resource_usage{name="a",namespace="team",flavor="a100",resource="nvidia.com/gpu",replica_role="leader"} 2.0"#,
            r#"kueue_local_queue_unadmitted_workloads{name="a",namespace="team",cluster_queue="a",reason="NoReservation",underlying_cause="ExceedsMaxQuota",replica_role="leader"} 1"#,
            r#"kueue_unadmitted_workloads{cluster_queue="a",reason="NoReservation",underlying_cause="ExceedsMaxQuota",replica_role="leader"} 1"#,
            r#"kueue_finished_workloads{cluster_queue="a",replica_role="leader"} 0"#,
            r#"kueue_cluster_queue_resource_pending{cluster_queue="b",resource="nvidia.com/gpu",replica_role="leader"} 4.0"#,
            r#"kueue_pending_scheduling_hashes{cluster_queue="b",status="inadmissible",replica_role="leader"} 1"#,
            r#"kueue_cluster_queue_info{cluster_queue="a",parent_cohort="team",root_cohort="all",replica_role="leader"} 1"#,
            r#"kueue_cohort_info{cohort="team",parent_cohort="all",root_cohort="all",replica_role="leader"} 1"#,
            r#"kueue_cohort_info{cohort="all",parent_cohort="",root_cohort="all",replica_role="leader"} 1"#,
            r#"kueue_cohort_subtree_quota{cohort="all",flavor="a100",resource="nvidia.com/gpu",replica_role="leader"} 2.0"#,
            r#"kueue_cohort_subtree_resource_reservations{cohort="all",flavor="a100",resource="nvidia.com/gpu",replica_role="leader"} 2.0"#,
            r#"kueue_cohort_subtree_admitted_active_workloads{cohort="all",replica_role="leader"} 1"#,
            r#"kueue_cohort_subtree_admitted_workloads_total{cohort="all",priority_class="",replica_role="leader"} 1"#,
            r#"kueue_cohort_subtree_admitted_workloads_total{cohort="team",priority_class="",replica_role="leader"} 1"#,
            r#"kueue_workload_creation_latency_seconds_count{job_kind="PyTorchJob",replica_role="leader"} 3"#,
            r#"kueue_admission_attempts_total{result="success",replica_role="leader"} 1"#,
        ],
    );
    assert!(!text.contains(r#"{name="b""#), "it is not selected:\n{}", without_buckets(&text));
    for (queue, label, shown) in [("b", "yes", true), ("b", "no", false)] {
        let change = |queue: &mut serde_json::Value| {
            queue["metadata"]["labels"] = json!({ "watched": label });
            Ok(())
        };
        store.update(&id, "team", queue, main, change).await.unwrap();
        world.settle().await;
        let is_shown = world.metrics().await.contains(&format!("kueue_local_queue_status{{name=\"{queue}\""));
        assert_eq!(is_shown, shown, "{queue} {label}");
    }

    let jobs = GroupResource::new("kubeflow.org", "pytorchjobs");
    let part = cluster_sim::Part::Status;
    let done = json!([{ "type": "Succeeded", "status": "True" }]);
    let finish = |job: &mut serde_json::Value| {
        job["status"]["conditions"] = done.clone();
        Ok(())
    };
    store.update(&jobs, "team", "fits", part, finish).await.unwrap();
    store
        .delete(&GroupResource::new("kueue.x-k8s.io", "clusterqueues"), "", "b", Default::default())
        .await
        .unwrap();
    world.settle().await;
    let text = world.metrics().await;
    says(
        &text,
        &[
            r#"kueue_finished_workloads{cluster_queue="a",replica_role="leader"} 1"#,
            r#"kueue_finished_workloads_total{cluster_queue="a",priority_class="",replica_role="leader"} 1"#,
            r#"kueue_local_queue_finished_workloads{name="a",namespace="team",replica_role="leader"} 1"#,
            r#"kueue_local_queue_finished_workloads_total{name="a",namespace="team",priority_class="",replica_role="leader"} 1"#,
            r#"kueue_local_queue_execution_time_seconds_count{name="a",namespace="team",priority_class="",replica_role="leader"} 1"#,
            r#"kueue_cohort_subtree_admitted_active_workloads{cohort="all",replica_role="leader"} 0"#,
        ],
    );
    for queue in ["a", "b"] {
        store.delete(&id, "team", queue, Default::default()).await.unwrap();
    }
    store
        .delete(&GroupResource::new("kueue.x-k8s.io", "clusterqueues"), "", "a", Default::default())
        .await
        .unwrap();
    world.settle().await;
    // Cohorts without a ClusterQueue below them, one of which is only named.
    let text = world.metrics().await;
    let info = |cohort: &str, parent: &str, root: &str| {
        format!(
            r#"kueue_cohort_info{{cohort="{cohort}",parent_cohort="{parent}",root_cohort="{root}",replica_role="leader"}} 1"#
        )
    };
    says(&text, &[&info("team", "all", "all"), &info("all", "", "all")]);
    let elsewhere = |cohort: &mut serde_json::Value| cohort["spec"]["parentName"] = json!("other");
    world.update("kueue.x-k8s.io", "cohorts", "team", false, elsewhere).await;
    world.settle().await;
    let text = world.metrics().await;
    says(&text, &[&info("team", "other", "other"), &info("other", "", "other")]);
    assert!(!text.contains(r#"{cohort="all""#), "nobody names it any more:\n{}", without_buckets(&text));
    store
        .delete(&GroupResource::new("kueue.x-k8s.io", "cohorts"), "", "team", Default::default())
        .await
        .unwrap();
    world.settle().await;
    let text = world.metrics().await;
    for gone in ["{name=", "{cohort=", "{cluster_queue="] {
        assert!(!text.contains(gone), "{gone} is left in\n{}", without_buckets(&text));
    }
}

/// Every metric is documented as it is registered, and everything that is documented is registered.
#[tokio::test(start_paused = true)]
async fn every_metric_has_its_line() {
    let world = World::new(false).await;
    world.start("layer1");
    world.settle().await;
    let shown = world.metrics().await;
    let doc = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/metrics.md")).unwrap();
    let rows: BTreeMap<&str, Vec<&str>> = doc
        .lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .map(|line| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            (cells[0].trim_end_matches('`'), cells[1..].to_vec())
        })
        .collect();
    for metric in ALL {
        let row = rows.get(metric.name).unwrap_or_else(|| panic!("{} is not documented", metric.name));
        let labels: Vec<String> = metric.all_labels().map(|label| format!("`{label}`")).collect();
        assert_eq!((row[0], row[1]), (&*kind(metric), &*labels.join(", ")), "{}", metric.name);
    }
    let known: BTreeSet<&str> = rows.keys().copied().collect();
    let types = shown.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let unknown: Vec<&str> = types.filter(|name| !known.contains(name)).collect();
    assert!(unknown.is_empty(), "not documented: {unknown:?}");
    let kueues: BTreeSet<&str> = ALL.iter().map(|metric| metric.name).collect();
    let stray: Vec<_> =
        known.iter().filter(|name| name.starts_with("kueue_") && !kueues.contains(*name)).collect();
    assert!(stray.is_empty(), "documented, but nobody shows them: {stray:?}");
}

fn kind(metric: &Metric) -> String {
    match metric.kind {
        Kind::Counter => "counter".to_owned(),
        Kind::Gauge => "gauge".to_owned(),
        Kind::Histogram(bounds) => {
            let number = [(14, 10240.0), (16, 40960.0), (11, 10.0), (11, 10.24)]
                .iter()
                .position(|last| *last == (bounds.len(), bounds[bounds.len() - 1]));
            format!("histogram ({})", number.unwrap() + 1)
        }
    }
}

/// The list that was made from Kueue's own documentation, where it is at hand.
#[test]
fn the_metrics_are_those_of_kueue() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/reference/kueue.md");
    let Ok(text) = std::fs::read_to_string(path) else {
        eprintln!("SKIPPED the_metrics_are_those_of_kueue: {path} is not there");
        return;
    };
    let list = text.split("# APPENDIX 2").nth(1).unwrap().split("# APPENDIX 3").next().unwrap();
    let mut theirs = BTreeMap::new();
    for line in list.lines().filter(|line| line.starts_with("kueue_")) {
        let (name, rest) = line.split_once(' ').unwrap();
        let (kind, labels) = rest.split_once(' ').unwrap();
        let labels: BTreeSet<&str> = labels.trim_matches(['{', '}']).split(',').collect();
        theirs.insert(name, (kind.to_lowercase(), labels));
    }
    assert!(theirs.len() > 60, "{theirs:?}");
    let ours: BTreeMap<&str, (String, BTreeSet<&str>)> = ALL
        .iter()
        .map(|metric| (metric.name, (metric.kind.token().to_owned(), metric.all_labels().collect())))
        .collect();
    assert_eq!(ours, theirs);
}
