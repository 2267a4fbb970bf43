//! What is counted, under kube-scheduler's names.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::core::{Core, Tally};

/// The scheduler's metrics.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics {
    pending: Family<Queue, Gauge>,
    attempts: Family<Attempt, Counter>,
    plans: Counter,
    undone: Counter,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Queue {
    queue: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Attempt {
    result: &'static str,
}

impl Metrics {
    /// Registers them; ours under the prefix that the rest of the program has.
    pub(crate) fn register(&self, registry: &mut Registry, ours: &str) {
        let peers = registry.sub_registry_with_prefix("scheduler");
        peers.register("pending_pods", "Pods that wait, by what for", self.pending.clone());
        let help = "Decisions about pods, by how they ended: bound, no place, or refused";
        peers.register("schedule_attempts", help, self.attempts.clone());
        let own = registry.sub_registry_with_prefix(ours);
        own.register("gang_plans", "Plans for two or more pods that were begun", self.plans.clone());
        own.register(
            "gangs_undone",
            "Gangs that stayed below their minimum and were undone",
            self.undone.clone(),
        );
    }

    /// Takes over what the core counted since the last time.
    pub(crate) fn take(&self, core: &mut Core) {
        let waiting = if core.leading() { core.engine().waiting() } else { Default::default() };
        let amounts = [
            ("backoff", waiting.backoff),
            ("unschedulable", waiting.unschedulable),
            ("gated", waiting.gated),
        ];
        for (queue, pods) in amounts {
            self.pending.get_or_create(&Queue { queue }).set(i64::try_from(pods).unwrap_or(i64::MAX));
        }
        let Tally { scheduled, unschedulable, refused, plans, undone } = core.take_tally();
        for (result, count) in
            [("scheduled", scheduled), ("unschedulable", unschedulable), ("error", refused)]
        {
            self.attempts.get_or_create(&Attempt { result }).inc_by(count);
        }
        self.plans.inc_by(plans);
        self.undone.inc_by(undone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    #[test]
    fn the_names_are_kube_scheduler_s() {
        let mut registry = Registry::default();
        let metrics = Metrics::default();
        metrics.register(&mut registry, "trireme");
        metrics.take(&mut Core::new(&Config::default()));
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &registry).unwrap();
        for line in [
            "scheduler_pending_pods{queue=\"unschedulable\"} 0",
            "scheduler_pending_pods{queue=\"gated\"} 0",
            "scheduler_schedule_attempts_total{result=\"scheduled\"} 0",
            "trireme_gangs_undone_total 0",
        ] {
            assert!(page.contains(line), "{line} is not in\n{page}");
        }
    }
}
