//! One node with one agent: a simulated API server and kubelet, a fake world, the real services between them.

#![allow(dead_code, reason = "every test file uses a part")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cluster_sim::node::{Kubelet, NodeSpec};
use cluster_sim::{Cluster, GroupResource, SimConfig, Store};
use fake_nvml::{Handle, World, WorldSpec};
use jiff::Timestamp;
use kit::{Clients, Clock, Context, Identity, Rng, ServiceTable, Tasks};
use node_agent::Config;
use node_agent::driver::FakeDriver;
use serde_json::{Value, json};

pub(crate) const GPU: &str = "nvidia.com/gpu";

pub(crate) async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// One node with one agent.
pub(crate) struct Bench {
    pub(crate) cluster: Cluster,
    pub(crate) store: Store,
    pub(crate) kubelet: Kubelet,
    pub(crate) world: Handle,
    pub(crate) tasks: Tasks,
}

impl Bench {
    /// After the agent has registered.
    pub(crate) async fn new(profile: &str) -> Self {
        let bench = Self::on(profile, NodeSpec::new("n1")).await;
        pass(3).await;
        bench
    }

    /// After the agent was started.
    pub(crate) async fn on(profile: &str, node: NodeSpec) -> Self {
        let mut bench = Self::without_agent(WorldSpec::profile(profile).unwrap(), node).await;
        bench.start_agent();
        bench
    }

    /// Without an agent.
    pub(crate) async fn idle(profile: &str) -> Self {
        Self::without_agent(WorldSpec::profile(profile).unwrap(), NodeSpec::new("n1")).await
    }

    /// A node with these GPUs and no agent.
    pub(crate) async fn without_agent(world: WorldSpec, node: NodeSpec) -> Self {
        let clock = Clock::starting_at(Timestamp::UNIX_EPOCH);
        let cluster = Cluster::new(SimConfig::new(clock, Tasks::new(), Rng::seeded(1), ServiceTable::new()));
        let store = cluster.store("test");
        let definitions = GroupResource::new("apiextensions.k8s.io", "customresourcedefinitions");
        for definition in crds::all_unconverted() {
            store.create(&definitions, serde_json::to_value(definition).unwrap()).await.unwrap();
        }
        let kubelet = cluster.add_node(node).unwrap();
        pass(1).await;
        let world = Handle::new(World::new(world, "n1"));
        Self { cluster, store, kubelet, world, tasks: Tasks::new() }
    }

    pub(crate) fn start_agent(&mut self) {
        let (ctx, config) = self.agent();
        self.tasks.spawn(async move { node_agent::run(ctx, config).await.unwrap() });
    }

    /// What a new agent is started with.
    pub(crate) fn agent(&mut self) -> (Context, Config) {
        self.tasks = Tasks::new();
        let ctx = Context {
            clients: Clients::shared(self.cluster.client_as("node-agent/n1")),
            clock: self.cluster.clock().clone(),
            rng: Rng::seeded(7),
            tasks: self.tasks.clone(),
            identity: Identity::new("node-agent-n1"),
            services: ServiceTable::new(),
        };
        let driver = Arc::new(FakeDriver::new(self.world.clone()));
        let spec = self.kubelet.spec();
        let config = Config {
            kubelet_socket: spec.plugin_directory().join("kubelet.sock"),
            pod_resources_socket: spec.pod_resources_socket(),
            sys_root: "/nowhere".into(),
            ..Config::new("n1", driver, spec.sockets.clone())
        };
        (ctx, config)
    }

    pub(crate) fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Value {
        let found = self.store.get(&GroupResource::new(group, plural), namespace, name);
        found.map_or(Value::Null, |object| object.value().clone())
    }

    pub(crate) fn node(&self) -> Value {
        self.get("", "nodes", "", "n1")
    }

    pub(crate) fn allocatable(&self) -> String {
        self.node()["status"]["allocatable"][GPU].as_str().unwrap_or("none").to_owned()
    }

    pub(crate) fn gpu_node(&self) -> Value {
        self.get("trireme.dev", "gpunodes", "", "n1")
    }

    /// Status, reason and message of the `GpuNode`'s condition.
    pub(crate) fn ready(&self) -> [String; 3] {
        let node = self.gpu_node();
        let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let ready = conditions.into_iter().find(|condition| condition["type"] == "Ready").unwrap_or_default();
        ["status", "reason", "message"].map(|field| ready[field].as_str().unwrap_or_default().to_owned())
    }

    /// A pod that is on the node from the first moment: the kubelet may call before the agent has seen it.
    pub(crate) async fn pod(&self, name: &str, gpus: usize, chosen: Option<&[u32]>) {
        let chosen = chosen.map(|indices| json!({ "main": { GPU: indices } }).to_string());
        self.annotated_pod(name, gpus, chosen.as_deref()).await;
    }

    /// The same with any text as the choice of its devices.
    pub(crate) async fn annotated_pod(&self, name: &str, gpus: usize, chosen: Option<&str>) {
        let annotations = chosen.map(|text| json!({ "trireme.dev/devices": text }));
        let amount = json!({ GPU: gpus.to_string() });
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": name, "namespace": "default", "annotations": annotations },
            "spec": {
                "restartPolicy": "Never",
                "nodeName": "n1",
                "containers": [{
                    "name": "main", "image": "i", "resources": { "limits": amount, "requests": amount },
                }],
            },
        });
        self.store.create(&GroupResource::core("pods"), pod).await.unwrap();
    }

    pub(crate) fn phase(&self, name: &str) -> String {
        let pod = self.get("", "pods", "default", name);
        pod["status"]["phase"].as_str().unwrap_or("gone").to_owned()
    }

    /// The indices of the GPUs that a container sees in its environment.
    pub(crate) fn given(&self, name: &str) -> BTreeSet<u32> {
        let Some(start) = self.kubelet.container("default", name, "main") else { return BTreeSet::new() };
        let index: BTreeMap<String, u32> = self
            .world
            .read(|world| world.all_gpus().iter().map(|gpu| (gpu.uuid.clone(), gpu.index)).collect());
        start.env["NVIDIA_VISIBLE_DEVICES"].split(',').map(|uuid| index[uuid]).collect()
    }

    /// Writes of the agent so far, as `verb resource`.
    pub(crate) fn writes(&self) -> Vec<String> {
        let log = self.cluster.log();
        let own = log.iter().filter(|commit| commit.writer.as_ref() == "node-agent/n1");
        own.map(|commit| format!("{:?}", commit.verb)).collect()
    }
}

pub(crate) fn set(indices: &[u32]) -> BTreeSet<u32> {
    indices.iter().copied().collect()
}

/// The status of one of the agent's pages.
pub(crate) async fn page(services: &ServiceTable, path: &str) -> u16 {
    ask(services, path).await.status().as_u16()
}

/// The text of one of the agent's pages.
pub(crate) async fn text(services: &ServiceTable, path: &str) -> String {
    let body = axum::body::to_bytes(ask(services, path).await.into_body(), 1 << 20).await.unwrap();
    String::from_utf8(body.to_vec()).unwrap()
}

async fn ask(services: &ServiceTable, path: &str) -> axum::response::Response {
    let router = services.resolve("trireme-system", "node-agent").remove(0);
    let request = axum::http::Request::get(path).body(axum::body::Body::empty()).unwrap();
    tower::ServiceExt::oneshot(router, request).await.unwrap()
}
