//! What the engines share: quantities, resource vectors, selectors, taints, reasons.
//!
//! Pure data and pure functions: no clock, no input or output, no Kubernetes client. The types are shaped as Kubernetes
//! writes them in JSON, so that the lean views of `crds` embed them as they are. Beside them: values that many objects share
//! ([`pool`]), fields that few have ([`rare`]), and the deliberate bugs that the fuzzer has to find ([`planted`]).

pub mod duration;
pub mod node;
pub mod planted;
pub mod pod;
pub mod pool;
pub mod quantity;
pub mod rare;
pub mod reasons;
pub mod resources;
pub mod selector;

pub use quantity::Quantity;
pub use resources::{ResourceList, ResourceName};

/// Reads an absent or null field as its default: Kubernetes objects carry nulls where Go had nil.
pub fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + serde::Deserialize<'de>,
{
    Ok(<Option<T> as serde::Deserialize>::deserialize(deserializer)?.unwrap_or_default())
}
