//! Balanced placement (gate `TASBalancedPlacement`): the slices are spread so that the domain with the fewest has as many as
//! can be.
//!
//! Tried out per group of siblings of the requested level: how many slices the emptiest domain of a greedy choice would get
//! is the *threshold*; domains that cannot hold that many are struck off; the group with the highest threshold, then with the
//! fewest domains, is taken. Where that leads nowhere, placement goes on as usual.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

use super::choose::Search;
use super::room::{self, Room};

/// Rooms of a part of the tree: level, first domain, rooms.
type Saved = Vec<(usize, usize, Vec<Room>)>;

/// What a greedy choice takes.
struct Greedy {
    domains: i64,
    /// The last one taken for the leader.
    with_leader: Option<u32>,
    /// The last one taken without.
    last: Option<u32>,
}

/// The best group so far.
struct Best {
    threshold: i64,
    domains: i64,
    group: Range<u32>,
    /// Its rooms, domains struck off.
    pruned: Saved,
}

impl Search<'_> {
    /// The level and the domains that take the pods, their rooms being their shares. `None`: not possible; nothing has changed.
    pub(super) fn balance(&mut self) -> Option<(usize, Vec<u32>)> {
        let best = self.best_group()?;
        let original = self.save(&best.group);
        self.restore(&best.pruned);
        let found = self.share_out(&best);
        if found.is_none() {
            self.restore(&original);
        }
        found
    }

    fn share_out(&mut self, best: &Best) -> Option<(usize, Vec<u32>)> {
        let plan = self.plan;
        let (mut level, mut domains): (usize, Vec<u32>) = (plan.level, best.group.clone().collect());
        if level < plan.slice_level {
            let chosen = self.fewest(level, &domains, true)?;
            domains = chosen.iter().flat_map(|domain| self.tree.children(level, *domain)).collect();
            level += 1;
        }
        let domains = self.even_shares(level, &domains, best.threshold)?;
        Some((level, domains))
    }

    fn best_group(&mut self) -> Option<Best> {
        let groups: Vec<Range<u32>> = match self.plan.level.checked_sub(1) {
            None => std::iter::once(0..self.rooms[0].len() as u32).collect(),
            Some(above) => self.tree.levels[above].children.clone(),
        };
        let mut best: Option<Best> = None;
        for group in groups {
            let original = self.save(&group);
            let least = best.as_ref().map_or(1, |best| best.threshold);
            if let Some((threshold, domains)) = self.try_group(&group, least, &original) {
                let fewer = |best: &Best| (threshold, -domains) > (best.threshold, -best.domains);
                if best.as_ref().is_none_or(fewer) {
                    best = Some(Best { threshold, domains, pruned: self.save(&group), group });
                }
            }
            self.restore(&original);
        }
        best
    }

    /// The threshold, `least` at least, and how many domains are needed of a group. Leaves the group's rooms pruned.
    fn try_group(&mut self, group: &Range<u32>, least: i64, original: &Saved) -> Option<(i64, i64)> {
        let plan = self.plan;
        let domains: Vec<u32> = group.clone().collect();
        let (level, lower) = match plan.level < plan.slice_level {
            true => {
                let children = domains.iter().flat_map(|domain| self.tree.children(plan.level, *domain));
                (plan.level + 1, children.collect())
            }
            false => (plan.level, domains.clone()),
        };
        let greedy = self.greedy(level, &lower)?;
        let slices = |domain: Option<u32>, of: fn(&Room) -> i64| {
            domain.map_or(i64::MAX, |domain| of(self.room(level, domain)))
        };
        let threshold = (plan.slices() / greedy.domains.max(1))
            .min(slices(greedy.with_leader, |room| room.slices_beside))
            .min(slices(greedy.last, |room| room.slices));
        // Should the last domain have to take the leader as well.
        let reserving = match plan.leaders > 0 {
            true => threshold.min(slices(greedy.last, |room| room.slices_beside)),
            false => threshold,
        };
        if threshold < least {
            return None;
        }
        self.prune(&domains, threshold);
        if let Some(greedy) = self.greedy(plan.level, &domains) {
            return Some((threshold, greedy.domains));
        }
        if reserving == threshold || reserving < least {
            return None;
        }
        self.restore(original);
        self.prune(&domains, reserving);
        self.greedy(plan.level, &domains).map(|greedy| (reserving, greedy.domains))
    }

    /// The largest domains first, the leader's before all, until everything has a place.
    fn greedy(&self, level: usize, domains: &[u32]) -> Option<Greedy> {
        let (mut slices, mut leaders) = (self.plan.slices(), self.plan.leaders);
        let mut greedy = Greedy { domains: 0, with_leader: None, last: None };
        let mut rest = domains.to_vec();
        if leaders > 0 {
            self.sort_for_leader(level, &mut rest);
            let mut taken = 0;
            for domain in &rest {
                let room = self.room(level, *domain);
                if leaders <= 0 || room.leaders == 0 {
                    break;
                }
                greedy.with_leader = Some(*domain);
                leaders -= room.leaders;
                slices -= room.slices_beside;
                taken += 1;
            }
            if leaders > 0 {
                return None;
            }
            rest.drain(..taken);
            greedy.domains += taken as i64;
        }
        self.sort(level, &mut rest);
        for domain in rest {
            let room = self.room(level, domain);
            if slices <= 0 || room.slices == 0 {
                break;
            }
            greedy.domains += 1;
            greedy.last = Some(domain);
            slices -= room.slices;
        }
        (slices <= 0).then_some(greedy)
    }

    /// Strikes off what cannot hold this many slices: first the children, then, with what is left, the domains.
    fn prune(&mut self, domains: &[u32], threshold: i64) {
        let level = self.plan.level;
        if level < self.tree.lowest() {
            for child in domains.iter().flat_map(|domain| self.tree.children(level, *domain)) {
                self.prune_one(level + 1, child, threshold);
            }
        }
        for domain in domains {
            self.sum_up(level, *domain);
            self.prune_one(level, *domain, threshold);
        }
    }

    fn prune_one(&mut self, level: usize, domain: u32, threshold: i64) {
        let room = *self.room(level, domain);
        let no_leader = self.plan.leaders > 0 && room.leaders > 0 && room.slices_beside < threshold;
        let strike: fn(&mut Room) = match () {
            () if room.slices < threshold => |room| *room = Room { score: room.score, ..Room::default() },
            // It can still take workers.
            () if no_leader => |room| (room.pods_beside, room.slices_beside, room.leaders) = (0, 0, 0),
            () => return,
        };
        for at in level..=self.tree.lowest() {
            for below in self.tree.within(level, domain, at) {
                strike(self.room_mut(at, below));
            }
        }
    }

    /// Adds up the rooms below a domain anew. As in Kueue single pods count now, also of children that are to hold slices within
    /// slices whole: of two choices the tighter one has fewer pods to spare.
    fn sum_up(&mut self, level: usize, domain: u32) {
        let lowest = self.tree.lowest();
        if lowest == self.plan.slice_level {
            for leaf in self.tree.within(level, domain, lowest) {
                room::slice(&mut self.rooms[lowest][leaf as usize], self.plan.slice_size);
            }
        }
        for at in (level..lowest).rev() {
            for one in self.tree.within(level, domain, at) {
                let children = self.tree.children(at, one);
                let (above, below) = self.rooms.split_at_mut(at + 1);
                let children = &below[0][children.start as usize..children.end as usize];
                room::sum(&mut above[at][one as usize], children, at, self.plan, None);
            }
        }
    }

    /// As few domains as a greedy choice needs, with the least room in all that is enough.
    fn fewest(&self, level: usize, domains: &[u32], mixed_first: bool) -> Option<Vec<u32>> {
        let most = self.greedy(level, domains)?.domains as usize;
        let mut ordered = domains.to_vec();
        match mixed_first {
            true => ordered.sort_by(|a, b| {
                let key = |domain: &u32| {
                    let room = self.room(level, *domain);
                    (Reverse(room.leaders), Reverse(room.slices_beside))
                };
                let spread = |domain: &u32| self.spread(level, *domain);
                key(a).cmp(&key(b)).then(spread(b).total_cmp(&spread(a))).then(a.cmp(b))
            }),
            false => ordered.sort_unstable(),
        }
        // By number of domains taken: the first choice that leaves so many leaders and pods.
        let mut choices: Vec<BTreeMap<(i64, i64), Vec<u32>>> = vec![BTreeMap::new(); most + 1];
        let pods = self.plan.slices() * self.plan.slice_size;
        choices[0].insert((self.plan.leaders, pods), Vec::new());
        for domain in ordered {
            let room = *self.room(level, domain);
            for taken in (1..=most).rev() {
                let (fewer, these) = choices.split_at_mut(taken);
                for ((leaders, pods), chosen) in &fewer[taken - 1] {
                    if *leaders <= 0 && *pods <= 0 {
                        continue;
                    }
                    let mut add = |left: (i64, i64)| {
                        these[0].entry(left).or_insert_with(|| [chosen.as_slice(), &[domain]].concat());
                    };
                    if *leaders > 0 && room.leaders > 0 {
                        add((leaders - room.leaders, pods - room.pods_beside));
                    }
                    if room.slices > 0 {
                        add((*leaders, pods - room.pods));
                    }
                }
            }
        }
        choices.pop()?.range((0, i64::MIN)..=(0, 0)).next_back().map(|(_, chosen)| chosen.clone())
    }

    /// How evenly the room of a domain is spread over its children: the entropy of their parts.
    fn spread(&self, level: usize, domain: u32) -> f64 {
        let children = self.tree.children(level, domain);
        let pods: Vec<i64> = children.map(|child| self.room(level + 1, child).pods).collect();
        let total = pods.iter().sum::<i64>() as f64;
        let parts = pods.iter().filter(|pods| **pods > 0).map(|pods| *pods as f64 / total);
        parts.map(|part| -part * part.log2()).sum()
    }

    /// Gives every domain the threshold and what is left to the first ones. Their rooms become their shares.
    fn even_shares(&mut self, level: usize, domains: &[u32], threshold: i64) -> Option<Vec<u32>> {
        let plan = self.plan;
        let mut chosen = self.fewest(level, domains, false)?;
        let mut extra = plan.slices() - chosen.len() as i64 * threshold;
        if extra < 0 {
            return None;
        }
        self.sort_for_leader(level, &mut chosen);
        let mut leaders = plan.leaders;
        for domain in &chosen {
            let room = self.room_mut(level, *domain);
            let with_leader = leaders > 0;
            let most = if with_leader { room.slices_beside } else { room.slices };
            let more = (most - threshold).min(extra);
            room.leaders = i64::from(with_leader);
            leaders -= room.leaders;
            room.slices = threshold + more;
            room.slices_beside = room.slices;
            room.pods = room.slices * plan.slice_size;
            room.pods_beside = room.pods - room.leaders;
            extra -= more;
        }
        (extra <= 0 && leaders <= 0).then_some(chosen)
    }

    fn save(&self, group: &Range<u32>) -> Saved {
        let level = self.plan.level;
        let part = |at: usize| {
            let first = self.tree.within(level, group.start, at).start as usize;
            let last = self.tree.within(level, group.end - 1, at).end as usize;
            (at, first, self.rooms[at][first..last].to_vec())
        };
        (level..=self.tree.lowest()).map(part).collect()
    }

    fn restore(&mut self, saved: &Saved) {
        for (level, first, rooms) in saved {
            self.rooms[*level][*first..first + rooms.len()].copy_from_slice(rooms);
        }
    }
}
