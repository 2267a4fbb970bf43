//! Defaults and validation: metadata of every object, and the rules of the built-in kinds that users and the programs
//! lean on. Custom resources are validated by their schema.

mod defaults;
mod metadata;

use serde_json::Value;

use crate::Part;
use crate::error::FieldError;
use crate::resources::Resource;

pub(crate) use defaults::{default, prepare_new};

/// What is wrong with an object; `old` is what an update started from and the part it writes.
pub(crate) fn validate(resource: &Resource, new: &Value, old: Option<(&Value, Part)>) -> Vec<FieldError> {
    let mut errors = metadata::validate(resource, new, old.map(|(value, _)| value));
    if let Some(schema) = &resource.versions[resource.storage_version()].schema {
        errors.extend(schema.validate(new, old.map(|(value, _)| value)));
    }
    errors
}
