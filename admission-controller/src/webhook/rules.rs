//! What every managed kind has to keep to: Kueue's rules for labels and annotations of jobs
//! (`pkg/controller/jobframework/validation.go`), with its field paths and kinds of errors.

use std::collections::BTreeSet;

use crds::names::kueue;
use crds::validation::{ErrorKind, FieldError, is_dns_subdomain, is_domain_path};
use serde_json::{Value, json};

use crate::config::Configuration;
use crate::jobs::table::PodSets;
use crate::jobs::{self, JobKind, JobObject, MAX_POD_SETS, field, is_true};
use crate::pods::{Member, prebuilt};

/// What apimachinery says of a field that must stay.
const IMMUTABLE: &str = "it cannot be changed now";

/// So much of a value is shown.
const MAX_SHOWN: usize = 1024;
/// So much is said of one annotation.
const MAX_TOLD: usize = 16;
/// Longest name of a controller that gates admission: as of a Job's `managedBy`.
const MAX_GATE: usize = 63;

/// A job under review.
pub(super) struct Subject<'a> {
    pub(super) kind: &'a JobKind,
    pub(super) object: &'a JobObject,
    pub(super) suspended: bool,
    /// Whether it may be resized while it runs, or asks for it: without the gate the annotation means nothing.
    pub(super) elastic: bool,
}

impl<'a> Subject<'a> {
    pub(super) fn new(
        config: &Configuration,
        kind: &'a JobKind,
        object: &'a JobObject,
        suspended: bool,
    ) -> Self {
        let elastic = config.gates().elastic_jobs && object.annotation(kueue::ELASTIC_JOB) == "true";
        Self { kind, object, suspended, elastic }
    }
}

/// What is wrong with one, whenever it is written.
pub(super) fn always(job: &Subject<'_>) -> Vec<FieldError> {
    let mut errors = queue_name(job.object);
    errors.extend(prebuilt_name(job));
    if let Some(seconds) = job.object.label(kueue::MAX_EXEC_TIME_SECONDS) {
        let path = label(kueue::MAX_EXEC_TIME_SECONDS);
        match seconds.parse::<i64>() {
            Ok(1..) => {}
            Ok(_) => errors.push(invalid(path, seconds, "it must be 1 or more")),
            Err(_) => errors.push(invalid(path, seconds, "it must be a whole number of seconds")),
        }
    }
    errors.extend(elastic(job));
    errors
}

/// What is wrong with the fewer pods that a new one accepts. How many it asks for changes when it is started with fewer.
pub(super) fn fewer_pods(job: &Subject<'_>) -> Vec<FieldError> {
    [fewer(job), follows(job)].concat()
}

/// The annotations of a kind that accepts fewer pods, and how many it asks for.
fn fewer_of<'a>(job: &Subject<'a>) -> Option<(&'static str, &'static str, &'static str, &'static str)> {
    match &job.kind.pod_sets {
        PodSets::Single { parallelism, completions, fewer: Some((least, follows)), .. } => {
            Some((least, follows, parallelism, completions))
        }
        _ => None,
    }
}

/// Fewer pods than it asks for, and at least one.
fn fewer(job: &Subject<'_>) -> Vec<FieldError> {
    let Some((least, _, parallelism, completions)) = fewer_of(job) else { return Vec::new() };
    let text = job.object.metadata.annotations.as_ref().and_then(|all| all.get(least));
    let (Some(text), Ok(asked)) = (text, jobs::parallel(job.object, parallelism, completions)) else {
        return Vec::new();
    };
    let wrong = match text.parse::<i64>() {
        Ok(count) if (1..asked).contains(&count) => None,
        Ok(_) => Some(format!("it must be from 1 to {}", asked - 1)),
        Err(_) => Some("it must be a whole number".to_owned()),
    };
    let elastic = job.elastic.then(|| "an elastic job is not admitted with fewer pods".to_owned());
    wrong.into_iter().chain(elastic).map(|detail| invalid(annotation(least), text, detail)).collect()
}

/// Completions follow parallelism only where each pod has an index, and both are the same.
fn follows(job: &Subject<'_>) -> Vec<FieldError> {
    let Some((_, follows, parallelism, completions)) = fewer_of(job) else { return Vec::new() };
    let text = job.object.metadata.annotations.as_ref().and_then(|all| all.get(follows));
    let mut errors = Vec::new();
    match text.map(String::as_str) {
        None => return errors,
        Some(text) => match is_true(text) {
            Some(false) => return errors,
            Some(true) => {}
            None => return vec![invalid(annotation(follows), text, "it must be true or false")],
        },
    }
    if job.object.text("/spec/completionMode") != "Indexed" {
        let text = text.map_or("", String::as_str);
        errors.push(invalid(annotation(follows), text, "only an Indexed job can have it"));
    }
    let number = |at: &str| job.object.at(at).and_then(Value::as_i64).unwrap_or(1);
    if number(parallelism) != number(completions) {
        let detail = format!("with {follows} it must be as parallelism");
        errors.push(invalid_number(completions, job.object, detail));
    }
    errors
}

/// While it runs, who may have been given fewer pods does not change how many.
fn stays_as_many(old: &Subject<'_>, new: &Subject<'_>) -> Vec<FieldError> {
    let Some((least, set_to, parallelism, _)) = fewer_of(new) else { return Vec::new() };
    let mut errors = follows(new);
    if old.object.annotation(least) != new.object.annotation(least) {
        errors.extend(fewer(new));
    }
    let number = |job: &Subject<'_>| job.object.at(parallelism).and_then(Value::as_i64).unwrap_or(1);
    let accepts = !old.object.annotation(least).is_empty();
    if accepts && !old.suspended && number(old) != number(new) {
        let detail = "it stays while a job that accepts fewer pods runs; suspend it first";
        errors.push(forbidden(field(parallelism), detail));
    }
    let says = |job: &Subject<'_>| is_true(job.object.annotation(set_to)) == Some(true);
    if !old.suspended && !new.suspended && says(old) != says(new) {
        errors.push(forbidden(annotation(set_to), IMMUTABLE));
    }
    errors
}

/// What is wrong with a change.
pub(super) fn on_update(old: &Subject<'_>, new: &Subject<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let queue = |job: &Subject<'_>| job.object.queue().unwrap_or_default().to_owned();
    if !new.suspended && queue(old) != queue(new) {
        errors.push(invalid(label(kueue::QUEUE_NAME), &queue(new), IMMUTABLE));
    }
    if new.suspended || old.elastic {
        errors.extend(prebuilt_name(new));
    } else if prebuilt(old.object) != prebuilt(new.object) {
        let name = prebuilt(new.object).unwrap_or_default();
        errors.push(invalid(prebuilt_path(new.object), name, IMMUTABLE));
    }
    let seconds =
        |job: &Subject<'_>| job.object.label(kueue::MAX_EXEC_TIME_SECONDS).unwrap_or_default().to_owned();
    if (!new.suspended || !old.suspended) && seconds(old) != seconds(new) {
        let path = label(kueue::MAX_EXEC_TIME_SECONDS);
        errors.push(invalid(path, &seconds(new), IMMUTABLE));
    }
    errors.extend(priority_class(new.suspended, old.object, new.object));
    errors.extend(stays_as_many(old, new));
    if old.elastic != new.elastic {
        errors.push(FieldError {
            value: Some(json!(new.elastic)),
            ..invalid(annotation(kueue::ELASTIC_JOB), "", IMMUTABLE)
        });
    }
    errors
}

/// Who would be given a queue does not lose theirs. `has_default`: whether the namespace has one for those that name none.
pub(super) fn queue_stays(old: &JobObject, new: &JobObject, has_default: bool) -> Option<FieldError> {
    let detail = "it is not taken away in a namespace with a default queue";
    let loses = has_default && old.queue().is_some() && new.queue().is_none();
    loses.then(|| invalid(label(kueue::QUEUE_NAME), "", detail))
}

/// A job that uses what others run does not describe it as well.
pub(super) fn elsewhere(job: &Subject<'_>) -> Vec<FieldError> {
    let (Some(at), Some(described)) = (job.kind.elsewhere, cluster(job.kind)) else { return Vec::new() };
    let both = job.object.at(described).is_some_and(|there| !there.is_null());
    let value = job.object.at(at).cloned();
    let detail = format!("it does not go with {}", field(described));
    both.then(|| FieldError { value, ..invalid(field(at), "", detail) }).into_iter().collect()
}

/// Where a kind with a head describes its cluster.
fn cluster(kind: &JobKind) -> Option<&'static str> {
    match &kind.pod_sets {
        PodSets::HeadAndGroups { at, .. } => at.rsplit_once('/').map(|(cluster, _)| cluster),
        _ => None,
    }
}

/// A job that uses nothing of others has to describe what it is to run in.
pub(super) fn undescribed(job: &Subject<'_>) -> Option<FieldError> {
    let at = cluster(job.kind).filter(|_| job.kind.elsewhere.is_some())?;
    let lacks = job.object.at(at).is_none_or(Value::is_null);
    lacks.then(|| required(field(at), "it describes the pods for which quota is needed"))
}

/// What a managed kind must and must not say, and the names and the number of its groups.
pub(super) fn flags(job: &Subject<'_>) -> Vec<FieldError> {
    let (kind, object) = (job.kind, job.object);
    let says = |at: &str| object.at(at) == Some(&Value::Bool(true));
    let wrong = |at: &str, why: &str| FieldError {
        value: Some(object.at(at).cloned().unwrap_or(Value::Bool(false))),
        ..invalid(kind.field(at), "", why)
    };
    let mut errors = Vec::new();
    errors.extend(kind.demanded.iter().filter(|(at, _)| !says(at)).map(|(at, why)| wrong(at, why)));
    let refused = kind.refused.iter().filter(|(at, _)| says(at) && !job.elastic);
    errors.extend(refused.map(|(at, why)| wrong(at, why)));
    if let PodSets::HeadAndGroups { at, name, .. } = &kind.pod_sets {
        let groups = object.length(at);
        if groups >= MAX_POD_SETS {
            let detail = format!("there can be no more than {} beside the head", MAX_POD_SETS - 1);
            let value = Some(json!(groups + 1));
            errors.push(FieldError { field: kind.field(at), kind: ErrorKind::TooMany, value, detail });
        }
        let heads =
            (0..groups).map(|index| format!("{at}/{index}{name}")).filter(|at| object.text(at) == "head");
        errors.extend(heads.map(|at| forbidden(kind.field(&at), "\"head\" is the name of the head's pods")));
    }
    errors
}

/// Pods of a cluster that is resized are held back until the part of the quota that is theirs is granted. A kind of which one is made is
/// given the gate and not asked for it, as with Kueue: who applies the whole object anew would leave it out.
pub(super) fn ungated(job: &Subject<'_>) -> Vec<FieldError> {
    let is_cluster = matches!(job.kind.pod_sets, PodSets::HeadAndGroups { .. }) && job.kind.child.is_none();
    if !(job.elastic && job.kind.has_slices && is_cluster) {
        return Vec::new();
    }
    let has_gate = |gates: Option<&Value>| {
        let mut gates = gates.and_then(Value::as_array).into_iter().flatten();
        gates.any(|gate| gate["name"] == kueue::ELASTIC_GATE)
    };
    let places =
        jobs::templates(job.kind, job.object).into_iter().map(|at| format!("{at}/spec/schedulingGates"));
    let lacking = places.filter(|at| !has_gate(job.object.at(at)));
    let detail = format!("an elastic job has the gate {}", kueue::ELASTIC_GATE);
    lacking
        .map(|at| FieldError {
            value: Some(job.object.at(&at).cloned().unwrap_or(Value::Null)),
            ..invalid(field(&at), "", detail.clone())
        })
        .collect()
}

/// The controllers that hold an admission back: each once, by its name.
pub(super) fn gated_by(config: &Configuration, object: &JobObject) -> Vec<FieldError> {
    const KEY: &str = kueue::ADMISSION_GATED_BY;
    let mut errors = Vec::new();
    if !config.gates().admission_gated_by {
        return errors;
    }
    let mut seen = BTreeSet::new();
    for gate in gates_of(object) {
        // An annotation has room for a hundred thousand of them.
        if errors.len() >= MAX_TOLD {
            break;
        }
        if gate.is_empty() {
            errors.push(invalid(annotation(KEY), object.annotation(KEY), "a name is empty"));
            continue;
        }
        if !seen.insert(gate) {
            errors.push(invalid(annotation(KEY), object.annotation(KEY), "a controller is named once"));
            continue;
        }
        if !is_domain_path(gate) {
            errors.push(invalid(
                annotation(KEY),
                gate,
                "it must be a controller, such as example.com/controller",
            ));
        }
        if gate.len() > MAX_GATE {
            let detail = format!("no more than {MAX_GATE} bytes");
            errors.push(FieldError { field: annotation(KEY), kind: ErrorKind::TooLong, value: None, detail });
        }
    }
    errors
}

fn gates_of(object: &JobObject) -> impl Iterator<Item = &str> {
    let list = Some(object.annotation(kueue::ADMISSION_GATED_BY)).filter(|list| !list.trim().is_empty());
    list.into_iter().flat_map(|list| list.split(',').map(str::trim))
}

/// What is wrong with an object by these rules, less what was wrong with it before: that does not keep it from being finished with.
/// Nobody looked at what was not managed, and if it still is not, nobody minds.
pub(super) fn added<T>(
    old: Option<&T>,
    new: &T,
    is_managed: impl Fn(&T) -> bool,
    wrong: impl Fn(&T) -> Vec<FieldError>,
) -> Vec<FieldError> {
    let known = old.filter(|old| is_managed(old) || !is_managed(new)).map(&wrong).unwrap_or_default();
    wrong(new).into_iter().filter(|error| !known.contains(error)).collect()
}

/// Gates are taken away, never put up.
pub(super) fn gates_go(config: &Configuration, old: &JobObject, new: &JobObject) -> Option<FieldError> {
    if !config.gates().admission_gated_by {
        return None;
    }
    let given = |object: &JobObject| !object.annotation(kueue::ADMISSION_GATED_BY).is_empty();
    let before: BTreeSet<&str> = gates_of(old).collect();
    let more = gates_of(new).any(|gate| !before.contains(gate));
    (more || (given(new) && !given(old))).then(|| {
        forbidden(annotation(kueue::ADMISSION_GATED_BY), "gates can only be taken away after creation")
    })
}

/// A queue's name is a name.
pub(super) fn queue_name(object: &JobObject) -> Vec<FieldError> {
    named_by_label(object, kueue::QUEUE_NAME)
}

/// A running job is not given a class that it had not; and nobody loses one.
pub(super) fn priority_class(suspended: bool, old: &JobObject, new: &JobObject) -> Option<FieldError> {
    let class = |object: &JobObject| object.label(kueue::PRIORITY_CLASS).unwrap_or_default().to_owned();
    let detail = match (class(old).is_empty(), class(new).is_empty()) {
        (true, false) if !suspended => "it is not added while the job runs; suspend it first",
        (false, true) => "it is not removed; name another class instead",
        _ => return None,
    };
    Some(invalid(label(kueue::PRIORITY_CLASS), &class(new), detail))
}

/// Whether the kind can be resized while it runs, if it is asked to.
pub(super) fn elastic(job: &Subject<'_>) -> Option<FieldError> {
    let detail = format!("a {} cannot be resized while it runs", job.kind.kind);
    (job.elastic && !job.kind.has_slices).then(|| forbidden(annotation(kueue::ELASTIC_JOB), detail))
}

fn prebuilt_name(job: &Subject<'_>) -> Vec<FieldError> {
    let object = job.object;
    let mut errors = match object.annotation(kueue::PREBUILT_WORKLOAD_NAME) {
        "" => named_by_label(object, kueue::PREBUILT_WORKLOAD_NAME),
        name if is_dns_subdomain(name) => Vec::new(),
        name => vec![invalid(prebuilt_path(object), name, "it must be the name of a Workload")],
    };
    if prebuilt(object).is_some() && !job.kind.prebuilt {
        let detail = format!("the Workload of a {} is made by its controller alone", job.kind.kind);
        errors.push(forbidden(prebuilt_path(object), detail));
    }
    errors
}

pub(super) fn prebuilt_path(object: &JobObject) -> String {
    match object.annotation(kueue::PREBUILT_WORKLOAD_NAME) {
        "" => label(kueue::PREBUILT_WORKLOAD_NAME),
        _ => annotation(kueue::PREBUILT_WORKLOAD_NAME),
    }
}

/// A label that names an object has the form of a name.
pub(super) fn named_by_label(object: &JobObject, key: &str) -> Vec<FieldError> {
    let wrong = object.label(key).filter(|name| !is_dns_subdomain(name));
    wrong.map(|name| invalid(label(key), name, "it must be a DNS subdomain name")).into_iter().collect()
}

pub(super) fn label(key: &str) -> String {
    format!("metadata.labels[{key}]")
}

pub(super) fn annotation(key: &str) -> String {
    format!("metadata.annotations[{key}]")
}

pub(super) fn invalid(field: String, value: &str, detail: impl Into<String>) -> FieldError {
    let shown = &value[..value.floor_char_boundary(MAX_SHOWN)];
    let value = Some(Value::from(shown));
    FieldError { field, kind: ErrorKind::Invalid, value, detail: detail.into() }
}

/// A number of the object that cannot be.
pub(super) fn invalid_number(at: &str, object: &JobObject, detail: String) -> FieldError {
    let value = Some(object.at(at).cloned().unwrap_or(Value::Null));
    FieldError { field: field(at), kind: ErrorKind::Invalid, value, detail }
}

/// A field that must stay what it was.
pub(super) fn immutable(field: impl Into<String>, value: Option<&Value>) -> FieldError {
    let value = Some(value.cloned().unwrap_or(Value::Null));
    FieldError { field: field.into(), kind: ErrorKind::Invalid, value, detail: IMMUTABLE.to_owned() }
}

pub(super) fn forbidden(field: String, detail: impl Into<String>) -> FieldError {
    FieldError { field, kind: ErrorKind::Forbidden, value: None, detail: detail.into() }
}

pub(super) fn required(field: String, detail: impl Into<String>) -> FieldError {
    FieldError { field, kind: ErrorKind::Required, value: None, detail: detail.into() }
}
