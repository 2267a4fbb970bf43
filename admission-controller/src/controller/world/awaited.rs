//! Workloads that somebody else makes, and who waits for them, or for their end.

use std::collections::{BTreeMap, BTreeSet};

use super::{Unit, WorkloadName};

/// Jobs, and pods by themselves, that name a Workload of somebody else's making (`kueue.x-k8s.io/prebuilt-workload-name`); and those
/// whose own Workload would have the name that somebody else's has.
#[derive(Default)]
pub(super) struct Awaited {
    by_name: BTreeMap<WorkloadName, BTreeSet<Unit>>,
    by_unit: BTreeMap<Unit, BTreeSet<WorkloadName>>,
}

impl Awaited {
    /// Only what has several Workloads waits for several names.
    pub(super) fn insert(&mut self, name: WorkloadName, unit: Unit) {
        let names = self.by_unit.get(&unit);
        if names.is_some_and(|names| names.contains(&name)) {
            return;
        }
        if !matches!(unit, Unit::PodOwner(_)) {
            self.remove(&unit);
        }
        self.by_name.entry(name.clone()).or_default().insert(unit.clone());
        self.by_unit.entry(unit).or_default().insert(name);
    }

    pub(super) fn remove(&mut self, unit: &Unit) {
        for name in self.by_unit.remove(unit).unwrap_or_default() {
            if let Some(units) = self.by_name.get_mut(&name) {
                units.remove(unit);
                if units.is_empty() {
                    self.by_name.remove(&name);
                }
            }
        }
    }

    /// Who waits for this one to come, to change or to go.
    pub(super) fn by(&self, name: &WorkloadName) -> impl Iterator<Item = &Unit> {
        self.by_name.get(name).into_iter().flatten()
    }
}
