use fake_nvml::{Ancestor, Event, EventKind, Handle, LinkEnd, RecoveryAction, Status, World};

use super::{
    DriverError, DriverEvent, Enumeration, EventSink, Gpu, GpuDriver, GpuUuid, MigMode, Probe, Versions,
    WatchGuard,
};
use crate::topology::{Link, Links, PciePath};
use std::sync::Arc;

/// The PCI class of every product there is a profile of: a 3D controller, not one with a display.
const DISPLAYLESS: u32 = 0x03_02_00;

/// A world of fake GPUs, in this process and without a thread: for the embedded cluster and the simulation.
#[derive(Clone, Debug)]
pub struct FakeDriver(Handle);

impl FakeDriver {
    /// Drives this world; whoever else has the handle can break it.
    pub fn new(world: Handle) -> Self {
        Self(world)
    }
}

impl From<Status> for DriverError {
    fn from(status: Status) -> Self {
        match status {
            Status::DriverNotLoaded => Self::DriverNotLoaded,
            Status::GpuIsLost => Self::GpuLost,
            Status::NotFound | Status::InvalidArgument => Self::NotFound,
            other => Self::Other(other.to_string()),
        }
    }
}

impl GpuDriver for FakeDriver {
    fn is_slow(&self) -> bool {
        false
    }

    fn enumerate(&self) -> Result<Enumeration, DriverError> {
        self.0.read(|world| {
            let spec = world.driver()?;
            let versions = Versions {
                driver: spec.driver_version.clone(),
                cuda: (spec.cuda_version.major, spec.cuda_version.minor),
            };
            let (mut gpus, mut silent) = (Vec::new(), Vec::new());
            for index in 0..world.count()? {
                match world.gpu(index) {
                    Ok(gpu) => gpus.push(describe(world, gpu)),
                    Err(status) => silent.push((index, status.into())),
                }
            }
            let links = links(world, &gpus);
            Ok(Enumeration { versions: Some(versions), gpus, silent, links })
        })
    }

    fn probe(&self, gpu: &GpuUuid) -> Result<Probe, DriverError> {
        self.0.read(|world| {
            let gpu = world.gpu_by_uuid(gpu.as_str())?;
            Ok(Probe {
                reset_pending: gpu.recovery != RecoveryAction::None,
                remap_pending: gpu.remapped.pending,
                remap_failure: gpu.remapped.failure,
            })
        })
    }

    fn watch(&self, sink: EventSink) -> Result<WatchGuard, DriverError> {
        Ok(Box::new(self.0.subscribe(Arc::new(move |world, event| sink(translate(world, event))))))
    }
}

fn describe(world: &World, gpu: &fake_nvml::Gpu) -> Gpu {
    let spec = world.spec();
    Gpu {
        index: gpu.index,
        uuid: GpuUuid::new(gpu.uuid.as_str()),
        product: spec.product.clone(),
        memory_mib: spec.memory_mib,
        pci_bus_id: gpu.pci_bus_id(),
        numa_node: gpu.numa_node,
        pci_class: Some(DISPLAYLESS),
        minor: gpu.minor,
        compute: (spec.compute_capability.major, spec.compute_capability.minor),
        mig: if spec.mig_capable { MigMode::Disabled } else { MigMode::Unsupported },
    }
}

fn links(world: &World, gpus: &[Gpu]) -> Links {
    let mut links = Links::default();
    for (at, a) in gpus.iter().enumerate() {
        for b in &gpus[at + 1..] {
            let Ok(ancestor) = world.common_ancestor(a.index, b.index) else { continue };
            let nvlinks = nvlinks_between(world, a.index, b.index);
            links.insert(a.index, b.index, Link { path: path(ancestor), nvlinks });
        }
    }
    links
}

fn nvlinks_between(world: &World, a: u32, b: u32) -> u32 {
    let count = |gpu: u32, wanted: &dyn Fn(LinkEnd) -> bool| {
        let links = world.gpu(gpu).map(|gpu| gpu.nvlinks.as_slice()).unwrap_or_default();
        u32::try_from(links.iter().filter(|link| wanted(link.remote)).count()).unwrap_or(u32::MAX)
    };
    let switched = |end| matches!(end, LinkEnd::Switch(_));
    count(a, &|end| end == LinkEnd::Gpu(b)) + count(a, &switched).min(count(b, &switched))
}

fn path(ancestor: Ancestor) -> PciePath {
    match ancestor {
        Ancestor::Internal => PciePath::SameBoard,
        Ancestor::SingleSwitch => PciePath::Pix,
        Ancestor::MultipleSwitches => PciePath::Pxb,
        Ancestor::HostBridge => PciePath::Phb,
        Ancestor::Node => PciePath::Node,
        Ancestor::System => PciePath::Sys,
    }
}

fn translate(world: &World, event: &Event) -> DriverEvent {
    let gpu = world.all_gpus().get(event.gpu as usize).map(|gpu| GpuUuid::new(gpu.uuid.as_str()));
    match event.kind {
        EventKind::Xid(code) => DriverEvent::Xid { gpu, code },
        EventKind::DoubleBitEcc => DriverEvent::DoubleBitEcc { gpu },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fake_nvml::{Fault, WorldSpec};
    use std::sync::Mutex;

    fn fake(profile: &str) -> (Handle, FakeDriver) {
        let handle = Handle::new(World::new(WorldSpec::profile(profile).unwrap(), "n"));
        (handle.clone(), FakeDriver::new(handle))
    }

    #[test]
    fn switched_nvlinks_join_every_pair() {
        let (_, driver) = fake("8xA100");
        let seen = driver.enumerate().unwrap();
        assert_eq!(seen.gpus.len(), 8);
        assert_eq!(seen.links.between(0, 1), Some(Link { path: PciePath::Pxb, nvlinks: 12 }));
        assert_eq!(seen.links.between(0, 7), Some(Link { path: PciePath::Sys, nvlinks: 12 }));
    }

    #[test]
    fn a_lost_gpu_is_silent_and_events_name_their_gpu() {
        let (world, driver) = fake("4xL40S");
        let heard = Arc::new(Mutex::new(Vec::new()));
        let sink = heard.clone();
        let guard = driver.watch(Arc::new(move |event| sink.lock().unwrap().push(event))).unwrap();
        world.inject(Fault::Xid { gpu: 2, code: 79 });
        let seen = driver.enumerate().unwrap();
        assert_eq!(seen.gpus.iter().map(|gpu| gpu.index).collect::<Vec<_>>(), [0, 1, 3]);
        assert_eq!(seen.silent, [(2, DriverError::GpuLost)]);
        let uuid = world.read(|world| GpuUuid::new(world.all_gpus()[2].uuid.as_str()));
        assert_eq!(driver.probe(&uuid), Err(DriverError::GpuLost));
        drop(guard);
        world.inject(Fault::DoubleBitEcc { gpu: 0 });
        assert_eq!(*heard.lock().unwrap(), [DriverEvent::Xid { gpu: Some(uuid), code: 79 }]);
    }
}
