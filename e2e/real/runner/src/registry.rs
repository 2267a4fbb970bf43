//! The list of tests, and how they are run and counted.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use futures::{FutureExt as _, StreamExt as _};

use crate::world::World;
use crate::{Options, tests};

/// The longest a single test may take.
const LIMIT: Duration = Duration::from_secs(240);
/// Tests that share nothing but the API server run side by side, this many at once.
const SIDE_BY_SIDE: usize = 6;

/// From here on the time a test took is worth a word.
const SLOW: Duration = Duration::from_secs(5);

/// How a test ended when nothing went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It holds.
    Passed,
    /// It could not be run here, for this reason.
    Skipped(String),
}

type Run = Box<dyn Fn(Arc<World>) -> Pin<Box<dyn Future<Output = Result<Outcome>>>>>;

/// One test.
pub(crate) struct Test {
    name: String,
    stage: Stage,
    run: Run,
}

/// When a test runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// First, beside others, on an API server that none of our programs has touched.
    Bare,
    /// Then, beside others, with the webhooks of admission-controller in place.
    Admission,
    /// Last, one after the other.
    Alone,
}

impl Test {
    /// A test that may run beside others, on an API server without our programs.
    pub(crate) fn new<F>(name: impl Into<String>, run: impl Fn(Arc<World>) -> F + 'static) -> Self
    where
        F: Future<Output = Result<Outcome>> + 'static,
    {
        Self { name: name.into(), stage: Stage::Bare, run: Box::new(move |world| Box::pin(run(world))) }
    }

    /// Runs when admission-controller is there, beside others of the kind.
    pub(crate) fn with_admission(mut self) -> Self {
        self.stage = Stage::Admission;
        self
    }

    /// Runs after those before it and before those behind it.
    pub(crate) fn alone(mut self) -> Self {
        self.stage = Stage::Alone;
        self
    }
}

/// How many tests ended how.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
}

/// Starts the world, runs the tests, prints a line for each.
pub(crate) async fn run(options: Options) -> Result<Counts> {
    let world = Arc::new(World::start(&options).await?);
    if options.hold {
        println!("KUBECONFIG={}", world.running()?.plane.kubeconfig.display());
        std::future::pending::<()>().await;
    }
    let wanted = |test: &Test| {
        options.only.is_empty() || options.only.iter().any(|part| test.name.contains(part.as_str()))
    };
    let all = tests::all(&options.repository);
    let mut parts = options.only.iter();
    if let Some(part) = parts.find(|part| !all.iter().any(|test| test.name.contains(part.as_str()))) {
        bail!("no test has {part:?} in its name");
    }
    let mut tests: Vec<Test> = all.into_iter().filter(wanted).collect();
    let mut counts = Counts::default();
    for (stage, at_once) in [(Stage::Bare, SIDE_BY_SIDE), (Stage::Admission, SIDE_BY_SIDE), (Stage::Alone, 1)]
    {
        let (now, later): (Vec<_>, Vec<_>) = tests.into_iter().partition(|test| test.stage == stage);
        tests = later;
        let running = futures::stream::iter(now).map(|test| one(test, world.clone()));
        let mut ended = running.buffer_unordered(at_once);
        while let Some(end) = ended.next().await {
            counts.note(end);
        }
    }
    world.end().await;
    Ok(counts)
}

struct End {
    name: String,
    outcome: Result<Outcome>,
    took: Duration,
}

async fn one(test: Test, world: Arc<World>) -> End {
    let started = kit::Clock::System.monotonic();
    let guarded = AssertUnwindSafe((test.run)(world)).catch_unwind();
    let outcome = match tokio::time::timeout(LIMIT, guarded).await {
        Err(_elapsed) => Err(anyhow!("took longer than {} s", LIMIT.as_secs())),
        Ok(Err(panic)) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Err(anyhow!("panicked: {}", text.unwrap_or_default()))
        }
        Ok(Ok(outcome)) => outcome,
    };
    End { name: test.name, outcome, took: kit::Clock::System.monotonic() - started }
}

impl Counts {
    fn note(&mut self, End { name, outcome, took }: End) {
        match outcome {
            Ok(Outcome::Passed) => {
                self.passed += 1;
                let time = if took < SLOW { String::new() } else { format!(" ({} s)", took.as_secs()) };
                println!("ok      {name}{time}");
            }
            Ok(Outcome::Skipped(why)) => {
                self.skipped += 1;
                println!("skipped {name}: {why}");
            }
            Err(error) => {
                self.failed += 1;
                println!("FAILED  {name}: {error:#}");
            }
        }
    }
}

/// Turns "not there" into a skip: `let running = need!(world.running());`.
macro_rules! need {
    ($value:expr) => {
        match $value {
            Ok(value) => value,
            Err(why) => return Ok($crate::registry::Outcome::Skipped(format!("{why:#}"))),
        }
    };
}
pub(crate) use need;

/// The output of a command that must succeed.
pub(crate) async fn output(command: &mut tokio::process::Command) -> Result<String> {
    let output = command.kill_on_drop(true).output().await.with_context(|| format!("{command:?}"))?;
    anyhow::ensure!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
