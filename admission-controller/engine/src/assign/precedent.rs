//! What was found for a workload is found for its like, while what it rests on holds: most of a long queue ask for the same,
//! and looking for flavors is most of what a decision costs.
//!
//! A search is made up of what the objects say, which stays until the engine is reconfigured, and of how each resource was
//! judged. Where the first flavor served every resource there was one judgement for each, and while each turns out as before,
//! so does the search.

use smallvec::SmallVec;

use super::{Ask, Assignment, FlavorAssignment, Mode};
use crate::engine::Engine;
use crate::input::PodSet;
use crate::line::Shape;
use crate::tree::{FlavorResource, NodeId};
use crate::workloads::WorkloadId;

/// A queue remembers so many: those of more kinds at once are looked for like others.
const MOST: usize = 8;

/// A search in a queue that came to its end at once.
#[derive(Debug)]
pub(crate) struct Precedent {
    /// Of whom.
    shape: Shape,
    judged: Judgements,
    found: Assignment,
}

/// How one resource of a flavor was judged: there is this much, with what pod sets before take, and it borrows so far up the
/// tree for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judgement {
    pair: FlavorResource,
    total: i64,
    height: u32,
}

pub(super) type Judgements = SmallVec<[Judgement; 4]>;

impl Engine {
    /// What its like was found, if a search would find the same again.
    pub(super) fn found_before(&self, who: WorkloadId, queue: NodeId, ask: Ask<'_>) -> Option<Assignment> {
        let shape = &self.workloads.get(who).filter(|_| ask.is_plain())?.shape;
        let precedent = self.queues[queue].precedents.iter().find(|one| one.shape.is(shape))?;
        let holds = |one: &Judgement| {
            self.tree.height_if_free(queue, one.pair, i128::from(one.total)) == Some(one.height)
        };
        precedent.judged.iter().all(holds).then(|| precedent.found.clone())
    }

    /// How each resource was judged, where nothing else decides what a search finds: it fits, nothing is placed, no pod sets share
    /// flavors, and no flavor but the first of its group was looked at.
    pub(super) fn judgements(
        &self,
        who: WorkloadId,
        queue: NodeId,
        ask: Ask<'_>,
        found: &FlavorAssignment,
    ) -> Option<Judgements> {
        let (record, queue) = (self.workloads.get(who)?, &self.queues[queue]);
        let wants_more = |one: &PodSet| one.group.is_some() || one.topology.is_some();
        if !ask.is_plain() || queue.places_all || record.workload.pod_sets.iter().any(wants_more) {
            return None;
        }
        let spec = queue.spec.as_ref()?;
        let mut judged = Judgements::new();
        for one in &found.pod_sets {
            for (resource, choice) in one.flavors.iter() {
                let mut groups = spec.groups.iter().filter(|group| group.covered.contains(resource));
                // Of a resource that two of them have, which no webhook lets through, it was judged twice, and one choice is left.
                let (Some(group), None) = (groups.next(), groups.next()) else { return None };
                let is_first = choice.tried == Some(0) || group.flavors.len() == 1;
                if choice.mode != Mode::Fit || !is_first {
                    return None;
                }
                let pair = self.tree.known_pair(&choice.flavor, resource)?;
                let before =
                    judged.iter().rev().find(|before| before.pair == pair).map_or(0, |one| one.total);
                let total = before.saturating_add(one.requests.get(resource).copied().unwrap_or(0));
                judged.push(Judgement { pair, total, height: choice.height });
            }
        }
        Some(judged)
    }

    /// Remembers what was found that rests on nothing but these judgements.
    pub(super) fn set_precedent(
        &mut self,
        who: WorkloadId,
        queue: NodeId,
        judged: Judgements,
        found: &Assignment,
    ) {
        let Some(shape) = self.workloads.get(who).map(|record| &record.shape) else { return };
        let one = Precedent { shape: shape.clone(), judged, found: found.clone() };
        let precedents = &mut self.queues[queue].precedents;
        if let Some(before) = precedents.iter_mut().find(|before| before.shape.is(shape)) {
            *before = one;
            return;
        }
        if precedents.len() == MOST {
            precedents.remove(0);
        }
        precedents.push(one);
    }
}

impl Ask<'_> {
    /// Whether it is for the workload as it is, and nothing was found before.
    fn is_plain(&self) -> bool {
        let Self { counts, pinned, held, replaced, progress } = self;
        counts.is_none() && pinned.is_none() && held.is_none() && replaced.is_none() && progress.is_none()
    }
}
