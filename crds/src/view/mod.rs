//! Lean read-only structs: what a watch decodes into before the index interns it.
//!
//! One file per watched kind. A view names only the fields its reader uses, so that decoding skips the rest; nothing
//! here is ever written back (patches are built from what is to change, not from a view).

pub use gang_placement::{GangPlacement, GangPlacementSpec, GangPlacementStatus, PlacedMember};
pub use gpu_node::{GpuNode, GpuNodeDevices, GpuNodeDevicesStatus, PlacedDevice};
pub use job_owner::JobOwner;
pub use node::{Node, NodeCondition, NodeSpec, NodeStatus};
pub use pod::{
    Affinity, Container, ContainerPort, NodeAffinity, Pod, PodAffinity, PodSpec, PodStatus, SchedulingGroup,
    TopologySpreadConstraint, Volume,
};
pub use pod_group::{NetworkTopology, PodGroup, PodGroupSpec, PodGroupStatus};
pub use runs::Runs;
pub use workload_placement::{
    AdmittedCounts, AdmittedDomains, AdmittedPlaces, AdmittedPodSet, WorkloadAdmission, WorkloadCondition,
    WorkloadPlacement, WorkloadPlacementSpec, WorkloadPlacementStatus, WorkloadPodSet,
};

pub mod admission_check;
pub mod cluster_queue;
pub mod cohort;
pub mod flavor;
mod gang_placement;
mod gpu_node;
mod job_owner;
pub mod limits;
pub mod local_queue;
pub mod meta;
pub mod namespace;
mod node;
pub mod placed_pod;
mod pod;
mod pod_group;
pub mod priority;
pub mod provisioning;
pub mod quota;
mod runs;
pub mod topology;
pub mod workload;
mod workload_placement;
