//! Status patches: what is written to Workloads and queues, as merge patches.

mod conditions;
mod queues;
mod workload;

pub use conditions::{Change, merged};
pub use queues::{cluster_queue, cohort, local_queue};
pub use workload::{
    evicted, finished, on_hold, pending, put_off, reclaimable, released, replaced, reservation, reserved,
    synced, with_condition, without_checks,
};
