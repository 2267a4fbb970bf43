//! Equal values are kept once: what a thousand jobs of one team ask for is mostly the same.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

use foldhash::fast::FixedState;

/// Below so many values nothing is gained by looking for unused ones.
const FEW: usize = 256;

/// Values in use, each once. Nobody goes through them, so their order is nobody's.
#[derive(Debug)]
pub struct Pool<T: ?Sized> {
    kept: HashSet<Arc<T>, FixedState>,
    /// At so many, those that nobody else uses any more are dropped.
    drop_at: usize,
}

impl<T: Eq + Hash + ?Sized> Default for Pool<T> {
    fn default() -> Self {
        Self { kept: HashSet::default(), drop_at: FEW }
    }
}

impl<T: Eq + Hash + ?Sized> Pool<T> {
    /// The value that is kept and equals this one; this one, if there was none.
    pub fn share(&mut self, value: Arc<T>) -> Arc<T> {
        match self.kept.get(&value) {
            Some(kept) => Arc::clone(kept),
            None => self.keep(value),
        }
    }

    fn keep(&mut self, value: Arc<T>) -> Arc<T> {
        if self.kept.len() >= self.drop_at {
            self.kept.retain(|kept| Arc::strong_count(kept) > 1);
            self.drop_at = (2 * self.kept.len()).max(FEW);
        }
        self.kept.insert(Arc::clone(&value));
        value
    }

    /// How many values are kept.
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// Whether none is kept.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }
}

impl Pool<str> {
    /// The text that is kept and equals this one.
    pub fn share_text(&mut self, text: &str) -> Arc<str> {
        match self.kept.get(text) {
            Some(kept) => Arc::clone(kept),
            None => self.keep(text.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_one() {
        let mut pool = Pool::<[u32]>::default();
        let first = pool.share(Arc::from([1, 2]));
        let second = pool.share(Arc::from([1, 2]));
        assert!(Arc::ptr_eq(&first, &second));
        assert!(!Arc::ptr_eq(&first, &pool.share(Arc::from([2, 1]))));
        assert_eq!(pool.len(), 2);
        let mut texts = Pool::<str>::default();
        assert!(Arc::ptr_eq(&texts.share_text("a"), &texts.share_text("a")));
        assert_eq!(texts.len(), 1);
    }

    #[test]
    fn what_nobody_uses_is_dropped_in_time() {
        let mut pool = Pool::<[usize]>::default();
        let used = pool.share(Arc::from([0]));
        for number in 1..10 * FEW {
            pool.share(Arc::from([number]));
            assert!(pool.len() <= FEW);
        }
        assert!(Arc::ptr_eq(&used, &pool.share(Arc::from([0]))));
    }
}
