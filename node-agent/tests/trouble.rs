//! GPUs and drivers in trouble: hung, lost, back, counted anew, never there.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cluster_sim::GroupResource;
use cluster_sim::node::NodeSpec;
use crds::api::trireme::v1alpha1::GpuNode;
use fake_nvml::{Fault, WorldSpec};
use kit::http::Listen;
use node_agent::driver::{
    DriverError, DriverEvent, Enumeration, EventSink, FakeDriver, GpuDriver, GpuUuid, Probe, WatchGuard,
};
use serde_json::json;
use support::{Bench, page, pass, text};

/// A fake world whose watches are counted, and may break at once.
struct Counted {
    driver: FakeDriver,
    watches: AtomicUsize,
    breaks: bool,
}

impl GpuDriver for Counted {
    fn is_slow(&self) -> bool {
        false
    }

    fn enumerate(&self) -> Result<Enumeration, DriverError> {
        self.driver.enumerate()
    }

    fn probe(&self, gpu: &GpuUuid) -> Result<Probe, DriverError> {
        self.driver.probe(gpu)
    }

    fn watch(&self, sink: EventSink) -> Result<WatchGuard, DriverError> {
        self.watches.fetch_add(1, Ordering::Relaxed);
        if self.breaks {
            sink(DriverEvent::WatchBroken(DriverError::Other("no events".to_owned())));
        }
        self.driver.watch(sink)
    }
}

/// A node whose driver's watches are counted.
async fn counted(breaks: bool) -> (Bench, Arc<Counted>) {
    let mut bench = Bench::idle("4xL40S").await;
    let driver = FakeDriver::new(bench.world.clone());
    let driver = Arc::new(Counted { driver, watches: AtomicUsize::new(0), breaks });
    let (ctx, mut config) = bench.agent();
    config.driver = driver.clone();
    bench.tasks.spawn(async move { node_agent::run(ctx, config).await.unwrap() });
    pass(3).await;
    (bench, driver)
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_breaks_at_once_is_not_made_again_and_again() {
    let (bench, driver) = counted(true).await;
    assert_eq!(bench.allocatable(), "4");
    pass(600).await;
    let watches = driver.watches.load(Ordering::Relaxed);
    assert!((10..=70).contains(&watches), "{watches}");
}

#[tokio::test(start_paused = true)]
async fn a_gpu_that_was_away_is_watched_again() {
    let (bench, driver) = counted(false).await;
    let watches = || driver.watches.load(Ordering::Relaxed);
    assert_eq!(watches(), 1);
    bench.world.inject(Fault::Xid { gpu: 1, code: 79 });
    pass(65).await;
    assert_eq!((bench.allocatable().as_str(), watches()), ("3", 2));
    bench.world.inject(Fault::Recover { gpu: 1 });
    pass(12).await;
    assert_eq!(watches(), 3, "with the first answer, not with the next look");
    pass(30).await;
    assert_eq!(bench.allocatable(), "4");
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_was_loaded_anew_is_watched_again() {
    let (bench, driver) = counted(false).await;
    bench.world.inject(Fault::DriverUnloaded);
    pass(65).await;
    assert_eq!(bench.allocatable(), "0");
    assert_eq!(bench.ready()[..2], ["False", "DriverNotLoaded"]);
    bench.world.inject(Fault::DriverLoaded);
    pass(12).await;
    assert_eq!(driver.watches.load(Ordering::Relaxed), 2);
    pass(30).await;
    assert_eq!(bench.allocatable(), "4");
    assert_eq!(bench.ready()[..2], ["True", "AllHealthy"]);
}

#[tokio::test(start_paused = true)]
async fn a_node_without_gpus_says_so_and_the_agent_goes_on() {
    let world = WorldSpec {
        count: 0,
        pci_buses: vec![],
        numa_nodes: vec![],
        ..WorldSpec::profile("4xL40S").unwrap()
    };
    let mut bench = Bench::without_agent(world, NodeSpec::new("n1")).await;
    let (ctx, mut config) = bench.agent();
    config.admin = Some(Listen::InProcess);
    let services = ctx.services.clone();
    let run = bench.tasks.spawn(node_agent::run(ctx, config));
    pass(600).await;
    assert_eq!(bench.allocatable(), "none", "nothing was registered");
    assert_eq!(bench.ready()[..2], ["False", "NoGpus"]);
    let labels = bench.node()["metadata"]["labels"].clone();
    assert!(!labels.as_object().unwrap().keys().any(|name| name.starts_with("nvidia.com/")), "{labels}");
    assert_eq!(page(&services, "/readyz").await, 200, "there is nothing it waits for");
    bench.tasks.stop();
    assert!(run.await.unwrap().unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn why_there_are_no_gpus_stands_on_the_gpu_node() {
    let mut bench = Bench::idle("4xL40S").await;
    bench.world.inject(Fault::DriverUnloaded);
    let (ctx, mut config) = bench.agent();
    config.settings.fail_on_init_error = false;
    config.admin = Some(Listen::InProcess);
    let services = ctx.services.clone();
    bench.tasks.spawn(node_agent::run(ctx, config));
    pass(5).await;
    let [status, reason, message] = bench.ready();
    assert_eq!((status.as_str(), reason.as_str()), ("False", "DriverNotLoaded"));
    assert!(message.contains("install it"), "{message}");
    assert_eq!(page(&services, "/readyz").await, 503);
    bench.world.inject(Fault::DriverLoaded);
    pass(70).await;
    assert_eq!(bench.ready()[..2], ["True", "AllHealthy"]);
    assert_eq!(page(&services, "/readyz").await, 200);
    let metrics = text(&services, "/metrics").await;
    for line in [
        "trireme_node_agent_registrations_total 1",
        r#"trireme_watch_restarts_total{kind="Pod"} 1"#,
        "trireme_events_dropped_total 0",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }

    bench.kubelet.stop();
    pass(25).await;
    assert_eq!(bench.ready()[0], "True", "it may just be restarting");
    pass(90).await;
    assert_eq!(bench.ready()[..2], ["False", "KubeletSocketMissing"]);
    bench.kubelet.start().unwrap();
    pass(5).await;
    assert_eq!(bench.ready()[..2], ["True", "AllHealthy"]);
}

#[tokio::test(start_paused = true)]
async fn conditions_of_others_stay() {
    let bench = Bench::new("4xL40S").await;
    let api: kube::Api<GpuNode> = kube::Api::all(bench.cluster.client_as("admin"));
    let mut conditions = bench.gpu_node()["status"]["conditions"].as_array().unwrap().clone();
    conditions.push(json!({
        "type": "Drained", "status": "True", "reason": "Repair", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }));
    let patch = kube::api::Patch::Merge(json!({ "status": { "conditions": conditions } }));
    api.patch_status("n1", &kube::api::PatchParams::default(), &patch).await.unwrap();
    bench.world.inject(Fault::Xid { gpu: 1, code: 79 });
    pass(5).await;
    assert_eq!(bench.ready()[..2], ["True", "SomeUnhealthy"]);
    assert_eq!(bench.gpu_node()["status"]["conditions"][1]["type"], "Drained");
}

#[tokio::test(start_paused = true)]
async fn a_choice_that_cannot_be_read_is_told_on_its_pod_and_others_get_theirs() {
    let bench = Bench::new("4xL40S").await;
    bench.annotated_pod("wrong", 1, Some(r#"{"main": [0]}"#)).await;
    bench.pod("right", 1, Some(&[3])).await;
    pass(10).await;
    let uid = bench.get("", "pods", "default", "wrong")["metadata"]["uid"].clone();
    let events = bench.store.list(&GroupResource::core("events"), Some("default"));
    let told: Vec<_> = events
        .iter()
        .map(|event| event.value())
        .filter(|event| event["reason"] == "InvalidDevices")
        .collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!((&told[0]["type"], &told[0]["involvedObject"]["uid"]), (&json!("Warning"), &uid));
    assert!(told[0]["message"].as_str().unwrap().contains("trireme.dev/devices"), "{}", told[0]);
    assert_eq!((bench.phase("wrong").as_str(), bench.given("wrong").len()), ("Running", 1));
    assert_eq!(bench.given("right"), support::set(&[3]));
}
