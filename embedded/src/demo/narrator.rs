//! Tells what happens, a line for every change a reader cares about.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write as _};
use std::time::Duration;

use super::seen::{Seen, Standing};

/// Prints the way of each job, layer by layer.
pub(super) struct Narrator {
    started: tokio::time::Instant,
    told: BTreeMap<(String, String), Standing>,
    progress_shown: bool,
    last_progress: Duration,
}

impl Narrator {
    /// Times are told from `started`.
    pub(super) fn new(started: tokio::time::Instant) -> Self {
        Self { started, told: BTreeMap::new(), progress_shown: false, last_progress: Duration::ZERO }
    }

    /// A line about a layer's verdict.
    pub(super) fn line(&mut self, who: &str, layer: &str, verdict: &str, numbers: &str) {
        self.clear_progress();
        let at = self.started.elapsed().as_secs_f64();
        println!("{at:6.1}s  {who:<9} {layer:<12} {verdict:<9} {numbers}");
    }

    /// What comes next in the story.
    pub(super) fn headline(&mut self, text: &str) {
        self.clear_progress();
        println!("\n{text}");
    }

    /// Tells what changed about a job since it was last told.
    pub(super) fn follow(&mut self, seen: &Seen, namespace: &str, job: &str) {
        let now = seen.standing(namespace, job);
        let key = (namespace.to_owned(), job.to_owned());
        let before = self.told.insert(key, now.clone()).unwrap_or_default();
        if now == before {
            return;
        }
        self.quota(job, &before, &now);
        if now.admitted {
            self.placement(job, &before, &now);
        }
    }

    fn quota(&mut self, job: &str, before: &Standing, now: &Standing) {
        if now.preempted != before.preempted
            && let Some((reason, message)) = &now.preempted
        {
            self.line(job, "1 quota", "evicted", &format!("Preempted, {reason}: {message}"));
        }
        if now.finished != before.finished
            && let Some(reason) = &now.finished
        {
            self.line(job, "1 quota", "finished", &format!("{reason}, its quota is free"));
        } else if now.quota != before.quota
            && let Some((reserved, reason, message)) = &now.quota
        {
            let (verdict, numbers) = match reserved {
                true => ("admitted", format!("{reason}: {message}, {}", now.granted.join(", "))),
                false => ("waits", format!("{reason}: {message}")),
            };
            self.line(job, "1 quota", verdict, &numbers);
        }
    }

    fn placement(&mut self, job: &str, before: &Standing, now: &Standing) {
        let (pods, bound, running) = now.pods;
        if pods > 0 && bound == pods && (before.pods.1 != bound || before.pods.0 != pods) {
            let nodes = now.nodes.iter().cloned().collect::<Vec<_>>().join(", ");
            self.line(
                job,
                "2 placement",
                "bound",
                &format!("{bound} of {pods} pods, by one plan, on {nodes}"),
            );
        } else if now.unscheduled != before.unscheduled
            && let Some(message) = &now.unscheduled
        {
            self.line(job, "2 placement", "waits", message);
        }
        if pods > 0 && running == pods && before.pods.2 != running {
            self.line(job, "3 devices", "running", &format!("{running} of {pods} pods have their GPUs"));
        }
    }

    /// A line that shows that waiting goes on: rewritten in place on a terminal, else every five seconds.
    pub(super) fn progress(&mut self, waiting_for: &str) {
        let at = self.started.elapsed();
        if std::io::stdout().is_terminal() {
            print!("\r\x1b[2K{:6.1}s  … {waiting_for}", at.as_secs_f64());
            let _ = std::io::stdout().flush();
            self.progress_shown = true;
        } else if at.saturating_sub(self.last_progress) >= Duration::from_secs(5) {
            println!("{:6.1}s  … {waiting_for}", at.as_secs_f64());
            self.last_progress = at;
        }
    }

    fn clear_progress(&mut self) {
        if std::mem::take(&mut self.progress_shown) {
            print!("\r\x1b[2K");
        }
        self.last_progress = self.started.elapsed();
    }
}
