//! Phase 2a: the domains that take the pods, all of one level.

use std::cmp::Reverse;

use super::place::{Miss, Plan};
use super::room::Room;
use super::tree::Tree;

/// What is handed out: single pods, or slices of this size.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Pods,
    Slices(i64),
}

impl Unit {
    pub(super) fn size(self) -> i64 {
        match self {
            Self::Pods => 1,
            Self::Slices(size) => size,
        }
    }

    pub(super) fn of(self, room: &Room) -> i64 {
        match self {
            Self::Pods => room.pods,
            Self::Slices(_) => room.slices,
        }
    }

    pub(super) fn beside_leader(self, room: &Room) -> i64 {
        match self {
            Self::Pods => room.pods_beside,
            Self::Slices(_) => room.slices_beside,
        }
    }
}

/// One search for places.
pub(super) struct Search<'a> {
    pub(super) tree: &'a Tree,
    pub(super) rooms: &'a mut [Vec<Room>],
    pub(super) plan: &'a Plan,
}

impl Search<'_> {
    pub(super) fn room(&self, level: usize, domain: u32) -> &Room {
        &self.rooms[level][domain as usize]
    }

    pub(super) fn room_mut(&mut self, level: usize, domain: u32) -> &mut Room {
        &mut self.rooms[level][domain as usize]
    }

    /// The domains in which pods are put, first to last.
    ///
    /// By preference, then by slices – the most first, or the least –, of those the one with the fewest pods to spare.
    pub(super) fn sort(&self, level: usize, domains: &mut [u32]) {
        let sign = if self.plan.least_free_first { 1 } else { -1 };
        domains.sort_unstable_by_key(|domain| {
            let room = self.room(level, *domain);
            (Reverse(room.score), sign * room.slices, room.pods, *domain)
        });
    }

    /// The same for the leader's sake: those that take it first, and room is what is left beside it.
    pub(super) fn sort_for_leader(&self, level: usize, domains: &mut [u32]) {
        let sign = if self.plan.least_free_first { 1 } else { -1 };
        domains.sort_unstable_by_key(|domain| {
            let room = self.room(level, *domain);
            let order = (sign * room.slices_beside, room.pods_beside, *domain);
            (Reverse(room.leaders), Reverse(room.score), order)
        });
    }

    /// Of sorted domains the first with the least room that is enough; the first of all where none has enough.
    ///
    /// Only those that are preferred as much as the first are looked at.
    pub(super) fn tightest(
        &self,
        level: usize,
        domains: &[u32],
        needed: i64,
        leaders: i64,
        unit: Unit,
    ) -> u32 {
        let first = domains[0];
        let score = self.room(level, first).score;
        let amount = |room: &Room| if leaders > 0 { unit.beside_leader(room) } else { unit.of(room) };
        let alike = domains.iter().map(|domain| (*domain, self.room(level, *domain)));
        alike
            .take_while(|(_, room)| room.score == score)
            .filter(|(_, room)| room.leaders >= leaders && amount(room) >= needed)
            .min_by_key(|(_, room)| amount(room))
            .map_or(first, |(domain, _)| domain)
    }

    /// The level and the domains that hold everything: one domain of the level or, where that is no must, of one above; else
    /// as few as will do.
    pub(super) fn choose(&self, level: usize) -> Result<(usize, Vec<u32>), Miss> {
        let (slices, leaders) = (self.plan.slices(), self.plan.leaders);
        let mut sorted: Vec<u32> = (0..self.rooms[level].len() as u32).collect();
        self.sort_for_leader(level, &mut sorted);
        let takes = |domain: &u32| {
            let room = self.room(level, *domain);
            room.slices_beside >= slices && room.leaders >= leaders
        };
        if self.plan.least_free_first {
            if let Some(domain) = sorted.iter().find(|domain| takes(domain)) {
                return Ok((level, vec![*domain]));
            }
        } else if takes(&sorted[0]) {
            return Ok((level, vec![self.tightest(level, &sorted, slices, leaders, Unit::Slices(1))]));
        }
        if self.plan.required {
            // A preferred domain that is too small hides larger ones behind it.
            return match sorted.iter().position(takes) {
                Some(at) => {
                    let domain = self.tightest(level, &sorted[at..], slices, leaders, Unit::Slices(1));
                    Ok((level, vec![domain]))
                }
                None => Err(self.miss(level, &sorted)),
            };
        }
        if level > 0 && !self.plan.unconstrained {
            return self.choose(level - 1);
        }
        self.choose_several(level, &sorted)
    }

    fn miss(&self, level: usize, domains: &[u32]) -> Miss {
        let rooms = domains.iter().map(|domain| self.room(level, *domain));
        let fits = rooms.clone().map(|room| room.slices).max().unwrap_or(0);
        // Enough for the workers somewhere: then it is the leader.
        Miss { level, fits, leader: fits >= self.plan.slices() }
    }

    fn choose_several(&self, level: usize, sorted: &[u32]) -> Result<(usize, Vec<u32>), Miss> {
        let sorted = self.leader_first(
            level,
            sorted,
            self.plan.count,
            self.plan.leaders,
            Unit::Slices(self.plan.slice_size),
        );
        let (mut slices, mut leaders) = (self.plan.slices(), self.plan.leaders);
        let best_fit = !self.plan.least_free_first;
        let mut chosen = Vec::new();
        let mut at = 0;
        while leaders > 0 && at < sorted.len() && self.room(level, sorted[at]).leaders > 0 {
            let mut domain = sorted[at];
            if best_fit && self.room(level, domain).slices_beside >= slices {
                domain = self.tightest(level, &sorted[at..], slices, leaders, Unit::Slices(1));
            }
            chosen.push(domain);
            leaders -= self.room(level, domain).leaders;
            slices -= self.room(level, domain).slices_beside;
            at += 1;
        }
        if leaders > 0 {
            return Err(Miss { leader: true, ..self.miss(level, &sorted) });
        }
        let mut rest: Vec<u32> = sorted[at..].iter().copied().filter(|one| !chosen.contains(one)).collect();
        self.sort(level, &mut rest);
        for at in 0..rest.len() {
            if slices <= 0 {
                break;
            }
            let mut domain = rest[at];
            if best_fit && self.room(level, domain).slices >= slices {
                domain = self.tightest(level, &rest[at..], slices, 0, Unit::Slices(1));
            }
            chosen.push(domain);
            slices -= self.room(level, domain).slices;
        }
        if slices > 0 {
            return Err(Miss { level, fits: self.plan.slices() - slices, leader: false });
        }
        Ok((level, chosen))
    }

    /// Puts first a domain that takes the leader and leaves room enough for the workers in all of them together.
    pub(super) fn leader_first(
        &self,
        level: usize,
        domains: &[u32],
        pods: i64,
        leaders: i64,
        unit: Unit,
    ) -> Vec<u32> {
        let mut domains = domains.to_vec();
        if leaders == 0 || domains.len() < 2 {
            return domains;
        }
        let needed = pods / unit.size();
        let total: i64 = domains.iter().map(|domain| unit.of(self.room(level, *domain))).sum();
        let best = domains.iter().position(|domain| {
            let room = self.room(level, *domain);
            room.leaders >= leaders && total - (unit.of(room) - unit.beside_leader(room)) >= needed
        });
        if let Some(best) = best {
            domains[..=best].rotate_right(1);
        }
        domains
    }
}
