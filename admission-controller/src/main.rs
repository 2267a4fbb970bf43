//! `admission-controller`: decides whether jobs may take their share of quota.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use admission_controller::config::Webhooks;
use admission_controller::{Config, Configuration, takeover};
use clap::Parser;
use kit::http::Listen;
use kit::process;

/// Decides whether jobs may take their share of quota: suspends them, admits them through the ClusterQueues of
/// kueue.x-k8s.io, and starts them.
#[derive(Parser)]
#[command(name = "admission-controller", version)]
struct Cli {
    #[command(flatten)]
    process: process::Args,
    /// Configuration file: Kueue's Configuration, in YAML. Without it the defaults hold.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where health, metrics and state are served, over plain HTTP.
    #[arg(long, default_value = "0.0.0.0:8081", value_name = "ADDRESS")]
    admin_address: SocketAddr,
    /// Whether other replicas may run: then the one that holds the lease writes.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    leader_elect: bool,
    /// Undoes takeOver and ends: webhooks, conversion and visibility go to Kueue again. Start Kueue before, stop this program after.
    #[arg(long)]
    hand_back: bool,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let file = match cli.config.as_deref().map(Configuration::read).transpose() {
        Ok(file) => file.unwrap_or_default(),
        Err(error) => {
            eprintln!("admission-controller: {error}");
            return ExitCode::from(2);
        }
    };
    if cli.hand_back {
        return process::run("admission-controller", &cli.process, move |ctx| takeover::hand_back(ctx, file));
    }
    let config = Config {
        webhooks: Webhooks::OwnCertificates(SocketAddr::from(([0, 0, 0, 0], file.webhook.port))),
        admin: Some(Listen::Plain(cli.admin_address)),
        leader_election: cli.leader_elect,
        file,
        ..Config::default()
    };
    process::run("admission-controller", &cli.process, move |ctx| admission_controller::run(ctx, config))
}
