//! The webhook of Deployments, StatefulSets and LeaderWorkerSets, whose pods are managed.

use crds::names::kueue;
use crds::validation::FieldError;
use quota_engine::Uid;
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
    // Who was marked stays so, whatever this replica knows of its owner: without, all its pods would be made anew.
    let was_marked = || parsed(request, &request.old).is_some_and(|(owner, old)| owner.is_marked(&old));
    let is_part = site.is_part(&object.metadata) && !was_marked();
    if is_part || !site.manages(&request.namespace, object.queue()) {
        return Verdict::becoming(&request.object, filled);
    }
    let mut changed = filled;
    let templates = || owner.templates.iter().filter(|at| object.at(at).is_some_and(Value::is_object));
    for template in templates() {
        mark(owner, &object, &mut changed, template);
    }
    if config.feature_gates.topology_aware_scheduling {
        filled::in_ranks(owner.kind, &mut changed);
    }
    for template in templates() {
        if is_labelled(config, owner, &request.old, &changed, template) {
            set_existing_parent(&mut changed, &key_at(template, "labels", kueue::MANAGED), json!("true"));
        }
    }
    Verdict::becoming(&request.object, changed)
}

/// Says in a template what Kueue says in it.
fn mark(owner: &PodOwner, object: &JobObject, changed: &mut Value, template: &str) {
    let mut set = |part: &str, key: &str, value: &str| {
        set_existing_parent(changed, &key_at(template, part, key), json!(value));
    };
    set("annotations", kueue::POD_SUSPENDING_PARENT, owner.kind.framework);
    for (key, value) in owner.annotations {
        set("annotations", key, value);
    }
    let of_queue = [kueue::QUEUE_NAME, kueue::PRIORITY_CLASS].into_iter().filter(|_| owner.labels_templates);
    for key in of_queue {
        if let Some(value) = object.label(key).filter(|value| !value.is_empty()) {
            set("labels", key, value);
        }
    }
}

/// Whether the pods of a template get the label for managed pods from it. Kueue gives it to those of Deployments. Others have
/// it from the webhook for pods, and from their template only where it makes our webhook configurations send them there, that
/// is, where it names no queue. Kueue's send every pod, and after a way back Kueue takes a replica's pod that has the label for
/// one that has joined. A template from before is not changed for it, as all its pods would be made anew.
fn is_labelled(
    config: &Configuration,
    owner: &PodOwner,
    old: &Value,
    changed: &Value,
    template: &str,
) -> bool {
    let has = |object: &Value, key: &str| object.pointer(&key_at(template, "labels", key)).is_some();
    let is_sent = config.take_over.is_some() || has(changed, kueue::QUEUE_NAME);
    let is_new = old.pointer(template) != changed.pointer(template);
    !owner.makes_workloads() || has(old, kueue::MANAGED) || (is_new && !is_sent)
}

fn key_at(template: &str, part: &str, key: &str) -> String {
    format!("{template}/metadata/{part}/{}", key.replace('/', "~1"))
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
    let are_read =
        members.iter().all(|(_, annotations, _)| topology::is_read(annotations, gates.tas_multi_layer));
    let each = |(path, annotations, count): &(String, _, i64)| {
        topology::of_template(path, annotations, Some(*count).filter(|_| are_read), gates.tas_multi_layer)
    };
    let mut errors: Vec<FieldError> = members.iter().flat_map(each).collect();
    if are_read {
        errors.extend(topology::groups(&members));
    }
    errors
}

/// What was admitted stays as it is: the queue while pods are ready, and what decides about quota.
pub(super) fn validate(site: &Site, request: &Request) -> Verdict {
    let config = &site.config;
    let Some((owner, new)) = parsed(request, &request.object) else { return Verdict::Allow };
    let old = parsed(request, &request.old).filter(|_| request.operation == "UPDATE").map(|(_, old)| old);
    let is_managed = |object: &JobObject| site.manages(&request.namespace, object.queue());
    let mut errors = rules::added(old.as_ref(), &new, is_managed, |object| lasting(config, owner, object));
    if let Some(old) = &old {
        errors.extend(on_update(old, &new));
        errors.extend(rules::gates_go(config, old, &new));
        // What is part of something that is managed has no quota of its own, unless it got some before it had that owner.
        let is_part = site.is_part(&new.metadata) && !owner.is_marked(old);
        let is_leaving = new.metadata.deletion_timestamp.is_some();
        if !is_part && !is_leaving && site.manages(&request.namespace, new.queue()) {
            errors.extend(stays(site, owner, old, &new));
        }
    }
    Verdict::of(errors)
}

/// The rules that hold for such an object whenever it is written.
fn lasting(config: &Configuration, owner: &PodOwner, object: &JobObject) -> Vec<FieldError> {
    let mut errors = rules::queue_name(object);
    errors.extend(rules::elastic(&Subject::new(config, owner.kind, object, false)));
    errors.extend(rules::gated_by(config, object));
    if owner.is_per_replica() {
        errors.extend(placed(config, owner, object));
        let refused = owner.check_replicas(object).err();
        errors.extend(refused.map(|detail| rules::invalid_number(REPLICAS, object, detail)));
    }
    errors
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
fn stays(site: &Site, owner: &PodOwner, old: &JobObject, new: &JobObject) -> Vec<FieldError> {
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
    let (before, after) = (owner.replicas(old), owner.replicas(new));
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
            let has_pods = new.at("/status/replicas").and_then(Value::as_i64).unwrap_or(0) > 0;
            let is_occupied = || site.surroundings.borrow().occupied.contains(&Uid::from(new.uid()));
            let left = if has_pods {
                Some("its pods from before are not gone yet")
            } else {
                is_occupied()
                    .then_some("its Workload from before has not given its quota back yet, or is at its end")
            };
            errors.extend(left.map(|detail| rules::forbidden(crate::jobs::field(REPLICAS), detail)));
        }
        Shape::OneGroup | Shape::EachPod => {}
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::TakeOver;
    use crate::surroundings::Surroundings;

    const SET: (&str, &str, &str) = ("apps", "StatefulSet", "/spec/template");
    const DEPLOYMENT: (&str, &str, &str) = ("apps", "Deployment", "/spec/template");
    const GROUPS: (&str, &str, &str) =
        ("leaderworkerset.x-k8s.io", "LeaderWorkerSet", "/spec/leaderWorkerTemplate/workerTemplate");

    fn ours() -> Configuration {
        Configuration::default()
    }

    fn kueues() -> Configuration {
        Configuration { take_over: Some(TakeOver::default()), ..ours() }
    }

    fn all(config: Configuration) -> Configuration {
        Configuration { manage_jobs_without_queue_name: true, ..config }
    }

    /// An object of a kind with one template.
    fn object((group, kind, template): (&str, &str, &str), queue: &str) -> Value {
        let version = format!("{group}/v1");
        let mut object = json!({ "apiVersion": version, "kind": kind, "metadata": { "name": "x" } });
        if !queue.is_empty() {
            object["metadata"]["labels"] = json!({ kueue::QUEUE_NAME: queue });
        }
        set_existing_parent(&mut object, template, json!({ "spec": { "containers": [] } }));
        object
    }

    /// The object as it is stored.
    fn stored(
        config: &Configuration,
        (group, kind, _): (&str, &str, &str),
        old: &Value,
        new: &Value,
    ) -> Value {
        stored_in(Surroundings::default(), config, (group, kind), old, new)
    }

    fn stored_in(
        known: Surroundings,
        config: &Configuration,
        (group, kind): (&str, &str),
        old: &Value,
        new: &Value,
    ) -> Value {
        let (_, surroundings) = tokio::sync::watch::channel(known);
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "u", "operation": if old.is_null() { "CREATE" } else { "UPDATE" }, "namespace": "team",
                "kind": { "group": group, "version": "v1", "kind": kind }, "object": new, "oldObject": old,
            },
        });
        let site = Site { config: config.clone().into(), surroundings };
        match mutate(&site, &Request::parse(review.to_string().as_bytes()).unwrap()) {
            Verdict::Allow => new.clone(),
            Verdict::Change(changed) => changed,
            other => panic!("{other:?}"),
        }
    }

    /// Whether a StatefulSet may become another.
    fn is_allowed(known: Surroundings, old: &Value, new: &Value) -> bool {
        let (_, surroundings) = tokio::sync::watch::channel(known);
        let site = Site { config: ours().into(), surroundings };
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "r", "operation": "UPDATE", "namespace": "team",
                "kind": { "group": SET.0, "version": "v1", "kind": SET.1 }, "object": new, "oldObject": old,
            },
        });
        validate(&site, &Request::parse(review.to_string().as_bytes()).unwrap()) == Verdict::Allow
    }

    fn has_label(object: &Value, template: &str) -> bool {
        object.pointer(&key_at(template, "labels", kueue::MANAGED)) == Some(&json!("true"))
    }

    #[test]
    fn what_was_wrong_before_keeps_no_set_from_being_finished_with() {
        let set = |elastic: bool, finalizers: Value| {
            let mut set = object(SET, "q");
            set["metadata"]["finalizers"] = finalizers;
            if elastic {
                set["metadata"]["annotations"] = json!({ kueue::ELASTIC_JOB: "true" });
            }
            set
        };
        let (plain, elastic) = (set(false, json!(["a/b"])), set(true, json!(["a/b"])));
        let mut unqueued = elastic.clone();
        unqueued["metadata"]["labels"] = json!({});
        for (old, new, wanted) in
            [(&elastic, &set(true, json!([])), true), (&plain, &elastic, false), (&unqueued, &elastic, false)]
        {
            assert_eq!(is_allowed(Surroundings::default(), old, new), wanted, "{old} {new}");
        }
    }

    /// Kueue's webhooks for these kinds fill them in with every write. Others' do so at the creation.
    #[test]
    fn what_was_filled_in_stays_where_a_write_leaves_it_out() {
        let labelled = |queue: &str, class: &str| {
            let mut object = object(DEPLOYMENT, queue);
            if !class.is_empty() {
                object["metadata"]["labels"][kueue::PRIORITY_CLASS] = json!(class);
            }
            object
        };
        let labels = |object: &Value| {
            [kueue::QUEUE_NAME, kueue::PRIORITY_CLASS].map(|key| object["metadata"]["labels"][key].clone())
        };
        for (before, there, wanted) in [
            (labelled("default", "default"), true, [json!("default"), json!("default")]),
            (labelled("default", "high"), true, [json!("default"), Value::Null]),
            (labelled("a", "default"), true, [Value::Null, json!("default")]),
            (labelled("", ""), true, [Value::Null, Value::Null]),
            (labelled("default", "default"), false, [Value::Null, Value::Null]),
        ] {
            let queues = there.then(|| "team".to_owned()).into_iter().collect();
            let known = Surroundings { queues, class: there, ..Surroundings::default() };
            let kind = (DEPLOYMENT.0, DEPLOYMENT.1);
            let after = stored_in(known, &ours(), kind, &before, &object(DEPLOYMENT, ""));
            assert_eq!(labels(&after), wanted, "{before}");
        }
    }

    #[test]
    fn a_template_is_labelled_where_its_pods_would_not_be_seen_otherwise() {
        for (config, kind, queue, wanted) in [
            (ours(), SET, "a", true),
            (ours(), GROUPS, "a", false),
            (all(ours()), GROUPS, "", true),
            (ours(), DEPLOYMENT, "a", true),
            (kueues(), SET, "a", false),
            (all(kueues()), GROUPS, "", false),
            (kueues(), DEPLOYMENT, "a", true),
        ] {
            let made = stored(&config, kind, &Value::Null, &object(kind, queue));
            let parent = key_at(kind.2, "annotations", kueue::POD_SUSPENDING_PARENT);
            assert!(made.pointer(&parent).is_some(), "{made}");
            assert_eq!(has_label(&made, kind.2), wanted, "{made}");
        }
    }

    /// As with Kueue.
    #[test]
    fn the_mark_of_another_kind_says_of_a_stateful_set_alone_that_it_is_a_part() {
        for (kind, stays) in [(SET, true), (GROUPS, false), (DEPLOYMENT, false)] {
            let mut marked = object(kind, "a");
            let parent = key_at(kind.2, "annotations", kueue::POD_SUSPENDING_PARENT);
            set_existing_parent(&mut marked, &parent, json!("another"));
            let made = stored(&ours(), kind, &Value::Null, &marked);
            assert_eq!(made.pointer(&parent) == Some(&json!("another")), stays, "{made}");
        }
    }

    /// Every pod would be made anew.
    #[test]
    fn an_edit_leaves_the_template_as_it_was() {
        let annotated = |object: &Value| {
            let mut object = object.clone();
            object["metadata"]["annotations"] = json!({ "a": "b" });
            object
        };
        for kind in [SET, GROUPS] {
            // As Kueue left it; under its webhook configurations, and under our own.
            let before = stored(&kueues(), kind, &Value::Null, &object(kind, "a"));
            for config in [kueues(), ours()] {
                let after = stored(&config, kind, &before, &annotated(&before));
                assert_eq!(after, annotated(&before));
            }
            // A template with the label keeps it, even from who writes the whole object.
            let mut labelled = before.clone();
            let at = key_at(kind.2, "labels", kueue::MANAGED);
            set_existing_parent(&mut labelled, &at, json!("true"));
            for config in [kueues(), ours()] {
                assert_eq!(stored(&config, kind, &labelled, &before), labelled);
            }
        }
        let before = stored(&kueues(), SET, &Value::Null, &object(SET, "a"));
        let mut restarted = before.clone();
        restarted["spec"]["template"]["metadata"]["annotations"]["at"] = json!("noon");
        assert!(has_label(&stored(&ours(), SET, &before, &restarted), SET.2), "its pods are made anew");
    }

    /// It has no quota of its own.
    #[test]
    fn what_is_part_of_something_managed_may_be_scaled() {
        let wrapper = json!([{ "apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper", "name": "w", "uid": "w",
            "controller": true }]);
        for (owner, marked, wanted) in
            [(&json!([]), false, false), (&wrapper, false, true), (&wrapper, true, false)]
        {
            let set = |replicas: i64| {
                let mut set = object(SET, "a");
                set["metadata"]["ownerReferences"] = owner.clone();
                set["spec"]["replicas"] = json!(replicas);
                if marked {
                    let parent = key_at(SET.2, "annotations", kueue::POD_SUSPENDING_PARENT);
                    set_existing_parent(&mut set, &parent, json!("statefulset"));
                }
                set
            };
            assert_eq!(is_allowed(Surroundings::default(), &set(3), &set(4)), wanted, "{owner} {marked}");
        }
    }

    /// As Kueue has it; one that waits for quota may go on waiting, which Kueue does not let it.
    #[test]
    fn a_set_is_scaled_up_from_nothing_when_what_it_had_is_given_back() {
        let set = |replicas: i64, left: i64| {
            let mut set = object(SET, "a");
            set["metadata"]["uid"] = json!("u");
            set["spec"]["replicas"] = json!(replicas);
            set["status"] = json!({ "replicas": left });
            set
        };
        for (left, occupied, wanted) in [(0, "", true), (1, "", false), (0, "other", true), (0, "u", false)] {
            let known = Surroundings { occupied: [Uid::from(occupied)].into(), ..Surroundings::default() };
            assert_eq!(is_allowed(known, &set(0, left), &set(3, left)), wanted, "{left} {occupied}");
        }
    }
}
