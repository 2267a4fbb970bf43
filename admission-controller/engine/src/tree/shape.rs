//! The shape of the tree and its quotas: what follows when objects change.

use std::collections::BTreeMap;

use model::ResourceName;

use super::{Cell, FlavorResource, NodeId, NodeName, Tree};
use crate::input::{Quota, ResourceGroup, Weight};

impl Tree {
    /// Replaces a node's own quotas and its parent. The sums are renewed by [`Tree::refresh`].
    pub(crate) fn configure(&mut self, id: NodeId, parent: Option<NodeId>, groups: &[ResourceGroup]) {
        let quotas: Vec<(FlavorResource, Quota)> = groups
            .iter()
            .flat_map(|group| &group.flavors)
            .flat_map(|flavor| {
                flavor.resources.iter().map(|(resource, quota)| (&flavor.flavor, resource, *quota))
            })
            .map(|(flavor, resource, quota)| (flavor.clone(), resource.clone(), quota))
            .collect::<Vec<_>>()
            .into_iter()
            .map(|(flavor, resource, quota)| (self.pair(&flavor, &resource), quota))
            .collect();
        let node = &mut self.nodes[id.0 as usize];
        node.parent = parent;
        for cell in node.cells.values_mut() {
            (cell.quota, cell.declared) = (Quota::default(), false);
        }
        for (pair, quota) in quotas {
            let cell = node.cells.get_or_insert(pair, Cell::EMPTY);
            (cell.quota, cell.declared) = (quota, true);
        }
        self.dirty = true;
    }

    /// A node's own quotas of these pairs, nothing of those of which it has none.
    pub(crate) fn quotas(
        &self,
        id: NodeId,
        pairs: impl Iterator<Item = FlavorResource>,
    ) -> Vec<(FlavorResource, Quota)> {
        pairs.map(|pair| (pair, self.cell(id, pair).quota)).collect()
    }

    /// Gives a node other quotas of pairs that it has, in a what-if: what fair sharing goes by stays as it is.
    pub(crate) fn set_quotas(&mut self, id: NodeId, quotas: Vec<(FlavorResource, Quota)>) {
        let way: Vec<NodeId> = self.path(id).collect();
        for (pair, quota) in quotas {
            let mut more = [0; 3];
            for at in &way {
                let Some(cell) = self.nodes[at.0 as usize].cells.get_mut(&pair) else { break };
                let before = cell.passed_up();
                if *at == id {
                    more[0] = i128::from(quota.nominal) - i128::from(cell.quota.nominal);
                    cell.quota = quota;
                }
                let [subtree, held, planned] = more;
                cell.subtree += subtree;
                cell.used = [cell.used[0] + held, cell.used[1] + planned];
                let after = cell.passed_up();
                more = std::array::from_fn(|index| after[index] - before[index]);
            }
        }
    }

    /// How much a node's borrowing counts among its siblings.
    pub(crate) fn set_weight(&mut self, id: NodeId, weight: Weight) {
        self.nodes[id.0 as usize].weight = weight;
    }

    /// Brings every sum up to date after the shape or the quotas changed.
    pub(crate) fn refresh(&mut self) {
        if !std::mem::take(&mut self.dirty) {
            return;
        }
        self.find_cycles();
        for node in &mut self.nodes {
            node.children.clear();
            node.height = 0;
        }
        for index in 0..self.nodes.len() {
            if let Some(up) = self.nodes[index].up {
                self.nodes[up.0 as usize].children.push(NodeId(index as u32));
            }
        }
        for id in self.leaves_first() {
            self.sum_up(id);
        }
        for index in 0..self.nodes.len() {
            self.nodes[index].lendable = self.lendable(NodeId(index as u32));
        }
    }

    /// Counts every sum anew, as if the shape had changed.
    pub(crate) fn recount(&mut self) {
        self.dirty = true;
        self.refresh();
    }

    /// What a cohort's members could have at most: every flavor that anybody in the tree has quota of counts.
    fn lendable(&self, id: NodeId) -> BTreeMap<ResourceName, i128> {
        let mut lendable: BTreeMap<ResourceName, i128> = BTreeMap::new();
        if self.children(id).is_empty() {
            return lendable;
        }
        let root = &self.nodes[self.root(id).0 as usize];
        for pair in root.cells.iter().filter(|(_, cell)| cell.covered).map(|(pair, _)| *pair) {
            *lendable.entry(self.pair_name(pair).1.clone()).or_default() += self.maximum(id, pair);
        }
        lendable
    }

    /// Marks every node whose way up does not end. The whole tree hangs on the cycle, so all of it is marked.
    fn find_cycles(&mut self) {
        #[derive(Clone, Copy, PartialEq)]
        enum Seen {
            No,
            OnPath,
            Ends,
            Cycles,
        }
        let mut seen = vec![Seen::No; self.nodes.len()];
        for start in 0..self.nodes.len() {
            let mut path = Vec::new();
            let mut next = Some(NodeId(start as u32));
            let verdict = loop {
                let Some(NodeId(at)) = next else { break Seen::Ends };
                match seen[at as usize] {
                    Seen::No => {
                        seen[at as usize] = Seen::OnPath;
                        path.push(at);
                        next = self.nodes[at as usize].parent;
                    }
                    Seen::OnPath | Seen::Cycles => break Seen::Cycles,
                    Seen::Ends => break Seen::Ends,
                }
            };
            for at in path {
                seen[at as usize] = verdict;
            }
        }
        for (node, seen) in self.nodes.iter_mut().zip(seen) {
            node.in_cycle = seen == Seen::Cycles;
            node.up = if node.in_cycle { None } else { node.parent };
        }
    }

    fn leaves_first(&self) -> Vec<NodeId> {
        let mut order: Vec<NodeId> = (0..self.nodes.len() as u32)
            .map(NodeId)
            .filter(|id| self.nodes[id.0 as usize].up.is_none())
            .collect();
        let mut at = 0;
        while at < order.len() {
            order.extend_from_slice(&self.nodes[order[at].0 as usize].children);
            at += 1;
        }
        order.reverse();
        order
    }

    fn sum_up(&mut self, id: NodeId) {
        let is_cohort = matches!(self.nodes[id.0 as usize].name, NodeName::Cohort(_));
        let mut sums: BTreeMap<FlavorResource, ([i128; 3], bool)> = BTreeMap::new();
        let mut height = 0;
        for child in self.nodes[id.0 as usize].children.clone() {
            let child = &self.nodes[child.0 as usize];
            height = height.max(child.height + 1);
            for (pair, cell) in child.cells.iter() {
                let (sum, covered) = sums.entry(*pair).or_default();
                sum.iter_mut().zip(cell.passed_up()).for_each(|(sum, more)| *sum += more);
                *covered |= cell.covered;
            }
        }
        let node = &mut self.nodes[id.0 as usize];
        node.height = height;
        for pair in sums.keys() {
            node.cells.get_or_insert(*pair, Cell::EMPTY);
        }
        for (pair, cell) in node.cells.iter_mut() {
            let ([subtree, used @ ..], covered) = sums.get(pair).copied().unwrap_or_default();
            cell.subtree = i128::from(cell.quota.nominal) + subtree;
            cell.covered = cell.declared || covered;
            if is_cohort {
                cell.used = used;
            }
        }
    }
}
