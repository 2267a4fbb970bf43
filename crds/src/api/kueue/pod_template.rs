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
        schema
    }
}
