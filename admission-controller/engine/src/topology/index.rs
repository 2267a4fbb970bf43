//! The nodes of a flavor and what is free on them, kept incrementally.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use model::node::{Taint, Toleration};
use model::selector::Labels;
use model::{ResourceList, ResourceName};

use super::filter::Classes;
use super::place::Outcome;
use super::room::Room;
use super::tree::Tree;
use super::{Assignment, DomainPods, HOSTNAME, PodSetRequest, Rules};
use crate::tree::Ledger;

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
/// What is used of each resource, by place.
pub(crate) type UsageByPlace = BTreeMap<(LeafKey, ResourceName), i128>;

/// Which usage a search for places goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// What is held now, and what is promised: pods can start at once.
    Now,
    /// What will be held when those who leave have left and those whom their room was promised to have come.
    Planned,
    /// What is held now, whatever is promised.
    Held,
    /// None, as if no workload were placed. It shows whether displacing others could help.
    Empty,
}

/// One resource, by leaf.
#[derive(Clone, Default)]
pub(super) struct Column {
    /// What the leaf's nodes can give, less what pods outside of placement use, less what this `place` has given away.
    pub(super) capacity: Vec<i128>,
    /// What placed workloads hold, by ledger.
    used: [Vec<i128>; 2],
    /// What is left by both ledgers.
    free: Vec<i64>,
    /// What is left by the plan.
    planned: Vec<i64>,
}

impl Column {
    fn with_leaves(leaves: usize) -> Self {
        Self {
            capacity: vec![0; leaves],
            used: [vec![0; leaves], vec![0; leaves]],
            free: vec![0; leaves],
            planned: vec![0; leaves],
        }
    }

    /// What is left, by leaf.
    pub(super) fn left(&self, view: View) -> Cow<'_, [i64]> {
        match view {
            View::Now => Cow::Borrowed(&self.free),
            View::Planned => Cow::Borrowed(&self.planned),
            View::Held | View::Empty => (0..self.capacity.len() as u32)
                .map(|leaf| self.left_at(leaf, view))
                .collect::<Vec<_>>()
                .into(),
        }
    }

    pub(super) fn left_at(&self, leaf: u32, view: View) -> i64 {
        match view {
            View::Now => self.free[leaf as usize],
            View::Planned => self.planned[leaf as usize],
            View::Held => {
                narrow(self.capacity[leaf as usize] - self.used[Ledger::Held as usize][leaf as usize])
            }
            View::Empty => narrow(self.capacity[leaf as usize]),
        }
    }

    fn take_capacity(&mut self, leaf: u32, amount: i128) {
        self.capacity[leaf as usize] -= amount;
        self.settle(leaf);
    }

    fn take(&mut self, leaf: u32, ledger: Ledger, amount: i128) {
        self.used[ledger as usize][leaf as usize] += amount;
        self.settle(leaf);
    }

    fn settle(&mut self, leaf: u32) {
        let leaf = leaf as usize;
        let [held, planned] = [self.used[0][leaf], self.used[1][leaf]];
        self.planned[leaf] = narrow(self.capacity[leaf] - planned);
        self.free[leaf] =
            if held <= planned { self.planned[leaf] } else { narrow(self.capacity[leaf] - held) };
    }
}

fn narrow(amount: i128) -> i64 {
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
    pub(super) fn column(&mut self, resource: &ResourceName) -> usize {
        if let Some(column) = self.resources.get(resource) {
            return *column;
        }
        self.columns.push(Column::with_leaves(self.leaves.len()));
        self.resources.insert(resource.clone(), self.columns.len() - 1);
        self.columns.len() - 1
    }

    /// What so many pods take, by column.
    fn amounts(&mut self, per_pod: &ResourceList, pods: i64) -> Vec<(usize, i128)> {
        // A pod may name thousands of resources of which it takes nothing; each would be a column for ever.
        let mut amounts: Vec<(usize, i128)> = per_pod
            .iter()
            .filter(|(_, each)| **each != 0)
            .map(|(resource, each)| (self.column(resource), i128::from(*each) * i128::from(pods)))
            .collect();
        amounts.push((self.column(&ResourceName::from(ResourceName::PODS)), i128::from(pods)));
        amounts
    }
}

/// The nodes of one flavor as a tree of domains, and what is free on them.
///
/// Usage is remembered by place, not by node: a node that comes back finds what was placed on it. Two flavors that share
/// nodes and end in the host name are each told of the other's usage, if the settings have it so.
pub struct TopologyIndex {
    pub(super) level_keys: Vec<Arc<str>>,
    node_labels: Labels,
    pub(super) tolerations: Vec<Toleration>,
    nodes: BTreeMap<Arc<str>, Arc<Node>>,
    /// What pods outside of placement use, by node.
    others: HashMap<Arc<str>, Amounts>,
    /// Usage of places without a leaf, by ledger.
    homeless: HashMap<LeafKey, [Amounts; 2]>,
    pub(super) ground: Ground,
    /// Nodes have come or gone since `ground` was made.
    stale: bool,
    /// Scratch of a placement.
    pub(super) rooms: Vec<Vec<Room>>,
    /// Capacity taken by the pod sets placed so far: leaf, column, amount. Given back at the end.
    assumed: Vec<(u32, usize, i128)>,
    /// What was asked last in [`View::Empty`], and what was found.
    found_on_empty: VecDeque<(Vec<PodSetRequest>, Rules, Outcome)>,
}

/// So many answers are kept: a queue's head asks again whenever quota comes free, and heads are of few shapes.
const MOST_KEPT: usize = 16;

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
            found_on_empty: VecDeque::new(),
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

    /// A node is there, or has changed. Returns whether that is of any concern here.
    pub fn upsert_node(&mut self, node: Node) -> bool {
        if !node.ready || !self.selects(&node.labels) {
            return self.remove_node(&node.name);
        }
        let before = self.nodes.insert(Arc::clone(&node.name), Arc::new(node.clone()));
        match before {
            Some(before) if before.labels == node.labels && before.taints == node.taints => {
                self.resize_node(&before, &node);
                before.allocatable != node.allocatable
            }
            _ => {
                self.stale = true;
                true
            }
        }
    }

    /// Whether pods may be placed on this node.
    pub fn has_node(&self, name: &str) -> bool {
        self.nodes.contains_key(name)
    }

    /// As in Kueue, nodes without a label have it where the flavor wants it to be empty.
    fn selects(&self, labels: &Labels) -> bool {
        let value_of = |key: &String| labels.get(key).map_or("", String::as_str);
        self.node_labels.iter().all(|(key, value)| value_of(key) == value)
            && self.level_keys.iter().all(|level| labels.contains_key(&**level))
    }

    fn resize_node(&mut self, before: &Node, after: &Node) {
        self.found_on_empty.clear();
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

    /// A node is gone. Returns whether it was of any concern here.
    pub fn remove_node(&mut self, name: &str) -> bool {
        let known = self.nodes.remove(name).is_some();
        self.stale |= known;
        known
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
        self.found_on_empty.clear();
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
        self.change(assignment, per_pod, Ledger::Held, 1);
        self.change(assignment, per_pod, Ledger::Planned, 1);
    }

    /// Pods give these places back.
    pub fn release(&mut self, assignment: &Assignment, per_pod: &ResourceList) {
        self.change(assignment, per_pod, Ledger::Held, -1);
        self.change(assignment, per_pod, Ledger::Planned, -1);
    }

    /// Adds pods to one of the books or, negative, takes them out.
    pub(crate) fn change(
        &mut self,
        assignment: &Assignment,
        per_pod: &ResourceList,
        ledger: Ledger,
        sign: i64,
    ) {
        let each = self.ground.amounts(per_pod, sign);
        for domain in &assignment.domains {
            let amounts = each.iter().map(|(column, amount)| (*column, amount * i128::from(domain.pods)));
            let key = self.key(&domain.values);
            if let Some(leaf) = self.ground.leaf_of.get(key).copied() {
                for (column, amount) in amounts {
                    self.ground.columns[column].take(leaf, ledger, amount);
                }
                continue;
            }
            let key = key.to_vec();
            let used = self.homeless.entry(key.clone()).or_default();
            for (column, amount) in amounts {
                add(&mut used[ledger as usize], column, amount);
            }
            if used.iter().flatten().all(|amount| *amount == 0) {
                self.homeless.remove(&key);
            }
        }
    }

    /// All usage in one of the books, for comparing with a recount.
    pub(crate) fn usage(&self, ledger: Ledger) -> UsageByPlace {
        let columns = || self.ground.resources.iter();
        let placed = self.ground.leaves.iter().enumerate().flat_map(|(leaf, key)| {
            columns().map(move |(resource, column)| {
                let used = self.ground.columns[*column].used[ledger as usize][leaf];
                ((key.clone(), resource.clone()), used)
            })
        });
        let homeless = self.homeless.iter().flat_map(|(key, used)| {
            columns().map(move |(resource, column)| {
                let used = used[ledger as usize].get(*column).copied().unwrap_or(0);
                ((key.clone(), resource.clone()), used)
            })
        });
        placed.chain(homeless).filter(|(_, used)| *used != 0).collect()
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

    /// Whether any of these places is on nodes that are there. Where nodes have just come or gone, it may be.
    pub(crate) fn has_any_of(&self, assignment: &Assignment) -> bool {
        self.stale || assignment.domains.iter().any(|domain| self.leaf(&domain.values).is_some())
    }

    /// Whether so many pods still find room in these places.
    pub fn fits(&mut self, assignment: &Assignment, per_pod: &ResourceList, view: View) -> bool {
        self.refresh();
        let each = self.ground.amounts(per_pod, 1);
        assignment.domains.iter().all(|domain| {
            let Some(leaf) = self.leaf(&domain.values) else { return false };
            each.iter().filter(|(_, amount)| *amount > 0).all(|(column, amount)| {
                let left = self.ground.columns[*column].left_at(leaf, view);
                amount * i128::from(domain.pods) <= i128::from(left)
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

    /// Takes room for pods that another flavor's part of the workload puts on nodes that are here too.
    pub(crate) fn assume_foreign(&mut self, assignment: &Assignment, per_pod: &ResourceList) {
        self.refresh();
        for domain in &assignment.domains {
            if let Some(leaf) = self.leaf(&domain.values) {
                self.assume(leaf, per_pod, domain.pods);
            }
        }
    }

    /// Whether the answer in this view is the same until nodes, or pods outside of placement, change.
    pub(super) fn lasts(&self, view: View) -> bool {
        view == View::Empty && self.assumed.is_empty()
    }

    /// The answer to the same question, where it lasts.
    pub(super) fn found_before(&self, sets: &[PodSetRequest], rules: Rules) -> Option<&Outcome> {
        let mut kept = self.found_on_empty.iter();
        kept.find(|(asked, by, _)| asked == sets && *by == rules).map(|(.., outcome)| outcome)
    }

    /// Keeps an answer that lasts.
    pub(super) fn keep_found(&mut self, sets: &[PodSetRequest], rules: Rules, outcome: Outcome) {
        if self.found_on_empty.len() == MOST_KEPT {
            self.found_on_empty.pop_front();
        }
        self.found_on_empty.push_back((sets.to_vec(), rules, outcome));
    }

    /// Gives back what was assumed.
    pub(crate) fn forget_assumed(&mut self) {
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
        self.found_on_empty.clear();
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
            for (ledger, used) in used.into_iter().enumerate() {
                for (column, amount) in ground.columns.iter_mut().zip(used) {
                    column.used[ledger][leaf] = amount;
                }
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
    fn take_usage(&mut self) -> HashMap<LeafKey, [Amounts; 2]> {
        let mut used = std::mem::take(&mut self.homeless);
        for (leaf, key) in std::mem::take(&mut self.ground.leaves).into_iter().enumerate() {
            let amounts = [0, 1].map(|ledger: usize| -> Amounts {
                self.ground.columns.iter().map(|column| column.used[ledger][leaf]).collect()
            });
            if amounts.iter().flatten().any(|amount| *amount != 0) {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A column has a place for every leaf, and is never taken away.
    #[test]
    fn pods_that_name_resources_and_take_nothing_of_them_cost_no_columns() {
        let mut index = TopologyIndex::new(vec![Arc::from("host")], Labels::new(), Vec::new());
        let named =
            (0..1_000).map(|number| (ResourceName::from(format!("example.com/r{number}").as_str()), 0));
        let pod: ResourceList = named.chain([(ResourceName::from("cpu"), 1)]).collect();
        index.charge_node("n", &pod);
        assert_eq!(index.ground.columns.len(), 2, "cpu and pods");
        index.release_node("n", &pod);
        assert!(index.others.is_empty());
    }
}
