//! A Container Device Interface specification of this node's GPUs, for the CDI strategies.
//!
//! It holds device nodes only. The driver's libraries come from the container's image, the runtime, or NVIDIA's own
//! specification, which `nvidia-ctk` makes and which must then not name the same kind.
//! See <https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md>.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kit::Context;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::allocation::{CDI_KIND, Feature, ResponseSettings, device_name, on_host};
use crate::inventory::Inventory;
use crate::metrics::Metrics;

/// The specifications by file name, which is made of vendor and class as the CDI advises: the GPUs', as long as there is
/// one, and those of the features whose device nodes this host has.
pub fn specifications(inventory: &Inventory, settings: &ResponseSettings) -> BTreeMap<String, Value> {
    let gpus = gpus(inventory, settings).into_iter();
    let features = settings.features.iter().filter_map(|feature| of_feature(*feature, settings));
    gpus.chain(features)
        .map(|specification| {
            let kind = specification["kind"].as_str().unwrap_or_default().replace('/', "-");
            (format!("{kind}.json"), specification)
        })
        .collect()
}

/// The device `all` of a feature: every node of it that the host has.
fn of_feature(feature: Feature, settings: &ResponseSettings) -> Option<Value> {
    let (folder, prefixes): (&str, &[&str]) = match feature {
        Feature::GdrCopy => ("", &["gdrdrv"]),
        Feature::Gds => ("", &["nvidia-fs"]),
        Feature::Mofed => ("infiniband", &["uverbs", "rdma_cm"]),
    };
    let mut names: Vec<String> = std::fs::read_dir(settings.own_dev.join(folder))
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| prefixes.iter().any(|prefix| name.starts_with(prefix)))
        .collect();
    names.sort();
    let path = |name: &String| Path::new("/dev").join(folder).join(name).display().to_string();
    let nodes: Vec<Value> = names.iter().map(|name| node(settings, &path(name))).collect();
    let edits = json!({ "name": "all", "containerEdits": { "deviceNodes": nodes } });
    let devices = [edits];
    (!nodes.is_empty())
        .then(|| json!({ "cdiVersion": "0.6.0", "kind": feature.cdi_kind(), "devices": devices }))
}

fn node(settings: &ResponseSettings, path: &str) -> Value {
    json!({ "path": path, "hostPath": on_host(&settings.dev_root, path) })
}

fn gpus(inventory: &Inventory, settings: &ResponseSettings) -> Option<Value> {
    let devices: Vec<Value> = inventory
        .devices()
        .iter()
        .map(|device| {
            let path = format!("/dev/nvidia{}", device.gpu.minor);
            json!({
                "name": device_name(&device.gpu, settings.id_strategy),
                "containerEdits": { "deviceNodes": [node(settings, &path)] },
            })
        })
        .collect();
    if devices.is_empty() {
        return None;
    }
    let control: Vec<Value> = settings.control_nodes().into_iter().map(|path| node(settings, path)).collect();
    let mut specification = json!({ "cdiVersion": "0.6.0", "kind": CDI_KIND, "devices": devices });
    if !control.is_empty() {
        specification["containerEdits"] = json!({ "deviceNodes": control });
    }
    Some(specification)
}

/// Keeps the file as the inventory is, until the context stops. It stays when the agent ends: containers that start
/// meanwhile need it.
pub(crate) async fn keep(
    ctx: Context,
    folder: PathBuf,
    settings: ResponseSettings,
    mut inventory: watch::Receiver<Arc<Inventory>>,
    metrics: Metrics,
) {
    let mut written = BTreeMap::new();
    loop {
        let wanted = specifications(&inventory.borrow_and_update(), &settings);
        for (file, specification) in wanted {
            if written.get(&file) == Some(&specification) {
                continue;
            }
            match write(&folder, &file, &specification) {
                Ok(()) => {
                    written.insert(file, specification);
                }
                Err(error) => {
                    metrics.failed("cdi");
                    tracing::error!(%error, folder = %folder.display(), "the CDI specification cannot be written");
                }
            }
        }
        tokio::select! {
            biased;
            () = ctx.tasks.stopping() => return,
            changed = inventory.changed() => if changed.is_err() { return },
        }
    }
}

/// Readers see the old file or the new one, never a part.
fn write(folder: &Path, file: &str, specification: &Value) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let unfinished = folder.join(format!(".{file}.new"));
    std::fs::write(&unfinished, format!("{specification:#}\n"))?;
    std::fs::rename(unfinished, folder.join(file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;
    use crate::driver::{FakeDriver, GpuDriver};
    use fake_nvml::{Handle, World, WorldSpec};

    #[test]
    fn every_device_that_can_be_given_out_is_named() {
        let dev = tempfile::tempdir().unwrap();
        std::fs::create_dir(dev.path().join("infiniband")).unwrap();
        for name in ["nvidiactl", "nvidia-fs1", "nvidia-fs0", "infiniband/uverbs0", "infiniband/umad0"] {
            std::fs::write(dev.path().join(name), "").unwrap();
        }
        let settings = ResponseSettings {
            own_dev: dev.path().to_owned(),
            dev_root: "/driver".to_owned(),
            features: [Feature::Gds, Feature::Mofed, Feature::GdrCopy].into(),
            ..Settings::default().response()
        };
        let mut inventory = Inventory::default();
        assert!(!specifications(&inventory, &settings).contains_key("k8s.device-plugin.nvidia.com-gpu.json"));
        let spec = WorldSpec { minor_numbers: vec![3, 2, 1, 0], ..WorldSpec::profile("4xL40S").unwrap() };
        inventory.enumerated(FakeDriver::new(Handle::new(World::new(spec, "n"))).enumerate());
        let folder = tempfile::tempdir().unwrap();
        for (file, specification) in specifications(&inventory, &settings) {
            write(folder.path(), &file, &specification).unwrap();
        }
        let read = |class: &str| -> Value {
            let file = folder.path().join(format!("k8s.device-plugin.nvidia.com-{class}.json"));
            std::fs::read_to_string(file).map_or(Value::Null, |text| serde_json::from_str(&text).unwrap())
        };
        let paths = |class: &str| -> Vec<String> {
            let read = read(class);
            let nodes = read["devices"][0]["containerEdits"]["deviceNodes"].as_array().cloned();
            nodes.unwrap_or_default().iter().map(|node| node["path"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(paths("gds"), ["/dev/nvidia-fs0", "/dev/nvidia-fs1"]);
        assert_eq!(paths("mofed"), ["/dev/infiniband/uverbs0"]);
        assert_eq!(read("gdrcopy"), Value::Null, "this host has none");
        assert_eq!(read("gds")["devices"][0]["name"], "all");
        let read = read("gpu");
        assert_eq!(read["kind"], "k8s.device-plugin.nvidia.com/gpu");
        assert_eq!(read["devices"][0]["name"], inventory.devices()[0].gpu.uuid.as_str());
        assert_eq!(
            read["devices"][0]["containerEdits"]["deviceNodes"][0],
            json!({ "path": "/dev/nvidia3", "hostPath": "/driver/dev/nvidia3" })
        );
        assert_eq!(read["containerEdits"]["deviceNodes"][0]["hostPath"], "/driver/dev/nvidiactl");
    }
}
