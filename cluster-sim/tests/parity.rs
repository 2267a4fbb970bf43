//! The api-parity suite against the simulated server: the same cases that `e2e/real/run` holds the real one to.

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

#[test]
fn the_simulated_server_behaves_as_the_real_one() {
    let only = std::env::var("PARITY_CASE").unwrap_or_default();
    let mut failures = Vec::new();
    let mut passed = 0;
    for case in cases().into_iter().filter(|c| c.name.contains(&only)) {
        let accepted = ACCEPTED.iter().any(|(name, _)| *name == case.name);
        match run(case) {
            Ok(()) if accepted => {
                failures.push(format!("{}::{}: passes, and is listed as accepted", case.topic, case.name));
            }
            Ok(()) => {
                passed += 1;
                println!("parity {}::{} ... ok", case.topic, case.name);
            }
            Err(error) if accepted => {
                println!("parity {}::{} ... differs, as accepted: {error:#}", case.topic, case.name);
            }
            Err(error) => failures.push(format!("{}::{}: {error:#}", case.topic, case.name)),
        }
    }
    assert!(failures.is_empty(), "{passed} passed, {} failed:\n{}", failures.len(), failures.join("\n"));
    println!("{passed} behaviours as on the real server");
}

#[test]
fn every_accepted_difference_is_of_a_case_that_there_is() {
    let cases = cases();
    let gone: Vec<_> =
        ACCEPTED.iter().filter(|(name, _)| cases.iter().all(|case| case.name != *name)).collect();
    assert!(gone.is_empty(), "no cases: {gone:?}");
}
