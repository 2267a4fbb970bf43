//! v1beta1 ↔ v1beta2 of the five `kueue.x-k8s.io` kinds whose versions differ in more than bounds.
//!
//! Conversion works on JSON objects, not on the types in [`crate::api`]: a server converts whole lists, and one object with a
//! value or field this build does not know must not keep all the others from being read. What the rules do not mention passes
//! unchanged, metadata and pod templates included. The rules are Kueue's (`apis/kueue/v1beta1/*_conversion.go`).

mod cluster_queue;
mod local_queue;
mod multikueue_cluster;
mod review;
pub mod topology;
mod workload;

use serde_json::{Map, Value};

pub use review::convert_review;

use crate::names;

/// Why an object cannot be converted.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ConversionError {
    /// It is not a Kubernetes object.
    #[error("{field} is missing or not a string: every object has one")]
    NoType {
        /// `apiVersion` or `kind`.
        field: &'static str,
    },
    /// The kind has no conversion.
    #[error("{kind} is not converted here: only {} are", KINDS.join(", "))]
    UnknownKind {
        /// As the object says.
        kind: String,
    },
    /// A version that does not exist.
    #[error("{version} is not one of kueue.x-k8s.io/v1beta1 and kueue.x-k8s.io/v1beta2")]
    UnknownVersion {
        /// As the object or the request says.
        version: String,
    },
    /// A topology assignment that means nothing.
    #[error("status.admission.podSetAssignments[{index}].topologyAssignment: {error}")]
    Topology {
        /// Index of the pod set's assignment.
        index: usize,
        /// What is wrong with it.
        error: topology::TopologyError,
    },
}

/// The kinds that [`convert`] knows.
pub const KINDS: [&str; 5] = ["ClusterQueue", "Cohort", "LocalQueue", "MultiKueueCluster", "Workload"];

/// The names of their definitions: those for which the API server asks the conversion webhook.
pub fn definition_names() -> [String; 5] {
    KINDS.map(|kind| format!("{}s.{}", kind.to_lowercase(), names::kueue::GROUP))
}

/// The two versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    V1Beta1,
    V1Beta2,
}

impl Version {
    fn parse(api_version: &str) -> Result<Self, ConversionError> {
        match api_version.split_once('/') {
            Some((names::kueue::GROUP, "v1beta1")) => Ok(Self::V1Beta1),
            Some((names::kueue::GROUP, "v1beta2")) => Ok(Self::V1Beta2),
            _ => Err(ConversionError::UnknownVersion { version: api_version.to_owned() }),
        }
    }
}

/// Converts one object, in place. `desired` is an `apiVersion`; an object that has it already stays as it is.
///
/// # Errors
/// See [`ConversionError`]; the object may then be half converted.
pub fn convert(object: &mut Map<String, Value>, desired: &str) -> Result<(), ConversionError> {
    let to = Version::parse(desired)?;
    let from = Version::parse(text(object, "apiVersion")?)?;
    let kind = text(object, "kind")?;
    let rules: fn(&mut Map<String, Value>, Version) -> Result<(), ConversionError> = match kind {
        "ClusterQueue" => cluster_queue::convert,
        "Cohort" => cluster_queue::convert_cohort,
        "LocalQueue" => local_queue::convert,
        "MultiKueueCluster" => multikueue_cluster::convert,
        "Workload" => workload::convert,
        _ => return Err(ConversionError::UnknownKind { kind: kind.to_owned() }),
    };
    if from != to {
        rules(object, to)?;
        object.insert("apiVersion".into(), desired.into());
    }
    Ok(())
}

fn text<'a>(object: &'a Map<String, Value>, field: &'static str) -> Result<&'a str, ConversionError> {
    object.get(field).and_then(Value::as_str).ok_or(ConversionError::NoType { field })
}

/// The object at `path`, if there is one.
fn child<'a>(object: &'a mut Map<String, Value>, path: &[&str]) -> Option<&'a mut Map<String, Value>> {
    path.iter().try_fold(object, |object, key| object.get_mut(*key)?.as_object_mut())
}

/// The objects in the list `key`.
fn children<'a>(
    object: &'a mut Map<String, Value>,
    key: &str,
) -> impl Iterator<Item = &'a mut Map<String, Value>> + use<'a> {
    let list = object.get_mut(key).and_then(Value::as_array_mut);
    list.into_iter().flatten().filter_map(Value::as_object_mut)
}

/// Gives a field its other name. A field that says nothing (`null`, `""`) goes.
fn rename(object: &mut Map<String, Value>, from: &str, to: &str) {
    if let Some(value) = object.remove(from)
        && !value.is_null()
        && value != ""
    {
        object.insert(to.into(), value);
    }
}
