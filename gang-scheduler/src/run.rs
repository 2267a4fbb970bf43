//! One task that owns the core, from the first watch to the last write.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use kit::Context;
use kit::admin::{self, METRICS_PREFIX, Readiness, StateSource};
use kit::events::{Event, Events, Regarding, Severity};
use kit::http::Listen;
use kit::lease::{Leadership, Lease, Terms};
use kit::watch::Reports;
use kit::writes::{Done, Gate, Limits, WriteMetrics, Writes, always};
use model::planted::Bug;
use prometheus_client::registry::Registry;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use crate::config::Config;
use crate::core::{Answer, Core, Notice, Write, WriteId};
use crate::metrics::Metrics;
use crate::shell::{Watches, outcome_of, send};

/// Why the program ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The admin pages cannot be served.
    #[error("the admin pages cannot be served: {0}")]
    Admin(#[from] kit::http::ListenError),
}

/// The Service under which the admin pages are found in a simulation.
const SERVICE: &str = "gang-scheduler";

/// Schedules until the context's tasks are asked to stop.
///
/// # Errors
/// See [`Error`]; everything else is retried for ever, and said in the logs.
pub async fn run(ctx: Context, config: Config) -> Result<(), Error> {
    let (questions, asked) = mpsc::channel(8);
    let readiness = Readiness::new();
    let synced = readiness.require("watches", "not everything has been listed yet");
    let lease = Lease::campaign(&ctx, &config.lease_namespace, &config.lease_name, Terms::default());
    let leadership = lease.leadership();
    let gate: Gate = match config.planted.is(Bug::WriteWithoutLease) {
        true => always(),
        false => leadership.gate(),
    };
    let events = Events::start(&ctx, "gang-scheduler", gate.clone());
    let (reports, write_metrics) = (Reports::new(&events), WriteMetrics::default());
    let metrics = Metrics::default();
    let mut registry = Registry::default();
    metrics.register(&mut registry, METRICS_PREFIX);
    let ours = registry.sub_registry_with_prefix(METRICS_PREFIX);
    reports.register(ours);
    write_metrics.register(ours);
    events.register(ours);
    leadership.register(ours, &config.lease_name);
    // In process it is found by a simulation only: a real process has an empty table that nobody reads.
    let listen = config.admin_address.map_or(Listen::InProcess, Listen::Plain);
    let router = admin::router(readiness, Arc::new(registry), Some(state_source(questions)));
    kit::http::publish(&ctx, &config.lease_namespace, SERVICE, &listen, router).await?;
    let mut program = Program {
        core: Core::new(&config),
        watches: Watches::new(&ctx, &reports),
        events,
        writes: Writes::start_counted(&ctx, Limits::default(), gate, &write_metrics),
        waiting: VecDeque::new(),
        leadership,
        wants_to_lead: false,
        careless: config.planted.is(Bug::WriteWithoutLease),
        asked,
        metrics,
        ctx,
    };
    program.work(&synced).await;
    program.writes.drain().await;
    lease.release().await;
    Ok(())
}

fn state_source(questions: mpsc::Sender<oneshot::Sender<Value>>) -> StateSource {
    Arc::new(move || {
        let questions = questions.clone();
        async move {
            let (answer, answered) = oneshot::channel();
            match questions.send(answer).await {
                Ok(()) => answered.await.unwrap_or(Value::Null),
                Err(_) => Value::Null,
            }
        }
        .boxed()
    })
}

struct Program {
    ctx: Context,
    core: Core,
    watches: Watches,
    events: Events,
    writes: Writes<WriteId, Answer>,
    /// Decided, and waiting for room in `writes`.
    waiting: VecDeque<(WriteId, Write)>,
    leadership: Leadership,
    wants_to_lead: bool,
    /// Planted: goes on as if it still led.
    careless: bool,
    asked: mpsc::Receiver<oneshot::Sender<Value>>,
    metrics: Metrics,
}

impl Program {
    async fn work(&mut self, synced: &kit::admin::Requirement) {
        while !self.ctx.tasks.is_stopping() {
            self.wait().await;
            if self.watches.synced() {
                synced.met();
                if self.wants_to_lead && !self.core.leading() {
                    self.core.lead(self.ctx.clock.steady_millis());
                }
            }
            if self.careless || self.leadership.may_write() {
                self.core.settle(self.ctx.clock.steady_millis(), self.ctx.clock.unix_millis());
                self.submit();
            }
            self.metrics.take(&mut self.core);
        }
    }

    /// Until something has happened, and takes it in.
    async fn wait(&mut self) {
        let clock = self.ctx.clock.clone();
        let now = || clock.steady_millis();
        let pause = self
            .core
            .next_deadline()
            .map(|at| Duration::from_millis(at.saturating_sub(now()).max(0).unsigned_abs()));
        tokio::select! {
            biased;
            () = self.ctx.tasks.stopping() => {}
            leads = self.leadership.changed() => self.leadership_changed(leads).await,
            done = self.writes.next() => self.wrote(done),
            () = self.watches.tell(&mut self.core, now) => {}
            Some(answer) = self.asked.recv() => {
                // Whoever asked may have gone.
                let _gone = answer.send(self.core.state());
            }
            () = clock.sleep(pause.unwrap_or_default()), if pause.is_some() => {}
        }
    }

    fn wrote(&mut self, done: Done<WriteId, Answer>) {
        let outcome = outcome_of(done.result, done.attempts);
        self.core.wrote(self.ctx.clock.steady_millis(), &done.key, outcome);
    }

    async fn leadership_changed(&mut self, leads: bool) {
        if leads {
            self.writes.begin_term().await.into_iter().for_each(|done| self.wrote(done));
            self.wants_to_lead = true;
            self.watches.refresh(&self.ctx);
        } else if !self.careless {
            self.wants_to_lead = false;
            self.core.stand_down(self.ctx.clock.steady_millis());
            self.waiting.clear();
        }
    }

    fn submit(&mut self) {
        self.waiting.extend(self.core.take_writes());
        for notice in self.core.take_notices() {
            self.events.publish(event_of(notice));
        }
        while self.writes.room() > 0
            && let Some((id, write)) = self.waiting.pop_front()
        {
            let (priority, attempt) = send(&self.ctx, write);
            if self.writes.submit(priority, "", id.clone(), attempt).is_err() {
                tracing::error!("a write found no room although there was some");
                self.core.wrote(self.ctx.clock.steady_millis(), &id, crate::core::Outcome::NotSent);
            }
        }
    }
}

fn event_of(notice: Notice) -> Event {
    let (api_version, kind, (namespace, name), uid) = notice.about;
    Event {
        regarding: Regarding {
            api_version: api_version.into(),
            kind: kind.into(),
            namespace: namespace.to_string(),
            name: name.to_string(),
            uid,
        },
        severity: if notice.warning { Severity::Warning } else { Severity::Normal },
        reason: notice.reason.into(),
        note: notice.message,
    }
}
