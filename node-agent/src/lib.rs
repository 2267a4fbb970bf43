//! Layer 3: what GPU units does this node really have?
//!
//! One task changes the [`inventory`] as the [`driver`] reports; the device plugin, the `GpuNode` object and the Node's
//! labels are readers of it. What is decided is decided by pure functions: [`health`], [`allocation`], [`labels`].

pub mod allocation;
pub mod cdi;
pub mod config;
pub mod driver;
pub mod gpu_node;
pub mod health;
pub mod inventory;
pub mod labels;
pub mod metrics;
mod monitor;
mod placement;
mod plugin;
mod publish;
mod registration;
mod run;
pub mod topology;

pub use run::{Config, Error, run};
