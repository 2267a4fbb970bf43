//! Steps of jobs and their Workloads, carried out: see [`reconcile`](crate::reconcile).

use std::collections::BTreeSet;

use crds::names::{kueue, trireme};
use crds::reasons::event as reasons;
use crds::reasons::workload as tokens;
use crds::view::provisioning::WholeWorkload;
use crds::view::workload::Workload;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kit::events::Severity;
use kit::patch::{Subresource, WriteError};
use kit::writes::Priority;
use kube::Api;
use quota_engine::Uid;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Controller;
use super::pump::{Answer, Before, Op, about, text, versions};
use super::refused::Aim;
use super::world::Unit;
use crate::compose::{self, compose};
use crate::input;
use crate::jobs::{self, JobObject, Terms, start, stop};
use crate::pods::{Member, prebuilt};
use crate::reconcile::{self, Job, Step};
use crate::{adopted, slices, status, topology};

impl Controller {
    pub(super) fn begin_step(
        &mut self,
        unit: &Unit,
        job: Option<&Job>,
        workload: Option<&Workload>,
        step: Step,
    ) {
        if self.reads_first(unit, job, workload, &step) {
            return;
        }
        if let Some(job) = job
            && matches!(step, Step::Restore | Step::CreateWorkload | Step::Start)
            && self.reset_start(unit, job, workload, &step)
        {
            return;
        }
        let now = self.ctx.clock.now();
        match (step, job, workload) {
            (Step::Stop, Some(job), workload) => {
                let sets = job.view.pod_sets.clone().unwrap_or_default();
                if let Some(body) = stop(job.kind, &job.object, &sets, workload) {
                    self.patch_job(unit, job, workload, body, Subresource::Main);
                }
            }
            (Step::Restore, Some(job), Some(workload)) => self.restore_job(unit, job, workload),
            (Step::CreateWorkload, Some(job), None) => match self.compose_job(job) {
                Ok(body) => self.create_workload(unit, job, body),
                Err(words) => self.cannot_compose(unit, job, &words),
            },
            (Step::UpdateWorkload, Some(job), Some(workload)) => self.compose_anew(unit, job, workload),
            (Step::CannotCompose(words), Some(job), _) => self.cannot_compose(unit, job, &words),
            (Step::Start, Some(job), Some(workload)) => self.start_job(unit, job, workload),
            (Step::Finish { reason, message }, _, Some(workload)) => {
                let body = status::finished(workload, reason, &message, now);
                self.patch_workload(unit, workload, body, Subresource::Status, Priority::Urgent, None);
            }
            (Step::Reclaim(pods), _, Some(workload)) => {
                let body = status::reclaimable(&pods);
                self.patch_workload(unit, workload, body, Subresource::Status, Priority::Normal, None);
            }
            (Step::Release, _, Some(workload)) => {
                let body = status::released(workload, self.comes_back(workload), now);
                self.patch_workload(unit, workload, body, Subresource::Status, Priority::Urgent, None);
            }
            (Step::Hold(words), _, Some(workload)) => {
                let body = status::on_hold(workload, &words, now);
                self.patch_workload(unit, workload, body, Subresource::Status, Priority::Urgent, None);
            }
            (Step::EndHold, _, Some(workload)) => {
                let body = status::off_hold(workload, "its job can run again", now);
                self.patch_workload(unit, workload, body, Subresource::Status, Priority::Normal, None);
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
            (Step::ChangeGates(gates), Some(job), Some(workload)) => {
                let body = json!({ "metadata": { "annotations": { kueue::ADMISSION_GATED_BY: gates } } });
                let note = match &gates {
                    Some(gates) => format!("its Workload is held back by {gates} alone now"),
                    None => "nobody holds its Workload back any more".to_owned(),
                };
                self.about_job(job, Severity::Normal, reasons::UPDATED_WORKLOAD, &note);
                self.patch_workload(unit, workload, body, Subresource::Main, Priority::Normal, None);
            }
            (Step::ChangePriority, Some(job), Some(workload)) => self.change_priority(unit, job, workload),
            (Step::Adopt, Some(job), None) => self.adopt_workload(unit, job),
            (Step::Compare, Some(job), Some(workload)) => self.compare_workload(unit, job, workload),
            (Step::DeleteWorkload, job, Some(workload)) => {
                let name = text(workload.metadata.name.as_ref());
                match job {
                    Some(job) => {
                        let note =
                            format!("Workload {name} is not about the job as it is now, and is deleted");
                        self.about_job(job, Severity::Normal, reasons::DELETED_WORKLOAD, &note);
                    }
                    None => {
                        let note = format!("Workload {name} is one too many, and is deleted");
                        self.about_job_of(workload, reasons::DELETED_WORKLOAD, &note);
                    }
                }
                self.delete_workload(unit, workload);
            }
            _ => {}
        }
    }

    /// Whether an evicted workload may be queued again: other pods can take the places of those that it loses, or it is one
    /// pod that was never let go, and so does not end.
    pub(super) fn comes_back(&self, workload: &Workload) -> bool {
        let waits = |owner: &OwnerReference| {
            let pod = self.world.pod(&Uid::new(owner.uid.as_str()));
            pod.is_some_and(|pod| pod.has_gate(kueue::ADMISSION_GATE) && !pod.is_leaving())
        };
        !self.world.rules.keeps_single_pods()
            || topology::can_move(&workload.metadata)
            || workload.metadata.owner_references.iter().flatten().any(waits)
    }

    /// What a job's Workload is to be worth, where that is known. One that somebody else made for it says so itself.
    pub(super) fn worth(&self, job: &Job, workload: Option<&Workload>) -> Option<compose::Priority> {
        match workload.filter(|_| prebuilt(&job.object).is_some()) {
            Some(workload) => self.world.priorities.of_class(&workload.spec),
            None => self.world.priorities.of(job).ok(),
        }
    }

    /// Tells of a job whose Workload keeps its priority, since it names a WorkloadPriorityClass that is not there.
    pub(super) fn tell_missing_class(&mut self, unit: &Unit, job: &Job, workload: &Workload) {
        let Some(wanted) = &job.view.workload_priority_class else { return };
        let written = workload.spec.priority_class_ref.as_ref();
        let is_written = written.is_some_and(|class| class.name == *wanted);
        // It would not follow one that is there either.
        let stays = compose::is_of_pod_class(&workload.spec)
            || (workload.holds(tokens::QUOTA_RESERVED) && !compose::is_of_workload_class(&workload.spec));
        if is_written || stays || workload.holds(tokens::FINISHED) || prebuilt(&job.object).is_some() {
            return;
        }
        if let Err(words) = self.world.priorities.of(job) {
            self.tell(unit, job, reasons::WORKLOAD_PRIORITY_CLASS_NOT_FOUND, &words);
        }
    }

    /// Gives a Workload behind which there is no job to follow the number that its WorkloadPriorityClass says, when that says
    /// another: otherwise its priority is the business of who made it.
    pub(super) fn follow_class(&mut self, unit: &Unit, workload: &Workload) -> bool {
        let uid = input::uid(&workload.metadata);
        if !self.world.revalued.contains(&uid) {
            return false;
        }
        let over = workload.holds(tokens::FINISHED) || workload.metadata.deletion_timestamp.is_some();
        let priority = self.world.priorities.of_class(&workload.spec).filter(|_| !over);
        let differs = |priority: &compose::Priority| workload.spec.priority != Some(priority.value);
        let Some(priority) = priority.filter(differs) else {
            self.world.revalued.remove(&uid);
            return false;
        };
        if self.is_change_refused(unit, workload) {
            return false;
        }
        let body = json!({ "spec": { "priority": priority.value } });
        self.patch_workload(unit, workload, body, Subresource::Main, Priority::Normal, None);
        true
    }

    fn change_priority(&mut self, unit: &Unit, job: &Job, workload: &Workload) {
        let Some(priority) = self.worth(job, Some(workload)) else { return };
        let class = priority.class.as_ref().map_or("none", |(_, _, name)| name);
        // That its class is worth something else now is no news of the job.
        if workload.spec.priority_class_ref.as_ref().map_or("none", |one| &one.name) != class {
            let note = format!("its Workload has priority class {class} now");
            self.about_job(job, Severity::Normal, reasons::UPDATED_WORKLOAD, &note);
        }
        let body =
            json!({ "spec": { "priority": priority.value, "priorityClassRef": priority.class_ref() } });
        self.patch_workload(unit, workload, body, Subresource::Main, Priority::Normal, None);
    }

    fn compose_job(&self, job: &Job) -> Result<Value, String> {
        let gates = self.world.rules.gates();
        let mut workload = match self.is_elastic(job) {
            true => slices::compose(job, None, &self.world.priorities, gates)?,
            false => compose(job, &self.world.priorities, gates)?,
        };
        compose::copy_labels(&mut workload, self.copied_labels(), [&job.object])?;
        Ok(workload)
    }

    /// Brings a Workload that waits in line with its job; one whose job cannot be described any more goes.
    fn compose_anew(&mut self, unit: &Unit, job: &Job, workload: &Workload) {
        let gates = self.world.rules.gates();
        match compose(job, &self.world.priorities, gates) {
            Ok(body) => {
                let is_another = !reconcile::is_equivalent(job, workload, gates);
                self.update_workload(unit, job, workload, &body, is_another);
            }
            Err(words) => self.cannot_follow(unit, job, workload, &words),
        }
    }

    /// A Workload that waits cannot be brought in line with its job, for these reasons. It goes, unless only the class is not there
    /// that the job names: then it keeps its place, and gets no quota meanwhile, since it no longer describes its job.
    pub(super) fn cannot_follow(&mut self, unit: &Unit, job: &Job, workload: &Workload, words: &str) {
        self.cannot_compose(unit, job, words);
        if self.is_missing_class(job, words) {
            self.refuse_decision(unit, workload, &format!("it no longer describes its job: {words}"));
        } else {
            self.begin_step(unit, Some(job), Some(workload), Step::DeleteWorkload);
        }
    }

    /// Labels that a Workload gets from its job.
    pub(super) fn copied_labels(&self) -> &BTreeSet<String> {
        &self.config.file.integrations.label_keys_to_copy
    }

    /// The Workload that somebody else makes for a job or a pod, if it is there.
    pub(super) fn prebuilt_of(&self, object: &JobObject) -> Option<Workload> {
        self.world.workload_named(object.metadata.namespace.as_deref()?, prebuilt(object)?)
    }

    /// Makes the job the controller of the Workload that somebody else made for it.
    fn adopt_workload(&mut self, unit: &Unit, job: &Job) {
        let Some(workload) = self.prebuilt_of(&job.object) else { return };
        if self.is_change_refused(unit, &workload) {
            return;
        }
        let others = workload.metadata.owner_references.iter().flatten();
        let others = others.filter(|owner| owner.uid != job.object.uid());
        let mut owners: Vec<Value> = others.map(|owner| json!(owner)).collect();
        owners.push(compose::controller(job));
        let labels = compose::job_label(job.object.uid());
        let body = json!({ "metadata": { "ownerReferences": owners, "labels": labels } });
        self.patch_workload(unit, &workload, body, Subresource::Main, Priority::Normal, None);
    }

    /// Reads a Workload that somebody else made in full, and compares what it describes with what its job runs.
    fn compare_workload(&mut self, unit: &Unit, job: &Job, workload: &Workload) {
        let namespace = text(workload.metadata.namespace.as_ref());
        let api = Api::<WholeWorkload>::namespaced(self.ctx.clients.write.clone(), &namespace);
        let before = Before::Workload(Box::new(workload.clone()));
        let op = Op { before, ..Op::new(about(workload), self.versions_of(unit, workload)) };
        let (of, job, workload) = (unit.clone(), job.clone(), workload.clone());
        self.submit(unit, Priority::Normal, op, move || {
            let (api, of, job, workload) = (api.clone(), of.clone(), job.clone(), workload.clone());
            async move {
                let whole = api.get_opt(&text(workload.metadata.name.as_ref())).await?;
                let whole = whole.filter(|whole| whole.metadata.uid == workload.metadata.uid);
                let spec = whole.ok_or(WriteError::Gone)?.spec;
                Ok::<_, WriteError>(Answer::Compared(of, adopted::compare(&job, &workload, &spec)))
            }
        });
    }

    /// What decides besides an admission about what pods get with it.
    pub(super) fn terms(&self) -> Terms<'_> {
        let names_queues = self.world.rules.names_queues();
        Terms { flavors: &self.world.flavors_by_name, names_queues, elastic: false }
    }

    fn start_job(&mut self, unit: &Unit, job: &Job, workload: &Workload) {
        if let Some(flavor) = jobs::missing_flavor(workload, &self.world.flavors_by_name) {
            let words = format!("it is admitted to ResourceFlavor {flavor}, which does not exist; create it");
            return self.tell(unit, job, reasons::FLAVOR_NOT_FOUND, &words);
        }
        let sets = job.view.pod_sets.clone().unwrap_or_default();
        let terms = Terms { elastic: self.is_elastic(job), ..self.terms() };
        match start(job.kind, &job.object, &sets, workload, terms) {
            Ok(Some(body)) => self.patch_job(unit, job, Some(workload), body, Subresource::Main),
            Ok(None) => {}
            Err(_) if self.is_status_refused(unit, workload) => self.begin_decision(unit, workload),
            Err(conflict) => {
                let now = self.ctx.clock.now();
                let body =
                    status::finished(workload, tokens::finished::FAILED_TO_START, &conflict.to_string(), now);
                self.patch_workload(unit, workload, body, Subresource::Status, Priority::Normal, None);
            }
        }
    }

    fn restore_job(&mut self, unit: &Unit, job: &Job, workload: &Workload) {
        let sets = job.view.pod_sets.clone().unwrap_or_default();
        if let Some(body) = jobs::restore(job.kind, &job.object, &sets, workload) {
            self.patch_job(unit, job, Some(workload), body, Subresource::Main);
        }
    }

    /// Has a suspended job forget that it ran before, which keeps its templates from being changed, be it by its user while it
    /// waits (Kueue's `Job.Stop`). Tells whether it did not yet.
    fn reset_start(&mut self, unit: &Unit, job: &Job, workload: Option<&Workload>, next: &Step) -> bool {
        let started_at = job.kind.started_at.filter(|at| job.object.at(at).is_some_and(|at| !at.is_null()));
        let Some(field) = started_at.and_then(|at| at.strip_prefix("/status/")) else { return false };
        if self.is_refused(unit, Aim::JobStatus, &versions(Some(job), workload)) {
            // It would hold quota, and most jobs could not be started with it.
            return *next == Step::CreateWorkload;
        }
        let body = json!({ "status": { field: null } });
        self.patch_job(unit, job, workload, body, Subresource::Status);
        true
    }

    /// The queue has a step of its own, and so has the priority, which is found anew where the Workload stood for another job
    /// (`is_another`).
    pub(super) fn update_workload(
        &mut self,
        unit: &Unit,
        job: &Job,
        workload: &Workload,
        composed: &Value,
        is_another: bool,
    ) {
        let mut body = json!({
            "metadata": { "annotations": {
                trireme::GANG: composed["metadata"]["annotations"][trireme::GANG],
            }},
            "spec": {
                "podSets": composed["spec"]["podSets"],
                "maximumExecutionTimeSeconds": composed["spec"]["maximumExecutionTimeSeconds"],
            },
        });
        if is_another {
            for field in ["priority", "priorityClassRef"] {
                body["spec"][field] = composed["spec"][field].clone();
            }
        }
        let note = "its Workload was brought in line with it";
        self.about_job(job, Severity::Normal, reasons::UPDATED_WORKLOAD, note);
        self.patch_workload(unit, workload, body, Subresource::Main, Priority::Normal, None);
    }

    /// A job that cannot be described stays suspended; what it lacks may come at any time.
    pub(super) fn cannot_compose(&mut self, unit: &Unit, job: &Job, words: &str) {
        let names_class = job.view.workload_priority_class.is_some();
        let reason = match names_class && self.is_missing_class(job, words) {
            true => reasons::WORKLOAD_PRIORITY_CLASS_NOT_FOUND,
            false => reasons::ERR_WORKLOAD_COMPOSE,
        };
        self.tell(unit, job, reason, words);
    }

    /// Whether these words say that a class is not there that the job names.
    fn is_missing_class(&self, job: &Job, words: &str) -> bool {
        self.world.priorities.of(job).is_err_and(|missing| missing == words)
    }

    /// Says why a job does not go on: once, and again when the event may be lost or forgotten.
    pub(super) fn tell(&mut self, unit: &Unit, job: &Job, reason: &'static str, words: &str) {
        let now = self.ctx.clock.monotonic();
        if self.has_told(unit, reason, words, Some(now)) {
            return;
        }
        tracing::warn!(
            kind = job.kind.kind,
            namespace = job.object.metadata.namespace,
            name = job.object.metadata.name,
            reason = words,
            "the job cannot be managed as it is"
        );
        self.about_job(job, Severity::Warning, reason, words);
        let again = now + super::TELL_AGAIN;
        self.due.insert((again, unit.clone()));
        self.remember_told(unit, reason, words, again);
    }

    /// Whether just that was told in a unit under this reason, and is not to be told again by now.
    pub(super) fn has_told(&self, unit: &Unit, reason: &str, words: &str, now: Option<Instant>) -> bool {
        let told = self.told.get(unit).and_then(|all| all.get(reason));
        told.is_some_and(|(told, again)| told == words && now.is_none_or(|now| *again > now))
    }

    pub(super) fn remember_told(&mut self, unit: &Unit, reason: &'static str, words: &str, again: Instant) {
        self.told.entry(unit.clone()).or_default().insert(reason, (words.to_owned(), again));
    }
}
