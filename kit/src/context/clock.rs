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
    },
}

impl Clock {
    /// A virtual clock that shows `epoch` now. Must be called inside a tokio runtime.
    pub fn starting_at(epoch: Timestamp) -> Self {
        Self::Virtual { epoch, started: instant() }
    }

    /// Wall time.
    pub fn now(&self) -> Timestamp {
        match self {
            #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the wall clock")]
            Self::System => Timestamp::now(),
            Self::Virtual { epoch, started } => {
                let passed = SignedDuration::try_from(started.elapsed()).unwrap_or(SignedDuration::MAX);
                epoch.saturating_add(passed).unwrap_or(Timestamp::MAX)
            }
        }
    }

    /// Milliseconds since the Unix epoch: the unit in which engines are told the time.
    pub fn unix_millis(&self) -> i64 {
        self.now().as_millisecond()
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
}
