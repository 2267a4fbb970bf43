//! What the schemas say in CEL and no webhook of Kueue's repeats. A real API server has refused it before any webhook is asked;
//! one that evaluates no CEL has not.

use k8s_openapi::api::core::v1::Toleration;

use super::{FieldError, Findings, Path, workload_status::is_reserved};
use crate::api::kueue::v1beta2::{ResourceFlavor, Workload};

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// Rules of a ResourceFlavor, new or changed.
pub fn resource_flavor(flavor: &ResourceFlavor) -> Vec<FieldError> {
    let mut findings = Findings::default();
    let (spec, at) = (&flavor.spec, Path::root("spec"));
    if spec.topology_name.is_some() && spec.node_labels.is_empty() {
        findings.required(&at.field("nodeLabels"), "a flavor with a topology says which nodes it has");
    }
    let taints = at.field("nodeTaints");
    for (index, taint) in spec.node_taints.iter().enumerate() {
        if !EFFECTS.contains(&taint.effect.as_str()) {
            findings.not_supported(&taints.index(index).field("effect"), taint.effect.as_str(), EFFECTS);
        }
    }
    tolerations(&spec.tolerations, &at.field("tolerations"), &mut findings);
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
    let checks = Path::root("status.admissionChecks");
    for (index, check) in new.status.iter().flat_map(|status| &status.admission_checks).enumerate() {
        let check_at = checks.index(index);
        let updates = check_at.field("podSetUpdates");
        for (index, update) in check.pod_set_updates.iter().enumerate() {
            tolerations(&update.tolerations, &updates.index(index).field("tolerations"), &mut findings);
        }
    }
    findings.into_errors()
}

fn tolerations(tolerations: &[Toleration], at: &Path<'_>, findings: &mut Findings) {
    let text = |text: &'_ Option<String>| text.clone().unwrap_or_default();
    for (index, toleration) in tolerations.iter().enumerate() {
        let at = at.index(index);
        let (operator, effect) = (text(&toleration.operator), text(&toleration.effect));
        let (at_operator, at_effect) = (at.field("operator"), at.field("effect"));
        if text(&toleration.key).is_empty() && operator != "Exists" {
            findings.invalid(&at_operator, operator.as_str(), "must be Exists, for there is no key");
        }
        if operator == "Exists" && !text(&toleration.value).is_empty() {
            findings.invalid(&at_operator, operator.as_str(), "takes no value");
        }
        if !["", "Equal", "Exists"].contains(&operator.as_str()) {
            findings.not_supported(&at_operator, operator, ["Equal", "Exists"]);
        }
        if toleration.toleration_seconds.is_some() && effect != "NoExecute" {
            findings.invalid(&at_effect, effect.as_str(), "must be NoExecute, for tolerationSeconds");
        }
        if !effect.is_empty() && !EFFECTS.contains(&effect.as_str()) {
            findings.not_supported(&at_effect, effect, EFFECTS);
        }
    }
}
