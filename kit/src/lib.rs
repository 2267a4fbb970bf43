//! What the three processes share: context, client, watches, lease, admin server, TLS, telemetry.
//!
//! A program is a value: `run(Context, Config)`, with no process globals, so that three replicas of each run in one
//! test. Time, randomness and spawning come from the [`Context`] only.
//!
//! | what | where |
//! |---|---|
//! | time, randomness, tasks, services within the process | [`context`] |
//! | reading the cluster | [`watch`] |
//! | writing to it: one request, many at once, who may, how soon again, how fast | [`patch`], [`writes`], [`lease`], [`backoff`], [`pace`] |
//! | what people read | [`conditions`], [`events`], [`admin`] |
//! | being called | [`http`], [`tls`], [`front_proxy`] |
//! | a real process's edges; simulations never touch them | [`process`], [`client`], [`config`], [`telemetry`] |

pub mod admin;
pub mod backoff;
pub mod client;
pub mod conditions;
pub mod config;
pub mod context;
pub mod events;
pub mod front_proxy;
pub mod http;
pub mod lease;
pub mod pace;
pub mod patch;
pub mod process;
pub mod telemetry;
#[cfg(test)]
mod test_support;
pub mod tls;
pub mod watch;
pub mod writes;

pub use context::{Clients, Clock, Context, Identity, Rng, ServiceTable, Tasks};
