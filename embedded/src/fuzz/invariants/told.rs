//! What users are told when all is calm: that it is there, and that it is true.

use serde_json::Value;

use super::liveness::{Activity, age, pending, queue_of};
use super::quota::{cohort_of, used_by};
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
        same_amounts(world, queue, queue, &|_| true)?;
    }
    for queue in world.all(LOCAL_QUEUES) {
        let of_queue = |workload: &Value| {
            text(workload, "/metadata/namespace") == text(queue, "/metadata/namespace")
                && text(workload, "/spec/queueName") == text(queue, "/metadata/name")
                && (holds(workload, "QuotaReserved") || !is_stopped(world, workload))
        };
        same_counts(world, queue, &of_queue)?;
        if let Some(cluster_queue) = world.get(CLUSTER_QUEUES, "", text(queue, "/spec/clusterQueue")) {
            same_amounts(world, queue, cluster_queue, &of_queue)?;
        }
    }
    Ok(())
}

/// Of every flavor and resource of a ClusterQueue it or a LocalQueue tells what those of it hold, and what those hold that are
/// admitted.
fn same_amounts(
    world: &World,
    queue: &Value,
    cluster_queue: &Value,
    of_queue: &dyn Fn(&Value) -> bool,
) -> Result<(), String> {
    let name = text(cluster_queue, "/metadata/name");
    let reserved = used_by(world, name, of_queue);
    let admitted = used_by(world, name, &|one| of_queue(one) && holds(one, "Admitted"));
    let flavors = items(cluster_queue, "/spec/resourceGroups").flat_map(|group| items(group, "/flavors"));
    for (flavor, quota) in flavors.flat_map(|one| items(one, "/resources").map(move |quota| (one, quota))) {
        let (flavor, resource) = (text(flavor, "/name"), text(quota, "/name"));
        for (list, usage) in [("/status/flavorsReservation", &reserved), ("/status/flavorsUsage", &admitted)]
        {
            let rows = items(queue, list).filter(|one| one["name"] == flavor);
            let row = rows.flat_map(|one| items(one, "/resources")).find(|row| row["name"] == resource);
            let held = usage.get(&(flavor.to_owned(), resource.to_owned())).copied().unwrap_or(0);
            let told = row.and_then(|row| amount(resource, row.get("total")));
            if told != Some(held) {
                let key = key(queue);
                return Err(format!("{key:?} tells in {list} of {told:?} {flavor}/{resource}, it is {held}"));
            }
            let nominal = amount(resource, quota.get("nominalQuota")).unwrap_or(0);
            // A LocalQueue is of no cohort, and borrows nothing itself.
            let borrowed = if cohort_of(queue).is_empty() { 0 } else { (held - nominal).max(0) };
            let told = row.and_then(|row| amount(resource, row.get("borrowed"))).unwrap_or(0);
            if told != borrowed {
                let key = key(queue);
                return Err(format!(
                    "{key:?} tells in {list} of {told} {flavor}/{resource} borrowed, it is {borrowed}"
                ));
            }
        }
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn amounts_that_are_untrue_or_not_told_are_seen() {
        let row = |total: &str, borrowed: &str| json!([{ "name": "f", "resources": [{ "name": "cpu", "total": total, "borrowed": borrowed }] }]);
        for (what, reserved, used, of_local, is_fine) in [
            ("the truth", row("3", "1"), row("0", "0"), row("3", "0"), true),
            ("other reservations", row("2", "1"), row("0", "0"), row("3", "0"), false),
            ("nothing borrowed", row("3", "0"), row("0", "0"), row("3", "0"), false),
            ("other usage", row("3", "1"), row("3", "1"), row("3", "0"), false),
            ("no usage", row("3", "1"), json!([]), row("3", "0"), false),
            ("other reservations of the LocalQueue", row("3", "1"), row("0", "0"), row("2", "0"), false),
            ("none of the LocalQueue", row("3", "1"), row("0", "0"), Value::Null, false),
        ] {
            let quota = json!({ "name": "cpu", "nominalQuota": "2" });
            let group = json!({ "flavors": [{ "name": "f", "resources": [quota] }] });
            let queue = json!({
                "metadata": { "name": "q" }, "spec": { "cohortName": "c", "resourceGroups": [group] },
                "status": { "reservingWorkloads": 1, "flavorsReservation": reserved, "flavorsUsage": used },
            });
            let local = json!({
                "metadata": { "name": "l", "namespace": "n" }, "spec": { "clusterQueue": "q" },
                "status": { "reservingWorkloads": 1, "flavorsReservation": of_local, "flavorsUsage": row("0", "0") },
            });
            let given = json!({ "name": "a", "count": 1, "flavors": { "cpu": "f" }, "resourceUsage": { "cpu": "3" } });
            let workload = json!({
                "metadata": { "name": "w", "namespace": "n" },
                "spec": { "queueName": "l", "podSets": [{ "name": "a", "count": 1 }] },
                "status": {
                    "admission": { "clusterQueue": "q", "podSetAssignments": [given] },
                    "conditions": [{ "type": "QuotaReserved", "status": "True" }],
                },
            });
            let world =
                World::holding([(CLUSTER_QUEUES, queue), (LOCAL_QUEUES, local), (WORKLOADS, workload)]);
            let judged = queues_count(&world, &Activity::default());
            assert_eq!(judged.is_ok(), is_fine, "{what}: {judged:?}");
        }
    }
}
