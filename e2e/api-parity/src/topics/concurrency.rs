//! resourceVersion, conflicts, generation, and who may write status.

use anyhow::{Result, ensure};
use serde_json::json;

use super::shapes::{CONFIGMAPS, JOBS, NODES, PODS, at, configmap, job, node, pod};
use crate::{Case, Harness, topic};

pub(super) const CASES: &[Case] = topic!["concurrency", OnlyTheApi:
    every_write_raises_the_resource_version,
    a_write_that_changes_nothing_keeps_the_resource_version,
    put_with_an_old_version_conflicts,
    put_with_the_current_version_wins,
    put_without_a_version_wins_for_a_configmap,
    patch_with_an_old_version_conflicts,
    patch_with_another_uid_is_invalid,
    patch_with_an_old_version_and_another_uid_conflicts,
    put_with_another_uid_conflicts,
    generation_starts_at_one_and_follows_the_spec,
    a_label_does_not_raise_the_generation,
    status_is_ignored_when_a_job_is_created,
    the_main_resource_ignores_status_and_the_status_subresource_ignores_spec,
    a_node_keeps_its_status_through_a_put,
    status_put_needs_a_matching_version,
    status_patch_of_a_missing_pod_is_not_found,
    status_answers_with_the_whole_object,
    list_version_is_at_least_that_of_its_items,
];

async fn every_write_raises_the_resource_version(api: Harness) -> Result<()> {
    let first = api.post(CONFIGMAPS, configmap("a")).await?.is(201)?.version()?.parse::<u64>()?;
    let second = api
        .merge(&at(CONFIGMAPS, "a"), json!({"data": {"a": "2"}}))
        .await?
        .is(200)?
        .version()?
        .parse::<u64>()?;
    ensure!(second > first, "{second} is not above {first}");
    Ok(())
}

async fn a_write_that_changes_nothing_keeps_the_resource_version(api: Harness) -> Result<()> {
    let first = api.post(CONFIGMAPS, configmap("a")).await?.is(201)?;
    let path = at(CONFIGMAPS, "a");
    api.merge(&path, json!({"data": {"a": "1"}}))
        .await?
        .is(200)?
        .has("/metadata/resourceVersion", first.version()?)?;
    api.put(&path, configmap("a")).await?.is(200)?.has("/metadata/resourceVersion", first.version()?)?;
    Ok(())
}

async fn put_with_an_old_version_conflicts(api: Harness) -> Result<()> {
    let old = api.post(CONFIGMAPS, configmap("a")).await?.is(201)?.version()?;
    api.merge(&at(CONFIGMAPS, "a"), json!({"data": {"a": "2"}})).await?.is(200)?;
    let mut body = configmap("a");
    body["metadata"]["resourceVersion"] = json!(old);
    let refused = api.put(&at(CONFIGMAPS, "a"), body).await?.refused(409, "Conflict")?;
    refused.has("/details/name", "a")?.has("/details/kind", "configmaps")?;
    Ok(())
}

async fn put_with_the_current_version_wins(api: Harness) -> Result<()> {
    let current = api.post(CONFIGMAPS, configmap("a")).await?.is(201)?.version()?;
    let mut body = configmap("a");
    body["metadata"]["resourceVersion"] = json!(current);
    body["data"]["a"] = json!("2");
    api.put(&at(CONFIGMAPS, "a"), body).await?.is(200)?.has("/data/a", "2")?;
    Ok(())
}

async fn put_without_a_version_wins_for_a_configmap(api: Harness) -> Result<()> {
    api.post(CONFIGMAPS, configmap("a")).await?.is(201)?;
    api.merge(&at(CONFIGMAPS, "a"), json!({"data": {"a": "2"}})).await?.is(200)?;
    api.put(&at(CONFIGMAPS, "a"), configmap("a")).await?.is(200)?.has("/data/a", "1")?;
    Ok(())
}

async fn patch_with_an_old_version_conflicts(api: Harness) -> Result<()> {
    let old = api.post(CONFIGMAPS, configmap("a")).await?.is(201)?.version()?;
    let path = at(CONFIGMAPS, "a");
    let body = json!({"metadata": {"resourceVersion": old}, "data": {"a": "2"}});
    api.merge(&path, body.clone()).await?.is(200)?;
    api.merge(&path, body).await?.refused(409, "Conflict")?;
    api.get(&path).await?.has("/data/a", "2")?;
    Ok(())
}

async fn patch_with_another_uid_is_invalid(api: Harness) -> Result<()> {
    api.post(CONFIGMAPS, configmap("a")).await?.is(201)?;
    let body = json!({"metadata": {"uid": "11111111-2222-3333-4444-555555555555"}, "data": {"a": "2"}});
    let path = at(CONFIGMAPS, "a");
    // Unlike a PUT or a DELETE: here the uid is a field that may not change. A client must read this as "another object".
    api.merge(&path, body).await?.refused(422, "Invalid")?.cause("FieldValueInvalid", "metadata.uid")?;
    api.get(&path).await?.has("/data/a", "1")?;
    Ok(())
}

async fn patch_with_an_old_version_and_another_uid_conflicts(api: Harness) -> Result<()> {
    let old = api.post(CONFIGMAPS, configmap("a")).await?.is(201)?.version()?;
    api.delete(&at(CONFIGMAPS, "a")).await?.is(200)?;
    api.post(CONFIGMAPS, configmap("a")).await?.is(201)?;
    let body = json!({"metadata": {"uid": "11111111-2222-3333-4444-555555555555", "resourceVersion": old}});
    api.merge(&at(CONFIGMAPS, "a"), body).await?.refused(409, "Conflict")?;
    Ok(())
}

async fn put_with_another_uid_conflicts(api: Harness) -> Result<()> {
    api.post(CONFIGMAPS, configmap("a")).await?.is(201)?;
    let mut body = configmap("a");
    body["metadata"]["uid"] = json!("11111111-2222-3333-4444-555555555555");
    api.put(&at(CONFIGMAPS, "a"), body).await?.refused(409, "Conflict")?;
    Ok(())
}

async fn generation_starts_at_one_and_follows_the_spec(api: Harness) -> Result<()> {
    let mut body = job("a");
    body["spec"]["suspend"] = json!(true);
    api.post(JOBS, body).await?.is(201)?.has("/metadata/generation", 1)?;
    let patched = api.merge(&at(JOBS, "a"), json!({"spec": {"parallelism": 2}})).await?.is(200)?;
    patched.has("/metadata/generation", 2)?;
    Ok(())
}

async fn a_label_does_not_raise_the_generation(api: Harness) -> Result<()> {
    let mut body = job("a");
    body["spec"]["suspend"] = json!(true);
    api.post(JOBS, body).await?.is(201)?;
    let patched = api.merge(&at(JOBS, "a"), json!({"metadata": {"labels": {"x": "y"}}})).await?.is(200)?;
    patched.has("/metadata/generation", 1)?;
    Ok(())
}

async fn status_is_ignored_when_a_job_is_created(api: Harness) -> Result<()> {
    let mut body = job("a");
    body["spec"]["suspend"] = json!(true);
    body["status"] = json!({"failed": 3});
    api.post(JOBS, body).await?.is(201)?.lacks("/status/failed")?;
    Ok(())
}

async fn the_main_resource_ignores_status_and_the_status_subresource_ignores_spec(
    api: Harness,
) -> Result<()> {
    api.post(PODS, pod("a")).await?.is(201)?.has("/status/phase", "Pending")?;
    let path = at(PODS, "a");
    api.merge(&path, json!({"status": {"phase": "Running"}}))
        .await?
        .is(200)?
        .has("/status/phase", "Pending")?;
    let body = json!({"spec": {"nodeName": "elsewhere"}, "metadata": {"labels": {"x": "y"}}, "status": {"phase": "Running"}});
    let patched = api.merge(&format!("{path}/status"), body).await?.is(200)?;
    patched.has("/status/phase", "Running")?.lacks("/spec/nodeName")?;
    Ok(())
}

async fn a_node_keeps_its_status_through_a_put(api: Harness) -> Result<()> {
    api.post(NODES, node("keeps-{u}")).await?.is(201)?;
    let path = at(NODES, "keeps-{u}");
    let body = json!({"status": {"capacity": {"cpu": "4"}}});
    api.merge(&format!("{path}/status"), body).await?.is(200)?;
    api.put(&path, node("keeps-{u}")).await?.is(200)?.has("/status/capacity/cpu", "4")?;
    api.delete(&path).await?.ok()?;
    Ok(())
}

async fn status_put_needs_a_matching_version(api: Harness) -> Result<()> {
    let made = api.post(PODS, pod("a")).await?.is(201)?;
    let path = at(PODS, "a");
    api.merge(&path, json!({"metadata": {"labels": {"x": "y"}}})).await?.is(200)?;
    let mut body = made.body.clone();
    body["status"]["phase"] = json!("Running");
    api.put(&format!("{path}/status"), body).await?.refused(409, "Conflict")?;
    Ok(())
}

async fn status_patch_of_a_missing_pod_is_not_found(api: Harness) -> Result<()> {
    let path = format!("{PODS}/none/status");
    api.merge(&path, json!({"status": {"phase": "Running"}}))
        .await?
        .refused(404, "NotFound")?
        .has("/details/kind", "pods")?;
    Ok(())
}

async fn status_answers_with_the_whole_object(api: Harness) -> Result<()> {
    api.post(PODS, pod("a")).await?.is(201)?;
    api.get(&format!("{PODS}/a/status"))
        .await?
        .is(200)?
        .has("/kind", "Pod")?
        .has("/spec/containers/0/name", "main")?;
    Ok(())
}

async fn list_version_is_at_least_that_of_its_items(api: Harness) -> Result<()> {
    let made = api.post(CONFIGMAPS, configmap("a")).await?.is(201)?.version()?.parse::<u64>()?;
    let list =
        api.get(CONFIGMAPS).await?.is(200)?.has("/kind", "ConfigMapList")?.version()?.parse::<u64>()?;
    ensure!(list >= made, "{list} is below {made}");
    Ok(())
}
