//! `gang-scheduler`: places the pods of a job together, or none of them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use gang_scheduler::Config;
use kit::http::EVERYWHERE;

/// Beside admission-controller's 8081 and node-agent's 8083, so that all three can share a host.
const ADMIN_ADDRESS: SocketAddr = SocketAddr::new(EVERYWHERE, 8082);

/// Places the pods of a job together, or none of them: for pods whose schedulerName is one of those configured
/// (trireme, volcano, kai-scheduler, kube-batch and ml-scheduler without a file).
#[derive(Parser)]
#[command(name = "gang-scheduler", version)]
struct Cli {
    #[command(flatten)]
    process: kit::process::Args,
    /// Configuration file (YAML). Without it every setting has its default.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where health, metrics and state are served, over plain HTTP; beats the file's adminAddress. [default: [::]:8082]
    #[arg(long, value_name = "ADDRESS")]
    admin_address: Option<SocketAddr>,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let config = match &cli.config {
        Some(path) => Config::read(path),
        None => Ok(Config::default()),
    };
    let mut config = match config {
        Ok(config) => config,
        Err(error) => {
            eprintln!("gang-scheduler: {error}");
            return ExitCode::from(2);
        }
    };
    config.admin_address = cli.admin_address.or(config.admin_address).or(Some(ADMIN_ADDRESS));
    kit::process::run("gang-scheduler", &cli.process, move |ctx| gang_scheduler::run(ctx, config))
}
