//! How well a flavor serves, and which of two serves better.

use super::{Mode, Possibility};
use crate::input::{Fungibility, Preference, Search};

/// How well one flavor serves; later is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Way {
    NoFit,
    NoCandidates,
    /// It fits when others have left, whom it could not have displaced.
    Inherit,
    Preempt,
    Reclaim,
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

    /// Whether nothing that the workload has a right to makes room for it.
    fn is_without_right(self) -> bool {
        matches!(self, Self::NoCandidates | Self::Inherit)
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
        // What nobody can be displaced for cannot be had, or not at once: that it would borrow less is no merit then.
        if self.way.is_without_right() != other.way.is_without_right() {
            return other.way.is_without_right();
        }
        match preference {
            Preference::BorrowingOverPreemption => (self.way, other.height) > (other.way, self.height),
            Preference::PreemptionOverBorrowing => (other.height, self.way) > (self.height, other.way),
        }
    }

    pub(super) fn will_do(self, fungibility: &Fungibility) -> bool {
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
