//! The fuzzer: `cargo run --release -p embedded -- fuzz --seeds 1000`.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use embedded::fuzz::campaign::{self, Campaign};

/// Deterministic simulation of the three programs on an embedded cluster.
#[derive(Parser)]
#[command(name = "embedded", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Play episodes from seeds and check the invariants after every write.
    Fuzz {
        /// How many seeds.
        #[arg(long, default_value_t = 100)]
        seeds: u64,
        /// The first seed; by default a random one.
        #[arg(long)]
        seed: Option<u64>,
        /// Switch deliberate bugs on, one at a time, and see that each is found within 1,000 seeds.
        #[arg(long)]
        planted: bool,
        /// Of the deliberate bugs, only this one; without --planted, play with it switched on.
        #[arg(long)]
        bug: Option<String>,
        /// Print every write of every episode.
        #[arg(long)]
        log: bool,
    },
}

fn main() -> ExitCode {
    let Command::Fuzz { seeds, seed, planted, bug, log } = Cli::parse().command;
    let outcome = if planted {
        campaign::planted(seed.unwrap_or(0), bug.as_deref())
    } else {
        // Which seeds are played is no decision of the programs, so chance may choose them.
        let first = seed.unwrap_or_else(|| kit::Rng::from_entropy().u64(..1 << 32));
        campaign::bug(bug.as_deref())
            .and_then(|planted| campaign::run(Campaign { first, seeds, log, planted }))
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("embedded: {error:#}");
            ExitCode::FAILURE
        }
    }
}
