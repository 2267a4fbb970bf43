//! `batch/v1` Job, for its place in an owner chain alone.

use super::meta::view;

view! {
    /// A Job's metadata: a JobSet's pods belong to Jobs, and only those to the JobSet.
    pub struct JobOwner("Job", "batch", "v1", "jobs", NamespaceResourceScope) {
    }
}
