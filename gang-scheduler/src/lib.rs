//! Layer 2: can all its pods land together, well?
//!
//! Groups the pods of a gang ([`grouping`]), has the `placement-engine` find places for all of them at once, makes the
//! plan durable as a `GangPlacement`, binds, and brings to an end whatever a crash interrupted ([`protocol`]). Everything
//! that decides is pure ([`core`]); the shell only watches and writes.

pub mod config;
pub mod core;
pub mod grouping;
mod metrics;
pub mod protocol;
mod run;
mod shell;
pub mod words;

pub use config::Config;
pub use run::{Error, run};
