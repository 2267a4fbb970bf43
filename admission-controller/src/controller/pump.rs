//! What is to be written next, unit by unit, and what follows from the answers.

use crds::names::kueue;
use crds::reasons::workload as tokens;
use crds::view::cluster_queue::ClusterQueue;
use crds::view::local_queue::LocalQueue;
use crds::view::workload::Workload;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kit::patch::{self, Subresource, Target, WriteError};
use kit::writes::{Done, Failure, Priority};
use kube::Api;
use model::planted::Bug;
use quota_engine::{DecisionId, Outcome, Uid};
use serde_json::{Value, json};

use super::Controller;
use super::world::{Unit, controller_of, is_part_of_a_job};
use crate::compose::compose;
use crate::input;
use crate::jobs::{JobKind, JobObject, JobResource, start, stop};
use crate::reconcile::{self, Job, Step};
use crate::{status, words};

/// What a successful write yields.
pub(super) enum Answer {
    Workload(Box<Workload>),
    Job(&'static JobKind, Box<JobObject>),
    ClusterQueue(Box<ClusterQueue>),
    LocalQueue(Box<LocalQueue>),
    Nothing,
}

/// The write under way in a unit.
pub(super) struct Op {
    /// The decision that waits for it.
    decision: Option<DecisionId>,
    /// Whether it only reads, after a write of which nobody knows what became.
    reads: bool,
    /// What it rests on, to be read again when nobody knows what became of it.
    about: About,
    /// The versions it was worked out from.
    versions: String,
}

#[derive(Clone)]
enum About {
    Workload { namespace: String, name: String },
    Job { kind: &'static JobKind, namespace: String, name: String },
    Status,
}

fn text(value: Option<&String>) -> String {
    value.cloned().unwrap_or_default()
}

fn target(metadata: &ObjectMeta) -> Target {
    Target::new(text(metadata.name.as_ref()), text(metadata.uid.as_ref()))
        .at(text(metadata.resource_version.as_ref()))
}

fn about(workload: &Workload) -> About {
    About::Workload {
        namespace: text(workload.metadata.namespace.as_ref()),
        name: text(workload.metadata.name.as_ref()),
    }
}

/// The conditions of Workloads that this program writes.
const OWN_CONDITIONS: &[&str] = &[
    tokens::QUOTA_RESERVED,
    tokens::ADMITTED,
    tokens::EVICTED,
    tokens::PREEMPTED,
    tokens::REQUEUED,
    tokens::FINISHED,
];

impl Controller {
    /// Begins what can be begun in every unit that something happened to.
    pub(super) fn pump(&mut self) {
        let now = self.ctx.clock.monotonic();
        while let Some((_, unit)) = self.due.first().filter(|(at, _)| *at <= now).cloned() {
            self.due.pop_first();
            self.scheduled.remove(&unit);
            self.world.dirty.insert(unit);
        }
        for unit in std::mem::take(&mut self.world.dirty) {
            if self.busy.contains_key(&unit) || self.writes.room() == 0 {
                self.world.dirty.insert(unit);
                continue;
            }
            match &unit {
                Unit::Job(uid) => self.pump_job(&unit, &uid.clone()),
                Unit::Workload(uid) => self.pump_workload(&unit, &uid.clone()),
                Unit::ClusterQueue(_) | Unit::LocalQueue(_) => self.pump_status(&unit),
            }
        }
    }

    fn pump_job(&mut self, unit: &Unit, uid: &Uid) {
        let job = self.world.job(uid).cloned();
        let mut workloads: Vec<Workload> = self.world.workloads_of(uid).into_iter().cloned().collect();
        if workloads.is_empty() && self.config.planted.is(Bug::NameInsteadOfUid) {
            workloads = job.as_ref().map(|job| self.world.workloads_of_name(job)).unwrap_or_default();
        }
        // One that is being deleted comes first; then the oldest.
        workloads.sort_by_key(|one| {
            (
                one.metadata.deletion_timestamp.is_none(),
                one.metadata.creation_timestamp.clone(),
                one.metadata.uid.clone(),
            )
        });
        let Some(job) = job.filter(|job| self.is_managed(job)) else {
            for workload in workloads {
                if self.without_job(unit, &workload, true) {
                    return;
                }
            }
            return;
        };
        if let Some(duplicate) = workloads.get(1).filter(|one| one.metadata.deletion_timestamp.is_none()) {
            tracing::warn!(workload = duplicate.metadata.name, "a job has a second Workload; it is deleted");
            let duplicate = duplicate.clone();
            if workloads[0].metadata.deletion_timestamp.is_none() {
                return self.begin_step(unit, Some(&job), Some(&duplicate), Step::DeleteWorkload);
            }
        }
        let workload = workloads.first();
        if self.begin_eviction(unit, workload) {
            return;
        }
        let priority = self.world.priorities.of(&job).ok().map(|priority| priority.value);
        let step = reconcile::next(&job, workload, priority);
        let step = self.planted_step(step, &job, workload);
        let forgets = self.config.planted.is(Bug::EvictWithoutSuspending) && step == Step::Stop;
        if step != Step::Nothing && !forgets {
            let versions = versions(Some(&job), workload);
            if !self.is_refused(unit, &versions) {
                self.begin_step(unit, Some(&job), workload, step);
            }
            return;
        }
        if let Some(workload) = workload {
            self.begin_decision(unit, workload);
        }
    }

    /// The step, or, with a bug planted, a wrong one.
    fn planted_step(&self, step: Step, job: &Job, workload: Option<&Workload>) -> Step {
        let decided = workload.is_some_and(|one| self.reserves.contains_key(&input::uid(&one.metadata)));
        if self.config.planted.is(Bug::ReleaseBeforeAdmission) && decided && job.view.suspended {
            return Step::Start;
        }
        step
    }

    /// The patch, or, with a bug planted, one that forgets what others wrote.
    fn planted_body(&self, mut body: Value) -> Value {
        if self.config.planted.is(Bug::DropForeignConditions)
            && let Some(Value::Array(conditions)) = body.pointer_mut("/status/conditions")
        {
            conditions.retain(|one| OWN_CONDITIONS.iter().any(|kind| one["type"] == *kind));
        }
        body
    }

    fn is_managed(&self, job: &Job) -> bool {
        let namespace = job.object.metadata.namespace.as_deref().unwrap_or_default();
        let known = !self.world.workloads_of(&Uid::from(job.object.uid())).is_empty();
        (known || self.config.file.manages(namespace, job.view.queue.as_deref())) && !is_part_of_a_job(job)
    }

    fn pump_workload(&mut self, unit: &Unit, uid: &Uid) {
        let Some(workload) = self.world.workloads.get(uid).cloned() else { return };
        let controlled = controller_of(&workload.metadata).is_some();
        if !self.begin_eviction(unit, Some(&workload)) && !self.without_job(unit, &workload, controlled) {
            self.begin_decision(unit, &workload);
        }
    }

    fn without_job(&mut self, unit: &Unit, workload: &Workload, controlled: bool) -> bool {
        let step = reconcile::next_without_job(workload, controlled);
        if step == Step::Nothing || self.is_refused(unit, &versions(None, Some(workload))) {
            return false;
        }
        self.begin_step(unit, None, Some(workload), step);
        true
    }

    fn begin_eviction(&mut self, unit: &Unit, workload: Option<&Workload>) -> bool {
        let Some(workload) = workload else { return false };
        let uid = input::uid(&workload.metadata);
        let Some(evict) = self.evictions.remove(&uid) else { return false };
        if evict.based_on != input::version(&workload.metadata) {
            self.engine.written(evict.id, Outcome::Unsettled);
            return false;
        }
        let preemptor = evict.preemptor.as_ref().map(|uid| {
            let job = self.world.workloads.get(uid).and_then(|view| controller_of(&view.metadata));
            (uid.as_str().to_owned(), job.map_or_else(|| "UNKNOWN".to_owned(), |owner| owner.uid.clone()))
        });
        let preemptor = preemptor.as_ref().map(|(uid, job)| (uid.as_str(), job.as_str()));
        let message = words::eviction(evict.reason, preemptor, (&evict.preemptor_path, &evict.victim_path));
        let body = status::evicted(workload, evict.reason, &message, self.ctx.clock.now());
        self.patch_workload(unit, workload, body, Subresource::Status, Priority::Urgent, Some(evict.id));
        true
    }

    /// The admission that was decided, or the reason why there is none.
    fn begin_decision(&mut self, unit: &Unit, workload: &Workload) {
        let uid = input::uid(&workload.metadata);
        let now = self.ctx.clock.now();
        if let Some(reserve) = self.reserves.remove(&uid) {
            if reserve.based_on == input::version(&workload.metadata) {
                let body = status::reserved(workload, &reserve.admission, now);
                self.patch_workload(
                    unit,
                    workload,
                    body,
                    Subresource::Status,
                    Priority::Normal,
                    Some(reserve.id),
                );
                return;
            }
            self.engine.written(reserve.id, Outcome::Unsettled);
        }
        if self.scheduled.contains(unit) {
            return;
        }
        let waits = !workload.holds(tokens::QUOTA_RESERVED) && !workload.holds(tokens::FINISHED);
        let Some(reason) = self.reasons.remove(&uid).filter(|_| waits) else { return };
        if let Some(body) = status::pending(workload, &reason, now) {
            self.patch_workload(unit, workload, body, Subresource::Status, Priority::Status, None);
        }
    }

    fn begin_step(&mut self, unit: &Unit, job: Option<&Job>, workload: Option<&Workload>, step: Step) {
        let now = self.ctx.clock.now();
        match (step, job, workload) {
            (Step::Stop, Some(job), workload) => {
                let sets = job.view.pod_sets.clone().unwrap_or_default();
                if let Some(body) = stop(job.kind, &job.object, &sets, workload) {
                    self.patch_job(unit, job, workload, body);
                }
            }
            (Step::CreateWorkload, Some(job), None) => match compose(job, &self.world.priorities) {
                Ok(body) => self.create_workload(unit, job, body),
                Err(words) => self.cannot_compose(unit, job, &words),
            },
            (Step::CannotCompose(words), Some(job), _) => self.cannot_compose(unit, job, &words),
            (Step::Start, Some(job), Some(workload)) => self.start_job(unit, job, workload),
            (Step::Finish { reason, message }, _, Some(workload)) => {
                let body = status::finished(workload, reason, &message, now);
                self.patch_workload(unit, workload, body, Subresource::Status, Priority::Urgent, None);
            }
            (Step::Release, _, Some(workload)) => {
                let body = status::released(workload, now);
                self.patch_workload(unit, workload, body, Subresource::Status, Priority::Urgent, None);
            }
            (Step::RemoveFinalizer, _, Some(workload)) => {
                let kept: Vec<&String> = workload
                    .metadata
                    .finalizers
                    .iter()
                    .flatten()
                    .filter(|one| *one != kueue::FINALIZER_RESOURCE_IN_USE)
                    .collect();
                let body = json!({ "metadata": { "finalizers": kept } });
                self.patch_workload(unit, workload, body, Subresource::Main, Priority::Urgent, None);
            }
            (Step::ChangeQueue(queue), _, Some(workload)) => {
                let body = json!({ "spec": { "queueName": queue } });
                self.patch_workload(unit, workload, body, Subresource::Main, Priority::Normal, None);
            }
            (Step::ChangePriority, Some(job), Some(workload)) => {
                if let Ok(priority) = self.world.priorities.of(job) {
                    let body = json!({
                        "spec": { "priority": priority.value, "priorityClassRef": priority.class_ref() }
                    });
                    self.patch_workload(unit, workload, body, Subresource::Main, Priority::Normal, None);
                }
            }
            (Step::DeleteWorkload, _, Some(workload)) => self.delete_workload(unit, workload),
            _ => {}
        }
    }

    fn start_job(&mut self, unit: &Unit, job: &Job, workload: &Workload) {
        let sets = job.view.pod_sets.clone().unwrap_or_default();
        match start(job.kind, &job.object, &sets, workload, &self.world.flavors_by_name) {
            Ok(Some(body)) => self.patch_job(unit, job, Some(workload), body),
            Ok(None) => {}
            Err(conflict) => {
                let now = self.ctx.clock.now();
                let body =
                    status::finished(workload, tokens::finished::FAILED_TO_START, &conflict.to_string(), now);
                self.patch_workload(unit, workload, body, Subresource::Status, Priority::Normal, None);
            }
        }
    }

    fn cannot_compose(&mut self, unit: &Unit, job: &Job, words: &str) {
        tracing::warn!(
            kind = job.kind.kind,
            namespace = job.object.metadata.namespace,
            name = job.object.metadata.name,
            reason = words,
            "the job cannot be described as a Workload and stays suspended"
        );
        self.announce_cannot_compose(job, words);
        self.remember_refused(unit, versions(Some(job), None), super::REFUSED_DELAY);
    }

    fn patch_workload(
        &mut self,
        unit: &Unit,
        workload: &Workload,
        body: Value,
        part: Subresource,
        priority: Priority,
        decision: Option<DecisionId>,
    ) {
        let namespace = workload.metadata.namespace.as_deref().unwrap_or_default();
        let api = Api::<Workload>::namespaced(self.ctx.clients.write.clone(), namespace);
        let target = target(&workload.metadata);
        let op =
            Op { decision, reads: false, about: about(workload), versions: self.versions_of(unit, workload) };
        let send = move || {
            let (api, target, body) = (api.clone(), target.clone(), body.clone());
            async move {
                patch::merge(&api, &target, body, part).await.map(|view| Answer::Workload(Box::new(view)))
            }
        };
        self.submit(unit, priority, op, send);
    }

    fn versions_of(&self, unit: &Unit, workload: &Workload) -> String {
        let job = match unit {
            Unit::Job(uid) => self.world.job(uid),
            _ => None,
        };
        versions(job, Some(workload))
    }

    fn patch_job(&mut self, unit: &Unit, job: &Job, workload: Option<&Workload>, body: Value) {
        let (kind, metadata) = (job.kind, &job.object.metadata);
        let namespace = text(metadata.namespace.as_ref());
        let api = Api::<JobObject>::namespaced_with(
            self.ctx.clients.write.clone(),
            &namespace,
            &JobResource::from(kind),
        );
        let target = target(metadata);
        let about = About::Job { kind, namespace, name: target.name.clone() };
        let body = self.planted_body(body);
        let op = Op { decision: None, reads: false, about, versions: versions(Some(job), workload) };
        let send = move || {
            let (api, target, body) = (api.clone(), target.clone(), body.clone());
            async move {
                let object = patch::merge(&api, &target, body, Subresource::Main).await?;
                Ok(Answer::Job(kind, Box::new(object)))
            }
        };
        self.submit(unit, Priority::Normal, op, send);
    }

    fn create_workload(&mut self, unit: &Unit, job: &Job, body: Value) {
        let namespace = text(job.object.metadata.namespace.as_ref());
        let name = body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let api = Api::<Workload>::namespaced(self.ctx.clients.write.clone(), &namespace);
        let op = Op {
            decision: None,
            reads: false,
            about: About::Workload { namespace, name },
            versions: versions(Some(job), None),
        };
        let send = move || {
            let (api, body) = (api.clone(), body.clone());
            async move { patch::create(&api, &body).await.map(|view| Answer::Workload(Box::new(view))) }
        };
        self.submit(unit, Priority::Normal, op, send);
    }

    fn delete_workload(&mut self, unit: &Unit, workload: &Workload) {
        let namespace = workload.metadata.namespace.as_deref().unwrap_or_default();
        let api = Api::<Workload>::namespaced(self.ctx.clients.write.clone(), namespace);
        let target = target(&workload.metadata);
        let op = Op {
            decision: None,
            reads: false,
            about: about(workload),
            versions: self.versions_of(unit, workload),
        };
        let send = move || {
            let (api, target) = (api.clone(), target.clone());
            async move { patch::delete(&api, &target, None).await.map(|()| Answer::Nothing) }
        };
        self.submit(unit, Priority::Normal, op, send);
    }

    fn pump_status(&mut self, unit: &Unit) {
        let now = self.ctx.clock.now();
        let client = self.ctx.clients.write.clone();
        let op = |versions| Op { decision: None, reads: false, about: About::Status, versions };
        match unit {
            Unit::ClusterQueue(name) => {
                let Some(view) = self.world.cluster_queue(name) else { return };
                let Some(report) = self.engine.cluster_queue_report(name) else { return };
                let Some(body) =
                    status::cluster_queue(view, &report, now).or_else(|| self.planted_status(view))
                else {
                    if self.config.planted.is(Bug::RewriteStatus) {
                        self.schedule(unit.clone(), super::STATUS_DELAY);
                    }
                    return;
                };
                let target = target(&view.metadata);
                let op = op(text(view.metadata.resource_version.as_ref()));
                let api = Api::<ClusterQueue>::all(client);
                self.submit(unit, Priority::Status, op, move || {
                    let (api, target, body) = (api.clone(), target.clone(), body.clone());
                    async move {
                        let view = patch::merge(&api, &target, body, Subresource::Status).await?;
                        Ok(Answer::ClusterQueue(Box::new(view)))
                    }
                });
            }
            Unit::LocalQueue(key) => {
                let Some(view) = self.world.local_queue(key) else { return };
                let Some(report) = self.engine.local_queue_report(key) else { return };
                let Some(body) = status::local_queue(view, &report, now) else { return };
                let target = target(&view.metadata);
                let op = op(text(view.metadata.resource_version.as_ref()));
                let api = Api::<LocalQueue>::namespaced(client, &key.namespace);
                self.submit(unit, Priority::Status, op, move || {
                    let (api, target, body) = (api.clone(), target.clone(), body.clone());
                    async move {
                        let view = patch::merge(&api, &target, body, Subresource::Status).await?;
                        Ok(Answer::LocalQueue(Box::new(view)))
                    }
                });
            }
            Unit::Job(_) | Unit::Workload(_) => {}
        }
    }

    /// With a bug planted, a status that says nothing new, once a second.
    fn planted_status(&self, view: &ClusterQueue) -> Option<Value> {
        let second = self.ctx.clock.now().as_second();
        let stamp =
            |time: i64| jiff::Timestamp::from_second(time).map(|time| time.to_string()).unwrap_or_default();
        let old = view.status.conditions.first()?;
        let due = old.last_transition_time.0.as_second() < second;
        (self.config.planted.is(Bug::RewriteStatus) && due).then(|| {
            let mut conditions = json!(view.status.conditions);
            conditions[0]["lastTransitionTime"] = json!(stamp(second));
            json!({ "status": { "conditions": conditions } })
        })
    }

    fn submit<F, A>(&mut self, unit: &Unit, priority: Priority, op: Op, send: F)
    where
        F: FnMut() -> A + Send + 'static,
        A: Future<Output = Result<Answer, WriteError>> + Send + 'static,
    {
        if self.writes.submit(priority, unit.clone(), send).is_ok() {
            self.busy.insert(unit.clone(), op);
        } else {
            if let Some(id) = op.decision {
                self.engine.written(id, Outcome::NotWritten);
            }
            self.world.dirty.insert(unit.clone());
        }
    }

    /// Takes in how a write ended.
    pub(super) fn done(&mut self, done: Done<Unit, Answer>) {
        let unit = done.key.clone();
        let Some(op) = self.busy.remove(&unit) else { return };
        self.world.dirty.insert(unit.clone());
        match done.result {
            Ok(answer) => {
                if !op.reads {
                    self.refused.remove(&unit);
                    return self.take_answer(op.decision, answer);
                }
                let seen = matches!(answer, Answer::Workload(_));
                self.take_answer(None, answer);
                if let Some(id) = op.decision {
                    // If the object had changed, the engine has settled the decision by itself.
                    self.engine.written(id, if seen { Outcome::NotWritten } else { Outcome::Unsettled });
                }
            }
            Err(failure) => self.failed(unit, op, failure, done.attempts),
        }
    }

    fn take_answer(&mut self, decision: Option<DecisionId>, answer: Answer) {
        match answer {
            Answer::Workload(view) => {
                if let Some(id) = decision {
                    self.engine.written(id, Outcome::Written(input::version(&view.metadata)));
                }
                self.announce(self.world.workloads.get(&input::uid(&view.metadata)), &view);
                self.world.take_workload(&mut self.engine, *view);
            }
            Answer::Job(kind, object) => {
                let done_uid = Uid::from(object.uid());
                let before = self.world.job(&done_uid).map(|job| job.view.suspended);
                self.world.take_job_answer(kind, *object);
                self.announce_job(&done_uid, before);
            }
            Answer::ClusterQueue(view) => self.world.take_cluster_queue(*view),
            Answer::LocalQueue(view) => self.world.take_local_queue(*view),
            Answer::Nothing => {}
        }
    }

    fn failed(&mut self, unit: Unit, op: Op, failure: Failure, attempts: u32) {
        tracing::debug!(?unit, %failure, attempts, "a write failed");
        match failure {
            Failure::Error(WriteError::Refused(status)) => {
                tracing::warn!(?unit, status = %status.message, "the API server refuses a write");
                match op.decision {
                    Some(id) => self.engine.written(id, Outcome::Refused(status.message.clone())),
                    None => {
                        self.announce_refused(&unit, &status.message);
                        self.remember_refused(&unit, op.versions, super::REFUSED_DELAY);
                    }
                }
            }
            Failure::Error(_) if matches!(op.about, About::Status) => {
                // The watch brings what is new; the status is worked out anew then, or with the next change.
                self.world.dirty.remove(&unit);
                self.schedule(unit, super::STATUS_DELAY);
            }
            // Only the object itself knows.
            Failure::Error(error) => {
                if !error.is_transient() && op.decision.is_none() {
                    self.remember_refused(&unit, op.versions.clone(), super::CONFLICT_DELAY);
                }
                self.read_again(unit, op);
            }
            Failure::NotLeading | Failure::Stopping | Failure::Shed => {
                if let Some(id) = op.decision {
                    if attempts == 0 {
                        self.engine.written(id, Outcome::NotWritten);
                    } else {
                        self.unsettled.insert(id);
                    }
                }
            }
        }
    }

    /// Reads the object that a write was about: whether it happened, and what it rests on now.
    fn read_again(&mut self, unit: Unit, op: Op) {
        let client = self.ctx.clients.write.clone();
        let about = op.about.clone();
        let send = move || {
            let (client, about) = (client.clone(), about.clone());
            async move {
                match about {
                    About::Workload { namespace, name } => {
                        let view = Api::<Workload>::namespaced(client, &namespace).get_opt(&name).await?;
                        Ok::<_, WriteError>(
                            view.map_or(Answer::Nothing, |view| Answer::Workload(Box::new(view))),
                        )
                    }
                    About::Job { kind, namespace, name } => {
                        let resource = JobResource::from(kind);
                        let api = Api::<JobObject>::namespaced_with(client, &namespace, &resource);
                        let object = api.get_opt(&name).await?;
                        Ok(object.map_or(Answer::Nothing, |object| Answer::Job(kind, Box::new(object))))
                    }
                    About::Status => Ok(Answer::Nothing),
                }
            }
        };
        self.world.dirty.remove(&unit);
        self.submit(&unit, Priority::Urgent, Op { reads: true, ..op }, send);
    }
}

/// What a step was worked out from.
fn versions(job: Option<&Job>, workload: Option<&Workload>) -> String {
    let of = |metadata: Option<&ObjectMeta>| text(metadata.and_then(|one| one.resource_version.as_ref()));
    format!("{}/{}", of(job.map(|job| &job.object.metadata)), of(workload.map(|one| &one.metadata)))
}
