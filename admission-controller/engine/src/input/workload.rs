//! Workloads: what they ask for, and what their status says.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::node::{NodeSelector, Toleration};
use model::rare::{Plain, Rare};
use model::selector::Labels;
use model::{ResourceList, ResourceName};

use crate::decision::EvictReason;
use crate::few::Few;
use crate::names::{CheckName, ClusterQueueName, FlavorName};
use crate::topology::{self, Assignment, SelectorConflict, SliceLayer, Spread};
use crate::uid::Uid;

/// One pod set of a Workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodSet {
    /// Its name.
    pub name: Arc<str>,
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
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
            Spread::SlicesOnly | Spread::Unconstrained | Spread::Unsaid => None,
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
    pub name: Arc<str>,
    /// The flavor each resource is taken from.
    pub flavors: Few<ResourceName, FlavorName>,
    /// What all its pods together use.
    pub usage: Few<ResourceName, i64>,
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
    pub name: Arc<str>,
    /// Labels its nodes have besides.
    pub node_selector: Labels,
    /// Taints it tolerates besides.
    pub tolerations: Vec<Toleration>,
    /// What it says of the pods' labels and annotations, where these, or a check before, say otherwise.
    pub conflict: Option<SelectorConflict>,
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
    /// `priority`, with the boost that an annotation gives, as far as 32 bits go: there is one for every place in a queue.
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
    /// Whether it belongs to somebody else: a job, or pods.
    pub owned: bool,
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
    /// Whether it is a slice of an elastic job, whose pods may become more while they run.
    pub elastic: bool,
    /// The job whose slice it is.
    pub slice_of: Option<Uid>,
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
            elastic: false,
            slice_of: None,
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
