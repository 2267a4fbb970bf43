//! Where everything is looked up by its name, many times for every decision.

use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::ops::Index;

use foldhash::fast::FixedState;

/// A map for looking up. It is never gone through in an order of its own, so that what is decided depends on what is in it
/// alone; its hashes are the same in every process.
#[derive(Clone, Debug)]
pub(crate) struct Table<K, V>(HashMap<K, Box<V>, FixedState>);

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self(HashMap::default())
    }
}

impl<K: Ord + Hash, V> Table<K, V> {
    pub(crate) fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.0.get(key).map(|value| &**value)
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.0.get_mut(key).map(|value| &mut **value)
    }

    pub(crate) fn contains_key(&self, key: &K) -> bool {
        self.0.contains_key(key)
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        self.0.insert(key, Box::new(value));
    }

    pub(crate) fn get_or_insert_with(&mut self, key: &K, new: impl FnOnce() -> V) -> &mut V
    where
        K: Clone,
    {
        self.0.entry(key.clone()).or_insert_with(|| Box::new(new()))
    }

    pub(crate) fn remove(&mut self, key: &K) {
        self.0.remove(key);
    }

    /// Everything, by name.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = (&K, &V)> {
        let mut all: Vec<(&K, &V)> = self.0.iter().map(|(key, value)| (key, &**value)).collect();
        all.sort_unstable_by_key(|(key, _)| *key);
        all.into_iter()
    }

    /// Does the same to every one.
    pub(crate) fn for_each_mut(&mut self, change: impl FnMut(&mut V)) {
        self.0.values_mut().map(|value| &mut **value).for_each(change);
    }
}

impl<K: Ord + Hash, V> Index<&K> for Table<K, V> {
    type Output = V;

    fn index(&self, key: &K) -> &V {
        &self.0[key]
    }
}

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
