//! `ClusterQueue`.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    FieldError, Findings, Gates, Path,
    metadata::selector,
    quota::{Holder, fair_sharing, resource_groups, totals},
};
use crate::api::kueue::v1beta2::{
    AdmissionCheckStrategyRule, BorrowWithinCohortPolicy, ClusterQueue, ClusterQueueSpec, FungibilityPolicy,
    MigrationMode, QueueingStrategy, ReclaimWithinCohort,
};

/// Flavors a queue with concurrent admission may have: each is one more copy of every workload.
const MAX_CONCURRENT_FLAVORS: usize = 16;

/// What is wrong with a new ClusterQueue.
pub fn cluster_queue(queue: &ClusterQueue, gates: Gates) -> Vec<FieldError> {
    let mut findings = Findings::default();
    let at = Path::root("spec");
    spec(&queue.spec, gates, &at, &mut findings);
    on_flavors(&queue.spec, &BTreeMap::new(), &at, &mut findings);
    findings.into_errors()
}

/// What is wrong with a change of a ClusterQueue.
///
/// Checks on flavors the queue does not have are tolerated where they were before, so that queues from a time without the rule can
/// be changed otherwise; unless a gate says no.
pub fn cluster_queue_update(old: &ClusterQueue, new: &ClusterQueue, gates: Gates) -> Vec<FieldError> {
    let mut findings = Findings::default();
    let at = Path::root("spec");
    spec(&new.spec, gates, &at, &mut findings);
    let tolerates = !gates.reject_invalid_on_flavors && flavors_of(&old.spec) == flavors_of(&new.spec);
    let before = match tolerates {
        true => rules_of(&old.spec).iter().map(|rule| (rule.name.as_str(), set_of(rule))).collect(),
        false => BTreeMap::new(),
    };
    on_flavors(&new.spec, &before, &at, &mut findings);
    if old.spec.concurrent_admission_policy != new.spec.concurrent_admission_policy {
        let at = at.field("concurrentAdmissionPolicy");
        findings.invalid_whole(&at, "stays as it was when the queue was created");
    }
    findings.into_errors()
}

fn spec(spec: &ClusterQueueSpec, gates: Gates, at: &Path<'_>, findings: &mut Findings) {
    let has_parent = spec.cohort_name.as_ref().is_some_and(|name| !name.is_empty());
    let holder = Holder { has_parent, parent: "cohortName", lends_own_only: true };
    let groups = at.field("resourceGroups");
    resource_groups(&spec.resource_groups, holder, &groups, findings);
    totals(&spec.resource_groups, &groups, findings);
    if let Some(namespaces) = &spec.namespace_selector {
        selector(namespaces, &at.field("namespaceSelector"), findings);
    }
    preemption(spec, at, findings);
    fungibility(spec, at, findings);
    fair_sharing(spec.fair_sharing.as_ref(), at, findings);
    if gates.concurrent_admission {
        concurrent_admission(spec, at, findings);
    }
}

fn preemption(spec: &ClusterQueueSpec, at: &Path<'_>, findings: &mut Findings) {
    let Some(preemption) = &spec.preemption else { return };
    if preemption.reclaim_within_cohort == Some(ReclaimWithinCohort::Never)
        && let Some(borrow) = preemption.borrow_within_cohort
        && borrow.policy != Some(BorrowWithinCohortPolicy::Never)
    {
        let detail = "borrowWithinCohort needs reclaimWithinCohort to be other than Never";
        findings.invalid_whole(&at.field("preemption"), detail);
    }
}

fn fungibility(spec: &ClusterQueueSpec, at: &Path<'_>, findings: &mut Findings) {
    if let Some(fungibility) = &spec.flavor_fungibility
        && let Some(preference) = fungibility.preference
        && [fungibility.when_can_borrow, fungibility.when_can_preempt]
            != [Some(FungibilityPolicy::TryNextFlavor); 2]
    {
        let detail = "needs whenCanBorrow and whenCanPreempt to be TryNextFlavor";
        findings.invalid(&at.field("flavorFungibility.preference"), format!("{preference:?}"), detail);
    }
}

fn concurrent_admission(spec: &ClusterQueueSpec, at: &Path<'_>, findings: &mut Findings) {
    let Some(policy) = &spec.concurrent_admission_policy else { return };
    if spec.queueing_strategy == Some(QueueingStrategy::StrictFifo) {
        let detail = "does not go with concurrentAdmissionPolicy";
        findings.invalid(&at.field("queueingStrategy"), "StrictFIFO", detail);
    }
    match spec.resource_groups.as_slice() {
        [group] if group.flavors.len() > MAX_CONCURRENT_FLAVORS => findings.invalid(
            &at.field("resourceGroups[0].flavors"),
            group.flavors.len(),
            format!("at most {MAX_CONCURRENT_FLAVORS} flavors go with concurrentAdmissionPolicy"),
        ),
        [_] => {}
        groups => findings.invalid(
            &at.field("resourceGroups"),
            groups.len(),
            "one group, no more and no fewer, goes with concurrentAdmissionPolicy",
        ),
    }
    let Some(constraints) = &policy.migration.constraints else { return };
    let at = at.field("concurrentAdmissionPolicy.migration.constraints");
    if policy.migration.mode.is_some_and(|mode| mode != MigrationMode::TryPreferredFlavors) {
        findings.forbidden(&at, "needs mode TryPreferredFlavors");
    } else if let Some(flavor) = &constraints.last_acceptable_flavor_name
        && !flavors_of(spec).contains(flavor.as_str())
    {
        let detail = "is not a flavor of this queue";
        findings.invalid(&at.field("lastAcceptableFlavorName"), flavor.as_str(), detail);
    }
}

/// Checks name flavors of the queue. `before`: the flavors of each check that are let pass, right or wrong.
fn on_flavors(
    spec: &ClusterQueueSpec,
    before: &BTreeMap<&str, BTreeSet<&str>>,
    at: &Path<'_>,
    findings: &mut Findings,
) {
    let flavors = flavors_of(spec);
    let checks = at.field("admissionChecksStrategy.admissionChecks");
    for (index, rule) in rules_of(spec).iter().enumerate() {
        if before.get(rule.name.as_str()).is_some_and(|before| *before == set_of(rule)) {
            continue;
        }
        let check = checks.index(index);
        let list = check.field("onFlavors");
        for (index, flavor) in rule.on_flavors.iter().enumerate() {
            if !flavors.contains(flavor.as_str()) {
                findings.not_supported(&list.index(index), flavor.as_str(), flavors.iter().copied());
            }
        }
    }
}

fn set_of(rule: &AdmissionCheckStrategyRule) -> BTreeSet<&str> {
    rule.on_flavors.iter().map(String::as_str).collect()
}

fn flavors_of(spec: &ClusterQueueSpec) -> BTreeSet<&str> {
    spec.resource_groups.iter().flat_map(|group| &group.flavors).map(|flavor| flavor.name.as_str()).collect()
}

fn rules_of(spec: &ClusterQueueSpec) -> &[AdmissionCheckStrategyRule] {
    spec.admission_checks_strategy.as_ref().map_or(&[], |strategy| &strategy.admission_checks)
}
