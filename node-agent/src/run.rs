use std::path::PathBuf;
use std::sync::Arc;

use crds::names::nvidia::GPU;
use crds::names::trireme::NAMESPACE;
use kit::Context;
use kit::admin::{self, METRICS_PREFIX, Readiness, Requirement};
use kit::events::Events;
use kit::http::{self, Listen};
use kit::watch::Reports;
use model::planted::Planted;
use prometheus_client::registry::Registry;
use proto::sockets::Sockets;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::cdi;
use crate::config::{Intervals, Settings};
use crate::driver::{DriverError, GpuDriver};
use crate::gpu_node::{self, Standing};
use crate::inventory::{HealthChange, Inventory};
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
    let said = Said::new(&ctx);
    let readiness = Readiness::new();
    let registered = readiness.require("kubelet", "not registered with the kubelet yet");
    let (inventory, inventory_seen) = watch::channel(Arc::new(Inventory::default()));
    let (changes, changes_seen) = mpsc::channel(MAX_CHANGES);
    let mut monitor = Monitor::new(
        ctx.clone(),
        config.driver.clone(),
        (settings.xid_policy.clone(), config.intervals.clone()),
        said.metrics.clone(),
        Outputs { inventory, changes, planted: config.planted },
    );
    publish_admin(&ctx, &config, &said, readiness, &inventory_seen).await?;
    monitor.recall(publish::recall(&ctx, &config.node_name).await);
    monitor.start().await;
    let driver_error = inventory_seen.borrow().driver_error().cloned();
    if let Some(error) = driver_error.filter(|_| settings.fail_on_init_error) {
        return Err(Error::NoDriver(error));
    }
    let mut tasks = vec![ctx.tasks.spawn(monitor.run())];
    tasks.extend(serve(&ctx, &config, &said, registered, (inventory_seen, changes_seen)));
    for task in tasks {
        // A real process ends with the panic of any task. Where it is a value in a simulation, the panic has been told.
        if let Err(error) = task.await {
            tracing::error!(%error, "a task of the agent ended");
        }
    }
    Ok(())
}

/// What the agent counts and tells.
struct Said {
    metrics: Metrics,
    events: Events,
    reports: Reports,
}

impl Said {
    fn new(ctx: &Context) -> Self {
        // One agent a node: nobody else writes these events, so there is no gate to ask.
        let events = Events::start(ctx, "node-agent", kit::writes::always());
        Self { metrics: Metrics::default(), reports: Reports::new(&events), events }
    }

    /// All that `/metrics` shows.
    fn registry(&self) -> Registry {
        let mut registry = Registry::default();
        self.metrics.register(&mut registry);
        let shared = registry.sub_registry_with_prefix(METRICS_PREFIX);
        self.reports.register(shared);
        self.events.register(shared);
        registry
    }
}

/// Starts what works on the inventory: towards the kubelet, and towards the cluster.
fn serve(
    ctx: &Context,
    config: &Config,
    said: &Said,
    registered: Requirement,
    (inventory, changes): (watch::Receiver<Arc<Inventory>>, mpsc::Receiver<HealthChange>),
) -> Vec<JoinHandle<Option<()>>> {
    let (settings, name) = (&config.settings, &config.node_name);
    let Said { metrics, events, reports } = said;
    let (node, node_seen) = watch::channel(None);
    let (gpu_node, gpu_node_seen) = watch::channel(Stored::Unknown);
    let (standing, standing_seen) = watch::channel(Standing::Good);
    let placement = Arc::new(Placement::new(
        ctx,
        name.clone(),
        (config.sockets.clone(), config.pod_resources_socket.clone()),
        config.intervals.placement_wait,
        (metrics.clone(), events.clone()),
    ));
    let registrar = Registrar {
        ctx: ctx.clone(),
        plugin: Plugin::new(
            GPU,
            inventory.clone(),
            (settings.mig_strategy, settings.response()),
            placement.clone(),
            (metrics.clone(), config.planted),
        ),
        places: Places {
            sockets: config.sockets.clone(),
            own: registration::own_socket(&config.kubelet_socket, GPU),
            kubelet: config.kubelet_socket.clone(),
        },
        intervals: config.intervals.clone(),
        node: node_seen.clone(),
        metrics: metrics.clone(),
        ready: registered,
        standing,
        planted: config.planted,
    };
    let machine_file = settings.machine_type_file.clone();
    let publisher = Publisher {
        ctx: ctx.clone(),
        node: name.clone(),
        inventory: inventory.clone(),
        seen: node_seen.clone(),
        stored: gpu_node_seen,
        standing: standing_seen,
        strategy: settings.mig_strategy,
        machine_file: machine_file.unwrap_or_else(|| config.sys_root.join("class/dmi/id/product_name")),
        timestamps: !settings.no_timestamp,
        metrics: metrics.clone(),
    };
    let follow_node = publish::follow_node(ctx.clone(), name.clone(), GPU, reports.clone(), node);
    let follow_gpu_node = publish::follow_gpu_node(ctx.clone(), name.clone(), reports.clone(), gpu_node);
    let report = publish::report_changes(ctx.clone(), name.clone(), node_seen, events.clone(), changes);
    let mut tasks = vec![
        ctx.tasks.spawn(placement.follow(ctx.clone(), reports.clone())),
        ctx.tasks.spawn(follow_node),
        ctx.tasks.spawn(follow_gpu_node),
        ctx.tasks.spawn(publisher.run()),
        ctx.tasks.spawn(report),
        ctx.tasks.spawn(registrar.run()),
    ];
    if let Some(folder) = &settings.cdi_folder {
        let keeper = cdi::keep(ctx.clone(), folder.clone(), settings.response(), inventory, metrics.clone());
        tasks.push(ctx.tasks.spawn(keeper));
    }
    tasks
}

async fn publish_admin(
    ctx: &Context,
    config: &Config,
    said: &Said,
    readiness: Readiness,
    inventory: &watch::Receiver<Arc<Inventory>>,
) -> Result<(), http::ListenError> {
    let Some(listen) = &config.admin else { return Ok(()) };
    let inventory = inventory.clone();
    let state: admin::StateSource = Arc::new(move || {
        let status = gpu_node::status(&inventory.borrow());
        Box::pin(async move { serde_json::json!({ "gpuNode": status }) })
    });
    let router = admin::router(readiness, Arc::new(said.registry()), Some(state));
    http::publish(ctx, NAMESPACE, SERVICE, listen, router).await.map(drop)
}
