use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::Notify;

use crate::cluster::Cluster;
use crate::delete::DeleteOptions;
use crate::error::ApiError;
use crate::object::{Object, ObjectKey};
use crate::resources::GroupResource;
use crate::store::{Change, ChangeKind, Verb};
use crate::write::{Caller, Subject};

/// The part of an object that a write owns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// Everything but the status, where the status is a subresource.
    Main,
    /// The status.
    Status,
    /// `spec.finalizers` of a Namespace.
    Finalize,
    /// What a Binding sets on a pod.
    Binding,
}

impl Part {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Main => "",
            Self::Status => "status",
            Self::Finalize => "finalize",
            Self::Binding => "binding",
        }
    }
}

/// The objects without HTTP, for the cluster's own kubelets and controllers. Writes go the same way as a client's:
/// admission, validation, log and watches; only faults do not strike them.
///
/// Values are in the storage version of their resource.
#[derive(Clone, Debug)]
pub struct Store {
    cluster: Cluster,
    writer: Arc<str>,
}

impl Store {
    pub(crate) fn new(cluster: Cluster, writer: &str) -> Self {
        Self { cluster, writer: writer.into() }
    }

    /// The cluster.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// An object, if it exists. The namespace is empty for cluster-scoped kinds.
    pub fn get(&self, resource: &GroupResource, namespace: &str, name: &str) -> Option<Arc<Object>> {
        self.cluster.state().get(resource, &ObjectKey::new(namespace, name))
    }

    /// All objects of a resource, or those of a namespace, ordered by namespace and name.
    pub fn list(&self, resource: &GroupResource, namespace: Option<&str>) -> Vec<Arc<Object>> {
        self.cluster.state().list(resource, namespace)
    }

    /// Creates an object.
    ///
    /// # Errors
    /// As the API server would refuse it.
    pub async fn create(&self, resource: &GroupResource, value: Value) -> Result<Arc<Object>, ApiError> {
        let resource = self.cluster.resource(resource)?;
        let caller = self.caller(Verb::Create);
        let namespace = crate::object::namespace(&value).to_owned();
        crate::write::create(&self.cluster, &caller, &resource, resource.storage_version(), &namespace, value)
            .await
    }

    /// Changes a part of an object. `change` may be called again when another write came between; it sees the latest
    /// object each time and may refuse with an error (a uid that is not the expected one, say).
    ///
    /// # Errors
    /// As the API server would refuse it, or what `change` returned.
    pub async fn update(
        &self,
        resource: &GroupResource,
        namespace: &str,
        name: &str,
        part: Part,
        mut change: impl FnMut(&mut Value) -> Result<(), ApiError> + Send,
    ) -> Result<Arc<Object>, ApiError> {
        let resource = self.cluster.resource(resource)?;
        let version = resource.storage_version();
        let subject = Subject { key: ObjectKey::new(namespace, name), version, part, whole: false, resource };
        let mut apply = |current: &Value| {
            let mut value = current.clone();
            change(&mut value)?;
            Ok(value)
        };
        crate::write::update(&self.cluster, &self.caller(Verb::Patch), &subject, &mut apply).await
    }

    /// Deletes an object, or begins to: see [`DeleteOptions`].
    ///
    /// # Errors
    /// As the API server would refuse it.
    pub async fn delete(
        &self,
        resource: &GroupResource,
        namespace: &str,
        name: &str,
        options: DeleteOptions,
    ) -> Result<(), ApiError> {
        let resource = self.cluster.resource(resource)?;
        let key = ObjectKey::new(namespace, name);
        crate::delete::delete(&self.cluster, &self.caller(Verb::Delete), &resource, &key, &options)
            .await
            .map(|_| ())
    }

    /// The changes of a resource from now on, after one `Added` for each object that exists.
    pub fn watch(&self, resource: &GroupResource) -> Changes {
        let mut state = self.cluster.state();
        let cursor = state.revision;
        let collection = state.collection(resource);
        let initial = collection
            .list(None)
            .into_iter()
            .map(|o| Arc::new(Change::new(ChangeKind::Added, o, None)))
            .collect();
        let changed = collection.changed();
        drop(state);
        Changes { cluster: self.cluster.clone(), resource: resource.clone(), cursor, changed, ready: initial }
    }

    fn caller(&self, verb: Verb) -> Caller {
        Caller::internal(&self.writer, verb)
    }
}

/// A watch without HTTP; see [`Store::watch`].
#[derive(Debug)]
pub struct Changes {
    cluster: Cluster,
    resource: GroupResource,
    cursor: u64,
    changed: Arc<Notify>,
    ready: VecDeque<Arc<Change>>,
}

impl Changes {
    /// The next change. Should the history not reach back to the last one seen (a reader that was away for longer than
    /// [`crate::SimConfig::history_limit`] changes), every object comes again as `Added`; deletions in between are lost.
    pub async fn next(&mut self) -> Arc<Change> {
        loop {
            if let Some(change) = self.ready.pop_front() {
                return change;
            }
            let changed = self.changed.clone();
            let notified = changed.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            self.gather();
            if self.ready.is_empty() {
                notified.await;
            }
        }
    }

    /// The next change if there is one already.
    pub fn try_next(&mut self) -> Option<Arc<Change>> {
        if self.ready.is_empty() {
            self.gather();
        }
        self.ready.pop_front()
    }

    fn gather(&mut self) {
        let mut state = self.cluster.state();
        let current = state.revision;
        let collection = state.collection(&self.resource);
        match collection.since(self.cursor) {
            Ok(changes) => self.ready.extend(changes),
            Err(_) => self.ready.extend(
                collection.list(None).into_iter().map(|o| Arc::new(Change::new(ChangeKind::Added, o, None))),
            ),
        }
        self.cursor = current;
    }
}
