//! Which nodes may take the pods at all.
//!
//! Nodes that differ in nothing but their host name are judged once, as a class, unless the pods ask for host names.

use std::collections::BTreeMap;

use model::node::{Taint, Toleration, first_untolerated};
use model::selector::Labels;

use super::{Exclusions, HOSTNAME, Node, PodSetRequest, Rules};

/// What a filter says of a node.
#[derive(Clone, Copy)]
pub(super) enum Verdict {
    /// Suits, and is preferred this much.
    Suits(i64),
    /// Has a taint, by its position among the node's, that the pods do not tolerate.
    Taint(usize),
    Selector,
    Affinity,
}

/// Nodes by what filters look at.
#[derive(Default)]
pub(super) struct Classes {
    known: BTreeMap<(Vec<Taint>, Labels), u32>,
    /// A leaf's class.
    pub(super) of_leaf: Vec<u32>,
    /// A leaf that stands for the class.
    pub(super) example: Vec<u32>,
}

impl Classes {
    /// Adds the next leaf.
    pub(super) fn push(&mut self, node: &Node) {
        let leaf = self.of_leaf.len() as u32;
        let mut labels = node.labels.clone();
        labels.remove(HOSTNAME);
        let next = self.known.len() as u32;
        let class = *self.known.entry((node.taints.clone(), labels)).or_insert(next);
        if class == next {
            self.example.push(leaf);
        }
        self.of_leaf.push(class);
    }
}

/// A pod set's filters.
pub(super) struct Filter<'a> {
    request: &'a PodSetRequest,
    flavor: &'a [Toleration],
    preferences: bool,
}

impl<'a> Filter<'a> {
    pub(super) fn new(request: &'a PodSetRequest, flavor: &'a [Toleration], rules: Rules) -> Self {
        Self { request, flavor, preferences: rules.preferred_affinity && !request.preferences.is_empty() }
    }

    /// Whether nodes of one class may be judged differently.
    pub(super) fn asks_for_hosts(&self) -> bool {
        let required = self.request.affinity.iter().flat_map(|affinity| &affinity.node_selector_terms);
        let preferred = self.request.preferences.iter().map(|preference| &preference.term);
        self.request.node_selector.contains_key(HOSTNAME)
            || required.chain(preferred).any(|term| {
                !term.match_fields.is_empty() || term.match_expressions.iter().any(|one| one.key == HOSTNAME)
            })
    }

    pub(super) fn judge(&self, node: &Node) -> Verdict {
        let tolerations = self.request.tolerations.iter().chain(self.flavor);
        if let Some(taint) = first_untolerated(&node.taints, tolerations) {
            return Verdict::Taint(node.taints.iter().position(|one| one == taint).unwrap_or_default());
        }
        if self.request.node_selector.iter().any(|(key, value)| node.labels.get(key) != Some(value)) {
            return Verdict::Selector;
        }
        if self.request.affinity.as_ref().is_some_and(|one| !one.matches(&node.name, &node.labels)) {
            return Verdict::Affinity;
        }
        if !self.preferences {
            return Verdict::Suits(0);
        }
        let liked = self.request.preferences.iter().filter(|one| one.term.matches(&node.name, &node.labels));
        Verdict::Suits(liked.map(|one| one.weight).sum())
    }
}

impl Exclusions {
    /// Counts nodes that were refused, all as this one was.
    pub(super) fn refuse(&mut self, verdict: Verdict, node: &Node, nodes: usize) {
        match verdict {
            Verdict::Suits(_) => {}
            Verdict::Taint(position) => {
                *self.taints.entry(node.taints[position].clone()).or_default() += nodes;
            }
            Verdict::Selector => self.node_selector += nodes,
            Verdict::Affinity => self.affinity += nodes,
        }
    }
}
