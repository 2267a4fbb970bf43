//! Who waits in a queue, and in which order.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::pool::Pool;

use crate::history::Consumption;
use crate::input::{PodSet, Workload};
use crate::local_queues::LocalQueueId;
use crate::names::FlavorName;
use crate::reason::PendingReason;
use crate::uid::Uid;
use crate::workloads::WorkloadId;

/// Where a workload stands among those that wait: higher priority, then longer waiting, then uid.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Order {
    priority: Reverse<i32>,
    queued_at_ms: i64,
    uid: Uid,
    lane: Lane,
    pub(crate) who: WorkloadId,
}

/// Those who take turns with others according to what they have used together: a LocalQueue's workloads, where admission is
/// shared out fairly; otherwise everybody.
type Lane = Option<LocalQueueId>;

impl Order {
    pub(crate) fn of(who: WorkloadId, workload: &Workload, lane: Option<LocalQueueId>) -> Self {
        Self {
            priority: Reverse(workload.priority),
            queued_at_ms: workload.queued_at_ms,
            uid: workload.uid.clone(),
            lane,
            who,
        }
    }

    /// What counts of it before chance does: priority, then time.
    pub(crate) fn turn(&self) -> (Reverse<i32>, i64) {
        (self.priority, self.queued_at_ms)
    }

    /// Compares the heads of a cycle: with or without regard to priority.
    pub(crate) fn cmp_in_cycle(&self, other: &Self, by_priority: bool) -> Ordering {
        if by_priority {
            return self.cmp(other);
        }
        (self.queued_at_ms, &self.uid, &self.lane).cmp(&(other.queued_at_ms, &other.uid, &other.lane))
    }

    /// Whether one that asks for the same, and found nothing, shows that this one finds nothing either: it comes before it, or is of
    /// another LocalQueue, with which it takes turns whatever their age.
    pub(crate) fn is_judged_by(&self, leader: &Self) -> bool {
        leader.lane != self.lane || leader < self
    }

    /// Where it stands among the heads of a cycle: with or without regard to priority.
    pub(crate) fn in_cycle(&self, by_priority: bool) -> Self {
        let mut order = self.clone();
        if !by_priority {
            order.priority = Reverse(0);
        }
        order
    }
}

/// Workloads in the order of their turns: those of a LocalQueue that has used less first, and among equals by [`Order`].
///
/// What LocalQueues have used changes all the time; it is looked up, so that nobody has to be moved when it does.
#[derive(Debug, Default)]
pub(crate) struct Line(BTreeMap<Lane, BTreeSet<Order>>);

/// What the LocalQueues have used that lead to one ClusterQueue; empty where that does not count.
pub(crate) type Consumptions = BTreeMap<LocalQueueId, Consumption>;

impl Line {
    pub(crate) fn insert(&mut self, order: Order) {
        self.0.entry(order.lane).or_default().insert(order);
    }

    pub(crate) fn remove(&mut self, order: &Order) {
        if let Some(lane) = self.0.get_mut(&order.lane) {
            lane.remove(order);
            if lane.is_empty() {
                self.0.remove(&order.lane);
            }
        }
    }

    /// Takes no more room than it needs. Where one after another is put at the end, as those of a long queue are, a tree grows in
    /// which every second place is free.
    fn pack(&mut self) {
        self.0.values_mut().for_each(|lane| *lane = std::mem::take(lane).into_iter().collect());
    }

    pub(crate) fn contains(&self, order: &Order) -> bool {
        self.0.get(&order.lane).is_some_and(|lane| lane.contains(order))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.values().map(BTreeSet::len).sum()
    }

    /// Whose turn is next.
    pub(crate) fn first(&self, consumptions: &Consumptions) -> Option<&Order> {
        first(self.firsts(), consumptions)
    }

    /// How many have their turn before this one.
    pub(crate) fn before(&self, order: &Order, consumptions: &Consumptions) -> usize {
        let own = consumption(consumptions, &order.lane);
        let before =
            |(lane, members): (&Lane, &BTreeSet<Order>)| match consumption(consumptions, lane).cmp(&own) {
                Ordering::Less => members.len(),
                Ordering::Equal => members.range(..order).count(),
                Ordering::Greater => 0,
            };
        self.0.iter().map(before).sum()
    }

    /// All of them, in order.
    pub(crate) fn in_turn(&self, consumptions: &Consumptions) -> Vec<&Order> {
        let mut all: Vec<&Order> = self.0.values().flatten().collect();
        all.sort_by(|one, other| turn(one, consumptions).cmp(&turn(other, consumptions)));
        all
    }

    /// The first of every LocalQueue.
    pub(crate) fn firsts(&self) -> impl Iterator<Item = &Order> {
        self.0.values().filter_map(BTreeSet::first)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Order> {
        self.0.values().flatten()
    }
}

/// By what those are in order who take turns.
pub(crate) fn turn<'a>(order: &'a Order, consumptions: &Consumptions) -> (Consumption, &'a Order) {
    (consumption(consumptions, &order.lane), order)
}

/// Whether one of two has its turn before the other.
pub(crate) fn is_before(one: &Order, other: &Order, consumptions: &Consumptions) -> bool {
    turn(one, consumptions) < turn(other, consumptions)
}

/// Whose turn of these is next.
pub(crate) fn first<'a>(
    orders: impl Iterator<Item = &'a Order>,
    consumptions: &Consumptions,
) -> Option<&'a Order> {
    orders.min_by_key(|order| turn(order, consumptions))
}

fn consumption(consumptions: &Consumptions, lane: &Lane) -> Consumption {
    lane.as_ref().and_then(|key| consumptions.get(key)).copied().unwrap_or_default()
}

/// What workloads have in common that have one priority, ask for the same and may do the same for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shape(Arc<Alike>);

impl PartialOrd for Shape {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Shape {
    fn cmp(&self, other: &Self) -> Ordering {
        // Mostly it is the very same one that is looked for.
        if Arc::ptr_eq(&self.0, &other.0) { Ordering::Equal } else { self.0.cmp(&other.0) }
    }
}

pub(crate) type Alike = (i32, bool, bool, Option<Uid>, Asked, Option<BTreeSet<FlavorName>>);

/// What pods ask for. Equal lists are mostly the same one (`Engine::asked`), and need not be read.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Asked(Arc<[PodSet]>);

impl PartialOrd for Asked {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Asked {
    fn cmp(&self, other: &Self) -> Ordering {
        if Arc::ptr_eq(&self.0, &other.0) { Ordering::Equal } else { self.0.cmp(&other.0) }
    }
}

impl Shape {
    pub(crate) fn of(workload: &Workload, shapes: &mut Pool<Alike>) -> Self {
        let Workload { priority, preemption_gated, pod_sets, seldom, .. } = workload;
        // What a slice needs depends on the one that it replaces: it is like nobody else.
        let slice = seldom.replaces.is_some().then(|| workload.uid.clone());
        let flavors = seldom.allowed_flavors.clone();
        let asked = Asked(pod_sets.clone());
        let alike = (*priority, *preemption_gated, seldom.elastic, slice, asked, flavors);
        Self(shapes.share(Arc::new(alike)))
    }

    /// Whether it is the same. Equal ones are made once, so that nothing has to be read.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// A line is packed when so many, and half of all, were put into it.
const PACKED_AFTER: usize = 32;

/// Workloads that are not looked at for now, by shape.
#[derive(Debug, Default)]
pub(crate) struct Parked(BTreeMap<Shape, Alikes>);

/// Those of one shape.
#[derive(Debug, Default)]
struct Alikes {
    line: Line,
    /// How many were put in since it was packed.
    loose: usize,
    /// Who of them was looked at since something changed, and did not fit: none after it does.
    hopeless: Option<Order>,
    /// Why whoever was looked at last did not fit: why all of them wait.
    reason: Option<Arc<PendingReason>>,
}

impl Parked {
    pub(crate) fn insert(&mut self, shape: Shape, order: Order) {
        let alikes = self.0.entry(shape).or_default();
        alikes.line.insert(order);
        alikes.loose += 1;
        if alikes.loose >= PACKED_AFTER && 2 * alikes.loose >= alikes.line.len() {
            alikes.line.pack();
            alikes.loose = 0;
        }
    }

    /// One that was looked at and did not fit. Returns its like, where they wait for something else now than was known before: new
    /// numbers alone are not worth a write for each of them.
    pub(crate) fn insert_hopeless(
        &mut self,
        shape: Shape,
        order: Order,
        reason: Arc<PendingReason>,
    ) -> Vec<WorkloadId> {
        let alikes = self.0.entry(shape).or_default();
        let before = alikes.reason.replace(reason);
        let changed =
            before.as_ref().map(|before| before.token()) != alikes.reason.as_ref().map(|now| now.token());
        let like = if changed { alikes.line.iter().map(|order| order.who).collect() } else { Vec::new() };
        alikes.hopeless = Some(order.clone());
        alikes.line.insert(order);
        like
    }

    /// Why those of this shape wait.
    pub(crate) fn reason(&self, shape: &Shape) -> Option<&Arc<PendingReason>> {
        self.0.get(shape)?.reason.as_ref()
    }

    pub(crate) fn remove(&mut self, shape: &Shape, order: &Order) {
        if let Some(alikes) = self.0.get_mut(shape) {
            alikes.line.remove(order);
            if alikes.line.is_empty() {
                self.0.remove(shape);
            }
        }
    }

    /// Whoever of this shape was looked at may fit after all.
    pub(crate) fn forget_hopeless(&mut self, shape: &Shape) {
        if let Some(alikes) = self.0.get_mut(shape) {
            alikes.hopeless = None;
        }
    }

    /// Takes the first of a shape out, of every LocalQueue where they take turns: they may fit after all.
    pub(crate) fn take_firsts(&mut self, shape: &Shape) -> Vec<Order> {
        self.forget_hopeless(shape);
        let firsts = self.0.get(shape).into_iter().flat_map(|alikes| alikes.line.firsts());
        let firsts: Vec<Order> = firsts.cloned().collect();
        firsts.iter().for_each(|order| self.remove(shape, order));
        firsts
    }

    /// Who of this shape was looked at and did not fit.
    pub(crate) fn hopeless(&self, shape: &Shape) -> Option<&Order> {
        self.0.get(shape)?.hopeless.as_ref()
    }

    pub(crate) fn contains(&self, shape: &Shape, order: &Order) -> bool {
        self.0.get(shape).is_some_and(|alikes| alikes.line.contains(order))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn shapes(&self) -> impl Iterator<Item = &Shape> {
        self.0.keys()
    }

    pub(crate) fn orders(&self) -> impl Iterator<Item = &Order> {
        self.0.values().flat_map(|alikes| alikes.line.iter())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.values().map(|alikes| alikes.line.len()).sum()
    }

    /// How many have their turn before this one.
    pub(crate) fn before(&self, order: &Order, consumptions: &Consumptions) -> usize {
        self.0.values().map(|alikes| alikes.line.before(order, consumptions)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// There is one for every workload that waits.
    #[test]
    fn a_place_in_a_queue_is_small() {
        assert_eq!(size_of::<Order>(), 40);
    }
}
