//! The check that asks an autoscaler for nodes, with the test in the autoscaler's place.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod in_the_way;
mod places;
#[path = "../support/mod.rs"]
mod support;

use std::time::Duration;

use cluster_sim::faults::{Aim, Fault, WatchFault};
use cluster_sim::{GroupResource, Verb};
use serde_json::{Value, json};
use support::{World, pytorch};

const GROUP: &str = "kueue.x-k8s.io";
const AUTOSCALING: &str = "autoscaling.x-k8s.io";

async fn world(config: Value) -> World {
    with(World::new(false).await, config).await
}

async fn with(world: World, config: Value) -> World {
    world.queue("a", "", json!({ "nominalQuota": 4 }), json!({})).await;
    make_check(&world, "nodes").await;
    ask(&world, "a", &["nodes"]).await;
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

/// A check that asks for nodes.
async fn make_check(world: &World, name: &str) {
    let check = json!({ "metadata": { "name": name }, "spec": {
        "controllerName": "kueue.x-k8s.io/provisioning-request",
        "parameters": { "apiGroup": GROUP, "kind": "ProvisioningRequestConfig", "name": "queued" },
    }});
    world.create(GROUP, "admissionchecks", check).await;
}

/// Has a queue ask for these checks and no others.
async fn ask(world: &World, queue: &str, checks: &[&str]) {
    let checks: Vec<Value> = checks.iter().map(|name| json!({ "name": name })).collect();
    let change = |queue: &mut Value| {
        queue["spec"]["admissionChecksStrategy"] = json!({ "admissionChecks": checks });
    };
    world.update(GROUP, "clusterqueues", queue, false, change).await;
}

async fn stop(world: &World, policy: &str) {
    let change = |queue: &mut Value| queue["spec"]["stopPolicy"] = json!(policy);
    world.update(GROUP, "clusterqueues", "a", false, change).await;
}

fn all(world: &World, group: &str, resource: &str) -> Vec<Value> {
    let id = GroupResource::new(group, resource);
    let all = world.cluster.store("reader").list(&id, Some("team"));
    all.iter().map(|one| one.value().clone()).collect()
}

fn requests(world: &World) -> Vec<Value> {
    all(world, AUTOSCALING, "provisioningrequests")
}

/// Those that were made for the Workload of a job.
fn requests_of(world: &World, job: &str) -> Vec<Value> {
    let uid = world.workload(job).unwrap()["metadata"]["uid"].clone();
    let mut all = requests(world);
    all.retain(|one| one["metadata"]["ownerReferences"][0]["uid"] == uid);
    all
}

/// Keeps a request from going when it is deleted, or lets it go.
async fn hold(world: &World, request: &Value, held: bool) {
    let name = request["metadata"]["name"].as_str().unwrap();
    let finalizers = if held { json!(["example.com/booked"]) } else { json!([]) };
    let change = |request: &mut Value| request["metadata"]["finalizers"] = finalizers.clone();
    world.update(AUTOSCALING, "provisioningrequests", name, false, change).await;
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
    state(&world.workload("llama").unwrap(), "nodes")[field].clone()
}

/// What the status of a Workload says of a check.
fn state(workload: &Value, check: &str) -> Value {
    let states = workload["status"]["admissionChecks"].as_array().unwrap();
    states.iter().find(|one| one["name"] == check).unwrap().clone()
}

#[tokio::test(start_paused = true)]
async fn nodes_are_asked_for_and_the_pods_go_there() {
    let world = world(json!({
        "provisioningClassName": "queued.example.com",
        "parameters": { "zone": "a", "valid-until": "60" },
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
    let told = world.told_of("Workload", &world.workload_name("llama"));
    assert!(told.contains(&"AdmissionCheckUpdated".to_owned()), "{told:?}");
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
    assert_eq!(check(&world, "retryCount"), 1, "it was tried again once, whatever came of it");
}

/// Kueue does nothing either before it knows what to go by.
#[tokio::test(start_paused = true)]
async fn what_a_check_has_asked_for_stays_while_its_parameters_make_no_sense() {
    let world = world(json!({ "provisioningClassName": "queued.example.com" })).await;
    world.pytorch("llama", "a", 2).await;
    world.settle().await;
    let made = requests(&world).remove(0);
    say(&world, &made, "Provisioned", "here they are").await;
    world.settle().await;
    assert!(world.is("llama", "Admitted"));
    for parameters in [Some(json!({ "apiGroup": "other.com", "kind": "Config", "name": "queued" })), None] {
        let change = |check: &mut Value| match &parameters {
            Some(parameters) => check["spec"]["parameters"] = parameters.clone(),
            None => drop(check["spec"].as_object_mut().unwrap().remove("parameters")),
        };
        world.update(GROUP, "admissionchecks", "nodes", false, change).await;
        world.settle().await;
        assert_eq!(check(&world, "state"), "Ready", "{parameters:?}");
        assert_eq!(requests(&world).len(), 1, "{parameters:?}");
    }
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

/// It was made when more tries were allowed, and its name is too long to tell which one it is.
#[tokio::test(start_paused = true)]
async fn a_request_stays_though_fewer_tries_are_allowed_now() {
    let world = world(json!({
        "provisioningClassName": "queued.example.com",
        "retryStrategy": { "backoffLimitCount": 5, "backoffBaseSeconds": 1 },
    }))
    .await;
    let name = "l".repeat(235);
    world.pytorch(&name, "a", 2).await;
    for _ in 0..2 {
        world.settle().await;
        say(&world, &requests(&world)[0], "Failed", "no nodes").await;
        world.pass(10).await;
    }
    let before = requests(&world);
    assert_eq!(state(&world.workload(&name).unwrap(), "nodes")["retryCount"], 2);
    let lower = |config: &mut Value| config["spec"]["retryStrategy"]["backoffLimitCount"] = json!(1);
    world.update(GROUP, "provisioningrequestconfigs", "queued", false, lower).await;
    world.settle().await;
    assert_eq!(requests(&world), before);
    say(&world, &before[0], "Provisioned", "here they are").await;
    world.settle().await;
    assert!(world.is(&name, "Admitted"));
}

/// Preempted on one flavor while it waits for nodes, it has quota of another at once.
#[tokio::test(start_paused = true)]
async fn the_next_reservation_asks_for_nodes_of_its_own() {
    for trouble in ["none", "the watch is late", "the request has changed"] {
        let world = world(json!({ "provisioningClassName": "queued.example.com" })).await;
        let flavor = json!({ "metadata": { "name": "h100" }, "spec": { "nodeLabels": { "gpu": "h100" } } });
        world.create(GROUP, "resourceflavors", flavor).await;
        let change = |queue: &mut Value| {
            queue["spec"]["preemption"] = json!({ "withinClusterQueue": "LowerPriority" });
            let quota = json!({ "name": "nvidia.com/gpu", "nominalQuota": 4 });
            let flavors = queue["spec"]["resourceGroups"][0]["flavors"].as_array_mut().unwrap();
            flavors.push(json!({ "name": "h100", "resources": [quota] }));
        };
        world.update(GROUP, "clusterqueues", "a", false, change).await;
        let class = json!({ "metadata": { "name": "urgent" }, "value": 100 });
        world.create(GROUP, "workloadpriorityclasses", class).await;
        world.pytorch("llama", "a", 4).await;
        world.settle().await;
        let before = requests_of(&world, "llama").remove(0);

        let id = GroupResource::new(AUTOSCALING, "provisioningrequests");
        let (aim, faults) = (Aim::default().by("layer1").on(id), world.cluster.faults());
        match trouble {
            "the watch is late" => {
                faults.add_watch(aim, 1_000_000, 100, WatchFault::Delay(Duration::from_secs(20)));
            }
            "the request has changed" => {
                faults.add(Aim { verbs: vec![Verb::Delete], ..aim }, 1_000_000, 1, Fault::Conflict);
            }
            _ => {}
        }
        let mut urgent = pytorch("urgent", "a", 4);
        urgent["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("urgent");
        let template = &mut urgent["spec"]["pytorchReplicaSpecs"]["Worker"]["template"];
        template["spec"]["nodeSelector"] = json!({ "gpu": "a100" });
        world.create("kubeflow.org", "pytorchjobs", urgent).await;
        world.pass(10).await;
        assert!(world.is("llama", "QuotaReserved") && !world.is("llama", "Admitted"), "{trouble}");
        let admission = world.workload("llama").unwrap()["status"]["admission"].clone();
        let flavors = &admission["podSetAssignments"][0]["flavors"];
        assert_eq!(flavors["nvidia.com/gpu"], "h100", "{trouble}");
        let after = requests_of(&world, "llama");
        assert_eq!(after.len(), 1, "{trouble}");
        assert_eq!(after[0]["metadata"]["name"], before["metadata"]["name"], "it is the first attempt again");
        assert_ne!(after[0]["metadata"]["uid"], before["metadata"]["uid"], "{trouble}");
        let mut templates = all(&world, "", "podtemplates");
        templates.retain(|one| one["metadata"]["ownerReferences"][0]["uid"] == after[0]["metadata"]["uid"]);
        assert_eq!(templates.len(), 1, "{trouble}");
        assert_eq!(templates[0]["template"]["spec"]["nodeSelector"], json!({ "gpu": "h100" }), "{trouble}");
        let told = world.told_of("Workload", &world.workload_name("llama"));
        assert!(!told.iter().any(|reason| reason == "FailedCreate"), "{trouble}: {told:?}");

        faults.clear();
        say(&world, &after[0], "Provisioned", "here they are").await;
        world.pass(120).await;
        assert!(world.is("llama", "Admitted"), "{trouble}");
    }
}

/// Its queue is stopped, or its job names none any more: that is no eviction, but the quota is gone.
#[tokio::test(start_paused = true)]
async fn what_was_ready_for_quota_that_is_gone_is_asked_for_again() {
    for by_queue in [true, false] {
        let world = world(json!({ "provisioningClassName": "queued.example.com" })).await;
        world.checked("a").await;
        ask(&world, "a", &["budget", "nodes"]).await;
        world.pytorch("llama", "a", 2).await;
        world.settle().await;
        let before = requests(&world).remove(0);
        say(&world, &before, "Provisioned", "here they are").await;
        world.settle().await;
        assert_eq!(check(&world, "state"), "Ready");
        assert!(!world.is("llama", "Admitted"), "it waits for the budget");

        if by_queue {
            stop(&world, "Hold").await;
        } else {
            let unlabel = |job: &mut Value| job["metadata"]["labels"] = json!({});
            world.update("kubeflow.org", "pytorchjobs", "llama", false, unlabel).await;
        }
        world.settle().await;
        let (status, reason, _) = world.condition("llama", "QuotaReserved").unwrap();
        let wanted = if by_queue { "Suspended" } else { "OnHold" };
        assert_eq!((status.as_str(), reason.as_str()), ("False", wanted));
        assert_eq!(world.condition("llama", "Evicted"), None);
        assert!(requests(&world).is_empty(), "{wanted}");
        assert_eq!((check(&world, "state"), check(&world, "podSetUpdates")), (json!("Pending"), Value::Null));
        let quiet = world.attempts("layer1");
        world.settle().await;
        assert_eq!(world.attempts("layer1"), quiet, "{wanted}");

        if by_queue {
            stop(&world, "None").await;
        } else {
            let label = |job: &mut Value| job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = json!("a");
            world.update("kubeflow.org", "pytorchjobs", "llama", false, label).await;
        }
        world.settle().await;
        assert!(world.is("llama", "QuotaReserved"), "{wanted}");
        assert_eq!(check(&world, "state"), "Pending", "{wanted}");
        let after = requests(&world);
        assert_eq!(after.len(), 1, "{wanted}");
        assert_ne!(after[0]["metadata"]["uid"], before["metadata"]["uid"], "{wanted}");
        say(&world, &after[0], "Provisioned", "here they are").await;
        world.settle().await;
        assert_eq!(check(&world, "state"), "Ready", "{wanted}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_held_keeps_no_other_from_going_and_answers_no_more() {
    let world = world(json!({ "provisioningClassName": "queued.example.com" })).await;
    make_check(&world, "spares").await;
    ask(&world, "a", &["nodes", "spares"]).await;
    world.pytorch("llama", "a", 2).await;
    world.settle().await;
    let mut both = requests(&world);
    assert_eq!(both.len(), 2);
    // The first to be deleted.
    both.sort_by_key(|one| one["metadata"]["uid"].to_string());
    hold(&world, &both[0], true).await;
    stop(&world, "Hold").await;
    world.settle().await;
    let left = requests(&world);
    assert_eq!(left.len(), 1);
    assert_eq!(left[0]["metadata"]["uid"], both[0]["metadata"]["uid"]);

    say(&world, &left[0], "Provisioned", "too late").await;
    stop(&world, "None").await;
    world.settle().await;
    assert!(world.is("llama", "QuotaReserved"));
    let states =
        || ["nodes", "spares"].map(|name| state(&world.workload("llama").unwrap(), name)["state"].clone());
    assert_eq!(states(), [json!("Pending"), json!("Pending")]);

    hold(&world, &left[0], false).await;
    world.pass(120).await;
    let after = requests(&world);
    assert_eq!(after.len(), 2);
    assert!(after.iter().all(|one| one["metadata"]["uid"] != left[0]["metadata"]["uid"]));
    for request in &after {
        say(&world, request, "Provisioned", "here they are").await;
    }
    world.settle().await;
    assert_eq!(states(), [json!("Ready"), json!("Ready")]);
    assert!(world.is("llama", "Admitted"));
}

/// Without an autoscaler there is no such kind: nobody holds quota for nodes that cannot be asked for.
#[tokio::test(start_paused = true)]
async fn where_requests_are_not_served_nobody_gets_quota() {
    let world = World::new(false).await;
    let definitions = GroupResource::new("apiextensions.k8s.io", "customresourcedefinitions");
    let name = "provisioningrequests.autoscaling.x-k8s.io";
    let store = world.cluster.store("user");
    let definition = store.get(&definitions, "", name).unwrap().value().clone();
    store.delete(&definitions, "", name, Default::default()).await.unwrap();
    world.queue("a", "", json!({ "nominalQuota": 4 }), json!({})).await;
    make_check(&world, "nodes").await;
    ask(&world, "a", &["nodes"]).await;
    let settings = json!({ "metadata": { "name": "queued" }, "spec": { "provisioningClassName": "queued.example.com" } });
    world.create(GROUP, "provisioningrequestconfigs", settings).await;
    world.start("layer1");
    world.pytorch("llama", "a", 2).await;
    world.settle().await;
    let active = || world.get(GROUP, "admissionchecks", "nodes").unwrap()["status"]["conditions"][0].clone();
    assert_eq!((&active()["status"], &active()["reason"]), (&json!("False"), &json!("KindNotServed")));
    let queue = world.get(GROUP, "clusterqueues", "a").unwrap();
    assert_eq!(queue["status"]["conditions"][0]["reason"], "AdmissionCheckInactive");
    assert!(!world.is("llama", "QuotaReserved"));
    let quiet = world.attempts("layer1");
    world.pass(120).await;
    assert_eq!(world.attempts("layer1"), quiet);

    let mut definition = definition;
    definition["metadata"] = json!({ "name": name });
    world.create("apiextensions.k8s.io", "customresourcedefinitions", definition).await;
    world.pass(60).await;
    assert_eq!(active()["status"], "True");
    assert_eq!(requests(&world).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_was_asked_for_goes_when_an_elastic_job_has_ended() {
    let world = world(json!({ "provisioningClassName": "queued.example.com" })).await;
    let container = json!({ "name": "c", "image": "i", "resources": { "limits": { "nvidia.com/gpu": 1 } } });
    let metadata = json!({
        "name": "grows", "namespace": "team", "labels": { "kueue.x-k8s.io/queue-name": "a" },
        "annotations": { "kueue.x-k8s.io/elastic-job": "true" },
    });
    let template = json!({ "spec": { "restartPolicy": "Never", "containers": [container] } });
    let spec = json!({ "parallelism": 2, "suspend": true, "template": template });
    world.create("batch", "jobs", json!({ "metadata": metadata, "spec": spec })).await;
    world.settle().await;
    assert_eq!(requests(&world).len(), 1);
    say(&world, &requests(&world)[0], "Provisioned", "here they are").await;
    world.settle().await;
    let completed = json!([{ "type": "Complete", "status": "True", "reason": "R", "message": "done" }]);
    world.update("batch", "jobs", "grows", true, |job| job["status"]["conditions"] = completed.clone()).await;
    world.settle().await;
    assert_eq!(all(&world, GROUP, "workloads").len(), 1);
    assert_eq!(requests(&world), Vec::<Value>::new());
}

/// They are read when a request is made.
#[tokio::test(start_paused = true)]
async fn an_edit_of_annotations_takes_no_nodes_from_who_has_them() {
    let parameters = json!({ "zone": "a" });
    let world =
        world(json!({ "provisioningClassName": "queued.example.com", "parameters": parameters })).await;
    world.pytorch("llama", "a", 2).await;
    world.settle().await;
    let made = requests(&world);
    say(&world, &made[0], "Provisioned", "here they are").await;
    world.settle().await;
    assert!(world.is("llama", "Admitted"));
    let name = world.workload_name("llama");
    for asked in [json!({ "zone": "b" }), json!({ "valid-until": "600" })] {
        let asked = asked.as_object().unwrap().iter();
        let annotations: Value =
            asked.map(|(key, value)| (format!("provreq.kueue.x-k8s.io/{key}"), value.clone())).collect();
        world
            .update(GROUP, "workloads", &name, false, |one| {
                one["metadata"]["annotations"] = annotations.clone()
            })
            .await;
        world.settle().await;
        let left = requests(&world);
        assert_eq!(left.len(), 1, "{annotations}");
        assert_eq!(left[0]["metadata"]["uid"], made[0]["metadata"]["uid"], "{annotations}");
    }
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
