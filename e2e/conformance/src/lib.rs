//! Behaviour of the peers as data, held against the engines and the API layer.
//!
//! A suite is a folder of JSONL files, one case a line; a file is named `<family>.<test>`. Each test has one runner, a
//! function from a case to [`Verdict`]. Sentences are never compared; tokens, names, numbers and placements are.

mod case;
mod differences;
pub mod kueue;
mod report;

pub use case::{Case, Runner, Verdict};
pub use differences::Differences;
pub use report::{Family, Outcome, Report};
