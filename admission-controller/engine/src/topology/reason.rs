//! Why a pod set gets no places, with numbers.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::ResourceName;
use model::node::Taint;

use super::SelectorConflict;

/// Nodes that take no pod of the pod set, by what is in the way. Each counts once, for the first thing found.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Exclusions {
    /// Leaves there are: nodes, where the topology ends in the host name.
    pub total: usize,
    /// The pods do not tolerate this taint.
    pub taints: BTreeMap<Taint, usize>,
    /// The pods' node selector does not match.
    pub node_selector: usize,
    /// The pods' required node affinity does not match.
    pub affinity: usize,
    /// Outside the domain in which a replacement must lie.
    pub domain: usize,
    /// Not one pod fits; this is what there is least of.
    pub resources: BTreeMap<ResourceName, usize>,
}

/// How many slices of one layer the best domain holds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LayerRoom {
    /// The layer's level.
    pub level: Arc<str>,
    /// Slices that fit.
    pub fits: i64,
    /// Slices wanted.
    pub wanted: i64,
}

/// Why the pods of a pod set get no place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TopologyReason {
    /// The topology has no such level.
    UnknownLevel(Arc<str>),
    /// It is not said how near to one another the pods must be.
    LevelNotGiven,
    /// The pods' node affinity cannot be read where it names this label or field.
    MalformedAffinity(Arc<str>),
    /// The pods' node affinity and tolerations are more than are compared with nodes.
    TooManyConditions {
        /// Terms, requirements, values and tolerations.
        asked: usize,
        /// How many may be.
        most: usize,
    },
    /// An admission check wants other nodes than the pods, or a check before it, do.
    SelectorConflict(SelectorConflict),
    /// A level for slices is named, but no size of a slice.
    SliceSizeMissing,
    /// Slices are to lie in domains larger than that of the whole pod set.
    SliceAbovePodSet {
        /// The level of the slices.
        slice: Arc<str>,
        /// The level of the pod set.
        pod_set: Arc<str>,
    },
    /// A layer of slices is not below the one around it.
    LayerNotBelow {
        /// The layer's level.
        layer: Arc<str>,
        /// The level of the layer around it.
        around: Arc<str>,
    },
    /// The size of a layer's slices does not divide that of the layer around it.
    LayerSizeUneven {
        /// The layer's size.
        size: i64,
        /// The size of the layer around it.
        around: i64,
    },
    /// There are fewer pods than a slice has.
    NoWholeSlice {
        /// How many pods.
        pods: i64,
        /// Pods in a slice.
        size: i64,
    },
    /// The flavor has no node that is ready and has all levels.
    NoNodes,
    /// Not enough room.
    DoesNotFit {
        /// At this level, the lowest that was tried last.
        level: Arc<str>,
        /// Slices that fit.
        fits: i64,
        /// Slices wanted.
        wanted: i64,
        /// Pods in a slice: with one, slices are pods.
        size: i64,
        /// No place is left for the group's leader.
        leader: bool,
        /// Nodes that take none of the pods.
        exclusions: Box<Exclusions>,
    },
    /// Not enough room for slices within slices.
    LayersDoNotFit {
        /// At this level.
        level: Arc<str>,
        /// What fits of each layer, outermost first.
        layers: Vec<LayerRoom>,
        /// Nodes that take none of the pods.
        exclusions: Box<Exclusions>,
    },
    /// The domains chosen hold the pods, but not so that leader and slices stay whole further down.
    CannotDivide {
        /// The level at which it failed.
        level: Arc<str>,
    },
    /// The other places of the pod set are no longer there, so its failed node cannot be replaced.
    StaleAssignment {
        /// Values of the domain that is gone.
        domain: Vec<Arc<str>>,
    },
    /// The pod set has lost a node, but not the one that is replaced: the first of those that failed under the workload.
    NotOnNode {
        /// The node that is replaced.
        node: Arc<str>,
    },
}
