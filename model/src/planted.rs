//! Bugs on purpose, for testing the tests.
//!
//! A checker that finds nothing proves nothing: the fuzzer must find each of these when it alone is switched on. They are
//! compiled in by the feature `planted-bugs` only, which no shipped program enables; without it [`Planted::is`] is always
//! false and costs nothing.

/// A mistake the peers made, or that this design invites.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bug {
    /// Quota reserved by an admission that the server has not confirmed yet is not counted (Kueue #11480).
    ForgetAssumedAdmission,
    /// An admission that is being written is taken back for another workload as if nobody had been told (Kueue #11480).
    PreemptAssumed,
    /// Quota is given back when a workload is evicted, not when its pods are gone.
    ReleaseQuotaAtEviction,
    /// The borrowing limit is not looked at.
    IgnoreBorrowingLimit,
    /// What a queue does not lend is lent.
    IgnoreLendingLimit,
    /// Taints of flavors are not looked at.
    IgnoreFlavorTaints,
    /// Others are reclaimed from whose queue borrows nothing.
    ReclaimFromOwners,
    /// A workload is admitted before its checks are passed.
    AdmitBeforeChecks,
    /// Places that one workload was given are given to the next.
    ForgetPlaces,
    /// Pods are let go without being told where to.
    SendPodsAnywhere,
    /// Pods that were given a place are never let go.
    KeepGate,
    /// Older workloads of equal priority are preempted although the policy says lower.
    PreemptEqualPriority,
    /// Everybody that policy allows is preempted, needed or not.
    PreemptEverybody,
    /// A workload that did not fit is not looked at again when capacity comes back.
    LoseWakeups,
    /// The job is released when its admission is decided, before the server has it.
    ReleaseBeforeAdmission,
    /// A job is told apart by its name, so that one created anew inherits the old one's admission.
    NameInsteadOfUid,
    /// A job is patched whatever its uid.
    WriteByName,
    /// A finished workload is queued again after a restart (Kueue #1654).
    ReadmitFinished,
    /// Suspending the evicted workload's job is forgotten.
    EvictWithoutSuspending,
    /// The status is written even when nothing changed.
    RewriteStatus,
    /// Writes go on after the lease was lost.
    WriteWithoutLease,
    /// Conditions that others wrote are dropped by our patch.
    DropForeignConditions,
    /// A ClusterQueue that is changed adds its quota to its cohort once more (Kueue #2678).
    CountQuotaTwice,
    /// What a workload held is given back twice.
    ReleaseTwice,
    /// What a deleted workload held stays counted.
    LeakUsage,
    /// A stopped ClusterQueue goes on admitting.
    AdmitWhenStopped,
    /// A ClusterQueue that is drained keeps its workloads.
    ForgetToDrain,
    /// Room promised to a preemptor is not kept for it (Kueue #13662).
    ForgetPromise,
    /// A preemptor does not get its room when the victims have left.
    KeepNoPromise,
    /// A workload of many pods is counted as one pod.
    CountOnePod,
    /// A head that does not fit blocks a best-effort queue (Kueue #6947).
    BlockBehindHead,
    /// A job ends, and its Workload is never finished.
    ForgetFinish,
    /// A Workload is finished while its job still runs.
    FinishTooEarly,
    /// The pods of an evicted workload are gone, and its quota is never given back (Kueue #14811).
    ForgetToRelease,
    /// The quota is given back, and `status.admission` stays.
    LeaveAdmission,
    /// What is counted in LocalQueues is not brought up to date.
    ForgetToCount,
    /// What is counted in ClusterQueues is not brought up to date.
    ForgetQueueCounts,
    /// Why a workload waits is not told (Kueue #7845).
    SayNothing,
    /// What a workload was told first it is told for good, whatever it waits for later.
    SayOnce,
    /// Who asks for more than there could ever be is told to wait for quota.
    SayThatQuotaComes,
    /// Requests for nodes stay when the quota that they were made with is gone.
    KeepNodeRequests,
    /// Nodes count as there as soon as they are asked for.
    TakeNodesForGranted,
    /// A ClusterQueue is not put into its cohort.
    ForgetCohort,
    /// The Workload of a job that is gone stays.
    KeepWithoutJob,
    /// A Workload that is deleted is never let go.
    ForgetFinalizer,
    /// A workload that was preempted is given its quota back at once, its pods still running.
    AdmitTwice,
    /// The Workload of a job gets another name each time it is sent: one whose answer was lost has a twin.
    NameAnew,
    /// What a queue does not use of its own quota is told as borrowed, and so less than nothing is.
    BorrowBelowNothing,
    /// A workload that is deactivated keeps its quota.
    KeepDeactivated,
    /// More pods of an elastic job are let go than its slice was granted.
    OpenEveryGate,
    /// Pods of an elastic job that have quota are never let go.
    KeepElasticGate,
    /// The slice of an elastic job that shrank stays as large as it was.
    ForgetToResize,
    /// An elastic job is stopped to be made smaller.
    StopToShrink,
    /// What the slice holds that is replaced is asked for once more.
    CountSlicesTwice,
    /// A Workload that somebody else made for a job is deleted.
    DeletePrebuilt,
    /// A job gets a Workload, although it names one that somebody else is to make.
    IgnorePrebuilt,
    /// Pods are bound before the plan is durable.
    BindBeforePlan,
    /// A gang that lost a member is left as it is (Volcano #5805).
    LeaveHalfGang,
    /// Members are bound one by one as they fit (Volcano #6010).
    BindPartOfGang,
    /// A bind that the server has not confirmed yet is not counted.
    ForgetAssumedBind,
    /// Pods that another scheduler bound are not counted.
    IgnoreForeignPods,
    /// Taints are not looked at.
    IgnoreTaints,
    /// A pod of a managed job is bound although its workload is not admitted.
    BindUnadmitted,
    /// More pods are bound than were granted (Kueue #12045).
    BindMoreThanGranted,
    /// After a restart the plans of the predecessor are not finished.
    ForgetPlans,
    /// A device that is unhealthy stays advertised and is handed out.
    HandOutUnhealthy,
    /// The containers are told of devices other than those allocated.
    TellWrongDevices,
    /// After the kubelet restarted the agent does not register again (NVIDIA #1228).
    ForgetToReregister,
}

impl Bug {
    /// All of them, in the order in which they are reported.
    pub const ALL: &[Self] = &[
        Self::ForgetAssumedAdmission,
        Self::PreemptAssumed,
        Self::ReleaseQuotaAtEviction,
        Self::IgnoreBorrowingLimit,
        Self::IgnoreLendingLimit,
        Self::IgnoreFlavorTaints,
        Self::ReclaimFromOwners,
        Self::AdmitBeforeChecks,
        Self::ForgetPlaces,
        Self::SendPodsAnywhere,
        Self::KeepGate,
        Self::PreemptEqualPriority,
        Self::PreemptEverybody,
        Self::LoseWakeups,
        Self::ReleaseBeforeAdmission,
        Self::NameInsteadOfUid,
        Self::WriteByName,
        Self::ReadmitFinished,
        Self::EvictWithoutSuspending,
        Self::RewriteStatus,
        Self::WriteWithoutLease,
        Self::DropForeignConditions,
        Self::CountQuotaTwice,
        Self::ReleaseTwice,
        Self::LeakUsage,
        Self::AdmitWhenStopped,
        Self::ForgetToDrain,
        Self::ForgetPromise,
        Self::KeepNoPromise,
        Self::CountOnePod,
        Self::BlockBehindHead,
        Self::ForgetFinish,
        Self::FinishTooEarly,
        Self::ForgetToRelease,
        Self::LeaveAdmission,
        Self::ForgetToCount,
        Self::ForgetQueueCounts,
        Self::SayNothing,
        Self::SayOnce,
        Self::SayThatQuotaComes,
        Self::KeepNodeRequests,
        Self::TakeNodesForGranted,
        Self::ForgetCohort,
        Self::KeepWithoutJob,
        Self::ForgetFinalizer,
        Self::AdmitTwice,
        Self::NameAnew,
        Self::BorrowBelowNothing,
        Self::KeepDeactivated,
        Self::OpenEveryGate,
        Self::KeepElasticGate,
        Self::ForgetToResize,
        Self::StopToShrink,
        Self::CountSlicesTwice,
        Self::DeletePrebuilt,
        Self::IgnorePrebuilt,
        Self::BindBeforePlan,
        Self::LeaveHalfGang,
        Self::BindPartOfGang,
        Self::ForgetAssumedBind,
        Self::IgnoreForeignPods,
        Self::IgnoreTaints,
        Self::BindUnadmitted,
        Self::BindMoreThanGranted,
        Self::ForgetPlans,
        Self::HandOutUnhealthy,
        Self::TellWrongDevices,
        Self::ForgetToReregister,
    ];
}

/// Which bug, if any, is switched on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Planted {
    #[cfg(feature = "planted-bugs")]
    bug: Option<Bug>,
}

impl Planted {
    /// None.
    pub const NONE: Self = Self {
        #[cfg(feature = "planted-bugs")]
        bug: None,
    };

    /// This one alone.
    #[cfg(feature = "planted-bugs")]
    pub const fn one(bug: Bug) -> Self {
        Self { bug: Some(bug) }
    }

    /// Whether this bug is switched on.
    #[inline]
    pub fn is(self, bug: Bug) -> bool {
        #[cfg(feature = "planted-bugs")]
        {
            self.bug == Some(bug)
        }
        #[cfg(not(feature = "planted-bugs"))]
        {
            let _ = bug;
            false
        }
    }
}
