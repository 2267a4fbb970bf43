//! Who took whose place, so that nobody takes the same place again and again.
//!
//! Rights to displace go round in circles: a large workload takes small ones' places by its priority and borrows on top, others
//! take back what is theirs and with it all of the large one, whose room goes to somebody who was displaced before. Kueue goes on
//! without end. Here nobody displaces the same workload twice while nothing else happens in the tree: until somebody loses quota for
//! another reason than to make way, or a quota, a node, what the preemptor asks for or one of their two priorities changes. Who gets
//! nothing of what it was promised has displaced nobody.

use std::collections::{BTreeMap, BTreeSet};

use crate::tree::NodeId;
use crate::workloads::WorkloadId;

/// A workload with the priority that it had.
pub(crate) type Rival = (WorkloadId, i32);

/// By the root of the tree and the preemptor: whom it displaced.
#[derive(Debug, Default)]
pub(crate) struct Displacements(BTreeMap<NodeId, BTreeMap<Rival, BTreeSet<Rival>>>);

impl Displacements {
    pub(crate) fn note(&mut self, root: NodeId, preemptor: Rival, victims: &[Rival]) {
        self.0.entry(root).or_default().entry(preemptor).or_default().extend(victims);
    }

    /// Whom it may not displace again.
    pub(crate) fn of(&self, root: NodeId, preemptor: Rival) -> BTreeSet<Rival> {
        self.0.get(&root).and_then(|tree| tree.get(&preemptor)).cloned().unwrap_or_default()
    }

    /// Whether there is anybody whom it may not displace again.
    pub(crate) fn knows(&self, preemptor: WorkloadId) -> bool {
        self.0.values().any(|tree| tree.range(all_of(preemptor)).next().is_some())
    }

    /// It is another workload now, or who left for it did so in vain.
    pub(crate) fn forget(&mut self, preemptor: WorkloadId) {
        for tree in self.0.values_mut() {
            tree.retain(|(who, _), _| *who != preemptor);
        }
    }

    /// Something else happened in this tree.
    pub(crate) fn forget_tree(&mut self, root: NodeId) {
        self.0.remove(&root);
    }

    /// Every right may be another.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

fn all_of(preemptor: WorkloadId) -> std::ops::RangeInclusive<Rival> {
    (preemptor, i32::MIN)..=(preemptor, i32::MAX)
}
