//! Finding nodes for several pods at once: what-if on the real columns, with a journal to take it back.
//!
//! Pods of one shape are packed: the node that takes all of what remains with the least left over, else the node that
//! takes the most. Because every node takes as many as it can, this finds a place for `n` pods of one shape exactly when
//! there is one. For several shapes the packing, hardest shape first, may miss an arrangement; then a search tries all,
//! up to [`VISIT_LIMIT`].

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use model::planted::Planted;

use crate::ids::{NodeIndex, ResourceIndex, ShapeId};
use crate::nodes::Nodes;
use crate::reason::{NoFit, NodeReason};
use crate::shape::Shapes;

/// So many nodes are looked at by one search before it gives up: about ten milliseconds.
const VISIT_LIMIT: usize = 100_000;

/// More members are packed, but not searched for: the search goes one call deeper with each, and would not get far within
/// its limit.
const SEARCHED_MEMBERS: usize = 200;

/// So many pods of one shape.
pub(crate) type Group = (ShapeId, usize);

/// The nodes, open for trial.
pub(crate) struct Space<'a> {
    pub(crate) nodes: &'a mut Nodes,
    pub(crate) shapes: &'a mut Shapes,
    /// Nodes that refused this gang not long ago.
    pub(crate) avoid: &'a BTreeSet<NodeIndex>,
    pub(crate) planted: Planted,
    journal: Vec<(NodeIndex, ShapeId, i64)>,
}

/// How an attempt ended.
pub(crate) enum Arranged {
    /// For each group, its pods' nodes. The trial placements stand until rolled back.
    Found(Vec<Vec<NodeIndex>>),
    /// There is no arrangement, or (not exhaustive) none was found within the limit. Nothing is placed.
    None { exhaustive: bool },
}

enum Search {
    Found,
    None,
    Limit,
}

impl<'a> Space<'a> {
    pub(crate) fn new(
        nodes: &'a mut Nodes,
        shapes: &'a mut Shapes,
        avoid: &'a BTreeSet<NodeIndex>,
        planted: Planted,
    ) -> Self {
        Self { nodes, shapes, avoid, planted, journal: Vec::new() }
    }

    /// Takes back every trial placement after the first `mark`.
    pub(crate) fn roll_back(&mut self, mark: usize) {
        while self.journal.len() > mark {
            let Some((node, shape, count)) = self.journal.pop() else { break };
            self.nodes.shift(node, self.shapes.get(shape), -count);
        }
    }

    fn place(&mut self, node: NodeIndex, shape: ShapeId, count: i64) {
        self.nodes.shift(node, self.shapes.get(shape), count);
        self.journal.push((node, shape, count));
    }

    /// A place for every pod of every group.
    pub(crate) fn arrange(&mut self, groups: &[Group]) -> Arranged {
        let mark = self.journal.len();
        let order = self.hardest_first(groups);
        let mut found = vec![Vec::new(); groups.len()];
        let complete = order.iter().all(|&index| {
            let (shape, count) = groups[index];
            found[index] = self.pack(shape, count);
            found[index].len() == count
        });
        if complete {
            return Arranged::Found(found);
        }
        self.roll_back(mark);
        if groups.len() < 2 || !self.each_fits_alone(groups) {
            return Arranged::None { exhaustive: true };
        }
        if groups.iter().map(|(_, count)| count).sum::<usize>() > SEARCHED_MEMBERS {
            return Arranged::None { exhaustive: false };
        }
        let sorted: Vec<Group> = order.iter().map(|&index| groups[index]).collect();
        let open: Vec<Vec<NodeIndex>> = sorted.iter().map(|(shape, _)| self.open(*shape)).collect();
        let mut trail = vec![Vec::new(); groups.len()];
        let mut visits = 0;
        match self.search(&sorted, &open, (0, 0), &mut trail, &mut visits) {
            Search::Found => {
                for (nodes, index) in trail.into_iter().zip(order) {
                    found[index] = nodes;
                }
                Arranged::Found(found)
            }
            Search::None => Arranged::None { exhaustive: true },
            Search::Limit => Arranged::None { exhaustive: false },
        }
    }

    /// Whether each group has a place when it is the only one. Where one has not, no search is needed.
    fn each_fits_alone(&mut self, groups: &[Group]) -> bool {
        let mark = self.journal.len();
        groups.iter().all(|&(shape, count)| {
            let placed = self.pack(shape, count).len();
            self.roll_back(mark);
            placed == count
        })
    }

    /// A place for any `least` of the pods, as many as can be; fewer nodes than pods in a group mean that its last pods have
    /// none. Hard shapes first, and if that does not do, easy ones first. Not every choice is tried.
    pub(crate) fn any(&mut self, groups: &[Group], least: usize) -> Option<Vec<Vec<NodeIndex>>> {
        let mark = self.journal.len();
        let mut order = self.hardest_first(groups);
        for _ in 0..2 {
            let mut found = vec![Vec::new(); groups.len()];
            for &index in &order {
                found[index] = self.pack(groups[index].0, groups[index].1);
            }
            if found.iter().map(Vec::len).sum::<usize>() >= least {
                return Some(found);
            }
            self.roll_back(mark);
            order.reverse();
        }
        None
    }

    /// Nodes for up to `count` pods of a shape; fewer when no more fit.
    ///
    /// Each step takes the node with the smallest key: taints that would rather not have the pod (`PreferNoSchedule`);
    /// accelerators wasted on a pod that asks for none; does not take all of what remains; (if so) takes fewer; the scarce
    /// resource left over; the name.
    pub(crate) fn pack(&mut self, shape: ShapeId, count: usize) -> Vec<NodeIndex> {
        let mut candidates: Vec<(NodeIndex, i64)> = self
            .open(shape)
            .into_iter()
            .map(|node| (node, self.nodes.slots(node, self.shapes.get(shape))))
            .filter(|(_, slots)| *slots > 0)
            .collect();
        let scarce = self.scarce(shape);
        let accelerated = self.shapes.get(shape).accelerated;
        let mut placed = Vec::new();
        while placed.len() < count && !candidates.is_empty() {
            let remaining = i64::try_from(count - placed.len()).unwrap_or(i64::MAX);
            let key = |&(node, slots): &(NodeIndex, i64)| {
                let wasted = !accelerated && self.nodes.accelerated(node);
                let short = remaining > slots;
                let taken = slots.min(remaining);
                let left = scarce.map_or(0, |(resource, amount)| {
                    self.nodes.free(node, resource).saturating_sub(amount.saturating_mul(taken))
                });
                let disliked = self.shapes.disliked(node, shape);
                (
                    disliked,
                    wasted,
                    short,
                    Reverse(if short { slots } else { 0 }),
                    left,
                    self.nodes.name(node).clone(),
                )
            };
            let best = (0..candidates.len()).min_by_key(|&index| key(&candidates[index]));
            let Some(best) = best else { break };
            let (node, slots) = candidates.remove(best);
            let taken = slots.min(remaining);
            self.place(node, shape, taken);
            placed.extend((0..taken).map(|_| node));
        }
        placed
    }

    /// Nodes on which nothing but free capacity can keep the shape out, by name.
    fn open(&mut self, shape: ShapeId) -> Vec<NodeIndex> {
        let (nodes, shapes) = (&*self.nodes, &mut *self.shapes);
        nodes
            .present()
            .filter(|node| {
                !self.avoid.contains(node) && shapes.verdict(nodes, shape, *node, self.planted).is_none()
            })
            .collect()
    }

    /// The resource of which the shape asks the largest part of what the cluster has, and how much it asks.
    fn scarce(&self, shape: ShapeId) -> Option<(ResourceIndex, i64)> {
        let demands = &self.shapes.get(shape).demands;
        demands.iter().copied().max_by_key(|&(resource, amount)| {
            (self.part(resource, amount), Reverse(self.nodes.resource(resource)))
        })
    }

    /// The part of the cluster's amount that is asked, in millionths.
    fn part(&self, resource: ResourceIndex, amount: i64) -> i128 {
        i128::from(amount) * 1_000_000 / self.nodes.total(resource).max(1)
    }

    fn hardest_first(&self, groups: &[Group]) -> Vec<usize> {
        let mut order: Vec<usize> = (0..groups.len()).collect();
        order.sort_by_key(|&index| {
            let shape = groups[index].0;
            let part = self.scarce(shape).map_or(0, |(resource, amount)| self.part(resource, amount));
            (Reverse(part), self.shapes.get(shape).key.clone())
        });
        order
    }

    /// Tries every arrangement. Pods of one shape are interchangeable, so each goes to the previous one's node or a later
    /// one; nodes that nothing tells apart are, too, so only the first of them is tried.
    fn search(
        &mut self,
        groups: &[Group],
        open: &[Vec<NodeIndex>],
        (group, from): (usize, usize),
        trail: &mut [Vec<NodeIndex>],
        visits: &mut usize,
    ) -> Search {
        let Some(&(shape, count)) = groups.get(group) else { return Search::Found };
        if trail[group].len() == count {
            return self.search(groups, open, (group + 1, 0), trail, visits);
        }
        let mut tried = BTreeSet::new();
        for position in from..open[group].len() {
            *visits += 1;
            if *visits > VISIT_LIMIT {
                return Search::Limit;
            }
            let node = open[group][position];
            if self.nodes.slots(node, self.shapes.get(shape)) < 1 {
                continue;
            }
            if let Some(look) = self.look(groups, node)
                && !tried.insert(look)
            {
                continue;
            }
            let mark = self.journal.len();
            self.place(node, shape, 1);
            trail[group].push(node);
            match self.search(groups, open, (group, position), trail, visits) {
                Search::None => {}
                ended => {
                    if matches!(ended, Search::Limit) {
                        self.roll_back(mark);
                    }
                    return ended;
                }
            }
            trail[group].pop();
            self.roll_back(mark);
        }
        Search::None
    }

    /// All that tells a node from another for these groups. `None`: host ports are involved, every node is its own.
    fn look(&mut self, groups: &[Group], node: NodeIndex) -> Option<Vec<i64>> {
        let mut look = Vec::new();
        for &(id, _) in groups {
            let open = self.shapes.verdict(self.nodes, id, node, self.planted).is_none();
            look.push(i64::from(open));
            let shape = self.shapes.get(id);
            if !shape.rules.host_ports.is_empty() {
                return None;
            }
            look.extend(shape.demands.iter().map(|(resource, _)| self.nodes.free(node, *resource)));
        }
        Some(look)
    }

    /// Says with numbers why the groups do not fit: packs what can be packed and asks every node about one pod more of the
    /// first group that is not complete, whose position comes with it. Leaves nothing placed; names no member.
    pub(crate) fn explain(&mut self, groups: &[Group], exhaustive: bool) -> (NoFit, usize) {
        let mark = self.journal.len();
        let wanted: usize = groups.iter().map(|(_, count)| count).sum();
        let mut placeable = 0;
        let mut failing = None;
        for index in self.hardest_first(groups) {
            let (shape, count) = groups[index];
            let placed = self.pack(shape, count).len();
            placeable += placed;
            if placed < count && failing.is_none() {
                failing = Some((index, self.histogram(shape)));
            }
        }
        self.roll_back(mark);
        let (failing, (histogram, amounts)) = failing.unwrap_or_default();
        let no_fit = NoFit {
            placeable: to_u32(placeable.min(wanted.saturating_sub(1))),
            wanted: to_u32(wanted),
            nodes: histogram.values().sum(),
            histogram,
            member: std::sync::Arc::default(),
            amounts,
            exhaustive,
        };
        (no_fit, failing)
    }

    fn histogram(
        &mut self,
        id: ShapeId,
    ) -> (BTreeMap<NodeReason, u32>, BTreeMap<model::ResourceName, (i64, i64)>) {
        let mut histogram: BTreeMap<NodeReason, u32> = BTreeMap::new();
        let mut amounts = BTreeMap::new();
        let present: Vec<NodeIndex> = self.nodes.present().collect();
        for node in present {
            let reason = match self.shapes.verdict(self.nodes, id, node, self.planted) {
                Some(reason) => reason.clone(),
                None if self.avoid.contains(&node) => NodeReason::RefusedBefore,
                // In a search that hit its limit a node may have room for this very pod: others of the gang need it.
                None => match self.nodes.capacity_reason(node, self.shapes.get(id)) {
                    Some(reason) => reason,
                    None => continue,
                },
            };
            if let NodeReason::Insufficient(name) = &reason {
                let shape = self.shapes.get(id);
                let demand = shape.demands.iter().find(|(index, _)| self.nodes.resource(*index) == name);
                if let Some(&(index, asked)) = demand {
                    let free = self.nodes.free(node, index);
                    let most = amounts.entry(name.clone()).or_insert((asked, free));
                    most.1 = most.1.max(free);
                }
            }
            *histogram.entry(reason).or_default() += 1;
        }
        (histogram, amounts)
    }
}

pub(crate) fn to_u32(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
