//! What a job and its Workload need next: a pure step function. One step at a time; the next is worked out from what the
//! API server answers to it, so a crash between any two steps loses nothing.

use crds::names::kueue;
use crds::reasons::workload as tokens;
use crds::view::workload::{PodTemplate, Workload};
use model::pod::PodResources;
use serde::Deserialize;
use serde_json::Value;

use crate::jobs::{JobKind, JobObject, JobPodSet, JobView};

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
    /// Make its Workload.
    CreateWorkload,
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
    /// Give the evicted workload's quota back.
    Release,
    /// Delete the Workload: it describes another job than the job is now.
    DeleteWorkload,
    /// Let the Workload go that is being deleted.
    RemoveFinalizer,
    /// The job was moved to another LocalQueue.
    ChangeQueue(String),
    /// The priority class of the job was changed.
    ChangePriority,
}

/// The next step for a managed job and the Workload that it controls. `priority` is what the job's priority class is
/// worth, if it asks for a WorkloadPriorityClass that exists.
pub fn next(job: &Job, workload: Option<&Workload>, priority: Option<i32>) -> Step {
    let view = &job.view;
    let leaving = job.object.metadata.deletion_timestamp.is_some();
    let Some(workload) = workload else {
        return if view.finished.is_some() || leaving {
            Step::Nothing
        } else if !view.suspended {
            Step::Stop
        } else {
            match &view.pod_sets {
                Ok(_) => Step::CreateWorkload,
                Err(words) => Step::CannotCompose(words.clone()),
            }
        };
    };
    if workload.metadata.deletion_timestamp.is_some() {
        return if leaving || view.finished.is_some() || (view.suspended && !view.active) {
            let held = workload
                .metadata
                .finalizers
                .iter()
                .flatten()
                .any(|one| one == kueue::FINALIZER_RESOURCE_IN_USE);
            if held { Step::RemoveFinalizer } else { Step::Nothing }
        } else if view.suspended {
            Step::Nothing
        } else {
            Step::Stop
        };
    }
    if workload.holds(tokens::FINISHED) {
        return if view.finished.is_none() && !view.suspended && !leaving {
            Step::Stop
        } else {
            Step::Nothing
        };
    }
    if let Some(finish) = &view.finished {
        let reason = if finish.succeeded { tokens::finished::SUCCEEDED } else { tokens::finished::FAILED };
        return Step::Finish { reason, message: finish.message.clone() };
    }
    if leaving {
        return Step::Nothing;
    }
    unfinished(job, workload, priority)
}

fn unfinished(job: &Job, workload: &Workload, priority: Option<i32>) -> Step {
    let view = &job.view;
    let reserved = workload.holds(tokens::QUOTA_RESERVED);
    let in_sync = matches!(&view.pod_sets, Ok(sets) if describes(workload, &job.object, sets));
    if !in_sync {
        return match (view.suspended, reserved) {
            (false, _) => Step::Stop,
            (true, _) if view.active => Step::Nothing,
            (true, _) => Step::DeleteWorkload,
        };
    }
    if reserved && workload.holds(tokens::EVICTED) {
        return match (view.suspended, view.active) {
            (false, _) => Step::Stop,
            (true, true) => Step::Nothing,
            (true, false) => Step::Release,
        };
    }
    if reserved && workload.holds(tokens::ADMITTED) {
        return if view.suspended { Step::Start } else { Step::Nothing };
    }
    if !view.suspended {
        return Step::Stop;
    }
    match &view.queue {
        Some(queue) if !reserved && workload.spec.queue_name.as_ref() != Some(queue) => {
            return Step::ChangeQueue(queue.clone());
        }
        _ => {}
    }
    let class = workload.spec.priority_class_ref.as_ref();
    let same_class = class.is_none_or(|class| Some(&class.name) == view.workload_priority_class.as_ref());
    match priority {
        Some(priority) if !reserved && (workload.spec.priority != Some(priority) || !same_class) => {
            Step::ChangePriority
        }
        _ => Step::Nothing,
    }
}

/// Whether the Workload asks for what the job asks for: the same pod sets with as many pods, each as large. Selectors and
/// tolerations are left out, since admission itself changes those of the job.
pub fn describes(workload: &Workload, object: &JobObject, sets: &[JobPodSet]) -> bool {
    workload.spec.pod_sets.len() == sets.len()
        && workload.spec.pod_sets.iter().zip(sets).all(|(written, set)| {
            written.name == set.name
                && written.count.unwrap_or(1) == set.count
                && object.at(&set.template).is_some_and(|template| same_size(template, &written.template))
        })
}

fn same_size(template: &Value, written: &PodTemplate) -> bool {
    let resources = template.get("spec").and_then(|spec| PodResources::deserialize(spec).ok());
    resources.is_some_and(|resources| resources == written.spec.resources)
}

/// The next step for a Workload whose job is gone, or that nobody controls.
pub fn next_without_job(workload: &Workload, controlled: bool) -> Step {
    if workload.metadata.deletion_timestamp.is_some() {
        let held =
            workload.metadata.finalizers.iter().flatten().any(|one| one == kueue::FINALIZER_RESOURCE_IN_USE);
        return if held { Step::RemoveFinalizer } else { Step::Nothing };
    }
    // Nobody else can say when the pods of a Workload that somebody made by hand are gone.
    let evicted = workload.holds(tokens::QUOTA_RESERVED)
        && workload.holds(tokens::EVICTED)
        && !workload.holds(tokens::FINISHED);
    if evicted && !controlled { Step::Release } else { Step::Nothing }
}
