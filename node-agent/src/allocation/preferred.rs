use std::collections::BTreeSet;

use crate::topology::Links;

/// As many sets are compared one by one; 16 GPUs have at most 12,870 of one size. Beyond it the choice is greedy.
const MAX_SETS: u64 = 50_000;

/// A question that has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PreferredError {
    /// More is asked for than there is.
    #[error("{size} devices are asked for and {available} are available")]
    TooFew {
        /// Asked for.
        size: usize,
        /// There.
        available: usize,
    },
    /// More must be included than is asked for.
    #[error("{must} devices must be included and {size} are asked for")]
    TooManyRequired {
        /// To be included.
        must: usize,
        /// Asked for.
        size: usize,
    },
    /// A device must be included that is not available.
    #[error("device {0} must be included and is not available")]
    RequiredUnavailable(u32),
}

/// The best set of `size` GPUs out of `available` that has all of `must_include`, by index, in ascending order.
///
/// Best is, in this order: the most points within the set ([`Links::total`]); the fewest points lost to what stays
/// available, so that a single GPU is taken where no good group is broken; the lowest indices.
///
/// # Errors
/// When there is no such set.
pub fn preferred(
    available: &BTreeSet<u32>,
    must_include: &BTreeSet<u32>,
    size: usize,
    links: &Links,
) -> Result<Vec<u32>, PreferredError> {
    if available.len() < size {
        return Err(PreferredError::TooFew { size, available: available.len() });
    }
    if must_include.len() > size {
        return Err(PreferredError::TooManyRequired { must: must_include.len(), size });
    }
    if let Some(missing) = must_include.difference(available).next() {
        return Err(PreferredError::RequiredUnavailable(*missing));
    }
    let field = Field::new(available, must_include, links);
    let chosen = if binomial(field.free.len(), size - must_include.len()) <= MAX_SETS {
        field.exhaustive(size)
    } else {
        field.greedy(size)
    };
    Ok(chosen)
}

/// Points within a set, and points between the set and everything available (less is better).
type Worth = (u64, std::cmp::Reverse<u64>);

/// The choice, with the links as a table by position so that no set looks anything up twice.
struct Field {
    /// Indices that may be chosen, ascending.
    free: Vec<u32>,
    /// Indices that must be.
    must: Vec<u32>,
    /// `free` then `must`: the positions of `score` and `degree`.
    score: Vec<Vec<u64>>,
    degree: Vec<u64>,
}

impl Field {
    fn new(available: &BTreeSet<u32>, must_include: &BTreeSet<u32>, links: &Links) -> Self {
        let free: Vec<u32> = available.difference(must_include).copied().collect();
        let must: Vec<u32> = must_include.iter().copied().collect();
        let all: Vec<u32> = free.iter().chain(&must).copied().collect();
        let score: Vec<Vec<u64>> =
            all.iter().map(|a| all.iter().map(|b| links.score(*a, *b)).collect()).collect();
        let degree = score.iter().map(|row| row.iter().sum()).collect();
        Self { free, must, score, degree }
    }

    fn required(&self) -> Vec<usize> {
        (self.free.len()..self.free.len() + self.must.len()).collect()
    }

    fn worth(&self, set: &[usize]) -> Worth {
        let within = set
            .iter()
            .enumerate()
            .map(|(at, a)| set[at + 1..].iter().map(|b| self.score[*a][*b]).sum::<u64>());
        let lost = set.iter().map(|a| self.degree[*a]).sum();
        (within.sum(), std::cmp::Reverse(lost))
    }

    fn indices(&self, set: &[usize]) -> Vec<u32> {
        let mut indices: Vec<u32> = set
            .iter()
            .map(|at| self.free.get(*at).copied().unwrap_or_else(|| self.must[*at - self.free.len()]))
            .collect();
        indices.sort_unstable();
        indices
    }

    /// Every set, in lexicographic order of positions; the first of the best is the one of the lowest indices.
    fn exhaustive(&self, size: usize) -> Vec<u32> {
        let mut set = self.required();
        let mut best: Option<(Worth, Vec<usize>)> = None;
        self.extend(&mut set, 0, size, &mut best);
        best.map(|(_, set)| self.indices(&set)).unwrap_or_default()
    }

    fn extend(&self, set: &mut Vec<usize>, from: usize, size: usize, best: &mut Option<(Worth, Vec<usize>)>) {
        if set.len() == size {
            let worth = self.worth(set);
            if best.as_ref().is_none_or(|(known, _)| worth > *known) {
                *best = Some((worth, set.clone()));
            }
            return;
        }
        let still_needed = size - set.len();
        for at in from..=self.free.len() - still_needed {
            set.push(at);
            self.extend(set, at + 1, size, best);
            set.pop();
        }
    }

    /// Grows a set from every possible first member by the best next one, and keeps the best of them.
    fn greedy(&self, size: usize) -> Vec<u32> {
        let starts: Vec<Vec<usize>> = if self.must.is_empty() {
            (0..self.free.len()).map(|at| vec![at]).collect()
        } else {
            vec![self.required()]
        };
        let mut best: Option<(Worth, Vec<usize>)> = None;
        for mut set in starts {
            while set.len() < size {
                let gain = |at: usize| {
                    let within: u64 = set.iter().map(|member| self.score[at][*member]).sum();
                    (within, std::cmp::Reverse(self.degree[at]), std::cmp::Reverse(at))
                };
                let candidates = (0..self.free.len()).filter(|at| !set.contains(at));
                let Some(next) = candidates.max_by_key(|at| gain(*at)) else { break };
                set.push(next);
            }
            let worth = self.worth(&set);
            if best.as_ref().is_none_or(|(known, _)| worth > *known) {
                best = Some((worth, set));
            }
        }
        best.map(|(_, set)| self.indices(&set)).unwrap_or_default()
    }
}

/// Number of sets of `k` out of `n`, or anything above [`MAX_SETS`] when there are more.
fn binomial(n: usize, k: usize) -> u64 {
    let k = k.min(n - k);
    let mut sets: u64 = 1;
    for step in 0..k {
        sets = sets.saturating_mul((n - step) as u64) / (step as u64 + 1);
        if sets > MAX_SETS {
            return sets;
        }
    }
    sets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::{FakeDriver, GpuDriver};
    use crate::topology::{Link, PciePath};
    use fake_nvml::{Handle, World, WorldSpec};
    use proptest::prelude::*;

    fn links(profile: &str) -> Links {
        let world = World::new(WorldSpec::profile(profile).unwrap(), "n");
        FakeDriver::new(Handle::new(world)).enumerate().unwrap().links
    }

    fn set(indices: impl IntoIterator<Item = u32>) -> BTreeSet<u32> {
        indices.into_iter().collect()
    }

    #[test]
    fn choices_on_known_machines() {
        let (a100, l40s) = (links("8xA100"), links("4xL40S"));
        let all: &[u32] = &[0, 1, 2, 3, 4, 5, 6, 7];
        let check = |name, links, available: &[u32], must: &[u32], size, expected: &[u32]| {
            let (available, must) = (set(available.iter().copied()), set(must.iter().copied()));
            assert_eq!(preferred(&available, &must, size, links).as_deref(), Ok(expected), "{name}");
        };
        check("a pair behind one switch", &a100, all, &[], 2, &[0, 1]);
        check("the partner of what must be", &a100, all, &[5], 2, &[4, 5]);
        check("two whole pairs", &a100, &[0, 2, 3, 5, 6, 7], &[], 4, &[2, 3, 6, 7]);
        check("a single one breaks no pair", &a100, &[0, 1, 2, 4, 5], &[], 1, &[2]);
        check("all of them", &a100, all, &[], 8, all);
        check("below one bridge", &l40s, &[1, 2, 3], &[], 2, &[2, 3]);
        check("a single one, no NVLink", &l40s, &[1, 2, 3], &[], 1, &[1]);
        check("none", &l40s, &[1], &[], 0, &[]);
    }

    #[test]
    fn impossible_questions_say_why() {
        let none = Links::default();
        let ask = |available: &[u32], must: &[u32], size| {
            preferred(&set(available.iter().copied()), &set(must.iter().copied()), size, &none).unwrap_err()
        };
        assert_eq!(ask(&[1], &[], 2), PreferredError::TooFew { size: 2, available: 1 });
        assert_eq!(ask(&[1, 2], &[1, 2], 1), PreferredError::TooManyRequired { must: 2, size: 1 });
        assert_eq!(ask(&[1, 2], &[3], 1), PreferredError::RequiredUnavailable(3));
    }

    /// An oracle that shares nothing with the search but the definition of best.
    fn oracle(available: &BTreeSet<u32>, must: &BTreeSet<u32>, size: usize, links: &Links) -> Vec<u32> {
        let all: Vec<u32> = available.iter().copied().collect();
        let lost = |chosen: &[u32]| -> u64 {
            chosen.iter().map(|a| all.iter().map(|b| links.score(*a, *b)).sum::<u64>()).sum()
        };
        (0u32..1 << all.len())
            .map(|bits| (0..all.len()).filter(|at| bits >> at & 1 == 1).map(|at| all[at]).collect::<Vec<_>>())
            .filter(|chosen| chosen.len() == size && must.iter().all(|index| chosen.contains(index)))
            .min_by_key(|chosen| (std::cmp::Reverse(links.total(chosen)), lost(chosen), chosen.clone()))
            .unwrap()
    }

    fn wiring(gpus: u32) -> impl Strategy<Value = Links> {
        let pairs = (gpus * (gpus - 1) / 2) as usize;
        proptest::collection::vec((0u32..3, 0usize..6), pairs).prop_map(move |drawn| {
            const PATHS: [PciePath; 6] = [
                PciePath::SameBoard,
                PciePath::Pix,
                PciePath::Pxb,
                PciePath::Phb,
                PciePath::Node,
                PciePath::Sys,
            ];
            let mut links = Links::default();
            let pairs = (0..gpus).flat_map(|a| (a + 1..gpus).map(move |b| (a, b)));
            for ((a, b), (nvlinks, path)) in pairs.zip(drawn) {
                links.insert(a, b, Link { path: PATHS[path], nvlinks });
            }
            links
        })
    }

    proptest! {
        #[test]
        fn is_the_best_set_there_is(
            links in wiring(8),
            available in proptest::collection::btree_set(0u32..8, 1..=8),
            seed in any::<u64>(),
        ) {
            let size = 1 + (seed % available.len() as u64) as usize;
            let must: BTreeSet<u32> =
                available.iter().copied().filter(|index| seed >> (index + 8) & 3 == 0).take(size).collect();
            let chosen = preferred(&available, &must, size, &links).unwrap();
            prop_assert_eq!(chosen, oracle(&available, &must, size, &links));
        }

        #[test]
        fn the_greedy_choice_is_a_choice(
            links in wiring(32),
            available in proptest::collection::btree_set(0u32..32, 24..=32),
            size in 8usize..16,
            required in 0usize..3,
        ) {
            let must: BTreeSet<u32> = available.iter().copied().rev().take(required).collect();
            let chosen = preferred(&available, &must, size, &links).unwrap();
            prop_assert_eq!(chosen.len(), size);
            prop_assert!(chosen.is_sorted_by(|a, b| a < b));
            prop_assert!(chosen.iter().all(|index| available.contains(index)));
            prop_assert!(must.iter().all(|index| chosen.contains(index)));
        }
    }
}
