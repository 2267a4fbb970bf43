//! Elastic jobs: one that grows while it runs has a second Workload, a slice, which takes the place of the first when it has its
//! quota; until then the pods that are new wait behind a gate. One that shrinks keeps its Workload, with smaller counts.
//!
//! Rules: Kueue KEP-77, `pkg/workloadslicing` and `pkg/controller/elasticjobs`. What a slice asks of quota is the engine's business.

use std::collections::BTreeMap;

use crds::names::kueue;
use crds::reasons::workload as tokens;
use crds::validation::Gates;
use crds::view::workload::Workload;
use model::selector::Labels;
use serde_json::{Value, json};

use crate::checks;
use crate::compose::{self, Priorities};
use crate::jobs::{self, JobPodSet};
use crate::names::slice_name_of;
use crate::pods::Member;
use crate::provisioning::{CLASS, CONSUME};
use crate::reconcile::Job;

/// Whether a job may be resized while it runs.
pub fn is_elastic(job: &Job) -> bool {
    job.kind.has_slices && job.object.annotation(kueue::ELASTIC_JOB) == "true"
}

fn annotation<'a>(workload: &'a Workload, key: &str) -> Option<&'a str> {
    workload.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

fn name(workload: &Workload) -> &str {
    workload.metadata.name.as_deref().unwrap_or_default()
}

/// Whether a Workload is a slice of an elastic job.
pub fn is_slice(workload: &Workload) -> bool {
    annotation(workload, kueue::ELASTIC_JOB) == Some("true")
}

/// What all slices of a job have in common, and their pods: the name of the first.
pub fn chain(workload: &Workload) -> &str {
    annotation(workload, kueue::WORKLOAD_SLICE_NAME).unwrap_or_else(|| name(workload))
}

fn replaces(workload: &Workload) -> Option<&str> {
    annotation(workload, kueue::WORKLOAD_SLICE_REPLACEMENT_FOR)
}

fn key(workload: &Workload) -> String {
    format!("{}/{}", workload.metadata.namespace.as_deref().unwrap_or_default(), name(workload))
}

fn is_reserved(workload: &Workload) -> bool {
    workload.holds(tokens::QUOTA_RESERVED)
}

fn is_evicted(workload: &Workload) -> bool {
    workload.holds(tokens::EVICTED)
}

/// Whether a slice that is over had its place taken by another. One that was evicted had lost it before: in Kueue only the scheduler
/// counts and tells of such ends, and it is not the one who ends these (`normalizeActiveSlices`).
pub fn was_replaced(slice: &Workload) -> bool {
    let over = slice.condition(tokens::FINISHED);
    over.is_some_and(|over| over.reason == tokens::finished::WORKLOAD_SLICE_REPLACED) && !is_evicted(slice)
}

/// What is to be done with the slices of a job that are not over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Plan<'a> {
    /// There is none: the first is made.
    First,
    /// The job has grown beyond this one: another is made that takes its place.
    Grow(&'a Workload),
    /// Its counts become the job's.
    Resize(&'a Workload),
    /// It is over, for this reason.
    Finish(&'a Workload, &'static str),
    /// It was evicted and has quota still: the job stops first.
    Leave(&'a Workload),
    /// This one counts. The job may go on with the quota of another until this one has its own.
    Keep {
        /// It.
        slice: &'a Workload,
        /// The other.
        behind: Option<&'a Workload>,
    },
    /// More than counts has changed: it is handled as the Workload of any job.
    Other(&'a Workload),
}

/// The plan for a job with these pod sets. `live`: its slices that are not over, the oldest first.
pub fn plan<'a>(sets: &[JobPodSet], live: &[&'a Workload]) -> Plan<'a> {
    if let Some(leaving) = live.iter().find(|one| is_evicted(one) && is_reserved(one)) {
        return Plan::Leave(leaving);
    }
    let (slice, behind) = match live {
        [] => return Plan::First,
        [one] => (*one, None),
        several => match choose(several) {
            Choice::Finish(slice, reason) => return Plan::Finish(slice, reason),
            Choice::Follow(slice, behind) => (slice, behind),
        },
    };
    let written = &slice.spec.pod_sets;
    let counts: Vec<(i64, i64)> = written
        .iter()
        .filter_map(|one| {
            let set = sets.iter().find(|set| set.name == one.name)?;
            Some((one.count.unwrap_or(1), set.count))
        })
        .collect();
    if counts.len() != sets.len() || written.len() != sets.len() {
        return Plan::Other(slice);
    }
    let shrinks = counts.iter().any(|(before, now)| now < before);
    let grows = counts.iter().any(|(before, now)| now > before);
    match (grows, shrinks) {
        (false, false) => Plan::Keep { slice, behind },
        (true, _) if is_reserved(slice) => Plan::Grow(slice),
        _ => Plan::Resize(slice),
    }
}

enum Choice<'a> {
    Follow(&'a Workload, Option<&'a Workload>),
    Finish(&'a Workload, &'static str),
}

/// Of several, the one with quota that nobody with quota replaces goes on, and the one that waits to replace it; the others are
/// over.
fn choose<'a>(live: &[&'a Workload]) -> Choice<'a> {
    let mut replacements: BTreeMap<&str, &'a Workload> = BTreeMap::new();
    for one in live.iter().filter(|one| !is_evicted(one)) {
        if let Some(replaced) = replaces(one)
            && replacements.get(replaced).is_none_or(|there| !is_reserved(there) && is_reserved(one))
        {
            replacements.insert(replaced, one);
        }
    }
    let replacement = |one: &Workload| replacements.get(key(one).as_str()).copied();
    let standing = || live.iter().copied().filter(|one| !is_evicted(one));
    let is_head = |one: &&Workload| is_reserved(one) && !replacement(one).is_some_and(is_reserved);
    let head = standing().rfind(is_head);
    let waiting = head.and_then(replacement).filter(|one| !is_reserved(one));
    let newest = standing().next_back().or(live.last().copied());
    let Some(chosen) = waiting.or(head).or(newest) else {
        return Choice::Finish(live[0], tokens::finished::OUT_OF_SYNC);
    };
    let same = |one: &Workload, other: &Workload| one.metadata.uid == other.metadata.uid;
    let is_over = |one: &&&Workload| !same(one, chosen) && !head.is_some_and(|head| same(one, head));
    match live.iter().find(is_over) {
        Some(over) if replacement(over).is_some() => {
            Choice::Finish(over, tokens::finished::WORKLOAD_SLICE_REPLACED)
        }
        Some(over) => Choice::Finish(over, tokens::finished::OUT_OF_SYNC),
        None => Choice::Follow(chosen, head.filter(|head| !same(head, chosen))),
    }
}

/// The slice on whose quota pods may run: the newest that is admitted and stays.
pub fn active<'a>(live: &[&'a Workload]) -> Option<&'a Workload> {
    let newest = live.iter().rev().find(|one| is_reserved(one) && !is_evicted(one))?;
    newest.holds(tokens::ADMITTED).then_some(*newest)
}

/// What a slice's checks want of a pod that it starts (Kueue `podAdmissionUpdate`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// The annotations that name a ProvisioningRequest and its class.
    pub annotations: BTreeMap<String, String>,
    /// The node selector.
    pub selector: Labels,
}

impl Marks {
    /// Those among these annotations, and this node selector.
    pub fn of(mut annotations: BTreeMap<String, String>, selector: Labels) -> Self {
        annotations.retain(|key, _| [CONSUME, CLASS].contains(&key.as_str()));
        Self { annotations, selector }
    }

    /// Whether a pod with this node selector may have them.
    pub fn suit(&self, selector: &Labels) -> bool {
        same(&self.selector, selector)
    }

    fn agree(&self, other: &Self) -> bool {
        same(&self.annotations, &other.annotations) && same(&self.selector, &other.selector)
    }
}

/// Whether what both have is the same.
fn same(one: &BTreeMap<String, String>, other: &BTreeMap<String, String>) -> bool {
    one.iter().all(|(key, value)| other.get(key).is_none_or(|there| there == value))
}

/// What the checks of a slice want of its pods, by pod set; `None` where they contradict one another.
pub fn marks(slice: &Workload) -> Option<BTreeMap<&str, Marks>> {
    let sets = slice.spec.pod_sets.iter();
    let mut marks: BTreeMap<&str, Marks> = sets.map(|set| (set.name.as_str(), Marks::default())).collect();
    for update in slice.status.admission_checks.iter().flat_map(checks::updates) {
        let Some(known) = marks.get_mut(update.name.as_str()) else { continue };
        let more = Marks::of(update.annotations, update.node_selector);
        if !known.agree(&more) {
            return None;
        }
        known.annotations.extend(more.annotations);
        known.selector.extend(more.selector);
    }
    Some(marks)
}

/// Another slice of a job, ready to be created: as the job is now, with its templates as the user wrote them.
///
/// # Errors
/// Why the job cannot be described, in words for its owner.
pub fn compose(
    job: &Job,
    replaced: Option<&Workload>,
    priorities: &Priorities,
    gates: Gates,
) -> Result<Value, String> {
    let sets = job.view.pod_sets.as_ref().map_err(Clone::clone)?;
    let mut clean = job.clone();
    if let Some(old) = replaced {
        clean.object.spec = jobs::as_written(job.kind, &job.object, sets, old);
        clean.view = jobs::read(job.kind, &clean.object);
    }
    let mut workload = compose::compose(&clean, priorities, gates)?;
    let metadata = &job.object.metadata;
    let own = slice_name_of(
        job.kind.group_kind(),
        metadata.name.as_deref().unwrap_or_default(),
        job.object.uid(),
        metadata.generation.unwrap_or(0),
        job.object.at("/child/generation").and_then(Value::as_i64),
    );
    let first = replaced.map_or(own.as_str(), chain).to_owned();
    workload["metadata"]["name"] = json!(own);
    let annotations = &mut workload["metadata"]["annotations"];
    annotations[kueue::ELASTIC_JOB] = json!("true");
    annotations[kueue::WORKLOAD_SLICE_NAME] = json!(first);
    if let Some(old) = replaced {
        annotations[kueue::WORKLOAD_SLICE_REPLACEMENT_FOR] = json!(key(old));
    }
    Ok(workload)
}

/// The pod sets of a slice as they are written, with the counts of the job.
pub fn resized(mut written: Value, sets: &[JobPodSet]) -> Value {
    for set in written.as_array_mut().into_iter().flatten() {
        if let Some(wanted) = sets.iter().find(|one| set["name"] == one.name.as_str()) {
            set["count"] = json!(wanted.count);
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(name: &str, count: i64, replaces: &str, conditions: &[&str]) -> Workload {
        let conditions: Vec<Value> =
            conditions.iter().map(|kind| json!({ "type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z" })).collect();
        let mut annotations = json!({ kueue::ELASTIC_JOB: "true", kueue::WORKLOAD_SLICE_NAME: "first" });
        if !replaces.is_empty() {
            annotations[kueue::WORKLOAD_SLICE_REPLACEMENT_FOR] = json!(format!("ns/{replaces}"));
        }
        serde_json::from_value(json!({
            "metadata": { "name": name, "namespace": "ns", "uid": name, "annotations": annotations },
            "spec": { "podSets": [{ "name": "main", "count": count }] },
            "status": { "conditions": conditions },
        }))
        .unwrap()
    }

    fn sets(count: i64) -> Vec<JobPodSet> {
        vec![JobPodSet { name: "main".to_owned(), count, ..JobPodSet::default() }]
    }

    fn said(plan: Plan<'_>) -> String {
        match plan {
            Plan::First => "first".to_owned(),
            Plan::Grow(one) => format!("grow {}", name(one)),
            Plan::Resize(one) => format!("resize {}", name(one)),
            Plan::Finish(one, reason) => format!("finish {} {reason}", name(one)),
            Plan::Leave(one) => format!("leave {}", name(one)),
            Plan::Keep { slice, behind } => {
                format!("keep {} behind {}", name(slice), behind.map_or("nobody", name))
            }
            Plan::Other(one) => format!("other {}", name(one)),
        }
    }

    const HELD: &[&str] = &[tokens::QUOTA_RESERVED, tokens::ADMITTED];
    const GOING: &[&str] = &[tokens::QUOTA_RESERVED, tokens::EVICTED];

    #[test]
    fn a_job_that_grows_has_a_second_slice_and_one_that_shrinks_a_smaller_one() {
        for (slices, count, wanted) in [
            (vec![], 3, "first"),
            (vec![slice("a", 3, "", &[])], 3, "keep a behind nobody"),
            (vec![slice("a", 3, "", &[])], 5, "resize a"),
            (vec![slice("a", 3, "", HELD)], 5, "grow a"),
            (vec![slice("a", 3, "", HELD)], 2, "resize a"),
            (vec![slice("a", 3, "", HELD), slice("b", 5, "a", &[])], 5, "keep b behind a"),
            (vec![slice("a", 3, "", HELD), slice("b", 5, "a", &[])], 6, "resize b"),
            (vec![slice("a", 3, "", HELD), slice("b", 5, "a", &[])], 2, "resize b"),
            // Both have quota: the first is over.
            (vec![slice("a", 3, "", HELD), slice("b", 5, "a", HELD)], 5, "finish a WorkloadSliceReplaced"),
            // Made twice, in a race: one of them.
            (
                vec![slice("a", 3, "", HELD), slice("b", 5, "a", &[]), slice("c", 5, "a", &[])],
                5,
                "finish c OutOfSync",
            ),
            (vec![slice("a", 3, "", GOING), slice("b", 5, "a", &[])], 5, "leave a"),
            (
                vec![slice("a", 3, "", &[tokens::EVICTED]), slice("b", 5, "a", &[])],
                5,
                "finish a WorkloadSliceReplaced",
            ),
        ] {
            let live: Vec<&Workload> = slices.iter().collect();
            assert_eq!(said(plan(&sets(count), &live)), wanted, "{count} of {:?}", live.len());
        }
        let other = slice("a", 3, "", HELD);
        let renamed = vec![JobPodSet { name: "workers".to_owned(), count: 3, ..JobPodSet::default() }];
        assert_eq!(said(plan(&renamed, &[&other])), "other a");
    }

    #[test]
    fn pods_run_on_the_newest_slice_once_it_is_admitted() {
        let (first, pending) = (slice("a", 3, "", HELD), slice("b", 5, "a", &[]));
        let checked = slice("b", 5, "a", &[tokens::QUOTA_RESERVED]);
        let name_of = |live: &[&Workload]| active(live).map(|one| name(one).to_owned());
        assert_eq!(name_of(&[&first, &pending]).as_deref(), Some("a"));
        assert_eq!(name_of(&[&first, &checked]), None, "its checks are not through");
        assert_eq!(name_of(&[&slice("a", 3, "", GOING)]), None);
    }
}
