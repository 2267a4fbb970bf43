//! Phase 2b: from the domains chosen down to leaves.

use super::choose::{Search, Unit};
use super::place::Found;

impl Search<'_> {
    /// Hands the pods down. `even`: the domains have their shares already (balanced placement).
    ///
    /// # Errors
    /// The level at which a domain's children do not take what the domain was given.
    pub(super) fn descend(&mut self, mut level: usize, chosen: Vec<u32>, even: bool) -> Result<Found, usize> {
        let plan = self.plan;
        let (lowest, slices) = (self.tree.lowest(), Unit::Slices(plan.slice_size));
        let mut chosen = self.hand_out(level, &chosen, plan.count, plan.leaders, slices).ok_or(level)?;
        while level < plan.slice_level && !even {
            // Above the slices it does not matter who of the chosen holds what: their children are used as one list.
            let mut below: Vec<u32> =
                chosen.iter().flat_map(|domain| self.tree.children(level, *domain)).collect();
            level += 1;
            self.sort(level, &mut below);
            chosen = self.hand_out(level, &below, plan.count, plan.leaders, slices).ok_or(level)?;
        }
        while level < lowest {
            let size = match level < plan.slice_level {
                true => plan.slice_size,
                false => plan.inner_size(level + 1).unwrap_or(1),
            };
            let mut next = Vec::with_capacity(chosen.len());
            for domain in chosen {
                next.extend(self.hand_down(level, domain, size).ok_or(level + 1)?);
            }
            chosen = next;
            level += 1;
        }
        self.found(chosen).ok_or(lowest)
    }

    /// Gives what a domain holds to its children, in slices of this size.
    fn hand_down(&mut self, level: usize, domain: u32, size: i64) -> Option<Vec<u32>> {
        let mut children: Vec<u32> = self.tree.children(level, domain).collect();
        self.sort(level + 1, &mut children);
        if size > 1 {
            for child in &children {
                let room = self.room_mut(level + 1, *child);
                (room.slices, room.slices_beside) = (room.pods / size, room.pods_beside / size);
            }
        }
        let unit = if size > 1 { Unit::Slices(size) } else { Unit::Pods };
        let room = *self.room(level, domain);
        self.hand_out(level + 1, &children, room.pods, room.leaders, unit)
    }

    /// Gives pods to domains in their order, the last part to the tightest that takes it. The rooms of those that get some
    /// become what they get. `None`: they do not take them all.
    fn hand_out(
        &mut self,
        level: usize,
        domains: &[u32],
        pods: i64,
        leaders: i64,
        unit: Unit,
    ) -> Option<Vec<u32>> {
        let domains = self.leader_first(level, domains, pods, leaders, unit);
        let best_fit = !self.plan.least_free_first;
        let (mut left, mut leaders_left) = (pods / unit.size(), leaders);
        let mut given = Vec::new();
        for at in 0..domains.len() {
            let mut domain = domains[at];
            let room = self.room(level, domain);
            let (amount, with_leader) = match leaders_left > 0 {
                true => (unit.beside_leader(room), true),
                false => (unit.of(room), false),
            };
            let last = amount >= left && room.leaders >= leaders_left;
            if last && best_fit {
                domain = self.tightest(level, &domains[at..], left, leaders_left, unit);
            }
            let room = self.room_mut(level, domain);
            let amount = if last { left } else { amount.min(left) };
            room.leaders = if with_leader { room.leaders.min(leaders_left) } else { 0 };
            room.pods = amount * unit.size();
            if unit != Unit::Pods {
                room.slices = amount;
            }
            given.push(domain);
            if last {
                return Some(given);
            }
            leaders_left -= room.leaders;
            left -= amount;
        }
        None
    }

    /// Leaves and what they got. `None`: less than was asked.
    fn found(&self, mut leaves: Vec<u32>) -> Option<Found> {
        leaves.sort_unstable();
        let mut found = Found::default();
        let lowest = self.tree.lowest();
        for leaf in leaves {
            let room = self.room(lowest, leaf);
            if room.leaders > 0 {
                found.leader.push((leaf, room.leaders));
            }
            if room.pods > 0 {
                found.workers.push((leaf, room.pods));
            }
        }
        let all = |places: &[(u32, i64)], wanted| places.iter().map(|(_, pods)| pods).sum::<i64>() == wanted;
        (all(&found.workers, self.plan.count) && all(&found.leader, self.plan.leaders)).then_some(found)
    }
}
