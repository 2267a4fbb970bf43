use crds::names::kueue;
use crds::validation::FieldError;
use serde_json::{Value, json};

use super::jobs::set_existing_parent;
use super::review::{Request, Verdict};
use super::rules::{self, Subject};
use super::{Site, filled, topology};
use crate::compose::annotations_of;
use crate::config::Configuration;
use crate::jobs::JobObject;
use crate::pods::{self, PodOwner, Shape, of_kind};

fn parsed(request: &Request, object: &Value) -> Option<(&'static PodOwner, JobObject)> {
    let owner = of_kind(&request.group, &request.kind)?;
    let object: JobObject = serde_json::from_value(object.clone()).ok()?;
    owner.is_top_level(&object).then_some((owner, object))
}

/// The pod templates of what is submitted to a queue say so: their pods are gated when they are created.
pub(super) fn mutate(site: &Site, request: &Request) -> Verdict {
    let (config, filled) = (&site.config, filled::in_labels(site, request));
    let Some((owner, object)) = parsed(request, &filled) else { return Verdict::Allow };
    let owned = is_part(config, &object);
    if owned || !config.manages(&request.namespace, object.queue()) {
        return Verdict::Allow;
    }
    let mut changed = filled;
    for template in owner.templates.iter().filter(|at| object.at(at).is_some_and(Value::is_object)) {
        let mut set = |part: &str, key: &str, value: &str| {
            let at = format!("{template}/metadata/{part}/{}", key.replace('/', "~1"));
            set_existing_parent(&mut changed, &at, json!(value));
        };
        set("annotations", kueue::POD_SUSPENDING_PARENT, owner.kind.framework);
        for (key, value) in owner.annotations {
            set("annotations", key, value);
        }
        set("labels", kueue::MANAGED, "true");
        let of_queue =
            [kueue::QUEUE_NAME, kueue::PRIORITY_CLASS].into_iter().filter(|_| owner.labels_templates);
        for key in of_queue {
            if let Some(value) = object.label(key).filter(|value| !value.is_empty()) {
                set("labels", key, value);
            }
        }
    }
    if config.feature_gates.topology_aware_scheduling {
        filled::in_ranks(owner.kind, &mut changed);
    }
    if changed == request.object { Verdict::Allow } else { Verdict::Change(changed) }
}

/// What the templates of a replica ask of the topology.
fn placed(config: &Configuration, owner: &PodOwner, object: &JobObject) -> Vec<FieldError> {
    let gates = &config.feature_gates;
    if !gates.topology_aware_scheduling {
        return Vec::new();
    }
    let members: Vec<_> = owner
        .counts(object)
        .into_iter()
        .map(|(template, count)| {
            let annotations = object.at(template).map(annotations_of).unwrap_or_default();
            (format!("{}.metadata", crate::jobs::field(template)), annotations, count)
        })
        .collect();
    let are_read = members.iter().all(|(_, annotations, _)| topology::is_read(annotations));
    let each = |(path, annotations, count): &(String, _, i64)| {
        topology::of_template(path, annotations, Some(*count).filter(|_| are_read), gates.tas_multi_layer)
    };
    let mut errors: Vec<FieldError> = members.iter().flat_map(each).collect();
    if are_read {
        errors.extend(topology::groups(&members));
    }
    errors
}

fn is_part(config: &Configuration, object: &JobObject) -> bool {
    object.metadata.owner_references.iter().flatten().any(|owner| config.is_part_of(owner))
}

/// What was admitted stays as it is: the queue while pods are ready, and what decides about quota.
pub(super) fn validate(site: &Site, request: &Request) -> Verdict {
    let config = &site.config;
    let Some((owner, new)) = parsed(request, &request.object) else { return Verdict::Allow };
    let old = parsed(request, &request.old).filter(|_| request.operation == "UPDATE").map(|(_, old)| old);
    let mut errors = rules::queue_name(&new);
    errors.extend(rules::elastic(&Subject::new(config, owner.kind, &new, false)));
    errors.extend(rules::gated_by(config, &new));
    if owner.is_per_replica() {
        errors.extend(placed(config, owner, &new));
        errors.extend(
            owner.check_replicas(&new).err().map(|detail| rules::invalid_number(REPLICAS, &new, detail)),
        );
    }
    if let Some(old) = &old {
        errors.extend(on_update(old, &new));
        errors.extend(rules::gates_go(config, old, &new));
        if config.manages(&request.namespace, new.queue()) {
            errors.extend(stays(owner, old, &new));
        }
    }
    Verdict::of(errors)
}

const REPLICAS: &str = "/spec/replicas";

fn on_update(old: &JobObject, new: &JobObject) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let is_idle = old.at("/status/readyReplicas").and_then(Value::as_i64).unwrap_or(0) == 0;
    let queue = new.queue().unwrap_or_default();
    if (!is_idle || queue.is_empty()) && old.queue() != new.queue() {
        let detail = "it stays while pods are ready, and is not taken away";
        errors.push(rules::invalid(rules::label(kueue::QUEUE_NAME), queue, detail));
    }
    errors.extend(rules::priority_class(is_idle, old, new));
    errors
}

/// What the Workload was made from.
fn stays(owner: &PodOwner, old: &JobObject, new: &JobObject) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if !owner.makes_workloads() {
        return errors;
    }
    for template in owner.templates {
        let path = crate::jobs::field(template);
        match (old.at(template).filter(|at| at.is_object()), new.at(template).filter(|at| at.is_object())) {
            (Some(old), Some(new)) => {
                let changed = pods::changed_shape(&old["spec"], &new["spec"]);
                errors.extend(
                    changed
                        .into_iter()
                        .map(|(field, value)| rules::immutable(format!("{path}.spec.{field}"), Some(&value))),
                );
            }
            (None, None) => {}
            (_, new) => errors.push(rules::immutable(path, new)),
        }
    }
    let (before, after) = (PodOwner::replicas(old), PodOwner::replicas(new));
    match &owner.shape {
        Shape::GroupPerReplica { size, .. } => {
            let number = |object: &JobObject| object.at(size).and_then(Value::as_i64).unwrap_or(1);
            if number(old) != number(new) {
                errors.push(rules::immutable(crate::jobs::field(size), Some(&json!(number(new)))));
            }
        }
        Shape::OneGroup if before != 0 && after != 0 && before != after => {
            errors.push(rules::immutable(crate::jobs::field(REPLICAS), Some(&json!(after))));
        }
        Shape::OneGroup if before == 0 && after > 0 => {
            if new.at("/status/replicas").and_then(Value::as_i64).unwrap_or(0) > 0 {
                let detail = "its pods from before are not gone yet";
                errors.push(rules::forbidden(crate::jobs::field(REPLICAS), detail));
            }
        }
        Shape::OneGroup | Shape::EachPod => {}
    }
    errors
}
