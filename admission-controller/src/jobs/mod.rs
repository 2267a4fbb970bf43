//! Kinds of jobs, as data: where each keeps what admission needs, and how it is started and stopped.
//!
//! A kind is one entry of [`table`]. Beside it only Kueue's own lists know kinds by name: its frameworks, its webhooks, and what
//! AppWrappers' operator knows.

mod added;
mod components;
mod declared;
mod ended;
mod head;
mod object;
mod patch;
mod ranks;
mod read;
mod ready;
mod schedulers;
mod shape;
mod start;
mod submitter;
pub mod table;

pub(crate) use added::begin_runtime_patches;
pub use object::{JobObject, JobResource};
pub(crate) use object::{controller_of, group_of, is_true};
pub use patch::merge_diff;
pub use ranks::{Ranks, ranks};
pub use read::{
    Finish, JobPodSet, JobView, MAX_POD_SETS, comes_in_stages, field, of_child, parallel, read, templates,
};
pub use ready::are_ready;
pub(crate) use schedulers::is_unchosen;
pub use schedulers::{other_scheduler, other_schedulers};
pub(crate) use start::set;
pub use start::{
    Conflict, Fields, Terms, add_gate, additions, as_written, granted, has_begun, is_marked, is_marked_by,
    is_placed, missing_flavor, restore, start, stop,
};
pub(crate) use table::Added;
pub use table::{JobKind, KindId, TABLE, WhenDeleted};
