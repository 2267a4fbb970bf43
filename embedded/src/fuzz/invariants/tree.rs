//! Who may use how much, worked out anew from the ClusterQueues and Cohorts as they are written: the slow second opinion
//! about the quota tree.
//!
//! A member of a cohort keeps for itself what exceeds its lending limit (nothing, if it has none) and puts the rest of what
//! it and its members own into its parent. What it uses beyond what it keeps, it uses of its parent.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::quota::{Usage, held};
use super::slices::is_succeeded;
use crate::fuzz::world::{Shape, WORKLOADS, World, amount, items, text};

/// A flavor and a resource.
pub(super) type Cell = (String, String);

/// A ClusterQueue or a Cohort: the two may have the same name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Member {
    /// By its name.
    Queue(String),
    /// By its name; there need be no object of it.
    Cohort(String),
}

#[derive(Clone, Copy, Debug, Default)]
struct Quota {
    nominal: i64,
    borrowing: Option<i64>,
    lending: Option<i64>,
}

#[derive(Clone, Debug, Default)]
struct Node {
    parent: Option<String>,
    children: BTreeSet<Member>,
    quotas: BTreeMap<Cell, Quota>,
    used: Usage,
}

/// The quota tree of a world, or the forest: cohorts without a parent are roots.
#[derive(Clone, Debug, Default)]
pub(super) struct Tree {
    nodes: BTreeMap<Member, Node>,
}

impl Tree {
    /// The tree of the queues and cohorts as they are, with what workloads hold now.
    pub(super) fn now(world: &World) -> Self {
        Self::of(&world.shape(), world)
    }

    /// The same tree, with nothing used of it.
    pub(super) fn idle(mut self) -> Self {
        self.nodes.values_mut().for_each(|node| node.used.clear());
        self
    }

    /// The tree of queues and cohorts, with what workloads hold now.
    pub(super) fn of(shape: &Shape, world: &World) -> Self {
        let mut tree = Self::default();
        for queue in &shape.queues {
            let member = Member::Queue(text(queue, "/metadata/name").to_owned());
            tree.put(member, queue, text(queue, "/spec/cohortName"));
        }
        for cohort in &shape.cohorts {
            let member = Member::Cohort(text(cohort, "/metadata/name").to_owned());
            tree.put(member, cohort, text(cohort, "/spec/parentName"));
        }
        for workload in world.all(WORKLOADS) {
            let queue = Member::Queue(text(workload, "/status/admission/clusterQueue").to_owned());
            let Some(node) = tree.nodes.get_mut(&queue).filter(|_| !is_succeeded(world, workload)) else {
                continue;
            };
            for (cell, used) in held(workload) {
                *node.used.entry(cell).or_default() += used;
            }
        }
        tree
    }

    fn put(&mut self, member: Member, object: &Value, parent: &str) {
        let node = self.nodes.entry(member.clone()).or_default();
        node.quotas = quotas(object);
        if !parent.is_empty() {
            node.parent = Some(parent.to_owned());
            self.nodes.entry(Member::Cohort(parent.to_owned())).or_default().children.insert(member);
        }
    }

    fn parent(&self, member: &Member) -> Option<Member> {
        Some(Member::Cohort(self.nodes.get(member)?.parent.clone()?))
    }

    /// A member, and whoever it is below of, up to the root; none where that goes in a circle.
    fn ancestry(&self, queue: &str) -> Option<Vec<Member>> {
        let mut path = vec![Member::Queue(queue.to_owned())];
        while let Some(parent) = self.parent(&path[path.len() - 1]) {
            if path.contains(&parent) {
                return None;
            }
            path.push(parent);
        }
        Some(path)
    }

    /// The root above a ClusterQueue, or the queue itself; none where cohorts are below one another in a circle.
    pub(super) fn root(&self, queue: &str) -> Option<Member> {
        self.ancestry(queue)?.pop()
    }

    /// The ClusterQueues of the tree that this one is in.
    pub(super) fn relatives<'a>(&'a self, queue: &str) -> impl Iterator<Item = &'a str> {
        let root = self.root(queue);
        self.nodes.keys().filter_map(move |member| match member {
            Member::Queue(name) if root.is_some() && self.root(name) == root => Some(name.as_str()),
            _ => None,
        })
    }

    fn quota(&self, member: &Member, cell: &Cell) -> Quota {
        self.nodes.get(member).and_then(|node| node.quotas.get(cell)).copied().unwrap_or_default()
    }

    fn children(&self, member: &Member) -> impl Iterator<Item = &Member> {
        self.nodes.get(member).into_iter().flat_map(|node| &node.children)
    }

    /// What a member and those below it own, less what these keep for themselves.
    fn owned(&self, member: &Member, cell: &Cell) -> i64 {
        let lent: i64 =
            self.children(member).map(|child| self.owned(child, cell) - self.kept(child, cell)).sum();
        self.quota(member, cell).nominal + lent
    }

    /// What a member does not lend.
    fn kept(&self, member: &Member, cell: &Cell) -> i64 {
        match self.quota(member, cell).lending {
            Some(lending) if self.parent(member).is_some() => (self.owned(member, cell) - lending).max(0),
            _ => 0,
        }
    }

    /// What is used of what a member owns: its own use, and what those below it use beyond what they keep.
    fn used(&self, member: &Member, cell: &Cell) -> i64 {
        let own = self.nodes.get(member).and_then(|node| node.used.get(cell)).copied().unwrap_or(0);
        let of_children: i64 =
            self.children(member).map(|child| (self.used(child, cell) - self.kept(child, cell)).max(0)).sum();
        own + of_children
    }

    /// What a member may use at most, if its parents had all it could ask for.
    fn most(&self, member: &Member, cell: &Cell) -> i64 {
        let quota = self.quota(member, cell);
        match self.parent(member) {
            Some(_) => self.owned(member, cell).saturating_add(quota.borrowing.unwrap_or(i64::MAX)),
            None => self.owned(member, cell),
        }
    }

    /// Whether a ClusterQueue has quota of its own for a cell, be it 0.
    pub(super) fn offers(&self, queue: &str, cell: &Cell) -> bool {
        let queue = Member::Queue(queue.to_owned());
        self.nodes.get(&queue).is_some_and(|node| node.quotas.contains_key(cell))
    }

    /// That no level which a ClusterQueue's use reaches is over what it may use.
    pub(super) fn within(&self, queue: &str, cell: &Cell) -> Result<(), String> {
        let path = self.ancestry(queue).ok_or_else(|| format!("{queue} is below cohorts in a circle"))?;
        for member in &path {
            let (used, most) = (self.used(member, cell), self.most(member, cell));
            if used > most {
                return Err(format!("{member:?} now uses {used} of {cell:?}, at most {most} allowed"));
            }
            if used <= self.kept(member, cell) {
                break;
            }
        }
        Ok(())
    }

    /// How much more of a cell a ClusterQueue may use.
    pub(super) fn room(&self, queue: &str, cell: &Cell) -> i64 {
        let Some(path) = self.ancestry(queue) else { return 0 };
        // From the root down: what is left above, as far as the borrowing limit lets it through, and what is kept.
        path.iter().rev().fold(i64::MAX, |above, member| {
            let (owned, used) = (self.owned(member, cell), self.used(member, cell));
            if self.parent(member).is_none() {
                return owned - used;
            }
            let kept = self.kept(member, cell);
            let left = (kept - used).max(0);
            let drawn = (used - kept).max(0);
            let limit = self.quota(member, cell).borrowing.unwrap_or(i64::MAX);
            left + above.min((owned - kept).saturating_add(limit) - drawn)
        })
    }

    /// What of a cell is a ClusterQueue's own.
    pub(super) fn nominal(&self, queue: &str, cell: &Cell) -> i64 {
        self.quota(&Member::Queue(queue.to_owned()), cell).nominal
    }
}

fn quotas(object: &Value) -> BTreeMap<Cell, Quota> {
    let mut quotas = BTreeMap::new();
    for flavor in items(object, "/spec/resourceGroups").flat_map(|group| items(group, "/flavors")) {
        for resource in items(flavor, "/resources") {
            let name = text(resource, "/name");
            let limit = |field| amount(name, resource.get(field));
            let quota = Quota {
                nominal: limit("nominalQuota").unwrap_or(0),
                borrowing: limit("borrowingLimit"),
                lending: limit("lendingLimit"),
            };
            quotas.insert((text(flavor, "/name").to_owned(), name.to_owned()), quota);
        }
    }
    quotas
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(name: &str, above: (&str, &str), quota: Value) -> Value {
        let mut quota = quota;
        quota["name"] = json!("gpu");
        let groups = json!([{ "flavors": [{ "name": "f", "resources": [quota] }] }]);
        json!({ "metadata": { "name": name }, "spec": { above.0: above.1, "resourceGroups": groups } })
    }

    fn tree(queues: &[(&str, &str, Value, i64)], cohorts: &[(&str, &str, Value)]) -> Tree {
        let mut tree = Tree::default();
        for (name, cohort, quota, used) in queues {
            let member = Member::Queue((*name).to_owned());
            tree.put(member.clone(), &object(name, ("cohortName", cohort), quota.clone()), cohort);
            tree.nodes.get_mut(&member).unwrap().used = [(cell(), *used)].into();
        }
        for (name, parent, quota) in cohorts {
            let member = Member::Cohort((*name).to_owned());
            tree.put(member, &object(name, ("parentName", parent), quota.clone()), parent);
        }
        tree
    }

    fn cell() -> Cell {
        ("f".to_owned(), "gpu".to_owned())
    }

    #[test]
    fn room_is_what_is_kept_and_what_parents_have_within_limits() {
        let quota = |nominal: i64| json!({ "nominalQuota": nominal });
        let lending =
            |nominal: i64, lending: i64| json!({ "nominalQuota": nominal, "lendingLimit": lending });
        let borrowing = |nominal: i64, most: i64| json!({ "nominalQuota": nominal, "borrowingLimit": most });
        for (queues, cohorts, room) in [
            (vec![("a", "", quota(4), 1)], vec![], 3),
            (vec![("a", "x", quota(4), 1), ("b", "x", quota(4), 0)], vec![], 7),
            (vec![("a", "x", borrowing(4, 2), 1), ("b", "x", quota(4), 0)], vec![], 5),
            (vec![("a", "x", quota(4), 1), ("b", "x", lending(4, 1), 0)], vec![], 4),
            // What b uses of its own is not of what it lends.
            (vec![("a", "x", quota(4), 0), ("b", "x", lending(4, 1), 3)], vec![], 5),
            (vec![("a", "x", quota(4), 0), ("b", "x", lending(4, 1), 5)], vec![], 3),
            (vec![("a", "x", quota(1), 0), ("b", "y", quota(4), 0)], vec![("x", "y", quota(0))], 5),
            (vec![("a", "x", quota(1), 0), ("b", "y", quota(4), 0)], vec![("x", "y", borrowing(0, 2))], 3),
            (vec![("a", "x", quota(1), 0), ("b", "y", quota(4), 6)], vec![("x", "y", quota(3))], 2),
            (vec![("a", "x", quota(1), 0)], vec![("x", "y", quota(0)), ("y", "x", quota(9))], 0),
        ] {
            let tree = tree(&queues, &cohorts);
            assert_eq!(tree.room("a", &cell()), room, "{queues:?} {cohorts:?}");
        }
    }

    #[test]
    fn a_level_that_is_over_is_named() {
        let quota = |nominal: i64| json!({ "nominalQuota": nominal });
        let lending = json!({ "nominalQuota": 4, "lendingLimit": 1 });
        let over = tree(&[("a", "x", quota(4), 6), ("b", "x", lending.clone(), 4)], &[]);
        assert!(over.within("a", &cell()).unwrap_err().contains("Cohort(\"x\")"));
        // What b keeps is nobody else's.
        let kept = tree(&[("a", "x", quota(4), 6), ("b", "x", lending, 3)], &[]);
        assert_eq!(kept.within("b", &cell()), Ok(()));
        assert!(tree(&[("a", "", quota(4), 5)], &[]).within("a", &cell()).is_err());
    }
}
