use std::str::FromStr;

use model::quantity::Quantity;
use serde_json::Value;

use super::metadata::qualified_name;
use crate::error::FieldError;

/// Resources that need no qualified name in a container.
fn is_standard(name: &str) -> bool {
    matches!(name, "cpu" | "memory" | "ephemeral-storage" | "storage") || name.starts_with("hugepages-")
}

/// Resources that a device plugin advertises: whole units, never shared.
fn is_extended(name: &str) -> bool {
    name.contains('/')
        && !name.starts_with("requests.")
        && !name.split('/').next().is_some_and(|p| p.ends_with("kubernetes.io"))
}

fn quantity(value: &Value) -> Option<Quantity> {
    Quantity::from_str(value.as_str()?).ok()
}

/// Checks `resources` of a container at `path`.
pub(super) fn validate(resources: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let empty = serde_json::Map::new();
    let list = |key: &str| resources.get(key).and_then(Value::as_object).unwrap_or(&empty);
    let (requests, limits) = (list("requests"), list("limits"));
    for (key, amounts) in [("limits", limits), ("requests", requests)] {
        for (name, amount) in amounts {
            validate_amount(name, amount, &format!("{path}.{key}[{name}]"), errors);
        }
    }
    for (name, amount) in requests {
        let at = format!("{path}.requests");
        let (Some(request), limit) = (quantity(amount), limits.get(name)) else { continue };
        match limit.and_then(quantity) {
            Some(limit) if is_extended(name) && request != limit => {
                errors.push(FieldError::invalid(
                    at,
                    amount,
                    format!("must be equal to {name} limit of {limit}"),
                ));
            }
            Some(limit) if request > limit => {
                let why = format!("must be less than or equal to {name} limit of {limit}");
                errors.push(FieldError::invalid(at, amount, why));
            }
            None if is_extended(name) => {
                let at = format!("{path}.limits");
                errors.push(FieldError::required(at, "Limit must be set for non overcommitable resources"));
            }
            _ => {}
        }
    }
}

fn validate_amount(name: &str, amount: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if let Some(why) = qualified_name(name) {
        errors.push(FieldError::invalid(path, &name.into(), why));
    } else if !name.contains('/') && !is_standard(name) {
        errors.push(FieldError::invalid(
            path,
            &name.into(),
            "must be a standard resource type or fully qualified",
        ));
    }
    let Some(quantity) = quantity(amount) else { return };
    if quantity.is_negative() {
        errors.push(FieldError::invalid(path, amount, "must be greater than or equal to 0"));
    }
    if is_extended(name) && !quantity.is_whole() {
        errors.push(FieldError::invalid(path, amount, "must be an integer"));
    }
}
