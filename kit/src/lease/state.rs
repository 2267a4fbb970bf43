//! Leadership as a function of what was answered when: no clock, no connection.
//!
//! Times are durations since any moment of this process, from a clock that only runs forward. Nothing here reads
//! another's clock: the times inside the record are for people.

use std::time::Duration;

/// The lengths that make two leaders impossible. Let `d` be the duration, `m` the margin, `r` the request time-out:
/// a holder sends nothing from `d - m` after it *began* its last successful renewal, so with `r < m` nothing of its own
/// is under way at `d`; a successor begins no sooner than `d + r` after it *learned* of that renewal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// How long a renewal holds (`spec.leaseDurationSeconds`); whole seconds.
    pub duration: Duration,
    /// How long before that the holder falls silent.
    pub margin: Duration,
    /// How long a holder waits for any answer; shorter than the margin.
    pub request_timeout: Duration,
    /// How often the holder renews and the others look.
    pub renew_every: Duration,
}

impl Default for Terms {
    /// client-go's 15 s and 2 s; ten seconds without a renewal silence the holder, as its renew deadline does there.
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(15),
            margin: Duration::from_secs(5),
            request_timeout: Duration::from_secs(4),
            renew_every: Duration::from_secs(2),
        }
    }
}

impl Terms {
    /// Whether the lengths keep two holders apart and leave a holder time to renew.
    pub fn are_safe(&self) -> bool {
        self.request_timeout < self.margin && self.margin + self.renew_every < self.duration
    }
}

/// The lease object as the server had it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Its uid.
    pub(super) uid: String,
    /// Its resourceVersion: another one means somebody wrote it.
    pub(super) version: String,
    /// Who holds it; empty when it was released.
    pub(super) holder: String,
    /// How long the holder's renewal holds.
    pub(super) duration: Duration,
    /// How often the holder changed.
    pub(super) transitions: i32,
}

/// What to do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Nothing before this time.
    Wait(Duration),
    /// Get the object and tell [`State::read`].
    Read,
    /// Create the object with this holder, then tell [`State::wrote`].
    Create {
        /// The value of `spec.leaseTransitions` to write.
        transitions: i32,
    },
    /// Patch the object in exactly this version, then tell [`State::wrote`].
    Write {
        /// The object's uid.
        uid: String,
        /// The version to be replaced.
        version: String,
        /// The value of `spec.leaseTransitions` to write.
        transitions: i32,
        /// Whether the holder changes, so that `spec.acquireTime` is set anew.
        acquire: bool,
    },
}

/// How a create or write ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Done; this is the object now.
    Done(Record),
    /// Certainly not done: the object is another, or already there.
    Lost,
    /// Certainly not done: the object is not there.
    Gone,
    /// No answer: perhaps done.
    Unknown,
}

/// One candidate's knowledge.
#[derive(Clone, Debug)]
pub(super) struct State {
    me: String,
    terms: Terms,
    seen: Seen,
    /// When this process began the oldest request that may have made the record ours since it was last known not to be.
    claimed: Option<Duration>,
    /// When this process began the last request that certainly made or kept the record ours.
    renewed: Option<Duration>,
    /// Whether that was too late: this process had to fall silent meanwhile, and whoever asked was told that it does not lead. It takes
    /// the lease again, as another term, before it writes.
    lapsed: bool,
    /// `spec.leaseTransitions` when the record was seen last.
    transitions: Option<i32>,
    /// Whether another held it then.
    is_anothers: bool,
    not_before: Duration,
}

#[derive(Clone, Debug)]
enum Seen {
    Unknown,
    /// It is not there. Whoever held it when it was seen last may not know that yet before this time.
    Absent {
        free_from: Duration,
    },
    Record {
        record: Record,
        since: Duration,
    },
}

impl State {
    /// A candidate of this name that knows nothing yet. The name must be unique, over restarts too.
    pub(super) fn new(me: impl Into<String>, terms: Terms) -> Self {
        Self {
            me: me.into(),
            terms,
            seen: Seen::Unknown,
            claimed: None,
            renewed: None,
            lapsed: false,
            transitions: None,
            is_anothers: false,
            not_before: Duration::ZERO,
        }
    }

    /// What to do at this time.
    pub(super) fn next(&self, now: Duration) -> Action {
        if now < self.not_before {
            return Action::Wait(self.not_before);
        }
        match &self.seen {
            Seen::Unknown => Action::Read,
            Seen::Absent { free_from } if now < *free_from => Action::Read,
            Seen::Absent { .. } => Action::Create { transitions: self.transitions.map_or(0, next_term) },
            Seen::Record { record, since } => {
                let ours = self.renewed.is_some();
                let anew = !ours || self.lapsed || self.has_run_out(now);
                if ours || now >= self.free_from(record, *since) {
                    Action::Write {
                        uid: record.uid.clone(),
                        version: record.version.clone(),
                        transitions: if anew { next_term(record.transitions) } else { record.transitions },
                        acquire: anew,
                    }
                } else {
                    Action::Read
                }
            }
        }
    }

    /// The object as it was read, or none; `now` is when the answer came.
    pub(super) fn read(&mut self, now: Duration, record: Option<Record>) {
        let Some(record) = record else {
            self.gone(now);
            return;
        };
        if record.holder == self.me {
            // An earlier request of ours was applied although its answer was lost. Without such a request it is a
            // namesake's, and holds as anyone's does.
            self.renewed = self.claimed.or(self.renewed);
        } else {
            self.renewed = None;
        }
        self.claimed = None;
        self.saw(now, record);
        if self.renewed.is_none() {
            let Seen::Record { record, since } = &self.seen else { return };
            self.not_before = (now + self.terms.renew_every).min(self.free_from(record, *since).max(now));
        }
    }

    /// The object could not be read.
    pub(super) fn unread(&mut self, now: Duration) {
        self.not_before = now + self.terms.renew_every;
    }

    /// How the create or write that began at `started` ended; `now` is when that was known.
    pub(super) fn wrote(&mut self, started: Duration, now: Duration, outcome: Outcome) {
        match outcome {
            Outcome::Done(record) => {
                let is_same_term = self.transitions == Some(record.transitions);
                self.lapsed = is_same_term && (self.lapsed || self.has_run_out(now));
                self.renewed = Some(started);
                self.claimed = None;
                self.saw(now, record);
                self.not_before = if self.lapsed { now } else { started + self.terms.renew_every };
            }
            Outcome::Gone => self.gone(now),
            Outcome::Lost => {
                self.seen = Seen::Unknown;
                self.not_before = now + self.terms.renew_every / 4;
            }
            Outcome::Unknown => {
                // The oldest of several unanswered requests is the one that may have been applied the longest ago.
                self.claimed = Some(self.claimed.or(self.renewed).unwrap_or(started));
                self.seen = Seen::Unknown;
                self.not_before = now + self.terms.renew_every / 4;
            }
        }
    }

    /// Until when this process may send writes; in the past or absent when it does not lead.
    pub(super) fn may_write_until(&self) -> Option<Duration> {
        self.renewed.filter(|_| !self.lapsed).map(|renewed| self.silent_from(renewed))
    }

    /// From when nothing is written any more on a request of then.
    fn silent_from(&self, renewed: Duration) -> Duration {
        renewed + self.terms.duration.saturating_sub(self.terms.margin)
    }

    fn has_run_out(&self, now: Duration) -> bool {
        self.renewed.is_some_and(|renewed| self.silent_from(renewed) <= now)
    }

    /// `spec.leaseTransitions` while this process holds the lease: grows with each change of holder.
    pub(super) fn transitions(&self) -> Option<i32> {
        self.renewed.and(self.transitions)
    }

    /// The version to write a release over, if this process holds the lease for certain.
    pub(super) fn held(&self) -> Option<&Record> {
        match &self.seen {
            Seen::Record { record, .. } if self.renewed.is_some() => Some(record),
            _ => None,
        }
    }

    /// The object is not there: somebody deleted it, perhaps under its holder, which learns of that with its next renewal.
    fn gone(&mut self, now: Duration) {
        let free_from = match &self.seen {
            Seen::Absent { free_from } => *free_from,
            _ if self.is_anothers => now + self.terms.duration + self.terms.request_timeout,
            Seen::Record { .. } | Seen::Unknown => Duration::ZERO,
        };
        self.seen = Seen::Absent { free_from };
        self.claimed = None;
        self.renewed = None;
        if now < free_from {
            self.not_before = (now + self.terms.renew_every).min(free_from);
        }
    }

    fn saw(&mut self, now: Duration, record: Record) {
        let since = match &self.seen {
            Seen::Record { record: before, since } if before.version == record.version => *since,
            _ => now,
        };
        self.transitions = Some(record.transitions);
        self.is_anothers = !record.holder.is_empty() && record.holder != self.me;
        self.seen = Seen::Record { record, since };
    }

    /// From when a record that does not change any more is nobody's.
    fn free_from(&self, record: &Record, since: Duration) -> Duration {
        if record.holder.is_empty() {
            return Duration::ZERO;
        }
        since + record.duration.max(self.terms.duration) + self.terms.request_timeout
    }
}

/// Whoever compares terms only asks whether it is another.
fn next_term(transitions: i32) -> i32 {
    transitions.checked_add(1).unwrap_or(0)
}

#[cfg(test)]
mod tests;
