//! The API server that a run leans on: the simulated one in this process, or a real one beside it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use cluster_sim::{Cluster, SimConfig};
use control_plane::ControlPlane;
use control_plane::tools::Tools;
use kit::context::ServiceTable;
use kit::{Clients, Clock, Context, Identity, Rng, Tasks};
use serde_json::Value;

use crate::usage::Usage;

/// The load's own name, whose writes are not the controller's.
pub(crate) const LOAD: &str = "load";
/// Who is measured, as the simulated server names them: by their User-Agent.
const CONTROLLERS: [&str; 2] = ["admission-controller", crate::stub::NAME];
/// The account under which a controller runs on the real server: the audit log names who has it.
const ACCOUNT: &str = "admission-controller";
/// Changes that a watch may lag behind: the load's watch must never have to list again.
const HISTORY: usize = 65_536;

/// Which one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Against {
    /// cluster-sim, in this process and in real time.
    Sim,
    /// etcd and kube-apiserver.
    Real,
}

/// Writes by resource (with subresource) and verb.
pub(crate) type Counts = BTreeMap<String, u64>;

/// A fresh one, gone when dropped.
pub(crate) struct Server {
    pub(crate) kubeconfig: PathBuf,
    pub(crate) load: kube::Client,
    kind: Kind,
    tasks: Tasks,
}

enum Kind {
    Sim { counts: Arc<Mutex<Counts>> },
    Real { plane: Box<ControlPlane> },
}

impl Server {
    /// Starts it with our definitions of the API's kinds. `work` is a folder of its own.
    pub(crate) async fn start(against: Against, work: &Path, tools: Option<&Tools>) -> Result<Self> {
        let server = match (against, tools) {
            (Against::Sim, _) => Self::simulated(work).await?,
            (Against::Real, Some(tools)) => Self::real(work, tools).await?,
            (Against::Real, None) => anyhow::bail!("no binaries of a real control plane were built"),
        };
        install(&server.load).await?;
        Ok(server)
    }

    async fn simulated(work: &Path) -> Result<Self> {
        let tasks = Tasks::new();
        let mut config = SimConfig::new(Clock::System, tasks.clone(), Rng::seeded(1), ServiceTable::new());
        config.log_limit = 0;
        config.history_limit = HISTORY;
        let cluster = Cluster::new(config);
        let counts = Arc::new(Mutex::new(Counts::new()));
        let counter = counts.clone();
        cluster.on_commit(move |commit| {
            if !CONTROLLERS.contains(&&*commit.writer) {
                return;
            }
            if &*commit.resource.resource == "leases" {
                return;
            }
            let name = counted_as(&commit.resource.resource, &commit.subresource, commit.verb.as_str());
            *counter.lock().unwrap_or_else(PoisonError::into_inner).entry(name).or_default() += 1;
        });
        let served = cluster.listen(([127, 0, 0, 1], 0).into()).await?;
        std::fs::create_dir_all(work)?;
        let kubeconfig = work.join("kubeconfig");
        std::fs::write(&kubeconfig, served.kubeconfig())?;
        let load = cluster.client_as(LOAD);
        Ok(Self { kubeconfig, load, kind: Kind::Sim { counts }, tasks })
    }

    async fn real(work: &Path, tools: &Tools) -> Result<Self> {
        // Nothing that a controller manager does is part of the load.
        let tools = tools.clone().without("kube-controller-manager");
        let plane = ControlPlane::start(work, &tools).await?;
        let kubeconfig = work.join("control-plane").join(format!("{ACCOUNT}.kubeconfig"));
        let load = plane.client.clone();
        Ok(Self { kubeconfig, load, kind: Kind::Real { plane: Box::new(plane) }, tasks: Tasks::new() })
    }

    /// What the load does its work with.
    pub(crate) fn context(&self) -> Context {
        Context {
            clients: Clients::shared(self.load.clone()),
            clock: Clock::System,
            rng: Rng::from_entropy(),
            tasks: self.tasks.clone(),
            identity: Identity::new(LOAD),
            services: ServiceTable::new(),
        }
    }

    /// What the controller has written so far; those that the server refused are counted apart. Leases are left out: they are
    /// written by time, not by work.
    pub(crate) fn writes(&self) -> Result<(Counts, u64)> {
        match &self.kind {
            Kind::Sim { counts } => Ok((counts.lock().unwrap_or_else(PoisonError::into_inner).clone(), 0)),
            Kind::Real { plane } => {
                let (mut counts, mut refused) = (Counts::new(), 0);
                for request in plane.requests()? {
                    if request.resource.starts_with("leases") {
                        continue;
                    }
                    if request.code >= 400 {
                        refused += 1;
                    } else {
                        *counts.entry(format!("{} {}", request.verb, request.resource)).or_default() += 1;
                    }
                }
                Ok((counts, refused))
            }
        }
    }

    /// What the API server (with its storage) has used; the simulated one has no process of its own.
    pub(crate) fn usage(&self) -> Option<Usage> {
        match &self.kind {
            Kind::Sim { .. } => None,
            Kind::Real { plane } => {
                let mut all = plane.servers().into_iter().filter_map(Usage::of);
                let first = all.next()?;
                Some(all.fold(first, Usage::plus))
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.tasks.kill();
    }
}

fn counted_as(resource: &str, part: &str, verb: &str) -> String {
    if part.is_empty() { format!("{verb} {resource}") } else { format!("{verb} {resource}/{part}") }
}

/// Installs our definitions of the API's kinds.
pub(crate) async fn install(client: &kube::Client) -> Result<()> {
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let mut names = Vec::new();
    for definition in crds::definition::all_unconverted() {
        names.extend(definition.metadata.name.clone());
        let mut object = serde_json::to_value(&definition)?;
        object["apiVersion"] = "apiextensions.k8s.io/v1".into();
        object["kind"] = "CustomResourceDefinition".into();
        post(client, path, &object).await?;
    }
    for name in names {
        established(client, &format!("{path}/{name}")).await?;
    }
    Ok(())
}

async fn established(client: &kube::Client, path: &str) -> Result<()> {
    for _ in 0..300 {
        let definition: Value = client.request(http::Request::get(path).body(Vec::new())?).await?;
        let conditions = definition["status"]["conditions"].as_array();
        let is_true = |one: &Value| one["type"] == "Established" && one["status"] == "True";
        if conditions.is_some_and(|conditions| conditions.iter().any(is_true)) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    anyhow::bail!("{path} was not established within 30 s")
}

/// Creates an object.
pub(crate) async fn post(client: &kube::Client, path: &str, object: &Value) -> Result<Value> {
    let request = http::Request::post(path)
        .header("content-type", "application/json")
        .body(serde_json::to_vec(object)?)?;
    let what = || format!("creating {} {}", object["kind"], object["metadata"]["name"]);
    client.request(request).await.with_context(what)
}

/// The path under which objects of this kind are made.
pub(crate) fn collection(object: &Value) -> Result<String> {
    let text = |field: &Value| field.as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let plural = match kind.as_str() {
        "Namespace" => "namespaces",
        "Node" => "nodes",
        "ResourceFlavor" => "resourceflavors",
        "Topology" => "topologies",
        "ClusterQueue" => "clusterqueues",
        "LocalQueue" => "localqueues",
        "Workload" => "workloads",
        _ => anyhow::bail!("no path is known for {kind}"),
    };
    let base = if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
    Ok(match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{base}/namespaces/{namespace}/{plural}"),
        None => format!("{base}/{plural}"),
    })
}

/// The binaries of a real control plane, built by `e2e/real/build` into its cache when they are not there.
pub(crate) fn tools(repository: &Path, work: &Path) -> Result<Tools> {
    let output =
        Command::new(repository.join("e2e/real/build")).output().context("running e2e/real/build")?;
    ensure!(output.status.success(), "e2e/real/build: {}", String::from_utf8_lossy(&output.stderr));
    let list = work.join("tools");
    std::fs::write(&list, output.stdout)?;
    let tools = Tools::read(&list, work)?;
    for name in ["etcd", "kube-apiserver"] {
        tools.get(name)?;
    }
    Ok(tools)
}
