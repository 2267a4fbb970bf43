//! What is to be written next, unit by unit, and what follows from the answers.

use crds::reasons::event as reasons;
use crds::reasons::workload as tokens;
use crds::view::admission_check::AdmissionCheck;
use crds::view::cluster_queue::ClusterQueue;
use crds::view::cohort::Cohort;
use crds::view::flavor::ResourceFlavor;
use crds::view::local_queue::LocalQueue;
use crds::view::placed_pod::PlacedPod;
use crds::view::provisioning::ProvisioningRequest;
use crds::view::topology::Topology;
use crds::view::workload::Workload;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kit::patch::Target;
use model::planted::Bug;
use quota_engine::{DecisionId, Uid};
use serde_json::Value;
use tokio::time::Instant;

use super::Controller;
use super::refused::Aim;
use super::world::{Standing, Unit, controller_of};
use crate::adopted::{self, Compared};
use crate::input;
use crate::jobs::{self, JobKind, JobObject};
use crate::pods::{GroupName, prebuilt};
use crate::reconcile::{self, Job, Known, Step};

/// What a successful write yields.
pub(super) enum Answer {
    Workload(Box<Workload>),
    Job(&'static JobKind, Box<JobObject>),
    Pod(Box<JobObject>),
    /// All pods of a group.
    Pods(Vec<JobObject>),
    ClusterQueue(Box<ClusterQueue>),
    LocalQueue(Box<LocalQueue>),
    Flavor(Box<ResourceFlavor>),
    Topology(Box<Topology>),
    Check(Box<AdmissionCheck>),
    Request(Box<ProvisioningRequest>),
    /// A request for nodes that was deleted; a finalizer may hold it yet.
    RequestDeleted(Uid),
    Cohort(Box<Cohort>),
    LetGo(Box<PlacedPod>),
    Ungated(Box<PlacedPod>),
    Ended(Box<PlacedPod>),
    /// Whether the job of this unit runs what the Workload describes that somebody else made for it.
    Compared(Unit, Compared),
    Nothing,
}

/// The write under way in a unit.
pub(super) struct Op {
    /// The decision that waits for it.
    pub(super) decision: Option<DecisionId>,
    /// Whether it only reads, after a write of which nobody knows what became.
    pub(super) reads: bool,
    /// Whether the API server answered that write with an error, a conflict say: tried again at once, it would say the same.
    pub(super) denied: bool,
    /// What it rests on, to be read again when nobody knows what became of it.
    pub(super) about: About,
    /// What it changes.
    pub(super) aim: Aim,
    /// The versions it was worked out from.
    pub(super) versions: String,
    /// What the object said then: the watch may show what was written before the answer comes.
    pub(super) before: Before,
    /// When it was given to be sent.
    pub(super) begun: Option<Instant>,
    /// For whom a workload has to leave by it.
    pub(super) preemptor: Option<Uid>,
}

impl Op {
    /// A write about this, worked out from these versions: for no decision, and nobody is told.
    pub(super) fn new(about: About, versions: impl Into<String>) -> Self {
        let aim = match about {
            About::Workload { .. } => Aim::Workload,
            About::Job { .. } | About::Pod { .. } | About::Pods(_) | About::Request { .. } | About::Queue => {
                Aim::Other
            }
        };
        Self {
            decision: None,
            reads: false,
            denied: false,
            about,
            aim,
            versions: versions.into(),
            before: Before::Nothing,
            begun: None,
            preemptor: None,
        }
    }
}

/// What an object said before a write, as far as people are told when that changes.
pub(super) enum Before {
    /// It was not there, or nobody is told.
    Nothing,
    /// A Workload.
    Workload(Box<Workload>),
    /// A job that has no Workload yet; since when, where it is as it was made then.
    Unmade { kind: &'static JobKind, job: Uid, since: Option<Timestamp> },
    /// A job: whether it was suspended.
    Job(bool),
    /// A pod whose gate is opened, of this Workload.
    Gated { pod: Uid, workload: Uid, is_group: bool },
}

#[derive(Clone)]
pub(super) enum About {
    Workload {
        namespace: String,
        name: String,
    },
    Job {
        kind: &'static JobKind,
        namespace: String,
        name: String,
    },
    Pod {
        namespace: String,
        name: String,
    },
    /// All pods of a group.
    Pods(GroupName),
    /// Nodes asked for on behalf of a Workload.
    Request {
        namespace: String,
        name: String,
        /// The check that asks; none where a request is taken back.
        check: Option<String>,
    },
    /// A queue or a flavor: worked out anew from what is seen.
    Queue,
}

impl About {
    /// Empty for what has none.
    pub(super) fn namespace(&self) -> &str {
        match self {
            Self::Workload { namespace, .. }
            | Self::Job { namespace, .. }
            | Self::Pod { namespace, .. }
            | Self::Request { namespace, .. } => namespace,
            Self::Pods(group) => &group.namespace,
            Self::Queue => "",
        }
    }
}

pub(super) fn text(value: Option<&String>) -> String {
    value.cloned().unwrap_or_default()
}

pub(super) fn target(metadata: &ObjectMeta) -> Target {
    Target::new(text(metadata.name.as_ref()), text(metadata.uid.as_ref()))
        .at(text(metadata.resource_version.as_ref()))
}

pub(super) fn about(workload: &Workload) -> About {
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
    tokens::BLOCKED_ON_PREEMPTION_GATES,
    tokens::REQUEUED,
    tokens::PODS_READY,
    tokens::DEACTIVATION_TARGET,
    tokens::FINISHED,
];

impl Controller {
    /// Begins what can be begun in every unit that something happened to.
    pub(super) fn pump(&mut self) {
        let now = self.ctx.clock.monotonic();
        while let Some((_, unit)) = self.due.first().filter(|(at, _)| *at <= now).cloned() {
            self.due.pop_first();
            self.alarms.remove(&unit);
            self.forget_refused(&unit);
            self.read_once_more(&unit);
            self.world.dirty.insert(unit);
        }
        self.pods_to_groups();
        let dirty = std::mem::take(&mut self.world.dirty);
        if self.backlog.is_empty() && dirty.len() <= self.writes.room() {
            for unit in dirty {
                self.pump_unit(unit);
            }
        } else {
            for unit in dirty {
                let namespace = self.world.namespace_of(&unit).to_owned();
                self.backlog.add(&namespace, unit);
            }
            while self.writes.room() > 0
                && let Some(unit) = self.backlog.next()
            {
                self.pump_unit(unit);
            }
        }
        while let Some(unit) = self.late.next_held(now) {
            self.pump_unit(unit);
        }
        while let Some(unit) = self.late.next_queue(now) {
            self.pump_unit(unit);
        }
        while let Some(unit) = self.late.next_reason(now) {
            self.pump_unit(unit);
        }
    }

    fn pump_unit(&mut self, unit: Unit) {
        if self.busy.contains_key(&unit) {
            // It is looked at again when the answer comes.
            return;
        }
        if self.writes.room() == 0 {
            self.world.dirty.insert(unit);
            return;
        }
        match &unit {
            Unit::Job(uid) => self.pump_job(&unit, &uid.clone()),
            Unit::Workload(uid) => self.pump_workload(&unit, &uid.clone()),
            Unit::Pods(key) => self.pump_pods(&unit, &key.clone()),
            Unit::PodOwner(uid) => self.pump_pod_owner(&unit, &uid.clone()),
            Unit::Places(uid) => self.pump_places(&uid.clone()),
            Unit::Pod(_) | Unit::Gate(_) => {}
            Unit::ClusterQueue(_)
            | Unit::LocalQueue(_)
            | Unit::Flavor(_)
            | Unit::Topology(_)
            | Unit::Check(_)
            | Unit::Cohort(_) => self.pump_queue(&unit),
        }
    }

    fn pump_job(&mut self, unit: &Unit, uid: &Uid) {
        if self.read_job(unit, uid) || self.stop_part(unit, uid) {
            return;
        }
        let mut job = self.world.job(uid).cloned();
        let namespace = job.as_ref().map(|job| text(job.object.metadata.namespace.as_ref()));
        if namespace.as_ref().is_some_and(|namespace| self.let_stranger_go(unit, uid, namespace)) {
            return;
        }
        let mut workloads = self.world.workloads_of(uid, namespace.as_deref());
        if workloads.is_empty() && self.config.planted.is(Bug::NameInsteadOfUid) {
            workloads = job.as_ref().map(|job| self.world.workloads_of_name(job)).unwrap_or_default();
        }
        if let (Some(job), Some(workload)) = (&mut job, workloads.first()) {
            adopted::take_names(job, workload);
        }
        if let Some(job) = &job
            && let Standing::Endless(words) = self.world.standing(&job.object.metadata)
        {
            self.tell(unit, job, reasons::JOB_NESTING_TOO_DEEP, words);
        }
        let Some(job) = job.filter(|job| self.world.is_managed(&job.object)) else {
            if workloads.is_empty() {
                self.forget(unit);
            }
            return self.follow_unmanaged(unit, uid, &workloads);
        };
        let is_elastic = self.is_elastic(&job);
        // Copies of the one that counts are not followed.
        let followed = if is_elastic { workloads.len() } else { 1 };
        workloads.iter().take(followed).for_each(|one| self.forgive(unit, one));
        if is_elastic {
            workloads.sort_by_key(|one| {
                let metadata = &one.metadata;
                let stays = metadata.deletion_timestamp.is_none();
                (stays, metadata.creation_timestamp.clone(), metadata.uid.clone())
            });
            return self.pump_slices(unit, &job, &workloads);
        }
        if self.let_copies_go(unit, &workloads) {
            return;
        }
        let workload = workloads.first();
        if workload.is_some_and(|workload| self.tell_before_leaving(unit, &job, workload))
            || self.begin_leave(unit, Some(&job), workload)
        {
            return;
        }
        let is_other = |one: &&Workload| {
            prebuilt(&job.object).is_some_and(|name| one.metadata.name.as_deref() != Some(name))
        };
        if let Some(other) = workload.filter(is_other)
            && self.pass_over(unit, &job, other)
        {
            return;
        }
        self.follow(unit, &job, workload);
    }

    /// Goes on with the Workloads of a job that is gone, or is not managed any more.
    fn follow_unmanaged(&mut self, unit: &Unit, job: &Uid, workloads: &[Workload]) {
        // Its owner has not been seen: it may run.
        let is_unsure = self.world.is_unsure_of(job);
        for workload in workloads {
            if !is_unsure && self.without_job(unit, workload, true) {
                return;
            }
            let is_unseen = self.world.stored_job(job).is_none() && !self.world.has_lost_owner(workload);
            // It may be about to be seen: then everything is carried out.
            if is_unseen && self.world.serves_owner_of(workload) {
                continue;
            }
            let words = match is_unseen {
                true => "the API server does not serve its job's kind",
                false => "its job is gone, or is not managed",
            };
            if self.admit_nothing(unit, workload, words) {
                return;
            }
            if !workload.holds(tokens::QUOTA_RESERVED) {
                self.begin_decision(unit, workload);
            }
            if self.busy.contains_key(unit) {
                return;
            }
        }
    }

    /// Goes on with the Workload that the job names now, if this one, of which it was, has ended: it stays, and is in nobody's way. Before
    /// the job has begun it ends for that.
    fn pass_over(&mut self, unit: &Unit, job: &Job, other: &Workload) -> bool {
        if let Some(step) = reconcile::leave_for_another(job, other) {
            match self.is_aim_refused(unit, other, step.aim()) {
                true => {
                    let words = "its job has another Workload, and the API server refuses to end this one";
                    self.refuse_decision(unit, other, words);
                }
                false => self.begin_step(unit, Some(job), Some(other), step),
            }
            return true;
        }
        let is_past = other.holds(tokens::FINISHED) && other.metadata.deletion_timestamp.is_none();
        if is_past {
            self.take_back(unit, other);
            if !self.busy.contains_key(unit) {
                self.follow(unit, job, None);
            }
        }
        is_past
    }

    /// Of the Workloads of a job or pod all but the first are copies of it, that somebody made, and go; those that have ended are of
    /// another time, and stay for as long as what has ended does. Where the first goes itself, the next takes its place.
    pub(super) fn let_copies_go(&mut self, unit: &Unit, workloads: &[Workload]) -> bool {
        let is_leaving = |one: &Workload| one.metadata.deletion_timestamp.is_some();
        let Some((first, copies)) = workloads.split_first() else { return false };
        for copy in copies {
            let step = match (is_leaving(copy), is_leaving(first) || copy.holds(tokens::FINISHED)) {
                (true, _) => reconcile::let_go(copy),
                (false, true) => Step::Nothing,
                (false, false) => Step::DeleteWorkload,
            };
            if step != Step::Nothing && !self.is_aim_refused(unit, copy, step.aim()) {
                tracing::warn!(workload = copy.metadata.name, "a job has a second Workload; it is deleted");
                self.begin_step(unit, None, Some(copy), step);
                return true;
            }
            if copy.holds(tokens::FINISHED) {
                self.take_back(unit, copy);
                if self.busy.contains_key(unit) || self.end(unit, None, Some(copy)) {
                    return true;
                }
            } else if !is_leaving(first) && self.admit_nothing(unit, copy, "its job has another Workload") {
                return true;
            }
        }
        false
    }

    /// Lets go of a Workload that names this job or pod as its controller from another namespace, as if nobody were there: to the
    /// garbage collector nobody is.
    pub(super) fn let_stranger_go(&mut self, unit: &Unit, uid: &Uid, namespace: &str) -> bool {
        let strangers = self.world.strangers_of(uid, namespace);
        strangers.iter().any(|stranger| {
            self.without_job(unit, stranger, true)
                || self.admit_nothing(unit, stranger, "its job is in another namespace")
        })
    }

    /// Of a Workload for which nothing would start: what has quota may be told to leave, and what waits gets none.
    fn admit_nothing(&mut self, unit: &Unit, workload: &Workload, words: &str) -> bool {
        if self.begin_leave(unit, None, Some(workload)) {
            return true;
        }
        self.refuse_meanwhile(unit, workload, words);
        self.busy.contains_key(unit)
    }

    /// Refuses what is decided of a Workload until it is followed again.
    pub(super) fn refuse_meanwhile(&mut self, unit: &Unit, workload: &Workload, words: &str) {
        let uid = input::uid(&workload.metadata);
        if self.reserves.contains_key(&uid) {
            self.unfollowed.insert(uid);
            // There may be quota for others.
            self.due.insert((self.ctx.clock.monotonic(), unit.clone()));
        }
        self.refuse_decision(unit, workload, words);
    }

    /// What was refused as long as nobody followed a Workload may be decided again.
    pub(super) fn forgive(&mut self, unit: &Unit, workload: &Workload) {
        if self.unfollowed.is_empty() {
            return;
        }
        let uid = input::uid(&workload.metadata);
        if self.unfollowed.remove(&uid) {
            self.engine.forgive(&uid);
            self.due.insert((self.ctx.clock.monotonic(), unit.clone()));
        }
    }

    /// The next step of a job and the Workload that counts for it.
    pub(super) fn follow(&mut self, unit: &Unit, job: &Job, workload: Option<&Workload>) {
        if let Some(workload) = workload {
            self.tell_checks(unit, job, workload);
            self.tell_missing_class(unit, job, workload);
        }
        let step = self.next_step(unit, job, workload);
        let forgets = self.config.planted.is(Bug::EvictWithoutSuspending) && step == Step::Stop;
        if step == Step::Nothing || forgets {
            if let Some(workload) = workload {
                let ready = jobs::are_ready(job.kind, &job.object);
                if !self.tell_pods(unit, ready, workload) {
                    self.begin_decision(unit, workload);
                }
            }
        } else if !self.is_refused(unit, step.aim(), &versions(Some(job), workload)) {
            self.begin_step(unit, Some(job), workload, step);
        } else if let Some(workload) = workload {
            self.decide_all_the_same(unit, Some(job), workload, &step);
        }
    }

    /// Reads a job of which nothing was kept, if a Workload of it has turned up.
    fn read_job(&mut self, unit: &Unit, uid: &Uid) -> bool {
        let Some(job) = self.world.job_to_read(uid) else { return false };
        // Told apart from the versions of steps: what is read may be in this very version.
        let versions = format!("bare {}", job.version);
        let about = About::Job { kind: job.kind, namespace: job.namespace.clone(), name: job.name.clone() };
        if !self.is_refused(unit, Aim::Other, &versions) {
            let op = Op { reads: true, ..Op::new(about, versions) };
            // If it is gone, or another one has its name, the watch will tell; until then it is not read on and on.
            self.remember_refused(unit, &op, super::CONFLICT_DELAY);
            self.read_again(unit.clone(), op);
        }
        true
    }

    pub(super) fn next_step(&self, unit: &Unit, job: &Job, workload: Option<&Workload>) -> Step {
        let priority = self.worth(job, workload);
        let prebuilt = self.prebuilt_of(&job.object);
        let mut known = Known {
            priority: priority.as_ref(),
            keeps_templates: false,
            reclaims: !self.world.rules.ignores_reclaimable(),
            prebuilt: prebuilt.as_ref(),
            compared: self.compared.get(unit),
            gates: self.world.rules.gates(),
            is_unqueued: self.world.is_unqueued(&job.object),
            ends_orphans: self.config.file.feature_gates.finish_orphaned_workloads,
        };
        let mut step = reconcile::next(job, workload, known);
        if step == Step::Restore && self.is_refused(unit, step.aim(), &versions(Some(job), workload)) {
            known.keeps_templates = true;
            step = reconcile::next(job, workload, known);
        }
        self.planted_step(step, job, workload)
    }

    /// The step, or, with a bug planted, a wrong one.
    fn planted_step(&self, step: Step, job: &Job, workload: Option<&Workload>) -> Step {
        let decided = workload.is_some_and(|one| self.reserves.contains_key(&input::uid(&one.metadata)));
        if self.config.planted.is(Bug::ReleaseBeforeAdmission) && decided && job.view.suspended {
            return Step::Start;
        }
        let runs = workload.is_some_and(|one| one.holds(tokens::ADMITTED)) && !job.view.suspended;
        let is_prebuilt = prebuilt(&job.object).is_some();
        let is_awaited = is_prebuilt && workload.is_none() && job.view.suspended;
        match step {
            Step::Finish { .. } if self.config.planted.is(Bug::ForgetFinish) => Step::Nothing,
            Step::Release if self.config.planted.is(Bug::ForgetToRelease) => Step::Nothing,
            Step::RemoveFinalizer if self.config.planted.is(Bug::ForgetFinalizer) => Step::Nothing,
            Step::Nothing if self.config.planted.is(Bug::FinishTooEarly) && runs => {
                Step::Finish { reason: tokens::finished::SUCCEEDED, message: "planted".to_owned() }
            }
            Step::Stop if self.config.planted.is(Bug::AdmitTwice) => Step::Release,
            Step::Start if self.config.planted.is(Bug::DeletePrebuilt) && is_prebuilt => Step::DeleteWorkload,
            Step::Nothing if self.config.planted.is(Bug::IgnorePrebuilt) && is_awaited => {
                Step::CreateWorkload
            }
            step => step,
        }
    }

    /// The patch, or, with a bug planted, one that forgets what others wrote.
    pub(super) fn planted_body(&self, mut body: Value) -> Value {
        if self.config.planted.is(Bug::DropForeignConditions)
            && let Some(Value::Array(conditions)) = body.pointer_mut("/status/conditions")
        {
            conditions.retain(|one| OWN_CONDITIONS.iter().any(|kind| one["type"] == *kind));
        }
        if self.config.planted.is(Bug::LeaveAdmission)
            && let Some(status) = body.pointer_mut("/status").and_then(Value::as_object_mut)
            && status.get("admission").is_some_and(Value::is_null)
        {
            status.remove("admission");
        }
        body
    }

    fn pump_workload(&mut self, unit: &Unit, uid: &Uid) {
        // It may have become that of a job or of pods since: then it goes by what runs.
        if self.world.unit_of_workload(uid).as_ref() != Some(unit) {
            return;
        }
        let Some(workload) = self.world.workloads.get(uid) else { return };
        let controlled = controller_of(&workload.metadata).is_some();
        if self.begin_replacement(unit, &workload) {
            return;
        }
        if !self.begin_leave(unit, None, Some(&workload))
            && !self.without_job(unit, &workload, controlled)
            && !self.follow_class(unit, &workload)
        {
            self.begin_decision(unit, &workload);
        }
    }

    pub(super) fn without_job(&mut self, unit: &Unit, workload: &Workload, controlled: bool) -> bool {
        let is_orphan = self.config.file.feature_gates.finish_orphaned_workloads
            && (reconcile::is_orphan(workload) || self.world.has_lost_owner(workload));
        // Whoever owns them, pods that have Workloads are managed here.
        let elsewhere = !matches!(unit, Unit::Pods(_)) && self.world.is_owned_elsewhere(workload);
        let step = reconcile::next_without_job(workload, controlled, elsewhere, is_orphan);
        let stays = self.config.planted.is(Bug::KeepWithoutJob)
            || (self.config.planted.is(Bug::ForgetFinalizer) && step == Step::RemoveFinalizer);
        if stays || step == Step::Nothing || self.is_aim_refused(unit, workload, step.aim()) {
            return false;
        }
        self.begin_step(unit, None, Some(workload), step);
        true
    }
}

/// What a step was worked out from.
pub(super) fn versions(job: Option<&Job>, workload: Option<&Workload>) -> String {
    versions_at(job.map(|job| &job.object), workload)
}

/// The same of an object that may be managed through its pods.
pub(super) fn versions_at(object: Option<&JobObject>, workload: Option<&Workload>) -> String {
    let of = |metadata: Option<&ObjectMeta>| text(metadata.and_then(|one| one.resource_version.as_ref()));
    format!("{}/{}", of(object.map(|object| &object.metadata)), of(workload.map(|one| &one.metadata)))
}
