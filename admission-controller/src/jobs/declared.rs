//! The pods of a kind that is declared in the configuration.

use serde_json::Value;

use super::read::{MAX_POD_SETS, count, product};
use super::table::{DeclaredSet, SetName};
use super::{JobObject, JobPodSet};

/// Where the pod sets of a declaration begin: once, or in each entry of its list.
fn entries(set: &DeclaredSet, object: &JobObject) -> Vec<String> {
    match set.each {
        None => vec![String::new()],
        Some(list) => {
            (0..object.length(list).min(MAX_POD_SETS + 1)).map(|index| format!("{list}/{index}")).collect()
        }
    }
}

/// Where a declaration has pod templates.
pub(super) fn places(set: &DeclaredSet, object: &JobObject) -> Vec<String> {
    entries(set, object).into_iter().map(|entry| format!("{entry}{}", set.template)).collect()
}

/// The pod sets of all declarations, in order.
pub(super) fn pod_sets(sets: &[DeclaredSet], object: &JobObject) -> Result<Vec<JobPodSet>, String> {
    let mut found = Vec::new();
    for set in sets {
        for entry in entries(set, object) {
            let template = format!("{entry}{}", set.template);
            if set.each.is_none() && !object.at(&template).is_some_and(Value::is_object) {
                continue;
            }
            let mut pods = 1;
            for number in set.count {
                let at = format!("{entry}{number}");
                pods = product(pods, count(object, &at)?.unwrap_or(1), &at)?;
            }
            let name = match set.name {
                SetName::Is(name) => name.to_owned(),
                SetName::At(at) => object.text(&format!("{entry}{at}")).to_lowercase(),
            };
            found.push(JobPodSet { name, count: pods, template, ..JobPodSet::default() });
        }
    }
    Ok(found)
}
