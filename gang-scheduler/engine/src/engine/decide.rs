//! From what is known to what is to be done.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::planted::Bug;

use super::{Decision, Engine, Pending, Placement, Plan, Undo};
use crate::gang::{Census, Spot};
use crate::ids::{GangId, NodeIndex, PodUid, ShapeId};
use crate::reason::{NoFit, Why};
use crate::solve::{Arranged, Group, Space, to_u32};

/// What did not fit in this round: all that wait, and the least that must be placed. Within a round capacity only shrinks,
/// so what has the same shapes does not fit either. With the position of the group that the reason is about.
type Memo = BTreeMap<(Vec<Group>, Vec<Group>), (NoFit, usize)>;

impl Engine {
    /// What is to be done now. `now_ms`: milliseconds since the Unix epoch.
    ///
    /// Placements are assumed at once, so asking again gives nothing new until something happens or
    /// [`Engine::next_deadline`] has come.
    pub fn decide(&mut self, now_ms: i64) -> Vec<Decision> {
        let mut order: Vec<_> = self
            .open
            .iter()
            .filter_map(|id| {
                let gang = self.gangs.get(id)?;
                let spec = gang.spec.as_ref()?;
                let census = Census::of(&gang.members, &self.pods);
                let repair = census.placed() > 0 && census.missing(spec.min_member) > 0;
                let repair = repair && !self.config.planted.is(Bug::LeaveHalfGang);
                let priority = spec.priority.unwrap_or(census.priority);
                Some((!repair, Reverse(priority), spec.created_ms, id.clone()))
            })
            .collect();
        order.sort();
        let mut decisions = Vec::new();
        let mut memo = Memo::new();
        let mut deadline: Option<i64> = None;
        for (.., id) in order {
            let due = self.consider(&id, now_ms, &mut memo, &mut decisions);
            deadline = [deadline, due].into_iter().flatten().min();
        }
        self.deadline = deadline;
        decisions
    }

    /// Looks at one gang; gives the time at which it must be looked at again, if any.
    fn consider(
        &mut self,
        id: &GangId,
        now_ms: i64,
        memo: &mut Memo,
        decisions: &mut Vec<Decision>,
    ) -> Option<i64> {
        let freed = self.freed;
        let gang = self.gangs.get_mut(id)?;
        let expired = |at: &i64| *at <= now_ms;
        gang.dirty |= gang.avoid.values().any(expired) || gang.retry_at.as_ref().is_some_and(expired);
        gang.avoid.retain(|_, until| !expired(until));
        gang.retry_at = gang.retry_at.filter(|at| !expired(at));
        let (retry_at, avoided) = (gang.retry_at, gang.avoid.values().min().copied());
        let census = Census::of(&gang.members, &self.pods);
        let spec = gang.spec.clone()?;
        let min_member = if self.config.planted.is(Bug::BindPartOfGang) { 0 } else { spec.min_member };
        let missing = census.missing(min_member);
        let running = census.placed() > 0;
        let below = running && missing > 0;
        if below && self.config.planted.is(Bug::LeaveHalfGang) {
            return None;
        }
        gang.below_since = if below { gang.below_since.or(Some(now_ms)) } else { None };
        let patience_ends =
            gang.below_since.map(|since| since.saturating_add(self.config.repair_patience_ms));
        let out_of_patience = patience_ends.is_some_and(|end| end <= now_ms);
        let pauses = retry_at.is_some() || avoided.is_some();
        let tried = gang.tried == freed && !gang.dirty && gang.undoing.is_empty() && !pauses;
        if tried && !out_of_patience {
            return patience_ends;
        }
        gang.tried = freed;
        gang.dirty = false;
        if !gang.undoing.is_empty() {
            return None;
        }
        let backs_off = retry_at.map(|until_ms| Why::BackingOff { until_ms, refusal: gang.refusal.clone() });
        let roles = census.missing_of_roles(&spec);
        let whys =
            match obstacle(&spec, &census, missing, backs_off).or_else(|| self.short_role(&census, &roles)) {
                Some(why) => Err(why),
                None if min_member > 1 && missing > 0 => {
                    let (needed, further) = self.divide(&census.waiting, missing, &roles);
                    self.place_together(id, spec.min_member, &census, (needed, further), memo, decisions)
                }
                None => Ok(self.place_singly(id, spec.min_member, &census, memo, decisions)),
            };
        if whys.is_err() && out_of_patience && census.assumed == 0 {
            self.undo(id, &census, spec.min_member, decisions);
        }
        self.say(id, &census, whys, decisions);
        let again = self.gangs.get(id).is_some_and(|gang| gang.dirty).then_some(now_ms);
        let pending = [patience_ends.filter(|end| *end > now_ms), retry_at, avoided, again];
        pending.into_iter().flatten().min()
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

    /// A place for all that wait, else for those needed and then for what else fits, else for any that are enough.
    fn place_together(
        &mut self,
        id: &GangId,
        min_member: u32,
        census: &Census,
        (needed, further): (Vec<PodUid>, Vec<PodUid>),
        memo: &mut Memo,
        decisions: &mut Vec<Decision>,
    ) -> Result<BTreeMap<PodUid, Why>, Why> {
        let avoid = self.avoided(id);
        let (all, least) = (self.grouped(&census.waiting), self.grouped(&needed));
        let groups = (groups_of(&all), groups_of(&least));
        if avoid.is_empty()
            && let Some((no_fit, failing)) = memo.get(&groups)
        {
            let member = least.get(*failing).map(|(_, uids)| self.name_of(&uids[0])).unwrap_or_default();
            return Err(Why::NoFit(NoFit { member, ..no_fit.clone() }));
        }
        let roles =
            self.gangs.get(id).and_then(|gang| gang.spec.as_ref()).is_some_and(|spec| !spec.roles.is_empty());
        let mut space = Space::new(&mut self.nodes, &mut self.shapes, &avoid, self.config.planted);
        let mut chosen: BTreeMap<PodUid, NodeIndex> = BTreeMap::new();
        match (space.arrange(&groups.0), !further.is_empty()) {
            (Arranged::Found(found), _) => assign(&mut chosen, &all, found),
            (Arranged::None { exhaustive }, false) => {
                return Err(no_place(&mut space, &groups, exhaustive, &least, &self.pods, memo));
            }
            (Arranged::None { .. }, true) => match space.arrange(&groups.1) {
                Arranged::Found(found) => {
                    assign(&mut chosen, &least, found);
                    for uid in &further {
                        let Some(shape) = self.pods.get(uid).and_then(|pod| pod.shape) else { continue };
                        if let Some(&node) = space.pack(shape, 1).first() {
                            chosen.insert(uid.clone(), node);
                        }
                    }
                }
                // Which members they are is nobody's wish, unless roles say so: any that are enough will do.
                Arranged::None { exhaustive } => {
                    match space.any(&groups.0, needed.len()).filter(|_| !roles) {
                        Some(found) => assign(&mut chosen, &all, found),
                        None => {
                            return Err(no_place(&mut space, &groups, exhaustive, &least, &self.pods, memo));
                        }
                    }
                }
            },
        }
        space.roll_back(0);
        let placed: Vec<_> =
            census.waiting.iter().filter_map(|uid| Some((uid.clone(), *chosen.get(uid)?))).collect();
        decisions.push(self.assume(id, min_member, &placed));
        // What did not fit beside the minimum is looked at by itself from now on, and says so then.
        if placed.len() < census.waiting.len() {
            self.touch(id);
        }
        Ok(BTreeMap::new())
    }

    /// Each pod by itself: the gang has its minimum, or none.
    fn place_singly(
        &mut self,
        id: &GangId,
        min_member: u32,
        census: &Census,
        memo: &mut Memo,
        decisions: &mut Vec<Decision>,
    ) -> BTreeMap<PodUid, Why> {
        let avoid = self.avoided(id);
        let mut whys = BTreeMap::new();
        for uid in &census.waiting {
            let Some((shape, name)) =
                self.pods.get(uid).and_then(|pod| Some((pod.shape?, pod.info.name.clone())))
            else {
                continue;
            };
            let groups = vec![(shape, 1)];
            let key = (groups.clone(), groups);
            if avoid.is_empty()
                && let Some((no_fit, _)) = memo.get(&key)
            {
                whys.insert(uid.clone(), Why::NoFit(NoFit { member: name, ..no_fit.clone() }));
                continue;
            }
            let mut space = Space::new(&mut self.nodes, &mut self.shapes, &avoid, self.config.planted);
            let node = space.pack(shape, 1).first().copied();
            space.roll_back(0);
            match node {
                Some(node) => decisions.push(self.assume(id, min_member, &[(uid.clone(), node)])),
                None => {
                    let no_fit = NoFit { member: name, ..space.explain(&key.0, true).0 };
                    if avoid.is_empty() {
                        memo.insert(key, (no_fit.clone(), 0));
                    }
                    whys.insert(uid.clone(), Why::NoFit(no_fit));
                }
            }
        }
        whys
    }

    /// Counts the placements from now on.
    fn assume(&mut self, id: &GangId, min_member: u32, placed: &[(PodUid, NodeIndex)]) -> Decision {
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
        Decision::Place(Plan { gang: id.clone(), min_member, members })
    }

    /// Deletes the bound members that come back by themselves, if there are any.
    fn undo(&mut self, id: &GangId, census: &Census, min_member: u32, decisions: &mut Vec<Decision>) {
        let (mut delete, mut kept) = (Vec::new(), Vec::new());
        for uid in &census.bound {
            match self.pods.get(uid) {
                Some(pod) if pod.info.has_controller => {
                    delete.push((uid.clone(), pod.info.namespace.clone(), pod.info.name.clone()));
                }
                _ => kept.push(uid.clone()),
            }
        }
        if delete.is_empty() {
            return;
        }
        if let Some(gang) = self.gangs.get_mut(id) {
            gang.undoing = delete.iter().map(|(uid, ..)| uid.clone()).collect();
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
        if nothing_waits && gang.below_since.is_none() && gang.undoing.is_empty() && !gang.dirty {
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
fn obstacle(
    spec: &crate::event::GangSpec,
    census: &Census,
    missing: usize,
    backs_off: Option<Why>,
) -> Option<Why> {
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
    memo: &mut Memo,
) -> Why {
    let (mut no_fit, failing) = space.explain(&groups.1, exhaustive);
    let first = least.get(failing).and_then(|(_, uids)| pods.get(uids.first()?));
    no_fit.member = first.map(|pod| pod.info.name.clone()).unwrap_or_default();
    if space.avoid.is_empty() {
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
