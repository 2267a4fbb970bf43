//! Condition types, condition reasons and event reasons: the tokens a user greps for. Engines decide by them, programs write
//! them, `docs/reasons` has a page for each.
//!
//! The tokens are the peers' (Kueue's `apis/kueue/v1beta2/workload_types.go` and `clusterqueue_types.go`, Volcano's
//! `scheduling/types.go`, Kubernetes' core API) where they have one; the sentences next to them are ours and live where they
//! are produced.

/// Declares reasons that are written, and lists them.
macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $token:literal;)*) => {
        $($(#[$doc])* pub const $name: &str = $token;)*
        /// All of these.
        pub const ALL: &[&str] = &[$($token),*];
    };
}

/// The tokens that reasons of our conditions and events are made of, by what they are about. One may be in several lists.
///
/// A prefix (`DEACTIVATED_DUE_TO`, say) is listed as it is, without what follows: that is a token of another list. Not here: what
/// any of the programs says through `kit` (`kit::watch::UNDECODABLE`), and the reason of a PodGroup's condition `Scheduled` = True,
/// which in Volcano is a sentence.
pub const ALL: &[&[&str]] = &[
    workload::quota_reserved::ALL,
    workload::admitted::ALL,
    workload::evicted::ALL,
    workload::preempted::ALL,
    workload::blocked_on_preemption_gates::ALL,
    workload::waiting_for_replacement_pods::ALL,
    workload::deactivation_target::ALL,
    workload::pods_ready::ALL,
    workload::finished::ALL,
    queue::active::ALL,
    admission_check::active::ALL,
    event::ALL,
    pod::ALL,
    pod::termination_target::ALL,
    pod_group::ALL,
    gpu::ALL,
    driver::ALL,
];

/// Conditions of a Workload.
pub mod workload {
    /// The Workload holds quota in a ClusterQueue.
    pub const QUOTA_RESERVED: &str = "QuotaReserved";
    /// The Workload holds quota and all its admission checks are ready.
    pub const ADMITTED: &str = "Admitted";
    /// The Workload lost its admission; the reason says why.
    pub const EVICTED: &str = "Evicted";
    /// The Workload was evicted for another one.
    pub const PREEMPTED: &str = "Preempted";
    /// The Workload would have to preempt, and a preemption gate of it is closed.
    pub const BLOCKED_ON_PREEMPTION_GATES: &str = "BlockedOnPreemptionGates";
    /// An evicted Workload is in the queue again.
    pub const REQUEUED: &str = "Requeued";
    /// All its pods are ready, or have succeeded.
    pub const PODS_READY: &str = "PodsReady";
    /// It is about to be deactivated; the reason says why.
    pub const DEACTIVATION_TARGET: &str = "DeactivationTarget";
    /// The job ended.
    pub const FINISHED: &str = "Finished";
    /// Pods of the group have failed or are gone, and others have to take their places.
    pub const WAITING_FOR_REPLACEMENT_PODS: &str = "WaitingForReplacementPods";

    /// Reasons of `QuotaReserved`.
    pub mod quota_reserved {
        reasons! {
            /// True: quota is held.
            QUOTA_RESERVED = "QuotaReserved";
            /// No flavor suits the pods.
            NO_MATCHING_FLAVOR = "NoMatchingFlavor";
            /// It fits in principle, not now.
            WAITING_FOR_QUOTA = "WaitingForQuota";
            /// Its pods cannot be placed as their topology request wants.
            TOPOLOGY_PLACEMENT_FAILED = "TopologyPlacementFailed";
            /// It asks for more than could ever be free.
            EXCEEDS_MAX_QUOTA = "ExceedsMaxQuota";
            /// Its victims have not left yet.
            WAITING_FOR_PREEMPTED_WORKLOADS = "WaitingForPreemptedWorkloads";
            /// The Workload or a queue it needs is wrong.
            MISCONFIGURED = "Misconfigured";
            /// It is deactivated.
            DEACTIVATED = "Deactivated";
            /// A queue it needs is stopped.
            SUSPENDED = "Suspended";
            /// Somebody holds it back; or it would have to preempt, and has a preemption gate that is closed.
            ADMISSION_GATED = "AdmissionGated";
            /// Pods of workloads that were admitted before it are not ready yet.
            WAITING_FOR_PODS_READY = "WaitingForPodsReady";
            /// Nobody has looked at it yet.
            PENDING_EVALUATION = "PendingEvaluation";
            /// Its job can have no pods for now, and so wants no quota.
            ON_HOLD = "OnHold";
        }
    }

    /// Reasons of `Admitted`.
    pub mod admitted {
        reasons! {
            /// True: it may run.
            ADMITTED = "Admitted";
            /// It holds no quota.
            NO_RESERVATION = "NoReservation";
            /// Its places are chosen when the checks are ready, and are not chosen yet.
            PENDING_DELAYED_TOPOLOGY_REQUESTS = "PendingDelayedTopologyRequests";
            /// It holds quota, and an admission check is not ready.
            UNSATISFIED_ADMISSION_CHECKS = "UnsatisfiedAdmissionChecks";
        }
    }

    /// Reasons of `Evicted`, and of `Requeued` after it.
    pub mod evicted {
        reasons! {
            /// For another workload.
            PREEMPTED = "Preempted";
            /// Its ClusterQueue was stopped and drained.
            CLUSTER_QUEUE_STOPPED = "ClusterQueueStopped";
            /// Its LocalQueue was stopped and drained.
            LOCAL_QUEUE_STOPPED = "LocalQueueStopped";
            /// It was deactivated.
            DEACTIVATED = "Deactivated";
            /// A node of it failed, and no other takes its pods.
            NODE_FAILURES = "NodeFailures";
            /// Reset to False: it holds quota again.
            QUOTA_RESERVED = "QuotaReserved";
            /// Requeued=True: it was activated again.
            REACTIVATED = "Reactivated";
            /// Requeued=True: its ClusterQueue runs again.
            CLUSTER_QUEUE_RESTARTED = "ClusterQueueRestarted";
            /// Requeued=True: its LocalQueue runs again.
            LOCAL_QUEUE_RESTARTED = "LocalQueueRestarted";
            /// An admission check asked for a retry.
            ADMISSION_CHECK = "AdmissionCheck";
            /// Its pods did not get ready in time.
            PODS_READY_TIMEOUT = "PodsReadyTimeout";
            /// Before what it was deactivated for by Kueue's rules.
            DEACTIVATED_DUE_TO = "DeactivatedDueTo";
            /// Requeued=True: the time for which it was put off is over.
            BACKOFF_FINISHED = "BackoffFinished";
        }

        /// Kueue's, of `Requeued` = False: it could not be admitted as it was written. It is understood and not written.
        pub const INADMISSIBLE: &str = "Inadmissible";
    }

    /// Reasons of `DeactivationTarget`: why the workload is to be deactivated.
    pub mod deactivation_target {
        reasons! {
            /// An admission check rejected it.
            ADMISSION_CHECK = "AdmissionCheck";
            /// It was evicted too often because its pods were not ready in time.
            REQUEUING_LIMIT_EXCEEDED = "RequeuingLimitExceeded";
            /// It was admitted for as long as it may be.
            MAXIMUM_EXECUTION_TIME_EXCEEDED = "MaximumExecutionTimeExceeded";
        }
    }

    /// Reasons of `PodsReady`.
    pub mod pods_ready {
        reasons! {
            /// False: they have not been since it was admitted, or it is not.
            WAIT_FOR_START = "WaitForStart";
            /// True: all are.
            STARTED = "Started";
            /// False: they were, and some have failed.
            WAIT_FOR_RECOVERY = "WaitForRecovery";
            /// True: all are again.
            RECOVERED = "Recovered";
        }
    }

    /// Reasons of `Preempted`.
    pub mod preempted {
        reasons! {
            /// For a workload of its own ClusterQueue.
            IN_CLUSTER_QUEUE = "InClusterQueue";
            /// A lender took its own back.
            IN_COHORT_RECLAMATION = "InCohortReclamation";
            /// A borrower of higher priority took it.
            IN_COHORT_RECLAIM_WHILE_BORROWING = "InCohortReclaimWhileBorrowing";
            /// A queue of the cohort that has less than its fair share took it.
            IN_COHORT_FAIR_SHARING = "InCohortFairSharing";
        }
    }

    /// Reasons of `BlockedOnPreemptionGates`.
    pub mod blocked_on_preemption_gates {
        reasons! {
            /// True: it waits for a gate to open.
            PREEMPTION_GATED = "PreemptionGated";
            /// Reset to False: it holds quota.
            QUOTA_RESERVED = "QuotaReserved";
        }
    }

    /// Reasons of `WaitingForReplacementPods`. While the workload is evicted it has that reason.
    pub mod waiting_for_replacement_pods {
        reasons! {
            /// True: pods have failed or are gone.
            PODS_FAILED = "PodsFailed";
            /// False: all are there.
            PODS_READY = "PodsReady";
        }
    }

    /// Reasons of `Finished`.
    pub mod finished {
        reasons! {
            /// The job completed.
            SUCCEEDED = "Succeeded";
            /// The job failed.
            FAILED = "Failed";
            /// A Workload that somebody else made describes another job.
            OUT_OF_SYNC = "OutOfSync";
            /// What the flavors add contradicts the job.
            FAILED_TO_START = "FailedToStart";
            /// The job that it was made for is gone and has left it behind.
            OWNER_NOT_FOUND = "OwnerNotFound";
            /// Another slice of the same elastic job has its quota.
            WORKLOAD_SLICE_REPLACED = "WorkloadSliceReplaced";
        }
    }
}

/// Conditions of ClusterQueues and LocalQueues.
pub mod queue {
    /// The object can do its work.
    pub const ACTIVE: &str = "Active";

    /// Reasons of `Active`.
    pub mod active {
        reasons! {
            /// True: workloads can be admitted or submitted.
            READY = "Ready";
            /// It is being deleted.
            TERMINATING = "Terminating";
            /// Its stop policy says so.
            STOPPED = "Stopped";
            /// It names a ResourceFlavor that does not exist.
            FLAVOR_NOT_FOUND = "FlavorNotFound";
            /// It names an AdmissionCheck that is not active.
            ADMISSION_CHECK_INACTIVE = "AdmissionCheckInactive";
            /// A flavor of it names a Topology that does not exist.
            TOPOLOGY_NOT_FOUND = "TopologyNotFound";
            /// It names an AdmissionCheck that does not exist.
            ADMISSION_CHECK_NOT_FOUND = "AdmissionCheckNotFound";
            /// It names several checks of MultiKueue.
            MULTIPLE_MULTI_KUEUE_ADMISSION_CHECKS = "MultipleMultiKueueAdmissionChecks";
            /// It names a check of MultiKueue for some flavors only.
            MULTI_KUEUE_ADMISSION_CHECK_APPLIED_PER_FLAVOR = "MultiKueueAdmissionCheckAppliedPerFlavor";
            /// It names a check of MultiKueue beside one that provisions nodes here.
            MULTI_KUEUE_WITH_PROVISIONING_REQUEST = "MultiKueueWithProvisioningRequest";
            /// Ours: its cohorts form a cycle.
            COHORT_CYCLE = "CohortCycle";
            /// Ours: its spec is wrong.
            MISCONFIGURED = "Misconfigured";
            /// LocalQueue: its ClusterQueue is not active.
            CLUSTER_QUEUE_IS_INACTIVE = "ClusterQueueIsInactive";
            /// LocalQueue: its ClusterQueue does not exist.
            CLUSTER_QUEUE_DOES_NOT_EXIST = "ClusterQueueDoesNotExist";
        }
    }
}

/// Conditions of AdmissionChecks. Their type `Active` is that of [`queue`].
pub mod admission_check {
    /// Reasons of `Active` of checks that ask an autoscaler for nodes.
    pub mod active {
        reasons! {
            /// True: nodes can be asked for.
            ACTIVE = "Active";
            /// False: its parameters name no settings, or some that do not exist.
            BAD_PARAMETERS_REF = "BadParametersRef";
            /// False: the API server does not serve ProvisioningRequests.
            KIND_NOT_SERVED = "KindNotServed";
        }
    }
}

/// Reasons of events.
pub mod event {
    reasons! {
        /// On a Workload: quota was reserved.
        QUOTA_RESERVED = "QuotaReserved";
        /// On a Workload: admitted.
        ADMITTED = "Admitted";
        /// On a victim: preempted.
        PREEMPTED = "Preempted";
        /// Prefix on an evicted Workload: the eviction's reason follows.
        EVICTED_DUE_TO = "EvictedDueTo";
        /// On a Workload: it has quota, and no places for its pods yet.
        SECOND_PASS_FAILED = "SecondPassFailed";
        /// On a job: released.
        STARTED = "Started";
        /// On a job: suspended after it ran.
        STOPPED = "Stopped";
        /// Another one was evicted for it.
        PREEMPTED_WORKLOAD = "PreemptedWorkload";
        /// On a Workload: an admission check rejects it.
        ADMISSION_CHECK_REJECTED = "AdmissionCheckRejected";
        /// On a Workload: it was admitted for as long as it may be.
        MAXIMUM_EXECUTION_TIME_EXCEEDED = "MaximumExecutionTimeExceeded";
        /// On a job: what the admission checks say for which it waits.
        UPDATED_ADMISSION_CHECK = "UpdatedAdmissionCheck";
        /// On a Workload: nodes were asked for.
        PROVISIONING_REQUEST_CREATED = "ProvisioningRequestCreated";
        /// On a Workload: nodes cannot be asked for.
        FAILED_CREATE = "FailedCreate";
        /// On a Workload: the state of an admission check of this program's changed.
        ADMISSION_CHECK_UPDATED = "AdmissionCheckUpdated";
        /// On a Workload or a job: it was kept for as long as it is to be.
        DELETED = "Deleted";
        /// On a job that is part of another one: suspended until that is admitted.
        SUSPENDED = "Suspended";
        /// On a job: its Workload was made.
        CREATED_WORKLOAD = "CreatedWorkload";
        /// On a job: its Workload was brought in line with it.
        UPDATED_WORKLOAD = "UpdatedWorkload";
        /// On a job: its Workload, which describes another job, was deleted.
        DELETED_WORKLOAD = "DeletedWorkload";
        /// On a Workload: whoever held it back does so no more.
        ADMISSION_GATE_CLEARED = "AdmissionGateCleared";
        /// On a job: its Workload is finished.
        FINISHED_WORKLOAD = "FinishedWorkload";
        /// On a job: it cannot be described as a Workload.
        ERR_WORKLOAD_COMPOSE = "ErrWorkloadCompose";
        /// On a job: a ResourceFlavor it was admitted to is gone.
        FLAVOR_NOT_FOUND = "FlavorNotFound";
        /// On a job: the priority class it names does not exist.
        WORKLOAD_PRIORITY_CLASS_NOT_FOUND = "WorkloadPriorityClassNotFound";
        /// On a pod: its group has enough without it.
        EXCESS_POD_DELETED = "ExcessPodDeleted";
        /// On a pod: ended, since it cannot run on the node that it was sent to.
        POD_TERMINATED_BY_KUEUE = "PodTerminatedByKueue";
        /// On a Workload of a pod group: pods came to it.
        OWNER_REFERENCES_ADDED = "OwnerReferencesAdded";
        /// Its owners are too many above one another, or in a circle.
        JOB_NESTING_TOO_DEEP = "JobNestingTooDeep";
        /// On a StatefulSet or LeaderWorkerSet: it is managed by itself, but its pods run without having waited.
        PODS_NOT_GATED = "PodsNotGated";
        /// On a job or a pod: what has the name of its Workload, or of its group's, was made for something else.
        WORKLOAD_NAME_CONFLICT = "WorkloadNameConflict";
        /// On a pod: bound to a node.
        SCHEDULED = "Scheduled";
        /// On a pod: no node for it.
        FAILED_SCHEDULING = "FailedScheduling";
        /// On a pod: deleted with its gang, which stayed below its minimum. Volcano's.
        EVICT = "Evict";
    }
}

/// Conditions of pods.
pub mod pod {
    /// A node was found, or not.
    pub const POD_SCHEDULED: &str = "PodScheduled";
    /// It was ended because it cannot run on the node that it was sent to. Kueue's name, whoever wrote it.
    pub const TERMINATED_BY_KUEUE: &str = "TerminatedByKueue";
    /// `status.reason` of a pod the kubelet rejected because devices were not as promised.
    pub const UNEXPECTED_ADMISSION_ERROR: &str = "UnexpectedAdmissionError";

    /// Reasons of `TerminationTarget` = True: why a managed pod is about to be deleted. Kueue's
    /// (`pkg/controller/jobs/pod/pod_controller.go`).
    pub mod termination_target {
        reasons! {
            /// Its Workload was deleted.
            WORKLOAD_DELETED = "WorkloadDeleted";
            /// Prefix: its Workload was evicted; the eviction's reason follows.
            WORKLOAD_EVICTED_DUE_TO = "WorkloadEvictedDueTo";
            /// It has no Workload, or that describes other pods.
            NO_MATCHING_WORKLOAD = "NoMatchingWorkload";
            /// Its Workload is not admitted.
            NOT_ADMITTED = "NotAdmitted";
        }
    }

    // Reasons of `PodScheduled` that only pods of gangs have are those of [`pod_group`](super::pod_group).
    reasons! {
        /// No node fits.
        UNSCHEDULABLE = "Unschedulable";
        /// Of `TerminatedByKueue`: the node that its topology gave it is not one for it any more.
        UNSCHEDULABLE_ON_ASSIGNED_NODE = "UnschedulableOnAssignedNode";
        /// The scheduler failed at it.
        SCHEDULER_ERROR = "SchedulerError";
        /// Ours: the PodGroup it names does not exist.
        POD_GROUP_NOT_FOUND = "PodGroupNotFound";
        /// Ours: it says that it is managed, and no Workload is known that it belongs to.
        WORKLOAD_NOT_FOUND = "WorkloadNotFound";
        /// Ours: its Workload is not admitted.
        WORKLOAD_NOT_ADMITTED = "WorkloadNotAdmitted";
        /// Ours: it asks more than its Workload was granted.
        EXCEEDS_GRANT = "ExceedsGrant";
        /// Ours: it asks for something that the scheduler does not know how to honour.
        UNSUPPORTED_FEATURE = "UnsupportedFeature";
        /// Ours: its numbers or selectors cannot be used.
        INVALID_POD = "InvalidPod";
    }
}

/// Volcano's PodGroup conditions, their reasons, and the events of the same names.
pub mod pod_group {
    reasons! {
        /// The gang waits.
        UNSCHEDULABLE = "Unschedulable";
        /// The gang has its places.
        SCHEDULED = "Scheduled";
        /// Not enough free resources.
        NOT_ENOUGH_RESOURCES = "NotEnoughResources";
        /// Fewer pods exist than the gang needs.
        NOT_ENOUGH_TASKS = "NotEnoughTasks";
        /// Fewer pods of one task exist than it needs.
        NOT_ENOUGH_PODS_OF_TASK = "NotEnoughPodsOfTask";
        /// Ours: the PodGroup's minimum and what its pods' Workload was granted are not the same; the larger one holds.
        MIN_MEMBER_DISAGREES = "MinMemberDisagrees";
        /// Ours: the Workload was granted more pods than the PodGroup's minimum.
        WORKLOAD_NEEDS_MORE = "WorkloadNeedsMore";
        /// Ours: the PodGroup's minimum is above what the Workload was granted.
        POD_GROUP_NEEDS_MORE = "PodGroupNeedsMore";
        /// Ours: they agree again.
        MINIMA_AGREE = "MinimaAgree";
    }
}

/// Events of node-agent on its Node and its pods, and the condition of its GpuNode.
pub mod gpu {
    /// Condition of a GpuNode: pods can be given GPUs of this node. Where no driver answers, the reason is one of
    /// [`driver`](super::driver).
    pub const READY: &str = "Ready";

    reasons! {
        /// True: all of them.
        ALL_HEALTHY = "AllHealthy";
        /// True: those that are healthy.
        SOME_UNHEALTHY = "SomeUnhealthy";
        /// False: none is healthy.
        ALL_UNHEALTHY = "AllUnhealthy";
        /// False: there is none.
        NO_GPUS = "NoGpus";
        /// False: there is no kubelet to register with.
        KUBELET_SOCKET_MISSING = "KubeletSocketMissing";
        /// False: the kubelet does not take the registration.
        REGISTRATION_REJECTED = "RegistrationRejected";
        /// A GPU is not given out any more.
        UNHEALTHY = "GpuUnhealthy";
        /// It is given out again.
        HEALTHY = "GpuHealthy";
        /// On a pod: what its annotation says about its devices cannot be read.
        INVALID_DEVICES = "InvalidDevices";
    }
}

/// Why the GPU driver does not answer: reasons of a GpuNode's `Ready=False`.
pub mod driver {
    reasons! {
        /// The kernel driver is not running.
        NOT_LOADED = "DriverNotLoaded";
        /// NVML is not where it is looked for.
        LIBRARY_MISSING = "NvmlLibraryMissing";
        /// NVML and the kernel driver are of different releases.
        LIBRARY_MISMATCH = "DriverLibraryMismatch";
        /// The agent may not ask.
        NO_PERMISSION = "PermissionDenied";
        /// A GPU fell off the bus while it was asked.
        GPU_LOST = "GpuLost";
        /// The GPU that is asked for is not there.
        GPU_NOT_FOUND = "GpuNotFound";
        /// It has not answered in time.
        HANGS = "DriverHangs";
        /// Anything else.
        OTHER = "DriverError";
    }
}
