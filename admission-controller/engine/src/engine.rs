//! The engine: all state of layer 1, and its three calls.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use model::planted::{Bug, Planted};
use model::pool::Pool;
use model::selector::Labels;

use crate::alarms::Alarms;
use crate::decision::{Decision, DecisionId, NewReason};
use crate::input::{Admission, AdmissionCheck, Cohort, Flavor, PodSet};
use crate::line::{Alike, Order};
use crate::local_queues::LocalQueues;
use crate::names::{CheckName, ClusterQueueName, CohortName, FlavorName};
use crate::places::{Grounds, Places, places_of};
use crate::preempt::Displacements;
use crate::process::CycleCounts;
use crate::queue::{Queue, Queues};
use crate::reason::PendingReason;
use crate::record::Phase;
use crate::settings::Settings;
use crate::slices::WorkloadKey;
use crate::tree::{NodeId, NodeName, Tree, Usage};
use crate::uid::Uid;
use crate::workloads::{WorkloadId, Workloads};

/// All state of layer 1, owned by one task.
///
/// [`Engine::apply`] takes what the watches saw, [`Engine::decide`] answers what to write, [`Engine::written`] takes what
/// became of it. Between a decision and its outcome the engine counts it as done (an assumed write), and never takes back
/// what it only assumes.
#[derive(Debug, Default)]
pub struct Engine {
    pub(crate) settings: Settings,
    pub(crate) tree: Tree,
    pub(crate) flavors: BTreeMap<FlavorName, Flavor>,
    /// The levels of each Topology.
    pub(crate) topologies: BTreeMap<String, Vec<String>>,
    pub(crate) grounds: Grounds,
    /// Who has quota and needs places, and whether anything has changed since it was looked at last.
    pub(crate) second_pass: BTreeMap<WorkloadId, bool>,
    pub(crate) checks: BTreeMap<CheckName, AdmissionCheck>,
    pub(crate) queues: Queues,
    pub(crate) cohorts: BTreeMap<CohortName, Cohort>,
    pub(crate) local_queues: LocalQueues,
    pub(crate) namespaces: BTreeMap<Arc<str>, Labels>,
    pub(crate) workloads: Workloads,
    /// What they ask for.
    pub(crate) asked: Pool<[PodSet]>,
    /// What they are alike in.
    pub(crate) shapes: Pool<Alike>,
    /// Who replaces whom, by the namespace and name of who is replaced; whoever has ended may be among them.
    pub(crate) successors: BTreeMap<WorkloadKey, BTreeSet<WorkloadId>>,
    /// Queues in which somebody was put aside, or goes on with other flavors, because of room that was kept for another queue's blocked
    /// head, which may end though nothing is released in the tree.
    pub(crate) passed_over: BTreeSet<NodeId>,
    /// Queues in which somebody was put aside until it is known what became of a possible victim's own admission, by victim.
    pub(crate) awaited: BTreeMap<WorkloadId, BTreeSet<NodeId>>,
    /// Queues with something to look at.
    pub(crate) ready: BTreeSet<NodeId>,
    pub(crate) claims: BTreeSet<Order>,
    pub(crate) in_flight: BTreeMap<DecisionId, WorkloadId>,
    pub(crate) next_id: u64,
    pub(crate) alarms: Alarms,
    /// Who holds quota and has pods that are not ready, where admission waits for that.
    pub(crate) not_ready: BTreeSet<WorkloadId>,
    /// Somebody waits for them.
    pub(crate) waits_for_pods: bool,
    pub(crate) out: Vec<Decision>,
    /// The last decision that the driver was told of: those after it can still be taken back.
    pub(crate) told_up_to: DecisionId,
    /// The last decision before the cycle that is under way.
    pub(crate) cycle_began_at: DecisionId,
    /// Whose admissions were taken back since the driver was told something.
    pub(crate) taken_back: BTreeSet<WorkloadId>,
    /// Queues in which room came back in the cycle that is under way: heads that were judged before know nothing of it.
    pub(crate) freed: BTreeSet<NodeId>,
    /// Trees in which somebody was given quota since heads were looked at last.
    pub(crate) stirred: BTreeSet<NodeId>,
    /// Heads that block their queues and are looked at once more.
    pub(crate) second_looks: BTreeSet<Order>,
    /// What those of each queue use who were told to leave, or left for others in the cycle that is under way; only where shares count.
    pub(crate) departed: BTreeMap<NodeId, Usage>,
    /// Who took whose place.
    pub(crate) displacements: Displacements,
    /// Flavors, queues, cohorts or namespaces changed: everything that waits is placed anew.
    pub(crate) reconfigured: bool,
    /// Whether the tree has become another since the shell asked last.
    pub(crate) tree_changed: bool,
    /// Quota came back: promises may be kept.
    pub(crate) released: bool,
    /// The same, or it is known that some does not come back, and whether more is promised than will was not looked at since.
    pub(crate) doubts_promises: bool,
    /// Put into a StrictFIFO queue, or no longer its head, since the last decision: to be told that they wait behind others.
    pub(crate) unsaid: Vec<WorkloadId>,
    /// Whose reason to wait has changed since it was taken.
    pub(crate) unheard: BTreeSet<WorkloadId>,
    /// Whose reason was taken last.
    pub(crate) heard_last: WorkloadId,
    pub(crate) cut_short: bool,
    pub(crate) counts: CycleCounts,
    /// How many cycles there were.
    pub(crate) cycle_number: u64,
    /// How many of the last ones settled nothing.
    pub(crate) rounds: usize,
    pub(crate) planted: Planted,
}

impl Engine {
    /// An engine that knows nothing.
    pub fn new(settings: Settings) -> Self {
        let grounds = Grounds::new(settings.topology.shared_nodes);
        Self { settings, grounds, ..Self::default() }
    }

    /// With a deliberate bug switched on, for testing the fuzzer.
    #[must_use]
    pub fn with_planted(mut self, planted: Planted) -> Self {
        self.planted = planted;
        self
    }

    /// Every reason to wait is worked out and given anew: a new leader does not know which were written. Nor does it know who took
    /// whose place under the one before.
    pub fn forget_what_was_said(&mut self) {
        self.workloads.for_each_mut(|record| record.said = None);
        self.displacements.clear();
        self.forget_own_history();
        self.tree_changed = true;
        self.reconfigured = true;
    }

    /// Works a change of configuration into everything that waits. Promises are made anew under the new rules.
    pub(crate) fn reconfigure(&mut self) {
        if !std::mem::take(&mut self.reconfigured) && !self.tree.is_dirty() {
            return;
        }
        if self.tree.is_dirty() {
            self.displacements.clear();
            self.tree_changed = true;
        }
        self.tree.refresh();
        self.renew_grounds();
        let queues: Vec<NodeId> = self.queues.iter().map(|queue| queue.node).collect();
        for id in queues {
            let inactive = self.why_inactive(id);
            let provisioned = self.provisioned(id);
            let places_all = self.places_all(id);
            let has_choice = self.has_choice(id);
            let queue = &mut self.queues[id];
            if let Some(spec) = queue.spec.as_mut().filter(|spec| spec.provisioned != provisioned) {
                Arc::make_mut(spec).provisioned = provisioned;
            }
            (queue.inactive, queue.places_all, queue.has_choice) = (inactive, places_all, has_choice);
            queue.blocked = None;
            queue.precedents.clear();
            queue.generation += 1;
            self.queues.touch(id);
        }
        self.local_queues.ids().into_iter().for_each(|id| self.local_queues.touch(id));
        self.reopen_accounts();
        // Who has quota and waits for places may find some under other levels, labels or taints.
        self.second_pass.values_mut().for_each(|ready| *ready = true);
        let all: Vec<WorkloadId> = self.workloads.in_order().map(|(who, _)| who).collect();
        for who in all {
            self.replace_if_waiting(who);
            self.drain(who);
        }
    }

    /// A head no longer has anything kept for it: whoever was put aside on that account is looked at again.
    pub(crate) fn wake_who_passed_over(&mut self, queue: NodeId) {
        if self.passed_over.is_empty() {
            return;
        }
        let root = self.tree.root(queue);
        // Places are kept from everybody, whatever the tree.
        let concerned = |member: &NodeId| self.tree.root(*member) == root || self.grounds.has_places();
        let (woken, others) = self.passed_over.iter().partition(|member| concerned(member));
        self.passed_over = others;
        let woken: BTreeSet<NodeId> = woken;
        woken.into_iter().for_each(|member| self.reactivate(member));
    }

    /// Somebody in `queue` is put aside until it is known what became of this one's admission.
    pub(crate) fn await_outcome(&mut self, victim: WorkloadId, queue: NodeId) {
        self.awaited.entry(victim).or_default().insert(queue);
    }

    /// It is known now what became of its admission.
    pub(crate) fn wake_who_awaited(&mut self, victim: WorkloadId) {
        for queue in self.awaited.remove(&victim).unwrap_or_default() {
            self.reactivate(queue);
        }
    }

    pub(crate) fn reactivate_tree(&mut self, queue: NodeId) {
        if self.planted.is(Bug::LoseWakeups) {
            return;
        }
        for member in self.members_of_tree(queue) {
            self.reactivate(member);
        }
    }

    pub(crate) fn reactivate(&mut self, queue: NodeId) {
        self.passed_over.remove(&queue);
        self.queues[queue].wakes += 1;
        let was_blocked = self.queues[queue].blocked.is_some();
        for who in self.queues[queue].reactivate() {
            self.set_phase(who, Phase::Queued(queue));
        }
        self.ready.insert(queue);
        if was_blocked {
            // If its head is gone before it is looked at again, nothing else tells that nothing is kept for it any more.
            self.wake_who_passed_over(queue);
        }
    }

    /// Every queue under the same root.
    pub(crate) fn members_of_tree(&self, queue: NodeId) -> Vec<NodeId> {
        let mut found = Vec::new();
        let mut stack = vec![self.tree.root(queue)];
        while let Some(id) = stack.pop() {
            if self.queues.get(id).is_some() {
                found.push(id);
            }
            stack.extend_from_slice(self.tree.children(id));
        }
        found
    }

    pub(crate) fn say(&mut self, who: WorkloadId, reason: impl Into<Arc<PendingReason>>) {
        let reason = reason.into();
        let Some(record) = self.workloads.get_mut(who) else { return };
        let is_new = record.said.as_ref() != Some(&reason);
        if is_new && !(self.planted.is(Bug::SayOnce) && record.said.is_some()) {
            record.said = Some(reason);
            self.unheard.insert(who);
        }
    }

    /// Whether there are reasons to wait that have changed since they were taken.
    pub fn has_reasons(&self) -> bool {
        !self.unheard.is_empty()
    }

    /// A workload's reason to wait is to be taken once more, be it the same: what is told with it has changed.
    pub fn tell_again(&mut self, uid: &Uid) {
        if let Some(who) = self.workloads.id(uid) {
            self.say_again(who);
        }
    }

    pub(crate) fn say_again(&mut self, who: WorkloadId) {
        if self.workloads.get(who).is_some_and(|record| record.said.is_some()) {
            self.unheard.insert(who);
        }
    }

    /// Whether a workload's reason to wait is still to be taken.
    pub fn has_reason_of(&self, uid: &Uid) -> bool {
        self.workloads.id(uid).is_some_and(|who| self.unheard.contains(&who))
    }

    /// Reasons to wait that have changed since they were taken, of at most so many workloads; the next call goes on with others.
    /// Nothing is decided by them, and a change of quota may give a new one to every workload of a cluster: take as many
    /// as can be written.
    pub fn take_reasons(&mut self, at_most: usize) -> Vec<NewReason> {
        let others = self.unheard.range((Bound::Excluded(self.heard_last), Bound::Unbounded));
        let turns = others.chain(self.unheard.range(..=self.heard_last));
        let turns: Vec<WorkloadId> = turns.copied().take(at_most).collect();
        self.heard_last = turns.last().copied().unwrap_or(self.heard_last);
        for who in &turns {
            self.unheard.remove(who);
        }
        turns.into_iter().filter_map(|who| self.reason_told(who)).collect()
    }

    /// `None` where it no longer waits.
    fn reason_told(&self, who: WorkloadId) -> Option<NewReason> {
        let record = self.workloads.get(who)?;
        let queue = match &record.phase {
            Phase::Queued(queue) | Phase::Parked(queue) => Some(*queue),
            Phase::Claiming(claim) => Some(claim.queue),
            Phase::Aside(queue) => *queue,
            Phase::Holding(_) | Phase::Finished => return None,
        };
        Some(NewReason {
            workload: record.workload.uid.clone(),
            cluster_queue: queue.map(|queue| self.queues[queue].name.clone()),
            reason: self.reason_of(who, record)?.clone(),
        })
    }

    pub(crate) fn set_phase(&mut self, who: WorkloadId, phase: Phase) {
        let Some(record) = self.workloads.get_mut(who) else { return };
        let (before, after) = (record.phase.is_put_back(), phase.is_put_back());
        record.phase = phase;
        if let (true, Some(id)) = (before != after, record.local_queue) {
            self.local_queues.touch(id);
        }
    }

    /// The ClusterQueue of that name, be there such an object or not.
    pub(crate) fn queue_named(&mut self, name: &ClusterQueueName) -> NodeId {
        let id = self.tree.node(NodeName::ClusterQueue(name.clone()));
        if self.queues.get(id).is_none() {
            self.queues.insert(Queue::new(name.clone(), id));
        }
        id
    }

    /// The ClusterQueue of that name, if anything is known of it.
    pub(crate) fn known_queue(&self, name: &ClusterQueueName) -> Option<&Queue> {
        self.queues.get(self.tree.known_node(&NodeName::ClusterQueue(name.clone()))?)
    }

    /// What an admission uses, by flavor and resource. Negative numbers, which no admission of ours has, count as nothing.
    pub(crate) fn usage_of(&mut self, admission: &Admission) -> Usage {
        let mut usage = Usage::new();
        for pod_set in &admission.pod_sets {
            for (resource, amount) in &pod_set.usage {
                if let Some(flavor) = pod_set.flavors.get(resource) {
                    let pair = self.tree.pair(flavor, resource);
                    let sum = usage.get_or_insert(pair, 0);
                    let pods = if self.planted.is(Bug::CountOnePod) { pod_set.count.max(1) } else { 1 };
                    *sum = sum.saturating_add((*amount).max(0) / pods);
                }
            }
        }
        usage
    }

    /// The decision made last.
    pub(crate) fn last_id(&self) -> DecisionId {
        DecisionId(self.next_id)
    }

    /// What was decided since the last call, and what follows from what was written meanwhile, without another cycle.
    pub fn tell(&mut self) -> Vec<Decision> {
        self.told_up_to = self.last_id();
        self.taken_back.clear();
        std::mem::take(&mut self.out)
    }

    /// The places an admission gives to this workload's pods.
    pub(crate) fn places_of(&self, who: WorkloadId, admission: &Admission) -> Places {
        let pod_sets = self.workloads.get(who).map(|record| &*record.workload.pod_sets);
        places_of(pod_sets.unwrap_or_default(), admission)
    }
}
