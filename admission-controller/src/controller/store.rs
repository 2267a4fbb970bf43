use std::collections::{BTreeMap, BTreeSet, VecDeque};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kit::watch::Change;
use quota_engine::Uid;

use crate::input;
use crate::reconcile::Job;

/// Something with metadata.
pub(super) trait Object {
    fn metadata(&self) -> &ObjectMeta;
}

impl<K: kube::Resource> Object for K {
    fn metadata(&self) -> &ObjectMeta {
        self.meta()
    }
}

/// A job is no `kube::Resource` by itself: its kind is data.
#[derive(Clone, Debug)]
pub(super) struct StoredJob(pub(super) Job);

impl StoredJob {
    fn metadata(&self) -> &ObjectMeta {
        &self.0.object.metadata
    }
}

/// What one watch says exists, by uid.
#[derive(Debug)]
pub(super) struct Store<V> {
    items: BTreeMap<Uid, V>,
    metadata: fn(&V) -> &ObjectMeta,
    /// During a list: what it has not named yet.
    unnamed: Option<BTreeSet<Uid>>,
    /// Objects gone not long ago: the answer to a write may come after the watch has told of the deletion (a patch that
    /// takes the last finalizer is answered with the object), and must not bring the object back. A uid is never used again.
    buried: VecDeque<Uid>,
    synced: bool,
}

/// An answer comes within a request's time-out; this many deletions are remembered, more than writes can be in flight.
const MAX_BURIED: usize = 4_096;

/// What a change did.
#[derive(Debug)]
pub(super) enum Delta<V> {
    /// This object is new or newer.
    Upsert(Uid),
    /// This object is gone.
    Gone(V),
}

impl<V: Object> Store<V> {
    pub(super) fn new() -> Self {
        Self::with(V::metadata)
    }
}

impl Store<StoredJob> {
    pub(super) fn of_jobs() -> Self {
        Self::with(StoredJob::metadata)
    }
}

impl<V> Store<V> {
    fn with(metadata: fn(&V) -> &ObjectMeta) -> Self {
        Self { items: BTreeMap::new(), metadata, unnamed: None, buried: VecDeque::new(), synced: false }
    }

    /// Whether the first list is complete.
    pub(super) fn is_synced(&self) -> bool {
        self.synced
    }

    pub(super) fn get(&self, uid: &Uid) -> Option<&V> {
        self.items.get(uid)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Uid, &V)> {
        self.items.iter()
    }

    pub(super) fn take(&mut self, change: Change<V>) -> Vec<Delta<V>> {
        match change {
            Change::Restarted => {
                self.unnamed = Some(self.items.keys().cloned().collect());
                Vec::new()
            }
            Change::Applied(object) => self.put(object).into_iter().map(Delta::Upsert).collect(),
            Change::Deleted(object) => {
                let uid = input::uid((self.metadata)(&object));
                self.bury(uid.clone());
                self.items.remove(&uid).into_iter().map(Delta::Gone).collect()
            }
            Change::Synced => {
                self.synced = true;
                let gone = self.unnamed.take().unwrap_or_default();
                gone.iter().for_each(|uid| self.bury(uid.clone()));
                gone.into_iter().filter_map(|uid| self.items.remove(&uid)).map(Delta::Gone).collect()
            }
        }
    }

    fn bury(&mut self, uid: Uid) {
        if self.buried.len() == MAX_BURIED {
            self.buried.pop_front();
        }
        self.buried.push_back(uid);
    }

    /// Takes the object in the answer to a write, unless it is gone by now or a newer version of it is known.
    pub(super) fn upsert(&mut self, object: V) -> Option<Uid> {
        let uid = input::uid((self.metadata)(&object));
        if self.buried.contains(&uid) { None } else { self.put(object) }
    }

    fn put(&mut self, object: V) -> Option<Uid> {
        let metadata = (self.metadata)(&object);
        let (uid, version) = (input::uid(metadata), input::version(metadata));
        if let Some(unnamed) = &mut self.unnamed {
            unnamed.remove(&uid);
        }
        let known = self.items.get(&uid).map(|known| input::version((self.metadata)(known)));
        if known.is_some_and(|known| known >= version) {
            return None;
        }
        self.items.insert(uid.clone(), object);
        Some(uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;

    fn object(version: &str) -> ConfigMap {
        let metadata = ObjectMeta {
            uid: Some("u".into()),
            resource_version: Some(version.into()),
            ..ObjectMeta::default()
        };
        ConfigMap { metadata, ..ConfigMap::default() }
    }

    #[test]
    fn the_late_answer_to_a_write_does_not_bring_a_deleted_object_back() {
        let mut store = Store::new();
        assert_eq!(store.take(Change::Applied(object("1"))).len(), 1);
        assert_eq!(store.take(Change::Deleted(object("2"))).len(), 1);
        assert_eq!(store.upsert(object("2")), None);
        assert!(store.iter().next().is_none());
    }

    #[test]
    fn nor_one_that_a_new_list_did_not_name() {
        let mut store = Store::new();
        store.take(Change::Applied(object("1")));
        store.take(Change::Restarted);
        assert_eq!(store.take(Change::Synced).len(), 1);
        assert_eq!(store.upsert(object("1")), None);
    }
}
