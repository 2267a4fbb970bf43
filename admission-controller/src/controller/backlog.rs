//! Units that wait for room among the writes: namespaces take turns, so that one with very many makes nobody else wait for long.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::world::Unit;

/// Units by namespace; those without one stand together.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    waiting: BTreeMap<Box<str>, BTreeSet<Unit>>,
    /// Whose turn was last.
    last: Box<str>,
}

impl Backlog {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn add(&mut self, namespace: &str, unit: Unit) {
        match self.waiting.get_mut(namespace) {
            Some(units) => _ = units.insert(unit),
            None => _ = self.waiting.insert(namespace.into(), BTreeSet::from([unit])),
        }
    }

    /// One of the namespace that comes after the last one.
    pub(super) fn next(&mut self) -> Option<Unit> {
        let after = (Bound::Excluded(&*self.last), Bound::Unbounded);
        let namespace = self.waiting.range::<str, _>(after).next().or(self.waiting.iter().next())?.0.clone();
        let units = self.waiting.get_mut(&namespace)?;
        let unit = units.pop_first();
        if units.is_empty() {
            self.waiting.remove(&namespace);
        }
        self.last = namespace;
        unit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_take_turns_whatever_each_has() {
        let mut backlog = Backlog::default();
        let unit = |text: &str| Unit::Job(text.into());
        for name in ["a1", "a2", "a3", "b1", "c1", "c2"] {
            backlog.add(&name[..1], unit(name));
        }
        backlog.add("a", unit("a1"));
        let mut next = |count: usize| -> Vec<Unit> { (0..count).filter_map(|_| backlog.next()).collect() };
        assert_eq!(next(2), [unit("a1"), unit("b1")]);
        assert_eq!(next(9), [unit("c1"), unit("a2"), unit("c2"), unit("a3")]);
        assert!(backlog.is_empty());
    }
}
