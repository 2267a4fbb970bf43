//! The task that sends.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::queue::Job;
use super::{Done, Failure, Gate, Limits, Shared, WriteMetrics};
use crate::patch::WriteError;
use crate::{Clock, Context, Rng, Tasks};

/// The longest `Retry-After` that is honoured: a server that asks for more is reported as unavailable earlier.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(30);

type Sent<K, T> = Pin<Box<dyn Future<Output = (K, Job<T>, Result<T, WriteError>)> + Send>>;

pub(super) struct Executor<K, T> {
    shared: Arc<Shared<K, T>>,
    report: mpsc::Sender<Done<K, T>>,
    limits: Limits,
    gate: Gate,
    clock: Clock,
    rng: Rng,
    metrics: WriteMetrics,
    /// Writes that will be sent again, by when. They hold their key, but no place in flight.
    waiting: BTreeMap<(Instant, u64), (K, Job<T>)>,
    running: FuturesUnordered<Sent<K, T>>,
    stopping: bool,
}

impl<K, T> Executor<K, T>
where
    K: Clone + Ord + Send + Sync + 'static,
    T: Send + 'static,
{
    pub(super) fn new(
        ctx: &Context,
        shared: Arc<Shared<K, T>>,
        report: mpsc::Sender<Done<K, T>>,
        limits: Limits,
        gate: Gate,
        metrics: WriteMetrics,
    ) -> Self {
        let (waiting, running) = (BTreeMap::new(), FuturesUnordered::new());
        let (clock, rng) = (ctx.clock.clone(), ctx.rng.fork());
        Self { shared, report, limits, gate, clock, rng, metrics, waiting, running, stopping: false }
    }

    /// Runs until the owner of the [`super::Writes`] has dropped it and nothing is in flight.
    pub(super) async fn run(mut self, tasks: Tasks) {
        loop {
            self.start_what_may_go();
            let owned = !self.report.is_closed();
            if !owned && self.running.is_empty() {
                return;
            }
            // Without a free place nothing due could start: the next answer wakes this task anyway.
            let free = self.running.len() < self.limits.in_flight;
            let due = self.waiting.first_key_value().map(|((due, _), _)| *due).filter(|_| free);
            tokio::select! {
                biased;
                () = tasks.stopping(), if !self.stopping => self.stopping = true,
                Some((key, job, result)) = self.running.next(), if !self.running.is_empty() => {
                    self.answered(key, job, result);
                }
                () = until(due), if due.is_some() => {}
                () = self.shared.submitted.notified() => {}
                () = self.report.closed(), if owned => {}
            }
        }
    }

    fn start_what_may_go(&mut self) {
        if self.stopping || self.report.is_closed() {
            self.end_waiting(&Failure::Stopping);
            let dropped = self.shared.queue().drain();
            for (key, job) in dropped {
                self.report(key, &job, Err(Failure::Stopping));
            }
            return;
        }
        if !self.may_send() {
            self.end_waiting(&Failure::NotLeading);
        }
        while self.running.len() < self.limits.in_flight {
            let Some((key, job)) = self.next() else { return };
            if self.may_send() {
                self.send(key, job);
            } else {
                self.end(key, &job, Err(Failure::NotLeading));
            }
        }
    }

    /// What was sent before is not sent again.
    fn end_waiting(&mut self, why: &Failure) {
        for (_, (key, job)) in std::mem::take(&mut self.waiting) {
            self.end(key, &job, Err(why.clone()));
        }
    }

    /// Whether this is the term that was begun.
    fn may_send(&self) -> bool {
        let term = (self.gate)();
        term.is_some() && term == *self.shared.term()
    }

    /// What was sent before and is due again goes first: it is the oldest of its kind.
    fn next(&mut self) -> Option<(K, Job<T>)> {
        match self.waiting.first_entry() {
            Some(entry) if entry.key().0 <= self.clock.monotonic() => Some(entry.remove()),
            _ => self.shared.queue().take(),
        }
    }

    fn send(&mut self, key: K, mut job: Job<T>) {
        job.attempts += 1;
        self.metrics.in_flight.inc();
        if job.attempts > 1 {
            self.metrics.repeated.inc();
        }
        let attempt = (job.send)();
        let limit = self.limits.request_timeout;
        self.running.push(Box::pin(async move {
            let result = match tokio::time::timeout(limit, attempt).await {
                Ok(result) => result,
                Err(_elapsed) => Err(WriteError::timed_out(limit)),
            };
            (key, job, result)
        }));
    }

    fn answered(&mut self, key: K, mut job: Job<T>, result: Result<T, WriteError>) {
        self.metrics.in_flight.dec();
        match result {
            Err(WriteError::Unavailable { retry_after, ref cause, .. })
                if job.attempts < self.limits.attempts =>
            {
                tracing::debug!(attempt = job.attempts, cause, "a write will be sent again");
                let wait =
                    job.backoff.next(&self.rng).max(retry_after.unwrap_or_default().min(LONGEST_RETRY_AFTER));
                self.waiting.insert((self.clock.monotonic() + wait, job.sequence), (key, job));
            }
            result => self.end(key, &job, result.map_err(Failure::Error)),
        }
    }

    fn end(&mut self, key: K, job: &Job<T>, result: Result<T, Failure>) {
        self.shared.queue().release(key.clone());
        self.report(key, job, result);
    }

    fn report(&self, key: K, job: &Job<T>, result: Result<T, Failure>) {
        self.metrics.ended(result.as_ref().err());
        // There is room for everything accepted; if the owner is gone, nobody wants to know.
        let _closed = self.report.try_send(Done { key, result, attempts: job.attempts });
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}
