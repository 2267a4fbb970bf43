//! The inventory as a `GpuNode`'s status.

use std::collections::BTreeMap;

use crds::api::trireme::v1alpha1::{GpuDevice, GpuHealth, GpuLink, GpuLinkKind, GpuNodeStatus};
use crds::reasons::gpu;
use kit::conditions::Wanted;

use crate::driver::GpuUuid;
use crate::health::{Ailment, Reason};
use crate::inventory::{Device, Inventory};
use crate::topology::{Link, Links, PciePath};

/// How the agent stands with the kubelet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// Nothing is wrong: registered, about to be, or nothing to register.
    #[default]
    Good,
    /// There is no kubelet to register with, for longer than a restart takes.
    NoKubelet,
    /// The kubelet does not take the registration; this is what it says.
    Refused(String),
}

/// Whether pods can be given GPUs of this node, and why not: the first of the rungs from the driver to the kubelet that
/// does not hold. The times come with the writing.
pub fn ready(inventory: &Inventory, standing: &Standing) -> Wanted {
    let (all, healthy) = (inventory.devices().len(), inventory.healthy());
    let counted = format!("{healthy} of {all} GPUs can be given out");
    let (holds, reason, message) = match (inventory.driver_error(), standing) {
        (Some(error), _) => (false, error.reason(), error.to_string()),
        (None, _) if all == 0 => {
            let message = "the driver shows no GPU: either the node has none, or none is visible to it";
            (false, gpu::NO_GPUS, message.to_owned())
        }
        (None, Standing::NoKubelet) => {
            let message = "there is no kubelet to register with: its socket does not exist where the agent looks for \
                           it, or nobody answers there";
            (false, gpu::KUBELET_SOCKET_MISSING, message.to_owned())
        }
        (None, Standing::Refused(answer)) => (
            false,
            gpu::REGISTRATION_REJECTED,
            format!("the kubelet does not take the registration: {answer}"),
        ),
        (None, Standing::Good) if healthy == 0 => {
            (false, gpu::ALL_UNHEALTHY, format!("{counted}; the devices say why"))
        }
        (None, Standing::Good) if healthy < all => {
            (true, gpu::SOME_UNHEALTHY, format!("{counted}; the others say why"))
        }
        (None, Standing::Good) => (true, gpu::ALL_HEALTHY, counted),
    };
    Wanted::new(gpu::READY, holds, reason, message)
}

/// The status that says what this inventory knows; conditions are not part of it.
pub fn status(inventory: &Inventory) -> GpuNodeStatus {
    let versions = inventory.versions();
    GpuNodeStatus {
        driver_version: versions.map(|versions| versions.driver.clone()),
        cuda_version: versions.map(|versions| format!("{}.{}", versions.cuda.0, versions.cuda.1)),
        devices: inventory.devices().iter().map(|known| device(known, inventory.links())).collect(),
        conditions: Vec::new(),
    }
}

/// What a status says that GPUs suffer from.
pub fn ailments(status: &GpuNodeStatus) -> BTreeMap<GpuUuid, Ailment> {
    let ailment = |device: &GpuDevice| {
        let reason = Reason::from_token(device.reason.as_deref()?)?;
        let xid = device.xid.and_then(|code| u32::try_from(code).ok());
        Some((GpuUuid::new(device.uuid.as_str()), Ailment { reason, xid, good_probes: 0 }))
    };
    status.devices.iter().filter(|device| device.health == GpuHealth::Unhealthy).filter_map(ailment).collect()
}

fn device(device: &Device, links: &Links) -> GpuDevice {
    let (gpu, ailment) = (&device.gpu, device.health.ailment());
    GpuDevice {
        index: gpu.index,
        uuid: gpu.uuid.to_string(),
        product: gpu.product.clone(),
        memory_mib: gpu.memory_mib,
        pci_bus_id: Some(gpu.pci_bus_id.clone()),
        numa_node: gpu.numa_node,
        minor: Some(gpu.minor),
        health: if ailment.is_none() { GpuHealth::Healthy } else { GpuHealth::Unhealthy },
        reason: ailment.map(|ailment| ailment.reason.as_str().to_owned()),
        xid: ailment.and_then(|ailment| ailment.xid).map(u64::from),
        links: links.of(gpu.index).map(|(to, link)| best_path(to, link)).collect(),
    }
}

fn best_path(to: u32, link: Link) -> GpuLink {
    if link.nvlinks > 0 {
        return GpuLink { to, kind: GpuLinkKind::NvLink, count: link.nvlinks };
    }
    let kind = match link.path {
        PciePath::SameBoard | PciePath::Pix => GpuLinkKind::Pix,
        PciePath::Pxb => GpuLinkKind::Pxb,
        PciePath::Phb => GpuLinkKind::Phb,
        PciePath::Node => GpuLinkKind::Node,
        PciePath::Sys => GpuLinkKind::Sys,
    };
    GpuLink { to, kind, count: 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::{FakeDriver, GpuDriver};
    use crate::health::{Signal, XidPolicy};
    use fake_nvml::{Fault, Handle, World, WorldSpec};

    #[test]
    fn the_first_rung_that_breaks_is_named() {
        let world = Handle::new(World::new(WorldSpec::profile("4xL40S").unwrap(), "n"));
        let driver = FakeDriver::new(world.clone());
        let mut inventory = Inventory::default();
        let said = |inventory: &Inventory, standing: &Standing| {
            let wanted = ready(inventory, standing);
            (wanted.status.as_str(), wanted.reason)
        };
        let good = Standing::Good;
        assert_eq!(said(&inventory, &good), ("False", "NoGpus".to_owned()));
        inventory.enumerated(driver.enumerate());
        assert_eq!(said(&inventory, &good), ("True", "AllHealthy".to_owned()));
        assert_eq!(said(&inventory, &Standing::NoKubelet), ("False", "KubeletSocketMissing".to_owned()));
        let refused = Standing::Refused("no".to_owned());
        assert_eq!(said(&inventory, &refused), ("False", "RegistrationRejected".to_owned()));
        inventory.signalled(
            Some(&inventory.by_index(2).unwrap().gpu.uuid.clone()),
            Signal::Xid(79),
            &XidPolicy::default(),
        );
        assert_eq!(said(&inventory, &good), ("True", "SomeUnhealthy".to_owned()));
        assert!(ready(&inventory, &good).message.starts_with("3 of 4"));
        inventory.signalled(None, Signal::Xid(79), &XidPolicy::default());
        assert_eq!(said(&inventory, &good), ("False", "AllUnhealthy".to_owned()));
        world.inject(Fault::DriverUnloaded);
        inventory.enumerated(driver.enumerate());
        assert_eq!(said(&inventory, &refused), ("False", "DriverNotLoaded".to_owned()));
    }

    #[test]
    fn an_l40s_node_with_one_ill_gpu() {
        let world = World::new(WorldSpec::profile("4xL40S").unwrap(), "n");
        let mut inventory = Inventory::default();
        inventory.enumerated(FakeDriver::new(Handle::new(world)).enumerate());
        let ill = inventory.by_index(2).unwrap().gpu.uuid.clone();
        inventory.signalled(Some(&ill), Signal::Xid(79), &XidPolicy::default());
        let status = status(&inventory);
        assert_eq!(status.cuda_version.as_deref(), Some("12.8"));
        let health: Vec<_> = status.devices.iter().map(|device| device.health).collect();
        assert_eq!(health.iter().filter(|health| **health == GpuHealth::Unhealthy).count(), 1);
        assert_eq!((status.devices[2].reason.as_deref(), status.devices[2].xid), (Some("Xid"), Some(79)));
        let ailment = Ailment { reason: Reason::Xid, xid: Some(79), good_probes: 0 };
        assert_eq!(ailments(&status), BTreeMap::from([(ill, ailment)]), "it can be recalled from there");
        let links: Vec<_> = status.devices[0].links.iter().map(|link| (link.to, link.kind)).collect();
        assert_eq!(links, [(1, GpuLinkKind::Phb), (2, GpuLinkKind::Sys), (3, GpuLinkKind::Sys)]);
    }
}
