//! Slices of elastic jobs: a job that grows gets a second Workload, which replaces the first.
//!
//! Rules: Kueue KEP-77, `pkg/workloadslicing`. The new slice is asked only for what it needs on top of the old one, of the same
//! flavors; when it has its quota, the old slice is finished and holds nothing any more. As long as both hold quota the new one
//! is charged with the difference, so that no pod is counted twice, whichever of the two is seen first after a restart. Where the
//! old slice leaves for others there is nothing to be added to, and the new one needs all of its quota.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::planted::Bug;

use crate::decision::Decision;
use crate::engine::Engine;
use crate::input::{Admission, Workload};
use crate::places::{Places, more_than};
use crate::record::{HoldState, Holding, Phase, Record};
use crate::tree::{Ledger, NodeId, Usage};
use crate::uid::Uid;
use crate::workloads::WorkloadId;

/// Namespace and name of a Workload.
pub(crate) type WorkloadKey = (Arc<str>, Arc<str>);

/// Namespace and name of whom it replaces, if it does.
pub(crate) fn replaced_key(workload: &Workload) -> Option<WorkloadKey> {
    Some((workload.namespace.clone(), workload.seldom.replaces.clone()?))
}

/// A slice that needs less than the one before frees nothing until that has ended: its pods may be there as long.
pub(crate) fn on_top(mut usage: Usage) -> Usage {
    usage.values_mut().for_each(|more| *more = (*more).max(0));
    usage
}

impl Engine {
    /// What the slice holds that this workload replaces, and who it is.
    pub(crate) fn replaced(&self, who: WorkloadId, queue: NodeId) -> Option<(WorkloadId, Arc<Admission>)> {
        let workload = &self.workloads.get(who)?.workload;
        let replaces = workload.seldom.replaces.as_ref()?;
        let is_it = |old: &WorkloadId| {
            let old = self.workloads.get(*old).map(|record| &record.workload);
            old.is_some_and(|one| one.namespace == workload.namespace && one.name == *replaces)
        };
        let found = self.queues[queue].holding.iter().copied().filter(is_it);
        let (old, _) = self.workloads.sorted(found).into_iter().next()?;
        let holding = self.holding(old).filter(|_| self.may_replace(who, old))?;
        Some((old, Arc::clone(&holding.admission)))
    }

    /// Whether one may take the place of the other: both are slices of one job, or nobody's. What belongs to others would run on
    /// beside it, and of those who name one another in a circle, as only a user's hand lets them, none would be left to be added to.
    fn may_replace(&self, who: WorkloadId, old: WorkloadId) -> bool {
        let workload = |who| self.workloads.get(who).map(|record| &record.workload);
        let (Some(new), Some(one)) = (workload(who), workload(old)) else { return false };
        let job = new.seldom.slice_of.as_ref();
        let are_one_jobs = new.owned && job.is_some() && job == one.seldom.slice_of.as_ref();
        let are_nobodys = !new.owned && !one.owned;
        (are_one_jobs || are_nobodys) && !self.comes_of(old, who)
    }

    /// Whether a slice is another, or replaces it, at whatever remove.
    fn comes_of(&self, who: WorkloadId, first: WorkloadId) -> bool {
        let (mut open, mut seen) = (vec![first], BTreeSet::new());
        while let Some(one) = open.pop() {
            if one == who {
                return true;
            }
            if seen.insert(one) {
                open.extend(self.naming(one));
            }
        }
        false
    }

    /// The slice to which this workload adds, and what that holds: the one that it replaces, unless that leaves, or another has its
    /// quota in that place already and takes over what that holds.
    pub(crate) fn adds_to(&self, who: WorkloadId, queue: NodeId) -> Option<(WorkloadId, Arc<Admission>)> {
        let twice = self.planted.is(Bug::CountSlicesTwice);
        let (old, admission) = self.replaced(who, queue).filter(|_| !twice)?;
        (!self.is_leaving(old) && !self.is_preceded(who, old, queue)).then_some((old, admission))
    }

    /// Whether another than this one has, or had before it, quota in the place of a slice.
    fn is_preceded(&self, who: WorkloadId, old: WorkloadId, queue: NodeId) -> bool {
        let Some(uid) = self.workloads.get(who).map(|record| &record.workload.uid) else { return false };
        let own = self.holding(who).filter(|one| one.queue == queue).map(|one| (one.since_ms, uid));
        // Who leaves has its pods yet.
        let mut others = self.in_place_of(old, queue).filter(|(other, _)| *other != uid);
        others.any(|(other, holding)| own.is_none_or(|own| (holding.since_ms, other) < own))
    }

    /// What a workload needs to have this admission: of a slice what it has on top of the one to which it adds, pod set by pod set,
    /// as it is found (`assign/scan.rs`).
    fn needed(&mut self, who: WorkloadId, queue: NodeId, admission: &Admission) -> Usage {
        let mut needed = self.usage_of(admission);
        let Some((_, before)) = self.adds_to(who, queue) else { return needed };
        for one in &admission.pod_sets {
            let Some(held) = before.pod_sets.iter().find(|held| held.name == one.name) else { continue };
            for (resource, flavor) in one.flavors.iter() {
                if held.flavors.get(resource) != Some(flavor) {
                    continue;
                }
                let pair = self.tree.pair(flavor, resource);
                if let Some(more) = needed.get_mut(&pair) {
                    *more = more.saturating_sub(held.usage.get(resource).copied().unwrap_or(0));
                }
            }
        }
        on_top(needed)
    }

    /// Whether there is nothing to be had of a victim any more: it leaves for another, or another slice has its quota already, which
    /// is charged for both, and it ends by itself.
    pub(crate) fn is_lost(&self, who: WorkloadId) -> bool {
        self.is_leaving(who) || self.is_succeeded(who)
    }

    /// Whether another slice that does not leave has quota in its place.
    pub(crate) fn is_succeeded(&self, who: WorkloadId) -> bool {
        if self.successors.is_empty() {
            return false;
        }
        let Some(queue) = self.holding(who).map(|holding| holding.queue) else { return false };
        self.in_place_of(who, queue).any(|(_, holding)| !holding.is_leaving())
    }

    /// Who has quota of this queue in the place of a slice, and which.
    fn in_place_of(&self, slice: WorkloadId, queue: NodeId) -> impl Iterator<Item = (&Uid, &Holding)> {
        let holders = self.successors_of(slice).filter_map(|next| self.workloads.get(next));
        let held = holders.filter_map(|record| match &record.phase {
            Phase::Holding(holding) => Some((&record.workload.uid, &**holding)),
            _ => None,
        });
        held.filter(move |(_, holding)| holding.queue == queue)
    }

    /// Who may take the place of this one.
    fn successors_of(&self, who: WorkloadId) -> impl Iterator<Item = WorkloadId> {
        self.naming(who).filter(move |next| self.may_replace(*next, who))
    }

    /// Who names this one as whom it replaces.
    fn naming(&self, who: WorkloadId) -> impl Iterator<Item = WorkloadId> {
        let key = |record: &Record| (record.workload.namespace.clone(), record.workload.name.clone());
        self.heirs(self.workloads.get(who).map(key))
    }

    /// Who names the workload of this name as whom it replaces.
    fn heirs(&self, key: Option<WorkloadKey>) -> impl Iterator<Item = WorkloadId> {
        key.and_then(|key| self.successors.get(&key)).into_iter().flatten().copied()
    }

    /// Whether a slice needs something else than was found for it, or promised: the one to which it was to add leaves by now, or
    /// stays after all.
    pub(crate) fn needs_other(
        &mut self,
        who: WorkloadId,
        queue: NodeId,
        admission: &Admission,
        usage: &Usage,
    ) -> bool {
        let replaces =
            self.workloads.get(who).is_some_and(|record| record.workload.seldom.replaces.is_some());
        replaces && self.needed(who, queue, admission) != *usage
    }

    /// Whether pods stay where they are when their job grows (Kueue `WorkloadsTopologyRequests`): slices of such a job are placed upon one
    /// another. Others that replace a workload find places beside it.
    pub(crate) fn is_placed_upon_another(&self, workload: &Workload) -> bool {
        self.settings.topology.rules.elastic && workload.seldom.elastic
    }

    /// The places that a workload takes beside what others have: of a slice that is placed upon the one to which it adds,
    /// only those of pods that come.
    pub(crate) fn places_beside(&self, who: WorkloadId, queue: NodeId, places: &Places) -> Places {
        let workload = self.workloads.get(who).map(|record| &record.workload).filter(|_| !places.is_empty());
        let may_stay = workload.is_some_and(|workload| self.is_placed_upon_another(workload));
        let before = may_stay.then(|| self.adds_to(who, queue)).flatten();
        let before = before.and_then(|(old, _)| self.holding(old));
        before.map_or_else(|| Arc::clone(places), |before| more_than(places, &before.places))
    }

    /// Whether quota and places are free for it in the plan, or now.
    pub(crate) fn fits_beside(
        &mut self,
        who: WorkloadId,
        queue: NodeId,
        usage: &Usage,
        places: &Places,
        ledger: Ledger,
    ) -> bool {
        let places = self.places_beside(who, queue, places);
        self.fits_placed(queue, usage, &places, ledger)
    }

    /// Forgets whom it replaces: it is gone, or becomes another.
    pub(crate) fn forget_slice(&mut self, who: WorkloadId) {
        let key = self.workloads.get(who).and_then(|record| replaced_key(&record.workload));
        let Some(key) = key else { return };
        let Some(successors) = self.successors.get_mut(&key) else { return };
        successors.remove(&who);
        if successors.is_empty() {
            self.successors.remove(&key);
        }
    }

    /// What a workload holds has changed: it, whoever else replaces the same slice, and who replaces it are charged with what they
    /// have on top of their predecessors.
    pub(crate) fn charge_slices(&mut self, who: WorkloadId) {
        if self.successors.is_empty() {
            return;
        }
        let Some(record) = self.workloads.get(who) else { return };
        let ids = |heirs: Vec<(WorkloadId, &Record)>| heirs.into_iter().map(|(id, _)| id).collect::<Vec<_>>();
        let beside = ids(self.workloads.sorted(self.heirs(replaced_key(&record.workload))));
        let successors = ids(self.workloads.sorted(self.successors_of(who)));
        for one in beside {
            self.charge_difference(one);
        }
        for successor in successors {
            self.charge_difference(successor);
            self.finish_replaced(successor);
        }
    }

    fn charge_difference(&mut self, who: WorkloadId) {
        let Some(holding) = self.holding(who).cloned() else { return };
        let node = holding.queue;
        // It is out of the books at the moment, to come back with other places.
        if !self.queues[node].holding.contains(&who) {
            return;
        }
        let wanted = self.needed(who, node, &holding.admission);
        if wanted == *holding.usage {
            return;
        }
        let leaves = matches!(holding.state, HoldState::Leaving { .. });
        let ledgers = [Some(Ledger::Held), (!leaves).then_some(Ledger::Planned)];
        for ledger in ledgers.into_iter().flatten() {
            self.tree.charge(node, &holding.usage, ledger, -1);
            self.tree.charge(node, &wanted, ledger, 1);
        }
        self.set_usage(who, wanted);
        self.queues.touch(node);
    }

    /// Its admission is written: the slice that it replaces is over, or itself, if another has its quota already.
    pub(crate) fn finish_replaced(&mut self, who: WorkloadId) {
        if self.successors.is_empty() {
            return;
        }
        let Some(queue) = self.holding(who).map(|holding| holding.queue) else { return };
        let before = self.replaced(who, queue).map(|(slice, _)| slice);
        for slice in before.into_iter().chain([who]) {
            let slice = self.workloads.get(slice).map(|record| record.workload.uid.clone());
            if let Some(slice) = slice.filter(|slice| self.replaced_by(slice).is_some()) {
                self.out.push(Decision::Replace(slice));
            }
        }
    }

    /// Who has quota in the place of this slice, as its own status says, so that the slice is over; the first of several.
    pub fn replaced_by(&self, slice: &Uid) -> Option<&Uid> {
        if self.successors.is_empty() {
            return None;
        }
        let who = self.workloads.id(slice)?;
        let assumed = |holding: &&Holding| matches!(holding.state, HoldState::Assumed(_));
        let queue = self.holding(who).filter(|holding| !assumed(holding))?.queue;
        let holders = self.in_place_of(who, queue);
        let confirmed = holders.filter(|(_, holding)| holding.state == HoldState::Confirmed);
        confirmed.map(|(uid, holding)| (holding.since_ms, uid)).min().map(|(_, uid)| uid)
    }

    fn set_usage(&mut self, who: WorkloadId, usage: Usage) {
        if let Some(record) = self.workloads.get_mut(who)
            && let Phase::Holding(holding) = &mut record.phase
        {
            holding.usage = Arc::new(usage);
        }
    }
}
