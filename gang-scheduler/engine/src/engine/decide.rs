//! From what is known to what is to be done.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use model::planted::Bug;

use super::{Decision, Engine, Pending, Placement, Plan, Undo};
use crate::event::GangSpec;
use crate::gang::{Census, Spot};
use crate::ids::{GangId, NodeIndex, PodUid, ShapeId};
use crate::reason::{NoFit, Why};
use crate::solve::{Arranged, Group, Space, to_u32};

/// What did not fit in this round: all that wait, and the least that must be placed. Within a round capacity only shrinks,
/// so what has the same shapes does not fit either. With the position of the group that the reason is about.
type Memo = BTreeMap<(Vec<Group>, Vec<Group>), (NoFit, usize)>;

/// One call of [`Engine::decide`].
struct Round {
    now_ms: i64,
    /// Nobody else of the same priority waits.
    alone: bool,
    memo: Memo,
    decisions: Vec<Decision>,
}

/// A gang in the order: repair first, then priority, age and id.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Queued {
    level: (bool, Reverse<i32>),
    created_ms: i64,
    id: GangId,
    waits: bool,
}

/// A gang that is looked at.
struct Turn {
    id: GangId,
    /// As it was before anything was placed.
    census: Census,
    patience_ends: Option<i64>,
    /// The position of its plan among the decisions.
    plan: Option<usize>,
    /// Members that have no place yet and may have one by themselves.
    rest: VecDeque<PodUid>,
    whys: Result<BTreeMap<PodUid, Why>, Why>,
}

enum Begun {
    Open(Box<Turn>),
    /// Nothing to do; to be looked at again at this time.
    Closed(Option<i64>),
}

impl Engine {
    /// What is to be done now. `now_ms`: as for [`Engine::apply`].
    ///
    /// Placements are assumed at once, so asking again gives nothing new until something happens or
    /// [`Engine::next_deadline`] has come.
    pub fn decide(&mut self, now_ms: i64) -> Vec<Decision> {
        let mut round = Round { now_ms, alone: true, memo: Memo::new(), decisions: Vec::new() };
        let mut deadline: Option<i64> = None;
        for level in self.order().chunk_by(|a, b| a.level == b.level) {
            round.alone = level.iter().filter(|turn| turn.waits).count() < 2;
            let mut turns = Vec::new();
            for place in level {
                match self.begin(&place.id, &mut round) {
                    Begun::Open(turn) => turns.push(turn),
                    Begun::Closed(due) => deadline = [deadline, due].into_iter().flatten().min(),
                }
            }
            self.share(&mut turns, &mut round);
            for turn in turns {
                let due = self.end(*turn, &mut round);
                deadline = [deadline, due].into_iter().flatten().min();
            }
        }
        self.deadline = deadline;
        round.decisions
    }

    /// The gangs that may need a decision, in the order in which they are looked at.
    fn order(&self) -> Vec<Queued> {
        let queued = self.open.iter().filter_map(|id| {
            let gang = self.gangs.get(id)?;
            let spec = gang.spec.as_ref()?;
            let census = Census::of(&gang.members, &self.pods);
            let repair = census.placed() > 0 && census.missing(spec.min_member) > 0;
            let repair = repair && !self.config.planted.is(Bug::LeaveHalfGang);
            let priority = spec.priority.unwrap_or(census.priority);
            Some(Queued {
                level: (!repair, Reverse(priority)),
                created_ms: spec.created_ms,
                id: id.clone(),
                waits: !census.waiting.is_empty(),
            })
        });
        let mut order: Vec<Queued> = queued.collect();
        order.sort();
        order
    }

    /// Looks at one gang, and places its minimum if that is missing.
    fn begin(&mut self, id: &GangId, round: &mut Round) -> Begun {
        let (now_ms, freed) = (round.now_ms, self.freed);
        let Some(gang) = self.gangs.get_mut(id) else { return Begun::Closed(None) };
        let Some(spec) = gang.spec.clone() else { return Begun::Closed(None) };
        let expired = |at: &i64| *at <= now_ms;
        gang.dirty |= gang.avoid.values().any(expired) || gang.retry_at.as_ref().is_some_and(expired);
        gang.avoid.retain(|_, until| !expired(until));
        gang.retry_at = gang.retry_at.filter(|at| !expired(at));
        let census = Census::of(&gang.members, &self.pods);
        let min_member = if self.config.planted.is(Bug::BindPartOfGang) { 0 } else { spec.min_member };
        let missing = census.missing(min_member);
        let below = census.placed() > 0 && missing > 0;
        if below && self.config.planted.is(Bug::LeaveHalfGang) {
            return Begun::Closed(None);
        }
        gang.below_since = if below { gang.below_since.or(Some(now_ms)) } else { None };
        let patience_ends =
            gang.below_since.map(|since| since.saturating_add(self.config.repair_patience_ms));
        let out_of_patience = patience_ends.is_some_and(|end| end <= now_ms);
        let pauses = gang.retry_at.is_some() || !gang.avoid.is_empty();
        let tried = gang.tried == freed && !gang.dirty && census.undone == 0 && !pauses;
        if tried && !out_of_patience {
            return Begun::Closed(patience_ends);
        }
        gang.tried = freed;
        gang.dirty = false;
        if census.undone > 0 {
            return Begun::Closed(None);
        }
        let mut turn = Turn {
            id: id.clone(),
            census,
            patience_ends,
            plan: None,
            rest: VecDeque::new(),
            whys: Ok(BTreeMap::new()),
        };
        self.place_minimum(&spec, &mut turn, missing, round);
        if turn.whys.is_err() && out_of_patience && turn.census.assumed == 0 {
            self.undo(id, &turn.census, spec.min_member, &mut round.decisions);
        }
        Begun::Open(Box::new(turn))
    }

    /// Places what must be placed together; the others get their turns.
    fn place_minimum(&mut self, spec: &GangSpec, turn: &mut Turn, missing: usize, round: &mut Round) {
        let gang = self.gangs.get(&turn.id);
        let backs_off = gang.and_then(|gang| {
            Some(Why::BackingOff { until_ms: gang.retry_at?, refusal: gang.refusal.clone() })
        });
        let roles = turn.census.missing_of_roles(spec);
        let why = obstacle(spec, &turn.census, missing, backs_off);
        if let Some(why) = why.or_else(|| self.short_role(&turn.census, &roles)) {
            turn.whys = Err(why);
            return;
        }
        // Nobody joins before the minimum is bound, nor completes it: what is on its way may have no durable plan yet.
        if spec.min_member > 1 && turn.census.assumed > 0 && !turn.census.stands(spec.min_member) {
            return;
        }
        if spec.min_member < 2 || missing == 0 {
            turn.rest = turn.census.waiting.iter().cloned().collect();
            // Its first pod is the minimum of a gang without one.
            if turn.census.placed() == 0 {
                self.place_next(turn, round);
            }
            return;
        }
        let (needed, further) = self.divide(&turn.census.waiting, missing, &roles);
        match self.place_together(&turn.id, &turn.census, (needed, further), round) {
            Ok(placed) => {
                let chosen: BTreeSet<&PodUid> = placed.iter().map(|(uid, _)| uid).collect();
                turn.rest = turn.census.waiting.iter().filter(|uid| !chosen.contains(uid)).cloned().collect();
                let plan = self.assume(&turn.id, spec.min_member, &placed);
                turn.plan = (placed.len() > 1).then_some(round.decisions.len());
                round.decisions.push(Decision::Place(plan));
            }
            Err(why) => turn.whys = Err(why),
        }
        // What is beyond the minimum of a gang that is repaired has no precedence: it waits for the next round.
        if turn.census.placed() > 0 && !turn.rest.is_empty() {
            turn.rest.clear();
            self.touch(&turn.id);
        }
    }

    /// What gangs want beyond their minima, one pod of each in turn: the first gang takes no more than the others, and
    /// nothing of it before they have their minimum.
    fn share(&mut self, turns: &mut [Box<Turn>], round: &mut Round) {
        while turns.iter().any(|turn| !turn.rest.is_empty()) {
            for turn in turns.iter_mut() {
                self.place_next(turn, round);
            }
        }
    }

    /// Says why what waits is waiting; gives the time at which the gang must be looked at again, if any.
    fn end(&mut self, turn: Turn, round: &mut Round) -> Option<i64> {
        let Turn { id, census, patience_ends, whys, .. } = turn;
        self.say(&id, &census, whys, &mut round.decisions);
        let gang = self.gangs.get(&id)?;
        let again = gang.dirty.then_some(round.now_ms);
        let patience_ends = patience_ends.filter(|end| *end > round.now_ms);
        [patience_ends, gang.retry_at, gang.avoid.values().min().copied(), again].into_iter().flatten().min()
    }

    /// The first role of which fewer members wait than must be placed.
    fn short_role(&self, census: &Census, roles: &BTreeMap<Arc<str>, (usize, usize)>) -> Option<Why> {
        roles.iter().find_map(|(role, (missing, have))| {
            let waits =
                |uid: &&PodUid| self.pods.get(*uid).is_some_and(|pod| pod.info.role.as_ref() == Some(role));
            let there = census.waiting.iter().filter(waits).count();
            let (have, need) = (to_u32(have + there), to_u32(have + missing));
            (there < *missing).then(|| Why::NotEnoughOfRole { role: role.clone(), have, need })
        })
    }

    /// The members that must be placed together, those their roles need first, and the others.
    fn divide(
        &self,
        waiting: &[PodUid],
        missing: usize,
        roles: &BTreeMap<Arc<str>, (usize, usize)>,
    ) -> (Vec<PodUid>, Vec<PodUid>) {
        let mut left: BTreeMap<&str, usize> =
            roles.iter().map(|(role, (need, _))| (role.as_ref(), *need)).collect();
        let (mut needed, rest): (Vec<PodUid>, Vec<PodUid>) = waiting.iter().cloned().partition(|uid| {
            let role = self.pods.get(uid).and_then(|pod| pod.info.role.as_deref());
            let left = role.and_then(|role| left.get_mut(role)).filter(|left| **left > 0);
            left.map(|left| *left -= 1).is_some()
        });
        let more = missing.saturating_sub(needed.len()).min(rest.len());
        let (more, further) = rest.split_at(more);
        needed.extend_from_slice(more);
        (needed, further.to_vec())
    }

    /// A place for all that wait if nobody else does, else for those needed, else for any that are enough.
    fn place_together(
        &mut self,
        id: &GangId,
        census: &Census,
        (needed, further): (Vec<PodUid>, Vec<PodUid>),
        round: &mut Round,
    ) -> Result<Vec<(PodUid, NodeIndex)>, Why> {
        let avoid = self.avoided(id);
        let (all, least) = (self.grouped(&census.waiting), self.grouped(&needed));
        let groups = (groups_of(&all), groups_of(&least));
        if avoid.is_empty()
            && let Some((no_fit, failing)) = round.memo.get(&groups)
        {
            let member = least.get(*failing).map(|(_, uids)| self.name_of(&uids[0])).unwrap_or_default();
            return Err(Why::NoFit(NoFit { member, ..no_fit.clone() }));
        }
        let spec = self.gangs.get(id).and_then(|gang| gang.spec.as_ref());
        let no_roles = spec.is_none_or(|spec| spec.roles.is_empty());
        let any_will_do = !further.is_empty() && no_roles;
        let mut space = Space::new(&mut self.nodes, &mut self.shapes, &avoid, self.config.planted);
        let mut chosen: BTreeMap<PodUid, NodeIndex> = BTreeMap::new();
        let whole = match round.alone && !further.is_empty() {
            true => space.arrange(&groups.0),
            false => Arranged::None { exhaustive: true },
        };
        match whole {
            Arranged::Found(found) => assign(&mut chosen, &all, found),
            Arranged::None { .. } => match space.arrange(&groups.1) {
                Arranged::Found(found) => assign(&mut chosen, &least, found),
                // Which members they are is nobody's wish, unless roles say so.
                Arranged::None { exhaustive } => {
                    match any_will_do.then(|| space.any(&groups.0, needed.len())).flatten() {
                        Some(found) => assign(&mut chosen, &all, found),
                        None => {
                            // With roles, others of the same shapes may have a place.
                            let memo = no_roles.then_some(&mut round.memo);
                            return Err(no_place(&mut space, &groups, exhaustive, &least, &self.pods, memo));
                        }
                    }
                }
            },
        }
        space.roll_back(0);
        Ok(census.waiting.iter().filter_map(|uid| Some((uid.clone(), *chosen.get(uid)?))).collect())
    }

    /// A place for the next pod whose turn it is, if there is one.
    fn place_next(&mut self, turn: &mut Turn, round: &mut Round) {
        let (Some(uid), Ok(whys)) = (turn.rest.pop_front(), &mut turn.whys) else { return };
        let Some((shape, member)) =
            self.pods.get(&uid).and_then(|pod| Some((pod.shape?, pod.info.name.clone())))
        else {
            return;
        };
        let avoid = self.avoided(&turn.id);
        let groups = vec![(shape, 1)];
        let key = (groups.clone(), groups);
        if avoid.is_empty()
            && let Some((no_fit, _)) = round.memo.get(&key)
        {
            whys.insert(uid, Why::NoFit(NoFit { member, ..no_fit.clone() }));
            return;
        }
        let mut space = Space::new(&mut self.nodes, &mut self.shapes, &avoid, self.config.planted);
        let node = space.pack(shape, 1).first().copied();
        space.roll_back(0);
        let Some(node) = node else {
            let no_fit = NoFit { member, ..space.explain(&key.0, true).0 };
            if avoid.is_empty() {
                round.memo.insert(key, (no_fit.clone(), 0));
            }
            whys.insert(uid, Why::NoFit(no_fit));
            return;
        };
        let min_member =
            self.gangs.get(&turn.id).and_then(|gang| gang.spec.as_ref()).map_or(0, |spec| spec.min_member);
        let placed = self.assume(&turn.id, min_member, &[(uid, node)]);
        match turn.plan.and_then(|index| round.decisions.get_mut(index)) {
            Some(Decision::Place(plan)) => {
                plan.members.extend(placed.members);
                plan.members.sort_by_key(|one| (one.name.len(), one.name.clone(), one.pod.clone()));
            }
            _ => round.decisions.push(Decision::Place(placed)),
        }
    }

    /// Counts the placements from now on.
    fn assume(&mut self, id: &GangId, min_member: u32, placed: &[(PodUid, NodeIndex)]) -> Plan {
        let mut members = Vec::with_capacity(placed.len());
        for (uid, node) in placed {
            let Some(pod) = self.pods.get_mut(uid) else { continue };
            pod.load.devices = self.nodes.choose_devices(*node, &pod.info.devices_asked);
            members.push(Placement {
                pod: uid.clone(),
                namespace: pod.info.namespace.clone(),
                name: pod.info.name.clone(),
                node: self.nodes.name(*node).clone(),
                devices: pod.load.devices.clone(),
            });
            self.occupy(uid, Spot::Assumed(*node), *node);
        }
        Plan { gang: id.clone(), min_member, members }
    }

    /// Deletes the bound members that come back by themselves, if there are any.
    fn undo(&mut self, id: &GangId, census: &Census, min_member: u32, decisions: &mut Vec<Decision>) {
        let (mut delete, mut kept) = (Vec::new(), Vec::new());
        for uid in &census.bound {
            match self.pods.get_mut(uid) {
                Some(pod) if pod.info.has_controller => {
                    pod.undone = true;
                    delete.push((uid.clone(), pod.info.namespace.clone(), pod.info.name.clone()));
                }
                _ => kept.push(uid.clone()),
            }
        }
        if delete.is_empty() {
            return;
        }
        if let Some(gang) = self.gangs.get_mut(id) {
            gang.below_since = None;
        }
        let running = to_u32(census.bound.len());
        decisions.push(Decision::Undo(Undo { gang: id.clone(), delete, kept, running, min_member }));
    }

    /// Records why what waits is waiting, and says it if it is news.
    fn say(
        &mut self,
        id: &GangId,
        census: &Census,
        whys: Result<BTreeMap<PodUid, Why>, Why>,
        decisions: &mut Vec<Decision>,
    ) {
        let mut pods: BTreeMap<PodUid, Why> =
            census.held.iter().map(|(uid, hold)| (uid.clone(), Why::Held(hold.clone()))).collect();
        let why = match whys {
            Ok(singly) => {
                pods.extend(singly);
                pods.values().next().cloned()
            }
            Err(why) => {
                pods.extend(census.waiting.iter().map(|uid| (uid.clone(), why.clone())));
                Some(why)
            }
        };
        let nothing_waits = pods.is_empty() && census.gated == 0;
        let Some(gang) = self.gangs.get_mut(id) else { return };
        gang.gated = census.gated;
        if nothing_waits && gang.below_since.is_none() && census.undone == 0 && !gang.dirty {
            self.open.remove(id);
        }
        let said = why.map(|why| (why, pods));
        if said == gang.said {
            return;
        }
        gang.said.clone_from(&said);
        if let Some((why, pods)) = said {
            decisions.push(Decision::Pending(Pending { gang: id.clone(), why, pods }));
        }
    }

    fn name_of(&self, uid: &PodUid) -> Arc<str> {
        self.pods.get(uid).map(|pod| pod.info.name.clone()).unwrap_or_default()
    }

    fn avoided(&self, id: &GangId) -> BTreeSet<NodeIndex> {
        let gang = self.gangs.get(id);
        let names = gang.into_iter().flat_map(|gang| gang.avoid.keys());
        names.filter_map(|name| self.nodes.find_present(name)).collect()
    }

    /// Pods by shape, in the order of first appearance.
    fn grouped(&self, uids: &[PodUid]) -> Vec<(ShapeId, Vec<PodUid>)> {
        let mut groups: Vec<(ShapeId, Vec<PodUid>)> = Vec::new();
        for uid in uids {
            let Some(shape) = self.pods.get(uid).and_then(|pod| pod.shape) else { continue };
            match groups.iter_mut().find(|(id, _)| *id == shape) {
                Some((_, members)) => members.push(uid.clone()),
                None => groups.push((shape, vec![uid.clone()])),
            }
        }
        groups
    }
}

/// What keeps a gang from being tried at all.
fn obstacle(spec: &GangSpec, census: &Census, missing: usize, backs_off: Option<Why>) -> Option<Why> {
    if let Some(hold) = &spec.hold {
        return Some(Why::Held(hold.clone()));
    }
    let present = census.waiting.len() + census.placed() + census.satisfied();
    let fresh = census.placed() == 0;
    let expected = usize::try_from(spec.expected).unwrap_or(usize::MAX);
    let short = census.waiting.len() < missing || fresh && missing > 0 && present < expected;
    if short {
        if let Some(hold) = census.held.values().next() {
            return Some(Why::Held(hold.clone()));
        }
        return Some(Why::NotEnoughMembers {
            have: to_u32(present),
            need: spec.expected.max(spec.min_member),
            gated: to_u32(census.gated),
        });
    }
    backs_off.filter(|_| !census.waiting.is_empty())
}

/// Says why there is no place, and remembers it for this round.
fn no_place(
    space: &mut Space<'_>,
    groups: &(Vec<Group>, Vec<Group>),
    exhaustive: bool,
    least: &[(ShapeId, Vec<PodUid>)],
    pods: &BTreeMap<PodUid, crate::gang::Pod>,
    memo: Option<&mut Memo>,
) -> Why {
    let (mut no_fit, failing) = space.explain(&groups.1, exhaustive);
    let first = least.get(failing).and_then(|(_, uids)| pods.get(uids.first()?));
    no_fit.member = first.map(|pod| pod.info.name.clone()).unwrap_or_default();
    if let Some(memo) = memo.filter(|_| space.avoid.is_empty()) {
        memo.insert(groups.clone(), (no_fit.clone(), failing));
    }
    Why::NoFit(no_fit)
}

fn groups_of(grouped: &[(ShapeId, Vec<PodUid>)]) -> Vec<Group> {
    grouped.iter().map(|(shape, uids)| (*shape, uids.len())).collect()
}

fn assign(
    chosen: &mut BTreeMap<PodUid, NodeIndex>,
    grouped: &[(ShapeId, Vec<PodUid>)],
    found: Vec<Vec<NodeIndex>>,
) {
    for ((_, uids), nodes) in grouped.iter().zip(found) {
        chosen.extend(uids.iter().cloned().zip(nodes));
    }
}
