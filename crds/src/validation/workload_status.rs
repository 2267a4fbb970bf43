//! The status of a `Workload`.

use std::collections::{BTreeMap, BTreeSet};

use model::resources::capped;
use model::{Quantity, ResourceName};

use super::{
    Findings, Path,
    metadata::{annotations, labels, texts, tolerations},
};
use crate::{
    api::kueue::v1beta2::{AdmissionCheckState, PodSet, PodSetAssignment, Workload, WorkloadStatus},
    reasons,
};

/// Whether the Workload holds quota.
pub(super) fn is_reserved(workload: &Workload) -> bool {
    workload.status.as_ref().is_some_and(|status| {
        let reserved = reasons::workload::QUOTA_RESERVED;
        let found = status.conditions.iter().find(|one| one.type_ == reserved);
        found.is_some_and(|one| one.status == "True")
    })
}

/// Who holds quota says which. `was_so`: it did not say before either; so that it can be put right, or deleted.
pub(super) fn admission(
    status: &WorkloadStatus,
    names: &BTreeSet<&str>,
    was_so: bool,
    at: &Path<'_>,
    findings: &mut Findings,
) {
    match &status.admission {
        None if was_so => {}
        None => findings.required(at, "condition QuotaReserved is True: say what was reserved"),
        Some(admission) => {
            let list = at.field("podSetAssignments");
            for (index, assignment) in admission.pod_set_assignments.iter().enumerate() {
                self::assignment(assignment, names, &list.index(index), findings);
            }
        }
    }
}

/// Equal pods get equal parts. An amount that 64 bits cannot count is taken for the largest that they can, as in Kueue.
fn assignment(assignment: &PodSetAssignment, names: &BTreeSet<&str>, at: &Path<'_>, findings: &mut Findings) {
    if !names.contains(assignment.name.as_str()) {
        findings.not_found(&at.field("name"), assignment.name.as_str(), "must be a pod set");
    }
    let Some(count) = assignment.count.map(i64::from).filter(|count| *count > 0) else { return };
    let usage = at.field("resourceUsage");
    for (name, quantity) in &assignment.resource_usage {
        let resource = ResourceName::from(name.as_str());
        let read = quantity.0.parse::<Quantity>().ok();
        let amount = read
            .as_ref()
            .map(|quantity| resource.amount(quantity).unwrap_or_else(|| capped(quantity.is_negative())));
        if amount.is_none_or(|amount| amount % count != 0) {
            let detail = format!("must be a quantity that {count} pods can share equally");
            let written = read.map_or_else(|| quantity.0.clone(), |quantity| quantity.to_string());
            findings.invalid(&usage.key(name), written, detail);
        }
    }
}

/// Pods given back are pods there were. `before`: where one that is unchanged is tolerated, the status it is compared with: an elastic
/// job is resized first, and what was given back is brought in line with it afterwards.
pub(super) fn reclaimable(
    status: &WorkloadStatus,
    before: Option<&WorkloadStatus>,
    pod_sets: &[PodSet],
    at: &Path<'_>,
    findings: &mut Findings,
) {
    if status.reclaimable_pods.is_empty() {
        return;
    }
    let counts: BTreeMap<&str, i32> = pod_sets.iter().map(|set| (set.name.as_str(), set.count)).collect();
    let tolerated: BTreeSet<(&str, i32)> = before
        .iter()
        .flat_map(|status| &status.reclaimable_pods)
        .map(|given| (given.name.as_str(), given.count))
        .collect();
    for given in &status.reclaimable_pods {
        let at = at.key(&given.name);
        match counts.get(given.name.as_str()) {
            None => {
                findings.not_supported(&at.field("name"), given.name.as_str(), counts.keys().copied());
            }
            Some(count) if given.count > *count && !tolerated.contains(&(&given.name, given.count)) => {
                let detail = format!("must be at most {count}, the number of its pods");
                findings.invalid(&at.field("count"), given.count, detail);
            }
            Some(_) => {}
        }
    }
}

/// What admission checks add to the pods.
pub(super) fn check_updates(
    checks: &[AdmissionCheckState],
    names: &BTreeSet<&str>,
    at: &Path<'_>,
    findings: &mut Findings,
) {
    for (index, check) in checks.iter().enumerate() {
        let check_at = at.index(index);
        let updates = check_at.field("podSetUpdates");
        for (index, update) in check.pod_set_updates.iter().enumerate() {
            let at = updates.index(index);
            if !names.contains(update.name.as_str()) {
                findings.not_supported(&at.field("name"), update.name.as_str(), names.iter().copied());
            }
            tolerations(&update.tolerations, &at.field("tolerations"), findings);
            annotations(texts(&update.annotations), &at.field("annotations"), findings);
            labels(texts(&update.node_selector), &at.field("nodeSelector"), findings);
            labels(texts(&update.labels), &at.field("labels"), findings);
        }
    }
}
