//! Plays a scenario in virtual time, in one thread: the same seed gives the same writes.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use cluster_sim::Image;
use kit::{Clock, Rng, Tasks};
use model::planted::Planted;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use super::checks::{self, Checks};
use super::faults::{Crashes, Later};
use super::injector;
use super::invariants::{Checker, FOREIGN_CONDITION, Holding, Violation};
use super::meddlers::Meddling;
use super::panics;
use super::scenario::{Act, CALM_AFTER, LENGTH, Scenario};
use super::trouble::Trouble;
use super::world::{Shared, Write, items, key, summary, text};
use crate::objects;
use crate::stack::{NodeConfig, Stack, StackConfig, Transport};

/// What came of an episode.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Its seed.
    pub seed: u64,
    /// What did not hold.
    pub violations: Vec<Violation>,
    /// How many writes were checked.
    pub checked: u64,
    /// A digest of all writes: equal for equal episodes.
    pub digest: u64,
    /// The writes, one a line, if asked for.
    pub log: Vec<String>,
}

/// How to play.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// The deliberate bug that is switched on.
    pub planted: Planted,
    /// Whether to keep the writes as text.
    pub log: bool,
}

/// Plays the episode of a seed.
///
/// # Errors
/// The runtime cannot be built, or the cluster refuses what it starts with.
pub fn play(seed: u64, options: Options) -> anyhow::Result<Outcome> {
    panics::watch();
    // Libraries below us draw jitter from the thread's generator.
    fastrand::seed(seed);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    runtime.block_on(Episode::run(seed, options))
}

/// What every episode begins with, made once a process.
fn image() -> anyhow::Result<Image> {
    static IMAGE: OnceLock<Image> = OnceLock::new();
    if let Some(image) = IMAGE.get() {
        return Ok(image.clone());
    }
    // In a thread of its own: a runtime cannot be run inside another.
    let made = std::thread::spawn(|| {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
        runtime.block_on(async { Stack::image(Clock::starting_at(epoch()?)).await })
    });
    let made = made.join().map_err(|_| anyhow::anyhow!("making the image panicked"))??;
    Ok(IMAGE.get_or_init(|| made).clone())
}

fn epoch() -> anyhow::Result<jiff::Timestamp> {
    Ok(jiff::Timestamp::from_second(EPOCH_SECONDS)?)
}

/// Midnight at the start of 2026: every episode begins then.
const EPOCH_SECONDS: i64 = 1_767_225_600;

/// The finalizer of somebody who does not answer.
const HOLDS: &str = "fuzz.trireme.dev/holds";

/// How often the containers are looked at.
const AUDIT_EVERY: Duration = Duration::from_secs(10);

/// An episode ends when nothing has changed for so long: what is told of a change is told a few seconds after it.
const QUIET: Duration = Duration::from_secs(10);

/// So much longer at most: somebody's job may always be about to end.
const PATIENCE: Duration = Duration::from_secs(120);

pub(super) struct Episode {
    pub(super) stack: Stack,
    started: Instant,
    pub(super) user: kube::Client,
    /// Who answers admission checks, where there are any.
    checks: Option<Checks>,
    /// Troubles of the API that last, and until when.
    pub(super) api: Vec<(Instant, Trouble)>,
    pub(super) crashes: Arc<Crashes>,
    /// What is to happen later because of what happened.
    pub(super) later: Vec<(Instant, Later)>,
    /// Broken GPUs, and since when.
    pub(super) ill: BTreeMap<String, i64>,
    witness: Arc<Mutex<Witness>>,
}

/// What watches an episode's writes.
struct Witness {
    checker: Checker,
    digest: std::hash::DefaultHasher,
    log: Option<Vec<String>>,
    /// Everything that runs in the episode.
    tasks: Tasks,
    /// Rung when a pod begins to run: its containers hold devices now.
    begun: Arc<Notify>,
}

impl Witness {
    fn observe(&mut self, commit: &cluster_sim::Commit) {
        let write = Write {
            at: commit.at.as_millisecond(),
            writer: commit.writer.to_string(),
            verb: commit.verb,
            precise: commit.precise,
            resource: commit.resource.to_string(),
            old: commit.old.clone().map(Shared),
            new: commit.new.clone().map(Shared),
        };
        let line = format!(
            "{:>9} {:<28} {:?} {} {}/{} {}",
            write.at - EPOCH_SECONDS * 1000,
            write.writer,
            commit.verb,
            write.resource,
            commit.key.namespace,
            commit.key.name,
            commit.subresource,
        );
        line.hash(&mut self.digest);
        if let Some(new) = &write.new {
            new.0.bytes().hash(&mut self.digest);
        }
        if let Some(log) = &mut self.log {
            log.push(format!("{line} {}", write.new.as_deref().map(summary).unwrap_or_default()));
        }
        self.checker.observe(&write);
        if write.resource == "pods"
            && write.new.as_deref().is_some_and(runs)
            && !write.old.as_deref().is_some_and(runs)
        {
            self.begun.notify_one();
        }
        if self.checker.is_in_a_circle() {
            self.tasks.kill();
        }
    }
}

impl Episode {
    async fn run(seed: u64, options: Options) -> anyhow::Result<Outcome> {
        let scenario = Scenario::from_seed(seed);
        let clock = Clock::starting_at(epoch()?);
        let tasks = Tasks::new();
        let config = StackConfig {
            nodes: scenario.nodes.iter().map(node_config).collect(),
            replicas: 1 + usize::from(
                scenario.trouble.iter().any(|(_, what)| matches!(what, Trouble::Pause { .. })),
            ),
            transport: Transport::Memory,
            admission: scenario.admission.clone(),
            planted: options.planted,
            image: Some(image()?),
        };
        let stack = Stack::start(clock.clone(), Rng::seeded(seed), tasks.clone(), config).await?;
        let witness = Arc::new(Mutex::new(Witness {
            checker: Checker::default(),
            digest: std::hash::DefaultHasher::default(),
            log: options.log.then(Vec::new),
            tasks: tasks.clone(),
            begun: Arc::new(Notify::new()),
        }));
        for commit in stack.cluster.log() {
            lock(&witness).observe(&commit);
        }
        let watching = witness.clone();
        stack.cluster.on_commit(move |commit| lock(&watching).observe(commit));

        injector::serve(stack.services());
        let (killed, mut kills) = mpsc::unbounded_channel();
        let mut episode = Self {
            user: stack.cluster.client_as("user"),
            checks: scenario.checks.then(|| {
                Checks::new(stack.cluster.client_as(checks::WRITER), stack.cluster.store("observer"))
            }),
            stack,
            started: Instant::now(),
            api: Vec::new(),
            crashes: Arc::new(Crashes { plans: Mutex::default(), killed }),
            later: Vec::new(),
            ill: BTreeMap::new(),
            witness: witness.clone(),
        };
        for manifest in &scenario.setup {
            objects::apply(&episode.user, manifest).await?;
        }
        episode.aim();
        episode.unfold(scenario, &mut kills).await;

        let now = clock.unix_millis();
        let states = if options.log { episode.stack.debug_states().await } else { Vec::new() };
        let ended = episode.stack.ended();
        tasks.kill();
        let mut witness = lock(&witness);
        for what in ended.into_iter().chain(panics::take()) {
            witness.checker.program_failed(what);
        }
        witness.checker.at_rest(now);
        let states: Vec<String> = if options.log {
            witness.checker.world().inventory().chain(states).collect()
        } else {
            Vec::new()
        };
        Ok(Outcome {
            seed,
            violations: witness.checker.violations().to_vec(),
            checked: witness.checker.checked(),
            digest: witness.digest.finish(),
            log: witness.log.take().unwrap_or_default().into_iter().chain(states).collect(),
        })
    }

    /// Lets everything happen at its time.
    async fn unfold(&mut self, scenario: Scenario, kills: &mut mpsc::UnboundedReceiver<(String, Duration)>) {
        let mut acts = scenario.story.into_iter().peekable();
        let mut troubles = scenario.trouble.into_iter().peekable();
        let mut end = self.started + LENGTH;
        let calm = self.started + CALM_AFTER;
        let begun = lock(&self.witness).begun.clone();
        let mut calmed = false;
        loop {
            let times = [
                acts.peek().map(|(at, _)| self.started + *at),
                troubles.peek().map(|(at, _)| self.started + *at),
                self.later.iter().map(|(at, _)| *at).min(),
                self.api.iter().map(|(until, _)| *until).min(),
                (!calmed).then_some(calm),
                Some(Instant::now() + AUDIT_EVERY),
            ];
            let next = times.into_iter().flatten().min().unwrap_or(end).min(end);
            tokio::select! {
                biased;
                Some((identity, away)) = kills.recv() => {
                    lock(&self.witness).checker.killed(&identity);
                    self.kill(&identity, away);
                    continue;
                }
                () = begun.notified() => {
                    self.look_at_containers();
                    continue;
                }
                () = tokio::time::sleep_until(next) => {}
            }
            self.audit();
            if next >= end {
                if self.is_quiet() {
                    return;
                }
                if end >= self.started + LENGTH + PATIENCE {
                    let now = self.stack.cluster.clock().unix_millis();
                    lock(&self.witness).checker.never_quiet(now);
                    return;
                }
                end += AUDIT_EVERY;
            }
            while let Some((_, act)) = acts.next_if(|(at, _)| self.started + *at <= next) {
                self.act(act).await;
            }
            while let Some((_, trouble)) = troubles.next_if(|(at, _)| self.started + *at <= next) {
                self.trouble(trouble);
            }
            self.aftermath(next).await;
            if let Some(checks) = &self.checks {
                checks.round(self.stack.cluster.clock().unix_millis(), calmed).await;
            }
            if next >= calm && !calmed {
                calmed = true;
                lock(&self.crashes.plans).clear();
                self.api.clear();
                self.aim();
                if let Some(checks) = &mut self.checks {
                    checks.wake_all();
                }
                self.act(Act::LetPodsGo).await;
                for (_, what) in std::mem::take(&mut self.later) {
                    self.recover(what).await;
                }
            }
        }
    }

    /// Whether nothing has changed of late.
    fn is_quiet(&self) -> bool {
        let since = self.stack.cluster.clock().unix_millis() - lock(&self.witness).checker.changed();
        u128::try_from(since).is_ok_and(|since| since >= QUIET.as_millis())
    }

    /// Checks everything that no write tells of.
    fn audit(&self) {
        self.look_at_containers();
        lock(&self.witness).checker.audit(self.stack.cluster.clock().unix_millis());
    }

    /// Looks at what the containers hold, where they run.
    fn look_at_containers(&self) {
        let now = self.stack.cluster.clock().unix_millis();
        let mut witness = lock(&self.witness);
        let mut holdings = Vec::new();
        for pod in witness.checker.world().all("pods").filter(|pod| runs(pod)) {
            let (namespace, name) = key(pod);
            let node = text(pod, "/spec/nodeName");
            let Some(machine) = self.stack.machines.iter().find(|machine| machine.name() == node) else {
                continue;
            };
            let started = text(pod, "/status/startTime").parse::<jiff::Timestamp>();
            for container in items(pod, "/spec/containers") {
                let Some(start) = machine.kubelet().container(&namespace, &name, text(container, "/name"))
                else {
                    continue;
                };
                let told = start.env.get("NVIDIA_VISIBLE_DEVICES").map(String::as_str).unwrap_or_default();
                holdings.push(Holding {
                    pod: (namespace.clone(), name.clone()),
                    started: started.as_ref().map_or(0, |at| at.as_millisecond()),
                    given: start.devices.into_values().flatten().collect(),
                    told: told.split(',').filter(|id| !id.is_empty()).map(str::to_owned).collect(),
                });
            }
        }
        witness.checker.containers(now, &holdings, &self.ill);
    }

    /// Keeps a line about what is done to the cluster, among its writes.
    pub(super) fn note(&self, what: &dyn std::fmt::Debug) {
        let at = self.stack.cluster.clock().unix_millis() - EPOCH_SECONDS * 1000;
        if let Some(log) = &mut lock(&self.witness).log {
            log.push(format!("{at:>9} -- {what:?}"));
        }
    }

    async fn act(&mut self, act: Act) {
        // What the API refuses is the user's own business.
        let _ = match act {
            Act::Apply(object) => objects::apply(&self.user, &object).await.map(|_| ()),
            Act::Delete(object) => objects::delete(&self.user, &object).await,
            Act::Replace(object) => {
                let _ = objects::delete(&self.user, &object).await;
                objects::apply(&self.user, &object).await.map(|_| ())
            }
            Act::Patch { object, patch } => objects::patch(&self.user, &object, &patch).await,
            Act::Describe { job, workload } => self.describe(&job, workload).await,
            Act::DeletePod { index } => self.delete_pod(index).await,
            Act::HoldPods { one_in } => self.hold_pods(one_in, true).await,
            Act::LetPodsGo => self.hold_pods(1, false).await,
            Act::Meddle { index, how } => self.meddle(index, how).await,
            Act::ForeignCondition => self.foreign_conditions().await,
            Act::CheckSleeps { check, asleep } => {
                if let Some(checks) = &mut self.checks {
                    checks.sleeps(check, asleep);
                }
                Ok(())
            }
        };
    }

    /// Makes the Workload of a job that is there.
    async fn describe(
        &self,
        job: &serde_json::Value,
        mut workload: serde_json::Value,
    ) -> Result<(), objects::ManifestError> {
        let jobs = cluster_sim::GroupResource::new("batch", "jobs");
        let (namespace, name) = key(job);
        let Some(job) = self.stack.cluster.store("observer").get(&jobs, &namespace, &name) else {
            return Ok(());
        };
        workload["spec"]["podSets"][0]["template"] = job.value()["spec"]["template"].clone();
        objects::apply(&self.user, &workload).await.map(|_| ())
    }

    async fn delete_pod(&self, index: usize) -> Result<(), objects::ManifestError> {
        let pods = self.stack.cluster.store("observer").list(&pods(), None);
        match pods.get(index % pods.len().max(1)) {
            Some(pod) => objects::delete(&self.user, pod.value()).await,
            None => Ok(()),
        }
    }

    /// One pod in so many is held by a finalizer, or is not any more. Whose change is refused, by a webhook say, stays as it is.
    async fn hold_pods(&self, one_in: usize, held: bool) -> Result<(), objects::ManifestError> {
        for pod in self.stack.cluster.store("observer").list(&pods(), None).iter().step_by(one_in) {
            let before: Vec<_> = items(pod.value(), "/metadata/finalizers").cloned().collect();
            let mut finalizers = before.clone();
            finalizers.retain(|one| one != HOLDS);
            finalizers.extend(held.then(|| HOLDS.into()));
            if finalizers != before {
                let version = &pod.value()["metadata"]["resourceVersion"];
                let metadata = serde_json::json!({ "resourceVersion": version, "finalizers": finalizers });
                let patch = serde_json::json!({ "metadata": metadata });
                let _ = objects::patch(&self.user, pod.value(), &patch).await;
            }
        }
        Ok(())
    }

    async fn meddle(&self, index: usize, how: Meddling) -> Result<(), objects::ManifestError> {
        let all = self.stack.cluster.store("observer").list(&workloads(), None);
        let Some(chosen) = all.get(index % all.len().max(1)) else { return Ok(()) };
        let active = |active: bool| serde_json::json!({ "spec": { "active": active } });
        match how {
            Meddling::Reactivate => {
                for one in all.iter().filter(|one| one.value()["spec"]["active"] == false) {
                    objects::patch(&self.user, one.value(), &active(true)).await?;
                }
                Ok(())
            }
            Meddling::Deactivate => objects::patch(&self.user, chosen.value(), &active(false)).await,
            Meddling::Delete => objects::delete(&self.user, chosen.value()).await,
        }
    }

    /// Puts the condition of another controller on every Workload that has none yet.
    async fn foreign_conditions(&self) -> Result<(), objects::ManifestError> {
        for workload in self.stack.cluster.store("observer").list(&workloads(), None) {
            let value = workload.value();
            if super::world::holds(value, FOREIGN_CONDITION)
                || super::world::items(value, "/status/conditions").next().is_none()
            {
                continue;
            }
            let condition = serde_json::json!({
                "type": FOREIGN_CONDITION, "status": "True", "reason": "Fuzzed", "message": "not yours",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            });
            objects::append(&self.user, value, "/status/conditions", condition).await?;
        }
        Ok(())
    }
}

fn pods() -> cluster_sim::GroupResource {
    cluster_sim::GroupResource::core("pods")
}

pub(super) fn workloads() -> cluster_sim::GroupResource {
    cluster_sim::GroupResource::new("kueue.x-k8s.io", "workloads")
}

fn runs(pod: &serde_json::Value) -> bool {
    text(pod, "/status/phase") == "Running"
}

fn node_config(node: &super::scenario::Node) -> NodeConfig {
    let mut labels = node.labels.clone();
    labels.insert("fuzz.trireme.dev/gpus".to_owned(), node.gpus.to_string());
    NodeConfig { name: node.name.clone(), profile: node.profile.to_owned(), labels }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
