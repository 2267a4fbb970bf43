//! The agent against a simulated API server and kubelet, the real services between them: in virtual time, and once over
//! the operating system's sockets.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cluster_sim::GroupResource;
use cluster_sim::faults::{Aim, Fault as SimFault, Moment, Verdict, WatchFault};
use cluster_sim::node::NodeSpec;
use fake_nvml::Fault;
use serde_json::json;
use support::{Bench, pass, set};

#[tokio::test(start_paused = true)]
async fn a_pod_gets_its_gpus_and_the_cluster_knows_the_node() {
    let bench = Bench::new("8xA100").await;
    assert_eq!(bench.allocatable(), "8");
    let labels = bench.node()["metadata"]["labels"].clone();
    assert_eq!(labels["nvidia.com/gpu.product"], "NVIDIA-A100-SXM4-80GB");
    assert_eq!(labels["nvidia.com/gpu.count"], "8");
    let status = bench.gpu_node()["status"].clone();
    assert_eq!(status["devices"].as_array().unwrap().len(), 8);
    assert_eq!(status["devices"][0]["health"], "Healthy");
    assert_eq!(status["devices"][0]["links"][0], json!({ "to": 1, "kind": "NVLink", "count": 12 }));
    assert_eq!(bench.gpu_node()["metadata"]["ownerReferences"][0]["kind"], "Node");

    bench.pod("pair", 2, None).await;
    bench.pod("single", 1, None).await;
    bench.pod("rest", 5, None).await;
    pass(2).await;
    for name in ["pair", "single", "rest"] {
        assert_eq!(bench.phase(name), "Running", "{name}");
    }
    let all: BTreeSet<u32> =
        ["pair", "single", "rest"].into_iter().flat_map(|name| bench.given(name)).collect();
    assert_eq!(all.len(), 8, "nothing is given twice");

    assert_eq!(bench.writes().len(), 3, "GpuNode, its status, the labels: {:?}", bench.writes());
    let before = bench.cluster.revision();
    pass(3600).await;
    assert_eq!(bench.cluster.revision(), before, "no write in a quiet hour");
}

#[tokio::test]
async fn unix_sockets_carry_the_same_conversation() {
    async fn eventually(what: &str, holds: impl Fn() -> bool) {
        for _ in 0..200 {
            if holds() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("not within 20 s: {what}");
    }
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_owned();
    let node = NodeSpec { sockets: proto::sockets::Sockets::Unix, root, ..NodeSpec::new("n1") };
    for path in [node.plugin_directory(), node.pod_resources_socket().parent().unwrap().to_owned()] {
        std::fs::create_dir_all(path).unwrap();
    }
    let bench = Bench::on("8xH100", node).await;
    eventually("registered", || bench.allocatable() == "8").await;
    bench.pod("p", 2, Some(&[5, 1])).await;
    eventually("running", || bench.phase("p") == "Running").await;
    assert_eq!(bench.given("p"), set(&[1, 5]));
    bench.kubelet.restart().unwrap();
    // The node shows the old number until the kubelet has looked around; a pod that comes now would be rejected.
    pass(3).await;
    eventually("registered anew", || bench.allocatable() == "8").await;
    bench.pod("q", 6, None).await;
    eventually("running", || bench.phase("q") == "Running").await;
    assert_eq!(bench.given("q"), set(&[0, 2, 3, 4, 6, 7]));
}

#[tokio::test(start_paused = true)]
async fn the_schedulers_choice_is_honoured_whoever_is_admitted_first() {
    let bench = Bench::new("8xA100").await;
    bench.pod("a", 2, Some(&[3, 6])).await;
    bench.pod("b", 2, Some(&[0, 5])).await;
    bench.pod("c", 1, Some(&[7])).await;
    bench.pod("d", 1, None).await;
    pass(2).await;
    let groups: BTreeSet<_> = [bench.given("a"), bench.given("b")].into();
    assert_eq!(groups, BTreeSet::from([set(&[3, 6]), set(&[0, 5])]), "the multiset of groups is the promise");
    let singles: BTreeSet<u32> = ["c", "d"].into_iter().flat_map(|name| bench.given(name)).collect();
    assert_eq!(singles.len(), 2);
    assert!(singles.contains(&7), "{singles:?}");
    assert!(singles.is_disjoint(&set(&[0, 3, 5, 6])));
}

/// Found on the real API server: the list then brings nothing new, and the choice was passed over.
#[tokio::test(start_paused = true)]
async fn a_pod_that_the_watch_shows_while_the_list_is_on_its_way_gets_its_choice() {
    let bench = Bench::new("8xA100").await;
    let pods = || Aim::default().by("node-agent/n1").on(GroupResource::core("pods"));
    let faults = bench.cluster.faults();
    faults.add(pods(), 1_000_000, u64::MAX, SimFault::Latency(Duration::from_millis(300)));
    faults.add_watch(pods(), 1_000_000, 1, WatchFault::Delay(Duration::from_millis(100)));
    bench.pod("a", 2, Some(&[3, 6])).await;
    pass(2).await;
    assert_eq!(bench.given("a"), set(&[3, 6]));
}

#[tokio::test(start_paused = true)]
async fn a_choice_that_cannot_be_had_falls_back_to_the_best_set() {
    let bench = Bench::new("8xA100").await;
    bench.pod("first", 2, Some(&[0, 1])).await;
    pass(2).await;
    bench.pod("second", 2, Some(&[1, 2])).await;
    pass(2).await;
    assert_eq!(bench.given("first"), set(&[0, 1]));
    assert_eq!(bench.given("second"), set(&[2, 3]), "a pair behind one switch");
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_that_restarts_has_its_gpus_back_at_once() {
    let bench = Bench::new("4xL40S").await;
    bench.pod("before", 1, Some(&[2])).await;
    pass(2).await;
    bench.kubelet.restart().unwrap();
    pass(3).await;
    assert_eq!(bench.allocatable(), "4");
    bench.pod("after", 3, None).await;
    pass(2).await;
    assert_eq!((bench.phase("before"), bench.phase("after")), ("Running".into(), "Running".into()));
    assert_eq!(bench.given("after"), set(&[0, 1, 3]));
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_that_was_away_is_found_again() {
    let bench = Bench::new("4xL40S").await;
    bench.kubelet.stop();
    pass(120).await;
    bench.kubelet.start().unwrap();
    pass(3).await;
    assert_eq!(bench.allocatable(), "4");
}

#[tokio::test(start_paused = true)]
async fn a_socket_that_vanished_is_made_anew() {
    let bench = Bench::new("4xL40S").await;
    let own = bench.kubelet.spec().plugin_directory().join("nvidia-gpu.sock");
    bench.kubelet.sockets().remove(&own).unwrap();
    pass(4).await;
    assert!(bench.kubelet.sockets().exists(&own));
    bench.pod("p", 1, None).await;
    pass(2).await;
    assert_eq!(bench.phase("p"), "Running");
}

#[tokio::test(start_paused = true)]
async fn an_ill_gpu_is_withdrawn_and_comes_back_when_it_recovered() {
    let bench = Bench::new("8xH100").await;
    bench.world.inject(Fault::Xid { gpu: 3, code: 13 });
    pass(2).await;
    assert_eq!(bench.allocatable(), "8", "an application's XID");
    bench.world.inject(Fault::Xid { gpu: 3, code: 95 });
    pass(2).await;
    assert_eq!(bench.allocatable(), "7");
    let device = bench.gpu_node()["status"]["devices"][3].clone();
    assert_eq!(
        (&device["health"], &device["reason"], &device["xid"]),
        (&json!("Unhealthy"), &json!("Xid"), &json!(95))
    );
    let events = bench.store.list(&GroupResource::core("events"), None);
    let notes: Vec<_> =
        events.iter().filter_map(|event| event.value()["message"].as_str().map(str::to_owned)).collect();
    assert!(notes.iter().any(|note| note.contains("GPU 3") && note.contains("XID 95")), "{notes:?}");
    pass(300).await;
    assert_eq!(bench.allocatable(), "7", "a reset is pending");
    assert_eq!(bench.gpu_node()["status"]["devices"][3]["reason"], "ResetPending");
    bench.world.inject(Fault::Recover { gpu: 3 });
    pass(35).await;
    assert_eq!(bench.allocatable(), "8");
    let device = bench.gpu_node()["status"]["devices"][3].clone();
    assert_eq!((&device["health"], device.get("reason"), device.get("xid")), (&json!("Healthy"), None, None));
}

#[tokio::test(start_paused = true)]
async fn a_gpu_that_falls_silent_is_noticed_without_an_event() {
    let bench = Bench::new("4xL40S").await;
    bench.world.inject(Fault::Lost { gpu: 0 });
    pass(65).await;
    assert_eq!(bench.allocatable(), "3");
    assert_eq!(bench.gpu_node()["status"]["devices"][0]["reason"], "GpuLost");
    assert_eq!(bench.node()["metadata"]["labels"]["nvidia.com/gpu.count"], "4", "it is still there");
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_was_killed_starts_where_it_was() {
    let mut bench = Bench::new("4xL40S").await;
    bench.pod("p", 2, Some(&[1, 2])).await;
    pass(2).await;
    let written = bench.writes().len();
    bench.tasks.kill();
    bench.tasks.ended().await;
    pass(2).await;
    assert_eq!(bench.allocatable(), "0", "nobody serves");
    bench.start_agent();
    pass(4).await;
    assert_eq!(bench.allocatable(), "4");
    assert_eq!(bench.given("p"), set(&[1, 2]));
    assert_eq!(bench.writes().len(), written, "all was written before");
}

#[tokio::test(start_paused = true)]
async fn what_others_change_is_put_right_and_their_labels_are_left_alone() {
    let bench = Bench::new("4xL40S").await;
    let nodes: kube::Api<k8s_openapi::api::core::v1::Node> = kube::Api::all(bench.cluster.client_as("admin"));
    let patch = json!({ "metadata": { "labels": {
        "nvidia.com/gpu.count": "9", "nvidia.com/mig.strategy": "single", "nvidia.com/gpu.present": "true"
    } } });
    let merge = kube::api::Patch::Merge(patch);
    nodes.patch("n1", &kube::api::PatchParams::default(), &merge).await.unwrap();
    pass(2).await;
    let labels = bench.node()["metadata"]["labels"].clone();
    assert_eq!(labels["nvidia.com/gpu.count"], "4");
    assert_eq!(labels.get("nvidia.com/mig.strategy"), None);
    assert_eq!(labels["nvidia.com/gpu.present"], "true");
}

#[tokio::test(start_paused = true)]
async fn a_gpu_node_that_was_deleted_or_falsified_is_written_again() {
    let bench = Bench::new("4xL40S").await;
    let api: kube::Api<crds::api::trireme::v1alpha1::GpuNode> =
        kube::Api::all(bench.cluster.client_as("admin"));
    api.delete("n1", &kube::api::DeleteParams::default()).await.unwrap();
    pass(2).await;
    assert_eq!(bench.gpu_node()["status"]["devices"].as_array().unwrap().len(), 4);
    let patch = kube::api::Patch::Merge(json!({ "status": { "driverVersion": "0" } }));
    api.patch_status("n1", &kube::api::PatchParams::default(), &patch).await.unwrap();
    pass(2).await;
    assert_eq!(bench.gpu_node()["status"]["driverVersion"], "570.172.08");
    let before = bench.cluster.revision();
    pass(600).await;
    assert_eq!(bench.cluster.revision(), before);
}

#[tokio::test(start_paused = true)]
async fn what_was_ill_is_not_given_out_because_the_agent_restarted() {
    let mut bench = Bench::new("4xL40S").await;
    bench.world.inject(Fault::Xid { gpu: 1, code: 94 });
    pass(2).await;
    assert_eq!(bench.allocatable(), "3");
    bench.tasks.kill();
    bench.tasks.ended().await;
    bench.start_agent();
    pass(5).await;
    assert_eq!(bench.allocatable(), "3");
    assert_eq!(bench.gpu_node()["status"]["devices"][1]["xid"], 94);
    pass(35).await;
    assert_eq!(bench.allocatable(), "4", "its probes are good");
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_comes_late_is_waited_for_only_if_the_settings_say_so() {
    let mut bench = Bench::new("4xL40S").await;
    bench.tasks.kill();
    bench.tasks.ended().await;
    bench.world.inject(Fault::DriverUnloaded);
    let (ctx, config) = bench.agent();
    let error = node_agent::run(ctx, config).await.unwrap_err().to_string();
    assert!(error.contains("not loaded") && error.contains("--fail-on-init-error"), "{error}");

    let (ctx, mut config) = bench.agent();
    config.settings.fail_on_init_error = false;
    let run = bench.tasks.spawn(node_agent::run(ctx, config));
    pass(100).await;
    assert_eq!(bench.allocatable(), "0");
    bench.world.inject(Fault::DriverLoaded);
    pass(65).await;
    assert_eq!(bench.allocatable(), "4");
    bench.tasks.stop();
    assert!(run.await.unwrap().unwrap().is_ok(), "it ends when it is asked to");
}

#[tokio::test(start_paused = true)]
async fn the_same_story_is_written_the_same_way_twice() {
    async fn story() -> Vec<String> {
        let bench = Bench::new("8xA100").await;
        for (name, chosen) in [("a", &[0u32, 3][..]), ("b", &[1, 2]), ("c", &[4, 7])] {
            bench.pod(name, 2, Some(chosen)).await;
        }
        bench.world.inject(Fault::Xid { gpu: 5, code: 48 });
        bench.kubelet.restart().unwrap();
        pass(120).await;
        let log = bench.cluster.log();
        log.iter().map(|commit| format!("{commit:?}")).collect()
    }
    let first = story().await;
    assert!(first.len() > 20);
    assert_eq!(first, story().await);
}

#[tokio::test(start_paused = true)]
async fn devices_are_served_while_the_api_server_refuses_the_agent() {
    let mut bench = Bench::new("4xL40S").await;
    let all = Aim::default().by("node-agent/n1");
    bench.cluster.faults().add(all, 1_000_000, u64::MAX, SimFault::ServerError(503));
    bench.tasks.kill();
    bench.tasks.ended().await;
    let written = bench.writes().len();
    bench.start_agent();
    pass(10).await;
    assert_eq!(bench.allocatable(), "4");
    bench.pod("p", 2, Some(&[1, 3])).await;
    pass(5).await;
    assert_eq!(bench.phase("p"), "Running");
    assert_eq!(bench.given("p"), set(&[0, 1]), "who knows no choice makes the best one");
    bench.world.inject(Fault::Xid { gpu: 2, code: 94 });
    pass(5).await;
    assert_eq!(bench.allocatable(), "3");
    assert_eq!(bench.writes().len(), written);
    bench.cluster.faults().clear();
    pass(120).await;
    assert_eq!(bench.gpu_node()["status"]["devices"][2]["health"], "Healthy", "it recovered meanwhile");
    assert_eq!(bench.allocatable(), "4");
}

/// The Node goes while the watch is away: its `GpuNode` goes with it and is not written for a Node that is no more.
#[tokio::test(start_paused = true)]
async fn nothing_is_published_for_a_node_that_went_while_nobody_watched() {
    let bench = Bench::new("4xL40S").await;
    bench.cluster.start_controllers().await.unwrap();
    bench.kubelet.stop();
    bench.cluster.compact();
    bench.cluster.faults().add_watch(Aim::default(), 1_000_000, 8, WatchFault::Expire);
    let nodes = GroupResource::new("", "nodes");
    bench.store.delete(&nodes, "", "n1", Default::default()).await.unwrap();
    pass(60).await;
    assert!(bench.gpu_node().is_null());
    let before = bench.cluster.revision();
    pass(60).await;
    assert_eq!(bench.cluster.revision(), before);
}

/// The Node is gone, and so is its `GpuNode`, long before the watch of Nodes tells: it is not created again and again for the
/// garbage collector to delete.
#[tokio::test(start_paused = true)]
async fn nothing_is_published_for_a_node_whose_end_is_told_late() {
    let bench = Bench::new("4xL40S").await;
    bench.cluster.start_controllers().await.unwrap();
    bench.kubelet.stop();
    let nodes = GroupResource::new("", "nodes");
    let late = WatchFault::Delay(Duration::from_secs(30));
    bench.cluster.faults().add_watch(Aim::default().on(nodes.clone()), 1_000_000, 8, late);
    let written = Arc::new(AtomicU64::new(0));
    let count = written.clone();
    bench.cluster.faults().set_hook(move |call, moment, _| {
        let ours = call.writer.starts_with("node-agent") && moment == Moment::Before;
        match ours && count.fetch_add(1, Ordering::Relaxed) > 20 {
            true => Verdict::Hang,
            false => Verdict::Proceed,
        }
    });
    bench.store.delete(&nodes, "", "n1", Default::default()).await.unwrap();
    pass(60).await;
    assert!(bench.gpu_node().is_null());
    assert_eq!(written.load(Ordering::Relaxed), 0);
}
