//! What the tests of one run share: the control plane, and what else could be started.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use tokio::sync::{MappedMutexGuard, Mutex, MutexGuard};

use crate::Options;
use crate::cluster::{self, Applier};
use crate::kubeflow;
use crate::node::{self, Network, Node};
use crate::process::Process;
use crate::programs::Programs;
use crate::tools::Tools;
use crate::webhooks::Webhooks;
use control_plane::ControlPlane;

/// What the tests of one run share.
pub(crate) struct World {
    /// Folder for everything this run writes.
    pub(crate) work: PathBuf,
    /// Root of the repository.
    pub(crate) repository: PathBuf,
    /// Binaries.
    pub(crate) tools: Tools,
    /// Where the pods of this run are.
    pub(crate) network: Network,
    /// Spawns what runs beside the tests.
    pub(crate) tasks: kit::Tasks,
    control_plane: Result<Running>,
    node: Mutex<Option<Node>>,
    programs: Mutex<Option<Programs>>,
    kubeflow: Mutex<Option<Process>>,
    /// Held by whoever starts programs, so that tests beside each other start them once.
    pub(crate) starting: Mutex<()>,
}

/// The control plane with what leans on it.
pub(crate) struct Running {
    pub(crate) plane: ControlPlane,
    pub(crate) webhooks: Arc<Webhooks>,
    /// Knows the kinds of our definitions and of the peers', when those are there.
    pub(crate) applier: Applier,
    /// What came of each definition, by name.
    pub(crate) definitions: BTreeMap<String, Result<(), String>>,
}

impl World {
    /// Starts what can be started. What cannot is remembered with its reason, and its tests are skipped.
    pub(crate) async fn start(options: &Options) -> Result<Self> {
        let tools = Tools::read(&options.tools, &options.programs)?;
        let network = Network::of(&options.work)?;
        Self::with(tools, options.work.clone(), options.repository.clone(), network, &[]).await
    }

    /// Another control plane on the same network, with nothing of ours started yet. Where these files define a kind, they count.
    pub(crate) async fn beside(&self, name: &str, definitions: &[PathBuf]) -> Result<Self> {
        let work = self.work.join(name);
        std::fs::create_dir_all(&work)?;
        // One folder of process ids, whoever ends the run.
        std::os::unix::fs::symlink(self.work.join("pids"), work.join("pids"))?;
        Self::with(self.tools.clone(), work, self.repository.clone(), self.network.clone(), definitions).await
    }

    async fn with(
        tools: Tools,
        work: PathBuf,
        repository: PathBuf,
        network: Network,
        first: &[PathBuf],
    ) -> Result<Self> {
        let tasks = kit::Tasks::new();
        let have = tools.get("etcd").and_then(|_| tools.get("kube-apiserver")).map(|_| ());
        let control_plane = match have {
            Err(missing) => Err(missing),
            // The binaries are there: now a failure to start is a failure of the run.
            Ok(()) => {
                let plane = ControlPlane::start(&work, &tools).await?;
                let webhooks = Webhooks::serve(&plane.authority, &tasks).await?;
                let definitions = install(&plane.client, first, &tools, &repository).await?;
                let applier = Applier::new(plane.client.clone()).await?;
                Ok(Running { plane, webhooks, applier, definitions })
            }
        };
        Ok(Self {
            network,
            work,
            repository,
            tools,
            tasks,
            control_plane,
            node: Mutex::new(None),
            programs: Mutex::new(None),
            kubeflow: Mutex::new(None),
            starting: Mutex::new(()),
        })
    }

    /// The control plane, or why there is none.
    pub(crate) fn running(&self) -> Result<&Running> {
        self.control_plane.as_ref().map_err(|error| anyhow::anyhow!("{error:#}"))
    }

    /// Whether this machine can run a node, or why not.
    pub(crate) fn can_run_a_node(&self) -> Result<()> {
        self.running()?;
        node::possible(&self.tools, &self.work)
    }

    /// The node, started when it is first asked for.
    pub(crate) async fn node(&self) -> Result<MappedMutexGuard<'_, Node>> {
        let mut slot = self.node.lock().await;
        if slot.is_none() {
            *slot = Some(Node::start(&self.work, &self.tools, &self.network, &self.running()?.plane).await?);
        }
        MutexGuard::try_map(slot, Option::as_mut).map_err(|_| anyhow::anyhow!("the node is gone"))
    }

    /// Our programs.
    pub(crate) async fn programs(&self) -> Result<MappedMutexGuard<'_, Programs>> {
        let mut slot = self.programs.lock().await;
        if slot.is_none() {
            *slot = Some(Programs::new(&self.work));
        }
        MutexGuard::try_map(slot, Option::as_mut).map_err(|_| anyhow::anyhow!("the programs are gone"))
    }

    /// Starts Kubeflow's training-operator, unless it runs.
    pub(crate) async fn kubeflow(&self) -> Result<()> {
        let mut slot = self.kubeflow.lock().await;
        if slot.is_none() {
            let Running { plane, applier, .. } = self.running()?;
            *slot = Some(
                kubeflow::start(&self.work, &self.tools, &plane.kubeconfig, applier, &plane.client).await?,
            );
        }
        Ok(())
    }

    /// Ends everything, the programs first: what they lean on is still there for their last words.
    pub(crate) async fn end(&self) {
        drop(self.programs.lock().await.take());
        drop(self.kubeflow.lock().await.take());
        drop(self.node.lock().await.take());
        self.tasks.kill();
    }

    /// A folder of `../shared` (data beside the repository), or an error when it is not there.
    pub(crate) fn shared(&self, path: &str) -> Result<PathBuf> {
        let folder = self.repository.join("../shared").join(path);
        folder.is_dir().then_some(folder).with_context(|| format!("../shared/{path} is not there"))
    }
}

/// Our own definitions, then these, then those of the foreign programs that run here, then what else there is of the peers: the
/// first definition of a name counts.
async fn install(
    client: &kube::Client,
    first: &[PathBuf],
    tools: &Tools,
    repository: &std::path::Path,
) -> Result<BTreeMap<String, Result<(), String>>> {
    let mut files = cluster::yaml_files(&repository.join("crds/generated"))?;
    files.extend(first.iter().cloned());
    files.extend(tools.definitions());
    let foreign = repository.join("../shared/conformance/crds");
    if foreign.is_dir() {
        files.extend(cluster::yaml_files(&foreign)?);
    }
    cluster::install_definitions(client, &files).await
}
