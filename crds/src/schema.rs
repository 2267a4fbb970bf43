//! From Rust types to structural schemas.
//!
//! `schemars` writes JSON Schema; an API server takes a subset of OpenAPI 3 with Kubernetes' own keywords. [`structural`]
//! translates. The functions below are given to `#[schemars(transform = …)]` on fields and types and add those keywords.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings, json_schema};
use serde_json::{Map, Value, json};

/// A DNS-1123 subdomain: names of most objects.
pub const DNS_SUBDOMAIN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// A DNS-1123 label: names of pod sets.
pub const DNS_LABEL: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// A qualified name: keys of labels, condition types.
pub const QUALIFIED_NAME: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";
/// A quantity, as the API server's own generator writes it.
pub const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// A default, under a name of its own until [`structural`] has dropped the defaults that serde's attributes imply.
const DEFAULT: &str = "x-default";
/// Marks a subtree that is Kubernetes' and not ours.
const EMBEDDED: &str = "x-embedded";
const RULES: &str = "x-kubernetes-validations";
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";

/// The list is a map with these keys.
pub(crate) fn list_map(keys: &'static [&'static str]) -> impl FnMut(&mut Schema) {
    move |schema| {
        schema.insert("x-kubernetes-list-type".into(), "map".into());
        schema.insert("x-kubernetes-list-map-keys".into(), json!(keys));
    }
}

/// The list is replaced as a whole.
pub(crate) fn list_atomic(schema: &mut Schema) {
    schema.insert("x-kubernetes-list-type".into(), "atomic".into());
}

/// What the API server fills in when the field is absent.
#[expect(dead_code, reason = "used by the Kueue and Volcano types")]
pub(crate) fn default(value: impl Into<Value>) -> impl FnMut(&mut Schema) {
    let value = value.into();
    move |schema| {
        schema.insert(DEFAULT.into(), value.clone());
    }
}

/// Schema of `metadata`: the API server knows it.
pub struct Metadata;

impl JsonSchema for Metadata {
    fn schema_name() -> Cow<'static, str> {
        "Metadata".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object" })
    }
}

/// Schema of [`crate::api::Condition`] with the bounds `metav1.Condition` has and k8s-openapi leaves out.
pub struct ConditionSchema;

impl JsonSchema for ConditionSchema {
    fn schema_name() -> Cow<'static, str> {
        "Condition".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "type": { "type": "string", "maxLength": 316, "pattern": QUALIFIED_NAME },
                "status": { "type": "string", "enum": ["True", "False", "Unknown"] },
                "observedGeneration": { "type": "integer", "format": "int64", "minimum": 0 },
                "lastTransitionTime": { "type": "string", "format": "date-time" },
                "reason": {
                    "type": "string", "minLength": 1, "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                },
                "message": { "type": "string", "maxLength": 32768 },
            },
        })
    }
}

/// The structural schema of a root type, as it stands in a CustomResourceDefinition's `openAPIV3Schema`.
pub fn structural<K: JsonSchema>() -> Value {
    let settings = SchemaSettings::openapi3().with(|s| {
        s.inline_subschemas = true;
        s.meta_schema = None;
        s.transforms.clear();
    });
    let mut schema = settings.into_generator().into_root_schema_for::<K>().to_value();
    translate(&mut schema, false);
    schema
}

/// Translates one schema and everything below it. `embedded`: it is part of a Kubernetes type, which keeps its fields and
/// loses its descriptions (they alone are several hundred kilobytes for a pod template).
fn translate(schema: &mut Value, embedded: bool) {
    let Value::Object(map) = schema else { return };
    let embedded = embedded || map.remove(EMBEDDED).is_some();
    for key in ["items", "additionalProperties"] {
        if let Some(child) = map.get_mut(key) {
            translate(child, embedded);
        }
    }
    if let Some(Value::Object(properties)) = map.get_mut("properties") {
        properties.values_mut().for_each(|child| translate(child, embedded));
    }
    for key in ["anyOf", "oneOf", "allOf"] {
        if let Some(Value::Array(children)) = map.get_mut(key) {
            children.iter_mut().for_each(|child| translate(child, embedded));
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
    if embedded {
        map.remove("description");
    } else if map.contains_key(INT_OR_STRING) {
        map.insert("anyOf".into(), json!([{ "type": "integer" }, { "type": "string" }]));
        map.insert("pattern".into(), QUANTITY.into());
    }
    signed_format(map);
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
