//! Custom kinds: what their schema refuses, fills in and drops.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::shapes::CRDS;
use crate::{Case, Harness, topic};

pub(super) const CASES: &[Case] = topic!["crd_schema", OnlyTheApi:
    a_definition_becomes_established,
    a_definition_with_the_wrong_name_is_refused,
    a_definition_without_a_schema_is_refused,
    deleting_a_definition_ends_its_kind,
    defaults_are_filled_in,
    defaults_reach_into_lists,
    unknown_fields_are_pruned,
    preserved_fields_are_kept,
    a_missing_required_field_names_it,
    a_wrong_type_names_the_field,
    an_enum_names_the_field,
    bounds_name_the_field,
    a_number_beyond_its_format_is_refused,
    a_pattern_names_the_field,
    string_and_list_lengths_name_the_field,
    list_map_keys_must_differ,
    an_int_or_string_takes_both,
    nullable_fields_take_null_and_others_drop_it,
    metadata_is_validated_as_elsewhere,
    updates_are_validated_too,
    several_faults_come_as_several_causes,
    strategic_patches_are_refused_for_custom_kinds,
    strict_validation_refuses_unknown_fields,
    the_generation_follows_the_spec_only,
    a_status_without_the_subresource_is_ordinary_data,
];

/// Makes the cluster-scoped or namespaced kind `Thing` in a group of this case's own; returns its collection's path.
pub(super) async fn define(api: &Harness, change: impl Fn(&mut Value)) -> Result<String> {
    let group = format!("{}.parity.trireme.dev", api.token());
    let mut crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("things.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing", "singular": "thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": schema()}}]}});
    change(&mut crd);
    api.post(CRDS, crd).await?.is(201)?;
    let path = format!("/apis/{group}/v1/namespaces/{{ns}}/things");
    api.until(&path, |answer| answer.status == 200).await?;
    Ok(path)
}

fn schema() -> Value {
    json!({"type": "object", "properties": {
        "spec": {"type": "object", "required": ["size"], "properties": {
            "size": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 10},
            "mode": {"type": "string", "enum": ["Slow", "Fast"], "default": "Slow"},
            "tag": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5},
            "names": {"type": "array", "maxItems": 2, "items": {"type": "string"}},
            "port": {"x-kubernetes-int-or-string": true},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "maybe": {"type": "string", "nullable": true},
            "parts": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "required": ["name"], "properties": {
                    "name": {"type": "string"}, "weight": {"type": "integer", "default": 7}}}},
        }},
        "status": {"type": "object", "properties": {"phase": {"type": "string"}, "count": {"type": "integer"}}},
    }})
}

/// A Thing with this spec.
pub(super) fn thing(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "{u}.parity.trireme.dev/v1", "kind": "Thing", "metadata": {"name": name}, "spec": spec})
}

pub(super) async fn undefine(api: &Harness) -> Result<()> {
    api.delete(&format!("{CRDS}/things.{{u}}.parity.trireme.dev")).await?.ok()?;
    Ok(())
}

async fn a_definition_becomes_established(api: Harness) -> Result<()> {
    define(&api, |_| ()).await?;
    let path = format!("{CRDS}/things.{{u}}.parity.trireme.dev");
    let seen = api
        .until(&path, |answer| {
            let all = answer.at("/status/conditions").as_array().cloned().unwrap_or_default();
            ["NamesAccepted", "Established"]
                .iter()
                .all(|kind| all.iter().any(|c| c["type"] == *kind && c["status"] == "True"))
        })
        .await?;
    seen.has("/status/storedVersions", json!(["v1"]))?
        .has("/status/acceptedNames/kind", "Thing")?
        .has("/spec/names/listKind", "ThingList")?
        .has("/spec/conversion/strategy", "None")?;
    undefine(&api).await
}

async fn a_definition_with_the_wrong_name_is_refused(api: Harness) -> Result<()> {
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "other.{u}.parity.trireme.dev"},
        "spec": {"group": "{u}.parity.trireme.dev", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    api.post(CRDS, crd).await?.refused(422, "Invalid")?.cause("FieldValueInvalid", "metadata.name")?;
    Ok(())
}

async fn a_definition_without_a_schema_is_refused(api: Harness) -> Result<()> {
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.{u}.parity.trireme.dev"},
        "spec": {"group": "{u}.parity.trireme.dev", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true}]}});
    let refused = api.post(CRDS, crd).await?.refused(422, "Invalid")?;
    refused.cause("FieldValueRequired", "spec.versions[0].schema.openAPIV3Schema")?;
    Ok(())
}

async fn deleting_a_definition_ends_its_kind(api: Harness) -> Result<()> {
    let things = define(&api, |_| ()).await?;
    api.post(&things, thing("a", json!({"size": 1}))).await?.is(201)?;
    undefine(&api).await?;
    api.until(&things, |answer| answer.status == 404).await?;
    Ok(())
}

async fn defaults_are_filled_in(api: Harness) -> Result<()> {
    let things = define(&api, |_| ()).await?;
    api.post(&things, thing("a", json!({"size": 1}))).await?.is(201)?.has("/spec/mode", "Slow")?;
    api.get(&format!("{things}/a")).await?.has("/spec/mode", "Slow")?;
    undefine(&api).await
}

async fn defaults_reach_into_lists(api: Harness) -> Result<()> {
    let things = define(&api, |_| ()).await?;
    let made = api
        .post(&things, thing("a", json!({"size": 1, "parts": [{"name": "x"}, {"name": "y", "weight": 1}]})))
        .await?;
    made.is(201)?.has("/spec/parts/0/weight", 7)?.has("/spec/parts/1/weight", 1)?;
    undefine(&api).await
}

async fn unknown_fields_are_pruned(api: Harness) -> Result<()> {
    let things = define(&api, |_| ()).await?;
    let body = thing("a", json!({"size": 1, "nonsense": 1, "parts": [{"name": "x", "nonsense": 1}]}));
    let made = api.post(&things, body).await?.is(201)?;
    made.lacks("/spec/nonsense")?.lacks("/spec/parts/0/nonsense")?;
    undefine(&api).await
}

async fn preserved_fields_are_kept(api: Harness) -> Result<()> {
    let things = define(&api, |_| ()).await?;
    let made = api
        .post(&things, thing("a", json!({"size": 1, "free": {"any": [1, {"thing": true}]}})))
        .await?
        .is(201)?;
    made.has("/spec/free", json!({"any": [1, {"thing": true}]}))?;
    undefine(&api).await
}

async fn refused(spec: Value, reason: &str, field: &str, api: Harness) -> Result<()> {
    let things = define(&api, |_| ()).await?;
    let answer = api.post(&things, thing("a", spec)).await?.refused(422, "Invalid")?;
    answer.cause(reason, field)?.has("/details/kind", "Thing")?;
    undefine(&api).await
}

async fn a_missing_required_field_names_it(api: Harness) -> Result<()> {
    refused(json!({}), "FieldValueRequired", "spec.size", api).await
}

async fn a_wrong_type_names_the_field(api: Harness) -> Result<()> {
    refused(json!({"size": "one"}), "FieldValueTypeInvalid", "spec.size", api).await
}

async fn an_enum_names_the_field(api: Harness) -> Result<()> {
    refused(json!({"size": 1, "mode": "Sideways"}), "FieldValueNotSupported", "spec.mode", api).await
}

async fn bounds_name_the_field(api: Harness) -> Result<()> {
    let things = define(&api, |_| ()).await?;
    for size in [0, 11, -3] {
        let answer = api.post(&things, thing("a", json!({"size": size}))).await?.refused(422, "Invalid")?;
        answer.cause("FieldValueInvalid", "spec.size")?;
    }
    undefine(&api).await
}

async fn a_number_beyond_its_format_is_refused(api: Harness) -> Result<()> {
    let things = define(&api, |crd| {
        let size = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size";
        if let Some(size) = crd.pointer_mut(size) {
            *size = json!({"type": "integer", "format": "int32"});
        }
    })
    .await?;
    api.post(&things, thing("a", json!({"size": 2_147_483_648_i64}))).await?.refused(422, "Invalid")?;
    api.post(&things, thing("b", json!({"size": 2_147_483_647}))).await?.is(201)?;
    undefine(&api).await
}

async fn a_pattern_names_the_field(api: Harness) -> Result<()> {
    refused(json!({"size": 1, "tag": "A1"}), "FieldValueInvalid", "spec.tag", api).await
}

async fn string_and_list_lengths_name_the_field(api: Harness) -> Result<()> {
    let things = define(&api, |_| ()).await?;
    let body = thing("a", json!({"size": 1, "tag": "toolong", "names": ["a", "b", "c"]}));
    let answer = api.post(&things, body).await?.refused(422, "Invalid")?;
    answer.cause("FieldValueTooLong", "spec.tag")?.cause("FieldValueTooMany", "spec.names")?;
    undefine(&api).await
}

async fn list_map_keys_must_differ(api: Harness) -> Result<()> {
    let parts = json!([{"name": "x"}, {"name": "x"}]);
    refused(json!({"size": 1, "parts": parts}), "FieldValueDuplicate", "spec.parts[1]", api).await
}

async fn an_int_or_string_takes_both(api: Harness) -> Result<()> {
    let things = define(&api, |_| ()).await?;
    api.post(&things, thing("a", json!({"size": 1, "port": 80}))).await?.is(201)?.has("/spec/port", 80)?;
    api.post(&things, thing("b", json!({"size": 1, "port": "http"})))
        .await?
        .is(201)?
        .has("/spec/port", "http")?;
    api.post(&things, thing("c", json!({"size": 1, "port": true}))).await?.refused(422, "Invalid")?;
    undefine(&api).await
}

async fn nullable_fields_take_null_and_others_drop_it(api: Harness) -> Result<()> {
    let things = define(&api, |_| ()).await?;
    let made =
        api.post(&things, thing("a", json!({"size": 1, "maybe": null, "mode": null}))).await?.is(201)?;
    ensure!(made.body["spec"].as_object().is_some_and(|spec| spec.contains_key("maybe")), "{}", made.text);
    made.has("/spec/mode", "Slow")?;
    undefine(&api).await
}

async fn metadata_is_validated_as_elsewhere(api: Harness) -> Result<()> {
    let things = define(&api, |_| ()).await?;
    let answer = api.post(&things, thing("Bad_Name", json!({"size": 1}))).await?.refused(422, "Invalid")?;
    answer.cause("FieldValueInvalid", "metadata.name")?;
    undefine(&api).await
}

async fn updates_are_validated_too(api: Harness) -> Result<()> {
    let things = define(&api, |_| ()).await?;
    api.post(&things, thing("a", json!({"size": 1}))).await?.is(201)?;
    let answer =
        api.merge(&format!("{things}/a"), json!({"spec": {"size": 99}})).await?.refused(422, "Invalid")?;
    answer.cause("FieldValueInvalid", "spec.size")?;
    api.merge(&format!("{things}/a"), json!({"spec": {"mode": null}}))
        .await?
        .is(200)?
        .has("/spec/mode", "Slow")?;
    undefine(&api).await
}

async fn several_faults_come_as_several_causes(api: Harness) -> Result<()> {
    let things = define(&api, |_| ()).await?;
    let answer = api
        .post(&things, thing("a", json!({"size": 99, "mode": "Sideways"})))
        .await?
        .refused(422, "Invalid")?;
    answer.cause("FieldValueInvalid", "spec.size")?.cause("FieldValueNotSupported", "spec.mode")?;
    undefine(&api).await
}

async fn strategic_patches_are_refused_for_custom_kinds(api: Harness) -> Result<()> {
    let things = define(&api, |_| ()).await?;
    api.post(&things, thing("a", json!({"size": 1}))).await?.is(201)?;
    let answer = api.strategic(&format!("{things}/a"), json!({"spec": {"size": 2}})).await?;
    answer.refused(415, "UnsupportedMediaType")?;
    undefine(&api).await
}

async fn strict_validation_refuses_unknown_fields(api: Harness) -> Result<()> {
    let things = define(&api, |_| ()).await?;
    let path = format!("{things}?fieldValidation=Strict");
    api.post(&path, thing("a", json!({"size": 1, "nonsense": 1}))).await?.refused(400, "BadRequest")?;
    undefine(&api).await
}

async fn the_generation_follows_the_spec_only(api: Harness) -> Result<()> {
    let things = define(&api, |_| ()).await?;
    let path = format!("{things}/a");
    api.post(&things, thing("a", json!({"size": 1}))).await?.is(201)?.has("/metadata/generation", 1)?;
    let labelled = api.merge(&path, json!({"metadata": {"labels": {"x": "y"}}})).await?.is(200)?;
    labelled.has("/metadata/generation", 1)?;
    let status = api.merge(&format!("{path}/status"), json!({"status": {"phase": "On"}})).await?.is(200)?;
    status.has("/metadata/generation", 1)?.has("/status/phase", "On")?;
    api.merge(&path, json!({"spec": {"size": 2}})).await?.is(200)?.has("/metadata/generation", 2)?;
    undefine(&api).await
}

async fn a_status_without_the_subresource_is_ordinary_data(api: Harness) -> Result<()> {
    let things = define(&api, |crd| crd["spec"]["versions"][0]["subresources"] = json!({})).await?;
    let mut body = thing("a", json!({"size": 1}));
    body["status"] = json!({"phase": "On"});
    api.post(&things, body).await?.is(201)?.has("/status/phase", "On")?;
    api.merge(&format!("{things}/a/status"), json!({"status": {"phase": "Off"}})).await?.is(404)?;
    let patched = api.merge(&format!("{things}/a"), json!({"status": {"phase": "Off"}})).await?.is(200)?;
    patched.has("/metadata/generation", 2)?;
    undefine(&api).await
}
