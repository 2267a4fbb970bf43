//! Jobs that are edited between their creation and their start: what counts at once, and what needs another Workload.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::path::Path;

use admission_controller::compose::{Priorities, Priority, compose};
use admission_controller::jobs::{JobObject, TABLE, read};
use admission_controller::reconcile::{Job, Known, Step, next};
use admission_controller::{Config, Configuration};
use crds::validation::Gates;
use crds::view::workload::Workload;
use serde_json::{Value, json};
use support::{World, pytorch};

const GROUP: &str = "kueue.x-k8s.io";

/// A Job of three pods that accepts two and runs for ten minutes at most, with this merge patch.
fn job(patch: &Value) -> Job {
    let mut object = json!({
        "metadata": {
            "name": "llama", "namespace": "team", "uid": "job-1",
            "labels": { "kueue.x-k8s.io/max-exec-time-seconds": "600" },
            "annotations": { "kueue.x-k8s.io/job-min-parallelism": "2" },
        },
        "spec": { "suspend": true, "parallelism": 3, "template": { "spec": {
            "containers": [{ "name": "main", "resources": { "limits": { "nvidia.com/gpu": 1 } } }],
        }}},
    });
    json_patch::merge(&mut object, patch);
    let object: JobObject = serde_json::from_value(object).unwrap();
    let kind = &TABLE[0];
    Job { kind, view: read(kind, &object), object }
}

/// The Workload of that job as it was written, with these conditions.
fn workload(conditions: &[&str]) -> Workload {
    let mut workload = compose(&job(&json!({})), &Priorities::default(), Gates::default()).unwrap();
    let holds =
        |kind: &&str| json!({ "type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z" });
    workload["status"]["conditions"] = conditions.iter().map(holds).collect();
    serde_json::from_value(workload).unwrap()
}

const RESERVED: &[&str] = &["QuotaReserved"];
const ADMITTED: &[&str] = &["QuotaReserved", "Admitted"];

#[test]
fn what_an_admission_rests_on_needs_another_workload() {
    let template = |part: Value| json!({ "spec": { "template": part } });
    let tolerant = json!({ "spec": { "tolerations": [{ "key": "gpu", "operator": "Exists" }] } });
    for (patch, reserved, admitted) in [
        (json!({}), Step::Nothing, Step::Start),
        (template(json!({ "metadata": { "labels": { "team": "x" } } })), Step::Nothing, Step::Start),
        (template(json!({ "spec": { "nodeSelector": { "disk": "ssd" } } })), Step::Nothing, Step::Start),
        (template(json!({ "spec": { "tolerations": [] } })), Step::Nothing, Step::Start),
        (template(tolerant), Step::DeleteWorkload, Step::Start),
        (
            json!({ "metadata": { "labels": { "kueue.x-k8s.io/max-exec-time-seconds": "60" } } }),
            Step::DeleteWorkload,
            Step::DeleteWorkload,
        ),
        (
            json!({ "metadata": { "annotations": { "kueue.x-k8s.io/job-min-parallelism": "1" } } }),
            Step::DeleteWorkload,
            Step::DeleteWorkload,
        ),
        (json!({ "spec": { "parallelism": 4 } }), Step::DeleteWorkload, Step::DeleteWorkload),
        (template(runs(json!({ "image": "llama:2" }))), Step::DeleteWorkload, Step::DeleteWorkload),
        (template(runs(json!({ "imagePullPolicy": "Always" }))), Step::Nothing, Step::Start),
    ] {
        let edited = job(&patch);
        let step = |conditions: &[&str]| next(&edited, Some(&workload(conditions)), Known::default());
        assert_eq!((step(RESERVED), step(ADMITTED)), (reserved, admitted), "{patch}");
    }
}

/// The spec of a template whose container is the same but for this.
fn runs(patch: Value) -> Value {
    let mut container = json!({ "name": "main", "resources": { "limits": { "nvidia.com/gpu": 1 } } });
    json_patch::merge(&mut container, &patch);
    json!({ "spec": { "containers": [container] } })
}

/// As in Kueue, which compares containers whole: what is pulled, or run, is not what was admitted.
#[test]
fn a_job_that_runs_something_else_is_stopped_and_described_anew() {
    for (patch, wanted) in [
        (json!({ "image": "llama:2" }), Step::Stop),
        (json!({ "command": ["train"] }), Step::Stop),
        (json!({ "env": [{ "name": "LEVEL", "value": "2" }] }), Step::Stop),
        (json!({ "terminationMessagePath": "/dev/null", "env": [] }), Step::Nothing),
    ] {
        let edited = job(&json!({ "spec": { "suspend": false, "template": runs(patch.clone()) } }));
        assert_eq!(next(&edited, Some(&workload(ADMITTED)), Known::default()), wanted, "{patch}");
    }
    let waits = job(&json!({ "spec": { "template": runs(json!({ "image": "llama:2" })) } }));
    assert_eq!(next(&waits, Some(&workload(&[])), Known::default()), Step::UpdateWorkload);
}

/// What an admission added is no edit, and nobody who runs is stopped for the rest.
#[test]
fn a_started_job_is_left_alone() {
    let marked = json!({
        "metadata": { "labels": { "kueue.x-k8s.io/podset": "main" } },
        "spec": { "tolerations": [{ "key": "gpu", "operator": "Exists" }] },
    });
    let stopped = job(&json!({ "spec": { "template": marked } }));
    assert_eq!(next(&stopped, Some(&workload(RESERVED)), Known::default()), Step::Nothing);
    let runs = job(&json!({
        "metadata": { "labels": { "kueue.x-k8s.io/max-exec-time-seconds": null } },
        "spec": { "suspend": false, "template": marked },
    }));
    assert_eq!(next(&runs, Some(&workload(ADMITTED)), Known::default()), Step::Nothing);
}

/// Kueue's `EquivalentToWorkload`: while it runs, it has as many pods as it was given quota for.
#[test]
fn a_job_that_was_given_fewer_pods_runs_with_no_more() {
    let mut fewer = workload(ADMITTED);
    fewer.status.admission = serde_json::from_value(json!({
        "clusterQueue": "q", "podSetAssignments": [{ "name": "main", "count": 2 }],
    }))
    .unwrap();
    for (suspended, pods, wanted) in [
        (false, 2, Step::Nothing),
        (false, 3, Step::Stop),
        (true, 2, Step::Start),
        (true, 3, Step::Start),
        (true, 4, Step::DeleteWorkload),
    ] {
        let job = job(&json!({ "spec": { "suspend": suspended, "parallelism": pods } }));
        assert_eq!(next(&job, Some(&fewer), Known::default()), wanted, "{suspended} {pods}");
    }
}

/// Some versions of Kueue did not mark the templates of what they admitted.
#[test]
fn a_job_that_ran_gets_its_templates_back_and_one_that_waits_keeps_its_edits() {
    let edited = json!({ "spec": { "template": { "spec": { "nodeSelector": { "gpu": "a100" } } } } });
    let evicted: &[&str] = &["QuotaReserved", "Admitted", "Evicted"];
    for (conditions, wanted) in
        [(evicted, Step::Restore), (&["QuotaReserved", "Evicted"], Step::Release), (RESERVED, Step::Nothing)]
    {
        let step = next(&job(&edited), Some(&workload(conditions)), Known::default());
        assert_eq!(step, wanted, "{conditions:?}");
    }
    assert_eq!(next(&job(&json!({})), Some(&workload(evicted)), Known::default()), Step::Release);
}

/// It is its user's to start and to stop then; one that runs goes on as ever.
#[test]
fn a_job_that_names_no_queue_any_more_is_left_alone() {
    let hold = || Step::Hold("its job names no queue any more".to_owned());
    let left = Known { is_unqueued: true, ..Known::default() };
    for (conditions, suspended, wanted) in [
        (&[][..], true, Step::ChangeQueue(None)),
        (&[], false, Step::ChangeQueue(None)),
        (RESERVED, true, hold()),
        (RESERVED, false, hold()),
        (ADMITTED, true, hold()),
        (ADMITTED, false, Step::Nothing),
        (&["Finished"], false, Step::Nothing),
    ] {
        let job = job(&json!({ "spec": { "suspend": suspended } }));
        let mut workload = workload(conditions);
        workload.spec.queue_name = Some("a".to_owned());
        assert_eq!(next(&job, Some(&workload), left), wanted, "{conditions:?} {suspended}");
    }
    let job = job(&json!({}));
    assert_eq!(next(&job, None, left), Step::Nothing);
    let mut theirs = workload(ADMITTED);
    theirs.metadata.name = Some("by-hand".to_owned());
    assert_eq!(next(&job, Some(&theirs), left), Step::Start, "what somebody else made for it counts");
    let mut queued = workload(&[]);
    queued.spec.queue_name = Some("a".to_owned());
    let step = next(&job, Some(&queued), Known::default());
    assert_eq!(step, Step::ChangeQueue(None), "where no queue is needed, it waits for one");
    let named =
        json!({ "metadata": { "annotations": { "kueue.x-k8s.io/prebuilt-workload-name": "llama" } } });
    let step = next(&self::job(&named), Some(&queued), Known::default());
    assert_ne!(step, Step::ChangeQueue(None), "what somebody else made stays in its queue");
}

/// It failed to start, say, and its user has mended it.
#[test]
fn a_job_that_was_edited_after_its_workload_had_ended_is_described_anew() {
    let ended = workload(&["QuotaReserved", "Finished"]);
    let known = Known::default();
    let next = |patch: Value| next(&job(&patch), Some(&ended), known);
    let grown = json!({ "spec": { "parallelism": 5 } });
    assert_eq!(next(json!({})), Step::Nothing);
    assert_eq!(next(grown.clone()), Step::DeleteWorkload);
    let merged = |more: Value| {
        let mut patch = grown.clone();
        json_patch::merge(&mut patch, &more);
        patch
    };
    assert_eq!(next(merged(json!({ "status": { "active": 1 } }))), Step::Nothing, "its pods are still there");
    let complete = json!({ "status": { "conditions": [{ "type": "Complete", "status": "True" }] } });
    assert_eq!(next(merged(complete)), Step::Nothing, "it has ended itself");
    let named =
        json!({ "metadata": { "annotations": { "kueue.x-k8s.io/prebuilt-workload-name": "llama" } } });
    assert_eq!(next(merged(named)), Step::Nothing, "it is somebody else's");
}

/// Its pods hold what the quota is for until they have gone.
#[test]
fn a_deleted_workload_stays_while_pods_run_whatever_queue_the_job_names() {
    let mut workload = workload(ADMITTED);
    workload.metadata.finalizers = Some(vec!["kueue.x-k8s.io/resource-in-use".to_owned()]);
    workload.metadata.deletion_timestamp =
        Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
    for is_unqueued in [true, false] {
        let known = Known { is_unqueued, ..Known::default() };
        for (active, wanted) in [(1, Step::Nothing), (0, Step::RemoveFinalizer)] {
            let job = job(&json!({ "status": { "active": active } }));
            assert_eq!(next(&job, Some(&workload), known), wanted, "{is_unqueued} {active}");
        }
    }
}

/// It may stay for ever: nobody preempts what is being deleted.
#[test]
fn a_deleted_workload_that_somebody_else_holds_gives_its_quota_back_once_no_pods_run() {
    let held = |conditions: &[&str], finalizers: &[&str]| {
        let mut workload = workload(conditions);
        workload.metadata.finalizers = Some(finalizers.iter().map(|&one| one.to_owned()).collect());
        workload.metadata.deletion_timestamp =
            Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
        workload
    };
    let (ours, theirs) = ("kueue.x-k8s.io/resource-in-use", "example.com/audit");
    let hold = Step::Hold("it is being deleted, and held by the finalizer example.com/audit".to_owned());
    for (conditions, finalizers, active, wanted) in [
        (ADMITTED, &[theirs][..], 0, hold),
        (ADMITTED, &[theirs], 1, Step::Nothing),
        (ADMITTED, &[theirs, ours], 0, Step::RemoveFinalizer),
        (ADMITTED, &[], 0, Step::Nothing),
        (ADMITTED, &["foregroundDeletion"], 0, Step::Nothing),
        (&[], &[theirs], 0, Step::Nothing),
        (&["QuotaReserved", "Finished"], &[theirs], 0, Step::Nothing),
    ] {
        let job = job(&json!({ "status": { "active": active } }));
        let step = next(&job, Some(&held(conditions, finalizers)), Known::default());
        assert_eq!(step, wanted, "{conditions:?} {finalizers:?} {active}");
    }
}

/// Whatever holds it: its Workload gets no quota any more, and keeps what it has for no longer than pods run. Nobody stops those of one
/// that is evicted: it would keep its quota from whom it was evicted for.
#[test]
fn a_job_that_is_being_deleted_ends_once_its_pods_are_gone() {
    let ends = |step: &Step| matches!(step, Step::Finish { reason: "OwnerNotFound", .. });
    let evicted: &[&str] = &["QuotaReserved", "Admitted", "Evicted"];
    for (conditions, active, wanted) in [
        (&[][..], 0, true),
        (&[], 1, true),
        (RESERVED, 0, true),
        (ADMITTED, 0, true),
        (ADMITTED, 1, false),
        (evicted, 1, true),
        (evicted, 0, true),
        (&["Finished"], 0, false),
    ] {
        for suspended in [true, false] {
            let leaving = job(&json!({
                "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.com/hold"] },
                "spec": { "suspend": suspended }, "status": { "active": active },
            }));
            let step = |ends_orphans| {
                next(&leaving, Some(&workload(conditions)), Known { ends_orphans, ..Known::default() })
            };
            assert_eq!(ends(&step(true)), wanted, "{conditions:?} {active} {suspended}");
            assert!(ends(&step(true)) || step(true) == Step::Nothing, "{conditions:?} {active} {suspended}");
            assert_eq!(step(false), Step::Nothing, "FinishOrphanedWorkloads closed");
        }
    }
}

/// Most operators leave the status of an object that is being deleted as it was: waiting for it would be for ever.
#[test]
fn only_a_controller_that_goes_on_counting_is_waited_for_when_its_job_is_deleted() {
    let counts = json!({ "active": 2 });
    let condition = json!({ "conditions": [{ "type": "QuotaReserved", "status": "True" }] });
    for (kind, status, wanted) in [
        ("Job", counts.clone(), Step::Nothing),
        ("AppWrapper", condition, Step::Nothing),
        ("JobSet", json!({ "replicatedJobsStatus": [counts] }), gone()),
        ("PyTorchJob", json!({ "replicaStatuses": { "Worker": counts } }), gone()),
        ("RayCluster", json!({ "state": "ready" }), gone()),
        ("RayJob", json!({ "jobDeploymentStatus": "Running" }), gone()),
    ] {
        let metadata = json!({ "name": "llama", "namespace": "team", "uid": "job-1" });
        let mut object = json!({ "metadata": metadata, "spec": {}, "status": status });
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let object: JobObject = serde_json::from_value(object).unwrap();
        let kind = TABLE.iter().find(|one| one.kind == kind).unwrap();
        let job = Job { kind, view: read(kind, &object), object };
        assert!(job.view.active, "{}", kind.kind);
        let known = Known { ends_orphans: true, ..Known::default() };
        assert_eq!(next(&job, Some(&workload(ADMITTED)), known), wanted, "{}", kind.kind);
        let evicted = next(&job, Some(&workload(&["QuotaReserved", "Admitted", "Evicted"])), known);
        let stops = kind.kind == "AppWrapper";
        assert_eq!(evicted, if stops { Step::Nothing } else { gone() }, "{}", kind.kind);
    }
}

fn gone() -> Step {
    let message = "the job that it was made for is gone".to_owned();
    Step::Finish { reason: "OwnerNotFound", message }
}

#[test]
fn a_workload_follows_the_class_of_its_job_but_not_that_of_pods() {
    let class = |kind: &str, name: &str| {
        let group = if kind == "PriorityClass" { "scheduling.k8s.io" } else { GROUP };
        json!({ "group": group, "kind": kind, "name": name })
    };
    let of_pods = |name: &str| ("scheduling.k8s.io", "PriorityClass", name.to_owned());
    let of_workloads = |name: &str| (GROUP, "WorkloadPriorityClass", name.to_owned());
    // What the Workload has, what the job asks for, and whether it follows while it waits, and with quota.
    for (written, value, wanted, waiting, reserved) in [
        (class("PriorityClass", "high"), 9, Some(of_workloads("low")), false, false),
        (class("PriorityClass", "high"), 9, Some(of_pods("low")), false, false),
        (class("PriorityClass", "high"), 9, None, false, false),
        (Value::Null, 0, Some(of_pods("low")), false, false),
        (Value::Null, 0, Some(of_workloads("low")), true, false),
        (class("WorkloadPriorityClass", "high"), 9, Some(of_workloads("low")), true, true),
        (class("WorkloadPriorityClass", "low"), 9, Some(of_workloads("low")), true, true),
        (class("WorkloadPriorityClass", "low"), 1, Some(of_workloads("low")), false, false),
        (class("WorkloadPriorityClass", "high"), 9, Some(of_pods("low")), true, false),
    ] {
        let mut job = job(&json!({}));
        let priority = Priority { value: 1, class: wanted };
        let known = Known { priority: Some(&priority), ..Known::default() };
        let mut follows = |conditions: &[&str], suspended: bool| {
            job.view.suspended = suspended;
            let mut workload = workload(conditions);
            workload.spec.priority = Some(value);
            workload.spec.priority_class_ref = serde_json::from_value(written.clone()).unwrap();
            next(&job, Some(&workload), known)
        };
        let step = |follows: bool| if follows { Step::ChangePriority } else { Step::Nothing };
        let words = format!("{written} {value} {:?}", priority.class);
        assert_eq!(follows(ADMITTED, false), step(reserved), "{words}");
        assert_eq!(follows(&[], true), step(waiting), "{words}");
    }
}

/// What a job says to a closed gate is neither described nor followed, whatever its Workload has from before.
#[test]
fn closed_gates_are_not_spoken_to() {
    const HOLDERS: &str = "kueue.x-k8s.io/admission-gated-by";
    let closed =
        Gates { topology: false, partial_admission: false, admission_gated_by: false, ..Gates::default() };
    let senseless = json!({ "kueue.x-k8s.io/podset-unconstrained-topology": "yes" });
    let job = job(&json!({
        "metadata": { "annotations": { HOLDERS: "example.com/budget" } },
        "spec": { "template": { "metadata": { "annotations": senseless } } },
    }));
    assert!(compose(&job, &Priorities::default(), Gates::default()).is_err());
    let composed = compose(&job, &Priorities::default(), closed).unwrap();
    let set = &composed["spec"]["podSets"][0];
    assert_eq!((set.get("topologyRequest"), set.get("minCount")), (None, None));
    assert_eq!(composed["metadata"].get("annotations"), None);

    let step = |workload: &Value, gates: Gates| {
        let workload: Workload = serde_json::from_value(workload.clone()).unwrap();
        next(&job, Some(&workload), Known { gates, ..Known::default() })
    };
    assert_eq!(step(&composed, closed), Step::Nothing);
    assert_eq!(step(&composed, Gates { partial_admission: true, ..closed }), Step::UpdateWorkload);
    let mut held = composed.clone();
    held["metadata"]["annotations"] = json!({ HOLDERS: "example.com/budget,example.com/team" });
    assert_eq!(step(&held, closed), Step::Nothing);
    let follows = Step::ChangeGates(Some("example.com/budget".to_owned()));
    assert_eq!(step(&held, Gates { admission_gated_by: true, ..closed }), follows);
}

/// A job of two pods that has quota and waits for a check.
async fn waiting() -> World {
    let world = World::new(false).await;
    world.queue("a", "", json!({ "nominalQuota": 4 }), json!({})).await;
    world.checked("a").await;
    world.start("layer1");
    world.pytorch("llama", "a", 2).await;
    world.settle().await;
    assert!(world.is("llama", "QuotaReserved") && !world.is("llama", "Admitted"));
    world
}

async fn edit(world: &World, change: impl Fn(&mut Value) + Send + Sync) {
    world.update("kubeflow.org", "pytorchjobs", "llama", false, change).await;
    world.settle().await;
}

/// The pod template of the only role.
fn template(job: &mut Value) -> &mut Value {
    &mut job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
}

/// The check says that it is passed.
async fn answer(world: &World) {
    let (name, now) = (world.workload_name("llama"), world.stamp());
    let ready = |workload: &mut Value| {
        let state = &mut workload["status"]["admissionChecks"][0];
        (state["state"], state["lastTransitionTime"]) = (json!("Ready"), json!(now));
    };
    world.update(GROUP, "workloads", &name, true, ready).await;
    world.settle().await;
}

#[tokio::test(start_paused = true)]
async fn a_waiting_job_whose_queue_is_taken_away_waits_for_nothing() {
    for all in [false, true] {
        let world = World::new(false).await;
        world.queue("a", "", json!({ "nominalQuota": 2 }), json!({})).await;
        let text = format!("manageJobsWithoutQueueName: {all}\n");
        let file = Configuration::parse(Path::new("config.yaml"), &text).unwrap();
        world.start_with("layer1", Config { file, ..Config::default() });
        world.pytorch("first", "a", 2).await;
        world.settle().await;
        world.pytorch("llama", "a", 2).await;
        world.settle().await;
        let queue = || world.workload("llama").unwrap()["spec"]["queueName"].clone();
        assert_eq!((queue(), world.is("llama", "Admitted")), (json!("a"), false));
        edit(&world, |job| job["metadata"]["labels"] = json!({})).await;
        assert_eq!(queue(), Value::Null, "{all}");
        let done = json!({ "conditions": [{ "type": "Succeeded", "status": "True" }] });
        world.update("kubeflow.org", "pytorchjobs", "first", true, |job| job["status"] = done.clone()).await;
        edit(&world, |job| job["spec"]["runPolicy"]["suspend"] = json!(false)).await;
        assert!(!world.is("llama", "QuotaReserved"), "{all}");
        assert_eq!(world.is_suspended("llama"), all, "its user may start it unless it has to have a queue");
        edit(&world, |job| job["metadata"]["labels"] = json!({ "kueue.x-k8s.io/queue-name": "a" })).await;
        assert!(world.is("llama", "Admitted") && !world.is_suspended("llama"), "{all}");
    }
}

#[tokio::test(start_paused = true)]
async fn quota_of_a_job_whose_queue_is_taken_away_before_it_starts_is_free() {
    let world = waiting().await;
    edit(&world, |job| job["metadata"]["labels"] = json!({})).await;
    assert_eq!(world.condition("llama", "QuotaReserved").unwrap().1, "OnHold");
    let explained = world.explained("llama").await;
    assert_eq!(
        (&explained["state"], &explained["reason"]),
        (&json!("NotQueued"), &json!("OnHold")),
        "{explained}"
    );
    assert_eq!(world.workload("llama").unwrap()["spec"]["queueName"], Value::Null);
    let quiet = world.attempts("layer1");
    world.settle().await;
    assert_eq!(world.attempts("layer1"), quiet);
    edit(&world, |job| job["metadata"]["labels"] = json!({ "kueue.x-k8s.io/queue-name": "a" })).await;
    assert!(world.is("llama", "QuotaReserved"));
    answer(&world).await;
    assert!(world.is("llama", "Admitted") && !world.is_suspended("llama"));
}

#[tokio::test(start_paused = true)]
async fn a_job_is_started_with_the_templates_that_it_has_then() {
    let world = waiting().await;
    let before = world.workload("llama").unwrap()["metadata"]["uid"].clone();
    edit(&world, |job| {
        template(job)["metadata"] = json!({ "labels": { "team": "x" }, "annotations": { "note": "y" } });
        template(job)["spec"]["nodeSelector"] = json!({ "disk": "ssd" });
    })
    .await;
    answer(&world).await;
    assert!(world.is("llama", "Admitted") && !world.is_suspended("llama"));
    assert_eq!(world.workload("llama").unwrap()["metadata"]["uid"], before);
    let mut job = world.job("llama");
    let started = template(&mut job);
    assert_eq!(started["metadata"]["labels"]["team"], "x");
    assert_eq!(started["metadata"]["labels"]["kueue.x-k8s.io/podset"], "worker");
    assert_eq!(started["metadata"]["annotations"]["note"], "y");
    assert_eq!(started["spec"]["nodeSelector"], json!({ "disk": "ssd", "gpu": "a100" }));
    let quiet = world.attempts("layer1");
    world.settle().await;
    assert_eq!(world.attempts("layer1"), quiet);
}

#[tokio::test(start_paused = true)]
async fn an_edit_that_contradicts_the_flavor_cannot_start() {
    let world = waiting().await;
    edit(&world, |job| template(job)["spec"]["nodeSelector"] = json!({ "gpu": "h100" })).await;
    answer(&world).await;
    assert_eq!(world.condition("llama", "Finished").unwrap().1, "FailedToStart");
}

#[tokio::test(start_paused = true)]
async fn what_an_edited_job_tolerates_and_how_long_it_runs_is_described_anew() {
    let world = waiting().await;
    let before = world.workload("llama").unwrap()["metadata"]["uid"].clone();
    let tolerations = json!([{ "key": "spot", "operator": "Exists" }]);
    edit(&world, |job| {
        job["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] = json!("600");
        template(job)["spec"]["tolerations"] = tolerations.clone();
    })
    .await;
    let after = world.workload("llama").unwrap();
    assert_ne!(after["metadata"]["uid"], before);
    assert_eq!(after["spec"]["maximumExecutionTimeSeconds"], 600);
    assert!(world.told().iter().any(|one| one.1 == "DeletedWorkload"), "{:?}", world.told());
    assert!(world.is("llama", "QuotaReserved"), "it has quota again");
    answer(&world).await;
    assert!(!world.is_suspended("llama"));
    assert_eq!(template(&mut world.job("llama"))["spec"]["tolerations"], tolerations);
}

/// As with Kueue: the class of pods is looked at when a job is described, and again when it is described anew.
#[tokio::test(start_paused = true)]
async fn an_edited_class_of_pods_counts_when_the_job_is_described_anew() {
    let world = World::new(false).await;
    world.queue("a", "", json!({ "nominalQuota": 1 }), json!({})).await;
    for (name, value) in [("low", 1), ("high", 9)] {
        let class = json!({ "metadata": { "name": name }, "value": value });
        world.create("scheduling.k8s.io", "priorityclasses", class).await;
    }
    world.start("layer1");
    let mut job = pytorch("llama", "a", 2);
    job["spec"]["runPolicy"]["schedulingPolicy"] = json!({ "priorityClass": "high" });
    world.create("kubeflow.org", "pytorchjobs", job).await;
    world.settle().await;
    let class = || {
        let spec = world.workload("llama").unwrap()["spec"].clone();
        (spec["priority"].clone(), spec["priorityClassRef"]["name"].clone())
    };
    assert_eq!(class(), (json!(9), json!("high")));
    edit(&world, |job| {
        job["spec"]["runPolicy"]["schedulingPolicy"]["priorityClass"] = json!("low");
    })
    .await;
    assert_eq!(class(), (json!(9), json!("high")));
    edit(&world, |job| job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = json!(3)).await;
    assert_eq!(class(), (json!(1), json!("low")));
}
