//! One request for each step.

use crds::view::cluster_queue::ClusterQueue;
use crds::view::local_queue::LocalQueue;
use crds::view::workload::Workload;
use kit::patch::{self, Subresource, WriteError};
use kit::writes::Priority;
use kube::Api;
use model::planted::Bug;
use quota_engine::{DecisionId, Outcome};
use serde_json::{Value, json};

use super::Controller;
use super::pump::{About, Answer, Before, Op, about, target, text, versions};
use super::world::Unit;
use crate::jobs::{JobObject, JobResource};
use crate::reconcile::Job;
use crate::status;

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
        let target = target(metadata);
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
        let namespace = text(job.object.metadata.namespace.as_ref());
        let name = body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let api = Api::<Workload>::namespaced(self.ctx.clients.write.clone(), &namespace);
        let op = Op {
            decision: None,
            reads: false,
            about: About::Workload { namespace, name },
            versions: versions(Some(job), None),
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

    pub(super) fn pump_status(&mut self, unit: &Unit) {
        let now = self.ctx.clock.now();
        let client = self.ctx.clients.write.clone();
        let op = |versions| Op {
            decision: None,
            reads: false,
            about: About::Queue,
            versions,
            before: Before::Nothing,
        };
        match unit {
            Unit::ClusterQueue(name) => {
                let Some(view) = self.world.cluster_queue(name) else {
                    return self.counted.queues.forget(name.as_str());
                };
                let Some(report) = self.engine.cluster_queue_report(name) else { return };
                self.counted.queues.cluster_queue(name.as_str(), &report);
                let view = view.clone();
                if self.protect_cluster_queue(unit, &view, report.reserving > 0) {
                    return;
                }
                let view = &view;
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
            Unit::Job(_) | Unit::Workload(_) | Unit::Flavor(_) => {}
        }
    }

    /// With a bug planted, a status that says nothing new, once a second.
    pub(super) fn planted_status(&self, view: &ClusterQueue) -> Option<Value> {
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

    pub(super) fn submit<F, A>(&mut self, unit: &Unit, priority: Priority, op: Op, send: F)
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
}
