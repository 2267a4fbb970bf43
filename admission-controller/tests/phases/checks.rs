//! Admission checks: what they say, who asks for them, and the scheduler's, by which a place is held.

use std::time::Duration;

use cluster_sim::GroupResource;
use serde_json::{Value, json};

use super::support::World;
use super::{GROUP, activate, pair, said};

/// A queue of four GPUs that asks for these checks, and the checks, which are active.
async fn checked_queue(world: &World, rules: Value) {
    world.queue("a", "", json!({ "nominalQuota": 4 }), json!({})).await;
    for rule in rules.as_array().unwrap() {
        let name = rule["name"].as_str().unwrap();
        let check =
            json!({ "metadata": { "name": name }, "spec": { "controllerName": "example.com/check" } });
        world.create(GROUP, "admissionchecks", check).await;
        set_active(world, name, true).await;
    }
    ask_for(world, rules).await;
}

pub(super) async fn ask_for(world: &World, rules: Value) {
    let ask = |queue: &mut Value| {
        queue["spec"]["admissionChecksStrategy"] = json!({ "admissionChecks": rules.clone() });
    };
    world.update(GROUP, "clusterqueues", "a", false, ask).await;
}

pub(super) async fn set_active(world: &World, name: &str, active: bool) {
    let status = if active { "True" } else { "False" };
    world
        .update(GROUP, "admissionchecks", name, true, |check| {
            check["status"]["conditions"] = json!([{
                "type": "Active", "status": status, "reason": "Test", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]);
        })
        .await;
}

/// What the controller of a check says, beside what others say.
pub(super) async fn answer(world: &World, job: &str, check: &str, state: &str, more: Value) {
    let name = world.workload_name(job);
    let now = world.stamp();
    world
        .update(GROUP, "workloads", &name, true, |workload| {
            let states = workload["status"]["admissionChecks"].as_array_mut().unwrap();
            let one = states.iter_mut().find(|one| one["name"] == check).unwrap();
            one["state"] = json!(state);
            one["lastTransitionTime"] = json!(now.clone());
            one["message"] = json!("as the test has it");
            for (field, value) in more.as_object().into_iter().flatten() {
                one[field] = value.clone();
            }
        })
        .await;
}

pub(super) fn states(world: &World, job: &str) -> Vec<(String, String)> {
    let workload = world.workload(job).unwrap();
    let text = |one: &Value, field: &str| one[field].as_str().unwrap().to_owned();
    let states = workload["status"]["admissionChecks"].as_array().into_iter().flatten();
    states.map(|one| (text(one, "name"), text(one, "state"))).collect()
}

#[tokio::test(start_paused = true)]
async fn quota_comes_first_and_the_job_starts_when_every_check_is_ready() {
    let world = World::new(false).await;
    checked_queue(&world, json!([{ "name": "budget" }, { "name": "licence" }])).await;
    world.start("layer1");
    world.pytorch("llama", "a", 2).await;
    world.settle().await;
    assert_eq!(said(&world, "llama", "QuotaReserved"), pair("True", "QuotaReserved"));
    assert_eq!(said(&world, "llama", "Admitted"), pair("False", "UnsatisfiedAdmissionChecks"));
    assert_eq!(states(&world, "llama"), [pair("budget", "Pending"), pair("licence", "Pending")]);
    assert!(world.is_suspended("llama"));
    let queue = world.get(GROUP, "clusterqueues", "a").unwrap();
    assert_eq!(
        (&queue["status"]["reservingWorkloads"], &queue["status"]["admittedWorkloads"]),
        (&json!(1), &json!(0))
    );
    let seen = world.get(GROUP, "admissionchecks", "budget").unwrap();
    assert_eq!(seen["metadata"]["finalizers"], json!(["kueue.x-k8s.io/resource-in-use"]));

    answer(&world, "llama", "budget", "Ready", json!({})).await;
    world.settle().await;
    assert!(world.is_suspended("llama"), "one is not ready");
    let update = json!({ "podSetUpdates": [
        {
            "name": "worker", "labels": { "team": "x" }, "annotations": { "ticket": "7" },
            "nodeSelector": { "pool": "reserved" }, "tolerations": [{ "key": "reserved", "operator": "Exists" }],
        },
        { "name": "worker", "nodeSelector": { "pool": "second of the name" } },
    ]});
    answer(&world, "llama", "licence", "Ready", update).await;
    world.settle().await;
    assert!(world.is("llama", "Admitted") && !world.is_suspended("llama"));
    let job = world.job("llama");
    let template = &job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"];
    assert_eq!(template["metadata"]["annotations"]["ticket"], "7");
    assert_eq!(template["metadata"]["labels"]["team"], "x");
    assert_eq!(template["spec"]["nodeSelector"], json!({ "gpu": "a100", "pool": "reserved" }));
    assert_eq!(template["spec"]["tolerations"][0]["key"], "reserved");

    // What runs is not stopped because a check that was passed is asked anew.
    answer(&world, "llama", "budget", "Pending", json!({})).await;
    world.settle().await;
    assert!(world.is("llama", "Admitted") && !world.is_suspended("llama"));
}

#[tokio::test(start_paused = true)]
async fn a_queue_says_what_is_wrong_with_its_checks() {
    let world = World::new(false).await;
    checked_queue(&world, json!([{ "name": "budget" }])).await;
    world.start("layer1");
    world.pytorch("llama", "a", 2).await;
    let active = |world: &World| {
        let queue = world.get(GROUP, "clusterqueues", "a").unwrap();
        let condition = queue["status"]["conditions"][0].clone();
        (condition["status"].as_str().unwrap().to_owned(), condition["reason"].as_str().unwrap().to_owned())
    };
    set_active(&world, "budget", false).await;
    world.settle().await;
    assert_eq!(active(&world), pair("False", "AdmissionCheckInactive"));
    ask_for(&world, json!([{ "name": "budget" }, { "name": "nobody" }])).await;
    world.settle().await;
    assert_eq!(active(&world), pair("False", "AdmissionCheckNotFound"));
    ask_for(&world, json!([{ "name": "budget" }])).await;
    set_active(&world, "budget", true).await;
    world.settle().await;
    assert_eq!(active(&world), pair("True", "Ready"));
    let checks = GroupResource::new(GROUP, "admissionchecks");
    world.cluster.store("user").delete(&checks, "", "budget", Default::default()).await.unwrap();
    world.settle().await;
    assert!(world.get(GROUP, "admissionchecks", "budget").is_some(), "kept while it is asked for");
    ask_for(&world, json!([{ "name": "other" }])).await;
    world.settle().await;
    assert!(world.get(GROUP, "admissionchecks", "budget").is_none());
    assert_eq!(said(&world, "llama", "QuotaReserved"), pair("True", "QuotaReserved"));
    assert_eq!(
        states(&world, "llama"),
        [pair("other", "Pending")],
        "what it has to pass changed with the queue"
    );
}

#[tokio::test(start_paused = true)]
async fn a_check_of_another_flavor_is_none_of_its_business() {
    let world = World::new(false).await;
    checked_queue(&world, json!([{ "name": "budget" }])).await;
    let h100 = json!({ "metadata": { "name": "h100" }, "spec": {} });
    world.create(GROUP, "resourceflavors", h100).await;
    world
        .update(GROUP, "clusterqueues", "a", false, |queue| {
            let flavors = queue["spec"]["resourceGroups"][0]["flavors"].as_array_mut().unwrap();
            let mut second = flavors[0].clone();
            second["name"] = json!("h100");
            flavors.push(second);
            queue["spec"]["admissionChecksStrategy"] =
                json!({ "admissionChecks": [{ "name": "budget", "onFlavors": ["h100"] }] });
        })
        .await;
    world.start("layer1");
    world.pytorch("first", "a", 4).await;
    world.settle().await;
    world.pytorch("second", "a", 4).await;
    world.settle().await;
    assert!(world.is("first", "Admitted") && states(&world, "first").is_empty());
    assert!(!world.is("second", "Admitted") && world.is("second", "QuotaReserved"));
    assert_eq!(states(&world, "second"), [pair("budget", "Pending")]);
}

/// As in Kueue; but with the reason to wait, so that who is admitted at once is spared a write.
/// Whoever answers it can do so while they wait.
#[tokio::test(start_paused = true)]
async fn who_waits_lists_a_check_that_its_queue_asks_for_since() {
    let world = World::running(4).await;
    for name in ["first", "second"] {
        world.pytorch(name, "a", 4).await;
        world.settle().await;
    }
    assert_eq!(states(&world, "second"), []);
    world.checked("a").await;
    world.settle().await;
    assert_eq!(states(&world, "second"), [pair("budget", "Pending")]);
}

#[tokio::test(start_paused = true)]
async fn who_waits_lists_the_checks_that_every_flavor_asks_for() {
    let world = World::new(false).await;
    checked_queue(&world, json!([{ "name": "budget" }, { "name": "licence" }])).await;
    let h100 = json!({ "metadata": { "name": "h100" }, "spec": {} });
    world.create(GROUP, "resourceflavors", h100).await;
    let add = |queue: &mut Value| {
        let flavors = queue["spec"]["resourceGroups"][0]["flavors"].as_array_mut().unwrap();
        let mut second = flavors[0].clone();
        second["name"] = json!("h100");
        flavors.push(second);
    };
    world.update(GROUP, "clusterqueues", "a", false, add).await;
    ask_for(&world, json!([{ "name": "budget" }, { "name": "licence", "onFlavors": ["h100"] }])).await;
    world.start("layer1");
    for name in ["first", "second"] {
        world.pytorch(name, "a", 4).await;
        world.settle().await;
    }
    assert_eq!(states(&world, "second"), [pair("budget", "Pending"), pair("licence", "Pending")]);
    let before = world.cluster.revision();
    world.pytorch("third", "a", 4).await;
    world.settle().await;
    assert_eq!(states(&world, "third"), [pair("budget", "Pending")]);
    let log = world.cluster.log_since(before);
    let written = log.iter().filter(|commit| &*commit.resource.resource == "workloads");
    let mut statuses = written.filter_map(|commit| Some(commit.new.as_ref()?.value()["status"].clone()));
    let first = statuses.find(|status| status["conditions"].is_array()).unwrap();
    assert!(first["admissionChecks"].is_array(), "{first}");
    // What a check says before there is quota counts.
    answer(&world, "third", "budget", "Ready", json!({})).await;
    let jobs = GroupResource::new("kubeflow.org", "pytorchjobs");
    world.cluster.store("user").delete(&jobs, "team", "first", Default::default()).await.unwrap();
    world.settle().await;
    assert!(world.is("third", "Admitted"), "{:?}", world.workload("third"));
}

/// A check that was told off refuses nobody any more, though it has said so.
#[tokio::test(start_paused = true)]
async fn who_waits_is_not_held_up_by_a_check_that_is_not_asked_for_any_more() {
    let world = World::new(false).await;
    checked_queue(&world, json!([{ "name": "budget" }, { "name": "licence" }])).await;
    world.start("layer1");
    for name in ["first", "second"] {
        world.pytorch(name, "a", 4).await;
        world.settle().await;
    }
    answer(&world, "second", "budget", "Rejected", json!({})).await;
    let jobs = GroupResource::new("kubeflow.org", "pytorchjobs");
    world.cluster.store("user").delete(&jobs, "team", "first", Default::default()).await.unwrap();
    world.settle().await;
    assert!(!world.is("second", "QuotaReserved"));
    ask_for(&world, json!([{ "name": "licence" }])).await;
    world.settle().await;
    assert!(world.is("second", "QuotaReserved"), "{:?}", world.workload("second"));
    assert_eq!(states(&world, "second"), [pair("licence", "Pending")]);
}

#[tokio::test(start_paused = true)]
async fn a_retry_gives_the_quota_back_until_its_time_has_come() {
    let world = World::new(false).await;
    checked_queue(&world, json!([{ "name": "budget" }])).await;
    world.start("layer1");
    world.pytorch("llama", "a", 4).await;
    world.settle().await;
    answer(&world, "llama", "budget", "Retry", json!({ "requeueAfterSeconds": 300 })).await;
    let asked = world.seconds();
    world.settle().await;
    assert_eq!(said(&world, "llama", "Evicted"), pair("True", "AdmissionCheck"));
    assert_eq!(said(&world, "llama", "Requeued"), pair("False", "AdmissionCheck"));
    assert_eq!(said(&world, "llama", "QuotaReserved"), pair("False", "PendingEvaluation"));
    let workload = world.workload("llama").unwrap();
    assert_eq!(states(&world, "llama"), [pair("budget", "Pending")]);
    assert_eq!(workload["status"]["admissionChecks"][0]["retryCount"], 1);
    assert_eq!(workload["status"]["schedulingStats"]["evictions"][0]["reason"], "AdmissionCheck");
    assert!(workload["status"].get("admission").is_none());
    let until = workload["status"]["requeueState"]["requeueAt"].as_str().unwrap();
    assert_eq!(until.parse::<jiff::Timestamp>().unwrap().as_second(), asked + 300);

    // Somebody else has the quota meanwhile.
    world.pytorch("other", "a", 4).await;
    world.settle().await;
    assert!(world.is("other", "QuotaReserved"));
    let jobs = GroupResource::new("kubeflow.org", "pytorchjobs");
    world.cluster.store("user").delete(&jobs, "team", "other", Default::default()).await.unwrap();
    world.settle().await;
    assert!(!world.is("llama", "QuotaReserved"), "it is not its time yet");
    world.pass(300).await;
    assert!(world.is("llama", "QuotaReserved"));
    assert_eq!(said(&world, "llama", "Requeued"), pair("True", "BackoffFinished"));
    assert!(world.workload("llama").unwrap()["status"].get("requeueState").is_none());
    assert_eq!(said(&world, "llama", "Evicted"), pair("False", "QuotaReserved"));
}

#[tokio::test(start_paused = true)]
async fn a_rejected_workload_is_deactivated_and_may_be_activated_again() {
    let world = World::new(false).await;
    checked_queue(&world, json!([{ "name": "budget" }])).await;
    world.start("layer1");
    world.pytorch("llama", "a", 4).await;
    world.settle().await;
    answer(&world, "llama", "budget", "Rejected", json!({})).await;
    world.settle().await;
    let workload = world.workload("llama").unwrap();
    assert_eq!(workload["spec"]["active"], false);
    assert_eq!(said(&world, "llama", "Evicted"), pair("True", "DeactivatedDueToAdmissionCheck"));
    assert_eq!(said(&world, "llama", "QuotaReserved"), pair("False", "Deactivated"));
    assert_eq!(said(&world, "llama", "DeactivationTarget"), pair("", ""));
    assert_eq!(states(&world, "llama"), [pair("budget", "Pending")]);
    let told = world.told_of("Workload", &world.workload_name("llama"));
    assert!(told.contains(&"AdmissionCheckRejected".to_owned()), "{told:?}");
    assert_eq!(
        workload["status"]["schedulingStats"]["evictions"],
        json!([{ "reason": "Deactivated", "underlyingCause": "AdmissionCheck", "count": 1 }])
    );
    let metrics = world.metrics().await;
    let counted = "kueue_evicted_workloads_total{cluster_queue=\"a\",reason=\"Deactivated\",underlying_cause=\"AdmissionCheck\"";
    assert!(metrics.contains(counted), "{metrics}");
    activate(&world, "llama").await;
    world.settle().await;
    assert!(world.is("llama", "QuotaReserved"));
    assert_eq!(said(&world, "llama", "Requeued"), pair("True", "Reactivated"));
}

/// As in Kueue: who has no quota loses nothing by a check, and gets none while that says no.
#[tokio::test(start_paused = true)]
async fn a_workload_that_waits_goes_on_waiting_when_a_check_rejects_it() {
    let world = World::new(false).await;
    checked_queue(&world, json!([{ "name": "budget" }])).await;
    world.start("layer1");
    world.pytorch("other", "a", 4).await;
    world.settle().await;
    world.pytorch("llama", "a", 4).await;
    world.settle().await;
    assert!(!world.is("llama", "QuotaReserved"));
    let name = world.workload_name("llama");
    let say = async |state: &'static str| {
        let states = json!([{
            "name": "budget", "state": state, "message": "no", "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]);
        let change = |workload: &mut Value| workload["status"]["admissionChecks"] = states.clone();
        world.update(GROUP, "workloads", &name, true, change).await;
        world.settle().await;
    };
    say("Rejected").await;
    assert_eq!(said(&world, "llama", "QuotaReserved"), pair("False", "PendingEvaluation"));
    let jobs = GroupResource::new("kubeflow.org", "pytorchjobs");
    world.cluster.store("user").delete(&jobs, "team", "other", Default::default()).await.unwrap();
    world.settle().await;
    assert_eq!(said(&world, "llama", "QuotaReserved"), pair("False", "PendingEvaluation"));
    assert_eq!(said(&world, "llama", "DeactivationTarget"), pair("", ""));
    assert_ne!(world.workload("llama").unwrap()["spec"]["active"], false);
    assert_eq!(states(&world, "llama"), [pair("budget", "Rejected")]);
    say("Pending").await;
    assert!(world.is("llama", "QuotaReserved"));
}

#[tokio::test(start_paused = true)]
async fn what_checks_add_must_not_contradict_the_flavor() {
    let world = World::new(false).await;
    checked_queue(&world, json!([{ "name": "budget" }])).await;
    world.start("layer1");
    world.pytorch("llama", "a", 2).await;
    world.settle().await;
    let update = json!({ "podSetUpdates": [{ "name": "worker", "nodeSelector": { "gpu": "h100" } }] });
    answer(&world, "llama", "budget", "Ready", update).await;
    world.settle().await;
    assert_eq!(said(&world, "llama", "Finished"), pair("True", "FailedToStart"));
    assert!(world.is_suspended("llama"));
}

#[tokio::test(start_paused = true)]
async fn a_reservation_without_admission_ends_when_the_queue_is_stopped() {
    let world = World::new(false).await;
    checked_queue(&world, json!([{ "name": "budget" }])).await;
    world.start("layer1");
    world.pytorch("llama", "a", 2).await;
    world.settle().await;
    let stop = |policy: &'static str| move |queue: &mut Value| queue["spec"]["stopPolicy"] = json!(policy);
    world.update(GROUP, "clusterqueues", "a", false, stop("Hold")).await;
    world.settle().await;
    assert_eq!(said(&world, "llama", "QuotaReserved"), pair("False", "Suspended"));
    assert_eq!(said(&world, "llama", "Evicted"), pair("", ""), "nothing of it ran");
    world.update(GROUP, "clusterqueues", "a", false, stop("None")).await;
    world.settle().await;
    assert!(world.is("llama", "QuotaReserved"));
}

#[tokio::test(start_paused = true)]
async fn what_several_controllers_say_at_once_is_kept() {
    let world = World::new(false).await;
    let names: Vec<String> = (0..6).map(|index| format!("check-{index}")).collect();
    checked_queue(&world, names.iter().map(|name| json!({ "name": name })).collect()).await;
    world.start("layer1");
    world.pytorch("llama", "a", 2).await;
    world.settle().await;
    for name in &names {
        answer(&world, "llama", name, "Ready", json!({})).await;
        world.sleep(Duration::from_millis(7)).await;
    }
    world.settle().await;
    assert!(states(&world, "llama").iter().all(|(_, state)| state == "Ready"));
    assert!(world.is("llama", "Admitted"));
}

/// The scheduler's part is the test's: it holds a place, or is away.
#[tokio::test(start_paused = true)]
async fn a_workload_without_a_place_lets_others_pass_and_one_with_a_place_runs_while_it_is_held() {
    let world = World::new(false).await;
    world.queue("a", "", json!({ "nominalQuota": 4 }), json!({})).await;
    let check =
        json!({ "metadata": { "name": "placement" }, "spec": { "controllerName": "trireme.dev/placement" } });
    world.create(GROUP, "admissionchecks", check).await;
    set_active(&world, "placement", true).await;
    ask_for(&world, json!([{ "name": "placement" }])).await;
    world.start("layer1");
    world.pytorch("llama", "a", 4).await;
    world.settle().await;
    world.pytorch("next", "a", 4).await;
    world.settle().await;
    assert!(world.is("llama", "QuotaReserved") && !world.is("next", "QuotaReserved"));
    world.pass(260).await;
    assert_eq!(said(&world, "llama", "Evicted"), pair("True", "AdmissionCheck"), "nobody found a place");
    assert!(world.is("next", "QuotaReserved"), "others pass");
    // A place is held, but not for long enough: the job is not started with it.
    let held = |expires: &str| {
        let annotations = json!({ "trireme.dev/place-key": "uid/0", "trireme.dev/place-expires": expires });
        json!({ "podSetUpdates": [{ "name": "worker", "annotations": annotations }] })
    };
    answer(&world, "next", "placement", "Ready", held("2026-01-01T00:00:00Z")).await;
    world.settle().await;
    assert!(!world.is("next", "Admitted") && world.is_suspended("next"));
    let workload = world.workload("next").unwrap();
    assert_eq!(workload["status"]["schedulingStats"]["evictions"][0]["reason"], "AdmissionCheck");
    assert_eq!(workload["status"]["admissionChecks"][0]["retryCount"], 1);
    world.pass(120).await;
    let lucky = if world.is("next", "QuotaReserved") { "next" } else { "llama" };
    answer(&world, lucky, "placement", "Ready", held("2027-01-01T00:00:00Z")).await;
    world.settle().await;
    assert!(world.is(lucky, "Admitted") && !world.is_suspended(lucky));
    let template = &world.job(lucky)["spec"]["pytorchReplicaSpecs"]["Worker"]["template"];
    assert_eq!(template["metadata"]["annotations"]["trireme.dev/place-key"], "uid/0");
    world.pass(1200).await;
    assert!(world.is(lucky, "Admitted"), "from the admission on the scheduler keeps it");
}

/// What the scheduler said of one reservation says nothing of the next; and while nodes have to come it has all the time.
#[tokio::test(start_paused = true)]
async fn a_place_is_held_for_one_reservation() {
    let world = World::new(false).await;
    world.queue("a", "", json!({ "nominalQuota": 4 }), json!({})).await;
    for (name, controller) in [("placement", "trireme.dev/placement"), ("nodes", "team.example.com/nodes")] {
        let check = json!({ "metadata": { "name": name }, "spec": { "controllerName": controller } });
        world.create(GROUP, "admissionchecks", check).await;
        set_active(&world, name, true).await;
    }
    ask_for(&world, json!([{ "name": "placement" }, { "name": "nodes" }])).await;
    world.start("layer1");
    world.pytorch("llama", "a", 4).await;
    world.pass(1200).await;
    assert!(world.is("llama", "QuotaReserved"), "nodes have to come first");
    let annotations = json!({ "trireme.dev/place-expires": "2027-01-01T00:00:00Z" });
    let held = json!({ "podSetUpdates": [{ "name": "worker", "annotations": annotations }] });
    answer(&world, "llama", "placement", "Ready", held.clone()).await;
    world.settle().await;
    let stop = |policy: &str| {
        let policy = json!(policy);
        move |queue: &mut Value| queue["spec"]["stopPolicy"] = policy.clone()
    };
    world.update(GROUP, "clusterqueues", "a", false, stop("Hold")).await;
    world.settle().await;
    assert!(!world.is("llama", "QuotaReserved"));
    answer(&world, "llama", "nodes", "Ready", json!({})).await;
    world.update(GROUP, "clusterqueues", "a", false, stop("None")).await;
    world.settle().await;
    assert!(world.is("llama", "QuotaReserved") && !world.is("llama", "Admitted"));
    answer(&world, "llama", "placement", "Ready", held).await;
    world.settle().await;
    assert!(world.is("llama", "Admitted"));
}
