//! What was found for a workload is found for its like, while what it rests on holds: most of a long queue ask for the same,
//! and looking for flavors is most of what a decision costs.
//!
//! A search is made up of what the objects say, which stays until the engine is reconfigured, and of how each resource was
//! judged. Where the first flavor served every resource there was one judgement for each, and while each turns out as before,
//! so does the search.

use smallvec::SmallVec;

use super::{Ask, Assignment, Verdict};
use crate::engine::Engine;
use crate::input::PodSet;
use crate::tree::{FlavorResource, NodeId};
use crate::workloads::WorkloadId;

/// A queue remembers so many kinds: where more of them take turns, each is looked for.
const MOST: usize = 8;

/// A search in a queue that came to its end at once.
#[derive(Debug)]
pub(crate) struct Precedent {
    judged: Judgements,
    found: Assignment,
}

/// How one resource of a flavor was judged: so much is asked for, with what pod sets before take, and for that it borrows so far
/// up the tree.
#[derive(Clone, Copy, Debug)]
struct Judgement {
    pair: FlavorResource,
    total: i64,
    height: u32,
}

type Judgements = SmallVec<[Judgement; 4]>;

impl Engine {
    /// What its like was found, if a search would find the same again.
    pub(super) fn found_before(&self, who: WorkloadId, queue: NodeId, ask: Ask<'_>) -> Option<Assignment> {
        let shape = &self.workloads.get(who).filter(|_| ask.is_plain())?.shape;
        let (_, precedent) = self.queues[queue].precedents.iter().find(|(of, _)| of.is(shape))?;
        let precedent = precedent.as_ref()?;
        let holds = |one: &Judgement| {
            self.tree.height_if_free(queue, one.pair, i128::from(one.total)) == Some(one.height)
        };
        precedent.judged.iter().all(holds).then(|| precedent.found.clone())
    }

    /// Remembers what a search has found, from the second of its kind on: of what is asked for once nothing is to be gained.
    pub(super) fn note_precedent(
        &mut self,
        who: WorkloadId,
        queue: NodeId,
        ask: Ask<'_>,
        found: &Assignment,
    ) {
        let Some(record) = self.workloads.get(who).filter(|_| ask.is_plain()) else { return };
        let precedents = &mut self.queues[queue].precedents;
        let Some(index) = precedents.iter().position(|(of, _)| of.is(&record.shape)) else {
            if precedents.len() == MOST {
                precedents.remove(0);
            }
            precedents.push((record.shape.clone(), None));
            return;
        };
        if let Some(judged) = self.judgements(who, queue, found) {
            let precedent = Precedent { judged, found: found.clone() };
            self.queues[queue].precedents[index].1 = Some(Box::new(precedent));
        }
    }

    /// How each resource was judged, where nothing else decides what a search finds: it fits, nothing is placed, no pod sets share
    /// flavors, and no flavor but the first of its group was looked at.
    fn judgements(&self, who: WorkloadId, queue: NodeId, found: &Assignment) -> Option<Judgements> {
        let (record, of) = (self.workloads.get(who)?, &self.queues[queue]);
        let wants_more = |one: &PodSet| one.group.is_some() || one.topology.is_some();
        let is_plain = !of.places_all && !record.workload.pod_sets.iter().any(wants_more);
        if !is_plain || !matches!(found.verdict, Verdict::Fit) {
            return None;
        }
        let spec = of.spec.as_ref()?;
        let mut judged = Judgements::new();
        for (pod_set, one) in found.admission.pod_sets.iter().enumerate() {
            for (resource, flavor) in one.flavors.iter() {
                let mut groups = spec.groups.iter().filter(|group| group.covered.contains(resource));
                // Of a resource that two of them have, which no webhook lets through, it was judged twice, and one choice is left.
                let (Some(group), None) = (groups.next(), groups.next()) else { return None };
                let tried = found.tried.iter().find(|(of, what, _)| *of == pod_set && what == resource);
                if tried.map_or(group.flavors.len(), |(.., last)| last + 1) != 1 {
                    return None;
                }
                let pair = self.tree.known_pair(flavor, resource)?;
                let before =
                    judged.iter().rev().find(|before| before.pair == pair).map_or(0, |one| one.total);
                let total = before.saturating_add(one.usage.get(resource).copied().unwrap_or(0));
                let height = self.tree.height_if_free(queue, pair, i128::from(total))?;
                judged.push(Judgement { pair, total, height });
            }
        }
        Some(judged)
    }
}

impl Ask<'_> {
    /// Whether it is for the workload as it is, and nothing was found before.
    fn is_plain(&self) -> bool {
        let Self { counts, pinned, held, replaced, progress } = self;
        counts.is_none() && pinned.is_none() && held.is_none() && replaced.is_none() && progress.is_none()
    }
}
