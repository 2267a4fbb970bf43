//! Whom a call of the kubelet is for, and what a scheduler chose for him.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crds::names::trireme::DEVICES;
use crds::reasons::gpu::INVALID_DEVICES;
use crds::view::Pod;
use futures::StreamExt;
use kit::Context;
use kit::events::{Event, Events, Regarding, Severity};
use kit::watch::{Change, Reports, Watch};
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
    events: Events,
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
        (metrics, events): (Metrics, Events),
    ) -> Self {
        let pods = Api::all(ctx.clients.watch.clone());
        Self { pods, node, sockets, pod_resources, wait, metrics, events, known: Mutex::default() }
    }

    fn selector(&self) -> String {
        format!("spec.nodeName={}", self.node)
    }

    /// Follows the pods of this node until the context stops.
    pub(crate) async fn follow(self: Arc<Self>, ctx: Context, reports: Reports) {
        let config = watcher::Config::default().fields(&self.selector());
        let watch = Watch::new(&ctx, self.pods.clone(), config).reports(&reports);
        let mut changes = std::pin::pin!(watch.stream());
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
                (Some(Change::Synced { .. }), listed) => {
                    let mistakes = self.known().replace(&listed.take().unwrap_or_default());
                    self.tell(mistakes);
                }
                (Some(Change::Applied(pod)), Some(listed)) => listed.push(pod),
                (Some(Change::Applied(pod)), None) => {
                    let mistake = self.known().apply(&pod);
                    self.tell(mistake);
                }
                (Some(Change::Deleted(pod)), _) => self.known().end(uid(&pod)),
            }
        }
    }

    /// Tells the owners of pods what is wrong with them.
    fn tell(&self, mistakes: impl IntoIterator<Item = Event>) {
        mistakes.into_iter().for_each(|event| self.events.publish(event));
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
        let pods: Vec<PendingPod> = self.known().wishing().cloned().collect();
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
            Ok(Ok(list)) => {
                let mistakes = self.known().add(&list.items);
                self.tell(mistakes);
            }
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
    /// By uid; or what is wrong with the choice, so that it is said once.
    pods: BTreeMap<String, Result<PendingPod, String>>,
    /// Pods that ended lately: a list that was made before must not bring them back.
    ended: VecDeque<String>,
}

impl Known {
    /// The pods whose devices were chosen.
    fn wishing(&self) -> impl Iterator<Item = &PendingPod> {
        self.pods.values().flatten()
    }

    /// Takes in a whole list of the watch. Returns what is to be told of mistakes in it; so do the next two.
    fn replace(&mut self, listed: &[Pod]) -> Vec<Event> {
        let there: BTreeSet<&str> = listed.iter().map(uid).collect();
        self.pods.retain(|uid, _| there.contains(uid.as_str()));
        listed.iter().filter_map(|pod| self.apply(pod)).collect()
    }

    /// Takes in what the watch shows.
    fn apply(&mut self, pod: &Pod) -> Option<Event> {
        if matches!(pod.status.phase.as_str(), "Succeeded" | "Failed") {
            self.end(uid(pod));
            return None;
        }
        let Some(pending) = pending(pod) else {
            self.pods.remove(uid(pod));
            return None;
        };
        let mistake = pending.as_ref().err().cloned();
        let before = self.pods.insert(uid(pod).to_owned(), pending);
        let known = before.and_then(Result::err);
        mistake.filter(|mistake| known.as_ref() != Some(mistake)).map(|mistake| invalid(pod, &mistake))
    }

    /// Takes in a list made beside the watch, which may be older or newer: it only adds.
    fn add(&mut self, listed: &[Pod]) -> Vec<Event> {
        let mut mistakes = Vec::new();
        for pod in listed {
            if !self.pods.contains_key(uid(pod)) && !self.ended.iter().any(|ended| ended == uid(pod)) {
                mistakes.extend(self.apply(pod));
            }
        }
        mistakes
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

/// What a user reads on a pod whose choice of devices means nothing.
fn invalid(pod: &Pod, mistake: &str) -> Event {
    let metadata = &pod.metadata;
    let regarding = Regarding {
        api_version: "v1".into(),
        kind: "Pod".into(),
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
        uid: uid(pod).to_owned(),
    };
    Event {
        regarding,
        severity: Severity::Warning,
        reason: INVALID_DEVICES.into(),
        note: format!("{mistake}; the agent chooses this pod's devices itself"),
    }
}

/// What a pod wishes for, or what is wrong with its wish; none if it has none.
fn pending(pod: &Pod) -> Option<Result<PendingPod, String>> {
    let (metadata, spec) = (&pod.metadata, &pod.spec);
    let text = metadata.annotations.as_ref()?.get(DEVICES)?;
    let name = (metadata.namespace.clone()?, metadata.name.clone()?);
    let chosen = match allocation::parse_devices_annotation(text) {
        Ok(chosen) => chosen,
        Err(mistake) => return Some(Err(mistake)),
    };
    let containers = spec.init_containers.iter().chain(&spec.containers);
    Some(Ok(PendingPod {
        name,
        uid: metadata.uid.clone()?,
        created: metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
        containers: containers.map(|container| container.name.clone()).collect(),
        chosen,
    }))
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
        known.replace(&[pod("a", "Running"), pod("b", "Pending"), pod("c", "Failed")]);
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

    #[test]
    fn a_mistake_is_told_once_and_again_when_it_is_another() {
        let wrong = |text: &str| {
            let mut pod = pod("a", "Pending");
            pod.metadata.annotations = Some([(DEVICES.to_owned(), text.to_owned())].into());
            pod
        };
        let mut known = Known::default();
        let event = known.apply(&wrong("[0]")).unwrap();
        assert_eq!((event.reason.as_ref(), event.severity), (INVALID_DEVICES, Severity::Warning));
        assert_eq!((event.regarding.kind.as_ref(), event.regarding.uid.as_str()), ("Pod", "a"));
        assert!(event.note.contains("trireme.dev/devices"), "{}", event.note);
        assert_eq!(known.wishing().count(), 0);
        assert_eq!(known.apply(&wrong("[0]")), None);
        assert_eq!(known.replace(&[wrong("[0]")]), []);
        assert_eq!(known.add(&[wrong("[0]")]), []);
        assert!(known.apply(&wrong("nothing")).is_some());
        assert_eq!(known.apply(&pod("a", "Pending")), None);
        assert_eq!(known.wishing().count(), 1);
        assert_eq!(known.replace(&[wrong("[0]")]).len(), 1);
    }
}
