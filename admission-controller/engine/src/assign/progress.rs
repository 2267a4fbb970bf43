//! How far a workload's search of flavors came, so that the next one goes on from there: what fitted on paper and was not
//! had is not tried for ever while there are other flavors.

use model::ResourceName;

use super::FlavorAssignment;
use crate::engine::Engine;
use crate::line::Shape;
use crate::queue::Queue;
use crate::tree::NodeId;
use crate::workloads::WorkloadId;

/// Where flavors are left: the number of the pod set, the resource, and the index of the last flavor tried.
pub(crate) type Tried = Vec<(usize, ResourceName, usize)>;

pub(super) fn tried(found: &FlavorAssignment) -> Tried {
    let choices = found.pod_sets.iter().enumerate().flat_map(|(pod_set, one)| {
        one.flavors.iter().map(move |(resource, choice)| (pod_set, resource, choice.tried))
    });
    choices.filter_map(|(pod_set, resource, tried)| Some((pod_set, resource.clone(), tried?))).collect()
}

/// What was tried last.
#[derive(Clone, Debug)]
pub struct Progress {
    queue: NodeId,
    /// The queue's generation and the cycle of that search.
    generation: u64,
    cycle: u64,
    /// How often the queue had been woken when the first of these searches began.
    wakes: u64,
    shape: Shape,
    tried: Tried,
    /// How many searches in a row went on from the one before.
    continued: usize,
    /// Whether the last of them came to the end: what is left is that nobody goes on from it in its cycle.
    is_over: bool,
}

impl Progress {
    /// The index at which to go on.
    pub(super) fn next(&self, pod_set: usize, resource: &ResourceName) -> usize {
        let last = self.tried.iter().find(|(of, what, _)| *of == pod_set && what == resource);
        last.map_or(0, |(_, _, index)| index + 1)
    }
}

impl Engine {
    /// The progress that still counts. It is void when the workload asks for something else, and when quota of its queue
    /// came back or changed since; but not in the next cycle, or on a busy queue no search would ever come to its end.
    pub(crate) fn progress(&self, who: WorkloadId, queue: NodeId) -> Option<Progress> {
        let record = self.workloads.get(who)?;
        let last = record.progress.as_ref().filter(|last| last.queue == queue && !last.is_over)?;
        let recent = self.cycle_number.saturating_sub(last.cycle) <= 1;
        let same_generation = self.queues[queue].generation <= last.generation;
        let counts = if self.settings.preserve_scan_progress {
            last.shape == record.shape && (recent || same_generation)
        } else {
            same_generation
        };
        counts.then(|| (**last).clone())
    }

    /// Notes how far a search came that went on from `before`. One that came to its end leaves nothing to go on from; but
    /// where room came back meanwhile, the flavors that were tried before deserve another look. Pod sets could take turns at
    /// the flavors for ever, so there are no more searches in a row than the queue has flavors.
    pub(crate) fn note_progress(
        &mut self,
        who: WorkloadId,
        queue: NodeId,
        tried: &Tried,
        before: Option<&Progress>,
    ) {
        let now = self.queues[queue].wakes;
        let (began, continued) = before.map_or((now, 0), |one| (one.wakes, one.continued + 1));
        self.note_search(who, queue, tried, began, continued);
    }

    /// The same for the second search of a cycle, among the flavors of the first: it is one with that, and does not begin anew what
    /// came to its end.
    pub(crate) fn note_progress_again(&mut self, who: WorkloadId, queue: NodeId, tried: &Tried) {
        let first = self.workloads.get(who).and_then(|record| record.progress.as_deref());
        let first = first.filter(|one| one.queue == queue && one.cycle == self.cycle_number);
        match first.map(|one| (one.is_over, one.wakes, one.continued)) {
            Some((true, ..)) => {}
            Some((false, began, continued)) => self.note_search(who, queue, tried, began, continued),
            None => self.note_progress(who, queue, tried, None),
        }
    }

    /// One of searches that follow each other: how often the queue had been woken when the first began, and how many went on.
    fn note_search(&mut self, who: WorkloadId, queue: NodeId, tried: &Tried, began: u64, continued: usize) {
        let Queue { generation, wakes: now, .. } = self.queues[queue];
        let spec = self.queues[queue].spec.as_ref();
        let flavors = || spec.map_or(0, |spec| spec.groups.iter().map(|group| group.flavors.len()).sum());
        let ended = tried.is_empty() || continued >= flavors();
        let (wakes, continued, tried) = match ended {
            false => (began, continued, tried.clone()),
            true if began != now => (now, 0, Tried::new()),
            true => (now, continued, Tried::new()),
        };
        let is_over = ended && began == now;
        let Some(record) = self.workloads.get_mut(who) else { return };
        if is_over && continued == 0 {
            record.progress = None;
            return;
        }
        let (shape, cycle) = (record.shape.clone(), self.cycle_number);
        let progress = Progress { queue, generation, cycle, wakes, shape, tried, continued, is_over };
        record.progress = Some(Box::new(progress));
    }

    /// The next search begins with the first flavor.
    pub(crate) fn forget_progress(&mut self, who: WorkloadId) {
        if let Some(record) = self.workloads.get_mut(who) {
            record.progress = None;
        }
    }

    /// Whether the next search looks at other flavors than that of this cycle: it leaves some; or it went on from others, and begins anew.
    /// That shows nothing new where as many cycles as it took have settled nothing.
    pub(crate) fn tries_others_next(&self, who: WorkloadId) -> bool {
        let progress = self.workloads.get(who).and_then(|record| record.progress.as_deref());
        let progress = progress.filter(|one| one.cycle == self.cycle_number);
        progress.is_some_and(|one| !one.is_over || one.continued > self.rounds)
    }

    /// Whether the last search left flavors for another.
    pub(crate) fn flavors_left(&self, who: WorkloadId) -> bool {
        self.workloads.get(who).is_some_and(|record| record.progress.as_ref().is_some_and(|one| !one.is_over))
    }
}
