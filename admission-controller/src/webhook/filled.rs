//! The queue and the priority class of jobs that name none: Kueue's `ApplyDefaultLocalQueue` and
//! `ApplyDefaultWorkloadPriorityClass`, which asks for no queue.

use crds::names::kueue;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::Site;
use super::jobs::set_existing_parent;
use super::pods::has_parent;
use super::review::Request;
use crate::jobs::{JobKind, JobObject};
use crate::pods::of_kind;
use crate::surroundings::DEFAULT;

/// Says of workers whose ranks follow that of their leader by how much they do, where they are not placed with it as a group.
pub(super) fn in_ranks(kind: &JobKind, object: &mut Value) {
    let Some(follows) = &kind.follows else { return };
    let says = follows.says.is_none_or(|at| object.pointer(at) == Some(&Value::Bool(true)));
    let is_there = |at: &str| object.pointer(at).is_some_and(Value::is_object);
    let group = format!("{}/metadata/annotations/{}", follows.grouped, escaped(kueue::PODSET_GROUP_NAME));
    if says && is_there(follows.leader) && is_there(follows.workers) && object.pointer(&group).is_none() {
        let at = format!("{}/metadata/annotations/{}", follows.workers, escaped(kueue::POD_INDEX_OFFSET));
        set_existing_parent(object, &at, json!("1"));
    }
}

fn escaped(key: &str) -> String {
    key.replace('/', "~1")
}

/// The new object of a review with the labels that it lacks. What is part of something that is managed gets none, be it that its
/// owner is, or that its template says so. Deployments and the like get again what they got when they were made, as in Kueue, where a write
/// leaves it out: whoever writes the whole object knows nothing of it. One from before there was a default stays as it was.
pub(super) fn in_labels(site: &Site, request: &Request) -> Value {
    let mut object = request.object.clone();
    let Ok(read) = serde_json::from_value::<JobObject>(object.clone()) else { return object };
    let is_part = site.config.is_part(&read.metadata) || has_parent(&read);
    let is_new = request.operation == "CREATE";
    let is_owner = of_kind(&request.group, &request.kind).is_some();
    let old = is_owner.then(|| JobObject::deserialize(&request.old).ok()).flatten();
    let may_get = |key: &str| is_new || old.as_ref().is_some_and(|old| old.label(key) == Some(DEFAULT));
    if is_part || (!is_new && old.is_none()) {
        return object;
    }
    let around = site.surroundings.borrow();
    if around.leaves_alone(&request.namespace) {
        return object;
    }
    let mut set = |key: &str| {
        set_existing_parent(&mut object, &format!("/metadata/labels/{}", escaped(key)), json!(DEFAULT));
    };
    if read.queue().is_none() && may_get(kueue::QUEUE_NAME) && around.has_queue(&request.namespace) {
        set(kueue::QUEUE_NAME);
    }
    let defaults_class = site.config.feature_gates.workload_priority_class_defaulting && around.class;
    let names_class = read.label(kueue::PRIORITY_CLASS).is_some_and(|name| !name.is_empty());
    if defaults_class && !names_class && may_get(kueue::PRIORITY_CLASS) {
        set(kueue::PRIORITY_CLASS);
    }
    object
}
