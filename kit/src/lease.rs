//! Leadership by a `coordination.k8s.io/v1` Lease.
//!
//! The API server has no fencing tokens, so safety rests on time that each process measures for itself: see
//! [`Terms`]. What is *read* needs no leadership: followers keep their watches running and their state warm.

mod state;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1 as coordination;
use kube::api::Api;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

pub use state::Terms;

use crate::patch::{self, Subresource, Target, WriteError};
use crate::writes::Gate;
use crate::{Clock, Context};
use state::{Action, Outcome, Record, State};

/// Whether this process leads, for everyone who wants to know. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Leadership {
    held: watch::Receiver<Option<Held>>,
    clock: Clock,
    /// The term that [`changed`](Self::changed) told last.
    told: Option<i32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    until: Instant,
    /// Grows with each change of holder, and where the holder took it again after it had run out.
    term: i32,
}

impl Leadership {
    /// Leadership that nobody contests: for programs that run alone.
    pub fn always(ctx: &Context) -> Self {
        let until = ctx.clock.monotonic() + Duration::from_secs(100 * 365 * 86_400);
        let (_, held) = watch::channel(Some(Held { until, term: 0 }));
        Self { held, clock: ctx.clock.clone(), told: None }
    }

    /// Whether a write may be sent now. Ask directly before each request.
    pub fn may_write(&self) -> bool {
        self.held().is_some()
    }

    /// Registers a gauge that is 1 while this process leads, asked when it is read. `lease` tells one lease from another.
    pub fn register(&self, registry: &mut Registry, lease: &str) {
        registry.register_collector(Box::new(Status { leadership: self.clone(), lease: lease.to_owned() }));
    }

    /// Tells one term of leadership from the next: how often the lease had been taken before, by another or after it had run out.
    pub fn term(&self) -> Option<i32> {
        self.held().map(|held| held.term)
    }

    /// Waits until leadership is gained or lost and tells which; the first call tells at once if this process leads. If it was lost
    /// and gained since the last call, it tells one after the other, whether others led between or not.
    pub async fn changed(&mut self) -> bool {
        loop {
            let held = self.held();
            let term = held.map(|held| held.term);
            if term != self.told {
                self.told = if self.told.is_some() { None } else { term };
                return self.told.is_some();
            }
            let deadline = held.map(|held| held.until);
            tokio::select! {
                biased;
                changed = self.held.changed() => if changed.is_err() && deadline.is_none() {
                    // Nobody campaigns any more: it stays as it is.
                    std::future::pending::<()>().await;
                } else if changed.is_err() {
                    self.clock.sleep_until(deadline.unwrap_or_else(|| self.clock.monotonic())).await;
                },
                () = self.clock.sleep_until(deadline.unwrap_or_else(|| self.clock.monotonic())), if deadline.is_some() => {}
            }
        }
    }

    /// For [`crate::writes::Writes::start`].
    pub fn gate(&self) -> Gate {
        let this = self.clone();
        Arc::new(move || this.term())
    }

    fn held(&self) -> Option<Held> {
        (*self.held.borrow()).filter(|held| self.clock.monotonic() < held.until)
    }
}

/// Leadership as a metric.
#[derive(Debug)]
struct Status {
    leadership: Leadership,
    lease: String,
}

impl Collector for Status {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let leads = ConstGauge::new(i64::from(self.leadership.may_write()));
        let help = "Whether this replica holds the lease and may write";
        let mut encoder = encoder.encode_descriptor("leader", help, None, leads.metric_type())?;
        leads.encode(encoder.encode_family(&[("lease", self.lease.as_str())])?)
    }
}

/// This process's candidacy. Dropping it leaves the lease to run out; [`Lease::release`] hands it on at once.
pub struct Lease {
    leadership: Leadership,
    release: oneshot::Sender<()>,
    ended: tokio::task::JoinHandle<Option<()>>,
}

impl Lease {
    /// Campaigns for the lease of this namespace and name, on the context's lease connection, under the context's
    /// identity.
    ///
    /// # Panics
    /// When the terms are not safe: they are constants of a program, not a user's input.
    pub fn campaign(ctx: &Context, namespace: &str, name: &str, terms: Terms) -> Self {
        assert!(
            terms.are_safe(),
            "the lease's time-out must be shorter than its margin, both shorter than its duration"
        );
        let (publish, held) = watch::channel(None);
        let (release, released) = oneshot::channel();
        let leadership = Leadership { held, clock: ctx.clock.clone(), told: None };
        let candidate = Candidate {
            api: Api::namespaced(ctx.clients.lease.clone(), namespace),
            name: name.to_owned(),
            ctx: ctx.clone(),
            origin: ctx.clock.monotonic(),
            state: State::new(ctx.identity.as_str(), terms.clone()),
            terms,
            publish,
        };
        let ended = ctx.tasks.spawn(candidate.run(released));
        Self { leadership, release, ended }
    }

    /// Who leads.
    pub fn leadership(&self) -> Leadership {
        self.leadership.clone()
    }

    /// Ends leadership and tells the others, so that one of them takes over at once. Call it when nothing is in flight
    /// any more ([`crate::writes::Writes::drain`]). Takes a few request time-outs at most.
    pub async fn release(self) {
        if self.release.send(()).is_ok() {
            let _killed = self.ended.await;
        }
    }
}

struct Candidate {
    api: Api<coordination::Lease>,
    name: String,
    ctx: Context,
    origin: Instant,
    state: State,
    terms: Terms,
    publish: watch::Sender<Option<Held>>,
}

impl Candidate {
    async fn run(mut self, mut released: oneshot::Receiver<()>) {
        loop {
            let now = self.now();
            tokio::select! {
                biased;
                release = &mut released => {
                    if release.is_ok() {
                        self.let_go().await;
                    }
                    return;
                }
                () = step(&mut self, now) => {}
            }
        }
    }

    fn now(&self) -> Duration {
        self.ctx.clock.monotonic() - self.origin
    }

    fn publish(&self) {
        let held = self.state.may_write_until().map(|until| Held {
            until: self.origin + until,
            term: self.state.transitions().unwrap_or_default(),
        });
        self.publish.send_if_modified(|before| {
            if before.is_some() != held.is_some() {
                tracing::info!(lease = self.name, leads = held.is_some(), "leadership changed");
            }
            std::mem::replace(before, held) != held
        });
    }

    async fn read(&mut self) {
        let get = tokio::time::timeout(self.terms.request_timeout, self.api.get(&self.name)).await;
        let now = self.now();
        match get {
            Ok(Ok(lease)) => self.state.read(now, Some(record(&lease))),
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => self.state.read(now, None),
            Ok(Err(error)) => {
                tracing::warn!(lease = self.name, %error, "the lease could not be read");
                self.state.unread(now);
            }
            Err(_elapsed) => self.state.unread(now),
        }
    }

    async fn write(&mut self, started: Duration, write: Write) {
        let stamp = micro_time(self.ctx.clock.now());
        let mut spec = json!({
            "holderIdentity": self.ctx.identity.as_str(),
            "leaseDurationSeconds": self.terms.duration.as_secs(),
            "renewTime": stamp,
        });
        if write.acquire {
            spec["acquireTime"] = json!(stamp);
            spec["leaseTransitions"] = json!(write.transitions);
        }
        let (limit, creates) = (self.terms.request_timeout, write.over.is_none());
        let result = match tokio::time::timeout(limit, self.send(write.over, spec)).await {
            Ok(result) => result,
            Err(_elapsed) => Err(WriteError::timed_out(limit)),
        };
        let outcome = match result {
            Ok(lease) => Outcome::Done(record(&lease)),
            // Of one that is to be created it is the namespace that is not there.
            Err(WriteError::Gone) if !creates => Outcome::Gone,
            Err(WriteError::Conflict(_)) => Outcome::Lost,
            Err(WriteError::Unavailable { may_have_applied: true, .. }) => Outcome::Unknown,
            Err(error) => {
                tracing::warn!(lease = self.name, %error, "the lease could not be written");
                Outcome::Lost
            }
        };
        self.state.wrote(started, self.now(), outcome);
    }

    async fn send(&self, over: Option<Target>, spec: Value) -> Result<coordination::Lease, WriteError> {
        match over {
            Some(target) => {
                patch::merge(&self.api, &target, json!({ "spec": spec }), Subresource::Main).await
            }
            None => {
                let lease = json!({
                    "apiVersion": "coordination.k8s.io/v1",
                    "kind": "Lease",
                    "metadata": { "name": self.name },
                    "spec": spec,
                });
                patch::create(&self.api, &lease).await
            }
        }
    }

    async fn let_go(&mut self) {
        self.publish.send_replace(None);
        // A renewal under way was dropped and may have been applied all the same: then the version is another, and the
        // second try knows it.
        for _ in 0..2 {
            let Some(record) = self.state.held() else {
                self.read().await;
                continue;
            };
            let target = Target::new(self.name.clone(), record.uid.clone()).at(record.version.clone());
            let spec = json!({ "holderIdentity": "", "renewTime": micro_time(self.ctx.clock.now()) });
            let released =
                tokio::time::timeout(self.terms.request_timeout, self.send(Some(target), spec)).await;
            match released {
                Ok(Ok(_)) => return,
                Ok(Err(WriteError::Conflict(_))) => self.read().await,
                Ok(Err(error)) => {
                    tracing::info!(lease = self.name, %error, "the lease was not released and will run out");
                    return;
                }
                Err(_elapsed) => return,
            }
        }
    }
}

struct Write {
    /// The object to be patched; none creates it.
    over: Option<Target>,
    transitions: i32,
    acquire: bool,
}

/// Does the next thing there is to do.
async fn step(candidate: &mut Candidate, now: Duration) {
    match candidate.state.next(now) {
        Action::Wait(until) => {
            // A tenth at most: the jitter must not eat the time between two renewals and the deadline.
            let wait = candidate.ctx.rng.jitter(until.saturating_sub(now), 0.1);
            candidate.ctx.clock.sleep(wait).await;
            return;
        }
        Action::Read => candidate.read().await,
        Action::Create { transitions } => {
            candidate.write(now, Write { over: None, transitions, acquire: true }).await;
        }
        Action::Write { uid, version, transitions, acquire } => {
            let over = Some(Target::new(candidate.name.clone(), uid).at(version));
            candidate.write(now, Write { over, transitions, acquire }).await;
        }
    }
    candidate.publish();
}

fn record(lease: &coordination::Lease) -> Record {
    let spec = lease.spec.clone().unwrap_or_default();
    Record {
        uid: lease.metadata.uid.clone().unwrap_or_default(),
        version: lease.metadata.resource_version.clone().unwrap_or_default(),
        holder: spec.holder_identity.unwrap_or_default(),
        duration: Duration::from_secs(
            spec.lease_duration_seconds.unwrap_or_default().try_into().unwrap_or_default(),
        ),
        transitions: spec.lease_transitions.unwrap_or_default(),
    }
}

/// `metav1.MicroTime` on the wire.
fn micro_time(time: jiff::Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

#[cfg(test)]
mod tests;
