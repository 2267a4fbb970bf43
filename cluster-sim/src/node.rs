//! Kubelets: each a node with a device manager that speaks the real device-plugin services, and pods that run as their
//! annotations say.
//!
//! [`Cluster::add_node`] gives a [`Kubelet`]; a device plugin finds it at [`Kubelet::sockets`]. Pods that are bound to the
//! node are admitted one at a time as the real kubelet does it, get their devices, run, and are reported; nothing is
//! written while nothing changes (a real kubelet's lease is switched off).

mod admission;
mod admit;
mod devices;
mod env;
mod node_status;
mod plugins;
mod pod;
mod pod_resources;
mod pod_status;
mod run;
mod spec;
mod worker;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kit::{Rng, Tasks};
use model::resources::ResourceName;
use proto::deviceplugin::registration_server::RegistrationServer;
use proto::deviceplugin::{self, ContainerAllocateResponse};
use proto::podresources::pod_resources_lister_server::PodResourcesListerServer;
use proto::sockets::{Listener, Sockets};
use tokio::sync::Notify;
use tonic::transport::Server;

use crate::{ApiError, Cluster, PodLogs, Store};
use devices::{DeviceManager, Millis};
use pod::{Pod, PodUid};
use run::PodRun;

pub(crate) use pod_status::{parse_rfc3339, rfc3339};

pub use pod::{EXIT_CODE, RUN_FOR, STOP_AFTER};
pub use spec::NodeSpec;

impl Cluster {
    /// Adds a node and starts its kubelet. The Node object appears, Ready, as soon as the runtime gets to it.
    ///
    /// # Errors
    /// When the kubelet's sockets cannot be made.
    pub fn add_node(&self, spec: NodeSpec) -> std::io::Result<Kubelet> {
        let kubelet = Kubelet(Arc::new(Inner {
            store: self.store(&format!("kubelet/{}", spec.name)),
            rng: self.rng(),
            tasks: self.tasks().child(),
            spec,
            disk: Mutex::default(),
            process: Mutex::default(),
            endpoints: Mutex::default(),
            ready: Mutex::new(true),
            queue: Mutex::default(),
            arrived: Notify::new(),
            node_changed: Notify::new(),
        }));
        self.set_pod_logs(&kubelet.0.spec.name, Arc::new(Logs(Arc::downgrade(&kubelet.0))));
        kubelet.start()?;
        Ok(kubelet)
    }
}

/// A handle to a node's kubelet. Clones are the same one.
#[derive(Clone)]
pub struct Kubelet(Arc<Inner>);

/// What a container was started with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContainerStart {
    /// The environment.
    pub env: BTreeMap<String, String>,
    /// What the device plugins gave: device nodes, mounts, annotations, CDI devices.
    pub given: ContainerAllocateResponse,
    /// The ids of the devices, by resource.
    pub devices: BTreeMap<ResourceName, BTreeSet<String>>,
}

struct Inner {
    spec: NodeSpec,
    store: Store,
    rng: Rng,
    /// The node's tasks; each start of the kubelet has its own inside.
    tasks: Tasks,
    disk: Mutex<Disk>,
    process: Mutex<Option<Tasks>>,
    endpoints: Mutex<BTreeMap<ResourceName, plugins::Endpoint>>,
    ready: Mutex<bool>,
    /// Pods that wait for admission, in the order in which they were bound.
    queue: Mutex<Vec<Pod>>,
    arrived: Notify,
    node_changed: Notify,
}

/// What survives a restart of the kubelet: its checkpoint, and the containers in the runtime.
#[derive(Default)]
struct Disk {
    devices: DeviceManager,
    pods: BTreeMap<PodUid, Taken>,
    addresses: u32,
}

/// A pod that the node has taken.
struct Taken {
    pod: Pod,
    run: PodRun,
    since: Millis,
    address: String,
    /// Why its containers cannot be started.
    trouble: Option<String>,
    starts: BTreeMap<String, ContainerStart>,
    /// Its object is gone: there is nobody left to report to.
    gone: bool,
    /// The status last written: should the API server store something else, it is not written again and again.
    reported: Option<serde_json::Value>,
    changed: Arc<Notify>,
}

impl Disk {
    /// The pods whose containers are not over.
    fn active(&self) -> impl Iterator<Item = &Taken> {
        self.pods.values().filter(|taken| !taken.run.is_over())
    }
}

impl Kubelet {
    /// The node's name.
    pub fn name(&self) -> &str {
        &self.0.spec.name
    }

    /// Where the node's sockets are.
    pub fn sockets(&self) -> &Sockets {
        &self.0.spec.sockets
    }

    /// What the node was made from, with the folders of its sockets.
    pub fn spec(&self) -> &NodeSpec {
        &self.0.spec
    }

    /// Restarts the kubelet: plugins lose their connections and their sockets, and must register again. Containers run on.
    ///
    /// # Errors
    /// When the sockets cannot be made.
    pub fn restart(&self) -> std::io::Result<()> {
        self.stop();
        self.start()
    }

    /// Stops the kubelet. Containers run on, but nothing is reported or admitted, and its sockets answer no more.
    pub fn stop(&self) {
        if let Some(process) = lock(&self.0.process).take() {
            process.kill();
        }
        self.0.endpoints().clear();
        lock(&self.0.queue).clear();
    }

    /// Starts a stopped kubelet; nothing if it runs.
    ///
    /// # Errors
    /// When the sockets cannot be made.
    pub fn start(&self) -> std::io::Result<()> {
        if self.0.process().is_some() {
            return Ok(());
        }
        let (registration, resources) = self.0.sockets()?;
        let now = self.0.now();
        self.0.disk().devices.restarted(now);
        let tasks = self.0.tasks.child();
        *lock(&self.0.process) = Some(tasks.clone());
        let weak = Arc::downgrade(&self.0);
        let registrar = Server::builder()
            .add_service(RegistrationServer::new(plugins::Registrar(weak.clone())))
            .serve_with_incoming(registration);
        let lister = Server::builder()
            .add_service(PodResourcesListerServer::new(pod_resources::Lister(weak)))
            .serve_with_incoming(resources);
        spawn(&tasks, registrar);
        spawn(&tasks, lister);
        spawn(&tasks, node_status::keep(self.0.clone()));
        spawn(&tasks, admission::follow(self.0.clone(), tasks.clone()));
        spawn(&tasks, admission::admit(self.0.clone(), tasks.clone()));
        Ok(())
    }

    /// Makes the node Ready or not, as a runtime or a network that fails would.
    pub fn set_ready(&self, ready: bool) {
        *lock(&self.0.ready) = ready;
        self.0.node_changed.notify_one();
    }

    /// What a running or ended container was last started with. `None`: no such pod on this node, or not started yet.
    pub fn container(&self, namespace: &str, pod: &str, container: &str) -> Option<ContainerStart> {
        self.0.container(namespace, pod, container)
    }

    /// Who holds the device, as `namespace/name`.
    pub fn holder(&self, resource: &str, id: &str) -> Option<String> {
        let disk = self.0.disk();
        let uid = disk.devices.holder(&resource.into(), id)?;
        let meta = &disk.pods.get(uid)?.pod.meta;
        Some(format!("{}/{}", meta.namespace, meta.name))
    }
}

impl fmt::Debug for Kubelet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kubelet({})", self.name())
    }
}

impl Inner {
    fn now(&self) -> Millis {
        self.store.cluster().clock().unix_millis()
    }

    /// The tasks of the running kubelet; none while it is stopped.
    fn process(&self) -> Option<Tasks> {
        lock(&self.process).clone()
    }

    /// Never hold the guard across an await.
    fn disk(&self) -> MutexGuard<'_, Disk> {
        lock(&self.disk)
    }

    fn endpoints(&self) -> MutexGuard<'_, BTreeMap<ResourceName, plugins::Endpoint>> {
        lock(&self.endpoints)
    }

    fn container(&self, namespace: &str, pod: &str, container: &str) -> Option<ContainerStart> {
        let disk = self.disk();
        // A name may come again while its last bearer is still going: the youngest is meant.
        let named =
            disk.pods.values().filter(|t| t.pod.meta.namespace == namespace && t.pod.meta.name == pod);
        named.max_by_key(|taken| taken.since)?.starts.get(container).cloned()
    }

    /// Empties the plugin folder but for the checkpoint, as a starting kubelet does, and makes both sockets.
    fn sockets(&self) -> std::io::Result<(Listener, Listener)> {
        let plugins = self.spec.plugin_directory();
        let resources = self.spec.pod_resources_socket();
        if let Sockets::Unix = self.spec.sockets {
            std::fs::create_dir_all(&plugins)?;
            resources.parent().map_or(Ok(()), std::fs::create_dir_all)?;
        }
        let sockets = &self.spec.sockets;
        let checkpoint = plugins.join(deviceplugin::CHECKPOINT);
        for path in sockets.list(&plugins)?.into_iter().filter(|path| *path != checkpoint) {
            sockets.remove(&path)?;
        }
        if sockets.exists(&resources) {
            sockets.remove(&resources)?;
        }
        Ok((sockets.listen(&plugins.join(deviceplugin::KUBELET_SOCKET))?, sockets.listen(&resources)?))
    }
}

/// `kubectl logs` shows the environment of a container.
struct Logs(std::sync::Weak<Inner>);

impl PodLogs for Logs {
    fn text(&self, namespace: &str, pod: &str, container: &str) -> Result<String, String> {
        let waiting = || format!("container \"{container}\" in pod \"{pod}\" is waiting to start");
        let start = self.0.upgrade().and_then(|kubelet| kubelet.container(namespace, pod, container));
        let start = start.ok_or_else(waiting)?;
        Ok(start.env.iter().map(|(name, value)| format!("{name}={value}\n")).collect())
    }
}

/// Runs a task of the kubelet until it ends or the kubelet does.
fn spawn<F>(tasks: &Tasks, future: F)
where
    F: Future<Output: Send> + Send + 'static,
{
    let group = tasks.clone();
    tasks.spawn(async move {
        tokio::select! {
            biased;
            () = group.stopping() => {}
            _ = future => {}
        }
    });
}

/// Whether a write failed because its object is not there (any more).
fn is_gone(error: &ApiError) -> bool {
    error.code == 404
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
