//! The webhook of pods that are managed by themselves, or for their owners.

use crds::names::{kueue, trireme};
use crds::validation::FieldError;
use serde_json::{Value, json};

use super::jobs::set_existing_parent;
use super::review::{Request, Verdict};
use super::rules::{self, Subject};
use super::{Site, filled, topology};
use crate::config::Configuration;
use crate::jobs::{JobObject, controller_of, is_unchosen};
use crate::pods::{self, Member, POD, PodOwner, prebuilt};

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
    let is_managed = is_managed(site, request, &pod);
    if is_managed {
        gate(config, &mut changed, &pod);
    }
    if is_managed || pod.label(trireme::SCHEDULED_BY).is_some() {
        name_scheduler(config, &mut changed);
    }
    Verdict::becoming(&request.object, changed)
}

/// Pods of a job that is managed are none by themselves; nor are those that nobody submits to a queue.
fn is_managed(site: &Site, request: &Request, pod: &JobObject) -> bool {
    let by_itself = || {
        let is_wanted = site.config.manages_pods() && site.manages(&request.namespace, pod.queue());
        is_wanted && (is_unmarked(&site.config, pod) || !site.is_part(&pod.metadata))
    };
    has_parent(pod) || by_itself()
}

/// Whether it is of an object of a kind that marks its pods, and has no mark: that object names no queue. It is not watched, so
/// nobody else would know.
fn is_unmarked(config: &Configuration, pod: &JobObject) -> bool {
    !config.manage_jobs_without_queue_name
        && controller_of(&pod.metadata).is_some_and(Configuration::marks_pods)
}

/// Whether its template says that it is of something that is managed.
pub(super) fn has_parent(pod: &JobObject) -> bool {
    !pod.annotation(kueue::POD_SUSPENDING_PARENT).is_empty()
}

fn gate(config: &Configuration, changed: &mut Value, pod: &JobObject) {
    let mut set = |part: &str, key: &str, value: &str| {
        set_existing_parent(changed, &format!("/metadata/{part}/{}", key.replace('/', "~1")), json!(value));
    };
    set("annotations", kueue::ROLE_HASH, &pod.role());
    let has_topology = config.feature_gates.topology_aware_scheduling;
    if let Some(rank) = pod.label(pod.annotation(kueue::POD_GROUP_POD_INDEX_LABEL)).filter(|_| has_topology) {
        set("labels", kueue::POD_GROUP_POD_INDEX, rank);
    }
    // By this label it is seen, whatever its template says: without, it would never join its group. A controller that is none of ours
    // sets it when the pod is to be seen.
    if !has_parent(pod) || PodOwner::suspending(pod).is_some() {
        set("labels", kueue::MANAGED, "true");
    }
    if !has_parent(pod) {
        let mut finalizers = pod.metadata.finalizers.clone().unwrap_or_default();
        if !finalizers.iter().any(|one| one == kueue::MANAGED) {
            finalizers.push(kueue::MANAGED.to_owned());
        }
        set_existing_parent(changed, "/metadata/finalizers", json!(finalizers));
    }
    let gates = pods::gated(pod, has_topology);
    set_existing_parent(changed, "/spec/schedulingGates", gates);
}

fn name_scheduler(config: &Configuration, changed: &mut Value) {
    const AT: &str = "/spec/schedulerName";
    let chosen = changed.pointer(AT).and_then(Value::as_str).unwrap_or_default();
    if is_unchosen(chosen) && !config.scheduler_name.is_empty() {
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
            errors.extend(rules::gates_go(config, old, &new));
            errors
        }
    };
    let is_managed = |pod: &JobObject| pod.label(kueue::MANAGED).is_some();
    errors.extend(rules::added(old.as_ref(), &new, is_managed, |pod| lasting(config, pod)));
    let says = new.label(kueue::MANAGED).is_some() && !has_parent(&new);
    if errors.is_empty() && says && config.is_part(&new.metadata) {
        let key = kueue::MANAGED;
        return Verdict::Warn(format!(
            "the pod's owner is managed, the pod is not: take its label {key} away"
        ));
    }
    Verdict::of(errors)
}

/// The rules that hold for a pod whenever it is written.
fn lasting(config: &Configuration, pod: &JobObject) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if pod.label(kueue::MANAGED).is_some_and(|value| value != "true") {
        errors.push(rules::forbidden(rules::label(kueue::MANAGED), "it can only be \"true\""));
    }
    errors.extend(rules::gated_by(config, pod));
    let annotations = pod.metadata.annotations.clone().unwrap_or_default();
    let is_layered = config.feature_gates.tas_multi_layer;
    errors.extend(topology::of_template("metadata", &annotations, None, is_layered));
    errors.extend(group(pod));
    if let (Some(group), Some(workload)) = (pod.group_name(), prebuilt(pod))
        && group != workload
    {
        let detail = "it must be the name of the group";
        errors.push(rules::invalid(rules::prebuilt_path(pod), workload, detail));
    }
    errors
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::surroundings::Surroundings;

    fn site(config: Configuration) -> Site {
        let surroundings = Surroundings { unselected: ["free".to_owned()].into(), ..Surroundings::default() };
        let (_, surroundings) = tokio::sync::watch::channel(surroundings);
        Site { config: config.into(), surroundings }
    }

    /// All pods and Deployments are managed, with a queue or without.
    fn everything() -> Configuration {
        Configuration { manage_jobs_without_queue_name: true, ..Configuration::default() }
    }

    fn creating(namespace: &str, metadata: Value) -> Request {
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "u", "operation": "CREATE", "namespace": namespace,
                "kind": { "group": "", "version": "v1", "kind": "Pod" },
                "object": { "metadata": metadata, "spec": { "containers": [] } },
            },
        });
        Request::parse(review.to_string().as_bytes()).unwrap()
    }

    /// A pod as it is created, if it is changed.
    fn created(config: Configuration, namespace: &str, metadata: Value) -> Option<Value> {
        match mutate(&site(config), &creating(namespace, metadata)) {
            Verdict::Allow => None,
            Verdict::Change(pod) => Some(pod),
            other => panic!("{other:?}"),
        }
    }

    fn queued() -> Value {
        json!({ "name": "p", "labels": { kueue::QUEUE_NAME: "q" } })
    }

    fn of_replica_set(labels: Value) -> Value {
        let owner = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": true,
        });
        json!({ "name": "p", "labels": labels, "ownerReferences": [owner] })
    }

    #[test]
    fn what_its_template_says_is_part_of_something_gets_no_class() {
        let mut surroundings = Surroundings { class: true, ..Surroundings::default() };
        surroundings.queues.insert("team".to_owned());
        let (_, surroundings) = tokio::sync::watch::channel(surroundings);
        let site = Site { config: Configuration::default().into(), surroundings };
        let filled = |annotations: Value| {
            let mut metadata = of_replica_set(json!({}));
            metadata["annotations"] = annotations;
            let labels = filled::in_labels(&site, &creating("team", metadata))["metadata"]["labels"].clone();
            labels.as_object().map_or(0, serde_json::Map::len)
        };
        assert_eq!(filled(json!({})), 2);
        assert_eq!(filled(json!({ kueue::POD_SUSPENDING_PARENT: "deployment" })), 0);
    }

    #[test]
    fn what_was_wrong_before_keeps_no_pod_from_being_let_go() {
        let pod = |group: &str, finalizers: Value| {
            let labels = json!({ kueue::MANAGED: "true", kueue::POD_GROUP_NAME: group });
            json!({ "name": "p", "labels": labels, "finalizers": finalizers })
        };
        let held = || json!([kueue::MANAGED]);
        let unlabelled = json!({ "name": "p", "labels": { kueue::POD_GROUP_NAME: "g" } });
        // Without the number of the group's pods.
        for (old, new, is_allowed) in [
            (None, pod("g", held()), false),
            (Some(pod("g", held())), pod("g", json!([])), true),
            (Some(json!({ "name": "p" })), pod("g", json!([])), false),
            (Some(unlabelled.clone()), pod("g", held()), false),
            (Some(unlabelled.clone()), unlabelled, true),
        ] {
            let mut request = creating("team", new.clone());
            if let Some(old) = old {
                request.operation = "UPDATE".to_owned();
                request.old = json!({ "metadata": old, "spec": { "containers": [] } });
            }
            let verdict = validate(&site(Configuration::default()), &request);
            assert_eq!(verdict == Verdict::Allow, is_allowed, "{new}: {verdict:?}");
        }
    }

    /// Kueue labels such a pod when it joins its group, and no template.
    #[test]
    fn whatever_is_gated_says_that_it_is_managed() {
        const PARENT: &str = kueue::POD_SUSPENDING_PARENT;
        let marked = |framework: &str| json!({ "name": "p", "annotations": { PARENT: framework } });
        for (metadata, is_held) in [
            (queued(), true),
            (marked("statefulset"), false),
            (marked("leaderworkerset.x-k8s.io/leaderworkerset"), false),
            (marked("deployment"), false),
        ] {
            let pod = created(Configuration::default(), "team", metadata).unwrap();
            assert_eq!(pod["metadata"]["labels"][kueue::MANAGED], "true", "{pod}");
            assert_eq!(pod["spec"]["schedulingGates"][0]["name"], kueue::ADMISSION_GATE, "{pod}");
            assert_eq!(pod["metadata"]["finalizers"].is_array(), is_held, "{pod}");
        }
    }

    #[test]
    fn pods_of_a_deployment_that_was_there_before_are_left_to_it() {
        let only_pods = Configuration::parse(
            std::path::Path::new("f"),
            "manageJobsWithoutQueueName: true\nintegrations:\n  frameworks: [pod]\n",
        )
        .unwrap();
        let hash = || json!({ "pod-template-hash": "5c8f" });
        for (config, labels, is_gated) in
            [(everything(), hash(), false), (everything(), json!({}), true), (only_pods, hash(), true)]
        {
            let pod = created(config, "team", of_replica_set(labels));
            assert_eq!(pod.is_some(), is_gated, "{pod:?}");
        }
    }

    /// Kueue's webhook configurations send reviews of more namespaces than are selected.
    #[test]
    fn pods_of_namespaces_that_are_not_selected_stay_as_they_are() {
        for (config, metadata) in
            [(Configuration::default(), queued()), (everything(), queued()), (everything(), json!({}))]
        {
            assert_eq!(created(config.clone(), "free", metadata.clone()), None, "{metadata}");
            assert!(created(config, "team", metadata).is_some());
        }
    }
}
