//! Plays a scenario in virtual time, in one thread: the same seed gives the same writes.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use cluster_sim::faults::{Aim, Call, Fault, Moment, Verdict, WatchFault};
use cluster_sim::{Image, Verb};
use kit::{Clock, Rng, Tasks};
use model::planted::Planted;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use super::checks::{self, Checks};
use super::invariants::{Checker, FOREIGN_CONDITION, Holding, Violation};
use super::panics;
use super::scenario::{Act, ApiTrouble, CALM_AFTER, LENGTH, Scenario, Trouble, WatchTrouble};
use super::world::{PROGRAMS, Shared, Write, at, items, key, text};
use crate::objects;
use crate::stack::{NodeConfig, Program, Replica, Stack, StackConfig, Transport};

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

/// How often the containers are looked at.
const AUDIT_EVERY: Duration = Duration::from_secs(10);

struct Episode {
    stack: Stack,
    started: Instant,
    user: kube::Client,
    /// Who answers admission checks, where there are any.
    checks: Option<Checks>,
    /// Troubles of the API that last, and until when.
    api: Vec<(Instant, Trouble)>,
    crashes: Arc<Crashes>,
    /// What is to happen later because of what happened.
    later: Vec<(Instant, Later)>,
    /// Broken GPUs, and since when.
    ill: BTreeMap<String, i64>,
    witness: Arc<Mutex<Witness>>,
}

/// The aftermath of a trouble.
#[derive(Debug)]
enum Later {
    Restart(Replica),
    Thaw(Replica),
    GpuRecovers { node: usize, gpu: usize },
    NodeReady(usize),
    NodeDeleted(usize),
    NodeBoots(usize),
    Taint { node: usize, on: bool },
}

/// Which programs are to be killed at which of their writes.
struct Crashes {
    plans: Mutex<BTreeMap<Program, CrashPlan>>,
    /// Tells the episode whom to kill, by identity.
    killed: mpsc::UnboundedSender<(String, Duration)>,
}

struct CrashPlan {
    writes_left: u32,
    moment: Moment,
    away: Duration,
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
            log.push(line);
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
        let end = self.started + LENGTH;
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
                return;
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
                for (_, what) in std::mem::take(&mut self.later) {
                    self.recover(what).await;
                }
            }
        }
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
    fn note(&self, what: &dyn std::fmt::Debug) {
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
            Act::DeletePod { index } => self.delete_pod(index).await,
            Act::ForeignCondition => self.foreign_conditions().await,
            Act::CheckSleeps { check, asleep } => {
                if let Some(checks) = &mut self.checks {
                    checks.sleeps(check, asleep);
                }
                Ok(())
            }
        };
    }

    async fn delete_pod(&self, index: usize) -> Result<(), objects::ManifestError> {
        let pods =
            self.stack.cluster.store("observer").list(&cluster_sim::GroupResource::new("", "pods"), None);
        match pods.get(index % pods.len().max(1)) {
            Some(pod) => objects::delete(&self.user, pod.value()).await,
            None => Ok(()),
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

    fn trouble(&mut self, trouble: Trouble) {
        self.note(&trouble);
        let now = Instant::now();
        match trouble {
            Trouble::Api { lasts, .. } => {
                self.api.push((now + lasts, trouble));
                self.aim();
            }
            Trouble::Watches(trouble) => {
                let fault = match trouble {
                    WatchTrouble::Closed => WatchFault::Close,
                    WatchTrouble::Expired => WatchFault::Expire,
                    WatchTrouble::Late(late) | WatchTrouble::LateWorkloads(late) => WatchFault::Delay(late),
                    WatchTrouble::Twice => WatchFault::Duplicate,
                };
                if trouble == WatchTrouble::Expired {
                    self.stack.cluster.compact();
                }
                let aim = match trouble {
                    WatchTrouble::LateWorkloads(_) => Aim::default().on(workloads()),
                    _ => Aim::default(),
                };
                for program in PROGRAMS {
                    self.stack.cluster.faults().add_watch(aim.clone().by(program), 1_000_000, 4, fault);
                }
            }
            Trouble::Crash { program, after_writes, applied, away } => {
                let moment = if applied { Moment::After } else { Moment::Before };
                let plan = CrashPlan { writes_left: after_writes, moment, away };
                lock(&self.crashes.plans).insert(program, plan);
            }
            Trouble::Pause { program, lasts } => {
                let leader = (0..2).map(|index| Replica { program, index }).find(|one| self.leads(*one));
                if let Some(replica) = leader
                    && let Some(tasks) = self.stack.tasks_of(replica)
                {
                    tasks.freeze();
                    self.later.push((now + lasts, Later::Thaw(replica)));
                }
            }
            Trouble::KubeletRestart { node } => self.stack.machines[node].restart_kubelet(),
            Trouble::GpuLoss { node, gpu, lasts } => {
                let machine = &self.stack.machines[node];
                machine.break_gpu(gpu);
                self.ill
                    .extend(machine.uuid(gpu).map(|uuid| (uuid, self.stack.cluster.clock().unix_millis())));
                self.later.push((now + lasts, Later::GpuRecovers { node, gpu }));
            }
            Trouble::Taint { node, lasts } => {
                self.later.push((now, Later::Taint { node, on: true }));
                self.later.push((now + lasts, Later::Taint { node, on: false }));
            }
            Trouble::NodeGone { node, lasts } => {
                self.stack.machines[node].kubelet().stop();
                self.later.push((now, Later::NodeDeleted(node)));
                self.later.push((now + lasts, Later::NodeBoots(node)));
            }
            Trouble::NodeNotReady { node, lasts } => {
                self.stack.machines[node].set_ready(false);
                self.later.push((now + lasts, Later::NodeReady(node)));
            }
        }
    }

    fn leads(&self, replica: Replica) -> bool {
        let leases = cluster_sim::GroupResource::new("coordination.k8s.io", "leases");
        let store = self.stack.cluster.store("observer");
        let lease = store.get(&leases, crate::stack::NAMESPACE, replica.program.name());
        let holder = lease.and_then(|lease| {
            let value = lease.value();
            at(value, "/spec/holderIdentity").and_then(|holder| holder.as_str().map(str::to_owned))
        });
        holder.is_some_and(|holder| self.stack.replica_of(&holder) == Some(replica))
    }

    async fn aftermath(&mut self, now: Instant) {
        let before = self.api.len();
        self.api.retain(|(until, _)| *until > now);
        if self.api.len() != before {
            self.aim();
        }
        let (due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.later).into_iter().partition(|(at, _)| *at <= now);
        self.later = later;
        for (_, what) in due {
            self.recover(what).await;
        }
    }

    async fn recover(&mut self, what: Later) {
        self.note(&what);
        match what {
            Later::Restart(replica) => {
                if !self.stack.runs(replica) {
                    self.stack.start_replica(replica);
                }
            }
            Later::Thaw(replica) => {
                if let Some(tasks) = self.stack.tasks_of(replica) {
                    tasks.thaw();
                }
            }
            Later::GpuRecovers { node, gpu } => {
                let machine = &self.stack.machines[node];
                machine.mend_gpu(gpu);
                if let Some(uuid) = machine.uuid(gpu) {
                    self.ill.remove(&uuid);
                }
            }
            Later::NodeDeleted(node) => {
                let name = self.stack.machines[node].name();
                let node =
                    serde_json::json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name } });
                let _ = objects::delete(&self.user, &node).await;
            }
            Later::NodeBoots(node) => self.stack.machines[node].boots(),
            Later::NodeReady(node) => self.stack.machines[node].set_ready(true),
            Later::Taint { node, on } => {
                let taint = serde_json::json!({ "key": "fuzz", "effect": "NoSchedule" });
                let taints = if on { vec![taint] } else { vec![] };
                let node = serde_json::json!({
                    "apiVersion": "v1", "kind": "Node", "metadata": { "name": self.stack.machines[node].name() },
                });
                let _ =
                    objects::patch(&self.user, &node, &serde_json::json!({ "spec": { "taints": taints } }))
                        .await;
            }
        }
    }

    fn kill(&mut self, identity: &str, away: Duration) {
        if let Some(replica) = self.stack.replica_of(identity) {
            self.stack.kill(replica);
            self.later.push((Instant::now() + away, Later::Restart(replica)));
        }
    }

    /// Sets the faults that hold now, and the hook that crashes programs.
    fn aim(&self) {
        let faults = self.stack.cluster.faults();
        faults.clear();
        for (_, trouble) in &self.api {
            let Trouble::Api { kind, permille, .. } = trouble else { continue };
            let reads = || Aim { verbs: vec![Verb::Get, Verb::List, Verb::Watch], ..Aim::default() };
            let (aim, fault) = match kind {
                ApiTrouble::Refused(429) => (Aim::writes(), Fault::TooManyRequests(1)),
                ApiTrouble::Refused(status) => (Aim::writes(), Fault::ServerError(*status)),
                ApiTrouble::Slow => (Aim::writes(), Fault::Latency(Duration::from_secs(3))),
                ApiTrouble::Lost => (Aim::writes(), Fault::LostRequest),
                ApiTrouble::LostAnswer => (Aim::writes(), Fault::LostResponse),
                ApiTrouble::TimedOut => (Aim::writes(), Fault::TimeoutAfterWrite),
                ApiTrouble::Conflict => (Aim::writes(), Fault::Conflict),
                ApiTrouble::Unreadable => (reads(), Fault::ServerError(503)),
                ApiTrouble::StaleLists => (reads(), Fault::StaleList(50)),
            };
            for program in PROGRAMS.into_iter().chain([checks::WRITER]) {
                faults.add(aim.clone().by(program), permille * 1000, u64::MAX, fault.clone());
            }
        }
        let crashes = self.crashes.clone();
        faults.set_hook(move |call, moment, _| crashes.strike(call, moment));
    }
}

fn workloads() -> cluster_sim::GroupResource {
    cluster_sim::GroupResource::new("kueue.x-k8s.io", "workloads")
}

impl Crashes {
    /// Counts a write of a program that is to crash, and hangs the one it crashes at.
    fn strike(&self, call: &Call, moment: Moment) -> Verdict {
        let mut plans = lock(&self.plans);
        let Some(program) = plans.keys().copied().find(|program| writes_as(*program, &call.writer)) else {
            return Verdict::Proceed;
        };
        let Some(plan) = plans.get_mut(&program).filter(|plan| plan.moment == moment) else {
            return Verdict::Proceed;
        };
        if plan.writes_left > 0 {
            plan.writes_left -= 1;
            return Verdict::Proceed;
        }
        let away = plan.away;
        plans.remove(&program);
        let _ = self.killed.send((call.writer.to_string(), away));
        Verdict::Hang
    }
}

fn runs(pod: &serde_json::Value) -> bool {
    text(pod, "/status/phase") == "Running"
}

fn writes_as(program: Program, writer: &str) -> bool {
    match program {
        Program::NodeAgent(node) => writer.starts_with(&format!("node-agent/node-{node}.")),
        program => writer.split('/').next() == Some(program.name()),
    }
}

fn node_config(node: &super::scenario::Node) -> NodeConfig {
    let mut labels = node.labels.clone();
    labels.insert("fuzz.trireme.dev/gpus".to_owned(), node.gpus.to_string());
    NodeConfig { name: node.name.clone(), profile: node.profile.to_owned(), labels }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
