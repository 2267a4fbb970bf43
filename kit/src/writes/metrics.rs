//! What is counted about writes.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::Failure;
use crate::patch::WriteError;

/// Counters of an executor.
#[derive(Clone, Debug, Default)]
pub struct WriteMetrics {
    ended: Family<Ended, Counter>,
    pub(super) repeated: Counter,
    pub(super) in_flight: Gauge,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ended {
    result: &'static str,
}

impl WriteMetrics {
    /// Registers the counters.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("writes", "Writes that ended, by how", self.ended.clone());
        registry.register("writes_repeated", "Attempts after the first", self.repeated.clone());
        registry.register("writes_in_flight", "Writes sent and not yet answered", self.in_flight.clone());
    }

    pub(super) fn ended(&self, failure: Option<&Failure>) {
        let result = match failure {
            None => "done",
            Some(Failure::Error(WriteError::Gone)) => "gone",
            Some(Failure::Error(WriteError::Conflict(_))) => "conflict",
            Some(Failure::Error(WriteError::Refused(_))) => "refused",
            Some(Failure::Error(WriteError::Unavailable { .. })) => "unavailable",
            Some(Failure::NotLeading) => "not_leading",
            Some(Failure::Shed) => "shed",
            Some(Failure::Stopping) => "stopping",
        };
        self.ended.get_or_create(&Ended { result }).inc();
    }
}
