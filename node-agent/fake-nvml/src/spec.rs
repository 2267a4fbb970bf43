use std::collections::BTreeSet;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::profiles;

/// At most as many GPUs as one NVML index byte of a Linux box has been seen to carry; a wrong `count` must not allocate
/// without bound.
const MAX_GPUS: u32 = 64;

/// NVML knows at most this many links per GPU (`NVML_NVLINK_MAX_LINKS`).
const MAX_LINKS: u32 = 18;

/// GPU generation, numbered as NVML's `nvmlDeviceArchitecture_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[repr(u32)]
pub enum Architecture {
    /// V100.
    Volta = 5,
    /// T4.
    Turing = 6,
    /// A100, A30.
    Ampere = 7,
    /// L4, L40S.
    Ada = 8,
    /// H100, H200.
    Hopper = 9,
    /// B200, GB200.
    Blackwell = 10,
}

/// CUDA compute capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ComputeCapability {
    /// 8 of 8.9.
    pub major: u32,
    /// 9 of 8.9.
    pub minor: u32,
}

/// How the GPUs hang on PCIe.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PcieSpec {
    /// GPUs behind one PCIe switch: their path is PIX.
    #[serde(default)]
    pub same_switch: Vec<Vec<u32>>,
    /// GPUs behind several switches below one root port: PXB.
    #[serde(default)]
    pub same_tree: Vec<Vec<u32>>,
    /// GPUs below one host bridge: PHB.
    #[serde(default)]
    pub same_bridge: Vec<Vec<u32>>,
}

/// How the GPUs are joined by NVLink.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum NvLinkSpec {
    /// No NVLink.
    #[default]
    None,
    /// Every link of every GPU ends at an NVSwitch (DGX and HGX).
    Switch {
        /// Links of each GPU.
        links_per_gpu: u32,
        /// NVLink generation.
        version: u32,
    },
    /// Direct links (DGX-1, NVLink bridges).
    Direct {
        /// `[gpu, gpu, number of links]`.
        pairs: Vec<[u32; 3]>,
        /// NVLink generation.
        version: u32,
    },
}

/// The GPUs of one node, as YAML describes them.
///
/// ```yaml
/// product: NVIDIA A100-SXM4-80GB
/// count: 2
/// memoryMiB: 81920
/// architecture: ampere
/// computeCapability: {major: 8, minor: 0}
/// pciDeviceId: 0x20B210DE
/// nvlink: {kind: switch, linksPerGpu: 12, version: 3}
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorldSpec {
    /// Product name as NVML reports it.
    pub product: String,
    /// Number of GPUs.
    pub count: u32,
    /// Frame buffer of each GPU in MiB.
    #[serde(rename = "memoryMiB")]
    pub memory_mib: u64,
    /// Generation.
    pub architecture: Architecture,
    /// CUDA compute capability.
    pub compute_capability: ComputeCapability,
    /// PCI device and vendor id, e.g. `0x20B210DE`.
    #[serde(default)]
    pub pci_device_id: u32,
    /// PCI subsystem id.
    #[serde(default)]
    pub pci_subsystem_id: u32,
    /// PCI bus of each GPU; default: 1, 2, 3 …
    #[serde(default)]
    pub pci_buses: Vec<u32>,
    /// NUMA node of each GPU; default: none known.
    #[serde(default)]
    pub numa_nodes: Vec<u32>,
    /// Minor number of each GPU (`/dev/nvidia<minor>`); default: its index. On real machines the two orders differ.
    #[serde(default)]
    pub minor_numbers: Vec<u32>,
    /// UUID of each GPU; default: made of node name and index.
    #[serde(default)]
    pub uuids: Vec<String>,
    /// Whether the product can be partitioned (MIG). Instances are not simulated: the mode is always disabled.
    #[serde(default)]
    pub mig_capable: bool,
    /// PCIe paths.
    #[serde(default)]
    pub pcie: PcieSpec,
    /// NVLink.
    #[serde(default)]
    pub nvlink: NvLinkSpec,
    /// Power limit in watts.
    #[serde(default = "default_power_limit")]
    pub power_limit_watts: u32,
    /// Kernel driver version.
    #[serde(default = "default_driver_version")]
    pub driver_version: String,
    /// CUDA version that the driver supports.
    #[serde(default = "default_cuda_version")]
    pub cuda_version: ComputeCapability,
}

fn default_power_limit() -> u32 {
    400
}

fn default_driver_version() -> String {
    "570.172.08".to_owned()
}

fn default_cuda_version() -> ComputeCapability {
    ComputeCapability { major: 12, minor: 8 }
}

/// Why a description of a world cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// Neither a built-in profile nor a readable file.
    #[error("`{name}` is neither a profile ({}) nor a readable file", profiles::NAMES.join(", "))]
    NotFound {
        /// What was asked for.
        name: String,
        /// Why the file could not be read.
        source: std::io::Error,
    },
    /// The file is not YAML of this shape.
    #[error("the world's YAML does not parse: {0}")]
    Yaml(String),
    /// A value is impossible.
    #[error("`{field}`: {reason}")]
    Invalid {
        /// The field's path.
        field: &'static str,
        /// What is wrong and what would be right.
        reason: String,
    },
}

impl WorldSpec {
    /// A built-in machine: `8xA100` (DGX A100 80 GB), `8xH100` (HGX H100), `4xL40S`.
    pub fn profile(name: &str) -> Option<Self> {
        profiles::by_name(name)
    }

    /// Names that [`WorldSpec::profile`] knows.
    pub fn profile_names() -> &'static [&'static str] {
        profiles::NAMES
    }

    /// A profile's name, or the path of a YAML file.
    pub fn load(name_or_path: &str) -> Result<Self, SpecError> {
        if let Some(spec) = Self::profile(name_or_path) {
            return Ok(spec);
        }
        let text = std::fs::read_to_string(Path::new(name_or_path))
            .map_err(|source| SpecError::NotFound { name: name_or_path.to_owned(), source })?;
        Self::from_yaml(&text)
    }

    /// Parses and checks YAML.
    pub fn from_yaml(text: &str) -> Result<Self, SpecError> {
        let spec: Self = serde_saphyr::from_str(text).map_err(|error| SpecError::Yaml(error.to_string()))?;
        spec.checked()
    }

    /// Checks what types cannot: list lengths, indices, uniqueness.
    pub fn checked(self) -> Result<Self, SpecError> {
        let invalid = |field, reason| Err(SpecError::Invalid { field, reason });
        if self.count > MAX_GPUS {
            return invalid(
                "count",
                format!("{} is more than the {MAX_GPUS} GPUs a node may have", self.count),
            );
        }
        if self.product.is_empty() || self.product.len() >= 96 {
            return invalid("product", "must have 1 to 95 characters (NVML's name buffer)".to_owned());
        }
        self.check_lengths()?;
        self.check_indices()?;
        if let NvLinkSpec::Switch { links_per_gpu, .. } = self.nvlink
            && links_per_gpu > MAX_LINKS
        {
            return invalid("nvlink.linksPerGpu", format!("NVML knows at most {MAX_LINKS} links"));
        }
        Ok(self)
    }

    fn check_lengths(&self) -> Result<(), SpecError> {
        let lists: [(&'static str, usize, usize); 4] = [
            ("pciBuses", self.pci_buses.len(), distinct(&self.pci_buses)),
            ("numaNodes", self.numa_nodes.len(), self.numa_nodes.len()),
            ("minorNumbers", self.minor_numbers.len(), distinct(&self.minor_numbers)),
            ("uuids", self.uuids.len(), distinct(&self.uuids)),
        ];
        for (field, length, different) in lists {
            if length != 0 && length != self.count as usize {
                let reason =
                    format!("has {length} entries for {} GPUs: give one each or leave it out", self.count);
                return Err(SpecError::Invalid { field, reason });
            }
            if different != length {
                return Err(SpecError::Invalid {
                    field,
                    reason: "no two GPUs may share an entry".to_owned(),
                });
            }
        }
        Ok(())
    }

    fn check_indices(&self) -> Result<(), SpecError> {
        let known = |index: &u32| *index < self.count;
        let groups = [
            ("pcie.sameSwitch", &self.pcie.same_switch),
            ("pcie.sameTree", &self.pcie.same_tree),
            ("pcie.sameBridge", &self.pcie.same_bridge),
        ];
        for (field, groups) in groups {
            if let Some(index) = groups.iter().flatten().find(|index| !known(index)) {
                return Err(SpecError::Invalid { field, reason: format!("there is no GPU {index}") });
            }
        }
        let NvLinkSpec::Direct { pairs, .. } = &self.nvlink else { return Ok(()) };
        let mut used = vec![0u32; self.count as usize];
        for [a, b, links] in pairs {
            if !known(a) || !known(b) || a == b {
                let reason = format!("[{a}, {b}] is not a pair of different GPUs of this node");
                return Err(SpecError::Invalid { field: "nvlink.pairs", reason });
            }
            for end in [a, b] {
                let total = used[*end as usize].saturating_add(*links);
                if total > MAX_LINKS {
                    let reason = format!("GPU {end} would have more than {MAX_LINKS} links");
                    return Err(SpecError::Invalid { field: "nvlink.pairs", reason });
                }
                used[*end as usize] = total;
            }
        }
        Ok(())
    }
}

fn distinct<T: Ord>(list: &[T]) -> usize {
    list.iter().collect::<BTreeSet<_>>().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = "product: X\ncount: 2\nmemoryMiB: 1024\narchitecture: ada\n\
                         computeCapability: {major: 8, minor: 9}\n";

    #[test]
    fn yaml_worlds_parse_and_wrong_ones_name_the_field() {
        assert_eq!(WorldSpec::from_yaml(SMALL).unwrap().count, 2);
        let wrong = [
            ("count: 65", "count"),
            ("numaNodes: [0]", "numaNodes"),
            ("uuids: [GPU-a, GPU-a]", "uuids"),
            ("minorNumbers: [3, 3]", "minorNumbers"),
            ("pcie: {sameSwitch: [[0, 2]]}", "pcie.sameSwitch"),
            ("nvlink: {kind: direct, version: 2, pairs: [[0, 0, 1]]}", "nvlink.pairs"),
            ("nvlink: {kind: direct, version: 2, pairs: [[0, 1, 19]]}", "nvlink.pairs"),
            ("nvlink: {kind: switch, version: 2, linksPerGpu: 19}", "nvlink.linksPerGpu"),
            ("colour: green", "colour"),
        ];
        for (line, field) in wrong {
            let base =
                if line.starts_with("count") { SMALL.replace("count: 2\n", "") } else { SMALL.to_owned() };
            let error = WorldSpec::from_yaml(&format!("{base}{line}\n")).unwrap_err().to_string();
            assert!(error.contains(field), "{line}: {error}");
        }
    }

    #[test]
    fn profiles_are_valid_and_loadable_by_name() {
        for name in WorldSpec::profile_names() {
            let spec = WorldSpec::load(name).unwrap();
            assert_eq!(spec.clone().checked().unwrap(), spec);
        }
        let error = WorldSpec::load("9xB900").unwrap_err().to_string();
        assert!(error.contains("9xB900") && error.contains("8xA100"), "{error}");
    }
}
