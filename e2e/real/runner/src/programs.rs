//! Our three programs as host processes: started, killed with SIGKILL, paused, continued.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::process::Process;
use crate::tools::Tools;

/// How to start a program again.
#[derive(Clone, Debug)]
struct Recipe {
    binary: PathBuf,
    arguments: Vec<String>,
}

/// The replicas that run, by a name of their own (`gang-scheduler-2`).
pub(crate) struct Programs {
    work: PathBuf,
    kubeconfig: PathBuf,
    recipes: BTreeMap<String, Recipe>,
    running: BTreeMap<String, Process>,
}

impl Programs {
    /// None runs yet.
    pub(crate) fn new(work: &Path, kubeconfig: &Path) -> Self {
        let (work, kubeconfig) = (work.to_owned(), kubeconfig.to_owned());
        Self { work, kubeconfig, recipes: BTreeMap::new(), running: BTreeMap::new() }
    }

    /// Starts a replica under this name, unless it runs already.
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
        let mut all = vec!["--kubeconfig".to_owned(), self.kubeconfig.display().to_string()];
        all.extend(["--log-format", "text"].map(str::to_owned));
        all.extend(arguments.iter().cloned());
        self.recipes
            .insert(name.to_owned(), Recipe { binary: tools.get(program)?.to_owned(), arguments: all });
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
        command.args(&recipe.arguments);
        let process = Process::start(&self.work, name, &mut command)?;
        self.running.insert(name.to_owned(), process);
        Ok(())
    }

    /// SIGTERM, and an error when the program does not end by itself within five seconds.
    pub(crate) async fn stop(&mut self, name: &str) -> Result<()> {
        let mut process = self.running.remove(name).with_context(|| format!("{name} does not run"))?;
        process.terminate().await
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
