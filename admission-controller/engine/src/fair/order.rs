//! Whose turn it is in a cycle, by fair sharing.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::Share;
use crate::line::Order;
use crate::tree::{Ledger, NodeId, Tree, Usage};

/// One workload that wants its turn.
#[derive(Clone, Debug)]
pub(crate) struct Entrant {
    /// Its ClusterQueue.
    pub(crate) node: NodeId,
    /// What it would use.
    pub(crate) usage: Usage,
    pub(crate) order: Order,
}

/// The heads of one cycle, each to be had once.
pub(crate) struct Turns<T> {
    heads: Vec<Option<T>>,
    sequence: Sequence,
}

enum Sequence {
    Fixed(std::vec::IntoIter<usize>),
    Fair(Tournament),
}

impl<T> Turns<T> {
    /// In an order that does not depend on what becomes of those before.
    pub(crate) fn sorted(heads: Vec<T>, compare: impl Fn(&T, &T) -> Ordering) -> Self {
        let mut sequence: Vec<usize> = (0..heads.len()).collect();
        sequence.sort_by(|a, b| compare(&heads[*a], &heads[*b]));
        let heads = heads.into_iter().map(Some).collect();
        Self { heads, sequence: Sequence::Fixed(sequence.into_iter()) }
    }

    /// By fair sharing, as `entrant` describes each.
    pub(crate) fn fair(
        tree: &Tree,
        heads: Vec<T>,
        non_borrowing_first: bool,
        entrant: impl Fn(&T) -> Entrant,
    ) -> Self {
        let mut tournament = Tournament::new(tree, heads.iter().map(entrant).collect());
        tournament.non_borrowing_first = non_borrowing_first;
        Self { heads: heads.into_iter().map(Some).collect(), sequence: Sequence::Fair(tournament) }
    }

    /// Who is next, as things stand now. What those used who have `departed`, or are to, is in use until the cycle ends. The tree is as
    /// before afterwards.
    pub(crate) fn next(&mut self, tree: &mut Tree, departed: &BTreeMap<NodeId, Usage>) -> Option<T> {
        let index = match &mut self.sequence {
            Sequence::Fixed(sequence) => sequence.next()?,
            Sequence::Fair(tournament) => tournament.next(tree, departed)?,
        };
        self.heads[index].take()
    }
}

/// Who is next, by fair sharing (Kueue `pkg/scheduler/fair_sharing_iterator.go`): in each cohort, from the leaves up, the
/// child wins whose workload leaves it with the smallest share. Under the root one workload remains.
///
/// A turn changes the sums on one way up only, so only there the bouts are held anew.
#[derive(Debug, Default)]
struct Tournament {
    /// Who borrows nothing of what it asks for comes before all others.
    non_borrowing_first: bool,
    entrants: Vec<Entrant>,
    /// By ClusterQueue, who has not had a turn yet.
    waiting: BTreeMap<NodeId, BTreeMap<Order, usize>>,
    /// By cohort.
    bouts: BTreeMap<NodeId, Bout>,
    /// Nodes whose part in their cohort's bout is out of date, the deepest first.
    stale: BTreeSet<(Reverse<usize>, NodeId)>,
    roots: VecDeque<NodeId>,
}

/// One cohort's children with the best workload of each.
#[derive(Debug, Default)]
struct Bout {
    ranked: BTreeMap<Rank, usize>,
    of_child: BTreeMap<NodeId, Rank>,
}

/// The smaller, the sooner: who stays within its own quota of what it asks for, then the smaller share, then the order in
/// the queue; where that is the same, who comes from a cohort.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    borrows: bool,
    share: Share,
    turn: (Reverse<i32>, i64),
    of_queue: bool,
    order: Order,
}

impl Tournament {
    fn new(tree: &Tree, entrants: Vec<Entrant>) -> Self {
        let mut tournament = Self::default();
        let mut roots = BTreeSet::new();
        for (index, entrant) in entrants.iter().enumerate() {
            let waiting = tournament.waiting.entry(entrant.node).or_default();
            waiting.insert(entrant.order.clone(), index);
            tournament.outdate(tree, entrant.node);
            let root = tree.root(entrant.node);
            if roots.insert(root) {
                tournament.roots.push_back(root);
            }
        }
        tournament.entrants = entrants;
        tournament
    }

    fn next(&mut self, tree: &mut Tree, departed: &BTreeMap<NodeId, Usage>) -> Option<usize> {
        if !self.stale.is_empty() {
            let mark = tree.mark();
            for (node, usage) in departed {
                tree.charge(*node, usage, Ledger::Planned, 1);
            }
            self.hold_bouts(tree);
            tree.rollback(mark);
        }
        let next = loop {
            let root = *self.roots.front()?;
            match self.winner(root) {
                Some(next) => break next,
                None => self.roots.pop_front(),
            };
        };
        let Entrant { node, order, .. } = self.entrants[next].clone();
        if let Some(waiting) = self.waiting.get_mut(&node) {
            waiting.remove(&order);
        }
        self.outdate(tree, node);
        Some(next)
    }

    fn outdate(&mut self, tree: &Tree, node: NodeId) {
        let path: Vec<NodeId> = tree.path(node).collect();
        for (above, node) in path.iter().rev().enumerate() {
            self.stale.insert((Reverse(above), *node));
        }
    }

    fn hold_bouts(&mut self, tree: &mut Tree) {
        while let Some((_, node)) = self.stale.pop_first() {
            let Some(cohort) = tree.parent(node) else { continue };
            let rank = self.winner(node).map(|index| (self.rank(tree, node, index), index));
            let bout = self.bouts.entry(cohort).or_default();
            if let Some(before) = bout.of_child.remove(&node) {
                bout.ranked.remove(&before);
            }
            if let Some((rank, index)) = rank {
                bout.of_child.insert(node, rank.clone());
                bout.ranked.insert(rank, index);
            }
        }
    }

    /// The best of a queue or cohort.
    fn winner(&self, node: NodeId) -> Option<usize> {
        let waiting = self.waiting.get(&node).and_then(|waiting| waiting.values().next());
        let won = self.bouts.get(&node).and_then(|bout| bout.ranked.values().next());
        waiting.or(won).copied()
    }

    fn rank(&self, tree: &mut Tree, node: NodeId, index: usize) -> Rank {
        let entrant = &self.entrants[index];
        let mark = tree.mark();
        tree.charge(entrant.node, &entrant.usage, Ledger::Planned, 1);
        let rank = Rank {
            borrows: self.non_borrowing_first && tree.borrows_of(node, Ledger::Planned, &entrant.usage),
            share: tree.share(node, Ledger::Planned, &Usage::new()),
            turn: entrant.order.turn(),
            of_queue: node == entrant.node,
            order: entrant.order.clone(),
        };
        tree.rollback(mark);
        rank
    }
}
