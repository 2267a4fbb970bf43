use std::sync::OnceLock;

use regex::Regex;
use serde_json::Value;

use crate::error::FieldError;
use crate::object::{at, items, name, text};
use crate::resources::Resource;

/// Sum of the lengths of all annotations (`TotalAnnotationSizeLimitB`).
const MAX_ANNOTATIONS: usize = 256 * 1024;

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// Whether a string may be the value of a label.
pub(crate) fn is_label_value(value: &str) -> bool {
    static PATTERN: OnceLock<Option<Regex>> = OnceLock::new();
    let pattern = PATTERN.get_or_init(|| Regex::new("^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$").ok());
    value.len() <= 63 && pattern.as_ref().is_none_or(|p| p.is_match(value))
}

pub(super) fn is_dns_label(value: &str) -> bool {
    let edge = |c: Option<u8>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    let bytes = value.as_bytes();
    edge(bytes.first().copied())
        && edge(bytes.last().copied())
        && bytes.iter().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == b'-')
}

fn is_subdomain(value: &str) -> bool {
    value.len() <= 253 && value.split('.').all(is_dns_label)
}

/// Why a string is no qualified name (`[prefix/]name`), if so.
pub(super) fn qualified_name(value: &str) -> Option<String> {
    let (prefix, name) = match value.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, value),
    };
    if name.contains('/') {
        return Some(format!("a qualified name {QUALIFIED}"));
    }
    if let Some(prefix) = prefix {
        if prefix.is_empty() {
            return Some("prefix part must be non-empty".into());
        }
        if !is_subdomain(prefix) {
            return Some(format!("prefix part {SUBDOMAIN}"));
        }
    }
    if name.is_empty() {
        return Some("name part must be non-empty".into());
    }
    if name.len() > 63 {
        return Some("name part must be no more than 63 bytes".into());
    }
    (!is_label_value(name)).then(|| QUALIFIED.to_owned())
}

/// Kinds whose names may hold almost anything (`path.ValidatePathSegmentName`).
fn loose_name(resource: &Resource) -> bool {
    &*resource.id.group == "rbac.authorization.k8s.io"
}

fn label_name(resource: &Resource) -> bool {
    resource.id.is("", "namespaces") || resource.id.is("", "services")
}

pub(super) fn validate(resource: &Resource, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if old.is_none() {
        validate_name(resource, new, &mut errors);
    }
    let unchanged = |key: &str| old.is_some_and(|o| at(o, &["metadata", key]) == at(new, &["metadata", key]));
    if !unchanged("labels") {
        validate_labels(at(new, &["metadata", "labels"]), "metadata.labels", &mut errors);
    }
    if !unchanged("annotations") {
        validate_annotations(new, &mut errors);
    }
    if !unchanged("finalizers") {
        for finalizer in items(new, &["metadata", "finalizers"]) {
            if let Some(why) = qualified_name(finalizer.as_str().unwrap_or_default()) {
                errors.push(FieldError::invalid("metadata.finalizers", finalizer, why));
            }
        }
    }
    if !unchanged("ownerReferences") {
        validate_owners(new, &mut errors);
    }
    errors
}

fn validate_name(resource: &Resource, new: &Value, errors: &mut Vec<FieldError>) {
    let value = name(new);
    let why = if loose_name(resource) {
        (value.contains('/') || value.contains('%') || matches!(value, "." | ".."))
            .then_some("may not be '.' or '..' nor contain '/' or '%'")
    } else if label_name(resource) {
        if value.len() > 63 {
            Some("must be no more than 63 bytes")
        } else {
            (!is_dns_label(value)).then_some(LABEL)
        }
    } else if value.len() > 253 {
        Some("must be no more than 253 bytes")
    } else {
        (!is_subdomain(value)).then_some(SUBDOMAIN)
    };
    if let Some(why) = why {
        errors.push(FieldError::invalid("metadata.name", &value.into(), why));
    }
}

/// Checks a map of labels at `path`.
pub(super) fn validate_labels(labels: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for (key, value) in labels.as_object().into_iter().flatten() {
        if let Some(why) = qualified_name(key) {
            errors.push(FieldError::invalid(path, &key.as_str().into(), why));
        }
        let text = value.as_str().unwrap_or_default();
        if !is_label_value(text) {
            let why = if text.len() > 63 { "must be no more than 63 bytes" } else { LABEL_VALUE };
            errors.push(FieldError::invalid(path, value, why));
        }
    }
}

fn validate_annotations(new: &Value, errors: &mut Vec<FieldError>) {
    let mut size = 0;
    for (key, value) in at(new, &["metadata", "annotations"]).as_object().into_iter().flatten() {
        if let Some(why) = qualified_name(&key.to_lowercase()) {
            errors.push(FieldError::invalid("metadata.annotations", &key.as_str().into(), why));
        }
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > MAX_ANNOTATIONS {
        errors.push(FieldError::too_long("metadata.annotations", MAX_ANNOTATIONS));
    }
}

fn validate_owners(new: &Value, errors: &mut Vec<FieldError>) {
    let owners = items(new, &["metadata", "ownerReferences"]);
    for owner in owners {
        for field in ["apiVersion", "kind", "name", "uid"] {
            if text(owner, &[field]).is_empty() {
                let path = format!("metadata.ownerReferences.{field}");
                errors.push(FieldError::invalid(path, &"".into(), format!("{field} must not be empty")));
            }
        }
    }
    let controllers = owners.iter().filter(|o| at(o, &["controller"]) == &Value::Bool(true));
    if controllers.count() > 1 {
        errors.push(FieldError::invalid(
            "metadata.ownerReferences",
            &Value::Array(owners.to_vec()),
            "Only one reference can have Controller set to true",
        ));
    }
}
