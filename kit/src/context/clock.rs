//! Time.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// The only source of time. Cheap to clone.
///
/// Waiting always goes through tokio's timers, which a paused runtime advances by itself; so a virtual clock and a real
/// one differ only in where the wall time starts.
#[derive(Clone, Debug)]
pub enum Clock {
    /// The machine's wall clock.
    System,
    /// Wall time that starts at `epoch` and advances with tokio's (possibly paused) time.
    Virtual {
        /// The wall time at `started`.
        epoch: Timestamp,
        /// The runtime's instant at which the clock was made.
        started: Instant,
        /// How far it was set ahead, in milliseconds; negative where it was set back.
        ahead: Arc<AtomicI64>,
    },
}

impl Clock {
    /// A virtual clock that shows `epoch` now. Must be called inside a tokio runtime.
    pub fn starting_at(epoch: Timestamp) -> Self {
        Self::Virtual { epoch, started: instant(), ahead: Arc::default() }
    }

    /// The clock of another machine: it shows the same now, and is set by itself.
    #[must_use]
    pub fn of_another_machine(&self) -> Self {
        match self {
            Self::System => Self::System,
            Self::Virtual { epoch, started, ahead } => {
                let ahead = Arc::new(AtomicI64::new(ahead.load(Ordering::Relaxed)));
                Self::Virtual { epoch: *epoch, started: *started, ahead }
            }
        }
    }

    /// Sets a virtual clock, with all its clones, this much ahead of the time that has passed (back, if negative), as somebody does
    /// who corrects a machine's wall clock. Monotonic time goes on as before; the machine's own clock is left alone.
    pub fn set_ahead(&self, by: SignedDuration) {
        if let Self::Virtual { ahead, .. } = self {
            ahead.store(i64::try_from(by.as_millis()).unwrap_or_default(), Ordering::Relaxed);
        }
    }

    /// Wall time.
    pub fn now(&self) -> Timestamp {
        match self {
            #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the wall clock")]
            Self::System => Timestamp::now(),
            Self::Virtual { epoch, started, ahead } => {
                let passed = SignedDuration::try_from(started.elapsed()).unwrap_or(SignedDuration::MAX);
                let ahead = SignedDuration::from_millis(ahead.load(Ordering::Relaxed));
                epoch.saturating_add(passed.saturating_add(ahead)).unwrap_or(Timestamp::MAX)
            }
        }
    }

    /// Milliseconds since the Unix epoch: the unit in which engines are told the time that objects tell of.
    pub fn unix_millis(&self) -> i64 {
        self.now().as_millisecond()
    }

    /// Milliseconds since some moment of this process: for engines that measure how long something takes. It goes on evenly, whatever
    /// becomes of the wall clock.
    pub fn steady_millis(&self) -> i64 {
        static BEGUN: OnceLock<Instant> = OnceLock::new();
        let since = match self {
            Self::System => *BEGUN.get_or_init(instant),
            Self::Virtual { started, .. } => *started,
        };
        i64::try_from(instant().saturating_duration_since(since).as_millis()).unwrap_or(i64::MAX)
    }

    /// Monotonic time, for measuring durations and setting deadlines.
    pub fn monotonic(&self) -> Instant {
        instant()
    }

    /// Waits.
    pub async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }

    /// Waits until a monotonic deadline.
    pub async fn sleep_until(&self, deadline: Instant) {
        tokio::time::sleep_until(deadline).await;
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the runtime's clock")]
fn instant() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn virtual_time_advances_with_sleeping_only() {
        let clock = Clock::starting_at(Timestamp::UNIX_EPOCH);
        assert_eq!(clock.unix_millis(), 0);
        clock.sleep(Duration::from_secs(3600)).await;
        assert_eq!(clock.unix_millis(), 3_600_000);
    }

    #[tokio::test(start_paused = true)]
    async fn a_machines_clock_is_set_alone() {
        let clock = Clock::starting_at(Timestamp::UNIX_EPOCH);
        let other = clock.of_another_machine();
        let same = other.clone();
        other.set_ahead(SignedDuration::from_secs(-60));
        clock.sleep(Duration::from_secs(90)).await;
        assert_eq!((clock.unix_millis(), other.unix_millis(), same.unix_millis()), (90_000, 30_000, 30_000));
        assert_eq!((clock.steady_millis(), other.steady_millis()), (90_000, 90_000));
    }
}
