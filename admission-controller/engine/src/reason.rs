//! Why a workload waits or a queue does not admit: data with numbers, of which words are made at the edge.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::ResourceName;
use model::node::Taint;
use model::reasons::queue::active;
use model::reasons::workload::quota_reserved;

use crate::assign::TopologyDefect;
use crate::input::KeptOut;
use crate::names::{CheckName, ClusterQueueName, CohortName, FlavorName, LocalQueueKey};
use crate::topology::TopologyReason;

/// Why one flavor does not serve one pod set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Obstacle {
    /// No ResourceFlavor of that name exists.
    FlavorNotFound(FlavorName),
    /// The pods do not tolerate the flavor's taint.
    UntoleratedTaint(FlavorName, Taint),
    /// The pods' node selector or affinity contradicts the flavor's node labels.
    AffinityMismatch(FlavorName),
    /// The pods' required node affinity cannot be read where it names this label, which the flavor has. No other flavor is
    /// looked at.
    MalformedAffinity(FlavorName, String),
    /// The flavor is for pods that are placed by topology only.
    NeedsTopology(FlavorName),
    /// The pods are to be placed by topology, and the flavor has none (or it is not known yet).
    NoTopology(FlavorName),
    /// The pods are to be placed by a level that the flavor's topology does not have.
    NoLevel(FlavorName, String),
    /// The pods are to be placed by topology, and it is not said by which level.
    LevelNotGiven(FlavorName),
    /// The pods are to be placed by topology, and the flavors they got are not exactly one that has one.
    NotOneTopology(TopologyDefect),
    /// The workload may not have this flavor.
    FlavorNotAllowed(FlavorName),
    /// The slice that it replaces has another flavor, or none, of which more cannot be added here.
    HoldsOther {
        /// The flavor.
        flavor: FlavorName,
        /// What the replaced slice has.
        holds: Option<FlavorName>,
    },
    /// The ClusterQueue has no quota for a resource that the pods ask for.
    ResourceNotCovered(ResourceName),
    /// It asks for more than the queue could have with everybody else gone.
    ExceedsMaximum {
        /// The flavor.
        flavor: FlavorName,
        /// The resource.
        resource: ResourceName,
        /// What this pod set asks for.
        requested: i64,
        /// What pod sets before it already took of the same quota.
        previously: i64,
        /// What the queue could have at most.
        maximum: i64,
    },
    /// Quota there is, but the pods find no places on the flavor's nodes as they want them.
    NoPlaces(FlavorName, Box<TopologyReason>),
    /// Not enough is free now.
    Insufficient {
        /// The flavor.
        flavor: FlavorName,
        /// The resource.
        resource: ResourceName,
        /// How much more is needed.
        missing: i64,
    },
}

/// The obstacles of one pod set: one or more for each flavor that could have served it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSetObstacles {
    /// The pod set.
    pub pod_set: Arc<str>,
    /// What stands in the way, sorted.
    pub obstacles: Vec<Obstacle>,
    /// The hardest kind of it that counts: an alternative that only has to wait makes up for one that never serves.
    pub hindrance: Hindrance,
}

/// Kinds of obstacles, from the one that may go away soonest to the one that only another spec removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hindrance {
    /// Its pods cannot be placed on the flavor's nodes as their topology request wants.
    Placement,
    /// Not enough is free.
    Quota,
    /// The queue could never have as much.
    MaxQuota,
    /// No flavor suits its pods.
    NoMatchingFlavor,
}

impl Hindrance {
    /// Kueue's token for condition `QuotaReserved` = False.
    pub fn token(self) -> &'static str {
        match self {
            Self::Placement => quota_reserved::TOPOLOGY_PLACEMENT_FAILED,
            Self::Quota => quota_reserved::WAITING_FOR_QUOTA,
            Self::MaxQuota => quota_reserved::EXCEEDS_MAX_QUOTA,
            Self::NoMatchingFlavor => quota_reserved::NO_MATCHING_FLAVOR,
        }
    }
}

/// Why a ClusterQueue admits nothing: the reasons of its condition `Active`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inactive {
    /// It is being deleted.
    Terminating,
    /// `stopPolicy` is Hold or HoldAndDrain.
    Stopped,
    /// It names flavors that do not exist.
    FlavorNotFound(Vec<FlavorName>),
    /// It asks for admission checks that do not exist.
    CheckNotFound(Vec<CheckName>),
    /// It asks for admission checks that nobody answers.
    CheckInactive(Vec<CheckName>),
    /// It asks for several checks that run workloads elsewhere.
    MultipleMultiKueue(Vec<CheckName>),
    /// It asks for a check that runs workloads elsewhere, for some flavors only.
    MultiKueuePerFlavor(Vec<CheckName>),
    /// It asks for a check that runs workloads elsewhere, and for one that provisions nodes here.
    MultiKueueWithProvisioning(Vec<CheckName>),
    /// Flavors name Topologies that do not exist.
    TopologyNotFound(BTreeMap<FlavorName, String>),
    /// Its cohorts form a cycle; the whole tree is disabled.
    CohortCycle(CohortName),
    /// Its spec is wrong or asks for something that is not supported.
    Defects(Vec<String>),
}

impl Inactive {
    /// The token of condition `Active`.
    pub fn token(&self) -> &'static str {
        match self {
            Self::Terminating => active::TERMINATING,
            Self::Stopped => active::STOPPED,
            Self::FlavorNotFound(_) => active::FLAVOR_NOT_FOUND,
            Self::CheckNotFound(_) => active::ADMISSION_CHECK_NOT_FOUND,
            Self::CheckInactive(_) => active::ADMISSION_CHECK_INACTIVE,
            Self::MultipleMultiKueue(_) => active::MULTIPLE_MULTI_KUEUE_ADMISSION_CHECKS,
            Self::MultiKueuePerFlavor(_) => active::MULTI_KUEUE_ADMISSION_CHECK_APPLIED_PER_FLAVOR,
            Self::MultiKueueWithProvisioning(_) => active::MULTI_KUEUE_WITH_PROVISIONING_REQUEST,
            Self::TopologyNotFound(_) => active::TOPOLOGY_NOT_FOUND,
            Self::CohortCycle(_) => active::COHORT_CYCLE,
            Self::Defects(_) => active::MISCONFIGURED,
        }
    }
}

/// Why a workload waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PendingReason {
    /// Its turn has not come: a StrictFIFO queue has something before it.
    Behind,
    /// `active: false`.
    Deactivated,
    /// It can never be admitted as it is written.
    Defect(String),
    /// The API server refused its admission with these words.
    AdmissionRefused(String),
    /// It names no queue.
    NoQueueName,
    /// Its LocalQueue does not exist.
    LocalQueueMissing(LocalQueueKey),
    /// Its LocalQueue is stopped.
    LocalQueueStopped(LocalQueueKey),
    /// Its ClusterQueue does not exist.
    ClusterQueueMissing(ClusterQueueName),
    /// Its ClusterQueue admits nothing.
    ClusterQueueInactive(ClusterQueueName, Inactive),
    /// Its namespace is not among those the ClusterQueue serves.
    NamespaceMismatch(ClusterQueueName),
    /// No flavor serves it now.
    NoFit(Arc<[PodSetObstacles]>),
    /// An admission check wants it to try again later, or never, and it has not been evicted for that yet.
    ChecksFailed,
    /// It was put off until then, in milliseconds since the epoch.
    PutOff {
        /// The time.
        until_ms: i64,
    },
    /// Its status says that it is not to be looked at.
    KeptOut(KeptOut),
    /// The pods of workloads that were admitted before are not ready yet.
    PodsNotReady,
    /// It fitted when the cycle began; others of the cycle had their turn first.
    NoLongerFits,
    /// It would have preempted workloads that leave for another one.
    TargetsTaken,
    /// These hold it back, by its annotation.
    AdmissionGated(Arc<str>),
    /// It would have to preempt, and has a preemption gate that is closed.
    PreemptionGated,
    /// It will fit when workloads that were asked to leave have left.
    WaitingForPreempted {
        /// How many still hold quota that it was promised.
        victims: usize,
    },
}

impl PendingReason {
    /// Kueue's token for condition `QuotaReserved` = False (feature gate UnadmittedWorkloadsObservability).
    pub fn token(&self) -> &'static str {
        match self {
            Self::Behind | Self::ChecksFailed | Self::PutOff { .. } | Self::KeptOut(_) => {
                quota_reserved::PENDING_EVALUATION
            }
            Self::Deactivated => quota_reserved::DEACTIVATED,
            // Whatever keeps a queue from running: its own condition says what.
            Self::LocalQueueStopped(_) | Self::ClusterQueueInactive(..) => quota_reserved::SUSPENDED,
            Self::Defect(_)
            | Self::AdmissionRefused(_)
            | Self::NoQueueName
            | Self::LocalQueueMissing(_)
            | Self::ClusterQueueMissing(_)
            | Self::NamespaceMismatch(_) => quota_reserved::MISCONFIGURED,
            Self::NoFit(pod_sets) => no_fit_token(pod_sets),
            Self::NoLongerFits | Self::TargetsTaken => quota_reserved::WAITING_FOR_QUOTA,
            Self::PodsNotReady => quota_reserved::WAITING_FOR_PODS_READY,
            Self::AdmissionGated(_) | Self::PreemptionGated => quota_reserved::ADMISSION_GATED,
            Self::WaitingForPreempted { .. } => quota_reserved::WAITING_FOR_PREEMPTED_WORKLOADS,
        }
    }
}

/// The hardest kind of obstacle of any pod set: all are needed.
fn no_fit_token(pod_sets: &[PodSetObstacles]) -> &'static str {
    let hardest = pod_sets.iter().map(|one| one.hindrance).max();
    hardest.unwrap_or(Hindrance::Quota).token()
}
