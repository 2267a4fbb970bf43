//! Words for why pods find no places.

use quota_engine::assign::TopologyDefect;
use quota_engine::topology::{Exclusions, SelectorConflict, TopologyReason};

/// What to do where a topology request names no level.
pub(super) const LEVEL_NOT_GIVEN: &str = "the topology request names no level; set the annotation \
    kueue.x-k8s.io/podset-required-topology or kueue.x-k8s.io/podset-preferred-topology to one, or \
    kueue.x-k8s.io/podset-unconstrained-topology to \"true\"";

/// Why the pods of a pod set get no places.
pub(super) fn reason(reason: &TopologyReason) -> String {
    match reason {
        TopologyReason::UnknownLevel(level) => format!("the topology has no level {level}"),
        TopologyReason::MalformedAffinity(key) => {
            format!(
                "the pods' node affinity is malformed where it names {key}; correct its operator and values"
            )
        }
        TopologyReason::TooManyConditions { asked, most } => {
            format!(
                "the pods' node affinity and tolerations have {asked} terms, requirements, values and tolerations; at most \
                {most} are compared with the nodes of a topology: give the nodes a label in common, and ask for that"
            )
        }
        TopologyReason::LevelNotGiven => LEVEL_NOT_GIVEN.to_owned(),
        TopologyReason::SelectorConflict(SelectorConflict { label, given, wanted }) => {
            format!(
                "an admission check wants nodes or pods with {label}={wanted}, and the pods or another check want \
                {label}={given}; podSetUpdates in status.admissionChecks must agree with the pod template and with \
                one another"
            )
        }
        TopologyReason::SliceSizeMissing => {
            "a level for slices is given, but not how many pods a slice has".to_owned()
        }
        TopologyReason::SliceAbovePodSet { slice, pod_set } => {
            format!("slices are to lie within one {slice}, which is larger than the {pod_set} for all pods")
        }
        TopologyReason::LayerNotBelow { layer, around } => {
            format!("slices within one {layer} cannot be part of slices within one {around}")
        }
        TopologyReason::LayerSizeUneven { size, around } => {
            format!("slices of {size} pods do not divide slices of {around}")
        }
        TopologyReason::NoWholeSlice { pods, size } => {
            format!("{pods} pods are less than one slice of {size}")
        }
        TopologyReason::NoNodes => {
            "no node is ready and has the labels of the flavor and of all levels".to_owned()
        }
        TopologyReason::DoesNotFit { level, fits, wanted, size, leader, exclusions } => {
            let what = if *size == 1 { "pods".to_owned() } else { format!("slices of {size} pods") };
            let found = match leader {
                true => format!("the group's leader finds no place beside {wanted} {what} at level {level}"),
                false => format!("{fits} of {wanted} {what} fit at level {level}"),
            };
            found + &excluded(exclusions)
        }
        TopologyReason::LayersDoNotFit { level, layers, exclusions } => {
            let layers =
                layers.iter().map(|one| format!("{} of {} within one {}", one.fits, one.wanted, one.level));
            let layers: Vec<String> = layers.collect();
            format!(
                "at level {level} the best domain holds {} slices{}",
                layers.join(", "),
                excluded(exclusions)
            )
        }
        TopologyReason::CannotDivide { level } => {
            format!("what fits above cannot be shared out at level {level} with leader and slices whole")
        }
        TopologyReason::StaleAssignment { domain } => {
            format!("another of its places is gone as well: {}", domain.join("/"))
        }
        TopologyReason::NotOnNode { node } => {
            format!(
                "it has lost a node, but node {node}, where it has no pods, failed first and is replaced first"
            )
        }
    }
}

/// Why pods cannot be placed on the flavors that they got.
pub(super) fn defect(defect: &TopologyDefect) -> String {
    match defect {
        TopologyDefect::NoTopology => {
            "the pods are to be placed by topology, and no flavor of the ClusterQueue has one".to_owned()
        }
        TopologyDefect::NoFlavor => {
            "the pods are to be placed by topology, and ask for nothing that a flavor with one provides"
                .to_owned()
        }
        TopologyDefect::ManyFlavors(flavors) => {
            let names: Vec<&str> = flavors.iter().map(|name| name.as_str()).collect();
            format!(
                "the pods would be placed by the topologies of several flavors: {}; they can be in one only",
                names.join(", ")
            )
        }
        TopologyDefect::Elastic => {
            "with the feature gate ElasticJobsViaWorkloadSlicesWithTAS a job that may be resized is kept to no domain; \
            set the annotation kueue.x-k8s.io/podset-unconstrained-topology to \"true\" instead"
                .to_owned()
        }
    }
}

fn excluded(exclusions: &Exclusions) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut count = |nodes: usize, why: String| {
        if nodes > 0 {
            parts.push(format!("{nodes} {why}"));
        }
    };
    for (taint, nodes) in &exclusions.taints {
        count(*nodes, format!("have taint {}={}:{:?}", taint.key, taint.value, taint.effect));
    }
    count(exclusions.node_selector, "do not match the node selector".to_owned());
    count(exclusions.affinity, "do not match the node affinity".to_owned());
    count(exclusions.domain, "are outside the domain of the other pods".to_owned());
    for (resource, nodes) in &exclusions.resources {
        count(*nodes, format!("have too little {resource}"));
    }
    match parts.is_empty() {
        true => String::new(),
        false => format!("; of {} domains {}", exclusions.total, parts.join(", ")),
    }
}
