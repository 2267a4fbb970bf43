//! `trireme`: the whole stack on one machine, and a story told on it.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use embedded::up::{self, Options};

/// Quota, gang placement and GPUs for Kubernetes jobs.
#[derive(Parser)]
#[command(name = "trireme", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start an embedded cluster with the three programs in it, for your own manifests and kubectl.
    Up {
        #[command(flatten)]
        cluster: Cluster,
        /// Without the starter queues; custom resources are installed in either case.
        #[arg(long)]
        empty: bool,
    },
    /// The same cluster, and on it the story of four PyTorchJobs that share 24 GPUs.
    Demo {
        #[command(flatten)]
        cluster: Cluster,
        /// Tell the story to its end, then exit: with 0 only if an outside look at the API confirms every step.
        #[arg(long)]
        once: bool,
    },
}

#[derive(Args)]
struct Cluster {
    /// How many nodes.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=200))]
    nodes: u16,
    /// The GPUs of each node: 8xA100, 8xH100 or 4xL40S.
    #[arg(long, default_value = "8xA100")]
    profile: String,
    /// Where to write the kubeconfig; by default into a new temporary folder.
    #[arg(long, value_name = "PATH")]
    write_kubeconfig: Option<PathBuf>,
}

fn main() -> ExitCode {
    let (cluster, purpose) = match Cli::parse().command {
        Command::Up { cluster, empty: true } => (cluster, up::Purpose::Empty),
        Command::Up { cluster, empty: false } => (cluster, up::Purpose::StarterQueues),
        Command::Demo { cluster, once } => (cluster, up::Purpose::Story { once }),
    };
    let options = Options {
        nodes: usize::from(cluster.nodes),
        profile: cluster.profile,
        kubeconfig: cluster.write_kubeconfig,
        purpose,
    };
    match up::run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("trireme: {error:#}");
            ExitCode::FAILURE
        }
    }
}
