//! `node-agent`: offers this node's GPUs to the kubelet and tells the cluster about them.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};
use clap::Parser;
use fake_nvml::{Handle, World, WorldSpec};
use kit::{Clients, Clock, Context, Identity, Rng, ServiceTable, Tasks};
use kube::config::{KubeConfigOptions, Kubeconfig};
use node_agent::Config;
use node_agent::config::{ConfigFile, Flags, Settings};
use node_agent::driver::{FakeDriver, GpuDriver, NvmlDriver};
use proto::sockets::Sockets;

/// Offers this node's GPUs to the kubelet, watches their health, and tells the cluster about them: a device plugin for
/// nvidia.com/gpu, GPU feature discovery's labels, and a GpuNode object.
#[derive(Parser)]
#[command(name = "node-agent", version)]
struct Cli {
    /// Name of the Node object of this machine.
    #[arg(long, env = "NODE_NAME")]
    node_name: String,
    /// Kubeconfig to use; without it the pod's service account.
    #[arg(long, env = "KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// NVIDIA's device plugin file (`version: v1`); flags and environment variables beat it.
    #[arg(long, visible_alias = "config", env = "CONFIG_FILE")]
    config_file: Option<PathBuf>,
    /// Where GPUs come from: `nvml`, or `fake:PROFILE` for a world of fake ones (8xA100, 8xH100, 4xL40S, or a YAML file).
    #[arg(long, default_value = "nvml")]
    driver: String,
    /// NVML's shared library, if it is not where the loader finds libnvidia-ml.so.1.
    #[arg(long)]
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
    #[command(flatten)]
    flags: Flags,
}

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .json()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    let outcome = Cli::try_parse().map_err(anyhow::Error::from).and_then(start);
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => match error.downcast_ref::<clap::Error>() {
            Some(usage) => usage.exit(),
            None => {
                eprintln!("node-agent: {error:#}");
                ExitCode::FAILURE
            }
        },
    }
}

fn start(cli: Cli) -> anyhow::Result<()> {
    let file = match &cli.config_file {
        Some(path) => ConfigFile::load(path)?,
        None => ConfigFile::empty(),
    };
    let settings = Settings::resolve(&cli.flags, &file)?;
    let driver = driver(&cli)?;
    // The agent waits; what it does is small. Slow calls to the driver have threads of their own.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async move {
        let ctx = context(&cli).await?;
        let mut config = Config::new(cli.node_name, driver, Sockets::Unix);
        config.kubelet_socket = cli.kubelet_socket;
        config.pod_resources_socket = cli.pod_resources_socket;
        config.sys_root = cli.sys_root;
        config.settings = settings;
        let tasks = ctx.tasks.clone();
        tasks.spawn({
            let tasks = tasks.clone();
            async move {
                terminated().await;
                tasks.stop();
            }
        });
        Ok(node_agent::run(ctx, config).await?)
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

async fn context(cli: &Cli) -> anyhow::Result<Context> {
    let config = match &cli.kubeconfig {
        Some(path) => {
            let kubeconfig = Kubeconfig::read_from(path)
                .with_context(|| format!("--kubeconfig: {} cannot be read", path.display()))?;
            kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?
        }
        None => kube::Config::incluster()
            .map_err(|error| anyhow!("not in a cluster ({error}); give --kubeconfig"))?,
    };
    let client = || kube::Client::try_from(config.clone());
    Ok(Context {
        clients: Clients { write: client()?, watch: client()?, lease: client()? },
        clock: Clock::System,
        rng: Rng::from_entropy(),
        tasks: Tasks::new(),
        identity: Identity::new(cli.node_name.as_str()),
        services: ServiceTable::new(),
    })
}

/// SIGTERM or SIGINT.
async fn terminated() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => tokio::select! {
            biased;
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        },
        Err(_) => {
            let _ended_either_way = tokio::signal::ctrl_c().await;
        }
    }
}
