//! Schemas of types that are not ours.

use std::{borrow::Cow, marker::PhantomData};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value;

use super::QUALIFIED_NAME;

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

/// Schema of a Kubernetes type with all its fields and none of its descriptions (they alone are several hundred kilobytes for
/// a pod template, and a definition has to fit into one object).
pub struct Embedded<T>(PhantomData<T>);

impl<T: JsonSchema> JsonSchema for Embedded<T> {
    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }
    fn schema_id() -> Cow<'static, str> {
        format!("embedded {}", T::schema_id()).into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut value = T::json_schema(generator).to_value();
        strip_descriptions(&mut value);
        Schema::try_from(value).expect("a schema without descriptions is a schema")
    }
}

fn strip_descriptions(schema: &mut Value) {
    let Value::Object(map) = schema else { return };
    map.remove("description");
    for (key, value) in map {
        match (key.as_str(), value) {
            ("properties", Value::Object(properties)) => properties.values_mut().for_each(strip_descriptions),
            ("items" | "additionalProperties", child) => strip_descriptions(child),
            ("anyOf" | "oneOf" | "allOf", Value::Array(children)) => {
                children.iter_mut().for_each(strip_descriptions)
            }
            _ => {}
        }
    }
}
