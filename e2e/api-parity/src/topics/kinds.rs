//! What single built-in kinds insist on: nodes, leases, events, config maps, secrets, priority classes, services.

use anyhow::{Result, ensure};
use serde_json::json;

use super::shapes::{CONFIGMAPS, NODES, PODS, at, configmap, node, pod};
use crate::{Case, Harness, topic};

pub(super) const CASES: &[Case] = topic!["kinds", OnlyTheApi:
    a_cordoned_node_says_so,
    node_taints_are_kept_and_checked,
    node_labels_may_change,
    node_conditions_are_written_by_status,
    a_lease_keeps_microseconds,
    a_lease_is_renewed_against_its_version,
    two_takers_of_a_lease_cannot_both_win,
    a_lease_refuses_a_duration_of_zero,
    events_are_recorded_and_counted,
    events_of_the_new_group_are_the_same_objects,
    events_must_be_where_their_object_is,
    events_select_by_the_object_they_are_about,
    an_immutable_configmap_stays_as_it_is,
    an_immutable_secret_stays_as_it_is,
    a_configmap_key_must_be_a_file_name,
    secret_strings_become_data,
    secret_data_must_be_base64,
    a_secret_keeps_its_type,
    a_priority_class_keeps_its_value,
    a_service_gets_an_address,
    endpoint_slices_are_kept_as_given,
    a_disruption_budget_takes_one_of_two_numbers,
    a_service_account_can_be_made,
    a_config_map_above_one_mebibyte_is_refused,
    owner_references_are_checked,
    two_controllers_of_one_object_are_refused,
];

async fn a_cordoned_node_says_so(api: Harness) -> Result<()> {
    api.post(NODES, node("c-{u}")).await?.is(201)?;
    let path = at(NODES, "c-{u}");
    api.merge(&path, json!({"spec": {"unschedulable": true}}))
        .await?
        .is(200)?
        .has("/spec/unschedulable", true)?;
    let patched = api.merge(&path, json!({"spec": {"unschedulable": null}})).await?.is(200)?;
    patched.lacks("/spec/unschedulable")?;
    api.delete(&path).await?.ok()?;
    Ok(())
}

async fn node_taints_are_kept_and_checked(api: Harness) -> Result<()> {
    api.post(NODES, node("t-{u}")).await?.is(201)?;
    let path = at(NODES, "t-{u}");
    let taints = json!({"spec": {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}});
    let patched = api.merge(&path, taints).await?.is(200)?;
    ensure!(
        patched.at("/spec/taints").as_array().is_some_and(|all| all.iter().any(|t| t["key"] == "k")),
        "{}",
        patched.text
    );
    let wrong = json!({"spec": {"taints": [{"key": "k", "effect": "Sometimes"}]}});
    api.merge(&path, wrong).await?.refused(422, "Invalid")?;
    api.delete(&path).await?.ok()?;
    Ok(())
}

async fn node_labels_may_change(api: Harness) -> Result<()> {
    api.post(NODES, node("l-{u}")).await?.is(201)?;
    let path = at(NODES, "l-{u}");
    let patched = api
        .merge(&path, json!({"metadata": {"labels": {"nvidia.com/gpu.product": "A100"}}}))
        .await?
        .is(200)?;
    patched.has("/metadata/labels/nvidia.com~1gpu.product", "A100")?;
    api.delete(&path).await?.ok()?;
    Ok(())
}

async fn node_conditions_are_written_by_status(api: Harness) -> Result<()> {
    api.post(NODES, node("s-{u}")).await?.is(201)?;
    let body = json!({"status": {"conditions": [{"type": "GpuReady", "status": "True", "reason": "Fine"}]}});
    let patched = api.strategic(&format!("{NODES}/s-{{u}}/status"), body).await?.is(200)?;
    let conditions = patched.at("/status/conditions").as_array().cloned().unwrap_or_default();
    ensure!(conditions.iter().any(|c| c["type"] == "GpuReady" && c["reason"] == "Fine"), "{}", patched.text);
    api.delete(&at(NODES, "s-{u}")).await?.ok()?;
    Ok(())
}

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases";

fn lease(holder: &str) -> serde_json::Value {
    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "acquireTime": "2026-01-02T03:04:05.678901Z",
            "renewTime": "2026-01-02T03:04:05.678901Z", "leaseTransitions": 0}})
}

async fn a_lease_keeps_microseconds(api: Harness) -> Result<()> {
    let made = api.post(LEASES, lease("one")).await?.is(201)?;
    made.has("/spec/renewTime", "2026-01-02T03:04:05.678901Z")?.has("/spec/holderIdentity", "one")?;
    let mut bad = lease("one");
    bad["metadata"]["name"] = json!("b");
    bad["spec"]["renewTime"] = json!("yesterday");
    api.post(LEASES, bad).await?.refused(400, "BadRequest")?;
    Ok(())
}

async fn a_lease_is_renewed_against_its_version(api: Harness) -> Result<()> {
    let version = api.post(LEASES, lease("one")).await?.is(201)?.version()?;
    let mut renewed = lease("one");
    renewed["metadata"]["resourceVersion"] = json!(version);
    renewed["spec"]["renewTime"] = json!("2026-01-02T03:05:05.000000Z");
    let put = api.put(&at(LEASES, "a"), renewed.clone()).await?.is(200)?;
    put.has("/spec/renewTime", "2026-01-02T03:05:05.000000Z")?;
    api.put(&at(LEASES, "a"), renewed).await?.refused(409, "Conflict")?;
    Ok(())
}

async fn two_takers_of_a_lease_cannot_both_win(api: Harness) -> Result<()> {
    let version = api.post(LEASES, lease("one")).await?.is(201)?.version()?;
    let path = at(LEASES, "a");
    let take = |holder: &str| {
        let mut body = lease(holder);
        body["metadata"]["resourceVersion"] = json!(version);
        api.put(&path, body)
    };
    let (two, three) = futures::future::try_join(take("two"), take("three")).await?;
    let mut codes = [two.status, three.status];
    codes.sort_unstable();
    ensure!(codes == [200, 409], "{codes:?}");
    Ok(())
}

async fn a_lease_refuses_a_duration_of_zero(api: Harness) -> Result<()> {
    let mut body = lease("one");
    body["spec"]["leaseDurationSeconds"] = json!(0);
    let refused = api.post(LEASES, body).await?.refused(422, "Invalid")?;
    refused.cause("FieldValueInvalid", "spec.leaseDurationSeconds")?;
    Ok(())
}

const EVENTS: &str = "/api/v1/namespaces/{ns}/events";

fn event(name: &str) -> serde_json::Value {
    json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": "{ns}"},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": "{ns}"},
        "reason": "Tested", "message": "as it should be", "type": "Normal", "count": 1,
        "firstTimestamp": "2026-01-02T03:04:05Z", "lastTimestamp": "2026-01-02T03:04:05Z", "source": {"component": "parity"}})
}

async fn events_are_recorded_and_counted(api: Harness) -> Result<()> {
    api.post(EVENTS, event("a")).await?.is(201)?.has("/reason", "Tested")?;
    let patch = json!({"count": 2, "lastTimestamp": "2026-01-02T03:05:05Z"});
    api.merge(&at(EVENTS, "a"), patch)
        .await?
        .is(200)?
        .has("/count", 2)?
        .has("/lastTimestamp", "2026-01-02T03:05:05Z")?;
    Ok(())
}

async fn events_of_the_new_group_are_the_same_objects(api: Harness) -> Result<()> {
    let new = "/apis/events.k8s.io/v1/namespaces/{ns}/events";
    let body = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "n", "namespace": "{ns}"},
        "eventTime": "2026-01-02T03:04:05.000000Z", "reportingController": "trireme.dev/parity", "reportingInstance": "one",
        "action": "Testing", "reason": "Tested", "note": "as it should be", "type": "Warning",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": "{ns}"}});
    api.post(new, body).await?.is(201)?;
    let old = api.get(&at(EVENTS, "n")).await?.is(200)?.has("/message", "as it should be")?;
    old.has("/involvedObject/name", "p")?
        .has("/reportingComponent", "trireme.dev/parity")?
        .has("/type", "Warning")?;
    Ok(())
}

async fn events_must_be_where_their_object_is(api: Harness) -> Result<()> {
    let mut body = event("a");
    body["involvedObject"]["namespace"] = json!("elsewhere");
    api.post(EVENTS, body)
        .await?
        .refused(422, "Invalid")?
        .cause("FieldValueInvalid", "involvedObject.namespace")?;
    Ok(())
}

async fn events_select_by_the_object_they_are_about(api: Harness) -> Result<()> {
    api.post(EVENTS, event("a")).await?.is(201)?;
    api.get(&format!("{EVENTS}?fieldSelector=involvedObject.name%3Dp,reason%3DTested"))
        .await?
        .is(200)?
        .lists(&["a"])?;
    api.get(&format!("{EVENTS}?fieldSelector=involvedObject.name%3Dq")).await?.is(200)?.lists(&[])?;
    Ok(())
}

async fn an_immutable_configmap_stays_as_it_is(api: Harness) -> Result<()> {
    let mut body = configmap("a");
    body["immutable"] = json!(true);
    api.post(CONFIGMAPS, body).await?.is(201)?;
    let refused =
        api.merge(&at(CONFIGMAPS, "a"), json!({"data": {"a": "2"}})).await?.refused(422, "Invalid")?;
    refused.cause("FieldValueForbidden", "data")?;
    let refused =
        api.merge(&at(CONFIGMAPS, "a"), json!({"immutable": false})).await?.refused(422, "Invalid")?;
    refused.cause("FieldValueForbidden", "immutable")?;
    api.merge(&at(CONFIGMAPS, "a"), json!({"metadata": {"labels": {"x": "y"}}})).await?.is(200)?;
    Ok(())
}

const SECRETS: &str = "/api/v1/namespaces/{ns}/secrets";

async fn an_immutable_secret_stays_as_it_is(api: Harness) -> Result<()> {
    let body = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "immutable": true, "data": {"k": "dg=="}});
    api.post(SECRETS, body).await?.is(201)?.has("/type", "Opaque")?;
    let refused =
        api.merge(&at(SECRETS, "a"), json!({"data": {"k": "dw=="}})).await?.refused(422, "Invalid")?;
    refused.cause("FieldValueForbidden", "data")?;
    Ok(())
}

async fn a_configmap_key_must_be_a_file_name(api: Harness) -> Result<()> {
    let mut body = configmap("a");
    body["data"] = json!({"not/good": "1"});
    api.post(CONFIGMAPS, body)
        .await?
        .refused(422, "Invalid")?
        .cause("FieldValueInvalid", "data[not/good]")?;
    Ok(())
}

async fn secret_strings_become_data(api: Harness) -> Result<()> {
    let body =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "stringData": {"k": "v"}});
    api.post(SECRETS, body).await?.is(201)?.has("/data/k", "dg==")?.lacks("/stringData")?;
    Ok(())
}

async fn secret_data_must_be_base64(api: Harness) -> Result<()> {
    let body = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "data": {"k": "not base64!"}});
    api.post(SECRETS, body).await?.refused(400, "BadRequest")?;
    Ok(())
}

async fn a_secret_keeps_its_type(api: Harness) -> Result<()> {
    let body =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "type": "example.com/x"});
    api.post(SECRETS, body).await?.is(201)?;
    let refused = api.merge(&at(SECRETS, "a"), json!({"type": "Opaque"})).await?.refused(422, "Invalid")?;
    refused.cause("FieldValueInvalid", "type")?;
    Ok(())
}

async fn a_priority_class_keeps_its_value(api: Harness) -> Result<()> {
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    let body = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "p-{u}"}, "value": 5});
    api.post(classes, body).await?.is(201)?.has("/preemptionPolicy", "PreemptLowerPriority")?;
    let refused = api.merge(&at(classes, "p-{u}"), json!({"value": 6})).await?.refused(422, "Invalid")?;
    refused.cause("FieldValueForbidden", "value")?;
    api.delete(&at(classes, "p-{u}")).await?.ok()?;
    Ok(())
}

async fn a_service_gets_an_address(api: Harness) -> Result<()> {
    let services = "/api/v1/namespaces/{ns}/services";
    let body = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"},
        "spec": {"selector": {"a": "b"}, "ports": [{"port": 443, "targetPort": 8443}]}});
    let made = api.post(services, body).await?.is(201)?.has("/spec/type", "ClusterIP")?;
    made.filled("/spec/clusterIP")?.has("/spec/ports/0/protocol", "TCP")?;
    let headless = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "b"},
        "spec": {"clusterIP": "None", "selector": {"a": "b"}}});
    api.post(services, headless).await?.is(201)?.has("/spec/clusterIP", "None")?;
    Ok(())
}

async fn endpoint_slices_are_kept_as_given(api: Harness) -> Result<()> {
    let slices = "/apis/discovery.k8s.io/v1/namespaces/{ns}/endpointslices";
    let body = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": "a", "labels": {"kubernetes.io/service-name": "s"}}, "addressType": "IPv4",
        "ports": [{"name": "https", "port": 8443, "protocol": "TCP"}], "endpoints": [{"addresses": ["10.1.2.3"]}]});
    api.post(slices, body).await?.is(201)?.has("/endpoints/0/addresses/0", "10.1.2.3")?;
    Ok(())
}

async fn a_disruption_budget_takes_one_of_two_numbers(api: Harness) -> Result<()> {
    let body = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "a"},
        "spec": {"minAvailable": 1, "maxUnavailable": 1, "selector": {"matchLabels": {"a": "b"}}}});
    let refused = api
        .post("/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets", body)
        .await?
        .refused(422, "Invalid")?;
    refused.cause("FieldValueInvalid", "spec")?;
    Ok(())
}

async fn a_service_account_can_be_made(api: Harness) -> Result<()> {
    let accounts = "/api/v1/namespaces/{ns}/serviceaccounts";
    let body = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}});
    api.post(accounts, body).await?.is(201)?.has("/kind", "ServiceAccount")?;
    Ok(())
}

async fn a_config_map_above_one_mebibyte_is_refused(api: Harness) -> Result<()> {
    let mut body = configmap("a");
    body["data"]["a"] = json!("x".repeat(1024 * 1024 + 1));
    let refused = api.post(CONFIGMAPS, body).await?.refused(422, "Invalid")?;
    refused.cause("FieldValueTooLong", "[]")?;
    Ok(())
}

async fn owner_references_are_checked(api: Harness) -> Result<()> {
    let mut body = configmap("a");
    body["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "x"}]);
    let refused = api.post(CONFIGMAPS, body).await?.refused(422, "Invalid")?;
    refused.cause("FieldValueInvalid", "metadata.ownerReferences.uid")?;
    Ok(())
}

async fn two_controllers_of_one_object_are_refused(api: Harness) -> Result<()> {
    let owner =
        |uid: &str| json!({"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": uid, "controller": true});
    let mut body = pod("a");
    body["metadata"]["ownerReferences"] = json!([owner("one"), owner("two")]);
    let refused = api.post(PODS, body).await?.refused(422, "Invalid")?;
    refused.cause("FieldValueInvalid", "metadata.ownerReferences")?;
    Ok(())
}
