//! `kueue.x-k8s.io/v1beta2`, the stored version.

mod admission_check;
mod cluster_queue;
mod cohort;
mod local_queue;
mod multikueue;
mod priority_class;
mod provisioning;
mod quota;
mod resource_flavor;
mod topology;
mod topology_assignment;
mod workload;
mod workload_status;

pub use admission_check::*;
pub use cluster_queue::*;
pub use cohort::*;
pub use local_queue::*;
pub use multikueue::*;
pub use priority_class::*;
pub use provisioning::*;
pub use quota::*;
pub use resource_flavor::*;
pub use topology::*;
pub use topology_assignment::*;
pub use workload::*;
pub use workload_status::*;
