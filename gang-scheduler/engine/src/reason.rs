//! Why pods wait: what each node lacks for them, as data, and the sentence that pods, groups and events all say.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::nodes::AMOUNT_LIMIT;
use model::node::TaintEffect;
use model::resources::ResourceName;

/// Why one node cannot take one more pod of a shape: the first filter that failed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeReason {
    /// Its `Ready` condition is not `True`.
    NotReady,
    /// `spec.unschedulable` (cordoned).
    Unschedulable,
    /// A taint the pod does not tolerate.
    UntoleratedTaint {
        /// The taint's key.
        key: Arc<str>,
        /// The taint's value.
        value: Arc<str>,
        /// The taint's effect.
        effect: TaintEffect,
    },
    /// `spec.nodeSelector` names labels it does not have.
    NodeSelector,
    /// Required node affinity does not match.
    NodeAffinity,
    /// The kubelet or the API server refused a member of this gang there not long ago.
    RefusedBefore,
    /// A host port is taken.
    HostPort,
    /// Its `pods` are used up.
    TooManyPods,
    /// Not enough of a resource is free.
    Insufficient(ResourceName),
}

/// A feature of a pod that this scheduler does not know how to honour. Placing such a pod could break what its author
/// asked for, so it is left pending with this reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unsupported {
    /// `spec.resourceClaims`.
    ResourceClaims,
    /// `requiredDuringScheduling…` pod affinity.
    PodAffinity,
    /// `requiredDuringScheduling…` pod anti-affinity.
    PodAntiAffinity,
    /// A volume backed by a PersistentVolumeClaim, ephemeral ones included.
    PersistentVolumeClaim,
    /// A topology spread constraint with `whenUnsatisfiable: DoNotSchedule`.
    TopologySpread,
    /// Kubernetes' own gangs (`spec.schedulingGroup`, KEP-4671).
    SchedulingGroup,
    /// A PodGroup of the coscheduling plugin (`scheduling.x-k8s.io`).
    CoschedulingGroup,
    /// A PodGroup of KAI (`scheduling.run.ai`).
    KaiGroup,
    /// A Volcano PodGroup with a hard network topology.
    NetworkTopology,
    /// A Volcano PodGroup with subgroups.
    SubGroups,
}

impl Unsupported {
    /// The field that asks for it.
    pub fn field(self) -> &'static str {
        match self {
            Self::ResourceClaims => "spec.resourceClaims",
            Self::PodAffinity => "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution",
            Self::PodAntiAffinity => {
                "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution"
            }
            Self::PersistentVolumeClaim => "spec.volumes[].persistentVolumeClaim",
            Self::TopologySpread => "spec.topologySpreadConstraints[].whenUnsatisfiable: DoNotSchedule",
            Self::SchedulingGroup => "spec.schedulingGroup",
            Self::CoschedulingGroup => "the label scheduling.x-k8s.io/pod-group",
            Self::KaiGroup => "the annotation pod-group-name",
            Self::NetworkTopology => "the PodGroup's spec.networkTopology (mode hard)",
            Self::SubGroups => "the PodGroup's spec.subGroupPolicy",
        }
    }
}

/// Why a pod or a gang must not be placed, whatever the nodes have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hold {
    /// The PodGroup the pods name does not exist.
    PodGroupMissing {
        /// Its name.
        name: Arc<str>,
    },
    /// No Workload is known that the pods' job belongs to, although the pods say that they are managed.
    WorkloadMissing,
    /// The Workload is not admitted.
    WorkloadNotAdmitted {
        /// The Workload's name.
        workload: Arc<str>,
    },
    /// The pod asks more than its Workload was granted.
    ExceedsGrant {
        /// The Workload's name.
        workload: Arc<str>,
        /// The resource, `pods` for the number of pods.
        resource: ResourceName,
        /// What the pod set asks with this pod, in base units.
        asked: i64,
        /// What the pod set was granted, in base units.
        granted: i64,
    },
    /// The pod asks for something that is not supported.
    Unsupported(Unsupported),
    /// The pod's own numbers or selectors cannot be used.
    Invalid {
        /// What is wrong, and where.
        problem: Arc<str>,
    },
}

/// Where a gang stands that does not fit, with numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoFit {
    /// So many of `wanted` members can be placed now.
    pub placeable: u32,
    /// So many must be placed together.
    pub wanted: u32,
    /// So many nodes were looked at.
    pub nodes: u32,
    /// For one member more: how many nodes fail for which reason. The counts add up to `nodes`.
    pub histogram: BTreeMap<NodeReason, u32>,
    /// The member the histogram is about.
    pub member: Arc<str>,
    /// What that member asks of the resources in the histogram, and the most any node has free, in base units.
    pub amounts: BTreeMap<ResourceName, (i64, i64)>,
    /// `false`: members of different shapes, and the search for an arrangement ended at its limit, so one may exist.
    pub exhaustive: bool,
}

/// Why a gang waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// It must not be placed.
    Held(Hold),
    /// Members are missing.
    NotEnoughMembers {
        /// So many exist.
        have: u32,
        /// So many must.
        need: u32,
        /// So many of those that exist have scheduling gates.
        gated: u32,
    },
    /// It does not fit.
    NoFit(NoFit),
    /// Fewer members of a role exist than it needs.
    NotEnoughOfRole {
        /// The role.
        role: Arc<str>,
        /// So many can be placed or are.
        have: u32,
        /// So many must.
        need: u32,
    },
    /// A bind or an admission by the kubelet failed; the next try is at this time.
    BackingOff {
        /// By the clock that the engine is told.
        until_ms: i64,
        /// What failed.
        refusal: Refusal,
    },
}

/// What the API server or a kubelet would not have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusal {
    /// The member and the node. `None`: the gang's plan.
    pub place: Option<(Arc<str>, Arc<str>)>,
    /// What was said.
    pub problem: Arc<str>,
}

impl fmt::Display for NodeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotReady => f.write_str("not ready"),
            Self::Unschedulable => f.write_str("cordoned"),
            Self::UntoleratedTaint { key, value, effect } => {
                write!(f, "untolerated taint {key}")?;
                if !value.is_empty() {
                    write!(f, "={value}")?;
                }
                write!(f, ":{effect:?}")
            }
            Self::NodeSelector => f.write_str("labels do not match the node selector"),
            Self::NodeAffinity => f.write_str("labels do not match the required node affinity"),
            Self::RefusedBefore => f.write_str("refused a member a moment ago"),
            Self::HostPort => f.write_str("host port taken"),
            Self::TooManyPods => f.write_str("no room for another pod"),
            Self::Insufficient(resource) => write!(f, "insufficient {resource}"),
        }
    }
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PodGroupMissing { name } => {
                write!(f, "PodGroup {name} does not exist; create it, or remove the annotation that names it")
            }
            Self::WorkloadMissing => {
                f.write_str("managed by a queue, but its Workload does not exist yet; nothing may run before it is admitted")
            }
            Self::WorkloadNotAdmitted { workload } => write!(f, "Workload {workload} is not admitted"),
            Self::ExceedsGrant { workload, resource, asked, granted } => write!(
                f,
                "Workload {workload} was granted {} {resource} for this pod set, which with this pod asks {}",
                resource.quantity(*granted),
                resource.quantity(*asked)
            ),
            Self::Unsupported(feature) => write!(
                f,
                "{} is not supported by this scheduler; remove it, or use another schedulerName",
                feature.field()
            ),
            Self::Invalid { problem } => f.write_str(problem),
        }
    }
}

impl fmt::Display for NoFit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.wanted > 1 {
            write!(f, "{} of {} pods fit; ", self.placeable, self.wanted)?;
        }
        // What the others of the gang would take is no longer free for this one.
        let beside_others = self.placeable > 0;
        f.write_str(if beside_others { "beside them, pod " } else { "pod " })?;
        write!(f, "{} fits none of {} nodes", self.member, self.nodes)?;
        let mut reasons: Vec<_> = self.histogram.iter().collect();
        reasons.sort_by(|a, b| b.1.cmp(a.1).then_with(|| a.0.cmp(b.0)));
        for (index, (reason, count)) in reasons.into_iter().enumerate() {
            write!(f, "{} {count} {reason}", if index == 0 { ":" } else { "," })?;
            if let NodeReason::Insufficient(resource) = reason
                && let Some((asked, most)) = self.amounts.get(resource)
            {
                write!(
                    f,
                    " (asks {}{}, at most {} {} on a node)",
                    resource.quantity(*asked),
                    if *asked >= AMOUNT_LIMIT { " or more" } else { "" },
                    resource.quantity((*most).max(0)),
                    if beside_others { "left" } else { "free" },
                )?;
            }
        }
        if !self.exhaustive {
            f.write_str("; not every arrangement was tried")?;
        }
        Ok(())
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held(hold) => hold.fmt(f),
            Self::NotEnoughMembers { have, need, gated } => {
                write!(f, "{have} of {need} pods exist")?;
                if *gated > 0 {
                    write!(f, " and {gated} more are held back by scheduling gates")?;
                }
                Ok(())
            }
            Self::NoFit(no_fit) => no_fit.fmt(f),
            Self::NotEnoughOfRole { role, have, need } => {
                write!(f, "{have} of {need} pods of task {role} exist")
            }
            Self::BackingOff { refusal, .. } => {
                match &refusal.place {
                    Some((member, node)) => write!(f, "pod {member} was refused on node {node}")?,
                    None => f.write_str("the gang's GangPlacement could not be written")?,
                }
                if !refusal.problem.is_empty() {
                    write!(f, " ({})", refusal.problem)?;
                }
                f.write_str("; the next try follows shortly")
            }
        }
    }
}
