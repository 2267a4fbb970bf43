//! Lists and watches that never end, never err and tell the truth about what is gone.
//!
//! `kube_runtime::watcher` is not used: one object it cannot decode fails every list for ever, and its jitter is not
//! ours to seed. The protocol is the same: a paged list at one resourceVersion, then a watch from there, resumed after
//! a cut, started anew after 410. See <https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes>.

mod decode;
mod metrics;
mod reports;

use std::collections::VecDeque;
use std::pin::{Pin, pin};
use std::time::Duration;

use futures::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};
use futures::stream::{self, Stream, StreamExt};
use kube::api::{Api, ListParams, Resource, WatchParams};
use kube::core::params::VersionMatch;
use kube::core::{Request, Status};
use kube::runtime::watcher::{Config, ListSemantic};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

pub use reports::{Reports, UNDECODABLE};

use crate::backoff::Backoff;
use crate::context::Tasks;
use crate::{Clock, Context, Rng};
use decode::Line;
use reports::LeftOut;

/// What a watch tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change<K> {
    /// A list begins: whatever is not [`Applied`](Self::Applied) before the next [`Synced`](Self::Synced) is gone.
    /// A second `Restarted` before `Synced` means the list had to begin again.
    Restarted,
    /// The object exists and looks like this.
    Applied(K),
    /// The list is complete, at one moment of the server.
    Synced {
        /// The list's resourceVersion: an object that is known in a later one came after it, and is not gone for not having been
        /// told. `None` while the server does not serve the kind: then there are no objects.
        as_of: Option<u64>,
    },
    /// The object is gone; this is how it looked last.
    Deleted(K),
}

impl<K> Change<K> {
    /// The same of what is made of the object.
    pub fn map<T>(self, make: impl FnOnce(K) -> T) -> Change<T> {
        match self {
            Self::Restarted => Change::Restarted,
            Self::Applied(object) => Change::Applied(make(object)),
            Self::Synced { as_of } => Change::Synced { as_of },
            Self::Deleted(object) => Change::Deleted(make(object)),
        }
    }
}

/// One page of a list or the opening of a watch may take this long: the API server's own limit for a request
/// (`--request-timeout`, 60 s).
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// How long the server lets a watch run, unless the configuration says otherwise; kube's and client-go's order.
const WATCH_SECONDS: u32 = 290;
/// After the server should have ended the watch, how much longer to wait before the connection counts as dead.
const IDLE_MARGIN: Duration = Duration::from_secs(5);
/// A watch that asked for bookmarks gets one a minute (`bookmarkFrequency` of the watch cache), and may wait half as long again: longer
/// silence means that the connection died unnoticed, and where it did not, resuming costs one request.
const LONGEST_SILENCE: Duration = Duration::from_secs(90);
/// A watch that ended sooner than this and told nothing counts as a failure, so that a broken proxy is not asked in a tight
/// loop. One that told something is resumed at once: a busy server ends watches that it cannot serve in time.
const SHORT_WATCH: Duration = Duration::from_secs(2);
/// So many changes are read ahead: what a busy server sends in a second or two.
const AHEAD: usize = 1_024;
/// The longest line of a watch: five times what etcd stores of one object (`--max-request-bytes`, 1.5 MiB), since an
/// event holds one object.
const MAX_LINE: u64 = 8 << 20;

/// One page of a list.
#[derive(Clone, Debug)]
pub struct ListPage<K> {
    /// The objects that can be decoded.
    pub items: Vec<K>,
    /// How many cannot. The watch of their kind tells of them.
    pub left_out: usize,
    /// The token of the next page; `None` where this is the last.
    pub next: Option<String>,
    /// The resourceVersion of the list as a whole.
    pub as_of: Option<u64>,
}

/// Asks for one page of a list. One object that cannot be decoded does not spoil it.
///
/// # Errors
/// Whatever the request fails with, and where the answer is no list.
pub async fn list_page<K>(api: &Api<K>, params: &ListParams) -> Result<ListPage<K>, kube::Error>
where
    K: Resource + Clone + DeserializeOwned,
{
    let request = Request::new(api.resource_url()).list(params).map_err(kube::Error::BuildRequest)?;
    let text = api.clone().into_client().request_text(request).await?;
    let page = decode::page(&text).map_err(kube::Error::SerdeError)?;
    let listed = page.items.len();
    let items: Vec<K> = page.items.into_iter().flatten().collect();
    let as_of = page.version.parse().ok();
    Ok(ListPage { left_out: listed - items.len(), items, next: page.next, as_of })
}

/// Lists and watches a kind, for ever: see [`Watch`].
///
/// `K` may be any struct with the kind's URL in its [`Resource`] implementation: a lean view decodes several times
/// faster than the full type.
pub fn watch<K>(ctx: &Context, api: Api<K>, config: Config) -> impl Stream<Item = Change<K>> + Send + use<K>
where
    K: Resource<DynamicType: Default> + DeserializeOwned + Send + 'static,
{
    Watch::new(ctx, api, config).stream()
}

/// A list and watch before it starts.
///
/// - Failures are retried after 0.8 s to 30 s with jitter from the context, without end.
/// - Lists ask for the most recent state unless the configuration says [`ListSemantic::Any`]; since Kubernetes 1.31 the
///   server answers such lists from its watch cache, so consistency costs little.
/// - Whoever watches from no version is told of what exists, and not of what is gone. So an event that says no version
///   leaves the watch where it was, and after what nobody can go on from (a list without a version, an event that the API
///   does not have, a line longer than any event) it lists anew.
/// - An object that does not decode is left out, logged once, counted, and told of by an event on it if there are
///   [`Reports`]: it harms its owner only. Its deletion is still noticed if the object had been told before.
#[must_use = "a watch does nothing until its stream is polled"]
pub struct Watch<K> {
    api: Api<K>,
    config: Config,
    reports: Option<Reports>,
    optional: bool,
    clock: Clock,
    rng: Rng,
    tasks: Tasks,
}

impl<K> Watch<K>
where
    K: Resource<DynamicType: Default> + DeserializeOwned + Send + 'static,
{
    /// A watch of what `api` covers, narrowed by the configuration's selectors.
    pub fn new(ctx: &Context, api: Api<K>, config: Config) -> Self {
        Self {
            api,
            config,
            reports: None,
            optional: false,
            clock: ctx.clock.clone(),
            rng: ctx.rng.fork(),
            tasks: ctx.tasks.clone(),
        }
    }

    /// Reports what it counts, and objects that do not decode.
    pub fn reports(mut self, reports: &Reports) -> Self {
        self.reports = Some(reports.clone());
        self
    }

    /// While the server does not serve the kind (404), tells an empty list and keeps asking every 30 s or so: for
    /// neighbours' CRDs, which may be installed later.
    pub fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    /// The same, read and decoded in a task of its own: whoever decides for a tenth of a second meanwhile does not keep the
    /// server waiting, which ends watches of slow readers. Starts at once.
    pub fn read_ahead(self) -> impl Stream<Item = Change<K>> + Send + use<K> {
        let (tell, told) = mpsc::channel(AHEAD);
        let tasks = self.tasks.clone();
        self.tasks.clone().spawn(async move {
            let mut changes = pin!(self.stream());
            loop {
                let change = tokio::select! {
                    biased;
                    () = tasks.stopping() => return,
                    () = tell.closed() => return,
                    change = changes.next() => change,
                };
                let Some(change) = change else { return };
                if tell.send(change).await.is_err() {
                    return;
                }
            }
        });
        stream::unfold(told, |mut told| async move { Some((told.recv().await?, told)) })
    }

    /// Starts when first polled.
    pub fn stream(self) -> impl Stream<Item = Change<K>> + Send + use<K> {
        let of = K::DynamicType::default();
        let (api_version, kind) = (K::api_version(&of).into_owned(), K::kind(&of).into_owned());
        let left_out = LeftOut::new(api_version, kind.clone(), self.reports);
        let machine = Machine {
            request: Request::new(self.api.resource_url()),
            client: self.api.into_client(),
            config: self.config,
            metrics: left_out.counters(),
            kind,
            optional: self.optional,
            told_absent: false,
            clock: self.clock,
            rng: self.rng,
            tasks: self.tasks,
            backoff: Backoff::for_watches(),
            state: State::List,
            pending: VecDeque::new(),
            left_out,
        };
        stream::unfold(machine, |mut machine| async move { Some((machine.next().await, machine)) })
    }
}

enum State {
    /// Begin a list.
    List,
    /// Go on with it.
    Page(NextPage),
    Resume {
        version: String,
    },
    Watching {
        version: String,
        lines: Pin<Box<dyn AsyncBufRead + Send>>,
        /// When it was opened, as long as it has told nothing.
        silent_since: Option<Instant>,
    },
}

/// A page that was asked for while the one before it was read: the server writes it meanwhile.
struct NextPage {
    token: String,
    text: AbortOnDropHandle<Option<Result<String, Trouble>>>,
}

struct Machine<K> {
    client: kube::Client,
    request: Request,
    config: Config,
    metrics: metrics::OfKind,
    kind: String,
    optional: bool,
    told_absent: bool,
    clock: Clock,
    rng: Rng,
    tasks: Tasks,
    backoff: Backoff,
    state: State,
    pending: VecDeque<Change<K>>,
    left_out: LeftOut,
}

impl<K: Resource + DeserializeOwned + Send> Machine<K> {
    async fn next(&mut self) -> Change<K> {
        loop {
            if let Some(change) = self.pending.pop_front() {
                return change;
            }
            let state = std::mem::replace(&mut self.state, State::List);
            match self.step(state).await {
                Ok(state) => self.state = state,
                Err((error, state)) => {
                    self.state = state;
                    self.wait(error).await;
                }
            }
        }
    }

    async fn step(&mut self, state: State) -> Result<State, (Trouble, State)> {
        match state {
            State::List => {
                let text = self.begin_list().await;
                self.page(text, true)
            }
            State::Page(next) => {
                // None where all tasks end, and this one with them.
                let text = next.text.await.ok().flatten().unwrap_or(Err(Trouble::Ended));
                self.page(text, false)
            }
            State::Resume { version } if version.is_empty() => Err((Trouble::NoVersion, State::List)),
            State::Resume { version } => match self.open(&version).await {
                Ok(lines) => {
                    // A server may list a kind for a while that it does not watch.
                    self.told_absent = false;
                    Ok(State::Watching { version, lines, silent_since: Some(self.clock.monotonic()) })
                }
                Err(trouble) if trouble.expired() => Err((trouble, State::List)),
                Err(trouble) => Err((trouble, State::Resume { version })),
            },
            State::Watching { version, lines, silent_since } => self.line(version, lines, silent_since).await,
        }
    }

    /// Waits after a failure, longer each time.
    async fn wait(&mut self, trouble: Trouble) {
        self.metrics.failures.inc();
        let failures = self.backoff.failures() + 1;
        let wait = self.backoff.next(&self.rng);
        if self.optional && trouble.absent() {
            if !std::mem::replace(&mut self.told_absent, true) {
                tracing::info!(
                    kind = self.kind,
                    "the server does not serve this kind; asking again from time to time"
                );
                self.pending.extend([Change::Restarted, Change::Synced { as_of: None }]);
                // What is there when it is served again is not what was there before.
                self.state = State::List;
                return;
            }
        } else if failures == 1 {
            tracing::info!(kind = self.kind, error = %trouble, "watch failed; trying again");
        } else {
            tracing::warn!(kind = self.kind, failures, error = %trouble, "watch still fails");
        }
        tokio::time::sleep(wait).await;
    }

    async fn begin_list(&mut self) -> Result<String, Trouble> {
        let recent = match &self.config.list_semantic {
            ListSemantic::Any => Some(("0".to_owned(), VersionMatch::NotOlderThan)),
            ListSemantic::MostRecent => None,
        };
        let (resource_version, version_match) = recent.unzip();
        let params = ListParams { resource_version, version_match, ..self.list_params() };
        let request = self.request.list(&params).map_err(kube::Error::BuildRequest)?;
        within(REQUEST_TIMEOUT, self.client.request_text(request)).await
    }

    fn next_page(&self, token: String) -> Result<NextPage, Trouble> {
        let params = ListParams { continue_token: Some(token.clone()), ..self.list_params() };
        let request = self.request.list(&params).map_err(kube::Error::BuildRequest)?;
        let client = self.client.clone();
        let text =
            self.tasks.spawn(async move { within(REQUEST_TIMEOUT, client.request_text(request)).await });
        Ok(NextPage { token, text: AbortOnDropHandle::new(text) })
    }

    fn list_params(&self) -> ListParams {
        ListParams {
            label_selector: self.config.label_selector.clone(),
            field_selector: self.config.field_selector.clone(),
            limit: self.config.page_size,
            ..ListParams::default()
        }
    }

    /// Takes a page, and tells what follows it.
    fn page(&mut self, text: Result<String, Trouble>, first: bool) -> Result<State, (Trouble, State)> {
        let read = || {
            let text = text?;
            let ahead = decode::token_of(&text).map(|token| self.next_page(token)).transpose()?;
            let page = decode::page::<K>(&text).map_err(Trouble::Body)?;
            let next = match (&page.next, ahead) {
                (Some(token), Some(ahead)) if ahead.token == *token => Some(ahead),
                (Some(token), _) => Some(self.next_page(token.clone())?),
                (None, _) => None,
            };
            Ok((page, next))
        };
        let (page, next) = read().map_err(|trouble| (trouble, State::List))?;
        // After one without a version there is nothing to go on from.
        if next.is_some() || !page.version.is_empty() {
            self.backoff.reset();
        }
        if first {
            self.metrics.restarts.inc();
            self.left_out.clear();
            self.pending.push_back(Change::Restarted);
        }
        for item in page.items {
            match item {
                Ok(object) => self.pending.push_back(Change::Applied(object)),
                Err(bad) => {
                    self.metrics.undecodable.inc();
                    self.left_out.add(*bad, false);
                }
            }
        }
        if let Some(next) = next {
            return Ok(State::Page(next));
        }
        self.pending.push_back(Change::Synced { as_of: page.version.parse().ok() });
        Ok(State::Resume { version: page.version })
    }

    async fn open(&mut self, version: &str) -> Result<Pin<Box<dyn AsyncBufRead + Send>>, Trouble> {
        let params = WatchParams {
            label_selector: self.config.label_selector.clone(),
            field_selector: self.config.field_selector.clone(),
            timeout: Some(self.watch_seconds()),
            bookmarks: self.config.bookmarks,
            send_initial_events: false,
        };
        let mut request = self.request.watch(&params, version).map_err(kube::Error::BuildRequest)?;
        // Kubernetes 1.37 compresses watches event by event, which common decoders stop reading after the first.
        request
            .headers_mut()
            .insert(http::header::ACCEPT_ENCODING, http::HeaderValue::from_static("identity"));
        Ok(Box::pin(within(REQUEST_TIMEOUT, self.client.request_stream(request)).await?))
    }

    fn watch_seconds(&self) -> u32 {
        self.config.timeout.unwrap_or(WATCH_SECONDS)
    }

    async fn line(
        &mut self,
        known: String,
        mut lines: Pin<Box<dyn AsyncBufRead + Send>>,
        silent_since: Option<Instant>,
    ) -> Result<State, (Trouble, State)> {
        let ends = Duration::from_secs(self.watch_seconds().into()) + IDLE_MARGIN;
        let idle = if self.config.bookmarks { ends.min(LONGEST_SILENCE) } else { ends };
        let mut line = Vec::new();
        let mut bounded = (&mut lines).take(MAX_LINE);
        let read = bounded.read_until(b'\n', &mut line);
        let ended = match tokio::time::timeout(idle, read).await {
            Err(_elapsed) => Some(Trouble::TimedOut(idle)),
            Ok(Err(error)) => Some(Trouble::Cut(error)),
            // Without its line break the last line is incomplete: the connection was cut inside it.
            Ok(Ok(_)) if line.last() != Some(&b'\n') => Some(Trouble::Ended),
            Ok(Ok(_)) => None,
        };
        // Whoever resumed here would be told it again.
        if ended.is_some() && line.len() as u64 >= MAX_LINE {
            return Err((Trouble::TooLong, State::List));
        }
        if let Some(trouble) = ended {
            if silent_since.is_some_and(|since| since.elapsed() < SHORT_WATCH) {
                return Err((trouble, State::Resume { version: known }));
            }
            self.backoff.reset();
            tracing::debug!(kind = self.kind, reason = %trouble, "watch ended; resuming");
            return Ok(State::Resume { version: known });
        }
        match decode::line::<K>(&line) {
            Ok(Line::Applied { object, version }) => {
                self.heard();
                if !self.left_out.is_empty() {
                    self.left_out.remove(object.meta().uid.as_deref().unwrap_or_default());
                }
                self.pending.push_back(Change::Applied(object));
                Ok(State::Watching { version: version.unwrap_or(known), lines, silent_since: None })
            }
            Ok(Line::Deleted { object, version }) => {
                self.heard();
                self.pending.push_back(Change::Deleted(object));
                Ok(State::Watching { version: version.unwrap_or(known), lines, silent_since: None })
            }
            Ok(Line::Bookmark { version }) => {
                self.backoff.reset();
                Ok(State::Watching { version: version.unwrap_or(known), lines, silent_since })
            }
            Ok(Line::Undecodable { bad, added, deleted, version }) => {
                self.heard();
                if deleted && self.left_out.remove(&bad.uid).unwrap_or(true) {
                    // What was told about it cannot be taken back by its own event.
                    return Ok(State::List);
                }
                if !deleted {
                    self.metrics.undecodable.inc();
                    self.left_out.add(*bad, !added);
                }
                Ok(State::Watching { version: version.unwrap_or(known), lines, silent_since: None })
            }
            Ok(Line::Error(status)) if status.code == 410 => Err((Trouble::Status(status), State::List)),
            Ok(Line::Error(status)) => Err((Trouble::Status(status), State::Resume { version: known })),
            Err(error) => Err((Trouble::Body(error), State::List)),
        }
    }

    fn heard(&mut self) {
        self.backoff.reset();
        self.metrics.events.inc();
    }
}

async fn within<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, Trouble> {
    match tokio::time::timeout(limit, call).await {
        Ok(result) => result.map_err(Trouble::from),
        Err(_elapsed) => Err(Trouble::TimedOut(limit)),
    }
}

/// Why a list or a watch has to be tried again.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("{0}")]
    Request(#[from] kube::Error),
    #[error("the server said: {} ({})", .0.message, .0.code)]
    Status(Box<Status>),
    #[error("the answer is not what the API promises: {0}")]
    Body(serde_json::Error),
    #[error("the list says no resourceVersion to watch from")]
    NoVersion,
    #[error("a line of the watch is longer than {} bytes", MAX_LINE)]
    TooLong,
    #[error("no answer within {} s", .0.as_secs())]
    TimedOut(Duration),
    #[error("the connection broke: {0}")]
    Cut(std::io::Error),
    #[error("the server ended the watch")]
    Ended,
}

impl Trouble {
    fn code(&self) -> Option<u16> {
        match self {
            Self::Request(kube::Error::Api(status)) | Self::Status(status) => Some(status.code),
            _ => None,
        }
    }

    fn expired(&self) -> bool {
        self.code() == Some(410)
    }

    fn absent(&self) -> bool {
        self.code() == Some(404)
    }
}

#[cfg(test)]
mod tests;
