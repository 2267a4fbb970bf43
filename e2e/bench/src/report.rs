//! What came of the runs, as a table for people and as JSON.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::load::Outcome;
use crate::server::Counts;
use crate::usage::Usage;

/// One run of one subject.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Measured {
    pub(crate) subject: &'static str,
    pub(crate) workloads: usize,
    /// Fewer than `workloads` when the time limit came first.
    pub(crate) finished: usize,
    pub(crate) makespan_seconds: f64,
    /// Seconds from creation to admission, by class.
    pub(crate) waits: BTreeMap<String, Wait>,
    /// The share of quota in use, on average.
    pub(crate) usage_percent: f64,
    pub(crate) evictions: u64,
    /// By verb and resource; leases are left out.
    pub(crate) writes: Counts,
    /// Writes that the API server refused, conflicts among them; the simulated one does not count them.
    pub(crate) refused: u64,
    pub(crate) controller: Usage,
    /// kube-apiserver and etcd together.
    pub(crate) server: Option<Usage>,
}

/// Waits of one class, in seconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Wait {
    pub(crate) mean: f64,
    pub(crate) p99: f64,
}

impl Measured {
    /// Of an outcome and what was counted meanwhile.
    pub(crate) fn new(
        subject: &'static str,
        workloads: usize,
        classes: &[String],
        outcome: &Outcome,
        (writes, refused): (Counts, u64),
        (controller, server): (Usage, Option<Usage>),
    ) -> Self {
        let wait = |waits: &crate::load::Waits| Wait { mean: waits.mean(), p99: waits.p99() };
        Self {
            subject,
            workloads,
            finished: outcome.finished,
            makespan_seconds: outcome.makespan.as_secs_f64(),
            waits: classes.iter().cloned().zip(outcome.waits.iter().map(wait)).collect(),
            usage_percent: outcome.usage_percent,
            evictions: outcome.evictions,
            writes,
            refused,
            controller,
            server,
        }
    }

    fn per_workload(&self, writes: u64) -> f64 {
        writes as f64 / self.workloads.max(1) as f64
    }
}

/// The numbers that are compared, with their names; `classes` gives the order of waits.
fn rows(one: &Measured, classes: &[String]) -> Vec<(String, f64)> {
    let mut rows = vec![
        ("workloads finished".to_owned(), one.finished as f64),
        ("makespan, s".to_owned(), one.makespan_seconds),
    ];
    for class in classes {
        let wait = one.waits.get(class).copied().unwrap_or_default();
        rows.push((format!("wait of {class}, mean, s"), wait.mean));
        rows.push((format!("wait of {class}, p99, s"), wait.p99));
    }
    rows.extend([
        ("quota in use, %".to_owned(), one.usage_percent),
        ("evictions".to_owned(), one.evictions as f64),
        ("controller writes a workload".to_owned(), one.per_workload(one.writes.values().sum())),
        ("refused writes a workload".to_owned(), one.per_workload(one.refused)),
        ("controller CPU, s".to_owned(), one.controller.cpu_seconds),
        ("controller peak memory, MB".to_owned(), one.controller.peak_mb),
    ]);
    if let Some(server) = one.server {
        rows.push(("API server and etcd CPU, s".to_owned(), server.cpu_seconds));
    }
    rows
}

/// The median of each number over the runs of each subject; with a yardstick, the ratio of the first subject to it.
pub(crate) fn table(runs: &[Measured], classes: &[String]) -> String {
    let mut subjects: Vec<&str> = Vec::new();
    for run in runs {
        if !subjects.contains(&run.subject) {
            subjects.push(run.subject);
        }
    }
    let of = |subject: &str| -> Vec<&Measured> { runs.iter().filter(|run| run.subject == subject).collect() };
    let mut text = format!("{:<34}", "");
    for subject in &subjects {
        text.push_str(&format!("{subject:>12}"));
    }
    let compared = subjects.len() > 1;
    for other in subjects.iter().skip(1) {
        text.push_str(&format!("{:>14}", format!("/ {other}")));
    }
    text.push('\n');
    let Some(first) = runs.first() else { return text };
    for (index, (name, _)) in rows(first, classes).into_iter().enumerate() {
        let medians: Vec<f64> = subjects
            .iter()
            .map(|subject| {
                median(
                    of(subject)
                        .iter()
                        .filter_map(|run| rows(run, classes).get(index).map(|(_, value)| *value)),
                )
            })
            .collect();
        text.push_str(&format!("{name:<34}"));
        for value in &medians {
            text.push_str(&format!("{value:>12.2}"));
        }
        if compared {
            for other in &medians[1..] {
                let ratio = if *other == 0.0 { "-".to_owned() } else { format!("{:.2}", medians[0] / other) };
                text.push_str(&format!("{ratio:>14}"));
            }
        }
        text.push('\n');
    }
    for subject in &subjects {
        let mut sums = Counts::new();
        let runs = of(subject);
        for run in &runs {
            for (name, count) in &run.writes {
                *sums.entry(name.clone()).or_default() += count;
            }
        }
        let all: usize = runs.iter().map(|run| run.workloads).sum();
        for (name, count) in sums {
            text.push_str(&format!(
                "  {subject}: {name:<40}{:>8.3} a workload\n",
                count as f64 / all.max(1) as f64
            ));
        }
    }
    text
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(subject: &'static str, makespan: f64) -> Measured {
        Measured {
            subject,
            workloads: 4,
            finished: 4,
            makespan_seconds: makespan,
            waits: [("small".to_owned(), Wait { mean: makespan / 10.0, p99: makespan })].into(),
            usage_percent: 50.0,
            evictions: 0,
            writes: [("patch workloads/status".to_owned(), 4)].into(),
            refused: 0,
            controller: Usage::default(),
            server: None,
        }
    }

    #[test]
    fn ratios_are_of_medians() {
        let runs = [
            run("ours", 9.0),
            run("stub", 10.0),
            run("ours", 30.0),
            run("stub", 10.0),
            run("ours", 11.0),
            run("stub", 10.0),
        ];
        let text = table(&runs, &["small".to_owned()]);
        let line = text.lines().find(|line| line.starts_with("makespan")).unwrap();
        assert_eq!(line.split_whitespace().skip(2).collect::<Vec<_>>(), ["11.00", "10.00", "1.10"]);
        assert!(text.contains("ours: patch workloads/status") && text.contains("1.000 a workload"), "{text}");
    }
}
