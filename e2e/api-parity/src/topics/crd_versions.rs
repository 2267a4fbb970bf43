//! Custom kinds: subresources, versions, selectable fields, columns.

use anyhow::{Result, ensure};
use http::Method;
use serde_json::{Value, json};

use super::crd_schema::{define, thing, undefine};
use super::shapes::CRDS;
use crate::{Case, Harness, topic};

pub(super) const CASES: &[Case] = topic!["crd_versions", OnlyTheApi:
    status_is_dropped_at_creation,
    the_status_subresource_changes_nothing_else,
    the_main_resource_leaves_status_alone,
    the_status_subresource_is_validated,
    the_status_subresource_may_change_no_labels,
    scale_reads_and_writes_the_paths_it_was_given,
    scale_without_the_subresource_is_not_found,
    two_versions_show_one_object,
    a_version_that_is_not_served_is_not_found,
    the_storage_version_does_not_show,
    selectable_fields_select,
    selectable_fields_watch,
    fields_that_are_not_selectable_are_bad_request,
    cluster_scoped_kinds_live_outside_namespaces,
    short_names_show_in_discovery,
    printer_columns_show_in_a_table,
    printer_columns_take_slices_and_count_from_the_end,
    custom_kinds_can_be_watched,
    custom_kinds_page_like_others,
    finalizers_hold_custom_objects,
    json_patches_work_on_custom_kinds,
    the_kind_must_match_the_path,
];

async fn status_is_dropped_at_creation(api: Harness) -> Result<()> {
    let things = define(&api, |_| ()).await?;
    let mut body = thing("a", json!({"size": 1}));
    body["status"] = json!({"phase": "On"});
    api.post(&things, body).await?.is(201)?.lacks("/status")?;
    undefine(&api).await
}

async fn the_status_subresource_changes_nothing_else(api: Harness) -> Result<()> {
    let things = define(&api, |_| ()).await?;
    let made = api.post(&things, thing("a", json!({"size": 1}))).await?.is(201)?;
    let mut body = thing("a", json!({"size": 9}));
    body["metadata"]["resourceVersion"] = json!(made.version()?);
    body["status"] = json!({"phase": "On", "nonsense": 1});
    let put = api.put(&format!("{things}/a/status"), body).await?.is(200)?;
    put.has("/spec/size", 1)?.has("/status/phase", "On")?.lacks("/status/nonsense")?;
    undefine(&api).await
}

async fn the_main_resource_leaves_status_alone(api: Harness) -> Result<()> {
    let things = define(&api, |_| ()).await?;
    api.post(&things, thing("a", json!({"size": 1}))).await?.is(201)?;
    api.merge(&format!("{things}/a/status"), json!({"status": {"phase": "On"}})).await?.is(200)?;
    let patch = json!({"spec": {"size": 2}, "status": {"phase": "Off"}});
    let patched = api.merge(&format!("{things}/a"), patch).await?.is(200)?;
    patched.has("/status/phase", "On")?.has("/spec/size", 2)?;
    undefine(&api).await
}

async fn the_status_subresource_is_validated(api: Harness) -> Result<()> {
    let things = define(&api, |_| ()).await?;
    api.post(&things, thing("a", json!({"size": 1}))).await?.is(201)?;
    let refused = api.merge(&format!("{things}/a/status"), json!({"status": {"count": "x"}})).await?;
    refused.refused(422, "Invalid")?.cause("FieldValueTypeInvalid", "status.count")?;
    undefine(&api).await
}

async fn the_status_subresource_may_change_no_labels(api: Harness) -> Result<()> {
    let things = define(&api, |_| ()).await?;
    api.post(&things, thing("a", json!({"size": 1}))).await?.is(201)?;
    let patch = json!({"metadata": {"labels": {"x": "y"}, "finalizers": ["trireme.dev/hold"]}, "status": {"phase": "On"}});
    let patched = api.merge(&format!("{things}/a/status"), patch).await?.is(200)?;
    patched.lacks("/metadata/labels")?.lacks("/metadata/finalizers")?.has("/status/phase", "On")?;
    undefine(&api).await
}

async fn scale_reads_and_writes_the_paths_it_was_given(api: Harness) -> Result<()> {
    let things = define(&api, |crd| {
        crd["spec"]["versions"][0]["subresources"]["scale"] =
            json!({"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.count"});
    })
    .await?;
    api.post(&things, thing("a", json!({"size": 3}))).await?.is(201)?;
    api.merge(&format!("{things}/a/status"), json!({"status": {"count": 2}})).await?.is(200)?;
    let scale = api.get(&format!("{things}/a/scale")).await?.is(200)?.has("/kind", "Scale")?;
    scale.has("/apiVersion", "autoscaling/v1")?.has("/spec/replicas", 3)?.has("/status/replicas", 2)?;
    api.merge(&format!("{things}/a/scale"), json!({"spec": {"replicas": 5}})).await?.is(200)?;
    api.get(&format!("{things}/a")).await?.has("/spec/size", 5)?.has("/metadata/generation", 2)?;
    undefine(&api).await
}

async fn scale_without_the_subresource_is_not_found(api: Harness) -> Result<()> {
    let things = define(&api, |_| ()).await?;
    api.post(&things, thing("a", json!({"size": 3}))).await?.is(201)?;
    api.get(&format!("{things}/a/scale")).await?.is(404)?;
    undefine(&api).await
}

/// `v2` stored, `v1` served, the same schema.
fn second_version(crd: &mut serde_json::Value) {
    let mut second = crd["spec"]["versions"][0].clone();
    second["name"] = json!("v2");
    crd["spec"]["versions"][0]["storage"] = json!(false);
    if let Some(versions) = crd["spec"]["versions"].as_array_mut() {
        versions.push(second);
    }
}

async fn two_versions_show_one_object(api: Harness) -> Result<()> {
    let things = define(&api, second_version).await?;
    let second = things.replace("/v1/", "/v2/");
    api.until(&second, |answer| answer.status == 200).await?;
    let made = api.post(&things, thing("a", json!({"size": 1}))).await?.is(201)?;
    let seen = api.get(&format!("{second}/a")).await?.is(200)?.has("/metadata/uid", made.uid()?)?;
    seen.has("/apiVersion", format!("{}.parity.trireme.dev/v2", api.token()))?.has("/spec/mode", "Slow")?;
    api.merge(&format!("{second}/a"), json!({"spec": {"size": 2}})).await?.is(200)?;
    let seen = api.get(&format!("{things}/a")).await?.has("/spec/size", 2)?;
    seen.has("/apiVersion", format!("{}.parity.trireme.dev/v1", api.token()))?;
    undefine(&api).await
}

async fn a_version_that_is_not_served_is_not_found(api: Harness) -> Result<()> {
    let things = define(&api, |crd| {
        second_version(crd);
        crd["spec"]["versions"][1]["served"] = json!(false);
    })
    .await?;
    api.get(&things.replace("/v1/", "/v2/")).await?.is(404)?;
    api.post(&things, thing("a", json!({"size": 1}))).await?.is(201)?;
    undefine(&api).await
}

async fn the_storage_version_does_not_show(api: Harness) -> Result<()> {
    let things = define(&api, second_version).await?;
    api.post(&things, thing("a", json!({"size": 1}))).await?.is(201)?;
    let list = api.get(&things).await?.is(200)?.lists(&["a"])?;
    let version = format!("{}.parity.trireme.dev/v1", api.token());
    list.has("/apiVersion", version.clone())?
        .has("/kind", "ThingList")?
        .has("/items/0/apiVersion", version)?;
    api.get(&format!("{CRDS}/things.{{u}}.parity.trireme.dev"))
        .await?
        .has("/status/storedVersions", json!(["v2"]))?;
    undefine(&api).await
}

fn selectable(crd: &mut serde_json::Value) {
    crd["spec"]["versions"][0]["selectableFields"] = json!([{"jsonPath": ".spec.mode"}]);
}

async fn selectable_fields_select(api: Harness) -> Result<()> {
    let things = define(&api, selectable).await?;
    api.post(&things, thing("a", json!({"size": 1}))).await?.is(201)?;
    api.post(&things, thing("b", json!({"size": 1, "mode": "Fast"}))).await?.is(201)?;
    api.get(&format!("{things}?fieldSelector=spec.mode%3DFast")).await?.is(200)?.lists(&["b"])?;
    api.get(&format!("{things}?fieldSelector=spec.mode!%3DFast")).await?.is(200)?.lists(&["a"])?;
    undefine(&api).await
}

async fn selectable_fields_watch(api: Harness) -> Result<()> {
    let things = define(&api, selectable).await?;
    let version = api.post(&things, thing("a", json!({"size": 1}))).await?.is(201)?.version()?;
    let mut watch = api
        .watch(&format!("{things}?watch=1&fieldSelector=spec.mode%3DFast&resourceVersion={version}"))
        .await?;
    api.merge(&format!("{things}/a"), json!({"spec": {"mode": "Fast"}})).await?.is(200)?;
    watch.expect("ADDED", "a").await?;
    api.merge(&format!("{things}/a"), json!({"spec": {"mode": "Slow"}})).await?.is(200)?;
    watch.expect("DELETED", "a").await?;
    undefine(&api).await
}

async fn fields_that_are_not_selectable_are_bad_request(api: Harness) -> Result<()> {
    let things = define(&api, selectable).await?;
    api.get(&format!("{things}?fieldSelector=spec.size%3D1")).await?.refused(400, "BadRequest")?;
    undefine(&api).await
}

async fn cluster_scoped_kinds_live_outside_namespaces(api: Harness) -> Result<()> {
    let group = format!("{}.parity.trireme.dev", api.token());
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("things.{group}")},
        "spec": {"group": group, "scope": "Cluster", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    api.post(CRDS, crd).await?.is(201)?;
    let things = format!("/apis/{group}/v1/things");
    api.until(&things, |answer| answer.status == 200).await?;
    let made = api
        .post(
            &things,
            json!({"apiVersion": format!("{group}/v1"), "kind": "Thing", "metadata": {"name": "a"}}),
        )
        .await?;
    made.is(201)?.lacks("/metadata/namespace")?;
    api.get(&format!("/apis/{group}/v1/namespaces/{{ns}}/things/a")).await?.is(404)?;
    undefine(&api).await
}

async fn short_names_show_in_discovery(api: Harness) -> Result<()> {
    define(&api, |crd| {
        crd["spec"]["names"]["shortNames"] = json!(["thg"]);
        crd["spec"]["names"]["categories"] = json!(["all"]);
    })
    .await?;
    let path = "/apis/{u}.parity.trireme.dev/v1";
    let seen = api
        .until(path, |answer| {
            answer.at("/resources").as_array().is_some_and(|all| all.iter().any(|r| r["name"] == "things"))
        })
        .await?;
    let resources = seen.at("/resources").as_array().cloned().unwrap_or_default();
    let things = resources.iter().find(|resource| resource["name"] == "things").cloned().unwrap_or_default();
    ensure!(
        things["shortNames"] == json!(["thg"])
            && things["singularName"] == "thing"
            && things["namespaced"] == true,
        "{things}"
    );
    ensure!(resources.iter().any(|resource| resource["name"] == "things/status"), "{}", seen.text);
    undefine(&api).await
}

async fn printer_columns_show_in_a_table(api: Harness) -> Result<()> {
    let things = define(&api, |crd| {
        crd["spec"]["versions"][0]["additionalPrinterColumns"] = json!([
            {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
            {"name": "Mode", "type": "string", "jsonPath": ".spec.mode", "priority": 1},
        ]);
    })
    .await?;
    api.post(&things, thing("a", json!({"size": 3}))).await?.is(201)?;
    let accept = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json")];
    let table = api.send(Method::GET, &things, &accept, None).await?.is(200)?.has("/kind", "Table")?;
    let columns: Vec<_> = table
        .at("/columnDefinitions")
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|c| c["name"].as_str())
        .collect();
    ensure!(columns == ["Name", "Size", "Mode"], "{columns:?}");
    table
        .has("/rows/0/cells/0", "a")?
        .has("/rows/0/cells/1", 3)?
        .has("/rows/0/object/kind", "PartialObjectMetadata")?;
    undefine(&api).await
}

async fn printer_columns_take_slices_and_count_from_the_end(api: Harness) -> Result<()> {
    let paths = [
        (".spec.names[-1:]", json!("b")),
        (".spec.names[-1]", json!("b")),
        (".spec.names[0:1]", json!("a")),
        (".spec.names[-3:]", Value::Null),
        (".spec.names[2]", Value::Null),
    ];
    let columns: Vec<Value> =
        paths.iter().map(|(path, _)| json!({"name": path, "type": "string", "jsonPath": path})).collect();
    let things =
        define(&api, |crd| crd["spec"]["versions"][0]["additionalPrinterColumns"] = json!(columns)).await?;
    api.post(&things, thing("a", json!({"size": 1, "names": ["a", "b"]}))).await?.is(201)?;
    let accept = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json")];
    let mut table = api.send(Method::GET, &things, &accept, None).await?.is(200)?;
    for (column, (_, shown)) in paths.into_iter().enumerate() {
        table = table.has(&format!("/rows/0/cells/{}", column + 1), shown)?;
    }
    undefine(&api).await
}

async fn custom_kinds_can_be_watched(api: Harness) -> Result<()> {
    let things = define(&api, |_| ()).await?;
    let version = api.get(&things).await?.is(200)?.version()?;
    let mut watch = api.watch(&format!("{things}?watch=1&resourceVersion={version}")).await?;
    api.post(&things, thing("a", json!({"size": 1}))).await?.is(201)?;
    api.merge(&format!("{things}/a/status"), json!({"status": {"phase": "On"}})).await?.is(200)?;
    api.delete(&format!("{things}/a")).await?.is(200)?;
    for kind in ["ADDED", "MODIFIED", "DELETED"] {
        watch.expect(kind, "a").await?;
    }
    undefine(&api).await
}

async fn custom_kinds_page_like_others(api: Harness) -> Result<()> {
    let things = define(&api, |_| ()).await?;
    for name in ["c", "a", "b"] {
        api.post(&things, thing(name, json!({"size": 1}))).await?.is(201)?;
    }
    let first = api.get(&format!("{things}?limit=2")).await?.is(200)?.lists(&["a", "b"])?;
    let next = format!("{things}?limit=2&continue={}", first.string("/metadata/continue")?);
    api.get(&next).await?.is(200)?.lists(&["c"])?;
    undefine(&api).await
}

async fn finalizers_hold_custom_objects(api: Harness) -> Result<()> {
    let things = define(&api, |_| ()).await?;
    let mut body = thing("a", json!({"size": 1}));
    body["metadata"]["finalizers"] = json!(["trireme.dev/hold"]);
    api.post(&things, body).await?.is(201)?;
    let marked = api.delete(&format!("{things}/a")).await?.is(200)?.filled("/metadata/deletionTimestamp")?;
    marked.has("/metadata/generation", 2)?;
    api.merge(&format!("{things}/a"), json!({"metadata": {"finalizers": null}})).await?.is(200)?;
    api.get(&format!("{things}/a")).await?.is(404)?;
    undefine(&api).await
}

async fn json_patches_work_on_custom_kinds(api: Harness) -> Result<()> {
    let things = define(&api, |_| ()).await?;
    api.post(&things, thing("a", json!({"size": 1}))).await?.is(201)?;
    let patch = json!([{"op": "test", "path": "/spec/size", "value": 1}, {"op": "replace", "path": "/spec/size", "value": 2}]);
    api.json_patch(&format!("{things}/a"), patch.clone()).await?.is(200)?.has("/spec/size", 2)?;
    api.json_patch(&format!("{things}/a"), patch).await?.refused(422, "Invalid")?;
    undefine(&api).await
}

async fn the_kind_must_match_the_path(api: Harness) -> Result<()> {
    let things = define(&api, |_| ()).await?;
    let mut body = thing("a", json!({"size": 1}));
    body["kind"] = json!("Other");
    api.post(&things, body).await?.refused(422, "Invalid")?.cause("FieldValueInvalid", "kind")?;
    undefine(&api).await
}
