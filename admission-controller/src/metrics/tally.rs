//! Workloads that are not admitted, by reason, and those that have ended: counted as their objects say, since nobody decides
//! by these numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crds::reasons::workload as tokens;
use crds::view::workload::Workload;
use quota_engine::{LocalQueueKey, Uid};

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
    of: BTreeMap<Uid, Arc<(LocalQueueKey, Told)>>,
    /// What workloads have in common is kept once.
    kinds: BTreeSet<Arc<(LocalQueueKey, Told)>>,
    counts: BTreeMap<LocalQueueKey, Counts>,
    touched: BTreeSet<LocalQueueKey>,
}

impl Tally {
    /// A Workload is as this.
    pub(crate) fn seen(&mut self, uid: &Uid, view: &Workload) {
        let told = queue_of(view).zip(told(view));
        if self.of.get(uid).map(|known| &**known) == told.as_ref() {
            return;
        }
        self.gone(uid);
        let Some(told) = told else { return };
        let kind = match self.kinds.get(&told) {
            Some(kind) => kind.clone(),
            None => {
                let kind = Arc::new(told);
                self.kinds.insert(kind.clone());
                kind
            }
        };
        self.counts.entry(kind.0.clone()).or_default().step(&kind.1, true);
        self.touched.insert(kind.0.clone());
        self.of.insert(uid.clone(), kind);
    }

    /// A Workload is gone.
    pub(crate) fn gone(&mut self, uid: &Uid) {
        let Some(kind) = self.of.remove(uid) else { return };
        let (key, told) = &*kind;
        if let Some(counts) = self.counts.get_mut(key) {
            counts.step(told, false);
            if counts.is_empty() {
                self.counts.remove(key);
            }
        }
        self.touched.insert(key.clone());
        // One is this one, the other is the set's.
        if Arc::strong_count(&kind) == 2 {
            self.kinds.remove(&kind);
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
        let (one, two) = (Uid::from("1"), Uid::from("2"));
        tally.seen(&one, &workload("a", json!([])));
        tally.seen(&two, &workload("a", json!([says("QuotaReserved", "False", "WaitingForQuota")])));
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
        tally.seen(&one, &workload("a", json!([reserved, checks])));
        assert_eq!(tally.of(&key("a")).unadmitted[&why("UnsatisfiedAdmissionChecks", "")], 1);
        tally.seen(&one, &workload("a", json!([reserved, says("Admitted", "True", "Admitted")])));
        tally.seen(&two, &workload("b", json!([says("Finished", "True", "Succeeded")])));
        assert!(tally.of(&key("a")).is_empty());
        assert_eq!(tally.of(&key("b")).finished, 1);
        tally.take_touched();
        tally.seen(&two, &workload("b", json!([says("Finished", "True", "Succeeded")])));
        assert!(tally.take_touched().is_empty(), "nothing new");
        tally.gone(&two);
        assert!(tally.of(&key("b")).is_empty() && tally.kinds.is_empty() && tally.of.is_empty());
    }
}
