//! JSON merge patch, JSON patch, strategic merge patch.

use anyhow::{Result, ensure};
use serde_json::json;

use super::shapes::{CONFIGMAPS, PODS, at, configmap, labelled, pod};
use crate::{Case, Harness, topic};

pub(super) const CASES: &[Case] = topic!["patches", OnlyTheApi:
    merge_patch_adds_changes_and_removes,
    merge_patch_replaces_lists_whole,
    merge_patch_null_of_an_absent_field_is_fine,
    merge_patch_may_not_rename,
    merge_patch_of_a_missing_object_is_not_found,
    merge_patch_to_something_invalid_names_the_field,
    merge_patch_that_is_no_object_is_refused,
    json_patch_adds_replaces_and_removes,
    json_patch_with_a_failing_test_is_refused_and_changes_nothing,
    json_patch_remove_of_an_absent_path_is_refused,
    json_patch_escapes_slashes,
    json_patch_that_is_no_list_is_bad_request,
    strategic_patch_merges_containers_by_name,
    strategic_patch_deletes_list_members,
    strategic_patch_merges_conditions_by_type,
    strategic_patch_merges_finalizers_as_a_set,
    strategic_patch_replaces_a_map_when_told,
    strategic_patch_replaces_the_selector_of_a_budget,
    strategic_patch_merges_the_conditions_of_a_webhook_by_name,
    an_unknown_patch_type_is_415,
    patches_of_status_leave_other_conditions_to_the_writer,
    metadata_the_server_owns_survives_patches,
];

async fn merge_patch_adds_changes_and_removes(api: Harness) -> Result<()> {
    let mut body = configmap("a");
    body["data"] = json!({"keep": "1", "change": "1", "remove": "1"});
    api.post(CONFIGMAPS, body).await?.is(201)?;
    let patch = json!({"data": {"change": "2", "remove": null, "add": "3"}});
    let patched = api.merge(&at(CONFIGMAPS, "a"), patch).await?.is(200)?;
    patched.has("/data", json!({"keep": "1", "change": "2", "add": "3"}))?;
    Ok(())
}

async fn merge_patch_replaces_lists_whole(api: Harness) -> Result<()> {
    let mut body = configmap("a");
    body["metadata"]["finalizers"] = json!(["trireme.dev/one", "trireme.dev/two"]);
    api.post(CONFIGMAPS, body).await?.is(201)?;
    let patch = json!({"metadata": {"finalizers": ["trireme.dev/three"]}});
    let patched = api.merge(&at(CONFIGMAPS, "a"), patch).await?.is(200)?;
    patched.has("/metadata/finalizers", json!(["trireme.dev/three"]))?;
    Ok(())
}

async fn merge_patch_null_of_an_absent_field_is_fine(api: Harness) -> Result<()> {
    let made = api.post(CONFIGMAPS, configmap("a")).await?.is(201)?;
    let patched =
        api.merge(&at(CONFIGMAPS, "a"), json!({"metadata": {"labels": {"none": null}}})).await?.is(200)?;
    patched.lacks("/metadata/labels/none")?.has("/metadata/uid", made.uid()?)?;
    Ok(())
}

async fn merge_patch_may_not_rename(api: Harness) -> Result<()> {
    api.post(CONFIGMAPS, configmap("a")).await?.is(201)?;
    api.merge(&at(CONFIGMAPS, "a"), json!({"metadata": {"name": "b"}})).await?.refused(400, "BadRequest")?;
    Ok(())
}

async fn merge_patch_of_a_missing_object_is_not_found(api: Harness) -> Result<()> {
    api.merge(&at(CONFIGMAPS, "none"), json!({"data": {"a": "1"}})).await?.refused(404, "NotFound")?;
    Ok(())
}

async fn merge_patch_to_something_invalid_names_the_field(api: Harness) -> Result<()> {
    api.post(CONFIGMAPS, configmap("a")).await?.is(201)?;
    let patch = json!({"metadata": {"labels": {"x": "not good"}}});
    let refused = api.merge(&at(CONFIGMAPS, "a"), patch).await?.refused(422, "Invalid")?;
    refused.cause("FieldValueInvalid", "metadata.labels")?;
    Ok(())
}

async fn merge_patch_that_is_no_object_is_refused(api: Harness) -> Result<()> {
    api.post(CONFIGMAPS, configmap("a")).await?.is(201)?;
    let refused = api.merge(&at(CONFIGMAPS, "a"), json!([1])).await?;
    ensure!(refused.status >= 400, "{}: {}", refused.status, refused.text);
    Ok(())
}

async fn json_patch_adds_replaces_and_removes(api: Harness) -> Result<()> {
    let mut body = configmap("a");
    body["data"] = json!({"change": "1", "remove": "1"});
    api.post(CONFIGMAPS, body).await?.is(201)?;
    let patch = json!([
        {"op": "test", "path": "/data/change", "value": "1"},
        {"op": "replace", "path": "/data/change", "value": "2"},
        {"op": "remove", "path": "/data/remove"},
        {"op": "add", "path": "/data/add", "value": "3"},
        {"op": "copy", "from": "/data/add", "path": "/data/copy"},
    ]);
    let patched = api.json_patch(&at(CONFIGMAPS, "a"), patch).await?.is(200)?;
    patched.has("/data", json!({"change": "2", "add": "3", "copy": "3"}))?;
    Ok(())
}

async fn json_patch_with_a_failing_test_is_refused_and_changes_nothing(api: Harness) -> Result<()> {
    api.post(CONFIGMAPS, configmap("a")).await?.is(201)?;
    let patch = json!([
        {"op": "replace", "path": "/data/a", "value": "2"},
        {"op": "test", "path": "/data/a", "value": "7"},
    ]);
    api.json_patch(&at(CONFIGMAPS, "a"), patch).await?.refused(422, "Invalid")?;
    api.get(&at(CONFIGMAPS, "a")).await?.has("/data/a", "1")?;
    Ok(())
}

async fn json_patch_remove_of_an_absent_path_is_refused(api: Harness) -> Result<()> {
    api.post(CONFIGMAPS, configmap("a")).await?.is(201)?;
    let patch = json!([{"op": "remove", "path": "/data/none"}]);
    api.json_patch(&at(CONFIGMAPS, "a"), patch).await?.refused(422, "Invalid")?;
    Ok(())
}

async fn json_patch_escapes_slashes(api: Harness) -> Result<()> {
    api.post(CONFIGMAPS, labelled("a", "x=y")).await?.is(201)?;
    let patch = json!([{"op": "add", "path": "/metadata/labels/trireme.dev~1key", "value": "v"}]);
    let patched = api.json_patch(&at(CONFIGMAPS, "a"), patch).await?.is(200)?;
    patched.has("/metadata/labels", json!({"x": "y", "trireme.dev/key": "v"}))?;
    Ok(())
}

async fn json_patch_that_is_no_list_is_bad_request(api: Harness) -> Result<()> {
    api.post(CONFIGMAPS, configmap("a")).await?.is(201)?;
    api.json_patch(&at(CONFIGMAPS, "a"), json!({"op": "remove"})).await?.refused(400, "BadRequest")?;
    Ok(())
}

async fn strategic_patch_merges_containers_by_name(api: Harness) -> Result<()> {
    let mut body = pod("a");
    body["spec"]["containers"] = json!([{"name": "one", "image": "i1"}, {"name": "two", "image": "i2"}]);
    api.post(PODS, body).await?.is(201)?;
    let patch = json!({"spec": {"containers": [{"name": "two", "image": "changed"}]}});
    let patched = api.strategic(&at(PODS, "a"), patch).await?.is(200)?;
    ensure!(patched.at("/spec/containers").as_array().is_some_and(|all| all.len() == 2), "{}", patched.text);
    let images: Vec<_> = patched
        .at("/spec/containers")
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|c| c["image"].as_str())
        .collect();
    ensure!(images.contains(&"i1") && images.contains(&"changed"), "{images:?}");
    Ok(())
}

async fn strategic_patch_deletes_list_members(api: Harness) -> Result<()> {
    let mut body = pod("a");
    body["spec"]["schedulingGates"] = json!([{"name": "trireme.dev/one"}, {"name": "trireme.dev/two"}]);
    api.post(PODS, body).await?.is(201)?;
    let patch = json!({"spec": {"schedulingGates": [{"$patch": "delete", "name": "trireme.dev/one"}]}});
    let patched = api.strategic(&at(PODS, "a"), patch).await?.is(200)?;
    patched.has("/spec/schedulingGates", json!([{"name": "trireme.dev/two"}]))?;
    Ok(())
}

async fn strategic_patch_merges_conditions_by_type(api: Harness) -> Result<()> {
    api.post(PODS, pod("a")).await?.is(201)?;
    let path = format!("{PODS}/a/status");
    let condition =
        |kind: &str, status: &str| json!({"status": {"conditions": [{"type": kind, "status": status}]}});
    api.strategic(&path, condition("trireme.dev/One", "True")).await?.is(200)?;
    api.strategic(&path, condition("trireme.dev/Two", "True")).await?.is(200)?;
    let patched = api.strategic(&path, condition("trireme.dev/One", "False")).await?.is(200)?;
    let conditions = patched.at("/status/conditions").as_array().cloned().unwrap_or_default();
    let of = |kind: &str| conditions.iter().find(|c| c["type"] == kind).map(|c| c["status"].clone());
    ensure!(conditions.len() == 2, "{}", patched.text);
    ensure!(
        of("trireme.dev/One") == Some(json!("False")) && of("trireme.dev/Two") == Some(json!("True")),
        "{conditions:?}"
    );
    Ok(())
}

async fn strategic_patch_merges_finalizers_as_a_set(api: Harness) -> Result<()> {
    let mut body = configmap("a");
    body["metadata"]["finalizers"] = json!(["trireme.dev/one"]);
    api.post(CONFIGMAPS, body).await?.is(201)?;
    let path = at(CONFIGMAPS, "a");
    let patched =
        api.strategic(&path, json!({"metadata": {"finalizers": ["trireme.dev/two"]}})).await?.is(200)?;
    ensure!(
        patched.at("/metadata/finalizers").as_array().is_some_and(|all| all.len() == 2),
        "{}",
        patched.text
    );
    let patch = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["trireme.dev/one"]}});
    let patched = api.strategic(&path, patch).await?.is(200)?;
    patched.has("/metadata/finalizers", json!(["trireme.dev/two"]))?;
    Ok(())
}

async fn strategic_patch_replaces_a_map_when_told(api: Harness) -> Result<()> {
    api.post(CONFIGMAPS, configmap("a")).await?.is(201)?;
    let patch = json!({"data": {"$patch": "replace", "b": "2"}});
    api.strategic(&at(CONFIGMAPS, "a"), patch).await?.is(200)?.has("/data", json!({"b": "2"}))?;
    Ok(())
}

async fn strategic_patch_replaces_the_selector_of_a_budget(api: Harness) -> Result<()> {
    let budgets = "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets";
    let body = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "a"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "1", "b": "2"}}}});
    api.post(budgets, body).await?.is(201)?;
    let patch = json!({"spec": {"selector": {"matchLabels": {"c": "3"}}}});
    let patched = api.strategic(&at(budgets, "a"), patch).await?.is(200)?;
    patched.has("/spec/selector", json!({"matchLabels": {"c": "3"}}))?;
    Ok(())
}

async fn strategic_patch_merges_the_conditions_of_a_webhook_by_name(api: Harness) -> Result<()> {
    let configurations = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    // It selects nothing, so that nobody else's requests wait for it.
    let webhook = json!({"name": "one.trireme.dev", "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [{"apiGroups": ["none.trireme.dev"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["nothing"]}],
        "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore",
        "matchConditions": [{"name": "one", "expression": "true"}]});
    let body = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "conditions-{u}"}, "webhooks": [webhook]});
    api.post(configurations, body).await?.is(201)?;
    let path = at(configurations, "conditions-{u}");
    let patch = json!({"webhooks": [{"name": "one.trireme.dev", "matchConditions": [{"name": "two", "expression": "false"}]}]});
    let patched = api.strategic(&path, patch).await?.is(200)?;
    let conditions = patched.at("/webhooks/0/matchConditions").as_array().cloned().unwrap_or_default();
    ensure!(conditions.len() == 2, "{}", patched.text);
    api.delete(&path).await?.is(200)?;
    Ok(())
}

async fn an_unknown_patch_type_is_415(api: Harness) -> Result<()> {
    api.post(CONFIGMAPS, configmap("a")).await?.is(201)?;
    let refused = api.patch("application/json", &at(CONFIGMAPS, "a"), json!({"data": {"a": "2"}})).await?;
    refused.refused(415, "UnsupportedMediaType")?;
    Ok(())
}

async fn patches_of_status_leave_other_conditions_to_the_writer(api: Harness) -> Result<()> {
    api.post(PODS, pod("a")).await?.is(201)?;
    let path = format!("{PODS}/a/status");
    let two =
        json!({"status": {"conditions": [{"type": "A", "status": "True"}, {"type": "B", "status": "True"}]}});
    api.merge(&path, two).await?.is(200)?;
    let one = json!({"status": {"conditions": [{"type": "B", "status": "False"}]}});
    let patched = api.merge(&path, one).await?.is(200)?;
    ensure!(
        patched.at("/status/conditions").as_array().is_some_and(|all| all.len() == 1),
        "{}",
        patched.text
    );
    Ok(())
}

async fn metadata_the_server_owns_survives_patches(api: Harness) -> Result<()> {
    let made = api.post(CONFIGMAPS, configmap("a")).await?.is(201)?;
    let patch = json!({"metadata": {"creationTimestamp": null, "generation": 9}});
    let patched = api.merge(&at(CONFIGMAPS, "a"), patch).await?.is(200)?;
    patched.has("/metadata/creationTimestamp", made.string("/metadata/creationTimestamp")?)?;
    Ok(())
}
