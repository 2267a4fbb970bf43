//! Layer 1: quota, conditions, preemption.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::fuzz::world::{
    CLUSTER_QUEUES, LOCAL_QUEUES, WORKLOADS, World, Write, amount, at, condition, holds, items, text,
};

/// Amounts by flavor and resource.
pub(super) type Usage = BTreeMap<(String, String), i64>;

/// What a Workload holds by its admission, less what pods that have ended gave back: nothing once it is finished.
pub(super) fn held(workload: &Value) -> Usage {
    let mut usage = Usage::new();
    if holds(workload, "Finished") {
        return usage;
    }
    for assignment in items(workload, "/status/admission/podSetAssignments") {
        let Some(flavors) = assignment["flavors"].as_object() else { continue };
        let (granted, needed) = pods_of(workload, assignment);
        for (resource, flavor) in flavors {
            let mut used = amount(resource, assignment["resourceUsage"].get(resource)).unwrap_or(0);
            if needed < granted {
                used = used / granted * needed;
            }
            *usage.entry((flavor.as_str().unwrap_or_default().into(), resource.clone())).or_default() += used;
        }
    }
    usage
}

/// How many pods of a set were admitted, and how many of the set have not ended.
fn pods_of(workload: &Value, assignment: &Value) -> (i64, i64) {
    let count = |path: &str, default: i64| {
        let mut named = items(workload, path).filter(|one| one["name"] == assignment["name"]);
        named.next().and_then(|one| one["count"].as_i64()).unwrap_or(default)
    };
    let all = count("/spec/podSets", 1);
    let granted = assignment["count"].as_i64().unwrap_or(all);
    (granted, (all - count("/status/reclaimablePods", 0)).max(0))
}

/// What all Workloads of a ClusterQueue hold.
pub(super) fn used(world: &World, queue: &str) -> Usage {
    let mut usage = Usage::new();
    for workload in world.all(WORKLOADS) {
        if text(workload, "/status/admission/clusterQueue") == queue {
            for (cell, used) in held(workload) {
                *usage.entry(cell).or_default() += used;
            }
        }
    }
    usage
}

/// A cell of a ClusterQueue's quota: nominal, and borrowing limit if there is one.
pub(super) fn quota_cell(queue: &Value, flavor: &str, resource: &str) -> Option<(i64, Option<i64>)> {
    items(queue, "/spec/resourceGroups")
        .flat_map(|group| items(group, "/flavors"))
        .filter(|one| one["name"] == flavor)
        .flat_map(|one| items(one, "/resources"))
        .find(|one| one["name"] == resource)
        .map(|one| {
            (
                amount(resource, one.get("nominalQuota")).unwrap_or(0),
                amount(resource, one.get("borrowingLimit")),
            )
        })
}

pub(super) fn cohort_of(queue: &Value) -> &str {
    text(queue, "/spec/cohortName")
}

pub(super) fn became_true(write: &Write, kind: &str) -> bool {
    let before = write.old.as_deref().is_some_and(|old| holds(old, kind));
    let after = write.new.as_deref().is_some_and(|new| holds(new, kind));
    after && !before
}

/// At the moment of reservation, a ClusterQueue is within nominal plus borrowing, and its cohort within what it owns.
pub(super) fn within_limits(world: &World, write: &Write) -> Result<(), String> {
    if write.resource != WORKLOADS || !became_true(write, "QuotaReserved") {
        return Ok(());
    }
    let name = text(write.object(), "/status/admission/clusterQueue");
    let versions: Vec<_> = world.believable(CLUSTER_QUEUES, "", name).collect();
    let Some(queue) = versions.first() else {
        return Err(format!(
            "{:?} reserved quota in ClusterQueue {name:?}, which does not exist",
            write.key()
        ));
    };
    let usage = used(world, name);
    for ((flavor, resource), asked) in held(write.object()) {
        if asked == 0 {
            continue;
        }
        let used = usage.get(&(flavor.clone(), resource.clone())).copied().unwrap_or(0);
        let most = versions.iter().filter_map(|version| {
            let (nominal, limit) = quota_cell(version, &flavor, &resource)?;
            let borrowable = if cohort_of(version).is_empty() { 0 } else { limit.unwrap_or(i64::MAX) };
            Some(nominal.saturating_add(borrowable))
        });
        let most = most.max().unwrap_or(0);
        if used > most {
            return Err(format!(
                "{:?}: {name} now holds {used} {resource} of {flavor}, at most {most} allowed",
                write.key()
            ));
        }
        within_cohort(world, cohort_of(queue), &flavor, &resource)?;
    }
    Ok(())
}

fn within_cohort(world: &World, cohort: &str, flavor: &str, resource: &str) -> Result<(), String> {
    if cohort.is_empty() {
        return Ok(());
    }
    let (mut total, mut owned) = (0i64, 0i64);
    for queue in world.all(CLUSTER_QUEUES).filter(|queue| cohort_of(queue) == cohort) {
        let name = text(queue, "/metadata/name");
        let used = used(world, name).get(&(flavor.to_owned(), resource.to_owned())).copied().unwrap_or(0);
        let nominal = world
            .believable(CLUSTER_QUEUES, "", name)
            .filter_map(|version| Some(quota_cell(version, flavor, resource)?.0))
            .max()
            .unwrap_or(0);
        total += used;
        // A queue whose quota was lowered under it holds what the others may not take as well.
        owned += nominal;
    }
    if total > owned {
        return Err(format!("cohort {cohort} now holds {total} {resource} of {flavor} and owns {owned}"));
    }
    Ok(())
}

/// Admission and conditions say the same.
pub(super) fn conditions_agree(_: &World, write: &Write) -> Result<(), String> {
    let Some(workload) = write.new.as_deref().filter(|_| write.resource == WORKLOADS) else { return Ok(()) };
    let reserved = holds(workload, "QuotaReserved");
    let assigned = at(workload, "/status/admission").is_some_and(|admission| !admission.is_null());
    if reserved != assigned {
        return Err(format!(
            "{:?}: QuotaReserved is {reserved}, status.admission is set: {assigned}",
            write.key()
        ));
    }
    if holds(workload, "Admitted") && !reserved {
        return Err(format!("{:?}: Admitted without QuotaReserved", write.key()));
    }
    Ok(())
}

/// A preempted workload was a legal victim.
pub(super) fn victims_allowed(world: &World, write: &Write) -> Result<(), String> {
    if write.resource != WORKLOADS || !became_true(write, "Preempted") {
        return Ok(());
    }
    let victim = write.object();
    let reason = condition(victim, "Preempted").map(|one| text(one, "/reason")).unwrap_or_default();
    let name = text(victim, "/status/admission/clusterQueue");
    let Some(queue) = world.get(CLUSTER_QUEUES, "", name) else { return Ok(()) };
    let allowed = match reason {
        "InClusterQueue" => within_queue_allowed(world, queue, victim),
        "InCohortReclamation" => reclaim_allowed(world, queue, victim),
        _ => true,
    };
    if allowed {
        Ok(())
    } else {
        Err(format!("{:?} was preempted ({reason}) against the policy", write.key()))
    }
}

pub(super) fn priority(workload: &Value) -> i64 {
    at(workload, "/spec/priority").and_then(Value::as_i64).unwrap_or(0)
}

/// Pending workloads of a ClusterQueue, those that have just been admitted included.
fn contenders<'a>(world: &'a World, queue: &'a str) -> impl Iterator<Item = &'a Value> {
    world.all(WORKLOADS).map(|workload| &**workload).filter(move |workload| {
        let local = text(workload, "/spec/queueName");
        let namespace = text(workload, "/metadata/namespace");
        world
            .get(LOCAL_QUEUES, namespace, local)
            .is_some_and(|local| text(local, "/spec/clusterQueue") == queue)
    })
}

fn within_queue_allowed(world: &World, queue: &Value, victim: &Value) -> bool {
    let name = text(queue, "/metadata/name");
    world.believable(CLUSTER_QUEUES, "", name).any(|queue| {
        let policy = text(queue, "/spec/preemption/withinClusterQueue");
        contenders(world, name).any(|one| match policy {
            "LowerPriority" => priority(one) > priority(victim),
            "LowerOrNewerEqualPriority" => {
                priority(one) >= priority(victim) && one["metadata"] != victim["metadata"]
            }
            _ => false,
        })
    })
}

fn reclaim_allowed(world: &World, queue: &Value, victim: &Value) -> bool {
    let cohort = cohort_of(queue);
    world.all(CLUSTER_QUEUES).filter(|one| cohort_of(one) == cohort).any(|reclaimer| {
        let name = text(reclaimer, "/metadata/name");
        world.believable(CLUSTER_QUEUES, "", name).any(|reclaimer| {
            match text(reclaimer, "/spec/preemption/reclaimWithinCohort") {
                "Any" => true,
                "LowerPriority" => contenders(world, name).any(|one| priority(one) > priority(victim)),
                _ => false,
            }
        })
    })
}

/// The condition that the fuzzer itself puts on Workloads, as an admission check's controller would.
pub const FOREIGN_CONDITION: &str = "fuzz.trireme.dev/Foreign";

/// Whoever writes a status keeps the conditions that others wrote.
pub(super) fn foreign_conditions_kept(_: &World, write: &Write) -> Result<(), String> {
    let (Some(old), Some(new)) = (write.old.as_deref(), write.new.as_deref()) else { return Ok(()) };
    if write.resource == WORKLOADS && holds(old, FOREIGN_CONDITION) && !holds(new, FOREIGN_CONDITION) {
        return Err(format!("{:?}: {} dropped the condition {FOREIGN_CONDITION}", write.key(), write.writer));
    }
    Ok(())
}

/// Finished is for ever.
pub(super) fn finished_stays_finished(_: &World, write: &Write) -> Result<(), String> {
    if write.resource == WORKLOADS
        && write.old.as_deref().is_some_and(|old| holds(old, "Finished"))
        && became_true(write, "Admitted")
    {
        return Err(format!("{:?} was finished and is admitted again", write.key()));
    }
    Ok(())
}

/// Nothing is given quota of a ClusterQueue that the program must have seen to be stopped.
pub(super) fn stopped_admits_nothing(world: &World, write: &Write) -> Result<(), String> {
    if write.resource != WORKLOADS || !became_true(write, "QuotaReserved") {
        return Ok(());
    }
    let name = text(write.object(), "/status/admission/clusterQueue");
    let is_open = |queue: &Value| matches!(text(queue, "/spec/stopPolicy"), "" | "None");
    let mut versions = world.believable(CLUSTER_QUEUES, "", name).peekable();
    if versions.peek().is_some() && !versions.any(|version| is_open(version)) {
        return Err(format!("{:?} reserved quota in ClusterQueue {name}, which is stopped", write.key()));
    }
    Ok(())
}
