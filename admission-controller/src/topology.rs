//! Between the API's objects and placement by topology: nodes, other pods, requests, assignments.

use std::sync::Arc;

use crds::api::kueue::{v1beta1, v1beta2};
use crds::conversion::topology::{TopologyError, pack, unpack};
use crds::view;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use model::ResourceList;
use model::resources::{AmountError, amounts};
use quota_engine::topology::{Assignment, DomainPods, Node, SliceLayer, Spread};

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
pub fn usage_of(pod: &view::Pod) -> Option<(&str, ResourceList)> {
    let finished = matches!(pod.status.phase.as_str(), "Succeeded" | "Failed");
    if pod.spec.node_name.is_empty() || finished {
        return None;
    }
    // The kubelet has taken it in, so its numbers are sound; should they not be, it still counts as a pod.
    let asked = pod.spec.pod_resources().effective_requests().unwrap_or_default();
    Some((&pod.spec.node_name, asked))
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
        (None, None) if !layers.is_empty() => Spread::SlicesOnly,
        (None, None) => Spread::Unconstrained,
    };
    (spread, layers)
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
    let of_group = workload
        .annotations
        .as_ref()
        .and_then(|annotations| annotations.get(crds::names::kueue::IS_GROUP_WORKLOAD))
        .is_some_and(|value| value == "true");
    match workload.owner_references.as_deref() {
        Some([owner]) => of_group || owner.kind != "Pod" || owner.api_version != "v1",
        _ => true,
    }
}
