use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use tokio::sync::Notify;

use super::{Change, ChangeKind};
use crate::object::{Object, ObjectKey};

/// The objects of one resource and the latest changes to them.
pub(crate) struct Collection {
    objects: BTreeMap<ObjectKey, Arc<Object>>,
    history: VecDeque<Arc<Change>>,
    history_limit: usize,
    /// Changes up to this revision are forgotten.
    compacted: u64,
    changed: Arc<Notify>,
}

/// A history that no longer reaches back to the revision asked for.
pub(crate) struct Compacted;

impl Collection {
    pub(crate) fn new(history_limit: usize) -> Self {
        Self {
            objects: BTreeMap::new(),
            history: VecDeque::new(),
            history_limit,
            compacted: 0,
            changed: Arc::default(),
        }
    }

    /// A collection that holds these objects and has no history from before `revision`.
    pub(crate) fn starting_with(
        objects: BTreeMap<ObjectKey, Arc<Object>>,
        revision: u64,
        history_limit: usize,
    ) -> Self {
        Self { objects, compacted: revision, ..Self::new(history_limit) }
    }

    pub(crate) fn objects(&self) -> &BTreeMap<ObjectKey, Arc<Object>> {
        &self.objects
    }

    pub(crate) fn get(&self, key: &ObjectKey) -> Option<Arc<Object>> {
        self.objects.get(key).cloned()
    }

    /// All objects in the order of namespace and name.
    pub(crate) fn list(&self, namespace: Option<&str>) -> Vec<Arc<Object>> {
        self.after(namespace, None).cloned().collect()
    }

    /// The objects of a namespace (or all) that come after a key.
    pub(crate) fn after<'c>(
        &'c self,
        namespace: Option<&'c str>,
        key: Option<&ObjectKey>,
    ) -> impl Iterator<Item = &'c Arc<Object>> + 'c {
        let start = match (key, namespace) {
            (Some(key), _) => Bound::Excluded(key.clone()),
            (None, Some(namespace)) => Bound::Included(ObjectKey::new(namespace, "")),
            (None, None) => Bound::Unbounded,
        };
        self.objects
            .range((start, Bound::Unbounded))
            .take_while(move |(k, _)| namespace.is_none_or(|n| n == &*k.namespace))
            .map(|(_, object)| object)
    }

    pub(crate) fn apply(&mut self, change: Arc<Change>) {
        let key = change.object.key();
        match change.kind {
            ChangeKind::Deleted => {
                self.objects.remove(key);
            }
            ChangeKind::Added | ChangeKind::Modified => {
                self.objects.insert(key.clone(), change.object.clone());
            }
        }
        if self.history.len() >= self.history_limit
            && let Some(oldest) = self.history.pop_front()
        {
            self.compacted = oldest.object.resource_version();
        }
        self.history.push_back(change);
        self.changed.notify_waiters();
    }

    pub(crate) fn compact(&mut self, revision: u64) {
        self.history.clear();
        self.compacted = revision;
        self.changed.notify_waiters();
    }

    /// The changes after a revision.
    pub(crate) fn since(&self, revision: u64) -> Result<Vec<Arc<Change>>, Compacted> {
        if revision < self.compacted {
            return Err(Compacted);
        }
        let start = self.history.partition_point(|c| c.object.resource_version() <= revision);
        Ok(self.history.range(start..).cloned().collect())
    }

    /// Whether nothing has changed since a revision.
    pub(crate) fn is_as_of(&self, revision: u64) -> bool {
        let last = self.history.back().map_or(self.compacted, |change| change.object.resource_version());
        last <= revision
    }

    /// What comes after a key, see [`after`](Self::after), as it was at a revision that the history still reaches.
    pub(crate) fn as_of(
        &self,
        revision: u64,
        namespace: Option<&str>,
        key: Option<&ObjectKey>,
    ) -> Result<Vec<Arc<Object>>, Compacted> {
        if revision < self.compacted {
            return Err(Compacted);
        }
        let since =
            self.history.iter().rev().take_while(|change| change.object.resource_version() > revision);
        // Of several changes of an object the oldest is the last that is inserted.
        let before: BTreeMap<&ObjectKey, Option<&Arc<Object>>> =
            since.map(|change| (change.object.key(), change.previous.as_ref())).collect();
        let wanted = |one: &ObjectKey| {
            namespace.is_none_or(|namespace| namespace == &*one.namespace) && key.is_none_or(|key| one > key)
        };
        let unchanged = self.after(namespace, key).filter(|object| !before.contains_key(object.key()));
        let changed = before.iter().filter(|(key, _)| wanted(key)).filter_map(|(_, object)| *object);
        let mut all: Vec<Arc<Object>> = unchanged.chain(changed).cloned().collect();
        all.sort_by(|a, b| a.key().cmp(b.key()));
        Ok(all)
    }

    /// The revision, or the oldest after it that the history still reaches.
    pub(crate) fn reachable(&self, revision: u64) -> u64 {
        revision.max(self.compacted).max(1)
    }

    /// Told of every change.
    pub(crate) fn changed(&self) -> Arc<Notify> {
        self.changed.clone()
    }
}
