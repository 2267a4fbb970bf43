//! Tasks, and their end.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Spawns tasks and tells them to stop. Clones share one group; [`Tasks::child`] makes a group inside it.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
    kill: CancellationToken,
    freezer: Freezer,
}

impl Tasks {
    /// A group of its own.
    pub fn new() -> Self {
        Self::default()
    }

    /// A group that stops when this one does, and can be stopped, killed or frozen alone.
    pub fn child(&self) -> Self {
        Self {
            tracker: TaskTracker::new(),
            stop: self.stop.child_token(),
            kill: self.kill.child_token(),
            freezer: Freezer::default(),
        }
    }

    /// Runs the future until it ends or the group is killed.
    pub fn spawn<F>(&self, future: F) -> tokio::task::JoinHandle<Option<F::Output>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let kill = self.kill.clone();
        let future = self.freezer.clone().wrap(future);
        #[expect(clippy::disallowed_methods, reason = "this is the one place that spawns")]
        self.tracker.spawn(async move {
            tokio::select! {
                biased;
                () = kill.cancelled() => None,
                output = future => Some(output),
            }
        })
    }

    /// Asks every task to finish what it has begun.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Drops every task where it stands, as SIGKILL would: what was sent is sent, nothing else happens.
    pub fn kill(&self) {
        self.stop.cancel();
        self.kill.cancel();
    }

    /// Holds every task where it stands until [`Tasks::thaw`], as SIGSTOP or a stalled machine would: time goes on.
    pub fn freeze(&self) {
        self.freezer.set(true);
    }

    /// Lets frozen tasks go on as if nothing had been.
    pub fn thaw(&self) {
        self.freezer.set(false);
    }

    /// Completes when the group was asked to stop.
    pub async fn stopping(&self) {
        self.stop.cancelled().await;
    }

    /// Whether the group was asked to stop.
    pub fn is_stopping(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Completes when every task of this group has ended. Call [`Tasks::stop`] or [`Tasks::kill`] first.
    pub async fn ended(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }
}

/// Keeps tasks from being polled while frozen.
#[derive(Clone, Debug, Default)]
struct Freezer(Arc<Mutex<Frozen>>);

#[derive(Debug, Default)]
struct Frozen {
    now: bool,
    waiting: Vec<Waker>,
}

impl Freezer {
    fn set(&self, frozen: bool) {
        let waiting = {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            state.now = frozen;
            if frozen { Vec::new() } else { std::mem::take(&mut state.waiting) }
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Whether the task must wait; it is woken at thawing.
    fn holds(&self, waker: &Waker) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.now {
            state.waiting.push(waker.clone());
        }
        state.now
    }

    async fn wrap<F: Future>(self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(
            move |context| {
                if self.holds(context.waker()) { Poll::Pending } else { future.as_mut().poll(context) }
            },
        )
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Clock;

    #[tokio::test(start_paused = true)]
    async fn a_killed_group_ends_without_finishing_and_spares_its_parent() {
        let parent = Tasks::new();
        let child = parent.child();
        let never = child.spawn(std::future::pending::<()>());
        child.kill();
        child.ended().await;
        assert_eq!(never.await.unwrap(), None);
        assert!(!parent.is_stopping());
    }

    #[tokio::test(start_paused = true)]
    async fn a_frozen_task_goes_on_when_thawed_and_has_lost_the_time() {
        let tasks = Tasks::new();
        let start = Clock::System.monotonic();
        let slept = tasks.spawn(async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            start.elapsed()
        });
        tokio::time::sleep(Duration::from_millis(500)).await;
        tasks.freeze();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(!slept.is_finished());
        tasks.thaw();
        assert_eq!(slept.await.unwrap(), Some(Duration::from_millis(60_500)));
    }
}
