//! Labels, annotations, selectors, taints and tolerations.

use std::collections::BTreeMap;

use k8s_openapi::{api::core::v1::Toleration, apimachinery::pkg::apis::meta::v1::LabelSelector};

use super::{
    ErrorKind, Findings,
    syntax::{is_label_value, is_qualified_name},
};

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
const KEY: &str = "must be a name with an optional DNS prefix, such as example.com/name";
const VALUE: &str =
    "must be empty or at most 63 letters, digits, '-', '_', '.', with a letter or digit at both ends";

pub(super) fn label_keys<'a>(
    keys: impl IntoIterator<Item = &'a String>,
    field: &str,
    findings: &mut Findings,
) {
    for key in keys {
        if !is_qualified_name(key) {
            findings.invalid(field, format!("key {key:?} {KEY}"));
        }
    }
}

pub(super) fn labels(labels: &BTreeMap<String, String>, field: &str, findings: &mut Findings) {
    label_keys(labels.keys(), field, findings);
    for value in labels.values() {
        if !is_label_value(value) {
            findings.invalid(field, format!("value {value:?} {VALUE}"));
        }
    }
}

pub(super) fn selector(selector: &LabelSelector, field: &str, findings: &mut Findings) {
    if let Some(match_labels) = &selector.match_labels {
        labels(match_labels, &format!("{field}.matchLabels"), findings);
    }
    for (index, expression) in selector.match_expressions.iter().flatten().enumerate() {
        let field = format!("{field}.matchExpressions[{index}]");
        let values = expression.values.as_deref().unwrap_or_default();
        match expression.operator.as_str() {
            "In" | "NotIn" if values.is_empty() => {
                findings.add(format!("{field}.values"), ErrorKind::Required, "In and NotIn need values");
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                findings.add(
                    format!("{field}.values"),
                    ErrorKind::Forbidden,
                    "Exists and DoesNotExist take no values",
                );
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => findings.invalid(
                format!("{field}.operator"),
                format!("{other:?} is not In, NotIn, Exists or DoesNotExist"),
            ),
        }
        label_keys([&expression.key], &format!("{field}.key"), findings);
        for (index, value) in values.iter().enumerate() {
            if !is_label_value(value) {
                findings.invalid(format!("{field}.values[{index}]"), format!("{value:?} {VALUE}"));
            }
        }
    }
}

pub(super) fn taint_effect(effect: &str, field: &str, findings: &mut Findings) {
    if !EFFECTS.contains(&effect) {
        let detail = format!("{effect:?} is none of {}", EFFECTS.join(", "));
        findings.add(field, ErrorKind::NotSupported, detail);
    }
}

pub(super) fn tolerations(tolerations: &[Toleration], field: &str, findings: &mut Findings) {
    for (index, toleration) in tolerations.iter().enumerate() {
        let field = format!("{field}[{index}]");
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let (key, value) = (text(&toleration.key), text(&toleration.value));
        let (operator, effect) = (text(&toleration.operator), text(&toleration.effect));
        if key.is_empty() {
            if operator != "Exists" {
                findings
                    .invalid(format!("{field}.operator"), "a toleration without key needs operator Exists");
            }
        } else {
            label_keys([&key], &format!("{field}.key"), findings);
        }
        match operator.as_str() {
            "" | "Equal" if !is_label_value(&value) => {
                findings.invalid(format!("{field}.operator"), format!("value {value:?} {VALUE}"));
            }
            "Exists" if !value.is_empty() => {
                findings.invalid(format!("{field}.operator"), "operator Exists takes no value");
            }
            "" | "Equal" | "Exists" => {}
            _ => findings.add(
                format!("{field}.operator"),
                ErrorKind::NotSupported,
                format!("{operator:?} is none of Equal, Exists"),
            ),
        }
        if toleration.toleration_seconds.is_some() && effect != "NoExecute" {
            findings.invalid(format!("{field}.effect"), "tolerationSeconds needs effect NoExecute");
        }
        if !effect.is_empty() {
            taint_effect(&effect, &format!("{field}.effect"), findings);
        }
    }
}
