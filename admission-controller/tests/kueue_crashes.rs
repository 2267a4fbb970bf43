//! What made Kueue crash, count wrongly what a job brings along, or let pods go that had no quota: as scenarios of the whole program.
//! The numbers are those of its issues and pull requests.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::path::Path;

use admission_controller::{Config, Configuration};
use cluster_sim::GroupResource;
use serde_json::{Value, json};
use support::{World, pytorch};

const GROUP: &str = "kueue.x-k8s.io";
const RACK: &str = "example.com/rack";
const HOST: &str = "kubernetes.io/hostname";

/// After whatever might have made it crash: the program goes on.
async fn still_works(world: &World, queue: &str) {
    world.pytorch("after-all", queue, 1).await;
    world.settle().await;
    assert!(world.is("after-all", "Admitted"), "{:?}", world.workload("after-all"));
}

fn workloads(world: &World) -> Vec<Value> {
    let id = GroupResource::new(GROUP, "workloads");
    let all = world.cluster.store("reader").list(&id, Some("team"));
    all.iter().map(|one| one.value().clone()).collect()
}

/// Queue `a` of so much cpu, and memory in plenty.
async fn cpu_queue(world: &World, cpu: &str) {
    let quotas = json!([{ "name": "cpu", "nominalQuota": cpu }, { "name": "memory", "nominalQuota": "1Ti" }]);
    let flavors = json!([{ "name": "a100", "resources": quotas }]);
    let groups = json!([{ "coveredResources": ["cpu", "memory"], "flavors": flavors }]);
    let queue =
        json!({ "metadata": { "name": "a" }, "spec": { "namespaceSelector": {}, "resourceGroups": groups } });
    world.create(GROUP, "clusterqueues", queue).await;
    let local = json!({ "metadata": { "name": "a", "namespace": "team" }, "spec": { "clusterQueue": "a" } });
    world.create(GROUP, "localqueues", local).await;
}

/// Queue `a` of 16 GPUs on two racks of two nodes.
async fn racks(world: &World) {
    for (rack, node) in [("r1", "n1"), ("r1", "n2"), ("r2", "n3"), ("r2", "n4")] {
        let node = json!({
            "metadata": { "name": node, "labels": { RACK: rack, HOST: node } },
            "status": {
                "allocatable": { "nvidia.com/gpu": "4", "cpu": "8", "pods": "20" },
                "conditions": [{ "type": "Ready", "status": "True", "reason": "", "message": "",
                    "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z" }],
            },
        });
        world.create("", "nodes", node).await;
    }
    let levels = json!([{ "nodeLabel": RACK }, { "nodeLabel": HOST }]);
    let topology = json!({ "metadata": { "name": "racks" }, "spec": { "levels": levels } });
    world.create(GROUP, "topologies", topology).await;
    world
        .update(GROUP, "resourceflavors", "a100", false, |flavor| {
            flavor["spec"] = json!({ "nodeLabels": {}, "topologyName": "racks" });
        })
        .await;
    world.queue("a", "", json!({ "nominalQuota": 16 }), json!({})).await;
}

async fn node_goes(world: &World, name: &str) {
    let nodes = GroupResource::new("", "nodes");
    world.cluster.store("user").delete(&nodes, "", name, Default::default()).await.unwrap();
    world.settle().await;
}

fn is_gated(world: &World, pod: &str) -> bool {
    let pod = world.get("", "pods", pod).unwrap();
    pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty())
}

/// An elastic job has quota for two pods and wants six. However its pods come and go, no more than two are let go, and one
/// that has ended makes room for the next.
#[tokio::test(start_paused = true)]
async fn kueue_12045_pods_beyond_the_quota_stay_behind_their_gate() {
    let world = World::new(false).await;
    world.queue("a", "", json!({ "nominalQuota": 4 }), json!({})).await;
    let first = world.start("one");
    world.settle().await;
    world.install_webhooks(&Configuration::default()).await;
    let gpu = json!({ "limits": { "nvidia.com/gpu": 1 } });
    let job = json!({
        "metadata": {
            "name": "grows", "namespace": "team", "labels": { "kueue.x-k8s.io/queue-name": "a" },
            "annotations": { "kueue.x-k8s.io/elastic-job": "true" },
        },
        "spec": {
            "parallelism": 2,
            "template": { "spec": { "restartPolicy": "Never", "containers": [{ "name": "c", "image": "i", "resources": gpu }] } },
        },
    });
    world.create("batch", "jobs", job).await;
    world.settle().await;
    world.pass(2).await;
    world.update("batch", "jobs", "grows", false, |job| job["spec"]["parallelism"] = json!(6)).await;
    world.settle().await;
    let template = world.get("batch", "jobs", "grows").unwrap()["spec"]["template"].clone();
    // Those of the surplus come first.
    for name in ["p0", "p1", "p2", "p3", "p4", "p5"] {
        let metadata = json!({
            "name": name, "namespace": "team",
            "labels": template["metadata"]["labels"], "annotations": template["metadata"]["annotations"],
        });
        world.create("", "pods", json!({ "metadata": metadata, "spec": template["spec"] })).await;
    }
    let let_go = || ["p0", "p1", "p2", "p3", "p4", "p5"].into_iter().filter(|pod| !is_gated(&world, pod));
    world.settle().await;
    assert_eq!(let_go().count(), 2);
    // Whoever leads next knows it too.
    first.kill();
    world.start("two");
    world.pass(60).await;
    assert_eq!(let_go().count(), 2);
    let ended = let_go().next().unwrap();
    world.update("", "pods", ended, true, |pod| pod["status"]["phase"] = json!("Succeeded")).await;
    world.settle().await;
    assert_eq!(let_go().count(), 3, "the one that has ended needs its quota no more");
}

/// KubeRay puts a container beside the head that submits the job: the head's pod asks for that much more.
#[tokio::test(start_paused = true)]
async fn kueue_12454_the_container_that_submits_a_ray_job_is_counted() {
    let world = World::new(false).await;
    cpu_queue(&world, "2400m").await;
    world.start("one");
    let template = json!({ "spec": { "containers": [{
        "name": "ray", "image": "ray", "resources": { "requests": { "cpu": "1" } },
    }]}});
    let job = json!({
        "metadata": { "name": "ray", "namespace": "team", "labels": { "kueue.x-k8s.io/queue-name": "a" } },
        "spec": {
            "suspend": true, "submissionMode": "SidecarMode", "shutdownAfterJobFinishes": true, "entrypoint": "x",
            "rayClusterSpec": {
                "headGroupSpec": { "rayStartParams": {}, "template": template },
                "workerGroupSpecs": [{ "groupName": "w", "replicas": 1, "minReplicas": 1, "maxReplicas": 1,
                    "rayStartParams": {}, "template": template }],
            },
        },
    });
    world.create("ray.io", "rayjobs", job).await;
    world.settle().await;
    assert!(!world.is("ray", "QuotaReserved"), "head, worker and submitter ask for 2500m");
    world
        .update(GROUP, "clusterqueues", "a", false, |queue| {
            queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = json!("2500m");
        })
        .await;
    world.settle().await;
    assert!(world.is("ray", "Admitted"));
    let held = world.workload("ray").unwrap()["status"]["admission"]["podSetAssignments"].clone();
    let cpu = |index: usize| held[index]["resourceUsage"]["cpu"].clone();
    assert_eq!((held[0]["name"].as_str(), cpu(0), cpu(1)), (Some("head"), json!("1500m"), json!("1")));
}

/// A Workload says that its pods are in subgroups, and of how many: none at all, or it does not say. Its pods get their places one
/// after another.
#[tokio::test(start_paused = true)]
async fn kueue_12807_subgroups_without_a_number_are_placed_in_turn() {
    for count in [json!(0), Value::Null] {
        let world = World::new(false).await;
        racks(&world).await;
        world.start("one");
        world.settle().await;
        let mut wish = json!({ "required": RACK, "podIndexLabel": "index", "subGroupIndexLabel": "group" });
        if count.is_number() {
            wish["subGroupCount"] = count.clone();
        }
        let gpu = json!({ "requests": { "nvidia.com/gpu": 1 }, "limits": { "nvidia.com/gpu": 1 } });
        let spec = json!({ "containers": [{ "name": "c", "image": "i", "resources": gpu }], "restartPolicy": "Never" });
        let pod_set =
            json!({ "name": "main", "count": 3, "topologyRequest": wish, "template": { "spec": spec } });
        let workload = json!({
            "metadata": { "name": "groups", "namespace": "team" },
            "spec": { "queueName": "a", "podSets": [pod_set] },
        });
        world.create(GROUP, "workloads", workload).await;
        world.settle().await;
        for index in 0..3 {
            let mut pod = json!({
                "metadata": {
                    "name": format!("pod-{index}"), "namespace": "team",
                    "labels": { "kueue.x-k8s.io/podset": "main", "index": index.to_string(), "group": "0" },
                    "annotations": { "kueue.x-k8s.io/workload": "groups", "kueue.x-k8s.io/podset-required-topology": RACK },
                },
                "spec": spec,
            });
            pod["spec"]["schedulingGates"] = json!([{ "name": "kueue.x-k8s.io/topology" }]);
            world.create("", "pods", pod).await;
        }
        world.settle().await;
        for index in 0..3 {
            assert!(!is_gated(&world, &format!("pod-{index}")), "{index}, of {count} subgroups");
        }
        still_works(&world, "a").await;
    }
}

/// A node goes while a workload that wants a topology has no quota, and so no places.
#[tokio::test(start_paused = true)]
async fn kueue_10036_a_node_goes_while_somebody_waits_for_places() {
    let world = World::new(false).await;
    racks(&world).await;
    world.start("one");
    let mut job = pytorch("waits", "a", 20);
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["metadata"] =
        json!({ "annotations": { "kueue.x-k8s.io/podset-required-topology": HOST } });
    world.create("kubeflow.org", "pytorchjobs", job).await;
    world.settle().await;
    assert!(!world.is("waits", "QuotaReserved"));
    node_goes(&world, "n2").await;
    still_works(&world, "a").await;
}

/// The nodes of a domain are gone while others are looked for, so that nobody uses anything of it.
#[tokio::test(start_paused = true)]
async fn kueue_13560_a_domain_of_which_nothing_is_used() {
    let world = World::new(false).await;
    racks(&world).await;
    world.start("one");
    world.settle().await;
    for node in ["n1", "n2", "n3"] {
        node_goes(&world, node).await;
    }
    let mut job = pytorch("spread", "a", 5);
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["metadata"] =
        json!({ "annotations": { "kueue.x-k8s.io/podset-preferred-topology": RACK } });
    world.create("kubeflow.org", "pytorchjobs", job).await;
    world.settle().await;
    let (_, _, message) = world.condition("spread", "QuotaReserved").unwrap();
    assert!(message.contains("4 of 5"), "{message}");
    still_works(&world, "a").await;
}

/// A role of an MPIJob that is there and empty.
#[tokio::test(start_paused = true)]
async fn kueue_13714_a_role_without_a_specification() {
    let world = World::new(true).await;
    world.start("one");
    world.settle().await;
    world.queue("a", "", json!({ "nominalQuota": 8 }), json!({})).await;
    let gpu = json!({ "limits": { "nvidia.com/gpu": 1 } });
    let template = json!({ "spec": { "containers": [{ "name": "c", "image": "i", "resources": gpu }] } });
    let job = json!({
        "metadata": { "name": "mpi", "namespace": "team", "labels": { "kueue.x-k8s.io/queue-name": "a" } },
        "spec": {
            "runPolicy": { "suspend": true },
            "mpiReplicaSpecs": { "Launcher": null, "Worker": { "replicas": 2, "template": template } },
        },
    });
    world.create("kubeflow.org", "mpijobs", job).await;
    world.settle().await;
    assert!(world.is("mpi", "Admitted"), "{:?}", world.told());
    let sets = world.workload("mpi").unwrap()["spec"]["podSets"].clone();
    assert_eq!((&sets[0]["name"], &sets[0]["count"]), (&json!("worker"), &json!(2)));
    assert!(sets[1].is_null(), "the empty role has no pods: {sets}");
    let started = world.get("kubeflow.org", "mpijobs", "mpi").unwrap();
    assert_eq!(started["spec"]["runPolicy"]["suspend"], false);
    let worker = &started["spec"]["mpiReplicaSpecs"]["Worker"];
    assert_eq!(worker["template"]["spec"]["nodeSelector"], json!({ "gpu": "a100" }));
    still_works(&world, "a").await;
}

/// One that waits, and so has no admission, is edited where concurrent admission is switched on.
#[tokio::test(start_paused = true)]
async fn kueue_11561_a_workload_without_an_admission_is_edited() {
    let world = World::new(false).await;
    world.queue("a", "", json!({ "nominalQuota": 1 }), json!({})).await;
    let file = Configuration::parse(Path::new("f"), "featureGates: { ConcurrentAdmission: true }").unwrap();
    world.start_with("one", Config { file, ..Config::default() });
    world.pytorch("waits", "a", 2).await;
    world.settle().await;
    let name = world.workload_name("waits");
    for flavors in ["h100", "a100"] {
        let edit = |workload: &mut Value| {
            workload["metadata"]["annotations"]["kueue.x-k8s.io/workload-allowed-resource-flavors"] =
                json!(flavors);
        };
        world.update(GROUP, "workloads", &name, false, edit).await;
        world.settle().await;
        assert!(!world.is("waits", "QuotaReserved"), "{flavors}");
    }
    still_works(&world, "a").await;
    let enough = |queue: &mut Value| {
        queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = json!(3);
    };
    world.update(GROUP, "clusterqueues", "a", false, enough).await;
    world.settle().await;
    assert!(world.is("waits", "Admitted"), "{:?}", world.workload("waits"));
}

/// A Workload without a priority waits behind others.
#[tokio::test(start_paused = true)]
async fn kueue_14411_a_workload_that_names_no_priority_waits_like_any_other() {
    let world = World::new(false).await;
    world
        .queue("a", "", json!({ "nominalQuota": 1 }), json!({ "withinClusterQueue": "LowerPriority" }))
        .await;
    world.start("one");
    world.settle().await;
    let gpu = json!({ "requests": { "nvidia.com/gpu": 4 } });
    let spec =
        json!({ "containers": [{ "name": "c", "image": "i", "resources": gpu }], "restartPolicy": "Never" });
    let bare = json!({
        "metadata": { "name": "bare", "namespace": "team" },
        "spec": { "queueName": "a", "podSets": [{ "name": "main", "count": 1, "template": { "spec": spec } }] },
    });
    world.create(GROUP, "workloads", bare).await;
    world.settle().await;
    assert!(world.workload_named("bare").unwrap()["spec"]["priority"].is_null());
    assert!(world.metrics().await.contains("kueue_pending_workloads"));
    world.serve_visibility().await;
    let shown = world.pending_in("a").await;
    let item = &shown["items"][0];
    assert_eq!((&item["metadata"]["name"], &item["priority"]), (&json!("bare"), &json!(0)), "{shown}");
    still_works(&world, "a").await;
}

/// A Workload of pods as somebody makes it by hand: pod sets by name, with how many pods, and what each container asks for.
fn by_hand(name: &str, priority: i64, sets: &[(&str, i64, &[&str])]) -> Value {
    let set = |(name, count, gpus): &(&str, i64, &[&str])| {
        let container = |(at, gpus): (usize, &&str)| json!({ "name": format!("c{at}"), "image": "i", "resources": { "requests": { "nvidia.com/gpu": gpus } } });
        let containers: Vec<Value> = gpus.iter().enumerate().map(container).collect();
        let template = json!({ "spec": { "restartPolicy": "Never", "containers": containers } });
        json!({ "name": name, "count": count, "template": template })
    };
    let sets: Vec<Value> = sets.iter().map(set).collect();
    json!({
        "metadata": { "name": name, "namespace": "team" },
        "spec": { "queueName": "a", "priority": priority, "podSets": sets },
    })
}

/// All pods of one of its sets have ended when it has to leave; placed anew that set has no pods, and so no places.
#[tokio::test(start_paused = true)]
async fn kueue_10478_a_pod_set_of_which_nothing_is_left_is_placed_nowhere_again() {
    let world = World::new(false).await;
    racks(&world).await;
    let preempts =
        |queue: &mut Value| queue["spec"]["preemption"] = json!({ "withinClusterQueue": "LowerPriority" });
    world.update(GROUP, "clusterqueues", "a", false, preempts).await;
    world.start("one");
    let mut workload = by_hand("lives", 0, &[("main", 2, &["2"]), ("done", 2, &["2"])]);
    for set in workload["spec"]["podSets"].as_array_mut().unwrap() {
        set["topologyRequest"] = json!({ "required": RACK });
    }
    world.create(GROUP, "workloads", workload).await;
    world.settle().await;
    assert!(world.holds("lives", "Admitted"));
    let ended = |one: &mut Value| one["status"]["reclaimablePods"] = json!([{ "name": "done", "count": 2 }]);
    world.update(GROUP, "workloads", "lives", true, ended).await;
    let mut urgent = by_hand("urgent", 10, &[("main", 4, &["4"])]);
    urgent["spec"]["podSets"][0]["topologyRequest"] = json!({ "preferred": RACK });
    world.create(GROUP, "workloads", urgent).await;
    world.settle().await;
    assert!(world.holds("lives", "Evicted"), "{:?}", world.workload_named("lives"));
    // Who owns it stops it, and gives its quota back.
    let released = |one: &mut Value| {
        one["status"].as_object_mut().unwrap().remove("admission");
        for condition in one["status"]["conditions"].as_array_mut().unwrap() {
            if ["QuotaReserved", "Admitted"].contains(&condition["type"].as_str().unwrap()) {
                condition["status"] = json!("False");
            }
        }
    };
    world.update(GROUP, "workloads", "lives", true, released).await;
    world.settle().await;
    assert!(world.holds("urgent", "Admitted"));
    let id = GroupResource::new(GROUP, "workloads");
    world.cluster.store("user").delete(&id, "team", "urgent", Default::default()).await.unwrap();
    world.pass(120).await;
    assert!(world.holds("lives", "Admitted"), "{:?}", world.workload_named("lives"));
    let given = world.workload_named("lives").unwrap()["status"]["admission"]["podSetAssignments"].clone();
    assert!(
        given[0]["topologyAssignment"].is_object() && given[1]["topologyAssignment"].is_null(),
        "{given}"
    );
    assert_eq!(given[1]["count"], 0);
    let quiet = world.attempts("one");
    world.pass(300).await;
    assert_eq!(world.attempts("one"), quiet);
}

/// Its pods have limits and no requests; it does not fit, and then it does.
#[tokio::test(start_paused = true)]
async fn kueue_9894_limits_without_requests_are_no_endless_loop() {
    let world = World::new(false).await;
    world.queue("a", "", json!({ "nominalQuota": 1 }), json!({})).await;
    world.start("one");
    world.pytorch("limited", "a", 2).await;
    world.settle().await;
    assert!(!world.is("limited", "QuotaReserved"));
    let enough = |queue: &mut Value| {
        queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = json!(2);
    };
    world.update(GROUP, "clusterqueues", "a", false, enough).await;
    world.pass(60).await;
    assert!(world.is("limited", "Admitted"), "{:?}", world.workload("limited"));
    let quiet = world.attempts("one");
    world.pass(300).await;
    assert_eq!(world.attempts("one"), quiet);
}

/// A container that asks for less than nothing takes nothing off what another asks for. (The webhook refuses it, but for its gate.)
#[tokio::test(start_paused = true)]
async fn kueue_14367_a_negative_request_cancels_nothing() {
    let world = World::new(false).await;
    world.queue("a", "", json!({ "nominalQuota": 4 }), json!({})).await;
    world.start("one");
    let mut overhead = by_hand("overhead", 10, &[("main", 1, &["5"])]);
    overhead["spec"]["podSets"][0]["template"]["spec"]["overhead"] = json!({ "nvidia.com/gpu": "-3" });
    for workload in [by_hand("containers", 10, &[("main", 1, &["5", "-3"])]), overhead] {
        let name = workload["metadata"]["name"].as_str().unwrap().to_owned();
        world.create(GROUP, "workloads", workload).await;
        world.settle().await;
        let workload = world.workload_named(&name).unwrap();
        let said = workload["status"]["conditions"].as_array().unwrap();
        let reason = &said.iter().find(|one| one["type"] == "QuotaReserved").unwrap()["reason"];
        assert_eq!(reason, "Misconfigured", "{workload}");
    }
    world.create(GROUP, "workloads", by_hand("right", 0, &[("main", 1, &["3"])])).await;
    world.settle().await;
    assert!(world.holds("right", "Admitted"));
    still_works(&world, "a").await;
}

/// Devices by claims are not counted here, so that nothing can be added up wrongly: a workload with one is not admitted and is told why.
#[tokio::test(start_paused = true)]
async fn kueue_12897_and_12945_a_claim_never_passes_uncounted() {
    let world = World::new(false).await;
    world.queue("a", "", json!({ "nominalQuota": 8 }), json!({})).await;
    world.start("one");
    let mut job = pytorch("claims", "a", 1);
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["resourceClaims"] =
        json!([{ "name": "gpus", "resourceClaimTemplateName": "many" }]);
    world.create("kubeflow.org", "pytorchjobs", job).await;
    world.settle().await;
    assert!(!world.is("claims", "QuotaReserved"));
    let (_, _, message) = world.condition("claims", "QuotaReserved").unwrap();
    assert!(message.contains("resourceClaims"), "{message}");
    still_works(&world, "a").await;
    assert_eq!(workloads(&world).len(), 2);
}

/// Nor one that comes when there is quota already, or with a Workload that does not tell of it.
#[tokio::test(start_paused = true)]
async fn a_claim_that_is_added_later_or_not_described_does_not_pass() {
    let world = World::new(false).await;
    world.queue("a", "", json!({ "nominalQuota": 8 }), json!({})).await;
    world.start("one");
    let claims = json!([{ "name": "gpus", "resourceClaimTemplateName": "many" }]);
    const SPEC: &str = "/spec/pytorchReplicaSpecs/Worker/template/spec";
    let claim = |job: &mut Value| job.pointer_mut(SPEC).unwrap()["resourceClaims"] = claims.clone();
    world.create("kubeflow.org", "pytorchjobs", pytorch("later", "a", 1)).await;
    world.settle().await;
    assert!(world.is("later", "Admitted"));
    world.update("kubeflow.org", "pytorchjobs", "later", false, claim).await;
    world.pass(90).await;
    assert!(!world.is("later", "QuotaReserved"));
    let (_, _, message) = world.condition("later", "QuotaReserved").unwrap();
    assert!(message.contains("resourceClaims"), "{message}");

    let mut made = by_hand("made", 0, &[("worker", 1, &["1"])]);
    let mut job = pytorch("named", "a", 1);
    job["metadata"]["labels"]["kueue.x-k8s.io/prebuilt-workload-name"] = json!("made");
    made["spec"]["podSets"][0]["template"]["spec"] = job.pointer(SPEC).unwrap().clone();
    claim(&mut job);
    world.create(GROUP, "workloads", made).await;
    world.create("kubeflow.org", "pytorchjobs", job).await;
    world.pass(90).await;
    assert!(!world.holds("made", "Admitted"));
    let job = world.get("kubeflow.org", "pytorchjobs", "named").unwrap();
    assert_eq!(job["spec"]["runPolicy"]["suspend"], true);
    still_works(&world, "a").await;
}
