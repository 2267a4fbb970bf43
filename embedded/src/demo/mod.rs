//! `trireme demo`: a story of four jobs that share 24 GPUs, told while it happens, and checked from outside.

mod narrator;
mod seen;
mod story;

use std::collections::BTreeMap;
use std::time::Duration;

use narrator::Narrator;
use seen::Seen;
use story::{Expectation, JOBS, QUEUES, STEPS, Step};

use crate::objects::{self, ManifestError};

/// A step that takes longer has failed: its jobs run for 25 s at most.
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

/// The queues of the story, which are also those that `trireme up` starts with.
///
/// # Errors
/// None: the file is part of the program, and a test reads it.
pub fn queues() -> Result<Vec<serde_json::Value>, ManifestError> {
    objects::parse(QUEUES.0, QUEUES.1)
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
    for manifest in queues()? {
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
        check_devices(&Seen::look(client).await?.visible_devices(client).await?)?;
        first_running.get_or_insert(started.elapsed());
    }
    narrator.headline(
        "The story ended as it should: every gang whole, every GPU given once, every reason as expected.",
    );
    Ok(first_running.unwrap_or_default())
}

async fn wait_for_gpus(client: &kube::Client, narrator: &mut Narrator) -> Result<(i64, String), DemoError> {
    loop {
        let (gpus, product) = Seen::look(client).await?.gpus();
        if gpus >= 24 && !product.is_empty() {
            return Ok((gpus, product));
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
    let deadline = tokio::time::Instant::now() + PATIENCE;
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
        if tokio::time::Instant::now() > deadline {
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

/// Every running pod was told of GPUs, and no GPU was told to two of them.
fn check_devices(visible: &BTreeMap<String, Vec<String>>) -> Result<(), DemoError> {
    let mut holders = BTreeMap::new();
    for (pod, devices) in visible {
        if devices.is_empty() {
            return Err(DemoError::Devices(format!("{pod} runs without NVIDIA_VISIBLE_DEVICES")));
        }
        for device in devices {
            if let Some(other) = holders.insert(device, pod) {
                return Err(DemoError::Devices(format!(
                    "{device} is in the environment of {other} and of {pod}"
                )));
            }
        }
    }
    Ok(())
}
