use crds::names::{kueue, trireme};
use crds::validation::FieldError;
use serde_json::{Value, json};

use super::jobs::{DEFAULT_SCHEDULER, set_existing_parent};
use super::review::{Request, Verdict};
use super::rules::{self, Subject};
use super::{Site, filled, topology};
use crate::config::Configuration;
use crate::jobs::JobObject;
use crate::pods::{self, Member, POD, prebuilt};

/// A managed pod is created with a gate, with what tells its shape, and, where nobody else answers for it, with a finalizer.
pub(super) fn mutate(site: &Site, request: &Request) -> Verdict {
    let config = &site.config;
    let mut changed = request.object.clone();
    if config.manages_pods() {
        changed = filled::in_labels(site, request);
    }
    let Ok(pod) = serde_json::from_value::<JobObject>(changed.clone()) else { return Verdict::Allow };
    if request.operation != "CREATE" {
        return Verdict::Allow;
    }
    let is_managed = is_managed(config, request, &pod);
    if is_managed {
        gate(config, &mut changed, &pod);
    }
    if is_managed || pod.label(trireme::SCHEDULED_BY).is_some() {
        name_scheduler(config, &mut changed);
    }
    if changed == request.object { Verdict::Allow } else { Verdict::Change(changed) }
}

/// Pods of a job that is managed are none by themselves; nor are those that nobody submits to a queue.
fn is_managed(config: &Configuration, request: &Request, pod: &JobObject) -> bool {
    let owned = || pod.metadata.owner_references.iter().flatten().any(|owner| config.is_part_of(owner));
    has_parent(pod) || (config.manages_pods() && config.manages(&request.namespace, pod.queue()) && !owned())
}

fn has_parent(pod: &JobObject) -> bool {
    !pod.annotation(kueue::POD_SUSPENDING_PARENT).is_empty()
}

fn gate(config: &Configuration, changed: &mut Value, pod: &JobObject) {
    let mut set = |part: &str, key: &str, value: &str| {
        set_existing_parent(changed, &format!("/metadata/{part}/{}", key.replace('/', "~1")), json!(value));
    };
    set("annotations", kueue::ROLE_HASH, &pod.role());
    let rank = match pod.annotation(kueue::POD_GROUP_POD_INDEX_LABEL) {
        "" => None,
        label => pod.label(label),
    };
    if let Some(rank) = rank {
        set("labels", kueue::POD_GROUP_POD_INDEX, rank);
    }
    if !has_parent(pod) {
        set("labels", kueue::MANAGED, "true");
        let mut finalizers = pod.metadata.finalizers.clone().unwrap_or_default();
        if !finalizers.iter().any(|one| one == kueue::MANAGED) {
            finalizers.push(kueue::MANAGED.to_owned());
        }
        set_existing_parent(changed, "/metadata/finalizers", json!(finalizers));
    }
    let gates = pods::gated(pod, config.feature_gates.topology_aware_scheduling);
    set_existing_parent(changed, "/spec/schedulingGates", gates);
}

fn name_scheduler(config: &Configuration, changed: &mut Value) {
    const AT: &str = "/spec/schedulerName";
    let chosen = changed.pointer(AT).and_then(Value::as_str).unwrap_or_default();
    if (chosen.is_empty() || chosen == DEFAULT_SCHEDULER) && !config.scheduler_name.is_empty() {
        set_existing_parent(changed, AT, json!(config.scheduler_name));
    }
}

/// A group has a name and a size, and a pod stays in its group.
pub(super) fn validate(site: &Site, request: &Request) -> Verdict {
    let read = |object: &Value| serde_json::from_value::<JobObject>(object.clone()).ok();
    let Some(new) = read(&request.object) else { return Verdict::Allow };
    let suspended = |pod: &JobObject| pod.is_terminated() || pod.has_gate(kueue::ADMISSION_GATE);
    let config = &site.config;
    let subject = Subject::new(config, POD, &new, suspended(&new));
    let old = read(&request.old).filter(|_| request.operation == "UPDATE");
    let mut errors = match &old {
        None => rules::always(&subject),
        Some(old) => {
            let before = Subject::new(config, POD, old, suspended(old));
            let mut errors = rules::on_update(&before, &subject);
            let has_default = site.surroundings.borrow().has_queue(&request.namespace);
            errors.extend(rules::queue_stays(old, &new, has_default));
            errors.extend(stays_in_group(old, &new));
            errors
        }
    };
    if new.label(kueue::MANAGED).is_some_and(|value| value != "true") {
        errors.push(rules::forbidden(rules::label(kueue::MANAGED), "it can only be \"true\""));
    }
    errors.extend(rules::gated_by(config, &new));
    errors.extend(old.and_then(|old| rules::gates_go(config, &old, &new)));
    let gates = &config.feature_gates;
    let annotations = new.metadata.annotations.clone().unwrap_or_default();
    errors.extend(topology::of_template("metadata", &annotations, None, gates.tas_multi_layer));
    errors.extend(group(&new));
    if let (Some(group), Some(workload)) = (new.group_name(), prebuilt(&new))
        && group != workload
    {
        let detail = "it must be the name of the group";
        errors.push(rules::invalid(rules::prebuilt_path(&new), workload, detail));
    }
    Verdict::of(errors)
}

fn stays_in_group(old: &JobObject, new: &JobObject) -> Vec<FieldError> {
    const RETRIABLE: &str = kueue::RETRIABLE_IN_GROUP;
    let mut errors = Vec::new();
    let group = new.group_name().unwrap_or_default();
    if new.group_name().is_some()
        && old.annotation(RETRIABLE) == "false"
        && new.annotation(RETRIABLE) != "false"
    {
        let detail = "a group that is not to be retried stays so";
        errors.push(rules::forbidden(rules::annotation(RETRIABLE), detail));
    }
    if old.group_name().is_some_and(|old| old != group) {
        errors.push(rules::immutable(group_path(new), Some(&json!(group))));
    }
    errors
}

fn group_path(pod: &JobObject) -> String {
    match pod.annotation(kueue::POD_GROUP_NAME) {
        "" => rules::label(kueue::POD_GROUP_NAME),
        _ => rules::annotation(kueue::POD_GROUP_NAME),
    }
}

fn group(pod: &JobObject) -> Vec<FieldError> {
    const TOTAL: &str = kueue::POD_GROUP_TOTAL_COUNT;
    let mut errors = Vec::new();
    let total = pod.metadata.annotations.as_ref().and_then(|all| all.get(TOTAL));
    let both = format!("the annotation {TOTAL} and the name of a group belong together");
    match (pod.group_name(), total) {
        (None, None) => {}
        (None, Some(_)) => errors.push(rules::required(group_path(pod), both)),
        (Some(name), total) => {
            if !crds::validation::is_dns_subdomain(name) {
                errors.push(rules::invalid(group_path(pod), name, "it must be the name of a Workload"));
            }
            match total {
                None => errors.push(rules::required(rules::annotation(TOTAL), both)),
                Some(text) if text.parse::<i32>().is_ok_and(|total| total > 0) => {}
                Some(text) => {
                    let detail = "it must be a whole number above 0";
                    errors.push(rules::invalid(rules::annotation(TOTAL), text, detail));
                }
            }
        }
    }
    errors
}
