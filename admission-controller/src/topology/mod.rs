//! Between the API's objects and placement by topology: nodes, other pods, requests, assignments.

mod request;
mod ungate;

use std::collections::BTreeMap;
use std::sync::Arc;

use crds::api::kueue::{v1beta1, v1beta2};
use crds::conversion::topology::{TopologyError, pack, unpack};
use crds::names::kueue;
use crds::view;
use crds::view::placed_pod::PlacedPod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use model::ResourceList;
use model::resources::{AmountError, amounts};
use quota_engine::input::TopologyWish;
use quota_engine::topology::{Assignment, DomainPods, Node, SliceLayer, Spread};

use crate::pods::is_of_group;

pub use request::request;
pub use ungate::{Member, released};

/// A node for placement.
///
/// # Errors
/// An allocatable amount that is no number. Such a node cannot be used.
pub fn node(view: &view::Node) -> Result<Node, AmountError> {
    Ok(Node {
        name: view.metadata.name.as_deref().unwrap_or_default().into(),
        labels: view.metadata.labels.clone().unwrap_or_default(),
        taints: view.spec.taints.clone(),
        allocatable: amounts(&view.status.allocatable)?,
        ready: view.is_ready() && !view.spec.unschedulable,
    })
}

/// What a pod that was not placed here takes from its node. `None`: nothing, it is bound to none or has finished.
pub fn usage_of(pod: &PlacedPod) -> Option<(&str, ResourceList)> {
    if pod.spec.node_name.is_empty() || pod.has_ended() {
        return None;
    }
    // The kubelet has taken it in, so its numbers are sound; should they not be, it still counts as a pod.
    let asked = pod.spec.resources.effective_requests().unwrap_or_default();
    Some((&pod.spec.node_name, asked))
}

/// Whether a pod is placed by topology: then its Workload's admission counts for it.
pub fn is_placed(pod: &PlacedPod) -> bool {
    wishes(pod.metadata.annotations.as_ref())
}

/// Whether annotations ask for places.
fn wishes(annotations: Option<&BTreeMap<String, String>>) -> bool {
    let slices = [kueue::PODSET_SLICE_REQUIRED_TOPOLOGY, kueue::PODSET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS];
    says_how_near(annotations) || has_any(annotations, &slices)
}

/// Whether annotations say how near to one another the pods must be, or that it does not matter.
pub fn says_how_near(annotations: Option<&BTreeMap<String, String>>) -> bool {
    let wishes = [
        kueue::PODSET_REQUIRED_TOPOLOGY,
        kueue::PODSET_PREFERRED_TOPOLOGY,
        kueue::PODSET_UNCONSTRAINED_TOPOLOGY,
    ];
    has_any(annotations, &wishes)
}

fn has_any(annotations: Option<&BTreeMap<String, String>>, keys: &[&str]) -> bool {
    annotations.is_some_and(|annotations| keys.iter().any(|key| annotations.contains_key(*key)))
}

/// How near to one another the pods of a pod set must be, and in what slices. Without a wish: anywhere.
pub fn spread(request: Option<&v1beta2::PodSetTopologyRequest>) -> (Spread, Vec<SliceLayer>) {
    let Some(request) = request else { return (Spread::Unconstrained, Vec::new()) };
    let mut layers: Vec<SliceLayer> = request
        .pod_set_slice_required_topology_constraints
        .iter()
        .map(|layer| SliceLayer { level: layer.topology.as_str().into(), size: layer.size.into() })
        .collect();
    if let (true, Some(level)) = (layers.is_empty(), &request.pod_set_slice_required_topology) {
        let size = request.pod_set_slice_size.unwrap_or(0).into();
        layers.push(SliceLayer { level: level.as_str().into(), size });
    }
    let spread = match (&request.required, &request.preferred) {
        (Some(level), _) => Spread::Required(level.as_str().into()),
        (None, Some(level)) => Spread::Preferred(level.as_str().into()),
        (None, None) if request.unconstrained == Some(true) || !asks(request) => Spread::Unconstrained,
        (None, None) if !layers.is_empty() => Spread::SlicesOnly,
        // `unconstrained: false` or the size of slices says no more than that there is a wish.
        (None, None) => Spread::Unsaid,
    };
    (spread, layers)
}

/// What a pod set wishes; `None` where it asks for no topology. The name of a group alone is no wish.
pub fn wish(request: &v1beta2::PodSetTopologyRequest) -> Option<TopologyWish> {
    asks(request).then(|| {
        let (spread, layers) = spread(Some(request));
        TopologyWish { spread, layers }
    })
}

fn asks(request: &v1beta2::PodSetTopologyRequest) -> bool {
    request.required.is_some()
        || request.preferred.is_some()
        || request.unconstrained.is_some()
        || request.pod_set_slice_required_topology.is_some()
        || request.pod_set_slice_size.is_some()
        || !request.pod_set_slice_required_topology_constraints.is_empty()
}

/// An assignment as written.
///
/// # Errors
/// Its lists do not match.
pub fn read(written: &v1beta2::TopologyAssignment) -> Result<Assignment, TopologyError> {
    let plain = unpack(written)?;
    let texts = |texts: Vec<String>| texts.into_iter().map(Arc::from).collect();
    let domain = |domain: v1beta1::TopologyDomainAssignment| DomainPods {
        values: texts(domain.values),
        pods: domain.count.into(),
    };
    Ok(Assignment { levels: texts(plain.levels), domains: plain.domains.into_iter().map(domain).collect() })
}

/// An assignment to be written.
///
/// # Errors
/// More domains than an object can list.
pub fn write(assignment: &Assignment) -> Result<v1beta2::TopologyAssignment, TopologyError> {
    let texts = |texts: &[Arc<str>]| texts.iter().map(|text| text.to_string()).collect();
    let domain = |domain: &DomainPods| v1beta1::TopologyDomainAssignment {
        values: texts(&domain.values),
        // A pod set's count is a 32-bit number.
        count: i32::try_from(domain.pods).unwrap_or(i32::MAX),
    };
    pack(&v1beta1::TopologyAssignment {
        levels: texts(&assignment.levels),
        domains: assignment.domains.iter().map(domain).collect(),
    })
}

/// Whether the pods of a workload can come back elsewhere when their node fails. A workload that *is* a pod ends with it.
pub fn can_move(workload: &ObjectMeta) -> bool {
    match workload.owner_references.as_deref() {
        Some([owner]) => is_of_group(workload) || owner.kind != "Pod" || owner.api_version != "v1",
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use super::*;

    fn typed<T: DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn assignments_come_back_as_they_were_written() {
        let levels = ["block", "rack"].map(Arc::from);
        for domains in [
            vec![],
            vec![(["b1", "r1"], 4)],
            vec![(["b1", "r1"], 4), (["b1", "r2"], 4)],
            vec![(["b1", "rack-a-1"], 1), (["b2", "rack-b-1"], 2), (["b2", ""], 3)],
            vec![(["ä", "aba"], 1), (["äö", "ababa"], 1)],
        ] {
            let domain =
                |(values, pods): ([&str; 2], i64)| DomainPods { values: values.map(Arc::from).into(), pods };
            let assignment = Assignment {
                levels: levels.clone().into(),
                domains: domains.into_iter().map(domain).collect(),
            };
            assert_eq!(read(&write(&assignment).unwrap()).unwrap(), assignment);
        }
    }

    #[test]
    fn requests_say_how_near_and_in_what_slices() {
        let layer = |level: &str, size| SliceLayer { level: level.into(), size };
        for (request, spread_wanted, layers_wanted) in [
            (json!({}), Spread::Unconstrained, vec![]),
            (json!({ "required": "rack" }), Spread::Required("rack".into()), vec![]),
            (json!({ "preferred": "rack", "podSetSliceSize": 2 }), Spread::Preferred("rack".into()), vec![]),
            (json!({ "podSetGroupName": "g" }), Spread::Unconstrained, vec![]),
            (json!({ "unconstrained": true }), Spread::Unconstrained, vec![]),
            (json!({ "unconstrained": true, "podSetSliceSize": 2 }), Spread::Unconstrained, vec![]),
            (json!({ "unconstrained": false }), Spread::Unsaid, vec![]),
            (json!({ "podSetSliceSize": 2 }), Spread::Unsaid, vec![]),
            (
                json!({ "podSetSliceRequiredTopology": "rack", "podSetSliceSize": 2 }),
                Spread::SlicesOnly,
                vec![layer("rack", 2)],
            ),
            (
                json!({ "unconstrained": true, "podSetSliceRequiredTopology": "rack", "podSetSliceSize": 2 }),
                Spread::Unconstrained,
                vec![layer("rack", 2)],
            ),
            (
                json!({ "required": "block", "podSetSliceRequiredTopology": "rack" }),
                Spread::Required("block".into()),
                vec![layer("rack", 0)],
            ),
            (
                json!({ "required": "block", "podsetSliceRequiredTopologyConstraints": [
                    { "topology": "rack", "size": 4 }, { "topology": "host", "size": 2 },
                ] }),
                Spread::Required("block".into()),
                vec![layer("rack", 4), layer("host", 2)],
            ),
        ] {
            assert_eq!(spread(Some(&typed(request.clone()))), (spread_wanted, layers_wanted), "{request}");
        }
        assert_eq!(spread(None), (Spread::Unconstrained, vec![]));
    }

    #[test]
    fn pods_count_while_they_are_bound_and_not_finished() {
        for (node, phase, counts) in [
            ("n1", "Running", true),
            ("n1", "Pending", true),
            ("n1", "Failed", false),
            ("n1", "Succeeded", false),
            ("", "Pending", false),
        ] {
            let pod = json!({
                "spec": { "nodeName": node, "containers": [{ "resources": { "requests": { "cpu": "1500m" } } }] },
                "status": { "phase": phase },
            });
            let wanted = counts.then(|| ("n1", ResourceList::from([("cpu".into(), 1500)])));
            assert_eq!(usage_of(&typed(pod)), wanted, "{node} {phase}");
        }
    }

    #[test]
    fn a_node_takes_pods_while_it_is_ready_and_not_cordoned() {
        for (status, cordoned, ready) in
            [("True", false, true), ("True", true, false), ("Unknown", false, false)]
        {
            let view = json!({
                "metadata": { "name": "n" },
                "spec": { "unschedulable": cordoned },
                "status": { "allocatable": { "cpu": "2" }, "conditions": [{ "type": "Ready", "status": status }] },
            });
            assert_eq!(node(&typed(view)).unwrap().ready, ready, "{status} {cordoned}");
        }
        let broken = json!({ "status": { "allocatable": { "cpu": "much" } } });
        assert!(node(&typed(broken)).is_err());
    }

    #[test]
    fn a_workload_that_is_one_pod_stays_where_it_is() {
        let owner = |kind: &str, version: &str| json!({ "kind": kind, "apiVersion": version, "name": "o", "uid": "u" });
        let group = json!({ "kueue.x-k8s.io/is-group-workload": "true" });
        for (owners, annotations, moves) in [
            (vec![], Value::Null, true),
            (vec![owner("Pod", "v1")], Value::Null, false),
            (vec![owner("Pod", "v1")], group, true),
            (vec![owner("Pod", "v1"), owner("Pod", "v1")], Value::Null, true),
            (vec![owner("Job", "batch/v1")], Value::Null, true),
        ] {
            let workload = json!({ "ownerReferences": owners, "annotations": annotations });
            assert_eq!(can_move(&typed(workload.clone())), moves, "{workload}");
        }
    }
}
