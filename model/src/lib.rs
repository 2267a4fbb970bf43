//! What the engines share: quantities, resource vectors, selectors, taints.
//!
//! Pure data and pure functions: no clock, no input or output, no Kubernetes client. The types are shaped as Kubernetes
//! writes them in JSON, so that the lean views of `crds` embed them as they are.

pub mod quantity;
pub mod resources;

pub use quantity::Quantity;
pub use resources::{ResourceList, ResourceName};
