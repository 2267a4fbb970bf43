use serde_json::{Value, json};

use super::pods::validate_spec;
use crate::error::FieldError;
use crate::object::{at, object_mut, text};

/// Fields of a Job that never change.
const IMMUTABLE: [&str; 8] = [
    "selector",
    "completionMode",
    "podFailurePolicy",
    "backoffLimitPerIndex",
    "managedBy",
    "successPolicy",
    "podReplacementPolicy",
    "manualSelector",
];

/// Checks a Job, and what an update changes of it.
pub(super) fn validate(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = at(new, &["spec"]);
    if old.is_some_and(|o| o.get("spec") == new.get("spec")) {
        return;
    }
    for field in
        ["parallelism", "completions", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished"]
    {
        let value = at(spec, &[field]);
        if value.as_i64().is_some_and(|n| n < 0) {
            let why = "must be greater than or equal to 0";
            errors.push(FieldError::invalid(format!("spec.{field}"), value, why));
        }
    }
    let uid = text(new, &["metadata", "uid"]);
    let own = ["spec", "selector", "matchLabels", "batch.kubernetes.io/controller-uid"];
    if old.is_none() && at(spec, &["manualSelector"]) != &json!(true) && text(new, &own) != uid {
        let why = "`selector` not auto-generated";
        errors.push(FieldError::invalid("spec.selector", at(spec, &["selector"]), why));
    }
    let mode = text(spec, &["completionMode"]);
    if !matches!(mode, "Indexed" | "NonIndexed") {
        let supported = ["NonIndexed", "Indexed"].map(str::to_owned);
        errors.push(FieldError::not_supported("spec.completionMode", &mode.into(), &supported));
    }
    if mode == "Indexed" && at(spec, &["completions"]).is_null() {
        errors.push(FieldError::required("spec.completions", "when completion mode is Indexed"));
    }
    match text(spec, &["template", "spec", "restartPolicy"]) {
        "Always" => {
            let path = "spec.template.spec.restartPolicy";
            errors.push(FieldError::required(path, "valid values: \"OnFailure\", \"Never\""));
        }
        _ => validate_spec(at(spec, &["template", "spec"]), "spec.template.spec", errors),
    }
    if let Some(old) = old {
        validate_change(old, new, errors);
    }
}

fn validate_change(old: &Value, new: &Value, errors: &mut Vec<FieldError>) {
    let (was, is) = (at(old, &["spec"]), at(new, &["spec"]));
    for field in IMMUTABLE {
        if was.get(field) != is.get(field) {
            errors.push(FieldError::invalid(format!("spec.{field}"), at(is, &[field]), "field is immutable"));
        }
    }
    if was.get("completions") != is.get("completions") {
        // An elastic indexed Job scales completions together with parallelism (KEP-3715).
        let elastic =
            text(is, &["completionMode"]) == "Indexed" && is.get("completions") == is.get("parallelism");
        if !elastic {
            errors.push(FieldError::invalid(
                "spec.completions",
                at(is, &["completions"]),
                "field is immutable",
            ));
        }
    }
    let suspended = at(was, &["suspend"]) == &json!(true);
    let started = !at(old, &["status", "startTime"]).is_null();
    let directives = suspended && !started;
    let template = |spec: &Value| {
        let mut template = at(spec, &["template"]).clone();
        if directives {
            forget_directives(&mut template);
        }
        template
    };
    if template(was) != template(is) {
        // A suspended Job's template is compared part by part, a running one's as a whole.
        let field: &[&str] = if directives { &["template", "spec"] } else { &["template"] };
        let path = format!("spec.{}", field.join("."));
        errors.push(FieldError::invalid(path, at(is, field), "field is immutable"));
    }
}

/// Removes what may change while a Job is suspended and was never started (KEP-2926).
fn forget_directives(template: &mut Value) {
    for key in ["annotations", "labels"] {
        if let Some(metadata) = template.get_mut("metadata") {
            object_mut(metadata).remove(key);
        }
    }
    if template.get("metadata").and_then(Value::as_object).is_some_and(serde_json::Map::is_empty) {
        object_mut(template).remove("metadata");
    }
    let Some(spec) = template.get_mut("spec") else { return };
    let spec = object_mut(spec);
    for key in ["nodeSelector", "tolerations", "schedulingGates"] {
        spec.remove(key);
    }
    if let Some(affinity) = spec.get_mut("affinity") {
        let affinity = object_mut(affinity);
        affinity.remove("nodeAffinity");
        if affinity.is_empty() {
            spec.remove("affinity");
        }
    }
}
