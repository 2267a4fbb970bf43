//! What was seen: each event changes what the engine knows, and what follows from it is worked out by the next decision.

use std::sync::Arc;

use model::ResourceName;
use model::planted::Bug;

use crate::engine::Engine;
use crate::input::{ClusterQueue, Cohort, Event, Flavor, LocalQueue, PodSet, Standing, Weight, Workload};
use crate::line::Shape;
use crate::names::{ClusterQueueName, FlavorName, LocalQueueKey};
use crate::record::{HoldState, Phase, Record};
use crate::slices::replaced_key;
use crate::tree::{NodeId, NodeName};
use crate::uid::Uid;
use crate::workloads::WorkloadId;

impl Engine {
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
                self.nodes_changed(&flavors);
            }
            Event::NodeGone(name) => {
                let flavors = self.grounds.remove_node(&name);
                self.nodes_changed(&flavors);
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
                    let node = self.tree.node(NodeName::Cohort(name.clone()));
                    self.tree.configure(node, None, &[]);
                    self.tree.set_weight(node, Weight::default());
                    self.reconfigured = true;
                }
            }
            Event::LocalQueue(queue) => self.upsert_local_queue(queue),
            Event::LocalQueueGone(key, uid) => {
                if self.local_queues.object(&key).is_some_and(|known| known.uid == uid) {
                    self.change_local_queue(key, None);
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
                if self.namespaces.insert(Arc::clone(&name), labels.clone()) != Some(labels) {
                    self.namespace_changed(&name);
                }
            }
            Event::NamespaceGone(name) => {
                if self.namespaces.remove(&name).is_some() {
                    self.namespace_changed(&name);
                }
            }
            Event::Workload(workload) => self.upsert_workload(*workload),
            Event::Requests(uid, pod_sets, defect) => {
                if let Some(who) = self.workloads.id(&uid) {
                    self.change_requests(who, pod_sets, defect);
                }
            }
            Event::WorkloadGone(uid) => {
                if let Some(who) = self.workloads.id(&uid) {
                    self.remove_workload(who);
                }
            }
        }
    }

    /// Who waits where its namespace is no longer served, or may be served now, is placed anew: namespaces come and go all the time, and
    /// are nothing to others.
    fn namespace_changed(&mut self, namespace: &str) {
        if self.reconfigured {
            return;
        }
        let is_concerned = |record: &Record| match &record.phase {
            Phase::Aside(_) => true,
            Phase::Queued(queue) | Phase::Parked(queue) => !self.is_served_by(*queue, namespace),
            Phase::Claiming(claim) => !self.is_served_by(claim.queue, namespace),
            Phase::Holding(_) | Phase::Finished => false,
        };
        let all = self.workloads.in_order().filter(|(_, record)| &*record.workload.namespace == namespace);
        let concerned: Vec<WorkloadId> =
            all.filter(|(_, record)| is_concerned(record)).map(|(who, _)| who).collect();
        concerned.into_iter().for_each(|who| self.replace(who));
    }

    fn is_served_by(&self, queue: NodeId, namespace: &str) -> bool {
        self.queues[queue].spec.as_ref().is_some_and(|spec| self.serves(spec, namespace))
    }

    fn nodes_changed(&mut self, flavors: &[FlavorName]) {
        if !flavors.is_empty() {
            self.displacements.clear();
        }
        self.room_changed(flavors);
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
        let node = self.queue_named(&spec.name);
        let queue = &mut self.queues[node];
        if let Some(known) = &queue.spec {
            // That follows from the checks, see `reconfigure`.
            spec.provisioned.clone_from(&known.provisioned);
        }
        if queue.spec.as_deref() == Some(&spec) {
            return;
        }
        if let (true, Some(before)) = (twice, &queue.spec) {
            add_quota(&mut spec, before);
        }
        let spec = Arc::new(spec);
        queue.spec = Some(Arc::clone(&spec));
        let cohort = spec.cohort.as_ref().filter(|_| !self.planted.is(Bug::ForgetCohort));
        let parent = cohort.map(|name| self.tree.node(NodeName::Cohort(name.clone())));
        self.tree.configure(node, parent, &spec.groups);
        self.tree.set_weight(node, spec.weight);
        self.queues.touch(node);
        self.reconfigured = true;
    }

    fn remove_cluster_queue(&mut self, name: &ClusterQueueName, uid: &Uid) {
        let Some(node) = self.known_queue(name).map(|queue| queue.node) else { return };
        let queue = &mut self.queues[node];
        if queue.spec.as_ref().is_some_and(|spec| spec.uid == *uid) {
            queue.spec = None;
            self.tree.configure(node, None, &[]);
            self.reconfigured = true;
        }
    }

    fn upsert_cohort(&mut self, cohort: Cohort) {
        if self.cohorts.get(&cohort.name) == Some(&cohort) {
            return;
        }
        let node = self.tree.node(NodeName::Cohort(cohort.name.clone()));
        let parent = cohort.parent.as_ref().map(|name| self.tree.node(NodeName::Cohort(name.clone())));
        self.tree.configure(node, parent, &cohort.groups);
        self.tree.set_weight(node, cohort.weight);
        self.cohorts.insert(cohort.name.clone(), cohort);
        self.reconfigured = true;
    }

    fn upsert_local_queue(&mut self, queue: LocalQueue) {
        if self.local_queues.object(&queue.key) != Some(&queue) {
            self.change_local_queue(queue.key.clone(), Some(queue));
        }
    }

    fn change_local_queue(&mut self, key: LocalQueueKey, object: Option<LocalQueue>) {
        let id = self.local_queues.id_of(key);
        self.local_queues[id].object = object;
        self.local_queues.touch(id);
        self.reopen_account(id);
        let members = self.workloads.sorted(self.local_queues[id].members.iter().copied());
        for who in members.into_iter().map(|(who, _)| who).collect::<Vec<_>>() {
            self.replace_if_waiting(who);
            self.drain(who);
        }
    }

    fn upsert_workload(&mut self, mut workload: Workload) {
        if !self.settings.topology.enabled {
            forget_topology(&mut workload);
        }
        workload.pod_sets = self.asked.share(workload.pod_sets);
        let known = self.workloads.id(&workload.uid);
        if known.is_some_and(|who| !self.make_way(who, &mut workload)) {
            return;
        }
        let local_queue = local_queue_of(&workload).map(|key| self.local_queues.id_of(key));
        let slice = replaced_key(&workload);
        let shape = Shape::of(&workload, &mut self.shapes);
        let mut record = Record::new(workload, shape, local_queue);
        if let Some(before) = known.and_then(|who| self.workloads.get_mut(who)) {
            record.inherit(before);
        }
        let who = self.workloads.insert(record);
        if let Some(id) = local_queue {
            self.local_queues[id].members.insert(who);
        }
        if let Some(slice) = slice {
            self.successors.entry(slice).or_default().insert(who);
        }
        self.place(who);
    }

    /// Takes a workload out of where it is, because this is what it is now. `false` where that is no news.
    fn make_way(&mut self, who: WorkloadId, workload: &mut Workload) -> bool {
        let Some(record) = self.workloads.get_mut(who) else { return true };
        if workload.version < record.workload.version {
            return false;
        }
        if workload.version == record.workload.version {
            // Known from the answer to a write of ours, but for what follows from what was written.
            record.workload.seldom.leave = workload.seldom.leave;
            self.set_alarm(who);
            self.drain(who);
            return false;
        }
        if let (Phase::Holding(holding), Standing::Reserved { since_ms, .. }) =
            (&record.phase, &mut workload.standing)
            && holding.since_ms.div_euclid(1_000) == since_ms.div_euclid(1_000)
        {
            // Conditions have whole seconds; who was admitted last within one is still known here.
            *since_ms = holding.since_ms;
        }
        let known = std::mem::replace(&mut record.workload.version, workload.version);
        if !matches!(record.phase, Phase::Holding(_)) && workload.seldom.replaces.is_none() {
            // Who is adopted waits where it waited, and what leaves for it stays promised to it.
            record.workload.owned = workload.owned;
        }
        if record.workload == *workload {
            match &record.phase {
                Phase::Holding(holding) => match holding.state {
                    HoldState::Confirmed => return false,
                    HoldState::Assumed(id) => {
                        self.rest_on_now(who, id);
                        return false;
                    }
                    HoldState::Leaving { decision, .. } => {
                        if decision.is_some_and(|id| self.told_again(who, id)) {
                            return false;
                        }
                        // It stays for now. Whether it has to leave is decided again, with what is known by then.
                    }
                },
                _ => return false,
            }
        }
        let Some(record) = self.workloads.get_mut(who) else { return true };
        record.workload.version = known;
        let victim_of = match &record.phase {
            Phase::Holding(holding) if record.workload.priority != workload.priority => Some(holding.queue),
            _ => None,
        };
        let moves = record.workload.queue != workload.queue;
        if self.displacements.knows(who) && (moves || record.workload.pod_sets != workload.pod_sets) {
            self.displacements.forget(who);
        }
        self.withdraw(who, &workload.standing);
        if moves {
            self.lift_penalty(who);
        }
        self.forget_slice(who);
        self.forget_member(who);
        // Of another priority, it may have become a possible victim.
        if let Some(queue) = victim_of {
            self.reactivate_tree(queue);
        }
        true
    }

    fn change_requests(&mut self, who: WorkloadId, mut pod_sets: Arc<[PodSet]>, defect: Option<String>) {
        if !self.settings.topology.enabled {
            forget_wishes(&mut pod_sets);
        }
        let Some(record) = self.workloads.get_mut(who) else { return };
        if record.workload.pod_sets == pod_sets && record.workload.seldom.defect == defect {
            return;
        }
        let standing = record.workload.standing.clone();
        let waits = !matches!(record.phase, Phase::Holding(_) | Phase::Finished);
        if waits {
            self.withdraw(who, &standing);
        }
        let Some(record) = self.workloads.get_mut(who) else { return };
        record.workload.pod_sets = self.asked.share(pod_sets);
        record.workload.seldom.defect = defect;
        if record.past.refused.is_some() {
            record.past.refused = None;
        }
        record.shape = Shape::of(&record.workload, &mut self.shapes);
        if waits {
            self.place(who);
            self.say_again(who);
        } else {
            self.note_second_pass(who);
        }
    }

    /// It names its LocalQueue no longer.
    fn forget_member(&mut self, who: WorkloadId) {
        if let Some(id) = self.workloads.get(who).and_then(|record| record.local_queue) {
            self.local_queues[id].members.remove(&who);
        }
    }

    fn remove_workload(&mut self, who: WorkloadId) {
        if !self.planted.is(Bug::LeakUsage) {
            self.withdraw(who, &Standing::Finished);
        }
        self.lift_penalty(who);
        self.forget_slice(who);
        self.forget_member(who);
        self.alarms.set(who, None);
        self.unheard.remove(&who);
        self.displacements.forget(who);
        self.workloads.remove(who);
    }
}

/// As if no topology was ever heard of.
fn forget_topology(workload: &mut Workload) {
    forget_wishes(&mut workload.pod_sets);
    if let Standing::Reserved { admission, .. } = &mut workload.standing {
        let pod_sets = &mut Arc::make_mut(admission).pod_sets;
        pod_sets.iter_mut().for_each(|held| (held.topology, held.delayed) = (None, None));
    }
}

/// Pod sets of one group get the same flavors all the same.
fn forget_wishes(pod_sets: &mut Arc<[PodSet]>) {
    if pod_sets.iter().any(|pod_set| pod_set.topology.is_some()) {
        Arc::make_mut(pod_sets).iter_mut().for_each(|pod_set| pod_set.topology = None);
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

fn local_queue_of(workload: &Workload) -> Option<LocalQueueKey> {
    let queue = workload.queue.clone()?;
    Some(LocalQueueKey { namespace: workload.namespace.clone(), name: queue })
}
