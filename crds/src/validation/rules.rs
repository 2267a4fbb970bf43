//! What the schemas say in CEL and no webhook of Kueue's repeats. A real API server has refused it before any webhook is asked;
//! one that evaluates no CEL has not. Like that server, they pass what stays as it was: an object from before a rule can still be
//! changed otherwise, and lose its finalizer.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Taint, Toleration};

use super::{FieldError, Findings, Path, workload_status::is_reserved};
use crate::api::kueue::v1beta2::{AdmissionCheckState, ResourceFlavor, Workload};

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
const OPERATORS: [&str; 2] = ["Equal", "Exists"];

/// Rules of a ResourceFlavor; `old` is absent for a new one.
pub fn resource_flavor(old: Option<&ResourceFlavor>, new: &ResourceFlavor) -> Vec<FieldError> {
    let mut findings = Findings::default();
    let (spec, at) = (&new.spec, Path::root("spec"));
    let old = old.map(|old| &old.spec);
    if old != Some(spec) && spec.topology_name.is_some() && spec.node_labels.is_empty() {
        findings.required(&at.field("nodeLabels"), "a flavor with a topology says which nodes it has");
    }
    if old.is_none_or(|old| old.node_taints != spec.node_taints) {
        taints(&spec.node_taints, &at.field("nodeTaints"), &mut findings);
    }
    if old.is_none_or(|old| old.tolerations != spec.tolerations) {
        tolerations(&spec.tolerations, &at.field("tolerations"), &mut findings);
    }
    findings.into_errors()
}

/// Rules of a Workload; `old` is absent for a new one.
pub fn workload(old: Option<&Workload>, new: &Workload) -> Vec<FieldError> {
    let mut findings = Findings::default();
    if let Some(old) = old.filter(|old| is_reserved(old) && is_reserved(new))
        && old.spec.queue_name != new.spec.queue_name
    {
        let queue = new.spec.queue_name.as_deref().unwrap_or_default();
        findings.invalid(&Path::root("spec.queueName"), queue, "stays what it was while quota is reserved");
    }
    let before: BTreeMap<&str, &AdmissionCheckState> =
        old.into_iter().flat_map(checks).map(|check| (check.name.as_str(), check)).collect();
    let list = Path::root("status.admissionChecks");
    for (index, check) in checks(new).enumerate() {
        let before = before.get(check.name.as_str());
        if before.is_some_and(|before| before.pod_set_updates == check.pod_set_updates) {
            continue;
        }
        let check_at = list.index(index);
        let updates = check_at.field("podSetUpdates");
        for (index, update) in check.pod_set_updates.iter().enumerate() {
            tolerations(&update.tolerations, &updates.index(index).field("tolerations"), &mut findings);
        }
    }
    findings.into_errors()
}

fn checks(workload: &Workload) -> impl Iterator<Item = &AdmissionCheckState> {
    workload.status.iter().flat_map(|status| &status.admission_checks)
}

fn taints(taints: &[Taint], at: &Path<'_>, findings: &mut Findings) {
    for (index, taint) in taints.iter().enumerate() {
        if !EFFECTS.contains(&taint.effect.as_str()) {
            findings.not_supported(&at.index(index).field("effect"), taint.effect.as_str(), EFFECTS);
        }
    }
}

/// To CEL a field that is there and empty is there.
fn tolerations(tolerations: &[Toleration], at: &Path<'_>, findings: &mut Findings) {
    for (index, toleration) in tolerations.iter().enumerate() {
        let at = at.index(index);
        let (operator, effect) = (toleration.operator.as_deref(), toleration.effect.as_deref());
        let (at_operator, at_effect) = (at.field("operator"), at.field("effect"));
        if toleration.key.is_none() && operator != Some("Exists") {
            findings.invalid(
                &at_operator,
                operator.unwrap_or_default(),
                "must be Exists, for there is no key",
            );
        }
        if operator == Some("Exists") && toleration.value.is_some() {
            findings.invalid(&at_operator, "Exists", "takes no value");
        }
        if let Some(operator) = operator.filter(|operator| !OPERATORS.contains(operator)) {
            findings.not_supported(&at_operator, operator, OPERATORS);
        }
        if toleration.toleration_seconds.is_some() && effect != Some("NoExecute") {
            findings.invalid(
                &at_effect,
                effect.unwrap_or_default(),
                "must be NoExecute, for tolerationSeconds",
            );
        }
        if let Some(effect) = effect.filter(|effect| !EFFECTS.contains(effect)) {
            findings.not_supported(&at_effect, effect, EFFECTS);
        }
    }
}
