//! Metadata without what is often the larger half of an object: `managedFields`, and the copy that `kubectl apply` keeps.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use k8s_openapi::jiff::Timestamp;
use k8s_openapi::jiff::fmt::temporal::Pieces;
use serde::{Deserialize, Deserializer};

/// The whole object again, as its user applied it.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// What views keep of `metadata`.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Lean {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    deletion_grace_period_seconds: Option<i64>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    finalizers: Option<Vec<String>>,
    owner_references: Option<Vec<OwnerReference>>,
}

/// Reads `metadata` and skips what no reader of a view needs. For `#[serde(deserialize_with = "…")]`.
///
/// # Errors
/// What is no metadata.
pub fn lean<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let mut lean = Lean::deserialize(deserializer)?;
    if let Some(annotations) = &mut lean.annotations {
        annotations.remove(LAST_APPLIED);
    }
    Ok(ObjectMeta {
        name: lean.name,
        namespace: lean.namespace,
        uid: lean.uid,
        resource_version: lean.resource_version,
        generation: lean.generation,
        creation_timestamp: lean.creation_timestamp,
        deletion_timestamp: lean.deletion_timestamp,
        deletion_grace_period_seconds: lean.deletion_grace_period_seconds,
        labels: lean.labels,
        annotations: lean.annotations,
        finalizers: lean.finalizers,
        owner_references: lean.owner_references,
        ..ObjectMeta::default()
    })
}

/// Reads a time that somebody may have meant as never. The last day of the year 9999, which Kubernetes can write, is later than the
/// last moment that is computed with here; that moment stands for it. For `#[serde(deserialize_with = "…")]`.
///
/// # Errors
/// What is no time.
pub fn far_time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Time>, D::Error> {
    let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
    match text.parse::<Timestamp>() {
        Ok(time) => Ok(Some(Time(time))),
        Err(_) if text.starts_with("9999-12-3") && Pieces::parse(&text).is_ok() => {
            Ok(Some(Time(Timestamp::MAX)))
        }
        Err(error) => Err(serde::de::Error::custom(error)),
    }
}

/// Declares the root of a view and makes it a [`kube::Resource`], so that `Api`, watches and patches know its URL.
macro_rules! view {
    (
        $(#[$meta:meta])*
        pub struct $name:ident($kind:literal, $group:expr, $version:literal, $plural:literal, $scope:ident) {
            $( $(#[$field_meta:meta])* pub $field:ident: $type:ty, )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, serde::Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        pub struct $name {
            /// Metadata without `managedFields`.
            #[serde(deserialize_with = "crate::view::meta::lean")]
            pub metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
            $( $(#[$field_meta])* pub $field: $type, )*
        }

        impl kube::Resource for $name {
            type DynamicType = ();
            type Scope = k8s_openapi::$scope;

            fn kind(_: &()) -> std::borrow::Cow<'_, str> {
                $kind.into()
            }
            fn group(_: &()) -> std::borrow::Cow<'_, str> {
                $group.into()
            }
            fn version(_: &()) -> std::borrow::Cow<'_, str> {
                $version.into()
            }
            fn plural(_: &()) -> std::borrow::Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

pub(crate) use view;

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn never_can_be_read() {
        for (written, read) in [
            (json!("2026-01-01T00:00:00Z"), Some("2026-01-01T00:00:00Z")),
            (json!("9999-12-31T23:59:59Z"), Some("9999-12-30T22:00:00Z")),
            (json!("9999-12-31T23:59:59.5+00:00"), Some("9999-12-30T22:00:00Z")),
            (json!(null), None),
        ] {
            let state = json!({ "count": 1, "requeueAt": written });
            let state: crate::view::workload::RequeueState = serde_json::from_value(state).unwrap();
            assert_eq!(state.requeue_at.map(|at| json!(at)), read.map(|read| json!(read)), "{written}");
        }
        for written in ["9999-12-3", "9999-12-32T00:00:00Z", "soon", ""] {
            let state = json!({ "requeueAt": written });
            assert!(
                serde_json::from_value::<crate::view::workload::RequeueState>(state).is_err(),
                "{written}"
            );
        }
    }

    #[test]
    fn what_is_left_out_of_metadata_is_what_nobody_reads() {
        let object = json!({ "metadata": {
            "name": "j", "uid": "u", "labels": { "a": "b" },
            "managedFields": [{ "manager": "kubectl", "fieldsV1": { "f:spec": {} } }],
            "annotations": { "kubectl.kubernetes.io/last-applied-configuration": "{}", "trireme.dev/gang": "x" },
        }});
        let kept = serde_json::from_value::<crate::view::Pod>(object).unwrap().metadata;
        assert_eq!(
            serde_json::to_value(kept).unwrap(),
            json!({
                "name": "j", "uid": "u", "labels": { "a": "b" }, "annotations": { "trireme.dev/gang": "x" },
            })
        );
    }
}
