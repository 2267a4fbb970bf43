//! The three programs wired into cluster-sim: `up`, `demo`, `fuzz`.

pub mod demo;
#[expect(clippy::disallowed_methods, reason = "an episode's own runtime has a thread and a time of its own")]
pub mod fuzz;
mod install;
mod machine;
pub mod objects;
pub mod stack;
pub mod up;
