//! What reaches layer 1 by its own objects, written by hand and wrong: numbers, counts, names, graphs, owners, times. It is refused or
//! told on the object itself, nothing is admitted by it, and the neighbour is admitted as if it were not there.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use cluster_sim::faults::{Aim, Fault};
use cluster_sim::{GroupResource, Object, Part};
use serde_json::{Value, json};
use support::{World, owned_by, pytorch};

const KUEUE: &str = "kueue.x-k8s.io";

fn workload(name: &str, change: impl Fn(&mut Value)) -> Value {
    let mut workload = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": { "name": name, "namespace": "team" },
        "spec": { "queueName": "a", "active": true, "priority": 0, "podSets": [{ "name": "main", "count": 1, "template": { "spec": {
            "restartPolicy": "Never",
            "containers": [{ "name": "c", "image": "x", "resources": { "requests": { "nvidia.com/gpu": "1" } } }] } } }] },
    });
    change(&mut workload);
    workload
}

fn gpus(amount: Value) -> impl Fn(&mut Value) {
    move |one| {
        one["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"] =
            amount.clone()
    }
}

/// The answer to a creation: what the object became, or why it was refused.
async fn create(world: &World, object: Value) -> Result<(), String> {
    let kind = object["kind"].as_str().unwrap().to_lowercase();
    let id = GroupResource::new(KUEUE, &format!("{kind}s"));
    world.cluster.store("user").create(&id, object).await.map(|_| ()).map_err(|error| error.to_string())
}

fn condition(object: &Value, kind: &str) -> Option<Value> {
    object["status"]["conditions"].as_array()?.iter().find(|one| one["type"] == kind).cloned()
}

/// A neighbour asks for what is there, and gets it within 100 ms; then it is gone.
async fn neighbour_is_admitted(world: &World, after: &str) {
    create(world, workload("neighbour", |_| ())).await.unwrap();
    world.sleep(Duration::from_millis(100)).await;
    assert!(world.holds("neighbour", "Admitted"), "the neighbour of {after}");
    let id = GroupResource::new(KUEUE, "workloads");
    world.cluster.store("user").delete(&id, "team", "neighbour", Default::default()).await.unwrap();
    world.settle().await;
    assert!(world.get(KUEUE, "workloads", "neighbour").is_none());
}

/// Every text that is no number, or a number too large or of the wrong kind.
#[tokio::test(start_paused = true)]
async fn odd_quantities_are_refused_or_never_fit() {
    let world = World::with_webhooks(4).await;
    let digits = "9".repeat(400);
    for (amount, refused) in [
        (json!(""), true),
        (json!(" 1"), true),
        (json!("1 "), true),
        (json!("\u{661}"), true),
        (json!("0x10"), true),
        (json!("1Ki1"), true),
        (json!("one"), true),
        (json!("1e"), true),
        (json!("--1"), true),
        (json!("NaN"), true),
        (json!("1,5"), true),
        (json!(digits), true),
        (json!(true), true),
        (json!([]), true),
        (json!("-1"), true),
        (json!("1e400"), false),
        (json!("9223372036854775807"), false),
        (json!("9223372036854775808"), false),
        (json!("8Ei"), false),
        (json!("1E"), false),
        (json!("1.5"), false),
        (json!("500m"), false),
        (json!("0.1n"), false),
        (json!("1e3"), false),
    ] {
        let made = create(&world, workload("odd", gpus(amount.clone()))).await;
        assert_eq!(made.is_err(), refused, "{amount}: {made:?}");
        world.settle().await;
        if !refused {
            assert!(!world.holds("odd", "QuotaReserved"), "{amount}");
            let odd = world.get(KUEUE, "workloads", "odd").unwrap();
            let reason = condition(&odd, "QuotaReserved").unwrap()["reason"].clone();
            assert!(
                ["ExceedsMaxQuota", "Misconfigured"].contains(&reason.as_str().unwrap()),
                "{amount}: {reason}"
            );
        }
        neighbour_is_admitted(&world, &amount.to_string()).await;
        let id = GroupResource::new(KUEUE, "workloads");
        let _none = world.cluster.store("user").delete(&id, "team", "odd", Default::default()).await;
        world.settle().await;
    }
    // These say the same as plain numbers.
    for amount in ["+1", "1e0", "1000m", "1.0", "0.001k"] {
        create(&world, workload("plain", gpus(json!(amount)))).await.unwrap();
        world.settle().await;
        assert!(world.holds("plain", "Admitted"), "{amount}");
        let id = GroupResource::new(KUEUE, "workloads");
        world.cluster.store("user").delete(&id, "team", "plain", Default::default()).await.unwrap();
        world.settle().await;
    }
}

#[tokio::test(start_paused = true)]
async fn odd_counts_and_names_are_refused_or_never_fit() {
    let world = World::with_webhooks(4).await;
    let set = |pointer: &'static str, value: Value| {
        move |one: &mut Value| {
            let (parent, field) = pointer.rsplit_once('/').unwrap();
            one.pointer_mut(parent).unwrap()[field] = value.clone();
        }
    };
    let one_set = workload("x", |_| ())["spec"]["podSets"][0].clone();
    let many: Vec<Value> = (0..19)
        .map(|number| {
            let mut one = one_set.clone();
            one["name"] = json!(format!("s{number}"));
            one
        })
        .collect();
    type Change = Box<dyn Fn(&mut Value)>;
    let refused: Vec<(&str, Change)> = vec![
        ("a count below 0", Box::new(set("/spec/podSets/0/count", json!(-1)))),
        ("a count of more than 32 bits", Box::new(set("/spec/podSets/0/count", json!(1_i64 << 31)))),
        ("a count that is no number", Box::new(set("/spec/podSets/0/count", json!("2")))),
        ("a minCount of 0", Box::new(set("/spec/podSets/0/minCount", json!(0)))),
        ("no pod sets", Box::new(set("/spec/podSets", json!([])))),
        ("19 pod sets", Box::new(set("/spec/podSets", json!(many)))),
        ("two pod sets of one name", Box::new(set("/spec/podSets", json!([one_set, one_set])))),
        ("a pod set's name with capitals", Box::new(set("/spec/podSets/0/name", json!("Main")))),
        ("a pod set's name of 64 letters", Box::new(set("/spec/podSets/0/name", json!("m".repeat(64))))),
        ("a queue's name with a slash", Box::new(set("/spec/queueName", json!("a/b")))),
        ("a queue's name that leads upwards", Box::new(set("/spec/queueName", json!("..")))),
        ("a queue's name with an escape", Box::new(set("/spec/queueName", json!("a%2fb")))),
        ("a queue's name with a control letter", Box::new(set("/spec/queueName", json!("a\u{1b}[31m")))),
        ("a queue's name with a letter that looks alike", Box::new(set("/spec/queueName", json!("\u{430}")))),
        ("a queue's name with a leading dash", Box::new(set("/spec/queueName", json!("-a")))),
        ("a queue's name of 254 letters", Box::new(set("/spec/queueName", json!("q".repeat(254))))),
        ("a name with a tag", Box::new(set("/metadata/name", json!("<script>")))),
        ("a name of 254 letters", Box::new(set("/metadata/name", json!("n".repeat(254))))),
        ("a label's value of 64 letters", Box::new(set("/metadata/labels", json!({ "a": "v".repeat(64) })))),
        ("a priority of more than 32 bits", Box::new(set("/spec/priority", json!(1_i64 << 31)))),
    ];
    for (what, change) in refused {
        assert!(create(&world, workload("odd", change)).await.is_err(), "{what} was taken");
        neighbour_is_admitted(&world, what).await;
    }
    let never: Vec<(&str, &str, Change)> = vec![
        ("a queue that is not there", "Misconfigured", Box::new(set("/spec/queueName", json!("nowhere")))),
        (
            "as many pods as can be counted",
            "ExceedsMaxQuota",
            Box::new(set("/spec/podSets/0/count", json!(i32::MAX))),
        ),
        (
            "no queue",
            "Misconfigured",
            Box::new(|one| {
                one["spec"].as_object_mut().unwrap().remove("queueName");
            }),
        ),
    ];
    for (what, reason, change) in never {
        create(&world, workload("odd", change)).await.unwrap();
        world.settle().await;
        let odd = world.get(KUEUE, "workloads", "odd").unwrap();
        assert_eq!(
            condition(&odd, "QuotaReserved").map(|one| one["reason"].clone()),
            Some(json!(reason)),
            "{what}: {}",
            odd["status"]
        );
        neighbour_is_admitted(&world, what).await;
        let id = GroupResource::new(KUEUE, "workloads");
        world.cluster.store("user").delete(&id, "team", "odd", Default::default()).await.unwrap();
        world.settle().await;
    }
    // The lowest and the highest priority there is, a count of nothing, and a wish for no fewer pods than all, are no mistakes.
    for (name, change) in [
        ("lowest", Box::new(set("/spec/priority", json!(i32::MIN))) as Change),
        ("highest", Box::new(set("/spec/priority", json!(i32::MAX)))),
        ("nothing", Box::new(set("/spec/podSets/0/count", json!(0)))),
        // An API server that knows the rule between the two refuses it.
        ("more-than-all", Box::new(set("/spec/podSets/0/minCount", json!(2)))),
    ] {
        create(&world, workload(name, change)).await.unwrap();
        world.settle().await;
        assert!(world.holds(name, "Admitted"), "{name}");
    }
}

/// A job of no pods waits for nothing and holds nothing; that it is admitted is written once.
#[tokio::test(start_paused = true)]
async fn jobs_of_no_pods_are_admitted_once() {
    let world = World::with_webhooks(4).await;
    let job = |name: &str, parallelism: Value| {
        let gpu = json!({ "limits": { "nvidia.com/gpu": 1 } });
        let pod = json!({ "restartPolicy": "Never", "containers": [{ "name": "c", "image": "x", "resources": gpu }] });
        let labels = json!({ "kueue.x-k8s.io/queue-name": "a" });
        json!({
            "metadata": { "name": name, "namespace": "team", "labels": labels },
            "spec": { "suspend": true, "parallelism": parallelism, "template": { "spec": pod } },
        })
    };
    world.create("batch", "jobs", job("none", json!(0))).await;
    world.create("batch", "jobs", job("unsaid", Value::Null)).await;
    world.pytorch("empty", "a", 0).await;
    world.settle().await;
    for name in ["none", "unsaid", "empty"] {
        assert!(world.is(name, "Admitted"), "{name}: {:?}", world.workload(name));
    }
    let queue = world.get(KUEUE, "clusterqueues", "a").unwrap();
    assert_eq!(queue["status"]["flavorsReservation"][0]["resources"][0]["total"], "1", "that of the one pod");
    let before = world.cluster.revision();
    world.pass(600).await;
    assert_eq!(world.writes("layer1", before), [""; 0]);
}

/// However it is written, a quota is lent to the last device, and no further.
#[tokio::test(start_paused = true)]
async fn odd_quotas_are_lent_to_the_last() {
    let world = World::with_webhooks(4).await;
    world.queue("lends", "pool", json!({ "nominalQuota": 1, "lendingLimit": 1 }), json!({})).await;
    world.queue("borrows", "pool", json!({ "nominalQuota": 0, "borrowingLimit": 1 }), json!({})).await;
    let write = async |queue: &str, fields: &[&str], written: &str| {
        let change = |queue: &mut Value| {
            let quota = &mut queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0];
            fields.iter().for_each(|field| quota[*field] = json!(written));
        };
        world.update(KUEUE, "clusterqueues", queue, false, change).await;
    };
    for (written, given) in [
        ("1e3", 1_000),
        ("0.5", 1),
        ("2500m", 3),
        ("1Ei", 1 << 60),
        ("10E", i64::MAX),
        ("9223372036854775808", i64::MAX),
        ("1e400", i64::MAX),
    ] {
        write("lends", &["nominalQuota", "lendingLimit"], written).await;
        write("borrows", &["borrowingLimit"], written).await;
        let asks = |name: &str, amount: i64| {
            workload(name, |one| {
                one["spec"]["queueName"] = json!("borrows");
                gpus(json!(amount.to_string()))(one);
            })
        };
        if let Some(more) = given.checked_add(1) {
            create(&world, asks("more", more)).await.unwrap();
        }
        create(&world, asks("all", given)).await.unwrap();
        world.settle().await;
        assert!(world.holds("all", "Admitted"), "{written}: {:?}", world.workload_named("all"));
        assert!(!world.holds("more", "QuotaReserved"), "{written}");
        neighbour_is_admitted(&world, written).await;
        let id = GroupResource::new(KUEUE, "workloads");
        for name in ["all", "more"] {
            let _none = world.cluster.store("user").delete(&id, "team", name, Default::default()).await;
        }
        world.settle().await;
    }
}

/// A thousand cohorts in a row; one in the middle goes, and comes back as another's parent.
#[tokio::test(start_paused = true)]
async fn long_chains_of_cohorts_are_followed_and_may_break() {
    let world = World::with_webhooks(4).await;
    const LEVELS: usize = 1_000;
    let cohort = |level: usize| {
        let mut spec = json!({});
        if level > 0 {
            spec["parentName"] = json!(format!("c{}", level - 1));
        } else {
            let quota = json!({ "name": "nvidia.com/gpu", "nominalQuota": 2 });
            spec["resourceGroups"] = json!([{ "coveredResources": ["nvidia.com/gpu"], "flavors": [{ "name": "a100", "resources": [quota] }] }]);
        }
        json!({ "metadata": { "name": format!("c{level}") }, "spec": spec })
    };
    for level in 0..LEVELS {
        world.create(KUEUE, "cohorts", cohort(level)).await;
    }
    world.queue("deep", &format!("c{}", LEVELS - 1), json!({ "nominalQuota": 0 }), json!({})).await;
    world.settle().await;
    create(&world, workload("one", |one| one["spec"]["queueName"] = json!("deep"))).await.unwrap();
    world.settle().await;
    assert!(world.holds("one", "Admitted"), "it borrows from the root");
    neighbour_is_admitted(&world, "a thousand cohorts").await;

    let id = GroupResource::new(KUEUE, "cohorts");
    world.cluster.store("user").delete(&id, "", "c500", Default::default()).await.unwrap();
    world.settle().await;
    create(&world, workload("two", |one| one["spec"]["queueName"] = json!("deep"))).await.unwrap();
    world.settle().await;
    assert!(world.holds("one", "Admitted"), "what runs is left alone");
    assert!(!world.holds("two", "QuotaReserved"), "the root is out of reach");
    neighbour_is_admitted(&world, "a chain that broke").await;
    world.create(KUEUE, "cohorts", cohort(500)).await;
    world.settle().await;
    assert!(world.holds("two", "Admitted"), "and in reach again");
}

/// What an API server that knows no rules between fields refuses of a Topology.
#[tokio::test(start_paused = true)]
async fn odd_levels_are_refused() {
    let world = World::with_webhooks(4).await;
    let id = GroupResource::new(KUEUE, "topologies");
    let many = |count: usize| (0..count).map(|level| format!("example.com/l{level}")).collect::<Vec<_>>();
    for (name, labels, refused) in [
        ("none", vec![], true),
        ("one", many(1), false),
        ("as-many-as-may-be", many(16), false),
        ("too-many", many(20), true),
        ("no-name", vec![String::new()], true),
        ("no-key", vec!["not a key!".to_owned()], true),
    ] {
        let levels: Vec<Value> = labels.iter().map(|label| json!({ "nodeLabel": label })).collect();
        let topology = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Topology",
            "metadata": { "name": name }, "spec": { "levels": levels },
        });
        let made = world.cluster.store("user").create(&id, topology).await;
        assert_eq!(made.is_err(), refused, "{name}");
        neighbour_is_admitted(&world, name).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_may_come_later_than_what_names_it() {
    let world = World::with_webhooks(4).await;
    let local =
        json!({ "metadata": { "name": "early", "namespace": "team" }, "spec": { "clusterQueue": "late" } });
    world.create(KUEUE, "localqueues", local).await;
    create(&world, workload("waits", |one| one["spec"]["queueName"] = json!("early"))).await.unwrap();
    world.settle().await;
    neighbour_is_admitted(&world, "a LocalQueue without its ClusterQueue").await;
    let quota = json!({ "name": "nvidia.com/gpu", "nominalQuota": 1 });
    let spec = json!({ "namespaceSelector": {}, "resourceGroups": [{ "coveredResources": ["nvidia.com/gpu"], "flavors": [{ "name": "a100", "resources": [quota] }] }] });
    world.create(KUEUE, "clusterqueues", json!({ "metadata": { "name": "late" }, "spec": spec })).await;
    world.settle().await;
    assert!(world.holds("waits", "Admitted"));
}

/// Owners that are not there, not meant, or several: a Workload is nobody's job by its owner's name.
#[tokio::test(start_paused = true)]
async fn odd_owners_are_no_jobs() {
    let world = World::with_webhooks(4).await;
    let job = world.pytorch("mine", "a", 1).await;
    let uid = job.value()["metadata"]["uid"].clone();
    world.settle().await;
    assert!(world.is("mine", "Admitted"));
    let owner = |version: &str, kind: &str, name: &str, uid: Value| json!({ "apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": true });
    let long: Vec<Value> = (0..300)
        .map(|number| json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": format!("c{number}"), "uid": format!("u{number}") }))
        .collect();
    for (what, owners, refused) in [
        (
            "another uid than the job's",
            json!([owner("kubeflow.org/v1", "PyTorchJob", "mine", json!("other"))]),
            false,
        ),
        (
            "a kind that nobody knows",
            json!([owner("unicorns.example/v1", "Unicorn", "u", json!("1"))]),
            false,
        ),
        ("a kind without a version", json!([owner("", "PyTorchJob", "mine", uid.clone())]), true),
        ("no kind", json!([owner("kubeflow.org/v1", "", "mine", uid.clone())]), true),
        ("no uid", json!([owner("kubeflow.org/v1", "PyTorchJob", "mine", json!(""))]), true),
        (
            "two controllers",
            json!([owner("batch/v1", "Job", "a", json!("1")), owner("batch/v1", "Job", "b", json!("2"))]),
            true,
        ),
        // Its uid is known once it is made.
        ("itself", json!([owner("kueue.x-k8s.io/v1beta2", "Workload", "odd", json!("self"))]), false),
        ("300 owners", json!(long), false),
    ] {
        let odd = workload("odd", |one| one["metadata"]["ownerReferences"] = owners.clone());
        let made = create(&world, odd).await;
        assert_eq!(made.is_err(), refused, "{what}: {made:?}");
        if what == "itself" {
            let own = |one: &mut Value| {
                one["metadata"]["ownerReferences"][0]["uid"] = one["metadata"]["uid"].clone()
            };
            world.update(KUEUE, "workloads", "odd", false, own).await;
        }
        world.settle().await;
        assert!(world.is("mine", "Admitted") && !world.is_suspended("mine"), "{what}: the job goes on");
        neighbour_is_admitted(&world, what).await;
        let id = GroupResource::new(KUEUE, "workloads");
        let _none = world.cluster.store("user").delete(&id, "team", "odd", Default::default()).await;
        world.settle().await;
        assert!(world.is("mine", "Admitted"), "{what}: nor does its end matter");
    }
}

/// Kueue lets a training job get them while it waits. Its Workload stays where it is, and its owner is told.
#[tokio::test(start_paused = true)]
async fn odd_labels_that_come_after_creation_harm_nobody_else() {
    let world = World::with_webhooks(4).await;
    world.pytorch("mine", "a", 9).await;
    world.settle().await;
    let labels = json!({
        "kueue.x-k8s.io/queue-name": "Team_A", "kueue.x-k8s.io/max-exec-time-seconds": "soon",
    });
    world
        .update("kubeflow.org", "pytorchjobs", "mine", false, |job| {
            job["metadata"]["labels"] = labels.clone();
        })
        .await;
    world.settle().await;
    assert_eq!(world.workload("mine").unwrap()["spec"]["queueName"], "a");
    assert!(world.is_suspended("mine"));
    let told = world.told_of("PyTorchJob", "mine");
    assert!(told.iter().any(|reason| reason == "ErrWorkloadCompose"), "{told:?}");
    neighbour_is_admitted(&world, "a job whose queue cannot be").await;
}

/// Pods that no webhook saw, and a queue that no Workload can name.
#[tokio::test(start_paused = true)]
async fn who_owns_pods_is_told_that_their_workload_cannot_be() {
    let world = World::running(4).await;
    let labels = json!({ "kueue.x-k8s.io/queue-name": "Team_A", "kueue.x-k8s.io/managed": "true" });
    let metadata = json!({ "name": "odd", "namespace": "team", "labels": labels });
    let spec = json!({
        "containers": [{ "name": "c", "image": "i" }], "schedulingGates": [{ "name": "kueue.x-k8s.io/admission" }],
    });
    world.create("", "pods", json!({ "metadata": metadata, "spec": spec })).await;
    world.settle().await;
    let told = world.told_of("Pod", "odd");
    assert!(told.iter().any(|reason| reason == "ErrWorkloadCompose"), "{told:?}");
}

/// Who has too many owners above it, or owners in a circle, is told, and managed as soon as that is put right.
#[tokio::test(start_paused = true)]
async fn odd_chains_of_owners_are_told_on_the_job() {
    const SETS: &str = "jobset.x-k8s.io";
    let world = World::with_webhooks(4).await;
    let set = async |name: &str, owner: Option<&Value>| {
        let mut set = json!({ "metadata": { "name": name, "namespace": "team" }, "spec": {} });
        if let Some(owner) = owner {
            set["metadata"]["ownerReferences"] = owned_by(owner);
        }
        world.create(SETS, "jobsets", set).await.value().clone()
    };
    let mut deep = set("s0", None).await;
    for level in 1..11 {
        let name = format!("s{level}");
        deep = set(name.as_str(), Some(&deep)).await;
    }
    let first = set("first", None).await;
    let second = set("second", Some(&first)).await;
    let round = owned_by(&second);
    world
        .update(SETS, "jobsets", "first", false, |set| set["metadata"]["ownerReferences"] = round.clone())
        .await;
    for (name, owner, loosened) in [("deep", &deep, "s1"), ("round", &second, "first")] {
        let mut job = pytorch(name, "a", 1);
        job["metadata"]["ownerReferences"] = owned_by(owner);
        world.create("kubeflow.org", "pytorchjobs", job).await;
        world.settle().await;
        assert!(world.workload(name).is_none() && world.is_suspended(name), "{name}");
        let told = world.told_of("PyTorchJob", name);
        assert!(told.contains(&"JobNestingTooDeep".to_owned()), "{name}: {told:?}");
        neighbour_is_admitted(&world, name).await;
        let loosen = |set: &mut Value| {
            set["metadata"].as_object_mut().unwrap().remove("ownerReferences");
        };
        world.update(SETS, "jobsets", loosened, false, loosen).await;
        world.settle().await;
        assert!(world.is(name, "Admitted"), "{name}: {:?}", world.workload(name));
    }
}

/// A group of pods whose name somebody else's Workload has waits, and is told, until that is gone.
#[tokio::test(start_paused = true)]
async fn a_group_of_pods_takes_nobodys_workload() {
    let world = World::with_webhooks(4).await;
    create(&world, workload("ring", |_| ())).await.unwrap();
    for name in ["r0", "r1"] {
        let gpu = json!({ "requests": { "nvidia.com/gpu": 1 }, "limits": { "nvidia.com/gpu": 1 } });
        let pod = json!({
            "metadata": {
                "name": name, "namespace": "team",
                "labels": { "kueue.x-k8s.io/queue-name": "a", "kueue.x-k8s.io/pod-group-name": "ring" },
                "annotations": { "kueue.x-k8s.io/pod-group-total-count": "2" },
            },
            "spec": { "containers": [{ "name": "c", "image": "x", "resources": gpu }] },
        });
        world.create("", "pods", pod).await;
    }
    world.settle().await;
    let told = world.told_of("Pod", "r0");
    assert!(told.contains(&"WorkloadNameConflict".to_owned()), "{told:?}");
    let owners = || world.workload_named("ring").unwrap()["metadata"]["ownerReferences"].clone();
    assert!(world.holds("ring", "Admitted") && owners().is_null(), "it is left alone");
    neighbour_is_admitted(&world, "a group without a Workload").await;
    let id = GroupResource::new(KUEUE, "workloads");
    world.cluster.store("user").delete(&id, "team", "ring", Default::default()).await.unwrap();
    world.settle().await;
    assert_eq!(owners().as_array().map(Vec::len), Some(2), "{:?}", world.workload_named("ring"));
    assert!(world.holds("ring", "Admitted"));
}

/// Times that lie far back or far ahead, counts that have run over, and equal ages.
#[tokio::test(start_paused = true)]
async fn odd_times_neither_stop_nor_hurry_others() {
    let world = World::with_webhooks(4).await;
    for (name, state) in [
        ("past", json!({ "count": 1, "requeueAt": "1970-01-01T00:00:00Z" })),
        ("early", json!({ "count": 1, "requeueAt": "0001-01-01T00:00:00Z" })),
        ("often", json!({ "count": 1_000_000 })),
        ("most-often", json!({ "count": i32::MAX, "requeueAt": "1970-01-01T00:00:00Z" })),
    ] {
        world
            .update(KUEUE, "clusterqueues", "a", false, |one| one["spec"]["stopPolicy"] = json!("Hold"))
            .await;
        world.settle().await;
        create(&world, workload(name, |_| ())).await.unwrap();
        let id = GroupResource::new(KUEUE, "workloads");
        let store = world.cluster.store("user");
        let change = |one: &mut Value| {
            one["status"]["requeueState"] = state.clone();
            one["status"]["conditions"] = json!([{ "type": "Requeued", "status": "True",
                "reason": "Backoff", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" }]);
            Ok(())
        };
        store.update(&id, "team", name, Part::Status, change).await.unwrap();
        world
            .update(KUEUE, "clusterqueues", "a", false, |one| one["spec"]["stopPolicy"] = json!("None"))
            .await;
        world.settle().await;
        assert!(
            world.holds(name, "Admitted"),
            "{name}: {:?}",
            world.get(KUEUE, "workloads", name).map(|one| one["status"].clone())
        );
        store.delete(&id, "team", name, Default::default()).await.unwrap();
        world.settle().await;
        neighbour_is_admitted(&world, name).await;
    }
    // Of the same second, and so ordered by uid, whoever leads.
    world.serve_visibility().await;
    let full = workload("full", |one| one["spec"]["podSets"][0]["count"] = json!(4));
    create(&world, full).await.unwrap();
    world.settle().await;
    for number in 0..20 {
        create(&world, workload(&format!("same-{number}"), |_| ())).await.unwrap();
    }
    world.settle().await;
    let summary = world.pending_in("a").await;
    let shown: Vec<&str> = summary["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["metadata"]["name"].as_str().unwrap())
        .collect();
    let mut by_uid = shown.clone();
    let uid = |name: &str| {
        world.get(KUEUE, "workloads", name).unwrap()["metadata"]["uid"].as_str().unwrap().to_owned()
    };
    by_uid.sort_by_key(|name| uid(name));
    assert_eq!((shown.len(), shown), (20, by_uid));
}

/// All that is made comes from the future, or is old, by the clock of the program.
#[tokio::test(start_paused = true)]
async fn a_clock_that_is_wrong_holds_nobody_up() {
    for time in ["2000-01-01T00:00:00Z", "2099-01-01T00:00:00Z"] {
        let world = World::new(true).await;
        world.start_at(time, "layer1");
        world.settle().await;
        world.queue("a", "", json!({ "nominalQuota": 1 }), json!({})).await;
        for job in ["first", "second"] {
            world.pytorch(job, "a", 1).await;
            world.pass(2).await;
        }
        world.settle().await;
        assert!(world.is("first", "Admitted") && !world.is("second", "QuotaReserved"), "{time}");
        let jobs = GroupResource::new("kubeflow.org", "pytorchjobs");
        world.cluster.store("user").delete(&jobs, "team", "first", Default::default()).await.unwrap();
        world.settle().await;
        assert!(world.is("second", "Admitted"), "{time}: {:?}", world.workload("second"));
        // No time that somebody waited is less than none.
        let metrics = world.metrics().await;
        let below = metrics.lines().find(|line| line.starts_with("kueue_") && line.contains(" -"));
        assert_eq!(below, None, "{time}");
    }
}

/// Somebody makes more jobs at once than writes are accepted at a time (4,000), on an API server that takes 20 ms for each.
#[tokio::test(start_paused = true)]
async fn a_flood_of_jobs_holds_no_neighbour_up() {
    let world = World::new(false).await;
    world.create("", "namespaces", json!({ "metadata": { "name": "other" } })).await;
    world.start("layer1");
    world.queue("a", "", json!({ "nominalQuota": 3 }), json!({})).await;
    world.queue("b", "", json!({ "nominalQuota": 4 }), json!({})).await;
    let local = json!({ "metadata": { "name": "b", "namespace": "other" }, "spec": { "clusterQueue": "b" } });
    world.create(KUEUE, "localqueues", local).await;
    world.settle().await;
    let slow = Fault::Latency(Duration::from_millis(20));
    world.cluster.faults().add(Aim::writes().by("layer1"), 1_000_000, u64::MAX, slow);
    for number in 0..6_000 {
        world.pytorch(&format!("flood-{number}"), "a", 1).await;
        if number % 100 == 0 {
            // A watch that is not read for a thousand events is closed.
            world.sleep(Duration::from_millis(1)).await;
        }
    }
    let workloads = GroupResource::new(KUEUE, "workloads");
    let of_others = || world.cluster.store("reader").list(&workloads, Some("other"));
    let of_flood = || world.cluster.store("reader").list(&workloads, Some("team")).len();
    for number in 0..3 {
        world.sleep(Duration::from_millis(20)).await;
        let mut job = pytorch(&format!("neighbour-{number}"), "b", 1);
        job["metadata"]["namespace"] = json!("other");
        world.create("kubeflow.org", "pytorchjobs", job).await;
        world.sleep(Duration::from_millis(100)).await;
        let admitted =
            |one: &Arc<Object>| condition(one.value(), "Admitted").is_some_and(|one| one["status"] == "True");
        assert_eq!(of_others().iter().filter(|one| admitted(one)).count(), number + 1, "{}", of_flood());
    }
    assert!(of_flood() < 6_000, "the flood was over too soon for this to show anything");
}
