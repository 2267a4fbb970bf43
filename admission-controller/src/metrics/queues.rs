//! Queues and cohorts as they are now.

use std::collections::BTreeSet;

use model::ResourceList;
use model::selector::Labels;
use quota_engine::{
    ClusterQueueName, ClusterQueueReport, CohortName, CohortReport, FairShare, FlavorUsage, Inactive,
    LocalQueueKey, LocalQueueReport,
};

use super::table;
use super::tally::Counts;
use super::{Metric, Number, Owner, QueueMetrics, amount};

/// Who waits in a ClusterQueue, as far as that is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// How many kinds of workloads are looked at, and how many are not until something changes.
    pub shapes: (usize, usize),
    /// What all of them ask for.
    pub asked: ResourceList,
}

impl QueueMetrics {
    /// Whether something is to be told of who waits: it takes looking at all of them.
    pub fn wants_shapes(&self) -> bool {
        self.shown.shapes
    }

    /// Whether it is to be told what those who wait ask for: it takes looking at all of them.
    pub fn wants_asked(&self) -> bool {
        self.shown.resources
    }

    /// The state of a ClusterQueue with these cohorts above it, the nearest first. Returns cohorts of which something else is to
    /// be told.
    pub fn cluster_queue(
        &self,
        name: &ClusterQueueName,
        report: &ClusterQueueReport,
        cohorts: &[CohortName],
        waiting: &Waiting,
    ) -> BTreeSet<CohortName> {
        let (queue, series) = (name.as_str(), &self.series);
        series.set(&table::PENDING, &[queue, "active"], report.pending - report.inadmissible);
        series.set(&table::PENDING, &[queue, "inadmissible"], report.inadmissible);
        series.set(&table::PENDING_SHAPES, &[queue, "active"], waiting.shapes.0);
        series.set(&table::PENDING_SHAPES, &[queue, "inadmissible"], waiting.shapes.1);
        series.set(&table::RESERVING, &[queue], report.reserving);
        series.set(&table::ADMITTED_ACTIVE, &[queue], report.admitted);
        let is = match report.inactive {
            None => "active",
            Some(Inactive::Terminating) => "terminating",
            Some(_) => "pending",
        };
        for status in ["active", "pending", "terminating"] {
            series.set(&table::STATUS, &[queue, status], usize::from(status == is));
        }
        let place = vec![named(cohorts.first()), named(cohorts.last())];
        series.replace(&table::QUEUE_INFO, &[queue], [(place, Number::Whole(1))]);
        let share = report.fair_share.as_ref();
        // Kueue's `pkg/controller/core/clusterqueue_controller.go`; of cohorts it tells infinity.
        let told = |share: &FairShare| if share.exact.is_finite() { share.exact } else { f64::NAN };
        let share = share.map(|share| (vec![named(report.cohort.as_ref())], Number::Real(told(share))));
        series.replace(&table::SHARE, &[queue], share);
        if self.shown.resources {
            self.resources(queue, report, &waiting.asked);
        }
        let changed = self.known().sums.set(name, cohorts, report.admitted, &report.reservation);
        for cohort in &changed {
            self.tell_sums(cohort);
        }
        self.tell_counts(name);
        changed
    }

    fn resources(&self, queue: &str, report: &ClusterQueueReport, asked: &ResourceList) {
        let cohort = named(report.cohort.as_ref());
        let quotas = |metric: &'static Metric, value: &dyn Fn(&quota_engine::input::Quota) -> Option<i64>| {
            let rows = report.quotas.iter().map(|(flavor, resource, quota)| {
                let labels = vec![cohort, flavor.as_str(), resource.as_str()];
                let without_limit = Number::Real(f64::INFINITY);
                (labels, value(quota).map_or(without_limit, |value| amount(resource, value)))
            });
            self.series.replace(metric, &[queue], rows);
        };
        quotas(&table::NOMINAL, &|quota| Some(quota.nominal));
        quotas(&table::BORROWING, &|quota| quota.borrowing_limit);
        quotas(&table::LENDING, &|quota| quota.lending_limit);
        let used =
            [(&table::RESOURCE_RESERVATION, &report.reservation), (&table::RESOURCE_USAGE, &report.usage)];
        for (metric, rows) in used {
            self.series.replace(metric, &[queue], used_rows(rows, &[cohort]));
        }
        let mut pending: ResourceList =
            report.quotas.iter().map(|(_, resource, _)| (resource.clone(), 0)).collect();
        pending.extend(asked.clone());
        let rows =
            pending.iter().map(|(resource, asked)| (vec![resource.as_str()], amount(resource, *asked)));
        self.series.replace(&table::RESOURCE_PENDING, &[queue], rows);
    }

    /// The state of a LocalQueue with these labels, and what its workloads count as; `None` where there is no such LocalQueue.
    pub(crate) fn local_queue(
        &self,
        key: &LocalQueueKey,
        labels: Option<&Labels>,
        report: Option<&LocalQueueReport>,
        counts: &Counts,
    ) {
        // As in Kueue, nobody is counted in one that is stopped (`pkg/cache/queue/manager.go`).
        let running = report.filter(|report| !report.stopped);
        let changed = self.known().sums.count(key, running.map(|report| (&report.cluster_queue, counts)));
        for queue in &changed {
            self.tell_counts(queue);
        }
        match report.filter(|_| self.shows_local_queue(labels)) {
            Some(report) => self.shown_local_queue(key, report, counts),
            None => self.forget_local_queue(key),
        }
    }

    fn shown_local_queue(&self, key: &LocalQueueKey, report: &LocalQueueReport, counts: &Counts) {
        let (name, namespace, series) = (&*key.name, &*key.namespace, &self.series);
        let (owner, runs) = ([name, namespace], !report.stopped);
        let pending =
            [("active", report.pending - report.inadmissible), ("inadmissible", report.inadmissible)];
        let pending = pending.into_iter().filter(|_| runs);
        let pending = pending.map(|(status, count)| (vec![status], Number::from(count)));
        series.replace(&table::LOCAL_PENDING, &owner, pending);
        // Nobody has quota of a ClusterQueue that is not there, and as in Kueue nothing is said of it.
        for (metric, count) in
            [(&table::LOCAL_RESERVING, report.reserving), (&table::LOCAL_ADMITTED_ACTIVE, report.admitted)]
        {
            let row = report.cluster_queue_exists.then(|| (Vec::new(), Number::from(count)));
            series.replace(metric, &owner, row);
        }
        let finished = runs.then(|| (Vec::new(), Number::from(counts.finished)));
        series.replace(&table::LOCAL_FINISHED_NOW, &owner, finished);
        let active = runs && report.cluster_queue_exists && report.cluster_queue_active;
        for (status, is) in [("True", active), ("False", !active), ("Unknown", false)] {
            series.set(&table::LOCAL_STATUS, &[name, namespace, status], usize::from(is));
        }
        let used = [
            (&table::LOCAL_RESOURCE_RESERVATION, &report.reservation),
            (&table::LOCAL_RESOURCE_USAGE, &report.usage),
        ];
        for (metric, rows) in used {
            series.replace(metric, &owner, used_rows(rows, &[]));
        }
        let queue = report.cluster_queue.as_str();
        let history = report.history.as_ref().filter(|_| runs);
        let used = history.map(|history| (vec![queue], Number::Real(history.consumption.approximate())));
        series.replace(&table::LOCAL_HISTORY, &owner, used);
        let rows = counts.unadmitted.iter().filter(|_| runs);
        let rows = rows.map(|((reason, cause), count)| (vec![queue, &**reason, cause], Number::from(*count)));
        series.replace(&table::LOCAL_UNADMITTED, &owner, rows);
    }

    /// What the workloads of a ClusterQueue count as. Those that are not admitted are told of one that is not there, too, as long
    /// as they wait in LocalQueues that lead to it.
    pub(super) fn tell_counts(&self, queue: &ClusterQueueName) {
        let known = self.known();
        let (exists, counts) = (known.sums.knows(queue), known.sums.counts(queue));
        drop(known);
        let queue = queue.as_str();
        if exists {
            self.series.set(&table::FINISHED_NOW, &[queue], counts.finished);
        }
        let rows = counts.unadmitted.iter();
        let rows = rows.map(|((reason, cause), count)| (vec![&**reason, cause], Number::from(*count)));
        self.series.replace(&table::UNADMITTED, &[queue], rows);
    }

    /// A cohort, be it that ClusterQueues only name it; `None` where there is none, or none that works.
    pub fn cohort(&self, name: &CohortName, share: Option<&FairShare>, report: Option<&CohortReport>) {
        let cohort = name.as_str();
        let share = share.map(|share| (Vec::new(), Number::Real(share.exact)));
        self.series.replace(&table::COHORT_SHARE, &[cohort], share);
        let Some(report) = report else {
            return self.forget(Owner::Cohort, &[cohort]);
        };
        let place = vec![named(report.parent.as_ref()), report.root.as_str()];
        self.series.replace(&table::COHORT_INFO, &[cohort], [(place, Number::Whole(1))]);
        let quotas = report.quota.iter().filter(|(_, _, quota)| *quota > 0);
        let rows = quotas.map(|(flavor, resource, quota)| {
            (
                vec![flavor.as_str(), resource.as_str()],
                amount(resource, i64::try_from(*quota).unwrap_or(i64::MAX)),
            )
        });
        self.series.replace(&table::COHORT_QUOTA, &[cohort], rows);
    }

    /// What the ClusterQueues below a cohort come to.
    pub(super) fn tell_sums(&self, cohort: &CohortName) {
        let known = self.known();
        let below = known.sums.below(cohort);
        let admitted = below.map(|below| (Vec::new(), Number::from(below.admitted)));
        self.series.replace(&table::COHORT_ADMITTED_ACTIVE, &[cohort.as_str()], admitted);
        let rows = below.into_iter().flat_map(|below| &below.reserved).map(|((flavor, resource), used)| {
            (
                vec![flavor.as_str(), resource.as_str()],
                amount(resource, i64::try_from(*used).unwrap_or(i64::MAX)),
            )
        });
        self.series.replace(&table::COHORT_RESERVATIONS, &[cohort.as_str()], rows);
    }
}

/// A name as a label's value.
fn named(cohort: Option<&CohortName>) -> &str {
    cohort.map_or("", |name| name.as_str())
}

/// One row for each flavor and resource, its labels after those that it begins with.
fn used_rows<'a>(
    rows: &'a [FlavorUsage],
    first: &'a [&'a str],
) -> impl Iterator<Item = (Vec<&'a str>, Number)> {
    rows.iter().map(move |row| {
        let labels = [first, &[row.flavor.as_str(), row.resource.as_str()]].concat();
        (labels, amount(&row.resource, row.total))
    })
}
