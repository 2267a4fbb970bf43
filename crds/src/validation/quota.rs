//! Quotas of ClusterQueues and Cohorts.

use std::collections::BTreeSet;

use model::Quantity;

use super::{Findings, Path, syntax::is_qualified_name};
use crate::api::{
    self,
    kueue::v1beta2::{FairSharing, FlavorQuotas, ResourceGroup, ResourceQuota},
};

/// Flavors of all groups of a ClusterQueue at most. The three bounds are Kueue's (`pkg/webhooks/clusterqueue_webhook.go`); they
/// bound what one decision has to look at.
const MAX_FLAVORS: usize = 256;
/// Resources of all groups at most.
const MAX_RESOURCES: usize = 256;
/// Quotas in a group at most.
const MAX_QUOTAS: usize = 512;
/// A weight between nothing and this cannot be told from nothing.
const LEAST_WEIGHT_NANO: &str = "1n";

/// Whose quotas: the rules on limits differ.
#[derive(Clone, Copy)]
pub(super) struct Holder {
    /// Whether there is somebody to borrow from and lend to.
    pub has_parent: bool,
    /// The field that would name somebody.
    pub parent: &'static str,
    /// Whether it cannot lend more than it has.
    pub lends_own_only: bool,
}

/// Bounds on a ClusterQueue as a whole.
pub(super) fn totals(groups: &[ResourceGroup], at: &Path<'_>, findings: &mut Findings) {
    let flavors: usize = groups.iter().map(|group| group.flavors.len()).sum();
    let resources: usize = groups.iter().map(|group| group.covered_resources.len()).sum();
    for (number, limit, what) in [(flavors, MAX_FLAVORS, "flavors"), (resources, MAX_RESOURCES, "resources")]
    {
        if number > limit {
            findings.invalid(at, number, format!("a queue has at most {limit} {what}"));
        }
    }
    for (index, group) in groups.iter().enumerate() {
        let quotas: usize = group.flavors.iter().map(|flavor| flavor.resources.len()).sum();
        if quotas > MAX_QUOTAS {
            findings.invalid(&at.index(index), quotas, format!("a group has at most {MAX_QUOTAS} quotas"));
        }
    }
}

pub(super) fn resource_groups(
    groups: &[ResourceGroup],
    holder: Holder,
    at: &Path<'_>,
    findings: &mut Findings,
) {
    let (mut resources, mut flavors) = (BTreeSet::new(), BTreeSet::new());
    for (index, group) in groups.iter().enumerate() {
        let at = at.index(index);
        let covered = at.field("coveredResources");
        for (index, resource) in group.covered_resources.iter().enumerate() {
            let at = covered.index(index);
            if !is_qualified_name(resource) {
                findings.invalid(
                    &at,
                    resource.as_str(),
                    "must be a resource, such as cpu or example.com/gpu",
                );
            }
            if !resources.insert(resource) {
                findings.duplicate(&at, resource.as_str(), "a resource is covered once");
            }
        }
        let list = at.field("flavors");
        for (index, flavor) in group.flavors.iter().enumerate() {
            let at = list.index(index);
            quotas(flavor, &group.covered_resources, holder, &at, findings);
            if !flavors.insert(&flavor.name) {
                findings.duplicate(&at.field("name"), flavor.name.as_str(), "a flavor is in one group");
            }
        }
    }
}

/// As many as there are covered resources; the schema says that there are no more.
fn quotas(flavor: &FlavorQuotas, covered: &[String], holder: Holder, at: &Path<'_>, findings: &mut Findings) {
    let list = at.field("resources");
    for (index, (quota, covered)) in flavor.resources.iter().zip(covered).enumerate() {
        let at = list.index(index);
        if *covered != quota.name {
            let detail = format!("must be {covered}, in the order of coveredResources");
            findings.invalid(&at.field("name"), quota.name.as_str(), detail);
        }
        limits(quota, holder, &at, findings);
    }
}

fn limits(quota: &ResourceQuota, holder: Holder, at: &Path<'_>, findings: &mut Findings) {
    // More than 64 bits can count is as good as without limit.
    let counted = |quantity: &api::Quantity, at: &Path<'_>, findings: &mut Findings| {
        let amount = amount(quantity, at, findings)?;
        if amount.is_negative() {
            findings.invalid(at, quantity.0.as_str(), "must be 0 or more");
        }
        Some(amount)
    };
    let nominal = counted(&quota.nominal_quota, &at.field("nominalQuota"), findings);
    for (name, limit) in [("borrowingLimit", &quota.borrowing_limit), ("lendingLimit", &quota.lending_limit)]
    {
        let Some(written) = limit else { continue };
        let at = at.field(name);
        let limit = counted(written, &at, findings);
        if !holder.has_parent {
            let detail =
                format!("must be absent where {} is, for there is nobody to share with", holder.parent);
            findings.invalid(&at, written.0.as_str(), detail);
        }
        if name == "lendingLimit"
            && holder.lends_own_only
            && let (Some(limit), Some(nominal)) = (limit, nominal)
            && limit > nominal
        {
            let detail = format!("must be at most nominalQuota, {nominal}: only what it owns can be lent");
            findings.invalid(&at, written.0.as_str(), detail);
        }
    }
}

fn amount(quantity: &api::Quantity, at: &Path<'_>, findings: &mut Findings) -> Option<Quantity> {
    let amount = quantity.0.parse::<Quantity>();
    if let Err(error) = &amount {
        findings.invalid(at, quantity.0.as_str(), format!("must be a quantity: {error}"));
    }
    amount.ok()
}

/// `at` is the spec.
pub(super) fn fair_sharing(fair_sharing: Option<&FairSharing>, at: &Path<'_>, findings: &mut Findings) {
    let Some(weight) = fair_sharing.and_then(|sharing| sharing.weight.as_ref()) else { return };
    let at = at.field("fairSharing");
    let Some(amount) = amount(weight, &at, findings) else { return };
    let least: Quantity = LEAST_WEIGHT_NANO.parse().expect("a constant quantity");
    if amount.is_negative() {
        findings.invalid(&at, weight.0.as_str(), "a weight must be 0 or more");
    } else if !amount.is_zero() && amount <= least {
        let detail = format!("a weight must be 0 or more than {LEAST_WEIGHT_NANO}");
        findings.invalid(&at, weight.0.as_str(), detail);
    }
}
