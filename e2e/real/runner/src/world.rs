//! What the tests of one run share: the control plane, and what else could be started.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result};

use crate::Options;
use crate::control_plane::ControlPlane;
use crate::tools::Tools;
use crate::webhooks::Webhooks;

/// What the tests of one run share.
pub(crate) struct World {
    /// Folder for everything this run writes.
    pub(crate) work: PathBuf,
    /// Root of the repository.
    pub(crate) repository: PathBuf,
    /// Binaries.
    pub(crate) tools: Tools,
    /// Spawns what runs beside the tests.
    pub(crate) tasks: kit::Tasks,
    control_plane: Result<Running>,
}

/// The control plane with what leans on it.
pub(crate) struct Running {
    pub(crate) plane: ControlPlane,
    pub(crate) webhooks: Arc<Webhooks>,
}

impl World {
    /// Starts what can be started. What cannot is remembered with its reason, and its tests are skipped.
    pub(crate) async fn start(options: &Options) -> Result<Self> {
        let tools = Tools::read(&options.tools, &options.programs)?;
        let tasks = kit::Tasks::new();
        let have = tools.get("etcd").and_then(|_| tools.get("kube-apiserver")).map(|_| ());
        let control_plane = match have {
            Err(missing) => Err(missing),
            // The binaries are there: now a failure to start is a failure of the run.
            Ok(()) => {
                let plane = ControlPlane::start(&options.work, &tools).await?;
                let webhooks = Webhooks::serve(&plane.authority, &tasks).await?;
                Ok(Running { plane, webhooks })
            }
        };
        Ok(Self {
            work: options.work.clone(),
            repository: options.repository.clone(),
            tools,
            tasks,
            control_plane,
        })
    }

    /// The control plane, or why there is none.
    pub(crate) fn running(&self) -> Result<&Running> {
        self.control_plane.as_ref().map_err(|error| anyhow::anyhow!("{error:#}"))
    }

    /// A folder of `../shared` (data beside the repository), or an error when it is not there.
    pub(crate) fn shared(&self, path: &str) -> Result<PathBuf> {
        let folder = self.repository.join("../shared").join(path);
        folder.is_dir().then_some(folder).with_context(|| format!("../shared/{path} is not there"))
    }
}
