//! An upgrade with jobs that run and jobs that wait, and what happens while no webhook answers.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::story::{delete, delete_now, job, leaves_nothing, pods, team_with_job, wait_bound, workload};
use crate::cluster::{Applied, condition, wait};
use crate::helm::Site;

const JOBS: &str = "/apis/batch/v1/namespaces/team/jobs";

pub(super) async fn harms_nobody(site: &mut Site) -> Result<()> {
    site.programs().await?;
    team_with_job(site, "runs").await?;
    let applier = site.applier().await?;
    applier.must(&job("waits", Some("training"), 4, 2)).await?;
    wait("the second job to wait", Duration::from_secs(20), async || {
        Ok(workload(site, "waits").await?.is_some_and(|one| says(&one, "QuotaReserved", "False")))
    })
    .await?;
    let before = seen(site).await?;

    site.stop().await?;
    let refused = applier.apply(&job("late", Some("training"), 1, 1), false).await?;
    ensure!(matches!(refused, Applied::Refused(_)), "no webhook answers: {refused:?}");
    applier.must(&job("own", None, 1, 1)).await.context("a job without a queue needs no webhook")?;
    ensure!(seen(site).await? == before, "while nobody is there");

    site.release(&["--set", "admissionController.webhooks.timeoutSeconds=9"]).await?;
    site.programs().await?;
    applier.must(&job("late", Some("training"), 1, 1)).await.context("the webhooks are back")?;
    // Whatever a program does to what it finds, it does at once.
    tokio::time::sleep(Duration::from_secs(5)).await;
    ensure!(seen(site).await? == before, "after the upgrade: before {before:?}, now {:?}", seen(site).await?);
    let own = site.get(&format!("{JOBS}/own")).await?;
    ensure!(own["spec"]["suspend"] != true && workload(site, "own").await?.is_none(), "{}", own["spec"]);

    for name in ["runs", "own", "late"] {
        delete(site, &format!("{JOBS}/{name}")).await?;
    }
    delete_pods(site, "job-name=runs").await?;
    wait_bound(site, "job-name=waits", 4).await.context("what waited goes on")?;
    delete(site, &format!("{JOBS}/waits")).await?;
    delete_pods(site, "job-name=waits").await?;
    for name in ["runs", "own", "late", "waits"] {
        leaves_nothing(site, name).await?;
    }
    Ok(())
}

async fn delete_pods(site: &Site, selector: &str) -> Result<()> {
    for pod in pods(site, selector).await? {
        let name = pod["metadata"]["name"].as_str().context("a name")?;
        delete_now(site, &format!("/api/v1/namespaces/team/pods/{name}")).await?;
    }
    Ok(())
}

fn says(workload: &Value, kind: &str, status: &str) -> bool {
    condition(workload, kind).is_some_and(|found| found["status"] == status)
}

/// The uid, the admission and the conditions of the job that runs, the uids of its pods, and the uid of the Workload that waits and
/// whether it does.
async fn seen(site: &Site) -> Result<(Value, Value, Value, Vec<Value>, (Value, bool))> {
    let one = workload(site, "runs").await?.context("the Workload of the job that runs")?;
    let waits = workload(site, "waits").await?.context("the Workload of the job that waits")?;
    let waits = (waits["metadata"]["uid"].clone(), says(&waits, "QuotaReserved", "False"));
    let pods = pods(site, "job-name=runs").await?;
    let pods = pods.iter().map(|pod| pod["metadata"]["uid"].clone()).collect();
    let status = &one["status"];
    Ok((
        one["metadata"]["uid"].clone(),
        status["admission"].clone(),
        status["conditions"].clone(),
        pods,
        waits,
    ))
}
