use std::collections::{BTreeMap, BTreeSet};

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
    synced: bool,
}

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
        Self { items: BTreeMap::new(), metadata, unnamed: None, synced: false }
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
            Change::Applied(object) => self.upsert(object).into_iter().map(Delta::Upsert).collect(),
            Change::Deleted(object) => {
                let uid = input::uid((self.metadata)(&object));
                self.items.remove(&uid).into_iter().map(Delta::Gone).collect()
            }
            Change::Synced => {
                self.synced = true;
                let gone = self.unnamed.take().unwrap_or_default();
                gone.into_iter().filter_map(|uid| self.items.remove(&uid)).map(Delta::Gone).collect()
            }
        }
    }

    /// Takes an object, from a watch or from the answer to a write, unless a newer version of it is known.
    pub(super) fn upsert(&mut self, object: V) -> Option<Uid> {
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
