use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::case::{Case, Verdict};

/// What came of one case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As the peer.
    Passed,
    /// Otherwise, and how.
    Failed(String),
    /// No runner knows its test.
    Skipped,
}

/// How many of a family went how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Family {
    /// As the peer.
    pub passed: usize,
    /// Otherwise.
    pub failed: usize,
    /// Not run.
    pub skipped: usize,
}

/// What came of all cases, in their order.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// File, case, and what came of it.
    pub outcomes: Vec<(String, String, Outcome)>,
}

impl Report {
    /// Runs every case; `None` is a case that nobody can run. A runner that panics has failed.
    pub fn of(cases: &[Case], run: impl Fn(&Case) -> Option<Verdict>) -> Self {
        let outcomes = cases.iter().map(|case| {
            let outcome = match catch_unwind(AssertUnwindSafe(|| run(case))) {
                Ok(None) => Outcome::Skipped,
                Ok(Some(Ok(()))) => Outcome::Passed,
                Ok(Some(Err(difference))) => Outcome::Failed(difference),
                Err(_) => Outcome::Failed("the runner panicked".to_owned()),
            };
            (case.file.clone(), case.name.clone(), outcome)
        });
        Self { outcomes: outcomes.collect() }
    }

    /// The counts of each family.
    pub fn families(&self) -> BTreeMap<&str, Family> {
        let mut families: BTreeMap<&str, Family> = BTreeMap::new();
        for (file, _, outcome) in &self.outcomes {
            families.entry(file.split('.').next().unwrap_or_default()).or_default().count(outcome);
        }
        families
    }

    /// The counts of all.
    pub fn total(&self) -> Family {
        let mut total = Family::default();
        self.outcomes.iter().for_each(|(_, _, outcome)| total.count(outcome));
        total
    }
}

impl Family {
    fn count(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Passed => self.passed += 1,
            Outcome::Failed(_) => self.failed += 1,
            Outcome::Skipped => self.skipped += 1,
        }
    }
}
