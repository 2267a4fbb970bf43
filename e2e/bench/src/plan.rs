//! What a generator's file comes to: objects to begin with, and workloads, each with its time.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::generator::{Generator, QueueSet, TasConstraint, Topology, WorkloadClass};

/// The flavor where the file has none.
const FLAVOR: &str = "rf";
const KUEUE: &str = "kueue.x-k8s.io/v1beta2";

/// What is to be done.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Flavors, nodes, cohorts' queues, namespaces: made before the clock runs.
    pub(crate) setup: Vec<Value>,
    /// Series of workloads that come side by side.
    pub(crate) series: Vec<Series>,
    /// The classes of workloads, by what they ask for, the largest first.
    pub(crate) classes: Vec<String>,
    /// Quota of all ClusterQueues together, in thousandths of a core.
    pub(crate) quota_milli: i64,
    /// How many ClusterQueues there are.
    pub(crate) queues: usize,
}

/// Workloads of one LocalQueue, one after another.
#[derive(Debug)]
pub(crate) struct Series {
    pub(crate) namespace: Arc<str>,
    /// The pause before each.
    pub(crate) interval: Duration,
    pub(crate) workloads: Vec<Planned>,
}

/// One workload.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) name: String,
    /// Index into [`Plan::classes`].
    pub(crate) class: usize,
    pub(crate) runtime: Duration,
    /// What all its pods ask for, in thousandths of a core.
    pub(crate) milli: i64,
    pub(crate) object: Value,
}

impl Plan {
    /// Works it out.
    pub(crate) fn of(generator: &Generator) -> Self {
        let flavor = generator.resource_flavor.as_ref().map_or(FLAVOR, |flavor| flavor.name.as_str());
        let mut plan = Self {
            setup: vec![
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "trireme-system"}}),
            ],
            series: Vec::new(),
            classes: classes(generator),
            quota_milli: 0,
            queues: 0,
        };
        plan.setup.push(resource_flavor(generator));
        if let Some(topology) = &generator.topology {
            plan.setup.push(json!({
                "apiVersion": KUEUE, "kind": "Topology", "metadata": {"name": topology.name},
                "spec": {"levels": topology.levels.iter().map(|level| json!({"nodeLabel": level.node_label})).collect::<Vec<_>>()},
            }));
            plan.setup.extend(nodes(topology, generator));
        }
        let narrowest = generator.topology.as_ref().and_then(|topology| topology.levels.last());
        let narrowest = narrowest.map_or("", |level| level.node_label.as_str());
        for cohorts in &generator.cohorts {
            for cohort in 0..cohorts.count {
                let cohort = format!("{}-{cohort}", cohorts.class_name);
                for queues in &cohorts.queues_sets {
                    for queue in 0..queues.count {
                        let name = format!("{cohort}-{}-{queue}", queues.class_name);
                        plan.queue(&cohort, &name, queues, flavor);
                        plan.workloads(&name, queues, narrowest);
                    }
                }
            }
        }
        plan
    }

    /// How many workloads there are.
    pub(crate) fn len(&self) -> usize {
        self.series.iter().map(|series| series.workloads.len()).sum()
    }

    fn queue(&mut self, cohort: &str, name: &str, set: &QueueSet, flavor: &str) {
        self.queues += 1;
        self.quota_milli += set.nominal_quota.milli_value().unwrap_or_default();
        self.setup.push(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}));
        self.setup.push(json!({
            "apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": name},
            "spec": {
                "cohortName": cohort, "namespaceSelector": {}, "queueingStrategy": "BestEffortFIFO",
                "preemption": {
                    "reclaimWithinCohort": set.reclaim_within_cohort,
                    "withinClusterQueue": set.within_cluster_queue,
                },
                "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": flavor, "resources": [{
                    "name": "cpu", "nominalQuota": set.nominal_quota, "borrowingLimit": set.borrowing_limit,
                }]}]}],
            },
        }));
        self.setup.push(json!({
            "apiVersion": KUEUE, "kind": "LocalQueue", "metadata": {"name": name, "namespace": name},
            "spec": {"clusterQueue": name},
        }));
    }

    fn workloads(&mut self, queue: &str, set: &QueueSet, narrowest: &str) {
        let namespace: Arc<str> = queue.into();
        for (number, set) in set.workloads_sets.iter().enumerate() {
            let mut workloads = Vec::new();
            for round in 0..set.count {
                for class in &set.workloads {
                    let name = format!("{}-{number}-{round}", class.class_name);
                    let pods = class.pod_count.unwrap_or(1);
                    let one = class.request.milli_value().unwrap_or_default();
                    workloads.push(Planned {
                        class: self
                            .classes
                            .iter()
                            .position(|one| *one == class.class_name)
                            .unwrap_or_default(),
                        runtime: Duration::from_millis(class.runtime_ms),
                        milli: one.saturating_mul(i64::from(pods)),
                        object: workload(queue, &name, class, pods, narrowest),
                        name,
                    });
                }
            }
            let interval = Duration::from_millis(set.creation_interval_ms);
            self.series.push(Series { namespace: namespace.clone(), interval, workloads });
        }
    }
}

fn classes(generator: &Generator) -> Vec<String> {
    let queues = generator.cohorts.iter().flat_map(|cohort| &cohort.queues_sets);
    let sets = queues.flat_map(|queues| &queues.workloads_sets);
    let mut sizes: Vec<(i64, String)> = Vec::new();
    for class in sets.flat_map(|set| &set.workloads) {
        let pods = i64::from(class.pod_count.unwrap_or(1));
        let size = class.request.milli_value().unwrap_or_default().saturating_mul(pods);
        if sizes.iter().all(|(_, name)| *name != class.class_name) {
            sizes.push((size, class.class_name.clone()));
        }
    }
    sizes.sort_by_key(|(size, _)| std::cmp::Reverse(*size));
    sizes.into_iter().map(|(_, name)| name).collect()
}

fn resource_flavor(generator: &Generator) -> Value {
    let mut object =
        json!({"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": FLAVOR}, "spec": {}});
    if let Some(flavor) = &generator.resource_flavor {
        object["metadata"]["name"] = json!(flavor.name);
        object["spec"] = json!({
            "nodeLabels": {flavor.node_label.as_str(): flavor.name},
            "topologyName": flavor.topology_name,
        });
    }
    object
}

/// Every node of the topology, labelled with its domain at every level.
fn nodes(topology: &Topology, generator: &Generator) -> Vec<Value> {
    let mut domains: Vec<Vec<(String, String)>> = vec![Vec::new()];
    for level in &topology.levels {
        let mut below = Vec::new();
        for domain in &domains {
            for number in 0..level.count {
                let above = domain.last().map_or(String::new(), |(_, value)| format!("{value}-"));
                let mut path = domain.clone();
                path.push((level.node_label.clone(), format!("{above}{}-{number}", level.name)));
                below.push(path);
            }
        }
        domains = below;
    }
    let capacity = topology.levels.last().map(|level| &level.capacity);
    let mut allocatable = json!(capacity);
    allocatable["pods"] = json!("110");
    let flavor = generator.resource_flavor.as_ref();
    let node = |path: &Vec<(String, String)>| {
        let name = path.last().map_or("node", |(_, value)| value.as_str());
        let mut labels: serde_json::Map<String, Value> =
            path.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
        labels.insert("kubernetes.io/hostname".to_owned(), json!(name));
        if let Some(flavor) = flavor {
            labels.insert(flavor.node_label.clone(), json!(flavor.name));
        }
        json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
            "status": {
                "capacity": allocatable, "allocatable": allocatable,
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        })
    };
    domains.iter().map(node).collect()
}

fn workload(queue: &str, name: &str, class: &WorkloadClass, pods: u32, narrowest: &str) -> Value {
    let mut pod_set = json!({
        "name": "main", "count": pods,
        "template": {"spec": {"restartPolicy": "Never", "containers": [{
            "name": "c", "image": "none", "resources": {"requests": {"cpu": class.request}},
        }]}},
    });
    if let (Some(constraint), Some(level)) = (class.tas_constraint, &class.tas_level) {
        pod_set["topologyRequest"] = match constraint {
            TasConstraint::Required => json!({"required": level}),
            TasConstraint::Preferred => json!({"preferred": level}),
            TasConstraint::Balanced => json!({
                "preferred": level,
                "podSetSliceRequiredTopology": narrowest, "podSetSliceSize": class.slice_size.unwrap_or(1),
            }),
        };
    }
    json!({
        "apiVersion": KUEUE, "kind": "Workload",
        "metadata": {"name": name, "namespace": queue},
        "spec": {"queueName": queue, "active": true, "priority": class.priority, "podSets": [pod_set]},
    })
}
