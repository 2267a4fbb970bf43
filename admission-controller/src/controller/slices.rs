//! Steps of elastic jobs: see [`slices`](crate::slices).

use std::collections::BTreeMap;

use crds::names::kueue;
use crds::reasons::event as reasons;
use crds::reasons::workload as tokens;
use crds::view::workload::Workload;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kit::events::Severity;
use kit::patch::{self, Subresource, Target, WriteError};
use kit::writes::Priority;
use kube::Api;
use kube::core::{ApiResource, DynamicObject};
use model::planted::Bug;
use quota_engine::Uid;
use serde_json::{Value, json};

use super::Controller;
use super::pump::{Answer, Before, Op, about, target, text, versions};
use super::refused::Aim;
use super::world::Unit;
use super::world::slices::SlicePod;
use crate::compose;
use crate::jobs::JobPodSet;
use crate::pods::prebuilt;
use crate::reconcile::{self, Job, Step, upkeep};
use crate::slices::{self, Marks, Plan};

impl Controller {
    /// Whether a job may be resized while it runs.
    pub(super) fn is_elastic(&self, job: &Job) -> bool {
        self.world.rules.has_elastic_jobs() && slices::is_elastic(job)
    }

    /// The next step of an elastic job with these Workloads: first those that are being deleted, then the oldest.
    pub(super) fn pump_slices(&mut self, unit: &Unit, job: &Job, workloads: &[Workload]) {
        for workload in workloads {
            if self.tell_before_leaving(unit, job, workload) {
                return;
            }
            if self.begin_replacement(unit, workload) || self.begin_eviction(unit, Some(workload)) {
                return;
            }
        }
        for workload in workloads {
            let over = workload.holds(tokens::FINISHED);
            if over {
                self.take_back(unit, workload);
            }
            let job = Some(job).filter(|_| !over);
            let ends = self.busy.contains_key(unit) || self.end(unit, job, Some(workload));
            if ends || (over && self.without_job(unit, workload, true)) {
                return;
            }
        }
        let mut live: Vec<&Workload> = workloads.iter().filter(|one| !one.holds(tokens::FINISHED)).collect();
        let deleted = job.object.metadata.deletion_timestamp.as_ref();
        match (deleted, workloads.last()) {
            (Some(at), Some(last)) if live.is_empty() => self.open_slice_gates(unit, job, last, Some(at)),
            _ => {
                slices::active(&live).into_iter().for_each(|one| self.open_slice_gates(unit, job, one, None))
            }
        }
        let over = job.view.finished.is_some() || deleted.is_some();
        let mut leaving: Vec<&Workload> =
            live.iter().filter(|one| over || one.metadata.deletion_timestamp.is_some()).copied().collect();
        if !leaving.is_empty() {
            // Those with quota may have to wait for their pods.
            leaving.sort_by_key(|one| one.holds(tokens::QUOTA_RESERVED));
            let others = !over && live.len() > 1;
            self.end_slices(unit, job, &leaving, others);
            let has_quota = leaving.iter().any(|one| one.holds(tokens::QUOTA_RESERVED));
            if !others || has_quota || self.busy.contains_key(unit) {
                return;
            }
            // Somebody holds what nobody waits for any more.
            live.retain(|one| one.metadata.deletion_timestamp.is_none());
        }
        let Ok(sets) = &job.view.pod_sets else { return self.follow(unit, job, live.last().copied()) };
        let plan = slices::plan(sets, &live);
        // What somebody else made is as large as they say, and the job as large as that.
        if let Plan::Grow(slice) | Plan::Resize(slice) = plan
            && prebuilt(&job.object).is_some()
        {
            return match self.is_status_refused(unit, slice) {
                true => self.decide_slices(unit, &live, Some(slice)),
                false => self.begin_step(unit, Some(job), Some(slice), reconcile::out_of_sync()),
            };
        }
        match plan {
            Plan::First => self.follow(unit, job, None),
            Plan::Other(slice) => self.follow(unit, job, Some(slice)),
            Plan::Keep { slice, behind: None } if !is_pausing(job, slice) => {
                self.follow(unit, job, Some(slice));
            }
            Plan::Keep { behind: Some(_), .. } if self.start_before_it_grows(unit, job, &live) => {}
            Plan::Keep { slice, behind } => self.wait_for_slice(unit, job, slice, behind),
            Plan::Leave(slice) if live.len() == 1 => self.follow(unit, job, Some(slice)),
            Plan::Leave(slice) if !self.is_aim_refused(unit, slice, leave(job).aim()) => {
                self.begin_step(unit, Some(job), Some(slice), leave(job));
            }
            Plan::Grow(slice) if !self.is_refused(unit, Aim::Workload, &versions(Some(job), None)) => {
                self.grow(unit, job, slice, workloads);
            }
            Plan::Resize(_) if self.config.planted.is(Bug::ForgetToResize) => {}
            Plan::Resize(slice) if self.config.planted.is(Bug::StopToShrink) && !job.view.suspended => {
                self.begin_step(unit, Some(job), Some(slice), Step::Stop);
            }
            Plan::Resize(slice) if !self.is_change_refused(unit, slice) => {
                self.resize(unit, job, slice, sets);
            }
            Plan::Finish(slice, reason) if !self.is_status_refused(unit, slice) => {
                self.begin_step(unit, Some(job), Some(slice), finish(reason));
            }
            Plan::Grow(_) | Plan::Resize(_) if self.start_before_it_grows(unit, job, &live) => {}
            Plan::Resize(slice) | Plan::Finish(slice, _) => self.decide_slices(unit, &live, Some(slice)),
            Plan::Leave(_) | Plan::Grow(_) => self.decide_slices(unit, &live, None),
        }
    }

    /// The next step of the first of these that has one: a foreign finalizer may hold one, or the API server refuse it. One that only
    /// waited to take another's place (`others`) takes nothing with it.
    fn end_slices(&mut self, unit: &Unit, job: &Job, leaving: &[&Workload], others: bool) {
        for slice in leaving {
            if others && !slice.holds(tokens::QUOTA_RESERVED) {
                self.without_job(unit, slice, true);
            } else {
                self.follow(unit, job, Some(slice));
            }
            if self.busy.contains_key(unit) {
                return;
            }
        }
    }

    /// Starts a job that grew before it was started, with the pods that it has quota for. Tells whether that was to be done.
    fn start_before_it_grows(&mut self, unit: &Unit, job: &Job, live: &[&Workload]) -> bool {
        let Some(admitted) = slices::active(live).filter(|_| job.view.suspended) else { return false };
        if !self.is_aim_refused(unit, admitted, Step::Start.aim()) {
            self.begin_step(unit, Some(job), Some(admitted), Step::Start);
        }
        self.busy.contains_key(unit)
    }

    /// The job goes on as it is until the slice is admitted: its new pods are gated.
    fn wait_for_slice(&mut self, unit: &Unit, job: &Job, slice: &Workload, behind: Option<&Workload>) {
        self.tell_missing_class(unit, job, slice);
        let priority = self.worth(job, Some(slice));
        for one in behind.into_iter().chain([slice]) {
            let step = upkeep(job, one, priority.as_ref(), self.world.rules.gates());
            if step != Step::Nothing && !self.is_aim_refused(unit, one, step.aim()) {
                return self.begin_step(unit, Some(job), Some(one), step);
            }
        }
        self.tell_checks(unit, job, slice);
        let both: Vec<&Workload> = [slice].into_iter().chain(behind).collect();
        self.decide_slices(unit, &both, None);
    }

    /// Carries out what is decided about slices where no other step is to be made, or the API server refuses it. The one that is
    /// `outdated`, and is not brought in line with its job for now, gets no new quota.
    fn decide_slices(&mut self, unit: &Unit, slices: &[&Workload], outdated: Option<&Workload>) {
        for slice in slices {
            let is_outdated = outdated.is_some_and(|one| one.metadata.uid == slice.metadata.uid);
            let refused = if is_outdated { Step::UpdateWorkload } else { Step::Nothing };
            if !self.busy.contains_key(unit) {
                self.decide_all_the_same(unit, None, slice, &refused);
            }
        }
    }

    fn grow(&mut self, unit: &Unit, job: &Job, slice: &Workload, workloads: &[Workload]) {
        let gates = self.world.rules.gates();
        let composed = slices::compose(job, Some(slice), &self.world.priorities, gates);
        let composed = composed.and_then(|mut body| {
            compose::copy_labels(&mut body, self.copied_labels(), [&job.object])?;
            Ok(body)
        });
        let body = match composed {
            Ok(body) => body,
            Err(words) => {
                self.cannot_compose(unit, job, &words);
                return self.decide_slices(unit, &[slice], None);
            }
        };
        // One for this generation of the job may have ended because it took nobody's place (kueue#11198): it has the name.
        let name = body["metadata"]["name"].as_str();
        let is_spent = |one: &&Workload| one.holds(tokens::FINISHED) && one.metadata.name.as_deref() == name;
        match workloads.iter().find(is_spent) {
            Some(spent) if self.is_change_refused(unit, spent) => {
                self.decide_slices(unit, &[slice], None);
            }
            Some(spent) => self.delete_workload(unit, spent),
            None => self.create_workload(unit, job, body),
        }
    }

    /// Gives a slice the counts of its job. What is written of it beside them is kept: it is read in full first.
    fn resize(&mut self, unit: &Unit, job: &Job, slice: &Workload, sets: &[JobPodSet]) {
        let note = "its Workload has the number of pods that it has now";
        self.about_job(job, Severity::Normal, reasons::UPDATED_WORKLOAD, note);
        let namespace = text(slice.metadata.namespace.as_ref());
        let client = self.ctx.clients.write.clone();
        let resource = ApiResource::erase::<Workload>(&());
        let whole = Api::<DynamicObject>::namespaced_with(client.clone(), &namespace, &resource);
        let api = Api::<Workload>::namespaced(client, &namespace);
        let (target, sets) = (target(&slice.metadata), sets.to_vec());
        let before = Before::Workload(Box::new(slice.clone()));
        let op = Op { before, ..Op::new(about(slice), self.versions_of(unit, slice)) };
        self.submit(unit, Priority::Normal, op, move || {
            let (whole, api, target, sets) = (whole.clone(), api.clone(), target.clone(), sets.clone());
            async move {
                let written = whole.get(&target.name).await?;
                let pod_sets = written.data.pointer("/spec/podSets").cloned().unwrap_or_default();
                let body = json!({ "spec": { "podSets": slices::resized(pod_sets, &sets) } });
                let view = patch::merge(&api, &target, body, Subresource::Main).await?;
                Ok::<_, WriteError>(Answer::Workload(Box::new(view)))
            }
        });
    }

    /// Lets as many pods of each set be scheduled as the active slice has, those with the lowest names first. One that selects other
    /// nodes than this slice's checks want stays behind its gate (Kueue `elastic_job_ungater.go`). After the job was `deleted`, and all
    /// its slices have ended, pods that are made of its templates clean up after it: they are let go.
    fn open_slice_gates(&mut self, unit: &Unit, job: &Job, slice: &Workload, deleted: Option<&Time>) {
        if self.config.planted.is(Bug::KeepElasticGate) {
            return;
        }
        let Some(marks) = slices::marks(slice) else {
            let words =
                "podSetUpdates of its Workload's admission checks contradict one another; new pods wait";
            return self.tell(unit, job, reasons::ERR_WORKLOAD_COMPOSE, words);
        };
        let mut rooms: BTreeMap<&str, i64> =
            slice.spec.pod_sets.iter().map(|set| (set.name.as_str(), set.count.unwrap_or(1))).collect();
        let pods = self.world.slice_pods_of(slice);
        let is_open =
            |pod: &SlicePod| !pod.is_gated() || self.busy.contains_key(&Unit::Gate(pod.uid.clone()));
        let cleans_up = |pod: &SlicePod| deleted.is_none_or(|at| pod.created.as_ref() >= Some(at));
        let concerned = pods.into_iter().filter(|pod| !pod.has_ended && cleans_up(pod));
        let (open, mut gated): (Vec<&SlicePod>, Vec<&SlicePod>) = concerned.partition(|pod| is_open(pod));
        for pod in open {
            if let Some(room) = rooms.get_mut(pod.pod_set.as_str()) {
                *room -= 1;
            }
        }
        gated.sort_by(|one, other| one.name.cmp(&other.name));
        let mut opened = Vec::new();
        for pod in gated {
            let set = pod.pod_set.as_str();
            let Some(wanted) = marks.get(set).filter(|wanted| wanted.suit(&pod.selector)) else { continue };
            let opens_all = deleted.is_some() || self.config.planted.is(Bug::OpenEveryGate);
            if let Some(room) = rooms.get_mut(set).filter(|room| **room > 0 || opens_all) {
                *room -= 1;
                opened.push((pod.clone(), wanted.clone()));
            }
        }
        opened.into_iter().for_each(|(pod, marks)| self.open_slice_gate(pod, &marks));
    }

    /// Counts how long a pod's gate took, by the slice on whose quota it runs.
    pub(super) fn count_slice_gate(&self, pod: &Uid) {
        let Some(job) = self.world.job_of_slice_pod(pod) else { return };
        let namespace = self.world.job(job).and_then(|job| job.object.metadata.namespace.as_deref());
        let slices = self.world.workloads_of(job, namespace);
        let stands = |one: &&Workload| one.holds(tokens::ADMITTED) && !one.holds(tokens::FINISHED);
        if let Some(slice) = slices.iter().find(stands) {
            let now = self.ctx.clock.now();
            self.counted.queues.ungated(kueue::ELASTIC_GATE, slice, false, now);
        }
    }

    /// Takes the gate off a pod, and gives it these marks. Those of the slice for which the job was started are in its template.
    fn open_slice_gate(&mut self, pod: SlicePod, marks: &Marks) {
        if self.writes.room() == 0 {
            self.world.dirty.extend(self.world.job_of_slice_pod(&pod.uid).cloned().map(Unit::Job));
            return;
        }
        let gates = pod.gates.iter().filter(|gate| *gate != kueue::ELASTIC_GATE);
        let gates: Vec<Value> = gates.map(|name| json!({ "name": name })).collect();
        let mut body = json!({ "spec": { "schedulingGates": gates } });
        if !marks.selector.is_empty() {
            body["spec"]["nodeSelector"] = json!(marks.selector);
        }
        if !marks.annotations.is_empty() {
            body["metadata"]["annotations"] = json!(marks.annotations);
        }
        let target = Target::new(pod.name.clone(), pod.uid.to_string()).at(pod.version.to_string());
        self.patch_gate(&pod.uid, &pod.namespace, target, body, Answer::Ungated);
    }
}

/// A slice with quota was evicted while another waits: the job stops, and when its pods are gone so is the slice.
fn leave(job: &Job) -> Step {
    match (job.view.suspended, job.view.active) {
        (false, _) => Step::Stop,
        (true, true) => Step::Nothing,
        (true, false) => finish(tokens::finished::WORKLOAD_SLICE_REPLACED),
    }
}

/// The end of a slice whose job goes on.
fn finish(reason: &'static str) -> Step {
    let words = match reason {
        tokens::finished::WORKLOAD_SLICE_REPLACED => "another slice of the same job takes its place",
        _ => "its job is described by another slice",
    };
    Step::Finish { reason, message: words.to_owned() }
}

/// Whether the job runs on with pods behind gates while its slice has quota and is not admitted yet.
fn is_pausing(job: &Job, slice: &Workload) -> bool {
    let has_quota = slice.holds(tokens::QUOTA_RESERVED) && !slice.holds(tokens::ADMITTED);
    let took_over = slices::chain(slice) != slice.metadata.name.as_deref().unwrap_or_default();
    !job.view.suspended && has_quota && took_over
}
