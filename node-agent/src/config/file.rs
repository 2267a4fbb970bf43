use std::path::Path;

use serde::{Deserialize, Deserializer};

use super::ConfigError;

/// NVIDIA's device plugin file, `version: v1` (api/config/v1 of k8s-device-plugin). Fields that are only for parts that
/// this agent does not have (node feature discovery's file, MPS' paths) are read and have no effect; what would change
/// which devices a node offers and is not supported yet is refused.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConfigFile {
    version: Option<String>,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(super) flags: FileFlags,
    resources: Option<FileResources>,
    sharing: Option<FileSharing>,
    imex: Option<FileImex>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct FileFlags {
    pub(super) mig_strategy: Option<String>,
    pub(super) fail_on_init_error: Option<bool>,
    mps_root: Option<String>,
    pub(super) nvidia_driver_root: Option<String>,
    pub(super) nvidia_dev_root: Option<String>,
    pub(super) gdrcopy_enabled: Option<bool>,
    pub(super) gds_enabled: Option<bool>,
    pub(super) mofed_enabled: Option<bool>,
    #[serde(rename = "useNodeFeatureAPI")]
    use_node_feature_api: Option<bool>,
    device_discovery_strategy: Option<String>,
    #[serde(deserialize_with = "null_is_default")]
    pub(super) plugin: FilePlugin,
    #[serde(deserialize_with = "null_is_default")]
    pub(super) gfd: FileGfd,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct FilePlugin {
    pub(super) pass_device_specs: Option<bool>,
    pub(super) device_list_strategy: Option<OneOrMany>,
    #[serde(rename = "deviceIDStrategy")]
    pub(super) device_id_strategy: Option<String>,
    pub(super) cdi_annotation_prefix: Option<String>,
    #[serde(rename = "nvidiaCTKPath")]
    nvidia_ctk_path: Option<String>,
    pub(super) container_driver_root: Option<String>,
    shared_devices_allocation_policy: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct FileGfd {
    oneshot: Option<bool>,
    pub(super) no_timestamp: Option<bool>,
    sleep_interval: Option<String>,
    output_file: Option<String>,
    pub(super) machine_type_file: Option<String>,
}

/// The plugin takes a string or a list here.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub(super) enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl OneOrMany {
    pub(super) fn entries(&self) -> Vec<String> {
        match self {
            Self::One(entry) => vec![entry.clone()],
            Self::Many(entries) => entries.clone(),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct FileResources {
    #[serde(deserialize_with = "null_is_default")]
    gpus: Vec<serde_json::Value>,
    #[serde(deserialize_with = "null_is_default")]
    mig: Vec<serde_json::Value>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct FileSharing {
    time_slicing: Option<FileShared>,
    mps: Option<FileShared>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct FileShared {
    rename_by_default: Option<bool>,
    fail_requests_greater_than_one: Option<bool>,
    #[serde(deserialize_with = "null_is_default")]
    resources: Vec<serde_json::Value>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct FileImex {
    #[serde(rename = "channelIDs", deserialize_with = "null_is_default")]
    channel_ids: Vec<i64>,
    required: bool,
}

/// A key with nothing behind it says as much as no key.
fn null_is_default<'de, D, T>(value: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(value)?.unwrap_or_default())
}

/// Whether an entry of `resources.gpus` says what holds anyway: every GPU is `nvidia.com/gpu`.
fn is_no_renaming(entry: &serde_json::Value) -> bool {
    matches!(entry["name"].as_str(), Some("nvidia.com/gpu" | "gpu")) && entry["pattern"] == "*"
}

impl ConfigFile {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read, or does not parse.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Unreadable { path: path.display().to_string(), source })?;
        Self::parse(&text)
    }

    /// Parses YAML or JSON.
    ///
    /// # Errors
    /// A syntax error or an unknown field with its place; a version that is not `v1`.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let file: Self =
            serde_saphyr::from_str(text).map_err(|error| ConfigError::Syntax(error.to_string()))?;
        match file.version.as_deref() {
            Some("v1") => Ok(file),
            Some(other) => Err(ConfigError::invalid("version", format!("`{other}` is not v1"))),
            None => Err(ConfigError::invalid("version", "is missing; it must be v1")),
        }
    }

    /// A file that says nothing.
    pub fn empty() -> Self {
        Self::default()
    }

    pub(super) fn refuse_unsupported(&self) -> Result<(), ConfigError> {
        let sharing = self.sharing.clone().unwrap_or_default();
        let imex = self.imex.clone().unwrap_or_default();
        let resources = self.resources.clone().unwrap_or_default();
        let discovery = self.flags.device_discovery_strategy.as_deref().unwrap_or("auto");
        let policy = self.flags.plugin.shared_devices_allocation_policy.as_deref().unwrap_or_default();
        let refused = [
            (
                !matches!(policy, "" | "distributed" | "packed"),
                "flags.plugin.sharedDevicesAllocationPolicy",
                "only distributed and packed are known",
            ),
            (sharing.time_slicing.is_some(), "sharing.timeSlicing", "sharing GPUs is not supported yet"),
            (sharing.mps.is_some(), "sharing.mps", "sharing GPUs is not supported yet"),
            (
                !resources.gpus.iter().all(is_no_renaming),
                "resources.gpus",
                "other names than nvidia.com/gpu are not supported yet",
            ),
            (!resources.mig.is_empty(), "resources.mig", "MIG resources are not supported yet"),
            (!imex.channel_ids.is_empty(), "imex.channelIDs", "IMEX channels are not supported yet"),
            (imex.required, "imex.required", "IMEX channels are not supported yet"),
            (
                !matches!(discovery, "auto" | "nvml"),
                "flags.deviceDiscoveryStrategy",
                "only auto and nvml are supported",
            ),
        ];
        match refused.into_iter().find(|(refused, ..)| *refused) {
            Some((_, field, reason)) => Err(ConfigError::invalid(field, reason)),
            None => Ok(()),
        }
    }
}
