//! Packing of topology assignments.
//!
//! v1beta1 lists every domain with all its values; v1beta2 cuts the list into slices and says once what a slice has in common:
//! a level's only value, else what all its values begin and end with; and the pod count, if it is one.

use crate::api::kueue::{
    v1beta1::{self, TopologyDomainAssignment},
    v1beta2::{
        TopologyAssignment, TopologyAssignmentSlice, TopologyAssignmentSliceLevelIndividualValues,
        TopologyAssignmentSliceLevelValues, TopologyAssignmentSlicePodCounts,
    },
};

/// Domains in an assignment at most: v1beta2's bound on a slice's roots, six times the nodes of the largest clusters and more
/// than an object etcd takes can list. It keeps `domainCount: 2000000000`, which the schema allows, from becoming as many strings.
const MAX_DOMAINS: usize = 100_000;

/// Why a topology assignment means nothing.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum TopologyError {
    /// It does not have the shape its version demands.
    #[error("{0}")]
    Malformed(String),
    /// Values and levels do not match.
    #[error("{place} has {found} values for {levels} levels")]
    LevelCount {
        /// Which domain or slice.
        place: String,
        /// How many values it has.
        found: usize,
        /// How many levels there are.
        levels: usize,
    },
    /// A slice gives fewer or more values than it has domains.
    #[error("slices[{slice}].{field} has {found} entries for {domains} domains")]
    EntryCount {
        /// Index of the slice.
        slice: usize,
        /// The list.
        field: &'static str,
        /// How many entries it has.
        found: usize,
        /// `domainCount`.
        domains: usize,
    },
    /// Neither or both of `universal` and `individual`.
    #[error("slices[{slice}].{field} needs either universal or individual")]
    NotOneOf {
        /// Index of the slice.
        slice: usize,
        /// The field that has both or neither.
        field: &'static str,
    },
    /// Too many domains.
    #[error("more than {MAX_DOMAINS} domains")]
    TooManyDomains,
}

/// v1beta1 → v1beta2.
///
/// # Errors
/// When a domain has not one value a level, or there are too many domains.
pub fn pack(assignment: &v1beta1::TopologyAssignment) -> Result<TopologyAssignment, TopologyError> {
    let levels = assignment.levels.len();
    if assignment.domains.len() > MAX_DOMAINS {
        return Err(TopologyError::TooManyDomains);
    }
    if let Some((index, domain)) =
        assignment.domains.iter().enumerate().find(|(_, d)| d.values.len() != levels)
    {
        let place = format!("domains[{index}]");
        return Err(TopologyError::LevelCount { place, found: domain.values.len(), levels });
    }
    let slices = match assignment.domains.as_slice() {
        [] => Vec::new(),
        domains => vec![pack_slice(domains, levels)],
    };
    Ok(TopologyAssignment { levels: assignment.levels.clone(), slices })
}

fn pack_slice(domains: &[TopologyDomainAssignment], levels: usize) -> TopologyAssignmentSlice {
    let values_per_level = (0..levels)
        .map(|level| {
            pack_values(&domains.iter().map(|domain| domain.values[level].as_str()).collect::<Vec<_>>())
        })
        .collect();
    let counts: Vec<i32> = domains.iter().map(|domain| domain.count).collect();
    let pod_counts = match all_equal(&counts) {
        Some(&count) => TopologyAssignmentSlicePodCounts { universal: Some(count), individual: Vec::new() },
        None => TopologyAssignmentSlicePodCounts { universal: None, individual: counts },
    };
    let domain_count = i32::try_from(domains.len()).expect("a slice has at most MAX_DOMAINS domains");
    TopologyAssignmentSlice { domain_count, values_per_level, pod_counts }
}

fn pack_values(values: &[&str]) -> TopologyAssignmentSliceLevelValues {
    if let Some(value) = all_equal(values) {
        return TopologyAssignmentSliceLevelValues { universal: Some((*value).to_owned()), individual: None };
    }
    let prefix = common(values, |a, b| {
        a.chars().zip(b.chars()).take_while(|(a, b)| a == b).map(|(c, _)| c.len_utf8()).sum()
    });
    let suffix = common(values, |a, b| {
        a.chars().rev().zip(b.chars().rev()).take_while(|(a, b)| a == b).map(|(c, _)| c.len_utf8()).sum()
    });
    // In a short value the two may overlap; then, as in Kueue, it is the beginning that gives way.
    let shortest = values.iter().map(|value| value.len()).min().unwrap_or_default();
    let prefix = prefix.min(shortest - suffix);
    let roots = values.iter().map(|value| value[prefix..value.len() - suffix].to_owned()).collect();
    let part = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    TopologyAssignmentSliceLevelValues {
        universal: None,
        individual: Some(TopologyAssignmentSliceLevelIndividualValues {
            prefix: part(&values[0][..prefix]),
            suffix: part(&values[0][values[0].len() - suffix..]),
            roots,
        }),
    }
}

/// The smallest of what the first value has in common with each other one: what all have in common.
fn common(values: &[&str], with: impl Fn(&str, &str) -> usize) -> usize {
    let (first, others) = values.split_first().expect("a slice has a domain");
    others.iter().map(|other| with(first, other)).min().unwrap_or(first.len())
}

fn all_equal<T: PartialEq>(items: &[T]) -> Option<&T> {
    let (first, others) = items.split_first()?;
    others.iter().all(|other| other == first).then_some(first)
}

/// v1beta2 → v1beta1.
///
/// # Errors
/// When the lists of a slice do not match its `domainCount` or the levels, or there are too many domains.
pub fn unpack(assignment: &TopologyAssignment) -> Result<v1beta1::TopologyAssignment, TopologyError> {
    let mut domains = Vec::new();
    for (index, slice) in assignment.slices.iter().enumerate() {
        unpack_slice(slice, index, assignment.levels.len(), &mut domains)?;
    }
    Ok(v1beta1::TopologyAssignment { levels: assignment.levels.clone(), domains })
}

fn unpack_slice(
    slice: &TopologyAssignmentSlice,
    index: usize,
    levels: usize,
    domains: &mut Vec<TopologyDomainAssignment>,
) -> Result<(), TopologyError> {
    let count = usize::try_from(slice.domain_count).unwrap_or(0);
    if domains.len() + count > MAX_DOMAINS {
        return Err(TopologyError::TooManyDomains);
    }
    if slice.values_per_level.len() != levels {
        let place = format!("slices[{index}].valuesPerLevel");
        return Err(TopologyError::LevelCount { place, found: slice.values_per_level.len(), levels });
    }
    check_slice(slice, index, count)?;
    domains.extend((0..count).map(|domain| TopologyDomainAssignment {
        values: slice.values_per_level.iter().map(|values| value_of(values, domain)).collect(),
        count: slice.pod_counts.universal.unwrap_or_else(|| slice.pod_counts.individual[domain]),
    }));
    Ok(())
}

fn check_slice(slice: &TopologyAssignmentSlice, index: usize, domains: usize) -> Result<(), TopologyError> {
    let entries = |field, found| match found == domains {
        true => Ok(()),
        false => Err(TopologyError::EntryCount { slice: index, field, found, domains }),
    };
    for values in &slice.values_per_level {
        match (&values.universal, &values.individual) {
            (Some(_), None) => {}
            (None, Some(individual)) => entries("valuesPerLevel[].individual.roots", individual.roots.len())?,
            _ => return Err(TopologyError::NotOneOf { slice: index, field: "valuesPerLevel[]" }),
        }
    }
    match (slice.pod_counts.universal, slice.pod_counts.individual.len()) {
        (Some(_), 0) => Ok(()),
        (None, found) if found > 0 => entries("podCounts.individual", found),
        _ => Err(TopologyError::NotOneOf { slice: index, field: "podCounts" }),
    }
}

/// The value of one domain. The slice was checked.
fn value_of(values: &TopologyAssignmentSliceLevelValues, domain: usize) -> String {
    let part = |text: &Option<String>| text.clone().unwrap_or_default();
    match &values.individual {
        None => part(&values.universal),
        Some(individual) => part(&individual.prefix) + &individual.roots[domain] + &part(&individual.suffix),
    }
}
