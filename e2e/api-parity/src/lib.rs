//! Behaviours of the Kubernetes API, each a small test, for cluster-sim and the real server.
//!
//! A [`Case`] knows nothing about the server it talks to: it gets a [`Harness`] (a client and a namespace of its own) and
//! says with an error what was not as it should be. The real kube-apiserver is the judge of the cases themselves:
//! `e2e/real/run` runs all of them there, `cargo test -p cluster-sim` runs them against the simulated server.
//! Sentences in error messages are never compared; status codes, reasons, causes and their field paths are.

mod answer;
mod harness;
mod topics;
mod watching;
mod webhook_service;

use std::future::Future;
use std::pin::Pin;

pub use answer::Answer;
pub use harness::{Harness, WebhookHost};
pub use watching::{Event, Watch};
pub use webhook_service::answer_review;

/// What a case needs beyond an API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Nothing: the API server alone.
    OnlyTheApi,
    /// The controllers of a cluster: garbage collection, namespace lifecycle, jobs, disruption budgets.
    Controllers,
    /// An API server that reaches the webhooks of [`answer_review`]; see [`WebhookHost`].
    Webhooks,
}

/// A case in progress.
type Running = Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send>>;

/// One behaviour.
#[derive(Clone, Copy)]
pub struct Case {
    /// What holds, as a function name: unique in the suite.
    pub name: &'static str,
    /// The file it stands in.
    pub topic: &'static str,
    /// What it needs beyond the API server.
    pub needs: Needs,
    run: fn(Harness) -> Running,
}

impl Case {
    /// Runs it. The error says which request was answered otherwise than expected.
    pub async fn run(&self, harness: Harness) -> anyhow::Result<()> {
        (self.run)(harness).await
    }
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}::{} ({:?})", self.topic, self.name, self.needs)
    }
}

/// Every behaviour, by topic.
pub fn cases() -> Vec<Case> {
    topics::all()
}

/// The table of a topic: its functions, and what they need.
macro_rules! topic {
    ($topic:literal, $needs:ident: $($name:ident),+ $(,)?) => {
        &[$($crate::Case {
            name: stringify!($name),
            topic: $topic,
            needs: $crate::Needs::$needs,
            run: |harness| Box::pin($name(harness)),
        }),+]
    };
}
pub(crate) use topic;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_there_are_enough_of_them() {
        let cases = super::cases();
        let names: BTreeSet<_> = cases.iter().map(|case| case.name).collect();
        assert_eq!(names.len(), cases.len());
        assert!(cases.len() >= 120, "only {} cases", cases.len());
    }
}
