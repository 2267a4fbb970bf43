//! node-agent with eight fake GPUs on the real kubelet: it speaks NVML, to the library of `fake-nvml-abi`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::node::{kubectl, pod, wait_phase};
use crate::cluster::{get, wait};
use crate::node::NAME;
use crate::registry::{Outcome, Test, need, output};
use crate::tools::FAKE_NVML;
use crate::world::World;

const GPU: &str = "nvidia.com/gpu";
const AGENT: &str = "node-agent";

/// Tests of node-agent alone beside a foreign scheduler.
pub(crate) fn all() -> Vec<Test> {
    vec![
        Test::new("node-agent/offers_eight_gpus_and_tells_about_them", offers).alone(),
        Test::new("node-agent/labels_the_node_as_gpu_feature_discovery_does", labels).alone(),
        Test::new("node-agent/containers_see_the_gpus_they_were_given", gives).alone(),
        Test::new("node-agent/no_gpu_is_given_twice", all_different).alone(),
        Test::new("node-agent/a_pod_that_asks_for_more_than_is_left_is_refused_by_the_kubelet", too_many)
            .alone(),
        Test::new("node-agent/a_schedulers_choice_on_the_binding_is_honoured", chosen).alone(),
        Test::new("node-agent/killed_and_started_again_it_serves_as_before", killed).alone(),
        Test::new("node-agent/a_restarted_kubelet_is_registered_with_again", kubelet_restarts).alone(),
        Test::new("node-agent/a_wrong_configuration_file_is_refused_with_its_field", wrong_configuration),
    ]
}

/// The node and node-agent on it; started when first asked for.
pub(crate) async fn start(world: &World) -> Result<()> {
    let folder = world.node().await?.kubelet_folder.clone();
    let arguments = [
        ("--node-name", NAME.to_owned()),
        ("--driver", "nvml".to_owned()),
        ("--nvml-library", world.tools.get(FAKE_NVML)?.display().to_string()),
        ("--kubelet-socket", folder.join("device-plugins/kubelet.sock").display().to_string()),
        ("--pod-resources-socket", folder.join("pod-resources/kubelet.sock").display().to_string()),
    ];
    let arguments: Vec<String> =
        arguments.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]).collect();
    world.programs().await?.start(&world.tools, AGENT, AGENT, &arguments)?;
    wait_allocatable(world, "8").await
}

/// The same, and nothing that a failed test has left holds a GPU.
async fn start_clean(world: &World) -> Result<()> {
    start(world).await?;
    let arguments = ["delete", "pod", "--all", "--wait=true", "--grace-period=1"];
    output(&mut kubectl(world, &arguments)?).await.map(|_| ())
}

/// Whether this machine can run these tests.
pub(crate) fn possible(world: &World) -> Result<()> {
    world.can_run_a_node()?;
    world.tools.get(FAKE_NVML)?;
    world.tools.get(AGENT).map(|_| ())
}

pub(crate) async fn wait_allocatable(world: &World, count: &str) -> Result<()> {
    let client = &world.running()?.plane.client;
    let what = format!("the node to offer {count} GPUs");
    let waited = wait(&what, Duration::from_secs(15), async || {
        world.programs().await?.alive()?;
        let node = get(client, &format!("/api/v1/nodes/{NAME}")).await?;
        Ok(node["status"]["allocatable"][GPU] == count)
    })
    .await;
    let log = world.programs().await?.log_end(AGENT);
    waited.with_context(|| format!("the end of node-agent's log:\n{log}"))
}

fn gpu_pod(name: &str, gpus: u32) -> Value {
    let mut body = pod(name, &[]);
    body["spec"]["containers"][0]["resources"] = json!({"limits": {GPU: gpus.to_string()}});
    body
}

/// The GPU UUIDs in the environment of a running container, asked of the container itself.
pub(crate) async fn visible_devices(world: &World, namespace: &str, name: &str) -> Result<BTreeSet<String>> {
    let arguments = ["exec", "-n", namespace, name, "--", "/workload", "env"];
    let environment = output(&mut kubectl(world, &arguments)?).await?;
    let line = environment.lines().find_map(|line| line.strip_prefix("NVIDIA_VISIBLE_DEVICES="));
    let line = line.with_context(|| format!("no NVIDIA_VISIBLE_DEVICES in pod {name}:\n{environment}"))?;
    let all: Vec<_> = line.split(',').map(str::to_owned).collect();
    let set: BTreeSet<_> = all.iter().cloned().collect();
    ensure!(set.len() == all.len(), "a device twice in one container: {line}");
    Ok(set)
}

/// The UUIDs of the node's GPUs by index, as GpuNode tells them.
pub(crate) async fn uuids(world: &World) -> Result<Vec<String>> {
    let client = &world.running()?.plane.client;
    let object = get(client, &format!("/apis/trireme.dev/v1alpha1/gpunodes/{NAME}")).await?;
    let devices = object["status"]["devices"].as_array().cloned().unwrap_or_default();
    Ok(devices.iter().filter_map(|device| device["uuid"].as_str().map(str::to_owned)).collect())
}

async fn remove(world: &World, names: &[&str]) -> Result<()> {
    let mut arguments = vec!["delete", "pod", "--wait=true", "--grace-period=1", "--ignore-not-found"];
    arguments.extend(names);
    output(&mut kubectl(world, &arguments)?).await?;
    Ok(())
}

async fn offers(world: Arc<World>) -> Result<Outcome> {
    need!(possible(&world));
    start_clean(&world).await?;
    let client = &world.running()?.plane.client;
    let path = format!("/apis/trireme.dev/v1alpha1/gpunodes/{NAME}");
    wait("GpuNode to list eight devices", Duration::from_secs(20), async || {
        let object = get(client, &path).await?;
        Ok(object["status"]["devices"].as_array().is_some_and(|devices| devices.len() == 8))
    })
    .await?;
    let object = get(client, &path).await?;
    let first = &object["status"]["devices"][0];
    ensure!(first["health"] == "Healthy", "{first}");
    ensure!(uuids(&world).await?.into_iter().collect::<BTreeSet<_>>().len() == 8, "{object}");
    Ok(Outcome::Passed)
}

async fn labels(world: Arc<World>) -> Result<Outcome> {
    need!(possible(&world));
    start_clean(&world).await?;
    let client = &world.running()?.plane.client;
    wait("the node's labels", Duration::from_secs(20), async || {
        let node = get(client, &format!("/api/v1/nodes/{NAME}")).await?;
        let labels = &node["metadata"]["labels"];
        let product = labels["nvidia.com/gpu.product"].as_str().unwrap_or_default();
        Ok(labels["nvidia.com/gpu.count"] == "8"
            && product.contains("A100")
            && labels["nvidia.com/gpu.memory"].is_string())
    })
    .await?;
    Ok(Outcome::Passed)
}

async fn gives(world: Arc<World>) -> Result<Outcome> {
    need!(possible(&world));
    start_clean(&world).await?;
    world.running()?.applier.must(&gpu_pod("gives", 2)).await?;
    wait_phase(&world, "gives", "Running").await?;
    let seen = visible_devices(&world, "default", "gives").await?;
    let known: BTreeSet<_> = uuids(&world).await?.into_iter().collect();
    ensure!(seen.len() == 2 && seen.is_subset(&known), "{seen:?} of {known:?}");
    remove(&world, &["gives"]).await?;
    Ok(Outcome::Passed)
}

async fn all_different(world: Arc<World>) -> Result<Outcome> {
    need!(possible(&world));
    start_clean(&world).await?;
    let pods = [("four", 4), ("two", 2), ("one", 1), ("last", 1)];
    for (name, gpus) in pods {
        world.running()?.applier.must(&gpu_pod(name, gpus)).await?;
    }
    let mut given = BTreeSet::new();
    for (name, gpus) in pods {
        wait_phase(&world, name, "Running").await?;
        let seen = visible_devices(&world, "default", name).await?;
        ensure!(seen.len() == gpus as usize, "{name}: {seen:?}");
        given.extend(seen);
    }
    ensure!(given.len() == 8, "{given:?}");
    remove(&world, &["four", "two", "one", "last"]).await?;
    Ok(Outcome::Passed)
}

async fn too_many(world: Arc<World>) -> Result<Outcome> {
    need!(possible(&world));
    start_clean(&world).await?;
    world.running()?.applier.must(&gpu_pod("too-many", 9)).await?;
    let failed = wait_phase(&world, "too-many", "Failed").await?;
    let reason = failed["status"]["reason"].as_str().unwrap_or_default();
    ensure!(reason == "OutOfnvidia.com/gpu" || reason == "UnexpectedAdmissionError", "{}", failed["status"]);
    remove(&world, &["too-many"]).await?;
    Ok(Outcome::Passed)
}

/// Makes a pod and binds it as a scheduler does, with its choice on the Binding.
async fn bind_with_choice(world: &World, name: &str, devices: &[u32]) -> Result<()> {
    let running = world.running()?;
    let mut body = gpu_pod(name, u32::try_from(devices.len())?);
    body["spec"]["schedulerName"] = json!("e2e");
    if let Some(spec) = body["spec"].as_object_mut() {
        spec.remove("nodeName");
    }
    let made = running.applier.must(&body).await?;
    let choice = json!({"main": {GPU: devices}}).to_string();
    let binding = json!({"apiVersion": "v1", "kind": "Binding",
        "metadata": {"name": name, "uid": made.metadata.uid, "annotations": {"trireme.dev/devices": choice}},
        "target": {"apiVersion": "v1", "kind": "Node", "name": NAME}});
    let request = http::Request::post(format!("/api/v1/namespaces/default/pods/{name}/binding"))
        .header("content-type", "application/json")
        .body(binding.to_string().into_bytes())?;
    running.plane.client.request::<Value>(request).await?;
    Ok(())
}

async fn chosen(world: Arc<World>) -> Result<Outcome> {
    need!(possible(&world));
    start_clean(&world).await?;
    let known = uuids(&world).await?;
    for (name, devices) in [("chosen-a", [1, 6]), ("chosen-b", [0, 7])] {
        bind_with_choice(&world, name, &devices).await?;
        wait_phase(&world, name, "Running").await?;
        let seen = visible_devices(&world, "default", name).await?;
        let wanted: BTreeSet<_> =
            devices.iter().filter_map(|index| known.get(*index as usize).cloned()).collect();
        ensure!(seen == wanted, "{name} was given {seen:?}, chosen were {wanted:?}");
    }
    remove(&world, &["chosen-a", "chosen-b"]).await?;
    Ok(Outcome::Passed)
}

async fn killed(world: Arc<World>) -> Result<Outcome> {
    need!(possible(&world));
    start_clean(&world).await?;
    world.running()?.applier.must(&gpu_pod("before", 3)).await?;
    wait_phase(&world, "before", "Running").await?;
    world.programs().await?.kill(AGENT)?;
    wait_allocatable_is_not(&world, "8").await?;
    world.programs().await?.restart(AGENT)?;
    wait_allocatable(&world, "8").await?;
    world.running()?.applier.must(&gpu_pod("after", 5)).await?;
    wait_phase(&world, "after", "Running").await?;
    let (before, after) = (
        visible_devices(&world, "default", "before").await?,
        visible_devices(&world, "default", "after").await?,
    );
    ensure!(before.is_disjoint(&after) && before.len() + after.len() == 8, "{before:?} {after:?}");
    remove(&world, &["before", "after"]).await?;
    Ok(Outcome::Passed)
}

/// The kubelet takes a plugin's devices for lost once its connection has ended.
pub(crate) async fn wait_allocatable_is_not(world: &World, count: &str) -> Result<()> {
    let client = &world.running()?.plane.client;
    wait(
        &format!("the node to offer something else than {count} GPUs"),
        Duration::from_secs(30),
        async || {
            let node = get(client, &format!("/api/v1/nodes/{NAME}")).await?;
            Ok(node["status"]["allocatable"][GPU] != count)
        },
    )
    .await
}

async fn kubelet_restarts(world: Arc<World>) -> Result<Outcome> {
    need!(possible(&world));
    start_clean(&world).await?;
    let client = world.running()?.plane.client.clone();
    world.node().await?.restart_kubelet(&client).await?;
    wait_allocatable(&world, "8").await?;
    // Until the agent has registered, the kubelet shows the old number and refuses whoever believes it.
    wait("a pod to be given all eight", Duration::from_secs(60), async || {
        let pod = world.running()?.applier.must(&gpu_pod("again", 8)).await?;
        if pod.data["status"]["reason"] == "UnexpectedAdmissionError" {
            remove(&world, &["again"]).await?;
        }
        Ok(pod.data["status"]["phase"] == "Running")
    })
    .await?;
    ensure!(visible_devices(&world, "default", "again").await?.len() == 8, "all eight");
    remove(&world, &["again"]).await?;
    Ok(Outcome::Passed)
}

async fn wrong_configuration(world: Arc<World>) -> Result<Outcome> {
    let binary = need!(world.tools.get(AGENT));
    let file = world.work.join("wrong-device-plugin.yaml");
    std::fs::write(&file, "version: v1\nflags:\n  migStrategy: sideways\n")?;
    let run = tokio::process::Command::new(binary)
        .args(["--node-name", NAME, "--driver", "fake:8xA100", "--config-file"])
        .arg(&file)
        .output()
        .await?;
    let text = String::from_utf8_lossy(&run.stderr);
    ensure!(run.status.code() == Some(2), "{}: {text}", run.status);
    ensure!(text.contains("migStrategy") || text.contains("sideways"), "{text}");
    Ok(Outcome::Passed)
}
