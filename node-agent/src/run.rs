use std::path::PathBuf;
use std::sync::Arc;

use crds::names::nvidia::GPU;
use crds::names::trireme::NAMESPACE;
use kit::Context;
use kit::admin::{self, Readiness};
use kit::http::{self, Listen};
use model::planted::Planted;
use prometheus_client::registry::Registry;
use proto::sockets::Sockets;
use tokio::sync::{mpsc, watch};

use crate::cdi;
use crate::config::{Intervals, Settings};
use crate::driver::{DriverError, GpuDriver};
use crate::gpu_node::{self, Standing};
use crate::inventory::Inventory;
use crate::metrics::Metrics;
use crate::monitor::{Monitor, Outputs};
use crate::placement::Placement;
use crate::plugin::Plugin;
use crate::publish::{self, Publisher, Stored};
use crate::registration::{self, Places, Registrar};

/// The Service under which the agents' pages are found, where services are found in process.
const SERVICE: &str = "node-agent";

/// Changes of health that wait to be reported: every GPU of a node a few times.
const MAX_CHANGES: usize = 256;

/// What one agent needs besides its [`Context`].
#[derive(Clone)]
pub struct Config {
    /// The node it runs on.
    pub node_name: String,
    /// Where GPUs come from.
    pub driver: Arc<dyn GpuDriver>,
    /// Where sockets are.
    pub sockets: Sockets,
    /// The kubelet's registration socket; the agent's own socket is made beside it.
    pub kubelet_socket: PathBuf,
    /// The kubelet's PodResources socket.
    pub pod_resources_socket: PathBuf,
    /// Where sysfs is mounted, `/sys` as a rule.
    pub sys_root: PathBuf,
    /// What flags, environment and file decided.
    pub settings: Settings,
    /// How often to look.
    pub intervals: Intervals,
    /// Where the pages for those who run it are served, if at all.
    pub admin: Option<Listen>,
    /// A bug on purpose, for testing the fuzzer.
    pub planted: Planted,
}

impl Config {
    /// A configuration with all defaults.
    pub fn new(node_name: impl Into<String>, driver: Arc<dyn GpuDriver>, sockets: Sockets) -> Self {
        let plugins = PathBuf::from(proto::deviceplugin::DIRECTORY);
        Self {
            node_name: node_name.into(),
            driver,
            sockets,
            kubelet_socket: plugins.join(proto::deviceplugin::KUBELET_SOCKET),
            pod_resources_socket: PathBuf::from(proto::podresources::SOCKET),
            sys_root: PathBuf::from("/sys"),
            settings: Settings::default(),
            intervals: Intervals::default(),
            admin: None,
            planted: Planted::NONE,
        }
    }
}

/// Why the agent ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The driver did not answer at the start, and `failOnInitError` is set.
    #[error("no GPU driver: {0} (set --fail-on-init-error=false to wait for it)")]
    NoDriver(#[source] DriverError),
    /// The admin pages cannot be served.
    #[error(transparent)]
    Admin(#[from] http::ListenError),
}

/// Serves this node's GPUs to the kubelet and tells the cluster about them, until the context stops.
///
/// # Errors
/// When the driver does not answer at the start and the settings say that this is fatal.
pub async fn run(ctx: Context, config: Config) -> Result<(), Error> {
    let settings = &config.settings;
    let metrics = Metrics::default();
    let readiness = Readiness::new();
    let (inventory, inventory_seen) = watch::channel(Arc::new(Inventory::default()));
    let (changes, changes_seen) = mpsc::channel(MAX_CHANGES);
    let mut monitor = Monitor::new(
        ctx.clone(),
        config.driver.clone(),
        (settings.xid_policy.clone(), config.intervals.clone()),
        metrics.clone(),
        Outputs { inventory, changes },
    );
    publish_admin(&ctx, &config, &metrics, &readiness, &inventory_seen).await?;
    monitor.recall(publish::recall(&ctx, &config.node_name).await);
    monitor.start().await;
    let driver_error = inventory_seen.borrow().driver_error().cloned();
    if let Some(error) = driver_error.filter(|_| settings.fail_on_init_error) {
        return Err(Error::NoDriver(error));
    }

    let placement = Arc::new(Placement::new(
        &ctx,
        config.node_name.clone(),
        (config.sockets.clone(), config.pod_resources_socket.clone()),
        config.intervals.placement_wait,
        metrics.clone(),
    ));
    let plugin = Plugin::new(
        GPU,
        inventory_seen.clone(),
        (settings.mig_strategy, settings.response()),
        placement.clone(),
        (metrics.clone(), config.planted),
    );
    let inventory_for_cdi = inventory_seen.clone();
    let (node, node_seen) = watch::channel(None);
    let (standing, standing_seen) = watch::channel(Standing::Good);
    let registrar = Registrar {
        ctx: ctx.clone(),
        plugin,
        places: Places {
            sockets: config.sockets.clone(),
            own: registration::own_socket(&config.kubelet_socket, GPU),
            kubelet: config.kubelet_socket.clone(),
        },
        intervals: config.intervals.clone(),
        node: node_seen.clone(),
        metrics: metrics.clone(),
        ready: readiness.require("kubelet", "not registered with the kubelet yet"),
        standing,
        planted: config.planted,
    };
    let (gpu_node, gpu_node_seen) = watch::channel(Stored::Unknown);
    let publisher = Publisher {
        ctx: ctx.clone(),
        node: config.node_name.clone(),
        inventory: inventory_seen,
        seen: node_seen.clone(),
        stored: gpu_node_seen,
        standing: standing_seen,
        strategy: settings.mig_strategy,
        machine_file: settings
            .machine_type_file
            .clone()
            .unwrap_or_else(|| config.sys_root.join("class/dmi/id/product_name")),
        timestamps: !settings.no_timestamp,
        metrics: metrics.clone(),
    };
    let mut tasks = vec![
        ctx.tasks.spawn(monitor.run()),
        ctx.tasks.spawn(placement.follow(ctx.clone())),
        ctx.tasks.spawn(publish::follow_node(ctx.clone(), config.node_name.clone(), GPU, node)),
        ctx.tasks.spawn(publish::follow_gpu_node(ctx.clone(), config.node_name.clone(), gpu_node)),
        ctx.tasks.spawn(publisher.run()),
        ctx.tasks.spawn(publish::report_changes(
            ctx.clone(),
            config.node_name.clone(),
            node_seen.clone(),
            changes_seen,
        )),
        ctx.tasks.spawn(registrar.run()),
    ];
    if let Some(folder) = &settings.cdi_folder {
        let keeper =
            cdi::keep(ctx.clone(), folder.clone(), settings.response(), inventory_for_cdi, metrics.clone());
        tasks.push(ctx.tasks.spawn(keeper));
    }
    for task in tasks {
        // A task that panicked has said so; the others go on without it until the context stops.
        if let Err(error) = task.await {
            tracing::error!(%error, "a task of the agent ended");
        }
    }
    Ok(())
}

async fn publish_admin(
    ctx: &Context,
    config: &Config,
    metrics: &Metrics,
    readiness: &Readiness,
    inventory: &watch::Receiver<Arc<Inventory>>,
) -> Result<(), http::ListenError> {
    let Some(listen) = &config.admin else { return Ok(()) };
    let mut registry = Registry::default();
    metrics.register(&mut registry);
    let inventory = inventory.clone();
    let state: admin::StateSource = Arc::new(move || {
        let status = gpu_node::status(&inventory.borrow());
        Box::pin(async move { serde_json::json!({ "gpuNode": status }) })
    });
    let router = admin::router(readiness.clone(), Arc::new(registry), Some(state));
    http::publish(ctx, NAMESPACE, SERVICE, listen, router).await.map(drop)
}
