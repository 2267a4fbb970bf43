//! Pods: defaults, validation, what may change, gates, status.

use anyhow::{Result, ensure};
use serde_json::json;

use super::shapes::{PODS, at, pod};
use crate::{Case, Harness, topic};

pub(super) const CASES: &[Case] = topic!["pods", OnlyTheApi:
    a_pod_gets_its_defaults,
    a_pod_starts_pending_without_a_node,
    a_container_gets_its_defaults,
    a_pod_without_containers_names_the_field,
    a_container_without_name_and_image_names_both_fields,
    duplicate_container_names_are_refused,
    a_wrong_restart_policy_names_the_field,
    a_bad_node_selector_is_refused,
    a_bad_toleration_is_refused,
    the_image_of_a_pod_may_change,
    most_of_a_pod_spec_may_not_change,
    the_scheduler_name_may_not_change,
    tolerations_may_be_added_but_not_removed,
    the_deadline_may_be_shortened_only,
    gates_may_be_removed_but_not_added,
    a_gated_pod_says_so_in_its_status,
    a_gated_pod_may_narrow_its_node_selector,
    an_ungated_pod_keeps_its_node_selector,
    a_gate_and_a_node_together_are_refused,
    duplicate_gates_are_refused,
    a_pod_with_an_unknown_priority_class_is_forbidden,
    a_priority_number_without_a_class_is_forbidden,
    a_priority_class_gives_the_number,
    labels_and_annotations_of_a_pod_may_change,
    default_tolerations_are_added,
    a_pod_has_a_service_class,
    a_nominated_node_is_written_in_the_status,
    a_finished_pod_keeps_its_reason_and_can_be_deleted,
    host_and_pod_addresses_are_written_by_status,
    a_topology_spread_needs_its_key,
];

async fn a_pod_gets_its_defaults(api: Harness) -> Result<()> {
    let made = api.post(PODS, pod("a")).await?.is(201)?;
    made.has("/spec/restartPolicy", "Always")?
        .has("/spec/dnsPolicy", "ClusterFirst")?
        .has("/spec/schedulerName", "default-scheduler")?
        .has("/spec/terminationGracePeriodSeconds", 30)?
        .has("/spec/enableServiceLinks", true)?
        .has("/spec/preemptionPolicy", "PreemptLowerPriority")?
        .has("/spec/priority", 0)?
        .has("/spec/securityContext", json!({}))?;
    Ok(())
}

async fn a_pod_starts_pending_without_a_node(api: Harness) -> Result<()> {
    let made = api.post(PODS, pod("a")).await?.is(201)?;
    made.has("/status/phase", "Pending")?.lacks("/spec/nodeName")?.lacks("/status/conditions")?;
    Ok(())
}

async fn a_container_gets_its_defaults(api: Harness) -> Result<()> {
    let made = api.post(PODS, pod("a")).await?.is(201)?;
    made.has("/spec/containers/0/imagePullPolicy", "Always")?
        .has("/spec/containers/0/terminationMessagePath", "/dev/termination-log")?
        .has("/spec/containers/0/terminationMessagePolicy", "File")?
        .has("/spec/containers/0/resources", json!({}))?;
    let mut tagged = pod("b");
    tagged["spec"]["containers"][0]["image"] = json!("busybox:1.36");
    api.post(PODS, tagged).await?.is(201)?.has("/spec/containers/0/imagePullPolicy", "IfNotPresent")?;
    Ok(())
}

async fn a_pod_without_containers_names_the_field(api: Harness) -> Result<()> {
    let mut body = pod("a");
    body["spec"]["containers"] = json!([]);
    api.post(PODS, body).await?.refused(422, "Invalid")?.cause("FieldValueRequired", "spec.containers")?;
    Ok(())
}

async fn a_container_without_name_and_image_names_both_fields(api: Harness) -> Result<()> {
    let mut body = pod("a");
    body["spec"]["containers"] = json!([{}]);
    let refused = api.post(PODS, body).await?.refused(422, "Invalid")?;
    let refused = refused.cause("FieldValueRequired", "spec.containers[0].name")?;
    refused.cause("FieldValueRequired", "spec.containers[0].image")?;
    Ok(())
}

async fn duplicate_container_names_are_refused(api: Harness) -> Result<()> {
    let mut body = pod("a");
    body["spec"]["containers"] = json!([{"name": "x", "image": "i"}, {"name": "x", "image": "i"}]);
    let refused = api.post(PODS, body).await?.refused(422, "Invalid")?;
    refused.cause("FieldValueDuplicate", "spec.containers[1].name")?;
    Ok(())
}

async fn a_wrong_restart_policy_names_the_field(api: Harness) -> Result<()> {
    let mut body = pod("a");
    body["spec"]["restartPolicy"] = json!("Sometimes");
    let refused = api.post(PODS, body).await?.refused(422, "Invalid")?;
    refused.cause("FieldValueNotSupported", "spec.restartPolicy")?;
    Ok(())
}

async fn a_bad_node_selector_is_refused(api: Harness) -> Result<()> {
    let mut body = pod("a");
    body["spec"]["nodeSelector"] = json!({"bad key": "x"});
    let refused = api.post(PODS, body).await?.refused(422, "Invalid")?;
    refused.cause("FieldValueInvalid", "spec.nodeSelector")?;
    Ok(())
}

async fn a_bad_toleration_is_refused(api: Harness) -> Result<()> {
    let mut body = pod("a");
    body["spec"]["tolerations"] = json!([{"key": "k", "operator": "Nearly", "value": "v"}]);
    let refused = api.post(PODS, body).await?.refused(422, "Invalid")?;
    refused.cause("FieldValueNotSupported", "spec.tolerations[0].operator")?;
    Ok(())
}

async fn the_image_of_a_pod_may_change(api: Harness) -> Result<()> {
    api.post(PODS, pod("a")).await?.is(201)?;
    let patch = json!([{"op": "replace", "path": "/spec/containers/0/image", "value": "other"}]);
    api.json_patch(&at(PODS, "a"), patch).await?.is(200)?.has("/spec/containers/0/image", "other")?;
    Ok(())
}

async fn most_of_a_pod_spec_may_not_change(api: Harness) -> Result<()> {
    api.post(PODS, pod("a")).await?.is(201)?;
    for (path, value) in
        [("/spec/restartPolicy", json!("Never")), ("/spec/containers/0/command", json!(["sh"]))]
    {
        let patch = json!([{"op": "add", "path": path, "value": value}]);
        let refused = api.json_patch(&at(PODS, "a"), patch).await?.refused(422, "Invalid")?;
        refused.cause("FieldValueForbidden", "spec")?;
    }
    Ok(())
}

async fn the_scheduler_name_may_not_change(api: Harness) -> Result<()> {
    api.post(PODS, pod("a")).await?.is(201)?;
    let refused =
        api.merge(&at(PODS, "a"), json!({"spec": {"schedulerName": "x"}})).await?.refused(422, "Invalid")?;
    refused.cause("FieldValueForbidden", "spec")?;
    Ok(())
}

async fn tolerations_may_be_added_but_not_removed(api: Harness) -> Result<()> {
    let made = api.post(PODS, pod("a")).await?.is(201)?;
    let add =
        json!([{"op": "add", "path": "/spec/tolerations/-", "value": {"key": "k", "operator": "Exists"}}]);
    let count = made.at("/spec/tolerations").as_array().map_or(0, Vec::len);
    let patched = api.json_patch(&at(PODS, "a"), add).await?.is(200)?;
    ensure!(
        patched.at("/spec/tolerations").as_array().is_some_and(|all| all.len() == count + 1),
        "{}",
        patched.text
    );
    let refused = api.merge(&at(PODS, "a"), json!({"spec": {"tolerations": []}})).await?;
    refused.refused(422, "Invalid")?;
    Ok(())
}

async fn the_deadline_may_be_shortened_only(api: Harness) -> Result<()> {
    let mut body = pod("a");
    body["spec"]["activeDeadlineSeconds"] = json!(100);
    api.post(PODS, body).await?.is(201)?;
    api.merge(&at(PODS, "a"), json!({"spec": {"activeDeadlineSeconds": 50}})).await?.is(200)?;
    let refused = api.merge(&at(PODS, "a"), json!({"spec": {"activeDeadlineSeconds": 60}})).await?;
    refused.refused(422, "Invalid")?.cause("FieldValueInvalid", "spec.activeDeadlineSeconds")?;
    Ok(())
}

fn gated(name: &str) -> serde_json::Value {
    let mut body = pod(name);
    body["spec"]["schedulingGates"] = json!([{"name": "trireme.dev/one"}, {"name": "trireme.dev/two"}]);
    body
}

async fn gates_may_be_removed_but_not_added(api: Harness) -> Result<()> {
    api.post(PODS, gated("a")).await?.is(201)?;
    let one = json!({"spec": {"schedulingGates": [{"name": "trireme.dev/two"}]}});
    api.merge(&at(PODS, "a"), one).await?.is(200)?;
    let more =
        json!({"spec": {"schedulingGates": [{"name": "trireme.dev/two"}, {"name": "trireme.dev/new"}]}});
    let refused = api.merge(&at(PODS, "a"), more).await?.refused(422, "Invalid")?;
    refused.cause("FieldValueForbidden", "spec.schedulingGates[1].name")?;
    api.merge(&at(PODS, "a"), json!({"spec": {"schedulingGates": null}}))
        .await?
        .is(200)?
        .lacks("/spec/schedulingGates")?;
    Ok(())
}

async fn a_gated_pod_says_so_in_its_status(api: Harness) -> Result<()> {
    let made = api.post(PODS, gated("a")).await?.is(201)?;
    made.has("/status/conditions/0/type", "PodScheduled")?
        .has("/status/conditions/0/status", "False")?
        .has("/status/conditions/0/reason", "SchedulingGated")?;
    Ok(())
}

async fn a_gated_pod_may_narrow_its_node_selector(api: Harness) -> Result<()> {
    let mut body = gated("a");
    body["spec"]["nodeSelector"] = json!({"zone": "z"});
    api.post(PODS, body).await?.is(201)?;
    let patched =
        api.merge(&at(PODS, "a"), json!({"spec": {"nodeSelector": {"disk": "ssd"}}})).await?.is(200)?;
    patched.has("/spec/nodeSelector", json!({"zone": "z", "disk": "ssd"}))?;
    let refused = api.merge(&at(PODS, "a"), json!({"spec": {"nodeSelector": {"zone": "other"}}})).await?;
    refused.refused(422, "Invalid")?.cause("FieldValueInvalid", "spec.nodeSelector")?;
    Ok(())
}

async fn an_ungated_pod_keeps_its_node_selector(api: Harness) -> Result<()> {
    api.post(PODS, pod("a")).await?.is(201)?;
    let refused = api.merge(&at(PODS, "a"), json!({"spec": {"nodeSelector": {"disk": "ssd"}}})).await?;
    refused.refused(422, "Invalid")?.cause("FieldValueForbidden", "spec")?;
    Ok(())
}

async fn a_gate_and_a_node_together_are_refused(api: Harness) -> Result<()> {
    let mut body = gated("a");
    body["spec"]["nodeName"] = json!("n");
    let refused = api.post(PODS, body).await?.refused(422, "Invalid")?;
    refused.cause("FieldValueForbidden", "spec.nodeName")?;
    Ok(())
}

async fn duplicate_gates_are_refused(api: Harness) -> Result<()> {
    let mut body = pod("a");
    body["spec"]["schedulingGates"] = json!([{"name": "trireme.dev/one"}, {"name": "trireme.dev/one"}]);
    let refused = api.post(PODS, body).await?.refused(422, "Invalid")?;
    refused.cause("FieldValueDuplicate", "spec.schedulingGates[1]")?;
    Ok(())
}

async fn a_pod_with_an_unknown_priority_class_is_forbidden(api: Harness) -> Result<()> {
    let mut body = pod("a");
    body["spec"]["priorityClassName"] = json!("never-{u}");
    api.post(PODS, body).await?.refused(403, "Forbidden")?;
    Ok(())
}

async fn a_priority_number_without_a_class_is_forbidden(api: Harness) -> Result<()> {
    let mut body = pod("a");
    body["spec"]["priority"] = json!(7);
    api.post(PODS, body).await?.refused(403, "Forbidden")?;
    Ok(())
}

async fn a_priority_class_gives_the_number(api: Harness) -> Result<()> {
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high-{u}"},
        "value": 1000, "preemptionPolicy": "Never"});
    api.post(classes, class).await?.is(201)?;
    let mut body = pod("a");
    body["spec"]["priorityClassName"] = json!("high-{u}");
    // The server may answer from a list of classes that is a moment old.
    let mut made = api.post(PODS, body.clone()).await?;
    for _ in 0..20 {
        if made.status == 201 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        made = api.post(PODS, body.clone()).await?;
    }
    made.is(201)?.has("/spec/priority", 1000)?.has("/spec/preemptionPolicy", "Never")?;
    api.delete(&at(classes, "high-{u}")).await?.ok()?;
    Ok(())
}

async fn labels_and_annotations_of_a_pod_may_change(api: Harness) -> Result<()> {
    api.post(PODS, pod("a")).await?.is(201)?;
    let patch = json!({"metadata": {"labels": {"l": "1"}, "annotations": {"a": "1"}}});
    let patched = api.merge(&at(PODS, "a"), patch).await?.is(200)?;
    patched.has("/metadata/labels/l", "1")?.has("/metadata/annotations/a", "1")?;
    Ok(())
}

async fn default_tolerations_are_added(api: Harness) -> Result<()> {
    let made = api.post(PODS, pod("a")).await?.is(201)?;
    let keys: Vec<_> = made
        .at("/spec/tolerations")
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|t| t["key"].as_str())
        .collect();
    ensure!(keys == ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"], "{keys:?}");
    made.has("/spec/tolerations/0/tolerationSeconds", 300)?.has("/spec/tolerations/0/effect", "NoExecute")?;
    Ok(())
}

async fn a_pod_has_a_service_class(api: Harness) -> Result<()> {
    api.post(PODS, pod("a")).await?.is(201)?.has("/status/qosClass", "BestEffort")?;
    let with = |name: &str, resources| super::shapes::pod_with(name, resources);
    let all = json!({"cpu": "1", "memory": "1Gi"});
    api.post(PODS, with("b", json!({"limits": all})))
        .await?
        .is(201)?
        .has("/status/qosClass", "Guaranteed")?;
    api.post(PODS, with("c", json!({"requests": all})))
        .await?
        .is(201)?
        .has("/status/qosClass", "Burstable")?;
    Ok(())
}

async fn a_nominated_node_is_written_in_the_status(api: Harness) -> Result<()> {
    api.post(PODS, pod("a")).await?.is(201)?;
    let path = format!("{PODS}/a/status");
    let patched = api.merge(&path, json!({"status": {"nominatedNodeName": "n1"}})).await?.is(200)?;
    patched.has("/status/nominatedNodeName", "n1")?.has("/status/phase", "Pending")?;
    Ok(())
}

async fn a_finished_pod_keeps_its_reason_and_can_be_deleted(api: Harness) -> Result<()> {
    api.post(PODS, pod("a")).await?.is(201)?;
    let path = format!("{PODS}/a/status");
    let done = json!({"status": {"phase": "Succeeded", "reason": "Test", "message": "done"}});
    api.merge(&path, done).await?.is(200)?.has("/status/reason", "Test")?;
    api.delete(&at(PODS, "a")).await?.is(200)?;
    api.get(&at(PODS, "a")).await?.is(404)?;
    Ok(())
}

async fn host_and_pod_addresses_are_written_by_status(api: Harness) -> Result<()> {
    api.post(PODS, pod("a")).await?.is(201)?;
    let path = format!("{PODS}/a/status");
    let body = json!({"status": {"podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.3"}], "hostIP": "10.0.0.1"}});
    api.merge(&path, body).await?.is(200)?.has("/status/podIP", "10.1.2.3")?;
    Ok(())
}

async fn a_topology_spread_needs_its_key(api: Harness) -> Result<()> {
    let mut body = pod("a");
    body["spec"]["topologySpreadConstraints"] = json!([{"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]);
    let refused = api.post(PODS, body).await?.refused(422, "Invalid")?;
    refused.cause("FieldValueRequired", "spec.topologySpreadConstraints[0].topologyKey")?;
    Ok(())
}
