//! Queues and what belongs to them: their finalizers, their status, and what is measured of them.

use crds::view::cluster_queue::ClusterQueue;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kit::patch::{Subresource, Target};
use kit::writes::Priority;
use kube::{Api, Client, Resource};
use model::ResourceList;
use model::planted::Bug;
use quota_engine::{CheckName, ClusterQueueName, ClusterQueueReport, CohortName, FlavorName, LocalQueueKey};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::finalizers;
use super::pump::{About, Answer, Op, target};
use super::send::Patch;
use super::world::Unit;
use super::{Controller, STATUS_DELAY};
use crate::metrics::{Owner, Waiting};
use crate::status;

impl Controller {
    /// Writes the finalizer or the status of a queue, whichever is to change first.
    pub(super) fn pump_queue(&mut self, unit: &Unit) {
        match unit {
            Unit::ClusterQueue(name) => self.pump_cluster_queue(unit, name),
            Unit::LocalQueue(key) => self.pump_local_queue(unit, key),
            Unit::Flavor(name) => self.pump_flavor(unit, name),
            Unit::Topology(name) => self.pump_topology(unit, name),
            Unit::Check(name) => self.pump_check(unit, name),
            Unit::Cohort(name) => self.pump_cohort(unit, name),
            Unit::Job(_)
            | Unit::Workload(_)
            | Unit::Pods(_)
            | Unit::Pod(_)
            | Unit::PodOwner(_)
            | Unit::Places(_)
            | Unit::Gate(_) => {}
        }
    }

    /// The series of a queue or cohort go with it. Who looks only later finds another of its name perhaps, made again since; what is to
    /// be told of that, or of queues that name a cohort still, is told with its next status.
    pub(super) fn uncount(&mut self, unit: Unit) {
        match &unit {
            Unit::ClusterQueue(name) => {
                let left = self.counted.queues.forget_cluster_queue(name);
                self.schedule_cohorts(left);
            }
            Unit::LocalQueue(key) => self.counted.queues.forget_local_queue(key),
            Unit::Cohort(name) => self.counted.queues.forget_cohort(name),
            _ => {}
        }
        self.schedule(unit, STATUS_DELAY);
    }

    fn pump_cluster_queue(&mut self, unit: &Unit, name: &ClusterQueueName) {
        if self.world.cluster_queue(name).is_none() {
            let left = self.counted.queues.forget_cluster_queue(name);
            return self.schedule_cohorts(left);
        }
        let Some(report) = self.engine.cluster_queue_report(name) else { return };
        self.tell_cluster_queue(name, &report);
        let Some(view) = self.world.cluster_queue(name) else { return };
        self.counted.queues.describe(Owner::ClusterQueue, &[name.as_str()], &view.metadata);
        let (api, target) = (Api::all(self.client()), target(&view.metadata));
        if let Some(body) = finalizers::change(&view.metadata, report.reserving > 0) {
            return self.patch_queue(unit, api, target, body, Subresource::Main, Answer::ClusterQueue);
        }
        let body = status::cluster_queue(view, &report, self.ctx.clock.now());
        if let Some(body) = body.or_else(|| self.planted_status(view)) {
            let is_news = is_news(&view.status.conditions, &body);
            self.patch_counts(unit, (api, target), body, is_news, Answer::ClusterQueue);
        } else if self.config.planted.is(Bug::RewriteStatus) {
            self.schedule(unit.clone(), STATUS_DELAY);
        }
    }

    fn pump_local_queue(&mut self, unit: &Unit, key: &LocalQueueKey) {
        let report = self.engine.local_queue_report(key);
        let view = self.world.local_queue(key);
        let labels = view.and_then(|view| view.metadata.labels.as_ref());
        let counts = self.world.tally.of(key);
        self.counted.queues.local_queue(key, labels, report.as_ref(), &counts);
        let (Some(view), Some(report)) = (view, report) else { return };
        let names = [&*key.name, &*key.namespace];
        self.counted.queues.describe(Owner::LocalQueue, &names, &view.metadata);
        let Some(body) = status::local_queue(view, &report, self.ctx.clock.now()) else { return };
        let (api, target) = (Api::namespaced(self.client(), &key.namespace), target(&view.metadata));
        let is_news = is_news(&view.status.conditions, &body);
        self.patch_counts(unit, (api, target), body, is_news, Answer::LocalQueue);
    }

    fn pump_flavor(&mut self, unit: &Unit, name: &FlavorName) {
        let Some(view) = self.world.flavors_by_name.get(name.as_str()) else { return };
        let in_use = self.world.uses_flavor(name.as_str());
        let Some(body) = finalizers::change(&view.metadata, in_use) else { return };
        let (api, target) = (Api::all(self.client()), target(&view.metadata));
        self.patch_queue(unit, api, target, body, Subresource::Main, Answer::Flavor);
    }

    fn pump_topology(&mut self, unit: &Unit, name: &str) {
        if !self.config.file.feature_gates.topology_aware_scheduling {
            return;
        }
        let Some(view) = self.world.ground.topology(name) else { return };
        let in_use = self.world.uses_topology(name);
        let Some(body) = finalizers::change(&view.metadata, in_use) else { return };
        let (api, target) = (Api::all(self.client()), target(&view.metadata));
        self.patch_queue(unit, api, target, body, Subresource::Main, Answer::Topology);
    }

    fn pump_check(&mut self, unit: &Unit, name: &CheckName) {
        let Some(view) = self.world.check(name) else { return };
        let in_use = self.world.uses_check(name);
        let main = finalizers::change(&view.metadata, in_use).map(|body| (body, Subresource::Main));
        let status = || Some((self.provisioning_status(view)?, Subresource::Status));
        let Some((body, part)) = main.or_else(status) else { return };
        let (api, target) = (Api::all(self.client()), target(&view.metadata));
        self.patch_queue(unit, api, target, body, part, Answer::Check);
    }

    fn pump_cohort(&mut self, unit: &Unit, name: &CohortName) {
        let share = self.engine.cohort_share(name);
        let report = self.engine.cohort_report(name);
        self.counted.queues.cohort(name, share.as_ref(), report.as_ref());
        let Some(view) = self.world.cohort(name) else { return };
        self.counted.queues.describe(Owner::Cohort, &[name.as_str()], &view.metadata);
        let Some(body) = status::cohort(view, share.as_ref()) else { return };
        let (api, target) = (Api::all(self.client()), target(&view.metadata));
        self.patch_counts(unit, (api, target), body, false, Answer::Cohort);
    }

    fn client(&self) -> Client {
        self.ctx.clients.write.clone()
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
            self.schedule(Unit::Cohort(cohort), STATUS_DELAY);
        }
    }

    /// Sends a queue's status, unless it is due later anyhow; when its turn comes, where too many others were written just now. Whether
    /// it admits anybody is told at once.
    fn patch_counts<K>(
        &mut self,
        unit: &Unit,
        (api, target): (Api<K>, Target),
        body: Value,
        is_news: bool,
        answer: fn(Box<K>) -> Answer,
    ) where
        K: Resource + Clone + DeserializeOwned + Send + Sync + 'static,
    {
        let now = self.ctx.clock.monotonic();
        let is_told = is_news && self.late.allows_news(now);
        if !is_told && self.late.is_scheduled(unit) {
            return;
        }
        if is_told || self.late.allows_counts(now) {
            self.patch_queue(unit, api, target, body, Subresource::Status, answer);
        } else {
            self.late.hold(unit);
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
        let op = Op::new(About::Queue, target.resource_version.clone().unwrap_or_default());
        self.submit_patch(unit, priority, op, Patch { api, target, body, part }, answer);
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
}

/// Whether more than counts and words change.
fn is_news(seen: &[Condition], body: &Value) -> bool {
    let wanted = body.pointer("/status/conditions").and_then(Value::as_array);
    let is_said = |one: &Value| {
        seen.iter().any(|seen| {
            one["type"] == *seen.type_ && one["status"] == *seen.status && one["reason"] == *seen.reason
        })
    };
    wanted.is_some_and(|all| !all.iter().all(is_said))
}
