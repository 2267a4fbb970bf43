//! What the three processes share: context, client, watches, lease, admin server, TLS, telemetry.
//!
//! A program is a value: `run(Context, Config)`, with no process globals, so that three replicas of each run in one
//! test. Time, randomness and spawning come from the [`Context`] only.

pub mod backoff;
pub mod context;
pub mod patch;
pub mod watch;

pub use context::{Clients, Clock, Context, Identity, Rng, ServiceTable, Tasks};
