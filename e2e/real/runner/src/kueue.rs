//! Kueue beside our program: the manager itself, or a stand-in that writes what it writes for plain Jobs.

mod manager;
mod stand_in;

use anyhow::{Context as _, Result};
use control_plane::ControlPlane;
use kube::Client;

use manager::Manager;

/// Where it lives.
pub(crate) const NAMESPACE: &str = "kueue-system";
/// The Service that its webhooks and its conversion are asked at.
pub(crate) const SERVICE: &str = "kueue-webhook-service";
/// Its Lease.
pub(crate) const LEASE: &str =
    "/apis/coordination.k8s.io/v1/namespaces/kueue-system/leases/c1f6bfd2.kueue.x-k8s.io";

/// What acts as Kueue.
pub(crate) enum Kueue {
    /// The manager, by its binary.
    Manager(Manager),
    /// What writes as it does.
    StandIn { client: Client, pods: usize, running: Option<kit::Tasks> },
}

impl Kueue {
    /// The manager of this binary.
    pub(crate) fn manager(binary: &std::path::Path, work: &std::path::Path, plane: &ControlPlane) -> Self {
        Self::Manager(Manager::new(binary, work, plane))
    }

    /// A stand-in with quota for so many pods.
    pub(crate) fn stand_in(plane: &ControlPlane, pods: usize) -> Self {
        Self::StandIn { client: plane.client.clone(), pods, running: None }
    }

    /// Whether it answers reviews; the stand-in has nobody who would.
    pub(crate) fn serves(&self) -> bool {
        matches!(self, Self::Manager(_))
    }

    /// Starts it and waits until it answers; it acts when it has the Lease.
    pub(crate) async fn start(&mut self) -> Result<()> {
        match self {
            Self::Manager(manager) => manager.start().await,
            Self::StandIn { client, pods, running } => {
                let tasks = kit::Tasks::new();
                tasks.spawn(stand_in::run(client.clone(), *pods, tasks.clone()));
                *running = Some(tasks);
                Ok(())
            }
        }
    }

    /// Ends it; it lets go of the Lease.
    pub(crate) async fn stop(&mut self) -> Result<()> {
        match self {
            Self::Manager(manager) => manager.stop().await,
            Self::StandIn { client, running, .. } => {
                let tasks = running.take().context("it runs")?;
                tasks.stop();
                tasks.ended().await;
                stand_in::release(client).await
            }
        }
    }

    /// The end of what it logged.
    pub(crate) fn log_end(&self) -> String {
        match self {
            Self::Manager(manager) => manager.log_end(),
            Self::StandIn { .. } => String::new(),
        }
    }
}
