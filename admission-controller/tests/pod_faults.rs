//! What goes wrong with managed pods, the objects that they are made for, and their Workloads.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::path::Path;
use std::time::Duration;

use admission_controller::names::workload_name;
use admission_controller::{Config, Configuration};
use cluster_sim::faults::{Aim, Fault, WatchFault};
use cluster_sim::{DeleteOptions, GroupResource, Verb};
use serde_json::{Value, json};
use support::{World, owned_by, pod_of, stateful_set};

const GATE: &str = "kueue.x-k8s.io/admission";
const GROUP: &str = "kueue.x-k8s.io";
const GROUP_NAME: &str = "/metadata/annotations/kueue.x-k8s.io~1pod-group-name";
const SUSPENDED_BY: &str = "/metadata/annotations/kueue.x-k8s.io~1pod-suspending-parent";

fn spec() -> Value {
    let gpu = json!({ "nvidia.com/gpu": 1 });
    let container = json!({ "name": "c", "image": "x", "resources": { "requests": gpu, "limits": gpu } });
    json!({ "terminationGracePeriodSeconds": 3600, "containers": [container] })
}

fn in_queue(name: &str) -> Value {
    json!({ "name": name, "namespace": "team", "labels": { "kueue.x-k8s.io/queue-name": "a" } })
}

/// What the controller of `db` makes of its template.
async fn replica(world: &World, name: &str) {
    let set = world.get("apps", "statefulsets", "db").unwrap();
    world.create("", "pods", pod_of(&set, &set["spec"]["template"], name)).await;
}

fn pod(world: &World, name: &str) -> Value {
    world.get("", "pods", name).unwrap()
}

async fn delete(world: &World, group: &str, resource: &str, name: &str) {
    let id = GroupResource::new(group, resource);
    world.cluster.store("user").delete(&id, "team", name, Default::default()).await.unwrap();
}

/// Its node says nothing of its end, and the garbage collector is late.
#[tokio::test(start_paused = true)]
async fn the_workload_of_a_pod_that_is_gone_ends() {
    let world = World::with_webhooks(1).await;
    world.hold_collector().await;
    for name in ["gone", "next"] {
        world.create("", "pods", json!({ "metadata": in_queue(name), "spec": spec() })).await;
        world.settle().await;
    }
    world.bind("gone", "n1").await;
    world.update("", "pods", "gone", true, |pod| pod["status"]["phase"] = json!("Running")).await;
    delete(&world, "", "pods", "gone").await;
    world.settle().await;
    assert!(!world.is("gone", "Finished") && world.is_behind(GATE, "next"), "it runs on for an hour");
    let pods = GroupResource::new("", "pods");
    world.cluster.store("kubelet").delete(&pods, "team", "gone", DeleteOptions::now()).await.unwrap();
    world.settle().await;
    assert_eq!(world.condition("gone", "Finished").unwrap().1, "OwnerNotFound");
    assert!(!world.is_behind(GATE, "next"));
}

/// With `FinishOrphanedWorkloads` closed its Workload waits for the garbage collector, and for nothing else.
#[tokio::test(start_paused = true)]
async fn a_pod_that_is_gone_gets_no_quota() {
    let gates = "featureGates: { FinishOrphanedWorkloads: false }";
    let file = Configuration::parse(Path::new("config.yaml"), gates).unwrap();
    let world = World::new(true).await;
    world.start_with("layer1", Config { file, ..Config::default() });
    world.settle().await;
    world.queue("a", "", json!({ "nominalQuota": 0 }), json!({})).await;
    world.hold_collector().await;
    world.create("", "pods", json!({ "metadata": in_queue("gone"), "spec": spec() })).await;
    world.settle().await;
    delete(&world, "", "pods", "gone").await;
    world.settle().await;
    assert!(world.get("", "pods", "gone").is_none());
    let raise = |queue: &mut Value| {
        queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = json!(1);
    };
    world.update(GROUP, "clusterqueues", "a", false, raise).await;
    world.settle().await;
    assert!(!world.is("gone", "QuotaReserved"));
}

/// Nobody says that it has ended, and nothing else happens.
#[tokio::test(start_paused = true)]
async fn quota_of_a_pod_whose_node_is_lost_comes_back_when_it_must_have_ended() {
    for is_group in [false, true] {
        let world = World::with_webhooks(1).await;
        let group = json!({ "kueue.x-k8s.io/pod-group-name": "ring" });
        let total = json!({ "kueue.x-k8s.io/pod-group-total-count": "1" });
        for name in ["lost", "next"] {
            let mut pod = json!({ "metadata": in_queue(name), "spec": spec() });
            if is_group && name == "lost" {
                json_patch::merge(&mut pod["metadata"]["labels"], &group);
                pod["metadata"]["annotations"] = total.clone();
            }
            world.create("", "pods", pod).await;
            world.settle().await;
        }
        world.bind("lost", "n1").await;
        world.update("", "pods", "lost", true, |pod| pod["status"]["phase"] = json!("Running")).await;
        delete(&world, "", "pods", "lost").await;
        if is_group {
            // A group waits for another pod in its place, unless it is told to end.
            delete(&world, GROUP, "workloads", "ring").await;
        }
        // The API server's time for its end is in an hour, and another hour passes before Kueue has it ended.
        world.pass(2 * 3600 - 60).await;
        assert!(world.is_behind(GATE, "next"), "group: {is_group}");
        world.pass(120).await;
        assert!(!world.is_behind(GATE, "next"), "group: {is_group}");
        assert_eq!(pod(&world, "lost")["status"]["phase"], "Running");
    }
}

/// Nothing else happens in its set: only the write that failed says that the pod still has to join its group.
#[tokio::test(start_paused = true)]
async fn a_pod_joins_its_group_though_the_first_tries_fail() {
    for (fault, times) in [(Fault::ServerError(503), 8), (Fault::Conflict, 3), (Fault::LostResponse, 1)] {
        let (world, words) = (World::with_webhooks(1).await, format!("{fault:?}"));
        world.create("apps", "statefulsets", stateful_set(1, spec())).await;
        world.settle().await;
        let aim = Aim { verbs: vec![Verb::Patch], ..Aim::default() };
        let aim = aim.by("layer1").on(GroupResource::new("", "pods"));
        world.cluster.faults().add(aim, 1_000_000, times, fault);
        replica(&world, "db-0").await;
        world.pass(300).await;
        assert!(!world.is_behind(GATE, "db-0"), "{words}: {}", pod(&world, "db-0"));
    }
}

/// The copy of a Workload names the same owner, and is held by the same finalizer.
fn copied(workload: &Value, name: &str) -> Value {
    let metadata = &workload["metadata"];
    json!({
        "metadata": {
            "name": name, "namespace": "team",
            "ownerReferences": metadata["ownerReferences"], "finalizers": metadata["finalizers"],
        },
        "spec": workload["spec"],
    })
}

#[tokio::test(start_paused = true)]
async fn the_copy_of_a_workload_goes_and_what_runs_runs_on() {
    let world = World::with_webhooks(4).await;
    world.create("", "pods", json!({ "metadata": in_queue("solo"), "spec": spec() })).await;
    world.pytorch("llama", "a", 2).await;
    world.settle().await;
    let of_job = world.workload("llama").unwrap();
    let of_pod = world.workload("solo").unwrap();
    assert!(!world.is_behind(GATE, "solo") && !world.is_suspended("llama"));
    // There may be more of them, and their uids may come before that of the first, or after it.
    for name in ["copy-0", "copy-1", "copy-2"] {
        let since = world.cluster.revision();
        for (of, workload) in [("pod", &of_pod), ("job", &of_job)] {
            world.create(GROUP, "workloads", copied(workload, &format!("{name}-{of}"))).await;
        }
        world.settle().await;
        for of in ["pod", "job"] {
            assert_eq!(world.workload_named(&format!("{name}-{of}")), None);
        }
        let jobs = world.writes("layer1", since).into_iter().filter(|write| write.contains("pytorchjobs"));
        assert_eq!(jobs.collect::<Vec<_>>(), Vec::<String>::new(), "it is not stopped");
        let conditions = pod(&world, "solo")["status"]["conditions"].to_string();
        assert!(!conditions.contains("TerminationTarget"), "{conditions}");
    }
    for workload in [&of_pod, &of_job] {
        let now = world.workload_named(workload["metadata"]["name"].as_str().unwrap()).unwrap();
        assert_eq!(now["metadata"]["uid"], workload["metadata"]["uid"]);
    }
}

/// Its watch of StatefulSets says that this one is scaled to nothing; its list of Workloads that it was given quota.
#[tokio::test(start_paused = true)]
async fn the_next_leader_takes_no_quota_from_a_set_of_which_it_has_not_seen_that_it_grew() {
    let world = World::new(false).await;
    world.queue("a", "", json!({ "nominalQuota": 2 }), json!({})).await;
    world.install_webhooks(&Configuration::default()).await;
    let first = world.start("one");
    world.settle().await;
    world.create("apps", "statefulsets", stateful_set(1, spec())).await;
    world.settle().await;
    let scale = async |replicas: i64| {
        let scale = |set: &mut Value| set["spec"]["replicas"] = json!(replicas);
        world.update("apps", "statefulsets", "db", false, scale).await;
    };
    scale(0).await;
    world.settle().await;
    assert_eq!(world.condition("db", "QuotaReserved").unwrap().1, "OnHold");
    world.start("two");
    world.settle().await;
    let late = Aim::default().by("two").on(GroupResource::new("apps", "statefulsets"));
    world.cluster.faults().add_watch(late, 1_000_000, u64::MAX, WatchFault::Delay(Duration::from_secs(200)));
    scale(1).await;
    world.settle().await;
    assert!(world.is("db", "QuotaReserved"));
    first.kill();
    world.settle().await;
    world.settle().await;
    assert!(world.is("db", "QuotaReserved"));
}

/// An older Kueue made it by that name, say, or lost its owners.
#[tokio::test(start_paused = true)]
async fn a_set_takes_over_the_workload_of_its_name_that_nobody_owns() {
    for is_old in [true, false] {
        let world = World::with_webhooks(1).await;
        world.create("apps", "statefulsets", stateful_set(0, spec())).await;
        let uid =
            world.get("apps", "statefulsets", "db").unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
        let name = workload_name("apps", "StatefulSet", "db", if is_old { "" } else { &uid });
        let pod_sets = json!([{ "name": "main", "count": 1, "template": { "spec": spec() } }]);
        let workload = json!({
            "metadata": { "name": name, "namespace": "team", "annotations": { "kueue.x-k8s.io/is-group-workload": "true" } },
            "spec": { "queueName": "a", "podSets": pod_sets },
        });
        world.create(GROUP, "workloads", workload).await;
        world.settle().await;
        world.update("apps", "statefulsets", "db", false, |set| set["spec"]["replicas"] = json!(1)).await;
        world.settle().await;
        replica(&world, "db-0").await;
        world.settle().await;
        let workloads =
            world.cluster.store("reader").list(&GroupResource::new(GROUP, "workloads"), Some("team"));
        assert_eq!(workloads.len(), 1, "{is_old}");
        let metadata = &workloads[0].value()["metadata"];
        let owners = metadata["ownerReferences"].as_array().unwrap();
        assert!(
            owners.iter().any(|owner| owner["uid"] == json!(uid) && owner["kind"] == "StatefulSet"),
            "{metadata}"
        );
        assert_eq!(metadata["annotations"]["kueue.x-k8s.io/job-owner-name"], "db");
        assert_eq!(metadata["annotations"]["kueue.x-k8s.io/job-owner-gvk"], "apps/v1, Kind=StatefulSet");
        assert_eq!(pod(&world, "db-0").pointer(GROUP_NAME), Some(&json!(name)));
        assert!(!world.is_behind(GATE, "db-0"), "{is_old}");
    }
}

/// A job's first Workload has ended, and somebody made another for it, which waits.
#[tokio::test(start_paused = true)]
async fn a_workload_that_has_ended_stands_in_no_other_ones_way() {
    let world = World::with_webhooks(0).await;
    world.pytorch("llama", "a", 2).await;
    world.settle().await;
    let first = world.workload("llama").unwrap();
    let name = first["metadata"]["name"].as_str().unwrap();
    let now = world.stamp();
    let end = |workload: &mut Value| {
        workload["status"]["conditions"] = json!([{
            "type": "Finished", "status": "True", "reason": "OutOfSync", "message": "", "lastTransitionTime": now,
        }]);
    };
    world.update(GROUP, "workloads", name, true, end).await;
    world.pass(5).await;
    world.create(GROUP, "workloads", copied(&first, "second")).await;
    world.settle().await;
    let enough = |queue: &mut Value| {
        queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = json!(2);
    };
    world.update(GROUP, "clusterqueues", "a", false, enough).await;
    world.settle().await;
    assert!(!world.is_suspended("llama"), "{:?}", world.workload_named("second"));
    assert!(world.workload_named(name).is_some());
}

/// One of its pods takes long to end. Meanwhile its controller makes the other one anew.
#[tokio::test(start_paused = true)]
async fn a_new_pod_waits_until_the_workload_that_was_deleted_is_gone() {
    let world = World::with_webhooks(2).await;
    world.create("apps", "statefulsets", stateful_set(2, spec())).await;
    world.settle().await;
    for name in ["db-0", "db-1"] {
        replica(&world, name).await;
    }
    world.settle().await;
    for name in ["db-0", "db-1"] {
        assert!(!world.is_behind(GATE, name));
        world.update("", "pods", name, true, |pod| pod["status"]["phase"] = json!("Running")).await;
    }
    // On a node it has time to end.
    world.bind("db-1", "n1").await;
    let name = world.workload_name("db");
    delete(&world, GROUP, "workloads", &name).await;
    world.settle().await;
    assert_eq!(world.get("", "pods", "db-0"), None);
    replica(&world, "db-0").await;
    let uid = pod(&world, "db-0")["metadata"]["uid"].clone();
    world.settle().await;
    let waits = pod(&world, "db-0");
    assert_eq!((&waits["metadata"]["uid"], waits.pointer(GROUP_NAME)), (&uid, None));
    let pods = GroupResource::new("", "pods");
    world.cluster.store("kubelet").delete(&pods, "team", "db-1", DeleteOptions::now()).await.unwrap();
    world.settle().await;
    replica(&world, "db-1").await;
    world.settle().await;
    for name in ["db-0", "db-1"] {
        assert!(!world.is_behind(GATE, name), "{}", pod(&world, name));
    }
}

/// The owner of `db`, or of anything else.
async fn above(world: &World, metadata: Value) -> Value {
    let spec = json!({ "suspend": true, "replicatedJobs": [] });
    let owner =
        world.create("jobset.x-k8s.io", "jobsets", json!({ "metadata": metadata, "spec": spec })).await;
    owned_by(owner.value())
}

/// What an owner without a queue makes is managed by itself where it names one.
#[tokio::test(start_paused = true)]
async fn what_names_a_queue_waits_for_quota_where_its_owner_names_none() {
    for owner_waits in [false, true] {
        let world = World::with_webhooks(0).await;
        let own_metadata = json!({ "name": "above", "namespace": "team" });
        let owner = above(&world, if owner_waits { in_queue("above") } else { own_metadata }).await;
        world.settle().await;
        let owned = |mut object: Value| {
            object["metadata"]["ownerReferences"] = owner.clone();
            object
        };
        let set = world.create("apps", "statefulsets", owned(stateful_set(1, spec()))).await;
        let alone = json!({ "metadata": in_queue("alone"), "spec": spec() });
        world.create("", "pods", owned(alone)).await;
        world.settle().await;
        let template = &set.value()["spec"]["template"];
        assert_eq!(template.pointer(SUSPENDED_BY).is_some(), !owner_waits, "{template}");
        assert_eq!(world.workload("db").is_some(), !owner_waits);
        assert_eq!(world.is_behind(GATE, "alone"), !owner_waits);
        assert_eq!(world.workload("alone").is_some(), !owner_waits);
    }
}

/// A replica that lags marks a set, or lets it be, whatever its owner says by now.
#[tokio::test(start_paused = true)]
async fn whether_the_pods_of_a_set_wait_is_settled_by_its_mark() {
    for (owner_waits, marked) in [(false, false), (false, true), (true, false), (true, true)] {
        let world = World::running(0).await;
        let own_metadata = json!({ "name": "above", "namespace": "team" });
        let owner = above(&world, if owner_waits { in_queue("above") } else { own_metadata }).await;
        let mut set = stateful_set(1, spec());
        set["metadata"]["ownerReferences"] = owner;
        if marked {
            let annotations = json!({ "kueue.x-k8s.io/pod-suspending-parent": "statefulset" });
            set["spec"]["template"]["metadata"]["annotations"] = annotations;
        }
        world.create("apps", "statefulsets", set).await;
        world.settle().await;
        let case = format!("{owner_waits} {marked}");
        assert_eq!(world.workload("db").is_some(), marked, "{case}");
        let told = world.told_of("StatefulSet", "db").contains(&"PodsNotGated".to_owned());
        assert_eq!(told, !owner_waits && !marked, "{case}");
    }
}

/// They wait for their controller as long as it likes: it says when they are to be seen, and in which group.
#[tokio::test(start_paused = true)]
async fn pods_that_are_held_back_for_somebody_elses_controller_are_nobodys_until_it_says_so() {
    let world = World::with_webhooks(1).await;
    let mut metadata = in_queue("held");
    metadata["annotations"] = json!({ "kueue.x-k8s.io/pod-suspending-parent": "their-framework" });
    world.create("", "pods", json!({ "metadata": metadata, "spec": spec() })).await;
    world.settle().await;
    let held = pod(&world, "held");
    assert!(world.is_behind(GATE, "held"));
    let metadata = &held["metadata"];
    let is_marked = metadata["labels"].get("kueue.x-k8s.io/managed").is_some();
    let has_role = metadata["annotations"].get("kueue.x-k8s.io/role-hash").is_some();
    assert_eq!((is_marked, has_role, metadata.get("finalizers")), (false, true, None));
    assert!(world.workload("held").is_none());
    let join = |pod: &mut Value| {
        pod["metadata"]["labels"]["kueue.x-k8s.io/managed"] = json!("true");
        pod["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"] = json!("theirs");
        pod["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"] = json!("1");
    };
    world.update("", "pods", "held", false, join).await;
    world.settle().await;
    assert!(world.workload_named("theirs").is_some());
    assert!(!world.is_behind(GATE, "held"));
}

fn on_pods(verb: Verb) -> Aim {
    Aim { verbs: vec![verb], ..Aim::default() }.by("layer1").on(GroupResource::new("", "pods"))
}

/// Its pod cannot be deleted yet, and there is quota meanwhile.
#[tokio::test(start_paused = true)]
async fn who_is_deleted_gets_no_quota_any_more() {
    let world = World::with_webhooks(0).await;
    world.create("", "pods", json!({ "metadata": in_queue("solo"), "spec": spec() })).await;
    world.settle().await;
    let workload = || world.workload("solo").unwrap();
    let name = workload()["metadata"]["name"].as_str().unwrap().to_owned();
    world.cluster.faults().add(on_pods(Verb::Delete), 1_000_000, u64::MAX, Fault::ServerError(500));
    delete(&world, GROUP, "workloads", &name).await;
    world
        .update(GROUP, "clusterqueues", "a", false, |queue| {
            queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = json!(8);
        })
        .await;
    world.settle().await;
    assert!(workload()["metadata"]["deletionTimestamp"].is_string(), "it is kept until its pod is deleted");
    assert!(!world.is("solo", "QuotaReserved") && world.is_behind(GATE, "solo"));
}

/// The first attempt meets a conflict, and what is read then waits still.
#[tokio::test(start_paused = true)]
async fn that_a_pod_was_started_is_told_once() {
    let world = World::with_webhooks(4).await;
    world.cluster.faults().add(on_pods(Verb::Patch), 1_000_000, 1, Fault::Conflict);
    world.create("", "pods", json!({ "metadata": in_queue("solo"), "spec": spec() })).await;
    world.settle().await;
    assert!(!world.is_behind(GATE, "solo"));
    let events = world.cluster.store("reader").list(&GroupResource::new("", "events"), Some("team"));
    let started = events.iter().map(|event| event.value()).filter(|event| event["reason"] == "Started");
    let counts: Vec<&Value> = started.map(|event| &event["count"]).collect();
    assert_eq!(counts, [1]);
}
