//! The three programs wired into cluster-sim: `up`, `demo`, `fuzz`.
//!
//! `stack` is the wiring, `objects` what is submitted. In `fuzz`, an invariant is an entry of `SAFETY` (`fuzz/invariants/mod.rs`), a fault
//! one of `fuzz/trouble.rs` or `faults.rs`, and a deliberate bug a variant of `model::planted::Bug`.

pub mod demo;
#[expect(clippy::disallowed_methods, reason = "an episode's own runtime has a thread and a time of its own")]
pub mod fuzz;
mod install;
mod machine;
pub mod objects;
pub mod stack;
pub mod up;
