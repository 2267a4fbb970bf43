//! Which pods of a Job have ended, and how. Kubernetes keeps this with a finalizer on each pod; here the controller lives
//! as long as its cluster and remembers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::conditions::phase;
use super::control::Millis;
use crate::Object;

/// First pause before a failed pod is replaced, doubled with each failure since the last success.
const BACKOFF: Millis = 10_000;
/// The longest such pause (`MaxJobBackOff`).
const LONGEST: Millis = 600_000;

/// The ended pods of one Job.
#[derive(Debug, Default)]
pub(super) struct Counts {
    failed: BTreeSet<Arc<str>>,
    /// By uid, with the completion index.
    succeeded: BTreeMap<Arc<str>, Option<u64>>,
    /// Deleted by the controller itself: that is no failure.
    removed: BTreeSet<Arc<str>>,
    /// Ended together with the Job: failed, whatever becomes of them.
    condemned: BTreeSet<Arc<str>>,
    /// Failures since the last success.
    row: u32,
    failed_before: usize,
    succeeded_before: usize,
    last_failure: Millis,
}

impl Counts {
    /// Looks at a pod. One that somebody else deletes before it succeeded has failed, too.
    pub(super) fn note(&mut self, pod: &Object, deleted: bool) {
        let uid = pod.uid();
        match phase(pod.value()) {
            _ if self.condemned.contains(uid) => {}
            "Succeeded" => {
                self.failed.remove(uid);
                self.succeeded.insert(uid.clone(), index(pod));
            }
            "Failed" if !self.removed.contains(uid) => {
                self.failed.insert(uid.clone());
            }
            _ if (deleted || pod.is_terminating()) && !self.removed.contains(uid) => {
                self.failed.insert(uid.clone());
            }
            _ => {}
        }
    }

    /// The controller deletes this pod.
    pub(super) fn remove(&mut self, pod: &Object) {
        if !self.failed.contains(pod.uid()) {
            self.removed.insert(pod.uid().clone());
        }
    }

    /// The Job ends while this pod runs: it has failed, even if it ends well in its grace period.
    pub(super) fn fail(&mut self, pod: &Object) {
        self.failed.insert(pod.uid().clone());
        self.condemned.insert(pod.uid().clone());
    }

    /// Takes notice of what ended since the last call.
    pub(super) fn settle(&mut self, now: Millis) {
        let fresh = self.failed.len().saturating_sub(self.failed_before);
        if self.succeeded.len() > self.succeeded_before {
            self.row = 0;
        }
        if fresh > 0 {
            self.row = self.row.saturating_add(u32::try_from(fresh).unwrap_or(u32::MAX));
            self.last_failure = now;
        }
        (self.failed_before, self.succeeded_before) = (self.failed.len(), self.succeeded.len());
    }

    pub(super) fn failed(&self) -> usize {
        self.failed.len()
    }

    /// Pods that succeeded; with indexes, indexes that did.
    pub(super) fn succeeded(&self, indexed: bool) -> usize {
        if indexed { self.indexes().len() } else { self.succeeded.len() }
    }

    /// The indexes that are done.
    pub(super) fn indexes(&self) -> BTreeSet<u64> {
        self.succeeded.values().filter_map(|index| *index).collect()
    }

    /// Until when no pod is created, if failures ask for a pause.
    pub(super) fn pause(&self, now: Millis) -> Option<Millis> {
        let doublings = self.row.checked_sub(1)?.min(30);
        let until = self.last_failure.saturating_add((BACKOFF << doublings).min(LONGEST));
        (until > now).then_some(until)
    }
}

/// The completion index of a pod.
pub(super) fn index(pod: &Object) -> Option<u64> {
    let label = &pod.value()["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"];
    label.as_str()?.parse().ok()
}

/// `0-2,4`: how Kubernetes writes a set of indexes.
pub(super) fn ranges(indexes: &BTreeSet<u64>) -> String {
    let mut parts: Vec<(u64, u64)> = Vec::new();
    for &index in indexes {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == index => *last = index,
            _ => parts.push((index, index)),
        }
    }
    let text = |(first, last): &(u64, u64)| match last - first {
        0 => first.to_string(),
        1 => format!("{first},{last}"),
        _ => format!("{first}-{last}"),
    };
    parts.iter().map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_written_as_ranges() {
        for (indexes, text) in
            [(vec![], ""), (vec![3], "3"), (vec![1, 2], "1,2"), (vec![0, 1, 2, 4, 7, 8, 9], "0-2,4,7-9")]
        {
            assert_eq!(ranges(&indexes.into_iter().collect()), text);
        }
    }

    #[test]
    fn the_pause_grows_to_ten_minutes() {
        let counts = |row| Counts { row, ..Counts::default() };
        assert_eq!(
            [0, 1, 2, 3, 7, 99].map(|row| counts(row).pause(0)),
            [None, Some(10_000), Some(20_000), Some(40_000), Some(600_000), Some(600_000)]
        );
        assert_eq!(counts(1).pause(10_000), None);
    }
}
