//! Garbage collection by owner references.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::cluster::Cluster;
use crate::delete::{DeleteOptions, Propagation};
use crate::object::{Object, at, items, metadata_mut, text};
use crate::store::{Ref, Verb};
use crate::write::{Caller, Subject};
use crate::{ApiError, Part};

const WRITER: &str = "garbage-collector";
/// When a refused deletion is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// Wakes the collector when an object was created whose owner is gone already, or never was in its namespace.
pub(super) fn check_owners(cluster: &Cluster, created: &Object) {
    let state = cluster.state();
    let orphaned = items(created.value(), &["metadata", "ownerReferences"])
        .iter()
        .any(|owner| state.owner(text(owner, &["uid"]), &created.key().namespace).is_none());
    drop(state);
    if orphaned {
        cluster.0.housekeeping.notify_one();
    }
}

/// Collects until nothing is left to collect.
pub(super) async fn sweep(cluster: &Cluster) {
    while pass(cluster).await {}
}

/// One look at everything that is owned or waits for its dependents. Returns whether anything was done.
async fn pass(cluster: &Cluster) -> bool {
    let (orphaned, waiting) = survey(cluster);
    let mut done = false;
    let mut refused = Vec::new();
    for dependent in orphaned {
        match collect(cluster, &dependent).await {
            Ok(collected) => done |= collected,
            // Gone or changed meanwhile: whoever did that leaves new work behind if there is any.
            Err(error) if matches!(error.code, 404 | 409) => {}
            Err(_) => refused.push(dependent),
        }
    }
    if !refused.is_empty() {
        try_again_later(cluster, &refused);
    }
    for owner in waiting {
        done |= release(cluster, &owner).await;
    }
    done
}

/// Puts back what a webhook, say, refused to let go.
fn try_again_later(cluster: &Cluster, refused: &[Ref]) {
    let mut state = cluster.state();
    let objects: Vec<_> = refused.iter().filter_map(|r| state.resolve(r)).collect();
    for object in objects {
        let owners = items(object.value(), &["metadata", "ownerReferences"]);
        let dead: Vec<Arc<str>> = owners.iter().map(|o| text(o, &["uid"]).into()).collect();
        let namespace = &object.key().namespace;
        let dead: Vec<_> = dead.into_iter().filter(|uid| state.owner(uid, namespace).is_none()).collect();
        state.dead_owners.extend(dead);
    }
    drop(state);
    let later = cluster.clone();
    cluster.0.tasks.spawn(async move {
        later.0.clock.sleep(RETRY).await;
        later.0.housekeeping.notify_one();
    });
}

/// Dependents of owners that are gone or wait for them, and owners that wait.
fn survey(cluster: &Cluster) -> (Vec<Ref>, Vec<Ref>) {
    let mut state = cluster.state();
    let dead = std::mem::take(&mut state.dead_owners);
    let waiting: Vec<Ref> = state.waiting_owners.iter().cloned().collect();
    let foreground =
        waiting.iter().filter_map(|r| state.resolve(r)).filter(|o| waits_for(o, "foregroundDeletion"));
    let foreground: Vec<_> = foreground.map(|o| o.uid().clone()).collect();
    let of = |uid| state.dependents.get(uid).into_iter().flatten().cloned();
    let dependents = dead.iter().chain(&foreground).flat_map(of).collect();
    (dependents, waiting)
}

fn waits_for(object: &Object, finalizer: &str) -> bool {
    object.is_terminating()
        && items(object.value(), &["metadata", "finalizers"]).iter().any(|f| f == finalizer)
}

/// Deletes an object none of whose owners lives, or drops the references to those that are gone.
async fn collect(cluster: &Cluster, dependent: &Ref) -> Result<bool, ApiError> {
    let (object, dead, foreground) = {
        let state = cluster.state();
        let Some(object) = state.resolve(dependent) else { return Ok(false) };
        let mut dead = Vec::new();
        let mut foreground = false;
        let mut alive = false;
        for owner in items(object.value(), &["metadata", "ownerReferences"]) {
            let uid = text(owner, &["uid"]);
            match state.owner(uid, &dependent.key.namespace).and_then(|r| state.resolve(r)) {
                None => dead.push(uid.to_owned()),
                Some(owner) if waits_for(&owner, "foregroundDeletion") => {
                    dead.push(uid.to_owned());
                    foreground = true;
                }
                Some(_) => alive = true,
            }
        }
        if dead.is_empty() {
            return Ok(false);
        }
        (object, if alive { dead } else { Vec::new() }, foreground)
    };
    if !dead.is_empty() {
        return drop_owners(cluster, dependent, &dead).await.map(|()| true);
    }
    if object.is_terminating() {
        return Ok(false);
    }
    let resource = cluster.resource(&dependent.resource)?;
    let has_dependents = cluster.state().dependents.contains_key(object.uid());
    let propagation =
        if foreground && has_dependents { Propagation::Foreground } else { Propagation::Background };
    // An object that already waits for its dependents or orphans them keeps that wish.
    let own = items(object.value(), &["metadata", "finalizers"])
        .iter()
        .any(|f| f == "orphan" || f == "foregroundDeletion");
    let options = DeleteOptions {
        propagation: (!own).then_some(propagation),
        uid: Some(object.uid().to_string()),
        ..DeleteOptions::default()
    };
    let caller = Caller::internal(WRITER, Verb::Delete);
    crate::delete::delete(cluster, &caller, &resource, &dependent.key, &options).await.map(|_| true)
}

/// Lets an owner go when no dependent blocks it any more.
async fn release(cluster: &Cluster, owner: &Ref) -> bool {
    let (object, dependents) = {
        let state = cluster.state();
        let Some(object) = state.resolve(owner) else { return false };
        let dependents: Vec<Ref> =
            state.dependents.get(object.uid()).map(|set| set.iter().cloned().collect()).unwrap_or_default();
        (object, dependents)
    };
    let finalizer = if waits_for(&object, "orphan") {
        let uid = [object.uid().to_string()];
        for dependent in &dependents {
            // A dependent that vanished meanwhile needs no orphaning.
            let _ = drop_owners(cluster, dependent, &uid).await;
        }
        "orphan"
    } else {
        let state = cluster.state();
        let blocked = dependents.iter().filter_map(|d| state.resolve(d)).any(|d| blocks(&d, object.uid()));
        drop(state);
        if blocked {
            return false;
        }
        "foregroundDeletion"
    };
    update(cluster, owner, |value| {
        if let Some(list) = metadata_mut(value).get_mut("finalizers").and_then(Value::as_array_mut) {
            list.retain(|f| f != finalizer);
        }
    })
    .await
    .is_ok()
}

fn blocks(dependent: &Object, owner: &str) -> bool {
    items(dependent.value(), &["metadata", "ownerReferences"])
        .iter()
        .any(|o| text(o, &["uid"]) == owner && at(o, &["blockOwnerDeletion"]) == &Value::Bool(true))
}

async fn drop_owners(cluster: &Cluster, dependent: &Ref, gone: &[String]) -> Result<(), ApiError> {
    update(cluster, dependent, |value| {
        if let Some(list) = metadata_mut(value).get_mut("ownerReferences").and_then(Value::as_array_mut) {
            list.retain(|o| !gone.iter().any(|uid| uid == text(o, &["uid"])));
        }
    })
    .await
}

async fn update(
    cluster: &Cluster,
    object: &Ref,
    change: impl Fn(&mut Value) + Send + Sync,
) -> Result<(), ApiError> {
    let resource = cluster.resource(&object.resource)?;
    let version = resource.storage_version();
    let subject = Subject { resource, version, key: object.key.clone(), part: Part::Main, whole: false };
    let caller = Caller::internal(WRITER, Verb::Patch);
    let mut apply = |current: &Value| {
        let mut value = current.clone();
        change(&mut value);
        Ok(value)
    };
    crate::write::update(cluster, &caller, &subject, &mut apply).await.map(|_| ())
}
