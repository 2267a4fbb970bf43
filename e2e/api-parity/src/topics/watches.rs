//! Watches: order, resuming, bookmarks, selectors, ends.

use anyhow::{Result, ensure};
use serde_json::json;

use super::shapes::{CONFIGMAPS, CRDS, PODS, at, configmap, labelled, pod};
use crate::{Case, Harness, topic};

pub(super) const CASES: &[Case] = topic!["watches", OnlyTheApi:
    a_watch_from_a_list_tells_what_comes_after_it,
    a_watch_without_a_version_begins_with_what_exists,
    a_watch_from_zero_begins_with_what_exists,
    a_watch_resumes_where_it_was_left,
    a_deletion_carries_a_version_of_its_own,
    a_watch_with_a_selector_turns_leaving_into_deleted,
    a_watch_with_a_selector_turns_entering_into_added,
    a_watch_with_a_selector_hides_the_others,
    a_field_selector_follows_pods_as_they_are_bound,
    a_watch_of_one_name_hides_the_others,
    a_marked_object_is_modified_then_deleted,
    a_write_that_changes_nothing_is_not_told,
    a_watch_ends_after_its_timeout,
    a_version_that_is_no_number_is_refused,
    a_version_before_the_kind_existed_is_expired,
    the_initial_events_end_with_a_bookmark,
    the_old_watch_path_works,
    events_of_a_watch_carry_kind_and_version,
    watches_see_writes_in_one_order,
    a_watch_of_all_namespaces_sees_this_one,
    a_watch_answers_in_lines_of_json,
];

async fn list_version(api: &Harness, path: &str) -> Result<String> {
    api.get(path).await?.is(200)?.version()
}

async fn a_watch_from_a_list_tells_what_comes_after_it(api: Harness) -> Result<()> {
    api.post(PODS, pod("before")).await?.is(201)?;
    let version = list_version(&api, PODS).await?;
    let mut watch = api.watch(&format!("{PODS}?watch=true&resourceVersion={version}")).await?;
    api.post(PODS, pod("a")).await?.is(201)?;
    api.merge(&at(PODS, "a"), json!({"metadata": {"labels": {"x": "y"}}})).await?.is(200)?;
    api.delete(&at(PODS, "a")).await?.is(200)?;
    watch.expect("ADDED", "a").await?;
    let modified = watch.expect("MODIFIED", "a").await?;
    ensure!(modified.object["metadata"]["labels"]["x"] == "y", "{}", modified.object);
    // Deleting a pod first marks it: grace zero, since no kubelet has it.
    let last = watch.until("DELETED").await?;
    ensure!(last.name() == "a", "{}", last.object);
    Ok(())
}

async fn a_watch_without_a_version_begins_with_what_exists(api: Harness) -> Result<()> {
    api.post(PODS, pod("a")).await?.is(201)?;
    let mut watch = api.watch(&format!("{PODS}?watch=1")).await?;
    watch.expect("ADDED", "a").await?;
    api.post(PODS, pod("b")).await?.is(201)?;
    watch.expect("ADDED", "b").await?;
    Ok(())
}

async fn a_watch_from_zero_begins_with_what_exists(api: Harness) -> Result<()> {
    api.post(PODS, pod("a")).await?.is(201)?;
    // Zero means "any state the server has at hand", which may lag: a list first makes sure it has seen the pod.
    api.get(PODS).await?.lists(&["a"])?;
    let mut watch = api.watch(&format!("{PODS}?watch=1&resourceVersion=0")).await?;
    watch.expect("ADDED", "a").await?;
    Ok(())
}

async fn a_watch_resumes_where_it_was_left(api: Harness) -> Result<()> {
    let version = list_version(&api, PODS).await?;
    let mut watch = api.watch(&format!("{PODS}?watch=1&resourceVersion={version}")).await?;
    api.post(PODS, pod("a")).await?.is(201)?;
    let seen = watch.expect("ADDED", "a").await?;
    drop(watch);
    api.post(PODS, pod("b")).await?.is(201)?;
    api.post(PODS, pod("c")).await?.is(201)?;
    let version = seen.object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
    let mut watch = api.watch(&format!("{PODS}?watch=1&resourceVersion={version}")).await?;
    watch.expect("ADDED", "b").await?;
    watch.expect("ADDED", "c").await?;
    Ok(())
}

async fn a_deletion_carries_a_version_of_its_own(api: Harness) -> Result<()> {
    let made = api.post(CONFIGMAPS, labelled("a", "t=1")).await?.is(201)?.version()?;
    let mut watch =
        api.watch(&format!("{CONFIGMAPS}?watch=1&labelSelector=t&resourceVersion={made}")).await?;
    api.delete(&at(CONFIGMAPS, "a")).await?.is(200)?;
    let deleted = watch.expect("DELETED", "a").await?;
    let version = deleted.object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    ensure!(version.parse::<u64>()? > made.parse::<u64>()?, "{version} is not above {made}");
    ensure!(deleted.object["data"]["a"] == "1", "the last state comes along: {}", deleted.object);
    Ok(())
}

async fn a_watch_with_a_selector_turns_leaving_into_deleted(api: Harness) -> Result<()> {
    let version = api.post(CONFIGMAPS, labelled("a", "t=1")).await?.is(201)?.version()?;
    let mut watch =
        api.watch(&format!("{CONFIGMAPS}?watch=1&labelSelector=t%3D1&resourceVersion={version}")).await?;
    api.merge(&at(CONFIGMAPS, "a"), json!({"metadata": {"labels": {"t": "2"}}})).await?.is(200)?;
    let gone = watch.expect("DELETED", "a").await?;
    ensure!(gone.object["metadata"]["labels"]["t"] == "1", "the state that still matched: {}", gone.object);
    Ok(())
}

async fn a_watch_with_a_selector_turns_entering_into_added(api: Harness) -> Result<()> {
    let version = api.post(CONFIGMAPS, labelled("a", "t=2")).await?.is(201)?.version()?;
    let mut watch =
        api.watch(&format!("{CONFIGMAPS}?watch=1&labelSelector=t%3D1&resourceVersion={version}")).await?;
    api.merge(&at(CONFIGMAPS, "a"), json!({"metadata": {"labels": {"t": "1"}}})).await?.is(200)?;
    watch.expect("ADDED", "a").await?;
    api.merge(&at(CONFIGMAPS, "a"), json!({"data": {"a": "2"}})).await?.is(200)?;
    watch.expect("MODIFIED", "a").await?;
    Ok(())
}

async fn a_watch_with_a_selector_hides_the_others(api: Harness) -> Result<()> {
    let version = list_version(&api, CONFIGMAPS).await?;
    let mut watch =
        api.watch(&format!("{CONFIGMAPS}?watch=1&labelSelector=t%3D1&resourceVersion={version}")).await?;
    api.post(CONFIGMAPS, labelled("other", "t=2")).await?.is(201)?;
    api.delete(&at(CONFIGMAPS, "other")).await?.is(200)?;
    watch.quiet().await?;
    Ok(())
}

async fn a_field_selector_follows_pods_as_they_are_bound(api: Harness) -> Result<()> {
    let version = list_version(&api, PODS).await?;
    let path = format!("{PODS}?watch=1&fieldSelector=spec.nodeName%3Dnobody-{{u}}&resourceVersion={version}");
    let mut watch = api.watch(&path).await?;
    api.post(PODS, pod("a")).await?.is(201)?;
    watch.quiet().await?;
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "nobody-{u}"}});
    api.post(&format!("{PODS}/a/binding"), binding).await?.is(201)?;
    watch.expect("ADDED", "a").await?;
    Ok(())
}

async fn a_watch_of_one_name_hides_the_others(api: Harness) -> Result<()> {
    let version = list_version(&api, CONFIGMAPS).await?;
    let path = format!("{CONFIGMAPS}?watch=1&fieldSelector=metadata.name%3Db&resourceVersion={version}");
    let mut watch = api.watch(&path).await?;
    api.post(CONFIGMAPS, configmap("a")).await?.is(201)?;
    api.post(CONFIGMAPS, configmap("b")).await?.is(201)?;
    watch.expect("ADDED", "b").await?;
    watch.quiet().await?;
    Ok(())
}

async fn a_marked_object_is_modified_then_deleted(api: Harness) -> Result<()> {
    let mut body = labelled("a", "t=1");
    body["metadata"]["finalizers"] = json!(["trireme.dev/hold"]);
    let version = api.post(CONFIGMAPS, body).await?.is(201)?.version()?;
    let mut watch =
        api.watch(&format!("{CONFIGMAPS}?watch=1&labelSelector=t&resourceVersion={version}")).await?;
    api.delete(&at(CONFIGMAPS, "a")).await?.is(200)?;
    let marked = watch.expect("MODIFIED", "a").await?;
    ensure!(marked.object["metadata"]["deletionTimestamp"].is_string(), "{}", marked.object);
    api.merge(&at(CONFIGMAPS, "a"), json!({"metadata": {"finalizers": []}})).await?.is(200)?;
    watch.expect("DELETED", "a").await?;
    Ok(())
}

async fn a_write_that_changes_nothing_is_not_told(api: Harness) -> Result<()> {
    let version = api.post(CONFIGMAPS, labelled("a", "t=1")).await?.is(201)?.version()?;
    let mut watch =
        api.watch(&format!("{CONFIGMAPS}?watch=1&labelSelector=t&resourceVersion={version}")).await?;
    api.merge(&at(CONFIGMAPS, "a"), json!({"data": {"a": "1"}})).await?.is(200)?;
    watch.quiet().await?;
    Ok(())
}

async fn a_watch_ends_after_its_timeout(api: Harness) -> Result<()> {
    let version = list_version(&api, PODS).await?;
    let mut watch = api.watch(&format!("{PODS}?watch=1&timeoutSeconds=1&resourceVersion={version}")).await?;
    watch.quiet().await?;
    watch.ends().await?;
    Ok(())
}

async fn a_version_that_is_no_number_is_refused(api: Harness) -> Result<()> {
    let refused = api.get(&format!("{PODS}?watch=1&resourceVersion=nonsense")).await?;
    ensure!(refused.status >= 400, "{}: {}", refused.status, refused.text);
    Ok(())
}

async fn a_version_before_the_kind_existed_is_expired(api: Harness) -> Result<()> {
    // The history of a custom kind begins with its definition: what lies before is forgotten on every server.
    let group = format!("{}.parity.trireme.dev", api.token());
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("things.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    api.post(CRDS, crd).await?.is(201)?;
    let path = format!("/apis/{group}/v1/namespaces/{{ns}}/things");
    api.until(&path, |answer| answer.status == 200).await?;
    // Told either as an answer or as the first event; clients must take both for "list again".
    let answer = api.get(&format!("{path}?watch=1&resourceVersion=1&timeoutSeconds=2")).await?;
    let told = if answer.status == 200 {
        let event: serde_json::Value = serde_json::from_str(answer.text.lines().next().unwrap_or_default())?;
        ensure!(event["type"] == "ERROR", "{event}");
        event["object"].clone()
    } else {
        answer.body.clone()
    };
    ensure!(told["code"] == 410 && told["reason"] == "Expired", "{told}");
    api.delete(&format!("{CRDS}/things.{group}")).await?.ok()?;
    Ok(())
}

async fn the_initial_events_end_with_a_bookmark(api: Harness) -> Result<()> {
    api.post(PODS, pod("a")).await?.is(201)?;
    let path = format!(
        "{PODS}?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&resourceVersion="
    );
    let mut watch = api.watch(&path).await?;
    watch.expect("ADDED", "a").await?;
    let mark = watch.expect("BOOKMARK", "").await?;
    ensure!(mark.object["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true", "{}", mark.object);
    ensure!(
        mark.object["kind"] == "Pod" && mark.object["metadata"]["resourceVersion"].is_string(),
        "{}",
        mark.object
    );
    Ok(())
}

async fn the_old_watch_path_works(api: Harness) -> Result<()> {
    api.post(PODS, pod("a")).await?.is(201)?;
    let mut watch = api.watch("/api/v1/watch/namespaces/{ns}/pods").await?;
    watch.expect("ADDED", "a").await?;
    Ok(())
}

async fn events_of_a_watch_carry_kind_and_version(api: Harness) -> Result<()> {
    api.post(PODS, pod("a")).await?.is(201)?;
    let mut watch = api.watch(&format!("{PODS}?watch=1")).await?;
    let event = watch.expect("ADDED", "a").await?;
    ensure!(event.object["kind"] == "Pod" && event.object["apiVersion"] == "v1", "{}", event.object);
    Ok(())
}

async fn watches_see_writes_in_one_order(api: Harness) -> Result<()> {
    let version = list_version(&api, PODS).await?;
    let path = format!("{PODS}?watch=1&resourceVersion={version}");
    let (mut one, mut two) = (api.watch(&path).await?, api.watch(&path).await?);
    let made = ["a", "b", "c", "d"].map(|name| api.post(PODS, pod(name)));
    futures::future::try_join_all(made).await?;
    let mut last = 0;
    for _ in 0..4 {
        let (first, second) = (one.until("ADDED").await?, two.until("ADDED").await?);
        ensure!(first.name() == second.name(), "{} and {}", first.object, second.object);
        let version =
            first.object["metadata"]["resourceVersion"].as_str().unwrap_or_default().parse::<u64>()?;
        ensure!(version > last, "{version} comes after {last}");
        last = version;
    }
    Ok(())
}

async fn a_watch_of_all_namespaces_sees_this_one(api: Harness) -> Result<()> {
    let version = list_version(&api, CONFIGMAPS).await?;
    let path = format!("/api/v1/configmaps?watch=1&labelSelector=t%3D{{u}}&resourceVersion={version}");
    let mut watch = api.watch(&path).await?;
    api.post(CONFIGMAPS, labelled("a", "t={u}")).await?.is(201)?;
    let event = watch.expect("ADDED", "a").await?;
    ensure!(event.object["metadata"]["namespace"] == api.namespace(), "{}", event.object);
    Ok(())
}

async fn a_watch_answers_in_lines_of_json(api: Harness) -> Result<()> {
    api.post(PODS, pod("a")).await?.is(201)?;
    let answer = api.get(&format!("{PODS}?watch=1&timeoutSeconds=1")).await?.is(200)?;
    let lines: Vec<_> = answer.text.lines().collect();
    ensure!(lines.len() == 1 && answer.text.ends_with('\n'), "{}", answer.text);
    Ok(())
}
