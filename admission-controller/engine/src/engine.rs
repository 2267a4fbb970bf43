use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::planted::{Bug, Planted};
use model::pool::Pool;
use model::selector::Labels;

use crate::alarms::Alarms;
use crate::decision::{Decision, DecisionId, SetPending};
use crate::history::{Account, Amounts};
use crate::input::{Admission, AdmissionCheck, Cohort, Flavor, LocalQueue, PodSet, Workload};
use crate::names::{CheckName, ClusterQueueName, CohortName, FlavorName, LocalQueueKey, Uid};
use crate::places::{Grounds, Places, places_of};
use crate::process::CycleCounts;
use crate::queue::{Order, Phase, Queue, Record};
use crate::reason::PendingReason;
use crate::settings::Settings;
use crate::slices::WorkloadKey;
use crate::table::{Set, Table};
use crate::tree::{NodeName, Tree, Usage};

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
    pub(crate) second_pass: BTreeMap<Uid, bool>,
    pub(crate) checks: BTreeMap<CheckName, AdmissionCheck>,
    pub(crate) queues: Table<ClusterQueueName, Queue>,
    pub(crate) cohorts: BTreeMap<CohortName, Cohort>,
    pub(crate) local_queues: BTreeMap<LocalQueueKey, LocalQueue>,
    pub(crate) namespaces: BTreeMap<Arc<str>, Labels>,
    pub(crate) workloads: Table<Uid, Record>,
    /// What they ask for.
    pub(crate) asked: Pool<PodSet>,
    pub(crate) by_local_queue: BTreeMap<LocalQueueKey, BTreeSet<Uid>>,
    /// What LocalQueues have used, of those whose turns go by it.
    pub(crate) accounts: BTreeMap<LocalQueueKey, Account>,
    /// What the status of LocalQueues says they have used.
    pub(crate) written: BTreeMap<LocalQueueKey, Amounts>,
    /// The time of the last decision.
    pub(crate) now_ms: i64,
    /// Who replaces whom, by the namespace and name of who is replaced.
    pub(crate) successors: BTreeMap<WorkloadKey, Uid>,
    /// Queues in which somebody was put aside for the sake of what may end without anything being released in the tree: a
    /// victim whose own admission was not confirmed yet, or quota that was kept back for the blocked head of another queue.
    pub(crate) passed_over: BTreeSet<ClusterQueueName>,
    /// Queues with something to look at.
    pub(crate) ready: BTreeSet<ClusterQueueName>,
    pub(crate) claims: BTreeSet<Order>,
    pub(crate) in_flight: BTreeMap<DecisionId, Uid>,
    pub(crate) next_id: u64,
    pub(crate) alarms: Alarms,
    /// Who holds quota and has pods that are not ready, where admission waits for that.
    pub(crate) not_ready: BTreeSet<Uid>,
    /// Somebody waits for them.
    pub(crate) waits_for_pods: bool,
    pub(crate) out: Vec<Decision>,
    /// The last decision that the driver was told of: those after it can still be taken back.
    pub(crate) told_up_to: DecisionId,
    /// The last decision before the cycle that is under way.
    pub(crate) cycle_began_at: DecisionId,
    /// Whose admissions were taken back since the driver was told something.
    pub(crate) taken_back: BTreeSet<Uid>,
    /// Queues in which room came back in the cycle that is under way: heads that were judged before know nothing of it.
    pub(crate) freed: BTreeSet<ClusterQueueName>,
    /// Flavors, queues, cohorts or namespaces changed: everything that waits is placed anew.
    pub(crate) reconfigured: bool,
    /// Quota came back: promises may be kept.
    pub(crate) released: bool,
    /// Put into a StrictFIFO queue, or no longer its head, since the last decision: to be told that they wait behind others.
    pub(crate) unsaid: Vec<Uid>,
    pub(crate) cut_short: bool,
    pub(crate) counts: CycleCounts,
    /// How many cycles there were.
    pub(crate) cycle_number: u64,
    pub(crate) touched_queues: Set<ClusterQueueName>,
    pub(crate) touched_local_queues: Set<LocalQueueKey>,
    pub(crate) planted: Planted,
}

impl Engine {
    /// An engine that knows nothing.
    pub fn new(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// With a deliberate bug switched on, for testing the fuzzer.
    #[must_use]
    pub fn with_planted(mut self, planted: Planted) -> Self {
        self.planted = planted;
        self
    }

    /// Every reason to wait is worked out and given anew: a new leader does not know which were written.
    pub fn forget_what_was_said(&mut self) {
        self.workloads.for_each_mut(|record| record.said = None);
        self.forget_own_history();
        self.reconfigured = true;
    }

    /// Works a change of configuration into everything that waits. Promises are made anew under the new rules.
    pub(crate) fn reconfigure(&mut self) {
        if !std::mem::take(&mut self.reconfigured) && !self.tree.is_dirty() {
            return;
        }
        self.tree.refresh();
        self.renew_grounds();
        let names: Vec<ClusterQueueName> = self.queues.in_order().map(|(name, _)| name.clone()).collect();
        for name in names {
            let inactive = self.why_inactive(&name);
            let provisioned = self.provisioned(&name);
            let places_all = self.places_all(&name);
            let queue = self.queue(&name);
            if let Some(spec) = queue.spec.as_mut().filter(|spec| spec.provisioned != provisioned) {
                Arc::make_mut(spec).provisioned = provisioned;
            }
            (queue.inactive, queue.places_all) = (inactive, places_all);
            queue.blocked = None;
            queue.generation += 1;
            self.touched_queues.insert(name);
        }
        self.local_queues.keys().for_each(|key| self.touched_local_queues.note(key));
        self.reopen_accounts();
        let uids: Vec<Uid> = self.workloads.in_order().map(|(uid, _)| uid.clone()).collect();
        for uid in uids {
            self.replace_if_waiting(&uid);
            self.drain(&uid);
        }
    }

    /// A workload has become a possible victim, or a head no longer has anything kept for it: whoever was put aside on
    /// that account is looked at again.
    pub(crate) fn wake_who_passed_over(&mut self, name: &ClusterQueueName) {
        if self.passed_over.is_empty() {
            return;
        }
        let node = self.queue(name).node;
        let root = self.tree.root(node);
        let below = |member: &&ClusterQueueName| {
            self.queues.get(*member).is_some_and(|one| self.tree.root(one.node) == root)
        };
        let members: Vec<ClusterQueueName> = self.passed_over.iter().filter(below).cloned().collect();
        members.iter().for_each(|member| self.reactivate(member));
    }

    pub(crate) fn reactivate_tree(&mut self, name: &ClusterQueueName) {
        if self.planted.is(Bug::LoseWakeups) {
            return;
        }
        for member in self.members_of_tree(name) {
            self.reactivate(&member);
        }
    }

    pub(crate) fn reactivate(&mut self, name: &ClusterQueueName) {
        self.passed_over.remove(name);
        let queue = self.queue(name);
        for uid in queue.reactivate() {
            self.set_phase(&uid, Phase::Queued(name.clone()));
        }
        self.make_ready(name);
    }

    /// The queue has something to look at.
    pub(crate) fn make_ready(&mut self, name: &ClusterQueueName) {
        if !self.ready.contains(name) {
            self.ready.insert(name.clone());
        }
    }

    /// Every queue under the same root.
    pub(crate) fn members_of_tree(&mut self, name: &ClusterQueueName) -> Vec<ClusterQueueName> {
        let node = self.queue(name).node;
        let mut found = Vec::new();
        let mut stack = vec![self.tree.root(node)];
        while let Some(id) = stack.pop() {
            if let NodeName::ClusterQueue(name) = self.tree.name(id) {
                found.push(ClusterQueueName::from(name.as_str()));
            }
            stack.extend_from_slice(self.tree.children(id));
        }
        found.retain(|name| self.queues.contains_key(name));
        found
    }

    pub(crate) fn say(&mut self, uid: &Uid, cluster_queue: Option<ClusterQueueName>, reason: PendingReason) {
        let Some(record) = self.workloads.get_mut(uid) else { return };
        if record.said.as_ref() != Some(&reason) {
            record.said = Some(reason.clone());
            self.out.push(Decision::SetPending(SetPending { workload: uid.clone(), cluster_queue, reason }));
        }
    }

    pub(crate) fn set_phase(&mut self, uid: &Uid, phase: Phase) {
        let Some(record) = self.workloads.get_mut(uid) else { return };
        let (before, after) = (record.phase.is_put_back(), phase.is_put_back());
        record.phase = phase;
        if let (true, Some(key)) = (before != after, local_queue_of(&record.workload)) {
            self.touched_local_queues.insert(key);
        }
    }

    pub(crate) fn queue(&mut self, name: &ClusterQueueName) -> &mut Queue {
        let tree = &mut self.tree;
        let new = || Queue::new(tree.node(NodeName::ClusterQueue(name.as_str().to_owned())));
        self.queues.get_or_insert_with(name, new)
    }

    /// What an admission uses, by flavor and resource. Negative numbers, which no admission of ours has, count as nothing.
    pub(crate) fn usage_of(&mut self, admission: &Admission) -> Usage {
        let mut usage = Usage::new();
        for pod_set in &admission.pod_sets {
            for (resource, amount) in &pod_set.usage {
                if let Some(flavor) = pod_set.flavors.get(resource) {
                    let pair = self.tree.pair(flavor, resource);
                    let sum = usage.entry(pair).or_insert(0i64);
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
    pub(crate) fn places_of(&self, uid: &Uid, admission: &Admission) -> Places {
        let pod_sets = self.workloads.get(uid).map(|record| &*record.workload.pod_sets);
        places_of(pod_sets.unwrap_or_default(), admission)
    }
}

pub(crate) fn local_queue_of(workload: &Workload) -> Option<LocalQueueKey> {
    let queue = workload.queue.clone()?;
    Some(LocalQueueKey { namespace: workload.namespace.clone(), name: queue })
}
