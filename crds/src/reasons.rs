//! Condition types, condition reasons and event reasons: the tokens a user greps for.
//!
//! The tokens are the peers' (Kueue's `apis/kueue/v1beta2/workload_types.go` and `clusterqueue_types.go`, Volcano's
//! `scheduling/types.go`, Kubernetes' core API); the sentences next to them are ours and live where they are produced.

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
    /// All pods are ready or succeeded.
    pub const PODS_READY: &str = "PodsReady";
    /// An evicted Workload is in the queue again.
    pub const REQUEUED: &str = "Requeued";
    /// The job ended.
    pub const FINISHED: &str = "Finished";
    /// Somebody decided that the Workload is to be deactivated.
    pub const DEACTIVATION_TARGET: &str = "DeactivationTarget";
    /// The Workload would have to preempt and its gate is closed.
    pub const BLOCKED_ON_PREEMPTION_GATES: &str = "BlockedOnPreemptionGates";
    /// Pods of a group are gone and have no replacement yet.
    pub const WAITING_FOR_REPLACEMENT_PODS: &str = "WaitingForReplacementPods";

    /// Reasons of `QuotaReserved`.
    pub mod quota_reserved {
        /// True: quota is held.
        pub const QUOTA_RESERVED: &str = "QuotaReserved";
        /// No flavor suits the pods.
        pub const NO_MATCHING_FLAVOR: &str = "NoMatchingFlavor";
        /// It fits in principle, not now.
        pub const WAITING_FOR_QUOTA: &str = "WaitingForQuota";
        /// It asks for more than could ever be free.
        pub const EXCEEDS_MAX_QUOTA: &str = "ExceedsMaxQuota";
        /// Quota is there, no topology domain is.
        pub const TOPOLOGY_PLACEMENT_FAILED: &str = "TopologyPlacementFailed";
        /// Its victims have not left yet.
        pub const WAITING_FOR_PREEMPTED_WORKLOADS: &str = "WaitingForPreemptedWorkloads";
        /// The Workload or a queue it needs is wrong.
        pub const MISCONFIGURED: &str = "Misconfigured";
        /// A queue it needs is stopped.
        pub const SUSPENDED: &str = "Suspended";
        /// Nobody has looked at it yet.
        pub const PENDING_EVALUATION: &str = "PendingEvaluation";
        /// Another workload has to get its pods ready first.
        pub const WAITING_FOR_PODS_READY: &str = "WaitingForPodsReady";
        /// The job's annotation gates its admission.
        pub const ADMISSION_GATED: &str = "AdmissionGated";
        /// The job itself is on hold.
        pub const ON_HOLD: &str = "OnHold";
        /// Quota is not reserved, without a finer reason (before Kueue 0.19).
        pub const PENDING: &str = "Pending";
        /// Cannot be admitted as things are (before Kueue 0.19).
        pub const INADMISSIBLE: &str = "Inadmissible";
        /// Waits for other workloads (before Kueue 0.19).
        pub const WAITING: &str = "Waiting";
    }

    /// Reasons of `Admitted`.
    pub mod admitted {
        /// True: it may run.
        pub const ADMITTED: &str = "Admitted";
        /// It holds no quota.
        pub const NO_RESERVATION: &str = "NoReservation";
        /// An admission check is not ready.
        pub const UNSATISFIED_ADMISSION_CHECKS: &str = "UnsatisfiedAdmissionChecks";
        /// Its topology is still to be decided.
        pub const PENDING_DELAYED_TOPOLOGY_REQUESTS: &str = "PendingDelayedTopologyRequests";
        /// An admission check is not ready (before Kueue 0.19).
        pub const UNSATISFIED_CHECKS: &str = "UnsatisfiedChecks";
        /// Neither quota nor checks (before Kueue 0.19).
        pub const NO_RESERVATION_UNSATISFIED_CHECKS: &str = "NoReservationUnsatisfiedChecks";
    }

    /// Reasons of `Evicted`, and of `Requeued` after it.
    pub mod evicted {
        /// For another workload.
        pub const PREEMPTED: &str = "Preempted";
        /// Its pods did not get ready in time.
        pub const PODS_READY_TIMEOUT: &str = "PodsReadyTimeout";
        /// An admission check asked for a retry.
        pub const ADMISSION_CHECK: &str = "AdmissionCheck";
        /// Its ClusterQueue was stopped and drained.
        pub const CLUSTER_QUEUE_STOPPED: &str = "ClusterQueueStopped";
        /// Its LocalQueue was stopped and drained.
        pub const LOCAL_QUEUE_STOPPED: &str = "LocalQueueStopped";
        /// Nodes it stood on failed.
        pub const NODE_FAILURES: &str = "NodeFailures";
        /// A better flavor became free.
        pub const FLAVOR_MIGRATION: &str = "FlavorMigration";
        /// A MultiKueue manager withdrew it.
        pub const EVICTED_ON_MANAGER_CLUSTER: &str = "EvictedOnManagerCluster";
        /// It was deactivated.
        pub const DEACTIVATED: &str = "Deactivated";
        /// Prefix: deactivated for the cause that follows.
        pub const DEACTIVATED_DUE_TO: &str = "DeactivatedDueTo";
        /// Reset to False: it holds quota again.
        pub const QUOTA_RESERVED: &str = "QuotaReserved";
        /// Requeued=True: its back-off ended.
        pub const BACKOFF_FINISHED: &str = "BackoffFinished";
        /// Requeued=True: it was activated again.
        pub const REACTIVATED: &str = "Reactivated";
        /// Requeued=True: its ClusterQueue runs again.
        pub const CLUSTER_QUEUE_RESTARTED: &str = "ClusterQueueRestarted";
        /// Requeued=True: its LocalQueue runs again.
        pub const LOCAL_QUEUE_RESTARTED: &str = "LocalQueueRestarted";
    }

    /// Reasons of `Preempted`.
    pub mod preempted {
        /// For a workload of its own ClusterQueue.
        pub const IN_CLUSTER_QUEUE: &str = "InClusterQueue";
        /// A lender took its own back.
        pub const IN_COHORT_RECLAMATION: &str = "InCohortReclamation";
        /// A queue below its fair share took it.
        pub const IN_COHORT_FAIR_SHARING: &str = "InCohortFairSharing";
        /// A borrower of higher priority took it.
        pub const IN_COHORT_RECLAIM_WHILE_BORROWING: &str = "InCohortReclaimWhileBorrowing";
    }

    /// Reasons of `PodsReady`.
    pub mod pods_ready {
        /// False: not all pods are there yet.
        pub const WAIT_FOR_START: &str = "WaitForStart";
        /// True: all pods got ready.
        pub const STARTED: &str = "Started";
        /// False: a pod failed after they had been ready.
        pub const WAIT_FOR_RECOVERY: &str = "WaitForRecovery";
        /// True: ready again.
        pub const RECOVERED: &str = "Recovered";
    }

    /// Reasons of `Finished`.
    pub mod finished {
        /// The job completed.
        pub const SUCCEEDED: &str = "Succeeded";
        /// The job failed.
        pub const FAILED: &str = "Failed";
        /// The job no longer matches its prebuilt Workload.
        pub const OUT_OF_SYNC: &str = "OutOfSync";
        /// The job is gone.
        pub const OWNER_NOT_FOUND: &str = "OwnerNotFound";
        /// A larger or smaller slice took its place.
        pub const WORKLOAD_SLICE_REPLACED: &str = "WorkloadSliceReplaced";
        /// What the flavors add contradicts the job.
        pub const FAILED_TO_START: &str = "FailedToStart";
    }

    /// Reasons of `DeactivationTarget`.
    pub mod deactivation_target {
        /// Requeued too often.
        pub const REQUEUING_LIMIT_EXCEEDED: &str = "RequeuingLimitExceeded";
        /// Ran longer than it may.
        pub const MAXIMUM_EXECUTION_TIME_EXCEEDED: &str = "MaximumExecutionTimeExceeded";
        /// A check rejected it.
        pub const ADMISSION_CHECK: &str = "AdmissionCheck";
    }

    /// Reasons of `BlockedOnPreemptionGates`.
    pub mod blocked_on_preemption_gates {
        /// It would fit by preempting.
        pub const PREEMPTION_GATED: &str = "PreemptionGated";
    }
}

/// Conditions of ClusterQueues, LocalQueues, AdmissionChecks and MultiKueueClusters.
pub mod queue {
    /// The object can do its work.
    pub const ACTIVE: &str = "Active";

    /// Reasons of `Active`.
    pub mod active {
        /// True: workloads can be admitted or submitted.
        pub const READY: &str = "Ready";
        /// It is being deleted.
        pub const TERMINATING: &str = "Terminating";
        /// Its stop policy says so.
        pub const STOPPED: &str = "Stopped";
        /// It names a ResourceFlavor that does not exist.
        pub const FLAVOR_NOT_FOUND: &str = "FlavorNotFound";
        /// It names an AdmissionCheck that does not exist.
        pub const ADMISSION_CHECK_NOT_FOUND: &str = "AdmissionCheckNotFound";
        /// It names an AdmissionCheck that is not active.
        pub const ADMISSION_CHECK_INACTIVE: &str = "AdmissionCheckInactive";
        /// It names several MultiKueue checks.
        pub const MULTIPLE_MULTI_KUEUE_ADMISSION_CHECKS: &str = "MultipleMultiKueueAdmissionChecks";
        /// It applies a MultiKueue check to some flavors only.
        pub const MULTI_KUEUE_ADMISSION_CHECK_APPLIED_PER_FLAVOR: &str =
            "MultiKueueAdmissionCheckAppliedPerFlavor";
        /// It combines a MultiKueue check with a ProvisioningRequest check.
        pub const MULTI_KUEUE_WITH_PROVISIONING_REQUEST: &str = "MultiKueueWithProvisioningRequest";
        /// One of its flavors names a Topology that does not exist.
        pub const TOPOLOGY_NOT_FOUND: &str = "TopologyNotFound";
        /// None of the above.
        pub const UNKNOWN: &str = "Unknown";
        /// LocalQueue: its ClusterQueue is not active.
        pub const CLUSTER_QUEUE_IS_INACTIVE: &str = "ClusterQueueIsInactive";
        /// LocalQueue: its ClusterQueue does not exist.
        pub const CLUSTER_QUEUE_DOES_NOT_EXIST: &str = "ClusterQueueDoesNotExist";
    }
}

/// Reasons of events.
pub mod event {
    /// On a Workload: quota was reserved.
    pub const QUOTA_RESERVED: &str = "QuotaReserved";
    /// On a Workload: admitted.
    pub const ADMITTED: &str = "Admitted";
    /// On a victim: preempted.
    pub const PREEMPTED: &str = "Preempted";
    /// On the workload a victim was preempted for.
    pub const PREEMPTED_WORKLOAD: &str = "PreemptedWorkload";
    /// Prefix on an evicted Workload: the eviction's reason follows.
    pub const EVICTED_DUE_TO: &str = "EvictedDueTo";
    /// On a job: released.
    pub const STARTED: &str = "Started";
    /// On a job: suspended at creation.
    pub const SUSPENDED: &str = "Suspended";
    /// On a job: suspended after it ran.
    pub const STOPPED: &str = "Stopped";
    /// On a job: its Workload was made.
    pub const CREATED_WORKLOAD: &str = "CreatedWorkload";
    /// On a job: a Workload of it was deleted.
    pub const DELETED_WORKLOAD: &str = "DeletedWorkload";
    /// On a job: its Workload was brought in line with it.
    pub const UPDATED_WORKLOAD: &str = "UpdatedWorkload";
    /// On a job: its Workload is finished.
    pub const FINISHED_WORKLOAD: &str = "FinishedWorkload";
    /// On a job: it cannot be described as a Workload.
    pub const ERR_WORKLOAD_COMPOSE: &str = "ErrWorkloadCompose";
    /// On a job: a ResourceFlavor it was admitted to is gone.
    pub const FLAVOR_NOT_FOUND: &str = "FlavorNotFound";
    /// On a job: the priority class it names does not exist.
    pub const WORKLOAD_PRIORITY_CLASS_NOT_FOUND: &str = "WorkloadPriorityClassNotFound";
    /// On a pod: bound to a node.
    pub const SCHEDULED: &str = "Scheduled";
    /// On a pod: no node for it.
    pub const FAILED_SCHEDULING: &str = "FailedScheduling";
}

/// Conditions of pods that the scheduler writes.
pub mod pod {
    /// A node was found, or not.
    pub const POD_SCHEDULED: &str = "PodScheduled";
    /// The pod is about to be removed.
    pub const DISRUPTION_TARGET: &str = "DisruptionTarget";
    /// `PodScheduled` is False: no node fits.
    pub const UNSCHEDULABLE: &str = "Unschedulable";
    /// `PodScheduled` is False: the pod's gates are closed.
    pub const SCHEDULING_GATED: &str = "SchedulingGated";
    /// `PodScheduled` is False: the scheduler failed at it.
    pub const SCHEDULER_ERROR: &str = "SchedulerError";
    /// `DisruptionTarget`: a victim of preemption.
    pub const PREEMPTION_BY_SCHEDULER: &str = "PreemptionByScheduler";
    /// `status.reason` of a pod the kubelet rejected because devices were not as promised.
    pub const UNEXPECTED_ADMISSION_ERROR: &str = "UnexpectedAdmissionError";
}

/// Volcano's PodGroup conditions.
pub mod pod_group {
    /// The gang waits.
    pub const UNSCHEDULABLE: &str = "Unschedulable";
    /// The gang has its places.
    pub const SCHEDULED: &str = "Scheduled";
    /// Not enough free resources.
    pub const NOT_ENOUGH_RESOURCES: &str = "NotEnoughResources";
    /// Fewer pods exist than the gang needs.
    pub const NOT_ENOUGH_TASKS: &str = "NotEnoughTasks";
    /// Fewer pods of one task exist than it needs.
    pub const NOT_ENOUGH_PODS_OF_TASK: &str = "NotEnoughPodsOfTask";
    /// A member failed.
    pub const POD_FAILED: &str = "PodFailed";
    /// A member was deleted.
    pub const POD_DELETED: &str = "PodDeleted";
    /// Ours: the PodGroup's minimum and what its pods' Workload was granted are not the same; the larger one holds.
    pub const MIN_MEMBER_DISAGREES: &str = "MinMemberDisagrees";
    /// Ours: the Workload was granted more pods than the PodGroup's minimum.
    pub const WORKLOAD_NEEDS_MORE: &str = "WorkloadNeedsMore";
    /// Ours: the PodGroup's minimum is above what the Workload was granted.
    pub const POD_GROUP_NEEDS_MORE: &str = "PodGroupNeedsMore";
    /// Ours: they agree again.
    pub const MINIMA_AGREE: &str = "MinimaAgree";
}

/// Events of node-agent on its Node and its pods, and the condition of its GpuNode.
pub mod gpu {
    /// Condition of a GpuNode: pods can be given GPUs of this node. Where no driver answers, the reason is the driver's.
    pub const READY: &str = "Ready";
    /// True: all of them.
    pub const ALL_HEALTHY: &str = "AllHealthy";
    /// True: those that are healthy.
    pub const SOME_UNHEALTHY: &str = "SomeUnhealthy";
    /// False: none is healthy.
    pub const ALL_UNHEALTHY: &str = "AllUnhealthy";
    /// False: there is none.
    pub const NO_GPUS: &str = "NoGpus";
    /// False: there is no kubelet to register with.
    pub const KUBELET_SOCKET_MISSING: &str = "KubeletSocketMissing";
    /// False: the kubelet does not take the registration.
    pub const REGISTRATION_REJECTED: &str = "RegistrationRejected";
    /// A GPU is not given out any more.
    pub const UNHEALTHY: &str = "GpuUnhealthy";
    /// It is given out again.
    pub const HEALTHY: &str = "GpuHealthy";
    /// On a pod: what its annotation says about its devices cannot be read.
    pub const INVALID_DEVICES: &str = "InvalidDevices";
}
