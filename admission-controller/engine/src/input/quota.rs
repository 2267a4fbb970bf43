//! ClusterQueues, cohorts, LocalQueues, flavors and checks.

use std::collections::{BTreeMap, BTreeSet};

use model::ResourceName;
use model::node::{Taint, Toleration};
use model::selector::{LabelSelector, Labels};

use crate::names::{CheckName, ClusterQueueName, CohortName, FlavorName, LocalQueueKey};
use crate::uid::Uid;

/// A ResourceFlavor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flavor {
    /// Its name.
    pub name: FlavorName,
    /// Its uid.
    pub uid: Uid,
    /// `spec.nodeLabels`.
    pub node_labels: Labels,
    /// `spec.nodeTaints`.
    pub taints: Vec<Taint>,
    /// `spec.tolerations`, which every pod on the flavor gets.
    pub tolerations: Vec<Toleration>,
    /// `spec.topologyName`: pods on the flavor are placed by topology.
    pub topology: Option<String>,
}

/// Quota of one resource of one flavor, in base units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// `nominalQuota`.
    pub nominal: i64,
    /// `borrowingLimit`; `None` is without limit.
    pub borrowing_limit: Option<i64>,
    /// `lendingLimit`; `None` lends everything.
    pub lending_limit: Option<i64>,
}

/// The quotas of one flavor in one resource group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlavorQuotas {
    /// The flavor.
    pub flavor: FlavorName,
    /// Quota by resource.
    pub resources: BTreeMap<ResourceName, Quota>,
}

/// Resources that are taken from one flavor together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceGroup {
    /// `coveredResources`.
    pub covered: Vec<ResourceName>,
    /// The flavors in the order in which they are tried.
    pub flavors: Vec<FlavorQuotas>,
}

/// `queueingStrategy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueingStrategy {
    /// A head that does not fit blocks what is behind it.
    StrictFifo,
    /// What does not fit steps aside until something changes.
    #[default]
    BestEffortFifo,
}

/// `stopPolicy` of a ClusterQueue or LocalQueue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StopPolicy {
    /// Runs.
    #[default]
    None,
    /// Admits nothing new.
    Hold,
    /// Admits nothing new and evicts what it admitted.
    HoldAndDrain,
}

/// `preemption.withinClusterQueue`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WithinClusterQueue {
    /// Nobody.
    #[default]
    Never,
    /// Workloads of lower priority.
    LowerPriority,
    /// Workloads of lower priority, or of the same and younger.
    LowerOrNewerEqualPriority,
}

/// `preemption.reclaimWithinCohort`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReclaimWithinCohort {
    /// Nobody.
    #[default]
    Never,
    /// Not said, as in an object that no API server has given the default, `Never`: nobody either. But where sharing is fair,
    /// such a queue preempts its own while it borrows, as one does that reclaims, and Kueue's tables count on it.
    Unset,
    /// Borrowers of lower priority.
    LowerPriority,
    /// Any borrower.
    Any,
}

/// `preemption.borrowWithinCohort`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BorrowWithinCohort {
    /// A workload that has to borrow preempts nobody in another queue.
    #[default]
    Never,
    /// It preempts workloads of lower priority, up to the threshold where one is given.
    LowerPriority {
        /// `maxPriorityThreshold`.
        threshold: Option<i32>,
    },
}

/// `preemption`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preemption {
    /// Victims in the same ClusterQueue.
    pub within_cluster_queue: WithinClusterQueue,
    /// Victims among borrowers in the cohort.
    pub reclaim_within_cohort: ReclaimWithinCohort,
    /// Victims in the cohort when the preemptor borrows itself.
    pub borrow_within_cohort: BorrowWithinCohort,
}

/// Whether the search of flavors goes on after one that would do at a price.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Search {
    /// `MayStopSearch`: it will do.
    MayStop,
    /// `TryNextFlavor`: perhaps the next one is better.
    TryNext,
}

/// What is the lesser price, when both searches go on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preference {
    /// Borrow rather than preempt (the default).
    #[default]
    BorrowingOverPreemption,
    /// Preempt rather than borrow.
    PreemptionOverBorrowing,
}

/// `flavorFungibility`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fungibility {
    /// `whenCanBorrow`.
    pub when_can_borrow: Search,
    /// `whenCanPreempt`.
    pub when_can_preempt: Search,
    /// `preference`.
    pub preference: Preference,
}

impl Default for Fungibility {
    fn default() -> Self {
        Self {
            when_can_borrow: Search::MayStop,
            when_can_preempt: Search::TryNext,
            preference: Preference::default(),
        }
    }
}

/// `fairSharing.weight`, in billionths: how much of what is lent is one's fair part, compared with one's siblings.
///
/// 0 gives a right to nothing beyond one's own quota. Weights above 2^64 billionths count as that much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Weight(u64);

impl Weight {
    /// From billionths; below zero, which the API refuses, is 0.
    pub fn from_nanos(nanos: i128) -> Self {
        Self(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX))
    }

    /// From a number, to the billionth.
    #[allow(clippy::cast_possible_truncation, reason = "casts of floats saturate, and so does a weight")]
    pub fn from_number(number: f64) -> Self {
        Self::from_nanos((number * 1e9).round() as i128)
    }

    /// In billionths.
    pub fn nanos(self) -> u64 {
        self.0
    }
}

impl Default for Weight {
    /// 1, as where none is given.
    fn default() -> Self {
        Self(1_000_000_000)
    }
}

/// `admissionScope.admissionMode`: whose turn it is among a ClusterQueue's LocalQueues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AdmissionMode {
    /// `NoAdmissionFairSharing`: it does not matter from which one a workload comes.
    #[default]
    NoFairSharing,
    /// `UsageBasedAdmissionFairSharing`: who has used less comes first.
    UsageBasedFairSharing,
}

/// A ClusterQueue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterQueue {
    /// Its name.
    pub name: ClusterQueueName,
    /// Its uid.
    pub uid: Uid,
    /// `cohortName`.
    pub cohort: Option<CohortName>,
    /// `resourceGroups`.
    pub groups: Vec<ResourceGroup>,
    /// `queueingStrategy`.
    pub strategy: QueueingStrategy,
    /// `namespaceSelector`; `None` matches no namespace.
    pub namespace_selector: Option<LabelSelector>,
    /// `preemption`.
    pub preemption: Preemption,
    /// `flavorFungibility`.
    pub fungibility: Fungibility,
    /// `fairSharing.weight`.
    pub weight: Weight,
    /// `admissionScope.admissionMode`.
    pub admission_mode: AdmissionMode,
    /// `stopPolicy`.
    pub stop: StopPolicy,
    /// Whether it has a deletion timestamp.
    pub terminating: bool,
    /// The admission checks it asks for. Of two for one check the last one counts.
    pub admission_checks: Vec<CheckRule>,
    /// Flavors of which it is known only later where their nodes are, because an admission check provides them: places are
    /// found when the check is passed. The engine works it out from the checks.
    pub provisioned: BTreeSet<FlavorName>,
    /// What else of its spec cannot be honoured (unsupported or wrong), in words; anything makes it inactive.
    pub defects: Vec<String>,
}

/// `admissionChecksStrategy.admissionChecks[]` of a ClusterQueue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckRule {
    /// The check.
    pub check: CheckName,
    /// The flavors whose workloads have to pass it; empty is all of the queue's.
    pub on_flavors: BTreeSet<FlavorName>,
}

/// An AdmissionCheck.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmissionCheck {
    /// Its name.
    pub name: CheckName,
    /// Its uid.
    pub uid: Uid,
    /// Who answers it.
    pub controller: CheckController,
    /// Whether its condition `Active` is true: somebody answers it.
    pub active: bool,
}

/// Who answers a check, as far as that decides anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckController {
    /// Nodes are asked of an autoscaler (`kueue.x-k8s.io/provisioning-request`).
    ProvisioningRequest,
    /// The workload runs in another cluster (`kueue.x-k8s.io/multikueue`), which is not supported.
    MultiKueue,
    /// Anybody else.
    Other,
}

/// A Cohort.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cohort {
    /// Its name.
    pub name: CohortName,
    /// Its uid.
    pub uid: Uid,
    /// `parentName`.
    pub parent: Option<CohortName>,
    /// `resourceGroups`: a pool of its own on top of what its members lend.
    pub groups: Vec<ResourceGroup>,
    /// `fairSharing.weight`.
    pub weight: Weight,
}

/// A LocalQueue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalQueue {
    /// Namespace and name.
    pub key: LocalQueueKey,
    /// Its uid.
    pub uid: Uid,
    /// `clusterQueue`.
    pub cluster_queue: ClusterQueueName,
    /// `stopPolicy`.
    pub stop: StopPolicy,
    /// Whether it is being deleted.
    pub terminating: bool,
    /// `fairSharing.weight`.
    pub weight: Weight,
}
