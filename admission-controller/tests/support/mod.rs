//! A simulated cluster with queues and one or more replicas of the program, in virtual time.

#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

pub(crate) mod racks;

use std::collections::BTreeMap;
use std::time::Duration;

use admission_controller::webhook::webhook_configurations_for;
use admission_controller::{Config, Configuration};
use axum::body::Body;
use cluster_sim::{Cluster, GroupResource, Object, Part, SimConfig};
use jiff::Timestamp;
use kit::{Clients, Clock, Context, Identity, Rng, ServiceTable, Tasks};
use serde_json::{Value, json};
use std::sync::Arc;
use tower::ServiceExt;

/// What a replica writes at any time: its lease, and what it tells people.
const BESIDE: [&str; 2] = ["leases", "events"];

pub(crate) struct World {
    pub(crate) cluster: Cluster,
    pub(crate) services: ServiceTable,
    clock: Clock,
    rng: Rng,
}

impl World {
    /// A cluster with the custom resources, namespace `team`, one flavor, and the webhooks if wanted.
    pub(crate) async fn new(webhooks: bool) -> Self {
        Self::with(webhooks, |_| ()).await
    }

    /// The same in a cluster that is configured otherwise.
    pub(crate) async fn with(webhooks: bool, configure: impl FnOnce(&mut SimConfig)) -> Self {
        let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap());
        let services = ServiceTable::new();
        let rng = Rng::seeded(7);
        let mut config = SimConfig::new(clock.clone(), Tasks::new(), rng.fork(), services.clone());
        configure(&mut config);
        let world = Self { cluster: Cluster::new(config), services, clock, rng };
        for crd in crds::definition::all_unconverted() {
            world.create("apiextensions.k8s.io", "customresourcedefinitions", json!(crd)).await;
        }
        for crd in [
            crd("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs"),
            crd("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets"),
            crd("trainer.kubeflow.org", "v1alpha1", "TrainJob", "trainjobs"),
            crd("autoscaling.x-k8s.io", "v1", "ProvisioningRequest", "provisioningrequests"),
            crd("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets"),
            crd("example.com", "v1", "TrainingRun", "trainingruns"),
            crd("kubeflow.org", "v2beta1", "MPIJob", "mpijobs"),
            crd("ray.io", "v1", "RayJob", "rayjobs"),
            crd("ray.io", "v1", "RayCluster", "rayclusters"),
            crd("ray.io", "v1", "RayService", "rayservices"),
        ] {
            world.create("apiextensions.k8s.io", "customresourcedefinitions", crd).await;
        }
        for name in ["team", "trireme-system"] {
            world.create("", "namespaces", json!({ "metadata": { "name": name } })).await;
        }
        world
            .create(
                "kueue.x-k8s.io",
                "resourceflavors",
                json!({
                    "metadata": { "name": "a100" }, "spec": { "nodeLabels": { "gpu": "a100" } },
                }),
            )
            .await;
        if webhooks {
            world.install_webhooks(&Configuration::default()).await;
        }
        world
    }

    /// Queue `a` with so many GPUs, and a replica `layer1`; all is at rest.
    pub(crate) async fn running(gpus: i64) -> Self {
        let world = Self::new(false).await;
        world.queue("a", "", json!({ "nominalQuota": gpus }), json!({})).await;
        world.start("layer1");
        world.settle().await;
        world
    }

    /// The same with webhooks.
    pub(crate) async fn with_webhooks(gpus: i64) -> Self {
        let world = Self::running(gpus).await;
        world.install_webhooks(&Configuration::default()).await;
        world
    }

    /// The webhooks of a program that is configured so.
    pub(crate) async fn install_webhooks(&self, file: &Configuration) {
        let (mutating, validating) = webhook_configurations_for(file, None);
        let group = "admissionregistration.k8s.io";
        self.create(group, "mutatingwebhookconfigurations", json!(mutating)).await;
        self.create(group, "validatingwebhookconfigurations", json!(validating)).await;
    }

    /// Keeps the garbage collector, and whoever else deletes, from Workloads.
    pub(crate) async fn hold_collector(&self) {
        let webhooks = json!([{
            "name": "held.example.com",
            "clientConfig": { "service": { "name": "nobody", "namespace": "team" } },
            "rules": [{
                "apiGroups": ["kueue.x-k8s.io"], "apiVersions": ["*"], "resources": ["workloads"],
                "operations": ["DELETE"],
            }],
            "failurePolicy": "Fail", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        }]);
        let configuration = json!({ "metadata": { "name": "held" }, "webhooks": webhooks });
        self.create("admissionregistration.k8s.io", "validatingwebhookconfigurations", configuration).await;
    }

    /// Starts a replica; its tasks can be killed.
    pub(crate) fn start(&self, name: &str) -> Tasks {
        self.start_with(name, Config::default())
    }

    pub(crate) fn start_with(&self, name: &str, config: Config) -> Tasks {
        self.start_by(self.clock.clone(), name, config)
    }

    /// Starts a replica whose clock shows another time than the API server's.
    pub(crate) fn start_at(&self, time: &str, name: &str) -> Tasks {
        self.start_by(Clock::starting_at(time.parse().unwrap()), name, Config::default())
    }

    fn start_by(&self, clock: Clock, name: &str, config: Config) -> Tasks {
        let tasks = Tasks::new();
        let ctx = Context {
            clients: Clients::shared(self.cluster.client_as(name)),
            clock,
            tasks: tasks.clone(),
            identity: Identity::new(name),
            ..self.context()
        };
        tasks.spawn(async move { admission_controller::run(ctx, config).await.unwrap() });
        tasks
    }

    /// What a program gets, with the client of a reader.
    pub(crate) fn context(&self) -> Context {
        Context {
            clients: Clients::shared(self.cluster.client_as("reader")),
            clock: self.clock.clone(),
            rng: self.rng.fork(),
            tasks: Tasks::new(),
            identity: Identity::new("reader"),
            services: self.services.clone(),
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) async fn sleep(&self, time: Duration) {
        self.clock.sleep(time).await;
    }

    pub(crate) async fn create(&self, group: &str, resource: &str, object: Value) -> Arc<Object> {
        let (version, kind) = match resource {
            "customresourcedefinitions" => ("v1", "CustomResourceDefinition"),
            "namespaces" => ("v1", "Namespace"),
            "mutatingwebhookconfigurations" => ("v1", "MutatingWebhookConfiguration"),
            "validatingwebhookconfigurations" => ("v1", "ValidatingWebhookConfiguration"),
            "pytorchjobs" => ("v1", "PyTorchJob"),
            "resourceflavors" => ("v1beta2", "ResourceFlavor"),
            "clusterqueues" => ("v1beta2", "ClusterQueue"),
            "cohorts" => ("v1beta2", "Cohort"),
            "localqueues" => ("v1beta2", "LocalQueue"),
            "admissionchecks" => ("v1beta2", "AdmissionCheck"),
            "provisioningrequests" => ("v1", "ProvisioningRequest"),
            "provisioningrequestconfigs" => ("v1beta2", "ProvisioningRequestConfig"),
            "workloadpriorityclasses" => ("v1beta2", "WorkloadPriorityClass"),
            "limitranges" => ("v1", "LimitRange"),
            "priorityclasses" => ("v1", "PriorityClass"),
            "workloads" => ("v1beta2", "Workload"),
            "apiservices" => ("v1", "APIService"),
            "jobs" => ("v1", "Job"),
            "deployments" => ("v1", "Deployment"),
            "replicasets" => ("v1", "ReplicaSet"),
            "statefulsets" => ("v1", "StatefulSet"),
            "trainjobs" => ("v1alpha1", "TrainJob"),
            "trainingruns" => ("v1", "TrainingRun"),
            "mpijobs" => ("v2beta1", "MPIJob"),
            "rayjobs" => ("v1", "RayJob"),
            "rayclusters" => ("v1", "RayCluster"),
            "rayservices" => ("v1", "RayService"),
            "leaderworkersets" => ("v1", "LeaderWorkerSet"),
            "jobsets" => ("v1alpha2", "JobSet"),
            "topologies" => ("v1beta2", "Topology"),
            "nodes" => ("v1", "Node"),
            "pods" => ("v1", "Pod"),
            "podtemplates" => ("v1", "PodTemplate"),
            other => panic!("{other} has no kind here"),
        };
        let mut object = object;
        object["apiVersion"] =
            if group.is_empty() { json!(version) } else { json!(format!("{group}/{version}")) };
        object["kind"] = json!(kind);
        let id = GroupResource::new(group, resource);
        self.cluster.store("user").create(&id, object).await.unwrap()
    }

    pub(crate) async fn update(
        &self,
        group: &str,
        resource: &str,
        name: &str,
        status: bool,
        change: impl Fn(&mut Value) + Send + Sync,
    ) {
        let id = GroupResource::new(group, resource);
        let is_namespaced = group != "kueue.x-k8s.io" || ["workloads", "localqueues"].contains(&resource);
        let namespace = if is_namespaced { "team" } else { "" };
        let store = self.cluster.store("job-controller");
        let part = if status { cluster_sim::Part::Status } else { cluster_sim::Part::Main };
        let change = |value: &mut Value| {
            change(value);
            Ok(())
        };
        store.update(&id, namespace, name, part, change).await.unwrap();
    }

    /// A ClusterQueue of GPUs, and a LocalQueue of the same name.
    pub(crate) async fn queue(&self, name: &str, cohort: &str, quota: Value, preemption: Value) {
        let mut quota = quota;
        quota["name"] = json!("nvidia.com/gpu");
        let mut spec = json!({
            "namespaceSelector": {},
            "preemption": preemption,
            "resourceGroups": [{
                "coveredResources": ["nvidia.com/gpu"],
                "flavors": [{ "name": "a100", "resources": [quota] }],
            }],
        });
        if !cohort.is_empty() {
            spec["cohortName"] = json!(cohort);
        }
        self.create("kueue.x-k8s.io", "clusterqueues", json!({ "metadata": { "name": name }, "spec": spec }))
            .await;
        self.create(
            "kueue.x-k8s.io",
            "localqueues",
            json!({
                "metadata": { "name": name, "namespace": "team" }, "spec": { "clusterQueue": name },
            }),
        )
        .await;
    }

    /// The queue asks for the check `budget`, which somebody answers.
    pub(crate) async fn checked(&self, queue: &str) {
        let group = "kueue.x-k8s.io";
        let check =
            json!({ "metadata": { "name": "budget" }, "spec": { "controllerName": "example.com/check" } });
        self.create(group, "admissionchecks", check).await;
        self.update(group, "admissionchecks", "budget", true, |check| {
            check["status"]["conditions"] = json!([{
                "type": "Active", "status": "True", "reason": "Test", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]);
        })
        .await;
        let ask = |queue: &mut Value| {
            queue["spec"]["admissionChecksStrategy"] = json!({ "admissionChecks": [{ "name": "budget" }] });
        };
        self.update(group, "clusterqueues", queue, false, ask).await;
    }

    /// A suspended PyTorchJob with so many workers of one GPU each.
    pub(crate) async fn pytorch(&self, name: &str, queue: &str, workers: i64) -> Arc<Object> {
        self.create("kubeflow.org", "pytorchjobs", pytorch(name, queue, workers)).await
    }

    pub(crate) fn get(&self, group: &str, resource: &str, name: &str) -> Option<Value> {
        let id = GroupResource::new(group, resource);
        let store = self.cluster.store("reader");
        ["team", ""]
            .iter()
            .find_map(|namespace| store.get(&id, namespace, name))
            .map(|one| one.value().clone())
    }

    /// Whether a pod waits behind a scheduling gate of this name.
    pub(crate) fn is_behind(&self, gate: &str, pod: &str) -> bool {
        let pod = self.get("", "pods", pod).unwrap();
        let gates = pod["spec"]["schedulingGates"].as_array();
        gates.is_some_and(|gates| gates.iter().any(|one| one["name"] == gate))
    }

    /// The Workload of this name.
    pub(crate) fn workload_named(&self, name: &str) -> Option<Value> {
        self.get("kueue.x-k8s.io", "workloads", name)
    }

    pub(crate) fn job(&self, name: &str) -> Value {
        self.get("kubeflow.org", "pytorchjobs", name).unwrap()
    }

    /// The Workload of the PyTorchJob of this name.
    pub(crate) fn workload(&self, job: &str) -> Option<Value> {
        let id = GroupResource::new("kueue.x-k8s.io", "workloads");
        let all = self.cluster.store("reader").list(&id, Some("team"));
        all.iter()
            .map(|one| one.value().clone())
            .find(|one| one.pointer("/metadata/ownerReferences/0/name") == Some(&json!(job)))
    }

    /// What the Workload of a job is called.
    pub(crate) fn workload_name(&self, job: &str) -> String {
        self.workload(job).unwrap()["metadata"]["name"].as_str().unwrap().to_owned()
    }

    /// Status and reason of a condition of a job's Workload.
    pub(crate) fn condition(&self, job: &str, kind: &str) -> Option<(String, String, String)> {
        let workload = self.workload(job)?;
        let conditions = workload.pointer("/status/conditions")?.as_array()?;
        let one = conditions.iter().find(|one| one["type"] == kind)?;
        let text = |field: &str| one[field].as_str().unwrap_or_default().to_owned();
        Some((text("status"), text("reason"), text("message")))
    }

    pub(crate) fn is(&self, job: &str, kind: &str) -> bool {
        self.condition(job, kind).is_some_and(|(status, ..)| status == "True")
    }

    /// Whether a condition of the Workload of this name is true.
    pub(crate) fn holds(&self, workload: &str, kind: &str) -> bool {
        let workload = self.workload_named(workload).unwrap_or_default();
        let conditions = workload["status"]["conditions"].as_array().into_iter().flatten();
        conditions.into_iter().any(|one| one["type"] == kind && one["status"] == "True")
    }

    /// Sends those who ask who waits to the program.
    pub(crate) async fn serve_visibility(&self) {
        for service in admission_controller::visibility::api_services(&Default::default()) {
            self.create("apiregistration.k8s.io", "apiservices", json!(service)).await;
        }
    }

    /// Who waits in a ClusterQueue, as the visibility API tells it.
    pub(crate) async fn pending_in(&self, queue: &str) -> Value {
        let path = format!("/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/{queue}/pendingworkloads");
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        self.cluster.client_as("user").request(request).await.unwrap()
    }

    /// A scheduler gives a pod this node.
    pub(crate) async fn bind(&self, pod: &str, node: &str) {
        let bound = |pod: &mut Value| {
            pod["spec"]["nodeName"] = json!(node);
            Ok(())
        };
        let (pods, store) = (GroupResource::new("", "pods"), self.cluster.store("scheduler"));
        store.update(&pods, "team", pod, Part::Binding, bound).await.unwrap();
    }

    pub(crate) fn is_suspended(&self, job: &str) -> bool {
        self.job(job).pointer("/spec/runPolicy/suspend") == Some(&json!(true))
    }

    /// Writes of this replica since a revision, as "verb resource/subresource", but for those of its lease and of events.
    pub(crate) fn writes(&self, writer: &str, since: u64) -> Vec<String> {
        self.cluster
            .log_since(since)
            .iter()
            .filter(|commit| &*commit.writer == writer && !BESIDE.contains(&&*commit.resource.resource))
            .map(|commit| format!("{:?} {}/{}", commit.verb, commit.resource.resource, commit.subresource))
            .collect()
    }

    /// How many writes this replica has begun so far, whatever came of them, but for those of its lease and of events.
    pub(crate) fn attempts(&self, writer: &str) -> BTreeMap<GroupResource, u64> {
        let mut begun = self.cluster.faults().writes_to(writer);
        begun.retain(|resource, _| !BESIDE.contains(&&*resource.resource));
        begun
    }

    /// What `/metrics` shows.
    pub(crate) async fn metrics(&self) -> String {
        self.page("/metrics").await
    }

    /// What `/debug/state` says of the Workload of a job.
    pub(crate) async fn explained(&self, job: &str) -> Value {
        let name = self.workload(job).unwrap()["metadata"]["name"].clone();
        let state: Value = serde_json::from_str(&self.page("/debug/state").await).unwrap();
        let workloads = state["workloads"].as_array().unwrap();
        workloads.iter().find(|one| one["name"] == name).unwrap().clone()
    }

    /// Types and reasons of the events in the namespace of the jobs.
    pub(crate) fn told(&self) -> Vec<(String, String)> {
        let id = GroupResource::new("", "events");
        let events = self.cluster.store("reader").list(&id, Some("team"));
        let text = |event: &Value, field: &str| event[field].as_str().unwrap_or_default().to_owned();
        events.iter().map(|event| (text(event.value(), "type"), text(event.value(), "reason"))).collect()
    }

    /// Reasons of the events about an object in the namespace of the jobs.
    pub(crate) fn told_of(&self, kind: &str, name: &str) -> Vec<String> {
        let id = GroupResource::new("", "events");
        let events = self.cluster.store("reader").list(&id, Some("team"));
        let about = |event: &&Arc<Object>| {
            let object = &event.value()["involvedObject"];
            object["kind"] == kind && object["name"] == name
        };
        let reason = |event: &Arc<Object>| event.value()["reason"].as_str().unwrap_or_default().to_owned();
        events.iter().filter(about).map(reason).collect()
    }

    /// A page of the program, whatever its status.
    pub(crate) async fn page(&self, path: &str) -> String {
        let name = crds::names::trireme::ADMISSION_SERVICE;
        let service = self.services.resolve("trireme-system", name).remove(0);
        let request = http::Request::get(path).body(Body::empty()).unwrap();
        let response = service.oneshot(request).await.unwrap();
        let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
        String::from_utf8(body.to_vec()).unwrap()
    }

    pub(crate) async fn settle(&self) {
        self.pass(30).await;
    }

    /// Lets so many seconds pass.
    pub(crate) async fn pass(&self, seconds: u64) {
        self.sleep(Duration::from_secs(seconds)).await;
    }

    /// Seconds since the epoch.
    pub(crate) fn seconds(&self) -> i64 {
        self.clock.now().as_second()
    }

    /// The time, to whole seconds, as the API writes it.
    pub(crate) fn stamp(&self) -> String {
        Timestamp::from_second(self.seconds()).unwrap().to_string()
    }
}

/// A suspended Job of so many pods of one GPU each.
pub(crate) fn batch(name: &str, queue: &str, parallelism: i64) -> Value {
    json!({
        "metadata": { "name": name, "namespace": "team", "labels": { "kueue.x-k8s.io/queue-name": queue } },
        "spec": {
            "suspend": true, "parallelism": parallelism, "completions": parallelism,
            "template": { "spec": { "restartPolicy": "Never", "containers": [{
                "name": "main", "image": "x", "resources": { "limits": { "nvidia.com/gpu": 1 } },
            }]}},
        },
    })
}

/// A StatefulSet `db` in queue `a` with so many pods.
pub(crate) fn stateful_set(replicas: i64, pod: Value) -> Value {
    let template = json!({ "metadata": { "labels": { "app": "db" } }, "spec": pod });
    json!({
        "metadata": { "name": "db", "namespace": "team", "labels": { "kueue.x-k8s.io/queue-name": "a" } },
        "spec": {
            "replicas": replicas, "serviceName": "db",
            "selector": { "matchLabels": { "app": "db" } }, "template": template,
        },
    })
}

/// The owner references of what this object controls.
pub(crate) fn owned_by(owner: &Value) -> Value {
    let metadata = &owner["metadata"];
    json!([{
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": metadata["name"], "uid": metadata["uid"],
        "controller": true,
    }])
}

/// What the controller of this object makes of its template.
pub(crate) fn pod_of(owner: &Value, template: &Value, name: &str) -> Value {
    let mut pod = template.clone();
    pod["metadata"]["name"] = json!(name);
    pod["metadata"]["namespace"] = json!("team");
    pod["metadata"]["ownerReferences"] = owned_by(owner);
    pod
}

pub(crate) fn workloads() -> GroupResource {
    GroupResource::new("kueue.x-k8s.io", "workloads")
}

/// These lines are among the metrics.
pub(crate) fn says(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.lines().any(|one| one == *line), "{line} is not in\n{}", without_buckets(text));
    }
}

/// What is told but for what Prometheus reads of it: buckets and comments.
pub(crate) fn without_buckets(text: &str) -> String {
    let worth = |line: &&str| !line.starts_with('#') && !line.contains("_bucket{");
    text.lines().filter(worth).map(|line| format!("{line}\n")).collect()
}

pub(crate) fn pytorch(name: &str, queue: &str, workers: i64) -> Value {
    json!({
        "metadata": { "name": name, "namespace": "team", "labels": { "kueue.x-k8s.io/queue-name": queue } },
        "spec": {
            "runPolicy": { "suspend": true },
            "pytorchReplicaSpecs": { "Worker": {
                "replicas": workers,
                "template": { "spec": { "containers": [{
                    "name": "pytorch", "image": "x", "resources": { "limits": { "nvidia.com/gpu": 1 } },
                }]}},
            }},
        },
    })
}

fn crd(group: &str, version: &str, kind: &str, plural: &str) -> Value {
    let anything = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    json!({
        "metadata": { "name": format!("{plural}.{group}") },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": { "kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase() },
            "versions": [{
                "name": version, "served": true, "storage": true,
                "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": {
                    "type": "object",
                    "properties": { "spec": anything, "status": anything },
                }},
            }],
        },
    })
}
