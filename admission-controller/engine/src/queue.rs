use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Index, IndexMut};
use std::sync::Arc;

use model::pool::Pool;
use model::rare::{Plain, Rare};

use crate::assign::Progress;
use crate::decision::DecisionId;
use crate::history::Consumption;
use crate::input::{Admission, ClusterQueue, PodSet, QueueingStrategy, Workload};
use crate::local_queues::LocalQueueId;
use crate::names::{ClusterQueueName, FlavorName};
use crate::places::Places;
use crate::reason::{Inactive, PendingReason};
use crate::tree::{NodeId, Usage};
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

    /// Compares the heads of a cycle: with or without regard to priority.
    pub(crate) fn cmp_in_cycle(&self, other: &Self, by_priority: bool) -> Ordering {
        if by_priority {
            return self.cmp(other);
        }
        (self.queued_at_ms, &self.uid, &self.lane).cmp(&(other.queued_at_ms, &other.uid, &other.lane))
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

    pub(crate) fn contains(&self, order: &Order) -> bool {
        self.0.get(&order.lane).is_some_and(|lane| lane.contains(order))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.values().map(BTreeSet::len).sum()
    }

    pub(crate) fn first(&self, consumptions: &Consumptions) -> Option<&Order> {
        let firsts = self
            .0
            .iter()
            .filter_map(|(lane, members)| Some((consumption(consumptions, lane), members.first()?)));
        firsts.min().map(|(_, order)| order)
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
        all.sort_by(|a, b| {
            (consumption(consumptions, &a.lane), *a).cmp(&(consumption(consumptions, &b.lane), *b))
        });
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

pub(crate) type Alike = (i32, bool, Option<Arc<str>>, Asked, Option<BTreeSet<FlavorName>>);

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
        let (replaces, flavors) = (seldom.replaces.clone(), seldom.allowed_flavors.clone());
        let asked = Asked(pod_sets.clone());
        Self(shapes.share(Arc::new((*priority, *preemption_gated, replaces, asked, flavors))))
    }
}

/// Workloads that are not looked at for now, by shape.
#[derive(Debug, Default)]
pub(crate) struct Parked(BTreeMap<Shape, Alikes>);

/// Those of one shape.
#[derive(Debug, Default)]
struct Alikes {
    line: Line,
    /// Who of them was looked at since something changed, and did not fit: none after it does.
    hopeless: Option<Order>,
}

impl Parked {
    pub(crate) fn insert(&mut self, shape: Shape, order: Order) {
        self.0.entry(shape).or_default().line.insert(order);
    }

    /// One that was looked at and did not fit.
    pub(crate) fn insert_hopeless(&mut self, shape: Shape, order: Order) {
        let alikes = self.0.entry(shape).or_default();
        alikes.hopeless = Some(order.clone());
        alikes.line.insert(order);
    }

    fn remove(&mut self, shape: &Shape, order: &Order) {
        if let Some(alikes) = self.0.get_mut(shape) {
            alikes.line.remove(order);
            if alikes.line.is_empty() {
                self.0.remove(shape);
            }
        }
    }

    /// Whoever of this shape was looked at may fit after all.
    fn forget_hopeless(&mut self, shape: &Shape) {
        if let Some(alikes) = self.0.get_mut(shape) {
            alikes.hopeless = None;
        }
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

/// One ClusterQueue with everything that waits in it or holds its quota. It exists as long as either does, or the object.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) name: ClusterQueueName,
    pub(crate) spec: Option<Arc<ClusterQueue>>,
    pub(crate) node: NodeId,
    /// What its LocalQueues have used, where admission is shared out fairly among them.
    pub(crate) consumptions: Consumptions,
    /// Waiting to be looked at.
    pub(crate) active: Line,
    /// Looked at; nothing to be done until something changes in the tree.
    pub(crate) parked: Parked,
    /// Promised room that others have still to leave.
    pub(crate) claiming: BTreeSet<Order>,
    pub(crate) holding: BTreeSet<WorkloadId>,
    /// How many of them were told to leave.
    pub(crate) leaving: usize,
    /// Would wait here if the queue or they themselves were in order.
    pub(crate) aside: BTreeSet<WorkloadId>,
    pub(crate) inactive: Option<Inactive>,
    /// All its flavors have a topology: all pods are placed by it, asked or not.
    pub(crate) places_all: bool,
    /// The head of a StrictFIFO queue that was found not to fit.
    pub(crate) blocked: Option<Order>,
    touched: bool,
    /// Goes up when its quota may have changed or some of it came back.
    pub(crate) generation: u64,
    /// Goes up when whoever found nothing may find something.
    pub(crate) wakes: u64,
}

impl Queue {
    pub(crate) fn new(name: ClusterQueueName, node: NodeId) -> Self {
        Self {
            name,
            spec: None,
            node,
            consumptions: Consumptions::new(),
            active: Line::default(),
            parked: Parked::default(),
            claiming: BTreeSet::new(),
            holding: BTreeSet::new(),
            leaving: 0,
            aside: BTreeSet::new(),
            inactive: None,
            places_all: false,
            blocked: None,
            touched: false,
            generation: 0,
            wakes: 0,
        }
    }

    pub(crate) fn is_strict(&self) -> bool {
        self.spec.as_ref().is_some_and(|spec| spec.strategy == QueueingStrategy::StrictFifo)
    }

    /// How many wait, in whatever state.
    pub(crate) fn pending(&self) -> usize {
        self.active.len() + self.claiming.len() + self.inadmissible()
    }

    /// How many of them need a change before they are looked at again.
    pub(crate) fn inadmissible(&self) -> usize {
        self.parked.len() + self.aside.len()
    }

    /// The first of every shape is looked at again: while it does not fit, none of its like does. Returns who that is.
    pub(crate) fn reactivate(&mut self) -> Vec<WorkloadId> {
        self.blocked = None;
        let shapes: Vec<Shape> = self.parked.0.keys().cloned().collect();
        shapes.iter().flat_map(|shape| self.activate_next(shape)).collect()
    }

    /// This parked workload is looked at again.
    pub(crate) fn unpark(&mut self, shape: &Shape, order: &Order) {
        self.parked.forget_hopeless(shape);
        self.parked.remove(shape, order);
        self.active.insert(order.clone());
    }

    /// The first parked workload of this shape is looked at again; of every LocalQueue, where they take turns.
    pub(crate) fn activate_next(&mut self, shape: &Shape) -> Vec<WorkloadId> {
        let Some(alikes) = self.parked.0.get_mut(shape) else { return Vec::new() };
        alikes.hopeless = None;
        let firsts: Vec<Order> = alikes.line.firsts().cloned().collect();
        let activate = |order: Order| {
            self.parked.remove(shape, &order);
            let who = order.who;
            self.active.insert(order);
            who
        };
        firsts.into_iter().map(activate).collect()
    }

    pub(crate) fn remove(&mut self, shape: &Shape, order: &Order) {
        self.active.remove(order);
        self.parked.remove(shape, order);
        self.claiming.remove(order);
        if self.blocked.as_ref() == Some(order) {
            self.blocked = None;
        }
    }

    /// What a cycle looks at: the first in the queue, unless a StrictFIFO queue waits for a promise to be kept.
    pub(crate) fn head(&self) -> Option<&Order> {
        let head = self.active.first(&self.consumptions)?;
        if self.is_strict() && !self.claiming.is_empty() {
            return None;
        }
        Some(head)
    }
}

/// Every ClusterQueue, by its node in the tree. None is ever taken out.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    by_node: Vec<Option<Box<Queue>>>,
    touched: Vec<NodeId>,
}

impl Queues {
    pub(crate) fn insert(&mut self, queue: Queue) {
        let index = queue.node.index();
        if self.by_node.len() <= index {
            self.by_node.resize_with(index + 1, || None);
        }
        self.by_node[index] = Some(Box::new(queue));
    }

    /// `None` where the node is a cohort.
    pub(crate) fn get(&self, id: NodeId) -> Option<&Queue> {
        self.by_node.get(id.index())?.as_deref()
    }

    /// All of them, in the order in which they were heard of.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Queue> {
        self.by_node.iter().filter_map(Option::as_deref)
    }

    /// Its report may have changed.
    pub(crate) fn touch(&mut self, id: NodeId) {
        if !std::mem::replace(&mut self[id].touched, true) {
            self.touched.push(id);
        }
    }

    /// Which were touched since the last call, sorted.
    pub(crate) fn take_touched(&mut self) -> Vec<ClusterQueueName> {
        let mut names = Vec::with_capacity(self.touched.len());
        for id in std::mem::take(&mut self.touched) {
            self[id].touched = false;
            names.push(self[id].name.clone());
        }
        names.sort_unstable();
        names
    }

    /// All of them, by name.
    pub(crate) fn in_order(&self) -> Vec<&Queue> {
        let mut all: Vec<&Queue> = self.iter().collect();
        all.sort_unstable_by_key(|queue| &queue.name);
        all
    }
}

impl Index<NodeId> for Queues {
    type Output = Queue;

    /// # Panics
    /// Where the node is a cohort.
    fn index(&self, id: NodeId) -> &Queue {
        match &self.by_node[id.index()] {
            Some(queue) => queue,
            None => panic!("{id:?} is no ClusterQueue"),
        }
    }
}

impl IndexMut<NodeId> for Queues {
    fn index_mut(&mut self, id: NodeId) -> &mut Queue {
        match &mut self.by_node[id.index()] {
            Some(queue) => queue,
            None => panic!("{id:?} is no ClusterQueue"),
        }
    }
}

/// A workload with what the engine made of it.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) workload: Workload,
    pub(crate) shape: Shape,
    /// The one that it names.
    pub(crate) local_queue: Option<LocalQueueId>,
    pub(crate) phase: Phase,
    /// The reason last given for waiting.
    pub(crate) said: Option<Arc<PendingReason>>,
    /// How far its search of flavors came.
    pub(crate) progress: Option<Box<Progress>>,
    /// What few have behind them.
    pub(crate) past: Rare<Past>,
}

/// What happened to a workload.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Past {
    /// The API server refused its admission; kept until its spec changes.
    pub(crate) refused: Option<Box<str>>,
    /// Why it is evicted rather than given other places.
    pub(crate) unplaced: Option<PendingReason>,
    /// The API server refused its eviction at this version.
    pub(crate) eviction_refused_at: Option<u64>,
    /// It has quota, and the API server refused its places at this version.
    pub(crate) places_refused_at: Option<u64>,
    /// Who left so that it could have what it was promised last, each with its priority then.
    pub(crate) displaced: Vec<(WorkloadId, i32)>,
}

impl Plain for Past {
    fn plain() -> &'static Self {
        static PLAIN: Past = Past {
            refused: None,
            unplaced: None,
            eviction_refused_at: None,
            places_refused_at: None,
            displaced: Vec::new(),
        };
        &PLAIN
    }
}

impl Record {
    /// One of which nothing but itself is known yet.
    pub(crate) fn new(workload: Workload, shape: Shape, local_queue: Option<LocalQueueId>) -> Self {
        Self {
            workload,
            shape,
            local_queue,
            phase: Phase::Aside(None),
            said: None,
            progress: None,
            past: Rare::default(),
        }
    }

    /// Takes over what was known of the workload as it was before, as far as that still holds.
    pub(crate) fn inherit(&mut self, before: &mut Self) {
        let (now, then) = (&self.workload, &before.workload);
        let same_worth = now.priority == then.priority;
        let same_spec = same_worth && now.pod_sets == then.pod_sets && now.queue == then.queue;
        self.said = before.said.take();
        self.progress = before.progress.take();
        let Past { refused, displaced, .. } = std::mem::take(&mut before.past).into_inner();
        let displaced = if same_worth { displaced } else { Vec::new() };
        self.past = Past { refused: refused.filter(|_| same_spec), displaced, ..Past::default() }.into();
    }

    /// Whether what it holds it has because this one left for it.
    pub(crate) fn has_displaced(&self, who: WorkloadId, priority: i32) -> bool {
        self.past.displaced.contains(&(who, priority))
    }
}

#[derive(Debug)]
pub(crate) enum Phase {
    /// Nothing can be decided about it; `said` tells why. It counts as pending in the queue it would wait in.
    Aside(Option<NodeId>),
    /// In `active` of this queue.
    Queued(NodeId),
    /// In `parked` of this queue.
    Parked(NodeId),
    /// Promised room that others have still to leave: charged to the plan only.
    Claiming(Box<Claim>),
    /// Charged to what is held.
    Holding(Box<Holding>),
    Finished,
}

impl Phase {
    /// Whether it waits, and needs a change before it is looked at again.
    pub(crate) fn is_put_back(&self) -> bool {
        matches!(self, Self::Aside(_) | Self::Parked(_))
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) queue: NodeId,
    pub(crate) admission: Arc<Admission>,
    pub(crate) usage: Arc<Usage>,
    pub(crate) places: Places,
}

#[derive(Clone, Debug)]
pub(crate) struct Holding {
    pub(crate) queue: NodeId,
    pub(crate) admission: Arc<Admission>,
    pub(crate) usage: Arc<Usage>,
    pub(crate) places: Places,
    /// Places that it was promised instead, when others have left.
    pub(crate) promised: Option<Places>,
    /// Places that it gives up when its new ones are written.
    pub(crate) vacating: Option<Places>,
    pub(crate) admitted: bool,
    pub(crate) since_ms: i64,
    pub(crate) state: HoldState,
}

impl Holding {
    /// Whether it was told to leave.
    pub(crate) fn is_leaving(&self) -> bool {
        matches!(self.state, HoldState::Leaving { .. })
    }

    /// Whether its own status says that its admission is complete.
    pub(crate) fn is_admitted(&self) -> bool {
        self.admitted && !matches!(self.state, HoldState::Assumed(_))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HoldState {
    /// Its admission is on its way to the API server.
    Assumed(DecisionId),
    /// Its own status says so.
    Confirmed,
    /// It was told to leave, and is out of the plan.
    Leaving {
        /// The eviction that is not confirmed yet.
        decision: Option<DecisionId>,
        /// For whom.
        preemptor: Option<Uid>,
        /// Its quota is free as soon as that is written: it was not admitted yet.
        withdrawn: bool,
    },
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
