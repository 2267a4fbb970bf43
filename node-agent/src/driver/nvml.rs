use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use nvml_wrapper::enum_wrappers::device::TopologyLevel;
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id::NVML_FI_DEV_GET_GPU_RECOVERY_ACTION;
use nvml_wrapper::{Device, Nvml, cuda_driver_version_major, cuda_driver_version_minor};

use super::nvml_raw::{self, EventSet, FarEnd, RawEventKind};
use super::{
    DriverError, DriverEvent, Enumeration, EventSink, Gpu, GpuDriver, GpuUuid, MigMode, Probe, Versions,
    WatchGuard,
};
use crate::topology::{Link, Links, PciePath};

/// NVML knows at most this many links per GPU (`NVML_NVLINK_MAX_LINKS`).
const MAX_LINKS: u32 = 18;

/// How long one wait for events lasts: NVIDIA's plugin waits as long. It bounds how late a dropped watch ends.
const WAIT_MS: u32 = 5_000;

/// Where distributions keep the driver's libraries, below its root.
const LIBRARY_FOLDERS: [&str; 6] = [
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
];

/// NVIDIA among the vendors of PCI devices, as sysfs writes it.
const VENDOR: &str = "0x10de";

/// The library's name.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// The real driver, through NVML.
pub struct NvmlDriver {
    library: Option<OsString>,
    driver_root: Option<PathBuf>,
    sys_root: PathBuf,
    opened: Mutex<Option<Arc<Nvml>>>,
}

impl NvmlDriver {
    /// Uses this library (`libnvidia-ml.so.1`, where the loader finds it, by default) and finds NUMA nodes below
    /// `sys_root` (`/sys`). Nothing is loaded before the first question, so a driver that comes later is found then.
    pub fn new(library: Option<OsString>, sys_root: impl Into<PathBuf>) -> Self {
        Self { library, driver_root: None, sys_root: sys_root.into(), opened: Mutex::new(None) }
    }

    /// Looks for the library below this root first, if none is named: where a container has the host's driver.
    #[must_use]
    pub fn with_driver_root(mut self, root: impl Into<PathBuf>) -> Self {
        self.driver_root = Some(root.into());
        self
    }

    fn library(&self) -> OsString {
        let named = self.library.clone();
        let below = |root: &PathBuf| {
            let paths = LIBRARY_FOLDERS.map(|folder| root.join(folder).join(LIBRARY));
            paths.into_iter().find(|path| path.exists()).map(PathBuf::into_os_string)
        };
        named.or_else(|| self.driver_root.as_ref().and_then(below)).unwrap_or_else(|| LIBRARY.into())
    }

    fn open(&self) -> Result<Arc<Nvml>, DriverError> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(nvml) = &*opened {
            return Ok(nvml.clone());
        }
        let nvml = Arc::new(Nvml::builder().lib_path(&self.library()).init()?);
        *opened = Some(nvml.clone());
        Ok(nvml)
    }

    /// Whether there is nothing of NVIDIA's on the PCI bus. Of machines that have none, such as those with a GPU in their processor,
    /// it is not known.
    fn has_nothing(&self) -> bool {
        let Ok(devices) = std::fs::read_dir(self.sys_root.join("bus/pci/devices")) else { return false };
        let vendor = |device: std::fs::DirEntry| std::fs::read_to_string(device.path().join("vendor"));
        let vendors: Vec<String> = devices.flatten().filter_map(|device| vendor(device).ok()).collect();
        !vendors.is_empty() && vendors.iter().all(|vendor| vendor.trim() != VENDOR)
    }

    /// The library is initialised again by the next question.
    fn close(&self) {
        *self.opened.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl From<NvmlError> for DriverError {
    fn from(error: NvmlError) -> Self {
        match error {
            NvmlError::DriverNotLoaded | NvmlError::Uninitialized => Self::DriverNotLoaded,
            NvmlError::LibloadingError(error) => Self::LibraryMissing(error.to_string()),
            NvmlError::LibRmVersionMismatch => Self::LibraryMismatch,
            NvmlError::NoPermission => Self::NoPermission,
            NvmlError::GpuLost => Self::GpuLost,
            NvmlError::NotFound | NvmlError::InvalidArg => Self::NotFound,
            other => Self::Other(format!("NVML: {other}")),
        }
    }
}

impl GpuDriver for NvmlDriver {
    fn is_slow(&self) -> bool {
        true
    }

    fn enumerate(&self) -> Result<Enumeration, DriverError> {
        let nvml = match self.open() {
            // Nodes without GPUs have no driver: that is as it should be.
            Err(DriverError::LibraryMissing(_) | DriverError::DriverNotLoaded) if self.has_nothing() => {
                return Ok(Enumeration::default());
            }
            opened => opened?,
        };
        let answer = enumerate(&nvml, &self.sys_root);
        // Nothing at all is what a library says that was opened before the driver was loaded anew: the next look opens it
        // afresh, whatever the error is called.
        if answer.is_err() {
            self.close();
        }
        answer
    }

    fn probe(&self, gpu: &GpuUuid) -> Result<Probe, DriverError> {
        let nvml = self.open()?;
        let answer = probe(&nvml, gpu);
        if let Err(DriverError::DriverNotLoaded | DriverError::LibraryMismatch) = &answer {
            self.close();
        }
        answer
    }

    fn watch(&self, sink: EventSink) -> Result<WatchGuard, DriverError> {
        let nvml = self.open()?;
        let mut events = EventSet::new(nvml.clone())?;
        for index in 0..nvml.device_count()? {
            // A GPU that does not answer, or has no events, is covered by the probes.
            if let Ok(device) = nvml.device_by_index(index)
                && let Err(error) = events.add(&device)
            {
                tracing::warn!(index, %error, "this GPU has no events; its health is known by probes only");
            }
        }
        let stop = Arc::new(StopOnDrop(AtomicBool::new(false)));
        let stopped = stop.clone();
        let thread = std::thread::Builder::new().name("nvml-events".to_owned());
        #[expect(
            clippy::disallowed_methods,
            reason = "waiting for NVML's events blocks for as long as it is watched"
        )]
        let spawned = thread.spawn(move || forward(&mut events, &stopped.0, &sink));
        spawned.map_err(|error| DriverError::Other(format!("no thread for events: {error}")))?;
        Ok(Box::new(Guard(stop)))
    }
}

struct StopOnDrop(AtomicBool);

struct Guard(Arc<StopOnDrop>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

fn forward(events: &mut EventSet, stop: &AtomicBool, sink: &EventSink) {
    while !stop.load(Ordering::Relaxed) {
        let event = match events.wait(WAIT_MS) {
            Err(NvmlError::Timeout) => continue,
            Err(error) => {
                sink(DriverEvent::WatchBroken(error.into()));
                return;
            }
            Ok(event) => event,
        };
        let gpu = event.uuid.map(GpuUuid::new);
        match event.kind {
            RawEventKind::Xid(code) => sink(DriverEvent::Xid { gpu, code }),
            RawEventKind::DoubleBitEcc => sink(DriverEvent::DoubleBitEcc { gpu }),
            RawEventKind::Other => {}
        }
    }
}

fn enumerate(nvml: &Nvml, sys_root: &Path) -> Result<Enumeration, DriverError> {
    let cuda = nvml.sys_cuda_driver_version()?;
    let cuda_part = |part: i32| u32::try_from(part).unwrap_or(0);
    let versions = Versions {
        driver: nvml.sys_driver_version()?,
        cuda: (cuda_part(cuda_driver_version_major(cuda)), cuda_part(cuda_driver_version_minor(cuda))),
    };
    let (mut gpus, mut silent) = (Vec::new(), Vec::new());
    for index in 0..nvml.device_count()? {
        match nvml.device_by_index(index).and_then(|device| describe(&device, index, sys_root)) {
            Ok(gpu) => gpus.push(gpu),
            Err(error) => silent.push((index, error.into())),
        }
    }
    let links = links(nvml, &gpus);
    Ok(Enumeration { versions: Some(versions), gpus, silent, links })
}

fn describe(device: &Device<'_>, index: u32, sys_root: &Path) -> Result<Gpu, NvmlError> {
    let pci_bus_id = device.pci_info()?.bus_id;
    let compute = device.cuda_compute_capability()?;
    let part = |part: i32| u32::try_from(part).unwrap_or(0);
    Ok(Gpu {
        index,
        uuid: GpuUuid::new(device.uuid()?),
        product: device.name()?,
        memory_mib: device.memory_info()?.total >> 20,
        numa_node: match in_sysfs(sys_root, &pci_bus_id, "numa_node") {
            // The platform's word; a negative number means that it does not know, and then nobody does.
            Some(node) => node.parse().ok(),
            None => device.numa_node_id().ok(),
        },
        pci_class: in_sysfs(sys_root, &pci_bus_id, "class")
            .and_then(|class| u32::from_str_radix(class.strip_prefix("0x")?, 16).ok()),
        pci_bus_id,
        minor: device.minor_number()?,
        compute: (part(compute.major), part(compute.minor)),
        mig: match device.mig_mode() {
            Ok(mode) if mode.current == 1 => MigMode::Enabled,
            Ok(_) => MigMode::Disabled,
            Err(_) => MigMode::Unsupported,
        },
    })
}

/// What sysfs says of a PCI device, which NVML does not repeat on every machine.
fn in_sysfs(sys_root: &Path, pci_bus_id: &str, attribute: &str) -> Option<String> {
    // NVML writes the domain with eight digits, sysfs with four.
    let name = pci_bus_id.to_lowercase();
    let name = name.strip_prefix("0000").filter(|rest| rest.len() == 12).unwrap_or(&name);
    let path = sys_root.join("bus/pci/devices").join(name).join(attribute);
    Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
}

/// NVLinks of one GPU by where they end.
#[derive(Default)]
struct Fan {
    switched: u32,
    direct: BTreeMap<String, u32>,
}

fn fan(nvml: &Nvml, device: &Device<'_>) -> Fan {
    let mut fan = Fan::default();
    for number in 0..MAX_LINKS {
        let link = device.link_wrapper_for(number);
        match link.is_active() {
            Ok(true) => {}
            Ok(false) => continue,
            // No NVLink at all, or no more of them.
            Err(_) => break,
        }
        match nvml_raw::nvlink_far_end(nvml, device, number) {
            Ok(FarEnd::Switch) => fan.switched += 1,
            Ok(FarEnd::Gpu) => {
                if let Ok(remote) = link.remote_pci_info() {
                    *fan.direct.entry(remote.bus_id.to_lowercase()).or_default() += 1;
                }
            }
            Ok(FarEnd::Other) | Err(_) => {}
        }
    }
    fan
}

fn links(nvml: &Nvml, gpus: &[Gpu]) -> Links {
    let devices: Vec<_> =
        gpus.iter().filter_map(|gpu| Some((gpu, nvml.device_by_index(gpu.index).ok()?))).collect();
    let fans: Vec<Fan> = devices.iter().map(|(_, device)| fan(nvml, device)).collect();
    let mut links = Links::default();
    for (at, (a, first)) in devices.iter().enumerate() {
        for (to, (b, _)) in devices.iter().enumerate().skip(at + 1) {
            let Ok(second) = nvml.device_by_index(b.index) else { continue };
            let path = first.topology_common_ancestor(second).map_or(PciePath::Sys, path);
            let direct = fans[at].direct.get(&b.pci_bus_id.to_lowercase()).copied().unwrap_or(0);
            let nvlinks = direct + fans[at].switched.min(fans[to].switched);
            links.insert(a.index, b.index, Link { path, nvlinks });
        }
    }
    links
}

fn path(level: TopologyLevel) -> PciePath {
    match level {
        TopologyLevel::Internal => PciePath::SameBoard,
        TopologyLevel::Single => PciePath::Pix,
        TopologyLevel::Multiple => PciePath::Pxb,
        TopologyLevel::HostBridge => PciePath::Phb,
        TopologyLevel::Node => PciePath::Node,
        TopologyLevel::System => PciePath::Sys,
    }
}

/// The GPU answers its name, and the driver tells what is pending; what a product does not have is not pending.
fn probe(nvml: &Nvml, gpu: &GpuUuid) -> Result<Probe, DriverError> {
    let device = nvml.device_by_uuid(gpu.as_str())?;
    device.name()?;
    let (remap_pending, remap_failure) = nvml_raw::remapped_rows(nvml, &device).unwrap_or((false, false));
    let pages_pending = device.are_pages_pending_retired().unwrap_or(false);
    let action = device
        .field_values_for(&[FieldId(NVML_FI_DEV_GET_GPU_RECOVERY_ACTION)])
        .ok()
        .and_then(|values| values.into_iter().next()?.ok()?.value.ok());
    let reset_pending = !matches!(action, None | Some(SampleValue::U32(0)));
    Ok(Probe { reset_pending, remap_pending: remap_pending || pages_pending, remap_failure })
}
