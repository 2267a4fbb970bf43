//! Dominant resource shares, as exact fractions.

use std::cmp::Ordering;

use model::ResourceName;

use crate::input::Weight;

/// Thousandths of what can be lent, by billionths of the weight.
const SCALE: u128 = 1_000 * 1_000_000_000;

/// One node's dominant resource share: what it borrows of a resource, by what it could be lent of it, by its weight.
///
/// Kept as a fraction, and compared exactly. Whoever borrows without any weight comes after everybody else; among them, who
/// borrows more comes later.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    borrows: bool,
    without_weight: bool,
    /// At most 63 bits.
    numerator: u64,
    /// At most 127 bits, and not 0.
    denominator: u128,
    resource: Option<ResourceName>,
}

impl Default for Share {
    /// Nothing.
    fn default() -> Self {
        Self { borrows: false, without_weight: false, numerator: 0, denominator: 1, resource: None }
    }
}

impl Share {
    /// From what is borrowed and what could be lent, by resource, in the order of their names. Numbers beyond 63 bits count
    /// as that much.
    pub(crate) fn of<'a>(
        weight: Weight,
        parts: impl Iterator<Item = (&'a ResourceName, i128, i128)>,
    ) -> Self {
        let mut share = Self::default();
        // By how much of what: the largest fraction so far.
        let (mut numerator, mut lendable) = (0u64, 1u64);
        for (resource, borrowed, could_be_lent) in parts {
            share.borrows = true;
            let (borrowed, could_be_lent) = (bounded(borrowed), bounded(could_be_lent));
            let larger = u128::from(borrowed) * u128::from(lendable)
                > u128::from(numerator) * u128::from(could_be_lent);
            if could_be_lent > 0 && larger {
                (numerator, lendable) = (borrowed, could_be_lent);
                share.resource = Some(resource.clone());
            }
        }
        share.numerator = numerator;
        share.without_weight = numerator > 0 && weight.nanos() == 0;
        let weight = if numerator == 0 || share.without_weight { 1 } else { weight.nanos() };
        share.denominator = u128::from(lendable) * u128::from(weight);
        share
    }

    /// Whether anything is borrowed, be it something that nobody can lend.
    pub(crate) fn borrows(&self) -> bool {
        self.borrows
    }

    pub(crate) fn into_resource(self) -> Option<ResourceName> {
        self.resource
    }

    /// `weightedShare`: thousandths, rounded up.
    pub(crate) fn weighted(&self) -> i64 {
        if self.without_weight {
            return i64::MAX;
        }
        let thousandths = (u128::from(self.numerator) * SCALE).div_ceil(self.denominator);
        i64::try_from(thousandths).unwrap_or(i64::MAX)
    }

    /// Thousandths, for people: as near as a float comes.
    #[allow(clippy::cast_precision_loss, reason = "nothing is decided by it")]
    pub(crate) fn exact(&self) -> f64 {
        if self.without_weight {
            return f64::INFINITY;
        }
        (u128::from(self.numerator) * SCALE) as f64 / self.denominator as f64
    }
}

fn bounded(amount: i128) -> u64 {
    u64::try_from(amount.clamp(0, i128::from(i64::MAX))).unwrap_or(0)
}

/// A product of 64 and 128 bits: its upper 128 bits, and its lower 64.
fn product(a: u64, b: u128) -> (u128, u64) {
    let (upper, lower) = (b >> 64, b & u128::from(u64::MAX));
    let low = u128::from(a) * lower;
    (u128::from(a) * upper + (low >> 64), (low & u128::from(u64::MAX)) as u64)
}

impl Ord for Share {
    fn cmp(&self, other: &Self) -> Ordering {
        self.without_weight.cmp(&other.without_weight).then_with(|| {
            product(self.numerator, other.denominator).cmp(&product(other.numerator, self.denominator))
        })
    }
}

impl PartialOrd for Share {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Share {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Share {}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: i128 = 1_000_000_000;

    fn share(weight: i128, parts: &[(&str, i128, i128)]) -> Share {
        let names: Vec<ResourceName> = parts.iter().map(|(name, ..)| ResourceName::from(*name)).collect();
        let parts =
            names.iter().zip(parts).map(|(name, (_, borrowed, lendable))| (name, *borrowed, *lendable));
        Share::of(Weight::from_nanos(weight), parts)
    }

    #[test]
    fn the_resource_of_which_most_is_borrowed_decides() {
        let (cpu, gpu) = ("cpu", "nvidia.com/gpu");
        for (weight, parts, weighted, resource) in [
            (ONE, vec![], 0, None),
            (ONE, vec![(cpu, 1, 10), (gpu, 2, 10)], 200, Some(gpu)),
            (ONE, vec![(cpu, 2, 10), (gpu, 20, 100)], 200, Some(cpu)),
            (ONE, vec![(cpu, 1, 3)], 334, Some(cpu)),
            (ONE / 2, vec![(gpu, 2, 10)], 400, Some(gpu)),
            (3 * ONE, vec![(cpu, 1, 1000)], 1, Some(cpu)),
            (0, vec![(cpu, 1, 1000)], i64::MAX, Some(cpu)),
            (0, vec![(cpu, 5, 0)], 0, None),
            (ONE, vec![(cpu, 5, 0), (gpu, 1, 1)], 1000, Some(gpu)),
            (1, vec![(cpu, i128::MAX, 1)], i64::MAX, Some(cpu)),
        ] {
            let share = share(weight, &parts);
            assert_eq!(share.weighted(), weighted, "{parts:?}");
            assert_eq!(share.borrows(), !parts.is_empty(), "{parts:?}");
            assert_eq!(share.into_resource(), resource.map(ResourceName::from), "{parts:?}");
        }
    }

    #[test]
    fn shares_are_compared_exactly() {
        let of = |weight, borrowed, lendable| share(weight, &[("cpu", borrowed, lendable)]);
        let most = i128::from(i64::MAX);
        // A third by a third is a ninth, whichever way it is divided.
        assert_eq!(of(3 * ONE, 1, 3), of(ONE, 1, 9));
        assert!(of(ONE, most - 1, most) < of(ONE, most, most));
        assert!(of(i128::from(u64::MAX), 1, most) < of(i128::from(u64::MAX) - 1, 1, most));
        assert!(of(0, 1, most) > of(1, most, 1));
        assert!(of(0, 2, 10) > of(0, 1, 10));
        assert_eq!(of(0, 0, 10), share(ONE, &[]));
    }

    #[test]
    fn shares_are_told_as_near_as_a_float_comes() {
        for (borrowed, lendable, told) in
            [(4, 9, "444.44444444444446"), (6, 9, "666.6666666666666"), (1, 4, "250")]
        {
            assert_eq!(share(ONE, &[("cpu", borrowed, lendable)]).exact().to_string(), told);
        }
    }
}
