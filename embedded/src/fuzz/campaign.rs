//! Many episodes: a range of seeds, or every planted bug.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kit::Clock;
#[cfg(feature = "planted-bugs")]
use model::planted::Bug;
use model::planted::Planted;

use super::episode::{self, Options, Outcome};

/// A planted bug must be found within so many seeds.
#[cfg(feature = "planted-bugs")]
const SEEDS_PER_BUG: u64 = 1_000;

/// A range of seeds.
#[derive(Clone, Copy, Debug)]
pub struct Campaign {
    /// The first.
    pub first: u64,
    /// How many.
    pub seeds: u64,
    /// Whether to print every write.
    pub log: bool,
    /// The deliberate bug that is switched on.
    pub planted: Planted,
}

/// After so many episodes a campaign says how far it is.
const SIGN_OF_LIFE: u64 = 500;

/// Plays a range of seeds. Returns whether nothing was found.
///
/// # Errors
/// An episode could not be started.
pub fn run(campaign: Campaign) -> anyhow::Result<bool> {
    let Campaign { first, seeds, log, planted } = campaign;
    println!("seeds {first}..{}", first + seeds);
    let begun = Clock::System.monotonic();
    let played = AtomicU64::new(0);
    let outcomes = play_all(first, seeds, Options { planted, log }, |outcome| {
        outcome.log.iter().for_each(|line| println!("{line}"));
        report(outcome);
        let played = played.fetch_add(1, Ordering::Relaxed) + 1;
        if played.is_multiple_of(SIGN_OF_LIFE) {
            println!("{played} of {seeds} played in {} s", begun.elapsed().as_secs());
        }
        false
    })?;
    let seconds = begun.elapsed().as_secs_f64();
    let found = outcomes.iter().filter(|outcome| !outcome.violations.is_empty()).count();
    let writes: u64 = outcomes.iter().map(|outcome| outcome.checked).sum();
    println!(
        "{} episodes, {writes} writes checked, {found} with violations, {:.1} episodes/s",
        outcomes.len(),
        outcomes.len() as f64 / seconds
    );
    if let [outcome] = outcomes.as_slice() {
        println!("digest {:016x}", outcome.digest);
    }
    Ok(found == 0)
}

fn report(outcome: &Outcome) {
    for violation in outcome.violations.iter().take(3) {
        println!("seed {}: at {} ms: {}: {}", outcome.seed, violation.at, violation.rule, violation.what);
    }
    if !outcome.violations.is_empty() {
        println!("  reproduce: {}", reproduce(outcome.seed));
    }
}

fn reproduce(seed: u64) -> String {
    format!("cargo run --release -p embedded -- fuzz --seed {seed} --seeds 1 --log")
}

/// How long whoever watches the episodes sleeps between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// An episode takes a fraction of a second. One that is still played after so many looks, two minutes, has a program that spins: virtual
/// time cannot go on. Nobody looks while the whole process is stopped.
const STUCK: u32 = 6000;

/// Plays seeds on as many threads as there are cores, and stops early once `enough` says so.
fn play_all(
    first: u64,
    seeds: u64,
    options: Options,
    enough: impl Fn(&Outcome) -> bool + Sync,
) -> anyhow::Result<Vec<Outcome>> {
    let next = AtomicU64::new(first);
    let done = AtomicBool::new(false);
    let outcomes = Mutex::new(Vec::new());
    let playing: Mutex<BTreeMap<u64, u32>> = Mutex::new(BTreeMap::new());
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= first + seeds {
                            return;
                        }
                        lock(&playing).insert(seed, 0);
                        let outcome = episode::play(seed, options);
                        lock(&playing).remove(&seed);
                        let mut outcomes = lock(&outcomes);
                        done.fetch_or(outcome.as_ref().map_or(true, &enough), Ordering::Relaxed);
                        outcomes.push(outcome);
                    }
                })
            })
            .collect();
        while workers.iter().any(|worker| !worker.is_finished()) {
            std::thread::sleep(LOOK);
            for (seed, looks) in lock(&playing).iter_mut() {
                *looks += 1;
                if *looks > STUCK {
                    println!(
                        "seed {seed}: still playing after {} s: a program spins",
                        (LOOK * STUCK).as_secs()
                    );
                    println!("  reproduce: {}", reproduce(*seed));
                    std::process::exit(1);
                }
            }
        }
    });
    let outcomes = outcomes.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut outcomes = outcomes.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    outcomes.sort_by_key(|outcome| outcome.seed);
    Ok(outcomes)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The deliberate bug of this name; none where no name is given.
///
/// # Errors
/// No bug has that name, or the bugs are not compiled in.
pub fn bug(name: Option<&str>) -> anyhow::Result<Planted> {
    let Some(name) = name else { return Ok(Planted::NONE) };
    #[cfg(feature = "planted-bugs")]
    let found = Bug::ALL.iter().find(|bug| format!("{bug:?}").eq_ignore_ascii_case(name)).copied();
    #[cfg(feature = "planted-bugs")]
    let found = found.map(Planted::one);
    #[cfg(not(feature = "planted-bugs"))]
    let found = None;
    found.ok_or_else(|| anyhow::anyhow!("no planted bug is called {name}; --planted without --bug lists all"))
}

/// Switches each bug (or the one of that name) on alone and looks for it. Returns whether all were found.
///
/// # Errors
/// An episode could not be started, no bug has that name, or the bugs are not compiled in.
#[cfg(feature = "planted-bugs")]
pub fn planted(first: u64, only: Option<&str>) -> anyhow::Result<bool> {
    let wanted = |bug: &&Bug| only.is_none_or(|name| format!("{bug:?}").eq_ignore_ascii_case(name));
    let bugs: Vec<&Bug> = Bug::ALL.iter().filter(wanted).collect();
    anyhow::ensure!(!bugs.is_empty(), "no planted bug is called {only:?}; without --bug, all are listed");
    println!("{:<24} {:>6}  found by", "planted bug", "seeds");
    let mut missed = 0;
    for bug in &bugs {
        let options = Options { planted: Planted::one(**bug), log: false };
        let outcomes = play_all(first, SEEDS_PER_BUG, options, |outcome| !outcome.violations.is_empty())?;
        let name = format!("{bug:?}");
        match outcomes.iter().find(|outcome| !outcome.violations.is_empty()) {
            Some(found) => {
                let seeds = found.seed - first + 1;
                println!("{name:<24} {seeds:>6}  {}: {}", found.violations[0].rule, found.violations[0].what);
            }
            None => {
                missed += 1;
                println!("{name:<24} {:>6}  NOT FOUND", outcomes.len());
            }
        }
    }
    println!("{} of {} planted bugs found", bugs.len() - missed, bugs.len());
    Ok(missed == 0)
}

/// Without the bugs there is nothing to look for.
///
/// # Errors
/// Always.
#[cfg(not(feature = "planted-bugs"))]
pub fn planted(_: u64, _: Option<&str>) -> anyhow::Result<bool> {
    anyhow::bail!("this build has no planted bugs; build the package embedded with its default features")
}
