//! `scheduling.volcano.sh/v1beta1`. Field names, defaults and bounds are Volcano's (`apis/scheduling/v1beta1/types.go`).

mod pod_group;
mod queue;

pub use pod_group::*;
pub use queue::*;
