//! Topology-aware scheduling: placement alone.

use std::collections::BTreeMap;
use std::sync::Arc;

use admission_controller::topology;
use crds::api::kueue::v1beta2;
use crds::view;
use model::ResourceList;
use model::node::{NodeSelector, NodeSelectorTerm};
use quota_engine::topology::{
    Assignment, DomainPods, Node, PodSetRequest, Preference, Previous, Rules, TopologyIndex, TopologyReason,
    View,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::cycle::gates;
use super::world::amounts;
use crate::case::{Case, Runner, Verdict};

pub(super) const TESTS: &[(&str, Runner)] = &[
    ("scheduler.TestFindTopologyAssignments", find),
    ("scheduler.TestFindTopologyAssignmentsMultiLayerReplacement", replace),
];

const LEVELS: [&str; 3] = ["cloud.com/topology-block", "cloud.com/topology-rack", "kubernetes.io/hostname"];

fn find(case: &Case) -> Verdict {
    let tc = case.tc();
    let mut index = index(tc);
    let rules = rules(tc);
    let sets = tc["podSets"].as_array().unwrap();
    let requests: Vec<PodSetRequest> = sets.iter().map(|set| request(set, tc)).collect();
    let outcome = index.place(&requests, rules, View::Now);
    for (set, given) in sets.iter().zip(outcome.pod_sets) {
        let name = set["podSetName"].as_str().unwrap_or_default();
        compare(set, given).map_err(|difference| format!("pod set {name:?}: {difference}"))?;
    }
    Ok(())
}

fn replace(case: &Case) -> Verdict {
    let tc = case.tc();
    let request = PodSetRequest {
        previous: Some(Previous::Failed {
            assignment: written(&tc["existingTA"]),
            node: tc["unhealthyNode"].as_str().unwrap().into(),
        }),
        ..request(
            &json!({
                "requests": { "cpu": 1000 },
                "count": tc["count"],
                "topologyRequest": tc["topologyRequest"],
            }),
            &Value::Null,
        )
    };
    let outcome = index(tc).place(&[request], rules(tc), View::Now);
    compare(tc, outcome.pod_sets.into_iter().next().flatten())
}

fn compare(wanted: &Value, given: Option<Result<Assignment, TopologyReason>>) -> Verdict {
    let refused = !wanted["wantReason"].as_str().unwrap_or_default().is_empty();
    let assignment = wanted.get("wantAssignment").filter(|one| !one.is_null()).map(assignment);
    match given {
        Some(Err(reason)) if !refused => Err(format!("no place: {reason:?}")),
        Some(Ok(given)) if refused => Err(format!("gets {}, wanted no place", show(&given))),
        Some(Ok(given)) if assignment.as_ref().is_none_or(|wanted| *wanted != given) => Err(format!(
            "gets {}, wanted {}",
            show(&given),
            assignment.as_ref().map_or("nothing".into(), show)
        )),
        None if refused || assignment.is_some() => Err("not tried".to_owned()),
        _ => Ok(()),
    }
}

fn show(assignment: &Assignment) -> String {
    let domains = assignment.domains.iter().map(|one| format!("{}: {}", one.values.join("/"), one.pods));
    format!("[{}] of {}", domains.collect::<Vec<_>>().join(", "), assignment.levels.join("/"))
}

/// What a case says of the cluster.
fn index(tc: &Value) -> TopologyIndex {
    let levels = tc["levels"].as_array().map_or(LEVELS.map(Arc::from).into(), |levels| {
        levels.iter().map(|level| Arc::from(level.as_str().unwrap())).collect()
    });
    let mut index = TopologyIndex::new(levels, typed(&tc["nodeLabels"]), Vec::new());
    for node in tc["nodes"].as_array().into_iter().flatten() {
        let node: view::Node = typed(node);
        let node: Node = topology::node(&node).unwrap();
        index.upsert_node(node);
    }
    for pod in tc["pods"].as_array().into_iter().flatten() {
        let pod: view::placed_pod::PlacedPod = typed(pod);
        if let Some((node, asked)) = topology::usage_of(&pod) {
            index.charge_node(node, &asked);
        }
    }
    let shared = gates(tc).settings().topology.shared_nodes && index.ends_in_hosts();
    let of_others = shared.then_some("priorFlavorUsage");
    for usage in ["priorOwnUsage"].into_iter().chain(of_others).flat_map(|key| tc[key].as_array()).flatten() {
        let per_pod = amounts(&usage["SinglePodRequests"]).collect();
        let held = Assignment { levels: Vec::new(), domains: vec![domain(usage)] };
        index.charge(&held, &per_pod);
    }
    index
}

fn rules(tc: &Value) -> Rules {
    gates(tc).settings().topology.rules
}

/// A preferred node affinity as the API has it.
#[derive(Deserialize)]
struct Preferred {
    weight: i64,
    preference: NodeSelectorTerm,
}

fn request(set: &Value, tc: &Value) -> PodSetRequest {
    let api: Option<v1beta2::PodSetTopologyRequest> = typed(&set["topologyRequest"]);
    let (spread, layers) = topology::spread(api.as_ref());
    let required = &set["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let preferred: Vec<Preferred> =
        typed(&set["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]);
    PodSetRequest {
        count: set["count"].as_i64().unwrap_or(0),
        per_pod: typed::<ResourceList>(&set["requests"]),
        spread,
        layers,
        group: set["podSetGroupName"].as_str().map(Arc::from),
        node_selector: typed::<BTreeMap<String, String>>(&set["nodeSelector"]),
        conflict: None,
        affinity: typed::<Option<NodeSelector>>(required),
        preferences: preferred
            .into_iter()
            .map(|one| Preference { weight: one.weight, term: one.preference })
            .collect(),
        tolerations: typed(&set["tolerations"]),
        previous: previous(set, tc),
    }
}

/// The places that the case's workload or the pod set has already.
fn previous(set: &Value, tc: &Value) -> Option<Previous> {
    let workload = &tc["workload"];
    if let Some(node) = workload["status"]["unhealthyNodes"][0]["name"].as_str() {
        let sets = workload["status"]["admission"]["podSetAssignments"].as_array()?;
        let held = sets.iter().find(|one| one["name"] == set["podSetName"])?;
        let assignment = written(held.get("topologyAssignment").filter(|places| !places.is_null())?);
        let fixed = gates(tc).settings().topology.keep_single_pods;
        return Some(match fixed && !topology::can_move(&typed(&workload["metadata"])) {
            true => Previous::Kept(assignment),
            false => Previous::Failed { assignment, node: node.into() },
        });
    }
    let held = set.get("previousAssignment").filter(|places| !places.is_null())?;
    Some(Previous::Slice(written(held)))
}

fn written(held: &Value) -> Assignment {
    topology::read(&typed(held)).unwrap()
}

fn assignment(wanted: &Value) -> Assignment {
    let domains = wanted["Domains"].as_array().into_iter().flatten();
    Assignment { levels: texts(&wanted["Levels"]), domains: domains.map(domain).collect() }
}

fn domain(value: &Value) -> DomainPods {
    DomainPods { values: texts(&value["Values"]), pods: value["Count"].as_i64().unwrap_or(0) }
}

fn texts(list: &Value) -> Vec<Arc<str>> {
    list.as_array().into_iter().flatten().map(|text| text.as_str().unwrap().into()).collect()
}

/// Absent is zero, in lists and maps too.
fn typed<T: DeserializeOwned>(value: &Value) -> T {
    let read = serde_json::from_value(value.clone());
    let zero = || value.is_null().then(|| [json!([]), json!({})]).into_iter().flatten();
    read.or_else(|error| zero().find_map(|zero| serde_json::from_value(zero).ok()).ok_or(error))
        .unwrap_or_else(|error| panic!("{error}: {value}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_no_places_has_none_to_keep() {
        for held in [json!({ "name": "main" }), json!({ "name": "main", "topologyAssignment": null })] {
            let status = json!({
                "unhealthyNodes": [{ "name": "n1" }],
                "admission": { "podSetAssignments": [held] },
            });
            let tc = json!({ "workload": { "metadata": {}, "status": status } });
            assert_eq!(previous(&json!({ "podSetName": "main" }), &tc), None, "{tc}");
        }
        assert_eq!(previous(&json!({ "previousAssignment": null }), &json!({})), None);
    }

    #[test]
    fn what_other_flavors_use_counts_on_hosts_while_the_gate_is_open() {
        const HOST: &str = "kubernetes.io/hostname";
        for (level, open, has_room) in [(HOST, true, false), (HOST, false, true), ("rack", true, true)] {
            let one_cpu = json!({ "value": { "cpu": 1000 } });
            let status = json!({
                "allocatable": { "cpu": "1", "pods": "9" },
                "conditions": [{ "type": "Ready", "status": "True" }],
            });
            let mut index = index(&json!({
                "featureGates": { "TASHandleOverlappingFlavors": open },
                "levels": [level],
                "nodes": [{ "metadata": { "name": "n1", "labels": { (level): "n1" } }, "status": status }],
                "priorFlavorUsage": [{ "Count": 1, "SinglePodRequests": one_cpu, "Values": ["n1"] }],
            }));
            let place = DomainPods { values: vec!["n1".into()], pods: 1 };
            let place = Assignment { levels: vec![level.into()], domains: vec![place] };
            let asked = amounts(&one_cpu).collect();
            assert_eq!(index.fits(&place, &asked, View::Now), has_room, "{level} {open}");
        }
    }
}
