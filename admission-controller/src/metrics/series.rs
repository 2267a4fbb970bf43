//! Series by what they are about, and how they go with it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::Error;
use std::ops::Range;
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
    Spread(Box<Spread>),
}

#[derive(Clone, Debug)]
struct Spread {
    sum: f64,
    counts: Box<[u64]>,
}

/// Values of labels: there are many of them, and none grows.
pub(super) type Labels = Box<[Box<str>]>;

/// One series of an owner. There are tens of thousands: each queue has dozens.
#[derive(Debug)]
struct Row {
    metric: &'static Metric,
    /// After those that name its owner.
    rest: Labels,
    value: Value,
}

/// What series are about: the kind of object, and its names.
type Subject = (Owner, Labels);

/// What is told of it.
#[derive(Debug, Default)]
struct Told {
    /// Values of custom labels.
    custom: Labels,
    /// In the order of their metrics' names, then of their labels.
    rows: Vec<Row>,
}

/// All series of the metrics that are shown. What is said of any other metric is not kept.
#[derive(Debug)]
pub(super) struct Series {
    role: &'static str,
    /// By name.
    shown: Vec<&'static Metric>,
    custom: Custom,
    told: Mutex<BTreeMap<Subject, Told>>,
}

impl Series {
    pub(super) fn new(role: &'static str, shown: impl Fn(&Metric) -> bool, custom: Custom) -> Self {
        let mut shown: Vec<&Metric> = ALL.iter().copied().filter(|one| shown(one)).collect();
        shown.sort_by_key(|metric| metric.name);
        Self { role, shown, custom, told: Mutex::default() }
    }

    /// What an object says that its series are to show.
    pub(super) fn describe(&self, owner: Owner, names: &[&str], metadata: &ObjectMeta) {
        let custom = self.custom.values(owner, metadata);
        if !custom.is_empty() {
            self.lock().entry((owner, kept(names))).or_default().custom = custom;
        }
    }

    pub(super) fn add(&self, metric: &'static Metric, labels: &[&str], count: u64) {
        self.change(metric, labels, |value| match value {
            Value::Count(counted) => *counted = counted.saturating_add(count),
            Value::Now(_) | Value::Spread(_) => {}
        });
    }

    pub(super) fn set(&self, metric: &'static Metric, labels: &[&str], number: impl Into<Number>) {
        let number = number.into();
        self.change(metric, labels, |value| *value = Value::Now(number));
    }

    /// Notes how long something took. The clock of whoever wrote when it began may have been ahead; a sum never goes down.
    pub(super) fn observe(&self, metric: &'static Metric, labels: &[&str], seconds: f64) {
        let Kind::Histogram(bounds) = metric.kind else { return };
        let seconds = seconds.max(0.0);
        let bucket = bounds.iter().position(|bound| seconds <= *bound).unwrap_or(bounds.len());
        self.change(metric, labels, |value| {
            if let Value::Spread(spread) = value {
                spread.sum += seconds;
                spread.counts[bucket] += 1;
            }
        });
    }

    /// These are an owner's series of a gauge, by their other labels, and no others. Of two with the same labels one is shown:
    /// Prometheus reads no page that has both.
    pub(super) fn replace<'a>(
        &self,
        metric: &'static Metric,
        owner: &[&str],
        rows: impl IntoIterator<Item = (Vec<&'a str>, Number)>,
    ) {
        debug_assert_eq!(owner.len(), metric.owner.names(), "{}", metric.name);
        if !self.shows(metric) {
            return;
        }
        let rows = rows.into_iter().map(|(rest, number)| Row {
            metric,
            rest: kept(&rest),
            value: Value::Now(number),
        });
        let mut new: Vec<Row> = rows.collect();
        new.sort_by(|a, b| a.rest.cmp(&b.rest));
        new.dedup_by(|a, b| a.rest == b.rest);
        match self.lock().entry((metric.owner, kept(owner))) {
            Entry::Vacant(_) if new.is_empty() => {}
            Entry::Vacant(vacant) => {
                vacant.insert(Told { rows: new, ..Told::default() });
            }
            Entry::Occupied(mut told) => {
                let Told { custom, rows } = told.get_mut();
                rows.splice(of_metric(rows, metric), new);
                // Of what is not there nobody says that it is gone.
                if rows.is_empty() && custom.is_empty() {
                    told.remove();
                }
            }
        }
    }

    /// An object is gone, and all its series with it.
    pub(super) fn forget(&self, owner: Owner, names: &[&str]) {
        self.lock().remove(&(owner, kept(names)));
    }

    /// Removes what is as it is now, and keeps what was counted.
    pub(super) fn clear_gauges(&self) {
        let mut all = self.lock();
        for (_, told) in all.iter_mut().filter(|((owner, _), _)| *owner != Owner::Program) {
            told.rows.retain(|row| row.metric.kind != Kind::Gauge);
        }
    }

    fn change(&self, metric: &'static Metric, labels: &[&str], change: impl FnOnce(&mut Value)) {
        debug_assert_eq!(labels.len(), metric.labels.len(), "{}", metric.name);
        if !self.shows(metric) {
            return;
        }
        let (names, rest) = labels.split_at(metric.owner.names());
        let mut all = self.lock();
        let rows = &mut all.entry((metric.owner, kept(names))).or_default().rows;
        let at = rows.binary_search_by(|row| {
            let labels = || row.rest.iter().map(|label| &**label).cmp(rest.iter().copied());
            row.metric.name.cmp(metric.name).then_with(labels)
        });
        let at = at.unwrap_or_else(|at| {
            rows.insert(at, Row { metric, rest: kept(rest), value: Value::none(metric.kind) });
            at
        });
        change(&mut rows[at].value);
    }

    fn shows(&self, metric: &Metric) -> bool {
        self.shown.iter().any(|shown| std::ptr::eq(*shown, metric))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Subject, Told>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Value {
    fn none(kind: Kind) -> Self {
        match kind {
            Kind::Counter => Self::Count(0),
            Kind::Gauge => Self::Now(Number::Whole(0)),
            Kind::Histogram(bounds) => {
                Self::Spread(Box::new(Spread { sum: 0.0, counts: vec![0; bounds.len() + 1].into() }))
            }
        }
    }
}

/// Where the rows of one metric are.
fn of_metric(rows: &[Row], metric: &Metric) -> Range<usize> {
    let from = rows.partition_point(|row| row.metric.name < metric.name);
    let until = rows.partition_point(|row| row.metric.name <= metric.name);
    from..until
}

fn kept(labels: &[&str]) -> Labels {
    labels.iter().map(|&label| label.into()).collect()
}

impl Collector for Series {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let all = self.lock();
        for &metric in &self.shown {
            let told = |told: &Told| !of_metric(&told.rows, metric).is_empty();
            // As Prometheus' own client does it: of what there is nothing of nothing is said.
            if !all.iter().any(|((owner, _), one)| *owner == metric.owner && told(one)) {
                continue;
            }
            let (name, kind) = open_metrics(metric, |name| self.shown.iter().any(|shown| shown.name == name));
            let mut family = encoder.encode_descriptor(name, metric.help, None, kind)?;
            for ((_, names), told) in all.iter().filter(|((owner, _), _)| *owner == metric.owner) {
                let custom = self.custom.named(metric.owner, &told.custom);
                for row in &told.rows[of_metric(&told.rows, metric)] {
                    let values = names.iter().chain(&row.rest).map(|value| &**value).chain([self.role]);
                    let own = metric.all_labels().map(|name| -> &str { name });
                    let labels: Vec<(&str, &str)> = own.zip(values).chain(custom.iter().copied()).collect();
                    encode(family.encode_family(&labels)?, metric, kind, &row.value)?;
                }
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
        Value::Spread(spread) => {
            let Kind::Histogram(bounds) = metric.kind else { return Ok(()) };
            let bounds = bounds.iter().copied().chain([f64::INFINITY]);
            let buckets: Vec<(f64, u64)> = bounds.zip(spread.counts.iter().copied()).collect();
            to.encode_histogram::<NoLabelSet>(spread.sum, spread.counts.iter().sum(), &buckets, None)
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
        let left = |metric: &'static Metric| -> Vec<Vec<String>> {
            let all = series.lock();
            let rows = all.iter().flat_map(|((_, names), told)| {
                told.rows[of_metric(&told.rows, metric)]
                    .iter()
                    .map(move |row| names.iter().chain(&row.rest).map(|label| label.to_string()).collect())
            });
            rows.collect()
        };
        assert_eq!(left(&table::ADMITTED), [["aa", ""], ["b", ""]]);
        assert_eq!(left(&table::PENDING), [["aa", "active"], ["b", "active"]]);
        assert_eq!(left(&table::LOCAL_RESERVING), [["a", "other"], ["aa", "team"], ["b", "team"]]);
        let row = (vec!["inadmissible"], Number::Whole(7));
        series.replace(&table::PENDING, &["aa"], [row.clone(), row]);
        assert_eq!(left(&table::PENDING), [["aa", "inadmissible"], ["b", "active"]]);
        series.clear_gauges();
        assert_eq!((left(&table::PENDING).len(), left(&table::ADMITTED).len()), (0, 2));
    }
}
