//! Runs the cases of a folder and says how many went as the peer's.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use conformance::{Case, Differences, Outcome, Report, kueue};

/// Hold the peers' own tables against this project.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    suite: Suite,
}

#[derive(Debug, Subcommand)]
enum Suite {
    /// Kueue's: queues, preemption, flavors, topology, validation, conversion.
    Kueue {
        /// The folder with the JSONL files.
        folder: PathBuf,
        /// Only cases whose file or name contains this, each with its difference.
        #[arg(long)]
        case: Option<String>,
    },
}

fn main() -> ExitCode {
    let Suite::Kueue { folder, case } = Arguments::parse().suite;
    match run(&folder, case.as_deref()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("conformance: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether everything that differs is known to.
fn run(folder: &std::path::Path, filter: Option<&str>) -> anyhow::Result<bool> {
    let mut cases = Case::load(folder)?;
    if let Some(text) = filter {
        cases.retain(|case| case.file.contains(text) || case.name.contains(text));
    }
    anyhow::ensure!(!cases.is_empty(), "no such case in {}", folder.display());
    let report = Report::of(&cases, kueue::run);
    let known = Differences::parse(kueue::KNOWN_DIFFERENCES);
    for (file, name, outcome) in &report.outcomes {
        let Outcome::Failed(difference) = outcome else {
            if filter.is_some() {
                println!(
                    "{}  {file}  {name}",
                    if *outcome == Outcome::Passed { "ok     " } else { "skipped" }
                );
            }
            continue;
        };
        match known.reason(file, name) {
            Some(reason) if filter.is_none() => println!("differs  {file}  {name}: {reason}"),
            _ => println!("FAILED   {file}  {name}\n{}", indented(difference)),
        }
    }
    for (family, counts) in report.families() {
        println!(
            "{family:<16} {} passed, {} failed, {} skipped",
            counts.passed, counts.failed, counts.skipped
        );
    }
    let total = report.total();
    println!("{} passed, {} failed, {} skipped", total.passed, total.failed, total.skipped);
    Ok(match filter {
        Some(_) => total.failed == 0,
        None => known.untrue(&report).is_empty(),
    })
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n")
}
