//! Places of workloads on nodes: the topology of every flavor that has one, and who holds what there.
//!
//! The books are kept as those of the quota tree are: by what is held and by what is planned, changed in place, and undone
//! after a what-if. An index is made anew only when its flavor or its Topology becomes another.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use model::planted::Bug;
use model::{ResourceList, ResourceName};

use crate::engine::Engine;
use crate::few::Few;
use crate::input::{Admission, Flavor, PodSet};
use crate::names::FlavorName;
use crate::queue::Queue;
use crate::record::{HoldState, Phase};
use crate::topology::{
    Assignment, DomainPods, HOSTNAME, Node, PodSetRequest, Previous, Rules, TopologyIndex, TopologyReason,
    Trial, UsageByPlace, View,
};
use crate::tree::{Ledger, NodeId, Usage};
use crate::uid::Uid;

/// Pods of one shape on the nodes of a flavor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    /// All flavors that the pods have, of which one has a topology.
    flavors: Arc<BTreeSet<FlavorName>>,
    assignment: Arc<Assignment>,
    per_pod: Arc<ResourceList>,
}

impl Placed {
    /// Whether it counts among the nodes of this flavor: it is of the flavor, or the two tell nodes by their names and are not
    /// kept `apart`.
    fn counts_for(&self, flavor: &FlavorName, index: &TopologyIndex, apart: bool) -> bool {
        self.flavors.contains(flavor) || (!apart && index.ends_in_hosts() && self.tells_hosts())
    }

    fn tells_hosts(&self) -> bool {
        self.assignment.levels.last().is_some_and(|level| &**level == HOSTNAME)
    }
}

/// All places of a workload.
pub(crate) type Places = Arc<[Placed]>;

/// What is to be placed: by flavor, the pod sets by their number.
pub(crate) type Wishes = BTreeMap<FlavorName, Vec<(usize, PodSetRequest)>>;

/// A pod set without a place.
#[derive(Debug)]
pub(crate) struct Unplaced {
    pub(crate) pod_set: usize,
    pub(crate) flavor: FlavorName,
    pub(crate) reason: TopologyReason,
}

/// The nodes of all flavors.
#[derive(Default)]
pub(crate) struct Grounds {
    /// What is used of a node counts for the flavor alone by which it was given, not for others that have the node.
    apart: bool,
    nodes: BTreeMap<Arc<str>, Node>,
    /// Pods that were not placed here: their node and what they take of it.
    pods: BTreeMap<Uid, (Arc<str>, Arc<ResourceList>)>,
    indexes: BTreeMap<FlavorName, TopologyIndex>,
    /// Flavors whose index has to be made anew.
    outdated: BTreeSet<FlavorName>,
    journal: Vec<(Places, Ledger, i64)>,
    marks: u32,
}

impl fmt::Debug for Grounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grounds").field("nodes", &self.nodes.len()).finish_non_exhaustive()
    }
}

impl Grounds {
    /// Without nodes. `shared`: what is used of a node counts for every flavor that has it.
    pub(crate) fn new(shared: bool) -> Self {
        Self { apart: !shared, ..Self::default() }
    }

    /// A node is there, or has changed. Returns the flavors to which that may give room.
    pub(crate) fn upsert_node(&mut self, node: Node) -> Vec<FlavorName> {
        if self.nodes.get(&node.name) == Some(&node) {
            return Vec::new();
        }
        self.nodes.insert(Arc::clone(&node.name), node.clone());
        self.touched(|index| index.upsert_node(node.clone()))
    }

    /// A node is gone. Returns the flavors that had it.
    pub(crate) fn remove_node(&mut self, name: &str) -> Vec<FlavorName> {
        if self.nodes.remove(name).is_none() {
            return Vec::new();
        }
        self.touched(|index| index.remove_node(name))
    }

    fn touched(&mut self, mut touches: impl FnMut(&mut TopologyIndex) -> bool) -> Vec<FlavorName> {
        let touched = self.indexes.iter_mut().filter_map(|(name, index)| touches(index).then_some(name));
        touched.cloned().collect()
    }

    /// What a pod that was not placed here takes of its node; `None` when it is gone. Returns the flavors to which room came
    /// back.
    pub(crate) fn set_pod(
        &mut self,
        pod: Uid,
        usage: Option<(Arc<str>, Arc<ResourceList>)>,
    ) -> Vec<FlavorName> {
        let before = self.pods.get(&pod);
        if before == usage.as_ref() {
            return Vec::new();
        }
        let before = before.cloned();
        if let Some((node, amounts)) = &before {
            self.indexes.values_mut().for_each(|index| index.release_node(node, amounts));
        }
        match usage {
            Some((node, amounts)) => {
                self.indexes.values_mut().for_each(|index| index.charge_node(&node, &amounts));
                self.pods.insert(pod, (node, amounts));
            }
            None => {
                self.pods.remove(&pod);
            }
        }
        match before {
            Some((node, _)) => self.touched(|index| index.has_node(&node)),
            None => Vec::new(),
        }
    }

    /// The flavor has changed, or its Topology has.
    pub(crate) fn outdate(&mut self, flavor: FlavorName) {
        self.outdated.insert(flavor);
    }

    pub(crate) fn has_index(&self, flavor: &FlavorName) -> bool {
        self.indexes.contains_key(flavor)
    }

    fn rebuild(&mut self, name: &FlavorName, flavor: Option<&Flavor>, levels: Option<&Vec<String>>) {
        self.indexes.remove(name);
        let (Some(flavor), Some(levels)) = (flavor, levels.filter(|levels| !levels.is_empty())) else {
            return;
        };
        let levels = levels.iter().map(|level| Arc::from(level.as_str())).collect();
        let mut index = TopologyIndex::new(levels, flavor.node_labels.clone(), flavor.tolerations.clone());
        for node in self.nodes.values() {
            index.upsert_node(node.clone());
        }
        for (node, amounts) in self.pods.values() {
            index.charge_node(node, amounts);
        }
        self.indexes.insert(name.clone(), index);
    }

    /// Adds these places to one of the books or, negative, takes them out. Where nodes are leaves, other flavors that have the
    /// same nodes are told, unless they are kept apart.
    pub(crate) fn charge(&mut self, places: &Places, ledger: Ledger, sign: i64) {
        if places.is_empty() {
            return;
        }
        if self.marks > 0 {
            self.journal.push((Arc::clone(places), ledger, sign));
        }
        for placed in places.iter() {
            for (flavor, index) in &mut self.indexes {
                if placed.counts_for(flavor, index, self.apart) {
                    index.change(&placed.assignment, &placed.per_pod, ledger, sign);
                }
            }
        }
    }

    /// Whether pods are placed at all.
    pub(crate) fn has_places(&self) -> bool {
        !self.indexes.is_empty()
    }

    /// The flavors among whose nodes these places count. On a node that is gone or not ready nothing is free.
    fn concerned(&self, places: &Places) -> Vec<FlavorName> {
        let counts = |flavor: &FlavorName, index: &TopologyIndex| {
            let counts = |placed: &Placed| {
                placed.counts_for(flavor, index, self.apart) && index.has_any_of(&placed.assignment)
            };
            places.iter().any(counts)
        };
        let concerned = self.indexes.iter().filter(|(flavor, index)| counts(flavor, index));
        concerned.map(|(flavor, _)| flavor.clone()).collect()
    }

    /// Begins a what-if.
    pub(crate) fn mark(&mut self) -> usize {
        self.marks += 1;
        self.journal.len()
    }

    /// Ends the what-if begun with `mark`.
    pub(crate) fn rollback(&mut self, mark: usize) {
        let undo: Vec<_> = self.journal.drain(mark..).rev().collect();
        let marks = std::mem::replace(&mut self.marks, 0);
        for (places, ledger, sign) in undo {
            self.charge(&places, ledger, -sign);
        }
        self.marks = marks - 1;
    }

    /// Whether all pods find room in these places.
    pub(crate) fn fit(&mut self, places: &Places, view: View) -> bool {
        // Pod sets may share a place, so they are put there one after another.
        let mut fit = true;
        for placed in places.iter() {
            let own = self.indexes.iter_mut().filter(|(flavor, _)| placed.flavors.contains(*flavor));
            fit =
                own.fold(fit, |fit, (_, index)| fit && index.fits(&placed.assignment, &placed.per_pod, view));
            if !fit || places.len() == 1 {
                break;
            }
            for (flavor, index) in &mut self.indexes {
                if placed.counts_for(flavor, index, self.apart) {
                    index.assume_foreign(&placed.assignment, &placed.per_pod);
                }
            }
        }
        if places.len() > 1 {
            self.indexes.values_mut().for_each(TopologyIndex::forget_assumed);
        }
        fit
    }

    /// Finds places for all pod sets, flavor by flavor.
    ///
    /// # Errors
    /// The first pod set without a place.
    pub(crate) fn place(
        &mut self,
        wishes: &Wishes,
        rules: Rules,
        view: View,
    ) -> Result<Vec<(usize, Assignment)>, Box<Unplaced>> {
        let mut found = Vec::new();
        let mut failed = None;
        for (flavor, sets) in wishes {
            let Some(index) = self.indexes.get_mut(flavor) else { continue };
            let requests: Vec<PodSetRequest> = sets.iter().map(|(_, request)| request.clone()).collect();
            let shared = !self.apart && index.ends_in_hosts() && wishes.len() > 1;
            for (at, outcome) in index.place(&requests, rules, view).pod_sets.into_iter().enumerate() {
                match outcome {
                    None => {}
                    Some(Ok(assignment)) if failed.is_none() => {
                        if shared {
                            self.assume_elsewhere(flavor, &assignment, &requests[at]);
                        }
                        found.push((sets[at].0, assignment));
                    }
                    Some(Err(reason)) if failed.is_none() => {
                        failed =
                            Some(Box::new(Unplaced { pod_set: sets[at].0, flavor: flavor.clone(), reason }));
                    }
                    Some(_) => {}
                }
            }
            if failed.is_some() {
                break;
            }
        }
        if wishes.len() > 1 {
            self.indexes.values_mut().for_each(TopologyIndex::forget_assumed);
        }
        failed.map_or(Ok(found), Err)
    }

    /// Begins to ask whether there are places in the plan, while places of others come and go. `None`: what is asked for is not
    /// so simple.
    pub(crate) fn trial(&mut self, wishes: &Wishes, rules: Rules) -> Option<(FlavorName, Trial)> {
        if wishes.len() != 1 {
            return None;
        }
        let (flavor, sets) = wishes.first_key_value()?;
        let requests: Vec<PodSetRequest> = sets.iter().map(|(_, request)| request.clone()).collect();
        let trial = self.indexes.get_mut(flavor)?.trial(&requests, rules, View::Planned)?;
        Some((flavor.clone(), trial))
    }

    /// Usage of these places has changed since.
    pub(crate) fn update_trial(&self, (flavor, trial): &mut (FlavorName, Trial), places: &Places) {
        let Some(index) = self.indexes.get(flavor) else { return };
        for placed in places.iter() {
            if placed.counts_for(flavor, index, self.apart) {
                index.update_trial(trial, &placed.assignment);
            }
        }
    }

    /// Takes room on the nodes of other flavors that are these, too. Places that pods have already are taken there.
    fn assume_elsewhere(&mut self, flavor: &FlavorName, assignment: &Assignment, request: &PodSetRequest) {
        let new = match &request.previous {
            Some(Previous::Failed { assignment: before, .. } | Previous::Kept(before)) => {
                assignment.beyond(before)
            }
            Some(Previous::Slice(_)) | None => assignment.clone(),
        };
        let others = self.indexes.iter_mut().filter(|(name, index)| *name != flavor && index.ends_in_hosts());
        others.for_each(|(_, index)| index.assume_foreign(&new, &request.per_pod));
    }

    fn usage(&self, ledger: Ledger) -> BTreeMap<&FlavorName, UsageByPlace> {
        self.indexes.iter().map(|(flavor, index)| (flavor, index.usage(ledger))).collect()
    }
}

/// The places that an admission gives.
pub(crate) fn places_of(pod_sets: &[PodSet], admission: &Admission) -> Places {
    let mut places = Vec::new();
    for held in &admission.pod_sets {
        let Some(assignment) = &held.topology else { continue };
        let per_pod = match pod_sets.iter().find(|one| one.name == held.name) {
            Some(pod_set) => Arc::clone(&pod_set.pod_requests),
            None => Arc::new(shares(&held.usage, held.count)),
        };
        let flavors = Arc::new(held.flavors.values().cloned().collect());
        places.push(Placed { flavors, assignment: Arc::clone(assignment), per_pod });
    }
    if places.is_empty() { Places::default() } else { places.into() }
}

/// What each pod holds when all together hold so much.
fn shares(usage: &Few<ResourceName, i64>, count: i64) -> ResourceList {
    usage.iter().map(|(resource, amount)| (resource.clone(), amount / count.max(1))).collect()
}

/// Places in `after` that are not in `before`: pods that have still to be counted.
pub(crate) fn more_than(after: &Places, before: &Places) -> Places {
    let mut rest: Vec<Placed> = before.to_vec();
    let mut covered = |one: &Placed, domain: &mut DomainPods| {
        let alike = rest.iter_mut().filter(|held| held.flavors == one.flavors && held.per_pod == one.per_pod);
        for held in alike {
            let held = &mut Arc::make_mut(&mut held.assignment).domains;
            for held in held.iter_mut().filter(|held| held.values == domain.values) {
                let both = held.pods.min(domain.pods);
                held.pods -= both;
                domain.pods -= both;
            }
        }
    };
    let more = after.iter().filter_map(|one| {
        let mut assignment = (*one.assignment).clone();
        assignment.domains.iter_mut().for_each(|domain| covered(one, domain));
        assignment.domains.retain(|domain| domain.pods > 0);
        (!assignment.domains.is_empty()).then(|| Placed { assignment: Arc::new(assignment), ..one.clone() })
    });
    more.collect()
}

/// Where a what-if began, in the books of quota and in those of places.
pub(crate) struct WhatIf(usize, usize);

impl Engine {
    /// Adds quota and places to one of the books or, negative, takes them out.
    pub(crate) fn charge(&mut self, node: NodeId, usage: &Usage, places: &Places, ledger: Ledger, sign: i64) {
        self.tree.charge(node, usage, ledger, i128::from(sign));
        if !self.planted.is(Bug::ForgetPlaces) {
            self.grounds.charge(places, ledger, sign);
        }
    }

    /// Begins a what-if.
    pub(crate) fn what_if(&mut self) -> WhatIf {
        WhatIf(self.tree.mark(), self.grounds.mark())
    }

    /// Ends it: everything since is undone.
    pub(crate) fn undo(&mut self, begun: WhatIf) {
        self.tree.rollback(begun.0);
        self.grounds.rollback(begun.1);
    }

    /// Whether quota and places are free in the plan, or now.
    pub(crate) fn fits_placed(
        &mut self,
        node: NodeId,
        usage: &Usage,
        places: &Places,
        ledger: Ledger,
    ) -> bool {
        let view = match ledger {
            Ledger::Held => View::Held,
            Ledger::Planned => View::Planned,
        };
        self.fits(node, usage, ledger) && self.grounds.fit(places, view)
    }

    /// These places are free: whoever waits for some on the same nodes is looked at again, in whatever cohort.
    pub(crate) fn places_freed(&mut self, places: &Places) {
        if !places.is_empty() {
            let flavors = self.grounds.concerned(places);
            self.room_changed(&flavors);
        }
    }

    /// Flavors have more room than before, or other nodes: whoever waits for some of theirs is looked at again.
    pub(crate) fn room_changed(&mut self, flavors: &[FlavorName]) {
        if flavors.is_empty() {
            return;
        }
        self.released = true;
        for queue in self.queues_with(flavors) {
            self.reactivate(queue);
        }
    }

    /// The queues whose workloads may want these places.
    pub(crate) fn queues_beside(&self, places: &Places) -> Vec<NodeId> {
        self.queues_with(&self.grounds.concerned(places))
    }

    /// The queues with quota of any of these flavors.
    fn queues_with(&self, flavors: &[FlavorName]) -> Vec<NodeId> {
        let has = |queue: &&Queue| {
            let groups = queue.spec.iter().flat_map(|spec| &spec.groups);
            groups.flat_map(|group| &group.flavors).any(|quotas| flavors.contains(&quotas.flavor))
        };
        self.queues.iter().filter(has).map(|queue| queue.node).collect()
    }

    /// The flavor, or the Topology it names, may have become another: its index is made anew before the next decision.
    pub(crate) fn outdate_flavors_of(&mut self, topology: &str) {
        let named = self.flavors.values().filter(|flavor| flavor.topology.as_deref() == Some(topology));
        named.for_each(|flavor| self.grounds.outdate(flavor.name.clone()));
    }

    /// Makes indexes anew that are outdated, and counts on them whoever holds places or was promised some.
    pub(crate) fn renew_grounds(&mut self) {
        let outdated = std::mem::take(&mut self.grounds.outdated);
        if outdated.is_empty() {
            return;
        }
        let of_flavor = |name: &FlavorName| self.flavors.get(name);
        for name in &outdated {
            let flavor = of_flavor(name).filter(|flavor| flavor.topology.is_some());
            let levels = flavor.and_then(|flavor| self.topologies.get(flavor.topology.as_deref()?));
            self.grounds.rebuild(name, flavor, levels);
        }
        // A place on a shared node counts for every flavor that has the node, so all are counted together.
        let names: Vec<FlavorName> = self.grounds.indexes.keys().cloned().collect();
        for name in names.iter().filter(|name| !outdated.contains(*name)) {
            let flavor = self.flavors.get(name);
            let levels = flavor.and_then(|flavor| self.topologies.get(flavor.topology.as_deref()?));
            self.grounds.rebuild(name, flavor, levels);
        }
        let charges: Vec<_> = self.place_charges().collect();
        for (places, ledger) in charges {
            self.grounds.charge(&places, ledger, 1);
        }
    }

    /// What the books of places have to show.
    fn place_charges(&self) -> impl Iterator<Item = (Places, Ledger)> + '_ {
        self.workloads.in_order().flat_map(|(_, record)| {
            let (mut held, mut planned) = (Vec::new(), None);
            match &record.phase {
                Phase::Holding(holding) => {
                    held.push(Arc::clone(&holding.places));
                    held.extend(holding.vacating.clone());
                    if !matches!(holding.state, HoldState::Leaving { .. }) {
                        planned =
                            Some(holding.promised.clone().unwrap_or_else(|| Arc::clone(&holding.places)));
                    }
                }
                Phase::Claiming(claim) => planned = Some(Arc::clone(&claim.places)),
                _ => {}
            }
            let held = held.into_iter().map(|places| (places, Ledger::Held));
            held.chain(planned.map(|places| (places, Ledger::Planned)))
        })
    }

    /// Compares the books of places with a count from scratch.
    pub(crate) fn audit_places(&self) -> Result<(), String> {
        if !self.grounds.outdated.is_empty() {
            return Ok(());
        }
        let mut counted = Grounds {
            nodes: self.grounds.nodes.clone(),
            pods: self.grounds.pods.clone(),
            apart: self.grounds.apart,
            ..Grounds::default()
        };
        for name in self.grounds.indexes.keys() {
            let flavor = self.flavors.get(name);
            let levels = flavor.and_then(|flavor| self.topologies.get(flavor.topology.as_deref()?));
            counted.rebuild(name, flavor, levels);
        }
        for (places, ledger) in self.place_charges() {
            counted.charge(&places, ledger, 1);
        }
        for ledger in [Ledger::Held, Ledger::Planned] {
            let (kept, counted) = (self.grounds.usage(ledger), counted.usage(ledger));
            if kept != counted {
                return Err(format!("places, {ledger:?}: kept {kept:?}, counted {counted:?}"));
            }
        }
        Ok(())
    }
}
