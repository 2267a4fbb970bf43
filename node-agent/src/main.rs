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
    /// NVML's shared library, if libnvidia-ml.so.1 is neither below --driver-root-ctr-path nor where the loader finds it.
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
    /// Where health, metrics and state are served, over plain HTTP.
    #[arg(long, default_value = "[::]:8083", value_name = "ADDRESS")]
    admin_address: SocketAddr,
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
    check_node_name(&cli.node_name)?;
    let driver = driver(&cli, &settings)?;
    Ok(Config {
        kubelet_socket: cli.kubelet_socket,
        pod_resources_socket: cli.pod_resources_socket,
        sys_root: cli.sys_root,
        admin: Some(Listen::Plain(cli.admin_address)),
        settings,
        ..Config::new(cli.node_name, driver, Sockets::Unix)
    })
}

/// The name of a Node is a DNS subdomain (RFC 1123), and stands in field selectors.
fn check_node_name(name: &str) -> anyhow::Result<()> {
    let part = |part: &str| {
        let ends = [part.chars().next(), part.chars().next_back()];
        ends.iter().all(|end| end.is_some_and(|end| end != '-'))
            && part.chars().all(|char| char.is_ascii_lowercase() || char.is_ascii_digit() || char == '-')
    };
    if name.len() > 253 || !name.split('.').all(part) {
        bail!("--node-name: `{name}` cannot be a Node's name: lower-case letters, digits, `-` and `.`");
    }
    Ok(())
}

fn driver(cli: &Cli, settings: &Settings) -> anyhow::Result<Arc<dyn GpuDriver>> {
    match cli.driver.split_once(':') {
        None if cli.driver == "nvml" => {
            let driver = NvmlDriver::new(cli.nvml_library.clone(), cli.sys_root.clone());
            Ok(Arc::new(driver.with_driver_root(&settings.container_driver_root)))
        }
        Some(("fake", profile)) => {
            let world = World::new(WorldSpec::load(profile)?, &cli.node_name);
            Ok(Arc::new(FakeDriver::new(Handle::new(world))))
        }
        _ => bail!("--driver: `{}` is neither `nvml` nor `fake:PROFILE`", cli.driver),
    }
}
