//! What a workload that waits asks for beside what there is, whose turn is before its own, and what would let it in.
//!
//! Worked out when somebody asks, so that it costs decisions nothing: what would help is found by looking for flavors once
//! more, as in a cycle, in books in which it has happened; afterwards they are as they were.

use std::cmp::Reverse;

use model::ResourceName;

use crate::assign::{Ask, Assignment};
use crate::cycle::Head;
use crate::engine::Engine;
use crate::input::{ClusterQueue, FlavorQuotas, PodSet, ResourceGroup};
use crate::names::FlavorName;
use crate::partial::Range;
use crate::record::{Holding, Phase};
use crate::tree::{FlavorResource, Ledger, NodeId};
use crate::uid::Uid;
use crate::workloads::WorkloadId;

/// How many have to leave at most for it to be told who.
const MOST_LEAVERS: usize = 64;

/// More than anybody asks for.
const PLENTY: i64 = i64::MAX / 4;

/// What one pod set asks of one flavor's quota, and what its ClusterQueue has of that. Resources in their base units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Balance {
    /// The pod set.
    pub pod_set: String,
    /// The flavor.
    pub flavor: FlavorName,
    /// The resource.
    pub resource: ResourceName,
    /// What all pods of the set ask for; of a slice that replaces another, what they ask for on top of that one's.
    pub asked: i64,
    /// The nominal quota of the ClusterQueue.
    pub nominal: i64,
    /// What its workloads hold.
    pub used: i64,
    /// What it may take now; what was promised to others is not in it.
    pub available: i64,
    /// How much of that is other queues' and cohorts'.
    pub borrowable: i64,
    /// What it could take if nobody had anything.
    pub potential: i64,
    /// What others of its cohorts have free and do not lend.
    pub withheld: i64,
}

/// So much more quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raise {
    /// Of which flavor.
    pub flavor: FlavorName,
    /// Of which resource.
    pub resource: ResourceName,
    /// How much more, in base units.
    pub by: i64,
}

/// What would let a workload in, by itself and with everything else as it is. None of it is more than is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// These workloads of its cohorts give back what they hold.
    Leave(Vec<Uid>),
    /// Its ClusterQueue gets more nominal quota.
    RaiseNominal(Vec<Raise>),
    /// Its ClusterQueue may borrow more.
    RaiseBorrowingLimit(Vec<Raise>),
    /// It has only so many pods in each pod set.
    FewerPods(Vec<(String, i64)>),
}

/// A workload that waits, looked at closely.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outlook {
    /// For each pod set every flavor that its ClusterQueue has of what it asks for.
    pub balances: Vec<Balance>,
    /// Whose turn in its ClusterQueue is next, if that is another.
    pub next: Option<Uid>,
    /// Whether what it asks for is free: then it waits for its turn only, or what is free is kept for others.
    pub fits: bool,
    /// Heads of other queues for which so much of what is free is kept that it does not fit: they have a right to preempt, and find
    /// nobody.
    pub kept_for: Vec<Uid>,
    /// What would let it in, where it is quota or places that it lacks.
    pub remedies: Vec<Remedy>,
}

impl Engine {
    /// Looks closely at a workload that waits in a queue; `None` where it does not. What it finds is not written down: the
    /// engine decides the same with and without having been asked.
    pub fn outlook(&mut self, uid: &Uid) -> Option<Outlook> {
        self.reconfigure();
        let who = self.workloads.id(uid)?;
        let (queue, waits) = match &self.workloads.get(who)?.phase {
            Phase::Queued(queue) | Phase::Parked(queue) => (*queue, true),
            Phase::Claiming(claim) => (claim.queue, false),
            Phase::Aside(_) | Phase::Holding(_) | Phase::Finished => return None,
        };
        let spec = self.queues[queue].spec.clone()?;
        let mut outlook = Outlook { balances: self.balances(who, queue, &spec), ..Outlook::default() };
        if !waits {
            // What it was promised is in the books, and who leaves for it is known.
            return Some(outlook);
        }
        outlook.next = self.next_in(queue).filter(|next| *next != who).and_then(|next| self.uid_of(next));
        outlook.fits = self.assign_free(who, queue, None).is_some();
        if outlook.fits {
            outlook.kept_for = self.kept_for(who, queue);
        } else {
            let found =
                [self.leavers(who, queue), self.wider_limit(who, queue, &spec), self.fewer_pods(who, queue)];
            outlook.remedies = found.into_iter().flatten().chain(self.raises(who, queue, &spec)).collect();
        }
        Some(outlook)
    }

    fn uid_of(&self, who: WorkloadId) -> Option<Uid> {
        Some(self.workloads.get(who)?.workload.uid.clone())
    }

    /// Whose turn is next in a queue, be it that it was looked at already and blocks the queue, or that it was promised room.
    fn next_in(&self, queue: NodeId) -> Option<WorkloadId> {
        let queue = &self.queues[queue];
        let waits = queue.claiming.first().filter(|_| queue.is_strict()).or(queue.blocked.as_ref());
        waits.or_else(|| queue.active.first(&queue.consumptions)).map(|order| order.who)
    }

    fn kept_for(&mut self, who: WorkloadId, queue: NodeId) -> Vec<Uid> {
        let others = self.members_of_tree(queue).into_iter().filter(|other| *other != queue);
        let heads = others.filter_map(|other| {
            self.queues[other].head().map(|order| Head { order: order.clone(), queue: other })
        });
        let heads: Vec<Head> = heads.collect();
        let (mut keep, mut fits) = (Vec::new(), true);
        let begun = self.what_if();
        for head in heads {
            let replaced = self.adds_to(head.who(), head.queue).map(|(_, admission)| admission);
            let ask = Ask { replaced: replaced.as_deref(), ..Ask::default() };
            let Err(no_fit) = self.assign_asked(head.who(), head.queue, ask) else { continue };
            let Some((usage, places)) = self.to_be_kept(&head, &no_fit) else { continue };
            self.charge(head.queue, &usage, &places, Ledger::Planned, 1);
            keep.push(head.who());
            fits = self.assign_free(who, queue, None).is_some();
            if !fits {
                break;
            }
        }
        self.undo(begun);
        keep.into_iter().filter(|_| !fits).filter_map(|who| self.uid_of(who)).collect()
    }

    fn balances(&self, who: WorkloadId, queue: NodeId, spec: &ClusterQueue) -> Vec<Balance> {
        let Some(record) = self.workloads.get(who) else { return Vec::new() };
        let replaced = self.adds_to(who, queue).map(|(_, admission)| admission);
        let held = |pod_set: &str, resource: &ResourceName| {
            let held = replaced.iter().flat_map(|held| &held.pod_sets).find(|one| one.name == pod_set);
            held.and_then(|held| held.usage.get(resource)).copied().unwrap_or(0)
        };
        let mut balances = Vec::new();
        for pod_set in record.workload.pod_sets.iter() {
            for (group, one, resource) in offers(spec) {
                let Some(asked) = asked_of(pod_set, group, resource) else { continue };
                let Some(pair) = self.tree.known_pair(&one.flavor, resource) else { continue };
                let (nominal, used) =
                    (self.tree.nominal(queue, pair), self.tree.used(queue, pair, Ledger::Held));
                let available = self.room(queue, pair).max(0);
                let own = (nominal - used).clamp(0, available);
                balances.push(Balance {
                    pod_set: pod_set.name.clone(),
                    flavor: one.flavor.clone(),
                    resource: resource.clone(),
                    asked: asked.saturating_sub(held(&pod_set.name, resource)),
                    nominal: narrow(nominal),
                    used: narrow(used),
                    available: narrow(available),
                    borrowable: narrow(available - own),
                    potential: narrow(self.tree.maximum(queue, pair)),
                    withheld: narrow(self.withheld(queue, pair)),
                });
            }
        }
        balances
    }

    /// What others of the tree have free and keep for themselves.
    fn withheld(&self, queue: NodeId, pair: FlavorResource) -> i128 {
        let root = self.tree.root(queue);
        let others = self.tree.ids().filter(|id| *id != queue && self.tree.root(*id) == root);
        let others = others.filter(|id| self.tree.path(queue).all(|above| above != *id));
        others.map(|id| self.tree.local_free(id, pair, Ledger::Held)).sum()
    }

    /// Who would have to leave: those first who leave anyway, then as preemption would choose.
    fn leavers(&mut self, who: WorkloadId, queue: NodeId) -> Option<Remedy> {
        let holders = self.members_of_tree(queue).into_iter().flat_map(|member| &self.queues[member].holding);
        let mut holders: Vec<(WorkloadId, Holding)> =
            holders.filter_map(|holder| Some((*holder, self.holding(*holder)?.clone()))).collect();
        holders.sort_by_cached_key(|(holder, holding)| {
            let priority = self.workloads.get(*holder).map(|record| record.workload.priority);
            (!holding.is_leaving(), priority, Reverse(holding.since_ms), self.uid_of(*holder))
        });
        let (mut short, mut enough) = (0, holders.len() + 1);
        while short + 1 < enough {
            let middle = short + (enough - short) / 2;
            match self.fits_after(who, queue, holders[..middle].iter()) {
                true => enough = middle,
                false => short = middle,
            }
        }
        if enough > holders.len().min(MOST_LEAVERS) {
            return None;
        }
        holders.truncate(enough);
        // Without the last of them it does not fit. Of the others those stay who need not leave, the dearest first.
        for index in (0..enough - 1).rev() {
            let rest: Vec<&(WorkloadId, Holding)> =
                holders.iter().enumerate().filter(|(at, _)| *at != index).map(|(_, holder)| holder).collect();
            if self.fits_after(who, queue, rest.into_iter()) {
                holders.remove(index);
            }
        }
        Some(Remedy::Leave(holders.iter().filter_map(|(holder, _)| self.uid_of(*holder)).collect()))
    }

    fn fits_after<'a>(
        &mut self,
        who: WorkloadId,
        queue: NodeId,
        leavers: impl Iterator<Item = &'a (WorkloadId, Holding)>,
    ) -> bool {
        let begun = self.what_if();
        leavers.for_each(|(_, holding)| self.uncharge(holding));
        let fits = self.assign_free(who, queue, None).is_some();
        self.undo(begun);
        fits
    }

    /// How much more nominal quota would do: for every flavor, of that one alone, or if there is none for which that does, of
    /// flavors of other resource groups besides.
    fn raises(&mut self, who: WorkloadId, queue: NodeId, spec: &ClusterQueue) -> Vec<Remedy> {
        let groups = spec.groups.iter().enumerate();
        let flavors = groups.flat_map(|(at, group)| group.flavors.iter().map(move |one| (at, &one.flavor)));
        let flavors: Vec<(usize, &FlavorName)> = flavors.collect();
        for with_others in [false, true] {
            let mut remedies = Vec::new();
            for (at, flavor) in &flavors {
                let chosen =
                    |group: usize, other: &FlavorName| other == *flavor || with_others && group != *at;
                let raise = self.raise(who, queue, spec, chosen).map(Remedy::RaiseNominal);
                remedies.extend(raise.filter(|one| !remedies.contains(one)));
            }
            if !remedies.is_empty() {
                return remedies;
            }
        }
        Vec::new()
    }

    /// How much more nominal quota would do, of the flavors chosen by their group's place and their name.
    fn raise(
        &mut self,
        who: WorkloadId,
        queue: NodeId,
        spec: &ClusterQueue,
        chosen: impl Fn(usize, &FlavorName) -> bool,
    ) -> Option<Vec<Raise>> {
        let groups = spec.groups.iter().enumerate();
        let pairs = groups.flat_map(|(at, group)| {
            let flavors = group.flavors.iter().filter(|one| chosen(at, &one.flavor)).collect::<Vec<_>>();
            flavors.into_iter().flat_map(|one| {
                one.resources.keys().filter_map(|resource| self.tree.known_pair(&one.flavor, resource))
            })
        });
        let pairs: Vec<FlavorResource> = pairs.collect();
        let plenty: Vec<_> = pairs.iter().map(|pair| (*pair, PLENTY)).collect();
        let found = self.imagine(|engine| {
            engine.tree.raise_nominal(queue, &plenty);
            engine.assign_free(who, queue, None)
        })?;
        let lacking = self.lacking(queue, &found, &pairs)?;
        let does = self.imagine(|engine| {
            engine.tree.raise_nominal(queue, &lacking);
            engine.assign_free(who, queue, None).is_some()
        });
        does.then(|| self.named(&lacking))
    }

    /// How much more it would have to be allowed to borrow.
    fn wider_limit(&mut self, who: WorkloadId, queue: NodeId, spec: &ClusterQueue) -> Option<Remedy> {
        let pairs = offers(spec).filter_map(|(_, one, resource)| self.tree.known_pair(&one.flavor, resource));
        let limited = pairs.filter(|pair| self.tree.borrowing_limit(queue, *pair).is_some());
        let limited: Vec<FlavorResource> = limited.collect();
        let unlimited: Vec<_> = limited.iter().map(|pair| (*pair, PLENTY)).collect();
        let found = self.imagine(|engine| {
            engine.tree.raise_borrowing_limit(queue, &unlimited);
            engine.assign_free(who, queue, None)
        })?;
        let lacking = self.lacking(queue, &found, &limited)?;
        let does = self.imagine(|engine| {
            engine.tree.raise_borrowing_limit(queue, &lacking);
            engine.assign_free(who, queue, None).is_some()
        });
        does.then(|| Remedy::RaiseBorrowingLimit(self.named(&lacking)))
    }

    /// Of these pairs what an assignment needs beyond what is there, or ever could be.
    fn lacking(
        &self,
        queue: NodeId,
        found: &Assignment,
        pairs: &[FlavorResource],
    ) -> Option<Vec<(FlavorResource, i64)>> {
        let lacking = found.usage.iter().filter(|(pair, amount)| pairs.contains(pair) && **amount > 0);
        let lacking = lacking.filter_map(|(pair, amount)| {
            let most = self.room(queue, *pair).min(self.tree.maximum(queue, *pair));
            let by = i128::from(*amount) - most;
            (by > 0).then(|| (*pair, narrow(by)))
        });
        let lacking: Vec<_> = lacking.collect();
        (!lacking.is_empty()).then_some(lacking)
    }

    fn named(&self, raises: &[(FlavorResource, i64)]) -> Vec<Raise> {
        let named = raises.iter().map(|(pair, by)| {
            let (flavor, resource) = self.tree.pair_name(*pair).clone();
            Raise { flavor, resource, by: *by }
        });
        named.collect()
    }

    /// The largest size at which it would fit, all pod sets smaller in proportion, none of them empty.
    fn fewer_pods(&mut self, who: WorkloadId, queue: NodeId) -> Option<Remedy> {
        let pod_sets = self.workloads.get(who)?.workload.pod_sets.clone();
        let in_slices = |one: &PodSet| one.topology.as_ref().is_some_and(|wish| !wish.layers.is_empty());
        if pod_sets.iter().any(in_slices) {
            // Pods that are no whole slices are no smaller job.
            return None;
        }
        let range = Range::down_to_one(&pod_sets)?;
        let counts = range
            .most(|counts| self.assign_free(who, queue, Some(counts)).is_some().then(|| counts.to_vec()))?;
        let names = pod_sets.iter().map(|one| one.name.clone());
        Some(Remedy::FewerPods(names.zip(counts).collect()))
    }

    /// What `question` finds when quotas are others than they are.
    fn imagine<T>(&mut self, question: impl FnOnce(&mut Self) -> T) -> T {
        let real = self.tree.clone();
        let answer = question(self);
        self.tree = real;
        answer
    }
}

/// Every flavor's every resource, with its group.
fn offers(spec: &ClusterQueue) -> impl Iterator<Item = (&ResourceGroup, &FlavorQuotas, &ResourceName)> {
    let flavors = spec.groups.iter().flat_map(|group| group.flavors.iter().map(move |one| (group, one)));
    flavors.flat_map(|(group, one)| one.resources.keys().map(move |resource| (group, one, resource)))
}

/// What all pods of a set ask for of a resource of a group; `None` where they do not.
fn asked_of(pod_set: &PodSet, group: &ResourceGroup, resource: &ResourceName) -> Option<i64> {
    if !group.covered.contains(resource) {
        return None;
    }
    match resource.as_str() {
        ResourceName::PODS => Some(pod_set.count),
        _ => Some(pod_set.requests.get(resource)?.saturating_mul(pod_set.count)),
    }
}

/// Sums may be wider than any quota that can be written.
fn narrow(amount: i128) -> i64 {
    i64::try_from(amount).unwrap_or(if amount < 0 { i64::MIN } else { i64::MAX })
}
