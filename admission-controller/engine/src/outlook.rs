//! What a workload that waits asks for beside what there is, whose turn is before its own, and what would let it in.
//!
//! Worked out when somebody asks, so that it costs decisions nothing: what would help is found by looking for flavors once
//! more, as in a cycle, in books in which it has happened; afterwards they are as they were.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use model::ResourceName;

use crate::assign::{Ask, Assignment};
use crate::cycle::Head;
use crate::engine::Engine;
use crate::input::{ClusterQueue, FlavorQuotas, PodSet, Quota, ResourceGroup};
use crate::kept::Charge;
use crate::line::Order;
use crate::names::FlavorName;
use crate::partial::Range;
use crate::record::{Holding, Phase};
use crate::tree::{FlavorResource, Ledger, NodeId};
use crate::uid::Uid;
use crate::workloads::WorkloadId;

/// So many are looked at when it is asked who would have to leave.
const MOST_LEAVERS: usize = 64;

/// For how many flavors it is told how much more quota would do.
const MOST_RAISED: usize = 8;

/// More than anybody asks for.
const PLENTY: i64 = i64::MAX / 4;

/// What one pod set asks of one flavor's quota, and what its ClusterQueue has of that. Resources in their base units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Balance {
    /// The pod set.
    pub pod_set: Arc<str>,
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
    /// What it may take now, with what the workload itself was promised; what was promised to others is not in it.
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

/// What would let a workload in, by itself and with everything else as it is. With one less of anything in it it would not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// These workloads of its cohorts give back what they hold.
    Leave(Vec<Uid>),
    /// Its ClusterQueue gets more nominal quota.
    RaiseNominal(Vec<Raise>),
    /// Its ClusterQueue may borrow more.
    RaiseBorrowingLimit(Vec<Raise>),
    /// It has only so many pods in each pod set, those that are done among them.
    FewerPods(Vec<(Arc<str>, i64)>),
}

/// A workload that waits, looked at closely.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outlook {
    /// For each pod set every flavor that its ClusterQueue has of what it asks for.
    pub balances: Vec<Balance>,
    /// Whose turn in its ClusterQueue is next, if that is another.
    pub next: Option<Uid>,
    /// Whether what it asks for is free, so that it waits for something else: its turn, what is kept for others, or what its reason
    /// says. `None` where it was promised room.
    pub fits: Option<bool>,
    /// Heads of other queues that come before it in a cycle (or may, where sharing is fair), and for which so much of what is free is
    /// kept that it does not fit.
    pub kept_for: Vec<Uid>,
    /// What would let it in, where it is quota or places that it lacks.
    pub remedies: Vec<Remedy>,
}

impl Engine {
    /// Looks closely at a workload that waits in a queue; `None` where it does not. What it finds decides nothing: the engine
    /// does the same with and without having been asked.
    pub fn outlook(&mut self, uid: &Uid) -> Option<Outlook> {
        self.reconfigure();
        let who = self.workloads.id(uid)?;
        let (queue, claim) = match &self.workloads.get(who)?.phase {
            Phase::Queued(queue) | Phase::Parked(queue) => (*queue, None),
            Phase::Claiming(claim) => (claim.queue, Some((**claim).clone())),
            Phase::Aside(_) | Phase::Holding(_) | Phase::Finished => return None,
        };
        let spec = self.queues[queue].spec.clone()?;
        if let Some(claim) = claim {
            let begun = self.what_if();
            self.charge(queue, &claim.usage, &claim.places, Ledger::Planned, -1);
            let balances = self.balances(who, queue, &spec);
            self.undo(begun);
            return Some(Outlook { balances, ..Outlook::default() });
        }
        // Searches for victims note whose outcome they wait for, which nobody does who only asks.
        let awaited = self.awaited.clone();
        let next = self.next_in(queue).filter(|next| *next != who);
        let found = self.assign_free(who, queue, None);
        let mut outlook = Outlook {
            balances: self.balances(who, queue, &spec),
            next: next.and_then(|next| self.uid_of(next)),
            fits: Some(found.is_some()),
            ..Outlook::default()
        };
        match found {
            Some(found) if next.is_none() => outlook.kept_for = self.kept_for(who, queue, &found),
            Some(_) => {}
            None => {
                let limit = self.wider_limit(who, queue, &spec);
                let found = [self.leavers(who, queue, &spec), limit, self.fewer_pods(who, queue)];
                outlook.remedies = found.into_iter().flatten().collect();
                outlook.remedies.extend(self.raises(who, queue, &spec));
            }
        }
        self.awaited = awaited;
        Some(outlook)
    }

    fn uid_of(&self, who: WorkloadId) -> Option<Uid> {
        Some(self.workloads.get(who)?.workload.uid.clone())
    }

    fn pairs_of(&self, one: &FlavorQuotas) -> impl Iterator<Item = FlavorResource> {
        one.resources.keys().filter_map(|resource| self.tree.known_pair(&one.flavor, resource))
    }

    /// Whose turn is next in a queue: of one whose head has to wait, who is before that.
    fn next_in(&self, queue: NodeId) -> Option<WorkloadId> {
        let queue = &self.queues[queue];
        let promised = || queue.claiming.first().filter(|_| queue.is_strict());
        queue.head().or_else(promised).map(|order| order.who)
    }

    /// Heads of other queues that come before one that would get `found`, and without which it would.
    fn kept_for(&mut self, who: WorkloadId, queue: NodeId, found: &Assignment) -> Vec<Uid> {
        let Some(own) = self.workloads.get(who).map(|record| self.order_of(who, record)) else {
            return Vec::new();
        };
        // Places are kept from everybody, whatever the tree.
        let others: Vec<NodeId> = match self.grounds.has_places() {
            true => self.queues.iter().map(|queue| queue.node).collect(),
            false => self.members_of_tree(queue),
        };
        let others = others.into_iter().filter(|other| *other != queue);
        let heads = others.filter_map(|other| Some((other, self.queues[other].head()?.clone())));
        let heads: Vec<(NodeId, Order)> = heads.collect();
        let mut kept: Vec<(WorkloadId, Charge)> = Vec::new();
        for (theirs, order) in heads {
            let replaced = self.adds_to(order.who, theirs).map(|(_, admission)| admission);
            let ask = Ask { replaced: replaced.as_deref(), ..Ask::default() };
            let Err(no_fit) = self.assign_asked(order.who, theirs, ask) else { continue };
            let head = Head { order, queue: theirs };
            let by_priority = self.settings.priority_sorting;
            let turn = no_fit.height.cmp(&found.height);
            let turn = turn.then_with(|| head.order.cmp_in_cycle(&own, by_priority));
            let comes_after = self.settings.fair_sharing.is_none() && turn.is_gt();
            if let Some((usage, places)) = self.to_be_kept(&head, &no_fit).filter(|_| !comes_after) {
                kept.push((head.who(), (theirs, usage, places)));
            }
        }
        let charge = |engine: &mut Self, kept: &[(WorkloadId, Charge)]| {
            for (_, (theirs, usage, places)) in kept {
                engine.charge(*theirs, usage, places, Ledger::Planned, 1);
            }
        };
        if self.fits_if(who, queue, |engine| charge(engine, &kept)) {
            return Vec::new();
        }
        spare(&mut kept, |others| !self.fits_if(who, queue, |engine| charge(engine, others)));
        kept.iter().filter_map(|(head, _)| self.uid_of(*head)).collect()
    }

    /// Whether it could have what it asks for at once after such a change of the books.
    fn fits_if(&mut self, who: WorkloadId, queue: NodeId, change: impl FnOnce(&mut Self)) -> bool {
        let begun = self.what_if();
        change(self);
        let fits = self.assign_free(who, queue, None).is_some();
        self.undo(begun);
        fits
    }

    fn balances(&self, who: WorkloadId, queue: NodeId, spec: &ClusterQueue) -> Vec<Balance> {
        let Some(record) = self.workloads.get(who) else { return Vec::new() };
        let replaced = self.adds_to(who, queue).map(|(_, admission)| admission);
        let held = |pod_set: &str, resource: &ResourceName| {
            let held = replaced.iter().flat_map(|held| &held.pod_sets).find(|one| &*one.name == pod_set);
            held.and_then(|held| held.usage.get(resource)).copied().unwrap_or(0)
        };
        let mut balances = Vec::new();
        for pod_set in record.workload.pod_sets.iter() {
            for (group, one, resource) in offers(spec) {
                let Some(asked) = asked_of(pod_set, group, resource) else { continue };
                let Some(pair) = self.tree.known_pair(&one.flavor, resource) else { continue };
                let nominal = self.tree.nominal(queue, pair);
                let used = |ledger| self.tree.used(queue, pair, ledger);
                let available = self.room(queue, pair).max(0);
                let own = (nominal - used(Ledger::Held).max(used(Ledger::Planned))).clamp(0, available);
                balances.push(Balance {
                    pod_set: pod_set.name.clone(),
                    flavor: one.flavor.clone(),
                    resource: resource.clone(),
                    asked: asked.saturating_sub(held(&pod_set.name, resource)),
                    nominal: narrow(nominal),
                    used: narrow(used(Ledger::Held)),
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
        let above: Vec<NodeId> = self.tree.path(queue).collect();
        let root = self.tree.root(queue);
        let others = self.tree.ids().filter(|id| !above.contains(id) && self.tree.root(*id) == root);
        others.map(|id| self.tree.local_free(id, pair, Ledger::Held)).sum()
    }

    /// Who would have to leave: of those who have what it lacks of some flavor or, where that is not enough, of all.
    fn leavers(&mut self, who: WorkloadId, queue: NodeId, spec: &ClusterQueue) -> Option<Remedy> {
        let all = flavors_of(spec).flat_map(|one| self.pairs_of(one)).collect();
        let lacking = self.wanted(who, queue, spec);
        let found = self.leavers_of(who, queue, &lacking);
        found.or_else(|| self.leavers_of(who, queue, &all))
    }

    /// The same of those who have any of this: those first who leave anyway, then by priority and age, as in preemption.
    fn leavers_of(
        &mut self,
        who: WorkloadId,
        queue: NodeId,
        wanted: &BTreeSet<FlavorResource>,
    ) -> Option<Remedy> {
        // What a slice adds to stays as long as the slice is to be admitted, and what was taken over is there no more.
        let added_to = self.adds_to(who, queue).map(|(old, _)| old);
        let members = self.members_of_tree(queue);
        let holders = members.iter().flat_map(|member| &self.queues[*member].holding).copied();
        let holders = holders.filter(|holder| Some(*holder) != added_to && !self.is_succeeded(*holder));
        let helps = |holding: &Holding| holding.usage.iter().any(|(pair, _)| wanted.contains(pair));
        let holders = holders.filter_map(|holder| Some((holder, self.holding(holder)?)));
        let mut holders: Vec<(WorkloadId, &Holding)> =
            holders.filter(|(_, holding)| helps(holding)).collect();
        holders.sort_by_cached_key(|(holder, holding)| {
            let priority = self.workloads.get(*holder).map(|record| record.workload.priority);
            (!holding.is_leaving(), priority, Reverse(holding.since_ms), self.uid_of(*holder))
        });
        let holders = holders.into_iter().take(MOST_LEAVERS);
        let mut holders: Vec<(WorkloadId, Holding)> =
            holders.map(|(holder, holding)| (holder, holding.clone())).collect();
        let leave = |engine: &mut Self, leavers: &[(WorkloadId, Holding)]| {
            leavers.iter().for_each(|(_, holding)| engine.uncharge(holding));
        };
        if !self.fits_if(who, queue, |engine| leave(engine, &holders)) {
            return None;
        }
        // Those stay who need not leave, the dearest first.
        spare(&mut holders, |others| self.fits_if(who, queue, |engine| leave(engine, others)));
        Some(Remedy::Leave(holders.iter().filter_map(|(holder, _)| self.uid_of(*holder)).collect()))
    }

    /// What it lacks of each flavor of which more would do.
    fn wanted(&mut self, who: WorkloadId, queue: NodeId, spec: &ClusterQueue) -> BTreeSet<FlavorResource> {
        let mut wanted = BTreeSet::new();
        for one in flavors_of(spec) {
            let pairs: Vec<FlavorResource> = self.pairs_of(one).collect();
            let plenty: Vec<_> = pairs.iter().map(|pair| (*pair, PLENTY)).collect();
            if let Some(found) = self.with_raised(who, queue, &plenty, &raise_nominal) {
                wanted.extend(self.lacking(queue, &found, &pairs).into_iter().map(|(pair, _)| pair));
            }
        }
        wanted
    }

    /// How much more nominal quota would do: for every flavor, of that one alone, or if there is none for which that does, of
    /// flavors of other resource groups besides.
    fn raises(&mut self, who: WorkloadId, queue: NodeId, spec: &ClusterQueue) -> Vec<Remedy> {
        let groups = spec.groups.iter().enumerate();
        let flavors = groups.flat_map(|(at, group)| group.flavors.iter().map(move |one| (at, one)));
        let flavors: Vec<(usize, &FlavorQuotas)> = flavors.collect();
        let mut remedies = Vec::new();
        for with_others in [false, true] {
            for (at, one) in &flavors {
                let chosen = flavors
                    .iter()
                    .filter(|(group, other)| other.flavor == one.flavor || with_others && group != at);
                let pairs = chosen.flat_map(|(_, one)| self.pairs_of(one)).collect();
                let found = self.least(who, queue, pairs, raise_nominal).map(Remedy::RaiseNominal);
                remedies.extend(found.filter(|one| !remedies.contains(one)));
                if remedies.len() == MOST_RAISED {
                    break;
                }
            }
            if !remedies.is_empty() {
                break;
            }
        }
        remedies
    }

    /// How much more it would have to be allowed to borrow.
    fn wider_limit(&mut self, who: WorkloadId, queue: NodeId, spec: &ClusterQueue) -> Option<Remedy> {
        let pairs = flavors_of(spec).flat_map(|one| self.pairs_of(one));
        let limited = pairs.filter(|pair| self.tree.borrowing_limit(queue, *pair).is_some()).collect();
        let raise = |quota: &mut Quota, by| {
            quota.borrowing_limit = quota.borrowing_limit.map(|limit| limit.saturating_add(by));
        };
        self.least(who, queue, limited, raise).map(Remedy::RaiseBorrowingLimit)
    }

    /// The least by which quotas of these pairs have to be raised.
    fn least(
        &mut self,
        who: WorkloadId,
        queue: NodeId,
        pairs: Vec<FlavorResource>,
        raise: impl Fn(&mut Quota, i64),
    ) -> Option<Vec<Raise>> {
        let plenty: Vec<_> = pairs.iter().map(|pair| (*pair, PLENTY)).collect();
        let found = self.with_raised(who, queue, &plenty, &raise)?;
        let mut raises: Vec<(FlavorResource, i64)> = self.lacking(queue, &found, &pairs);
        self.with_raised(who, queue, &raises, &raise)?;
        // With less of a flavor other pod sets may find another one.
        let several = self.workloads.get(who).is_some_and(|record| record.workload.pod_sets.len() > 1);
        let may_do_with_less = if several || raises.len() > 1 { raises.len() } else { 0 };
        for index in 0..may_do_with_less {
            let (mut short, mut enough) = (-1, raises[index].1);
            while short + 1 < enough {
                raises[index].1 = short + (enough - short) / 2;
                match self.with_raised(who, queue, &raises, &raise) {
                    Some(_) => enough = raises[index].1,
                    None => short = raises[index].1,
                }
            }
            raises[index].1 = enough;
        }
        let named = raises.iter().filter(|(_, by)| *by > 0).map(|(pair, by)| {
            let (flavor, resource) = self.tree.pair_name(*pair).clone();
            Raise { flavor, resource, by: *by }
        });
        let named: Vec<Raise> = named.collect();
        (!named.is_empty()).then_some(named)
    }

    /// What it could have at once if its queue's quotas were raised so.
    fn with_raised(
        &mut self,
        who: WorkloadId,
        queue: NodeId,
        raises: &[(FlavorResource, i64)],
        raise: &impl Fn(&mut Quota, i64),
    ) -> Option<Assignment> {
        let quotas = self.tree.quotas(queue, raises.iter().map(|(pair, _)| *pair));
        let raised = quotas.iter().zip(raises).map(|((pair, quota), (_, by))| {
            let mut quota = *quota;
            raise(&mut quota, *by);
            (*pair, quota)
        });
        self.tree.set_quotas(queue, raised.collect());
        let found = self.assign_free(who, queue, None);
        self.tree.set_quotas(queue, quotas);
        found
    }

    /// Of these pairs what an assignment needs beyond what is there, or ever could be.
    fn lacking(
        &self,
        queue: NodeId,
        found: &Assignment,
        pairs: &[FlavorResource],
    ) -> Vec<(FlavorResource, i64)> {
        let lacking = found.usage.iter().filter(|(pair, amount)| pairs.contains(pair) && **amount > 0);
        let lacking = lacking.filter_map(|(pair, amount)| {
            let most = self.room(queue, *pair).min(self.tree.maximum(queue, *pair));
            let by = i128::from(*amount) - most;
            (by > 0).then(|| (*pair, narrow(by)))
        });
        lacking.collect()
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
        let told = |(one, count): (&PodSet, i64)| (one.name.clone(), count.saturating_add(one.done));
        Some(Remedy::FewerPods(pod_sets.iter().zip(counts).map(told).collect()))
    }
}

/// Takes out, the last first, whoever is not needed for the others to do.
fn spare<T>(all: &mut Vec<T>, mut others_do: impl FnMut(&[T]) -> bool) {
    for index in (0..all.len()).rev() {
        let one = all.remove(index);
        if !others_do(all) {
            all.insert(index, one);
        }
    }
}

fn raise_nominal(quota: &mut Quota, by: i64) {
    quota.nominal = quota.nominal.saturating_add(by);
}

fn flavors_of(spec: &ClusterQueue) -> impl Iterator<Item = &FlavorQuotas> {
    spec.groups.iter().flat_map(|group| &group.flavors)
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
