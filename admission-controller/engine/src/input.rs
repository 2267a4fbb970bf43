//! What the engine is told: the objects of `kueue.x-k8s.io`, read, checked and reduced to what decides.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::node::{NodeSelector, Taint, Toleration};
use model::rare::{Plain, Rare};
use model::selector::{LabelSelector, Labels};
use model::{ResourceList, ResourceName};

use crate::decision::EvictReason;
use crate::history::Amounts;
use crate::names::{CheckName, ClusterQueueName, CohortName, FlavorName, LocalQueueKey, Uid};
use crate::topology::{self, Assignment, Node, SliceLayer, Spread};

/// One change of the world. Deletions name the uid, so that a late one cannot remove a successor of the same name.
#[derive(Clone, Debug)]
pub enum Event {
    /// A ResourceFlavor was added or changed.
    Flavor(Flavor),
    /// A ResourceFlavor is gone.
    FlavorGone(FlavorName, Uid),
    /// A Topology was added or changed: its name and the node labels of its levels, outermost first.
    Topology(String, Vec<String>),
    /// A Topology is gone.
    TopologyGone(String),
    /// A node was added or changed.
    Node(Node),
    /// A node is gone.
    NodeGone(Arc<str>),
    /// A pod that is not placed by topology asks for this much of this node.
    Pod(Uid, Arc<str>, Arc<ResourceList>),
    /// Such a pod is gone, or has ended.
    PodGone(Uid),
    /// A ClusterQueue was added or changed.
    ClusterQueue(ClusterQueue),
    /// A ClusterQueue is gone.
    ClusterQueueGone(ClusterQueueName, Uid),
    /// A Cohort was added or changed.
    Cohort(Cohort),
    /// A Cohort is gone; queues that name it still share an implicit one without limits.
    CohortGone(CohortName, Uid),
    /// A LocalQueue was added or changed.
    LocalQueue(LocalQueue),
    /// A LocalQueue is gone.
    LocalQueueGone(LocalQueueKey, Uid),
    /// What the status of a LocalQueue says it has used. It counts until the engine decides: from then on it keeps account
    /// itself.
    LocalQueueHistory(LocalQueueKey, Amounts),
    /// An AdmissionCheck was added or changed.
    AdmissionCheck(AdmissionCheck),
    /// An AdmissionCheck is gone.
    AdmissionCheckGone(CheckName, Uid),
    /// A namespace was added, or its labels changed.
    Namespace(Arc<str>, Labels),
    /// A namespace is gone.
    NamespaceGone(Arc<str>),
    /// A Workload was added or changed.
    Workload(Box<Workload>),
    /// A Workload's pods will ask for something else than was known, though the Workload itself did not change: what the
    /// API server adds to pods has changed. Given are its pod sets and its defect. Who holds quota keeps what was granted.
    Requests(Uid, Arc<[PodSet]>, Option<String>),
    /// A Workload is gone.
    WorkloadGone(Uid),
}

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
    /// `fairSharing.weight`.
    pub weight: Weight,
}

/// One pod set of a Workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodSet {
    /// Its name.
    pub name: String,
    /// How many pods, without those that are done and whose quota was given back (`reclaimablePods`).
    pub count: i64,
    /// How many are done. Who is admitted in part is given fewer than all of them were, done or not.
    pub done: i64,
    /// `minCount`: so few of all, done or not, would do, where the workload may be admitted in part.
    pub min_count: Option<i64>,
    /// What each pod asks for, in base units.
    pub requests: ResourceList,
    /// The template's `nodeSelector`.
    pub node_selector: Labels,
    /// The template's required node affinity.
    pub affinity: Option<NodeSelector>,
    /// The template's preferred node affinity.
    pub preferences: Vec<topology::Preference>,
    /// The template's tolerations.
    pub tolerations: Vec<Toleration>,
    /// What each pod asks of its node, in base units: `requests` before anything is excluded or transformed.
    pub pod_requests: Arc<ResourceList>,
    /// `topologyRequest`; `None` where no topology is asked for.
    pub topology: Option<TopologyWish>,
    /// `topologyRequest.podSetGroupName`: pod sets of one group get the same flavors.
    pub group: Option<String>,
}

/// How near to one another pods shall be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TopologyWish {
    /// All together.
    pub spread: Spread,
    /// In slices, outermost first.
    pub layers: Vec<SliceLayer>,
}

impl TopologyWish {
    /// The levels it names.
    pub fn levels(&self) -> impl Iterator<Item = &str> {
        let whole = match &self.spread {
            Spread::Required(level) | Spread::Preferred(level) => Some(&**level),
            Spread::SlicesOnly | Spread::Unconstrained => None,
        };
        whole.into_iter().chain(self.layers.iter().map(|layer| &*layer.level))
    }
}

impl PodSet {
    /// What all its pods ask for together. It stops at 64 bits, as Kueue's sums do: no quota is that large.
    pub fn total(&self) -> ResourceList {
        let each = self.requests.iter();
        each.map(|(resource, amount)| (resource.clone(), amount.saturating_mul(self.count))).collect()
    }
}

/// What one pod set was granted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodSetAssignment {
    /// The pod set.
    pub name: String,
    /// The flavor each resource is taken from.
    pub flavors: BTreeMap<ResourceName, FlavorName>,
    /// What all its pods together use.
    pub usage: ResourceList,
    /// How many pods.
    pub count: i64,
    /// Where they go.
    pub topology: Option<Arc<Assignment>>,
    /// Whether that is, or was, still to be found when the quota was given.
    pub delayed: Option<DelayedTopology>,
}

/// `delayedTopologyRequest` of an assignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DelayedTopology {
    /// Places are to be found when all checks are passed.
    Pending,
    /// They are found.
    Ready,
}

/// What an admission check that is passed says of the nodes of a pod set (`status.admissionChecks[].podSetUpdates`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodSetUpdate {
    /// The pod set.
    pub name: String,
    /// Labels its nodes have besides.
    pub node_selector: Labels,
    /// Taints it tolerates besides.
    pub tolerations: Vec<Toleration>,
}

/// `status.admission`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    /// The queue whose quota is used.
    pub cluster_queue: ClusterQueueName,
    /// What each pod set was granted.
    pub pod_sets: Vec<PodSetAssignment>,
}

impl Admission {
    /// Whether places of some pods are to be found later.
    pub fn awaits_places(&self) -> bool {
        self.pod_sets
            .iter()
            .any(|one| one.topology.is_none() && one.delayed == Some(DelayedTopology::Pending))
    }
}

/// What a Workload's own status says of its quota.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// It has none.
    #[default]
    Pending,
    /// It has quota.
    Reserved {
        /// Which.
        admission: Arc<Admission>,
        /// Whether condition Admitted is true.
        admitted: bool,
        /// Whether condition Evicted is true: its quota comes back when its pods are gone.
        evicted: bool,
        /// When it got it, in milliseconds since the epoch.
        since_ms: i64,
    },
    /// It has none and wants none for now.
    OnHold,
    /// It needs none any more.
    Finished,
}

/// An eviction that is certain, unless the workload changes before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leave {
    /// Its time, in milliseconds since the epoch.
    pub at_ms: i64,
    /// Why.
    pub reason: EvictReason,
}

/// Why a workload that waits is not looked at, according to its status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeptOut {
    /// Pods of its group are gone, and others have to take their places first.
    ReplacementPods,
    /// It was put off for this reason, which whoever gave it has to take back.
    NotRequeued(Arc<str>),
}

/// A Workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Its uid.
    pub uid: Uid,
    /// Its resourceVersion as a number: events older than what the engine knows are ignored.
    pub version: u64,
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name, for reports.
    pub name: Arc<str>,
    /// `queueName`.
    pub queue: Option<Arc<str>>,
    /// `priority`, with the boost that an annotation gives.
    pub priority: i32,
    /// `priority` alone: what people are shown.
    pub base_priority: i32,
    /// What orders it among equals: its creation, or the eviction that sends it to the back. Milliseconds since the epoch.
    pub queued_at_ms: i64,
    /// `active`.
    pub active: bool,
    /// `podSets`.
    pub pod_sets: Arc<[PodSet]>,
    /// Whether an admission check wants it to try again later, or never: it waits until that is settled.
    pub checks_failed: bool,
    /// Whether it has admission checks, and all of them are passed.
    pub checks_passed: bool,
    /// Whether its pods can come back elsewhere: one that *is* a pod ends with it.
    pub movable: bool,
    /// Whether all its pods were seen ready; looked at where admissions wait for that.
    pub pods_ready: bool,
    /// Whether it has a preemption gate that is closed.
    pub preemption_gated: bool,
    /// What its status says.
    pub standing: Standing,
    /// What few have.
    pub seldom: Rare<Seldom>,
}

/// What few workloads have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seldom {
    /// What the checks say that are passed.
    pub updates: Vec<PodSetUpdate>,
    /// `status.unhealthyNodes`: nodes that failed under it.
    pub unhealthy_nodes: Vec<Arc<str>>,
    /// The checks that it has passed.
    pub passed: BTreeSet<CheckName>,
    /// It is not looked at before, in milliseconds since the epoch: `requeueState.requeueAt`.
    pub not_before_ms: Option<i64>,
    /// When and why it is to give its quota back, if nothing changes until then.
    pub leave: Option<Leave>,
    /// Annotation `kueue.x-k8s.io/workload-slice-replacement-for`: the name of the slice of an elastic job, in the same
    /// namespace, that it replaces.
    pub replaces: Option<Arc<str>>,
    /// The only flavors it may have; `None` allows all.
    pub allowed_flavors: Option<BTreeSet<FlavorName>>,
    /// Who holds it back (annotation `kueue.x-k8s.io/admission-gated-by`): it is in no queue until nobody does.
    pub gated_by: Option<Arc<str>>,
    /// Why it is not looked at though nothing is wrong with it.
    pub kept_out: Option<KeptOut>,
    /// Why it can never be admitted as it is written, in words: a wrong number, a feature that is not supported.
    pub defect: Option<String>,
}

impl Plain for Seldom {
    fn plain() -> &'static Self {
        static PLAIN: Seldom = Seldom {
            updates: Vec::new(),
            unhealthy_nodes: Vec::new(),
            passed: BTreeSet::new(),
            not_before_ms: None,
            leave: None,
            replaces: None,
            allowed_flavors: None,
            gated_by: None,
            kept_out: None,
            defect: None,
        };
        &PLAIN
    }
}

impl Workload {
    /// Whether it waits for quota, of whatever queue, or would if nothing were wrong with it: not one that was deactivated, is
    /// held back, lacks pods, or is on hold (Kueue `IsAdmissible` in `pkg/workload`). Who has quota or has ended does not.
    pub fn wants_quota(&self) -> bool {
        let lacks_pods = self.seldom.kept_out == Some(KeptOut::ReplacementPods);
        self.active && self.standing == Standing::Pending && self.seldom.gated_by.is_none() && !lacks_pods
    }
}
