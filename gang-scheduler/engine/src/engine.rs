//! The engine: what it is told, and what follows from it.

mod decide;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::planted::{Bug, Planted};

use crate::devices::DeviceChoice;
use crate::event::{Event, GangSpec, PodInfo, PodPhase};
use crate::gang::{Census, Gang, Pod, Spot};
use crate::ids::{GangId, PodUid};
use crate::nodes::{Load, Nodes};
use crate::reason::{Refusal, Why};
use crate::shape::Shapes;
use crate::solve::to_u32;

/// The engine's constants.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// A running gang below its minimum is repaired for so long, then undone. Milliseconds. One minute: a job controller
    /// recreates a pod within seconds, and a node that is only being restarted comes back.
    pub repair_patience_ms: i64,
    /// The first pause after a refusal; it doubles with each further one, until none came for twice the longest. Milliseconds. One second, as
    /// kube-scheduler's initial backoff.
    pub first_pause_ms: i64,
    /// The longest pause. Milliseconds.
    pub longest_pause_ms: i64,
    /// How long a node that refused is left alone. Milliseconds. Half a minute: a kubelet's books are right again by then,
    /// and a gang that fits nowhere else is repaired there before [`Self::repair_patience_ms`] ends.
    pub avoid_ms: i64,
    /// A bug on purpose, for testing the tests.
    pub planted: Planted,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            repair_patience_ms: 60_000,
            first_pause_ms: 1_000,
            longest_pause_ms: 60_000,
            avoid_ms: 30_000,
            planted: Planted::NONE,
        }
    }
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Bind these pods there. Two or more belong together: make the plan durable first. They are assumed from now on.
    Place(Plan),
    /// Say why these pods wait. Given when it changes.
    Pending(Pending),
    /// A gang cannot be brought back to its minimum: delete these pods, so that their controller starts anew.
    Undo(Undo),
}

/// Nodes for pods of one gang.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The gang.
    pub gang: GangId,
    /// The gang's minimum at the time.
    pub min_member: u32,
    /// The pods and their nodes, by length of name and name.
    pub members: Vec<Placement>,
}

/// A node for a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The pod.
    pub pod: PodUid,
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// The node's name.
    pub node: Arc<str>,
    /// The devices chosen; empty when the node's agent is to choose.
    pub devices: DeviceChoice,
}

/// Why pods of a gang wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The gang.
    pub gang: GangId,
    /// Why the gang waits, or its first pod.
    pub why: Why,
    /// Why each waiting pod waits.
    pub pods: BTreeMap<PodUid, Why>,
}

/// A gang to be taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undo {
    /// The gang.
    pub gang: GangId,
    /// Bound members whose controller recreates them: to be deleted, with their uid as precondition.
    pub delete: Vec<(PodUid, Arc<str>, Arc<str>)>,
    /// Bound members without a controller: kept, and planned around.
    pub kept: Vec<PodUid>,
    /// So many members ran, and so many must.
    pub running: u32,
    /// The minimum.
    pub min_member: u32,
}

/// Where a gang stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GangReport {
    /// Its minimum.
    pub min_member: u32,
    /// Members that exist and have not ended.
    pub members: u32,
    /// Members bound.
    pub bound: u32,
    /// Members with a node that the server has not confirmed.
    pub assumed: u32,
    /// Members that succeeded.
    pub succeeded: u32,
    /// Members that failed.
    pub failed: u32,
    /// Why it waits, when it does.
    pub why: Option<Why>,
    /// Its bound members are being deleted.
    pub undoing: bool,
}

/// How many pods wait, and for what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// A refusal was not long ago.
    pub backoff: usize,
    /// They do not fit, members are missing, or something holds them.
    pub unschedulable: usize,
    /// They have scheduling gates.
    pub gated: usize,
}

/// Everything placement depends on, and the decisions that follow from it.
#[derive(Clone, Debug, Default)]
pub struct Engine {
    config: Config,
    nodes: Nodes,
    shapes: Shapes,
    pods: BTreeMap<PodUid, Pod>,
    gangs: BTreeMap<GangId, Gang>,
    /// Gangs that may need a decision.
    open: BTreeSet<GangId>,
    /// Grows whenever something that did not fit might fit now.
    freed: u64,
    deadline: Option<i64>,
}

impl Engine {
    /// An engine that knows nothing yet.
    pub fn new(config: Config) -> Self {
        Self { config, freed: 1, ..Self::default() }
    }

    /// Takes in what happened. `now_ms`: milliseconds of a clock that goes on evenly, whatever becomes of the wall clock.
    pub fn apply(&mut self, now_ms: i64, event: Event) {
        match event {
            Event::NodeApplied(info) => {
                if self.nodes.apply(info) {
                    self.freed += 1;
                }
            }
            Event::NodeDeleted(name) => self.nodes.delete(&name),
            Event::DevicesApplied { node, devices } => self.nodes.set_devices(&node, devices),
            Event::PodApplied(info) => self.pod_applied(now_ms, *info),
            Event::PodDeleted(uid) => self.detach(&uid),
            Event::GangApplied(spec) => self.gang_applied(spec),
            Event::GangDeleted(id) => self.gang_deleted(&id),
            Event::BindRefused { pod, problem } => self.bind_refused(now_ms, &pod, problem),
            Event::PlanRefused { gang, problem } => {
                self.pause(now_ms, &gang, Refusal { place: None, problem });
            }
            Event::PlacementDropped(uid) => self.drop_assumed(&uid),
            Event::PlanFound(members) => {
                for (uid, node, devices) in members {
                    self.adopt(&uid, &node, devices);
                }
            }
            Event::UndoFailed(uid) => self.undo_failed(&uid),
            Event::StoodDown => {
                let assumed: Vec<PodUid> = self
                    .pods
                    .iter()
                    .filter(|(_, pod)| matches!(pod.spot, Spot::Assumed(_)))
                    .map(|(uid, _)| uid.clone())
                    .collect();
                for uid in assumed {
                    self.drop_assumed(&uid);
                }
                self.pods.values_mut().for_each(|pod| pod.undone = false);
                for gang in self.gangs.values_mut() {
                    gang.said = None;
                    gang.dirty = true;
                }
                self.open = self.gangs.keys().cloned().collect();
            }
        }
    }

    /// When [`Engine::decide`] must be asked again even if nothing happens, by the same clock.
    pub fn next_deadline(&self) -> Option<i64> {
        self.deadline
    }

    /// The node and devices that a decision of this engine, or a plan it was told of, gives a pod, as long as the server
    /// has neither confirmed nor refused it.
    pub fn assumed(&self, uid: &PodUid) -> Option<(&Arc<str>, &DeviceChoice)> {
        let pod = self.pods.get(uid)?;
        match pod.spot {
            Spot::Assumed(node) => Some((self.nodes.name(node), &pod.load.devices)),
            _ => None,
        }
    }

    /// Whether an assumed placement could still be decided: the node is there, nothing about it keeps the pod out, and the
    /// pod is still to run.
    pub fn still_suits(&mut self, uid: &PodUid) -> bool {
        let Some(Pod { info, shape: Some(shape), spot: Spot::Assumed(node), .. }) = self.pods.get(uid) else {
            return false;
        };
        !info.deleting
            && self.nodes.find_present(self.nodes.name(*node)).is_some()
            && self.shapes.verdict(&self.nodes, *shape, *node, self.config.planted).is_none()
    }

    /// Where a gang stands.
    pub fn report(&self, id: &GangId) -> Option<GangReport> {
        let gang = self.gangs.get(id)?;
        let census = Census::of(&gang.members, &self.pods);
        let living = census.waiting.len() + census.held.len() + census.gated + census.placed();
        Some(GangReport {
            min_member: gang.spec.as_ref().map_or(0, |spec| spec.min_member),
            members: to_u32(living),
            bound: to_u32(census.bound.len()),
            assumed: to_u32(census.assumed),
            succeeded: to_u32(census.succeeded),
            failed: to_u32(census.failed),
            why: gang.said.as_ref().map(|(why, _)| why.clone()),
            undoing: census.undone > 0,
        })
    }

    /// How many pods wait, as of the last decision.
    pub fn waiting(&self) -> Waiting {
        let mut waiting = Waiting::default();
        for gang in self.open.iter().filter_map(|id| self.gangs.get(id)) {
            waiting.gated += gang.gated;
            match &gang.said {
                Some((Why::BackingOff { .. }, pods)) => waiting.backoff += pods.len(),
                Some((_, pods)) => waiting.unschedulable += pods.len(),
                None => {}
            }
        }
        waiting
    }

    /// The gangs, by id.
    pub fn gangs(&self) -> impl Iterator<Item = &GangId> {
        self.gangs.keys()
    }

    /// The members of a gang, by uid.
    pub fn members(&self, id: &GangId) -> impl Iterator<Item = &PodInfo> {
        self.gangs
            .get(id)
            .into_iter()
            .flat_map(|gang| &gang.members)
            .filter_map(|uid| self.pods.get(uid))
            .map(|pod| &pod.info)
    }

    /// A pod as last told.
    pub fn pod(&self, uid: &PodUid) -> Option<&PodInfo> {
        self.pods.get(uid).map(|pod| &pod.info)
    }

    /// Compares the running sums with a count from scratch.
    ///
    /// # Errors
    /// The first node and resource that differ. It means a bug here.
    pub fn verify(&self) -> Result<(), String> {
        let mut counted = BTreeMap::new();
        for pod in self.pods.values() {
            let Some(node) = pod.spot.node() else { continue };
            for &(resource, amount) in &pod.load.demands {
                *counted
                    .entry((self.nodes.name(node).clone(), self.nodes.resource(resource).clone()))
                    .or_insert(0) += amount;
            }
        }
        let usage = self.nodes.usage();
        let mut keys = counted.keys().chain(usage.keys());
        match keys.find(|key| counted.get(key) != usage.get(key)) {
            None => Ok(()),
            Some(key) => Err(format!(
                "node {}, {}: {:?} counted, {:?} summed up",
                key.0,
                key.1,
                counted.get(key),
                usage.get(key)
            )),
        }
    }

    fn touch(&mut self, id: &GangId) {
        if let Some(gang) = self.gangs.get_mut(id) {
            gang.dirty = true;
            self.open.insert(id.clone());
        }
    }

    /// The pod may stay, and counts again for the gang in which it is by now.
    fn undo_failed(&mut self, uid: &PodUid) {
        let Some(pod) = self.pods.get_mut(uid).filter(|pod| pod.undone) else { return };
        pod.undone = false;
        let Some(id) = pod.info.gang.clone() else { return };
        if let Some(gang) = self.gangs.get_mut(&id) {
            gang.below_since = None;
        }
        self.touch(&id);
    }

    fn pod_applied(&mut self, now_ms: i64, info: PodInfo) {
        let old = self.pods.get(&info.uid);
        if old.is_some_and(|old| old.info == info) {
            return;
        }
        let was = old.map_or(Spot::Nowhere, |old| old.spot);
        let newly_rejected =
            info.phase == PodPhase::Rejected && old.is_none_or(|old| old.info.phase != PodPhase::Rejected);
        let devices = match old {
            Some(old) if info.devices.is_empty() => old.load.devices.clone(),
            _ => info.devices.clone(),
        };
        // By name: an absent node's row goes with its last pod, and comes back below.
        let (assumed, node) = match (&info.phase, &info.node, was) {
            (PodPhase::Active, Some(node), _) => (false, Some(node.clone())),
            // An event that is older than what we know, or than the bind we sent.
            (PodPhase::Active, None, was) => {
                (matches!(was, Spot::Assumed(_)), was.node().map(|node| self.nodes.name(node).clone()))
            }
            _ => (false, None),
        };
        // One that has ended meanwhile, be it well, is deleted all the same: it counts for nothing that comes after it.
        let undone = !info.deleting && old.is_some_and(|old| old.undone);
        self.detach(&info.uid);
        if newly_rejected && let (Some(gang), Some(node)) = (&info.gang, &info.node) {
            let problem = info.rejection.clone().unwrap_or_default();
            self.refused(now_ms, &gang.clone(), (info.name.clone(), node.clone()), problem);
        }
        let spot = match node.map(|node| self.nodes.row_of(&node)) {
            None => Spot::Nowhere,
            Some(node) if assumed => Spot::Assumed(node),
            Some(node) => Spot::Bound(node),
        };
        self.attach(info, spot, devices, undone);
    }

    /// Enters a pod that is not there.
    fn attach(&mut self, info: PodInfo, spot: Spot, devices: DeviceChoice, undone: bool) {
        let shape =
            info.gang.is_some().then(|| self.shapes.intern(&mut self.nodes, &info.requests, &info.rules));
        let load = Load {
            demands: self.nodes.demands(&info.requests),
            ports: info.rules.host_ports.clone(),
            devices,
        };
        let uid = info.uid.clone();
        if let Some(id) = info.gang.clone() {
            let gang = self.gangs.entry(id.clone()).or_default();
            gang.members.insert(uid.clone());
            self.touch(&id);
        }
        self.pods.insert(uid.clone(), Pod { info, shape, spot: Spot::Nowhere, load, undone });
        if let Some(node) = spot.node() {
            self.occupy(&uid, spot, node);
        }
    }

    /// Removes a pod and everything that is counted for it.
    fn detach(&mut self, uid: &PodUid) {
        let Some(pod) = self.pods.remove(uid) else { return };
        if let Some(node) = pod.spot.node()
            && self.counts(&pod)
        {
            self.nodes.remove(node, &pod.load);
            self.freed += 1;
        }
        if let Some(shape) = pod.shape {
            self.shapes.release(shape);
        }
        let Some(id) = pod.info.gang else { return };
        self.touch(&id);
        if let Some(gang) = self.gangs.get_mut(&id) {
            gang.members.remove(uid);
            if gang.members.is_empty() && gang.spec.is_none() {
                self.gangs.remove(&id);
                self.open.remove(&id);
            }
        }
    }

    /// Counts a waiting pod on a node.
    fn occupy(&mut self, uid: &PodUid, spot: Spot, node: crate::ids::NodeIndex) {
        let planted = self.config.planted;
        let Some(pod) = self.pods.get_mut(uid) else { return };
        pod.spot = spot;
        let ignored = planted.is(Bug::IgnoreForeignPods) && pod.info.gang.is_none()
            || planted.is(Bug::ForgetAssumedBind) && matches!(spot, Spot::Assumed(_));
        if !ignored {
            self.nodes.add(node, &pod.load);
        }
    }

    /// Whether the pod's load stands in the sums.
    fn counts(&self, pod: &Pod) -> bool {
        let planted = self.config.planted;
        !(planted.is(Bug::IgnoreForeignPods) && pod.info.gang.is_none()
            || planted.is(Bug::ForgetAssumedBind) && matches!(pod.spot, Spot::Assumed(_)))
    }

    fn drop_assumed(&mut self, uid: &PodUid) {
        let Some(pod) = self.pods.get(uid) else { return };
        let Spot::Assumed(node) = pod.spot else { return };
        let counts = self.counts(pod);
        let Some(pod) = self.pods.get_mut(uid) else { return };
        if counts {
            self.nodes.remove(node, &pod.load);
        }
        pod.spot = Spot::Nowhere;
        pod.load.devices = DeviceChoice::new();
        self.freed += 1;
        if let Some(gang) = pod.info.gang.clone() {
            self.touch(&gang);
        }
    }

    fn bind_refused(&mut self, now_ms: i64, uid: &PodUid, problem: Arc<str>) {
        let Some(pod) = self.pods.get(uid) else { return };
        let Spot::Assumed(node) = pod.spot else { return };
        let gang = pod.info.gang.clone();
        let place = (pod.info.name.clone(), self.nodes.name(node).clone());
        self.drop_assumed(uid);
        if let Some(gang) = gang {
            self.refused(now_ms, &gang, place, problem);
        }
    }

    /// A node would not have a member: the gang pauses, and leaves the node alone for longer.
    fn refused(&mut self, now_ms: i64, gang: &GangId, place: (Arc<str>, Arc<str>), problem: Arc<str>) {
        let (node, until) = (place.1.clone(), now_ms.saturating_add(self.config.avoid_ms));
        self.pause(now_ms, gang, Refusal { place: Some(place), problem });
        if let Some(gang) = self.gangs.get_mut(gang) {
            gang.avoid.insert(node, until);
        }
    }

    fn pause(&mut self, now_ms: i64, gang: &GangId, refusal: Refusal) {
        let config = self.config;
        let gang = self.gangs.entry(gang.clone()).or_default();
        // What was bound in between is no success: a kubelet rejects after that.
        let quiet = config.longest_pause_ms.saturating_mul(2);
        if gang.refused_at.is_none_or(|at| at.saturating_add(quiet) < now_ms) {
            gang.failures = 0;
        }
        gang.refused_at = Some(now_ms);
        let pause = config
            .first_pause_ms
            .saturating_mul(1_i64.checked_shl(gang.failures.min(30)).unwrap_or(i64::MAX))
            .min(config.longest_pause_ms);
        gang.failures = gang.failures.saturating_add(1);
        gang.retry_at = Some(now_ms.saturating_add(pause));
        gang.refusal = refusal;
    }

    fn gang_applied(&mut self, spec: GangSpec) {
        let id = spec.id.clone();
        let gang = self.gangs.entry(id.clone()).or_default();
        if gang.spec.as_ref() == Some(&spec) {
            return;
        }
        gang.spec = Some(spec);
        self.touch(&id);
    }

    fn gang_deleted(&mut self, id: &GangId) {
        self.open.remove(id);
        if let Some(gang) = self.gangs.get_mut(id) {
            gang.spec = None;
            gang.said = None;
            if gang.members.is_empty() {
                self.gangs.remove(id);
            }
        }
    }

    /// Assumes what a durable plan says of a pod, as far as it is still possible.
    fn adopt(&mut self, uid: &PodUid, node: &str, devices: DeviceChoice) {
        let Some(pod) = self.pods.get(uid) else { return };
        let info = &pod.info;
        let waits = info.phase == PodPhase::Active
            && pod.spot == Spot::Nowhere
            && !info.deleting
            && !info.gated
            && info.hold.is_none();
        let (Some(gang), Some(shape), Some(node), true) =
            (info.gang.clone(), pod.shape, self.nodes.find_present(node), waits)
        else {
            return;
        };
        let held = self
            .gangs
            .get(&gang)
            .is_none_or(|gang| gang.spec.as_ref().is_none_or(|spec| spec.hold.is_some()));
        if held
            || self.shapes.verdict(&self.nodes, shape, node, self.config.planted).is_some()
            || self.nodes.slots(node, self.shapes.get(shape)) < 1
        {
            return;
        }
        if let Some(pod) = self.pods.get_mut(uid) {
            pod.load.devices = devices;
        }
        self.occupy(uid, Spot::Assumed(node), node);
        self.touch(&gang);
    }
}
