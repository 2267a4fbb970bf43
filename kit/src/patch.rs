//! The one way to write to the API server.
//!
//! Changes are JSON merge patches that carry the uid and, where the decision rested on what was read, the
//! resourceVersion: they can neither hit a namesake nor undo what somebody else wrote meanwhile, and they keep fields
//! this program does not know. There is no PUT. Every function sends exactly one request: who retries is
//! [`crate::writes`].

mod error;

use std::collections::BTreeMap;

use kube::api::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use error::WriteError;

/// The name under which the API server's `managedFields` file what this project writes.
pub const FIELD_MANAGER: &str = "trireme";

/// Which object, exactly, a write is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// The object's name; the namespace comes from the [`Api`].
    pub name: String,
    /// The object's uid: a namesake created later is not meant.
    pub uid: String,
    /// The resourceVersion the decision rested on; without it the write holds whatever happened meanwhile.
    pub resource_version: Option<String>,
}

impl Target {
    /// The object of this name and uid, in whatever state.
    pub fn new(name: impl Into<String>, uid: impl Into<String>) -> Self {
        Self { name: name.into(), uid: uid.into(), resource_version: None }
    }

    /// The same, only in the state of this resourceVersion.
    pub fn at(mut self, resource_version: impl Into<String>) -> Self {
        self.resource_version = Some(resource_version.into());
        self
    }

    /// The object in the state in which it was read.
    pub fn of<K: Resource>(object: &K) -> Self {
        Self {
            name: object.name_any(),
            uid: object.uid().unwrap_or_default(),
            resource_version: object.resource_version(),
        }
    }
}

/// The part of an object a write goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subresource {
    /// The object itself.
    Main,
    /// `/status`: everything but the status is ignored by the server.
    Status,
}

impl Subresource {
    fn path(self) -> &'static str {
        match self {
            Self::Main => "",
            Self::Status => "/status",
        }
    }
}

/// What of an answer matters to nearly every writer: which watch events are older than the write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// The object's uid.
    pub uid: String,
    /// Its resourceVersion after the write.
    pub resource_version: String,
    /// Its generation after the write; 0 where the kind has none.
    pub generation: i64,
}

impl<'de> Deserialize<'de> for Written {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Object {
            #[serde(default)]
            metadata: Meta,
        }
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Meta {
            uid: String,
            resource_version: String,
            generation: i64,
        }
        let Meta { uid, resource_version, generation } = Object::deserialize(deserializer)?.metadata;
        Ok(Self { uid, resource_version, generation })
    }
}

/// Sends a JSON merge patch (RFC 7386). `body` need not hold `metadata.uid` and `metadata.resourceVersion`: they are
/// set from the target. `A` is what to decode the answer into: the kind, a view of it, or [`Written`].
///
/// # Errors
/// See [`WriteError`]; [`WriteError::Gone`] also when the name now belongs to another uid.
pub async fn merge<K, A>(
    api: &Api<K>,
    target: &Target,
    mut body: Value,
    subresource: Subresource,
) -> Result<A, WriteError>
where
    K: Resource + Clone,
    A: DeserializeOwned,
{
    let metadata = &mut body["metadata"];
    metadata["uid"] = json!(target.uid);
    if let Some(version) = &target.resource_version {
        metadata["resourceVersion"] = json!(version);
    }
    let path = format!("/{}{}", target.name, subresource.path());
    send(api, http::Method::PATCH, &path, "application/merge-patch+json", &body).await
}

/// Creates an object.
///
/// # Errors
/// See [`WriteError`]; [`WriteError::Conflict`] when the name is taken, [`WriteError::Gone`] when the namespace is not
/// there or the server does not serve the kind.
pub async fn create<K, A>(api: &Api<K>, object: &impl Serialize) -> Result<A, WriteError>
where
    K: Resource + Clone,
    A: DeserializeOwned,
{
    send(api, http::Method::POST, "", "application/json", object).await
}

/// Deletes the object of this uid (and resourceVersion, if the target names one), its dependents in the background.
/// `grace_seconds` overrides the object's own grace period.
///
/// # Errors
/// See [`WriteError`]; [`WriteError::Gone`] means there is nothing left to delete.
pub async fn delete<K: Resource + Clone>(
    api: &Api<K>,
    target: &Target,
    grace_seconds: Option<u32>,
) -> Result<(), WriteError> {
    let options = delete_options(target, grace_seconds);
    let path = format!("/{}", target.name);
    send::<_, serde::de::IgnoredAny>(api, http::Method::DELETE, &path, "application/json", &options)
        .await
        .map(drop)
}

/// Binds a pod to a node. The server sets `spec.nodeName` and merges the annotations into the pod's in one write; it
/// refuses with a conflict when the uid or the resourceVersion is another, or the pod has a node already.
///
/// # Errors
/// See [`WriteError`].
pub async fn bind<K: Resource + Clone>(
    api: &Api<K>,
    target: &Target,
    node: &str,
    annotations: &BTreeMap<String, String>,
) -> Result<(), WriteError> {
    let mut metadata = json!({ "name": target.name, "uid": target.uid });
    if let Some(version) = &target.resource_version {
        metadata["resourceVersion"] = json!(version);
    }
    if !annotations.is_empty() {
        metadata["annotations"] = json!(annotations);
    }
    let body = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": metadata,
        "target": { "apiVersion": "v1", "kind": "Node", "name": node },
    });
    let path = format!("/{}/binding", target.name);
    send::<_, serde::de::IgnoredAny>(api, http::Method::POST, &path, "application/json", &body)
        .await
        .map(drop)
}

fn delete_options(target: &Target, grace_seconds: Option<u32>) -> Value {
    let mut preconditions = json!({ "uid": target.uid });
    if let Some(version) = &target.resource_version {
        preconditions["resourceVersion"] = json!(version);
    }
    let mut options = json!({
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": "Background",
        "preconditions": preconditions,
    });
    if let Some(seconds) = grace_seconds {
        options["gracePeriodSeconds"] = json!(seconds);
    }
    options
}

async fn send<K: Resource + Clone, A: DeserializeOwned>(
    api: &Api<K>,
    method: http::Method,
    path: &str,
    content_type: &'static str,
    body: &impl Serialize,
) -> Result<A, WriteError> {
    let bytes = serde_json::to_vec(body).map_err(|error| WriteError::unsendable(&error))?;
    // The server takes no fieldManager for deletions and bindings; elsewhere it names who wrote.
    let manager = match method {
        http::Method::PATCH => format!("?fieldManager={FIELD_MANAGER}"),
        http::Method::POST if path.is_empty() => format!("?fieldManager={FIELD_MANAGER}"),
        _ => String::new(),
    };
    let request = http::Request::builder()
        .method(method)
        .uri(format!("{}{path}{manager}", api.resource_url()))
        .header(http::header::ACCEPT, "application/json")
        .header(http::header::CONTENT_TYPE, content_type)
        .body(bytes)
        .map_err(|error| WriteError::unsendable(&error))?;
    api.clone().into_client().request(request).await.map_err(WriteError::from)
}

#[cfg(test)]
mod tests;
