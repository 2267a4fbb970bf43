//! What is kept of the objects of one kind, in the order of their versions, whoever tells of them first: a watch or an answer.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crds::names::kueue;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kit::watch::Change;
use quota_engine::Uid;

use super::world::controller_of;
use crate::input;
use crate::jobs::{JobKind, JobObject, read};
use crate::pods::Member;
use crate::reconcile::Job;

/// What exists in versions.
pub(super) trait Object {
    fn uid(&self) -> Uid;
    fn version(&self) -> u64;

    /// Whether it says what is not known yet.
    fn says_more_than(&self, known: &Self) -> bool {
        self.version() > known.version()
    }
}

impl<K: kube::Resource> Object for K {
    fn uid(&self) -> Uid {
        input::uid(self.meta())
    }
    fn version(&self) -> u64 {
        input::version(self.meta())
    }
}

/// What is kept of a job. Most jobs of a cluster may be none of ours, and a job is large: of those it is known only that
/// they exist.
#[derive(Debug)]
pub(super) enum StoredJob {
    Whole(Box<Job>),
    Bare(BareJob),
}

/// A job that was not managed when it was seen, and how to read it if a Workload of it turns up.
#[derive(Debug)]
pub(super) struct BareJob {
    pub(super) kind: &'static JobKind,
    pub(super) namespace: String,
    pub(super) name: String,
    uid: Uid,
    pub(super) version: u64,
    /// The LocalQueue that it names.
    pub(super) queue: Option<Box<str>>,
    /// Whether it is being deleted.
    pub(super) is_leaving: bool,
    /// Its controller.
    pub(super) owner: Option<Box<OwnerReference>>,
    /// Whether it may ever be managed.
    pub(super) can_be_managed: bool,
    /// Whether it belongs to another object, is not suspended, and has not ended.
    pub(super) runs: bool,
    /// Whether it asks for being resized while it runs.
    pub(super) elastic: bool,
}

/// Whether a job asks for being resized while it runs.
pub(super) fn asks_to_be_resized(job: &JobObject) -> bool {
    job.annotation(kueue::ELASTIC_JOB) == "true"
}

impl StoredJob {
    pub(super) fn whole(kind: &'static JobKind, object: JobObject) -> Self {
        let view = read(kind, &object);
        Self::Whole(Box::new(Job { kind, object, view }))
    }

    pub(super) fn bare(kind: &'static JobKind, object: JobObject) -> Self {
        let can_be_managed = kind.can_be_managed(&object);
        let is_owned = controller_of(&object.metadata).is_some();
        let runs = is_owned && can_be_managed && {
            let view = read(kind, &object);
            !view.suspended && view.finished.is_none()
        };
        let elastic = asks_to_be_resized(&object);
        let queue = object.queue().map(Box::from);
        let (uid, version) = (input::uid(&object.metadata), input::version(&object.metadata));
        let metadata = object.metadata;
        let is_leaving = metadata.deletion_timestamp.is_some();
        let mut owners = metadata.owner_references.into_iter().flatten();
        let owner = owners.find(|owner| owner.controller == Some(true)).map(Box::new);
        Self::Bare(BareJob {
            kind,
            uid,
            version,
            namespace: metadata.namespace.unwrap_or_default(),
            name: metadata.name.unwrap_or_default(),
            queue,
            is_leaving,
            owner,
            can_be_managed,
            runs,
            elastic,
        })
    }

    /// Its namespace.
    pub(super) fn namespace(&self) -> &str {
        match self {
            Self::Whole(job) => job.object.metadata.namespace.as_deref().unwrap_or_default(),
            Self::Bare(job) => &job.namespace,
        }
    }

    /// Whether it has this namespace and name.
    pub(super) fn is_named(&self, namespace: &str, name: &str) -> bool {
        let own = match self {
            Self::Whole(job) => job.object.metadata.name.as_deref().unwrap_or_default(),
            Self::Bare(job) => &job.name,
        };
        self.namespace() == namespace && own == name
    }

    /// Its controller.
    pub(super) fn owner(&self) -> Option<&OwnerReference> {
        match self {
            Self::Whole(job) => controller_of(&job.object.metadata),
            Self::Bare(job) => job.owner.as_deref(),
        }
    }
}

/// A job is no `kube::Resource` by itself: its kind is data.
impl Object for StoredJob {
    fn uid(&self) -> Uid {
        match self {
            Self::Whole(job) => input::uid(&job.object.metadata),
            Self::Bare(job) => job.uid.clone(),
        }
    }
    fn version(&self) -> u64 {
        match self {
            Self::Whole(job) => input::version(&job.object.metadata),
            Self::Bare(job) => job.version,
        }
    }
    fn says_more_than(&self, known: &Self) -> bool {
        let rank = |job: &Self| (job.version(), matches!(job, Self::Whole(_)));
        rank(self) > rank(known)
    }
}

/// What one watch says exists, by uid.
#[derive(Debug)]
pub(super) struct Store<V> {
    /// Each by itself: they are large, and a table has room to spare. The uid stands in the object only: there are very many.
    items: HashTable<Arc<V>>,
    /// During a list: what it has named.
    named: Option<BTreeSet<Uid>>,
    /// Objects gone not long ago: the answer to a write may come after the watch has told of the deletion (a patch that
    /// takes the last finalizer is answered with the object), and must not bring the object back. A uid is never used again.
    buried: VecDeque<Uid>,
    listing: Listing,
}

/// What the API server said when it was last asked for all objects of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listing {
    /// Nothing yet.
    Awaited,
    /// It does not serve the kind, and never did.
    Unknown,
    /// It serves it.
    Served,
    /// It does not any more, or for a moment.
    Withdrawn,
}

/// Which object has a name. One may take the name of another before that is said to be gone.
#[derive(Debug)]
pub(super) struct Names<N>(BTreeMap<N, Uid>);

impl<N> Default for Names<N> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<N: Ord> Names<N> {
    pub(super) fn get<Q: Ord + ?Sized>(&self, name: &Q) -> Option<&Uid>
    where
        N: Borrow<Q>,
    {
        self.0.get(name)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &N> {
        self.0.keys()
    }

    pub(super) fn insert(&mut self, name: N, uid: Uid) {
        self.0.insert(name, uid);
    }

    /// The object is gone. Returns whether the name is free.
    pub(super) fn remove<Q: Ord + ?Sized>(&mut self, name: &Q, uid: &Uid) -> bool
    where
        N: Borrow<Q>,
    {
        let has_it = self.0.get(name) == Some(uid);
        if has_it {
            self.0.remove(name);
        }
        has_it
    }
}

/// An answer comes within a request's time-out; this many deletions are remembered, more than writes can be in flight.
const MAX_BURIED: usize = 4_096;

/// What a change did.
#[derive(Debug)]
pub(super) enum Delta<V> {
    /// This object is new or newer.
    Upsert(Uid),
    /// This object is gone.
    Gone(Arc<V>),
}

impl<V> Default for Store<V> {
    fn default() -> Self {
        Self { items: HashTable::new(), named: None, buried: VecDeque::new(), listing: Listing::Awaited }
    }
}

impl<V: Object> Store<V> {
    /// Whether the first list is complete.
    pub(super) fn is_synced(&self) -> bool {
        self.listing != Listing::Awaited
    }

    /// Whether the API server served the kind when it was last asked for all of it.
    pub(super) fn is_served(&self) -> bool {
        self.listing == Listing::Served
    }

    /// Whether it has ever served it.
    pub(super) fn was_served(&self) -> bool {
        matches!(self.listing, Listing::Served | Listing::Withdrawn)
    }

    /// The object that a change is about, as it is or was.
    pub(super) fn told_of<'a>(&'a self, delta: &'a Delta<V>) -> Option<&'a V> {
        match delta {
            Delta::Upsert(uid) => self.get(uid),
            Delta::Gone(object) => Some(object),
        }
    }

    pub(super) fn get(&self, uid: &Uid) -> Option<&V> {
        self.shared(uid).map(|item| &**item)
    }

    /// The same, for whoever keeps it too.
    pub(super) fn shared(&self, uid: &Uid) -> Option<&Arc<V>> {
        self.items.find(uid.hash_in_table(), |item| item.uid() == *uid)
    }

    /// The same, to be changed; `None` too where somebody else keeps it.
    pub(super) fn get_mut(&mut self, uid: &Uid) -> Option<&mut V> {
        self.items.find_mut(uid.hash_in_table(), |item| item.uid() == *uid).and_then(Arc::get_mut)
    }

    /// All of them, by uid.
    pub(super) fn iter(&self) -> impl Iterator<Item = &V> {
        let mut all: Vec<&V> = self.items.iter().map(|item| &**item).collect();
        all.sort_by_cached_key(|item| item.uid());
        all.into_iter()
    }

    pub(super) fn any(&self, is: impl Fn(&V) -> bool) -> bool {
        self.items.iter().any(|item| is(item))
    }

    pub(super) fn take(&mut self, change: Change<V>) -> Vec<Delta<V>> {
        match change {
            Change::Restarted => {
                self.named = Some(BTreeSet::new());
                Vec::new()
            }
            Change::Applied(object) => {
                let uid = object.uid();
                // It could not be read for a while, say.
                if self.get(&uid).is_none() {
                    self.buried.retain(|one| *one != uid);
                }
                if let Some(named) = &mut self.named {
                    named.insert(uid);
                }
                self.put(object).into_iter().map(Delta::Upsert).collect()
            }
            Change::Deleted(object) => {
                let uid = object.uid();
                self.bury(uid.clone());
                self.remove(&uid).into_iter().map(Delta::Gone).collect()
            }
            Change::Synced { as_of } => {
                self.listing = match as_of {
                    Some(_) => Listing::Served,
                    None if self.was_served() => Listing::Withdrawn,
                    None => Listing::Unknown,
                };
                let named = self.named.take();
                let gone = named.map(|named| self.drop_unnamed(&named, as_of));
                gone.into_iter().flatten().map(Delta::Gone).collect()
            }
        }
    }

    /// Drops what a whole list of this resourceVersion has not named.
    pub(super) fn drop_unnamed(&mut self, named: &BTreeSet<Uid>, as_of: Option<u64>) -> Vec<Arc<V>> {
        let gone = self.gone_by(named, as_of);
        // What is not served for a moment comes back as it was.
        if as_of.is_some() {
            gone.iter().for_each(|uid| self.bury(uid.clone()));
        }
        gone.iter().filter_map(|uid| self.remove(uid)).collect()
    }

    /// What such a list has not named; but an answer may have told meanwhile of what came after it.
    fn gone_by(&self, named: &BTreeSet<Uid>, as_of: Option<u64>) -> Vec<Uid> {
        let in_its_time = |item: &Arc<V>| as_of.is_none_or(|as_of| item.version() <= as_of);
        let in_its_time = self.items.iter().filter(|item| in_its_time(item)).map(|item| item.uid());
        let mut gone: Vec<Uid> = in_its_time.filter(|uid| !named.contains(uid)).collect();
        gone.sort_unstable();
        gone
    }

    fn bury(&mut self, uid: Uid) {
        if self.buried.len() == MAX_BURIED {
            self.buried.pop_front();
        }
        self.buried.push_back(uid);
    }

    /// Takes the object in the answer to a write, unless it is gone by now or a newer version of it is known.
    pub(super) fn upsert(&mut self, object: V) -> Option<Uid> {
        let uid = object.uid();
        if self.buried.contains(&uid) { None } else { self.put(object) }
    }

    fn put(&mut self, object: V) -> Option<Uid> {
        let uid = object.uid();
        match self.items.entry(
            uid.hash_in_table(),
            |item| item.uid() == uid,
            |item| item.uid().hash_in_table(),
        ) {
            Entry::Occupied(known) if !object.says_more_than(known.get()) => return None,
            Entry::Occupied(mut known) => *known.get_mut() = Arc::new(object),
            Entry::Vacant(free) => drop(free.insert(Arc::new(object))),
        }
        Some(uid)
    }

    fn remove(&mut self, uid: &Uid) -> Option<Arc<V>> {
        let entry = self.items.find_entry(uid.hash_in_table(), |item| item.uid() == *uid).ok()?;
        Some(entry.remove().0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

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
        let mut store = Store::default();
        assert_eq!(store.take(Change::Applied(object("1"))).len(), 1);
        assert_eq!(store.take(Change::Deleted(object("2"))).len(), 1);
        assert_eq!(store.upsert(object("2")), None);
        assert!(store.iter().next().is_none());
    }

    /// (the version of a list that does not name it, if the kind was served; whether it is seen again, as what could be read no more and
    /// was corrected; whether an answer about it counts)
    #[test]
    fn the_answer_to_a_write_of_what_is_there_again_counts() {
        for (as_of, is_back, counts) in
            [(None, true, true), (None, false, true), (Some(5), true, true), (Some(5), false, false)]
        {
            let mut store = Store::default();
            store.take(Change::Applied(object("1")));
            store.take(Change::Restarted);
            assert_eq!(store.take(Change::Synced { as_of }).len(), 1, "{as_of:?}");
            if is_back {
                store.take(Change::Applied(object("6")));
            }
            assert_eq!(store.upsert(object("7")).is_some(), counts, "{as_of:?} {is_back}");
        }
    }

    #[test]
    fn a_name_that_another_has_by_now_is_not_free() {
        let mut names = Names::default();
        names.insert("a", Uid::from("1"));
        names.insert("a", Uid::from("2"));
        assert!(!names.remove("a", &Uid::from("1")));
        assert_eq!(names.get("a"), Some(&Uid::from("2")));
        assert!(names.remove("a", &Uid::from("2")) && names.iter().next().is_none());
    }

    #[test]
    fn nor_one_that_a_new_list_did_not_name() {
        let mut store = Store::default();
        store.take(Change::Applied(object("1")));
        store.take(Change::Restarted);
        assert_eq!(store.take(Change::Synced { as_of: Some(2) }).len(), 1);
        assert_eq!(store.upsert(object("1")), None);
    }

    /// (known before the list, answered during it, the list's version; whether it is there after a list that does not name it)
    #[test]
    fn a_list_says_nothing_about_what_came_after_it() {
        for (before, during, as_of, stays) in [
            (Some("4"), None, Some(5), false),
            (Some("5"), None, Some(5), false),
            (Some("6"), None, Some(5), true),
            (Some("4"), Some("6"), Some(5), true),
            (None, Some("6"), Some(5), true),
            (None, Some("4"), Some(5), false),
            (Some("6"), None, None, false),
        ] {
            let mut store = Store::default();
            before.and_then(|version| store.upsert(object(version)));
            store.take(Change::Restarted);
            during.and_then(|version| store.upsert(object(version)));
            let gone = store.take(Change::Synced { as_of });
            assert_eq!((store.iter().count(), gone.len()), if stays { (1, 0) } else { (0, 1) }, "{before:?}");
        }
    }
}
