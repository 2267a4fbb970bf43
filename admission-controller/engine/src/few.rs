//! A map for a few entries.

use std::borrow::Borrow;
use std::ops::Index;

/// A map of a few entries, in the order of their keys: a list, which takes no more room than it needs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Few<K, V>(Vec<(K, V)>);

impl<K, V> Default for Few<K, V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: Ord, V> Few<K, V> {
    /// One without entries.
    pub fn new() -> Self {
        Self::default()
    }

    /// The value of a key.
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        Some(&self.0[self.0.binary_search_by(|(known, _)| known.borrow().cmp(key)).ok()?].1)
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let at = self.0.binary_search_by(|(known, _)| known.cmp(key)).ok()?;
        Some(&mut self.0[at].1)
    }

    /// Whether there is such an entry.
    pub fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    /// Puts a value in the place of that of before, if there was one.
    pub fn insert(&mut self, key: K, value: V) {
        match self.0.binary_search_by(|(known, _)| known.cmp(&key)) {
            Ok(at) => self.0[at].1 = value,
            Err(at) => self.insert_at(at, key, value),
        }
    }

    /// The first one gets no more room than it needs: mostly there is no other.
    fn insert_at(&mut self, at: usize, key: K, value: V) {
        if self.0.is_empty() {
            self.0.reserve_exact(1);
        }
        self.0.insert(at, (key, value));
    }

    /// The value of a key, which is `otherwise` where it has none yet.
    pub fn get_or_insert(&mut self, key: K, otherwise: V) -> &mut V {
        let at = match self.0.binary_search_by(|(known, _)| known.cmp(&key)) {
            Ok(at) => at,
            Err(at) => {
                self.insert_at(at, key, otherwise);
                at
            }
        };
        &mut self.0[at].1
    }

    /// Takes out what does not pass.
    pub fn retain(&mut self, passes: impl Fn(&K, &V) -> bool) {
        self.0.retain(|(key, value)| passes(key, value));
    }

    /// Takes out everything.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All entries, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// All entries, their values to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.0.iter_mut().map(|(key, value)| (&*key, value))
    }

    /// All keys, in order.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.iter().map(|(key, _)| key)
    }

    /// All values, in the order of their keys.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.0.iter().map(|(_, value)| value)
    }

    /// The same, to be changed.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.0.iter_mut().map(|(_, value)| value)
    }
}

impl<K: Ord + Borrow<Q>, Q: Ord + ?Sized, V> Index<&Q> for Few<K, V> {
    type Output = V;

    /// # Panics
    /// Where there is no such entry.
    #[allow(clippy::expect_used, reason = "what indexing is for")]
    fn index(&self, key: &Q) -> &V {
        self.get(key).expect("an entry of this key")
    }
}

impl<K, V> IntoIterator for Few<K, V> {
    type Item = (K, V);
    type IntoIter = std::vec::IntoIter<(K, V)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a, K, V> IntoIterator for &'a Few<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = std::iter::Map<std::slice::Iter<'a, (K, V)>, fn(&'a (K, V)) -> (&'a K, &'a V)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter().map(|(key, value)| (key, value))
    }
}

impl<K: Ord, V> Extend<(K, V)> for Few<K, V> {
    fn extend<T: IntoIterator<Item = (K, V)>>(&mut self, entries: T) {
        entries.into_iter().for_each(|(key, value)| self.insert(key, value));
    }
}

impl<K: Ord, V> FromIterator<(K, V)> for Few<K, V> {
    fn from_iter<T: IntoIterator<Item = (K, V)>>(entries: T) -> Self {
        let entries: Vec<_> = entries.into_iter().collect();
        // Those of another map mostly are in order already, and need no more room than they have.
        if entries.is_sorted_by(|(one, _), (next, _)| one < next) {
            return Self(entries);
        }
        let mut few = Self::new();
        few.extend(entries);
        few
    }
}

impl<K: Ord, V, const N: usize> From<[(K, V); N]> for Few<K, V> {
    fn from(entries: [(K, V); N]) -> Self {
        entries.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_in_the_order_of_their_keys_and_the_last_word_counts() {
        let mut few: Few<&str, i64> = [("b", 2), ("a", 1), ("b", 3)].into();
        assert_eq!(few.iter().collect::<Vec<_>>(), [(&"a", &1), (&"b", &3)]);
        *few.get_or_insert("c", 0) += 4;
        *few.get_or_insert("a", 7) += 1;
        few.retain(|key, _| *key != "b");
        assert_eq!(few, Few::from([("a", 2), ("c", 4)]));
        assert_eq!((few.get("b"), few["c"]), (None, 4));
    }
}
