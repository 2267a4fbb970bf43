//! `ClusterQueue` and `Cohort`.

use std::collections::BTreeSet;

use super::{
    ErrorKind, FieldError, Findings, Gates,
    metadata::selector,
    quota::{Holder, fair_sharing, resource_groups},
};
use crate::api::kueue::v1beta2::{
    AdmissionCheckStrategyRule, BorrowWithinCohortPolicy, ClusterQueue, ClusterQueueSpec, Cohort,
    FungibilityPolicy, MigrationMode, QueueingStrategy, ReclaimWithinCohort,
};

/// Flavors a queue with concurrent admission may have: each is one more copy of every workload.
const MAX_CONCURRENT_FLAVORS: usize = 16;

/// What is wrong with a new ClusterQueue.
pub fn cluster_queue(queue: &ClusterQueue, gates: Gates) -> Vec<FieldError> {
    let mut findings = Findings::default();
    spec(&queue.spec, gates, &mut findings);
    on_flavors(&queue.spec, None, &mut findings);
    findings.0
}

/// What is wrong with a change of a ClusterQueue.
///
/// Checks on flavors the queue does not have are tolerated where they were before, so that queues from a time without the rule can
/// be changed otherwise; unless a gate says no.
pub fn cluster_queue_update(old: &ClusterQueue, new: &ClusterQueue, gates: Gates) -> Vec<FieldError> {
    let mut findings = Findings::default();
    spec(&new.spec, gates, &mut findings);
    on_flavors(&new.spec, (!gates.reject_invalid_on_flavors).then_some(&old.spec), &mut findings);
    if gates.concurrent_admission
        && old.spec.concurrent_admission_policy != new.spec.concurrent_admission_policy
    {
        findings.invalid("spec.concurrentAdmissionPolicy", "cannot be changed");
    }
    findings.0
}

/// What is wrong with a Cohort.
pub fn cohort(cohort: &Cohort) -> Vec<FieldError> {
    let mut findings = Findings::default();
    let spec = &cohort.spec;
    let has_parent = spec.parent_name.as_ref().is_some_and(|name| !name.is_empty());
    // A cohort lends what its members do not use, too: its own is no bound.
    let holder = Holder { has_parent, parent: "parent", lends_own_only: false };
    resource_groups(&spec.resource_groups, holder, &mut findings);
    fair_sharing(spec.fair_sharing.as_ref(), &mut findings);
    findings.0
}

fn spec(spec: &ClusterQueueSpec, gates: Gates, findings: &mut Findings) {
    let has_parent = spec.cohort_name.as_ref().is_some_and(|name| !name.is_empty());
    let holder = Holder { has_parent, parent: "cohort", lends_own_only: true };
    resource_groups(&spec.resource_groups, holder, findings);
    if let Some(namespaces) = &spec.namespace_selector {
        selector(namespaces, "spec.namespaceSelector", findings);
    }
    preemption(spec, findings);
    fair_sharing(spec.fair_sharing.as_ref(), findings);
    if gates.concurrent_admission {
        concurrent_admission(spec, findings);
    }
}

fn preemption(spec: &ClusterQueueSpec, findings: &mut Findings) {
    if let Some(preemption) = &spec.preemption {
        let reclaims = preemption.reclaim_within_cohort.unwrap_or_default() != ReclaimWithinCohort::Never;
        let policy = preemption.borrow_within_cohort.and_then(|b| b.policy).unwrap_or_default();
        if !reclaims && policy != BorrowWithinCohortPolicy::Never {
            findings.invalid(
                "spec.preemption",
                "borrowWithinCohort needs reclaimWithinCohort to be other than Never",
            );
        }
    }
    if let Some(fungibility) = &spec.flavor_fungibility
        && fungibility.preference.is_some()
        && [fungibility.when_can_borrow, fungibility.when_can_preempt]
            != [Some(FungibilityPolicy::TryNextFlavor); 2]
    {
        let detail = "needs whenCanBorrow and whenCanPreempt to be TryNextFlavor";
        findings.invalid("spec.flavorFungibility.preference", detail);
    }
}

fn concurrent_admission(spec: &ClusterQueueSpec, findings: &mut Findings) {
    let Some(policy) = &spec.concurrent_admission_policy else { return };
    if spec.queueing_strategy == Some(QueueingStrategy::StrictFifo) {
        findings.invalid("spec.queueingStrategy", "StrictFIFO does not go with concurrentAdmissionPolicy");
    }
    match spec.resource_groups.as_slice() {
        [group] if group.flavors.len() > MAX_CONCURRENT_FLAVORS => findings.invalid(
            "spec.resourceGroups[0].flavors",
            format!(
                "concurrentAdmissionPolicy allows {MAX_CONCURRENT_FLAVORS} flavors, not {}",
                group.flavors.len()
            ),
        ),
        [_] => {}
        groups => findings.invalid(
            "spec.resourceGroups",
            format!("concurrentAdmissionPolicy needs one group, not {}", groups.len()),
        ),
    }
    let migration = &policy.migration;
    if migration.constraints.is_some() && migration.mode != MigrationMode::TryPreferredFlavors {
        let field = "spec.concurrentAdmissionPolicy.migration.constraints";
        findings.invalid(field, "needs mode TryPreferredFlavors");
    }
}

/// Checks name flavors of the queue. `before`: what was wrong already is tolerated.
fn on_flavors(spec: &ClusterQueueSpec, before: Option<&ClusterQueueSpec>, findings: &mut Findings) {
    let flavors = flavors_of(spec);
    let tolerated: &[AdmissionCheckStrategyRule] = match before {
        Some(before) if flavors_of(before) == flavors => rules_of(before),
        _ => &[],
    };
    for (check, rule) in rules_of(spec).iter().enumerate() {
        if tolerated.contains(rule) {
            continue;
        }
        for (index, flavor) in rule.on_flavors.iter().enumerate() {
            if !flavors.contains(flavor.as_str()) {
                findings.add(
                    format!("spec.admissionChecksStrategy.admissionChecks[{check}].onFlavors[{index}]"),
                    ErrorKind::NotSupported,
                    format!("{flavor:?} is not a flavor of this queue"),
                );
            }
        }
    }
}

fn flavors_of(spec: &ClusterQueueSpec) -> BTreeSet<&str> {
    spec.resource_groups.iter().flat_map(|group| &group.flavors).map(|flavor| flavor.name.as_str()).collect()
}

fn rules_of(spec: &ClusterQueueSpec) -> &[AdmissionCheckStrategyRule] {
    spec.admission_checks_strategy.as_ref().map_or(&[], |strategy| &strategy.admission_checks)
}
