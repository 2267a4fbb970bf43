//! Our three programs as host processes: started, killed with SIGKILL, paused, continued.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use control_plane::page;

use crate::cluster::wait;
use crate::process::{Process, free_port};
use crate::tools::Tools;
use crate::world::World;

/// How to start a program again.
#[derive(Clone, Debug)]
struct Recipe {
    binary: PathBuf,
    arguments: Vec<String>,
    admin: u16,
}

/// The replicas that run, by a name of their own (`gang-scheduler-2`).
pub(crate) struct Programs {
    work: PathBuf,
    recipes: BTreeMap<String, Recipe>,
    running: BTreeMap<String, Process>,
}

impl Programs {
    /// None runs yet.
    pub(crate) fn new(work: &Path) -> Self {
        Self { work: work.to_owned(), recipes: BTreeMap::new(), running: BTreeMap::new() }
    }

    /// Starts a replica under this name (one of [`control_plane::REPLICAS`]), unless it runs already.
    pub(crate) fn start(
        &mut self,
        tools: &Tools,
        program: &str,
        name: &str,
        arguments: &[String],
    ) -> Result<()> {
        if self.running.contains_key(name) {
            return Ok(());
        }
        let kubeconfig = self.work.join("control-plane").join(format!("{name}.kubeconfig"));
        let admin = free_port()?;
        let own = [
            ("--kubeconfig", kubeconfig.display().to_string()),
            ("--admin-address", format!("127.0.0.1:{admin}")),
            ("--log-format", "text".to_owned()),
        ];
        let mut all: Vec<_> = own.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]).collect();
        all.extend(arguments.iter().cloned());
        let binary = tools.get(program)?.to_owned();
        self.recipes.insert(name.to_owned(), Recipe { binary, arguments: all, admin });
        self.restart(name)
    }

    /// SIGKILL: nothing is finished, nothing is written.
    pub(crate) fn kill(&mut self, name: &str) -> Result<()> {
        let mut process = self.running.remove(name).with_context(|| format!("{name} does not run"))?;
        process.kill();
        Ok(())
    }

    /// Starts a replica that ran before, as it was started then.
    pub(crate) fn restart(&mut self, name: &str) -> Result<()> {
        let recipe = self.recipes.get(name).with_context(|| format!("{name} was never started"))?;
        let mut command = Command::new(&recipe.binary);
        // The first half of the identity under which it campaigns for a lease.
        command.args(&recipe.arguments).env("POD_NAME", name);
        let process = Process::start(&self.work, name, &mut command)?;
        self.running.insert(name.to_owned(), process);
        Ok(())
    }

    /// Where a replica serves its pages.
    pub(crate) fn admin(&self, name: &str) -> Result<u16> {
        Ok(self.recipes.get(name).with_context(|| format!("{name} was never started"))?.admin)
    }

    /// SIGTERM, and an error unless the program then ends with success, within five seconds.
    pub(crate) async fn stop(&mut self, name: &str) -> Result<()> {
        let mut process = self.running.remove(name).with_context(|| format!("{name} does not run"))?;
        process.stop().await
    }

    /// SIGSTOP: the process stands still without knowing it, as in a long pause of its machine.
    pub(crate) fn pause(&self, name: &str) -> Result<()> {
        self.running.get(name).with_context(|| format!("{name} does not run"))?.signal(libc::SIGSTOP)
    }

    /// SIGCONT.
    pub(crate) fn unpause(&self, name: &str) -> Result<()> {
        self.running.get(name).with_context(|| format!("{name} does not run"))?.signal(libc::SIGCONT)
    }

    /// An error when a replica that should run has ended.
    pub(crate) fn alive(&mut self) -> Result<()> {
        self.running.values_mut().try_for_each(Process::alive)
    }

    /// Whether a replica of this name was started.
    pub(crate) fn runs(&self, name: &str) -> bool {
        self.running.contains_key(name)
    }

    /// The replicas that run.
    pub(crate) fn names(&self) -> Vec<String> {
        self.running.keys().cloned().collect()
    }

    /// The last lines a replica has logged.
    pub(crate) fn log_end(&self, name: &str) -> String {
        self.running.get(name).map_or_else(|| format!("{name} does not run"), |process| process.log_end(15))
    }
}

/// Waits until a replica says that it is ready.
pub(crate) async fn wait_ready(world: &World, name: &str) -> Result<()> {
    let port = world.programs().await?.admin(name)?;
    let what = format!("{name} to be ready");
    let ready = wait(&what, Duration::from_secs(40), async || {
        world.programs().await?.alive()?;
        Ok(page(port, "/readyz").await?.0 == 200)
    });
    let outcome = ready.await;
    let log = world.programs().await?.log_end(name);
    outcome.with_context(|| format!("the end of its log:\n{log}"))
}
