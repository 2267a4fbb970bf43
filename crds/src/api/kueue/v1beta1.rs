//! `kueue.x-k8s.io/v1beta1`, served for those who still write it; [`crate::conversion`] translates.

mod cluster_queue;
mod local_queue;
mod multikueue;
mod plain;
mod workload;

pub use cluster_queue::*;
pub use local_queue::*;
pub use multikueue::*;
pub use plain::*;
pub use workload::*;
