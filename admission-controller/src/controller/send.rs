//! One request for each step.

use crds::view::workload::Workload;
use kit::patch::{self, Subresource, Target, WriteError};
use kit::writes::Priority;
use kube::{Api, Resource};
use model::planted::Bug;
use quota_engine::{DecisionId, Outcome, Uid};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Controller;
use super::answers::is_strange;
use super::pump::{About, Answer, Before, Op, about, target, text, versions, versions_at};
use super::refused::Aim;
use super::world::Unit;
use crate::jobs::{JobKind, JobObject, JobResource};
use crate::reconcile::Job;

/// A merge patch of an object.
#[derive(Clone)]
pub(super) struct Patch<K> {
    pub(super) api: Api<K>,
    pub(super) target: Target,
    pub(super) body: Value,
    pub(super) part: Subresource,
}

impl Controller {
    pub(super) fn patch_workload(
        &mut self,
        unit: &Unit,
        workload: &Workload,
        body: Value,
        part: Subresource,
        priority: Priority,
        decision: Option<DecisionId>,
    ) {
        let body = self.planted_body(body);
        let namespace = workload.metadata.namespace.as_deref().unwrap_or_default();
        let api = Api::<Workload>::namespaced(self.ctx.clients.write.clone(), namespace);
        let target = target(&workload.metadata);
        let before = Before::Workload(Box::new(workload.clone()));
        let aim = match part {
            Subresource::Status => Aim::Status,
            Subresource::Main => Aim::Workload,
        };
        let op = Op { decision, before, aim, ..Op::new(about(workload), self.versions_of(unit, workload)) };
        self.submit_patch(unit, priority, op, Patch { api, target, body, part }, Answer::Workload);
    }

    pub(super) fn versions_of(&self, unit: &Unit, workload: &Workload) -> String {
        let job = match unit {
            Unit::Job(uid) => self.world.job(uid).map(|job| &job.object),
            Unit::PodOwner(uid) => self.world.pod_owner(uid).map(|(_, object)| object),
            Unit::Pods(key) => return self.versions_of_pods(key, Some(workload)),
            _ => None,
        };
        versions_at(job, Some(workload))
    }

    pub(super) fn patch_job(
        &mut self,
        unit: &Unit,
        job: &Job,
        workload: Option<&Workload>,
        body: Value,
        part: Subresource,
    ) {
        let (kind, metadata) = (job.kind, &job.object.metadata);
        let namespace = text(metadata.namespace.as_ref());
        let api = self.jobs_of(kind, &namespace);
        let mut target = target(metadata);
        if self.config.planted.is(Bug::WriteByName) {
            target = Target::new(target.name, "");
        }
        let about = About::Job { kind, namespace, name: target.name.clone() };
        let before = Before::Job(job.view.suspended);
        let aim = match part {
            Subresource::Status => Aim::JobStatus,
            Subresource::Main => Aim::Other,
        };
        let op = Op { before, aim, ..Op::new(about, versions(Some(job), workload)) };
        let answer = move |object| Answer::Job(kind, object);
        self.submit_patch(unit, Priority::Normal, op, Patch { api, target, body, part }, answer);
    }

    pub(super) fn create_workload(&mut self, unit: &Unit, job: &Job, body: Value) {
        self.create_workload_for(unit, job, body, versions(Some(job), None));
    }

    pub(super) fn create_workload_for(&mut self, unit: &Unit, job: &Job, body: Value, versions: String) {
        let namespace = text(job.object.metadata.namespace.as_ref());
        let name = body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let before = unmade(job);
        let taken = self.world.workload_named(&namespace, &name);
        if let Some(taken) = taken.filter(|taken| is_strange(unit, &before, taken)) {
            return self.name_taken(unit, &taken);
        }
        let api = Api::<Workload>::namespaced(self.ctx.clients.write.clone(), &namespace);
        let op = Op { before, ..Op::new(About::Workload { namespace, name }, versions) };
        let is_named_anew = self.config.planted.is(Bug::NameAnew) && matches!(unit, Unit::Job(_));
        let names = is_named_anew.then(|| self.ctx.rng.fork());
        let send = move || {
            let (api, mut body) = (api.clone(), body.clone());
            if let Some(names) = &names {
                body["metadata"]["name"] = names.suffix(8).into();
            }
            async move { patch::create(&api, &body).await.map(|view| Answer::Workload(Box::new(view))) }
        };
        self.submit(unit, Priority::Normal, op, send);
    }

    pub(super) fn delete_workload(&mut self, unit: &Unit, workload: &Workload) {
        let namespace = workload.metadata.namespace.as_deref().unwrap_or_default();
        let api = Api::<Workload>::namespaced(self.ctx.clients.write.clone(), namespace);
        let target = target(&workload.metadata);
        let before = Before::Workload(Box::new(workload.clone()));
        let op = Op { before, ..Op::new(about(workload), self.versions_of(unit, workload)) };
        self.submit_delete(unit, Priority::Normal, op, api, target);
    }

    /// Deletes a job; what it made goes after it.
    pub(super) fn delete_job(&mut self, unit: &Unit, job: &Job, workload: &Workload) {
        let (kind, metadata) = (job.kind, &job.object.metadata);
        let namespace = text(metadata.namespace.as_ref());
        let api = self.jobs_of(kind, &namespace);
        let target = target(metadata);
        let about = About::Job { kind, namespace, name: target.name.clone() };
        let op = Op::new(about, versions(Some(job), Some(workload)));
        self.submit_delete(unit, Priority::Normal, op, api, target);
    }

    /// The jobs of a kind in a namespace.
    pub(super) fn jobs_of(&self, kind: &JobKind, namespace: &str) -> Api<JobObject> {
        let client = self.ctx.clients.write.clone();
        Api::namespaced_with(client, namespace, &JobResource::from(kind))
    }

    /// Sends a merge patch; `answer` is what its answer says.
    pub(super) fn submit_patch<K>(
        &mut self,
        unit: &Unit,
        priority: Priority,
        op: Op,
        patch: Patch<K>,
        answer: impl Fn(Box<K>) -> Answer + Clone + Send + 'static,
    ) where
        K: Resource + Clone + DeserializeOwned + Send + Sync + 'static,
    {
        self.submit(unit, priority, op, move || {
            let (patch, answer) = (patch.clone(), answer.clone());
            async move {
                let Patch { api, target, body, part } = patch;
                patch::merge(&api, &target, body, part).await.map(|object| answer(Box::new(object)))
            }
        });
    }

    /// Deletes an object.
    pub(super) fn submit_delete<K>(
        &mut self,
        unit: &Unit,
        priority: Priority,
        op: Op,
        api: Api<K>,
        target: Target,
    ) where
        K: Resource + Clone + Send + Sync + 'static,
    {
        self.submit(unit, priority, op, move || {
            let (api, target) = (api.clone(), target.clone());
            async move { patch::delete(&api, &target, None).await.map(|()| Answer::Nothing) }
        });
    }

    pub(super) fn submit<F, A>(&mut self, unit: &Unit, priority: Priority, mut op: Op, send: F)
    where
        F: FnMut() -> A + Send + 'static,
        A: Future<Output = Result<Answer, WriteError>> + Send + 'static,
    {
        if self.writes.submit(priority, op.about.namespace(), unit.clone(), send).is_ok() {
            let now = self.ctx.clock.monotonic();
            op.begun = Some(now);
            match priority {
                Priority::Status => self.late.wrote(unit),
                Priority::Urgent | Priority::Normal => self.late.decided(now),
            }
            self.busy.insert(unit.clone(), op);
        } else {
            if let Some(id) = op.decision {
                self.engine.written(id, Outcome::NotWritten);
            }
            self.world.dirty.insert(unit.clone());
        }
    }
}

fn unmade(job: &Job) -> Before {
    let metadata = &job.object.metadata;
    let made = metadata.creation_timestamp.as_ref().filter(|_| metadata.generation.unwrap_or(1) <= 1);
    Before::Unmade { kind: job.kind, job: Uid::from(job.object.uid()), since: made.map(|made| made.0) }
}
