//! ClusterQueues, and what is known of them.

use std::collections::BTreeSet;
use std::ops::{Index, IndexMut};
use std::sync::Arc;

use crate::assign::Precedent;
use crate::history::Consumption;
use crate::input::{ClusterQueue, QueueingStrategy};
use crate::line::{self, Consumptions, Line, Order, Parked, Shape};
use crate::names::ClusterQueueName;
use crate::reason::Inactive;
use crate::tree::NodeId;
use crate::workloads::WorkloadId;

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
    /// Those of them that have not looked for something else since room came back.
    pub(crate) reconsidering: BTreeSet<Order>,
    pub(crate) holding: BTreeSet<WorkloadId>,
    /// How many of them were told to leave.
    pub(crate) leaving: usize,
    /// Would wait here if the queue or they themselves were in order.
    pub(crate) aside: BTreeSet<WorkloadId>,
    pub(crate) inactive: Option<Inactive>,
    /// All its flavors have a topology: all pods are placed by it, asked or not.
    pub(crate) places_all: bool,
    /// What serves a workload may be had in more than one way: of another flavor, or on other nodes.
    pub(crate) has_choice: bool,
    /// The head of a StrictFIFO queue that was found not to fit.
    pub(crate) blocked: Option<Order>,
    /// Kinds of workloads that were found something, those known longest first, and what, where that spares others a search.
    pub(crate) precedents: Vec<(Shape, Option<Box<Precedent>>)>,
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
            reconsidering: BTreeSet::new(),
            holding: BTreeSet::new(),
            leaving: 0,
            aside: BTreeSet::new(),
            inactive: None,
            places_all: false,
            has_choice: false,
            blocked: None,
            precedents: Vec::new(),
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
        if self.has_choice {
            self.reconsidering.clone_from(&self.claiming);
        }
        let shapes: Vec<Shape> = self.parked.shapes().cloned().collect();
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
        let firsts = self.parked.take_firsts(shape);
        let who = firsts.iter().map(|order| order.who).collect();
        firsts.into_iter().for_each(|order| self.active.insert(order));
        who
    }

    pub(crate) fn remove(&mut self, shape: &Shape, order: &Order) {
        self.active.remove(order);
        self.parked.remove(shape, order);
        self.claiming.remove(order);
        self.reconsidering.remove(order);
        if self.blocked.as_ref() == Some(order) {
            self.blocked = None;
        }
    }

    /// What a cycle looks at: the first in the queue, unless a StrictFIFO queue waits until a promise is kept to one before it.
    pub(crate) fn head(&self) -> Option<&Order> {
        let head = self.active.first(&self.consumptions)?;
        let waits = |claim: &Order| line::is_before(claim, head, &self.consumptions);
        (!self.is_strict() || !self.claiming.iter().any(waits)).then_some(head)
    }

    /// Where one that waits stands: after those of LocalQueues that have used less, and after those who were promised room, whom nobody
    /// overtakes but in a StrictFIFO queue (Kueue's `buildSnapshotSort` and `stickyMatches`, `pkg/cache/queue/cluster_queue.go`).
    pub(crate) fn standing<'a>(&self, order: &'a Order) -> (Consumption, bool, &'a Order) {
        let is_overtaken = self.is_strict() || !self.claiming.contains(order);
        let (used, order) = line::turn(order, &self.consumptions);
        (used, is_overtaken, order)
    }

    /// Who was promised room and comes after the head of a StrictFIFO queue, the last first. Nobody who might displace it: the two
    /// would take turns for ever.
    pub(crate) fn claims_after(&self, head: &Order) -> Vec<Order> {
        if !self.is_strict() {
            return Vec::new();
        }
        let is_after = |claim: &&Order| head < *claim && line::is_before(head, claim, &self.consumptions);
        self.claiming.iter().rev().filter(is_after).cloned().collect()
    }

    /// Who was promised room and looks for something else in the next cycle, in place of a head that comes after it.
    pub(crate) fn claimant(&self) -> Option<&Order> {
        let claim = line::first(self.reconsidering.iter(), &self.consumptions)?;
        let is_before = |first: &Order| line::is_before(claim, first, &self.consumptions);
        self.active.first(&self.consumptions).is_none_or(is_before).then_some(claim)
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
