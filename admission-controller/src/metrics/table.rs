//! The metrics of this program that are Kueue's: their names, types, labels and buckets, as `pkg/metrics/metrics.go` of Kueue
//! has them. Dashboards and alerts are made of these.

/// What kind of object a series is about. It goes with that object, whose name (or name and namespace) is its first label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// The program as a whole.
    Program,
    /// A ClusterQueue.
    ClusterQueue,
    /// A LocalQueue.
    LocalQueue,
    /// A Cohort.
    Cohort,
}

impl Owner {
    /// How many labels its name takes: the first of all its series.
    pub(super) fn names(self) -> usize {
        match self {
            Self::Program => 0,
            Self::ClusterQueue | Self::Cohort => 1,
            Self::LocalQueue => 2,
        }
    }
}

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// It only grows.
    Counter,
    /// It is as it is now.
    Gauge,
    /// How often something took how long, by these upper bounds in seconds.
    Histogram(&'static [f64]),
}

impl Kind {
    /// As Prometheus calls it.
    pub fn token(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram(_) => "histogram",
        }
    }
}

/// One metric.
#[derive(Debug, PartialEq)]
pub struct Metric {
    /// Its name, as its samples have it.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// Whose series it has.
    pub owner: Owner,
    /// Its labels; all but one metric have [`ROLE`] after these.
    pub labels: &'static [&'static str],
    /// What it says.
    pub help: &'static str,
}

/// The label that says which replica tells: `leader`, or `standalone` where there is one only.
pub const ROLE: &str = "replica_role";

impl Metric {
    /// All its labels.
    pub fn all_labels(&self) -> impl Iterator<Item = &'static str> {
        let role = (self.name != BUILD_INFO.name).then_some(ROLE);
        self.labels.iter().copied().chain(role)
    }
}

/// 1 s, then 2.5 s doubled twelve times.
const WAITS: Kind = Kind::Histogram(&[
    1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 1280.0, 2560.0, 5120.0, 10240.0,
]);
/// Two more.
const LONG: Kind = Kind::Histogram(&[
    1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 1280.0, 2560.0, 5120.0, 10240.0, 20480.0,
    40960.0,
]);
/// Those that Prometheus' client for Go has where none are given.
const SHORT: Kind = Kind::Histogram(&[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0]);
/// 10 ms doubled ten times.
const CREATION: Kind = Kind::Histogram(&[0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24]);

const QUEUE: &[&str] = &["cluster_queue"];
const QUEUE_STATUS: &[&str] = &["cluster_queue", "status"];
const QUEUE_CLASS: &[&str] = &["cluster_queue", "priority_class"];
const QUEUE_PAIR: &[&str] = &["cluster_queue", "cohort", "flavor", "resource"];
const LOCAL: &[&str] = &["name", "namespace"];
const LOCAL_CLASS: &[&str] = &["name", "namespace", "priority_class"];
const LOCAL_PAIR: &[&str] = &["name", "namespace", "flavor", "resource"];
const COHORT: &[&str] = &["cohort"];
const COHORT_PAIR: &[&str] = &["cohort", "flavor", "resource"];

const fn metric(
    name: &'static str,
    kind: Kind,
    owner: Owner,
    labels: &'static [&'static str],
    help: &'static str,
) -> Metric {
    Metric { name, kind, owner, labels, help }
}

macro_rules! metrics {
    ($( $id:ident: $name:literal, $kind:expr, $owner:ident, $labels:expr, $help:literal; )*) => {
        $(
            #[doc = $help]
            pub(super) static $id: Metric = metric($name, $kind, Owner::$owner, $labels, $help);
        )*
        /// All of them.
        pub static ALL: &[&Metric] = &[$( &$id ),*];
    };
}

metrics! {
    BUILD_INFO: "kueue_build_info", Kind::Gauge, Program,
        &["git_version", "git_commit", "build_date", "go_version", "compiler", "platform"],
        "1, with what was built when and by what";
    ATTEMPTS: "kueue_admission_attempts_total", Kind::Counter, Program, &["result"],
        "Scheduling cycles: success if anybody got quota or places, or lost them with a failed node, else inadmissible";
    ATTEMPT_TOOK: "kueue_admission_attempt_duration_seconds", SHORT, Program, &["result"],
        "How long scheduling cycles took";
    CREATION_TOOK: "kueue_workload_creation_latency_seconds", CREATION, Program, &["job_kind"],
        "From a job until its Workload; of jobs that were not changed in between";
    GATE_TOOK: "kueue_pod_scheduling_gate_removal_seconds", SHORT, ClusterQueue, &["cluster_queue", "name", "is_group"],
        "From an admission until a pod's scheduling gate was opened";

    PENDING: "kueue_pending_workloads", Kind::Gauge, ClusterQueue, QUEUE_STATUS,
        "Workloads that wait: active, or inadmissible until something changes";
    PENDING_SHAPES: "kueue_pending_scheduling_hashes", Kind::Gauge, ClusterQueue, QUEUE_STATUS,
        "How many different kinds of workloads wait: those of one kind ask for the same";
    STATUS: "kueue_cluster_queue_status", Kind::Gauge, ClusterQueue, QUEUE_STATUS,
        "1 for the status that a ClusterQueue has (pending, active or terminating), 0 for the others";
    QUEUE_INFO: "kueue_cluster_queue_info", Kind::Gauge, ClusterQueue, &["cluster_queue", "parent_cohort", "root_cohort"],
        "1, with the cohorts that a ClusterQueue is in";
    RESERVING: "kueue_reserving_active_workloads", Kind::Gauge, ClusterQueue, QUEUE,
        "Unfinished workloads with quota";
    ADMITTED_ACTIVE: "kueue_admitted_active_workloads", Kind::Gauge, ClusterQueue, QUEUE,
        "Unfinished workloads that are admitted";
    FINISHED_NOW: "kueue_finished_workloads", Kind::Gauge, ClusterQueue, QUEUE,
        "Workloads that have ended and are still there";
    UNADMITTED: "kueue_unadmitted_workloads", Kind::Gauge, ClusterQueue, &["cluster_queue", "reason", "underlying_cause"],
        "Workloads that are not admitted, by the reasons of their conditions Admitted and QuotaReserved";
    RESERVED: "kueue_quota_reserved_workloads_total", Kind::Counter, ClusterQueue, QUEUE_CLASS,
        "Workloads that got quota";
    ADMITTED: "kueue_admitted_workloads_total", Kind::Counter, ClusterQueue, QUEUE_CLASS,
        "Workloads that were admitted";
    FINISHED: "kueue_finished_workloads_total", Kind::Counter, ClusterQueue, QUEUE_CLASS,
        "Workloads that ended";
    EVICTED: "kueue_evicted_workloads_total", Kind::Counter, ClusterQueue,
        &["cluster_queue", "reason", "underlying_cause", "priority_class"],
        "Evictions, by reason";
    EVICTED_ONCE: "kueue_evicted_workloads_once_total", Kind::Counter, ClusterQueue,
        &["cluster_queue", "reason", "underlying_cause", "priority_class"],
        "Workloads that were evicted for this reason at least once";
    REPLACED: "kueue_replaced_workload_slices_total", Kind::Counter, ClusterQueue, QUEUE,
        "Slices of elastic jobs whose place another slice took";
    PREEMPTED: "kueue_preempted_workloads_total", Kind::Counter, ClusterQueue, &["preempting_cluster_queue", "reason"],
        "Workloads evicted for others, by the ClusterQueue for which they left";
    SKIPS: "kueue_admission_cycle_preemption_skips", Kind::Gauge, ClusterQueue, QUEUE,
        "1 since a scheduling cycle in which its head would have preempted, but others were faster";
    RECOMPUTED: "kueue_preemption_target_recomputations_total", Kind::Counter, ClusterQueue, &["cluster_queue", "result"],
        "Second searches for victims within a cycle, by result";
    RESERVED_WAIT: "kueue_quota_reserved_wait_time_seconds", WAITS, ClusterQueue, QUEUE_CLASS,
        "From being queued until quota";
    ADMITTED_WAIT: "kueue_admission_wait_time_seconds", LONG, ClusterQueue, QUEUE_CLASS,
        "From being queued until admission";
    CHECKS_WAIT: "kueue_admission_checks_wait_time_seconds", WAITS, ClusterQueue, QUEUE_CLASS,
        "From quota until admission";
    READY_WAIT: "kueue_ready_wait_time_seconds", WAITS, ClusterQueue, QUEUE_CLASS,
        "From being queued until all pods were ready";
    ADMITTED_UNTIL_READY: "kueue_admitted_until_ready_wait_time_seconds", WAITS, ClusterQueue, QUEUE_CLASS,
        "From admission until all pods were ready";
    EXECUTED: "kueue_execution_time_seconds", LONG, ClusterQueue, QUEUE_CLASS,
        "For how long workloads that ended were admitted, all in all";
    READY_UNTIL_EVICTED: "kueue_pods_ready_to_evicted_time_seconds", WAITS, ClusterQueue,
        &["cluster_queue", "reason", "underlying_cause"],
        "From all pods being ready until the eviction";
    EVICTION_TOOK: "kueue_workload_eviction_latency_seconds", WAITS, ClusterQueue, &["cluster_queue", "reason"],
        "From an eviction until the quota was back";
    SHARE: "kueue_cluster_queue_weighted_share", Kind::Gauge, ClusterQueue, &["cluster_queue", "cohort"],
        "How much a ClusterQueue borrows of what could be lent to it, in thousandths by its weight; NaN if it borrows with weight 0";
    RESOURCE_RESERVATION: "kueue_cluster_queue_resource_reservation", Kind::Gauge, ClusterQueue, QUEUE_PAIR,
        "What workloads with quota use";
    RESOURCE_USAGE: "kueue_cluster_queue_resource_usage", Kind::Gauge, ClusterQueue, QUEUE_PAIR,
        "What admitted workloads use";
    RESOURCE_PENDING: "kueue_cluster_queue_resource_pending", Kind::Gauge, ClusterQueue, &["cluster_queue", "resource"],
        "What workloads that wait ask for";
    NOMINAL: "kueue_cluster_queue_nominal_quota", Kind::Gauge, ClusterQueue, QUEUE_PAIR,
        "The quota of a ClusterQueue";
    BORROWING: "kueue_cluster_queue_borrowing_limit", Kind::Gauge, ClusterQueue, QUEUE_PAIR,
        "What a ClusterQueue may borrow; +Inf without a limit";
    LENDING: "kueue_cluster_queue_lending_limit", Kind::Gauge, ClusterQueue, QUEUE_PAIR,
        "What a ClusterQueue lends; +Inf without a limit";

    LOCAL_PENDING: "kueue_local_queue_pending_workloads", Kind::Gauge, LocalQueue, &["name", "namespace", "status"],
        "Workloads that wait: active, or inadmissible until something changes";
    LOCAL_STATUS: "kueue_local_queue_status", Kind::Gauge, LocalQueue, &["name", "namespace", "active"],
        "1 for the status of its condition Active (True, False or Unknown), 0 for the others";
    LOCAL_RESERVING: "kueue_local_queue_reserving_active_workloads", Kind::Gauge, LocalQueue, LOCAL,
        "Unfinished workloads with quota";
    LOCAL_ADMITTED_ACTIVE: "kueue_local_queue_admitted_active_workloads", Kind::Gauge, LocalQueue, LOCAL,
        "Unfinished workloads that are admitted";
    LOCAL_FINISHED_NOW: "kueue_local_queue_finished_workloads", Kind::Gauge, LocalQueue, LOCAL,
        "Workloads that have ended and are still there";
    LOCAL_UNADMITTED: "kueue_local_queue_unadmitted_workloads", Kind::Gauge, LocalQueue,
        &["name", "namespace", "cluster_queue", "reason", "underlying_cause"],
        "Workloads that are not admitted, by the reasons of their conditions Admitted and QuotaReserved";
    LOCAL_RESERVED: "kueue_local_queue_quota_reserved_workloads_total", Kind::Counter, LocalQueue, LOCAL_CLASS,
        "Workloads that got quota";
    LOCAL_ADMITTED: "kueue_local_queue_admitted_workloads_total", Kind::Counter, LocalQueue, LOCAL_CLASS,
        "Workloads that were admitted";
    LOCAL_FINISHED: "kueue_local_queue_finished_workloads_total", Kind::Counter, LocalQueue, LOCAL_CLASS,
        "Workloads with an admission that ended";
    LOCAL_EVICTED: "kueue_local_queue_evicted_workloads_total", Kind::Counter, LocalQueue,
        &["name", "namespace", "reason", "underlying_cause", "priority_class"],
        "Evictions, by reason";
    LOCAL_RESERVED_WAIT: "kueue_local_queue_quota_reserved_wait_time_seconds", WAITS, LocalQueue, LOCAL_CLASS,
        "From being queued until quota";
    LOCAL_ADMITTED_WAIT: "kueue_local_queue_admission_wait_time_seconds", WAITS, LocalQueue, LOCAL_CLASS,
        "From being queued until admission";
    LOCAL_CHECKS_WAIT: "kueue_local_queue_admission_checks_wait_time_seconds", WAITS, LocalQueue, LOCAL_CLASS,
        "From quota until admission";
    LOCAL_READY_WAIT: "kueue_local_queue_ready_wait_time_seconds", WAITS, LocalQueue, LOCAL_CLASS,
        "From being queued until all pods were ready";
    LOCAL_ADMITTED_UNTIL_READY: "kueue_local_queue_admitted_until_ready_wait_time_seconds", WAITS, LocalQueue, LOCAL_CLASS,
        "From admission until all pods were ready";
    LOCAL_EXECUTED: "kueue_local_queue_execution_time_seconds", LONG, LocalQueue, LOCAL_CLASS,
        "For how long workloads that ended were admitted, all in all";
    LOCAL_RESOURCE_RESERVATION: "kueue_local_queue_resource_reservation", Kind::Gauge, LocalQueue, LOCAL_PAIR,
        "What workloads with quota use";
    LOCAL_RESOURCE_USAGE: "kueue_local_queue_resource_usage", Kind::Gauge, LocalQueue, LOCAL_PAIR,
        "What admitted workloads use";
    LOCAL_HISTORY: "kueue_local_queue_admission_fair_sharing_usage", Kind::Gauge, LocalQueue,
        &["name", "namespace", "cluster_queue"],
        "What a LocalQueue has used so far and is about to use, weighted: who has used less comes first";

    COHORT_INFO: "kueue_cohort_info", Kind::Gauge, Cohort, &["cohort", "parent_cohort", "root_cohort"],
        "1, with the cohorts that a cohort is in";
    COHORT_SHARE: "kueue_cohort_weighted_share", Kind::Gauge, Cohort, COHORT,
        "How much a cohort borrows of what could be lent to it, in thousandths by its weight; +Inf if it borrows with weight 0";
    COHORT_QUOTA: "kueue_cohort_subtree_quota", Kind::Gauge, Cohort, COHORT_PAIR,
        "The quota of a cohort and of all that is below it, as far as it is lent";
    COHORT_RESERVATIONS: "kueue_cohort_subtree_resource_reservations", Kind::Gauge, Cohort, COHORT_PAIR,
        "What workloads with quota use in all ClusterQueues below a cohort";
    COHORT_ADMITTED: "kueue_cohort_subtree_admitted_workloads_total", Kind::Counter, Cohort, &["cohort", "priority_class"],
        "Workloads that were admitted in ClusterQueues below a cohort";
    COHORT_ADMITTED_ACTIVE: "kueue_cohort_subtree_admitted_active_workloads", Kind::Gauge, Cohort, COHORT,
        "Unfinished workloads that are admitted in ClusterQueues below a cohort";
}
