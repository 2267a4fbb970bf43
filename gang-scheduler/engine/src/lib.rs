//! Layer 2's decisions, pure: nodes, filters, gangs, reasons.
//!
//! One [`Engine`] holds everything that placing pods depends on. The program feeds it what the API server says
//! ([`Engine::apply`]) and asks it what to do ([`Engine::decide`]). It knows neither Kubernetes' client nor a clock nor
//! chance: the same events and times give the same decisions, byte for byte.
//!
//! The rules in short:
//! - A gang is decided at once: all its members get a node in one decision, or none does (below its minimum).
//! - What was decided counts as used from that moment ([`Decision::Place`] is *assumed*) until the API server has
//!   refused it, or the pod is gone.
//! - Order: gangs that already run and lost members first, then priority (highest first), creation (oldest first), and
//!   last the gang's id.
//! - A node is judged by the table in [`filters`]; the first filter that fails is the node's reason, and the histogram
//!   of reasons is what the user reads.
//!
//! ```
//! use placement_engine::{Config, Engine};
//! let mut engine = Engine::new(Config::default());
//! assert!(engine.decide(0).is_empty());
//! ```

mod devices;
mod engine;
mod event;
pub mod filters;
mod gang;
mod ids;
mod nodes;
mod reason;
mod shape;
mod solve;

pub use devices::{Device, DeviceChoice, Link};
pub use engine::{Config, Decision, Engine, GangReport, Pending, Placement, Plan, Undo, Waiting};
pub use event::{Event, GangSpec, NodeInfo, PodInfo, PodPhase};
pub use ids::{GangId, PodUid};
pub use reason::{Hold, NoFit, NodeReason, Refusal, Unsupported, Why};
pub use shape::{HostPort, PodRules};
