//! The one task that changes the inventory.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::sync::Arc;

use futures::future::join_all;
use kit::Context;
use model::planted::{Bug, Planted};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::config::{GOOD_PROBES, Intervals};
use crate::driver::{Calls, DriverError, DriverEvent, GpuDriver, GpuUuid, Probe, WatchGuard};
use crate::health::{Ailment, Signal, XidPolicy, xid};
use crate::inventory::{HealthChange, Inventory};
use crate::metrics::Metrics;

/// Events that wait to be taken in. One that finds no room is not lost for good: the next enumeration probes every GPU.
const MAX_EVENTS: usize = 256;

/// What the monitor tells.
#[derive(Clone)]
pub(crate) struct Outputs {
    /// The inventory as it is.
    pub(crate) inventory: watch::Sender<Arc<Inventory>>,
    /// What changed, for those who report it; dropped when they cannot keep up.
    pub(crate) changes: mpsc::Sender<HealthChange>,
    /// For tests of the tests.
    pub(crate) planted: Planted,
}

pub(crate) struct Monitor {
    ctx: Context,
    driver: Calls,
    policy: XidPolicy,
    intervals: Intervals,
    metrics: Metrics,
    outputs: Outputs,
    inventory: Inventory,
    events: mpsc::Receiver<DriverEvent>,
    sink: mpsc::Sender<DriverEvent>,
    /// The running watch, and the GPUs it was made for.
    watching: Option<(WatchGuard, BTreeSet<GpuUuid>)>,
    /// When a watch was last asked for: one that breaks at once is not made again and again.
    watched_at: Option<Instant>,
    next_look: Instant,
}

impl Monitor {
    pub(crate) fn new(
        ctx: Context,
        driver: Arc<dyn GpuDriver>,
        (policy, intervals): (XidPolicy, Intervals),
        metrics: Metrics,
        outputs: Outputs,
    ) -> Self {
        let (sink, events) = mpsc::channel(MAX_EVENTS);
        Self {
            next_look: ctx.clock.monotonic(),
            ctx,
            driver: Calls::new(driver),
            policy,
            intervals,
            metrics,
            outputs,
            inventory: Inventory::default(),
            events,
            sink,
            watching: None,
            watched_at: None,
        }
    }

    /// What this node's GPUs suffered from when an agent last published it: a restart of the agent cures nothing.
    pub(crate) fn recall(&mut self, ailments: BTreeMap<GpuUuid, Ailment>) {
        self.inventory.recall(ailments);
    }

    /// The first look, after which readers know what there is.
    pub(crate) async fn start(&mut self) {
        self.look().await;
    }

    /// Goes on until the context stops.
    pub(crate) async fn run(mut self) {
        let mut next_probe = None;
        loop {
            let ill = self.inventory.healthy() < self.inventory.devices().len();
            let probe_at =
                ill.then(|| *next_probe.get_or_insert(self.ctx.clock.monotonic() + self.intervals.probe));
            if !ill {
                next_probe = None;
            }
            tokio::select! {
                biased;
                () = self.ctx.tasks.stopping() => return,
                Some(event) = self.events.recv() => self.event(event).await,
                () = self.ctx.clock.sleep_until(self.next_look) => self.look().await,
                () = until(probe_at) => {
                    self.probe(false).await;
                    next_probe = None;
                }
            }
        }
    }

    /// Enumerates, probes what is well, and watches what is new.
    async fn look(&mut self) {
        let seen = self.driver.enumerate().await;
        self.next_look = self.ctx.clock.monotonic() + self.intervals.enumerate;
        if let Err(error) = &seen {
            self.metrics.failed("enumerate");
            tracing::warn!(%error, reason = error.reason(), "the GPU driver does not answer");
        }
        if let Err(DriverError::NoAnswer(_)) = &seen
            && !self.inventory.devices().is_empty()
        {
            // One GPU that hangs holds up the question for all. Which one it is, each is asked for itself.
            return self.probe(true).await;
        }
        let changes = self.inventory.enumerated(seen);
        self.tell(changes);
        if self.inventory.driver_error().is_some() {
            self.watching = None;
            return;
        }
        // The ill are probed in their own rhythm, so that the good answers counted are apart.
        self.probe(true).await;
        self.watch().await;
    }

    async fn watch(&mut self) {
        // A GPU that is gone has no events, and one that is back must be asked for them again.
        let uuids = self.inventory.shown().clone();
        if uuids.is_empty() {
            self.watching = None;
            return;
        }
        match (&self.watching, self.watched_at) {
            (Some((_, watched)), _) if *watched == uuids => return,
            (None, Some(last)) if self.ctx.clock.monotonic() < last + self.intervals.probe => {
                self.next_look = self.next_look.min(last + self.intervals.probe);
                return;
            }
            _ => self.watched_at = Some(self.ctx.clock.monotonic()),
        }
        let sink = self.sink.clone();
        let sink = move |event| {
            if sink.try_send(event).is_err() {
                tracing::warn!(
                    "more driver events than can be taken in; the next look at the GPUs covers them"
                );
            }
        };
        match self.driver.watch(Arc::new(sink)).await {
            Ok(guard) => self.watching = Some((guard, uuids)),
            Err(error) => {
                self.watching = None;
                self.metrics.failed("watch");
                tracing::warn!(%error, "the driver gives no events; health is known by probes only");
            }
        }
    }

    async fn event(&mut self, event: DriverEvent) {
        let (gpu, signal) = match event {
            DriverEvent::Xid { gpu, code } => (gpu, Signal::Xid(code)),
            DriverEvent::DoubleBitEcc { gpu } => (gpu, Signal::DoubleBitEcc),
            DriverEvent::WatchBroken(error) => {
                tracing::warn!(%error, "the driver's events broke off");
                self.metrics.failed("watch");
                self.watching = None;
                return self.look().await;
            }
        };
        let changes = self.inventory.signalled(gpu.as_ref(), signal, &self.policy);
        self.tell(changes);
    }

    /// Probes the GPUs that are healthy, or those that are not.
    async fn probe(&mut self, healthy: bool) {
        let chosen: Vec<GpuUuid> = self
            .inventory
            .devices()
            .iter()
            .filter(|device| device.health.is_healthy() == healthy)
            .map(|device| device.gpu.uuid.clone())
            .collect();
        // All at once, so that one that hangs holds up nobody else; taken in by index, whoever answers first.
        let answers = join_all(chosen.iter().map(|uuid| self.driver.probe(uuid.clone()))).await;
        for (uuid, mut answer) in chosen.iter().zip(answers) {
            if answer.is_ok() && !self.inventory.shown().contains(uuid) {
                // It is back before the next look was due, and with it perhaps the driver: events are to be had again.
                self.next_look = self.ctx.clock.monotonic();
            }
            if !self.policy.enabled {
                // Whoever switches the checks off wants a GPU used as long as it answers.
                answer = answer.map(|_| Probe::default());
            }
            let change = self.inventory.probed(uuid, &answer, GOOD_PROBES);
            self.tell(change.into_iter().collect());
        }
    }

    /// Publishes the inventory if a reader would see a difference, and what changed.
    fn tell(&self, changes: Vec<HealthChange>) {
        self.metrics.counted(&self.inventory);
        for change in &changes {
            report(change);
            self.metrics.health_changed(change);
        }
        let mut shown = self.inventory.clone();
        if self.outputs.planted.is(Bug::HandOutUnhealthy) {
            shown.forget_ailments();
        }
        self.outputs.inventory.send_if_modified(|published| {
            let differs = **published != shown;
            if differs {
                *published = Arc::new(shown);
            }
            differs
        });
        for change in changes {
            if self.outputs.changes.try_send(change).is_err() {
                self.metrics.failed("event");
            }
        }
    }
}

fn report(change: &HealthChange) {
    let (index, uuid) = (change.index, change.uuid.as_str());
    match change.health.ailment() {
        None => tracing::info!(index, uuid, "the GPU is healthy again"),
        Some(ailment) => {
            let known = ailment.xid.and_then(xid);
            tracing::warn!(
                index,
                uuid,
                reason = ailment.reason.as_str(),
                xid = ailment.xid,
                meaning = known.map(|xid| xid.meaning),
                advice = known.map(|xid| xid.action.advice()),
                "the GPU is unhealthy and is not given out"
            );
        }
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => pending().await,
    }
}
