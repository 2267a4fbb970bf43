use std::future::Future;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Spawns tasks and tells them to stop. Clones share one group; [`Tasks::child`] makes a group inside it.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
    kill: CancellationToken,
}

impl Tasks {
    /// A group of its own.
    pub fn new() -> Self {
        Self::default()
    }

    /// A group that stops when this one does, and can be stopped alone.
    pub fn child(&self) -> Self {
        Self { tracker: TaskTracker::new(), stop: self.stop.child_token(), kill: self.kill.child_token() }
    }

    /// Runs the future until it ends or the group is killed.
    pub fn spawn<F>(&self, future: F) -> tokio::task::JoinHandle<Option<F::Output>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let kill = self.kill.clone();
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
