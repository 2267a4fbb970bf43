//! `trireme.dev/v1alpha1`: the plan of a gang and the GPUs of a node.

mod gang_placement;
mod gpu_node;

pub use gang_placement::*;
pub use gpu_node::*;
