//! The search: pod sets in order, those of one group together, and for each resource group its flavors in order.

use std::borrow::Cow;

use model::ResourceName;
use model::planted::Bug;
use smallvec::SmallVec;

use super::grade::{Best, Grade, Way};
use super::suit::unsuitable;
use super::{Ask, Attempt, FlavorAssignment, FlavorChoice, Mode, Oracle, PodSetFlavors, Question, Simulated};
use crate::engine::Engine;
use crate::few::Few;
use crate::input::{ClusterQueue, PodSet, ResourceGroup};
use crate::names::FlavorName;
use crate::places::Wishes;
use crate::reason::{Hindrance, Obstacle};
use crate::settings::Undeclared;
use crate::tree::{Ledger, NodeId, Usage};
use crate::workloads::WorkloadId;

/// What was found for one resource of one flavor.
struct Found {
    grade: Grade,
    obstacle: Option<Obstacle>,
    hindrance: Option<Hindrance>,
}

/// A pod set within its group.
struct Member<'a> {
    index: usize,
    pod_set: &'a PodSet,
    count: i64,
    requests: Few<ResourceName, i64>,
}

/// Pod sets that get the same flavors: mostly one.
type Members<'a> = SmallVec<[Member<'a>; 1]>;

/// What they ask for together of the resources of one group, by name.
type Asked<'a> = SmallVec<[(&'a ResourceName, i64); 4]>;

/// What was found for a group of pod sets.
#[derive(Clone, Default)]
struct Shared {
    flavors: Few<ResourceName, FlavorChoice>,
    /// Empty when it fits.
    obstacles: Vec<Obstacle>,
    attempts: Few<FlavorName, Attempt>,
}

/// What a search came to.
#[derive(Default)]
pub(super) struct Scanned {
    pub(super) found: FlavorAssignment,
    pub(super) usage: Usage,
    /// What wants places.
    pub(super) wishes: Wishes,
    /// Whether all of it has some, in `found`.
    pub(super) placed: bool,
    /// The places are there when those who were already told to leave have left.
    pub(super) waits: bool,
}

pub(super) struct Scan<'a> {
    pub(super) engine: &'a mut Engine,
    oracle: &'a mut dyn Oracle,
    pub(super) who: WorkloadId,
    pub(super) queue: &'a ClusterQueue,
    node: NodeId,
    pub(super) ask: Ask<'a>,
    usage: Usage,
    pub(super) found: FlavorAssignment,
    pub(super) waits: bool,
    /// Every flavor has a topology, so that all pods are placed by it.
    pub(super) places_all: bool,
}

impl<'a> Scan<'a> {
    pub(super) fn new(
        engine: &'a mut Engine,
        oracle: &'a mut dyn Oracle,
        who: WorkloadId,
        (node, queue): (NodeId, &'a ClusterQueue),
        ask: Ask<'a>,
    ) -> Self {
        let places_all = engine.queues[node].places_all;
        let (usage, found) = (Usage::new(), FlavorAssignment::default());
        Self { engine, oracle, who, queue, node, ask, usage, found, waits: false, places_all }
    }

    /// Assigns group after group of pod sets, up to the first that finds nothing: no later one could help. Then finds places
    /// for those that want some.
    pub(super) fn run(mut self) -> Scanned {
        let Some(record) = self.engine.workloads.get(self.who) else { return Scanned::default() };
        let pod_sets = record.workload.pod_sets.clone();
        match self.ask.held {
            Some(held) => self.keep(&pod_sets, held),
            None => {
                self.found.pod_sets.reserve_exact(pod_sets.len());
                for first in 0..pod_sets.len() {
                    if self.members(&pod_sets, first).is_some_and(|members| !self.assign(members)) {
                        break;
                    }
                }
            }
        }
        let (mut wishes, mut placed) = (Wishes::new(), true);
        if self.found.mode() != Mode::NoFit {
            wishes = self.wishes(&pod_sets);
            placed = self.find_places(&wishes);
        }
        for index in 0..self.found.pod_sets.len() {
            let hindrance = self.hindrance(&self.found.pod_sets[index]);
            self.found.pod_sets[index].hindrance = hindrance;
            self.found.hindrance = self.found.hindrance.max(hindrance);
        }
        Scanned { found: self.found, usage: self.usage, wishes, placed, waits: self.waits }
    }

    /// Why a pod set finds nothing, in one word; `None` where it does, or where displacing others is a way.
    ///
    /// Of the flavors of one resource group the one that comes closest counts, as any of them would do; of several groups
    /// the worst, as all are needed.
    fn hindrance(&self, one: &PodSetFlavors) -> Option<Hindrance> {
        if one.mode() != Mode::NoFit {
            return None;
        }
        if one.attempts.is_empty() {
            return Some(Hindrance::NoMatchingFlavor);
        }
        let of_group = |group: &ResourceGroup| {
            let tried = group.flavors.iter().filter_map(|quotas| one.attempts.get(&quotas.flavor));
            tried.filter(|attempt| attempt.mode == Mode::NoFit).filter_map(|attempt| attempt.hindrance).min()
        };
        self.queue.groups.iter().filter_map(of_group).max()
    }

    /// The pod sets that are placed side by side with this one and so need the same flavors: those of its group. Every other
    /// stands alone. `None` where one before it is of the group.
    fn members<'b>(&self, pod_sets: &'b [PodSet], first: usize) -> Option<Members<'b>> {
        let group = pod_sets[first].group.as_ref();
        let fellow = |other: &PodSet| group.is_some() && other.group.as_ref() == group;
        if pod_sets[..first].iter().any(fellow) {
            return None;
        }
        let members = pod_sets.iter().enumerate().skip(first);
        let members = members.filter(|(index, one)| *index == first || fellow(one));
        let member = |(index, pod_set): (usize, &'b PodSet)| {
            let count = self.ask.counts.and_then(|counts| counts.get(index)).copied();
            let count = count.unwrap_or(pod_set.count);
            Member { index, pod_set, count, requests: self.totals(pod_set, count) }
        };
        Some(members.map(member).collect())
    }

    /// What all pods of the set use together. The input is checked (`Workload::defect`), so nothing saturates here.
    fn totals(&self, pod_set: &PodSet, count: i64) -> Few<ResourceName, i64> {
        let each = pod_set.requests.iter();
        let mut totals: Few<_, _> =
            each.map(|(resource, amount)| (resource.clone(), amount.saturating_mul(count))).collect();
        if self.covers(ResourceName::PODS) {
            totals.insert(ResourceName::new(ResourceName::PODS), count);
        }
        totals
    }

    fn covers(&self, resource: &str) -> bool {
        let mut covered = self.queue.groups.iter().flat_map(|group| &group.covered);
        covered.any(|one| one.as_str() == resource)
    }

    /// Assigns the pod sets of one group; tells whether they found something.
    fn assign(&mut self, members: Members<'_>) -> bool {
        let (mut shared, served) = self.search(&members);
        let last = members.len().saturating_sub(1);
        for (at, member) in members.into_iter().enumerate() {
            let share = if at == last { std::mem::take(&mut shared) } else { shared.clone() };
            self.append(member, share);
        }
        served
    }

    /// Looks for flavors for all resources of a group of pod sets; tells whether all were found some.
    fn search(&mut self, members: &[Member<'_>]) -> (Shared, bool) {
        let asked = match members {
            [alone] => Cow::Borrowed(&alone.requests),
            _ => Cow::Owned(together(members)),
        };
        let (mut found, mut served) = (Shared::default(), true);
        let ignore = self.engine.settings.undeclared == Undeclared::Ignore;
        let queue = self.queue;
        for (resource, amount) in in_turn(asked.iter().map(|(resource, amount)| (resource, *amount))) {
            let Some(group) = queue.groups.iter().find(|group| group.covered.contains(resource)) else {
                if amount == 0 || ignore {
                    continue;
                }
                (found.obstacles, served) = (vec![Obstacle::ResourceNotCovered(resource.clone())], false);
                break;
            };
            if found.flavors.contains_key(resource) {
                continue;
            }
            let of_group = asked.iter().filter(|(resource, _)| group.covered.contains(resource));
            let asked: Asked<'_> = of_group.map(|(resource, amount)| (resource, *amount)).collect();
            let (flavors, obstacles) = self.group(members, group, &asked, &mut found.attempts);
            if flavors.is_empty() {
                (found.obstacles, served) = (obstacles, false);
                break;
            }
            found.obstacles.extend(obstacles);
            match found.flavors.is_empty() {
                true => found.flavors = flavors,
                false => found.flavors.extend(flavors),
            }
        }
        if !served {
            // Where one resource finds nothing, it does not help that another may some day.
            found.flavors.clear();
        }
        found.obstacles.sort();
        found.obstacles.dedup();
        (found, served)
    }

    fn append(&mut self, member: Member<'_>, share: Shared) {
        let name = &member.pod_set.name;
        let Shared { mut flavors, obstacles, attempts } = share;
        flavors.retain(|resource, choice| match member.requests.is_empty() {
            false => member.requests.contains_key(resource),
            // A leader that asks for nothing is placed beside its workers, on the flavor that tells where.
            true => member.pod_set.group.is_some() && self.has_topology(&choice.flavor),
        });
        for (resource, choice) in flavors.iter() {
            let asked = member.requests.get(resource).copied().unwrap_or(0);
            let more = asked.saturating_sub(self.held_before(name, resource));
            let pair = self.engine.tree.pair(&choice.flavor, resource);
            let sum = self.usage.get_or_insert(pair, 0);
            *sum = sum.saturating_add(more);
            self.found.height = self.found.height.max(choice.height);
        }
        self.found.pod_sets.push(PodSetFlavors {
            name: name.clone(),
            count: member.count,
            requests: member.requests,
            flavors,
            obstacles,
            topology_defect: None,
            topology: None,
            delayed: None,
            attempts,
            hindrance: None,
        });
    }

    pub(super) fn has_topology(&self, flavor: &FlavorName) -> bool {
        self.engine.grounds.has_index(flavor)
    }

    /// Whether the workload has no quota yet.
    pub(super) fn is_first_pass(&self) -> bool {
        self.ask.held.is_none()
    }

    /// What the replaced slice uses for this pod set.
    fn held_before(&self, pod_set: &str, resource: &ResourceName) -> i64 {
        let held = self.ask.replaced.and_then(|held| held.pod_sets.iter().find(|one| &*one.name == pod_set));
        held.and_then(|held| held.usage.get(resource)).copied().unwrap_or(0)
    }

    /// Tries the flavors of a resource group from where the last search stopped. Returns those chosen, and what stands in the
    /// way where they do not fit.
    fn group(
        &mut self,
        members: &[Member<'_>],
        group: &ResourceGroup,
        asked: &Asked<'_>,
        attempts: &mut Few<FlavorName, Attempt>,
    ) -> (Few<ResourceName, FlavorChoice>, Vec<Obstacle>) {
        let (mut best, mut obstacles) = (Best::default(), Vec::new());
        let (others_were_tried, mut reached) = (!attempts.is_empty(), Vec::<&FlavorName>::new());
        let mut last = None;
        for index in self.start(members, group, asked)..group.flavors.len() {
            last = Some(index);
            let flavor = &group.flavors[index].flavor;
            if let Some(obstacle) = self.passed_over(members, flavor, asked) {
                obstacles.push(obstacle);
                continue;
            }
            reached.extend(others_were_tried.then_some(flavor));
            if let Some(obstacle) = self.unsuitable(members, flavor, group) {
                merge(attempts, flavor, Attempt::unsuitable(obstacle.clone()));
                if matches!(obstacle, Obstacle::MalformedAffinity(..)) {
                    (best, obstacles) = (Best::default(), vec![obstacle]);
                    break;
                }
                obstacles.push(obstacle);
                continue;
            }
            let (grade, choices, attempt) = self.grade_flavor(members, flavor, asked);
            obstacles.extend(attempt.obstacles.iter().cloned());
            merge(attempts, flavor, attempt);
            if best.weigh(grade, choices, &self.queue.fungibility) {
                break;
            }
        }
        let (best, mut flavors): (_, Few<_, FlavorChoice>) = best.into_inner(&self.queue.fungibility);
        if !reached.is_empty() {
            leave_out(attempts, group, &reached);
        }
        let tried = last.filter(|index| index + 1 < group.flavors.len());
        for choice in flavors.values_mut() {
            choice.tried = tried;
        }
        if best.way == Way::Fit {
            obstacles.clear();
        }
        (flavors, obstacles)
    }

    /// The flavor to begin with.
    fn start(&self, members: &[Member<'_>], group: &ResourceGroup, asked: &Asked<'_>) -> usize {
        let Some((progress, first)) = self.ask.progress.zip(members.first()) else { return 0 };
        let leading = in_turn(asked.iter().copied()).next();
        let next = leading.map_or(0, |(resource, _)| progress.next(first.index, resource));
        if next < group.flavors.len() { next } else { 0 }
    }

    /// Why a flavor is not looked at: the workload may only have others, or keeps to what was chosen before.
    fn passed_over(
        &self,
        members: &[Member<'_>],
        flavor: &FlavorName,
        asked: &Asked<'_>,
    ) -> Option<Obstacle> {
        let allowed = self.engine.workloads.get(self.who)?.workload.seldom.allowed_flavors.as_ref();
        let pinned = self.ask.pinned.is_none_or(|pinned| {
            let mut before = members.iter().flat_map(|member| {
                pinned.pod_sets.iter().filter(|before| before.name == member.pod_set.name)
            });
            before
                .any(|before| asked.iter().any(|(resource, _)| before.flavors.get(*resource) == Some(flavor)))
        });
        let may = pinned && allowed.is_none_or(|allowed| allowed.contains(flavor));
        (!may).then(|| Obstacle::FlavorNotAllowed(flavor.clone()))
    }

    fn unsuitable(
        &self,
        members: &[Member<'_>],
        name: &FlavorName,
        group: &ResourceGroup,
    ) -> Option<Obstacle> {
        let Some(flavor) = self.engine.flavors.get(name) else {
            return Some(Obstacle::FlavorNotFound(name.clone()));
        };
        let topologies = &self.engine.topologies;
        let suits = |member: &Member<'_>| {
            unsuitable(flavor, member.pod_set, &group.covered, topologies, self.places_all)
        };
        members.iter().find_map(suits)
    }

    fn grade_flavor(
        &mut self,
        members: &[Member<'_>],
        flavor: &FlavorName,
        asked: &Asked<'_>,
    ) -> (Grade, Few<ResourceName, FlavorChoice>, Attempt) {
        let preference = self.queue.fungibility.preference;
        let mut worst = Grade::BEST;
        let mut choices = Few::new();
        let mut attempt = Attempt::fit();
        for (resource, amount) in asked {
            let mut more = *amount;
            for member in members {
                if let Some(obstacle) = self.held_otherwise(member, flavor, resource) {
                    worst = Grade::NONE;
                    attempt.obstacles.push(obstacle);
                    attempt.hindrance = Some(Hindrance::NoMatchingFlavor);
                    break;
                }
                more = more.saturating_sub(self.held_before(&member.pod_set.name, resource));
            }
            let found = self.grade_resource(flavor, resource, more);
            attempt.obstacles.extend(found.obstacle);
            attempt.hindrance = attempt.hindrance.max(found.hindrance);
            attempt.height = attempt.height.max(found.grade.height);
            if worst.is_better_than(found.grade, preference) {
                worst = found.grade;
            }
            let (mode, height) = (found.grade.way.mode(), found.grade.height);
            let choice = FlavorChoice { flavor: flavor.clone(), mode, height, tried: None };
            choices.insert((*resource).clone(), choice);
        }
        attempt.mode = worst.way.mode();
        attempt.possibility = worst.way.possibility();
        attempt.obstacles.sort();
        attempt.obstacles.dedup();
        (worst, choices, attempt)
    }

    /// A slice takes what the one it replaces has, and of no other flavor.
    fn held_otherwise(
        &self,
        member: &Member<'_>,
        flavor: &FlavorName,
        resource: &ResourceName,
    ) -> Option<Obstacle> {
        let held = self.ask.replaced?.pod_sets.iter().find(|one| one.name == member.pod_set.name);
        let holds = held.and_then(|held| held.flavors.get(resource)).cloned();
        (holds.as_ref() != Some(flavor)).then(|| Obstacle::HoldsOther { flavor: flavor.clone(), holds })
    }

    fn grade_resource(&mut self, flavor: &FlavorName, resource: &ResourceName, amount: i64) -> Found {
        let pair = self.engine.tree.pair(flavor, resource);
        let previously = self.usage.get(&pair).copied().unwrap_or(0);
        let total = previously.saturating_add(amount);
        let (node, tree, total_wide) = (self.node, &self.engine.tree, i128::from(total));
        if let Some(height) = tree.height_if_free(node, pair, total_wide) {
            return Found { grade: Grade { way: Way::Fit, height }, obstacle: None, hindrance: None };
        }
        let maximum = tree.maximum(node, pair);
        if total_wide > maximum {
            let comes = self.engine.planted.is(Bug::SayThatQuotaComes);
            let maximum = i64::try_from(maximum).unwrap_or(i64::MAX);
            let (flavor, resource) = (flavor.clone(), resource.clone());
            let obstacle =
                Obstacle::ExceedsMaximum { flavor, resource, requested: amount, previously, maximum };
            return Found {
                grade: Grade { way: Way::NoFit, height: 0 },
                obstacle: Some(obstacle),
                hindrance: Some(if comes { Hindrance::Quota } else { Hindrance::MaxQuota }),
            };
        }
        let (height, lender_below_root) = tree.borrow_height(node, pair, Ledger::Planned, total_wide);
        let may_displace = self.engine.may_displace(node, pair, total, lender_below_root);
        if tree.is_free(node, pair, Ledger::Planned, total_wide) {
            // Those who leave count as long as they are there.
            let grade = if may_displace && self.engine.could_displace_who_leaves(self.who, node, pair, total)
            {
                Grade { way: Way::Wait, height }
            } else {
                Grade { way: Way::Inherit, height }
            };
            return Found { grade, obstacle: None, hindrance: None };
        }
        let missing = total_wide - self.engine.room(node, pair).max(0);
        let obstacle = Some(Obstacle::Insufficient {
            flavor: flavor.clone(),
            resource: resource.clone(),
            missing: i64::try_from(missing).unwrap_or(i64::MAX),
        });
        if !may_displace {
            return Found {
                grade: Grade { way: Way::NoFit, height },
                obstacle,
                hindrance: Some(Hindrance::Quota),
            };
        }
        let workload = &self.engine.workloads[self.who].workload.uid.clone();
        let question =
            Question { workload, cluster_queue: &self.queue.name, flavor, resource, amount: total };
        let Simulated { possibility, height } = self.oracle.simulate(self.engine, question);
        Found { grade: Grade { way: possibility.into(), height }, obstacle, hindrance: None }
    }
}

/// What pod sets ask for together.
fn together(members: &[Member<'_>]) -> Few<ResourceName, i64> {
    let mut asked = Few::new();
    for (resource, amount) in members.iter().flat_map(|member| &member.requests) {
        let sum: &mut i64 = asked.get_or_insert(resource.clone(), 0);
        *sum = sum.saturating_add(*amount);
    }
    asked
}

/// Resources in the order in which Kueue looks at them, which is that of the FNV-1a hashes of their names: the first that finds
/// nothing is the one that is told.
fn in_turn<'a>(
    asked: impl Iterator<Item = (&'a ResourceName, i64)>,
) -> impl Iterator<Item = (&'a ResourceName, i64)> {
    let hash = |name: &ResourceName| {
        name.as_str().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
    };
    let mut turns: Asked<'_> = asked.collect();
    if turns.len() > 1 {
        turns.sort_unstable_by_key(|(name, _)| (hash(name), *name));
    }
    turns.into_iter()
}

impl Attempt {
    fn fit() -> Self {
        Self { mode: Mode::Fit, height: 0, possibility: None, obstacles: Vec::new(), hindrance: None }
    }

    fn unsuitable(obstacle: Obstacle) -> Self {
        Self {
            mode: Mode::NoFit,
            obstacles: vec![obstacle],
            hindrance: Some(Hindrance::NoMatchingFlavor),
            ..Self::fit()
        }
    }
}

/// A flavor that several resource groups name is worth what the worst of them says.
fn merge(attempts: &mut Few<FlavorName, Attempt>, flavor: &FlavorName, attempt: Attempt) {
    let Some(known) = attempts.get_mut(flavor) else {
        attempts.insert(flavor.clone(), attempt);
        return;
    };
    known.mode = known.mode.min(attempt.mode);
    known.height = known.height.max(attempt.height);
    known.possibility = match (known.possibility, attempt.possibility) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    };
    known.obstacles.extend(attempt.obstacles);
    known.obstacles.sort();
    known.obstacles.dedup();
    known.hindrance = known.hindrance.max(attempt.hindrance);
}

/// A flavor of this group that was tried for another one, and that this search did not get to, does not serve both.
fn leave_out(attempts: &mut Few<FlavorName, Attempt>, group: &ResourceGroup, reached: &[&FlavorName]) {
    let flavors = group.flavors.iter().map(|quotas| &quotas.flavor);
    for flavor in flavors.filter(|flavor| !reached.contains(flavor)) {
        if let Some(attempt) = attempts.get_mut(flavor) {
            (attempt.mode, attempt.hindrance) = (Mode::NoFit, Some(Hindrance::NoMatchingFlavor));
        }
    }
}
