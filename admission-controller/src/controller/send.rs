//! One request for each step.

use crds::view::workload::Workload;
use kit::patch::{self, Subresource, Target, WriteError};
use kit::writes::Priority;
use kube::Api;
use model::planted::Bug;
use quota_engine::{DecisionId, Outcome};
use serde_json::Value;

use super::Controller;
use super::pump::{About, Answer, Before, Op, about, target, text, versions};
use super::world::Unit;
use crate::jobs::{JobObject, JobResource};
use crate::reconcile::Job;

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
        let op = Op {
            decision,
            reads: false,
            about: about(workload),
            versions: self.versions_of(unit, workload),
            before: Before::Workload(Box::new(workload.clone())),
        };
        let send = move || {
            let (api, target, body) = (api.clone(), target.clone(), body.clone());
            async move {
                patch::merge(&api, &target, body, part).await.map(|view| Answer::Workload(Box::new(view)))
            }
        };
        self.submit(unit, priority, op, send);
    }

    pub(super) fn versions_of(&self, unit: &Unit, workload: &Workload) -> String {
        let job = match unit {
            Unit::Job(uid) => self.world.job(uid),
            Unit::Pods(key) => return self.versions_of_pods(key, Some(workload)),
            _ => None,
        };
        versions(job, Some(workload))
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
        let api = Api::<JobObject>::namespaced_with(
            self.ctx.clients.write.clone(),
            &namespace,
            &JobResource::from(kind),
        );
        let mut target = target(metadata);
        if self.config.planted.is(Bug::WriteByName) {
            target = Target::new(target.name, "");
        }
        let about = About::Job { kind, namespace, name: target.name.clone() };
        let op = Op {
            decision: None,
            reads: false,
            about,
            versions: versions(Some(job), workload),
            before: Before::Job(job.view.suspended),
        };
        let send = move || {
            let (api, target, body) = (api.clone(), target.clone(), body.clone());
            async move {
                let object = patch::merge(&api, &target, body, part).await?;
                Ok(Answer::Job(kind, Box::new(object)))
            }
        };
        self.submit(unit, Priority::Normal, op, send);
    }

    pub(super) fn create_workload(&mut self, unit: &Unit, job: &Job, body: Value) {
        self.create_workload_for(unit, job, body, versions(Some(job), None));
    }

    pub(super) fn create_workload_for(&mut self, unit: &Unit, job: &Job, body: Value, versions: String) {
        let namespace = text(job.object.metadata.namespace.as_ref());
        let name = body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let api = Api::<Workload>::namespaced(self.ctx.clients.write.clone(), &namespace);
        let op = Op {
            decision: None,
            reads: false,
            about: About::Workload { namespace, name },
            versions,
            before: Before::Nothing,
        };
        let send = move || {
            let (api, body) = (api.clone(), body.clone());
            async move { patch::create(&api, &body).await.map(|view| Answer::Workload(Box::new(view))) }
        };
        self.submit(unit, Priority::Normal, op, send);
    }

    pub(super) fn delete_workload(&mut self, unit: &Unit, workload: &Workload) {
        let namespace = workload.metadata.namespace.as_deref().unwrap_or_default();
        let api = Api::<Workload>::namespaced(self.ctx.clients.write.clone(), namespace);
        let target = target(&workload.metadata);
        let op = Op {
            decision: None,
            reads: false,
            about: about(workload),
            versions: self.versions_of(unit, workload),
            before: Before::Workload(Box::new(workload.clone())),
        };
        let send = move || {
            let (api, target) = (api.clone(), target.clone());
            async move { patch::delete(&api, &target, None).await.map(|()| Answer::Nothing) }
        };
        self.submit(unit, Priority::Normal, op, send);
    }

    /// Deletes a job; what it made goes after it.
    pub(super) fn delete_job(&mut self, unit: &Unit, job: &Job, workload: &Workload) {
        let (kind, metadata) = (job.kind, &job.object.metadata);
        let namespace = text(metadata.namespace.as_ref());
        let client = self.ctx.clients.write.clone();
        let api = Api::<JobObject>::namespaced_with(client, &namespace, &JobResource::from(kind));
        let target = target(metadata);
        let op = Op {
            decision: None,
            reads: false,
            about: About::Job { kind, namespace, name: target.name.clone() },
            versions: versions(Some(job), Some(workload)),
            before: Before::Nothing,
        };
        let send = move || {
            let (api, target) = (api.clone(), target.clone());
            async move { patch::delete(&api, &target, None).await.map(|()| Answer::Nothing) }
        };
        self.submit(unit, Priority::Normal, op, send);
    }

    pub(super) fn submit<F, A>(&mut self, unit: &Unit, priority: Priority, op: Op, send: F)
    where
        F: FnMut() -> A + Send + 'static,
        A: Future<Output = Result<Answer, WriteError>> + Send + 'static,
    {
        if self.writes.submit(priority, unit.clone(), send).is_ok() {
            match priority {
                Priority::Status => self.late.wrote(unit),
                Priority::Urgent | Priority::Normal => self.late.decided(self.ctx.clock.monotonic()),
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
