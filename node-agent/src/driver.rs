//! What the agent needs from a GPU driver, and who can give it: the real NVML, or a fake world.

mod fake;
mod nvml;
mod nvml_raw;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

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
    /// PCI class, if the platform tells: `0x030200` is a GPU without a display.
    pub pci_class: Option<u32>,
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Enumeration {
    /// Its versions; `None` where there is no driver, nor anything to drive.
    pub versions: Option<Versions>,
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
    /// A call has not come back: the driver hangs, as it does on a GPU that fell off the bus in the middle of something.
    #[error("the driver has not answered for {0:?}: it hangs")]
    NoAnswer(Duration),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl DriverError {
    /// The reason token that conditions and metrics carry.
    pub fn reason(&self) -> &'static str {
        use crds::reasons::driver;
        match self {
            Self::DriverNotLoaded => driver::NOT_LOADED,
            Self::LibraryMissing(_) => driver::LIBRARY_MISSING,
            Self::LibraryMismatch => driver::LIBRARY_MISMATCH,
            Self::NoPermission => driver::NO_PERMISSION,
            Self::GpuLost => driver::GPU_LOST,
            Self::NotFound => driver::GPU_NOT_FOUND,
            Self::NoAnswer(_) => driver::HANGS,
            Self::Other(_) => driver::OTHER,
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

/// A GPU without persistence mode is initialised by the first question, which takes seconds; more is a hang.
const PATIENCE: Duration = Duration::from_secs(30);

/// A question to a driver. One that is still open is not asked again, so that a driver that hangs costs a bounded number
/// of threads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Question {
    Enumerate,
    Watch,
    Probe(GpuUuid),
}

/// A driver, asked where it may take its time, and not waited for for ever.
#[derive(Clone)]
pub(crate) struct Calls {
    driver: Arc<dyn GpuDriver>,
    patience: Duration,
    open: Arc<Mutex<BTreeSet<Question>>>,
}

impl Calls {
    pub(crate) fn new(driver: Arc<dyn GpuDriver>) -> Self {
        Self { driver, patience: PATIENCE, open: Arc::default() }
    }

    /// Everything there is.
    pub(crate) async fn enumerate(&self) -> Result<Enumeration, DriverError> {
        self.ask(Question::Enumerate, |driver| driver.enumerate()).await
    }

    /// Whether this GPU is well.
    pub(crate) async fn probe(&self, gpu: GpuUuid) -> Result<Probe, DriverError> {
        self.ask(Question::Probe(gpu.clone()), move |driver| driver.probe(&gpu)).await
    }

    /// Events, until the guard is dropped.
    pub(crate) async fn watch(&self, sink: EventSink) -> Result<WatchGuard, DriverError> {
        self.ask(Question::Watch, move |driver| driver.watch(sink)).await
    }

    async fn ask<T, F>(&self, question: Question, call: F) -> Result<T, DriverError>
    where
        T: Send + 'static,
        F: FnOnce(&dyn GpuDriver) -> Result<T, DriverError> + Send + 'static,
    {
        if !self.driver.is_slow() {
            return call(self.driver.as_ref());
        }
        let Some(open) = Open::new(&self.open, question) else {
            return Err(DriverError::NoAnswer(self.patience));
        };
        let driver = self.driver.clone();
        #[expect(clippy::disallowed_methods, reason = "NVML blocks; drivers in a simulation are not slow")]
        let answer = tokio::task::spawn_blocking(move || {
            let _closed_at_the_end = open;
            call(driver.as_ref())
        });
        match tokio::time::timeout(self.patience, answer).await {
            Err(_) => Err(DriverError::NoAnswer(self.patience)),
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => Err(DriverError::Other(format!("the call to the driver failed: {error}"))),
        }
    }
}

/// A question that has not been answered yet.
struct Open {
    all: Arc<Mutex<BTreeSet<Question>>>,
    question: Question,
}

impl Open {
    /// `None` when it is open already.
    fn new(all: &Arc<Mutex<BTreeSet<Question>>>, question: Question) -> Option<Self> {
        let is_new = all.lock().unwrap_or_else(PoisonError::into_inner).insert(question.clone());
        is_new.then(|| Self { all: all.clone(), question })
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.question);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// One GPU hangs until it is told to go on.
    struct Hanging(Mutex<Receiver<()>>);

    impl GpuDriver for Hanging {
        fn is_slow(&self) -> bool {
            true
        }

        fn enumerate(&self) -> Result<Enumeration, DriverError> {
            Err(DriverError::DriverNotLoaded)
        }

        fn probe(&self, gpu: &GpuUuid) -> Result<Probe, DriverError> {
            if gpu.as_str() == "GPU-stuck" {
                let _told = self.0.lock().unwrap().recv();
            }
            Ok(Probe::default())
        }

        fn watch(&self, _: EventSink) -> Result<WatchGuard, DriverError> {
            Err(DriverError::NotFound)
        }
    }

    #[tokio::test]
    async fn a_gpu_that_hangs_is_given_up_and_asked_no_second_time_meanwhile() {
        let (go_on, told): (Sender<()>, _) = channel();
        let mut calls = Calls::new(Arc::new(Hanging(Mutex::new(told))));
        calls.patience = Duration::from_millis(50);
        let hangs = Err(DriverError::NoAnswer(calls.patience));
        let stuck = || calls.probe(GpuUuid::new("GPU-stuck"));
        assert_eq!(stuck().await, hangs);
        assert_eq!(stuck().await, hangs, "the first call has the only thread");
        assert_eq!(calls.probe(GpuUuid::new("GPU-fine")).await, Ok(Probe::default()));
        assert_eq!(calls.enumerate().await, Err(DriverError::DriverNotLoaded));
        go_on.send(()).unwrap();
        go_on.send(()).unwrap();
        while stuck().await == hangs {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
