//! Amounts of named resources, in whole base units.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::quantity::{NANO, Quantity, Written, div_away_from_zero};

/// The name of a resource: `cpu`, `memory`, `nvidia.com/gpu`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ResourceName(Arc<str>);

impl ResourceName {
    /// Processor time, counted in thousandths of a core.
    pub const CPU: &'static str = "cpu";
    /// Memory in bytes.
    pub const MEMORY: &'static str = "memory";
    /// The number of pods: implied by every pod, never requested.
    pub const PODS: &'static str = "pods";

    /// A resource by name.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is an extended resource, given out in whole units: one with a domain that is not Kubernetes' own
    /// (`IsExtendedResourceName` of `k8s.io/kubernetes`).
    pub fn is_extended(&self) -> bool {
        self.as_str().split_once('/').is_some_and(|(domain, _)| {
            !domain.ends_with("kubernetes.io") && !self.as_str().starts_with("requests.")
        })
    }

    /// Whether a container's request and limit must be the same: no node gives more of it than it has.
    pub fn is_never_overcommitted(&self) -> bool {
        self.is_extended() || self.as_str().starts_with("hugepages-")
    }

    /// A quantity of this resource in base units: thousandths for `cpu`, units for everything else, rounded up.
    ///
    /// `None` when it does not fit 64 bits.
    pub fn amount(&self, quantity: &Quantity) -> Option<i64> {
        self.base_units(quantity.nanos())
    }

    /// The same of an amount in billionths of a unit.
    pub fn base_units(&self, nanos: i128) -> Option<i64> {
        let unit = if self.as_str() == Self::CPU { NANO / 1000 } else { NANO };
        i64::try_from(div_away_from_zero(nanos, unit)).ok()
    }

    /// Base units of this resource as a quantity, in the notation users expect for it.
    pub fn quantity(&self, amount: i64) -> Quantity {
        match self.as_str() {
            Self::CPU => Quantity::from_millis(amount),
            Self::MEMORY | "ephemeral-storage" => Quantity::from_bytes(amount),
            name if name.starts_with("hugepages-") => Quantity::from_bytes(amount),
            _ => Quantity::from_units(amount),
        }
    }
}

impl From<&str> for ResourceName {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

impl Borrow<str> for ResourceName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Amounts by resource in base units (see [`ResourceName::amount`]). Ordered, so that everything derived from it is.
pub type ResourceList = BTreeMap<ResourceName, i64>;

/// A user's number that no computation can use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AmountError {
    /// Not a quantity at all.
    #[error("resource {resource}: {text:?} is not a quantity; write for example \"500m\", \"2\" or \"4Gi\"")]
    Malformed {
        /// The resource asked for.
        resource: ResourceName,
        /// What was written.
        text: String,
    },
    /// Below zero.
    #[error("resource {resource}: {quantity} is negative; requests and limits must be zero or more")]
    Negative {
        /// The resource asked for.
        resource: ResourceName,
        /// What was written.
        quantity: Quantity,
    },
    /// A part of what is only given out whole: an extended resource such as `nvidia.com/gpu`.
    #[error(
        "resource {resource}: {quantity} is not a whole number; devices are given out whole, so ask for 1 or more"
    )]
    Fraction {
        /// The resource asked for.
        resource: ResourceName,
        /// What was written.
        quantity: Quantity,
    },
    /// A request that its limit does not allow; for an extended resource the two must be equal.
    #[error("resource {resource}: the request is {request}, the limit {limit}; {}", limit_rule(resource))]
    Limit {
        /// The resource asked for.
        resource: ResourceName,
        /// What is to be set aside.
        request: Quantity,
        /// What must not be exceeded.
        limit: Quantity,
    },
    /// Beyond 64 bits.
    #[error(
        "resource {resource}: {quantity} is more than 64 bits can count{}; ask for less",
        unit_of(resource)
    )]
    TooLarge {
        /// The resource asked for.
        resource: ResourceName,
        /// What was written.
        quantity: Quantity,
    },
    /// Beyond 64 bits when the containers of a pod are summed.
    #[error(
        "resource {resource}: the pod's containers together ask for more than 64 bits can count; ask for less"
    )]
    Sum {
        /// The resource asked for.
        resource: ResourceName,
    },
    /// Beyond 64 bits when the pods are summed.
    #[error(
        "resource {resource}: {count} pods of {} each are more than 64 bits can count; ask for less",
        resource.quantity(*each)
    )]
    Product {
        /// The resource asked for.
        resource: ResourceName,
        /// By each pod, in base units.
        each: i64,
        /// How many pods.
        count: i64,
    },
}

fn limit_rule(resource: &ResourceName) -> &'static str {
    match resource.is_extended() {
        true => "for devices both must be the same",
        false => "the request must not be the larger one",
    }
}

fn unit_of(resource: &ResourceName) -> &'static str {
    if resource.as_str() == ResourceName::CPU { " in thousandths" } else { "" }
}

impl AmountError {
    /// Whether the number means something, only more than 64 bits hold.
    pub fn is_overflow(&self) -> bool {
        matches!(self, Self::TooLarge { .. } | Self::Sum { .. } | Self::Product { .. })
    }
}

/// Reads user-written quantities.
///
/// # Errors
/// A malformed or negative amount, a part of an extended resource, or an amount beyond 64 bits.
pub fn amounts(quantities: &BTreeMap<ResourceName, Written>) -> Result<ResourceList, AmountError> {
    quantities
        .iter()
        .map(|(resource, written)| match read(resource, written) {
            (amount, None) => Ok((resource.clone(), amount)),
            (_, Some(error)) => Err(error),
        })
        .collect()
}

/// What stands for an amount that is beyond 64 bits: the least or the most that they hold.
pub fn capped(is_negative: bool) -> i64 {
    if is_negative { i64::MIN } else { i64::MAX }
}

/// Reads a user-written quantity, whatever it is: what is no quantity counts as nothing, what is beyond 64 bits as the
/// most or least they hold. With it, what is wrong with it.
pub fn read(resource: &ResourceName, written: &Written) -> (i64, Option<AmountError>) {
    let quantity = match written.quantity() {
        Ok(quantity) => quantity,
        Err(text) => {
            let error = AmountError::Malformed { resource: resource.clone(), text: text.to_owned() };
            return (0, Some(error));
        }
    };
    let resource = || resource.clone();
    let amount = resource().amount(&quantity);
    let error = if quantity.is_negative() {
        Some(AmountError::Negative { resource: resource(), quantity })
    } else if resource().is_extended() && !quantity.is_whole() {
        Some(AmountError::Fraction { resource: resource(), quantity })
    } else if amount.is_none() {
        Some(AmountError::TooLarge { resource: resource(), quantity })
    } else {
        None
    };
    (amount.unwrap_or_else(|| capped(quantity.is_negative())), error)
}

/// Adds `more` to `total`, resource by resource.
///
/// # Errors
/// A sum beyond 64 bits; `total` is then partly changed and must be thrown away.
pub fn checked_add(total: &mut ResourceList, more: &ResourceList) -> Result<(), AmountError> {
    for (resource, amount) in more {
        let sum = total.entry(resource.clone()).or_insert(0);
        *sum = sum.checked_add(*amount).ok_or_else(|| AmountError::Sum { resource: resource.clone() })?;
    }
    Ok(())
}

/// `count` times `each`.
///
/// # Errors
/// A product beyond 64 bits.
pub fn checked_scale(each: &ResourceList, count: i64) -> Result<ResourceList, AmountError> {
    each.iter()
        .map(|(resource, amount)| {
            let product = amount.checked_mul(count).ok_or_else(|| AmountError::Product {
                resource: resource.clone(),
                each: *amount,
                count,
            })?;
            Ok((resource.clone(), product))
        })
        .collect()
}

/// Raises `floor` to `other`, resource by resource.
pub fn raise_to<V: Copy + Ord>(floor: &mut BTreeMap<ResourceName, V>, other: &BTreeMap<ResourceName, V>) {
    for (resource, amount) in other {
        let current = floor.entry(resource.clone()).or_insert(*amount);
        *current = (*current).max(*amount);
    }
}

/// The resources of which `asked` wants more than `free` has, with what is missing. Empty: it fits.
pub fn shortfall(asked: &ResourceList, free: &ResourceList) -> ResourceList {
    asked
        .iter()
        .filter_map(|(resource, amount)| {
            let missing = amount.saturating_sub(free.get(resource.as_str()).copied().unwrap_or(0));
            (*amount > 0 && missing > 0).then(|| (resource.clone(), missing))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[(&str, i64)]) -> ResourceList {
        entries.iter().map(|(name, amount)| (ResourceName::from(*name), *amount)).collect()
    }

    #[test]
    fn cpu_is_counted_in_thousandths_and_the_rest_in_units() {
        let quantities = [("cpu", "1500m"), ("memory", "1Gi"), ("nvidia.com/gpu", "8")]
            .map(|(name, text)| (ResourceName::from(name), Written::Valid(text.parse().unwrap())));
        assert_eq!(
            amounts(&quantities.into()).unwrap(),
            list(&[("cpu", 1500), ("memory", 1 << 30), ("nvidia.com/gpu", 8)])
        );
    }

    #[test]
    fn negative_and_huge_numbers_are_refused_by_name() {
        let read = |name: &str, text: &str| {
            amounts(&[(ResourceName::from(name), Written::Valid(text.parse().unwrap()))].into())
        };
        assert!(matches!(read("memory", "-1"), Err(AmountError::Negative { .. })));
        assert!(matches!(read("cpu", "9223372036854775807"), Err(AmountError::TooLarge { .. })));
        let mut total = list(&[("memory", i64::MAX)]);
        assert!(checked_add(&mut total, &list(&[("memory", 1)])).is_err());
        assert!(checked_scale(&list(&[("pods", i64::MAX)]), 2).is_err());
    }

    #[test]
    fn devices_are_asked_for_whole() {
        for (name, text, whole) in [
            ("nvidia.com/gpu", "1.5", false),
            ("nvidia.com/gpu", "500m", false),
            ("nvidia.com/gpu", "2000m", true),
            ("nvidia.com/gpu", "1k", true),
            ("cpu", "1.5", true),
            ("memory", "0.5", true),
            ("storage.kubernetes.io/scratch", "0.5", true),
            ("requests.example.com/gpu", "0.5", true),
        ] {
            let read = amounts(&[(ResourceName::from(name), Written::Valid(text.parse().unwrap()))].into());
            assert_eq!(!matches!(read, Err(AmountError::Fraction { .. })), whole, "{name}: {text}");
            assert_eq!(read.is_ok(), whole, "{name}: {text}");
        }
    }

    #[test]
    fn shortfall_names_what_is_missing() {
        let free = list(&[("cpu", 1000), ("nvidia.com/gpu", 3)]);
        assert!(shortfall(&list(&[("cpu", 1000)]), &free).is_empty());
        assert!(shortfall(&list(&[("memory", 0)]), &free).is_empty());
        assert_eq!(
            shortfall(&list(&[("nvidia.com/gpu", 8), ("memory", 5)]), &free),
            list(&[("nvidia.com/gpu", 5), ("memory", 5)])
        );
    }
}
