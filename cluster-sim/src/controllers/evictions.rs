//! Pods leave nodes that have a `NoExecute` taint they do not tolerate, or not for longer.
//!
//! Rules: `pkg/controller/tainteviction` of Kubernetes. Not here: the taints that its node lifecycle controller puts onto
//! nodes that are not ready.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use model::node::{Taint, TaintEffect, Toleration};
use serde::Deserialize;
use serde_json::Value;

use super::control::{Millis, sleep, until_stopped};
use super::disruption::{Disruption, node_of, nodes, pods, pods_of};
use crate::{Change, ChangeKind, Cluster, Object, ObjectKey, Store};

/// When a refused deletion is tried again.
const RETRY: Millis = 1_000;
const EVICTED: Disruption = Disruption {
    reason: "DeletionByTaintManager",
    message: "Taint manager: deleting due to NoExecute taint",
    forced: false,
};

/// Starts the controller.
pub(super) fn start(cluster: &Cluster) {
    let evictor = Evictor { store: cluster.store("taint-eviction-controller"), due: BTreeMap::new() };
    until_stopped(cluster, evictor.run());
}

struct Evictor {
    store: Store,
    due: BTreeMap<ObjectKey, Eviction>,
}

/// A pod that is to leave.
struct Eviction {
    uid: Arc<str>,
    at: Millis,
}

impl Evictor {
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
            let next = self.due.iter().min_by_key(|(key, eviction)| (eviction.at, *key));
            match next.map(|(key, eviction)| (key.clone(), eviction.at)) {
                Some((key, at)) if at <= now => self.evict(&key).await,
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
        let taints = match change.kind {
            ChangeKind::Deleted => Vec::new(),
            _ => evicting(change.object.value()),
        };
        let as_before = change.previous.as_ref().is_some_and(|old| evicting(old.value()) == taints);
        if as_before || (taints.is_empty() && self.due.is_empty()) {
            return;
        }
        for pod in pods_of(&self.store, &change.object.key().name) {
            self.judge(&pod, &taints);
        }
    }

    fn pod_changed(&mut self, change: &Change) {
        let pod = &change.object;
        if change.kind == ChangeKind::Deleted || pod.is_terminating() {
            self.due.remove(pod.key());
            return;
        }
        let concerns = |pod: &Object| (pod.value()["spec"]["tolerations"].clone(), node_of(pod).to_owned());
        let as_before = change.previous.as_ref().is_some_and(|old| concerns(old) == concerns(pod));
        if as_before || node_of(pod).is_empty() {
            return;
        }
        if let Some(node) = self.store.get(&nodes(), "", node_of(pod)) {
            self.judge(pod, &evicting(node.value()));
        }
    }

    /// Whether a pod has to leave a node with these taints, and when.
    fn judge(&mut self, pod: &Object, taints: &[Taint]) {
        let tolerations =
            Vec::<Toleration>::deserialize(&pod.value()["spec"]["tolerations"]).unwrap_or_default();
        let Some(after) = tolerated_for(taints, &tolerations).filter(|_| !pod.is_terminating()) else {
            self.due.remove(pod.key());
            return;
        };
        let running = self.due.get(pod.key()).is_some_and(|eviction| eviction.uid == *pod.uid());
        // Taints that come later do not change the time that a pod has got.
        if after == 0 || !running {
            let at = self.now().saturating_add(after);
            self.due.insert(pod.key().clone(), Eviction { uid: pod.uid().clone(), at });
        }
    }

    async fn evict(&mut self, key: &ObjectKey) {
        let Some(eviction) = self.due.remove(key) else { return };
        let pod = self.store.get(&pods(), &key.namespace, &key.name);
        let Some(pod) = pod.filter(|pod| *pod.uid() == eviction.uid && !pod.is_terminating()) else { return };
        if let Err(error) = EVICTED.strike(&self.store, &pod, self.now()).await {
            tracing::debug!(pod = %key, %error, "a pod cannot be evicted");
            let at = self.now().saturating_add(RETRY);
            self.due.insert(key.clone(), Eviction { at, ..eviction });
        }
    }
}

/// The taints of a node that make pods leave.
fn evicting(node: &Value) -> Vec<Taint> {
    let taints = Vec::<Taint>::deserialize(&node["spec"]["taints"]).unwrap_or_default();
    taints.into_iter().filter(|taint| taint.effect == TaintEffect::NoExecute).collect()
}

/// For how many milliseconds all taints are tolerated; `None`: for ever. The first toleration that fits a taint counts.
fn tolerated_for(taints: &[Taint], tolerations: &[Toleration]) -> Option<Millis> {
    let mut shortest = None;
    for taint in taints {
        let Some(toleration) = tolerations.iter().find(|one| one.tolerates(taint)) else { return Some(0) };
        let limit = toleration.toleration_seconds.map(|seconds| seconds.max(0).saturating_mul(1000));
        shortest = shortest.into_iter().chain(limit).min();
    }
    shortest
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_shortest_toleration_counts() {
        let taints = evicting(&json!({ "spec": { "taints": [
            { "key": "a", "effect": "NoExecute" },
            { "key": "b", "value": "1", "effect": "NoExecute" },
            { "key": "c", "effect": "NoSchedule" },
        ] } }));
        for (tolerations, expected) in [
            (json!([]), Some(0)),
            (json!([{ "key": "a", "operator": "Exists" }]), Some(0)),
            (json!([{ "operator": "Exists" }]), None),
            (json!([{ "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5 }]), Some(5_000)),
            (
                json!([
                    { "key": "a", "operator": "Exists", "tolerationSeconds": 7 },
                    { "key": "b", "value": "1", "tolerationSeconds": 3 },
                ]),
                Some(3_000),
            ),
            (
                json!([{ "key": "a", "operator": "Exists" }, { "operator": "Exists", "tolerationSeconds": -1 }]),
                Some(0),
            ),
            (json!([{ "key": "b", "value": "2" }, { "key": "a", "operator": "Exists" }]), Some(0)),
        ] {
            let read = Vec::<Toleration>::deserialize(&tolerations).unwrap();
            assert_eq!(tolerated_for(&taints, &read), expected, "{tolerations}");
        }
        assert_eq!(tolerated_for(&[], &[]), None);
    }
}
