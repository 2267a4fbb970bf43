use serde_json::Value;

use crate::error::FieldError;
use crate::object::{at, items, text};

/// Rules of the smaller built-in kinds.
pub(super) fn validate(kind: &str, new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    match kind {
        "ConfigMap" => {
            data(&["data", "binaryData"], new, errors);
            frozen_when_immutable(&["data", "binaryData"], new, old, errors);
        }
        "Event" => {
            let of = text(new, &["involvedObject", "namespace"]);
            // Events about cluster-scoped objects lie in the namespace `default`.
            let wanted = if of.is_empty() { "default" } else { of };
            if old.is_none() && wanted != crate::object::namespace(new) {
                let why = "does not match event.namespace";
                errors.push(FieldError::invalid("involvedObject.namespace", &of.into(), why));
            }
        }
        "PodDisruptionBudget" => {
            let spec = at(new, &["spec"]);
            if !at(spec, &["minAvailable"]).is_null() && !at(spec, &["maxUnavailable"]).is_null() {
                let why = "minAvailable and maxUnavailable cannot be both set";
                errors.push(FieldError::invalid("spec", spec, why));
            }
        }
        "Secret" => {
            data(&["data"], new, errors);
            frozen_when_immutable(&["data"], new, old, errors);
            unchanging("type", new, old, errors);
        }
        "PriorityClass" => {
            if old.is_some_and(|o| o.get("value") != new.get("value")) {
                errors.push(FieldError::forbidden("value", "may not be changed in an update."));
            }
            unchanging("preemptionPolicy", new, old, errors);
            let value = at(new, &["value"]);
            let system = text(new, &["metadata", "name"]).starts_with("system-");
            if value.as_i64().is_some_and(|v| v > 1_000_000_000) && !system {
                let why = "maximum allowed value of a user defined priority is 1000000000";
                errors.push(FieldError::forbidden("value", why));
            }
        }
        "Lease" => {
            let seconds = at(new, &["spec", "leaseDurationSeconds"]);
            if seconds.as_i64().is_some_and(|s| s <= 0) {
                errors.push(FieldError::invalid(
                    "spec.leaseDurationSeconds",
                    seconds,
                    "must be greater than 0",
                ));
            }
        }
        "Node" => taints(new, errors),
        "CustomResourceDefinition" => definition(new, errors),
        "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet"
            if old.is_none_or(|o| o.get("spec") != new.get("spec")) =>
        {
            super::pods::validate_spec(at(new, &["spec", "template", "spec"]), "spec.template.spec", errors);
        }
        _ => {}
    }
}

/// Checks keys and size (1 MiB) of the data of a ConfigMap or Secret.
fn data(fields: &[&str], new: &Value, errors: &mut Vec<FieldError>) {
    const LIMIT: usize = 1024 * 1024;
    let mut size = 0;
    for field in fields {
        for (key, value) in at(new, &[field]).as_object().into_iter().flatten() {
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            if key.is_empty()
                || key.len() > 253
                || !key.chars().all(plain)
                || matches!(key.as_str(), "." | "..")
            {
                let why = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'";
                errors.push(FieldError::invalid(format!("{field}[{key}]"), &key.as_str().into(), why));
            }
            size += value.as_str().map_or(0, str::len);
        }
    }
    if size > LIMIT {
        errors.push(FieldError::too_long("[]", LIMIT));
    }
}

fn unchanging(field: &str, new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    if old.is_some_and(|o| o.get(field) != new.get(field)) {
        errors.push(FieldError::invalid(field, at(new, &[field]), "field is immutable"));
    }
}

fn frozen_when_immutable(fields: &[&str], new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let Some(old) = old.filter(|o| at(o, &["immutable"]) == &Value::Bool(true)) else { return };
    if at(new, &["immutable"]) != &Value::Bool(true) {
        errors.push(FieldError::forbidden("immutable", "field is immutable when `immutable` is set"));
    }
    for field in fields {
        if old.get(*field) != new.get(*field) {
            errors.push(FieldError::forbidden(*field, "field is immutable when `immutable` is set"));
        }
    }
}

fn taints(node: &Value, errors: &mut Vec<FieldError>) {
    for (i, taint) in items(node, &["spec", "taints"]).iter().enumerate() {
        let effect = text(taint, &["effect"]);
        if !matches!(effect, "NoSchedule" | "PreferNoSchedule" | "NoExecute") {
            let supported = ["NoSchedule", "PreferNoSchedule", "NoExecute"].map(str::to_owned);
            errors.push(FieldError::not_supported(
                format!("spec.taints[{i}].effect"),
                &effect.into(),
                &supported,
            ));
        }
    }
}

fn definition(crd: &Value, errors: &mut Vec<FieldError>) {
    let wanted = format!("{}.{}", text(crd, &["spec", "names", "plural"]), text(crd, &["spec", "group"]));
    if text(crd, &["metadata", "name"]) != wanted {
        let why = format!("must be spec.names.plural+\".\"+spec.group, that is {wanted}");
        errors.push(FieldError::invalid("metadata.name", at(crd, &["metadata", "name"]), why));
    }
    let versions = items(crd, &["spec", "versions"]);
    let storage = versions.iter().filter(|v| at(v, &["storage"]) == &Value::Bool(true)).count();
    if storage != 1 {
        let why = "must have exactly one version marked as storage version";
        errors.push(FieldError::invalid("spec.versions", &Value::Array(Vec::new()), why));
    }
    for (i, version) in versions.iter().enumerate() {
        if version.pointer("/schema/openAPIV3Schema").is_none() {
            let path = format!("spec.versions[{i}].schema.openAPIV3Schema");
            errors.push(FieldError::required(path, "schemas are required"));
        }
    }
}
