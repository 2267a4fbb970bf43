//! A cluster with the three programs in it, each a value that can be killed, frozen and started again.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use admission_controller::config::Configuration;
use cluster_sim::{Cluster, Image, SimConfig};
use kit::{Clients, Clock, Context, Identity, Rng, ServiceTable, Tasks};
use model::planted::Planted;

use crate::install;
use crate::machine::Machine;

/// How kubelets and node-agents talk to each other.
#[derive(Clone, Debug)]
pub enum Transport {
    /// Over unix sockets below this folder, as on a real node.
    Unix(PathBuf),
    /// Over memory: for virtual time.
    Memory,
}

/// What to build.
#[derive(Clone, Debug)]
pub struct StackConfig {
    /// The machines.
    pub nodes: Vec<NodeConfig>,
    /// Replicas of each controller.
    pub replicas: usize,
    /// How kubelets and node-agents talk to each other.
    pub transport: Transport,
    /// admission-controller's configuration file.
    pub admission: Configuration,
    /// The deliberate bug that is switched on.
    pub planted: Planted,
    /// What [`Stack::image`] made, to begin with instead of installing everything anew.
    pub image: Option<Image>,
}

/// A machine with GPUs.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Its name.
    pub name: String,
    /// The name of its fake-nvml profile.
    pub profile: String,
    /// Labels of its Node object.
    pub labels: BTreeMap<String, String>,
}

/// A program in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Program {
    /// Layer 1.
    AdmissionController,
    /// Layer 2.
    GangScheduler,
    /// Layer 3, on the machine with this index.
    NodeAgent(usize),
}

impl Program {
    /// The program's name, which is also that of its lease and of its Service.
    pub fn name(self) -> &'static str {
        match self {
            Self::AdmissionController => "admission-controller",
            Self::GangScheduler => "gang-scheduler",
            Self::NodeAgent(_) => "node-agent",
        }
    }
}

/// One replica of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Replica {
    /// Which program.
    pub program: Program,
    /// Which of its replicas.
    pub index: usize,
}

/// A running replica.
struct Running {
    identity: Identity,
    tasks: Tasks,
    /// Of its machine.
    clock: Clock,
}

/// A cluster with the three programs in it.
pub struct Stack {
    /// The cluster.
    pub cluster: Cluster,
    /// The machines, in the order of the configuration.
    pub machines: Vec<Machine>,
    clock: Clock,
    rng: Rng,
    tasks: Tasks,
    services: ServiceTable,
    admission: Configuration,
    planted: Planted,
    running: BTreeMap<Replica, Running>,
    /// How often a replica was started: a new start has a new identity, as a restarted container has.
    starts: BTreeMap<Replica, u32>,
    ended: Arc<Mutex<Vec<String>>>,
}

/// Commits that the cluster remembers: enough to see how a stack was built, and little for one that runs for days.
const LOG_LIMIT: usize = 1_024;

/// The namespace the programs live in.
pub const NAMESPACE: &str = "trireme-system";

impl Stack {
    /// A cluster with everything installed and nothing running: many stacks can begin with it.
    ///
    /// # Errors
    /// The cluster refuses what is installed.
    pub async fn image(clock: Clock) -> anyhow::Result<Image> {
        let tasks = Tasks::new();
        let cluster = Cluster::new(SimConfig::new(clock, tasks.clone(), Rng::seeded(0), ServiceTable::new()));
        install::everything(&cluster).await?;
        cluster.start_controllers().await?;
        tasks.kill();
        Ok(cluster.image())
    }

    /// Builds the cluster, installs the custom resources and starts every program.
    ///
    /// # Errors
    /// A profile that does not exist, a socket that cannot be made, or a manifest that the cluster refuses.
    pub async fn start(clock: Clock, rng: Rng, tasks: Tasks, config: StackConfig) -> anyhow::Result<Self> {
        let services = ServiceTable::new();
        let mut sim = SimConfig::new(clock.clone(), tasks.child(), rng.fork(), services.clone());
        let installed = config.image.is_some();
        sim.image = config.image;
        sim.log_limit = LOG_LIMIT;
        let cluster = Cluster::new(sim);
        if !installed {
            install::everything(&cluster).await?;
        }
        cluster.start_controllers().await?;
        let mut machines = Vec::new();
        for (number, node) in config.nodes.iter().enumerate() {
            machines.push(Machine::boot(&cluster, node, number + 1, &config.transport)?);
        }
        let replicas = (0..config.replicas).flat_map(|index| {
            [Program::AdmissionController, Program::GangScheduler].map(|program| Replica { program, index })
        });
        let agents = (0..machines.len()).map(|node| Replica { program: Program::NodeAgent(node), index: 0 });
        let all: Vec<_> = replicas.chain(agents).collect();
        let (admission, planted) = (config.admission, config.planted);
        let mut stack = Self {
            cluster,
            machines,
            clock,
            rng,
            tasks,
            services,
            admission,
            planted,
            running: BTreeMap::new(),
            starts: BTreeMap::new(),
            ended: Arc::default(),
        };
        all.into_iter().for_each(|replica| stack.start_replica(replica));
        Ok(stack)
    }

    /// Starts a replica that does not run.
    pub fn start_replica(&mut self, replica: Replica) {
        let starts = self.starts.entry(replica).or_default();
        *starts += 1;
        let name = match replica.program {
            Program::NodeAgent(node) => format!("node-agent/{}.{starts}", self.machines[node].name()),
            program => format!("{}/{}.{starts}", program.name(), replica.index),
        };
        let context = Context {
            clients: Clients {
                write: self.cluster.client_as(&name),
                watch: self.cluster.client_as(&name),
                lease: self.cluster.client_as(&name),
            },
            clock: self.clock.of_another_machine(),
            rng: self.rng.fork(),
            tasks: self.tasks.child(),
            identity: Identity::new(name),
            services: self.services.clone(),
        };
        let running = Running {
            identity: context.identity.clone(),
            tasks: context.tasks.clone(),
            clock: context.clock.clone(),
        };
        self.launch(replica.program, context);
        self.running.insert(replica, running);
    }

    fn launch(&self, program: Program, context: Context) {
        let tasks = context.tasks.clone();
        let (ended, identity) = (self.ended.clone(), context.identity.clone());
        let report = move |error: &dyn std::fmt::Display| {
            tracing::error!(program = identity.as_str(), "ended: {error}");
            let mut ended = ended.lock().unwrap_or_else(PoisonError::into_inner);
            ended.push(format!("{} ended: {error}", identity.as_str()));
        };
        match program {
            Program::AdmissionController => {
                let (file, planted) = (self.admission.clone(), self.planted);
                let config = admission_controller::Config { file, planted, ..Default::default() };
                tasks.spawn(async move {
                    if let Err(error) = admission_controller::run(context, config).await {
                        report(&error);
                    }
                });
            }
            Program::GangScheduler => {
                let mut config = gang_scheduler::Config { planted: self.planted, ..Default::default() };
                // Nobody else schedules here.
                config.scheduler_names.insert("default-scheduler".to_owned());
                tasks.spawn(async move {
                    if let Err(error) = gang_scheduler::run(context, config).await {
                        report(&error);
                    }
                });
            }
            Program::NodeAgent(node) => {
                let config = self.machines[node].agent_config(self.planted);
                tasks.spawn(async move {
                    if let Err(error) = node_agent::run(context, config).await {
                        report(&error);
                    }
                });
            }
        }
    }

    /// Kills a replica where it stands. Its endpoints go with it.
    pub fn kill(&mut self, replica: Replica) {
        if let Some(running) = self.running.remove(&replica) {
            running.tasks.kill();
            self.services.deregister(NAMESPACE, replica.program.name(), running.identity.as_str());
        }
    }

    /// Asks a replica to stop, as the kubelet does: it is no endpoint any more, and has until [`Self::start_replica`] for what it
    /// has begun.
    pub fn ask_to_stop(&mut self, replica: Replica) {
        if let Some(running) = self.running.get(&replica) {
            running.tasks.stop();
            self.services.deregister(NAMESPACE, replica.program.name(), running.identity.as_str());
        }
    }

    /// What webhooks reach: those of others may be added.
    pub fn services(&self) -> &ServiceTable {
        &self.services
    }

    /// The replica behind an identity, while it runs.
    pub fn replica_of(&self, identity: &str) -> Option<Replica> {
        self.running
            .iter()
            .find(|(_, running)| running.identity.as_str() == identity)
            .map(|(replica, _)| *replica)
    }

    /// The wall clock of a running replica's machine, to set. Whoever is started later has one that is right.
    pub fn clock_of(&self, replica: Replica) -> Option<&Clock> {
        self.running.get(&replica).map(|running| &running.clock)
    }

    /// The task group of a running replica, to freeze and thaw.
    pub fn tasks_of(&self, replica: Replica) -> Option<&Tasks> {
        self.running.get(&replica).map(|running| &running.tasks)
    }

    /// Completes when every running replica answers its readiness probe.
    ///
    /// # Errors
    /// One did not within a minute.
    pub async fn ready(&self) -> anyhow::Result<()> {
        let deadline = self.clock.monotonic() + std::time::Duration::from_secs(60);
        let mut replicas: BTreeMap<&str, usize> = BTreeMap::new();
        for replica in self.running.keys() {
            *replicas.entry(replica.program.name()).or_default() += 1;
        }
        for (program, replicas) in replicas {
            while !self.are_ready(program, replicas).await {
                anyhow::ensure!(self.clock.monotonic() < deadline, "{program} is not ready after a minute");
                self.clock.sleep(std::time::Duration::from_millis(50)).await;
            }
        }
        Ok(())
    }

    /// The programs that gave up, with what they said.
    pub fn ended(&self) -> Vec<String> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What the replicas of both controllers show on `/debug/state`.
    pub async fn debug_states(&self) -> Vec<String> {
        let mut states = Vec::new();
        for program in [Program::AdmissionController, Program::GangScheduler] {
            for service in self.services.resolve(NAMESPACE, program.name()) {
                let state = install::page(service, "/debug/state").await;
                states.extend(state.map(|state| format!("{}: {state}", program.name())));
            }
        }
        states
    }

    /// Whether so many replicas of a program serve, and each says that it is ready.
    async fn are_ready(&self, program: &str, replicas: usize) -> bool {
        let services = self.services.resolve(NAMESPACE, program);
        if services.len() < replicas {
            return false;
        }
        for service in services {
            if !install::answers_ready(service).await {
                return false;
            }
        }
        true
    }
}

impl std::fmt::Debug for Stack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stack")
            .field("machines", &self.machines.len())
            .field("running", &self.running.keys())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_is_ready_when_every_agent_has_registered() {
        let nodes = ["n1", "n2"].map(|name| NodeConfig {
            name: name.to_owned(),
            profile: "8xA100".to_owned(),
            labels: BTreeMap::new(),
        });
        let config = StackConfig {
            nodes: nodes.into(),
            replicas: 1,
            transport: Transport::Memory,
            admission: Default::default(),
            planted: Planted::NONE,
            image: None,
        };
        let clock = Clock::starting_at(jiff::Timestamp::UNIX_EPOCH);
        let mut stack = Stack::start(clock, Rng::seeded(1), Tasks::new(), config).await.unwrap();
        stack.ready().await.unwrap();
        // A new agent that finds no kubelet has nobody to register with.
        let agent = Replica { program: Program::NodeAgent(1), index: 0 };
        stack.kill(agent);
        stack.machines[1].kubelet().stop();
        stack.start_replica(agent);
        let error = stack.ready().await.unwrap_err().to_string();
        assert!(error.contains("node-agent"), "{error}");
        stack.machines[1].kubelet().start().unwrap();
        stack.ready().await.unwrap();
    }
}
