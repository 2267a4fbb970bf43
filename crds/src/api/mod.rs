//! Full API types: what schemas are generated from, what conversion works on, what the command line prints.

pub mod kueue;
mod object;
pub mod trireme;
pub mod volcano;

pub use object::{ApiVersion, Kind};

/// A quantity as it was written.
pub use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
/// One observation of an object's state, as `metav1.Condition` has it.
pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
/// Wall-clock time with seconds, as `metav1.Time` has it.
pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
