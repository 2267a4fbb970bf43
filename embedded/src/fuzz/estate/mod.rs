//! What a large organisation makes of layer 1: cohorts within cohorts, several pools of nodes, shares, checks, topologies,
//! and administrators who change all of that while work runs.
//!
//! An episode has such an estate or not, and an estate has each of its traits or not, as its seed says.

mod churn;
mod jobs;

use std::collections::BTreeMap;

use admission_controller::config::{
    Configuration, FairSharingConfig, PreemptionStrategy, RequeuingStrategy, RequeuingTimestamp,
    WaitForPodsReady,
};
use fastrand::Rng;
use model::duration::GoDuration;
use serde_json::{Value, json};

use super::checks;
use super::manifests as make;
use super::provider;
use super::scenario::{Node, Queue};

pub(super) use churn::churn;
pub(super) use jobs::{dress, is_group, pods};

/// The node label that tells the pools apart.
const POOL: &str = "example.com/pool";

/// Which of the things that an organisation may do this one does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Traits {
    /// Cohorts that are objects, below one another, with quota of their own.
    hierarchy: bool,
    /// Borrowing and lending limits.
    limits: bool,
    /// More than one pool of nodes, each with its flavor.
    pools: bool,
    /// Flavors have taints that jobs have to tolerate.
    taints: bool,
    /// Cores are no matter of the GPUs' flavors.
    groups: bool,
    /// Fair sharing with weights.
    shares: bool,
    /// Queues ask for admission checks.
    pub(super) checks: bool,
    /// Users submit pods that no job has made.
    pub(super) pods: bool,
    /// Pods are placed by topology.
    pub(super) topology: bool,
    /// Pods have to get ready in time.
    ready: bool,
    /// Administrators change everything at any time.
    churn: bool,
}

impl Traits {
    fn draw(rng: &mut Rng) -> Self {
        let mut often = |percent: u32| rng.u32(..100) < percent;
        let topology = often(35);
        Self {
            topology,
            hierarchy: often(60),
            limits: often(60),
            pools: often(60),
            taints: often(30),
            // What is placed has all its resources of flavors with a topology.
            groups: !topology && often(40),
            shares: often(35),
            checks: often(35),
            pods: often(40),
            ready: often(30),
            churn: often(60),
        }
    }
}

/// A pool of nodes and the flavor that stands for it.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    /// Of the flavor, and the value of the nodes' label.
    name: String,
    gpus: i64,
    flavor: Value,
}

/// An organisation's estate.
#[derive(Clone, Debug)]
pub(super) struct Estate {
    pub(super) traits: Traits,
    pools: Vec<Pool>,
    cohorts: Vec<Value>,
    /// The ClusterQueues with their LocalQueues.
    pub(super) queues: Vec<Queue>,
}

impl Estate {
    /// Draws an estate of these nodes, which get the labels of their pools.
    pub(super) fn draw(rng: &mut Rng, nodes: &mut [Node]) -> Self {
        let traits = Traits::draw(rng);
        let pools = pools(rng, traits, nodes);
        let cohorts = if traits.hierarchy { cohorts(rng, traits, &pools) } else { Vec::new() };
        let mut estate = Self { traits, pools, cohorts, queues: Vec::new() };
        let count = rng.i64(2..=5);
        estate.queues = (0..count).map(|index| queue(rng, &estate, index, count)).collect();
        estate
    }

    /// What has to be there before anybody submits anything.
    pub(super) fn setup(&self) -> Vec<Value> {
        let mut setup = if self.traits.topology { vec![topology()] } else { Vec::new() };
        setup.extend(self.pools.iter().map(|pool| pool.flavor.clone()));
        if self.traits.groups {
            setup.push(make::flavor(CORES));
        }
        setup.extend(self.cohorts.iter().cloned());
        if self.traits.checks {
            setup.extend(provider::setup());
            setup.extend(CHECKS.iter().map(|name| check(name)));
        }
        for queue in &self.queues {
            setup.push(queue.cluster_queue.clone());
            setup.extend(queue.local_queues.iter().cloned());
        }
        setup
    }

    /// What the administrators have written into the configuration.
    pub(super) fn configure(&self, rng: &mut Rng, configuration: &mut Configuration) {
        use PreemptionStrategy::{LessThanInitialShare, LessThanOrEqualToFinalShare};
        if self.traits.shares {
            let strategies = [
                vec![],
                vec![LessThanOrEqualToFinalShare],
                vec![LessThanInitialShare],
                vec![LessThanOrEqualToFinalShare, LessThanInitialShare],
            ];
            configuration.fair_sharing = Some(FairSharingConfig {
                enable: None,
                preemption_strategies: strategies[rng.usize(..strategies.len())].clone(),
            });
        }
        if self.traits.ready {
            configuration.wait_for_pods_ready = Some(patience(rng));
        }
    }
}

/// How long pods may take to get ready, and how often that may fail.
fn patience(rng: &mut Rng) -> WaitForPodsReady {
    WaitForPodsReady {
        timeout: Some(GoDuration::from_secs(rng.u64(180..=400))),
        recovery_timeout: rng.bool().then(|| GoDuration::from_secs(rng.u64(60..=300))),
        requeuing_strategy: RequeuingStrategy {
            timestamp: [RequeuingTimestamp::Eviction, RequeuingTimestamp::Creation][rng.usize(..2)],
            backoff_limit_count: rng.bool().then(|| rng.i32(0..=3)),
            backoff_base_seconds: Some(rng.i32(10..=120)),
            backoff_max_seconds: None,
        },
        ..WaitForPodsReady::default()
    }
}

/// The admission checks, where there are any.
const CHECKS: [&str; 3] = ["budget", "licence", provider::CHECK];

fn check(name: &str) -> Value {
    let spec = match name {
        provider::CHECK => provider::check_spec(),
        _ => json!({ "controllerName": checks::CONTROLLER }),
    };
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "AdmissionCheck", "metadata": { "name": name }, "spec": spec,
    })
}

/// What a queue with these groups asks of checks: one of them or more, of all its workloads or of those with one flavor.
fn checks_strategy(rng: &mut Rng, groups: &Value) -> Value {
    let flavors = groups[0]["flavors"].as_array().map_or(&[][..], Vec::as_slice);
    let first = rng.usize(..CHECKS.len());
    let rules: Vec<Value> = (0..rng.usize(1..=CHECKS.len()))
        .map(|index| {
            let mut rule = json!({ "name": CHECKS[(first + index) % CHECKS.len()] });
            if rng.u8(..3) == 0 {
                rule["onFlavors"] = json!([flavors[rng.usize(..flavors.len())]["name"]]);
            }
            rule
        })
        .collect();
    json!({ "admissionChecks": rules })
}

/// The flavor of everything but GPUs, where that has quota of its own.
const CORES: &str = "cores";

/// One pool, or two or three that share the nodes in turn.
fn pools(rng: &mut Rng, traits: Traits, nodes: &mut [Node]) -> Vec<Pool> {
    let count = if traits.pools { rng.usize(2..=3) } else { 1 };
    let mut gpus: BTreeMap<usize, i64> = BTreeMap::new();
    for (index, node) in nodes.iter_mut().enumerate() {
        node.labels.insert(POOL.to_owned(), pool_name(index % count));
        if traits.topology {
            node.labels.insert(LEVELS[0].to_owned(), format!("block-{}", index / 4));
            node.labels.insert(LEVELS[1].to_owned(), format!("rack-{}", index / 2));
        }
        *gpus.entry(index % count).or_default() += node.gpus;
    }
    (0..count)
        .map(|index| {
            let name = pool_name(index);
            let tainted = traits.taints && index > 0 && rng.bool();
            let placed = traits.topology && (index == 0 || rng.bool());
            let flavor = flavor(&name, tainted, placed);
            Pool { name, gpus: gpus.get(&index).copied().unwrap_or(0), flavor }
        })
        .collect()
}

fn pool_name(index: usize) -> String {
    format!("pool-{index}")
}

/// The node labels by which nodes are near to one another, the outermost first.
const LEVELS: [&str; 3] = ["example.com/block", "example.com/rack", "kubernetes.io/hostname"];

const TOPOLOGY: &str = "racks";

fn topology() -> Value {
    let levels: Vec<Value> = LEVELS.iter().map(|level| json!({ "nodeLabel": level })).collect();
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Topology",
        "metadata": { "name": TOPOLOGY }, "spec": { "levels": levels },
    })
}

fn flavor(name: &str, tainted: bool, placed: bool) -> Value {
    let mut flavor = make::flavor(name);
    flavor["spec"]["nodeLabels"] = json!({ POOL: name });
    if placed {
        flavor["spec"]["topologyName"] = json!(TOPOLOGY);
    }
    if tainted {
        flavor["spec"]["nodeTaints"] = json!([taint(name)]);
    }
    flavor
}

fn taint(pool: &str) -> Value {
    json!({ "key": "example.com/reserved", "value": pool, "effect": "NoSchedule" })
}

/// Two to four cohorts below one another. A parent of the first need not exist as an object.
fn cohorts(rng: &mut Rng, traits: Traits, pools: &[Pool]) -> Vec<Value> {
    (0..rng.usize(2..=4))
        .map(|index| {
            let mut cohort = json!({
                "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort",
                "metadata": { "name": cohort_name(index) }, "spec": {},
            });
            match index {
                0 if rng.u8(..4) == 0 => cohort["spec"]["parentName"] = json!("nobody-declared-this"),
                0 => {}
                _ => cohort["spec"]["parentName"] = json!(cohort_name(rng.usize(..index))),
            }
            let has_parent = cohort["spec"].get("parentName").is_some();
            if rng.bool() {
                cohort["spec"]["resourceGroups"] = resource_groups(rng, traits, pools, 4, has_parent);
            }
            share(rng, traits, &mut cohort);
            cohort
        })
        .collect()
}

fn cohort_name(index: usize) -> String {
    format!("cohort-{index}")
}

/// The weight of a member where shares count.
fn share(rng: &mut Rng, traits: Traits, object: &mut Value) {
    if traits.shares && rng.bool() {
        let weight = ["0", "500m", "1", "2"][rng.usize(..4)];
        object["spec"]["fairSharing"] = json!({ "weight": weight });
    }
}

/// Quota of some of the pools, of each a part as large as if it were shared by so many.
fn resource_groups(rng: &mut Rng, traits: Traits, pools: &[Pool], sharers: i64, in_cohort: bool) -> Value {
    let first = rng.usize(..pools.len());
    let count = rng.usize(1..=pools.len());
    let flavors: Vec<Value> = (0..count)
        .map(|index| {
            let pool = &pools[(first + index) % pools.len()];
            let nominal = (pool.gpus / sharers + rng.i64(-2..=2)).max(0);
            let mut gpus = quota("nvidia.com/gpu", nominal);
            limit(rng, traits, &mut gpus, nominal, in_cohort);
            let resources = if traits.groups { vec![gpus] } else { vec![gpus, quota("cpu", 1000)] };
            json!({ "name": pool.name, "resources": resources })
        })
        .collect();
    if traits.groups {
        let mut cores = quota("cpu", 60);
        limit(rng, traits, &mut cores, 60, in_cohort);
        json!([
            { "coveredResources": ["nvidia.com/gpu"], "flavors": flavors },
            { "coveredResources": ["cpu"], "flavors": [{ "name": CORES, "resources": [cores] }] },
        ])
    } else {
        json!([{ "coveredResources": ["nvidia.com/gpu", "cpu"], "flavors": flavors }])
    }
}

fn quota(resource: &str, nominal: i64) -> Value {
    json!({ "name": resource, "nominalQuota": nominal.to_string() })
}

/// How much a member of a cohort may borrow, and how much of what it owns it lends, if that is limited at all.
fn limit(rng: &mut Rng, traits: Traits, quota: &mut Value, nominal: i64, in_cohort: bool) {
    if traits.limits && in_cohort {
        for (field, most) in [("borrowingLimit", nominal.max(4)), ("lendingLimit", nominal)] {
            if rng.u8(..3) == 0 {
                quota[field] = json!(rng.i64(0..=most).to_string());
            }
        }
    }
}

/// A ClusterQueue somewhere in the tree, with its LocalQueue.
fn queue(rng: &mut Rng, estate: &Estate, index: i64, count: i64) -> Queue {
    let Traits { hierarchy, .. } = estate.traits;
    let cohort = match rng.u8(..6) {
        0 => None,
        1 => Some("nobody-declared-this".to_owned()),
        _ if hierarchy => Some(cohort_name(rng.usize(..estate.cohorts.len()))),
        _ => Some("flat".to_owned()),
    };
    let mut spec = json!({
        "namespaceSelector": {},
        "queueingStrategy": if rng.u8(..6) == 0 { "StrictFIFO" } else { "BestEffortFIFO" },
        "resourceGroups": resource_groups(rng, estate.traits, &estate.pools, count, cohort.is_some()),
        "preemption": preemption(rng, cohort.is_some()),
    });
    if rng.u8(..3) == 0 {
        let policy = |rng: &mut Rng| ["MayStopSearch", "TryNextFlavor"][rng.usize(..2)];
        spec["flavorFungibility"] = json!({ "whenCanBorrow": policy(rng), "whenCanPreempt": policy(rng) });
    }
    if estate.traits.checks && rng.u8(..3) > 0 {
        spec["admissionChecksStrategy"] = checks_strategy(rng, &spec["resourceGroups"]);
    }
    if let Some(cohort) = cohort {
        spec["cohortName"] = json!(cohort);
    }
    let name = format!("queue-{index}");
    let namespace = ["team-a", "team-b"][usize::try_from(index % 2).unwrap_or(0)];
    let mut cluster_queue = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": { "name": name }, "spec": spec,
    });
    share(rng, estate.traits, &mut cluster_queue);
    let nominal = &cluster_queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"];
    let nominal = nominal.as_str().and_then(|text| text.parse().ok()).unwrap_or(1);
    let local_queues = vec![make::local_queue(namespace, &name, &name)];
    Queue { name, namespace, nominal, cluster_queue, local_queues }
}

/// Whom a queue may displace.
fn preemption(rng: &mut Rng, in_cohort: bool) -> Value {
    let within = ["Never", "LowerPriority", "LowerOrNewerEqualPriority"][rng.usize(..3)];
    let mut rules = json!({ "withinClusterQueue": within });
    if in_cohort {
        let reclaim = ["Never", "LowerPriority", "Any"][rng.usize(..3)];
        rules["reclaimWithinCohort"] = json!(reclaim);
        if reclaim != "Never" && rng.u8(..3) == 0 {
            rules["borrowWithinCohort"] = json!({ "policy": "LowerPriority" });
            if rng.bool() {
                rules["borrowWithinCohort"]["maxPriorityThreshold"] = json!(100);
            }
        }
    }
    rules
}
