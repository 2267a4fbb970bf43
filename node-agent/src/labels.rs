//! The Node labels of GPU feature discovery, by its names and in its words.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value};

use crate::config::MigStrategy;
use crate::driver::{Gpu, MigMode};
use crate::inventory::Inventory;

/// When the labels were last computed; alone it is no reason to write.
const TIMESTAMP: &str = "nvidia.com/gfd.timestamp";

/// Every label that this agent sets or removes. Labels of other programs with the same prefix are left alone.
const OWN: [&str; 25] = [
    "nvidia.com/cuda.driver.major",
    "nvidia.com/cuda.driver.minor",
    "nvidia.com/cuda.driver.rev",
    "nvidia.com/cuda.driver-version.major",
    "nvidia.com/cuda.driver-version.minor",
    "nvidia.com/cuda.driver-version.revision",
    "nvidia.com/cuda.driver-version.full",
    "nvidia.com/cuda.runtime.major",
    "nvidia.com/cuda.runtime.minor",
    "nvidia.com/cuda.runtime-version.major",
    "nvidia.com/cuda.runtime-version.minor",
    "nvidia.com/cuda.runtime-version.full",
    "nvidia.com/gpu.machine",
    "nvidia.com/gpu.count",
    "nvidia.com/gpu.product",
    "nvidia.com/gpu.memory",
    "nvidia.com/gpu.replicas",
    "nvidia.com/gpu.sharing-strategy",
    "nvidia.com/gpu.family",
    "nvidia.com/gpu.compute.major",
    "nvidia.com/gpu.compute.minor",
    "nvidia.com/gpu.mode",
    "nvidia.com/mps.capable",
    "nvidia.com/mig.capable",
    "nvidia.com/mig.strategy",
];

/// Label values have at most 63 characters (k8s.io/apimachinery, validation of label values).
const MAX_VALUE: usize = 63;

/// The labels that this inventory deserves; none without a GPU.
pub fn labels(inventory: &Inventory, strategy: MigStrategy, machine: &str) -> BTreeMap<String, String> {
    let gpus: Vec<&Gpu> = inventory.devices().iter().map(|device| &device.gpu).collect();
    let (Some(first), Some(versions)) = (gpus.first(), inventory.versions()) else {
        return BTreeMap::new();
    };
    let mut labels = BTreeMap::new();
    let mut set = |name: &str, value: String| {
        labels.insert(format!("nvidia.com/{name}"), sanitise(&value));
    };
    driver_labels(&versions.driver, &mut set);
    let (major, minor) = versions.cuda;
    for prefix in ["cuda.runtime", "cuda.runtime-version"] {
        set(&format!("{prefix}.major"), major.to_string());
        set(&format!("{prefix}.minor"), minor.to_string());
    }
    set("cuda.runtime-version.full", format!("{major}.{minor}"));
    set("gpu.machine", machine.to_owned());
    set("gpu.count", gpus.len().to_string());
    // On a node with several products the first by index names it; the GpuNode lists them all.
    set("gpu.product", first.product.clone());
    set("gpu.memory", first.memory_mib.to_string());
    set("gpu.replicas", "1".to_owned());
    set("gpu.sharing-strategy", "none".to_owned());
    set("gpu.family", family(first.compute).to_owned());
    set("gpu.compute.major", first.compute.0.to_string());
    set("gpu.compute.minor", first.compute.1.to_string());
    set("gpu.mode", mode(&gpus).to_owned());
    // GFD looks at the GPUs only where its configuration shares them by MPS, which this agent's cannot yet.
    set("mps.capable", "false".to_owned());
    set("mig.capable", gpus.iter().any(|gpu| gpu.mig != MigMode::Unsupported).to_string());
    if strategy != MigStrategy::None {
        set("mig.strategy", strategy.as_str().to_owned());
    }
    labels
}

fn driver_labels(version: &str, set: &mut impl FnMut(&str, String)) {
    let mut parts = version.splitn(3, '.');
    let [major, minor, revision] = [parts.next(), parts.next(), parts.next()].map(Option::unwrap_or_default);
    let values = [
        ("cuda.driver.major", major),
        ("cuda.driver.minor", minor),
        ("cuda.driver.rev", revision),
        ("cuda.driver-version.major", major),
        ("cuda.driver-version.minor", minor),
        ("cuda.driver-version.revision", revision),
        ("cuda.driver-version.full", version),
    ];
    for (name, value) in values {
        set(name, value.to_owned());
    }
}

/// What the GPUs are for, by their PCI class: with a display or without, if all are alike.
fn mode(gpus: &[&Gpu]) -> &'static str {
    let class = gpus.first().and_then(|gpu| gpu.pci_class);
    if gpus.iter().any(|gpu| gpu.pci_class != class) {
        return "unknown";
    }
    // The last byte is the programming interface.
    match class.map(|class| class >> 8) {
        Some(0x03_00) => "graphics",
        Some(0x03_02) => "compute",
        _ => "unknown",
    }
}

/// GFD's names of the generations, by compute capability.
fn family(compute: (u32, u32)) -> &'static str {
    match compute {
        (1, _) => "tesla",
        (2, _) => "fermi",
        (3, _) => "kepler",
        (5, _) => "maxwell",
        (6, _) => "pascal",
        (7, 5) => "turing",
        (7, _) => "volta",
        (8, 9) => "ada-lovelace",
        (8, _) => "ampere",
        (9, _) => "hopper",
        (10 | 12, _) => "blackwell",
        (13, _) => "rubin",
        _ => "undefined",
    }
}

/// What may stand in a label's value: other characters are dropped, spaces become dashes, ends are alphanumeric.
fn sanitise(value: &str) -> String {
    let kept: String = value
        .trim()
        .chars()
        .filter_map(|char| match char {
            ' ' => Some('-'),
            char if char.is_ascii_alphanumeric() || "-_.".contains(char) => Some(char),
            _ => None,
        })
        .take(MAX_VALUE)
        .collect();
    kept.trim_matches(|char: char| !char.is_ascii_alphanumeric()).to_owned()
}

/// The machine's product name, or `unknown`.
pub fn machine(file: &Path) -> String {
    let name = std::fs::read_to_string(file).unwrap_or_default();
    if name.trim().is_empty() { "unknown".to_owned() } else { name.trim().to_owned() }
}

/// The labels of a merge patch that makes `present` what it should be: changed ones, and null for own ones that are
/// stale. `None` when nothing is to be done. With a timestamp (Unix seconds) every patch carries it.
pub fn patch(
    present: &BTreeMap<String, String>,
    wanted: &BTreeMap<String, String>,
    timestamp: Option<i64>,
) -> Option<Map<String, Value>> {
    let mut patch = Map::new();
    for (name, value) in wanted {
        if present.get(name) != Some(value) {
            patch.insert(name.clone(), Value::from(value.as_str()));
        }
    }
    for name in OWN {
        if present.contains_key(name) && !wanted.contains_key(name) {
            patch.insert(name.to_owned(), Value::Null);
        }
    }
    let stale_timestamp = present.contains_key(TIMESTAMP) && (wanted.is_empty() || timestamp.is_none());
    match timestamp {
        _ if stale_timestamp => {
            patch.insert(TIMESTAMP.to_owned(), Value::Null);
        }
        Some(seconds) if !patch.is_empty() && !wanted.is_empty() => {
            patch.insert(TIMESTAMP.to_owned(), Value::from(seconds.to_string()));
        }
        _ => {}
    }
    (!patch.is_empty()).then_some(patch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::{FakeDriver, GpuDriver};
    use fake_nvml::{Handle, World, WorldSpec};

    fn inventory(profile: &str) -> Inventory {
        let world = World::new(WorldSpec::profile(profile).unwrap(), "n");
        let mut inventory = Inventory::default();
        inventory.enumerated(FakeDriver::new(Handle::new(world)).enumerate());
        inventory
    }

    #[test]
    fn an_a100_node() {
        let labels = labels(&inventory("8xA100"), MigStrategy::None, "DGXA100 920-23687-2530-000 (rev 1)");
        let expected = [
            ("cuda.driver-version.full", "570.172.08"),
            ("cuda.driver-version.major", "570"),
            ("cuda.driver-version.minor", "172"),
            ("cuda.driver-version.revision", "08"),
            ("cuda.driver.major", "570"),
            ("cuda.driver.minor", "172"),
            ("cuda.driver.rev", "08"),
            ("cuda.runtime-version.full", "12.8"),
            ("cuda.runtime-version.major", "12"),
            ("cuda.runtime-version.minor", "8"),
            ("cuda.runtime.major", "12"),
            ("cuda.runtime.minor", "8"),
            ("gpu.compute.major", "8"),
            ("gpu.compute.minor", "0"),
            ("gpu.count", "8"),
            ("gpu.family", "ampere"),
            ("gpu.machine", "DGXA100-920-23687-2530-000-rev-1"),
            ("gpu.memory", "81920"),
            ("gpu.mode", "compute"),
            ("gpu.product", "NVIDIA-A100-SXM4-80GB"),
            ("gpu.replicas", "1"),
            ("gpu.sharing-strategy", "none"),
            ("mig.capable", "true"),
            ("mps.capable", "false"),
        ];
        let listed: Vec<_> = labels
            .iter()
            .map(|(name, value)| (name.strip_prefix("nvidia.com/").unwrap(), value.as_str()))
            .collect();
        assert_eq!(listed, expected);
        assert!(labels.keys().all(|name| OWN.contains(&name.as_str())));
    }

    #[test]
    fn other_machines() {
        let l40s = labels(&inventory("4xL40S"), MigStrategy::Mixed, "unknown");
        assert_eq!(l40s["nvidia.com/gpu.family"], "ada-lovelace");
        assert_eq!(l40s["nvidia.com/mig.capable"], "false");
        assert_eq!(l40s["nvidia.com/mig.strategy"], "mixed");
        assert_eq!(l40s["nvidia.com/gpu.product"], "NVIDIA-L40S");
        assert_eq!(l40s["nvidia.com/gpu.memory"], "46068");
        let h100 = labels(&inventory("8xH100"), MigStrategy::None, "unknown");
        assert_eq!(h100["nvidia.com/gpu.family"], "hopper");
        assert_eq!(h100["nvidia.com/gpu.product"], "NVIDIA-H100-80GB-HBM3");
        assert_eq!(h100["nvidia.com/gpu.memory"], "81559");
        assert_eq!(h100["nvidia.com/gpu.compute.major"], "9");
        assert!(labels(&Inventory::default(), MigStrategy::None, "x").is_empty());
        assert_eq!(sanitise(&"x".repeat(70)).len(), 63);
        assert_eq!(sanitise(" (NVIDIA) µ H100/80GB. "), "NVIDIA--H10080GB");
    }

    #[test]
    fn gpus_with_a_display_are_for_graphics() {
        let inventory = inventory("4xL40S");
        let mut gpus: Vec<Gpu> = inventory.devices().iter().map(|device| device.gpu.clone()).collect();
        let of = |gpus: &[Gpu]| mode(&gpus.iter().collect::<Vec<_>>());
        assert_eq!(of(&gpus), "compute");
        gpus[3].pci_class = Some(0x03_00_00);
        assert_eq!(of(&gpus), "unknown", "not all alike");
        assert_eq!(of(&gpus[3..]), "graphics");
        gpus[3].pci_class = None;
        assert_eq!(of(&gpus[3..]), "unknown");
    }

    #[test]
    fn the_patch_changes_what_differs_and_removes_what_is_stale() {
        let map = |entries: &[(&str, &str)]| -> BTreeMap<String, String> {
            entries.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let wanted = map(&[("nvidia.com/gpu.count", "8"), ("nvidia.com/gpu.product", "A")]);
        let present = map(&[
            ("nvidia.com/gpu.count", "7"),
            ("nvidia.com/gpu.product", "A"),
            ("nvidia.com/mig.strategy", "single"),
            ("nvidia.com/gpu.present", "true"),
            ("zone", "a"),
        ]);
        let body = patch(&present, &wanted, Some(7)).unwrap();
        let expected = serde_json::json!({
            "nvidia.com/gpu.count": "8", "nvidia.com/mig.strategy": null, "nvidia.com/gfd.timestamp": "7"
        });
        assert_eq!(Value::Object(body), expected);
        let mut settled = wanted.clone();
        settled.insert(TIMESTAMP.to_owned(), "7".to_owned());
        assert_eq!(patch(&settled, &wanted, Some(99)), None, "the timestamp alone is no reason");
        assert_eq!(patch(&settled, &BTreeMap::new(), Some(99)).unwrap().len(), 3);
    }
}
