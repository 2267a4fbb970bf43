//! What would fit does not wait: a slow second opinion for the end of an episode.
//!
//! It is simple because it is content with less: it names a workload only where no rule of the queue could hold it back. For
//! each group of resources there must be one flavor with room for all that all pods ask for; whoever goes through flavors one by
//! one cannot fail to find that one.

use std::collections::BTreeMap;

use serde_json::Value;

use super::flavors::{group_of, labels_of, suits};
use super::liveness::{self, Activity, pending, queue_of};
use super::quota::held;
use super::slices::{needs, predecessor};
use super::topology;
use super::tree::Tree;
use crate::fuzz::world::{
    CHECKS, FLAVORS, LOCAL_QUEUES, TOPOLOGIES, WORKLOADS, World, at, holds, items, key, text, uid,
};

/// Nothing waits that would fit.
pub(super) fn what_fits_is_admitted(world: &World, _: &Activity) -> Result<(), String> {
    let tree = Tree::now(world);
    for workload in pending(world) {
        let Some(queue) = queue_of(world, workload) else { continue };
        if !is_open(world, &tree, queue, workload) || is_contended(world, &tree, queue, workload) {
            continue;
        }
        if let Some(flavors) = fitting(world, &tree, queue, workload) {
            return Err(format!("{:?} waits, yet would fit into {flavors:?}", key(workload)));
        }
    }
    Ok(())
}

/// Whether the queue admits at all, and this workload now.
fn is_open(world: &World, tree: &Tree, queue: &Value, workload: &Value) -> bool {
    let local =
        world.get(LOCAL_QUEUES, text(workload, "/metadata/namespace"), text(workload, "/spec/queueName"));
    halt(world, tree, queue).is_none()
        && local.is_some_and(|local| runs(local))
        && !liveness::is_put_off(world, workload)
}

fn runs(queue: &Value) -> bool {
    matches!(text(queue, "/spec/stopPolicy"), "" | "None")
        && at(queue, "/metadata/deletionTimestamp").is_none()
}

/// Why a ClusterQueue admits nothing, if it does not.
pub(super) fn halt(world: &World, tree: &Tree, queue: &Value) -> Option<&'static str> {
    let flavors_exist =
        items(queue, "/spec/resourceGroups").flat_map(|group| items(group, "/flavors")).all(|one| {
            world.get(FLAVORS, "", text(one, "/name")).is_some_and(|flavor| {
                let topology = text(flavor, "/spec/topologyName");
                topology.is_empty() || world.get(TOPOLOGIES, "", topology).is_some()
            })
        });
    let checks_work = items(queue, "/spec/admissionChecksStrategy/admissionChecks")
        .all(|rule| world.get(CHECKS, "", text(rule, "/name")).is_some_and(|check| holds(check, "Active")));
    // A slice that shrinks needs no room: that there is none below cohorts in a circle does not keep it out of the count.
    let has_a_root = tree.root(text(queue, "/metadata/name")).is_some();
    let hindrances = [
        (!runs(queue), "it is stopped or goes"),
        (!has_a_root, "it is below cohorts in a circle"),
        (!flavors_exist, "a flavor or its topology is missing"),
        (!checks_work, "a check is missing or asleep"),
    ];
    hindrances.into_iter().find(|(hinders, _)| *hinders).map(|(_, why)| why)
}

/// Whether somebody else may have a claim: the head of a StrictFIFO queue keeps room that it cannot use yet, whose victims
/// leave keeps theirs, and a queue that would rather preempt than look at the next flavor stays with the first. Places are
/// kept from everybody, whatever the cohort.
fn is_contended(world: &World, tree: &Tree, queue: &Value, workload: &Value) -> bool {
    let relatives: Vec<&str> = tree.relatives(text(queue, "/metadata/name")).collect();
    let wants_places = items(workload, "/spec/podSets").any(asks);
    let related = |name: &str| wants_places || relatives.contains(&name);
    let strict_head = pending(world).any(|other| {
        uid(other) != uid(workload)
            && queue_of(world, other).is_some_and(|of| {
                related(text(of, "/metadata/name")) && text(of, "/spec/queueingStrategy") == "StrictFIFO"
            })
    });
    let leaving = world.all(WORKLOADS).any(|one| {
        related(text(one, "/status/admission/clusterQueue")) && holds(one, "Evicted") && !held(one).is_empty()
    });
    strict_head || leaving || text(queue, "/spec/flavorFungibility/whenCanPreempt") == "MayStopSearch"
}

/// The flavor of each group that has room for everything, if every group has one.
fn fitting(world: &World, tree: &Tree, queue: &Value, workload: &Value) -> Option<Vec<String>> {
    let name = text(queue, "/metadata/name");
    let before = predecessor(world, workload).map(held).unwrap_or_default();
    let mut chosen = Vec::new();
    for (group, asked) in by_group(world, queue, workload)? {
        let group = items(queue, "/spec/resourceGroups").nth(group)?;
        let labels = labels_of(world, group);
        let fits = |flavor: &&str| {
            let Some(object) = world.get(FLAVORS, "", flavor) else { return false };
            // A slice adds to what the one that it replaces has.
            let adds = before.keys().all(|(has, resource)| has == flavor || !asked.contains_key(resource));
            adds && has_places(world, object, workload)
                && items(workload, "/spec/podSets").all(|set| suits(&set["template"], object, &labels))
                && asked.iter().all(|(resource, amount)| {
                    let cell = ((*flavor).to_owned(), resource.clone());
                    tree.offers(name, &cell) && tree.room(name, &cell) >= *amount
                })
        };
        let flavor = items(group, "/flavors").map(|one| text(one, "/name")).find(fits)?;
        chosen.push(flavor.to_owned());
    }
    Some(chosen)
}

/// Whether the nodes of a flavor have places for pods that ask for them. Pods that do not have flavors without a topology,
/// where there are any: what they do elsewhere is not judged here.
fn has_places(world: &World, flavor: &Value, workload: &Value) -> bool {
    let placed = !text(flavor, "/spec/topologyName").is_empty();
    match items(workload, "/spec/podSets").any(asks) {
        true => placed && topology::has_places(world, flavor, workload) == Some(true),
        false => !placed,
    }
}

/// What all pods together ask for, by the position of the group that covers it; of a slice that replaces another the difference.
/// None where somebody asks for what no group covers.
pub(super) fn by_group(
    world: &World,
    queue: &Value,
    workload: &Value,
) -> Option<BTreeMap<usize, BTreeMap<String, i64>>> {
    let needed = needs(world, workload)?;
    let mut asked: BTreeMap<usize, BTreeMap<String, i64>> = BTreeMap::new();
    for (resource, _) in liveness::asks(workload)?.iter().filter(|(_, amount)| **amount > 0) {
        let group = group_of(queue, resource.as_str())?;
        let index = items(queue, "/spec/resourceGroups").position(|one| one == group)?;
        let amount = needed.get(resource).copied().unwrap_or(0);
        asked.entry(index).or_default().insert(resource.as_str().to_owned(), amount);
    }
    Some(asked)
}

/// Whether a pod set asks for places.
fn asks(set: &Value) -> bool {
    let wishes = ["required", "preferred", "unconstrained"];
    set.get("topologyRequest").is_some_and(|request| wishes.iter().any(|wish| request.get(*wish).is_some()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::slices::tests::{HELD, slice};
    use super::*;
    use crate::fuzz::world::{CLUSTER_QUEUES, COHORTS};

    const GPU: &str = "nvidia.com/gpu";

    /// Seed 720628.
    #[test]
    fn nothing_fits_below_cohorts_in_a_circle_not_even_what_shrinks() {
        for (above_the_other, is_blamed) in [("", true), ("one", false)] {
            let resources = json!([{ "name": GPU, "nominalQuota": 4 }]);
            let group =
                json!({ "coveredResources": [GPU], "flavors": [{ "name": "gpu", "resources": resources }] });
            let queue = json!({
                "metadata": { "name": "q", "uid": "q" },
                "spec": { "cohortName": "one", "resourceGroups": [group] },
            });
            let cohort = |name: &str, parent: &str| json!({ "metadata": { "name": name }, "spec": { "parentName": parent } });
            let world = World::holding([
                (FLAVORS, json!({ "metadata": { "name": "gpu" } })),
                (
                    LOCAL_QUEUES,
                    json!({ "metadata": { "name": "l", "namespace": "n" }, "spec": { "clusterQueue": "q" } }),
                ),
                (CLUSTER_QUEUES, queue),
                (COHORTS, cohort("one", "other")),
                (COHORTS, cohort("other", above_the_other)),
                (WORKLOADS, slice("old", 4, "", HELD)),
                (WORKLOADS, slice("new", 2, "old", &[])),
            ]);
            let judged = what_fits_is_admitted(&world, &Activity::default());
            assert_eq!(judged.is_err(), is_blamed, "{above_the_other:?}: {judged:?}");
        }
    }
}
