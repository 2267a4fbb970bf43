//! Worlds of GPUs that answer as NVML does, driven by YAML.
//!
//! A [`World`] is a plain value: the GPUs of one node, their wiring, a virtual clock that somebody else advances, and
//! faults. A [`Handle`] shares one world between the agent that reads it and the test that breaks it. The C ABI over it
//! (`fake-nvml-abi`) makes the same worlds answer through `libnvidia-ml.so.1`.

mod faults;
mod handle;
mod profiles;
mod spec;
mod status;
mod world;

pub use faults::{Fault, FaultScript, ScheduledFault};
pub use handle::{Handle, Listener, Subscription};
pub use spec::{Architecture, ComputeCapability, NvLinkSpec, PcieSpec, SpecError, WorldSpec};
pub use status::Status;
pub use world::{Ancestor, Event, EventKind, Gpu, LinkEnd, NvLink, RecoveryAction, RemappedRows, World};
