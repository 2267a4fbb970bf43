//! The GPUs of this node and their health, as the agent knows them: changed by one task, read by everybody.

use std::collections::{BTreeMap, BTreeSet};

use crate::driver::{DriverError, Enumeration, Gpu, GpuUuid, Probe, Versions};
use crate::health::{self, Ailment, Health, Signal, XidPolicy};
use crate::topology::Links;

/// One GPU and its health.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// What it is.
    pub gpu: Gpu,
    /// Whether it may be given out.
    pub health: Health,
}

/// A change of one GPU's health, for events and metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthChange {
    /// Its index.
    pub index: u32,
    /// Its UUID.
    pub uuid: GpuUuid,
    /// Its health now.
    pub health: Health,
}

/// Everything the agent knows about the GPUs. A GPU that was once seen stays, unhealthy, when it vanishes: the kubelet
/// and the schedulers must not forget what running pods hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    devices: Vec<Device>,
    links: Links,
    versions: Option<Versions>,
    driver_error: Option<DriverError>,
    /// Those that the driver showed when it was last asked for all.
    shown: BTreeSet<GpuUuid>,
    recalled: BTreeMap<GpuUuid, Ailment>,
}

impl Inventory {
    /// All GPUs, by index.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// How they are joined.
    pub fn links(&self) -> &Links {
        &self.links
    }

    /// The driver's versions, as last heard.
    pub fn versions(&self) -> Option<&Versions> {
        self.versions.as_ref()
    }

    /// Why the driver does not answer, if it does not.
    pub fn driver_error(&self) -> Option<&DriverError> {
        self.driver_error.as_ref()
    }

    /// The GPUs that the driver showed when it was last asked for all: events can be had of these.
    pub fn shown(&self) -> &BTreeSet<GpuUuid> {
        &self.shown
    }

    /// The GPU with this id (its UUID).
    pub fn by_id(&self, id: &str) -> Option<&Device> {
        self.devices.iter().find(|device| device.gpu.uuid.as_str() == id)
    }

    /// The GPU with this index.
    pub fn by_index(&self, index: u32) -> Option<&Device> {
        self.devices.iter().find(|device| device.gpu.index == index)
    }

    /// Number of GPUs that may be given out.
    pub fn healthy(&self) -> usize {
        self.devices.iter().filter(|device| device.health.is_healthy()).count()
    }

    /// A planted bug: whatever ails the GPUs is not known.
    pub(crate) fn forget_ailments(&mut self) {
        for device in &mut self.devices {
            device.health = Health::Healthy;
        }
    }

    /// Takes in what GPUs that will be seen suffered from before this process.
    pub fn recall(&mut self, ailments: BTreeMap<GpuUuid, Ailment>) {
        self.recalled = ailments;
    }

    /// Takes in what the driver shows. New GPUs are healthy unless something is recalled of them; one that is silent or gone
    /// is unhealthy; one that is back must pass its probes.
    pub fn enumerated(&mut self, answer: Result<Enumeration, DriverError>) -> Vec<HealthChange> {
        let before = self.healths();
        match answer {
            Ok(seen) => self.take_in(seen),
            Err(error) => {
                let answer = Err(error.clone());
                for device in &mut self.devices {
                    device.health = health::after_probe(&device.health, &answer, 1);
                }
                self.shown.clear();
                self.driver_error = Some(error);
            }
        }
        self.changes_since(&before)
    }

    fn take_in(&mut self, seen: Enumeration) {
        self.driver_error = None;
        self.versions = seen.versions.or(self.versions.take());
        self.shown = seen.gpus.iter().map(|gpu| gpu.uuid.clone()).collect();
        let silent: BTreeMap<u32, DriverError> = seen.silent.into_iter().collect();
        for device in &mut self.devices {
            if !self.shown.contains(&device.gpu.uuid) {
                let error = silent.get(&device.gpu.index).cloned().unwrap_or(DriverError::NotFound);
                device.health = health::after_probe(&device.health, &Err(error), 1);
            }
        }
        // Links of GPUs that did not answer this time are kept as they were.
        for (at, a) in seen.gpus.iter().enumerate() {
            for b in &seen.gpus[at + 1..] {
                if let Some(link) = seen.links.between(a.index, b.index) {
                    self.links.insert(a.index, b.index, link);
                }
            }
        }
        // A replaced GPU takes the index of the one it stands in for, which is gone for good. One that only moved to another
        // index (the driver counts anew without a lost one) stays what it was.
        let taken: BTreeSet<u32> = seen.gpus.iter().map(|gpu| gpu.index).collect();
        self.devices
            .retain(|device| self.shown.contains(&device.gpu.uuid) || !taken.contains(&device.gpu.index));
        for gpu in seen.gpus {
            match self.devices.iter_mut().find(|device| device.gpu.uuid == gpu.uuid) {
                Some(known) => known.gpu = gpu,
                None => {
                    let ailment = self.recalled.remove(&gpu.uuid);
                    let health = ailment.map_or(Health::Healthy, Health::Unhealthy);
                    self.devices.push(Device { gpu, health });
                }
            }
        }
        self.devices.sort_by(|a, b| (a.gpu.index, &a.gpu.uuid).cmp(&(b.gpu.index, &b.gpu.uuid)));
    }

    /// Takes in a signal; one that names no GPU may be any one's, so all take it.
    pub fn signalled(
        &mut self,
        gpu: Option<&GpuUuid>,
        signal: Signal,
        policy: &XidPolicy,
    ) -> Vec<HealthChange> {
        let before = self.healths();
        for device in &mut self.devices {
            if gpu.is_none_or(|uuid| *uuid == device.gpu.uuid) {
                device.health = health::after_signal(&device.health, signal, policy);
            }
        }
        self.changes_since(&before)
    }

    /// Takes in a GPU's answer to a probe.
    pub fn probed(
        &mut self,
        gpu: &GpuUuid,
        answer: &Result<Probe, DriverError>,
        needed: u32,
    ) -> Option<HealthChange> {
        let before = self.healths();
        if let Some(device) = self.devices.iter_mut().find(|device| device.gpu.uuid == *gpu) {
            device.health = health::after_probe(&device.health, answer, needed);
        }
        self.changes_since(&before).pop()
    }

    fn healths(&self) -> BTreeMap<GpuUuid, Health> {
        self.devices.iter().map(|device| (device.gpu.uuid.clone(), device.health.clone())).collect()
    }

    /// What a reader would notice: healthy or not, and why. Counted probes are no news, nor is a GPU that is new and well.
    fn changes_since(&self, before: &BTreeMap<GpuUuid, Health>) -> Vec<HealthChange> {
        let news = |health: &Health| health.ailment().map(|ailment| (ailment.reason, ailment.xid));
        let changed = |device: &&Device| {
            let earlier = before.get(&device.gpu.uuid).and_then(news);
            earlier != news(&device.health)
        };
        self.devices
            .iter()
            .filter(changed)
            .map(|device| HealthChange {
                index: device.gpu.index,
                uuid: device.gpu.uuid.clone(),
                health: device.health.clone(),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::{FakeDriver, GpuDriver};
    use crate::health::Reason;
    use fake_nvml::{Fault, Handle, World, WorldSpec};

    fn node() -> (Handle, FakeDriver, Inventory) {
        let world = Handle::new(World::new(WorldSpec::profile("4xL40S").unwrap(), "n"));
        let driver = FakeDriver::new(world.clone());
        let mut inventory = Inventory::default();
        assert_eq!(inventory.enumerated(driver.enumerate()), []);
        (world, driver, inventory)
    }

    #[test]
    fn a_lost_gpu_stays_unhealthy_until_its_probes_pass() {
        let (world, driver, mut inventory) = node();
        world.inject(Fault::Lost { gpu: 1 });
        let changes = inventory.enumerated(driver.enumerate());
        assert_eq!(changes.len(), 1);
        assert_eq!(changes[0].health.ailment().unwrap().reason, Reason::GpuLost);
        assert_eq!((inventory.devices().len(), inventory.healthy()), (4, 3));
        world.inject(Fault::Recover { gpu: 1 });
        assert_eq!(inventory.enumerated(driver.enumerate()), [], "being there again is not enough");
        let uuid = inventory.by_index(1).unwrap().gpu.uuid.clone();
        assert_eq!(inventory.probed(&uuid, &driver.probe(&uuid), 2), None);
        let change = inventory.probed(&uuid, &driver.probe(&uuid), 2).unwrap();
        assert!(change.health.is_healthy());
        assert_eq!(inventory.healthy(), 4);
    }

    #[test]
    fn a_driver_that_goes_away_makes_all_unhealthy() {
        let (world, driver, mut inventory) = node();
        world.inject(Fault::DriverUnloaded);
        assert_eq!(inventory.enumerated(driver.enumerate()).len(), 4);
        assert_eq!(inventory.driver_error(), Some(&DriverError::DriverNotLoaded));
        assert_eq!(inventory.healthy(), 0);
        world.inject(Fault::DriverLoaded);
        inventory.enumerated(driver.enumerate());
        assert_eq!(inventory.driver_error(), None);
    }

    #[test]
    fn what_was_ill_before_a_restart_is_ill_after_it() {
        let (world, driver, seen) = node();
        let uuid = seen.by_index(2).unwrap().gpu.uuid.clone();
        let ailment = Ailment { reason: Reason::Xid, xid: Some(74), good_probes: 0 };
        let mut inventory = Inventory::default();
        inventory.recall(BTreeMap::from([(uuid.clone(), ailment.clone())]));
        inventory.enumerated(driver.enumerate());
        assert_eq!(inventory.by_index(2).unwrap().health, Health::Unhealthy(ailment));
        assert_eq!(inventory.healthy(), 3);
        assert!(inventory.probed(&uuid, &driver.probe(&uuid), 1).unwrap().health.is_healthy());
        drop(world);
    }

    #[test]
    fn a_signal_without_a_gpu_concerns_all() {
        let (_, _, mut inventory) = node();
        let policy = XidPolicy::default();
        assert_eq!(inventory.signalled(None, Signal::Xid(31), &policy), []);
        assert_eq!(inventory.signalled(None, Signal::Xid(79), &policy).len(), 4);
    }

    /// A driver that is loaded again counts without the GPU that fell off the bus: all behind it move up, and down again
    /// when it is back.
    #[test]
    fn gpus_that_move_to_another_index_keep_their_health() {
        let (_, driver, mut inventory) = node();
        let all = driver.enumerate().unwrap();
        let ill = all.gpus[2].uuid.clone();
        inventory.signalled(Some(&ill), Signal::Xid(79), &XidPolicy::default());
        let health = |inventory: &Inventory| {
            let device = inventory.by_id(ill.as_str()).unwrap();
            (device.gpu.index, device.health.is_healthy())
        };
        let mut without = all.clone();
        without.gpus.remove(1);
        without.gpus.iter_mut().zip(0..).for_each(|(gpu, index)| gpu.index = index);
        inventory.enumerated(Ok(without));
        assert_eq!(health(&inventory), (1, false));
        inventory.enumerated(Ok(all));
        assert_eq!(health(&inventory), (2, false));
        let indices: Vec<u32> = inventory.devices().iter().map(|device| device.gpu.index).collect();
        assert_eq!(indices, [0, 1, 2, 3]);
    }

    #[test]
    fn a_replaced_gpu_takes_the_place_of_the_old_one() {
        let (_, driver, mut inventory) = node();
        let mut seen = driver.enumerate().unwrap();
        seen.gpus[2].uuid = GpuUuid::new("GPU-new");
        inventory.enumerated(Ok(seen));
        assert_eq!(inventory.devices().len(), 4);
        assert_eq!(inventory.by_index(2).unwrap().gpu.uuid.as_str(), "GPU-new");
        assert!(inventory.by_index(2).unwrap().health.is_healthy());
    }
}
