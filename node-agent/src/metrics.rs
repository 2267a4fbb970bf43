//! The agent's own figures.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::inventory::{HealthChange, Inventory};

/// One label.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByHealth {
    health: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByReason {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BySource {
    source: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByOperation {
    operation: &'static str,
}

/// Who chose the devices of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A scheduler, through `trireme.dev/devices`.
    Scheduler,
    /// The agent.
    Agent,
}

/// Counters and gauges; clones count into the same ones.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    devices: Family<ByHealth, Gauge>,
    health_changes: Family<ByReason, Counter>,
    registrations: Counter,
    preferred: Family<BySource, Counter>,
    allocations: Counter,
    errors: Family<ByOperation, Counter>,
}

impl Metrics {
    /// Makes them part of a registry.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("trireme_node_agent");
        registry.register("devices", "GPUs of this node by health", self.devices.clone());
        registry.register(
            "health_changes",
            "Changes of a GPU's health by reason",
            self.health_changes.clone(),
        );
        registry.register("registrations", "Registrations with the kubelet", self.registrations.clone());
        registry.register(
            "preferred_allocations",
            "Choices of devices by who made them",
            self.preferred.clone(),
        );
        registry.register("allocations", "Containers that were given devices", self.allocations.clone());
        registry.register("errors", "Failures by operation", self.errors.clone());
    }

    pub(crate) fn counted(&self, inventory: &Inventory) {
        let (healthy, all) = (inventory.healthy(), inventory.devices().len());
        let set = |health, number: usize| {
            self.devices.get_or_create(&ByHealth { health }).set(i64::try_from(number).unwrap_or(i64::MAX));
        };
        set("healthy", healthy);
        set("unhealthy", all - healthy);
    }

    pub(crate) fn health_changed(&self, change: &HealthChange) {
        let reason = change.health.ailment().map_or("Recovered", |ailment| ailment.reason.as_str());
        self.health_changes.get_or_create(&ByReason { reason }).inc();
    }

    pub(crate) fn registered(&self) {
        self.registrations.inc();
    }

    pub(crate) fn chosen(&self, source: Source) {
        let source = match source {
            Source::Scheduler => "scheduler",
            Source::Agent => "agent",
        };
        self.preferred.get_or_create(&BySource { source }).inc();
    }

    pub(crate) fn allocated(&self) {
        self.allocations.inc();
    }

    pub(crate) fn failed(&self, operation: &'static str) {
        self.errors.get_or_create(&ByOperation { operation }).inc();
    }
}
