//! What every custom resource has: a type, metadata, and an identity towards the API server.
//!
//! kube's `CustomResource` derive makes the root type itself and wants a mandatory `spec`; Kueue's roots may lack it
//! (`ResourceFlavor`) or have none (`WorkloadPriorityClass`). So roots are written out, and [`custom_resource!`] adds the rest.

use std::{fmt, marker::PhantomData};

use kube::Resource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// The `apiVersion` field of `K`: no data, the right string when written, refused when another one is read.
pub struct ApiVersion<K>(PhantomData<K>);

/// The `kind` field of `K`: no data, the right string when written, refused when another one is read.
pub struct Kind<K>(PhantomData<K>);

macro_rules! type_field {
    ($name:ident, $key:literal, $value:ident) => {
        impl<K> Default for $name<K> {
            fn default() -> Self {
                Self(PhantomData)
            }
        }
        impl<K> Clone for $name<K> {
            fn clone(&self) -> Self {
                *self
            }
        }
        impl<K> Copy for $name<K> {}
        impl<K> PartialEq for $name<K> {
            fn eq(&self, _: &Self) -> bool {
                true
            }
        }
        impl<K: Resource<DynamicType = ()>> fmt::Debug for $name<K> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&K::$value(&()))
            }
        }
        impl<K: Resource<DynamicType = ()>> Serialize for $name<K> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&K::$value(&()))
            }
        }
        impl<'de, K: Resource<DynamicType = ()>> Deserialize<'de> for $name<K> {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let found = String::deserialize(deserializer)?;
                let wanted = K::$value(&());
                if found == wanted {
                    Ok(Self(PhantomData))
                } else {
                    Err(D::Error::custom(format!("{} is {found:?}, expected {wanted:?}", $key)))
                }
            }
        }
        impl<K> JsonSchema for $name<K> {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn inline_schema() -> bool {
                true
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string" })
            }
        }
    };
}

type_field!(ApiVersion, "apiVersion", api_version);
type_field!(Kind, "kind", kind);

/// Declares the root type of a custom resource and makes it a [`kube::Resource`].
///
/// `custom_resource! { /// doc  pub struct Name("group", "version", "plural", Scope) { fields } }`: the given fields follow
/// `apiVersion`, `kind` and `metadata`. They keep their attributes; all of them must have a default.
macro_rules! custom_resource {
    (
        $(#[$meta:meta])*
        pub struct $name:ident($group:expr, $version:literal, $plural:literal, $scope:ident) {
            $( $(#[$field_meta:meta])* pub $field:ident: $type:ty, )*
        }
    ) => {
        #[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(rename_all = "camelCase")]
        $(#[$meta])*
        pub struct $name {
            /// Group and version this object is written in.
            #[serde(default)]
            pub api_version: crate::api::ApiVersion<Self>,
            /// Name of the type.
            #[serde(default)]
            pub kind: crate::api::Kind<Self>,
            /// Standard metadata.
            #[serde(default)]
            #[schemars(with = "crate::schema::Metadata")]
            pub metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
            $( $(#[$field_meta])* pub $field: $type, )*
        }

        impl kube::Resource for $name {
            type DynamicType = ();
            type Scope = k8s_openapi::$scope;

            fn kind(_: &()) -> std::borrow::Cow<'_, str> {
                stringify!($name).into()
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

pub(crate) use custom_resource;
