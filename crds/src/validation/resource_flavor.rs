//! `ResourceFlavor`.

use std::collections::BTreeSet;

use super::{
    ErrorKind, FieldError, Findings,
    metadata::{label_keys, labels, taint_effect, tolerations},
    syntax::is_label_value,
};
use crate::api::kueue::v1beta2::ResourceFlavor;

/// What is wrong with a ResourceFlavor: syntax of labels, taints and tolerations; a taint is known by its key and effect.
pub fn resource_flavor(flavor: &ResourceFlavor) -> Vec<FieldError> {
    let mut findings = Findings::default();
    let spec = &flavor.spec;
    labels(&spec.node_labels, "spec.nodeLabels", &mut findings);
    if spec.topology_name.is_some() && spec.node_labels.is_empty() {
        findings.add("spec.nodeLabels", ErrorKind::Required, "a flavor with a topology needs a node label");
    }
    let mut seen = BTreeSet::new();
    for (index, taint) in spec.node_taints.iter().enumerate() {
        let field = format!("spec.nodeTaints[{index}]");
        label_keys([&taint.key], &format!("{field}.key"), &mut findings);
        if !is_label_value(taint.value.as_deref().unwrap_or_default()) {
            findings.invalid(format!("{field}.value"), "is not a label value");
        }
        taint_effect(&taint.effect, &format!("{field}.effect"), &mut findings);
        if !seen.insert((&taint.key, &taint.effect)) {
            findings.add(
                field,
                ErrorKind::Duplicate,
                format!("{}:{} is listed twice", taint.key, taint.effect),
            );
        }
    }
    tolerations(&spec.tolerations, "spec.tolerations", &mut findings);
    findings.0
}
