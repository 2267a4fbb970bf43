//! Telling the API server whom to trust: `caBundle` in webhook configurations, CRDs and APIServices.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};

use super::Certificates;
use crate::lease::Leadership;
use crate::patch::{self, Subresource, Target, WriteError, Written};
use crate::writes::REQUEST_TIMEOUT;
use crate::{Context, backoff::Backoff};

/// How often the leader looks whether somebody (a chart's upgrade) took the bundle out again. Until then nobody can call the webhooks.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// Which objects get the bundle, where they call this service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaTargets {
    /// The service's namespace.
    pub namespace: String,
    /// The service's name.
    pub service: String,
    /// Names of ValidatingWebhookConfigurations.
    pub validating: Vec<String>,
    /// Names of MutatingWebhookConfigurations.
    pub mutating: Vec<String>,
    /// Names of CustomResourceDefinitions with a conversion webhook.
    pub crds: Vec<String>,
    /// Names of APIServices.
    pub api_services: Vec<String>,
}

/// Writes the bundle while this replica leads: at once, when it changes, when an installer made a target after this program
/// started, and when somebody took it out. Ends when the context's tasks stop; spawn it.
pub async fn keep_ca_bundle(
    ctx: Context,
    mut leadership: Leadership,
    certificates: Certificates,
    targets: CaTargets,
) {
    let mut bundle = certificates.ca_bundle();
    let mut backoff = Backoff::for_watches();
    loop {
        let mut wait = LOOK_EVERY;
        if leadership.may_write() {
            let pem = bundle.borrow_and_update().clone();
            match write_ca_bundle(&ctx, &leadership, &targets, &pem).await {
                Ok(Seen::All) => backoff.reset(),
                Ok(Seen::Some) => wait = backoff.next(&ctx.rng),
                Err(error) => {
                    tracing::warn!(%error, "the CA bundle was not written everywhere; trying again");
                    wait = backoff.next(&ctx.rng);
                }
            }
        }
        tokio::select! {
            biased;
            () = ctx.tasks.stopping() => return,
            _gained = leadership.changed() => {}
            Ok(()) = bundle.changed() => {}
            () = ctx.clock.sleep(wait) => {}
        }
    }
}

/// How many of the targets there are.
enum Seen {
    All,
    Some,
}

/// Writes the bundle into each target where it is not yet; the last error, after all were tried.
async fn write_ca_bundle(
    ctx: &Context,
    leadership: &Leadership,
    targets: &CaTargets,
    pem: &str,
) -> Result<Seen, WriteError> {
    let admission = "admissionregistration.k8s.io";
    let kinds = [
        (&targets.validating, admission, "ValidatingWebhookConfiguration"),
        (&targets.mutating, admission, "MutatingWebhookConfiguration"),
        (&targets.crds, "apiextensions.k8s.io", "CustomResourceDefinition"),
        (&targets.api_services, "apiregistration.k8s.io", "APIService"),
    ];
    let mut result = Ok(Seen::All);
    for (names, group, kind) in kinds {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        let api: Api<DynamicObject> = Api::all_with(ctx.clients.write.clone(), &resource);
        for name in names {
            match write_one(&api, leadership, name, targets, &STANDARD.encode(pem)).await {
                Ok(()) => {}
                Err(WriteError::Gone) => result = result.map(|_| Seen::Some),
                Err(error) => result = Err(error),
            }
        }
    }
    result
}

async fn write_one(
    api: &Api<DynamicObject>,
    leadership: &Leadership,
    name: &str,
    targets: &CaTargets,
    bundle: &str,
) -> Result<(), WriteError> {
    let object = in_time(async { api.get(name).await.map_err(WriteError::from) }).await?;
    let Some(body) = with_bundle(&object.data, targets, bundle) else { return Ok(()) };
    if !leadership.may_write() {
        return Ok(());
    }
    let target = Target::of(&object);
    in_time(patch::merge::<_, Written>(api, &target, body, Subresource::Main)).await?;
    tracing::info!(name, "wrote the CA bundle");
    Ok(())
}

/// The leader's limit for one request: without it a write could still be under way when the next leader begins.
async fn in_time<T>(request: impl Future<Output = Result<T, WriteError>>) -> Result<T, WriteError> {
    let answer = tokio::time::timeout(REQUEST_TIMEOUT, request).await;
    answer.unwrap_or_else(|_elapsed| Err(WriteError::timed_out(REQUEST_TIMEOUT)))
}

/// The patch that puts the bundle in, or none if it is there.
fn with_bundle(object: &Value, targets: &CaTargets, bundle: &str) -> Option<Value> {
    if let Some(seen) = object.get("webhooks").and_then(Value::as_array) {
        // A list is replaced as a whole.
        let mut webhooks = seen.clone();
        for webhook in &mut webhooks {
            set(&mut webhook["clientConfig"], targets, bundle);
        }
        return (webhooks != *seen).then(|| json!({ "webhooks": webhooks }));
    }
    if let Some(service) = object.get("spec").filter(|spec| is_for(spec, targets)) {
        // Whom to trust is said, so nobody need be trusted unseen; the API server refuses both together.
        let known = service["caBundle"] == *bundle && service["insecureSkipTLSVerify"] != true;
        return (!known).then(|| json!({ "spec": { "caBundle": bundle, "insecureSkipTLSVerify": false } }));
    }
    let seen = object.pointer("/spec/conversion/webhook/clientConfig")?;
    let mut config = seen.clone();
    set(&mut config, targets, bundle);
    (config != *seen).then(
        || json!({ "spec": { "conversion": { "webhook": { "clientConfig": { "caBundle": bundle } } } } }),
    )
}

fn set(config: &mut Value, targets: &CaTargets, bundle: &str) {
    if is_for(config, targets) {
        config["caBundle"] = json!(bundle);
    }
}

/// Whether requests go to the service: of others this authority says nothing.
fn is_for(config: &Value, targets: &CaTargets) -> bool {
    let service = config.get("service");
    service.is_some_and(|service| {
        service["namespace"] == *targets.namespace && service["name"] == *targets.service
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_is_written_where_a_service_is_called_and_only_when_it_differs() {
        let targets = CaTargets { namespace: "n".into(), service: "s".into(), ..CaTargets::default() };
        let service = json!({"service": {"name": "s", "namespace": "n"}});
        let webhooks = json!({"webhooks": [{"name": "a", "clientConfig": service}, {"name": "b", "clientConfig": {"url": "https://x"}}]});
        let patch = with_bundle(&webhooks, &targets, "Q0E=").unwrap();
        assert_eq!(patch["webhooks"][0]["clientConfig"]["caBundle"], "Q0E=");
        assert_eq!(patch["webhooks"][1], webhooks["webhooks"][1]);
        assert_eq!(with_bundle(&patch, &targets, "Q0E="), None);

        let crd =
            json!({"spec": {"conversion": {"strategy": "Webhook", "webhook": {"clientConfig": service}}}});
        let patch = with_bundle(&crd, &targets, "Q0E=").unwrap();
        assert_eq!(
            patch,
            json!({"spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": "Q0E="}}}}})
        );
        assert_eq!(
            with_bundle(&json!({"spec": {"conversion": {"strategy": "None"}}}), &targets, "Q0E="),
            None
        );

        let api =
            json!({"spec": {"service": {"name": "s", "namespace": "n"}, "insecureSkipTLSVerify": true}});
        let patch = with_bundle(&api, &targets, "Q0E=").unwrap();
        assert_eq!(patch, json!({"spec": {"caBundle": "Q0E=", "insecureSkipTLSVerify": false}}));
        let api = json!({"spec": {"service": {"name": "s", "namespace": "n"}, "caBundle": "Q0E="}});
        assert_eq!(with_bundle(&api, &targets, "Q0E="), None);
        let other = json!({"spec": {"service": {"name": "other", "namespace": "n"}}});
        assert_eq!(with_bundle(&other, &targets, "Q0E="), None);
        assert_eq!(with_bundle(&json!({"spec": {"service": null, "group": ""}}), &targets, "Q0E="), None);
    }
}
