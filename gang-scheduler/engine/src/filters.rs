//! What makes a node unfit for a pod, one function and one reason each, in the order in which they are asked.
//!
//! The first that fails gives the node's reason. Those of [`STATIC_FILTERS`] look only at the node object and are asked
//! once per pod shape and version of the node. Free capacity is counted, not asked (the crate's node columns), and comes
//! last: host ports, then the number of pods, then resources in the order of their names.
//!
//! The rules are kube-scheduler's: NodeUnschedulable, TaintToleration, NodeAffinity, NodePorts, NodeResourcesFit; and the
//! node's `Ready` condition, which Kubernetes reports as a taint with some delay.
//!
//! A new filter is a function here, its line in [`STATIC_FILTERS`], its variant and words of [`NodeReason`] and a row of the table
//! test below.

use std::sync::Arc;

use model::node::{Taint, TaintEffect, first_untolerated};
use model::planted::{Bug, Planted};

use crate::event::NodeInfo;
use crate::reason::NodeReason;
use crate::shape::PodRules;

/// A question about a node object and a pod's rules. `Some`: unfit, for this reason.
pub type StaticFilter = fn(&NodeInfo, &PodRules) -> Option<NodeReason>;

/// The filters that look only at the node object, by the name of the rule they implement.
pub const STATIC_FILTERS: &[(&str, StaticFilter)] = &[
    ("NodeReady", ready),
    ("NodeUnschedulable", unschedulable),
    ("TaintToleration", taints),
    ("NodeSelector", node_selector),
    ("NodeAffinity", node_affinity),
];

/// The reason of the first static filter that fails.
pub(crate) fn static_reason(node: &NodeInfo, rules: &PodRules, planted: Planted) -> Option<NodeReason> {
    STATIC_FILTERS
        .iter()
        .filter(|(name, _)| !(planted.is(Bug::IgnoreTaints) && *name == "TaintToleration"))
        .find_map(|(_, filter)| filter(node, rules))
}

/// Taints that would rather not have the pod: nodes with fewer of them come first (kube-scheduler's score of the same
/// plugin).
pub(crate) fn disliked(node: &NodeInfo, rules: &PodRules) -> usize {
    let untolerated = |taint: &&Taint| {
        taint.effect == TaintEffect::PreferNoSchedule
            && !rules.tolerations.iter().any(|toleration| toleration.tolerates(taint))
    };
    node.taints.iter().filter(untolerated).count()
}

fn ready(node: &NodeInfo, _: &PodRules) -> Option<NodeReason> {
    (!node.ready).then_some(NodeReason::NotReady)
}

/// A cordoned node takes only pods that tolerate the taint which stands for it.
fn unschedulable(node: &NodeInfo, rules: &PodRules) -> Option<NodeReason> {
    let taint = Taint {
        key: "node.kubernetes.io/unschedulable".to_owned(),
        value: String::new(),
        effect: TaintEffect::NoSchedule,
    };
    let tolerated = || rules.tolerations.iter().any(|toleration| toleration.tolerates(&taint));
    (node.unschedulable && !tolerated()).then_some(NodeReason::Unschedulable)
}

fn taints(node: &NodeInfo, rules: &PodRules) -> Option<NodeReason> {
    first_untolerated(&node.taints, &rules.tolerations).map(|taint| NodeReason::UntoleratedTaint {
        key: Arc::from(taint.key.as_str()),
        value: Arc::from(taint.value.as_str()),
        effect: taint.effect,
    })
}

fn node_selector(node: &NodeInfo, rules: &PodRules) -> Option<NodeReason> {
    let matches = rules.node_selector.iter().all(|(key, value)| node.labels.get(key) == Some(value));
    (!matches).then_some(NodeReason::NodeSelector)
}

fn node_affinity(node: &NodeInfo, rules: &PodRules) -> Option<NodeReason> {
    let matches =
        rules.node_affinity.as_ref().is_none_or(|selector| selector.matches(&node.name, &node.labels));
    (!matches).then_some(NodeReason::NodeAffinity)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::node::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Toleration};
    use model::selector::Operator;

    fn node() -> NodeInfo {
        NodeInfo {
            name: "n1".into(),
            labels: [("gpu".to_owned(), "a100".to_owned())].into(),
            ready: true,
            ..NodeInfo::default()
        }
    }

    fn field_is(name: &str) -> Option<NodeSelector> {
        let requirement = NodeSelectorRequirement {
            key: "metadata.name".into(),
            operator: Operator::In,
            values: vec![name.into()],
        };
        let term = NodeSelectorTerm { match_fields: vec![requirement], ..NodeSelectorTerm::default() };
        Some(NodeSelector { node_selector_terms: vec![term] })
    }

    #[test]
    fn each_filter_gives_its_own_reason() {
        let taint = Taint { key: "k".into(), value: "v".into(), effect: TaintEffect::NoExecute };
        let untolerated = NodeReason::UntoleratedTaint {
            key: "k".into(),
            value: "v".into(),
            effect: TaintEffect::NoExecute,
        };
        let selector = |value: &str| PodRules {
            node_selector: [("gpu".to_owned(), value.to_owned())].into(),
            ..PodRules::default()
        };
        let all = Toleration { operator: model::node::TolerationOperator::Exists, ..Toleration::default() };
        let tolerant = PodRules { tolerations: vec![all], ..PodRules::default() };
        let plain = PodRules::default();
        for (node, rules, expected) in [
            (node(), &plain, None),
            (NodeInfo { ready: false, ..node() }, &plain, Some(NodeReason::NotReady)),
            (NodeInfo { ready: false, ..node() }, &tolerant, Some(NodeReason::NotReady)),
            (NodeInfo { unschedulable: true, ..node() }, &plain, Some(NodeReason::Unschedulable)),
            (NodeInfo { unschedulable: true, ..node() }, &tolerant, None),
            (NodeInfo { taints: vec![taint.clone()], ..node() }, &plain, Some(untolerated)),
            (NodeInfo { taints: vec![taint], ..node() }, &tolerant, None),
            (node(), &selector("a100"), None),
            (node(), &selector("h100"), Some(NodeReason::NodeSelector)),
            (node(), &PodRules { node_affinity: field_is("n1"), ..PodRules::default() }, None),
            (
                node(),
                &PodRules { node_affinity: field_is("n2"), ..PodRules::default() },
                Some(NodeReason::NodeAffinity),
            ),
            (
                node(),
                &PodRules { node_affinity: Some(NodeSelector::default()), ..PodRules::default() },
                Some(NodeReason::NodeAffinity),
            ),
        ] {
            assert_eq!(static_reason(&node, rules, Planted::NONE), expected, "{node:?} {rules:?}");
        }
    }
}
