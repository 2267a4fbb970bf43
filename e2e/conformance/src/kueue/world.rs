//! A case's objects, given to the engine as the program gives it what the watches see.

use std::collections::BTreeMap;
use std::sync::Arc;

use admission_controller::compose::Priorities;
use admission_controller::config::Configuration;
use admission_controller::defaults::PodDefaults;
use admission_controller::requests::Rules;
use admission_controller::{checks, input, topology};
use crds::view;
use crds::view::cluster_queue::ClusterQueue;
use crds::view::limits::{LimitRange, RuntimeClass};
use crds::view::workload::Workload;
use model::ResourceName;
use quota_engine::input::Admission;
use quota_engine::{Decision, Engine, Event, FairShare, LocalQueueKey, Settings, Uid};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Nodes of a flavor of [`World::named_flavors`] say its name.
const FLAVOR_LABEL: &str = "example.com/flavor";

/// Pod set, resource → flavor.
pub(crate) type Flavors = BTreeMap<(String, String), String>;

pub(crate) struct World {
    pub(crate) engine: Engine,
    rules: Rules,
    defaults: PodDefaults,
    keys: BTreeMap<Uid, String>,
    cluster_queues: BTreeMap<String, ClusterQueue>,
    next: u64,
}

pub(crate) fn key_of(object: &Value) -> String {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    format!("{}/{}", text("namespace"), text("name"))
}

/// Amounts as one of Kueue's types has them: a list of names and values, or a map.
pub(crate) fn amounts(requests: &Value) -> impl Iterator<Item = (ResourceName, i64)> {
    let listed = requests["value"].as_array().into_iter().flatten();
    let listed = listed.map(|one| (one["name"].as_str().unwrap_or_default(), &one["value"]));
    let mapped = requests["value"].as_object().into_iter().flatten();
    let mapped = mapped.map(|(name, amount)| (name.as_str(), amount));
    listed.chain(mapped).map(|(name, amount)| (name.into(), amount.as_i64().unwrap_or(0)))
}

pub(crate) fn flavors_of(admission: &Admission) -> Flavors {
    admission
        .pod_sets
        .iter()
        .flat_map(|set| {
            set.flavors.iter().map(|(resource, flavor)| {
                ((set.name.to_string(), resource.as_str().to_owned()), flavor.as_str().to_owned())
            })
        })
        .collect()
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(&Configuration::default(), Settings::default())
    }

    /// As a configuration file and these settings have it.
    pub(crate) fn with(config: &Configuration, settings: Settings) -> Self {
        let mut engine = Engine::new(settings);
        for (name, dep) in [
            ("default", ""),
            ("eng-alpha", "eng"),
            ("eng-beta", "eng"),
            ("eng-gamma", "eng"),
            ("sales", "sales"),
            ("lend", "lend"),
            ("", ""),
        ] {
            let labels = [("dep".to_owned(), dep.to_owned())].into_iter().filter(|(_, dep)| !dep.is_empty());
            engine.apply(Event::Namespace(name.into(), labels.collect()));
        }
        let (defaults, keys, cluster_queues) = Default::default();
        Self { engine, rules: Rules::of(config), defaults, keys, cluster_queues, next: 0 }
    }

    /// As a configuration file has it.
    pub(crate) fn under(config: &Configuration) -> Self {
        Self::with(config, config.settings())
    }

    /// Whether jobs may be resized.
    pub(crate) fn has_elastic_jobs(&self) -> bool {
        self.rules.has_elastic_jobs()
    }

    /// `tc.objects`: what else there is in the cluster.
    pub(crate) fn objects(&mut self, objects: &Value) {
        let of = |kind: &str| -> Vec<&Value> {
            let objects = objects.as_array().into_iter().flatten();
            objects.filter(|one| one["$type"] == kind).map(|one| &one["value"]).collect()
        };
        let ranges: Vec<LimitRange> = of("v1.LimitRange").into_iter().map(|one| self.stored(one)).collect();
        self.defaults.set_ranges(ranges.iter());
        let classes: Vec<RuntimeClass> =
            of("v1.RuntimeClass").into_iter().map(|one| self.stored(one)).collect();
        self.defaults.set_classes(classes.iter());
    }

    /// The object as the API server would store it.
    pub(crate) fn stored<K: DeserializeOwned>(&mut self, object: &Value) -> K {
        let mut object = object.clone();
        forget_nulls(&mut object);
        self.next += 1;
        object["metadata"]["resourceVersion"] = json!(self.next.to_string());
        // Some cases give one uid to two workloads, or none; its order among others counts.
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
        object["metadata"]["uid"] = json!(format!("{uid} {}", key_of(&object)));
        for condition in
            object.pointer_mut("/status/conditions").and_then(Value::as_array_mut).into_iter().flatten()
        {
            for (field, default) in
                [("reason", ""), ("message", ""), ("lastTransitionTime", "2026-01-01T00:00:00Z")]
            {
                if condition[field].is_null() {
                    condition[field] = json!(default);
                }
            }
        }
        serde_json::from_value(object.clone()).unwrap_or_else(|error| panic!("{error}: {object}"))
    }

    pub(crate) fn flavors(&mut self, flavors: &[Value]) {
        for flavor in flavors {
            let view = self.stored(flavor);
            self.engine.apply(Event::Flavor(input::flavor(&view)));
        }
    }

    pub(crate) fn topologies(&mut self, topologies: &Value) {
        for topology in topologies.as_array().into_iter().flatten() {
            let levels = topology["spec"]["levels"].as_array().into_iter().flatten();
            let levels = levels.map(|level| level["nodeLabel"].as_str().unwrap().to_owned()).collect();
            let name = topology["metadata"]["name"].as_str().unwrap().to_owned();
            self.engine.apply(Event::Topology(name, levels));
        }
    }

    /// AdmissionChecks.
    pub(crate) fn checks(&mut self, checks: &Value) {
        for check in checks.as_array().into_iter().flatten() {
            let view = self.stored(check);
            self.engine.apply(Event::AdmissionCheck(input::admission_check(&view)));
        }
    }

    /// Nodes, and pods on them that are not placed by topology.
    pub(crate) fn nodes(&mut self, nodes: &Value, pods: &Value) {
        for node in nodes.as_array().into_iter().flatten() {
            let view: view::Node = self.stored(node);
            self.engine.apply(Event::Node(topology::node(&view).unwrap_or_else(|error| panic!("{error}"))));
        }
        for pod in pods.as_array().into_iter().flatten() {
            let view: view::placed_pod::PlacedPod = self.stored(pod);
            if let Some((node, asked)) = topology::usage_of(&view) {
                self.engine.apply(Event::Pod(input::uid(&view.metadata), node.into(), asked.into()));
            }
        }
    }

    /// A pod comes and goes on this node: whoever waits for places is looked at again.
    pub(crate) fn pod_passes(&mut self, node: &str) {
        self.engine.apply(Event::Pod("passing".into(), node.into(), Arc::new([("cpu".into(), 1)].into())));
        self.engine.apply(Event::PodGone("passing".into()));
    }

    /// `clusterQueues`, `cohorts` and `queues` (LocalQueues) of a case.
    pub(crate) fn queues(&mut self, case: &Value) {
        for queue in case["clusterQueues"].as_array().into_iter().flatten() {
            let mut queue = queue.clone();
            if queue["spec"]["preemption"].is_null() {
                queue["spec"]["preemption"] = json!({ "reclaimWithinCohort": "Never" });
            }
            let view: ClusterQueue = self.stored(&queue);
            self.engine.apply(Event::ClusterQueue(input::cluster_queue(&view, &self.rules)));
            self.cluster_queues.insert(view.metadata.name.clone().unwrap_or_default(), view);
        }
        for cohort in case["cohorts"].as_array().into_iter().flatten() {
            let view = self.stored(cohort);
            self.engine.apply(Event::Cohort(input::cohort(&view)));
        }
        for queue in case["queues"].as_array().into_iter().flatten() {
            let view = self.stored(queue);
            self.engine.apply(Event::LocalQueue(input::local_queue(&view)));
        }
    }

    pub(crate) fn local_queue(&mut self, name: &str, cluster_queue: &str) {
        self.engine.apply(Event::LocalQueue(quota_engine::input::LocalQueue {
            key: LocalQueueKey::new("default", name),
            uid: name.into(),
            cluster_queue: cluster_queue.into(),
            stop: quota_engine::input::StopPolicy::None,
            terminating: false,
            weight: quota_engine::input::Weight::default(),
        }));
    }

    pub(crate) fn workloads(&mut self, workloads: &Value) {
        for object in workloads.as_array().into_iter().flatten() {
            let view: Workload = self.stored(object);
            let workload =
                input::workload((&view).into(), &view, &self.rules, &self.defaults, &Priorities::default());
            let key = key_of(object);
            self.keys.insert(workload.uid.clone(), key);
            self.engine.apply(Event::Workload(Box::new(workload)));
        }
    }

    /// Use by nobody in particular: ClusterQueue → (flavor, resource) → amount.
    pub(crate) fn usage(&mut self, usage: &Value) {
        for (queue, amounts) in usage.as_object().into_iter().flatten() {
            for (index, (pair, amount)) in amounts.as_object().into_iter().flatten().enumerate() {
                let pair: Value = serde_json::from_str(pair).unwrap();
                let (flavor, resource) =
                    (pair["Flavor"].as_str().unwrap(), pair["Resource"].as_str().unwrap());
                let amount = amount["value"].as_i64().or(amount.as_i64()).unwrap_or(0);
                let written = if resource == "cpu" { format!("{amount}m") } else { amount.to_string() };
                let set = json!({
                    "name": "main", "count": 1,
                    "flavors": { resource: flavor }, "resourceUsage": { resource: written },
                });
                self.workloads(&json!([{
                    "metadata": { "name": format!("usage-{queue}-{index}"), "namespace": "default" },
                    "spec": { "podSets": [{ "name": "main", "count": 1 }], "priority": i32::MAX },
                    "status": {
                        "conditions": [{ "type": "QuotaReserved", "status": "True" }],
                        "admission": { "clusterQueue": queue, "podSetAssignments": [set] },
                    },
                }]));
            }
        }
    }

    /// Flavors of these names, each with nodes of its own.
    pub(crate) fn named_flavors(&mut self, names: &[&str]) {
        let flavor = |name: &&str| json!({ "metadata": { "name": name }, "spec": { "nodeLabels": { FLAVOR_LABEL: name } } });
        self.flavors(&names.iter().map(flavor).collect::<Vec<_>>());
    }

    /// Whether a workload that asks for so much is admitted. Every flavor but the one named is forbidden to it; they are
    /// [`World::named_flavors`].
    pub(crate) fn probe(&mut self, queue: &str, flavor: &str, resource: &str, amount: i64) -> bool {
        self.local_queue("probe", queue);
        let written = if resource == "cpu" { format!("{amount}m") } else { amount.to_string() };
        self.workloads(&json!([{
            "metadata": { "name": "probe", "namespace": "default" },
            "spec": { "queueName": "probe", "podSets": [{ "name": "main", "count": 1, "template": { "spec": {
                "containers": [{ "name": "c", "resources": { "requests": { resource: written } } }],
                "nodeSelector": { FLAVOR_LABEL: flavor },
            }}}]},
        }]));
        self.decide().iter().any(|one| match one {
            Decision::Reserve(reserve) => {
                flavors_of(&reserve.admission).values().all(|given| given == flavor)
            }
            _ => false,
        })
    }

    /// What is decided in one call; the API server takes everything.
    pub(crate) fn decide(&mut self) -> Vec<Decision> {
        let decided = self.engine.decide(1_800_000_000_000);
        self.engine.audit().unwrap();
        decided
    }

    /// What one cycle decides.
    pub(crate) fn cycle(&mut self, now_ms: i64) -> Vec<Decision> {
        self.engine.cycle(now_ms)
    }

    /// Who is looked at in the next cycle.
    pub(crate) fn heads(&self) -> Vec<Uid> {
        let queues = self.engine.cluster_queues();
        queues.iter().filter_map(|queue| self.engine.waiting_in(&queue.name).0.into_iter().next()).collect()
    }

    /// Whether a Workload has a state of every check that this admission has to pass.
    pub(crate) fn lists_checks(&self, view: &Workload, admission: &Admission) -> bool {
        let Some(queue) = self.cluster_queues.get(admission.cluster_queue.as_str()) else { return true };
        let flavors = admission.pod_sets.iter().flat_map(|set| set.flavors.values());
        let flavors = flavors.map(|flavor| flavor.as_str()).collect();
        let listed = &view.status.admission_checks;
        checks::on_flavors(queue, &flavors).iter().all(|name| listed.iter().any(|state| state.name == *name))
    }

    /// The uid of `namespace/name`.
    pub(crate) fn uid(&self, key: &str) -> Uid {
        self.keys.iter().find(|(_, known)| *known == key).unwrap().0.clone()
    }

    /// Everybody's share, with this on top of what each uses: (flavor, resource) → amount.
    pub(crate) fn fair_shares(&mut self, more: &Value) -> Vec<FairShare> {
        let more: Vec<_> = more
            .as_object()
            .into_iter()
            .flatten()
            .map(|(pair, amount)| {
                let pair: Value = serde_json::from_str(pair).unwrap();
                let (flavor, resource) =
                    (pair["Flavor"].as_str().unwrap(), pair["Resource"].as_str().unwrap());
                let amount = amount["value"].as_i64().or(amount.as_i64()).unwrap_or(0);
                (flavor.into(), resource.into(), amount)
            })
            .collect();
        // The sums are renewed by it.
        self.decide();
        self.engine.fair_shares(&more)
    }

    pub(crate) fn key(&self, uid: &Uid) -> String {
        self.keys[uid].clone()
    }
}

/// The `clusterQueues` and `cohorts` of a case, with quotas of nothing where it has a queue, or a flavor, without a word of
/// resources: those who hold some of it can be told to leave.
pub(crate) fn with_quotas(case: &Value) -> Value {
    let mut queues = case["clusterQueues"].clone();
    for queue in queues.as_array_mut().into_iter().flatten() {
        if queue["spec"]["resourceGroups"].is_null() {
            queue["spec"]["resourceGroups"] = json!([{ "flavors": [{ "name": "default" }] }]);
        }
        let groups = queue.pointer_mut("/spec/resourceGroups").and_then(Value::as_array_mut);
        for group in groups.into_iter().flatten().filter(|group| group["coveredResources"].is_null()) {
            group["coveredResources"] = json!(["cpu", "memory"]);
            for flavor in group["flavors"].as_array_mut().into_iter().flatten() {
                flavor["resources"] = json!([
                    { "name": "cpu", "nominalQuota": "0" }, { "name": "memory", "nominalQuota": "0" },
                ]);
            }
        }
    }
    json!({ "clusterQueues": queues, "cohorts": case["cohorts"] })
}

pub(crate) fn forget_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(forget_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(forget_nulls),
        _ => {}
    }
}
