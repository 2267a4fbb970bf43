//! What users are told when all is calm: that it is there, and that it is true.

use serde_json::Value;

use super::liveness::{Activity, age, pending, queue_of};
use super::quota::used;
use crate::fuzz::world::{
    CLUSTER_QUEUES, LOCAL_QUEUES, WORKLOADS, World, amount, at, condition, holds, is_over, items, key, text,
};

pub(super) fn what_waits_says_why(world: &World, _: &Activity) -> Result<(), String> {
    for workload in pending(world) {
        let told = condition(workload, "QuotaReserved");
        let says = |field| told.is_some_and(|told| !text(told, field).is_empty());
        if !says("/reason") || !says("/message") {
            return Err(format!("{:?} waits without a reason", key(workload)));
        }
    }
    Ok(())
}

/// A pod that the gang-scheduler has not bound for two minutes carries the condition that kubectl describe shows.
pub(super) fn pods_say_why(world: &World, _: &Activity) -> Result<(), String> {
    for pod in world.all("pods") {
        let waits = text(pod, "/spec/schedulerName") == "trireme"
            && text(pod, "/spec/nodeName").is_empty()
            && items(pod, "/spec/schedulingGates").next().is_none()
            && at(pod, "/metadata/deletionTimestamp").is_none()
            && !is_over(pod)
            && age(world, pod) > 120_000;
        let told = condition(pod, "PodScheduled").filter(|told| told["status"] == "False");
        let says = |field| told.is_some_and(|told| !text(told, field).is_empty());
        if waits && !(says("/reason") && says("/message")) {
            return Err(format!("{:?} waits without a reason", key(pod)));
        }
    }
    Ok(())
}

/// The counters in the status of queues are those of a recount.
pub(super) fn queues_count(world: &World, _: &Activity) -> Result<(), String> {
    for queue in world.all(CLUSTER_QUEUES) {
        // Nobody waits in a LocalQueue that is stopped.
        let of_queue = |workload: &Value| {
            let in_it = queue_of(world, workload).map(key) == Some(key(queue));
            in_it && (holds(workload, "QuotaReserved") || !is_stopped(world, workload))
        };
        same_counts(world, queue, &of_queue)?;
        let usage = used(world, text(queue, "/metadata/name"));
        for flavor in items(queue, "/status/flavorsReservation") {
            for resource in items(flavor, "/resources") {
                let (name, cell) =
                    (text(resource, "/name"), (text(flavor, "/name"), text(resource, "/name")));
                let told = amount(name, resource.get("total")).unwrap_or(0);
                let held = usage.get(&(cell.0.to_owned(), cell.1.to_owned())).copied().unwrap_or(0);
                if told != held {
                    return Err(format!("{:?} tells of {told} {cell:?} in use, it is {held}", key(queue)));
                }
            }
        }
    }
    for queue in world.all(LOCAL_QUEUES) {
        let of_queue = |workload: &Value| {
            text(workload, "/metadata/namespace") == text(queue, "/metadata/namespace")
                && text(workload, "/spec/queueName") == text(queue, "/metadata/name")
                && (holds(workload, "QuotaReserved") || !is_stopped(world, workload))
        };
        same_counts(world, queue, &of_queue)?;
    }
    Ok(())
}

fn is_stopped(world: &World, workload: &Value) -> bool {
    let (namespace, queue) = (text(workload, "/metadata/namespace"), text(workload, "/spec/queueName"));
    let local = world.get(LOCAL_QUEUES, namespace, queue);
    local.is_some_and(|local| !matches!(text(local, "/spec/stopPolicy"), "" | "None"))
}

fn same_counts(world: &World, queue: &Value, of_queue: &dyn Fn(&Value) -> bool) -> Result<(), String> {
    let having = |kind: &str| {
        world
            .all(WORKLOADS)
            .filter(|one| holds(one, kind) && !holds(one, "Finished") && of_queue(one))
            .count()
    };
    let counts = [
        ("pendingWorkloads", pending(world).filter(|one| of_queue(one)).count()),
        ("reservingWorkloads", having("QuotaReserved")),
        ("admittedWorkloads", having("Admitted")),
    ];
    for (field, counted) in counts {
        let told = queue["status"][field].as_u64().unwrap_or(0);
        if usize::try_from(told) != Ok(counted) {
            return Err(format!("{:?} tells of {told} {field}, there are {counted}", key(queue)));
        }
    }
    Ok(())
}
