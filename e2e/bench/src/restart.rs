//! A controller that starts when there is much already: how long until its first decision, and how much memory it takes.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use cluster_sim::{Cluster, GroupResource, Part, SimConfig};
use kit::context::ServiceTable;
use kit::{Clock, Rng, Tasks};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::server::{LOAD, install};
use crate::subject::Subject;

/// What is there when it starts.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Size {
    /// Workloads in all.
    #[arg(long, default_value_t = 100_000)]
    workloads: usize,
    /// So many of them are admitted.
    #[arg(long, default_value_t = 10_000)]
    admitted: usize,
    /// ClusterQueues, in cohorts of a hundred. The admitted workloads fill all but one of them.
    #[arg(long, default_value_t = 1_000)]
    queues: usize,
}

const KUEUE: &str = "kueue.x-k8s.io";
/// After the first decision, so long until memory is read: everything that follows from the first look is done by then.
const SETTLE: Duration = Duration::from_secs(5);

/// Fills a simulated server, starts the program on it, prints what it took.
pub(crate) async fn run(size: Size, subject: &Subject, work: &Path) -> Result<()> {
    ensure!(size.queues > 1 && size.admitted <= size.workloads, "no such size");
    let tasks = Tasks::new();
    let mut config = SimConfig::new(Clock::System, tasks.clone(), Rng::seeded(1), ServiceTable::new());
    config.log_limit = 0;
    let cluster = Cluster::new(config);
    install(&cluster.client_as(LOAD)).await?;
    let admitted = fill(&cluster, size).await?;

    let first: Arc<Mutex<Option<Instant>>> = Arc::default();
    let noted = first.clone();
    let last = name(size.workloads - 1);
    cluster.on_commit(move |commit| {
        let is_admitted = |one: &Arc<cluster_sim::Object>| one.value()["status"]["admission"].is_object();
        let admits = commit
            .new
            .as_ref()
            .is_some_and(|one| one.value()["metadata"]["name"] == *last && is_admitted(one));
        if &*commit.writer == "admission-controller" && admits {
            noted.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(Clock::System.monotonic());
        }
    });
    std::fs::create_dir_all(work)?;
    let served = cluster.listen(([127, 0, 0, 1], 0).into()).await?;
    let kubeconfig = work.join("kubeconfig");
    std::fs::write(&kubeconfig, served.kubeconfig())?;
    let begun = Clock::System.monotonic();
    let mut running = subject.start(work, &kubeconfig)?;
    let decided = loop {
        tokio::time::sleep(Duration::from_millis(20)).await;
        running.usage()?;
        if let Some(at) = *first.lock().unwrap_or_else(PoisonError::into_inner) {
            break at - begun;
        }
        ensure!(Clock::System.monotonic() - begun < Duration::from_secs(300), "no decision within 300 s");
    };
    let until_then = running.usage()?;
    tokio::time::sleep(SETTLE).await;
    let usage = running.usage()?;
    println!(
        "{} Workloads, {admitted} admitted, {} ClusterQueues: first decision after {:.1} s ({:.1} s of processor time); \
         {:.0} MB resident {} s later, {:.0} MB at most",
        size.workloads,
        size.queues,
        decided.as_secs_f64(),
        until_then.cpu_seconds,
        usage.resident_mb,
        SETTLE.as_secs(),
        usage.peak_mb
    );
    tasks.kill();
    Ok(())
}

fn name(number: usize) -> String {
    format!("job-{number:06}-0a1b2")
}

/// Returns how many are admitted.
async fn fill(cluster: &Cluster, size: Size) -> Result<usize> {
    let store = cluster.store(LOAD);
    let resource = |name: &str| GroupResource::new(KUEUE, name);
    let version = format!("{KUEUE}/v1beta2");
    for name in ["trireme-system", "team"] {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        store.create(&GroupResource::core("namespaces"), namespace).await.context("a namespace")?;
    }
    let flavor =
        json!({"apiVersion": version, "kind": "ResourceFlavor", "metadata": {"name": "rf"}, "spec": {}});
    store.create(&resource("resourceflavors"), flavor).await.context("a flavor")?;
    let each = (size.admitted / (size.queues - 1)).max(1);
    for queue in 0..size.queues {
        let name = format!("cq-{queue}");
        let object = json!({
            "apiVersion": version, "kind": "ClusterQueue", "metadata": {"name": name},
            "spec": {
                "cohortName": format!("cohort-{}", queue / 100), "namespaceSelector": {}, "queueingStrategy": "BestEffortFIFO",
                "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": "rf", "resources": [
                    {"name": "cpu", "nominalQuota": each, "borrowingLimit": 0},
                ]}]}],
            },
        });
        store.create(&resource("clusterqueues"), object).await.context("a ClusterQueue")?;
        let object = json!({
            "apiVersion": version, "kind": "LocalQueue", "metadata": {"name": name, "namespace": "team"},
            "spec": {"clusterQueue": name},
        });
        store.create(&resource("localqueues"), object).await.context("a LocalQueue")?;
    }
    let busy = size.queues - 1;
    let mut given = 0;
    for number in 0..size.workloads {
        // The last queue is free: who comes last is the one to be admitted.
        let queue = if number + 1 == size.workloads { busy } else { number % busy };
        let name = name(number);
        store.create(&resource("workloads"), workload(&version, &name, queue)).await.context("a Workload")?;
        if number < size.admitted && number / busy < each {
            given += 1;
            store
                .update(&resource("workloads"), "team", &name, Part::Status, |object| {
                    object["status"] = admitted(queue);
                    Ok(())
                })
                .await
                .context("an admission")?;
        }
    }
    Ok(given)
}

/// As a job's Workload looks: a template with what templates have.
fn workload(version: &str, name: &str, queue: usize) -> Value {
    let variable =
        |number: usize| json!({"name": format!("SETTING_{number}"), "value": format!("value-{number}")});
    json!({
        "apiVersion": version, "kind": "Workload",
        "metadata": {
            "name": name, "namespace": "team",
        },
        "spec": {"queueName": format!("cq-{queue}"), "active": true, "priority": 0, "podSets": [{
            "name": "main", "count": 1,
            "template": {"metadata": {"labels": {"app": "trainer", "team": "vision"}}, "spec": {
                "restartPolicy": "Never",
                "containers": [{
                    "name": "main", "image": "registry.example.com/team/trainer:1.2.3",
                    "command": ["python", "train.py"], "args": ["--epochs", "10", "--batch", "256"],
                    "env": (0..8).map(variable).collect::<Vec<_>>(),
                    "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}},
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                }],
                "volumes": [{"name": "data", "emptyDir": {}}],
                "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
            }},
        }]},
    })
}

fn admitted(queue: usize) -> Value {
    let condition = |kind: &str| {
        json!({
            "type": kind, "status": "True", "reason": kind, "message": "", "observedGeneration": 1,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };
    json!({
        "conditions": [condition("QuotaReserved"), condition("Admitted"), condition("PodsReady")],
        "admission": {"clusterQueue": format!("cq-{queue}"), "podSetAssignments": [{
            "name": "main", "count": 1, "flavors": {"cpu": "rf"}, "resourceUsage": {"cpu": "1"},
        }]},
    })
}
