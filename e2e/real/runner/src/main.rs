//! Runs the programs against a real Kubernetes and counts what holds.
//!
//! `e2e/real/run` builds what is needed and starts this. Every process started here is noted in `<work>/pids`, so that the
//! wrapper ends them however this program ends.

mod cluster;
mod helm;
mod kubeflow;
mod kueue;
mod node;
mod programs;
mod registry;
mod service;
mod stack;
mod tests;
mod webhooks;
mod world;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use control_plane::{pki, process, tools};

/// Runs the programs against a real Kubernetes. Start it through e2e/real/run.
#[derive(Debug, Parser)]
pub(crate) struct Options {
    /// Folder for everything this run writes: certificates, logs, etcd's data.
    #[arg(long)]
    pub(crate) work: PathBuf,
    /// File with a `NAME PATH` line for each Kubernetes binary, as e2e/real/build prints them.
    #[arg(long)]
    pub(crate) tools: PathBuf,
    /// Folder with the project's own binaries.
    #[arg(long)]
    pub(crate) programs: PathBuf,
    /// Root of the repository.
    #[arg(long)]
    pub(crate) repository: PathBuf,
    /// Runs only tests whose name contains one of these.
    pub(crate) only: Vec<String>,
    /// Starts the control plane, prints where its kubeconfig is, and waits for Ctrl-C.
    #[arg(long)]
    pub(crate) hold: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    let run = async {
        tokio::select! {
            biased;
            _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
            outcome = registry::run(options) => outcome,
        }
    };
    match run.await {
        Ok(counts) => {
            println!("{} passed, {} failed, {} skipped", counts.passed, counts.failed, counts.skipped);
            if counts.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
