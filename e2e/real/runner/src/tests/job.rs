//! The way of one job: Kubeflow's or the batch controller makes the pods, our three programs do the rest, the real kubelet
//! runs them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::agent::{self, visible_devices};
use super::node::kubectl;
use crate::cluster::{condition, get, wait};
use crate::node::{ADDRESS, IMAGE, NAME};
use crate::process::free_port;
use crate::registry::{Outcome, Test, need, output};
use crate::world::World;

const NAMESPACE: &str = "team";
const SYSTEM: &str = "trireme-system";
const GPU: &str = "nvidia.com/gpu";
const JOBS: &str = "/apis/batch/v1/namespaces/team/jobs";
const PYTORCH: &str = "/apis/kubeflow.org/v1/namespaces/team/pytorchjobs";
const PODS: &str = "/api/v1/namespaces/team/pods";
const WORKLOADS: &str = "/apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads";
const PLACEMENTS: &str = "/apis/trireme.dev/v1alpha1/namespaces/team/gangplacements";

/// Tests of all three programs together.
pub(crate) fn all() -> Vec<Test> {
    vec![
        Test::new("job/a_pytorchjob_of_four_workers_runs_as_a_gang", pytorchjob).alone(),
        Test::new("job/a_batch_job_runs_and_its_workload_is_finished", batch_job).alone(),
        Test::new("job/pods_with_a_volcano_podgroup_are_bound_together", podgroup).alone(),
        Test::new("job/a_second_job_waits_until_the_first_is_gone", waits).alone(),
        Test::new("job/a_job_of_an_unknown_queue_waits_and_says_why", unknown_queue).alone(),
        Test::new("job/a_v1beta1_clusterqueue_is_converted", converted).alone(),
        Test::new("job/admission_controller_killed_in_the_middle", |world| {
            killed(world, "admission-controller")
        })
        .alone(),
        Test::new("job/gang_scheduler_killed_in_the_middle", |world| killed(world, "gang-scheduler")).alone(),
        Test::new("job/node_agent_killed_in_the_middle", |world| killed(world, "node-agent")).alone(),
        Test::new("job/a_paused_gang_scheduler_is_replaced", |world| paused(world, "gang-scheduler")).alone(),
        Test::new("job/a_paused_admission_controller_is_replaced", |world| {
            paused(world, "admission-controller")
        })
        .alone(),
        Test::new("job/programs_end_when_told", ends).alone(),
    ]
}

fn possible(world: &World) -> Result<()> {
    agent::possible(world)?;
    for name in ["admission-controller", "gang-scheduler", "training-operator"] {
        world.tools.get(name)?;
    }
    Ok(())
}

/// Everything, started when first asked for.
async fn start(world: &World) -> Result<()> {
    agent::start(world).await?;
    let running = world.running()?;
    running
        .applier
        .must(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}}))
        .await?;
    start_admission(world, "admission-controller").await?;
    start_scheduler(world, "gang-scheduler").await?;
    world.kubeflow().await?;
    for document in queues() {
        running.applier.must(&document).await?;
    }
    // What a failed test has left must not fail the next one.
    clear(world).await
}

async fn start_scheduler(world: &World, name: &str) -> Result<()> {
    let admin = format!("127.0.0.1:{}", free_port()?);
    world.programs().await?.start(
        &world.tools,
        "gang-scheduler",
        name,
        &["--admin-address".to_owned(), admin],
    )
}

/// One replica with its EndpointSlice behind the one Service: the API server resolves it without kube-proxy.
async fn start_admission(world: &World, name: &str) -> Result<()> {
    let running = world.running()?;
    if world.programs().await?.runs(name) {
        return Ok(());
    }
    let service = "admission-controller";
    running
        .applier
        .must(
            &json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": service, "namespace": SYSTEM},
            "spec": {"ports": [{"name": "https", "port": 443, "protocol": "TCP"}]}}),
        )
        .await?;
    let port = free_port()?;
    running
        .applier
        .must(&json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": name, "namespace": SYSTEM, "labels": {"kubernetes.io/service-name": service}},
            "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
            "endpoints": [{"addresses": [ADDRESS], "conditions": {"ready": true}}]}))
        .await?;
    let file = world.work.join(format!("{name}.yaml"));
    std::fs::write(&file, json!({"webhook": {"port": port}}).to_string())?;
    let admin = format!("127.0.0.1:{}", free_port()?);
    let arguments = ["--config", &file.display().to_string(), "--admin-address", &admin].map(str::to_owned);
    let (mutating, validating) = admission_controller::webhook_configurations(None);
    for (kind, mut body) in [
        ("MutatingWebhookConfiguration", serde_json::to_value(mutating)?),
        ("ValidatingWebhookConfiguration", serde_json::to_value(validating)?),
    ] {
        body["apiVersion"] = json!("admissionregistration.k8s.io/v1");
        body["kind"] = json!(kind);
        running.applier.must(&body).await?;
    }
    world.programs().await?.start(&world.tools, "admission-controller", name, &arguments)?;
    wait("the certificate authority in the webhook configuration", Duration::from_secs(30), async || {
        world.programs().await?.alive()?;
        let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
        let all = get(&running.plane.client, path).await?;
        let ours = all["items"]
            .as_array()
            .into_iter()
            .flatten()
            .flat_map(|item| item["webhooks"].as_array().cloned());
        let mut ours = ours.flatten().filter(|webhook| webhook["clientConfig"]["service"]["name"] == service);
        Ok(ours.all(|webhook| webhook["clientConfig"]["caBundle"].is_string()))
    })
    .await
    .with_context(|| format!("{name} does not come up"))
}

fn queues() -> Vec<Value> {
    let kueue = |kind: &str, metadata: Value, spec: Value| json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": metadata, "spec": spec});
    vec![
        kueue(
            "ResourceFlavor",
            json!({"name": "a100"}),
            json!({"nodeLabels": {"nvidia.com/gpu.count": "8"}}),
        ),
        kueue(
            "ClusterQueue",
            json!({"name": "team"}),
            json!({"namespaceSelector": {}, "resourceGroups": [{"coveredResources": [GPU],
                "flavors": [{"name": "a100", "resources": [{"name": GPU, "nominalQuota": 8}]}]}]}),
        ),
        kueue(
            "LocalQueue",
            json!({"name": "training", "namespace": NAMESPACE}),
            json!({"clusterQueue": "team"}),
        ),
    ]
}

fn template(container: &str, gpus: u32, run_for: &str) -> Value {
    json!({"spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false,
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": container, "image": IMAGE, "imagePullPolicy": "Never",
            "env": [{"name": "RUN_FOR", "value": run_for}], "resources": {"limits": {GPU: gpus.to_string()}}}]}})
}

fn pytorch(name: &str, workers: u32, gpus: u32) -> Value {
    json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"kueue.x-k8s.io/queue-name": "training"}},
        "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": workers, "restartPolicy": "OnFailure",
            "template": template("pytorch", gpus, "")}}}})
}

fn batch(name: &str, queue: &str, pods: u32, gpus: u32, run_for: &str) -> Value {
    json!({"apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"kueue.x-k8s.io/queue-name": queue}},
        "spec": {"parallelism": pods, "completions": pods, "template": template("main", gpus, run_for)}})
}

async fn list(world: &World, path: &str) -> Result<Vec<Value>> {
    Ok(get(&world.running()?.plane.client, path).await?["items"].as_array().cloned().unwrap_or_default())
}

/// Waits until this many pods with this label run, and returns their names.
async fn wait_running(world: &World, label: &str, count: usize) -> Result<Vec<String>> {
    let path = format!("{PODS}?labelSelector={label}");
    let what = format!("{count} pods with {label} to run");
    let waited = wait(&what, Duration::from_secs(90), async || {
        world.programs().await?.alive()?;
        let pods = list(world, &path).await?;
        Ok(pods.len() == count && pods.iter().all(|pod| pod["status"]["phase"] == "Running"))
    });
    if let Err(error) = waited.await {
        return Err(error.context(state(world).await));
    }
    let pods = list(world, &path).await?;
    Ok(pods.iter().filter_map(|pod| pod["metadata"]["name"].as_str().map(str::to_owned)).collect())
}

/// What a person would look at, for a failed wait.
async fn state(world: &World) -> String {
    let mut text = String::new();
    for arguments in [
        vec!["get", "workloads,pods,gangplacements,jobs,pytorchjobs", "-n", NAMESPACE, "-o", "wide"],
        vec!["get", "events", "-n", NAMESPACE, "--sort-by=.lastTimestamp"],
    ] {
        if let Ok(mut command) = kubectl(world, &arguments) {
            text.push_str(&output(&mut command).await.unwrap_or_default());
        }
    }
    if let Ok(programs) = world.programs().await {
        for name in ["admission-controller", "gang-scheduler", "node-agent"] {
            text.push_str(&format!("--- {name}\n{}\n", programs.log_end(name)));
        }
    }
    text
}

/// Every GPU in the containers of these pods; an error when one was given twice.
async fn gpus(world: &World, pods: &[String], each: usize) -> Result<BTreeSet<String>> {
    let mut all = BTreeSet::new();
    for pod in pods {
        let seen = visible_devices(world, NAMESPACE, pod).await?;
        ensure!(seen.len() == each, "{pod} sees {seen:?}");
        for device in seen {
            ensure!(all.insert(device.clone()), "{device} was given twice");
        }
    }
    Ok(all)
}

/// Deletes everything of the namespace and waits until it and its quota are free.
async fn clear(world: &World) -> Result<()> {
    let arguments = [
        "delete",
        "jobs,pytorchjobs,podgroups.scheduling.volcano.sh,pods",
        "--all",
        "-n",
        NAMESPACE,
        "--wait=true",
    ];
    output(&mut kubectl(world, &arguments)?).await?;
    let cleared = wait("pods and Workloads to be gone", Duration::from_secs(60), async || {
        Ok(list(world, PODS).await?.is_empty() && list(world, WORKLOADS).await?.is_empty())
    });
    if let Err(error) = cleared.await {
        return Err(error.context(state(world).await));
    }
    Ok(())
}

async fn the_workload(world: &World) -> Result<Value> {
    let all = list(world, WORKLOADS).await?;
    ensure!(all.len() == 1, "wanted one Workload, got {}", all.len());
    all.into_iter().next().context("one Workload")
}

fn is(object: &Value, kind: &str, status: &str) -> bool {
    condition(object, kind).is_some_and(|found| found["status"] == status)
}

async fn pytorchjob(world: Arc<World>) -> Result<Outcome> {
    need!(possible(&world));
    start(&world).await?;
    let applier = &world.running()?.applier;
    let made = applier.must(&pytorch("llama", 4, 2)).await?;
    ensure!(made.data["spec"]["runPolicy"]["suspend"] == true, "suspended at creation: {}", made.data);
    let pods = wait_running(&world, "training.kubeflow.org/job-name=llama", 4).await?;
    ensure!(gpus(&world, &pods, 2).await?.len() == 8, "all eight");
    let workload = the_workload(&world).await?;
    for kind in ["QuotaReserved", "Admitted"] {
        ensure!(is(&workload, kind, "True"), "{kind}: {}", workload["status"]);
    }
    ensure!(workload["status"]["admission"]["clusterQueue"] == "team", "{}", workload["status"]);
    wait("the GangPlacement to be Bound", Duration::from_secs(20), async || {
        let all = list(&world, PLACEMENTS).await?;
        Ok(all.iter().any(|one| {
            one["status"]["phase"] == "Bound"
                && one["spec"]["members"].as_array().is_some_and(|m| m.len() == 4)
        }))
    })
    .await?;
    let job = get(&world.running()?.plane.client, &format!("{PYTORCH}/llama")).await?;
    ensure!(is(&job, "Running", "True"), "Kubeflow says it runs: {}", job["status"]);
    let bound = list(&world, PODS).await?;
    ensure!(
        bound.iter().all(|pod| pod["spec"]["schedulerName"] == "trireme" && pod["spec"]["nodeName"] == NAME),
        "bound by ours"
    );
    clear(&world).await?;
    Ok(Outcome::Passed)
}

async fn batch_job(world: Arc<World>) -> Result<Outcome> {
    need!(possible(&world));
    start(&world).await?;
    world.running()?.applier.must(&batch("short", "training", 2, 1, "2s")).await?;
    let client = &world.running()?.plane.client;
    let done = wait("the Job to be complete", Duration::from_secs(90), async || {
        Ok(is(&get(client, &format!("{JOBS}/short")).await?, "Complete", "True"))
    });
    if let Err(error) = done.await {
        return Err(error.context(state(&world).await));
    }
    wait("the Workload to be Finished", Duration::from_secs(20), async || {
        Ok(is(&the_workload(&world).await?, "Finished", "True"))
    })
    .await?;
    clear(&world).await?;
    Ok(Outcome::Passed)
}

async fn podgroup(world: Arc<World>) -> Result<Outcome> {
    need!(possible(&world));
    start(&world).await?;
    let applier = &world.running()?.applier;
    let group = json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": NAMESPACE}, "spec": {"minMember": 3}});
    applier.must(&group).await?;
    for (index, name) in ["g-0", "g-1", "g-2"].iter().enumerate() {
        // Incomplete, it must wait.
        if index == 2 {
            tokio::time::sleep(Duration::from_secs(2)).await;
            let pods = list(&world, PODS).await?;
            ensure!(pods.iter().all(|pod| pod["spec"]["nodeName"].is_null()), "two of three were bound");
        }
        let mut pod = template("main", 2, "");
        pod["apiVersion"] = json!("v1");
        pod["kind"] = json!("Pod");
        pod["metadata"] = json!({"name": name, "namespace": NAMESPACE, "labels": {"app": "g"},
            "annotations": {"scheduling.k8s.io/group-name": "g"}});
        pod["spec"]["schedulerName"] = json!("volcano");
        applier.must(&pod).await?;
    }
    let pods = wait_running(&world, "app=g", 3).await?;
    ensure!(gpus(&world, &pods, 2).await?.len() == 6, "six");
    clear(&world).await?;
    Ok(Outcome::Passed)
}

async fn waits(world: Arc<World>) -> Result<Outcome> {
    need!(possible(&world));
    start(&world).await?;
    let applier = &world.running()?.applier;
    applier.must(&batch("first", "training", 4, 2, "")).await?;
    wait_running(&world, "job-name=first", 4).await?;
    applier.must(&batch("second", "training", 2, 2, "")).await?;
    wait("the second Workload to say why it waits", Duration::from_secs(20), async || {
        let all = list(&world, WORKLOADS).await?;
        Ok(all.iter().any(|workload| {
            let reserved = condition(workload, "QuotaReserved");
            reserved.is_some_and(|found| {
                found["status"] == "False" && found["message"].as_str().is_some_and(|text| !text.is_empty())
            })
        }))
    })
    .await?;
    ensure!(
        list(&world, &format!("{PODS}?labelSelector=job-name=second")).await?.is_empty(),
        "it makes no pods yet"
    );
    output(&mut kubectl(&world, &["delete", "job", "first", "-n", NAMESPACE])?).await?;
    wait_running(&world, "job-name=second", 2).await?;
    clear(&world).await?;
    Ok(Outcome::Passed)
}

async fn unknown_queue(world: Arc<World>) -> Result<Outcome> {
    need!(possible(&world));
    start(&world).await?;
    world.running()?.applier.must(&batch("lost", "nowhere", 1, 1, "")).await?;
    wait("its Workload to be inadmissible", Duration::from_secs(20), async || {
        let workload = the_workload(&world).await?;
        Ok(condition(&workload, "QuotaReserved").is_some_and(|found| found["status"] == "False"))
    })
    .await?;
    clear(&world).await?;
    Ok(Outcome::Passed)
}

async fn converted(world: Arc<World>) -> Result<Outcome> {
    need!(possible(&world));
    start(&world).await?;
    let old = json!({"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQueue", "metadata": {"name": "old"},
        "spec": {"cohort": "shared", "namespaceSelector": {}, "resourceGroups": [{"coveredResources": [GPU],
            "flavors": [{"name": "a100", "resources": [{"name": GPU, "nominalQuota": 1}]}]}]}});
    world.running()?.applier.must(&old).await?;
    let client = &world.running()?.plane.client;
    let new = get(client, "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/old").await?;
    ensure!(new["spec"]["cohortName"] == "shared" && new["spec"]["cohort"].is_null(), "{}", new["spec"]);
    let again = get(client, "/apis/kueue.x-k8s.io/v1beta1/clusterqueues/old").await?;
    ensure!(again["spec"]["cohort"] == "shared", "{}", again["spec"]);
    Ok(Outcome::Passed)
}

/// SIGKILL while a gang is on its way, at several distances from its creation.
async fn killed(world: Arc<World>, program: &str) -> Result<Outcome> {
    need!(possible(&world));
    start(&world).await?;
    for (round, delay) in [50, 400].into_iter().enumerate() {
        let name = format!("killed-{round}");
        world.running()?.applier.must(&batch(&name, "training", 4, 2, "")).await?;
        tokio::time::sleep(Duration::from_millis(delay)).await;
        world.programs().await?.kill(program)?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        world.programs().await?.restart(program)?;
        let pods = wait_running(&world, &format!("job-name={name}"), 4).await?;
        ensure!(gpus(&world, &pods, 2).await?.len() == 8, "all eight");
        clear(&world).await?;
    }
    Ok(Outcome::Passed)
}

/// A second replica takes over from one that stands still, and the first does no harm when it wakes.
async fn paused(world: Arc<World>, program: &str) -> Result<Outcome> {
    need!(possible(&world));
    start(&world).await?;
    let second = format!("{program}-2");
    if program == "gang-scheduler" {
        start_scheduler(&world, &second).await?;
    } else {
        start_admission(&world, &second).await?;
        // The API server would wait for webhooks of the paused replica.
        let slice = format!("/apis/discovery.k8s.io/v1/namespaces/{SYSTEM}/endpointslices/{program}");
        let request = http::Request::delete(slice).body(Vec::new())?;
        world.running()?.plane.client.request::<Value>(request).await?;
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    world.programs().await?.pause(program)?;
    world.running()?.applier.must(&batch("handover", "training", 4, 2, "")).await?;
    let pods = wait_running(&world, "job-name=handover", 4).await;
    world.programs().await?.unpause(program)?;
    ensure!(gpus(&world, &pods?, 2).await?.len() == 8, "all eight");
    tokio::time::sleep(Duration::from_secs(3)).await;
    let still = wait_running(&world, "job-name=handover", 4).await?;
    ensure!(gpus(&world, &still, 2).await?.len() == 8, "nothing moved when the first woke");
    world.programs().await?.alive()?;
    world.programs().await?.kill(program)?;
    clear(&world).await?;
    Ok(Outcome::Passed)
}

async fn ends(world: Arc<World>) -> Result<Outcome> {
    need!(possible(&world));
    start(&world).await?;
    let names = world.programs().await?.names();
    for name in names {
        world.programs().await?.stop(&name).await?;
    }
    Ok(Outcome::Passed)
}
