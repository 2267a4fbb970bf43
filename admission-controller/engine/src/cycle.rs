//! One call of [`Engine::decide`]: rounds of one head per queue until nothing more can be done.

use std::collections::BTreeSet;

use model::planted::Bug;

use crate::assign::{Assignment, NoFit, Verdict};
use crate::decision::{Decision, EvictReason};
use crate::engine::Engine;
use crate::input::ReclaimWithinCohort;
use crate::names::{ClusterQueueName, Uid};
use crate::queue::{Claim, Order, Phase};
use crate::reason::PendingReason;
use crate::tree::{Ledger, NodeId, Usage};

/// So many heads are looked at in one call before writes get their turn; the rest follows in the next call. At about ten
/// microseconds each this is a tenth of a second at most.
const HEADS_PER_CALL: usize = 8192;

/// A head with what was found for it.
struct Entry {
    uid: Uid,
    order: Order,
    cluster_queue: ClusterQueueName,
    root: NodeId,
    found: Result<Assignment, NoFit>,
}

impl Engine {
    /// Decides everything that can be decided now. `now_ms` is the time in milliseconds since the epoch.
    ///
    /// Call it again at once while [`Engine::has_more`] says so; otherwise after the next event or outcome.
    pub fn decide(&mut self, now_ms: i64) -> Vec<Decision> {
        self.reconfigure();
        self.keep_promises(now_ms);
        let mut looked_at = 0;
        while looked_at < HEADS_PER_CALL {
            match self.round(now_ms) {
                0 => break,
                heads => looked_at += heads,
            }
        }
        self.cut_short = looked_at >= HEADS_PER_CALL;
        if !self.cut_short {
            for uid in std::mem::take(&mut self.unsaid) {
                if let Some(name) = self.waits_behind(&uid) {
                    self.say(&uid, Some(name), PendingReason::Behind);
                }
            }
        }
        std::mem::take(&mut self.out)
    }

    /// Whether the last call of [`Engine::decide`] stopped before everything was looked at.
    pub fn has_more(&self) -> bool {
        self.cut_short
    }

    /// The StrictFIFO queue in which it waits for its turn, not being the head that was looked at.
    fn waits_behind(&self, uid: &Uid) -> Option<ClusterQueueName> {
        let record = self.workloads.get(uid)?;
        let Phase::Queued(name) = &record.phase else { return None };
        let head = self.queues.get(name)?.blocked.as_ref().map(|order| &order.uid);
        (head != Some(uid)).then(|| name.clone())
    }

    /// Gives room that came back to whom it was promised.
    fn keep_promises(&mut self, now_ms: i64) {
        if !std::mem::take(&mut self.released) {
            return;
        }
        for order in self.claims.clone() {
            let Some(record) = self.workloads.get(&order.uid) else { continue };
            let Phase::Claiming(claim) = &record.phase else { continue };
            let (admission, usage, name) =
                (claim.admission.clone(), claim.usage.clone(), claim.cluster_queue.clone());
            let node = self.queue(&name).node;
            if self.fits(node, &usage, Ledger::Held) {
                self.reserve(&order.uid, admission, usage, now_ms);
            } else {
                self.say_waiting(&order.uid, &name);
            }
        }
    }

    /// Looks at one head of every queue; returns how many, or 0 when nothing changed and nothing will.
    fn round(&mut self, now_ms: i64) -> usize {
        let mut entries = self.nominate();
        let fresh = entries.iter().filter(|entry| !self.is_blocked(entry)).count();
        if fresh == 0 {
            return 0;
        }
        entries.sort_by_cached_key(|entry| {
            let borrows = entry.found.as_ref().map_or(0, |assignment| assignment.height);
            (borrows, entry.order.clone())
        });
        let mut progress = false;
        let mut changed: BTreeSet<NodeId> = BTreeSet::new();
        let mut kept: Vec<(NodeId, NodeId, Usage)> = Vec::new();
        for mut entry in entries {
            if changed.contains(&entry.root) {
                entry.found = self.assign(&entry.uid, &entry.cluster_queue);
            }
            let root = entry.root;
            match entry.found {
                Ok(assignment) => {
                    self.take(&entry.uid, &entry.cluster_queue, assignment, now_ms);
                    changed.insert(root);
                    progress = true;
                }
                Err(ref no_fit) => {
                    let no_fit = no_fit.clone();
                    if let Some(keep) = self.kept_for_head(&entry, &no_fit) {
                        let node = self.queue(&entry.cluster_queue).node;
                        self.tree.charge(node, &keep, Ledger::Planned, 1);
                        kept.push((root, node, keep));
                        changed.insert(root);
                    }
                    let held_back = kept.iter().any(|(of, ..)| *of == root);
                    progress |= self.put_aside(&entry, no_fit, held_back);
                }
            }
        }
        for (_, node, usage) in kept {
            self.tree.charge(node, &usage, Ledger::Planned, -1);
        }
        if progress { fresh } else { 0 }
    }

    fn is_blocked(&self, entry: &Entry) -> bool {
        self.queues.get(&entry.cluster_queue).and_then(|queue| queue.blocked.as_ref()) == Some(&entry.order)
    }

    fn nominate(&mut self) -> Vec<Entry> {
        let mut entries = Vec::new();
        for name in self.ready.clone() {
            self.park_behind_their_like(&name);
            let queue = self.queue(&name);
            let node = queue.node;
            let Some(order) = queue.head().cloned() else {
                if queue.active.is_empty() {
                    self.ready.remove(&name);
                }
                continue;
            };
            let found = self.assign(&order.uid, &name);
            let root = self.tree.root(node);
            entries.push(Entry { uid: order.uid.clone(), order, cluster_queue: name, root, found });
        }
        entries
    }

    /// Heads that ask for the same as one that was looked at before them, and did not fit, need not be looked at.
    fn park_behind_their_like(&mut self, name: &ClusterQueueName) {
        while let Some(order) = self.queue(name).head().cloned() {
            let Some(shape) = self.workloads.get(&order.uid).map(|record| record.shape.clone()) else {
                return;
            };
            let leader = self.queue(name).parked.first(&shape).filter(|leader| **leader < order).cloned();
            let reason = leader.and_then(|leader| self.workloads.get(&leader.uid)?.said.clone());
            let Some(reason) = reason else { return };
            let queue = self.queue(name);
            queue.active.remove(&order);
            queue.parked.insert(shape, order.clone());
            self.set_phase(&order.uid, Phase::Parked(name.clone()));
            self.say(&order.uid, Some(name.clone()), reason);
        }
    }

    /// Does what was found: gives quota, or promises it and sends away whom it takes.
    fn take(&mut self, uid: &Uid, name: &ClusterQueueName, assignment: Assignment, now_ms: i64) {
        let Assignment { admission, usage, verdict, .. } = assignment;
        match verdict {
            Verdict::Fit => self.reserve(uid, admission, usage, now_ms),
            Verdict::Wait => self.claim(uid, name, admission, usage),
            Verdict::Preempt(targets) => {
                for target in &targets {
                    self.evict(&target.uid, EvictReason::Preempted(target.reason), Some((uid, name)));
                }
                if self.planted.is(Bug::ReleaseQuotaAtEviction) {
                    self.reserve(uid, admission, usage, now_ms);
                    return;
                }
                self.claim(uid, name, admission, usage);
            }
        }
    }

    fn claim(
        &mut self,
        uid: &Uid,
        name: &ClusterQueueName,
        admission: crate::input::Admission,
        usage: Usage,
    ) {
        let Some(record) = self.workloads.get(uid) else { return };
        let order = Order::of(&record.workload);
        self.leave_queue(name, &order);
        let queue = self.queue(name);
        queue.claiming.insert(order.clone());
        let node = queue.node;
        self.tree.charge(node, &usage, Ledger::Planned, 1);
        self.claims.insert(order);
        self.set_phase(uid, Phase::Claiming(Claim { cluster_queue: name.clone(), admission, usage }));
        self.say_waiting(uid, name);
    }

    fn say_waiting(&mut self, uid: &Uid, name: &ClusterQueueName) {
        let victims = self.leaving_in_tree(name);
        self.say(uid, Some(name.clone()), PendingReason::WaitingForPreempted { victims });
    }

    fn leaving_in_tree(&mut self, name: &ClusterQueueName) -> usize {
        let members = self.members_of_tree(name);
        members
            .iter()
            .filter_map(|member| self.queues.get(member))
            .flat_map(|queue| &queue.holding)
            .filter(|uid| self.is_leaving(uid))
            .count()
    }

    fn is_leaving(&self, uid: &Uid) -> bool {
        use crate::queue::HoldState;
        self.workloads.get(uid).is_some_and(|record| {
            matches!(&record.phase, Phase::Holding(holding) if matches!(holding.state, HoldState::Leaving { .. }))
        })
    }

    /// What is kept back, for the rest of the round, for the head of a StrictFIFO queue that has a right to quota and finds
    /// no victims: others shall not borrow it meanwhile. A queue that may reclaim from anybody needs no such care.
    fn kept_for_head(&mut self, entry: &Entry, no_fit: &NoFit) -> Option<Usage> {
        let usage = no_fit.entitled_to.as_ref()?;
        let queue = self.queues.get(&entry.cluster_queue)?;
        let spec = queue.spec.as_ref()?;
        if !queue.is_strict() || spec.preemption.reclaim_within_cohort == ReclaimWithinCohort::Any {
            return None;
        }
        let node = queue.node;
        let keep: Usage = usage
            .iter()
            .map(|(pair, amount)| {
                let free = self.tree.nominal(node, *pair) - self.tree.used(node, *pair, Ledger::Planned);
                let free = i64::try_from(free.max(0)).unwrap_or(i64::MAX);
                (*pair, (*amount).min(free))
            })
            .filter(|(_, amount)| *amount > 0)
            .collect();
        (!keep.is_empty()).then_some(keep)
    }

    /// A head that does not fit steps aside, or blocks its queue. Returns whether the next round sees something new.
    fn put_aside(&mut self, entry: &Entry, no_fit: NoFit, held_back: bool) -> bool {
        let Some(shape) = self.workloads.get(&entry.uid).map(|record| record.shape.clone()) else {
            return false;
        };
        let queue = self.queue(&entry.cluster_queue);
        let progress = if queue.is_strict() {
            let before = queue.blocked.take();
            let news = before.as_ref() != Some(&entry.order);
            if let Some(before) = before.filter(|_| news) {
                // It has somebody before it now, and what it was told as the head no longer holds.
                self.unsaid.push(before.uid);
                self.wake_who_passed_over(&entry.cluster_queue);
            }
            self.queue(&entry.cluster_queue).blocked = Some(entry.order.clone());
            news
        } else {
            queue.active.remove(&entry.order);
            queue.parked.insert(shape, entry.order.clone());
            queue.passed_over |= held_back;
            self.set_phase(&entry.uid, Phase::Parked(entry.cluster_queue.clone()));
            true
        };
        let reason = PendingReason::NoFit(no_fit.obstacles);
        self.say(&entry.uid, Some(entry.cluster_queue.clone()), reason);
        progress
    }
}
