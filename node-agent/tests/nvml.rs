//! The real path to the driver, without a GPU: the unmodified `nvml-wrapper` loads fake-nvml's shared library.
//!
//! The library reads its world from environment variables, which are the process': so everything here is one test.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use fake_nvml::{Handle, World, WorldSpec};
use node_agent::driver::{
    DriverError, DriverEvent, Enumeration, FakeDriver, Gpu, GpuDriver, MigMode, NvmlDriver, Probe,
};

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
    for profile in WorldSpec::profile_names() {
        let folder = tempfile::tempdir().unwrap();
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_unmodified_wrapper_sees_the_fake_world", "--nocapture"])
            .env(CHILD, &library)
            .env("FAKE_NVML_CONFIG", profile)
            .env("FAKE_NVML_NODE", "node-x")
            .env("FAKE_NVML_FAULTS", folder.path().join("faults.yaml"))
            .status()
            .unwrap();
        assert!(status.success(), "{profile}");
    }
}

/// What the platform says of the GPUs, as sysfs does.
fn sysfs(folder: &Path, gpus: &[Gpu]) {
    for gpu in gpus {
        let device = folder.join("bus/pci/devices").join(gpu.pci_bus_id[4..].to_lowercase());
        std::fs::create_dir_all(&device).unwrap();
        let numa = gpu.numa_node.map_or(-1, i64::from);
        std::fs::write(device.join("numa_node"), format!("{numa}\n")).unwrap();
        std::fs::write(device.join("class"), format!("{:#08x}\n", gpu.pci_class.unwrap())).unwrap();
    }
}

fn in_child() {
    let faults = PathBuf::from(std::env::var_os("FAKE_NVML_FAULTS").unwrap());
    let profile = std::env::var("FAKE_NVML_CONFIG").unwrap();
    let fake = FakeDriver::new(Handle::new(World::new(WorldSpec::profile(&profile).unwrap(), "node-x")));
    let wanted = fake.enumerate().unwrap();
    let sys = faults.with_file_name("sys");
    sysfs(&sys, &wanted.gpus);
    let driver = NvmlDriver::new(std::env::var_os(CHILD), &sys);

    // Through C and back nothing is lost: both drivers describe the same machine.
    let seen = driver.enumerate().unwrap();
    assert_eq!(seen, wanted);
    let first = &seen.gpus[0];
    let facts =
        (seen.gpus.len(), first.product.as_str(), first.memory_mib, first.pci_bus_id.as_str(), first.mig);
    match profile.as_str() {
        "8xA100" => {
            assert_eq!(facts, (8, "NVIDIA A100-SXM4-80GB", 81_920, "00000000:07:00.0", MigMode::Disabled));
            return;
        }
        "4xL40S" => {
            assert_eq!(facts, (4, "NVIDIA L40S", 46_068, "00000000:16:00.0", MigMode::Unsupported));
            return;
        }
        _ => assert_eq!(facts, (8, "NVIDIA H100 80GB HBM3", 81_559, "00000000:1B:00.0", MigMode::Disabled)),
    }
    // A platform that does not know the NUMA node is not overruled: NVML's is that of the GPU's memory.
    let device = sys.join("bus/pci/devices/0000:1b:00.0");
    std::fs::write(device.join("numa_node"), "-1\n").unwrap();
    assert_eq!(driver.enumerate().unwrap().gpus[0].numa_node, None);
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

    // A GPU that falls off the bus cannot be asked for its UUID any more; the event is still its own.
    let script = std::fs::read_to_string(&faults).unwrap();
    std::fs::write(&faults, format!("{script}- xid: {{gpu: 1, code: 79}}\n")).unwrap();
    let event = events.recv_timeout(Duration::from_secs(20)).unwrap();
    assert_eq!(event, DriverEvent::Xid { gpu: Some(seen.gpus[1].uuid.clone()), code: 79 });
    drop(guard);
}

/// A library that is not there says so, unless there is nothing on the bus that it would be for.
#[test]
fn a_machine_without_gpus_needs_no_driver() {
    let folder = tempfile::tempdir().unwrap();
    let nvml = || NvmlDriver::new(Some("/nowhere/libnvidia-ml.so.1".into()), folder.path());
    let why = |driver: &NvmlDriver| driver.enumerate().map_err(|error| error.reason());
    assert_eq!(why(&nvml()), Err("NvmlLibraryMissing"), "whether there is a GPU is not known");
    let plug_in = |address: &str, vendor: &str| {
        let device = folder.path().join("bus/pci/devices").join(address);
        std::fs::create_dir_all(&device).unwrap();
        std::fs::write(device.join("vendor"), format!("{vendor}\n")).unwrap();
    };
    plug_in("0000:00:1f.0", "0x8086");
    assert_eq!(why(&nvml()), Ok(Enumeration::default()));
    plug_in("0000:1b:00.0", "0x10de");
    assert_eq!(why(&nvml()), Err("NvmlLibraryMissing"));
}
