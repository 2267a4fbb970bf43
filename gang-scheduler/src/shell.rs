//! The program's hands: watches in, writes out. Decides nothing.

mod watches;
mod writing;

pub(crate) use watches::Watches;
pub(crate) use writing::{outcome_of, send};
