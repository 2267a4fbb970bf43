//! Status patches: what is written to Workloads and queues, as merge patches.

mod conditions;
mod eviction;
mod gates;
mod queues;
mod workload;

pub use conditions::{Change, is_said, merged, whole_second};
pub use eviction::{
    deactivation_target, evicted, forgotten, inactive, put_off, released, with_release, withdrawn,
    without_leftovers,
};
pub use gates::gates;
pub use queues::{cluster_queue, cohort, is_current, local_queue};
pub use workload::{
    finished, introduced, listed, off_hold, on_hold, pending, pods_ready, reclaimable, replaced, reservation,
    reserved, synced, synced_as, with_condition,
};
