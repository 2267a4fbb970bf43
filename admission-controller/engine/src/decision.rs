//! What the engine answers.

use std::sync::Arc;

use crate::input::Admission;
use crate::names::ClusterQueueName;
use crate::reason::PendingReason;
use crate::uid::Uid;
use model::reasons::workload::{evicted, pods_ready, preempted};

/// Identifies a decision whose outcome the engine waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DecisionId(pub u64);

/// Something to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Give quota.
    Reserve(Reserve),
    /// Take a workload's pods away, and with them its quota.
    Evict(Evict),
    /// Finish this slice of an elastic job: another has its quota now ([`Engine::replaced_by`](crate::Engine::replaced_by)). It is told
    /// again until it is seen to be finished.
    Replace(Uid),
    /// Take quota back from a workload that was not admitted yet.
    Withdraw(Withdraw),
    /// Say why a workload that has quota finds no places yet.
    SetUnplaced(SetUnplaced),
}

impl Decision {
    /// Of one whose outcome is awaited, what it is given back with.
    pub fn id(&self) -> Option<DecisionId> {
        match self {
            Self::Reserve(one) => Some(one.id),
            Self::Evict(one) => Some(one.id),
            Self::Withdraw(one) => Some(one.id),
            Self::Replace(_) | Self::SetUnplaced(_) => None,
        }
    }
}

/// A reservation taken back before it became an admission: its queue is stopped or gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Withdraw {
    /// To be given back to [`Engine::written`](crate::Engine::written).
    pub id: DecisionId,
    /// The workload.
    pub workload: Uid,
    /// The version of the workload on which this was decided, to be carried as resourceVersion.
    pub based_on: u64,
    /// Why, which is also what it waits for from now on.
    pub reason: PendingReason,
}

/// Quota for one workload, and places on nodes where it wants some. One that has its quota already gets its places. The write
/// must carry `based_on` as its resourceVersion: that is what makes any newer event proof that it did not and will not happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserve {
    /// To be given back to [`Engine::written`](crate::Engine::written).
    pub id: DecisionId,
    /// The workload.
    pub workload: Uid,
    /// The version of the workload on which this was decided.
    pub based_on: u64,
    /// What it gets.
    pub admission: Arc<Admission>,
}

/// Why a workload is evicted: the reason of condition `Evicted`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvictReason {
    /// For another workload.
    Preempted(PreemptionReason),
    /// Its ClusterQueue has `stopPolicy: HoldAndDrain`.
    ClusterQueueStopped,
    /// Its LocalQueue has `stopPolicy: HoldAndDrain`.
    LocalQueueStopped,
    /// It has `active: false`.
    Deactivated,
    /// A node failed under it, and there is none to replace it.
    NodeFailures,
    /// An admission check wants it to try again later.
    AdmissionCheck,
    /// Its pods were not ready in time.
    PodsReadyTimeout(Unready),
}

/// Since when the pods of a workload were not ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unready {
    /// They never were since it was admitted.
    SinceStart,
    /// They were, and some have failed.
    SinceFailure,
}

impl Unready {
    /// Kueue's token.
    pub fn token(self) -> &'static str {
        match self {
            Self::SinceStart => pods_ready::WAIT_FOR_START,
            Self::SinceFailure => pods_ready::WAIT_FOR_RECOVERY,
        }
    }
}

impl EvictReason {
    /// Kueue's token.
    pub fn token(self) -> &'static str {
        match self {
            Self::Preempted(_) => evicted::PREEMPTED,
            Self::ClusterQueueStopped => evicted::CLUSTER_QUEUE_STOPPED,
            Self::LocalQueueStopped => evicted::LOCAL_QUEUE_STOPPED,
            Self::Deactivated => evicted::DEACTIVATED,
            Self::NodeFailures => evicted::NODE_FAILURES,
            Self::AdmissionCheck => evicted::ADMISSION_CHECK,
            Self::PodsReadyTimeout(_) => evicted::PODS_READY_TIMEOUT,
        }
    }
}

/// By which right a workload was preempted: the reason of condition `Preempted`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PreemptionReason {
    /// A more important workload of the same queue.
    InClusterQueue,
    /// A queue in the cohort wants back what it lent.
    InCohortReclamation,
    /// A more important workload of the cohort, itself borrowing.
    InCohortReclaimWhileBorrowing,
    /// A queue of the cohort that has less of what is lent than its fair share.
    InCohortFairSharing,
}

impl PreemptionReason {
    /// Kueue's token.
    pub fn token(self) -> &'static str {
        match self {
            Self::InClusterQueue => preempted::IN_CLUSTER_QUEUE,
            Self::InCohortReclamation => preempted::IN_COHORT_RECLAMATION,
            Self::InCohortReclaimWhileBorrowing => preempted::IN_COHORT_RECLAIM_WHILE_BORROWING,
            Self::InCohortFairSharing => preempted::IN_COHORT_FAIR_SHARING,
        }
    }
}

/// Eviction of one workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evict {
    /// To be given back to [`Engine::written`](crate::Engine::written).
    pub id: DecisionId,
    /// Who goes.
    pub victim: Uid,
    /// The version of the victim on which this was decided, to be carried as resourceVersion.
    pub based_on: u64,
    /// Why.
    pub reason: EvictReason,
    /// For whom, when preempted.
    pub preemptor: Option<Uid>,
    /// The preemptor's queue with its cohorts from the root: `/root/team/queue`.
    pub preemptor_path: String,
    /// The victim's queue likewise.
    pub victim_path: String,
}

/// A reason to wait that has changed: see [`Engine::take_reasons`](crate::Engine::take_reasons).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewReason {
    /// The workload.
    pub workload: Uid,
    /// The ClusterQueue it waits in, where it has one.
    pub cluster_queue: Option<ClusterQueueName>,
    /// Why, with numbers. Those who wait for the same share it.
    pub reason: Arc<PendingReason>,
}

/// Why there are no places: for the one who looks, since nothing about the workload changes by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetUnplaced {
    /// The workload.
    pub workload: Uid,
    /// Why, with numbers.
    pub reason: Arc<PendingReason>,
}

/// What became of a [`Reserve`], an [`Evict`] or a [`Withdraw`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is written; the object now has this version.
    Written(u64),
    /// The object has changed meanwhile, or nobody knows whether the write happened. What was assumed stays assumed until
    /// a newer event of the object tells, so the caller must read it.
    Unsettled,
    /// It was certainly not written and may be tried again at once (a lost lease, a stop before it was sent).
    NotWritten,
    /// The API server does not take it, with these words. It is tried again after a minute, every time more after
    /// twice as long, up to an hour; an admission also when the workload asks for something else.
    Refused(String),
    /// Whoever decides in our place decided otherwise. It is not tried again before the object changes.
    Overruled(String),
}
