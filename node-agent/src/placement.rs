//! Whom a call of the kubelet is for, and what a scheduler chose for him.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crds::names::trireme::DEVICES;
use crds::view::Pod;
use futures::StreamExt;
use kit::Context;
use kit::watch::Change;
use kube::api::{Api, ListParams};
use kube::runtime::watcher;
use proto::podresources::ListPodResourcesRequest;
use proto::podresources::pod_resources_lister_client::PodResourcesListerClient;
use proto::sockets::Sockets;

use crate::allocation::{self, Held, PendingPod, PreferredError, Wish};
use crate::inventory::Inventory;
use crate::metrics::{Metrics, Source};

/// Pods that ended, remembered as long as a list may be on its way: twice what a node runs by default (110).
const MAX_ENDED: usize = 256;

/// The pods of this node that a scheduler chose devices for, and the kubelet's word on who holds what.
pub(crate) struct Placement {
    pods: Api<Pod>,
    node: String,
    sockets: Sockets,
    pod_resources: PathBuf,
    wait: Duration,
    metrics: Metrics,
    known: Mutex<Known>,
}

/// One container's question.
pub(crate) struct Question<'a> {
    pub(crate) resource: &'a str,
    pub(crate) available: BTreeSet<u32>,
    pub(crate) must_include: BTreeSet<u32>,
    pub(crate) size: usize,
    pub(crate) inventory: &'a Inventory,
}

impl Placement {
    pub(crate) fn new(
        ctx: &Context,
        node: String,
        (sockets, pod_resources): (Sockets, PathBuf),
        wait: Duration,
        metrics: Metrics,
    ) -> Self {
        let pods = Api::all(ctx.clients.watch.clone());
        Self { pods, node, sockets, pod_resources, wait, metrics, known: Mutex::default() }
    }

    fn selector(&self) -> String {
        format!("spec.nodeName={}", self.node)
    }

    /// Follows the pods of this node until the context stops.
    pub(crate) async fn follow(self: Arc<Self>, ctx: Context) {
        let config = watcher::Config::default().fields(&self.selector());
        let mut changes = std::pin::pin!(kit::watch::watch(&ctx, self.pods.clone(), config));
        let mut listed = None;
        loop {
            let change = tokio::select! {
                biased;
                () = ctx.tasks.stopping() => return,
                change = changes.next() => change,
            };
            match (change, &mut listed) {
                (None, _) => return,
                (Some(Change::Restarted), listed) => *listed = Some(Vec::new()),
                (Some(Change::Synced), listed) => self.known().replace(listed.take().unwrap_or_default()),
                (Some(Change::Applied(pod)), Some(listed)) => listed.push(pod),
                (Some(Change::Applied(pod)), None) => self.known().apply(&pod),
                (Some(Change::Deleted(pod)), _) => self.known().end(uid(&pod)),
            }
        }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The devices for a question: a scheduler's choice if there is one that fits, after a short wait for a pod that the
    /// watch may not have shown yet; else the agent's own best set, out of what no other pod is waiting for if that is
    /// enough.
    pub(crate) async fn choose(&self, question: &Question<'_>) -> Result<Vec<u32>, PreferredError> {
        let fits = |wishes: &[Wish]| {
            let Question { available, must_include, size, .. } = question;
            allocation::choose(wishes, available, must_include, *size).map(|wish| wish.indices.clone())
        };
        let mut wishes = self.wishes(question).await;
        let mut chosen = fits(&wishes);
        if chosen.is_none() {
            self.list().await;
            // Asked anew in any case: the watch may have shown the pod while the list was on its way.
            wishes = self.wishes(question).await;
            chosen = fits(&wishes);
        }
        if let Some(indices) = chosen {
            self.metrics.chosen(Source::Scheduler);
            return Ok(indices.into_iter().collect());
        }
        self.metrics.chosen(Source::Agent);
        let awaited = allocation::awaited(&wishes, &question.available);
        let free: BTreeSet<u32> = question
            .available
            .iter()
            .copied()
            .filter(|index| !awaited.contains(index) || question.must_include.contains(index))
            .collect();
        let out_of = if free.len() < question.size { &question.available } else { &free };
        allocation::preferred(out_of, &question.must_include, question.size, question.inventory.links())
    }

    /// What the pods that are known wish for and do not hold yet.
    async fn wishes(&self, question: &Question<'_>) -> Vec<Wish> {
        let pods: Vec<PendingPod> = self.known().pods.values().cloned().collect();
        if pods.is_empty() {
            return Vec::new();
        }
        let held = self.held(question).await;
        allocation::wishes(&pods, question.resource, &held)
    }

    /// Asks the API server for the pods of this node, once, and not for long.
    async fn list(&self) {
        let parameters = ListParams::default().fields(&self.selector());
        match tokio::time::timeout(self.wait, self.pods.list(&parameters)).await {
            Ok(Ok(list)) => self.known().add(&list.items),
            Ok(Err(error)) => {
                self.metrics.failed("list_pods");
                tracing::warn!(%error, "the pods of this node cannot be listed; the agent chooses devices itself");
            }
            Err(_) => {
                self.metrics.failed("list_pods");
                tracing::warn!(
                    wait_ms = self.wait.as_millis(),
                    "listing the pods of this node takes too long; the agent chooses devices itself"
                );
            }
        }
    }

    /// Who holds what of a resource, by the kubelet's word. Nobody, when it cannot be asked: a choice then rests on what
    /// is available alone.
    async fn held(&self, question: &Question<'_>) -> Held {
        let answer = tokio::time::timeout(self.wait, self.ask_pod_resources(question)).await;
        answer.unwrap_or_else(|_| Err("no answer in time".to_owned())).unwrap_or_else(|error| {
            self.metrics.failed("pod_resources");
            tracing::debug!(error, "the kubelet does not say who holds which devices");
            Held::new()
        })
    }

    async fn ask_pod_resources(&self, question: &Question<'_>) -> Result<Held, String> {
        let channel = self.sockets.connect(&self.pod_resources).await.map_err(|error| error.to_string())?;
        let answer = PodResourcesListerClient::new(channel)
            .list(ListPodResourcesRequest {})
            .await
            .map_err(|status| status.to_string())?;
        let mut held = Held::new();
        for pod in answer.into_inner().pod_resources {
            for container in pod.containers {
                let ids = container
                    .devices
                    .iter()
                    .filter(|devices| devices.resource_name == question.resource)
                    .flat_map(|devices| &devices.device_ids);
                let indices: BTreeSet<u32> = ids
                    .filter_map(|id| question.inventory.by_id(id))
                    .map(|device| device.gpu.index)
                    .collect();
                if !indices.is_empty() {
                    held.insert((pod.namespace.clone(), pod.name.clone(), container.name), indices);
                }
            }
        }
        Ok(held)
    }
}

/// The pods of this node that a scheduler chose devices for and that have not ended.
#[derive(Default)]
struct Known {
    pods: BTreeMap<String, PendingPod>,
    /// Pods that ended lately: a list that was made before must not bring them back.
    ended: VecDeque<String>,
}

impl Known {
    /// Takes in a whole list of the watch.
    fn replace(&mut self, listed: Vec<Pod>) {
        self.pods.clear();
        listed.iter().for_each(|pod| self.apply(pod));
    }

    /// Takes in what the watch shows.
    fn apply(&mut self, pod: &Pod) {
        if matches!(pod.status.phase.as_str(), "Succeeded" | "Failed") {
            return self.end(uid(pod));
        }
        match pending(pod) {
            Some(pending) => {
                self.pods.insert(uid(pod).to_owned(), pending);
            }
            None => {
                self.pods.remove(uid(pod));
            }
        }
    }

    /// Takes in a list made beside the watch, which may be older or newer: it only adds.
    fn add(&mut self, listed: &[Pod]) {
        for pod in listed {
            if !self.pods.contains_key(uid(pod)) && !self.ended.iter().any(|ended| ended == uid(pod)) {
                self.apply(pod);
            }
        }
    }

    fn end(&mut self, uid: &str) {
        self.pods.remove(uid);
        if !self.ended.iter().any(|ended| ended == uid) {
            self.ended.push_back(uid.to_owned());
        }
        if self.ended.len() > MAX_ENDED {
            self.ended.pop_front();
        }
    }
}

fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

fn pending(pod: &Pod) -> Option<PendingPod> {
    let (metadata, spec) = (&pod.metadata, &pod.spec);
    let text = metadata.annotations.as_ref()?.get(DEVICES)?;
    let name = (metadata.namespace.clone()?, metadata.name.clone()?);
    let chosen = match allocation::parse_devices_annotation(text) {
        Ok(chosen) => chosen,
        Err(error) => {
            tracing::warn!(
                namespace = name.0,
                pod = name.1,
                error,
                "the agent chooses this pod's devices itself"
            );
            return None;
        }
    };
    let containers = spec.init_containers.iter().chain(&spec.containers);
    Some(PendingPod {
        name,
        uid: metadata.uid.clone()?,
        created: metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
        containers: containers.map(|container| container.name.clone()).collect(),
        chosen,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(uid: &str, phase: &str) -> Pod {
        let value = serde_json::json!({
            "metadata": {
                "name": uid, "namespace": "ns", "uid": uid,
                "annotations": { DEVICES: r#"{"main": {"nvidia.com/gpu": [0]}}"# },
            },
            "spec": { "containers": [{ "name": "main" }] },
            "status": { "phase": phase },
        });
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn an_old_list_brings_nothing_back() {
        let mut known = Known::default();
        let names = |known: &Known| known.pods.keys().cloned().collect::<Vec<_>>();
        known.replace(vec![pod("a", "Running"), pod("b", "Pending"), pod("c", "Failed")]);
        assert_eq!(names(&known), ["a", "b"]);
        known.apply(&pod("a", "Succeeded"));
        known.end("b");
        known.add(&[pod("a", "Running"), pod("b", "Pending"), pod("c", "Running"), pod("d", "Pending")]);
        assert_eq!(names(&known), ["d"]);
        let mut plain = pod("d", "Pending");
        plain.metadata.annotations = None;
        known.apply(&plain);
        assert_eq!(names(&known), [""; 0]);
        (0..1000).for_each(|at| known.end(&at.to_string()));
        assert_eq!(known.ended.len(), MAX_ENDED);
    }
}
