//! The workloads that the engine knows. From outside they come by uid; inside they have numbers.

use std::collections::BTreeSet;
use std::ops::Index;

use hashbrown::HashTable;
use slotmap::{SlotMap, new_key_type};

use crate::record::Record;
use crate::uid::Uid;

new_key_type! {
    /// A workload, by number: it keeps it as long as it is known, and nobody has it after it.
    pub(crate) struct WorkloadId;
}

/// A workload has a record as long as the API server has the object. None is gone through in the order of its number, so
/// that what is decided depends on what is there alone.
#[derive(Debug, Default)]
pub(crate) struct Workloads {
    /// By uid, which stands in the record only: there are very many.
    by_uid: HashTable<WorkloadId>,
    records: SlotMap<WorkloadId, Box<Record>>,
}

impl Workloads {
    pub(crate) fn id(&self, uid: &Uid) -> Option<WorkloadId> {
        self.by_uid.find(uid.hash_in_table(), |id| self.records[*id].workload.uid == *uid).copied()
    }

    pub(crate) fn named(&self, uid: &Uid) -> Option<&Record> {
        self.get(self.id(uid)?)
    }

    /// `None` where it is gone.
    pub(crate) fn get(&self, id: WorkloadId) -> Option<&Record> {
        self.records.get(id).map(|record| &**record)
    }

    pub(crate) fn get_mut(&mut self, id: WorkloadId) -> Option<&mut Record> {
        self.records.get_mut(id).map(|record| &mut **record)
    }

    /// The record of a workload, instead of the one that it had before.
    pub(crate) fn insert(&mut self, record: Record) -> WorkloadId {
        if let Some(id) = self.id(&record.workload.uid) {
            *self.records[id] = record;
            return id;
        }
        let hash_of = record.workload.uid.hash_in_table();
        let id = self.records.insert(Box::new(record));
        self.by_uid.insert_unique(hash_of, id, |id| self.records[*id].workload.uid.hash_in_table());
        id
    }

    pub(crate) fn remove(&mut self, id: WorkloadId) {
        let Some(record) = self.records.remove(id) else { return };
        if let Ok(entry) = self.by_uid.find_entry(record.workload.uid.hash_in_table(), |known| *known == id) {
            entry.remove();
        }
    }

    /// All of them, by uid.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = (WorkloadId, &Record)> {
        self.sorted(self.records.keys()).into_iter()
    }

    /// Those of them that are known, by uid.
    pub(crate) fn sorted(&self, ids: impl Iterator<Item = WorkloadId>) -> Vec<(WorkloadId, &Record)> {
        let mut all: Vec<(WorkloadId, &Record)> = ids.filter_map(|id| Some((id, self.get(id)?))).collect();
        all.sort_unstable_by_key(|(_, record)| &record.workload.uid);
        all
    }

    /// Whether a workload holds what it does because this one left for it, or for one that left for it, and so on. By their shares
    /// two of different queues may each have a right to the other's place, or three to one another's, in turn and without end;
    /// who came last stays. When the priority of one of them changes, so may the better right.
    pub(crate) fn has_led_to(&self, who: WorkloadId, priority: i32, holder: WorkloadId) -> bool {
        let (mut seen, mut next) = (BTreeSet::from([holder]), vec![holder]);
        while let Some(record) = next.pop().and_then(|one| self.get(one)) {
            if record.has_displaced(who, priority) {
                return true;
            }
            let still = |(one, then): &&(WorkloadId, i32)| {
                self.get(*one).is_some_and(|record| record.workload.priority == *then)
            };
            next.extend(
                record
                    .past
                    .displaced
                    .iter()
                    .filter(still)
                    .map(|(one, _)| *one)
                    .filter(|one| seen.insert(*one)),
            );
        }
        false
    }

    /// Does the same to every one.
    pub(crate) fn for_each_mut(&mut self, change: impl FnMut(&mut Record)) {
        self.records.values_mut().map(|record| &mut **record).for_each(change);
    }
}

impl Index<WorkloadId> for Workloads {
    type Output = Record;

    /// # Panics
    /// Where it is gone.
    fn index(&self, id: WorkloadId) -> &Record {
        &self.records[id]
    }
}
