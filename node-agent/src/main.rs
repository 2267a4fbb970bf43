//! `node-agent`: offers this node's GPUs to the kubelet and tells the cluster about them.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::bail;
use clap::Parser;
use fake_nvml::{Handle, World, WorldSpec};
use kit::http::Listen;
use node_agent::Config;
use node_agent::config::{ConfigFile, Flags, Settings};
use node_agent::driver::{FakeDriver, GpuDriver, NvmlDriver};
use proto::sockets::Sockets;

/// The exit code for wrong arguments and configuration files.
const USAGE: u8 = 2;

/// Offers this node's GPUs to the kubelet, watches their health, and tells the cluster about them: a device plugin for
/// nvidia.com/gpu, GPU feature discovery's labels, and a GpuNode object.
#[derive(Parser)]
#[command(name = "node-agent", version)]
struct Cli {
    #[command(flatten)]
    process: kit::process::Args,
    /// Name of the Node object of this machine.
    #[arg(long, env = "NODE_NAME")]
    node_name: String,
    /// NVIDIA's device plugin file (`version: v1`); flags and environment variables beat it.
    #[arg(long, visible_alias = "config", env = "CONFIG_FILE", value_name = "FILE")]
    config_file: Option<PathBuf>,
    /// Where GPUs come from: `nvml`, or `fake:PROFILE` for a world of fake ones (8xA100, 8xH100, 4xL40S, or a YAML file).
    #[arg(long, default_value = "nvml")]
    driver: String,
    /// NVML's shared library, if it is not where the loader finds libnvidia-ml.so.1.
    #[arg(long, value_name = "FILE")]
    nvml_library: Option<OsString>,
    /// The kubelet's registration socket; the plugin's own is made in the same folder.
    #[arg(long, env = "KUBELET_SOCKET", default_value = "/var/lib/kubelet/device-plugins/kubelet.sock")]
    kubelet_socket: PathBuf,
    /// The kubelet's PodResources socket.
    #[arg(long, default_value = proto::podresources::SOCKET)]
    pod_resources_socket: PathBuf,
    /// Where sysfs is mounted: NUMA nodes and the machine's name are read there.
    #[arg(long, default_value = "/sys")]
    sys_root: PathBuf,
    /// Address of the pages /healthz, /readyz, /metrics and /debug/state; none are served without it.
    #[arg(long, value_name = "ADDRESS")]
    admin_address: Option<SocketAddr>,
    #[command(flatten)]
    flags: Flags,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let process = cli.process.clone();
    match config(cli) {
        Ok(config) => kit::process::run("node-agent", &process, |ctx| node_agent::run(ctx, config)),
        Err(error) => {
            eprintln!("node-agent: {error:#}");
            ExitCode::from(USAGE)
        }
    }
}

fn config(cli: Cli) -> anyhow::Result<Config> {
    let file = match &cli.config_file {
        Some(path) => ConfigFile::load(path)?,
        None => ConfigFile::empty(),
    };
    let settings = Settings::resolve(&cli.flags, &file)?;
    let driver = driver(&cli)?;
    Ok(Config {
        kubelet_socket: cli.kubelet_socket,
        pod_resources_socket: cli.pod_resources_socket,
        sys_root: cli.sys_root,
        admin: cli.admin_address.map(Listen::Plain),
        settings,
        ..Config::new(cli.node_name, driver, Sockets::Unix)
    })
}

fn driver(cli: &Cli) -> anyhow::Result<Arc<dyn GpuDriver>> {
    match cli.driver.split_once(':') {
        None if cli.driver == "nvml" => {
            Ok(Arc::new(NvmlDriver::new(cli.nvml_library.clone(), cli.sys_root.clone())))
        }
        Some(("fake", profile)) => {
            let world = World::new(WorldSpec::load(profile)?, &cli.node_name);
            Ok(Arc::new(FakeDriver::new(Handle::new(world))))
        }
        _ => bail!("--driver: `{}` is neither `nvml` nor `fake:PROFILE`", cli.driver),
    }
}
