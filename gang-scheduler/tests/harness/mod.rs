//! A cluster without kubelets in virtual time, and the scheduler as a value in it.
#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses its part; a test may panic")]

use std::sync::Arc;
use std::time::Duration;

use cluster_sim::{Cluster, Commit, SimConfig};
use crds::api::trireme::v1alpha1::GangPlacement;
use gang_scheduler::Config;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kit::{Clients, Clock, Context, Identity, Rng, ServiceTable, Tasks};
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

pub(crate) const GPU: &str = "nvidia.com/gpu";

pub(crate) struct Harness {
    pub(crate) cluster: Cluster,
    pub(crate) services: ServiceTable,
    pub(crate) clock: Clock,
    starts: u32,
}

impl Harness {
    pub(crate) async fn new() -> Self {
        let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap());
        let config = SimConfig::new(clock.clone(), Tasks::new(), Rng::seeded(1), ServiceTable::new());
        let harness = Self { cluster: Cluster::new(config), services: ServiceTable::new(), clock, starts: 0 };
        let definitions: Api<CustomResourceDefinition> = Api::all(harness.cluster.client());
        for definition in crds::all_unconverted() {
            definitions.create(&PostParams::default(), &definition).await.unwrap();
        }
        let namespaces: Api<Namespace> = Api::all(harness.cluster.client());
        let namespace = serde_json::from_value(json!({ "metadata": { "name": "trireme-system" } })).unwrap();
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
        harness.sleep(1).await;
        harness
    }

    pub(crate) async fn sleep(&self, seconds: u64) {
        self.clock.sleep(Duration::from_secs(seconds)).await;
    }

    /// Starts a replica; its writes carry the name that comes with its tasks.
    pub(crate) fn start(&mut self) -> (Tasks, String) {
        self.start_with(Config::default())
    }

    pub(crate) fn start_with(&mut self, config: Config) -> (Tasks, String) {
        self.starts += 1;
        let name = format!("gang-scheduler/{}", self.starts);
        let tasks = Tasks::new();
        let ctx = Context {
            clients: Clients {
                write: self.cluster.client_as(&name),
                watch: self.cluster.client_as("watch"),
                lease: self.cluster.client_as("lease"),
            },
            clock: self.clock.clone(),
            rng: Rng::seeded(u64::from(self.starts)),
            tasks: tasks.clone(),
            identity: Identity::new(name.as_str()),
            services: self.services.clone(),
        };
        tasks.spawn(async move { gang_scheduler::run(ctx, config).await.unwrap() });
        (tasks, name)
    }

    pub(crate) async fn node(&self, name: &str, gpus: u32) {
        let nodes: Api<Node> = Api::all(self.cluster.client());
        let node = serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap();
        nodes.create(&PostParams::default(), &node).await.unwrap();
        let status = json!({ "status": {
            "allocatable": { "cpu": "64", "memory": "256Gi", "pods": "110", GPU: gpus.to_string() },
            "conditions": [{ "type": "Ready", "status": "True" }],
        } });
        nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
        // Admission taints new nodes until they are ready; nobody else is here to say so.
        let ready = json!({ "spec": { "taints": null } });
        nodes.patch(name, &PatchParams::default(), &Patch::Merge(ready)).await.unwrap();
    }

    /// The metrics page of every replica.
    pub(crate) async fn metrics(&self) -> Vec<String> {
        let mut pages = Vec::new();
        for service in self.services.resolve("trireme-system", "gang-scheduler") {
            let request = axum::http::Request::get("/metrics").body(axum::body::Body::empty()).unwrap();
            let answer = tower::ServiceExt::oneshot(service, request).await.unwrap();
            let body = axum::body::to_bytes(answer.into_body(), 1 << 20).await.unwrap();
            pages.push(String::from_utf8(body.to_vec()).unwrap());
        }
        pages
    }

    pub(crate) fn dynamic(&self, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
        let gvk = GroupVersionKind::gvk(group, version, kind);
        Api::namespaced_with(self.cluster.client(), "default", &ApiResource::from_gvk(&gvk))
    }

    pub(crate) async fn create(
        &self,
        group: &str,
        version: &str,
        kind: &str,
        mut body: Value,
    ) -> DynamicObject {
        body["apiVersion"] =
            json!(if group.is_empty() { version.into() } else { format!("{group}/{version}") });
        body["kind"] = json!(kind);
        let object = serde_json::from_value(body).unwrap();
        self.dynamic(group, version, kind).create(&PostParams::default(), &object).await.unwrap()
    }

    pub(crate) async fn pod_group(&self, name: &str, min_member: i64) {
        let body = json!({ "metadata": { "name": name }, "spec": { "minMember": min_member } });
        self.create("scheduling.volcano.sh", "v1beta1", "PodGroup", body).await;
    }

    pub(crate) async fn pod_group_status(&self, name: &str) -> Value {
        let group = self.dynamic("scheduling.volcano.sh", "v1beta1", "PodGroup").get(name).await.unwrap();
        group.data["status"].clone()
    }

    /// A job object without a controller: an owner for pods. Gives its uid.
    pub(crate) async fn job(&self, name: &str) -> String {
        let template =
            json!({ "spec": { "restartPolicy": "Never", "containers": [{ "name": "main", "image": "x" }] } });
        let body = json!({ "metadata": { "name": name }, "spec": { "template": template } });
        self.create("batch", "v1", "Job", body).await.metadata.uid.unwrap()
    }

    /// A Workload of a job, for so many pods of one GPU each.
    pub(crate) async fn workload(&self, job: &str, uid: &str, count: u32) {
        let owner =
            json!({ "apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": uid, "controller": true });
        let template = json!({ "spec": { "restartPolicy": "Never", "containers": [{ "name": "main", "image": "x",
            "resources": { "requests": { GPU: "1" }, "limits": { GPU: "1" } } }] } });
        let body = json!({
            "metadata": { "name": format!("job-{job}"), "ownerReferences": [owner] },
            "spec": { "queueName": "q", "podSets": [{ "name": "main", "count": count, "template": template }] },
        });
        self.create("kueue.x-k8s.io", "v1beta2", "Workload", body).await;
    }

    pub(crate) async fn admit(&self, job: &str, count: u32) {
        self.admit_sets(job, &[("main", count)]).await;
    }

    /// Admits the Workload of a job, with so many pods of one GPU in each pod set.
    pub(crate) async fn admit_sets(&self, job: &str, sets: &[(&str, u32)]) {
        let now = "2026-01-01T00:00:00Z";
        let condition = |kind: &str| json!({ "type": kind, "status": "True", "reason": kind, "message": "m", "lastTransitionTime": now });
        let assignment = |(name, count): &(&str, u32)| {
            json!({ "name": name, "count": count,
                "flavors": { GPU: "f" }, "resourceUsage": { GPU: count.to_string() } })
        };
        let assignments: Vec<Value> = sets.iter().map(assignment).collect();
        let status = json!({ "status": {
            "conditions": [condition("QuotaReserved"), condition("Admitted")],
            "admission": { "clusterQueue": "cq", "podSetAssignments": assignments },
        } });
        self.dynamic("kueue.x-k8s.io", "v1beta2", "Workload")
            .patch_status(&format!("job-{job}"), &PatchParams::default(), &Patch::Merge(status))
            .await
            .unwrap();
    }

    pub(crate) fn pods_api(&self) -> Api<Pod> {
        Api::default_namespaced(self.cluster.client())
    }

    pub(crate) async fn pod(&self, name: &str, metadata: Value) {
        let mut metadata = metadata;
        metadata["name"] = json!(name);
        let pod = json!({ "metadata": metadata, "spec": { "schedulerName": "trireme", "containers": [{
            "name": "main", "image": "x", "resources": { "limits": { GPU: "1" } } }] } });
        self.pods_api().create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    }

    /// Pods `prefix-0`, `prefix-1`, … of a PodGroup, owned by a job if there is one.
    pub(crate) async fn group_pods(&self, group: &str, count: u32, job: Option<&str>) {
        for index in 0..count {
            let mut metadata = json!({ "annotations": { "scheduling.k8s.io/group-name": group } });
            if let Some(uid) = job {
                metadata["ownerReferences"] = owner(group, uid);
            }
            self.pod(&format!("{group}-{index}"), metadata).await;
        }
    }

    pub(crate) async fn job_pods(&self, job: &str, uid: &str, count: u32) {
        for index in 0..count {
            let metadata =
                json!({ "labels": { "kueue.x-k8s.io/podset": "main" }, "ownerReferences": owner(job, uid) });
            self.pod(&format!("{job}-{index}"), metadata).await;
        }
    }

    /// Nodes of all pods, by name of the pod; those without one are left out.
    pub(crate) async fn bound(&self) -> Vec<(String, String)> {
        let pods = self.pods_api().list(&ListParams::default()).await.unwrap();
        let mut bound: Vec<_> =
            pods.into_iter().filter_map(|pod| Some((pod.metadata.name?, pod.spec?.node_name?))).collect();
        bound.sort();
        bound
    }

    pub(crate) async fn placements(&self) -> Vec<GangPlacement> {
        let api: Api<GangPlacement> = Api::default_namespaced(self.cluster.client());
        api.list(&ListParams::default()).await.unwrap().items
    }

    /// Reason and message of a pod's `PodScheduled`.
    pub(crate) async fn unscheduled(&self, pod: &str) -> (String, String) {
        let pod = self.pods_api().get(pod).await.unwrap();
        let conditions = pod.status.unwrap().conditions.unwrap_or_default();
        let condition =
            conditions.into_iter().find(|one| one.type_ == "PodScheduled" && one.status == "False");
        condition
            .map(|one| (one.reason.unwrap_or_default(), one.message.unwrap_or_default()))
            .unwrap_or_default()
    }

    /// What schedulers wrote: resource and subresource, in order; events left out.
    pub(crate) fn written(&self) -> Vec<String> {
        self.commits()
            .iter()
            .map(|commit| match commit.subresource.as_ref() {
                "" => format!("{} {}", commit.verb.as_str(), commit.resource.resource),
                part => format!("{} {}/{part}", commit.verb.as_str(), commit.resource.resource),
            })
            .collect()
    }

    pub(crate) fn commits(&self) -> Vec<Arc<Commit>> {
        let ours = |commit: &Arc<Commit>| commit.writer.starts_with("gang-scheduler");
        let log = self.cluster.log().into_iter();
        log.filter(|commit| ours(commit) && commit.resource.resource.as_ref() != "events").collect()
    }
}

fn owner(name: &str, uid: &str) -> Value {
    json!([{ "apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": true }])
}
