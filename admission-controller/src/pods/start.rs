//! Gates of pods: what a pod gets when it is created, and what lets it go when it is admitted.

use std::collections::BTreeMap;

use crds::names::kueue;
use crds::view::workload::Workload;
use model::node::Toleration;
use serde_json::{Value, json};

use super::Member;
use crate::jobs::{Conflict, Fields, JobObject, Terms, additions, is_placed};
use crate::topology;

/// The gates a pod gets when it is created: those it has, and ours. Whether it is placed by topology is known once it is
/// admitted, and no gate can be added then: where there may be topologies it gets that one, too.
pub fn gated(pod: &JobObject, topologies: bool) -> Value {
    let mut gates = pod.at("/spec/schedulingGates").and_then(Value::as_array).cloned().unwrap_or_default();
    for (ours, wanted) in [(kueue::ADMISSION_GATE, true), (kueue::TOPOLOGY_GATE, topologies)] {
        if wanted && !gates.iter().any(|gate| gate["name"] == ours) {
            gates.push(json!({ "name": ours }));
        }
    }
    Value::Array(gates)
}

/// The merge patch that lets an admitted pod be scheduled: without its gate, with what its flavors add.
///
/// # Errors
/// See [`Conflict`].
pub fn start(
    pod: &JobObject,
    is_group: bool,
    workload: &Workload,
    terms: Terms<'_>,
) -> Result<Value, Conflict> {
    // That of a pod by itself is called as who made the Workload likes.
    let only = workload.spec.pod_sets.first().map_or(kueue::DEFAULT_PODSET, |set| set.name.as_str());
    let set = if is_group { pod.role() } else { only.to_owned() };
    let mut selector = BTreeMap::new();
    if let Some(written) = pod.at("/spec/nodeSelector") {
        selector = serde_json::from_value(written.clone()).unwrap_or_default();
    }
    // Others of its role may ask for places where it does not; it is placed with them.
    let asks = topology::says_how_near(pod.metadata.annotations.as_ref());
    // What a check adds must not contradict what the pod has.
    let (labels, annotations) = (&pod.metadata.labels, &pod.metadata.annotations);
    let own = Fields {
        selector,
        labels: labels.clone().unwrap_or_default(),
        annotations: annotations.clone().unwrap_or_default(),
        ..Fields::default()
    };
    let added = additions(workload, &set, terms, own, asks)?;
    let mut tolerations = pod.at("/spec/tolerations").and_then(Value::as_array).cloned().unwrap_or_default();
    let known: Vec<Toleration> =
        tolerations.iter().filter_map(|one| serde_json::from_value(one.clone()).ok()).collect();
    let is_new = |one: &&Toleration| !known.iter().any(|there| there.is_like(one));
    tolerations.extend(added.tolerations.iter().filter(is_new).map(|one| json!(one)));
    let gates = pod.at("/spec/schedulingGates").and_then(Value::as_array).into_iter().flatten();
    // Who has no domain of a topology has nobody else to wait for.
    let is_placed = is_placed(workload, &set);
    let is_over = |gate: &&Value| {
        gate["name"] != kueue::ADMISSION_GATE && (is_placed || gate["name"] != kueue::TOPOLOGY_GATE)
    };
    let gates: Vec<&Value> = gates.filter(is_over).collect();
    Ok(json!({
        "metadata": {
            "labels": news(added.labels, labels.as_ref()),
            "annotations": news(added.annotations, annotations.as_ref()),
        },
        "spec": { "schedulingGates": gates, "nodeSelector": added.selector, "tolerations": tolerations },
    }))
}

/// What is not there already: somebody else may change that meanwhile.
fn news(
    wanted: BTreeMap<String, String>,
    there: Option<&BTreeMap<String, String>>,
) -> BTreeMap<String, String> {
    let is_new = |name: &String, value: &String| there.and_then(|all| all.get(name)) != Some(value);
    wanted.into_iter().filter(|(name, value)| is_new(name, value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_does_not_change_what_a_pod_has() {
        let workload = |updates: Value| -> Workload {
            serde_json::from_value(json!({
                "metadata": { "name": "w" },
                "spec": { "podSets": [{ "name": "main" }] },
                "status": {
                    "admission": { "clusterQueue": "q", "podSetAssignments": [{ "name": "main", "count": 1 }] },
                    "admissionChecks": [{ "name": "check", "state": "Ready", "podSetUpdates": [updates] }],
                },
            }))
            .unwrap()
        };
        let flavors = BTreeMap::new();
        let terms = Terms { flavors: &flavors, names_queues: false, elastic: false };
        let pod = json!({
            "metadata": { "labels": { "app": "a", kueue::PODSET: "of another admission" }, "annotations": { "note": "a" } },
            "spec": {},
        });
        let pod = serde_json::from_value(pod).unwrap();
        for (updates, works) in [
            (json!({ "name": "main", "labels": { "app": "b" } }), false),
            (json!({ "name": "main", "annotations": { "note": "b" } }), false),
            (json!({ "name": "main", "labels": { "app": "a", "tier": "x" } }), true),
        ] {
            let patch = start(&pod, false, &workload(updates.clone()), terms);
            assert_eq!(patch.is_ok(), works, "{updates}");
            if let Ok(patch) = patch {
                assert_eq!(patch["metadata"]["labels"], json!({ "tier": "x", kueue::PODSET: "main" }));
            }
        }
    }

    /// Annotations are no part of a role: the wish of one pod is that of all, and who is placed has to say so itself.
    #[test]
    fn a_placed_pod_asks_for_places_if_only_for_any() {
        let workload: Workload = serde_json::from_value(json!({
            "metadata": { "name": "w" },
            "spec": { "podSets": [{ "name": "main", "topologyRequest": { "required": "rack" } }] },
            "status": { "admission": { "clusterQueue": "q", "podSetAssignments": [{
                "name": "main", "count": 1, "topologyAssignment": { "levels": ["rack"], "slices": [] },
            }]}},
        }))
        .unwrap();
        let flavors = BTreeMap::new();
        let terms = Terms { flavors: &flavors, names_queues: true, elastic: false };
        for (annotations, added) in [
            (json!({ kueue::PODSET_REQUIRED_TOPOLOGY: "rack" }), Value::Null),
            (json!({ "example.com/note": "none" }), json!("true")),
            (json!({ kueue::PODSET_SLICE_REQUIRED_TOPOLOGY: "rack" }), json!("true")),
        ] {
            let pod = json!({ "metadata": { "annotations": annotations }, "spec": {} });
            let patch = start(&serde_json::from_value(pod).unwrap(), false, &workload, terms).unwrap();
            assert_eq!(patch["metadata"]["annotations"][kueue::PODSET_UNCONSTRAINED_TOPOLOGY], added);
        }
    }
}
