//! Layers 2 and 3: nodes and devices.

use model::pod::PodResources;
use model::{ResourceList, node, resources};
use serde_json::Value;

use super::running::is_bind;
use crate::fuzz::world::{GRACE, World, Write, amount, at, items, text};

/// What a pod needs on its node.
pub(super) fn requests(pod: &Value) -> ResourceList {
    let spec = pod.get("spec").cloned().unwrap_or_default();
    serde_json::from_value::<PodResources>(spec)
        .ok()
        .and_then(|spec| spec.effective_requests().ok())
        .unwrap_or_default()
}

/// What a node has for pods.
pub(super) fn allocatable(node: &Value) -> ResourceList {
    let Some(listed) = at(node, "/status/allocatable").and_then(Value::as_object) else {
        return ResourceList::new();
    };
    listed
        .iter()
        .filter_map(|(name, value)| Some((name.as_str().into(), amount(name, Some(value))?)))
        .collect()
}

/// Our bind leaves the node within what it was believed to have.
pub(super) fn capacity(world: &World, write: &Write) -> Result<(), String> {
    if !is_bind(write) || !write.writer.starts_with("gang-scheduler") {
        return Ok(());
    }
    let name = text(write.object(), "/spec/nodeName");
    let mut most = ResourceList::new();
    for version in world.believable("nodes", "", name) {
        resources::raise_to(&mut most, &allocatable(version));
    }
    let mut used = ResourceList::new();
    for pod in world.pods_on(name) {
        // A pod that somebody else has just bound could not be known yet.
        let recent = bound_at(pod) > world.now - GRACE;
        let ours = text(pod, "/spec/schedulerName") == "trireme";
        if ours || !recent {
            resources::checked_add(&mut used, &requests(pod)).map_err(|error| error.to_string())?;
        }
    }
    // What the pod does not ask for was lacking before: a device that broke leaves its pod in place.
    let asked = requests(write.object());
    let mut missing = resources::shortfall(&used, &most);
    missing.retain(|resource, _| asked.get(resource).is_some_and(|amount| *amount > 0));
    if missing.is_empty() {
        Ok(())
    } else {
        Err(format!("{:?} was bound to {name}, which lacks {missing:?}", write.key()))
    }
}

pub(super) fn bound_at(pod: &Value) -> i64 {
    items(pod, "/status/conditions")
        .find(|condition| condition["type"] == "PodScheduled" && condition["status"] == "True")
        .and_then(|condition| condition["lastTransitionTime"].as_str()?.parse::<jiff::Timestamp>().ok())
        .map_or(0, jiff::Timestamp::as_millisecond)
}

/// No bind to a node that has been cordoned or tainted for a while.
pub(super) fn repelled(world: &World, write: &Write) -> Result<(), String> {
    if !is_bind(write) || !write.writer.starts_with("gang-scheduler") {
        return Ok(());
    }
    let pod = write.object();
    let name = text(pod, "/spec/nodeName");
    let tolerations: Vec<node::Toleration> = at(pod, "/spec/tolerations")
        .and_then(|list| serde_json::from_value(list.clone()).ok())
        .unwrap_or_default();
    let welcome = |version: &Value| {
        let taints: Vec<node::Taint> = at(version, "/spec/taints")
            .and_then(|list| serde_json::from_value(list.clone()).ok())
            .unwrap_or_default();
        at(version, "/spec/unschedulable") != Some(&Value::Bool(true))
            && node::first_untolerated(&taints, &tolerations).is_none()
    };
    let mut versions = world.believable("nodes", "", name).peekable();
    if versions.peek().is_none() || versions.any(|version| welcome(version)) {
        return Ok(());
    }
    Err(format!(
        "{:?} was bound to {name}, which is cordoned or has a taint it does not tolerate",
        write.key()
    ))
}
