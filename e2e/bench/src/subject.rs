//! Who is measured: a process of its own that admits workloads.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use control_plane::page;
use control_plane::process::{Process, free_port};

use crate::usage::Usage;

/// Names an executable that admits Workloads, a Kueue say: it is started with `KUBECONFIG` in its environment and measured
/// beside the others.
pub(crate) const OTHER: &str = "BENCH_KUEUE";

/// From when it is ready, so long until the load begins: who has no page to ask is ready by then, and the API server, which has
/// only just got the definitions and the queues, is done with what these make it do. It is the same for everyone who is measured.
const SETTLE: Duration = Duration::from_secs(8);

/// Who.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// The shipped program, this executable.
    Ours(PathBuf),
    /// The yardstick: [`crate::stub`].
    Stub,
    /// What [`OTHER`] names.
    Other(PathBuf),
}

impl Subject {
    /// A word for tables.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Ours(_) => "ours",
            Self::Stub => "stub",
            Self::Other(_) => "kueue",
        }
    }

    /// Starts it.
    pub(crate) fn start(&self, work: &Path, kubeconfig: &Path) -> Result<Running> {
        let mut admin = None;
        let mut command = match self {
            Self::Ours(binary) => {
                let port = free_port()?;
                admin = Some(port);
                let config = work.join("configuration.yaml");
                std::fs::write(&config, format!("webhook:\n  port: {}\n", free_port()?))?;
                let mut command = Command::new(binary);
                command.arg("--config").arg(config);
                command.arg("--kubeconfig").arg(kubeconfig);
                command.args(["--admin-address", &format!("127.0.0.1:{port}"), "--log-format", "text"]);
                command
            }
            Self::Stub => {
                let mut command = Command::new(std::env::current_exe().context("where this program is")?);
                command.arg("stub").arg(kubeconfig);
                command
            }
            Self::Other(binary) => {
                let mut command = Command::new(binary);
                command.env("KUBECONFIG", kubeconfig);
                command
            }
        };
        let process = Process::start(work, self.name(), &mut command)?;
        Ok(Running { process, admin })
    }
}

/// A subject that runs; it is killed when dropped.
pub(crate) struct Running {
    process: Process,
    /// Where it serves its pages, if it does.
    admin: Option<u16>,
}

impl Running {
    /// Waits until it is ready, and everything has settled.
    pub(crate) async fn ready(&mut self) -> Result<()> {
        if let Some(port) = self.admin {
            self.says_so(port).await?;
        }
        tokio::time::sleep(SETTLE).await;
        self.process.alive()
    }

    async fn says_so(&mut self, port: u16) -> Result<()> {
        for _ in 0..600 {
            self.process.alive()?;
            if page(port, "/readyz").await.is_ok_and(|(status, _)| status == 200) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        bail!("not ready after 60 s; the end of its log:\n{}", self.process.log_end(15))
    }

    /// What it has used so far.
    ///
    /// # Errors
    /// With the end of its log when it has ended.
    pub(crate) fn usage(&mut self) -> Result<Usage> {
        self.process.alive()?;
        Usage::of(self.process.id()).context("it has just ended")
    }
}
