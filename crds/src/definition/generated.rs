//! The definitions as files.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

/// Name of the file a definition is checked in as, under `crds/generated`: `GROUP_PLURAL.yaml`.
pub fn file_name(definition: &CustomResourceDefinition) -> String {
    format!("{}_{}.yaml", definition.spec.group, definition.spec.names.plural)
}

/// The file's content.
pub fn to_yaml(definition: &CustomResourceDefinition) -> String {
    let mut value = serde_json::to_value(definition).expect("a definition is plain data");
    whole_numbers(&mut value);
    let yaml = serde_saphyr::to_string(&value).expect("plain data can be written as YAML");
    format!("# Written by `cargo run -p crds --bin crdgen` from crds/src/api; do not edit.\n---\n{yaml}")
}

/// OpenAPI's bounds are floating-point numbers in Rust; written as such they would read `minimum: 1.0`.
fn whole_numbers(value: &mut Value) {
    match value {
        Value::Object(map) => map.values_mut().for_each(whole_numbers),
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Number(number) => {
            if let Some(float) = number.as_f64()
                && number.is_f64()
                && float.fract() == 0.0
                && float.abs() < 1e15
            {
                *value = Value::from(float as i64);
            }
        }
        _ => {}
    }
}
