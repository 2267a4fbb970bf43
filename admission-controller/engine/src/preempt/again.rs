//! Who took whose place, so that nobody takes the same place again and again.
//!
//! Rights to displace go round in circles: a large workload takes small ones' places by its priority and borrows on top, others
//! take back what is theirs and with it all of the large one, whose room goes to somebody who was displaced before. Kueue goes on
//! without end. Here nobody displaces the same workload twice while nothing else happens in the tree: until somebody loses quota for
//! another reason than to make way, or a quota or one of their two priorities changes.

use std::collections::{BTreeMap, BTreeSet};

use crate::tree::NodeId;
use crate::workloads::WorkloadId;

/// A workload with the priority that it had.
type Rival = (WorkloadId, i32);

/// By the root of the tree: who displaced whom.
#[derive(Debug, Default)]
pub(crate) struct Displacements(BTreeMap<NodeId, BTreeSet<(Rival, Rival)>>);

impl Displacements {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn note(&mut self, root: NodeId, preemptor: Rival, victims: &[Rival]) {
        self.0.entry(root).or_default().extend(victims.iter().map(|victim| (preemptor, *victim)));
    }

    pub(crate) fn has(&self, root: NodeId, preemptor: Rival, victim: Rival) -> bool {
        self.0.get(&root).is_some_and(|pairs| pairs.contains(&(preemptor, victim)))
    }

    /// What it was promised is void: whoever left for it did so in vain.
    pub(crate) fn forget(&mut self, root: NodeId, preemptor: WorkloadId) {
        if let Some(pairs) = self.0.get_mut(&root) {
            pairs.retain(|((who, _), _)| *who != preemptor);
        }
    }

    /// Something else happened in this tree.
    pub(crate) fn forget_tree(&mut self, root: NodeId) {
        self.0.remove(&root);
    }

    /// Every quota may be another.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
