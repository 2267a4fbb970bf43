//! Keeping the kubelet's ear: the plugin's socket, its registration, and noticing that either was lost.
//!
//! The kubelet tells nobody that it restarted; it wipes the folder and makes its socket anew. It also may lose a plugin
//! silently. So the sockets' identities, the number of listeners and the node's allocatable are looked at in turn, which
//! costs two `stat` calls a second.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kit::admin::Requirement;
use kit::backoff::Backoff;
use kit::{Context, Tasks};
use model::planted::{Bug, Planted};
use proto::deviceplugin::device_plugin_server::DevicePluginServer;
use proto::deviceplugin::registration_client::RegistrationClient;
use proto::deviceplugin::{RegisterRequest, VERSION};
use proto::sockets::Sockets;
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::transport::Server;

use crate::config::Intervals;
use crate::gpu_node::Standing;
use crate::metrics::Metrics;
use crate::plugin::{self, Idle, Plugin};
use crate::publish::SeenNode;

/// A registration that is not answered in this time has failed: the kubelet answers in milliseconds.
const REGISTER_TIMEOUT: Duration = Duration::from_secs(5);

/// A kubelet that restarts is back sooner than this; one that is away for longer is worth saying.
const KUBELET_PATIENCE: Duration = Duration::from_secs(30);

/// Refusals in a row that are worth saying: a kubelet that is just starting refuses once or twice.
const REFUSALS: u32 = 3;

/// The node's allocatable may differ from what is offered for this long: the kubelet posts its status every 10 s, and an
/// API server may be away for longer.
const ALLOCATABLE_PATIENCE: Duration = Duration::from_secs(30);

/// Registering anew because of the allocatable alone is done ever more rarely, at most every so often.
const ALLOCATABLE_LIMIT: Duration = Duration::from_secs(600);

/// Where things are.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    pub(crate) sockets: Sockets,
    /// The kubelet's registration socket.
    pub(crate) kubelet: PathBuf,
    /// The plugin's own socket, in the same folder.
    pub(crate) own: PathBuf,
}

pub(crate) struct Registrar {
    pub(crate) ctx: Context,
    pub(crate) plugin: Plugin,
    pub(crate) places: Places,
    pub(crate) intervals: Intervals,
    /// The node as it was last seen.
    pub(crate) node: watch::Receiver<Option<SeenNode>>,
    pub(crate) metrics: Metrics,
    /// Met while the kubelet has taken our registration.
    pub(crate) ready: Requirement,
    /// How we stand with the kubelet, for the `GpuNode`.
    pub(crate) standing: watch::Sender<Standing>,
    pub(crate) planted: Planted,
}

/// Why something must be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    /// The kubelet's socket is another one, or gone.
    KubeletRestarted,
    /// Our own socket is another one, or gone.
    SocketLost,
    /// The server ended by itself.
    ServerEnded,
    /// Nobody listens, though we are registered.
    Forgotten,
    /// The node offers another number than we do.
    Disbelieved,
}

/// Why a registration failed.
#[derive(Debug, thiserror::Error)]
enum RegisterError {
    /// Nobody is there.
    #[error("{0}")]
    Unreachable(String),
    /// The kubelet says no.
    #[error("{0}")]
    Refused(String),
}

/// A server that listens.
struct Serving {
    tasks: Tasks,
    identity: Option<u64>,
    ended: watch::Receiver<bool>,
}

impl Registrar {
    /// Serves and registers until the context stops.
    pub(crate) async fn run(self) {
        let mut backoff = Backoff::for_watches();
        while !self.ctx.tasks.is_stopping() {
            // The kubelet's socket is looked at before ours is made: a kubelet that restarts in between wipes ours, and
            // that is noticed then.
            let Some(kubelet) = self.wait_for_kubelet().await else { return };
            let trouble = match self.listen() {
                Err(error) => {
                    self.metrics.failed("listen");
                    tracing::error!(%error, socket = %self.places.own.display(), "the plugin's socket cannot be made");
                    None
                }
                Ok(serving) => {
                    let trouble = self.supervise(&serving, kubelet, &mut backoff).await;
                    // What is listening breaks off: the kubelet is gone, or is about to be told of another socket.
                    serving.tasks.kill();
                    serving.tasks.ended().await;
                    self.ready.unmet("the kubelet has to be registered with anew");
                    trouble
                }
            };
            if self.ctx.tasks.is_stopping() {
                break;
            }
            if self.planted.is(Bug::ForgetToReregister) {
                return;
            }
            match trouble {
                Some(trouble) => tracing::warn!(?trouble, "serving the device plugin anew"),
                None => self.pause(backoff.next(&self.ctx.rng)).await,
            }
        }
        let _gone_already = self.places.sockets.remove(&self.places.own);
    }

    /// Until there is something to offer and somebody to offer it to. A node without GPUs waits here, and is ready.
    async fn wait_for_kubelet(&self) -> Option<u64> {
        let (mut idle, mut missing_since) = (None, None);
        while !self.ctx.tasks.is_stopping() {
            let now = (self.plugin.offer().0 == 0).then(|| self.plugin.idle());
            if now != idle {
                self.report_idle(now.as_ref());
                idle = now;
            }
            let kubelet = self.places.sockets.identity(&self.places.kubelet);
            match (kubelet, &idle) {
                (Some(identity), None) => return Some(identity),
                (None, None) => {
                    let now = self.ctx.clock.monotonic();
                    if now.duration_since(*missing_since.get_or_insert(now)) >= KUBELET_PATIENCE {
                        self.stand(Standing::NoKubelet);
                    }
                }
                (_, Some(_)) => missing_since = None,
            }
            self.pause(self.intervals.sockets).await;
        }
        None
    }

    fn report_idle(&self, idle: Option<&Idle>) {
        match idle {
            None => self.ready.unmet("not registered with the kubelet yet"),
            Some(Idle::NoDriver(error)) => {
                self.ready.unmet(format!("no GPU driver: {error}"));
                tracing::warn!(error, "nothing to offer the kubelet: waiting for the GPU driver");
            }
            Some(Idle::NoGpus) => {
                self.ready.met();
                tracing::info!("nothing to offer the kubelet: the driver shows no GPU to be given out whole");
            }
        }
    }

    fn stand(&self, standing: Standing) {
        self.standing.send_if_modified(|known| {
            let differs = *known != standing;
            *known = standing;
            differs
        });
    }

    async fn pause(&self, duration: Duration) {
        tokio::select! {
            biased;
            () = self.ctx.tasks.stopping() => {}
            () = self.ctx.clock.sleep(duration) => {}
        }
    }

    /// Makes the socket anew and serves on it.
    fn listen(&self) -> std::io::Result<Serving> {
        let Places { sockets, own, .. } = &self.places;
        if sockets.exists(own) {
            sockets.remove(own)?;
        }
        let listener = sockets.listen(own)?;
        let identity = sockets.identity(own);
        let (tasks, ended) = (self.ctx.tasks.child(), watch::Sender::new(false));
        let serving = Serving { tasks: tasks.clone(), identity, ended: ended.subscribe() };
        let server = Server::builder().add_service(DevicePluginServer::new(self.plugin.clone()));
        tasks.spawn(async move {
            if let Err(error) = server.serve_with_incoming(listener).await {
                tracing::error!(%error, "the device plugin's server ended");
            }
            ended.send_replace(true);
        });
        Ok(serving)
    }

    /// Registers, and looks after the registration until the socket must be made anew (or the context stops: `None`).
    async fn supervise(&self, serving: &Serving, kubelet: u64, backoff: &mut Backoff) -> Option<Trouble> {
        let mut state = Supervision::new(self.ctx.clock.monotonic());
        loop {
            if state.due(self.ctx.clock.monotonic()) {
                match self.register().await {
                    Ok(()) => {
                        self.metrics.registered();
                        self.ready.met();
                        self.stand(Standing::Good);
                        backoff.reset();
                        state.registered(self.ctx.clock.monotonic());
                        tracing::info!(resource = self.plugin.resource(), "registered with the kubelet");
                    }
                    Err(error) => {
                        self.metrics.failed("register");
                        let (now, wait) = (self.ctx.clock.monotonic(), backoff.next(&self.ctx.rng));
                        state.refused(now + wait);
                        tracing::warn!(%error, "the kubelet does not take the registration");
                        match error {
                            RegisterError::Unreachable(_) if state.unreachable(now) => {
                                self.stand(Standing::NoKubelet);
                            }
                            RegisterError::Refused(answer) if backoff.failures() >= REFUSALS => {
                                self.stand(Standing::Refused(answer));
                            }
                            _ => {}
                        }
                    }
                }
            }
            self.pause(self.intervals.sockets).await;
            if self.ctx.tasks.is_stopping() {
                return None;
            }
            match self.trouble(serving, kubelet, &mut state) {
                None => {}
                Some(trouble @ (Trouble::Forgotten | Trouble::Disbelieved)) => {
                    tracing::warn!(?trouble, "registering with the kubelet anew");
                    state.register_again(self.ctx.clock.monotonic());
                }
                Some(trouble) => return Some(trouble),
            }
        }
    }

    fn trouble(&self, serving: &Serving, kubelet: u64, state: &mut Supervision) -> Option<Trouble> {
        let sockets = &self.places.sockets;
        if sockets.identity(&self.places.kubelet) != Some(kubelet) {
            return Some(Trouble::KubeletRestarted);
        }
        if sockets.identity(&self.places.own) != serving.identity {
            return Some(Trouble::SocketLost);
        }
        if *serving.ended.borrow() {
            return Some(Trouble::ServerEnded);
        }
        let now = self.ctx.clock.monotonic();
        let heard = *self.plugin.listeners().borrow() > 0;
        if state.forgotten(heard, now, self.intervals.registration_grace) {
            return Some(Trouble::Forgotten);
        }
        let offered = i64::try_from(self.plugin.offer().1).unwrap_or(i64::MAX);
        let agrees = self.node.borrow().as_ref().is_none_or(|node| node.allocatable == offered);
        state.disbelieved(agrees, now).then_some(Trouble::Disbelieved)
    }

    async fn register(&self) -> Result<(), RegisterError> {
        let endpoint = self
            .places
            .own
            .file_name()
            .and_then(|name| name.to_str())
            .ok_or_else(|| RegisterError::Refused(format!("{} is no socket", self.places.own.display())))?
            .to_owned();
        let request = RegisterRequest {
            version: VERSION.to_owned(),
            endpoint,
            resource_name: self.plugin.resource().to_owned(),
            options: Some(plugin::options()),
        };
        let call = async {
            let channel = self
                .places
                .sockets
                .connect(&self.places.kubelet)
                .await
                .map_err(|error| RegisterError::Unreachable(error.to_string()))?;
            let answer = RegistrationClient::new(channel).register(request).await;
            answer
                .map(|_| ())
                .map_err(|status| RegisterError::Refused(format!("{}: {}", status.code(), status.message())))
        };
        tokio::time::timeout(REGISTER_TIMEOUT, call).await.unwrap_or_else(|_| {
            Err(RegisterError::Unreachable(format!("no answer within {REGISTER_TIMEOUT:?}")))
        })
    }
}

/// When to register. Pure: time comes in.
struct Supervision {
    next_registration: Option<Instant>,
    /// Since when nobody listens although they should.
    unheard_since: Option<Instant>,
    /// Since when the node offers another number.
    disagreed_since: Option<Instant>,
    /// Since when there is nobody to register with.
    unreachable_since: Option<Instant>,
    patience: Duration,
}

impl Supervision {
    fn new(now: Instant) -> Self {
        Self {
            next_registration: Some(now),
            unheard_since: None,
            disagreed_since: None,
            unreachable_since: None,
            patience: ALLOCATABLE_PATIENCE,
        }
    }

    fn due(&self, now: Instant) -> bool {
        self.next_registration.is_some_and(|at| at <= now)
    }

    fn registered(&mut self, now: Instant) {
        self.next_registration = None;
        self.unheard_since = Some(now);
        self.disagreed_since = None;
        self.unreachable_since = None;
    }

    /// Whether nobody has been there for longer than a restart takes.
    fn unreachable(&mut self, now: Instant) -> bool {
        now.duration_since(*self.unreachable_since.get_or_insert(now)) >= KUBELET_PATIENCE
    }

    fn refused(&mut self, again_at: Instant) {
        self.next_registration = Some(again_at);
    }

    fn register_again(&mut self, now: Instant) {
        self.next_registration = Some(now);
    }

    /// Whether nobody has listened for the grace time since the registration, or since the last listener left.
    fn forgotten(&mut self, heard: bool, now: Instant, grace: Duration) -> bool {
        if heard || self.next_registration.is_some() {
            self.unheard_since = None;
            return false;
        }
        let since = *self.unheard_since.get_or_insert(now);
        now.duration_since(since) >= grace
    }

    /// Whether the node has disagreed for too long; each time it takes twice as long.
    fn disbelieved(&mut self, agrees: bool, now: Instant) -> bool {
        if agrees {
            self.disagreed_since = None;
            self.patience = ALLOCATABLE_PATIENCE;
            return false;
        }
        let since = *self.disagreed_since.get_or_insert(now);
        let lost = now.duration_since(since) >= self.patience;
        if lost {
            self.patience = (self.patience * 2).min(ALLOCATABLE_LIMIT);
            self.disagreed_since = None;
        }
        lost
    }
}

/// The plugin's socket beside the kubelet's: `nvidia-gpu.sock` for `nvidia.com/gpu`.
pub(crate) fn own_socket(kubelet: &Path, resource: &str) -> PathBuf {
    let name = resource.rsplit('/').next().unwrap_or(resource);
    kubelet.with_file_name(format!("nvidia-{name}.sock"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_is_not_heard_registers_again_after_the_grace() {
        let start = kit::Clock::System.monotonic();
        let at = |seconds| start + Duration::from_secs(seconds);
        let grace = Duration::from_secs(10);
        let mut state = Supervision::new(start);
        assert!(state.due(start));
        state.registered(start);
        assert!(!state.due(at(1)));
        assert!(!state.forgotten(false, at(9), grace));
        assert!(!state.forgotten(true, at(11), grace), "somebody listens");
        assert!(!state.forgotten(false, at(12), grace), "the listener has just left");
        assert!(state.forgotten(false, at(22), grace));
        state.register_again(at(22));
        assert!(state.due(at(22)) && !state.forgotten(false, at(50), grace));
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_disagrees_is_believed_ever_longer() {
        let start = kit::Clock::System.monotonic();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut state = Supervision::new(start);
        let lost: Vec<u64> = (0..400).filter(|second| state.disbelieved(false, at(*second))).collect();
        assert_eq!(lost, [30, 91, 212]);
        assert!(!state.disbelieved(true, at(400)));
        assert!(!state.disbelieved(false, at(401)) && state.disbelieved(false, at(431)));
    }

    #[test]
    fn sockets_lie_beside_the_kubelets() {
        let own = own_socket(Path::new("/var/lib/kubelet/device-plugins/kubelet.sock"), "nvidia.com/gpu");
        assert_eq!(own, Path::new("/var/lib/kubelet/device-plugins/nvidia-gpu.sock"));
    }
}
