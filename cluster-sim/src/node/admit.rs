//! Whether a node takes a pod that was bound to it. Pure.
//!
//! Rules: the predicate admission of `pkg/kubelet/lifecycle` of Kubernetes, which looks again at what the scheduler
//! looked at, with this node's own numbers.

use model::node::Taint;
use model::resources::{self, AmountError, ResourceList, ResourceName};

use super::devices::DeviceError;
use super::pod::{Pod, is_extended};

/// What admission needs to know of the node.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeFacts {
    pub(crate) name: String,
    pub(crate) labels: model::selector::Labels,
    pub(crate) taints: Vec<Taint>,
    /// In base units, `pods` included.
    pub(crate) allocatable: ResourceList,
}

/// Why a node does not take a pod: the pod becomes Failed with this reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Rejection {
    #[error(
        "Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}"
    )]
    OutOf { resource: ResourceName, requested: i64, used: i64, capacity: i64 },
    #[error(
        "Predicate NodeAffinity failed: the node's labels do not satisfy the pod's node selector or affinity"
    )]
    NodeAffinity,
    #[error(
        "Predicate TaintToleration failed: the pod does not tolerate the node's taint {key}={value}:NoExecute"
    )]
    TaintToleration { key: String, value: String },
    #[error("Allocate failed due to {0}, which is unexpected")]
    Devices(#[from] DeviceError),
    #[error("{0}")]
    Amount(#[from] AmountError),
    #[error("the pod cannot be read: {0}")]
    Unreadable(String),
}

impl Rejection {
    /// `status.reason` of the pod.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::OutOf { resource, .. } => format!("OutOf{resource}"),
            Self::NodeAffinity => "NodeAffinity".into(),
            Self::TaintToleration { .. } => "TaintToleration".into(),
            Self::Devices(_) | Self::Amount(_) | Self::Unreadable(_) => "UnexpectedAdmissionError".into(),
        }
    }
}

/// Checks a pod against the node and the pods already there.
pub(crate) fn check<'a>(
    node: &NodeFacts,
    pod: &Pod,
    others: impl Iterator<Item = &'a Pod>,
) -> Result<(), Rejection> {
    let asked = pod.requests.clone()?;
    let mut used = ResourceList::new();
    for other in others {
        // A pod whose amounts cannot be read was never taken.
        if let Ok(requests) = &other.requests {
            resources::checked_add(&mut used, requests)?;
        }
        resources::checked_add(&mut used, &[(ResourceName::new(ResourceName::PODS), 1)].into())?;
    }
    room(node, &used, &[(ResourceName::new(ResourceName::PODS), 1)].into())?;
    room(node, &used, &asked)?;
    selected(node, pod)?;
    tolerated(node, pod)
}

fn room(node: &NodeFacts, used: &ResourceList, asked: &ResourceList) -> Result<(), Rejection> {
    for (resource, &requested) in asked {
        let capacity = match node.allocatable.get(resource.as_str()) {
            Some(capacity) => *capacity,
            // An extended resource that this node does not have at all is counted elsewhere.
            None if is_extended(resource.as_str()) => continue,
            None => 0,
        };
        let used = used.get(resource.as_str()).copied().unwrap_or(0);
        if requested > 0 && used.checked_add(requested).is_none_or(|sum| sum > capacity) {
            return Err(Rejection::OutOf { resource: resource.clone(), requested, used, capacity });
        }
    }
    Ok(())
}

fn selected(node: &NodeFacts, pod: &Pod) -> Result<(), Rejection> {
    let by_labels = pod.spec.node_selector.iter().all(|(key, value)| node.labels.get(key) == Some(value));
    let required = pod.spec.affinity.node_affinity.required.as_ref();
    let by_affinity = required.is_none_or(|required| required.matches(&node.name, &node.labels));
    if by_labels && by_affinity { Ok(()) } else { Err(Rejection::NodeAffinity) }
}

/// A kubelet minds only the taints that would also drive a running pod away.
fn tolerated(node: &NodeFacts, pod: &Pod) -> Result<(), Rejection> {
    let repels = |taint: &&Taint| {
        taint.effect == model::node::TaintEffect::NoExecute
            && !pod.spec.tolerations.iter().any(|toleration| toleration.tolerates(taint))
    };
    match node.taints.iter().find(repels) {
        None => Ok(()),
        Some(taint) => Err(Rejection::TaintToleration { key: taint.key.clone(), value: taint.value.clone() }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node() -> NodeFacts {
        NodeFacts {
            name: "n1".into(),
            labels: [("zone".to_owned(), "a".to_owned())].into(),
            taints: vec![],
            allocatable: [("cpu", 4000), ("memory", 1 << 30), ("pods", 2), ("nvidia.com/gpu", 2)]
                .map(|(name, amount)| (name.into(), amount))
                .into(),
        }
    }

    fn pod(requests: &Value, spec: Value) -> Pod {
        let mut spec = spec;
        spec["containers"] = json!([{ "name": "c", "resources": { "requests": requests } }]);
        Pod::read(&json!({ "metadata": { "name": "p", "uid": "u" }, "spec": spec })).unwrap()
    }

    #[test]
    fn reasons() {
        let one = |requests: Value| pod(&requests, json!({}));
        let tainted = |effect: &str| {
            let taint =
                serde_json::from_value(json!({ "key": "k", "value": "v", "effect": effect })).unwrap();
            NodeFacts { taints: vec![taint], ..node() }
        };
        let elsewhere = pod(&json!({}), json!({ "nodeSelector": { "zone": "b" } }));
        let affinity = json!({ "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{ "matchExpressions": [{ "key": "zone", "operator": "NotIn", "values": ["a"] }] }]
        } } } });
        let tolerant = json!({ "tolerations": [{ "key": "k", "operator": "Exists" }] });
        for (node, pod, others, expected) in [
            (node(), one(json!({ "cpu": "4", "nvidia.com/gpu": 2 })), vec![], ""),
            (node(), one(json!({ "cpu": "4001m" })), vec![], "OutOfcpu"),
            (node(), one(json!({ "cpu": "2" })), vec![one(json!({ "cpu": "3" }))], "OutOfcpu"),
            (node(), one(json!({ "memory": "2Gi" })), vec![], "OutOfmemory"),
            (node(), one(json!({})), vec![one(json!({})), one(json!({}))], "OutOfpods"),
            (node(), one(json!({ "nvidia.com/gpu": 3 })), vec![], "OutOfnvidia.com/gpu"),
            (node(), one(json!({ "example.com/tape": 3 })), vec![], ""),
            (node(), one(json!({ "hugepages-2Mi": "2Mi" })), vec![], "OutOfhugepages-2Mi"),
            (node(), one(json!({ "cpu": "9223372036854775807" })), vec![], "UnexpectedAdmissionError"),
            (node(), one(json!({ "cpu": "9223372036854775" })), vec![one(json!({ "cpu": "1" }))], "OutOfcpu"),
            (node(), elsewhere, vec![], "NodeAffinity"),
            (node(), pod(&json!({}), affinity), vec![], "NodeAffinity"),
            (tainted("NoSchedule"), one(json!({})), vec![], ""),
            (tainted("NoExecute"), one(json!({})), vec![], "TaintToleration"),
            (tainted("NoExecute"), pod(&json!({}), tolerant), vec![], ""),
        ] {
            let said =
                check(&node, &pod, others.iter()).err().map(|error| error.reason()).unwrap_or_default();
            assert_eq!(said, expected, "{:?}", pod.requests);
        }
    }
}
