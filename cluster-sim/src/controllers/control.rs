//! The loop that all job controllers share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::node::{parse_rfc3339, rfc3339};
use crate::{
    ApiError, Change, ChangeKind, Cluster, DeleteOptions, GroupResource, Object, ObjectKey, Part,
    Propagation, Store,
};

/// Milliseconds since the Unix epoch.
pub(super) type Millis = i64;

/// First pause after a refused write, doubled up to the longest.
const RETRY: Millis = 1_000;
const LONGEST_RETRY: Millis = 60_000;

/// The most children that one owner gets. A real cluster's store would be full long before the counts that a user can
/// write; here it is the memory of the process. Kubernetes is tested with Jobs of 5,000 pods.
pub(super) const MOST_CHILDREN: usize = 5_000;

/// What sets one controller apart from another.
pub(super) struct Traits {
    /// The name under which it writes.
    pub(super) writer: &'static str,
    /// What it controls.
    pub(super) owner: GroupResource,
    /// `apiVersion` and `kind` of that.
    pub(super) api_version: &'static str,
    pub(super) kind: &'static str,
    /// What it makes of it.
    pub(super) child: GroupResource,
    /// Reason of the event about an owner whose child the API server refuses.
    pub(super) refused: &'static str,
    /// Changes of children within this time are looked at together.
    pub(super) batch: Duration,
}

/// A controller: pure, but for what it remembers.
pub(super) trait Control: Send + Sync + 'static {
    fn traits(&self) -> Traits;

    /// A child changed; deletions come here with the child's last state.
    fn observe(&mut self, _owner: &str, _change: &Change) {}

    /// An owner is gone.
    fn forget(&mut self, _uid: &str) {}

    /// What is to be done about an owner that is not being deleted.
    fn plan(&mut self, owner: &Value, children: &[Arc<Object>], now: Millis) -> Plan;
}

/// What is to be done about one owner, in this order.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Children to delete.
    pub(super) delete: Vec<Arc<Object>>,
    /// Children to change: the object as it shall be.
    pub(super) update: Vec<Value>,
    /// Children to create.
    pub(super) create: Vec<Value>,
    /// The owner's new status.
    pub(super) status: Option<Value>,
    /// When to look again without a change.
    pub(super) again: Option<Millis>,
    /// The owner itself has had its time.
    pub(super) remove: Option<Propagation>,
}

impl Plan {
    /// What has ended goes this many seconds later (`ttlSecondsAfterFinished`), if it names a number.
    pub(super) fn expire(&mut self, seconds: &Value, ended: &Value, propagation: Propagation, now: Millis) {
        let ended = ended.as_str().and_then(parse_rfc3339);
        let (Some(seconds), Some(ended)) = (seconds.as_i64(), ended) else { return };
        let at = ended.saturating_add(seconds.max(0).saturating_mul(1000));
        if at <= now {
            self.remove = Some(propagation);
        } else {
            self.again = self.again.into_iter().chain([at]).min();
        }
    }
}

/// Starts a controller.
pub(super) fn start(cluster: &Cluster, control: impl Control) {
    let traits = control.traits();
    let store = cluster.store(traits.writer);
    let runner = Runner {
        control,
        traits,
        store,
        due: BTreeMap::new(),
        failures: BTreeMap::new(),
        told: BTreeMap::new(),
    };
    until_stopped(cluster, runner.run());
}

/// Runs a controller until the cluster stops.
pub(super) fn until_stopped(cluster: &Cluster, controller: impl Future<Output = ()> + Send + 'static) {
    let tasks = cluster.controllers().clone();
    cluster.controllers().spawn(async move {
        tokio::select! {
            biased;
            () = tasks.stopping() => {}
            () = controller => {}
        }
    });
}

struct Runner<C> {
    control: C,
    traits: Traits,
    store: Store,
    /// When to look at which owner.
    due: BTreeMap<ObjectKey, Millis>,
    failures: BTreeMap<ObjectKey, u32>,
    /// What was last said about an owner's refused children.
    told: BTreeMap<ObjectKey, String>,
}

impl<C: Control> Runner<C> {
    async fn run(mut self) {
        let mut owners = self.store.watch(&self.traits.owner);
        let mut children = self.store.watch(&self.traits.child);
        loop {
            while let Some(change) = owners.try_next() {
                self.owner_changed(&change);
            }
            while let Some(change) = children.try_next() {
                self.child_changed(&change);
            }
            let now = self.now();
            // The earliest first, then by name.
            let next = self
                .due
                .iter()
                .min_by_key(|(key, at)| (**at, (*key).clone()))
                .map(|(key, at)| (key.clone(), *at));
            match next {
                Some((key, at)) if at <= now => {
                    self.due.remove(&key);
                    self.reconcile(&key).await;
                }
                next => {
                    let wait =
                        next.map(|(_, at)| Duration::from_millis(u64::try_from(at - now).unwrap_or(0)));
                    tokio::select! {
                        biased;
                        change = owners.next() => self.owner_changed(&change),
                        change = children.next() => self.child_changed(&change),
                        () = sleep(wait) => {}
                    }
                }
            }
        }
    }

    fn now(&self) -> Millis {
        self.store.cluster().clock().unix_millis()
    }

    fn look_at(&mut self, key: ObjectKey, at: Millis) {
        let due = self.due.entry(key).or_insert(at);
        *due = (*due).min(at);
    }

    fn owner_changed(&mut self, change: &Change) {
        let key = change.object.key().clone();
        if change.kind == ChangeKind::Deleted {
            self.due.remove(&key);
            self.failures.remove(&key);
            self.told.remove(&key);
            self.control.forget(change.object.uid());
            return;
        }
        let now = self.now();
        self.look_at(key, now);
    }

    fn child_changed(&mut self, change: &Change) {
        let object = &change.object;
        let Some(owner) = controller_of(object.value()).filter(|owner| owner["kind"] == self.traits.kind)
        else {
            return;
        };
        self.control.observe(owner["uid"].as_str().unwrap_or_default(), change);
        let key = ObjectKey::new(&object.key().namespace, owner["name"].as_str().unwrap_or_default());
        let batch = Millis::try_from(self.traits.batch.as_millis()).unwrap_or(0);
        let at = self.now().saturating_add(batch);
        self.look_at(key, at);
    }

    async fn reconcile(&mut self, key: &ObjectKey) {
        let Some(owner) = self.store.get(&self.traits.owner, &key.namespace, &key.name) else { return };
        if owner.is_terminating() {
            // The garbage collector sees to its children.
            return;
        }
        let children: Vec<Arc<Object>> = self
            .store
            .list(&self.traits.child, Some(&key.namespace))
            .into_iter()
            .filter(|child| controller_of(child.value()).is_some_and(|one| one["uid"] == **owner.uid()))
            .collect();
        let now = self.now();
        let plan = self.control.plan(owner.value(), &children, now);
        let again = plan.again;
        let done = self.carry_out(&owner, plan).await;
        let retry = match done {
            Ok(()) => {
                self.failures.remove(key);
                None
            }
            Err(error) => {
                self.tell(&owner, &error).await;
                let failures = self.failures.entry(key.clone()).or_insert(0);
                *failures = failures.saturating_add(1);
                let pause =
                    RETRY.checked_shl(*failures - 1).unwrap_or(LONGEST_RETRY).clamp(RETRY, LONGEST_RETRY);
                tracing::debug!(writer = self.traits.writer, object = %key, %error, "a write was refused");
                Some(now.saturating_add(pause))
            }
        };
        if let Some(at) = retry.into_iter().chain(again).min() {
            self.look_at(key.clone(), at);
        }
    }

    /// Says on the owner what it is that the API server does not take: once, until it is something else.
    async fn tell(&mut self, owner: &Object, error: &ApiError) {
        let key = owner.key();
        if !matches!(error.code, 400 | 403 | 422) || self.told.get(key) == Some(&error.message) {
            return;
        }
        self.told.insert(key.clone(), error.message.clone());
        let at = rfc3339(self.now());
        // A name has room for 253 characters: the longest owner's, cut, and what tells its events apart.
        let name: String = key.name.chars().take(200).collect();
        let event = json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": { "name": format!("{name}.{:x}", self.now()), "namespace": &*key.namespace },
            "involvedObject": {
                "apiVersion": self.traits.api_version, "kind": self.traits.kind,
                "namespace": &*key.namespace, "name": &*key.name, "uid": &**owner.uid(),
            },
            "type": "Warning", "reason": self.traits.refused,
            "message": format!("Error creating: {}", error.message),
            "source": { "component": self.traits.writer },
            "firstTimestamp": at, "lastTimestamp": at, "count": 1,
        });
        // An event that cannot be written is no reason to stop.
        let _ = self.store.create(&GroupResource::core("events"), event).await;
    }

    async fn carry_out(&self, owner: &Object, plan: Plan) -> Result<(), ApiError> {
        let child = &self.traits.child;
        for doomed in &plan.delete {
            let mut options = DeleteOptions::default().with_uid(doomed.uid());
            options.propagation = Some(Propagation::Background);
            let key = doomed.key();
            match self.store.delete(child, &key.namespace, &key.name, options).await {
                Err(error) if !matches!(error.code, 404 | 409) => return Err(error),
                _ => {}
            }
        }
        for wanted in plan.update {
            let name = wanted["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let change = |value: &mut Value| {
                unchanged(child, &wanted["metadata"]["uid"], value)?;
                value["metadata"] = wanted["metadata"].clone();
                value["spec"] = wanted["spec"].clone();
                Ok(())
            };
            self.store.update(child, &owner.key().namespace, &name, Part::Main, change).await?;
        }
        // A refused child must not keep the others, or the status, from being written.
        let mut refused = Ok(());
        for mut wanted in plan.create {
            wanted["metadata"]["namespace"] = (*owner.key().namespace).into();
            wanted["metadata"]["ownerReferences"] = json!([self.reference(owner)]);
            if let Err(error) = self.store.create(child, wanted).await {
                refused = Err(error);
            }
        }
        if let Some(status) = plan.status.filter(|status| *status != owner.value()["status"]) {
            let uid = Value::from(&**owner.uid());
            let change = |value: &mut Value| {
                unchanged(&self.traits.owner, &uid, value)?;
                value["status"] = status.clone();
                Ok(())
            };
            let key = owner.key();
            self.store.update(&self.traits.owner, &key.namespace, &key.name, Part::Status, change).await?;
        }
        if let Some(propagation) = plan.remove {
            let options = DeleteOptions { propagation: Some(propagation), ..DeleteOptions::default() };
            let (key, options) = (owner.key(), options.with_uid(owner.uid()));
            match self.store.delete(&self.traits.owner, &key.namespace, &key.name, options).await {
                Err(error) if !matches!(error.code, 404 | 409) => return Err(error),
                _ => {}
            }
        }
        refused
    }

    fn reference(&self, owner: &Object) -> Value {
        json!({
            "apiVersion": self.traits.api_version, "kind": self.traits.kind,
            "name": &*owner.key().name, "uid": &**owner.uid(),
            "controller": true, "blockOwnerDeletion": true,
        })
    }
}

/// Sleeps, or waits for ever.
pub(super) async fn sleep(wait: Option<Duration>) {
    match wait {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}

/// Refuses to touch another object of the same name.
pub(super) fn unchanged(resource: &GroupResource, uid: &Value, value: &Value) -> Result<(), ApiError> {
    if value["metadata"]["uid"] == *uid {
        return Ok(());
    }
    Err(ApiError::not_found(resource, value["metadata"]["name"].as_str().unwrap_or_default()))
}

/// The reference to the one owner that controls an object.
pub(super) fn controller_of(value: &Value) -> Option<&Value> {
    value["metadata"]["ownerReferences"].as_array()?.iter().find(|owner| owner["controller"] == true)
}
