//! Discovery, health, version, tables, and the shape of errors.

use anyhow::{Result, ensure};
use http::Method;
use serde_json::json;

use super::shapes::{CONFIGMAPS, PODS, configmap, pod};
use crate::{Case, Harness, topic};

pub(super) const CASES: &[Case] = topic!["discovery", OnlyTheApi:
    the_server_tells_its_version,
    the_health_endpoints_answer_ok,
    the_core_versions_are_listed,
    the_groups_are_listed,
    a_group_tells_its_versions,
    the_core_resources_tell_verbs_and_scope,
    subresources_are_listed,
    an_unknown_group_version_is_404,
    an_unknown_path_is_404,
    the_aggregated_discovery_answers,
    a_table_of_pods_has_kubectls_columns,
    a_table_of_pods_counts_sidecars,
    a_table_of_one_object,
    a_table_of_an_empty_list_has_columns,
    partial_metadata_has_no_spec,
    a_table_can_be_watched,
    answers_are_json,
    an_accept_nobody_serves_is_406,
    a_missing_object_in_a_table_request_is_a_status,
];

async fn the_server_tells_its_version(api: Harness) -> Result<()> {
    let version = api.get("/version").await?.is(200)?.has("/major", "1")?.filled("/gitVersion")?;
    ensure!(version.string("/minor")?.trim_end_matches('+').parse::<u32>()? >= 33, "{}", version.text);
    Ok(())
}

async fn the_health_endpoints_answer_ok(api: Harness) -> Result<()> {
    for path in ["/healthz", "/readyz", "/livez"] {
        let answer = api.get(path).await?.is(200)?;
        ensure!(answer.text == "ok", "{path}: {}", answer.text);
    }
    Ok(())
}

async fn the_core_versions_are_listed(api: Harness) -> Result<()> {
    api.get("/api").await?.is(200)?.has("/kind", "APIVersions")?.has("/versions", json!(["v1"]))?;
    Ok(())
}

async fn the_groups_are_listed(api: Harness) -> Result<()> {
    let answer = api.get("/apis").await?.is(200)?.has("/kind", "APIGroupList")?;
    let groups: Vec<_> =
        answer.at("/groups").as_array().into_iter().flatten().filter_map(|g| g["name"].as_str()).collect();
    for wanted in [
        "batch",
        "coordination.k8s.io",
        "policy",
        "apiextensions.k8s.io",
        "scheduling.k8s.io",
        "events.k8s.io",
    ] {
        ensure!(groups.contains(&wanted), "{wanted} is not among {groups:?}");
    }
    Ok(())
}

async fn a_group_tells_its_versions(api: Harness) -> Result<()> {
    let group = api.get("/apis/batch").await?.is(200)?.has("/kind", "APIGroup")?.has("/name", "batch")?;
    group.has("/preferredVersion/version", "v1")?.has("/versions/0/groupVersion", "batch/v1")?;
    Ok(())
}

fn resource(answer: &crate::Answer, name: &str) -> serde_json::Value {
    let all = answer.at("/resources").as_array().cloned().unwrap_or_default();
    all.into_iter().find(|resource| resource["name"] == name).unwrap_or_default()
}

async fn the_core_resources_tell_verbs_and_scope(api: Harness) -> Result<()> {
    let answer =
        api.get("/api/v1").await?.is(200)?.has("/kind", "APIResourceList")?.has("/groupVersion", "v1")?;
    let pods = resource(&answer, "pods");
    ensure!(pods["namespaced"] == true && pods["kind"] == "Pod" && pods["singularName"] == "pod", "{pods}");
    ensure!(pods["shortNames"] == json!(["po"]), "{pods}");
    let verbs = pods["verbs"].as_array().cloned().unwrap_or_default();
    for verb in ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"] {
        ensure!(verbs.contains(&json!(verb)), "{verb} is not among {verbs:?}");
    }
    ensure!(resource(&answer, "nodes")["namespaced"] == false, "nodes are cluster-scoped");
    Ok(())
}

async fn subresources_are_listed(api: Harness) -> Result<()> {
    let answer = api.get("/api/v1").await?.is(200)?;
    ensure!(resource(&answer, "pods/binding")["kind"] == "Binding", "{}", answer.text);
    let eviction = resource(&answer, "pods/eviction");
    ensure!(
        eviction["kind"] == "Eviction" && eviction["group"] == "policy" && eviction["version"] == "v1",
        "{eviction}"
    );
    ensure!(resource(&answer, "pods/status")["kind"] == "Pod", "{}", answer.text);
    Ok(())
}

async fn an_unknown_group_version_is_404(api: Harness) -> Result<()> {
    api.get("/apis/batch/v9").await?.is(404)?;
    api.get("/apis/nonsense.example.com").await?.is(404)?;
    Ok(())
}

async fn an_unknown_path_is_404(api: Harness) -> Result<()> {
    api.get("/nonsense").await?.is(404)?;
    Ok(())
}

async fn the_aggregated_discovery_answers(api: Harness) -> Result<()> {
    let accept =
        [("accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json")];
    let answer = api.send(Method::GET, "/apis", &accept, None).await?.is(200)?;
    let kind = answer.string("/kind")?;
    ensure!(
        kind == "APIGroupDiscoveryList" || kind == "APIGroupList",
        "either form is understood by clients: {kind}"
    );
    Ok(())
}

const TABLE: [(&str, &str); 1] =
    [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json")];

async fn a_table_of_pods_has_kubectls_columns(api: Harness) -> Result<()> {
    api.post(PODS, pod("a")).await?.is(201)?;
    let table = api.send(Method::GET, PODS, &TABLE, None).await?.is(200)?.has("/kind", "Table")?;
    let columns: Vec<_> = table
        .at("/columnDefinitions")
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|c| c["name"].as_str())
        .collect();
    ensure!(columns.starts_with(&["Name", "Ready", "Status", "Restarts", "Age"]), "{columns:?}");
    let table = table
        .has("/apiVersion", "meta.k8s.io/v1")?
        .has("/rows/0/cells/0", "a")?
        .has("/rows/0/cells/1", "0/1")?;
    table.has("/rows/0/cells/2", "Pending")?.filled("/metadata/resourceVersion")?;
    Ok(())
}

async fn a_table_of_pods_counts_sidecars(api: Harness) -> Result<()> {
    let mut body = pod("a");
    body["spec"]["initContainers"] = json!([
        {"name": "setup", "image": "busybox"},
        {"name": "sidecar", "image": "busybox", "restartPolicy": "Always"},
    ]);
    api.post(PODS, body).await?.is(201)?;
    let status = |name: &str, ready: bool| {
        json!({"name": name, "ready": ready, "started": ready, "restartCount": 0, "image": "busybox", "imageID": "",
            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}})
    };
    let patch = json!({"status": {"phase": "Running",
        "conditions": [{"type": "Initialized", "status": "True"}],
        "initContainerStatuses": [status("sidecar", true)],
        "containerStatuses": [status("main", false)]}});
    api.merge(&format!("{PODS}/a/status"), patch).await?.is(200)?;
    api.send(Method::GET, PODS, &TABLE, None).await?.is(200)?.has("/rows/0/cells/1", "1/2")?;
    Ok(())
}

async fn a_table_of_one_object(api: Harness) -> Result<()> {
    api.post(CONFIGMAPS, configmap("a")).await?.is(201)?;
    let table = api
        .send(Method::GET, &format!("{CONFIGMAPS}/a"), &TABLE, None)
        .await?
        .is(200)?
        .has("/kind", "Table")?;
    table.has("/rows/0/cells/0", "a")?.has("/rows/0/object/metadata/name", "a")?.lacks("/rows/1")?;
    Ok(())
}

async fn a_table_of_an_empty_list_has_columns(api: Harness) -> Result<()> {
    let table = api.send(Method::GET, PODS, &TABLE, None).await?.is(200)?.has("/kind", "Table")?;
    ensure!(table.at("/columnDefinitions/0/name") == "Name", "{}", table.text);
    Ok(())
}

async fn partial_metadata_has_no_spec(api: Harness) -> Result<()> {
    api.post(PODS, pod("a")).await?.is(201)?;
    let accept =
        [("accept", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json")];
    let list = api
        .send(Method::GET, PODS, &accept, None)
        .await?
        .is(200)?
        .has("/kind", "PartialObjectMetadataList")?;
    list.has("/items/0/metadata/name", "a")?.lacks("/items/0/spec")?;
    let accept =
        [("accept", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json")];
    let one = api.send(Method::GET, &format!("{PODS}/a"), &accept, None).await?.is(200)?;
    one.has("/kind", "PartialObjectMetadata")?.lacks("/spec")?;
    Ok(())
}

async fn a_table_can_be_watched(api: Harness) -> Result<()> {
    api.post(PODS, pod("a")).await?.is(201)?;
    let path = format!("{PODS}?watch=1&timeoutSeconds=1");
    let answer = api.send(Method::GET, &path, &TABLE, None).await?.is(200)?;
    let event: serde_json::Value = serde_json::from_str(answer.text.lines().next().unwrap_or_default())?;
    ensure!(event["type"] == "ADDED" && event["object"]["kind"] == "Table", "{event}");
    ensure!(event["object"]["rows"][0]["cells"][0] == "a", "{event}");
    Ok(())
}

async fn answers_are_json(api: Harness) -> Result<()> {
    for accept in ["application/json", "*/*"] {
        let answer = api.send(Method::GET, CONFIGMAPS, &[("accept", accept)], None).await?.is(200)?;
        answer.has("/kind", "ConfigMapList")?;
    }
    Ok(())
}

async fn an_accept_nobody_serves_is_406(api: Harness) -> Result<()> {
    let answer = api.send(Method::GET, CONFIGMAPS, &[("accept", "text/html")], None).await?;
    answer.refused(406, "NotAcceptable")?;
    Ok(())
}

async fn a_missing_object_in_a_table_request_is_a_status(api: Harness) -> Result<()> {
    api.send(Method::GET, &format!("{PODS}/none"), &TABLE, None).await?.refused(404, "NotFound")?;
    Ok(())
}
