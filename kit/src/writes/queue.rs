//! Writes that wait: by importance, then by turns of whose they are, then age; and in order within a key.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{Attempt, Priority};
use crate::backoff::Backoff;

/// Makes one attempt each time it is called.
pub(super) type Send<T> = Box<dyn FnMut() -> Attempt<T> + std::marker::Send>;

/// One accepted write.
pub(super) struct Job<T> {
    pub(super) priority: Priority,
    /// Its place in the order of submission.
    pub(super) sequence: u64,
    /// Its turn among the writes of its importance: see [`Turns`].
    turn: u64,
    pub(super) send: Send<T>,
    pub(super) attempts: u32,
    pub(super) backoff: Backoff,
}

/// The writes of one key, oldest first.
struct Lane<T> {
    jobs: VecDeque<Job<T>>,
    /// One of the key's writes was taken and not released: the others wait.
    busy: bool,
}

impl<T> Lane<T> {
    /// A lane counts as its most important write does, or that one would wait behind a less important one for ever.
    fn rank(&self) -> Option<Rank> {
        let (priority, turn) = self.jobs.iter().map(|job| (job.priority, job.turn)).min()?;
        Some((priority, turn, self.jobs.front()?.sequence))
    }
}

/// Importance, turn and age.
type Rank = (Priority, u64, u64);

/// All waiting writes.
pub(super) struct Queue<K, T> {
    lanes: BTreeMap<K, Lane<T>>,
    /// The lanes that may go, by rank.
    ready: BTreeSet<(Rank, K)>,
    /// Every waiting write, by importance and age.
    waiting: BTreeSet<(Priority, u64, K)>,
    next_sequence: u64,
    turns: BTreeMap<Priority, Turns>,
}

/// Who is next among writes of one importance: start-time fair queueing (Goyal, Vin and Cheng, 1996). However many writes one owner
/// has, another's goes after one of each.
#[derive(Default)]
struct Turns {
    /// The one that was taken last.
    last: u64,
    /// The next one of each owner that had any since nothing waited.
    next: BTreeMap<Box<str>, u64>,
}

impl Turns {
    fn give(&mut self, whose: &str) -> u64 {
        let turn = self.next.get(whose).copied().unwrap_or(0).max(self.last);
        self.next.insert(whose.into(), turn + 1);
        turn
    }

    fn taken(&mut self, turn: u64) {
        self.last = self.last.max(turn);
    }
}

impl<K, T> Default for Queue<K, T> {
    fn default() -> Self {
        Self {
            lanes: BTreeMap::new(),
            ready: BTreeSet::new(),
            waiting: BTreeSet::new(),
            next_sequence: 0,
            turns: BTreeMap::new(),
        }
    }
}

impl<K: Clone + Ord, T> Queue<K, T> {
    /// Adds a write.
    pub(super) fn push(&mut self, priority: Priority, whose: &str, key: K, send: Send<T>) {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        self.waiting.insert((priority, sequence, key.clone()));
        let turn = self.turns.entry(priority).or_default().give(whose);
        self.change(key, |lane| {
            let backoff = Backoff::for_writes();
            lane.jobs.push_back(Job { priority, sequence, turn, send, attempts: 0, backoff });
        });
    }

    /// Takes the write that is next; its key is busy until [`release`](Self::release).
    pub(super) fn take(&mut self) -> Option<(K, Job<T>)> {
        let (_, key) = self.ready.first()?.clone();
        let job = self.change(key.clone(), |lane| {
            lane.busy = true;
            lane.jobs.pop_front()
        })?;
        self.waiting.remove(&(job.priority, job.sequence, key.clone()));
        self.turns.entry(job.priority).or_default().taken(job.turn);
        Some((key, job))
    }

    /// The write taken under this key has ended.
    pub(super) fn release(&mut self, key: K) {
        self.change(key, |lane| lane.busy = false);
    }

    /// Drops the least important, youngest write, if it is less important than this.
    pub(super) fn shed(&mut self, than: Priority) -> Option<K> {
        if self.waiting.last()?.0 <= than {
            return None;
        }
        let (_, sequence, key) = self.waiting.pop_last()?;
        self.change(key.clone(), |lane| lane.jobs.retain(|job| job.sequence != sequence));
        Some(key)
    }

    /// Takes everything that waits, oldest first.
    pub(super) fn drain(&mut self) -> Vec<(K, Job<T>)> {
        self.ready.clear();
        self.waiting.clear();
        self.turns.clear();
        let mut all: Vec<_> = self
            .lanes
            .iter_mut()
            .flat_map(|(key, lane)| lane.jobs.drain(..).map(|job| (key.clone(), job)).collect::<Vec<_>>())
            .collect();
        self.lanes.retain(|_, lane| lane.busy);
        all.sort_by_key(|(_, job)| job.sequence);
        all
    }

    /// Changes a lane and keeps `ready` in step.
    fn change<R>(&mut self, key: K, change: impl FnOnce(&mut Lane<T>) -> R) -> R {
        let lane =
            self.lanes.entry(key.clone()).or_insert_with(|| Lane { jobs: VecDeque::new(), busy: false });
        if let Some(rank) = lane.rank() {
            self.ready.remove(&(rank, key.clone()));
        }
        let result = change(lane);
        match lane.rank() {
            _ if lane.busy => {}
            Some(rank) => {
                self.ready.insert((rank, key));
            }
            None => {
                self.lanes.remove(&key);
                if self.lanes.is_empty() {
                    self.turns.clear();
                }
            }
        }
        result
    }
}
