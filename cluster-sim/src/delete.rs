//! Deletion: preconditions, grace, finalizers and propagation.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::admission::{Attempt, Operation};
use crate::cluster::Cluster;
use crate::error::{ApiError, FieldError};
use crate::http::parse;
use crate::object::{Object, ObjectKey, at, items, metadata_mut, text, to_bytes};
use crate::read::{Selectors, shown};
use crate::request::{Query, Target, View};
use crate::resources::{Feature, Resource};
use crate::store::Expected;
use crate::write::Caller;

/// What becomes of an object's dependents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Propagation {
    /// They go after it.
    Background,
    /// Those that block it go before it.
    Foreground,
    /// They stay, without their owner reference.
    Orphan,
}

/// `DeleteOptions` of meta/v1. The default deletes in the background with the kind's own grace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// Seconds until the object is gone; pods only.
    pub grace_period_seconds: Option<i64>,
    /// What becomes of dependents.
    pub propagation: Option<Propagation>,
    /// The object must have this uid.
    pub uid: Option<String>,
    /// The object must have this resourceVersion.
    pub resource_version: Option<String>,
    /// Nothing is changed.
    pub dry_run: bool,
}

impl DeleteOptions {
    /// Without grace: the object is gone unless finalizers hold it. What a kubelet sends when a pod has stopped.
    pub fn now() -> Self {
        Self { grace_period_seconds: Some(0), ..Self::default() }
    }

    /// Only if the object has this uid.
    #[must_use]
    pub fn with_uid(mut self, uid: &str) -> Self {
        self.uid = Some(uid.to_owned());
        self
    }

    pub(crate) fn parse(body: &[u8], content_type: &str, query: &Query) -> Result<Self, ApiError> {
        let body = if body.is_empty() { Value::Null } else { parse(body, content_type)? };
        let propagation = match at(&body, &["propagationPolicy"]).as_str().or(query.get("propagationPolicy"))
        {
            None if at(&body, &["orphanDependents"]) == &Value::Bool(true) => Some(Propagation::Orphan),
            None => None,
            Some("Background") => Some(Propagation::Background),
            Some("Foreground") => Some(Propagation::Foreground),
            Some("Orphan") => Some(Propagation::Orphan),
            Some(other) => {
                let supported = ["Foreground", "Background", "Orphan"].map(str::to_owned);
                let error = FieldError::not_supported("propagationPolicy", &other.into(), &supported);
                return Err(ApiError::invalid("meta.k8s.io", "DeleteOptions", "", &[error]));
            }
        };
        let grace = query.get("gracePeriodSeconds").and_then(|g| g.parse().ok());
        let string = |path: &[&str]| at(&body, path).as_str().map(str::to_owned);
        Ok(Self {
            grace_period_seconds: at(&body, &["gracePeriodSeconds"]).as_i64().or(grace),
            propagation,
            uid: string(&["preconditions", "uid"]),
            resource_version: string(&["preconditions", "resourceVersion"]),
            dry_run: query.dry_run()? || !items(&body, &["dryRun"]).is_empty(),
        })
    }
}

/// What a deletion did.
#[derive(Debug)]
pub(crate) enum Deleted {
    /// The object is gone; this was its last state.
    Gone(Arc<Object>),
    /// It waits for grace or finalizers.
    Waiting(Arc<Object>),
}

pub(crate) async fn serve(
    cluster: &Cluster,
    caller: &Caller,
    target: &Target,
    options: DeleteOptions,
    query: &Query,
) -> Result<Bytes, ApiError> {
    if !target.subresource.is_empty() {
        return Err(ApiError::method_not_allowed(&target.resource.id.resource, "DELETE"));
    }
    let resource = &target.resource;
    let Some(name) = &target.name else { return collection(cluster, caller, target, &options, query).await };
    let key = ObjectKey::new(target.namespace_or_empty(), name);
    let done = delete(cluster, caller, resource, &key, &options).await?;
    match done {
        Deleted::Gone(object) if !resource.has(Feature::ReturnsDeleted) => {
            let mut details = json!({ "name": name, "kind": &*resource.id.resource, "uid": &**object.uid() });
            if !resource.id.group.is_empty() {
                details["group"] = (*resource.id.group).into();
            }
            Ok(to_bytes(&json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
            })))
        }
        Deleted::Gone(object) | Deleted::Waiting(object) => {
            shown(cluster, resource, target.version, &object, View::Object).await
        }
    }
}

async fn collection(
    cluster: &Cluster,
    caller: &Caller,
    target: &Target,
    options: &DeleteOptions,
    query: &Query,
) -> Result<Bytes, ApiError> {
    let selectors = Selectors::parse(target, query)?;
    let resource = &target.resource;
    let objects = cluster.state().list(&resource.storage, target.namespace.as_deref());
    let mut gone = Vec::new();
    for object in objects.into_iter().filter(|o| selectors.matches(o.value())) {
        match delete(cluster, caller, resource, object.key(), options).await {
            Ok(Deleted::Gone(last) | Deleted::Waiting(last)) => gone.push(last.value().clone()),
            Err(error) if error.code == 404 => {}
            Err(error) => return Err(error),
        }
    }
    Ok(to_bytes(&json!({
        "kind": &*resource.list_kind, "apiVersion": target.api_version(),
        "metadata": { "resourceVersion": cluster.revision().to_string() }, "items": gone,
    })))
}

/// Deletes one object, or marks it so that it goes when its finalizers and its grace allow.
pub(crate) async fn delete(
    cluster: &Cluster,
    caller: &Caller,
    resource: &Arc<Resource>,
    key: &ObjectKey,
    options: &DeleteOptions,
) -> Result<Deleted, ApiError> {
    loop {
        let old = cluster
            .object(&resource.storage, key)
            .map_err(|_| ApiError::not_found(&resource.id, &key.name))?;
        check(resource, &old, options)?;
        let attempt = Attempt {
            cluster,
            caller,
            resource,
            operation: Operation::Delete,
            subresource: "",
            old: Some(old.value()),
        };
        let nothing = attempt.mutate(Value::Null).await?;
        attempt.validate(&nothing).await?;
        let step = next_state(cluster, resource, &old, options);
        if caller.dry_run || options.dry_run {
            return Ok(Deleted::Gone(old));
        }
        let origin = caller.origin(cluster, "");
        let result = match step {
            Step::Nothing => return Ok(Deleted::Waiting(old)),
            Step::Remove => {
                let removed = cluster.state().remove(origin, &resource.storage, key, old.resource_version());
                removed.map(Deleted::Gone)
            }
            Step::Mark(value) => {
                let expected = Expected::Revision(old.resource_version());
                let marked = cluster.state().put(origin, &resource.storage, *value, expected);
                marked.map(Deleted::Waiting)
            }
        };
        match result {
            Err(error) if error.code == 409 && options.resource_version.is_none() => {}
            Err(error) => return Err(error),
            Ok(done) => {
                cluster.0.housekeeping.notify_one();
                return Ok(done);
            }
        }
    }
}

fn check(resource: &Resource, old: &Object, options: &DeleteOptions) -> Result<(), ApiError> {
    if let Some(uid) = options.uid.as_deref().filter(|uid| *uid != &**old.uid()) {
        let why =
            format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {}", old.uid());
        return Err(ApiError::conflict(&resource.id, &old.key().name, why));
    }
    let current = old.resource_version().to_string();
    if let Some(asked) = options.resource_version.as_deref().filter(|r| *r != current) {
        let why = format!(
            "Precondition failed: ResourceVersion in precondition: {asked}, ResourceVersion in object meta: {current}"
        );
        return Err(ApiError::conflict(&resource.id, &old.key().name, why));
    }
    Ok(())
}

enum Step {
    /// Deletion has begun already and nothing changes.
    Nothing,
    Remove,
    Mark(Box<Value>),
}

fn next_state(cluster: &Cluster, resource: &Resource, old: &Object, options: &DeleteOptions) -> Step {
    let grace = grace(resource, old, options);
    let finalizers = finalizers(old, options);
    let value = old.value();
    let pending = !finalizers.is_empty()
        || (resource.id.is("", "namespaces") && !items(value, &["spec", "finalizers"]).is_empty());
    if !pending && grace == 0 {
        return Step::Remove;
    }
    let mut new = value.clone();
    let deadline = cluster.0.clock.now() + jiff::SignedDuration::from_secs(grace);
    let metadata = metadata_mut(&mut new);
    let running = metadata.get("deletionGracePeriodSeconds").and_then(Value::as_i64);
    // A later deletion can only shorten the grace.
    if running.is_none_or(|running| grace < running) {
        metadata.insert("deletionTimestamp".into(), crate::lifecycle::rfc3339(deadline).into());
        metadata.insert("deletionGracePeriodSeconds".into(), grace.into());
        if running.is_none()
            && let Some(generation) = metadata.get("generation").and_then(Value::as_i64)
        {
            metadata.insert("generation".into(), (generation + 1).into());
        }
    }
    if finalizers.is_empty() {
        metadata.remove("finalizers");
    } else {
        metadata.insert("finalizers".into(), finalizers.into());
    }
    if resource.id.is("", "namespaces") {
        crate::object::entry(&mut new, "status").insert("phase".into(), "Terminating".into());
    }
    if new == *value { Step::Nothing } else { Step::Mark(Box::new(new)) }
}

/// Seconds a pod gets to stop: none when it was never placed or has ended.
fn grace(resource: &Resource, old: &Object, options: &DeleteOptions) -> i64 {
    if !resource.id.is("", "pods") {
        return 0;
    }
    let value = old.value();
    let unplaced = text(value, &["spec", "nodeName"]).is_empty();
    let ended = matches!(text(value, &["status", "phase"]), "Succeeded" | "Failed");
    if unplaced || ended {
        return 0;
    }
    let own = at(value, &["spec", "terminationGracePeriodSeconds"]).as_i64().unwrap_or(30);
    let asked = options.grace_period_seconds.unwrap_or(own).max(0);
    at(value, &["metadata", "deletionGracePeriodSeconds"])
        .as_i64()
        .map_or(asked, |running| asked.min(running))
}

fn finalizers(old: &Object, options: &DeleteOptions) -> Vec<String> {
    let current =
        items(old.value(), &["metadata", "finalizers"]).iter().filter_map(Value::as_str).map(str::to_owned);
    let mut finalizers: Vec<String> = current.collect();
    let policy = options.propagation;
    if policy.is_some() {
        let keep = match policy {
            Some(Propagation::Foreground) => "foregroundDeletion",
            Some(Propagation::Orphan) => "orphan",
            _ => "",
        };
        finalizers.retain(|f| f == keep || (f != "foregroundDeletion" && f != "orphan"));
        if !keep.is_empty() && !finalizers.iter().any(|f| f == keep) && !old.is_terminating() {
            finalizers.push(keep.to_owned());
        }
    }
    finalizers
}
