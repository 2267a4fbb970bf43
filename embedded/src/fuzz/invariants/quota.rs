//! Layer 1: quota, conditions, preemption.

use std::collections::{BTreeMap, BTreeSet};

use model::ResourceList;
use serde_json::Value;

use super::slices::{is_succeeded, predecessor};
use super::tree::{Cell, Tree};
use crate::fuzz::world::{
    CLUSTER_QUEUES, LOCAL_QUEUES, Shape, WORKLOADS, World, Write, amount, at, condition, holds, items, text,
};

/// Amounts by flavor and resource.
pub(super) type Usage = BTreeMap<Cell, i64>;

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

/// What all Workloads of a ClusterQueue hold. Of a slice and the one that it replaces the pods are the same.
pub(super) fn used(world: &World, queue: &str) -> Usage {
    used_by(world, queue, &|_| true)
}

/// What those of them hold that are meant.
pub(super) fn used_by(world: &World, queue: &str, is_meant: &dyn Fn(&Value) -> bool) -> Usage {
    let mut usage = Usage::new();
    for workload in world.all(WORKLOADS).filter(|one| is_meant(one)) {
        if text(workload, "/status/admission/clusterQueue") == queue && !is_succeeded(world, workload) {
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

/// Whoever is given quota is within what the tree of queues and cohorts allows, at every level that it reaches.
pub(super) fn within_limits(world: &World, write: &Write) -> Result<(), String> {
    if write.resource != WORKLOADS || !became_true(write, "QuotaReserved") {
        return Ok(());
    }
    let name = text(write.object(), "/status/admission/clusterQueue");
    // A slice that adds nothing to the one it replaces is let in, however little there is.
    let before = predecessor(world, write.object()).map(held).unwrap_or_default();
    let adds = |(cell, asked): &(Cell, i64)| *asked > before.get(cell).copied().unwrap_or(0);
    let cells: Vec<Cell> = held(write.object()).into_iter().filter(adds).map(|(cell, _)| cell).collect();
    let allowed = |tree: &Tree| {
        cells.iter().try_for_each(|cell| match tree.offers(name, cell) {
            true => tree.within(name, cell),
            false => Err(format!("{name:?} has no quota of {cell:?}")),
        })
    };
    let mut verdicts = world.believable_shapes().map(|shape| allowed(&Tree::of(&shape, world)));
    // What is wrong with the tree as it is, unless one that was believable allows it.
    match verdicts.next() {
        Some(Err(what)) if !verdicts.any(|one| one.is_ok()) => Err(format!("{:?}: {what}", write.key())),
        _ => Ok(()),
    }
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

/// The uid of the workload that a victim makes room for, as it tells.
pub(super) fn beneficiary(victim: &Value) -> Option<&str> {
    let message = text(condition(victim, "Preempted")?, "/message");
    message.split("(UID: ").nth(1)?.split([',', ')']).next()
}

/// A preempted workload was a legal victim of the one it makes room for.
pub(super) fn victims_allowed(world: &World, write: &Write) -> Result<(), String> {
    if write.resource != WORKLOADS || !became_true(write, "Preempted") {
        return Ok(());
    }
    let victim = write.object();
    let reason = condition(victim, "Preempted").map(|one| text(one, "/reason")).unwrap_or_default();
    let name = text(victim, "/status/admission/clusterQueue");
    let wanted = beneficiary(victim).unwrap_or_default();
    let relatives = |shape: &Shape| {
        let tree = Tree::of(shape, world);
        tree.relatives(name).map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let shapes: Vec<(BTreeSet<String>, Shape)> =
        world.believable_shapes().map(|shape| (relatives(&shape), shape)).collect();
    let (namespace, called) = write.key();
    let allowed = world.versions_of(WORKLOADS, wanted).any(|preemptor| {
        queues_of(world, preemptor).any(|waits_in| {
            let known = shapes
                .iter()
                .flat_map(|(relatives, shape)| shape.queues.iter().map(move |queue| (relatives, queue)));
            let queues = known.filter(|(relatives, queue)| {
                let of = text(queue, "/metadata/name");
                of == waits_in && if reason == "InClusterQueue" { of == name } else { relatives.contains(of) }
            });
            queues.into_iter().any(|(_, queue)| {
                let mut versions = world.believable(WORKLOADS, &namespace, &called);
                versions.any(|victim| may_displace(reason, queue, preemptor, victim))
            })
        })
    });
    if !allowed && world.once_known(WORKLOADS, wanted) {
        return Err(format!("{:?} was preempted ({reason}) for {wanted} against the policy", write.key()));
    }
    Ok(())
}

/// The ClusterQueues in which a workload waits or waited of late.
fn queues_of<'a>(world: &'a World, workload: &'a Value) -> impl Iterator<Item = &'a str> {
    let (namespace, local) = (text(workload, "/metadata/namespace"), text(workload, "/spec/queueName"));
    world.believable(LOCAL_QUEUES, namespace, local).map(|local| text(local, "/spec/clusterQueue"))
}

/// Whether the policy of its queue lets one workload displace another for this reason.
pub(super) fn may_displace(reason: &str, queue: &Value, preemptor: &Value, victim: &Value) -> bool {
    let higher = priority(preemptor) > priority(victim);
    let policy = |field: &str| at(queue, "/spec/preemption").map_or("", |rules| text(rules, field));
    match reason {
        "InClusterQueue" => match policy("/withinClusterQueue") {
            "LowerPriority" => higher,
            "LowerOrNewerEqualPriority" => priority(preemptor) >= priority(victim),
            _ => false,
        },
        "InCohortReclamation" | "InCohortFairSharing" => match policy("/reclaimWithinCohort") {
            "Any" => true,
            "LowerPriority" => higher,
            _ => false,
        },
        "InCohortReclaimWhileBorrowing" => {
            let rule = at(queue, "/spec/preemption/borrowWithinCohort");
            let threshold = rule.and_then(|rule| rule["maxPriorityThreshold"].as_i64()).unwrap_or(i64::MAX);
            rule.is_some_and(|rule| rule["policy"] == "LowerPriority")
                && higher
                && priority(victim) <= threshold
        }
        _ => false,
    }
}

/// Whether a queue uses more than its own of any of these resources, or did of late.
pub(super) fn borrows(world: &World, queue: &str, asked: &ResourceList) -> bool {
    let mut most = Usage::new();
    for key in world.keys_of_late(WORKLOADS) {
        let mut held_by_one = Usage::new();
        for version in world.believable(WORKLOADS, &key.0, &key.1) {
            if text(version, "/status/admission/clusterQueue") == queue {
                for (cell, used) in held(version) {
                    let most = held_by_one.entry(cell).or_default();
                    *most = used.max(*most);
                }
            }
        }
        for (cell, used) in held_by_one {
            *most.entry(cell).or_default() += used;
        }
    }
    world.believable_shapes().any(|shape| {
        let tree = Tree::of(&shape, world);
        let is_asked = |cell: &Cell| asked.keys().any(|resource| resource.as_str() == cell.1);
        most.iter().any(|(cell, used)| is_asked(cell) && *used > tree.nominal(queue, cell))
    })
}

pub(super) fn priority(workload: &Value) -> i64 {
    at(workload, "/spec/priority").and_then(Value::as_i64).unwrap_or(0)
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

/// The status of a queue tells of no amount and no number below nothing.
pub(super) fn told_from_nothing_up(_: &World, write: &Write) -> Result<(), String> {
    let is_queue = matches!(write.resource.as_str(), CLUSTER_QUEUES | LOCAL_QUEUES);
    let Some(queue) = write.new.as_deref().filter(|_| is_queue) else { return Ok(()) };
    let is_below = |field: &&str| queue["status"][*field].as_i64().is_some_and(|count| count < 0);
    let mut counts = ["pendingWorkloads", "reservingWorkloads", "admittedWorkloads"].into_iter();
    if let Some(field) = counts.find(is_below) {
        return Err(format!("{:?} tells of {} {field}", write.key(), queue["status"][field]));
    }
    let lists = ["/status/flavorsReservation", "/status/flavorsUsage"];
    let mut rows = lists.iter().flat_map(|list| items(queue, list)).flat_map(|one| items(one, "/resources"));
    let is_negative = |row: &&Value| {
        let told = |field: &str| amount(text(row, "/name"), row.get(field)).unwrap_or(0);
        told("total") < 0 || told("borrowed") < 0
    };
    match rows.find(is_negative) {
        Some(row) => Err(format!("{:?} tells of less than nothing: {row}", write.key())),
        None => Ok(()),
    }
}
