use std::path::PathBuf;

use clap::builder::BoolishValueParser;
use clap::{ArgAction, Args};

/// The device plugin's flags and environment variables, by the same names. A flag beats its variable, a variable beats
/// the file.
#[derive(Clone, Debug, Default, Args)]
pub struct Flags {
    /// What becomes of GPUs in MIG mode: none (they are GPUs like others), single or mixed (they are not offered as
    /// nvidia.com/gpu).
    #[arg(long, env = "MIG_STRATEGY")]
    pub mig_strategy: Option<String>,
    /// End with an error when the driver does not answer at the start, instead of waiting for it [default: true].
    #[arg(long, env = "FAIL_ON_INIT_ERROR", action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", value_parser = BoolishValueParser::new())]
    pub fail_on_init_error: Option<bool>,
    /// How the container runtime is told which GPUs a container has: any of envvar, volume-mounts, cdi-annotations,
    /// cdi-cri [default: envvar].
    #[arg(long, env = "DEVICE_LIST_STRATEGY", value_delimiter = ',')]
    pub device_list_strategy: Option<Vec<String>>,
    /// By which name: uuid or index [default: uuid].
    #[arg(long, env = "DEVICE_ID_STRATEGY")]
    pub device_id_strategy: Option<String>,
    /// Pass the device nodes to the kubelet too, for runtimes without NVIDIA's hook.
    #[arg(long, env = "PASS_DEVICE_SPECS", action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", value_parser = BoolishValueParser::new())]
    pub pass_device_specs: Option<bool>,
    /// Where the driver is installed on the host, e.g. /run/nvidia/driver [default: /].
    #[arg(long, visible_alias = "nvidia-driver-root", env = "NVIDIA_DRIVER_ROOT")]
    pub driver_root: Option<String>,
    /// Where the driver root is mounted for the agent: NVML's library is looked for there first [default: /driver-root].
    #[arg(long, env = "DRIVER_ROOT_CTR_PATH", value_name = "FOLDER")]
    pub driver_root_ctr_path: Option<String>,
    /// Where the driver's /dev hangs on the host [default: the driver root].
    #[arg(long, visible_alias = "nvidia-dev-root", env = "NVIDIA_DEV_ROOT")]
    pub dev_root: Option<String>,
    /// Prefix of the annotation that the cdi-annotations strategy sets [default: cdi.k8s.io/].
    #[arg(long, env = "CDI_ANNOTATION_PREFIX")]
    pub cdi_annotation_prefix: Option<String>,
    /// Write a CDI specification of the GPUs' device nodes into this folder, e.g. /var/run/cdi. Without it, somebody else
    /// must define the names that the CDI strategies give.
    #[arg(long, value_name = "FOLDER")]
    pub cdi_folder: Option<PathBuf>,
    /// Ask the runtime for GDRCopy in every GPU container.
    #[arg(long, env = "GDRCOPY_ENABLED", action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", value_parser = BoolishValueParser::new())]
    pub gdrcopy_enabled: Option<bool>,
    /// Ask the runtime for GPUDirect Storage in every GPU container.
    #[arg(long, env = "GDS_ENABLED", action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", value_parser = BoolishValueParser::new())]
    pub gds_enabled: Option<bool>,
    /// Ask the runtime for Mellanox' OFED in every GPU container.
    #[arg(long, env = "MOFED_ENABLED", action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", value_parser = BoolishValueParser::new())]
    pub mofed_enabled: Option<bool>,
    /// File with the machine's product name, for the label nvidia.com/gpu.machine [default: class/dmi/id/product_name
    /// below the sysfs root].
    #[arg(long, env = "GFD_MACHINE_TYPE_FILE")]
    pub machine_type_file: Option<String>,
    /// XIDs that leave a GPU healthy besides 13, 31, 43, 45, 68 and 109, separated by commas; `all` switches the checks
    /// off.
    #[arg(long, env = "DP_DISABLE_HEALTHCHECKS")]
    pub disable_healthchecks: Option<String>,
    /// XIDs that make a GPU unhealthy although they are ignored otherwise, separated by commas; `all` for every one.
    #[arg(long, env = "DP_ENABLE_HEALTHCHECKS")]
    pub enable_healthchecks: Option<String>,
}
