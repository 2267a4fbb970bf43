//! `trireme up` and `trireme demo`: the stack in real time, served to `kubectl` on loopback.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use kit::{Clock, Rng, Tasks};

use crate::stack::{NodeConfig, Stack, StackConfig, Transport};
use crate::{demo, objects};

/// The queues of a cluster for people's own manifests.
const STARTER_QUEUES: (&str, &str) =
    ("starter-queues.yaml", include_str!("../../examples/starter-queues.yaml"));

/// What the cluster is started for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// For people's own manifests, with nothing but the custom resources.
    Empty,
    /// For people's own manifests, with a set of queues to start from.
    StarterQueues,
    /// For the story.
    Story {
        /// Exit when it is told.
        once: bool,
    },
}

/// What to start.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many nodes.
    pub nodes: usize,
    /// The name of each node's fake-nvml profile.
    pub profile: String,
    /// Where to write the kubeconfig; none: into a new temporary folder.
    pub kubeconfig: Option<PathBuf>,
    /// What for.
    pub purpose: Purpose,
}

/// Starts the stack and keeps it running until SIGINT, or until the story is told.
///
/// # Errors
/// What kept the stack from starting, or the story from ending as it should.
pub fn run(options: Options) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let outcome = runtime.block_on(serve(options));
    // Whatever still runs ends with the process.
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome
}

async fn serve(options: Options) -> anyhow::Result<()> {
    let started = Clock::System.monotonic();
    let folder =
        tempfile::Builder::new().prefix("trireme-").tempdir().context("creating a temporary folder")?;
    let tasks = Tasks::new();
    let nodes = (1..=options.nodes).map(|number| NodeConfig {
        name: format!("node-{number}"),
        profile: options.profile.clone(),
        labels: Default::default(),
    });
    let config = StackConfig {
        nodes: nodes.collect(),
        replicas: 1,
        transport: Transport::Unix(folder.path().join("nodes")),
        admission: Default::default(),
        planted: model::planted::Planted::NONE,
        image: None,
    };
    let stack = Stack::start(Clock::System, Rng::from_entropy(), tasks.clone(), config).await?;
    let served = stack.cluster.listen(([127, 0, 0, 1], 0).into()).await.context("listening on loopback")?;
    let kubeconfig = options.kubeconfig.clone().unwrap_or_else(|| folder.path().join("kubeconfig"));
    write_kubeconfig(&kubeconfig, &served.kubeconfig())?;
    let client = outside_client(&kubeconfig).await?;
    stack.ready().await?;
    announce(&options, &kubeconfig, started);

    let mut told = Ok(());
    let interrupted = tokio::select! {
        biased;
        signal = tokio::signal::ctrl_c() => { signal?; true }
        outcome = work(&options, &client, started) => { told = outcome; false }
    };
    let goes_on = !interrupted && told.is_ok() && options.purpose != Purpose::Story { once: true };
    if goes_on {
        tokio::signal::ctrl_c().await?;
    }
    tasks.stop();
    let _ = tokio::time::timeout(Duration::from_secs(5), tasks.ended()).await;
    told
}

async fn work(options: &Options, client: &kube::Client, started: tokio::time::Instant) -> anyhow::Result<()> {
    match options.purpose {
        Purpose::Empty => Ok(()),
        Purpose::StarterQueues => {
            for manifest in objects::parse(STARTER_QUEUES.0, STARTER_QUEUES.1)? {
                objects::apply(client, &manifest).await?;
            }
            println!("queues: namespaces team-a and team-b each have a LocalQueue named training");
            Ok(())
        }
        Purpose::Story { .. } => {
            let first = demo::tell(client, started).await?;
            println!(
                "first job running {:.1} s after start, {} MB resident",
                first.as_secs_f64(),
                resident_mb()
            );
            Ok(())
        }
    }
}

/// A client as somebody else's would be: it knows the kubeconfig and nothing more.
async fn outside_client(kubeconfig: &Path) -> anyhow::Result<kube::Client> {
    let config = kube::config::Kubeconfig::read_from(kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(config, &Default::default()).await?;
    Ok(kube::Client::try_from(config)?)
}

fn write_kubeconfig(path: &Path, text: &str) -> anyhow::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut options = std::fs::OpenOptions::new();
    // It carries the token: nobody else may read it.
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(path);
    let mut file = file.with_context(|| format!("writing the kubeconfig {}", path.display()))?;
    std::io::Write::write_all(&mut file, text.as_bytes())?;
    Ok(())
}

fn announce(options: &Options, kubeconfig: &Path, started: tokio::time::Instant) {
    println!(
        "{} nodes of {} and the three programs are ready after {:.1} s.",
        options.nodes,
        options.profile,
        started.elapsed().as_secs_f64()
    );
    println!("  export KUBECONFIG={}", kubeconfig.display());
    if options.purpose != (Purpose::Story { once: true }) {
        println!("  kubectl get nodes,clusterqueues,workloads,pods -A        (Ctrl-C ends it)");
    }
}

/// Resident memory of this process in megabytes, as Linux counts it; 0 elsewhere.
fn resident_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kilobytes.unwrap_or(0) / 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_starter_queues_ask_for_no_product() {
        let queues = objects::parse(STARTER_QUEUES.0, STARTER_QUEUES.1).unwrap();
        let flavors: Vec<_> = queues.iter().filter(|one| one["kind"] == "ResourceFlavor").collect();
        assert_eq!(flavors.len(), 1);
        // `up --profile` decides which GPUs there are.
        assert!(flavors[0]["spec"]["nodeLabels"].is_null(), "{}", flavors[0]);
        for queue in queues.iter().filter(|one| one["kind"] == "ClusterQueue") {
            let named = &queue["spec"]["resourceGroups"][0]["flavors"][0]["name"];
            assert_eq!(*named, flavors[0]["metadata"]["name"]);
        }
    }
}
