//! What a job and its Workload need next: a pure step function. One step at a time; the next is worked out from what the
//! API server answers to it, so a crash between any two steps loses nothing.

use crds::names::{kueue, trireme};
use crds::reasons::workload as tokens;
use crds::validation::Gates;
use crds::view::Runs;
use crds::view::workload::{PodSet, PodTemplate, PriorityClassRef, ReclaimablePod, Workload, WorkloadSpec};
use model::node::Toleration;
use model::pod::PodResources;
use serde::Deserialize;
use serde_json::Value;

use crate::adopted::Compared;
use crate::compose::{self, Priority};
use crate::jobs::table::ChildSays;
use crate::jobs::{self, Finish, JobKind, JobObject, JobPodSet, JobView, WhenDeleted, controller_of};
use crate::names::workload_name;
use crate::pods::{self, prebuilt};
use crate::{input, reclaimable, slices};

/// A managed job, read.
#[derive(Clone, Debug)]
pub struct Job {
    /// Its kind.
    pub kind: &'static JobKind,
    /// As it was read.
    pub object: JobObject,
    /// What admission needs to know of it.
    pub view: JobView,
}

/// One step.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Nothing to do.
    Nothing,
    /// Suspend the job (with its templates as the user wrote them, where the kind allows it).
    Stop,
    /// Give the stopped job its templates back as the user wrote them.
    Restore,
    /// Make its Workload.
    CreateWorkload,
    /// Bring the waiting Workload in line with the job: it keeps its place in the queue.
    UpdateWorkload,
    /// It cannot be described as a Workload, for this reason.
    CannotCompose(String),
    /// Start the admitted job.
    Start,
    /// Say that the workload is finished.
    Finish {
        /// The token.
        reason: &'static str,
        /// The words.
        message: String,
    },
    /// Write which pods have ended and give their quota back.
    Reclaim(Vec<ReclaimablePod>),
    /// Give the evicted workload's quota back.
    Release,
    /// Give quota back and be queued no more: the job will not run as it is written, in these words.
    Hold(String),
    /// Be queued again: the job can run now.
    EndHold,
    /// Make the job own the Workload that somebody else made for it.
    Adopt,
    /// Read that in full, to compare what it describes with what the job runs.
    Compare,
    /// Delete the Workload: it describes another job than the job is now.
    DeleteWorkload,
    /// Let the Workload go that is being deleted.
    RemoveFinalizer,
    /// The job was moved to another LocalQueue, or out of every one.
    ChangeQueue(Option<String>),
    /// Fewer hold the job back than its Workload says: these do, or nobody.
    ChangeGates(Option<String>),
    /// The priority class of the job was changed.
    ChangePriority,
}

/// What decides besides the job and its Workload.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known<'a> {
    /// The job's priority; `None` where the class it names does not exist.
    pub priority: Option<&'a Priority>,
    /// The API server refused to give the job its templates back: it goes on without.
    pub keeps_templates: bool,
    /// Whether quota of pods that have ended is given back before the job ends.
    pub reclaims: bool,
    /// The Workload that somebody else made for the job, where it has none of its own yet.
    pub prebuilt: Option<&'a Workload>,
    /// Whether the job runs what such a Workload describes, where that was looked at.
    pub compared: Option<&'a Compared>,
    /// What of a job counts.
    pub gates: Gates,
    /// Whether the job names no queue, where only those are managed that do.
    pub is_unqueued: bool,
    /// Whether a Workload ends whose job is no more.
    pub ends_orphans: bool,
}

/// The next step for a managed job and the Workload that it controls.
pub fn next(job: &Job, workload: Option<&Workload>, known: Known<'_>) -> Step {
    let view = &job.view;
    let leaving = job.object.metadata.deletion_timestamp.is_some();
    let is_prebuilt = prebuilt(&job.object).is_some();
    if known.is_unqueued
        && workload.is_none_or(|one| is_own(job, one) && !jobs::has_begun(job.kind, &job.object, one))
    {
        return workload.map_or(Step::Nothing, |workload| leave(job, workload, known));
    }
    let Some(workload) = workload else {
        return if view.finished.is_some() || leaving || view.on_hold.is_some() {
            Step::Nothing
        } else if !view.suspended {
            Step::Stop
        } else {
            match &view.pod_sets {
                Err(_) if job.object.awaits_child(job.kind) => Step::Nothing,
                _ if view.active => Step::Nothing,
                _ if is_prebuilt => known.prebuilt.map_or(Step::Nothing, |one| adopt(&job.object, one)),
                Ok(_) => Step::CreateWorkload,
                Err(words) => Step::CannotCompose(words.clone()),
            }
        };
    };
    if workload.metadata.deletion_timestamp.is_some() {
        return after_deletion(job, workload, known).unwrap_or(Step::Stop);
    }
    if workload.holds(tokens::FINISHED) {
        return if leaving { Step::Nothing } else { after_end(job, workload, known) };
    }
    if let Some(finish) = &view.finished {
        return ended(finish);
    }
    if leaving {
        let is_told = match job.kind.when_deleted {
            WhenDeleted::Nothing => false,
            // Who is evicted has nobody any more who would stop it, and others may wait for its quota.
            WhenDeleted::Counts => !workload.holds(tokens::EVICTED),
            WhenDeleted::Stops => true,
        };
        return after_job(view.active && is_told, workload, known.ends_orphans);
    }
    if let Some(words) = &view.on_hold {
        let reserved = workload.holds(tokens::QUOTA_RESERVED);
        return if reserved { Step::Hold(words.clone()) } else { Step::Nothing };
    }
    match unfinished(job, workload, known) {
        Step::Nothing => reclaim(job, workload, known),
        step => step,
    }
}

/// A finalizer may hold a deleted job for as long as it likes, and a lost node its pod: the Workload ends all the same, once no pods
/// stand on its quota. Kueue does not wait for them (`finalizeWorkloads`).
pub(crate) fn after_job(is_active: bool, workload: &Workload, ends_orphans: bool) -> Step {
    let is_used = workload.holds(tokens::QUOTA_RESERVED) && is_active;
    let is_over = workload.holds(tokens::FINISHED);
    if is_used || is_over || !ends_orphans { Step::Nothing } else { orphaned() }
}

fn orphaned() -> Step {
    Step::Finish {
        reason: tokens::finished::OWNER_NOT_FOUND,
        message: "the job that it was made for is gone".to_owned(),
    }
}

/// A Workload that was deleted keeps its quota, and what the job was like before, until the job has stopped; `None` while that is not
/// suspended.
fn after_deletion(job: &Job, workload: &Workload, known: Known<'_>) -> Option<Step> {
    let leaving = job.object.metadata.deletion_timestamp.is_some();
    match (job.view.suspended, job.view.active) {
        _ if leaving || job.view.finished.is_some() => Some(let_go(workload)),
        (false, _) => None,
        (true, true) => Some(Step::Nothing),
        (true, false) => {
            Some(restore(job, workload, known).unwrap_or_else(|| match is_told_late(job, workload) {
                true => Step::Nothing,
                false => let_go(workload),
            }))
        }
    }
}

/// Whether the object that tells of the job's pods is still as this Workload's admission made it: its controller writes it anew, now
/// that the job was given back. Described by that, the next Workload would ask for the old flavor.
fn is_told_late(job: &Job, workload: &Workload) -> bool {
    let tells_all = job.kind.child.as_ref().is_some_and(|child| child.says == ChildSays::All);
    let sets = job.view.pod_sets.as_ref().ok().filter(|_| tells_all);
    sets.into_iter().flatten().any(|set| jobs::is_marked_by(&job.object, set, workload))
}

/// What has ended is not run again; a job that has become another since, and waits, is described anew.
fn after_end(job: &Job, workload: &Workload, known: Known<'_>) -> Step {
    let view = &job.view;
    if view.finished.is_some() {
        return Step::Nothing;
    }
    if !view.suspended {
        return Step::Stop;
    }
    let may_change = !view.active && view.on_hold.is_none() && prebuilt(&job.object).is_none();
    let is_told = view.pod_sets.is_ok() && !job.object.awaits_child(job.kind);
    match may_change && is_told && !is_equivalent(job, workload, known.gates) {
        true => restore(job, workload, known).unwrap_or(Step::DeleteWorkload),
        false => Step::Nothing,
    }
}

fn ended(finish: &Finish) -> Step {
    let reason = if finish.succeeded { tokens::finished::SUCCEEDED } else { tokens::finished::FAILED };
    Step::Finish { reason, message: finish.message.clone() }
}

/// Whether a Workload was made for the job because that named a queue: what somebody else makes for it has a queue of its own.
fn is_own(job: &Job, workload: &Workload) -> bool {
    let (kind, metadata) = (job.kind, &job.object.metadata);
    let name = metadata.name.as_deref().unwrap_or_default();
    let own = || workload_name(kind.group, kind.kind, name, job.object.uid());
    slices::is_slice(workload) || workload.metadata.name.as_deref() == Some(own().as_str())
}

/// The next step for the Workload of a job that names no queue any more, and has not begun: the job is its user's to start and to stop,
/// and the Workload holds nothing and waits for nothing. Kueue leaves it in its queue, where it gets quota that nobody uses.
fn leave(job: &Job, workload: &Workload, known: Known<'_>) -> Step {
    if workload.metadata.deletion_timestamp.is_some() {
        return after_deletion(job, workload, known).unwrap_or_else(|| let_go(workload));
    }
    if workload.holds(tokens::FINISHED) {
        return Step::Nothing;
    }
    if let Some(finish) = &job.view.finished {
        return ended(finish);
    }
    if !workload.holds(tokens::QUOTA_RESERVED) {
        return change_queue(&job.view, workload).unwrap_or(Step::Nothing);
    }
    let hold = || Step::Hold("its job names no queue any more".to_owned());
    match (job.view.suspended, job.view.active) {
        (false, _) => hold(),
        (true, true) => Step::Nothing,
        (true, false) => restore(job, workload, known).unwrap_or_else(hold),
    }
}

/// How a Workload without quota gets to the queue that its job names, or out of every one; `None` where it is there.
pub(crate) fn change_queue(view: &JobView, workload: &Workload) -> Option<Step> {
    let is_there =
        view.queue.as_deref().unwrap_or_default() == workload.spec.queue_name.as_deref().unwrap_or_default();
    (!is_there).then(|| Step::ChangeQueue(view.queue.clone()))
}

/// Takes the Workload that somebody else made, unless it is another's, or its own: then it has ended, as others before it.
pub(crate) fn adopt(object: &JobObject, workload: &Workload) -> Step {
    match controller_of(&workload.metadata) {
        Some(owner) if owner.uid == object.uid() => Step::Nothing,
        Some(owner) => Step::CannotCompose(format!(
            "Workload {} was made for {} {}; name another one",
            workload.metadata.name.as_deref().unwrap_or_default(),
            owner.kind,
            owner.name
        )),
        None => Step::Adopt,
    }
}

/// What the job says of pods that have ended, once nothing else is to be done.
fn reclaim(job: &Job, workload: &Workload, known: Known<'_>) -> Step {
    let reserved = workload.holds(tokens::QUOTA_RESERVED);
    let news = job.view.reclaimable.as_ref().filter(|_| known.reclaims);
    let news = news.and_then(|reported| reclaimable::news(workload, reported, reserved));
    news.map_or(Step::Nothing, Step::Reclaim)
}

/// The garbage collector's own: they go in its time.
const COLLECTED: [&str; 2] = ["foregroundDeletion", "orphan"];

/// Lets go of a Workload that nothing is to be kept for. If somebody else's finalizer holds it then, it gives its quota back: nobody can
/// preempt it, and that may take for ever.
pub(crate) fn let_go(workload: &Workload) -> Step {
    let finalizers = workload.metadata.finalizers.as_deref().unwrap_or_default();
    if finalizers.iter().any(|one| one == kueue::FINALIZER_RESOURCE_IN_USE) {
        return Step::RemoveFinalizer;
    }
    let is_leaving = workload.metadata.deletion_timestamp.is_some();
    let holds_quota = workload.holds(tokens::QUOTA_RESERVED) && !workload.holds(tokens::FINISHED);
    let mut theirs = finalizers.iter().filter(|one| !COLLECTED.contains(&one.as_str()));
    match theirs.next().filter(|_| is_leaving && holds_quota) {
        Some(finalizer) => Step::Hold(format!("it is being deleted, and held by the finalizer {finalizer}")),
        None => Step::Nothing,
    }
}

/// What an admission added to the templates must be gone before they are described again or the user looks at them.
fn restore(job: &Job, workload: &Workload, known: Known<'_>) -> Option<Step> {
    let sets = job.view.pod_sets.as_ref().ok().filter(|_| !known.keeps_templates)?;
    jobs::restore(job.kind, &job.object, sets, workload).map(|_| Step::Restore)
}

fn unfinished(job: &Job, workload: &Workload, known: Known<'_>) -> Step {
    let view = &job.view;
    let reserved = workload.holds(tokens::QUOTA_RESERVED);
    let is_prebuilt = prebuilt(&job.object).is_some();
    // Before it has quota its own Workload follows the job in the rest, and nobody who runs is stopped for that.
    let is_bound = view.suspended && (reserved || is_prebuilt);
    let in_sync = job.object.awaits_child(job.kind)
        || match &view.pod_sets {
            Ok(_) if is_bound => is_equivalent(job, workload, known.gates),
            Ok(sets) => describes(workload, job, sets),
            Err(_) => false,
        };
    if is_prebuilt && let Some(step) = check_prebuilt(job, workload, in_sync, known.compared) {
        return step;
    }
    if !in_sync {
        return match (view.suspended, view.active) {
            (false, _) => Step::Stop,
            (true, true) => Step::Nothing,
            (true, false) => restore(job, workload, known).unwrap_or(match view.pod_sets {
                Ok(_) if !reserved => Step::UpdateWorkload,
                _ => Step::DeleteWorkload,
            }),
        };
    }
    if reserved && workload.holds(tokens::EVICTED) {
        return match (view.suspended, view.active) {
            (false, _) => Step::Stop,
            (true, true) => Step::Nothing,
            (true, false) => restore(job, workload, known).unwrap_or(Step::Release),
        };
    }
    if reserved && workload.holds(tokens::ADMITTED) {
        return match view.suspended {
            // What is added to its pods is added by the names of what is not there.
            true if job.object.awaits_child(job.kind) => Step::Nothing,
            // Somebody suspended it by hand.
            true if view.active && job.kind.started_at.is_some() => Step::Nothing,
            true => Step::Start,
            false => upkeep(job, workload, known.priority, known.gates),
        };
    }
    if !view.suspended {
        return Step::Stop;
    }
    // The quota has gone without an eviction, by hand say.
    let is_marked = |set: &JobPodSet| jobs::is_marked_by(&job.object, set, workload);
    let is_left =
        !reserved && !view.active && view.pod_sets.as_ref().is_ok_and(|sets| sets.iter().any(is_marked));
    if is_left && let Some(step) = restore(job, workload, known) {
        return step;
    }
    if input::is_on_hold(workload) {
        return Step::EndHold;
    }
    // What somebody else made stays in its queue where the job names none.
    let has_its_own = is_prebuilt && view.queue.is_none();
    let follows = !reserved && !known.is_unqueued && !has_its_own;
    if let Some(step) = change_queue(view, workload).filter(|_| follows) {
        return step;
    }
    if !reserved && was_edited(job, workload, known.gates) && !is_prebuilt {
        return Step::UpdateWorkload;
    }
    upkeep(job, workload, known.priority, known.gates)
}

/// A Workload that somebody else made ends where it is about another job. What is kept of it says no more of containers than what
/// they ask for: before the job is started it is read in full, and again when one of the two was edited.
pub(crate) fn check_prebuilt(
    job: &Job,
    workload: &Workload,
    in_sync: bool,
    compared: Option<&Compared>,
) -> Option<Step> {
    let is_read = in_sync && job.view.suspended && job.view.pod_sets.is_ok();
    let compared = compared.and_then(|compared| compared.holds_for(job, workload));
    if is_read && compared.is_none() {
        return Some(Step::Compare);
    }
    let is_other = !in_sync || (is_read && compared == Some(false));
    is_other.then(out_of_sync)
}

/// What becomes of a Workload whose job has not begun and names another one since: it would wait, or hold quota, for nobody. Kueue
/// leaves it as it is.
pub(crate) fn leave_for_another(job: &Job, left: &Workload) -> Option<Step> {
    let is_over = left.holds(tokens::FINISHED) || left.metadata.deletion_timestamp.is_some();
    let has_gone = job.object.metadata.deletion_timestamp.is_some() || job.view.finished.is_some();
    if is_over || has_gone || !job.view.suspended || job.view.active {
        return None;
    }
    let sets = job.view.pod_sets.as_ref().ok();
    let restored = sets.and_then(|sets| jobs::restore(job.kind, &job.object, sets, left));
    Some(match restored {
        Some(_) => Step::Restore,
        None if is_own(job, left) => Step::DeleteWorkload,
        None => out_of_sync(),
    })
}

/// The end of a Workload that somebody else made, and that is about another job.
pub(crate) fn out_of_sync() -> Step {
    let message = "it describes another job than the one it was made for".to_owned();
    Step::Finish { reason: tokens::finished::OUT_OF_SYNC, message }
}

/// What a Workload follows its job in at any time: who holds it back, and what it is worth. Gates only go, as the API has it, so
/// one that the Workload did not have from the beginning is none.
pub(crate) fn upkeep(job: &Job, workload: &Workload, wanted: Option<&Priority>, gates: Gates) -> Step {
    let (holders, written) = (input::gated_by(&job.object.metadata), input::gated_by(&workload.metadata));
    let follows = gates.admission_gated_by && prebuilt(&job.object).is_none();
    if follows && written.is_some() && holders != written {
        return Step::ChangeGates(holders.map(str::to_owned));
    }
    priority_step(workload, wanted)
}

/// A WorkloadPriorityClass says what its workloads are worth, at any time, and a job may name another. Everything else counts when
/// the Workload is made, since its priority may be changed by hand: what it is worth by the PriorityClass of its pods stays, and so
/// does that it has no class where its job names none. While quota is reserved, the API lets only a WorkloadPriorityClass give way to
/// another.
fn priority_step(workload: &Workload, wanted: Option<&Priority>) -> Step {
    let Some(wanted) = wanted else { return Step::Nothing };
    let mut after = WorkloadSpec { priority: Some(wanted.value), ..WorkloadSpec::default() };
    after.priority_class_ref = wanted.class.as_ref().map(|(group, kind, name)| PriorityClassRef {
        group: (*group).to_owned(),
        kind: (*kind).to_owned(),
        name: name.clone(),
    });
    let written = &workload.spec;
    let (from_class, to_class) =
        (compose::is_of_workload_class(written), compose::is_of_workload_class(&after));
    let differs = if to_class { compose::is_revalued(written, &after) } else { from_class };
    let may_change = !workload.holds(tokens::QUOTA_RESERVED) || (from_class && to_class);
    if differs && may_change { Step::ChangePriority } else { Step::Nothing }
}

/// Whether the user changed what decides about flavors since the Workload was made. Templates that an admission changed
/// and that could not be given back tell nothing.
fn was_edited(job: &Job, workload: &Workload, gates: Gates) -> bool {
    let Ok(sets) = &job.view.pod_sets else { return false };
    let is_staged = workload.metadata.annotations.iter().flatten().any(|(key, _)| key == trireme::GANG);
    compose::max_seconds(&job.object) != workload.spec.maximum_execution_time_seconds
        || jobs::comes_in_stages(job.kind, &job.object) != is_staged
        || workload.spec.pod_sets.iter().zip(sets).any(|(written, set)| {
            let template = set.template_in(&job.object).and_then(|one| PodTemplate::deserialize(one).ok());
            written.min_count != set.least(gates)
                || (!jobs::is_marked(&job.object, set)
                    && template.is_some_and(|template| !is_alike(job.kind, &template, &written.template)))
        })
}

/// Whether two templates are the same but for labels that the kind's own controller writes, which not every Workload has.
fn is_alike(kind: &JobKind, one: &PodTemplate, other: &PodTemplate) -> bool {
    one.spec == other.spec
        && one.metadata.annotations == other.metadata.annotations
        && users_labels(kind, one).eq(users_labels(kind, other))
}

fn users_labels<'a>(
    kind: &'a JobKind,
    template: &'a PodTemplate,
) -> impl Iterator<Item = (&'a String, &'a String)> {
    template.metadata.labels.iter().filter(move |(key, _)| !kind.owns_label(key))
}

/// Whether the Workload has the pod sets of the job as it is.
pub(crate) fn is_described(job: &Job, workload: &Workload) -> bool {
    let sets = || job.view.pod_sets.as_ref().is_ok_and(|sets| describes(workload, job, sets));
    job.object.awaits_child(job.kind) || sets()
}

/// Whether the Workload stands for the job as it is (Kueue's `EquivalentToWorkload`): it describes it, and for how long the job may
/// run, how few pods would do and, until it is admitted, what its pods tolerate is the same. Of a slice pod sets alone count.
pub fn is_equivalent(job: &Job, workload: &Workload, gates: Gates) -> bool {
    let Ok(sets) = &job.view.pod_sets else { return false };
    if !describes(workload, job, sets) {
        return false;
    }
    let admitted = workload.holds(tokens::ADMITTED);
    let mut pairs = workload.spec.pod_sets.iter().zip(sets);
    let is_same = |(written, set): (&PodSet, &JobPodSet)| {
        written.min_count == set.least(gates) && (admitted || tolerates_as_much(job, set, written))
    };
    let seconds = workload.spec.maximum_execution_time_seconds;
    slices::is_slice(workload) || (compose::max_seconds(&job.object) == seconds && pairs.all(is_same))
}

/// Whether pods of a set tolerate what the Workload says. A template that an admission changed tells nothing of that.
fn tolerates_as_much(job: &Job, set: &JobPodSet, written: &PodSet) -> bool {
    let template = set.template_in(&job.object).filter(|_| !jobs::is_marked(&job.object, set));
    let tolerations = match template.map(|template| template.pointer("/spec/tolerations")) {
        None => return true,
        Some(None | Some(Value::Null)) => Ok(Vec::new()),
        Some(Some(tolerations)) => Vec::<Toleration>::deserialize(tolerations),
    };
    tolerations.ok().is_none_or(|all| all == written.template.spec.tolerations)
}

/// Whether the Workload asks for what the job asks for: the same pod sets with as many pods, each as large, which run the same.
/// Selectors and tolerations are left out, since admission itself changes those of the job. Of slices it does not count what they
/// run, nor of a template that the job does not have itself: another program may fill it in otherwise.
pub fn describes(workload: &Workload, job: &Job, sets: &[JobPodSet]) -> bool {
    workload.spec.pod_sets.len() == sets.len()
        && workload.spec.pod_sets.iter().zip(sets).all(|(written, set)| {
            written.name == set.name
                && is_as_many(job, workload, written, set)
                && set.template_in(&job.object).is_some_and(|template| {
                    same_size(template, &written.template)
                        && (set.given.is_some()
                            || slices::is_slice(workload)
                            || runs_the_same(template, &written.template))
                })
        })
}

/// Who accepts fewer pods may have been given fewer, and runs with no more than those; while it is suspended it may ask for all, too
/// (Kueue's `expectedRunningPodSets`).
fn is_as_many(job: &Job, workload: &Workload, written: &PodSet, set: &JobPodSet) -> bool {
    let is_written = written.count.unwrap_or(1) == set.count;
    match jobs::granted(workload, &set.name).filter(|_| set.min_count.is_some()) {
        Some(granted) => granted == set.count || (is_written && job.view.suspended),
        None => is_written,
    }
}

/// Claims are not counted, so whoever comes to have one is described anew, and waits.
fn same_size(template: &Value, written: &PodTemplate) -> bool {
    let Some(spec) = template.get("spec") else { return false };
    pods::has_claims(spec) != written.spec.resource_claims.is_empty()
        && PodResources::deserialize(spec).is_ok_and(|resources| resources == written.spec.resources)
}

fn runs_the_same(template: &Value, written: &PodTemplate) -> bool {
    let runs = template.get("spec").and_then(|spec| Runs::deserialize(spec).ok());
    runs == Some(written.spec.runs)
}

/// The next step for a Workload without a job that is managed here, or that nobody controls. `elsewhere` tells whether its owners are
/// managed by somebody else, who lets it go when nothing of it runs any more; `is_orphan` whether it was made for a job that is gone,
/// and ends: the garbage collector may take its time (Kueue's `FinalizeOrphanedWorkload`).
pub fn next_without_job(workload: &Workload, controlled: bool, elsewhere: bool, is_orphan: bool) -> Step {
    if workload.metadata.deletion_timestamp.is_some() {
        let may_run = elsewhere && !workload.holds(tokens::FINISHED);
        return if may_run { Step::Nothing } else { let_go(workload) };
    }
    if is_orphan {
        if workload.holds(tokens::FINISHED) {
            return let_go(workload);
        }
        return orphaned();
    }
    // Nobody else can say when the pods of a Workload that somebody made by hand are gone.
    let evicted = workload.holds(tokens::QUOTA_RESERVED)
        && workload.holds(tokens::EVICTED)
        && !workload.holds(tokens::FINISHED);
    if evicted && !controlled { Step::Release } else { Step::Nothing }
}

/// Whether a Workload was made for a job, and is owned by nobody any more.
pub(crate) fn is_orphan(workload: &Workload) -> bool {
    job_uid(workload).is_some() && workload.metadata.owner_references.iter().flatten().next().is_none()
}

/// The job that a Workload was made for, by its label.
pub(crate) fn job_uid(workload: &Workload) -> Option<&str> {
    let uid = workload.metadata.labels.as_ref()?.get(kueue::JOB_UID)?;
    (!uid.is_empty()).then_some(uid.as_str())
}
