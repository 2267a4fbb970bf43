//! Whether pods can run on a flavor's nodes at all, whatever the quota.

use std::collections::BTreeMap;

use model::ResourceName;
use model::node::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Toleration, first_untolerated};
use model::selector::Labels;

use crate::input::{Flavor, PodSet};
use crate::names::FlavorName;
use crate::reason::Obstacle;
use crate::topology::Spread;

/// Why a pod set that asks for a topology cannot be placed on the flavors it got.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TopologyDefect {
    /// No flavor of the ClusterQueue has a topology.
    NoTopology,
    /// None of its flavors has one.
    NoFlavor,
    /// More than one has, so its pods would have to be in two places.
    ManyFlavors(Vec<FlavorName>),
    /// The job may be resized, and what it asks for would keep its pods to one domain.
    Elastic,
}

/// Why pods of this set cannot run on the flavor's nodes. `covered` are the resources that the flavor is to provide;
/// `places_all`: the queue places all pods by topology.
pub(super) fn unsuitable(
    flavor: &Flavor,
    pod_set: &PodSet,
    covered: &[ResourceName],
    topologies: &BTreeMap<String, Vec<String>>,
    places_all: bool,
) -> Option<Obstacle> {
    if let Some(obstacle) = wrong_topology(flavor, pod_set, covered, topologies, places_all) {
        return Some(obstacle);
    }
    let tolerations: Vec<&Toleration> = pod_set.tolerations.iter().chain(&flavor.tolerations).collect();
    if let Some(taint) = first_untolerated(&flavor.taints, tolerations) {
        return Some(Obstacle::UntoleratedTaint(flavor.name.clone(), taint.clone()));
    }
    let selected = pod_set
        .node_selector
        .iter()
        .all(|(key, value)| flavor.node_labels.get(key).is_none_or(|given| given == value));
    let allowed = match &pod_set.affinity {
        Some(affinity) if selected => affinity_allows(affinity, &flavor.node_labels),
        _ => Ok(selected),
    };
    match allowed {
        Ok(true) => None,
        Ok(false) => Some(Obstacle::AffinityMismatch(flavor.name.clone())),
        Err(label) => Some(Obstacle::MalformedAffinity(flavor.name.clone(), label)),
    }
}

/// Pods that are placed by topology need a flavor that has it, unless it provides nothing that they ask for themselves; other
/// pods need one without.
fn wrong_topology(
    flavor: &Flavor,
    pod_set: &PodSet,
    covered: &[ResourceName],
    topologies: &BTreeMap<String, Vec<String>>,
    places_all: bool,
) -> Option<Obstacle> {
    let name = || flavor.name.clone();
    let Some(wanted) = &pod_set.topology else {
        return (flavor.topology.is_some() && !places_all).then(|| Obstacle::NeedsTopology(name()));
    };
    let Some(topology) = &flavor.topology else {
        let provides = covered.iter().any(|resource| pod_set.pod_requests.contains_key(resource));
        return provides.then(|| Obstacle::NoTopology(name()));
    };
    let Some(levels) = topologies.get(topology) else { return Some(Obstacle::NoTopology(name())) };
    if wanted.spread == Spread::Unsaid {
        return Some(Obstacle::LevelNotGiven(name()));
    }
    let missing = wanted.levels().find(|wanted| !levels.iter().any(|level| level == wanted));
    missing.map(|level| Obstacle::NoLevel(name(), level.to_owned()))
}

/// Only keys that the flavor has are looked at: its nodes may have others besides. A term about nothing else allows it.
///
/// # Errors
/// The label of a requirement that cannot be read, where no term allows the flavor.
fn affinity_allows(affinity: &NodeSelector, labels: &Labels) -> Result<bool, String> {
    let about_labels = |term: &NodeSelectorTerm| -> Vec<NodeSelectorRequirement> {
        term.match_expressions.iter().filter(|one| labels.contains_key(&one.key)).cloned().collect()
    };
    let terms: Vec<_> = affinity.node_selector_terms.iter().map(about_labels).collect();
    if terms.is_empty() || terms.iter().any(Vec::is_empty) {
        return Ok(true);
    }
    let mut malformed = None;
    for match_expressions in terms {
        if let Some(one) = match_expressions.iter().find(|one| !one.operator.accepts(&one.values)) {
            malformed = malformed.or_else(|| Some(one.key.clone()));
            continue;
        }
        let term = NodeSelectorTerm { match_expressions, match_fields: Vec::new() };
        if term.matches("", labels) {
            return Ok(true);
        }
    }
    malformed.map_or(Ok(false), Err)
}
