//! How well a flavor serves, and which of two serves better.

use super::{Mode, Possibility};
use crate::input::{Fungibility, Preference, Search};

/// How well one flavor serves; later is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Way {
    NoFit,
    NoCandidates,
    Preempt,
    Reclaim,
    /// It fits when others have left, whom it could not have displaced.
    Inherit,
    /// It fits when others have left, who had to make way for it or would have had to.
    Wait,
    Fit,
}

impl Way {
    pub(super) fn mode(self) -> Mode {
        match self {
            Self::NoFit => Mode::NoFit,
            Self::NoCandidates | Self::Preempt | Self::Reclaim => Mode::Preempt,
            Self::Inherit | Self::Wait => Mode::Deferred,
            Self::Fit => Mode::Fit,
        }
    }

    pub(super) fn possibility(self) -> Option<Possibility> {
        match self {
            Self::NoCandidates => Some(Possibility::NoCandidates),
            Self::Preempt => Some(Possibility::Preempt),
            Self::Reclaim => Some(Possibility::Reclaim),
            Self::NoFit | Self::Inherit | Self::Wait | Self::Fit => None,
        }
    }
}

impl From<Possibility> for Way {
    fn from(possibility: Possibility) -> Self {
        match possibility {
            Possibility::NoCandidates => Self::NoCandidates,
            Possibility::Preempt => Self::Preempt,
            Possibility::Reclaim => Self::Reclaim,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grade {
    pub(super) way: Way,
    pub(super) height: u32,
}

impl Grade {
    pub(super) const BEST: Self = Self { way: Way::Fit, height: 0 };
    pub(super) const NONE: Self = Self { way: Way::NoFit, height: u32::MAX };

    pub(super) fn is_better_than(self, other: Self, preference: Preference) -> bool {
        if self.way == Way::NoFit || other.way == Way::NoFit {
            return self.way > other.way;
        }
        // What nobody can be displaced for cannot be had: that it would borrow less is no merit then.
        if (self.way == Way::NoCandidates) != (other.way == Way::NoCandidates) {
            return other.way == Way::NoCandidates;
        }
        // Nor is it where room comes free in somebody else's time, if there is room now. Others do not have to leave instead.
        match (self.way, other.way) {
            (Way::Fit, Way::Inherit) => return true,
            (Way::Inherit, Way::Fit) => return false,
            _ => {}
        }
        match preference {
            Preference::BorrowingOverPreemption => (self.way, other.height) > (other.way, self.height),
            Preference::PreemptionOverBorrowing => (other.height, self.way) > (self.height, other.way),
        }
    }

    fn will_do(self, fungibility: &Fungibility) -> bool {
        match self.way {
            Way::NoFit | Way::NoCandidates | Way::Inherit => return false,
            Way::Preempt | Way::Reclaim | Way::Wait if fungibility.when_can_preempt == Search::TryNext => {
                return false;
            }
            _ => {}
        }
        self.height == 0 || fungibility.when_can_borrow == Search::MayStop
    }
}

/// The best of the flavors that were looked at, with what comes with it.
///
/// What comes free in somebody else's time counts only where nothing fits now. If it were compared with each of the others, it
/// would depend on their order which one is the best: waiting is better than preempting, which may be better than borrowing.
pub(super) struct Best<T> {
    now: (Grade, T),
    later: (Grade, T),
    settled: bool,
}

impl<T: Default> Default for Best<T> {
    fn default() -> Self {
        let none = || (Grade::NONE, T::default());
        Self { now: none(), later: none(), settled: false }
    }
}

impl<T> Best<T> {
    /// Looks at one more, and tells whether the search ends with it.
    pub(super) fn weigh(&mut self, grade: Grade, with: T, fungibility: &Fungibility) -> bool {
        let will_do = grade.will_do(fungibility);
        self.settled |= will_do || grade.way == Way::Fit;
        let known = if grade.way == Way::Inherit { &mut self.later } else { &mut self.now };
        if will_do || grade.is_better_than(known.0, fungibility.preference) {
            *known = (grade, with);
        }
        will_do
    }

    pub(super) fn into_inner(self, fungibility: &Fungibility) -> (Grade, T) {
        let waits = !self.settled && self.later.0.is_better_than(self.now.0, fungibility.preference);
        if waits { self.later } else { self.now }
    }
}
