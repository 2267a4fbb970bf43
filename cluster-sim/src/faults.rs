//! What goes wrong on purpose: errors, delays, lost responses, broken watches, and hooks at which a program is crashed.
//!
//! Rules are tried in the order in which they were added; the first that matches and whose dice say so decides. All
//! randomness comes from the cluster's seed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kit::{Clock, Rng};

use crate::error::ApiError;
use crate::resources::GroupResource;
use crate::store::Verb;

/// A request as faults and hooks see it.
#[derive(Clone, Debug)]
pub struct Call {
    /// The name given to [`crate::Cluster::client_as`].
    pub writer: Arc<str>,
    /// Its verb.
    pub verb: Verb,
    /// Its resource.
    pub resource: GroupResource,
    /// Its subresource, or empty.
    pub subresource: Arc<str>,
    /// Its namespace, or empty.
    pub namespace: Arc<str>,
    /// The object's name; empty for creations and lists.
    pub name: Arc<str>,
}

/// A watch as faults see it.
#[derive(Clone, Debug)]
pub struct WatchInfo {
    /// The name given to [`crate::Cluster::client_as`].
    pub writer: Arc<str>,
    /// The watched resource.
    pub resource: GroupResource,
}

/// Which calls a rule is aimed at. Empty means any.
#[derive(Clone, Debug, Default)]
pub struct Aim {
    /// Prefix of the writer's name, so that `gang-scheduler` meets all its replicas and connections.
    pub writer: Option<String>,
    /// Verbs.
    pub verbs: Vec<Verb>,
    /// Resources.
    pub resources: Vec<GroupResource>,
    /// The subresource of calls; `Some("")` is the object itself.
    pub subresource: Option<String>,
}

impl Aim {
    /// Any call that changes something.
    pub fn writes() -> Self {
        Self {
            verbs: vec![Verb::Create, Verb::Update, Verb::Patch, Verb::Delete, Verb::DeleteCollection],
            ..Self::default()
        }
    }

    /// Restricts the aim to writers whose name begins so.
    #[must_use]
    pub fn by(mut self, writer: &str) -> Self {
        self.writer = Some(writer.to_owned());
        self
    }

    /// Restricts the aim to a resource, beside those named before.
    #[must_use]
    pub fn on(mut self, resource: GroupResource) -> Self {
        self.resources.push(resource);
        self
    }

    /// Restricts the aim to calls of a subresource, or, with an empty name, of objects themselves.
    #[must_use]
    pub fn at(mut self, subresource: &str) -> Self {
        self.subresource = Some(subresource.to_owned());
        self
    }

    fn meets(
        &self,
        writer: &str,
        verb: Option<Verb>,
        resource: &GroupResource,
        subresource: Option<&str>,
    ) -> bool {
        self.writer.as_ref().is_none_or(|w| writer.starts_with(w.as_str()))
            && (self.verbs.is_empty() || verb.is_some_and(|v| self.verbs.contains(&v)))
            && (self.resources.is_empty() || self.resources.contains(resource))
            && (self.subresource.is_none() || self.subresource.as_deref() == subresource)
    }
}

/// What happens to a call.
#[derive(Clone, Debug)]
pub enum Fault {
    /// 409 although nothing else was written.
    Conflict,
    /// 429 with Retry-After, in seconds.
    TooManyRequests(u32),
    /// 404 (as of a kind that is not served), 500, 503 or 504 before anything was done.
    ServerError(u16),
    /// The connection breaks before the request arrives.
    LostRequest,
    /// The write is applied, then the connection breaks.
    LostResponse,
    /// The write is applied, and the answer is 504.
    TimeoutAfterWrite,
    /// The server takes this long before it handles the call, whatever becomes of who sent it meanwhile.
    Latency(Duration),
    /// A list shows how things were so many revisions ago, as a lagging API server may when the caller takes any
    /// resourceVersion (`resourceVersion=0`). Other calls are not touched.
    StaleList(u64),
    /// A list that was asked for in pages has so few objects a page, as one of many more objects would; whatever it is aimed at takes so
    /// long.
    ShortPages(usize, Duration),
}

/// What happens to a watch when it should pass an event on.
#[derive(Clone, Copy, Debug)]
pub enum WatchFault {
    /// The event and all after it come this much later.
    Delay(Duration),
    /// The event comes twice.
    Duplicate,
    /// The connection becomes half-open: nothing comes any more, not even bookmarks, until its timeout.
    Silence,
    /// The stream ends before the event.
    Close,
    /// The stream ends with an ERROR event of code 410.
    Expire,
}

/// What happens to a webhook when the server calls it.
#[derive(Clone, Copy, Debug)]
pub enum WebhookFault {
    /// No connection: the failure policy decides.
    Unreachable,
    /// The answer takes this much longer; beyond its timeout the failure policy decides.
    Slow(Duration),
}

/// When, relative to a write, a hook is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moment {
    /// Before the server has seen it.
    Before,
    /// After it was answered (and, unless refused, applied), before the writer knows.
    After,
}

/// What a hook decides about the call at hand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It goes on.
    Proceed,
    /// It never returns: the caller is about to be killed, and must not see an answer.
    Hang,
}

type Hook = Arc<dyn Fn(&Call, Moment, u64) -> Verdict + Send + Sync>;

struct Rule<F> {
    aim: Aim,
    /// Chance in parts per million.
    chance: u32,
    /// How often it may still strike.
    left: u64,
    fault: F,
}

#[derive(Default)]
struct Rules {
    calls: Vec<Rule<Fault>>,
    watches: Vec<Rule<WatchFault>>,
    webhooks: Vec<Rule<WebhookFault>>,
    hook: Option<Hook>,
    /// Writes begun by each writer, by what they are to.
    writes: BTreeMap<Arc<str>, BTreeMap<GroupResource, u64>>,
}

/// The faults of a cluster.
pub struct Faults {
    rng: Rng,
    rules: Mutex<Rules>,
}

impl Ticket {
    /// How long the server takes before it handles the call.
    pub(crate) fn delay(&self) -> Option<Duration> {
        match self.fault {
            Some(Fault::Latency(delay) | Fault::ShortPages(_, delay)) => Some(delay),
            _ => None,
        }
    }

    /// What is wrong with a list.
    pub(crate) fn listing(&self) -> Listing {
        match self.fault {
            Some(Fault::StaleList(lag)) => Listing { lag, ..Listing::default() },
            Some(Fault::ShortPages(most, _)) => Listing { most: most.max(1), ..Listing::default() },
            _ => Listing::default(),
        }
    }
}

/// How a list is made.
#[derive(Clone, Copy)]
pub(crate) struct Listing {
    /// By how many revisions it is behind, if whoever asks takes any.
    pub(crate) lag: u64,
    /// The objects of a page at most.
    pub(crate) most: usize,
}

impl Default for Listing {
    fn default() -> Self {
        Self { lag: 0, most: usize::MAX }
    }
}

/// What [`Faults::before`] decided for the time after the call.
pub(crate) struct Ticket {
    fault: Option<Fault>,
    /// The number of this write among its writer's, from 0; absent for reads.
    write: Option<u64>,
}

/// A call that goes no further.
pub(crate) enum Refusal {
    Answer(ApiError),
    Broken(std::io::Error),
}

impl Faults {
    pub(crate) fn new(rng: Rng) -> Self {
        Self { rng, rules: Mutex::default() }
    }

    /// Adds a fault that strikes calls with a chance given in parts per million, at most `times` times.
    pub fn add(&self, aim: Aim, chance_ppm: u32, times: u64, fault: Fault) {
        self.rules().calls.push(Rule { aim, chance: chance_ppm, left: times, fault });
    }

    /// Adds a fault that strikes events of watches with a chance given in parts per million, at most `times` times.
    pub fn add_watch(&self, aim: Aim, chance_ppm: u32, times: u64, fault: WatchFault) {
        self.rules().watches.push(Rule { aim, chance: chance_ppm, left: times, fault });
    }

    /// Adds a fault that strikes calls of the webhooks behind a Service, with a chance given in parts per million, at most
    /// `times` times.
    pub fn add_webhook(
        &self,
        namespace: &str,
        service: &str,
        chance_ppm: u32,
        times: u64,
        fault: WebhookFault,
    ) {
        let aim = Aim::default().by(&format!("{namespace}/{service}"));
        self.rules().webhooks.push(Rule { aim, chance: chance_ppm, left: times, fault });
    }

    /// Calls `hook` before and after every write, with the write's number among its writer's, from 0. Replaces the
    /// hook set before. It is called without any lock held.
    pub fn set_hook(&self, hook: impl Fn(&Call, Moment, u64) -> Verdict + Send + Sync + 'static) {
        self.rules().hook = Some(Arc::new(hook));
    }

    /// Removes all faults and the hook; the counts of writes stay.
    pub fn clear(&self) {
        let mut rules = self.rules();
        rules.calls.clear();
        rules.watches.clear();
        rules.webhooks.clear();
        rules.hook = None;
    }

    /// How many writes a writer has begun.
    pub fn writes_by(&self, writer: &str) -> u64 {
        self.writes_to(writer).values().sum()
    }

    /// The same by what they are to, whatever came of them: a write that is refused counts, and so does one that changes nothing.
    pub fn writes_to(&self, writer: &str) -> BTreeMap<GroupResource, u64> {
        self.rules().writes.get(writer).cloned().unwrap_or_default()
    }

    fn rules(&self) -> MutexGuard<'_, Rules> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn strikes<F: Clone>(
        &self,
        rules: &mut [Rule<F>],
        writer: &str,
        verb: Option<Verb>,
        resource: &GroupResource,
        subresource: Option<&str>,
    ) -> Option<F> {
        let rule = rules.iter_mut().find(|rule| {
            rule.left > 0
                && rule.aim.meets(writer, verb, resource, subresource)
                && (rule.chance >= 1_000_000 || self.rng.u64(0..1_000_000) < u64::from(rule.chance))
        })?;
        rule.left -= 1;
        Some(rule.fault.clone())
    }

    pub(crate) async fn before(&self, call: &Call) -> Result<Ticket, Refusal> {
        let (write, hook, fault) = {
            let mut rules = self.rules();
            let write = call.verb.is_write().then(|| {
                let counts = rules.writes.entry(call.writer.clone()).or_default();
                let number = counts.values().sum();
                *counts.entry(call.resource.clone()).or_default() += 1;
                number
            });
            let Rules { calls, hook, .. } = &mut *rules;
            let part = Some(&*call.subresource);
            let fault = self.strikes(calls, &call.writer, Some(call.verb), &call.resource, part);
            (write, hook.clone(), fault)
        };
        if let (Some(hook), Some(number)) = (hook, write)
            && hook(call, Moment::Before, number) == Verdict::Hang
        {
            std::future::pending::<()>().await;
        }
        match fault {
            Some(Fault::Conflict) => Err(Refusal::Answer(ApiError::stale(&call.resource, &call.name))),
            Some(Fault::TooManyRequests(seconds)) => Err(Refusal::Answer(ApiError::too_many_requests(
                "the server has received too many requests and has asked us to try again later",
                seconds,
            ))),
            Some(Fault::ServerError(code)) => Err(Refusal::Answer(server_error(code))),
            Some(Fault::LostRequest) => Err(Refusal::Broken(reset())),
            late => Ok(Ticket { fault: late, write }),
        }
    }

    pub(crate) async fn after(&self, call: &Call, ticket: Ticket) -> Result<(), Refusal> {
        if let Some(number) = ticket.write {
            let hook = self.rules().hook.clone();
            if hook.is_some_and(|hook| hook(call, Moment::After, number) == Verdict::Hang) {
                std::future::pending::<()>().await;
            }
        }
        match ticket.fault {
            Some(Fault::LostResponse) => Err(Refusal::Broken(reset())),
            Some(Fault::TimeoutAfterWrite) => Err(Refusal::Answer(server_error(504))),
            _ => Ok(()),
        }
    }

    /// What happens to a call of a webhook or conversion.
    pub(crate) async fn on_webhook(
        &self,
        clock: &Clock,
        namespace: &str,
        service: &str,
    ) -> Result<(), String> {
        let fault = {
            let mut rules = self.rules();
            let name = format!("{namespace}/{service}");
            let resource = GroupResource::core("services");
            self.strikes(&mut rules.webhooks, &name, None, &resource, None)
        };
        match fault {
            None => Ok(()),
            Some(WebhookFault::Unreachable) => Err("dial tcp: connect: connection refused".into()),
            Some(WebhookFault::Slow(delay)) => {
                clock.sleep(delay).await;
                Ok(())
            }
        }
    }

    pub(crate) fn on_watch_event(&self, watch: &WatchInfo) -> Option<WatchFault> {
        let mut rules = self.rules();
        if rules.watches.is_empty() {
            return None;
        }
        self.strikes(&mut rules.watches, &watch.writer, Some(Verb::Watch), &watch.resource, None)
    }
}

fn reset() -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::ConnectionReset, "connection reset by peer")
}

fn server_error(code: u16) -> ApiError {
    match code {
        // As where the kind is not served.
        404 => ApiError::new(404, "NotFound", "the server could not find the requested resource"),
        503 => {
            ApiError::new(503, "ServiceUnavailable", "the server is currently unable to handle the request")
        }
        504 => {
            ApiError::new(504, "Timeout", "the server was unable to return a response in the time allotted")
        }
        _ => ApiError::internal("etcdserver: request timed out"),
    }
}
