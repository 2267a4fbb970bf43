//! Kubelets against the real services, in virtual time.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt};
use jiff::Timestamp;
use kit::{Clock, Rng, ServiceTable, Tasks};
use proto::deviceplugin::device_plugin_server::{DevicePlugin, DevicePluginServer};
use proto::deviceplugin::registration_client::RegistrationClient;
use proto::deviceplugin::*;
use proto::podresources::pod_resources_lister_client::PodResourcesListerClient;
use proto::podresources::{GetPodResourcesRequest, ListPodResourcesRequest};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use crate::node::{Kubelet, NodeSpec};
use crate::{Cluster, DeleteOptions, GroupResource, Part, SimConfig, Store};

const GPU: &str = "nvidia.com/gpu";

fn pods() -> GroupResource {
    GroupResource::core("pods")
}

fn cluster() -> Cluster {
    let clock = Clock::starting_at(Timestamp::UNIX_EPOCH);
    Cluster::new(SimConfig::new(clock, Tasks::new(), Rng::seeded(1), ServiceTable::new()))
}

async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// A plugin of two GPUs by default, whose devices the test changes.
struct Plugin {
    tasks: Tasks,
    devices: watch::Sender<Vec<Device>>,
}

struct Service {
    devices: watch::Receiver<Vec<Device>>,
    refuse: bool,
}

fn devices(count: usize, ill: &[usize]) -> Vec<Device> {
    let health = |index| if ill.contains(&index) { UNHEALTHY } else { HEALTHY };
    (0..count)
        .map(|index| Device { id: format!("gpu-{index}"), health: health(index).into(), topology: None })
        .collect()
}

#[tonic::async_trait]
impl DevicePlugin for Service {
    type ListAndWatchStream = Pin<Box<dyn Stream<Item = Result<ListAndWatchResponse, Status>> + Send>>;

    async fn get_device_plugin_options(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<DevicePluginOptions>, Status> {
        Ok(Response::new(DevicePluginOptions {
            pre_start_required: true,
            get_preferred_allocation_available: true,
        }))
    }

    async fn list_and_watch(&self, _: Request<Empty>) -> Result<Response<Self::ListAndWatchStream>, Status> {
        let lists =
            WatchStream::new(self.devices.clone()).map(|devices| Ok(ListAndWatchResponse { devices }));
        Ok(Response::new(Box::pin(lists)))
    }

    /// Prefers the highest ids.
    async fn get_preferred_allocation(
        &self,
        request: Request<PreferredAllocationRequest>,
    ) -> Result<Response<PreferredAllocationResponse>, Status> {
        let asked = request.into_inner().container_requests.pop().unwrap();
        let size = usize::try_from(asked.allocation_size).unwrap();
        let device_i_ds = asked.available_device_i_ds.into_iter().rev().take(size).collect();
        let container_responses = vec![ContainerPreferredAllocationResponse { device_i_ds }];
        Ok(Response::new(PreferredAllocationResponse { container_responses }))
    }

    async fn allocate(
        &self,
        request: Request<AllocateRequest>,
    ) -> Result<Response<AllocateResponse>, Status> {
        if self.refuse {
            return Err(Status::failed_precondition("no more than none"));
        }
        let asked = request.into_inner().container_requests.pop().unwrap();
        let given = ContainerAllocateResponse {
            envs: [("NVIDIA_VISIBLE_DEVICES".to_owned(), asked.devices_ids.join(","))].into(),
            cdi_devices: asked
                .devices_ids
                .iter()
                .map(|id| CdiDevice { name: format!("v/gpu={id}") })
                .collect(),
            ..Default::default()
        };
        Ok(Response::new(AllocateResponse { container_responses: vec![given] }))
    }

    async fn pre_start_container(
        &self,
        _: Request<PreStartContainerRequest>,
    ) -> Result<Response<PreStartContainerResponse>, Status> {
        Ok(Response::new(PreStartContainerResponse {}))
    }
}

/// Serves two GPUs and registers.
async fn plug(kubelet: &Kubelet, refuse: bool) -> Plugin {
    let (sender, receiver) = watch::channel(devices(2, &[]));
    let tasks = Tasks::new();
    let (sockets, folder) = (kubelet.sockets().clone(), kubelet.spec().plugin_directory());
    let _ = sockets.remove(&folder.join("gpu.sock"));
    let listener = sockets.listen(&folder.join("gpu.sock")).unwrap();
    let service = DevicePluginServer::new(Service { devices: receiver, refuse });
    tasks.spawn(Server::builder().add_service(service).serve_with_incoming(listener));
    let registration = sockets.connect(&folder.join(KUBELET_SOCKET)).await.unwrap();
    let request = RegisterRequest {
        version: VERSION.into(),
        endpoint: "gpu.sock".into(),
        resource_name: GPU.into(),
        options: None,
    };
    RegistrationClient::new(registration).register(request).await.unwrap();
    Plugin { tasks, devices: sender }
}

fn pod(name: &str, gpus: u32, annotations: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": "default", "annotations": annotations },
        "spec": {
            "restartPolicy": "Never",
            "nodeName": "n1",
            "containers": [{
                "name": "c", "image": "i",
                "env": [{ "name": "NODE", "valueFrom": { "fieldRef": { "fieldPath": "spec.nodeName" } } }],
                "resources": { "limits": { GPU: gpus.to_string(), "cpu": "1" }, "requests": { GPU: gpus.to_string(), "cpu": "1" } },
            }],
        },
    })
}

struct Bench {
    cluster: Cluster,
    store: Store,
    kubelet: Kubelet,
}

impl Bench {
    /// One node.
    async fn new() -> Self {
        let cluster = cluster();
        let kubelet = cluster.add_node(NodeSpec::new("n1")).unwrap();
        pass(1).await;
        Self { store: cluster.store("test"), cluster, kubelet }
    }

    async fn create(&self, pod: Value) {
        self.store.create(&pods(), pod).await.unwrap();
    }

    fn status(&self, name: &str) -> Value {
        let pod = self.store.get(&pods(), "default", name);
        pod.map_or(Value::Null, |pod| pod.value()["status"].clone())
    }

    fn phase(&self, name: &str) -> String {
        self.status(name)["phase"].as_str().unwrap_or("gone").to_owned()
    }

    fn node(&self) -> Value {
        self.store.get(&GroupResource::core("nodes"), "", "n1").unwrap().value().clone()
    }

    /// Capacity and allocatable.
    fn gpus(&self) -> (String, String) {
        let node = self.node();
        let of = |field: &str| node["status"][field][GPU].as_str().unwrap_or("none").to_owned();
        (of("capacity"), of("allocatable"))
    }

    fn env(&self, name: &str) -> BTreeMap<String, String> {
        self.kubelet.container("default", name, "c").map(|start| start.env).unwrap_or_default()
    }
}

fn both(text: &str) -> (String, String) {
    (text.into(), text.into())
}

#[tokio::test(start_paused = true)]
async fn a_node_registers_and_then_is_quiet() {
    let bench = Bench::new().await;
    let node = bench.node();
    assert_eq!(node["metadata"]["labels"]["kubernetes.io/hostname"], "n1");
    assert_eq!(node["status"]["allocatable"], json!({ "cpu": "64", "memory": "512Gi", "pods": "110" }));
    let ready =
        node["status"]["conditions"].as_array().unwrap().iter().find(|one| one["type"] == "Ready").unwrap();
    assert_eq!(ready["status"], "True");
    let before = bench.cluster.revision();
    pass(3600).await;
    assert_eq!(bench.cluster.revision(), before, "no write in a quiet hour");
    bench.kubelet.set_ready(false);
    pass(1).await;
    assert_eq!(bench.cluster.revision(), before + 1);
    assert_eq!(bench.cluster.log().last().unwrap().writer.as_ref(), "kubelet/n1");
}

#[tokio::test(start_paused = true)]
async fn a_pod_gets_the_devices_that_the_plugin_prefers() {
    let bench = Bench::new().await;
    let _plugin = plug(&bench.kubelet, false).await;
    pass(1).await;
    assert_eq!(bench.gpus(), both("2"));
    bench.create(pod("p", 1, json!({}))).await;
    pass(1).await;
    assert_eq!(bench.phase("p"), "Running");
    let start = bench.kubelet.container("default", "p", "c").unwrap();
    assert_eq!(start.env["NVIDIA_VISIBLE_DEVICES"], "gpu-1");
    assert_eq!(start.env["NODE"], "n1");
    assert_eq!(start.given.cdi_devices[0].name, "v/gpu=gpu-1");
    assert_eq!(bench.kubelet.holder(GPU, "gpu-1").as_deref(), Some("default/p"));
    let logs = bench.cluster.pod_logs("n1").unwrap();
    assert_eq!(
        logs.text("default", "p", "c").unwrap(),
        "HOSTNAME=p\nNODE=n1\nNVIDIA_VISIBLE_DEVICES=gpu-1\n"
    );
    assert!(logs.text("default", "p", "other").is_err());
}

#[tokio::test(start_paused = true)]
async fn the_outcome_follows_the_annotations_and_frees_the_devices() {
    let bench = Bench::new().await;
    let _plugin = plug(&bench.kubelet, false).await;
    pass(1).await;
    bench.create(pod("well", 1, json!({ "sim.trireme.dev/run-for": "30s" }))).await;
    bench
        .create(pod("ill", 1, json!({ "sim.trireme.dev/run-for": "30s", "sim.trireme.dev/exit-code": "3" })))
        .await;
    pass(29).await;
    assert_eq!((bench.phase("well"), bench.phase("ill")), ("Running".into(), "Running".into()));
    pass(2).await;
    assert_eq!((bench.phase("well"), bench.phase("ill")), ("Succeeded".into(), "Failed".into()));
    assert_eq!(bench.status("ill")["containerStatuses"][0]["state"]["terminated"]["exitCode"], 3);
    bench.create(pod("next", 2, json!({}))).await;
    pass(1).await;
    assert_eq!(bench.phase("next"), "Running", "both devices are free again");
    let writes: Vec<_> = bench
        .cluster
        .log()
        .iter()
        .filter(|c| c.key.name.as_ref() == "well")
        .map(|c| c.writer.to_string())
        .collect();
    assert_eq!(writes, ["test", "kubelet/n1", "kubelet/n1"], "created, running, done");
}

#[tokio::test(start_paused = true)]
async fn what_the_node_cannot_take_fails_with_its_reason() {
    let bench = Bench::new().await;
    let refusing = plug(&bench.kubelet, true).await;
    pass(1).await;
    bench.create(pod("three", 3, json!({}))).await;
    bench.create(pod("one", 1, json!({}))).await;
    let mut big = pod("big", 0, json!({}));
    big["spec"]["containers"][0]["resources"] = json!({ "requests": { "cpu": "65" } });
    bench.create(big).await;
    pass(1).await;
    let reason = |name: &str| bench.status(name)["reason"].clone();
    assert_eq!(reason("three"), "UnexpectedAdmissionError");
    assert_eq!(reason("one"), "UnexpectedAdmissionError");
    let message = bench.status("one")["message"].clone();
    assert!(message.as_str().unwrap().contains("no more than none"), "the plugin's own words: {message}");
    assert_eq!(reason("big"), "OutOfcpu");
    assert_eq!(bench.phase("big"), "Failed");
    refusing.tasks.kill();
    let _plugin = plug(&bench.kubelet, false).await;
    pass(1).await;
    bench.create(pod("two", 2, json!({}))).await;
    pass(1).await;
    assert_eq!(bench.phase("two"), "Running", "a refused pod holds nothing");
}

#[tokio::test(start_paused = true)]
async fn a_dead_plugin_leaves_capacity_for_five_minutes() {
    let bench = Bench::new().await;
    let plugin = plug(&bench.kubelet, false).await;
    pass(1).await;
    plugin.devices.send_replace(devices(2, &[0]));
    pass(1).await;
    assert_eq!(bench.gpus(), ("2".into(), "1".into()));
    plugin.tasks.kill();
    pass(1).await;
    assert_eq!(bench.gpus(), ("2".into(), "0".into()));
    bench.create(pod("late", 1, json!({}))).await;
    pass(1).await;
    assert_eq!(bench.status("late")["reason"], "UnexpectedAdmissionError");
    pass(300).await;
    assert_eq!(bench.gpus(), both("0"));
    let _plugin = plug(&bench.kubelet, false).await;
    pass(1).await;
    assert_eq!(bench.gpus(), both("2"));
}

#[tokio::test(start_paused = true)]
async fn a_restart_empties_the_folder_and_keeps_what_runs() {
    let bench = Bench::new().await;
    let _old = plug(&bench.kubelet, false).await;
    pass(1).await;
    bench.create(pod("before", 1, json!({ "sim.trireme.dev/run-for": "1h" }))).await;
    pass(1).await;
    let folder = bench.kubelet.spec().plugin_directory();
    let socket = folder.join(KUBELET_SOCKET);
    let identity = bench.kubelet.sockets().identity(&socket);
    bench.kubelet.restart().unwrap();
    pass(1).await;
    assert_ne!(bench.kubelet.sockets().identity(&socket), identity);
    assert!(!bench.kubelet.sockets().exists(&folder.join("gpu.sock")), "plugins' sockets are gone");
    assert_eq!(bench.gpus(), both("0"));
    bench.create(pod("early", 1, json!({}))).await;
    pass(1).await;
    assert_eq!(
        bench.status("early")["reason"],
        "UnexpectedAdmissionError",
        "as the real one does before plugins are back"
    );
    let _new = plug(&bench.kubelet, false).await;
    pass(1).await;
    assert_eq!(bench.gpus(), both("2"));
    assert_eq!(bench.phase("before"), "Running");
    bench.create(pod("after", 1, json!({}))).await;
    pass(1).await;
    assert_eq!(bench.env("before")["NVIDIA_VISIBLE_DEVICES"], "gpu-1");
    assert_eq!(
        bench.env("after")["NVIDIA_VISIBLE_DEVICES"],
        "gpu-0",
        "the checkpoint knows who holds the other one"
    );
    pass(3600).await;
    assert_eq!(bench.phase("before"), "Succeeded", "and it ends when it would have");
}

#[tokio::test(start_paused = true)]
async fn what_ends_while_the_kubelet_is_down_is_reported_when_it_is_back() {
    let bench = Bench::new().await;
    bench.create(pod("p", 0, json!({ "sim.trireme.dev/run-for": "10s" }))).await;
    bench.create(pod("q", 0, json!({}))).await;
    pass(1).await;
    bench.kubelet.stop();
    bench.store.delete(&pods(), "default", "q", DeleteOptions::now()).await.unwrap();
    pass(60).await;
    assert_eq!(bench.phase("p"), "Running");
    bench.kubelet.start().unwrap();
    pass(1).await;
    assert_eq!(bench.phase("p"), "Succeeded");
    let finished = &bench.status("p")["containerStatuses"][0]["state"]["terminated"]["finishedAt"];
    assert_eq!(finished, "1970-01-01T00:00:11Z", "when it happened, not when it was told");
    assert!(bench.kubelet.container("default", "q", "c").is_none());
}

#[tokio::test(start_paused = true)]
async fn deletion_honours_grace_and_then_removes_the_object() {
    let bench = Bench::new().await;
    let _plugin = plug(&bench.kubelet, false).await;
    pass(1).await;
    bench.create(pod("slow", 1, json!({}))).await;
    bench.create(pod("quick", 1, json!({ "sim.trireme.dev/stop-after": "2s" }))).await;
    pass(1).await;
    for name in ["slow", "quick"] {
        bench.store.delete(&pods(), "default", name, DeleteOptions::default()).await.unwrap();
    }
    pass(1).await;
    assert_eq!((bench.phase("slow"), bench.phase("quick")), ("Running".into(), "Running".into()));
    let ready = |name: &str| {
        let status = bench.status(name);
        status["conditions"].as_array().unwrap().iter().find(|one| one["type"] == "Ready").unwrap()["status"]
            .clone()
    };
    assert_eq!(ready("slow"), "False", "a pod that is going serves nobody");
    pass(2).await;
    assert_eq!((bench.phase("slow"), bench.phase("quick")), ("Running".into(), "gone".into()));
    pass(30).await;
    assert_eq!(bench.phase("slow"), "gone");
    assert_eq!(bench.kubelet.holder(GPU, "gpu-0"), None);
    bench.create(pod("forced", 2, json!({}))).await;
    pass(1).await;
    bench.store.delete(&pods(), "default", "forced", DeleteOptions::now()).await.unwrap();
    pass(1).await;
    assert_eq!(bench.kubelet.holder(GPU, "gpu-0"), None, "nothing runs on without its object");
}

#[tokio::test(start_paused = true)]
async fn pod_resources_tell_who_holds_what() {
    let bench = Bench::new().await;
    let _plugin = plug(&bench.kubelet, false).await;
    pass(1).await;
    bench.create(pod("p", 2, json!({ "sim.trireme.dev/run-for": "5s" }))).await;
    pass(1).await;
    let channel =
        bench.kubelet.sockets().connect(&bench.kubelet.spec().pod_resources_socket()).await.unwrap();
    let mut client = PodResourcesListerClient::new(channel);
    let listed = client.list(ListPodResourcesRequest {}).await.unwrap().into_inner().pod_resources;
    let ids: Vec<_> = listed[0].containers[0].devices.iter().map(|one| one.device_ids.join(",")).collect();
    assert_eq!((listed[0].name.as_str(), ids), ("p", vec!["gpu-0".to_owned(), "gpu-1".to_owned()]));
    let named =
        |name: &str| GetPodResourcesRequest { pod_name: name.into(), pod_namespace: "default".into() };
    assert_eq!(client.get(named("p")).await.unwrap().into_inner().pod_resources, Some(listed[0].clone()));
    assert_eq!(client.get(named("q")).await.unwrap_err().code(), tonic::Code::NotFound);
    let all =
        client.get_allocatable_resources(proto::podresources::AllocatableResourcesRequest {}).await.unwrap();
    assert_eq!(all.into_inner().devices.len(), 2);
    pass(5).await;
    assert!(client.list(ListPodResourcesRequest {}).await.unwrap().into_inner().pod_resources.is_empty());
}

#[tokio::test(start_paused = true)]
async fn trouble_is_told_and_overcome() {
    let bench = Bench::new().await;
    let mut needy = pod("needy", 0, json!({}));
    needy["spec"]["containers"][0]["env"] =
        json!([{ "name": "S", "valueFrom": { "secretKeyRef": { "name": "s", "key": "k" } } }]);
    bench.create(needy).await;
    bench.create(pod("wrong", 0, json!({ "sim.trireme.dev/run-for": "soon" }))).await;
    pass(1).await;
    let waiting = |name: &str| bench.status(name)["containerStatuses"][0]["state"]["waiting"].clone();
    assert_eq!(waiting("needy")["reason"], "CreateContainerConfigError");
    assert!(waiting("wrong")["message"].as_str().unwrap().contains("sim.trireme.dev/run-for"));
    let before = bench.cluster.revision();
    pass(3600).await;
    assert_eq!(bench.cluster.revision(), before, "trying again writes nothing");
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s", "namespace": "default" }, "data": { "k": "dg==" } });
    bench.store.create(&GroupResource::core("secrets"), secret).await.unwrap();
    pass(301).await;
    assert_eq!(bench.phase("needy"), "Running");
    assert_eq!(bench.env("needy")["S"], "v");
    let mend = |value: &mut Value| {
        value["metadata"]["annotations"]["sim.trireme.dev/run-for"] = "10s".into();
        Ok(())
    };
    bench.store.update(&pods(), "default", "wrong", Part::Main, mend).await.unwrap();
    pass(5).await;
    assert_eq!(bench.phase("wrong"), "Running");
    pass(6).await;
    assert_eq!(bench.phase("wrong"), "Succeeded");
    for name in ["needy", "wrong"] {
        bench.store.delete(&pods(), "default", name, DeleteOptions::default()).await.unwrap();
    }
    pass(31).await;
    assert_eq!((bench.phase("needy"), bench.phase("wrong")), ("gone".into(), "gone".into()));
}

#[tokio::test(start_paused = true)]
async fn a_foreign_status_field_is_kept_and_starts_no_quarrel() {
    let bench = Bench::new().await;
    bench.create(pod("p", 0, json!({}))).await;
    pass(1).await;
    let add = |value: &mut Value| {
        let condition = json!({ "type": "example.com/own", "status": "True", "lastTransitionTime": "1970-01-01T00:00:00Z" });
        value["status"]["conditions"].as_array_mut().unwrap().push(condition);
        Ok(())
    };
    bench.store.update(&pods(), "default", "p", Part::Status, add).await.unwrap();
    let before = bench.cluster.revision();
    pass(60).await;
    assert_eq!(bench.cluster.revision(), before);
}

#[tokio::test(start_paused = true)]
async fn many_pods_on_few_devices_never_share_one() {
    let cluster = cluster();
    let store = cluster.store("test");
    let mut plugins = Vec::new();
    for node in ["n1", "n2"] {
        let kubelet = cluster.add_node(NodeSpec::new(node)).unwrap();
        plugins.push((plug(&kubelet, false).await, kubelet));
    }
    pass(1).await;
    for index in 0..40u64 {
        let mut one =
            pod(&format!("p{index}"), 1, json!({ "sim.trireme.dev/run-for": format!("{}s", index % 7) }));
        one["spec"]["nodeName"] = if index % 2 == 0 { "n1" } else { "n2" }.into();
        store.create(&pods(), one).await.unwrap();
        pass(index % 3).await;
    }
    pass(60).await;
    let done = store.list(&pods(), Some("default"));
    assert_eq!(done.len(), 40);
    for pod in done {
        let status = &pod.value()["status"];
        assert!(status["phase"] == "Succeeded" || status["reason"] == "UnexpectedAdmissionError", "{status}");
    }
}

/// As a scheduler and `kubectl` see it.
#[tokio::test(start_paused = true)]
async fn a_bound_pod_runs_and_its_logs_are_its_environment() {
    use k8s_openapi::api::core::v1::Pod;
    use kube::api::{Api, LogParams, PostParams};
    let bench = Bench::new().await;
    let _plugin = plug(&bench.kubelet, false).await;
    pass(1).await;
    let api: Api<Pod> = Api::default_namespaced(bench.cluster.client());
    let mut unbound = pod("p", 1, json!({}));
    unbound["spec"].as_object_mut().unwrap().remove("nodeName");
    api.create(&PostParams::default(), &serde_json::from_value(unbound).unwrap()).await.unwrap();
    pass(5).await;
    assert_eq!(bench.phase("p"), "Pending");
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": { "name": "p" }, "target": { "kind": "Node", "name": "n1" },
    });
    let _: Value = api.create_subresource("binding", "p", &PostParams::default(), &binding).await.unwrap();
    pass(1).await;
    let conditions = bench.status("p")["conditions"].clone();
    let scheduled = conditions.as_array().unwrap().iter().find(|one| one["type"] == "PodScheduled").unwrap();
    assert_eq!(scheduled["lastTransitionTime"], "1970-01-01T00:00:07Z", "the binding's, not the kubelet's");
    let logs = api.logs("p", &LogParams::default()).await.unwrap();
    assert_eq!(logs, "HOSTNAME=p\nNODE=n1\nNVIDIA_VISIBLE_DEVICES=gpu-1\n");
}

/// The same story twice: the same log.
#[test]
fn two_runs_are_the_same() {
    let story = || {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let bench = Bench::new().await;
            let _plugin = plug(&bench.kubelet, false).await;
            for index in 0..8 {
                bench.create(pod(&format!("p{index}"), 1, json!({ "sim.trireme.dev/run-for": "3s" }))).await;
            }
            pass(30).await;
            bench.kubelet.restart().unwrap();
            pass(30).await;
            let log = bench.cluster.log();
            log.iter()
                .map(|c| {
                    format!("{} {} {} {:?}", c.revision, c.writer, c.key, c.new.as_ref().map(|o| o.bytes()))
                })
                .collect::<Vec<_>>()
        })
    };
    assert_eq!(story(), story());
}

#[tokio::test]
async fn over_unix_sockets() {
    let root = std::env::temp_dir().join(format!("trireme-node-{}", std::process::id()));
    let cluster =
        Cluster::new(SimConfig::new(Clock::System, Tasks::new(), Rng::seeded(1), ServiceTable::new()));
    let spec = NodeSpec { sockets: proto::sockets::Sockets::Unix, root: root.clone(), ..NodeSpec::new("n1") };
    let kubelet = cluster.add_node(spec).unwrap();
    let _plugin = plug(&kubelet, false).await;
    let store = cluster.store("test");
    let checkpoint = kubelet.spec().plugin_directory().join(CHECKPOINT);
    std::fs::write(&checkpoint, "{}").unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    store.create(&pods(), pod("p", 1, json!({}))).await.unwrap();
    let mut waited = 0;
    while kubelet.container("default", "p", "c").is_none() && waited < 500 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        waited += 1;
    }
    assert_eq!(kubelet.container("default", "p", "c").unwrap().env["NVIDIA_VISIBLE_DEVICES"], "gpu-1");
    kubelet.restart().unwrap();
    assert!(!kubelet.spec().plugin_directory().join("gpu.sock").exists());
    assert!(checkpoint.exists(), "the checkpoint is left");
    std::fs::remove_dir_all(&root).unwrap();
}

#[test]
fn handles_can_be_shared() {
    fn shared<T: Send + Sync>() {}
    shared::<Kubelet>();
    shared::<Arc<Kubelet>>();
}
