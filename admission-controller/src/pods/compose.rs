//! The Workload of a pod, or of a group of pods.

use std::collections::BTreeMap;

use crds::names::kueue;
use crds::validation::Gates;
use serde_json::{Value, json};

use super::plan::partition;
use super::{Group, Member, PodsKey};
use crate::compose::{self, Priorities};
use crate::jobs::{JobObject, Ranks};
use crate::names::workload_name;
use crate::reconcile::Job;

/// The API server's bound on `podSets` of a Workload.
const MAX_ROLES: usize = 18;

/// The Workload of pods, ready to be created.
///
/// # Errors
/// Why they cannot be described, in words for their owner.
pub fn compose(group: &Group<'_>, job: &Job, priorities: &Priorities, gates: Gates) -> Result<Value, String> {
    let first = group.first();
    let metadata = &first.metadata;
    let (pod_name, uid) = (metadata.name.as_deref().unwrap_or_default(), first.uid());
    let (name, pod_sets, owners) = match &group.key {
        PodsKey::One(_) => {
            let mut owner = owner(first);
            (owner["controller"], owner["blockOwnerDeletion"]) = (json!(true), json!(true));
            let set = pod_set(kueue::DEFAULT_PODSET, 1, first, gates)?;
            (workload_name("", "Pod", pod_name, uid), vec![set], vec![owner])
        }
        PodsKey::Group(known) => {
            let members = members(group)?;
            let is_cut = partition(&group.pods).0.len() > members.len();
            // Those that have ended belong to it, too; of a group with too many only whom it is made of.
            let owners = if is_cut { members } else { group.pods.clone() };
            let owners = owners.into_iter().map(owner).collect();
            (known.name.clone(), roles(group, gates)?, owners)
        }
    };
    let mut workload = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": name,
            "namespace": metadata.namespace,
            "finalizers": [kueue::FINALIZER_RESOURCE_IN_USE],
            "ownerReferences": owners,
        },
        "spec": compose::spec(job, pod_sets, priorities)?,
    });
    if group.is_group() {
        workload["metadata"]["annotations"] = json!({ kueue::IS_GROUP_WORKLOAD: "true" });
    } else {
        workload["metadata"]["labels"] = compose::job_label(uid);
    }
    compose::take_annotations(&mut workload, metadata, gates);
    Ok(workload)
}

/// The pods of a complete group, as many as it is to have.
fn members<'a>(group: &Group<'a>) -> Result<Vec<&'a JobObject>, String> {
    let total = group.total()?;
    let members = group.members();
    if !group.is_fast() && members.len() < total {
        return Err(format!("the group has fewer pods that can run than the {total} it is to have"));
    }
    agreed_total(group)?;
    Ok(members)
}

/// How many pods a group is to have, where all of them say the same, and name one queue. Until then nobody knows which are too many.
pub(super) fn agreed_total(group: &Group<'_>) -> Result<usize, String> {
    let total = group.total()?;
    let first = group.first();
    let name = |pod: &JobObject| pod.metadata.name.clone().unwrap_or_default();
    for pod in group.pods.iter().filter(|pod| !pod.has_failed()) {
        let (one, other) = (name(first), name(pod));
        if pod.queue() != first.queue() {
            return Err(format!("pods {one} and {other} of the group name different queues"));
        }
        if super::group::total(pod)? != total {
            let annotation = kueue::POD_GROUP_TOTAL_COUNT;
            return Err(format!("pods {one} and {other} of the group differ in the annotation {annotation}"));
        }
        check_rank(pod, total)?;
    }
    Ok(total)
}

fn check_rank(pod: &JobObject, total: usize) -> Result<(), String> {
    const LABEL: &str = kueue::POD_GROUP_POD_INDEX;
    let Some(rank) = pod.label(LABEL) else { return Ok(()) };
    match rank.parse::<usize>() {
        Ok(rank) if rank < total => Ok(()),
        _ => Err(format!("label {LABEL} is {rank:?}; it must be a whole number below {total}")),
    }
}

/// One pod set for each role.
fn roles(group: &Group<'_>, gates: Gates) -> Result<Vec<Value>, String> {
    let roles = group.roles();
    if roles.is_empty() {
        return Err("no pod of the group can run".to_owned());
    }
    if roles.len() > MAX_ROLES {
        return Err(format!(
            "the group has pods of more than {MAX_ROLES} shapes, which a Workload cannot hold"
        ));
    }
    roles.iter().map(|(role, (pod, count))| pod_set(role, *count, pod, gates)).collect()
}

fn pod_set(name: &str, count: usize, pod: &JobObject, gates: Gates) -> Result<Value, String> {
    let mut pod_set = json!({ "name": name, "count": count, "template": { "spec": pod.spec } });
    let none = BTreeMap::new();
    let ranks = Ranks { pod_index: Some(kueue::POD_GROUP_POD_INDEX), ..Ranks::default() };
    let annotations = pod.metadata.annotations.as_ref().unwrap_or(&none);
    compose::take_wish(&mut pod_set, annotations, &ranks, gates)?;
    Ok(pod_set)
}

/// A pod as an owner of its Workload: one of several, so none is its controller.
pub fn owner(pod: &JobObject) -> Value {
    json!({ "apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "uid": pod.uid() })
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    /// Pods in these phases that are to be so many, by name, and who owns their Workload.
    #[test]
    fn the_pods_of_a_group_own_its_workload_but_those_that_are_too_many() {
        for (phases, total, owners) in [
            (&["Pending", "Pending"][..], "2", &["p0", "p1"][..]),
            (&["Failed", "Pending"], "1", &["p0", "p1"]),
            (&["Failed", "Pending", "Pending"], "1", &["p1"]),
        ] {
            let pod = |(at, phase): (usize, &&str)| -> JobObject {
                let annotations = json!({ kueue::ROLE_HASH: "main", kueue::POD_GROUP_TOTAL_COUNT: total });
                let name = format!("p{at}");
                serde_json::from_value(json!({
                    "metadata": {
                        "name": name, "uid": name, "annotations": annotations,
                        "creationTimestamp": format!("2026-01-01T00:00:0{at}Z"),
                    },
                    "spec": {}, "status": { "phase": phase },
                }))
                .unwrap()
            };
            let pods: Vec<JobObject> = phases.iter().enumerate().map(pod).collect();
            let group = Group::new(PodsKey::group("team", "ring"), &pods).unwrap();
            let job = group.as_job(None, Timestamp::UNIX_EPOCH);
            let workload = compose(&group, &job, &Priorities::default(), Gates::default()).unwrap();
            let said = workload["metadata"]["ownerReferences"].as_array().unwrap().iter();
            let said: Vec<&str> = said.map(|owner| owner["name"].as_str().unwrap()).collect();
            assert_eq!(said, owners, "{phases:?}");
        }
    }
}
