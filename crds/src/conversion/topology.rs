//! Packing of topology assignments.
//!
//! v1beta1 lists every domain with all its values; v1beta2 cuts the list into slices and says once what a slice has in common:
//! a level's only value, else what all its values begin and end with; and the pod count, if it is one.

use std::collections::HashMap;

use model::node::HOSTNAME;

use crate::api::kueue::{
    v1beta1::{self, TopologyDomainAssignment},
    v1beta2::{
        TopologyAssignment, TopologyAssignmentSlice, TopologyAssignmentSliceLevelIndividualValues,
        TopologyAssignmentSliceLevelValues, TopologyAssignmentSlicePodCounts,
    },
};

/// Slices in an assignment at most: v1beta2's bound.
const MAX_SLICES: usize = 1_000;
/// Domains in a slice at most: v1beta2's bound on its roots (`pkg/util/tas/tas_assignment.go`).
const MAX_SLICE: usize = 100_000;
/// Domains in an assignment at most: more than any cluster has nodes. It keeps `domainCount: 2000000000`, which the schema allows,
/// from becoming as many strings.
const MAX_DOMAINS: usize = 250_000;
/// As many as the API takes.
const MAX_LEVELS: usize = 16;

/// Why a topology assignment means nothing.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum TopologyError {
    /// It does not have the shape its version demands.
    #[error("{0}")]
    Malformed(String),
    /// There are fewer values than levels.
    #[error("{place} has {found} values for {levels} levels")]
    LevelCount {
        /// Which domain or slice.
        place: String,
        /// How many values it has.
        found: usize,
        /// How many levels there are.
        levels: usize,
    },
    /// A slice gives fewer values than it has domains.
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
    /// Neither `universal` nor `individual`.
    #[error("slices[{slice}].{field} needs either universal or individual")]
    Neither {
        /// Index of the slice.
        slice: usize,
        /// The field that has neither.
        field: &'static str,
    },
    /// Too many domains.
    #[error("more than {MAX_DOMAINS} domains")]
    TooManyDomains,
    /// Too many levels.
    #[error("more than {MAX_LEVELS} levels")]
    TooManyLevels,
}

/// v1beta1 → v1beta2. Values beyond the levels mean nothing, and are dropped.
///
/// # Errors
/// When a domain has fewer values than there are levels, or there are too many domains or levels.
pub fn pack(assignment: &v1beta1::TopologyAssignment) -> Result<TopologyAssignment, TopologyError> {
    let levels = assignment.levels.len();
    if levels > MAX_LEVELS {
        return Err(TopologyError::TooManyLevels);
    }
    if assignment.domains.len() > MAX_DOMAINS {
        return Err(TopologyError::TooManyDomains);
    }
    if let Some((index, domain)) =
        assignment.domains.iter().enumerate().find(|(_, d)| d.values.len() < levels)
    {
        let place = format!("domains[{index}]");
        return Err(TopologyError::LevelCount { place, found: domain.values.len(), levels });
    }
    let pack = |chunks: &[&[TopologyDomainAssignment]]| TopologyAssignment {
        levels: assignment.levels.clone(),
        slices: chunks.iter().map(|domains| pack_slice(domains, levels)).collect(),
    };
    let by_pool = pack(&chunks(assignment));
    if by_pool.slices.len() <= 1 || assignment.domains.len() > MAX_SLICE {
        return Ok(by_pool);
    }
    let together = pack(&[&assignment.domains]);
    let size = |one: &TopologyAssignment| serde_json::to_vec(one).map_or(usize::MAX, |text| text.len());
    Ok(if size(&together) < size(&by_pool) { together } else { by_pool })
}

/// The domains of each slice. Nodes whose names begin alike are together: up to the last dash by which at least two begin, or up to
/// an earlier one where that makes too many slices.
///
/// Rule: Kueue's gate `TASAssignmentsEncodingByHostnamePrefix`, which is on by default.
fn chunks(assignment: &v1beta1::TopologyAssignment) -> Vec<&[TopologyDomainAssignment]> {
    let (levels, domains) = (&assignment.levels, &assignment.domains);
    if levels.last().is_none_or(|level| level != HOSTNAME) {
        return domains.chunks(MAX_SLICE).collect();
    }
    let mut are_shared: HashMap<&str, bool> = HashMap::new();
    let mut deepest = 0;
    for name in domains.iter().map(|domain| host_of(domain, levels.len())) {
        deepest = deepest.max(beginnings(name).count());
        for beginning in beginnings(name) {
            are_shared.entry(beginning).and_modify(|shared| *shared = true).or_insert(false);
        }
    }
    let by_beginnings = |depth: usize| -> Vec<&[TopologyDomainAssignment]> {
        let is_shared = |beginning: &&str| are_shared.get(beginning).is_some_and(|shared| *shared);
        let same_pool = |a: &TopologyDomainAssignment, b: &TopologyDomainAssignment| {
            let [a, b] = [a, b].map(|domain| beginnings(host_of(domain, levels.len())).take(depth));
            a.filter(is_shared).last() == b.filter(is_shared).last()
        };
        domains.chunk_by(same_pool).flat_map(|run| run.chunks(MAX_SLICE)).collect()
    };
    let mut tries = (1..=deepest).rev().map(by_beginnings).filter(|slices| slices.len() <= MAX_SLICES);
    tries.next().unwrap_or_else(|| domains.chunks(MAX_SLICE).collect())
}

fn host_of(domain: &TopologyDomainAssignment, levels: usize) -> &str {
    &domain.values[levels - 1]
}

/// What a name begins with, up to each of its dashes but one at its end.
fn beginnings(name: &str) -> impl Iterator<Item = &str> {
    name.match_indices('-').map(|(dash, _)| &name[..=dash]).filter(|beginning| beginning.len() < name.len())
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
    let domain_count = i32::try_from(domains.len()).expect("a slice has at most MAX_SLICE domains");
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

/// v1beta2 → v1beta1. As Kueue does, only what is needed is looked at: `universal` comes before `individual`, and what lists have
/// beyond the levels or `domainCount` means nothing. One odd object must not keep a list of all from being read.
///
/// # Errors
/// When the lists of a slice are shorter than its `domainCount` or the levels, or there are too many domains or levels.
pub fn unpack(assignment: &TopologyAssignment) -> Result<v1beta1::TopologyAssignment, TopologyError> {
    let mut domains = Vec::new();
    if assignment.levels.len() > MAX_LEVELS {
        return Err(TopologyError::TooManyLevels);
    }
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
    if count == 0 {
        return Ok(());
    }
    if domains.len() + count > MAX_DOMAINS {
        return Err(TopologyError::TooManyDomains);
    }
    if slice.values_per_level.len() < levels {
        let place = format!("slices[{index}].valuesPerLevel");
        return Err(TopologyError::LevelCount { place, found: slice.values_per_level.len(), levels });
    }
    let values_per_level = &slice.values_per_level[..levels];
    check_slice(values_per_level, &slice.pod_counts, index, count)?;
    domains.extend((0..count).map(|domain| TopologyDomainAssignment {
        values: values_per_level.iter().map(|values| value_of(values, domain)).collect(),
        count: slice.pod_counts.universal.unwrap_or_else(|| slice.pod_counts.individual[domain]),
    }));
    Ok(())
}

fn check_slice(
    values_per_level: &[TopologyAssignmentSliceLevelValues],
    pod_counts: &TopologyAssignmentSlicePodCounts,
    index: usize,
    domains: usize,
) -> Result<(), TopologyError> {
    let entries = |field, found| match found < domains {
        true => Err(TopologyError::EntryCount { slice: index, field, found, domains }),
        false => Ok(()),
    };
    for values in values_per_level {
        match (&values.universal, &values.individual) {
            (Some(_), _) => {}
            (None, Some(individual)) => entries("valuesPerLevel[].individual.roots", individual.roots.len())?,
            (None, None) => return Err(TopologyError::Neither { slice: index, field: "valuesPerLevel[]" }),
        }
    }
    match (pod_counts.universal, pod_counts.individual.len()) {
        (Some(_), _) => Ok(()),
        (None, 0) => Err(TopologyError::Neither { slice: index, field: "podCounts" }),
        (None, found) => entries("podCounts.individual", found),
    }
}

/// The value of one domain. The slice was checked.
fn value_of(values: &TopologyAssignmentSliceLevelValues, domain: usize) -> String {
    let part = |text: &Option<String>| text.clone().unwrap_or_default();
    match (&values.universal, &values.individual) {
        (None, Some(individual)) => {
            part(&individual.prefix) + &individual.roots[domain] + &part(&individual.suffix)
        }
        (universal, _) => part(universal),
    }
}
