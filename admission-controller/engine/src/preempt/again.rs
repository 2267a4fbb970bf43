//! Who took whose place, so that nobody takes the same place again and again.
//!
//! Rights to displace go round in circles: a large workload takes small ones' places by its priority and borrows on top, others
//! take back what is theirs and with it all of the large one, whose room goes to somebody who was displaced before. Kueue goes on
//! without end. Here nobody displaces the same workload twice while nothing else happens in the tree: until somebody loses quota for
//! another reason than to make way, or a quota, a node, what the preemptor asks for or one of their two priorities changes. Who gets
//! nothing of what it was promised has displaced nobody.
//!
//! Where LocalQueues take turns by what they have used, age is no turn: the room that anybody's end leaves goes to a newer one, and an
//! older equal that had to make way for a third takes it back, each time that somebody ends. There an equal's place is taken once,
//! whoever else ends.

use std::collections::{BTreeMap, BTreeSet};

use crate::tree::NodeId;
use crate::workloads::WorkloadId;

/// A workload with the priority that it had.
pub(crate) type Rival = (WorkloadId, i32);

/// By preemptor: whom it displaced.
type Displaced = BTreeMap<Rival, BTreeSet<Rival>>;

/// Who displaced whom.
#[derive(Debug, Default)]
pub(crate) struct Displacements {
    /// By the root of the tree: since anything else happened in it.
    trees: BTreeMap<NodeId, Displaced>,
    /// Equals, by age, in a queue whose turns do not go by age.
    equals: Displaced,
}

impl Displacements {
    pub(crate) fn note(&mut self, root: NodeId, preemptor: Rival, victims: &[Rival]) {
        self.trees.entry(root).or_default().entry(preemptor).or_default().extend(victims);
    }

    /// Notes an equal of a queue in which age is no turn.
    pub(crate) fn note_equal(&mut self, preemptor: Rival, victim: Rival) {
        self.equals.entry(preemptor).or_default().insert(victim);
    }

    /// Whom it may not displace again.
    pub(crate) fn of(&self, root: NodeId, preemptor: Rival) -> BTreeSet<Rival> {
        let mut all =
            self.trees.get(&root).and_then(|tree| tree.get(&preemptor)).cloned().unwrap_or_default();
        all.extend(self.equals.get(&preemptor).into_iter().flatten());
        all
    }

    /// Whether there is anybody whom it may not displace again.
    pub(crate) fn knows(&self, preemptor: WorkloadId) -> bool {
        self.trees.values().chain([&self.equals]).any(|one| one.range(all_of(preemptor)).next().is_some())
    }

    /// It is another workload now, or who left for it did so in vain.
    pub(crate) fn forget(&mut self, preemptor: WorkloadId) {
        for one in self.trees.values_mut().chain([&mut self.equals]) {
            one.retain(|(who, _), _| *who != preemptor);
        }
    }

    /// This one lost its quota for another reason than to make way: something else happened in the tree.
    pub(crate) fn forget_tree(&mut self, root: NodeId, who: WorkloadId) {
        self.trees.remove(&root);
        self.equals.retain(|(preemptor, _), _| *preemptor != who);
    }

    /// Every right may be another.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

fn all_of(preemptor: WorkloadId) -> std::ops::RangeInclusive<Rival> {
    (preemptor, i32::MIN)..=(preemptor, i32::MAX)
}
