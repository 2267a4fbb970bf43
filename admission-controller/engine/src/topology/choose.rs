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
        domains.sort_unstable_by_key(|domain| self.order_for_leader(level, *domain));
    }

    fn order_for_leader(&self, level: usize, domain: u32) -> impl Ord + use<> {
        let sign = if self.plan.least_free_first { 1 } else { -1 };
        let room = self.room(level, domain);
        (Reverse(room.leaders), Reverse(room.score), sign * room.slices_beside, room.pods_beside, domain)
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
        if let Some(domain) = self.choose_one(level) {
            return Ok((level, vec![domain]));
        }
        if self.plan.required {
            return Err(self.miss(level));
        }
        if level > 0 && !self.plan.unconstrained {
            return self.choose(level - 1);
        }
        self.choose_several(level)
    }

    /// One domain that holds everything: of those in the lead, the tightest. Nothing is sorted for that.
    fn choose_one(&self, level: usize) -> Option<u32> {
        let (slices, leaders) = (self.plan.slices(), self.plan.leaders);
        let all = 0..self.rooms[level].len() as u32;
        let holds = |domain: &u32| {
            let room = self.room(level, *domain);
            room.slices_beside >= slices && room.leaders >= leaders
        };
        let order = |domain: &u32| self.order_for_leader(level, *domain);
        let first = all.clone().filter(holds).min_by_key(order)?;
        if self.plan.least_free_first {
            return Some(first);
        }
        let score = self.room(level, first).score;
        // A preferred domain that is too small: where all need not be in one domain, it is used together with others.
        if !self.plan.required && all.clone().any(|domain| order(&domain) < order(&first) && !holds(&domain))
        {
            return None;
        }
        let alike = |domain: &u32| self.room(level, *domain).score == score;
        all.filter(|domain| holds(domain) && alike(domain))
            .min_by_key(|domain| (self.room(level, *domain).slices_beside, order(domain)))
    }

    fn miss(&self, level: usize) -> Miss {
        let fits = self.rooms[level].iter().map(|room| room.slices).max().unwrap_or(0);
        // Enough for the workers somewhere: then it is the leader.
        Miss { level, fits, leader: fits >= self.plan.slices() }
    }

    fn choose_several(&self, level: usize) -> Result<(usize, Vec<u32>), Miss> {
        let mut sorted: Vec<u32> = (0..self.rooms[level].len() as u32).collect();
        if self.plan.leaders > 0 {
            self.sort_for_leader(level, &mut sorted);
            let unit = Unit::Slices(self.plan.slice_size);
            sorted = self.leader_first(level, &sorted, self.plan.count, self.plan.leaders, unit);
        }
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
            return Err(Miss { leader: true, ..self.miss(level) });
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
