//! A real etcd and kube-apiserver as host processes on free ports, with what signs for them.
//!
//! Every process started here is noted in `<work>/pids`, so that a wrapper can end them however the program ends.

mod page;
pub mod pki;
mod plane;
pub mod process;
pub mod tools;

pub use page::page;
pub use plane::{ControlPlane, REPLICAS, Request, Right, SERVICE_RANGE, client};
