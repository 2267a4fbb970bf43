//! What an administrator chooses.

use crate::fair::FairSharing;
use crate::history::AdmissionFairSharing;
use crate::topology::Rules;

/// What an administrator chooses once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What to do about resources that a ClusterQueue has no quota for.
    pub undeclared: Undeclared,
    /// Feature gate `PartialAdmission`: a workload whose pod sets have a `minCount` is admitted with fewer pods where all of
    /// them do not fit.
    pub partial_admission: bool,
    /// Feature gates `MultiKueueOrchestratedPreemption` and `ConcurrentAdmission`, one of which will do: a workload with a closed
    /// preemption gate preempts nobody.
    pub preemption_gates: bool,
    /// Feature gate `PrioritySortingWithinCohort`: of heads that borrow alike, the one of higher priority comes first.
    pub priority_sorting: bool,
    /// Feature gate `RecomputeAssignmentUponPreemptionTargetsOverlap`: a head whose victims leave for another head of the same
    /// cycle looks for others at once.
    pub recompute_overlapping_targets: bool,
    /// Feature gate `FlavorFungibilityPreserveScanProgress`: a search of flavors goes on where the one of the cycle before
    /// stopped, though quota has come back since.
    pub preserve_scan_progress: bool,
    /// Feature gate `SchedulingEquivalenceHashing`: only [`Engine::waiting_in`](crate::Engine::waiting_in), for comparison with
    /// Kueue's tables, goes by it. Who asks for the same is judged together without it, too.
    pub equivalence_hashing: bool,
    /// Kueue's `waitForPodsReady.blockAdmission`: nobody is admitted before the pods of all who were are ready.
    pub block_admission: bool,
    /// Whether what is lent is shared out fairly, and whom a queue may then displace.
    pub fair_sharing: Option<FairSharing>,
    /// Feature gate `FairSharingPrioritizeNonBorrowing`: where sharing is fair, who asks for nothing that its queue or cohort would
    /// have to borrow comes first, whatever its share.
    pub non_borrowing_first: bool,
    /// Feature gate `FairSharingPreemptWithinNominal`: where sharing is fair, a queue within its quota takes it back from borrowers
    /// whatever the shares.
    pub preempt_within_nominal: bool,
    /// Whether LocalQueues of a ClusterQueue that wants it take turns by what they have used.
    pub admission_fair_sharing: Option<AdmissionFairSharing>,
    /// Placement by topology.
    pub topology: TopologySettings,
}

/// What an administrator chooses about placement by topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopologySettings {
    /// Feature gate `TopologyAwareScheduling`: without it topologies are not looked at.
    pub enabled: bool,
    /// How places are chosen.
    pub rules: Rules,
    /// Feature gate `TASRecomputeAssignmentWithinSchedulingCycle`: a head whose places others of its cycle took looks for
    /// others at once.
    pub recompute: bool,
    /// Feature gate `TASFailedNodeReplacementFailFast`: where a failed node cannot be replaced at once, the workload is
    /// evicted.
    pub fail_fast: bool,
    /// Feature gate `SkipReassignmentForPodOwnedWorkloads`: a workload that is one pod keeps its place when the node fails.
    pub keep_single_pods: bool,
    /// Feature gate `TASHandleOverlappingFlavors`: what is used of a node counts for every flavor that has the node, where
    /// their topologies end in the host name. Without it, for the flavor alone that it was given by.
    pub shared_nodes: bool,
}

impl Default for TopologySettings {
    /// Kueue's defaults.
    fn default() -> Self {
        Self {
            enabled: true,
            rules: Rules::default(),
            recompute: true,
            fail_fast: true,
            keep_single_pods: true,
            shared_nodes: true,
        }
    }
}

impl Default for Settings {
    /// Kueue's defaults.
    fn default() -> Self {
        Self {
            undeclared: Undeclared::default(),
            partial_admission: true,
            preemption_gates: false,
            priority_sorting: true,
            recompute_overlapping_targets: true,
            preserve_scan_progress: true,
            equivalence_hashing: true,
            block_admission: false,
            fair_sharing: None,
            non_borrowing_first: true,
            preempt_within_nominal: true,
            admission_fair_sharing: None,
            topology: TopologySettings::default(),
        }
    }
}

/// Kueue's `resources.quotaCheckStrategy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Undeclared {
    /// `BlockUndeclared`: a workload that asks for them is not admitted.
    #[default]
    Block,
    /// `IgnoreUndeclared`: they are not counted.
    Ignore,
}
