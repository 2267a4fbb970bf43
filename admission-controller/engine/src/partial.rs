//! Partial admission: fewer pods where all do not fit, down to the `minCount` of each pod set.
//!
//! Rules: Kueue `pkg/scheduler/flavorassigner/podset_reducer.go` and `getInitialAssignments` of its scheduler.

use crate::assign::{Ask, Assignment, NoFit, Progress};
use crate::engine::Engine;
use crate::input::{Admission, PodSet};
use crate::tree::NodeId;
use crate::workloads::WorkloadId;

impl Engine {
    /// Finds quota for a workload that waits in `queue`: for all its pods or, where they allow it, for as many as possible.
    pub(crate) fn assign(&mut self, who: WorkloadId, queue: NodeId) -> Result<Assignment, NoFit> {
        let progress = self.progress(who, queue);
        self.assign_noted(who, queue, None, progress.as_ref())
    }

    /// The same once more within a cycle, among the flavors that were found before.
    pub(crate) fn assign_again(
        &mut self,
        who: WorkloadId,
        queue: NodeId,
        before: &Admission,
    ) -> Result<Assignment, NoFit> {
        self.assign_noted(who, queue, Some(before), None)
    }

    /// The first assignment that is `wanted`, among those of all searches from the first flavor to the last. How far the next
    /// cycle's search goes on is another matter: if it went by what these found, the two could take turns for ever.
    pub(crate) fn assign_aside(
        &mut self,
        who: WorkloadId,
        queue: NodeId,
        wanted: impl Fn(&Assignment) -> bool,
    ) -> Option<Assignment> {
        let before = self.workloads.get_mut(who)?.progress.take();
        let found = loop {
            let found = self.assign(who, queue).ok().filter(&wanted);
            if found.is_some() || !self.flavors_left(who) {
                break found;
            }
        };
        self.workloads.get_mut(who)?.progress = before;
        found
    }

    fn assign_noted(
        &mut self,
        who: WorkloadId,
        queue: NodeId,
        pinned: Option<&Admission>,
        progress: Option<&Progress>,
    ) -> Result<Assignment, NoFit> {
        let replaced = self.adds_to(who, queue).map(|(_, admission)| admission);
        let ask = Ask { pinned, progress, replaced: replaced.as_deref(), ..Ask::default() };
        let found = self.assign_among(who, queue, ask);
        let tried = found.as_ref().map_or_else(|no_fit| &no_fit.tried, |assignment| &assignment.tried);
        match pinned {
            Some(_) => self.note_progress_again(who, queue, tried),
            None => self.note_progress(who, queue, tried, progress),
        }
        found
    }

    fn assign_among(&mut self, who: WorkloadId, queue: NodeId, ask: Ask<'_>) -> Result<Assignment, NoFit> {
        let no_fit = match self.assign_asked(who, queue, ask) {
            Ok(all) => return Ok(all),
            Err(no_fit) => no_fit,
        };
        if !self.settings.partial_admission {
            return Err(no_fit);
        }
        let range = self.workloads.get(who).map(|record| Range::of(&record.workload.pod_sets));
        let Some(range) = range.filter(|range| range.spare > 0) else { return Err(no_fit) };
        range
            .most(|counts| self.assign_asked(who, queue, Ask { counts: Some(counts), ..ask }).ok())
            .ok_or(no_fit)
    }
}

/// All sizes between how many pods there were, those that are done among them, and what would do; all pod sets shrink in
/// proportion.
pub(crate) struct Range {
    pod_sets: Vec<Span>,
    /// How many pods could be spared in all.
    spare: i64,
}

/// One pod set.
struct Span {
    /// How many pods there were.
    full: i64,
    /// How many of them it could do without.
    spare: i64,
    /// Whether all are done: then it asks for none, whatever the others do.
    is_done: bool,
}

impl Range {
    fn of(pod_sets: &[PodSet]) -> Self {
        let span = |one: &PodSet| {
            let full = one.count.saturating_add(one.done);
            Span { full, spare: (full - one.min_count.unwrap_or(full)).max(0), is_done: one.count == 0 }
        };
        let pod_sets: Vec<Span> = pod_sets.iter().map(span).collect();
        let spare = pod_sets.iter().fold(0i64, |sum, one| sum.saturating_add(one.spare));
        Self { pod_sets, spare }
    }

    /// Down to one pod of each set that is not done, be that allowed or not; `None` where there are no more than that.
    pub(crate) fn down_to_one(pod_sets: &[PodSet]) -> Option<Self> {
        let least = |one: &PodSet| PodSet { min_count: Some(1), done: 0, ..one.clone() };
        let range = Self::of(&pod_sets.iter().map(least).collect::<Vec<_>>());
        (range.spare > 0).then_some(range)
    }

    /// The counts when `step` of the spare pods are spared.
    fn counts(&self, step: i64) -> Vec<i64> {
        let spared = |spare: i64| i128::from(spare) * i128::from(step) / i128::from(self.spare);
        let count = |one: &Span| match one.is_done {
            true => 0,
            false => one.full - i64::try_from(spared(one.spare)).unwrap_or(one.spare),
        };
        self.pod_sets.iter().map(count).collect()
    }

    /// What `fits` says of the largest counts for which it says something, found by bisection: what fits also fits smaller.
    pub(crate) fn most<T>(&self, mut fits: impl FnMut(&[i64]) -> Option<T>) -> Option<T> {
        let (mut low, mut high) = (0, self.spare.saturating_add(1));
        let mut best = None;
        while low < high {
            let middle = low + (high - low) / 2;
            match fits(&self.counts(middle)) {
                Some(found) => (high, best) = (middle, Some(found)),
                None => low = middle + 1,
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod_set(count: i64, min_count: Option<i64>) -> PodSet {
        PodSet { count, min_count, ..PodSet::default() }
    }

    #[test]
    fn pod_sets_shrink_in_proportion_to_what_they_can_spare() {
        let range = Range::of(&[
            pod_set(20, Some(10)),
            pod_set(20, Some(20)),
            pod_set(20, None),
            pod_set(10, Some(5)),
        ]);
        assert_eq!(range.spare, 15);
        assert_eq!(range.counts(0), [20, 20, 20, 10]);
        assert_eq!(range.counts(7), [16, 20, 20, 8]);
        assert_eq!(range.counts(15), [10, 20, 20, 5]);
    }

    #[test]
    fn pods_that_are_done_count_among_those_that_there_were() {
        let done = |done: i64, one: PodSet| PodSet { done, ..one };
        let range = Range::of(&[
            done(2, pod_set(2, Some(1))),
            done(1, pod_set(3, None)),
            done(4, pod_set(0, Some(1))),
            done(3, pod_set(1, Some(2))),
        ]);
        assert_eq!(range.spare, 3 + 3 + 2);
        assert_eq!(range.counts(0), [4, 4, 0, 4]);
        assert_eq!(range.counts(8), [1, 4, 0, 2]);
    }

    #[test]
    fn the_largest_that_fits_is_found() {
        let range = Range::of(&[pod_set(20, Some(1))]);
        for room in 0..25 {
            let found = range.most(|counts| (counts[0] <= room).then(|| counts[0]));
            assert_eq!(found, (room >= 1).then(|| room.min(20)), "{room}");
        }
    }
}
