//! In which order candidates are taken: Kueue's (`pkg/scheduler/preemption/common/ordering.go`), where that is one.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::{Candidate, RankAmongQueues};
use crate::tree::NodeId;

/// The candidates of one queue.
type OfQueue = BinaryHeap<Reverse<Candidate>>;

/// Candidates in their order: each queue's in its own, and of several queues always the one whose first comes first among theirs.
/// Mostly a few of very many will do, so no more of them are sorted than are asked for.
pub(super) struct Ranking {
    first: Vec<Candidate>,
    /// By the first of each queue.
    rest: BTreeMap<RankAmongQueues, OfQueue>,
}

impl Ranking {
    pub(super) fn new(candidates: Vec<Candidate>) -> Self {
        let mut by_queue: BTreeMap<NodeId, Vec<Reverse<Candidate>>> = BTreeMap::new();
        for candidate in candidates {
            by_queue.entry(candidate.queue).or_default().push(Reverse(candidate));
        }
        let mut ranking = Self { first: Vec::new(), rest: BTreeMap::new() };
        for of_queue in by_queue.into_values() {
            ranking.line_up(of_queue.into());
        }
        ranking
    }

    fn line_up(&mut self, of_queue: OfQueue) {
        if let Some(Reverse(first)) = of_queue.peek() {
            self.rest.insert(first.rank_among_queues(), of_queue);
        }
    }

    pub(super) fn get(&mut self, index: usize) -> Option<&Candidate> {
        while self.first.len() <= index {
            let (_, mut of_queue) = self.rest.pop_first()?;
            self.first.extend(of_queue.pop().map(|Reverse(next)| next));
            self.line_up(of_queue);
        }
        self.first.get(index)
    }
}
