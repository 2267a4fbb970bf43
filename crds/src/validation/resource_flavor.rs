//! `ResourceFlavor`.

use std::collections::BTreeSet;

use serde_json::json;

use super::{
    FieldError, Findings, Path,
    metadata::{label_key, label_value, labels, texts, tolerations},
};
use crate::api::kueue::v1beta2::ResourceFlavor;

/// What is wrong with a ResourceFlavor: syntax of labels, taints and tolerations; a taint is known by its key and effect.
pub fn resource_flavor(flavor: &ResourceFlavor) -> Vec<FieldError> {
    let mut findings = Findings::default();
    let (spec, at) = (&flavor.spec, Path::root("spec"));
    labels(texts(&spec.node_labels), &at.field("nodeLabels"), &mut findings);
    let mut seen = BTreeSet::new();
    let taints = at.field("nodeTaints");
    for (index, taint) in spec.node_taints.iter().enumerate() {
        let at = taints.index(index);
        label_key(&taint.key, &at.field("key"), &mut findings);
        label_value(taint.value.as_deref().unwrap_or_default(), &at.field("value"), &mut findings);
        if !seen.insert((&taint.key, &taint.effect)) {
            findings.duplicate(&at, json!(taint), "a taint is known by its key and effect");
        }
    }
    tolerations(&spec.tolerations, &at.field("tolerations"), &mut findings);
    findings.into_errors()
}
