//! Differences, as a table and as metrics.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::{Output, Summary};

/// So many differences are kept for the page.
const KEPT: usize = 1_000;

/// What two opinions are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Question {
    /// Whether a workload is admitted, and with which flavors.
    Admission,
    /// Whether a workload is evicted, and why.
    Eviction,
    /// Where its pods go.
    Placement,
    /// Why a workload waits.
    Reason,
}

impl Question {
    fn word(self) -> &'static str {
        match self {
            Self::Admission => "admission",
            Self::Eviction => "eviction",
            Self::Placement => "placement",
            Self::Reason => "reason",
        }
    }
}

/// A decision that differs, with both reasons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// When that was clear.
    pub at: Timestamp,
    /// What it is about.
    pub question: Question,
    /// Namespace and name of the Workload.
    pub workload: String,
    /// What this program would do, or why it would not.
    pub ours: String,
    /// What Kueue does, or why it does not.
    pub theirs: String,
}

/// Rows as they are found, and the last ones of them for the page. Cheap to clone.
#[derive(Clone)]
pub(super) struct Table(Arc<Mutex<Inner>>);

struct Inner {
    output: Output,
    kept: VecDeque<String>,
    /// Nobody reads any more.
    closed: bool,
}

const HEAD: [&str; 5] = ["TIME", "DECISION", "WORKLOAD", "HERE", "KUEUE"];

fn row(cells: [&str; 5]) -> String {
    let [time, question, workload, ours, theirs] = cells;
    format!("{time:<20}  {question:<9}  {workload:<40}  {ours:<60}  {theirs}\n")
}

impl Table {
    pub(super) fn new(output: Output) -> Self {
        let table = Self(Arc::new(Mutex::new(Inner { output, kept: VecDeque::new(), closed: false })));
        table.write(&row(HEAD));
        table
    }

    fn write(&self, row: &str) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !inner.closed {
            inner.closed =
                inner.output.write_all(row.as_bytes()).and_then(|()| inner.output.flush()).is_err();
        }
    }

    fn add(&self, difference: &Difference) {
        let time = difference.at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        // Names and sentences come from the cluster: a row stays one row.
        let clean = |text: &str| text.replace(|letter: char| letter.is_control(), " ");
        let row = row([
            &time,
            difference.question.word(),
            &clean(&difference.workload),
            &clean(&difference.ours),
            &clean(&difference.theirs),
        ]);
        self.write(&row);
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.kept.len() == KEPT {
            inner.kept.pop_front();
        }
        inner.kept.push_back(row);
    }

    /// The newest rows, as text.
    pub(super) fn page(&self) -> String {
        let inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::iter::once(row(HEAD)).chain(inner.kept.iter().cloned()).collect()
    }
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Labels {
    decision: &'static str,
    result: &'static str,
}

/// Counts what was compared and tells what differs.
pub(super) struct Report {
    table: Table,
    compared: Family<Labels, Counter>,
    summary: Summary,
}

impl Report {
    pub(super) fn new(table: Table) -> Self {
        Self { table, compared: Family::default(), summary: Summary::default() }
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        let help = "Decisions of Kueue's that were compared with this program's";
        registry.register("shadow_decisions", help, self.compared.clone());
    }

    pub(super) fn same(&mut self, question: Question) {
        self.summary.same += 1;
        self.count(question, "same");
    }

    pub(super) fn differs(&mut self, difference: &Difference) {
        self.summary.different += 1;
        self.count(difference.question, "different");
        self.table.add(difference);
    }

    fn count(&self, question: Question, result: &'static str) {
        self.compared.get_or_create(&Labels { decision: question.word(), result }).inc();
    }

    pub(super) fn summary(&self) -> Summary {
        self.summary
    }
}
