//! GPUs and drivers in trouble: hung, lost, back, counted anew, never there.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fake_nvml::Fault;
use node_agent::driver::{
    DriverError, DriverEvent, Enumeration, EventSink, FakeDriver, GpuDriver, GpuUuid, Probe, WatchGuard,
};
use support::{Bench, pass};

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
    bench.world.inject(Fault::DriverLoaded);
    pass(12).await;
    assert_eq!(driver.watches.load(Ordering::Relaxed), 2);
    pass(30).await;
    assert_eq!(bench.allocatable(), "4");
}
