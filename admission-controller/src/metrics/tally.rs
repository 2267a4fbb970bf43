//! Workloads that are not admitted, by reason, and those that have ended: counted as their objects say, since nobody decides
//! by these numbers.

use std::collections::{BTreeMap, BTreeSet};

use crds::reasons::workload as tokens;
use crds::view::workload::Workload;
use quota_engine::LocalQueueKey;

/// What a workload counts as. Those that are admitted count as nothing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Told {
    Finished,
    Unadmitted(Why),
}

/// The reasons of its conditions `Admitted` and `QuotaReserved`.
pub(super) type Why = (String, String);

/// What is counted of the workloads of one LocalQueue, or of all of a ClusterQueue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(super) finished: usize,
    pub(super) unadmitted: BTreeMap<Why, usize>,
}

impl Counts {
    fn step(&mut self, told: &Told, up: bool) {
        match told {
            Told::Finished => step(&mut self.finished, 1, up),
            Told::Unadmitted(why) => {
                let count = self.unadmitted.entry(why.clone()).or_default();
                step(count, 1, up);
                if *count == 0 {
                    self.unadmitted.remove(why);
                }
            }
        }
    }

    /// Adds those of one more LocalQueue, or takes them away.
    pub(super) fn merge(&mut self, other: &Self, up: bool) {
        step(&mut self.finished, other.finished, up);
        for (why, more) in &other.unadmitted {
            let count = self.unadmitted.entry(why.clone()).or_default();
            step(count, *more, up);
        }
        self.unadmitted.retain(|_, count| *count > 0);
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

fn step(count: &mut usize, by: usize, up: bool) {
    *count = if up { *count + by } else { count.saturating_sub(by) };
}

/// Kept up to date with every change of a Workload.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    counts: BTreeMap<LocalQueueKey, Counts>,
    touched: BTreeSet<LocalQueueKey>,
}

impl Tally {
    /// A Workload came, went or is another than it was.
    pub(crate) fn changed(&mut self, before: Option<&Workload>, now: Option<&Workload>) {
        let counted = |view: &Workload| queue_of(view).zip(told(view));
        let (before, now) = (before.and_then(counted), now.and_then(counted));
        if before == now {
            return;
        }
        for (one, up) in [(before, false), (now, true)] {
            let Some((key, told)) = one else { continue };
            let counts = self.counts.entry(key.clone()).or_default();
            counts.step(&told, up);
            if counts.is_empty() {
                self.counts.remove(&key);
            }
            self.touched.insert(key);
        }
    }

    /// Of the workloads of a LocalQueue.
    pub(crate) fn of(&self, key: &LocalQueueKey) -> Counts {
        self.counts.get(key).cloned().unwrap_or_default()
    }

    /// The LocalQueues of whose workloads something else is counted than at the last call.
    pub(crate) fn take_touched(&mut self) -> BTreeSet<LocalQueueKey> {
        std::mem::take(&mut self.touched)
    }
}

/// The LocalQueue that a Workload names.
pub(crate) fn queue_of(view: &Workload) -> Option<LocalQueueKey> {
    let name = view.spec.queue_name.as_deref().filter(|name| !name.is_empty())?;
    Some(LocalQueueKey::new(view.metadata.namespace.as_deref().unwrap_or_default(), name))
}

/// Rules: Kueue `pkg/cache/queue/unadmitted_workloads.go`.
fn told(view: &Workload) -> Option<Told> {
    if view.holds(tokens::FINISHED) {
        return Some(Told::Finished);
    }
    if view.holds(tokens::ADMITTED) || view.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let reason = view.condition(tokens::ADMITTED).map(|said| said.reason.clone());
    let cause = match view.condition(tokens::QUOTA_RESERVED) {
        None => tokens::quota_reserved::PENDING_EVALUATION.to_owned(),
        Some(said) if said.status == "True" => String::new(),
        Some(said) => said.reason.clone(),
    };
    Some(Told::Unadmitted((reason.unwrap_or_else(|| tokens::admitted::NO_RESERVATION.to_owned()), cause)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn workload(queue: &str, conditions: Value) -> Workload {
        serde_json::from_value(json!({
            "metadata": { "name": "w", "namespace": "team" },
            "spec": { "queueName": queue }, "status": { "conditions": conditions },
        }))
        .unwrap()
    }

    fn says(kind: &str, status: &str, reason: &str) -> Value {
        json!({ "type": kind, "status": status, "reason": reason, "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z" })
    }

    #[test]
    fn workloads_are_counted_as_they_say_of_themselves() {
        let mut tally = Tally::default();
        let key = |name: &str| LocalQueueKey { namespace: "team".into(), name: name.into() };
        let why = |reason: &str, cause: &str| (reason.to_owned(), cause.to_owned());
        let (one, two) = (
            workload("a", json!([])),
            workload("a", json!([says("QuotaReserved", "False", "WaitingForQuota")])),
        );
        tally.changed(None, Some(&one));
        tally.changed(None, Some(&two));
        assert_eq!(
            tally.of(&key("a")).unadmitted,
            BTreeMap::from([
                (why("NoReservation", "PendingEvaluation"), 1),
                (why("NoReservation", "WaitingForQuota"), 1)
            ])
        );
        assert_eq!(tally.take_touched(), [key("a")].into());
        let reserved = says("QuotaReserved", "True", "QuotaReserved");
        let checks = says("Admitted", "False", "UnsatisfiedAdmissionChecks");
        let checked = workload("a", json!([reserved, checks]));
        tally.changed(Some(&one), Some(&checked));
        assert_eq!(tally.of(&key("a")).unadmitted[&why("UnsatisfiedAdmissionChecks", "")], 1);
        let admitted = workload("a", json!([reserved, says("Admitted", "True", "Admitted")]));
        tally.changed(Some(&checked), Some(&admitted));
        let finished = workload("b", json!([says("Finished", "True", "Succeeded")]));
        tally.changed(Some(&two), Some(&finished));
        assert!(tally.of(&key("a")).is_empty());
        assert_eq!(tally.of(&key("b")).finished, 1);
        tally.take_touched();
        tally.changed(Some(&finished), Some(&finished.clone()));
        assert!(tally.take_touched().is_empty(), "nothing new");
        tally.changed(Some(&finished), None);
        assert!(tally.of(&key("b")).is_empty() && tally.counts.is_empty());
        assert_eq!(tally.take_touched(), [key("b")].into());
    }
}
