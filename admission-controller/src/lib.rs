//! Layer 1: may this workload take its share of quota now?
//!
//! | module | what |
//! |---|---|
//! | [`jobs`] | kinds of jobs, as a table; how each is read, started and stopped |
//! | [`pods`] | plain pods, their groups, and kinds that are managed through their pods |
//! | [`reconcile`] | what a job and its Workload need next, as a pure step function |
//! | [`input`], [`words`], [`status`] | between the API's objects and the engine's data |
//! | [`requests`], [`defaults`], [`bounds`], [`reclaimable`] | what a workload asks of quota, and what will be refused |
//! | [`phase`], [`checks`], [`requeue`] | how far a workload has come, what it waits for, and when it may try again |
//! | [`placement`] | the check that waits for the scheduler to hold places |
//! | [`provisioning`] | the check that asks an autoscaler for nodes |
//! | [`slices`] | elastic jobs, which have a second Workload while they grow |
//! | [`adopted`] | Workloads that somebody else makes for a job |
//! | [`ready`], [`lifetime`] | whether its pods are ready in time, and what ends by itself |
//! | `controller` | the one task that owns the engine: watches in, decisions out |
//! | [`visibility`] | the aggregated API that tells who waits, and where |
//! | [`shadow`] | comparing with a Kueue that runs, writing nothing |
//! | [`takeover`] | taking the place of a Kueue that runs, and giving it back |
//! | [`webhook`], [`surroundings`] | admission webhooks and conversion, and what of the cluster they look at |
//! | [`config`] | Kueue's file of settings, and what it means |
//! | [`compose`], [`names`] | the Workload that is made for a job, and its name |
//! | [`explain`], [`news`], `pages` | why a workload waits, what is told as an event, and what `/debug/state` shows |
//! | [`metrics`] | Kueue's metrics, as a table |
//!
//! The decisions themselves are made in `quota_engine`.
//!
//! A new job kind begins in [`jobs::table`], a new reason in `model::reasons` with its page under `docs/reasons`, a new metric in
//! `metrics/table.rs` with its line in `docs/metrics.md`.

pub mod adopted;
pub mod bounds;
pub mod checks;
pub mod compose;
pub mod config;
mod controller;
pub mod defaults;
pub mod explain;
pub mod input;
pub mod jobs;
pub mod lifetime;
pub mod metrics;
pub mod names;
pub mod news;
mod pages;
pub mod phase;
pub mod placement;
pub mod pods;
pub mod provisioning;
pub mod ready;
pub mod reclaimable;
pub mod reconcile;
pub mod requests;
pub mod requeue;
pub mod shadow;
pub mod slices;
pub mod status;
pub mod surroundings;
pub mod takeover;
pub mod topology;
pub mod visibility;
pub mod webhook;
pub mod words;

use std::sync::Arc;
use std::time::Duration;

use crds::names::trireme;
use kit::Context;
use kit::admin::{self, METRICS_PREFIX, Readiness};
use kit::events::Events;
use kit::front_proxy::FrontProxy;
use kit::http::{self, Listen, ListenError};
use kit::lease::{Leadership, Lease, Terms};
use kit::tls::{CaTargets, Certificates, Settings, TlsError, keep_ca_bundle};
use kit::watch::Reports;
use kit::writes::WriteMetrics;
use prometheus_client::registry::Registry;
use tokio::sync::{mpsc, watch};

pub use config::{Config, Configuration};
use config::{Notice, Webhooks};
use surroundings::Surroundings;
pub use webhook::webhook_configurations;

/// The name of the lease, and of the admin pages in the table of services.
pub const LEASE: &str = "admission-controller";
/// The Service under which the admin pages are reached in process.
pub const ADMIN_SERVICE: &str = "admission-controller-admin";
/// The Secret with the certificates of the webhooks.
pub const CERTIFICATE_SECRET: &str = "admission-controller-tls";
/// So many questions to the task that decides may wait: it answers them one by one.
const QUESTIONS: usize = 8;

/// So long a replica is not ready because its first lists are not complete: what it answers until then knows of no LocalQueue. No
/// longer, as a list may need the conversion that it serves itself, and nobody asks it for that before it is ready.
const LISTS_PATIENCE: Duration = Duration::from_secs(10);

/// Why the program cannot run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An address is taken.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// No certificate can be made.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// Runs until the context's tasks stop. Webhooks and conversion are served at once; what is written waits for the lease.
///
/// # Errors
/// When an address cannot be listened on.
pub async fn run(ctx: Context, config: Config) -> Result<(), Error> {
    let config = Arc::new(config);
    let namespace = config.file.namespace.clone();
    tell_notices(&config.file);
    let readiness = Readiness::new();
    let serving = readiness.require("webhooks", "nothing listens for reviews yet");
    let synced = readiness.require("caches", "the first lists are not complete");
    let (ask, asked) = mpsc::channel(QUESTIONS);
    let (lease_namespace, lease_name) = config.file.lease();
    let elects = config.file.leader_election.leader_elect;
    let lease = elects.then(|| Lease::campaign(&ctx, lease_namespace, lease_name, Terms::default()));
    let leadership = lease.as_ref().map_or_else(|| Leadership::always(&ctx), Lease::leadership);
    let events = Events::start(&ctx, "admission-controller", leadership.gate());
    let counted = controller::Counted {
        watches: Reports::new(&events),
        events,
        writes: WriteMetrics::default(),
        queues: metrics::QueueMetrics::new(elects, config.file.shown_metrics()),
    };
    let registry = registry(&counted, &leadership);

    let pages = admin::router(readiness, Arc::new(registry), Some(pages::state(ask.clone())));
    let pages = pages.merge(admin::from_within(pages::close_look(ask.clone())));
    let (surroundings, seen) = watch::channel(Surroundings::default());
    let mut webhooks = webhook::router(Arc::new(config.file.clone()), seen);
    if config.file.feature_gates.visibility_on_demand {
        let front_proxy = match &config.webhooks {
            Webhooks::Listen(Listen::InProcess) => FrontProxy::in_process(),
            _ => FrontProxy::start(&ctx),
        };
        webhooks = webhooks.merge(visibility::router(ask, front_proxy, ctx.clock.clone()));
    }
    let router = match &config.admin {
        Some(listen) => {
            http::publish(&ctx, &namespace, ADMIN_SERVICE, listen, pages).await?;
            webhooks
        }
        None => webhooks.merge(pages),
    };
    let (listen, authority) = match &config.webhooks {
        Webhooks::Listen(listen) => (listen.clone(), None),
        Webhooks::OwnCertificates(address) => {
            let certificates = certificates(&ctx, &config.file, &leadership).await?;
            (Listen::Tls(*address, certificates.server_config()?), Some(certificates.ca_bundle()))
        }
    };
    if config.file.take_over.is_some() {
        let (file, leadership) = (config.file.clone(), leadership.clone());
        ctx.tasks.spawn(takeover::keep(ctx.clone(), file, leadership, authority));
    }
    http::publish(&ctx, &namespace, trireme::ADMISSION_SERVICE, &listen, router).await?;
    serving.met();
    let (clock, tasks, listed) = (ctx.clock.clone(), ctx.tasks.clone(), synced.clone());
    ctx.tasks.spawn(async move {
        tokio::select! {
            biased;
            () = tasks.stopping() => {}
            () = clock.sleep(LISTS_PATIENCE) => listed.met(),
        }
    });

    controller::Controller::new(ctx, config, leadership, synced, counted, surroundings).run(asked).await;
    if let Some(lease) = lease {
        lease.release().await;
    }
    Ok(())
}

/// What of the configuration is not done, and what has no effect.
fn tell_notices(config: &Configuration) {
    for Notice { field, words, unsupported } in &config.notices {
        if *unsupported {
            tracing::warn!(field, words, "Kueue's configuration asks for what is not done");
        } else {
            tracing::info!(field, words, "this field of Kueue's configuration has no effect");
        }
    }
}

/// All that `/metrics` shows: Kueue's names as they are, the others under a prefix.
fn registry(counted: &controller::Counted, leadership: &Leadership) -> Registry {
    let mut registry = Registry::default();
    counted.queues.register(&mut registry);
    let ours = registry.sub_registry_with_prefix(METRICS_PREFIX);
    counted.watches.register(ours);
    counted.writes.register(ours);
    counted.events.register(ours);
    leadership.register(ours, LEASE);
    registry
}

/// Certificates that the replicas share; the leader tells the API server whom to trust.
async fn certificates(
    ctx: &Context,
    config: &Configuration,
    leadership: &Leadership,
) -> Result<Certificates, TlsError> {
    let namespace = &config.namespace;
    // In Kueue's place its own configurations lead here.
    let own = if config.take_over.is_some() { Vec::new() } else { vec![webhook::CONFIGURATION.to_owned()] };
    let settings = Settings {
        namespace: namespace.clone(),
        secret: CERTIFICATE_SECRET.to_owned(),
        service: trireme::ADMISSION_SERVICE.to_owned(),
    };
    let certificates = Certificates::start(ctx, settings).await?;
    let api_services = match config.feature_gates.visibility_on_demand {
        true => visibility::VERSIONS.map(visibility::api_service_name).into(),
        false => Vec::new(),
    };
    let targets = CaTargets {
        namespace: namespace.clone(),
        service: trireme::ADMISSION_SERVICE.to_owned(),
        validating: own.clone(),
        mutating: own,
        crds: crds::conversion::definition_names().into(),
        api_services,
    };
    ctx.tasks.spawn(keep_ca_bundle(ctx.clone(), leadership.clone(), certificates.clone(), targets));
    Ok(certificates)
}
