//! The three programs wired into cluster-sim: `up`, `demo`, `fuzz`.

pub mod demo;
pub mod fuzz;
mod install;
mod machine;
pub mod objects;
pub mod stack;
pub mod up;
