use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::metadata::{is_dns_label, qualified_name, validate_labels};
use crate::Part;
use crate::error::FieldError;
use crate::object::{at, items, object_mut, text};

/// Checks a pod; an update also against what may change.
pub(super) fn validate(new: &Value, old: Option<(&Value, Part)>, errors: &mut Vec<FieldError>) {
    let Some((old, part)) = old else {
        validate_spec(at(new, &["spec"]), "spec", errors);
        return;
    };
    if part == Part::Main && old.get("spec") != new.get("spec") {
        validate_spec(at(new, &["spec"]), "spec", errors);
        validate_change(at(old, &["spec"]), at(new, &["spec"]), errors);
    }
}

/// Checks a pod's spec, or a template's, at `path`.
pub(super) fn validate_spec(spec: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let containers = items(spec, &["containers"]);
    if containers.is_empty() {
        errors.push(FieldError::required(format!("{path}.containers"), ""));
    }
    let mut names = BTreeSet::new();
    for (list, all) in [("initContainers", items(spec, &["initContainers"])), ("containers", containers)] {
        for (i, container) in all.iter().enumerate() {
            validate_container(container, &format!("{path}.{list}[{i}]"), &mut names, errors);
        }
    }
    let policy = text(spec, &["restartPolicy"]);
    if !matches!(policy, "Always" | "OnFailure" | "Never") {
        let supported = ["Always", "OnFailure", "Never"].map(str::to_owned);
        errors.push(FieldError::not_supported(format!("{path}.restartPolicy"), &policy.into(), &supported));
    }
    validate_labels(at(spec, &["nodeSelector"]), &format!("{path}.nodeSelector"), errors);
    for (i, toleration) in items(spec, &["tolerations"]).iter().enumerate() {
        validate_toleration(toleration, &format!("{path}.tolerations[{i}]"), errors);
    }
    validate_gates(spec, path, errors);
    for (i, spread) in items(spec, &["topologySpreadConstraints"]).iter().enumerate() {
        let path = format!("{path}.topologySpreadConstraints[{i}]");
        if text(spread, &["topologyKey"]).is_empty() {
            errors.push(FieldError::required(format!("{path}.topologyKey"), "can not be empty"));
        }
        let skew = at(spread, &["maxSkew"]);
        if skew.as_i64().is_none_or(|s| s <= 0) {
            errors.push(FieldError::invalid(format!("{path}.maxSkew"), skew, "must be greater than zero"));
        }
    }
    validate_affinity(spec, path, errors);
    validate_seconds(spec, path, errors);
}

fn validate_seconds(spec: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let deadline = at(spec, &["activeDeadlineSeconds"]);
    if deadline.as_i64().is_some_and(|d| d < 1) {
        let why = "must be between 1 and 2147483647, inclusive";
        errors.push(FieldError::invalid(format!("{path}.activeDeadlineSeconds"), deadline, why));
    }
    let grace = at(spec, &["terminationGracePeriodSeconds"]);
    if grace.as_i64().is_some_and(|g| g < 0) {
        let why = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(format!("{path}.terminationGracePeriodSeconds"), grace, why));
    }
}

fn validate_container(
    container: &Value,
    path: &str,
    names: &mut BTreeSet<String>,
    errors: &mut Vec<FieldError>,
) {
    let name = text(container, &["name"]);
    if name.is_empty() {
        errors.push(FieldError::required(format!("{path}.name"), ""));
    } else if !is_dns_label(name) || name.len() > 63 {
        let why = "a lowercase RFC 1123 label of at most 63 characters is needed";
        errors.push(FieldError::invalid(format!("{path}.name"), &name.into(), why));
    } else if !names.insert(name.to_owned()) {
        errors.push(FieldError::duplicate(format!("{path}.name"), &name.into()));
    }
    if text(container, &["image"]).is_empty() {
        errors.push(FieldError::required(format!("{path}.image"), ""));
    }
    super::resources::validate(at(container, &["resources"]), &format!("{path}.resources"), errors);
}

fn validate_toleration(toleration: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let (key, operator) = (text(toleration, &["key"]), text(toleration, &["operator"]));
    if let Some(why) = (!key.is_empty()).then(|| qualified_name(key)).flatten() {
        errors.push(FieldError::invalid(format!("{path}.key"), &key.into(), why));
    }
    match operator {
        "Exists" if !text(toleration, &["value"]).is_empty() => {
            let why = "value must be empty when `operator` is 'Exists'";
            errors.push(FieldError::invalid(format!("{path}.operator"), toleration, why));
        }
        "" | "Exists" | "Equal" | "Lt" | "Gt" => {}
        other => {
            let supported = ["Equal", "Exists"].map(str::to_owned);
            errors.push(FieldError::not_supported(format!("{path}.operator"), &other.into(), &supported));
        }
    }
    if key.is_empty() && operator != "Exists" {
        let why =
            "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        errors.push(FieldError::invalid(format!("{path}.operator"), &operator.into(), why));
    }
    let effect = text(toleration, &["effect"]);
    if !matches!(effect, "" | "NoSchedule" | "PreferNoSchedule" | "NoExecute") {
        let supported = ["NoSchedule", "PreferNoSchedule", "NoExecute"].map(str::to_owned);
        errors.push(FieldError::not_supported(format!("{path}.effect"), &effect.into(), &supported));
    }
}

fn validate_gates(spec: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let gates = items(spec, &["schedulingGates"]);
    let mut seen = BTreeSet::new();
    for (i, gate) in gates.iter().enumerate() {
        let name = text(gate, &["name"]);
        let path = format!("{path}.schedulingGates[{i}]");
        if let Some(why) = qualified_name(name) {
            errors.push(FieldError::invalid(&path, &name.into(), why));
        }
        if !seen.insert(name) {
            errors.push(FieldError::duplicate(path, &name.into()));
        }
    }
    if !gates.is_empty() && !text(spec, &["nodeName"]).is_empty() {
        let why = "cannot be set until all schedulingGates have been cleared";
        errors.push(FieldError::forbidden(format!("{path}.nodeName"), why));
    }
}

fn validate_affinity(spec: &Value, path: &str, errors: &mut Vec<FieldError>) {
    const REQUIRED: &[&str] = &["affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"];
    let required = at(spec, REQUIRED);
    if required.is_null() {
        return;
    }
    let path = format!("{path}.{}", REQUIRED.join("."));
    let terms = items(required, &["nodeSelectorTerms"]);
    if terms.is_empty() {
        let why = "must have at least one node selector term";
        errors.push(FieldError::required(format!("{path}.nodeSelectorTerms"), why));
    }
    for (i, term) in terms.iter().enumerate() {
        for (j, expression) in items(term, &["matchExpressions"]).iter().enumerate() {
            let path = format!("{path}.nodeSelectorTerms[{i}].matchExpressions[{j}]");
            validate_expression(expression, &path, errors);
        }
    }
}

fn validate_expression(expression: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let count = items(expression, &["values"]).len();
    match text(expression, &["operator"]) {
        "In" | "NotIn" if count == 0 => {
            let why = "must be specified when `operator` is 'In' or 'NotIn'";
            errors.push(FieldError::required(format!("{path}.values"), why));
        }
        "Exists" | "DoesNotExist" if count > 0 => {
            let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(FieldError::forbidden(format!("{path}.values"), why));
        }
        "Gt" | "Lt" if count != 1 => {
            let why = "must be specified single value when `operator` is 'Lt' or 'Gt'";
            errors.push(FieldError::required(format!("{path}.values"), why));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        other => {
            let why = "not a valid selector operator";
            errors.push(FieldError::invalid(format!("{path}.operator"), &other.into(), why));
        }
    }
    if let Some(why) = qualified_name(text(expression, &["key"])) {
        errors.push(FieldError::invalid(format!("{path}.key"), at(expression, &["key"]), why));
    }
}

/// What may change in a pod: images, the deadline downwards, more tolerations, fewer gates, and while gated, a narrower
/// node selector and affinity (KEP-3521, KEP-3838).
fn validate_change(old: &Value, new: &Value, errors: &mut Vec<FieldError>) {
    let before = errors.len();
    if let Some(limit) = at(old, &["activeDeadlineSeconds"]).as_i64() {
        let deadline = at(new, &["activeDeadlineSeconds"]);
        if deadline.as_i64().is_none_or(|d| d > limit) {
            let why = "must be less than or equal to previous value";
            errors.push(FieldError::invalid("spec.activeDeadlineSeconds", deadline, why));
        }
    }
    let gates = items(old, &["schedulingGates"]);
    for (i, gate) in items(new, &["schedulingGates"]).iter().enumerate() {
        if !gates.contains(gate) {
            let why = format!(
                "only deletion is allowed, but found new scheduling gate '{}'",
                text(gate, &["name"])
            );
            errors.push(FieldError::forbidden(format!("spec.schedulingGates[{i}].name"), why));
        }
    }
    let without_seconds = |toleration: &Value| {
        let mut kept = toleration.clone();
        object_mut(&mut kept).remove("tolerationSeconds");
        kept
    };
    let kept: Vec<Value> = items(new, &["tolerations"]).iter().map(without_seconds).collect();
    if items(old, &["tolerations"]).iter().any(|t| !kept.contains(&without_seconds(t))) {
        let why = "existing toleration can not be modified except its tolerationSeconds";
        errors.push(FieldError::forbidden("spec.tolerations", why));
    }
    let gated = !gates.is_empty();
    if gated {
        validate_narrowing(old, new, errors);
    }
    if errors.len() > before {
        return;
    }
    if frozen(old, gated) != frozen(new, gated) {
        let why = "pod updates may not change fields other than `spec.containers[*].image`, \
                   `spec.initContainers[*].image`, `spec.activeDeadlineSeconds`, `spec.tolerations` (only additions to \
                   existing tolerations), `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was \
                   previously negative)";
        errors.push(FieldError::forbidden("spec", why));
    }
}

fn validate_narrowing(old: &Value, new: &Value, errors: &mut Vec<FieldError>) {
    let labels = at(new, &["nodeSelector"]);
    let was = at(old, &["nodeSelector"]).as_object();
    if was.into_iter().flatten().any(|(key, value)| labels.get(key) != Some(value)) {
        let why = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        errors.push(FieldError::invalid("spec.nodeSelector", labels, why));
    }
    const TERMS: &[&str] =
        &["affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"];
    let (was, is) = (items(old, TERMS), items(new, TERMS));
    let contains = |new: &Value, old: &Value, key: &str| {
        let all = items(new, &[key]);
        items(old, &[key]).iter().all(|e| all.contains(e))
    };
    // Terms are alternatives: they may neither be added nor removed once there are any, only narrowed.
    let narrowed = was.len() == is.len()
        && was
            .iter()
            .zip(is)
            .all(|(o, n)| contains(n, o, "matchExpressions") && contains(n, o, "matchFields"));
    if !was.is_empty() && !narrowed {
        let why = "only additions are allowed (no mutations or deletions)";
        errors.push(FieldError::invalid(
            format!("spec.{}", TERMS.join(".")),
            &Value::Array(is.to_vec()),
            why,
        ));
    }
}

/// The spec without what may change.
fn frozen(spec: &Value, gated: bool) -> Map<String, Value> {
    let mut spec = spec.as_object().cloned().unwrap_or_default();
    for list in ["containers", "initContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            object_mut(container).remove("image");
        }
    }
    for key in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        spec.remove(key);
    }
    if gated {
        spec.remove("nodeSelector");
        if let Some(affinity) = spec.get_mut("affinity") {
            let affinity = object_mut(affinity);
            affinity.remove("nodeAffinity");
            if affinity.is_empty() {
                spec.remove("affinity");
            }
        }
    }
    spec
}
