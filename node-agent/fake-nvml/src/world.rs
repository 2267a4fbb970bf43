use std::collections::VecDeque;

use crate::faults::{Fault, ScheduledFault};
use crate::spec::{NvLinkSpec, WorldSpec};
use crate::status::Status;

/// Events kept for readers that have not come yet; the driver's own queue is bounded too, and drops the oldest.
const MAX_EVENTS: usize = 1024;

/// XIDs after which the driver asks for a reset before the GPU is used again (NVIDIA's XID catalogue).
const RESET_XIDS: [u32; 8] = [48, 64, 74, 95, 119, 120, 140, 143];

/// XID of a GPU that has fallen off the bus.
const OFF_BUS_XID: u32 = 79;

/// XID of a failed row remapping.
const REMAP_FAILURE_XID: u32 = 64;

/// The closest place where the paths of two GPUs meet, numbered as NVML's `nvmlGpuTopologyLevel_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Ancestor {
    /// The same GPU, or the same board.
    Internal = 0,
    /// One PCIe switch (PIX).
    SingleSwitch = 10,
    /// Several PCIe switches (PXB).
    MultipleSwitches = 20,
    /// One host bridge (PHB).
    HostBridge = 30,
    /// One NUMA node (NODE).
    Node = 40,
    /// Across sockets (SYS).
    System = 50,
}

/// What the driver advises, numbered as NVML's `nvmlDeviceGpuRecoveryAction_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum RecoveryAction {
    /// Nothing to do.
    None = 0,
    /// Reset the GPU.
    GpuReset = 1,
    /// Reboot the node.
    NodeReboot = 2,
}

/// The far end of an NVLink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkEnd {
    /// A GPU of this node, by index.
    Gpu(u32),
    /// An NVSwitch, by number.
    Switch(u32),
}

/// One NVLink of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NvLink {
    /// Link number on this GPU.
    pub link: u32,
    /// Generation.
    pub version: u32,
    /// Where it goes.
    pub remote: LinkEnd,
}

/// Row remapping as `nvmlDeviceGetRemappedRows` tells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemappedRows {
    /// Rows remapped for uncorrectable errors.
    pub uncorrectable: u32,
    /// A remapping waits for a reset.
    pub pending: bool,
    /// A remapping failed: the GPU is to be replaced.
    pub failure: bool,
}

/// What an event says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A critical XID.
    Xid(u32),
    /// A double-bit ECC error.
    DoubleBitEcc,
}

impl EventKind {
    /// NVML's bit for this kind of event (`nvmlEventType*`).
    pub fn mask(self) -> u64 {
        match self {
            Self::DoubleBitEcc => 2,
            Self::Xid(_) => 8,
        }
    }
}

/// Something that the driver reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Position in the world's history, from 1.
    pub sequence: u64,
    /// When, in milliseconds of the world's clock.
    pub at_ms: u64,
    /// Index of the GPU.
    pub gpu: u32,
    /// What.
    pub kind: EventKind,
}

/// One GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// NVML index.
    pub index: u32,
    /// `GPU-…`.
    pub uuid: String,
    /// PCI bus number; domain and device are 0.
    pub pci_bus: u32,
    /// NUMA node, if known.
    pub numa_node: Option<u32>,
    /// `/dev/nvidia<minor>`.
    pub minor: u32,
    /// Links, by number.
    pub nvlinks: Vec<NvLink>,
    /// Row remapping.
    pub remapped: RemappedRows,
    /// What the driver advises.
    pub recovery: RecoveryAction,
    lost: bool,
}

impl Gpu {
    /// `00000000:07:00.0`, as NVML writes it.
    pub fn pci_bus_id(&self) -> String {
        format!("00000000:{:02X}:00.0", self.pci_bus)
    }
}

/// The GPUs of one node at one moment.
#[derive(Clone, Debug)]
pub struct World {
    spec: WorldSpec,
    gpus: Vec<Gpu>,
    driver_loaded: bool,
    now_ms: u64,
    scheduled: Vec<ScheduledFault>,
    events: VecDeque<Event>,
    last_sequence: u64,
}

impl World {
    /// A healthy world. UUIDs are made of the node's name and the index, so they are the same in every run.
    ///
    /// The spec must be [checked](WorldSpec::checked); lists that are too short fall back to their defaults.
    pub fn new(spec: WorldSpec, node: &str) -> Self {
        let gpus = (0..spec.count).map(|index| gpu(&spec, node, index)).collect();
        Self {
            spec,
            gpus,
            driver_loaded: true,
            now_ms: 0,
            scheduled: Vec::new(),
            events: VecDeque::new(),
            last_sequence: 0,
        }
    }

    /// What this world was made of.
    pub fn spec(&self) -> &WorldSpec {
        &self.spec
    }

    /// Whether the driver runs; every other question fails when it does not.
    pub fn driver(&self) -> Result<&WorldSpec, Status> {
        if self.driver_loaded { Ok(&self.spec) } else { Err(Status::DriverNotLoaded) }
    }

    /// Number of GPUs, lost ones included.
    pub fn count(&self) -> Result<u32, Status> {
        self.driver().map(|spec| spec.count)
    }

    /// A GPU that answers.
    pub fn gpu(&self, index: u32) -> Result<&Gpu, Status> {
        self.driver()?;
        let gpu = self.gpus.get(index as usize).ok_or(Status::InvalidArgument)?;
        if gpu.lost { Err(Status::GpuIsLost) } else { Ok(gpu) }
    }

    /// A GPU that answers, by UUID.
    pub fn gpu_by_uuid(&self, uuid: &str) -> Result<&Gpu, Status> {
        self.driver()?;
        let gpu = self.gpus.iter().find(|gpu| gpu.uuid == uuid).ok_or(Status::NotFound)?;
        self.gpu(gpu.index)
    }

    /// Every GPU as the test sees it, whatever the driver says.
    pub fn all_gpus(&self) -> &[Gpu] {
        &self.gpus
    }

    /// Where the PCIe paths of two GPUs meet.
    pub fn common_ancestor(&self, a: u32, b: u32) -> Result<Ancestor, Status> {
        let (first, second) = (self.gpu(a)?, self.gpu(b)?);
        if a == b {
            return Ok(Ancestor::Internal);
        }
        let together =
            |groups: &[Vec<u32>]| groups.iter().any(|group| group.contains(&a) && group.contains(&b));
        let pcie = &self.spec.pcie;
        let levels = [
            (together(&pcie.same_switch), Ancestor::SingleSwitch),
            (together(&pcie.same_tree), Ancestor::MultipleSwitches),
            (together(&pcie.same_bridge), Ancestor::HostBridge),
            (first.numa_node == second.numa_node, Ancestor::Node),
        ];
        Ok(levels.iter().find(|(holds, _)| *holds).map_or(Ancestor::System, |(_, level)| *level))
    }

    /// The world's clock in milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// Advances the clock (never backwards) and lets happen what was scheduled until then, in order of time, then of
    /// scheduling.
    pub fn advance_to(&mut self, now_ms: u64) {
        let mut due: Vec<_> = Vec::new();
        self.scheduled.retain(|entry| {
            let keep = entry.at_ms > now_ms;
            if !keep {
                due.push(*entry);
            }
            keep
        });
        due.sort_by_key(|entry| entry.at_ms);
        for entry in due {
            self.now_ms = self.now_ms.max(entry.at_ms);
            self.inject(entry.fault);
        }
        self.now_ms = self.now_ms.max(now_ms);
    }

    /// Lets a fault happen later.
    pub fn schedule(&mut self, fault: ScheduledFault) {
        self.scheduled.push(fault);
    }

    /// Lets a fault happen now. A fault of a GPU that does not exist does nothing.
    pub fn inject(&mut self, fault: Fault) {
        match fault {
            Fault::Xid { gpu, code } => {
                let Some(target) = self.gpus.get_mut(gpu as usize) else { return };
                if RESET_XIDS.contains(&code) {
                    target.recovery = RecoveryAction::GpuReset;
                }
                if code == REMAP_FAILURE_XID {
                    target.remapped.failure = true;
                }
                if code == OFF_BUS_XID {
                    target.lost = true;
                }
                self.report(gpu, EventKind::Xid(code));
            }
            Fault::DoubleBitEcc { gpu } => {
                let Some(target) = self.gpus.get_mut(gpu as usize) else { return };
                target.remapped.uncorrectable = target.remapped.uncorrectable.saturating_add(1);
                target.remapped.pending = true;
                self.report(gpu, EventKind::DoubleBitEcc);
            }
            Fault::Lost { gpu } => {
                if let Some(target) = self.gpus.get_mut(gpu as usize) {
                    target.lost = true;
                }
            }
            Fault::Recover { gpu } => {
                if let Some(target) = self.gpus.get_mut(gpu as usize) {
                    target.lost = false;
                    target.recovery = RecoveryAction::None;
                    target.remapped.pending = false;
                    target.remapped.failure = false;
                }
            }
            Fault::DriverUnloaded => self.driver_loaded = false,
            Fault::DriverLoaded => self.driver_loaded = true,
        }
    }

    /// The first event after `sequence` that `wanted` accepts.
    pub fn event_after(&self, sequence: u64, wanted: impl Fn(&Event) -> bool) -> Option<Event> {
        self.events.iter().find(|event| event.sequence > sequence && wanted(event)).copied()
    }

    /// The sequence number of the newest event; 0 before the first.
    pub fn last_sequence(&self) -> u64 {
        self.last_sequence
    }

    fn report(&mut self, gpu: u32, kind: EventKind) {
        self.last_sequence += 1;
        self.events.push_back(Event { sequence: self.last_sequence, at_ms: self.now_ms, gpu, kind });
        if self.events.len() > MAX_EVENTS {
            self.events.pop_front();
        }
    }
}

fn gpu(spec: &WorldSpec, node: &str, index: u32) -> Gpu {
    let at = index as usize;
    Gpu {
        index,
        uuid: spec.uuids.get(at).cloned().unwrap_or_else(|| uuid(node, index)),
        pci_bus: spec.pci_buses.get(at).copied().unwrap_or(index + 1),
        numa_node: spec.numa_nodes.get(at).copied(),
        minor: spec.minor_numbers.get(at).copied().unwrap_or(index),
        nvlinks: nvlinks(&spec.nvlink, index),
        remapped: RemappedRows::default(),
        recovery: RecoveryAction::None,
        lost: false,
    }
}

fn nvlinks(spec: &NvLinkSpec, index: u32) -> Vec<NvLink> {
    match spec {
        NvLinkSpec::None => Vec::new(),
        // Links are spread over the switches in turn; six is what DGX A100 has, and the number does not matter to
        // anyone who only asks whether the far end is a switch.
        NvLinkSpec::Switch { links_per_gpu, version } => (0..*links_per_gpu)
            .map(|link| NvLink { link, version: *version, remote: LinkEnd::Switch(link % 6) })
            .collect(),
        NvLinkSpec::Direct { pairs, version } => pairs
            .iter()
            .filter_map(|[a, b, links]| match (*a == index, *b == index) {
                (true, _) => Some((*b, *links)),
                (_, true) => Some((*a, *links)),
                _ => None,
            })
            .flat_map(|(peer, links)| std::iter::repeat_n(peer, links as usize))
            .zip(0..)
            .map(|(peer, link)| NvLink { link, version: *version, remote: LinkEnd::Gpu(peer) })
            .collect(),
    }
}

/// A UUID of the shape NVML gives, made of 128 hashed bits (FNV-1a, two seeds).
fn uuid(node: &str, index: u32) -> String {
    let hash = |seed: u64| {
        node.bytes()
            .chain([0])
            .chain(index.to_le_bytes())
            .fold(seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3))
    };
    let (high, low) = (hash(0xCBF2_9CE4_8422_2325), hash(0x9E37_79B9_7F4A_7C15));
    format!(
        "GPU-{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xFFFF,
        high & 0xFFFF,
        low >> 48,
        low & 0xFFFF_FFFF_FFFF
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn world(profile: &str) -> World {
        World::new(WorldSpec::profile(profile).unwrap(), "node-a")
    }

    #[test]
    fn uuids_are_stable_and_differ_between_gpus_and_nodes() {
        let uuids = |node| -> Vec<String> {
            let world = World::new(WorldSpec::profile("8xA100").unwrap(), node);
            world.all_gpus().iter().map(|gpu| gpu.uuid.clone()).collect()
        };
        assert_eq!(uuids("a"), uuids("a"));
        let all: BTreeSet<_> = ["a", "b", "node-1", "node-11"].into_iter().flat_map(uuids).collect();
        assert_eq!(all.len(), 32);
        assert!(all.iter().all(|uuid| uuid.len() == 40 && uuid.starts_with("GPU-")));
    }

    #[test]
    fn paths_follow_the_wiring() {
        let cases = [
            ("8xA100", 0, 1, Ancestor::MultipleSwitches),
            ("8xA100", 0, 2, Ancestor::System),
            ("8xH100", 0, 3, Ancestor::Node),
            ("8xH100", 3, 4, Ancestor::System),
            ("4xL40S", 2, 3, Ancestor::HostBridge),
            ("4xL40S", 2, 2, Ancestor::Internal),
        ];
        for (profile, a, b, expected) in cases {
            let world = world(profile);
            assert_eq!(world.common_ancestor(a, b), Ok(expected), "{profile} {a} {b}");
            assert_eq!(world.common_ancestor(b, a), Ok(expected), "{profile} {b} {a}");
        }
    }

    #[test]
    fn direct_links_are_seen_from_both_ends() {
        let spec = NvLinkSpec::Direct { pairs: vec![[0, 1, 2], [1, 2, 1]], version: 2 };
        let remotes = |index| nvlinks(&spec, index).iter().map(|link| link.remote).collect::<Vec<_>>();
        assert_eq!(remotes(0), [LinkEnd::Gpu(1), LinkEnd::Gpu(1)]);
        assert_eq!(remotes(1), [LinkEnd::Gpu(0), LinkEnd::Gpu(0), LinkEnd::Gpu(2)]);
        assert_eq!(remotes(2), [LinkEnd::Gpu(1)]);
    }

    #[test]
    fn faults_happen_and_pass() {
        let mut world = world("4xL40S");
        world.inject(Fault::Xid { gpu: 1, code: 79 });
        assert_eq!(world.gpu(1).unwrap_err(), Status::GpuIsLost);
        assert_eq!(world.count(), Ok(4));
        world.inject(Fault::Recover { gpu: 1 });
        assert!(world.gpu(1).is_ok());
        world.inject(Fault::Xid { gpu: 2, code: 64 });
        let gpu = world.gpu(2).unwrap();
        assert!(gpu.remapped.failure && gpu.recovery == RecoveryAction::GpuReset);
        world.inject(Fault::DriverUnloaded);
        assert_eq!(world.count(), Err(Status::DriverNotLoaded));
        world.inject(Fault::Xid { gpu: 99, code: 79 });
        assert_eq!(world.last_sequence(), 2);
    }

    #[test]
    fn scheduled_faults_happen_in_order_of_time() {
        let mut world = world("4xL40S");
        world.schedule(ScheduledFault { at_ms: 20, fault: Fault::Recover { gpu: 0 } });
        world.schedule(ScheduledFault { at_ms: 10, fault: Fault::Xid { gpu: 0, code: 79 } });
        world.advance_to(15);
        assert_eq!(world.gpu(0).unwrap_err(), Status::GpuIsLost);
        world.advance_to(30);
        assert!(world.gpu(0).is_ok());
        let event = world.event_after(0, |_| true).unwrap();
        assert_eq!((event.at_ms, event.kind), (10, EventKind::Xid(79)));
        assert_eq!(world.event_after(event.sequence, |_| true), None);
    }
}
