//! Nodes that fail under pods that are placed by topology, and pods that were sent to a node on which they cannot run.
//!
//! Rules: Kueue `pkg/controller/tas/node_controller.go`.

use std::collections::BTreeSet;

use crds::reasons::event as events;
use crds::reasons::pod as reasons;
use crds::view::Node;
use crds::view::placed_pod::PlacedPod;
use crds::view::workload::Workload;
use jiff::{SignedDuration, Timestamp};
use kit::events::{Event, Severity};
use kit::patch::{self, Subresource, WriteError};
use kit::writes::Priority;
use kube::Api;
use model::node::{Taint, TaintEffect, Toleration};
use quota_engine::Uid;
use serde_json::{Value, json};

use super::Controller;
use super::announce::regarding;
use super::gates::op_of_pod;
use super::pump::{Answer, target};
use super::world::Unit;
use super::world::ground::{hosts, nodes_of};
use crate::pods::POD;
use crate::status::whole_second;
use crate::{input, reclaimable, topology};

/// A node that is not ready has so long to come back, where that does not go by the end of its pods alone: Kueue's
/// `NodeFailureDelay`.
const GRACE: SignedDuration = SignedDuration::from_secs(30);
/// So many failed nodes are named at the most, as the API has it. Where there are two, the workload is evicted.
const MOST_NAMED: usize = 8;
/// Taints that say the same as condition Ready, and go a little after the node has come back.
const OF_THE_NODE_CONTROLLER: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
/// What a pod is told that was ended because it cannot run where it was sent.
const WORDS: &str = "it waits for a node on which it cannot run; whoever made it makes another one";

impl Controller {
    /// Whether failed nodes are anything to an admitted Workload.
    fn follows_nodes(&self, workload: &Workload) -> bool {
        let gates = &self.config.file.feature_gates;
        self.world.ground.wanted
            && gates.topology_aware_scheduling
            && gates.tas_failed_node_replacement
            && input::stands(workload)
    }

    /// `status.unhealthyNodes` where it has to change: nodes that failed under an admitted Workload, and those that are well
    /// again.
    pub(super) fn failed_nodes(&mut self, unit: &Unit, workload: &Workload) -> Option<Value> {
        if !self.follows_nodes(workload) {
            return None;
        }
        let nodes = self.needed_nodes(workload);
        let gates = &self.config.file.feature_gates;
        let goes_by_time = gates.tas_replace_over_fixed_time || !gates.tas_replace_on_pod_termination;
        let ends = nodes.iter().filter(|_| goes_by_time).filter_map(|node| self.has_time_until(node));
        if let Some(at) = ends.min() {
            self.wake_at(unit, at);
        }
        // What cannot move gets no other node.
        let moves = !self.world.rules.keeps_single_pods() || topology::can_move(&workload.metadata);
        let failed = nodes.iter().filter(|node| moves && self.has_failed(workload, node));
        let failed: BTreeSet<&String> = failed.take(MOST_NAMED).collect();
        let known: BTreeSet<&String> =
            workload.status.unhealthy_nodes.iter().map(|node| &node.name).collect();
        (failed != known).then(|| {
            let list: Vec<Value> = failed.iter().map(|name| json!({ "name": name })).collect();
            json!({ "status": { "unhealthyNodes": list } })
        })
    }

    /// The nodes on which a Workload has pods, or is to have some, as places name them: a pod set whose pods have all ended needs
    /// none any more.
    fn needed_nodes(&self, workload: &Workload) -> BTreeSet<String> {
        let remaining = reclaimable::remaining(workload, &self.world.rules);
        let held = workload.status.admission.iter().flat_map(|admission| &admission.pod_set_assignments);
        held.filter(|held| remaining.get(held.name.as_str()).is_some_and(|pods| *pods > 0))
            .flat_map(hosts)
            .collect()
    }

    /// Whether a node has failed, as far as this Workload is concerned: it is gone, or as good as gone, without condition Ready; or
    /// it is not ready, or has a taint that the pods do not tolerate, and none of its pods goes on there, or is not waited for.
    fn has_failed(&self, workload: &Workload, host: &str) -> bool {
        let gates = &self.config.file.feature_gates;
        let Some(node) = self.world.ground.node(host).filter(|node| node.readiness().is_some()) else {
            return true;
        };
        let has_time = self.has_time_until(host).is_some();
        if has_time && !gates.tas_replace_on_pod_termination {
            return workload.status.unhealthy_nodes.iter().any(|node| node.name == host);
        }
        if node.is_ready() && self.tolerates(workload, node, host) {
            return false;
        }
        let is_overdue = !node.is_ready() && !has_time && gates.tas_replace_over_fixed_time;
        is_overdue
            || !gates.tas_replace_on_pod_termination
            || !self.world.ground.progresses_on(workload, host)
    }

    /// Until when a node that is not ready may come back. `None`: it is ready, or that is over.
    fn has_time_until(&self, host: &str) -> Option<Timestamp> {
        let node = self.world.ground.node(host).filter(|node| !node.is_ready())?;
        let until = node.readiness()?.last_transition_time.as_ref()?.0.checked_add(GRACE).ok()?;
        (until > self.ctx.clock.now()).then_some(until)
    }

    /// Whether the pods that a Workload has on this node tolerate its taints. One that they tolerate for a time only is none:
    /// the node may be given to them again at once, and would have failed again.
    fn tolerates(&self, workload: &Workload, node: &Node, name: &str) -> bool {
        let keeps_away = |taint: &&Taint| {
            matches!(taint.effect, TaintEffect::NoExecute | TaintEffect::NoSchedule)
                && !OF_THE_NODE_CONTROLLER.contains(&taint.key.as_str())
        };
        let taints: Vec<&Taint> = node.spec.taints.iter().filter(keeps_away).collect();
        if taints.is_empty() || !self.config.file.feature_gates.tas_replace_on_taints {
            return true;
        }
        let sets = workload.status.admission.iter().flat_map(|admission| &admission.pod_set_assignments);
        sets.filter(|held| hosts(held).contains(name)).all(|held| {
            let set = workload.spec.pod_sets.iter().find(|one| one.name == held.name);
            let own = set.into_iter().flat_map(|set| &set.template.spec.tolerations);
            let flavors = held.flavors.values().filter_map(|name| self.world.flavors_by_name.get(name));
            let given = flavors.flat_map(|flavor| &flavor.spec.tolerations);
            let updates = workload.status.admission_checks.iter().flat_map(crate::checks::updates);
            let more = updates.filter(|update| update.name == held.name);
            let more: Vec<Toleration> = more.flat_map(|update| update.tolerations).collect();
            let tolerations: Vec<&Toleration> = own.chain(given).chain(&more).collect();
            taints.iter().all(|taint| tolerations.iter().any(|one| one.tolerates(taint)))
        })
    }

    /// The nodes on which no pod of an admitted Workload will be bound, of those to which its pods are sent or may be: another
    /// node has taken its pods over, or it is not one for them now. Of a place whose node is gone nothing is said: its name may
    /// come back before another node is found.
    pub(super) fn dead_ends(&self, workload: &Workload) -> BTreeSet<String> {
        let places = nodes_of(workload);
        // Where places are no nodes, a pod that names one was sent there by its user.
        if places.is_empty() || !self.follows_nodes(workload) {
            return BTreeSet::new();
        }
        let waits_for_the_end = self.config.file.feature_gates.tas_replace_on_pod_termination;
        let suits = |name: &String| {
            let node = self.world.ground.node(name).filter(|node| node.readiness().is_some());
            node.is_none_or(|node| node.is_ready() && self.tolerates(workload, node, name))
        };
        let is_dead_end = |name: &String| !places.contains(name) || (waits_for_the_end && !suits(name));
        let sent = self.world.ground.waiting(workload).into_iter().map(|(_, node)| node);
        places.iter().cloned().chain(sent).filter(is_dead_end).collect()
    }

    /// Ends the pods of an admitted Workload that wait in vain, so that whoever made them makes others.
    pub(super) fn end_strays(&mut self, uid: &Uid, workload: &Workload, dead_ends: &BTreeSet<String>) {
        if dead_ends.is_empty() {
            return;
        }
        let waiting = self.world.ground.waiting(workload).into_iter();
        for (pod, _) in waiting.filter(|(_, node)| dead_ends.contains(node)) {
            if self.writes.room() == 0 {
                self.world.dirty.insert(Unit::Places(uid.clone()));
                return;
            }
            if !self.busy.contains_key(&Unit::Gate(pod.clone())) {
                self.end_stray(&pod);
            }
        }
    }

    fn end_stray(&mut self, uid: &Uid) {
        let Some(pod) = self.world.ground.pod(uid) else { return };
        let (name, version, expected) = (pod.name.clone(), pod.version().to_string(), uid.clone());
        let whole = self.jobs_of(POD, &pod.namespace);
        let api = Api::<PlacedPod>::namespaced(self.ctx.clients.write.clone(), &pod.namespace);
        let now = whole_second(self.ctx.clock.now());
        self.submit(&Unit::Gate(uid.clone()), Priority::Normal, op_of_pod(), move || {
            let (api, whole, name, now) = (api.clone(), whole.clone(), name.clone(), now.clone());
            let (version, expected) = (version.clone(), expected.clone());
            async move {
                // Its conditions are a list, which is written whole.
                let pod = whole.get_opt(&name).await?.ok_or(WriteError::Gone)?;
                let target = target(&pod.metadata);
                if pod.uid() != expected.to_string() {
                    return Err(WriteError::Gone);
                }
                if pod.metadata.resource_version != Some(version) {
                    return Err(WriteError::Conflict("the pod is another than was judged".into()));
                }
                let seen = pod.at("/status/conditions").and_then(Value::as_array).into_iter().flatten();
                let kept = seen.filter(|one| one["type"] != reasons::TERMINATED_BY_KUEUE).cloned();
                let conditions: Vec<Value> = kept
                    .chain([json!({
                        "type": reasons::TERMINATED_BY_KUEUE, "status": "True",
                        "reason": reasons::UNSCHEDULABLE_ON_ASSIGNED_NODE, "message": WORDS,
                        "lastTransitionTime": now,
                    })])
                    .collect();
                let body = json!({ "status": { "phase": "Failed", "conditions": conditions } });
                let view = patch::merge(&api, &target, body, Subresource::Status).await?;
                Ok(Answer::Ended(Box::new(view)))
            }
        });
    }

    /// Takes a pod that was ended, and tells of it.
    pub(super) fn stray_ended(&mut self, pod: PlacedPod) {
        let regarding = regarding("v1".into(), "Pod", &pod.metadata);
        let reason = events::POD_TERMINATED_BY_KUEUE.into();
        self.events.publish(Event { regarding, severity: Severity::Normal, reason, note: WORDS.to_owned() });
        self.world.take_let_go(&mut self.engine, pod);
    }
}
