//! The scheduler against an API server, in virtual time.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod harness;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cluster_sim::GroupResource;
use cluster_sim::faults::{Aim, Fault, Moment, Verdict};
use crds::api::trireme::v1alpha1::GangPhase;
use harness::Harness;
use jiff::SignedDuration;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceValidation, JSONSchemaProps,
};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

/// Long enough for a lease that was not released to run out, and for what follows.
const TAKEOVER: u64 = 40;

#[tokio::test(start_paused = true)]
async fn a_gang_of_a_workload_is_bound_whole_with_n_plus_two_writes() {
    let mut harness = Harness::new().await;
    harness.node("a", 2).await;
    harness.node("b", 4).await;
    let uid = harness.job("train").await;
    harness.workload("train", &uid, 4).await;
    harness.admit("train", 4).await;
    harness.start();
    harness.job_pods("train", &uid, 4).await;
    harness.sleep(20).await;
    assert!(harness.bound().await.iter().all(|(_, node)| node == "b"), "{:?}", harness.bound().await);
    assert_eq!(harness.bound().await.len(), 4);
    let bind = "create pods/binding";
    assert_eq!(
        harness.written(),
        ["create gangplacements", bind, bind, bind, bind, "patch gangplacements/status"]
    );
    let placements = harness.placements().await;
    assert_eq!(placements[0].status.as_ref().unwrap().phase, Some(GangPhase::Bound));
    assert_eq!(placements[0].spec.gang.kind, "Workload");
    assert_eq!(placements[0].spec.members.len(), 4);
    harness.sleep(3600).await;
    assert_eq!(harness.written().len(), 6, "nothing is written in a quiet hour");
}

/// A JobSet whose workers are made only when its driver has ended: waiting for all of them would be for ever.
#[tokio::test(start_paused = true)]
async fn pod_sets_that_come_in_steps_are_bound_each_by_itself() {
    let mut harness = Harness::new().await;
    harness.node("a", 8).await;
    let uid = harness.job("steps").await;
    let template =
        json!({ "spec": { "restartPolicy": "Never", "containers": [{ "name": "main", "image": "x" }] } });
    let set = |name: &str, count: u32| json!({ "name": name, "count": count, "template": template });
    let owner =
        json!({ "apiVersion": "batch/v1", "kind": "Job", "name": "steps", "uid": uid, "controller": true });
    let workload = json!({
        "metadata": { "name": "job-steps", "ownerReferences": [owner], "annotations": { "trireme.dev/gang": "pod-set" } },
        "spec": { "queueName": "q", "podSets": [set("driver", 1), set("workers", 2)] },
    });
    harness.create("kueue.x-k8s.io", "v1beta2", "Workload", workload).await;
    let sets = [("driver", 1), ("workers", 2)];
    harness.admit_sets("steps", &sets).await;
    harness.start();
    let pod = async |name: &str, set: &str| {
        let metadata = json!({ "labels": { "kueue.x-k8s.io/podset": set }, "ownerReferences": [owner] });
        harness.pod(name, metadata).await;
        harness.sleep(20).await;
        harness.bound().await.len()
    };
    assert_eq!(pod("driver", "driver").await, 1);
    assert_eq!(pod("worker-0", "workers").await, 1, "half of its set");
    assert_eq!(pod("worker-1", "workers").await, 3);
    assert_eq!(pod("worker-2", "workers").await, 3, "more than was granted");
}

#[tokio::test(start_paused = true)]
async fn a_single_pod_takes_one_write() {
    let mut harness = Harness::new().await;
    harness.node("a", 2).await;
    harness.start();
    harness.pod("one", json!({})).await;
    harness.sleep(20).await;
    assert_eq!(harness.bound().await, [("one".to_owned(), "a".to_owned())]);
    assert_eq!(harness.written(), ["create pods/binding"]);
}

#[tokio::test(start_paused = true)]
async fn a_gang_that_does_not_fit_binds_nothing_and_says_why() {
    let mut harness = Harness::new().await;
    harness.node("a", 2).await;
    harness.node("b", 1).await;
    harness.start();
    harness.pod_group("g", 4).await;
    harness.group_pods("g", 4, None).await;
    harness.sleep(30).await;
    assert!(harness.bound().await.is_empty());
    let (reason, message) = harness.unscheduled("g-0").await;
    assert_eq!(reason, "Unschedulable");
    assert_eq!(
        message,
        "3 of 4 pods fit; beside them, pod g-0 fits none of 2 nodes: 2 insufficient nvidia.com/gpu (asks 1, at most 0 left on a node)"
    );
    let status = harness.pod_group_status("g").await;
    assert_eq!(status["phase"], "Inqueue");
    assert_eq!(status["conditions"][0]["type"], "Unschedulable");
    assert_eq!(status["conditions"][0]["reason"], "NotEnoughResources");
    let before = harness.written().len();
    harness.sleep(3600).await;
    assert_eq!(harness.written().len(), before, "said once");

    harness.node("c", 1).await;
    harness.sleep(30).await;
    assert_eq!(harness.bound().await.len(), 4);
    let status = harness.pod_group_status("g").await;
    assert_eq!(status["phase"], "Running");
    let scheduled = &status["conditions"].as_array().unwrap().iter().find(|one| one["type"] == "Scheduled");
    assert_eq!(scheduled.unwrap()["status"], "True");
    assert_eq!(status["conditions"][0]["status"], "False");
}

#[tokio::test(start_paused = true)]
async fn pods_wait_for_their_pod_group_and_for_each_other() {
    let mut harness = Harness::new().await;
    harness.node("a", 8).await;
    harness.start();
    harness.group_pods("g", 2, None).await;
    harness.sleep(30).await;
    assert_eq!(harness.unscheduled("g-0").await.0, "PodGroupNotFound");
    harness.pod_group("g", 3).await;
    harness.sleep(30).await;
    let (reason, message) = harness.unscheduled("g-0").await;
    assert_eq!((reason.as_str(), message.as_str()), ("NotEnoughTasks", "2 of 3 pods exist"));
    let metadata = json!({ "annotations": { "scheduling.k8s.io/group-name": "g" } });
    harness.pod("g-2", metadata).await;
    harness.sleep(30).await;
    assert_eq!(harness.bound().await.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn nothing_runs_without_admission_nor_beyond_it() {
    let mut harness = Harness::new().await;
    harness.node("a", 8).await;
    harness.start();
    let uid = harness.job("train").await;
    // The pods come before their Workload, as when one watch is behind.
    harness.job_pods("train", &uid, 3).await;
    harness.sleep(30).await;
    assert_eq!(harness.unscheduled("train-0").await.0, "WorkloadNotFound");
    harness.workload("train", &uid, 2).await;
    harness.sleep(30).await;
    assert_eq!(harness.unscheduled("train-0").await.0, "WorkloadNotAdmitted");
    assert!(harness.bound().await.is_empty());
    harness.admit("train", 2).await;
    harness.sleep(30).await;
    assert_eq!(harness.bound().await.len(), 2);
    let (reason, message) = harness.unscheduled("train-2").await;
    assert_eq!(reason, "ExceedsGrant");
    assert_eq!(message, "Workload job-train was granted 2 pods for this pod set, which with this pod asks 3");
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_write_is_recovered_from() {
    for moment in [Moment::Before, Moment::After] {
        for crash_at in 0..6 {
            let mut harness = Harness::new().await;
            harness.node("a", 2).await;
            harness.node("b", 2).await;
            let uid = harness.job("g").await;
            harness.pod_group("g", 4).await;
            let (tasks, _) = harness.start();
            let crashed = Arc::new(AtomicBool::new(false));
            let seen = crashed.clone();
            harness.cluster.faults().set_hook(move |call, at, index| {
                let ours = call.writer.as_ref() == "gang-scheduler/1";
                // Only what comes first counts: other writes may be in flight together.
                if ours && (seen.load(Ordering::SeqCst) || (index, at) == (crash_at, moment)) {
                    seen.store(true, Ordering::SeqCst);
                    return Verdict::Hang;
                }
                Verdict::Proceed
            });
            harness.group_pods("g", 4, Some(&uid)).await;
            harness.sleep(10).await;
            assert!(crashed.load(Ordering::SeqCst), "{moment:?} {crash_at}: no crash");
            tasks.kill();
            harness.start();
            harness.sleep(TAKEOVER).await;
            assert_eq!(harness.bound().await.len(), 4, "{moment:?} {crash_at}: {:?}", harness.written());
            let placements = harness.placements().await;
            assert_eq!(placements.len(), 1, "{moment:?} {crash_at}");
            let phase = placements[0].status.as_ref().and_then(|status| status.phase);
            assert_eq!(phase, Some(GangPhase::Bound), "{moment:?} {crash_at}: {:?}", harness.written());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn lost_answers_conflicts_and_errors_do_no_harm() {
    for fault in [
        Fault::LostResponse,
        Fault::LostRequest,
        Fault::Conflict,
        Fault::ServerError(503),
        Fault::TimeoutAfterWrite,
        Fault::TooManyRequests(1),
    ] {
        let mut harness = Harness::new().await;
        harness.node("a", 2).await;
        harness.node("b", 2).await;
        harness.pod_group("g", 4).await;
        harness.cluster.faults().add(Aim::writes().by("gang-scheduler"), 400_000, 6, fault.clone());
        harness.start();
        harness.group_pods("g", 4, None).await;
        harness.sleep(180).await;
        assert_eq!(harness.bound().await.len(), 4, "{fault:?}: {:?}", harness.written());
        let binds = harness.written().iter().filter(|write| write.ends_with("binding")).count();
        assert_eq!(binds, 4, "{fault:?}");
        let phases: Vec<_> = harness
            .placements()
            .await
            .iter()
            .map(|one| one.status.as_ref().and_then(|one| one.phase))
            .collect();
        assert_eq!(phases, [Some(GangPhase::Bound)], "{fault:?}: {:?}", harness.written());
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_plan_binds_nothing_and_is_tried_again() {
    let mut harness = Harness::new().await;
    harness.node("a", 4).await;
    harness.pod_group("g", 4).await;
    let plans = GroupResource::new("trireme.dev", "gangplacements");
    harness.cluster.faults().add(Aim::writes().on(plans), 1_000_000, 12, Fault::ServerError(500));
    harness.start();
    harness.group_pods("g", 4, None).await;
    harness.sleep(3).await;
    assert!(harness.bound().await.is_empty());
    harness.sleep(120).await;
    assert_eq!(harness.bound().await.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_plan_whose_answer_was_lost_is_found_again() {
    for fault in [Fault::LostResponse, Fault::TimeoutAfterWrite, Fault::Conflict] {
        let mut harness = Harness::new().await;
        harness.node("a", 4).await;
        harness.pod_group("g", 4).await;
        let plans = GroupResource::new("trireme.dev", "gangplacements");
        harness.cluster.faults().add(Aim::writes().on(plans), 1_000_000, 2, fault.clone());
        harness.start();
        harness.group_pods("g", 4, None).await;
        harness.sleep(60).await;
        assert_eq!(harness.bound().await.len(), 4, "{fault:?}: {:?}", harness.written());
        assert_eq!(harness.placements().await.len(), 1, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_gang_that_stays_below_its_minimum_is_undone_as_a_whole() {
    // Whatever becomes of the wall clock meanwhile.
    for hours in [0, -1, 1] {
        let mut harness = Harness::new().await;
        harness.node("a", 4).await;
        let uid = harness.job("g").await;
        harness.pod_group("g", 4).await;
        harness.start();
        harness.group_pods("g", 4, Some(&uid)).await;
        harness.sleep(20).await;
        assert_eq!(harness.bound().await.len(), 4);
        let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        harness.pods_api().delete("g-3", &now).await.unwrap();
        harness.sleep(5).await;
        harness.clock.set_ahead(SignedDuration::from_hours(hours));
        harness.sleep(45).await;
        assert_eq!(harness.bound().await.len(), 3, "there is time to bring it back ({hours} h)");
        harness.sleep(20).await;
        let deletions = harness.written().iter().filter(|write| write.as_str() == "delete pods").count();
        assert_eq!(deletions, 3, "{hours} h: {:?}", harness.written());
    }
}

#[tokio::test(start_paused = true)]
async fn a_member_that_comes_back_joins_its_gang() {
    let mut harness = Harness::new().await;
    harness.node("a", 4).await;
    let uid = harness.job("g").await;
    harness.pod_group("g", 4).await;
    harness.start();
    harness.group_pods("g", 4, Some(&uid)).await;
    harness.sleep(20).await;
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    harness.pods_api().delete("g-3", &now).await.unwrap();
    harness.sleep(5).await;
    let metadata = json!({ "annotations": { "scheduling.k8s.io/group-name": "g" } });
    harness.pod("g-3", metadata).await;
    harness.sleep(200).await;
    assert_eq!(harness.bound().await.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_standby_takes_over_and_the_plan_of_a_gone_gang_goes() {
    let mut harness = Harness::new().await;
    harness.node("a", 4).await;
    harness.pod_group("g", 2).await;
    let (leader, _) = harness.start();
    harness.sleep(5).await;
    harness.start();
    harness.group_pods("g", 2, None).await;
    harness.sleep(10).await;
    assert_eq!(harness.bound().await.len(), 2);
    leader.kill();
    harness.pod_group("h", 2).await;
    harness.group_pods("h", 2, None).await;
    harness.sleep(TAKEOVER).await;
    assert_eq!(harness.bound().await.len(), 4);
    assert!(harness.commits().iter().any(|commit| commit.writer.as_ref() == "gang-scheduler/2"));
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    for pod in ["g-0", "g-1"] {
        harness.pods_api().delete(pod, &now).await.unwrap();
    }
    harness.sleep(20).await;
    let left: Vec<_> = harness.placements().await.into_iter().map(|one| one.spec.gang.name).collect();
    assert_eq!(left, ["h"]);
}

#[tokio::test(start_paused = true)]
async fn what_a_kubelet_rejects_is_placed_again_and_the_plan_ends_bound() {
    let mut harness = Harness::new().await;
    for node in ["a", "b", "c"] {
        harness.node(node, 1).await;
    }
    let uid = harness.job("g").await;
    harness.pod_group("g", 2).await;
    harness.start();
    harness.group_pods("g", 2, Some(&uid)).await;
    harness.sleep(20).await;
    assert_eq!(harness.bound().await, [("g-0".into(), "a".into()), ("g-1".into(), "b".into())]);
    let rejected = json!({ "status": { "phase": "Failed", "reason": "UnexpectedAdmissionError" } });
    harness.pods_api().patch_status("g-0", &PatchParams::default(), &Patch::Merge(rejected)).await.unwrap();
    harness.sleep(1).await;
    let metadata = json!({ "annotations": { "scheduling.k8s.io/group-name": "g" } });
    harness.pod("g-2", metadata).await;
    harness.sleep(20).await;
    assert!(harness.bound().await.contains(&("g-2".into(), "c".into())), "{:?}", harness.bound().await);
}

#[tokio::test(start_paused = true)]
async fn two_gangs_that_each_need_most_of_the_cluster_do_not_share_it() {
    let mut harness = Harness::new().await;
    for node in ["a", "b", "c", "d"] {
        harness.node(node, 1).await;
    }
    harness.start();
    for group in ["g", "h"] {
        harness.pod_group(group, 4).await;
    }
    for index in 0..4 {
        for group in ["g", "h"] {
            let metadata = json!({ "annotations": { "scheduling.k8s.io/group-name": group } });
            harness.pod(&format!("{group}-{index}"), metadata).await;
        }
    }
    harness.sleep(30).await;
    let bound = harness.bound().await;
    assert_eq!(bound.len(), 4);
    assert!(bound.iter().all(|(pod, _)| pod.starts_with(&bound[0].0[..1])), "{bound:?}");
}

#[tokio::test(start_paused = true)]
async fn a_node_filled_by_another_scheduler_is_seen() {
    let mut harness = Harness::new().await;
    harness.node("a", 2).await;
    harness.start();
    harness.sleep(10).await;
    let foreign = json!({ "metadata": { "name": "foreign" }, "spec": { "nodeName": "a", "schedulerName": "other",
        "containers": [{ "name": "main", "image": "x", "resources": { "limits": { harness::GPU: "2" } } }] } });
    let foreign = serde_json::from_value(foreign).unwrap();
    harness.pods_api().create(&PostParams::default(), &foreign).await.unwrap();
    harness.pod("one", json!({})).await;
    harness.sleep(20).await;
    assert_eq!(harness.unscheduled("one").await.0, "Unschedulable");
    harness
        .pods_api()
        .delete("foreign", &DeleteParams { grace_period_seconds: Some(0), ..Default::default() })
        .await
        .unwrap();
    harness.sleep(20).await;
    assert!(harness.bound().await.contains(&("one".into(), "a".into())));
}

#[tokio::test(start_paused = true)]
async fn pods_with_what_is_not_supported_or_not_a_number_say_so_and_harm_nobody() {
    let mut harness = Harness::new().await;
    harness.node("a", 4).await;
    harness.start();
    for (name, spec, reason) in [
        (
            "claim",
            json!({ "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "c" } }] }),
            "UnsupportedFeature",
        ),
        (
            "spread",
            json!({ "topologySpreadConstraints": [{ "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule" }] }),
            "UnsupportedFeature",
        ),
    ] {
        let mut spec = spec;
        spec["schedulerName"] = json!("trireme");
        spec["containers"] = json!([{ "name": "main", "image": "x" }]);
        let pod = serde_json::from_value(json!({ "metadata": { "name": name }, "spec": spec })).unwrap();
        harness.pods_api().create(&PostParams::default(), &pod).await.unwrap();
        harness.sleep(15).await;
        assert_eq!(harness.unscheduled(name).await.0, reason, "{name}");
    }
    harness.pod("one", json!({})).await;
    harness.sleep(15).await;
    assert_eq!(harness.bound().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn gated_pods_are_not_touched() {
    let mut harness = Harness::new().await;
    harness.node("a", 4).await;
    harness.start();
    let pod = json!({ "metadata": { "name": "gated" }, "spec": { "schedulerName": "volcano", "schedulingGates": [{ "name": "x/y" }],
        "containers": [{ "name": "main", "image": "x" }] } });
    harness.pods_api().create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    harness.sleep(30).await;
    assert!(harness.written().is_empty());
    let open = json!({ "spec": { "schedulingGates": null } });
    harness.pods_api().patch("gated", &PatchParams::default(), &Patch::Merge(open)).await.unwrap();
    harness.sleep(10).await;
    assert_eq!(harness.bound().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn who_leads_and_what_is_counted_stands_on_the_metrics_page() {
    let mut harness = Harness::new().await;
    harness.node("a", 2).await;
    harness.start();
    harness.sleep(5).await;
    harness.start();
    harness.pod("one", json!({})).await;
    harness.sleep(20).await;
    let pages = harness.metrics().await;
    let with = |line: &str| pages.iter().filter(|page| page.contains(line)).count();
    assert_eq!((with(r#"trireme_leader{lease="gang-scheduler"} 1"#), pages.len()), (1, 2), "{pages:?}");
    assert_eq!(with(r#"trireme_leader{lease="gang-scheduler"} 0"#), 1);
    assert_eq!(with(r#"trireme_writes_total{result="done"} 1"#), 1);
    assert_eq!(with(r#"trireme_watch_restarts_total{kind="Node"} 1"#), 2);
    assert_eq!(with("trireme_events_dropped_total 0"), 2);
}

#[tokio::test(start_paused = true)]
async fn the_owner_of_what_cannot_be_understood_is_told_by_each_leader_and_pods_are_placed_meanwhile() {
    let mut harness = Harness::new().await;
    harness.node("a", 2).await;
    let store = harness.cluster.store("test");
    // Somebody else's definition, which lets through what ours refuses.
    let definitions: Api<CustomResourceDefinition> = Api::all(harness.cluster.client());
    let name = "podgroups.scheduling.volcano.sh";
    let mut loose = definitions.get(name).await.unwrap();
    loose.spec.versions[0].schema = Some(CustomResourceValidation {
        open_api_v3_schema: Some(JSONSchemaProps {
            type_: Some("object".to_owned()),
            x_kubernetes_preserve_unknown_fields: Some(true),
            ..JSONSchemaProps::default()
        }),
    });
    definitions.replace(name, &PostParams::default(), &loose).await.unwrap();
    let group = json!({ "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
        "metadata": { "name": "odd", "namespace": "default" }, "spec": { "minMember": "two" } });
    store.create(&GroupResource::new("scheduling.volcano.sh", "podgroups"), group).await.unwrap();
    let (first, _) = harness.start();
    harness.pod("one", json!({})).await;
    harness.sleep(20).await;
    assert_eq!(harness.bound().await.len(), 1);
    let tellers = || {
        let events = store.list(&GroupResource::core("events"), Some("default"));
        let told = events.iter().map(|event| event.value()).filter(|event| event["reason"] == "Undecodable");
        told.map(|event| {
            let about = &event["involvedObject"];
            assert_eq!((&about["kind"], &about["name"]), (&json!("PodGroup"), &json!("odd")), "{event}");
            event["reportingInstance"].as_str().unwrap().to_owned()
        })
        .collect::<Vec<_>>()
    };
    assert_eq!(tellers(), ["gang-scheduler/1"]);
    harness.start();
    harness.sleep(20).await;
    assert_eq!(tellers(), ["gang-scheduler/1"], "a standby says nothing");
    first.kill();
    harness.sleep(TAKEOVER).await;
    assert_eq!(tellers(), ["gang-scheduler/1", "gang-scheduler/2"]);
}
