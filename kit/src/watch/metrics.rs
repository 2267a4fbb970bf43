//! What is counted about watches.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// Counters by kind, shared by all watches of a program.
#[derive(Clone, Debug, Default)]
pub(super) struct WatchMetrics {
    events: Family<Kind, Counter>,
    restarts: Family<Kind, Counter>,
    failures: Family<Kind, Counter>,
    undecodable: Family<Kind, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    kind: String,
}

/// The counters of one kind.
pub(super) struct OfKind {
    pub(super) events: Counter,
    pub(super) restarts: Counter,
    pub(super) failures: Counter,
    pub(super) undecodable: Counter,
}

impl WatchMetrics {
    /// Registers the counters.
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("watch_events", "Events received by watches", self.events.clone());
        registry.register("watch_restarts", "Lists begun by watches", self.restarts.clone());
        registry.register("watch_failures", "Lists and watches that failed", self.failures.clone());
        registry.register(
            "watch_undecodable_objects",
            "Objects left out because they could not be decoded",
            self.undecodable.clone(),
        );
    }

    pub(super) fn of(&self, kind: &str) -> OfKind {
        let label = Kind { kind: kind.to_owned() };
        OfKind {
            events: self.events.get_or_create_owned(&label),
            restarts: self.restarts.get_or_create_owned(&label),
            failures: self.failures.get_or_create_owned(&label),
            undecodable: self.undecodable.get_or_create_owned(&label),
        }
    }
}
