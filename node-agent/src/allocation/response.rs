use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use proto::deviceplugin::{CdiDevice, ContainerAllocateResponse, DeviceSpec, Mount};

use crate::config::{DeviceIdStrategy, DeviceListStrategy};
use crate::driver::Gpu;
use crate::inventory::Inventory;

/// Vendor and class of the CDI names, those of NVIDIA's plugin: runtimes set up for it find the same devices.
pub(crate) const CDI_KIND: &str = "k8s.device-plugin.nvidia.com/gpu";

/// Something of the runtime that every GPU container is to have besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feature {
    /// GPUDirect copies by the CPU.
    GdrCopy,
    /// GPUDirect Storage.
    Gds,
    /// Mellanox' OFED.
    Mofed,
}

impl Feature {
    /// Its environment variable, which the runtime reads.
    pub fn variable(self) -> &'static str {
        match self {
            Self::GdrCopy => "NVIDIA_GDRCOPY",
            Self::Gds => "NVIDIA_GDS",
            Self::Mofed => "NVIDIA_MOFED",
        }
    }

    /// Vendor and class of its CDI device `all`.
    pub fn cdi_kind(self) -> &'static str {
        match self {
            Self::GdrCopy => "k8s.device-plugin.nvidia.com/gdrcopy",
            Self::Gds => "k8s.device-plugin.nvidia.com/gds",
            Self::Mofed => "k8s.device-plugin.nvidia.com/mofed",
        }
    }
}

/// The runtime looks for mounts below this path when volume mounts are the strategy.
const MOUNT_LIST_ROOT: &str = "/var/run/nvidia-container-devices";

/// Device nodes that every GPU container needs besides its GPUs' own.
const CONTROL_NODES: [&str; 4] =
    ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"];

/// How a container is told about its GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseSettings {
    /// In which ways.
    pub strategies: BTreeSet<DeviceListStrategy>,
    /// By which name.
    pub id_strategy: DeviceIdStrategy,
    /// Whether to pass device nodes too.
    pub pass_device_specs: bool,
    /// Where the host's `/dev` hangs: host paths of device nodes begin with it. `/` as a rule.
    pub dev_root: String,
    /// Prefix of the annotation for runtimes that take CDI devices from annotations.
    pub cdi_annotation_prefix: String,
    /// What every container is to have besides.
    pub features: BTreeSet<Feature>,
    /// Where the agent itself sees the host's device nodes: `/dev`.
    pub own_dev: PathBuf,
}

impl ResponseSettings {
    /// The control nodes that this host has now: a driver that comes late brings them late.
    pub fn control_nodes(&self) -> Vec<&'static str> {
        let exists = |path: &&&str| {
            let name = path.trim_start_matches("/dev/");
            self.own_dev.join(name).exists() || Path::new(&on_host(&self.dev_root, path)).exists()
        };
        CONTROL_NODES.iter().filter(exists).copied().collect()
    }
}

/// Why devices cannot be given out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllocateError {
    /// This node has no such device.
    #[error(
        "device `{0}` is unknown on this node: it may have been removed; the kubelet will get a new list"
    )]
    Unknown(String),
    /// The same device twice.
    #[error("device `{0}` is asked for twice")]
    Duplicate(String),
    /// It is there and must not be used.
    #[error("device `{id}` is unhealthy ({reason})")]
    Unhealthy {
        /// The device.
        id: String,
        /// The reason token.
        reason: &'static str,
    },
}

/// The GPUs behind the kubelet's ids, in the order of their indices. `given` is what the containers before this one in the
/// same request were given; this one's are added.
///
/// # Errors
/// Unknown, repeated and unhealthy ids are refused: the kubelet then fails the pod with `UnexpectedAdmissionError`.
pub fn resolve_ids<'a>(
    ids: &[String],
    inventory: &'a Inventory,
    given: &mut BTreeSet<String>,
) -> Result<Vec<&'a Gpu>, AllocateError> {
    let mut gpus = Vec::new();
    for id in ids {
        if !given.insert(id.clone()) {
            return Err(AllocateError::Duplicate(id.clone()));
        }
        let device = inventory.by_id(id).ok_or_else(|| AllocateError::Unknown(id.clone()))?;
        if let Some(ailment) = device.health.ailment() {
            return Err(AllocateError::Unhealthy { id: id.clone(), reason: ailment.reason.as_str() });
        }
        gpus.push(&device.gpu);
    }
    gpus.sort_by_key(|gpu| gpu.index);
    Ok(gpus)
}

/// What the container is given, as NVIDIA's plugin gives it (internal/plugin/server.go).
pub fn container_response(gpus: &[&Gpu], settings: &ResponseSettings) -> ContainerAllocateResponse {
    let names: Vec<String> = gpus.iter().map(|gpu| device_name(gpu, settings.id_strategy)).collect();
    let mut response = ContainerAllocateResponse::default();
    for strategy in &settings.strategies {
        match strategy {
            DeviceListStrategy::Envvar => {
                response.envs.insert("NVIDIA_VISIBLE_DEVICES".to_owned(), names.join(","));
            }
            DeviceListStrategy::VolumeMounts => volume_mounts(&mut response, &names),
            DeviceListStrategy::CdiCri => {
                let devices = cdi_names(&names, settings);
                response.cdi_devices.extend(devices.map(|name| CdiDevice { name }));
            }
            DeviceListStrategy::CdiAnnotations => {
                let key = format!("{}nvidia-device-plugin_{}", settings.cdi_annotation_prefix, label(&names));
                let value: Vec<String> = cdi_names(&names, settings).collect();
                response.annotations.insert(key, value.join(","));
            }
        }
    }
    if settings.strategies.iter().all(|strategy| strategy.is_cdi()) {
        return response;
    }
    let features = settings.features.iter();
    response.envs.extend(features.map(|feature| (feature.variable().to_owned(), "enabled".to_owned())));
    if settings.pass_device_specs {
        let own = gpus.iter().map(|gpu| format!("/dev/nvidia{}", gpu.minor));
        let nodes = settings.control_nodes().into_iter().map(str::to_owned).chain(own);
        response.devices.extend(nodes.map(|path| DeviceSpec {
            host_path: on_host(&settings.dev_root, &path),
            container_path: path,
            permissions: "rw".to_owned(),
        }));
    }
    response
}

fn volume_mounts(response: &mut ContainerAllocateResponse, names: &[String]) {
    // Where both ways are set, this one stands: a runtime that trusts mounts does so because it does not trust variables.
    response.envs.insert("NVIDIA_VISIBLE_DEVICES".to_owned(), MOUNT_LIST_ROOT.to_owned());
    response.mounts.extend(names.iter().map(|name| Mount {
        container_path: format!("{MOUNT_LIST_ROOT}/{name}"),
        host_path: "/dev/null".to_owned(),
        read_only: false,
    }));
}

/// The CDI names of a container's GPUs and features.
fn cdi_names<'a>(names: &'a [String], settings: &'a ResponseSettings) -> impl Iterator<Item = String> {
    let features = settings.features.iter().map(|feature| format!("{}=all", feature.cdi_kind()));
    names.iter().map(|name| format!("{CDI_KIND}={name}")).chain(features)
}

/// A name for the annotation, unique among the annotations of a pod: its first device belongs to no other container.
fn label(names: &[String]) -> &str {
    names.first().map_or("none", String::as_str)
}

/// The name by which a runtime knows a GPU.
pub(crate) fn device_name(gpu: &Gpu, strategy: DeviceIdStrategy) -> String {
    match strategy {
        DeviceIdStrategy::Uuid => gpu.uuid.to_string(),
        DeviceIdStrategy::Index => gpu.index.to_string(),
    }
}

/// The host's path of a device node.
pub(crate) fn on_host(dev_root: &str, path: &str) -> String {
    format!("{}{path}", dev_root.trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::{FakeDriver, GpuDriver, GpuUuid};
    use crate::health::{Signal, XidPolicy};
    use fake_nvml::{Handle, World, WorldSpec};

    fn inventory() -> Inventory {
        let spec = WorldSpec { minor_numbers: vec![3, 2, 1, 0], ..WorldSpec::profile("4xL40S").unwrap() };
        let driver = FakeDriver::new(Handle::new(World::new(spec, "n")));
        let mut inventory = Inventory::default();
        inventory.enumerated(driver.enumerate());
        inventory
    }

    fn settings(strategies: &[DeviceListStrategy]) -> ResponseSettings {
        ResponseSettings {
            strategies: strategies.iter().copied().collect(),
            id_strategy: DeviceIdStrategy::Index,
            pass_device_specs: false,
            dev_root: "/".to_owned(),
            cdi_annotation_prefix: "cdi.k8s.io/".to_owned(),
            features: BTreeSet::new(),
            own_dev: "/nowhere".into(),
        }
    }

    fn respond(settings: &ResponseSettings) -> ContainerAllocateResponse {
        let inventory = inventory();
        let gpus: Vec<&Gpu> = inventory.devices().iter().take(2).map(|device| &device.gpu).collect();
        container_response(&gpus, settings)
    }

    #[test]
    fn envvar_carries_uuids_or_indices() {
        let mut settings = settings(&[DeviceListStrategy::Envvar]);
        assert_eq!(respond(&settings).envs["NVIDIA_VISIBLE_DEVICES"], "0,1");
        settings.id_strategy = DeviceIdStrategy::Uuid;
        let list = respond(&settings).envs["NVIDIA_VISIBLE_DEVICES"].clone();
        let ids: Vec<_> =
            inventory().devices()[..2].iter().map(|device| device.gpu.uuid.to_string()).collect();
        assert_eq!(list, ids.join(","));
    }

    #[test]
    fn volume_mounts_stand_for_the_list() {
        let response = respond(&settings(&[DeviceListStrategy::VolumeMounts]));
        assert_eq!(response.envs["NVIDIA_VISIBLE_DEVICES"], MOUNT_LIST_ROOT);
        let mounts: Vec<_> = response.mounts.iter().map(|mount| mount.container_path.as_str()).collect();
        assert_eq!(mounts, ["/var/run/nvidia-container-devices/0", "/var/run/nvidia-container-devices/1"]);
        assert!(response.mounts.iter().all(|mount| mount.host_path == "/dev/null"));
    }

    #[test]
    fn where_mounts_and_the_variable_are_set_the_mounts_count() {
        let mut both = settings(&[DeviceListStrategy::VolumeMounts, DeviceListStrategy::Envvar]);
        both.features.insert(Feature::Mofed);
        let response = respond(&both);
        assert_eq!(response.envs["NVIDIA_VISIBLE_DEVICES"], MOUNT_LIST_ROOT);
        assert_eq!(response.envs["NVIDIA_MOFED"], "enabled");
        assert_eq!(response.mounts.len(), 2);
    }

    #[test]
    fn cdi_alone_adds_nothing_else() {
        let mut all_cdi = settings(&[DeviceListStrategy::CdiCri, DeviceListStrategy::CdiAnnotations]);
        all_cdi.pass_device_specs = true;
        all_cdi.features.insert(Feature::Gds);
        let response = respond(&all_cdi);
        let names: Vec<_> = response.cdi_devices.iter().map(|device| device.name.as_str()).collect();
        let expected = [
            "k8s.device-plugin.nvidia.com/gpu=0",
            "k8s.device-plugin.nvidia.com/gpu=1",
            "k8s.device-plugin.nvidia.com/gds=all",
        ];
        assert_eq!(names, expected);
        assert_eq!(response.annotations["cdi.k8s.io/nvidia-device-plugin_0"], names.join(","));
        assert!(response.envs.is_empty() && response.devices.is_empty() && response.mounts.is_empty());
    }

    #[test]
    fn device_specs_name_minors_and_the_hosts_root() {
        let mut settings = settings(&[DeviceListStrategy::Envvar]);
        settings.pass_device_specs = true;
        settings.dev_root = "/run/nvidia/driver/".to_owned();
        let dev = tempfile::tempdir().unwrap();
        settings.own_dev = dev.path().to_owned();
        assert_eq!(respond(&settings).devices.len(), 2, "the driver is not there yet");
        std::fs::write(dev.path().join("nvidiactl"), "").unwrap();
        let devices = respond(&settings).devices;
        let listed: Vec<_> =
            devices.iter().map(|spec| (spec.container_path.as_str(), spec.host_path.as_str())).collect();
        assert_eq!(
            listed,
            [
                ("/dev/nvidiactl", "/run/nvidia/driver/dev/nvidiactl"),
                ("/dev/nvidia3", "/run/nvidia/driver/dev/nvidia3"),
                ("/dev/nvidia2", "/run/nvidia/driver/dev/nvidia2"),
            ]
        );
        assert!(devices.iter().all(|spec| spec.permissions == "rw"));
    }

    #[test]
    fn wrong_ids_are_refused_with_the_id() {
        let mut inventory = inventory();
        let ids: Vec<String> = inventory.devices().iter().map(|device| device.gpu.uuid.to_string()).collect();
        let resolve = |inventory: &Inventory, ids: &[&String]| {
            let ids: Vec<String> = ids.iter().map(|id| (*id).clone()).collect();
            resolve_ids(&ids, inventory, &mut BTreeSet::new())
                .map(|gpus| gpus.iter().map(|gpu| gpu.index).collect::<Vec<_>>())
        };
        assert_eq!(resolve(&inventory, &[&ids[2], &ids[0]]), Ok(vec![0, 2]));
        assert_eq!(resolve(&inventory, &[&ids[1], &ids[1]]), Err(AllocateError::Duplicate(ids[1].clone())));
        let mut given = BTreeSet::new();
        assert!(resolve_ids(&ids[..2], &inventory, &mut given).is_ok());
        let again = resolve_ids(&ids[1..2], &inventory, &mut given);
        assert_eq!(again, Err(AllocateError::Duplicate(ids[1].clone())), "another container has it");
        let stranger = "GPU-0".to_owned();
        assert_eq!(resolve(&inventory, &[&stranger]), Err(AllocateError::Unknown(stranger.clone())));
        inventory.signalled(Some(&GpuUuid::new(ids[3].as_str())), Signal::Xid(79), &XidPolicy::default());
        let refused = AllocateError::Unhealthy { id: ids[3].clone(), reason: "Xid" };
        assert_eq!(resolve(&inventory, &[&ids[3]]), Err(refused));
    }
}
