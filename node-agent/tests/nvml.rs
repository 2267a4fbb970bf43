//! The real path to the driver, without a GPU: the unmodified `nvml-wrapper` loads fake-nvml's shared library.
//!
//! The library reads its world from environment variables, which are the process': so everything here is one test.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use fake_nvml::{Handle, World, WorldSpec};
use node_agent::driver::{DriverError, DriverEvent, FakeDriver, GpuDriver, NvmlDriver, Probe};

const CHILD: &str = "TRIREME_NVML_TEST_CHILD";

/// Builds the library beside this test, or finds the one that was built before.
fn library() -> Result<PathBuf, String> {
    let folder = std::env::current_exe()
        .ok()
        .and_then(|test| Some(test.parent()?.parent()?.to_owned()))
        .ok_or("the test does not lie in a target folder")?;
    let target = folder.parent().ok_or("the target folder has no parent")?;
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--offline", "-p", "fake-nvml-abi", "--target-dir"]).arg(target);
    if folder.ends_with("release") {
        build.arg("--release");
    }
    let built = build.current_dir(env!("CARGO_MANIFEST_DIR")).output().map_err(|error| error.to_string())?;
    let path = folder.join("libnvidia_ml.so");
    if path.exists() {
        return Ok(path);
    }
    Err(format!("{} was not built: {}", path.display(), String::from_utf8_lossy(&built.stderr)))
}

/// The parent sets the variables before the process starts: changing them in a threaded process is undefined.
#[test]
fn the_unmodified_wrapper_sees_the_fake_world() {
    if std::env::var_os(CHILD).is_some() {
        return in_child();
    }
    let library = match library() {
        Ok(library) => library,
        Err(reason) => {
            eprintln!("SKIPPED the_unmodified_wrapper_sees_the_fake_world: {reason}");
            return;
        }
    };
    let folder = tempfile::tempdir().unwrap();
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_unmodified_wrapper_sees_the_fake_world", "--nocapture"])
        .env(CHILD, &library)
        .env("FAKE_NVML_CONFIG", "8xH100")
        .env("FAKE_NVML_NODE", "node-x")
        .env("FAKE_NVML_FAULTS", folder.path().join("faults.yaml"))
        .status()
        .unwrap();
    assert!(status.success());
}

fn in_child() {
    let faults = PathBuf::from(std::env::var_os("FAKE_NVML_FAULTS").unwrap());
    let driver = NvmlDriver::new(std::env::var_os(CHILD), "/nowhere");
    let fake = FakeDriver::new(Handle::new(World::new(WorldSpec::profile("8xH100").unwrap(), "node-x")));

    // Through C and back nothing is lost: both drivers describe the same machine.
    let seen = driver.enumerate().unwrap();
    assert_eq!(seen, fake.enumerate().unwrap());
    assert_eq!(seen.gpus.len(), 8);
    assert_eq!(seen.links.between(0, 7).unwrap().nvlinks, 18);

    // An XID that another process injects arrives with its GPU, and leaves a reset pending.
    let (sender, events) = mpsc::channel();
    let guard = driver.watch(Arc::new(move |event| sender.send(event).unwrap_or_default())).unwrap();
    let gpu = seen.gpus[3].uuid.clone();
    std::fs::write(&faults, "faults:\n- xid: {gpu: 3, code: 95}\n").unwrap();
    let event = events.recv_timeout(Duration::from_secs(20)).unwrap();
    assert_eq!(event, DriverEvent::Xid { gpu: Some(gpu.clone()), code: 95 });
    assert_eq!(driver.probe(&gpu), Ok(Probe { reset_pending: true, ..Probe::default() }));

    // Recovered, lost, remapped: what a probe says.
    std::fs::write(
        &faults,
        "faults:\n- xid: {gpu: 3, code: 95}\n- recover: {gpu: 3}\n- lost: {gpu: 5}\n- doubleBitEcc: {gpu: 6}\n",
    )
    .unwrap();
    assert_eq!(driver.probe(&gpu), Ok(Probe::default()));
    assert_eq!(driver.probe(&seen.gpus[5].uuid), Err(DriverError::GpuLost));
    assert_eq!(driver.probe(&seen.gpus[6].uuid), Ok(Probe { remap_pending: true, ..Probe::default() }));
    let event = events.recv_timeout(Duration::from_secs(20)).unwrap();
    assert_eq!(event, DriverEvent::DoubleBitEcc { gpu: Some(seen.gpus[6].uuid.clone()) });
    let now = driver.enumerate().unwrap();
    assert_eq!((now.gpus.len(), now.silent), (7, vec![(5, DriverError::GpuLost)]));
    drop(guard);

    // A library that is not there says so.
    let missing = NvmlDriver::new(Some("/nowhere/libnvidia-ml.so.1".into()), "/sys").enumerate().unwrap_err();
    assert_eq!(missing.reason(), "NvmlLibraryMissing");
}
