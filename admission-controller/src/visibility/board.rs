//! The lists of who waits, kept for a while.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use quota_engine::{ClusterQueueName, Engine, Uid, Waiting};
use tokio::time::Instant;

use super::{Answer, Metadata, Owner, PendingWorkload, Question, QueueRef};

/// A list is shown for as long as this for each workload in it, before it is made anew: so that, however often is asked,
/// making lists (about 0.3 µs a workload) takes a twentieth of the time of the task that decides.
const AGE_OF_EACH: Duration = Duration::from_micros(6);

/// The lists as they were made last, by ClusterQueue. Belongs to the task that owns the engine.
#[derive(Debug, Default)]
pub(crate) struct Board(BTreeMap<ClusterQueueName, List>);

#[derive(Debug)]
struct List {
    made: Instant,
    waiting: Arc<[Waiting]>,
}

impl List {
    fn is_fresh(&self, now: Instant) -> bool {
        let age = AGE_OF_EACH.saturating_mul(u32::try_from(self.waiting.len()).unwrap_or(u32::MAX));
        now.saturating_duration_since(self.made) < age
    }
}

impl Board {
    /// Answers from the engine; `origin` says of a workload when it was made, and for whom.
    pub(crate) fn answer(
        &mut self,
        question: &Question,
        engine: &Engine,
        now: Instant,
        origin: impl Fn(&Uid) -> Option<ObjectMeta>,
    ) -> Answer {
        let cluster_queue = match &question.queue {
            QueueRef::Cluster(name) => Some(name),
            QueueRef::Local(key) => engine.cluster_queue_of_local_queue(key),
        };
        let Some(cluster_queue) = cluster_queue else { return Answer::NoSuchQueue };
        let all = match (self.list(engine, cluster_queue, now), &question.queue) {
            (Some(all), _) => all,
            (None, QueueRef::Cluster(_)) => return Answer::NoSuchQueue,
            (None, QueueRef::Local(_)) => return Answer::Waiting(Vec::new()),
        };
        let asked_for = |one: &&(usize, &Waiting)| match &question.queue {
            QueueRef::Cluster(_) => true,
            QueueRef::Local(key) => one.1.namespace == key.namespace && one.1.local_queue == key.name,
        };
        let shown = all.iter().enumerate().filter(|one| asked_for(&one)).skip(question.offset);
        Answer::Waiting(
            shown.take(question.limit).map(|(at, one)| pending(at, one, origin(&one.uid))).collect(),
        )
    }

    fn list(&mut self, engine: &Engine, name: &ClusterQueueName, now: Instant) -> Option<Arc<[Waiting]>> {
        self.0.retain(|_, list| list.is_fresh(now));
        if let Some(list) = self.0.get(name) {
            return Some(list.waiting.clone());
        }
        let waiting: Arc<[Waiting]> = engine.line_of(name)?.into();
        self.0.insert(name.clone(), List { made: now, waiting: waiting.clone() });
        Some(waiting)
    }
}

fn pending(position: usize, one: &Waiting, origin: Option<ObjectMeta>) -> PendingWorkload {
    let metadata = origin.unwrap_or_default();
    PendingWorkload {
        metadata: Metadata {
            name: one.name.clone(),
            namespace: one.namespace.clone(),
            creation_timestamp: metadata.creation_timestamp,
            owner_references: metadata
                .owner_references
                .into_iter()
                .flatten()
                .map(|owner| Owner {
                    api_version: owner.api_version,
                    kind: owner.kind,
                    name: owner.name,
                    uid: owner.uid,
                })
                .collect(),
        },
        priority: one.priority,
        local_queue_name: one.local_queue.clone(),
        position_in_cluster_queue: position,
        position_in_local_queue: one.position_in_local_queue,
    }
}
