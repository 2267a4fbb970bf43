//! The pod template inside a Workload.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::PodTemplateSpec;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::schema::Embedded;

/// A `PodTemplateSpec`, kept as it was written.
///
/// The schema is the full type's. The value is not: a template passes through conversion untouched, with the fields of
/// Kubernetes versions this build does not know, and without the price of decoding it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PodTemplate(pub Value);

impl PodTemplate {
    /// The template as Kubernetes' own type.
    ///
    /// # Errors
    /// When it is not one; the error names the field.
    pub fn decode(&self) -> serde_json::Result<PodTemplateSpec> {
        PodTemplateSpec::deserialize(&self.0)
    }
}

impl Default for PodTemplate {
    fn default() -> Self {
        Self(json!({}))
    }
}

impl JsonSchema for PodTemplate {
    fn schema_name() -> Cow<'static, str> {
        "PodTemplate".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = Embedded::<PodTemplateSpec>::json_schema(generator);
        // Of the metadata only what a template can hand to its pods: the rest (`creationTimestamp: null`, as many tools
        // write it) is pruned before it can fail validation.
        if let Some(metadata) = schema.pointer_mut("/properties/metadata") {
            *metadata = json!({
                "type": "object",
                "properties": {
                    "annotations": { "type": "object", "additionalProperties": { "type": "string" } },
                    "finalizers": { "type": "array", "items": { "type": "string" } },
                    "labels": { "type": "object", "additionalProperties": { "type": "string" } },
                    "name": { "type": "string" },
                    "namespace": { "type": "string" },
                },
            });
        }
        let mut schema = schema.to_value();
        let_names_be_empty("", &mut schema);
        Schema::try_from(schema).expect("a schema that requires less is a schema")
    }
}

/// Fields that refer to an object by its name, which Kubernetes' types leave away where it is empty: a job may have come with
/// `imagePullSecrets: [{name: ""}]`, and its Workload is to be made all the same. Kueue's definition has `""` as the default.
const REFERENCES: [&str; 8] = [
    "configMap",
    "configMapKeyRef",
    "configMapRef",
    "imagePullSecrets",
    "nodePublishSecretRef",
    "secret",
    "secretKeyRef",
    "secretRef",
];

/// Takes `name` from what is required of references; `field` is where the schema stands.
fn let_names_be_empty(field: &str, schema: &mut Value) {
    if REFERENCES.contains(&field)
        && let Some(fields) = schema.as_object_mut()
        && let Some(Value::Array(mut required)) = fields.remove("required")
    {
        required.retain(|one| one != "name");
        if !required.is_empty() {
            fields.insert("required".into(), required.into());
        }
    }
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        properties.iter_mut().for_each(|(name, property)| let_names_be_empty(name, property));
    }
    for inner in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get_mut(inner) {
            let_names_be_empty(field, inner);
        }
    }
    // Optional fields are one of two until the schema is translated.
    for either in ["anyOf", "allOf"] {
        for one in schema.get_mut(either).and_then(Value::as_array_mut).into_iter().flatten() {
            let_names_be_empty(field, one);
        }
    }
}
