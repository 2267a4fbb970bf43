//! What pods and their Workload need next: a pure function of both, as `reconcile` is for jobs.
//!
//! The rules are those of Kueue's pod integration (`pkg/controller/jobs/pod/pod_controller.go`): excess pods of a role go,
//! the youngest first; failed ones are kept until others have taken their places.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crds::names::kueue;
use crds::reasons::pod::termination_target;
use crds::reasons::workload as tokens;
use crds::reasons::workload::waiting_for_replacement_pods as replacement;
use crds::validation::Gates;
use crds::view::workload::{PodSpec, Workload};
use jiff::Timestamp;
use quota_engine::Uid;
use serde::Deserialize;

use super::compose::agreed_total;
use super::group::is_suspended;
use super::{Group, Member, PodOwner, is_of_group};
use crate::adopted::Compared;
use crate::compose::{Priority, max_seconds};
use crate::jobs::JobObject;
use crate::reclaimable;
use crate::reconcile::{
    Job, Step, adopt, after_job, change_queue, check_prebuilt, describes, is_equivalent, let_go, out_of_sync,
    upkeep,
};
use crate::status::Change;

/// One step of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodStep {
    /// Take its gate away, with what its flavors add.
    Start,
    /// Say that it will be deleted, and why: who made it may look at that.
    Mark(Stop, String),
    /// Delete it.
    Delete,
    /// Delete it since its group has enough without it.
    DeleteExcess,
    /// Delete it since its Workload was deactivated for as long as that is kept.
    Retire,
    /// Take our finalizer off it.
    LetGo,
}

/// Why pods are stopped. The tokens are Kueue's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Their Workload was deleted.
    WorkloadDeleted,
    /// Their Workload was evicted, for this reason.
    WorkloadEvicted(String),
    /// They have none, or it describes other pods.
    NoMatchingWorkload,
    /// Their Workload is not admitted.
    NotAdmitted,
}

impl Stop {
    /// The reason of the condition.
    pub fn token(&self) -> Cow<'static, str> {
        match self {
            Self::WorkloadDeleted => termination_target::WORKLOAD_DELETED.into(),
            Self::WorkloadEvicted(reason) => {
                format!("{}{reason}", termination_target::WORKLOAD_EVICTED_DUE_TO).into()
            }
            Self::NoMatchingWorkload => termination_target::NO_MATCHING_WORKLOAD.into(),
            Self::NotAdmitted => termination_target::NOT_ADMITTED.into(),
        }
    }
}

/// One step of their Workload.
#[derive(Clone, Debug, PartialEq)]
pub enum PodsStep {
    /// As that of any job.
    Job(Step),
    /// A Workload of the group's name was made for something else.
    NameConflict,
    /// It is that of a group, and these pods own it, too.
    AddOwners(Vec<Uid>),
    /// Whether pods are to be replaced has changed.
    Replacements(Change),
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// With the Workload.
    pub workload: PodsStep,
    /// With pods.
    pub pods: Vec<(Uid, PodStep)>,
    /// Whether those that count are ready; `None` where no Workload describes them.
    pub ready: Option<bool>,
}

impl Plan {
    fn of(workload: PodsStep, pods: Vec<(Uid, PodStep)>) -> Self {
        Self { workload, pods, ready: None }
    }

    /// Whether the Workload has ended, or ends: then none of its pods is held any more (Kueue's `Finalize`).
    fn is_over(&self, workload: &Workload) -> bool {
        let stays = workload.metadata.deletion_timestamp.is_none();
        (stays && workload.holds(tokens::FINISHED))
            || matches!(self.workload, PodsStep::Job(Step::Finish { .. }))
    }
}

/// What decides besides the pods and their Workload.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// Their priority; `None` where the class they name does not exist.
    pub priority: Option<&'a Priority>,
    /// Whether a Workload of the group's name was made for something else.
    pub is_name_taken: bool,
    /// The Workload that somebody else made for a pod by itself, where that has none of its own yet.
    pub prebuilt: Option<&'a Workload>,
    /// Whether such a pod runs what such a Workload describes, where that was looked at.
    pub compared: Option<&'a Compared>,
    /// Whether quota of pods that have ended is given back before the group ends.
    pub reclaims: bool,
    /// What of them counts.
    pub gates: Gates,
    /// Whether the Workload was deactivated here, and kept for as long as those are.
    pub is_outlived: bool,
    /// Whether they name no queue, where only those are managed that do.
    pub is_unqueued: bool,
    /// Whether a Workload ends whose pod is no more.
    pub ends_orphans: bool,
    /// The time.
    pub now: Timestamp,
}

const NOTHING: PodsStep = PodsStep::Job(Step::Nothing);
/// Why pods are stopped that are others than their Workload's.
const OTHER_PODS: &str = "their Workload describes other pods";

/// What is to be done next.
pub fn plan(group: &Group<'_>, workload: Option<&Workload>, known: Known<'_>) -> Plan {
    if !group.is_group() && group.first().is_leaving() {
        let step = workload.map_or(Step::Nothing, |workload| match workload.metadata.deletion_timestamp {
            Some(_) => let_go(workload),
            None => after_job(group.is_active(known.now), workload, known.ends_orphans),
        });
        return Plan::of(PodsStep::Job(step), let_all_go(&group.pods));
    }
    if known.is_name_taken {
        return Plan::of(PodsStep::NameConflict, let_all_go(&partition(&group.pods).1));
    }
    match (workload, group.is_group()) {
        (None, _) => without_workload(group, known),
        (Some(workload), true) if !group.is_prebuilt() => match fit(group, workload, known) {
            None => replace_workload(group, workload, known),
            Some(fit) => {
                let kept = group.with(fit.kept);
                let mut plan = follow(&kept, workload, fit.absent, known);
                let is_over = plan.is_over(workload);
                // The object that they were made for knows which are too many: they wait, and count.
                if group.first().prebuilt().is_some() {
                    let others = [fit.excess, fit.replaced, fit.strange].concat();
                    plan.ready = Some(group.is_ready());
                    plan.pods.extend(let_all_go(if is_over { &others } else { &[] }));
                    return plan;
                }
                plan.ready = Some(kept.is_ready());
                plan.pods.extend(remove(&fit.excess, &PodStep::DeleteExcess));
                plan.pods.extend(let_all_go(&fit.replaced));
                plan.pods.extend(let_all_go(if is_over { &fit.strange } else { &[] }));
                plan
            }
        },
        (Some(workload), _) => Plan { ready: Some(group.is_ready()), ..follow(group, workload, 0, known) },
    }
}

fn without_workload(group: &Group<'_>, known: Known<'_>) -> Plan {
    if group.finished().is_some() {
        return Plan::of(NOTHING, let_all_go(&group.pods));
    }
    let (_, inactive) = partition(&group.pods);
    let mut pods = let_all_go(if group.is_group() { &inactive } else { &[] });
    if !group.is_suspended() {
        pods.extend(stop(&group.pods, &Stop::NoMatchingWorkload, "they have no Workload"));
        return Plan::of(NOTHING, pods);
    }
    if group.is_active(known.now) {
        // Some run beside those that wait.
        pods.extend(stop(&group.pods, &Stop::NoMatchingWorkload, "they have no Workload"));
        return Plan::of(NOTHING, pods);
    }
    if group.first().prebuilt().is_some() {
        // Somebody else makes it.
        let step = known.prebuilt.map_or(Step::Nothing, |one| adopt(group.first(), one));
        return Plan::of(PodsStep::Job(step), pods);
    }
    pods.extend(remove(&too_many(group), &PodStep::DeleteExcess));
    Plan::of(PodsStep::Job(Step::CreateWorkload), pods)
}

/// Pods of a group beyond those that its Workload is made of.
fn too_many<'a>(group: &Group<'a>) -> Vec<&'a JobObject> {
    let (true, Ok(total)) = (group.is_group(), agreed_total(group)) else { return Vec::new() };
    let (mut active, _) = partition(&group.pods);
    keepers_first(&mut active);
    active.split_off(active.len().min(total))
}

/// The Workload describes other pods than there are. One that waits is brought in line with them and keeps its place in the
/// queue; another goes, once none of them runs on its quota.
fn replace_workload(group: &Group<'_>, workload: &Workload, known: Known<'_>) -> Plan {
    let has_run = workload.holds(tokens::QUOTA_RESERVED) || workload.holds(tokens::FINISHED);
    let waits = group.is_suspended() && !has_run && group.first().prebuilt().is_none();
    let step = match workload.metadata.deletion_timestamp {
        Some(_) => let_go(workload),
        None if group.is_active(known.now) => Step::Nothing,
        None if waits => Step::UpdateWorkload,
        None => Step::DeleteWorkload,
    };
    let mut pods = match group.finished() {
        Some(_) => Vec::new(),
        None => stop(&group.pods, &Stop::NoMatchingWorkload, OTHER_PODS),
    };
    if step == Step::UpdateWorkload {
        pods.extend(let_all_go(&partition(&group.pods).1));
        pods.extend(remove(&too_many(group), &PodStep::DeleteExcess));
    }
    Plan::of(PodsStep::Job(step), pods)
}

/// What follows for the Workload of one pod that was edited behind its gate. With quota it is made anew; the pod stays, though
/// its Workload is deleted.
fn after_edit(group: &Group<'_>, workload: &Workload) -> Option<Step> {
    let pod = group.first();
    let is_gated = !group.is_group() && pod.has_gate(kueue::ADMISSION_GATE) && pod.prebuilt().is_none();
    let is_late = workload.holds(tokens::ADMITTED) || workload.holds(tokens::FINISHED);
    if !is_gated || is_late || !was_edited(pod, workload) {
        return None;
    }
    if workload.metadata.deletion_timestamp.is_some() {
        return Some(let_go(workload));
    }
    match (workload.holds(tokens::QUOTA_RESERVED), workload.holds(tokens::EVICTED)) {
        (false, _) => Some(Step::UpdateWorkload),
        (true, false) => Some(Step::DeleteWorkload),
        // It gives its quota back first.
        (true, true) => None,
    }
}

/// Whether a Workload is for one pod.
fn is_of_one(workload: &Workload) -> bool {
    matches!(&*workload.spec.pod_sets, [set] if set.count.unwrap_or(1) == 1 && set.min_count.is_none())
}

/// Whether the user changed what decides about a pod's flavors, or for how long it may run, since its Workload was made; or somebody the
/// Workload.
fn was_edited(pod: &JobObject, workload: &Workload) -> bool {
    let spec = PodSpec::deserialize(&pod.spec).ok();
    let differs = |spec: &PodSpec| workload.spec.pod_sets.iter().any(|set| set.template.spec != *spec);
    max_seconds(pod) != workload.spec.maximum_execution_time_seconds
        || !is_of_one(workload)
        || spec.as_ref().is_some_and(differs)
}

fn follow(group: &Group<'_>, workload: &Workload, absent: usize, known: Known<'_>) -> Plan {
    let evicted = workload.true_condition(tokens::EVICTED);
    if let Some(step) = after_edit(group, workload) {
        return Plan::of(PodsStep::Job(step), Vec::new());
    }
    if workload.metadata.deletion_timestamp.is_some() {
        return match workload.true_condition(tokens::FINISHED) {
            // What has ended is not undone: its pods, and their logs, stay.
            Some(finished) if !group.is_active(known.now) => {
                Plan::of(PodsStep::Job(let_go(workload)), after_end(group, &finished.reason))
            }
            _ => after_deletion(group, workload, known),
        };
    }
    let strangers = strangers(group, workload);
    // One that somebody else made may lack the mark by which it is found.
    if !strangers.is_empty() || (group.is_group() && !is_of_group(&workload.metadata)) {
        return Plan::of(PodsStep::AddOwners(strangers), Vec::new());
    }
    if let Some(change) = replacements(group, workload, absent) {
        return Plan::of(PodsStep::Replacements(change), Vec::new());
    }
    if let Some(finished) = workload.true_condition(tokens::FINISHED) {
        return Plan::of(NOTHING, after_end(group, &finished.reason));
    }
    if let Some(finish) = group.finished() {
        let reason = if finish.succeeded { tokens::finished::SUCCEEDED } else { tokens::finished::FAILED };
        let step = Step::Finish { reason, message: finish.message };
        // Who is let go before that is said may be gone with the next look, and with it what says that they have ended.
        return Plan::of(PodsStep::Job(step), Vec::new());
    }
    let job = group.as_job(Some(workload), known.now);
    if runs_as_another(group, workload) {
        return replace_workload(group, workload, known);
    }
    if let Some(step) = check(group, workload, &job, known) {
        let pods = match step {
            Step::Finish { .. } => stop(&group.pods, &Stop::NoMatchingWorkload, OTHER_PODS),
            _ => Vec::new(),
        };
        return Plan::of(PodsStep::Job(step), pods);
    }
    let reserved = workload.holds(tokens::QUOTA_RESERVED);
    let ended = group.reclaimable();
    if let Some(news) = reclaimable::news(workload, &ended, reserved).filter(|_| known.reclaims) {
        return Plan::of(PodsStep::Job(Step::Reclaim(news)), Vec::new());
    }
    if let Some(evicted) = evicted {
        let why = Stop::WorkloadEvicted(evicted.reason.clone());
        let mut pods = stop(&group.pods, &why, &evicted.message);
        // One that does not run yet, and is not told to go, would run on the next admission where this one sent it.
        let is_needed = group.is_active(known.now) || !pods.is_empty();
        let step = match (reserved, is_needed) {
            (true, false) => Step::Release,
            (true, true) => Step::Nothing,
            // It waits again.
            (false, _) => follow_worth(group, workload, &job, known),
        };
        // Those of an object would be made again, and join the same Workload.
        if known.is_outlived && PodOwner::of_pod(group.first()).is_none() {
            pods.extend(remove(&group.pods, &PodStep::Retire));
        }
        return Plan::of(PodsStep::Job(step), pods);
    }
    by_admission(group, workload, &job, known)
}

/// Whether one pod that runs on its quota was edited since, as one is that is resized in place, or its Workload is for several.
fn runs_as_another(group: &Group<'_>, workload: &Workload) -> bool {
    let holds = workload.holds(tokens::QUOTA_RESERVED) && !workload.holds(tokens::EVICTED);
    let runs = !group.is_group() && !group.is_prebuilt() && !group.is_suspended();
    if !holds || !runs {
        return false;
    }
    let Ok(spec) = PodSpec::deserialize(&group.first().spec) else { return false };
    let differs =
        |written: &PodSpec| written.resources != spec.resources || !written.runs.has_images_of(&spec.runs);
    !is_of_one(workload) || workload.spec.pod_sets.iter().any(|set| differs(&set.template.spec))
}

/// Follows what holds a Workload back, and what it is worth. One that an owner of its pods made is worth what the owner says: pods
/// may say something else each.
fn follow_worth(group: &Group<'_>, workload: &Workload, job: &Job, known: Known<'_>) -> Step {
    let priority = known.priority.filter(|_| PodOwner::of_pod(group.first()).is_none());
    upkeep(job, workload, priority, known.gates)
}

/// Who is admitted starts; who is not waits, and is stopped if it runs.
fn by_admission(group: &Group<'_>, workload: &Workload, job: &Job, known: Known<'_>) -> Plan {
    let reserved = workload.holds(tokens::QUOTA_RESERVED);
    let worth = || PodsStep::Job(follow_worth(group, workload, job, known));
    let admitted = reserved && workload.holds(tokens::ADMITTED);
    let stopped = || stop(&group.pods, &Stop::NotAdmitted, "their Workload is not admitted");
    match (group.is_suspended(), admitted) {
        (true, true) => {
            let gated =
                group.pods.iter().filter(|pod| pod.has_gate(kueue::ADMISSION_GATE) && !pod.is_leaving());
            Plan::of(worth(), gated.map(|pod| (pod.uid().into(), PodStep::Start)).collect())
        }
        (true, false) => {
            // What somebody else made stays in its queue where the pods name none.
            let has_its_own = group.is_prebuilt() && job.view.queue.is_none();
            let follows = !group.is_serving() && !reserved && !known.is_unqueued && !has_its_own;
            let moved = change_queue(&job.view, workload).filter(|_| follows);
            // Some may run beside those that wait: whoever stopped them died on the way.
            Plan::of(moved.map_or_else(worth, PodsStep::Job), stopped())
        }
        (false, true) => Plan::of(worth(), Vec::new()),
        (false, false) => Plan::of(worth(), stopped()),
    }
}

/// What follows from whether the Workload that somebody else made describes these pods (Kueue's `ensurePrebuiltWorkloadInSync`). Of a
/// group it is enough that it has room for them; a pod by itself is compared as a job is.
fn check(group: &Group<'_>, workload: &Workload, job: &Job, known: Known<'_>) -> Option<Step> {
    if !group.is_prebuilt() {
        return None;
    }
    if group.is_group() {
        return (!is_described(&wanted(group), workload)).then(out_of_sync);
    }
    let in_sync = match &job.view.pod_sets {
        Ok(_) if job.view.suspended => is_equivalent(job, workload, known.gates),
        Ok(sets) => describes(workload, job, sets),
        Err(_) => false,
    };
    check_prebuilt(job, workload, in_sync, known.compared)
}

/// Whose Workload has ended is let go. If that never was about them, those that run have no quota.
fn after_end(group: &Group<'_>, reason: &str) -> Vec<(Uid, PodStep)> {
    let mut pods = match reason {
        tokens::finished::OUT_OF_SYNC => stop(&group.pods, &Stop::NoMatchingWorkload, OTHER_PODS),
        _ => Vec::new(),
    };
    pods.extend(let_all_go(&group.pods));
    pods
}

/// Whose Workload is deleted has no quota: even what has ended or waits goes. The Workload is kept while anything runs, and until all
/// that was there are deleted: without it, those that wait would get another. Those that were made since and wait need one.
fn after_deletion(group: &Group<'_>, workload: &Workload, known: Known<'_>) -> Plan {
    let deleted = &workload.metadata.deletion_timestamp;
    let had_it = |pod: &&&JobObject| !is_suspended(pod) || pod.metadata.creation_timestamp <= *deleted;
    let had_it: Vec<&JobObject> = group.pods.iter().filter(had_it).copied().collect();
    let mut pods = stop(&had_it, &Stop::WorkloadDeleted, "their Workload was deleted");
    let is_needed = group.is_active(known.now) || !pods.is_empty();
    let step = if is_needed { Step::Nothing } else { let_go(workload) };
    let leaving: Vec<&JobObject> = group.pods.iter().filter(|pod| pod.is_leaving()).copied().collect();
    pods.extend(let_all_go(&leaving));
    Plan::of(PodsStep::Job(step), pods)
}

/// The pods that go on, and those that do not.
struct Fit<'a> {
    kept: Vec<&'a JobObject>,
    excess: Vec<&'a JobObject>,
    replaced: Vec<&'a JobObject>,
    /// Of none of its roles.
    strange: Vec<&'a JobObject>,
    /// Places without a pod.
    absent: usize,
}

/// How the pods fill the places of the Workload; `None` where it describes others.
fn fit<'a>(group: &Group<'a>, workload: &Workload, known: Known<'_>) -> Option<Fit<'a>> {
    let is_prebuilt = group.first().prebuilt().is_some();
    if !is_prebuilt && workload.spec.maximum_execution_time_seconds != max_seconds(group.first()) {
        return None;
    }
    let (active, inactive) = partition(&group.pods);
    let names: BTreeSet<&str> = workload.spec.pod_sets.iter().map(|set| set.name.as_str()).collect();
    let strange = group.pods.iter().filter(|pod| !names.contains(&*pod.role())).copied().collect();
    let mut fit = Fit { kept: Vec::new(), excess: Vec::new(), replaced: Vec::new(), strange, absent: 0 };
    for set in &*workload.spec.pod_sets {
        let count = usize::try_from(set.count.unwrap_or(1)).unwrap_or(0);
        let of_role = |pods: &[&'a JobObject]| -> Vec<&'a JobObject> {
            pods.iter().filter(|pod| pod.role() == set.name).copied().collect()
        };
        let (mut active, mut inactive) = (of_role(&active), of_role(&inactive));
        fit.absent += match group.is_fast() || is_prebuilt {
            true if is_prebuilt => 0,
            true => usize::from(count > 0 && active.is_empty()),
            false => count.saturating_sub(active.len()),
        };
        let replaced = (inactive.len() + active.len()).saturating_sub(count).min(inactive.len());
        keepers_first(&mut active);
        fit.excess.extend(active.split_off(active.len().min(count)));
        longest_gone_last(&mut inactive, known.now);
        fit.replaced.extend(inactive.split_off(inactive.len() - replaced));
        fit.kept.extend(active);
        fit.kept.extend(inactive);
    }
    let is_described = !fit.kept.is_empty() && is_described(&roles(&fit.kept), workload);
    is_described.then_some(fit)
}

/// How many pods of each role may run, or have succeeded.
fn roles(pods: &[&JobObject]) -> BTreeMap<String, i64> {
    let mut roles: BTreeMap<String, i64> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| pod.is_runnable_or_succeeded()) {
        *roles.entry(pod.role()).or_default() += 1;
    }
    roles
}

/// The same of a group that may lack pods: in a fast one the first speaks for all.
fn wanted(group: &Group<'_>) -> BTreeMap<String, i64> {
    if !group.is_fast() {
        return roles(&group.pods);
    }
    let total = group.total().ok().and_then(|total| i64::try_from(total).ok());
    let first = group.pods.iter().find(|pod| pod.is_runnable_or_succeeded());
    first.map(|pod| (pod.role(), total.unwrap_or(1))).into_iter().collect()
}

/// Whether every role has its place in the Workload, in its order, and no more pods than that.
fn is_described(roles: &BTreeMap<String, i64>, workload: &Workload) -> bool {
    let finished = workload.holds(tokens::FINISHED);
    let mut sets = workload.spec.pod_sets.iter();
    roles.iter().all(|(role, pods)| {
        sets.find(|set| set.name == *role).is_some_and(|set| finished || set.count.unwrap_or(1) >= *pods)
    })
}

/// Pods that may run, or have succeeded; and the others.
pub(super) fn partition<'a>(pods: &[&'a JobObject]) -> (Vec<&'a JobObject>, Vec<&'a JobObject>) {
    pods.iter().copied().partition(|pod| pod.is_runnable_or_succeeded())
}

/// Who is held, who may be scheduled already, who is older.
pub(super) fn keepers_first(pods: &mut [&JobObject]) {
    pods.sort_by_key(|pod| {
        let created = pod.metadata.creation_timestamp.clone();
        (!pod.is_held(), pod.has_gate(kueue::ADMISSION_GATE), created, pod.metadata.uid.clone())
    });
}

fn longest_gone_last(pods: &mut [&JobObject], now: Timestamp) {
    pods.sort_by_key(|pod| {
        let created = pod.metadata.creation_timestamp.clone();
        let last = pod.last_active().unwrap_or(now);
        (!pod.is_held(), Reverse(last), created, pod.metadata.uid.clone())
    });
}

fn let_all_go(pods: &[&JobObject]) -> Vec<(Uid, PodStep)> {
    let held = pods.iter().filter(|pod| pod.is_held());
    held.map(|pod| (pod.uid().into(), PodStep::LetGo)).collect()
}

/// Lets pods go, then deletes them in this way.
fn remove(pods: &[&JobObject], delete: &PodStep) -> Vec<(Uid, PodStep)> {
    let step = |pod: &&JobObject| match (pod.is_held(), pod.is_leaving()) {
        (true, _) => Some((Uid::from(pod.uid()), PodStep::LetGo)),
        (false, false) => Some((Uid::from(pod.uid()), delete.clone())),
        (false, true) => None,
    };
    pods.iter().filter_map(step).collect()
}

fn stop(pods: &[&JobObject], why: &Stop, message: &str) -> Vec<(Uid, PodStep)> {
    let runs = |pod: &&&JobObject| !pod.is_leaving() && (*why == Stop::WorkloadDeleted || !is_suspended(pod));
    let step = |pod: &&JobObject| match pod.is_termination_target() {
        true => PodStep::Delete,
        false => PodStep::Mark(why.clone(), message.to_owned()),
    };
    pods.iter().filter(runs).map(|pod| (pod.uid().into(), step(pod))).collect()
}

/// Pods of the group that do not own its Workload yet.
fn strangers(group: &Group<'_>, workload: &Workload) -> Vec<Uid> {
    if !group.is_group() {
        return Vec::new();
    }
    let owners: BTreeSet<&str> =
        workload.metadata.owner_references.iter().flatten().map(|owner| owner.uid.as_str()).collect();
    let strangers = group.pods.iter().filter(|pod| !owners.contains(pod.uid()));
    strangers.map(|pod| pod.uid().into()).collect()
}

fn replacements(group: &Group<'_>, workload: &Workload, absent: usize) -> Option<Change> {
    const KIND: &str = tokens::WAITING_FOR_REPLACEMENT_PODS;
    let said = workload.condition(KIND);
    if !group.is_group() || (said.is_none() && absent == 0) {
        return None;
    }
    let holds = said.is_some_and(|one| one.status == "True");
    if absent == 0 {
        let is_over = said.is_some_and(|one| one.status == "False");
        let words = "no pods are to be replaced";
        return (!is_over).then(|| Change::new(KIND, false, replacement::PODS_READY, words));
    }
    match workload.true_condition(tokens::EVICTED) {
        Some(evicted) => {
            let same = said.is_some_and(|one| one.reason == evicted.reason && one.message == evicted.message);
            (!holds || !same).then(|| Change::new(KIND, true, &evicted.reason, &evicted.message))
        }
        None => (!holds).then(|| {
            Change::new(KIND, true, replacement::PODS_FAILED, "pods that have failed are to be replaced")
        }),
    }
}

#[cfg(test)]
mod tests;
