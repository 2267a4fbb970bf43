//! The check that asks an autoscaler for nodes, with the test in the autoscaler's place.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use cluster_sim::GroupResource;
use serde_json::{Value, json};
use support::{World, pytorch};

const GROUP: &str = "kueue.x-k8s.io";
const AUTOSCALING: &str = "autoscaling.x-k8s.io";

async fn world(config: Value) -> World {
    with(World::new(false).await, config).await
}

async fn with(world: World, config: Value) -> World {
    world.queue("a", "", json!({ "nominalQuota": 4 }), json!({})).await;
    let check = json!({ "metadata": { "name": "nodes" }, "spec": {
        "controllerName": "kueue.x-k8s.io/provisioning-request",
        "parameters": { "apiGroup": GROUP, "kind": "ProvisioningRequestConfig", "name": "queued" },
    }});
    world.create(GROUP, "admissionchecks", check).await;
    let ask = |queue: &mut Value| {
        queue["spec"]["admissionChecksStrategy"] = json!({ "admissionChecks": [{ "name": "nodes" }] });
    };
    world.update(GROUP, "clusterqueues", "a", false, ask).await;
    world.start("layer1");
    world.settle().await;
    let queue = world.get(GROUP, "clusterqueues", "a").unwrap();
    assert_eq!(queue["status"]["conditions"][0]["reason"], "AdmissionCheckInactive", "without its settings");
    let config = json!({ "metadata": { "name": "queued" }, "spec": config });
    world.create(GROUP, "provisioningrequestconfigs", config).await;
    world.settle().await;
    let check = world.get(GROUP, "admissionchecks", "nodes").unwrap();
    assert_eq!(check["status"]["conditions"][0]["status"], "True");
    world
}

fn all(world: &World, group: &str, resource: &str) -> Vec<Value> {
    let id = GroupResource::new(group, resource);
    let all = world.cluster.store("reader").list(&id, Some("team"));
    all.iter().map(|one| one.value().clone()).collect()
}

fn requests(world: &World) -> Vec<Value> {
    all(world, AUTOSCALING, "provisioningrequests")
}

async fn say(world: &World, request: &Value, kind: &str, message: &str) {
    let name = request["metadata"]["name"].as_str().unwrap();
    world
        .update(AUTOSCALING, "provisioningrequests", name, true, |request| {
            let conditions = json!([{
                "type": kind, "status": "True", "reason": "Test", "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]);
            request["status"] = json!({
                "conditions": conditions, "provisioningClassDetails": { "pool": "pool-7" },
            });
        })
        .await;
}

fn check(world: &World, field: &str) -> Value {
    world.workload("llama").unwrap()["status"]["admissionChecks"][0][field].clone()
}

#[tokio::test(start_paused = true)]
async fn nodes_are_asked_for_and_the_pods_go_there() {
    let world = world(json!({
        "provisioningClassName": "queued.example.com",
        "parameters": { "zone": "a" },
        "managedResources": ["nvidia.com/gpu"],
        "podSetUpdates": { "nodeSelector": [
            { "key": "pool", "valueFromProvisioningClassDetail": "pool" },
        ]},
    }))
    .await;
    let mut job = pytorch("llama", "a", 2);
    job["metadata"]["annotations"] = json!({ "provreq.kueue.x-k8s.io/valid-until": "600" });
    world.create("kubeflow.org", "pytorchjobs", job).await;
    world.settle().await;
    assert!(world.is("llama", "QuotaReserved") && !world.is("llama", "Admitted"));
    let made = requests(&world);
    assert_eq!(made.len(), 1);
    let (request, workload) = (&made[0], world.workload("llama").unwrap());
    let name = format!("{}-nodes-1", workload["metadata"]["name"].as_str().unwrap());
    assert_eq!(request["metadata"]["name"], name.as_str());
    assert_eq!(request["metadata"]["ownerReferences"][0]["uid"], workload["metadata"]["uid"]);
    assert_eq!(
        request["spec"],
        json!({
            "provisioningClassName": "queued.example.com",
            "parameters": { "zone": "a", "valid-until": "600" },
            "podSets": [{ "podTemplateRef": { "name": format!("ppt-{name}-worker") }, "count": 2 }],
        })
    );
    let templates = all(&world, "", "podtemplates");
    assert_eq!(templates.len(), 1);
    assert_eq!(templates[0]["metadata"]["ownerReferences"][0]["uid"], request["metadata"]["uid"]);
    let pod = &templates[0]["template"]["spec"];
    assert_eq!(pod["nodeSelector"], json!({ "gpu": "a100" }), "of its flavor");
    assert_eq!(pod["containers"][0]["resources"]["requests"], json!({ "nvidia.com/gpu": "1" }));
    assert_eq!(pod["containers"][0]["image"], "x");

    say(&world, request, "Provisioned", "here they are").await;
    world.settle().await;
    assert!(world.is("llama", "Admitted") && !world.is_suspended("llama"));
    assert_eq!((check(&world, "state"), check(&world, "message")), (json!("Ready"), json!("here they are")));
    let job = world.job("llama");
    let template = &job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"];
    assert_eq!(template["spec"]["nodeSelector"], json!({ "gpu": "a100", "pool": "pool-7" }));
    let mut annotations = template["metadata"]["annotations"].clone();
    for mark in ["trireme.dev/workload-version", "kueue.x-k8s.io/workload"] {
        assert!(annotations.as_object_mut().unwrap().remove(mark).is_some(), "{mark}");
    }
    assert_eq!(
        annotations,
        json!({
            "autoscaling.x-k8s.io/consume-provisioning-request": name,
            "autoscaling.x-k8s.io/provisioning-class-name": "queued.example.com",
        })
    );
    // A booking that expires under a workload that runs is nobody's business; nodes that are taken away are.
    say(&world, request, "BookingExpired", "late").await;
    world.settle().await;
    assert!(world.is("llama", "Admitted"));
    say(&world, request, "CapacityRevoked", "taken away").await;
    world.settle().await;
    assert_eq!(world.condition("llama", "Evicted").unwrap().1, "DeactivatedDueToAdmissionCheck");
    assert_eq!(requests(&world).len(), 0, "an eviction ends the request");
}

#[tokio::test(start_paused = true)]
async fn what_fails_is_tried_again_later_and_not_for_ever() {
    let world = world(json!({
        "provisioningClassName": "queued.example.com",
        "retryStrategy": { "backoffLimitCount": 1, "backoffBaseSeconds": 100 },
    }))
    .await;
    world.pytorch("llama", "a", 2).await;
    world.settle().await;
    say(&world, &requests(&world)[0], "Failed", "no nodes").await;
    world.settle().await;
    assert_eq!(world.condition("llama", "Evicted").unwrap().1, "AdmissionCheck");
    assert_eq!(check(&world, "retryCount"), 1);
    assert!(!world.is("llama", "QuotaReserved") && requests(&world).is_empty());
    world.pass(100).await;
    assert!(world.is("llama", "QuotaReserved"));
    let again = requests(&world);
    assert!(again[0]["metadata"]["name"].as_str().unwrap().ends_with("-nodes-2"), "{again:?}");
    say(&world, &again[0], "Failed", "still no nodes").await;
    world.settle().await;
    assert_eq!(world.condition("llama", "Evicted").unwrap().1, "DeactivatedDueToAdmissionCheck");
    assert_eq!(world.workload("llama").unwrap()["spec"]["active"], false);
}

#[tokio::test(start_paused = true)]
async fn no_nodes_are_asked_for_that_are_not_managed() {
    let world = world(json!({
        "provisioningClassName": "queued.example.com", "managedResources": ["example.com/other"],
    }))
    .await;
    world.pytorch("llama", "a", 2).await;
    world.settle().await;
    assert!(requests(&world).is_empty() && world.is("llama", "Admitted"));
}

#[tokio::test(start_paused = true)]
async fn other_settings_are_asked_for_anew() {
    let world = world(json!({ "provisioningClassName": "queued.example.com" })).await;
    world.pytorch("llama", "a", 2).await;
    world.settle().await;
    let before = requests(&world).remove(0);
    let change = |config: &mut Value| config["spec"]["parameters"] = json!({ "zone": "b" });
    world.update(GROUP, "provisioningrequestconfigs", "queued", false, change).await;
    world.settle().await;
    let after = requests(&world);
    assert_eq!(after.len(), 1);
    assert_ne!(after[0]["metadata"]["uid"], before["metadata"]["uid"]);
    assert_eq!(after[0]["spec"]["parameters"], json!({ "zone": "b" }));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_cannot_be_made_is_told_in_the_state_of_its_check() {
    let world = world(json!({ "provisioningClassName": "queued.example.com" })).await;
    let stopped = |policy: &'static str| {
        let change = move |queue: &mut Value| queue["spec"]["stopPolicy"] = json!(policy);
        world.update(GROUP, "clusterqueues", "a", false, change)
    };
    stopped("Hold").await;
    world.pytorch("llama", "a", 1).await;
    world.settle().await;
    let name = world.workload_name("llama");
    let foreign =
        json!({ "metadata": { "name": format!("{name}-nodes-1"), "namespace": "team" }, "spec": {} });
    world.create(AUTOSCALING, "provisioningrequests", foreign).await;
    stopped("None").await;
    world.settle().await;
    assert!(world.is("llama", "QuotaReserved") && !world.is("llama", "Admitted"));
    assert_eq!(check(&world, "state"), "Pending");
    let message = check(&world, "message");
    assert!(message.as_str().unwrap().contains("already exists"), "{message}");
    let quiet = world.writes("layer1", 0).len();
    world.pass(120).await;
    assert_eq!(world.writes("layer1", 0).len(), quiet, "the same words are not written again");
    let id = GroupResource::new(AUTOSCALING, "provisioningrequests");
    let foreign = format!("{name}-nodes-1");
    world.cluster.store("user").delete(&id, "team", &foreign, Default::default()).await.unwrap();
    world.pass(120).await;
    assert_eq!(requests(&world).len(), 1);
    assert_eq!(check(&world, "message"), "", "what was said of the failure holds no more");
}

/// Without an autoscaler there is no such kind. That is said once, and what happened before is not counted again with every try.
#[tokio::test(start_paused = true)]
async fn where_requests_are_not_served_the_check_says_so() {
    let world = World::new(false).await;
    let definitions = GroupResource::new("apiextensions.k8s.io", "customresourcedefinitions");
    let name = "provisioningrequests.autoscaling.x-k8s.io";
    world.cluster.store("user").delete(&definitions, "", name, Default::default()).await.unwrap();
    let world = with(world, json!({ "provisioningClassName": "queued.example.com" })).await;
    world.pytorch("llama", "a", 2).await;
    world.pass(150).await;
    assert!(world.is("llama", "QuotaReserved") && !world.is("llama", "Admitted"));
    let message = check(&world, "message");
    assert!(message.as_str().unwrap().contains("are not served"), "{message}");
    let line = r#"kueue_quota_reserved_workloads_total{cluster_queue="a",priority_class="",replica_role="leader"} 1"#;
    let text = world.metrics().await;
    assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
    let quiet = world.writes("layer1", 0).len();
    world.pass(120).await;
    assert_eq!(world.writes("layer1", 0).len(), quiet);
}

/// Whoever waits for the condition of a check that was edited (`kubectl wait`) is not kept waiting.
#[tokio::test(start_paused = true)]
async fn an_edit_of_a_check_is_acknowledged() {
    let config = json!({ "provisioningClassName": "queued.example.com" });
    let world = world(config.clone()).await;
    let spare = json!({ "metadata": { "name": "spare" }, "spec": config });
    world.create(GROUP, "provisioningrequestconfigs", spare).await;
    let change = |check: &mut Value| check["spec"]["parameters"]["name"] = json!("spare");
    world.update(GROUP, "admissionchecks", "nodes", false, change).await;
    world.settle().await;
    let check = world.get(GROUP, "admissionchecks", "nodes").unwrap();
    let active = &check["status"]["conditions"][0];
    assert_eq!(check["metadata"]["generation"], 2);
    assert_eq!((&active["status"], &active["observedGeneration"]), (&json!("True"), &json!(2)));
}
