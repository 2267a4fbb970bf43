//! Quotas of ClusterQueues and Cohorts.

use std::collections::BTreeSet;

use model::{Quantity, ResourceName};

use super::{ErrorKind, Findings, syntax::is_qualified_name};
use crate::api::{
    self,
    kueue::v1beta2::{FairSharing, ResourceGroup, ResourceQuota},
};

/// Flavors of all groups at most. The three bounds are Kueue's (`pkg/webhooks/clusterqueue_webhook.go`); they bound what one
/// decision has to look at.
const MAX_FLAVORS: usize = 256;
/// Resources of all groups at most.
const MAX_RESOURCES: usize = 256;
/// Pairs of flavor and resource in a group at most.
const MAX_PAIRS: usize = 512;
/// A weight between nothing and this cannot be told from nothing.
const LEAST_WEIGHT_NANO: &str = "1n";

/// Whose quotas: the rules on limits differ.
#[derive(Clone, Copy)]
pub(super) struct Holder {
    /// Whether there is somebody to borrow from and lend to.
    pub has_parent: bool,
    /// "cohort" or "parent": what it would need.
    pub parent: &'static str,
    /// Whether it cannot lend more than it has.
    pub lends_own_only: bool,
}

pub(super) fn resource_groups(groups: &[ResourceGroup], holder: Holder, findings: &mut Findings) {
    let field = "spec.resourceGroups";
    let flavors = groups.iter().map(|group| group.flavors.len()).sum::<usize>();
    let resources = groups.iter().map(|group| group.covered_resources.len()).sum::<usize>();
    if flavors > MAX_FLAVORS {
        findings.add(
            field,
            ErrorKind::TooMany,
            format!("{flavors} flavors, at most {MAX_FLAVORS} are possible"),
        );
    }
    if resources > MAX_RESOURCES {
        findings.add(
            field,
            ErrorKind::TooMany,
            format!("{resources} resources, at most {MAX_RESOURCES} are possible"),
        );
    }
    let mut seen = Seen::default();
    for (index, group) in groups.iter().enumerate() {
        let field = format!("{field}[{index}]");
        let pairs = group.flavors.len() * group.covered_resources.len();
        if pairs > MAX_PAIRS {
            let detail = format!("{pairs} pairs of flavor and resource, at most {MAX_PAIRS} are possible");
            findings.add(&field, ErrorKind::TooMany, detail);
        }
        covered_resources(group, &field, &mut seen, findings);
        flavors_of(group, &field, &mut seen, holder, findings);
    }
}

/// What earlier groups had.
#[derive(Default)]
struct Seen<'a> {
    resources: BTreeSet<&'a str>,
    flavors: BTreeSet<&'a str>,
}

fn covered_resources<'a>(
    group: &'a ResourceGroup,
    field: &str,
    seen: &mut Seen<'a>,
    findings: &mut Findings,
) {
    for (index, resource) in group.covered_resources.iter().enumerate() {
        let field = format!("{field}.coveredResources[{index}]");
        if !is_qualified_name(resource) {
            findings
                .invalid(&field, format!("{resource:?} is not a resource, such as cpu or example.com/gpu"));
        }
        if !seen.resources.insert(resource) {
            findings.add(&field, ErrorKind::Duplicate, format!("{resource} is covered twice"));
        }
    }
}

fn flavors_of<'a>(
    group: &'a ResourceGroup,
    field: &str,
    seen: &mut Seen<'a>,
    holder: Holder,
    findings: &mut Findings,
) {
    for (index, flavor) in group.flavors.iter().enumerate() {
        let field = format!("{field}.flavors[{index}]");
        if !seen.flavors.insert(&flavor.name) {
            let detail = format!("{} is listed twice", flavor.name);
            findings.add(format!("{field}.name"), ErrorKind::Duplicate, detail);
        }
        for (index, quota) in flavor.resources.iter().enumerate() {
            let field = format!("{field}.resources[{index}]");
            if let Some(covered) = group.covered_resources.get(index)
                && *covered != quota.name
            {
                findings
                    .invalid(format!("{field}.name"), format!("is not {covered}, as in coveredResources"));
            }
            limits(quota, &field, holder, findings);
        }
    }
}

fn limits(quota: &ResourceQuota, field: &str, holder: Holder, findings: &mut Findings) {
    let resource = ResourceName::from(quota.name.as_str());
    let counted = |quantity: &api::Quantity, field: &str, findings: &mut Findings| {
        let amount = amount(quantity, field.to_owned(), findings)?;
        if resource.amount(&amount).is_none() {
            findings.invalid(field, format!("{} is more than 64 bits can count", quantity.0));
        }
        Some(amount)
    };
    let nominal = counted(&quota.nominal_quota, &format!("{field}.nominalQuota"), findings);
    for (name, limit) in [("borrowingLimit", &quota.borrowing_limit), ("lendingLimit", &quota.lending_limit)]
    {
        let Some(limit) = limit else { continue };
        let field = format!("{field}.{name}");
        let limit = counted(limit, &field, findings);
        if !holder.has_parent {
            findings.invalid(
                &field,
                format!("needs a {} to share with; set one, or remove the limit", holder.parent),
            );
        }
        if name == "lendingLimit" && holder.lends_own_only && limit > nominal {
            let (Some(limit), Some(nominal)) = (limit, nominal) else { continue };
            findings.invalid(
                &field,
                format!(
                    "{limit} is more than nominalQuota, {nominal}; no more than what it owns can be lent"
                ),
            );
        }
    }
}

/// The amount, if it is one; what is wrong with it otherwise.
fn amount(quantity: &api::Quantity, field: String, findings: &mut Findings) -> Option<Quantity> {
    match quantity.0.parse::<Quantity>() {
        Ok(amount) if amount.is_negative() => findings.invalid(field, format!("{} is negative", quantity.0)),
        Ok(amount) => return Some(amount),
        Err(error) => findings.invalid(field, format!("{:?} is not a quantity: {error}", quantity.0)),
    }
    None
}

pub(super) fn fair_sharing(fair_sharing: Option<&FairSharing>, findings: &mut Findings) {
    let Some(weight) = fair_sharing.and_then(|f| f.weight.as_ref()) else { return };
    let field = "spec.fairSharing.weight";
    let Some(amount) = amount(weight, field.to_owned(), findings) else { return };
    let least: Quantity = LEAST_WEIGHT_NANO.parse().expect("a constant quantity");
    if !amount.is_zero() && amount <= least {
        findings
            .invalid(field, format!("{} is too little: use 0, or more than {LEAST_WEIGHT_NANO}", weight.0));
    }
}
