//! A Container Device Interface specification of this node's GPUs, for the CDI strategies.
//!
//! It holds device nodes only. The driver's libraries come from the container's image, the runtime, or NVIDIA's own
//! specification, which `nvidia-ctk` makes and which must then not name the same kind.
//! See <https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md>.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kit::Context;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::allocation::{CDI_KIND, ResponseSettings, device_name, on_host};
use crate::inventory::Inventory;
use crate::metrics::Metrics;

/// The file in the CDI folder, named after vendor and class as the specification advises.
const FILE: &str = "k8s.device-plugin.nvidia.com-gpu.json";

/// The specification; `None` as long as there is no GPU.
pub fn specification(inventory: &Inventory, settings: &ResponseSettings) -> Option<Value> {
    let node = |path: &str| json!({ "path": path, "hostPath": on_host(&settings.dev_root, path) });
    let devices: Vec<Value> = inventory
        .devices()
        .iter()
        .map(|device| {
            let path = format!("/dev/nvidia{}", device.gpu.minor);
            json!({
                "name": device_name(&device.gpu, settings.id_strategy),
                "containerEdits": { "deviceNodes": [node(&path)] },
            })
        })
        .collect();
    if devices.is_empty() {
        return None;
    }
    let control: Vec<Value> = settings.control_nodes.iter().map(|path| node(path)).collect();
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
    let mut written = None;
    loop {
        let wanted = specification(&inventory.borrow_and_update(), &settings);
        if let Some(wanted) = wanted.filter(|wanted| written.as_ref() != Some(wanted)) {
            match write(&folder, &wanted) {
                Ok(()) => written = Some(wanted),
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
fn write(folder: &Path, specification: &Value) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let unfinished = folder.join(format!(".{FILE}.new"));
    std::fs::write(&unfinished, format!("{specification:#}\n"))?;
    std::fs::rename(unfinished, folder.join(FILE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;
    use crate::driver::{FakeDriver, GpuDriver};
    use fake_nvml::{Handle, World, WorldSpec};

    #[test]
    fn every_device_that_can_be_given_out_is_named() {
        let settings = ResponseSettings {
            control_nodes: vec!["/dev/nvidiactl".to_owned()],
            dev_root: "/driver".to_owned(),
            ..Settings::default().response()
        };
        let mut inventory = Inventory::default();
        assert_eq!(specification(&inventory, &settings), None);
        let spec = WorldSpec { minor_numbers: vec![3, 2, 1, 0], ..WorldSpec::profile("4xL40S").unwrap() };
        inventory.enumerated(FakeDriver::new(Handle::new(World::new(spec, "n"))).enumerate());
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &specification(&inventory, &settings).unwrap()).unwrap();
        let text = std::fs::read_to_string(folder.path().join(FILE)).unwrap();
        let read: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read["kind"], "k8s.device-plugin.nvidia.com/gpu");
        assert_eq!(read["devices"][0]["name"], inventory.devices()[0].gpu.uuid.as_str());
        assert_eq!(
            read["devices"][0]["containerEdits"]["deviceNodes"][0],
            json!({ "path": "/dev/nvidia3", "hostPath": "/driver/dev/nvidia3" })
        );
        assert_eq!(read["containerEdits"]["deviceNodes"][0]["hostPath"], "/driver/dev/nvidiactl");
    }
}
