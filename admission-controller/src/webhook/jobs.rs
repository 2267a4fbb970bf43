//! The webhook of jobs: what they get when they are created, and what of them is refused.

#[cfg(test)]
mod tests;

use crds::names::kueue;
use crds::validation::FieldError;
use serde_json::{Value, json};

use super::review::{Request, Verdict};
use super::rules::{self, Subject};
use super::{Site, filled, owners, pods, topology};
use crate::config::Configuration;
use crate::jobs::table::Added;
use crate::jobs::{
    JobKind, JobObject, JobView, add_gate, begin_runtime_patches, is_unchosen, read, templates,
};
use crate::pods::{Member, POD};

fn parsed(
    config: &Configuration,
    request: &Request,
    object: &Value,
) -> Option<(&'static JobKind, JobObject, JobView)> {
    let kind = config.kind_of(&format!("{}/", request.group), &request.kind)?;
    let object: JobObject = serde_json::from_value(object.clone()).ok()?;
    let view = read(kind, &object);
    Some((kind, object, view))
}

/// A managed job is created suspended, and its pods are given to our scheduler unless somebody chose another. Who waits in no queue
/// is given the class that all have, and no more.
pub(super) fn mutate(site: &Site, request: &Request) -> Verdict {
    let config = &site.config;
    let is_new = request.operation == "CREATE";
    if !is_new && request.operation != "UPDATE" {
        return Verdict::Allow;
    }
    let mut filled = filled::in_labels(site, request);
    let Some((kind, object, view)) = parsed(config, request, &filled) else { return Verdict::Allow };
    if object.runs_elsewhere(kind) {
        return Verdict::Allow;
    }
    // Also of what is part of something else, or is not managed: its pods may be placed through their owner, and it may be managed
    // later.
    if is_new && config.feature_gates.topology_aware_scheduling {
        filled::in_ranks(kind, &mut filled);
    }
    if is_new && matches!(kind.added, Added::RuntimePatches) {
        begin_runtime_patches(&mut filled);
    }
    if site.is_part(&object.metadata) {
        return Verdict::becoming(&request.object, filled);
    }
    if !site.manages(&request.namespace, view.queue.as_deref()) {
        return Verdict::becoming(&request.object, filled);
    }
    let mut changed = filled;
    if is_new && !view.suspended {
        set_existing_parent(&mut changed, kind.suspend, json!(true));
    }
    // A kind of which a cluster is made is not asked for the gate: who applies it anew leaves it out.
    let gives_gate = is_new || kind.child.is_some();
    let is_elastic = gives_gate && config.gates().elastic_jobs && kind.has_slices;
    if is_elastic && object.annotation(kueue::ELASTIC_JOB) == "true" {
        templates(kind, &object).iter().for_each(|at| add_gate(&mut changed, at, kueue::ELASTIC_GATE));
    }
    // Even where the job cannot be described as it is: its owner may correct the rest.
    for template in templates(kind, &object).iter().filter(|_| !config.scheduler_name.is_empty()) {
        let pointer = format!("{template}/spec/schedulerName");
        let chosen = changed.pointer(&pointer).and_then(Value::as_str).unwrap_or_default();
        let nobody_chose = match is_new {
            true => is_unchosen(chosen),
            // Given again where an edit dropped it, and to templates that are new. Others may be immutable.
            false => {
                let was = request.old.pointer(&pointer).and_then(Value::as_str);
                let is_added = !request.old.pointer(template).is_some_and(Value::is_object);
                chosen.is_empty() && (is_added || was == Some(&config.scheduler_name))
            }
        };
        if nobody_chose {
            set_existing_parent(&mut changed, &pointer, json!(config.scheduler_name));
        }
    }
    Verdict::becoming(&request.object, changed)
}

/// How an object of a kind that is managed is looked at.
enum Managed {
    Job,
    Owner,
    Pod,
}

impl Managed {
    /// Of what is asked about; `None` where its kind is not managed.
    fn of(config: &Configuration, request: &Request) -> Option<Self> {
        let is_this = |kind: &JobKind| kind.is(&request.group, &request.kind);
        if config.kinds().any(is_this) {
            Some(Self::Job)
        } else if config.pod_owners().any(|owner| is_this(owner.kind)) {
            Some(Self::Owner)
        } else {
            (is_this(POD) && config.watches_pods()).then_some(Self::Pod)
        }
    }
}

/// The same for every kind that Kueue knows: who asks for a queue by a kind that is not managed is told so.
pub(super) fn mutate_or_warn(site: &Site, request: &Request) -> Verdict {
    match Managed::of(&site.config, request) {
        Some(Managed::Job) => return mutate(site, request),
        Some(Managed::Owner) => return owners::mutate(site, request),
        Some(Managed::Pod) => return pods::mutate(site, request),
        None => {}
    }
    let pointer = format!("/metadata/labels/{}", kueue::QUEUE_NAME.replace('/', "~1"));
    match request.object.pointer(&pointer).and_then(Value::as_str) {
        Some(queue) if request.operation == "CREATE" => Verdict::Warn(format!(
            "{} is not managed: it does not wait in queue {queue:?}, and no quota is counted for it",
            request.kind
        )),
        _ => Verdict::Allow,
    }
}

/// The same for every kind that Kueue knows. What is not managed is its owner's business.
pub(super) fn validate_any(site: &Site, request: &Request) -> Verdict {
    match Managed::of(&site.config, request) {
        Some(Managed::Job) => validate(site, request),
        Some(Managed::Owner) => owners::validate(site, request),
        Some(Managed::Pod) => pods::validate(site, request),
        None => Verdict::Allow,
    }
}

/// Sets a field of an object; an absent parent is made, one that is no object is left to the API server's schema.
pub(super) fn set_existing_parent(root: &mut Value, pointer: &str, value: Value) {
    let Some((parent, field)) = pointer.rsplit_once('/') else { return };
    if root.pointer(parent).is_none_or(Value::is_null) && !parent.is_empty() {
        set_existing_parent(root, parent, json!({}));
    }
    if let Some(Value::Object(parent)) = root.pointer_mut(parent) {
        parent.insert(field.replace("~1", "/").replace("~0", "~"), value);
    }
}

/// The queue, the priority class and what else an admission rests on stay what they were while the job runs.
pub(super) fn validate(site: &Site, request: &Request) -> Verdict {
    let config = &site.config;
    let Some((kind, object, view)) = parsed(config, request, &request.object) else { return Verdict::Allow };
    let new = Subject::new(config, kind, &object, view.suspended);
    if request.operation != "UPDATE" {
        let mut errors = lasting(site, request, &new, &view);
        errors.extend(rules::fewer_pods(&new));
        return Verdict::of(errors);
    }
    let Some((_, before, old)) = parsed(config, request, &request.old) else { return Verdict::Allow };
    let is_managed = |view: &JobView| site.manages(&request.namespace, view.queue.as_deref());
    if !is_managed(&old) && !is_managed(&view) {
        return Verdict::Allow;
    }
    let before = Subject::new(config, kind, &before, old.suspended);
    let mut errors = rules::on_update(&before, &new);
    errors.extend(rules::gates_go(config, before.object, new.object));
    let lasting = |(job, view): &(&Subject<'_>, &JobView)| lasting(site, request, job, view);
    let is_managed = |(_, view): &(&Subject<'_>, &JobView)| is_managed(view);
    errors.extend(rules::added(Some(&(&before, &old)), &(&new, &view), is_managed, lasting));
    let has_default = site.surroundings.borrow().has_queue(&request.namespace);
    errors.extend(rules::queue_stays(before.object, new.object, has_default));
    Verdict::of(errors)
}

/// The rules that hold for a job whenever it is written; some, for some kinds, when it is created.
fn lasting(site: &Site, request: &Request, job: &Subject<'_>, view: &JobView) -> Vec<FieldError> {
    let config = &site.config;
    let is_managed = site.manages(&request.namespace, view.queue.as_deref());
    if is_managed && job.object.runs_elsewhere(job.kind) {
        return rules::elsewhere(job);
    }
    if is_managed && let Some(error) = rules::undescribed(job) {
        return vec![error];
    }
    let mut errors = Vec::new();
    if job.kind.rechecked || request.operation != "UPDATE" {
        errors.extend(rules::always(job));
    }
    errors.extend(rules::gated_by(config, job.object));
    if is_managed {
        errors.extend(rules::flags(job));
        // What is part of something else is not given the gate.
        if !site.is_part(&job.object.metadata) {
            errors.extend(rules::ungated(job));
        }
    }
    let gates = &config.feature_gates;
    if gates.topology_aware_scheduling && job.kind.added.is_to_templates() {
        errors.extend(topology::of_job(job, view.pod_sets.as_deref().ok(), gates.tas_multi_layer));
    }
    errors
}
