//! Whether pods would find places, asked again and again while usage changes a little each time, as in a search for victims.
//! The rooms are filled once and then kept up to date where something has changed.

use super::filter::{Filter, Verdict};
use super::place::{Plan, Task, groups, leader_and_workers};
use super::room::{self, Room};
use super::{Assignment, PodSetRequest, Rules, TopologyIndex, View};
use model::{ResourceList, ResourceName};

/// What is asked, and how much room there is for it.
pub(crate) struct Trial {
    plan: Plan,
    /// Column, amount for each pod and for the leader.
    needs: Vec<(usize, i64, i64)>,
    /// Whether a leaf takes such pods at all.
    suits: Vec<bool>,
    rooms: Vec<Vec<Room>>,
    view: View,
}

/// What a trial says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chance {
    /// There are places.
    Yes,
    /// Only the whole search can tell.
    Perhaps,
    /// There are none.
    No,
}

impl TopologyIndex {
    /// Begins a trial. `None`: what is asked for is not so simple.
    pub(crate) fn trial(&mut self, sets: &[PodSetRequest], rules: Rules, view: View) -> Option<Trial> {
        self.refresh();
        let all = groups(sets);
        let [group] = all.as_slice() else { return None };
        if rules.balanced || self.ground.leaves.is_empty() || sets.iter().any(|set| set.previous.is_some()) {
            return None;
        }
        let (workers, leader) = leader_and_workers(sets, group);
        let (set, leader) = (&sets[workers], leader.map(|leader| &sets[leader]));
        let task = Task::new(set, leader);
        let plan = self.plan(&task, rules).ok()?;
        let filter = Filter::new(set, &self.tolerations, rules);
        let mut rooms = Vec::new();
        room::fill(&self.ground, &mut rooms, &task, &plan, &filter, view);
        let leaves = 0..self.ground.leaves.len();
        let suits = |leaf: usize| {
            self.ground.nodes.get(leaf).is_none_or(|node| matches!(filter.judge(node), Verdict::Suits(_)))
        };
        let suits: Vec<bool> = leaves.map(suits).collect();
        let none = ResourceList::new();
        let of_leader = leader.map_or(&none, |leader| &leader.per_pod);
        let mut asked: Vec<(ResourceName, i64, i64)> = Vec::new();
        for resource in
            set.per_pod.keys().chain(of_leader.keys().filter(|one| !set.per_pod.contains_key(*one)))
        {
            let amount = |list: &ResourceList| list.get(resource).copied().unwrap_or(0);
            asked.push((resource.clone(), amount(&set.per_pod), amount(of_leader)));
        }
        asked.push((ResourceName::from(ResourceName::PODS), 1, i64::from(leader.is_some())));
        let needs = asked
            .into_iter()
            .map(|(resource, amount, leader)| (self.ground.column(&resource), amount, leader))
            .collect();
        Some(Trial { plan, needs, suits, rooms, view })
    }

    /// Usage of these places has changed.
    pub(crate) fn update_trial(&self, trial: &mut Trial, assignment: &Assignment) {
        for domain in &assignment.domains {
            if let Some(leaf) = self.leaf(&domain.values).filter(|leaf| trial.suits[*leaf as usize]) {
                self.update_leaf(trial, leaf);
            }
        }
    }

    fn update_leaf(&self, trial: &mut Trial, leaf: u32) {
        let fits = |beside_leader: bool| {
            let free =
                trial.needs.iter().filter(|(_, amount, _)| *amount > 0).map(|(column, amount, leader)| {
                    let left = self.ground.columns[*column].left_at(leaf, trial.view);
                    left.saturating_sub(if beside_leader { *leader } else { 0 }) / amount
                });
            free.min().unwrap_or(i64::MAX).clamp(0, room::MANY)
        };
        let takes_leader = || {
            trial.needs.iter().all(|(column, _, leader)| {
                *leader == 0 || *leader <= self.ground.columns[*column].left_at(leaf, trial.view)
            })
        };
        let leaders = trial.plan.leaders > 0 && takes_leader();
        let (pods, pods_beside) = (fits(false), fits(leaders));
        let lowest = self.ground.tree.lowest();
        let room = &mut trial.rooms[lowest][leaf as usize];
        (room.pods, room.pods_beside, room.leaders) = (pods, pods_beside, i64::from(leaders));
        if lowest == trial.plan.slice_level {
            room::slice(room, trial.plan.slice_size);
        }
        let mut domain = leaf;
        for level in (0..lowest).rev() {
            domain = self.ground.tree.levels[level + 1].parent[domain as usize];
            let children = self.ground.tree.children(level, domain);
            let (above, below) = trial.rooms.split_at_mut(level + 1);
            let children = &below[0][children.start as usize..children.end as usize];
            let inner = trial.plan.inner_size(level + 1);
            room::sum(&mut above[level][domain as usize], children, level, &trial.plan, inner);
        }
    }
}

impl Trial {
    /// Whether there are places now.
    pub(crate) fn chance(&self) -> Chance {
        // Where nothing has to stay whole on the way down, whatever fits in a domain can be shared out in it.
        let simple = self.plan.leaders == 0 && self.plan.layers.is_empty();
        match self.is_enough() {
            true if simple => Chance::Yes,
            true => Chance::Perhaps,
            false => Chance::No,
        }
    }

    fn is_enough(&self) -> bool {
        let plan = &self.plan;
        let wanted = plan.slices();
        let leaders = |room: &Room| room.leaders >= plan.leaders;
        let one =
            |level: usize| self.rooms[level].iter().any(|room| room.slices_beside >= wanted && leaders(room));
        if one(plan.level) {
            return true;
        }
        if plan.required {
            return false;
        }
        let top = if plan.unconstrained { plan.level } else { 0 };
        if (top..plan.level).any(one) {
            return true;
        }
        let all: i64 = self.rooms[top].iter().map(|room| room.slices).sum();
        all >= wanted && (plan.leaders == 0 || self.rooms[top].iter().any(leaders))
    }
}
