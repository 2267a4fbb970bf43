//! The quota tree: ClusterQueues as leaves, cohorts above them, any depth.
//!
//! Rules: Kueue `pkg/cache/scheduler/resource_node.go`. A node keeps for itself what `lendingLimit` does not let it lend
//! (its local quota) and gives the rest of its subtree's quota to its parent; usage fills the local quota first and only
//! the part above it bubbles up. Sums are 128 bits wide, so no number that a user can write overflows.
//!
//! Two ledgers are kept. `Held` is what workloads hold now: whoever gets quota must fit there. `Planned` is what they will
//! hold when those who were told to leave have left and those whom that room was promised to have come. New work must fit
//! both, so a promise is not given twice and a preemptor is not overtaken.

mod shape;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use foldhash::fast::FixedState;

use crate::fair::Share;
use crate::few::Few;
use crate::input::{Quota, Weight};
use crate::names::{ClusterQueueName, CohortName, FlavorName};
use model::ResourceName;

/// A (flavor, resource) pair, interned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FlavorResource(u32);

/// Amounts by (flavor, resource).
pub(crate) type Usage = Few<FlavorResource, i64>;

/// A ClusterQueue or a cohort, by number: it keeps it, whatever becomes of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NodeId(u32);

impl NodeId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Which books are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ledger {
    Held = 0,
    Planned = 1,
}

/// The name of a node in the tree. Queues and cohorts may share a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum NodeName {
    Cohort(CohortName),
    ClusterQueue(ClusterQueueName),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cell {
    quota: Quota,
    /// The node itself has a quota for the pair, be it 0.
    declared: bool,
    /// Somebody in the subtree has.
    covered: bool,
    subtree: i128,
    used: [i128; 2],
}

impl Cell {
    const EMPTY: Self = Self {
        quota: Quota { nominal: 0, borrowing_limit: None, lending_limit: None },
        declared: false,
        covered: false,
        subtree: 0,
        used: [0; 2],
    };

    fn local(&self) -> i128 {
        self.quota.lending_limit.map_or(0, |limit| (self.subtree - i128::from(limit)).max(0))
    }

    fn local_free(&self, ledger: Ledger) -> i128 {
        (self.local() - self.used[ledger as usize]).max(0)
    }

    /// What a parent's sums are made of: what is lent to it, and what is used of it, by ledger.
    fn passed_up(&self) -> [i128; 3] {
        [self.subtree - self.local(), self.overflow(Ledger::Held), self.overflow(Ledger::Planned)]
    }

    /// What is used beyond the local quota, and so from the parent's.
    fn overflow(&self, ledger: Ledger) -> i128 {
        (self.used[ledger as usize] - self.local()).max(0)
    }
}

#[derive(Clone, Debug)]
struct Node {
    name: NodeName,
    /// As the objects say.
    parent: Option<NodeId>,
    /// The same, without the edges of cycles.
    up: Option<NodeId>,
    children: Vec<NodeId>,
    height: u32,
    in_cycle: bool,
    cells: Few<FlavorResource, Cell>,
    weight: Weight,
    /// Of a cohort: what one of its members could have at most of each resource, whatever the flavor.
    lendable: BTreeMap<ResourceName, i128>,
}

/// What was done since a mark, to be undone in reverse.
type Journal = Vec<(NodeId, FlavorResource, Ledger, i128)>;

#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    pairs: HashMap<FlavorName, BTreeMap<ResourceName, FlavorResource>, FixedState>,
    pair_names: Vec<(FlavorName, ResourceName)>,
    nodes: Vec<Node>,
    by_name: BTreeMap<NodeName, NodeId>,
    journal: Journal,
    /// What-ifs in progress; only then the journal is kept.
    marks: u32,
    dirty: bool,
}

impl Tree {
    pub(crate) fn pair(&mut self, flavor: &FlavorName, resource: &ResourceName) -> FlavorResource {
        if let Some(pair) = self.known_pair(flavor, resource) {
            return pair;
        }
        let pair = FlavorResource(u32::try_from(self.pair_names.len()).unwrap_or(u32::MAX));
        self.pairs.entry(flavor.clone()).or_default().insert(resource.clone(), pair);
        self.pair_names.push((flavor.clone(), resource.clone()));
        pair
    }

    pub(crate) fn known_pair(&self, flavor: &FlavorName, resource: &ResourceName) -> Option<FlavorResource> {
        self.pairs.get(flavor)?.get(resource).copied()
    }

    pub(crate) fn pair_name(&self, pair: FlavorResource) -> &(FlavorName, ResourceName) {
        &self.pair_names[pair.0 as usize]
    }

    pub(crate) fn known_node(&self, name: &NodeName) -> Option<NodeId> {
        self.by_name.get(name).copied()
    }

    /// The node of that name; made without quota where it does not exist.
    pub(crate) fn node(&mut self, name: NodeName) -> NodeId {
        if let Some(id) = self.by_name.get(&name) {
            return *id;
        }
        let id = NodeId(u32::try_from(self.nodes.len()).unwrap_or(u32::MAX));
        self.by_name.insert(name.clone(), id);
        self.nodes.push(Node {
            name,
            parent: None,
            up: None,
            children: Vec::new(),
            height: 0,
            in_cycle: false,
            cells: Few::new(),
            weight: Weight::default(),
            lendable: BTreeMap::new(),
        });
        id
    }

    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty
    }

    /// All cohorts that there are or were, or that were named.
    pub(crate) fn cohorts(&self) -> impl Iterator<Item = &CohortName> {
        self.by_name.keys().filter_map(|name| match name {
            NodeName::Cohort(name) => Some(name),
            NodeName::ClusterQueue(_) => None,
        })
    }

    /// Adds (or, negative, removes) usage of a ClusterQueue.
    pub(crate) fn add(&mut self, id: NodeId, pair: FlavorResource, ledger: Ledger, amount: i128) {
        if self.marks > 0 {
            self.journal.push((id, pair, ledger, amount));
        }
        let mut at = Some(id);
        let mut amount = amount;
        while let Some(NodeId(index)) = at {
            let node = &mut self.nodes[index as usize];
            let cell = node.cells.get_or_insert(pair, Cell::EMPTY);
            let before = cell.overflow(ledger);
            cell.used[ledger as usize] += amount;
            amount = cell.overflow(ledger) - before;
            // While the sums are stale only the leaf is kept; `refresh` counts the rest anew.
            at = if self.dirty || amount == 0 { None } else { node.up };
        }
    }

    /// Adds the whole of `usage`, or takes it away.
    pub(crate) fn charge(&mut self, id: NodeId, usage: &Usage, ledger: Ledger, sign: i128) {
        for (pair, amount) in usage.iter() {
            self.add(id, *pair, ledger, sign * i128::from(*amount));
        }
    }

    /// Begins a what-if.
    pub(crate) fn mark(&mut self) -> usize {
        self.marks += 1;
        self.journal.len()
    }

    /// Ends the what-if begun with `mark`: everything since is undone.
    pub(crate) fn rollback(&mut self, mark: usize) {
        let undo: Journal = self.journal.drain(mark..).rev().collect();
        let marks = std::mem::replace(&mut self.marks, 0);
        for (id, pair, ledger, amount) in undo {
            self.add(id, pair, ledger, -amount);
        }
        self.marks = marks - 1;
    }

    fn cell(&self, id: NodeId, pair: FlavorResource) -> &Cell {
        self.nodes[id.0 as usize].cells.get(&pair).unwrap_or(&Cell::EMPTY)
    }

    /// From the node up to its root.
    pub(crate) fn path(&self, id: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        std::iter::successors(Some(id), |id| self.nodes[id.0 as usize].up)
    }

    pub(crate) fn root(&self, id: NodeId) -> NodeId {
        self.path(id).last().unwrap_or(id)
    }

    pub(crate) fn parent(&self, id: NodeId) -> Option<NodeId> {
        self.nodes[id.0 as usize].up
    }

    pub(crate) fn height(&self, id: NodeId) -> u32 {
        self.nodes[id.0 as usize].height
    }

    /// The way up from a cohort where it does not end: until it comes to a cohort for the second time.
    pub(crate) fn endless_way(&self, cohort: &CohortName) -> Option<Vec<&str>> {
        let mut at = *self.by_name.get(&NodeName::Cohort(cohort.clone()))?;
        let (mut way, mut passed) = (Vec::new(), BTreeSet::new());
        loop {
            let node = &self.nodes[at.0 as usize];
            if let NodeName::Cohort(name) = &node.name {
                way.push(name.as_str());
            }
            if !passed.insert(at) {
                return Some(way);
            }
            at = node.parent?;
        }
    }

    pub(crate) fn in_cycle(&self, id: NodeId) -> bool {
        self.nodes[id.0 as usize].in_cycle
    }

    pub(crate) fn children(&self, id: NodeId) -> &[NodeId] {
        &self.nodes[id.0 as usize].children
    }

    pub(crate) fn name(&self, id: NodeId) -> &NodeName {
        &self.nodes[id.0 as usize].name
    }

    /// The names from the root down, as messages show them.
    pub(crate) fn path_text(&self, id: NodeId) -> String {
        let mut names: Vec<&str> = self
            .path(id)
            .map(|id| match &self.nodes[id.0 as usize].name {
                NodeName::Cohort(name) => name.as_str(),
                NodeName::ClusterQueue(name) => name.as_str(),
            })
            .collect();
        names.reverse();
        format!("/{}", names.join("/"))
    }

    /// What a ClusterQueue may still take; below zero when it is over its quota. Every borrowing limit on its way up bounds what
    /// comes from there on, on top of what is free of the local quotas below.
    pub(crate) fn available(&self, id: NodeId, pair: FlavorResource, ledger: Ledger) -> i128 {
        let (mut below, mut bound, mut at) = (0, i128::MAX, id);
        loop {
            let cell = self.cell(at, pair);
            let Some(up) = self.parent(at) else {
                return bound.min(below + cell.subtree - cell.used[ledger as usize]);
            };
            below += cell.local_free(ledger);
            if let Some(limit) = cell.quota.borrowing_limit {
                let lent_and_own = cell.subtree - cell.local();
                bound = bound.min(below + lent_and_own - cell.overflow(ledger) + i128::from(limit));
            }
            at = up;
        }
    }

    /// What it could take if nobody used anything.
    pub(crate) fn maximum(&self, id: NodeId, pair: FlavorResource) -> i128 {
        let (mut below, mut bound, mut at) = (0, i128::MAX, id);
        loop {
            let cell = self.cell(at, pair);
            let Some(up) = self.parent(at) else { return bound.min(below + cell.subtree) };
            if let Some(limit) = cell.quota.borrowing_limit {
                bound = bound.min(below + cell.subtree + i128::from(limit));
            }
            below += cell.local();
            at = up;
        }
    }

    /// The quota of a node's subtree, of what anybody in it has quota of.
    pub(crate) fn quota_of(&self, id: NodeId) -> impl Iterator<Item = (FlavorResource, i128)> {
        let cells = self.nodes[id.0 as usize].cells.iter().filter(|(_, cell)| cell.covered);
        cells.map(|(pair, cell)| (*pair, cell.subtree))
    }

    pub(crate) fn nominal(&self, id: NodeId, pair: FlavorResource) -> i128 {
        i128::from(self.cell(id, pair).quota.nominal)
    }

    /// How much beyond its nominal quota it may borrow; `None` is without limit.
    pub(crate) fn borrowing_limit(&self, id: NodeId, pair: FlavorResource) -> Option<i64> {
        self.cell(id, pair).quota.borrowing_limit
    }

    pub(crate) fn used(&self, id: NodeId, pair: FlavorResource, ledger: Ledger) -> i128 {
        self.cell(id, pair).used[ledger as usize]
    }

    /// Whether the node's subtree would use more than its own quota with `more` on top.
    pub(crate) fn borrows_with(&self, id: NodeId, pair: FlavorResource, ledger: Ledger, more: i128) -> bool {
        let cell = self.cell(id, pair);
        cell.used[ledger as usize] + more > cell.subtree
    }

    /// What the node's subtree takes beyond its own quota, by pair, with `more` on top of what it uses. What somebody uses
    /// of a flavor that nobody in the subtree has quota of any more is not counted (Kueue's rule).
    fn borrowed<'a>(
        &'a self,
        id: NodeId,
        ledger: Ledger,
        more: &'a Usage,
    ) -> impl Iterator<Item = (FlavorResource, i128)> + 'a {
        let node = &self.nodes[id.0 as usize];
        let cells = node.cells.iter().filter(move |(_, cell)| node.up.is_some() && cell.covered);
        cells
            .map(move |(pair, cell)| {
                let more = more.get(pair).copied().map_or(0, i128::from);
                (*pair, cell.used[ledger as usize] + more - cell.subtree)
            })
            .filter(|(_, over)| *over > 0)
    }

    /// The node's dominant resource share among its siblings, with `more` on top of what it uses.
    pub(crate) fn share(&self, id: NodeId, ledger: Ledger, more: &Usage) -> Share {
        let node = &self.nodes[id.0 as usize];
        let Some(up) = node.up else { return Share::default() };
        let lendable = &self.nodes[up.0 as usize].lendable;
        let mut borrowed: BTreeMap<&ResourceName, i128> = BTreeMap::new();
        for (pair, over) in self.borrowed(id, ledger, more) {
            *borrowed.entry(&self.pair_name(pair).1).or_default() += over;
        }
        let parts = borrowed
            .into_iter()
            .map(|(resource, over)| (resource, over, lendable.get(resource).copied().unwrap_or(0)));
        Share::of(node.weight, parts)
    }

    /// Whether the node's subtree borrows any of what `wanted` asks for.
    pub(crate) fn borrows_of(&self, id: NodeId, ledger: Ledger, wanted: &Usage) -> bool {
        self.borrowed(id, ledger, &Usage::new())
            .any(|(pair, _)| wanted.get(&pair).is_some_and(|amount| *amount > 0))
    }

    pub(crate) fn local_free(&self, id: NodeId, pair: FlavorResource, ledger: Ledger) -> i128 {
        self.cell(id, pair).local_free(ledger)
    }

    /// How far up quota comes from: 0 within the queue's own, else the height of the lowest cohort that has enough; and
    /// whether that cohort is below the root.
    pub(crate) fn borrow_height(
        &self,
        id: NodeId,
        pair: FlavorResource,
        ledger: Ledger,
        amount: i128,
    ) -> (u32, bool) {
        if self.parent(id).is_none() || !self.borrows_with(id, pair, ledger, amount) {
            return (0, self.parent(id).is_some());
        }
        let mut rest = amount - self.local_free(id, pair, ledger);
        let mut top = id;
        for id in self.path(id).skip(1) {
            if !self.borrows_with(id, pair, ledger, rest) {
                return (self.height(id), self.parent(id).is_some());
            }
            rest -= self.local_free(id, pair, ledger);
            top = id;
        }
        (self.height(top), false)
    }

    /// Whether a ClusterQueue may take so much; nothing it always may.
    pub(crate) fn is_free(&self, id: NodeId, pair: FlavorResource, ledger: Ledger, amount: i128) -> bool {
        amount <= self.available(id, pair, ledger).max(0)
    }

    /// How far up quota comes from for so much, if it is there in both books: those who leave count as long as they are there.
    pub(crate) fn height_if_free(&self, id: NodeId, pair: FlavorResource, amount: i128) -> Option<u32> {
        let height = |ledger| self.borrow_height(id, pair, ledger, amount).0;
        let free = |ledger| self.is_free(id, pair, ledger, amount);
        (amount <= self.maximum(id, pair) && free(Ledger::Planned) && free(Ledger::Held))
            .then(|| height(Ledger::Planned).max(height(Ledger::Held)))
    }

    /// What a node uses, by pair, for reports and for comparing with a recount.
    pub(crate) fn usage_of(&self, id: NodeId, ledger: Ledger) -> BTreeMap<FlavorResource, i128> {
        self.nodes[id.0 as usize]
            .cells
            .iter()
            .map(|(pair, cell)| (*pair, cell.used[ledger as usize]))
            .filter(|(_, used)| *used != 0)
            .collect()
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = NodeId> {
        (0..self.nodes.len() as u32).map(NodeId)
    }
}
