//! One request for each step.

use crds::view::cluster_queue::ClusterQueue;
use crds::view::workload::Workload;
use kit::patch::{self, Subresource, Target, WriteError};
use kit::writes::Priority;
use kube::{Api, Resource};
use model::ResourceList;
use model::planted::Bug;
use quota_engine::{ClusterQueueName, ClusterQueueReport, CohortName, DecisionId, Outcome};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Controller;
use super::finalizers;
use super::pump::{About, Answer, Before, Op, about, target, text, versions};
use super::world::Unit;
use crate::jobs::{JobObject, JobResource};
use crate::metrics::{Owner, Waiting};
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

    /// Writes the finalizer or the status of a queue, whichever is to change first.
    pub(super) fn pump_queue(&mut self, unit: &Unit) {
        let now = self.ctx.clock.now();
        let client = self.ctx.clients.write.clone();
        match unit {
            Unit::ClusterQueue(name) => {
                if self.world.cluster_queue(name).is_none() {
                    let left = self.counted.queues.forget_cluster_queue(name);
                    return self.schedule_cohorts(left);
                }
                let Some(report) = self.engine.cluster_queue_report(name) else { return };
                self.tell_cluster_queue(name, &report);
                let Some(view) = self.world.cluster_queue(name) else { return };
                self.counted.queues.describe(Owner::ClusterQueue, &[name.as_str()], &view.metadata);
                let (api, target) = (Api::all(client), target(&view.metadata));
                if let Some(body) = finalizers::change(&view.metadata, report.reserving > 0) {
                    return self.patch_queue(
                        unit,
                        api,
                        target,
                        body,
                        Subresource::Main,
                        Answer::ClusterQueue,
                    );
                }
                let body = status::cluster_queue(view, &report, now).or_else(|| self.planted_status(view));
                if let Some(body) = body {
                    self.patch_counts(unit, api, target, body, Answer::ClusterQueue);
                } else if self.config.planted.is(Bug::RewriteStatus) {
                    self.schedule(unit.clone(), super::STATUS_DELAY);
                }
            }
            Unit::LocalQueue(key) => {
                let report = self.engine.local_queue_report(key);
                let view = self.world.local_queue(key);
                let labels = view.and_then(|view| view.metadata.labels.as_ref());
                let counts = self.world.tally.of(key);
                self.counted.queues.local_queue(key, labels, report.as_ref(), &counts);
                let (Some(view), Some(report)) = (view, report) else { return };
                let names = [&*key.name, &*key.namespace];
                self.counted.queues.describe(Owner::LocalQueue, &names, &view.metadata);
                let Some(body) = status::local_queue(view, &report, now) else { return };
                let (api, target) = (Api::namespaced(client, &key.namespace), target(&view.metadata));
                self.patch_counts(unit, api, target, body, Answer::LocalQueue);
            }
            Unit::Flavor(name) => {
                let Some(view) = self.world.flavors_by_name.get(name) else { return };
                let in_use = self.world.uses_flavor(name);
                let Some(body) = finalizers::change(&view.metadata, in_use) else { return };
                let target = target(&view.metadata);
                self.patch_queue(unit, Api::all(client), target, body, Subresource::Main, Answer::Flavor);
            }
            Unit::Topology(name) if self.config.file.feature_gates.topology_aware_scheduling => {
                let Some(view) = self.world.ground.topology(name) else { return };
                let in_use = self.world.uses_topology(name);
                let Some(body) = finalizers::change(&view.metadata, in_use) else { return };
                let target = target(&view.metadata);
                self.patch_queue(unit, Api::all(client), target, body, Subresource::Main, Answer::Topology);
            }
            Unit::Topology(_) => {}
            Unit::Check(name) => {
                let Some(view) = self.world.check(name) else { return };
                let in_use = self.world.uses_check(name);
                let target = target(&view.metadata);
                let main = finalizers::change(&view.metadata, in_use).map(|body| (body, Subresource::Main));
                let status = || Some((self.provisioning_status(view)?, Subresource::Status));
                let Some((body, part)) = main.or_else(status) else { return };
                self.patch_queue(unit, Api::all(client), target, body, part, Answer::Check);
            }
            Unit::Cohort(name) => {
                let share = self.engine.cohort_share(name);
                let report = self.engine.cohort_report(name);
                self.counted.queues.cohort(name, share.as_ref(), report.as_ref());
                let Some(view) = self.world.cohort(name) else { return };
                self.counted.queues.describe(Owner::Cohort, &[name.as_str()], &view.metadata);
                let Some(body) = status::cohort(view, share.as_ref()) else { return };
                let target = target(&view.metadata);
                self.patch_counts(unit, Api::all(client), target, body, Answer::Cohort);
            }
            Unit::Job(_)
            | Unit::Workload(_)
            | Unit::Pods(_)
            | Unit::Pod(_)
            | Unit::PodOwner(_)
            | Unit::Places(_)
            | Unit::Gate(_) => {}
        }
    }

    fn tell_cluster_queue(&mut self, name: &ClusterQueueName, report: &ClusterQueueReport) {
        let (metrics, engine) = (&self.counted.queues, &self.engine);
        let waiting = Waiting {
            shapes: if metrics.wants_shapes() { engine.pending_shapes(name) } else { (0, 0) },
            asked: if metrics.wants_asked() { engine.pending_requests(name) } else { ResourceList::new() },
        };
        let cohorts = engine.cohorts_above(name);
        let changed = metrics.cluster_queue(name, report, &cohorts, &waiting);
        self.schedule_cohorts(changed);
    }

    fn schedule_cohorts(&mut self, cohorts: impl IntoIterator<Item = CohortName>) {
        for cohort in cohorts {
            self.schedule(Unit::Cohort(cohort), super::STATUS_DELAY);
        }
    }

    /// Sends a queue's status, unless it is due later anyhow, or too many others were written just now.
    fn patch_counts<K>(
        &mut self,
        unit: &Unit,
        api: Api<K>,
        target: Target,
        body: Value,
        answer: fn(Box<K>) -> Answer,
    ) where
        K: Resource + Clone + DeserializeOwned + Send + Sync + 'static,
    {
        if self.late.is_scheduled(unit) {
            return;
        }
        if self.late.allows_counts(self.ctx.clock.monotonic()) {
            self.patch_queue(unit, api, target, body, Subresource::Status, answer);
        } else {
            self.schedule(unit.clone(), super::STATUS_DELAY);
        }
    }

    /// Sends a merge patch of a queue or a flavor.
    fn patch_queue<K>(
        &mut self,
        unit: &Unit,
        api: Api<K>,
        target: Target,
        body: Value,
        part: Subresource,
        answer: fn(Box<K>) -> Answer,
    ) where
        K: Resource + Clone + DeserializeOwned + Send + Sync + 'static,
    {
        let priority = match part {
            Subresource::Main => Priority::Normal,
            Subresource::Status => Priority::Status,
        };
        let op = Op {
            decision: None,
            reads: false,
            about: About::Queue,
            versions: target.resource_version.clone().unwrap_or_default(),
            before: Before::Nothing,
        };
        self.submit(unit, priority, op, move || {
            let (api, target, body) = (api.clone(), target.clone(), body.clone());
            async move { patch::merge(&api, &target, body, part).await.map(|view| answer(Box::new(view))) }
        });
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
