//! Phase 1: how many pods and slices fit in each domain.

use model::{ResourceList, ResourceName};

use super::filter::{Filter, Verdict};
use super::index::{Ground, View};
use super::place::{Plan, Task};
use super::{Exclusions, Rules};

/// More pods than any workload has (`count` is a 32-bit number).
pub(super) const MANY: i64 = i32::MAX as i64;

/// What fits in a domain; in the descent, what is given to it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Room {
    pub(super) pods: i64,
    /// Slices; 0 below the level that slices are bound to.
    pub(super) slices: i64,
    /// Pods that fit beside the leader, if it is put where it costs least.
    pub(super) pods_beside: i64,
    /// Slices that do.
    pub(super) slices_beside: i64,
    /// Leaders that fit: 0 or 1.
    pub(super) leaders: i64,
    /// How much its nodes are preferred.
    pub(super) score: i64,
}

/// One resource of a pod, and what is free of it by leaf.
struct Need<'a> {
    resource: ResourceName,
    amount: i64,
    /// What the leader takes of it.
    leader: i64,
    free: std::borrow::Cow<'a, [i64]>,
}

fn needs<'a>(ground: &'a Ground, task: &Task<'_>, view: View) -> Vec<Need<'a>> {
    let mut asked: std::collections::BTreeMap<ResourceName, (i64, i64)> = std::collections::BTreeMap::new();
    for (resource, amount) in &task.set.per_pod {
        asked.entry(resource.clone()).or_default().0 = *amount;
    }
    let none = ResourceList::new();
    for (resource, amount) in task.leader.map_or(&none, |leader| &leader.per_pod) {
        asked.entry(resource.clone()).or_default().1 = *amount;
    }
    asked.insert(ResourceName::from(ResourceName::PODS), (1, task.leader.map_or(0, |_| 1)));
    let free = |resource: &ResourceName| match ground.resources.get(resource) {
        None => vec![0; ground.leaves.len()].into(),
        Some(column) => ground.columns[*column].left(view),
    };
    asked
        .into_iter()
        .map(|(resource, (amount, leader))| Need { free: free(&resource), resource, amount, leader })
        .collect()
}

/// How many pods fit on a leaf, beside a leader or not, and which need there is least for.
fn count(needs: &[Need<'_>], leaf: usize, leader: bool) -> (i64, usize) {
    let (mut fits, mut scarce) = (MANY, 0);
    for (index, need) in needs.iter().enumerate().filter(|(_, need)| need.amount > 0) {
        let free = need.free[leaf].saturating_sub(if leader { need.leader } else { 0 });
        // As many as so far: no division needed.
        if fits.checked_mul(need.amount).is_some_and(|wanted| wanted <= free) {
            continue;
        }
        (fits, scarce) = ((free / need.amount).clamp(0, MANY), index);
        if fits == 0 {
            break;
        }
    }
    (fits, scarce)
}

fn leader_fits(needs: &[Need<'_>], leaf: usize) -> bool {
    needs.iter().all(|need| need.leader == 0 || need.leader <= need.free[leaf])
}

/// Fills in the rooms of all domains.
pub(super) fn fill(
    ground: &Ground,
    rooms: &mut Vec<Vec<Room>>,
    task: &Task<'_>,
    plan: &Plan,
    filter: &Filter<'_>,
    view: View,
) -> Exclusions {
    rooms.resize(ground.tree.levels.len(), Vec::new());
    for (rooms, level) in rooms.iter_mut().zip(&ground.tree.levels) {
        rooms.clear();
        rooms.resize(level.len(), Room::default());
    }
    let lowest = ground.tree.lowest();
    let exclusions = fill_leaves(ground, &mut rooms[lowest], task, filter, view);
    if lowest == plan.slice_level {
        rooms[lowest].iter_mut().for_each(|room| slice(room, plan.slice_size));
    }
    for level in (0..lowest).rev() {
        let (above, below) = rooms.split_at_mut(level + 1);
        for (domain, room) in above[level].iter_mut().enumerate() {
            let children = ground.tree.children(level, domain as u32);
            let children = &below[0][children.start as usize..children.end as usize];
            sum(room, children, level, plan, plan.inner_size(level + 1));
        }
    }
    exclusions
}

fn fill_leaves(
    ground: &Ground,
    rooms: &mut [Room],
    task: &Task<'_>,
    filter: &Filter<'_>,
    view: View,
) -> Exclusions {
    let needs = needs(ground, task, view);
    let within = task.within.map(|(level, domain)| ground.tree.within(level, domain, ground.tree.lowest()));
    let mut exclusions = Exclusions { total: rooms.len(), ..Exclusions::default() };
    let mut scarce_at = vec![0; needs.len()];
    let by_class: Option<Vec<Verdict>> = (!filter.asks_for_hosts()).then(|| {
        ground.classes.example.iter().map(|leaf| filter.judge(&ground.nodes[*leaf as usize])).collect()
    });
    let mut refused = vec![0; ground.classes.example.len()];
    for (leaf, room) in rooms.iter_mut().enumerate() {
        // Where leaves are no nodes, filters are not looked at: a domain's nodes may differ.
        if let Some(class) = ground.classes.of_leaf.get(leaf) {
            let verdict = match &by_class {
                Some(verdicts) => verdicts[*class as usize],
                None => filter.judge(&ground.nodes[leaf]),
            };
            let Verdict::Suits(score) = verdict else {
                match by_class {
                    Some(_) => refused[*class as usize] += 1,
                    None => exclusions.refuse(verdict, &ground.nodes[leaf], 1),
                }
                continue;
            };
            room.score = score;
        }
        if within.as_ref().is_some_and(|within| !within.contains(&(leaf as u32))) {
            exclusions.domain += 1;
            continue;
        }
        let (fits, scarce) = count(&needs, leaf, false);
        (room.pods, room.pods_beside) = (fits, fits);
        if fits == 0 {
            scarce_at[scarce] += 1;
        }
        if task.leader.is_some() && leader_fits(&needs, leaf) {
            room.leaders = 1;
            room.pods_beside = count(&needs, leaf, true).0;
        }
    }
    for (class, nodes) in refused.into_iter().enumerate().filter(|(_, nodes)| *nodes > 0) {
        let node = &ground.nodes[ground.classes.example[class] as usize];
        exclusions.refuse(filter.judge(node), node, nodes);
    }
    let scarce = needs.into_iter().zip(scarce_at).filter(|(_, nodes)| *nodes > 0);
    exclusions.resources = scarce.map(|(need, nodes)| (need.resource, nodes)).collect();
    exclusions
}

/// Cuts a room at the slices' level into slices.
pub(super) fn slice(room: &mut Room, size: i64) {
    room.slices = room.pods / size;
    room.slices_beside = room.pods_beside / size;
}

/// A domain's room from that of its children. `inner` is the size of the slices that the children have to hold whole, if any.
pub(super) fn sum(room: &mut Room, children: &[Room], level: usize, plan: &Plan, inner: Option<i64>) {
    let mut total = Room::default();
    // What putting the leader into the child where it costs least takes away.
    let (mut pods_lost, mut slices_lost) = (None::<i64>, None::<i64>);
    for child in children {
        // Of a child that slices within slices are bound to, only whole ones count.
        let whole = |pods: i64| inner.map_or(pods, |size| pods / size * size);
        let (pods, beside) = (whole(child.pods), whole(child.pods_beside));
        total.pods += pods;
        total.slices += child.slices;
        total.score += child.score;
        total.leaders = total.leaders.max(child.leaders);
        if plan.leaders == 0 || child.leaders > 0 {
            let least = |lost: Option<i64>, more: i64| Some(lost.map_or(more, |lost| lost.min(more)));
            pods_lost = least(pods_lost, pods - beside);
            slices_lost = least(slices_lost, child.slices - child.slices_beside);
        }
    }
    total.pods_beside = pods_lost.map_or(0, |lost| total.pods - lost);
    total.slices_beside = slices_lost.map_or(0, |lost| total.slices - lost);
    if level == plan.slice_level {
        slice(&mut total, plan.slice_size);
    }
    *room = total;
}

impl Rules {
    /// Whether the pods take the smallest room that holds them, instead of the largest first.
    pub(super) fn least_free_first(self, unconstrained: bool) -> bool {
        unconstrained && self.mixed_profile
    }
}
