//! What a node's taints do to the pods that are on it already.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::shapes::{NODES, PODS, at, node, pod};
use crate::{Answer, Case, Harness, topic};

pub(super) const CONTROLLED: &[Case] = topic!["nodes", Controllers:
    a_no_execute_taint_evicts_a_pod_that_does_not_tolerate_it,
    a_no_execute_taint_spares_a_pod_that_tolerates_it,
    a_no_execute_taint_waits_for_as_long_as_it_is_tolerated,
];

/// A node that no kubelet keeps, with one taint, and a pod on it.
async fn tainted(api: &Harness, tolerations: Value) -> Result<()> {
    let mut body = node("parity-{u}");
    body["spec"] = json!({"taints": [{"key": "parity.trireme.dev/broken", "effect": "NoExecute"}]});
    api.post(NODES, body).await?.is(201)?;
    let mut body = pod("a");
    body["spec"]["nodeName"] = json!("parity-{u}");
    body["spec"]["tolerations"] = tolerations;
    api.post(PODS, body).await?.is(201)?;
    Ok(())
}

async fn clean(api: &Harness) -> Result<()> {
    api.delete(&format!("{PODS}/a?gracePeriodSeconds=0")).await?;
    api.delete(&at(NODES, "parity-{u}")).await?.ok()?;
    Ok(())
}

fn is_leaving(pod: &Answer) -> bool {
    !pod.at("/metadata/deletionTimestamp").is_null()
}

async fn a_no_execute_taint_evicts_a_pod_that_does_not_tolerate_it(api: Harness) -> Result<()> {
    tainted(&api, json!([])).await?;
    let pod = api.until(&at(PODS, "a"), is_leaving).await?;
    let conditions = pod.at("/status/conditions").as_array().cloned().unwrap_or_default();
    let reason = conditions.iter().find(|one| one["type"] == "DisruptionTarget").map(|one| &one["reason"]);
    ensure!(reason == Some(&json!("DeletionByTaintManager")), "{}", pod.text);
    clean(&api).await
}

async fn a_no_execute_taint_spares_a_pod_that_tolerates_it(api: Harness) -> Result<()> {
    tainted(&api, json!([{"key": "parity.trireme.dev/broken", "operator": "Exists"}])).await?;
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    let pod = api.get(&at(PODS, "a")).await?.is(200)?;
    ensure!(!is_leaving(&pod), "{}", pod.text);
    clean(&api).await
}

async fn a_no_execute_taint_waits_for_as_long_as_it_is_tolerated(api: Harness) -> Result<()> {
    let patient = json!([{"key": "parity.trireme.dev/broken", "operator": "Exists", "effect": "NoExecute",
        "tolerationSeconds": 3}]);
    tainted(&api, patient).await?;
    let pod = api.get(&at(PODS, "a")).await?.is(200)?;
    ensure!(!is_leaving(&pod), "{}", pod.text);
    api.until(&at(PODS, "a"), is_leaving).await?;
    clean(&api).await
}
