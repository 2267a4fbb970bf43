//! Deterministic simulation: all three programs, an API server, kubelets and job controllers in one paused runtime, with
//! faults drawn from a seed and invariants checked after every write.

pub mod campaign;
mod checks;
mod elastic;
pub mod episode;
mod estate;
mod faults;
mod fickle;
mod injector;
pub mod invariants;
mod manifests;
pub mod meddlers;
mod outage;
pub mod panics;
mod prebuilt;
mod provider;
mod rush;
pub mod scenario;
pub mod trouble;
pub mod world;
