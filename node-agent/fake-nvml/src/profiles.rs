//! Machines that exist. Bus numbers, NUMA nodes and paths are those that `nvidia-smi topo -m` shows on them.

use crate::spec::{Architecture, ComputeCapability, NvLinkSpec, PcieSpec, WorldSpec};

pub(crate) const NAMES: &[&str] = &["8xA100", "8xH100", "4xL40S"];

pub(crate) fn by_name(name: &str) -> Option<WorldSpec> {
    match name {
        "8xA100" => Some(dgx_a100()),
        "8xH100" => Some(hgx_h100()),
        "4xL40S" => Some(l40s()),
        _ => None,
    }
}

fn machine(product: &str, architecture: Architecture, capability: (u32, u32), buses: &[u32]) -> WorldSpec {
    WorldSpec {
        product: product.to_owned(),
        count: u32::try_from(buses.len()).unwrap_or(0),
        memory_mib: 0,
        architecture,
        compute_capability: ComputeCapability { major: capability.0, minor: capability.1 },
        pci_device_id: 0,
        pci_subsystem_id: 0,
        pci_buses: buses.to_vec(),
        numa_nodes: Vec::new(),
        minor_numbers: Vec::new(),
        uuids: Vec::new(),
        mig_capable: true,
        pcie: PcieSpec::default(),
        nvlink: NvLinkSpec::None,
        power_limit_watts: 400,
        driver_version: "570.172.08".to_owned(),
        cuda_version: ComputeCapability { major: 12, minor: 8 },
    }
}

/// DGX A100 80 GB: pairs behind one PCIe switch, each pair on a NUMA node of its own, six NVSwitches.
fn dgx_a100() -> WorldSpec {
    WorldSpec {
        memory_mib: 81_920,
        pci_device_id: 0x20B2_10DE,
        pci_subsystem_id: 0x1463_10DE,
        numa_nodes: vec![3, 3, 1, 1, 7, 7, 5, 5],
        pcie: PcieSpec {
            same_tree: vec![vec![0, 1], vec![2, 3], vec![4, 5], vec![6, 7]],
            ..PcieSpec::default()
        },
        nvlink: NvLinkSpec::Switch { links_per_gpu: 12, version: 3 },
        ..machine(
            "NVIDIA A100-SXM4-80GB",
            Architecture::Ampere,
            (8, 0),
            &[0x07, 0x0F, 0x47, 0x4E, 0x87, 0x90, 0xB7, 0xBD],
        )
    }
}

/// HGX H100: four GPUs a socket, each behind a switch of its own, four NVSwitches.
fn hgx_h100() -> WorldSpec {
    WorldSpec {
        memory_mib: 81_559,
        pci_device_id: 0x2330_10DE,
        pci_subsystem_id: 0x16C1_10DE,
        numa_nodes: vec![0, 0, 0, 0, 1, 1, 1, 1],
        nvlink: NvLinkSpec::Switch { links_per_gpu: 18, version: 4 },
        power_limit_watts: 700,
        ..machine(
            "NVIDIA H100 80GB HBM3",
            Architecture::Hopper,
            (9, 0),
            &[0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF],
        )
    }
}

/// A two-socket server with four L40S: no NVLink, no MIG, two GPUs below each host bridge.
fn l40s() -> WorldSpec {
    WorldSpec {
        memory_mib: 46_068,
        pci_device_id: 0x26B9_10DE,
        pci_subsystem_id: 0x1851_10DE,
        numa_nodes: vec![0, 0, 1, 1],
        mig_capable: false,
        pcie: PcieSpec { same_bridge: vec![vec![0, 1], vec![2, 3]], ..PcieSpec::default() },
        power_limit_watts: 350,
        ..machine("NVIDIA L40S", Architecture::Ada, (8, 9), &[0x16, 0x38, 0x98, 0xB8])
    }
}
