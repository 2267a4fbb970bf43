//! The controllers that a training cluster has: batch Job, JobSet and Kubeflow's PyTorchJob, as far as suspending,
//! resuming, restarting and completing need them; and what becomes of pods whose node is gone or does not want them.
//!
//! Each job controller is a pure plan (what to delete, create and report, given an object and its children) under one event
//! loop. All run from changes of the store, never by period, and write as `job-controller`, `jobset-controller`,
//! `training-operator`, `pod-garbage-collector` and `taint-eviction-controller`.

mod conditions;
mod control;
mod crds;
mod disruption;
mod evictions;
mod job;
mod job_counts;
mod jobset;
mod orphans;
mod pytorch;

#[cfg(test)]
mod tests;

use crate::{ApiError, Cluster};

impl Cluster {
    /// Installs the minimal CRDs of JobSet and PyTorchJob where they are missing and starts the controllers.
    ///
    /// # Errors
    /// When a CRD is refused.
    pub async fn start_controllers(&self) -> Result<(), ApiError> {
        crds::install(self).await?;
        control::start(self, job::Controller::new(self.0.keeps_start_time));
        control::start(self, jobset::Controller);
        control::start(self, pytorch::Controller);
        orphans::start(self);
        evictions::start(self);
        Ok(())
    }
}
