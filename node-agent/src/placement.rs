//! Whom a call of the kubelet is for, and what a scheduler chose for him.

use std::collections::{BTreeMap, BTreeSet};
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

/// The pods of this node that a scheduler chose devices for, and the kubelet's word on who holds what.
pub(crate) struct Placement {
    pods: Api<Pod>,
    node: String,
    sockets: Sockets,
    pod_resources: PathBuf,
    wait: Duration,
    metrics: Metrics,
    known: Mutex<BTreeMap<String, PendingPod>>,
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
        let mut listed = BTreeMap::new();
        let mut listing = false;
        loop {
            let change = tokio::select! {
                biased;
                () = ctx.tasks.stopping() => return,
                change = changes.next() => change,
            };
            match change {
                None => return,
                Some(Change::Restarted) => {
                    listed.clear();
                    listing = true;
                }
                Some(Change::Synced) => {
                    *self.known() = std::mem::take(&mut listed);
                    listing = false;
                }
                Some(Change::Applied(pod)) if listing => keep(&mut listed, &pod),
                Some(Change::Applied(pod)) => keep(&mut self.known(), &pod),
                Some(Change::Deleted(pod)) => {
                    self.known().remove(pod.metadata.uid.as_deref().unwrap_or_default());
                }
            }
        }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, PendingPod>> {
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
        if chosen.is_none() && self.list().await {
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
        let pods: Vec<PendingPod> = self.known().values().cloned().collect();
        if pods.is_empty() {
            return Vec::new();
        }
        let held = self.held(question).await;
        allocation::wishes(&pods, question.resource, &held)
    }

    /// Asks the API server for the pods of this node, once, and not for long. Whether there was anything new.
    async fn list(&self) -> bool {
        let parameters = ListParams::default().fields(&self.selector());
        match tokio::time::timeout(self.wait, self.pods.list(&parameters)).await {
            Ok(Ok(list)) => {
                let mut listed = BTreeMap::new();
                list.items.iter().for_each(|pod| keep(&mut listed, pod));
                let mut known = self.known();
                let news = listed != *known;
                *known = listed;
                news
            }
            Ok(Err(error)) => {
                self.metrics.failed("list_pods");
                tracing::warn!(%error, "the pods of this node cannot be listed; the agent chooses devices itself");
                false
            }
            Err(_) => {
                self.metrics.failed("list_pods");
                tracing::warn!(
                    wait_ms = self.wait.as_millis(),
                    "listing the pods of this node takes too long; the agent chooses devices itself"
                );
                false
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

/// Keeps a pod that a scheduler chose devices for, forgets one that has ended.
fn keep(pods: &mut BTreeMap<String, PendingPod>, pod: &Pod) {
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    let ended = matches!(pod.status.phase.as_str(), "Succeeded" | "Failed");
    match pending(pod) {
        Some(pending) if !ended => {
            pods.insert(uid, pending);
        }
        _ => {
            pods.remove(&uid);
        }
    }
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
