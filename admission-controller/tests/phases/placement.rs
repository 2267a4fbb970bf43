//! Places that are held before an admission: the protocol of `docs/placement-check.md`, with a stand-in for the scheduler, which
//! has one node.

use std::collections::BTreeMap;

use cluster_sim::{GroupResource, Part};
use serde_json::{Value, json};

use super::checks::{answer, ask_for, set_active, states};
use super::support::racks::node_object;
use super::support::{World, pytorch};
use super::{GROUP, activate, config, pair, running, said};

const NODE: &str = "n1";
/// No autoscaler takes a node away of which this is true.
const STAYS: &str = "cluster-autoscaler.kubernetes.io/scale-down-disabled";

/// The scheduler's side: who holds places, by the uid of the Workload, for the pods of each of its pod sets of one GPU each.
struct Scheduler<'a> {
    world: &'a World,
    gpus: i64,
    holds: BTreeMap<String, Vec<i64>>,
}

impl<'a> Scheduler<'a> {
    /// A queue with quota for eight GPUs that asks for the check and for these others, and a node with fewer.
    async fn beside(world: &'a World, gpus: i64, others: &[&str]) -> Self {
        world.queue("a", "", json!({ "nominalQuota": 8 }), json!({})).await;
        world.create("", "nodes", node_object("r1", NODE)).await;
        let controllers = std::iter::once(("placement", "trireme.dev/placement"))
            .chain(others.iter().map(|name| (*name, "team.example.com/check")));
        let mut rules = Vec::new();
        for (name, controller) in controllers {
            let check = json!({ "metadata": { "name": name }, "spec": { "controllerName": controller } });
            world.create(GROUP, "admissionchecks", check).await;
            set_active(world, name, true).await;
            rules.push(json!({ "name": name }));
        }
        ask_for(world, json!(rules)).await;
        Self { world, gpus, holds: BTreeMap::new() }
    }

    fn free(&self) -> i64 {
        self.gpus - self.holds.values().flatten().sum::<i64>()
    }

    /// Looks at the Workload of a job: holds a place, says that there will be none, or takes back what nobody needs.
    async fn look_at(&mut self, job: &str) {
        self.world.settle().await;
        let Some(workload) = self.world.workload(job) else { return };
        let uid = workload["metadata"]["uid"].as_str().unwrap().to_owned();
        if !self.world.is(job, "QuotaReserved") {
            self.holds.remove(&uid);
        }
        let sets = workload["spec"]["podSets"].as_array().unwrap();
        let counts: Vec<i64> = sets.iter().map(|set| set["count"].as_i64().unwrap()).collect();
        let wanted: i64 = counts.iter().sum();
        let is_asked = self.world.is(job, "QuotaReserved")
            && states(self.world, job).contains(&pair("placement", "Pending"));
        if is_asked && wanted > self.gpus {
            answer(self.world, job, "placement", "Rejected", json!({})).await;
        } else if is_asked && wanted <= self.free() {
            let expires = self.world.seconds() + 120;
            let expires = jiff::Timestamp::from_second(expires).unwrap().to_string();
            let updates = sets.iter().enumerate().map(|(index, set)| {
                json!({ "name": set["name"], "annotations": {
                    "trireme.dev/place-key": format!("{uid}/{index}"), "trireme.dev/place-expires": expires,
                } })
            });
            let updates: Vec<Value> = updates.collect();
            answer(self.world, job, "placement", "Ready", json!({ "podSetUpdates": updates })).await;
            self.holds.insert(uid, counts);
        }
        self.shield().await;
        self.world.settle().await;
    }

    /// A node of a hold without pods stays.
    async fn shield(&self) {
        let stays = !self.holds.is_empty();
        let mark = |node: &mut Value| {
            node["metadata"]["annotations"] = if stays { json!({ STAYS: "true" }) } else { json!({}) };
            Ok(())
        };
        let nodes = GroupResource::new("", "nodes");
        self.world.cluster.store("scheduler").update(&nodes, "", NODE, Part::Main, mark).await.unwrap();
    }

    /// The pods of a job have come: those that ask for what is held for them are bound, and with any other the hold ends. When all
    /// are bound, the job runs.
    async fn verify(&mut self, job: &str, pods: &[String]) {
        let mut bound = 0;
        for name in pods {
            let pod = self.world.get("", "pods", name).unwrap();
            let key = pod["metadata"]["annotations"]["trireme.dev/place-key"].as_str().unwrap();
            let (uid, index) = key.split_once('/').unwrap();
            let Some(held) = self.holds.get_mut(uid) else { continue };
            let containers = pod["spec"]["containers"].as_array().unwrap();
            let gpus = |one: &Value| {
                one["resources"]["limits"]["nvidia.com/gpu"].as_str().unwrap().parse::<i64>().unwrap()
            };
            let left = &mut held[index.parse::<usize>().unwrap()];
            if containers.iter().map(gpus).sum::<i64>() > 1 || *left == 0 {
                self.holds.remove(uid);
                continue;
            }
            *left -= 1;
            self.gpus -= 1;
            self.world.bind(name, NODE).await;
            bound += 1;
        }
        if bound == pods.len() {
            running(self.world, job, true).await;
        }
        self.shield().await;
        self.world.settle().await;
    }
}

/// A master and two workers.
fn three(name: &str) -> Value {
    let mut job = pytorch(name, "a", 2);
    let roles = &mut job["spec"]["pytorchReplicaSpecs"];
    roles["Master"] = roles["Worker"].clone();
    roles["Master"]["replicas"] = json!(1);
    job
}

/// What its controller makes of a job's templates, and changed on its way.
async fn make_pods(world: &World, job: &str, change: impl Fn(&mut Value)) -> Vec<String> {
    let roles = world.job(job)["spec"]["pytorchReplicaSpecs"].clone();
    let mut names = Vec::new();
    for (role, spec) in roles.as_object().unwrap() {
        for index in 0..spec["replicas"].as_i64().unwrap() {
            let mut pod = spec["template"].clone();
            let name = format!("{job}-{}-{index}", role.to_lowercase());
            pod["metadata"]["name"] = json!(name);
            pod["metadata"]["namespace"] = json!("team");
            change(&mut pod);
            world.create("", "pods", pod).await;
            names.push(name);
        }
    }
    world.settle().await;
    names
}

async fn submit(world: &World, name: &str) {
    world.create("kubeflow.org", "pytorchjobs", three(name)).await;
    world.settle().await;
}

#[tokio::test(start_paused = true)]
async fn pods_come_with_the_key_of_the_place_that_is_held_for_them() {
    let world = World::new(false).await;
    let mut scheduler = Scheduler::beside(&world, 4, &[]).await;
    world.start("layer1");
    submit(&world, "first").await;
    assert!(world.is("first", "QuotaReserved") && !world.is("first", "Admitted"));
    scheduler.look_at("first").await;
    assert!(world.is("first", "Admitted") && !world.is_suspended("first"));
    assert_eq!(world.get("", "nodes", NODE).unwrap()["metadata"]["annotations"][STAYS], "true");
    let uid = world.workload("first").unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
    for (role, index) in [("Master", 0), ("Worker", 1)] {
        let template = &world.job("first")["spec"]["pytorchReplicaSpecs"][role]["template"];
        let key = &template["metadata"]["annotations"]["trireme.dev/place-key"];
        assert_eq!(*key, format!("{uid}/{index}"), "{role}");
    }
    // There is quota for the next, and no place: it is not started, and waits for the one before.
    submit(&world, "second").await;
    scheduler.look_at("second").await;
    assert!(world.is("second", "QuotaReserved") && !world.is("second", "Admitted"));
    assert!(world.is_suspended("second"));
    let pods = make_pods(&world, "first", |_| {}).await;
    scheduler.verify("first", &pods).await;
    assert!(pods.iter().all(|name| world.get("", "pods", name).unwrap()["spec"]["nodeName"] == NODE));

    let id = GroupResource::new("kubeflow.org", "pytorchjobs");
    world.cluster.store("user").delete(&id, "team", "first", Default::default()).await.unwrap();
    (scheduler.gpus, scheduler.holds) = (4, BTreeMap::new());
    scheduler.look_at("second").await;
    assert!(world.is("second", "Admitted"));
}

/// More than was asked for comes (a sidecar): the scheduler binds nothing, and the time that pods have to get ready ends it.
#[tokio::test(start_paused = true)]
async fn pods_that_ask_for_more_than_is_held_wait_until_their_admission_ends() {
    for has_sidecar in [false, true] {
        let world = World::new(false).await;
        let mut scheduler = Scheduler::beside(&world, 4, &[]).await;
        world.start_with("layer1", config("waitForPodsReady: { timeout: 5m }\n"));
        submit(&world, "first").await;
        scheduler.look_at("first").await;
        let change = |pod: &mut Value| {
            if has_sidecar {
                let limits = json!({ "limits": { "nvidia.com/gpu": 1 } });
                let sidecar = json!({ "name": "sidecar", "image": "x", "resources": limits });
                pod["spec"]["containers"].as_array_mut().unwrap().push(sidecar);
            }
        };
        let pods = make_pods(&world, "first", change).await;
        scheduler.verify("first", &pods).await;
        world.pass(300).await;
        let evicted =
            world.workload("first").unwrap()["status"]["schedulingStats"]["evictions"][0]["reason"].clone();
        assert_eq!(evicted, if has_sidecar { json!("PodsReadyTimeout") } else { Value::Null });
    }
}

/// The node has failed while another check was awaited.
#[tokio::test(start_paused = true)]
async fn a_place_that_is_lost_before_the_admission_is_looked_for_again() {
    let world = World::new(false).await;
    let mut scheduler = Scheduler::beside(&world, 4, &["budget"]).await;
    world.start("layer1");
    submit(&world, "first").await;
    scheduler.look_at("first").await;
    assert_eq!(states(&world, "first"), [pair("budget", "Pending"), pair("placement", "Ready")]);
    scheduler.holds.clear();
    answer(&world, "first", "placement", "Pending", json!({ "podSetUpdates": [] })).await;
    answer(&world, "first", "budget", "Ready", json!({})).await;
    world.settle().await;
    assert!(!world.is("first", "Admitted") && world.is("first", "QuotaReserved"));
    scheduler.look_at("first").await;
    assert!(world.is("first", "Admitted"));
}

/// No node is large enough: that is said once, and whoever has made it smaller may activate it.
#[tokio::test(start_paused = true)]
async fn who_can_never_be_placed_is_deactivated() {
    let world = World::new(false).await;
    let mut scheduler = Scheduler::beside(&world, 2, &[]).await;
    world.start("layer1");
    submit(&world, "first").await;
    scheduler.look_at("first").await;
    assert_eq!(said(&world, "first", "Evicted"), pair("True", "DeactivatedDueToAdmissionCheck"));
    assert!(!world.is("first", "QuotaReserved") && world.is_suspended("first"));
    scheduler.gpus = 4;
    activate(&world, "first").await;
    scheduler.look_at("first").await;
    assert!(world.is("first", "Admitted"));
}
