//! What watches say beside changes: counters for the operator, and an event for the owner of an object that cannot be
//! understood.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::registry::Registry;

use super::decode::Named;
use super::metrics::{OfKind, WatchMetrics};
use crate::events::{Event, Events, Regarding, Severity};

/// The reason of the event on an object that a watch left out because it does not decode.
pub const UNDECODABLE: &str = "Undecodable";

/// How many undecodable objects of a kind are remembered, so that each is told of once.
const MAX_REMEMBERED: usize = 1_000;

/// Where the watches of a program report. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Reports {
    metrics: WatchMetrics,
    events: Events,
    left_out: Arc<Mutex<BTreeMap<Key, Event>>>,
}

/// Kind and uid of an object.
type Key = (String, String);

impl Reports {
    /// Nothing reported yet; owners are told by these events.
    pub fn new(events: &Events) -> Self {
        Self { metrics: WatchMetrics::default(), events: events.clone(), left_out: Arc::default() }
    }

    /// Registers the counters.
    pub fn register(&self, registry: &mut Registry) {
        self.metrics.register(registry);
    }

    /// Tells the owners of all objects that are left out once more: for a program that begins to lead, since events are
    /// dropped by who does not.
    pub fn repeat(&self) {
        self.left_out().values().for_each(|event| self.events.publish(event.clone()));
    }

    fn left_out(&self) -> MutexGuard<'_, BTreeMap<Key, Event>> {
        self.left_out.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The objects that one watch left out.
pub(super) struct LeftOut {
    /// The kind as the program names it, where the server does not say.
    api_version: String,
    kind: String,
    reports: Option<Reports>,
    /// By uid; true if an earlier version may have been told.
    known: BTreeMap<String, bool>,
}

impl LeftOut {
    pub(super) fn new(api_version: String, kind: String, reports: Option<Reports>) -> Self {
        Self { api_version, kind, reports, known: BTreeMap::new() }
    }

    /// The counters to count into.
    pub(super) fn counters(&self) -> OfKind {
        let metrics = self.reports.as_ref().map(|reports| reports.metrics.clone());
        metrics.unwrap_or_default().of(&self.kind)
    }

    /// An object does not decode; `told` if an earlier version may have been told.
    pub(super) fn add(&mut self, bad: Named, told: bool) {
        if self.known.contains_key(&bad.uid) {
            return;
        }
        tracing::error!(
            kind = self.kind,
            namespace = bad.namespace,
            name = bad.name,
            error = bad.error,
            "this object cannot be understood and is left out until it changes"
        );
        if self.known.len() >= MAX_REMEMBERED {
            return;
        }
        self.known.insert(bad.uid.clone(), told);
        if let Some(reports) = self.reports.as_ref().filter(|_| !bad.uid.is_empty()) {
            let (key, event) = (self.key(&bad.uid), self.event(bad));
            reports.left_out().insert(key, event.clone());
            reports.events.publish(event);
        }
    }

    /// The object of this uid is gone, or decodes. Tells what [`add`](Self::add) was told of it, if it was.
    pub(super) fn remove(&mut self, uid: &str) -> Option<bool> {
        let told = self.known.remove(uid)?;
        if let Some(reports) = &self.reports {
            reports.left_out().remove(&self.key(uid));
        }
        Some(told)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// What follows is a new list.
    pub(super) fn clear(&mut self) {
        let uids = std::mem::take(&mut self.known);
        if let Some(reports) = &self.reports {
            let mut left_out = reports.left_out();
            uids.keys().for_each(|uid| drop(left_out.remove(&self.key(uid))));
        }
    }

    fn key(&self, uid: &str) -> Key {
        (self.kind.clone(), uid.to_owned())
    }

    fn event(&self, bad: Named) -> Event {
        let or = |said: String, known: &String| if said.is_empty() { known.clone() } else { said };
        Event {
            regarding: Regarding {
                api_version: or(bad.api_version, &self.api_version).into(),
                kind: or(bad.kind, &self.kind).into(),
                namespace: bad.namespace,
                name: bad.name,
                uid: bad.uid,
            },
            severity: Severity::Warning,
            reason: UNDECODABLE.into(),
            note: format!("it cannot be understood and is left out until it changes: {}", bad.error),
        }
    }
}

impl Drop for LeftOut {
    /// The watch ends; one that begins in its place finds them again.
    fn drop(&mut self) {
        self.clear();
    }
}
