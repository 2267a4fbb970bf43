//! `trireme demo`: a story of four jobs that share 24 GPUs, told while it happens, and checked from outside.

mod narrator;
mod seen;
mod story;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kit::Clock;
use narrator::Narrator;
use seen::{Seen, Told};
use story::{Expectation, GPUS, JOBS, QUEUES, STEPS, Step};

use crate::objects::{self, ManifestError};

/// How many nodes the story needs.
pub const NODES: usize = story::NODES;
/// The fake-nvml profile of each of them.
pub const PROFILE: &str = story::PROFILE;

/// A step that takes longer has failed: its jobs run for 25 s at most, and the nodes are ready when the story begins.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often the API is looked at.
const GLANCE: Duration = Duration::from_millis(100);

/// Why the story did not come out as it should.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// A manifest of the story was refused.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The API could not be read.
    #[error("the embedded API server did not answer: {0}")]
    Api(#[source] Box<kube::Error>),
    /// The nodes do not advertise what the story is about.
    #[error("the nodes advertise {found} of {GPUS} GPUs after {}s; look at the GpuNodes", PATIENCE.as_secs())]
    Gpus {
        /// What they advertise.
        found: i64,
    },
    /// An expectation was not met in time.
    #[error("{job} did not get to {expected} within {}s; it stands at {found}", PATIENCE.as_secs())]
    Unmet {
        /// Namespace and name of the job.
        job: String,
        /// What was expected of it.
        expected: String,
        /// Where it is instead.
        found: String,
    },
    /// The devices seen in the containers' environment are not those that were given, once each.
    #[error("devices: {0}")]
    Devices(String),
}

impl From<kube::Error> for DemoError {
    fn from(error: kube::Error) -> Self {
        Self::Api(Box::new(error))
    }
}

/// Tells the story on a running stack, through a client that came in from outside. Returns how long it took until the
/// first job ran.
///
/// # Errors
/// The first thing that an outside look at the API does not confirm.
pub async fn tell(client: &kube::Client, started: tokio::time::Instant) -> Result<Duration, DemoError> {
    let mut narrator = Narrator::new(started);
    let (gpus, product) = wait_for_gpus(client, &mut narrator).await?;
    narrator.line("cluster", "3 devices", "ready", &format!("{gpus} x {product} advertised by node-agent"));
    for manifest in objects::parse(QUEUES.0, QUEUES.1)? {
        objects::apply(client, &manifest).await?;
    }
    narrator.line(
        "cluster",
        "1 quota",
        "ready",
        "team-a-queue owns 8 and may borrow 4, team-b-queue owns 16",
    );
    let mut first_running = None;
    for step in STEPS {
        play(client, &mut narrator, step).await?;
        let seen = Seen::look(client).await?;
        check_devices(&seen.told_devices(client).await?, &seen.uuids())?;
        first_running.get_or_insert(started.elapsed());
    }
    narrator.headline(
        "The story ended as it should: every gang whole, every GPU given once, every reason as expected.",
    );
    Ok(first_running.unwrap_or_default())
}

async fn wait_for_gpus(client: &kube::Client, narrator: &mut Narrator) -> Result<(i64, String), DemoError> {
    let deadline = Clock::System.monotonic() + PATIENCE;
    loop {
        let (gpus, product) = Seen::look(client).await?.gpus();
        if gpus >= GPUS && !product.is_empty() {
            return Ok((gpus, product));
        }
        if Clock::System.monotonic() > deadline {
            return Err(DemoError::Gpus { found: gpus });
        }
        narrator.progress("waiting for the nodes to advertise their GPUs");
        tokio::time::sleep(GLANCE).await;
    }
}

async fn play(client: &kube::Client, narrator: &mut Narrator, step: &Step) -> Result<(), DemoError> {
    narrator.headline(step.headline);
    if let Some((file, text)) = step.manifest {
        for manifest in objects::parse(file, text)? {
            objects::apply(client, &manifest).await?;
        }
    }
    let deadline = Clock::System.monotonic() + PATIENCE;
    let mut reached = vec![false; step.until.len()];
    loop {
        let seen = Seen::look(client).await?;
        for (namespace, job) in JOBS {
            narrator.follow(&seen, namespace, job);
        }
        for (reached, expected) in reached.iter_mut().zip(step.until) {
            *reached |= expected.reaches.is_reached_by(&seen.standing(expected.job.0, expected.job.1));
        }
        let Some(missing) = reached.iter().position(|reached| !reached).map(|index| &step.until[index])
        else {
            return Ok(());
        };
        if Clock::System.monotonic() > deadline {
            return Err(unmet(missing, &seen));
        }
        narrator.progress(&format!("{} is to reach {:?}", missing.job.1, missing.reaches));
        tokio::time::sleep(GLANCE).await;
    }
}

fn unmet(expected: &Expectation, seen: &Seen) -> DemoError {
    DemoError::Unmet {
        job: format!("{}/{}", expected.job.0, expected.job.1),
        expected: format!("{:?}", expected.reaches),
        found: format!("{:?}", seen.standing(expected.job.0, expected.job.1)),
    }
}

/// Every running pod was told of as many GPUs as it asked for, each of them one that its node has, and no GPU was told
/// to two of them. `there`: the GPUs of each node, as its `GpuNode` lists them.
fn check_devices(told: &[Told], there: &BTreeMap<String, BTreeSet<String>>) -> Result<(), DemoError> {
    if told.is_empty() {
        return Err(DemoError::Devices("no pod runs, so no environment can be looked at".to_owned()));
    }
    let mut holders = BTreeMap::new();
    for Told { pod, node, limit, devices } in told {
        if usize::try_from(*limit).ok() != Some(devices.len()) {
            return Err(DemoError::Devices(format!(
                "{pod} may use {limit} GPUs, and its environment names {}: {devices:?}",
                devices.len()
            )));
        }
        for device in devices {
            if !there.get(node).is_some_and(|gpus| gpus.contains(device)) {
                return Err(DemoError::Devices(format!(
                    "{device} is in the environment of {pod}, and not in GpuNode {node}"
                )));
            }
            if let Some(other) = holders.insert(device, pod) {
                return Err(DemoError::Devices(format!(
                    "{device} is in the environment of {other} and of {pod}"
                )));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(pod: &str, node: &str, limit: i64, devices: &[&str]) -> Told {
        let devices = devices.iter().map(|&device| device.to_owned()).collect();
        Told { pod: pod.to_owned(), node: node.to_owned(), limit, devices }
    }

    #[test]
    fn every_gpu_is_given_once_and_as_many_as_asked_for() {
        let there = BTreeMap::from([
            ("n1".to_owned(), BTreeSet::from(["GPU-1".to_owned(), "GPU-2".to_owned()])),
            ("n2".to_owned(), BTreeSet::from(["GPU-3".to_owned()])),
        ]);
        let good = [told("a", "n1", 2, &["GPU-1", "GPU-2"]), told("b", "n2", 1, &["GPU-3"])];
        check_devices(&good, &there).unwrap();
        let one = |limit, devices| vec![told("a", "n1", limit, devices)];
        for (wrong, word) in [
            (Vec::new(), "no pod runs"),
            (one(1, &[]), "may use 1 GPUs, and its environment names 0"),
            (one(2, &["GPU-1"]), "may use 2 GPUs, and its environment names 1"),
            (one(1, &["GPU-1", "GPU-2"]), "may use 1 GPUs, and its environment names 2"),
            (one(0, &["GPU-1"]), "may use 0 GPUs"),
            (one(1, &["GPU-3"]), "not in GpuNode n1"),
            (one(1, &["all"]), "not in GpuNode n1"),
            (one(2, &["GPU-1", "GPU-1"]), "of a and of a"),
            (vec![told("a", "n1", 1, &["GPU-1"]), told("b", "n1", 1, &["GPU-1"])], "of a and of b"),
            (vec![told("a", "n3", 1, &["GPU-1"])], "not in GpuNode n3"),
        ] {
            let error = check_devices(&wrong, &there).unwrap_err().to_string();
            assert!(error.contains(word), "{error:?} lacks {word:?}");
        }
    }

    #[test]
    fn the_story_has_the_gpus_it_waits_for() {
        let world = fake_nvml::WorldSpec::load(PROFILE).unwrap();
        assert_eq!(i64::from(world.count) * i64::try_from(NODES).unwrap(), GPUS);
        assert!(!objects::parse(QUEUES.0, QUEUES.1).unwrap().is_empty());
    }
}
