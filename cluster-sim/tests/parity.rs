//! The api-parity suite against the simulated server: the same cases that `e2e/real/run` holds the real one to.

use std::panic::catch_unwind;
use std::process::ExitCode;
use std::sync::Arc;

use api_parity::{Harness, Needs, WebhookHost, answer_review, cases};
use axum::Json;
use axum::extract::Request;
use axum::routing::post;
use cluster_sim::{Cluster, SimConfig};
use jiff::Timestamp;
use kit::{Clock, Rng, ServiceTable, Tasks};
use serde_json::{Value, json};

/// Cases that the simulated server does not pass, each with the reason why that is accepted.
const ACCEPTED: &[(&str, &str)] = &[(
    "pods_of_a_job_name_it_as_their_controller",
    "the simulated Job controller counts pods as they end and needs no finalizer to see them",
)];

struct Webhooks;

impl WebhookHost for Webhooks {
    fn client_config(&self, path: &str) -> Value {
        json!({ "service": { "namespace": "parity", "name": "webhooks", "path": path }, "caBundle": "" })
    }
}

fn services() -> ServiceTable {
    let answer = |request: Request| async move {
        let path = request.uri().path().to_owned();
        let bytes = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap_or_default();
        let review: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        Json(answer_review(&path, &review))
    };
    let services = ServiceTable::new();
    services.register("parity", "webhooks", "one", axum::Router::new().route("/{*path}", post(answer)));
    services
}

fn run(case: api_parity::Case) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
    runtime.block_on(async {
        let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse::<Timestamp>()?);
        let cluster = Cluster::new(SimConfig::new(clock, Tasks::new(), Rng::seeded(1), services()));
        if case.needs == Needs::Controllers {
            cluster.start_controllers().await?;
        }
        let harness = Harness::new(cluster.client_as("parity"), "a").await?.with_webhooks(Arc::new(Webhooks));
        case.run(harness).await
    })
}

/// What cargo's arguments ask for, as Rust's own harness takes them; what concerns threads, colours and output is left out.
#[derive(Debug, Default)]
struct Wanted {
    list: bool,
    exact: bool,
    /// Only tests that `#[ignore]` holds back, of which there are none.
    ignored: bool,
    names: Vec<String>,
    not: Vec<String>,
}

impl Wanted {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Self {
        let mut wanted = Self::default();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--list" => wanted.list = true,
                "--exact" => wanted.exact = true,
                "--ignored" => wanted.ignored = true,
                "--skip" => wanted.not.extend(arguments.next()),
                "--test-threads" | "--format" | "--color" | "--logfile" | "-Z" => drop(arguments.next()),
                other if other.starts_with('-') => {}
                _ => wanted.names.push(argument),
            }
        }
        wanted
    }

    fn takes(&self, name: &str) -> bool {
        let matches = |part: &String| if self.exact { name == part } else { name.contains(part.as_str()) };
        let named = self.names.is_empty() || self.names.iter().any(matches);
        named && !self.not.iter().any(matches) && !self.ignored
    }
}

/// Nothing when the case ends as it is to: by holding, or by differing where that is accepted.
fn judge(case: api_parity::Case) -> Result<(), String> {
    let outcome = catch_unwind(|| run(case)).unwrap_or_else(|_| Err(anyhow::anyhow!("panicked, see above")));
    let accepted = ACCEPTED.iter().any(|(name, _)| *name == case.name);
    match outcome {
        Ok(()) if accepted => Err("it holds, and is listed as an accepted difference".to_owned()),
        Err(error) if !accepted => Err(format!("{error:#}")),
        _ => Ok(()),
    }
}

/// Accepted differences of cases that there are no more.
fn stale() -> Result<(), String> {
    let cases = cases();
    let gone = ACCEPTED.iter().filter(|(name, _)| cases.iter().all(|case| case.name != *name));
    let gone: Vec<_> = gone.map(|(name, _)| *name).collect();
    if gone.is_empty() { Ok(()) } else { Err(format!("accepted differences of no case: {gone:?}")) }
}

type Test = (String, Box<dyn Fn() -> Result<(), String>>);

/// The cases have names and tables in another crate: this is their harness, with a line for each.
fn main() -> ExitCode {
    let mut tests: Vec<Test> =
        vec![("accepted_differences_are_of_cases_that_there_are".to_owned(), Box::new(stale))];
    for case in cases() {
        tests.push((format!("{}::{}", case.topic, case.name), Box::new(move || judge(case))));
    }
    let wanted = Wanted::parse(std::env::args().skip(1));
    let all = tests.len();
    tests.retain(|(name, _)| wanted.takes(name));
    if wanted.list {
        tests.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    println!("\nrunning {} tests", tests.len());
    let mut failures = Vec::new();
    for (name, test) in &tests {
        let outcome = test();
        println!("test {name} ... {}", if outcome.is_ok() { "ok" } else { "FAILED" });
        failures.extend(outcome.err().map(|error| format!("---- {name} ----\n{error}\n")));
    }
    for failure in &failures {
        println!("\n{failure}");
    }
    let (passed, failed, out) = (tests.len() - failures.len(), failures.len(), all - tests.len());
    let word = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {word}. {passed} passed; {failed} failed; 0 ignored; 0 measured; {out} filtered out\n"
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
