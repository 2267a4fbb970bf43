//! Placement of a workload's pod sets, one group after the other.

use std::sync::Arc;

use super::choose::Search;
use super::filter::Filter;
use super::request::MOST_CONDITIONS;
use super::room::fill;
use super::{
    Assignment, Exclusions, LayerRoom, PodSetRequest, Previous, Rules, SliceLayer, Spread, TopologyIndex,
    TopologyReason, View,
};

/// What came of each pod set, in the order asked. `None`: nothing was looked for, because one before it failed or because
/// it is another one's node that is to be replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Places, or why there are none.
    pub pod_sets: Vec<Option<Result<Assignment, TopologyReason>>>,
}

impl Outcome {
    /// The places of all pod sets, if all have one.
    ///
    /// # Errors
    /// The first pod set without a place, by its position, and why.
    pub fn into_assignments(self) -> Result<Vec<Assignment>, (usize, TopologyReason)> {
        let mut assignments = Vec::with_capacity(self.pod_sets.len());
        // Those that were not tried come with one that failed.
        for (index, outcome) in self.pod_sets.into_iter().enumerate().filter_map(|(at, one)| Some((at, one?)))
        {
            assignments.push(outcome.map_err(|reason| (index, reason))?);
        }
        Ok(assignments)
    }
}

/// One search: pods of one shape and their leader.
#[derive(Clone)]
pub(super) struct Task<'a> {
    pub(super) set: &'a PodSetRequest,
    pub(super) count: i64,
    pub(super) leader: Option<&'a PodSetRequest>,
    pub(super) layers: &'a [SliceLayer],
    /// The domain, by level and index, in which all must lie.
    pub(super) within: Option<(usize, u32)>,
}

impl<'a> Task<'a> {
    pub(super) fn new(set: &'a PodSetRequest, leader: Option<&'a PodSetRequest>) -> Self {
        Self { set, count: set.count, leader, layers: &set.layers, within: None }
    }
}

/// What a search found: leaves and pods, by leaf.
#[derive(Default)]
pub(super) struct Found {
    pub(super) workers: Vec<(u32, i64)>,
    pub(super) leader: Vec<(u32, i64)>,
}

/// A request in terms of levels by number.
pub(super) struct Plan {
    /// Pods in whole slices.
    pub(super) count: i64,
    /// 0 or 1.
    pub(super) leaders: i64,
    /// The level at which it is looked for first.
    pub(super) level: usize,
    pub(super) required: bool,
    pub(super) unconstrained: bool,
    /// Take the smallest room that holds them, instead of the largest first and the tightest last.
    pub(super) least_free_first: bool,
    /// The outermost slices; without any, single pods on leaves.
    pub(super) slice_level: usize,
    pub(super) slice_size: i64,
    /// Size of the inner slices that pods come in, by level.
    inner: Vec<Option<i64>>,
    /// All layers, by level; empty unless there are slices within slices.
    pub(super) layers: Vec<(usize, i64)>,
}

impl Plan {
    /// Pods come in whole slices of this size at this level, by an inner layer.
    pub(super) fn inner_size(&self, level: usize) -> Option<i64> {
        self.inner.get(level).copied().flatten()
    }

    pub(super) fn slices(&self) -> i64 {
        self.count / self.slice_size
    }
}

impl TopologyIndex {
    /// Finds places for all pods of these pod sets, as far as they are whole slices, or says why there are none. Nothing is
    /// charged.
    ///
    /// Whatever the view, what pods outside of placement use counts.
    pub fn place(&mut self, sets: &[PodSetRequest], rules: Rules, view: View) -> Outcome {
        self.refresh();
        let lasts = self.lasts(view);
        if lasts && let Some(found) = self.found_before(sets, rules) {
            return found.clone();
        }
        let mut outcome = Outcome { pod_sets: vec![None; sets.len()] };
        // Of a workload that runs, only pods of failed nodes are placed.
        let replacing =
            sets.iter().any(|set| matches!(set.previous, Some(Previous::Failed { .. } | Previous::Kept(_))));
        for group in groups(sets) {
            match replacing {
                true => self.replace_group(sets, &group, rules, view, &mut outcome),
                false => self.place_group(sets, &group, rules, view, &mut outcome),
            }
            let failed = |at: &&usize| matches!(outcome.pod_sets[**at], Some(Err(_)));
            if group.iter().find(failed).is_some() {
                break;
            }
        }
        self.forget_assumed();
        if lasts {
            self.keep_found(sets, rules, outcome.clone());
        }
        outcome
    }

    /// Places that are kept, but for those on failed nodes. Stops at the first pod set for which there are none.
    fn replace_group(
        &mut self,
        sets: &[PodSetRequest],
        group: &[usize],
        rules: Rules,
        view: View,
        outcome: &mut Outcome,
    ) {
        for at in group {
            let place = match &sets[*at].previous {
                Some(Previous::Kept(assignment)) => Ok(assignment.clone()),
                Some(Previous::Failed { assignment, node }) => {
                    self.replace(&sets[*at], assignment, node, rules, view).map(|(assignment, taken)| {
                        self.assume_all(&taken, &sets[*at]);
                        assignment
                    })
                }
                Some(Previous::Slice(_)) | None => continue,
            };
            let failed = place.is_err();
            outcome.pod_sets[*at] = Some(place);
            if failed {
                return;
            }
        }
    }

    fn place_group(
        &mut self,
        sets: &[PodSetRequest],
        group: &[usize],
        rules: Rules,
        view: View,
        outcome: &mut Outcome,
    ) {
        let (workers, leader) = leader_and_workers(sets, group);
        let leader_set = leader.map(|at| &sets[at]);
        let resized = self.resize(&sets[workers], leader_set, rules, view);
        let grows = resized.is_some();
        let placed = resized.unwrap_or_else(|| {
            self.find(&Task::new(&sets[workers], leader_set), rules, view).map(|found| {
                self.assume_all(&found.workers, &sets[workers]);
                leader_set.iter().for_each(|set| self.assume_all(&found.leader, set));
                (self.assignment(&found.workers), self.assignment(&found.leader))
            })
        });
        let (of_workers, of_leader) = match placed {
            Ok((of_workers, of_leader)) => (Ok(of_workers), Some(Ok(of_leader))),
            // The leader of a job that cannot grow is not what stands in the way.
            Err(reason) => (Err(reason.clone()), (!grows).then_some(Err(reason))),
        };
        outcome.pod_sets[workers] = Some(of_workers);
        if let Some(leader) = leader {
            outcome.pod_sets[leader] = of_leader;
        }
    }

    pub(super) fn assume_all(&mut self, places: &[(u32, i64)], set: &PodSetRequest) {
        for (leaf, pods) in places {
            self.assume(*leaf, &set.per_pod, *pods);
        }
    }

    /// One search.
    pub(super) fn find(
        &mut self,
        task: &Task<'_>,
        rules: Rules,
        view: View,
    ) -> Result<Found, TopologyReason> {
        let plan = self.plan(task, rules)?;
        if self.ground.leaves.is_empty() {
            return Err(TopologyReason::NoNodes);
        }
        let filter = Filter::new(task.set, &self.tolerations, rules);
        let mut exclusions = fill(&self.ground, &mut self.rooms, task, &plan, &filter, view);
        if rules.balanced && !plan.required && !plan.unconstrained {
            let mut search = Search { tree: &self.ground.tree, rooms: &mut self.rooms, plan: &plan };
            match search.balance().map(|(level, domains)| search.descend(level, domains, true)) {
                Some(Ok(found)) => return Ok(found),
                // Even shares need not leave slices within slices whole, and rooms are shares now.
                Some(Err(_)) => exclusions = fill(&self.ground, &mut self.rooms, task, &plan, &filter, view),
                None => {}
            }
        }
        let mut search = Search { tree: &self.ground.tree, rooms: &mut self.rooms, plan: &plan };
        let (level, domains) = match search.choose(plan.level) {
            Ok(chosen) => chosen,
            Err(miss) => return Err(self.reason(&plan, miss, exclusions)),
        };
        search
            .descend(level, domains, false)
            .map_err(|level| TopologyReason::CannotDivide { level: Arc::clone(&self.level_keys[level]) })
    }

    pub(super) fn plan(&self, task: &Task<'_>, rules: Rules) -> Result<Plan, TopologyReason> {
        if let Some(conflict) = &task.set.conflict {
            return Err(TopologyReason::SelectorConflict(conflict.clone()));
        }
        let asked = task.set.conditions(rules.preferred_affinity);
        if asked > MOST_CONDITIONS {
            return Err(TopologyReason::TooManyConditions { asked, most: MOST_CONDITIONS });
        }
        if let Some(key) = task.set.malformed(rules.preferred_affinity) {
            return Err(TopologyReason::MalformedAffinity(key.into()));
        }
        let lowest = self.level_keys.len() - 1;
        let slice_size = task.layers.first().map_or(1, |layer| layer.size);
        if slice_size <= 0 {
            return Err(TopologyReason::SliceSizeMissing);
        }
        let level = match &task.set.spread {
            Spread::Required(level) | Spread::Preferred(level) => self.level(level)?,
            Spread::SlicesOnly | Spread::Unconstrained if !task.layers.is_empty() => 0,
            Spread::Unconstrained => lowest,
            Spread::SlicesOnly | Spread::Unsaid => return Err(TopologyReason::LevelNotGiven),
        };
        let slice_level = task.layers.first().map_or(Ok(lowest), |layer| self.level(&layer.level))?;
        let key = |level: usize| Arc::clone(&self.level_keys[level]);
        if level > slice_level {
            return Err(TopologyReason::SliceAbovePodSet { slice: key(slice_level), pod_set: key(level) });
        }
        let mut inner = vec![None; self.level_keys.len()];
        let mut layers = vec![(slice_level, slice_size)];
        for layer in task.layers.iter().skip(1) {
            let (around_level, around) = layers[layers.len() - 1];
            let level = self.level(&layer.level)?;
            if level <= around_level {
                return Err(TopologyReason::LayerNotBelow { layer: key(level), around: key(around_level) });
            }
            if layer.size <= 0 || around % layer.size != 0 {
                return Err(TopologyReason::LayerSizeUneven { size: layer.size, around });
            }
            inner[around_level + 1..=level].fill(Some(layer.size));
            layers.push((level, layer.size));
        }
        // Pods that are left over get no place, as in Kueue: one after the other is let go when one that has a place has ended.
        let count = task.count / slice_size * slice_size;
        if count == 0 {
            return Err(TopologyReason::NoWholeSlice { pods: task.count, size: slice_size });
        }
        let unconstrained = matches!(task.set.spread, Spread::Unconstrained | Spread::SlicesOnly);
        Ok(Plan {
            count,
            leaders: task.leader.map_or(0, |_| 1),
            level,
            required: matches!(task.set.spread, Spread::Required(_)),
            unconstrained,
            least_free_first: rules.least_free_first(unconstrained),
            slice_level,
            slice_size,
            inner,
            layers: if layers.len() > 1 { layers } else { Vec::new() },
        })
    }

    pub(super) fn level(&self, key: &Arc<str>) -> Result<usize, TopologyReason> {
        let level = self.level_keys.iter().position(|level| level == key);
        level.ok_or_else(|| TopologyReason::UnknownLevel(Arc::clone(key)))
    }

    fn reason(&self, plan: &Plan, miss: Miss, exclusions: Exclusions) -> TopologyReason {
        let exclusions = Box::new(exclusions);
        let level = Arc::clone(&self.level_keys[miss.level]);
        if plan.layers.is_empty() {
            let (wanted, size) = (plan.slices(), plan.slice_size);
            return TopologyReason::DoesNotFit {
                level,
                fits: miss.fits,
                wanted,
                size,
                leader: miss.leader,
                exclusions,
            };
        }
        let rooms = &self.rooms[miss.level];
        // The first of those with the most slices.
        let best = (0..rooms.len()).rev().max_by_key(|domain| rooms[*domain].slices).unwrap_or(0) as u32;
        let layers = plan.layers.iter().map(|(at, size)| {
            // Of a layer above the level that was tried, the domain holds a part only.
            let domains =
                if *at < miss.level { 0..0 } else { self.ground.tree.within(miss.level, best, *at) };
            LayerRoom {
                level: Arc::clone(&self.level_keys[*at]),
                fits: domains.map(|domain| self.rooms[*at][domain as usize].pods / size).sum(),
                wanted: plan.count / size,
            }
        });
        TopologyReason::LayersDoNotFit { layers: layers.collect(), level, exclusions }
    }
}

/// Why no domains were chosen.
pub(super) struct Miss {
    pub(super) level: usize,
    /// Slices that fit.
    pub(super) fits: i64,
    /// It is the leader that finds no place.
    pub(super) leader: bool,
}

/// Pod sets that are placed together, in the order of the first of each.
pub(super) fn groups(sets: &[PodSetRequest]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (at, set) in sets.iter().enumerate() {
        let same = |group: &&mut Vec<usize>| set.group.is_some() && sets[group[0]].group == set.group;
        match groups.iter_mut().find(same) {
            Some(group) => group.push(at),
            None => groups.push(vec![at]),
        }
    }
    groups
}

/// The larger of the first two is the workers; of two alike, the first. Of the other a leader gets a place, and further members get
/// none (Kueue `findLeaderAndWorkers`): of jobs its webhooks take no others than two, one of them of a single pod.
pub(super) fn leader_and_workers(sets: &[PodSetRequest], group: &[usize]) -> (usize, Option<usize>) {
    let first = group[0];
    match group.get(1) {
        Some(second) if sets[*second].count > sets[first].count => (*second, Some(first)),
        second => (first, second.copied()),
    }
}
