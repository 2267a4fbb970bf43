//! Layer 1's decisions, pure: cohort tree, flavors, preemption, queues, reasons.
//!
//! [`Engine`] takes [`Event`]s and the time, and answers with [`Decision`]s. It knows no API server, no clock and no
//! randomness, so the same events give the same decisions. Its rules are Kueue's (`kueue.x-k8s.io/v1beta2`); where the
//! two differ on purpose, the item says so, and `docs/differences-from-kueue.md` lists it.
//!
//! What is read first: [`input`] (what the engine is told), [`decision`] (what it answers), then `engine` (the state), `events`
//! (how it changes), `cycle` (the scheduling cycle) and `process` (one head in it), `grant` (quota given and taken back), `place`
//! (where each workload is), `assign` (flavors for one workload), `preempt` (victims), `fair` (shares) and `tree` (quota).
//! `outlook` looks closely at one workload when somebody asks why it waits.
//!
//! [`topology`] finds places for pods among the nodes of a flavor; `places` keeps who has which, and `second` is about
//! workloads that get theirs later than their quota.

mod alarms;
pub mod assign;
mod audit;
mod cycle;
pub mod decision;
mod engine;
mod events;
mod explain;
mod fair;
mod few;
mod grant;
mod history;
mod inactive;
pub mod input;
mod kept;
mod line;
mod local_queues;
mod names;
mod outlook;
mod partial;
mod place;
mod places;
mod preempt;
mod process;
mod promises;
mod queue;
pub mod reason;
mod record;
mod report;
mod second;
mod settings;
mod slices;
pub mod topology;
mod tree;
mod uid;
mod waiting;
mod workloads;

pub use decision::{
    Decision, DecisionId, Evict, EvictReason, NewReason, Outcome, PreemptionReason, Reserve, SetUnplaced,
    Unready, Withdraw,
};
pub use engine::Engine;
pub use explain::{ClusterQueueState, Explanation, WorkloadState};
pub use fair::{FairShare, FairSharing, Sharer};
pub use few::Few;
pub use history::{AdmissionFairSharing, Amounts, Consumption, History};
pub use input::Event;
pub use names::{CheckName, ClusterQueueName, CohortName, FlavorName, LocalQueueKey};
pub use outlook::{Balance, Outlook, Raise, Remedy};
pub use preempt::{Chosen, Victim};
pub use process::{Attempts, CycleCounts, Recomputation};
pub use reason::{Hindrance, Inactive, Obstacle, PendingReason};
pub use report::{ClusterQueueReport, CohortReport, FlavorUsage, LocalQueueReport};
pub use settings::{Settings, TopologySettings, Undeclared};
pub use uid::Uid;
pub use waiting::Waiting;
