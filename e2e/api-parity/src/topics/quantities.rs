//! Quantities and resource names, as the server checks and rewrites them.

use anyhow::{Result, ensure};
use serde_json::json;

use super::shapes::{NODES, PODS, at, node, pod_with};
use crate::{Case, Harness, topic};

pub(super) const CASES: &[Case] = topic!["quantities", OnlyTheApi:
    quantities_come_back_in_canonical_form,
    limits_become_requests,
    a_quantity_may_be_a_number,
    a_malformed_quantity_is_bad_request,
    a_negative_quantity_names_the_field,
    a_request_above_its_limit_names_the_field,
    extended_resources_are_whole_numbers,
    extended_resources_cannot_be_overcommitted,
    extended_resources_of_requests_alone_are_refused,
    an_unqualified_unknown_resource_is_refused,
    gpus_in_limits_become_requests,
    node_capacity_becomes_allocatable_when_patched,
    cpu_finer_than_milli_is_rounded_up,
    huge_and_tiny_quantities_survive,
];

async fn quantities_come_back_in_canonical_form(api: Harness) -> Result<()> {
    for (name, given, wanted) in [
        ("a", "1000m", "1"),
        ("b", "0.5", "500m"),
        ("c", "1500m", "1500m"),
        ("d", "2.0", "2"),
        ("e", "1e3", "1e3"),
        ("f", "1000", "1k"),
    ] {
        let made = api.post(PODS, pod_with(name, json!({"requests": {"cpu": given}}))).await?.is(201)?;
        let got = made.string("/spec/containers/0/resources/requests/cpu")?;
        ensure!(got == wanted, "{given} came back as {got}, not {wanted}");
    }
    for (name, given, wanted) in
        [("g", "1024Mi", "1Gi"), ("h", "1024Ki", "1Mi"), ("i", "1.5Gi", "1536Mi"), ("j", "1000Mi", "1000Mi")]
    {
        let made = api.post(PODS, pod_with(name, json!({"requests": {"memory": given}}))).await?.is(201)?;
        made.has("/spec/containers/0/resources/requests/memory", wanted)?;
    }
    Ok(())
}

async fn limits_become_requests(api: Harness) -> Result<()> {
    let made = api
        .post(PODS, pod_with("a", json!({"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}})))
        .await?;
    let made = made.is(201)?.has("/spec/containers/0/resources/requests/cpu", "1")?;
    made.has("/spec/containers/0/resources/requests/memory", "1Gi")?;
    Ok(())
}

async fn a_quantity_may_be_a_number(api: Harness) -> Result<()> {
    let made = api.post(PODS, pod_with("a", json!({"requests": {"cpu": 2}}))).await?.is(201)?;
    made.has("/spec/containers/0/resources/requests/cpu", "2")?;
    Ok(())
}

async fn a_malformed_quantity_is_bad_request(api: Harness) -> Result<()> {
    for given in ["1x", "1 Gi", "--1", "1e", "0x10", ""] {
        let refused = api.post(PODS, pod_with("a", json!({"requests": {"cpu": given}}))).await?;
        ensure!(refused.status == 400, "{given:?}: {} {}", refused.status, refused.text);
    }
    Ok(())
}

async fn a_negative_quantity_names_the_field(api: Harness) -> Result<()> {
    let refused =
        api.post(PODS, pod_with("a", json!({"requests": {"cpu": "-1"}}))).await?.refused(422, "Invalid")?;
    refused.cause("FieldValueInvalid", "spec.containers[0].resources.requests[cpu]")?;
    Ok(())
}

async fn a_request_above_its_limit_names_the_field(api: Harness) -> Result<()> {
    let body = pod_with("a", json!({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}));
    let refused = api.post(PODS, body).await?.refused(422, "Invalid")?;
    refused.cause("FieldValueInvalid", "spec.containers[0].resources.requests")?;
    Ok(())
}

async fn extended_resources_are_whole_numbers(api: Harness) -> Result<()> {
    let refused = api
        .post(PODS, pod_with("a", json!({"limits": {"nvidia.com/gpu": "500m"}})))
        .await?
        .refused(422, "Invalid")?;
    refused.cause("FieldValueInvalid", "spec.containers[0].resources.limits[nvidia.com/gpu]")?;
    Ok(())
}

async fn extended_resources_cannot_be_overcommitted(api: Harness) -> Result<()> {
    let body = pod_with("a", json!({"limits": {"nvidia.com/gpu": "2"}, "requests": {"nvidia.com/gpu": "1"}}));
    let refused = api.post(PODS, body).await?.refused(422, "Invalid")?;
    refused.cause("FieldValueInvalid", "spec.containers[0].resources.requests")?;
    Ok(())
}

async fn extended_resources_of_requests_alone_are_refused(api: Harness) -> Result<()> {
    let refused = api
        .post(PODS, pod_with("a", json!({"requests": {"nvidia.com/gpu": "1"}})))
        .await?
        .refused(422, "Invalid")?;
    refused.cause("FieldValueRequired", "spec.containers[0].resources.limits")?;
    Ok(())
}

async fn an_unqualified_unknown_resource_is_refused(api: Harness) -> Result<()> {
    let refused =
        api.post(PODS, pod_with("a", json!({"limits": {"gpu": "1"}}))).await?.refused(422, "Invalid")?;
    refused.cause("FieldValueInvalid", "spec.containers[0].resources.limits[gpu]")?;
    Ok(())
}

async fn gpus_in_limits_become_requests(api: Harness) -> Result<()> {
    let made = api.post(PODS, pod_with("a", json!({"limits": {"nvidia.com/gpu": 4}}))).await?.is(201)?;
    made.has("/spec/containers/0/resources/requests/nvidia.com~1gpu", "4")?;
    Ok(())
}

async fn node_capacity_becomes_allocatable_when_patched(api: Harness) -> Result<()> {
    api.post(NODES, node("q-{u}")).await?.is(201)?;
    let body = json!({"status": {"capacity": {"nvidia.com/gpu": "8", "memory": "1048576Ki"}}});
    let patched = api.merge(&format!("{NODES}/q-{{u}}/status"), body).await?.is(200)?;
    patched.has("/status/capacity/memory", "1Gi")?.has("/status/allocatable/nvidia.com~1gpu", "8")?;
    api.delete(&at(NODES, "q-{u}")).await?.ok()?;
    Ok(())
}

async fn cpu_finer_than_milli_is_rounded_up(api: Harness) -> Result<()> {
    let made = api.post(PODS, pod_with("a", json!({"requests": {"cpu": "100u"}}))).await?.is(201)?;
    made.has("/spec/containers/0/resources/requests/cpu", "1m")?;
    Ok(())
}

async fn huge_and_tiny_quantities_survive(api: Harness) -> Result<()> {
    let made =
        api.post(PODS, pod_with("a", json!({"requests": {"memory": "7Ei", "cpu": "1m"}}))).await?.is(201)?;
    made.has("/spec/containers/0/resources/requests/memory", "7Ei")?
        .has("/spec/containers/0/resources/requests/cpu", "1m")?;
    Ok(())
}
