//! Carries out what the engine decided: many writes at once, but not too many, the important ones first.
//!
//! The engine's task calls [`Writes::submit`], which never waits, and takes answers from [`Writes::next`]. A task of
//! its own sends the requests. Writes with one key are sent one after another in the order of submission; a key is
//! usually the object's uid.

mod executor;
mod metrics;
mod queue;

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, mpsc};

use crate::Context;
use crate::patch::WriteError;
use executor::Executor;
pub use metrics::WriteMetrics;
use queue::Queue;

/// What goes first, and what is given up last when there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Binds, and writes that free what others wait for.
    Urgent,
    /// Decisions: plans, admissions, releases.
    Normal,
    /// What people read: conditions, statuses, counts. (Events are not written here: see [`crate::events`].)
    Status,
}

/// Bounds of the executor.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Requests in flight. kube-client speaks HTTP/1.1, so each is a connection of its own. The API server's priority
    /// and fairness gives the level `workload-high` some tens of seats of its default 600, and at about 5 ms a write
    /// more in flight only queue on the server.
    pub in_flight: usize,
    /// Writes accepted and not yet reported back. Two chunks of the largest plan (2,000 members each).
    pub accepted: usize,
    /// How often a write is sent in all while the server is unavailable. Five attempts span about six seconds, less
    /// than a leader may write after its last renewal.
    pub attempts: u32,
    /// How long to wait for one answer; must be shorter than the margin of the lease.
    pub request_timeout: Duration,
}

/// How long a program that needs the lease waits for the answer to one write: shorter than the lease's margin (see
/// [`crate::lease::Terms`]), so that nothing it sent is still under way when a successor begins.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(4);

impl Default for Limits {
    fn default() -> Self {
        Self { in_flight: 64, accepted: 4_000, attempts: 5, request_timeout: REQUEST_TIMEOUT }
    }
}

/// Asked directly before a request is sent: in which term may this process write now, if in any? See
/// [`crate::lease::Leadership::term`].
pub type Gate = Arc<dyn Fn() -> Option<i32> + Send + Sync>;

/// For programs that run alone.
pub fn always() -> Gate {
    Arc::new(|| Some(0))
}

/// One attempt to send.
pub type Attempt<T> = Pin<Box<dyn Future<Output = Result<T, WriteError>> + Send>>;

/// How a write ended.
#[derive(Debug)]
pub struct Done<K, T> {
    /// The key it was submitted under.
    pub key: K,
    /// The answer, or why there is none.
    pub result: Result<T, Failure>,
    /// How often it was sent; 0 if never.
    pub attempts: u32,
}

/// Why a write was given up.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Failure {
    /// It was sent, and this is the last answer. [`WriteError::Unavailable`] after all attempts.
    #[error(transparent)]
    Error(#[from] WriteError),
    /// This process may not write (any more), or not in this term. If `attempts` is not 0, an earlier attempt may have been applied.
    #[error("this replica does not lead")]
    NotLeading,
    /// It made room for a more important one and was not sent.
    #[error("it was dropped for more important writes")]
    Shed,
    /// The process is stopping. If `attempts` is not 0, an earlier attempt may have been applied.
    #[error("the process is stopping")]
    Stopping,
}

impl Failure {
    /// Whether the server may have applied the write although it is reported as failed.
    pub fn may_have_applied(&self, attempts: u32) -> bool {
        match self {
            Self::Error(WriteError::Unavailable { .. }) | Self::NotLeading | Self::Stopping => attempts > 0,
            // A conflict after an unanswered attempt may be with ourselves.
            Self::Error(WriteError::Conflict(_)) => attempts > 1,
            Self::Error(_) | Self::Shed => false,
        }
    }
}

/// There is no room and nothing less important to drop: take answers from [`Writes::next`] first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many writes are waiting")]
pub struct Full;

/// The executor, owned by the one task that decides. `K` orders writes, `T` is what a successful one yields.
///
/// Dropping it ends the executor after what is in flight.
pub struct Writes<K, T> {
    shared: Arc<Shared<K, T>>,
    gate: Gate,
    done: mpsc::Receiver<Done<K, T>>,
    /// Dropped and not yet reported; bounded, since each drop raises the importance of what is queued.
    shed: VecDeque<Done<K, T>>,
    outstanding: usize,
    limits: Limits,
    metrics: WriteMetrics,
}

struct Shared<K, T> {
    queue: Mutex<Queue<K, T>>,
    /// The term that was begun last: writes are sent in this one only.
    term: Mutex<Option<i32>>,
    submitted: Notify,
}

impl<K: Clone + Ord, T> Shared<K, T> {
    /// Held for a few map operations only, never across an await.
    fn queue(&self) -> MutexGuard<'_, Queue<K, T>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn term(&self) -> MutexGuard<'_, Option<i32>> {
        self.term.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K, T> Writes<K, T>
where
    K: Clone + Ord + Send + Sync + 'static,
    T: Send + 'static,
{
    /// Starts the executor in the context's tasks. Where leadership is contested, nothing is sent before
    /// [`begin_term`](Self::begin_term).
    pub fn start(ctx: &Context, limits: Limits, gate: Gate) -> Self {
        Self::start_counted(ctx, limits, gate, &WriteMetrics::default())
    }

    /// Starts the executor and counts into these metrics.
    pub fn start_counted(ctx: &Context, limits: Limits, gate: Gate, metrics: &WriteMetrics) -> Self {
        let (queue, term) = (Mutex::new(Queue::default()), Mutex::new(gate()));
        let shared = Arc::new(Shared { queue, term, submitted: Notify::new() });
        // Everything accepted and not reported fits, so reporting never waits.
        let (report, done) = mpsc::channel(limits.accepted.max(1));
        let executor =
            Executor::new(ctx, shared.clone(), report, limits.clone(), gate.clone(), metrics.clone());
        let tasks = ctx.tasks.clone();
        ctx.tasks.spawn(async move { executor.run(tasks).await });
        let (shed, metrics) = (VecDeque::new(), metrics.clone());
        Self { shared, gate, done, shed, outstanding: 0, limits, metrics }
    }

    /// Accepts a write. Of equal importance those of different owners (`whose`: a namespace, say) take turns. `send` makes one
    /// attempt each time it is called; it is called again when the server was unavailable, so it must carry uid and
    /// resourceVersion as everything in [`crate::patch`] does.
    ///
    /// # Errors
    /// [`Full`] when as many writes as allowed are outstanding and none of them is less important and unsent. The least
    /// important, youngest one is dropped otherwise, and reported as [`Failure::Shed`].
    pub fn submit<F, A>(&mut self, priority: Priority, whose: &str, key: K, mut send: F) -> Result<(), Full>
    where
        F: FnMut() -> A + Send + 'static,
        A: Future<Output = Result<T, WriteError>> + Send + 'static,
    {
        {
            let mut queue = self.shared.queue();
            if self.outstanding < self.limits.accepted {
                self.outstanding += 1;
            } else {
                // The new one takes the place of the dropped one.
                let key = queue.shed(priority).ok_or(Full)?;
                self.metrics.ended(Some(&Failure::Shed));
                self.shed.push_back(Done { key, result: Err(Failure::Shed), attempts: 0 });
            }
            queue.push(priority, whose, key, Box::new(move || Box::pin(send())));
        }
        self.shared.submitted.notify_one();
        Ok(())
    }

    /// How many writes are accepted and not yet reported.
    pub fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// How many more writes are certain to be accepted.
    pub fn room(&self) -> usize {
        self.limits.accepted.saturating_sub(self.outstanding)
    }

    /// The next write that ended; waits while there is none, for ever while nothing is outstanding, so it can stand in
    /// a `select!`.
    pub async fn next(&mut self) -> Done<K, T> {
        if let Some(done) = self.shed.pop_front() {
            return done;
        }
        match self.done.recv().await {
            Some(done) => {
                self.outstanding = self.outstanding.saturating_sub(1);
                done
            }
            // The executor was killed with the process's tasks; nothing will be reported any more.
            None => std::future::pending().await,
        }
    }

    /// From now on writes are sent in the term that this is, and in no other. Returns what became of all that was outstanding:
    /// nothing of it is sent any more, and what was is waited for.
    ///
    /// Whoever begins a term reads what others wrote before it decides: others may have led since the last one, and given away
    /// what its writes rested on.
    pub async fn begin_term(&mut self) -> Vec<Done<K, T>> {
        *self.shared.term() = None;
        self.shared.submitted.notify_one();
        let mut ended = Vec::with_capacity(self.outstanding);
        while self.is_outstanding() {
            ended.push(self.next().await);
        }
        *self.shared.term() = (self.gate)();
        ended
    }

    /// Waits until nothing is outstanding and drops the answers: the last thing before a leader lets go. Ends at once
    /// for what was not sent, once the context's tasks are stopping.
    pub async fn drain(&mut self) {
        while self.is_outstanding() {
            self.next().await;
        }
    }

    fn is_outstanding(&self) -> bool {
        self.outstanding > 0 || !self.shed.is_empty()
    }
}

#[cfg(test)]
mod tests;
