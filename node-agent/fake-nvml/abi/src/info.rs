//! Structures of `nvml.h`, filled from a world.

use std::ffi::{c_char, c_uint};

use fake_nvml::{Gpu, LinkEnd, Status, World};
use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlPciInfo_t};

use crate::library::Library;

fn chars<const N: usize>(text: &str) -> [c_char; N] {
    let mut out = [0; N];
    for (to, byte) in out.iter_mut().take(N - 1).zip(text.bytes()) {
        *to = byte.cast_signed() as c_char;
    }
    out
}

pub(super) fn pci_info(world: &World, gpu: &Gpu) -> nvmlPciInfo_t {
    let id = gpu.pci_bus_id();
    nvmlPciInfo_t {
        busIdLegacy: chars(&id[4..]),
        domain: 0,
        bus: gpu.pci_bus,
        device: 0,
        pciDeviceId: world.spec().pci_device_id,
        pciSubSystemId: world.spec().pci_subsystem_id,
        busId: chars(&id),
    }
}

/// Where NVSwitches are on the bus: above every GPU of the profiles.
pub(super) fn switch_pci_info(number: u32) -> nvmlPciInfo_t {
    let bus = 0xE0 + number;
    let id = format!("00000000:{bus:02X}:00.0");
    nvmlPciInfo_t {
        busIdLegacy: chars(&id[4..]),
        domain: 0,
        bus,
        device: 0,
        pciDeviceId: 0x1AF1_10DE,
        pciSubSystemId: 0,
        busId: chars(&id),
    }
}

pub(super) fn remote_end(library: &Library, device: nvmlDevice_t, link: c_uint) -> Result<LinkEnd, Status> {
    let gpu = library.gpu(device)?;
    Ok(gpu.nvlinks.get(link as usize).ok_or(Status::InvalidArgument)?.remote)
}
