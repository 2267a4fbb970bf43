//! LocalQueues, each with what is known of it and who names it.

use std::collections::{BTreeSet, HashMap};
use std::num::NonZeroU32;
use std::ops::{Index, IndexMut};

use foldhash::fast::FixedState;
use slab::Slab;

use crate::history::{Account, Amounts};
use crate::input::{LocalQueue, Weight};
use crate::names::LocalQueueKey;
use crate::workloads::WorkloadId;

/// A LocalQueue, by number: it keeps it as long as there is such an object, or a workload that names it. Every workload that waits
/// has one with its place in the queue, so it is small.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LocalQueueId(NonZeroU32);

impl LocalQueueId {
    fn at(index: usize) -> Self {
        Self(NonZeroU32::MIN.saturating_add(u32::try_from(index).unwrap_or(u32::MAX)))
    }

    fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// A LocalQueue, be there such an object or not.
#[derive(Debug)]
pub(crate) struct LocalQueueRecord {
    pub(crate) key: LocalQueueKey,
    pub(crate) object: Option<LocalQueue>,
    /// Who names it.
    pub(crate) members: BTreeSet<WorkloadId>,
    /// What it has used, if that is told.
    pub(crate) account: Option<Account>,
    /// What its status says it has used.
    pub(crate) written: Option<Amounts>,
    touched: bool,
}

impl LocalQueueRecord {
    /// Its share of what is used; everybody's where there is no such object.
    pub(crate) fn weight(&self) -> Weight {
        self.object.as_ref().map(|queue| queue.weight).unwrap_or_default()
    }
}

/// All LocalQueues. None is gone through in an order that could show.
#[derive(Debug, Default)]
pub(crate) struct LocalQueues {
    by_key: HashMap<LocalQueueKey, LocalQueueId, FixedState>,
    records: Slab<LocalQueueRecord>,
    touched: Vec<LocalQueueId>,
}

impl LocalQueues {
    /// The LocalQueue of that name, if anything is known of it.
    pub(crate) fn id(&self, key: &LocalQueueKey) -> Option<LocalQueueId> {
        self.by_key.get(key).copied()
    }

    /// The LocalQueue of that name, whether or not anything is known of it.
    pub(crate) fn id_of(&mut self, key: LocalQueueKey) -> LocalQueueId {
        if let Some(id) = self.id(&key) {
            return id;
        }
        let index = self.records.insert(LocalQueueRecord {
            key: key.clone(),
            object: None,
            members: BTreeSet::new(),
            account: None,
            written: None,
            touched: false,
        });
        let id = LocalQueueId::at(index);
        self.by_key.insert(key, id);
        id
    }

    /// The object of that name, if there is one.
    pub(crate) fn object(&self, key: &LocalQueueKey) -> Option<&LocalQueue> {
        self[self.id(key)?].object.as_ref()
    }

    pub(crate) fn ids(&self) -> Vec<LocalQueueId> {
        self.iter().map(|(id, _)| id).collect()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (LocalQueueId, &LocalQueueRecord)> {
        self.records.iter().map(|(index, record)| (LocalQueueId::at(index), record))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (LocalQueueId, &mut LocalQueueRecord)> {
        self.records.iter_mut().map(|(index, record)| (LocalQueueId::at(index), record))
    }

    /// Its report may have changed.
    pub(crate) fn touch(&mut self, id: LocalQueueId) {
        if !std::mem::replace(&mut self[id].touched, true) {
            self.touched.push(id);
        }
    }

    /// Which were touched since the last call, sorted. Those of which nothing is known any more are forgotten.
    pub(crate) fn take_touched(&mut self) -> Vec<LocalQueueKey> {
        let mut keys = Vec::with_capacity(self.touched.len());
        for id in std::mem::take(&mut self.touched) {
            let record = &mut self[id];
            record.touched = false;
            keys.push(record.key.clone());
            if record.object.is_none() && record.members.is_empty() {
                let gone = self.records.remove(id.index());
                self.by_key.remove(&gone.key);
            }
        }
        keys.sort_unstable();
        keys
    }
}

impl Index<LocalQueueId> for LocalQueues {
    type Output = LocalQueueRecord;

    /// # Panics
    /// Where it is gone.
    fn index(&self, id: LocalQueueId) -> &LocalQueueRecord {
        &self.records[id.index()]
    }
}

impl IndexMut<LocalQueueId> for LocalQueues {
    fn index_mut(&mut self, id: LocalQueueId) -> &mut LocalQueueRecord {
        &mut self.records[id.index()]
    }
}
