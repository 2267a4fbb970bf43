//! Places for the pod sets that want some, on the flavors that they were found.
//!
//! Rules: Kueue `pkg/scheduler/flavorassigner/tas_flavorassigner.go` and the end of `assignFlavors`.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::scan::Scan;
use super::{FlavorAssignment, FlavorChoice, Mode, PodSetFlavors, TopologyDefect};
use crate::engine::Engine;
use crate::few::Few;
use crate::input::{Admission, DelayedTopology, PodSet, Workload};
use crate::names::FlavorName;
use crate::places::{Unplaced, Wishes};
use crate::preempt::Target;
use crate::reason::{Hindrance, Obstacle};
use crate::topology::{PodSetRequest, Previous, SelectorConflict, Spread, View};
use crate::tree::{Ledger, NodeId};

impl Engine {
    /// Whether a queue has flavors with a topology only: then all pods are placed by topology, asked or not.
    pub(crate) fn places_all(&self, queue: NodeId) -> bool {
        let spec = self.queues[queue].spec.as_ref();
        let mut flavors = spec.into_iter().flat_map(|spec| &spec.groups).flat_map(|group| &group.flavors);
        let has = |name: &FlavorName| self.flavors.get(name).is_some_and(|flavor| flavor.topology.is_some());
        flavors.all(|quotas| has(&quotas.flavor))
    }

    /// Places for `found` when these have left.
    pub(super) fn place_without(
        &mut self,
        found: &mut FlavorAssignment,
        wishes: &Wishes,
        targets: &[Target],
    ) {
        if wishes.is_empty() {
            return;
        }
        let begun = self.what_if();
        for target in targets {
            self.charge(target.queue, &target.usage, &target.places, Ledger::Planned, -1);
        }
        self.place_in(found, wishes, View::Planned);
        self.undo(begun);
    }

    /// Writes the places that there are in this view into `found`; none if there are not enough.
    pub(super) fn place_in(&mut self, found: &mut FlavorAssignment, wishes: &Wishes, view: View) {
        if let Ok(places) = self.grounds.place(wishes, self.settings.topology.rules, view) {
            for (index, assignment) in places {
                found.pod_sets[index].set_places(assignment);
            }
        }
    }
}

impl PodSetFlavors {
    fn set_places(&mut self, assignment: super::Topology) {
        self.topology = Some(Arc::new(assignment));
        self.delayed = self.delayed.map(|_| DelayedTopology::Ready);
    }

    fn set_mode(&mut self, mode: Mode) {
        self.flavors.values_mut().for_each(|choice| choice.mode = mode);
    }
}

impl Scan<'_> {
    /// The flavors that the workload holds already, with the places that it has.
    pub(super) fn keep(&mut self, pod_sets: &[PodSet], held: &Admission) {
        for pod_set in pod_sets {
            let Some(held) = held.pod_sets.iter().find(|one| one.name == pod_set.name) else { continue };
            let choice = |flavor: &FlavorName| FlavorChoice {
                flavor: flavor.clone(),
                mode: Mode::Fit,
                height: 0,
                tried: None,
            };
            let flavors = held.flavors.iter();
            self.found.pod_sets.push(PodSetFlavors {
                name: pod_set.name.clone(),
                count: held.count,
                requests: held.usage.clone(),
                flavors: flavors.map(|(resource, flavor)| (resource.clone(), choice(flavor))).collect(),
                obstacles: Vec::new(),
                topology_defect: None,
                topology: held.topology.clone(),
                delayed: held.delayed,
                attempts: Few::new(),
                hindrance: None,
            });
        }
    }

    /// What wants places, by flavor. Where it cannot be placed on the flavors it got, that is noted.
    pub(super) fn wishes(&mut self, pod_sets: &[PodSet]) -> Wishes {
        let mut wishes = Wishes::new();
        let Some(record) = self.engine.workloads.get(self.who) else { return wishes };
        let workload = &record.workload;
        let places_all = self.places_all;
        // Who was placed unasked stays so, whatever flavors its queue has got since.
        let held = self.ask.held.map_or(&[][..], |held| &held.pod_sets);
        let is_placed = |set: &PodSet| held.iter().any(|one| one.name == set.name && one.topology.is_some());
        for pod_set in pod_sets.iter().filter(|one| one.topology.is_some() || places_all || is_placed(one)) {
            let Some(index) = self.found.pod_sets.iter().position(|one| one.name == pod_set.name) else {
                continue;
            };
            let found = &self.found.pod_sets[index];
            let settled = found.topology.as_ref().is_some_and(|places| {
                let hosts = places.domains.iter().filter_map(|domain| domain.values.last());
                !hosts.into_iter().any(|host| workload.seldom.unhealthy_nodes.contains(host))
            });
            // What it asks for counts nowhere: then it has no flavor, and no nodes of one.
            let is_uncounted = found.flavors.is_empty() && !pod_set.requests.is_empty();
            if found.count == 0 || settled || is_uncounted {
                continue;
            }
            if self.is_resized_in_a_domain(workload, pod_set) {
                self.found.pod_sets[index].topology_defect = Some(TopologyDefect::Elastic);
                continue;
            }
            let flavor = match self.only_flavor(found) {
                Ok(flavor) => flavor,
                Err(defect) => {
                    self.found.pod_sets[index].topology_defect = Some(defect);
                    continue;
                }
            };
            if self.is_first_pass() && self.queue.provisioned.contains(&flavor) {
                self.found.pod_sets[index].delayed = Some(DelayedTopology::Pending);
                continue;
            }
            let request = self.request(workload, pod_set, &self.found.pod_sets[index]);
            wishes.entry(flavor).or_default().push((index, request));
        }
        wishes
    }

    /// Whether the pods are to be kept to a domain though the job may be resized. Kueue refuses that where slices of such a job
    /// are placed upon one another, and only there.
    fn is_resized_in_a_domain(&self, workload: &Workload, pod_set: &PodSet) -> bool {
        let spread = pod_set.topology.as_ref().map(|wish| &wish.spread);
        self.engine.is_placed_upon_another(workload)
            && matches!(spread, Some(Spread::Required(_) | Spread::Preferred(_)))
    }

    /// Pods that are placed by topology need exactly one flavor that has one.
    fn only_flavor(&self, found: &PodSetFlavors) -> Result<FlavorName, TopologyDefect> {
        let mut of_queue = self.queue.groups.iter().flat_map(|group| &group.flavors);
        if !of_queue.any(|quotas| self.has_topology(&quotas.flavor)) {
            return Err(TopologyDefect::NoTopology);
        }
        let flavors = found.flavors.values().map(|choice| &choice.flavor);
        let flavors: BTreeSet<&FlavorName> = flavors.filter(|flavor| self.has_topology(flavor)).collect();
        match flavors.len() {
            1 => flavors.into_iter().next().cloned().ok_or(TopologyDefect::NoFlavor),
            0 => Err(TopologyDefect::NoFlavor),
            _ => Err(TopologyDefect::ManyFlavors(flavors.into_iter().cloned().collect())),
        }
    }

    fn request(&self, workload: &Workload, pod_set: &PodSet, found: &PodSetFlavors) -> PodSetRequest {
        let (spread, layers) = match &pod_set.topology {
            Some(wish) => (wish.spread.clone(), wish.layers.clone()),
            None => (Spread::Unconstrained, Vec::new()),
        };
        let mut node_selector = pod_set.node_selector.clone();
        let mut tolerations = pod_set.tolerations.clone();
        let mut conflict = None;
        for update in workload.seldom.updates.iter().filter(|update| update.name == pod_set.name) {
            conflict = conflict
                .or_else(|| update.conflict.clone())
                .or_else(|| SelectorConflict::between(&node_selector, &update.node_selector));
            node_selector.extend(update.node_selector.clone());
            tolerations.extend(update.tolerations.iter().cloned());
        }
        let fixed = !workload.movable && self.engine.settings.topology.keep_single_pods;
        // One failed node at a time is replaced.
        let previous =
            workload.seldom.unhealthy_nodes.first().zip(found.topology.as_ref()).map(|(node, places)| {
                let assignment = (**places).clone();
                match fixed {
                    true => Previous::Kept(assignment),
                    false => Previous::Failed { assignment, node: Arc::clone(node) },
                }
            });
        let previous = previous.or_else(|| self.places_before(workload, pod_set).map(Previous::Slice));
        PodSetRequest {
            count: found.count,
            per_pod: (*pod_set.pod_requests).clone(),
            spread,
            layers,
            group: pod_set.group.as_deref().map(Arc::from),
            node_selector,
            conflict,
            affinity: pod_set.affinity.clone(),
            preferences: pod_set.preferences.clone(),
            tolerations,
            previous,
        }
    }

    /// The places of the slice to which it adds, where slices are placed upon one another.
    fn places_before(&self, workload: &Workload, pod_set: &PodSet) -> Option<super::Topology> {
        let before = self.ask.replaced.filter(|_| self.engine.is_placed_upon_another(workload))?;
        let before = before.pod_sets.iter().find(|one| one.name == pod_set.name)?;
        before.topology.as_deref().cloned()
    }

    /// Finds places: now, or when those who leave have left. Where there are none, others would have to leave; and if that
    /// would not do either, the flavors do not serve. Returns whether all have a place.
    pub(super) fn find_places(&mut self, wishes: &Wishes) -> bool {
        if wishes.is_empty() {
            return true;
        }
        let mode = self.found.mode();
        if matches!(mode, Mode::Fit | Mode::Deferred) {
            match self.place_now(wishes, mode) {
                Ok(()) => return true,
                Err(unplaced) => {
                    let pod_set = &mut self.found.pod_sets[unplaced.pod_set];
                    pod_set.obstacles.push(Obstacle::NoPlaces(unplaced.flavor, Box::new(unplaced.reason)));
                    pod_set.obstacles.sort();
                    pod_set.set_mode(Mode::Preempt);
                }
            }
        }
        if self.found.mode() != Mode::Preempt {
            return false;
        }
        if self.replaces_node() {
            // For a failed node's pods nobody is displaced.
            self.found.pod_sets.iter_mut().for_each(|pod_set| pod_set.set_mode(Mode::NoFit));
            return false;
        }
        match self.engine.grounds.place(wishes, self.engine.settings.topology.rules, View::Empty) {
            Ok(_) => {
                let all: Vec<usize> = wishes.values().flatten().map(|(index, _)| *index).collect();
                all.into_iter().for_each(|index| self.found.pod_sets[index].set_mode(Mode::Preempt));
            }
            Err(unplaced) => self.never_placed(*unplaced),
        }
        false
    }

    /// Whether places are looked for because a node failed.
    fn replaces_node(&self) -> bool {
        let record = self.engine.workloads.get(self.who);
        record.is_some_and(|record| !record.workload.seldom.unhealthy_nodes.is_empty())
    }

    fn never_placed(&mut self, unplaced: Unplaced) {
        let pod_set = &mut self.found.pod_sets[unplaced.pod_set];
        if let Some(attempt) = pod_set.attempts.get_mut(&unplaced.flavor) {
            (attempt.mode, attempt.hindrance) = (Mode::NoFit, Some(Hindrance::Placement));
        }
        if pod_set.obstacles.is_empty() {
            pod_set.obstacles.push(Obstacle::NoPlaces(unplaced.flavor, Box::new(unplaced.reason)));
        }
        pod_set.set_mode(Mode::NoFit);
    }

    fn place_now(&mut self, wishes: &Wishes, mode: Mode) -> Result<(), Box<Unplaced>> {
        let rules = self.engine.settings.topology.rules;
        let now = match mode {
            Mode::Fit => self.engine.grounds.place(wishes, rules, View::Now),
            _ => self.engine.grounds.place(wishes, rules, View::Planned),
        };
        let places = match now {
            Err(unplaced) if mode == Mode::Fit => {
                match self.engine.grounds.place(wishes, rules, View::Planned) {
                    Ok(later) => {
                        self.waits = true;
                        later
                    }
                    Err(_) => return Err(unplaced),
                }
            }
            other => other?,
        };
        for (index, assignment) in places {
            self.found.pod_sets[index].set_places(assignment);
        }
        Ok(())
    }
}
