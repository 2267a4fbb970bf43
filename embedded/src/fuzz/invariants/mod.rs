//! What must never happen, checked after every committed write, and what must have happened when all is calm.
//!
//! A rule looks at the world as an outside observer knows it. Where a program could not have known better when it sent
//! the write, the rule forgives: that is what [`World::believable`] is for.

mod admissible;
mod checks;
mod devices;
mod flavors;
mod gangs;
mod identity;
mod in_time;
mod leadership;
mod liveness;
mod nodes;
mod pods;
mod prebuilt;
mod preemption;
mod quota;
mod reasons;
mod running;
mod slices;
mod told;
mod topology;
mod tree;

use std::collections::BTreeMap;

pub use devices::Holding;
pub use quota::FOREIGN_CONDITION;

use super::world::{PROGRAMS, World, Write};

/// A rule over one write; the world has already taken the write in.
type Rule = fn(&World, &Write) -> Result<(), String>;

/// Every safety rule, by the name under which a violation is reported.
const SAFETY: &[(&str, Rule)] = &[
    ("quota is reserved within the rules of the cohort", quota::within_limits),
    ("assigned flavors suit the pods", flavors::assigned_flavors_suit),
    ("an admission leaves nothing out", flavors::admissions_are_whole),
    ("every check is passed before admission", checks::passed_before_admission),
    ("what a check has said is kept", checks::answers_are_kept),
    ("nodes are there when their check says so", checks::nodes_are_there),
    ("no node is promised twice", topology::promised_once),
    ("pods are bound where they were promised to", topology::bound_as_promised),
    ("gates open after admission", pods::gates_open_after_admission),
    ("a workload's conditions are consistent", quota::conditions_agree),
    ("only workloads that policy allows are preempted", quota::victims_allowed),
    ("conditions of others are kept", quota::foreign_conditions_kept),
    ("a finished workload is not admitted again", quota::finished_stays_finished),
    ("a stopped queue admits nothing", quota::stopped_admits_nothing),
    ("a workload is finished when its job has ended", running::finished_after_the_end),
    ("nothing managed is released without admission", running::released_after_admission),
    ("nothing managed is bound without admission, nor more than granted", running::bound_within_grant),
    ("pods of elastic jobs are let go within what their slices were granted", slices::opened_within_grant),
    ("an elastic job whose slice stays is not stopped", slices::stopped_for_a_reason),
    ("a Workload that a job names is not deleted", prebuilt::never_deleted),
    ("a job that names a Workload starts with that one", prebuilt::starts_with_its_own),
    ("binds do not over-commit a node", nodes::capacity),
    ("binds respect taints and cordons", nodes::repelled),
    ("the plan is durable before the first bind", gangs::planned_before_bound),
    ("a write names the object it means", identity::named),
    ("a job has one Workload at a time", identity::one_workload_each),
    ("queues tell of nothing below nothing", quota::told_from_nothing_up),
    ("nothing is written without the lease", leadership::writer_holds_lease),
];

/// The rule about who is preempted for whom.
const PREEMPTION_RULE: &str = "preemption makes room for somebody, and no more than needed";

/// What programs write for so long while nobody else writes anything, they write for each other, or for nothing.
const AMONG_THEMSELVES: i64 = 60_000;

/// An episode has a few thousand writes. So many at one instant are a circle in which time cannot go on.
const MOST_AT_ONCE: u64 = 5_000;

/// A rule that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// When, in milliseconds of virtual time.
    pub at: i64,
    /// The rule's name.
    pub rule: &'static str,
    /// What was seen.
    pub what: String,
}

/// Watches an episode.
#[derive(Debug, Default)]
pub struct Checker {
    world: World,
    recent: liveness::Activity,
    preemptions: preemption::Preemptions,
    drained: in_time::Drained,
    deactivated: in_time::Deactivated,
    violations: Vec<Violation>,
    checked: u64,
    at_once: u64,
    changed: i64,
    changed_by_others: i64,
}

impl Checker {
    /// Takes a committed write in and checks every safety rule.
    pub fn observe(&mut self, write: &Write) {
        self.at_once = if write.at == self.world.now { self.at_once + 1 } else { 0 };
        self.world.apply(write);
        self.recent.count(write);
        if let Err(what) = self.preemptions.observe(&self.world, write) {
            self.violations.push(Violation { at: write.at, rule: PREEMPTION_RULE, what });
        }
        self.checked += 1;
        if !matches!(write.resource.as_str(), "leases.coordination.k8s.io" | "events") {
            self.changed = write.at;
            if !PROGRAMS.iter().any(|program| write.writer.starts_with(program)) {
                self.changed_by_others = write.at;
            }
        }
        for (rule, holds) in SAFETY {
            if let Err(what) = holds(&self.world, write) {
                self.violations.push(Violation { at: write.at, rule, what });
            }
        }
    }

    /// A program is killed in the middle of what it does.
    pub fn killed(&mut self, writer: &str) {
        self.preemptions.killed(writer);
    }

    /// Whether programs answer each other without end, so that the episode must be broken off.
    pub fn is_in_a_circle(&mut self) -> bool {
        let circle = self.at_once == MOST_AT_ONCE;
        if circle {
            let what = format!("{MOST_AT_ONCE} writes at one instant");
            self.violations.push(Violation { at: self.world.now, rule: liveness::CIRCLE_RULE, what });
        }
        circle
    }

    /// An episode ends that never became quiet: was there anybody but the programs who wrote?
    pub fn never_quiet(&mut self, now: i64) {
        if now - self.changed_by_others > AMONG_THEMSELVES {
            let what =
                format!("programs write, {} s after anybody else", (now - self.changed_by_others) / 1000);
            self.violations.push(Violation { at: now, rule: liveness::CIRCLE_RULE, what });
        }
    }

    /// Checks what the containers that run now hold. `ill` has the devices that are broken, and since when.
    pub fn containers(&mut self, now: i64, holdings: &[Holding], ill: &BTreeMap<String, i64>) {
        if let Some((rule, what)) = devices::broken_rule(holdings, ill) {
            self.violations.push(Violation { at: now, rule, what });
        }
    }

    /// Checks what must have happened by now.
    pub fn audit(&mut self, now: i64) {
        if let Err(what) = self.preemptions.judge(&self.world, now) {
            self.violations.push(Violation { at: now, rule: PREEMPTION_RULE, what });
        }
        if let Err(what) = in_time::suspended_in_time(&self.world) {
            self.violations.push(Violation { at: now, rule: "an evicted job is suspended", what });
        }
        if let Err(what) = in_time::leave_in_time(&self.world) {
            self.violations.push(Violation { at: now, rule: "pods of an evicted Workload leave", what });
        }
        if let Err(what) = self.drained.look(&self.world) {
            self.violations.push(Violation { at: now, rule: "a drained queue is empty", what });
        }
        if let Err(what) = self.deactivated.look(&self.world) {
            self.violations.push(Violation { at: now, rule: "who is deactivated is not admitted", what });
        }
    }

    /// Checks, when faults have stopped and everything had time to settle, that whatever could happen has happened.
    pub fn at_rest(&mut self, now: i64) {
        self.world.now = now;
        for (rule, holds) in liveness::RULES {
            if let Err(what) = holds(&self.world, &self.recent) {
                self.violations.push(Violation { at: now, rule, what });
            }
        }
    }

    /// A program panicked, or ended although nobody asked it to.
    pub fn program_failed(&mut self, what: String) {
        self.violations.push(Violation { at: self.world.now, rule: "programs go on", what });
    }

    /// What did not hold so far.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// How many writes were checked.
    pub fn checked(&self) -> u64 {
        self.checked
    }

    /// When anything was last written but leases and events, in milliseconds of virtual time.
    pub fn changed(&self) -> i64 {
        self.changed
    }

    /// The world as last seen.
    pub fn world(&self) -> &World {
        &self.world
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn programs_that_write_long_after_everybody_else_are_seen() {
        for (writer, is_fine) in [("user", true), ("admission-controller/a", false)] {
            let mut checker = Checker::default();
            let object = json!({ "metadata": { "name": "q" } });
            let write = Write::by_a_replica(AMONG_THEMSELVES + 1, "clusterqueues", None, object);
            checker.observe(&Write { writer: writer.into(), ..write });
            checker.never_quiet(AMONG_THEMSELVES + 1);
            assert_eq!(checker.violations().is_empty(), is_fine, "{writer}");
        }
    }
}
