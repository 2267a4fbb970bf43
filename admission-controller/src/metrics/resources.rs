//! Quotas and their use by flavor and resource, where `metrics.enableClusterQueueResources` asks for them: a series for each pair
//! of each queue is much in a large cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use model::ResourceName;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use quota_engine::{ClusterQueueReport, FlavorName, FlavorUsage};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
struct OfPair {
    cohort: String,
    cluster_queue: String,
    flavor: String,
    resource: String,
    replica_role: &'static str,
}

type Amounts = Family<OfPair, Gauge<f64, AtomicU64>>;

/// The series of one replica, in cores, bytes and counts.
#[derive(Clone, Debug, Default)]
pub(super) struct ResourceMetrics {
    reservation: Amounts,
    usage: Amounts,
    nominal: Amounts,
    borrowing: Amounts,
    lending: Amounts,
    known: Arc<Mutex<BTreeMap<String, BTreeSet<OfPair>>>>,
}

impl ResourceMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        for (name, help, family) in [
            ("resource_reservation", "What workloads with quota use", &self.reservation),
            ("resource_usage", "What admitted workloads use", &self.usage),
            ("nominal_quota", "The quota of a ClusterQueue", &self.nominal),
            ("borrowing_limit", "What it may borrow; +Inf without a limit", &self.borrowing),
            ("lending_limit", "What it lends; +Inf without a limit", &self.lending),
        ] {
            registry.register(format!("kueue_cluster_queue_{name}"), help, family.clone());
        }
    }

    /// The quotas and the use of a ClusterQueue; pairs that are no longer among them lose their series.
    pub(super) fn cluster_queue(&self, name: &str, report: &ClusterQueueReport, role: &'static str) {
        let cohort = report.cohort.as_ref().map(ToString::to_string).unwrap_or_default();
        let pair = |flavor: &FlavorName, resource: &ResourceName| OfPair {
            cohort: cohort.clone(),
            cluster_queue: name.to_owned(),
            flavor: flavor.to_string(),
            resource: resource.as_str().to_owned(),
            replica_role: role,
        };
        let mut seen = BTreeSet::new();
        for (flavor, resource, quota) in &report.quotas {
            let labels = pair(flavor, resource);
            let limit = |limit: Option<i64>| limit.map_or(f64::INFINITY, |limit| amount(resource, limit));
            self.nominal.get_or_create(&labels).set(amount(resource, quota.nominal));
            self.borrowing.get_or_create(&labels).set(limit(quota.borrowing_limit));
            self.lending.get_or_create(&labels).set(limit(quota.lending_limit));
            seen.insert(labels);
        }
        for (rows, family) in [(&report.reservation, &self.reservation), (&report.usage, &self.usage)] {
            for FlavorUsage { flavor, resource, total, .. } in rows {
                let labels = pair(flavor, resource);
                family.get_or_create(&labels).set(amount(resource, *total));
                seen.insert(labels);
            }
        }
        let before = self.known().insert(name.to_owned(), seen.clone());
        before
            .into_iter()
            .flatten()
            .filter(|labels| !seen.contains(labels))
            .for_each(|labels| self.remove(&labels));
    }

    pub(super) fn forget(&self, name: &str) {
        let gone = self.known().remove(name);
        gone.into_iter().flatten().for_each(|labels| self.remove(&labels));
    }

    pub(super) fn no_longer_leads(&self) {
        self.known().clear();
        for family in self.all() {
            family.clear();
        }
    }

    fn remove(&self, labels: &OfPair) {
        for family in self.all() {
            family.remove(labels);
        }
    }

    fn all(&self) -> [&Amounts; 5] {
        [&self.reservation, &self.usage, &self.nominal, &self.borrowing, &self.lending]
    }

    fn known(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, BTreeSet<OfPair>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// As people write it: cores, not thousandths of them.
fn amount(resource: &ResourceName, amount: i64) -> f64 {
    let units = amount as f64;
    if resource.as_str() == "cpu" { units / 1000.0 } else { units }
}
