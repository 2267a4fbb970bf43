use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use std::time::Duration;

use kit::{Clock, Rng, ServiceTable, Tasks};
use tokio::sync::Notify;

use crate::error::ApiError;
use crate::faults::Faults;
use crate::handle::Store;
use crate::http::ApiService;
use crate::object::ObjectKey;
use crate::resources::{GroupResource, Resource};
use crate::store::{Commit, State};

/// What a simulated cluster takes from outside.
#[derive(Clone)]
pub struct SimConfig {
    /// Time; virtual in tests.
    pub clock: Clock,
    /// Where the cluster's own controllers run.
    pub tasks: Tasks,
    /// Seed of uids, generated names and faults.
    pub rng: Rng,
    /// The in-process services that webhooks and conversion resolve to.
    pub services: ServiceTable,
    /// Commits kept for [`Cluster::log`]; 0 keeps none.
    pub log_limit: usize,
    /// Changes kept per resource for watches to resume from.
    pub history_limit: usize,
    /// How often a watch that asked for bookmarks gets one.
    pub bookmark_interval: Duration,
    /// What the cluster begins with; without it, only with what every cluster has.
    pub image: Option<Image>,
    /// Whether a batch Job that is suspended keeps `status.startTime`, and with it a template that may not change: so it is in
    /// Kubernetes without the feature gate `MutableSchedulingDirectivesForSuspendedJobs`, which is open since 1.36.
    pub keeps_start_time: bool,
}

/// Everything a cluster held at a moment. Cheap to clone and to begin a cluster with: a simulation installs its custom
/// resource definitions once, and not in each of a thousand episodes.
#[derive(Clone)]
pub struct Image(Arc<crate::store::Image>);

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Image")
    }
}

impl SimConfig {
    /// A configuration with the usual limits: 65,536 commits for readers of the log, 1,024 changes a resource (about what
    /// a real watch cache holds for a busy one), and a bookmark a minute (`bookmarkFrequency` of the watch cache).
    pub fn new(clock: Clock, tasks: Tasks, rng: Rng, services: ServiceTable) -> Self {
        Self {
            clock,
            tasks,
            rng,
            services,
            log_limit: 65_536,
            history_limit: 1_024,
            bookmark_interval: Duration::from_secs(60),
            image: None,
            keeps_start_time: false,
        }
    }
}

/// Answers `pods/log`: implemented by the kubelet that runs the pod.
pub trait PodLogs: Send + Sync {
    /// The output of a container so far.
    ///
    /// # Errors
    /// A sentence for the user when there is nothing to show, as when the container has not started.
    fn text(&self, namespace: &str, pod: &str, container: &str) -> Result<String, String>;
}

/// A simulated cluster. Clones are handles to the same one.
#[derive(Clone)]
pub struct Cluster(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) clock: Clock,
    pub(crate) tasks: Tasks,
    pub(crate) controllers: Tasks,
    pub(crate) rng: Rng,
    pub(crate) services: ServiceTable,
    pub(crate) faults: Faults,
    pub(crate) bookmark_interval: Duration,
    pub(crate) keeps_start_time: bool,
    state: Mutex<State>,
    logs: Mutex<BTreeMap<String, Arc<dyn PodLogs>>>,
    /// Told when an object was deleted or began to be: work for garbage collection and namespace termination.
    pub(crate) housekeeping: Notify,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cluster(revision {})", self.state().revision)
    }
}

impl Cluster {
    /// Starts an empty cluster: the initial namespaces and priority classes, garbage collection and namespace
    /// termination. Must be called inside a tokio runtime.
    pub fn new(config: SimConfig) -> Self {
        let state = match &config.image {
            Some(image) => State::from_image(&image.0, config.log_limit, config.history_limit),
            None => State::new(config.log_limit, config.history_limit),
        };
        let cluster = Self(Arc::new(Inner {
            faults: Faults::new(config.rng.fork()),
            bookmark_interval: config.bookmark_interval,
            keeps_start_time: config.keeps_start_time,
            clock: config.clock,
            controllers: config.tasks.child(),
            tasks: config.tasks,
            rng: config.rng,
            services: config.services,
            state: Mutex::new(state),
            logs: Mutex::default(),
            housekeeping: Notify::new(),
        }));
        crate::lifecycle::start(&cluster, config.image.is_none());
        cluster
    }

    /// Everything the cluster holds now, to begin other clusters with.
    pub fn image(&self) -> Image {
        Image(Arc::new(self.state().image()))
    }

    /// A client without a socket, that writes as `client`.
    pub fn client(&self) -> kube::Client {
        self.client_as("client")
    }

    /// A client whose writes carry this name in the log, and at which faults can be aimed.
    pub fn client_as(&self, writer: &str) -> kube::Client {
        kube::Client::new(ApiService::new(self.clone(), writer), "default")
    }

    /// The objects without HTTP, for the cluster's own kubelets and controllers: same rules, same watches, same log.
    pub fn store(&self, writer: &str) -> Store {
        Store::new(self.clone(), writer)
    }

    /// Which errors, delays and losses clients meet.
    pub fn faults(&self) -> &Faults {
        &self.0.faults
    }

    /// The clock of the cluster.
    pub fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// The task group of the cluster's own controllers: frozen, nobody makes the pods of jobs.
    pub fn controllers(&self) -> &Tasks {
        &self.0.controllers
    }

    /// The task group in which the cluster handles its requests.
    pub fn tasks(&self) -> &Tasks {
        &self.0.tasks
    }

    /// A generator forked from the cluster's.
    pub fn rng(&self) -> Rng {
        self.0.rng.fork()
    }

    /// The current revision: the resourceVersion of the latest write.
    pub fn revision(&self) -> u64 {
        self.state().revision
    }

    /// The commits after a revision that the log still holds, oldest first.
    pub fn log_since(&self, revision: u64) -> Vec<Arc<Commit>> {
        self.state().log_since(revision)
    }

    /// The commits that the log still holds, oldest first.
    pub fn log(&self) -> Vec<Arc<Commit>> {
        self.log_since(0)
    }

    /// Calls `observer` after every commit, in order, while the store is locked: it must not call back into the
    /// cluster, or it waits for itself.
    pub fn on_commit(&self, observer: impl FnMut(&Commit) + Send + 'static) {
        self.state().observe(Box::new(observer));
    }

    /// Forgets all history: every watch that resumes from an older revision gets 410 Expired, as after a compaction.
    pub fn compact(&self) {
        self.state().compact();
    }

    /// Makes the pods of a node answer `pods/log`.
    pub fn set_pod_logs(&self, node: &str, logs: Arc<dyn PodLogs>) {
        self.0.logs.lock().unwrap_or_else(PoisonError::into_inner).insert(node.to_owned(), logs);
    }

    pub(crate) fn pod_logs(&self, node: &str) -> Option<Arc<dyn PodLogs>> {
        self.0.logs.lock().unwrap_or_else(PoisonError::into_inner).get(node).cloned()
    }

    /// The state. Never hold the guard across an await.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn resource(&self, id: &GroupResource) -> Result<Arc<Resource>, ApiError> {
        self.state().registry.get(id).cloned().ok_or_else(ApiError::no_such_path)
    }

    pub(crate) fn object(&self, id: &GroupResource, key: &ObjectKey) -> Result<Arc<crate::Object>, ApiError> {
        self.state().get(id, key).ok_or_else(|| ApiError::not_found(id, &key.name))
    }

    /// The time as Kubernetes writes it: whole seconds, UTC.
    pub(crate) fn timestamp(&self) -> String {
        crate::lifecycle::rfc3339(self.0.clock.now())
    }
}
