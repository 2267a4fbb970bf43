//! What is counted about queues and workloads, by Kueue's names. The leader counts: what it writes, and what it knows.
//!
//! Series are bounded: by ClusterQueues, which administrators make and which take their series with them when they go, and
//! by the first [`MAX_CLASSES`] priority classes seen of each.

mod phases;
mod resources;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use crds::reasons::workload as tokens;
use crds::view::workload::Workload;
use jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use quota_engine::{
    ClusterQueueReport, CycleCounts, FairShare, Inactive, LocalQueueKey, LocalQueueReport, Recomputation,
};

use crate::phase;
use phases::{PhaseMetrics, newly_counted, waited};
use resources::ResourceMetrics;

/// Priority classes told apart for one ClusterQueue; those beyond count as [`OTHER`].
const MAX_CLASSES: usize = 32;
/// The priority class of all classes beyond the bound.
const OTHER: &str = "other";
/// Kueue's buckets of waiting times: 1 s, then 2.5 s doubled twelve times.
const BUCKETS: [f64; 14] =
    [1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 1280.0, 2560.0, 5120.0, 10240.0];
/// Kueue's buckets of running times: two more.
const LONG_BUCKETS: [f64; 16] = [
    1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 1280.0, 2560.0, 5120.0, 10240.0, 20480.0,
    40960.0,
];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfQueue {
    cluster_queue: String,
    replica_role: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfMember {
    cluster_queue: String,
    cohort: String,
    replica_role: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfCohort {
    cohort: String,
    replica_role: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfLocalQueue {
    name: String,
    namespace: String,
    cluster_queue: String,
    replica_role: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfStatus {
    cluster_queue: String,
    status: &'static str,
    replica_role: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfClass {
    cluster_queue: String,
    priority_class: String,
    replica_role: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfEviction {
    cluster_queue: String,
    reason: String,
    underlying_cause: String,
    priority_class: String,
    replica_role: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfReason {
    cluster_queue: String,
    reason: String,
    replica_role: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfPreemption {
    preempting_cluster_queue: String,
    reason: String,
    replica_role: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfRecomputation {
    cluster_queue: String,
    result: &'static str,
    replica_role: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfCause {
    cluster_queue: String,
    reason: String,
    underlying_cause: String,
    replica_role: &'static str,
}

type Counters<L> = Family<L, Counter>;
type Causes = BTreeMap<String, Vec<OfCause>>;
type Shares<L> = Family<L, Gauge<f64, AtomicU64>>;
type Waits = Family<OfClass, Histogram, fn() -> Histogram>;
type Evictions = Family<OfReason, Histogram, fn() -> Histogram>;

/// The series of one replica.
#[derive(Clone, Debug)]
pub struct QueueMetrics {
    role: &'static str,
    pending: Family<OfStatus, Gauge>,
    status: Family<OfStatus, Gauge>,
    reserving: Family<OfQueue, Gauge>,
    admitted_active: Family<OfQueue, Gauge>,
    share: Shares<OfMember>,
    cohort_share: Shares<OfCohort>,
    used: Shares<OfLocalQueue>,
    reserved: Family<OfClass, Counter>,
    admitted: Family<OfClass, Counter>,
    finished: Family<OfClass, Counter>,
    reserved_wait: Waits,
    admitted_wait: Waits,
    executed: Waits,
    eviction_took: Evictions,
    evicted: Family<OfEviction, Counter>,
    preempted: Family<OfPreemption, Counter>,
    skips: Family<OfQueue, Gauge>,
    recomputations: Family<OfRecomputation, Counter>,
    phases: PhaseMetrics,
    resources: Option<ResourceMetrics>,
    known: Arc<Mutex<Known>>,
}

/// What has series, by ClusterQueue.
#[derive(Debug, Default)]
struct Known {
    classes: BTreeMap<String, BTreeSet<String>>,
    shares: BTreeMap<String, OfMember>,
    used: BTreeMap<LocalQueueKey, OfLocalQueue>,
    evictions: BTreeMap<String, Vec<OfEviction>>,
    ended_evictions: BTreeMap<String, Vec<OfReason>>,
    causes: Causes,
    preemptions: BTreeMap<String, Vec<OfPreemption>>,
}

impl QueueMetrics {
    /// Nothing counted yet. `elects` tells whether other replicas may run.
    pub fn new(elects: bool) -> Self {
        Self {
            role: if elects { "leader" } else { "standalone" },
            pending: Family::default(),
            status: Family::default(),
            reserving: Family::default(),
            admitted_active: Family::default(),
            share: Family::default(),
            cohort_share: Family::default(),
            used: Family::default(),
            reserved: Family::default(),
            admitted: Family::default(),
            finished: Family::default(),
            reserved_wait: Family::new_with_constructor(waits),
            admitted_wait: Family::new_with_constructor(waits),
            executed: Family::new_with_constructor(|| Histogram::new(LONG_BUCKETS)),
            eviction_took: Family::new_with_constructor(waits),
            evicted: Family::default(),
            preempted: Family::default(),
            skips: Family::default(),
            recomputations: Family::default(),
            phases: PhaseMetrics::new(),
            resources: None,
            known: Arc::default(),
        }
    }

    /// With quotas and their use by flavor and resource, if wanted.
    #[must_use]
    pub fn with_resources(mut self, wanted: bool) -> Self {
        self.resources = wanted.then(ResourceMetrics::default);
        self
    }

    /// Registers all of them.
    pub fn register(&self, registry: &mut Registry) {
        self.phases.register(registry);
        if let Some(resources) = &self.resources {
            resources.register(registry);
        }
        registry.register(
            "kueue_pending_workloads",
            "Workloads that wait, by whether they are looked at",
            self.pending.clone(),
        );
        registry.register(
            "kueue_cluster_queue_status",
            "1 for the status a ClusterQueue has, 0 for the others",
            self.status.clone(),
        );
        registry.register(
            "kueue_reserving_active_workloads",
            "Unfinished workloads with quota",
            self.reserving.clone(),
        );
        registry.register(
            "kueue_admitted_active_workloads",
            "Unfinished workloads that are admitted",
            self.admitted_active.clone(),
        );
        registry.register(
            "kueue_cluster_queue_weighted_share",
            "How much a ClusterQueue borrows of what could be lent to it, in thousandths by its weight; NaN with weight 0",
            self.share.clone(),
        );
        registry.register("kueue_cohort_weighted_share", "The same of a Cohort", self.cohort_share.clone());
        registry.register(
            "kueue_local_queue_admission_fair_sharing_usage",
            "What a LocalQueue has used so far and is about to use, weighted: who has used less comes first",
            self.used.clone(),
        );
        registry.register(
            "kueue_quota_reserved_workloads",
            "Workloads that got quota",
            self.reserved.clone(),
        );
        registry.register("kueue_admitted_workloads", "Workloads that were admitted", self.admitted.clone());
        registry.register("kueue_finished_workloads", "Workloads that ended", self.finished.clone());
        registry.register(
            "kueue_evicted_workloads",
            "Workloads that lost their admission, by reason",
            self.evicted.clone(),
        );
        registry.register(
            "kueue_preempted_workloads",
            "Workloads evicted for others, by the queue they left room for",
            self.preempted.clone(),
        );
        registry.register(
            "kueue_admission_cycle_preemption_skips",
            "Workloads that would have preempted when others of the cycle were faster",
            self.skips.clone(),
        );
        registry.register(
            "kueue_preemption_target_recomputations",
            "Second searches for victims within a cycle, by result",
            self.recomputations.clone(),
        );
        registry.register(
            "kueue_quota_reserved_wait_time_seconds",
            "From being queued to quota",
            self.reserved_wait.clone(),
        );
        registry.register(
            "kueue_admission_wait_time_seconds",
            "From being queued to admission",
            self.admitted_wait.clone(),
        );
        registry.register(
            "kueue_execution_time_seconds",
            "For how long workloads that ended were admitted, all in all",
            self.executed.clone(),
        );
        registry.register(
            "kueue_workload_eviction_latency_seconds",
            "From an eviction until the quota was back",
            self.eviction_took.clone(),
        );
    }

    /// The state of a ClusterQueue.
    pub fn cluster_queue(&self, name: &str, report: &ClusterQueueReport) {
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let with = |status| OfStatus { cluster_queue: name.to_owned(), status, replica_role: self.role };
        let queue = OfQueue { cluster_queue: name.to_owned(), replica_role: self.role };
        self.pending.get_or_create(&with("active")).set(count(report.pending - report.inadmissible));
        self.pending.get_or_create(&with("inadmissible")).set(count(report.inadmissible));
        self.reserving.get_or_create(&queue).set(count(report.reserving));
        self.admitted_active.get_or_create(&queue).set(count(report.admitted));
        self.member(name, report);
        if let Some(resources) = &self.resources {
            resources.cluster_queue(name, report, self.role);
        }
        let is = match report.inactive {
            None => "active",
            Some(Inactive::Terminating) => "terminating",
            Some(_) => "pending",
        };
        for status in ["active", "pending", "terminating"] {
            self.status.get_or_create(&with(status)).set(i64::from(status == is));
        }
    }

    /// A ClusterQueue's share. With its cohort its series goes.
    fn member(&self, name: &str, report: &ClusterQueueReport) {
        let mut known = self.known();
        let labels = report.fair_share.as_ref().map(|_| OfMember {
            cluster_queue: name.to_owned(),
            cohort: report.cohort.as_ref().map(|cohort| cohort.to_string()).unwrap_or_default(),
            replica_role: self.role,
        });
        if let Some(before) = known.shares.get(name).filter(|before| Some(*before) != labels.as_ref()) {
            self.share.remove(before);
        }
        known.shares.remove(name);
        if let (Some(labels), Some(share)) = (labels, &report.fair_share) {
            let value = if share.exact.is_finite() { share.exact } else { f64::NAN };
            self.share.get_or_create(&labels).set(value);
            known.shares.insert(name.to_owned(), labels);
        }
    }

    /// What a LocalQueue has used, where its turns go by it; `None` where there is no such LocalQueue.
    pub fn local_queue(&self, key: &LocalQueueKey, report: Option<&LocalQueueReport>) {
        let used = report.and_then(|report| Some((report, report.history.as_ref()?.consumption)));
        let labels = used.map(|(report, _)| OfLocalQueue {
            name: key.name.to_string(),
            namespace: key.namespace.to_string(),
            cluster_queue: report.cluster_queue.to_string(),
            replica_role: self.role,
        });
        let mut known = self.known();
        if let Some(before) = known.used.remove(key).filter(|before| Some(before) != labels.as_ref()) {
            self.used.remove(&before);
        }
        if let (Some(labels), Some((_, used))) = (labels, used) {
            self.used.get_or_create(&labels).set(used.approximate());
            known.used.insert(key.clone(), labels);
        }
    }

    /// A Cohort's share; `None` where there is none.
    pub fn cohort(&self, name: &str, share: Option<&FairShare>) {
        let labels = OfCohort { cohort: name.to_owned(), replica_role: self.role };
        match share {
            Some(share) => {
                self.cohort_share.get_or_create(&labels).set(share.exact);
            }
            None => {
                self.cohort_share.remove(&labels);
            }
        }
    }

    /// What a written Workload status says that it did not say before. `preemptor` is the ClusterQueue it was evicted for.
    pub fn written(
        &self,
        before: Option<&Workload>,
        after: &Workload,
        preemptor: Option<&str>,
        now: Timestamp,
    ) {
        let became = |kind: &str| after.holds(kind) && !before.is_some_and(|before| before.holds(kind));
        if let Some(done) = before.and_then(|before| phase::eviction_done(before, after, now)) {
            let labels = OfReason {
                cluster_queue: done.cluster_queue.to_owned(),
                reason: done.reason.to_owned(),
                replica_role: self.role,
            };
            self.eviction_took.get_or_create(&labels).observe(done.took.as_secs_f64());
            remember(&mut self.known().ended_evictions, done.cluster_queue, labels);
        }
        let admission = after.status.admission.as_ref();
        let Some(name) = admission.map(|admission| admission.cluster_queue.clone()) else { return };
        let class = self.class(&name, after);
        let labels =
            OfClass { cluster_queue: name.clone(), priority_class: class.clone(), replica_role: self.role };
        let waited = waited(before.unwrap_or(after), now);
        if became(tokens::QUOTA_RESERVED) {
            self.reserved.get_or_create(&labels).inc();
            self.reserved_wait.get_or_create(&labels).observe(waited);
        }
        if became(tokens::ADMITTED) {
            self.admitted.get_or_create(&labels).inc();
            self.admitted_wait.get_or_create(&labels).observe(waited);
            self.phases.admitted(&labels, before.unwrap_or(after), after);
        }
        if became(tokens::PODS_READY) {
            self.phases.ready(&labels, after, waited);
        }
        if became(tokens::FINISHED) {
            self.finished.get_or_create(&labels).inc();
            if let Some(took) = phase::execution_time(after) {
                self.executed.get_or_create(&labels).observe(took.as_secs_f64());
            }
        }
        let reason = |kind: &str| after.condition(kind).map_or_else(String::new, |one| one.reason.clone());
        if let (true, Some(stats)) = (became(tokens::EVICTED), newly_counted(before, after)) {
            let labels = OfEviction {
                cluster_queue: name.clone(),
                reason: stats.reason.clone(),
                underlying_cause: stats.underlying_cause.clone(),
                priority_class: class,
                replica_role: self.role,
            };
            self.evicted.get_or_create(&labels).inc();
            let mut known = self.known();
            self.phases.evicted(&labels, stats, after, &mut known.causes);
            remember(&mut known.evictions, &name, labels);
        }
        if let (true, Some(preemptor)) = (became(tokens::PREEMPTED), preemptor) {
            let labels = OfPreemption {
                preempting_cluster_queue: preemptor.to_owned(),
                reason: reason(tokens::PREEMPTED),
                replica_role: self.role,
            };
            self.preempted.get_or_create(&labels).inc();
            remember(&mut self.known().preemptions, preemptor, labels);
        }
    }

    /// What scheduling cycles came to.
    pub fn cycles(&self, counts: &CycleCounts) {
        for (queue, skips) in &counts.preemption_skips {
            let labels = OfQueue { cluster_queue: queue.as_str().to_owned(), replica_role: self.role };
            self.skips.get_or_create(&labels).set(i64::try_from(*skips).unwrap_or(i64::MAX));
        }
        for ((queue, result), count) in &counts.recomputations {
            let labels = OfRecomputation {
                cluster_queue: queue.as_str().to_owned(),
                result: result.token(),
                replica_role: self.role,
            };
            self.recomputations.get_or_create(&labels).inc_by(*count);
        }
    }

    /// A ClusterQueue is gone, and its series with it.
    pub fn forget(&self, name: &str) {
        if let Some(resources) = &self.resources {
            resources.forget(name);
        }
        for status in ["active", "inadmissible", "pending", "terminating"] {
            let labels = OfStatus { cluster_queue: name.to_owned(), status, replica_role: self.role };
            self.pending.remove(&labels);
            self.status.remove(&labels);
        }
        let queue = OfQueue { cluster_queue: name.to_owned(), replica_role: self.role };
        self.reserving.remove(&queue);
        self.admitted_active.remove(&queue);
        self.skips.remove(&queue);
        for result in Recomputation::ALL {
            self.recomputations.remove(&OfRecomputation {
                cluster_queue: name.to_owned(),
                result: result.token(),
                replica_role: self.role,
            });
        }
        let mut known = self.known();
        if let Some(labels) = known.shares.remove(name) {
            self.share.remove(&labels);
        }
        for priority_class in known.classes.remove(name).into_iter().flatten() {
            let labels = OfClass { cluster_queue: name.to_owned(), priority_class, replica_role: self.role };
            for counter in [&self.reserved, &self.admitted, &self.finished] {
                counter.remove(&labels);
            }
            for waits in [&self.reserved_wait, &self.admitted_wait, &self.executed] {
                waits.remove(&labels);
            }
            self.phases.forget_class(&labels);
        }
        known.evictions.remove(name).into_iter().flatten().for_each(|labels| {
            self.evicted.remove(&labels);
            self.phases.forget_eviction(&labels);
        });
        known.causes.remove(name).into_iter().flatten().for_each(|labels| self.phases.forget_cause(&labels));
        known.ended_evictions.remove(name).into_iter().flatten().for_each(|labels| {
            self.eviction_took.remove(&labels);
        });
        known.preemptions.remove(name).into_iter().flatten().for_each(|labels| {
            self.preempted.remove(&labels);
        });
    }

    /// This replica no longer leads: what it knew of the queues is nobody's truth any more.
    pub fn no_longer_leads(&self) {
        if let Some(resources) = &self.resources {
            resources.no_longer_leads();
        }
        self.pending.clear();
        self.status.clear();
        self.reserving.clear();
        self.admitted_active.clear();
        self.skips.clear();
        self.share.clear();
        self.cohort_share.clear();
    }

    fn class(&self, queue: &str, workload: &Workload) -> String {
        let name = workload.spec.priority_class_ref.as_ref().map_or("", |class| class.name.as_str());
        let mut known = self.known();
        let classes = known.classes.entry(queue.to_owned()).or_default();
        let name = if classes.contains(name) || classes.len() < MAX_CLASSES { name } else { OTHER };
        classes.insert(name.to_owned());
        name.to_owned()
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn remember<L: PartialEq>(known: &mut BTreeMap<String, Vec<L>>, queue: &str, labels: L) {
    let known = known.entry(queue.to_owned()).or_default();
    if !known.contains(&labels) {
        known.push(labels);
    }
}

/// From one condition to another; nothing where one is missing or clocks disagree.
fn seconds_between(view: &Workload, from: &str, to: &str) -> f64 {
    let since = |kind: &str| view.condition(kind).map(|one| one.last_transition_time.0);
    match (since(from), since(to)) {
        (Some(from), Some(to)) => to.duration_since(from).as_secs_f64().max(0.0),
        _ => 0.0,
    }
}

fn waits() -> Histogram {
    Histogram::new(BUCKETS)
}
