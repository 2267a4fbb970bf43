//! What keeps a request from being made: another object of its name, or a job that cannot be written.

use std::time::Duration;

use cluster_sim::GroupResource;
use cluster_sim::faults::{Aim, Fault};
use serde_json::{Value, json};

use super::support::owned_by;
use super::{
    AUTOSCALING, GROUP, all, ask, check, hold, make_check, requests, requests_of, say, state, stop, world,
};

#[tokio::test(start_paused = true)]
async fn a_request_that_cannot_be_made_is_told_in_the_state_of_its_check() {
    let world = world(json!({ "provisioningClassName": "queued.example.com" })).await;
    stop(&world, "Hold").await;
    world.pytorch("llama", "a", 1).await;
    world.settle().await;
    let name = world.workload_name("llama");
    let foreign =
        json!({ "metadata": { "name": format!("{name}-nodes-1"), "namespace": "team" }, "spec": {} });
    world.create(AUTOSCALING, "provisioningrequests", foreign).await;
    stop(&world, "None").await;
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

/// Of two checks that ask for nodes, one is in the way of nobody but itself.
#[tokio::test(start_paused = true)]
async fn a_request_that_cannot_be_made_keeps_no_other_check_from_asking() {
    let world = world(json!({ "provisioningClassName": "queued.example.com" })).await;
    make_check(&world, "others").await;
    for checks in [["nodes", "others"], ["others", "nodes"]] {
        stop(&world, "HoldAndDrain").await;
        ask(&world, "a", &checks).await;
        let job = format!("{}-first", checks[0]);
        world.pytorch(&job, "a", 1).await;
        world.settle().await;
        let name = world.workload_name(&job);
        let foreign =
            json!({ "metadata": { "name": format!("{name}-nodes-1"), "namespace": "team" }, "spec": {} });
        world.create(AUTOSCALING, "provisioningrequests", foreign).await;
        stop(&world, "None").await;
        world.settle().await;
        let asked = requests_of(&world, &job);
        let names: Vec<&Value> = asked.iter().map(|one| &one["metadata"]["name"]).collect();
        assert_eq!(names, [&json!(format!("{name}-others-1"))], "{checks:?}");
        say(&world, &asked[0], "Provisioned", "here they are").await;
        world.settle().await;
        let workload = world.workload(&job).unwrap();
        assert_eq!(state(&workload, "others")["state"], "Ready", "{checks:?}");
        assert_eq!(state(&workload, "nodes")["state"], "Pending", "{checks:?}");
    }
}

/// However many pod sets there are: they are described at once.
#[tokio::test(start_paused = true)]
async fn a_slow_api_server_keeps_no_request_from_being_made() {
    let world = world(json!({ "provisioningClassName": "queued.example.com" })).await;
    let slow = Aim::writes().by("layer1").on(GroupResource::new("", "podtemplates"));
    world.cluster.faults().add(slow, 1_000_000, u64::MAX, Fault::Latency(Duration::from_millis(1_500)));
    let resources = json!({ "limits": { "nvidia.com/gpu": 1 } });
    let container = json!({ "name": "main", "image": "train", "resources": resources });
    let template = json!({ "spec": { "restartPolicy": "Never", "containers": [container] } });
    let sets: Vec<Value> = (0..4)
        .map(|set| json!({ "name": format!("set{set}"), "template": { "spec": { "template": template } } }))
        .collect();
    let job = json!({
        "metadata": {
            "name": "llama", "namespace": "team", "labels": { "kueue.x-k8s.io/queue-name": "a" },
        },
        "spec": { "suspend": true, "replicatedJobs": sets },
    });
    world.create("jobset.x-k8s.io", "jobsets", job).await;
    world.settle().await;
    world.pass(10).await;
    let made = requests(&world);
    assert_eq!(made.len(), 1);
    assert_eq!(made[0]["spec"]["podSets"].as_array().unwrap().len(), 4);
    let templates = all(&world, "", "podtemplates");
    assert_eq!(templates.len(), 4);
    for template in templates {
        assert_eq!(template["metadata"]["ownerReferences"][0]["kind"], "ProvisioningRequest");
    }
}

/// Its user has started the job by hand, and it cannot be stopped: it is admitted all the same when its nodes are there.
#[tokio::test(start_paused = true)]
async fn nodes_are_taken_in_though_the_job_cannot_be_written() {
    let world = world(json!({ "provisioningClassName": "queued.example.com" })).await;
    world.pytorch("llama", "a", 2).await;
    world.settle().await;
    let made = requests(&world);
    let jobs = GroupResource::new("kubeflow.org", "pytorchjobs");
    world.cluster.faults().add(Aim::writes().by("layer1").on(jobs), 1_000_000, 1_000, Fault::Conflict);
    let start = |job: &mut Value| job["spec"]["runPolicy"]["suspend"] = json!(false);
    world.update("kubeflow.org", "pytorchjobs", "llama", false, start).await;
    world.settle().await;
    say(&world, &made[0], "Provisioned", "here they are").await;
    world.settle().await;
    assert_eq!(check(&world, "state"), "Ready");
    assert!(world.is("llama", "Admitted"));
}

/// A request that is held outlives the Workload that it was made for. The next of that name waits until it is gone.
#[tokio::test(start_paused = true)]
async fn a_workload_that_is_made_again_has_a_request_of_its_own() {
    let world = world(json!({ "provisioningClassName": "queued.example.com" })).await;
    world.pytorch("llama", "a", 2).await;
    world.settle().await;
    let before = requests(&world).remove(0);
    hold(&world, &before, true).await;
    let name = world.workload_name("llama");
    let workloads = GroupResource::new(GROUP, "workloads");
    world.cluster.store("user").delete(&workloads, "team", &name, Default::default()).await.unwrap();
    world.settle().await;
    assert_eq!(world.workload_name("llama"), name);
    assert!(world.is("llama", "QuotaReserved") && requests_of(&world, "llama").is_empty());
    let message = check(&world, "message");
    assert!(message.as_str().unwrap().contains("already exists"), "{message}");
    let told = world.told_of("Workload", &name);
    let made = told.iter().filter(|reason| *reason == "ProvisioningRequestCreated").count();
    assert!(made == 1 && told.iter().any(|reason| reason == "FailedCreate"), "{told:?}");

    hold(&world, &before, false).await;
    world.pass(120).await;
    let after = requests_of(&world, "llama");
    assert_eq!((after.len(), requests(&world).len()), (1, 1));
    let templates = all(&world, "", "podtemplates");
    assert_eq!(templates.len(), 1);
    assert_eq!(templates[0]["metadata"]["ownerReferences"][0]["uid"], after[0]["metadata"]["uid"]);
    assert_eq!(check(&world, "message"), "");
}

/// `ring` and check `eu-prov`, `ring-eu` and check `prov`.
#[tokio::test(start_paused = true)]
async fn of_two_that_want_a_request_of_one_name_the_second_waits() {
    let world = world(json!({ "provisioningClassName": "queued.example.com" })).await;
    for (queue, check, workload) in [("b", "eu-prov", "ring"), ("c", "prov", "ring-eu")] {
        make_check(&world, check).await;
        world.queue(queue, "", json!({ "nominalQuota": 4 }), json!({})).await;
        ask(&world, queue, &[check]).await;
        let asked = json!({ "requests": { "nvidia.com/gpu": "1" } });
        let template = json!({ "spec": {
            "restartPolicy": "Never", "containers": [{ "name": "c", "image": "x", "resources": asked }],
        }});
        let object = json!({
            "metadata": { "name": workload, "namespace": "team" },
            "spec": { "queueName": queue, "podSets": [{ "name": "main", "count": 1, "template": template }] },
        });
        world.create(GROUP, "workloads", object).await;
        world.settle().await;
    }
    let named = |name: &str| world.workload_named(name).unwrap();
    let made = requests(&world);
    assert_eq!(made.len(), 1);
    assert_eq!(made[0]["metadata"]["name"], "ring-eu-prov-1");
    assert_eq!(made[0]["metadata"]["ownerReferences"][0]["uid"], named("ring")["metadata"]["uid"]);
    let message = state(&named("ring-eu"), "prov")["message"].clone();
    assert!(message.as_str().unwrap().contains("already exists"), "{message}");
    say(&world, &made[0], "Provisioned", "here they are").await;
    world.pass(120).await;
    assert_eq!(state(&named("ring"), "eu-prov")["state"], "Ready");
    assert_eq!(state(&named("ring-eu"), "prov")["state"], "Pending");
    let templates = all(&world, "", "podtemplates");
    assert_eq!(templates.len(), 1);
    assert_eq!(templates[0]["metadata"]["ownerReferences"][0]["uid"], made[0]["metadata"]["uid"]);
}

#[tokio::test(start_paused = true)]
async fn a_template_that_is_left_of_an_earlier_try_makes_way_and_no_other() {
    for (own, nodes) in [(true, "a100"), (false, "old")] {
        let world = world(json!({ "provisioningClassName": "queued.example.com" })).await;
        stop(&world, "Hold").await;
        world.pytorch("llama", "a", 2).await;
        world.settle().await;
        let (name, workload) = (world.workload_name("llama"), world.workload("llama").unwrap());
        let owners = if own { owned_by(&workload) } else { json!([]) };
        let left = json!({
            "metadata": {
                "name": format!("ppt-{name}-nodes-1-worker"), "namespace": "team",
                "labels": { "kueue.x-k8s.io/managed": "true" }, "ownerReferences": owners,
            },
            "template": { "spec": {
                "nodeSelector": { "gpu": "old" }, "containers": [{ "name": "c", "image": "x" }],
            }},
        });
        world.create("", "podtemplates", left).await;
        stop(&world, "None").await;
        world.settle().await;
        assert!(world.is("llama", "QuotaReserved"), "{own}");
        let templates = all(&world, "", "podtemplates");
        assert_eq!(templates.len(), 1, "{own}");
        assert_eq!(templates[0]["template"]["spec"]["nodeSelector"], json!({ "gpu": nodes }), "{own}");
        assert_eq!(requests(&world).len(), usize::from(own));
        let message = check(&world, "message");
        assert_eq!(message.as_str().unwrap().contains("already exists"), !own, "{message}");
    }
}
