//! What there is to admit into: queues, cohorts, flavors and checks, and who uses them.

use std::collections::BTreeSet;

use crds::view::admission_check::AdmissionCheck;
use crds::view::cluster_queue::{AdmissionCheckRule, ClusterQueue};
use crds::view::cohort::Cohort;
use crds::view::flavor::ResourceFlavor;
use crds::view::local_queue::LocalQueue;
use quota_engine::{CheckName, ClusterQueueName, CohortName, Engine, Event, LocalQueueKey, Uid};

use super::{Unit, World};
use crate::controller::store::Delta;
use crate::{input, status, surroundings};

impl World {
    /// Tells webhooks of a LocalQueue by the default name that is there or gone.
    fn tell_default_queue(&self, key: &LocalQueueKey) {
        if &*key.name != surroundings::DEFAULT {
            return;
        }
        let is_there = self.local_queues_by_key.get(key).is_some();
        self.surroundings.send_if_modified(|told| match is_there {
            true => told.queues.insert(key.namespace.to_string()),
            false => told.queues.remove(&*key.namespace),
        });
    }

    pub(super) fn cohort_changed(&mut self, engine: &mut Engine, delta: Delta<Cohort>) {
        match delta {
            Delta::Upsert(uid) => {
                let cohort = input::cohort(&self.cohorts_get(&uid));
                self.dirty.insert(Unit::Cohort(cohort.name.clone()));
                self.cohorts_by_name.insert(cohort.name.clone(), uid.clone());
                engine.apply(Event::Cohort(cohort));
                self.changed_cohorts.insert(uid);
            }
            Delta::Gone(view) => {
                let name = view.metadata.name.as_deref().unwrap_or_default();
                let (name, uid) = (CohortName::from(name), input::uid(&view.metadata));
                if self.cohorts_by_name.remove(&name, &uid) {
                    self.dirty.insert(Unit::Cohort(name.clone()));
                }
                self.gone_queues.push(Unit::Cohort(name.clone()));
                engine.apply(Event::CohortGone(name, uid));
            }
        }
    }

    pub(in crate::controller) fn cohorts_get(&self, uid: &Uid) -> Cohort {
        self.cohorts.get(uid).cloned().unwrap_or_default()
    }

    pub(in crate::controller) fn cohort(&self, name: &CohortName) -> Option<&Cohort> {
        self.cohorts.get(self.cohorts_by_name.get(name)?)
    }

    /// Takes the answer to a write of a Cohort's status.
    pub(in crate::controller) fn take_cohort(&mut self, view: Cohort) {
        self.cohorts.upsert(view);
    }

    /// Takes the answer to a write of a queue's status.
    pub(in crate::controller) fn take_cluster_queue(&mut self, view: ClusterQueue) {
        self.cluster_queues.upsert(view);
    }

    /// Takes the answer to a write of a queue's status.
    pub(in crate::controller) fn take_local_queue(&mut self, view: LocalQueue) {
        self.local_queues.upsert(view);
    }

    /// Takes the answer to a write of a flavor's finalizer.
    pub(in crate::controller) fn take_flavor(&mut self, view: ResourceFlavor) {
        let name = view.metadata.name.clone().unwrap_or_default();
        if self.flavors.upsert(view.clone()).is_some() && self.flavors_by_name.contains_key(&name) {
            self.flavors_by_name.insert(name, view);
        }
    }

    /// Whether a ClusterQueue has quota of this flavor.
    pub(in crate::controller) fn uses_flavor(&self, name: &str) -> bool {
        self.cluster_queues.any(|queue| {
            let mut named = queue.spec.resource_groups.iter().flat_map(|group| &group.flavors);
            named.any(|flavor| flavor.name == name)
        })
    }

    /// Whether a flavor has this topology.
    pub(in crate::controller) fn uses_topology(&self, name: &str) -> bool {
        self.flavors_by_name.values().any(|flavor| flavor.spec.topology_name.as_deref() == Some(name))
    }

    /// Flavors that may have lost their last ClusterQueue.
    pub(super) fn flavors_dirty(&mut self) {
        let going = self.flavors_by_name.iter().filter(|(_, one)| one.metadata.deletion_timestamp.is_some());
        self.dirty.extend(going.map(|(name, _)| Unit::Flavor(name.as_str().into())));
    }

    pub(super) fn cluster_queue_changed(&mut self, engine: &mut Engine, delta: Delta<ClusterQueue>) {
        match delta {
            Delta::Upsert(uid) => {
                let Some(view) = self.cluster_queues.get(&uid) else { return };
                let spec = input::cluster_queue(view, &self.rules);
                let (name, rules) =
                    (spec.name.clone(), view.spec.admission_checks_strategy.admission_checks.clone());
                self.queues_by_name.insert(name.clone(), uid);
                // An edit that is none to the engine is to be acknowledged all the same.
                let is_news =
                    self.config.shows_labels() || !status::is_current(&view.status, view.metadata.generation);
                self.dirty.extend(is_news.then(|| Unit::ClusterQueue(name.clone())));
                engine.apply(Event::ClusterQueue(spec));
                self.check_rules_changed(name, rules);
            }
            Delta::Gone(view) => {
                let uid = input::uid(&view.metadata);
                let name = ClusterQueueName::from(view.metadata.name.as_deref().unwrap_or_default());
                let is_free = self.queues_by_name.remove(&name, &uid);
                self.gone_queues.push(Unit::ClusterQueue(name.clone()));
                engine.apply(Event::ClusterQueueGone(name.clone(), uid));
                if is_free {
                    self.check_rules_changed(name, Vec::new());
                }
            }
        }
        self.flavors_dirty();
    }

    /// Workloads with quota of a queue that asks for other checks than before have others to pass. Those that wait list those that
    /// they will have to pass, and may be held up by one that is not asked for any more. And checks may have lost their last queue.
    fn check_rules_changed(&mut self, name: ClusterQueueName, rules: Vec<AdmissionCheckRule>) {
        let before = self.check_rules.get(&name).map_or(&[] as &[_], Vec::as_slice);
        if before == rules {
            return;
        }
        let leads_to = self.local_queues.iter().filter(|queue| queue.spec.cluster_queue == name.as_str());
        let keys: BTreeSet<LocalQueueKey> = leads_to.map(|queue| input::local_queue(queue).key).collect();
        self.workloads_dirty(|kept| match kept.cluster_queue() {
            Some(queue) => queue == name.as_str(),
            None => {
                (kept.lists_checks() || !rules.is_empty())
                    && kept.local_queue().is_some_and(|key| keys.contains(&key))
            }
        });
        match rules.is_empty() {
            true => self.check_rules.remove(&name),
            false => self.check_rules.insert(name, rules),
        };
        let going = self.checks.iter().filter(|check| check.metadata.deletion_timestamp.is_some());
        let names = going.map(|check| check.metadata.name.as_deref().unwrap_or_default().into());
        self.dirty.extend(names.map(Unit::Check));
    }

    /// Whether a ClusterQueue asks for this check.
    pub(in crate::controller) fn uses_check(&self, name: &CheckName) -> bool {
        self.check_rules.values().flatten().any(|rule| rule.name == name.as_str())
    }

    pub(in crate::controller) fn check(&self, name: &CheckName) -> Option<&AdmissionCheck> {
        self.checks.get(self.checks_by_name.get(name)?)
    }

    /// Takes the answer to a write of a check.
    pub(in crate::controller) fn take_check(&mut self, engine: &mut Engine, view: AdmissionCheck) {
        if let Some(uid) = self.checks.upsert(view) {
            self.check_changed(engine, Delta::Upsert(uid));
        }
    }

    pub(super) fn check_changed(&mut self, engine: &mut Engine, delta: Delta<AdmissionCheck>) {
        match delta {
            Delta::Upsert(uid) => {
                let Some(view) = self.checks.get(&uid) else { return };
                let check = input::admission_check(view);
                self.dirty.insert(Unit::Check(check.name.clone()));
                self.users_of_check_dirty(&check.name);
                self.checks_by_name.insert(check.name.clone(), uid);
                engine.apply(Event::AdmissionCheck(check));
            }
            Delta::Gone(view) => {
                let check = input::admission_check(&view);
                self.checks_by_name.remove(&check.name, &check.uid);
                engine.apply(Event::AdmissionCheckGone(check.name, check.uid));
            }
        }
    }

    pub(super) fn local_queue_changed(&mut self, engine: &mut Engine, delta: Delta<LocalQueue>) {
        match delta {
            Delta::Upsert(uid) => {
                let Some(view) = self.local_queues.get(&uid) else { return };
                let queue = input::local_queue(view);
                let key = queue.key.clone();
                self.local_queues_by_key.insert(key.clone(), uid);
                let is_news = self.config.minds_labels_of_local_queues()
                    || !status::is_current(&view.status, view.metadata.generation);
                self.dirty.extend(is_news.then(|| Unit::LocalQueue(key.clone().into())));
                self.tell_default_queue(&key);
                let history = input::history(view);
                engine.apply(Event::LocalQueue(queue));
                if let Some(consumed) = history {
                    engine.apply(Event::LocalQueueHistory(key, consumed));
                }
            }
            Delta::Gone(view) => {
                let (uid, key) = (input::uid(&view.metadata), input::local_queue_key(&view.metadata));
                self.local_queues_by_key.remove(&key, &uid);
                self.gone_queues.push(Unit::LocalQueue(key.clone().into()));
                self.tell_default_queue(&key);
                engine.apply(Event::LocalQueueGone(key, uid));
            }
        }
    }

    pub(super) fn flavor_changed(&mut self, engine: &mut Engine, delta: Delta<ResourceFlavor>) {
        match delta {
            Delta::Upsert(uid) => {
                let Some(view) = self.flavors.get(&uid) else { return };
                let name = view.metadata.name.clone().unwrap_or_default();
                let places =
                    view.spec.topology_name.is_some() && self.config.feature_gates.topology_aware_scheduling;
                self.flavors_by_name.insert(name.clone(), view.clone());
                self.dirty.insert(Unit::Flavor(name.as_str().into()));
                self.dirty.extend(self.ground.going_topologies().map(|name| Unit::Topology(name.into())));
                engine.apply(Event::Flavor(input::flavor(view)));
                if places {
                    self.want_ground();
                }
                // A job that was admitted to it can start now.
                self.all_jobs_dirty();
            }
            Delta::Gone(view) => {
                let (uid, name) =
                    (input::uid(&view.metadata), view.metadata.name.clone().unwrap_or_default());
                if self.flavors_by_name.get(&name).is_some_and(|known| input::uid(&known.metadata) == uid) {
                    self.flavors_by_name.remove(&name);
                }
                self.dirty.extend(self.ground.going_topologies().map(|name| Unit::Topology(name.into())));
                engine.apply(Event::FlavorGone(name.as_str().into(), uid));
            }
        }
    }

    pub(in crate::controller) fn cluster_queue(&self, name: &ClusterQueueName) -> Option<&ClusterQueue> {
        self.cluster_queues.get(self.queues_by_name.get(name)?)
    }

    /// The LocalQueues of a namespace, by name.
    pub(in crate::controller) fn local_queues_of(&self, namespace: &str) -> Vec<LocalQueueKey> {
        let of_it = |queue: &&LocalQueue| queue.metadata.namespace.as_deref() == Some(namespace);
        let names = self.local_queues.iter().filter(of_it).filter_map(|queue| queue.metadata.name.as_deref());
        let mut keys: Vec<LocalQueueKey> = names.map(|name| LocalQueueKey::new(namespace, name)).collect();
        keys.sort_unstable();
        keys
    }

    pub(in crate::controller) fn local_queue(&self, key: &LocalQueueKey) -> Option<&LocalQueue> {
        self.local_queues.get(self.local_queues_by_key.get(key)?)
    }
}
