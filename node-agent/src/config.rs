//! What the agent is told: flags, environment variables and NVIDIA's `version: v1` file, in this order of precedence.

mod file;
mod flags;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::allocation::{Feature, ResponseSettings};
use crate::health::{PolicyError, XidPolicy};

pub use file::ConfigFile;
pub use flags::Flags;

/// A setting that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("the configuration file {path} cannot be read")]
    Unreadable {
        /// Its path.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not of the right form; the message names the place.
    #[error("the configuration file does not parse: {0}")]
    Syntax(String),
    /// A value is not one of those there are.
    #[error("{field}: {reason}")]
    Invalid {
        /// Path of the field in the file, or the flag.
        field: &'static str,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// A health-check variable.
    #[error(transparent)]
    HealthChecks(#[from] PolicyError),
}

impl ConfigError {
    fn invalid(field: &'static str, reason: impl Into<String>) -> Self {
        Self::Invalid { field, reason: reason.into() }
    }
}

/// A closed set of words, as the peers spell them.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name { $($(#[$doc])* $variant,)* }

        impl $name {
            /// The word.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }
        }

        impl FromStr for $name {
            type Err = String;

            fn from_str(word: &str) -> Result<Self, String> {
                match word {
                    $($word => Ok(Self::$variant),)*
                    other => Err(format!("`{other}` is not one of {}", [$($word),*].join(", "))),
                }
            }
        }
    };
}

words! {
    /// What becomes of GPUs in MIG mode.
    MigStrategy {
        /// They are GPUs like others.
        None = "none",
        /// All are partitioned alike.
        Single = "single",
        /// Each as it likes.
        Mixed = "mixed",
    }
}

words! {
    /// How a container's devices are told to the container runtime.
    DeviceListStrategy {
        /// `NVIDIA_VISIBLE_DEVICES`.
        Envvar = "envvar",
        /// Mounts below `/var/run/nvidia-container-devices`.
        VolumeMounts = "volume-mounts",
        /// CDI names in annotations.
        CdiAnnotations = "cdi-annotations",
        /// CDI names in the CRI.
        CdiCri = "cdi-cri",
    }
}

impl DeviceListStrategy {
    /// Whether the runtime takes everything from a CDI specification.
    pub fn is_cdi(self) -> bool {
        matches!(self, Self::CdiAnnotations | Self::CdiCri)
    }
}

words! {
    /// By which name devices are told.
    DeviceIdStrategy {
        /// UUID.
        Uuid = "uuid",
        /// NVML index.
        Index = "index",
    }
}

/// Time between looks at things that tell nobody when they change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intervals {
    /// At the kubelet's socket and our own. A kubelet restart is noticed this late.
    pub sockets: Duration,
    /// At unhealthy GPUs.
    pub probe: Duration,
    /// At everything the driver shows: GPUs that come, go or fall silent.
    pub enumerate: Duration,
    /// A kubelet that does not list our devices so long after registration has forgotten us.
    pub registration_grace: Duration,
    /// A call that may be for a pod not seen yet waits at most so long for it.
    pub placement_wait: Duration,
}

impl Default for Intervals {
    fn default() -> Self {
        Self {
            sockets: Duration::from_secs(1),
            probe: Duration::from_secs(10),
            enumerate: Duration::from_secs(60),
            registration_grace: Duration::from_secs(10),
            placement_wait: Duration::from_millis(500),
        }
    }
}

/// Good probes in a row that make an unhealthy GPU healthy: with the default interval, half a minute without trouble.
pub const GOOD_PROBES: u32 = 3;

/// Everything that was decided by flags, environment and file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// MIG.
    pub mig_strategy: MigStrategy,
    /// Whether a driver that does not answer at the start ends the agent.
    pub fail_on_init_error: bool,
    /// How containers are told.
    pub device_list_strategies: BTreeSet<DeviceListStrategy>,
    /// By which name.
    pub device_id_strategy: DeviceIdStrategy,
    /// Whether device nodes are passed.
    pub pass_device_specs: bool,
    /// Where the host's `/dev` hangs.
    pub dev_root: String,
    /// Prefix of CDI annotations.
    pub cdi_annotation_prefix: String,
    /// Where to write a CDI specification, if at all.
    pub cdi_folder: Option<PathBuf>,
    /// What every GPU container is to have besides.
    pub features: BTreeSet<Feature>,
    /// Where the host's driver root is mounted for the agent: NVML's library is looked for there first.
    pub container_driver_root: PathBuf,
    /// Whether to leave `nvidia.com/gfd.timestamp` out.
    pub no_timestamp: bool,
    /// The file with the machine's product name.
    pub machine_type_file: Option<PathBuf>,
    /// Which XIDs count.
    pub xid_policy: XidPolicy,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            mig_strategy: MigStrategy::None,
            fail_on_init_error: true,
            device_list_strategies: BTreeSet::from([DeviceListStrategy::Envvar]),
            device_id_strategy: DeviceIdStrategy::Uuid,
            pass_device_specs: false,
            dev_root: "/".to_owned(),
            cdi_annotation_prefix: "cdi.k8s.io/".to_owned(),
            cdi_folder: None,
            features: BTreeSet::new(),
            container_driver_root: "/driver-root".into(),
            no_timestamp: false,
            machine_type_file: None,
            xid_policy: XidPolicy::default(),
        }
    }
}

impl Settings {
    /// Merges flags (which clap has already merged with the environment) over the file over the defaults.
    ///
    /// # Errors
    /// The first field that cannot be used, with the reason.
    pub fn resolve(flags: &Flags, file: &ConfigFile) -> Result<Self, ConfigError> {
        file.refuse_unsupported()?;
        let defaults = Self::default();
        let (plugin, gfd) = (&file.flags.plugin, &file.flags.gfd);
        let driver_root = text(&flags.driver_root, &file.flags.nvidia_driver_root);
        let lists = match (&flags.device_list_strategy, &plugin.device_list_strategy) {
            (Some(list), _) if !list.iter().all(String::is_empty) => {
                Some(("--device-list-strategy", list.clone()))
            }
            (_, Some(list)) => Some(("flags.plugin.deviceListStrategy", list.entries())),
            _ => None,
        };
        let strategies = match lists {
            None => defaults.device_list_strategies,
            Some((field, list)) => parse_strategies(field, &list)?,
        };
        let features = [
            (Feature::GdrCopy, pick(&flags.gdrcopy_enabled, &file.flags.gdrcopy_enabled)),
            (Feature::Gds, pick(&flags.gds_enabled, &file.flags.gds_enabled)),
            (Feature::Mofed, pick(&flags.mofed_enabled, &file.flags.mofed_enabled)),
        ];
        Ok(Self {
            mig_strategy: word(
                ("--mig-strategy", &flags.mig_strategy),
                ("flags.migStrategy", &file.flags.mig_strategy),
                defaults.mig_strategy,
            )?,
            fail_on_init_error: pick(&flags.fail_on_init_error, &file.flags.fail_on_init_error)
                .unwrap_or(defaults.fail_on_init_error),
            device_list_strategies: strategies,
            device_id_strategy: word(
                ("--device-id-strategy", &flags.device_id_strategy),
                ("flags.plugin.deviceIDStrategy", &plugin.device_id_strategy),
                defaults.device_id_strategy,
            )?,
            pass_device_specs: pick(&flags.pass_device_specs, &plugin.pass_device_specs)
                .unwrap_or(defaults.pass_device_specs),
            dev_root: text(&flags.dev_root, &file.flags.nvidia_dev_root)
                .or(driver_root)
                .unwrap_or(defaults.dev_root),
            cdi_annotation_prefix: text(&flags.cdi_annotation_prefix, &plugin.cdi_annotation_prefix)
                .unwrap_or(defaults.cdi_annotation_prefix),
            cdi_folder: flags.cdi_folder.clone(),
            features: features
                .into_iter()
                .filter(|(_, enabled)| *enabled == Some(true))
                .map(|(feature, _)| feature)
                .collect(),
            container_driver_root: text(&flags.driver_root_ctr_path, &plugin.container_driver_root)
                .map_or(defaults.container_driver_root, PathBuf::from),
            no_timestamp: gfd.no_timestamp.unwrap_or(defaults.no_timestamp),
            machine_type_file: text(&flags.machine_type_file, &gfd.machine_type_file).map(PathBuf::from),
            xid_policy: XidPolicy::from_variables(
                flags.disable_healthchecks.as_deref(),
                flags.enable_healthchecks.as_deref(),
            )?,
        })
    }

    /// The part that answers to Allocate are made of.
    pub fn response(&self) -> ResponseSettings {
        ResponseSettings {
            strategies: self.device_list_strategies.clone(),
            id_strategy: self.device_id_strategy,
            pass_device_specs: self.pass_device_specs,
            dev_root: self.dev_root.clone(),
            cdi_annotation_prefix: self.cdi_annotation_prefix.clone(),
            features: self.features.clone(),
            own_dev: "/dev".into(),
        }
    }
}

fn pick<T: Clone>(flag: &Option<T>, file: &Option<T>) -> Option<T> {
    flag.clone().or_else(|| file.clone())
}

/// The same for texts. An empty one says nothing: that is how an environment variable is unset in a manifest.
fn text(flag: &Option<String>, file: &Option<String>) -> Option<String> {
    [flag, file].into_iter().flatten().find(|text| !text.is_empty()).cloned()
}

/// The word of the flag, else of the file, else the default; a wrong one is blamed on where it stands.
fn word<T: FromStr<Err = String>>(
    flag: (&'static str, &Option<String>),
    file: (&'static str, &Option<String>),
    default: T,
) -> Result<T, ConfigError> {
    for (field, value) in [flag, file] {
        if let Some(value) = value.as_ref().filter(|value| !value.is_empty()) {
            return value.parse().map_err(|reason| ConfigError::invalid(field, reason));
        }
    }
    Ok(default)
}

fn parse_strategies(
    field: &'static str,
    list: &[String],
) -> Result<BTreeSet<DeviceListStrategy>, ConfigError> {
    let strategies: BTreeSet<_> = list
        .iter()
        .map(|entry| entry.trim().parse())
        .collect::<Result<_, String>>()
        .map_err(|reason| ConfigError::invalid(field, reason))?;
    if strategies.is_empty() {
        return Err(ConfigError::invalid(field, "must name at least one strategy"));
    }
    Ok(strategies)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        flags: Flags,
    }

    fn resolve(arguments: &[&str], file: &str) -> Result<Settings, ConfigError> {
        let flags = Cli::try_parse_from([&["agent"], arguments].concat()).unwrap().flags;
        Settings::resolve(&flags, &ConfigFile::parse(file)?)
    }

    #[test]
    fn flags_beat_the_file_and_the_file_beats_the_defaults() {
        let file = "version: v1\nflags:\n  migStrategy: mixed\n  nvidiaDriverRoot: /run/nvidia/driver\n  gdsEnabled: true\n  \
                    plugin:\n    deviceListStrategy: [cdi-cri, envvar]\n    deviceIDStrategy: index\n    passDeviceSpecs: true\n";
        let from_file = resolve(&[], file).unwrap();
        assert_eq!(from_file.mig_strategy, MigStrategy::Mixed);
        assert_eq!(from_file.device_id_strategy, DeviceIdStrategy::Index);
        assert_eq!(
            from_file.device_list_strategies,
            BTreeSet::from([DeviceListStrategy::Envvar, DeviceListStrategy::CdiCri])
        );
        assert_eq!(from_file.dev_root, "/run/nvidia/driver");
        assert_eq!(from_file.features, BTreeSet::from([Feature::Gds]));
        let flagged = resolve(
            &["--mig-strategy=none", "--device-list-strategy=volume-mounts", "--pass-device-specs=false"],
            file,
        )
        .unwrap();
        assert_eq!(flagged.mig_strategy, MigStrategy::None);
        assert_eq!(flagged.device_list_strategies, BTreeSet::from([DeviceListStrategy::VolumeMounts]));
        assert!(!flagged.pass_device_specs);
        assert_eq!(resolve(&[], "version: v1").unwrap(), Settings::default());
    }

    #[test]
    fn one_strategy_may_be_a_plain_string() {
        let settings = resolve(&[], "version: v1\nflags: {plugin: {deviceListStrategy: cdi-cri}}").unwrap();
        assert_eq!(settings.device_list_strategies, BTreeSet::from([DeviceListStrategy::CdiCri]));
    }

    #[test]
    fn what_says_nothing_changes_nothing() {
        let files = [
            "version: v1\nflags:\nresources:\nsharing:\nimex:\n",
            "version: v1\nflags:\n  migStrategy:\n  plugin:\n  gfd:\n",
            "{\"version\": \"v1\", \"flags\": {\"plugin\": null}, \"sharing\": {\"timeSlicing\": null}}",
            "version: v1\nresources:\n  gpus:\n  - {pattern: '*', name: nvidia.com/gpu}\n  mig: []\n",
            "version: v1\nresources: {gpus: [{pattern: '*', name: gpu}], mig: null}\nimex: {channelIDs: null}\n",
        ];
        for file in files {
            assert_eq!(resolve(&[], file).unwrap(), Settings::default(), "{file}");
        }
        let empty = ["--mig-strategy=", "--device-list-strategy=", "--driver-root=", "--device-id-strategy="];
        assert_eq!(resolve(&empty, "version: v1").unwrap(), Settings::default(), "as in a manifest");
        assert!(resolve(&["--pass-device-specs=1"], "version: v1").unwrap().pass_device_specs);
        assert!(!resolve(&["--fail-on-init-error=FALSE"], "version: v1").unwrap().fail_on_init_error);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let cases: [(&[&str], &str, &str); 14] = [
            (&[], "flags: {}", "version"),
            (&[], "version: v2", "version"),
            (&[], "version: v1\nflags: {migStrategy: some}", "flags.migStrategy"),
            (&["--mig-strategy=some"], "version: v1", "--mig-strategy"),
            (
                &[],
                "version: v1\nflags: {plugin: {deviceListStrategy: []}}",
                "flags.plugin.deviceListStrategy",
            ),
            (&[], "version: v1\nflags: {plugin: {deviceIDStrategy: name}}", "flags.plugin.deviceIDStrategy"),
            (&[], "version: v1\nflags: {migStrateg: none}", "migStrateg"),
            (
                &[],
                "version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}",
                "sharing.timeSlicing",
            ),
            (&[], "version: v1\nflags: {deviceDiscoveryStrategy: tegra}", "flags.deviceDiscoveryStrategy"),
            (&[], "", "version"),
            (
                &[],
                "version: v1\nresources: {gpus: [{pattern: 'A100*', name: nvidia.com/a100}]}",
                "resources.gpus",
            ),
            (
                &[],
                "version: v1\nflags: {plugin: {sharedDevicesAllocationPolicy: random}}",
                "flags.plugin.sharedDevicesAllocationPolicy",
            ),
            (&[], "version: v1\nflags: {plugin: {passDeviceSpecs: [1]}}", "line 2"),
            (&["--disable-healthchecks=none"], "version: v1", "DP_DISABLE_HEALTHCHECKS"),
        ];
        for (arguments, file, field) in cases {
            let error = resolve(arguments, file).unwrap_err().to_string();
            assert!(error.contains(field), "{file}: {error}");
        }
    }
}
