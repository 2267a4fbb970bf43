//! Steps of pods that are managed one by one, and of the objects they were made for.

use std::collections::{BTreeMap, BTreeSet};

use crds::names::kueue;
use crds::reasons::event as reasons;
use crds::reasons::workload as tokens;
use crds::view::workload::Workload;
use kit::events::Severity;
use kit::patch::{self, Subresource};
use kit::writes::Priority;
use kube::Api;
use quota_engine::Uid;
use serde_json::{Value, json};

use super::Controller;
use super::pump::{About, Answer, Before, Op, target, text};
use super::refused::Aim;
use super::send::Patch;
use super::world::{Standing, Unit};
use crate::compose::copy_labels;
use crate::jobs::{JobObject, missing_flavor};
use crate::pods::{
    self, Group, Known, Member, POD, Part, PodOwner, PodStep, PodsKey, PodsStep, Stop, TERMINATION_TARGET,
    compose, start,
};
use crate::reconcile::{Job, Step, change_queue, upkeep};
use crate::status;
use crate::{input, news};

/// What is wrong with an object that names a queue, of an owner without one, where the webhook took it for a part of that owner.
const UNSEEN_OWNER: &str = "no owner of it names a queue, which was not known when it was created, so its pods did not wait for quota \
    and are not counted; delete it, so that its owner makes it again, or restart its pods";

impl Controller {
    /// What happened to a pod is looked at with the pods it is managed with.
    pub(super) fn pods_to_groups(&mut self) {
        let pods: Vec<Unit> =
            self.world.dirty.iter().filter(|unit| matches!(unit, Unit::Pod(_))).cloned().collect();
        for unit in pods {
            self.world.dirty.remove(&unit);
            if let Unit::Pod(uid) = &unit {
                let units = self.world.units_of_pod(uid);
                self.world.dirty.extend(units);
            }
        }
    }

    pub(super) fn pump_pods(&mut self, unit: &Unit, key: &PodsKey) {
        if let PodsKey::One(uid) = key
            && let Some(namespace) = self.world.pod(uid).map(|pod| text(pod.metadata.namespace.as_ref()))
            && (self.let_stranger_go(unit, uid, &namespace)
                || self.let_copies_go(unit, &self.world.workloads_of(uid, Some(&namespace))))
        {
            return;
        }
        let now = self.ctx.clock.now();
        let (workload, is_name_taken) = self.world.workload_of_pods(key);
        if !self.unfollowed.is_empty() && self.world.group(key).is_some() {
            workload.iter().for_each(|one| self.forgive(unit, one));
        }
        let Some(group) = self.world.group(key) else {
            if self.begin_leave(unit, None, workload.as_ref()) {
                return;
            }
            let Some(workload) = workload else { return self.forget(unit) };
            let is_one = matches!(key, PodsKey::One(_));
            if self.without_job(unit, &workload, is_one) || self.follow_class(unit, &workload) {
                return;
            }
            return match is_one {
                true => self.refuse_meanwhile(unit, &workload, "its pod is gone, or is not managed"),
                // Other pods may come.
                false => self.begin_decision(unit, &workload),
            };
        };
        let job = group.as_job(workload.as_ref(), now);
        let priority = self.worth(&job, workload.as_ref());
        let is_without = workload.is_none() && !group.is_group();
        let prebuilt = if is_without { self.prebuilt_of(&job.object) } else { None };
        let known = Known {
            priority: priority.as_ref(),
            is_name_taken,
            prebuilt: prebuilt.as_ref(),
            compared: self.compared.get(unit),
            reclaims: !self.world.rules.ignores_reclaimable(),
            gates: self.world.rules.gates(),
            is_outlived: workload.as_ref().is_some_and(|one| self.is_outlived(one)),
            is_unqueued: self.world.is_unqueued(&job.object),
            ends_orphans: self.config.file.feature_gates.finish_orphaned_workloads,
            now,
        };
        let plan = pods::plan(&group, workload.as_ref(), known);
        let next_lost = group.next_lost(now);
        let composed = matches!(plan.workload, PodsStep::Job(Step::CreateWorkload | Step::UpdateWorkload))
            .then(|| self.compose_pods(&group, &job));
        let is_group = group.is_group();
        if let Some(leaving) = workload.as_ref().filter(|one| self.is_about_to_leave(one)) {
            let is_over = matches!(plan.workload, PodsStep::Job(Step::Finish { .. }));
            if is_over && !self.is_status_refused(unit, leaving) {
                return self.begin_pods_step(unit, &job, Some(leaving), plan.workload, composed);
            }
            if self.tell_ready_before_leaving(unit, plan.ready == Some(true), leaving) {
                return;
            }
        }
        if self.begin_leave(unit, None, workload.as_ref()) {
            return;
        }
        if let Some(at) = next_lost {
            self.wake_at(unit, at);
        }
        for (uid, step) in plan.pods {
            self.begin_pod_step(unit, &uid, is_group, &step, workload.as_ref());
        }
        if self.busy.contains_key(unit) {
            return;
        }
        if let Some(workload) = &workload {
            self.tell_checks_to_pods(unit, key, workload);
            self.tell_missing_class(unit, &job, workload);
        }
        let rests = plan.workload == PodsStep::Job(Step::Nothing);
        if let (Some(workload), Some(ready)) = (workload.as_ref().filter(|_| rests), plan.ready)
            && self.tell_pods(unit, ready, workload)
        {
            return;
        }
        self.begin_pods_step(unit, &job, workload.as_ref(), plan.workload, composed);
    }

    fn compose_pods(&self, group: &Group<'_>, job: &Job) -> Result<Value, String> {
        let mut workload = compose(group, job, &self.world.priorities, self.world.rules.gates())?;
        let members = group.pods.iter().copied().filter(|pod| pod.is_runnable_or_succeeded());
        copy_labels(&mut workload, self.copied_labels(), members)?;
        Ok(workload)
    }

    fn begin_pods_step(
        &mut self,
        unit: &Unit,
        job: &Job,
        workload: Option<&Workload>,
        step: PodsStep,
        composed: Option<Result<Value, String>>,
    ) {
        let Unit::Pods(key) = unit else { return };
        let versions = self.versions_of_pods(key, workload);
        let is_refused = self.is_refused(unit, step.aim(), &versions);
        match (step, workload) {
            (PodsStep::Job(Step::Nothing), Some(workload)) => self.begin_decision(unit, workload),
            (PodsStep::NameConflict, _) => {
                let words = "a Workload of this group's name was made for something else; give the group another name";
                self.tell(unit, job, reasons::WORKLOAD_NAME_CONFLICT, words);
            }
            (PodsStep::Job(step), Some(workload)) if is_refused => {
                self.decide_all_the_same(unit, Some(job), workload, &step);
            }
            (_, Some(workload)) if is_refused => {
                let words =
                    "it cannot be brought in line with its pods, and the API server refuses to change it";
                self.refuse_decision(unit, workload, words);
            }
            _ if is_refused => {}
            (PodsStep::Job(Step::CreateWorkload), None) => match composed {
                Some(Ok(body)) => self.create_workload_for(unit, job, body, versions),
                Some(Err(words)) => self.cannot_compose(unit, job, &words),
                None => {}
            },
            (PodsStep::Job(Step::UpdateWorkload), Some(workload)) => match composed {
                Some(Ok(body)) => self.update_workload(unit, job, workload, &body, false),
                Some(Err(words)) => self.cannot_follow(unit, job, workload, &words),
                None => {}
            },
            (PodsStep::Job(step), workload) => self.begin_step(unit, Some(job), workload, step),
            (PodsStep::AddOwners(uids), Some(workload)) => self.add_owners(unit, workload, &uids),
            (PodsStep::Replacements(change), Some(workload)) => {
                let body = status::with_condition(workload, &change, self.ctx.clock.now());
                self.patch_workload(unit, workload, body, Subresource::Status, Priority::Normal, None);
            }
            (PodsStep::AddOwners(_) | PodsStep::Replacements(_), None) => {}
        }
    }

    fn add_owners(&mut self, unit: &Unit, workload: &Workload, uids: &[Uid]) {
        let mut owners: Vec<Value> =
            workload.metadata.owner_references.iter().flatten().map(|owner| json!(owner)).collect();
        owners.extend(uids.iter().filter_map(|uid| self.world.pod(uid)).map(pods::owner));
        let annotations = json!({ kueue::IS_GROUP_WORKLOAD: "true" });
        let body = json!({ "metadata": { "ownerReferences": owners, "annotations": annotations } });
        if !uids.is_empty() {
            let note = format!("{} more pods belong to it", uids.len());
            self.about_workload(workload, Severity::Normal, reasons::OWNER_REFERENCES_ADDED, &note);
        }
        self.patch_workload(unit, workload, body, Subresource::Main, Priority::Normal, None);
    }

    fn begin_pod_step(
        &mut self,
        unit: &Unit,
        uid: &Uid,
        is_group: bool,
        step: &PodStep,
        workload: Option<&Workload>,
    ) {
        let Some(pod) = self.world.pod(uid) else { return };
        match step {
            PodStep::LetGo => {
                let finalizers = pod.metadata.finalizers.iter().flatten();
                let kept: Vec<&String> = finalizers.filter(|one| *one != kueue::MANAGED).collect();
                let body = json!({ "metadata": { "finalizers": kept } });
                self.patch_pod(uid, "let go", body, Subresource::Main);
            }
            PodStep::Mark(why, message) => {
                let body = self.termination_target(pod, why, message);
                self.patch_pod(uid, "mark", body, Subresource::Status);
            }
            PodStep::Delete => self.delete_pod(uid, reasons::STOPPED, &news::stopped(workload)),
            PodStep::DeleteExcess => {
                self.delete_pod(uid, reasons::EXCESS_POD_DELETED, "its group has enough pods without it");
            }
            PodStep::Retire => self.delete_pod(uid, reasons::DELETED, "deactivated for long enough"),
            PodStep::Start => {
                if let Some(workload) = workload {
                    self.start_pod(unit, uid, is_group, workload);
                }
            }
        }
    }

    fn termination_target(&self, pod: &JobObject, why: &Stop, message: &str) -> Value {
        let now = self.ctx.clock.now();
        let now = jiff::Timestamp::from_second(now.as_second()).unwrap_or(now);
        let conditions = pod.at("/status/conditions").and_then(Value::as_array).into_iter().flatten();
        let mut conditions: Vec<Value> =
            conditions.filter(|one| one["type"] != TERMINATION_TARGET).cloned().collect();
        conditions.push(json!({
            "type": TERMINATION_TARGET,
            "status": "True",
            "reason": why.token(),
            "message": message,
            "lastTransitionTime": now.to_string(),
        }));
        json!({ "status": { "conditions": conditions } })
    }

    fn start_pod(&mut self, unit: &Unit, uid: &Uid, is_group: bool, workload: &Workload) {
        let Some(pod) = self.world.pod(uid) else { return };
        if let Some(flavor) = missing_flavor(workload, &self.world.flavors_by_name) {
            let job = Job { kind: POD, object: pod.clone(), view: crate::jobs::read(POD, pod) };
            let words = format!("it is admitted to ResourceFlavor {flavor}, which does not exist; create it");
            return self.tell(unit, &job, reasons::FLAVOR_NOT_FOUND, &words);
        }
        match start(pod, is_group, workload, self.terms()) {
            Ok(body) => {
                let workload = crate::input::uid(&workload.metadata);
                let before = Before::Gated { pod: uid.clone(), workload, is_group };
                self.patch_pod_after(uid, "start", before, body, Subresource::Main);
            }
            Err(_) if self.busy.contains_key(unit) || self.is_status_refused(unit, workload) => {}
            Err(conflict) => {
                let reason = tokens::finished::FAILED_TO_START;
                let body = status::finished(workload, reason, &conflict.to_string(), self.ctx.clock.now());
                self.patch_workload(unit, workload, body, Subresource::Status, Priority::Normal, None);
            }
        }
    }

    fn patch_pod(&mut self, uid: &Uid, what: &str, body: Value, part: Subresource) {
        self.patch_pod_after(uid, what, Before::Nothing, body, part);
    }

    fn patch_pod_after(&mut self, uid: &Uid, what: &str, before: Before, body: Value, part: Subresource) {
        let Some((op, api, target)) = self.pod_op(uid, what) else { return };
        let op = Op { before, ..op };
        let patch = Patch { api, target, body, part };
        self.submit_patch(&Unit::Pod(uid.clone()), Priority::Normal, op, patch, Answer::Pod);
    }

    fn delete_pod(&mut self, uid: &Uid, reason: &'static str, note: &str) {
        let Some((op, api, target)) = self.pod_op(uid, "delete") else { return };
        if let Some(pod) = self.world.pod(uid) {
            self.about_pod(pod, reason, note);
        }
        let unit = Unit::Pod(uid.clone());
        // What the answer does not tell, the watch does; until then it is not deleted again.
        self.remember_refused(&unit, &op, super::CONFLICT_DELAY);
        self.submit_delete(&unit, Priority::Urgent, op, api, target);
    }

    /// What a write of a pod rests on; `None` while another one is under way, or after it was refused.
    fn pod_op(&self, uid: &Uid, what: &str) -> Option<(Op, Api<JobObject>, patch::Target)> {
        let unit = Unit::Pod(uid.clone());
        let pod = self.world.pod(uid)?;
        let metadata = &pod.metadata;
        let versions = format!("{}/{what}", text(metadata.resource_version.as_ref()));
        let is_refused = self.is_refused(&unit, Aim::Other, &versions);
        if is_refused || self.busy.contains_key(&unit) || self.writes.room() == 0 {
            return None;
        }
        let namespace = text(metadata.namespace.as_ref());
        let api = self.jobs_of(POD, &namespace);
        let about = About::Pod { namespace, name: text(metadata.name.as_ref()) };
        Some((Op::new(about, versions), api, target(metadata)))
    }

    /// What a step of pods was worked out from.
    pub(super) fn versions_of_pods(&self, key: &PodsKey, workload: Option<&Workload>) -> String {
        let newest = self.world.group(key).map(|group| {
            let newest = group.pods.iter().map(|pod| input::version(&pod.metadata)).max().unwrap_or(0);
            format!("{}.{newest}", group.pods.len())
        });
        let version = text(workload.and_then(|one| one.metadata.resource_version.as_ref()));
        format!("{}/{version}", newest.unwrap_or_default())
    }

    pub(super) fn pump_pod_owner(&mut self, unit: &Unit, uid: &Uid) {
        let Some((owner, object)) = self.world.pod_owner(uid) else { return self.forget(unit) };
        let namespace = text(object.metadata.namespace.as_ref());
        let leaving = object.metadata.deletion_timestamp.is_some();
        if leaving || !owner.is_top_level(object) || !self.world.manages(&namespace, object.queue()) {
            return;
        }
        let job =
            Job { kind: owner.kind, object: object.clone(), view: crate::jobs::read(owner.kind, object) };
        // Whose pods wait is settled by the mark, which nobody takes away: they wait for this one's Workloads, whatever becomes of
        // its owner.
        let standing = || self.world.standing(&object.metadata);
        if !owner.is_marked(object) && self.config.file.is_part(&object.metadata) {
            if self.world.has_owner_that_does_not_count(&object.metadata) && standing() == Standing::Own {
                self.tell(unit, &job, reasons::PODS_NOT_GATED, UNSEEN_OWNER);
            }
            return;
        }
        if !owner.is_marked(object) && standing() == Standing::Part {
            return;
        }
        let made: Vec<Workload> = self.world.workloads_made_from(uid, &namespace);
        if made.is_empty() && self.adopt_by_name(unit, owner, &job.object, &namespace) {
            return;
        }
        for (pod, body) in self.world.joins(owner, &job.object, &made) {
            self.patch_pod(&pod, "join", body, Subresource::Main);
        }
        let by_name: BTreeMap<&str, &Workload> =
            made.iter().filter_map(|one| Some((one.metadata.name.as_deref()?, one))).collect();
        let (mut named, mut can_be_made) = (BTreeSet::new(), owner.replicas(&job.object) > 0);
        for part in owner.parts(&job.object, &made) {
            match by_name.get(part.name.as_str()) {
                None if can_be_made => {
                    // What keeps one from being described keeps all.
                    can_be_made = self.make_part(unit, owner, &part, &job);
                    if self.busy.contains_key(unit) {
                        return;
                    }
                }
                None => {}
                Some(workload) if self.keep_part(unit, owner, &part, workload, &job) => return,
                Some(_) => {}
            }
            named.insert(part.name);
        }
        let is_stray = |one: &&Workload| {
            let is_named = one.metadata.name.as_ref().is_some_and(|name| named.contains(name));
            !is_named && one.metadata.deletion_timestamp.is_none()
        };
        let mut strays = made.iter().filter(is_stray);
        if let Some(stray) = strays.find(|one| !self.is_change_refused(unit, one))
            && !self.reads_first(unit, Some(&job), Some(stray), &Step::DeleteWorkload)
        {
            self.delete_workload(unit, stray);
        }
    }

    /// Takes over the Workload of the object's name that nobody owns: an older Kueue made it from its pods, say, or its owners were lost
    /// (`statefulset_reconciler.go`, `findWorkload`).
    fn adopt_by_name(&mut self, unit: &Unit, owner: &PodOwner, object: &JobObject, namespace: &str) -> bool {
        let named = |name: String| self.world.workload_named(namespace, &name);
        let Some(workload) = owner.own_names(object).into_iter().find_map(named) else { return false };
        let Some(body) = owner.adopt(object, &workload) else { return false };
        if self.is_change_refused(unit, &workload) {
            return false;
        }
        self.patch_workload(unit, &workload, body, Subresource::Main, Priority::Normal, None);
        true
    }

    /// Tells whether it could be described.
    fn make_part(&mut self, unit: &Unit, owner: &PodOwner, part: &Part, job: &Job) -> bool {
        let versions = format!("{} {}/", text(job.object.metadata.resource_version.as_ref()), part.name);
        if self.is_refused(unit, Aim::Workload, &versions) {
            return true;
        }
        let gates = self.world.rules.gates();
        let composed = owner.compose(part, job, &self.world.priorities, gates).and_then(|mut body| {
            // Kueue copies none to that of a StatefulSet.
            if owner.is_per_replica() {
                copy_labels(&mut body, self.copied_labels(), [&job.object])?;
            }
            Ok(body)
        });
        match composed {
            Ok(body) => {
                self.create_workload_for(unit, job, body, versions);
                true
            }
            Err(words) => {
                self.cannot_compose(unit, job, &words);
                false
            }
        }
    }

    /// Brings a Workload in line with its object: queue, priority, how many pods it is for, and whether it is wanted at all.
    fn keep_part(
        &mut self,
        unit: &Unit,
        owner: &PodOwner,
        part: &Part,
        workload: &Workload,
        job: &Job,
    ) -> bool {
        if workload.metadata.deletion_timestamp.is_some() || workload.holds(tokens::FINISHED) {
            return false;
        }
        let replicas = owner.replicas(&job.object);
        let wanted = replicas > 0;
        let (reserved, on_hold) = (workload.holds(tokens::QUOTA_RESERVED), input::is_on_hold(workload));
        let (can_say, can_change) =
            (!self.is_status_refused(unit, workload), !self.is_change_refused(unit, workload));
        if can_say && !owner.is_per_replica() && !wanted && reserved {
            let step = Step::Hold("its job is scaled to nothing".to_owned());
            self.begin_step(unit, Some(job), Some(workload), step);
            return true;
        }
        // It may be scaled up from nothing to another size than it had.
        let count = workload.spec.pod_sets.first().map(|set| set.count.unwrap_or(1));
        if !owner.is_per_replica() && wanted && !reserved && count != Some(replicas) {
            if !can_change {
                return false;
            }
            match owner.compose(part, job, &self.world.priorities, self.world.rules.gates()) {
                Ok(body) => self.update_workload(unit, job, workload, &body, false),
                Err(words) => self.cannot_compose(unit, job, &words),
            }
            return self.busy.contains_key(unit);
        }
        if can_say && !owner.is_per_replica() && wanted && on_hold {
            let body = status::off_hold(workload, "it is scaled up again", self.ctx.clock.now());
            self.patch_workload(unit, workload, body, Subresource::Status, Priority::Normal, None);
            return true;
        }
        if !can_change {
            return false;
        }
        if let Some(step) = change_queue(&job.view, workload).filter(|_| wanted) {
            self.begin_step(unit, Some(job), Some(workload), step);
            return self.busy.contains_key(unit);
        }
        self.tell_missing_class(unit, job, workload);
        let priority = self.worth(job, Some(workload));
        let step = upkeep(job, workload, priority.as_ref(), self.world.rules.gates());
        self.begin_step(unit, Some(job), Some(workload), step);
        self.busy.contains_key(unit)
    }
}
