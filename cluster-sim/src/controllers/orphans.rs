//! Pods of nodes that are no more: nobody else would ever end them.
//!
//! Rules: orphans of `pkg/controller/podgc` of Kubernetes, without its period of 20 seconds. Not here: the limit on ended
//! pods, nodes out of service.

use std::collections::BTreeMap;
use std::time::Duration;

use super::control::{Millis, sleep, until_stopped};
use super::disruption::{Disruption, node_of, nodes, pods, pods_of};
use crate::{Change, ChangeKind, Cluster, Store};

/// How long a node may be missing before its pods are given up (`quarantineTime`).
const QUARANTINE: Millis = 40_000;
/// When a refused deletion is tried again (`gcCheckPeriod`).
const RETRY: Millis = 20_000;
const ORPHANED: Disruption =
    Disruption { reason: "DeletionByPodGC", message: "PodGC: node no longer exists", forced: true };

/// Starts the collector.
pub(super) fn start(cluster: &Cluster) {
    let collector = Collector { store: cluster.store("pod-garbage-collector"), due: BTreeMap::new() };
    until_stopped(cluster, collector.run());
}

struct Collector {
    store: Store,
    /// Missing nodes that have pods, and when these are given up.
    due: BTreeMap<String, Millis>,
}

impl Collector {
    async fn run(mut self) {
        let (mut all_nodes, mut all_pods) = (self.store.watch(&nodes()), self.store.watch(&pods()));
        loop {
            while let Some(change) = all_nodes.try_next() {
                self.node_changed(&change);
            }
            while let Some(change) = all_pods.try_next() {
                self.pod_changed(&change);
            }
            let now = self.now();
            let next = self.due.iter().min_by_key(|(node, at)| (**at, *node));
            match next.map(|(node, at)| (node.clone(), *at)) {
                Some((node, at)) if at <= now => {
                    self.due.remove(&node);
                    self.collect(&node).await;
                }
                next => {
                    let wait = next.and_then(|(_, at)| u64::try_from(at - now).ok());
                    tokio::select! {
                        biased;
                        change = all_nodes.next() => self.node_changed(&change),
                        change = all_pods.next() => self.pod_changed(&change),
                        () = sleep(wait.map(Duration::from_millis)) => {}
                    }
                }
            }
        }
    }

    fn now(&self) -> Millis {
        self.store.cluster().clock().unix_millis()
    }

    fn node_changed(&mut self, change: &Change) {
        let name = &*change.object.key().name;
        if change.kind != ChangeKind::Deleted {
            self.due.remove(name);
        } else if !pods_of(&self.store, name).is_empty() {
            let at = self.now().saturating_add(QUARANTINE);
            self.due.insert(name.to_owned(), at);
        }
    }

    fn pod_changed(&mut self, change: &Change) {
        let node = node_of(&change.object);
        if change.kind == ChangeKind::Deleted || node.is_empty() || self.exists(node) {
            return;
        }
        let at = self.now().saturating_add(QUARANTINE);
        self.due.entry(node.to_owned()).or_insert(at);
    }

    fn exists(&self, node: &str) -> bool {
        self.store.get(&nodes(), "", node).is_some()
    }

    async fn collect(&mut self, node: &str) {
        if self.exists(node) {
            return;
        }
        for pod in pods_of(&self.store, node) {
            if let Err(error) = ORPHANED.strike(&self.store, &pod, self.now()).await {
                tracing::debug!(pod = %pod.key(), %error, "an orphaned pod cannot be deleted");
                let at = self.now().saturating_add(RETRY);
                self.due.insert(node.to_owned(), at);
            }
        }
    }
}
