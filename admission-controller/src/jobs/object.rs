//! A job of any kind, as read.

use std::borrow::Cow;

use crds::names::kueue;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::core::DynamicResourceScope;
use serde::Deserialize;
use serde_json::Value;

use super::JobKind;
use super::table::ChildSays;

/// A job of any kind, as read: its templates are copied to its Workload word for word.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct JobObject {
    /// Metadata without `managedFields`.
    #[serde(deserialize_with = "crds::view::meta::lean")]
    pub metadata: ObjectMeta,
    /// `spec`.
    pub spec: Value,
    /// `status`.
    pub status: Value,
    /// What the object says of its pods that the job's controller made of it, for kinds that have one.
    #[serde(skip)]
    pub child: Value,
}

impl JobObject {
    /// What a JSON pointer that begins with `/spec`, `/status` or `/child` leads to.
    pub fn at(&self, pointer: &str) -> Option<&Value> {
        if let Some(rest) = pointer.strip_prefix("/child") {
            return self.child.pointer(rest);
        }
        if let Some(rest) = pointer.strip_prefix("/spec") {
            return self.spec.pointer(rest);
        }
        self.status.pointer(pointer.strip_prefix("/status")?)
    }

    /// The text that a JSON pointer leads to; empty where there is none.
    pub fn text(&self, pointer: &str) -> &str {
        self.at(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// How many entries the list has that a JSON pointer leads to.
    pub fn length(&self, pointer: &str) -> usize {
        self.at(pointer).and_then(Value::as_array).map_or(0, Vec::len)
    }

    /// Whether its pods are described in an object that is not there yet.
    pub fn awaits_child(&self, kind: &JobKind) -> bool {
        kind.child.as_ref().is_some_and(|child| child.says == ChildSays::All) && self.child.is_null()
    }

    /// Whether it uses what others run, and so asks for no quota.
    pub fn runs_elsewhere(&self, kind: &JobKind) -> bool {
        let there = kind.elsewhere.and_then(|at| self.at(at));
        there.is_some_and(|there| there.as_object().is_some_and(|map| !map.is_empty()))
    }

    /// A label's value.
    pub fn label(&self, name: &str) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(name).map(String::as_str)
    }

    /// The LocalQueue it was submitted to.
    pub fn queue(&self) -> Option<&str> {
        self.label(kueue::QUEUE_NAME).filter(|name| !name.is_empty())
    }

    /// The uid; empty where the object has none.
    pub fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }
}

/// The group of an `apiVersion`; that of the core group is empty.
pub(crate) fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// The controller of an object, if it has one.
pub(crate) fn controller_of(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

/// What Go takes for a truth value.
pub(crate) fn is_true(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// Which kind an [`Api`](kube::Api) of jobs is about.
#[derive(Clone, Copy, Debug)]
pub struct JobResource {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
}

impl Default for JobResource {
    /// Jobs of no kind in particular: for logs and metrics of watches.
    fn default() -> Self {
        Self { group: "", version: "", kind: "job", plural: "jobs" }
    }
}

impl From<&JobKind> for JobResource {
    fn from(kind: &JobKind) -> Self {
        Self { group: kind.group, version: kind.version, kind: kind.kind, plural: kind.plural }
    }
}

impl kube::Resource for JobObject {
    type DynamicType = JobResource;
    type Scope = DynamicResourceScope;

    fn kind(resource: &JobResource) -> Cow<'_, str> {
        resource.kind.into()
    }
    fn group(resource: &JobResource) -> Cow<'_, str> {
        resource.group.into()
    }
    fn version(resource: &JobResource) -> Cow<'_, str> {
        resource.version.into()
    }
    fn plural(resource: &JobResource) -> Cow<'_, str> {
        resource.plural.into()
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
