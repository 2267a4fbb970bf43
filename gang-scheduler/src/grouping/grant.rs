//! Whether a Workload's pods ask no more than it was granted.

use std::collections::BTreeMap;

use model::resources::{ResourceList, ResourceName};
use placement_engine::{Hold, PodUid};

use super::PodRecord;

/// What a pod set was granted.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Grant {
    pub(crate) pod_set: String,
    pub(crate) count: i64,
    /// So many of them start together: those that were given places, where some were, and no more than its Workload asks for since
    /// it shrank. What slices of a topology do not divide starts when others have ended.
    pub(crate) together: i64,
    /// For all its pods together, of the resources the quota covers.
    pub(crate) usage: ResourceList,
}

#[derive(Default)]
struct Sum {
    pods: i64,
    asked: ResourceList,
}

/// The pods that go beyond the grant, when they are counted in this order (those bound come first).
///
/// A pod that names no pod set of the Workload counts against the only one, or against all of them together.
pub(crate) fn exceeding(
    workload: &std::sync::Arc<str>,
    grants: &[Grant],
    pods: &[&PodRecord],
) -> BTreeMap<PodUid, Hold> {
    let total = total(grants);
    let mut sums: BTreeMap<Option<&str>, Sum> = BTreeMap::new();
    let mut holds = BTreeMap::new();
    for record in pods {
        let grant = match grants {
            [only] => Some(only),
            _ => record.pod_sets.iter().find_map(|name| grants.iter().find(|grant| grant.pod_set == *name)),
        };
        let sum = sums.entry(grant.map(|grant| grant.pod_set.as_str())).or_default();
        let hold = beyond(sum, grant.unwrap_or(&total), &record.info.requests);
        match hold {
            Some((resource, asked, granted)) if record.info.node.is_none() => {
                let hold = Hold::ExceedsGrant { workload: workload.clone(), resource, asked, granted };
                holds.insert(record.info.uid.clone(), hold);
            }
            _ => {
                sum.pods = sum.pods.saturating_add(1);
                for (resource, amount) in &record.info.requests {
                    let asked = sum.asked.entry(resource.clone()).or_insert(0);
                    *asked = asked.saturating_add(*amount);
                }
            }
        }
    }
    holds
}

fn total(grants: &[Grant]) -> Grant {
    let mut usage = ResourceList::new();
    for (resource, amount) in grants.iter().flat_map(|grant| &grant.usage) {
        let sum = usage.entry(resource.clone()).or_insert(0);
        *sum = sum.saturating_add(*amount);
    }
    let count = grants.iter().fold(0, |sum: i64, grant| sum.saturating_add(grant.count));
    Grant { pod_set: String::new(), count, together: count, usage }
}

/// The first thing of which one pod more would be too much: what, how much with it, how much was granted.
fn beyond(sum: &Sum, grant: &Grant, requests: &ResourceList) -> Option<(ResourceName, i64, i64)> {
    let pods = sum.pods.saturating_add(1);
    if pods > grant.count {
        return Some((ResourceName::from(ResourceName::PODS), pods, grant.count));
    }
    grant.usage.iter().find_map(|(resource, granted)| {
        let before = sum.asked.get(resource).copied().unwrap_or(0);
        let asked = match resource.as_str() {
            ResourceName::PODS => pods,
            _ => before.saturating_add(requests.get(resource).copied().unwrap_or(0)),
        };
        (asked > *granted).then(|| (resource.clone(), asked, *granted))
    })
}
