//! Create, read, replace: the life of one object.

use anyhow::{Result, ensure};
use http::Method;
use serde_json::json;

use super::shapes::{CONFIGMAPS, PODS, at, configmap, labelled, pod};
use crate::{Case, Harness, topic};

pub(super) const CASES: &[Case] = topic!["objects", OnlyTheApi:
    create_answers_201_with_the_metadata_a_server_gives,
    create_ignores_server_owned_metadata,
    create_of_an_existing_name_is_already_exists,
    create_with_a_resource_version_is_refused,
    create_with_another_namespace_in_the_body_is_bad_request,
    create_without_a_name_is_invalid,
    create_with_a_bad_name_names_the_field,
    create_with_a_bad_label_value_names_the_field,
    create_with_a_bad_annotation_key_names_the_field,
    create_with_the_wrong_kind_is_bad_request,
    create_with_a_text_for_an_object_is_bad_request,
    create_with_an_unknown_content_type_is_415,
    create_in_a_missing_namespace_is_not_found,
    generate_name_appends_five_characters,
    generate_name_loses_to_a_name,
    get_of_a_missing_object_is_not_found_with_details,
    get_of_an_unknown_resource_is_404,
    unknown_fields_are_dropped_by_default,
    unknown_fields_are_refused_when_strict,
    dry_run_create_writes_nothing,
    dry_run_update_and_delete_write_nothing,
    an_unknown_dry_run_value_is_refused,
    put_replaces_what_the_body_leaves_out,
    put_of_a_missing_configmap_creates_nothing,
    put_with_another_name_in_the_body_is_bad_request,
    creation_timestamp_and_uid_survive_updates,
    bad_finalizers_are_refused,
    an_empty_body_is_refused,
    names_of_255_characters_are_refused_and_253_are_fine,
    methods_a_collection_lacks_are_405,
];

async fn create_answers_201_with_the_metadata_a_server_gives(api: Harness) -> Result<()> {
    let made = api.post(CONFIGMAPS, configmap("a")).await?.is(201)?;
    let made = made
        .has("/kind", "ConfigMap")?
        .has("/apiVersion", "v1")?
        .has("/metadata/namespace", api.namespace())?;
    let made =
        made.filled("/metadata/uid")?.filled("/metadata/resourceVersion")?.lacks("/metadata/generation")?;
    let stamp = made.string("/metadata/creationTimestamp")?;
    ensure!(stamp.len() == 20 && stamp.ends_with('Z'), "whole seconds in UTC, got {stamp}");
    let uid = made.uid()?;
    ensure!(uid.len() == 36 && uid.matches('-').count() == 4, "a UUID, got {uid}");
    ensure!(made.version()?.parse::<u64>()? > 0, "versions are decimal numbers");
    Ok(())
}

async fn create_ignores_server_owned_metadata(api: Harness) -> Result<()> {
    let mut body = configmap("a");
    body["metadata"]["uid"] = json!("11111111-2222-3333-4444-555555555555");
    body["metadata"]["creationTimestamp"] = json!("2001-01-01T00:00:00Z");
    body["metadata"]["generation"] = json!(77);
    body["metadata"]["deletionTimestamp"] = json!("2001-01-01T00:00:00Z");
    let made = api.post(CONFIGMAPS, body).await?.is(201)?.lacks("/metadata/deletionTimestamp")?;
    ensure!(made.uid()? != "11111111-2222-3333-4444-555555555555", "the server gives the uid");
    ensure!(!made.string("/metadata/creationTimestamp")?.starts_with("2001"), "the server gives the time");
    Ok(())
}

async fn create_of_an_existing_name_is_already_exists(api: Harness) -> Result<()> {
    api.post(CONFIGMAPS, configmap("a")).await?.is(201)?;
    let refused = api.post(CONFIGMAPS, configmap("a")).await?.refused(409, "AlreadyExists")?;
    refused.has("/details/name", "a")?.has("/details/kind", "configmaps")?;
    Ok(())
}

async fn create_with_a_resource_version_is_refused(api: Harness) -> Result<()> {
    let mut body = configmap("a");
    body["metadata"]["resourceVersion"] = json!("5");
    let refused = api.post(CONFIGMAPS, body).await?;
    ensure!(refused.status >= 400, "{}: {}", refused.status, refused.text);
    api.get(&at(CONFIGMAPS, "a")).await?.is(404)?;
    Ok(())
}

async fn create_with_another_namespace_in_the_body_is_bad_request(api: Harness) -> Result<()> {
    let mut body = configmap("a");
    body["metadata"]["namespace"] = json!("elsewhere");
    api.post(CONFIGMAPS, body).await?.refused(400, "BadRequest")?;
    Ok(())
}

async fn create_without_a_name_is_invalid(api: Harness) -> Result<()> {
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}});
    let refused = api.post(CONFIGMAPS, body).await?.refused(422, "Invalid")?;
    refused.cause("FieldValueRequired", "metadata.name")?.has("/details/kind", "ConfigMap")?;
    Ok(())
}

async fn create_with_a_bad_name_names_the_field(api: Harness) -> Result<()> {
    for name in ["Upper", "under_score", "-dash", "dot.", "a/b"] {
        let refused = api.post(CONFIGMAPS, configmap(name)).await?.refused(422, "Invalid")?;
        refused.cause("FieldValueInvalid", "metadata.name")?.has("/details/name", name)?;
    }
    Ok(())
}

async fn create_with_a_bad_label_value_names_the_field(api: Harness) -> Result<()> {
    let refused = api.post(CONFIGMAPS, labelled("a", "good=not good")).await?.refused(422, "Invalid")?;
    refused.cause("FieldValueInvalid", "metadata.labels")?;
    let refused = api.post(CONFIGMAPS, labelled("a", "bad key=x")).await?.refused(422, "Invalid")?;
    refused.cause("FieldValueInvalid", "metadata.labels")?;
    let long = "x".repeat(64);
    let refused = api.post(CONFIGMAPS, labelled("a", &format!("k={long}"))).await?.refused(422, "Invalid")?;
    refused.cause("FieldValueInvalid", "metadata.labels")?;
    Ok(())
}

async fn create_with_a_bad_annotation_key_names_the_field(api: Harness) -> Result<()> {
    let mut body = configmap("a");
    body["metadata"]["annotations"] = json!({"not a key": "anything goes here: ä/ö"});
    api.post(CONFIGMAPS, body)
        .await?
        .refused(422, "Invalid")?
        .cause("FieldValueInvalid", "metadata.annotations")?;
    let mut body = configmap("a");
    body["metadata"]["annotations"] = json!({"a.b/Upper_Case": "anything goes here: ä/ö"});
    api.post(CONFIGMAPS, body).await?.is(201)?;
    Ok(())
}

async fn create_with_the_wrong_kind_is_bad_request(api: Harness) -> Result<()> {
    api.post(CONFIGMAPS, pod("a")).await?.refused(400, "BadRequest")?;
    Ok(())
}

async fn create_with_a_text_for_an_object_is_bad_request(api: Harness) -> Result<()> {
    let body = json!("not an object");
    api.post(CONFIGMAPS, body).await?.refused(400, "BadRequest")?;
    Ok(())
}

async fn create_with_an_unknown_content_type_is_415(api: Harness) -> Result<()> {
    let headers = [("content-type", "text/plain")];
    let refused = api.send(Method::POST, CONFIGMAPS, &headers, Some(configmap("a"))).await?;
    refused.refused(415, "UnsupportedMediaType")?;
    Ok(())
}

async fn create_in_a_missing_namespace_is_not_found(api: Harness) -> Result<()> {
    let refused = api
        .post("/api/v1/namespaces/never-{u}/configmaps", configmap("a"))
        .await?
        .refused(404, "NotFound")?;
    refused.has("/details/kind", "namespaces")?.has("/details/name", format!("never-{}", api.token()))?;
    Ok(())
}

async fn generate_name_appends_five_characters(api: Harness) -> Result<()> {
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "made-"}});
    let first = api.post(CONFIGMAPS, body.clone()).await?.is(201)?.has("/metadata/generateName", "made-")?;
    let second = api.post(CONFIGMAPS, body).await?.is(201)?;
    let (first, second) = (first.string("/metadata/name")?, second.string("/metadata/name")?);
    ensure!(first != second && first.len() == 10 && first.starts_with("made-"), "{first} {second}");
    let suffix = &first[5..];
    ensure!(suffix.chars().all(|c| "bcdfghjklmnpqrstvwxz2456789".contains(c)), "no vowels, got {suffix}");
    Ok(())
}

async fn generate_name_loses_to_a_name(api: Harness) -> Result<()> {
    let mut body = configmap("chosen");
    body["metadata"]["generateName"] = json!("made-");
    api.post(CONFIGMAPS, body).await?.is(201)?.has("/metadata/name", "chosen")?;
    Ok(())
}

async fn get_of_a_missing_object_is_not_found_with_details(api: Harness) -> Result<()> {
    let refused = api.get(&at(CONFIGMAPS, "none")).await?.refused(404, "NotFound")?;
    refused.has("/details/name", "none")?.has("/details/kind", "configmaps")?;
    Ok(())
}

async fn get_of_an_unknown_resource_is_404(api: Harness) -> Result<()> {
    api.get("/api/v1/namespaces/{ns}/nonsenses").await?.is(404)?;
    api.get("/apis/nonsense.example.com/v1/things").await?.is(404)?;
    Ok(())
}

async fn unknown_fields_are_dropped_by_default(api: Harness) -> Result<()> {
    let mut body = pod("a");
    body["spec"]["nonsense"] = json!(true);
    api.post(PODS, body).await?.is(201)?.lacks("/spec/nonsense")?;
    Ok(())
}

async fn unknown_fields_are_refused_when_strict(api: Harness) -> Result<()> {
    let mut body = pod("a");
    body["spec"]["nonsense"] = json!(true);
    api.post(&format!("{PODS}?fieldValidation=Strict"), body).await?.refused(400, "BadRequest")?;
    Ok(())
}

async fn dry_run_create_writes_nothing(api: Harness) -> Result<()> {
    let made = api.post(&format!("{CONFIGMAPS}?dryRun=All"), configmap("a")).await?.is(201)?;
    made.filled("/metadata/uid")?.lacks("/metadata/resourceVersion")?;
    api.get(&at(CONFIGMAPS, "a")).await?.is(404)?;
    Ok(())
}

async fn dry_run_update_and_delete_write_nothing(api: Harness) -> Result<()> {
    api.post(CONFIGMAPS, configmap("a")).await?.is(201)?;
    let path = at(CONFIGMAPS, "a");
    api.merge(&format!("{path}?dryRun=All"), json!({"data": {"a": "2"}}))
        .await?
        .is(200)?
        .has("/data/a", "2")?;
    api.get(&path).await?.has("/data/a", "1")?;
    api.delete(&format!("{path}?dryRun=All")).await?.is(200)?;
    api.get(&path).await?.is(200)?;
    Ok(())
}

async fn an_unknown_dry_run_value_is_refused(api: Harness) -> Result<()> {
    api.post(&format!("{CONFIGMAPS}?dryRun=Some"), configmap("a")).await?.refused(422, "Invalid")?;
    Ok(())
}

async fn put_replaces_what_the_body_leaves_out(api: Harness) -> Result<()> {
    api.post(CONFIGMAPS, labelled("a", "x=y")).await?.is(201)?;
    let body =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"b": "2"}});
    let put = api.put(&at(CONFIGMAPS, "a"), body).await?.is(200)?;
    put.lacks("/data/a")?.lacks("/metadata/labels")?.has("/data/b", "2")?;
    Ok(())
}

async fn put_of_a_missing_configmap_creates_nothing(api: Harness) -> Result<()> {
    api.put(&at(CONFIGMAPS, "a"), configmap("a")).await?.refused(404, "NotFound")?;
    Ok(())
}

async fn put_with_another_name_in_the_body_is_bad_request(api: Harness) -> Result<()> {
    api.post(CONFIGMAPS, configmap("a")).await?.is(201)?;
    api.put(&at(CONFIGMAPS, "a"), configmap("b")).await?.refused(400, "BadRequest")?;
    Ok(())
}

async fn creation_timestamp_and_uid_survive_updates(api: Harness) -> Result<()> {
    let made = api.post(CONFIGMAPS, configmap("a")).await?.is(201)?;
    let mut body = configmap("a");
    body["metadata"]["creationTimestamp"] = json!("2001-01-01T00:00:00Z");
    let put = api.put(&at(CONFIGMAPS, "a"), body).await?.is(200)?;
    put.has("/metadata/creationTimestamp", made.string("/metadata/creationTimestamp")?)?
        .has("/metadata/uid", made.uid()?)?;
    Ok(())
}

async fn bad_finalizers_are_refused(api: Harness) -> Result<()> {
    let mut body = configmap("a");
    body["metadata"]["finalizers"] = json!(["not qualified at all"]);
    let refused = api.post(CONFIGMAPS, body).await?.refused(422, "Invalid")?;
    refused.cause("FieldValueInvalid", "metadata.finalizers")?;
    Ok(())
}

async fn an_empty_body_is_refused(api: Harness) -> Result<()> {
    let headers = [("content-type", "application/json")];
    api.send(Method::POST, CONFIGMAPS, &headers, None).await?.refused(400, "BadRequest")?;
    Ok(())
}

async fn names_of_255_characters_are_refused_and_253_are_fine(api: Harness) -> Result<()> {
    let refused = api.post(CONFIGMAPS, configmap(&"x".repeat(254))).await?.refused(422, "Invalid")?;
    refused.cause("FieldValueInvalid", "metadata.name")?;
    api.post(CONFIGMAPS, configmap(&"x".repeat(253))).await?.is(201)?;
    Ok(())
}

async fn methods_a_collection_lacks_are_405(api: Harness) -> Result<()> {
    api.put(CONFIGMAPS, configmap("a")).await?.refused(405, "MethodNotAllowed")?;
    api.post(&at(CONFIGMAPS, "a"), configmap("a")).await?.refused(405, "MethodNotAllowed")?;
    Ok(())
}
