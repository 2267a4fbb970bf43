//! The Workloads that exist.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crds::view::workload::Workload;
use foldhash::fast::FixedState;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kit::watch::Change;
use quota_engine::Uid;

use super::kept::{Kept, Shared};
use crate::controller::store::{Delta, Object, Store};
use crate::input;

/// The Workloads that exist, by uid and by name.
#[derive(Default)]
pub(crate) struct Workloads {
    store: Store<Kept>,
    /// By namespace. These sets are for looking up: nobody goes through them.
    by_name: BTreeMap<Arc<str>, HashSet<ByName, FixedState>>,
    shared: Shared,
    /// What the last whole list did not name, and the list's resourceVersion.
    ghosts: (u64, BTreeSet<Uid>),
}

/// What a change did to a Workload.
pub(super) enum Turn {
    /// It is new, or newer than it was.
    Newer {
        /// As it was.
        before: Option<Arc<Kept>>,
        /// As it is.
        now: Arc<Kept>,
    },
    /// It is gone.
    Gone(Arc<Kept>),
}

/// A Workload among those of its namespace. What is kept is its own index: one pointer says it all.
struct ByName(Arc<Kept>);

impl Borrow<str> for ByName {
    fn borrow(&self) -> &str {
        &self.0.name
    }
}

impl PartialEq for ByName {
    fn eq(&self, other: &Self) -> bool {
        self.0.name == other.0.name
    }
}

impl Eq for ByName {}

impl Hash for ByName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.name.hash(state);
    }
}

impl Workloads {
    pub(super) fn is_synced(&self) -> bool {
        self.store.is_synced()
    }

    /// The Workload of this uid.
    pub(crate) fn get(&self, uid: &Uid) -> Option<Workload> {
        self.store.get(uid).map(Kept::view)
    }

    /// Whether there is one of this uid.
    pub(in crate::controller) fn exists(&self, uid: &Uid) -> bool {
        self.store.get(uid).is_some()
    }

    /// When it was made, and for whom.
    pub(crate) fn origin(&self, uid: &Uid) -> Option<ObjectMeta> {
        self.store.get(uid).map(Kept::origin)
    }

    /// The same, as it is kept.
    pub(super) fn kept(&self, uid: &Uid) -> Option<&Kept> {
        self.store.get(uid)
    }

    /// The Workload of this name.
    pub(super) fn named(&self, namespace: &str, name: &str) -> Option<&Kept> {
        self.by_name.get(namespace)?.get(name).map(|found| &*found.0)
    }

    /// The Workloads of a namespace that have this name, or that somebody has who does.
    pub(in crate::controller) fn called(&self, namespace: &str, name: &str) -> Vec<Uid> {
        let all = self.by_name.get(namespace).into_iter().flatten().map(|ByName(kept)| kept);
        let mut called: Vec<&Arc<Kept>> =
            all.filter(|kept| *kept.name == *name || kept.is_of_owner_named(name)).collect();
        called.sort_unstable_by_key(|kept| &kept.name);
        called.into_iter().map(|kept| kept.uid.clone()).collect()
    }

    /// One as it is known, if this is newer.
    pub(crate) fn before(&self, view: &Workload) -> Option<Workload> {
        let kept = self.store.get(&input::uid(&view.metadata))?;
        (kept.version() < input::version(&view.metadata)).then(|| kept.view())
    }

    /// Whether one has a condition of this type with this status and reason.
    pub(in crate::controller) fn says(&self, uid: &Uid, kind: &str, status: &str, reason: &str) -> bool {
        self.store.get(uid).is_some_and(|kept| kept.says(kind, status, reason))
    }

    /// All of them, by uid.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Kept> {
        self.store.iter()
    }

    pub(super) fn take(&mut self, change: Change<Workload>) -> Vec<Turn> {
        let deltas = match change {
            Change::Applied(view) => {
                if self.is_ghost(&view.metadata) {
                    return Vec::new();
                }
                let kept = Kept::of(view, &mut self.shared);
                return self
                    .put(kept, |store, kept| !store.take(Change::Applied(kept)).is_empty())
                    .into_iter()
                    .collect();
            }
            other => self.store.take(other.map(|view| Kept::of(view, &mut self.shared))),
        };
        let gone = deltas.into_iter().filter_map(|delta| match delta {
            Delta::Gone(kept) => Some(kept),
            Delta::Upsert(_) => None,
        });
        self.gone(gone)
    }

    /// Drops those that a whole list of this resourceVersion has not named.
    pub(super) fn drop_unnamed(&mut self, named: &BTreeSet<Uid>, as_of: u64) -> Vec<Turn> {
        let gone = self.store.drop_unnamed(named, Some(as_of));
        self.ghosts = (as_of, gone.iter().map(|kept| kept.uid.clone()).collect());
        self.gone(gone.into_iter())
    }

    /// Whether a list has told that it is gone, and the watch comes only now to what it was before.
    fn is_ghost(&self, metadata: &ObjectMeta) -> bool {
        let (as_of, uids) = &self.ghosts;
        input::version(metadata) <= *as_of && uids.contains(&input::uid(metadata))
    }

    fn gone(&mut self, gone: impl Iterator<Item = Arc<Kept>>) -> Vec<Turn> {
        gone.map(|kept| {
            self.forget_name(&kept);
            Turn::Gone(kept)
        })
        .collect()
    }

    /// Takes the answer to a write; see [`Store::upsert`].
    pub(super) fn upsert(&mut self, view: Workload) -> Option<Turn> {
        let kept = Kept::of(view, &mut self.shared);
        self.put(kept, |store, kept| store.upsert(kept).is_some())
    }

    /// Puts a Workload where it belongs, if `put` finds that it says something new.
    fn put(&mut self, kept: Kept, put: impl FnOnce(&mut Store<Kept>, Kept) -> bool) -> Option<Turn> {
        let uid = kept.uid.clone();
        let before = self.store.shared(&uid).cloned();
        if !put(&mut self.store, kept) {
            return None;
        }
        let now = self.store.shared(&uid)?.clone();
        self.by_name.entry(now.namespace().clone()).or_default().replace(ByName(now.clone()));
        Some(Turn::Newer { before, now })
    }

    /// Another one may have its name by now.
    fn forget_name(&mut self, gone: &Kept) {
        let Some(names) = self.by_name.get_mut(gone.namespace()) else { return };
        if names.get(&*gone.name).is_some_and(|found| found.0.uid == gone.uid) {
            names.remove(&*gone.name);
        }
        if names.is_empty() {
            self.by_name.remove(gone.namespace());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn workload(uid: &str, version: &str) -> Workload {
        let metadata = json!({"namespace": "team", "name": "w", "uid": uid, "resourceVersion": version});
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    }

    fn named(workloads: &Workloads) -> Option<(String, Option<String>)> {
        let kept = workloads.named("team", "w")?;
        Some((kept.uid.to_string(), kept.view().metadata.resource_version))
    }

    #[test]
    fn what_a_whole_list_does_not_name_is_gone_whatever_a_late_watch_tells() {
        let mut all = Workloads::default();
        all.take(Change::Applied(workload("a", "1")));
        assert_eq!(all.drop_unnamed(&BTreeSet::new(), 4).len(), 1);
        assert!(all.take(Change::Applied(workload("a", "2"))).is_empty() && named(&all).is_none());
        assert_eq!(all.take(Change::Applied(workload("a", "5"))).len(), 1, "it could not be read meanwhile");
        all.take(Change::Deleted(workload("a", "6")));
        all.take(Change::Applied(workload("b", "5")));
        assert_eq!(all.drop_unnamed(&BTreeSet::new(), 4).len(), 0, "it came after the list");
        assert_eq!(named(&all), Some(("b".to_owned(), Some("5".into()))));
    }

    #[test]
    fn a_name_is_that_of_the_one_seen_last() {
        let mut all = Workloads::default();
        all.take(Change::Applied(workload("a", "1")));
        assert_eq!(named(&all), Some(("a".to_owned(), Some("1".into()))));
        all.upsert(workload("a", "3"));
        all.take(Change::Applied(workload("a", "2")));
        assert_eq!(
            named(&all),
            Some(("a".to_owned(), Some("3".into()))),
            "the newest version, of all that were said"
        );
        all.take(Change::Applied(workload("b", "4")));
        all.take(Change::Deleted(workload("a", "5")));
        assert_eq!(
            named(&all),
            Some(("b".to_owned(), Some("4".into()))),
            "it is another's that had it before"
        );
        all.take(Change::Deleted(workload("b", "6")));
        assert_eq!(named(&all), None);
        assert!(all.by_name.is_empty());
    }
}
