//! Names that are looked up many times for every decision.

use std::collections::HashSet;
use std::hash::Hash;

use foldhash::fast::FixedState;

/// Names, each once. They are gone through where the order cannot show, or sorted.
#[derive(Clone, Debug)]
pub(crate) struct Set<K>(HashSet<K, FixedState>);

impl<K> Default for Set<K> {
    fn default() -> Self {
        Self(HashSet::default())
    }
}

impl<K: Clone + Ord + Hash> Set<K> {
    pub(crate) fn insert(&mut self, key: K) {
        self.0.insert(key);
    }

    /// Inserts a name that is mostly there already.
    pub(crate) fn note(&mut self, key: &K) {
        if !self.0.contains(key) {
            self.0.insert(key.clone());
        }
    }

    pub(crate) fn remove(&mut self, key: &K) {
        self.0.remove(key);
    }

    pub(crate) fn contains(&self, key: &K) -> bool {
        self.0.contains(key)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// All of them, for sums and for what is sorted afterwards.
    pub(crate) fn unordered(&self) -> impl Iterator<Item = &K> {
        self.0.iter()
    }

    /// All of them, by name; none is left.
    pub(crate) fn take_in_order(&mut self) -> Vec<K> {
        let mut all: Vec<K> = self.0.drain().collect();
        all.sort_unstable();
        all
    }
}
