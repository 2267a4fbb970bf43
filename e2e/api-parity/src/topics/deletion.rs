//! Deletion: preconditions, finalizers, propagation, collections, and what the garbage collector does.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::shapes::{CONFIGMAPS, PODS, at, configmap, labelled, pod};
use crate::{Answer, Case, Harness, topic};

pub(super) const CASES: &[Case] = topic!["deletion", OnlyTheApi:
    delete_answers_a_status_with_the_uid,
    delete_of_a_missing_object_is_not_found,
    delete_with_another_uid_conflicts,
    delete_with_an_old_version_conflicts,
    delete_with_matching_preconditions_works,
    delete_with_a_finalizer_only_marks_the_object,
    removing_the_last_finalizer_deletes,
    removing_the_last_finalizer_is_answered_with_the_version_before,
    a_marked_object_takes_no_new_finalizers,
    a_marked_object_can_still_be_updated,
    a_second_delete_of_a_marked_object_changes_nothing,
    deleting_a_pod_that_was_never_bound_is_immediate,
    deleting_a_bound_pod_waits_for_its_kubelet,
    grace_zero_deletes_a_bound_pod_at_once,
    a_recreated_object_has_another_uid,
    foreground_deletion_sets_a_finalizer,
    orphan_deletion_sets_a_finalizer,
    an_unknown_propagation_policy_is_invalid,
    delete_collection_takes_what_the_selector_matches,
    delete_collection_answers_the_list,
    delete_collection_leaves_other_namespaces_alone,
];

pub(super) const COLLECTED: &[Case] = topic!["deletion", Controllers:
    dependents_go_when_their_owner_is_deleted,
    dependents_stay_when_orphaned,
    foreground_deletion_waits_for_blocking_dependents,
    dependents_of_an_owner_that_never_was_go,
    a_dependent_with_a_second_live_owner_stays,
];

async fn delete_answers_a_status_with_the_uid(api: Harness) -> Result<()> {
    let made = api.post(CONFIGMAPS, configmap("a")).await?.is(201)?;
    let deleted =
        api.delete(&at(CONFIGMAPS, "a")).await?.is(200)?.has("/kind", "Status")?.has("/status", "Success")?;
    deleted
        .has("/details/name", "a")?
        .has("/details/kind", "configmaps")?
        .has("/details/uid", made.uid()?)?;
    api.get(&at(CONFIGMAPS, "a")).await?.is(404)?;
    Ok(())
}

async fn delete_of_a_missing_object_is_not_found(api: Harness) -> Result<()> {
    api.delete(&at(CONFIGMAPS, "none")).await?.refused(404, "NotFound")?.has("/details/name", "none")?;
    Ok(())
}

async fn delete_with_another_uid_conflicts(api: Harness) -> Result<()> {
    api.post(CONFIGMAPS, configmap("a")).await?.is(201)?;
    let options = json!({"preconditions": {"uid": "11111111-2222-3333-4444-555555555555"}});
    api.delete_with(&at(CONFIGMAPS, "a"), options).await?.refused(409, "Conflict")?;
    api.get(&at(CONFIGMAPS, "a")).await?.is(200)?;
    Ok(())
}

async fn delete_with_an_old_version_conflicts(api: Harness) -> Result<()> {
    let made = api.post(CONFIGMAPS, configmap("a")).await?.is(201)?;
    api.merge(&at(CONFIGMAPS, "a"), json!({"data": {"a": "2"}})).await?.is(200)?;
    let options = json!({"preconditions": {"resourceVersion": made.version()?}});
    api.delete_with(&at(CONFIGMAPS, "a"), options).await?.refused(409, "Conflict")?;
    Ok(())
}

async fn delete_with_matching_preconditions_works(api: Harness) -> Result<()> {
    let made = api.post(CONFIGMAPS, configmap("a")).await?.is(201)?;
    let options = json!({"preconditions": {"uid": made.uid()?, "resourceVersion": made.version()?}});
    api.delete_with(&at(CONFIGMAPS, "a"), options).await?.is(200)?;
    api.get(&at(CONFIGMAPS, "a")).await?.is(404)?;
    Ok(())
}

async fn held(api: &Harness) -> Result<Answer> {
    let mut body = configmap("a");
    body["metadata"]["finalizers"] = json!(["trireme.dev/hold"]);
    api.post(CONFIGMAPS, body).await?.is(201)?;
    api.delete(&at(CONFIGMAPS, "a")).await?.is(200)
}

async fn delete_with_a_finalizer_only_marks_the_object(api: Harness) -> Result<()> {
    let answer = held(&api).await?;
    answer
        .has("/kind", "ConfigMap")?
        .filled("/metadata/deletionTimestamp")?
        .has("/metadata/deletionGracePeriodSeconds", 0)?;
    let kept = api.get(&at(CONFIGMAPS, "a")).await?.is(200)?.filled("/metadata/deletionTimestamp")?;
    kept.has("/metadata/finalizers", json!(["trireme.dev/hold"]))?;
    Ok(())
}

async fn removing_the_last_finalizer_deletes(api: Harness) -> Result<()> {
    held(&api).await?;
    let patch = json!({"metadata": {"finalizers": null}});
    api.merge(&at(CONFIGMAPS, "a"), patch).await?.is(200)?.has("/metadata/name", "a")?;
    api.get(&at(CONFIGMAPS, "a")).await?.is(404)?;
    Ok(())
}

/// The removal has a revision of its own, which only watches tell.
async fn removing_the_last_finalizer_is_answered_with_the_version_before(api: Harness) -> Result<()> {
    let before = held(&api).await?.version()?;
    let patch = json!({"metadata": {"finalizers": null, "labels": {"last": "words"}}});
    let answer = api.merge(&at(CONFIGMAPS, "a"), patch).await?.is(200)?;
    ensure!(answer.version()? == before, "{} after {before}", answer.version()?);
    answer.lacks("/metadata/finalizers")?.has("/metadata/labels/last", "words")?;
    Ok(())
}

async fn a_marked_object_takes_no_new_finalizers(api: Harness) -> Result<()> {
    held(&api).await?;
    let patch = json!({"metadata": {"finalizers": ["trireme.dev/hold", "trireme.dev/more"]}});
    let refused = api.merge(&at(CONFIGMAPS, "a"), patch).await?.refused(422, "Invalid")?;
    refused.cause("FieldValueForbidden", "metadata.finalizers")?;
    Ok(())
}

async fn a_marked_object_can_still_be_updated(api: Harness) -> Result<()> {
    held(&api).await?;
    let patched = api.merge(&at(CONFIGMAPS, "a"), json!({"data": {"a": "2"}})).await?.is(200)?;
    patched.filled("/metadata/deletionTimestamp")?;
    Ok(())
}

async fn a_second_delete_of_a_marked_object_changes_nothing(api: Harness) -> Result<()> {
    held(&api).await?;
    let before = api.get(&at(CONFIGMAPS, "a")).await?.is(200)?;
    api.delete(&at(CONFIGMAPS, "a")).await?.is(200)?;
    api.get(&at(CONFIGMAPS, "a")).await?.is(200)?.has("/metadata/resourceVersion", before.version()?)?;
    Ok(())
}

async fn deleting_a_pod_that_was_never_bound_is_immediate(api: Harness) -> Result<()> {
    api.post(PODS, pod("a")).await?.is(201)?;
    api.delete(&at(PODS, "a")).await?.is(200)?;
    api.get(&at(PODS, "a")).await?.is(404)?;
    Ok(())
}

/// A pod on a node that has no kubelet, so that nobody but the case finishes its deletion.
async fn bound(api: &Harness) -> Result<()> {
    let mut body = pod("a");
    body["spec"]["nodeName"] = json!("nobody-{u}");
    api.post(PODS, body).await?.is(201)?;
    Ok(())
}

async fn deleting_a_bound_pod_waits_for_its_kubelet(api: Harness) -> Result<()> {
    bound(&api).await?;
    let deleted = api.delete(&at(PODS, "a")).await?.is(200)?.has("/kind", "Pod")?;
    deleted.has("/metadata/deletionGracePeriodSeconds", 30)?.filled("/metadata/deletionTimestamp")?;
    api.get(&at(PODS, "a")).await?.is(200)?;
    let shorter = api.delete_with(&at(PODS, "a"), json!({"gracePeriodSeconds": 5})).await?.is(200)?;
    shorter.has("/metadata/deletionGracePeriodSeconds", 5)?;
    Ok(())
}

async fn grace_zero_deletes_a_bound_pod_at_once(api: Harness) -> Result<()> {
    bound(&api).await?;
    api.delete_with(&at(PODS, "a"), json!({"gracePeriodSeconds": 0})).await?.is(200)?;
    api.get(&at(PODS, "a")).await?.is(404)?;
    Ok(())
}

async fn a_recreated_object_has_another_uid(api: Harness) -> Result<()> {
    let first = api.post(CONFIGMAPS, configmap("a")).await?.is(201)?.uid()?;
    api.delete(&at(CONFIGMAPS, "a")).await?.is(200)?;
    let second = api.post(CONFIGMAPS, configmap("a")).await?.is(201)?.uid()?;
    ensure!(first != second, "a uid is used once");
    Ok(())
}

async fn foreground_deletion_sets_a_finalizer(api: Harness) -> Result<()> {
    let mut body = configmap("a");
    body["metadata"]["finalizers"] = json!(["trireme.dev/hold"]);
    api.post(CONFIGMAPS, body).await?.is(201)?;
    let deleted =
        api.delete_with(&at(CONFIGMAPS, "a"), json!({"propagationPolicy": "Foreground"})).await?.is(200)?;
    let finalizers = deleted.at("/metadata/finalizers").as_array().cloned().unwrap_or_default();
    ensure!(finalizers.contains(&json!("foregroundDeletion")), "{finalizers:?}");
    Ok(())
}

async fn orphan_deletion_sets_a_finalizer(api: Harness) -> Result<()> {
    let mut body = configmap("a");
    body["metadata"]["finalizers"] = json!(["trireme.dev/hold"]);
    api.post(CONFIGMAPS, body).await?.is(201)?;
    let deleted =
        api.delete_with(&at(CONFIGMAPS, "a"), json!({"propagationPolicy": "Orphan"})).await?.is(200)?;
    let finalizers = deleted.at("/metadata/finalizers").as_array().cloned().unwrap_or_default();
    ensure!(finalizers.contains(&json!("orphan")), "{finalizers:?}");
    Ok(())
}

async fn an_unknown_propagation_policy_is_invalid(api: Harness) -> Result<()> {
    api.post(CONFIGMAPS, configmap("a")).await?.is(201)?;
    api.delete_with(&at(CONFIGMAPS, "a"), json!({"propagationPolicy": "Sideways"}))
        .await?
        .refused(422, "Invalid")?;
    Ok(())
}

async fn delete_collection_takes_what_the_selector_matches(api: Harness) -> Result<()> {
    for (name, label) in [("a", "t=1"), ("b", "t=2"), ("c", "t=1")] {
        api.post(CONFIGMAPS, labelled(name, label)).await?.is(201)?;
    }
    api.delete(&format!("{CONFIGMAPS}?labelSelector=t%3D1")).await?.is(200)?;
    api.get(&format!("{CONFIGMAPS}?labelSelector=t")).await?.lists(&["b"])?;
    Ok(())
}

async fn delete_collection_answers_the_list(api: Harness) -> Result<()> {
    api.post(CONFIGMAPS, labelled("a", "t=1")).await?.is(201)?;
    let deleted = api.delete(&format!("{CONFIGMAPS}?labelSelector=t")).await?.is(200)?;
    deleted.has("/kind", "ConfigMapList")?.lists(&["a"])?;
    Ok(())
}

async fn delete_collection_leaves_other_namespaces_alone(api: Harness) -> Result<()> {
    api.post(CONFIGMAPS, labelled("a", "t=1")).await?.is(201)?;
    api.delete("/api/v1/namespaces/never-{u}/configmaps?labelSelector=t").await?.is(200)?.lists(&[])?;
    api.get(&at(CONFIGMAPS, "a")).await?.is(200)?;
    Ok(())
}

fn owned(name: &str, owner: &str, uid: &str, blocks: bool) -> Value {
    let mut body = configmap(name);
    body["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uid, "blockOwnerDeletion": blocks}]);
    body
}

async fn dependents_go_when_their_owner_is_deleted(api: Harness) -> Result<()> {
    let owner = api.post(CONFIGMAPS, configmap("owner")).await?.is(201)?.uid()?;
    let child = api.post(CONFIGMAPS, owned("child", "owner", &owner, false)).await?.is(201)?.uid()?;
    api.post(CONFIGMAPS, owned("grandchild", "child", &child, false)).await?.is(201)?;
    api.delete(&at(CONFIGMAPS, "owner")).await?.is(200)?;
    api.until(&at(CONFIGMAPS, "child"), |answer| answer.status == 404).await?;
    api.until(&at(CONFIGMAPS, "grandchild"), |answer| answer.status == 404).await?;
    Ok(())
}

async fn dependents_stay_when_orphaned(api: Harness) -> Result<()> {
    let owner = api.post(CONFIGMAPS, configmap("owner")).await?.is(201)?.uid()?;
    api.post(CONFIGMAPS, owned("child", "owner", &owner, false)).await?.is(201)?;
    // Seen by the collector before the owner goes, or it would take the child for a late arrival.
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    api.delete_with(&at(CONFIGMAPS, "owner"), json!({"propagationPolicy": "Orphan"})).await?.is(200)?;
    api.until(&at(CONFIGMAPS, "owner"), |answer| answer.status == 404).await?;
    api.get(&at(CONFIGMAPS, "child")).await?.is(200)?.lacks("/metadata/ownerReferences")?;
    Ok(())
}

async fn foreground_deletion_waits_for_blocking_dependents(api: Harness) -> Result<()> {
    let owner = api.post(CONFIGMAPS, configmap("owner")).await?.is(201)?.uid()?;
    let mut child = owned("child", "owner", &owner, true);
    child["metadata"]["finalizers"] = json!(["trireme.dev/hold"]);
    api.post(CONFIGMAPS, child).await?.is(201)?;
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    api.delete_with(&at(CONFIGMAPS, "owner"), json!({"propagationPolicy": "Foreground"})).await?.is(200)?;
    api.until(&at(CONFIGMAPS, "child"), |answer| !answer.at("/metadata/deletionTimestamp").is_null()).await?;
    api.get(&at(CONFIGMAPS, "owner")).await?.is(200)?.filled("/metadata/deletionTimestamp")?;
    api.merge(&at(CONFIGMAPS, "child"), json!({"metadata": {"finalizers": null}})).await?.is(200)?;
    api.until(&at(CONFIGMAPS, "owner"), |answer| answer.status == 404).await?;
    Ok(())
}

async fn dependents_of_an_owner_that_never_was_go(api: Harness) -> Result<()> {
    let body = owned("child", "never", "11111111-2222-3333-4444-555555555555", false);
    api.post(CONFIGMAPS, body).await?.is(201)?;
    api.until(&at(CONFIGMAPS, "child"), |answer| answer.status == 404).await?;
    Ok(())
}

async fn a_dependent_with_a_second_live_owner_stays(api: Harness) -> Result<()> {
    let one = api.post(CONFIGMAPS, configmap("one")).await?.is(201)?.uid()?;
    let two = api.post(CONFIGMAPS, configmap("two")).await?.is(201)?.uid()?;
    let mut child = owned("child", "one", &one, false);
    let second = owned("child", "two", &two, false)["metadata"]["ownerReferences"][0].clone();
    if let Some(owners) = child["metadata"]["ownerReferences"].as_array_mut() {
        owners.push(second);
    }
    api.post(CONFIGMAPS, child).await?.is(201)?;
    api.delete(&at(CONFIGMAPS, "one")).await?.is(200)?;
    let left = api
        .until(&at(CONFIGMAPS, "child"), |answer| {
            answer.at("/metadata/ownerReferences").as_array().is_some_and(|owners| owners.len() == 1)
        })
        .await?;
    left.has("/metadata/ownerReferences/0/name", "two")?;
    Ok(())
}
