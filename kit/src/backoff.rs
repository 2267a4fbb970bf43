//! How long to wait before trying again.

use std::time::Duration;

use crate::Rng;

/// Exponential waiting with jitter: each wait is twice the one before up to a limit, lengthened by up to half of itself
/// so that replicas that failed together do not return together.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    limit: Duration,
    failures: u32,
}

impl Backoff {
    /// Waits of `first`, twice that, and so on, never more than `limit` (before jitter).
    pub const fn new(first: Duration, limit: Duration) -> Self {
        Self { first, limit, failures: 0 }
    }

    /// For lists and watches: 0.8 s to 30 s, client-go's reflector constants.
    pub const fn for_watches() -> Self {
        Self::new(Duration::from_millis(800), Duration::from_secs(30))
    }

    /// For writes: 0.25 s to 8 s. The first wait is longer than a usual write takes (5 ms), the last keeps the sum of
    /// five attempts below a lease.
    pub const fn for_writes() -> Self {
        Self::new(Duration::from_millis(250), Duration::from_secs(8))
    }

    /// Counts a failure and says how long to wait after it.
    pub fn next(&mut self, rng: &Rng) -> Duration {
        let wait = self.first.saturating_mul(1_u32 << self.failures.min(16)).min(self.limit);
        self.failures = self.failures.saturating_add(1);
        rng.jitter(wait, 0.5)
    }

    /// How many failures there were since the last success.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Forgets the failures: something succeeded.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_limit_and_start_again_after_a_success() {
        let rng = Rng::seeded(7);
        let mut backoff = Backoff::for_watches();
        for expected_ms in [800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000] {
            let expected = Duration::from_millis(expected_ms);
            let wait = backoff.next(&rng);
            assert!(wait >= expected && wait <= expected.mul_f64(1.5), "{wait:?} for {expected:?}");
        }
        backoff.reset();
        assert!(backoff.next(&rng) <= Duration::from_millis(1_200));
    }

    #[test]
    fn a_hundred_failures_do_not_overflow() {
        let rng = Rng::seeded(7);
        let mut backoff = Backoff::for_watches();
        for _ in 0..100 {
            assert!(backoff.next(&rng) <= Duration::from_secs(45));
        }
    }
}
