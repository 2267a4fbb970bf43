//! Which events are written, counted or dropped.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::Event;

/// An event that comes again within this time of the last counts up the first: `kubectl describe` then shows one line.
/// The same span as a series of `events.k8s.io` (6 min).
const WINDOW_MS: i64 = 6 * 60 * 1_000;
/// client-go's limit per object: 25 at once, then one every five minutes. Here it is per object and reason: who hears of many of
/// one kind hears of the others, too.
const BURST: i64 = 25;
const REFILL_MS: i64 = 5 * 60 * 1_000;
/// How many events and objects are remembered: beyond, the longest unused are forgotten, which only merges less.
pub(super) const MAX_REMEMBERED: usize = 4_096;
/// What fits into a name (253) beside the suffix.
const MAX_NAME: usize = 230;

/// What to do with an event.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Create it under this name.
    First { name: String, event: Event },
    /// It was counted; a later [`Merger::repeats`] tells.
    Counted,
    /// There were too many of its kind about its object.
    Limited,
}

/// An event that came again.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Repeat {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) event: Event,
    pub(super) count: u64,
    pub(super) last: Timestamp,
}

struct Known {
    name: String,
    uid: Option<String>,
    count: u64,
    told: u64,
    last: Timestamp,
}

struct Bucket {
    /// In milliseconds of refilling: an event costs [`REFILL_MS`].
    level: i64,
    at_ms: i64,
}

pub(super) struct Merger {
    known: BTreeMap<Event, Known>,
    /// By object and reason.
    buckets: BTreeMap<String, Bucket>,
    names: u64,
}

impl Merger {
    /// `names` is where the numbers in names begin; random, so that two replicas do not choose the same.
    pub(super) fn new(names: u64) -> Self {
        Self { known: BTreeMap::new(), buckets: BTreeMap::new(), names }
    }

    pub(super) fn take(&mut self, now: Timestamp, event: Event) -> Verdict {
        if let Some(known) = self.known.get_mut(&event) {
            let age = now.as_millisecond() - known.last.as_millisecond();
            if age < WINDOW_MS {
                known.count += 1;
                known.last = now;
                return Verdict::Counted;
            }
        }
        let heard = format!("{} {}", event.regarding.uid, event.reason);
        if !self.allowed(now.as_millisecond(), &heard) {
            return Verdict::Limited;
        }
        self.names = self.names.wrapping_add(1);
        let mut name = event.regarding.name.clone();
        name.truncate(name.floor_char_boundary(MAX_NAME));
        let name = format!("{name}.{:x}{:08x}", now.as_second(), self.names & 0xffff_ffff);
        self.forget_some();
        self.known
            .insert(event.clone(), Known { name: name.clone(), uid: None, count: 1, told: 1, last: now });
        Verdict::First { name, event }
    }

    /// The event was written as the object of this uid, or could not be: then it is forgotten.
    pub(super) fn written(&mut self, event: &Event, uid: Option<String>) {
        match uid {
            None => {
                self.known.remove(event);
            }
            Some(uid) => {
                if let Some(known) = self.known.get_mut(event) {
                    known.uid = Some(uid);
                }
            }
        }
    }

    /// Events and sources of events that are remembered.
    #[cfg(test)]
    pub(super) fn remembered(&self) -> (usize, usize) {
        (self.known.len(), self.buckets.len())
    }

    pub(super) fn has_repeats(&self) -> bool {
        self.known.values().any(|known| known.count > known.told)
    }

    /// What came again since the last call. Forgets what has not come for longer than the window.
    pub(super) fn repeats(&mut self, now: Timestamp) -> Vec<Repeat> {
        let mut repeats = Vec::new();
        for (event, known) in &mut self.known {
            if let (Some(uid), true) = (&known.uid, known.count > known.told) {
                known.told = known.count;
                let (name, uid, event) = (known.name.clone(), uid.clone(), event.clone());
                repeats.push(Repeat { name, uid, event, count: known.count, last: known.last });
            }
        }
        self.known.retain(|_, known| now.as_millisecond() - known.last.as_millisecond() < WINDOW_MS);
        repeats
    }

    fn allowed(&mut self, now_ms: i64, heard: &str) -> bool {
        let full = BURST * REFILL_MS;
        if self.buckets.len() >= MAX_REMEMBERED && !self.buckets.contains_key(heard) {
            // A bucket that is full again limits nothing.
            self.buckets.retain(|_, bucket| bucket.level + (now_ms - bucket.at_ms) < full);
            if self.buckets.len() >= MAX_REMEMBERED {
                self.forget_oldest_buckets();
            }
        }
        let bucket = self.buckets.entry(heard.to_owned()).or_insert(Bucket { level: full, at_ms: now_ms });
        bucket.level = (bucket.level + (now_ms - bucket.at_ms).max(0)).min(full);
        bucket.at_ms = now_ms;
        let allowed = bucket.level >= REFILL_MS;
        if allowed {
            bucket.level -= REFILL_MS;
        }
        allowed
    }

    /// A quarter at a time. Those may write their burst anew; the writer's pace bounds what that comes to.
    fn forget_oldest_buckets(&mut self) {
        let mut ages: Vec<_> = self.buckets.values().map(|bucket| bucket.at_ms).collect();
        let (_, limit, _) = ages.select_nth_unstable(MAX_REMEMBERED / 4);
        let limit = *limit;
        self.buckets.retain(|_, bucket| bucket.at_ms > limit);
    }

    fn forget_some(&mut self) {
        if self.known.len() < MAX_REMEMBERED {
            return;
        }
        let mut ages: Vec<_> = self.known.values().map(|known| known.last).collect();
        // A quarter at a time, so that a full memory is not searched for each event.
        let (_, limit, _) = ages.select_nth_unstable(MAX_REMEMBERED / 4);
        let limit = *limit;
        self.known.retain(|_, known| known.last > limit);
    }
}
