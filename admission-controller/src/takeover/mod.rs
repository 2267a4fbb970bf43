//! Taking over from a Kueue that runs in the cluster, and giving back.
//!
//! Both campaign for Kueue's Lease, so never do both act. While this program leads, what sends requests to Kueue – its webhook
//! configurations, the conversion of its kinds, its visibility API – sends them here, at the same paths; where they went before
//! is kept in an annotation. [`hand_back`] undoes it. Kueue's objects themselves (queues, Workloads, their definitions) stay as
//! they are: both read and write the same, and what was written here is Kueue's afterwards.

mod fields;
mod redirect;

use std::time::Duration;

use kit::Context;
use kit::backoff::Backoff;
use kit::lease::Leadership;
use kit::patch::{self, Subresource, Target, WriteError, Written};
use kit::writes::REQUEST_TIMEOUT;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind};
use serde_json::Value;
use tokio::sync::watch;

use redirect::{Elsewhere, Ends};

use crate::config::{Configuration, TakeOver};
use crate::visibility;

/// How often the leader looks whether somebody (an upgrade of Kueue's chart) has sent the requests to Kueue again.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// Why an object's requests do not go where they should.
#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error(transparent)]
    Elsewhere(#[from] Elsewhere),
}

/// Why not everything could be given back.
#[derive(Debug, thiserror::Error)]
#[error("not everything could be given back; try again: {}", .0.join("; "))]
pub struct HandBackError(Vec<String>);

/// An object that sends requests, by kind and name.
type Sender = (ApiResource, String);

fn senders(take_over: &TakeOver) -> Vec<Sender> {
    let of = |group: &str, kind: &str, name: String| {
        (ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind)), name)
    };
    let admission = "admissionregistration.k8s.io";
    let configuration = |does: &str| format!("{}-{does}-webhook-configuration", take_over.name);
    let mut all = vec![
        of(admission, "MutatingWebhookConfiguration", configuration("mutating")),
        of(admission, "ValidatingWebhookConfiguration", configuration("validating")),
    ];
    let converted = crds::conversion::definition_names();
    all.extend(converted.map(|name| of("apiextensions.k8s.io", "CustomResourceDefinition", name)));
    let services = visibility::VERSIONS.map(visibility::api_service_name);
    all.extend(services.map(|name| of("apiregistration.k8s.io", "APIService", name)));
    all
}

/// While this replica leads, requests for Kueue come here: at once, and again when somebody changed that. Ends when the context's
/// tasks stop; spawn it. `bundle` is the authority by which this program is trusted, where there is one.
pub(crate) async fn keep(
    ctx: Context,
    config: Configuration,
    mut leadership: Leadership,
    mut bundle: Option<watch::Receiver<String>>,
) {
    let Some(take_over) = &config.take_over else { return };
    let ends = Ends::new(take_over, &config.namespace);
    let begun = ctx.clock.now();
    let mut backoff = Backoff::for_watches();
    loop {
        let mut wait = LOOK_EVERY;
        if leadership.may_write() {
            let mut all_done = true;
            let authority = bundle.as_mut().map(|bundle| bundle.borrow_and_update().clone());
            for sender in senders(take_over) {
                let now = ctx.clock.now();
                let change =
                    |object: &DynamicObject| Ok(ends.taken(object, authority.as_deref(), now, begun));
                match change_one(&ctx, &sender, change, &|| leadership.may_write()).await {
                    Ok(true) => tracing::info!(
                        kind = sender.0.kind,
                        name = sender.1,
                        "requests for Kueue come here now"
                    ),
                    Ok(false) | Err(Problem::Write(WriteError::Gone)) => {}
                    Err(error) => {
                        all_done = false;
                        tracing::warn!(kind = sender.0.kind, name = sender.1, %error, "requests for Kueue do not come here")
                    }
                }
            }
            match all_done {
                true => backoff.reset(),
                // Until they come here nobody answers them.
                false => wait = backoff.next(&ctx.rng),
            }
        }
        tokio::select! {
            biased;
            () = ctx.tasks.stopping() => return,
            _leads = leadership.changed() => {}
            () = changed(&mut bundle) => {}
            () = ctx.clock.sleep(wait) => {}
        }
    }
}

async fn changed(bundle: &mut Option<watch::Receiver<String>>) {
    if let Some(bundle) = bundle
        && bundle.changed().await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

/// Sends requests to Kueue again, wherever they went before, and has Kueue own what was written to Workloads. It writes though it does
/// not lead: an administrator asks for it. A leader that still runs leaves it at that for ten minutes, but goes on writing to Workloads:
/// done again once it has stopped, this reaches those too.
///
/// # Errors
/// When an object could not be written, or sends its requests to neither.
pub async fn hand_back(ctx: Context, config: Configuration) -> Result<(), HandBackError> {
    let take_over = config.take_over.clone().unwrap_or_default();
    let ends = Ends::new(&take_over, &config.namespace);
    let mut failures = Vec::new();
    for sender in senders(&take_over) {
        let now = ctx.clock.now();
        match change_one(&ctx, &sender, |object| ends.given_back(object, now), &|| true).await {
            Ok(true) => tracing::info!(kind = sender.0.kind, name = sender.1, "requests go to Kueue again"),
            Ok(false) | Err(Problem::Write(WriteError::Gone)) => {}
            Err(problem) => failures.push(format!("{} {}: {problem}", sender.0.kind, sender.1)),
        }
    }
    // Last, to reach what a leader that still runs writes meanwhile.
    failures.extend(fields::give_back(&ctx).await);
    if failures.is_empty() { Ok(()) } else { Err(HandBackError(failures)) }
}

/// Whether it was changed; on a conflict what was written meanwhile is looked at once more.
async fn change_one(
    ctx: &Context,
    (resource, name): &Sender,
    change: impl Fn(&DynamicObject) -> Result<Option<Value>, Elsewhere>,
    may_write: &(dyn Fn() -> bool + Send + Sync),
) -> Result<bool, Problem> {
    let api: Api<DynamicObject> = Api::all_with(ctx.clients.write.clone(), resource);
    let mut last = WriteError::Gone;
    for _ in 0..2 {
        let object = in_time(async { api.get(name).await.map_err(WriteError::from) }).await?;
        let Some(body) = change(&object)?.filter(|_| may_write()) else { return Ok(false) };
        match in_time(patch::merge::<_, Written>(&api, &Target::of(&object), body, Subresource::Main)).await {
            Ok(_) => return Ok(true),
            Err(error @ WriteError::Conflict(_)) => last = error,
            Err(error) => return Err(error.into()),
        }
    }
    Err(last.into())
}

async fn in_time<T>(request: impl Future<Output = Result<T, WriteError>>) -> Result<T, WriteError> {
    let answer = tokio::time::timeout(REQUEST_TIMEOUT, request).await;
    answer.unwrap_or_else(|_elapsed| Err(WriteError::timed_out(REQUEST_TIMEOUT)))
}
