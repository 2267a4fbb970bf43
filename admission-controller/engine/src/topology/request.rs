//! What a pod set asks of the topology.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::ResourceList;
use model::node::{NodeSelector, NodeSelectorTerm, Toleration};
use model::selector::Labels;

use super::Assignment;

/// How near to one another the pods must be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Spread {
    /// All in one domain of this level.
    Required(Arc<str>),
    /// In one domain of this level; else in one of the nearest level above that holds them; else in several.
    Preferred(Arc<str>),
    /// Only the slices are bound: the whole may lie anywhere. Of pods that are no whole slices it says nothing.
    SlicesOnly,
    /// Anywhere, in slices or not. Also the wish of a pod set that has none, in a flavor with a topology.
    Unconstrained,
    /// They are to be placed, and it is not said how: nothing can be found for them.
    Unsaid,
}

/// Pods in groups of this size, each in one domain of this level.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SliceLayer {
    /// The level.
    pub level: Arc<str>,
    /// Pods in a slice; 0: not given.
    pub size: i64,
}

/// A preferred node affinity.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Preference {
    /// What a node that matches is worth.
    pub weight: i64,
    /// Which nodes.
    pub term: NodeSelectorTerm,
}

/// Places that the pods have already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Previous {
    /// Of the slice of an elastic job that this one takes over from: pods that run stay where they are.
    Slice(Assignment),
    /// A node of the assignment has failed: only its pods get a new place.
    Failed {
        /// The assignment, the failed node included.
        assignment: Assignment,
        /// The lowest level's value of the failed node: its host name.
        node: Arc<str>,
    },
    /// Nothing moves: a node has failed, but the pods cannot be anywhere else (a workload that is one pod).
    Kept(Assignment),
}

/// Two values that a label of the nodes, or a label or annotation of the pods, should have, so that no node will do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SelectorConflict {
    /// The label, or annotation.
    pub label: Arc<str>,
    /// What the pods, or the checks before, want it to be.
    pub given: Arc<str>,
    /// What an admission check wants it to be.
    pub wanted: Arc<str>,
}

impl SelectorConflict {
    /// The first value of `more` that is not the given one.
    pub fn between(given: &Labels, more: &Labels) -> Option<Self> {
        more.iter().find_map(|(label, wanted)| {
            let given = given.get(label).filter(|given| *given != wanted)?;
            let text = |text: &String| Arc::<str>::from(text.as_str());
            Some(Self { label: text(label), given: text(given), wanted: text(wanted) })
        })
    }
}

/// Pods of one shape that are placed together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSetRequest {
    /// How many.
    pub count: i64,
    /// What each asks for, `pods` not included.
    pub per_pod: ResourceList,
    /// How near to one another.
    pub spread: Spread,
    /// Slices, outermost first.
    pub layers: Vec<SliceLayer>,
    /// Pod sets of one group are placed as one: the larger, and its leader beside it.
    pub group: Option<Arc<str>>,
    /// Labels their nodes must have.
    pub node_selector: BTreeMap<String, String>,
    /// Where admission checks contradict them: then there is no place.
    pub conflict: Option<SelectorConflict>,
    /// Required node affinity.
    pub affinity: Option<NodeSelector>,
    /// Preferred node affinity.
    pub preferences: Vec<Preference>,
    /// Taints they ignore, besides those that the flavor does.
    pub tolerations: Vec<Toleration>,
    /// Places they have already.
    pub previous: Option<Previous>,
}

/// Conditions on nodes (terms, requirements, values, tolerations) that are looked at: each is compared with each node that differs in its
/// labels, whenever places are sought, and 5,000 nodes shall delay nobody by 100 ms. Kueue has no bound.
pub(super) const MOST_CONDITIONS: usize = 4_096;

impl PodSetRequest {
    /// How many terms, requirements, values and tolerations are compared with a node.
    pub(super) fn conditions(&self, preferences: bool) -> usize {
        let required = self.affinity.iter().flat_map(|affinity| &affinity.node_selector_terms);
        let preferred = self.preferences.iter().filter(|_| preferences).map(|one| &one.term);
        let terms = required.chain(preferred).map(|term| {
            let requirements = term.match_expressions.iter().chain(&term.match_fields);
            1 + requirements.map(|one| 1 + one.values.len()).sum::<usize>()
        });
        self.tolerations.len() + terms.sum::<usize>()
    }

    /// What of its node affinity cannot be read, by label or field. Preferences count where they are looked at; one without weight
    /// or wish is none (`k8s.io/component-helpers`, `scheduling/corev1/nodeaffinity`).
    pub(super) fn malformed(&self, preferences: bool) -> Option<&str> {
        let required = self.affinity.iter().flat_map(|affinity| &affinity.node_selector_terms);
        let preferred = self.preferences.iter().filter(|one| preferences && one.weight != 0);
        required.chain(preferred.map(|one| &one.term)).find_map(NodeSelectorTerm::malformed)
    }
}

/// Which of Kueue's feature gates are on. The default is that of Kueue 0.20.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// `TASProfileMixed`: unconstrained pods take the smallest room that holds them, and fill up what is left over.
    pub mixed_profile: bool,
    /// `TASBalancedPlacement`: preferred pods are spread evenly over their domains.
    pub balanced: bool,
    /// `TASRespectNodeAffinityPreferred`: nodes that the pods prefer come first.
    pub preferred_affinity: bool,
    /// `ElasticJobsViaWorkloadSlicesWithTAS`: [`Previous::Slice`] counts, and no elastic job is kept to a domain.
    pub elastic: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self { mixed_profile: true, balanced: false, preferred_affinity: false, elastic: false }
    }
}
