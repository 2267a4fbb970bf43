//! Defaults and validation: metadata of every object, and the rules of the built-in kinds that users and the programs
//! lean on. Custom resources are validated by their schema.

mod defaults;
mod jobs;
mod metadata;
mod objects;
mod pods;
mod resources;

use serde_json::Value;

use crate::Part;
use crate::error::FieldError;
use crate::resources::Resource;

pub(crate) use defaults::{default, prepare_new};
pub(crate) use metadata::is_label_value;

/// What is wrong with an object; `old` is what an update started from and the part it writes.
pub(crate) fn validate(resource: &Resource, new: &Value, old: Option<(&Value, Part)>) -> Vec<FieldError> {
    let before = old.map(|(value, _)| value);
    let mut errors = metadata::validate(resource, new, before);
    if let Some(schema) = &resource.versions[resource.storage_version()].schema {
        errors.extend(schema.validate(new, before));
        return errors;
    }
    let Some(builtin) = resource.builtin() else { return errors };
    match (builtin.group, builtin.kind) {
        ("", "Pod") => pods::validate(new, old, &mut errors),
        ("batch", "Job") => jobs::validate(new, before, &mut errors),
        _ => objects::validate(builtin.kind, new, before, &mut errors),
    }
    errors
}
