//! Topologies, nodes, and pods as far as they stand on nodes or are to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crds::names::kueue;
use crds::view::Node;
use crds::view::placed_pod::PlacedPod;
use crds::view::topology::Topology;
use crds::view::workload::{PodSetAssignment, Workload};
use kit::watch::Change;
use model::ResourceList;
use model::selector::Labels;
use quota_engine::topology::HOSTNAME;
use quota_engine::{Engine, Event, Uid};

use super::super::store::{Delta, Names, Object, Store};
use crate::topology::{self, Member};
use crate::{input, slices};

/// Namespace and name of a Workload.
pub(in crate::controller) type Key = (String, String);

/// What is kept of a pod: pods are many, and a whole one is large.
#[derive(Debug)]
pub(in crate::controller) struct GroundPod {
    uid: Uid,
    version: u64,
    pub(in crate::controller) namespace: String,
    pub(in crate::controller) name: String,
    /// The name of its Workload; of a pod of an elastic job, the one that its slices have in common.
    workload: Option<Box<str>>,
    /// The node that it is bound to.
    node: Option<Arc<str>>,
    /// Whether it has neither ended nor is being deleted.
    progresses: bool,
    role: Role,
}

#[derive(Debug)]
enum Role {
    /// It is bound to a node and was not placed by topology.
    Resident(Arc<ResourceList>),
    /// It is placed by topology.
    Placed { gates: Vec<String>, member: Box<Member> },
    /// Neither, or it has ended.
    Neither,
}

impl Object for GroundPod {
    fn uid(&self) -> Uid {
        self.uid.clone()
    }
    fn version(&self) -> u64 {
        self.version
    }
}

impl GroundPod {
    pub(in crate::controller) fn of(pod: PlacedPod) -> Self {
        let annotations = pod.metadata.annotations.as_ref();
        let annotation = |key| annotations.and_then(|all| all.get(key)).map(|name| Box::from(name.as_str()));
        // Pods of an elastic job stay when another slice takes the place of theirs.
        let workload = annotation(kueue::WORKLOAD_SLICE_NAME).or_else(|| annotation(kueue::WORKLOAD));
        let role = role(&pod, workload.is_some());
        let node = Some(pod.spec.node_name.as_str()).filter(|name| !name.is_empty()).map(Arc::from);
        let progresses = !pod.has_ended() && pod.metadata.deletion_timestamp.is_none();
        let metadata = pod.metadata;
        Self {
            uid: input::uid(&metadata),
            version: input::version(&metadata),
            namespace: metadata.namespace.unwrap_or_default(),
            name: metadata.name.unwrap_or_default(),
            workload,
            node,
            progresses,
            role,
        }
    }

    pub(in crate::controller) fn version(&self) -> u64 {
        self.version
    }

    /// Its gates without ours.
    pub(in crate::controller) fn other_gates(&self) -> Vec<&String> {
        match &self.role {
            Role::Placed { gates, .. } => gates.iter().filter(|gate| *gate != kueue::TOPOLOGY_GATE).collect(),
            Role::Resident(..) | Role::Neither => Vec::new(),
        }
    }

    pub(in crate::controller) fn workload(&self) -> Option<Key> {
        Some((self.namespace.clone(), self.workload.as_deref()?.to_owned()))
    }
}

fn role(pod: &PlacedPod, is_of_workload: bool) -> Role {
    if !topology::is_placed(pod) {
        return topology::usage_of(pod).map_or(Role::Neither, |(_, asked)| Role::Resident(Arc::new(asked)));
    }
    if pod.has_ended() || !is_of_workload {
        return Role::Neither;
    }
    let annotations = pod.metadata.annotations.as_ref();
    let labels = pod.metadata.labels.clone().unwrap_or_default();
    let gates: Vec<String> = pod.spec.scheduling_gates.iter().map(|gate| gate.name.clone()).collect();
    Role::Placed {
        member: Box::new(Member {
            pod_set: labels.get(kueue::PODSET).cloned().unwrap_or_default(),
            gated: gates.iter().any(|gate| gate == kueue::TOPOLOGY_GATE),
            node_selector: pod.spec.node_selector.clone(),
            labels,
            index_offset: annotations.and_then(|all| all.get(kueue::POD_INDEX_OFFSET)).cloned(),
        }),
        gates,
    }
}

/// Pods of Workloads that go on where they are bound, by the names of their nodes.
#[derive(Default)]
struct Progressing(BTreeMap<Arc<str>, BTreeSet<Uid>>);

impl Progressing {
    /// Returns whether it was there and is no more.
    fn note(&mut self, pod: &GroundPod) -> bool {
        match &pod.node {
            Some(node) if pod.progresses && pod.workload.is_some() => {
                self.0.entry(Arc::clone(node)).or_default().insert(pod.uid.clone());
                false
            }
            _ => self.forget(pod),
        }
    }

    /// The same of one that is gone.
    fn forget(&mut self, pod: &GroundPod) -> bool {
        let Some(node) = &pod.node else { return false };
        let Some(uids) = self.0.get_mut(node) else { return false };
        let was_there = uids.remove(&pod.uid);
        if uids.is_empty() {
            self.0.remove(node);
        }
        was_there
    }

    fn on(&self, node: &str) -> impl Iterator<Item = &Uid> {
        self.0.get(node).into_iter().flatten()
    }
}

/// See the module.
#[derive(Default)]
pub(in crate::controller) struct Ground {
    topologies: Store<Topology>,
    nodes: Store<Node>,
    nodes_by_name: Names<String>,
    /// Nodes by what places name them, which need not be their names.
    nodes_by_host: BTreeMap<String, BTreeSet<Uid>>,
    host_of_node: BTreeMap<Uid, String>,
    pods: Store<GroundPod>,
    progressing: Progressing,
    pods_of: BTreeMap<Key, BTreeSet<Uid>>,
    workload_of_pod: BTreeMap<Uid, Key>,
    standing_on: BTreeMap<String, BTreeSet<Uid>>,
    nodes_of: BTreeMap<Uid, BTreeSet<String>>,
    /// Pods whose gate is being opened, and where they go.
    leaving: BTreeMap<Uid, Labels>,
    /// Whether any flavor has a topology: before that nodes and pods are of no concern.
    pub(in crate::controller) wanted: bool,
}

impl Ground {
    pub(super) fn is_synced(&self) -> bool {
        !self.wanted || (self.topologies.is_synced() && self.nodes.is_synced() && self.pods.is_synced())
    }

    /// The Topology of this name.
    pub(in crate::controller) fn topology(&self, name: &str) -> Option<&Topology> {
        self.topologies.iter().find(|view| view.metadata.name.as_deref() == Some(name))
    }

    /// All of them.
    pub(super) fn topology_names(&self) -> impl Iterator<Item = String> {
        self.topologies.iter().filter_map(|view| view.metadata.name.clone())
    }

    /// Those that may have lost their last flavor.
    pub(super) fn going_topologies(&self) -> impl Iterator<Item = String> {
        let going = self.topologies.iter().filter(|view| view.metadata.deletion_timestamp.is_some());
        going.filter_map(|view| view.metadata.name.clone())
    }

    /// Takes the answer to a write of a Topology's finalizer.
    pub(in crate::controller) fn take_topology_answer(&mut self, view: Topology) {
        self.topologies.upsert(view);
    }

    /// Returns the names of Topologies that are new or changed.
    pub(super) fn take_topology(&mut self, engine: &mut Engine, change: Change<Topology>) -> Vec<String> {
        let mut changed = Vec::new();
        for delta in self.topologies.take(change) {
            match delta {
                Delta::Upsert(uid) => {
                    let Some(view) = self.topologies.get(&uid) else { continue };
                    let levels = view.spec.levels.iter().map(|level| level.node_label.clone()).collect();
                    let name = view.metadata.name.clone().unwrap_or_default();
                    changed.push(name.clone());
                    engine.apply(Event::Topology(name, levels));
                }
                Delta::Gone(view) => {
                    let name = view.metadata.name.clone().unwrap_or_default();
                    let again = self.topologies.any(|other| other.metadata.name.as_ref() == Some(&name));
                    if !again {
                        engine.apply(Event::TopologyGone(name));
                    }
                }
            }
        }
        changed
    }

    /// Returns what places name the nodes that came, went or changed; of one that is named otherwise now, both.
    pub(super) fn take_node(&mut self, engine: &mut Engine, change: Change<Node>) -> Vec<String> {
        let mut changed = Vec::new();
        for delta in self.nodes.take(change) {
            match delta {
                Delta::Upsert(uid) => {
                    let Some(view) = self.nodes.get(&uid) else { continue };
                    let name = view.metadata.name.clone().unwrap_or_default();
                    match topology::node(view) {
                        Ok(node) => engine.apply(Event::Node(node)),
                        Err(error) => {
                            tracing::warn!(node = name, %error, "no pods are placed on a node whose size cannot be read");
                            engine.apply(Event::NodeGone(name.as_str().into()));
                        }
                    }
                    let host = host_of(view).to_owned();
                    self.nodes_by_name.insert(name, uid.clone());
                    if self.host_of_node.get(&uid) != Some(&host) {
                        changed.extend(self.forget_host(&uid));
                        self.nodes_by_host.entry(host.clone()).or_default().insert(uid.clone());
                        self.host_of_node.insert(uid, host.clone());
                    }
                    changed.push(host);
                }
                Delta::Gone(view) => {
                    let (name, uid) = (view.metadata.name.as_deref().unwrap_or_default(), view.uid());
                    changed.extend(self.forget_host(&uid));
                    if self.nodes_by_name.remove(name, &uid) {
                        engine.apply(Event::NodeGone(name.into()));
                    }
                }
            }
        }
        changed
    }

    /// Returns what places named the node.
    fn forget_host(&mut self, node: &Uid) -> Option<String> {
        let host = self.host_of_node.remove(node)?;
        if let Some(uids) = self.nodes_by_host.get_mut(&host) {
            uids.remove(node);
            if uids.is_empty() {
                self.nodes_by_host.remove(&host);
            }
        }
        Some(host)
    }

    /// Returns the Workloads whose pods came, went or changed, by namespace and name.
    pub(super) fn take_pod(&mut self, engine: &mut Engine, change: Change<PlacedPod>) -> BTreeSet<Key> {
        let deltas = self.pods.take(change.map(GroundPod::of));
        deltas.into_iter().filter_map(|delta| self.pod_changed(engine, delta)).collect()
    }

    /// Takes the answer to the opening of a gate.
    pub(super) fn take_pod_answer(&mut self, engine: &mut Engine, pod: PlacedPod) -> Option<Key> {
        let pod = GroundPod::of(pod);
        self.leaving.remove(&pod.uid);
        let uid = self.pods.upsert(pod)?;
        self.pod_changed(engine, Delta::Upsert(uid))
    }

    fn pod_changed(&mut self, engine: &mut Engine, delta: Delta<GroundPod>) -> Option<Key> {
        match delta {
            Delta::Upsert(uid) => {
                let pod = self.pods.get(&uid)?;
                let left = self.progressing.note(pod).then(|| pod.workload()).flatten();
                match (&pod.role, &pod.node) {
                    (Role::Resident(asked), Some(node)) => {
                        engine.apply(Event::Pod(uid.clone(), Arc::clone(node), Arc::clone(asked)));
                        self.forget_member(&uid).or(left)
                    }
                    (Role::Resident(_) | Role::Neither, _) => {
                        engine.apply(Event::PodGone(uid.clone()));
                        self.forget_member(&uid).or(left)
                    }
                    (Role::Placed { .. }, _) => {
                        let key = pod.workload()?;
                        // It may have been nobody's, or another's, until it was annotated.
                        engine.apply(Event::PodGone(uid.clone()));
                        if self.workload_of_pod.get(&uid).is_some_and(|known| *known != key) {
                            self.forget_member(&uid);
                        }
                        self.workload_of_pod.insert(uid.clone(), key.clone());
                        self.pods_of.entry(key.clone()).or_default().insert(uid);
                        Some(key)
                    }
                }
            }
            Delta::Gone(pod) => {
                engine.apply(Event::PodGone(pod.uid.clone()));
                let left = self.progressing.forget(&pod).then(|| pod.workload()).flatten();
                self.leaving.remove(&pod.uid);
                self.forget_member(&pod.uid).or(left)
            }
        }
    }

    fn forget_member(&mut self, uid: &Uid) -> Option<Key> {
        let key = self.workload_of_pod.remove(uid)?;
        let uids = self.pods_of.get_mut(&key)?;
        uids.remove(uid);
        if uids.is_empty() {
            self.pods_of.remove(&key);
        }
        Some(key)
    }

    /// The Workloads with pods that are placed by topology, by namespace and name.
    pub(super) fn placed(&self) -> Vec<Key> {
        self.pods_of.keys().cloned().collect()
    }

    fn members<'a>(&'a self, workload: &Workload) -> impl Iterator<Item = (&'a Uid, &'a GroundPod)> {
        let namespace = workload.metadata.namespace.clone().unwrap_or_default();
        let uids = self.pods_of.get(&(namespace, slices::chain(workload).to_owned())).into_iter().flatten();
        uids.filter_map(|uid| Some((uid, self.pods.get(uid)?)))
    }

    /// Notes the nodes on which a Workload has places.
    pub(super) fn stand(&mut self, workload: &Workload) {
        let uid = input::uid(&workload.metadata);
        let nodes = nodes_of(workload);
        if self.nodes_of.get(&uid) == Some(&nodes) {
            return;
        }
        self.stand_nowhere(&uid);
        for node in &nodes {
            self.standing_on.entry(node.clone()).or_default().insert(uid.clone());
        }
        if !nodes.is_empty() {
            self.nodes_of.insert(uid, nodes);
        }
    }

    fn stand_nowhere(&mut self, uid: &Uid) {
        for node in self.nodes_of.remove(uid).into_iter().flatten() {
            if let Some(uids) = self.standing_on.get_mut(&node) {
                uids.remove(uid);
                if uids.is_empty() {
                    self.standing_on.remove(&node);
                }
            }
        }
    }

    /// A Workload is gone.
    pub(super) fn leave(&mut self, uid: &Uid) {
        self.stand_nowhere(uid);
    }

    pub(super) fn standing_on(&self, host: &str) -> impl Iterator<Item = &Uid> {
        self.standing_on.get(host).into_iter().flatten()
    }

    /// Whether any of its nodes is gone or not as it should be.
    pub(super) fn is_shaky(&self, workload: &Uid) -> bool {
        let sound = |node: &Node| node.is_ready() && node.spec.taints.is_empty();
        let nodes = self.nodes_of.get(workload);
        nodes.is_some_and(|nodes| nodes.iter().any(|node| !self.node(node).is_some_and(sound)))
    }

    pub(in crate::controller) fn pod(&self, uid: &Uid) -> Option<&GroundPod> {
        self.pods.get(uid)
    }

    /// The pods of an admitted Workload whose gates may open, and the node labels that they get.
    pub(in crate::controller) fn released(&self, workload: &Workload) -> Vec<(Uid, Labels)> {
        let mut members: Vec<(&Uid, Member)> = Vec::new();
        for (uid, pod) in self.members(workload) {
            let Role::Placed { member, .. } = &pod.role else { continue };
            let mut member = (**member).clone();
            if let Some(labels) = self.leaving.get(uid) {
                member.gated = false;
                member.node_selector.extend(labels.clone());
            }
            members.push((uid, member));
        }
        topology::released(workload, &members.iter().map(|(uid, member)| (*uid, member)).collect())
    }

    /// A gate is being opened.
    pub(in crate::controller) fn begin_leave(&mut self, uid: Uid, labels: Labels) {
        self.leaving.insert(uid, labels);
    }

    /// That came to nothing, or it is not known to what.
    pub(in crate::controller) fn end_leave(&mut self, uid: &Uid) {
        self.leaving.remove(uid);
    }

    /// The node that places name so. Of several, of which the engine makes one place, one that is ready.
    pub(in crate::controller) fn node(&self, host: &str) -> Option<&Node> {
        let mut nodes = self.nodes_at(host);
        nodes.clone().find(|node| node.is_ready()).or_else(|| nodes.next())
    }

    fn nodes_at(&self, host: &str) -> impl Iterator<Item = &Node> + Clone {
        self.nodes_by_host.get(host).into_iter().flatten().filter_map(|uid| self.nodes.get(uid))
    }

    /// Whether pods of the Workload, placed by topology or not, are bound there and are not being ended.
    pub(in crate::controller) fn progresses_on(&self, workload: &Workload, host: &str) -> bool {
        let (namespace, chain) = (workload.metadata.namespace.as_deref(), slices::chain(workload));
        let is_its = |pod: &GroundPod| {
            Some(pod.namespace.as_str()) == namespace && pod.workload.as_deref() == Some(chain)
        };
        let mut names = self.nodes_at(host).filter_map(|node| node.metadata.name.as_deref());
        names.any(|name| self.progressing.on(name).filter_map(|uid| self.pods.get(uid)).any(is_its))
    }

    /// The pods of the Workload that were sent to a node and wait to be bound, with what places name that node.
    pub(in crate::controller) fn waiting(&self, workload: &Workload) -> Vec<(Uid, String)> {
        let waits = |(uid, pod): (&Uid, &GroundPod)| match &pod.role {
            Role::Placed { member, .. } if !member.gated && pod.progresses && pod.node.is_none() => {
                Some((uid.clone(), member.node_selector.get(HOSTNAME)?.clone()))
            }
            _ => None,
        };
        self.members(workload).filter_map(waits).collect()
    }
}

/// What the label of a node says that places name: the kubelet writes it, not always as the node is called.
fn host_of(node: &Node) -> &str {
    let label = node.metadata.labels.as_ref().and_then(|labels| labels.get(HOSTNAME));
    label.or(node.metadata.name.as_ref()).map_or("", String::as_str)
}

/// The nodes on which an admitted Workload has places, where they are told node by node.
pub(in crate::controller) fn nodes_of(view: &Workload) -> BTreeSet<String> {
    let sets = view.status.admission.iter().flat_map(|admission| &admission.pod_set_assignments);
    sets.flat_map(hosts).collect()
}

/// Those of one pod set.
pub(in crate::controller) fn hosts(held: &PodSetAssignment) -> BTreeSet<String> {
    let places = held.topology_assignment.as_ref().and_then(|one| topology::read(one).ok());
    let hosts = places.filter(|places| places.levels.last().is_some_and(|level| &**level == HOSTNAME));
    let domains = hosts.into_iter().flat_map(|places| places.domains);
    domains.filter_map(|domain| domain.values.last().map(ToString::to_string)).collect()
}

#[cfg(test)]
mod tests {
    use quota_engine::Settings;
    use serde_json::{Value, json};

    use super::*;

    fn node(uid: &str, host: Option<&str>, version: u64, ready: bool) -> Node {
        let labels = host.map_or(Value::Null, |host| json!({ HOSTNAME: host }));
        serde_json::from_value(json!({
            "metadata": { "name": format!("vm-{uid}"), "uid": uid, "resourceVersion": version.to_string(), "labels": labels },
            "status": { "conditions": [{ "type": "Ready", "status": if ready { "True" } else { "False" } }] },
        }))
        .unwrap()
    }

    #[test]
    fn places_name_nodes_by_their_label() {
        let (mut ground, mut engine) = (Ground::default(), Engine::new(Settings::default()));
        let mut take = |ground: &mut Ground, change| ground.take_node(&mut engine, change);
        let uid_of =
            |ground: &Ground, host: &str| ground.node(host).and_then(|node| node.metadata.uid.clone());
        assert_eq!(take(&mut ground, Change::Applied(node("1", Some("h"), 1, false))), ["h"]);
        assert_eq!(take(&mut ground, Change::Applied(node("2", None, 2, true))), ["vm-2"]);
        let found = ["h", "vm-1", "vm-2"].map(|host| uid_of(&ground, host));
        assert_eq!(found, [Some("1".into()), None, Some("2".into())], "by name where there is no label");
        // Of two that have it one that is ready.
        assert_eq!(take(&mut ground, Change::Applied(node("3", Some("h"), 3, true))), ["h"]);
        assert_eq!(uid_of(&ground, "h"), Some("3".into()));
        assert_eq!(take(&mut ground, Change::Applied(node("3", Some("other"), 4, true))), ["h", "other"]);
        assert_eq!(["h", "other"].map(|host| uid_of(&ground, host)), [Some("1".into()), Some("3".into())]);
        assert_eq!(take(&mut ground, Change::Deleted(node("1", Some("h"), 5, false))), ["h"]);
        assert_eq!(uid_of(&ground, "h"), None);
    }
}
