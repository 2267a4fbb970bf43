//! `trireme`: the whole stack on one machine, and a story told on it.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use embedded::demo;
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
        /// How many nodes.
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=200))]
        nodes: u16,
        /// The GPUs of each node: 8xA100, 8xH100 or 4xL40S.
        #[arg(long, default_value = "8xA100")]
        profile: String,
        #[command(flatten)]
        access: Access,
        /// Without the starter queues; custom resources are installed in either case.
        #[arg(long)]
        empty: bool,
    },
    /// The same cluster, of three nodes of eight GPUs, and on it the story of four PyTorchJobs that share them.
    Demo {
        #[command(flatten)]
        access: Access,
        /// Tell the story to its end, then exit: with 0 only if an outside look at the API confirms every step.
        #[arg(long)]
        once: bool,
    },
}

#[derive(Args)]
struct Access {
    /// Where to write the kubeconfig; by default into a new temporary folder.
    #[arg(long, value_name = "PATH")]
    write_kubeconfig: Option<PathBuf>,
}

fn main() -> ExitCode {
    let options = match Cli::parse().command {
        Command::Up { nodes, profile, access, empty } => Options {
            nodes: nodes.into(),
            profile,
            kubeconfig: access.write_kubeconfig,
            purpose: if empty { up::Purpose::Empty } else { up::Purpose::StarterQueues },
        },
        Command::Demo { access, once } => Options {
            nodes: demo::NODES,
            profile: demo::PROFILE.to_owned(),
            kubeconfig: access.write_kubeconfig,
            purpose: up::Purpose::Story { once },
        },
    };
    match up::run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("trireme: {error:#}");
            ExitCode::FAILURE
        }
    }
}
