use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::ResourceName;
use model::planted::{Bug, Planted};
use model::pool::Pool;
use model::selector::Labels;

use crate::alarms::Alarms;
use crate::decision::{Decision, DecisionId, Evict, EvictReason, Outcome, Reserve, SetPending, Withdraw};
use crate::history::{Account, Amounts};
use crate::input::{
    Admission, AdmissionCheck, ClusterQueue, Cohort, DelayedTopology, Event, Flavor, LocalQueue, PodSet,
    Standing, Weight, Workload,
};
use crate::names::{CheckName, ClusterQueueName, CohortName, FlavorName, LocalQueueKey, Uid};
use crate::places::{Grounds, Places, more_than, places_of};
use crate::process::CycleCounts;
use crate::queue::{HoldState, Holding, Order, Phase, Queue, Record, Shape};
use crate::reason::PendingReason;
use crate::settings::Settings;
use crate::slices::WorkloadKey;
use crate::table::Table;
use crate::tree::{Ledger, NodeName, Tree, Usage};

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
    asked: Pool<PodSet>,
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
    next_id: u64,
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
    reconfigured: bool,
    /// Quota came back: promises may be kept.
    pub(crate) released: bool,
    /// Put into a StrictFIFO queue, or no longer its head, since the last decision: to be told that they wait behind others.
    pub(crate) unsaid: Vec<Uid>,
    pub(crate) cut_short: bool,
    pub(crate) counts: CycleCounts,
    /// How many cycles there were.
    pub(crate) cycle_number: u64,
    pub(crate) touched_queues: BTreeSet<ClusterQueueName>,
    pub(crate) touched_local_queues: BTreeSet<LocalQueueKey>,
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

    /// Takes in one change. Cheap; what follows from it is worked out by [`Engine::decide`].
    pub fn apply(&mut self, event: Event) {
        match event {
            Event::Flavor(flavor) => self.upsert_flavor(flavor),
            Event::FlavorGone(name, uid) => {
                if self.flavors.get(&name).is_some_and(|known| known.uid == uid) {
                    self.flavors.remove(&name);
                    self.grounds.outdate(name);
                    self.reconfigured = true;
                }
            }
            Event::Topology(name, levels) => {
                if self.topologies.insert(name.clone(), levels.clone()) != Some(levels) {
                    self.outdate_flavors_of(&name);
                    self.reconfigured = true;
                }
            }
            Event::TopologyGone(name) => {
                if self.topologies.remove(&name).is_some() {
                    self.outdate_flavors_of(&name);
                    self.reconfigured = true;
                }
            }
            Event::Node(node) => {
                let flavors = self.grounds.upsert_node(node);
                self.room_changed(&flavors);
            }
            Event::NodeGone(name) => {
                let flavors = self.grounds.remove_node(&name);
                self.room_changed(&flavors);
            }
            Event::Pod(uid, node, asked) => {
                let flavors = self.grounds.set_pod(uid, Some((node, asked)));
                self.room_changed(&flavors);
            }
            Event::PodGone(uid) => {
                let flavors = self.grounds.set_pod(uid, None);
                self.room_changed(&flavors);
            }
            Event::ClusterQueue(spec) => self.upsert_cluster_queue(spec),
            Event::ClusterQueueGone(name, uid) => self.remove_cluster_queue(&name, &uid),
            Event::Cohort(cohort) => self.upsert_cohort(cohort),
            Event::CohortGone(name, uid) => {
                if self.cohorts.get(&name).is_some_and(|known| known.uid == uid) {
                    self.cohorts.remove(&name);
                    let node = self.tree.node(NodeName::Cohort(name.as_str().to_owned()));
                    self.tree.configure(node, None, &[]);
                    self.tree.set_weight(node, Weight::default());
                    self.reconfigured = true;
                }
            }
            Event::LocalQueue(queue) => self.upsert_local_queue(queue),
            Event::LocalQueueGone(key, uid) => {
                if self.local_queues.get(&key).is_some_and(|known| known.uid == uid) {
                    self.local_queues.remove(&key);
                    self.reopen_account(&key);
                    self.replace_local_queue(&key);
                }
            }
            Event::LocalQueueHistory(key, consumed) => self.remember_history(key, consumed),
            Event::AdmissionCheck(check) => {
                let known = self.checks.insert(check.name.clone(), check.clone());
                self.reconfigured |= known != Some(check);
            }
            Event::AdmissionCheckGone(name, uid) => {
                if self.checks.get(&name).is_some_and(|known| known.uid == uid) {
                    self.checks.remove(&name);
                    self.reconfigured = true;
                }
            }
            Event::Namespace(name, labels) => {
                if self.namespaces.insert(name, labels.clone()) != Some(labels) {
                    self.reconfigured = true;
                }
            }
            Event::NamespaceGone(name) => {
                self.reconfigured |= self.namespaces.remove(&name).is_some();
            }
            Event::Workload(workload) => self.upsert_workload(*workload),
            Event::Requests(uid, pod_sets, defect) => self.change_requests(&uid, pod_sets, defect),
            Event::WorkloadGone(uid) => self.remove_workload(&uid),
        }
    }

    /// Takes in what became of a decision. Outcomes of decisions that newer events have settled already are ignored.
    pub fn written(&mut self, id: DecisionId, outcome: Outcome) {
        let Some(uid) = self.in_flight.remove(&id) else { return };
        let Some(record) = self.workloads.get_mut(&uid) else { return };
        let Phase::Holding(holding) = &mut record.phase else { return };
        match &mut holding.state {
            HoldState::Assumed(assumed) if *assumed == id => match outcome {
                Outcome::Written(version) => self.confirm_reservation(&uid, version),
                Outcome::Unsettled => {}
                Outcome::NotWritten => self.replace(&uid),
                Outcome::Refused(words) => {
                    record.refused = Some(words);
                    self.replace(&uid);
                }
            },
            HoldState::Leaving { decision, withdrawn: true, .. }
                if *decision == Some(id) && matches!(outcome, Outcome::Written(_)) =>
            {
                if let Outcome::Written(version) = outcome {
                    record.workload.version = record.workload.version.max(version);
                }
                record.workload.standing = Standing::Pending;
                self.replace(&uid);
            }
            HoldState::Leaving { decision, .. } if *decision == Some(id) => match outcome {
                Outcome::Written(version) => {
                    *decision = None;
                    record.workload.version = record.workload.version.max(version);
                    if let Standing::Reserved { evicted, .. } = &mut record.workload.standing {
                        *evicted = true;
                    }
                }
                Outcome::Unsettled => *decision = None,
                Outcome::NotWritten => {
                    self.say_it_stays(&uid);
                    self.replace(&uid);
                }
                Outcome::Refused(_) => {
                    record.eviction_refused_at = Some(record.workload.version);
                    self.say_it_stays(&uid);
                    self.replace(&uid);
                }
            },
            _ => {}
        }
    }

    /// Every reason to wait is worked out and given anew: a new leader does not know which were written.
    pub fn forget_what_was_said(&mut self) {
        self.workloads.for_each_mut(|record| record.said = None);
        self.forget_own_history();
        self.reconfigured = true;
    }

    fn upsert_flavor(&mut self, mut flavor: Flavor) {
        if !self.settings.topology.enabled {
            flavor.topology = None;
        }
        if self.planted.is(Bug::IgnoreFlavorTaints) {
            flavor.taints.clear();
        }
        if self.flavors.get(&flavor.name) != Some(&flavor) {
            self.grounds.outdate(flavor.name.clone());
            self.flavors.insert(flavor.name.clone(), flavor);
            self.reconfigured = true;
        }
    }

    fn upsert_cluster_queue(&mut self, mut spec: ClusterQueue) {
        let flavors = spec.groups.iter_mut().flat_map(|group| &mut group.flavors);
        for quota in flavors.flat_map(|flavor| flavor.resources.values_mut()) {
            if self.planted.is(Bug::IgnoreBorrowingLimit) {
                quota.borrowing_limit = None;
            }
            if self.planted.is(Bug::IgnoreLendingLimit) {
                quota.lending_limit = None;
            }
        }
        let twice = self.planted.is(Bug::CountQuotaTwice);
        let queue = self.queue(&spec.name);
        if let Some(known) = &queue.spec {
            // That follows from the checks, see `reconfigure`.
            spec.provisioned.clone_from(&known.provisioned);
        }
        if queue.spec.as_ref() == Some(&spec) {
            return;
        }
        if let (true, Some(before)) = (twice, &queue.spec) {
            add_quota(&mut spec, before);
        }
        let node = queue.node;
        queue.spec = Some(spec.clone());
        let cohort = spec.cohort.as_ref().filter(|_| !self.planted.is(Bug::ForgetCohort));
        let parent = cohort.map(|name| self.tree.node(NodeName::Cohort(name.as_str().to_owned())));
        self.tree.configure(node, parent, &spec.groups);
        self.tree.set_weight(node, spec.weight);
        self.touched_queues.insert(spec.name);
        self.reconfigured = true;
    }

    fn remove_cluster_queue(&mut self, name: &ClusterQueueName, uid: &Uid) {
        let Some(queue) = self.queues.get_mut(name) else { return };
        if queue.spec.as_ref().is_some_and(|spec| spec.uid == *uid) {
            queue.spec = None;
            let node = queue.node;
            self.tree.configure(node, None, &[]);
            self.reconfigured = true;
        }
    }

    fn upsert_cohort(&mut self, cohort: Cohort) {
        if self.cohorts.get(&cohort.name) == Some(&cohort) {
            return;
        }
        let node = self.tree.node(NodeName::Cohort(cohort.name.as_str().to_owned()));
        let parent =
            cohort.parent.as_ref().map(|name| self.tree.node(NodeName::Cohort(name.as_str().to_owned())));
        self.tree.configure(node, parent, &cohort.groups);
        self.tree.set_weight(node, cohort.weight);
        self.cohorts.insert(cohort.name.clone(), cohort);
        self.reconfigured = true;
    }

    fn upsert_local_queue(&mut self, queue: LocalQueue) {
        if self.local_queues.get(&queue.key) == Some(&queue) {
            return;
        }
        let key = queue.key.clone();
        self.local_queues.insert(key.clone(), queue);
        self.reopen_account(&key);
        self.replace_local_queue(&key);
    }

    fn replace_local_queue(&mut self, key: &LocalQueueKey) {
        self.touched_local_queues.insert(key.clone());
        for uid in self.by_local_queue.get(key).cloned().unwrap_or_default() {
            self.replace_if_waiting(&uid);
            self.drain(&uid);
        }
    }

    fn upsert_workload(&mut self, mut workload: Workload) {
        let uid = workload.uid.clone();
        if !self.settings.topology.enabled {
            forget_topology(&mut workload);
        }
        workload.pod_sets = self.asked.share(workload.pod_sets);
        if let Some(record) = self.workloads.get_mut(&uid) {
            if workload.version < record.workload.version {
                return;
            }
            if workload.version == record.workload.version {
                // Known from the answer to a write of ours, but for what follows from what was written.
                record.workload.leave = workload.leave;
                self.set_alarm(&uid);
                self.drain(&uid);
                return;
            }
            if let (Phase::Holding(holding), Standing::Reserved { since_ms, .. }) =
                (&record.phase, &mut workload.standing)
                && holding.since_ms.div_euclid(1_000) == since_ms.div_euclid(1_000)
            {
                // Conditions have whole seconds; who was admitted last within one is still known here.
                *since_ms = holding.since_ms;
            }
            let settled = match &record.phase {
                Phase::Holding(holding) => holding.state == HoldState::Confirmed,
                _ => true,
            };
            let known = std::mem::replace(&mut record.workload.version, workload.version);
            if settled && record.workload == workload {
                return;
            }
            record.workload.version = known;
            let victim_of = match &record.phase {
                Phase::Holding(holding) if record.workload.priority != workload.priority => {
                    Some(holding.admission.cluster_queue.clone())
                }
                _ => None,
            };
            self.withdraw(&uid, &workload.standing);
            // Of another priority, it may have become a possible victim.
            if let Some(name) = victim_of {
                self.reactivate_tree(&name);
            }
        }
        let refused = self.workloads.get(&uid).and_then(|record| {
            let same_spec = record.workload.pod_sets == workload.pod_sets
                && record.workload.queue == workload.queue
                && record.workload.priority == workload.priority;
            record.refused.clone().filter(|_| same_spec)
        });
        let said = self.workloads.get_mut(&uid).and_then(|record| record.said.take());
        if let Some(key) = local_queue_of(&workload) {
            self.by_local_queue.entry(key).or_default().insert(uid.clone());
        }
        self.forget_slice(&uid);
        self.note_slice(&workload);
        let shape = Shape::of(&workload);
        let progress = self.workloads.get_mut(&uid).and_then(|record| record.progress.take());
        let record = Record {
            workload,
            shape,
            phase: Phase::Aside(None),
            said,
            refused,
            unplaced: None,
            eviction_refused_at: None,
            progress,
        };
        self.workloads.insert(uid.clone(), record);
        self.place(&uid);
    }

    fn change_requests(&mut self, uid: &Uid, pod_sets: Arc<[PodSet]>, defect: Option<String>) {
        let Some(record) = self.workloads.get_mut(uid) else { return };
        if record.workload.pod_sets == pod_sets && record.workload.defect == defect {
            return;
        }
        let standing = record.workload.standing.clone();
        let waits = !matches!(record.phase, Phase::Holding(_) | Phase::Finished);
        if waits {
            self.withdraw(uid, &standing);
        }
        let Some(record) = self.workloads.get_mut(uid) else { return };
        record.workload.pod_sets = self.asked.share(pod_sets);
        record.workload.defect = defect;
        record.shape = Shape::of(&record.workload);
        if let (true, Some(key)) = (waits, local_queue_of(&record.workload)) {
            self.by_local_queue.entry(key).or_default().insert(uid.clone());
        }
        if waits {
            self.place(uid);
        }
    }

    fn remove_workload(&mut self, uid: &Uid) {
        if !self.workloads.contains_key(uid) {
            return;
        }
        if !self.planted.is(Bug::LeakUsage) {
            self.withdraw(uid, &Standing::Finished);
        }
        self.forget_slice(uid);
        self.alarms.set(uid, None);
        self.workloads.remove(uid);
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
            let queue = self.queue(&name);
            if let Some(spec) = &mut queue.spec {
                spec.provisioned = provisioned;
            }
            queue.inactive = inactive;
            queue.blocked = None;
            queue.generation += 1;
            self.touched_queues.insert(name);
        }
        self.touched_local_queues.extend(self.local_queues.keys().cloned());
        self.reopen_accounts();
        let uids: Vec<Uid> = self.workloads.in_order().map(|(uid, _)| uid.clone()).collect();
        for uid in uids {
            self.replace_if_waiting(&uid);
            self.drain(&uid);
        }
    }

    /// Tells a workload to leave: it holds its quota still, but the plan goes on without it.
    pub(crate) fn evict(
        &mut self,
        uid: &Uid,
        reason: EvictReason,
        preemptor: Option<(&Uid, &ClusterQueueName)>,
    ) {
        let id = self.next_id(uid);
        let preemptor_path = preemptor
            .and_then(|(_, name)| self.queues.get(name))
            .map(|queue| self.tree.path_text(queue.node))
            .unwrap_or_default();
        let Some(record) = self.workloads.get_mut(uid) else { return };
        let based_on = record.workload.version;
        let Phase::Holding(holding) = &mut record.phase else { return };
        let preemptor = preemptor.map(|(uid, _)| uid.clone());
        holding.state =
            HoldState::Leaving { decision: Some(id), preemptor: preemptor.clone(), withdrawn: false };
        let name = holding.admission.cluster_queue.clone();
        let places = holding.promised.take().unwrap_or_else(|| Arc::clone(&holding.places));
        let usage = holding.usage.clone();
        let node = self.queue(&name).node;
        self.charge(node, &usage, &places, Ledger::Planned, -1);
        self.second_pass.remove(uid);
        let victim_path = self.tree.path_text(node);
        let victim = uid.clone();
        self.out.push(Decision::Evict(Evict {
            id,
            victim,
            based_on,
            reason,
            preemptor,
            preemptor_path,
            victim_path,
        }));
    }

    /// Takes the quota of a workload that was not admitted yet: nothing of it runs, so there is nothing to wait for.
    pub(crate) fn withdraw_reservation(&mut self, uid: &Uid, reason: PendingReason) {
        let id = self.next_id(uid);
        let Some(record) = self.workloads.get_mut(uid) else { return };
        let based_on = record.workload.version;
        let Phase::Holding(holding) = &mut record.phase else { return };
        holding.state = HoldState::Leaving { decision: Some(id), preemptor: None, withdrawn: true };
        let (name, usage) = (holding.admission.cluster_queue.clone(), holding.usage.clone());
        let places = holding.promised.take().unwrap_or_else(|| Arc::clone(&holding.places));
        let node = self.queue(&name).node;
        self.charge(node, &usage, &places, Ledger::Planned, -1);
        self.second_pass.remove(uid);
        self.out.push(Decision::Withdraw(Withdraw { id, workload: uid.clone(), based_on, reason }));
    }

    /// Gives quota. `planned` tells that the plan counts it already, because it was promised.
    pub(crate) fn reserve(
        &mut self,
        uid: &Uid,
        admission: Admission,
        usage: Usage,
        places: Places,
        now_ms: i64,
    ) {
        let id = self.next_id(uid);
        let Some(record) = self.workloads.get(uid) else { return };
        let based_on = record.workload.version;
        let order = self.order_of(&record.workload);
        match &record.phase {
            Phase::Queued(name) | Phase::Parked(name) => {
                let name = name.clone();
                self.leave_queue(&name, &order);
            }
            Phase::Claiming(claim) => {
                // `hold` charges the plan again.
                let claim = claim.clone();
                let node = self.queue(&claim.cluster_queue).node;
                self.charge(node, &claim.usage, &claim.places, Ledger::Planned, -1);
                self.claims.remove(&order);
                self.leave_queue(&claim.cluster_queue, &order);
            }
            // It has its quota already, and gets its places now.
            Phase::Holding(holding) => {
                let holding = holding.clone();
                self.let_go(uid, &holding);
                let (admitted, since_ms) = (holding.admitted || places_found(&admission), holding.since_ms);
                let state = HoldState::Assumed(id);
                // Pods may sit in the old ones until others know.
                let vacating = Some(more_than(&holding.places, &places));
                let holding = Holding {
                    admission: admission.clone(),
                    usage,
                    places,
                    promised: None,
                    vacating,
                    admitted,
                    since_ms,
                    state,
                };
                self.hold(uid, holding);
                self.out.push(Decision::Reserve(Reserve { id, workload: uid.clone(), based_on, admission }));
                return;
            }
            Phase::Aside(_) | Phase::Finished => return,
        }
        let state = HoldState::Assumed(id);
        let usage = if self.planted.is(Bug::ForgetAssumedAdmission) { Usage::new() } else { usage };
        let admitted = self.passes_checks(uid, &admission) && !admission.awaits_places();
        let holding = Holding {
            admission: admission.clone(),
            usage,
            places,
            promised: None,
            vacating: None,
            admitted,
            since_ms: now_ms,
            state,
        };
        self.hold(uid, holding);
        self.impose_penalty(uid, &admission);
        self.out.push(Decision::Reserve(Reserve { id, workload: uid.clone(), based_on, admission }));
    }

    fn confirm_reservation(&mut self, uid: &Uid, version: u64) {
        let Some(record) = self.workloads.get_mut(uid) else { return };
        let Phase::Holding(holding) = &mut record.phase else { return };
        holding.state = HoldState::Confirmed;
        let name = holding.admission.cluster_queue.clone();
        let vacated = holding.vacating.take();
        record.workload.version = record.workload.version.max(version);
        record.workload.standing = Standing::Reserved {
            admission: holding.admission.clone(),
            admitted: holding.admitted,
            evicted: false,
            since_ms: holding.since_ms,
        };
        self.begin_use(uid);
        if let Some(vacated) = vacated.filter(|places| !places.is_empty()) {
            self.grounds.charge(&vacated, Ledger::Held, -1);
            self.places_freed(&vacated);
        }
        self.wake_who_passed_over(&name);
        self.drain(uid);
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
        self.ready.insert(name.clone());
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
        if before != after {
            self.touched_local_queues.extend(local_queue_of(&record.workload));
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

    fn next_id(&mut self, uid: &Uid) -> DecisionId {
        self.next_id += 1;
        let id = DecisionId(self.next_id);
        self.in_flight.insert(id, uid.clone());
        id
    }
}

/// Whether no pods wait for their places any more.
fn places_found(admission: &Admission) -> bool {
    admission.pod_sets.iter().all(|one| one.delayed != Some(DelayedTopology::Pending))
}

/// As if no topology was ever heard of.
fn forget_topology(workload: &mut Workload) {
    if workload.pod_sets.iter().any(|pod_set| pod_set.topology.is_some() || pod_set.group.is_some()) {
        let pod_sets = Arc::make_mut(&mut workload.pod_sets);
        pod_sets.iter_mut().for_each(|pod_set| (pod_set.topology, pod_set.group) = (None, None));
    }
    if let Standing::Reserved { admission, .. } = &mut workload.standing {
        admission.pod_sets.iter_mut().for_each(|held| (held.topology, held.delayed) = (None, None));
    }
}

/// A bug on purpose: the quota of before stays where that of now is added.
fn add_quota(spec: &mut ClusterQueue, before: &ClusterQueue) {
    let of = |spec: &ClusterQueue, flavor: &FlavorName, resource: &ResourceName| {
        let mut flavors = spec.groups.iter().flat_map(|group| &group.flavors);
        let quotas = flavors.find(|one| one.flavor == *flavor)?;
        quotas.resources.get(resource).map(|quota| quota.nominal)
    };
    for flavor in spec.groups.iter_mut().flat_map(|group| &mut group.flavors) {
        for (resource, quota) in &mut flavor.resources {
            quota.nominal = quota.nominal.saturating_add(of(before, &flavor.flavor, resource).unwrap_or(0));
        }
    }
}

pub(crate) fn local_queue_of(workload: &Workload) -> Option<LocalQueueKey> {
    let queue = workload.queue.clone()?;
    Some(LocalQueueKey { namespace: workload.namespace.clone(), name: queue })
}
