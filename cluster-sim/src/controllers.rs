//! The job controllers that a training cluster has: batch Job, JobSet and Kubeflow's PyTorchJob, as far as suspending,
//! resuming, restarting and completing need them.
//!
//! Each is a pure plan (what to delete, create and report, given an object and its children) under one event loop. They
//! run from changes of the store, never by period, and write as `job-controller`, `jobset-controller` and
//! `training-operator`.

mod conditions;
mod control;
mod crds;
mod job;
mod job_counts;
mod jobset;
mod pytorch;

#[cfg(test)]
mod tests;

use crate::{ApiError, Cluster};

impl Cluster {
    /// Installs the minimal CRDs of JobSet and PyTorchJob where they are missing and starts the job controllers.
    ///
    /// # Errors
    /// When a CRD is refused.
    pub async fn start_controllers(&self) -> Result<(), ApiError> {
        crds::install(self).await?;
        control::start(self, job::Controller::default());
        control::start(self, jobset::Controller);
        control::start(self, pytorch::Controller);
        Ok(())
    }
}
