//! Randomness.

use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Seeded randomness for jitter and names. Decisions never use it (ARCHITECTURE.md, invariant 1).
#[derive(Clone, Debug)]
pub struct Rng(Arc<Mutex<fastrand::Rng>>);

impl Rng {
    /// The same seed gives the same sequence.
    pub fn seeded(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(fastrand::Rng::with_seed(seed))))
    }

    /// Seeded by the operating system.
    pub fn from_entropy() -> Self {
        Self(Arc::new(Mutex::new(fastrand::Rng::new())))
    }

    /// An independent generator, seeded from this one.
    pub fn fork(&self) -> Self {
        Self::seeded(self.u64(..))
    }

    /// A number in the range.
    pub fn u64(&self, range: impl std::ops::RangeBounds<u64>) -> u64 {
        self.lock().u64(range)
    }

    /// `base` lengthened by up to `fraction` of itself.
    pub fn jitter(&self, base: Duration, fraction: f64) -> Duration {
        base + base.mul_f64(self.lock().f64() * fraction)
    }

    /// `length` characters of Kubernetes' name alphabet (no vowels, no look-alikes).
    pub fn suffix(&self, length: usize) -> String {
        const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        let mut rng = self.lock();
        (0..length).map(|_| char::from(ALPHABET[rng.usize(..ALPHABET.len())])).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, fastrand::Rng> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
