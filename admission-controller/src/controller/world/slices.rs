//! Pods of elastic jobs, which wait behind a gate until their slice is admitted.

use std::collections::{BTreeMap, BTreeSet};

use crds::names::kueue;
use crds::view::placed_pod::PlacedPod;
use crds::view::workload::Workload;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kit::watch::Change;
use model::selector::Labels;
use quota_engine::Uid;

use super::{Unit, World};
use crate::controller::store::{Delta, Object, Store};
use crate::{input, slices};

/// Namespace, and what all slices of a job have in common.
type Chain = (String, String);

/// What is kept of a pod.
#[derive(Clone, Debug)]
pub(in crate::controller) struct SlicePod {
    pub(in crate::controller) uid: Uid,
    pub(in crate::controller) version: u64,
    pub(in crate::controller) namespace: String,
    pub(in crate::controller) name: String,
    /// The chain it belongs to; empty for pods of other jobs.
    chain: String,
    pub(in crate::controller) pod_set: String,
    pub(in crate::controller) gates: Vec<String>,
    pub(in crate::controller) created: Option<Time>,
    /// Of one that waits: its node selector, which stays as it is.
    pub(in crate::controller) selector: Labels,
    pub(in crate::controller) has_ended: bool,
}

impl Object for SlicePod {
    fn uid(&self) -> Uid {
        self.uid.clone()
    }
    fn version(&self) -> u64 {
        self.version
    }
}

impl SlicePod {
    fn of(pod: PlacedPod) -> Self {
        let has_ended = pod.has_ended();
        let metadata = pod.metadata;
        let (uid, version) = (input::uid(&metadata), input::version(&metadata));
        let mut labels = metadata.labels.unwrap_or_default();
        let mut annotations = metadata.annotations.unwrap_or_default();
        let chain = annotations.remove(kueue::WORKLOAD_SLICE_NAME).unwrap_or_default();
        if chain.is_empty() {
            let (namespace, name, pod_set) = <(String, String, String)>::default();
            let (gates, selector) = (Vec::new(), Labels::new());
            let created = None;
            return Self {
                uid,
                version,
                namespace,
                name,
                chain,
                pod_set,
                gates,
                created,
                selector,
                has_ended,
            };
        }
        let mut kept = Self {
            created: metadata.creation_timestamp,
            uid,
            version,
            namespace: metadata.namespace.unwrap_or_default(),
            name: metadata.name.unwrap_or_default(),
            chain,
            pod_set: labels.remove(kueue::PODSET).unwrap_or_default(),
            gates: pod.spec.scheduling_gates.into_iter().map(|gate| gate.name).collect(),
            selector: pod.spec.node_selector,
            has_ended,
        };
        if !kept.is_gated() {
            kept.selector = Labels::new();
        }
        kept
    }

    /// Whether it waits for its slice.
    pub(in crate::controller) fn is_gated(&self) -> bool {
        self.gates.iter().any(|gate| gate == kueue::ELASTIC_GATE)
    }

    fn key(&self) -> Option<Chain> {
        (!self.chain.is_empty()).then(|| (self.namespace.clone(), self.chain.clone()))
    }
}

/// Pods of elastic jobs by their chains.
#[derive(Default)]
pub(in crate::controller) struct SlicePods {
    pods: Store<SlicePod>,
    by_chain: BTreeMap<Chain, BTreeSet<Uid>>,
    jobs: BTreeMap<Chain, Uid>,
    /// Whether there has been an elastic job: before that their pods are of no concern.
    pub(in crate::controller) wanted: bool,
}

impl World {
    /// Takes note of a slice of this job.
    pub(super) fn slice_seen(&mut self, view: &Workload, job: &Uid) {
        let namespace = view.metadata.namespace.clone().unwrap_or_default();
        self.slice_pods.jobs.insert((namespace, slices::chain(view).to_owned()), job.clone());
        self.slice_pods.wanted = true;
    }

    /// The elastic job whose slices have this name in common.
    pub(super) fn job_of_chain(&self, chain: &Chain) -> Option<&Uid> {
        self.slice_pods.jobs.get(chain)
    }

    /// A job is gone, and its pods go with it. With Workloads still there it may be its kind that is not served for a moment; or
    /// they are to go, too, and the last of them is heard of later.
    pub(super) fn forget_slices(&mut self, job: &Uid) {
        if self.uids_of(job, None).next().is_none() {
            self.slice_pods.jobs.retain(|_, of| of != job);
        }
    }

    pub(super) fn take_slice_pods(&mut self, change: Change<PlacedPod>) {
        let was_synced = self.slice_pods.pods.is_synced();
        for delta in self.slice_pods.pods.take(change.map(SlicePod::of)) {
            self.slice_pod_changed(delta);
        }
        if !was_synced && self.slice_pods.pods.is_synced() {
            self.dirty.extend(self.slice_pods.jobs.values().cloned().map(Unit::Job));
        }
    }

    /// Takes the answer to the opening of a gate.
    pub(in crate::controller) fn take_slice_pod_answer(&mut self, pod: PlacedPod) {
        if let Some(uid) = self.slice_pods.pods.upsert(SlicePod::of(pod)) {
            self.slice_pod_changed(Delta::Upsert(uid));
        }
    }

    fn slice_pod_changed(&mut self, delta: Delta<SlicePod>) {
        let known = &mut self.slice_pods;
        let key = match delta {
            Delta::Upsert(uid) => {
                let key = known.pods.get(&uid).and_then(SlicePod::key);
                if let Some(key) = &key {
                    known.by_chain.entry(key.clone()).or_default().insert(uid);
                }
                key
            }
            Delta::Gone(pod) => {
                let key = pod.key();
                if let Some(key) = &key
                    && let Some(pods) = known.by_chain.get_mut(key)
                {
                    pods.remove(&pod.uid);
                    if pods.is_empty() {
                        known.by_chain.remove(key);
                    }
                }
                key
            }
        };
        self.dirty.extend(key.and_then(|key| known.jobs.get(&key)).cloned().map(Unit::Job));
    }

    /// The pods that run on the quota of this slice's job or wait for it; none before all of them are known.
    pub(in crate::controller) fn slice_pods_of(&self, slice: &Workload) -> Vec<&SlicePod> {
        let known = &self.slice_pods;
        if !known.pods.is_synced() {
            return Vec::new();
        }
        let namespace = slice.metadata.namespace.clone().unwrap_or_default();
        let chain = (namespace, slices::chain(slice).to_owned());
        let pods = known.by_chain.get(&chain).into_iter().flatten().filter_map(|uid| known.pods.get(uid));
        // One may have been given to another since.
        pods.filter(|pod| pod.key().as_ref() == Some(&chain)).collect()
    }

    /// The job of a pod that waits for its slice.
    pub(in crate::controller) fn job_of_slice_pod(&self, pod: &Uid) -> Option<&Uid> {
        self.slice_pods.jobs.get(&self.slice_pods.pods.get(pod)?.key()?)
    }
}
