//! Events: what people read with `kubectl describe`. Merged, late, limited, and the first to be given up.
//!
//! They are `v1` Events, which the API server shows as `events.k8s.io/v1` too. kube's recorder is not used: it takes
//! wall clock and names of its own.

mod merge;

use std::borrow::Cow;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use kube::api::Api;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::pace;
use crate::patch::{self, Subresource, Target, WriteError, Written};
use crate::writes::{Gate, REQUEST_TIMEOUT};
use crate::{Clock, Context};
use merge::{Merger, Repeat, Verdict};

/// How many events wait to be written: twice what a burst of one decision per member of a large gang needs. Whoever comes
/// later is dropped and counted, and good news already when half of it is full.
const QUEUE: usize = 2_000;
/// So many of them are written at once after a while of silence,
const BURST: u32 = 256;
/// and then one more after each such time at the least, and later where the server is slow to answer.
const PAUSE: Duration = Duration::from_millis(20);
/// What waits for longer is not written any more: by then it is no news.
const STALE: Duration = Duration::from_mins(10);
/// How often repeats are written: client-go's order of magnitude for series, and late enough to merge a burst.
const FLUSH_EVERY: Duration = Duration::from_secs(10);
/// The longest message of an event the API accepts.
const MAX_NOTE: usize = 1_024;

/// The object an event is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Regarding {
    /// Its apiVersion.
    pub api_version: Cow<'static, str>,
    /// Its kind.
    pub kind: Cow<'static, str>,
    /// Its namespace; empty for cluster-scoped objects, whose events live in `default`.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

/// Good news or bad news.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// `Normal`.
    Normal,
    /// `Warning`.
    Warning,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Event {
    /// What it is about.
    pub regarding: Regarding,
    /// How bad it is.
    pub severity: Severity,
    /// A CamelCase token.
    pub reason: Cow<'static, str>,
    /// A sentence; cut at 1,024 bytes, the API's limit.
    pub note: String,
}

/// An event that waits to be written.
#[derive(Debug)]
struct News {
    event: Event,
    /// When it happened, for the reader.
    at: Timestamp,
    /// The same by a clock that nobody sets.
    waits_since: Instant,
}

/// Takes events without waiting. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Events {
    queue: mpsc::Sender<News>,
    clock: Clock,
    dropped: Counter,
}

impl Events {
    /// Starts the writer in the context's tasks; it ends when they stop. `component` names the program to the reader
    /// (`gang-scheduler`); events are dropped while the gate is closed.
    pub fn start(ctx: &Context, component: &'static str, gate: Gate) -> Self {
        let (queue, waiting) = mpsc::channel(QUEUE);
        let dropped = Counter::default();
        let names = ctx.rng.u64(..=u64::from(u32::MAX));
        let merger = Merger::new(names);
        let writer = Writer {
            ctx: ctx.clone(),
            component,
            gate,
            merger,
            dropped: dropped.clone(),
            level: BURST,
            pause: PAUSE,
            counted_at: ctx.clock.monotonic(),
        };
        ctx.tasks.spawn(writer.run(waiting));
        Self { queue, clock: ctx.clock.clone(), dropped }
    }

    /// Accepts an event, or drops it when too many wait; good news sooner than bad.
    pub fn publish(&self, mut event: Event) {
        event.note.truncate(event.note.floor_char_boundary(MAX_NOTE));
        let is_crowded = self.queue.capacity() < QUEUE / 2;
        let gives_way = is_crowded && event.severity == Severity::Normal;
        let news = News { event, at: self.clock.now(), waits_since: self.clock.monotonic() };
        if gives_way || self.queue.try_send(news).is_err() {
            self.dropped.inc();
        }
    }

    /// How many events were dropped: for want of room or time, by the limit per object and reason, or because the server was unavailable.
    pub fn dropped(&self) -> u64 {
        self.dropped.get()
    }

    /// Registers what [`dropped`](Self::dropped) counts.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "events_dropped",
            "Events not written: too many, no answer, or not leading",
            self.dropped.clone(),
        );
    }
}

struct Writer {
    ctx: Context,
    component: &'static str,
    gate: Gate,
    merger: Merger,
    dropped: Counter,
    /// How many may be written at once,
    level: u32,
    /// how long it takes until there may be one more,
    pause: Duration,
    /// and since when that is counted.
    counted_at: Instant,
}

impl Writer {
    async fn run(mut self, mut waiting: mpsc::Receiver<News>) {
        let mut flush_at = None;
        loop {
            let (clock, free_at) = (self.ctx.clock.clone(), self.free_at());
            tokio::select! {
                biased;
                () = self.ctx.tasks.stopping() => return,
                event = async { clock.sleep_until(free_at).await; waiting.recv().await } => match event {
                    Some(news) => self.take(news).await,
                    None => return,
                },
                () = self.ctx.clock.sleep_until(flush_at.unwrap_or_else(|| self.ctx.clock.monotonic())), if flush_at.is_some() => {
                    flush_at = None;
                    self.flush().await;
                }
            }
            if flush_at.is_none() && self.merger.has_repeats() {
                flush_at = Some(self.ctx.clock.monotonic() + FLUSH_EVERY);
            }
        }
    }

    /// When the next event may be written.
    fn free_at(&mut self) -> Instant {
        let now = self.save_up();
        if self.level > 0 { now } else { self.counted_at + self.pause }
    }

    /// Counts what may be written since this was last asked; it is now.
    fn save_up(&mut self) -> Instant {
        let now = self.ctx.clock.monotonic();
        let gained = now.saturating_duration_since(self.counted_at).as_nanos() / self.pause.as_nanos();
        let gained = u32::try_from(gained).unwrap_or(BURST).min(BURST);
        self.level = (self.level + gained).min(BURST);
        self.counted_at = if self.level == BURST { now } else { self.counted_at + self.pause * gained };
        now
    }

    async fn take(&mut self, News { event, at, waits_since }: News) {
        if self.ctx.clock.monotonic().saturating_duration_since(waits_since) > STALE {
            return self.drop_one();
        }
        match self.merger.take(at, event) {
            Verdict::Counted => {}
            Verdict::Limited => self.drop_one(),
            Verdict::First { name, event } => {
                let object = json!({
                    "apiVersion": "v1",
                    "kind": "Event",
                    "metadata": { "name": name, "namespace": namespace(&event) },
                    "involvedObject": {
                        "apiVersion": event.regarding.api_version,
                        "kind": event.regarding.kind,
                        "namespace": event.regarding.namespace,
                        "name": event.regarding.name,
                        "uid": event.regarding.uid,
                    },
                    "type": match event.severity { Severity::Normal => "Normal", Severity::Warning => "Warning" },
                    "reason": event.reason,
                    "message": event.note,
                    "source": { "component": self.component },
                    "reportingComponent": self.component,
                    "reportingInstance": self.ctx.identity.as_str(),
                    "firstTimestamp": seconds(at),
                    "lastTimestamp": seconds(at),
                    "count": 1,
                });
                let begun = self.save_up();
                self.level = self.level.saturating_sub(1);
                let api = self.api(&event);
                let written = self.in_time(patch::create::<_, Written>(&api, &object)).await;
                let took = self.ctx.clock.monotonic().saturating_duration_since(begun);
                self.pause = pace::pause(took).max(PAUSE);
                self.merger.written(&event, written.map(|written| written.uid));
            }
        }
    }

    async fn flush(&mut self) {
        let now = self.ctx.clock.now();
        for Repeat { name, uid, event, count, last } in self.merger.repeats(now) {
            let body = json!({ "count": count, "lastTimestamp": seconds(last) });
            let (api, target) = (self.api(&event), Target::new(name, uid));
            let written =
                self.in_time(patch::merge::<_, Written>(&api, &target, body, Subresource::Main)).await;
            if written.is_none() {
                // It may have expired on the server: the next one begins anew.
                self.merger.written(&event, None);
            }
        }
    }

    /// One attempt: an event that cannot be written now is not worth a second.
    async fn in_time<T>(&self, write: impl Future<Output = Result<T, WriteError>>) -> Option<T> {
        if (self.gate)().is_none() {
            self.drop_one();
            return None;
        }
        let error = match tokio::time::timeout(REQUEST_TIMEOUT, write).await {
            Ok(Ok(written)) => return Some(written),
            Ok(Err(error)) => error,
            Err(_elapsed) => WriteError::timed_out(REQUEST_TIMEOUT),
        };
        tracing::debug!(%error, "an event was not written");
        self.drop_one();
        None
    }

    fn drop_one(&self) {
        self.dropped.inc();
    }

    fn api(&self, event: &Event) -> Api<core::Event> {
        Api::namespaced(self.ctx.clients.write.clone(), namespace(event))
    }
}

fn namespace(event: &Event) -> &str {
    if event.regarding.namespace.is_empty() { "default" } else { &event.regarding.namespace }
}

fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests;
