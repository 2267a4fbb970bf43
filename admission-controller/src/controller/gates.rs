//! Pods that wait behind a gate for their place.

use crds::reasons::workload as tokens;
use crds::view::placed_pod::PlacedPod;
use crds::view::workload::Workload;
use kit::patch::{Subresource, Target};
use kit::writes::Priority;
use kube::Api;
use model::planted::Bug;
use model::selector::Labels;
use quota_engine::Uid;
use quota_engine::topology::HOSTNAME;
use serde_json::{Value, json};

use super::Controller;
use super::pump::{About, Answer, Op};
use super::send::Patch;
use super::world::Unit;
use super::world::ground::GroundPod;
use crate::jobs::controller_of;
use crate::{input, slices};

/// A gate that could not be opened is tried again after this long.
pub(super) const GATE_DELAY: std::time::Duration = std::time::Duration::from_secs(1);

impl Controller {
    /// Opens the gates of an admitted Workload's pods that are there.
    pub(super) fn pump_places(&mut self, uid: &Uid) {
        let Some(workload) = self.world.workloads.get(uid) else { return };
        if !input::stands(&workload) || self.is_superseded(&workload) || self.config.planted.is(Bug::KeepGate)
        {
            return;
        }
        let dead_ends = self.dead_ends(&workload);
        self.end_strays(uid, &workload, &dead_ends);
        for (pod, labels) in self.world.ground.released(&workload) {
            // It would be ended there at once.
            if labels.get(HOSTNAME).is_some_and(|node| dead_ends.contains(node)) {
                continue;
            }
            if self.writes.room() == 0 {
                self.world.dirty.insert(Unit::Places(uid.clone()));
                return;
            }
            if !self.busy.contains_key(&Unit::Gate(pod.clone())) {
                self.open_gate(&pod, labels);
            }
        }
    }

    /// Whether another slice of its elastic job is admitted in its place: their pods are the same, and go by that one's places. It
    /// ends in a moment.
    fn is_superseded(&self, workload: &Workload) -> bool {
        let owner = controller_of(&workload.metadata).filter(|_| slices::is_slice(workload));
        let Some(owner) = owner else { return false };
        let slices =
            self.world.workloads_of(&owner.uid.as_str().into(), workload.metadata.namespace.as_deref());
        let mut live: Vec<&Workload> = slices.iter().filter(|one| !one.holds(tokens::FINISHED)).collect();
        live.sort_by_key(|one| (&one.metadata.creation_timestamp, &one.metadata.uid));
        slices::active(&live).is_some_and(|active| active.metadata.uid != workload.metadata.uid)
    }

    fn open_gate(&mut self, uid: &Uid, labels: Labels) {
        let Some(pod) = self.world.ground.pod(uid) else { return };
        let labels = if self.config.planted.is(Bug::SendPodsAnywhere) { Labels::new() } else { labels };
        let gates: Vec<Value> = pod.other_gates().into_iter().map(|name| json!({ "name": name })).collect();
        let body = json!({ "spec": { "schedulingGates": gates, "nodeSelector": labels } });
        let target = Target::new(pod.name.clone(), uid.to_string()).at(pod.version().to_string());
        let namespace = pod.namespace.clone();
        self.world.ground.begin_leave(uid.clone(), labels);
        self.patch_gate(uid, &namespace, target, body, Answer::LetGo);
    }

    /// Writes a pod without one of its gates.
    pub(super) fn patch_gate(
        &mut self,
        pod: &Uid,
        namespace: &str,
        target: Target,
        body: Value,
        answer: fn(Box<PlacedPod>) -> Answer,
    ) {
        let api = Api::<PlacedPod>::namespaced(self.ctx.clients.write.clone(), namespace);
        let patch = Patch { api, target, body, part: Subresource::Main };
        self.submit_patch(&Unit::Gate(pod.clone()), Priority::Normal, op_of_pod(), patch, answer);
    }

    /// The pod has changed or is gone, or nobody knows: what the watch says next counts.
    pub(super) fn gate_not_opened(&mut self, uid: &Uid, delay: std::time::Duration) {
        if let Some(job) = self.world.job_of_slice_pod(uid).cloned() {
            self.schedule(Unit::Job(job), delay);
        }
        self.world.ground.end_leave(uid);
        let Some(key) = self.world.ground.pod(uid).and_then(GroundPod::workload) else { return };
        for workload in self.world.workloads_of_places(&key) {
            self.schedule(Unit::Places(workload), delay);
        }
    }
}

/// A write of a pod that is placed by topology, or is behind a gate of an elastic job: the watch brings what is new of it.
pub(super) fn op_of_pod() -> Op {
    Op::new(About::Queue, "")
}
