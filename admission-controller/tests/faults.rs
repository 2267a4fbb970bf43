//! The program under faults: whatever happens to single requests, it comes out right.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::time::Duration;

use admission_controller::names::workload_name;
use cluster_sim::faults::{Aim, Fault, WatchFault};
use cluster_sim::{GroupResource, Verb};
use serde_json::{Value, json};
use support::{World, owned_by, pytorch};

async fn jobs_run_in_turn(world: &World, jobs: &[&str]) {
    for _ in 0..jobs.len() {
        for _ in 0..40 {
            world.settle().await;
            if jobs.iter().any(|job| {
                world.is(job, "Admitted") && !world.is(job, "Finished") && !world.is_suspended(job)
            }) {
                break;
            }
        }
        let running: Vec<&&str> =
            jobs.iter().filter(|job| world.is(job, "Admitted") && !world.is(job, "Finished")).collect();
        assert_eq!(running.len(), 1, "one at a time: {running:?}");
        let done = json!({ "conditions": [{ "type": "Succeeded", "status": "True" }] });
        world
            .update("kubeflow.org", "pytorchjobs", running[0], true, |job| job["status"] = done.clone())
            .await;
    }
    for _ in 0..10 {
        world.settle().await;
    }
    assert!(jobs.iter().all(|job| world.is(job, "Finished")));
}

#[tokio::test(start_paused = true)]
async fn jobs_run_in_turn_under_every_fault() {
    let faults = [
        Fault::Conflict,
        Fault::TooManyRequests(1),
        Fault::ServerError(500),
        Fault::ServerError(503),
        Fault::LostRequest,
        Fault::LostResponse,
        Fault::TimeoutAfterWrite,
        Fault::Latency(Duration::from_secs(6)),
    ];
    for fault in faults {
        let world = World::new(false).await;
        world.queue("a", "", json!({ "nominalQuota": 4 }), json!({})).await;
        let aim = || Aim::writes().by("layer1");
        let words = format!("{fault:?}");
        world.cluster.faults().add(aim(), 300_000, 100, fault);
        world.start("layer1");
        let jobs = ["one", "two", "three"];
        for job in jobs {
            world.pytorch(job, "a", 3).await;
        }
        jobs_run_in_turn(&world, &jobs).await;
        let workloads = jobs.iter().filter_map(|job| world.workload(job)).count();
        assert_eq!(workloads, 3, "{words}: one Workload a job");
    }
}

/// Nothing changes by such a conflict (a ResourceQuota that is written at the same moment makes one), so no watch says to
/// try again.
#[tokio::test(start_paused = true)]
async fn a_conflict_about_nothing_is_tried_again() {
    let workloads = || GroupResource::new("kueue.x-k8s.io", "workloads");
    let jobs = || GroupResource::new("kubeflow.org", "pytorchjobs");
    for (verb, resource, ends) in [
        (Verb::Create, workloads(), false),
        (Verb::Patch, workloads(), false),
        (Verb::Patch, jobs(), false),
        (Verb::Patch, workloads(), true),
    ] {
        let world = World::running(4).await;
        let words = format!("{verb:?} {resource} {ends}");
        let conflict = || {
            let aim = Aim { verbs: vec![verb], ..Aim::default() }.by("layer1").on(resource.clone());
            world.cluster.faults().add(aim, 1_000_000, 1, Fault::Conflict);
        };
        if !ends {
            conflict();
        }
        world.pytorch("job", "a", 3).await;
        for _ in 0..10 {
            world.settle().await;
        }
        assert!(world.is("job", "Admitted") && !world.is_suspended("job"), "{words}");
        if ends {
            conflict();
            let done = json!({ "conditions": [{ "type": "Succeeded", "status": "True" }] });
            world
                .update("kubeflow.org", "pytorchjobs", "job", true, |job| job["status"] = done.clone())
                .await;
            for _ in 0..10 {
                world.settle().await;
            }
            assert!(world.is("job", "Finished"), "{words}");
        }
    }
}

/// Nor does a Workload change that the API server does not find for a moment, as where its kind is not served.
#[tokio::test(start_paused = true)]
async fn a_workload_that_is_not_found_for_a_moment_is_admitted_all_the_same() {
    let world = World::running(4).await;
    let aim = |verb: Verb| {
        Aim { verbs: vec![verb], ..Aim::default() }
            .by("layer1")
            .on(GroupResource::new("kueue.x-k8s.io", "workloads"))
    };
    for (verb, times) in [(Verb::Patch, 1), (Verb::Get, 3)] {
        world.cluster.faults().add(aim(verb), 1_000_000, times, Fault::ServerError(404));
    }
    world.pytorch("job", "a", 3).await;
    for _ in 0..10 {
        world.settle().await;
    }
    assert!(world.is("job", "Admitted") && !world.is_suspended("job"));
}

/// Nobody would start them: their quota is for others until then.
#[tokio::test(start_paused = true)]
async fn jobs_of_a_kind_that_is_not_served_get_no_quota() {
    let world = World::running(0).await;
    world.pytorch("first", "a", 3).await;
    world.settle().await;
    let (kubeflow, faults) = (|| GroupResource::new("kubeflow.org", "pytorchjobs"), world.cluster.faults());
    let lists = Aim { verbs: vec![Verb::List], ..Aim::default() }.by("layer1").on(kubeflow());
    faults.add(lists, 1_000_000, u64::MAX, Fault::ServerError(404));
    faults.add_watch(Aim::default().by("layer1").on(kubeflow()), 1_000_000, 1, WatchFault::Expire);
    let touch = |job: &mut Value| job["metadata"]["annotations"] = json!({ "touched": "" });
    world.update("kubeflow.org", "pytorchjobs", "first", false, touch).await;
    world.settle().await;
    let give = |queue: &mut Value| {
        queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = json!(4);
    };
    world.update("kueue.x-k8s.io", "clusterqueues", "a", false, give).await;
    let container =
        json!({ "name": "main", "image": "x", "resources": { "limits": { "nvidia.com/gpu": 3 } } });
    let pods = json!({ "spec": { "restartPolicy": "Never", "containers": [container] } });
    let labels = json!({ "kueue.x-k8s.io/queue-name": "a" });
    let second = json!({ "metadata": { "name": "second", "namespace": "team", "labels": labels },
        "spec": { "suspend": true, "template": pods } });
    world.create("batch", "jobs", second).await;
    world.pass(60).await;
    assert!(world.is("second", "Admitted") && !world.is("first", "QuotaReserved"));
    faults.clear();
    let done = json!({ "conditions": [{ "type": "Complete", "status": "True" }] });
    world.update("batch", "jobs", "second", true, |job| job["status"] = done.clone()).await;
    world.pass(120).await;
    assert!(world.is("first", "Admitted") && !world.is_suspended("first"));
}

/// A proxy may answer so for as long as it likes.
#[tokio::test(start_paused = true)]
async fn an_admission_that_meets_conflicts_about_nothing_is_tried_once_a_second() {
    let world = World::running(4).await;
    let aim = Aim { verbs: vec![Verb::Patch], ..Aim::default() }
        .by("layer1")
        .on(GroupResource::new("kueue.x-k8s.io", "workloads"));
    let faults = world.cluster.faults();
    faults.add(aim, 1_000_000, u64::MAX, Fault::Conflict);
    let before = faults.writes_by("layer1");
    world.pytorch("job", "a", 3).await;
    world.pass(20).await;
    let tried = faults.writes_by("layer1") - before;
    assert!((10..60).contains(&tried), "{tried} writes in 20 s");
    faults.clear();
    world.pass(5).await;
    assert!(world.is("job", "Admitted") && !world.is_suspended("job"));
}

/// An answer that is lost makes a creation look like that; the Workload is the job's own then, and nobody is told of a conflict.
#[tokio::test(start_paused = true)]
async fn a_job_is_told_once_who_has_the_name_of_its_workload() {
    let (group, workloads) = ("kueue.x-k8s.io", GroupResource::new("kueue.x-k8s.io", "workloads"));
    let world = World::new(false).await;
    world.queue("a", "", json!({ "nominalQuota": 4 }), json!({})).await;
    let job = world.pytorch("llama", "a", 3).await;
    let uid = job.value()["metadata"]["uid"].as_str().unwrap().to_owned();
    let name = workload_name("kubeflow.org", "PyTorchJob", "llama", &uid);
    let set = json!({ "name": "main", "count": 1, "template": { "spec": { "containers": [{ "name": "c", "image": "x" }] } } });
    let stranger = json!({ "metadata": { "name": name, "namespace": "team" }, "spec": { "podSets": [set] } });
    world.create(group, "workloads", stranger).await;
    world.start("layer1");
    world.pass(300).await;
    assert_eq!(world.told_of("PyTorchJob", "llama"), ["WorkloadNameConflict"]);
    world.cluster.store("user").delete(&workloads, "team", &name, Default::default()).await.unwrap();
    let lost = Aim { verbs: vec![Verb::Create], ..Aim::default() }.by("layer1").on(workloads.clone());
    world.cluster.faults().add(lost, 1_000_000, 1, Fault::LostResponse);
    world.pass(120).await;
    assert!(world.is("llama", "Admitted") && !world.is_suspended("llama"));
    let mut told = world.told_of("PyTorchJob", "llama");
    told.sort();
    assert_eq!(told, ["CreatedWorkload", "Started", "WorkloadNameConflict"]);
}

/// Whatever it is that cannot have its Workload is told so, and has it as soon as that is possible.
#[tokio::test(start_paused = true)]
async fn who_waits_for_a_name_has_it_as_soon_as_it_is_free() {
    let workloads = GroupResource::new("kueue.x-k8s.io", "workloads");
    let gpu = json!({ "nvidia.com/gpu": 1 });
    let resources = json!({ "requests": gpu, "limits": gpu });
    let mut spec = json!({ "containers": [{ "name": "c", "image": "x", "resources": resources }] });
    let template = json!({ "metadata": { "labels": { "app": "x" } }, "spec": spec });
    spec["schedulingGates"] = json!([{ "name": "kueue.x-k8s.io/admission" }]);
    let labels = json!({ "kueue.x-k8s.io/queue-name": "a", "kueue.x-k8s.io/managed": "true" });
    let metadata = json!({ "name": "x", "namespace": "team", "labels": labels });
    let object = |spec: &Value| json!({ "metadata": metadata, "spec": spec });
    let selector = json!({ "matchLabels": { "app": "x" } });
    let set = json!({ "replicas": 1, "serviceName": "x", "selector": selector, "template": template });
    let replicas =
        json!({ "replicas": 2, "leaderWorkerTemplate": { "size": 1, "workerTemplate": template } });
    for (group, resource, kind, object, part) in [
        ("kubeflow.org", "pytorchjobs", "PyTorchJob", pytorch("x", "a", 1), "x"),
        ("apps", "statefulsets", "StatefulSet", object(&set), "x"),
        ("leaderworkerset.x-k8s.io", "leaderworkersets", "LeaderWorkerSet", object(&replicas), "x-0"),
        ("", "pods", "Pod", object(&spec), "x"),
    ] {
        let world = World::new(false).await;
        world.queue("a", "", json!({ "nominalQuota": 4 }), json!({})).await;
        let made = world.create(group, resource, object).await;
        let uid = made.value()["metadata"]["uid"].as_str().unwrap().to_owned();
        let name = workload_name(group, kind, part, &uid);
        let main = json!({ "name": "main", "count": 1, "template": { "spec": template["spec"] } });
        let mut stranger =
            json!({ "metadata": { "name": name, "namespace": "team" }, "spec": { "podSets": [main] } });
        // Of this kind what nobody owns is its own by its name.
        if kind == "StatefulSet" {
            let queue = world.get("kueue.x-k8s.io", "localqueues", "a").unwrap();
            stranger["metadata"]["ownerReferences"] = owned_by(&queue);
        }
        let wrote = stranger["metadata"]["ownerReferences"].clone();
        world.create("kueue.x-k8s.io", "workloads", stranger).await;
        world.start("layer1");
        world.pass(100).await;
        let told = world.told_of(kind, "x");
        assert_eq!(told.iter().filter(|one| *one == "WorkloadNameConflict").count(), 1, "{kind}: {told:?}");
        let owners = || world.workload_named(&name).unwrap()["metadata"]["ownerReferences"].clone();
        assert_eq!(owners(), wrote, "{kind}");
        if kind == "LeaderWorkerSet" {
            let next = workload_name(group, kind, "x-1", &uid);
            assert!(world.workload_named(&next).is_some(), "its other replicas do not wait for it");
        }
        world.cluster.store("user").delete(&workloads, "team", &name, Default::default()).await.unwrap();
        world.pass(5).await;
        assert_eq!(owners()[0]["uid"], uid, "{kind}");
    }
}

/// The watch shows what was written before the answer comes, or instead of it: people are told all the same.
#[tokio::test(start_paused = true)]
async fn what_the_watch_shows_before_the_answer_comes_is_told() {
    let world = World::new(false).await;
    world.queue("a", "", json!({ "nominalQuota": 4 }), json!({})).await;
    for (group, resource) in [("kueue.x-k8s.io", "workloads"), ("kubeflow.org", "pytorchjobs")] {
        let aim = Aim { verbs: vec![Verb::Patch], ..Aim::default() };
        let aim = aim.by("layer1").on(GroupResource::new(group, resource));
        world.cluster.faults().add(aim, 1_000_000, 1, Fault::LostResponse);
    }
    world.start("layer1");
    world.pytorch("job", "a", 3).await;
    for _ in 0..10 {
        world.settle().await;
    }
    assert!(world.is("job", "Admitted") && !world.is_suspended("job"));
    let told: Vec<String> = world.told().into_iter().map(|(_, reason)| reason).collect();
    for reason in ["QuotaReserved", "Admitted", "Started"] {
        assert_eq!(told.iter().filter(|one| *one == reason).count(), 1, "{reason} in {told:?}");
    }
}

/// The watch shows that it leaves, and has left, before the answer says for whom.
#[tokio::test(start_paused = true)]
async fn for_whom_somebody_was_preempted_is_told_though_the_answer_comes_late() {
    let world = World::new(false).await;
    let any = json!({ "reclaimWithinCohort": "Any" });
    world.queue("a", "pool", json!({ "nominalQuota": 0 }), any.clone()).await;
    world.queue("b", "pool", json!({ "nominalQuota": 4 }), any).await;
    world.start("layer1");
    world.pytorch("borrower", "a", 4).await;
    world.settle().await;
    let aim = Aim { verbs: vec![Verb::Patch], ..Aim::default() };
    let aim = aim.by("layer1").on(GroupResource::new("kueue.x-k8s.io", "workloads"));
    world.cluster.faults().add(aim, 1_000_000, 1, Fault::LostResponse);
    world.pytorch("owner", "b", 4).await;
    world.settle().await;
    assert!(world.is("owner", "Admitted"));
    let owner = world.workload("owner").unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
    let told = world.told_of("Workload", &owner);
    assert_eq!(told.iter().filter(|one| *one == "PreemptedWorkload").count(), 1, "{told:?}");
    let preempted = r#"kueue_preempted_workloads_total{preempting_cluster_queue="b",reason="InCohortReclamation",replica_role="leader"} 1"#;
    let text = world.metrics().await;
    assert!(text.lines().any(|line| line == preempted), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_reason_to_wait_survives_a_conflict() {
    let world = World::running(1).await;
    let aim = Aim { verbs: vec![Verb::Patch], ..Aim::default() }
        .by("layer1")
        .on(GroupResource::new("kueue.x-k8s.io", "workloads"));
    world.cluster.faults().add(aim, 1_000_000, 1, Fault::Conflict);
    world.pytorch("job", "a", 3).await;
    for _ in 0..10 {
        world.settle().await;
    }
    assert!(world.condition("job", "QuotaReserved").is_some(), "{:?}", world.workload("job"));
}

/// The garbage collector takes the Workload of a deleted job away at once. A replica that does not see the deletion must not
/// make it again and again.
#[tokio::test(start_paused = true)]
async fn a_job_whose_deletion_is_not_seen_gets_few_workloads() {
    let world = World::running(1).await;
    world.pytorch("job", "a", 3).await;
    world.settle().await;
    let jobs = GroupResource::new("kubeflow.org", "pytorchjobs");
    let aim = Aim::default().by("layer1").on(jobs.clone());
    world.cluster.faults().add_watch(aim, 1_000_000, 100, WatchFault::Delay(Duration::from_secs(20)));
    let before = world.cluster.revision();
    let store = world.cluster.store("user");
    store.delete(&jobs, "team", "job", Default::default()).await.unwrap();
    for _ in 0..10 {
        world.settle().await;
    }
    let made = world.writes("layer1", before).len();
    assert!(made < 100, "{made} writes");
    assert!(world.workload("job").is_none());
}

/// The answer to the write that lets a Workload go says that it is gone, long before the watch does.
#[tokio::test(start_paused = true)]
async fn quota_of_a_workload_that_was_let_go_is_free_before_the_watch_tells() {
    let world = World::running(3).await;
    for job in ["one", "two"] {
        world.pytorch(job, "a", 3).await;
        world.settle().await;
    }
    assert!(world.is_suspended("two"));
    let aim = Aim::default().by("layer1").on(GroupResource::new("kueue.x-k8s.io", "workloads"));
    world.cluster.faults().add_watch(aim, 1_000_000, 100, WatchFault::Delay(Duration::from_secs(20)));
    let jobs = GroupResource::new("kubeflow.org", "pytorchjobs");
    world.cluster.store("user").delete(&jobs, "team", "one", Default::default()).await.unwrap();
    // The deletion is seen after 20 s, and that it is over after 40.
    world.pass(30).await;
    assert!(!world.is_suspended("two"));
}

#[tokio::test(start_paused = true)]
async fn jobs_run_in_turn_with_unreliable_watches() {
    for fault in [
        WatchFault::Delay(Duration::from_secs(20)),
        WatchFault::Duplicate,
        WatchFault::Close,
        WatchFault::Expire,
    ] {
        let world = World::new(false).await;
        world.queue("a", "", json!({ "nominalQuota": 4 }), json!({})).await;
        let aim = Aim { writer: Some("layer1".to_owned()), ..Aim::default() };
        world.cluster.faults().add_watch(aim, 300_000, 100, fault);
        world.start("layer1");
        let jobs = ["one", "two", "three"];
        for job in jobs {
            world.pytorch(job, "a", 3).await;
        }
        jobs_run_in_turn(&world, &jobs).await;
    }
}

/// A list may need the conversion that the program serves, and for that nobody asks a replica that is not ready.
#[tokio::test(start_paused = true)]
async fn who_cannot_list_is_ready_to_convert_after_a_while() {
    let world = World::new(true).await;
    let lists = Aim { verbs: vec![Verb::List], ..Aim::default() };
    let workloads = GroupResource::new("kueue.x-k8s.io", "workloads");
    world.cluster.faults().add(lists.by("layer1").on(workloads), 1_000_000, 1_000, Fault::ServerError(500));
    world.start("layer1");
    world.pass(5).await;
    assert_eq!(world.page("/readyz").await, "caches: the first lists are not complete\n");
    world.pass(6).await;
    assert_eq!(world.page("/readyz").await, "ok\n");
}

/// Counts wait while a slow server has decisions to write; that a queue admits nobody any more does not.
#[tokio::test(start_paused = true)]
async fn a_queue_that_is_stopped_is_told_so_before_others_are_counted() {
    /// More queues than may be counted at once.
    const QUEUES: usize = 300;
    let world = World::new(false).await;
    let slow = Fault::Latency(Duration::from_millis(200));
    world.cluster.faults().add(Aim::writes().by("layer1"), 1_000_000, u64::MAX, slow);
    world.queue("a", "", json!({ "nominalQuota": 10_000 }), json!({})).await;
    world.start("layer1");
    let name = |number: usize| format!("queue-{number:03}");
    let status = |number: usize| {
        let queue = world.get("kueue.x-k8s.io", "localqueues", &name(number)).unwrap();
        (queue["status"]["conditions"][0]["reason"].clone(), queue["status"]["admittedWorkloads"].clone())
    };
    for number in 0..QUEUES {
        let local = json!({ "metadata": { "name": name(number), "namespace": "team" }, "spec": { "clusterQueue": "a" } });
        world.create("kueue.x-k8s.io", "localqueues", local).await;
    }
    world.settle().await;
    for number in 0..QUEUES {
        world.pytorch(&format!("job-{number}"), &name(number), 1).await;
    }
    // Somebody has something to decide all the time.
    let busy = async |from: u32, to: u32| {
        for number in from..to {
            world.pytorch(&format!("more-{number}"), &name(0), 1).await;
            world.sleep(Duration::from_millis(500)).await;
        }
    };
    busy(0, 10).await;
    let last = QUEUES - 1;
    let uncounted = || (0..QUEUES).filter(|number| status(*number).1 == 0).count();
    assert!(uncounted() > 20 && status(last).0 == "Ready", "{} wait, {:?}", uncounted(), status(last));
    world
        .update("kueue.x-k8s.io", "localqueues", &name(last), false, |queue| {
            queue["spec"]["stopPolicy"] = json!("Hold")
        })
        .await;
    busy(10, 16).await;
    assert_eq!(status(last).0, "Stopped");
    assert!(uncounted() > 0, "all are counted already");
    world.pass(60).await;
    assert_eq!(uncounted(), 0);
}
