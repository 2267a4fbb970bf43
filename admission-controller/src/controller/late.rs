//! What people read, and nobody's decision rests on: reasons to wait, and the counts of queues. Written late, so that what
//! follows soon is merged, and the slower the API server is, the more seldom, so that decisions have it to themselves.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use kit::pace::{self, LONGEST};
use tokio::time::Instant;

use super::world::Unit;

/// So many of each may be written at once after a while of silence: a team's jobs, or a few hundred queues.
const BURST: u32 = 128;
/// So many reasons may be due at a time, more than are written in a minute: there may be as many as there are workloads, and the
/// others keep where they come from.
const MAX_REASONS: usize = 8_192;
/// One more of each may be written after each such time, and while decisions are being written, later where these take long.
const PAUSE: Duration = Duration::from_millis(8);
/// Nobody decides anything when no decision was written for so long.
const QUIET_AFTER: Duration = Duration::from_secs(2);
/// How long decisions take is taken from the last so many or so; of a burst that is over less is remembered.
const REMEMBERED: u32 = 16;

/// Which units are due for such a write, and when the next may go.
pub(super) struct Late {
    reasons: Line,
    /// Queues that something happened to.
    counts: Line,
    /// For queues that admit somebody now, or nobody any more.
    news: Allowance,
    /// Those of them of which something is to be written, and whose turn has not come.
    held: Held,
    /// The unit whose reason is to be written now, be there a newer one than it was scheduled for.
    in_turn: Option<Unit>,
    /// When the last decision was on its way.
    decided_at: Option<Instant>,
    /// How long decisions take from when they are given to be sent, no more than the longest pause.
    took: Duration,
}

/// Units of one kind, with an allowance of their own: neither kind waits for all of the other.
struct Line {
    /// Who is due at a time, in the order in which they came. Many share a time: what is decided together is due together.
    order: BTreeMap<Instant, VecDeque<Unit>>,
    /// When each is due. One that was put forward has a second place in the order, where it is passed over.
    when: BTreeMap<Unit, Instant>,
    allowance: Allowance,
}

/// How many may be written.
struct Allowance {
    /// Writes saved up.
    level: u32,
    /// From this moment on there is one more with every pause.
    counted_at: Option<Instant>,
}

impl Line {
    fn new() -> Self {
        Self { order: BTreeMap::new(), when: BTreeMap::new(), allowance: Allowance::new() }
    }

    fn schedule(&mut self, unit: Unit, at: Instant) {
        if self.when.get(&unit).is_some_and(|before| *before <= at) {
            return;
        }
        self.order.entry(at).or_default().push_back(unit.clone());
        self.when.insert(unit, at);
    }

    fn pop(&mut self, now: Instant) -> Option<Unit> {
        self.first().filter(|at| *at <= now)?;
        let unit = self.order.first_entry()?.get_mut().pop_front()?;
        self.when.remove(&unit);
        Some(unit)
    }

    /// When the first is due. Second places that are passed over are gone afterwards.
    fn first(&mut self) -> Option<Instant> {
        while let Some(mut first) = self.order.first_entry() {
            let at = *first.key();
            match first.get().front() {
                None => drop(first.remove()),
                Some(unit) if self.when.get(unit) == Some(&at) => return Some(at),
                Some(_) => drop(first.get_mut().pop_front()),
            }
        }
        None
    }
}

impl Allowance {
    fn new() -> Self {
        Self { level: BURST, counted_at: None }
    }

    fn allows(&mut self, now: Instant, pause: Duration) -> bool {
        let at = *self.counted_at.get_or_insert(now);
        let gained = now.saturating_duration_since(at).as_nanos() / pause.as_nanos().max(1);
        let gained = u32::try_from(gained).unwrap_or(BURST).min(BURST);
        self.level = (self.level + gained).min(BURST);
        self.counted_at = Some(if self.level == BURST { now } else { at + pause * gained });
        self.level > 0
    }

    fn take(&mut self) {
        self.level = self.level.saturating_sub(1);
    }
}

/// Who waits for a turn, in the order in which they came.
#[derive(Default)]
struct Held {
    order: VecDeque<Unit>,
    all: BTreeSet<Unit>,
}

impl Late {
    pub(super) fn new() -> Self {
        let (reasons, counts) = (Line::new(), Line::new());
        Self {
            reasons,
            counts,
            news: Allowance::new(),
            held: Held::default(),
            in_turn: None,
            decided_at: None,
            took: Duration::ZERO,
        }
    }

    /// Due at this time, or when it was due before if that is sooner.
    pub(super) fn schedule(&mut self, unit: Unit, at: Instant) {
        self.line(&unit).schedule(unit, at);
    }

    /// How many reasons more may be scheduled.
    pub(super) fn room_for_reasons(&self) -> usize {
        MAX_REASONS.saturating_sub(self.reasons.when.len())
    }

    /// Whether something is to be written of it later.
    pub(super) fn is_scheduled(&self, unit: &Unit) -> bool {
        self.reasons.when.contains_key(unit) || self.counts.when.contains_key(unit)
    }

    /// One more was written of this kind, whether it was asked for or not.
    pub(super) fn wrote(&mut self, unit: &Unit) {
        self.line(unit).allowance.take();
    }

    /// A decision is being written.
    pub(super) fn decided(&mut self, now: Instant) {
        self.decided_at = Some(now);
    }

    /// One was written, which was sent then.
    pub(super) fn answered(&mut self, now: Instant, begun: Option<Instant>) {
        self.decided_at = Some(now);
        let took = begun.map_or(self.took, |begun| now.saturating_duration_since(begun));
        let remembered = if took < self.took { 2 } else { REMEMBERED };
        self.took = (self.took * (remembered - 1) + took.min(LONGEST)) / remembered;
    }

    /// A unit whose reason is due and may be written.
    pub(super) fn next_reason(&mut self, now: Instant) -> Option<Unit> {
        let pause = self.pause(now);
        self.in_turn = if self.reasons.allowance.allows(now, pause) { self.reasons.pop(now) } else { None };
        self.in_turn.clone()
    }

    /// Whether it is this unit that was popped last.
    pub(super) fn is_in_turn(&self, unit: &Unit) -> bool {
        self.in_turn.as_ref() == Some(unit)
    }

    /// A queue that is to be looked at: what is measured of it is told in any case.
    pub(super) fn next_queue(&mut self, now: Instant) -> Option<Unit> {
        self.counts.pop(now)
    }

    /// A queue whose counts may be written now; there is no need to look at it once more for what happened to it meanwhile.
    pub(super) fn next_held(&mut self, now: Instant) -> Option<Unit> {
        if self.held.order.is_empty() || !self.allows_counts(now) {
            return None;
        }
        let unit = self.held.order.pop_front()?;
        self.held.all.remove(&unit);
        self.counts.when.remove(&unit);
        Some(unit)
    }

    /// Its counts are not what was written, and too many others were written just now: its turn will come.
    pub(super) fn hold(&mut self, unit: &Unit) {
        if self.held.all.insert(unit.clone()) {
            self.held.order.push_back(unit.clone());
        }
    }

    /// Whether its counts may be written too.
    pub(super) fn allows_counts(&mut self, now: Instant) -> bool {
        let pause = self.pause(now);
        self.counts.allowance.allows(now, pause)
    }

    /// Whether it may be told at once that a queue admits somebody now, or nobody any more; counted as if it was.
    pub(super) fn allows_news(&mut self, now: Instant) -> bool {
        let allows = self.news.allows(now, PAUSE);
        if allows {
            self.news.take();
        }
        allows
    }

    /// When there is something next.
    pub(super) fn due(&mut self) -> Option<Instant> {
        let reason = self.reasons.first().map(|at| self.turn(&self.reasons).map_or(at, |turn| at.max(turn)));
        let held = self.turn(&self.counts).filter(|_| !self.held.order.is_empty());
        reason.into_iter().chain(held).chain(self.counts.first()).min()
    }

    /// When one more of a line may be written; `None` where it may be now.
    fn turn(&self, line: &Line) -> Option<Instant> {
        let counted_at = line.allowance.counted_at.filter(|_| line.allowance.level == 0)?;
        let quiet_at = self.decided_at.map_or(counted_at, |decided_at| decided_at + QUIET_AFTER);
        Some((counted_at + self.pause_of_busy()).min(quiet_at.max(counted_at + PAUSE)))
    }

    fn pause(&self, now: Instant) -> Duration {
        let quiet = self.decided_at.is_none_or(|at| now.saturating_duration_since(at) >= QUIET_AFTER);
        if quiet { PAUSE } else { self.pause_of_busy() }
    }

    /// While decisions are being written.
    fn pause_of_busy(&self) -> Duration {
        pace::pause(self.took).max(PAUSE)
    }

    fn line(&mut self, unit: &Unit) -> &mut Line {
        match unit {
            Unit::Job(_) | Unit::Workload(_) | Unit::Pods(_) | Unit::PodOwner(_) | Unit::Pod(_) => {
                &mut self.reasons
            }
            // Looked at when it is their time, whatever else is written.
            Unit::Places(_)
            | Unit::Gate(_)
            | Unit::ClusterQueue(_)
            | Unit::LocalQueue(_)
            | Unit::Flavor(_)
            | Unit::Topology(_)
            | Unit::Check(_)
            | Unit::Cohort(_) => &mut self.counts,
        }
    }
}

#[cfg(test)]
mod tests {
    use quota_engine::Uid;

    use super::*;

    fn workload(number: u32) -> Unit {
        Unit::Workload(Uid::from(format!("{number:04}").as_str()))
    }

    fn queue(number: u32) -> Unit {
        Unit::ClusterQueue(format!("{number:04}").as_str().into())
    }

    #[test]
    fn a_burst_goes_at_once_and_the_rest_at_the_pace() {
        let start = kit::Clock::System.monotonic();
        let mut late = Late::new();
        for number in 0..BURST + 10 {
            late.schedule(workload(number), start);
        }
        late.decided(start);
        late.took = LONGEST;
        let mut written = 0;
        while let Some(unit) = late.next_reason(start) {
            late.wrote(&unit);
            written += 1;
        }
        assert_eq!(written, BURST);
        assert_eq!(late.due(), Some(start + LONGEST));
        assert_eq!(late.next_reason(start + LONGEST / 2), None);
        assert_eq!(late.next_reason(start + LONGEST), Some(workload(BURST)));
        // What need not be written after all costs nothing.
        assert_eq!(late.next_reason(start + LONGEST), Some(workload(BURST + 1)));
        assert!(late.allows_counts(start), "counts have an allowance of their own");
    }

    #[test]
    fn no_more_reasons_are_taken_than_can_be_written_soon() {
        let start = kit::Clock::System.monotonic();
        let mut late = Late::new();
        for number in 0..10_000 {
            if late.room_for_reasons() > 0 {
                late.schedule(workload(number), start);
            }
        }
        assert_eq!((late.reasons.when.len(), late.room_for_reasons()), (MAX_REASONS, 0));
        late.schedule(queue(1), start);
        let unit = late.next_reason(start).unwrap();
        assert!(late.is_in_turn(&unit) && !late.is_in_turn(&workload(9_999)));
        assert_eq!(late.room_for_reasons(), 1, "one has gone, and queues do not count");
    }

    #[test]
    fn a_server_that_is_quick_to_answer_and_silence_allow_more() {
        let start = kit::Clock::System.monotonic();
        let written_in_a_second = |took: Duration, quiet: bool| {
            let mut late = Late::new();
            for number in 0..2 * BURST {
                late.schedule(workload(number), start);
            }
            while let Some(unit) = late.next_reason(start) {
                late.wrote(&unit);
            }
            let mut now = start;
            for _ in 0..100 {
                late.answered(now + took, Some(now));
            }
            late.decided_at = if quiet { None } else { Some(start) };
            let mut written = 0;
            while now < start + Duration::from_secs(1) {
                now += Duration::from_millis(1);
                while let Some(unit) = late.next_reason(now) {
                    late.wrote(&unit);
                    written += 1;
                }
            }
            written
        };
        let table = [(1, false, 125), (5, false, 40), (16, false, 4), (1_000, false, 1), (1_000, true, 125)];
        for (took, quiet, expected) in table {
            let written = written_in_a_second(Duration::from_millis(took), quiet);
            assert!((expected - 1..=expected + 1).contains(&written), "{took} ms, quiet {quiet}: {written}");
        }
    }

    #[test]
    fn silence_ends_a_long_pause() {
        let start = kit::Clock::System.monotonic();
        let mut late = Late::new();
        late.schedule(workload(0), start);
        (late.took, late.reasons.allowance.level, late.reasons.allowance.counted_at) =
            (LONGEST, 0, Some(start + QUIET_AFTER / 2));
        late.decided(start);
        assert_eq!(late.due(), Some(start + QUIET_AFTER));
    }

    /// There is one, twice, for every workload that waits.
    #[test]
    fn a_unit_is_small() {
        assert_eq!(size_of::<Unit>(), 24);
    }

    #[test]
    fn what_was_put_forward_and_is_due_again_comes_once() {
        let start = kit::Clock::System.monotonic();
        let later = start + Duration::from_secs(1);
        let mut late = Late::new();
        late.schedule(workload(0), later);
        late.schedule(workload(0), start);
        assert_eq!(late.next_reason(start), Some(workload(0)));
        late.schedule(workload(0), later);
        assert_eq!(late.due(), Some(later));
        assert_eq!(late.next_reason(later), Some(workload(0)));
        assert_eq!((late.next_reason(later), late.due()), (None, None));
        assert!(late.reasons.order.is_empty());
    }

    #[test]
    fn counts_that_have_to_wait_have_turns_in_order() {
        let start = kit::Clock::System.monotonic();
        let mut late = Late::new();
        assert!(late.allows_counts(start));
        late.decided(start);
        late.took = LONGEST;
        late.counts.allowance.level = 0;
        for number in [0, 1, 0, 2] {
            late.hold(&queue(number));
        }
        assert_eq!((late.next_held(start), late.due()), (None, Some(start + LONGEST)));
        late.schedule(queue(0), start + LONGEST * 2);
        let mut now = start;
        for number in 0..3 {
            now += LONGEST;
            late.decided(now);
            assert_eq!(late.next_held(now), Some(queue(number)));
            late.wrote(&queue(number));
            assert_eq!(late.next_held(now), None);
            assert!(!late.is_scheduled(&queue(0)), "it was looked at when it had its turn");
        }
        assert_eq!(late.due(), None);
    }

    #[test]
    fn the_sooner_time_holds() {
        let start = kit::Clock::System.monotonic();
        let later = start + Duration::from_secs(1);
        let mut late = Late::new();
        late.schedule(workload(0), later);
        late.schedule(workload(1), start);
        late.schedule(workload(1), later);
        late.schedule(workload(0), start);
        late.schedule(queue(0), later);
        assert_eq!(late.due(), Some(start));
        assert_eq!(late.next_reason(start), Some(workload(1)), "who was there first at that time");
        assert_eq!(late.next_reason(start), Some(workload(0)));
        assert_eq!((late.due(), late.next_queue(start)), (Some(later), None));
        assert_eq!(late.next_queue(later), Some(queue(0)));
        assert!(!late.is_scheduled(&queue(0)) && late.due().is_none());
    }
}
