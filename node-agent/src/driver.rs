//! What the agent needs from a GPU driver, and who can give it: the real NVML, or a fake world.

mod fake;
mod nvml;
mod nvml_raw;

use std::fmt;
use std::sync::Arc;

use crate::topology::Links;

pub use fake::FakeDriver;
pub use nvml::NvmlDriver;

/// A GPU's UUID, `GPU-…`: the one name that survives reboots and re-enumeration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GpuUuid(Arc<str>);

impl GpuUuid {
    /// The UUID with this text.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for GpuUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether a GPU is partitioned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MigMode {
    /// The product cannot be.
    Unsupported,
    /// It could be, and is not.
    Disabled,
    /// It is.
    Enabled,
}

/// One GPU as the driver describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// NVML index; the number by which a scheduler chooses.
    pub index: u32,
    /// UUID; the number by which the kubelet chooses.
    pub uuid: GpuUuid,
    /// Product name.
    pub product: String,
    /// Frame buffer in MiB.
    pub memory_mib: u64,
    /// `00000000:07:00.0`.
    pub pci_bus_id: String,
    /// NUMA node, if the platform tells.
    pub numa_node: Option<u32>,
    /// `/dev/nvidia<minor>`.
    pub minor: u32,
    /// CUDA compute capability, major and minor.
    pub compute: (u32, u32),
    /// Partitioning.
    pub mig: MigMode,
}

/// Versions of the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versions {
    /// Kernel driver, `570.172.08`.
    pub driver: String,
    /// CUDA that it supports, major and minor.
    pub cuda: (u32, u32),
}

/// Everything the driver shows at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enumeration {
    /// Its versions.
    pub versions: Versions,
    /// The GPUs that answered, by index.
    pub gpus: Vec<Gpu>,
    /// Indices that the driver counts but that did not answer, and why.
    pub silent: Vec<(u32, DriverError)>,
    /// How the answering ones are joined.
    pub links: Links,
}

/// What a GPU says when it is asked whether it is well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Probe {
    /// The driver advises to reset the GPU or to reboot.
    pub reset_pending: bool,
    /// A row remapping waits for a reset.
    pub remap_pending: bool,
    /// A row remapping failed: the GPU is to be replaced.
    pub remap_failure: bool,
}

/// What the driver reports by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DriverEvent {
    /// A critical XID. No UUID: the driver did not say of which GPU.
    Xid {
        /// The GPU.
        gpu: Option<GpuUuid>,
        /// The code.
        code: u32,
    },
    /// An uncorrectable memory error.
    DoubleBitEcc {
        /// The GPU.
        gpu: Option<GpuUuid>,
    },
    /// Events cannot be had any more; everything must be looked at.
    WatchBroken(DriverError),
}

/// Takes events, on whatever thread the driver reports them. Must return at once.
pub type EventSink = Arc<dyn Fn(DriverEvent) + Send + Sync>;

/// Ends a watch when it is dropped.
pub type WatchGuard = Box<dyn Send + Sync>;

/// Why the driver did not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DriverError {
    /// The kernel driver is not running.
    #[error("the NVIDIA kernel driver is not loaded: install it, or wait for the driver container")]
    DriverNotLoaded,
    /// `libnvidia-ml.so.1` cannot be loaded.
    #[error("NVML cannot be loaded ({0}): mount the driver's libraries, or set --nvml-library")]
    LibraryMissing(String),
    /// Library and kernel module are of different releases.
    #[error("NVML and the kernel driver are of different releases: reload the driver or restart the agent")]
    LibraryMismatch,
    /// Not allowed to talk to the driver.
    #[error("no permission to talk to the driver: the agent needs the device files")]
    NoPermission,
    /// The GPU fell off the bus.
    #[error("the GPU has fallen off the bus")]
    GpuLost,
    /// There is no such GPU.
    #[error("the driver knows no such GPU")]
    NotFound,
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl DriverError {
    /// The reason token that conditions and metrics carry.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::DriverNotLoaded => "DriverNotLoaded",
            Self::LibraryMissing(_) => "NvmlLibraryMissing",
            Self::LibraryMismatch => "DriverLibraryMismatch",
            Self::NoPermission => "PermissionDenied",
            Self::GpuLost => "GpuLost",
            Self::NotFound => "GpuNotFound",
            Self::Other(_) => "DriverError",
        }
    }
}

/// A source of GPUs. Calls are synchronous; [`call`] keeps the slow ones off the runtime's threads.
pub trait GpuDriver: Send + Sync {
    /// Whether calls may take long (the real driver), so that they belong on a thread of their own.
    fn is_slow(&self) -> bool;

    /// Everything there is.
    ///
    /// # Errors
    /// When the driver as a whole does not answer. A single silent GPU is no error.
    fn enumerate(&self) -> Result<Enumeration, DriverError>;

    /// Asks one GPU whether it is well.
    ///
    /// # Errors
    /// When it does not answer.
    fn probe(&self, gpu: &GpuUuid) -> Result<Probe, DriverError>;

    /// Sends events to `sink` until the guard is dropped.
    ///
    /// # Errors
    /// When the driver has no events to give.
    fn watch(&self, sink: EventSink) -> Result<WatchGuard, DriverError>;
}

/// Runs a question to the driver where it may take its time.
///
/// # Errors
/// The question's own, or [`DriverError::Other`] when it panicked.
pub async fn call<T, F>(driver: &Arc<dyn GpuDriver>, question: F) -> Result<T, DriverError>
where
    T: Send + 'static,
    F: FnOnce(&dyn GpuDriver) -> Result<T, DriverError> + Send + 'static,
{
    if !driver.is_slow() {
        return question(driver.as_ref());
    }
    let driver = driver.clone();
    tokio::task::spawn_blocking(move || question(driver.as_ref()))
        .await
        .unwrap_or_else(|error| Err(DriverError::Other(format!("the call to the driver failed: {error}"))))
}
