//! Events: what people read with `kubectl describe`. Nobody's decision rests on them.

use std::borrow::Cow;

use crds::reasons::event as reasons;
use crds::reasons::workload as tokens;
use crds::view::workload::Workload;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kit::events::{Event, Regarding, Severity};
use quota_engine::{Inactive::CohortCycle, SetUnplaced, Uid};

use super::Controller;
use super::world::{Unit, controller_of};
use crate::jobs::{JobKind, JobObject, other_schedulers, read};
use crate::pods::{POD, PodsKey};
use crate::reconcile::Job;
use crate::{input, news, words};

/// The reason of an event about a job that cannot be described.
const CANNOT_COMPOSE: &str = reasons::ERR_WORKLOAD_COMPOSE;

pub(super) fn regarding(
    api_version: Cow<'static, str>,
    kind: &'static str,
    metadata: &ObjectMeta,
) -> Regarding {
    Regarding {
        api_version,
        kind: kind.into(),
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
        uid: metadata.uid.clone().unwrap_or_default(),
    }
}

impl Controller {
    pub(super) fn about_workload(
        &self,
        workload: &Workload,
        severity: Severity,
        reason: impl Into<Cow<'static, str>>,
        note: &str,
    ) {
        let regarding = regarding("kueue.x-k8s.io/v1beta2".into(), "Workload", &workload.metadata);
        self.events.publish(Event { regarding, severity, reason: reason.into(), note: note.to_owned() });
    }

    pub(super) fn about_job(&self, job: &Job, severity: Severity, reason: &'static str, note: &str) {
        self.about(job.kind, &job.object, severity, reason, note);
    }

    pub(super) fn about_pod(&self, pod: &JobObject, reason: &'static str, note: &str) {
        self.about(POD, pod, Severity::Normal, reason, note);
    }

    fn about(
        &self,
        kind: &JobKind,
        object: &JobObject,
        severity: Severity,
        reason: &'static str,
        note: &str,
    ) {
        let regarding = regarding(kind.api_version().into(), kind.kind, &object.metadata);
        self.events.publish(Event { regarding, severity, reason: reason.into(), note: note.to_owned() });
    }

    pub(super) fn about_job_of(&self, workload: &Workload, reason: &'static str, note: &str) {
        // Of pods that have one together none controls it: the first that owns it hears of it.
        let mut owners = workload.metadata.owner_references.iter().flatten();
        let Some(owner) = controller_of(&workload.metadata).or_else(|| owners.next()) else { return };
        let regarding = Regarding {
            api_version: owner.api_version.clone().into(),
            kind: owner.kind.clone().into(),
            namespace: workload.metadata.namespace.clone().unwrap_or_default(),
            name: owner.name.clone(),
            uid: owner.uid.clone(),
        };
        let (severity, reason, note) = (Severity::Normal, reason.into(), note.to_owned());
        self.events.publish(Event { regarding, severity, reason, note });
    }

    /// Tells why a workload that has quota finds no places for its pods yet.
    pub(super) fn announce_unplaced(&self, unplaced: &SetUnplaced) {
        if let Some(workload) = self.world.workloads.get(&unplaced.workload) {
            let news = news::unplaced(&workload, &unplaced.reason);
            self.about_workload(news.about, news.severity, news.reason, &news.note);
        }
    }

    /// Tells that a job was started or stopped.
    pub(super) fn announce_job(&self, uid: &Uid, was_suspended: Option<bool>) {
        let Some(job) = self.world.job(uid) else { return };
        let workload =
            || self.world.workloads_of(uid, job.object.metadata.namespace.as_deref()).into_iter().next();
        let others = || other_schedulers(job.kind, &job.object, &self.config.file.scheduler_name);
        let (reason, note) = match (was_suspended, job.view.suspended) {
            (Some(true), false) => (reasons::STARTED, news::started(workload().as_ref(), &others())),
            (Some(false), true) => (reasons::STOPPED, news::stopped(workload().as_ref())),
            _ => return,
        };
        self.about_job(job, Severity::Normal, reason, &note);
    }

    /// Tells the owner of a job or pods that the API server refuses what is to be written for them: until they are changed, they wait.
    pub(super) fn announce_refused(&self, unit: &Unit, words: &str) {
        let namespace = |object: &JobObject| object.metadata.namespace.clone().unwrap_or_default();
        let (kind, object, has_workload) = match unit {
            Unit::Job(uid) => {
                let Some(job) = self.world.job(uid) else { return };
                (job.kind, &job.object, self.world.has_workload(uid, &namespace(&job.object)))
            }
            Unit::PodOwner(uid) => {
                let Some((owner, object)) = self.world.pod_owner(uid) else { return };
                let made = self.world.workloads_made_from(uid, &namespace(object));
                (owner.kind, object, !made.is_empty())
            }
            Unit::Pods(key) => {
                let Some(pod) = self.world.group(key).and_then(|group| group.pods.first().copied()) else {
                    return;
                };
                (POD, pod, self.world.workload_of_pods(key).0.is_some())
            }
            _ => return,
        };
        let what = if has_workload { "a change of it or of its Workload" } else { "its Workload" };
        let note = format!("the API server refuses {what}: {words}");
        self.about(kind, object, Severity::Warning, CANNOT_COMPOSE, &note);
    }

    /// Tells a job that its Workload was made.
    pub(super) fn announce_made(&self, workload: &Workload) {
        if workload.status.conditions.is_empty() && workload.metadata.deletion_timestamp.is_none() {
            let name = workload.metadata.name.as_deref().unwrap_or_default();
            let note = format!("Workload {name} was made for it");
            self.about_job_of(workload, reasons::CREATED_WORKLOAD, &note);
        }
    }

    /// Tells a job that somebody else's Workload has the name that its own would have.
    pub(super) fn announce_taken(&mut self, unit: &Unit, workload: &Workload) {
        let now = self.ctx.clock.now();
        let job = match unit {
            Unit::Job(uid) => self.world.job(uid).cloned(),
            Unit::PodOwner(uid) => self.world.pod_owner(uid).map(|(owner, object)| Job {
                kind: owner.kind,
                object: object.clone(),
                view: read(owner.kind, object),
            }),
            Unit::Pods(key @ PodsKey::One(_)) => self.world.group(key).map(|group| group.as_job(None, now)),
            // A group is told where its pods are looked at.
            _ => None,
        };
        let name = workload.metadata.name.as_deref().unwrap_or_default();
        let words = format!(
            "Workload {name}, which was not made for it, has the name of its own; delete it, or make the job anew"
        );
        if let Some(job) = job {
            self.tell(unit, &job, reasons::WORKLOAD_NAME_CONFLICT, &words);
        }
    }

    /// Tells what is wrong with Cohorts that were changed: their status has no conditions.
    pub(super) fn announce_cohorts(&mut self) {
        for uid in std::mem::take(&mut self.world.changed_cohorts) {
            let view = self.world.cohorts_get(&uid);
            let (cohort, defects) = (input::cohort(&view), input::cohort_defects(&view));
            let cycle = self.engine.endless_way(&cohort.name);
            let cycle = cycle.map(|way| (CohortCycle(cohort.name).token(), words::cohort_cycle(&way)));
            let defects =
                (!defects.is_empty()).then(|| (tokens::quota_reserved::MISCONFIGURED, defects.join("; ")));
            for (reason, note) in cycle.into_iter().chain(defects) {
                let regarding = regarding("kueue.x-k8s.io/v1beta2".into(), "Cohort", &view.metadata);
                self.events.publish(Event {
                    regarding,
                    severity: Severity::Warning,
                    reason: reason.into(),
                    note,
                });
            }
        }
    }

    /// Tells what a written Workload status says that it did not say before.
    pub(super) fn announce(&self, before: Option<&Workload>, after: &Workload, preemptor: Option<&Workload>) {
        let became = |kind: &str| after.holds(kind) && !before.is_some_and(|before| before.holds(kind));
        let message = |kind: &str| after.condition(kind).map_or("", |one| one.message.as_str());
        let over = after.true_condition(tokens::FINISHED).map_or("", |one| one.reason.as_str());
        // The job goes on, with another Workload or none, or is gone.
        let is_of_job = ![
            tokens::finished::WORKLOAD_SLICE_REPLACED,
            tokens::finished::OUT_OF_SYNC,
            tokens::finished::OWNER_NOT_FOUND,
        ]
        .contains(&over);
        if became(tokens::FINISHED) && is_of_job {
            let note = format!("its Workload is finished: {}", message(tokens::FINISHED));
            self.about_job_of(after, reasons::FINISHED_WORKLOAD, &note);
        }
        let reason = self.engine.last_reason(&input::uid(&after.metadata));
        for news in news::written(before, after, preemptor, reason) {
            self.about_workload(news.about, news.severity, news.reason, &news.note);
        }
    }
}
