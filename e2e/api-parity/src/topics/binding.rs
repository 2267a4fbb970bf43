//! Binding pods to nodes, and evicting them.

use anyhow::Result;
use serde_json::{Value, json};

use super::shapes::{NODES, PODS, at, node, pod};
use crate::{Case, Harness, topic};

pub(super) const CASES: &[Case] = topic!["binding", OnlyTheApi:
    binding_sets_the_node_and_the_condition,
    binding_lays_its_annotations_over_the_pods,
    binding_lays_its_labels_over_the_pods,
    a_bound_pod_cannot_be_bound_again,
    binding_with_another_uid_conflicts,
    binding_with_an_old_version_conflicts,
    binding_with_the_right_uid_and_version_works,
    binding_an_unknown_pod_is_not_found,
    binding_a_pod_that_is_being_deleted_conflicts,
    binding_a_gated_pod_is_refused,
    binding_without_a_target_is_refused,
    binding_to_another_kind_is_refused,
    the_bindings_collection_binds_too,
    binding_does_not_ask_whether_the_node_exists,
    binding_raises_the_resource_version,
    a_node_name_cannot_be_patched_in,
    eviction_deletes_an_unbound_pod,
    eviction_marks_a_bound_pod,
    eviction_of_a_missing_pod_is_not_found,
    eviction_honours_preconditions,
    eviction_of_a_dry_run_leaves_the_pod,
];

pub(super) const DISRUPTION: &[Case] = topic!["binding", Controllers:
    a_budget_that_allows_nothing_refuses_evictions,
    a_budget_that_allows_one_lets_one_go,
];

fn binding(name: &str, target: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
        "target": {"apiVersion": "v1", "kind": "Node", "name": target}})
}

const BIND: &str = "/api/v1/namespaces/{ns}/pods/a/binding";

async fn binding_sets_the_node_and_the_condition(api: Harness) -> Result<()> {
    api.post(PODS, pod("a")).await?.is(201)?;
    let bound = api.post(BIND, binding("a", "nobody-{u}")).await?.is(201)?.has("/kind", "Status")?;
    bound.has("/status", "Success")?;
    let seen =
        api.get(&at(PODS, "a")).await?.is(200)?.has("/spec/nodeName", format!("nobody-{}", api.token()))?;
    let seen =
        seen.has("/status/conditions/0/type", "PodScheduled")?.has("/status/conditions/0/status", "True")?;
    seen.filled("/status/conditions/0/lastTransitionTime")?.has("/status/phase", "Pending")?;
    Ok(())
}

async fn binding_lays_its_annotations_over_the_pods(api: Harness) -> Result<()> {
    let mut body = pod("a");
    body["metadata"]["annotations"] = json!({"keep": "1", "change": "1"});
    api.post(PODS, body).await?.is(201)?;
    let mut bind = binding("a", "nobody-{u}");
    bind["metadata"]["annotations"] = json!({"change": "2", "trireme.dev/devices": "{}"});
    api.post(BIND, bind).await?.is(201)?;
    let wanted = json!({"keep": "1", "change": "2", "trireme.dev/devices": "{}"});
    api.get(&at(PODS, "a")).await?.has("/metadata/annotations", wanted)?;
    Ok(())
}

async fn binding_lays_its_labels_over_the_pods(api: Harness) -> Result<()> {
    let mut body = pod("a");
    body["metadata"]["labels"] = json!({"keep": "1"});
    api.post(PODS, body).await?.is(201)?;
    let mut bind = binding("a", "nobody-{u}");
    bind["metadata"]["labels"] = json!({"topology.kubernetes.io/zone": "z"});
    api.post(BIND, bind).await?.is(201)?;
    api.get(&at(PODS, "a")).await?.has("/metadata/labels/keep", "1")?;
    Ok(())
}

async fn a_bound_pod_cannot_be_bound_again(api: Harness) -> Result<()> {
    api.post(PODS, pod("a")).await?.is(201)?;
    api.post(BIND, binding("a", "nobody-{u}")).await?.is(201)?;
    api.post(BIND, binding("a", "nobody-{u}")).await?.refused(409, "Conflict")?;
    api.post(BIND, binding("a", "other-{u}")).await?.refused(409, "Conflict")?;
    api.get(&at(PODS, "a")).await?.has("/spec/nodeName", format!("nobody-{}", api.token()))?;
    Ok(())
}

async fn binding_with_another_uid_conflicts(api: Harness) -> Result<()> {
    api.post(PODS, pod("a")).await?.is(201)?;
    let mut bind = binding("a", "nobody-{u}");
    bind["metadata"]["uid"] = json!("11111111-2222-3333-4444-555555555555");
    api.post(BIND, bind).await?.refused(409, "Conflict")?;
    api.get(&at(PODS, "a")).await?.lacks("/spec/nodeName")?;
    Ok(())
}

async fn binding_with_an_old_version_conflicts(api: Harness) -> Result<()> {
    let made = api.post(PODS, pod("a")).await?.is(201)?;
    api.merge(&at(PODS, "a"), json!({"metadata": {"labels": {"x": "y"}}})).await?.is(200)?;
    let mut bind = binding("a", "nobody-{u}");
    bind["metadata"]["resourceVersion"] = json!(made.version()?);
    api.post(BIND, bind).await?.refused(409, "Conflict")?;
    Ok(())
}

async fn binding_with_the_right_uid_and_version_works(api: Harness) -> Result<()> {
    let made = api.post(PODS, pod("a")).await?.is(201)?;
    let mut bind = binding("a", "nobody-{u}");
    bind["metadata"]["uid"] = json!(made.uid()?);
    bind["metadata"]["resourceVersion"] = json!(made.version()?);
    api.post(BIND, bind).await?.is(201)?;
    Ok(())
}

async fn binding_an_unknown_pod_is_not_found(api: Harness) -> Result<()> {
    let refused = api.post(BIND, binding("a", "nobody-{u}")).await?.refused(404, "NotFound")?;
    refused.has("/details/name", "a")?;
    Ok(())
}

async fn binding_a_pod_that_is_being_deleted_conflicts(api: Harness) -> Result<()> {
    let mut body = pod("a");
    body["metadata"]["finalizers"] = json!(["trireme.dev/hold"]);
    api.post(PODS, body).await?.is(201)?;
    api.delete(&at(PODS, "a")).await?.is(200)?;
    api.post(BIND, binding("a", "nobody-{u}")).await?.refused(409, "Conflict")?;
    Ok(())
}

async fn binding_a_gated_pod_is_refused(api: Harness) -> Result<()> {
    let mut body = pod("a");
    body["spec"]["schedulingGates"] = json!([{"name": "trireme.dev/one"}]);
    api.post(PODS, body).await?.is(201)?;
    api.post(BIND, binding("a", "nobody-{u}")).await?.refused(409, "Conflict")?;
    Ok(())
}

/// The real server answers 500 without a reason here; a clearer answer would be as good.
async fn refused_unbound(api: &Harness, bind: Value) -> Result<()> {
    let refused = api.post(BIND, bind).await?.has("/status", "Failure")?;
    anyhow::ensure!(refused.status >= 400, "{}", refused.text);
    api.get(&at(PODS, "a")).await?.lacks("/spec/nodeName")?;
    Ok(())
}

async fn binding_without_a_target_is_refused(api: Harness) -> Result<()> {
    api.post(PODS, pod("a")).await?.is(201)?;
    let bind =
        json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"}, "target": {"kind": "Node"}});
    refused_unbound(&api, bind).await
}

async fn binding_to_another_kind_is_refused(api: Harness) -> Result<()> {
    api.post(PODS, pod("a")).await?.is(201)?;
    let mut bind = binding("a", "nobody-{u}");
    bind["target"]["kind"] = json!("Pod");
    refused_unbound(&api, bind).await
}

async fn the_bindings_collection_binds_too(api: Harness) -> Result<()> {
    api.post(PODS, pod("a")).await?.is(201)?;
    api.post("/api/v1/namespaces/{ns}/bindings", binding("a", "nobody-{u}")).await?.is(201)?;
    api.get(&at(PODS, "a")).await?.filled("/spec/nodeName")?;
    Ok(())
}

async fn binding_does_not_ask_whether_the_node_exists(api: Harness) -> Result<()> {
    api.post(PODS, pod("a")).await?.is(201)?;
    api.post(BIND, binding("a", "never-was-{u}")).await?.is(201)?;
    Ok(())
}

async fn binding_raises_the_resource_version(api: Harness) -> Result<()> {
    let made = api.post(PODS, pod("a")).await?.is(201)?.version()?.parse::<u64>()?;
    api.post(BIND, binding("a", "nobody-{u}")).await?.is(201)?;
    let bound = api.get(&at(PODS, "a")).await?.version()?.parse::<u64>()?;
    anyhow::ensure!(bound > made, "{bound} is not above {made}");
    Ok(())
}

async fn a_node_name_cannot_be_patched_in(api: Harness) -> Result<()> {
    api.post(PODS, pod("a")).await?.is(201)?;
    api.merge(&at(PODS, "a"), json!({"spec": {"nodeName": "n"}})).await?.refused(422, "Invalid")?;
    Ok(())
}

const EVICT: &str = "/api/v1/namespaces/{ns}/pods/a/eviction";

fn eviction() -> Value {
    json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a", "namespace": "{ns}"}})
}

async fn eviction_deletes_an_unbound_pod(api: Harness) -> Result<()> {
    api.post(PODS, pod("a")).await?.is(201)?;
    api.post(EVICT, eviction()).await?.is(201)?.has("/status", "Success")?;
    api.get(&at(PODS, "a")).await?.is(404)?;
    Ok(())
}

async fn eviction_marks_a_bound_pod(api: Harness) -> Result<()> {
    let mut body = pod("a");
    body["spec"]["nodeName"] = json!("nobody-{u}");
    api.post(PODS, body).await?.is(201)?;
    api.post(EVICT, eviction()).await?.is(201)?;
    let marked = api.get(&at(PODS, "a")).await?.is(200)?.filled("/metadata/deletionTimestamp")?;
    let conditions = marked.at("/status/conditions").as_array().cloned().unwrap_or_default();
    let target = conditions.iter().find(|condition| condition["type"] == "DisruptionTarget");
    anyhow::ensure!(target.is_some_and(|c| c["reason"] == "EvictionByEvictionAPI"), "{}", marked.text);
    Ok(())
}

async fn eviction_of_a_missing_pod_is_not_found(api: Harness) -> Result<()> {
    api.post(EVICT, eviction()).await?.refused(404, "NotFound")?;
    Ok(())
}

async fn eviction_honours_preconditions(api: Harness) -> Result<()> {
    api.post(PODS, pod("a")).await?.is(201)?;
    let mut body = eviction();
    body["deleteOptions"] = json!({"preconditions": {"uid": "11111111-2222-3333-4444-555555555555"}});
    api.post(EVICT, body).await?.refused(409, "Conflict")?;
    Ok(())
}

async fn eviction_of_a_dry_run_leaves_the_pod(api: Harness) -> Result<()> {
    api.post(PODS, pod("a")).await?.is(201)?;
    let mut body = eviction();
    body["deleteOptions"] = json!({"dryRun": ["All"]});
    api.post(EVICT, body).await?.is(201)?;
    api.get(&at(PODS, "a")).await?.is(200)?;
    Ok(())
}

const BUDGETS: &str = "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets";

/// Two ready pods on a node without a kubelet, and a budget for them.
async fn guarded(api: &Harness, min_available: i64) -> Result<()> {
    // The node exists, or the pods would be collected as orphans.
    api.post(NODES, node("nobody-{u}")).await?.is(201)?;
    for name in ["a", "b"] {
        let mut body = pod(name);
        body["metadata"]["labels"] = json!({"app": "x"});
        body["spec"]["nodeName"] = json!("nobody-{u}");
        api.post(PODS, body).await?.is(201)?;
        let ready =
            json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        api.merge(&format!("{PODS}/{name}/status"), ready).await?.is(200)?;
    }
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "x"},
        "spec": {"minAvailable": min_available, "selector": {"matchLabels": {"app": "x"}}}});
    api.post(BUDGETS, budget).await?.is(201)?;
    let allowed = 2 - min_available;
    api.until(&at(BUDGETS, "x"), |answer| {
        answer.at("/status/currentHealthy") == 2 && answer.at("/status/disruptionsAllowed") == allowed
    })
    .await?;
    Ok(())
}

async fn a_budget_that_allows_nothing_refuses_evictions(api: Harness) -> Result<()> {
    guarded(&api, 2).await?;
    let refused = api.post(EVICT, eviction()).await?.refused(429, "TooManyRequests")?;
    refused.has("/details/causes/0/reason", "DisruptionBudget")?;
    api.get(&at(PODS, "a")).await?.lacks("/metadata/deletionTimestamp")?;
    Ok(())
}

async fn a_budget_that_allows_one_lets_one_go(api: Harness) -> Result<()> {
    guarded(&api, 1).await?;
    api.post(EVICT, eviction()).await?.is(201)?;
    let mut second = eviction();
    second["metadata"]["name"] = json!("b");
    api.post("/api/v1/namespaces/{ns}/pods/b/eviction", second).await?.refused(429, "TooManyRequests")?;
    Ok(())
}
