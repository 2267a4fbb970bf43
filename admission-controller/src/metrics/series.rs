//! Series by metric and labels, and how they go with what they are about.

use std::collections::BTreeMap;
use std::fmt::Error;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::custom::Custom;
use super::table::{ALL, Kind, Metric, Owner};

/// A gauge's value: counts are shown without a fraction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Number {
    Whole(i64),
    Real(f64),
}

impl From<usize> for Number {
    fn from(count: usize) -> Self {
        Self::Whole(i64::try_from(count).unwrap_or(i64::MAX))
    }
}

#[derive(Clone, Debug)]
enum Value {
    Count(u64),
    Now(Number),
    Spread { sum: f64, counts: Vec<u64> },
}

/// The values of a metric's labels in the order of the table, those of its owner first.
type Labels = Vec<String>;

#[derive(Debug)]
struct Rows {
    metric: &'static Metric,
    by_labels: BTreeMap<Labels, Value>,
}

/// All series of the metrics that are shown. What is said of any other metric is not kept.
#[derive(Debug)]
pub(super) struct Series {
    role: &'static str,
    shown: Mutex<BTreeMap<&'static str, Rows>>,
    /// Locked after `shown`, where both are.
    custom: Mutex<Custom>,
}

impl Series {
    pub(super) fn new(role: &'static str, shown: impl Fn(&Metric) -> bool, custom: Custom) -> Self {
        let rows = |metric: &&'static Metric| (metric.name, Rows { metric, by_labels: BTreeMap::new() });
        let shown = ALL.iter().filter(|one| shown(one)).map(rows).collect();
        Self { role, shown: Mutex::new(shown), custom: Mutex::new(custom) }
    }

    /// What an object says that its series are to show.
    pub(super) fn describe(&self, owner: Owner, names: &[&str], metadata: &ObjectMeta) {
        self.custom().describe(owner, names, metadata);
    }

    pub(super) fn add(&self, metric: &Metric, labels: &[&str], count: u64) {
        self.change(metric, labels, |value| match value {
            Value::Count(counted) => *counted = counted.saturating_add(count),
            Value::Now(_) | Value::Spread { .. } => {}
        });
    }

    pub(super) fn set(&self, metric: &Metric, labels: &[&str], number: impl Into<Number>) {
        let number = number.into();
        self.change(metric, labels, |value| *value = Value::Now(number));
    }

    pub(super) fn observe(&self, metric: &Metric, labels: &[&str], seconds: f64) {
        let Kind::Histogram(bounds) = metric.kind else { return };
        let bucket = bounds.iter().position(|bound| seconds <= *bound).unwrap_or(bounds.len());
        self.change(metric, labels, |value| {
            if let Value::Spread { sum, counts } = value {
                *sum += seconds;
                counts[bucket] += 1;
            }
        });
    }

    /// These are a gauge's series whose labels begin so, and no others.
    pub(super) fn replace(
        &self,
        metric: &Metric,
        owner: &[&str],
        rows: impl IntoIterator<Item = (Vec<String>, Number)>,
    ) {
        let mut shown = self.lock();
        let Some(known) = shown.get_mut(metric.name) else { return };
        remove(known, owner);
        known.by_labels.extend(rows.into_iter().map(|(labels, number)| (labels, Value::Now(number))));
    }

    /// Removes the series of one metric whose labels begin so.
    pub(super) fn remove(&self, metric: &Metric, labels: &[&str]) {
        if let Some(rows) = self.lock().get_mut(metric.name) {
            remove(rows, labels);
        }
    }

    /// An object is gone, and all its series with it.
    pub(super) fn forget(&self, owner: Owner, names: &[&str]) {
        let mut shown = self.lock();
        shown.values_mut().filter(|rows| rows.metric.owner == owner).for_each(|rows| remove(rows, names));
        self.custom().forget(owner, names);
    }

    /// Removes what is as it is now, and keeps what was counted.
    pub(super) fn clear_gauges(&self) {
        let mut shown = self.lock();
        let passing =
            |rows: &&mut Rows| rows.metric.kind == Kind::Gauge && rows.metric.owner != Owner::Program;
        shown.values_mut().filter(passing).for_each(|rows| rows.by_labels.clear());
    }

    fn change(&self, metric: &Metric, labels: &[&str], change: impl FnOnce(&mut Value)) {
        debug_assert_eq!(labels.len(), metric.labels.len(), "{}", metric.name);
        let mut shown = self.lock();
        let Some(rows) = shown.get_mut(metric.name) else { return };
        let labels = labels.iter().map(|&label| label.to_owned()).collect();
        change(rows.by_labels.entry(labels).or_insert_with(|| match metric.kind {
            Kind::Counter => Value::Count(0),
            Kind::Gauge => Value::Now(Number::Whole(0)),
            Kind::Histogram(bounds) => Value::Spread { sum: 0.0, counts: vec![0; bounds.len() + 1] },
        }));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, Rows>> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn custom(&self) -> MutexGuard<'_, Custom> {
        self.custom.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn remove(rows: &mut Rows, first: &[&str]) {
    let from: Labels = first.iter().map(|&label| label.to_owned()).collect();
    let begins = |labels: &Labels| labels.iter().zip(first).all(|(label, first)| label == first);
    let range = rows.by_labels.range::<Labels, _>((Bound::Included(&from), Bound::Unbounded));
    let gone: Vec<Labels> = range.map(|(labels, _)| labels.clone()).take_while(begins).collect();
    for labels in gone {
        rows.by_labels.remove(&labels);
    }
}

impl Collector for Series {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let shown = self.lock();
        let custom = self.custom();
        for Rows { metric, by_labels } in shown.values() {
            let (name, kind) = open_metrics(metric, |name| shown.contains_key(name));
            let mut family = encoder.encode_descriptor(name, metric.help, None, kind)?;
            for (labels, value) in by_labels {
                let values = labels.iter().map(String::as_str).chain([self.role]);
                let custom = custom.of_series(metric.owner, labels);
                let own = metric.all_labels().map(|name| -> &str { name });
                let labels: Vec<(&str, &str)> = own.zip(values).chain(custom).collect();
                encode(family.encode_family(&labels)?, metric, kind, value)?;
            }
        }
        Ok(())
    }
}

/// What OpenMetrics calls a family: a counter's lacks the `_total` of its samples. Where that is another metric's name, it
/// would clash; such a counter is of the type that OpenMetrics keeps for what it does not know.
fn open_metrics(metric: &Metric, is_taken: impl Fn(&str) -> bool) -> (&'static str, MetricType) {
    match (metric.kind, metric.name.strip_suffix("_total")) {
        (Kind::Counter, Some(family)) if !is_taken(family) => (family, MetricType::Counter),
        (Kind::Counter, _) => (metric.name, MetricType::Unknown),
        (Kind::Gauge, _) => (metric.name, MetricType::Gauge),
        (Kind::Histogram(_), _) => (metric.name, MetricType::Histogram),
    }
}

fn encode(mut to: MetricEncoder<'_>, metric: &Metric, kind: MetricType, value: &Value) -> Result<(), Error> {
    match value {
        Value::Count(count) if matches!(kind, MetricType::Unknown) => to.encode_gauge(count),
        Value::Count(count) => to.encode_counter::<NoLabelSet, _, u64>(count, None),
        Value::Now(Number::Whole(number)) => to.encode_gauge(number),
        Value::Now(Number::Real(number)) => to.encode_gauge(number),
        Value::Spread { sum, counts } => {
            let Kind::Histogram(bounds) = metric.kind else { return Ok(()) };
            let bounds = bounds.iter().copied().chain([f64::INFINITY]);
            let buckets: Vec<(f64, u64)> = bounds.zip(counts.iter().copied()).collect();
            to.encode_histogram::<NoLabelSet>(*sum, counts.iter().sum(), &buckets, None)
        }
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::super::table;
    use super::*;

    fn text(series: Series) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(series));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        text
    }

    #[test]
    fn each_type_is_written_as_prometheus_reads_it() {
        let wanted =
            [&table::FINISHED, &table::FINISHED_NOW, &table::ADMITTED, &table::SHARE, &table::CHECKS_WAIT];
        let series = Series::new("leader", |metric| wanted.contains(&metric), Custom::default());
        series.add(&table::FINISHED, &["a", ""], 2);
        series.add(&table::ADMITTED, &["a", "high"], 3);
        series.set(&table::FINISHED_NOW, &["a"], 1);
        series.set(&table::SHARE, &["a", "all"], Number::Real(2.5));
        series.observe(&table::CHECKS_WAIT, &["a", ""], 2.5);
        series.observe(&table::CHECKS_WAIT, &["a", ""], 99999.0);
        series.observe(&table::EXECUTED, &["a", ""], 1.0);
        let text = text(series);
        for line in [
            "# TYPE kueue_admitted_workloads counter",
            r#"kueue_admitted_workloads_total{cluster_queue="a",priority_class="high",replica_role="leader"} 3"#,
            "# TYPE kueue_finished_workloads gauge",
            r#"kueue_finished_workloads{cluster_queue="a",replica_role="leader"} 1"#,
            "# TYPE kueue_finished_workloads_total unknown",
            r#"kueue_finished_workloads_total{cluster_queue="a",priority_class="",replica_role="leader"} 2"#,
            r#"kueue_cluster_queue_weighted_share{cluster_queue="a",cohort="all",replica_role="leader"} 2.5"#,
            r#"kueue_admission_checks_wait_time_seconds_bucket{le="1.0",cluster_queue="a",priority_class="",replica_role="leader"} 0"#,
            r#"kueue_admission_checks_wait_time_seconds_bucket{le="2.5",cluster_queue="a",priority_class="",replica_role="leader"} 1"#,
            r#"kueue_admission_checks_wait_time_seconds_bucket{le="+Inf",cluster_queue="a",priority_class="",replica_role="leader"} 2"#,
            r#"kueue_admission_checks_wait_time_seconds_sum{cluster_queue="a",priority_class="",replica_role="leader"} 100001.5"#,
            r#"kueue_admission_checks_wait_time_seconds_count{cluster_queue="a",priority_class="",replica_role="leader"} 2"#,
        ] {
            assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("execution_time"), "{text}");
    }

    #[test]
    fn series_go_with_what_they_are_about_and_with_nothing_else() {
        let series = Series::new("standalone", |_| true, Custom::default());
        for queue in ["a", "aa", "b"] {
            series.add(&table::ADMITTED, &[queue, ""], 1);
            series.set(&table::PENDING, &[queue, "active"], 1);
            series.set(&table::LOCAL_RESERVING, &[queue, "team"], 1);
        }
        series.set(&table::LOCAL_RESERVING, &["a", "other"], 1);
        series.forget(Owner::ClusterQueue, &["a"]);
        series.forget(Owner::LocalQueue, &["a", "team"]);
        let left = |metric: &Metric| -> Vec<Labels> {
            series.lock()[metric.name].by_labels.keys().cloned().collect()
        };
        assert_eq!(left(&table::ADMITTED), [["aa", ""], ["b", ""]]);
        assert_eq!(left(&table::PENDING), [["aa", "active"], ["b", "active"]]);
        assert_eq!(left(&table::LOCAL_RESERVING), [["a", "other"], ["aa", "team"], ["b", "team"]]);
        let row = |queue: &str| (vec![queue.to_owned(), "inadmissible".to_owned()], Number::Whole(7));
        series.replace(&table::PENDING, &["aa"], [row("aa")]);
        assert_eq!(left(&table::PENDING), [["aa", "inadmissible"], ["b", "active"]]);
        series.clear_gauges();
        assert_eq!((left(&table::PENDING).len(), left(&table::ADMITTED).len()), (0, 2));
    }
}
