//! The three programs wired into cluster-sim: `up`, `demo`, `fuzz`.

pub mod fuzz;
