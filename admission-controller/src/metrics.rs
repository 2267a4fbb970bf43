//! What is counted about queues and workloads, by Kueue's names. The leader counts: what it writes, and what it knows.
//!
//! Series are bounded: by queues and cohorts, which take their series with them when they go, and by the first
//! [`MAX_CLASSES`] priority classes seen of each.

mod custom;
mod queues;
mod series;
mod sums;
mod table;
mod tally;
mod workloads;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use model::ResourceName;
use model::selector::{LabelSelector, Labels};
use prometheus_client::registry::Registry;
use quota_engine::{ClusterQueueName, CohortName, CycleCounts, LocalQueueKey};

use custom::Custom;
pub use custom::{CustomLabel, Source};
pub use queues::Waiting;
use series::{Number, Series};
use sums::Sums;
pub use table::{ALL, Kind, Metric, Owner, ROLE};
pub(crate) use tally::{Tally, queue_of};
pub use workloads::Written;

/// Priority classes told apart for one queue; those beyond count as [`OTHER`].
const MAX_CLASSES: usize = 32;
/// The priority class of all classes beyond the bound.
const OTHER: &str = "other";

/// Which metrics are shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Quotas and their use by flavor and resource, and the shares of ClusterQueues.
    pub resources: bool,
    /// Of LocalQueues with these labels; `None`: of none.
    pub local_queues: Option<LabelSelector>,
    /// Which cohorts there are, and which ClusterQueues are of which.
    pub cohorts: bool,
    /// How long it took to make Workloads.
    pub creation: bool,
    /// How many kinds of workloads wait.
    pub shapes: bool,
    /// Labels from the objects they are about.
    pub custom: Vec<CustomLabel>,
}

impl Default for Shown {
    fn default() -> Self {
        Self {
            resources: false,
            local_queues: Some(LabelSelector::default()),
            cohorts: true,
            creation: true,
            shapes: true,
            custom: Vec::new(),
        }
    }
}

impl Shown {
    fn shows(&self, metric: &Metric) -> bool {
        let of_resources = [
            &table::RESOURCE_RESERVATION,
            &table::RESOURCE_USAGE,
            &table::RESOURCE_PENDING,
            &table::NOMINAL,
            &table::BORROWING,
            &table::LENDING,
            &table::SHARE,
        ];
        if of_resources.contains(&metric) {
            self.resources
        } else if *metric == table::CREATION_TOOK {
            self.creation
        } else if *metric == table::PENDING_SHAPES {
            self.shapes
        } else if *metric == table::COHORT_INFO || *metric == table::QUEUE_INFO {
            self.cohorts
        } else {
            metric.owner != Owner::LocalQueue || self.local_queues.is_some()
        }
    }
}

/// The series of one replica.
#[derive(Clone, Debug)]
pub struct QueueMetrics {
    series: Arc<Series>,
    shown: Shown,
    known: Arc<Mutex<Known>>,
}

#[derive(Debug, Default)]
struct Known {
    /// By owner and its names.
    classes: BTreeMap<(Owner, Vec<String>), BTreeSet<String>>,
    sums: Sums,
}

impl QueueMetrics {
    /// Nothing counted yet. `elects` tells whether other replicas may run.
    pub fn new(elects: bool, shown: Shown) -> Self {
        let role = if elects { "leader" } else { "standalone" };
        let series = Series::new(role, |metric| shown.shows(metric), Custom::new(&shown.custom));
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        let platform = format!("{}/{architecture}", std::env::consts::OS);
        let built = [
            concat!("v", env!("CARGO_PKG_VERSION")),
            option_env!("TRIREME_GIT_COMMIT").unwrap_or("unknown"),
            option_env!("TRIREME_BUILD_DATE").unwrap_or("unknown"),
            "none",
            "rustc",
            &platform,
        ];
        series.set(&table::BUILD_INFO, &built, 1);
        Self { series: Arc::new(series), shown, known: Arc::default() }
    }

    /// Registers all of them.
    pub fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(self.series.clone()));
    }

    /// What scheduling cycles came to that took so long together.
    pub fn cycles(&self, counts: &CycleCounts, took: Duration) {
        let [succeeded, failed] = [counts.attempts.succeeded, counts.attempts.failed];
        let each = took.as_secs_f64() / (succeeded + failed).max(1) as f64;
        for (result, count) in [("success", succeeded), ("inadmissible", failed)] {
            if count > 0 {
                self.series.add(&table::ATTEMPTS, &[result], count);
                (0..count).for_each(|_| self.series.observe(&table::ATTEMPT_TOOK, &[result], each));
            }
        }
        for queue in &counts.preemption_skips {
            self.series.set(&table::SKIPS, &[queue.as_str()], 1);
        }
        for ((queue, result), count) in &counts.recomputations {
            self.series.add(&table::RECOMPUTED, &[queue.as_str(), result.token()], *count);
        }
    }

    /// What an object says that its series are to show.
    pub fn describe(&self, owner: Owner, names: &[&str], metadata: &ObjectMeta) {
        if !self.shown.custom.is_empty() {
            self.series.describe(owner, names, metadata);
        }
    }

    /// A ClusterQueue is gone, and its series with it. Returns cohorts of which something else is to be told.
    pub fn forget_cluster_queue(&self, name: &ClusterQueueName) -> BTreeSet<CohortName> {
        let left = self.known().sums.forget(name);
        self.forget(Owner::ClusterQueue, &[name.as_str()]);
        self.tell_counts(name);
        for cohort in &left {
            self.tell_sums(cohort);
        }
        left
    }

    /// A LocalQueue is gone or is not to be shown, and its series with it.
    pub fn forget_local_queue(&self, key: &LocalQueueKey) {
        self.forget(Owner::LocalQueue, &[&key.name, &key.namespace]);
    }

    /// A Cohort is gone, and its series with it, but for what the queues come to that name it still.
    pub fn forget_cohort(&self, name: &CohortName) {
        self.forget(Owner::Cohort, &[name.as_str()]);
        self.tell_sums(name);
    }

    fn forget(&self, owner: Owner, names: &[&str]) {
        self.series.forget(owner, names);
        self.known().classes.remove(&(owner, names.iter().map(|&name| name.to_owned()).collect()));
    }

    /// This replica no longer leads: what it knew of the queues is nobody's truth any more.
    pub fn no_longer_leads(&self) {
        self.series.clear_gauges();
        self.known().sums = Sums::default();
    }

    fn shows_local_queue(&self, labels: Option<&Labels>) -> bool {
        let none = Labels::new();
        self.shown.local_queues.as_ref().is_some_and(|wanted| wanted.matches(labels.unwrap_or(&none)))
    }

    /// The priority class, unless its owner has shown too many.
    fn class(&self, owner: Owner, names: &[&str], class: &str) -> String {
        let mut known = self.known();
        let key = (owner, names.iter().map(|&name| name.to_owned()).collect());
        let classes = known.classes.entry(key).or_default();
        let class = if classes.contains(class) || classes.len() < MAX_CLASSES { class } else { OTHER };
        if !classes.contains(class) {
            classes.insert(class.to_owned());
        }
        class.to_owned()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// As people write it: cores, not thousandths of them.
fn amount(resource: &ResourceName, amount: i64) -> Number {
    let units = amount as f64;
    Number::Real(if resource.as_str() == "cpu" { units / 1000.0 } else { units })
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use quota_engine::{Attempts, Recomputation};

    use super::*;

    #[test]
    fn what_cycles_came_to_is_told() {
        let metrics = QueueMetrics::new(true, Shown::default());
        let counts = CycleCounts {
            attempts: Attempts { succeeded: 3, failed: 1 },
            preemption_skips: [ClusterQueueName::from("a")].into(),
            recomputations: [((ClusterQueueName::from("b"), Recomputation::NewTargets), 2)].into(),
        };
        metrics.cycles(&counts, Duration::from_secs(8));
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for line in [
            r#"kueue_admission_attempt_duration_seconds_sum{result="success",replica_role="leader"} 6.0"#,
            r#"kueue_admission_cycle_preemption_skips{cluster_queue="a",replica_role="leader"} 1"#,
            r#"kueue_preemption_target_recomputations_total{cluster_queue="b",result="new_targets",replica_role="leader"} 2"#,
        ] {
            assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
        }
    }
}
