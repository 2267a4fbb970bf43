//! What fields the built-in kinds have, from the schemas of `k8s-openapi`: what a real server's typed decoding drops,
//! refuses and rewrites.

use std::collections::BTreeMap;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use model::quantity::Quantity;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::Value;

use crate::error::{ApiError, Path};
use crate::object::{at, text};

/// The type of a field.
#[derive(Debug)]
pub(crate) enum Shape {
    Any,
    Text,
    /// A time; RFC 3339.
    Time,
    /// Bytes; base64.
    Bytes,
    Integer,
    /// A whole number of 32 bits.
    Integer32,
    Number,
    Flag,
    Quantity,
    IntOrString,
    Fields(BTreeMap<String, Shape>),
    Map(Box<Shape>),
    List(Box<Shape>),
}

macro_rules! schemas {
    ($($group:literal $kind:literal $type:path),+ $(,)?) => {
        fn schema_of(group: &str, kind: &str) -> Option<Value> {
            match (group, kind) {
                $(($group, $kind) => Some(generate::<$type>()),)+
                _ => None,
            }
        }
    };
}

schemas! {
    "" "Pod" k8s_openapi::api::core::v1::Pod,
    "" "Node" k8s_openapi::api::core::v1::Node,
    "" "Service" k8s_openapi::api::core::v1::Service,
    "" "Endpoints" k8s_openapi::api::core::v1::Endpoints,
    "" "Namespace" k8s_openapi::api::core::v1::Namespace,
    "" "ConfigMap" k8s_openapi::api::core::v1::ConfigMap,
    "" "Secret" k8s_openapi::api::core::v1::Secret,
    "" "ServiceAccount" k8s_openapi::api::core::v1::ServiceAccount,
    "" "Event" k8s_openapi::api::core::v1::Event,
    "" "LimitRange" k8s_openapi::api::core::v1::LimitRange,
    "" "ResourceQuota" k8s_openapi::api::core::v1::ResourceQuota,
    "" "PersistentVolume" k8s_openapi::api::core::v1::PersistentVolume,
    "" "PersistentVolumeClaim" k8s_openapi::api::core::v1::PersistentVolumeClaim,
    "" "PodTemplate" k8s_openapi::api::core::v1::PodTemplate,
    "" "ReplicationController" k8s_openapi::api::core::v1::ReplicationController,
    "events.k8s.io" "Event" k8s_openapi::api::events::v1::Event,
    "coordination.k8s.io" "Lease" k8s_openapi::api::coordination::v1::Lease,
    "batch" "Job" k8s_openapi::api::batch::v1::Job,
    "batch" "CronJob" k8s_openapi::api::batch::v1::CronJob,
    "apps" "Deployment" k8s_openapi::api::apps::v1::Deployment,
    "apps" "StatefulSet" k8s_openapi::api::apps::v1::StatefulSet,
    "apps" "DaemonSet" k8s_openapi::api::apps::v1::DaemonSet,
    "apps" "ReplicaSet" k8s_openapi::api::apps::v1::ReplicaSet,
    "scheduling.k8s.io" "PriorityClass" k8s_openapi::api::scheduling::v1::PriorityClass,
    "node.k8s.io" "RuntimeClass" k8s_openapi::api::node::v1::RuntimeClass,
    "policy" "PodDisruptionBudget" k8s_openapi::api::policy::v1::PodDisruptionBudget,
    "discovery.k8s.io" "EndpointSlice" k8s_openapi::api::discovery::v1::EndpointSlice,
    "admissionregistration.k8s.io" "MutatingWebhookConfiguration"
        k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration,
    "admissionregistration.k8s.io" "ValidatingWebhookConfiguration"
        k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration,
}

fn generate<T: JsonSchema>() -> Value {
    SchemaGenerator::default().into_root_schema_for::<T>().to_value()
}

impl Shape {
    /// The shape of a built-in kind; kinds that nobody here depends on take any field.
    pub(crate) fn of(group: &str, kind: &str) -> Self {
        schema_of(group, kind).map_or(Self::Any, |root| Self::compile(&root, &root, &mut Vec::new()))
    }

    fn compile(schema: &Value, root: &Value, refs: &mut Vec<String>) -> Self {
        if let Some(target) = schema.get("$ref").and_then(Value::as_str) {
            let name = target.rsplit('/').next().unwrap_or_default();
            match name {
                "io.k8s.apimachinery.pkg.api.resource.Quantity" => return Self::Quantity,
                "io.k8s.apimachinery.pkg.util.intstr.IntOrString" => return Self::IntOrString,
                // Managed fields are never stored; the fields of metadata are validated apart.
                "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1" => return Self::Any,
                recursive if refs.iter().any(|r| r == recursive) => return Self::Any,
                _ => {}
            }
            refs.push(name.to_owned());
            let shape = Self::compile(at(root, &["$defs", name]), root, refs);
            refs.pop();
            return shape;
        }
        // A reference with a sibling `default` or `description` comes wrapped.
        if let [only] = crate::object::items(schema, &["allOf"]) {
            return Self::compile(only, root, refs);
        }
        match text(schema, &["type"]) {
            "string" => match text(schema, &["format"]) {
                "date-time" => Self::Time,
                "byte" => Self::Bytes,
                _ => Self::Text,
            },
            "integer" if text(schema, &["format"]) == "int32" => Self::Integer32,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "boolean" => Self::Flag,
            "array" => Self::List(Box::new(Self::compile(at(schema, &["items"]), root, refs))),
            "object" => match (
                schema.get("properties").and_then(Value::as_object),
                schema.get("additionalProperties"),
            ) {
                (Some(fields), _) => Self::Fields(
                    fields
                        .iter()
                        .map(|(name, field)| (name.clone(), Self::compile(field, root, refs)))
                        .collect(),
                ),
                (None, Some(values)) if values.is_object() => {
                    Self::Map(Box::new(Self::compile(values, root, refs)))
                }
                _ => Self::Any,
            },
            _ => Self::Any,
        }
    }

    /// Drops unknown fields (and names them in `unknown`) and nulls, and puts quantities into canonical form.
    pub(crate) fn settle(&self, value: &mut Value, unknown: &mut Vec<String>) -> Result<(), ApiError> {
        self.walk(value, &Path::Root, unknown)
    }

    fn walk(&self, value: &mut Value, path: &Path<'_>, unknown: &mut Vec<String>) -> Result<(), ApiError> {
        match (self, &mut *value) {
            (Self::Any, _) | (Self::Text, Value::String(_)) | (Self::Flag, Value::Bool(_)) => Ok(()),
            (Self::Time, Value::String(time)) if is_time(time) => Ok(()),
            (Self::Bytes, Value::String(text)) if STANDARD.decode(text.as_str()).is_ok() => Ok(()),
            (Self::Integer, Value::Number(n)) if !n.is_f64() => Ok(()),
            (Self::Integer32, Value::Number(n)) if n.as_i64().is_some_and(|n| i32::try_from(n).is_ok()) => {
                Ok(())
            }
            (Self::Number, Value::Number(_)) | (Self::IntOrString, Value::String(_) | Value::Number(_)) => {
                Ok(())
            }
            (Self::Quantity, Value::String(_) | Value::Number(_)) => canonical(value, path),
            (Self::Fields(fields), Value::Object(map)) => {
                map.retain(|name, child| {
                    let known = fields.contains_key(name);
                    if !known {
                        unknown.push(Path::Field(path, name).to_string());
                    }
                    known && !child.is_null()
                });
                map.iter_mut()
                    .try_for_each(|(name, child)| fields[name].walk(child, &Path::Field(path, name), unknown))
            }
            (Self::Map(values), Value::Object(map)) => {
                map.retain(|_, child| !child.is_null());
                map.iter_mut()
                    .try_for_each(|(name, child)| values.walk(child, &Path::Field(path, name), unknown))
            }
            (Self::List(items), Value::Array(list)) => list
                .iter_mut()
                .enumerate()
                .try_for_each(|(i, item)| items.walk(item, &Path::Index(path, i), unknown)),
            (_, found) => Err(ApiError::bad_request(format!(
                "the object provided cannot be decoded: {path}: {found} is not of the field's type"
            ))),
        }
    }
}

/// Whether a text is an RFC 3339 time. The form that Kubernetes itself writes is recognised without being parsed.
fn is_time(text: &str) -> bool {
    const FORM: &[u8] = b"0000-00-00T00:00:00Z";
    let same = |(c, form): (&u8, &u8)| if *form == b'0' { c.is_ascii_digit() } else { c == form };
    (text.len() == FORM.len() && text.as_bytes().iter().zip(FORM).all(same))
        || text.parse::<jiff::Timestamp>().is_ok()
}

/// The canonical form of a quantity, never finer than a thousandth.
fn canonical(value: &mut Value, path: &Path<'_>) -> Result<(), ApiError> {
    let text = match &*value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let quantity = Quantity::from_str(&text).map_err(|e| {
        ApiError::bad_request(format!(
            "the object provided cannot be decoded: {path}: quantity \"{text}\": {e}"
        ))
    })?;
    let shown = match quantity.milli_value() {
        Some(millis) if Quantity::from_millis(millis) != quantity => {
            Quantity::from_millis(millis).to_string()
        }
        _ => quantity.to_string(),
    };
    if value.as_str() != Some(&shown) {
        *value = shown.into();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_loses_what_it_does_not_have_and_keeps_the_rest() {
        let shape = Shape::of("", "Pod");
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a", "labels": { "x": "y" }, "creationTimestamp": null },
            "spec": {
                "nonsense": 1, "nodeSelector": { "a": "b" },
                "containers": [{ "name": "c", "image": "i", "resources": { "requests": { "cpu": 2, "memory": "1024Mi" } }, "oops": {} }],
                "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [
                    { "matchExpressions": [{ "key": "k", "operator": "In", "values": ["v"] }] },
                ] } } },
            },
        });
        let mut unknown = Vec::new();
        let kept = pod["spec"]["affinity"].clone();
        shape.settle(&mut pod, &mut unknown).unwrap();
        unknown.sort();
        assert_eq!(unknown, ["spec.containers[0].oops", "spec.nonsense"]);
        assert_eq!(
            pod["spec"]["containers"][0]["resources"]["requests"],
            json!({ "cpu": "2", "memory": "1Gi" })
        );
        assert_eq!(pod["spec"]["affinity"], kept);
        assert_eq!(pod["metadata"], json!({ "name": "a", "labels": { "x": "y" } }));
    }

    #[test]
    fn a_value_of_another_type_cannot_be_decoded() {
        let mut job = json!({ "spec": { "parallelism": "many" } });
        let error = Shape::of("batch", "Job").settle(&mut job, &mut Vec::new()).unwrap_err();
        assert_eq!(error.code, 400);
        assert!(error.message.contains("spec.parallelism"), "{error}");
    }
}
