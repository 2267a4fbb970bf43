//! Labels, annotations, selectors and tolerations.

use std::collections::BTreeMap;

use k8s_openapi::{api::core::v1::Toleration, apimachinery::pkg::apis::meta::v1::LabelSelector};

use super::{
    FieldError, Findings, Path,
    syntax::{is_label_value, is_qualified_name},
};

const KEY: &str = "must be a name with an optional DNS prefix, such as example.com/name";
const VALUE: &str =
    "must be empty or at most 63 letters, digits, '-', '_', '.', with a letter or digit at both ends";
/// Bytes of all annotations of an object at most (`apimachinery`'s `TotalAnnotationSizeLimitB`).
const MAX_ANNOTATIONS: usize = 256 << 10;

pub(super) fn label_key(key: &str, at: &Path<'_>, findings: &mut Findings) {
    if !is_qualified_name(key) {
        findings.invalid(at, key, KEY);
    }
}

pub(super) fn label_value(value: &str, at: &Path<'_>, findings: &mut Findings) {
    if !is_label_value(value) {
        findings.invalid(at, value, VALUE);
    }
}

/// Keys and values, both found at the map itself.
pub(super) fn labels<'a>(
    labels: impl IntoIterator<Item = (&'a str, &'a str)>,
    at: &Path<'_>,
    findings: &mut Findings,
) {
    for (key, value) in labels {
        label_key(key, at, findings);
        label_value(value, at, findings);
    }
}

/// Keys, in any case, and the size of all.
pub(super) fn annotations<'a>(
    annotations: impl IntoIterator<Item = (&'a str, &'a str)>,
    at: &Path<'_>,
    findings: &mut Findings,
) {
    let mut size = 0;
    for (key, value) in annotations {
        size += key.len() + value.len();
        if !is_qualified_name(&key.to_lowercase()) {
            findings.invalid(at, key, KEY);
        }
    }
    if size > MAX_ANNOTATIONS {
        findings.too_long(at, MAX_ANNOTATIONS);
    }
}

pub(super) fn texts(map: &BTreeMap<String, String>) -> impl Iterator<Item = (&str, &str)> {
    map.iter().map(|(key, value)| (key.as_str(), value.as_str()))
}

/// What is wrong with a selector that is no part of an object, at this path.
pub fn label_selector(written: &LabelSelector, at: &str) -> Vec<FieldError> {
    let mut findings = Findings::default();
    selector(written, &Path::root(at), &mut findings);
    findings.into_errors()
}

pub(super) fn selector(selector: &LabelSelector, at: &Path<'_>, findings: &mut Findings) {
    if let Some(match_labels) = &selector.match_labels {
        labels(texts(match_labels), &at.field("matchLabels"), findings);
    }
    let expressions = at.field("matchExpressions");
    for (index, expression) in selector.match_expressions.iter().flatten().enumerate() {
        let at = expressions.index(index);
        let list = at.field("values");
        let values = expression.values.as_deref().unwrap_or_default();
        match expression.operator.as_str() {
            "In" | "NotIn" if values.is_empty() => {
                findings.required(&list, "operators In and NotIn compare with values");
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                findings.forbidden(&list, "operators Exists and DoesNotExist look at the key alone");
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => {
                findings.invalid(&at.field("operator"), other, "must be In, NotIn, Exists or DoesNotExist");
            }
        }
        label_key(&expression.key, &at.field("key"), findings);
        for (index, value) in values.iter().enumerate() {
            label_value(value, &list.index(index), findings);
        }
    }
}

pub(super) fn tolerations(tolerations: &[Toleration], at: &Path<'_>, findings: &mut Findings) {
    for (index, toleration) in tolerations.iter().enumerate() {
        if let Some(key) = toleration.key.as_ref().filter(|key| !key.is_empty()) {
            label_key(key, &at.index(index).field("key"), findings);
        }
    }
}
