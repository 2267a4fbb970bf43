//! Shadow mode: what this program would decide on a cluster that Kueue runs, compared with what Kueue does. Nothing is written.
//!
//! | module | what |
//! |---|---|
//! | `judge` | the engine beside Kueue: which of its opinions Kueue shares; pure |
//! | [`report`] | differences, as a table and as metrics |
//! | [`recording`] | a stream of events in a file |

mod judge;
pub mod recording;
pub mod report;

use std::io::{BufRead, Write};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use futures::StreamExt;
use jiff::Timestamp;
use kit::Context;
use kit::admin::{self, METRICS_PREFIX, Readiness};
use kit::http::{self, Listen};
use prometheus_client::registry::Registry;
use tokio::sync::watch;

use judge::Judge;
use recording::{Line, ReplayError};
use report::{Report, Table};

use crate::config::{Configuration, Integrations};
use crate::controller::feeds::feeds;
use crate::{ADMIN_SERVICE, Error, tell_notices};

/// How long Kueue has for doing what this program would do, before that counts as a difference: it admits one workload of a
/// queue in each of its cycles, and may be busy.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Where differences are told of as they are found.
pub type Output = Box<dyn Write + Send>;

/// Jobs are not looked at: Kueue has described them as Workloads.
fn without_jobs(config: &Configuration) -> Configuration {
    Configuration { integrations: Integrations::of(Vec::new()), ..config.clone() }
}

/// Watches a cluster and compares, until the context's tasks stop. Only the context's reading client is used.
///
/// # Errors
/// When an address cannot be listened on.
pub async fn run(
    ctx: Context,
    config: Configuration,
    admin: Option<Listen>,
    patience: Duration,
    output: Output,
) -> Result<(), Error> {
    tell_notices(&config);
    let config = without_jobs(&config);
    let (table, mut registry) = (Table::new(output), Registry::default());
    let report = Report::new(table.clone());
    report.register(registry.sub_registry_with_prefix(METRICS_PREFIX));
    let readiness = Readiness::new();
    let synced = readiness.require("caches", "the first lists are not complete");
    if let Some(listen) = &admin {
        let page = Router::new().route("/debug/shadow", get(move || std::future::ready(table.page())));
        let pages = admin::router(readiness, Arc::new(registry), None).merge(admin::from_within(page));
        http::publish(&ctx, &config.namespace, ADMIN_SERVICE, listen, pages).await?;
    }
    let mut judge = Judge::new(&config, patience, report);
    let (wants_places, wanted) = watch::channel(false);
    let mut feeds = feeds(&ctx, &config, None, &wanted, None);
    loop {
        let wait = judge.next_due().map(|due| until(ctx.clock.now(), due));
        tokio::select! {
            biased;
            () = ctx.tasks.stopping() => return Ok(()),
            () = ctx.clock.sleep(wait.unwrap_or_default()), if wait.is_some() => {}
            Some(seen) = feeds.next() => judge.take(seen, ctx.clock.now()),
        }
        let wanted = judge.wants_places();
        wants_places.send_if_modified(|told| std::mem::replace(told, wanted) != wanted);
        if judge.is_synced() {
            synced.met();
        }
        judge.look_at_what_is_due(ctx.clock.now());
    }
}

fn until(now: Timestamp, due: Timestamp) -> Duration {
    Duration::try_from(due.duration_since(now)).unwrap_or_default()
}

/// What a replay has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Decisions on which both agree.
    pub same: u64,
    /// Decisions on which they differ.
    pub different: u64,
    /// Decisions on which Kueue still had time when the recording ended.
    pub open: usize,
}

/// Compares on a recorded stream, in the time of the recording.
///
/// # Errors
/// Each names the line that cannot be read.
pub fn replay(
    config: &Configuration,
    recording: impl BufRead,
    patience: Duration,
    output: Output,
) -> Result<Summary, ReplayError> {
    let config = without_jobs(config);
    let mut judge = Judge::new(&config, patience, Report::new(Table::new(output)));
    let mut now = Timestamp::UNIX_EPOCH;
    for line in recording::lines(recording) {
        let Line { time, seen } = line?;
        now = time.unwrap_or(now).max(now);
        catch_up(&mut judge, now);
        if let Some(seen) = seen {
            judge.take(seen, now);
        }
    }
    if !judge.is_synced() {
        return Err(ReplayError::NeverSynced);
    }
    catch_up(&mut judge, now);
    Ok(judge.summary())
}

/// What became due before this time, each at its own.
fn catch_up(judge: &mut Judge, now: Timestamp) {
    while let Some(due) = judge.next_due().filter(|due| *due <= now) {
        judge.look_at_what_is_due(due);
    }
}
