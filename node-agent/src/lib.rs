//! Layer 3: what GPU units does this node really have?

pub mod allocation;
pub mod config;
pub mod driver;
pub mod health;
pub mod inventory;
pub mod topology;
