//! Objects, revisions, history and the commit log: what etcd and the watch cache are to a real API server.

mod collection;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, OnceLock};

use bytes::{BufMut, Bytes, BytesMut};
use jiff::Timestamp;
use serde_json::Value;

pub(crate) use collection::Collection;

use crate::admission::Hooks;
use crate::error::ApiError;
use crate::object::{Object, ObjectKey, items, metadata_mut, text};
use crate::resources::{GroupResource, Registry};

/// What happened to an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChangeKind {
    /// It was created, or came into the view of a selector.
    Added,
    /// It changed.
    Modified,
    /// It is gone, or left the view of a selector.
    Deleted,
}

impl ChangeKind {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// One entry of a resource's history: what its watches are told.
#[derive(Debug)]
pub struct Change {
    /// What happened.
    pub kind: ChangeKind,
    /// The object after the write; for a deletion its last state, with the revision of the deletion.
    pub object: Arc<Object>,
    /// The object before the write.
    pub previous: Option<Arc<Object>>,
    line: OnceLock<Bytes>,
}

impl Change {
    pub(crate) fn new(kind: ChangeKind, object: Arc<Object>, previous: Option<Arc<Object>>) -> Self {
        Self { kind, object, previous, line: OnceLock::new() }
    }

    /// The line of a watch stream that shows the object as stored; made once for all watches.
    pub(crate) fn line(&self) -> Bytes {
        self.line.get_or_init(|| watch_line(self.kind.as_str(), &self.object.bytes())).clone()
    }
}

/// `{"type":…,"object":…}` and a newline.
pub(crate) fn watch_line(kind: &str, object: &[u8]) -> Bytes {
    let mut line = BytesMut::with_capacity(object.len() + 40);
    line.put_slice(b"{\"type\":\"");
    line.put_slice(kind.as_bytes());
    line.put_slice(b"\",\"object\":");
    line.put_slice(object);
    line.put_slice(b"}\n");
    line.freeze()
}

/// The verb of a request, as in RBAC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[expect(missing_docs, reason = "the names are Kubernetes' own")]
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
}

impl Verb {
    /// Lower case, as in RBAC rules.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }

    /// Whether the verb changes anything.
    pub fn is_write(self) -> bool {
        !matches!(self, Self::Get | Self::List | Self::Watch)
    }
}

/// A committed write.
#[derive(Clone, Debug)]
pub struct Commit {
    /// The revision it made.
    pub revision: u64,
    /// When.
    pub at: Timestamp,
    /// Who: the name given to [`crate::Cluster::client_as`], or one of the cluster's own controllers.
    pub writer: Arc<str>,
    /// The verb of the request. A `Delete` whose `new` is set has only begun the deletion.
    pub verb: Verb,
    /// Whether the request said which uid or resourceVersion it means, so that it could not have hit a namesake.
    pub precise: bool,
    /// The stored resource.
    pub resource: GroupResource,
    /// The subresource written to; empty for the object itself.
    pub subresource: Arc<str>,
    /// Namespace and name.
    pub key: ObjectKey,
    /// uid.
    pub uid: Arc<str>,
    /// Before; absent for a creation.
    pub old: Option<Arc<Object>>,
    /// After; absent when the object is gone.
    pub new: Option<Arc<Object>>,
}

/// Who writes, how, and when: what the log says beside the objects.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub(crate) writer: Arc<str>,
    pub(crate) verb: Verb,
    pub(crate) subresource: Arc<str>,
    pub(crate) precise: bool,
    pub(crate) at: Timestamp,
}

/// What must be stored for a write to be applied.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expected {
    /// Nothing.
    Absent,
    /// The object of this revision.
    Revision(u64),
}

/// A stored object by resource, namespace and name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Ref {
    pub(crate) resource: GroupResource,
    pub(crate) key: ObjectKey,
}

fn waits_for_dependents(object: &Object) -> bool {
    object.is_terminating()
        && items(object.value(), &["metadata", "finalizers"])
            .iter()
            .any(|f| matches!(f.as_str(), Some("foregroundDeletion" | "orphan")))
}

/// What a cluster holds, for further clusters to begin with: see [`crate::Cluster::image`].
#[derive(Clone)]
pub(crate) struct Image {
    revision: u64,
    registry: Registry,
    hooks: Arc<Hooks>,
    collections: BTreeMap<GroupResource, BTreeMap<ObjectKey, Arc<Object>>>,
    dependents: BTreeMap<Arc<str>, BTreeSet<Ref>>,
    by_uid: BTreeMap<Arc<str>, Ref>,
}

type Observer = Box<dyn FnMut(&Commit) + Send>;

/// All state of the API server. Guarded by one lock that is never held across an await.
pub(crate) struct State {
    pub(crate) revision: u64,
    pub(crate) registry: Registry,
    pub(crate) hooks: Arc<Hooks>,
    collections: BTreeMap<GroupResource, Collection>,
    /// Dependents by their owner's uid.
    pub(crate) dependents: BTreeMap<Arc<str>, BTreeSet<Ref>>,
    /// Every stored object by its uid.
    pub(crate) by_uid: BTreeMap<Arc<str>, Ref>,
    /// Owners that are gone, or in another namespace, and may still have dependents: work for garbage collection.
    pub(crate) dead_owners: BTreeSet<Arc<str>>,
    /// Objects that wait for their dependents to go, or to be orphaned.
    pub(crate) waiting_owners: BTreeSet<Ref>,
    log: VecDeque<Arc<Commit>>,
    log_limit: usize,
    history_limit: usize,
    observers: Vec<Observer>,
}

impl State {
    pub(crate) fn new(log_limit: usize, history_limit: usize) -> Self {
        Self {
            revision: 1,
            registry: Registry::builtins(),
            hooks: Arc::default(),
            collections: BTreeMap::new(),
            dependents: BTreeMap::new(),
            by_uid: BTreeMap::new(),
            dead_owners: BTreeSet::new(),
            waiting_owners: BTreeSet::new(),
            log: VecDeque::new(),
            log_limit,
            history_limit,
            observers: Vec::new(),
        }
    }

    pub(crate) fn collection(&mut self, id: &GroupResource) -> &mut Collection {
        if !self.collections.contains_key(id) {
            // A collection that was never written to has no history to have lost.
            self.collections.insert(id.clone(), Collection::new(self.history_limit));
        }
        self.collections.get_mut(id).unwrap_or_else(|| unreachable!("inserted above"))
    }

    pub(crate) fn get(&self, id: &GroupResource, key: &ObjectKey) -> Option<Arc<Object>> {
        self.collections.get(id)?.get(key)
    }

    pub(crate) fn resolve(&self, reference: &Ref) -> Option<Arc<Object>> {
        self.get(&reference.resource, &reference.key)
    }

    /// Where the owner of this uid is stored, as a dependent in this namespace has it: one in another namespace is none. What is
    /// in no namespace may own anything.
    pub(crate) fn owner(&self, uid: &str, namespace: &str) -> Option<&Ref> {
        let found = self.by_uid.get(uid)?;
        let home = &*found.key.namespace;
        (home.is_empty() || namespace.is_empty() || home == namespace).then_some(found)
    }

    pub(crate) fn list(&self, id: &GroupResource, namespace: Option<&str>) -> Vec<Arc<Object>> {
        self.collections.get(id).map(|c| c.list(namespace)).unwrap_or_default()
    }

    pub(crate) fn collection_ids(&self) -> Vec<GroupResource> {
        self.collections.keys().cloned().collect()
    }

    pub(crate) fn observe(&mut self, observer: Observer) {
        self.observers.push(observer);
    }

    pub(crate) fn log_since(&self, revision: u64) -> Vec<Arc<Commit>> {
        let start = self.log.partition_point(|c| c.revision <= revision);
        self.log.range(start..).cloned().collect()
    }

    /// Forgets the history of every resource: watches that ask for an older revision get 410.
    pub(crate) fn compact(&mut self) {
        let revision = self.revision;
        for collection in self.collections.values_mut() {
            collection.compact(revision);
        }
    }

    /// Stores `value` under a new revision.
    pub(crate) fn put(
        &mut self,
        origin: Origin,
        resource: &GroupResource,
        mut value: Value,
        expected: Expected,
    ) -> Result<Arc<Object>, ApiError> {
        let key = ObjectKey::new(crate::object::namespace(&value), crate::object::name(&value));
        let old = self.get(resource, &key);
        match (expected, &old) {
            (Expected::Absent, None) => {}
            (Expected::Absent, Some(_)) => return Err(ApiError::already_exists(resource, &key.name)),
            (Expected::Revision(_), None) => return Err(ApiError::not_found(resource, &key.name)),
            (Expected::Revision(revision), Some(old)) if revision != old.resource_version() => {
                return Err(ApiError::stale(resource, &key.name));
            }
            (Expected::Revision(_), Some(_)) => {}
        }
        self.revision += 1;
        metadata_mut(&mut value).insert("resourceVersion".into(), self.revision.to_string().into());
        let new = Arc::new(Object::new(value, self.revision));
        self.index(resource, old.as_deref(), Some(&new));
        let kind = if old.is_none() { ChangeKind::Added } else { ChangeKind::Modified };
        let change = Arc::new(Change::new(kind, new.clone(), old.clone()));
        self.collection(resource).apply(change);
        self.record(origin, resource, old, Some(new.clone()));
        Ok(new)
    }

    /// Removes an object; its watches see it one last time.
    pub(crate) fn remove(
        &mut self,
        origin: Origin,
        resource: &GroupResource,
        key: &ObjectKey,
        revision: u64,
    ) -> Result<Arc<Object>, ApiError> {
        let old = self.get(resource, key).ok_or_else(|| ApiError::not_found(resource, &key.name))?;
        if old.resource_version() != revision {
            return Err(ApiError::stale(resource, &key.name));
        }
        self.revision += 1;
        let last = Arc::new(Object::relabelled(&old, self.revision));
        self.index(resource, Some(&old), None);
        let change = Arc::new(Change::new(ChangeKind::Deleted, last.clone(), Some(old.clone())));
        self.collection(resource).apply(change);
        self.record(origin, resource, Some(old), None);
        Ok(last)
    }

    /// A state that begins with what an image holds: the same objects and revision, no history.
    pub(crate) fn from_image(image: &Image, log_limit: usize, history_limit: usize) -> Self {
        let revision = image.revision;
        let collections = image.collections.iter().map(|(id, objects)| {
            (id.clone(), Collection::starting_with(objects.clone(), revision, history_limit))
        });
        Self {
            revision,
            registry: image.registry.clone(),
            hooks: image.hooks.clone(),
            collections: collections.collect(),
            dependents: image.dependents.clone(),
            by_uid: image.by_uid.clone(),
            ..Self::new(log_limit, history_limit)
        }
    }

    pub(crate) fn image(&self) -> Image {
        Image {
            revision: self.revision,
            registry: self.registry.clone(),
            hooks: self.hooks.clone(),
            collections: self.collections.iter().map(|(id, c)| (id.clone(), c.objects().clone())).collect(),
            dependents: self.dependents.clone(),
            by_uid: self.by_uid.clone(),
        }
    }

    fn index(&mut self, resource: &GroupResource, old: Option<&Object>, new: Option<&Arc<Object>>) {
        let owners = |object: &Object| -> BTreeSet<Arc<str>> {
            items(object.value(), &["metadata", "ownerReferences"])
                .iter()
                .map(|o| text(o, &["uid"]).into())
                .collect()
        };
        let before = old.map(owners).unwrap_or_default();
        let after = new.map(|n| owners(n)).unwrap_or_default();
        let Some(key) = old.map(Object::key).or_else(|| new.map(|n| n.key())) else { return };
        let reference = || Ref { resource: resource.clone(), key: key.clone() };
        for gone in before.difference(&after) {
            if let Some(set) = self.dependents.get_mut(gone) {
                set.remove(&reference());
                if set.is_empty() {
                    self.dependents.remove(gone);
                }
            }
        }
        for added in after.difference(&before) {
            self.dependents.entry(added.clone()).or_default().insert(reference());
        }
        match (old, new) {
            (Some(old), None) => {
                self.by_uid.remove(old.uid());
                if self.dependents.contains_key(old.uid()) {
                    self.dead_owners.insert(old.uid().clone());
                }
            }
            (None, Some(new)) => {
                self.by_uid.insert(new.uid().clone(), reference());
            }
            _ => {}
        }
        let is_missing = |owner: &&Arc<str>| self.owner(owner, &key.namespace).is_none();
        let missing: Vec<Arc<str>> = after.iter().filter(is_missing).cloned().collect();
        self.dead_owners.extend(missing);
        if new.is_some_and(|n| waits_for_dependents(n)) {
            self.waiting_owners.insert(reference());
        } else {
            self.waiting_owners.remove(&reference());
        }
    }

    fn record(
        &mut self,
        origin: Origin,
        resource: &GroupResource,
        old: Option<Arc<Object>>,
        new: Option<Arc<Object>>,
    ) {
        let Some(subject) = new.as_ref().or(old.as_ref()) else { return };
        let commit = Arc::new(Commit {
            revision: self.revision,
            at: origin.at,
            writer: origin.writer,
            verb: origin.verb,
            precise: origin.precise,
            resource: resource.clone(),
            subresource: origin.subresource,
            key: subject.key().clone(),
            uid: subject.uid().clone(),
            old,
            new,
        });
        self.react(&commit);
        for observer in &mut self.observers {
            observer(&commit);
        }
        if self.log_limit > 0 {
            if self.log.len() >= self.log_limit {
                self.log.pop_front();
            }
            self.log.push_back(commit);
        }
    }

    /// Removes the objects of a custom kind whose definition is gone.
    fn forget_custom(&mut self, id: &GroupResource, commit: &Commit) {
        let origin = Origin {
            writer: "crd-controller".into(),
            verb: Verb::Delete,
            subresource: "".into(),
            precise: false,
            at: commit.at,
        };
        for object in self.list(id, None) {
            // Nobody else can have written while the state is held.
            let _ = self.remove(origin.clone(), id, object.key(), object.resource_version());
        }
    }

    /// What the server itself derives from certain objects, in the same step as the write.
    fn react(&mut self, commit: &Commit) {
        if commit.resource.is("apiextensions.k8s.io", "customresourcedefinitions") {
            let first = commit.old.is_none();
            if let Some(id) = crate::crd::react(&mut self.registry, commit).filter(|_| first) {
                // A custom resource has no history from before its definition.
                self.collection(&id).compact(commit.revision);
            }
            if let (Some(old), None) = (&commit.old, &commit.new) {
                self.forget_custom(&crate::crd::id(old.value()), commit);
            }
        } else if &*commit.resource.group == "admissionregistration.k8s.io" {
            self.hooks = Arc::new(Hooks::compile(self));
        }
    }
}
