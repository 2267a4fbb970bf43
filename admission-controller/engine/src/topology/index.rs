use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use model::node::{Taint, Toleration};
use model::selector::Labels;
use model::{ResourceList, ResourceName};

use super::filter::Classes;
use super::room::Room;
use super::tree::Tree;
use super::{Assignment, DomainPods, HOSTNAME};

/// A node, as far as placement depends on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `metadata.labels`.
    pub labels: Labels,
    /// `spec.taints`.
    pub taints: Vec<Taint>,
    /// `status.allocatable`, `pods` included.
    pub allocatable: ResourceList,
    /// Its condition `Ready` is true and it is not cordoned. One that is not takes no pods, and places on it are gone.
    pub ready: bool,
}

/// A leaf's values as assignments name it: the host name, or all levels.
type LeafKey = Vec<Arc<str>>;
/// A leaf's values of all levels.
type Path = Vec<Arc<str>>;
/// Amounts by column. Sums of users' 64-bit numbers: 128 bits cannot overflow.
type Amounts = Vec<i128>;

/// One resource, by leaf.
#[derive(Clone, Default)]
pub(super) struct Column {
    /// What the leaf's nodes can give, less what pods outside of placement use, less what this `place` has given away.
    pub(super) capacity: Vec<i128>,
    /// What placed workloads hold.
    used: Vec<i128>,
    /// What is left.
    pub(super) free: Vec<i64>,
}

impl Column {
    fn with_leaves(leaves: usize) -> Self {
        Self { capacity: vec![0; leaves], used: vec![0; leaves], free: vec![0; leaves] }
    }

    fn take_capacity(&mut self, leaf: u32, amount: i128) {
        self.capacity[leaf as usize] -= amount;
        self.settle(leaf);
    }

    fn take(&mut self, leaf: u32, amount: i128) {
        self.used[leaf as usize] += amount;
        self.settle(leaf);
    }

    fn settle(&mut self, leaf: u32) {
        let leaf = leaf as usize;
        self.free[leaf] = narrow(self.capacity[leaf] - self.used[leaf]);
    }
}

pub(super) fn narrow(amount: i128) -> i64 {
    i64::try_from(amount).unwrap_or(if amount < 0 { i64::MIN } else { i64::MAX })
}

/// The domains and what is on them.
#[derive(Default)]
pub(super) struct Ground {
    pub(super) tree: Tree,
    pub(super) leaves: Vec<LeafKey>,
    /// By leaf, where leaves are nodes; else empty.
    pub(super) nodes: Vec<Arc<Node>>,
    pub(super) classes: Classes,
    /// Which column a resource has.
    pub(super) resources: BTreeMap<ResourceName, usize>,
    pub(super) columns: Vec<Column>,
    leaf_of: HashMap<LeafKey, u32>,
    leaf_of_node: HashMap<Arc<str>, u32>,
}

impl Ground {
    fn column(&mut self, resource: &ResourceName) -> usize {
        if let Some(column) = self.resources.get(resource) {
            return *column;
        }
        self.columns.push(Column::with_leaves(self.leaves.len()));
        self.resources.insert(resource.clone(), self.columns.len() - 1);
        self.columns.len() - 1
    }

    /// What so many pods take, by column.
    fn amounts(&mut self, per_pod: &ResourceList, pods: i64) -> Vec<(usize, i128)> {
        let mut amounts: Vec<(usize, i128)> = per_pod
            .iter()
            .map(|(resource, each)| (self.column(resource), i128::from(*each) * i128::from(pods)))
            .collect();
        amounts.push((self.column(&ResourceName::from(ResourceName::PODS)), i128::from(pods)));
        amounts
    }
}

/// The nodes of one flavor as a tree of domains, and what is free on them.
///
/// Usage is remembered by place, not by node: a node that comes back finds what was placed on it. Two flavors that share
/// nodes and end in the host name are each told of the other's usage.
pub struct TopologyIndex {
    pub(super) level_keys: Vec<Arc<str>>,
    node_labels: Labels,
    pub(super) tolerations: Vec<Toleration>,
    nodes: BTreeMap<Arc<str>, Arc<Node>>,
    /// What pods outside of placement use, by node.
    others: HashMap<Arc<str>, Amounts>,
    /// Usage of places without a leaf.
    homeless: HashMap<LeafKey, Amounts>,
    pub(super) ground: Ground,
    /// Nodes have come or gone since `ground` was made.
    stale: bool,
    /// Scratch of a placement.
    pub(super) rooms: Vec<Vec<Room>>,
    /// Capacity taken by the pod sets placed so far: leaf, column, amount. Given back at the end.
    assumed: Vec<(u32, usize, i128)>,
}

impl TopologyIndex {
    /// Of a flavor without nodes.
    ///
    /// `levels` are node labels, outermost first, one at least; `node_labels` and `tolerations` are the flavor's.
    pub fn new(levels: Vec<Arc<str>>, node_labels: Labels, tolerations: Vec<Toleration>) -> Self {
        debug_assert!(!levels.is_empty(), "a topology has a level");
        Self {
            level_keys: levels,
            node_labels,
            tolerations,
            nodes: BTreeMap::new(),
            others: HashMap::new(),
            homeless: HashMap::new(),
            ground: Ground::default(),
            stale: true,
            rooms: Vec::new(),
            assumed: Vec::new(),
        }
    }

    /// The levels, outermost first.
    pub fn levels(&self) -> &[Arc<str>] {
        &self.level_keys
    }

    /// Whether a leaf is a node.
    pub fn ends_in_hosts(&self) -> bool {
        self.level_keys.last().is_some_and(|level| &**level == HOSTNAME)
    }

    /// A node is there, or has changed.
    pub fn upsert_node(&mut self, node: Node) {
        if !node.ready || !self.selects(&node.labels) {
            return self.remove_node(&node.name);
        }
        let before = self.nodes.insert(Arc::clone(&node.name), Arc::new(node.clone()));
        match before {
            Some(before) if before.labels == node.labels && before.taints == node.taints => {
                self.resize_node(&before, &node);
            }
            _ => self.stale = true,
        }
    }

    fn selects(&self, labels: &Labels) -> bool {
        self.node_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.level_keys.iter().all(|level| labels.contains_key(&**level))
    }

    fn resize_node(&mut self, before: &Node, after: &Node) {
        let Some(leaf) = self.ground.leaf_of_node.get(&after.name).copied().filter(|_| !self.stale) else {
            return;
        };
        for (node, sign) in [(before, 1), (after, -1)] {
            for (resource, amount) in &node.allocatable {
                let column = self.ground.column(resource);
                self.ground.columns[column].take_capacity(leaf, sign * i128::from(*amount));
            }
        }
    }

    /// A node is gone.
    pub fn remove_node(&mut self, name: &str) {
        self.stale |= self.nodes.remove(name).is_some();
    }

    /// A pod that is not placed here, but bound to a node and not finished, asks for this much.
    pub fn charge_node(&mut self, node: &str, pod: &ResourceList) {
        self.change_node(node, pod, 1);
    }

    /// Such a pod is gone.
    pub fn release_node(&mut self, node: &str, pod: &ResourceList) {
        self.change_node(node, pod, -1);
    }

    fn change_node(&mut self, node: &str, pod: &ResourceList, pods: i64) {
        let amounts = self.ground.amounts(pod, pods);
        let leaf = self.ground.leaf_of_node.get(node).copied().filter(|_| !self.stale);
        let others = self.others.entry(Arc::from(node)).or_default();
        for (column, amount) in amounts {
            add(others, column, amount);
            if let Some(leaf) = leaf {
                self.ground.columns[column].take_capacity(leaf, amount);
            }
        }
        if others.iter().all(|amount| *amount == 0) {
            self.others.remove(node);
        }
    }

    /// Pods hold these places.
    pub fn charge(&mut self, assignment: &Assignment, per_pod: &ResourceList) {
        self.change(assignment, per_pod, 1);
    }

    /// Pods give these places back.
    pub fn release(&mut self, assignment: &Assignment, per_pod: &ResourceList) {
        self.change(assignment, per_pod, -1);
    }

    fn change(&mut self, assignment: &Assignment, per_pod: &ResourceList, sign: i64) {
        for domain in &assignment.domains {
            let amounts = self.ground.amounts(per_pod, sign * domain.pods);
            let key = self.key(&domain.values);
            if let Some(leaf) = self.ground.leaf_of.get(key).copied() {
                for (column, amount) in amounts {
                    self.ground.columns[column].take(leaf, amount);
                }
                continue;
            }
            let used = self.homeless.entry(key.to_vec()).or_default();
            for (column, amount) in amounts {
                add(used, column, amount);
            }
            if used.iter().all(|amount| *amount == 0) {
                let key = key.to_vec();
                self.homeless.remove(&key);
            }
        }
    }

    /// Older assignments name all levels even where the host name says enough.
    fn key<'a>(&self, values: &'a [Arc<str>]) -> &'a [Arc<str>] {
        match values.len().checked_sub(1) {
            Some(last) if self.ends_in_hosts() => &values[last..],
            _ => values,
        }
    }

    /// The leaf of this name, if its nodes are there.
    pub(super) fn leaf(&self, values: &[Arc<str>]) -> Option<u32> {
        self.ground.leaf_of.get(self.key(values)).copied()
    }

    /// Whether so many pods still find room in these places.
    pub fn fits(&mut self, assignment: &Assignment, per_pod: &ResourceList) -> bool {
        self.refresh();
        assignment.domains.iter().all(|domain| {
            let Some(leaf) = self.leaf(&domain.values) else { return false };
            let amounts = self.ground.amounts(per_pod, domain.pods);
            amounts.iter().all(|(column, amount)| {
                *amount <= i128::from(self.ground.columns[*column].free[leaf as usize])
            })
        })
    }

    /// Takes room for the rest of this placement.
    pub(super) fn assume(&mut self, leaf: u32, per_pod: &ResourceList, pods: i64) {
        for (column, amount) in self.ground.amounts(per_pod, pods) {
            self.ground.columns[column].take_capacity(leaf, amount);
            self.assumed.push((leaf, column, amount));
        }
    }

    /// Gives back what was assumed.
    pub(super) fn forget_assumed(&mut self) {
        for (leaf, column, amount) in std::mem::take(&mut self.assumed) {
            self.ground.columns[column].take_capacity(leaf, -amount);
        }
    }

    /// Places as an assignment.
    pub(super) fn assignment(&self, places: &[(u32, i64)]) -> Assignment {
        let first = if self.ends_in_hosts() { self.level_keys.len() - 1 } else { 0 };
        let domain = |(leaf, pods): &(u32, i64)| DomainPods {
            values: self.ground.leaves[*leaf as usize].clone(),
            pods: *pods,
        };
        Assignment { levels: self.level_keys[first..].to_vec(), domains: places.iter().map(domain).collect() }
    }

    /// Makes the tree anew if nodes have come or gone.
    pub(super) fn refresh(&mut self) {
        if !self.stale {
            return;
        }
        self.stale = false;
        let mut used = self.take_usage();
        let (paths, nodes) = self.leaves_of_nodes();
        let hosts = self.ends_in_hosts();
        let resources = std::mem::take(&mut self.ground.resources);
        let key = |path: &Path| if hosts { path[path.len() - 1..].to_vec() } else { path.clone() };
        let mut ground = Ground {
            tree: Tree::new(self.level_keys.len(), &paths),
            leaves: paths.iter().map(key).collect(),
            columns: vec![Column::with_leaves(paths.len()); resources.len()],
            resources,
            ..Ground::default()
        };
        for (leaf, nodes) in nodes.into_iter().enumerate() {
            let leaf_index = leaf as u32;
            ground.leaf_of.insert(ground.leaves[leaf].clone(), leaf_index);
            for node in &nodes {
                ground.leaf_of_node.insert(Arc::clone(&node.name), leaf_index);
                for (resource, amount) in &node.allocatable {
                    let column = ground.column(resource);
                    ground.columns[column].capacity[leaf] += i128::from(*amount);
                }
                let others = self.others.get(&node.name).into_iter().flatten();
                for (column, amount) in ground.columns.iter_mut().zip(others) {
                    column.capacity[leaf] -= amount;
                }
            }
            let used = used.remove(&ground.leaves[leaf]).unwrap_or_default();
            for (column, amount) in ground.columns.iter_mut().zip(used) {
                column.used[leaf] = amount;
            }
            if let Some(node) = nodes.into_iter().next().filter(|_| hosts) {
                ground.classes.push(&node);
                ground.nodes.push(node);
            }
        }
        for column in &mut ground.columns {
            (0..ground.leaves.len() as u32).for_each(|leaf| column.settle(leaf));
        }
        self.ground = ground;
        self.homeless = used;
    }

    /// All usage, by place.
    fn take_usage(&mut self) -> HashMap<LeafKey, Amounts> {
        let mut used = std::mem::take(&mut self.homeless);
        for (leaf, key) in std::mem::take(&mut self.ground.leaves).into_iter().enumerate() {
            let amounts: Amounts = self.ground.columns.iter().map(|column| column.used[leaf]).collect();
            if amounts.iter().any(|amount| *amount != 0) {
                used.insert(key, amounts);
            }
        }
        used
    }

    /// The values of each leaf, sorted, and the nodes that make it up.
    fn leaves_of_nodes(&self) -> (Vec<Path>, Vec<Vec<Arc<Node>>>) {
        let mut values: BTreeMap<&str, Arc<str>> = BTreeMap::new();
        let mut by_path: BTreeMap<Path, Vec<Arc<Node>>> = BTreeMap::new();
        let mut path_of_host: HashMap<&str, Path> = HashMap::new();
        for node in self.nodes.values() {
            let mut path: Path = Vec::with_capacity(self.level_keys.len());
            for level in &self.level_keys {
                let value = node.labels.get(&**level).map_or("", String::as_str);
                path.push(Arc::clone(values.entry(value).or_insert_with(|| Arc::from(value))));
            }
            if self.ends_in_hosts() {
                // Two nodes that claim one host name are one place, where the first says.
                let host = node.labels.get(HOSTNAME).map_or("", String::as_str);
                path = path_of_host.entry(host).or_insert(path).clone();
            }
            by_path.entry(path).or_default().push(Arc::clone(node));
        }
        by_path.into_iter().unzip()
    }
}

fn add(amounts: &mut Amounts, column: usize, amount: i128) {
    if amounts.len() <= column {
        amounts.resize(column + 1, 0);
    }
    amounts[column] += amount;
}
