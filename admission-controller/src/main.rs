//! `admission-controller`: decides whether jobs may take their share of quota.

use std::fs::File;
use std::io::{BufReader, LineWriter};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use admission_controller::config::Webhooks;
use admission_controller::shadow::Summary;
use admission_controller::{Config, Configuration, shadow, takeover};
use clap::Parser;
use kit::http::{EVERYWHERE, Listen};
use kit::process;

/// What is decoded lives for a moment beside what is kept for long: the system's allocator has a seventh of its memory in gaps
/// between them, and takes more time (ARCHITECTURE.md, Notes).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

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
    #[arg(long, default_value = "[::]:8081", value_name = "ADDRESS")]
    admin_address: SocketAddr,
    /// Whether other replicas may run: then the one that holds the lease writes.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    leader_elect: bool,
    /// Undoes takeOver and ends: webhooks, conversion and visibility go to Kueue again, and what was written to Workloads is Kueue's. Start
    /// Kueue before, stop this program after.
    #[arg(long, group = "instead")]
    hand_back: bool,
    /// Decides beside a Kueue that runs, writes nothing, and tells on standard output and in metrics what would be different.
    #[arg(long, group = "instead")]
    shadow: bool,
    /// The same on a recorded stream of events; no cluster is asked.
    #[arg(long, value_name = "FILE", group = "instead")]
    replay: Option<PathBuf>,
    /// Records that stream from a cluster until it is interrupted.
    #[arg(long, value_name = "FILE", group = "instead")]
    record: Option<PathBuf>,
    /// How many seconds Kueue has for doing what would be done here, before --shadow and --replay tell of it.
    #[arg(long, default_value_t = shadow::PATIENCE.as_secs(), value_name = "SECONDS")]
    patience: u64,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let path = cli.config.as_deref();
    let read = path.map_or_else(|| Ok(Configuration::default()), Configuration::read);
    let asked = |file: Configuration| {
        file.with_leader_election(path.unwrap_or_else(|| Path::new("")), cli.leader_elect)
    };
    let file = match read.and_then(asked) {
        Ok(file) => file,
        Err(error) => {
            eprintln!("admission-controller: {error}");
            return ExitCode::from(2);
        }
    };
    if cli.hand_back {
        return process::run("admission-controller", &cli.process, move |ctx| takeover::hand_back(ctx, file));
    }
    let patience = Duration::from_secs(cli.patience);
    if cli.shadow {
        let admin = Some(Listen::Plain(cli.admin_address));
        return process::run("admission-controller", &cli.process, move |ctx| {
            shadow::run(ctx, file, admin, patience, Box::new(std::io::stdout()))
        });
    }
    if let Some(path) = cli.replay {
        return replay(&file, &path, patience);
    }
    if let Some(path) = cli.record {
        return match File::create(&path) {
            Ok(output) => process::run("admission-controller", &cli.process, move |ctx| {
                shadow::recording::record(ctx, LineWriter::new(output))
            }),
            Err(error) => complain(&path, &error),
        };
    }
    let config = Config {
        webhooks: Webhooks::OwnCertificates(SocketAddr::new(EVERYWHERE, file.webhook.port)),
        admin: Some(Listen::Plain(cli.admin_address)),
        file,
        ..Config::default()
    };
    process::run("admission-controller", &cli.process, move |ctx| admission_controller::run(ctx, config))
}

fn replay(config: &Configuration, path: &Path, patience: Duration) -> ExitCode {
    // Nothing else of a replay is logged, and its decisions may differ for these.
    for notice in config.notices.iter().filter(|notice| notice.unsupported) {
        eprintln!("admission-controller: {}: {}", notice.field, notice.words);
    }
    let recording = match File::open(path) {
        Ok(recording) => BufReader::new(recording),
        Err(error) => return complain(path, &error),
    };
    match shadow::replay(config, recording, patience, Box::new(std::io::stdout())) {
        Ok(summary) => {
            let Summary { same, different, open } = summary;
            println!("{same} decisions are the same, {different} differ, {open} were open at the end");
            ExitCode::SUCCESS
        }
        Err(error) => complain(path, &error),
    }
}

fn complain(path: &Path, error: &dyn std::error::Error) -> ExitCode {
    eprintln!("admission-controller: {}: {error}", path.display());
    ExitCode::from(2)
}
