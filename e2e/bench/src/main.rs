//! How long admission takes, and what it costs: Kueue's own load against the shipped program.
//!
//! See `e2e/README.md`.

mod generator;
mod load;
mod plan;
mod report;
mod restart;
mod server;
mod stub;
mod subject;
mod usage;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::{Parser, Subcommand};
use control_plane::tools::Tools;
use serde_json::json;

use generator::Generator;
use plan::Plan;
use report::Measured;
use server::{Against, Server};
use subject::Subject;

/// Measures how workloads are admitted under a load, with the shipped admission-controller as a process of its own.
#[derive(Debug, Parser)]
#[command(name = "bench")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs the load of a generator.yaml and prints what came of it.
    Load(Load),
    /// Starts the program where there is much already, and prints how long it takes to its first decision and what memory.
    Restart {
        #[command(flatten)]
        size: restart::Size,
        /// The program to measure; without it, admission-controller beside this executable.
        #[arg(long, value_name = "FILE")]
        program: Option<PathBuf>,
    },
    /// Admits workloads by one number per cohort and nothing else: the yardstick that `load --compare stub` starts.
    #[command(hide = true)]
    Stub {
        /// How to reach the API server.
        kubeconfig: PathBuf,
    },
}

#[derive(Debug, clap::Args)]
struct Load {
    /// A generator.yaml, or the name of one of Kueue's own (baseline, tas, large-scale) where ../shared is there. Without it, a
    /// small load of our own.
    generator: Option<PathBuf>,
    /// Which API server.
    #[arg(long, value_enum, default_value = "real")]
    against: Against,
    /// Beside ours, measured in turns: `stub` (the yardstick) or `kueue` (the executable that BENCH_KUEUE names).
    #[arg(long, value_name = "WHO", value_delimiter = ',')]
    compare: Vec<Compared>,
    /// So many runs of each; the table has medians.
    #[arg(long, default_value_t = 1)]
    repeat: usize,
    /// So much of every set of workloads: 0.1 is a tenth.
    #[arg(long, default_value_t = 1.0)]
    fraction: f64,
    /// The longest that a run may take.
    #[arg(long, default_value_t = 1800, value_name = "SECONDS")]
    limit: u64,
    /// The program to measure; without it, admission-controller beside this executable.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Where to write every number of every run.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Compared {
    Stub,
    Kueue,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    // kube builds its TLS without naming a provider.
    let _already_installed = rustls::crypto::ring::default_provider().install_default();
    let run = async {
        tokio::select! {
            biased;
            _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
            outcome = run(cli.command) => outcome,
        }
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("bench: {error}");
            return ExitCode::FAILURE;
        }
    };
    let outcome = runtime.block_on(run);
    runtime.shutdown_timeout(Duration::from_secs(1));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(command: Command) -> Result<()> {
    match command {
        Command::Stub { kubeconfig } => stub::run(&kubeconfig).await,
        Command::Load(load) => load.run().await,
        Command::Restart { size, program } => {
            let folder = tempfile::Builder::new().prefix("trireme-bench-").tempdir()?;
            restart::run(size, &ours(program.as_deref())?, folder.path()).await
        }
    }
}

/// The shipped program.
fn ours(program: Option<&Path>) -> Result<Subject> {
    let program = match program {
        Some(program) => program.to_owned(),
        None => std::env::current_exe()?.with_file_name("admission-controller"),
    };
    ensure!(
        program.is_file(),
        "{} is not there: build it (cargo build --release -p admission-controller), or name another with --program",
        program.display()
    );
    Ok(Subject::Ours(program))
}

impl Load {
    async fn run(self) -> Result<()> {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
        let file = self.file(&repository)?;
        let folder = tempfile::Builder::new().prefix("trireme-bench-").tempdir()?;
        let tools = match self.against {
            Against::Sim => None,
            Against::Real => Some(server::tools(&repository, folder.path())?),
        };
        let subjects = self.subjects()?;
        let plan = self.plan(&file)?;
        println!(
            "{}: {} workloads, {} ClusterQueues, {} API server",
            file.display(),
            plan.len(),
            plan.queues,
            match self.against {
                Against::Sim => "simulated",
                Against::Real => "real",
            }
        );
        let mut runs = Vec::new();
        for round in 0..self.repeat {
            for subject in &subjects {
                let work = folder.path().join(format!("{}-{round}", subject.name()));
                let measured = self.measure(subject, &work, tools.as_ref(), &file).await?;
                println!("  {} took {:.1} s", measured.subject, measured.makespan_seconds);
                runs.push(measured);
            }
        }
        print!("{}", report::table(&runs, &plan.classes));
        if let Some(path) = &self.json {
            let all = json!({ "generator": file, "fraction": self.fraction, "runs": runs });
            std::fs::write(path, serde_json::to_vec_pretty(&all)?)
                .with_context(|| format!("writing {}", path.display()))?;
        }
        let unfinished = runs.iter().filter(|run| run.finished < run.workloads).count();
        ensure!(unfinished == 0, "{unfinished} runs did not finish within {} s", self.limit);
        Ok(())
    }

    fn file(&self, repository: &Path) -> Result<PathBuf> {
        let Some(named) = &self.generator else {
            return Ok(repository.join("e2e/bench/examples/small.yaml"));
        };
        if named.is_file() {
            return Ok(named.clone());
        }
        let known =
            repository.join("../shared/manifests/kueue/perf-configs").join(named).join("generator.yaml");
        ensure!(
            known.is_file(),
            "{} is no file, nor the name of one of Kueue's in ../shared",
            named.display()
        );
        Ok(known)
    }

    fn plan(&self, file: &Path) -> Result<Plan> {
        Ok(Plan::of(&Generator::read(file)?.scaled(self.fraction)))
    }

    fn subjects(&self) -> Result<Vec<Subject>> {
        let mut subjects = vec![ours(self.program.as_deref())?];
        for compared in &self.compare {
            match (compared, std::env::var_os(subject::OTHER)) {
                (Compared::Stub, _) => subjects.push(Subject::Stub),
                (Compared::Kueue, Some(path)) => subjects.push(Subject::Other(path.into())),
                (Compared::Kueue, None) => println!("skipped kueue: {} names no executable", subject::OTHER),
            }
        }
        Ok(subjects)
    }

    async fn measure(
        &self,
        subject: &Subject,
        work: &Path,
        tools: Option<&Tools>,
        file: &Path,
    ) -> Result<Measured> {
        let plan = self.plan(file)?;
        let (total, classes) = (plan.len(), plan.classes.clone());
        let server = Server::start(self.against, work, tools).await?;
        let ctx = server.context();
        load::set_up(&ctx, &plan).await?;
        let mut running = subject.start(work, &server.kubeconfig)?;
        running.ready().await?;
        let before = server.usage();
        let outcome = load::run(&ctx, plan, Duration::from_secs(self.limit)).await;
        let usage = running.usage()?;
        let outcome = outcome?;
        let used = server.usage().zip(before).map(|(now, before)| now.since(before));
        Ok(Measured::new(subject.name(), total, &classes, &outcome, server.writes()?, (usage, used)))
    }
}
