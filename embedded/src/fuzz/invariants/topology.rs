//! Placement by topology: nodes are not promised twice, and pods run where they were promised to.

use std::collections::BTreeMap;

use crds::api::kueue::v1beta2::TopologyAssignment;
use crds::conversion::topology::unpack;
use model::node::{Taint, first_untolerated};
use model::{ResourceList, resources};
use serde_json::Value;

use super::flavors::tolerations;
use super::nodes::{allocatable, bound_at, requests};
use super::quota::held;
use super::running::is_bind;
use crate::fuzz::world::{GRACE, TOPOLOGIES, WORKLOADS, World, Write, at, holds, items, key, text, uid};

const HOST: &str = "kubernetes.io/hostname";

fn read(assignment: &Value) -> Option<TopologyAssignment> {
    serde_json::from_value(assignment.get("topologyAssignment")?.clone()).ok()
}

/// How many pods of a set start together: those that were granted, or those that were given places. Pods that slices do not
/// divide get none, and start when others have ended.
pub(super) fn start_together(assignment: &Value) -> Option<i64> {
    let granted = assignment["count"].as_i64()?;
    let places = read(assignment).and_then(|read| unpack(&read).ok());
    let pods = places.map(|places| places.domains.iter().map(|domain| i64::from(domain.count)).sum::<i64>());
    Some(pods.map_or(granted, |pods| pods.min(granted)))
}

/// The nodes that an assignment names, with the number of pods each takes; none where it ends above the nodes.
fn hosts(assignment: &Value) -> BTreeMap<String, i64> {
    let read = read(assignment).filter(|one| one.levels.last().is_some_and(|level| level == HOST));
    let Some(read) = read else { return BTreeMap::new() };
    let mut hosts = BTreeMap::new();
    for domain in unpack(&read).map(|one| one.domains).unwrap_or_default() {
        *hosts.entry(domain.values.last().cloned().unwrap_or_default()).or_default() +=
            i64::from(domain.count);
    }
    hosts
}

fn assignments(workload: &Value) -> impl Iterator<Item = &Value> {
    items(workload, "/status/admission/podSetAssignments")
}

/// What one pod of a set asks for.
fn each(workload: &Value, set: &Value) -> ResourceList {
    let set = items(workload, "/spec/podSets").find(|one| one["name"] == *set);
    set.and_then(|set| set.get("template")).map(requests).unwrap_or_default()
}

/// How the places of pods that have ended are counted: nobody says which they had, and Kueue keeps all until the workload
/// ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// On every node alike, as if they had been there.
    Free,
    /// As if they still ran.
    Kept,
}

/// What a node has been promised to workloads that are placed by topology.
fn promised(world: &World, node: &str, places: Ended) -> ResourceList {
    let mut sum = ResourceList::new();
    for workload in world.all(WORKLOADS).filter(|one| !held(one).is_empty()) {
        for assignment in assignments(workload) {
            let ended: i64 = items(workload, "/status/reclaimablePods")
                .filter(|one| places == Ended::Free && one["name"] == assignment["name"])
                .filter_map(|one| one["count"].as_i64())
                .sum();
            let pods = hosts(assignment).get(node).copied().unwrap_or(0) - ended;
            if pods > 0 {
                let asked = resources::checked_scale(&each(workload, &assignment["name"]), pods);
                // What overflows is more than any node has, and is found so at the next level up.
                let _ = resources::checked_add(&mut sum, &asked.unwrap_or_default());
            }
        }
    }
    sum
}

/// Whether a pod was made to be placed by topology: its Workload counts for it, and no longer once that has left.
fn is_made_to_be_placed(pod: &Value) -> bool {
    let annotations = at(pod, "/metadata/annotations").and_then(Value::as_object);
    annotations
        .into_iter()
        .flatten()
        .any(|(name, _)| name.starts_with("kueue.x-k8s.io/podset-") && name.ends_with("-topology"))
}

/// What pods that were placed by others use of a node, those aside that nobody could know yet.
fn used_by_others(world: &World, node: &str, known_before: i64) -> ResourceList {
    let mut sum = ResourceList::new();
    for pod in world.pods_on(node) {
        if !is_made_to_be_placed(pod) && bound_at(pod) < known_before {
            let _ = resources::checked_add(&mut sum, &requests(pod));
        }
    }
    sum
}

/// A node that is promised to somebody has what all ask for to whom it is promised, beside what runs there anyway.
pub(super) fn promised_once(world: &World, write: &Write) -> Result<(), String> {
    if write.resource != WORKLOADS || !write.writer.starts_with("admission-controller") {
        return Ok(());
    }
    let workload = write.object();
    for (index, assignment) in assignments(workload).enumerate() {
        let before = write.old.as_deref().and_then(|old| assignments(old).nth(index));
        let before = before.map(hosts).unwrap_or_default();
        let asked = each(workload, &assignment["name"]);
        for (node, pods) in hosts(assignment) {
            if before.get(&node).is_some_and(|before| *before >= pods) {
                continue;
            }
            let mut most = ResourceList::new();
            for version in world.believable("nodes", "", &node) {
                resources::raise_to(&mut most, &allocatable(version));
            }
            let mut sum = promised(world, &node, Ended::Free);
            let others = used_by_others(world, &node, world.now - GRACE);
            let _ = resources::checked_add(&mut sum, &others);
            let mut missing = resources::shortfall(&sum, &most);
            missing.retain(|resource, _| asked.get(resource).is_some_and(|amount| *amount > 0));
            if !missing.is_empty() {
                return Err(format!("{:?} is promised {node}, which lacks {missing:?}", write.key()));
            }
        }
    }
    Ok(())
}

/// Pods of a workload that is placed by topology are bound to its nodes, and to each no more than it takes.
pub(super) fn bound_as_promised(world: &World, write: &Write) -> Result<(), String> {
    if !is_bind(write) || !write.writer.starts_with("gang-scheduler") {
        return Ok(());
    }
    let pod = write.object();
    let Some(workload) = world.workload_of_pod(pod) else { return Ok(()) };
    let set = text(pod, "/metadata/labels/kueue.x-k8s.io~1podset");
    let node = text(pod, "/spec/nodeName");
    let (namespace, name) = key(workload);
    let mut most: Option<i64> = None;
    for version in world.believable(WORKLOADS, &namespace, &name) {
        for assignment in assignments(version).filter(|one| one["name"] == set) {
            let hosts = hosts(assignment);
            // Admitted once with places and once without: where it runs is the scheduler's choice.
            if hosts.is_empty() {
                return Ok(());
            }
            most = most.max(Some(hosts.get(node).copied().unwrap_or(0)));
        }
    }
    let Some(most) = most else { return Ok(()) };
    let there = world.pods_on(node).filter(|other| {
        at(other, "/metadata/deletionTimestamp").is_none()
            && text(other, "/metadata/labels/kueue.x-k8s.io~1podset") == set
            && world.workload_of_pod(other).is_some_and(|one| uid(one) == uid(workload))
    });
    let there = i64::try_from(there.count()).unwrap_or(i64::MAX);
    if there > most {
        return Err(format!("{:?} was bound to {node} as pod {there} of {most}", write.key()));
    }
    Ok(())
}

/// Whether there are nodes of a flavor with a topology for all pods of a workload that has one pod set and no slices: in one
/// domain, where it requires that. None where it takes more than counting to tell.
pub(super) fn has_places(world: &World, flavor: &Value, workload: &Value) -> Option<bool> {
    let mut sets = items(workload, "/spec/podSets");
    let (set, None) = (sets.next()?, sets.next()) else { return None };
    let request = set.get("topologyRequest")?;
    let plain = ["podSetSliceRequiredTopology", "podSetGroupName", "podsetSliceRequiredTopologyConstraints"];
    if plain.iter().any(|field| request.get(*field).is_some()) {
        return None;
    }
    let topology = world.get(TOPOLOGIES, "", text(flavor, "/spec/topologyName"))?;
    let levels: Vec<&str> = items(topology, "/spec/levels").map(|level| text(level, "/nodeLabel")).collect();
    let depth = match request.get("required").and_then(Value::as_str) {
        Some(level) => levels.iter().position(|one| *one == level)? + 1,
        None => 0,
    };
    let template = set.get("template")?;
    let asked = requests(template);
    let mut domains: BTreeMap<Vec<&str>, i64> = BTreeMap::new();
    for node in world.all("nodes").filter(|node| takes(node, flavor, template, &levels)) {
        let labels = levels[..depth].iter().map(|level| label(node, level).unwrap_or_default()).collect();
        *domains.entry(labels).or_default() += pods_for(world, node, &asked);
    }
    let count = set["count"].as_i64().unwrap_or(1);
    Some(domains.values().any(|pods| *pods >= count))
}

fn label<'a>(node: &'a Value, name: &str) -> Option<&'a str> {
    at(node, "/metadata/labels")?.get(name)?.as_str()
}

/// Whether a node belongs to a flavor and to every level, and lets pods of this template in.
fn takes(node: &Value, flavor: &Value, template: &Value, levels: &[&str]) -> bool {
    let has = |wanted: Option<&Value>| {
        let mut wanted = wanted.and_then(Value::as_object).into_iter().flatten();
        wanted.all(|(name, value)| label(node, name) == value.as_str())
    };
    let mut tolerated = tolerations(at(template, "/spec/tolerations"));
    tolerated.extend(tolerations(at(flavor, "/spec/tolerations")));
    let taints: Vec<Taint> = at(node, "/spec/taints")
        .and_then(|list| serde_json::from_value(list.clone()).ok())
        .unwrap_or_default();
    holds(node, "Ready")
        && at(node, "/spec/unschedulable") != Some(&Value::Bool(true))
        && levels.iter().all(|level| label(node, level).is_some())
        && has(at(flavor, "/spec/nodeLabels"))
        && has(at(template, "/spec/nodeSelector"))
        && first_untolerated(&taints, &tolerated).is_none()
}

/// How many pods a node has room for.
fn pods_for(world: &World, node: &Value, asked: &ResourceList) -> i64 {
    let name = text(node, "/metadata/name");
    let mut taken = used_by_others(world, name, i64::MAX);
    let _ = resources::checked_add(&mut taken, &promised(world, name, Ended::Kept));
    // Pods that still run where nothing is promised to them any more.
    let strays = world.pods_on(name).filter(|pod| {
        let workload = world.workload_of_pod(pod);
        workload.is_some_and(|one| held(one).is_empty()) && is_made_to_be_placed(pod)
    });
    for pod in strays {
        let _ = resources::checked_add(&mut taken, &requests(pod));
    }
    let has = allocatable(node);
    let room = |(resource, amount): (&model::ResourceName, &i64)| {
        let free = has.get(resource).unwrap_or(&0) - taken.get(resource).unwrap_or(&0);
        free.max(0) / amount
    };
    asked.iter().filter(|(_, amount)| **amount > 0).map(room).min().unwrap_or(0)
}
