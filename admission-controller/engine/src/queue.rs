use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::assign::Progress;
use crate::decision::DecisionId;
use crate::input::{Admission, ClusterQueue, PodSet, QueueingStrategy, Workload};
use crate::names::{ClusterQueueName, FlavorName, Uid};
use crate::reason::{Inactive, PendingReason};
use crate::tree::{NodeId, Usage};

/// Where a workload stands among those that wait: higher priority, then longer waiting, then uid.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Order {
    priority: Reverse<i32>,
    queued_at_ms: i64,
    pub(crate) uid: Uid,
}

impl Order {
    pub(crate) fn of(workload: &Workload) -> Self {
        Self {
            priority: Reverse(workload.priority),
            queued_at_ms: workload.queued_at_ms,
            uid: workload.uid.clone(),
        }
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

/// What workloads have in common that have one priority, ask for the same and may do the same for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Shape(Arc<Alike>);

type Alike = (i32, bool, Vec<PodSet>, Option<BTreeSet<FlavorName>>);

impl Shape {
    pub(crate) fn of(workload: &Workload) -> Self {
        let Workload { priority, preemption_gated, pod_sets, allowed_flavors, .. } = workload;
        Self(Arc::new((*priority, *preemption_gated, pod_sets.clone(), allowed_flavors.clone())))
    }
}

/// Workloads that were looked at and did not fit, by shape: where the first does not fit, none behind it does.
#[derive(Debug, Default)]
pub(crate) struct Parked(BTreeMap<Shape, BTreeSet<Order>>);

impl Parked {
    pub(crate) fn insert(&mut self, shape: Shape, order: Order) {
        self.0.entry(shape).or_default().insert(order);
    }

    fn remove(&mut self, shape: &Shape, order: &Order) {
        if let Some(group) = self.0.get_mut(shape) {
            group.remove(order);
            if group.is_empty() {
                self.0.remove(shape);
            }
        }
    }

    pub(crate) fn first(&self, shape: &Shape) -> Option<&Order> {
        self.0.get(shape)?.first()
    }

    pub(crate) fn contains(&self, shape: &Shape, order: &Order) -> bool {
        self.0.get(shape).is_some_and(|group| group.contains(order))
    }

    pub(crate) fn orders(&self) -> impl Iterator<Item = &Order> {
        self.0.values().flatten()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.values().map(BTreeSet::len).sum()
    }

    /// How many stand before this one.
    pub(crate) fn before(&self, order: &Order) -> usize {
        self.0.values().map(|group| group.range(..order.clone()).count()).sum()
    }
}

/// One ClusterQueue with everything that waits in it or holds its quota. It exists as long as either does, or the object.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) spec: Option<ClusterQueue>,
    pub(crate) node: NodeId,
    /// Waiting to be looked at.
    pub(crate) active: BTreeSet<Order>,
    /// Looked at; nothing to be done until something changes in the tree.
    pub(crate) parked: Parked,
    /// Promised room that others have still to leave.
    pub(crate) claiming: BTreeSet<Order>,
    pub(crate) holding: BTreeSet<Uid>,
    /// Would wait here if the queue or they themselves were in order.
    pub(crate) aside: BTreeSet<Uid>,
    pub(crate) inactive: Option<Inactive>,
    /// The head of a StrictFIFO queue that was found not to fit.
    pub(crate) blocked: Option<Order>,
    /// Somebody was put aside for the sake of what may end without anything being released in the tree: a victim whose own
    /// admission was not confirmed yet, or quota that was kept back for the blocked head of another queue.
    pub(crate) passed_over: bool,
    /// Goes up when its quota may have changed or some of it came back.
    pub(crate) generation: u64,
}

impl Queue {
    pub(crate) fn new(node: NodeId) -> Self {
        Self {
            spec: None,
            node,
            active: BTreeSet::new(),
            parked: Parked::default(),
            claiming: BTreeSet::new(),
            holding: BTreeSet::new(),
            aside: BTreeSet::new(),
            inactive: None,
            blocked: None,
            passed_over: false,
            generation: 0,
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
    pub(crate) fn reactivate(&mut self) -> Vec<Uid> {
        self.blocked = None;
        self.passed_over = false;
        let shapes: Vec<Shape> = self.parked.0.keys().cloned().collect();
        shapes.iter().filter_map(|shape| self.activate_next(shape)).collect()
    }

    /// The first parked workload of this shape is looked at again.
    pub(crate) fn activate_next(&mut self, shape: &Shape) -> Option<Uid> {
        let order = self.parked.0.get(shape)?.first()?.clone();
        self.parked.remove(shape, &order);
        let uid = order.uid.clone();
        self.active.insert(order);
        Some(uid)
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
        let head = self.active.first()?;
        if self.is_strict() && !self.claiming.is_empty() {
            return None;
        }
        Some(head)
    }
}

/// A workload with what the engine made of it.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) workload: Workload,
    pub(crate) shape: Shape,
    pub(crate) phase: Phase,
    /// The reason last given for waiting.
    pub(crate) said: Option<PendingReason>,
    /// The API server refused its admission; kept until its spec changes.
    pub(crate) refused: Option<String>,
    /// The API server refused its eviction at this version.
    pub(crate) eviction_refused_at: Option<u64>,
    /// How far its search of flavors came.
    pub(crate) progress: Option<Progress>,
}

#[derive(Debug)]
pub(crate) enum Phase {
    /// Nothing can be decided about it; `said` tells why. It counts as pending in the queue it would wait in.
    Aside(Option<ClusterQueueName>),
    /// In `active` of this queue.
    Queued(ClusterQueueName),
    /// In `parked` of this queue.
    Parked(ClusterQueueName),
    /// Promised room that others have still to leave: charged to the plan only.
    Claiming(Claim),
    /// Charged to what is held.
    Holding(Holding),
    Finished,
}

#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) cluster_queue: ClusterQueueName,
    pub(crate) admission: Admission,
    pub(crate) usage: Usage,
}

#[derive(Clone, Debug)]
pub(crate) struct Holding {
    pub(crate) admission: Admission,
    pub(crate) usage: Usage,
    pub(crate) admitted: bool,
    pub(crate) since_ms: i64,
    pub(crate) state: HoldState,
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
    },
}
