//! From Rust types to structural schemas.
//!
//! `schemars` writes JSON Schema; an API server takes a subset of OpenAPI 3 with Kubernetes' own keywords. [`structural`]
//! translates. The functions of `keywords` are given to `#[schemars(transform = …)]` on fields and types and add those keywords.

mod keywords;
mod types;

pub(crate) use keywords::*;
pub use types::{ConditionSchema, Embedded, Metadata};

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Value, json};

/// A quantity, as the API server's own generator writes it.
pub const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// A default, under a name of its own until [`structural`] has dropped the defaults that serde's attributes imply.
pub(crate) const DEFAULT: &str = "x-default";
pub(crate) const RULES: &str = "x-kubernetes-validations";
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";

/// The structural schema of a root type, as it stands in a CustomResourceDefinition's `openAPIV3Schema`.
pub fn structural<K: JsonSchema>() -> Value {
    let settings = SchemaSettings::openapi3().with(|s| {
        s.inline_subschemas = true;
        s.meta_schema = None;
        s.transforms.clear();
    });
    let mut schema = settings.into_generator().into_root_schema_for::<K>().to_value();
    translate(&mut schema);
    if let Some(Value::Object(metadata)) = schema.pointer_mut("/properties/metadata") {
        // The server refuses a schema that says more about it than its type.
        metadata.remove("description");
    }
    schema
}

/// Translates one schema and everything below it.
fn translate(schema: &mut Value) {
    let Value::Object(map) = schema else { return };
    for key in ["items", "additionalProperties"] {
        if let Some(child) = map.get_mut(key) {
            translate(child);
            // What stands there is the type's own description: nobody described this use of it.
            if let Value::Object(child) = child
                && child.get("properties").is_none()
            {
                child.remove("description");
            }
        }
    }
    if let Some(Value::Object(properties)) = map.get_mut("properties") {
        properties.values_mut().for_each(translate);
        quantity_patterns(properties);
    }
    for key in ["anyOf", "oneOf", "allOf"] {
        if let Some(Value::Array(children)) = map.get_mut(key) {
            children.iter_mut().for_each(translate);
        }
    }
    unwrap_optional(map);
    hoist_enum(map);
    for key in ["title", "default", "examples"] {
        map.remove(key);
    }
    if let Some(value) = map.remove(DEFAULT) {
        map.insert("default".into(), value);
    }
    if let Some(Value::String(description)) = map.get_mut("description") {
        // Lines end where the source's did; paragraphs stay.
        *description = description.replace("\n\n", "\0").replace('\n', " ").replace('\0', "\n\n");
    }
    signed_format(map);
}

/// Integers or strings are quantities, but for ports (of probes and hooks, by number or by name).
fn quantity_patterns(properties: &mut Map<String, Value>) {
    for (name, property) in properties {
        let Value::Object(property) = property else { continue };
        if property.contains_key(INT_OR_STRING) && name != "port" {
            quantity(property);
        }
        if let Some(Value::Object(values)) = property.get_mut("additionalProperties")
            && values.contains_key(INT_OR_STRING)
        {
            quantity(values);
        }
    }
}

fn quantity(map: &mut Map<String, Value>) {
    map.insert("anyOf".into(), json!([{ "type": "integer" }, { "type": "string" }]));
    map.insert("pattern".into(), QUANTITY.into());
}

/// `Option<T>` is T: an absent field is how Kubernetes says nothing, `null` is dropped before validation.
fn unwrap_optional(map: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = map.get_mut("type") {
        types.retain(|t| t != "null");
        if let [single] = types.as_slice() {
            let single = single.clone();
            map.insert("type".into(), single);
        }
    }
    for key in ["anyOf", "allOf"] {
        let Some(Value::Array(children)) = map.get_mut(key) else { continue };
        children
            .retain(|child| child != &json!({ "type": "null" }) && child.get("enum") != Some(&json!([null])));
        let [Value::Object(inner)] = children.as_mut_slice() else { continue };
        let inner = std::mem::take(inner);
        map.remove(key);
        for (name, value) in inner {
            match map.get_mut(&name) {
                None => drop(map.insert(name, value)),
                Some(Value::Array(outer)) if name == RULES => {
                    let own = std::mem::take(outer);
                    outer.extend(value.as_array().into_iter().flatten().cloned());
                    outer.extend(own);
                }
                // What the field says is nearer to the user than what its type says.
                Some(_) => {}
            }
        }
    }
    map.remove("nullable");
}

/// Unit variants with docs arrive as `oneOf` constants; a structural schema has one `enum`.
fn hoist_enum(map: &mut Map<String, Value>) {
    if let Some(value) = map.remove("const") {
        map.insert("enum".into(), json!([value]));
    }
    let Some(Value::Array(variants)) = map.get("oneOf") else { return };
    let values: Option<Vec<Value>> = variants
        .iter()
        .map(|v| v.get("enum").and_then(Value::as_array).cloned())
        .collect::<Option<Vec<_>>>()
        .map(|v| v.concat());
    if let Some(values) = values {
        map.remove("oneOf");
        map.insert("type".into(), "string".into());
        map.insert("enum".into(), values.into());
    }
}

/// OpenAPI knows no unsigned formats; `minimum: 0` already says it.
fn signed_format(map: &mut Map<String, Value>) {
    let signed = match map.get("format").and_then(Value::as_str) {
        Some("uint8" | "uint16") => "int32",
        Some("uint32" | "uint64") => "int64",
        _ => return,
    };
    map.insert("format".into(), signed.into());
}
