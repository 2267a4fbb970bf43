//! The program without its input and output: what is seen goes in, what is to be written comes out. Pure.
//!
//! One task owns a [`Core`]. It tells it what watches saw and how writes ended, lets it [`settle`](Core::settle), and
//! carries out the [`Write`]s. A follower is fed in the same way; it only decides nothing.

mod late;
mod plans;
mod write;

use std::collections::BTreeMap;
use std::sync::Arc;

use crds::view;
use model::planted::{Bug, Planted};
use placement_engine::{
    Decision, DeviceChoice, Engine, Event, GangId, Pending, Placement, Plan, PodPhase, PodUid, Undo,
};
use serde_json::{Value, json};

use crate::config::Config;
use crate::grouping::{self, Index, Key};
use crate::protocol::Happened;
use plans::Plans;
pub use write::{Answer, Outcome, Write, WriteId};

/// Something worth an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// What it is about: API version, kind, namespace and name, uid.
    pub about: (&'static str, &'static str, Key, String),
    /// `Warning` rather than `Normal`.
    pub warning: bool,
    /// The reason token.
    pub reason: String,
    /// The sentence.
    pub message: String,
}

/// What happened since it was last asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Pods bound.
    pub scheduled: u64,
    /// Pods that were said to have no place.
    pub unschedulable: u64,
    /// Binds that the server refused.
    pub refused: u64,
    /// Plans begun.
    pub plans: u64,
    /// Gangs undone.
    pub undone: u64,
}

/// A placement on its way.
#[derive(Clone, Debug)]
struct Binding {
    key: Key,
    node: Arc<str>,
    devices: DeviceChoice,
    /// Conflicts so far.
    conflicts: u32,
}

/// After so many conflicts in a row a bind counts as refused: somebody keeps writing to the pod.
const MAX_CONFLICTS: u32 = 8;

/// The program's state.
pub struct Core {
    index: Index,
    engine: Engine,
    plans: Plans,
    bindings: BTreeMap<PodUid, Binding>,
    outstanding: BTreeMap<WriteId, Write>,
    outbox: Vec<Write>,
    notices: Vec<Notice>,
    late: late::Late,
    leading: bool,
    /// Counts this process's terms of leadership: an answer from an earlier one is nobody's.
    term: u32,
    planted: Planted,
    tally: Tally,
}

impl Core {
    /// A program that knows nothing yet.
    pub fn new(config: &Config) -> Self {
        let planted = config.planted;
        let engine = placement_engine::Config {
            repair_patience_ms: i64::from(config.repair_patience_seconds) * 1000,
            planted,
            ..placement_engine::Config::default()
        };
        Self {
            index: Index::new(config.scheduler_names.clone(), planted),
            engine: Engine::new(engine),
            plans: Plans::default(),
            bindings: BTreeMap::new(),
            outstanding: BTreeMap::new(),
            outbox: Vec::new(),
            notices: Vec::new(),
            late: late::Late::default(),
            leading: false,
            term: 0,
            planted,
            tally: Tally::default(),
        }
    }

    /// The engine, for explanations.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The index, for explanations.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// A node is there, or changed.
    pub fn node_applied(&mut self, now: i64, node: &view::Node) {
        self.engine.apply(now, Event::NodeApplied(grouping::node_info(node)));
    }

    /// A node is gone.
    pub fn node_deleted(&mut self, now: i64, name: &str) {
        self.engine.apply(now, Event::NodeDeleted(name.into()));
    }

    /// A node's devices are known, or changed.
    pub fn gpu_node_applied(&mut self, now: i64, node: &view::GpuNodeDevices) {
        self.engine.apply(now, grouping::device_events(node));
    }

    /// A node's devices are no longer known.
    pub fn gpu_node_deleted(&mut self, now: i64, name: &str) {
        self.engine.apply(now, Event::DevicesApplied { node: name.into(), devices: Vec::new() });
    }

    /// A pod is there, or changed.
    pub fn pod_applied(&mut self, now: i64, pod: &view::Pod) {
        let uid = PodUid::new(pod.metadata.uid.clone().unwrap_or_default());
        let ran = self.index.pod(&uid).is_some_and(|record| record.running);
        let events = self.index.pod_applied(pod);
        self.feed(now, events);
        let Some(record) = self.index.pod(&uid) else { return };
        if record.running != ran
            && let Some(gang) = self.index.gang_of(&uid)
        {
            self.late.touch(now, gang);
        }
        // One that is to go before it was bound never will be, however long a finalizer keeps it.
        let (bound, deleting) = (record.info.node.is_some(), record.info.deleting);
        let active = record.info.phase == PodPhase::Active && !deleting;
        if bound {
            self.bindings.remove(&uid);
            self.on_member(&uid, Happened::Bound(uid.clone()));
        } else if !active {
            self.bindings.remove(&uid);
            self.on_member(&uid, Happened::Left(uid.clone()));
        }
    }

    /// A pod is gone.
    pub fn pod_deleted(&mut self, now: i64, uid: &PodUid) {
        let gang = self.index.gang_of(uid).cloned();
        let events = self.index.pod_deleted(uid);
        self.feed(now, events);
        self.bindings.remove(uid);
        self.on_member(uid, Happened::Left(uid.clone()));
        self.plans.pod_gone(uid);
        if let Some(gang) = gang {
            self.late.touch(now, &gang);
        }
    }

    /// A PodGroup is there, or changed.
    pub fn group_applied(&mut self, now: i64, group: view::PodGroup) {
        let events = self.index.group_applied(group);
        self.feed(now, events);
    }

    /// A PodGroup is gone.
    pub fn group_deleted(&mut self, now: i64, key: &Key, uid: &str) {
        let events = self.index.group_deleted(key, uid);
        self.feed(now, events);
    }

    /// A priority class is there, or gone (no value).
    pub fn priority_class(&mut self, now: i64, name: &str, value: Option<i32>) {
        self.index.priority_class(name, value);
        self.digest(now);
    }

    /// Works out what follows for whole gangs. To be called after a batch of changes; [`Core::settle`] does.
    pub fn digest(&mut self, now: i64) {
        let events = self.index.settle();
        self.feed(now, events);
    }

    /// A Workload is there, or changed.
    pub fn workload_applied(&mut self, now: i64, workload: &view::WorkloadPlacement) {
        let events = self.index.workload_applied(workload);
        self.feed(now, events);
    }

    /// A Workload is gone.
    pub fn workload_deleted(&mut self, now: i64, uid: &str) {
        let events = self.index.workload_deleted(uid);
        self.feed(now, events);
    }

    /// A batch Job is there.
    pub fn job_applied(&mut self, now: i64, job: &view::JobOwner) {
        let events = self.index.job_applied(job);
        self.feed(now, events);
    }

    /// A batch Job is gone.
    pub fn job_deleted(&mut self, uid: &str) {
        self.index.job_deleted(uid);
    }

    /// A plan is there, or changed.
    pub fn placement_applied(&mut self, placement: &view::GangPlacement) {
        for (plan, index) in self.plans.seen(placement) {
            self.on_plan(&plan, Happened::Created(index));
        }
    }

    /// A plan is gone.
    pub fn placement_deleted(&mut self, uid: &str) {
        self.plans.unseen(uid);
    }

    /// This process leads from now on. Everything must have been seen: call it when all watches have synced.
    pub fn lead(&mut self, now: i64) {
        self.digest(now);
        self.leading = true;
        self.term = self.term.wrapping_add(1);
        if !self.planted.is(Bug::ForgetPlans) {
            self.adopt_plans(now);
        }
        self.late.touch_all(now, self.engine.gangs());
    }

    /// This process no longer leads: what it was about to do is somebody else's.
    pub fn stand_down(&mut self, now: i64) {
        self.leading = false;
        self.engine.apply(now, Event::StoodDown);
        self.plans.stand_down();
        self.bindings.clear();
        self.outstanding.clear();
        self.outbox.clear();
        self.late.stand_down();
    }

    /// Whether this process leads, as far as this state is concerned.
    pub fn leading(&self) -> bool {
        self.leading
    }

    /// Draws the consequences. Call it after everything else, before [`Core::take_writes`]. Conditions that change bear the time `wall`,
    /// in milliseconds since the Unix epoch.
    pub fn settle(&mut self, now: i64, wall: i64) {
        self.digest(now);
        if !self.leading {
            return;
        }
        // A second round lets what did not fit beside a gang's minimum say so; a third would find nothing.
        for _ in 0..2 {
            for decision in self.engine.decide(now) {
                match decision {
                    Decision::Place(plan) => self.place(plan),
                    Decision::Pending(pending) => self.pending(now, pending),
                    Decision::Undo(undo) => self.undo(now, &undo),
                }
            }
        }
        self.look_at_plans();
        self.write_late(now, wall);
    }

    /// When [`Core::settle`] must be called even if nothing happens, by the same clock as `now` there.
    pub fn next_deadline(&self) -> Option<i64> {
        if !self.leading {
            return None;
        }
        [self.engine.next_deadline(), self.late.next()].into_iter().flatten().min()
    }

    /// What is to be written now, each with the id under which its outcome is to be told.
    pub fn take_writes(&mut self) -> Vec<(WriteId, Write)> {
        let mut taken = Vec::new();
        for write in std::mem::take(&mut self.outbox) {
            let id = write.id(self.term);
            if self.outstanding.contains_key(&id) {
                // The same thing is on its way: look again when it has ended.
                self.outbox.push(write);
                continue;
            }
            self.outstanding.insert(id.clone(), write.clone());
            taken.push((id, write));
        }
        taken
    }

    /// What is worth an event.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// What happened since it was last asked, as numbers.
    pub fn take_tally(&mut self) -> Tally {
        std::mem::take(&mut self.tally)
    }

    /// How a write ended.
    pub fn wrote(&mut self, now: i64, id: &WriteId, outcome: Outcome) {
        let Some(write) = self.outstanding.remove(id) else { return };
        match write {
            Write::CreatePlan { plan, index, object } => {
                self.plan_created(now, &plan, index, *object, outcome)
            }
            Write::ReadPlan { plan, index, object } => self.plan_read(now, &plan, index, object, outcome),
            Write::Bind { pod, key, node, .. } => self.bound(now, &pod, &key, &node, outcome),
            Write::ReadPod { pod, key } => self.pod_read(now, pod, key, outcome),
            Write::ReportPlan { plan, index, object, phase } => {
                self.plan_reported(&plan, index, object, phase, &outcome);
            }
            Write::DeletePlan { uid, .. } => {
                self.plans.deleted(&uid, &outcome);
            }
            Write::DeletePod { pod, .. } => self.pod_deletion(now, pod, &outcome),
            Write::PodStatus { pod, .. } => {
                if let Outcome::Answered(Answer::Done { resource_version, .. }) = &outcome {
                    self.index.pod_written(&pod, resource_version);
                } else if let Some(gang) = self.index.gang_of(&pod).cloned() {
                    self.late.retry(now, &gang, &outcome);
                }
            }
            Write::GroupStatus { uid, .. } => {
                self.late.retry(now, &GangId::new(format!("podgroup/{uid}")), &outcome);
            }
        }
    }

    fn feed(&mut self, now: i64, events: Vec<Event>) {
        for event in events {
            match &event {
                Event::PodApplied(info) => {
                    if let Some(gang) = &info.gang {
                        self.late.touch(now, gang);
                    }
                }
                Event::GangApplied(spec) => self.late.touch(now, &spec.id),
                Event::GangDeleted(gang) => self.late.forget(gang),
                _ => {}
            }
            self.engine.apply(now, event);
        }
    }

    fn place(&mut self, plan: Plan) {
        for member in &plan.members {
            let binding = Binding {
                key: (member.namespace.clone(), member.name.clone()),
                node: member.node.clone(),
                devices: member.devices.clone(),
                conflicts: 0,
            };
            self.bindings.insert(member.pod.clone(), binding);
        }
        self.late.clear(&plan.gang, plan.members.iter().map(|member| &member.pod));
        match plan.members.as_slice() {
            [Placement { pod, .. }] => {
                let pod = pod.clone();
                self.bind(&pod);
            }
            members if self.planted.is(Bug::BindBeforePlan) => {
                let pods: Vec<PodUid> = members.iter().map(|member| member.pod.clone()).collect();
                pods.iter().for_each(|pod| self.bind(pod));
                self.begin_plan(plan);
            }
            _ => self.begin_plan(plan),
        }
    }

    /// Sends a pod to the node decided on; gives the place back if it is no longer one, or the pod is to go.
    fn bind(&mut self, uid: &PodUid) {
        if !self.engine.still_suits(uid) {
            self.give_back(uid);
            return;
        }
        let Some(binding) = self.bindings.get(uid) else { return };
        let Some(record) = self.index.pod(uid) else { return };
        self.outbox.push(Write::Bind {
            pod: uid.clone(),
            key: binding.key.clone(),
            resource_version: record.resource_version.clone(),
            node: binding.node.clone(),
            devices: binding.devices.clone(),
        });
    }

    fn give_back(&mut self, uid: &PodUid) {
        self.bindings.remove(uid);
        self.engine.apply(0, Event::PlacementDropped(uid.clone()));
        self.on_member(uid, Happened::Refused(uid.clone()));
    }

    fn refused(&mut self, now: i64, uid: &PodUid, problem: &str) {
        self.tally.refused += 1;
        self.bindings.remove(uid);
        self.engine.apply(now, Event::BindRefused { pod: uid.clone(), problem: problem.into() });
        self.on_member(uid, Happened::Refused(uid.clone()));
    }

    fn bound(&mut self, now: i64, uid: &PodUid, key: &Key, node: &Arc<str>, outcome: Outcome) {
        match outcome {
            Outcome::Answered(_) => {
                self.tally.scheduled += 1;
                self.bindings.remove(uid);
                if let Some(mut info) = self.engine.pod(uid).cloned() {
                    // The watch may have shown the bind before its answer came.
                    let news = info.node.replace(node.clone()).is_none();
                    self.notices.push(scheduled(&info));
                    if news {
                        self.engine.apply(now, Event::PodApplied(Box::new(info)));
                    }
                }
                self.on_member(uid, Happened::Bound(uid.clone()));
                if let Some(gang) = self.index.gang_of(uid).cloned() {
                    self.late.touch(now, &gang);
                }
            }
            Outcome::Gone => self.pod_deleted(now, uid),
            Outcome::Conflict | Outcome::Unknown => {
                self.outbox.push(Write::ReadPod { pod: uid.clone(), key: key.clone() });
            }
            Outcome::Refused(message) => {
                tracing::warn!(pod = %uid, %node, message, "the server refuses a bind");
                self.refused(now, uid, &message);
            }
            Outcome::NotSent => self.give_back(uid),
        }
    }

    /// What a pod looks like whose bind met a conflict or had no answer.
    fn pod_read(&mut self, now: i64, uid: PodUid, key: Key, outcome: Outcome) {
        match outcome {
            Outcome::Answered(Answer::Pod(pod)) if pod.metadata.uid.as_deref() == Some(uid.as_str()) => {
                self.pod_applied(now, &pod);
                let Some(binding) = self.bindings.get_mut(&uid) else { return };
                binding.conflicts += 1;
                if binding.conflicts > MAX_CONFLICTS {
                    self.refused(now, &uid, "somebody else keeps writing to the pod");
                } else {
                    self.bind(&uid);
                }
            }
            Outcome::Answered(_) | Outcome::Gone => self.pod_deleted(now, &uid),
            Outcome::Refused(message) => self.refused(now, &uid, &message),
            Outcome::Conflict | Outcome::Unknown | Outcome::NotSent => {
                self.outbox.push(Write::ReadPod { pod: uid, key });
            }
        }
    }

    fn undo(&mut self, now: i64, undo: &Undo) {
        for (pod, namespace, name) in &undo.delete {
            self.outbox.push(Write::DeletePod { pod: pod.clone(), key: (namespace.clone(), name.clone()) });
            self.notices.push(Notice {
                about: ("v1", "Pod", (namespace.clone(), name.clone()), pod.to_string()),
                warning: true,
                reason: crds::reasons::event::EVICT.to_owned(),
                message: format!(
                    "the gang runs with {} of at least {} pods and could not be brought back to its minimum; it \
                     starts anew as a whole",
                    undo.running, undo.min_member
                ),
            });
        }
        self.tally.undone += 1;
        self.late.touch(now, &undo.gang);
    }

    fn pod_deletion(&mut self, now: i64, pod: PodUid, outcome: &Outcome) {
        if !matches!(outcome, Outcome::Answered(_) | Outcome::Gone) {
            self.engine.apply(now, Event::UndoFailed(pod));
        }
    }

    fn pending(&mut self, now: i64, pending: Pending) {
        self.tally.unschedulable += u64::try_from(pending.pods.len()).unwrap_or(u64::MAX);
        self.late.say(now, pending);
    }

    /// Everything about the gangs, for people.
    pub fn state(&self) -> Value {
        let gangs: serde_json::Map<String, Value> = self
            .engine
            .gangs()
            .filter_map(|id| {
                let report = self.engine.report(id)?;
                let owner = self.index.owner(id);
                let members: Vec<Value> = self
                    .engine
                    .members(id)
                    .take(100)
                    .map(|info| {
                        json!({ "namespace": info.namespace, "name": info.name, "uid": info.uid.as_str(),
                            "node": info.node, "assumed": self.engine.assumed(&info.uid).map(|(node, _)| node) })
                    })
                    .collect();
                let value = json!({
                    "owner": owner.map(|owner| format!("{} {}/{}", owner.kind, owner.key.0, owner.key.1)),
                    "minMember": report.min_member,
                    "members": report.members,
                    "bound": report.bound,
                    "assumed": report.assumed,
                    "succeeded": report.succeeded,
                    "failed": report.failed,
                    "undoing": report.undoing,
                    "reason": report.why.as_ref().map(crate::words::token),
                    "message": report.why.as_ref().map(ToString::to_string),
                    "pods": members,
                });
                Some((id.to_string(), value))
            })
            .collect();
        json!({ "leading": self.leading, "gangs": gangs, "plans": self.plans.state() })
    }
}

fn scheduled(info: &placement_engine::PodInfo) -> Notice {
    Notice {
        about: ("v1", "Pod", (info.namespace.clone(), info.name.clone()), info.uid.to_string()),
        warning: false,
        reason: crds::reasons::event::SCHEDULED.to_owned(),
        message: format!("bound to node {}", info.node.as_deref().unwrap_or_default()),
    }
}
