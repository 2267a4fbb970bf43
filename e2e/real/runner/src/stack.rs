//! The three programs on the real node, with queues: what the tests of jobs lean on.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use api_parity::WebhookHost as _;
use serde_json::{Value, json};

use crate::cluster::{Applied, condition, get, wait};
use crate::node::IMAGE;
use crate::process::free_port;
use crate::programs::wait_ready;
use crate::registry::{Outcome, Test, need, output};
use crate::service::{self, own_address};
use crate::tests::agent::{self, visible_devices};
use crate::tests::node::kubectl;
use crate::webhooks::HOLD;
use crate::world::World;
use control_plane::Request;

pub(crate) const ADMISSION: &str = "admission-controller";
pub(crate) const SCHEDULER: &str = "gang-scheduler";
pub(crate) const AGENT: &str = "node-agent";

pub(crate) const NAMESPACE: &str = "team";
pub(crate) const SYSTEM: &str = "trireme-system";
pub(crate) const GPU: &str = "nvidia.com/gpu";
pub(crate) const JOBS: &str = "/apis/batch/v1/namespaces/team/jobs";
pub(crate) const PYTORCH: &str = "/apis/kubeflow.org/v1/namespaces/team/pytorchjobs";
pub(crate) const PODS: &str = "/api/v1/namespaces/team/pods";
pub(crate) const WORKLOADS: &str = "/apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads";
pub(crate) const PLACEMENTS: &str = "/apis/trireme.dev/v1alpha1/namespaces/team/gangplacements";

/// A test of what runs here, alone: before it all is as it is meant to be, after it nothing of it is left.
pub(crate) fn test(name: &str, run: impl AsyncFn(&World) -> Result<()> + 'static) -> Test {
    let run = Arc::new(run);
    let on_the_stack = move |world: Arc<World>| {
        let run = run.clone();
        async move {
            need!(possible(&world));
            start(&world).await?;
            let outcome = run(&world).await;
            world.running()?.webhooks.release();
            if let Err(error) = outcome {
                return Err(error.context(state(&world).await));
            }
            clear(&world).await?;
            Ok(Outcome::Passed)
        }
    };
    Test::new(name, on_the_stack).alone()
}

pub(crate) fn possible(world: &World) -> Result<()> {
    agent::possible(world)?;
    for name in [ADMISSION, SCHEDULER, "training-operator"] {
        world.tools.get(name)?;
    }
    let kinds = &world.running()?.applier;
    ensure!(kinds.knows("kubeflow.org", "v1", "PyTorchJob"), "kubeflow.org/v1 PyTorchJob is not installed");
    Ok(())
}

/// Whether JobSet is installed.
pub(crate) fn knows_jobsets(world: &World) -> Result<bool> {
    Ok(world.running()?.applier.knows("jobset.x-k8s.io", "v1alpha2", "JobSet"))
}

/// Everything as it is meant to run, whatever the test before has left: started when first asked for.
pub(crate) async fn start(world: &World) -> Result<()> {
    let running = world.running()?;
    running.webhooks.release();
    output(&mut kubectl(
        world,
        &["delete", "validatingwebhookconfiguration", HOLD_NAME, "--ignore-not-found"],
    )?)
    .await?;
    tidy_replicas(world).await?;
    agent::start(world).await?;
    start_admission(world, ADMISSION).await?;
    start_scheduler(world, SCHEDULER).await?;
    world.kubeflow().await?;
    for document in queues() {
        running.applier.must(&document).await?;
    }
    clear(world).await
}

/// One replica each, awake, and the API server's way to those that run.
async fn tidy_replicas(world: &World) -> Result<()> {
    let names = world.programs().await?.names();
    for name in names {
        world.programs().await?.unpause(&name)?;
        if name.ends_with("-2") {
            world.programs().await?.kill(&name)?;
        }
    }
    for name in [ADMISSION, "admission-controller-2"] {
        if world.programs().await?.runs(name) {
            restore_endpoints(world, name).await?;
        } else {
            remove_endpoints(world, name).await?;
        }
    }
    for program in [ADMISSION, SCHEDULER] {
        // Nobody who is dead holds a lease.
        if leader(world, program).await.is_ok_and(|(holder, _)| holder.ends_with("-2")) {
            output(&mut kubectl(world, &["delete", "lease", program, "-n", SYSTEM])?).await?;
        }
    }
    Ok(())
}

/// A replica of gang-scheduler, ready.
pub(crate) async fn start_scheduler(world: &World, name: &str) -> Result<()> {
    make_namespace(world).await?;
    world.programs().await?.start(&world.tools, SCHEDULER, name, &[])?;
    wait_ready(world, name).await
}

/// Where the API server finds webhooks that run on this machine. An EndpointSlice holds no loopback addresses.
pub(crate) fn address(world: &World) -> Result<IpAddr> {
    if world.can_run_a_node().is_ok() {
        world.network.make_bridge()?;
        return Ok(world.network.address());
    }
    own_address()
}

async fn make_namespace(world: &World) -> Result<()> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}});
    world.running()?.applier.must(&namespace).await.map(|_| ())
}

/// A replica of admission-controller, ready, with its webhooks in place.
pub(crate) async fn start_admission(world: &World, name: &str) -> Result<()> {
    let _one_at_a_time = world.starting.lock().await;
    if world.programs().await?.runs(name) {
        return Ok(());
    }
    launch_admission(world, name).await?;
    configure_webhooks(world).await?;
    wait_ready(world, name).await?;
    wait_trusted(world).await.with_context(|| format!("{name} does not come up"))
}

/// Starts a replica of admission-controller with an EndpointSlice of its own behind the one Service: the API server resolves
/// it without kube-proxy.
pub(crate) async fn launch_admission(world: &World, name: &str) -> Result<()> {
    let applier = &world.running()?.applier;
    make_namespace(world).await?;
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": ADMISSION, "namespace": SYSTEM},
        "spec": {"ports": [{"name": "https", "port": 443, "protocol": "TCP"}]}});
    applier.must(&service).await?;
    let port = free_port()?;
    for object in endpoints(world, name, port)? {
        applier.must(&object).await?;
    }
    let file = world.work.join(format!("{name}.yaml"));
    std::fs::write(&file, json!({"webhook": {"port": port}}).to_string())?;
    let arguments = ["--config".to_owned(), file.display().to_string()];
    world.programs().await?.start(&world.tools, ADMISSION, name, &arguments)
}

fn endpoints(world: &World, name: &str, port: u16) -> Result<[Value; 2]> {
    Ok(service::endpoints(SYSTEM, ADMISSION, name, address(world)?, port))
}

/// The API server asks this replica no more, as when its pod is not ready.
pub(crate) async fn remove_endpoints(world: &World, name: &str) -> Result<()> {
    let arguments = ["delete", "endpointslice", name, "-n", SYSTEM, "--ignore-not-found"];
    output(&mut kubectl(world, &arguments)?).await.map(|_| ())
}

/// The API server asks this replica again.
pub(crate) async fn restore_endpoints(world: &World, name: &str) -> Result<()> {
    let config: Value =
        serde_json::from_str(&std::fs::read_to_string(world.work.join(format!("{name}.yaml")))?)?;
    let port = u16::try_from(config["webhook"]["port"].as_u64().context("a port")?)?;
    for object in endpoints(world, name, port)? {
        world.running()?.applier.must(&object).await?;
    }
    Ok(())
}

/// Tells a replica to end, once the API server asks it no more.
pub(crate) async fn stop(world: &World, name: &str) -> Result<()> {
    if name.starts_with(ADMISSION) {
        remove_endpoints(world, name).await?;
    }
    world.programs().await?.stop(name).await
}

/// The webhook configurations as they are installed, without an authority.
pub(crate) async fn configure_webhooks(world: &World) -> Result<()> {
    let (mutating, validating) = admission_controller::webhook_configurations(None);
    for (kind, mut body) in [
        ("MutatingWebhookConfiguration", serde_json::to_value(mutating)?),
        ("ValidatingWebhookConfiguration", serde_json::to_value(validating)?),
    ] {
        body["apiVersion"] = json!("admissionregistration.k8s.io/v1");
        body["kind"] = json!(kind);
        world.running()?.applier.must(&body).await?;
    }
    Ok(())
}

/// Waits until the leader has told the API server whom to trust, and the API server has heard it.
pub(crate) async fn wait_trusted(world: &World) -> Result<()> {
    let client = &world.running()?.plane.client;
    wait("the certificate authority in webhooks and definitions", Duration::from_secs(30), async || {
        world.programs().await?.alive()?;
        let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
        let all = get(client, path).await?;
        let items = all["items"].as_array().cloned().unwrap_or_default();
        let mut ours = items.iter().flat_map(|item| item["webhooks"].as_array().into_iter().flatten());
        let told = ours.all(|webhook| {
            let config = &webhook["clientConfig"];
            config["service"]["name"] != ADMISSION || config["caBundle"].is_string()
        });
        ensure!(told, "a webhook has no authority");
        // A list in the version that is not stored goes through the conversion; a refused job through the webhook.
        get(client, "/apis/kueue.x-k8s.io/v1beta1/clusterqueues").await?;
        let probe = batch("probe", "training", 1, 1, "");
        match world.running()?.applier.apply(&probe, true).await? {
            Applied::Accepted(job) if job.data["spec"]["suspend"] == true => Ok(true),
            Applied::Accepted(_) => bail!("no webhook suspends a job"),
            Applied::Refused(answer) => bail!("a job is refused: {answer}"),
            Applied::Unknown => bail!("no jobs are served"),
        }
    })
    .await
}

const HOLD_NAME: &str = "e2e-hold";

/// Lets only so many of our programs' requests of this operation and resource through, in the namespace of the tests; the
/// others are held back at the API server, neither refused nor applied, for at most thirty seconds.
pub(crate) async fn hold(
    world: &World,
    operation: &str,
    group: &str,
    resource: &str,
    after: usize,
) -> Result<()> {
    let running = world.running()?;
    running.webhooks.hold(after);
    let any = json!({"apiGroups": [group], "apiVersions": ["*"], "operations": [operation], "resources": [resource]});
    let probe = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]});
    let ours =
        "request.userInfo.username.startsWith('trireme:') || request.resource.resource == 'configmaps'";
    let webhook = json!({"name": "hold.e2e.trireme.dev", "clientConfig": running.webhooks.client_config(HOLD),
        "rules": [any, probe], "matchConditions": [{"name": "ours", "expression": ours}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}},
        "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore", "timeoutSeconds": 30});
    running
        .applier
        .must(
            &json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": HOLD_NAME}, "webhooks": [webhook]}),
        )
        .await?;
    let probe = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "probe", "namespace": NAMESPACE}});
    wait("requests to be held back", Duration::from_secs(20), async || {
        Ok(matches!(running.applier.apply(&probe, true).await?, Applied::Refused(_)))
    })
    .await
}

/// Waits until this many requests are held back.
pub(crate) async fn wait_held(world: &World, count: usize) -> Result<()> {
    let webhooks = &world.running()?.webhooks;
    let what = format!("{count} requests to be held back");
    let held = wait(&what, Duration::from_secs(30), async || Ok(webhooks.held() >= count));
    if let Err(error) = held.await {
        return Err(error.context(state(world).await));
    }
    Ok(())
}

/// What our programs have written so far, as the API server tells it; without leases and events.
pub(crate) fn written(world: &World) -> Result<Vec<Request>> {
    let mut all = world.running()?.plane.requests()?;
    let beside = ["leases", "events"];
    all.retain(|one| (200..300).contains(&one.code) && !beside.contains(&one.resource.as_str()));
    Ok(all)
}

/// Who holds a lease, and how often it has changed hands.
pub(crate) async fn leader(world: &World, lease: &str) -> Result<(String, i64)> {
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/{lease}");
    let lease = get(&world.running()?.plane.client, &path).await?;
    let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
    let replica = holder.rsplit_once('_').map_or(holder, |(name, _)| name);
    Ok((replica.to_owned(), lease["spec"]["leaseTransitions"].as_i64().unwrap_or_default()))
}

pub(crate) fn queues() -> Vec<Value> {
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
            json!({"namespaceSelector": {}, "preemption": {"withinClusterQueue": "LowerPriority"}, "stopPolicy": "None",
                "resourceGroups": [{"coveredResources": [GPU],
                    "flavors": [{"name": "a100", "resources": [{"name": GPU, "nominalQuota": 8}]}]}]}),
        ),
        kueue(
            "LocalQueue",
            json!({"name": "training", "namespace": NAMESPACE}),
            json!({"clusterQueue": "team"}),
        ),
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": "urgent"},
            "value": 100}),
    ]
}

pub(crate) fn template(container: &str, gpus: u32, run_for: &str) -> Value {
    json!({"spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false,
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": container, "image": IMAGE, "imagePullPolicy": "Never",
            "env": [{"name": "RUN_FOR", "value": run_for}], "resources": {"limits": {GPU: gpus.to_string()}}}]}})
}

pub(crate) fn pytorch(name: &str, workers: u32, gpus: u32) -> Value {
    json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"kueue.x-k8s.io/queue-name": "training"}},
        "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": workers, "restartPolicy": "OnFailure",
            "template": template("pytorch", gpus, "")}}}})
}

pub(crate) fn batch(name: &str, queue: &str, pods: u32, gpus: u32, run_for: &str) -> Value {
    json!({"apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"kueue.x-k8s.io/queue-name": queue}},
        "spec": {"parallelism": pods, "completions": pods, "template": template("main", gpus, run_for)}})
}

pub(crate) async fn list(world: &World, path: &str) -> Result<Vec<Value>> {
    Ok(get(&world.running()?.plane.client, path).await?["items"].as_array().cloned().unwrap_or_default())
}

/// Waits until this many pods with this label run, and returns their names.
pub(crate) async fn wait_running(world: &World, label: &str, count: usize) -> Result<Vec<String>> {
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
pub(crate) async fn state(world: &World) -> String {
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
        for name in programs.names() {
            text.push_str(&format!("--- {name}\n{}\n", programs.log_end(&name)));
        }
    }
    text
}

/// Every GPU in the containers of these pods; an error when one was given twice.
pub(crate) async fn gpus(world: &World, pods: &[String], each: usize) -> Result<BTreeSet<String>> {
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
pub(crate) async fn clear(world: &World) -> Result<()> {
    let kinds = "jobs,pytorchjobs,tfjobs,xgboostjobs,paddlejobs,podgroups.scheduling.volcano.sh,pods";
    let kinds = if knows_jobsets(world)? { format!("jobsets,{kinds}") } else { kinds.to_owned() };
    let arguments = ["delete", &kinds, "--all", "-n", NAMESPACE, "--wait=true"];
    output(&mut kubectl(world, &arguments)?).await?;
    let cleared = wait("pods and Workloads to be gone", Duration::from_secs(60), async || {
        Ok(list(world, PODS).await?.is_empty() && list(world, WORKLOADS).await?.is_empty())
    });
    if let Err(error) = cleared.await {
        return Err(error.context(state(world).await));
    }
    Ok(())
}

/// The only Workload there is.
pub(crate) async fn the_workload(world: &World) -> Result<Value> {
    let all = list(world, WORKLOADS).await?;
    ensure!(all.len() == 1, "wanted one Workload, got {}", all.len());
    all.into_iter().next().context("one Workload")
}

/// Whether a condition has this status.
pub(crate) fn is(object: &Value, kind: &str, status: &str) -> bool {
    condition(object, kind).is_some_and(|found| found["status"] == status)
}
