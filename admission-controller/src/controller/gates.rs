//! Pods that wait behind a gate for their place, and nodes that fail under them.

use std::collections::BTreeSet;

use crds::reasons::workload as tokens;
use crds::view::placed_pod::PlacedPod;
use crds::view::workload::Workload;
use kit::patch::{self, Subresource, Target};
use kit::writes::Priority;
use kube::Api;
use model::node::TaintEffect;
use model::planted::Bug;
use model::selector::Labels;
use quota_engine::Uid;
use serde_json::{Value, json};

use super::Controller;
use super::pump::{About, Answer, Before, Op};
use super::world::Unit;
use super::world::ground::nodes_of;

/// A gate that could not be opened is tried again after this long.
const GATE_DELAY: std::time::Duration = std::time::Duration::from_secs(1);

impl Controller {
    /// Opens the gates of an admitted Workload's pods that are there.
    pub(super) fn pump_places(&mut self, uid: &Uid) {
        let Some(workload) = self.world.workloads.get(uid).cloned() else { return };
        let stands = workload.holds(tokens::ADMITTED)
            && !workload.holds(tokens::EVICTED)
            && !workload.holds(tokens::FINISHED);
        if !stands || self.config.planted.is(Bug::KeepGate) {
            return;
        }
        for (pod, labels) in self.world.ground.released(&workload) {
            if self.writes.room() == 0 {
                self.world.dirty.insert(Unit::Places(uid.clone()));
                return;
            }
            if !self.busy.contains_key(&Unit::Gate(pod.clone())) {
                self.open_gate(&pod, labels);
            }
        }
    }

    fn open_gate(&mut self, uid: &Uid, labels: Labels) {
        let Some(pod) = self.world.ground.pod(uid) else { return };
        let labels = if self.config.planted.is(Bug::SendPodsAnywhere) { Labels::new() } else { labels };
        let gates: Vec<Value> = pod.other_gates().into_iter().map(|name| json!({ "name": name })).collect();
        let body = json!({ "spec": { "schedulingGates": gates, "nodeSelector": labels } });
        let target = Target::new(pod.name.clone(), uid.as_str()).at(pod.version().to_string());
        let api = Api::<PlacedPod>::namespaced(self.ctx.clients.write.clone(), &pod.namespace);
        let op = Op {
            decision: None,
            reads: false,
            about: About::Queue,
            versions: String::new(),
            before: Before::Nothing,
        };
        self.world.ground.begin_leave(uid.clone(), labels);
        self.submit(&Unit::Gate(uid.clone()), Priority::Normal, op, move || {
            let (api, target, body) = (api.clone(), target.clone(), body.clone());
            async move {
                let view = patch::merge(&api, &target, body, Subresource::Main).await?;
                Ok(Answer::LetGo(Box::new(view)))
            }
        });
    }

    /// The pod has changed or is gone, or nobody knows: what the watch says next counts.
    pub(super) fn gate_not_opened(&mut self, uid: &Uid) {
        if let Some(job) = self.world.job_of_slice_pod(uid).cloned() {
            self.schedule(Unit::Job(job), GATE_DELAY);
        }
        let Some(key) = self.world.ground.end_leave(uid) else { return };
        if let Some(workload) = self.world.ground.workload_named(&key).cloned() {
            self.schedule(Unit::Places(workload), GATE_DELAY);
        }
    }

    /// `status.unhealthyNodes` where it has to change: nodes that failed under an admitted Workload, and those that are well
    /// again. Rules: Kueue `pkg/controller/tas/node_controller.go`.
    pub(super) fn failed_nodes(&self, workload: &Workload) -> Option<Value> {
        let gates = &self.config.file.feature_gates;
        let concerned = self.world.ground.wanted
            && gates.topology_aware_scheduling
            && gates.tas_failed_node_replacement
            && workload.holds(tokens::ADMITTED)
            && !workload.holds(tokens::EVICTED)
            && !workload.holds(tokens::FINISHED);
        if !concerned {
            return None;
        }
        let nodes = nodes_of(workload);
        let failed: BTreeSet<&String> = nodes.iter().filter(|node| self.has_failed(workload, node)).collect();
        let known: BTreeSet<&String> =
            workload.status.unhealthy_nodes.iter().map(|node| &node.name).collect();
        (failed != known).then(|| {
            let list: Vec<Value> = failed.iter().map(|name| json!({ "name": name })).collect();
            json!({ "status": { "unhealthyNodes": list } })
        })
    }

    /// Whether a node has failed, as far as this Workload is concerned: it is gone; or it is not ready, or has a taint that the
    /// pods do not tolerate, and none of its pods goes on there.
    fn has_failed(&self, workload: &Workload, name: &str) -> bool {
        let gates = &self.config.file.feature_gates;
        let Some(node) = self.world.ground.node(name) else { return true };
        if !node.status.conditions.iter().any(|one| one.r#type == "Ready") {
            return true;
        }
        let ended =
            || !gates.tas_replace_on_pod_termination || !self.world.ground.progresses_on(workload, name);
        if !node.is_ready() {
            return ended();
        }
        let untolerated = node.spec.taints.iter().any(|taint| {
            let keeps_away = matches!(taint.effect, TaintEffect::NoExecute | TaintEffect::NoSchedule);
            keeps_away && !self.is_tolerated(workload, taint)
        });
        untolerated && ended()
    }

    fn is_tolerated(&self, workload: &Workload, taint: &model::node::Taint) -> bool {
        let sets = workload.status.admission.iter().flat_map(|admission| &admission.pod_set_assignments);
        sets.filter(|held| held.topology_assignment.is_some()).all(|held| {
            let set = workload.spec.pod_sets.iter().find(|one| one.name == held.name);
            let own = set.into_iter().flat_map(|set| &set.template.spec.tolerations);
            let flavors = held.flavors.values().filter_map(|name| self.world.flavors_by_name.get(name));
            let given = flavors.flat_map(|flavor| &flavor.spec.tolerations);
            let mut tolerations = own.chain(given);
            let updates = workload.status.admission_checks.iter().flat_map(crate::checks::updates);
            let mut more =
                updates.filter(|update| update.name == held.name).flat_map(|update| update.tolerations);
            tolerations.any(|one| one.tolerates(taint)) || more.any(|one| one.tolerates(taint))
        })
    }
}
