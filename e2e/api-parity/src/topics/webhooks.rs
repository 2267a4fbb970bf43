//! Admission webhooks.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::shapes::{CONFIGMAPS, PODS, at, configmap, labelled, pod};
use crate::{Case, Harness, topic};

pub(super) const CASES: &[Case] = topic!["webhooks", Webhooks:
    a_mutating_webhook_changes_what_is_stored,
    a_mutating_webhook_runs_in_a_dry_run_and_is_told,
    a_webhook_sees_operation_kind_and_user,
    a_webhook_sees_the_old_object_of_an_update,
    a_validating_webhook_refuses_with_its_own_code,
    a_validating_webhook_refuses_deletions,
    a_refusal_without_a_code_is_400,
    an_object_selector_spares_the_others,
    a_namespace_selector_spares_other_namespaces,
    a_rule_spares_other_operations,
    a_webhook_that_cannot_be_reached_fails_the_request,
    a_webhook_that_may_be_ignored_is_ignored,
    a_webhook_that_answers_nonsense_fails_the_request,
    a_webhook_of_status_writes_sees_the_subresource,
    configurations_get_their_defaults,
    mutation_comes_before_validation_of_the_object,
    validating_webhooks_come_after_validation_of_the_object,
];

const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

/// One webhook for ConfigMaps of this case's namespace; `change` may widen it.
async fn install(api: &Harness, collection: &str, path: &str, change: impl Fn(&mut Value)) -> Result<()> {
    let kind = if collection == MUTATING {
        "MutatingWebhookConfiguration"
    } else {
        "ValidatingWebhookConfiguration"
    };
    let mut webhook = json!({"name": "test.parity.trireme.dev", "clientConfig": api.webhook(path)?,
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "{ns}"}},
        "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Fail", "timeoutSeconds": 5});
    change(&mut webhook);
    let body = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "w-{u}"}, "webhooks": [webhook]});
    api.post(collection, body).await?.is(201)?;
    Ok(())
}

async fn remove(api: &Harness, collection: &str) -> Result<()> {
    api.delete(&at(collection, "w-{u}")).await?.ok()?;
    Ok(())
}

/// Configurations reach the server's admission a moment after they are stored: tries fresh names until one is treated so.
async fn eventually(
    api: &Harness,
    collection: &str,
    object: impl Fn(&str) -> Value,
    pass: impl Fn(&crate::Answer) -> bool,
) -> Result<crate::Answer> {
    let mut last = None;
    for attempt in 0..100 {
        let answer = api.post(collection, object(&format!("try-{attempt}"))).await?;
        if pass(&answer) {
            return Ok(answer);
        }
        last = Some(answer);
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    anyhow::bail!("the webhook did not show in 10 s: {last:?}")
}

fn mutated(answer: &crate::Answer) -> bool {
    answer.at("/metadata/labels/parity.trireme.dev~1mutated") == "true"
}

async fn a_mutating_webhook_changes_what_is_stored(api: Harness) -> Result<()> {
    install(&api, MUTATING, "/label", |_| ()).await?;
    let made = eventually(&api, CONFIGMAPS, |name| labelled(name, "x=y"), mutated).await?.is(201)?;
    let stored = api.get(&at(CONFIGMAPS, &made.string("/metadata/name")?)).await?;
    ensure!(mutated(&stored) && stored.at("/metadata/labels/x") == "y", "{}", stored.text);
    remove(&api, MUTATING).await
}

async fn a_mutating_webhook_runs_in_a_dry_run_and_is_told(api: Harness) -> Result<()> {
    install(&api, MUTATING, "/echo", |_| ()).await?;
    eventually(&api, CONFIGMAPS, configmap, |answer| {
        answer.at("/metadata/annotations/operation") == "CREATE"
    })
    .await?;
    let dry = api.post(&format!("{CONFIGMAPS}?dryRun=All"), configmap("dry")).await?.is(201)?;
    dry.has("/metadata/annotations/dry-run", "true")?;
    remove(&api, MUTATING).await
}

async fn a_webhook_sees_operation_kind_and_user(api: Harness) -> Result<()> {
    install(&api, MUTATING, "/echo", |_| ()).await?;
    let made = eventually(&api, CONFIGMAPS, configmap, |answer| {
        answer.at("/metadata/annotations/operation") == "CREATE"
    })
    .await?;
    made.has("/metadata/annotations/kind", "ConfigMap")?
        .has("/metadata/annotations/resource", "configmaps")?
        .has("/metadata/annotations/user-known", "true")?
        .has("/metadata/annotations/dry-run", "false")?
        .has("/metadata/annotations/had-old", "false")?;
    remove(&api, MUTATING).await
}

async fn a_webhook_sees_the_old_object_of_an_update(api: Harness) -> Result<()> {
    install(&api, MUTATING, "/echo", |_| ()).await?;
    let made = eventually(&api, CONFIGMAPS, configmap, |answer| {
        answer.at("/metadata/annotations/operation") == "CREATE"
    })
    .await?;
    let path = at(CONFIGMAPS, &made.string("/metadata/name")?);
    let patched = api.merge(&path, json!({"data": {"a": "2"}})).await?.is(200)?;
    patched.has("/metadata/annotations/operation", "UPDATE")?.has("/metadata/annotations/had-old", "true")?;
    remove(&api, MUTATING).await
}

async fn a_validating_webhook_refuses_with_its_own_code(api: Harness) -> Result<()> {
    install(&api, VALIDATING, "/deny", |_| ()).await?;
    let refused = eventually(&api, CONFIGMAPS, configmap, |answer| answer.status != 201).await?;
    let refused = refused.refused(422, "Invalid")?;
    ensure!(
        refused.string("/message")?.contains("test.parity.trireme.dev"),
        "the message names the webhook: {}",
        refused.text
    );
    ensure!(
        refused.string("/message")?.contains("not in this house"),
        "and says what it said: {}",
        refused.text
    );
    remove(&api, VALIDATING).await
}

async fn a_validating_webhook_refuses_deletions(api: Harness) -> Result<()> {
    api.post(CONFIGMAPS, configmap("kept")).await?.is(201)?;
    install(&api, VALIDATING, "/deny-deletes", |webhook| {
        webhook["rules"][0]["operations"] = json!(["DELETE", "CREATE"])
    })
    .await?;
    for _ in 0..100 {
        if api.delete(&format!("{CONFIGMAPS}/kept?dryRun=All")).await?.status != 200 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    api.delete(&at(CONFIGMAPS, "kept")).await?.is(400)?;
    api.post(CONFIGMAPS, configmap("more")).await?.is(201)?;
    remove(&api, VALIDATING).await
}

async fn a_refusal_without_a_code_is_400(api: Harness) -> Result<()> {
    install(&api, VALIDATING, "/deny-deletes", |webhook| {
        webhook["rules"][0]["operations"] = json!(["DELETE"])
    })
    .await?;
    api.post(CONFIGMAPS, configmap("kept")).await?.is(201)?;
    for _ in 0..100 {
        let answer = api.delete(&format!("{CONFIGMAPS}/kept?dryRun=All")).await?;
        if answer.status != 200 {
            answer.has("/code", 400)?;
            return remove(&api, VALIDATING).await;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    anyhow::bail!("the webhook did not show in 10 s")
}

async fn an_object_selector_spares_the_others(api: Harness) -> Result<()> {
    install(&api, MUTATING, "/label", |webhook| {
        webhook["objectSelector"] = json!({"matchLabels": {"pick": "me"}})
    })
    .await?;
    eventually(&api, CONFIGMAPS, |name| labelled(name, "pick=me"), mutated).await?;
    let spared = api.post(CONFIGMAPS, labelled("other", "pick=you")).await?.is(201)?;
    ensure!(!mutated(&spared), "{}", spared.text);
    remove(&api, MUTATING).await
}

async fn a_namespace_selector_spares_other_namespaces(api: Harness) -> Result<()> {
    install(&api, MUTATING, "/label", |_| ()).await?;
    eventually(&api, CONFIGMAPS, configmap, mutated).await?;
    let spared = api.post("/api/v1/namespaces/default/configmaps", configmap("spared-{u}")).await?.is(201)?;
    ensure!(!mutated(&spared), "{}", spared.text);
    api.delete("/api/v1/namespaces/default/configmaps/spared-{u}").await?.ok()?;
    remove(&api, MUTATING).await
}

async fn a_rule_spares_other_operations(api: Harness) -> Result<()> {
    install(&api, MUTATING, "/label", |webhook| webhook["rules"][0]["operations"] = json!(["CREATE"]))
        .await?;
    let made = eventually(&api, CONFIGMAPS, configmap, mutated).await?;
    let path = at(CONFIGMAPS, &made.string("/metadata/name")?);
    let patched = api
        .merge(&path, json!({"metadata": {"labels": {"parity.trireme.dev/mutated": null}}}))
        .await?
        .is(200)?;
    ensure!(!mutated(&patched), "{}", patched.text);
    let spared = api.post(PODS, pod("a")).await?.is(201)?;
    ensure!(!mutated(&spared), "{}", spared.text);
    remove(&api, MUTATING).await
}

fn unreachable(webhook: &mut Value) {
    webhook["clientConfig"] = json!({"url": "https://127.0.0.1:1/nobody"});
    webhook["timeoutSeconds"] = json!(1);
}

async fn a_webhook_that_cannot_be_reached_fails_the_request(api: Harness) -> Result<()> {
    install(&api, VALIDATING, "/allow", unreachable).await?;
    let failed = eventually(&api, CONFIGMAPS, configmap, |answer| answer.status != 201).await?;
    failed.refused(500, "InternalError")?;
    remove(&api, VALIDATING).await
}

async fn a_webhook_that_may_be_ignored_is_ignored(api: Harness) -> Result<()> {
    install(&api, VALIDATING, "/allow", |webhook| {
        unreachable(webhook);
        webhook["failurePolicy"] = json!("Ignore");
    })
    .await?;
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    api.post(CONFIGMAPS, configmap("a")).await?.is(201)?;
    remove(&api, VALIDATING).await
}

async fn a_webhook_that_answers_nonsense_fails_the_request(api: Harness) -> Result<()> {
    install(&api, VALIDATING, "/broken", |_| ()).await?;
    let failed = eventually(&api, CONFIGMAPS, configmap, |answer| answer.status != 201).await?;
    failed.refused(500, "InternalError")?;
    remove(&api, VALIDATING).await
}

async fn a_webhook_of_status_writes_sees_the_subresource(api: Harness) -> Result<()> {
    install(&api, VALIDATING, "/deny", |webhook| webhook["rules"][0]["resources"] = json!(["pods/status"]))
        .await?;
    api.post(PODS, pod("a")).await?.is(201)?;
    for _ in 0..100 {
        let answer = api.merge(&format!("{PODS}/a/status"), json!({"status": {"message": "x"}})).await?;
        if answer.status != 200 {
            answer.is(422)?;
            api.merge(&at(PODS, "a"), json!({"metadata": {"labels": {"x": "y"}}})).await?.is(200)?;
            return remove(&api, VALIDATING).await;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    anyhow::bail!("the webhook did not show in 10 s")
}

async fn configurations_get_their_defaults(api: Harness) -> Result<()> {
    let body = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "w-{u}"}, "webhooks": [{"name": "test.parity.trireme.dev", "clientConfig": api.webhook("/allow")?,
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "{ns}"}},
            "sideEffects": "None", "admissionReviewVersions": ["v1"]}]});
    let made = api.post(MUTATING, body).await?.is(201)?.has("/metadata/generation", 1)?;
    made.has("/webhooks/0/failurePolicy", "Fail")?
        .has("/webhooks/0/timeoutSeconds", 10)?
        .has("/webhooks/0/matchPolicy", "Equivalent")?
        .has("/webhooks/0/reinvocationPolicy", "Never")?
        .has("/webhooks/0/objectSelector", json!({}))?;
    remove(&api, MUTATING).await
}

async fn mutation_comes_before_validation_of_the_object(api: Harness) -> Result<()> {
    install(&api, MUTATING, "/label", |_| ()).await?;
    eventually(&api, CONFIGMAPS, configmap, mutated).await?;
    let refused = api.post(CONFIGMAPS, labelled("a", "x=not good")).await?.refused(422, "Invalid")?;
    refused.cause("FieldValueInvalid", "metadata.labels")?;
    remove(&api, MUTATING).await
}

async fn validating_webhooks_come_after_validation_of_the_object(api: Harness) -> Result<()> {
    install(&api, VALIDATING, "/deny", |_| ()).await?;
    eventually(&api, CONFIGMAPS, configmap, |answer| answer.status != 201).await?;
    let refused = api.post(CONFIGMAPS, labelled("a", "x=not good")).await?.refused(422, "Invalid")?;
    refused.cause("FieldValueInvalid", "metadata.labels")?;
    remove(&api, VALIDATING).await
}
